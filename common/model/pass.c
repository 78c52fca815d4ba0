/* What layers and both ends of a stage ask of a pass: dropout masks, and sums
 * and rows over the tensor parallel ranks; see layer.h. */
#include "model/layer.h"

/* Counters of dropout go through the rows of (B, T) one after the other, so
 * consecutive rows in the middle of it are those of one sample that begins
 * there. */
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

/* ---- over the tensor parallel ranks ---- */

static int64_t elements(const struct gpt_pass *pass)
{
    return pass->rows * pass->config->hidden_size;
}

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
        .kind = pass->sequence ? GPT_REDUCE_SCATTER : GPT_ALL_REDUCE,
        .out = mine,
        .in = part,
        .n = elements(pass),
        .type = pass->act,
    };
}

void *gpt_pass_all(const struct gpt_pass *pass, void *mine)
{
    return pass->sequence ? pass->work.all : mine;
}

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

int64_t gpt_pass_begin_gather(const struct gpt_pass *pass, void *mine)
{
    const struct gpt_collective call = gather_of(pass, mine);

    if (pass->sequence && pass->lane)
        return gpt_lane_begin(pass->lane, pass->q, &call, NULL);
    gpt_pass_gather(pass, mine);
    return 0;
}

int64_t gpt_pass_begin_sum(const struct gpt_pass *pass, const void *part,
                           void *mine)
{
    const struct gpt_collective call = sum_of(pass, part, mine);

    if (pass->lane)
        return gpt_lane_begin(pass->lane, pass->q, &call, NULL);
    gpt_pass_sum(pass, part, mine);
    return 0;
}

void gpt_pass_join(const struct gpt_pass *pass, int64_t job)
{
    if (pass->lane)
        gpt_lane_join(pass->lane, pass->q, job);
}
