/* The rows of the parameter table, and what a rank holds of them. Start at
 * `kinds`: it is the architecture. */
#include "model/params.h"

#include "base/memory.h"
#include "base/num.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Which size of the model a dimension is. */
enum size { ONE, CHANNELS, QKV, HEADS, FFN, VOCAB, POSITIONS };

struct kind {
    enum gpt_param_role role;
    enum gpt_param_place place;
    const char *name; /* after "decoder.layers.N." in a layer */
    enum size rows, columns; /* columns ONE: a vector */
    int split_dim;
    enum gpt_param_init init;
    bool sequence_sum;
};

#define EMBEDDING GPT_PLACE_EMBEDDING
#define LAYER GPT_PLACE_LAYER
#define FINAL GPT_PLACE_FINAL

/* GPT-2, in order of the forward pass; absent() says what variants lack. */
static const struct kind kinds[] = {
    {GPT_WORD_EMBEDDING, EMBEDDING, "embedding.word_embeddings.weight", VOCAB,
     CHANNELS, 0, GPT_INIT_NORMAL, false},
    {GPT_POSITION_EMBEDDING, EMBEDDING, "embedding.position_embeddings.weight",
     POSITIONS, CHANNELS, -1, GPT_INIT_NORMAL, false},
    {GPT_NORM1_WEIGHT, LAYER, "input_layernorm.weight", CHANNELS, ONE, -1,
     GPT_INIT_ONE, true},
    {GPT_NORM1_BIAS, LAYER, "input_layernorm.bias", CHANNELS, ONE, -1,
     GPT_INIT_ZERO, true},
    {GPT_QKV_WEIGHT, LAYER, "self_attention.linear_qkv.weight", QKV, CHANNELS,
     0, GPT_INIT_NORMAL, false},
    {GPT_QKV_BIAS, LAYER, "self_attention.linear_qkv.bias", QKV, ONE, 0,
     GPT_INIT_ZERO, false},
    {GPT_PROJ_WEIGHT, LAYER, "self_attention.linear_proj.weight", CHANNELS,
     HEADS, 1, GPT_INIT_NORMAL_OUTPUT, false},
    {GPT_PROJ_BIAS, LAYER, "self_attention.linear_proj.bias", CHANNELS, ONE, -1,
     GPT_INIT_ZERO, true},
    {GPT_NORM2_WEIGHT, LAYER, "pre_mlp_layernorm.weight", CHANNELS, ONE, -1,
     GPT_INIT_ONE, true},
    {GPT_NORM2_BIAS, LAYER, "pre_mlp_layernorm.bias", CHANNELS, ONE, -1,
     GPT_INIT_ZERO, true},
    {GPT_FC1_WEIGHT, LAYER, "mlp.linear_fc1.weight", FFN, CHANNELS, 0,
     GPT_INIT_NORMAL, false},
    {GPT_FC1_BIAS, LAYER, "mlp.linear_fc1.bias", FFN, ONE, 0, GPT_INIT_ZERO,
     false},
    {GPT_FC2_WEIGHT, LAYER, "mlp.linear_fc2.weight", CHANNELS, FFN, 1,
     GPT_INIT_NORMAL_OUTPUT, false},
    {GPT_FC2_BIAS, LAYER, "mlp.linear_fc2.bias", CHANNELS, ONE, -1,
     GPT_INIT_ZERO, true},
    {GPT_FINAL_NORM_WEIGHT, FINAL, "decoder.final_layernorm.weight", CHANNELS,
     ONE, -1, GPT_INIT_ONE, true},
    {GPT_FINAL_NORM_BIAS, FINAL, "decoder.final_layernorm.bias", CHANNELS, ONE,
     -1, GPT_INIT_ZERO, true},
    {GPT_OUTPUT_WEIGHT, FINAL, "output_layer.weight", VOCAB, CHANNELS, 0,
     GPT_INIT_NORMAL, false},
};

