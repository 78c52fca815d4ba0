/* What the files share that merge: merge.c reads and cuts, merge_sums.c adds,
 * merge_product.c has what is added. */
#ifndef GPT_CHECKPOINT_MERGE_INTERNAL_H
#define GPT_CHECKPOINT_MERGE_INTERNAL_H

#include "checkpoint/merge.h"

enum { GPT_MERGE_BLOCK = 1024 }; /* elements of a line that are added at once */

/* What outputs are multiplied by, NULL without lengths: found at the first
 * call, for which the whole matrix is read; then other threads wait. */
int gpt_product_factors(struct gpt_product *p, const float **factors,
                        struct gpt_err *err) GPT_MUST_USE;

/* Makes a room where *room is NULL. */
int gpt_merge_make_room(struct gpt_merge_room **room,
                        struct gpt_err *err) GPT_MUST_USE;

/* Adds to a rectangle, lines [line, line + lines) and of each the elements
 * [at, at + n), by their numbers in the matrix. The first element is at `dst`,
 * where lines are as far apart as in the file. factors: NULL for none. */
int gpt_merge_add(const struct gpt_merging *m, struct gpt_merge_room *room,
                  const float *factors, uint8_t *dst, int64_t line,
                  int64_t lines, int64_t at, int64_t n,
                  struct gpt_err *err) GPT_MUST_USE;

/* Rounds n <= GPT_MERGE_BLOCK floats to a type of two bytes; others stay. */
void gpt_merge_round_floats(float *x, enum gpt_dtype type, int64_t n);

#endif
