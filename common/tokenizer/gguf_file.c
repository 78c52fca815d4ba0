/* Reading the header of a GGUF file; see gguf_file.h. A cursor passes over the
 * file once, through a block of it in memory. Keys of one number keep their
 * value, strings and arrays only their place. Start at gpt_gguf_open(). */
#include "tokenizer/gguf_file.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 64 << 10,       /* of the file, held at once */
    LEAST_KEY = 8 + 4 + 1,  /* bytes that a key takes: "", its type, u8 */
    LEAST_TENSOR = 8 + 4 + 4 + 8,
    KEY_BYTES = 65535,      /* of a name, by the format */
    MOST_ALIGN = 1 << 20,
};

/* Where reading is. `block` holds the file from `begin` to `end`. */
struct cursor {
    struct gpt_in *in;
    struct gpt_arena *arena;
    int64_t at, begin, end;
    uint8_t *block;
    struct gpt_err *err;
};

static const struct {
    const char *name;
    int bytes;
} types[GPT_GGUF_N_TYPES] = {
    {"u8", 1},   {"i8", 1},   {"u16", 2},    {"i16", 2},   {"u32", 4},
    {"i32", 4},  {"f32", 4},  {"bool", 1},   {"string", 0}, {"array", 0},
    {"u64", 8},  {"i64", 8},  {"f64", 8},
};

const char *gpt_gguf_type_name(enum gpt_gguf_type type)
{
    return type < GPT_GGUF_N_TYPES ? types[type].name : "?";
}

/* Without a message: that a file is of another kind is an answer. A directory
 * is opened by no one here. */
bool gpt_gguf_recognises(const char *path)
{
    struct gpt_in *in;
    char magic[4] = "";

    if (gpt_path_is_dir(path) || gpt_in_open(&in, path, NULL) != GPT_OK)
        return false;
    bool found = gpt_in_size(in) >= (int64_t)sizeof(magic) &&
                 gpt_in_read(in, magic, 0, sizeof(magic), NULL) == GPT_OK &&
                 memcmp(magic, "GGUF", sizeof(magic)) == 0;
    gpt_in_close(in);
    return found;
}

/* ---- the cursor ---- */

/* What is wrong at the cursor. */
static int reject(const struct cursor *c, const char *what, int64_t value)
{
    return gpt_fail(c->err, GPT_EDATA, "%s: offset %lld: %s (%lld)",
                    gpt_in_path(c->in), (long long)c->at, what,
                    (long long)value);
}

/* The next n bytes, n no more than a block. */
static int take(struct cursor *c, int64_t n, const uint8_t **p)
{
    if (n > gpt_in_size(c->in) - c->at)
        return gpt_fail(c->err, GPT_EDATA,
                        "%s: offset %lld: the header ends in the middle of a "
                        "value", gpt_in_path(c->in), (long long)c->at);
    if (c->at < c->begin || c->at + n > c->end) {
        c->begin = c->end = c->at;
        const int64_t end = gpt_min_i64(c->at + BLOCK, gpt_in_size(c->in));
        GPT_TRY(gpt_in_read(c->in, c->block, c->begin,
                            (size_t)(end - c->begin), c->err));
        c->end = end;
    }
    *p = c->block + (c->at - c->begin);
    c->at += n;
    return GPT_OK;
}

/* All numbers are little-endian in files that are read here. */
static int take_u32(struct cursor *c, uint32_t *out)
{
    const uint8_t *p;

    GPT_TRY(take(c, 4, &p));
    *out = gpt_get_u32(p);
    return GPT_OK;
}

/* A count or a length, which must not be more than the rest of the file can
 * hold of things of `least` bytes: so no count needs a limit of its own. */
static int take_count(struct cursor *c, int64_t least, const char *what,
                      int64_t *out)
{
    const uint8_t *p;

    GPT_TRY(take(c, 8, &p));
    const uint64_t n = gpt_get_u64(p);
    const int64_t rest = gpt_in_size(c->in) - c->at;
    /* the message names where the count is, not where it ends; and a division,
     * since a product of a hostile count overflows */
    c->at -= 8;
    if (n > (uint64_t)(rest / least))
        return reject(c, what, (int64_t)n);
    c->at += 8;
    *out = (int64_t)n;
    return GPT_OK;
}

/* A name: copied with a NUL after it. One that holds a NUL would be compared as
 * another name. */
