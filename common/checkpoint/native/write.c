/* Writing the files of native checkpoints. A writer notes what it wrote (files,
 * slices) in its list; commit.c says it all in the manifest and publishes the
 * directory. Start at gpt_checkpoint_write_plan(). */
#include "checkpoint/attached.h"
#include "checkpoint/fill.h"
#include "checkpoint/native/native.h"
#include "checkpoint/native/internal.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/small_file.h"

#include "base/hash.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- begin and end ---- */

/* The final name is made now, as messages use it before the directory has
 * it. */
static int make_writer(struct gpt_checkpoint_writer **out, const char *root,
                       int64_t iteration, unsigned flags,
                       struct gpt_err *err)
{
    struct gpt_checkpoint_writer *w;

    if (iteration < 0)
        return gpt_fail(err, GPT_EUSAGE, "iteration %lld is negative",
                        (long long)iteration);
    GPT_TRY(gpt_new(&w, 1, sizeof(*w), "checkpoint writer", err));
    w->iteration = iteration;
    w->flags = flags;
    snprintf(w->root, sizeof(w->root), "%s", root);
    *out = w;
    return gpt_checkpoint_path(w->path, sizeof(w->path), root, iteration, err);
}

/* The directory has a temporary name until the commit. The root is made first,
 * since both must be on one file system for the rename. */
static int make_directory(struct gpt_checkpoint_writer *w, struct gpt_err *err)
{
    GPT_TRY(gpt_path_mkdirs(w->root, err));
    return gpt_outdir_open(&w->dir, w->path, w->flags, err);
}

/* The directory has a random part in its name. A rank that sees a directory of
 * that name sees the one that rank 0 made, and not one that another job left on
 * another disk. */
static int join_directory(struct gpt_checkpoint_writer *w, const char *path,
                          struct gpt_err *err)
{
    int status = gpt_outdir_join(&w->dir, path, err);

    if (status != GPT_EIO)
        return status;
    return gpt_fail(err, GPT_EIO,
                    "'%s', which rank 0 made, is not there: is '%s' on a file "
                    "system that all ranks share?", path, w->root);
}

/* Two rounds. In the first, rank 0 makes the directory and all ranks learn its
 * name, or the first failure. In the second, all have joined it or none goes
 * on. A rank whose own preparation failed takes part in the first round all the
 * same: others wait for it there. */
int gpt_checkpoint_create_all(struct gpt_checkpoint_writer **out,
                              const char *root, int64_t iteration,
                              unsigned flags, struct gpt_agreement *peers,
                              struct gpt_err *err)
{
    struct gpt_checkpoint_writer *w = NULL;
    char *path = NULL;

    *out = NULL;
    int status = make_writer(&w, root, iteration, flags, err);
    if (gpt_agreement_first(peers) && status == GPT_OK)
        status = make_directory(w, err);
    const char *made = w && w->dir ? gpt_outdir_path(w->dir) : "";
    status = gpt_agreement_settle(peers, status, made, &path, err);
    if (path)
        status = join_directory(w, path, err);
    if (status == GPT_OK || path)
        status = gpt_agreement_settle(peers, status, "", NULL, err);
    gpt_free(path);
    if (status != GPT_OK) {
        gpt_checkpoint_abort(w);
        return status;
    }
    w->peers = peers;
    *out = w;
    return GPT_OK;
}

int gpt_checkpoint_create(struct gpt_checkpoint_writer **w, const char *root,
                          int64_t iteration, unsigned flags,
                          struct gpt_err *err)
{
    return gpt_checkpoint_create_all(w, root, iteration, flags, NULL, err);
}

void gpt_checkpoint_abort(struct gpt_checkpoint_writer *w)
{
    if (!w)
        return;
    gpt_outdir_abort(w->dir);
    gpt_manifest_free(&w->list);
    gpt_free(w);
}

/* ---- files of tensors ---- */

/* Size and checksum are filled in when the file is written. Messages name the
 * checkpoint as it will be called. */
