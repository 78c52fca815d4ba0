/* Adapters become part of a source's tensors; see adapter.h. Start at
 * gpt_adapters_merge().
 *
 * A tensor of the source is shown as transformers has it, by the family's rule
 * (gpt_hf_export()), changed there, and taken back (gpt_hf_import()). Nothing
 * is read: the pieces know what is added to them. So it does not matter which
 * format the source has, nor what becomes of the tensors afterwards. */
#include "checkpoint/adapter/adapter.h"

#include "base/log.h"
#include "base/num.h"
#include "checkpoint/format.h"
#include "checkpoint/huggingface/huggingface.h"
#include "checkpoint/merge.h"
#include "checkpoint/names.h"
#include "checkpoint/run_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = GPT_PARAM_NAME + 32, CHECK_BYTES = 1 << 20 };

/* A tensor of transformers: a part of a parameter, or several. */
struct place {
    char name[NAME];
    int64_t param;
    const struct gpt_hf_rule *rule;
    bool tied; /* it is the output layer's name, and the word table's tensor */
};

struct gpt_merged {
    struct gpt_source *s;
    struct gpt_config config;
    const struct gpt_hf_family *family;
    struct gpt_param_table table;
    struct gpt_tensor *tensors; /* one a parameter, in its order */
    struct place *places;       /* by name */
    size_t n_places;
    struct gpt_adapter *adapters; /* open, as their files are read later */
    int64_t n_adapters;
    struct gpt_product **products;
    size_t n_products, cap_products;
    cJSON *state;
    struct gpt_arena arena;
};

static void free_tensors(struct gpt_tensor *tensors, int64_t n)
{
    for (int64_t i = 0; tensors && i < n; i++)
        gpt_tensor_free(&tensors[i]);
    gpt_free(tensors);
}

void gpt_adapters_free(struct gpt_merged *m)
{
    if (!m)
        return;
    free_tensors(m->tensors, m->table.n);
    gpt_params_free(&m->table);
    gpt_free(m->places);
    for (size_t i = 0; i < m->n_products; i++)
        gpt_product_free(m->products[i]);
    gpt_free(m->products);
    for (int64_t i = 0; i < m->n_adapters; i++)
        gpt_adapter_close(&m->adapters[i]);
    gpt_free(m->adapters);
    cJSON_Delete(m->state);
    gpt_arena_free(&m->arena);
    gpt_free(m);
}

/* ---- parameters and their names there ---- */

