/* What gpt-train advise prints; see layouts.h. The search is in layouts.c.
 * Start at gpt_train_layouts(), at the end. */
#include "cmd/train/layouts.h"

#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/num.h"
#include "cmd/train/settle.h"

#include <string.h>

enum { MOST_SHOWN = 1000, STEP_TOKENS = 1 << 19 };

/* A part of a layout: its column, its field of JSON, and the options that give
 * it. The first of them is what the advice says. */
static const struct {
    const char *title, *key;
    const char *options[3];
} parts[GPT_N_PARTS] = {
    [GPT_PART_TENSOR] = {"TP", "tensor_parallel",
                         {"tensor-model-parallel-size"}},
    [GPT_PART_PIPELINE] = {"PP", "pipeline_parallel",
                           {"pipeline-model-parallel-size"}},
    [GPT_PART_CHUNKS] = {"V", "virtual_stages",
                         {"num-virtual-stages-per-pipeline-rank",
                          "num-layers-per-virtual-pipeline-stage"}},
    [GPT_PART_MICRO] = {"micro", "micro_batch", {"micro-batch-size"}},
    [GPT_PART_SHARDING] = {"sharing", "sharding",
                           {"data-parallel-sharding-strategy",
                            "use-distributed-optimizer",
                            "overlap-param-gather"}},
    [GPT_PART_RECOMPUTE] = {"recompute", "recompute",
                            {"recompute-granularity",
                             "recompute-activations"}},
    [GPT_PART_SEQUENCE] = {"SP", "sequence_parallel", {"sequence-parallel"}},
};

static const char *const recomputes[] = {"none", "selective", "full"};

/* Options that are about the advice and not about the run. */
static const char *const of_advice[] = {
    "config",               "world-size",           "memory-limit",
    "hardware",
    "device-peak-tflops",   "memory-bandwidth",     "product-efficiency",
    "gpus-per-node",        "intra-node-bandwidth", "inter-node-bandwidth",
    "intra-node-latency",   "inter-node-latency",   "top",
    "json",                 "dry-run",              "global-batch-size",
    "bf16",                 "force",                "quiet",
    "verbose",              "color",                "progress",
    "log-format",           "threads",
};

/* Everything about one piece of advice. */
struct advice {
    const struct gpt_train_options *o;
    const struct gpt_args *args;
    struct gpt_hardware hardware;
    struct gpt_train_options base;
    struct gpt_layout_search search;
    double flops; /* of the model, a step */
    double tokens;
    bool chose_batch, chose_bf16; /* they were not given */
    const struct gpt_layout_choice *best;
    size_t n;
};

/* ---- what is given ---- */

static bool is_typed(const struct gpt_args *args, const char *name)
{
    return args->origin[gpt_train_row(name)] == GPT_FROM_COMMAND;
}

static int64_t given_recompute(const struct gpt_train_options *o)
{
    if (o->recompute_activations || !o->recompute_granularity)
        return o->recompute_activations;
    return gpt_train_choice(gpt_train_granularities,
                            o->recompute_granularity) == GPT_GRANULARITY_FULL
               ? 2
               : 1;
}

/* What was typed is kept; what a file says is a default. */
static void take_given(struct advice *a)
{
    const struct gpt_train_options *o = a->o;
    const int zero = gpt_train_choice(gpt_train_shardings, o->sharding);
    const int64_t chunks =
        o->layers_per_chunk > 0
            ? o->num_layers / gpt_max_i64(o->pp_size * o->layers_per_chunk, 1)
            : gpt_max_i64(o->chunks, 1);
    const int64_t value[GPT_N_PARTS] = {
        [GPT_PART_TENSOR] = o->tp_size,
        [GPT_PART_PIPELINE] = o->pp_size,
        [GPT_PART_CHUNKS] = chunks,
        [GPT_PART_MICRO] = o->micro_batch_size,
        [GPT_PART_SHARDING] =
            zero == GPT_ZERO_OFF && o->distributed_optimizer ? GPT_ZERO_1
                                                             : zero,
        [GPT_PART_RECOMPUTE] = given_recompute(o),
        [GPT_PART_SEQUENCE] = o->sequence_parallel,
    };

    for (int i = 0; i < GPT_N_PARTS; i++) {
        a->search.part[i] = -1;
        /* the last of the three is no choice, but what goes with it */
        for (int k = 0; k < 2 && parts[i].options[k]; k++)
            if (is_typed(a->args, parts[i].options[k]))
                a->search.part[i] = value[i];
    }
}

