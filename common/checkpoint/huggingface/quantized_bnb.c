/* Matrices of bitsandbytes: codes of four bits, whose scales may be codes, too,
 * or bytes with a scale a row. What is beside a matrix says which. Start at
 * gpt_hf_make_bnb(). Source: bitsandbytes, QuantState.as_dict(). */
#include "checkpoint/huggingface/quantizing.h"

#include "base/num.h"

#include <string.h>

enum { MOST_BLOCK = 1 << 20 };

/* "weight" of int8, "SCB": the largest magnitude of each row, which is 127
 * there. The factor is bitsandbytes' own. */
static int make_rows(struct gpt_hf_quantizing *b, struct gpt_err *err)
{
    const int64_t *shape = b->main.entry->shape;
    struct gpt_hf_part scales, order;
    uint8_t byte = 0;

    GPT_TRY(gpt_hf_check_numbers(b, GPT_I8, err));
    memcpy(b->shape, shape, sizeof(b->shape));
    b->s.numbers.bits = 8;
    b->s.numbers.pitch = shape[1];
    b->s.numbers.plus = b->s.numbers.minus = 128;
    b->s.after = 7.874015718698502e-3F;
    gpt_hf_set_groups(b, shape[0], shape[1], 1, 0);
    GPT_TRY(gpt_hf_need_part(b, "SCB", &scales, err));
    GPT_TRY(gpt_hf_set_scales(b, &scales, err));
    if (!gpt_hf_find_part(b, "weight_format", &order))
        return GPT_OK;
    GPT_TRY(gpt_hf_check_part(b, &order, GPT_U8, 1, 1, err));
    GPT_TRY(gpt_in_read(order.in, &byte, order.entry->begin, 1, err));
    return byte == 0
               ? GPT_OK
               : gpt_fail(err, GPT_EDATA,
                          "%s/%s: tensor '%.200s' is %d: only rows, 0, "
                          "are read",
                          b->parts->where, order.file, order.entry->name, byte);
}

/* The values that n codes stand for. */
static int read_codes(const struct gpt_hf_quantizing *b, const char *tail,
                      int64_t n, const float **codes, struct gpt_err *err)
{
    struct gpt_hf_part part;
    float *x;

    GPT_TRY(gpt_hf_need_part(b, tail, &part, err));
    GPT_TRY(gpt_hf_check_part(b, &part, GPT_F32, n, 1, err));
    x = gpt_arena_alloc(b->parts->arena, (size_t)n, sizeof(*x));
    if (!x)
        return gpt_no_memory(err, "codes");
    *codes = x;
    return gpt_in_read(part.in, x, part.entry->begin, (size_t)n * sizeof(*x),
                       err);
}

/* "quant_state.bitsandbytes__nf4": a JSON object. */
static int read_state(const struct gpt_hf_quantizing *b, cJSON **state,
                      const char *what, struct gpt_err *err)
{
    enum { MOST = 1 << 16 };
    struct gpt_hf_part part;
    char *text;

    if (!gpt_hf_find_part(b, "weight.quant_state.bitsandbytes__fp4", &part))
        GPT_TRY(gpt_hf_need_part(b, "weight.quant_state.bitsandbytes__nf4",
                                 &part, err));
    const int64_t n = part.entry->end - part.entry->begin;
    if (n > MOST)
        return gpt_fail(err, GPT_EDATA, "%s: it has %lld bytes, limit %d", what,
                        (long long)n, MOST);
    GPT_TRY(gpt_hf_check_part(b, &part, GPT_U8, n, 1, err));
    GPT_TRY(gpt_new(&text, (size_t)n, 1, "quant_state", err));
    int status = gpt_in_read(part.in, text, part.entry->begin, (size_t)n, err);
    if (status == GPT_OK)
        status = gpt_json_parse(state, text, (size_t)n, what, err);
    gpt_free(text);
    return status;
}

/* Scales that are codes themselves, of blocks of their own, with a mean taken
 * away. All are one row. */
static int nest_scales(struct gpt_hf_quantizing *b, const cJSON *state,
                       const struct gpt_hf_part *codes, const char *what,
                       struct gpt_err *err)
{
    struct gpt_scaled *s = gpt_arena_alloc(b->parts->arena, 1, sizeof(*s));
    const int64_t n = b->s.n_scales;
    struct gpt_hf_part scales;
    int64_t block;
    double offset = 0;