static int by_name(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static int add_places(struct gpt_merged *m, int64_t param, size_t *cap,
                      struct gpt_err *err)
{
    const struct gpt_param *p = &m->table.rows[param];
    const char *output = gpt_hf_output_name(m->family);
    const struct gpt_hf_rule *rule;
    size_t at = 0;

    while ((rule = gpt_hf_next_rule(m->family, p, &at))) {
        const bool tied = p->role == GPT_WORD_EMBEDDING && output &&
                          m->config.tied_embeddings;

        GPT_TRY(gpt_grow(&m->places, cap, m->n_places + 2, sizeof(*m->places),
                         "names of tensors", err));
        struct place *to = &m->places[m->n_places];
        to[0] = (struct place){.param = param, .rule = rule};
        gpt_hf_name(to[0].name, NAME, rule, p, m->family->prefix);
        m->n_places++;
        if (!tied)
            continue;
        to[1] = (struct place){.param = param, .rule = rule, .tied = true};
        snprintf(to[1].name, NAME, "%s", output);
        m->n_places++;
    }
    return GPT_OK;
}

/* The names of the table as it is now. */
static int list_places(struct gpt_merged *m, struct gpt_err *err)
{
    size_t cap = 0;

    gpt_free(m->places);
    m->places = NULL;
    m->n_places = 0;
    for (int64_t i = 0; i < m->table.n; i++)
        GPT_TRY(add_places(m, i, &cap, err));
    if (m->n_places)
        qsort(m->places, m->n_places, sizeof(*m->places), by_name);
    return GPT_OK;
}

/* The first place of that name, NULL when there is none. */
static const struct place *find_exact(const struct gpt_merged *m,
                                      const char *name)
{
    struct place key;
    const struct place *found;

    if (strlen(name) >= NAME || m->n_places == 0)
        return NULL;
    snprintf(key.name, NAME, "%s", name);
    found = bsearch(&key, m->places, m->n_places, sizeof(key), by_name);
    while (found && found > m->places && by_name(found - 1, found) == 0)
        found--;
    return found;
}

/* The place of "MODULE.LEAF": an adapter may have been trained on the base
 * model, which lacks the family's prefix, or on one that reads pictures. */
static int find_place(struct gpt_merged *m, const char *module,
                      const char *leaf, const struct place **place,
                      struct gpt_err *err)
{
    const char *name = gpt_arena_printf(&m->arena, "%s.%s", module, leaf);

    if (!name)
        return gpt_no_memory(err, "names of tensors");
    *place = find_exact(m, name);
    if (!*place) {
        GPT_TRY(gpt_hf_text_name(&name, &m->arena, err));
        *place = find_exact(m, name);
    }
    if (*place)
        return GPT_OK;
    name = gpt_arena_printf(&m->arena, "%s%s", m->family->prefix, name);
    if (!name)
        return gpt_no_memory(err, "names of tensors");
    *place = find_exact(m, name);
    return GPT_OK;
}

/* The same for a tensor of an adapter, which must be there. */
static int need_place(struct gpt_merged *m, const struct gpt_adapter *a,
                      const struct gpt_adapter_entry *e, const char *leaf,
                      const struct place **place, struct gpt_err *err)
{
    GPT_TRY(find_place(m, e->module, leaf, place, err));
    if (*place)
        return GPT_OK;
    gpt_fail(err, GPT_EDATA, "%s/%s: tensor '%.150s' is for '%.150s.%s', which "
             "the model %.150s does not have", a->dir, a->file,
             e->tensor->name, e->module, leaf, m->s->dir);
    return gpt_hint(err, "the model is of model_type %s; an adapter is merged "
                         "into the model that it was trained with, and "
                         "gpt-reshape inspect shows which that was",
                    m->family->model_type);
}

static int fail_of_shape(const struct gpt_adapter *a,
                         const struct gpt_safetensor *t, const char *name,
                         int ndim, const int64_t *shape, struct gpt_err *err)
{
    char own[64], theirs[64];

    snprintf(own, sizeof(own), t->ndim > 1 ? "%lld x %lld" : "%lld",
             (long long)t->shape[0], (long long)t->shape[1]);
    snprintf(theirs, sizeof(theirs), ndim > 1 ? "%lld x %lld" : "%lld",
             (long long)shape[0], (long long)shape[1]);
    gpt_fail(err, GPT_EDATA, "%s/%s: tensor '%.200s' is %s, and '%.200s' of the "
             "model is %s", a->dir, a->file, t->name, own, name, theirs);
    return gpt_hint(err, "an adapter is merged into the model that it was "
                         "trained with; gpt-reshape inspect shows which that "
                         "was");
}

/* All of an entry as a tensor with pieces. */
static int take_entry(struct gpt_tensor *t, const struct gpt_adapter *a,
                      const struct gpt_safetensor *st, struct gpt_err *err)
{
    *t = gpt_tensor_make(st->name, st->dtype, st->ndim, st->shape);
    return gpt_stored_add(t, a->weights.in, st, err);
}

/* ---- changing a tensor there ---- */

/* Changes `there`, which has the shape and the pieces of the model's tensor. */
typedef int change_function(struct gpt_merged *m, struct gpt_tensor *there,
                            const struct place *place, void *context,
                            struct gpt_err *err);

/* One parameter whose part at the place is changed; its other parts are shown
 * and taken back as they are. */
static int change_param(struct gpt_merged *m, const struct place *place,
                        change_function *change, void *context,
                        struct gpt_err *err)
{
    const struct gpt_param *p = &m->table.rows[place->param];
    struct gpt_tensor *t = &m->tensors[place->param];
    struct gpt_tensor now =
        gpt_tensor_make(t->name, t->dtype, t->ndim, t->shape);
    const struct gpt_hf_rule *rule;
    size_t at = 0;
    int status = GPT_OK;

    while (status == GPT_OK && (rule = gpt_hf_next_rule(m->family, p, &at))) {
        int64_t shape[2];

        gpt_hf_shape(&m->config, rule, p, shape);
        struct gpt_tensor there =
            gpt_tensor_make(place->name, t->dtype, p->ndim, shape);
        status = gpt_hf_export(&there, t, &m->config, rule, p, err);
        if (status == GPT_OK && rule == place->rule)
            status = change(m, &there, place, context, err);
        if (status == GPT_OK)
            status = gpt_hf_import(&now, &there, &m->config, rule, p, err);
        gpt_tensor_free(&there);
    }
    if (status != GPT_OK) {
        gpt_tensor_free(&now);
        return status;
    }
    gpt_tensor_free(t);
    *t = now;
    return GPT_OK;
}

/* All parameters that the tensor there is of. */
static int change(struct gpt_merged *m, const struct place *place,
                  change_function *function, void *context,
                  struct gpt_err *err)
{
    const struct place *end = m->places + m->n_places;

    for (const struct place *p = place;
         p < end && strcmp(p->name, place->name) == 0; p++)
        GPT_TRY(change_param(m, p, function, context, err));
    return GPT_OK;
}

/* What a change is made of. */
struct source_of_change {
    const struct gpt_adapter *adapter;
    const struct gpt_adapter_entry *entry;
    /* of a product: its two factors, or one and none; a scale */
    const struct gpt_safetensor *a, *b, *lengths;
    bool embedding;
    float scale;
    const cJSON *ids;
};

/* A whole tensor in the place of the model's. */
static int change_whole(struct gpt_merged *m, struct gpt_tensor *there,
                        const struct place *place, void *context,
                        struct gpt_err *err)
{
    const struct source_of_change *from = context;
    const struct gpt_safetensor *st = from->entry->tensor;

    enum gpt_dtype type = there->dtype;

    if (st->ndim != there->ndim || st->shape[0] != there->shape[0] ||
        (st->ndim > 1 && st->shape[1] != there->shape[1]))
        return fail_of_shape(from->adapter, st, place->name, there->ndim,
                             there->shape, err);
    if (there->n)
        type = there->pieces[0].merge ? there->pieces[0].merge->kept
                                      : there->pieces[0].dtype;
    there->n = 0;
    GPT_TRY(gpt_stored_add(there, from->adapter->weights.in, st, err));
    return gpt_merge_round(there, type, &m->arena, err);
}

/* ---- products ---- */

static int new_product(struct gpt_merged *m, struct gpt_product **p,
                       struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&m->products, &m->cap_products, m->n_products + 1,
                     sizeof(struct gpt_product *), "adapters", err));
    *p = gpt_arena_alloc(&m->arena, 1, sizeof(**p));
    if (!*p)
        return gpt_no_memory(err, "adapters");
    m->products[m->n_products++] = *p;
    return GPT_OK;
}

