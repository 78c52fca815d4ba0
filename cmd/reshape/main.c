/* gpt-reshape: shows and converts checkpoints. Planning and carrying out is
 * cmd/reshape/reshape.h, showing is cmd/reshape/inspect.h; here are the options
 * and what is reported. Formats to choose from are those of
 * checkpoint/format.h, without a list of their own. */
#include "base/clock.h"
#include "base/dtype.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/options.h"
#include "base/progress.h"
#include "base/signals.h"
#include "checkpoint/lock.h"
#include "cmd/reshape/compare.h"
#include "cmd/reshape/foreign.h"
#include "cmd/reshape/inspect.h"
#include "cmd/reshape/print_plan.h"
#include "cmd/reshape/reshape.h"
#include "parallel/stage_options.h"

#include <stdio.h>
#include <string.h>

/* As the user gives them; gpt_reshape_options is what they mean: sizes of 0,
 * for example, become the input's. */
struct options {
    struct gpt_common_options common;
    const char *load_path, *save_path, *to, *dtype, *vocab_file, *merge_file;
    const char *style;
    bool to_transformers, print_structure, json, dry_run, verify;
    bool no_verify_input, shard_optimizer;
    int64_t tp, pp, ep, divisible_by, true_vocab, max_shard_size;
    struct gpt_stage_layers stages;
    struct gpt_list adapters;
};

static const char *const dtypes[] = {"fp32", "fp16", "bf16", "q8_0", "q4_0",
                                     "q4_1", "q5_0", "q5_1", NULL};
/* Those of all formats together, because an option has one list of choices.
 * find_style() finds out whether the format that is written has the one that
 * was given, and which of its own it is. */
static const char *const styles[] = {"transformer_engine", "local", "legacy",
                                     NULL};

#define AT(field) .offset = offsetof(struct options, field)
/* 0 of a layout or of the true size means the input's, which is not known
 * before it is opened. */
