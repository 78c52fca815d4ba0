/* Which number of an optimizer is which tensor, where nothing but the order
 * tells: the tensors of a model in the order of its class, those that decay and
 * the others, and the shapes of moments. Start at gpt_hf_trainer_number(). */
#include "checkpoint/huggingface/trainer_internal.h"

#include "backend.h"

#include <stdio.h>
#include <string.h>

enum { NAME = GPT_PARAM_NAME + 64, KEY = 24, MOST_GROUPS = 2 };

/* ---- the tensors of a model, in order ---- */

struct list {
    struct gpt_hf_trainer *t;
    const struct gpt_hf_importer *im;
    const struct gpt_hf_rule *rules; /* as many as the family's */
    const struct gpt_param **params; /* (1 + layers, roles): the first are those
                                      * outside layers */
    size_t cap;
    struct gpt_arena *arena;
};

/* All tensors that a rule names in a layer, or outside layers. Two parameters
 * of one tensor have neighbouring rules. */
static int add_rule(struct list *l, const struct gpt_hf_rule *rule,
                    int64_t layer, struct gpt_err *err)
{
    const struct gpt_param *p =
        l->params[(layer + 1) * GPT_N_ROLES + (int64_t)rule->role];
    struct gpt_hf_trainer *t = l->t;
    char name[NAME];

    /* the bias of a router is no parameter of the class */
    if (p && p->counts)
        return GPT_OK;
    for (int64_t part = 0; p && part < gpt_hf_parts(rule, p); part++) {
        gpt_hf_name(name, sizeof(name), rule, p, part, l->im->prefix);
        if (t->n && strcmp(t->places[t->n - 1].name, name) == 0)
            continue;
        GPT_TRY(gpt_grow(&t->places, &l->cap, (size_t)t->n + 1,
                         sizeof(*t->places), "tensors", err));
        struct gpt_hf_place *to = &t->places[t->n];
        *to = (struct gpt_hf_place){
            .name = gpt_arena_strdup(l->arena, name),
            .param = p,
            .ndim = gpt_hf_ndim(rule, p),
            .number = -1,
            .group = -1,
        };
        if (!to->name)
            return gpt_no_memory(err, "names of tensors");
        gpt_hf_shape(l->im->config, rule, p, to->shape);
        t->n++;
    }
    return GPT_OK;
}

/* True where an earlier rule has the role. */
static bool comes_later(const struct gpt_hf_rule *rules, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (rules[i].role == rules[at].role)
            return true;
    return false;
}

/* The optimizer has what the class keeps in memory, in the place of what it
 * saves. */
static int add_held(struct list *l, size_t at, int64_t layer,
                    struct gpt_err *err)
{
    const struct gpt_hf_family *f = l->im->family;
    const struct gpt_hf_rule *saved = &l->rules[at], *held;
    const struct gpt_param role = {.role = saved->role};
    size_t next = 0;

    held = gpt_hf_rule_of(f->memory, f->n_memory, &role, &next);
    if (!held)
        return add_rule(l, saved, layer, err);
    return comes_later(l->rules, at) ? GPT_OK : add_rule(l, held, layer, err);
}

/* Rules of layers stand together, and are gone through for each layer. */
static int add_rules(struct list *l, struct gpt_err *err)
{
    const struct gpt_hf_family *f = l->im->family;
    size_t end;

    for (size_t i = 0; i < f->n_rules; i = end) {
        const bool layered = strchr(l->rules[i].name, '%') != NULL;

        for (end = i + 1; layered && end < f->n_rules &&
                          strchr(l->rules[end].name, '%'); end++)
            ;
        for (int64_t layer = layered ? 0 : -1;
             layer < (layered ? l->im->config->num_layers : 0); layer++)
            for (size_t k = i; k < end; k++)
                GPT_TRY(add_held(l, k, layer, err));
    }
    return GPT_OK;
}

int gpt_hf_trainer_list(struct gpt_hf_trainer *t,
                        const struct gpt_hf_importer *im,
                        const struct gpt_hf_rule *rules,
                        struct gpt_arena *arena, struct gpt_err *err)
{
    struct list l = {.t = t, .im = im, .rules = rules, .arena = arena};