static int64_t size_of(const struct gpt_config *c, enum size s)
{
    switch (s) {
    case ONE:
        return 1;
    case CHANNELS:
        return c->hidden_size;
    case QKV:
        return (c->num_attention_heads + 2 * c->num_query_groups) *
               c->head_size;
    case HEADS:
        return c->num_attention_heads * c->head_size;
    case FFN:
        return c->ffn_hidden_size;
    case VOCAB:
        return c->padded_vocab_size;
    case POSITIONS:
        return c->max_positions;
    }
    return 0;
}

static void fill_row(struct gpt_param *p, const struct kind *k, int64_t layer,
                     const struct gpt_config *c)
{
    *p = (struct gpt_param){
        .role = k->role,
        .place = k->place,
        .layer = layer,
        .ndim = k->columns == ONE ? 1 : 2,
        .shape = {size_of(c, k->rows), size_of(c, k->columns)},
        .split_dim = k->split_dim,
        .vocab_rows = k->rows == VOCAB,
        .decay = k->columns != ONE,
        .tied = k->role == GPT_WORD_EMBEDDING && c->tied_embeddings,
        .sequence_sum = k->sequence_sum,
        .init = k->init,
    };
    if (layer < 0)
        snprintf(p->name, sizeof(p->name), "%s", k->name);
    else
        snprintf(p->name, sizeof(p->name), "decoder.layers.%lld.%s",
                 (long long)layer, k->name);
}

static bool absent(const struct gpt_config *c, enum gpt_param_role role)
{
    return (role == GPT_OUTPUT_WEIGHT && c->tied_embeddings) ||
           (role == GPT_POSITION_EMBEDDING &&
            c->position_embedding != GPT_POSITION_LEARNED);
}

/* Rows of one place (and layer) appended to the table. */
static void add_rows(struct gpt_param_table *t, const struct gpt_config *c,
                     enum gpt_param_place place, int64_t layer)
{
    for (size_t i = 0; i < GPT_COUNT(kinds); i++) {
        const struct kind *k = &kinds[i];

        if (k->place == place && !absent(c, k->role))
            fill_row(&t->rows[t->n++], k, layer, c);
    }
}

int gpt_params_build(struct gpt_param_table *t, const struct gpt_config *c,
                     struct gpt_err *err)
{
    *t = (struct gpt_param_table){0};
    size_t most = GPT_COUNT(kinds) * (size_t)(c->num_layers + 2);
    GPT_TRY(gpt_new(&t->rows, most, sizeof(t->rows[0]), "parameter table",
                    err));
    add_rows(t, c, GPT_PLACE_EMBEDDING, -1);
    for (int64_t l = 0; l < c->num_layers; l++)
        add_rows(t, c, GPT_PLACE_LAYER, l);
    add_rows(t, c, GPT_PLACE_FINAL, -1);
    return GPT_OK;
}

void gpt_params_free(struct gpt_param_table *t)
{
    gpt_free(t->rows);
    *t = (struct gpt_param_table){0};
}

const struct gpt_param *gpt_params_find(const struct gpt_param_table *t,
                                        const char *name)
{
    for (int64_t i = 0; i < t->n; i++)
        if (strcmp(t->rows[i].name, name) == 0)
            return &t->rows[i];
    return NULL;
}

int64_t gpt_param_count(const struct gpt_param *p)
{
    return p->shape[0] * p->shape[1];
}

struct gpt_layout gpt_layout_even(const struct gpt_config *c, int64_t tp_size,
                                  int64_t tp_rank, int64_t pp_size,
                                  int64_t pp_rank)
{
    int64_t layers = c->num_layers / pp_size;

    return (struct gpt_layout){
        .size = {[GPT_TP] = tp_size, [GPT_DP] = 1, [GPT_PP] = pp_size},
        .at = {[GPT_TP] = tp_rank, [GPT_PP] = pp_rank},
        .chunks = 1,
        .chunk = {{pp_rank * layers, layers}},
        .has_embedding = pp_rank == 0,
        .has_output = pp_rank == pp_size - 1,
        .shards = 1,
    };
}