static const struct gpt_opt table[] = {
    {.kind = GPT_OPT_GROUP, .help = "Input and output"},
    {.kind = GPT_OPT_STRING, .name = "load-path", .arg = "PATH", AT(load_path),
     .flags = GPT_OPT_DIR,
     .help = "checkpoint to read: a native root or iter_* directory, a "
             "directory of Hugging Face, Megatron-LM, DeepSpeed, nanoGPT or "
             "others, or a file of GGUF or llm.c"},
    {.kind = GPT_OPT_STRING, .name = "save-path", .arg = "PATH", AT(save_path),
     .flags = GPT_OPT_DIR,
     .help = "to write: a native root, a new directory, or a new file"},
    {.kind = GPT_OPT_CHOICE, .name = "to", .arg = "FORMAT", AT(to),
     .choices = gpt_format_names,
     .help = "format to write; default: gguf where --save-path ends in .gguf, "
             "else native"},
    {.kind = GPT_OPT_CHOICE, .name = "saver-transformer-impl", .arg = "IMPL",
     AT(style), .choices = styles,
     .help = "names of tensors with --to megatron: transformer_engine, the "
             "default, local or legacy"},
    {.kind = GPT_OPT_FLAG, .name = "use-distributed-optimizer",
     AT(shard_optimizer),
     .help = "optimizer state as Megatron-LM's distributed optimizer has it; "
             "means --to megatron"},
    {.kind = GPT_OPT_FLAG,
     .name = "convert-checkpoint-from-megatron-to-transformers",
     AT(to_transformers), .help = "the same as --to hf"},
    {.kind = GPT_OPT_LIST, .name = "merge-adapter", .arg = "DIR", AT(adapters),
     .flags = GPT_OPT_DIR,
     .help = "adapters of PEFT (LoRA) to merge into the input's weights, in "
             "this order"},
    {.kind = GPT_OPT_FLAG, .name = "no-verify-input", AT(no_verify_input),
     .help = "do not check the checksums of a native input"},
    {.kind = GPT_OPT_STRING, .name = "vocab-file", .arg = "FILE",
     AT(vocab_file), .flags = GPT_OPT_FILE | GPT_OPT_INPUT,
     .help = "put beside the output as vocab.json; default: the input's"},
    {.kind = GPT_OPT_STRING, .name = "merge-file", .arg = "FILE",
     AT(merge_file), .flags = GPT_OPT_FILE | GPT_OPT_INPUT,
     .help = "put beside the output as merges.txt; default: the input's"},
    {.kind = GPT_OPT_GROUP, .help = "Conversion"},
    {.kind = GPT_OPT_INT, .name = "target-tensor-model-parallel-size",
     .arg = "N", AT(tp), .def = "0", .min = 0, .max = 65536,
     .help = "of the output; 0: the input's"},
    {.kind = GPT_OPT_INT, .name = "target-pipeline-model-parallel-size",
     .arg = "N", AT(pp), .def = "0", .min = 0, .max = 65536,
     .help = "of the output; 0: the input's"},
    {.kind = GPT_OPT_INT, .name = "target-expert-model-parallel-size",
     .arg = "N", AT(ep), .def = "1", .min = 1, .max = 4096,
     .help = "ranks of a Megatron output that share the experts of a layer"},
    GPT_STAGE_LAYERS_OPTIONS(struct options, stages),
    {.kind = GPT_OPT_CHOICE, .name = "target-params-dtype", .arg = "TYPE",
     AT(dtype), .choices = dtypes,
     .help = "of the parameters; default: the input's; q*_*: packed matrices "
             "of a GGUF file"},
    {.kind = GPT_OPT_INT, .name = "make-vocab-size-divisible-by", .arg = "N",
     AT(divisible_by), .def = "128", .min = 1, .max = 1 << 20,
     .help = "pad the vocabulary to a multiple of N x tensor parallel size"},
    {.kind = GPT_OPT_INT, .name = "true-vocab-size", .arg = "N",
     AT(true_vocab), .def = "0", .min = 0, .max = 1 << 24,
     .help = "ids that exist, when the input counts dummies; 0: the input's"},
    {.kind = GPT_OPT_BYTES, .name = "max-shard-size", .arg = "SIZE",
     AT(max_shard_size), .def = "5GB", .min = 1, .max = 1e18,
     .help = "of tensors in a file of a Hugging Face output"},
    {.kind = GPT_OPT_GROUP, .help = "What to do"},
    {.kind = GPT_OPT_FLAG, .name = "dry-run", AT(dry_run),
     .help = "show files, bytes and memory; write nothing"},
    {.kind = GPT_OPT_FLAG, .name = "verify", AT(verify),
     .help = "read the output back and compare it with the input"},
    {.kind = GPT_OPT_FLAG, .name = "print-checkpoint-structure",
     AT(print_structure), .help = "list the output's tensors afterwards"},
    {.kind = GPT_OPT_FLAG, .name = "json", AT(json),
     .help = "with inspect, globals, plan and diff: JSON instead of a table"},
    GPT_COMMON_OPTIONS(struct options, common),
};

/* Printed at once, from memory: standard output holds a whole listing or
 * nothing. gpt_main() checks that it was written. Frees the text. */
static int print_whole(int status, struct gpt_buf *b)
{
    if (status == GPT_OK)
        fwrite(b->data, 1, b->len, stdout);
    gpt_buf_free(b);
    return status;
}

static int show(int (*describe)(struct gpt_buf *out, const char *path,
                                bool json, struct gpt_err *err),
                const char *path, bool json, struct gpt_err *err)
{
    struct gpt_buf b = {0};

    return print_whole(describe(&b, path, json, err), &b);
}

/* Hears the bytes of tensors so far; see gpt_target_write(). Those that an
 * earlier run has written count at once, when their file's turn comes. */
static void report(void *context, int64_t bytes)
{
    gpt_progress_set(context, bytes, NULL);
}

/* Progress counts the output's bytes, which are the plan's total. Verifying is
 * not counted: it reads both sides again, and a bar would have to start
 * over. */
