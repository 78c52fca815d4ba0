/* Describing a checkpoint. Whatever the format, it becomes a struct report: a
 * JSON head (configuration, state, layout) and rows of tensors; two printers
 * show it. Start at gpt_inspect(). */
#include "cmd/reshape/inspect.h"

#include "base/num.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
    const char *name, *file; /* file: NULL when in several */
    enum gpt_dtype dtype;
    int ndim;
    int64_t shape[GPT_SAFETENSORS_DIMS];
    int64_t count, bytes, slices;
};

struct file {
    const char *name;
    int64_t bytes, tensors;
};

struct report {
    const char *format;
    cJSON *head; /* object: config, state, ... */
    struct row *rows;
    struct file *files;
    size_t n_rows, cap_rows, n_files, cap_files;
    int64_t parameters, bytes; /* optimizer state counts in bytes only */
};

static int add_row(struct report *r, struct row row, struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&r->rows, &r->cap_rows, r->n_rows + 1, sizeof(*r->rows),
                     "tensors", err));
    row.count = 1; /* the product was checked when the file was opened */
    for (int d = 0; d < row.ndim; d++)
        row.count *= row.shape[d];
    row.bytes = row.count * (int64_t)gpt_dtype_bytes(row.dtype);
    r->bytes += row.bytes;
    if (strncmp(row.name, "optimizer.", 10) != 0)
        r->parameters += row.count;
    r->rows[r->n_rows++] = row;
    return GPT_OK;
}

static int add_file(struct report *r, const char *name, int64_t bytes,
                    int64_t tensors, struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&r->files, &r->cap_files, r->n_files + 1,
                     sizeof(*r->files), "files", err));
    r->files[r->n_files++] = (struct file){name, bytes, tensors};
    return GPT_OK;
}

static int add_safetensors(struct report *r, const struct gpt_safetensors *st,
                           const char *name, struct gpt_err *err)
{
    GPT_TRY(add_file(r, name, gpt_in_size(st->in), st->n, err));
    for (int64_t i = 0; i < st->n; i++) {
        const struct gpt_safetensor *t = &st->tensors[i];
        struct row row = {.name = t->name, .file = name, .dtype = t->dtype,
                          .ndim = t->ndim, .slices = 1};

        memcpy(row.shape, t->shape, sizeof(t->shape));
        GPT_TRY(add_row(r, row, err));
    }
    return GPT_OK;
}

