/* The .idx file of a data set (MMIDIDX version 1, gpt-dataset(5)): where its
 * arrays are, and the check that nothing in it leads a reader outside of either
 * file. Start at gpt_idx_parse(). */
#ifndef GPT_DATA_IDX_H
#define GPT_DATA_IDX_H

#include "base/dtype.h"
#include "data/set_damage.h"

#include <string.h>

/* The arrays are little-endian and read in place, as the tokens are. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "data sets are little-endian");

enum { GPT_IDX_HEADER = 34, GPT_IDX_MAGIC = 9 };

/* Borrowed from the image; no array is aligned. */
struct gpt_idx {
    enum gpt_dtype dtype;
    int64_t n_sequences; /* S */
    int64_t n_documents; /* the document array has one entry more */
    int64_t n_tokens;
    const uint8_t *lengths;   /* int32 (S), tokens */
    const uint8_t *pointers;  /* int64 (S), bytes into the .bin */
    const uint8_t *documents; /* int64 (n_documents + 1), sequence numbers */
};

/* Element i of an array. */
static inline int32_t gpt_idx_i32(const uint8_t *array, int64_t i)
{
    int32_t v;

    memcpy(&v, array + 4 * i, sizeof(v));
    return v;
}

static inline int64_t gpt_idx_i64(const uint8_t *array, int64_t i)
{
    int64_t v;

    memcpy(&v, array + 8 * i, sizeof(v));
    return v;
}

/* Checks an image of `size` bytes against a .bin of `bin_bytes` and fills *idx.
 * One pass, no allocation. GPT_EDATA names `path`, offset, field, value and
 * limit. Afterwards lengths are >= 0, pointers are their running sums, document
 * indices rise from 0 to S, and the tokens fill the .bin exactly. */
int gpt_idx_parse(struct gpt_idx *idx, const uint8_t *image, int64_t size,
                  int64_t bin_bytes, const char *path, struct gpt_err *err)
    GPT_MUST_USE;

/* ---- the same checks, collected ---- */

/* gpt_idx_parse() that continues after a finding. GPT_EDATA when nothing else
 * can be read (kind HEADER or DTYPE, counted in `all`). After GPT_OK the arrays
 * lie inside of the image and n_tokens is the sum of the lengths that are not
 * negative; all->count says what else holds. A wrong type is replaced by a
 * guess from the size: the .bin must hold n_tokens of it exactly. */
int gpt_idx_check(struct gpt_idx *idx, const uint8_t *image, int64_t size,
                  int64_t bin_bytes, const char *path,
                  struct gpt_damages *all) GPT_MUST_USE;

/* Bytes of the file: header, lengths, pointers, document indices. */
static inline int64_t gpt_idx_bytes(int64_t n_sequences, int64_t n_documents)
{
    return GPT_IDX_HEADER + 12 * n_sequences + 8 * (n_documents + 1);
}

/* True when a file of `size` bytes has a byte a sequence after its documents,
 * as those of multimodal sets do. */
static inline bool gpt_idx_has_modes(const struct gpt_idx *idx, int64_t size)
{
    return idx->n_sequences > 0 &&
           size == gpt_idx_bytes(idx->n_sequences, idx->n_documents) +
                       idx->n_sequences;
}

/* True when the header names a floating type. */
bool gpt_idx_is_floating(const uint8_t header[GPT_IDX_HEADER]);

/* The first 34 bytes. False when tokens cannot be of this type. */
bool gpt_idx_header(uint8_t header[GPT_IDX_HEADER], enum gpt_dtype dtype,
                    int64_t n_sequences, int64_t n_documents);

/* Megatron's codes of integer types. False when there is none. */
bool gpt_idx_dtype(uint64_t code, enum gpt_dtype *dtype);
bool gpt_idx_dtype_code(enum gpt_dtype dtype, uint8_t *code);

#endif
