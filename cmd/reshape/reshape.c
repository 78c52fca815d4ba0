/* Planning a conversion. For the native format, every rank's part of every
 * group of tensors (the parameters, each kind of optimizer state) becomes a
 * file; model/params.h says what a rank holds. reshape_run.c carries it out. */
#include "cmd/reshape/reshape.h"

#include "base/io.h"
#include "base/num.h"

#include <stdio.h>
#include <string.h>

static const char optimizer[] = "optimizer.";

void gpt_reshape_close(struct gpt_reshape *r)
{
    for (int64_t i = 0; i < r->n_files; i++) {
        gpt_free(r->files[i].slices);
        gpt_free(r->files[i].sources);
    }
    for (int64_t i = 0; i < r->n_resized; i++)
        gpt_tensor_free(&r->resized[i]);
    gpt_free(r->files);
    gpt_free(r->resized);
    gpt_hf_plan_free(&r->hf);
    gpt_params_free(&r->table);
    gpt_source_close(&r->source);
    gpt_arena_free(&r->arena);
    *r = (struct gpt_reshape){0};
}

/* "optimizer.exp_avg.NAME": NAME, and the length of "optimizer.exp_avg.". The
 * parameters themselves are the group of length 0. */
static const char *param_of(const char *name, size_t *group)
{
    const char *dot = NULL;

    *group = 0;
    if (strncmp(name, optimizer, sizeof(optimizer) - 1) == 0)
        dot = strchr(name + sizeof(optimizer) - 1, '.');
    if (dot)
        *group = (size_t)(dot + 1 - name);
    return name + *group;
}

/* The groups of the source, as prefixes in the arena; "" is the first. */
enum { MAX_GROUPS = 16 };
static int find_groups(struct gpt_reshape *r, const char **groups, int *n,
                       struct gpt_err *err)
{
    *n = 1;
    groups[0] = "";
    for (int64_t i = 0; i < r->source.n; i++) {
        const char *name = r->source.tensors[i].name;
        size_t length;
        int k = 0;
        const char *param = param_of(name, &length);

        if (!gpt_params_find(&r->table, param))
            return gpt_fail(err, GPT_EDATA,
                            "%s: tensor '%s' is no parameter of its model",
                            r->source.dir, name);
        while (k < *n && (strlen(groups[k]) != length ||
                          strncmp(groups[k], name, length) != 0))
            k++;
        if (k < *n)
            continue;
        if (k == MAX_GROUPS)
            return gpt_fail(err, GPT_EDATA,
                            "%s: more than %d kinds of optimizer state",
                            r->source.dir, MAX_GROUPS);
        groups[k] = gpt_arena_printf(&r->arena, "%.*s", (int)length, name);
        if (!groups[k])
            return gpt_fail(err, GPT_EFAIL, "out of memory");
        ++*n;
    }
    return GPT_OK;
}

/* The source of a parameter (or of its optimizer state) with as many rows as
 * the output has. */
static int find_source(struct gpt_reshape *r, const char *name,
                       const struct gpt_param *p, bool repeat_last,
                       const struct gpt_tensor **out, struct gpt_err *err)
{
    const struct gpt_tensor *t = gpt_source_find(&r->source, name);

    if (!t)
        return gpt_fail(err, GPT_EDATA, "%s: no tensor '%s'", r->source.dir,
                        name);
    if (t->ndim != p->ndim || (t->ndim == 2 && t->shape[1] != p->shape[1]) ||
        (t->shape[0] != p->shape[0] && !p->vocab_rows) || t->shape[0] < 1)
        return gpt_fail(err, GPT_EDATA,
                        "%s: tensor '%s' is %lld x %lld, its model says "
                        "%lld x %lld",
                        r->source.dir, name, (long long)t->shape[0],
                        (long long)(t->ndim == 2 ? t->shape[1] : 1),
                        (long long)p->shape[0], (long long)p->shape[1]);
    *out = t;
    if (t->shape[0] == p->shape[0])
        return GPT_OK;
    struct gpt_tensor *to = &r->resized[r->n_resized++];
    *to = gpt_tensor_make(t->name, t->dtype, p->ndim, p->shape);
    *out = to;
    return gpt_tensor_resize(to, t, repeat_last, err);
}

/* The sources of a group, one a row of the parameter table. */
static int group_sources(struct gpt_reshape *r, const char *group,
                         const char **names, const struct gpt_tensor **sources,
                         struct gpt_err *err)
{
    for (int64_t i = 0; i < r->table.n; i++) {
        const struct gpt_param *p = &r->table.rows[i];

        names[i] = *group ? gpt_arena_printf(&r->arena, "%s%s", group, p->name)
                          : p->name;
        if (!names[i])
            return gpt_fail(err, GPT_EFAIL, "out of memory");
        GPT_TRY(find_source(r, names[i], p, *group == '\0', &sources[i], err));
    }
    return GPT_OK;
}

