/* Describing a checkpoint. Whatever the format, it becomes a struct report: a
 * JSON head (configuration, state, layout) and rows of tensors. Two printers
 * show the report, a table for people and an object for programs. Start at
 * gpt_inspect().
 *
 * A single file, of safetensors or of torch.save(), is not a checkpoint, so it
 * does not become a source: it is shown as it is, with its own notes. */
#include "cmd/reshape/inspect.h"

#include "base/num.h"
#include "base/utf8.h"
#include "checkpoint/adapter/adapter.h"
#include "checkpoint/format.h"
#include "checkpoint/names.h"
#include "checkpoint/torch/torch.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor as the files have it, and its size. */
struct row {
    struct gpt_stored t;
    int64_t bytes;
};

/* What is shown of a checkpoint. Names belong to the source or the file, which
 * is open while the report is printed. */
struct report {
    const char *format;
    cJSON *head; /* object: config, state, ... */
    struct row *rows;
    struct gpt_source_file *files;
    size_t n_rows, cap_rows, n_files, cap_files;
    int64_t parameters, bytes; /* optimizer state counts in bytes only */
};

/* A gpt_stored_visit. Optimizer state is not counted as parameters, which are
 * what people mean by the size of a model. */
static int add_row(void *report, const struct gpt_stored *t,
                   struct gpt_err *err)
{
    struct report *r = report;
    int64_t count = 1; /* the product was checked when the file was opened */

    GPT_TRY(gpt_grow(&r->rows, &r->cap_rows, r->n_rows + 1, sizeof(*r->rows),
                     "tensors", err));
    for (int d = 0; d < t->ndim; d++)
        count *= t->shape[d];
    struct row row = {*t, t->packing ? t->bytes
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
static int add_file(struct report *r, const struct gpt_source_file *file,
                    struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&r->files, &r->cap_files, r->n_files + 1,
                     sizeof(*r->files), "files", err));
    r->files[r->n_files++] = *file;
    return GPT_OK;
}

/* Adds what only a checkpoint of a run has: where it stood, and the layout that
 * wrote it. */
static void add_run(struct report *r, const struct gpt_source *s)
{
    cJSON *layout = cJSON_AddObjectToObject(r->head, "layout");

    cJSON_AddNumberToObject(r->head, "iteration", (double)s->iteration);
    cJSON_AddNumberToObject(layout, "tensor_parallel", (double)s->tp_size);
    cJSON_AddNumberToObject(layout, "pipeline_parallel", (double)s->pp_size);
    gpt_json_add(r->head, "state", cJSON_Duplicate(s->state, true));
}

/* Those of the model, once each: ranks and stages have copies of some in their
 * files, and old files have what is no parameter. */
static int count_parameters(struct report *r, const struct gpt_source *s,
                            struct gpt_err *err)
{
    r->parameters = 0;
    for (int64_t i = 0; i < s->n_tensors; i++) {
        const struct gpt_tensor *t = &s->tensors[i];
        int64_t count = 1; /* of a tensor that a reader has checked */

        for (int d = 0; d < t->ndim; d++)
            count *= t->shape[d];
        if (!gpt_name_is_optimizer(t->name) &&
            !gpt_add(r->parameters, count, &r->parameters))
            return gpt_fail(err, GPT_EDATA, "%s: its sizes overflow", s->dir);
    }
    return GPT_OK;
}

/* Rows are the tensors under the names that the files have, so that a listing
 * can be compared with other tools' listings. */
static int fill_report(struct report *r, const struct gpt_source *s,
                       struct gpt_err *err)
{
    r->format = s->format->title;
    cJSON_AddStringToObject(r->head, "directory", s->dir);
    gpt_json_add(r->head, "config", gpt_config_to_json(&s->config));
    if (s->state)
        add_run(r, s);
    for (int64_t i = 0; i < s->n_files; i++)
        GPT_TRY(add_file(r, &s->files[i], err));
    GPT_TRY(gpt_source_list(s, add_row, r, err));
    return count_parameters(r, s, err);
}

/* ---- printing ---- */

/* Numbers in names count by their value, so that layer 10 comes after layer 9.
 * Only the first difference decides: the names are walked to it, and back to
 * the start of a number that it is inside. */
