/* The front end of native checkpoints: a row of checkpoint/format.h. Reading is
 * native.h as it is; a target is planned here. Every rank's part of every kind
 * of tensors (the parameters, each kind of optimizer state) becomes a file, and
 * model/params.h says what a rank holds. Start at open_native() and
 * plan_native(). */
#include "checkpoint/fill.h"
#include "checkpoint/format.h"
#include "checkpoint/huggingface/family.h"
#include "checkpoint/native/manifest.h"
#include "checkpoint/names.h"
#include "checkpoint/native/native.h"
#include "checkpoint/run_state.h"

#include "model/params.h"

#include <assert.h>
#include <string.h>

enum { MAX_KINDS = 16 };

/* ---- reading ---- */

/* True when an iteration with a manifest is there, for a root whose tracker was
 * lost: a run that takes it for empty would write over them. */
static bool holds_iteration(const char *root)
{
    int64_t *list;
    size_t n;
    bool found = false;

    if (gpt_checkpoint_list(root, &list, &n, NULL) != GPT_OK)
        return false;
    for (size_t i = 0; i < n && !found; i++) {
        char path[GPT_PATH_BYTES];

        found = gpt_checkpoint_path(path, sizeof(path), root, list[i], NULL) ==
                    GPT_OK &&
                gpt_path_holds(path, GPT_MANIFEST);
    }
    gpt_free(list);
    return found;
}

/* A directory with either file is native, whatever else is in it. A root in
 * which both are missing is still opened as one when no other front end
 * recognises it; see choose_format(). */
static bool recognise_native(const char *path)
{
    return gpt_path_holds(path, GPT_MANIFEST) ||
           gpt_path_holds(path, GPT_TRACKER) ||
           (gpt_path_is_dir(path) && holds_iteration(path));
}

/* Adds up the files of tensors; every other file of the manifest travelled with
 * them. */
static int list_files(struct gpt_source *s, struct gpt_err *err)
{
    const char **attached =
        gpt_arena_alloc(&s->arena, (size_t)s->n_files, sizeof(*attached));

    if (!attached)
        return gpt_no_memory(err, "names of files");
    s->attached = attached;
    for (int64_t i = 0; i < s->n_files; i++)
        if (gpt_name_holds_tensors(s->files[i].name))
            s->weight_bytes += s->files[i].bytes;
        else
            attached[s->n_attached++] = s->files[i].name;
    return GPT_OK;
}

static int agree_native(struct gpt_source *s, const char *path,
                        const struct gpt_source_options *o,
                        struct gpt_err *err)
{
    struct gpt_checkpoint *c;
    const int status = gpt_checkpoint_open_all(&c, path, o, err);

    s->data = c;
    return status;
}

static int open_native(struct gpt_source *s, const char *path,
                       const struct gpt_source_options *o, struct gpt_err *err)
{
    const struct gpt_checkpoint *c = s->data;

    (void)path; /* agree_native() has opened it */
    (void)o;
    s->dir = gpt_checkpoint_dir(c);
    s->config = *gpt_checkpoint_config(c);
    s->iteration = gpt_checkpoint_iteration(c);
    s->state = gpt_checkpoint_state(c);
    s->tensors = gpt_checkpoint_tensors(c, &s->n_tensors);
    s->files = gpt_checkpoint_files(c, &s->n_files);
    gpt_checkpoint_layout(c, &s->tp_size, &s->pp_size);
    gpt_run_state_take_origin(s);
    s->family = gpt_hf_family_type(gpt_run_state_family(s->state));
    return list_files(s, err);
}

static void close_native(struct gpt_source *s)
{
    gpt_checkpoint_close(s->data);
}

static int check_native(const struct gpt_source *s, struct gpt_err *err)
{
    return gpt_checkpoint_check(s->data, err);
}

/* The name of the file that a box is in, without its directory. */
static const char *file_of(const struct gpt_file_box *box)
{
    return gpt_path_name(gpt_in_path(box->in));
}

