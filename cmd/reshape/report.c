/* Adding to a report and printing it; see report.h. Both forms have the same
 * content. */
#include "cmd/reshape/report.h"

#include "base/num.h"
#include "base/utf8.h"
#include "checkpoint/names.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gpt_report_free(struct gpt_shown *r)
{
    cJSON_Delete(r->head);
    gpt_free(r->rows);
    gpt_free(r->files);
}

/* A gpt_stored_visit. Optimizer state is not counted as parameters, which are
 * what people mean by the size of a model. */
int gpt_report_add_row(void *report, const struct gpt_stored *t,
                       struct gpt_err *err)
{
    struct gpt_shown *r = report;
    int64_t count = 1; /* the product was checked when the file was opened */

    GPT_TRY(gpt_grow(&r->rows, &r->cap_rows, r->n_rows + 1, sizeof(*r->rows),
                     "tensors", err));
    for (int d = 0; d < t->ndim; d++)
        count *= t->shape[d];
    struct gpt_shown_row row = {*t, t->packing ? t->bytes
                                     : count * (int64_t)gpt_dtype_bytes(
                                                   t->dtype)};
    /* views may repeat elements, so that a small file claims large sums */
    if (!gpt_add(r->bytes, row.bytes, &r->bytes) ||
        (!gpt_name_is_optimizer(t->name) &&
         !gpt_add(r->parameters, count, &r->parameters)))
        return gpt_fail(err, GPT_EDATA,
                        "tensor '%.200s': the sum of all sizes overflows",
                        t->name);
    r->rows[r->n_rows++] = row;
    return GPT_OK;
}

/* Names belong to the source, which outlives the report. */
int gpt_report_add_file(struct gpt_shown *r, const struct gpt_source_file *file,
                        struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&r->files, &r->cap_files, r->n_files + 1,
                     sizeof(*r->files), "files", err));
    r->files[r->n_files++] = *file;
    return GPT_OK;
}

/* ---- printing ---- */

/* Numbers in names count by their value, so that layer 10 comes after layer 9.
 * Only the first difference decides: the names are walked to it, and back to
 * the start of a number that it is inside. */
static int row_order(const void *a, const void *b)
{
    const struct gpt_shown_row *x = a, *y = b;
    const char *p = x->t.name, *q = y->t.name;

    while (*p && *p == *q)
        p++, q++;
    while (p > x->t.name && p[-1] >= '0' && p[-1] <= '9')
        p--, q--;
    if (*p >= '0' && *p <= '9' && *q >= '0' && *q <= '9') {
        size_t m = strspn(p, "0123456789"), n = strspn(q, "0123456789");

        if (m != n)
            return m < n ? -1 : 1;
    }
    return strcmp(p, q);
}

/* As JSON prints it, in both outputs. */
static void shape_text(char *buf, size_t cap, const struct gpt_stored *t)
{
    size_t n = 0;

    snprintf(buf, cap, "[");
    for (int d = 0; d < t->ndim; d++) {
        n = strlen(buf);
        snprintf(buf + n, cap - n, "%s%lld", d ? ", " : "",
                 (long long)t->shape[d]);
    }
    n = strlen(buf);
    snprintf(buf + n, cap - n, "]");
}

/* A name and what is said of it. Both come from a file that anybody may have
 * written. */
static int print_words(struct gpt_buf *b, int width, const char *name,
                       const char *text)
{
    const size_t begin = b->len + 2;

    GPT_TRY(gpt_buf_printf(b, "  "));
    GPT_TRY(gpt_buf_add_shown(b, name, ""));
    for (size_t n = b->len - begin; n < (size_t)width; n++)
        GPT_TRY(gpt_buf_add(b, " ", 1));
    GPT_TRY(gpt_buf_add(b, " ", 1));
    GPT_TRY(gpt_buf_add_shown(b, text, ""));
    return gpt_buf_add(b, "\n", 1);
}

/* One member a line: "hidden_size 768". Members that are objects themselves
 * print as JSON, and a text of several lines, such as the options of a run, is
 * only mentioned. */
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
        int status = lines || text ? print_words(b, 24, item->string,
                                                 text ? text
                                                      : "(several lines)")
                                   : GPT_EFAIL;

        cJSON_free(text);
        GPT_TRY(status);
    }
    return GPT_OK;
}

static const char *type_name(const struct gpt_stored *t)
{
    return t->packing ? t->packing : gpt_dtype_name(t->dtype);
}

static int widest(int width, const char *text)
{
    const int n = (int)strlen(text);

    return n > width ? n : width;
}

/* The width of names is measured first, as tables of different models have
 * names of different lengths. */