    if (!s)
        return gpt_no_memory(err, "scales");
    GPT_TRY(gpt_json_int(state, "nested_blocksize", 1, MOST_BLOCK, &block, what,
                         err));
    GPT_TRY(gpt_json_real_or(state, "nested_offset", 0, &offset, what, err));
    GPT_TRY(gpt_hf_check_part(b, codes, GPT_N_DTYPES, n, 1, err));
    *s = (struct gpt_scaled){.name = codes->entry->name,
                             .rows = 1,
                             .columns = n,
                             .group_rows = 1,
                             .group_columns = block,
                             .n_groups = 1,
                             .n_scales = gpt_ceil_div(n, block),
                             .after = 1,
                             .scale_type = GPT_F32,
                             .numbers = {.in = codes->in,
                                         .begin = codes->entry->begin,
                                         .pitch = n,
                                         .bits = 8}};
    GPT_TRY(gpt_hf_need_part(b, "weight.nested_absmax", &scales, err));
    GPT_TRY(gpt_hf_check_part(b, &scales, GPT_F32, s->n_scales, 1, err));
    s->scales = scales.in;
    s->scales_begin = scales.entry->begin;
    b->s.nested = s;
    b->s.offset = (float)offset;
    return read_codes(b, "weight.nested_quant_map", 256, &s->numbers.codes,
                      err);
}

static int set_state(struct gpt_hf_quantizing *b, const cJSON *state,
                     const char *what, struct gpt_err *err)
{
    struct gpt_hf_part scales;
    int64_t block, n;

    if (!gpt_hf_two_sizes(cJSON_GetObjectItemCaseSensitive(state, "shape"),
                          b->shape))
        return gpt_fail(err, GPT_EDATA, "%s: 'shape' is not two sizes", what);
    n = b->shape[0] * b->shape[1];
    GPT_TRY(gpt_json_int(state, "blocksize", 1, MOST_BLOCK, &block, what, err));
    /* whatever type the numbers are said to be of: bytes are counted */
    if (b->main.entry->end - b->main.entry->begin != gpt_ceil_div(n, 2))
        return gpt_fail(err, GPT_EDATA,
                        "%s: it is of %lld x %lld numbers, and tensor '%.200s' "
                        "has %lld bytes",
                        what, (long long)b->shape[0], (long long)b->shape[1],
                        b->name,
                        (long long)(b->main.entry->end - b->main.entry->begin));
    gpt_hf_set_groups(b, 1, n, 1, block);
    GPT_TRY(gpt_hf_need_part(b, "weight.absmax", &scales, err));
    if (scales.entry->dtype == GPT_U8)
        return nest_scales(b, state, &scales, what, err);
    GPT_TRY(gpt_hf_check_part(b, &scales, GPT_F32, b->s.n_scales, 1, err));
    b->s.scales = scales.in;
    b->s.scales_begin = scales.entry->begin;
    b->s.scale_type = GPT_F32;
    return GPT_OK;
}

/* Codes of four bits, the first of a byte in its high bits; blocks go on from
 * row to row, so all is one row. */
static int make_codes(struct gpt_hf_quantizing *b, struct gpt_err *err)
{
    static const uint8_t order[2] = {1, 0};
    const char *what =
        gpt_arena_printf(b->parts->arena, "%s/%s: quant_state of '%.200s'",
                         b->parts->where, b->main.file, b->name);
    cJSON *state = NULL;

    if (!what)
        return gpt_no_memory(err, "quant_state");
    GPT_TRY(gpt_hf_check_numbers(b, GPT_N_DTYPES, err));
    b->s.numbers.bits = 4;
    b->s.numbers.order = order;
    b->s.numbers.per = 2;
    GPT_TRY(read_state(b, &state, what, err));
    int status = set_state(b, state, what, err);
    cJSON_Delete(state);
    GPT_TRY(status);
    return read_codes(b, "weight.quant_map", 16, &b->s.numbers.codes, err);
}

int gpt_hf_make_bnb(struct gpt_hf_quantizing *b, struct gpt_err *err)
{
    struct gpt_hf_part part;

    if (!gpt_hf_find_part(b, "weight", &b->main))
        return GPT_OK;
    if (b->main.entry->dtype == GPT_I8)
        return make_rows(b, err);
    /* numbers may be said to be floats, for what shards them */
    return gpt_hf_find_part(b, "weight.absmax", &part) ||
                   !gpt_dtype_is_float(b->main.entry->dtype)
               ? make_codes(b, err)
               : GPT_OK;
}
