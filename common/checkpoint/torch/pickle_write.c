/* Writing pickles of protocol 2 with the opcodes that torch's restricted
 * unpickler knows. Nothing is shared, so there is no memo. */
#include "checkpoint/torch/write.h"

#include "base/num.h"

#include <stdio.h>
#include <string.h>

/* Failures are remembered and not returned: a pickle is hundreds of calls, and
 * the only failure is lack of memory. */
static void put_bytes(struct gpt_pickle_out *o, const void *p, size_t n)
{
    if (gpt_buf_add(&o->b, p, n) != GPT_OK)
        o->failed = true;
}

static void put_op(struct gpt_pickle_out *o, uint8_t op)
{
    put_bytes(o, &op, 1);
}

/* Protocol 2, which torch.save() uses: readers of every age know it. */
void gpt_pickle_begin(struct gpt_pickle_out *o)
{
    *o = (struct gpt_pickle_out){0};
    put_bytes(o, "\x80\2", 2);
}

/* STOP is the last opcode; after it nothing may be put. */
int gpt_pickle_end(struct gpt_pickle_out *o, struct gpt_err *err)
{
    put_op(o, '.');
    return o->failed ? gpt_no_memory(err, "a pickle") : GPT_OK;
}

void gpt_pickle_out_free(struct gpt_pickle_out *o)
{
    gpt_buf_free(&o->b);
}

/* UTF-8, of any length. No NUL: text is a C string. */
void gpt_pickle_put_string(struct gpt_pickle_out *o, const char *text)
{
    uint8_t head[5] = {'X'};

    gpt_put_u32(head + 1, (uint32_t)strlen(text));
    put_bytes(o, head, sizeof(head));
    put_bytes(o, text, strlen(text));
}

void gpt_pickle_put_none(struct gpt_pickle_out *o)
{
    put_op(o, 'N');
}

/* Writes a number in the form that Python chooses: the shortest. LONG1 has
 * two's complement. */
void gpt_pickle_put_int(struct gpt_pickle_out *o, int64_t i)
{
    uint8_t bytes[10] = {0x8a, 8};

    if (i >= 0 && i < 256) {
        bytes[0] = 'K';
        bytes[1] = (uint8_t)i;
        put_bytes(o, bytes, 2);
    } else if (i >= INT32_MIN && i <= INT32_MAX) {
        bytes[0] = 'J';
        gpt_put_u32(bytes + 1, (uint32_t)i);
        put_bytes(o, bytes, 5);
    } else {
        gpt_put_u64(bytes + 2, (uint64_t)i);
        put_bytes(o, bytes, 10);
    }
}

/* Writes the number big-endian, unlike all other numbers. */
void gpt_pickle_put_real(struct gpt_pickle_out *o, double f)
{
    uint8_t bytes[9] = {'G'};
    uint64_t u;

    memcpy(&u, &f, sizeof(u));
    for (int i = 0; i < 8; i++)
        bytes[1 + i] = (uint8_t)(u >> (56 - 8 * i));
    put_bytes(o, bytes, sizeof(bytes));
}

/* A bool is one opcode since protocol 2. */
static void put_bool(struct gpt_pickle_out *o, bool b)
{
    put_op(o, b ? 0x88 : 0x89);
}

/* Writes a name only; the reader decides what it means. */
void gpt_pickle_put_global(struct gpt_pickle_out *o, const char *module,
                           const char *name)
{
    if (gpt_buf_printf(&o->b, "c%s\n%s\n", module, name) != GPT_OK)
        o->failed = true;
}


void gpt_pickle_put_key_string(struct gpt_pickle_out *o, const char *key,
                               const char *value)
{
    gpt_pickle_put_string(o, key);
    gpt_pickle_put_string(o, value);
}

void gpt_pickle_put_key_int(struct gpt_pickle_out *o, const char *key,
                            int64_t value)
{
    gpt_pickle_put_string(o, key);
    gpt_pickle_put_int(o, value);
}

void gpt_pickle_put_key_real(struct gpt_pickle_out *o, const char *key,
                             double value)
{
    gpt_pickle_put_string(o, key);
    gpt_pickle_put_real(o, value);
}