static int add_file(struct gpt_checkpoint_writer *w, const char *name,
                    struct gpt_err *err)
{
    int status = gpt_manifest_add_file(&w->list, name, err);

    return status == GPT_OK ? GPT_OK : gpt_context(err, "%s", w->path);
}

/* Fills in a header for each slice, and a note that tells the place of the
 * slice in its tensor, so that a file explains itself when the manifest is
 * lost. */
static int describe_slices(const struct gpt_manifest_slice *slices, int64_t n,
                           struct gpt_safetensors *list, struct gpt_err *err)
{
    list->n = list->n_notes = n;
    GPT_TRY(gpt_new(&list->tensors, (size_t)n, sizeof(*list->tensors), "slices",
                    err));
    GPT_TRY(gpt_new(&list->notes, (size_t)n, sizeof(*list->notes), "slices",
                    err));
    for (int64_t i = 0; i < n; i++) {
        const struct gpt_tensor_slice *s = &slices[i].s;
        struct gpt_safetensor *t = &list->tensors[i];
        char whole[100], at[100];

        *t = (struct gpt_safetensor){
            .name = slices[i].entry, .dtype = s->dtype, .ndim = s->ndim};
        memcpy(t->shape, s->shape, sizeof(s->shape));
        gpt_dims_text(whole, sizeof(whole), s->global, s->ndim, 'x');
        gpt_dims_text(at, sizeof(at), s->begin, s->ndim, ',');
        const char *text =
            gpt_arena_printf(&list->arena, "%s at %s", whole, at);
        const char *key =
            gpt_arena_printf(&list->arena, "slice of %s", t->name);
        if (!text || !key)
            return gpt_no_memory(err, "names of files");
        list->notes[i] = (struct gpt_safetensors_note){key, text};
    }
    return GPT_OK;
}

/* Makes parts of the file from slices, which come from a plan or, with sources
 * NULL, from memory. The writer of the file says where each of them lies. */
static int make_parts(const struct gpt_tensor_slice *slices,
                      const struct gpt_tensor *const *sources, int64_t n,
                      struct gpt_part **parts, struct gpt_err *err)
{
    GPT_TRY(gpt_new(parts, (size_t)n, sizeof(**parts), "parts", err));
    for (int64_t i = 0; i < n; i++) {
        struct gpt_part *p = &(*parts)[i];

        *p = (struct gpt_part){.tensor = sources ? sources[i] : NULL,
                               .dtype = slices[i].dtype,
                               .data = slices[i].data};
        memcpy(p->begin, slices[i].begin, sizeof(p->begin));
        memcpy(p->shape, slices[i].shape, sizeof(p->shape));
    }
    return GPT_OK;
}

/* The files that are written together, and where they are in the writer's
 * list. */
struct batch {
    struct gpt_checkpoint_writer *w;
    const struct gpt_checkpoint_file *files;
    size_t first_file;
    size_t *first; /* slice of each */
};

static int write_file(void *context, int64_t i, struct gpt_fill *fill,
                      struct gpt_err *err)
{
    const struct batch *b = context;
    struct gpt_checkpoint_writer *w = b->w;
    const struct gpt_checkpoint_file *file = &b->files[i];
    struct gpt_manifest_file *f = &w->list.files[b->first_file + (size_t)i];
    const int64_t n = file->n;
    struct gpt_safetensors_writer *out = NULL;
    struct gpt_safetensors list = {0};
    struct gpt_part *parts = NULL;
    char path[GPT_PATH_BYTES];
    int status;

    GPT_TRY(gpt_path_join(path, GPT_PATH_BYTES, gpt_outdir_path(w->dir),
                          file->name, err));
    GPT_TRY_GOTO(status,
                 describe_slices(w->list.slices + b->first[i], n, &list, err),
                 out);
    GPT_TRY_GOTO(status,
                 gpt_safetensors_create(&out, path, w->flags | GPT_OUT_INSIDE,
                                        &list, err),
                 out);
    GPT_TRY_GOTO(status,
                 make_parts(file->slices, file->sources, n, &parts, err), out);
    GPT_TRY_GOTO(status,
                 gpt_safetensors_fill(out, fill, file->name, parts, err), out);
    status = gpt_safetensors_commit(out, &f->size, &f->crc, err);
    out = NULL;
out:
    gpt_safetensors_abort(out);
    gpt_free(parts);
    gpt_safetensors_close(&list);
    return status;
}

