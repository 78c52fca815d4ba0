/* See stage_options.h. */
#include "parallel/stage_options.h"

int gpt_stage_layers_check(const struct gpt_stage_layers *o,
                           struct gpt_err *err)
{
    if (o->layers_per_chunk == 0)
        return GPT_OK;
    if (o->chunks > 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--num-layers-per-virtual-pipeline-stage and "
                        "--num-virtual-stages-per-pipeline-rank exclude each "
                        "other");
    if (o->first_layers > 0 || o->last_layers > 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--num-layers-per-virtual-pipeline-stage is for even "
                        "stages; with --decoder-%s-pipeline-num-layers give "
                        "--num-virtual-stages-per-pipeline-rank",
                        o->first_layers > 0 ? "first" : "last");
    return GPT_OK;
}
