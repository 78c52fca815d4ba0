/* From options to a run that is ready for its first step: the world, the plan,
 * what is printed, memory, data, weights. Start at gpt_run_open(). What only
 * one rank may do (speak, lock, make directories), rank 0 does, and the others
 * wait for it. */
#include "cmd/train/run.h"

#include "base/io.h"
#include "base/log.h"
#include "base/num.h"
#include "model/abilities.h"
#include "checkpoint/format.h"
#include "checkpoint/lock.h"
#include "checkpoint/source.h"
#include "cmd/train/advise.h"
#include "cmd/train/checkpoint_args.h"
#include "cmd/train/effects.h"
#include "cmd/train/data_names.h"
#include "cmd/train/estimate.h"
#include "cmd/train/hardware.h"
#include "cmd/train/settle.h"
#include "cmd/train/simulate.h"
#include "cmd/train/split_paths.h"
#include "cmd/train/vocabulary.h"

#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 64 }; /* ranks whose parameters are listed one by one */

static bool is_first(const struct gpt_run *r)
{
    return r->world->topology.rank == 0;
}

static bool is_alone(const struct gpt_run *r)
{
    return r->world->topology.world_size == 1;
}

int64_t gpt_run_samples(const struct gpt_run *r)
{
    return r->plan.micro_samples;
}

/* ---- options ---- */

/* True where a run goes on in the directory that it saves into: it may be the
 * first start of a command that is started again and again. */
static bool resumes_own(const struct gpt_train_options *o)
{
    return o->load && o->save && gpt_path_same(o->load, o->save);
}

/* A first start with --load of an empty --save has no checkpoint: the model is
 * the one of the options then. */
static int take_checkpoint_args(struct gpt_run *r, struct gpt_buf *b,
                                struct gpt_err *err)
{
    const struct gpt_train_options *o = &r->own_options;
    const struct gpt_source_options newest = {.iteration = -1};
    bool exists;

    if (!o->use_checkpoint_args)
        return GPT_OK;
    if (!o->load)
        return gpt_fail(err, GPT_EUSAGE, "--use-checkpoint-args needs --load");
    GPT_TRY(gpt_source_exists(&exists, o->load, err));
    if (!exists && resumes_own(o))
        return GPT_OK;
    GPT_TRY(gpt_source_open(&r->peeked, o->load, &newest, err));
    return gpt_train_take_args(&r->own_options, &r->args, &r->peeked, &r->arena,
                               b, err);
}

/* ---- the world ---- */

/* The rules of gpt_topology_init() that options can break, checked before it to
 * name them. The launcher's environment is enough for it: no rank is waited
 * for, and a wrong size is reported in an instant. */
static int check_sizes(const struct gpt_world_options *o, struct gpt_err *err)
{
    const int64_t tp = o->size[GPT_TP], pp = o->size[GPT_PP];
    struct gpt_launch_env launch;

    GPT_TRY(gpt_launch_env_detect(&launch, err));
    const int64_t ranks = o->imagined > 0 ? o->imagined : launch.world_size;
    if (ranks % (tp * pp) != 0) {
        gpt_fail(err, GPT_EUSAGE,
                 "%lld rank%s not a multiple of "
                 "--tensor-model-parallel-size %lld x "
                 "--pipeline-model-parallel-size %lld",
                 (long long)ranks, ranks == 1 ? " is" : "s are", (long long)tp,
                 (long long)pp);
        return gpt_hint(err, "gpt-launch --standalone --nproc-per-node %lld "
                             "gpt-train ... starts as many on this machine",
                        (long long)(tp * pp));
    }
    if (o->chunks > 1 && pp == 1)
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld virtual stages need "
                        "--pipeline-model-parallel-size of at least 2",
                        (long long)o->chunks);
    return GPT_OK;
}

/* A dry run of one process plans for as many ranks as the layout needs. */
static int plan_smallest_world(struct gpt_world_options *w,
                               const struct gpt_train_options *o,
                               struct gpt_err *err)
{
    const int64_t ranks = w->size[GPT_TP] * w->size[GPT_PP];
    struct gpt_launch_env launch;

    if (w->imagined > 0 || ranks == 1 || !(o->dry_run || o->simulate))
        return GPT_OK;
    GPT_TRY(gpt_launch_env_detect(&launch, err));
    if (launch.world_size == 1)
        w->imagined = ranks;
    return GPT_OK;
}

static int open_world(struct gpt_run *r, struct gpt_err *err)
{
    struct gpt_world_options options;

    GPT_TRY(gpt_train_world_options(&options, r->o, err));
    GPT_TRY(plan_smallest_world(&options, r->o, err));
    GPT_TRY(check_sizes(&options, err));
    GPT_TRY(gpt_world_open(&r->world, &options, err));
    /* From here on only rank 0 reports; the failures of all ranks are still
     * printed. */
    r->planned = options.imagined > 0;
    if (!is_first(r))
        gpt_log_limit(GPT_LOG_ERROR);
    else if (r->o->dry_run)
        gpt_log_lines_to_stdout();
    if (r->planned && r->o->world_size == 0 && r->o->dry_run)
        gpt_log_line(" > planned for %lld ranks, the fewest that the layout "
                     "needs; --world-size plans for more",
                     (long long)options.imagined);
    return GPT_OK;
}

/* Sets the CPU threads to this rank's part of the machine, unless an option or
 * the environment gives a number. torchrun sets 1 where the user sets none:
 * that is kept, as a user may mean it, and reported. */
static int share_cores(struct gpt_run *r, struct gpt_err *err)
{
    const char *threads = getenv("OMP_NUM_THREADS");
    const bool torchrun = getenv("TORCHELASTIC_RUN_ID") != NULL;
    int64_t cores;

    if (is_alone(r))
        return GPT_OK;
    /* All ranks call this before any of them returns: it counts the ranks of a
     * machine through the store. */
    GPT_TRY(gpt_world_cores(r->world, &cores, err));
    if (r->o->common.threads > 0)
        return GPT_OK;
    if (!threads || !*threads)
        omp_set_num_threads((int)cores);
    else if (torchrun && strcmp(threads, "1") == 0 && cores > 1)
        gpt_log_line(" > one CPU thread a rank, as torchrun sets "
                     "OMP_NUM_THREADS=1; --threads %lld would use all cores",
                     (long long)cores);
    return GPT_OK;
}

