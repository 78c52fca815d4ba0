/* What front ends of torch.save()'s files share; see pth.h. */
#include "checkpoint/pth/pth.h"

#include "base/log.h"
#include "base/num.h"
#include "checkpoint/format.h"
#include "checkpoint/run_state.h"
#include "checkpoint/safetensors/entry.h"

#include <stdio.h>
#include <string.h>

enum { KEY = 24 };

/* Also after a failure halfway: what was not made is zero. Tensors refer to
 * files, so they go first. */
void gpt_pth_close(struct gpt_source *s)
{
    struct gpt_pth *p = s->data;

    if (!p)
        return;
    gpt_hf_importer_free(&p->model);
    gpt_torch_adam_close(&p->adam);
    gpt_free(p->numbers);
    for (int64_t i = 0; i < p->n_files; i++) {
        gpt_safetensors_close(&p->files[i].weights);
        gpt_torch_close(&p->files[i].torch);
        gpt_free(p->files[i].used);
    }
    gpt_free(p->files);
    cJSON_Delete(p->state);
    gpt_free(p);
}

/* ---- files ---- */

int gpt_pth_begin(struct gpt_source *s, const char *path,
                  const struct gpt_source_options *options, const char *what,
                  struct gpt_err *err)
{
    const char *name = gpt_path_name(path);
    struct gpt_pth *p;

    if (options->iteration >= 0) {
        gpt_fail(err, GPT_EUSAGE,
                 "%s: %s holds one model and no iterations; iteration %lld is "
                 "asked for", path, what, (long long)options->iteration);
        return gpt_hint(err, "ask for no iteration");
    }
    /* from here on gpt_pth_close() frees it, also after a failure */
    GPT_TRY(gpt_new(&p, 1, sizeof(*p), "a checkpoint", err));
    s->data = p;
    if (gpt_path_is_dir(path))
        snprintf(p->dir, sizeof(p->dir), "%s", path);
    else if (name == path)
        snprintf(p->dir, sizeof(p->dir), ".");
    else /* a root's slash stays */
        snprintf(p->dir, sizeof(p->dir), "%.*s",
                 (int)gpt_max_i64(name - path - 1, 1), path);
    s->dir = p->dir;
    return GPT_OK;
}

/* The tree of a file of torch.save() is kept, as it has more than weights. */
static int open_tensors(struct gpt_pth_file *f, const char *path,
                        const char *key, struct gpt_err *err)
{
    if (gpt_path_ends_in(path, ".safetensors")) {
        GPT_TRY(gpt_safetensors_open(&f->weights, path, err));
        f->in = f->weights.in;
        return GPT_OK;
    }
    GPT_TRY(gpt_torch_open(&f->torch, path, err));
    f->in = f->torch.in;
    const struct gpt_pickle_value *from =
        key ? gpt_pickle_find(f->torch.root, key) : NULL;
    if (from)
        f->run = f->torch.root;
    else
        from = f->torch.root;
    if (!gpt_pickle_mapping(from))
        return gpt_fail(err, GPT_EDATA, "%s: no dict of weights", path);
    return gpt_torch_list(&f->weights, &f->torch, from, err);
}

/* A file counts before it is open, so that what was opened of it is closed. */
int gpt_pth_add(struct gpt_pth *p, const char *name, const char *key,
                struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];

    GPT_TRY(gpt_path_join(path, sizeof(path), p->dir, name, err));
    GPT_TRY(gpt_grow(&p->files, &p->cap_files, (size_t)p->n_files + 1,
                     sizeof(*p->files), "files", err));
    struct gpt_pth_file *f = &p->files[p->n_files++];
    *f = (struct gpt_pth_file){.name = name};
    GPT_TRY(open_tensors(f, path, key, err));
    GPT_TRY(gpt_hf_unwrap_names(&f->weights, path, err));
    return gpt_new(&f->used, (size_t)f->weights.n, sizeof(*f->used), "tensors",
                   err);
}

