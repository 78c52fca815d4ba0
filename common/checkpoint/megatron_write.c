/* Writing a classic Megatron checkpoint: one file for each rank of the layout,
 * with the parts of the parameters that the rank holds, and arguments that
 * Megatron-LM compares with those of the run that loads them. Start at
 * gpt_megatron_plan().
 *
 * Parts are boxes of the source's tensors: rows of the fused matrix are in
 * Megatron's order (checkpoint version 3) everywhere in this program. */
#include "checkpoint/format.h"
#include "checkpoint/megatron.h"
#include "checkpoint/names.h"
#include "checkpoint/output.h"
#include "checkpoint/torch_write.h"

#include "base/log.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = GPT_PARAM_NAME + 64 };

/* A tensor of a file: a box of a source's tensor. */
struct part {
    const char *path; /* in the state dict, keys separated by '/' */
    const struct gpt_tensor *source;
    enum gpt_dtype dtype;
    int64_t begin[GPT_TENSOR_DIMS], shape[GPT_TENSOR_DIMS];
    int64_t bytes;
};

/* What a file will hold, in the order of its storages. */
struct content {
    struct part *parts;
    int64_t n;
};

struct megatron_plan {
    struct gpt_param_table table;
    const struct gpt_tensor **sources; /* one a parameter */
    struct gpt_tensor resized[2];      /* vocabulary tables */
    int64_t n_resized;
    struct content *contents; /* one a file */
    int64_t n_contents;
    bool released; /* "release": weights of no iteration */
};

/* Also for a plan that failed halfway. */
void gpt_megatron_free_plan(struct gpt_target *t)
{
    struct megatron_plan *p = t->data;

    if (!p)
        return;
    for (int64_t i = 0; i < p->n_contents; i++)
        gpt_free(p->contents[i].parts);
    for (int64_t i = 0; i < p->n_resized; i++)
        gpt_tensor_free(&p->resized[i]);
    gpt_free(p->contents);
    gpt_free(p->sources);
    gpt_params_free(&p->table);
    gpt_free(p);
}

/* ---- planning ---- */

/* The source of each parameter, with as many rows as the output has: new dummy
 * rows repeat the last one, as Megatron's converters have it. */
static int find_sources(struct gpt_target *t, struct gpt_err *err)
{
    struct megatron_plan *p = t->data;

    GPT_TRY(gpt_new(&p->sources, (size_t)p->table.n, sizeof(*p->sources),
                    "plan", err));
    for (int64_t i = 0; i < p->table.n; i++) {
        const struct gpt_param *row = &p->table.rows[i];
        const struct gpt_tensor *in = gpt_source_find(t->source, row->name);

        if (!in)
            return gpt_fail(err, GPT_EDATA, "%s: no tensor '%s'",
                            t->source->dir, row->name);
        if (in->ndim != row->ndim || in->shape[0] < 1 ||
            (in->ndim == 2 && in->shape[1] != row->shape[1]) ||
            (in->shape[0] != row->shape[0] && !row->vocab_rows))
            return gpt_fail(err, GPT_EDATA,
                            "%s: tensor '%s' is %lld x %lld, its model says "
                            "%lld x %lld",
                            t->source->dir, row->name, (long long)in->shape[0],
                            (long long)(in->ndim == 2 ? in->shape[1] : 1),
                            (long long)row->shape[0], (long long)row->shape[1]);
        p->sources[i] = in;
        if (in->shape[0] == row->shape[0])
            continue;
        assert(p->n_resized < 2); /* word table and output layer */
        struct gpt_tensor *to = &p->resized[p->n_resized++];
        *to = gpt_tensor_make(in->name, in->dtype, row->ndim, row->shape);
        p->sources[i] = to;
        GPT_TRY(gpt_tensor_resize(to, in, true, err));
    }
    return GPT_OK;
}

/* A copy of a tied word table on the last stage has a name of its own; with one
 * stage there is none. */
static bool name_part(char *buf, size_t cap, enum gpt_megatron_names style,
                      const struct gpt_slice *s, int64_t first_layer)
{
    const bool layer = s->param->layer >= 0;

    if (s->copy) {
        snprintf(buf, cap, "%s",
                 style == GPT_MEGATRON_LEGACY
                     ? "word_embeddings_for_head/weight"
                     : "output_layer.weight");
        return true;
    }
    return gpt_megatron_path(buf, cap, style, s->param->role,
                             layer ? s->param->layer - first_layer : 0);
}

