/* The rows of the parameter table, and what a rank holds of them. Start at
 * `kinds`: it is the architecture. Then gpt_flat_build() lays a rank's part out
 * in memory, and params_init.c fills it. */
#include "model/params.h"

#include "backend.h"
#include "base/memory.h"
#include "base/num.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Which size of the model a dimension is; geometry.h has the numbers. */
enum size { ONE, CHANNELS, HEAD, QKV, ATTENTION, FFN, VOCAB, POSITIONS };

struct kind {
    enum gpt_param_role role;
    enum gpt_param_place place;
    const char *name; /* after "decoder.layers.N." in a layer */
    enum size rows, columns; /* columns ONE: a vector */
    enum gpt_param_split split;
    enum gpt_param_init init;
    enum gpt_first_write first_write;
    bool sequence_sum, heads_sum;
    bool (*present)(const struct gpt_config *c); /* NULL: in every model */
};

/* ---- the column `present`: what variants do not have ---- */

static bool learns_positions(const struct gpt_config *c)
{
    return c->position_embedding == GPT_POSITION_LEARNED;
}

static bool is_untied(const struct gpt_config *c)
{
    return !c->tied_embeddings;
}

/* RMSNorm takes no mean away, and has nothing to put in its place. */
static bool has_norm_bias(const struct gpt_config *c)
{
    return c->normalization == GPT_LAYERNORM;
}

/* Blocks side by side may read the same normed rows (Falcon 7B). */
static bool has_norm2(const struct gpt_config *c)
{
    return !c->shared_norm;
}

static bool has_norm2_bias(const struct gpt_config *c)
{
    return has_norm2(c) && has_norm_bias(c);
}

static bool has_linear_bias(const struct gpt_config *c)
{
    return !c->no_linear_bias;
}

/* Qwen 2 has these biases and no others. */
static bool has_qkv_bias(const struct gpt_config *c)
{
    return has_linear_bias(c) || c->qkv_bias;
}

static bool has_qk_norm(const struct gpt_config *c) { return c->qk_norm; }
static bool has_gate(const struct gpt_config *c) { return c->gated; }

static bool has_qk_norm_bias(const struct gpt_config *c)
{
    return c->qk_norm && has_norm_bias(c);
}

/* Neighbours like their matrices, when the width is a multiple of 64. */
static bool has_gate_bias(const struct gpt_config *c)
{
    return c->gated && has_linear_bias(c);
}

/* ---- the table ---- */

/* A row begins with role, place, name and shape. Other columns are 0 unless
 * named: not split, zero, a gradient that is added to, no sums over ranks
 * beyond the usual, in every model. */
#define OUTSIDE(role, place, name, rows, columns) \
    GPT_##role, GPT_PLACE_##place, name, rows, columns
#define IN_LAYER(role, name, rows, columns) \
    GPT_##role, GPT_PLACE_LAYER, name, rows, columns

/* The decoders, in order of the forward pass.
 *
 * sequence_sum marks what every rank holds whole while sequence parallel ranks
 * compute its gradient from their own rows: norms, and biases that are added
 * after a sum. heads_sum marks norms of heads, of which every rank has its own.
 * The weights of residual blocks' outputs begin smaller, as each of them adds
 * to the stream. */
