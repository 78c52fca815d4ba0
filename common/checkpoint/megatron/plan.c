/* Planning a classic Megatron checkpoint: what each rank's file holds, in the
 * order of Megatron-LM's modules. Start at gpt_megatron_plan().
 *
 * Cuts are boxes of the source's tensors: rows of the fused matrix are in
 * Megatron's order (checkpoint version 3) everywhere in this program. */
#include "checkpoint/megatron/write.h"

#include "base/log.h"
#include "base/num.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Also for a plan that failed halfway. */
void gpt_megatron_free_plan(struct gpt_target *t)
{
    struct gpt_megatron_output *p = t->data;

    if (!p)
        return;
    for (int64_t i = 0; p->ranks && i < p->n_ranks; i++)
        gpt_free(p->ranks[i].cuts);
    for (int k = 0; k < GPT_N_ADAM_KINDS; k++)
        gpt_free(p->sources[k]);
    gpt_free(p->ranks);
    gpt_params_free(&p->table);
    gpt_free(p);
}

/* ---- sources ---- */

/* What has a row for each token may be resized, of each kind. */
static int find_sources(struct gpt_target *t, struct gpt_err *err)
{
    struct gpt_megatron_output *p = t->data;
    const int kinds =
        p->optimizer == GPT_MEGATRON_NONE ? 1 : (int)GPT_N_ADAM_KINDS;
    char name[GPT_PARAM_NAME + 32];

    GPT_TRY(gpt_target_resizes(t, kinds * gpt_params_vocab_rows(&p->table),
                               err));
    /* a parameter without moments is an error: half a state is none */
    for (int k = 0; k < kinds; k++) {
        GPT_TRY(gpt_new(&p->sources[k], (size_t)p->table.n,
                        sizeof(*p->sources[k]), "plan", err));
        for (int64_t i = 0; i < p->table.n; i++) {
            if (k > 0 && p->table.rows[i].counts)
                continue;
            snprintf(name, sizeof(name), "%s%s",
                     gpt_kind_prefix((enum gpt_kind)k), p->table.rows[i].name);
            GPT_TRY(gpt_target_find(t, name, &p->table.rows[i],
                                    &p->sources[k][i], err));
        }
    }
    return GPT_OK;
}

/* ---- the order of modules ---- */

/* Attention registers its output layer first in megatron-core; Transformer
 * Engine has the norm in front of a matrix with the matrix. Other parameters
 * are in the order of the table. Parameters of one module stay together, as
 * the order of equal ones does not change. */
static int64_t module_order(enum gpt_param_role role,
                            enum gpt_megatron_names style)
{
    if (role != GPT_PROJ_WEIGHT && role != GPT_PROJ_BIAS)
        return 2 * (int64_t)role;
    return style == GPT_MEGATRON_TE     ? 2 * GPT_NORM1_WEIGHT - 1
           : style == GPT_MEGATRON_CORE ? 2 * GPT_QKV_WEIGHT - 1
                                        : 2 * (int64_t)role;
}

/* The tied copy of the word table is the last of all. */
static int64_t cut_order(const struct gpt_slice *s,
                         enum gpt_megatron_names style)
{
    enum { LAYER = 4 * GPT_N_ROLES, LAST = 1 << 30 };

    if (s->copy)
        return LAST;
    return (s->param->place == GPT_PLACE_EMBEDDING ? 0
            : s->param->place == GPT_PLACE_FINAL   ? LAST / LAYER - 1
                                                   : 1 + s->param->layer) *
               LAYER +
           module_order(s->param->role, style);
}

/* By place, then as they were. */
static int compare_cuts(const void *a, const void *b)
{
    const struct gpt_megatron_cut *x = a, *y = b;

    if (x->chunk != y->chunk)
        return x->chunk < y->chunk ? -1 : 1;
    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    if (x->within != y->within)
        return x->within < y->within ? -1 : 1;
    return (x->boxes[0].row > y->boxes[0].row) -
           (x->boxes[0].row < y->boxes[0].row);
}