void gpt_pickle_put_key_bool(struct gpt_pickle_out *o, const char *key,
                             bool value)
{
    gpt_pickle_put_string(o, key);
    put_bool(o, value);
}

/* EMPTY_LIST and a mark; APPENDS takes all above it. */
void gpt_pickle_put_list(struct gpt_pickle_out *o)
{
    put_bytes(o, "](", 2);
}

void gpt_pickle_end_list(struct gpt_pickle_out *o)
{
    put_op(o, 'e');
}

/* A mark; TUPLE takes all above it. */
void gpt_pickle_put_tuple(struct gpt_pickle_out *o)
{
    put_op(o, '(');
}

void gpt_pickle_end_tuple(struct gpt_pickle_out *o)
{
    put_op(o, 't');
}

/* EMPTY_DICT and a mark: SETITEMS at the end takes all pairs above it. An empty
 * dict is right as well. */
void gpt_pickle_put_dict(struct gpt_pickle_out *o)
{
    put_bytes(o, "}(", 2);
}

void gpt_pickle_end_dict(struct gpt_pickle_out *o)
{
    put_op(o, 'u');
}

/* NEWOBJ without arguments, then the attributes as its state. */
void gpt_pickle_put_namespace(struct gpt_pickle_out *o)
{
    gpt_pickle_put_global(o, "argparse", "Namespace");
    put_bytes(o, ")\x81}(", 4);
}

void gpt_pickle_end_namespace(struct gpt_pickle_out *o)
{
    put_bytes(o, "ub", 2);
}

/* PyTorch has no storages of unsigned types but bytes. */
static const char *storage_name(enum gpt_dtype dtype)
{
    static const struct {
        enum gpt_dtype dtype;
        const char *name;
    } types[] = {
        {GPT_F32, "FloatStorage"},     {GPT_F16, "HalfStorage"},
        {GPT_BF16, "BFloat16Storage"}, {GPT_F64, "DoubleStorage"},
        {GPT_I64, "LongStorage"},      {GPT_I32, "IntStorage"},
        {GPT_I16, "ShortStorage"},     {GPT_I8, "CharStorage"},
        {GPT_U8, "ByteStorage"},       {GPT_BOOL, "BoolStorage"},
    };

    for (size_t i = 0; i < GPT_COUNT(types); i++)
        if (types[i].dtype == dtype)
            return types[i].name;
    return NULL;
}

/* Writes a tuple of as many numbers as there are dimensions. */
static void put_sizes(struct gpt_pickle_out *o, const int64_t *sizes, int n)
{
    put_op(o, '(');
    for (int d = 0; d < n; d++)
        gpt_pickle_put_int(o, sizes[d]);
    put_op(o, 't');
}

/* _rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict()), where
 * the storage is the id ('storage', type, key, 'cpu', elements). */
bool gpt_pickle_put_tensor(struct gpt_pickle_out *o, int64_t key,
                           enum gpt_dtype dtype, int ndim, const int64_t *shape)
{
    const char *type = storage_name(dtype);
    int64_t strides[8], count = 1;
    char text[24];

    /* nothing is put for a type that is refused, so a caller can go on */
    if (!type || ndim > 8)
        return false;
    for (int d = ndim - 1; d >= 0; d--) {
        strides[d] = count;
        count *= shape[d];
    }
    gpt_pickle_put_global(o, "torch._utils", "_rebuild_tensor_v2");
    put_bytes(o, "((", 2);
    gpt_pickle_put_string(o, "storage");
    gpt_pickle_put_global(o, "torch", type);
    snprintf(text, sizeof(text), "%lld", (long long)key);
    gpt_pickle_put_string(o, text);
    gpt_pickle_put_string(o, "cpu");
    gpt_pickle_put_int(o, count);
    put_bytes(o, "tQ", 2);
    gpt_pickle_put_int(o, 0);
    put_sizes(o, shape, ndim);
    put_sizes(o, strides, ndim);
    put_bool(o, false);
    gpt_pickle_put_global(o, "collections", "OrderedDict");
    put_bytes(o, ")RtR", 4);
    return true;
}
