/* Pickles of Python (protocols 0 to 5) as inert trees: nothing that a pickle
 * names is imported, called or resolved. What a pickle would have Python call
 * becomes a node with the name and the arguments, and the reader decides which
 * names mean something to it. Start at gpt_pickle_parse().
 *
 * Source of the format: Lib/pickletools.py of CPython, which describes every
 * opcode. */
#ifndef GPT_CHECKPOINT_PICKLE_H
#define GPT_CHECKPOINT_PICKLE_H

#include "base/memory.h"

enum {
    GPT_PICKLE_BYTES = 64 << 20,  /* of one pickle */
    GPT_PICKLE_OPCODES = 8 << 20, /* executed */
    GPT_PICKLE_VALUES = 2 << 20,  /* nodes, and items of containers */
};

enum gpt_pickle_kind {
    GPT_PICKLE_NONE,
    GPT_PICKLE_BOOL,   /* i */
    GPT_PICKLE_INT,    /* i */
    GPT_PICKLE_LONG,   /* text: over 8 bytes, little-endian two's complement */
    GPT_PICKLE_FLOAT,  /* f */
    GPT_PICKLE_STRING, /* text, UTF-8 */
    GPT_PICKLE_BLOB,   /* text; also strings that are no UTF-8 */
    GPT_PICKLE_LIST,   /* items */
    GPT_PICKLE_TUPLE,  /* items */
    GPT_PICKLE_SET,    /* items */
    GPT_PICKLE_DICT,   /* items: keys and values in turn */
    GPT_PICKLE_GLOBAL, /* text: "module.name" */
    /* What a call would give: of a function (REDUCE) or a class (NEWOBJ), with
     * the items that were added and the state that was set afterwards. */
    GPT_PICKLE_OBJECT,
    GPT_PICKLE_PERSISTENT, /* args: the id */
};

struct gpt_pickle_value {
    uint8_t kind; /* enum gpt_pickle_kind */
    bool paired;  /* items are keys and values */
    uint32_t at;  /* offset in the pickle, for messages */
    uint32_t n;   /* items, or bytes of text */
    uint32_t cap;
    union {
        struct gpt_pickle_value **items;
        const char *text; /* n bytes, in the pickle or the arena; no NUL */
        int64_t i;
        double f;
    };
    struct gpt_pickle_value *callee, *args; /* of an object */
    struct gpt_pickle_value *state;         /* NULL when none was set */
};

struct gpt_pickle {
    const struct gpt_pickle_value *root;
    size_t bytes; /* that the pickle has, up to and with its STOP */
    bool cut;     /* after a failure: the data ended inside the pickle */
    /* Everything that it names, "module.name", in order of first mention. */
    const struct gpt_pickle_value **globals;
    int64_t n_globals, n_values;
    /* Every persistent id, in order; torch names storages by them. */
    const struct gpt_pickle_value **persistent;
    int64_t n_persistent;

    /* private */
    size_t cap_globals, cap_persistent;
    struct gpt_arena arena;
};

/* Parses the pickle that data[0..len) begins with. Values refer to `data`,
 * which outlives them. GPT_EDATA names `what`, the offset (that of the data in
 * the file, `offset`, included) and the opcode. Free with
 * gpt_pickle_free(). */
int gpt_pickle_parse(struct gpt_pickle *p, const void *data, size_t len,
                     const char *what, int64_t offset,
                     struct gpt_err *err) GPT_MUST_USE;
void gpt_pickle_free(struct gpt_pickle *p); /* zero is fine */

/* ---- values; NULL is never equal to, and has nothing ---- */

/* True for a string of exactly that text. */
bool gpt_pickle_is(const struct gpt_pickle_value *v, const char *text);
/* True for that name ("torch.Size"), not called. */
bool gpt_pickle_is_global(const struct gpt_pickle_value *v, const char *name);
/* True for an object that calling `name` would have made. */
bool gpt_pickle_is_call(const struct gpt_pickle_value *v, const char *name);
/* Bools and scalars of numpy count as numbers. */
bool gpt_pickle_int(const struct gpt_pickle_value *v, int64_t *out);
bool gpt_pickle_real(const struct gpt_pickle_value *v, double *out);

/* What has keys: a dict, an OrderedDict, or an object whose state is a dict
 * (argparse.Namespace). NULL when `v` has none. */
const struct gpt_pickle_value *
gpt_pickle_mapping(const struct gpt_pickle_value *v);
/* Pairs of a mapping, in order; a key may come twice. */
int64_t gpt_pickle_pairs(const struct gpt_pickle_value *mapping);
void gpt_pickle_pair(const struct gpt_pickle_value *mapping, int64_t i,
                     const struct gpt_pickle_value **key,
                     const struct gpt_pickle_value **value);
/* The value of a string key in what has keys; of equal keys the last, as
 * Python has it. NULL when there is none. O(n). */
const struct gpt_pickle_value *gpt_pickle_find(const struct gpt_pickle_value *v,
                                               const char *key);
/* The keys of a dict that are none of `known` and have a value, "a, b", in the
 * arena; a known key that ends in '*' is every key that begins so. NULL when
 * there is none, or no memory. */
const char *gpt_pickle_others(const struct gpt_pickle_value *v,
                              const char *const *known,
                              struct gpt_arena *arena);
/* Items of a list, tuple or set, and of torch.Size: true when it is one. */
bool gpt_pickle_sequence(const struct gpt_pickle_value *v,
                         struct gpt_pickle_value ***items, int64_t *n);
/* Numbers of such items, as of a shape, strides or a place: true when there are
 * `most` of them or fewer, none negative. *n and out[0..*n) are then set. */
bool gpt_pickle_sizes(const struct gpt_pickle_value *v, int most, int64_t *out,
                      int *n);

/* Appends a text of one value for people, at most `depth` containers deep and
 * `most` items of each; the rest is "...". */
int gpt_pickle_print(struct gpt_buf *b, const struct gpt_pickle_value *v,
                     int depth, int64_t most) GPT_MUST_USE;

#endif
