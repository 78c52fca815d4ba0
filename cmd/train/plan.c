/* From options to a plan; see plan.h. Read gpt_train_plan() at the end: it is
 * the order in which later parts read what earlier ones have filled. The part
 * about ranks is in plan_ranks.c. */
#include "cmd/train/plan.h"

#include "base/num.h"
#include "data/blend.h"
#include "tokenizer/tokenizer_options.h"

#include <string.h>

/* What messages of the library call the values of options. */
static const struct gpt_loss_scale_names scale_names = {
    .constant = "--loss-scale",
    .initial = "--initial-loss-scale",
    .min = "--min-loss-scale",
    .window = "--loss-scale-window",
    .hysteresis = "--hysteresis",
};
static const struct gpt_rampup_names rampup_names = {
    .global_batch = "--global-batch-size",
    .rampup = "--rampup-batch-size",
};
/* True when nothing will be trained: data, length and rate may be missing. */
static bool is_dry(const struct gpt_train_options *o)
{
    return o->dry_run || o->simulate;
}

/* --train-iters 0 asks for the losses of a model that was trained already. */
static int plan_evaluation(struct gpt_train_plan *p,
                           const struct gpt_train_options *o,
                           const struct gpt_args *args, struct gpt_err *err)
{
    p->evaluates = (gpt_option_given(args, "train-iters") ||
                    gpt_option_given(args, "train-samples")) &&
                   o->train_iters == 0 && o->train_samples == 0 && !is_dry(o);
    if (!p->evaluates || o->load)
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE, "a length of 0 steps trains nothing");
    return gpt_hint(err, "with --load DIR --train-iters 0 evaluates the model "
                         "in DIR; else --train-iters must be above 0");
}

/* ---- model ---- */

/* Vocabulary size and end-of-document token from the tokenizer, if any. The
 * tokenizer is opened only for these two numbers: training reads ids. */
static int plan_vocabulary(struct gpt_train_plan *p,
                           const struct gpt_train_options *o,
                           struct gpt_err *err)
{
    struct gpt_tokenizer_options options = o->tokenizer;
    struct gpt_config *c = &p->replica.config;
    struct gpt_tokenizer *tok;

    /* NullTokenizer adds a token to the N of --vocab-size, so that N is not
     * the model's size: the tokenizer says what is */
    bool null = strcmp(options.type, "NullTokenizer") == 0;
    c->vocab_size = null ? 0 : o->vocab_size;
    options.vocab_size = o->vocab_size;
    p->masks.eod = -1;
    if (gpt_tokenizer_named(&options)) {
        GPT_TRY(gpt_tokenizer_open_given(&tok, &options, err));
        int64_t size = gpt_tokenizer_vocab_size(tok);
        p->masks.eod = gpt_tokenizer_eod(tok);
        gpt_tokenizer_close(tok);
        if (c->vocab_size == 0)
            c->vocab_size = size;
        /* more is a model whose table has room; less would have ids without
         * a row */
        if (c->vocab_size < size)
            return gpt_fail(err, GPT_EUSAGE,
                            "--vocab-size %lld is below the tokenizer's %lld",
                            (long long)c->vocab_size, (long long)size);
    }
    if (c->vocab_size == 0) {
        gpt_fail(err, GPT_EUSAGE,
                 "the vocabulary size is not known: give --vocab-file and "
                 "--merge-file, --tokenizer-model, or --vocab-size");
        return gpt_hint(err, "they are those that gpt-preprocess was given; "
                             "try 'gpt-train --help'");
    }
    /* without it these would silently do nothing */
    if (p->masks.eod < 0 &&
        (o->eod_mask_loss || o->reset_position_ids || o->reset_attention_mask))
        return gpt_fail(err, GPT_EUSAGE,
                        "--%s needs to know the end-of-"
                        "document token: give --vocab-file and --merge-file, "
                        "or --tokenizer-model",
                        o->eod_mask_loss        ? "eod-mask-loss"
                        : o->reset_position_ids ? "reset-position-ids"
                                                : "reset-attention-mask");
    return GPT_OK;
}

static int plan_positions(struct gpt_config *c,
                          const struct gpt_train_options *o,
                          const struct gpt_args *args, struct gpt_err *err)
{
    static const char *const of_rope[] = {"rotary-base", "rotary-percent"};

    c->position_embedding = gpt_train_choice(gpt_position_embeddings,
                                             o->position_embedding_type);
    if (c->position_embedding == GPT_POSITION_ROPE) {
        c->rotary_base = (double)o->rotary_base;
        c->rotary_percent = o->rotary_percent;
        return GPT_OK;
    }
    /* a value that would not be used is a mistake, not a preference; defaults
     * do not count as given */
    for (size_t i = 0; i < GPT_COUNT(of_rope); i++)
        if (gpt_option_given(args, of_rope[i]))
            return gpt_fail(err, GPT_EUSAGE,
                            "--%s needs --position-embedding-type rope",
                            of_rope[i]);
    return GPT_OK;
}

