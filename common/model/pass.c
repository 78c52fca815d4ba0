/* What layers and both ends of a stage need of a pass: dropout masks, and sums
 * and gathers over the tensor parallel ranks; see layer.h. Without tensor
 * parallelism every call here returns its argument and moves nothing. */
#include "model/layer.h"

#include <assert.h>

/* Dropout counts the rows of (B, T) one after the other. So this rank's
 * consecutive rows are described as one sample of `rows` positions that begins
 * at position t0 of the first sample: t0 may lie past its end. */
struct gpt_dropout gpt_pass_dropout(const struct gpt_pass *pass,
                                    struct gpt_rng rng, double p)
{
    return (struct gpt_dropout){
        .p = pass->dropout ? (float)p : 0.0F,
        .rng = rng,
        .samples = pass->samples,
        .t_local = pass->rows,
        .t_global = pass->t,
        .t0 = pass->sequence ? pass->rows * pass->layout->at[GPT_TP] : 0,
    };
}

/* ---- over the tensor parallel ranks: all of them make the same calls in the
 * same order, as each call waits for the others ---- */

static int64_t elements(const struct gpt_pass *pass)
{
    return pass->rows * pass->widths.hidden;
}

/* Which call a gather or a sum is, with or without sequence parallelism, is
 * decided here once, for calls that wait and for calls on the lane. */
static struct gpt_collective gather_of(const struct gpt_pass *pass, void *mine)
{
    return (struct gpt_collective){
        .kind = GPT_ALL_GATHER,
        .out = pass->work.all,
        .in = mine,
        .n = elements(pass),
        .type = pass->act,
    };
}

static struct gpt_collective sum_of(const struct gpt_pass *pass,
                                    const void *part, void *mine)
{
    return (struct gpt_collective){
        /* a rank that keeps few rows needs the sum of those alone */
        .kind = pass->sequence ? GPT_REDUCE_SCATTER : GPT_ALL_REDUCE,
        .out = mine,
        .in = part,
        .n = elements(pass),
        .type = pass->act,
    };
}

/* Without sequence parallelism every rank holds all rows anyway. */
void *gpt_pass_all(const struct gpt_pass *pass, void *mine)
{
    return pass->sequence ? pass->work.all : mine;
}

/* A sum over ranks with sequence parallelism cannot be in place, as each rank
 * keeps fewer rows than it adds. */
void *gpt_pass_part(const struct gpt_pass *pass, void *mine)
{
    return pass->sequence ? pass->work.part : mine;
}

void *gpt_pass_gather(const struct gpt_pass *pass, void *mine)
{
    const struct gpt_collective call = gather_of(pass, mine);

    if (pass->sequence)
        gpt_comm_call(pass->tp, pass->q, &call);
    return gpt_pass_all(pass, mine);
}

void gpt_pass_sum(const struct gpt_pass *pass, const void *part, void *mine)
{
    const struct gpt_collective call = sum_of(pass, part, mine);

    if (pass->tp)
        gpt_comm_call(pass->tp, pass->q, &call);
}

/* Gives every rank all columns. A single row is complete as it comes; of
 * several rows each rank sends a block. */
void gpt_pass_join_columns(const struct gpt_pass *pass, const void *mine,
                           int64_t width, void *out)
{
    const int64_t tp = pass->layout->size[GPT_TP];
    const size_t bytes = (size_t)width * gpt_dtype_bytes(pass->act);
    char *blocks = pass->n > 1 ? pass->columns->gathered : out;

    gpt_comm_all_gather(pass->tp, pass->q, blocks, mine, pass->n * width,
                        pass->act);
    for (int64_t i = 0; pass->n > 1 && i < pass->n; i++)
        for (int64_t t = 0; t < tp; t++)
            pass->be->copy(pass->q, (char *)out + (size_t)(i * tp + t) * bytes,
                           blocks + (size_t)(t * pass->n + i) * bytes, bytes);
}

int64_t gpt_pass_begin_gather(const struct gpt_pass *pass, void *mine)
{
    const struct gpt_collective call = gather_of(pass, mine);

    if (pass->sequence && pass->lane)
        return gpt_lane_begin(pass->lane, pass->q, &call, NULL);
    gpt_pass_gather(pass, mine);
    return 0; /* joining job 0 waits for nothing */
}

int64_t gpt_pass_begin_sum(const struct gpt_pass *pass, const void *part,
                           void *mine)
{
    const struct gpt_collective call = sum_of(pass, part, mine);

    assert(!pass->sequence || part != mine);
    if (pass->lane)
        return gpt_lane_begin(pass->lane, pass->q, &call, NULL);
    gpt_pass_sum(pass, part, mine);
    return 0;
}

/* Without a lane the call is on the queue that computes, where order is enough.
 */
void gpt_pass_join(const struct gpt_pass *pass, int64_t job)
{
    if (pass->lane)
        gpt_lane_join(pass->lane, pass->q, job);
}
