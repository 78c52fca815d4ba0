/* Writing native checkpoints. A writer collects what it wrote (files, slices)
 * and gpt_checkpoint_commit() says it all in the manifest, publishes the
 * directory and then the tracker. gpt_checkpoint_prune() is at the end. */
#include "checkpoint/manifest.h"
#include "checkpoint/native.h"
#include "checkpoint/safetensors.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/num.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ATTACH_LIMIT = 256 << 20, PATH = 4096 };

struct written_file {
    char *name;
    int64_t size;
    uint32_t crc;
};

struct written_slice {
    struct gpt_tensor_slice s; /* name in the arena, data NULL */
    size_t file;
};

struct gpt_checkpoint_writer {
    struct gpt_outdir *dir;
    char root[PATH], path[PATH]; /* path: the final name */
    int64_t iteration;
    unsigned flags;
    struct written_file *files;
    size_t n_files, cap_files;
    struct written_slice *slices;
    size_t n_slices, cap_slices;
    struct gpt_arena arena;
};

int gpt_checkpoint_create(struct gpt_checkpoint_writer **out, const char *root,
                          int64_t iteration, unsigned flags,
                          struct gpt_err *err)
{
    struct gpt_checkpoint_writer *w;
    int status;
    *out = NULL;
    if (iteration < 0)
        return gpt_fail(err, GPT_EUSAGE, "iteration %lld is negative",
                        (long long)iteration);
    GPT_TRY(gpt_new(&w, 1, sizeof *w, "checkpoint writer", err));
    w->iteration = iteration;
    w->flags = flags;
    snprintf(w->root, sizeof w->root, "%s", root);
    GPT_TRY_GOTO(status, gpt_checkpoint_path(w->path, sizeof w->path, root,
                                             iteration, err),
                 fail);
    GPT_TRY_GOTO(status, gpt_path_mkdirs(root, err), fail);
    GPT_TRY_GOTO(status, gpt_outdir_open(&w->dir, w->path, flags, err), fail);
    *out = w;
    return GPT_OK;
fail:
    gpt_checkpoint_abort(w);
    return status;
}

void gpt_checkpoint_abort(struct gpt_checkpoint_writer *w)
{
    if (!w)
        return;
    if (w->dir)
        gpt_outdir_abort(w->dir);
    gpt_free(w->files);
    gpt_free(w->slices);
    gpt_arena_free(&w->arena);
    gpt_free(w);
}

/* Room for one more file of that name; gives the path to write it at. */
static int add_file(struct gpt_checkpoint_writer *w, const char *name,
                    char *path, struct gpt_err *err)
{
    if (!gpt_manifest_name_ok(name) || strcmp(name, GPT_MANIFEST) == 0)
        return gpt_fail(err, GPT_EFAIL, "'%s' is no name for a file of %s",
                        name, w->path);
    for (size_t i = 0; i < w->n_files; i++)
        if (strcmp(w->files[i].name, name) == 0)
            return gpt_fail(err, GPT_EFAIL, "%s: file '%s' twice", w->path,
                            name);
    GPT_TRY(gpt_grow(&w->files, &w->cap_files, w->n_files + 1,
                     sizeof *w->files, "checkpoint files", err));
    GPT_TRY(gpt_path_join(path, PATH, gpt_outdir_path(w->dir), name, err));
    w->files[w->n_files] =
        (struct written_file){.name = gpt_arena_strdup(&w->arena, name)};
    if (!w->files[w->n_files].name)
        return gpt_fail(err, GPT_EFAIL, "out of memory");
    w->n_files++;
    return GPT_OK;
}

/* "3072x1024" of a shape; "scalar" of none. */
static void dims_text(char *buf, size_t cap, const int64_t *dims, int ndim,
                      char sep)
{
    size_t n = 0;
    snprintf(buf, cap, "%s", ndim ? "" : "scalar");
    for (int d = 0; d < ndim && n < cap; d++)
        n += (size_t)snprintf(buf + n, cap - n, "%.*s%lld", d ? 1 : 0, &sep,
                              (long long)dims[d]);
}

