/* A quantized matrix out of the tensors that the files have in its place: which
 * these are, of which types and shapes they must be, and how their numbers lie.
 * A function a row of the table in quantized.c; that of bitsandbytes is in
 * quantized_bnb.c. Start at gpt_hf_quantized_find().
 *
 * Sources: DeepSeek-V3's README_WEIGHTS.md (fp8); compressed-tensors,
 * compressors; AutoGPTQ and AutoAWQ, their packing of qweight and qzeros. */
#include "checkpoint/huggingface/quantizing.h"

#include "base/num.h"
#include "checkpoint/huggingface/importer.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { NAME = GPT_SAFETENSORS_NAME + 64 };

/* ---- parts ---- */

/* The tensor beside: `tail` in place of "weight". */
bool gpt_hf_find_part(const struct gpt_hf_quantizing *b, const char *tail,
                      struct gpt_hf_part *part)
{
    char name[NAME];

    snprintf(name, sizeof(name), "%.*s%s", b->base, b->name, tail);
    *part = (struct gpt_hf_part){.entry = NULL};
    return b->parts->find(b->parts->context, name, part);
}

int gpt_hf_need_part(const struct gpt_hf_quantizing *b, const char *tail,
                     struct gpt_hf_part *part, struct gpt_err *err)
{
    if (gpt_hf_find_part(b, tail, part))
        return GPT_OK;
    gpt_fail(err, GPT_EDATA,
             "%s: no tensor '%.*s%s', which tensor '%.200s' "
             "is quantized with",
             b->parts->where, b->base, b->name, tail, b->main.entry->name);
    return gpt_hint(err, "copy or download the whole directory again");
}

/* A vector may have a second dimension of size 1, and a scalar one or two. */
int gpt_hf_check_part(const struct gpt_hf_quantizing *b,
                      const struct gpt_hf_part *part, enum gpt_dtype type,
                      int64_t rows, int64_t columns, struct gpt_err *err)
{
    const struct gpt_safetensor *e = part->entry;
    int64_t shape[2] = {1, 1};
    bool fits = e->ndim <= 2;

    for (int d = 0; fits && d < e->ndim; d++)
        shape[d] = e->shape[d];
    fits = fits && shape[0] == rows && shape[1] == columns;
    if (type != GPT_N_DTYPES && e->dtype != type)
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: tensor '%.200s' is of type %s, which is not "
                        "read of %s",
                        b->parts->where, part->file, e->name,
                        gpt_dtype_name(e->dtype), b->q->text);
    if (!fits)
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: tensor '%.200s' has %d dimensions, %lld x "
                        "%lld; %s asks for %lld x %lld",
                        b->parts->where, part->file, e->name, e->ndim,
                        (long long)shape[0], (long long)shape[1], b->q->text,
                        (long long)rows, (long long)columns);
    if (e->strides)
        return gpt_fail(
            err, GPT_EDATA,
            "%s/%s: tensor '%.200s' is a view, which is not read of "
            "quantized weights",
            b->parts->where, part->file, e->name);
    *part->used = true;
    return GPT_OK;
}

static bool is_scale(enum gpt_dtype t)
{
    return t == GPT_F32 || t == GPT_F16 || t == GPT_BF16;
}

/* The numbers are of two dimensions, which everything else is compared with. */
int gpt_hf_check_numbers(struct gpt_hf_quantizing *b, enum gpt_dtype type,
                         struct gpt_err *err)
{
    const struct gpt_safetensor *e = b->main.entry;

    if (e->ndim != 2 || e->shape[0] < 1 || e->shape[1] < 1)
        return gpt_fail(err, GPT_EDATA, "%s/%s: tensor '%.200s' is no matrix",
                        b->parts->where, b->main.file, e->name);
    b->s.numbers.in = b->main.in;
    b->s.numbers.begin = e->begin;
    b->s.numbers.bits = (int)b->q->bits;
    return gpt_hf_check_part(b, &b->main, type, e->shape[0], e->shape[1], err);
}

/* Rows and columns in the order of the file, and how many of them share a
 * scale. */
void gpt_hf_set_groups(struct gpt_hf_quantizing *b, int64_t rows,
                       int64_t columns, int64_t group_rows,
                       int64_t group_columns)
{
    struct gpt_scaled *s = &b->s;

    s->rows = rows;
    s->columns = columns;
    s->group_rows = group_rows ? group_rows : rows;
    s->group_columns = group_columns ? group_columns : columns;
    s->n_groups = gpt_ceil_div(rows, s->group_rows);
    s->n_scales = gpt_ceil_div(columns, s->group_columns);
}