/* ---- cuts ---- */

/* A copy of a tied word table on the last stage has a name of its own; with one
 * stage there is none. */
static int name_cut(struct gpt_target *t, const struct gpt_slice *s,
                    int64_t first_layer, int64_t expert, const char **path,
                    struct gpt_err *err)
{
    const enum gpt_megatron_names style = (enum gpt_megatron_names)t->o.style;
    char buf[GPT_MEGATRON_PATH];

    if (s->copy)
        snprintf(buf, sizeof(buf), "%s",
                 style == GPT_MEGATRON_LEGACY
                     ? "word_embeddings_for_head/weight"
                     : "output_layer.weight");
    else if (!gpt_megatron_path(
                 buf, sizeof(buf), style, s->param->role,
                 s->param->layer - first_layer,
                 s->param->layer >= 0 &&
                     gpt_config_has_experts(&t->o.config, s->param->layer),
                 expert))
        return gpt_fail(err, GPT_EDATA, "Megatron-LM has no tensor for '%s'",
                        s->param->name);
    *path = gpt_arena_strdup(&t->arena, buf);
    return *path ? GPT_OK : gpt_no_memory(err, "names of tensors");
}

/* The chunk of a stage that has a parameter. */
static int64_t find_chunk(const struct gpt_layout *layout,
                          const struct gpt_slice *s)
{
    if (s->param->layer < 0)
        return s->param->place == GPT_PLACE_EMBEDDING && !s->copy
                   ? 0
                   : layout->chunks - 1;
    for (int64_t v = 0; v < layout->chunks; v++)
        if (s->param->layer >= layout->chunk[v].first_layer &&
            s->param->layer <
                layout->chunk[v].first_layer + layout->chunk[v].n_layers)
            return v;
    assert(false); /* the slices were made from this layout */
    return 0;
}

int gpt_megatron_new_cut(struct gpt_target *t,
                         struct gpt_megatron_rank_plan *r,
                         const struct gpt_slice *s,
                         const struct gpt_layout *layout, int64_t expert,
                         struct gpt_megatron_cut **cut, struct gpt_err *err)
{
    const int64_t chunk = find_chunk(layout, s);

    *cut = &r->cuts[r->n++];
    **cut = (struct gpt_megatron_cut){
        .ndim = s->param->ndim,
        .chunk = chunk,
        .order = cut_order(s, (enum gpt_megatron_names)t->o.style),
        .group = s->param->counts ? -1 : !s->param->decay,
        .shared = s->param->tied && t->o.pp_size > 1,
        .copy = s->copy,
    };
    return name_cut(t, s, layout->chunk[chunk].first_layer, expert,
                    &(*cut)->path, err);
}

/* Rows of the same width, so that boxes are written one after the other. */
void gpt_megatron_add_box(struct gpt_megatron_cut *c, int64_t row,
                          const int64_t *begin, const int64_t *shape)
{
    c->boxes[c->n_boxes].row = row;
    memcpy(c->boxes[c->n_boxes].begin, begin,
           sizeof(*begin) * GPT_PARAM_DIMS);
    memcpy(c->boxes[c->n_boxes].shape, shape,
           sizeof(*shape) * GPT_PARAM_DIMS);
    c->n_boxes++;
    c->shape[0] += shape[0];
    c->shape[1] = shape[1];
    c->count += shape[0] * shape[1];
}

/* A gate's partner goes behind it; everything else is a cut of its own. */
static int add_cut(struct gpt_target *t, struct gpt_megatron_rank_plan *r,
                   const struct gpt_slice *s, const struct gpt_layout *layout,
                   struct gpt_err *err)
{
    const struct gpt_megatron_output *p = t->data;
    const enum gpt_param_role role = s->param->role;
    const enum gpt_param_role partner =
        role == GPT_FC1_WEIGHT   ? GPT_GATE_WEIGHT
        : role == GPT_FC1_BIAS   ? GPT_GATE_BIAS
        : role == GPT_SHARED_FC1 ? GPT_SHARED_GATE
                                 : GPT_N_ROLES;
    const bool gated = t->o.config.gated && partner != GPT_N_ROLES;
    struct gpt_megatron_cut *c = NULL;

