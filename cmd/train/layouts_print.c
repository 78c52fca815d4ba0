/* Advice as a table, as JSON, and as a command line; see layouts_print.h. The
 * command line is what the user wants in the end: it takes over what was typed
 * about the model and the data, and says the layout with the options of a run.
 * Start at gpt_advice_text(). */
#include "cmd/train/layouts_print.h"

#include "base/json.h"
#include "base/num.h"

#include <math.h>
#include <string.h>

const struct gpt_layout_words gpt_layout_words[GPT_N_PARTS] = {
    [GPT_PART_TENSOR] = {"tensor_parallel", {"tensor-model-parallel-size"}},
    [GPT_PART_PIPELINE] = {"pipeline_parallel",
                           {"pipeline-model-parallel-size"}},
    [GPT_PART_CHUNKS] = {"virtual_stages",
                         {"num-virtual-stages-per-pipeline-rank",
                          "num-layers-per-virtual-pipeline-stage"}},
    [GPT_PART_MICRO] = {"micro_batch", {"micro-batch-size"}},
    [GPT_PART_SHARDING] = {"sharding",
                           {"data-parallel-sharding-strategy",
                            "use-distributed-optimizer",
                            "overlap-param-gather"}},
    [GPT_PART_RECOMPUTE] = {"recompute",
                            {"recompute-granularity",
                             "recompute-activations"}},
    [GPT_PART_SEQUENCE] = {"sequence_parallel", {"sequence-parallel"}},
};

/* In the order of GPT_PART_RECOMPUTE. */
static const char *const recomputes[] = {"none", "selective", "full"};

/* Options that are about the advice and not about the run, and those that the
 * command line gets anew. The words are those of the table: a name that is not
 * there would leave its option in the command line. */
static const char *const of_advice[] = {
    "config",               "world-size",           "memory-limit",
    "hardware",             "device-peak-tflops",   "memory-bandwidth",
    "product-efficiency",   "gpus-per-node",        "intra-node-bandwidth",
    "inter-node-bandwidth", "intra-node-latency",   "inter-node-latency",
    "top",                  "json",                 "dry-run",
    "global-batch-size",    "bf16",                 "force",
    "quiet",                "verbose",              "color",
    "progress",             "log-format",           "threads",
};

/* ---- the command line ---- */

static bool is_in(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] && strcmp(name, list[i]) == 0)
            return true;
    return false;
}

/* True for options that the command line of a run does not take over as they
 * were typed. */
static bool is_replaced(const char *name)
{
    for (int i = 0; i < GPT_N_PARTS; i++)
        if (is_in(name, gpt_layout_words[i].options,
                  GPT_COUNT(gpt_layout_words[i].options)))
            return true;
    return is_in(name, of_advice, GPT_COUNT(of_advice));
}

/* As a shell reads it. */
static int add_word(struct gpt_buf *b, const char *word)
{
    /* what no shell expands, so that most words stay readable */
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_-+=.,/:@%";

    if (*word && !word[strspn(word, plain)])
        return gpt_buf_printf(b, " %s", word);
    GPT_TRY(gpt_buf_printf(b, " '"));
    for (; *word; word++)
        GPT_TRY(gpt_buf_printf(b, *word == '\'' ? "'\\''" : "%c", *word));
    return gpt_buf_printf(b, "'");
}

/* The words of an option that takes several. */
static int add_list(struct gpt_buf *b, const struct gpt_list *list)
{
    for (int64_t i = 0; i < list->n; i++)
        GPT_TRY(add_word(b, list->items[i]));
    return GPT_OK;
}

/* The option as it would be typed. */
static int add_option(struct gpt_buf *b, const struct gpt_opt *opt,
                      const struct gpt_train_options *o)
{
    const void *at = (const char *)o + opt->offset;

    if (opt->kind == GPT_OPT_FLAG)
        return gpt_buf_printf(b, " --%s%s", *(const bool *)at ? "" : "no-",
                              opt->name);
    GPT_TRY(gpt_buf_printf(b, " --%s", opt->name));
    switch (opt->kind) {
    case GPT_OPT_INT:
    case GPT_OPT_BYTES:
        return gpt_buf_printf(b, " %lld", (long long)*(const int64_t *)at);
    case GPT_OPT_REAL:
        return gpt_buf_printf(b, " %.12g", *(const double *)at);
    case GPT_OPT_LIST:
        return add_list(b, at);
    default:
        return add_word(b, *(const char *const *)at);
    }
}

