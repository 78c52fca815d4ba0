/* Reading native checkpoints. gpt_checkpoint_open_here() takes the manifest,
 * opens every file it names and holds each against the other: sizes, headers,
 * shapes, coverage; after that a read is gpt_tensor_gather(). open.c chooses
 * the iteration. */
#include "checkpoint/native/native.h"
#include "checkpoint/native/internal.h"
#include "checkpoint/safetensors/safetensors.h"

#include "base/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpt_checkpoint {
    char dir[GPT_PATH_BYTES];
    cJSON *manifest;
    struct gpt_config config;
    int64_t iteration, tp, pp;
    struct gpt_source_file *files;     /* in the order of the list */
    struct gpt_safetensors *contents;  /* of each file; empty when attached */
    int64_t n_files;
    struct gpt_tensor *tensors; /* by name */
    int64_t n_tensors;
    bool later; /* gpt_checkpoint_check() has something to do */
    struct gpt_manifest_list list; /* as the manifest says; its names */
};

/* Also frees what a failed open has left: counts grow as parts become valid. */
void gpt_checkpoint_close(struct gpt_checkpoint *c)
{
    if (!c)
        return;
    for (int64_t i = 0; i < c->n_tensors; i++)
        gpt_tensor_free(&c->tensors[i]);
    for (int64_t i = 0; c->contents && i < c->n_files; i++)
        gpt_safetensors_close(&c->contents[i]);
    gpt_free(c->tensors);
    gpt_free(c->contents);
    gpt_free(c->files);
    gpt_manifest_free(&c->list);
    cJSON_Delete(c->manifest);
    gpt_free(c);
}

/* Compares bytewise, as the manifest is sorted, and not by the locale. */
static int compare_tensors(const void *a, const void *b)
{
    const struct gpt_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* ---- files ---- */

static int check_crc(struct gpt_in *in, uint32_t want, struct gpt_err *err)
{
    uint32_t crc;

    GPT_TRY(gpt_in_sum_all(in, &crc, err));
    if (crc == want)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: altered: CRC-32C is %08x, the manifest says %08x",
                    gpt_in_path(in), crc, want);
}

/* Found without reading the file: truncation is the common damage. */
static int check_size(const struct gpt_in *in, int64_t want,
                      struct gpt_err *err)
{
    const int64_t size = gpt_in_size(in);

    if (size == want)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: %s: %lld bytes, the manifest says %lld",
                    gpt_in_path(in), size < want ? "truncated" : "too long",
                    (long long)size, (long long)want);
}

/* Opens a file whose checksum is to be known later. A header that cannot be
 * read is what was altered, unless the checksum says that it was written so. */
static int open_unchecked(struct gpt_safetensors *st, struct gpt_in *in,
                          uint32_t crc, struct gpt_err *err)
{
    int status = gpt_safetensors_open(st, gpt_in_path(in), err);
    struct gpt_err altered = {0};

    if (status == GPT_EDATA && err &&
        check_crc(in, crc, &altered) == GPT_EDATA)
        *err = altered;
    return status == GPT_OK ? gpt_in_keep_sums(st->in, err) : status;
}

/* Files without tensors are small, and never checked later. */
static int open_checked(struct gpt_checkpoint *c, int64_t i, struct gpt_in *in,
                        const struct gpt_share *share, struct gpt_err *err)
{
    const struct gpt_manifest_file *f = &c->list.files[i];
    const bool holds = gpt_name_holds_tensors(f->name);
    const bool mine = share->verify && i % share->size == share->rank;

    GPT_TRY(check_size(in, f->size, err));
    if (holds && mine && share->later)
        return open_unchecked(&c->contents[i], in, f->crc, err);
    if (mine)
        GPT_TRY(check_crc(in, f->crc, err));
    return holds ? gpt_safetensors_open(&c->contents[i], gpt_in_path(in), err)
                 : GPT_OK;
}

static int open_file(struct gpt_checkpoint *c, int64_t i,
                     const struct gpt_share *share, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];
    struct gpt_in *in;

    GPT_TRY(gpt_path_join(path, sizeof(path), c->dir, c->list.files[i].name,
                          err));
    if (!gpt_path_exists(path))
        return gpt_fail(err, GPT_EDATA,
                        "%s: missing, though the manifest names it", path);
    GPT_TRY(gpt_in_open(&in, path, err));
    const int status = open_checked(c, i, in, share, err);
    gpt_in_close(in);
    c->files[i].tensors = c->contents[i].n;
    return status;
}

/* All files stay open, since slices are read in the order of the destination
 * and not of the files. A job of many ranks writes more files than a process
 * may usually have open; gpt_in_allow() raises that limit or says which one it
 * is. */
static int open_files(struct gpt_checkpoint *c, const struct gpt_share *share,
                      struct gpt_err *err)
{
    const struct gpt_manifest_list *list = &c->list;

