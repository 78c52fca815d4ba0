/* The lists of a manifest: files, and slices of tensors in them. A writer fills
 * one as it writes; what a rank wrote travels to rank 0 as the text that
 * gpt_manifest_print() makes, and goes into rank 0's list, as into a reader's,
 * by gpt_manifest_parse(). */
#include "checkpoint/native/manifest.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names of files and tensors lie in the arena and go with it. */
void gpt_manifest_free(struct gpt_manifest_list *l)
{
    gpt_free(l->files);
    gpt_free(l->slices);
    gpt_arena_free(&l->arena);
    *l = (struct gpt_manifest_list){0};
}

/* One format for shapes in messages, notes and names of entries, where the
 * separator differs. */
void gpt_dims_text(char *buf, size_t cap, const int64_t *dims, int ndim,
                   char separator)
{
    size_t n = 0;

    snprintf(buf, cap, "%s", ndim ? "" : "scalar");
    for (int d = 0; d < ndim && n < cap; d++)
        n += (size_t)snprintf(buf + n, cap - n, "%.*s%lld", d ? 1 : 0,
                              &separator, (long long)dims[d]);
}

/* ---- filling ---- */

/* Names are copied: a writer's come from the caller, a reader's from a tree of
 * JSON that is freed right after. */
static int keep_name(struct gpt_manifest_list *l, const char **name,
                     struct gpt_err *err)
{
    *name = gpt_arena_strdup(&l->arena, *name);
    return *name ? GPT_OK : gpt_no_memory(err, "names of files");
}

static int add_file(struct gpt_manifest_list *l, struct gpt_manifest_file f,
                    struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&l->files, &l->cap_files, l->n_files + 1,
                     sizeof(*l->files), "checkpoint files", err));
    GPT_TRY(keep_name(l, &f.name, err));
    l->files[l->n_files++] = f;
    return GPT_OK;
}

static int add_slice(struct gpt_manifest_list *l, struct gpt_manifest_slice s,
                     struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&l->slices, &l->cap_slices, l->n_slices + 1,
                     sizeof(*l->slices), "slices", err));
    l->slices[l->n_slices++] = s;
    return GPT_OK;
}

/* Adds a file. The search for its name is linear, as a rank adds only a few
 * files. */
int gpt_manifest_add_file(struct gpt_manifest_list *l, const char *name,
                          struct gpt_err *err)
{
    if (!gpt_name_is_safe(name) || strcmp(name, GPT_MANIFEST) == 0)
        return gpt_fail(err, GPT_EFAIL, "'%s' is no name for a file", name);
    for (size_t i = 0; i < l->n_files; i++)
        if (strcmp(l->files[i].name, name) == 0)
            return gpt_fail(err, GPT_EFAIL, "file '%s' twice", name);
    return add_file(l, (struct gpt_manifest_file){.name = name}, err);
}

/* Compares by name alone, so that slices of one tensor in one file come to lie
 * together. */
static int compare_tensors(const void *a, const void *b)
{
    const struct gpt_manifest_slice *const *x = a, *const *y = b;

    return strcmp((*x)->s.name, (*y)->s.name);
}

/* Gives entries their names. A file can hold an entry of a name once, and a
 * rank's shard may have several boxes of a tensor; their names end in where
 * they begin: "NAME@8,0". A slice that is alone keeps the tensor's name,
 * so that files of a plain layout read like any other safetensors file. */
static int name_entries(struct gpt_manifest_list *l,
                        struct gpt_manifest_slice *slices, size_t n,
                        struct gpt_err *err)
{
    struct gpt_manifest_slice **sorted;
    char at[100];
    int status = GPT_OK;

    GPT_TRY(gpt_new(&sorted, n, sizeof(*sorted), "slices", err));
    for (size_t i = 0; i < n; i++)
        sorted[i] = &slices[i];
    if (n)
        qsort(sorted, n, sizeof(*sorted), compare_tensors);
    for (size_t i = 0; i < n && status == GPT_OK; i++) {
        struct gpt_manifest_slice *s = sorted[i];
        bool alone =
            (i == 0 || compare_tensors(&sorted[i - 1], &sorted[i])) &&
            (i + 1 == n || compare_tensors(&sorted[i], &sorted[i + 1]));

        gpt_dims_text(at, sizeof(at), s->s.begin, s->s.ndim, ',');
        s->entry = alone ? s->s.name
                         : gpt_arena_printf(&l->arena, "%s@%s", s->s.name, at);
        if (!s->entry)
            status = gpt_no_memory(err, "names of files");
    }
    gpt_free(sorted);
    return status;
}

