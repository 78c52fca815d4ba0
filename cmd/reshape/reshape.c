/* Converting a checkpoint; see reshape.h. The formats' front ends plan and
 * write; here the options become what is asked of them, and what they wrote is
 * compared with the source. Start at gpt_reshape_open(). */
#include "cmd/reshape/reshape.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/num.h"
#include "checkpoint/adapter/adapter.h"
#include "checkpoint/fill.h"
#include "cmd/reshape/compare.h"
#include "tokenizer/hf_files.h"

#include <string.h>
#include <unistd.h>

/* Headers, pickles and plans grow with the number of tensors alone, and are
 * small beside what threads hold, which is this. It does not depend on the
 * model. */
int64_t gpt_reshape_memory(const struct gpt_reshape *r)
{
    return gpt_fill_memory(0, r->source.n_adapters > 0);
}

/* The target refers to the source's tensors and the arena's paths, so it goes
 * first. */
void gpt_reshape_close(struct gpt_reshape *r)
{
    gpt_target_close(&r->target);
    gpt_source_close(&r->source);
    gpt_arena_free(&r->arena);
    *r = (struct gpt_reshape){0};
}

/* ---- planning ---- */

/* A file that is copied last: its absence is found before the work. */
static int check_given(const char *path, struct gpt_err *err)
{
    if (strcmp(path, "-") == 0)
        return GPT_OK;
    if (access(path, R_OK) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot open '%s'", path);
    return gpt_path_is_dir(path)
               ? gpt_fail(err, GPT_EIO, "cannot read '%s': it is a directory",
                          path)
               : GPT_OK;
}

/* The input's vocabulary files, unless an option names another one in the place
 * of one. A path in a directory is longer than its parts, so it lies in the
 * arena. */
static int collect_attachments(struct gpt_reshape *r, struct gpt_err *err)
{
    const struct gpt_source *s = &r->source;
    const struct gpt_attachment given[] = {{GPT_HF_VOCAB, r->o->vocab_file},
                                           {GPT_HF_MERGES, r->o->merge_file}};

    r->attached =
        gpt_arena_alloc(&r->arena, (size_t)s->n_attached + GPT_COUNT(given),
                        sizeof(*r->attached));
    if (!r->attached)
        return gpt_no_memory(err, "a name");
    for (size_t k = 0; k < GPT_COUNT(given); k++)
        if (given[k].path) {
            GPT_TRY(check_given(given[k].path, err));
            r->attached[r->n_attached++] = given[k];
        }
    const int64_t n_given = r->n_attached;
    for (int64_t i = 0; i < s->n_attached; i++) {
        struct gpt_attachment a = {.name = s->attached[i]};
        bool replaced = false;

        for (int64_t k = 0; k < n_given; k++)
            replaced |= strcmp(r->attached[k].name, a.name) == 0;
        if (replaced)
            continue;
        a.path = s->format->is_file
                     ? gpt_arena_strdup(&r->arena, s->dir)
                     : gpt_arena_printf(&r->arena, "%s/%s", s->dir, a.name);
        if (!a.path)
            return gpt_no_memory(err, "a name");
        r->attached[r->n_attached++] = a;
    }
    return GPT_OK;
}

/* The output's true and padded vocabulary. Rows that the input has are kept,
 * dummies or not, unless another padding is asked for or they do not divide by
 * the layout: a checkpoint that goes to another layout and back is then the
 * same bytes. */
static int set_vocabulary(const struct gpt_reshape *r, struct gpt_config *c,
                          int64_t tp_size, struct gpt_err *err)
{
    const struct gpt_reshape_options *o = r->o;
    /* dummies that were added when the input was opened are none of its rows */
    const int64_t rows = r->source.format->stores_padding ? c->padded_vocab_size
                                                          : c->vocab_size;

    if (o->true_vocab > rows)
        return gpt_fail(err, GPT_EUSAGE,
                        "--true-vocab-size %lld: %s has %lld rows, and no more "
                        "ids than that",
                        (long long)o->true_vocab, r->source.dir,
                        (long long)rows);
    if (o->true_vocab)
        c->vocab_size = o->true_vocab;
    if (!o->to->stores_padding)
        return GPT_OK;
    if (o->repad || c->padded_vocab_size % tp_size != 0)
        c->padded_vocab_size =
            gpt_config_padded_vocab(c->vocab_size, o->divisible_by, tp_size);
    return GPT_OK;
}

static int count_chunks(const struct gpt_reshape *r, int64_t pp_size,
                        int64_t *chunks, struct gpt_err *err)
{
    const struct gpt_stage_layers *stages = &r->o->stages;
    const int64_t layers = r->source.config.num_layers;

    if (gpt_stage_layers_count(stages, layers, pp_size, chunks))
        return GPT_OK;
    return gpt_fail(err, GPT_EUSAGE,
                    "%lld layers do not divide into %lld stages of virtual "
                    "stages of %lld layers",
                    (long long)layers, (long long)pp_size,
                    (long long)stages->layers_per_chunk);
}

/* The library knows no options: heads are divided by one, layers by others. A
 * format without padding has no layout. */
static int check_heads(const struct gpt_reshape *r,
                       const struct gpt_target_options *to, struct gpt_err *err)
{
    if (!r->o->to->stores_padding ||
        gpt_target_check(r->o->to, to, err) == GPT_OK)
        return GPT_OK;
    if (!r->o->tp)
        return gpt_hint(err, "%lld is that of the input: choose another with "
                             "--target-tensor-model-parallel-size",
                        (long long)to->tp_size);
    return gpt_hint(err, "choose a divisor with "
                         "--target-tensor-model-parallel-size; gpt-reshape "
                         "inspect shows heads and groups of queries");
}

/* Where heads divide, all else that is wrong with a layout is layers. */
static int hint_layers(int status, const struct gpt_reshape_options *o,
                       struct gpt_err *err)
{
    if (status != GPT_EUSAGE || err->hint[0])
        return status;
    if (o->stages.chunks || o->stages.layers_per_chunk ||
        o->stages.first_layers || o->stages.last_layers)
        return gpt_hint(err, "gpt-reshape inspect shows how many layers there "
                             "are to share out");
    return gpt_hint(err, "choose a divisor with "
                         "--target-pipeline-model-parallel-size, or give the "
                         "first or last stage another number of layers with "
                         "--decoder-first-pipeline-num-layers or "
                         "--decoder-last-pipeline-num-layers");
}

/* A layout that is not asked for is the input's. */
static int plan_target(struct gpt_reshape *r, struct gpt_err *err)
{
    const struct gpt_reshape_options *o = r->o;
    struct gpt_target_options to = {
        .save = o->save,
        .config = r->source.config,
        .tp_size = o->tp ? o->tp : r->source.tp_size,
        .pp_size = o->pp ? o->pp : r->source.pp_size,
        .ep_size = o->ep,
        .first_layers = o->stages.first_layers,
        .last_layers = o->stages.last_layers,
        .dtype = o->dtype,
        .packing = o->packing,
        .style = o->style,
        .divisible_by = o->divisible_by,
        .max_shard_size = o->max_shard_size,
        .attached = r->attached,
        .n_attached = r->n_attached,
        .shard_optimizer = o->shard_optimizer,
        .force = o->force,
    };

    GPT_TRY(set_vocabulary(r, &to.config, to.tp_size, err));
    GPT_TRY(check_heads(r, &to, err));
    int status = count_chunks(r, to.pp_size, &to.chunks, err);
    if (status == GPT_OK)
        status = gpt_target_plan(&r->target, o->to, &r->source, &to, err);
    return hint_layers(status, o, err);
}

/* Where the output does not go: in the input's place, and into its directory. A
 * run removes its oldest checkpoints with all that is in them, and a directory
 * of Hugging Face is replaced as a whole; a file beside its files is no part of
 * the model, and there people expect one for llama.cpp. Where a path
 * that goes back leads is not known yet, and may be the input. */
static int check_apart(const struct gpt_reshape *r, struct gpt_err *err)
{
    const char *path = r->target.path;
    const struct gpt_source *s = &r->source;

    if (gpt_path_returns(r->o->save)) {
        gpt_fail(err, GPT_EUSAGE,
                 "'%s' goes back with '..' from a directory that is not there",
                 r->o->save);
        return gpt_hint(err, "name the place itself with --save-path");
    }
    if (gpt_path_same(path, s->dir) || gpt_path_same(path, r->o->load)) {
        gpt_fail(err, GPT_EUSAGE, "%s is the input", path);
        return gpt_hint(err, "name another directory with --save-path");
    }
    if (s->format->is_file || (r->o->to->is_file && !s->format->shares_dir) ||
        !gpt_path_below(path, s->dir))
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE,
             "'%s' lies in the input %s: whatever removes or replaces that "
             "would take the output along",
             r->o->save, s->dir);
    return gpt_hint(err, "name a %s outside of it with --save-path",
                    r->o->to->is_file ? "file" : "directory");
}