/* Headers of the slices, and a note for each that tells its place, so that a
 * file explains itself when the manifest is lost. */
static int describe(const struct gpt_tensor_slice *slices, int64_t n,
                    struct gpt_safetensor **tensors,
                    struct gpt_safetensors_note **notes,
                    struct gpt_arena *arena, struct gpt_err *err)
{
    *notes = NULL;
    GPT_TRY(gpt_new(tensors, (size_t)n, sizeof **tensors, "slices", err));
    GPT_TRY(gpt_new(notes, (size_t)n, sizeof **notes, "slices", err));
    for (int64_t i = 0; i < n; i++) {
        const struct gpt_tensor_slice *s = &slices[i];
        struct gpt_safetensor *t = &(*tensors)[i];
        char whole[100], at[100];
        *t = (struct gpt_safetensor){
            .name = s->name, .dtype = s->dtype, .ndim = s->ndim};
        memcpy(t->shape, s->shape, sizeof s->shape);
        dims_text(whole, sizeof whole, s->global, s->ndim, 'x');
        dims_text(at, sizeof at, s->begin, s->ndim, ',');
        const char *text = gpt_arena_printf(arena, "%s at %s", whole, at);
        const char *key = gpt_arena_printf(arena, "slice of %s", s->name);
        if (!text || !key)
            return gpt_fail(err, GPT_EFAIL, "out of memory");
        (*notes)[i] = (struct gpt_safetensors_note){key, text};
    }
    return GPT_OK;
}

static int record(struct gpt_checkpoint_writer *w,
                  const struct gpt_tensor_slice *slices, int64_t n,
                  struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&w->slices, &w->cap_slices, w->n_slices + (size_t)n,
                     sizeof *w->slices, "slices", err));
    for (int64_t i = 0; i < n; i++) {
        struct written_slice *to = &w->slices[w->n_slices++];
        *to = (struct written_slice){slices[i], w->n_files - 1};
        to->s.data = NULL;
        to->s.name = gpt_arena_strdup(&w->arena, slices[i].name);
        if (!to->s.name || !gpt_manifest_name_ok(slices[i].name) ||
            slices[i].ndim < 0 || slices[i].ndim > GPT_TENSOR_DIMS)
            return gpt_fail(err, GPT_EFAIL, "%s: bad tensor name '%s'",
                            w->path, slices[i].name);
    }
    return GPT_OK;
}

/* Where tiles go. */
struct pour {
    struct gpt_safetensors_writer *file;
    gpt_bytes_done *done;
    void *context;
    int64_t bytes;
};

static int put_tile(void *context, const void *data, size_t bytes,
                    struct gpt_err *err)
{
    struct pour *p = context;
    GPT_TRY(gpt_safetensors_put(p->file, data, bytes, err));
    p->bytes += (int64_t)bytes;
    if (p->done)
        p->done(p->context, p->bytes);
    return GPT_OK;
}

/* Data of all slices in the file's order; sources NULL: from memory. */
static int put_slices(struct pour *p, const struct gpt_safetensor *tensors,
                      const struct gpt_tensor_slice *slices,
                      const struct gpt_tensor *const *sources, int64_t n,
                      struct gpt_err *err)
{
    void *tile = NULL;
    int status = GPT_OK;
    if (sources)
        GPT_TRY(gpt_new(&tile, GPT_TILE_BYTES, 1, "tile", err));
    for (int64_t k = 0; status == GPT_OK && k < n; k++) {
        int64_t i = gpt_safetensors_order(p->file, k), bytes = 0;
        const struct gpt_tensor_slice *s = &slices[i];
        if (sources)
            status = gpt_tensor_pour(sources[i], s->begin, s->shape, s->dtype,
                                     tile, put_tile, p, err);
        else if (gpt_safetensor_bytes(&tensors[i], &bytes))
            status = put_tile(p, s->data, (size_t)bytes, err);
    }
    gpt_free(tile);
    return status;
}