static int take_name(struct cursor *c, int64_t most, struct gpt_str *out)
{
    int64_t n;

    GPT_TRY(take_count(c, 1, "a name is longer than the file", &n));
    /* no more than a block, which take() relies on */
    if (n > most)
        return reject(c, "a name is too long", n);
    const uint8_t *p;
    GPT_TRY(take(c, n, &p));
    if (memchr(p, '\0', (size_t)n))
        return reject(c, "a name holds a NUL", n);
    char *text = gpt_arena_alloc(c->arena, (size_t)n + 1, 1);
    if (!text)
        return gpt_no_memory(c->err, "names");
    memcpy(text, p, (size_t)n);
    *out = (struct gpt_str){text, (size_t)n};
    return GPT_OK;
}

/* ---- keys ---- */

/* A number of `type` into the key, or a byte that is no bool. */
static int take_number(struct cursor *c, struct gpt_gguf_key *k)
{
    const uint8_t *p;
    uint64_t bits;

    GPT_TRY(take(c, types[k->type].bytes, &p));
    switch (k->type) {
    case GPT_GGUF_BOOL:
        if (*p > 1)
            return reject(c, "a bool is neither 0 nor 1", *p);
        k->whole = *p;
        break;
    case GPT_GGUF_U8:
        k->whole = *p;
        break;
    case GPT_GGUF_I8:
        k->whole = (int8_t)*p;
        break;
    case GPT_GGUF_U16:
        k->whole = gpt_get_u16(p);
        break;
    case GPT_GGUF_I16:
        k->whole = (int16_t)gpt_get_u16(p);
        break;
    case GPT_GGUF_U32:
        k->whole = gpt_get_u32(p);
        break;
    case GPT_GGUF_I32:
        k->whole = (int32_t)gpt_get_u32(p);
        break;
    case GPT_GGUF_U64:
        bits = gpt_get_u64(p);
        k->whole = bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
        break;
    case GPT_GGUF_I64:
        k->whole = (int64_t)gpt_get_u64(p);
        break;
    case GPT_GGUF_F32: {
        const uint32_t word = gpt_get_u32(p);
        float f;

        memcpy(&f, &word, sizeof(f));
        k->real = (double)f;
        return GPT_OK;
    }
    case GPT_GGUF_F64:
        bits = gpt_get_u64(p);
        memcpy(&k->real, &bits, sizeof(bits));
        return GPT_OK;
    case GPT_GGUF_STRING:
    case GPT_GGUF_ARRAY:
    case GPT_GGUF_N_TYPES:
        break;
    }
    k->real = (double)k->whole;
    return GPT_OK;
}

/* Passes over a string; its bytes are not read. */
static int skip_string(struct cursor *c, int64_t *bytes)
{
    GPT_TRY(take_count(c, 1, "a string is longer than the file", bytes));
    c->at += *bytes;
    return GPT_OK;
}

/* Arrays of arrays are of the format, and no file has any. */
static int skip_array(struct cursor *c, struct gpt_gguf_key *k)
{
    uint32_t element;
    int64_t bytes;

    GPT_TRY(take_u32(c, &element));
    if (element >= GPT_GGUF_N_TYPES || element == GPT_GGUF_ARRAY)
        return reject(c, "an array of this type", element);
    k->element = element;
    /* a string takes 8 bytes for its length, whatever else it takes */
    const int64_t least = element == GPT_GGUF_STRING ? 8 : types[element].bytes;
    GPT_TRY(take_count(c, least, "an array is longer than the file", &k->n));
    k->offset = c->at;
    if (element != GPT_GGUF_STRING)
        c->at += k->n * least;
    for (int64_t i = 0; element == GPT_GGUF_STRING && i < k->n; i++)
        GPT_TRY(skip_string(c, &bytes));
    k->bytes = c->at - k->offset;
    return GPT_OK;
}

/* Only numbers are taken. A vocabulary has hundreds of thousands of strings,
 * which most callers never ask for; that their lengths are in the file is
 * checked all the same. */
static int take_key(struct cursor *c, struct gpt_gguf_key *k)
{
    uint32_t type;

    GPT_TRY(take_name(c, KEY_BYTES, &k->name));
    GPT_TRY(take_u32(c, &type));
    if (type >= GPT_GGUF_N_TYPES)
        return reject(c, "a value of an unknown type", type);
    k->type = type;
    k->offset = c->at;
    if (type == GPT_GGUF_ARRAY)
        return skip_array(c, k);
    if (type != GPT_GGUF_STRING)
        return take_number(c, k);
    GPT_TRY(skip_string(c, &k->bytes));
    k->offset = c->at - k->bytes;
    return GPT_OK;
}