/* No checksums, which would be a reading of all files before an error. */
static bool headers_open(const char *path, bool weights_only)
{
    const struct gpt_source_options o = {.iteration = -1,
                                         .optimizer = !weights_only,
                                         .weights_only = weights_only};
    struct gpt_source s;

    if (gpt_source_open(&s, path, &o, NULL) != GPT_OK)
        return false;
    gpt_source_close(&s);
    return true;
}

/* Files of the optimizer's state may be gone on purpose: they are the largest
 * of a checkpoint, and others have no use for them. Where all headers open, a
 * checksum was wrong, which may be that of weights. */
static int explain_state(const struct gpt_reshape_options *o,
                         struct gpt_err *err)
{
    if (gpt_adapter_recognises(o->load))
        return gpt_hint(err, "%.150s is an adapter of PEFT: --load-path names "
                             "its model, which inspect shows, and "
                             "--merge-adapter the adapter", o->load);
    if (err->status != GPT_EDATA || !o->to->keeps_state ||
        headers_open(o->load, false) || !headers_open(o->load, true))
        return err->status;
    return gpt_hint(err, "its weights open without the optimizer's state: "
                         "--to hf converts these alone%s%s",
                    err->hint[0] ? "; " : "", err->hint);
}

/* A format that stores padding is given it when the input is opened; a format
 * that does not store it must not see any, or dummy rows would become real
 * ones. */
