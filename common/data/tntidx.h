/* The legacy index of Megatron-LM's "lazy" and "cached" data sets, and of
 * GPT-NeoX's: read by making the arrays of an MMIDIDX of it. */
#ifndef GPT_DATA_TNTIDX_H
#define GPT_DATA_TNTIDX_H

#include "data/idx.h"

/* Returns true when the first n bytes of an index are those of TNTIDX. */
bool gpt_is_tntidx(const uint8_t *image, int64_t n);

/* Checks an image of `size` bytes against a .bin of `bin_bytes` and makes an
 * MMIDIDX image of it, which gpt_idx_parse() takes; *made is freed with
 * gpt_free(). GPT_EDATA names `path`, offset, field, value and limit. */
int gpt_tntidx_read(uint8_t **made, int64_t *made_bytes, const uint8_t *image,
                    int64_t size, int64_t bin_bytes, const char *path,
                    struct gpt_err *err) GPT_MUST_USE;

#endif
