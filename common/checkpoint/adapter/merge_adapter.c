/* Adapters become part of a source's tensors; see adapter.h. Start at
 * gpt_source_open_merged(): module after module of each adapter, its tensors
 * are what is done to the model's. */
#include "checkpoint/adapter/internal.h"

#include "base/log.h"
#include "base/num.h"
#include "checkpoint/format.h"
#include "checkpoint/run_state.h"

#include <math.h>
#include <string.h>

enum { CHECK_BYTES = 1 << 20 };

/* Tensors refer to products, and products to files of adapters. */
static void free_merged(struct gpt_merged *m)
{
    gpt_places_free_tensors(m->tensors, m->table.n);
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

/* ---- a module ---- */

/* Entries of a module by what they are; whole ones are not here. */
struct module {
    const struct gpt_adapter_entry *of[GPT_ADAPTER_KINDS];
};

/* Both layers that share a table get what one was trained to. */
static void warn_of_tie(const struct gpt_merged *m, const struct gpt_adapter *a,
                        const struct gpt_adapter_entry *e)
{
    gpt_warn("%s: '%s' is of a table that embedding and output layer of the "
             "model %s share: both get what is added, as with "
             "merge_and_unload() of peft, and the texts are not those of the "
             "adapter beside its model",
             a->dir, e->module, m->s->dir);
}

/* A and B are needed, and of DoRA lengths; without these it would be another
 * function. The rank is that of the configuration: a scale that was made for
 * another rank would be wrong. */
static int merge_product(struct gpt_merged *m, struct gpt_adapter *a,
                         const struct module *of, bool embedding,
                         struct gpt_err *err)
{
    const struct gpt_adapter_entry *x =
        of->of[embedding ? GPT_ADAPTER_EMBEDDING_A : GPT_ADAPTER_A];
    const struct gpt_adapter_entry *y =
        of->of[embedding ? GPT_ADAPTER_EMBEDDING_B : GPT_ADAPTER_B];
    const struct gpt_adapter_entry *lengths = of->of[GPT_ADAPTER_LENGTHS];
    const struct gpt_place *place;
    int64_t rank;
    double scale;

    if (!x || !y)
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: tensor '%.200s' lacks its other "
                        "half, that of %s",
                        a->dir, a->file, (x ? x : y)->tensor->name,
                        x ? "B" : "A");
    if (a->config.dora != (lengths != NULL))
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: tensor '%.200s' has %s beside it; %s says "
                        "use_dora %s",
                        a->dir, a->file, x->tensor->name,
                        lengths ? "a lora_magnitude_vector"
                                : "no lora_magnitude_vector",
                        GPT_HF_ADAPTER, a->config.dora ? "true" : "false");
    GPT_TRY(gpt_places_need(m, a, x, "weight", &place, err));
    GPT_TRY(gpt_adapter_scale(&a->config, x->module, &rank, &scale, err));
    if (x->tensor->shape[0] != rank ||
        (y->tensor->ndim > 1 && y->tensor->shape[1] != rank))
        return gpt_fail(
            err, GPT_EDATA,
            "%s/%s: tensors '%.150s' and '%.150s' "
            "are of rank %lld and %lld; %s says %lld",
            a->dir, a->file, x->tensor->name, y->tensor->name,
            (long long)x->tensor->shape[0],
            (long long)(y->tensor->ndim > 1 ? y->tensor->shape[1] : 1),
            GPT_HF_ADAPTER, (long long)rank);
    if (rank > GPT_MERGE_RANK)
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: tensor '%.200s' is of rank "
                        "%lld, limit %d",
                        a->dir, a->file, x->tensor->name, (long long)rank,
                        GPT_MERGE_RANK);
    if (place->tied || (m->config.tied_embeddings &&
                        m->table.rows[place->param].role == GPT_WORD_EMBEDDING))
        warn_of_tie(m, a, x);
    struct gpt_change from = {.adapter = a,
                              .entry = x,
                              .a = x->tensor,
                              .b = y->tensor,
                              .lengths = lengths ? lengths->tensor : NULL,
                              .embedding = embedding,
                              .scale = (float)scale};
    return gpt_change_all(m, place, gpt_change_sum, &from, err);
}

/* The bias of B is scaled like its product. peft merges it only where the model
 * has a bias, and so is it here. */
static int merge_bias(struct gpt_merged *m, struct gpt_adapter *a,
                      const struct gpt_adapter_entry *e, struct gpt_err *err)
{
    struct gpt_change from = {.adapter = a, .entry = e};
    const struct gpt_place *place;
    int64_t rank;
    double scale;

    GPT_TRY(gpt_places_need(m, a, e, "bias", &place, err));
    GPT_TRY(gpt_adapter_scale(&a->config, e->module, &rank, &scale, err));
    from.scale = (float)scale;
    return gpt_change_all(m, place, gpt_change_bias, &from, err);
}