    for (int64_t i = r->n - 1; gated && i >= 0 && i >= r->n - 2; i--)
        if (p->table.rows[r->cuts[i].boxes[0].row].role == partner)
            c = &r->cuts[i];
    assert(c || !gated);
    if (!c)
        GPT_TRY(gpt_megatron_new_cut(t, r, s, layout, 0, &c, err));
    gpt_megatron_add_box(c, s->param - p->table.rows, s->begin, s->shape);
    return GPT_OK;
}

/* Numbers count through the groups of a chain, so a reader can tell by
 * shapes. */
static void number_cuts(const struct gpt_target *t,
                        struct gpt_megatron_rank_plan *r)
{
    for (int chain = 0; chain < gpt_megatron_chains(t); chain++) {
        int64_t number = 0, begin, end;

        gpt_megatron_chain(chain, &begin, &end);
        for (int64_t g = begin; g < end; g++)
            for (int64_t i = 0; i < r->n; i++)
                if (r->cuts[i].group == g) {
                    r->cuts[i].number = number++;
                    r->group_size[g]++;
                }
    }
}

/* Every rank gets all that it holds, copies of what is not cut as well:
 * Megatron-LM loads a rank from its own file alone. This differs from a native
 * checkpoint, in which each element is written once. */
static int plan_cuts(struct gpt_target *t, struct gpt_megatron_rank_plan *r,
                     const struct gpt_flat *flat,
                     const struct gpt_layout *layout, int64_t rank,
                     struct gpt_err *err)
{
    const int64_t most = flat->n + gpt_megatron_more_cuts(t, flat);

    GPT_TRY(gpt_new(&r->cuts, (size_t)most, sizeof(*r->cuts), "plan", err));
    for (int64_t i = 0; i < flat->n; i++) {
        const struct gpt_slice *s = &flat->slices[i];

        GPT_TRY(gpt_megatron_is_expert(s->param->role)
                    ? gpt_megatron_add_experts(t, r, s, layout, rank, err)
                    : add_cut(t, r, s, layout, err));
    }
    if (r->n)
        qsort(r->cuts, (size_t)r->n, sizeof(*r->cuts), compare_cuts);
    /* Megatron-LM's optimizer has two groups, decayed parameters first since
     * 2025; older versions begin with that of a rank's first parameter. */
    number_cuts(t, r);
    /* cuts are sorted by chunk: a chunk begins where no later one does */
    for (int64_t i = r->n - 1, v = layout->chunks; v >= 0; v--) {
        while (i >= 0 && r->cuts[i].chunk >= v)
            i--;
        r->first[v] = i + 1;
    }
    return GPT_OK;
}

/* ---- the buffer of a distributed optimizer ---- */

/* Megatron-LM has one buffer a chunk, with parameters from the last to the
 * first, each at a multiple of 64 elements. A table that two stages share is a
 * bucket of its own, and what a bucket has after its last parameter is not in
 * the file. Without overlap of communication there are no other buckets, so the
 * arguments that are written say that there is none. */
static void lay_out_buffer(struct gpt_megatron_rank_plan *r, int chain,
                           int64_t chunk)
{
    int64_t at = 0, bucket = 0; /* in the file: the next parameter, and where
                                 * its bucket begins */
    bool empty = true;

    for (int64_t i = r->first[chunk + 1] - 1; i >= r->first[chunk]; i--) {
        struct gpt_megatron_cut *c = &r->cuts[i];

        if (gpt_megatron_chain_of(c) != chain)
            continue;
        at = bucket + gpt_round_up(at - bucket, 64);
        if (c->shared && !empty)
            bucket = at;
        c->offset = at;
        at += c->count;
        empty = false;
        if (c->shared) {
            bucket = at;
            empty = true;
        }
    }
    r->elements[chain][chunk] = at;
}