int gpt_reshape_open(struct gpt_reshape *r, const struct gpt_reshape_options *o,
                     struct gpt_err *err)
{
    struct gpt_source_options from = {.iteration = -1,
                                      .verify = o->verify_input,
                                      .verify_later = o->verify_input,
                                      .optimizer = o->to->keeps_state,
                                      .weights_only = !o->to->keeps_state};
    int status;

    *r = (struct gpt_reshape){.o = o};
    if (o->to->stores_padding) {
        from.divisible_by = o->divisible_by;
        from.tp_size = o->tp;
    }
    if (gpt_source_open_merged(&r->source, o->load, &from, o->adapters, err) !=
        GPT_OK)
        return explain_state(o, err);
    /* An output directory around the input would replace it as well. */
    GPT_TRY_GOTO(status,
                 r->source.format->is_file
                     ? gpt_in_protect(r->source.dir, err)
                     : gpt_in_protect_dir(r->source.dir, err),
                 fail);
    for (int64_t i = 0; i < r->source.n_adapters; i++)
        GPT_TRY_GOTO(status, gpt_in_protect_dir(r->source.adapters[i], err),
                     fail);
    GPT_TRY_GOTO(status, collect_attachments(r, err), fail);
    GPT_TRY_GOTO(status, plan_target(r, err), fail);
    GPT_TRY_GOTO(status, check_apart(r, err), fail);
    return GPT_OK;
fail:
    gpt_reshape_close(r);
    return status;
}

/* Tile after tile, of the largest tensors that come first: word tables. What is
 * measured is thrown away. Writing is not measured: only a full disk of data
 * tells how fast a disk is. */