static const struct kind kinds[] = {
    {OUTSIDE(WORD_EMBEDDING, EMBEDDING, "embedding.word_embeddings.weight",
             VOCAB, CHANNELS),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_NORMAL,
     .first_write = GPT_FIRST_OUTPUT},
    {OUTSIDE(POSITION_EMBEDDING, EMBEDDING,
             "embedding.position_embeddings.weight", POSITIONS, CHANNELS),
     .init = GPT_INIT_NORMAL, .present = learns_positions},
    {IN_LAYER(NORM1_WEIGHT, "input_layernorm.weight", CHANNELS, ONE),
     .init = GPT_INIT_ONE, .sequence_sum = true},
    {IN_LAYER(NORM1_BIAS, "input_layernorm.bias", CHANNELS, ONE),
     .sequence_sum = true, .present = has_norm_bias},
    {IN_LAYER(QKV_WEIGHT, "self_attention.linear_qkv.weight", QKV, CHANNELS),
     .split = GPT_SPLIT_BY_GROUP, .init = GPT_INIT_NORMAL,
     .first_write = GPT_FIRST_PRODUCT},
    {IN_LAYER(QKV_BIAS, "self_attention.linear_qkv.bias", QKV, ONE),
     .split = GPT_SPLIT_BY_GROUP, .present = has_qkv_bias},
    {IN_LAYER(Q_NORM_WEIGHT, "self_attention.q_layernorm.weight", HEAD, ONE),
     .init = GPT_INIT_ONE, .heads_sum = true, .present = has_qk_norm},
    {IN_LAYER(Q_NORM_BIAS, "self_attention.q_layernorm.bias", HEAD, ONE),
     .heads_sum = true, .present = has_qk_norm_bias},
    {IN_LAYER(K_NORM_WEIGHT, "self_attention.k_layernorm.weight", HEAD, ONE),
     .init = GPT_INIT_ONE, .heads_sum = true, .present = has_qk_norm},
    {IN_LAYER(K_NORM_BIAS, "self_attention.k_layernorm.bias", HEAD, ONE),
     .heads_sum = true, .present = has_qk_norm_bias},
    {IN_LAYER(PROJ_WEIGHT, "self_attention.linear_proj.weight", CHANNELS,
              ATTENTION),
     .split = GPT_SPLIT_COLUMNS, .init = GPT_INIT_NORMAL_OUTPUT,
     .first_write = GPT_FIRST_PRODUCT},
    {IN_LAYER(PROJ_BIAS, "self_attention.linear_proj.bias", CHANNELS, ONE),
     .sequence_sum = true, .present = has_linear_bias},
    {IN_LAYER(NORM2_WEIGHT, "pre_mlp_layernorm.weight", CHANNELS, ONE),
     .init = GPT_INIT_ONE, .sequence_sum = true, .present = has_norm2},
    {IN_LAYER(NORM2_BIAS, "pre_mlp_layernorm.bias", CHANNELS, ONE),
     .sequence_sum = true, .present = has_norm2_bias},
    {IN_LAYER(GATE_WEIGHT, "mlp.linear_gate.weight", FFN, CHANNELS),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_NORMAL,
     .first_write = GPT_FIRST_PRODUCT, .present = has_gate},
    {IN_LAYER(FC1_WEIGHT, "mlp.linear_fc1.weight", FFN, CHANNELS),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_NORMAL,
     .first_write = GPT_FIRST_PRODUCT},
    {IN_LAYER(GATE_BIAS, "mlp.linear_gate.bias", FFN, ONE),
     .split = GPT_SPLIT_ROWS, .present = has_gate_bias},
    {IN_LAYER(FC1_BIAS, "mlp.linear_fc1.bias", FFN, ONE),
     .split = GPT_SPLIT_ROWS, .present = has_linear_bias},
    {IN_LAYER(FC2_WEIGHT, "mlp.linear_fc2.weight", CHANNELS, FFN),
     .split = GPT_SPLIT_COLUMNS, .init = GPT_INIT_NORMAL_OUTPUT,
     .first_write = GPT_FIRST_PRODUCT},
    {IN_LAYER(FC2_BIAS, "mlp.linear_fc2.bias", CHANNELS, ONE),
     .sequence_sum = true, .present = has_linear_bias},
    {OUTSIDE(FINAL_NORM_WEIGHT, FINAL, "decoder.final_layernorm.weight",
             CHANNELS, ONE),
     .init = GPT_INIT_ONE, .sequence_sum = true},
    {OUTSIDE(FINAL_NORM_BIAS, FINAL, "decoder.final_layernorm.bias", CHANNELS,
             ONE),
     .sequence_sum = true, .present = has_norm_bias},
    {OUTSIDE(OUTPUT_WEIGHT, FINAL, "output_layer.weight", VOCAB, CHANNELS),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_NORMAL,
     .first_write = GPT_FIRST_OUTPUT, .present = is_untied},
};

/* ---- rows ---- */

static int64_t size_of(const struct gpt_config *c, enum size s)
{
    const struct gpt_widths w = gpt_widths_of(c, 1);

    switch (s) {
    case ONE:
        return 1;
    case CHANNELS:
        return w.hidden;
    case HEAD:
        return c->head_size;
    case QKV:
        return w.qkv;
    case ATTENTION:
        return w.attention;
    case FFN:
        return w.ffn;
    case VOCAB:
        return w.vocab;
    case POSITIONS:
        return c->max_positions;
    }
    return 0;
}

