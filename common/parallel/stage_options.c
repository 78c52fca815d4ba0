/* See stage_options.h. */
#include "parallel/stage_options.h"

#include "base/num.h"

/* Megatron-LM has both options, and users have one of them in their scripts. */
bool gpt_stage_layers_count(const struct gpt_stage_layers *o, int64_t layers,
                            int64_t stages, int64_t *chunks)
{
    const int64_t each = gpt_max_i64(stages * o->layers_per_chunk, 1);

    *chunks = o->layers_per_chunk > 0 ? layers / each : o->chunks;
    return o->layers_per_chunk == 0 || layers % each == 0;
}

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