/* All files are noted in the list before one is written: entries get their
 * names there, and it does not move while threads look at it. Size and checksum
 * of a file are filled in when it is complete. After a failure the list is
 * wrong, but then the writer can only be aborted. */
int gpt_checkpoint_write_plan(struct gpt_checkpoint_writer *w,
                              const struct gpt_checkpoint_file *files,
                              int64_t n_files, struct gpt_fill *fill,
                              struct gpt_err *err)
{
    struct batch b = {.w = w, .files = files, .first_file = w->list.n_files};
    int64_t *bytes = NULL;
    int status;

    assert(w->dir); /* neither committed nor aborted */
    GPT_TRY_GOTO(status, gpt_new(&bytes, (size_t)n_files, sizeof(*bytes),
                                 "files", err), out);
    GPT_TRY_GOTO(status, gpt_new(&b.first, (size_t)n_files, sizeof(*b.first),
                                 "files", err), out);
    for (int64_t i = 0; i < n_files; i++) {
        GPT_TRY_GOTO(status, add_file(w, files[i].name, err), out);
        b.first[i] = w->list.n_slices;
        bytes[i] = files[i].bytes;
        GPT_TRY_GOTO(status,
                     gpt_manifest_add_slices(&w->list, files[i].slices,
                                             files[i].n, err),
                     out);
    }
    status = gpt_fill_files(fill, bytes, n_files, write_file, &b, err);
out:
    gpt_free(bytes);
    gpt_free(b.first);
    return status;
}

int gpt_checkpoint_write(struct gpt_checkpoint_writer *w, const char *file,
                         const struct gpt_tensor_slice *slices, int64_t n,
                         struct gpt_err *err)
{
    const struct gpt_checkpoint_file one = {file, slices, NULL, n, 0};
    /* one thread: the others have a step to compute meanwhile */
    struct gpt_fill fill = {.threads = 1};

    return gpt_checkpoint_write_plan(w, &one, 1, &fill, err);
}

/* Lays the header out as the writer will: names of entries and notes count too,
 * so the size of a file is exact before anything is written. */
int gpt_checkpoint_file_bytes(const struct gpt_tensor_slice *slices, int64_t n,
                              int64_t *bytes, struct gpt_err *err)
{
    struct gpt_manifest_list manifest = {0};
    struct gpt_safetensors list = {0};
    int status;

    GPT_TRY_GOTO(status, gpt_manifest_add_file(&manifest, "x", err), out);
    GPT_TRY_GOTO(status, gpt_manifest_add_slices(&manifest, slices, n, err),
                 out);
    GPT_TRY_GOTO(status, describe_slices(manifest.slices, n, &list, err), out);
    status = gpt_safetensors_size(&list, bytes, err);
out:
    gpt_manifest_free(&manifest);
    gpt_safetensors_close(&list);
    return status;
}

/* ---- other files ---- */

/* The checksum is that of the copy in memory and not of the source, which may
 * change in the meantime. */
int gpt_checkpoint_attach(struct gpt_checkpoint_writer *w, const char *name,
                          const char *source, struct gpt_err *err)
{
    const struct gpt_attachment a = {name, source};
    char *text;
    size_t len;
    int status;

    GPT_TRY(gpt_attachment_read(&a, &text, &len, err));
    GPT_TRY_GOTO(status, add_file(w, name, err), out);
    struct gpt_manifest_file *f = &w->list.files[w->list.n_files - 1];
    f->size = (int64_t)len;
    f->crc = gpt_crc32c(0, text, len);
    status = gpt_small_file_write(gpt_outdir_path(w->dir), name,
                                  gpt_small_flags(w->flags), text, len, err);
out:
    gpt_free(text);
    return status;
}
