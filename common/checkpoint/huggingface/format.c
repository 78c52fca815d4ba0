/* The front end of Hugging Face directories: a row of checkpoint/format.h.
 * What config.json and the tensors mean is huggingface.h's; here a directory
 * becomes a source, and a source becomes a directory. Start at open_hf() and
 * plan_hf(). */
#include "base/log.h"
#include "checkpoint/attached.h"
#include "checkpoint/fill.h"
#include "checkpoint/format.h"
#include "checkpoint/huggingface/trainer.h"
#include "checkpoint/run_state.h"
#include "checkpoint/safetensors/entry.h"
#include "checkpoint/small_file.h"

#include <stdio.h>
#include <string.h>

/* ---- reading ---- */

/* Native checkpoints are asked first, so a config.json that lies beside one
 * does not hide it. */
static bool recognise_hf(const char *path)
{
    return gpt_path_holds(path, GPT_HF_CONFIG);
}

struct hf_source {
    struct gpt_hf *model;
    const struct gpt_hf_trainer *run; /* whose optimizer's state is read */
    cJSON *state;                     /* then */
};

/* Sizes are those of the files, headers included: what a conversion reads. */
static int list_files(struct gpt_source *s, struct gpt_err *err)
{
    const struct hf_source *d = s->data;
    const struct gpt_safetensors *shard;
    const char *name;
    int64_t n = 0;

    while (gpt_hf_shard(d->model, (size_t)n, &name))
        n++;
    struct gpt_source_file *files =
        gpt_arena_alloc(&s->arena, (size_t)n + 1, sizeof(*files));
    if (!files)
        return gpt_no_memory(err, "files of a model");
    for (int64_t i = 0; i < n; i++) {
        shard = gpt_hf_shard(d->model, (size_t)i, &name);
        files[i] =
            (struct gpt_source_file){name, gpt_in_size(shard->in), shard->n};
        s->weight_bytes += files[i].bytes;
    }
    if (d->run) {
        files[n] = (struct gpt_source_file){
            d->run->file, gpt_in_size(d->run->torch.in),
            d->run->adam.moments.n};
        s->weight_bytes += files[n++].bytes;
    }
    s->files = files;
    s->n_files = n;
    return GPT_OK;
}

/* Steps are counted there, and no samples. Without the optimizer's state there
 * is no run. */
static int make_state(struct gpt_source *s, struct gpt_err *err)
{
    struct hf_source *d = s->data;
    const struct gpt_torch_adam *adam = &d->run->adam;

    s->iteration = gpt_hf_trainer_steps(s->dir, adam->step);
    d->state = gpt_run_state_make(s->iteration, 0, 0);
    gpt_run_state_put_run(d->state, adam->step, GPT_RUN_SEED_UNKNOWN,
                          gpt_hf_trainer_counts(s->dir) ? "Trainer"
                                                        : "accelerate");
    gpt_run_state_put_tokens(d->state, s->bos_token_id, s->eos_token_id,
                             &s->ends);
    gpt_run_state_put_family(d->state, s->family);
    s->state = d->state;
    if (!d->state)
        return gpt_no_memory(err, "the state of a run");
    return adam->others ? gpt_source_leave_out(s, adam->others,
                                               (int)strlen(adam->others), err)
                        : GPT_OK;
}

/* What is there and cannot go on is no failure, as weights alone can be
 * used. */
static int read_run(struct gpt_source *s, struct gpt_err *err)
{
    struct hf_source *d = s->data;
    const char *why;

    if (!gpt_hf_trainer_has(s->dir))
        return GPT_OK;
    GPT_TRY(gpt_hf_read_run(d->model, &d->run, &why, err));
    if (d->run)
        return make_state(s, err);
    gpt_warn("%s: its optimizer state is left out: %s", s->dir, why);
    return GPT_OK;
}

/* Padding is applied here, when the parameters become views. The source then
 * has a vocabulary of the height that was asked for, as a native checkpoint has
 * that was saved with that padding. */