int gpt_checkpoint_write_plan(struct gpt_checkpoint_writer *w,
                              const char *file,
                              const struct gpt_tensor_slice *slices,
                              const struct gpt_tensor *const *sources,
                              int64_t n, gpt_bytes_done *done, void *context,
                              struct gpt_err *err)
{
    struct gpt_safetensor *tensors = NULL;
    struct gpt_safetensors_note *notes = NULL;
    struct gpt_arena arena = {0};
    struct pour p = {.done = done, .context = context};
    char path[PATH];
    int status;
    GPT_TRY(add_file(w, file, path, err));
    struct written_file *f = &w->files[w->n_files - 1];
    GPT_TRY_GOTO(status, record(w, slices, n, err), out);
    GPT_TRY_GOTO(status, describe(slices, n, &tensors, &notes, &arena, err),
                 out);
    GPT_TRY_GOTO(status,
                 gpt_safetensors_create(&p.file, path,
                                        w->flags | GPT_OUT_INSIDE, tensors, n,
                                        notes, n, err),
                 out);
    GPT_TRY_GOTO(status, put_slices(&p, tensors, slices, sources, n, err),
                 out);
    status = gpt_safetensors_commit(p.file, &f->size, &f->crc, err);
    p.file = NULL;
out:
    gpt_safetensors_abort(p.file);
    gpt_free(tensors);
    gpt_free(notes);
    gpt_arena_free(&arena);
    return status;
}

int gpt_checkpoint_write(struct gpt_checkpoint_writer *w, const char *file,
                         const struct gpt_tensor_slice *slices, int64_t n,
                         struct gpt_err *err)
{
    return gpt_checkpoint_write_plan(w, file, slices, NULL, n, NULL, NULL,
                                     err);
}

int gpt_checkpoint_file_bytes(const struct gpt_tensor_slice *slices, int64_t n,
                              int64_t *bytes, struct gpt_err *err)
{
    struct gpt_safetensor *tensors = NULL;
    struct gpt_safetensors_note *notes = NULL;
    struct gpt_arena arena = {0};
    int status = describe(slices, n, &tensors, &notes, &arena, err);
    if (status == GPT_OK)
        status = gpt_safetensors_size(tensors, n, notes, n, bytes, err);
    gpt_free(tensors);
    gpt_free(notes);
    gpt_arena_free(&arena);
    return status;
}

int gpt_checkpoint_attach(struct gpt_checkpoint_writer *w, const char *name,
                          const char *source, struct gpt_err *err)
{
    struct gpt_out *out = NULL;
    char path[PATH], *text;
    size_t len;
    int status;
    GPT_TRY(gpt_read_file(source, ATTACH_LIMIT, &text, &len, err));
    GPT_TRY_GOTO(status, add_file(w, name, path, err), done);
    struct written_file *f = &w->files[w->n_files - 1];
    f->size = (int64_t)len;
    f->crc = gpt_crc32c(0, text, len);
    GPT_TRY_GOTO(status, gpt_out_open(&out, path, w->flags | GPT_OUT_INSIDE,
                                      f->size, err),
                 done);
    GPT_TRY_GOTO(status, gpt_out_write(out, text, len, err), done);
    status = gpt_out_commit(out, err);
    out = NULL;
done:
    gpt_out_abort(out);
    gpt_free(text);
    return status;
}

/* ---- the manifest ---- */

static int compare_slices(const void *a, const void *b)
{
    const struct written_slice *x = a, *y = b;
    int by_name = strcmp(x->s.name, y->s.name);
    return by_name ? by_name : (x->file > y->file) - (x->file < y->file);
}