static int list_native(const struct gpt_source *s, gpt_stored_visit *visit,
                       void *context, struct gpt_err *err)
{
    for (int64_t i = 0; i < s->n_tensors; i++) {
        const struct gpt_tensor *t = &s->tensors[i];
        struct gpt_stored stored = gpt_stored_tensor(t);

        stored.file = t->n == 1 ? file_of(&t->pieces[0]) : NULL;
        GPT_TRY(visit(context, &stored, err));
    }
    return GPT_OK;
}

/* ---- planning ---- */

/* The tensors that a file will hold. Both arrays have as many entries as its
 * struct gpt_target_file says in `tensors`. */
struct content {
    struct gpt_tensor_slice *slices;
    const struct gpt_tensor **sources; /* one a slice */
};

struct native_plan {
    struct gpt_param_table table;
    struct content *contents; /* one a file */
    int64_t n_contents;
};

/* Also frees a plan that failed halfway; what was not made is zero. */
static void free_native_plan(struct gpt_target *t)
{
    struct native_plan *p = t->data;

    if (!p)
        return;
    for (int64_t i = 0; i < p->n_contents; i++) {
        gpt_free(p->contents[i].slices);
        gpt_free(p->contents[i].sources);
    }
    gpt_free(p->contents);
    gpt_params_free(&p->table);
    gpt_free(p);
}

/* The kinds that the source has, as prefixes in the arena; "" is the first.
 * They are taken from the names and not from enum gpt_kind, so that state of
 * an optimizer that this program does not know is carried over all the same. */
static int find_kinds(struct gpt_target *t, const char **kinds, int *n,
                      struct gpt_err *err)
{
    const struct native_plan *p = t->data;

    *n = 1;
    kinds[0] = "";
    for (int64_t i = 0; i < t->source->n_tensors; i++) {
        const char *name = t->source->tensors[i].name;
        size_t length;
        int k = 0;

        if (!gpt_params_find(&p->table, gpt_name_parameter(name, &length)))
            return gpt_fail(err, GPT_EDATA,
                            "%s: its model has no parameter for tensor '%s'",
                            t->source->dir, name);
        while (k < *n && (strlen(kinds[k]) != length ||
                          strncmp(kinds[k], name, length) != 0))
            k++;
        if (k < *n)
            continue;
        if (k == MAX_KINDS)
            return gpt_fail(err, GPT_EDATA,
                            "%s: more than %d kinds of optimizer state",
                            t->source->dir, MAX_KINDS);
        kinds[k] = gpt_arena_printf(&t->arena, "%.*s", (int)length, name);
        if (!kinds[k])
            return gpt_no_memory(err, "names of files");
        ++*n;
    }
    return GPT_OK;
}

/* True when the optimizer keeps other states for some parameters than for
 * others, as Muon does: a parameter may then lack a kind. */
static bool mixes_rules(const struct gpt_source *s)
{
    const cJSON *name =
        cJSON_GetObjectItemCaseSensitive(s->state, GPT_RUN_OPTIMIZER);

    return cJSON_IsString(name) && strcmp(name->valuestring, "muon") == 0;
}

/* Finds the sources of a kind, one for each row of the parameter table; NULL
 * where the parameter has no such state. Biases of routers have none, but for
 * older checkpoints. */
static int find_sources(struct gpt_target *t, const char *kind,
                        const char **names, const struct gpt_tensor **sources,
                        struct gpt_err *err)
{
    const struct native_plan *p = t->data;

    for (int64_t i = 0; i < p->table.n; i++) {
        const struct gpt_param *row = &p->table.rows[i];

        names[i] = *kind ? gpt_arena_printf(&t->arena, "%s%s", kind, row->name)
                         : row->name;
        if (!names[i])
            return gpt_no_memory(err, "names of files");
        sources[i] = NULL;
        if (*kind && (row->counts || mixes_rules(t->source)) &&
            !gpt_source_find(t->source, names[i]))
            continue;
        GPT_TRY(gpt_target_find(t, names[i], row, &sources[i], err));
        t->n_tensors++;
    }
    return GPT_OK;
}

/* Plans one rank's slices of a kind. Two holders of the same elements must not
 * both write them, as slices of a tensor are disjoint: the second copy of a
 * tied table is left out, and rank 0 alone writes what tensor parallelism does
 * not cut. */
