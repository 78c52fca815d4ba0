/* Describing a checkpoint. Whatever the format, it becomes a struct gpt_shown:
 * a JSON head (configuration, state, layout) and rows of tensors. Two printers
 * show the report (report.c). Start at gpt_inspect().
 *
 * A single file, of safetensors or of torch.save(), is not a checkpoint, so it
 * does not become a source: it is shown as it is, with its own notes. So is an
 * adapter. */
#include "cmd/reshape/inspect.h"

#include "base/num.h"
#include "base/utf8.h"
#include "checkpoint/adapter/adapter.h"
#include "checkpoint/format.h"
#include "checkpoint/names.h"
#include "checkpoint/safetensors/entry.h"
#include "checkpoint/torch/torch.h"
#include "cmd/reshape/report.h"

#include <math.h>
#include <string.h>

/* Adds what only a checkpoint of a run has: where it stood, and the layout that
 * wrote it. */
static void add_run(struct gpt_shown *r, const struct gpt_source *s)
{
    cJSON *layout = cJSON_AddObjectToObject(r->head, "layout");

    cJSON_AddNumberToObject(r->head, "iteration", (double)s->iteration);
    cJSON_AddNumberToObject(layout, "tensor_parallel", (double)s->tp_size);
    cJSON_AddNumberToObject(layout, "pipeline_parallel", (double)s->pp_size);
    gpt_json_add(r->head, "state", cJSON_Duplicate(s->state, true));
}

/* Those of the model, once each: ranks and stages have copies of some in their
 * files, and old files have what is no parameter. */
static int count_parameters(struct gpt_shown *r, const struct gpt_source *s,
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
            return gpt_fail(err, GPT_EDATA,
                            "%s: the sizes of its tensors overflow", s->dir);
    }
    return GPT_OK;
}

/* Rows are the tensors under the names that the files have, so that a listing
 * can be compared with other tools' listings. */
static int fill_report(struct gpt_shown *r, const struct gpt_source *s,
                       struct gpt_err *err)
{
    r->format = s->format->title;
    cJSON_AddStringToObject(r->head, "directory", s->dir);
    gpt_json_add(r->head, "config", gpt_config_to_json(&s->config));
    if (s->quantized)
        cJSON_AddStringToObject(cJSON_AddObjectToObject(r->head,
                                                        "quantization"),
                                "method", s->quantized);
    if (s->state)
        add_run(r, s);
    for (int64_t i = 0; i < s->n_files; i++)
        GPT_TRY(gpt_report_add_file(r, &s->files[i], err));
    GPT_TRY(gpt_source_list(s, gpt_report_add_row, r, err));
    return count_parameters(r, s, err);
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
    struct gpt_shown *r;
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
    return gpt_report_add_row(l->r, &row, err);
}

/* A file of torch.save(): its tensors, and its other values by their keys.
 * Counting, sorting and printing are those of any checkpoint, so a listing of
 * such a file can be compared with that of another format. */
static int inspect_torch(struct gpt_shown *r, struct gpt_buf *out,
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
    GPT_TRY_GOTO(status, gpt_report_add_file(r, &file, err), out);
    status = gpt_report_print(out, r, path, json, err);
out:
    gpt_torch_close(&t);
    gpt_arena_free(&arena);
    return status;
}

/* A file alone: what it says of itself, when the manifest is lost. */
static int inspect_safetensors(struct gpt_shown *r, struct gpt_buf *out,
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
    GPT_TRY_GOTO(status, gpt_report_add_file(r, &file, err), out);
    for (int64_t i = 0; i < st.n; i++) {
        const struct gpt_stored entry = gpt_stored_entry(&st.tensors[i], path);

        GPT_TRY_GOTO(status, gpt_report_add_row(r, &entry, err), out);
    }
    status = gpt_report_print(out, r, path, json, err);
out:
    gpt_safetensors_close(&st);
    return status;
}

/* An adapter of PEFT: what its configuration says, and its tensors. */
static int inspect_adapter(struct gpt_shown *r, struct gpt_buf *out,
                           const char *path, bool json, struct gpt_err *err)
{
    struct gpt_adapter a;
    int status;

    GPT_TRY_GOTO(status, gpt_adapter_open(&a, path, err), out);
    r->format = "adapter of PEFT";
    cJSON_AddStringToObject(r->head, "directory", path);
    gpt_json_add(r->head, "config", cJSON_Duplicate(a.config.json, true));
    const struct gpt_source_file file = {a.file, gpt_in_size(a.weights.in),
                                         a.weights.n};
    GPT_TRY_GOTO(status, gpt_report_add_file(r, &file, err), out);
    for (int64_t i = 0; i < a.weights.n; i++) {
        const struct gpt_stored entry =
            gpt_stored_entry(&a.weights.tensors[i], a.file);

        GPT_TRY_GOTO(status, gpt_report_add_row(r, &entry, err), out);
    }
    status = gpt_report_print(out, r, path, json, err);
out:
    gpt_adapter_close(&a);
    return status;
}

/* Checksums are not checked: inspecting reads headers, however large the
 * files. */
static int inspect_source(struct gpt_shown *r, struct gpt_buf *out,
                          const char *path, bool json, struct gpt_err *err)
{
    const struct gpt_source_options options = {.iteration = -1,
                                               .optimizer = true};
    struct gpt_source s;
    int status;

    GPT_TRY(gpt_source_open(&s, path, &options, err));
    GPT_TRY_GOTO(status, fill_report(r, &s, err), out);
    status = gpt_report_print(out, r, path, json, err);
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

/* By its name, or by its first bytes, as files of a cache have other names: the
 * length of a header, and a brace or blanks. Of others, as config.json, the
 * front ends say what they are. */
static bool may_be_safetensors(const char *path)
{
    unsigned char head[9];
    struct gpt_in *in;
    bool may = gpt_path_ends_in(path, ".safetensors");

    if (may || gpt_in_open(&in, path, NULL) != GPT_OK)
        return true; /* what cannot be opened is named by its reader */
    may = gpt_in_size(in) >= (int64_t)sizeof(head) &&
          gpt_in_read(in, head, 0, sizeof(head), NULL) == GPT_OK &&
          !head[5] && !head[6] && !head[7] && head[8] &&
          strchr("{ \t\r\n", head[8]);
    gpt_in_close(in);
    return may;
}

/* A path that does not exist is left to the front ends, whose message names
 * it. */
int gpt_inspect(struct gpt_buf *out, const char *path, bool json,
                struct gpt_err *err)
{
    struct gpt_shown r = {.head = cJSON_CreateObject()};
    const bool is_file = gpt_path_exists(path) && !gpt_path_is_dir(path);
    int status;

    if (!is_file && gpt_adapter_recognises(path))
        status = inspect_adapter(&r, out, path, json, err);
    else if (!is_file || gpt_format_of(path))
        status = inspect_source(&r, out, path, json, err);
    else if (gpt_torch_recognises(path))
        status = inspect_torch(&r, out, path, json, err);
    else if (may_be_safetensors(path))
        status = inspect_safetensors(&r, out, path, json, err);
    else
        status = inspect_source(&r, out, path, json, err);
    gpt_report_free(&r);
    return status;
}