static int row_order(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
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

/* The width of names is measured first, as tables of different models have
 * names of different lengths. */
static int print_table(struct gpt_buf *b, const struct report *r,
                       const char *path)
{
    char shape[200], size[32], count[32], text[GPT_JOINED_BYTES];
    int width = 0;
    const cJSON *layout = cJSON_GetObjectItem(r->head, "layout");

    GPT_TRY(gpt_buf_add_shown(b, path, ""));
    GPT_TRY(gpt_buf_printf(b, ": %s\n", r->format));
    GPT_TRY(print_object(b, "config",
                         cJSON_GetObjectItem(r->head, "config")));
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
    for (size_t i = 0; i < r->n_rows; i++)
        if ((int)strlen(r->rows[i].t.name) > width)
            width = (int)strlen(r->rows[i].t.name);
    GPT_TRY(gpt_buf_printf(b, "tensors:\n"));
    for (size_t i = 0; i < r->n_rows; i++) {
        const struct gpt_stored *t = &r->rows[i].t;

        shape_text(shape, sizeof(shape), t);
        int n = snprintf(text, sizeof(text), " %-4s  %-16s  ",
                         t->packing ? t->packing : gpt_dtype_name(t->dtype),
                         shape);
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
static void row_to_json(cJSON *list, const struct row *row)
{
    cJSON *item = cJSON_CreateObject(), *shape;

    cJSON_AddStringToObject(item, "name", row->t.name);
    cJSON_AddStringToObject(item, "dtype",
                            row->t.packing ? row->t.packing
                                           : gpt_dtype_name(row->t.dtype));
    shape = cJSON_AddArrayToObject(item, "shape");
    for (int d = 0; d < row->t.ndim; d++)
        gpt_json_add(shape, NULL, cJSON_CreateNumber((double)row->t.shape[d]));
    cJSON_AddNumberToObject(item, "bytes", (double)row->bytes);
    cJSON_AddNumberToObject(item, "slices", (double)row->t.slices);
    gpt_json_add(list, NULL, item);
}

/* The head becomes the object that is printed, so its members come first.
 * Programs read it, so numbers are not rounded to units as in the table. */
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
static int print_report(struct gpt_buf *out, struct report *r, const char *path,
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

/* A value of a pickle that is no tensor. Scalars of numpy are numbers; a value
 * with no form in JSON is a text, cut to a few items. JSON has no infinities,
 * and no integers that all readers take exactly above 2^53. */
static cJSON *value_to_json(const struct gpt_pickle_value *v)
{
    struct gpt_buf text = {0};
    cJSON *item = NULL;
    double real;

    if (v->kind == GPT_PICKLE_NONE)
        return cJSON_CreateNull();
    if (v->kind == GPT_PICKLE_BOOL)
        return cJSON_CreateBool(v->i != 0);
    if (v->kind == GPT_PICKLE_INT && v->i >= -GPT_JSON_EXACT &&
        v->i <= GPT_JSON_EXACT)
        return cJSON_CreateNumber((double)v->i);
    if (v->kind != GPT_PICKLE_INT && gpt_pickle_real(v, &real) &&
        isfinite(real))
        return cJSON_CreateNumber(real);
    if (gpt_pickle_print(&text, v, 3, 8) == GPT_OK)
        item = cJSON_CreateString(text.data ? text.data : "");
    gpt_buf_free(&text);
    return item;
}

/* What add_torch_value() adds to. Paths are built anew for each value, so names
 * are copied to the arena, which lives until the report is printed. */
struct torch_listing {
    struct report *r;
    cJSON *notes;
    const char *file;
    struct gpt_arena *arena;
};

/* A gpt_torch_visit: tensors become rows, other values notes. A type that is
 * not read here is only named. */
static int add_torch_value(void *context, const char *path,
                           const struct gpt_pickle_value *v,
                           const struct gpt_torch_tensor *tensor,
                           struct gpt_err *err)
{
    struct torch_listing *l = context;
    struct gpt_stored row = {.file = l->file, .slices = 1};

    if (tensor && tensor->dtype == GPT_N_DTYPES) {
        cJSON_AddStringToObject(l->notes, path, tensor->type);
        return GPT_OK;
    }
    if (!tensor) {
        cJSON_AddItemToObject(l->notes, path, value_to_json(v));
        return GPT_OK;
    }
    /* the walk's path is one buffer, which the next value overwrites */
    row.name = gpt_arena_strdup(l->arena, path);
    if (!row.name)
        return gpt_no_memory(err, "names of tensors");
    row.dtype = tensor->dtype;
    row.ndim = tensor->ndim;
    memcpy(row.shape, tensor->shape, sizeof(row.shape));
    return add_row(l->r, &row, err);
}

/* A file of torch.save(): its tensors, and its other values by their keys.
 * Counting, sorting and printing are those of any checkpoint, so a listing of
 * such a file can be compared with that of another format. */
static int inspect_torch(struct report *r, struct gpt_buf *out,
                         const char *path, bool json, struct gpt_err *err)
{
    struct gpt_arena arena = {0};
    struct gpt_torch t;
    int status;

    GPT_TRY(gpt_torch_open(&t, path, err));
    struct torch_listing l = {
        .r = r,
        .notes = cJSON_AddObjectToObject(r->head, "metadata"),
        .file = path,
        .arena = &arena,
    };
    r->format = "torch";
    /* says why a program that reads one container alone refuses the file */
    cJSON_AddStringToObject(r->head, "container", t.container);
    GPT_TRY_GOTO(status, gpt_torch_walk(&t, t.root, add_torch_value, &l, err),
                 out);
    const struct gpt_source_file file = {path, gpt_in_size(t.in),
                                         (int64_t)r->n_rows};
    GPT_TRY_GOTO(status, add_file(r, &file, err), out);
    status = print_report(out, r, path, json, err);
out:
    gpt_torch_close(&t);
    gpt_arena_free(&arena);
    return status;
}

/* A file alone: what it says of itself, when the manifest is lost. */
static int inspect_safetensors(struct report *r, struct gpt_buf *out,
                               const char *path, bool json,
                               struct gpt_err *err)
{
    struct gpt_safetensors st;
    int status;

    GPT_TRY(gpt_safetensors_open(&st, path, err));
    cJSON *notes = cJSON_AddObjectToObject(r->head, "metadata");
    r->format = "safetensors";
    for (int64_t i = 0; i < st.n_notes; i++)
        cJSON_AddStringToObject(notes, st.notes[i].key, st.notes[i].value);
    const struct gpt_source_file file = {path, gpt_in_size(st.in), st.n};
    GPT_TRY_GOTO(status, add_file(r, &file, err), out);
    for (int64_t i = 0; i < st.n; i++) {
        const struct gpt_stored entry = gpt_stored_entry(&st.tensors[i], path);

        GPT_TRY_GOTO(status, add_row(r, &entry, err), out);
    }
    status = print_report(out, r, path, json, err);
out:
    gpt_safetensors_close(&st);
    return status;
}

/* An adapter of PEFT: what its configuration says, and its tensors. */
static int inspect_adapter(struct report *r, struct gpt_buf *out,
                           const char *path, bool json, struct gpt_err *err)
{
    struct gpt_adapter a;
    int status;

    GPT_TRY_GOTO(status, gpt_adapter_open(&a, path, err), out);
    r->format = "adapter of PEFT";
    cJSON_AddStringToObject(r->head, "directory", path);
    gpt_json_add(r->head, "config", cJSON_Duplicate(a.config.json, true));
    const struct gpt_source_file file = {a.file, gpt_in_size(a.weights.in),
                                         a.n};
    GPT_TRY_GOTO(status, add_file(r, &file, err), out);
    for (int64_t i = 0; i < a.n; i++) {
        const struct gpt_stored entry =
            gpt_stored_entry(a.entries[i].tensor, a.file);

        GPT_TRY_GOTO(status, add_row(r, &entry, err), out);
    }
    status = print_report(out, r, path, json, err);
out:
    gpt_adapter_close(&a);
    return status;
}

/* Checksums are not checked: inspecting reads headers, however large the
 * files. */
static int inspect_source(struct report *r, struct gpt_buf *out,
                          const char *path, bool json, struct gpt_err *err)
{
    struct gpt_source s;
    int status;

    GPT_TRY(gpt_source_open(&s, path, NULL, err));
    GPT_TRY_GOTO(status, fill_report(r, &s, err), out);
    status = print_report(out, r, path, json, err);
out:
    gpt_source_close(&s);
    return status;
}

/* Names are what a scanner of pickles looks at: each is code that Python would
 * import to load the file. */
int gpt_inspect_globals(struct gpt_buf *out, const char *path, bool json,
                        struct gpt_err *err)
{
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    struct gpt_torch t;
    int status;

    GPT_TRY_GOTO(status, gpt_torch_open(&t, path, err), out);
    for (int64_t i = 0; status == GPT_OK && i < t.pickle.n_globals; i++) {
        /* names of the arena, which end with a NUL */
        const char *name = t.pickle.globals[i]->text;

        if (json)
            cJSON_AddItemToArray(list, cJSON_CreateString(name));
        else if ((status = gpt_buf_add_shown(out, name, "")) == GPT_OK)
            status = gpt_buf_add(out, "\n", 1);
    }
    char *text = json ? gpt_json_print(list, false) : NULL;
    if (json)
        status = text ? gpt_buf_printf(out, "%s\n", text) : GPT_EFAIL;
    cJSON_free(text);
    gpt_torch_close(&t);
    if (status != GPT_OK)
        gpt_no_memory(err, "names");
out:
    cJSON_Delete(list);
    return status;
}

/* A path that does not exist is left to the front ends, whose message names
 * it. */
int gpt_inspect(struct gpt_buf *out, const char *path, bool json,
                struct gpt_err *err)
{
    struct report r = {.head = cJSON_CreateObject()};
    const bool is_file = gpt_path_exists(path) && !gpt_path_is_dir(path);
    int status;

    if (!is_file && gpt_adapter_recognises(path))
        status = inspect_adapter(&r, out, path, json, err);
    else if (!is_file || gpt_format_of(path))
        status = inspect_source(&r, out, path, json, err);
    else if (gpt_torch_recognises(path))
        status = inspect_torch(&r, out, path, json, err);
    else
        status = inspect_safetensors(&r, out, path, json, err);

    cJSON_Delete(r.head);
    gpt_free(r.rows);
    gpt_free(r.files);
    return status;
}