/* Options to a configuration, field by field; what is 0 follows from the rest.
 * The padded vocabulary depends on the tensor parallel size, and is the only
 * part of the model that a layout decides. */
static int plan_model(struct gpt_train_plan *p,
                      const struct gpt_train_options *o,
                      const struct gpt_args *args, struct gpt_err *err)
{
    struct gpt_config *c = &p->replica.config;

    *c = (struct gpt_config){
        .num_layers = o->num_layers,
        .hidden_size = o->hidden_size,
        .num_attention_heads = o->num_attention_heads,
        .num_query_groups =
            o->num_query_groups ? o->num_query_groups : o->num_attention_heads,
        .ffn_hidden_size = o->ffn_hidden_size,
        .max_positions = o->max_position_embeddings ? o->max_position_embeddings
                                                    : o->seq_length,
        .norm_epsilon = o->norm_epsilon,
        .init_std = o->init_method_std,
        .hidden_dropout = o->hidden_dropout,
        .attention_dropout = o->attention_dropout,
        .tied_embeddings = !o->untie_embeddings,
    };
    GPT_TRY(plan_positions(c, o, args, err));
    GPT_TRY(plan_vocabulary(p, o, err));
    /* fills what is 0; from here on the configuration is the model's */
    if (gpt_config_complete(c, o->make_vocab_size_divisible_by,
                            p->topology.size[GPT_TP], err) != GPT_OK)
        return gpt_hint(err, "the fields of the model are options of the same "
                             "names: --hidden-size, --num-attention-heads ...");
    if (o->seq_length > c->max_positions) {
        gpt_fail(err, GPT_EUSAGE,
                 "--seq-length %lld is above --max-position-embeddings %lld",
                 (long long)o->seq_length, (long long)c->max_positions);
        return gpt_hint(err, "give both the same value, or leave "
                             "--max-position-embeddings out");
    }
    p->vocab_dummies = c->padded_vocab_size - c->vocab_size;
    return GPT_OK;
}

/* ---- precision ---- */

/* The type of weights and activations, and the loss scale. Statistics, losses,
 * gradients and the optimizer are float in any case. */
static int plan_precision(struct gpt_train_plan *p,
                          const struct gpt_train_options *o,
                          const struct gpt_args *args, struct gpt_err *err)
{
    static const char *const of_fp16[] = {
        "loss-scale",        "initial-loss-scale", "min-loss-scale",
        "loss-scale-window", "hysteresis",
    };
    struct gpt_loss_scale_options *scale = &p->replica.loss_scale;

    if (o->bf16 && o->fp16)
        return gpt_fail(err, GPT_EUSAGE,
                        "--bf16 and --fp16 exclude each other");
    if (o->tf32 && (o->bf16 || o->fp16))
        return gpt_fail(err, GPT_EUSAGE,
                        "--tf32 and --%s exclude each other: TF32 is for "
                        "products of float", o->bf16 ? "bf16" : "fp16");
    p->replica.exec.act = o->bf16 ? GPT_BF16 : o->fp16 ? GPT_F16 : GPT_F32;
    for (size_t i = 0; i < GPT_COUNT(of_fp16) && !o->fp16; i++)
        if (gpt_option_given(args, of_fp16[i]))
            return gpt_fail(err, GPT_EUSAGE, "--%s needs --fp16", of_fp16[i]);
    /* half precision alone needs a scale: small gradients would be zero. A
     * constant one is given by --loss-scale, else the scale adapts */
    if (!o->fp16)
        return GPT_OK;
    *scale = (struct gpt_loss_scale_options){
        .initial = o->loss_scale > 0 ? o->loss_scale : o->initial_loss_scale,
        .min = o->min_loss_scale,
        .window = o->loss_scale_window,
        .hysteresis = o->hysteresis,
        .constant = o->loss_scale > 0,
    };
    return gpt_loss_scale_check(scale, &scale_names, err);
}

/* ---- batches and length ---- */

/* The nearest batches that would do: the next larger one, or a micro batch that
 * divides this one. */
static void hint_batch(const struct gpt_train_plan *p,
                       const struct gpt_train_options *o, struct gpt_err *err)
{
    const int64_t batch = p->rampup.global_batch;
    const int64_t ranks = p->micro_samples / o->micro_batch_size;
    int64_t micro = o->micro_batch_size;

    while (micro > 1 && batch % (micro * ranks) != 0)
        micro--;
    if (batch % (micro * ranks) == 0)
        gpt_hint(err, "--global-batch-size %lld, or --micro-batch-size %lld",
                 (long long)gpt_round_up(batch, p->micro_samples),
                 (long long)micro);
    else
        gpt_hint(err, "--global-batch-size %lld",
                 (long long)gpt_round_up(batch, p->micro_samples));
}