/* What was typed, then the layout: only what differs from the defaults. */
int gpt_advice_command(struct gpt_buf *b, const struct gpt_advice *a,
                       const struct gpt_layout_choice *c)
{
    const int64_t *p = c->part;

    GPT_TRY(gpt_buf_printf(b, "gpt-train"));
    if (a->o->common.config) {
        GPT_TRY(gpt_buf_printf(b, " --config"));
        GPT_TRY(add_word(b, a->o->common.config));
    }
    for (size_t i = 0; i < gpt_train_n_options; i++) {
        const struct gpt_opt *opt = &gpt_train_option_table[i];

        /* a preset's own options come again with --config */
        if (a->args->origin[i] == GPT_FROM_COMMAND && !is_replaced(opt->name))
            GPT_TRY(add_option(b, opt, a->o));
    }
    if (a->base.bf16)
        GPT_TRY(gpt_buf_printf(b, " --bf16"));
    if (p[GPT_PART_TENSOR] > 1)
        GPT_TRY(gpt_buf_printf(b, " --tensor-model-parallel-size %lld",
                               (long long)p[GPT_PART_TENSOR]));
    if (p[GPT_PART_SEQUENCE] == 1 && p[GPT_PART_TENSOR] > 1)
        GPT_TRY(gpt_buf_printf(b, " --sequence-parallel"));
    if (p[GPT_PART_PIPELINE] > 1)
        GPT_TRY(gpt_buf_printf(b, " --pipeline-model-parallel-size %lld",
                               (long long)p[GPT_PART_PIPELINE]));
    if (p[GPT_PART_CHUNKS] > 1)
        GPT_TRY(gpt_buf_printf(b,
                               " --num-virtual-stages-per-pipeline-rank %lld",
                               (long long)p[GPT_PART_CHUNKS]));
    /* the search counts weights as gathered during computation */
    if (p[GPT_PART_SHARDING] != GPT_ZERO_OFF)
        GPT_TRY(gpt_buf_printf(
            b, " --data-parallel-sharding-strategy %s --overlap-param-gather",
            gpt_train_shardings[p[GPT_PART_SHARDING]]));
    if (p[GPT_PART_RECOMPUTE] > 0)
        GPT_TRY(gpt_buf_printf(b, " --recompute-granularity %s",
                               recomputes[p[GPT_PART_RECOMPUTE]]));
    GPT_TRY(gpt_buf_printf(b, " --micro-batch-size %lld",
                           (long long)p[GPT_PART_MICRO]));
    return a->o->batch_steps.n > 0
               ? GPT_OK
               : gpt_buf_printf(b, " --global-batch-size %lld",
                                (long long)a->search.batch);
}

/* ---- the table ---- */

/* What is left of the ranks is data parallel. */
static int64_t replicas_of(const struct gpt_advice *a, const int64_t *part)
{
    return a->search.ranks /
           (part[GPT_PART_TENSOR] * part[GPT_PART_PIPELINE]);
}

/* The share of the model's operations; recomputation is left out, as in
 * runs. */
static double utilization(const struct gpt_advice *a,
                          const struct gpt_layout_choice *c)
{
    const double peak = gpt_hardware_peak(
        &a->hardware, a->base.bf16   ? GPT_BF16
                      : a->base.fp16 ? GPT_F16
                                     : GPT_F32);

    return a->flops / c->time.step / (peak * (double)a->search.ranks);
}

/* Columns of fixed width within 80: only the head and the command are
 * longer. */
static int add_row(struct gpt_buf *b, const struct gpt_advice *a,
                   const struct gpt_layout_choice *c)
{
    const int64_t *p = c->part;
    char tokens[32], memory[32];

    return gpt_buf_printf(
        b, "%2lld %3lld %2lld %5lld %-11s %5lld %-9s %-2s %7.4g %8s %5.1f%% "
           "%9s\n",
        (long long)p[GPT_PART_TENSOR], (long long)p[GPT_PART_PIPELINE],
        (long long)p[GPT_PART_CHUNKS], (long long)replicas_of(a, p),
        gpt_train_shardings[p[GPT_PART_SHARDING]],
        (long long)p[GPT_PART_MICRO], recomputes[p[GPT_PART_RECOMPUTE]],
        p[GPT_PART_SEQUENCE] == 1 ? "SP" : "-", c->time.step,
        gpt_text_si(tokens, a->tokens / c->time.step),
        100 * utilization(a, c), gpt_text_bytes(memory, c->memory));
}

