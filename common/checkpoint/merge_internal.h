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

/* A rectangle: lines [line, line + lines) and of each the elements [at, at +
 * n), by their numbers in the matrix. */
struct gpt_merge_area {
    uint8_t *dst; /* its first element; lines are as far apart as in the file */
    int64_t line, lines, at, n;
    const float *factors; /* of all outputs; NULL: none */
};

int gpt_merge_add(const struct gpt_merging *m, struct gpt_merge_room *room,
                  const struct gpt_merge_area *area,
                  struct gpt_err *err) GPT_MUST_USE;

/* Rounds n <= GPT_MERGE_BLOCK floats to a type of two bytes; others stay. */
void gpt_merge_round_floats(float *x, enum gpt_dtype type, int64_t n);

#endif
