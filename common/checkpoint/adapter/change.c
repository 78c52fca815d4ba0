/* Changing one tensor as transformers has it; see internal.h. A tensor of the
 * source is shown by the family's rule (gpt_hf_export()), changed there, and
 * taken back (gpt_hf_import()). Nothing is read: the pieces know what is added
 * to them. Start at gpt_change_all(). */
#include "checkpoint/adapter/internal.h"
#include "checkpoint/safetensors/entry.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Both shapes as they are in their files. */
static int fail_of_shape(const struct gpt_adapter *a,
                         const struct gpt_safetensor *t, const char *name,
                         const struct gpt_tensor *there, struct gpt_err *err)
{
    char own[64], theirs[64];

    snprintf(own, sizeof(own), t->ndim > 1 ? "%lld x %lld" : "%lld",
             (long long)t->shape[0], (long long)t->shape[1]);
    snprintf(theirs, sizeof(theirs), there->ndim > 1 ? "%lld x %lld" : "%lld",
             (long long)there->shape[0], (long long)there->shape[1]);
    gpt_fail(err, GPT_EDATA,
             "%s/%s: tensor '%.200s' is %s, and '%.200s' of the "
             "model is %s",
             a->dir, a->file, t->name, own, name, theirs);
    return gpt_hint(err, "an adapter is merged into the model that it was "
                         "trained with; gpt-reshape inspect shows which that "
                         "was");
}

/* All of an entry as a tensor with pieces. */
int gpt_change_take(struct gpt_tensor *t, const struct gpt_adapter *a,
                    const struct gpt_safetensor *st, struct gpt_err *err)
{
    *t = gpt_tensor_make(st->name, st->dtype, st->ndim, st->shape);
    return gpt_stored_add(t, a->weights.in, st, err);
}

/* ---- changing a tensor there ---- */

/* One tensor of the parameter: changed where it is that of the place, and taken
 * into `now` in any case. */
static int change_part(struct gpt_merged *m, const struct gpt_place *place,
                       const struct gpt_hf_rule *rule, int64_t part,
                       struct gpt_tensor *now, gpt_change_function *function,
                       void *context, struct gpt_err *err)
{
    const struct gpt_param *p = &m->table.rows[place->param];
    const struct gpt_tensor *t = &m->tensors[place->param];
    int64_t shape[GPT_HF_DIMS];

    gpt_hf_shape(&m->config, rule, p, shape);
    struct gpt_tensor there =
        gpt_tensor_make(place->name, t->dtype, gpt_hf_ndim(rule, p), shape);
    int status = gpt_hf_export(&there, t, &m->config, rule, p, part, err);
    if (status == GPT_OK && rule == place->rule && part == place->part)
        status = function(m, &there, place, context, err);
    if (status == GPT_OK)
        status = gpt_hf_import(now, &there, &m->config, rule, p, part, err);
    gpt_tensor_free(&there);
    return status;
}

/* One parameter whose part at the place is changed; its other parts are shown
 * and taken back as they are. */
static int change_param(struct gpt_merged *m, const struct gpt_place *place,
                        gpt_change_function *function, void *context,
                        struct gpt_err *err)
{
    const struct gpt_param *p = &m->table.rows[place->param];
    struct gpt_tensor *t = &m->tensors[place->param];
    struct gpt_tensor now =
        gpt_tensor_make(t->name, t->dtype, t->ndim, t->shape);
    const struct gpt_hf_rule *rule;
    size_t at = 0;
    int status = GPT_OK;

    /* parts that are not changed are shown and taken back, too, as a parameter
     * is made of all of them */
    while (status == GPT_OK && (rule = gpt_hf_next_rule(m->family, p, &at)))
        for (int64_t i = 0; status == GPT_OK && i < gpt_hf_parts(rule, p); i++)
            status = change_part(m, place, rule, i, &now, function, context,
                                 err);
    if (status != GPT_OK) {
        gpt_tensor_free(&now);
        return status;
    }
    gpt_tensor_free(t);
    *t = now;
    return GPT_OK;
}

/* A tensor of a gate and of what it gates is two parameters: the places of one
 * name follow each other. */
int gpt_change_all(struct gpt_merged *m, const struct gpt_place *place,
                   gpt_change_function *function, void *context,
                   struct gpt_err *err)
{
    const struct gpt_place *end = m->places + m->n_places;

    for (const struct gpt_place *p = place;
         p < end && strcmp(p->name, place->name) == 0; p++)
        GPT_TRY(change_param(m, p, function, context, err));
    return GPT_OK;
}

