/* What a rank holds of the rows of the parameter table (params_table.c): its
 * layout, its slices, and their place in memory. Start at gpt_flat_build();
 * params_init.c fills what it lays out. */
#include "model/params.h"

#include "base/memory.h"
#include "base/num.h"

#include <assert.h>
#include <string.h>

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

/* Checks both rules of a layout: what tensor parallel ranks share must divide,
 * and the layers must divide over stages and chunks. gpt_topology_layers()
 * knows the second rule alone, so that even and uneven stages cannot differ in
 * it. */
int gpt_layout_init(struct gpt_layout *layout, const struct gpt_config *c,
                    const struct gpt_topology *t, int64_t first, int64_t last,
                    struct gpt_err *err)
{
    const struct gpt_layer_cut cut = {c->num_layers, first, last};
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
        GPT_TRY(gpt_topology_layers(t, &cut, stage, i,
                                    &layout->chunk[i].first_layer,
                                    &layout->chunk[i].n_layers, err));
    return GPT_OK;
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

struct gpt_shard_part gpt_slice_shard(const struct gpt_flat *f,
                                      const struct gpt_slice *s)
{
    int64_t begin, end;

    gpt_bucket_shard(f, s->bucket, f->shard, &begin, &end);
    const int64_t from = gpt_max_i64(begin, s->offset);
    const int64_t to = gpt_min_i64(end, s->offset + s->count);
    return from < to ? (struct gpt_shard_part){.begin = from - s->offset,
                                               .end = to - s->offset,
                                               .at = from - begin}
                     : (struct gpt_shard_part){0};
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
