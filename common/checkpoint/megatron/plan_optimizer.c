/* What of an optimizer a Megatron checkpoint that is written will hold, and in
 * which types. Start at gpt_megatron_plan_blocks(). */
#include "checkpoint/megatron/write.h"

#include "base/log.h"
#include "checkpoint/run_state.h"

#include <string.h>

/* The types that a run of Megatron-LM computes in. */
static enum gpt_dtype run_dtype(const struct gpt_source *s)
{
    const cJSON *precision =
        cJSON_GetObjectItemCaseSensitive(s->state, GPT_RUN_PRECISION);
    enum gpt_dtype dtype = GPT_F32;

    if (!cJSON_IsString(precision))
        return GPT_F32;
    for (int d = 0; d < GPT_N_DTYPES; d++)
        if (strcmp(precision->valuestring, gpt_dtype_name(d)) == 0)
            dtype = (enum gpt_dtype)d;
    return dtype == GPT_BF16 || dtype == GPT_F16 ? dtype : GPT_F32;
}

/* What the format could hold and this writer leaves out is said by name. */
static bool has_adam(const struct gpt_source *s)
{
    bool kinds[GPT_N_ADAM_KINDS] = {false};

    for (int64_t i = 0; i < s->n_tensors; i++) {
        const char *name = s->tensors[i].name;
        int k = GPT_KIND_EXP_AVG;

        if (!gpt_name_is_optimizer(name))
            continue;
        while (k < GPT_N_ADAM_KINDS &&
               strncmp(name, gpt_kind_prefix((enum gpt_kind)k),
                       strlen(gpt_kind_prefix((enum gpt_kind)k))) != 0)
            k++;
        if (k == GPT_N_ADAM_KINDS) {
            gpt_warn("%s: its optimizer state is left out: format megatron is "
                     "written with that of Adam only, and '%s' is a state "
                     "that Adam does not have",
                     s->dir, name);
            return false;
        }
        kinds[k] = true;
    }
    /* one without the other is no state that could be resumed */
    return kinds[GPT_KIND_EXP_AVG] && kinds[GPT_KIND_EXP_AVG_SQ];
}

/* The model's weights, then what the optimizer keeps: fp32 copies where weights
 * have another type, and moments. */
void gpt_megatron_plan_blocks(struct gpt_target *t)
{
    struct gpt_megatron_output *p = t->data;
    const struct gpt_megatron_block moments[] = {
        {GPT_KIND_PARAMETERS, GPT_F32, "param"},
        {GPT_KIND_EXP_AVG, GPT_N_DTYPES, "exp_avg"},
        {GPT_KIND_EXP_AVG_SQ, GPT_N_DTYPES, "exp_avg_sq"},
    };

    p->dtype = t->o.dtype;
    p->optimizer = !has_adam(t->source)       ? GPT_MEGATRON_NONE
                   : t->o.shard_optimizer ? GPT_MEGATRON_DISTRIBUTED
                                          : GPT_MEGATRON_PLAIN;
    /* A run of Megatron-LM computes in the type of its weights, and has fp32
     * copies of them. A native run has fp32 weights alone and says in which
     * type it computes: its weights are rounded to that type, so that
     * Megatron-LM resumes the run as it was. */
    if (p->optimizer != GPT_MEGATRON_NONE && p->dtype == GPT_N_DTYPES)
        p->dtype = run_dtype(t->source);
    /* the model's own weights are in every file, whatever the optimizer */
    p->blocks[p->n_blocks++] =
        (struct gpt_megatron_block){GPT_KIND_PARAMETERS, p->dtype, NULL};
    for (size_t i = 0; i < GPT_COUNT(moments); i++) {
        if (p->optimizer == GPT_MEGATRON_DISTRIBUTED) {
            p->shards[p->n_shards] = moments[i];
            p->shards[p->n_shards++].dtype = GPT_F32;
        }
        if (p->optimizer == GPT_MEGATRON_PLAIN &&
            (i > 0 || p->dtype != GPT_F32))
            p->blocks[p->n_blocks++] = moments[i];
    }
}