/* Query groups are kept whole: attention of a group needs its key and value. */
static int64_t split_unit(const struct gpt_config *c,
                          enum gpt_param_split split)
{
    const struct gpt_widths w = gpt_widths_of(c, 1);

    return split == GPT_SPLIT_BY_GROUP ? w.qkv / w.groups : 1;
}

/* What follows from other columns is derived here: vectors are not decayed, and
 * rows of the vocabulary may be dummies. */
static void fill_row(struct gpt_param *p, const struct kind *k, int64_t layer,
                     const struct gpt_config *c)
{
    *p = (struct gpt_param){
        .role = k->role,
        .place = k->place,
        .layer = layer,
        .ndim = k->columns == ONE ? 1 : 2,
        .shape = {size_of(c, k->rows), size_of(c, k->columns)},
        .split = k->split,
        .split_unit = split_unit(c, k->split),
        .vocab_rows = k->rows == VOCAB,
        .decay = k->columns != ONE,
        .tied = k->role == GPT_WORD_EMBEDDING && c->tied_embeddings,
        .sequence_sum = k->sequence_sum,
        .heads_sum = k->heads_sum,
        .first_write = k->first_write,
        /* a norm that multiplies by 1 + weight begins as one too */
        .init = k->init == GPT_INIT_ONE && c->norm_plus_one ? GPT_INIT_ZERO
                                                            : k->init,
    };
    if (layer < 0)
        snprintf(p->name, sizeof(p->name), "%s", k->name);
    else
        snprintf(p->name, sizeof(p->name), "decoder.layers.%lld.%s",
                 (long long)layer, k->name);
}

/* Rows of one place (and layer) appended to the table. */
static void add_rows(struct gpt_param_table *t, const struct gpt_config *c,
                     enum gpt_param_place place, int64_t layer)
{
    for (size_t i = 0; i < GPT_COUNT(kinds); i++) {
        const struct kind *k = &kinds[i];

        if (k->place == place && (!k->present || k->present(c)))
            fill_row(&t->rows[t->n++], k, layer, c);
    }
}

int gpt_params_build(struct gpt_param_table *t, const struct gpt_config *c,
                     struct gpt_err *err)
{
    *t = (struct gpt_param_table){0};
    /* more than enough: no layer has rows of the two ends */
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

/* ---- layouts ---- */

struct gpt_layout gpt_layout_even(const struct gpt_config *c, int64_t tp_size,
                                  int64_t tp_rank, int64_t pp_size,
                                  int64_t pp_rank)
{
    const int64_t size[GPT_N_DIMS] = {[GPT_TP] = tp_size, [GPT_PP] = pp_size};
    struct gpt_topology t;
    struct gpt_layout layout = {.chunks = 0};
    int status = gpt_topology_init(&t, tp_size * pp_size, 0, size, 1, NULL);

    /* of a topology only coordinates are read; its rank stays 0 */
    t.at[GPT_TP] = tp_rank;
    t.at[GPT_PP] = pp_rank;
    if (status == GPT_OK)
        status = gpt_layout_init(&layout, c, &t, 0, 0, NULL);
    assert(status == GPT_OK);
    return layout;
}

/* Both rules of a layout: what tensor parallel ranks share must divide, and the
 * layers must divide over stages and chunks. gpt_topology_layers() knows the
 * second alone, so that even and uneven stages cannot differ in it. */
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
    GPT_TRY(gpt_widths_check(c, t->size[GPT_TP], err));
    for (int64_t i = 0; i < t->chunks; i++)
        GPT_TRY(gpt_topology_layers(t, c->num_layers, first, last, stage,
                                    i, &layout->chunk[i].first_layer,
                                    &layout->chunk[i].n_layers, err));
    return GPT_OK;
}

int gpt_layout_check(const struct gpt_config *c, int64_t tp_size,
                     int64_t pp_size, struct gpt_err *err)
{
    const int64_t size[GPT_N_DIMS] = {[GPT_TP] = tp_size, [GPT_PP] = pp_size};
    struct gpt_topology t;
    struct gpt_layout layout;

    GPT_TRY(gpt_topology_init(&t, tp_size * pp_size, 0, size, 1, err));
    return gpt_layout_init(&layout, c, &t, 0, 0, err);
}

/* ---- a rank's slices and buckets ---- */

/* Chunks of a stage are few: a search costs less than a table. */
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

/* True when the rank has a part of p; *copy when that is the second copy of a
 * tied table, which another rank saves and counts. */
