/* Which parts of which tensors a rank has: what it writes into a checkpoint and
 * what it reads from one. A checkpoint holds three kinds of tensors, each with
 * the names and shapes of the parameter table. Together the ranks write every
 * element of a kind once:
 *
 * - tensor parallel ranks what they hold, and the first one alone what is not
 *   split; no rank the copy of a tied word table;
 * - of data parallel ranks, which hold the same, one each bucket, spread so
 *   that all write much the same; where each keeps shards alone (state of a
 *   distributed optimizer), its own. */
#ifndef GPT_CHECKPOINT_OWNERSHIP_H
#define GPT_CHECKPOINT_OWNERSHIP_H

#include "model/params.h"
#include "checkpoint/names.h"

/* A box of a parameter, contiguous in memory. */
struct gpt_owned_box {
    const struct gpt_slice *slice;
    int64_t begin[GPT_PARAM_DIMS]; /* within the whole parameter */
    int64_t shape[GPT_PARAM_DIMS];
    int64_t at, count; /* elements of the buffer of its kind */
};

struct gpt_ownership {
    struct gpt_owned_box *items; /* in the order of the buffer */
    size_t n, cap;
    int64_t elements; /* of all */
};

/* The rank that writes. dp_size 1: it writes all that it has. */
struct gpt_ownership_writer {
    int64_t tp_rank, dp_rank, dp_size;
};

/* Lists the boxes of a buffer that is flat or, when `compact`, holds this
 * rank's shards alone. writer NULL: all that the rank has, copies too. */
int gpt_ownership_build(struct gpt_ownership *p, const struct gpt_flat *flat,
                        bool compact, const struct gpt_ownership_writer *writer,
                        struct gpt_err *err) GPT_MUST_USE;
void gpt_ownership_free(struct gpt_ownership *p);

#endif