static int carry_out(struct gpt_reshape *r, const struct options *o,
                     struct gpt_err *err)
{
    char size[32], time[32];
    double start = gpt_now();
    struct gpt_progress *p = gpt_progress_open(
        o->common.quiet ? "never" : o->common.progress, "reshape", "B",
        r->target.bytes);
    /* A run that saves into this directory would publish checkpoints between
     * ours, and remove what it takes for the remains of a killed run. */
    const bool locks = !r->o->to->is_file;
    int lock = -1;
    int status = locks ? gpt_lock_join(&lock, r->o->save, err) : GPT_OK;

    if (status == GPT_OK)
        status = gpt_reshape_write(r, report, p, err);
    if (locks)
        gpt_lock_close(lock);
    gpt_progress_close(p);
    GPT_TRY(status);
    gpt_info("%s: %lld file%s, %s in %s", r->o->save,
             (long long)r->target.n_files, gpt_plural(r->target.n_files),
             gpt_text_bytes(size, (double)r->target.bytes),
             gpt_text_duration(time, gpt_now() - start));
    if (o->verify) {
        const char *with = o->adapters.n ? " with its adapters merged" : "";
        const char *how;

        GPT_TRY(gpt_reshape_verify(r, &how, err));
        if (r->o->dtype == GPT_N_DTYPES && !r->o->packing)
            gpt_info("%s: equals the input%s, %s", r->o->save, with,
                     how ? how : "bit for bit");
        else
            gpt_info("%s: equals the input%s after rounding to %s%s%s",
                     r->o->save, with, o->dtype, how ? ", and " : "",
                     how ? how : "");
    }
    return GPT_OK;
}

/* No option is taken and then ignored, as a layout for a format without one.
 * Whether a format has files of a limited size or a layout is a matter of its
 * row in checkpoint/format.h, so that a new format needs no line here. */
static int check_effect(const struct gpt_format *to,
                        const struct gpt_packing *packing,
                        const struct gpt_args *args, struct gpt_err *err)
{
    static const char *const of_layout[] = {
        "target-tensor-model-parallel-size",
        "target-pipeline-model-parallel-size",
        "num-layers-per-virtual-pipeline-stage",
        "num-virtual-stages-per-pipeline-rank",
        "decoder-first-pipeline-num-layers",
        "decoder-last-pipeline-num-layers"};

    if (!to->has_shards && gpt_option_given(args, "max-shard-size")) {
        gpt_fail(err, GPT_EUSAGE,
                 "--max-shard-size has no effect on format %s: it is for "
                 "--to hf",
                 to->name);
        return gpt_hint(err, "leave it out, or add --to hf");
    }
    if (!to->shards_optimizer &&
        gpt_option_given(args, "use-distributed-optimizer")) {
        gpt_fail(err, GPT_EUSAGE,
                 "--use-distributed-optimizer has no effect on format %s: it "
                 "is for --to megatron",
                 to->name);
        return gpt_hint(err, "leave it out, or add --to megatron");
    }
    if (!to->shares_experts &&
        gpt_option_given(args, "target-expert-model-parallel-size")) {
        gpt_fail(err, GPT_EUSAGE,
                 "--target-expert-model-parallel-size has no effect on format "
                 "%s: it is for --to megatron",
                 to->name);
        return gpt_hint(err, "leave it out, or add --to megatron");
    }
    if (packing && !to->has_packings) {
        gpt_fail(err, GPT_EUSAGE,
                 "--target-params-dtype %s has no effect on format %s: it is "
                 "for --to gguf",
                 packing->name, to->name);
        return gpt_hint(err, "choose fp32, fp16 or bf16, or add --to gguf");
    }
    for (size_t i = 0; i < GPT_COUNT(of_layout); i++)
        if (!to->stores_padding && gpt_option_given(args, of_layout[i])) {
            gpt_fail(err, GPT_EUSAGE,
                     "--%s has no effect on format %s, which has no layout",
                     of_layout[i], to->name);
            return gpt_hint(err, "leave it out: one file serves any layout");
        }
    return GPT_OK;
}

