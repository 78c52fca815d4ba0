/* From options to what is to be done; see plan.h. What an option may be is
 * checked by the option table; what options mean together is checked here.
 * Start at gpt_preprocess_plan_open(). */
#include "cmd/preprocess/plan.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/num.h"
#include "data/shard_names.h"
#include "text/inputs.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

const char *const gpt_preprocess_empties[] = {
    [GPT_EMPTY_KEEP] = "keep",
    [GPT_EMPTY_DROP] = "drop",
    [GPT_EMPTY_EOD] = "eod",
    NULL,
};

/* ---- inputs and outputs ---- */

/* "I/N" */
static int parse_shard(struct gpt_preprocess_plan *p, const char *text,
                       struct gpt_err *err)
{
    char first[24];

    p->shard = p->n_shards = 1;
    if (!text)
        return GPT_OK;
    size_t len = strcspn(text, "/");
    bool good = len < sizeof(first) && text[len];
    if (good) {
        memcpy(first, text, len);
        first[len] = '\0';
        good = gpt_parse_int(first, &p->shard) &&
               gpt_parse_int(text + len + 1, &p->n_shards);
    }
    if (good && p->shard >= 1 && p->shard <= p->n_shards &&
        p->n_shards <= GPT_MAX_SHARDS)
        return GPT_OK;
    return gpt_fail(err, GPT_EUSAGE, "--shard is '%.50s', must be I/N with "
                    "1 <= I <= N <= %d", text, GPT_MAX_SHARDS);
}

/* Shards run on several machines with the same command line: each gives its own
 * name to what it writes. */
static int name_output(const char **out, struct gpt_preprocess_plan *p,
                       const struct gpt_preprocess_command *c,
                       const char *name, struct gpt_err *err)
{
    *out = c->shard ? gpt_shard_name(&p->arena, name, p->shard, p->n_shards)
                    : name;
    return *out ? GPT_OK : gpt_no_memory(err, "a name");
}

static int plan_files(struct gpt_preprocess_plan *p,
                      const struct gpt_preprocess_command *c,
                      struct gpt_err *err)
{
    struct gpt_preprocess_options *o = &p->options;
    const char *const *paths;
    int64_t n;

    GPT_TRY(parse_shard(p, c->shard, err));
    /* Directories and patterns first: the shard is a part of all that they
     * hold. */
    GPT_TRY(gpt_inputs_expand(&p->arena, c->input.items, c->input.n, &paths,
                              &n, err));
    GPT_TRY(gpt_inputs_shard(&p->arena, paths, n, p->shard, p->n_shards,
                             &o->inputs, &o->n_inputs, err));
    return name_output(&o->output_prefix, p, c, c->output_prefix, err);
}

/* ---- the rest ---- */

/* Megatron-LM's option for workers comes before the one that all programs here
 * have. */
static int64_t count_workers(const struct gpt_preprocess_command *c)
{
    if (c->workers)
        return c->workers;
    return c->common.threads ? c->common.threads
                             : (int64_t)sysconf(_SC_NPROCESSORS_ONLN);
}

static int plan_bad_lines(struct gpt_preprocess_plan *p,
                          const struct gpt_preprocess_command *c,
                          struct gpt_err *err)
{
    static const char prefix[] = "quarantine=";
    const size_t n = sizeof(prefix) - 1;
    struct gpt_preprocess_options *o = &p->options;

    o->max_bad = c->max_errors;
    o->skip_bad = strcmp(c->on_error, "stop") != 0;
    if (!o->skip_bad && c->max_errors >= 0)
        return gpt_fail(err, GPT_EUSAGE, "--max-errors %lld goes with "
                        "--on-error skip or quarantine=FILE, not with stop",
                        (long long)c->max_errors);
    if (!o->skip_bad || strcmp(c->on_error, "skip") == 0)
        return GPT_OK;
    if (strncmp(c->on_error, prefix, n) != 0 || !c->on_error[n])
        return gpt_fail(err, GPT_EUSAGE, "--on-error '%s' is none of stop, "
                        "skip and quarantine=FILE", c->on_error);
    return name_output(&o->quarantine, p, c, c->on_error + n, err);
}

