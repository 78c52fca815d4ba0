/* Carrying out a conversion, and checking it. */
#include "cmd/reshape/reshape.h"

#include "base/log.h"
#include "base/num.h"
#include "checkpoint/manifest.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { PATH = GPT_PATH_BYTES };

int64_t gpt_reshape_memory(void)
{
    return GPT_TILE_BYTES + (int64_t)omp_get_max_threads() * GPT_TILE_SCRATCH;
}

/* ---- files beside the weights ---- */

struct attachment {
    const char *name;
    char path[PATH];
};

/* The i-th file to put beside: those named by options, then the source's. */
static int attachment(const struct gpt_reshape *r, int64_t i,
                      struct attachment *a, struct gpt_err *err)
{
    const struct gpt_reshape_options *o = r->o;
    const char *const given[][2] = {{"vocab.json", o->vocab_file},
                                    {"merges.txt", o->merge_file}};

    a->name = NULL;
    for (size_t k = 0; k < 2; k++)
        if (given[k][1] && i-- == 0) {
            a->name = given[k][0];
            snprintf(a->path, sizeof(a->path), "%s", given[k][1]);
            return GPT_OK;
        }
    const char *name;
    for (int64_t k = 0; (name = gpt_source_attached(&r->source, k)); k++) {
        bool replaced = false;

        for (size_t j = 0; j < 2; j++)
            replaced |= given[j][1] && strcmp(given[j][0], name) == 0;
        if (!replaced && i-- == 0) {
            a->name = name;
            return gpt_path_join(a->path, sizeof(a->path), r->source.dir, name,
                                 err);
        }
    }
    return GPT_OK;
}

static bool attaches(const struct gpt_reshape *r, const char *name)
{
    struct attachment a;

    for (int64_t i = 0; attachment(r, i, &a, NULL) == GPT_OK && a.name; i++)
        if (strcmp(a.name, name) == 0)
            return true;
    return false;
}

/* ---- native ---- */

/* Adds what the files before this one wrote. */
struct progress {
    gpt_bytes_done *done;
    void *context;
    int64_t before, now;
};

static void report(void *context, int64_t bytes)
{
    struct progress *p = context;

    p->now = bytes;
    if (p->done)
        p->done(p->context, p->before + bytes);
}

/* A checkpoint's own state, or the beginning of a run. */
static cJSON *make_state(const struct gpt_reshape *r)
{
    if (r->source.native)
        return cJSON_Duplicate(gpt_checkpoint_state(r->source.native), true);
    struct gpt_hf_extra extra = gpt_hf_extra(r->source.hf);
    cJSON *state = cJSON_CreateObject();
    cJSON_AddNumberToObject(state, "iteration", 0);
    cJSON_AddNumberToObject(state, "consumed_train_samples", 0);
    cJSON_AddNumberToObject(state, "consumed_valid_samples", 0);
    cJSON_AddStringToObject(state, "converted_from", "huggingface");
    if (extra.eos_token_id >= 0)
        cJSON_AddNumberToObject(state, "eos_token_id",
                                (double)extra.eos_token_id);
    return state;
}

static int write_native(struct gpt_reshape *r, struct gpt_checkpoint_writer *w,
                        struct progress *p, struct gpt_err *err)
{
    struct attachment a;

    for (int64_t i = 0; i < r->n_files; i++) {
        const struct gpt_reshape_file *f = &r->files[i];

        GPT_TRY(gpt_checkpoint_write_plan(w, f->name, f->slices, f->sources,
                                          f->n, report, p, err));
        p->before += p->now;
    }
    for (int64_t i = 0;; i++) {
        GPT_TRY(attachment(r, i, &a, err));
        if (!a.name)
            return GPT_OK;
        GPT_TRY(gpt_checkpoint_attach(w, a.name, a.path, err));
    }
}

static int run_native(struct gpt_reshape *r, gpt_bytes_done *done,
                      void *context, struct gpt_err *err)
{
    struct progress p = {done, context, 0, 0};
    struct gpt_checkpoint_writer *w;
    char target[PATH];

    GPT_TRY(gpt_checkpoint_path(target, sizeof(target), r->o->save,
                                r->source.iteration, err));
    if (gpt_path_same(target, r->source.dir))
        return gpt_fail(err, GPT_EUSAGE, "%s is the input", target);
    GPT_TRY(gpt_checkpoint_create(&w, r->o->save, r->source.iteration,
                                  r->o->force ? GPT_OUT_FORCE : 0, err));
    int status = write_native(r, w, &p, err);
    if (status != GPT_OK) {
        gpt_checkpoint_abort(w);
        return status;
    }
    cJSON *state = make_state(r);
    status = gpt_checkpoint_commit(w, &r->config, r->tp, r->pp, state, err);
    cJSON_Delete(state);
    return status;
}

/* ---- Hugging Face ---- */

static int copy_into(const char *dir, const char *name, const char *source,
                     unsigned flags, struct gpt_err *err)
{
    char path[PATH], *text;
    size_t len;

    GPT_TRY(gpt_path_join(path, sizeof(path), dir, name, err));
    GPT_TRY(gpt_read_file(source, GPT_FILE_LIMIT, &text, &len, err));
    int status = gpt_write_file(path, flags, text, len, err);
    gpt_free(text);
    return status;
}

