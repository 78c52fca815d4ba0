/* Reading a checkpoint of torch.distributed.checkpoint; see dcp.h. The pickle
 * says what tensors there are, of which parts, and where each part is; every
 * part's own pickle says the same again, and is compared.
 *
 * .metadata has three maps: of each name its size and chunks, of each name and
 * offset the file and the bytes where that chunk is, and of nested keys their
 * flat names. Ranks write what they own, so that a chunk is anything from a row
 * to the whole, and replicas are written once. Files hold whole .pt archives
 * one after another: a chunk is read as such a one, at its place. Sizes come
 * from files of others, and no sum of them is trusted before it was compared
 * with what the tensor and the file have room for.
 *
 * Start at gpt_dcp_open(). */
#include "checkpoint/dcp/dcp.h"

#include "checkpoint/names.h"
#include "checkpoint/torch/torch.h"

#include <stdlib.h>
#include <string.h>

/* ---- lookups ---- */

static int compare_tensors(const void *a, const void *b)
{
    const struct gpt_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* Its member of `used` has the same index. */
static struct gpt_tensor *find_tensor(const struct gpt_dcp *d, const char *name)
{
    const struct gpt_tensor key = {.name = name};

    return d->n ? bsearch(&key, d->tensors, (size_t)d->n, sizeof(*d->tensors),
                          compare_tensors)
                : NULL;
}

const struct gpt_tensor *gpt_dcp_find(const struct gpt_dcp *d, const char *name)
{
    return find_tensor(d, name);
}

/* Text of a string, or NULL: names with a NUL in them are none. */
static const char *copy_text(struct gpt_dcp *d,
                             const struct gpt_pickle_value *v)
{
    if (!v || v->kind != GPT_PICKLE_STRING)
        return NULL;
    return gpt_arena_printf(&d->arena, "%.*s", (int)v->n, v->text);
}

/* Offsets are those in the pickle, which pickletools shows. */
static int bad_metadata(const struct gpt_torch *t,
                        const struct gpt_pickle_value *v, const char *what,
                        struct gpt_err *err)
{
    return gpt_fail(err, GPT_EDATA, "%s: byte %lld: %s", gpt_in_path(t->in),
                    v ? (long long)v->at : 0LL, what);
}

/* ---- tensors ---- */

/* What is no tensor, states of other kinds and objects, has no size; of it only
 * the name is kept. */
static int list_tensors(struct gpt_dcp *d, const struct gpt_torch *t,
                        struct gpt_err *err)
{
    const struct gpt_pickle_value *map = gpt_pickle_mapping(
        gpt_pickle_find(t->root, "state_dict_metadata"));
    const struct gpt_pickle_value *key, *value;
    int64_t shape[GPT_TENSOR_DIMS];
    int ndim;

    if (!map)
        return bad_metadata(t, t->root, "no state_dict_metadata", err);
    const int64_t n = gpt_pickle_pairs(map);
    GPT_TRY(gpt_new(&d->tensors, (size_t)n, sizeof(*d->tensors), "tensors",
                    err));
    GPT_TRY(gpt_new(&d->used, (size_t)n, sizeof(*d->used), "tensors", err));
    GPT_TRY(gpt_new(&d->objects, (size_t)n, sizeof(*d->objects), "names",
                    err));
    for (int64_t i = 0; i < n; i++) {
        gpt_pickle_pair(map, i, &key, &value);
        const struct gpt_pickle_value *size = gpt_pickle_find(value, "size");

        const char *name = copy_text(d, key);

        /* turns of positions, which torchtitan kept until version 0.1 */
        if (name && gpt_path_ends_in(name, "freqs_cis"))
            continue;
        /* bytes of an object, or a class that is newer than this reader */
        if (!size && name)
            d->objects[d->n_objects++] = name;
        if (!size)
            continue;
        if (!gpt_pickle_sizes(size, GPT_TENSOR_DIMS, shape, &ndim))
            return bad_metadata(t, value, "a tensor of a shape that is not "
                                "read", err);
        if (!name)
            return bad_metadata(t, value, "a tensor without a name", err);
        d->tensors[d->n++] = gpt_tensor_make(name, GPT_F32, ndim, shape);
    }
    /* lookups are by bisection: large models have thousands of tensors, each
     * with a part for every rank */
    if (d->n)
        qsort(d->tensors, (size_t)d->n, sizeof(*d->tensors), compare_tensors);
    for (int64_t i = 1; i < d->n; i++)
        if (strcmp(d->tensors[i].name, d->tensors[i - 1].name) == 0)
            return bad_metadata(t, map, "a tensor is there twice", err);
    return GPT_OK;
}

/* ---- parts ---- */

/* Parts of a file are mostly neighbours, so the search begins at the newest. */
static int open_file(struct gpt_dcp *d, const char *dir, const char *name,
                     struct gpt_dcp_file **out, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];

    for (int64_t i = d->n_files - 1; i >= 0; i--)
        if (strcmp(d->files[i].name, name) == 0) {
            *out = &d->files[i];
            return GPT_OK;
        }
    /* the name comes out of a file, and becomes a path */
    if (!gpt_name_is_safe(name) || d->n_files == GPT_DCP_FILES)
        return gpt_fail(err, GPT_EDATA, "%s/%s: bad file name '%.200s'", dir,
                        GPT_DCP_METADATA, name);
    GPT_TRY(gpt_path_join(path, sizeof(path), dir, name, err));
    if (!gpt_path_exists(path))
        return gpt_fail(err, GPT_EDATA, "%s: missing, though %s names it", path,
                        GPT_DCP_METADATA);
    GPT_TRY(gpt_grow(&d->files, &d->cap_files, (size_t)d->n_files + 1,
                     sizeof(*d->files), "files", err));
    *out = &d->files[d->n_files];
    **out = (struct gpt_dcp_file){.name = name};
    GPT_TRY(gpt_in_allow(d->n_files + 1, err));
    GPT_TRY(gpt_in_open(&(*out)->in, path, err));
    d->n_files++;
    return GPT_OK;
}