/* A name that cannot be printed into the manifest is the caller's error, found
 * before a file is written. */
int gpt_manifest_add_slices(struct gpt_manifest_list *l,
                            const struct gpt_tensor_slice *slices, int64_t n,
                            struct gpt_err *err)
{
    size_t first = l->n_slices;

    assert(l->n_files > 0);
    for (int64_t i = 0; i < n; i++) {
        struct gpt_manifest_slice s = {.s = slices[i], .file = l->n_files - 1};

        s.s.data = NULL;
        if (!gpt_name_is_safe(s.s.name) || s.s.ndim < 0 ||
            s.s.ndim > GPT_TENSOR_DIMS)
            return gpt_fail(err, GPT_EFAIL, "bad tensor name '%s'", s.s.name);
        GPT_TRY(keep_name(l, &s.s.name, err));
        GPT_TRY(add_slice(l, s, err));
    }
    return name_entries(l, l->slices + first, (size_t)n, err);
}

/* A checkpoint without split entries says version 1, which programs from before
 * them read. */
int gpt_manifest_version(const struct gpt_manifest_list *l)
{
    for (size_t i = 0; i < l->n_slices; i++)
        if (strcmp(l->slices[i].entry, l->slices[i].s.name) != 0)
            return 2;
    return 1;
}

/* ---- printing ---- */

/* Through pointers, so that files keep their place: slices refer to them by
 * index. */