/* A step of half a million tokens, as GPT-3's small models have, in whole
 * samples of every rank. */
static int64_t choose_batch(const struct gpt_train_options *o)
{
    const int64_t samples = gpt_max_i64(STEP_TOKENS / o->seq_length, 1);

    return gpt_round_up(samples, o->world_size);
}

/* A plan of one rank tells the size of the vocabulary, which is then known to
 * all others, and what is wrong with the options. */
static int take_model(struct advice *a, struct gpt_err *err)
{
    const struct gpt_train_options *o = a->o;
    struct gpt_train_options one = a->base;
    struct gpt_topology alone = {
        .world_size = 1,
        .size = {1, 1, 1},
        .chunks = 1,
    };
    struct gpt_train_plan plan;

    one.dry_run = true;
    one.tp_size = one.pp_size = one.micro_batch_size = 1;
    one.chunks = one.layers_per_chunk = 0;
    one.sequence_parallel = false;
    GPT_TRY(gpt_train_plan(&plan, &one, a->args, &alone, err));
    a->tokens = (double)(a->base.global_batch_size * o->seq_length);
    a->flops = a->tokens *
               gpt_flops_per_token(&plan.replica.config, o->seq_length);
    a->base.vocab_size = plan.replica.config.vocab_size;
    a->base.tokenizer = (struct gpt_tokenizer_options){
        .type = gpt_tokenizer_types[0],
    };
    a->base.eod_mask_loss = a->base.reset_position_ids = false;
    a->base.reset_attention_mask = false;
    return GPT_OK;
}

static int open_advice(struct advice *a, struct gpt_backend *be,
                       struct gpt_err *err)
{
    const struct gpt_train_options *o = a->o;

    GPT_TRY(gpt_hardware_choose(&a->hardware, o, a->args, be, err));
    a->base = *o;
    /* on GPUs sums go through NCCL, which holds no memory of the host */
    a->base.backend = a->hardware.device ? gpt_train_backends[GPT_NCCL]
                                         : gpt_train_backends[GPT_GLOO];
    a->chose_bf16 = a->hardware.device && !o->bf16 && !o->fp16 && !o->tf32;
    a->base.bf16 = o->bf16 || a->chose_bf16;
    a->chose_batch = o->global_batch_size == 0;
    if (a->chose_batch)
        a->base.global_batch_size = choose_batch(o);
    a->search = (struct gpt_layout_search){
        .base = &a->base,
        .args = a->args,
        .be = be,
        .hardware = &a->hardware,
        .ranks = o->world_size,
    };
    take_given(a);
    return take_model(a, err);
}

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
        if (is_in(name, parts[i].options, GPT_COUNT(parts[i].options)))
            return true;
    return is_in(name, of_advice, GPT_COUNT(of_advice));
}

