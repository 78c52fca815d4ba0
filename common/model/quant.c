/* Weights in fewer bits; see quant.h. A parameter has one place in one block of
 * memory: its values, and after them its scales. Start at
 * gpt_quant_store_put().
 *
 * Bytes are symmetric: a value is a whole number from -127 to 127 times its
 * scale, so that zero stays zero and no offset is to be added to sums. Scales
 * are bf16: of a scale's size only its exponent matters, as the numbers are
 * rounded against the scale that is stored. */
#include "model/quant.h"

#include "base/memory.h"
#include "base/num.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct gpt_quant_store {
    struct gpt_backend *be;
    const struct gpt_flat *flat;
    struct gpt_quant_form form;
    char *mem;
    int64_t at[]; /* where each slice begins in it */
};

enum { LINE = 64, MOST = 127 };

/* Rows of the position table are added to floats, one a token; rounding them
 * saves nothing that is read. A router is small, and decides by differences of
 * sums that rounding would change. */
static bool is_matrix(const struct gpt_slice *s)
{
    switch (s->param->role) {
    case GPT_POSITION_EMBEDDING:
    case GPT_ROUTER_WEIGHT:
    case GPT_SHARED_ROUTER:
        return false;
    default:
        return s->param->decay;
    }
}

/* Scales of a row. The last group of a row may be shorter: a group never runs
 * from one row into the next. */
static int64_t groups_of(const struct gpt_slice *s, struct gpt_quant_form form)
{
    if (form.type != GPT_I8)
        return 0;
    return form.group ? (s->shape[1] + form.group - 1) / form.group : 1;
}

/* Values of the first rows alone: scales are behind those of all rows. */
static int64_t value_bytes(const struct gpt_slice *s, int64_t rows,
                           struct gpt_quant_form form)
{
    int64_t element =
        (int64_t)gpt_dtype_bytes(is_matrix(s) ? form.type : GPT_F32);

    return rows * (s->count / s->shape[0]) * element;
}

static int64_t scale_bytes(const struct gpt_slice *s, int64_t rows,
                           struct gpt_quant_form form)
{
    return is_matrix(s) ? rows * groups_of(s, form) *
                              (int64_t)sizeof(uint16_t)
                        : 0;
}

static int64_t whole_lines(int64_t bytes)
{
    return gpt_round_up(bytes, LINE);
}

static struct gpt_quant quant_of(struct gpt_quant_form form)
{
    return (struct gpt_quant){.type = form.type,
                              .group = form.group,
                              .round_inputs = form.round_inputs};
}

/* Bytes of a matrix as the device keeps it, or 0: in rows. */
static int64_t arranged_bytes(struct gpt_backend *be, const struct gpt_slice *s,
                              struct gpt_quant_form form)
{
    const struct gpt_quant w = quant_of(form);
    /* experts are multiplied one by one: each begins at a whole number of
     * blocks of rows, or the matrix stays in rows */
    const bool cuts = s->param->matrices > 1 && s->param->split_unit % 32 != 0;

    return is_matrix(s) && !cuts
               ? (int64_t)be->quant_bytes(&w, s->shape[0], s->shape[1])
               : 0;
}

/* Where scales begin in a slice's place. */
static int64_t scales_at(struct gpt_backend *be, const struct gpt_slice *s,
                         struct gpt_quant_form form)
{
    const int64_t bytes = arranged_bytes(be, s, form);

    return whole_lines(bytes > 0 ? bytes
                                 : value_bytes(s, s->shape[0], form));
}

/* Arranged groups have their scales among them. */
static bool has_scales(struct gpt_backend *be, const struct gpt_slice *s,
                       struct gpt_quant_form form)
{
    return form.type == GPT_I8 &&
           !(form.group && arranged_bytes(be, s, form) > 0);
}

/* A slice's place is whole lines: two parameters never share one. */
static int64_t slice_room(struct gpt_backend *be, const struct gpt_slice *s,
                          struct gpt_quant_form form)
{
    return whole_lines(scales_at(be, s, form) +
                       (has_scales(be, s, form)
                            ? scale_bytes(s, s->shape[0], form)
                            : 0));
}