/* A whole tensor in the place of the model's. */
int gpt_change_whole(struct gpt_merged *m, struct gpt_tensor *there,
                     const struct gpt_place *place, void *context,
                     struct gpt_err *err)
{
    const struct gpt_change *from = context;
    const struct gpt_safetensor *st = from->entry->tensor;

    enum gpt_dtype type = there->dtype;

    if (st->ndim != there->ndim || st->shape[0] != there->shape[0] ||
        (st->ndim > 1 && st->shape[1] != there->shape[1]))
        return fail_of_shape(from->adapter, st, place->name, there, err);
    if (there->n)
        type = there->pieces[0].merge ? there->pieces[0].merge->kept
                                      : there->pieces[0].dtype;
    /* the type that the model has here, which other parts may not share */
    there->n = 0;
    GPT_TRY(gpt_stored_add(there, from->adapter->weights.in, st, err));
    return gpt_merge_round(there, type, &m->arena, err);
}

/* ---- products ---- */

/* A product of the tensor `st` of an adapter. Products are freed with what was
 * merged, whether they are complete or not. */
static int new_product(struct gpt_merged *m, struct gpt_product **p,
                       const struct gpt_change *from,
                       const struct gpt_safetensor *st, struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&m->products, &m->cap_products, m->n_products + 1,
                     sizeof(struct gpt_product *), "adapters", err));
    *p = gpt_arena_alloc(&m->arena, 1, sizeof(**p));
    if (!*p)
        return gpt_no_memory(err, "adapters");
    m->products[m->n_products++] = *p;
    (*p)->scale = from->scale;
    (*p)->what = gpt_arena_printf(&m->arena, "%s/%s: '%s'", from->adapter->dir,
                                  from->adapter->file, st->name);
    return (*p)->what ? GPT_OK : gpt_no_memory(err, "adapters");
}

/* Adds a product, whose factors are set, to the tensor at a place. */
static int add_product(struct gpt_merged *m, struct gpt_product *p,
                       struct gpt_tensor *there, const struct gpt_place *place,
                       struct gpt_err *err)
{
    GPT_TRY(gpt_product_make(p, there, err));
    p->base.name = gpt_arena_strdup(&m->arena, place->name);
    return p->base.name ? gpt_merge_pieces(there, p, &m->arena, err)
                        : gpt_no_memory(err, "adapters");
}

/* The factors as the model's tensor has its dimensions. Of a Linear, (out, in),
 * they are B and A; of a Conv1D, (in, out), and of an embedding, (ids, hidden),
 * A and B transposed. */
