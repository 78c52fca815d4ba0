/* Reading native checkpoints. open_dir() takes the manifest, opens every file
 * it names and holds each against the other: sizes, headers, shapes, coverage;
 * after that a read is gpt_tensor_gather(). gpt_checkpoint_open() chooses the
 * iteration. */
#include "checkpoint/manifest.h"
#include "checkpoint/native.h"
#include "checkpoint/safetensors.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 4096, CRC_CHUNK = 4 << 20 };

struct gpt_checkpoint {
    char dir[PATH];
    cJSON *manifest;
    struct gpt_config config;
    int64_t iteration, tp, pp;
    struct gpt_checkpoint_file *files; /* by name */
    struct gpt_safetensors *contents;  /* of each file; empty when attached */
    int64_t n_files;
    struct gpt_tensor *tensors; /* by name */
    int64_t n_tensors;
};

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
    cJSON_Delete(c->manifest);
    gpt_free(c);
}

static int lie(const struct gpt_checkpoint *c, struct gpt_err *err,
               const char *what, const char *name)
{
    return gpt_fail(err, GPT_EDATA, "%s/%s: %s '%.200s'", c->dir, GPT_MANIFEST,
                    what, name);
}

static int compare_files(const void *a, const void *b)
{
    const struct gpt_checkpoint_file *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int compare_tensors(const void *a, const void *b)
{
    const struct gpt_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* A list of at most GPT_TENSOR_DIMS integers. */
static int read_dims(const struct gpt_checkpoint *c, const cJSON *obj,
                     const char *key, const char *tensor, int64_t *dims,
                     int *n, struct gpt_err *err)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(obj, key), *item;
    *n = 0;
    if (!cJSON_IsArray(list))
        return lie(c, err, "no dimensions for tensor", tensor);
    cJSON_ArrayForEach(item, list)
    {
        double v = item->valuedouble;
        if (*n == GPT_TENSOR_DIMS || !cJSON_IsNumber(item) || !(v >= 0) ||
            v > 0x1p53 || v != (double)(int64_t)v)
            return lie(c, err, "bad dimensions for tensor", tensor);
        dims[(*n)++] = (int64_t)v;
    }
    return GPT_OK;
}

/* ---- files ---- */

static int check_crc(struct gpt_in *in, uint32_t want, struct gpt_err *err)
{
    int64_t size = gpt_in_size(in);
    uint32_t crc = 0;
    uint8_t *chunk;
    int status = GPT_OK;
    GPT_TRY(gpt_new(&chunk, CRC_CHUNK, 1, "checksum", err));
    for (int64_t at = 0; status == GPT_OK && at < size; at += CRC_CHUNK) {
        size_t n = (size_t)gpt_min_i64(CRC_CHUNK, size - at);
        status = gpt_in_read(in, chunk, at, n, err);
        if (status == GPT_OK)
            crc = gpt_crc32c(crc, chunk, n);
    }
    gpt_free(chunk);
    if (status == GPT_OK && crc != want)
        return gpt_fail(err, GPT_EDATA,
                        "%s: altered: CRC-32C is %08x, the manifest says %08x",
                        gpt_in_path(in), crc, want);
    return status;
}

static int open_file(const struct gpt_checkpoint *c,
                     struct gpt_checkpoint_file *f, struct gpt_safetensors *st,
                     bool verify, struct gpt_err *err)
{
    char path[PATH];
    struct gpt_in *in;
    const char *suffix = strrchr(f->name, '.');
    GPT_TRY(gpt_path_join(path, sizeof path, c->dir, f->name, err));
    if (!gpt_path_exists(path))
        return gpt_fail(err, GPT_EDATA,
                        "%s: missing, though the manifest names it", path);
    GPT_TRY(gpt_in_open(&in, path, err));
    int64_t size = gpt_in_size(in);
    int status = GPT_OK;
    if (size != f->size)
        status = gpt_fail(err, GPT_EDATA,
                          "%s: %s: %lld bytes, the manifest says %lld", path,
                          size < f->size ? "truncated" : "too long",
                          (long long)size, (long long)f->size);
    else if (verify)
        status = check_crc(in, f->crc, err);
    gpt_in_close(in);
    if (status == GPT_OK && suffix && strcmp(suffix, ".safetensors") == 0) {
        status = gpt_safetensors_open(st, path, err);
        f->tensors = status == GPT_OK ? st->n : 0;
    }
    return status;
}

static int read_file_row(const struct gpt_checkpoint *c, const cJSON *item,
                         struct gpt_checkpoint_file *f, struct gpt_err *err)
{
    const char *crc;
    char *end;
    f->name = item->string;
    if (!gpt_manifest_name_ok(f->name))
        return lie(c, err, "bad file name", f->name);
    GPT_TRY(gpt_json_int(item, "size", 0, INT64_MAX, &f->size, f->name, err));
    GPT_TRY(gpt_json_string(item, "crc32c", &crc, f->name, err));
    f->crc = (uint32_t)strtoul(crc, &end, 16);
    if (strlen(crc) != 8 || *end)
        return lie(c, err, "bad crc32c of file", f->name);
    return GPT_OK;
}

static int open_files(struct gpt_checkpoint *c, bool verify,
                      struct gpt_err *err)
{
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(c->manifest, "files");
    const cJSON *item;
    int64_t n = 0;
    if (!cJSON_IsObject(map))
        return lie(c, err, "no object", "files");
    cJSON_ArrayForEach(item, map) n++;
    GPT_TRY(gpt_new(&c->files, (size_t)n, sizeof *c->files, "files", err));
    GPT_TRY(gpt_new(&c->contents, (size_t)n, sizeof *c->contents, "files",
                    err));
    cJSON_ArrayForEach(item, map)
        GPT_TRY(read_file_row(c, item, &c->files[c->n_files++], err));
    if (n)
        qsort(c->files, (size_t)n, sizeof *c->files, compare_files);
    for (int64_t i = 0; i < n; i++)
        GPT_TRY(open_file(c, &c->files[i], &c->contents[i], verify, err));
    return GPT_OK;
}

/* ---- tensors ---- */

static int add_slice(struct gpt_checkpoint *c, struct gpt_tensor *t,
                     const cJSON *item, int64_t *used, struct gpt_err *err)
{
    struct gpt_checkpoint_file key, *f;
    int64_t begin[GPT_TENSOR_DIMS], shape[GPT_TENSOR_DIMS];
    int nb, ns;
    GPT_TRY(gpt_json_string(item, "file", &key.name, t->name, err));
    GPT_TRY(read_dims(c, item, "begin", t->name, begin, &nb, err));
    GPT_TRY(read_dims(c, item, "shape", t->name, shape, &ns, err));
    f = c->n_files ? bsearch(&key, c->files, (size_t)c->n_files,
                             sizeof *c->files, compare_files)
                   : NULL;
    if (!f || nb != t->ndim || ns != t->ndim)
        return lie(c, err, f ? "bad slice of tensor" : "no such file:",
                   f ? t->name : key.name);
    struct gpt_safetensors *st = &c->contents[f - c->files];
    const struct gpt_safetensor *in = gpt_safetensors_find(st, t->name);
    if (!in || in->dtype != t->dtype || in->ndim != ns ||
        memcmp(in->shape, shape, (size_t)ns * sizeof *shape) != 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: the manifest says that it holds a part of "
                        "'%s', %s",
                        c->dir, f->name, t->name,
                        in ? "of another type or shape" : "it does not");
    used[f - c->files]++;
    return gpt_tensor_add_rows(t, st->in, in->begin, in->dtype, begin, shape,
                               err);
}

static int read_tensor(struct gpt_checkpoint *c, const cJSON *item,
                       struct gpt_tensor *t, int64_t *used,
                       struct gpt_err *err)
{
    const cJSON *slices = cJSON_GetObjectItemCaseSensitive(item, "slices");
    const cJSON *slice;
    const char *dtype;
    t->name = item->string;
    GPT_TRY(gpt_json_string(item, "dtype", &dtype, t->name, err));
    GPT_TRY(read_dims(c, item, "shape", t->name, t->shape, &t->ndim, err));
    if (!gpt_dtype_parse(dtype, &t->dtype) || !cJSON_IsArray(slices))
        return lie(c, err, "bad type or slices of tensor", t->name);
    cJSON_ArrayForEach(slice, slices)
        GPT_TRY(add_slice(c, t, slice, used, err));
    return gpt_tensor_check(t, c->dir, err);
}

static int read_tensors(struct gpt_checkpoint *c, struct gpt_err *err)
{
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(c->manifest,
                                                        "tensors");
    const cJSON *item;
    int64_t *used, n = 0;
    int status = GPT_OK;
    if (!cJSON_IsObject(map))
        return lie(c, err, "no object", "tensors");
    cJSON_ArrayForEach(item, map) n++;
    GPT_TRY(gpt_new(&c->tensors, (size_t)n, sizeof *c->tensors, "tensors",
                    err));
    GPT_TRY(gpt_new(&used, (size_t)c->n_files, sizeof *used, "files", err));
    cJSON_ArrayForEach(item, map)
    {
        if (status == GPT_OK)
            status = read_tensor(c, item, &c->tensors[c->n_tensors++], used,
                                 err);
    }
    for (int64_t i = 0; status == GPT_OK && i < c->n_files; i++)
        if (used[i] != c->files[i].tensors)
            status = gpt_fail(err, GPT_EDATA,
                              "%s/%s: holds %lld tensors, the manifest knows "
                              "%lld",
                              c->dir, c->files[i].name,
                              (long long)c->files[i].tensors,
                              (long long)used[i]);
    gpt_free(used);
    if (c->n_tensors)
        qsort(c->tensors, (size_t)c->n_tensors, sizeof *c->tensors,
              compare_tensors);
    return status;
}

/* ---- opening ---- */

static int read_head(struct gpt_checkpoint *c, struct gpt_err *err)
{
    const cJSON *m = c->manifest;
    const cJSON *layout = cJSON_GetObjectItemCaseSensitive(m, "layout");
    const cJSON *config = cJSON_GetObjectItemCaseSensitive(m, "config");
    GPT_TRY(gpt_json_int(m, "iteration", 0, INT64_MAX, &c->iteration, c->dir,
                         err));
    GPT_TRY(gpt_json_int(layout, "tensor_parallel", 1, 65536, &c->tp, c->dir,
                         err));
    GPT_TRY(gpt_json_int(layout, "pipeline_parallel", 1, 65536, &c->pp, c->dir,
                         err));
    if (!cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(m, "state")))
        return lie(c, err, "no object", "state");
    return gpt_config_from_json(&c->config, config, c->dir, err);
}