    /* the importer has compared the number of layers with that of tensors */
    GPT_TRY(gpt_new(&l.params,
                    (size_t)(im->config->num_layers + 1) * GPT_N_ROLES,
                    sizeof(*l.params), "parameters", err));
    for (int64_t i = 0; i < im->table.n; i++) {
        const struct gpt_param *p = &im->table.rows[i];

        l.params[(p->layer + 1) * GPT_N_ROLES + (int64_t)p->role] = p;
    }
    int status = add_rules(&l, err);
    gpt_free(l.params);
    return status;
}

/* ---- what decays ---- */

static bool is_bias(const struct gpt_hf_place *p)
{
    return strstr(p->name, "bias") != NULL;
}

static bool is_norm(const struct gpt_hf_place *p)
{
    return gpt_param_is_scale(p->param->role);
}

/* A word between dots that is "norm", or ends in "_norm". */
static bool has_norm_word(const char *name)
{
    static const char norm[] = "_norm";
    const size_t tail = strlen(norm);

    for (const char *at = name; *at;) {
        const size_t n = strcspn(at, ".");

        if ((n == tail - 1 && strncmp(at, norm + 1, n) == 0) ||
            (n >= tail && strncmp(at + n - tail, norm, tail) == 0))
            return true;
        at += n + (at[n] == '.');
    }
    return false;
}

/* Trainer of transformers 4.49 to 4.52, where it does not know the class of a
 * norm: the last one of Qwen2 and Mistral decays. */
static bool by_name(const struct gpt_hf_place *p, const struct gpt_config *c)
{
    (void)c;
    return !is_bias(p) && !strstr(p->name, "layernorm") &&
           !strstr(p->name, "rmsnorm");
}

/* Norms of other classes than PyTorch's decay, unless they are called so. */
static bool in_trainer(const struct gpt_hf_place *p,
                       const struct gpt_config *c)
{
    return by_name(p, c) && !has_norm_word(p->name) &&
           !(is_norm(p) && c->normalization == GPT_LAYERNORM);
}

/* Before, Trainer went by the class of a norm, of which it knew some. */
static bool in_old_trainer(const struct gpt_hf_place *p,
                           const struct gpt_config *c)
{
    (void)c;
    return !is_bias(p) && !is_norm(p);
}

static bool by_bias(const struct gpt_hf_place *p, const struct gpt_config *c)
{
    (void)c;
    return !is_bias(p);
}

static bool in_examples(const struct gpt_hf_place *p,
                        const struct gpt_config *c)
{
    (void)c;
    return !is_bias(p) && !strstr(p->name, "layer_norm.weight");
}

static bool by_shape(const struct gpt_hf_place *p, const struct gpt_config *c)
{
    (void)c;
    return p->ndim > 1;
}

/* How programs divide the parameters of a model into those that decay and the
 * others. Where these are one group, any of them will do. What decays by one of
 * two of them decays by the other, too, or the other way about: two that differ
 * have groups of different sizes, and no more than one fits. */
static bool (*const divisions[])(const struct gpt_hf_place *p,
                                 const struct gpt_config *c) = {
    in_trainer, in_old_trainer, by_bias, by_name, in_examples, by_shape,
};

/* ---- which number is which tensor ---- */

struct search {
    struct gpt_hf_trainer *t;
    const struct gpt_config *config;
    struct gpt_arena *arena;
    struct gpt_pickle_value **items[MOST_GROUPS]; /* numbers of a group */
    int64_t n[MOST_GROUPS];
};

/* Numbers the tensors by a division; turned: those that decay are the second
 * group. False where its groups are not of these sizes. */
static bool divide(const struct search *s, size_t division, bool turned)
{
    struct gpt_hf_trainer *t = s->t;
    int64_t at[MOST_GROUPS] = {0};

    for (int64_t i = 0; i < t->n; i++) {
        struct gpt_hf_place *p = &t->places[i];
        const int64_t group =
            t->adam.n_groups > 1 && divisions[division](p, s->config) == turned;

        if (at[group] == s->n[group] ||
            !gpt_pickle_int(s->items[group][at[group]++], &p->number))
            return false;
        p->group = group;
    }
    return at[0] == s->n[0] && at[1] == s->n[1];
}