/* ---- what is printed ---- */

/* gpt-launch speaks torchrun's protocol, and is known by the name of its runs;
 * ranks of a plan were started by nothing. */
static const char *launcher_name(const struct gpt_run *r)
{
    const char *id = getenv("TORCHELASTIC_RUN_ID");

    if (r->planned)
        return "planned";
    return id && strcmp(id, "gpt-launch") == 0 ? id : r->world->launch.launcher;
}

/* What was decided is printed, not what was asked for: sharding and sequence
 * parallelism may be off for want of other ranks. */
static void print_ranks(const struct gpt_run *r)
{
    static const char *const shardings[] = {
        [GPT_ZERO_OFF] = "",
        [GPT_ZERO_1] = ", distributed optimizer",
        [GPT_ZERO_2] = ", distributed optimizer and gradients",
    };
    const struct gpt_topology *t = &r->plan.topology;

    if (r->o->sequence_parallel && !r->plan.replica.exec.sequence_parallel)
        gpt_log_line(" > sequence parallelism is off: it needs "
                     "--tensor-model-parallel-size of at least 2");
    if (is_alone(r))
        return;
    gpt_log_line(" > %lld ranks (%s): tensor %lld, pipeline %lld x %lld, "
                 "data %lld%s%s; through %s",
                 (long long)t->world_size, launcher_name(r),
                 (long long)t->size[GPT_TP], (long long)t->size[GPT_PP],
                 (long long)t->chunks, (long long)t->size[GPT_DP],
                 r->plan.replica.exec.sequence_parallel
                     ? ", sequence parallel"
                     : "",
                 shardings[r->plan.replica.zero], r->carrier);
}

/* True when the plan is for a GPU that need not be here: nothing is asked of
 * r->be but how much memory its kernels want. */
static bool is_absent(const struct gpt_run *r)
{
    return r->be == &r->absent;
}

/* Logs which passes become CUDA graphs: those whose operations are of this rank
 * alone. */
static void print_graphs(const struct gpt_run *r)
{
    const struct gpt_replica_options *o = &r->plan.replica;

    if (!o->exec.record)
        return;
    if (!r->be->record_begin && !is_absent(r))
        gpt_log_line(" > CUDA graphs are off: device %s has none", r->be->name);
    else if (o->layout.size[GPT_TP] > 1)
        gpt_log_line(" > CUDA graphs are off: tensor parallel ranks exchange "
                     "within a pass");
    else if (o->overlap_gather)
        gpt_log_line(" > CUDA graphs are off: gradients and weights are "
                     "exchanged within passes");
    else if (r->plan.topology.size[GPT_DP] > 1)
        gpt_log_line(" > CUDA graphs: of forward; gradients are summed over "
                     "ranks within backward");
    else
        gpt_log_line(" > CUDA graphs: of forward and of backward");
}

/* Rank 0 computes what every rank holds: it follows from the layout. Where
 * there are very many ranks, the first of each tensor parallel group is shown;
 * the others of it hold as much. */
static int print_parameters(const struct gpt_run *r, struct gpt_err *err)
{
    const int64_t *size = r->plan.topology.size;
    const int64_t parts = size[GPT_PP] * size[GPT_TP];
    const int64_t each = parts > SHOWN ? size[GPT_TP] : 1;

    for (int64_t i = 0; i < parts; i += each) {
        const int64_t tp_rank = i % size[GPT_TP], pp_rank = i / size[GPT_TP];
        struct gpt_layout layout;
        struct gpt_flat flat;

        GPT_TRY(gpt_train_layout(&r->plan, tp_rank, pp_rank, &layout, err));
        GPT_TRY(gpt_flat_build(&flat, &r->replica->table, &layout, err));
        gpt_log_line(" > number of parameters on (tensor, pipeline) model "
                     "parallel rank (%lld, %lld): %lld",
                     (long long)tp_rank, (long long)pp_rank,
                     (long long)flat.count);
        gpt_flat_free(&flat);
    }
    return GPT_OK;
}

/* Which products are rounded, since the type of activations does not tell. */
static void print_fp8(const struct gpt_run *r)
{
    const struct gpt_fp8_layers *fp8 = &r->plan.replica.exec.fp8;

    if (!r->o->fp8_format)
        return;
    gpt_log_line(" > factors of eight bits: %s, scaled by tensor, in layers "
                 "%lld to %lld of %lld%s",
                 r->o->fp8_format, (long long)fp8->first + 1,
                 (long long)fp8->end,
                 (long long)r->plan.replica.config.num_layers,
                 r->be->host_memory ? "; rounded and multiplied as bf16" : "");
}

static int print_model(const struct gpt_run *r,
                       const struct gpt_memory *memory, struct gpt_err *err)
{
    const struct gpt_config *c = &r->plan.replica.config;
    char text[256];

    if (!is_first(r))
        return GPT_OK;
    if (is_absent(r))
        snprintf(text, sizeof(text), "%s, of which none is opened",
                 r->o->hardware);
    else
        r->be->describe(r->be, text, sizeof(text));
    gpt_log_line(" > device: %s", text);
    print_ranks(r);
    print_graphs(r);
    print_fp8(r);
    gpt_log_line(" > padded vocab (size: %lld) with %lld dummy tokens "
                 "(new size: %lld)",
                 (long long)c->vocab_size, (long long)r->plan.vocab_dummies,
                 (long long)c->padded_vocab_size);
    GPT_TRY(print_parameters(r, err));
    gpt_log_line("> learning rate decay style: %s", r->o->lr_decay_style);
    gpt_log_line(" > micro batch size: %lld, global batch size: %lld, "
                 "steps: %lld, samples: %lld",
                 (long long)r->o->micro_batch_size,
                 (long long)r->plan.rampup.global_batch,
                 (long long)r->plan.train_iters,
                 (long long)r->plan.train_samples);
    gpt_log_line(is_alone(r) ? " > memory:" : " > memory of rank 0:");
    gpt_memory_print(memory);
    return GPT_OK;
}

/* ---- memory ---- */

/* Memory that this rank can get: what is free on its device, or its part of
 * this machine. 0: not known. */
static double own_memory(const struct gpt_run *r)
{
    int64_t available, total;

    if (is_absent(r))
        return r->absent_memory;
    r->be->memory(r->be, &available, &total);
    if (!r->be->host_memory)
        return (double)available;
    return (double)total /
           (double)gpt_max_i64(1, r->world->launch.local_size);
}

