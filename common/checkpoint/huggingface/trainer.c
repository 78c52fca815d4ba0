/* See trainer.h. Start at gpt_hf_trainer_open(); trainer_order.c knows which
 * number is which tensor. */
#include "checkpoint/huggingface/trainer_internal.h"

#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Trainer keeps its place in it, and the log of all steps. */
#define STATE "trainer_state.json"

/* accelerate calls it by the second name, and so does Trainer under FSDP. */
static const char *find_file(const char *dir)
{
    static const char *const names[] = {"optimizer.pt", "optimizer.bin"};

    for (size_t i = 0; i < GPT_COUNT(names); i++)
        if (gpt_path_holds(dir, names[i]))
            return names[i];
    return NULL;
}

bool gpt_hf_trainer_has(const char *dir)
{
    return find_file(dir) != NULL;
}

void gpt_hf_trainer_close(struct gpt_hf_trainer *t)
{
    gpt_torch_adam_close(&t->adam);
    gpt_torch_close(&t->torch);
    gpt_free(t->places);
    *t = (struct gpt_hf_trainer){0};
}

/* ---- names ---- */

static int compare_places(const void *a, const void *b)
{
    const struct gpt_hf_place *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* The places are sorted. NULL when there is none of that name. */
static struct gpt_hf_place *find_place(const struct gpt_hf_trainer *t,
                                       const char *name)
{
    const struct gpt_hf_place key = {.name = name};

    return t->n ? bsearch(&key, t->places, (size_t)t->n, sizeof(*t->places),
                          compare_places)
                : NULL;
}

/* An optimizer that was given named parameters keeps their names. */
static bool has_names(const struct gpt_hf_trainer *t)
{
    int64_t n;

    return gpt_torch_adam_list(&t->adam, 0, "param_names", &n) != NULL;
}

/* Names of a group and its numbers are lists of one length. */
static int take_names(struct gpt_hf_trainer *t, const struct gpt_hf_family *f,
                      int64_t group, struct gpt_arena *arena,
                      struct gpt_err *err)
{
    int64_t n, n_names;
    struct gpt_pickle_value **items =
        gpt_torch_adam_list(&t->adam, group, "params", &n);
    struct gpt_pickle_value **names =
        gpt_torch_adam_list(&t->adam, group, "param_names", &n_names);
    const char *output = gpt_hf_output_name(f);

    for (int64_t i = 0; i < n && i < n_names; i++) {
        const char *name;

        if (names[i]->kind != GPT_PICKLE_STRING)
            continue;
        name = gpt_arena_printf(arena, "%.*s", (int)names[i]->n,
                                names[i]->text);
        if (!name)
            return gpt_no_memory(err, "names of parameters");
        GPT_TRY(gpt_hf_unwrap(&name, arena, err));
        struct gpt_hf_place *p = find_place(t, name);
        if (!p && output && strcmp(name, GPT_HF_HEAD) == 0)
            p = find_place(t, output);
        if (p && gpt_pickle_int(items[i], &p->number))
            p->group = group;
    }
    return GPT_OK;
}

/* Keys of the state are names where FSDP has gathered it. */
static bool is_named(const struct gpt_hf_trainer *t)
{
    int64_t n;
    struct gpt_pickle_value **items =
        gpt_torch_adam_list(&t->adam, 0, "params", &n);

    return n > 0 && items[0]->kind == GPT_PICKLE_STRING;
}

static int find_names(struct gpt_hf_trainer *t,
                      const struct gpt_hf_importer *im,
                      struct gpt_arena *arena, const char **why,
                      struct gpt_err *err)
{
    if (t->named)
        GPT_TRY(gpt_hf_unwrap_names(&t->adam.moments, gpt_in_path(t->torch.in),
                                    err));
    for (int64_t g = 0; !t->named && g < t->adam.n_groups; g++)
        GPT_TRY(take_names(t, im->family, g, arena, err));
    (void)gpt_hf_trainer_fits(t, arena, why);
    return GPT_OK;
}

int gpt_hf_trainer_find(void *context, enum gpt_kind kind, const char *name,
                        struct gpt_hf_found *found, struct gpt_err *err)
{
    struct gpt_hf_trainer *t = context;
    const struct gpt_hf_place *p = find_place(t, name);
    const struct gpt_safetensor *e =
        p ? gpt_hf_trainer_moment(t, p, kind) : NULL;

    return e ? gpt_hf_take_entry(found, t->torch.in, e, t->file, NULL, err)
             : GPT_OK;
}

/* ---- settings ---- */

static double setting(const struct gpt_hf_trainer *t, int64_t group,
                      const char *key)
{
    double value = 0;

    (void)gpt_pickle_real(gpt_pickle_find(t->adam.groups[group], key), &value);
    return value;
}

/* What decays here is a matter of the model alone. Where nothing decays there,
 * the group does not tell. */
static void compare_decay(const struct gpt_hf_trainer *t, const char *dir)
{
    const struct gpt_hf_place *first[2] = {NULL, NULL};
    int64_t n[2] = {0};
    bool any = false;

    for (int64_t g = 0; g < t->adam.n_groups; g++)
        any = any || setting(t, g, "weight_decay") != 0;
    for (int64_t i = 0; any && i < t->n; i++) {
        const struct gpt_hf_place *p = &t->places[i];
        const bool there =
            p->group >= 0 && setting(t, p->group, "weight_decay") != 0;

        if (p->group < 0 || there == p->param->decay)
            continue;
        first[there] = first[there] ? first[there] : p;
        n[there]++;
    }
    for (int there = 0; there < 2; there++)
        if (n[there])
            gpt_warn("%s/%s: weights of %lld tensors, first '%s', %s there, "
                     "and %s here", dir, t->file, (long long)n[there],
                     first[there]->name, there ? "decay" : "do not decay",
                     there ? "do not" : "do");
}

/* The rates of a step are the options' to say. */
static void report_settings(const struct gpt_hf_trainer *t, const char *dir)
{
    struct gpt_pickle_value **betas;
    double beta[2] = {0};
    int64_t n;

    betas = gpt_torch_adam_list(&t->adam, 0, "betas", &n);
    for (int64_t i = 0; i < n && i < 2; i++)
        (void)gpt_pickle_real(betas[i], &beta[i]);
    gpt_info("%s/%s: its run had learning rate %g, betas %g and %g, epsilon "
             "%g, weight decay %g: options say what a run goes on with",
             dir, t->file, setting(t, 0, "lr"), beta[0], beta[1],
             setting(t, 0, "eps"),
             fmax(setting(t, 0, "weight_decay"),
                  setting(t, t->adam.n_groups - 1, "weight_decay")));
}

/* ---- the order of a class ---- */

/* The version of transformers that wrote config.json, "4.40.2"; NULL where that
 * is not said. */
static const char *version_of(const char *dir, struct gpt_arena *arena)
{
    enum { LIMIT = 1 << 20 };
    const char *version = NULL;
    char path[GPT_PATH_BYTES];
    cJSON *json = NULL;

    if (gpt_path_join(path, sizeof(path), dir, "config.json", NULL) ==
            GPT_OK &&
        gpt_json_read(&json, path, LIMIT, NULL) == GPT_OK) {
        const cJSON *said =
            cJSON_GetObjectItemCaseSensitive(json, "transformers_version");

        if (cJSON_IsString(said))
            version = gpt_arena_strdup(arena, said->valuestring);
    }
    cJSON_Delete(json);
    return version;
}

/* Compares the first two numbers of a version with those of another: below 0
 * where it is older. False where it does not tell, as one that was under way
 * when the other was. */
static bool compare_versions(const char *version, const char *other, int *order)
{
    int a[2], b[2];

    if (sscanf(version, "%4d.%4d", &a[0], &a[1]) != 2 ||
        sscanf(other, "%4d.%4d", &b[0], &b[1]) != 2)
        return false;
    *order = a[0] != b[0] ? a[0] - b[0] : a[1] - b[1];
    return *order != 0 || !strstr(version, "dev");
}

/* The rules in the order that numbers of parameters follow. A version that is
 * not known leaves them NULL: shapes do not tell two norms from each other. */
static const struct gpt_hf_rule *
find_order(const struct gpt_hf_trainer *t, const struct gpt_hf_family *f,
           const char *dir, struct gpt_arena *arena, const char **why)
{
    const char *version = f->before ? version_of(dir, arena) : NULL;
    int order = 0;

    if (!f->before)
        return f->rules;
    if (!version || !compare_versions(version, f->reordered, &order)) {
        *why = gpt_arena_printf(
            arena, "transformers %s changed the order of the model's norms, "
                   "and config.json does not say by its transformers_version "
                   "on which side of that it was trained", f->reordered);
        *why = *why ? *why : "its version of transformers is not known";
        return NULL;
    }
    /* Trainer writes config.json with the state, and accelerate does not */
    if (!gpt_hf_trainer_counts(dir))
        gpt_warn("%s/%s: moments of norms are taken in the order of "
                 "transformers %s, which wrote config.json", dir, t->file,
                 version);
    return order < 0 ? f->before : f->rules;
}

/* ---- the state ---- */

static int read_state(struct gpt_hf_trainer *t,
                      const struct gpt_hf_importer *im, const char *dir,
                      struct gpt_arena *arena, const char **why,
                      struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];

    GPT_TRY(gpt_path_join(path, sizeof(path), dir, t->file, err));
    GPT_TRY(gpt_torch_open(&t->torch, path, err));
    GPT_TRY(gpt_torch_adam_open(&t->adam, &t->torch, t->torch.root, arena, why,
                                err));
    if (*why)
        return GPT_OK;
    t->named = is_named(t);
    const bool names = t->named || has_names(t);
    const struct gpt_hf_rule *rules =
        names ? im->family->rules : find_order(t, im->family, dir, arena, why);
    if (!rules)
        return GPT_OK;
    GPT_TRY(gpt_hf_trainer_list(t, im, rules, arena, err));
    if (!names)
        gpt_hf_trainer_number(t, im, arena, why);
    if (t->n)
        qsort(t->places, (size_t)t->n, sizeof(*t->places), compare_places);
    return names ? find_names(t, im, arena, why, err) : GPT_OK;
}