static int compare_files(const void *a, const void *b)
{
    const struct gpt_manifest_file *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static int print_files(struct gpt_buf *b, const struct gpt_manifest_list *l)
{
    const struct gpt_manifest_file **sorted =
        gpt_alloc(l->n_files, sizeof(*sorted));

    if (!sorted)
        return GPT_EFAIL;
    for (size_t i = 0; i < l->n_files; i++)
        sorted[i] = &l->files[i];
    if (l->n_files)
        qsort(sorted, l->n_files, sizeof(*sorted), compare_files);
    int status = gpt_buf_printf(b, "\"files\": {");
    for (size_t i = 0; status == GPT_OK && i < l->n_files; i++)
        status = gpt_buf_printf(
            b, "%s\n  \"%s\": {\"size\": %lld, \"crc32c\": \"%08x\"}",
            i ? "," : "", sorted[i]->name, (long long)sorted[i]->size,
            sorted[i]->crc);
    gpt_free(sorted);
    return status == GPT_OK ? gpt_buf_printf(b, "\n},\n") : status;
}

/* Sorts by tensor, file and place. The order is a total one, so the text of a
 * manifest does not depend on which rank's list came first. */
static int compare_slices(const void *a, const void *b)
{
    const struct gpt_manifest_slice *x = a, *y = b;
    int by = strcmp(x->s.name, y->s.name);

    if (by == 0)
        by = (x->file > y->file) - (x->file < y->file);
    for (int d = 0; by == 0 && d < x->s.ndim && d < y->s.ndim; d++)
        by = (x->s.begin[d] > y->s.begin[d]) - (x->s.begin[d] < y->s.begin[d]);
    return by;
}

static int print_slice(struct gpt_buf *b, const struct gpt_manifest_list *l,
                       const struct gpt_manifest_slice *slice)
{
    const struct gpt_tensor_slice *s = &slice->s;
    char begin[100] = "", shape[100] = "";

    if (s->ndim) {
        gpt_dims_text(begin, sizeof(begin), s->begin, s->ndim, ',');
        gpt_dims_text(shape, sizeof(shape), s->shape, s->ndim, ',');
    }
    GPT_TRY(gpt_buf_printf(b, "\n    {\"file\": \"%s\", ",
                           l->files[slice->file].name));
    if (strcmp(slice->entry, s->name) != 0)
        GPT_TRY(gpt_buf_printf(b, "\"entry\": \"%s\", ", slice->entry));
    return gpt_buf_printf(b, "\"begin\": [%s], \"shape\": [%s]}", begin,
                          shape);
}

/* The slices are sorted, so a tensor is complete when the next name comes. The
 * head of a tensor is that of its first slice; all ranks describe a tensor
 * alike, and a reader checks the whole. */
static int print_tensors(struct gpt_buf *b, struct gpt_manifest_list *l)
{
    const char *last = "";

    if (l->n_slices)
        qsort(l->slices, l->n_slices, sizeof(*l->slices), compare_slices);
    GPT_TRY(gpt_buf_printf(b, "\"tensors\": {"));
    for (size_t i = 0; i < l->n_slices; i++) {
        const struct gpt_tensor_slice *s = &l->slices[i].s;
        char dims[100] = "";

        if (strcmp(s->name, last) == 0) {
            GPT_TRY(gpt_buf_printf(b, ","));
        } else {
            if (s->ndim)
                gpt_dims_text(dims, sizeof(dims), s->global, s->ndim, ',');
            GPT_TRY(gpt_buf_printf(
                b,
                "%s\n  \"%s\": {\"dtype\": \"%s\", \"shape\": [%s], "
                "\"slices\": [",
                i ? "]}," : "", s->name, gpt_dtype_name(s->dtype), dims));
        }
        GPT_TRY(print_slice(b, l, &l->slices[i]));
        last = s->name;
    }
    return gpt_buf_printf(b, "%s\n},\n", l->n_slices ? "]}" : "");
}

int gpt_manifest_print(struct gpt_buf *b, struct gpt_manifest_list *l)
{
    GPT_TRY(print_files(b, l));
    return print_tensors(b, l);
}

/* ---- parsing ---- */

/* Reports what is wrong with a file or tensor; gpt_manifest_parse() puts the
 * manifest's name before it. */
static int fail_name(struct gpt_err *err, const char *is, const char *name)
{
    return gpt_fail(err, GPT_EDATA, "%s '%.200s'", is, name);
}

/* The size is checked when the file is opened. Exactly eight digits: strtoul()
 * alone would take a sign or blanks. */
static int parse_file(struct gpt_manifest_list *l, const cJSON *item,
                      struct gpt_err *err)
{
    struct gpt_manifest_file f = {.name = item->string};
    const char *crc;
    char *end;

    if (!gpt_name_is_safe(f.name))
        return fail_name(err, "bad file name", f.name);
    GPT_TRY(gpt_json_int(item, "size", 0, INT64_MAX, &f.size, f.name, err));
    GPT_TRY(gpt_json_string(item, "crc32c", &crc, f.name, err));
    f.crc = (uint32_t)strtoul(crc, &end, 16);
    if (strlen(crc) != 8 || *end)
        return fail_name(err, "bad crc32c of file", f.name);
    return add_file(l, f, err);
}

/* A list of at most GPT_TENSOR_DIMS integers. JSON has one kind of number, so a
 * fraction, a negative one and one that a double cannot hold exactly are
 * refused one by one. */
static int parse_dims(const cJSON *obj, const char *key, const char *tensor,
                      int64_t *dims, int *n, struct gpt_err *err)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(obj, key), *item;

    *n = 0;
    if (!cJSON_IsArray(list))
        return fail_name(err, "no dimensions for tensor", tensor);
    cJSON_ArrayForEach(item, list)
    {
        double v = item->valuedouble;

        if (*n == GPT_TENSOR_DIMS || !cJSON_IsNumber(item) || !(v >= 0) ||
            v > 0x1p53 || v != (double)(int64_t)v)
            return fail_name(err, "bad dimensions for tensor", tensor);
        dims[(*n)++] = (int64_t)v;
    }
    return GPT_OK;
}

/* The files that one parse added, by name: a large manifest names its files
 * once for each of many thousand slices. Files that other ranks' lists added
 * are not among them, so a list cannot refer to them. */
struct file_index {
    const struct gpt_manifest_file **sorted;
    size_t n;
};

/* Boxes are not compared with the tensor's shape here; gpt_tensor_check() does
 * that for all front ends. */
static int parse_slice(struct gpt_manifest_list *l, const struct file_index *x,
                       const struct gpt_tensor_slice *tensor,
                       const cJSON *item, struct gpt_err *err)
{
    struct gpt_manifest_slice slice = {.s = *tensor, .entry = tensor->name};
    struct gpt_manifest_file key, *k = &key;
    const struct gpt_manifest_file **f;
    int nb, ns;

    GPT_TRY(gpt_json_string(item, "file", &key.name, tensor->name, err));
    GPT_TRY(parse_dims(item, "begin", tensor->name, slice.s.begin, &nb, err));
    GPT_TRY(parse_dims(item, "shape", tensor->name, slice.s.shape, &ns, err));
    if (cJSON_GetObjectItemCaseSensitive(item, "entry")) {
        GPT_TRY(gpt_json_string(item, "entry", &slice.entry, tensor->name,
                                err));
        GPT_TRY(keep_name(l, &slice.entry, err));
    }
    f = x->n ? bsearch(&k, x->sorted, x->n, sizeof(*x->sorted), compare_files)
             : NULL;
    if (!f)
        return fail_name(err, "no such file:", key.name);
    if (nb != tensor->ndim || ns != tensor->ndim)
        return fail_name(err, "bad slice of tensor", tensor->name);
    slice.file = (size_t)(*f - l->files);
    return add_slice(l, slice, err);
}