/* Memory that a rank may use: the option's value, or what the rank can get. */
static double memory_limit(const struct gpt_run *r)
{
    if (r->o->memory_limit > 0)
        return (double)r->o->memory_limit;
    return r->planned && !is_absent(r) ? 0 : own_memory(r);
}

/* A sentence about options that would make the run fit into the limit. */
static void advise_memory(const struct gpt_run *r, double limit, char *text,
                          size_t cap)
{
    const struct gpt_advice_options options = {
        .be = r->be,
        .limit = limit,
        .more = r->o->memory_limit > 0 ? GPT_MORE_PLANNED
                : r->be->host_memory   ? GPT_MORE_MACHINES
                                       : GPT_MORE_GPUS,
        .local_ranks = gpt_max_i64(1, r->world->launch.local_size),
        .starts = !r->o->dry_run,
    };

    gpt_advise(&r->plan, &r->args, &options, text, cap);
}

/* The hint is cut at the room that an error has for it, after the options. */
static int hint_of_memory(const struct gpt_run *r, double limit,
                          struct gpt_err *err)
{
    char text[sizeof(err->hint)];

    advise_memory(r, limit, text, sizeof(text));
    return gpt_hint(err, "%s", text);
}

/* The product of a dry run, and what the plan lacks. */
static int print_plan(const struct gpt_run *r, struct gpt_err *err)
{
    const double limit = memory_limit(r);
    char text[512], bytes[32];
    double most;

    GPT_TRY(gpt_estimate_print(&r->plan, r->be, limit, err));
    GPT_TRY(gpt_estimate_largest(&r->plan, r->be, &most, err));
    if (limit <= 0 || most <= limit)
        return GPT_OK;
    advise_memory(r, limit, text, sizeof(text));
    gpt_log_line(" > the plan does not fit: a rank needs %s; %s",
                 gpt_text_bytes(bytes, most), text);
    return GPT_OK;
}

/* Compares the prediction with the memory that there is. The system promises
 * memory of the host freely and kills the process when it is touched; and a
 * device that is too small is better found before minutes of loading. */
static int check_memory(const struct gpt_run *r,
                        const struct gpt_memory *memory, struct gpt_err *err)
{
    const double needs = gpt_memory_device(memory, r->be);
    const double has = memory_limit(r);
    int64_t available, total;
    char a[32], b[32];

    if (has <= 0 || needs <= has)
        return GPT_OK;
    r->be->memory(r->be, &available, &total);
    if (r->o->memory_limit > 0)
        gpt_fail(err, GPT_EDEVICE,
                 "the run needs %s of memory a rank, --memory-limit is %s",
                 gpt_text_bytes(a, needs), gpt_text_bytes(b, has));
    else if (r->be->host_memory)
        gpt_fail(err, GPT_EDEVICE,
                 "the run needs %s of memory a rank, this machine has %s "
                 "for each",
                 gpt_text_bytes(a, needs), gpt_text_bytes(b, has));
    else
        gpt_fail(err, GPT_EDEVICE,
                 "%s: out of memory: the run needs %.0f bytes, %lld of %lld "
                 "are free",
                 r->be->name, needs, (long long)available, (long long)total);
    return hint_of_memory(r, has, err);
}

/* The library names no options: a refusal gets the option's name here. */
static int choose_carrier(struct gpt_run *r, struct gpt_err *err)
{
    if (is_absent(r)) {
        if (!r->o->backend)
            r->own_options.backend = gpt_train_backends[GPT_NCCL];
        snprintf(r->carrier, sizeof(r->carrier), "%s",
                 gpt_train_choice(gpt_train_backends, r->o->backend) == GPT_GLOO
                     ? "Gloo" : "NCCL");
        return GPT_OK;
    }
    const int status =
        gpt_world_choose_carrier(r->world, r->be, r->o->backend, r->carrier,
                                 sizeof(r->carrier), err);

    if (status != GPT_EUSAGE || !r->o->backend)
        return status;
    gpt_context(err, "--distributed-backend %s", r->o->backend);
    return gpt_hint(err, "--distributed-backend gloo works on the CPU, and "
                         "lets ranks share a GPU");
}

/* The switch belongs to the backend and not to the plan: it is set before
 * anything is computed. */
static int set_tf32(const struct gpt_run *r, struct gpt_err *err)
{
    if (!r->o->tf32 || is_absent(r))
        return GPT_OK;
    if (!r->be->allow_tf32)
        return gpt_fail(err, GPT_EUSAGE, "--tf32: device %s has none",
                        r->be->name);
    r->be->allow_tf32(r->be, true);
    return GPT_OK;
}

/* Planning for other ranks computes nothing, so that this machine's device does
 * not limit it. */
static int check_type(const struct gpt_run *r, struct gpt_err *err)
{
    const enum gpt_dtype act = r->plan.replica.exec.act;

    if (r->planned || (r->be->act_types >> act & 1))
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE, "--%s: device %s does not compute in %s",
             act == GPT_F16 ? "fp16" : "bf16", r->be->name,
             gpt_dtype_name(act));
    return gpt_hint(err, act == GPT_F16
                             ? "--bf16 has the range of float and needs no "
                               "loss scale"
                             : "leave --bf16 out");
}

/* The same for products of eight bits. */
static int check_fp8(const struct gpt_run *r, struct gpt_err *err)
{
    if (!r->o->fp8_format || (r->planned && !is_absent(r)) ||
        (r->be->abilities & GPT_CAN_FP8))
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE,
             "--fp8-format: device %s has no products of eight bits",
             r->be->name);
    return gpt_hint(err, "GPUs of compute capability 8.9 and above have them; "
                         "the CPU computes the same, slowly");
}

/* Nothing else shows that a head size or a type costs most of a GPU's speed. */
static void warn_of_slow_attention(const struct gpt_run *r)
{
    const char *why = gpt_abilities_slow(&r->plan.replica.config,
                                         r->plan.replica.exec.act, r->be);

    if (why && is_first(r))
        gpt_warn("attention runs many times below the speed of device %s: %s",
                 r->be->name, why);
}

/* ---- data ---- */