/* The factors as the model's tensor has its dimensions. Of a Linear, (out, in),
 * they are B and A; of a Conv1D, (in, out), and of an embedding, (ids, hidden),
 * A and B transposed. */
static int set_factors(struct gpt_product *p,
                       const struct source_of_change *from, bool turned,
                       struct gpt_err *err)
{
    struct gpt_tensor a = {0}, b = {0};
    int status;

    GPT_TRY_GOTO(status, take_entry(&a, from->adapter, from->a, err), out);
    GPT_TRY_GOTO(status, take_entry(&b, from->adapter, from->b, err), out);
    if (turned) {
        GPT_TRY_GOTO(status, gpt_tensor_turn(&p->left, &a, err), out);
        status = gpt_tensor_turn(&p->right, &b, err);
    } else {
        p->left = b;
        p->right = a;
        return GPT_OK;
    }
out:
    gpt_tensor_free(&a);
    gpt_tensor_free(&b);
    return status;
}

static int check_factors(const struct source_of_change *from,
                         const struct gpt_tensor *there,
                         const struct place *place, bool turned,
                         struct gpt_err *err)
{
    const int64_t in = there->shape[!turned], out = there->shape[turned];

    if (there->ndim != 2 || from->a->ndim != 2 || from->a->shape[1] != in)
        return fail_of_shape(from->adapter, from->a, place->name, there->ndim,
                             there->shape, err);
    if (from->b->ndim != 2 || from->b->shape[0] != out)
        return fail_of_shape(from->adapter, from->b, place->name, there->ndim,
                             there->shape, err);
    if (from->lengths && (from->lengths->ndim != 1 ||
                          from->lengths->shape[0] != out))
        return fail_of_shape(from->adapter, from->lengths, place->name,
                             there->ndim, there->shape, err);
    return GPT_OK;
}

/* An embedding's product is rounded before it is added, and others are not:
 * that is how peft has it. */
static int change_sum(struct gpt_merged *m, struct gpt_tensor *there,
                      const struct place *place, void *context,
                      struct gpt_err *err)
{
    const struct source_of_change *from = context;
    const bool turned =
        from->embedding ||
        gpt_hf_is_transposed(place->rule, &m->table.rows[place->param]);
    struct gpt_product *p;

    GPT_TRY(check_factors(from, there, place, turned, err));
    GPT_TRY(new_product(m, &p, err));
    p->what = gpt_arena_printf(&m->arena, "%s/%s: '%s'", from->adapter->dir,
                               from->adapter->file, from->a->name);
    if (!p->what)
        return gpt_no_memory(err, "adapters");
    p->scale = from->scale;
    p->rounds = from->embedding && !from->lengths;
    p->out_rows = !turned;
    GPT_TRY(set_factors(p, from, turned, err));
    if (from->lengths)
        GPT_TRY(take_entry(&p->lengths, from->adapter, from->lengths, err));
    GPT_TRY(gpt_product_make(p, there, err));
    p->base.name = gpt_arena_strdup(&m->arena, place->name);
    return p->base.name ? gpt_merge_pieces(there, p, &m->arena, err)
                        : gpt_no_memory(err, "adapters");
}

/* A vector is a matrix of one column, and its product that with a one. */
static int change_bias(struct gpt_merged *m, struct gpt_tensor *there,
                       const struct place *place, void *context,
                       struct gpt_err *err)
{
    const struct source_of_change *from = context;
    const struct gpt_safetensor *st = from->entry->tensor;
    struct gpt_product *p;

