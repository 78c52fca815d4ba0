/* Quantized weights that are stored as several tensors: whole numbers or codes
 * of few bits, scales of groups of them, and perhaps zero points. They are seen
 * as a stretch of floats (struct gpt_packed), in the order in which the file
 * has the numbers, and are computed as they are read. Start at
 * gpt_scaled_read(); huggingface/quantized.h says which methods there are. */
#ifndef GPT_CHECKPOINT_SCALED_H
#define GPT_CHECKPOINT_SCALED_H

#include "base/dtype.h"
#include "base/io.h"

/* A matrix of numbers of 2, 3, 4 or 8 bits. Several of them share a unit: with
 * `down` 32 bits, little-endian, with `order` as many bytes as `per` numbers
 * have, else one byte. Without `order` the first is in the lowest bits. Those
 * of 3 bits follow each other through all units of a row or column: one may be
 * in two of them. */
struct gpt_fields {
    struct gpt_in *in; /* borrowed; NULL: there are none */
    int64_t begin;     /* byte of the file */
    int64_t pitch;     /* bytes from a row of units to the next */
    int bits;
    bool down; /* numbers of a unit follow each other down the rows */
    int per;   /* with `order`: numbers of a unit */
    const uint8_t *order; /* the place of each of them in the unit, or NULL */
    int plus, minus; /* a number is ((what is stored + plus) mod 2^bits) -
                      * minus, */
    const float *codes; /* or, if this is not NULL, of 2^bits values one */
};

/* Element (i, j) in the order of the file is, with the scale and the zero point
 * of its group:
 *     (number - zero) * scale * after
 * Each operation rounds to float. Groups are rectangles; or those of row i are
 * in the row of scales that index[i] names. */
struct gpt_scaled {
    const char *name; /* of the tensor, for messages */
    int64_t rows, columns;
    struct gpt_fields numbers, zeros;
    int64_t group_rows, group_columns;
    int64_t n_groups;     /* rows of scales */
    int64_t n_scales;     /* of a row of scales */
    struct gpt_in *index; /* NULL: row i / group_rows. int32, one a row */
    int64_t index_begin;
    float after;
    /* Scales: of a type of float, or, where there is another such matrix, its
     * elements, with `offset` added. */
    struct gpt_in *scales;
    int64_t scales_begin;
    enum gpt_dtype scale_type;
    const struct gpt_scaled *nested;
    float offset;
};

/* Elements [at, at + n) of the stretch. GPT_EDATA for one that is not there, or
 * a number of a row of scales that is not there. */
int gpt_scaled_read(const struct gpt_scaled *s, float *to, int64_t at,
                    int64_t n, struct gpt_err *err) GPT_MUST_USE;
/* The same of lines of n elements that begin `pitch` elements apart: one after
 * the other into `to`. */
int gpt_scaled_read_lines(const struct gpt_scaled *s, float *to, int64_t at,
                          int64_t pitch, int64_t lines, int64_t n,
                          struct gpt_err *err) GPT_MUST_USE;

#endif