static struct gpt_feed_options feed_options(const struct gpt_run *r)
{
    return (struct gpt_feed_options){
        .corpus = r->corpus,
        .masks = r->plan.masks,
        .per_token = r->plan.replica.per_token_loss,
        .loss = r->loss,
        .text = gpt_evaluator_text(r->evaluator),
        .micro_batch = r->plan.replica.exec.micro_batch,
        .seq_length = r->plan.replica.exec.seq_length,
        .max_micro_batches = r->plan.replica.micro_batches,
        .dp_size = r->plan.topology.size[GPT_DP],
        .dp_rank = r->plan.topology.at[GPT_DP],
        .be = r->be,
        .q = r->replica->q,
    };
}

static const char *const split_names[GPT_N_SPLITS] = {"train", "valid", "test"};

/* The share of a split may round to no sequence of a small data set: nothing is
 * measured on it then. Each rank decides by the same corpus. */
static void drop_empty_splits(struct gpt_run *r)
{
    for (int k = 0; k < GPT_N_SPLITS; k++) {
        if (r->plan.corpus.n_samples[k] == 0 ||
            gpt_corpus_size(r->corpus, (enum gpt_split)k) > 0)
            continue;
        r->plan.corpus.n_samples[k] = 0;
        if (is_first(r))
            gpt_warn("no loss is measured on the %s split: its share of "
                     "--split %s holds no sequence of the data",
                     split_names[k], r->o->split);
    }
}

/* A validation that is not what it seems is reported before the training, not
 * found after it. */
static void report_splits(const struct gpt_run *r, const struct gpt_args *args)
{
    struct gpt_repeat s;

    for (int k = 0; k < GPT_N_SPLITS; k++)
        if (gpt_corpus_repeats(r->corpus, (enum gpt_split)k, &s))
            gpt_warn("%s: its %s split, sequences %lld to %lld, has %lld "
                     "tokens: these are repeated to fill samples of %lld",
                     s.prefix, split_names[k], (long long)s.begin,
                     (long long)s.end - 1, (long long)s.tokens,
                     (long long)r->plan.corpus.seq_length + 1);
    if (r->o->eval_iters == 0 || r->plan.valid_sets ||
        r->plan.corpus.n_samples[GPT_VALID] > 0)
        return;
    /* The default of --eval-iters asks for nothing in particular. */
    if (gpt_option_given(args, "eval-iters"))
        gpt_warn("nothing is validated: --split and --valid-data-path give no "
                 "data for it, so that --eval-iters %lld has no effect",
                 (long long)r->o->eval_iters);
    else
        gpt_info("nothing is validated: --split and --valid-data-path give no "
                 "data for it");
}

/* How long an epoch is, which --train-iters does not tell; and how often the
 * run reads the data, which shows a wrong length at a glance. */
static void report_epoch(const struct gpt_run *r)
{
    const int64_t samples = gpt_corpus_epoch(r->corpus, GPT_TRAIN);
    const double batch = (double)r->plan.rampup.global_batch;

    if (samples <= 0 || !is_first(r))
        return;
    gpt_log_line(" > an epoch: %lld sample%s, %.2f steps; the run: %.2f "
                 "epochs",
                 (long long)samples, gpt_plural(samples),
                 (double)samples / batch,
                 (double)r->plan.train_samples / (double)samples);
}

/* Stages that the run does not reach are a slip, or wait for a longer run. */
static int read_stages(struct gpt_run *r, struct gpt_err *err)
{
    struct gpt_data_stages *s = &r->stages;

    if (!r->o->data_stages)
        return GPT_OK;
    GPT_TRY(gpt_data_stages_read(s, r->o->data_stages, err));
    r->plan.corpus.stages = s;
    for (int64_t i = 0; i < s->n && is_first(r) && r->plan.train_samples > 0;
         i++)
        if (s->stage[i].first >= r->plan.train_samples)
            gpt_warn("%s: stage %lld begins at sample %lld; the run ends after "
                     "%lld samples",
                     r->o->data_stages, (long long)i + 1,
                     (long long)s->stage[i].first,
                     (long long)r->plan.train_samples);
    return GPT_OK;
}

static int open_corpus(struct gpt_run *r, const struct gpt_args *args,
                       struct gpt_err *err)
{
    const struct gpt_corpus_options *c = &r->plan.corpus;

    GPT_TRY(read_stages(r, err));
    /* Only a run that is not going to train may have no data. */
    if (c->n_data_path == 0 && !c->stages && c->n_split_path[GPT_TRAIN] == 0 &&
        !(r->plan.evaluates && (c->n_split_path[GPT_VALID] > 0 ||
                                c->n_split_path[GPT_TEST] > 0)))
        return GPT_OK;
    GPT_TRY(gpt_train_find_data(&r->plan.corpus, &r->data_names, is_first(r),
                                err));
    GPT_TRY(gpt_train_check_data_vocabulary(&r->plan, r->o, err));
    int status = gpt_corpus_open(&r->corpus, &r->plan.corpus, err);
    if (status == GPT_EUSAGE && err && !err->hint[0])
        gpt_hint(err, "--data-path and --split, or --train-data-path and its "
                 "like, say which data are read");
    GPT_TRY(status);
    if (is_first(r))
        report_splits(r, args);
    drop_empty_splits(r);
    r->context.corpus_digest = gpt_corpus_digest(r->corpus);
    report_epoch(r);
    return GPT_OK;
}

/* Samples of an epoch of the data that `options` name. The plan's own corpus is
 * opened for the length of the run, which is not known yet. */