/* Under the names of the files, those that are no parameters too. */
int gpt_pth_list(const struct gpt_source *s, gpt_stored_visit *visit,
                 void *context, struct gpt_err *err)
{
    const struct gpt_pth *p = s->data;

    for (int64_t k = 0; k < p->n_files; k++)
        for (int64_t i = 0; i < p->files[k].weights.n; i++) {
            const struct gpt_stored stored = gpt_stored_entry(
                &p->files[k].weights.tensors[i], p->files[k].name);

            GPT_TRY(visit(context, &stored, err));
        }
    return GPT_OK;
}

/* ---- weights ---- */

/* What the optimizer calls weight i of the first file. */
static void name_weight(char key[KEY], const struct gpt_pth *p, int64_t i)
{
    snprintf(key, KEY, "%lld", (long long)p->numbers[i]);
}

int gpt_pth_find(void *context, enum gpt_kind kind, const char *name,
                 struct gpt_hf_found *found, struct gpt_err *err)
{
    struct gpt_pth *p = context;
    struct gpt_pth_file *f = &p->files[0];
    const struct gpt_safetensor *e = gpt_safetensors_find(&f->weights, name);
    char key[KEY];

    if (!e)
        return GPT_OK;
    if (kind == GPT_KIND_PARAMETERS)
        return gpt_hf_take_entry(found, f->in, e, f->name,
                                 &f->used[e - f->weights.tensors], err);
    name_weight(key, p, e - f->weights.tensors);
    e = gpt_torch_adam_moment(&p->adam, kind, key);
    return e ? gpt_hf_take_entry(found, f->in, e, f->name, NULL, err) : GPT_OK;
}

/* Everything in the files is a parameter or is known to be none. */
static int check_rest(const struct gpt_pth *p, struct gpt_err *err)
{
    for (int64_t k = 0; k < p->n_files; k++)
        for (int64_t i = 0; i < p->files[k].weights.n; i++) {
            const char *name = p->files[k].weights.tensors[i].name;

            if (!p->files[k].used[i])
                GPT_TRY(gpt_hf_import_check(&p->model, name, name,
                                            p->files[k].name, err));
        }
    return GPT_OK;
}

/* Sizes are those of whole files, with what a conversion does not read. */
static int list_files(struct gpt_source *s, struct gpt_err *err)
{
    const struct gpt_pth *p = s->data;
    struct gpt_source_file *files =
        gpt_arena_alloc(&s->arena, (size_t)p->n_files, sizeof(*files));

    if (!files)
        return gpt_no_memory(err, "names of files");
    for (int64_t i = 0; i < p->n_files; i++) {
        files[i] = (struct gpt_source_file){p->files[i].name,
                                            gpt_in_size(p->files[i].in),
                                            p->files[i].weights.n};
        s->weight_bytes += files[i].bytes;
    }
    s->files = files;
    s->n_files = p->n_files;
    return gpt_hf_import_attached(s, NULL, err);
}

/* The rules of the configuration are the files' to keep, not the user's, so
 * that a broken one is bad data. */
int gpt_pth_import(struct gpt_source *s, const struct gpt_hf_family *family,
                   gpt_hf_find *find, const char *said_in,
                   const struct gpt_source_options *options,
                   struct gpt_err *err)
{
    struct gpt_err inner = {0};
    struct gpt_pth *p = s->data;

    if (gpt_config_complete(&s->config, gpt_max_i64(options->divisible_by, 1),
                            gpt_max_i64(options->tp_size, 1),
                            &inner) != GPT_OK)
        return gpt_fail(err, GPT_EDATA, "%s/%s: %s", p->dir, said_in,
                        inner.text);
    p->model.where = p->dir;
    p->model.said_in = said_in;
    p->model.config = &s->config;
    p->model.family = family;
    p->model.prefix = family->prefix;
    p->model.find = find;
    p->model.context = p;
    /* limits of what a hostile file may claim */
    for (int64_t i = 0; i < p->n_files; i++) {
        p->model.n_held += p->files[i].weights.n;
        p->model.bytes += gpt_in_size(p->files[i].in);
    }
    GPT_TRY(gpt_hf_import_model(&p->model, err));
    GPT_TRY(check_rest(p, err));
    s->tensors = p->model.tensors;
    s->n_tensors = p->model.n;
    return list_files(s, err);
}

/* ---- Adam ---- */

