/* TNTIDX version 1, the legacy index of Megatron-LM's "lazy" and "cached" data
 * sets and of GPT-NeoX's (gpt-dataset(5)): where the words of its header are,
 * for indexed_writer.c, and a reader that makes an MMIDIDX of it. */
#ifndef GPT_DATA_TNTIDX_H
#define GPT_DATA_TNTIDX_H

#include "base/dtype.h"
#include "base/num.h"
#include "data/idx.h"

#include <string.h>

#define GPT_TNTIDX_MAGIC "TNTIDX\0" /* 8 bytes with its NUL */

/* Offsets of the words of 8 bytes; the arrays follow them. */
enum {
    GPT_TNTIDX_VERSION = 8,
    GPT_TNTIDX_DTYPE = 16,     /* Megatron's code */
    GPT_TNTIDX_ELEMENT = 24,   /* bytes of a token */
    GPT_TNTIDX_ITEMS = 32,     /* N */
    GPT_TNTIDX_SIZES = 40,     /* L: N, where an item has one dimension */
    GPT_TNTIDX_DOCUMENTS = 48, /* D: entries of the document array */
    GPT_TNTIDX_HEADER = 56
};

/* True when `image`, of `size` bytes, begins as such a file. */
static inline bool gpt_tntidx_has_magic(const uint8_t *image, int64_t size)
{
    return size >= GPT_TNTIDX_VERSION &&
           memcmp(image, GPT_TNTIDX_MAGIC, GPT_TNTIDX_VERSION) == 0;
}

/* Fills the header of n sequences, each an item of one dimension. False when
 * tokens cannot be of this type. */
static inline bool gpt_tntidx_header(uint8_t header[GPT_TNTIDX_HEADER],
                                     enum gpt_dtype dtype, int64_t n,
                                     int64_t n_documents)
{
    uint8_t code = 0;
    bool known = gpt_idx_dtype_code(dtype, &code);

    memcpy(header, GPT_TNTIDX_MAGIC, GPT_TNTIDX_VERSION);
    gpt_put_u64(header + GPT_TNTIDX_VERSION, 1);
    gpt_put_u64(header + GPT_TNTIDX_DTYPE, code);
    gpt_put_u64(header + GPT_TNTIDX_ELEMENT, gpt_dtype_bytes(dtype));
    gpt_put_u64(header + GPT_TNTIDX_ITEMS, (uint64_t)n);
    gpt_put_u64(header + GPT_TNTIDX_SIZES, (uint64_t)n);
    gpt_put_u64(header + GPT_TNTIDX_DOCUMENTS, (uint64_t)n_documents + 1);
    return known;
}

/* Checks an image of `size` bytes against a .bin of `bin_bytes` and makes an
 * MMIDIDX image of it, which gpt_idx_parse() takes; *made is freed with
 * gpt_free(). GPT_EDATA names `path`, offset, field, value and limit. */
int gpt_tntidx_read(uint8_t **made, int64_t *made_bytes, const uint8_t *image,
                    int64_t size, int64_t bin_bytes, const char *path,
                    struct gpt_err *err) GPT_MUST_USE;

#endif