static int plan_file(struct gpt_reshape *r, struct gpt_reshape_file *f,
                     const struct gpt_flat *flat, const char *group,
                     const char **names, const struct gpt_tensor **sources,
                     int64_t tp, struct gpt_err *err)
{
    enum gpt_dtype dtype = *group ? GPT_N_DTYPES : r->o->dtype;

    GPT_TRY(gpt_new(&f->slices, (size_t)flat->n, sizeof(*f->slices), "slices",
                    err));
    GPT_TRY(gpt_new(&f->sources, (size_t)flat->n, sizeof(*f->sources), "slices",
                    err));
    for (int64_t i = 0; i < flat->n; i++) {
        const struct gpt_slice *s = &flat->slices[i];
        int64_t row = s->param - r->table.rows;

        if (s->copy || (tp > 0 && s->param->split_dim < 0))
            continue; /* another rank writes it */
        struct gpt_tensor_slice *to = &f->slices[f->n];
        *to = (struct gpt_tensor_slice){
            .name = names[row],
            .dtype = dtype == GPT_N_DTYPES ? sources[row]->dtype : dtype,
            .ndim = s->param->ndim};
        memcpy(to->global, s->param->shape, sizeof(s->param->shape));
        memcpy(to->begin, s->begin, sizeof(s->begin));
        memcpy(to->shape, s->shape, sizeof(s->shape));
        f->sources[f->n++] = sources[row];
    }
    return gpt_checkpoint_file_bytes(f->slices, f->n, &f->bytes, err);
}

/* "model" or "optimizer_exp_avg". */
static void stem_of(char *buf, size_t cap, const char *group)
{
    size_t skip = sizeof(optimizer) - 1, n = strlen(group);

    if (*group)
        snprintf(buf, cap, "optimizer_%.*s", (int)(n - 1 - skip),
                 group + skip);
    else
        snprintf(buf, cap, "model");
}

static int plan_group(struct gpt_reshape *r, const char *group,
                      struct gpt_err *err)
{
    const char **names = NULL;
    const struct gpt_tensor **sources = NULL;
    char stem[40];
    int status = gpt_new(&names, (size_t)r->table.n, sizeof(*names), "plan",
                         err);

    if (status == GPT_OK)
        status = gpt_new(&sources, (size_t)r->table.n, sizeof(*sources), "plan",
                         err);
    if (status == GPT_OK)
        status = group_sources(r, group, names, sources, err);
    stem_of(stem, sizeof(stem), group);
    for (int64_t i = 0; status == GPT_OK && i < r->tp * r->pp; i++) {
        int64_t tp = i % r->tp, pp = i / r->tp;
        struct gpt_layout layout =
            gpt_layout_even(&r->config, r->tp, tp, r->pp, pp);
        struct gpt_reshape_file *f = &r->files[r->n_files++];
        struct gpt_flat flat;

        snprintf(f->name, sizeof(f->name), "%s_tp%02lld_pp%02lld.safetensors",
                 stem, (long long)tp, (long long)pp);
        status = gpt_flat_build(&flat, &r->table, &layout, err);
        if (status != GPT_OK)
            break;
        status = plan_file(r, f, &flat, group, names, sources, tp, err);
        r->write_bytes += f->bytes;
        gpt_flat_free(&flat);
    }
    gpt_free(names);
    gpt_free(sources);
    return status;
}

static int plan_native(struct gpt_reshape *r, struct gpt_err *err)
{
    const char *groups[MAX_GROUPS];
    int n;

    GPT_TRY(gpt_layout_check(&r->config, r->tp, r->pp, err));
    GPT_TRY(find_groups(r, groups, &n, err));
    GPT_TRY(gpt_new(&r->files, (size_t)(n * r->tp * r->pp), sizeof(*r->files),
                    "files", err));
    GPT_TRY(gpt_new(&r->resized, (size_t)n * 2, sizeof(*r->resized),
                    "vocabulary tables", err));
    for (int i = 0; i < n; i++)
        GPT_TRY(plan_group(r, groups[i], err));
    return GPT_OK;
}

/* ---- to Hugging Face ---- */

/* Id of <|endoftext|>: as config.json or the state had it, by the vocabulary
 * attached, GPT-2's for its vocabulary; else unknown. */
static struct gpt_hf_extra find_extra(const struct gpt_reshape *r)
{
    struct gpt_hf_extra extra = {-1, -1};
    char path[GPT_PATH_BYTES];
    cJSON *vocab = NULL;
    int64_t id = -1, most = r->config.vocab_size - 1;

