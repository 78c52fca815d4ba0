/* Element types: names and sizes. Conversions are in convert.c. */
#include "base/dtype.h"

#include <strings.h>

static const struct {
    const char *name;
    size_t bytes;
} types[GPT_N_DTYPES] = {
#define X(id, text, size) [id] = {text, size},
    GPT_DTYPE_LIST(X)
#undef X
};

/* Other spellings in use: numpy, PyTorch, configuration files. */
static const struct {
    const char *text;
    enum gpt_dtype t;
} aliases[] = {
    {"bfloat16", GPT_BF16}, {"fp16", GPT_F16},   {"float16", GPT_F16},
    {"half", GPT_F16},      {"fp32", GPT_F32},   {"float32", GPT_F32},
    {"float", GPT_F32},     {"fp64", GPT_F64},   {"float64", GPT_F64},
    {"double", GPT_F64},    {"int8", GPT_I8},    {"uint8", GPT_U8},
    {"int16", GPT_I16},     {"uint16", GPT_U16}, {"int32", GPT_I32},
    {"uint32", GPT_U32},    {"int64", GPT_I64},  {"uint64", GPT_U64},
};

/* Types come out of files: an unknown one must not index the table. */
static bool valid(enum gpt_dtype t)
{
    return (unsigned)t < GPT_N_DTYPES;
}

size_t gpt_dtype_bytes(enum gpt_dtype t)
{
    return valid(t) ? types[t].bytes : 0;
}

const char *gpt_dtype_name(enum gpt_dtype t)
{
    return valid(t) ? types[t].name : "?";
}

/* safetensors' own names first, then what other programs call them; neither
 * depends on case. */
bool gpt_dtype_parse(const char *text, enum gpt_dtype *t)
{
    for (int i = 0; i < GPT_N_DTYPES; i++)
        if (strcasecmp(text, types[i].name) == 0) {
            *t = (enum gpt_dtype)i;
            return true;
        }
    for (size_t i = 0; i < GPT_COUNT(aliases); i++)
        if (strcasecmp(text, aliases[i].text) == 0) {
            *t = aliases[i].t;
            return true;
        }
    return false;
}

bool gpt_dtype_is_float(enum gpt_dtype t)
{
    return t == GPT_F16 || t == GPT_BF16 || t == GPT_F32 || t == GPT_F64;
}

/* F16 has more bits of a fraction than BF16, and BF16 more of an exponent. */
enum gpt_dtype gpt_dtype_join(enum gpt_dtype a, enum gpt_dtype b)
{
    if (a == b)
        return a;
    if (gpt_dtype_bytes(a) != gpt_dtype_bytes(b))
        return gpt_dtype_bytes(a) > gpt_dtype_bytes(b) ? a : b;
    return GPT_F32;
}

int64_t gpt_f16_infinite(const void *x, int64_t bytes)
{
    const uint16_t *e = x;
    int64_t n = 0;

    for (int64_t i = 0; i < bytes / (int64_t)sizeof(*e); i++)
        n += (e[i] & 0x7fff) == 0x7c00;
    return n;
}