/* The ids are a list, for the embedding, or a list for each module. */
static int merge_tokens(struct gpt_merged *m, struct gpt_adapter *a,
                        const struct gpt_adapter_entry *e, struct gpt_err *err)
{
    static const char key[] = "trainable_token_indices";
    struct gpt_change from = {.adapter = a, .entry = e};
    const struct gpt_place *place;

    from.ids = cJSON_GetObjectItemCaseSensitive(a->config.json, key);
    if (cJSON_IsObject(from.ids))
        (void)gpt_adapter_names(&a->config, key, e->module, &from.ids);
    if (!cJSON_IsArray(from.ids))
        return gpt_fail(err, GPT_EDATA, "%s/%s: no list '%s' for '%.200s'",
                        a->dir, GPT_HF_ADAPTER, key, e->module);
    GPT_TRY(gpt_places_need(m, a, e, "weight", &place, err));
    return gpt_change_all(m, place, gpt_change_rows, &from, err);
}

/* Whole tensors of all modules: peft loads them before anything is merged, and
 * what is merged is added to them. Two modules may have one table. */
static int take_wholes(struct gpt_merged *m, struct gpt_adapter *a,
                       struct gpt_err *err)
{
    const struct gpt_place *place;

    for (int64_t i = 0; i < a->n; i++) {
        struct gpt_change from = {.adapter = a, .entry = &a->entries[i]};

        if (from.entry->kind != GPT_ADAPTER_WHOLE)
            continue;
        GPT_TRY(
            gpt_places_need(m, a, from.entry, from.entry->leaf, &place, err));
        GPT_TRY(gpt_change_all(m, place, gpt_change_whole, &from, err));
    }
    return GPT_OK;
}

/* Entries [first, end) are those of a module, which has one adapter: of a
 * Linear, of an embedding, or of some tokens. */
static int merge_module(struct gpt_merged *m, struct gpt_adapter *a,
                        int64_t first, int64_t end, struct gpt_err *err)
{
    struct module of = {{NULL}};

    for (int64_t i = first; i < end; i++)
        of.of[a->entries[i].kind] = &a->entries[i];
    /* what belongs to a Linear, to an embedding, and to some of its rows */
    const bool linear = of.of[GPT_ADAPTER_A] || of.of[GPT_ADAPTER_B];
    const bool embedding =
        of.of[GPT_ADAPTER_EMBEDDING_A] || of.of[GPT_ADAPTER_EMBEDDING_B];
    if (linear + embedding + !!of.of[GPT_ADAPTER_TOKENS] > 1 ||
        (of.of[GPT_ADAPTER_LENGTHS] && !linear && !embedding))
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: the tensors for '%.200s' do not "
                        "go together",
                        a->dir, a->file, a->entries[first].module);
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
    const struct gpt_place *place;

    *entry = NULL;
    for (int64_t i = 0; i < a->n && !*entry; i++) {
        if (a->entries[i].kind != GPT_ADAPTER_WHOLE)
            continue;
        GPT_TRY(gpt_places_find(m, a->entries[i].module, a->entries[i].leaf,
                                &place, err));
        if (place && place->param == param && place->tied == tied)
            *entry = &a->entries[i];
    }
    return GPT_OK;
}

/* A table that is stored with other rows than the model has: then the model was
 * given another vocabulary, and the adapter has all that has a row an id. */
static int settle_vocabulary(struct gpt_merged *m, const struct gpt_adapter *a,
                             int64_t divisible_by, int64_t tp_size,
                             struct gpt_err *err)
{
    const struct gpt_adapter_entry *e;
    const int64_t word = gpt_places_role(m, GPT_WORD_EMBEDDING);

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
            return gpt_fail(err, GPT_EDATA,
                            "%s/%s: tensor '%.200s' has %lld "
                            "rows, the vocabulary of the model %lld; for its "
                            "'%s' the adapter has no rows",
                            a->dir, a->file, e->tensor->name, (long long)rows,
                            (long long)m->config.vocab_size,
                            m->table.rows[i].name);
    }
    /* said, as every output has other shapes than its input then */
    gpt_info("%s: the vocabulary gets %lld ids, as the adapter has them, in "
             "place of %lld",
             a->dir, (long long)rows, (long long)m->config.vocab_size);
    m->config.vocab_size = rows;
    m->config.padded_vocab_size = gpt_config_padded_vocab(
        rows, gpt_max_i64(divisible_by, 1), gpt_max_i64(tp_size, 1));
    return gpt_places_rebuild(m, err);
}

/* modules_to_save makes one of two tied layers a module of its own: peft trains
 * and merges it, and leaves the other as it was. What is stored for other
 * reasons is loaded into both. */