static int open_dir(struct gpt_checkpoint **out, const char *dir, bool verify,
                    struct gpt_err *err)
{
    struct gpt_checkpoint *c;
    int status;
    GPT_TRY(gpt_new(&c, 1, sizeof *c, "checkpoint", err));
    snprintf(c->dir, sizeof c->dir, "%s", dir);
    GPT_TRY_GOTO(status, gpt_manifest_read(&c->manifest, dir, err), fail);
    GPT_TRY_GOTO(status, read_head(c, err), fail);
    GPT_TRY_GOTO(status, open_files(c, verify, err), fail);
    GPT_TRY_GOTO(status, read_tensors(c, err), fail);
    *out = c;
    return GPT_OK;
fail:
    gpt_checkpoint_close(c);
    return status;
}

static int open_iteration(struct gpt_checkpoint **c, const char *root,
                          int64_t iteration, bool verify, struct gpt_err *err)
{
    char dir[PATH];
    GPT_TRY(gpt_checkpoint_path(dir, sizeof dir, root, iteration, err));
    if (!gpt_path_is_dir(dir))
        return gpt_fail(err, GPT_EDATA, "%s: no such checkpoint", dir);
    return open_dir(c, dir, verify, err);
}

/* The newest iteration that opens; the reason why it is needed is in *err, and
 * stays there when nothing opens. */