    if (st->ndim != 1 || there->ndim != 1 || st->shape[0] != there->shape[0])
        return fail_of_shape(from->adapter, st, place->name, there->ndim,
                             there->shape, err);
    GPT_TRY(new_product(m, &p, err));
    p->what = gpt_arena_printf(&m->arena, "%s/%s: '%s'", from->adapter->dir,
                               from->adapter->file, st->name);
    if (!p->what)
        return gpt_no_memory(err, "adapters");
    p->scale = from->scale;
    GPT_TRY(take_entry(&p->left, from->adapter, st, err));
    p->left.ndim = 2;
    p->left.shape[1] = 1;
    for (size_t i = 0; i < p->left.n; i++)
        p->left.pieces[i].shape[1] = 1;
    GPT_TRY(gpt_product_make(p, there, err));
    p->base.name = gpt_arena_strdup(&m->arena, place->name);
    return p->base.name ? gpt_merge_pieces(there, p, &m->arena, err)
                        : gpt_no_memory(err, "adapters");
}

/* ---- rows of tokens ---- */

static int by_id(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Pairs of an id and its row in the adapter, by id. */
static int read_ids(const struct source_of_change *from, int64_t (*ids)[2],
                    int64_t n, int64_t vocab, struct gpt_err *err)
{
    const struct gpt_adapter *a = from->adapter;
    const cJSON *item;
    int64_t i = 0;

    cJSON_ArrayForEach(item, from->ids)
    {
        const double id = cJSON_IsNumber(item) ? item->valuedouble : -1;

        if (!(id >= 0 && id < (double)vocab && floor(id) >= id))
            return gpt_fail(err, GPT_EDATA, "%s/%s: trainable_token_indices "
                            "has something else than ids below %lld", a->dir,
                            GPT_ADAPTER_CONFIG, (long long)vocab);
        if (i < n) {
            ids[i][0] = (int64_t)id;
            ids[i][1] = i;
        }
        i++;
    }
    if (i != n)
        return gpt_fail(err, GPT_EDATA, "%s/%s: tensor '%.150s' has %lld rows, "
                        "for %lld ids of trainable_token_indices", a->dir,
                        a->file, from->entry->tensor->name, (long long)n,
                        (long long)i);
    qsort(ids, (size_t)n, sizeof(*ids), by_id);
    for (i = 1; i < n; i++)
        if (ids[i][0] == ids[i - 1][0])
            return gpt_fail(err, GPT_EDATA, "%s/%s: trainable_token_indices "
                            "has id %lld twice", a->dir, GPT_ADAPTER_CONFIG,
                            (long long)ids[i][0]);
    return GPT_OK;
}

/* Rows [to, to + n) of `out` are rows [from, from + n) of `in`. */
static int show_rows(struct gpt_tensor *out, const struct gpt_tensor *in,
                     int64_t to, int64_t from, int64_t n, struct gpt_err *err)
{
    const struct gpt_map map = {.to = {to}, .from = {from},
                                .shape = {n, out->shape[1]},
                                .perm = {0, 1, 2, 3}};

    return n > 0 ? gpt_tensor_view(out, in, &map, 1, err) : GPT_OK;
}

static int change_rows(struct gpt_merged *m, struct gpt_tensor *there,
                       const struct place *place, void *context,
                       struct gpt_err *err)
{
    const struct source_of_change *from = context;
    const struct gpt_safetensor *st = from->entry->tensor;
    struct gpt_tensor rows = {0},
                      now = gpt_tensor_make(there->name, there->dtype, 2,
                                            there->shape);
    const int64_t n = st->shape[0];
    int64_t (*ids)[2] = NULL, at = 0;
    int status;

    (void)m;
    if (st->ndim != 2 || there->ndim != 2 || st->shape[1] != there->shape[1])
        return fail_of_shape(from->adapter, st, place->name, there->ndim,
                             there->shape, err);
    GPT_TRY(gpt_new(&ids, (size_t)n, sizeof(*ids), "ids", err));
    GPT_TRY_GOTO(status, read_ids(from, ids, n, there->shape[0], err), out);
    GPT_TRY_GOTO(status, take_entry(&rows, from->adapter, st, err), out);
    for (int64_t i = 0; i < n; at = ids[i++][0] + 1) {
        GPT_TRY_GOTO(status, show_rows(&now, there, at, at, ids[i][0] - at,
                                       err), out);
        GPT_TRY_GOTO(status, show_rows(&now, &rows, ids[i][0], ids[i][1], 1,
                                       err), out);
    }
    status = show_rows(&now, there, at, at, there->shape[0] - at, err);
    if (status == GPT_OK) {
        gpt_tensor_free(there);
        *there = now;
        now = (struct gpt_tensor){0};
    }
out:
    gpt_tensor_free(&now);
    gpt_tensor_free(&rows);
    gpt_free(ids);
    return status;
}

/* ---- a module ---- */

/* Entries of a module by what they are; whole ones are not here. */
struct module {
    const struct gpt_adapter_entry *of[GPT_ADAPTER_KINDS];
};

/* Both layers that share a table get what one was trained to. */
static void warn_of_tie(const struct gpt_merged *m,
                        const struct gpt_adapter *a,
                        const struct gpt_adapter_entry *e)
{
    gpt_warn("%s: '%s' is of a table that embedding and output layer of the "
             "model %s share: both get what is added, as with "
             "merge_and_unload() of peft, and the texts are not those of the "
             "adapter beside its model", a->dir, e->module, m->s->dir);
}

static int merge_product(struct gpt_merged *m, struct gpt_adapter *a,
                         const struct module *of, bool embedding,
                         struct gpt_err *err)
{
    const struct gpt_adapter_entry *x =
        of->of[embedding ? GPT_ADAPTER_EMBEDDING_A : GPT_ADAPTER_A];
    const struct gpt_adapter_entry *y =
        of->of[embedding ? GPT_ADAPTER_EMBEDDING_B : GPT_ADAPTER_B];
    const struct gpt_adapter_entry *lengths = of->of[GPT_ADAPTER_LENGTHS];
    const struct place *place;
    int64_t rank;
    double scale;

    if (!x || !y)
        return gpt_fail(err, GPT_EDATA, "%s/%s: tensor '%.200s' lacks its other "
                        "half, that of %s", a->dir, a->file,
                        (x ? x : y)->tensor->name, x ? "B" : "A");
    GPT_TRY(need_place(m, a, x, "weight", &place, err));
    GPT_TRY(gpt_adapter_scale(&a->config, x->module, &rank, &scale, err));
    if (x->tensor->shape[0] != rank ||
        (y->tensor->ndim > 1 && y->tensor->shape[1] != rank))
        return gpt_fail(err, GPT_EDATA, "%s/%s: tensors '%.150s' and '%.150s' "
                        "are of rank %lld and %lld; %s says %lld", a->dir,
                        a->file, x->tensor->name, y->tensor->name,
                        (long long)x->tensor->shape[0],
                        (long long)(y->tensor->ndim > 1 ? y->tensor->shape[1]
                                                        : 1),
                        GPT_ADAPTER_CONFIG, (long long)rank);
    if (rank > GPT_MERGE_RANK)
        return gpt_fail(err, GPT_EDATA, "%s/%s: tensor '%.200s' is of rank "
                        "%lld, limit %d", a->dir, a->file, x->tensor->name,
                        (long long)rank, GPT_MERGE_RANK);
    if (place->tied || (m->config.tied_embeddings &&
                        m->table.rows[place->param].role == GPT_WORD_EMBEDDING))
        warn_of_tie(m, a, x);
    struct source_of_change from = {
        .adapter = a, .entry = x, .a = x->tensor, .b = y->tensor,
        .lengths = lengths ? lengths->tensor : NULL, .embedding = embedding,
        .scale = (float)scale};
    return change(m, place, change_sum, &from, err);
}

static int merge_bias(struct gpt_merged *m, struct gpt_adapter *a,
                      const struct gpt_adapter_entry *e, struct gpt_err *err)
{
    struct source_of_change from = {.adapter = a, .entry = e};
    const struct place *place;
    int64_t rank;
    double scale;

    GPT_TRY(need_place(m, a, e, "bias", &place, err));
    GPT_TRY(gpt_adapter_scale(&a->config, e->module, &rank, &scale, err));
    from.scale = (float)scale;
    return change(m, place, change_bias, &from, err);
}

/* The ids are a list, for the embedding, or a list for each module. */
static int merge_tokens(struct gpt_merged *m, struct gpt_adapter *a,
                        const struct gpt_adapter_entry *e, struct gpt_err *err)
{
    static const char key[] = "trainable_token_indices";
    struct source_of_change from = {.adapter = a, .entry = e};
    const struct place *place;

    from.ids = cJSON_GetObjectItemCaseSensitive(a->config.json, key);
    if (cJSON_IsObject(from.ids))
        (void)gpt_adapter_names(&a->config, key, e->module, &from.ids);
    if (!cJSON_IsArray(from.ids))
        return gpt_fail(err, GPT_EDATA, "%s/%s: no list '%s' for '%.200s'",
                        a->dir, GPT_ADAPTER_CONFIG, key, e->module);
    GPT_TRY(need_place(m, a, e, "weight", &place, err));
    return change(m, place, change_rows, &from, err);
}

/* Entries [first, end) are those of a module. Whole tensors come first: peft
 * loads them before anything is merged. */
static int merge_module(struct gpt_merged *m, struct gpt_adapter *a,
                        int64_t first, int64_t end, struct gpt_err *err)
{
    struct module of = {{NULL}};
    const struct place *place;

    for (int64_t i = first; i < end; i++) {
        struct source_of_change from = {.adapter = a, .entry = &a->entries[i]};

        of.of[a->entries[i].kind] = &a->entries[i];
        if (a->entries[i].kind != GPT_ADAPTER_WHOLE)
            continue;
        GPT_TRY(need_place(m, a, from.entry, from.entry->leaf, &place, err));
        GPT_TRY(change(m, place, change_whole, &from, err));
    }
    const bool linear = of.of[GPT_ADAPTER_A] || of.of[GPT_ADAPTER_B];
    const bool embedding =
        of.of[GPT_ADAPTER_EMBEDDING_A] || of.of[GPT_ADAPTER_EMBEDDING_B];
    if (linear + embedding + !!of.of[GPT_ADAPTER_TOKENS] > 1 ||
        (of.of[GPT_ADAPTER_LENGTHS] && !linear && !embedding))
        return gpt_fail(err, GPT_EDATA, "%s/%s: the tensors for '%.200s' do not "
                        "go together", a->dir, a->file,
                        a->entries[first].module);
    if (linear || embedding)
        GPT_TRY(merge_product(m, a, &of, embedding, err));
    if (of.of[GPT_ADAPTER_BIAS])
        GPT_TRY(merge_bias(m, a, of.of[GPT_ADAPTER_BIAS], err));
    return of.of[GPT_ADAPTER_TOKENS]
               ? merge_tokens(m, a, of.of[GPT_ADAPTER_TOKENS], err)
               : GPT_OK;
}

/* ---- vocabulary and ties ---- */

/* The whole tensor that the adapter has for a parameter of the table; with
 * `tied` the one that it has for the output layer of a tied model. */
static int find_whole(struct gpt_merged *m, const struct gpt_adapter *a,
                      int64_t param, bool tied,
                      const struct gpt_adapter_entry **entry,
                      struct gpt_err *err)
{
    const struct place *place;

    *entry = NULL;
    for (int64_t i = 0; i < a->n && !*entry; i++) {
        if (a->entries[i].kind != GPT_ADAPTER_WHOLE)
            continue;
        GPT_TRY(find_place(m, a->entries[i].module, a->entries[i].leaf, &place,
                           err));
        if (place && place->param == param && place->tied == tied)
            *entry = &a->entries[i];
    }
    return GPT_OK;
}

static int copy_tensor(struct gpt_tensor *to, const struct gpt_tensor *from,
                       struct gpt_err *err)
{
    *to = gpt_tensor_make(from->name, from->dtype, from->ndim, from->shape);
    for (size_t i = 0; i < from->n; i++)
        GPT_TRY(gpt_tensor_add(to, &from->pieces[i], err));
    return GPT_OK;
}

/* The tensor of a parameter as it is now; of an output layer that is new, the
 * word table it was. */
static int find_now(const struct gpt_merged *m, const struct gpt_param *p,
                    const struct gpt_tensor **t, struct gpt_err *err)
{
    const struct gpt_param *old =
        m->tensors ? gpt_params_find(&m->table, p->name) : NULL;

    if (m->tensors && !old && p->role == GPT_OUTPUT_WEIGHT)
        for (old = m->table.rows; old->role != GPT_WORD_EMBEDDING;)
            old++;
    *t = old ? &m->tensors[old - m->table.rows]
             : gpt_source_find(m->s, p->name);
    return *t ? GPT_OK
              : gpt_fail(err, GPT_EDATA, "%s: no tensor '%s'", m->s->dir,
                         p->name);
}

/* Builds table and tensors of the configuration as it is now, out of those that
 * are there. Rows of a vocabulary that has another size now are zeros. */
static int rebuild(struct gpt_merged *m, struct gpt_err *err)
{
    struct gpt_param_table table = {0};
    const struct gpt_tensor *t;
    struct gpt_tensor *tensors = NULL;
    int64_t done = 0;
    int status;

    GPT_TRY(gpt_params_build(&table, &m->config, err));
    GPT_TRY_GOTO(status, gpt_new(&tensors, (size_t)table.n, sizeof(*tensors),
                                 "tensors", err), fail);
    for (; done < table.n; done++) {
        const struct gpt_param *p = &table.rows[done];

        GPT_TRY_GOTO(status, find_now(m, p, &t, err), fail);
        if (p->vocab_rows && m->tensors && t->shape[0] != p->shape[0]) {
            tensors[done] =
                gpt_tensor_make(p->name, t->dtype, t->ndim, p->shape);
            struct gpt_file_box zeros = {.dtype = t->dtype,
                                         .shape = {p->shape[0], p->shape[1]}};
            status = gpt_tensor_add(&tensors[done], &zeros, err);
        } else
            status = copy_tensor(&tensors[done], t, err);
        tensors[done].name = p->name;
        if (status != GPT_OK) {
            done++;
            goto fail;
        }
    }
    free_tensors(m->tensors, m->table.n);
    gpt_params_free(&m->table);
    m->table = table;
    m->tensors = tensors;
    return list_places(m, err);
fail:
    free_tensors(tensors, done);
    gpt_params_free(&table);
    return status;
}

static int64_t find_role(const struct gpt_merged *m, enum gpt_param_role role)
{
    for (int64_t i = 0; i < m->table.n; i++)
        if (m->table.rows[i].role == role)
            return i;
    return -1;
}

/* A table that is stored with other rows than the model has: then the model was
 * given another vocabulary, and the adapter has all that has a row an id. */
static int settle_vocabulary(struct gpt_merged *m, const struct gpt_adapter *a,
                             int64_t divisible_by, int64_t tp_size,
                             struct gpt_err *err)
{
    const struct gpt_adapter_entry *e;
    const int64_t word = find_role(m, GPT_WORD_EMBEDDING);

    GPT_TRY(find_whole(m, a, word, false, &e, err));
    if (!e || e->tensor->ndim != 2 ||
        e->tensor->shape[0] == m->config.vocab_size ||
        e->tensor->shape[1] != m->table.rows[word].shape[1])
        return GPT_OK;
    const int64_t rows = e->tensor->shape[0];
    for (int64_t i = 0; i < m->table.n; i++) {
        const struct gpt_adapter_entry *other;

        if (!m->table.rows[i].vocab_rows)
            continue;
        GPT_TRY(find_whole(m, a, i, false, &other, err));
        if (!other)
            return gpt_fail(err, GPT_EDATA, "%s/%s: tensor '%.200s' has %lld "
                            "rows, the vocabulary of the model %lld; for its "
                            "'%s' the adapter has no rows", a->dir, a->file,
                            e->tensor->name, (long long)rows,
                            (long long)m->config.vocab_size,
                            m->table.rows[i].name);
    }
    gpt_info("%s: the vocabulary gets %lld ids, as the adapter has them, in "
             "place of %lld", a->dir, (long long)rows,
             (long long)m->config.vocab_size);
    m->config.vocab_size = rows;
    m->config.padded_vocab_size =
        gpt_config_padded_vocab(rows, gpt_max_i64(divisible_by, 1),
                                gpt_max_i64(tp_size, 1));
    return rebuild(m, err);
}

/* modules_to_save makes one of two tied layers a module of its own: peft trains
 * and merges it, and leaves the other as it was. What is stored for other
 * reasons is loaded into both. */
static int settle_ties(struct gpt_merged *m, const struct gpt_adapter *a,
                       bool *untied, struct gpt_err *err)
{
    const struct gpt_adapter_entry *in, *out;
    const int64_t word = find_role(m, GPT_WORD_EMBEDDING);
    const cJSON *item;

    *untied = false;
    if (!m->config.tied_embeddings || !gpt_hf_output_name(m->family))
        return GPT_OK;
    GPT_TRY(find_whole(m, a, word, false, &in, err));
    GPT_TRY(find_whole(m, a, word, true, &out, err));
    if (a->config.keeps_ties)
        return GPT_OK;
    *untied = (in && in->tensor->shape[0] == m->config.vocab_size &&
               gpt_adapter_names(&a->config, "modules_to_save", in->module,
                                 &item)) ||
              (out && gpt_adapter_names(&a->config, "modules_to_save",
                                        out->module, &item));
    if (!*untied)
        return GPT_OK;
    m->config.tied_embeddings = false;
    return rebuild(m, err);
}

/* Both may have been stored although they are the same. */
static int settle_again(struct gpt_merged *m, const struct gpt_adapter *a,
                        struct gpt_err *err)
{
    bool equal;

    GPT_TRY(gpt_tensor_equal(
        &equal, &m->tensors[find_role(m, GPT_WORD_EMBEDDING)],
        &m->tensors[find_role(m, GPT_OUTPUT_WEIGHT)], err));
    if (!equal) {
        gpt_warn("%s: embedding and output layer of the model %s share a "
                 "table; the adapter has one of its own for one of them: they "
                 "are no longer tied", a->dir, m->s->dir);
        return GPT_OK;
    }
    m->config.tied_embeddings = true;
    return rebuild(m, err);
}

/* ---- the numbers ---- */

/* A number that is none would spread over all that it is merged into. */
static int check_numbers(const struct gpt_adapter *a,
                         const struct gpt_safetensor *st, float *block,
                         struct gpt_err *err)
{
    const int64_t columns = st->ndim > 1 ? st->shape[1] : 1;
    const int64_t most = CHECK_BYTES / (int64_t)sizeof(*block);
    const int64_t width = gpt_min_i64(columns, most);
    const int64_t rows = gpt_min_i64(st->shape[0], most / width);
    struct gpt_tensor t = {0};
    int status = take_entry(&t, a, st, err);

    for (int64_t i = 0; status == GPT_OK && i < st->shape[0]; i += rows)
        for (int64_t j = 0; status == GPT_OK && j < columns; j += width) {
            const int64_t at[GPT_TENSOR_DIMS] = {i, j};
            const int64_t box[GPT_TENSOR_DIMS] = {
                gpt_min_i64(rows, st->shape[0] - i),
                gpt_min_i64(width, columns - j)};
            bool finite = true;

            status = gpt_tensor_gather(&t, at, box, GPT_F32, block, err);
            for (int64_t k = 0; status == GPT_OK && k < box[0] * box[1]; k++)
                finite &= isfinite(block[k]) != 0;
            if (!finite)
                status = gpt_fail(err, GPT_EDATA, "%s/%s: tensor '%.200s' has "
                                  "numbers that are not finite, in rows %lld "
                                  "to %lld", a->dir, a->file, st->name,
                                  (long long)i, (long long)(i + box[0] - 1));
        }
    gpt_tensor_free(&t);
    return status;
}

static int check_all_numbers(const struct gpt_adapter *a, struct gpt_err *err)
{
    float *block;
    int status = GPT_OK;

    GPT_TRY(gpt_new(&block, CHECK_BYTES, 1, "an adapter", err));
    for (int64_t i = 0; status == GPT_OK && i < a->n; i++)
        status = check_numbers(a, a->entries[i].tensor, block, err);
    gpt_free(block);
    return status;
}

/* ---- all ---- */

static int merge_one(struct gpt_merged *m, struct gpt_adapter *a,
                     int64_t divisible_by, int64_t tp_size, struct gpt_err *err)
{
    bool untied;

    GPT_TRY(check_all_numbers(a, err));
    GPT_TRY(settle_ties(m, a, &untied, err));
    GPT_TRY(settle_vocabulary(m, a, divisible_by, tp_size, err));
    for (int64_t i = 0, end; i < a->n; i = end) {
        end = i + 1;
        while (end < a->n &&
               strcmp(a->entries[end].module, a->entries[i].module) == 0)
            end++;
        GPT_TRY(merge_module(m, a, i, end, err));
    }
    return untied ? settle_again(m, a, err) : GPT_OK;
}

/* The merged model is no step of a run: what is kept is what its texts are made
 * of. */
static int keep_state(struct gpt_merged *m, struct gpt_err *err)
{
    const cJSON *tokenizer = cJSON_GetObjectItemCaseSensitive(
        m->s->state, GPT_RUN_TOKENIZER);

    if (tokenizer) {
        m->state = gpt_run_state_make(0, 0, 0);
        cJSON_AddStringToObject(m->state, GPT_RUN_CONVERTED,
                                m->s->format->title);
        gpt_run_state_put_tokens(m->state, m->s->bos_token_id,
                                 m->s->eos_token_id, &m->s->ends);
        gpt_run_state_put_family(m->state, m->s->family);
        gpt_json_add(m->state, GPT_RUN_TOKENIZER,
                     cJSON_Duplicate(tokenizer, true));
        if (gpt_json_out_of_memory())
            return gpt_no_memory(err, "the state of a run");
    }
    m->s->state = m->state;
    m->s->iteration = 0;
    return GPT_OK;
}

static int open_all(struct gpt_merged *m, const struct gpt_list *dirs,
                    struct gpt_err *err)
{
    const char **names =
        gpt_arena_alloc(&m->arena, (size_t)dirs->n, sizeof(*names));

    if (!names)
        return gpt_no_memory(err, "adapters");
    GPT_TRY(gpt_new(&m->adapters, (size_t)dirs->n, sizeof(*m->adapters),
                    "adapters", err));
    for (int64_t i = 0; i < dirs->n; i++) {
        m->n_adapters++;
        GPT_TRY(gpt_adapter_open(&m->adapters[i], dirs->items[i], err));
        names[i] = m->adapters[i].dir;
        m->s->weight_bytes += gpt_in_size(m->adapters[i].weights.in);
    }
    m->s->adapters = names;
    m->s->n_adapters = dirs->n;
    return GPT_OK;
}

int gpt_adapters_merge(struct gpt_source *s, const struct gpt_list *dirs,
                       int64_t divisible_by, int64_t tp_size,
                       struct gpt_err *err)
{
    struct gpt_merged *m;

    GPT_TRY(gpt_new(&m, 1, sizeof(*m), "adapters", err));
    s->merged = m;
    m->s = s;
    m->config = s->config;
    GPT_TRY(open_all(m, dirs, err));
    m->family = s->family ? gpt_hf_family_find(s->family, NULL) : NULL;
    GPT_TRY(gpt_hf_choose_family(&m->config, &m->family, err));
    GPT_TRY(rebuild(m, err));
    for (int64_t i = 0; i < m->n_adapters; i++)
        GPT_TRY(merge_one(m, &m->adapters[i], divisible_by, tp_size, err));
    GPT_TRY(keep_state(m, err));
    s->config = m->config;
    s->tensors = m->tensors;
    s->n_tensors = m->table.n;
    return GPT_OK;
}
