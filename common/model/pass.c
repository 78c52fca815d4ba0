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
        .t0 = pass->sequence ? pass->rows * pass->layout->tp_rank : 0,
    };
}

static int64_t elements(const struct gpt_pass *pass)
{
    return pass->rows * pass->config->hidden_size;
}

void *gpt_pass_gather(const struct gpt_pass *pass, void *mine)
{
    if (!pass->sequence)
        return mine;
    gpt_comm_all_gather(pass->tp, pass->q, pass->work.all, mine, elements(pass),
                        pass->act);
    return pass->work.all;
}

void *gpt_pass_part(const struct gpt_pass *pass, void *mine)
{
    return pass->sequence ? pass->work.all : mine;
}

void gpt_pass_sum(const struct gpt_pass *pass, void *mine)
{
    if (pass->sequence)
        gpt_comm_reduce_scatter(pass->tp, pass->q, mine, pass->work.all,
                                elements(pass), pass->act);
    else if (pass->tp)
        gpt_comm_all_reduce(pass->tp, pass->q, mine, elements(pass), pass->act,
                            GPT_SUM);
}