static int set_factors(struct gpt_product *p, const struct gpt_change *from,
                       bool turned, struct gpt_err *err)
{
    struct gpt_tensor a = {0}, b = {0};
    int status;

    GPT_TRY_GOTO(status, gpt_change_take(&a, from->adapter, from->a, err), out);
    GPT_TRY_GOTO(status, gpt_change_take(&b, from->adapter, from->b, err), out);
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

/* The rank is compared before, with what the configuration says. */
static int check_factors(const struct gpt_change *from,
                         const struct gpt_tensor *there,
                         const struct gpt_place *place, bool turned,
                         struct gpt_err *err)
{
    const int64_t in = there->shape[!turned], out = there->shape[turned];

    if (there->ndim != 2 || from->a->ndim != 2 || from->a->shape[1] != in)
        return fail_of_shape(from->adapter, from->a, place->name, there, err);
    if (from->b->ndim != 2 || from->b->shape[0] != out)
        return fail_of_shape(from->adapter, from->b, place->name, there, err);
    if (from->lengths &&
        (from->lengths->ndim != 1 || from->lengths->shape[0] != out))
        return fail_of_shape(from->adapter, from->lengths, place->name, there,
                             err);
    return GPT_OK;
}

/* An embedding's product is rounded before it is added, and others are not:
 * that is how peft has it. */
int gpt_change_sum(struct gpt_merged *m, struct gpt_tensor *there,
                   const struct gpt_place *place, void *context,
                   struct gpt_err *err)
{
    const struct gpt_change *from = context;
    const bool turned =
        from->embedding ||
        gpt_hf_is_transposed(place->rule, &m->table.rows[place->param]);
    struct gpt_product *p;

    GPT_TRY(check_factors(from, there, place, turned, err));
    GPT_TRY(new_product(m, &p, from, from->a, err));
    p->rounds = from->embedding && !from->lengths;
    p->out_rows = !turned;
    GPT_TRY(set_factors(p, from, turned, err));
    if (from->lengths)
        GPT_TRY(
            gpt_change_take(&p->lengths, from->adapter, from->lengths, err));
    return add_product(m, p, there, place, err);
}

/* A vector is a matrix of one column, and its product that with a one. */
int gpt_change_bias(struct gpt_merged *m, struct gpt_tensor *there,
                    const struct gpt_place *place, void *context,
                    struct gpt_err *err)
{
    const struct gpt_change *from = context;
    const struct gpt_safetensor *st = from->entry->tensor;
    struct gpt_product *p;

    if (st->ndim != 1 || there->ndim != 1 || st->shape[0] != there->shape[0])
        return fail_of_shape(from->adapter, st, place->name, there, err);
    GPT_TRY(new_product(m, &p, from, st, err));
    GPT_TRY(gpt_change_take(&p->left, from->adapter, st, err));
    p->left.ndim = 2;
    p->left.shape[1] = 1;
    for (size_t i = 0; i < p->left.n; i++)
        p->left.pieces[i].shape[1] = 1;
    return add_product(m, p, there, place, err);
}

/* ---- rows of tokens ---- */

/* Pairs, by their first number. */
static int by_id(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Pairs of an id and its row in the adapter, by id. */
static int read_ids(const struct gpt_change *from, int64_t (*ids)[2], int64_t n,
                    int64_t vocab, struct gpt_err *err)
{
    const struct gpt_adapter *a = from->adapter;
    const cJSON *item;
    int64_t i = 0;

    cJSON_ArrayForEach(item, from->ids)
    {
        const double id = cJSON_IsNumber(item) ? item->valuedouble : -1;

        if (!(id >= 0 && id < (double)vocab && floor(id) >= id))
            return gpt_fail(err, GPT_EDATA,
                            "%s/%s: trainable_token_indices "
                            "has something else than ids below %lld",
                            a->dir, GPT_HF_ADAPTER, (long long)vocab);
        if (i < n) {
            ids[i][0] = (int64_t)id;
            ids[i][1] = i;
        }
        i++;
    }
    if (i != n)
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: tensor '%.150s' has %lld rows, "
                        "for %lld ids of trainable_token_indices",
                        a->dir, a->file, from->entry->tensor->name,
                        (long long)n, (long long)i);
    qsort(ids, (size_t)n, sizeof(*ids), by_id);
    for (i = 1; i < n; i++)
        if (ids[i][0] == ids[i - 1][0])
            return gpt_fail(err, GPT_EDATA,
                            "%s/%s: trainable_token_indices "
                            "has id %lld twice",
                            a->dir, GPT_HF_ADAPTER, (long long)ids[i][0]);
    return GPT_OK;
}

/* Rows [to, to + n) of `out` are rows [from, from + n) of `in`. */
static int show_rows(struct gpt_tensor *out, const struct gpt_tensor *in,
                     int64_t to, int64_t from, int64_t n, struct gpt_err *err)
{
    const struct gpt_map map = {.to = {to},
                                .from = {from},
                                .shape = {n, out->shape[1]},
                                .perm = {0, 1, 2, 3}};

    /* between ids that are neighbours there are none */
    return n > 0 ? gpt_tensor_view(out, in, &map, 1, err) : GPT_OK;
}

/* Rows of the model are shown between those of the adapter, which cut them into
 * stretches. */
int gpt_change_rows(struct gpt_merged *m, struct gpt_tensor *there,
                    const struct gpt_place *place, void *context,
                    struct gpt_err *err)
{
    const struct gpt_change *from = context;
    const struct gpt_safetensor *st = from->entry->tensor;
    struct gpt_tensor rows = {0};
    struct gpt_tensor now =
        gpt_tensor_make(there->name, there->dtype, 2, there->shape);
    const int64_t n = st->shape[0];
    int64_t (*ids)[2] = NULL, at = 0;
    int status;

    (void)m;
    if (st->ndim != 2 || there->ndim != 2 || st->shape[1] != there->shape[1])
        return fail_of_shape(from->adapter, st, place->name, there, err);
    GPT_TRY(gpt_new(&ids, (size_t)n, sizeof(*ids), "ids", err));
    GPT_TRY_GOTO(status, read_ids(from, ids, n, there->shape[0], err), out);
    GPT_TRY_GOTO(status, gpt_change_take(&rows, from->adapter, st, err), out);
    for (int64_t i = 0; i < n; at = ids[i++][0] + 1) {
        GPT_TRY_GOTO(status,
                     show_rows(&now, there, at, at, ids[i][0] - at, err), out);
        GPT_TRY_GOTO(status,
                     show_rows(&now, &rows, ids[i][0], ids[i][1], 1, err), out);
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