static int settle_ties(struct gpt_merged *m, const struct gpt_adapter *a,
                       bool *untied, struct gpt_err *err)
{
    const struct gpt_adapter_entry *in, *out;
    const int64_t word = gpt_places_role(m, GPT_WORD_EMBEDDING);
    const cJSON *item;

    *untied = false;
    if (!m->config.tied_embeddings || !gpt_hf_output_name(m->family))
        return GPT_OK;
    GPT_TRY(find_whole(m, a, word, false, &in, err));
    GPT_TRY(find_whole(m, a, word, true, &out, err));
    if (a->config.keeps_ties)
        return GPT_OK;
    *untied =
        (in && in->tensor->shape[0] == m->config.vocab_size &&
         gpt_adapter_names(&a->config, "modules_to_save", in->module, &item)) ||
        (out &&
         gpt_adapter_names(&a->config, "modules_to_save", out->module, &item));
    if (!*untied)
        return GPT_OK;
    m->config.tied_embeddings = false;
    return gpt_places_rebuild(m, err);
}

/* Both may have been stored although they are the same. */
static int settle_again(struct gpt_merged *m, const struct gpt_adapter *a,
                        struct gpt_err *err)
{
    bool equal;

    /* the tensors as they will be, which are read for this */
    GPT_TRY(gpt_tensor_equal(
        &equal, &m->tensors[gpt_places_role(m, GPT_WORD_EMBEDDING)],
        &m->tensors[gpt_places_role(m, GPT_OUTPUT_WEIGHT)], err));
    if (!equal) {
        gpt_warn("%s: embedding and output layer of the model %s share a "
                 "table; the adapter has one of its own for one of them: they "
                 "are no longer tied",
                 a->dir, m->s->dir);
        return GPT_OK;
    }
    m->config.tied_embeddings = true;
    return gpt_places_rebuild(m, err);
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
    int status = gpt_change_take(&t, a, st, err);

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
                status = gpt_fail(err, GPT_EDATA,
                                  "%s/%s: tensor '%.200s' has "
                                  "numbers that are not finite, in rows %lld "
                                  "to %lld",
                                  a->dir, a->file, st->name, (long long)i,
                                  (long long)(i + box[0] - 1));
        }
    gpt_tensor_free(&t);
    return status;
}

/* Before anything is planned: adapters are small, and a conversion that ends
 * halfway is not. What is finite here may still become infinite in a narrow
 * type, which is found when it is merged. */
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

/* What the vocabulary and the ties become is settled first, as the shapes of
 * the model's tensors follow from it. */
static int merge_one(struct gpt_merged *m, struct gpt_adapter *a,
                     int64_t divisible_by, int64_t tp_size, struct gpt_err *err)
{
    bool untied;

    GPT_TRY(check_all_numbers(a, err));
    GPT_TRY(settle_ties(m, a, &untied, err));
    GPT_TRY(settle_vocabulary(m, a, divisible_by, tp_size, err));
    GPT_TRY(take_wholes(m, a, err));
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
    const cJSON *tokenizer =
        cJSON_GetObjectItemCaseSensitive(m->s->state, GPT_RUN_TOKENIZER);

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

/* All are opened before one is merged: a mistyped name is found at once. */
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

/* The first error ends it: what was made by then belongs to the source. */
static int merge_all(struct gpt_source *s, const struct gpt_source_options *o,
                     const struct gpt_list *dirs, struct gpt_err *err)
{
    struct gpt_merged *m;

    GPT_TRY(gpt_new(&m, 1, sizeof(*m), "adapters", err));
    s->merged = m;
    s->free_merged = free_merged;
    m->s = s;
    m->config = s->config;
    /* names of the adapter would be those of other layers */
    if (s->counted_anew)
        return gpt_fail(err, GPT_EDATA, "%s: no adapter is merged into a model "
                        "of whose layers some are left out", s->at);
    GPT_TRY(open_all(m, dirs, err));
    m->family = s->family ? gpt_hf_family_find(s->family, NULL) : NULL;
    GPT_TRY(gpt_hf_choose_family(&m->config, &m->family, err));
    GPT_TRY(gpt_places_rebuild(m, err));
    for (int64_t i = 0; i < m->n_adapters; i++)
        GPT_TRY(
            merge_one(m, &m->adapters[i], o->divisible_by, o->tp_size, err));
    GPT_TRY(keep_state(m, err));
    s->config = m->config;
    s->tensors = m->tensors;
    s->n_tensors = m->table.n;
    return gpt_source_index(s, err);
}

/* Ranks that open a source together agree on the adapters, too. */
int gpt_source_open_merged(struct gpt_source *s, const char *path,
                           const struct gpt_source_options *options,
                           const struct gpt_list *adapters, struct gpt_err *err)
{
    struct gpt_source_options weights = {.iteration = -1};
    int status;

    if (!adapters || adapters->n == 0)
        return gpt_source_open(s, path, options, err);
    if (options)
        weights = *options;
    weights.optimizer = false;
    weights.weights_only = true;
    GPT_TRY(gpt_source_open(s, path, &weights, err));
    status = gpt_agreement_settle(
        weights.peers, merge_all(s, &weights, adapters, err), "", NULL, err);
    if (status != GPT_OK)
        gpt_source_close(s);
    return status;
}