    if (r->source.hf)
        return gpt_hf_extra(r->source.hf);
    if (gpt_json_int(gpt_checkpoint_state(r->source.native), "eos_token_id", 0,
                     most, &id, "state", NULL) != GPT_OK)
        id = -1;
    const char *file = r->o->vocab_file;
    if (!file && gpt_path_join(path, sizeof(path), r->source.dir, "vocab.json",
                               NULL) == GPT_OK)
        file = path;
    if (id < 0 && file && gpt_path_exists(file) &&
        gpt_json_read(&vocab, file, GPT_FILE_LIMIT, NULL) == GPT_OK &&
        gpt_json_int(vocab, "<|endoftext|>", 0, most, &id, file, NULL))
        id = -1;
    cJSON_Delete(vocab);
    if (id < 0 && r->config.vocab_size == 50257)
        id = 50256;
    extra.bos_token_id = extra.eos_token_id = id;
    return extra;
}

static int plan_hf(struct gpt_reshape *r, struct gpt_err *err)
{
    struct gpt_hf_extra extra = find_extra(r);

    GPT_TRY(gpt_hf_plan(&r->hf, &r->config, &extra, gpt_source_find,
                        &r->source, r->o->dtype, r->o->max_shard_size, err));
    GPT_TRY(gpt_new(&r->files, (size_t)r->hf.n_shards, sizeof(*r->files),
                    "files", err));
    for (r->n_files = 0; r->n_files < r->hf.n_shards; r->n_files++) {
        struct gpt_reshape_file *f = &r->files[r->n_files];

        gpt_hf_shard_name(f->name, sizeof(f->name), r->n_files, r->hf.n_shards);
        for (int64_t i = 0; i < r->hf.n; i++) {
            const struct gpt_tensor *t = &r->hf.tensors[i];
            int64_t bytes = (int64_t)gpt_dtype_bytes(t->dtype);

            for (int d = 0; d < t->ndim; d++)
                bytes *= t->shape[d];
            if (r->hf.shard[i] == r->n_files) {
                f->bytes += bytes;
                f->n++;
            }
        }
        r->write_bytes += f->bytes;
    }
    return GPT_OK;
}

/* ---- opening ---- */

/* The output's configuration: true and padded vocabulary. */
static int set_vocab(struct gpt_reshape *r, struct gpt_err *err)
{
    const struct gpt_reshape_options *o = r->o;
    struct gpt_config *c = &r->config;

    if (o->true_vocab > c->padded_vocab_size)
        return gpt_fail(err, GPT_EUSAGE,
                        "--true-vocab-size %lld: %s has %lld rows",
                        (long long)o->true_vocab, r->source.dir,
                        (long long)c->padded_vocab_size);
    if (o->true_vocab)
        c->vocab_size = o->true_vocab;
    if (o->to_hf)
        return GPT_OK;
    if (o->repad || c->padded_vocab_size % r->tp != 0)
        c->padded_vocab_size =
            gpt_config_padded_vocab(c->vocab_size, o->divisible_by, r->tp);
    return GPT_OK;
}

/* Before its rows are made: the files must be able to hold the model. */
static int check_layers(const struct gpt_reshape *r, struct gpt_err *err)
{
    if (r->config.num_layers > r->source.n)
        return gpt_fail(err, GPT_EDATA,
                        "%s: its model has %lld layers, its files %lld "
                        "tensors",
                        r->source.dir, (long long)r->config.num_layers,
                        (long long)r->source.n);
    return GPT_OK;
}

int gpt_reshape_open(struct gpt_reshape *r,
                     const struct gpt_reshape_options *o, struct gpt_err *err)
{
    int status;

    *r = (struct gpt_reshape){.o = o};
    GPT_TRY_GOTO(status,
                 gpt_source_open(&r->source, o->load, o->verify_input,
                                 o->to_hf ? 1 : o->divisible_by,
                                 o->tp && !o->to_hf ? o->tp : 1, err),
                 fail);
    r->config = r->source.config;
    r->tp = o->tp ? o->tp : r->source.tp;
    r->pp = o->pp ? o->pp : r->source.pp;
    r->read_bytes = gpt_source_bytes(&r->source);
    GPT_TRY_GOTO(status, check_layers(r, err), fail);
    GPT_TRY_GOTO(status, set_vocab(r, err), fail);
    GPT_TRY_GOTO(status, gpt_params_build(&r->table, &r->config, err), fail);
    GPT_TRY_GOTO(status, o->to_hf ? plan_hf(r, err) : plan_native(r, err),
                 fail);
    return GPT_OK;
fail:
    gpt_reshape_close(r);
    return status;
}