bool gpt_quant_store_wanted(struct gpt_backend *be, struct gpt_quant_form form)
{
    const struct gpt_quant w = quant_of(form);

    return form.type != GPT_F32 || ((be->abilities & GPT_CAN_QUANT) &&
                                    be->quant_bytes(&w, 1, 1) > 0);
}

int64_t gpt_quant_store_bytes(struct gpt_backend *be,
                              const struct gpt_flat *flat,
                              struct gpt_quant_form form)
{
    int64_t bytes = 0;

    if (!(be->abilities & GPT_CAN_QUANT))
        return 0;
    for (int64_t i = 0; i < flat->n; i++)
        bytes += slice_room(be, &flat->slices[i], form);
    return bytes;
}

/* What a device cannot compute is refused here, before anything is read. */
int gpt_quant_store_open(struct gpt_quant_store **out, struct gpt_backend *be,
                         const struct gpt_flat *flat,
                         struct gpt_quant_form form, struct gpt_err *err)
{
    struct gpt_quant_store *s;
    char *block; /* a store with its places: gpt_new() takes one size */
    void *mem = NULL;

    *out = NULL;
    if (!(be->abilities & GPT_CAN_QUANT))
        return gpt_fail(err, GPT_EDEVICE,
                        "device %s does not compute with weights of %s: the "
                        "CPU does",
                        be->name, gpt_dtype_name(form.type));
    assert(be->host_memory);
    GPT_TRY(gpt_new(&block, sizeof(*s) + (size_t)flat->n * sizeof(*s->at), 1,
                    "weights", err));
    s = (void *)block;
    /* places follow each other in the order of the table, in which a step
     * reads them */
    s->be = be;
    s->flat = flat;
    s->form = form;
    for (int64_t i = 1; i < flat->n; i++)
        s->at[i] = s->at[i - 1] + slice_room(be, &flat->slices[i - 1], form);
    int status = be->alloc(be, (size_t)gpt_quant_store_bytes(be, flat, form),
                           "weights", &mem, err);
    s->mem = mem;
    if (status != GPT_OK) {
        gpt_free(s);
        return status;
    }
    *out = s;
    return GPT_OK;
}

void gpt_quant_store_close(struct gpt_quant_store *s)
{
    if (!s)
        return;
    s->be->free(s->be, s->mem);
    gpt_free(s);
}

/* The least scale, of those that bf16 has, by which no value is past MOST. A
 * scale that was rounded down would need 128 for the largest value, which a
 * byte does not hold. */
static uint16_t scale_of(float largest)
{
    uint16_t scale = gpt_f32_to_bf16(largest / MOST);

    /* the next number of bf16 is the next of these bits */
    return gpt_bf16_to_f32(scale) * MOST < largest ? (uint16_t)(scale + 1)
                                                   : scale;
}

/* The size of a number: its bits without the sign, in whose order sizes are. */
static inline int32_t size_bits(float x)
{
    int32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits & INT32_MAX;
}

/* Rounded to the nearest whole number, ties to even: at this size floats have
 * no others, and the lowest bits of the sum are the number. */
static inline int8_t nearest_byte(float x)
{
    return (int8_t)size_bits(x + 0x1.8p23F);
}

/* A group of a row: n values. The largest decides about the scale; of the
 * others none is cut off. False when one is infinite, or no number. Both loops
 * have no calls and no branches, so that they become vectors. */
static bool put_bytes(int8_t *to, uint16_t *scale, const float *x, int64_t n)
{
    int32_t most = 0;
    float largest;

#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++)
        most = size_bits(x[i]) > most ? size_bits(x[i]) : most;
    memcpy(&largest, &most, sizeof(largest));
    if (!isfinite(largest))
        return false;
    *scale = scale_of(largest);
    const float by = gpt_bf16_to_f32(*scale);
    if (by == 0) /* a group of zeros */
        memset(to, 0, (size_t)n);
    else
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            to[i] = nearest_byte(x[i] / by);
    return true;
}