/* The file that a piece lies in, without its directory. */
static const char *file_of(const struct gpt_file_box *p)
{
    const char *path = gpt_in_path(p->in), *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static int add_native(struct report *r, const struct gpt_source *s,
                      struct gpt_err *err)
{
    int64_t n;
    const struct gpt_checkpoint_file *files =
        gpt_checkpoint_files(s->native, &n);

    for (int64_t i = 0; i < n; i++)
        GPT_TRY(add_file(r, files[i].name, files[i].size, files[i].tensors,
                         err));
    for (int64_t i = 0; i < s->n; i++) {
        const struct gpt_tensor *t = &s->tensors[i];
        struct row row = {.name = t->name, .dtype = t->dtype, .ndim = t->ndim,
                          .slices = (int64_t)t->n};

        row.file = t->n == 1 ? file_of(&t->pieces[0]) : NULL;
        memcpy(row.shape, t->shape, sizeof(t->shape));
        GPT_TRY(add_row(r, row, err));
    }
    cJSON *layout = cJSON_AddObjectToObject(r->head, "layout");
    cJSON_AddNumberToObject(r->head, "iteration", (double)s->iteration);
    cJSON_AddNumberToObject(layout, "tensor_parallel", (double)s->tp);
    cJSON_AddNumberToObject(layout, "pipeline_parallel", (double)s->pp);
    cJSON_AddItemToObject(
        r->head, "state",
        cJSON_Duplicate(gpt_checkpoint_state(s->native), true));
    return GPT_OK;
}

static int fill(struct report *r, const struct gpt_source *s,
                struct gpt_err *err)
{
    const struct gpt_safetensors *shard;
    const char *name;

    r->format = s->native ? "native" : "huggingface";
    cJSON_AddStringToObject(r->head, "directory", s->dir);
    cJSON_AddItemToObject(r->head, "config", gpt_config_to_json(&s->config));
    if (s->native)
        return add_native(r, s, err);
    for (size_t i = 0; (shard = gpt_hf_shard(s->hf, i, &name)); i++)
        GPT_TRY(add_safetensors(r, shard, name, err));
    return GPT_OK;
}

/* ---- printing ---- */

static int row_order(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    const char *p = x->name, *q = y->name;

    while (*p && *p == *q)
        p++, q++;
    /* numbers by value: layers.10 after layers.9 */
    while (p > x->name && p[-1] >= '0' && p[-1] <= '9')
        p--, q--;
    if (*p >= '0' && *p <= '9' && *q >= '0' && *q <= '9') {
        size_t m = strspn(p, "0123456789"), n = strspn(q, "0123456789");

        if (m != n)
            return m < n ? -1 : 1;
    }
    return strcmp(p, q);
}

static void shape_text(char *buf, size_t cap, const struct row *row)
{
    size_t n = 0;

    snprintf(buf, cap, "[");
    for (int d = 0; d < row->ndim; d++) {
        n = strlen(buf);
        snprintf(buf + n, cap - n, "%s%lld", d ? ", " : "",
                 (long long)row->shape[d]);
    }
    n = strlen(buf);
    snprintf(buf + n, cap - n, "]");
}

/* "hidden_size 768" a line; what is nested, as JSON. */
static int print_object(struct gpt_buf *b, const char *title,
                        const cJSON *object)
{
    const cJSON *item;

    if (!object)
        return GPT_OK;
    GPT_TRY(gpt_buf_printf(b, "%s:\n", title));
    cJSON_ArrayForEach(item, object)
    {
        bool lines = cJSON_IsString(item) && strchr(item->valuestring, '\n');
        char *text = lines ? NULL : gpt_json_print(item, false);
        int status = gpt_buf_printf(b, "  %-24s %s\n", item->string,
                                    text ? text : "(several lines)");
        cJSON_free(text);
        GPT_TRY(status);
    }
    return GPT_OK;
}

static int print_table(struct gpt_buf *b, const struct report *r,
                       const char *path)
{
    char shape[200], size[32], count[32];
    int width = 0;
    const cJSON *layout = cJSON_GetObjectItem(r->head, "layout");

    GPT_TRY(gpt_buf_printf(b, "%s: %s\n", path, r->format));
    GPT_TRY(print_object(b, "config",
                         cJSON_GetObjectItem(r->head, "config")));
    GPT_TRY(print_object(b, "layout", layout));
    GPT_TRY(print_object(b, "state", cJSON_GetObjectItem(r->head, "state")));
    GPT_TRY(print_object(b, "metadata",
                         cJSON_GetObjectItem(r->head, "metadata")));
    GPT_TRY(gpt_buf_printf(b, "files:\n"));
    for (size_t i = 0; i < r->n_files; i++)
        GPT_TRY(gpt_buf_printf(b, "  %-40s %10s  %lld tensors\n",
                               r->files[i].name,
                               gpt_text_bytes(size, (double)r->files[i].bytes),
                               (long long)r->files[i].tensors));
    for (size_t i = 0; i < r->n_rows; i++)
        if ((int)strlen(r->rows[i].name) > width)
            width = (int)strlen(r->rows[i].name);
    GPT_TRY(gpt_buf_printf(b, "tensors:\n"));
    for (size_t i = 0; i < r->n_rows; i++) {
        const struct row *row = &r->rows[i];

        shape_text(shape, sizeof(shape), row);
        GPT_TRY(gpt_buf_printf(b, "  %-*s  %-4s  %-16s  ", width, row->name,
                               gpt_dtype_name(row->dtype), shape));
        if (row->file)
            GPT_TRY(gpt_buf_printf(b, "%s\n", row->file));
        else
            GPT_TRY(gpt_buf_printf(b, "%lld slices\n",
                                   (long long)row->slices));
    }
    return gpt_buf_printf(b, "total: %zu tensors, %s parameters, %s\n",
                          r->n_rows,
                          gpt_text_si(count, (double)r->parameters),
                          gpt_text_bytes(size, (double)r->bytes));
}

static void row_to_json(cJSON *list, const struct row *row)
{
    cJSON *item = cJSON_CreateObject(), *shape;

    cJSON_AddStringToObject(item, "name", row->name);
    cJSON_AddStringToObject(item, "dtype", gpt_dtype_name(row->dtype));
    shape = cJSON_AddArrayToObject(item, "shape");
    for (int d = 0; d < row->ndim; d++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)row->shape[d]));
    cJSON_AddNumberToObject(item, "bytes", (double)row->bytes);
    cJSON_AddNumberToObject(item, "slices", (double)row->slices);
    cJSON_AddItemToArray(list, item);
}