/* The part's own header against what the list of parts says of it. */
static int add_part(struct gpt_tensor *t, const struct gpt_torch *part,
                    const int64_t *begin, int ndim, struct gpt_err *err)
{
    struct gpt_torch_tensor there;
    struct gpt_file_box box = {.in = part->in};

    if (!gpt_torch_is_tensor(part->root))
        return bad_metadata(part, part->root, "a part that is no tensor", err);
    GPT_TRY(gpt_torch_tensor(part, t->name, part->root, &there, err));
    if (there.dtype == GPT_N_DTYPES)
        return gpt_fail(err, GPT_EDATA,
                        "%s: tensor '%.200s' is of type %s, which is not read",
                        gpt_in_path(part->in), t->name, there.type);
    if (there.ndim != t->ndim || ndim != t->ndim)
        return gpt_fail(err, GPT_EDATA,
                        "%s: tensor '%.200s' has %d dimensions, its part %d",
                        gpt_in_path(part->in), t->name, t->ndim, there.ndim);
    box.offset = there.begin;
    box.dtype = there.dtype;
    for (int k = 0; k < ndim; k++) {
        box.begin[k] = begin[k];
        box.shape[k] = there.shape[k];
        box.stride[k] = there.stride[k];
    }
    gpt_tensor_widen(t, there.dtype);
    return gpt_tensor_add(t, &box, err);
}

/* One row of storage_data: which part, in which range of which file. Rows of
 * what is no tensor are passed over. */
static int read_part(struct gpt_dcp *d, const char *dir,
                     const struct gpt_torch *t,
                     const struct gpt_pickle_value *key,
                     const struct gpt_pickle_value *value, struct gpt_err *err)
{
    const struct gpt_pickle_value *changed =
        gpt_pickle_find(value, "transform_descriptors");
    struct gpt_pickle_value **items;
    const char *name = copy_text(d, gpt_pickle_find(key, "fqn"));
    const char *file = copy_text(d, gpt_pickle_find(value, "relative_path"));
    struct gpt_tensor *tensor = name ? find_tensor(d, name) : NULL;
    int64_t begin[GPT_TENSOR_DIMS], offset, length, n;
    struct gpt_dcp_file *f = NULL;
    struct gpt_torch part;
    int ndim;

    /* objects have rows as well, and are not read */
    if (!tensor)
        return GPT_OK;
    if (!file ||
        !gpt_pickle_sizes(gpt_pickle_find(key, "offset"), GPT_TENSOR_DIMS,
                          begin, &ndim) ||
        !gpt_pickle_int(gpt_pickle_find(value, "offset"), &offset) ||
        !gpt_pickle_int(gpt_pickle_find(value, "length"), &length))
        return bad_metadata(t, key, "a part without a place", err);
    if (gpt_pickle_sequence(changed, &items, &n) && n > 0)
        return bad_metadata(t, key, "a part that was compressed or changed, "
                            "which is not read", err);
    /* the archive is opened for its header alone; its file stays open */
    GPT_TRY(open_file(d, dir, file, &f, err));
    f->parts++;
    GPT_TRY(gpt_torch_open_at(&part, f->in, offset, length, err));
    int status = add_part(tensor, &part, begin, ndim, err);
    gpt_torch_close(&part);
    return status;
}

/* Parts may be listed in any order; together they must cover their tensor. */
static int read_parts(struct gpt_dcp *d, const char *dir,
                      const struct gpt_torch *t, struct gpt_err *err)
{
    const struct gpt_pickle_value *map =
        gpt_pickle_mapping(gpt_pickle_find(t->root, "storage_data"));
    const struct gpt_pickle_value *key, *value;
    const int64_t n = map ? gpt_pickle_pairs(map) : 0;

    for (int64_t i = 0; i < n; i++) {
        gpt_pickle_pair(map, i, &key, &value);
        GPT_TRY(read_part(d, dir, t, key, value, err));
    }
    for (int64_t i = 0; i < d->n; i++)
        GPT_TRY(gpt_tensor_check(&d->tensors[i], dir, err));
    return GPT_OK;
}

/* The list of parts is no longer needed when all are found. */
int gpt_dcp_open(struct gpt_dcp **out, const char *dir, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];
    struct gpt_torch t;
    struct gpt_dcp *d;
    int status;

    *out = NULL;
    GPT_TRY(gpt_path_join(path, sizeof(path), dir, GPT_DCP_METADATA, err));
    GPT_TRY(gpt_torch_open(&t, path, err));
    GPT_TRY_GOTO(status, gpt_new(&d, 1, sizeof(*d), "a checkpoint", err), out);
    GPT_TRY_GOTO(status, list_tensors(d, &t, err), fail);
    GPT_TRY_GOTO(status, read_parts(d, dir, &t, err), fail);
    *out = d;
    goto out;
fail:
    gpt_dcp_close(d);
out:
    gpt_torch_close(&t);
    return status;
}

/* Files outlive the tensors, whose parts refer to them. */
void gpt_dcp_close(struct gpt_dcp *d)
{
    if (!d)
        return;
    for (int64_t i = 0; i < d->n; i++)
        gpt_tensor_free(&d->tensors[i]);
    for (int64_t i = 0; i < d->n_files; i++)
        gpt_in_close(d->files[i].in);
    gpt_free(d->tensors);
    gpt_free(d->used);
    gpt_free(d->objects);
    gpt_free(d->files);
    gpt_arena_free(&d->arena);
    gpt_free(d);
}