/* What was chosen in place of the user is named: another batch is another
 * training. */
static int add_head(struct gpt_buf *b, const struct gpt_advice *a)
{
    const struct gpt_hardware *h = &a->hardware;
    char memory[32];

    GPT_TRY(gpt_buf_printf(
        b, "%lld rank%s of %s, %lld on a machine, with %s each; %lld samples "
           "of %lld tokens a step%s; %s%s\n\n",
        (long long)a->search.ranks, gpt_plural(a->search.ranks), h->name,
        (long long)h->per_node, gpt_text_bytes(memory, h->memory),
        (long long)a->search.batch, (long long)a->o->seq_length,
        a->chose_batch ? " (chosen: --global-batch-size was not given)" : "",
        a->base.bf16 ? "bf16" : a->base.fp16 ? "fp16" : "float",
        a->chose_bf16 ? " (chosen)" : ""));
    return gpt_buf_printf(b, "TP  PP  V    DP sharing     micro recompute SP "
                          " step s tokens/s    MFU    memory\n");
}

int gpt_advice_text(struct gpt_buf *b, const struct gpt_advice *a)
{
    GPT_TRY(add_head(b, a));
    for (size_t i = 0; i < a->n; i++)
        GPT_TRY(add_row(b, a, &a->best[i]));
    GPT_TRY(gpt_buf_printf(b, "\nThe fastest, by a model of time:\n  "));
    GPT_TRY(gpt_advice_command(b, a, &a->best[0]));
    return gpt_buf_printf(b, "\n");
}

/* ---- JSON ---- */

/* Seconds by their parts, which add up to the step. Names are an
 * interface. */
static cJSON *row_to_json(const struct gpt_advice *a,
                          const struct gpt_layout_choice *c)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        {"step_s", c->time.step},
        {"computing_s", c->time.computing},
        {"idle_s", c->time.idle},
        {"reducing_s", c->time.reducing},
        {"updating_s", c->time.updating},
        {"tokens_per_second", a->tokens / c->time.step},
        {"mfu", utilization(a, c)},
        {"memory_bytes", c->memory},
    };
    cJSON *row = cJSON_CreateObject();
    struct gpt_buf command = {0};

    for (int i = 0; i < GPT_N_PARTS; i++)
        if (i == GPT_PART_SHARDING)
            cJSON_AddStringToObject(row, gpt_layout_words[i].key,
                                    gpt_train_shardings[c->part[i]]);
        else if (i == GPT_PART_RECOMPUTE)
            cJSON_AddStringToObject(row, gpt_layout_words[i].key,
                                    recomputes[c->part[i]]);
        else
            cJSON_AddNumberToObject(row, gpt_layout_words[i].key,
                                    (double)c->part[i]);
    cJSON_AddNumberToObject(row, "data_parallel",
                            (double)replicas_of(a, c->part));
    for (size_t i = 0; i < GPT_COUNT(numbers); i++)
        cJSON_AddNumberToObject(row, numbers[i].name, numbers[i].value);
    if (gpt_advice_command(&command, a, c) == GPT_OK)
        cJSON_AddStringToObject(row, "command", command.data);
    gpt_buf_free(&command);
    return row;
}

int gpt_advice_json(struct gpt_buf *b, const struct gpt_advice *a)
{
    cJSON *root = cJSON_CreateObject(), *rows = cJSON_CreateArray();
    char *text;

    cJSON_AddStringToObject(root, "hardware", a->hardware.name);
    cJSON_AddNumberToObject(root, "ranks", (double)a->search.ranks);
    cJSON_AddNumberToObject(root, "memory_limit_bytes",
                            floor(a->hardware.memory));
    cJSON_AddNumberToObject(root, "global_batch",
                            (double)a->search.batch);
    cJSON_AddNumberToObject(root, "flops_per_step", a->flops);
    for (size_t i = 0; i < a->n; i++)
        cJSON_AddItemToArray(rows, row_to_json(a, &a->best[i]));
    gpt_json_add(root, "layouts", rows);
    text = gpt_json_print(root, true);
    cJSON_Delete(root);
    if (!text)
        return GPT_EFAIL;
    const int status = gpt_buf_printf(b, "%s\n", text);
    cJSON_free(text);
    return status;
}