    GPT_TRY(gpt_in_allow((int64_t)list->n_files, err));
    GPT_TRY(gpt_new(&c->files, list->n_files, sizeof(*c->files), "files", err));
    GPT_TRY(gpt_new(&c->contents, list->n_files, sizeof(*c->contents), "files",
                    err));
    for (size_t i = 0; i < list->n_files; i++) {
        const struct gpt_manifest_file *f = &list->files[i];

        c->files[c->n_files++] =
            (struct gpt_source_file){.name = f->name, .bytes = f->size};
    }
    for (int64_t i = 0; i < c->n_files; i++)
        GPT_TRY(open_file(c, i, share, err));
    c->later = share->verify && share->later;
    return GPT_OK;
}

int gpt_checkpoint_check(const struct gpt_checkpoint *c, struct gpt_err *err)
{
    for (int64_t i = 0; c->later && i < c->n_files; i++)
        if (c->contents[i].in)
            GPT_TRY(check_crc(c->contents[i].in, c->list.files[i].crc, err));
    return GPT_OK;
}

/* ---- tensors ---- */

/* Finds the entry of a file that a slice of the manifest is. Type and shape are
 * said twice, in the manifest and in the file's header; both must say the same,
 * or one of them was exchanged. */
static int find_entry(const struct gpt_checkpoint *c,
                      const struct gpt_manifest_slice *slice,
                      const struct gpt_safetensor **entry,
                      struct gpt_err *err)
{
    const struct gpt_tensor_slice *s = &slice->s;
    const struct gpt_safetensor *in =
        gpt_safetensors_find(&c->contents[slice->file], slice->entry);

    *entry = in;
    if (in && in->dtype == s->dtype && in->ndim == s->ndim &&
        memcmp(in->shape, s->shape, (size_t)s->ndim * sizeof(*s->shape)) == 0)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s/%s: the manifest says that it holds a part of '%s', "
                    "%s", c->dir, c->files[slice->file].name, slice->entry,
                    in ? "of another type or shape" : "it does not");
}

/* Makes the tensor that begins at slice `first` of the list; *next is the slice
 * after its last one. Names are compared by address: the parser gives all
 * slices of a tensor one copy of its name. */
static int read_tensor(struct gpt_checkpoint *c,
                       const struct gpt_manifest_list *list, size_t first,
                       size_t *next, struct gpt_err *err)
{
    const struct gpt_tensor_slice *head = &list->slices[first].s;
    struct gpt_tensor *t = &c->tensors[c->n_tensors++];

    *t = gpt_tensor_make(head->name, head->dtype, head->ndim, head->global);
    for (*next = first; *next < list->n_slices; ++*next) {
        const struct gpt_manifest_slice *slice = &list->slices[*next];
        const struct gpt_safetensor *entry;

        if (slice->s.name != head->name) /* shared by a tensor's slices */
            break;
        GPT_TRY(find_entry(c, slice, &entry, err));
        GPT_TRY(gpt_tensor_add_rows(t, c->contents[slice->file].in,
                                    entry->begin, entry->dtype, slice->s.begin,
                                    slice->s.shape, err));
    }
    return gpt_tensor_check(t, c->dir, err);
}

/* Compares files by number, and entries of one file by name. */
static int by_entry(const void *a, const void *b)
{
    const struct gpt_manifest_slice *const *x = a, *const *y = b;

    if ((*x)->file != (*y)->file)
        return (*x)->file < (*y)->file ? -1 : 1;
    return strcmp((*x)->entry, (*y)->entry);
}

/* Checks that every entry of every file is one slice: none is used twice, none
 * is left over. Together with gpt_tensor_check() this makes slices and entries
 * one to one. */
static int check_entries(const struct gpt_checkpoint *c,
                         const struct gpt_manifest_list *list,
                         const struct gpt_manifest_slice **sorted,
                         int64_t *used, struct gpt_err *err)
{
    for (size_t i = 0; i < list->n_slices; i++)
        sorted[i] = &list->slices[i];
    if (list->n_slices)
        qsort(sorted, list->n_slices, sizeof(*sorted), by_entry);
    for (size_t i = 0; i < list->n_slices; i++) {
        if (i && by_entry(&sorted[i - 1], &sorted[i]) == 0)
            return gpt_fail(err, GPT_EDATA,
                            "%s/%s: '%s' of file %s is in two slices", c->dir,
                            GPT_MANIFEST, sorted[i]->entry,
                            c->files[sorted[i]->file].name);
        used[sorted[i]->file]++;
    }
    for (int64_t i = 0; i < c->n_files; i++)
        if (used[i] != c->files[i].tensors)
            return gpt_fail(err, GPT_EDATA,
                            "%s/%s: holds %lld tensors, the manifest knows "
                            "%lld",
                            c->dir, c->files[i].name,
                            (long long)c->files[i].tensors,
                            (long long)used[i]);
    return GPT_OK;
}

