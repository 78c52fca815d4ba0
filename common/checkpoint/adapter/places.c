/* Which parameters an adapter's names mean; see internal.h. A model's tensors
 * have the names that transformers gives them, by the rules of its family: each
 * is a place. Start at gpt_places_rebuild(), which lists them. */
#include "checkpoint/adapter/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pieces alone: names belong to tables and sources. */
void gpt_places_free_tensors(struct gpt_tensor *tensors, int64_t n)
{
    for (int64_t i = 0; tensors && i < n; i++)
        gpt_tensor_free(&tensors[i]);
    gpt_free(tensors);
}

/* What transformers 5 calls every output layer, whatever files call it. */
static const char new_output[] = "lm_head.weight";

/* For sorting and for looking up. */
static int by_name(const void *a, const void *b)
{
    const struct gpt_place *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* One tensor of a parameter. The word table of a tied model has the name of the
 * output layer as well, which adapters may have for it. */
static int add_place(struct gpt_merged *m, const struct gpt_place *place,
                     size_t *cap, struct gpt_err *err)
{
    const struct gpt_param *p = &m->table.rows[place->param];
    const char *output = gpt_hf_output_name(m->family);
    const bool tied = p->role == GPT_WORD_EMBEDDING && output &&
                      m->config.tied_embeddings;
    const bool renamed =
        p->role == GPT_OUTPUT_WEIGHT && strcmp(output, new_output) != 0;

    GPT_TRY(gpt_grow(&m->places, cap, m->n_places + 2, sizeof(*m->places),
                     "names of tensors", err));
    struct gpt_place *to = &m->places[m->n_places];
    to[0] = *place;
    gpt_hf_name(to[0].name, GPT_PLACE_NAME, place->rule, p, place->part,
                m->family->prefix);
    m->n_places++;
    if (!tied && !renamed)
        return GPT_OK;
    to[1] = *place;
    to[1].tied = tied;
    snprintf(to[1].name, GPT_PLACE_NAME, "%s", tied ? output : new_output);
    m->n_places++;
    return GPT_OK;
}

/* All tensors that a parameter is in. */
static int add_places(struct gpt_merged *m, int64_t param, size_t *cap,
                      struct gpt_err *err)
{
    const struct gpt_param *p = &m->table.rows[param];
    struct gpt_place place = {.param = param};
    size_t at = 0;

    while ((place.rule = gpt_hf_next_rule(m->family, p, &at)))
        for (place.part = 0; place.part < gpt_hf_parts(place.rule, p);
             place.part++)
            GPT_TRY(add_place(m, &place, cap, err));
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
static const struct gpt_place *find_exact(const struct gpt_merged *m,
                                          const char *name)
{
    struct gpt_place key;
    const struct gpt_place *found;

    if (strlen(name) >= GPT_PLACE_NAME || m->n_places == 0)
        return NULL;
    snprintf(key.name, GPT_PLACE_NAME, "%s", name);
    found = bsearch(&key, m->places, m->n_places, sizeof(key), by_name);
    while (found && found > m->places && by_name(found - 1, found) == 0)
        found--;
    return found;
}

/* Three names are tried: the adapter's own, that of a text part, if it is one,
 * and the second of these behind the family's prefix. */
int gpt_places_find(struct gpt_merged *m, const char *module, const char *leaf,
                    const struct gpt_place **place, struct gpt_err *err)
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

/* The message names what the adapter wanted: it is of another model, or of
 * another class for it. */
int gpt_places_need(struct gpt_merged *m, const struct gpt_adapter *a,
                    const struct gpt_adapter_entry *e, const char *leaf,
                    const struct gpt_place **place, struct gpt_err *err)
{
    GPT_TRY(gpt_places_find(m, e->module, leaf, place, err));
    if (*place)
        return GPT_OK;
    gpt_fail(err, GPT_EDATA,
             "%s/%s: tensor '%.150s' is for '%.150s.%s', which "
             "the model %.150s does not have",
             a->dir, a->file, e->tensor->name, e->module, leaf, m->s->dir);
    return gpt_hint(err,
                    "the model is of model_type %s; an adapter is merged "
                    "into the model that it was trained with, and "
                    "gpt-reshape inspect shows which that was",
                    m->family->model_type);
}

/* ---- the model as it is now ---- */

/* Its pieces, which stay those of the other as well. */
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
    *t =
        old ? &m->tensors[old - m->table.rows] : gpt_source_find(m->s, p->name);
    return *t ? GPT_OK
              : gpt_fail(err, GPT_EDATA, "%s: no tensor '%s'", m->s->dir,
                         p->name);
}

/* Builds table and tensors of the configuration as it is now, out of those that
 * are there. Rows of a vocabulary that has another size now are zeros. */
int gpt_places_rebuild(struct gpt_merged *m, struct gpt_err *err)
{
    struct gpt_param_table table = {0};
    const struct gpt_tensor *t;
    struct gpt_tensor *tensors = NULL;
    int64_t done = 0;
    int status;

    GPT_TRY(gpt_params_build(&table, &m->config, err));
    GPT_TRY_GOTO(
        status,
        gpt_new(&tensors, (size_t)table.n, sizeof(*tensors), "tensors", err),
        fail);
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
    gpt_places_free_tensors(m->tensors, m->table.n);
    gpt_params_free(&m->table);
    /* names that others have kept are those of the new table */
    m->table = table;
    m->tensors = tensors;
    return list_places(m, err);
fail:
    gpt_places_free_tensors(tensors, done);
    gpt_params_free(&table);
    return status;
}

/* There is one of each outside of layers. */
int64_t gpt_places_role(const struct gpt_merged *m, enum gpt_param_role role)
{
    for (int64_t i = 0; i < m->table.n; i++)
        if (m->table.rows[i].role == role)
            return i;
    return -1;
}