static bool holds(const struct gpt_layout *layout, const struct gpt_param *p,
                  bool *copy)
{
    *copy = false;
    switch (p->place) {
    case GPT_PLACE_EMBEDDING:
        /* the last stage needs a tied word table for its output layer */
        *copy = !layout->has_embedding && layout->has_output && p->tied;
        return layout->has_embedding || *copy;
    case GPT_PLACE_LAYER:
        return holds_layer(layout, p->layer);
    case GPT_PLACE_FINAL:
        return layout->has_output;
    }
    return false;
}

/* The one place that knows what a split does to a shape. gpt_layout_init() has
 * checked that the model divides. */
static void cut_slice(struct gpt_slice *s, const struct gpt_layout *layout)
{
    const enum gpt_param_split split = s->param->split;

    for (int d = 0; d < GPT_PARAM_DIMS; d++)
        s->shape[d] = s->param->shape[d];
    if (split != GPT_SPLIT_NONE) {
        const int d = split == GPT_SPLIT_COLUMNS ? 1 : 0;

        s->shape[d] /= layout->size[GPT_TP];
        assert(s->shape[d] * layout->size[GPT_TP] == s->param->shape[d]);
        assert(s->shape[d] % s->param->split_unit == 0);
        s->begin[d] = s->shape[d] * layout->at[GPT_TP];
    }
    s->count = s->shape[0] * s->shape[1];
}

/* Pads the last bucket so that its shards are equal and each begins at a
 * multiple of 64 elements: what vector code and collectives want. */
static void close_bucket(struct gpt_flat *f)
{
    struct gpt_bucket *b = f->buckets + f->n_buckets - 1;

    b->end = b->begin + gpt_round_up(b->end - b->begin, 64 * f->shards);
    f->elements = b->end;
}

/* Appends a slice to the last bucket, or to a new one when its layer differs:
 * backward completes a layer's gradients at one moment, so that they can be
 * summed over ranks together. Each slice begins at a multiple of 64 elements,
 * for vector instructions and the loads of tensor cores. */
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
    assert(f->elements % 64 == 0);
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
                           .shard = layout->shard,
                           .tp_size = layout->size[GPT_TP]};
    assert(f->shard >= 0 && f->shard < f->shards);
    GPT_TRY(gpt_new(&f->slices, (size_t)t->n, sizeof(f->slices[0]),
                    "parameter slices", err));
    GPT_TRY(gpt_new(&f->buckets, (size_t)t->n, sizeof(f->buckets[0]),
                    "parameter slices", err));
    /* table order is forward order: buckets are in that of layers */
    for (int64_t i = 0; i < t->n; i++) {
        struct gpt_slice s = {.param = &t->rows[i]};

        if (!holds(layout, s.param, &s.copy))
            continue;
        cut_slice(&s, layout);
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

/* Shards are cut from buckets and not from the whole buffer, so that one bucket
 * can be reduced, updated and gathered while others are not ready. */
void gpt_bucket_shard(const struct gpt_flat *f, int64_t bucket, int64_t shard,
                      int64_t *begin, int64_t *end)
{
    const struct gpt_bucket *b = &f->buckets[bucket];
    int64_t n = (b->end - b->begin) / f->shards;

    assert(bucket >= 0 && bucket < f->n_buckets);
    assert(n * f->shards == b->end - b->begin);
    *begin = b->begin + n * shard;
    *end = *begin + n;
}

int64_t gpt_flat_compact(const struct gpt_flat *f)
{
    /* exact: every bucket is a multiple of 64 shards */
    return f->elements / f->shards;
}

int64_t gpt_bucket_compact(const struct gpt_flat *f, int64_t bucket)
{
    return f->buckets[bucket].begin / f->shards;
}

const struct gpt_slice *gpt_flat_find(const struct gpt_flat *f,
                                      enum gpt_param_role role, int64_t layer)
{
    /* a search, as it only happens while pointers are bound */
    for (int64_t i = 0; i < f->n; i++) {
        const struct gpt_param *p = f->slices[i].param;

        if (p->role == role && p->layer == layer)
            return &f->slices[i];
    }
    return NULL;
}

bool gpt_flat_is_partial(const struct gpt_flat *f, const struct gpt_slice *s,
                         bool sequence_parallel)
{
    const struct gpt_param *p = s->param;

    return f->tp_size > 1 &&
           (p->heads_sum || (p->sequence_sum && sequence_parallel));
}