int gpt_layout_init(struct gpt_layout *layout, const struct gpt_config *c,
                    const struct gpt_topology *t, int64_t first, int64_t last,
                    struct gpt_err *err)
{
    const int64_t stage = t->at[GPT_PP];

    *layout = (struct gpt_layout){
        .chunks = t->chunks,
        .has_embedding = stage == 0,
        .has_output = stage == t->size[GPT_PP] - 1,
        .shards = 1,
    };
    memcpy(layout->size, t->size, sizeof(layout->size));
    memcpy(layout->at, t->at, sizeof(layout->at));
    if (t->chunks > GPT_MAX_CHUNKS)
        return gpt_fail(err, GPT_EUSAGE, "%lld virtual chunks a stage: at most "
                        "%d", (long long)t->chunks, GPT_MAX_CHUNKS);
    GPT_TRY(gpt_layout_check(c, t->size[GPT_TP], 1, err));
    for (int64_t i = 0; i < t->chunks; i++)
        GPT_TRY(gpt_topology_layers(t, c->num_layers, first, last, stage,
                                    i, &layout->chunk[i].first_layer,
                                    &layout->chunk[i].n_layers, err));
    return GPT_OK;
}

int gpt_layout_check(const struct gpt_config *c, int64_t tp_size,
                     int64_t pp_size, struct gpt_err *err)
{
    const struct {
        const char *name;
        int64_t value, by;
        const char *by_name;
    } rules[] = {
        {"num_layers", c->num_layers, pp_size, "pipeline"},
        {"num_attention_heads", c->num_attention_heads, tp_size, "tensor"},
        {"num_query_groups", c->num_query_groups, tp_size, "tensor"},
        {"ffn_hidden_size", c->ffn_hidden_size, tp_size, "tensor"},
        {"padded_vocab_size", c->padded_vocab_size, tp_size, "tensor"},
    };

    for (size_t i = 0; i < GPT_COUNT(rules); i++)
        if (rules[i].by < 1 || rules[i].value % rules[i].by != 0)
            return gpt_fail(err, GPT_EUSAGE,
                            "%s (%lld) does not divide by the %s model "
                            "parallel size (%lld)",
                            rules[i].name, (long long)rules[i].value,
                            rules[i].by_name, (long long)rules[i].by);
    return GPT_OK;
}

static bool holds_layer(const struct gpt_layout *layout, int64_t layer)
{
    for (int64_t i = 0; i < layout->chunks; i++) {
        const struct gpt_layer_range *chunk = &layout->chunk[i];

        if (layer >= chunk->first_layer &&
            layer < chunk->first_layer + chunk->n_layers)
            return true;
    }
    return false;
}

static bool held(const struct gpt_param *p, const struct gpt_layout *layout,
                 bool *copy)
{
    *copy = false;
    switch (p->place) {
    case GPT_PLACE_EMBEDDING:
        *copy = !layout->has_embedding && layout->has_output && p->tied;
        return layout->has_embedding || *copy;
    case GPT_PLACE_LAYER:
        return holds_layer(layout, p->layer);
    case GPT_PLACE_FINAL:
        return layout->has_output;
    }
    return false;
}

static void cut(struct gpt_slice *s, const struct gpt_layout *layout)
{
    for (int d = 0; d < GPT_PARAM_DIMS; d++) {
        s->shape[d] = s->param->shape[d];
        if (d == s->param->split_dim) {
            s->shape[d] /= layout->size[GPT_TP];
            s->begin[d] = s->shape[d] * layout->at[GPT_TP];
        }
    }
    s->count = s->shape[0] * s->shape[1];
}

/* Pads the last bucket to whole shards. */
static void close_bucket(struct gpt_flat *f)
{
    struct gpt_bucket *b = f->buckets + f->n_buckets - 1;

    b->end = b->begin + gpt_round_up(b->end - b->begin, 64 * f->shards);
    f->elements = b->end;
}