static int print_table(struct gpt_buf *b, const struct gpt_shown *r,
                       const char *path)
{
    char shape[200], size[32], count[32], text[GPT_JOINED_BYTES];
    int width = 0, type = 4;
    const cJSON *layout = cJSON_GetObjectItem(r->head, "layout");

    GPT_TRY(gpt_buf_add_shown(b, path, ""));
    GPT_TRY(gpt_buf_printf(b, ": %s\n", r->format));
    GPT_TRY(print_object(b, "config",
                         cJSON_GetObjectItem(r->head, "config")));
    GPT_TRY(print_object(b, "quantization",
                         cJSON_GetObjectItem(r->head, "quantization")));
    GPT_TRY(print_object(b, "layout", layout));
    GPT_TRY(print_object(b, "state", cJSON_GetObjectItem(r->head, "state")));
    GPT_TRY(print_object(b, "metadata",
                         cJSON_GetObjectItem(r->head, "metadata")));
    GPT_TRY(gpt_buf_printf(b, "files:\n"));
    for (size_t i = 0; i < r->n_files; i++) {
        snprintf(text, sizeof(text), "%10s  %lld tensor%s",
                 gpt_text_bytes(size, (double)r->files[i].bytes),
                 (long long)r->files[i].tensors,
                 gpt_plural(r->files[i].tensors));
        GPT_TRY(print_words(b, 40, r->files[i].name, text));
    }
    for (size_t i = 0; i < r->n_rows; i++) {
        width = widest(width, r->rows[i].t.name);
        type = widest(type, type_name(&r->rows[i].t));
    }
    GPT_TRY(gpt_buf_printf(b, "tensors:\n"));
    for (size_t i = 0; i < r->n_rows; i++) {
        const struct gpt_stored *t = &r->rows[i].t;

        shape_text(shape, sizeof(shape), t);
        int n = snprintf(text, sizeof(text), " %-*s  %-16s  ", type,
                         type_name(t), shape);
        assert(n > 0 && (size_t)n < sizeof(text));
        if (t->file)
            snprintf(text + n, sizeof(text) - (size_t)n, "%s", t->file);
        else
            snprintf(text + n, sizeof(text) - (size_t)n, "%lld slice%s",
                     (long long)t->slices, gpt_plural(t->slices));
        GPT_TRY(print_words(b, width, t->name, text));
    }
    return gpt_buf_printf(b, "total: %zu tensor%s, %s parameters, %s\n",
                          r->n_rows, gpt_plural((int64_t)r->n_rows),
                          gpt_text_si(count, (double)r->parameters),
                          gpt_text_bytes(size, (double)r->bytes));
}

/* Shapes are lists and types are safetensors' names. */
static void row_to_json(cJSON *list, const struct gpt_shown_row *row)
{
    cJSON *item = cJSON_CreateObject(), *shape;

    cJSON_AddStringToObject(item, "name", row->t.name);
    cJSON_AddStringToObject(item, "dtype", type_name(&row->t));
    shape = cJSON_AddArrayToObject(item, "shape");
    for (int d = 0; d < row->t.ndim; d++)
        gpt_json_add(shape, NULL, cJSON_CreateNumber((double)row->t.shape[d]));
    cJSON_AddNumberToObject(item, "bytes", (double)row->bytes);
    cJSON_AddNumberToObject(item, "slices", (double)row->t.slices);
    gpt_json_add(list, NULL, item);
}

/* The head becomes the object that is printed, so its members come first.
 * Programs read it, so numbers are not rounded to units as in the table. */
static int print_json(struct gpt_buf *b, struct gpt_shown *r, const char *path)
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
        gpt_json_add(files, NULL, item);
    }
    tensors = cJSON_AddArrayToObject(r->head, "tensors");
    for (size_t i = 0; i < r->n_rows; i++)
        row_to_json(tensors, &r->rows[i]);
    char *text = gpt_json_print(r->head, false);
    int status = text ? gpt_buf_printf(b, "%s\n", text) : GPT_EFAIL;
    cJSON_free(text);
    return status;
}

/* Everything goes into a buffer. A failure halfway then leaves nothing on
 * standard output. */
int gpt_report_print(struct gpt_buf *out, struct gpt_shown *r, const char *path,
                     bool json, struct gpt_err *err)
{
    /* The table would leave out what the head lacks. */
    if (gpt_json_out_of_memory())
        return gpt_no_memory(err, "the report");
    if (r->n_rows)
        qsort(r->rows, r->n_rows, sizeof(*r->rows), row_order);
    int status = json ? print_json(out, r, path) : print_table(out, r, path);
    if (status != GPT_OK)
        return gpt_no_memory(err, "the report");
    return GPT_OK;
}