static int plan_slices(struct gpt_target *t, int64_t file,
                       const struct gpt_flat *flat, bool optimizer,
                       const char **names, const struct gpt_tensor **sources,
                       int64_t tp_rank, struct gpt_err *err)
{
    const struct native_plan *p = t->data;
    struct content *c = &p->contents[file];
    const bool keep_type = optimizer || t->o.dtype == GPT_N_DTYPES;
    int64_t n = 0;

    GPT_TRY(gpt_new(&c->slices, (size_t)flat->n, sizeof(*c->slices), "slices",
                    err));
    GPT_TRY(gpt_new(&c->sources, (size_t)flat->n, sizeof(*c->sources), "slices",
                    err));
    for (int64_t i = 0; i < flat->n; i++) {
        const struct gpt_slice *s = &flat->slices[i];
        int64_t row = s->param - p->table.rows;

        assert(row >= 0 && row < p->table.n);
        if (s->copy || (tp_rank > 0 && s->param->split == GPT_SPLIT_NONE) ||
            !sources[row])
            continue;
        struct gpt_tensor_slice *to = &c->slices[n];
        *to = (struct gpt_tensor_slice){.name = names[row],
                                        .dtype = keep_type ? sources[row]->dtype
                                                           : t->o.dtype,
                                        .ndim = s->param->ndim};
        memcpy(to->global, s->param->shape, sizeof(s->param->shape));
        memcpy(to->begin, s->begin, sizeof(s->begin));
        memcpy(to->shape, s->shape, sizeof(s->shape));
        c->sources[n++] = sources[row];
    }
    t->files[file].tensors = n;
    return gpt_checkpoint_file_bytes(c->slices, n, &t->files[file].bytes, err);
}

/* The layout of each rank is that of a run with as many ranks, so a run at that
 * layout finds in one file all that it needs. */
static int plan_file(struct gpt_target *t, int64_t file, const char *kind,
                     const char **names, const struct gpt_tensor **sources,
                     const struct gpt_file_rank *rank, struct gpt_err *err)
{
    const struct native_plan *p = t->data;
    struct gpt_layout layout;
    struct gpt_flat flat;

    GPT_TRY(gpt_target_layout(t, rank->tp_rank, rank->pp_rank, &layout, err));
    gpt_name_file(t->files[file].name, sizeof(t->files[file].name), kind, rank);
    GPT_TRY(gpt_flat_build(&flat, &p->table, &layout, err));
    int status = plan_slices(t, file, &flat, *kind != '\0', names, sources,
                             rank->tp_rank, err);
    gpt_flat_free(&flat);
    return status;
}

/* Plans files `first` to first + tp_size * pp_size. The sources are found once
 * and shared by all ranks' files. */
static int plan_kind(struct gpt_target *t, int64_t first, const char *kind,
                     struct gpt_err *err)
{
    const struct native_plan *p = t->data;
    const int64_t tp = t->o.tp_size, ranks = tp * t->o.pp_size;
    const char **names = NULL;
    const struct gpt_tensor **sources = NULL;
    int status;

    GPT_TRY(gpt_new(&names, (size_t)p->table.n, sizeof(*names), "plan", err));
    GPT_TRY_GOTO(
        status,
        gpt_new(&sources, (size_t)p->table.n, sizeof(*sources), "plan", err),
        out);
    GPT_TRY_GOTO(status, find_sources(t, kind, names, sources, err), out);
    for (int64_t i = 0; i < ranks; i++) {
        const struct gpt_file_rank rank = {.tp_rank = i % tp,
                                           .pp_rank = i / tp};

        GPT_TRY_GOTO(status,
                     plan_file(t, first + i, kind, names, sources, &rank, err),
                     out);
    }
out:
    gpt_free(names);
    gpt_free(sources);
    return status;
}