int gpt_hf_set_scales(struct gpt_hf_quantizing *b,
                      const struct gpt_hf_part *scales, struct gpt_err *err)
{
    const struct gpt_safetensor *e = scales->entry;

    b->s.scales = scales->in;
    b->s.scales_begin = e->begin;
    b->s.scale_type = e->dtype;
    return gpt_hf_check_part(b, scales, is_scale(e->dtype) ? e->dtype : GPT_F32,
                             b->s.n_groups, b->s.n_scales, err);
}

/* ---- E4M3 and bytes ---- */

static float e4m3[256];

/* Four bits of exponent, three of mantissa; no infinity. */
static void fill_e4m3(void)
{
    for (int i = 0; i < 256; i++) {
        const int exponent = i >> 3 & 15, mantissa = i & 7;
        const float size = exponent
                               ? ldexpf((float)(8 + mantissa), exponent - 10)
                               : ldexpf((float)mantissa, -9);

        e4m3[i] = (i & 127) == 127 ? NAN : i < 128 ? size : -size;
    }
}

/* Zero points are bytes, too. */
static int set_byte_zeros(struct gpt_hf_quantizing *b, struct gpt_err *err)
{
    struct gpt_hf_part zeros;

    if (!b->q->zeros && !gpt_hf_find_part(b, "weight_zero_point", &zeros))
        return GPT_OK;
    GPT_TRY(gpt_hf_need_part(b, "weight_zero_point", &zeros, err));
    GPT_TRY(gpt_hf_check_part(b, &zeros, GPT_I8, b->s.n_groups, b->s.n_scales,
                              err));
    b->s.zeros = b->s.numbers; /* of one kind */
    b->s.zeros.in = zeros.in;
    b->s.zeros.begin = zeros.entry->begin;
    b->s.zeros.pitch = b->s.n_scales;
    return GPT_OK;
}

/* DeepSeek's files call the scales by the inverse, which they are of what the
 * weights were multiplied by. */
static int find_scales(struct gpt_hf_quantizing *b, struct gpt_hf_part *scales,
                       struct gpt_err *err)
{
    const bool other = gpt_hf_find_part(b, "weight_scale", scales);

    return other ? GPT_OK
                 : gpt_hf_need_part(b,
                                    b->q->method->format ? "weight_scale"
                                                         : "weight_scale_inv",
                                    scales, err);
}

/* "weight" of a byte an element, and scales of blocks. A module that was not
 * quantized has floats there. */
int gpt_hf_make_bytes(struct gpt_hf_quantizing *b, struct gpt_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct gpt_hf_part scales;

    if (!gpt_hf_find_part(b, "weight", &b->main) ||
        gpt_dtype_is_float(b->main.entry->dtype))
        return GPT_OK;
    const bool whole = b->q->method->format &&
                       strcmp(b->q->method->format, "int-quantized") == 0;
    GPT_TRY(gpt_hf_check_numbers(b, whole ? GPT_I8 : GPT_F8_E4M3, err));
    const int64_t *shape = b->main.entry->shape;
    memcpy(b->shape, shape, sizeof(b->shape));
    pthread_once(&once, fill_e4m3);
    b->s.numbers.pitch = shape[1];
    if (whole)
        b->s.numbers.plus = b->s.numbers.minus = 128;
    else
        b->s.numbers.codes = e4m3;
    GPT_TRY(find_scales(b, &scales, err));
    const int64_t bytes = scales.entry->end - scales.entry->begin;
    const bool one = b->q->any_block &&
                     bytes == (int64_t)gpt_dtype_bytes(scales.entry->dtype);
    gpt_hf_set_groups(b, shape[0], shape[1], one ? 0 : b->q->block[0],
                      one ? 0 : b->q->block[1]);
    GPT_TRY(gpt_hf_set_scales(b, &scales, err));
    return whole ? set_byte_zeros(b, err) : GPT_OK;
}

/* ---- compressed-tensors' words ---- */

/* "weight_shape": the words may have room for more columns. */
static int read_shape(struct gpt_hf_quantizing *b, struct gpt_err *err)
{
    struct gpt_hf_part part;
    uint8_t bytes[16];

    GPT_TRY(gpt_hf_need_part(b, "weight_shape", &part, err));
    GPT_TRY(gpt_hf_check_part(b, &part, GPT_I64, 2, 1, err));
    GPT_TRY(gpt_in_read(part.in, bytes, part.entry->begin, sizeof(bytes), err));
    for (int d = 0; d < 2; d++)
        b->shape[d] = (int64_t)gpt_get_u64(bytes + 8 * d);
    if (b->shape[0] > 0 && b->shape[0] <= INT32_MAX && b->shape[1] > 0 &&
        b->shape[1] <= INT32_MAX)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA, "%s/%s: tensor '%.200s' is %lld, %lld",
                    b->parts->where, part.file, part.entry->name,
                    (long long)b->shape[0], (long long)b->shape[1]);
}