/* Global batch sizes: every one of them is a whole number of microbatches on
 * every data parallel rank. */
static int plan_rampup(struct gpt_train_plan *p,
                       const struct gpt_train_options *o, struct gpt_err *err)
{
    struct gpt_rampup *r = &p->rampup;
    int64_t *fields[] = {&r->start, &r->increment, &r->samples};

    r->global_batch =
        o->global_batch_size ? o->global_batch_size : p->micro_samples;
    /* Megatron's three numbers; they make sense with samples only, as the
     * iterations of a growing batch are not known beforehand */
    if (o->rampup.n > 0) {
        if (o->rampup.n != 3)
            return gpt_fail(err, GPT_EUSAGE,
                            "--rampup-batch-size takes START "
                            "INCREMENT SAMPLES, got %lld values",
                            (long long)o->rampup.n);
        for (int i = 0; i < 3; i++) {
            if (!gpt_parse_int(o->rampup.items[i], fields[i]) ||
                *fields[i] < 1 || *fields[i] > (int64_t)1 << 50)
                return gpt_fail(err, GPT_EUSAGE,
                                "--rampup-batch-size '%s' is "
                                "not a count",
                                o->rampup.items[i]);
        }
        if (o->train_iters > 0)
            return gpt_fail(err, GPT_EUSAGE,
                            "--rampup-batch-size needs "
                            "--train-samples, not --train-iters");
    }
    const int status =
        gpt_rampup_check(r, p->micro_samples, &rampup_names, err);
    if (status == GPT_EUSAGE && r->global_batch % p->micro_samples != 0)
        hint_batch(p, o, err);
    return status;
}

/* Steps from *consumed_samples, which becomes the sample after the last of
 * them, until `samples` are consumed; a last partial step is not made. While
 * the batch grows the steps are counted one by one. */
static int64_t count_steps(const struct gpt_train_plan *p, int64_t samples,
                           int64_t *consumed_samples)
{
    int64_t steps = 0, batch = p->rampup.global_batch;
    int64_t consumed = *consumed_samples;

    while (p->rampup.start > 0 && consumed <= p->rampup.samples) {
        int64_t now = gpt_rampup_global_batch(&p->rampup, consumed);

        if (consumed + now > samples)
            break;
        consumed += now;
        steps++;
    }
    /* from here on all steps have the full size */
    if (consumed < samples &&
        (p->rampup.start == 0 || consumed > p->rampup.samples)) {
        steps += (samples - consumed) / batch;
        consumed += (samples - consumed) / batch * batch;
    }
    *consumed_samples = consumed;
    return steps;
}

/* A batch of another size than before makes other steps of the same samples:
 * --train-samples means samples, --train-iters means steps. */
void gpt_train_plan_rest(struct gpt_train_plan *p, int64_t iteration,
                         int64_t consumed)
{
    if (p->options->train_samples > 0) {
        p->train_samples = consumed;
        p->train_iters =
            iteration + count_steps(p, p->options->train_samples,
                                    &p->train_samples);
    } else if (p->train_iters > iteration) {
        p->train_samples =
            consumed + (p->train_iters - iteration) * p->rampup.global_batch;
    }
}

/* Length in steps and in samples, whichever was given: schedules count samples,
 * the loop counts steps. */
static int plan_length(struct gpt_train_plan *p,
                       const struct gpt_train_options *o, struct gpt_err *err)
{
    GPT_TRY(plan_rampup(p, o, err));
    if (o->train_iters > 0 && o->train_samples > 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--train-iters and --train-samples "
                        "exclude each other");
    if (o->train_iters > 0) {
        p->train_iters = o->train_iters;
        if (!gpt_mul(o->train_iters, p->rampup.global_batch, &p->train_samples))
            return gpt_fail(err, GPT_EUSAGE,
                            "--train-iters %lld x "
                            "--global-batch-size %lld is too large",
                            (long long)o->train_iters,
                            (long long)p->rampup.global_batch);
    } else {
        p->train_samples = 0;
        p->train_iters = count_steps(p, o->train_samples, &p->train_samples);
        if (o->train_samples > 0 && p->train_iters == 0)
            return gpt_fail(err, GPT_EUSAGE,
                            "--train-samples %lld is below "
                            "one batch of %lld",
                            (long long)o->train_samples,
                            (long long)p->rampup.global_batch);
    }
    if (p->train_iters == 0 && !is_dry(o) && !p->evaluates)
        return gpt_fail(err, GPT_EUSAGE,
                        "give the length of the run: --train-iters or "
                        "--train-samples");
    return GPT_OK;
}