int gpt_reshape_measure(struct gpt_reshape *r, double *rate,
                        struct gpt_err *err)
{
    enum { ENOUGH = 32 << 20 };
    int64_t bytes = 0;
    uint8_t *tile;
    int status = GPT_OK;

    GPT_TRY(gpt_new(&tile, GPT_TILE_BYTES, 1, "tile", err));
    const double start = gpt_now();
    for (int64_t i = 0; i < r->source.n_tensors && bytes < ENOUGH; i++) {
        const struct gpt_tensor *t = &r->source.tensors[i];
        const enum gpt_dtype to =
            r->o->dtype == GPT_N_DTYPES ? t->dtype : r->o->dtype;
        const int64_t row = (int64_t)gpt_dtype_bytes(to) *
                            (t->ndim > 1 ? t->shape[1] : 1);
        int64_t begin[GPT_TENSOR_DIMS] = {0}, shape[GPT_TENSOR_DIMS];

        memcpy(shape, t->shape, sizeof(shape));
        shape[0] = gpt_min_i64(t->shape[0],
                               GPT_TILE_BYTES / gpt_max_i64(row, 1));
        GPT_TRY_GOTO(status, gpt_tensor_gather(t, begin, shape, to, tile, err),
                     out);
        bytes += shape[0] * row;
    }
    /* a test's model is done in less time than a clock can tell from none, and
     * a rate made of that would promise anything */
    const double seconds = gpt_now() - start;
    *rate = seconds > 1e-4 ? (double)bytes / seconds : 0;
out:
    gpt_free(tile);
    return status;
}

/* ---- writing ---- */

int gpt_reshape_write(struct gpt_reshape *r, gpt_bytes_done *done,
                      void *context, struct gpt_err *err)
{
    return gpt_target_write(&r->target, done, context, err);
}

/* ---- verifying ---- */

/* Compares every tensor of the output with the input's tensor of that name,
 * after the cast. Rows that only one of the two has are padding, which may
 * differ. *how is set where numbers are stored otherwise than as they are. */
static int compare_tensors(const struct gpt_source *in,
                           const struct gpt_source *out, const char **how,
                           struct gpt_err *err)
{
    uint8_t *tiles;
    int status = GPT_OK;

    GPT_TRY(gpt_new(&tiles, 2, GPT_TILE_BYTES, "tiles", err));
    for (int64_t i = 0; status == GPT_OK && i < out->n_tensors; i++) {
        const struct gpt_tensor *to = &out->tensors[i];
        const struct gpt_tensor *from = gpt_source_find(in, to->name);

        const struct gpt_packing *packing =
            from ? gpt_compare_packing(from, to) : NULL;
        if (packing && packing->how)
            *how = packing->how;
        if (from)
            status = gpt_compare_rows(
                from, to, gpt_min_i64(from->shape[0], to->shape[0]), tiles,
                err);
        else
            status = gpt_fail(err, GPT_EDATA, "tensor '%s' is new", to->name);
    }
    gpt_free(tiles);
    return status;
}

/* Opens the output as any program would, through its own front end and with its
 * checksums: what is compared is what a reader gets, not what the writer
 * remembers. */
int gpt_reshape_verify(struct gpt_reshape *r, const char **how,
                       struct gpt_err *err)
{
    const struct gpt_source_options verified = {
        .iteration = -1, .verify = true, .optimizer = r->o->to->keeps_state};
    struct gpt_source out;

    *how = NULL;
    /* The number of tensors is compared first: a tensor that the output lacks
     * would not be missed below. */
    GPT_TRY(gpt_source_open(&out, r->target.path, &verified, err));
    int status = out.n_tensors == r->target.n_tensors
                     ? compare_tensors(&r->source, &out, how, err)
                     : gpt_fail(err, GPT_EDATA, "%lld tensors, expected %lld",
                                (long long)out.n_tensors,
                                (long long)r->target.n_tensors);
    gpt_source_close(&out);
    return status == GPT_OK ? GPT_OK
                            : gpt_context(err, "%s: verify", r->target.path);
}