/* Zero points are in words that go down the rows. */
static int set_word_zeros(struct gpt_hf_quantizing *b, struct gpt_err *err)
{
    const int64_t per = 32 / b->q->bits;
    struct gpt_hf_part zeros;

    if (!b->q->zeros)
        return GPT_OK;
    GPT_TRY(gpt_hf_need_part(b, "weight_zero_point", &zeros, err));
    GPT_TRY(gpt_hf_check_part(b, &zeros, GPT_I32,
                              gpt_ceil_div(b->s.n_groups, per), b->s.n_scales,
                              err));
    b->s.zeros = b->s.numbers;
    b->s.zeros.in = zeros.in;
    b->s.zeros.begin = zeros.entry->begin;
    b->s.zeros.pitch = 4 * b->s.n_scales;
    b->s.zeros.down = true;
    return GPT_OK;
}

/* "weight_packed": numbers less half of their range, in words along rows. */
int gpt_hf_make_words(struct gpt_hf_quantizing *b, struct gpt_err *err)
{
    const int64_t per = 32 / b->q->bits;
    struct gpt_hf_part scales;

    if (!gpt_hf_find_part(b, "weight_packed", &b->main))
        return GPT_OK;
    GPT_TRY(gpt_hf_check_numbers(b, GPT_I32, err));
    GPT_TRY(read_shape(b, err));
    GPT_TRY(gpt_hf_check_part(b, &b->main, GPT_I32, b->shape[0],
                              gpt_ceil_div(b->shape[1], per), err));
    b->s.numbers.pitch = 4 * gpt_ceil_div(b->shape[1], per);
    b->s.numbers.minus = 1 << (b->q->bits - 1);
    gpt_hf_set_groups(b, b->shape[0], b->shape[1], b->q->block[0],
                      b->q->block[1]);
    GPT_TRY(gpt_hf_need_part(b, "weight_scale", &scales, err));
    GPT_TRY(gpt_hf_set_scales(b, &scales, err));
    return set_word_zeros(b, err);
}

/* ---- GPTQ and AWQ ---- */

/* How many numbers fill whole words: those of 3 bits fill three. */
static int64_t numbers_of_words(const struct gpt_hf_quantized *q)
{
    return q->bits == 3 ? 32 : 32 / q->bits;
}

/* qzeros and scales have a row a group of inputs, and a column an output. */
static int set_rows_of_groups(struct gpt_hf_quantizing *b, int64_t rows,
                              int64_t columns, struct gpt_err *err)
{
    const int64_t per = numbers_of_words(b->q);
    const int64_t words = columns * b->q->bits / 32;
    struct gpt_hf_part scales, zeros;

    b->shape[0] = columns;
    b->shape[1] = rows;
    b->turned = true;
    if (columns % per)
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: tensor '%.200s' has %lld columns, which is no "
                        "multiple of %lld",
                        b->parts->where, b->main.file, b->main.entry->name,
                        (long long)columns, (long long)per);
    gpt_hf_set_groups(b, rows, columns, b->q->block[1], 1);
    GPT_TRY(gpt_hf_need_part(b, "scales", &scales, err));
    GPT_TRY(gpt_hf_set_scales(b, &scales, err));
    GPT_TRY(gpt_hf_need_part(b, "qzeros", &zeros, err));
    GPT_TRY(gpt_hf_check_part(b, &zeros, GPT_I32, b->s.n_groups, words,
                              err));
    b->s.zeros = (struct gpt_fields){.in = zeros.in,
                                     .begin = zeros.entry->begin,
                                     .pitch = 4 * words,
                                     .bits = (int)b->q->bits,
                                     .plus = b->q->plus_one};
    return GPT_OK;
}

/* "g_idx" says of which group an input is; files that have none have inputs in
 * their order. */
static int set_index(struct gpt_hf_quantizing *b, struct gpt_err *err)
{
    struct gpt_hf_part index;

    if (!gpt_hf_find_part(b, "g_idx", &index))
        return GPT_OK;
    GPT_TRY(gpt_hf_check_part(b, &index, GPT_I32, b->s.rows, 1, err));
    b->s.index = index.in;
    b->s.index_begin = index.entry->begin;
    return GPT_OK;
}