/* ---- data ---- */

/* True when split `i` of --split has a share. The text is read as the corpus
 * reads it, which takes any separator and refuses what is no split. */
static bool has_share(const char *split, int i)
{
    double edge[4];

    return gpt_split_parse(edge, split, NULL) == GPT_OK &&
           edge[i + 1] > edge[i];
}

/* Which files, and how many samples of each split the run will take: indices
 * are built for these numbers. */
static int plan_data(struct gpt_train_plan *p,
                     const struct gpt_train_options *o,
                     const struct gpt_args *args, struct gpt_err *err)
{
    const struct gpt_list *lists[] = {&o->train_path, &o->valid_path,
                                      &o->test_path};
    struct gpt_corpus_options *c = &p->corpus;
    /* validations at intervals, and one after the last step */
    int64_t evals = (p->train_iters / o->eval_interval + 1) * o->eval_iters;
    bool whole = o->data_path.n > 0;
    /* the default split's last share is too small for most small sets, so a
     * test set is made only on request */
    bool test =
        gpt_option_given(args, "split") && has_share(o->split, GPT_TEST);
    bool valid = has_share(o->split, GPT_VALID);

    c->data_path = o->data_path.items;
    c->n_data_path = o->data_path.n;
    for (int i = 0; i < GPT_N_SPLITS; i++) {
        if (whole && lists[i]->n > 0)
            return gpt_fail(err, GPT_EUSAGE,
                            "--data-path excludes "
                            "--train-data-path, --valid-data-path and "
                            "--test-data-path");
        c->split_path[i] = lists[i]->items;
        c->n_split_path[i] = lists[i]->n;
    }
    if (!whole && o->train_path.n == 0 && !is_dry(o) && !p->evaluates)
        return gpt_fail(err, GPT_EUSAGE,
                        "no training data: give --data-path "
                        "or --train-data-path");
    c->split = whole || gpt_option_given(args, "split") ? o->split : NULL;
    c->impl = o->data_impl;
    c->seq_length = o->seq_length;
    c->seed = (uint64_t)o->seed;
    c->vocab_size = p->replica.config.vocab_size;
    c->n_samples[GPT_TRAIN] = p->train_samples;
    if (whole ? valid : o->valid_path.n > 0)
        c->n_samples[GPT_VALID] = evals * p->rampup.global_batch;
    if (whole ? test : o->test_path.n > 0)
        c->n_samples[GPT_TEST] = o->eval_iters * p->rampup.global_batch;
    return GPT_OK;
}

/* Both of Megatron's ways of asking for CUDA graphs. */
static bool wants_graph(const struct gpt_train_options *o)
{
    return o->enable_graph ||
           gpt_train_choice(gpt_train_graphs, o->graph_impl) != GPT_GRAPH_NONE;
}

int gpt_train_plan(struct gpt_train_plan *p, const struct gpt_train_options *o,
                   const struct gpt_args *args, const struct gpt_topology *t,
                   struct gpt_err *err)
{
    *p = (struct gpt_train_plan){
        .options = o,
        .topology = *t,
        .micro_samples = o->micro_batch_size * t->size[GPT_DP],
        .replica =
            {
                .exec =
                    {
                        .micro_batch = o->micro_batch_size,
                        .seq_length = o->seq_length,
                        .documents = o->reset_attention_mask,
                        .record = wants_graph(o),
                        .seed = (uint64_t)o->seed,
                    },
                .optimizer =
                    {
                        .beta1 = o->adam_beta1,
                        .beta2 = o->adam_beta2,
                        .eps = o->adam_eps,
                        .clip_grad = o->clip_grad,
                    },
            },
        .masks =
            {
                .eod_mask_loss = o->eod_mask_loss,
                .reset_position_ids = o->reset_position_ids,
                .reset_attention_mask = o->reset_attention_mask,
            },
    };
    /* the model decides what ranks may cut, batches how many there are */
    GPT_TRY(plan_evaluation(p, o, args, err));
    GPT_TRY(plan_precision(p, o, args, err));
    GPT_TRY(plan_model(p, o, args, err));
    GPT_TRY(plan_length(p, o, err));
    GPT_TRY(gpt_train_plan_ranks(p, o, args, err));
    GPT_TRY(gpt_train_plan_schedule(p, o, args, err));
    /* options of checkpoints that mean nothing alone, or contradict */
    if (o->finetune && !o->load)
        return gpt_fail(err, GPT_EUSAGE, "--finetune needs --load");
    if (o->override_scheduler && o->use_checkpoint_scheduler)
        return gpt_fail(err, GPT_EUSAGE,
                        "--override-opt-param-scheduler and "
                        "--use-checkpoint-opt-param-scheduler exclude each "
                        "other");
    return plan_data(p, o, args, err);
}