/* All slices share one copy of the name, which is how a reader knows them. */
static int parse_tensor(struct gpt_manifest_list *l, const struct file_index *x,
                        const cJSON *item, struct gpt_err *err)
{
    const cJSON *slices = cJSON_GetObjectItemCaseSensitive(item, "slices");
    const cJSON *slice;
    struct gpt_tensor_slice t = {.name = item->string};
    const char *dtype;

    GPT_TRY(keep_name(l, &t.name, err));
    GPT_TRY(gpt_json_string(item, "dtype", &dtype, t.name, err));
    GPT_TRY(parse_dims(item, "shape", t.name, t.global, &t.ndim, err));
    if (!gpt_dtype_parse(dtype, &t.dtype) || !cJSON_IsArray(slices) ||
        !slices->child)
        return fail_name(err, "bad type or slices of tensor", t.name);
    cJSON_ArrayForEach(slice, slices)
        GPT_TRY(parse_slice(l, x, &t, slice, err));
    return GPT_OK;
}

/* Parses the tensors. The index is by pointers into the list of files, which
 * does not grow while slices are parsed. */
static int parse_tensors(struct gpt_manifest_list *l, size_t first,
                         const cJSON *tensors, struct gpt_err *err)
{
    struct file_index x = {.n = l->n_files - first};
    const cJSON *item;
    int status = GPT_OK;

    GPT_TRY(gpt_new(&x.sorted, x.n, sizeof(*x.sorted), "files", err));
    for (size_t i = 0; i < x.n; i++)
        x.sorted[i] = &l->files[first + i];
    if (x.n)
        qsort(x.sorted, x.n, sizeof(*x.sorted), compare_files);
    cJSON_ArrayForEach(item, tensors)
    {
        if (status == GPT_OK)
            status = parse_tensor(l, &x, item, err);
    }
    gpt_free(x.sorted);
    return status;
}

/* Files first, as slices refer to them. */
static int parse_parts(struct gpt_manifest_list *l, const cJSON *root,
                       struct gpt_err *err)
{
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(root, "files");
    const cJSON *tensors = cJSON_GetObjectItemCaseSensitive(root, "tensors");
    const cJSON *item;
    size_t first = l->n_files;

    if (!cJSON_IsObject(files) || !cJSON_IsObject(tensors))
        return fail_name(err, "no object",
                         cJSON_IsObject(files) ? "tensors" : "files");
    cJSON_ArrayForEach(item, files)
        GPT_TRY(parse_file(l, item, err));
    return parse_tensors(l, first, tensors, err);
}

int gpt_manifest_parse(struct gpt_manifest_list *l, const cJSON *root,
                       const char *what, struct gpt_err *err)
{
    const int status = parse_parts(l, root, err);

    return status == GPT_OK ? GPT_OK : gpt_context(err, "%s", what);
}

/* ---- weights alone ---- */

/* True for a file that gpt_manifest_keep_weights() keeps: one with weights, or
 * one without tensors, which was attached. */
static bool is_kept(const struct gpt_manifest_file *f, size_t weights)
{
    return weights > 0 || !gpt_name_holds_tensors(f->name);
}

/* Whole files are dropped, so that what stays is a list like any other, whose
 * entries are those of its files. */
int gpt_manifest_keep_weights(struct gpt_manifest_list *l, struct gpt_err *err)
{
    size_t *weights, *place, files = 0, slices = 0;

    GPT_TRY(gpt_new(&weights, 2 * l->n_files, sizeof(*weights), "files", err));
    place = weights + l->n_files;
    for (size_t i = 0; i < l->n_slices; i++)
        weights[l->slices[i].file] +=
            !gpt_name_is_optimizer(l->slices[i].s.name);
    for (size_t i = 0; i < l->n_files; i++) {
        place[i] = files;
        if (is_kept(&l->files[i], weights[i]))
            l->files[files++] = l->files[i];
    }
    for (size_t i = 0; i < l->n_slices; i++) {
        struct gpt_manifest_slice s = l->slices[i];

        if (weights[s.file] == 0)
            continue;
        s.file = place[s.file];
        l->slices[slices++] = s;
    }
    l->n_files = files;
    l->n_slices = slices;
    gpt_free(weights);
    return GPT_OK;
}