static int compare_keys(const void *a, const void *b)
{
    const struct gpt_gguf_key *const *x = a, *const *y = b;

    return strcmp((*x)->name.data, (*y)->name.data);
}

/* llama.cpp takes the first of two keys of one name, other readers the last:
 * a file with both is refused. */
static int take_keys(struct cursor *c, struct gpt_gguf *g)
{
    GPT_TRY(gpt_new(&g->keys, (size_t)g->n_keys, sizeof(*g->keys), "keys",
                    c->err));
    GPT_TRY(gpt_new(&g->by_key, (size_t)g->n_keys, sizeof(*g->by_key), "keys",
                    c->err));
    for (int64_t i = 0; i < g->n_keys; i++) {
        GPT_TRY(take_key(c, &g->keys[i]));
        g->by_key[i] = &g->keys[i];
    }
    if (g->n_keys)
        qsort(g->by_key, (size_t)g->n_keys, sizeof(*g->by_key), compare_keys);
    /* neighbours in the sorted list, so that the check is not quadratic */
    for (int64_t i = 1; i < g->n_keys; i++)
        if (compare_keys(&g->by_key[i - 1], &g->by_key[i]) == 0)
            return gpt_fail(c->err, GPT_EDATA, "%s: key '%.200s' twice",
                            gpt_in_path(g->in), g->by_key[i]->name.data);
    return GPT_OK;
}

/* ---- tensors ---- */

/* Dimensions in the file are innermost first. Offsets count from the end of the
 * header, which is not known yet. */
static int take_tensor(struct cursor *c, struct gpt_gguf_tensor *t)
{
    uint32_t ndim;

    GPT_TRY(take_name(c, GPT_GGUF_NAME - 1, &t->name));
    GPT_TRY(take_u32(c, &ndim));
    if (ndim > GPT_GGUF_DIMS)
        return reject(c, "a tensor has too many dimensions", ndim);
    t->ndim = (int)ndim;
    t->elements = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        const uint8_t *p;

        GPT_TRY(take(c, 8, &p));
        const uint64_t n = gpt_get_u64(p);
        /* a tensor without elements has no place that could be checked */
        if (n == 0 || n > INT64_MAX ||
            !gpt_mul(t->elements, (int64_t)n, &t->elements))
            return reject(c, "a dimension of this size", (int64_t)n);
        t->shape[d] = (int64_t)n;
    }
    GPT_TRY(take_u32(c, &t->type));
    const uint8_t *p;
    GPT_TRY(take(c, 8, &p));
    const uint64_t offset = gpt_get_u64(p);
    /* only a first bound, by which sums with it cannot overflow; where the
     * tensor ends depends on its type */
    if (offset > (uint64_t)gpt_in_size(c->in))
        return reject(c, "a tensor begins after the end of the file",
                      (int64_t)offset);
    t->offset = (int64_t)offset;
    return GPT_OK;
}

static int compare_names(const void *a, const void *b)
{
    const struct gpt_gguf_tensor *const *x = a, *const *y = b;

    return strcmp((*x)->name.data, (*y)->name.data);
}

/* A list of its own is sorted: the tensors stay in the order of the file. */
static int check_names(const struct gpt_gguf *g, struct gpt_err *err)
{
    const struct gpt_gguf_tensor **sorted;
    int status = GPT_OK;

    GPT_TRY(gpt_new(&sorted, (size_t)g->n_tensors, sizeof(*sorted), "tensors",
                    err));
    for (int64_t i = 0; i < g->n_tensors; i++)
        sorted[i] = &g->tensors[i];
    if (g->n_tensors)
        qsort(sorted, (size_t)g->n_tensors, sizeof(*sorted), compare_names);
    for (int64_t i = 1; status == GPT_OK && i < g->n_tensors; i++)
        if (compare_names(&sorted[i - 1], &sorted[i]) == 0)
            status = gpt_fail(err, GPT_EDATA, "%s: tensor '%.100s' twice",
                              gpt_in_path(g->in), sorted[i]->name.data);
    gpt_free(sorted);
    return status;
}