/* Vocabulary files; transformers finds the tokenizer by its class. */
static int write_vocab(const struct gpt_reshape *r, const char *dir,
                       unsigned flags, struct gpt_err *err)
{
    char path[PATH], text[128];
    struct attachment a;

    for (int64_t i = 0;; i++) {
        GPT_TRY(attachment(r, i, &a, err));
        if (!a.name)
            break;
        GPT_TRY(copy_into(dir, a.name, a.path, flags, err));
    }
    if (!attaches(r, "vocab.json") || attaches(r, "tokenizer_config.json"))
        return GPT_OK;
    GPT_TRY(gpt_path_join(path, sizeof(path), dir, "tokenizer_config.json",
                          err));
    int len = snprintf(text, sizeof(text),
                       "{\n\t\"model_max_length\":\t%lld,\n"
                       "\t\"tokenizer_class\":\t\"GPT2Tokenizer\"\n}\n",
                       (long long)r->config.max_positions);
    return gpt_write_file(path, flags, text, (size_t)len, err);
}

static int run_hf(struct gpt_reshape *r, gpt_bytes_done *done, void *context,
                  struct gpt_err *err)
{
    unsigned flags = r->o->force ? GPT_OUT_FORCE : 0;
    struct gpt_outdir *dir;

    if (gpt_path_same(r->o->save, r->o->load) ||
        gpt_path_same(r->o->save, r->source.dir))
        return gpt_fail(err, GPT_EUSAGE, "%s is the input", r->o->save);
    GPT_TRY(gpt_outdir_open(&dir, r->o->save, flags, err));
    flags |= GPT_OUT_INSIDE;
    int status = gpt_hf_write(&r->hf, gpt_outdir_path(dir), flags, done,
                              context, err);
    if (status == GPT_OK)
        status = write_vocab(r, gpt_outdir_path(dir), flags, err);
    if (status == GPT_OK)
        return gpt_outdir_commit(dir, err);
    gpt_outdir_abort(dir);
    return status;
}

int gpt_reshape_run(struct gpt_reshape *r, gpt_bytes_done *done, void *context,
                    struct gpt_err *err)
{
    return r->o->to_hf ? run_hf(r, done, context, err)
                       : run_native(r, done, context, err);
}

/* ---- verifying ---- */

/* `rows` rows of both, read as the output's type, must be the same bytes. */
static int compare(const struct gpt_tensor *in, const struct gpt_tensor *out,
                   int64_t rows, uint8_t *a, uint8_t *b, struct gpt_err *err)
{
    int64_t shape[GPT_TENSOR_DIMS], begin[GPT_TENSOR_DIMS] = {0};
    int64_t row = (int64_t)gpt_dtype_bytes(out->dtype);

    memcpy(shape, out->shape, sizeof(shape));
    for (int d = 1; d < out->ndim; d++)
        row *= out->shape[d];
    int64_t step = GPT_TILE_BYTES / gpt_max_i64(row, 1);
    if (step < 1)
        return gpt_fail(err, GPT_EDATA,
                        "tensor '%s': a row of %lld bytes, limit %d",
                        out->name, (long long)row, GPT_TILE_BYTES);
    for (; begin[0] < rows; begin[0] += step) {
        shape[0] = gpt_min_i64(step, rows - begin[0]);
        GPT_TRY(gpt_tensor_gather(in, begin, shape, out->dtype, a, err));
        GPT_TRY(gpt_tensor_gather(out, begin, shape, out->dtype, b, err));
        if (memcmp(a, b, (size_t)(shape[0] * row)) != 0)
            return gpt_fail(err, GPT_EDATA,
                            "tensor '%s': rows %lld to %lld differ from the "
                            "input's",
                            out->name, (long long)begin[0],
                            (long long)(begin[0] + shape[0] - 1));
    }
    return GPT_OK;
}

static int verify_tensors(const struct gpt_reshape *r,
                          const struct gpt_source *out, struct gpt_err *err)
{
    uint8_t *tiles;
    int status = GPT_OK;

    GPT_TRY(gpt_new(&tiles, 2, GPT_TILE_BYTES, "tiles", err));
    for (int64_t i = 0; status == GPT_OK && i < out->n; i++) {
        const struct gpt_tensor *to = &out->tensors[i];
        const struct gpt_tensor *from =
            gpt_source_find(&r->source, to->name);

        if (from)
            status = compare(from, to,
                             gpt_min_i64(from->shape[0], to->shape[0]), tiles,
                             tiles + GPT_TILE_BYTES, err);
        else
            status = gpt_fail(err, GPT_EDATA, "tensor '%s' is new", to->name);
    }
    gpt_free(tiles);
    return status;
}

int gpt_reshape_verify(struct gpt_reshape *r, struct gpt_err *err)
{
    struct gpt_source out;
    char target[PATH];

    GPT_TRY(gpt_checkpoint_path(target, sizeof(target), r->o->save,
                                r->source.iteration, err));
    const char *path = r->o->to_hf ? r->o->save : target;
    int64_t want = r->table.n;
    for (int64_t i = 0; !r->o->to_hf && i < r->source.n; i++)
        want += strncmp(r->source.tensors[i].name, "optimizer.", 10) == 0;
    GPT_TRY(gpt_source_open(&out, path, true, 1, 1, err));
    int status = out.n == want ? verify_tensors(r, &out, err)
                               : gpt_fail(err, GPT_EDATA,
                                          "%lld tensors, expected %lld",
                                          (long long)out.n, (long long)want);
    gpt_source_close(&out);
    return status == GPT_OK ? GPT_OK : gpt_context(err, "%s: verify", path);
}