/* The list has the slices of a tensor next to each other, in the order of the
 * manifest. Tensors are counted before they are allocated, since views of other
 * tensors point at them and the array must not move. */
static int read_tensors(struct gpt_checkpoint *c,
                        const struct gpt_manifest_list *list,
                        struct gpt_err *err)
{
    const struct gpt_manifest_slice **sorted = NULL;
    int64_t *used = NULL;
    size_t n = 0, next;
    int status;

    for (size_t i = 0; i < list->n_slices; i++)
        n += i == 0 || list->slices[i].s.name != list->slices[i - 1].s.name;
    GPT_TRY(gpt_new(&c->tensors, n, sizeof(*c->tensors), "tensors", err));
    for (size_t i = 0; i < list->n_slices; i = next)
        GPT_TRY(read_tensor(c, list, i, &next, err));
    if (n)
        qsort(c->tensors, n, sizeof(*c->tensors), compare_tensors);
    GPT_TRY(gpt_new(&used, (size_t)c->n_files, sizeof(*used), "files", err));
    GPT_TRY_GOTO(
        status,
        gpt_new(&sorted, list->n_slices, sizeof(*sorted), "slices", err), out);
    status = check_entries(c, list, sorted, used, err);
out:
    gpt_free(sorted);
    gpt_free(used);
    return status;
}

/* ---- opening ---- */

/* Reads what every reader needs before files are opened. Each number is checked
 * against its range here, as the manifest's own checksum guards against
 * accidents only. */
static int read_head(struct gpt_checkpoint *c, struct gpt_err *err)
{
    const cJSON *m = c->manifest;
    const cJSON *layout = cJSON_GetObjectItemCaseSensitive(m, "layout");
    const cJSON *config = cJSON_GetObjectItemCaseSensitive(m, "config");
    char what[GPT_JOINED_BYTES];

    snprintf(what, sizeof(what), "%s/%s", c->dir, GPT_MANIFEST);
    GPT_TRY(gpt_json_int(m, "iteration", 0, INT64_MAX, &c->iteration, what,
                         err));
    GPT_TRY(gpt_json_int(layout, "tensor_parallel", 1, 65536, &c->tp, what,
                         err));
    GPT_TRY(gpt_json_int(layout, "pipeline_parallel", 1, 65536, &c->pp, what,
                         err));
    if (!cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(m, "state")))
        return gpt_fail(err, GPT_EDATA, "%s: no object 'state'", what);
    GPT_TRY(gpt_config_from_json(&c->config, config, what, err));
    return gpt_manifest_parse(&c->list, m, what, err);
}

/* The order is from cheap to dear: manifest, sizes and headers, coverage. */
int gpt_checkpoint_open_here(struct gpt_checkpoint **out, const char *dir,
                             const struct gpt_share *share,
                             struct gpt_err *err)
{
    struct gpt_checkpoint *c;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&c, 1, sizeof(*c), "checkpoint", err));
    snprintf(c->dir, sizeof(c->dir), "%s", dir);
    GPT_TRY_GOTO(status, gpt_manifest_read(&c->manifest, dir, err), fail);
    GPT_TRY_GOTO(status, read_head(c, err), fail);
    if (share->weights_only)
        GPT_TRY_GOTO(status, gpt_manifest_keep_weights(&c->list, err), fail);
    /* the list has it all, in far less memory */
    cJSON_DeleteItemFromObjectCaseSensitive(c->manifest, "files");
    cJSON_DeleteItemFromObjectCaseSensitive(c->manifest, "tensors");
    GPT_TRY_GOTO(status, open_files(c, share, err), fail);
    GPT_TRY_GOTO(status, read_tensors(c, &c->list, err), fail);
    *out = c;
    return GPT_OK;
fail:
    gpt_checkpoint_close(c);
    return status;
}

/* ---- asking ---- */

const char *gpt_checkpoint_dir(const struct gpt_checkpoint *c)
{
    return c->dir;
}

const struct gpt_config *gpt_checkpoint_config(const struct gpt_checkpoint *c)
{
    return &c->config;
}

const cJSON *gpt_checkpoint_state(const struct gpt_checkpoint *c)
{
    return cJSON_GetObjectItemCaseSensitive(c->manifest, "state");
}

void gpt_checkpoint_layout(const struct gpt_checkpoint *c, int64_t *tp_size,
                           int64_t *pp_size)
{
    *tp_size = c->tp;
    *pp_size = c->pp;
}

int64_t gpt_checkpoint_iteration(const struct gpt_checkpoint *c)
{
    return c->iteration;
}

const struct gpt_tensor *gpt_checkpoint_tensors(const struct gpt_checkpoint *c,
                                                int64_t *n)
{
    *n = c->n_tensors;
    return c->tensors;
}

const struct gpt_source_file *
gpt_checkpoint_files(const struct gpt_checkpoint *c, int64_t *n)
{
    *n = c->n_files;
    return c->files;
}
