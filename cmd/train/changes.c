/* Options that a checkpoint's run had and this one has otherwise; see
 * changes.h. The model, the optimizer, the data, the seed and the precision are
 * compared elsewhere, and what only moves work between ranks changes nothing. A
 * new option that changes a step's result wants a row here. */
#include "cmd/train/changes.h"

#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/train/effects.h"

#include <string.h>

static const struct {
    const char *name;
    bool schedule; /* part of the schedule, which a checkpoint has as well */
} rows[] = {
    /* the model, and what a loss counts */
    {"hidden-dropout", false},
    {"attention-dropout", false},
    {"fp8-format", false},
    {"first-last-layers-bf16", false},
    {"num-layers-at-start-in-bf16", false},
    {"num-layers-at-end-in-bf16", false},
    {"tf32", false},
    {"calculate-per-token-loss", false},
    {"label-smoothing", false},
    {"z-loss", false},
    {"token-loss-weights", false},
    {"loss-plugin", false},
    {"loss-plugin-args", false},
    {"eod-mask-loss", false},
    {"reset-position-ids", false},
    {"reset-attention-mask", false},
    /* a step, and what it does with gradients */
    {"rampup-batch-size", false},
    {"step-batch-size-schedule", false},
    {"lr", true},
    {"min-lr", true},
    {"decoupled-lr", true},
    {"decoupled-min-lr", true},
    {"lr-decay-style", true},
    {"lr-decay-iters", true},
    {"lr-decay-samples", true},
    {"lr-warmup-iters", true},
    {"lr-warmup-samples", true},
    {"lr-warmup-fraction", true},
    {"lr-warmup-init", true},
    {"lr-wsd-decay-style", true},
    {"lr-wsd-decay-iters", true},
    {"lr-wsd-decay-samples", true},
    {"weight-decay", true},
    {"start-weight-decay", true},
    {"end-weight-decay", true},
    {"weight-decay-incr-style", true},
    {"decoupled-weight-decay", false},
    {"adam-beta1", false},
    {"adam-beta2", false},
    {"adam-eps", false},
    {"sgd-momentum", false},
    {"muon-momentum", false},
    {"muon-use-nesterov", false},
    {"muon-num-ns-steps", false},
    {"muon-coefficient-type", false},
    {"muon-scale-mode", false},
    {"muon-extra-scale-factor", false},
    {"muon-no-split-qkv", false},
    {"muon-tp-mode", false},
    {"moe-router-bias-update-rate", false},
    {"clip-grad", false},
};

/* Both texts have a line for each option, in the order of the program's table.
 *
 * The value in a line "name = value  # origin", or "none" in "# name ="; NULL
 * where no line has the name, as in the text of an older program. */
static const char *value_of(const char *text, const char *name, size_t *len)
{
    const size_t n = strlen(name);

    for (const char *line = text; *line; line += strspn(line, "\n")) {
        const size_t end = strcspn(line, "\n");
        const bool unset = strncmp(line, "# ", 2) == 0;
        const char *key = line + (unset ? 2 : 0);

        line += end;
        if (strncmp(key, name, n) != 0 || strncmp(key + n, " =", 2) != 0)
            continue;
        /* commented out: the file must not set it when it is read again */
        if (unset) {
            *len = strlen("none");
            return "none";
        }
        const char *value = key + n + strspn(key + n, " =");
        const char *origin = memmem(value, (size_t)(line - value), "  # ", 4);
        *len = (size_t)((origin ? origin : line) - value);
        return value;
    }
    return NULL;
}

/* The option's text may be 0, for one microbatch on each data parallel rank, so
 * that the number itself is compared. Old programs did not save it. */
static int list_batch(struct gpt_buf *changes, const cJSON *state,
                      const struct gpt_train_plan *plan)
{
    const cJSON *then =
        cJSON_GetObjectItemCaseSensitive(state, "global_batch_size");
    const double now = (double)plan->rampup.global_batch;

    if (!cJSON_IsNumber(then) ||
        !(then->valuedouble < now || then->valuedouble > now))
        return GPT_OK;
    return gpt_buf_printf(changes, "global-batch-size %.0f -> %.0f",
                          then->valuedouble, now);
}

static int list_changes(struct gpt_buf *changes, const char *then,
                        const char *now, const struct gpt_train_plan *plan)
{
    const bool schedule = plan->options->override_scheduler;

    /* An option that an older program did not know is in one text alone: what
     * it did then is not known, and nothing is said of it. Values are compared
     * as text, which both programs wrote by the same rules. */
    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        size_t m, n;
        const char *a = value_of(then, rows[i].name, &m);
        const char *b = value_of(now, rows[i].name, &n);

        if (!a || !b || (rows[i].schedule && !schedule) ||
            (m == n && memcmp(a, b, n) == 0) ||
            !gpt_train_has_effect(plan, rows[i].name))
            continue;
        GPT_TRY(gpt_buf_printf(changes, "%s%s %.*s -> %.*s",
                               changes->len > 0 ? ", " : "", rows[i].name,
                               (int)m, a, (int)n, b));
    }
    return GPT_OK;
}

/* A change is no mistake, but the curve may bend there. Checkpoints of other
 * formats have no options. */
int gpt_train_report_changes(const struct gpt_source *source, const char *now,
                             const struct gpt_train_plan *plan,
                             struct gpt_err *err)
{
    const cJSON *then = cJSON_GetObjectItemCaseSensitive(source->state,
                                                         "options");
    struct gpt_buf changes = {0};

    if (!cJSON_IsString(then))
        return GPT_OK;
    int status = list_batch(&changes, source->state, plan);
    if (status == GPT_OK)
        status = list_changes(&changes, then->valuestring, now, plan);
    if (status != GPT_OK)
        status = gpt_no_memory(err, "changed options");
    else if (changes.len > 0)
        gpt_log_line(" > other options than the run of %s had: %s", source->dir,
                     changes.data);
    gpt_buf_free(&changes);
    return status;
}