/* The index of a style among those of the format, which are fewer than those
 * that the option takes where a format has none. */
static int find_style(const struct gpt_format *to, const char *name, int *style,
                      struct gpt_err *err)
{
    *style = 0;
    if (!name)
        return GPT_OK;
    for (int i = 0; to->styles && to->styles[i]; i++)
        if (strcmp(to->styles[i], name) == 0) {
            *style = i;
            return GPT_OK;
        }
    return gpt_fail(err, GPT_EUSAGE,
                    "--saver-transformer-impl has no effect on format %s: it "
                    "is for --to megatron",
                    to->name);
}

/* The name of a file says what it is meant to be; that of a directory says
 * nothing. */
static const struct gpt_format *find_format(const struct options *o)
{
    if (o->to_transformers)
        return &gpt_format_hf;
    if (o->to)
        return gpt_format_named(o->to);
    if (o->shard_optimizer)
        return &gpt_format_megatron;
    return gpt_path_ends_in(o->save_path, ".gguf") ? &gpt_format_gguf
                                                   : &gpt_format_native;
}

/* A dry run reads headers alone, so it checks no checksums either. */
static int convert(const struct options *o, const struct gpt_args *args,
                   bool only_plan, struct gpt_err *err)
{
    double rate = 0;
    enum gpt_dtype dtype = GPT_N_DTYPES;
    struct gpt_reshape r;
    const struct gpt_packing *packing =
        o->dtype ? gpt_packing_named(o->dtype) : NULL;

    if (o->dtype && !packing && !gpt_dtype_parse(o->dtype, &dtype))
        return gpt_fail(err, GPT_EUSAGE, "unknown type '%s'", o->dtype);
    struct gpt_reshape_options ro = {
        .load = o->load_path,
        .save = o->save_path,
        .to = find_format(o),
        .tp = o->tp,
        .ep = o->ep,
        .pp = o->pp,
        .stages = o->stages,
        .divisible_by = o->divisible_by,
        .repad = gpt_option_given(args, "make-vocab-size-divisible-by"),
        .true_vocab = o->true_vocab,
        .dtype = dtype,
        .packing = packing,
        .max_shard_size = o->max_shard_size,
        .vocab_file = o->vocab_file,
        .merge_file = o->merge_file,
        .verify_input = !o->no_verify_input && !o->dry_run && !only_plan,
        .shard_optimizer = o->shard_optimizer,
        .adapters = &o->adapters,
        .force = o->common.force,
    };
    GPT_TRY(check_effect(ro.to, packing, args, err));
    GPT_TRY(gpt_stage_layers_check(&o->stages, err));
    GPT_TRY(find_style(ro.to, o->style, &ro.style, err));
    GPT_TRY(gpt_reshape_open(&r, &ro, err));
    int status = only_plan ? gpt_reshape_measure(&r, &rate, err) : GPT_OK;
    if (status == GPT_OK && only_plan && o->json)
        status = gpt_plan_print_json(&r, rate, err);
    else if (status == GPT_OK && (o->dry_run || only_plan))
        gpt_plan_print(&r, rate);
    else if (status == GPT_OK)
        status = carry_out(&r, o, err);
    gpt_reshape_close(&r);
    if (status == GPT_OK && o->print_structure && !o->dry_run && !only_plan)
        status = show(gpt_inspect, o->save_path, false, err);
    return status;
}

/* convert FROM TO and plan FROM TO are the options by their places. A command
 * line that has both could mean two conversions. */
static int convert_paths(const struct options *o, const struct gpt_args *args,
                         bool only_plan, struct gpt_err *err)
{
    struct options own = *o;

    if (args->n_positional > 1) {
        if (o->load_path || o->save_path)
            return gpt_fail(err, GPT_EUSAGE, "%s has its paths twice",
                            args->positional[0]);
        own.load_path = args->positional[1];
        own.save_path = args->n_positional > 2 ? args->positional[2] : NULL;
    }
    if (!own.load_path || !own.save_path) {
        gpt_fail(err, GPT_EUSAGE, "--%s is needed",
                 own.load_path ? "save-path" : "load-path");
        return gpt_hint(err, "to convert: --load-path DIR --save-path DIR; to "
                             "look: gpt-reshape inspect DIR");
    }
    if (o->json && !only_plan) {
        gpt_fail(err, GPT_EUSAGE, "--json has no effect on a conversion");
        return gpt_hint(err, "gpt-reshape plan FROM TO --json");
    }
    return convert(&own, args, only_plan, err);
}