/* As a shell reads it. */
static int add_word(struct gpt_buf *b, const char *word)
{
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
static int add_command(struct gpt_buf *b, const struct advice *a,
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
    if (p[GPT_PART_SHARDING] != GPT_ZERO_OFF)
        GPT_TRY(gpt_buf_printf(
            b, " --data-parallel-sharding-strategy %s --overlap-param-gather",
            gpt_train_shardings[p[GPT_PART_SHARDING]]));
    if (p[GPT_PART_RECOMPUTE] > 0)
        GPT_TRY(gpt_buf_printf(b, " --recompute-granularity %s",
                               recomputes[p[GPT_PART_RECOMPUTE]]));
    return gpt_buf_printf(b, " --micro-batch-size %lld --global-batch-size "
                          "%lld",
                          (long long)p[GPT_PART_MICRO],
                          (long long)a->base.global_batch_size);
}

/* ---- the table ---- */

static int64_t replicas_of(const struct advice *a, const int64_t *part)
{
    return a->search.ranks /
           (part[GPT_PART_TENSOR] * part[GPT_PART_PIPELINE]);
}

static double utilization(const struct advice *a,
                          const struct gpt_layout_choice *c)
{
    const double peak = gpt_hardware_peak(
        &a->hardware, a->base.bf16   ? GPT_BF16
                      : a->base.fp16 ? GPT_F16
                                     : GPT_F32);

    return a->flops / c->time.step / (peak * (double)a->search.ranks);
}

static int add_row(struct gpt_buf *b, const struct advice *a,
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

static int add_head(struct gpt_buf *b, const struct advice *a)
{
    const struct gpt_hardware *h = &a->hardware;
    char memory[32];

    GPT_TRY(gpt_buf_printf(
        b, "%lld ranks of %s, %lld on a machine, with %s each; %lld samples "
           "of %lld tokens a step%s; %s%s\n\n",
        (long long)a->search.ranks, h->name, (long long)h->per_node,
        gpt_text_bytes(memory, h->memory),
        (long long)a->base.global_batch_size, (long long)a->o->seq_length,
        a->chose_batch ? " (chosen: --global-batch-size was not given)" : "",
        a->base.bf16 ? "bf16" : a->base.fp16 ? "fp16" : "float",
        a->chose_bf16 ? " (chosen)" : ""));
    return gpt_buf_printf(b, "TP  PP  V    DP sharing     micro recompute SP "
                          " step s tokens/s    MFU    memory\n");
}

static int make_text(struct gpt_buf *b, const struct advice *a)
{
    GPT_TRY(add_head(b, a));
    for (size_t i = 0; i < a->n; i++)
        GPT_TRY(add_row(b, a, &a->best[i]));
    GPT_TRY(gpt_buf_printf(b, "\nThe fastest, by a model of time:\n  "));
    GPT_TRY(add_command(b, a, &a->best[0]));
    return gpt_buf_printf(b, "\n");
}

/* ---- JSON ---- */

static cJSON *row_to_json(const struct advice *a,
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
            cJSON_AddStringToObject(row, parts[i].key,
                                    gpt_train_shardings[c->part[i]]);
        else if (i == GPT_PART_RECOMPUTE)
            cJSON_AddStringToObject(row, parts[i].key,
                                    recomputes[c->part[i]]);
        else
            cJSON_AddNumberToObject(row, parts[i].key, (double)c->part[i]);
    cJSON_AddNumberToObject(row, "data_parallel",
                            (double)replicas_of(a, c->part));
    for (size_t i = 0; i < GPT_COUNT(numbers); i++)
        cJSON_AddNumberToObject(row, numbers[i].name, numbers[i].value);
    if (add_command(&command, a, c) == GPT_OK)
        cJSON_AddStringToObject(row, "command", command.data);
    gpt_buf_free(&command);
    return row;
}

static int make_json(struct gpt_buf *b, const struct advice *a)
{
    cJSON *root = cJSON_CreateObject(), *rows = cJSON_CreateArray();
    char *text;

    cJSON_AddStringToObject(root, "hardware", a->hardware.name);
    cJSON_AddNumberToObject(root, "ranks", (double)a->search.ranks);
    cJSON_AddNumberToObject(root, "memory_limit_bytes", a->hardware.memory);
    cJSON_AddNumberToObject(root, "global_batch",
                            (double)a->base.global_batch_size);
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

/* ---- where nothing fits ---- */

static int changes(const int64_t *given, const int64_t *part)
{
    int n = 0;

    for (int i = 0; i < GPT_N_PARTS; i++)
        n += given[i] >= 0 && given[i] != part[i];
    return n;
}

/* The fit that keeps most of what was typed; of equals the fastest. */
static const struct gpt_layout_choice *
nearest(const struct gpt_layout_choice *list, size_t n, const int64_t *given)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++)
        if (changes(given, list[i].part) < changes(given, list[best].part))
            best = i;
    return &list[best];
}

/* What was typed is given up, in part; then more ranks are tried. */
static int name_nearest(struct advice *a, struct gpt_layout_choice *list,
                        struct gpt_err *err)
{
    struct gpt_layout_search s = a->search;
    struct gpt_layout_choice least;
    struct gpt_buf command = {0};
    char bytes[32];
    size_t n = 0;

    for (int i = 0; i < GPT_N_PARTS; i++)
        s.part[i] = -1;
    for (; n == 0 && s.ranks <= a->o->world_size * 64; s.ranks *= 2) {
        /* a step has at least a sample of each rank */
        if (a->base.global_batch_size % s.ranks != 0)
            a->base.global_batch_size =
                gpt_round_up(a->base.global_batch_size, s.ranks);
        if (gpt_layouts_find(&s, list, MOST_SHOWN, &n, &least, NULL) !=
            GPT_OK)
            n = 0;
        if (n > 0)
            break;
    }
    if (n == 0)
        return gpt_hint(err, "a shorter --seq-length or a smaller model needs "
                             "less; nothing fits on 64 times as many ranks");
    const struct gpt_layout_choice *c = nearest(list, n, a->search.part);
    a->search.ranks = s.ranks;
    if (add_command(&command, a, c) == GPT_OK)
        gpt_hint(err, "on %lld ranks %s needs %s", (long long)s.ranks,
                 command.data, gpt_text_bytes(bytes, c->memory));
    gpt_buf_free(&command);
    return GPT_EDEVICE;
}

static int report_misfit(struct advice *a, struct gpt_layout_choice *list,
                         const struct gpt_layout_choice *least,
                         struct gpt_err *err)
{
    char needs[32], has[32];

    gpt_fail(err, GPT_EDEVICE,
             "nothing fits into %s a rank: the least that %lld ranks need is "
             "%s",
             gpt_text_bytes(has, a->hardware.memory),
             (long long)a->search.ranks, gpt_text_bytes(needs, least->memory));
    name_nearest(a, list, err);
    return GPT_EDEVICE;
}

/* ---- the command ---- */

static int advise(struct advice *a, struct gpt_backend *be,
                  struct gpt_layout_choice *list, struct gpt_buf *b,
                  struct gpt_err *err)
{
    struct gpt_layout_choice least;

    GPT_TRY(open_advice(a, be, err));
    GPT_TRY(gpt_layouts_find(&a->search, list, (size_t)a->o->top, &a->n,
                             &least, err));
    if (a->n == 0)
        return report_misfit(a, list, &least, err);
    a->best = list;
    return (a->o->json ? make_json : make_text)(b, a) == GPT_OK
               ? GPT_OK
               : gpt_no_memory(err, "advice");
}

int gpt_train_layouts(const struct gpt_train_options *o,
                      const struct gpt_args *args, struct gpt_err *err)
{
    struct advice a = {.o = o, .args = args};
    struct gpt_layout_choice *list = NULL;
    struct gpt_backend *be = NULL;
    struct gpt_buf text = {0};
    int status;

    if (o->world_size == 0) {
        gpt_fail(err, GPT_EUSAGE, "advise needs --gpus N");
        return gpt_hint(err, "gpt-train advise --config PRESET --vocab-size N "
                             "--gpus 64 --hardware h100");
    }
    GPT_TRY(gpt_backend_open(&be, "cpu", err));
    GPT_TRY(gpt_new(&list, MOST_SHOWN, sizeof(*list), "layouts", err));
    GPT_TRY_GOTO(status, advise(&a, be, list, &text, err), out);
    status = gpt_write_file("-", 0, text.data, text.len, err);
out:
    gpt_buf_free(&text);
    gpt_free(list);
    return status;
}