/* Every rank gets all that it holds, copies of what is not cut as well:
 * Megatron-LM loads a rank from its own file alone. This differs from a native
 * checkpoint, in which each element is written once. */
static int plan_parts(struct gpt_target *t, int64_t file,
                      const struct gpt_flat *flat, int64_t first_layer,
                      struct gpt_err *err)
{
    const struct megatron_plan *p = t->data;
    const enum gpt_megatron_names style = (enum gpt_megatron_names)t->o.style;
    struct content *c = &p->contents[file];
    char path[PATH_BYTES];

    GPT_TRY(
        gpt_new(&c->parts, (size_t)flat->n, sizeof(*c->parts), "plan", err));
    for (int64_t i = 0; i < flat->n; i++) {
        const struct gpt_slice *s = &flat->slices[i];
        struct part *to = &c->parts[c->n++];

        to->source = p->sources[s->param - p->table.rows];
        to->dtype = t->o.dtype == GPT_N_DTYPES ? to->source->dtype : t->o.dtype;
        if (!name_part(path, sizeof(path), style, s, first_layer))
            return gpt_fail(err, GPT_EDATA,
                            "Megatron-LM has no tensor for '%s'",
                            s->param->name);
        to->path = gpt_arena_strdup(&t->arena, path);
        if (!to->path)
            return gpt_no_memory(err, "names of tensors");
        memcpy(to->begin, s->begin, sizeof(s->begin));
        memcpy(to->shape, s->shape, sizeof(s->shape));
        /* s->count was checked for overflow with the table of parameters */
        to->bytes = s->count * (int64_t)gpt_dtype_bytes(to->dtype);
        t->files[file].bytes += to->bytes;
        t->files[file].tensors++;
    }
    return GPT_OK;
}

/* The number of the stage is in the name only where there are several. */
static void name_file(const struct gpt_target *t, struct gpt_target_file *f,
                      int64_t tp, int64_t pp)
{
    if (t->o.pp_size > 1)
        snprintf(f->name, sizeof(f->name), "mp_rank_%02lld_%03lld/%s",
                 (long long)tp, (long long)pp, GPT_MEGATRON_FILE);
    else
        snprintf(f->name, sizeof(f->name), "mp_rank_%02lld/%s", (long long)tp,
                 GPT_MEGATRON_FILE);
}

/* The layout is that of gpt-train with evenly cut layers, which is
 * Megatron-LM's without options for uneven ones. */
static int plan_rank(struct gpt_target *t, int64_t file, struct gpt_err *err)
{
    const struct megatron_plan *p = t->data;
    const int64_t tp = file % t->o.tp_size, pp = file / t->o.tp_size;
    const struct gpt_layout layout =
        gpt_layout_even(&t->o.config, t->o.tp_size, tp, t->o.pp_size, pp);
    struct gpt_flat flat;

    name_file(t, &t->files[file], tp, pp);
    GPT_TRY(gpt_flat_build(&flat, &p->table, &layout, err));
    int status = plan_parts(t, file, &flat, layout.chunk[0].first_layer, err);
    gpt_flat_free(&flat);
    return status;
}

/* What the format could hold and this writer leaves out is said by name. */
static void warn_left_out(const struct gpt_source *s)
{
    for (int64_t i = 0; i < s->n_tensors; i++)
        if (gpt_name_is_optimizer(s->tensors[i].name)) {
            gpt_warn("%s: its optimizer state is left out: format megatron is "
                     "written with weights alone",
                     s->dir);
            return;
        }
}