/* ---- files ---- */

/* The number of the stage is in the name only where there are several, and so
 * is that of experts. */
static void name_file(const struct gpt_target *t, struct gpt_target_file *f,
                      int64_t rank, const char *name)
{
    const struct gpt_megatron_place at = gpt_megatron_place(t, rank);
    char pp[24] = "", ep[24] = "";

    if (t->o.pp_size > 1)
        snprintf(pp, sizeof(pp), "_%03lld", (long long)at.pp);
    if (t->o.ep_size > 1)
        snprintf(ep, sizeof(ep), "_%03lld", (long long)at.ep);
    snprintf(f->name, sizeof(f->name), "mp_rank_%02lld%s%s/%s",
             (long long)at.tp, pp, ep, name);
}

/* A gate and what it is multiplied with are one tensor there, and may have come
 * in two types. */
enum gpt_dtype gpt_megatron_cut_dtype(const struct gpt_megatron_output *p,
                                      const struct gpt_megatron_block *block,
                                      const struct gpt_megatron_cut *cut)
{
    const struct gpt_tensor *const *sources = p->sources[block->kind];
    enum gpt_dtype dtype = block->dtype;

    /* what no optimizer trains has no copy in fp32 beside it */
    if (dtype != GPT_N_DTYPES)
        return cut->group < 0 ? GPT_F32 : dtype;
    dtype = sources[cut->boxes[0].row]->dtype;
    for (int i = 1; i < cut->n_boxes; i++)
        dtype = gpt_dtype_join(dtype, sources[cut->boxes[i].row]->dtype);
    return dtype;
}

/* What a dry run shows, and the total of progress. */
static void count_bytes(struct gpt_target *t, int64_t rank)
{
    const struct gpt_megatron_output *p = t->data;
    const struct gpt_megatron_rank_plan *r = &p->ranks[rank];

    /* tensors alone: pickles are small beside them */
    for (int b = 0; b < p->n_blocks; b++)
        for (int64_t i = 0; i < r->n; i++) {
            if (!gpt_megatron_has_cut(&p->blocks[b], &r->cuts[i]))
                continue;
            const enum gpt_dtype dtype =
                gpt_megatron_cut_dtype(p, &p->blocks[b], &r->cuts[i]);
            /* counts were checked for overflow with the parameter table */
            t->files[rank].bytes +=
                r->cuts[i].count * (int64_t)gpt_dtype_bytes(dtype);
            t->files[rank].tensors++;
        }
    for (int64_t k = 0; p->n_shards && k < GPT_MEGATRON_CHAINS * p->chunks;
         k++) {
        struct gpt_target_file *f = &t->files[p->n_ranks + rank];
        const int64_t n = r->elements[k / p->chunks][k % p->chunks];

        f->bytes += n * 4 * p->n_shards;
        f->tensors += n > 0 ? p->n_shards : 0;
    }
}

/* The layout is that of gpt-train, which is Megatron-LM's. */
int gpt_megatron_plan_cuts(struct gpt_target *t, int64_t rank,
                           struct gpt_megatron_rank_plan *r,
                           struct gpt_err *err)
{
    const struct gpt_megatron_output *p = t->data;
    struct gpt_layout layout;
    struct gpt_flat flat;

    const struct gpt_megatron_place at = gpt_megatron_place(t, rank);

    GPT_TRY(gpt_target_layout(t, at.tp, at.pp, &layout, err));
    GPT_TRY(gpt_flat_build(&flat, &p->table, &layout, err));
    int status = plan_cuts(t, r, &flat, &layout, rank, err);
    gpt_flat_free(&flat);
    return status;
}

