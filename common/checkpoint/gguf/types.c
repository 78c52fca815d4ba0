/* Types of elements in GGUF files: ggml's numbers of plain ones, and floats
 * that are stored with 1 added. */
#include "checkpoint/gguf/gguf.h"

#include <string.h>

/* Blocks of one element: floats on both sides, so that moving tensors needs no
 * word for it. */
static void add_one(uint8_t *block, const float *from)
{
    const float x = *from + 1;

    memcpy(block, &x, sizeof(x));
}

static void take_one(float *to, const uint8_t *block)
{
    memcpy(to, block, sizeof(*to));
    *to -= 1;
}

static const struct gpt_packing shifted = {
    .name = "f32", .how = "after adding 1 to norms in fp32", .elements = 1,
    .bytes = sizeof(float), .unpack = take_one, .pack = add_one};

const struct gpt_packing *gpt_gguf_shifted(const struct gpt_gguf_arch *arch,
                                           const struct gpt_param *p)
{
    return arch->plus_one && p->init == GPT_INIT_ZERO && p->ndim == 1 &&
                   gpt_param_is_scale(p->role)
               ? &shifted
               : NULL;
}

static const struct {
    enum gpt_dtype dtype;
    uint32_t number, file_type;
} plain_types[] = {
    {GPT_F32, 0, 0}, {GPT_F16, 1, 1}, {GPT_BF16, 30, 32}, {GPT_F64, 28, 0}};

/* F64 is read because the format has it; no program writes models of it. */
bool gpt_gguf_dtype(uint32_t ggml_type, enum gpt_dtype *dtype)
{
    for (size_t i = 0; i < GPT_COUNT(plain_types); i++)
        if (plain_types[i].number == ggml_type) {
            *dtype = plain_types[i].dtype;
            return true;
        }
    return false;
}

/* Types without a number are never written: a plan has F32 in their place. */
uint32_t gpt_gguf_number(enum gpt_dtype dtype)
{
    for (size_t i = 0; i < GPT_COUNT(plain_types); i++)
        if (plain_types[i].dtype == dtype)
            return plain_types[i].number;
    return plain_types[0].number;
}

uint32_t gpt_gguf_file_type(enum gpt_dtype dtype)
{
    for (size_t i = 0; i < GPT_COUNT(plain_types); i++)
        if (plain_types[i].dtype == dtype)
            return plain_types[i].file_type;
    return plain_types[0].file_type;
}

static const struct {
    uint32_t number;
    const char *name;
} other_types[] = {
    {9, "q8_1"}, {15, "q8_K"}, {24, "i8"}, {25, "i16"}, {26, "i32"},
    {27, "i64"}, {40, "nvfp4"}, {41, "q1_0"},
};

const char *gpt_gguf_other_type(uint32_t ggml_type)
{
    for (size_t i = 0; i < GPT_COUNT(other_types); i++)
        if (other_types[i].number == ggml_type)
            return other_types[i].name;
    return "?";
}