/* Weights of no iteration are a release, as in other converters. */
int gpt_megatron_plan(struct gpt_target *t, struct gpt_err *err)
{
    const struct gpt_target_options *o = &t->o;
    const int64_t ranks = o->tp_size * o->pp_size;
    struct megatron_plan *p;

    GPT_TRY(gpt_layout_check(&o->config, o->tp_size, o->pp_size, err));
    GPT_TRY(gpt_new(&p, 1, sizeof(*p), "plan", err));
    t->data = p;
    /* Megatron-LM begins a run anew from a release, and resumes another one,
     * for which it wants optimizer state unless told otherwise. */
    p->released = t->source->iteration == 0;
    GPT_TRY(p->released ? gpt_path_join(t->path, sizeof(t->path), o->save,
                                        GPT_MEGATRON_RELEASE, err)
                        : gpt_checkpoint_path(t->path, sizeof(t->path), o->save,
                                              t->source->iteration, err));
    GPT_TRY(gpt_params_build(&p->table, &o->config, err));
    GPT_TRY(find_sources(t, err));
    GPT_TRY(gpt_target_files(t, ranks, err));
    GPT_TRY(gpt_new(&p->contents, (size_t)ranks, sizeof(*p->contents), "files",
                    err));
    p->n_contents = ranks;
    for (int64_t i = 0; i < ranks; i++)
        GPT_TRY(plan_rank(t, i, err));
    t->n_tensors = p->table.n;
    warn_left_out(t->source);
    return GPT_OK;
}

/* ---- the pickle ---- */

/* Parts [i, end), whose paths agree in their first `skip` bytes, as a dict of
 * what follows there. Paths with a key in common are neighbours, since parts
 * are in the order of the model. Paths have four keys at most. */
static int put_tree(struct gpt_pickle_out *o, const struct content *c,
                    int64_t i, int64_t end, size_t skip, struct gpt_err *err)
{
    gpt_pickle_put_dict(o);
    while (i < end) {
        const struct part *p = &c->parts[i];
        const char *key = p->path + skip;
        const size_t n = strcspn(key, "/");
        char text[PATH_BYTES];
        int64_t next = i + 1;

        snprintf(text, sizeof(text), "%.*s", (int)n, key);
        gpt_pickle_put_string(o, text);
        /* a dict of its own: all the neighbours that share this key */
        if (key[n] == '/') {
            while (next < end &&
                   strncmp(c->parts[next].path, p->path, skip + n + 1) == 0)
                next++;
            GPT_TRY(put_tree(o, c, i, next, skip + n + 1, err));
        } else if (!gpt_pickle_put_tensor(o, i, p->dtype, p->source->ndim,
                                          p->shape)) {
            return gpt_fail(err, GPT_EDATA, "tensor '%s': type %s", p->path,
                            gpt_dtype_name(p->dtype));
        }
        i = next;
    }
    gpt_pickle_end_dict(o);
    return GPT_OK;
}

/* Arguments are a Namespace, because Megatron-LM reads attributes; it is the
 * one class in the file that torch's restricted unpickler must be told to
 * allow. */
static int make_pickle(struct gpt_pickle_out *o, const struct gpt_target *t,
                       int64_t file, struct gpt_err *err)
{
    const struct megatron_plan *p = t->data;
    const struct content *c = &p->contents[file];

    gpt_pickle_begin(o);
    gpt_pickle_put_dict(o);
    gpt_megatron_put_args(o, t, file, c->n ? c->parts[0].dtype : GPT_F32);
    gpt_pickle_put_string(o, "checkpoint_version");
    gpt_pickle_put_real(o, 3.0);
    gpt_pickle_put_string(o, "iteration");
    gpt_pickle_put_int(o, t->source->iteration);
    gpt_pickle_put_string(o, "num_floating_point_operations_so_far");
    gpt_pickle_put_int(o, 0);
    gpt_pickle_put_string(o, "model");
    GPT_TRY(put_tree(o, c, 0, c->n, 0, err));
    gpt_pickle_end_dict(o);
    return gpt_pickle_end(o, err);
}

/* ---- writing ---- */

/* Tiles go to the file that is open; bytes count over all of them. */
struct pour {
    struct gpt_torch_writer *file;
    gpt_bytes_done *done;
    void *context;
    int64_t bytes;
};

/* A gpt_sink. The writer takes the checksum of what passes. */
static int pour_tile(void *context, const void *data, size_t bytes,
                     struct gpt_err *err)
{
    struct pour *p = context;

    GPT_TRY(gpt_torch_put(p->file, data, bytes, err));
    p->bytes += (int64_t)bytes;
    if (p->done)
        p->done(p->context, p->bytes);
    return GPT_OK;
}

