/* The header of a GGUF file: its keys and the list of its tensors. It is here
 * and not in checkpoint/ because the vocabulary is among the keys. Source:
 * ggml, docs/gguf.md. Start at gpt_gguf_open().
 *
 * The reader believes nothing. Lengths and counts are compared with what is
 * left of the file before anything is made of them; names appear once; tensors
 * lie in the file and do not overlap. */
#ifndef GPT_TOKENIZER_GGUF_FILE_H
#define GPT_TOKENIZER_GGUF_FILE_H

#include "base/io.h"
#include "base/memory.h"
#include "text/str.h"

enum {
    GPT_GGUF_DIMS = 4,
    GPT_GGUF_VERSION = 3, /* as written; 2 is read as well */
    GPT_GGUF_ALIGN = 32,  /* of data, unless a key says otherwise */
    GPT_GGUF_NAME = 64,   /* bytes of a tensor's name, NUL included */
};

/* Types of values, by their numbers in the file. */
enum gpt_gguf_type {
    GPT_GGUF_U8,
    GPT_GGUF_I8,
    GPT_GGUF_U16,
    GPT_GGUF_I16,
    GPT_GGUF_U32,
    GPT_GGUF_I32,
    GPT_GGUF_F32,
    GPT_GGUF_BOOL,
    GPT_GGUF_STRING,
    GPT_GGUF_ARRAY,
    GPT_GGUF_U64,
    GPT_GGUF_I64,
    GPT_GGUF_F64,
    GPT_GGUF_N_TYPES
};
const char *gpt_gguf_type_name(enum gpt_gguf_type type); /* "u32" */

struct gpt_gguf_key {
    struct gpt_str name; /* ends with a NUL */
    enum gpt_gguf_type type;
    enum gpt_gguf_type element; /* of an array */
    int64_t n;      /* elements of an array */
    int64_t offset; /* in the file, of a string or of the first element, */
    int64_t bytes;  /* and how many there are, lengths of strings included */
    int64_t whole;  /* the value where it is an integer or a bool, */
    double real;    /* and of any number */
};

struct gpt_gguf_tensor {
    struct gpt_str name; /* ends with a NUL */
    int ndim;
    int64_t shape[GPT_GGUF_DIMS]; /* rows first, unlike in the file */
    uint32_t type;                /* ggml's number */
    int64_t offset;               /* in the file */
    int64_t elements;
};

struct gpt_gguf {
    struct gpt_in *in;
    int64_t alignment; /* of tensors in the file, bytes */
    struct gpt_gguf_key *keys; /* in the order of the file */
    int64_t n_keys;
    struct gpt_gguf_tensor *tensors;
    int64_t n_tensors;
    int64_t data_start; /* offset of the first byte after the header */
    const struct gpt_gguf_key **by_key; /* sorted by name */
    struct gpt_arena arena;
};

/* True when the file at `path` begins as GGUF files do. */
bool gpt_gguf_recognises(const char *path);

/* GPT_EDATA names file, offset and value. The ends of tensors are not compared
 * with the file here, as types have their sizes elsewhere. */
int gpt_gguf_open(struct gpt_gguf *g, const char *path,
                  struct gpt_err *err) GPT_MUST_USE;
void gpt_gguf_close(struct gpt_gguf *g); /* zero is fine */

/* NULL when there is none of that name. */
const struct gpt_gguf_key *gpt_gguf_find(const struct gpt_gguf *g,
                                         const char *name);

/* Values by their names. Absent: *out stays as it is. Of another type, or out
 * of range: GPT_EDATA. A string is NUL-terminated, of the arena, at most 1 MiB,
 * and holds no NUL itself. */
int gpt_gguf_int(const struct gpt_gguf *g, const char *name, int64_t min,
                 int64_t max, int64_t *out, struct gpt_err *err) GPT_MUST_USE;
int gpt_gguf_real(const struct gpt_gguf *g, const char *name, double *out,
                  struct gpt_err *err) GPT_MUST_USE;
int gpt_gguf_bool(const struct gpt_gguf *g, const char *name, bool *out,
                  struct gpt_err *err) GPT_MUST_USE;
int gpt_gguf_text(struct gpt_gguf *g, const char *name, const char **out,
                  struct gpt_err *err) GPT_MUST_USE;

/* An array of strings, or of 32-bit numbers, whole; *n = 0 when absent. The
 * list is freed with gpt_free(), strings are of the arena. */
int gpt_gguf_strings(struct gpt_gguf *g, const char *name,
                     struct gpt_str **list, int64_t *n,
                     struct gpt_err *err) GPT_MUST_USE;
int gpt_gguf_words(const struct gpt_gguf *g, const char *name,
                   enum gpt_gguf_type element, void **list, int64_t *n,
                   struct gpt_err *err) GPT_MUST_USE;

#endif
