/* gpt-train advise: from options to a search, and from its result to what is
 * said. The search is in layouts.c, its tables in layouts_print.c. Start at
 * gpt_train_layouts(), at the end. */
#include "cmd/train/layouts.h"

#include "base/io.h"
#include "base/num.h"
#include "cmd/train/layouts_print.h"
#include "cmd/train/settle.h"
#include "model/abilities.h"

/* The list of a misfit is longer than any that is shown: the nearest layout may
 * be far from the fastest. */
enum { MOST_SHOWN = 1000, STEP_TOKENS = 1 << 19 };

/* ---- what is given ---- */

/* The origin of an option, not its value: a layout may be given that is the
 * default. */
static bool is_typed(const struct gpt_args *args, const char *name)
{
    return args->origin[gpt_train_row(name)] == GPT_FROM_COMMAND;
}

/* Whatever the name by which recomputation was asked for; without one it is
 * none. */
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
static void take_given(struct gpt_advice *a)
{
    const struct gpt_train_options *o = a->o;
    const int zero = gpt_train_choice(gpt_train_shardings, o->sharding);
    int64_t chunks;

    /* layers that do not divide are found when a layout is tried */
    (void)gpt_stage_layers_count(&o->stages, o->model.num_layers, o->pp_size,
                                 &chunks);
    const int64_t value[GPT_N_PARTS] = {
        [GPT_PART_TENSOR] = o->tp_size,
        [GPT_PART_PIPELINE] = o->pp_size,
        [GPT_PART_CHUNKS] = gpt_max_i64(chunks, 1),
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
        for (int k = 0; k < 2 && gpt_layout_words[i].options[k]; k++)
            if (is_typed(a->args, gpt_layout_words[i].options[k]))
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
static int take_model(struct gpt_advice *a, struct gpt_err *err)
{
    const struct gpt_train_options *o = a->o;
    struct gpt_train_options one = a->base;
    struct gpt_topology alone = {
        .world_size = 1,
        .size = {1, 1, 1},
        .chunks = 1,
    };
    struct gpt_train_plan plan;

    /* A layout that does not suit one rank is no mistake here: the parts that
     * were given are tried with the ranks that there are. */
    one.dry_run = true;
    one.tp_size = one.pp_size = one.micro_batch_size = 1;
    one.stages.chunks = one.stages.layers_per_chunk = 0;
    one.sequence_parallel = false;
    GPT_TRY(gpt_train_plan(&plan, &one, a->args, &alone, err));
    gpt_abilities_warn(&plan.replica.config, plan.replica.exec.act,
                       a->search.be);
    a->search.batch = plan.rampup.global_batch;
    a->tokens = (double)(a->search.batch * o->seq_length);
    a->flops = a->tokens *
               gpt_flops_per_token(&plan.replica.config, o->seq_length);
    /* From here on no tokenizer is opened: there are thousands of plans. */
    a->base.vocab_size = plan.replica.config.vocab_size;
    a->base.tokenizer = (struct gpt_tokenizer_options){
        .type = gpt_tokenizer_types[0],
    };
    a->base.eod_mask_loss = a->base.reset_position_ids = false;
    a->base.reset_attention_mask = false;
    return GPT_OK;
}

/* Hardware first: it decides the type, and its memory is the limit. */
static int open_advice(struct gpt_advice *a, struct gpt_backend *be,
                       struct gpt_err *err)
{
    const struct gpt_train_options *o = a->o;

    /* times of bf16 would make such a run look slower than it is */
    if (o->fp8_format)
        return gpt_fail(err, GPT_EUSAGE,
                        "--fp8-format: the advice knows no times of products "
                        "of eight bits; leave it out");
    GPT_TRY(gpt_hardware_choose(&a->hardware, o, a->args, be, err));
    if (a->hardware.device) {
        gpt_hardware_plan(&a->planned, &a->hardware);
        a->planned.allow_tf32(&a->planned, o->tf32);
        be = &a->planned;
    }
    a->base = *o;
    /* on GPUs sums go through NCCL, which holds no memory of the host */
    a->base.backend = a->hardware.device ? gpt_train_backends[GPT_NCCL]
                                         : gpt_train_backends[GPT_GLOO];
    a->chose_bf16 = a->hardware.device && !o->bf16 && !o->fp16 && !o->tf32;
    a->base.bf16 = o->bf16 || a->chose_bf16;
    a->chose_batch = o->global_batch_size == 0 && o->batch_steps.n == 0;
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

/* ---- where nothing fits ---- */

/* How many parts of what was typed a layout gives up. */
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
static void name_nearest(struct gpt_advice *a, struct gpt_layout_choice *list,
                         struct gpt_err *err)
{
    struct gpt_layout_search s = a->search;
    struct gpt_layout_choice least;
    struct gpt_buf command = {0};
    char bytes[32];
    size_t n = 0;

    for (int i = 0; i < GPT_N_PARTS; i++)
        s.part[i] = -1;
    for (; s.ranks <= a->o->world_size * 64; s.ranks *= 2) {
        /* a step has at least a sample of each rank */
        s.batch = gpt_round_up(s.batch, s.ranks);
        if (gpt_layouts_find(&s, list, MOST_SHOWN, &n, &least, NULL) !=
            GPT_OK)
            n = 0;
        if (n > 0)
            break;
    }
    if (n == 0) {
        gpt_hint(err, "a shorter --seq-length or a smaller model needs less; "
                      "nothing fits on 64 times as many ranks");
        return;
    }
    const struct gpt_layout_choice *c = nearest(list, n, a->search.part);
    a->search.ranks = s.ranks;
    a->search.batch = s.batch;
    if (gpt_advice_command(&command, a, c) == GPT_OK)
        gpt_hint(err, "on %lld ranks %s needs %s", (long long)s.ranks,
                 command.data, gpt_text_bytes(bytes, c->memory));
    gpt_buf_free(&command);
}

/* The error says by how much the ranks are too small, the hint what to do; the
 * failure of the search for a hint is not reported. */
static int report_misfit(struct gpt_advice *a, struct gpt_layout_choice *list,
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

/* The text is complete before a byte of it is written. */
static int advise(struct gpt_advice *a, struct gpt_backend *be,
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
    return (a->o->json ? gpt_advice_json : gpt_advice_text)(b, a) == GPT_OK
               ? GPT_OK
               : gpt_no_memory(err, "advice");
}

int gpt_train_layouts(const struct gpt_train_options *o,
                      const struct gpt_args *args, struct gpt_err *err)
{
    struct gpt_advice a = {.o = o, .args = args};
    struct gpt_layout_choice *list = NULL;
    struct gpt_backend *be = NULL;
    struct gpt_buf text = {0};
    int status;

    /* A number of ranks has no default that anyone could mean. */
    if (o->world_size == 0) {
        gpt_fail(err, GPT_EUSAGE, "advise needs --gpus N");
        return gpt_hint(err, "gpt-train advise --config PRESET --vocab-size N "
                             "--gpus 64 --hardware h100");
    }
    /* Hardware that is not a GPU is this machine, and is measured. */
    GPT_TRY(gpt_backend_open(&be, "cpu", err));
    GPT_TRY(gpt_new(&list, MOST_SHOWN, sizeof(*list), "layouts", err));
    GPT_TRY_GOTO(status, advise(&a, be, list, &text, err), out);
    status = gpt_write_file("-", 0, text.data, text.len, err);
out:
    gpt_buf_free(&text);
    gpt_free(list);
    return status;
}