int gpt_hf_trainer_open(struct gpt_hf_trainer *t,
                        const struct gpt_hf_importer *im, const char *dir,
                        struct gpt_arena *arena, const char **why,
                        struct gpt_err *err)
{
    *t = (struct gpt_hf_trainer){.file = find_file(dir)};
    *why = "there is none";
    if (!t->file)
        return GPT_OK;
    int status = read_state(t, im, dir, arena, why, err);
    if (status == GPT_EDATA)
        return gpt_hint(err, "without %s in its directory the weights alone "
                             "are read", t->file);
    if (status == GPT_OK && !*why) {
        compare_decay(t, dir);
        report_settings(t, dir);
    }
    return status;
}

/* ---- other files ---- */

bool gpt_hf_trainer_counts(const char *dir)
{
    return gpt_path_holds(dir, STATE);
}

/* A step that was skipped is counted by Trainer and not by Adam. A file of it
 * that is damaged is of no use here, as Adam's count is nearly the same. */
int64_t gpt_hf_trainer_steps(const char *dir, int64_t otherwise)
{
    enum { LIMIT = 64 << 20 }; /* it has the losses of all steps */
    char path[GPT_PATH_BYTES];
    int64_t n = otherwise;
    cJSON *json = NULL;

    if (gpt_hf_trainer_counts(dir) &&
        gpt_path_join(path, sizeof(path), dir, STATE, NULL) == GPT_OK &&
        gpt_json_read(&json, path, LIMIT, NULL) == GPT_OK &&
        gpt_json_int(json, "global_step", 0, GPT_JSON_EXACT - 1, &n, path,
                     NULL) != GPT_OK)
        n = otherwise;
    cJSON_Delete(json);
    return n;
}

/* Schedules, arguments and states of random numbers are objects of Python. */
int gpt_hf_trainer_leave_out(struct gpt_source *s, const char *dir,
                             const char *read, struct gpt_err *err)
{
    static const char *const names[] = {
        "optimizer.pt", "optimizer.bin", "optimizer_1.bin", "scheduler.pt",
        "scheduler.bin", "scaler.pt", "rng_state.pth", "rng_state_0.pth",
        "random_states_0.pkl", "sampler.bin", "training_args.bin"};

    for (size_t i = 0; i < GPT_COUNT(names); i++)
        if (gpt_path_holds(dir, names[i]) &&
            (!read || strcmp(names[i], read) != 0))
            GPT_TRY(gpt_source_leave_out(s, names[i], (int)strlen(names[i]),
                                         err));
    return GPT_OK;
}