/* Rows of a slice from `first` on to values and scales; a row has k values. */
static int put_rows(const struct gpt_slice *slice, struct gpt_quant_form form,
                    void *values, uint16_t *scale, const float *x,
                    int64_t first, int64_t rows, struct gpt_err *err)
{
    const int64_t k = slice->count / slice->shape[0];
    const int64_t groups = groups_of(slice, form);
    const int64_t group = form.group ? form.group : k;

    if (!is_matrix(slice) || form.type != GPT_I8) {
        gpt_convert(values, is_matrix(slice) ? form.type : GPT_F32, x, GPT_F32,
                    (size_t)(rows * k));
        return GPT_OK;
    }
    for (int64_t row = 0; row < rows; row++)
        for (int64_t g = 0; g < groups; g++) {
            int64_t at = row * k + g * group;
            int64_t n = k - g * group < group ? k - g * group : group;

            if (!put_bytes((int8_t *)values + at, scale++, x + at, n))
                return gpt_fail(err, GPT_EDATA,
                                "%s: row %lld has values that are infinite or "
                                "no numbers: they have no scale",
                                slice->param->name, (long long)(first + row));
        }
    return GPT_OK;
}

/* The same as the device keeps a matrix: some rows at a time. */
static int put_arranged(struct gpt_quant_store *s,
                        const struct gpt_slice *slice, char *to,
                        const float *x, struct gpt_err *err)
{
    enum { ROWS = 32 };
    const int64_t k = slice->shape[1], n = slice->shape[0];
    const bool apart = has_scales(s->be, slice, s->form);
    struct gpt_quant rows = quant_of(s->form);
    uint16_t *scales = (void *)(to + scales_at(s->be, slice, s->form)), *room;
    int status = GPT_OK;

    if (s->form.type == GPT_F32) {
        rows.values = x;
        s->be->quant_arrange(to, &rows, 0, n, k);
        return GPT_OK;
    }
    /* a value takes 2 bytes or less, and there are not more scales */
    GPT_TRY(gpt_new(&room, (size_t)(2 * ROWS * k), sizeof(*room), "weights",
                    err));
    rows.values = room;
    rows.scales = room + ROWS * k;
    for (int64_t i = 0; i < n && status == GPT_OK; i += ROWS) {
        const int64_t some = n - i < ROWS ? n - i : ROWS;

        status = put_rows(slice, s->form, room,
                          apart ? scales + i : room + ROWS * k, x + i * k, i,
                          some, err);
        if (status == GPT_OK)
            s->be->quant_arrange(to, &rows, i, some, k);
    }
    gpt_free(room);
    return status;
}

int gpt_quant_store_put(struct gpt_quant_store *s, int64_t i,
                        const float *values, struct gpt_err *err)
{
    const struct gpt_slice *slice = &s->flat->slices[i];
    char *to = s->mem + s->at[i];

    if (arranged_bytes(s->be, slice, s->form) > 0)
        return put_arranged(s, slice, to, values, err);
    return put_rows(slice, s->form, to,
                    (void *)(to + scales_at(s->be, slice, s->form)), values, 0,
                    slice->shape[0], err);
}

/* Layer code learns from `at` which parameters a layer has, so `at` is set for
 * vectors and for narrow matrices, which it finds by their roles. */
void gpt_quant_store_bind(const struct gpt_quant_store *s, int64_t layer,
                          struct gpt_roles *roles)
{
    memset(roles, 0, sizeof(*roles));
    for (int64_t i = 0; i < s->flat->n; i++) {
        const struct gpt_slice *slice = &s->flat->slices[i];
        char *mem = s->mem + s->at[i];

        if (slice->param->layer != layer)
            continue;
        roles->at[slice->param->role] = mem;
        /* floats in rows are no form of their own */
        if (!is_matrix(slice) ||
            (s->form.type == GPT_F32 &&
             arranged_bytes(s->be, slice, s->form) == 0))
            continue;
        struct gpt_quant *w = &roles->quant[slice->param->role];

        *w = quant_of(s->form);
        w->arranged = arranged_bytes(s->be, slice, s->form) > 0;
        w->values = mem;
        if (has_scales(s->be, slice, s->form))
            w->scales = (void *)(mem + scales_at(s->be, slice, s->form));
    }
}

/* What a step reads of a parameter, scales included. */
int64_t gpt_quant_store_rows(const struct gpt_quant_store *s, int64_t i,
                             int64_t rows)
{
    const struct gpt_slice *slice = &s->flat->slices[i];

    return value_bytes(slice, rows, s->form) +
           scale_bytes(slice, rows, s->form);
}