/* What the optimizer calls a tensor: its number, or its name, which for the
 * output may be that of other classes. */
static const char *key_of(const struct gpt_hf_trainer *t,
                          const struct gpt_hf_place *p, char number[KEY])
{
    snprintf(number, KEY, "%lld", (long long)p->number);
    if (!t->named)
        return number;
    return p->param->role != GPT_OUTPUT_WEIGHT ||
                   gpt_torch_adam_moment(&t->adam, GPT_KIND_EXP_AVG, p->name)
               ? p->name
               : GPT_HF_HEAD;
}

const struct gpt_safetensor *
gpt_hf_trainer_moment(const struct gpt_hf_trainer *t,
                      const struct gpt_hf_place *p, enum gpt_kind kind)
{
    char number[KEY];

    return gpt_torch_adam_moment(&t->adam, kind, key_of(t, p, number));
}

/* Both moments of a tensor have its shape; else *why says which have not. */
static bool fits_one(const struct gpt_hf_trainer *t,
                     const struct gpt_hf_place *p, struct gpt_arena *arena,
                     const char **why)
{
    const struct gpt_safetensor *e;
    char number[KEY];

    if (gpt_torch_adam_fits(&t->adam, key_of(t, p, number), p->ndim, p->shape,
                            &e))
        return true;
    *why = e ? gpt_arena_printf(
                   arena, "'%s' is %lld x %lld, and '%.80s' is %lld x %lld",
                   p->name, (long long)p->shape[0],
                   (long long)(p->ndim > 1 ? p->shape[1] : 1), e->name,
                   (long long)(e->ndim ? e->shape[0] : 1),
                   (long long)(e->ndim > 1 ? e->shape[1] : 1))
             : gpt_arena_printf(arena, "there are no moments of '%s'", p->name);
    if (!*why)
        *why = "its parameters have other shapes";
    return false;
}

bool gpt_hf_trainer_fits(const struct gpt_hf_trainer *t,
                         struct gpt_arena *arena, const char **why)
{
    for (int64_t i = 0; i < t->n; i++)
        if (!fits_one(t, &t->places[i], arena, why))
            return false;
    return true;
}

/* Why none fits, where no division has groups of these sizes. */
static const char *explain_sizes(const struct search *s)
{
    const int64_t all = s->n[0] + s->n[1];
    const char *why =
        all != s->t->n
            ? gpt_arena_printf(s->arena,
                               "it has %lld parameters, the model has %lld",
                               (long long)all, (long long)s->t->n)
            : gpt_arena_printf(s->arena,
                               "its groups have %lld and %lld parameters, and "
                               "no known rule divides those of the model so",
                               (long long)s->n[0], (long long)s->n[1]);

    return why ? why : "its parameters are not those of the model";
}

/* True for the first way of numbering that fits; else *why is the mismatch of
 * the first whose groups have the right sizes. */
static bool search_order(struct search *s, const char **why)
{
    const bool one = s->t->adam.n_groups == 1;
    const char *mismatch = NULL;

    for (size_t i = 0; i < (one ? 1 : GPT_COUNT(divisions)); i++)
        for (int turned = 0; turned <= !one; turned++) {
            if (!divide(s, i, turned))
                continue;
            if (gpt_hf_trainer_fits(s->t, s->arena, &mismatch))
                return true;
            *why = *why ? *why : mismatch;
        }
    *why = *why ? *why : explain_sizes(s);
    return false;
}

void gpt_hf_trainer_number(struct gpt_hf_trainer *t,
                           const struct gpt_hf_importer *im,
                           struct gpt_arena *arena, const char **why)
{
    struct search s = {.t = t, .config = im->config, .arena = arena};

    if (t->adam.n_groups > MOST_GROUPS) {
        *why = "it has more than two groups of parameters, of which nothing "
               "says the names";
        return;
    }
    for (int64_t g = 0; g < t->adam.n_groups; g++)
        s.items[g] = gpt_torch_adam_list(&t->adam, g, "params", &s.n[g]);
    *why = NULL;
    if (search_order(&s, why))
        *why = NULL;
}