static int compare_files(const void *a, const void *b)
{
    const struct written_file *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int add_files(struct gpt_buf *b, const struct gpt_checkpoint_writer *w,
                     struct gpt_err *err)
{
    const struct written_file **sorted;
    GPT_TRY(gpt_new(&sorted, w->n_files, sizeof *sorted, "files", err));
    for (size_t i = 0; i < w->n_files; i++)
        sorted[i] = &w->files[i];
    if (w->n_files)
        qsort(sorted, w->n_files, sizeof *sorted, compare_files);
    int status = gpt_buf_printf(b, "\"files\": {");
    for (size_t i = 0; status == GPT_OK && i < w->n_files; i++)
        status = gpt_buf_printf(
            b, "%s\n  \"%s\": {\"size\": %lld, \"crc32c\": \"%08x\"}",
            i ? "," : "", sorted[i]->name, (long long)sorted[i]->size,
            sorted[i]->crc);
    gpt_free(sorted);
    return status == GPT_OK ? gpt_buf_printf(b, "\n},\n") : status;
}

static int add_tensors(struct gpt_buf *b, struct gpt_checkpoint_writer *w)
{
    const char *last = "";
    char dims[100];
    if (w->n_slices)
        qsort(w->slices, w->n_slices, sizeof *w->slices, compare_slices);
    GPT_TRY(gpt_buf_printf(b, "\"tensors\": {"));
    for (size_t i = 0; i < w->n_slices; i++) {
        const struct gpt_tensor_slice *s = &w->slices[i].s;
        if (strcmp(s->name, last) != 0) {
            dims_text(dims, sizeof dims, s->global, s->ndim, ',');
            GPT_TRY(gpt_buf_printf(
                b,
                "%s\n  \"%s\": {\"dtype\": \"%s\", \"shape\": [%s], "
                "\"slices\": [",
                i ? "]}," : "", s->name, gpt_dtype_name(s->dtype),
                s->ndim ? dims : ""));
        }
        dims_text(dims, sizeof dims, s->begin, s->ndim, ',');
        GPT_TRY(gpt_buf_printf(b,
                               "%s\n    {\"file\": \"%s\", \"begin\": [%s], ",
                               strcmp(s->name, last) == 0 ? "," : "",
                               w->files[w->slices[i].file].name,
                               s->ndim ? dims : ""));
        dims_text(dims, sizeof dims, s->shape, s->ndim, ',');
        GPT_TRY(gpt_buf_printf(b, "\"shape\": [%s]}", s->ndim ? dims : ""));
        last = s->name;
    }
    return gpt_buf_printf(b, "%s\n},\n", w->n_slices ? "]}" : "");
}

/* "name": VALUE, taking and freeing a tree. */
static int add_json(struct gpt_buf *b, const char *name, const cJSON *tree)
{
    char *text = tree ? gpt_json_print(tree, true) : NULL;
    int status = text ? gpt_buf_printf(b, "\"%s\": %s,\n", name, text)
                      : GPT_EFAIL;
    cJSON_free(text);
    return status;
}

static int compose(struct gpt_buf *b, struct gpt_checkpoint_writer *w,
                   const struct gpt_config *config, int64_t tp, int64_t pp,
                   const cJSON *state, struct gpt_err *err)
{
    cJSON *empty = cJSON_CreateObject(), *model = gpt_config_to_json(config);
    int status = gpt_buf_printf(
        b,
        "{\n\"format\": \"gpt-checkpoint\",\n\"version\": %d,\n"
        "\"iteration\": %lld,\n\"layout\": {\"tensor_parallel\": %lld, "
        "\"pipeline_parallel\": %lld},\n",
        GPT_MANIFEST_VERSION, (long long)w->iteration, (long long)tp,
        (long long)pp);
    if (status == GPT_OK)
        status = add_json(b, "config", model);
    if (status == GPT_OK)
        status = add_json(b, "state", state ? state : empty);
    cJSON_Delete(model);
    cJSON_Delete(empty);
    if (status == GPT_OK)
        status = add_files(b, w, err);
    if (status == GPT_OK)
        status = add_tensors(b, w);
    if (status == GPT_OK)
        status = gpt_manifest_seal(b);
    if (status != GPT_OK)
        return gpt_fail(err, status, "%s: no memory for the manifest",
                        w->path);
    return GPT_OK;
}

/* Writes a small file whole. */
static int put_text(const char *path, unsigned flags, const char *text,
                    size_t len, struct gpt_err *err)
{
    struct gpt_out *out;
    GPT_TRY(gpt_out_open(&out, path, flags, (int64_t)len, err));
    int status = gpt_out_write(out, text, len, err);
    if (status == GPT_OK)
        return gpt_out_commit(out, err);
    gpt_out_abort(out);
    return status;
}

int gpt_checkpoint_commit(struct gpt_checkpoint_writer *w,
                          const struct gpt_config *config, int64_t tp_size,
                          int64_t pp_size, const cJSON *state,
                          struct gpt_err *err)
{
    struct gpt_buf b = {0};
    char path[PATH], text[32];
    int status;
    GPT_TRY_GOTO(status, compose(&b, w, config, tp_size, pp_size, state, err),
                 out);
    GPT_TRY_GOTO(status, gpt_path_join(path, sizeof path,
                                       gpt_outdir_path(w->dir), GPT_MANIFEST,
                                       err),
                 out);
    GPT_TRY_GOTO(status, put_text(path, w->flags | GPT_OUT_INSIDE, b.data,
                                  b.len, err),
                 out);
    status = gpt_outdir_commit(w->dir, err);
    w->dir = NULL;
    if (status != GPT_OK)
        goto out;
    GPT_TRY_GOTO(status,
                 gpt_path_join(path, sizeof path, w->root, GPT_TRACKER, err),
                 out);
    snprintf(text, sizeof text, "%lld\n", (long long)w->iteration);
    status = put_text(path, w->flags | GPT_OUT_FORCE, text, strlen(text), err);
out:
    gpt_buf_free(&b);
    gpt_checkpoint_abort(w);
    return status;
}

/* ---- old iterations ---- */

static int remove_in(const char *dir, const char *name, struct gpt_err *err)
{
    char path[PATH];
    GPT_TRY(gpt_path_join(path, sizeof path, dir, name, err));
    if (unlink(path) != 0 && errno != ENOENT)
        return gpt_fail_errno(err, GPT_EIO, "%s: cannot remove", path);
    return GPT_OK;
}

/* The manifest goes first: what is left is then visibly incomplete. */
static int remove_iteration(const char *path, struct gpt_err *err)
{
    int status = remove_in(path, GPT_MANIFEST, err);
    DIR *dir = opendir(path);
    if (!dir)
        return gpt_fail_errno(err, GPT_EIO, "%s", path);
    for (struct dirent *e; status == GPT_OK && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            status = remove_in(path, e->d_name, err);
    closedir(dir);
    if (status == GPT_OK && rmdir(path) != 0)
        status = gpt_fail_errno(err, GPT_EIO, "%s: cannot remove", path);
    return status;
}

int gpt_checkpoint_prune(const char *root, int64_t keep, struct gpt_err *err)
{
    int64_t *list, tracked = -1, complete = 0;
    size_t n;
    int status = GPT_OK;
    if (keep <= 0)
        return GPT_OK;
    GPT_TRY(gpt_checkpoint_list(root, &list, &n, err));
    if (gpt_checkpoint_tracker(root, &tracked, NULL) != GPT_OK)
        tracked = -1;
    for (size_t i = 0; status == GPT_OK && i < n; i++) {
        char path[PATH];
        cJSON *manifest;
        status = gpt_checkpoint_path(path, sizeof path, root, list[i], err);
        if (status != GPT_OK)
            break;
        if (complete >= keep && list[i] != tracked) {
            status = remove_iteration(path, err);
        } else if (gpt_manifest_read(&manifest, path, NULL) == GPT_OK) {
            complete++;
            cJSON_Delete(manifest);
        }
    }
    gpt_free(list);
    return status;
}