/* The pickle is composed first and whole: the archive begins with it, and all
 * sizes are known from the plan. */
static int write_parts(struct gpt_target *t, const char *path, int64_t file,
                       unsigned flags, struct pour *pour, void *tile,
                       struct gpt_err *err)
{
    const struct megatron_plan *p = t->data;
    const struct content *c = &p->contents[file];
    struct gpt_pickle_out pickle = {0};
    int64_t *sizes = NULL;
    int status;

    GPT_TRY_GOTO(status, make_pickle(&pickle, t, file, err), out);
    GPT_TRY_GOTO(status,
                 gpt_new(&sizes, (size_t)c->n, sizeof(*sizes), "sizes", err),
                 out);
    /* storages are numbered as the parts are, here and in the pickle */
    for (int64_t i = 0; i < c->n; i++)
        sizes[i] = c->parts[i].bytes;
    GPT_TRY_GOTO(
        status,
        gpt_torch_create(&pour->file, path, flags, &pickle, sizes, c->n, err),
        out);
    for (int64_t i = 0; i < c->n; i++) {
        const struct part *part = &c->parts[i];

        GPT_TRY_GOTO(status,
                     gpt_tensor_pour(part->source, part->begin, part->shape,
                                     part->dtype, tile, pour_tile, pour, err),
                     out);
    }
    status = gpt_torch_commit(pour->file, err);
    pour->file = NULL;
out:
    gpt_torch_abort(pour->file);
    pour->file = NULL;
    gpt_pickle_out_free(&pickle);
    gpt_free(sizes);
    return status;
}

/* A rank's directory is made inside the temporary one of the iteration. */
static int write_file(struct gpt_target *t, const char *dir, int64_t file,
                      unsigned flags, struct pour *pour, void *tile,
                      struct gpt_err *err)
{
    char path[GPT_PATH_BYTES], rank[GPT_PATH_BYTES];

    GPT_TRY(gpt_path_join(path, sizeof(path), dir, t->files[file].name, err));
    snprintf(rank, sizeof(rank), "%s", path);
    *strrchr(rank, '/') = '\0'; /* name_file() has put one there */
    GPT_TRY(gpt_path_mkdirs(rank, err));
    return write_parts(t, path, file, flags, pour, tile, err);
}

/* The tracker comes last: a root names an iteration only when its directory is
 * whole and on disk. */
static int write_tracker(const struct gpt_target *t, struct gpt_err *err)
{
    const struct megatron_plan *p = t->data;
    char text[32];
    int n = p->released
                ? snprintf(text, sizeof(text), "%s", GPT_MEGATRON_RELEASE)
                : snprintf(text, sizeof(text), "%lld",
                           (long long)t->source->iteration);

    return gpt_small_file_write(t->o.save, GPT_TRACKER, GPT_OUT_FORCE, text,
                                (size_t)n, err);
}

/* The directory of the iteration appears when all of its files are on disk,
 * then the tracker names it: the order that makes a crash harmless. */
int gpt_megatron_write(struct gpt_target *t, gpt_bytes_done *done,
                       void *context, struct gpt_err *err)
{
    const unsigned flags = t->o.force ? GPT_OUT_FORCE : 0;
    struct pour pour = {.done = done, .context = context};
    struct gpt_outdir *dir;
    void *tile;
    int status = GPT_OK;

    /* the root stays when this fails: it may hold other iterations */
    GPT_TRY(gpt_path_mkdirs(t->o.save, err));
    GPT_TRY(gpt_outdir_open(&dir, t->path, flags, err));
    GPT_TRY_GOTO(status, gpt_new(&tile, GPT_TILE_BYTES, 1, "tile", err), fail);
    for (int64_t i = 0; status == GPT_OK && i < t->n_files; i++)
        status = write_file(t, gpt_outdir_path(dir), i, flags | GPT_OUT_INSIDE,
                            &pour, tile, err);
    gpt_free(tile);
    if (status != GPT_OK)
        goto fail;
    GPT_TRY(gpt_outdir_commit(dir, err));
    return write_tracker(t, err);
fail:
    gpt_outdir_abort(dir);
    return status;
}