static int open_hf(struct gpt_source *s, const char *path,
                   const struct gpt_source_options *o, struct gpt_err *err)
{
    struct hf_source *d;

    if (o->iteration >= 0) {
        gpt_fail(err, GPT_EUSAGE,
                 "%s: a Hugging Face directory holds one model and no "
                 "iterations; iteration %lld is asked for",
                 path, (long long)o->iteration);
        return gpt_hint(err, "ask for no iteration");
    }
    s->dir = gpt_arena_strdup(&s->arena, path);
    if (!s->dir)
        return gpt_no_memory(err, "a directory's name");
    /* from here on close_hf() frees it, also after a failure */
    GPT_TRY(gpt_new(&d, 1, sizeof(*d), "a model", err));
    s->data = d;
    GPT_TRY(gpt_hf_open(&d->model, path, o->divisible_by, o->tp_size, err));
    s->config = *gpt_hf_config(d->model);
    const struct gpt_hf_extra extra = gpt_hf_extra(d->model);
    gpt_hf_import_extra(s, &extra);
    s->counted_anew = gpt_hf_counts_anew(d->model);
    if (o->optimizer)
        GPT_TRY(read_run(s, err));
    s->tensors = gpt_hf_tensors(d->model, &s->n_tensors);
    GPT_TRY(list_files(s, err));
    return gpt_hf_import_attached(s, d->run ? d->run->file : NULL, err);
}

static void close_hf(struct gpt_source *s)
{
    struct hf_source *d = s->data;

    if (!d)
        return;
    gpt_hf_close(d->model);
    cJSON_Delete(d->state);
    gpt_free(d);
}

static int list_entries(const struct gpt_safetensors *st, const char *file,
                        gpt_stored_visit *visit, void *context,
                        struct gpt_err *err)
{
    for (int64_t i = 0; i < st->n; i++) {
        const struct gpt_stored stored =
            gpt_stored_entry(&st->tensors[i], file);

        GPT_TRY(visit(context, &stored, err));
    }
    return GPT_OK;
}

/* Shows the entries of the files, under their own names: what a user compares
 * with another tool's listing. */
static int list_hf(const struct gpt_source *s, gpt_stored_visit *visit,
                   void *context, struct gpt_err *err)
{
    const struct hf_source *d = s->data;
    const struct gpt_safetensors *shard;
    const char *name;

    for (size_t i = 0; (shard = gpt_hf_shard(d->model, i, &name)); i++)
        GPT_TRY(list_entries(shard, name, visit, context, err));
    return d->run ? list_entries(&d->run->adam.moments, d->run->file, visit,
                                 context, err)
                  : GPT_OK;
}

/* ---- planning ---- */

/* What ends a text, for a source that does not say: what ends a document in the
 * vocabulary that goes with the model, or GPT-2's token when the size is
 * GPT-2's. A vocabulary that cannot be read is no failure here; copying it
 * reports that. */
static int64_t guess_end_of_text(const struct gpt_target *t)
{
    struct gpt_tokenizer_options options;
    struct gpt_tokenizer *tok;
    int64_t id = -1;

    if (gpt_target_tokenizer(&tok, &options, t, NULL) == GPT_OK && tok)
        id = gpt_tokenizer_eod(tok);
    gpt_tokenizer_close(tok);
    if (id >= 0 && id < t->o.config.vocab_size)
        return id;
    return t->o.config.vocab_size == 50257 ? 50256 : GPT_TOKEN_NONE;
}

/* A source that says "none" is believed; one that says nothing is not taken for
 * that. GPT-2 begins texts with the token that ends them. */
static struct gpt_hf_extra find_extra(const struct gpt_target *t)
{
    struct gpt_hf_extra extra = {.bos_token_id = t->source->bos_token_id,
                                 .eos_token_id = t->source->eos_token_id,
                                 .ends = t->source->ends};
    const char *family = t->source->family;

    if (family)
        extra.family = gpt_hf_family_find(family, NULL);
    if (extra.eos_token_id == GPT_TOKEN_UNKNOWN)
        extra.eos_token_id = guess_end_of_text(t);
    if (extra.bos_token_id == GPT_TOKEN_UNKNOWN)
        extra.bos_token_id = extra.eos_token_id;
    return extra;
}