/* ---- commands ---- */

/* Each command has the same form, so that the table below is all that knows
 * their names. */
static int do_inspect(const struct options *o, const struct gpt_args *args,
                      struct gpt_err *err)
{
    return show(gpt_inspect, args->positional[1], o->json, err);
}

static int do_globals(const struct options *o, const struct gpt_args *args,
                      struct gpt_err *err)
{
    return show(gpt_inspect_globals, args->positional[1], o->json, err);
}

/* A plan and a conversion differ in their last step only: what stops one stops
 * the other. */
static int do_plan(const struct options *o, const struct gpt_args *args,
                   struct gpt_err *err)
{
    return convert_paths(o, args, true, err);
}

static int do_convert(const struct options *o, const struct gpt_args *args,
                      struct gpt_err *err)
{
    return convert_paths(o, args, false, err);
}

/* Prints what a comparison says; a difference is its error. */
static int do_verify(const struct options *o, const struct gpt_args *args,
                     struct gpt_err *err)
{
    enum gpt_dtype dtype = GPT_N_DTYPES;
    struct gpt_buf b = {0};

    if (o->dtype && !gpt_dtype_parse(o->dtype, &dtype)) {
        gpt_fail(err, GPT_EUSAGE, "verify rounds to fp32, fp16 or bf16");
        return gpt_hint(err, "packed matrices are recognised without it");
    }
    const int status = print_whole(
        gpt_compare_equal(&b, args->positional[1], args->positional[2],
                          &o->adapters, dtype, err),
        &b);
    /* a difference; other failures have hints of their own, or a signal */
    if (status != GPT_EFAIL || err->hint[0] || gpt_signals_stop())
        return status;
    return gpt_hint(err, "gpt-reshape diff shows by how much; "
                         "--target-params-dtype TYPE rounds the first before");
}

/* Exit status 0 whatever the differences are; verify is for scripts that want
 * to know whether there are any. */
static int do_diff(const struct options *o, const struct gpt_args *args,
                   struct gpt_err *err)
{
    struct gpt_buf b = {0};

    return print_whole(gpt_compare_differences(&b, args->positional[1],
                                               args->positional[2],
                                               &o->adapters, o->json, err),
                       &b);
}

/* Words that come first on the command line, how many paths each takes, and
 * which options. Without one the program converts, so that the command lines of
 * other converters, which have no words, work as they are. */
static const struct command {
    const char *name;
    int least, most; /* paths */
    bool converts;   /* takes the options of a conversion */
    const char *takes[2]; /* ... and these; common options have an effect on
                           * all */
    int (*run)(const struct options *o, const struct gpt_args *args,
               struct gpt_err *err);
    const char *usage;
} commands[] = {
    {"inspect", 1, 1, false, {"json"}, do_inspect, "inspect PATH [--json]"},
    {"globals", 1, 1, false, {"json"}, do_globals, "globals FILE [--json]"},
    {"plan", 0, 2, true, {"json"}, do_plan, "plan FROM TO [OPTION]..."},
    {"convert", 0, 2, true, {NULL}, do_convert, "convert FROM TO [OPTION]..."},
    {"verify", 2, 2, false, {"target-params-dtype", "merge-adapter"}, do_verify,
     "verify A B [--target-params-dtype TYPE] [--merge-adapter DIR...]"},
    {"diff", 2, 2, false, {"json", "merge-adapter"}, do_diff,
     "diff A B [--json] [--merge-adapter DIR...]"},
};