/* Data begins at the next multiple of the alignment, and each tensor at one. */
static int place_tensors(struct cursor *c, struct gpt_gguf *g)
{
    GPT_TRY(gpt_gguf_int(g, "general.alignment", 1, MOST_ALIGN, &g->alignment,
                         c->err));
    if (g->alignment & (g->alignment - 1))
        return gpt_fail(c->err, GPT_EDATA,
                        "%s: general.alignment is %lld, no power of two",
                        gpt_in_path(g->in), (long long)g->alignment);
    g->data_start = gpt_round_up(c->at, g->alignment);
    for (int64_t i = 0; i < g->n_tensors; i++) {
        struct gpt_gguf_tensor *t = &g->tensors[i];

        if (t->offset % g->alignment)
            return gpt_fail(c->err, GPT_EDATA,
                            "%s: tensor '%.100s' begins at %lld, no multiple "
                            "of the alignment %lld",
                            gpt_in_path(g->in), t->name.data,
                            (long long)t->offset, (long long)g->alignment);
        t->offset += g->data_start;
    }
    return check_names(g, c->err);
}

/* ---- opening ---- */

/* Version 1 had lengths of 32 bits. A version whose low half is 0 was written
 * by a machine of the other byte order. */
static int take_start(struct cursor *c, struct gpt_gguf *g)
{
    const uint8_t *magic;
    uint32_t version;

    GPT_TRY(take(c, 4, &magic));
    if (memcmp(magic, "GGUF", 4) != 0)
        return gpt_fail(c->err, GPT_EDATA, "%s: it does not begin with 'GGUF'",
                        gpt_in_path(c->in));
    GPT_TRY(take_u32(c, &version));
    /* a small number whose bytes are in the other order */
    if (version && (version & 0xffff) == 0)
        return gpt_fail(c->err, GPT_EDATA,
                        "%s: a GGUF file of big-endian numbers is not "
                        "supported",
                        gpt_in_path(c->in));
    if (version < 2 || version > GPT_GGUF_VERSION)
        return gpt_fail(c->err, GPT_EDATA,
                        "%s: GGUF version %lld: only 2 and 3 are supported",
                        gpt_in_path(c->in), (long long)version);
    GPT_TRY(take_count(c, LEAST_TENSOR, "more tensors than the file can hold",
                       &g->n_tensors));
    return take_count(c, LEAST_KEY, "more keys than the file can hold",
                      &g->n_keys);
}

/* In the order of the file. Counts come first, and each is bounded by the
 * size of the file before memory is asked for. */
static int take_header(struct cursor *c, struct gpt_gguf *g)
{
    GPT_TRY(gpt_new(&c->block, BLOCK, 1, "a header", c->err));
    GPT_TRY(take_start(c, g));
    GPT_TRY(take_keys(c, g));
    GPT_TRY(gpt_new(&g->tensors, (size_t)g->n_tensors, sizeof(*g->tensors),
                    "tensors", c->err));
    for (int64_t i = 0; i < g->n_tensors; i++)
        GPT_TRY(take_tensor(c, &g->tensors[i]));
    return place_tensors(c, g);
}

/* The block is only needed while the header is passed over; values are read
 * later by their offsets. */
int gpt_gguf_open(struct gpt_gguf *g, const char *path, struct gpt_err *err)
{
    *g = (struct gpt_gguf){.alignment = GPT_GGUF_ALIGN};
    GPT_TRY(gpt_in_open(&g->in, path, err));
    struct cursor c = {.in = g->in, .arena = &g->arena, .err = err};
    int status = take_header(&c, g);
    gpt_free(c.block);
    if (status != GPT_OK)
        gpt_gguf_close(g);
    return status;
}

void gpt_gguf_close(struct gpt_gguf *g)
{
    gpt_in_close(g->in);
    gpt_free(g->keys);
    gpt_free(g->by_key);
    gpt_free(g->tensors);
    gpt_arena_free(&g->arena);
    *g = (struct gpt_gguf){0};
}

/* O(log n): a file may have many keys, and each of ours is asked for once or
 * twice. */
const struct gpt_gguf_key *gpt_gguf_find(const struct gpt_gguf *g,
                                         const char *name)
{
    const struct gpt_gguf_key key = {.name = {name, strlen(name)}}, *k = &key;
    const struct gpt_gguf_key **found =
        g->n_keys ? bsearch(&k, g->by_key, (size_t)g->n_keys,
                            sizeof(*g->by_key), compare_keys)
                  : NULL;

    return found ? *found : NULL;
}