static void free_hf_plan(struct gpt_target *t)
{
    if (t->data)
        gpt_hf_plan_free(t->data);
    gpt_free(t->data);
}

/* Sizes of files are those of their tensors. A header of a few kilobytes, which
 * the writer makes, is not counted. */
static int plan_hf(struct gpt_target *t, struct gpt_err *err)
{
    const struct gpt_hf_extra extra = find_extra(t);
    struct gpt_hf_plan *plan;

    snprintf(t->path, sizeof(t->path), "%s", t->o.save);
    GPT_TRY(gpt_new(&plan, 1, sizeof(*plan), "plan", err));
    t->data = plan;
    GPT_TRY(gpt_hf_plan(plan, &t->o.config, &extra, t->source, t->o.dtype,
                        t->o.max_shard_size, err));
    GPT_TRY(gpt_target_files(t, plan->n_shards, err));
    for (int64_t k = 0; k < t->n_files; k++)
        gpt_hf_shard_name(t->files[k].name, sizeof(t->files[k].name), k,
                          plan->n_shards);
    for (int64_t i = 0; i < plan->n; i++) {
        struct gpt_target_file *f = &t->files[plan->shard[i]];

        f->bytes += gpt_hf_tensor_bytes(&plan->tensors[i]);
        f->tensors++;
    }
    t->n_tensors = plan->n_params;
    return GPT_OK;
}

/* ---- writing ---- */

/* In one piece: vocabulary files have a few megabytes. */
static int copy_attached(const struct gpt_attachment *a, const char *dir,
                         unsigned flags, struct gpt_err *err)
{
    char *text;
    size_t len;

    GPT_TRY(gpt_attachment_read(a, &text, &len, err));
    int status = gpt_small_file_write(dir, a->name, flags, text, len, err);
    gpt_free(text);
    return status;
}

/* transformers chooses the tokenizer by a class that vocab.json does not name,
 * so a file that names it goes beside. */
static int write_vocabulary(const struct gpt_target *t, const char *dir,
                            unsigned flags, struct gpt_err *err)
{
    static const char format[] = "{\n\t\"model_max_length\":\t%lld,\n"
                                 "\t\"tokenizer_class\":\t"
                                 "\"GPT2Tokenizer\"\n}\n";
    char text[160];

    for (int64_t i = 0; i < t->o.n_attached; i++)
        GPT_TRY(copy_attached(&t->o.attached[i], dir, flags, err));
    if (!gpt_target_attached(t, GPT_HF_VOCAB) ||
        gpt_target_attached(t, GPT_HF_TOKENIZER_CONFIG))
        return GPT_OK;
    int n = snprintf(text, sizeof(text), format,
                     (long long)t->o.config.max_positions);
    return gpt_small_file_write(dir, GPT_HF_TOKENIZER_CONFIG, flags, text,
                                (size_t)n, err);
}

/* The directory appears under its name when all of it is on disk. Files inside
 * are written with GPT_OUT_INSIDE: they need no name of their own before the
 * directory has its name. */
static int write_hf(struct gpt_target *t, struct gpt_fill *fill,
                    struct gpt_err *err)
{
    const unsigned inside = fill->flags | GPT_OUT_INSIDE;
    struct gpt_outdir *dir;
    int status;

    GPT_TRY(gpt_outdir_open(&dir, t->o.save, fill->flags, err));
    GPT_TRY_GOTO(status,
                 gpt_hf_write(t->data, gpt_outdir_path(dir), inside, fill, err),
                 fail);
    GPT_TRY_GOTO(status,
                 write_vocabulary(t, gpt_outdir_path(dir),
                                  gpt_small_flags(inside), err),
                 fail);
    return gpt_outdir_commit(dir, err);
fail:
    gpt_outdir_abort(dir);
    return status;
}

const struct gpt_format gpt_format_hf = {
    .name = "hf",
    .title = "huggingface",
    .keeps_ends = GPT_ENDS,
    .has_shards = true,
    .recognises = recognise_hf,
    .open = open_hf,
    .close = close_hf,
    .list = list_hf,
    .explain = gpt_hf_explain,
    .plan = plan_hf,
    .free_plan = free_hf_plan,
    .write = write_hf,
};