/* The files of a rank, and where its parameters are in them. The second file is
 * that of a distributed optimizer. */
static int plan_rank(struct gpt_target *t, int64_t rank, struct gpt_err *err)
{
    const struct gpt_megatron_output *p = t->data;

    name_file(t, &t->files[rank], rank, GPT_MEGATRON_FILE);
    if (p->n_shards)
        name_file(t, &t->files[p->n_ranks + rank], rank, GPT_MEGATRON_SHARDS);
    GPT_TRY(gpt_megatron_plan_cuts(t, rank, &p->ranks[rank], err));
    /* also where no such file is written: it is arithmetic alone */
    p->ranks[rank].gives = gpt_megatron_place(t, rank).ep == 0;
    for (int64_t v = 0; v < p->chunks; v++)
        for (int c = !p->ranks[rank].gives; c < gpt_megatron_chains(t); c++)
            lay_out_buffer(&p->ranks[rank], c, v);
    count_bytes(t, rank);
    return GPT_OK;
}

/* ---- all of it ---- */

/* Ranks that share a group have parts of one. Experts are cut afterwards. */
int gpt_megatron_build_table(struct gpt_param_table *table,
                             const struct gpt_target_options *o,
                             struct gpt_err *err)
{
    GPT_TRY(gpt_params_build(table, &o->config, err));
    for (int64_t i = 0; gpt_megatron_shares_groups(o) && i < table->n; i++)
        table->rows[i].split_unit = 1;
    for (int64_t i = 0; i < table->n; i++)
        if (gpt_megatron_is_expert(table->rows[i].role))
            table->rows[i].split = GPT_SPLIT_NONE;
    return GPT_OK;
}

/* Weights of no iteration are a release, as in other converters. */
int gpt_megatron_plan(struct gpt_target *t, struct gpt_err *err)
{
    const struct gpt_target_options *o = &t->o;
    struct gpt_layout layout; /* of the first rank: the rules are all ranks' */
    struct gpt_megatron_output *p;

    GPT_TRY(gpt_target_layout(t, 0, 0, &layout, err));
    GPT_TRY(gpt_megatron_check_variants(&o->config, err));
    GPT_TRY(gpt_megatron_check_experts(t, err));
    GPT_TRY(gpt_new(&p, 1, sizeof(*p), "plan", err));
    t->data = p;
    p->n_ranks = o->tp_size * o->pp_size * o->ep_size;
    p->chunks = layout.chunks;
    /* Megatron-LM begins a run anew from a release, and resumes another one,
     * for which it wants optimizer state unless told otherwise. */
    p->released = t->source->iteration == 0;
    GPT_TRY(p->released ? gpt_path_join(t->path, sizeof(t->path), o->save,
                                        GPT_MEGATRON_RELEASE, err)
                        : gpt_checkpoint_path(t->path, sizeof(t->path), o->save,
                                              t->source->iteration, err));
    gpt_megatron_plan_blocks(t);
    GPT_TRY(gpt_megatron_build_table(&p->table, o, err));
    GPT_TRY(find_sources(t, err));
    GPT_TRY(gpt_target_files(t, p->n_ranks * (p->n_shards ? 2 : 1), err));
    GPT_TRY(gpt_new(&p->ranks, (size_t)p->n_ranks, sizeof(*p->ranks), "files",
                    err));
    for (int64_t i = 0; i < p->n_ranks; i++)
        GPT_TRY(plan_rank(t, i, err));
    t->n_tensors = p->table.n;
    for (int64_t i = 0; p->optimizer != GPT_MEGATRON_NONE && i < p->table.n;
         i++)
        t->n_tensors += p->table.rows[i].counts ? 0 : GPT_N_ADAM_KINDS - 1;
    if (p->optimizer != GPT_MEGATRON_NONE)
        gpt_megatron_report_run(t);
    return GPT_OK;
}
