/* What a checkpoint must be for a run to begin with it; see load_checks.h. */
#include "cmd/train/load_checks.h"

#include "base/json.h"
#include "checkpoint/run_state.h"
#include "cmd/train/vocabulary.h"

/* Names the field in which the two differ, with both values, in the words of
 * the configuration. Dropout and padding may differ. With --use-checkpoint-args
 * only an option that stands for several others can be the reason. */
static int check_model(const struct gpt_replica *r,
                       const struct gpt_source *source,
                       const struct gpt_train_options *options,
                       struct gpt_err *err)
{
    const struct gpt_config *there = &source->config;
    const char *field = gpt_config_difference(&r->o.config, there);
    char *here_text, *there_text;

    if (!field)
        return GPT_OK;
    cJSON *a = gpt_config_to_json(&r->o.config), *b = gpt_config_to_json(there);
    here_text =
        gpt_json_print(cJSON_GetObjectItemCaseSensitive(a, field), false);
    there_text =
        gpt_json_print(cJSON_GetObjectItemCaseSensitive(b, field), false);
    gpt_fail(err, GPT_EUSAGE, "%s: its model has %s %s, the options say %s",
             source->dir, field, there_text ? there_text : "?",
             here_text ? here_text : "?");
    gpt_hint(err, "%s",
             options->use_checkpoint_args
                 ? "leave out the option that says so, as --swiglu, --geglu "
                   "or --squared-relu, or --use-checkpoint-args"
                 : "--use-checkpoint-args takes the model's options from the "
                   "checkpoint");
    cJSON_free(here_text);
    cJSON_free(there_text);
    cJSON_Delete(a);
    cJSON_Delete(b);
    return GPT_EUSAGE;
}

/* Fails when the checkpoint holds no run to resume. Starting anew in silence
 * would lose the position without a word, so that is asked for. */
static int check_run(const struct gpt_source *source, struct gpt_err *err)
{
    const bool converted =
        cJSON_GetObjectItemCaseSensitive(source->state, GPT_RUN_CONVERTED);

    if (source->state && !converted)
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE,
             "%s: %s: it holds weights only, and no run to resume", source->dir,
             converted ? "converted from another format"
                       : "a model of another program");
    return gpt_hint(err, "--finetune starts a new run from these weights");
}

/* The losses of a model need no more. */
bool gpt_train_needs_weights_alone(const struct gpt_train_plan *plan)
{
    return plan->options->finetune || plan->evaluates;
}

int gpt_train_check_source(const struct gpt_replica *r,
                           const struct gpt_source *source,
                           const struct gpt_train_plan *plan,
                           struct gpt_err *err)
{
    const struct gpt_train_options *o = plan->options;

    GPT_TRY(check_model(r, source, o, err));
    GPT_TRY(gpt_train_check_checkpoint_vocabulary(source, o, err));
    return gpt_train_needs_weights_alone(plan) ? GPT_OK
                                               : check_run(source, err);
}