static bool takes_option(const struct command *c, const char *name)
{
    for (size_t i = 0; i < GPT_COUNT(c->takes); i++)
        if (c->takes[i] && strcmp(c->takes[i], name) == 0)
            return true;
    return c->converts && strcmp(name, "json") != 0;
}

/* No option is taken and then ignored. */
static int check_command(const struct command *c, const struct gpt_args *args,
                         struct gpt_err *err)
{
    for (size_t i = 0; i < GPT_COUNT(table); i++)
        if (table[i].kind != GPT_OPT_GROUP &&
            table[i].offset >= sizeof(struct gpt_common_options) &&
            !takes_option(c, table[i].name) &&
            gpt_option_given(args, table[i].name))
            return gpt_fail(err, GPT_EUSAGE, "--%s has no effect on %s",
                            table[i].name, c->name);
    return GPT_OK;
}

/* A word is a command. Paths that stand alone were meant for options, as other
 * converters take them: the hint has them in their places. */
static int run_command(const struct options *o, const struct gpt_args *args,
                       struct gpt_err *err)
{
    const char *names[GPT_COUNT(commands) + 1] = {NULL};
    const char *word = args->positional[0];
    const int paths = (int)args->n_positional - 1;

    for (size_t i = 0; i < GPT_COUNT(commands); i++) {
        const struct command *c = &commands[i];

        names[i] = c->name;
        if (strcmp(word, c->name) != 0)
            continue;
        GPT_TRY(check_command(c, args, err));
        /* a path too many would be ignored in silence, and one of two would
         * leave open which of them it is */
        if (paths >= c->least && paths <= c->most &&
            (paths != 1 || c->most == 1))
            return c->run(o, args, err);
        gpt_fail(err, GPT_EUSAGE, "%s needs %s", word,
                 c->most == 1 ? "a PATH" : "two paths");
        return gpt_hint(err, "gpt-reshape %s", c->usage);
    }
    gpt_fail_command(word, names,
                     "to look: gpt-reshape inspect PATH; to convert: "
                     "gpt-reshape convert FROM TO", err);
    return gpt_path_exists(word)
               ? gpt_hint(err,
                          "to convert: --load-path %.100s --save-path TO; to "
                          "look: gpt-reshape inspect %.100s", word, word)
               : GPT_EUSAGE;
}

static int run_reshape(const void *options, const struct gpt_args *args,
                       struct gpt_err *err)
{
    const struct options *o = options;

    if (args->n_positional == 0)
        return convert_paths(o, args, false, err);
    return run_command(o, args, err);
}

int main(int argc, char **argv)
{
    enum { N = GPT_COUNT(commands) };
    /* Completions offer words; a conversion is what happens without one. */
    const char *words[N + 1] = {NULL}, *usage[N + 2] = {NULL};
    static const char *const examples[] = {
        "gpt-reshape inspect ckpt",
        "gpt-reshape --load-path ckpt --save-path ckpt-tp2 "
        "--target-tensor-model-parallel-size 2",
        "gpt-reshape --load-path ckpt --save-path hf --to hf --verify",
        "gpt-reshape convert model model.gguf --merge-adapter adapter",
        NULL,
    };
    const struct gpt_program program = {
        .name = "gpt-reshape",
        .purpose = "Show and convert checkpoints.",
        .usage = usage,
        .examples = examples,
        .options = table,
        .n_options = GPT_COUNT(table),
        .foreign = gpt_reshape_foreign,
        .n_foreign = gpt_reshape_n_foreign,
        .hints = gpt_reshape_hints,
        .n_hints = gpt_reshape_n_hints,
        .options_bytes = sizeof(struct options),
        .computes = true,
        .max_positional = 3,
        .positional = "COMMAND PATH...",
        .commands = words,
        .words = GPT_OPT_FILE,
        .run = run_reshape,
    };

    for (size_t i = 0; i < N; i++) {
        words[i] = commands[i].name;
        usage[i] = commands[i].usage;
    }
    usage[N] = "--load-path PATH --save-path PATH [OPTION]...";
    return gpt_main(&program, argc, argv);
}