/* Appends a slice to the last bucket, or to a new one. */
static void append(struct gpt_flat *f, struct gpt_slice s)
{
    struct gpt_bucket *b = f->buckets + f->n_buckets - 1;

    if (f->n_buckets == 0 || b->layer != s.param->layer) {
        b = f->buckets + f->n_buckets++;
        b->layer = s.param->layer;
        b->begin = f->elements;
        b->first_slice = f->n;
        b->group = GPT_GROUP_DP;
    }
    s.bucket = b - f->buckets;
    s.offset = f->elements;
    f->slices[f->n++] = s;
    f->count += s.count;
    f->elements += gpt_round_up(s.count, 64);
    b->end = f->elements;
    b->end_slice = f->n;
}

int gpt_flat_build(struct gpt_flat *f, const struct gpt_param_table *t,
                   const struct gpt_layout *layout, struct gpt_err *err)
{
    *f = (struct gpt_flat){.shards = gpt_max_i64(layout->shards, 1),
                           .shard = layout->shard};
    GPT_TRY(gpt_new(&f->slices, (size_t)t->n, sizeof(f->slices[0]),
                    "parameter slices", err));
    GPT_TRY(gpt_new(&f->buckets, (size_t)t->n, sizeof(f->buckets[0]),
                    "parameter slices", err));
    for (int64_t i = 0; i < t->n; i++) {
        struct gpt_slice s = {.param = &t->rows[i]};

        if (!held(s.param, layout, &s.copy))
            continue;
        cut(&s, layout);
        if (f->n > 0 && f->slices[f->n - 1].param->layer != s.param->layer)
            close_bucket(f);
        append(f, s);
    }
    close_bucket(f);
    return GPT_OK;
}

void gpt_flat_free(struct gpt_flat *f)
{
    gpt_free(f->buckets);
    gpt_free(f->slices);
    *f = (struct gpt_flat){0};
}

void gpt_bucket_shard(const struct gpt_flat *f, int64_t bucket, int64_t shard,
                      int64_t *begin, int64_t *end)
{
    const struct gpt_bucket *b = &f->buckets[bucket];
    int64_t n = (b->end - b->begin) / f->shards;

    *begin = b->begin + n * shard;
    *end = *begin + n;
}

int64_t gpt_flat_compact(const struct gpt_flat *f)
{
    return f->elements / f->shards;
}

int64_t gpt_bucket_compact(const struct gpt_flat *f, int64_t bucket)
{
    return f->buckets[bucket].begin / f->shards;
}

const struct gpt_slice *gpt_flat_find(const struct gpt_flat *f,
                                      enum gpt_param_role role, int64_t layer)
{
    for (int64_t i = 0; i < f->n; i++) {
        const struct gpt_param *p = f->slices[i].param;

        if (p->role == role && p->layer == layer)
            return &f->slices[i];
    }
    return NULL;
}

static void init_normal(const struct gpt_slice *s, uint64_t seed, double std,
                        float *dst)
{
    char stream[GPT_PARAM_NAME + 8];

    snprintf(stream, sizeof(stream), "init/%s", s->param->name);
    struct gpt_rng rng = gpt_rng_open(seed, stream);
    int64_t columns = s->param->shape[1];
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < s->shape[0]; r++) {
        float *row = dst + r * s->shape[1];
        int64_t first = (s->begin[0] + r) * columns + s->begin[1];

        gpt_rng_normals(rng, (uint64_t)first, s->shape[1], row);
        for (int64_t k = 0; k < s->shape[1]; k++)
            row[k] = (float)(std * (double)row[k]);
    }
}

void gpt_param_init(const struct gpt_config *c, const struct gpt_slice *slice,
                    uint64_t seed, float *dst)
{
    switch (slice->param->init) {
    case GPT_INIT_ZERO:
    case GPT_INIT_ONE:
        for (int64_t i = 0; i < slice->count; i++)
            dst[i] = slice->param->init == GPT_INIT_ONE ? 1.0F : 0.0F;
        return;
    case GPT_INIT_NORMAL:
        init_normal(slice, seed, c->init_std, dst);
        return;
    case GPT_INIT_NORMAL_OUTPUT:
        init_normal(slice, seed,
                    c->init_std / sqrt(2.0 * (double)c->num_layers), dst);
        return;
    }
}