/* PyTorch's state counts parameters in the order of the groups that it was
 * given. One group has the order of the model; of two the first has the
 * matrices, whose weights decay, and the second the vectors. Returns how many
 * parameters there are. */
static int64_t number_weights(struct gpt_pth *p, int64_t n_groups)
{
    const struct gpt_pth_file *f = &p->files[0];
    int64_t n = 0;

    for (int64_t group = 0; group < n_groups; group++)
        for (int64_t i = 0; i < f->weights.n; i++)
            if (f->used[i] &&
                (n_groups == 1 ||
                 (f->weights.tensors[i].ndim > 1) == (group == 0)))
                p->numbers[i] = n++;
    return n;
}

/* Both moments of each parameter have its shape: else the numbers are those of
 * another order. */
static bool moments_fit(const struct gpt_pth *p)
{
    const struct gpt_safetensors *weights = &p->files[0].weights;

    for (int64_t i = 0; i < weights->n; i++) {
        const struct gpt_safetensor *w = &weights->tensors[i], *other;
        char key[KEY];

        name_weight(key, p, i);
        if (p->files[0].used[i] &&
            !gpt_torch_adam_fits(&p->adam, key, w->ndim, w->shape, &other))
            return false;
    }
    return true;
}

/* What is not Adam's, or does not fit, is no failure: weights alone can be
 * used. */
static int import_adam(struct gpt_source *s, const char **why,
                       struct gpt_err *err)
{
    struct gpt_pth *p = s->data;

    GPT_TRY(gpt_torch_adam_open(&p->adam, &p->files[0].torch,
                                gpt_pickle_find(p->files[0].run, "optimizer"),
                                &s->arena, why, err));
    if (*why)
        return GPT_OK;
    *why = "its parameters are neither one group nor matrices and vectors";
    if (p->adam.n_groups > 2)
        return GPT_OK;
    GPT_TRY(gpt_new(&p->numbers, (size_t)p->files[0].weights.n,
                    sizeof(*p->numbers), "numbers of parameters", err));
    *why = "its parameters are in another order than those of the model, or "
           "not all of them have moments";
    if (number_weights(p, p->adam.n_groups) != p->adam.n || !moments_fit(p))
        return GPT_OK;
    *why = NULL;
    for (int k = 1; k < GPT_N_ADAM_KINDS; k++)
        GPT_TRY(gpt_hf_import_kind(&p->model, (enum gpt_kind)k, err));
    s->n_tensors = p->model.n;
    return GPT_OK;
}

/* Without the optimizer's state, which may not be wanted or not be read, the
 * weights are those of a conversion, and begin a run of their own. The steps
 * are all that is known of a run's place. */
int gpt_pth_import_run(struct gpt_source *s, const char *count,
                       const char *const *known, bool optimizer,
                       struct gpt_err *err)
{
    struct gpt_pth *p = s->data;
    const struct gpt_pickle_value *root = p->files[0].run;
    const char *why = "it is not asked for";
    int64_t steps = 0;

    if (optimizer) {
        GPT_TRY(import_adam(s, &why, err));
        if (why)
            gpt_warn("%s: its optimizer state is left out: %s", s->at, why);
    }
    /* weights alone count no steps */
    (void)gpt_pickle_int(gpt_pickle_find(root, count), &steps);
    if (steps < 0 || steps >= GPT_JSON_EXACT)
        return gpt_fail(err, GPT_EDATA, "%s/%s: %s is out of range", p->dir,
                        p->files[0].name, count);
    s->iteration = steps;
    p->state = gpt_run_state_make(steps, 0, 0);
    if (why)
        cJSON_AddStringToObject(p->state, GPT_RUN_CONVERTED, s->format->name);
    else
        gpt_run_state_put_run(p->state, p->adam.step, GPT_RUN_SEED_UNKNOWN,
                              s->format->title);
    s->state = p->state;
    s->left_out = gpt_pickle_others(root, known, &s->arena);
    if (!why && p->adam.others)
        GPT_TRY(gpt_source_leave_out(s, p->adam.others,
                                     (int)strlen(p->adam.others), err));
    return p->state ? GPT_OK : gpt_no_memory(err, "the state of a run");
}
