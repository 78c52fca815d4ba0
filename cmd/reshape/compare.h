/* Comparing two checkpoints of any formats and layouts, parameter by parameter:
 * whether they are the same, and how far apart they are. Rows that only pad a
 * vocabulary are not compared. */
#ifndef GPT_CMD_RESHAPE_COMPARE_H
#define GPT_CMD_RESHAPE_COMPARE_H

#include "base/list.h"
#include "base/memory.h"
#include "checkpoint/format.h"

/* Compares the first `rows` rows of both, read as the type of `out`, packed
 * first where `out` is: GPT_EDATA names the tensor and the rows that differ.
 * tiles: scratch of 2 x GPT_TILE_BYTES. */
int gpt_compare_rows(const struct gpt_tensor *in, const struct gpt_tensor *out,
                     int64_t rows, uint8_t *tiles,
                     struct gpt_err *err) GPT_MUST_USE;

/* How `out` is packed where `in` is not; NULL: in no way. */
const struct gpt_packing *gpt_compare_packing(const struct gpt_tensor *in,
                                              const struct gpt_tensor *out);

/* Appends a sentence that says in what way the checkpoint at b equals that at
 * a, with the adapters (NULL: none) merged into that. dtype: the type that a's
 * parameters are rounded to first; GPT_N_DTYPES: none. GPT_EFAIL when they
 * differ, naming the first tensor that does. */
int gpt_compare_equal(struct gpt_buf *out, const char *a, const char *b,
                      const struct gpt_list *adapters, enum gpt_dtype dtype,
                      struct gpt_err *err) GPT_MUST_USE;

/* Appends the differences of each tensor, the largest first: a table, or one
 * JSON object. GPT_EFAIL when the models are of different sizes. */
int gpt_compare_differences(struct gpt_buf *out, const char *a, const char *b,
                            const struct gpt_list *adapters, bool json,
                            struct gpt_err *err) GPT_MUST_USE;

#endif