static int fall_back(struct gpt_checkpoint **c, const char *root,
                     int64_t damaged, bool verify, struct gpt_err *err)
{
    struct gpt_err first = *err;
    int64_t *list;
    size_t n;
    int status = GPT_EDATA;
    if (gpt_checkpoint_list(root, &list, &n, NULL) != GPT_OK)
        return first.status;
    for (size_t i = 0; status != GPT_OK && i < n; i++)
        if (list[i] != damaged)
            status = open_iteration(c, root, list[i], verify, NULL);
    gpt_free(list);
    if (status != GPT_OK) {
        *err = first;
        return first.status;
    }
    gpt_warn("%s", first.text);
    gpt_warn("using %s instead", (*c)->dir);
    return GPT_OK;
}

int gpt_checkpoint_open(struct gpt_checkpoint **c, const char *path,
                        int64_t iteration, bool verify, struct gpt_err *err)
{
    char manifest[PATH];
    struct gpt_err own = {0};
    *c = NULL;
    err = err ? err : &own;
    if (!gpt_path_is_dir(path))
        return gpt_fail(err, GPT_EIO, "%s: no such directory", path);
    GPT_TRY(gpt_path_join(manifest, sizeof manifest, path, GPT_MANIFEST, err));
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    if (gpt_path_exists(manifest) || strncmp(base, "iter_", 5) == 0)
        return open_dir(c, path, verify, err);
    if (iteration >= 0)
        return open_iteration(c, path, iteration, verify, err);
    int status = gpt_checkpoint_tracker(path, &iteration, err);
    if (status == GPT_OK)
        status = open_iteration(c, path, iteration, verify, err);
    return status == GPT_EDATA ? fall_back(c, path, iteration, verify, err)
                               : status;
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

const struct gpt_checkpoint_file *
gpt_checkpoint_files(const struct gpt_checkpoint *c, int64_t *n)
{
    *n = c->n_files;
    return c->files;
}

const struct gpt_tensor *gpt_checkpoint_find(const struct gpt_checkpoint *c,
                                             const char *name)
{
    struct gpt_tensor key = {.name = name};
    return c->n_tensors ? bsearch(&key, c->tensors, (size_t)c->n_tensors,
                                  sizeof *c->tensors, compare_tensors)
                        : NULL;
}

bool gpt_checkpoint_has(const struct gpt_checkpoint *c, const char *name,
                        struct gpt_tensor_slice *info)
{
    const struct gpt_tensor *t = gpt_checkpoint_find(c, name);
    if (t && info) {
        *info = (struct gpt_tensor_slice){
            .name = t->name, .dtype = t->dtype, .ndim = t->ndim};
        memcpy(info->global, t->shape, sizeof t->shape);
        memcpy(info->shape, t->shape, sizeof t->shape);
    }
    return t != NULL;
}

int gpt_checkpoint_read(struct gpt_checkpoint *c,
                        const struct gpt_tensor_slice *want, void *dst,
                        struct gpt_err *err)
{
    const struct gpt_tensor *t = gpt_checkpoint_find(c, want->name);
    if (!t)
        return gpt_fail(err, GPT_EDATA, "%s: no tensor '%s'", c->dir,
                        want->name);
    if (t->ndim != want->ndim)
        return gpt_fail(err, GPT_EDATA,
                        "%s: tensor '%s' has %d dimensions, not %d", c->dir,
                        want->name, t->ndim, want->ndim);
    int status = gpt_tensor_gather(t, want->begin, want->shape, want->dtype,
                                   dst, err);
    return status == GPT_OK ? GPT_OK : gpt_context(err, "%s", c->dir);
}