/* A word is of one output and of several inputs, which follow each other. The
 * sum of a zero point and 1 stays within its bits, as in the first kernels. */
int gpt_hf_make_gptq(struct gpt_hf_quantizing *b, struct gpt_err *err)
{
    if (!gpt_hf_find_part(b, "qweight", &b->main))
        return GPT_OK;
    GPT_TRY(gpt_hf_check_numbers(b, GPT_I32, err));
    const int64_t *shape = b->main.entry->shape;
    b->s.numbers.down = true;
    b->s.numbers.pitch = 4 * shape[1];
    if (b->q->bits == 3 && shape[0] % 3)
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: tensor '%.200s' has %lld rows of words, which "
                        "is no multiple of 3", b->parts->where, b->main.file,
                        b->main.entry->name, (long long)shape[0]);
    GPT_TRY(set_rows_of_groups(b, shape[0] * 32 / b->q->bits, shape[1], err));
    return set_index(b, err);
}

/* A word is of one input and of eight outputs, in an order of its own. */
int gpt_hf_make_awq(struct gpt_hf_quantizing *b, struct gpt_err *err)
{
    static const uint8_t order[8] = {0, 4, 1, 5, 2, 6, 3, 7};

    if (!gpt_hf_find_part(b, "qweight", &b->main))
        return GPT_OK;
    GPT_TRY(gpt_hf_check_numbers(b, GPT_I32, err));
    const int64_t *shape = b->main.entry->shape;
    b->s.numbers.order = order;
    b->s.numbers.per = 8;
    b->s.numbers.pitch = 4 * shape[1];
    GPT_TRY(set_rows_of_groups(b, shape[0], shape[1] * 8, err));
    b->s.zeros.order = order;
    b->s.zeros.per = 8;
    return GPT_OK;
}

/* ---- the tensor ---- */

/* A file that has it as (in, out) is seen with its strides exchanged. */
static int show(struct gpt_hf_quantizing *b, struct gpt_hf_found *found,
                struct gpt_err *err)
{
    struct gpt_arena *arena = b->parts->arena;
    struct gpt_scaled *s = gpt_arena_alloc(arena, 1, sizeof(*s));
    struct gpt_packed *p = gpt_arena_alloc(arena, 1, sizeof(*p));
    const char *name = gpt_arena_strdup(arena, b->name);
    const int64_t size = (int64_t)sizeof(float);
    struct gpt_file_box box = {.in = b->main.in, .dtype = GPT_F32, .packed = p};
    int64_t n;

    if (!s || !p || !name)
        return gpt_no_memory(err, "quantized weights");
    if (!gpt_mul(b->shape[0] * size, b->shape[1], &n))
        return gpt_fail(err, GPT_EDATA, "%s: tensor '%.200s': size overflows",
                        b->parts->where, b->name);
    *s = b->s;
    s->name = name;
    *p = (struct gpt_packed){.elements = n / size, .scaled = s};
    memcpy(box.shape, b->shape, sizeof(b->shape));
    box.stride[0] = b->turned ? size : b->shape[1] * size;
    box.stride[1] = b->turned ? b->shape[0] * size : size;
    found->tensor = gpt_tensor_make(name, GPT_F32, 2, b->shape);
    found->file = b->main.file;
    found->used = b->main.used;
    found->owned = true;
    return gpt_tensor_add(&found->tensor, &box, err);
}

int gpt_hf_quantized_find(const struct gpt_hf_quantized *q,
                          const struct gpt_hf_finder *parts, const char *name,
                          struct gpt_hf_found *found, struct gpt_err *err)
{
    struct gpt_hf_quantizing b = {
        .q = q, .parts = parts, .name = name, .s = {.name = name, .after = 1}};

    if (!gpt_path_ends_in(name, ".weight"))
        return GPT_OK;
    b.base = (int)(strlen(name) - strlen("weight"));
    GPT_TRY(q->method->make(&b, err));
    return b.shape[0] ? show(&b, found, err) : GPT_OK;
}

bool gpt_hf_quantized_ignores(const char *name)
{
    static const char *const tails[] = {
        ".input_scale", ".activation_scale", ".output_scale",    ".q_scale",
        ".k_scale",     ".v_scale",          ".input_zero_point"};

    for (size_t i = 0; i < GPT_COUNT(tails); i++)
        if (gpt_path_ends_in(name, tails[i]))
            return true;
    return false;
}