static int print_json(struct gpt_buf *b, struct report *r, const char *path)
{
    cJSON *files, *tensors;

    cJSON_AddStringToObject(r->head, "path", path);
    cJSON_AddStringToObject(r->head, "format", r->format);
    cJSON_AddNumberToObject(r->head, "parameters", (double)r->parameters);
    cJSON_AddNumberToObject(r->head, "bytes", (double)r->bytes);
    files = cJSON_AddArrayToObject(r->head, "files");
    for (size_t i = 0; i < r->n_files; i++) {
        cJSON *item = cJSON_CreateObject();

        cJSON_AddStringToObject(item, "name", r->files[i].name);
        cJSON_AddNumberToObject(item, "bytes", (double)r->files[i].bytes);
        cJSON_AddNumberToObject(item, "tensors", (double)r->files[i].tensors);
        cJSON_AddItemToArray(files, item);
    }
    tensors = cJSON_AddArrayToObject(r->head, "tensors");
    for (size_t i = 0; i < r->n_rows; i++)
        row_to_json(tensors, &r->rows[i]);
    char *text = gpt_json_print(r->head, false);
    int status = text ? gpt_buf_printf(b, "%s\n", text) : GPT_EFAIL;
    cJSON_free(text);
    return status;
}

static int print(struct gpt_buf *out, struct report *r, const char *path,
                 bool json, struct gpt_err *err)
{
    if (r->n_rows)
        qsort(r->rows, r->n_rows, sizeof(*r->rows), row_order);
    int status = json ? print_json(out, r, path) : print_table(out, r, path);
    if (status != GPT_OK)
        return gpt_fail(err, status, "out of memory");
    return GPT_OK;
}

static int inspect_file(struct report *r, struct gpt_buf *out,
                        const char *path, bool json, struct gpt_err *err)
{
    struct gpt_safetensors st;

    GPT_TRY(gpt_safetensors_open(&st, path, err));
    cJSON *notes = cJSON_AddObjectToObject(r->head, "metadata");
    r->format = "safetensors";
    for (int64_t i = 0; i < st.n_notes; i++)
        cJSON_AddStringToObject(notes, st.notes[i].key, st.notes[i].value);
    int status = add_safetensors(r, &st, path, err);
    if (status == GPT_OK)
        status = print(out, r, path, json, err);
    gpt_safetensors_close(&st);
    return status;
}

int gpt_inspect(struct gpt_buf *out, const char *path, bool json,
                struct gpt_err *err)
{
    struct report r = {.head = cJSON_CreateObject()};
    struct gpt_source s;
    int status;

    if (gpt_path_exists(path) && !gpt_path_is_dir(path)) {
        status = inspect_file(&r, out, path, json, err);
    } else {
        status = gpt_source_open(&s, path, false, 1, 1, err);
        if (status == GPT_OK) {
            status = fill(&r, &s, err);
            if (status == GPT_OK)
                status = print(out, &r, path, json, err);
            gpt_source_close(&s);
        }
    }
    cJSON_Delete(r.head);
    gpt_free(r.rows);
    gpt_free(r.files);
    return status;
}