static int plan_native(struct gpt_target *t, struct gpt_err *err)
{
    const struct gpt_target_options *o = &t->o;
    const int64_t ranks = o->tp_size * o->pp_size;
    struct gpt_layout layout; /* of the first rank: the rules are all ranks' */
    struct native_plan *p;
    const char *kinds[MAX_KINDS];
    int n;

    GPT_TRY(gpt_checkpoint_path(t->path, sizeof(t->path), o->save,
                                t->source->iteration, err));
    GPT_TRY(gpt_target_layout(t, 0, 0, &layout, err));
    GPT_TRY(gpt_new(&p, 1, sizeof(*p), "plan", err));
    t->data = p;
    GPT_TRY(gpt_params_build(&p->table, &o->config, err));
    GPT_TRY(find_kinds(t, kinds, &n, err));
    GPT_TRY(gpt_target_files(t, n * ranks, err));
    GPT_TRY(gpt_new(&p->contents, (size_t)(n * ranks), sizeof(*p->contents),
                    "files", err));
    p->n_contents = n * ranks;
    GPT_TRY(gpt_target_resizes(t, n * gpt_params_vocab_rows(&p->table), err));
    for (int i = 0; i < n; i++)
        GPT_TRY(plan_kind(t, i * ranks, kinds[i], err));
    return GPT_OK;
}

/* ---- writing ---- */

/* Makes the state of the source's run, or that of a run that has not begun and
 * whose weights come from elsewhere. */
static cJSON *make_state(const struct gpt_source *s)
{
    cJSON *state = s->state ? cJSON_Duplicate(s->state, true)
                            : gpt_run_state_make(0, 0, 0);

    if (s->n_adapters)
        gpt_json_add(state, GPT_RUN_MERGED,
                     cJSON_CreateStringArray(s->adapters, (int)s->n_adapters));
    if (s->state)
        return state;
    cJSON_AddStringToObject(state, GPT_RUN_CONVERTED, s->format->title);
    gpt_run_state_put_tokens(state, s->bos_token_id, s->eos_token_id, &s->ends);
    gpt_run_state_put_family(state, s->family);
    return state;
}

/* Weights before attached files: what may fill the disk comes first. */
static int write_files(const struct gpt_target *t,
                       struct gpt_checkpoint_writer *w, struct gpt_fill *fill,
                       struct gpt_err *err)
{
    const struct native_plan *plan = t->data;
    struct gpt_checkpoint_file *files;

    GPT_TRY(gpt_new(&files, (size_t)t->n_files, sizeof(*files), "files", err));
    for (int64_t i = 0; i < t->n_files; i++) {
        const struct content *c = &plan->contents[i];

        files[i] = (struct gpt_checkpoint_file){
            t->files[i].name, c->slices, c->sources, t->files[i].tensors,
            t->files[i].bytes};
    }
    int status = gpt_checkpoint_write_plan(w, files, t->n_files, fill, err);
    gpt_free(files);
    GPT_TRY(status);
    for (int64_t i = 0; i < t->o.n_attached; i++)
        GPT_TRY(gpt_checkpoint_attach(w, t->o.attached[i].name,
                                      t->o.attached[i].path, err));
    return GPT_OK;
}

/* Writes all files. The iteration is the source's: a conversion is not a step.
 * Commit and abort both free the writer. */
static int write_native(struct gpt_target *t, struct gpt_fill *fill,
                        struct gpt_err *err)
{
    const struct gpt_target_options *o = &t->o;
    struct gpt_checkpoint_writer *w;

    GPT_TRY(gpt_checkpoint_create(&w, o->save, t->source->iteration,
                                  fill->flags, err));
    int status = write_files(t, w, fill, err);
    if (status != GPT_OK) {
        gpt_checkpoint_abort(w);
        return status;
    }
    cJSON *state = make_state(t->source);
    status = gpt_checkpoint_commit(w, &o->config, o->tp_size, o->pp_size, state,
                                   err);
    cJSON_Delete(state);
    return status;
}

const struct gpt_format gpt_format_native = {
    .name = "native",
    .title = "native",
    .stores_padding = true,
    .keeps_ends = GPT_ENDS,
    .keeps_state = true,
    .shares_dir = true,
    .recognises = recognise_native,
    .agree = agree_native,
    .open = open_native,
    .close = close_native,
    .check = check_native,
    .list = list_native,
    .plan = plan_native,
    .free_plan = free_native_plan,
    .write = write_native,
};