/* Megatron-LM deals lines out to partitions in turn, and joins these one after
 * the other: an order of documents that depends on the number of partitions,
 * and that takes as many copies of the corpus. */
static int check_partitions(const struct gpt_preprocess_command *c,
                            struct gpt_err *err)
{
    if (c->partitions == 1 || c->keep_sequential)
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE, "--partitions %lld would change the order of the "
             "documents, which this program keeps", (long long)c->partitions);
    return gpt_hint(err, "give --keep-sequential-samples too, or leave "
                    "--partitions out: --workers are enough");
}

static enum gpt_empty find_empty(const char *name)
{
    enum gpt_empty e = 0;

    while (strcmp(gpt_preprocess_empties[e], name) != 0) {
        e++;
        assert(gpt_preprocess_empties[e]); /* the option is one of them */
    }
    return e;
}

/* What the option table has checked is only copied. */
static void copy_options(struct gpt_preprocess_plan *p,
                         const struct gpt_preprocess_command *c)
{
    struct gpt_preprocess_options *o = &p->options;
    bool tntidx = strcmp(c->dataset_impl, "mmap") != 0;
    bool any_type = strcmp(c->dtype, "auto") == 0;

    p->dtype = strcmp(c->dtype, "uint16") == 0 ? GPT_U16 : GPT_I32;
    o->keys = c->json_keys.items;
    o->n_keys = c->json_keys.n;
    o->append_eod = c->append_eod;
    o->empty = find_empty(c->empty);
    /* Megatron-LM writes int32 wherever it writes the old index. */
    o->dtype = any_type && !tntidx ? NULL : &p->dtype;
    o->tntidx = tntidx;
    o->out_flags = c->common.force ? GPT_OUT_FORCE : 0;
    o->workers = count_workers(c);
    o->provenance = c->provenance;
    o->sources = c->sources;
    o->shard = p->shard;
    o->n_shards = c->shard ? p->n_shards : 0;
    o->resume = c->resume;
    o->resume_seconds = c->resume_interval;
}

int gpt_preprocess_plan_open(struct gpt_preprocess_plan *p,
                             const struct gpt_preprocess_command *c,
                             struct gpt_err *err)
{
    memset(p, 0, sizeof(*p));
    p->start = gpt_now();
    GPT_TRY(plan_files(p, c, err));
    copy_options(p, c);
    GPT_TRY(check_partitions(c, err));
    return plan_bad_lines(p, c, err);
}

void gpt_preprocess_plan_close(struct gpt_preprocess_plan *p)
{
    gpt_preprocess_give_up(&p->options); /* the reader uses what follows */
    gpt_arena_free(&p->arena);
    gpt_buf_free(&p->command_lines);
    gpt_tokenizer_close(p->tokenizer);
}

/* ---- the tokenizer ---- */

/* The provenance depends on nothing but input and options: those that concern
 * one process alone are left out of its command. */
static int describe_command(struct gpt_preprocess_plan *p,
                            const struct gpt_preprocess_command *c,
                            const struct gpt_args *args, struct gpt_err *err)
{
    size_t n;

    p->tokenizer_id.options = &c->tokenizer;
    GPT_TRY(gpt_tokenizer_files(&c->tokenizer, p->files, &n, err));
    for (size_t i = 0; i < n; i++)
        GPT_TRY(gpt_tokenizer_id_add(&p->tokenizer_id, p->files[i].option,
                                     p->files[i].path, err));
    if (gpt_options_lines(args, c, GPT_LINES_GIVEN | GPT_LINES_SHARED,
                          &p->command_lines) == GPT_OK)
        return GPT_OK;
    return gpt_no_memory(err, "the command");
}

int gpt_preprocess_plan_tokenizer(struct gpt_preprocess_plan *p,
                                  const struct gpt_preprocess_command *c,
                                  const struct gpt_args *args,
                                  struct gpt_err *err)
{
    GPT_TRY(gpt_tokenizer_open_given(&p->tokenizer, &c->tokenizer, err));
    GPT_TRY(describe_command(p, c, args, err));
    p->options.tokenizer = p->tokenizer;
    p->options.tokenizer_id = &p->tokenizer_id;
    p->options.command = p->command_lines.data;
    return GPT_OK;
}