static int count_epoch(struct gpt_run *r, int64_t *samples, struct gpt_err *err)
{
    struct gpt_corpus_options options = r->plan.corpus;
    struct gpt_arena names = {.chunks = NULL};
    struct gpt_corpus *corpus = NULL;
    int status;

    *samples = 0;
    if (options.n_data_path == 0 && options.n_split_path[GPT_TRAIN] == 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--epochs needs --data-path or --train-data-path");
    /* indices of one epoch are the least that can be built */
    options.n_samples[GPT_TRAIN] = 1;
    options.n_samples[GPT_VALID] = options.n_samples[GPT_TEST] = 0;
    GPT_TRY_GOTO(status, gpt_train_find_data(&options, &names, false, err),
                 out);
    GPT_TRY_GOTO(status, gpt_corpus_open(&corpus, &options, err), out);
    *samples = gpt_corpus_epoch(corpus, GPT_TRAIN);
    if (*samples == 0)
        status = gpt_fail(err, GPT_EUSAGE,
                          "--epochs: an epoch of the training data is less "
                          "than one sample of --seq-length %lld",
                          (long long)r->o->seq_length);
    /* as often as their weights say, which is no number of passes */
    if (*samples < 0) {
        gpt_fail(err, GPT_EUSAGE,
                 "--epochs: a blend by weights reads its data sets unequally "
                 "often");
        status = gpt_hint(err, "--train-iters or --train-samples give the "
                               "length of a run on a blend");
    }
    if (*samples > 0 && r->o->epochs > 1 &&
        gpt_corpus_ends(corpus, GPT_TRAIN)) {
        gpt_fail(err, GPT_EUSAGE,
                 "--epochs %lld: several data sets without weights are read "
                 "once", (long long)r->o->epochs);
        status = gpt_hint(err, "gpt-dataset merge makes one data set of them");
    }
out:
    gpt_corpus_close(corpus);
    gpt_arena_free(&names);
    return status;
}

/* Epochs become steps, whose rules would name an option that was not given. */
static int check_epochs(const struct gpt_train_options *o, struct gpt_err *err)
{
    const struct {
        const char *name;
        bool given, counts_samples;
    } others[] = {
        {"train-iters", o->train_iters > 0, false},
        {"train-samples", o->train_samples > 0, false},
        {"rampup-batch-size", o->rampup.n > 0, true},
        {"lr-decay-samples", o->lr_decay_samples > 0, true},
        {"lr-warmup-samples", o->lr_warmup_samples > 0, true},
        {"lr-wsd-decay-samples", o->lr_wsd_decay_samples > 0, true},
    };

    for (size_t i = 0; i < GPT_COUNT(others); i++) {
        if (!others[i].given)
            continue;
        gpt_fail(err, GPT_EUSAGE, "--epochs and --%s exclude each other",
                 others[i].name);
        return others[i].counts_samples
                   ? gpt_hint(err, "it goes with --train-samples; epochs are "
                                   "counted in steps")
                   : GPT_EUSAGE;
    }
    return GPT_OK;
}

/* --epochs N becomes a number of steps, and is all that follows from it: the
 * plan is made twice. A last part of a batch is not trained on, so that no
 * document is seen more than N times. */
static int plan_epochs(struct gpt_run *r, struct gpt_err *err)
{
    const struct gpt_args *args = &r->args;
    struct gpt_train_options *o = &r->own_options;
    int64_t samples, wanted;

    /* a run that resumes counts its epochs from the start, too */
    if (o->epochs == 0)
        return gpt_train_plan(&r->plan, o, args, &r->world->topology, err);
    GPT_TRY(check_epochs(o, err));
    o->train_iters = 1000000; /* any length: the data do not depend on it */
    GPT_TRY(gpt_train_plan(&r->plan, o, args, &r->world->topology, err));
    GPT_TRY(count_epoch(r, &samples, err));
    if (!gpt_mul(samples, o->epochs, &wanted))
        return gpt_fail(err, GPT_EUSAGE, "--epochs %lld x %lld samples is too "
                        "large", (long long)o->epochs, (long long)samples);
    /* the data are opened again for this length: indices are cheap to build */
    o->train_iters = wanted / r->plan.rampup.global_batch;
    if (o->train_iters == 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--epochs %lld: %lld samples are less than one batch "
                        "of %lld", (long long)o->epochs, (long long)wanted,
                        (long long)r->plan.rampup.global_batch);
    GPT_TRY(gpt_train_plan(&r->plan, o, args, &r->world->topology, err));
    /* whatever the batch is, so that a run that resumes with another one reads
     * the same samples in the same order */
    r->plan.length_samples = r->plan.corpus.n_samples[GPT_TRAIN] = wanted;
    return GPT_OK;
}

/* Compares lines over all ranks, and frees them. `status`: how they were made.
 * A rank without any compares as well, or the others would wait for it. */
static int compare_lines(struct gpt_run *r, const char *what,
                         struct gpt_buf *lines, int status, struct gpt_err *err)
{
    status = status == GPT_OK
                 ? gpt_world_agree(r->world, what,
                                   lines->data ? lines->data : "none\n", err)
                 : gpt_no_memory(err, what);
    gpt_buf_free(lines);
    return status;
}

/* Ranks whose options differ would train a model that no command describes. The
 * comparison comes before memory is allocated and files are touched. Options
 * that concern one rank alone are left out, as are the paths of data, of rules
 * of the loss, of sets, tasks and prompts, which may lie elsewhere on another
 * machine: digests compare what was found there. */
static int compare_ranks(struct gpt_run *r, const struct gpt_args *args,
                         struct gpt_err *err)
{
    struct gpt_buf options = {0}, loss = {0}, read = {0};
    char data[256] = "none\n";

    int status = gpt_options_lines(args, r->o, GPT_LINES_SHARED, &options);
    GPT_TRY(compare_lines(r, "options", &options, status, err));
    status = gpt_loss_digest(r->loss, &loss);
    GPT_TRY(compare_lines(r, "loss", &loss, status, err));
    status = gpt_evaluator_digest(r->evaluator, &read);
    GPT_TRY(compare_lines(r, "evaluation", &read, status, err));
    if (r->corpus)
        snprintf(data, sizeof(data),
                 "digest = %016" PRIx64 "\nvocabulary size = %lld\n"
                 "end of document = %d\nvalidation samples = %lld\n"
                 "test samples = %lld\n",
                 r->context.corpus_digest,
                 (long long)r->plan.replica.config.vocab_size,
                 r->plan.masks.eod,
                 (long long)gpt_corpus_size(r->corpus, GPT_VALID),
                 (long long)gpt_corpus_size(r->corpus, GPT_TEST));
    return gpt_world_agree(r->world, "data set", data, err);
}

/* ---- files ---- */

/* The directory for checkpoints is ours, and holds no other run's. The lock
 * comes first: a directory that is looked at without it may get its first
 * checkpoint at that moment. */
static int lock_save(struct gpt_run *r, struct gpt_err *err)
{
    const struct gpt_train_options *o = r->o;
    const bool same = resumes_own(o);
    bool exists;

    GPT_TRY(gpt_format_check_place(&gpt_format_native, o->save, err));
    GPT_TRY(gpt_lock_open(&r->lock, o->save, err));
    GPT_TRY(gpt_source_exists(&exists, o->save, err));
    if (exists && (!same || o->finetune) && !o->common.force) {
        gpt_fail(err, GPT_EEXIST, "%s: holds checkpoints of another run",
                 o->save);
        return gpt_hint(err,
                        "continue it with --load %s, or replace it with "
                        "--force",
                        o->save);
    }
    r->replaces = exists && !same;
    return GPT_OK;
}

/* Which iterations of --save are this run's. A run that goes on from one of
 * them, there, is of that run up to it; one that finetunes from there needs the
 * model that it began with. */
static int64_t own_iterations(const struct gpt_run *r)
{
    const struct gpt_train_options *o = r->o;
    char parent[GPT_PATH_BYTES];

    if (!r->replaces)
        return INT64_MAX;
    if (!o->load || !gpt_path_is_dir(o->load)) {
        const char *load = o->load ? o->load : ""; /* a file lies in it */

        snprintf(parent, sizeof(parent), "%.*s",
                 (int)(gpt_path_name(load) - load), load);
    } else if (gpt_path_join(parent, sizeof(parent), o->load, "..", NULL) !=
               GPT_OK) {
        return -1;
    }
    if (!parent[0] || !gpt_path_same(parent, o->save))
        return -1;
    return o->finetune ? INT64_MAX : r->state.iteration;
}

/* Rank 0 decides for all. The others wait until the directory is there and is
 * known to be this run's; its failure reaches them through the store. */
static int open_save(struct gpt_run *r, struct gpt_err *err)
{
    if (!r->o->save || r->plan.evaluates)
        return GPT_OK;
    if (is_first(r))
        GPT_TRY(lock_save(r, err));
    return gpt_world_wait(r->world, "save directory", err);
}

/* FLOP/s that a rank could do; 0 where that is not known. Measuring a CPU takes
 * some milliseconds, of the rank that reports alone: the others wait for it in
 * their first step anyway. */
static double find_peak(struct gpt_run *r)
{
    snprintf(r->peak_is, sizeof(r->peak_is), "as --device-peak-tflops says");
    if (r->o->device_peak > 0)
        return 1e12 * r->o->device_peak;
    return is_first(r) && !r->plan.evaluates
               ? gpt_device_peak(r->be, r->plan.replica.exec.act, r->peak_is,
                                 sizeof(r->peak_is))
               : 0;
}

/* A run that has made no step, and whose command is not one that resumes: lines
 * in the file of its --metrics are another run's. A launcher that starts ranks
 * again says so: then they are this run's. */
static bool begins_anew(const struct gpt_run *r)
{
    const char *restarts = getenv("TORCHELASTIC_RESTART_COUNT");

    if (restarts && strcmp(restarts, "0") != 0)
        return false;
    return r->state.iteration == 0 && !r->plan.evaluates &&
           (r->o->finetune || !resumes_own(r->o));
}

static int open_report(struct gpt_run *r, struct gpt_err *err)
{
    const struct gpt_train_options *o = r->o;

    if (o->timing_level > 0 && !r->be->host_memory)
        gpt_log_line(" > the times of forward and backward are not logged: a "
                     "GPU computes while the host goes on");
    /* a GPU computes while the host goes on: its times are not known here */
    if (is_first(r) && !r->plan.evaluates && r->be->host_memory)
        GPT_TRY(gpt_stragglers_open(&r->stragglers, r->world, err));
    struct gpt_report_options options = {
        .train_iters = r->plan.train_iters,
        .log_interval = o->log_interval,
        .flops_per_token =
            gpt_flops_per_token(&r->plan.replica.config, o->seq_length),
        .seq_length = o->seq_length,
        .ranks = r->plan.topology.world_size,
        .log_throughput = o->log_throughput,
        .log_times = o->timing_level > 0,
        /* one microbatch is the batch: there is nothing to compare */
        .log_noise_scale = o->log_noise_scale &&
                           r->plan.rampup.global_batch > o->micro_batch_size,
        .micro_batch = o->micro_batch_size,
        .gpu = !r->be->host_memory,
        .be = r->be,
        .predicted_memory = r->predicted,
        .peak = find_peak(r),
        .peak_is = r->peak_is,
        .restarts = r->state.restarts,
        .stragglers = r->stragglers,
        .sinks = {.metrics = o->metrics,
                  .tensorboard = o->tensorboard_dir,
                  .command = o->log_metrics_command,
                  .iteration = r->plan.evaluates ? INT64_MAX
                                                 : r->state.iteration,
                  .keep = begins_anew(r) && !o->common.force},
        .iteration = r->state.iteration,
        .progress = o->common.progress,
    };

    /* One rank writes: the losses in the report are sums over all ranks. */
    if (!is_first(r)) {
        options.sinks = (struct gpt_sink_options){.metrics = NULL};
        options.progress = "never";
    } else if (!o->metrics && o->save && !r->plan.evaluates) {
        GPT_TRY(gpt_path_join(r->metrics, sizeof(r->metrics), o->save,
                              "metrics.jsonl", err));
        options.sinks.metrics = r->metrics;
        options.sinks.keep = false; /* open_save() has found it to be ours */
    }
    if (is_first(r) && o->sample_prompts && o->save && !r->plan.evaluates) {
        GPT_TRY(gpt_path_join(r->samples, sizeof(r->samples), o->save,
                              "samples.jsonl", err));
        options.sinks.samples = r->samples;
    }
    return gpt_report_open(&r->report, &options, err);
}

/* ---- weights ---- */

/* Loaded, or initial; where they come from is the same for all. The comparison
 * at the end finds ranks that have read different checkpoints, from directories
 * that are not shared or not in step. */
static int fill_replica(struct gpt_run *r, struct gpt_err *err)
{
    const struct gpt_train_options *o = r->o;
    char text[96];
    bool exists;

    if (!o->load)
        return gpt_replica_init(r->replica, err);
    GPT_TRY(gpt_source_exists(&exists, o->load, err));
    /* loading and beginning anew are collective, and not the same: a rank that
     * took the other one would be waited for */
    snprintf(text, sizeof(text), "there is one = %s\n", exists ? "yes" : "no");
    GPT_TRY(gpt_world_agree(r->world, "checkpoint to load", text, err));
    if (!exists && resumes_own(o) && o->finetune)
        return gpt_fail(err, GPT_EIO,
                        "%s holds no checkpoint, and --finetune begins from "
                        "one", o->load);
    if (!exists && resumes_own(o)) {
        gpt_log_line(" no checkpoint in %s yet: starting from random weights",
                     o->load);
        GPT_TRY(gpt_replica_init(r->replica, err));
    } else {
        GPT_TRY(gpt_state_load(r->replica, &r->state, &r->context, &r->plan,
                               err));
    }
    snprintf(text, sizeof(text), "iteration = %lld\nsamples = %lld\n",
             (long long)r->state.iteration, (long long)r->state.consumed_train);
    return gpt_world_agree(r->world, "checkpoint", text, err);
}

/* The position of a run that resumes has decided how many samples are left. The
 * index of samples was made for the plan of a new run; where the batch became
 * smaller than it was, the rest needs more of them. The data are those of the
 * checkpoint, or not, as they are read from here on. */
static int fit_corpus(struct gpt_run *r, struct gpt_err *err)
{
    if (r->corpus &&
        r->plan.train_samples > gpt_corpus_size(r->corpus, GPT_TRAIN)) {
        gpt_corpus_close(r->corpus);
        r->corpus = NULL;
        r->plan.corpus.n_samples[GPT_TRAIN] = r->plan.train_samples;
        GPT_TRY(gpt_corpus_open(&r->corpus, &r->plan.corpus, err));
        r->context.corpus_digest = gpt_corpus_digest(r->corpus);
    }
    gpt_state_compare_data(&r->state, &r->context);
    return GPT_OK;
}

/* A run that resumes after `planned` steps of a new one were to be made. */
static int fit_rest(struct gpt_run *r, int64_t planned, struct gpt_err *err)
{
    const bool epochs = r->o->epochs > 0;

    if (r->plan.evaluates || r->state.iteration == 0)
        return GPT_OK;
    if (r->plan.train_iters != planned &&
        r->plan.train_iters > r->state.iteration)
        gpt_log_line(" the batch is another one than before: --%s %lld are "
                     "reached at iteration %lld",
                     epochs ? "epochs" : "train-samples",
                     (long long)(epochs ? r->o->epochs : r->o->train_samples),
                     (long long)r->plan.train_iters);
    return fit_corpus(r, err);
}

/* Another process may have taken memory since check_memory(): then the hint is
 * of a smaller limit. */
static int allocate(struct gpt_run *r, const struct gpt_memory *memory,
                    struct gpt_err *err)
{
    const double needs = gpt_memory_device(memory, r->be);
    int status = gpt_replica_open(r->replica, err);

    if (status != GPT_EDEVICE || own_memory(r) > needs)
        return status;
    /* How much is left is not known to last either: advice for a tenth less
     * than the need is likely to fit. */
    return hint_of_memory(r, 0.9 * needs, err);
}

static int open_replica(struct gpt_run *r, const struct gpt_args *args,
                        const struct gpt_memory *memory, struct gpt_err *err)
{
    const int64_t planned = r->plan.train_iters;

    GPT_TRY(allocate(r, memory, err));
    r->context.options = r->o;
    r->context.plan = &r->plan;
    GPT_TRY(gpt_options_print(args->program, r->o, args, &r->option_text));
    r->context.option_text = r->option_text.data;
    GPT_TRY(fill_replica(r, err));
    GPT_TRY(fit_rest(r, planned, err));
    r->saving = r->saved = r->state.iteration;
    r->context.own_until = own_iterations(r);
    if (is_first(r) && r->o->save && !r->plan.evaluates)
        gpt_saver_mark_best(r->o, r->state.best.iteration);
    return r->o->save && !r->plan.evaluates
               ? gpt_saver_open(&r->saver, r->replica, &r->context, err)
               : GPT_OK;
}

/* Before anything is allocated: a plug-in's loss takes memory of the stage, and
 * what is wrong with a file is better said at once. */
static int open_loss(struct gpt_run *r, struct gpt_err *err)
{
    const struct gpt_loss_options options = {
        .token_weights = r->o->token_loss_weights,
        .plugin = r->o->loss_plugin,
        .plugin_args = r->o->loss_plugin_args,
        .vocab_size = r->plan.replica.config.vocab_size,
    };

    /* the library knows no options: what they are is added here */
    const int status = gpt_loss_open(&r->loss, &options, err);
    if (status == GPT_EUSAGE && err && !err->hint[0])
        gpt_hint(err, "gpt_loss.h says what --loss-plugin takes, and "
                      "share/examples has two");
    GPT_TRY(status);
    /* from here on predictions of memory count what the stage needs for it */
    r->plan.replica.exec.token_loss = gpt_loss_of_tokens(r->loss);
    if (gpt_loss_name(r->loss) && is_first(r))
        gpt_log_line(" > loss: %s", gpt_loss_name(r->loss));
    return GPT_OK;
}

/* One warning, however many options it is about. */
static int report_effects(const struct gpt_run *r, struct gpt_err *err)
{
    struct gpt_buf idle = {0};
    const int status = gpt_train_effects(&r->plan, &r->args, &idle, err);

    if (status == GPT_OK && idle.len > 0 && is_first(r))
        gpt_warn("without effect here: %s", idle.data);
    gpt_buf_free(&idle);
    return status;
}

/* More threads than cores wait for each other: every operation ends with its
 * slowest thread. */
static void report_threads(const struct gpt_run *r)
{
    const int64_t asked = r->o->common.threads, cores = omp_get_num_procs();

    if (asked > cores && is_first(r))
        gpt_warn("--threads %lld: this process has %lld core%s, and more "
                 "threads than cores are slower",
                 (long long)asked, (long long)cores, gpt_plural(cores));
}

/* ---- --simulate ---- */

static int simulate(const struct gpt_run *r, struct gpt_err *err)
{
    struct gpt_simulate_options options = {
        .svg = r->o->simulate_svg,
        .force = r->o->common.force,
    };
    struct gpt_buf text = {0};

    if (!is_first(r))
        return GPT_OK;
    GPT_TRY(gpt_simulate_parse(&options, r->o->simulate, err));
    int status = gpt_simulate(&r->plan, &options, &text, err);
    if (status == GPT_OK)
        status = gpt_write_file("-", 0, text.data, text.len, err);
    gpt_buf_free(&text);
    return status;
}

/* ---- the whole ---- */

/* What the options of files and of a checkpoint changed is shown when it is
 * known which rank speaks. */
static int open_options(struct gpt_run *r, struct gpt_err *err)
{
    struct gpt_buf settled = {0}, taken = {0};
    int status;

    GPT_TRY_GOTO(status,
                 gpt_train_settle(&r->own_options, &r->args, &r->arena,
                                  &settled, err),
                 out);
    GPT_TRY_GOTO(status,
                 gpt_train_read_split_paths(&r->own_options, &r->arena, err),
                 out);
    GPT_TRY_GOTO(status, take_checkpoint_args(r, &taken, err), out);
    if (r->o->eval_only) /* whatever the length of the training was */
        r->own_options.train_iters = r->own_options.train_samples =
            r->own_options.epochs = 0;
    GPT_TRY_GOTO(status, open_world(r, err), out);
    if (settled.len > 0)
        gpt_log_line(" > of configuration files: %s", settled.data);
    if (taken.len > 0)
        gpt_log_line(" > options taken from %s:%s", r->peeked.dir, taken.data);
out:
    gpt_buf_free(&settled);
    gpt_buf_free(&taken);
    return status;
}

/* CUDA loads a kernel at its first launch and may wait for the device to be
 * idle. With collectives of two groups under way, of which ranks come to one
 * each, that wait never ends. CUDA reads the variable when it starts; what the
 * user has set stays. */
static void load_kernels_early(const struct gpt_run *r)
{
    if (r->world->topology.world_size > 1)
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

/* A limit of memory is one of the run: the GPU has what it has. */
static int plan_device(struct gpt_run *r, struct gpt_err *err)
{
    struct gpt_train_options unlimited = *r->o;
    struct gpt_hardware hardware;

    unlimited.memory_limit = 0;
    GPT_TRY(gpt_hardware_choose(&hardware, &unlimited, &r->args, NULL, err));
    gpt_backend_planned(&r->absent, (int64_t)hardware.memory,
                        hardware.capability);
    r->absent.name = hardware.name;
    r->absent_memory = hardware.memory;
    r->be = &r->absent;
    return GPT_OK;
}

/* With --hardware a dry run opens no GPU: what it plans is then the same on a
 * machine that has another one, or none. */
static int open_device(struct gpt_run *r, struct gpt_err *err)
{
    const bool asked = r->o->dry_run && gpt_option_given(&r->args, "hardware");
    const char *device = asked ? "cpu" : r->o->device;

    if (asked && strcmp(r->o->hardware, "cpu") != 0)
        return plan_device(r, err);
    load_kernels_early(r);
    const int status = gpt_backend_open_rank(
        &r->be, device, r->world->launch.local_rank, err);
    if (status == GPT_EDEVICE && r->o->dry_run)
        gpt_hint(err, "%s%s--hardware NAME plans for a GPU that is not here",
                 err->hint, err->hint[0] ? "; " : "");
    return status;
}

int gpt_run_open(struct gpt_run *r, const struct gpt_train_options *options,
                 const struct gpt_args *given, struct gpt_err *err)
{
    const struct gpt_args *args = &r->args;
    struct gpt_feed_options feed;
    struct gpt_memory memory;

    r->own_options = *options;
    r->o = &r->own_options;
    r->args = *given;
    /* The order is from cheap to dear. What options can break is checked before
     * the device is opened, and the device before data are read; memory is
     * allocated when all ranks agree, and the report is opened last, as it cuts
     * off lines of the metrics that will be written again. */
    GPT_TRY(open_options(r, err));
    GPT_TRY(share_cores(r, err));
    GPT_TRY(plan_epochs(r, err));
    GPT_TRY(open_loss(r, err));
    GPT_TRY(report_effects(r, err));
    report_threads(r);
    if (r->o->simulate)
        return simulate(r, err);
    GPT_TRY(open_device(r, err));
    /* Ranks that are only planned are not there to be connected to. */
    r->plan.replica.world = r->planned || is_absent(r) ? NULL : r->world;
    GPT_TRY(check_type(r, err));
    GPT_TRY(check_fp8(r, err));
    GPT_TRY(set_tf32(r, err));
    warn_of_slow_attention(r);
    GPT_TRY(choose_carrier(r, err));
    GPT_TRY(gpt_replica_new(&r->replica, r->be, &r->plan.replica, err));
    GPT_TRY(gpt_estimate_rank(&r->plan, r->replica, &memory, err));
    r->predicted = gpt_memory_device(&memory, r->be);
    GPT_TRY(print_model(r, &memory, err));
    GPT_TRY(open_corpus(r, args, err));
    GPT_TRY(gpt_evaluator_read(&r->evaluator, &r->plan, is_first(r), err));
    GPT_TRY(compare_ranks(r, args, err));
    if (is_first(r) && !r->plan.evaluates)
        GPT_TRY(gpt_saver_check_room(&r->plan.replica, r->o, err));
    if (r->o->dry_run)
        return is_first(r) ? print_plan(r, err) : GPT_OK;
    GPT_TRY(check_memory(r, &memory, err));
    GPT_TRY(open_save(r, err));
    GPT_TRY(gpt_world_connect(r->world, r->be, err));
    GPT_TRY(open_replica(r, args, &memory, err));
    feed = feed_options(r);
    GPT_TRY(gpt_feed_open(&r->feed, &feed, err));
    GPT_TRY(open_report(r, err));
    return gpt_evaluator_open(
        r->evaluator,
        &(struct gpt_evaluator_run){r->replica, r->feed, r->corpus, r->report},
        err);
}

int gpt_run_end(struct gpt_run *r, int status, struct gpt_err *err)
{
    int closed = gpt_report_close(r->report, status == GPT_OK ? err : NULL);

    gpt_stragglers_close(r->stragglers);
    if (status == GPT_OK)
        status = closed;
    return gpt_world_end(r->world, status, err);
}

/* The lock is released last, since a save may be under way until the saver is
 * closed. */
void gpt_run_close(struct gpt_run *r)
{
    gpt_saver_close(r->saver);
    gpt_feed_close(r->feed); /* it may read a corpus of the evaluator */
    gpt_evaluator_close(r->evaluator);
    gpt_corpus_close(r->corpus);
    gpt_data_stages_free(&r->stages);
    gpt_arena_free(&r->data_names);
    gpt_replica_close(r->replica);
    gpt_loss_close(r->loss);
    gpt_world_close(r->world);
    gpt_buf_free(&r->option_text);
    gpt_source_close(&r->peeked);
    gpt_arena_free(&r->arena);
    gpt_lock_close(r->lock);
}
