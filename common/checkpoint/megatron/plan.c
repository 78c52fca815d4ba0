/* Planning a classic Megatron checkpoint: what each rank's file holds, in the
 * order of Megatron-LM's modules. Start at gpt_megatron_plan().
 *
 * Cuts are boxes of the source's tensors: rows of the fused matrix are in
 * Megatron's order (checkpoint version 3) everywhere in this program. */
#include "checkpoint/megatron/write.h"

#include "base/log.h"
#include "base/num.h"
#include "checkpoint/run_state.h"

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
    return (x->boxes[0].row > y->boxes[0].row) -
           (x->boxes[0].row < y->boxes[0].row);
}

/* ---- cuts ---- */

/* A copy of a tied word table on the last stage has a name of its own; with one
 * stage there is none. */
static int name_cut(struct gpt_target *t, const struct gpt_slice *s,
                    int64_t first_layer, const char **path, struct gpt_err *err)
{
    const enum gpt_megatron_names style = (enum gpt_megatron_names)t->o.style;
    char buf[GPT_MEGATRON_PATH];

    if (s->copy)
        snprintf(buf, sizeof(buf), "%s",
                 style == GPT_MEGATRON_LEGACY
                     ? "word_embeddings_for_head/weight"
                     : "output_layer.weight");
    else if (!gpt_megatron_path(buf, sizeof(buf), style, s->param->role,
                                s->param->layer - first_layer))
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

/* A gate's partner goes behind it; everything else is a cut of its own. */
static int add_cut(struct gpt_target *t, struct gpt_megatron_rank_plan *r,
                   const struct gpt_slice *s, const struct gpt_layout *layout,
                   struct gpt_err *err)
{
    const struct gpt_megatron_output *p = t->data;
    const int64_t row = s->param - p->table.rows;
    const bool gate = s->param->role == GPT_FC1_WEIGHT ||
                      s->param->role == GPT_FC1_BIAS;
    struct gpt_megatron_cut *c = NULL;

    for (int64_t i = r->n - 1; gate && t->o.config.gated && i >= r->n - 2; i--)
        if (p->table.rows[r->cuts[i].boxes[0].row].role ==
            (s->param->role == GPT_FC1_WEIGHT ? GPT_GATE_WEIGHT
                                              : GPT_GATE_BIAS))
            c = &r->cuts[i];
    assert(c || !gate || !t->o.config.gated);
    if (!c) {
        const int64_t chunk = find_chunk(layout, s);

        c = &r->cuts[r->n++];
        *c = (struct gpt_megatron_cut){
            .ndim = s->param->ndim,
            .chunk = chunk,
            .order = cut_order(s, (enum gpt_megatron_names)t->o.style),
            .group = !s->param->decay,
            .shared = s->param->tied && t->o.pp_size > 1,
            .copy = s->copy,
        };
        GPT_TRY(name_cut(t, s, layout->chunk[chunk].first_layer, &c->path,
                         err));
    }
    /* rows of the same width, so that boxes are written one after the other */
    c->boxes[c->n_boxes].row = row;
    memcpy(c->boxes[c->n_boxes].begin, s->begin, sizeof(s->begin));
    memcpy(c->boxes[c->n_boxes].shape, s->shape, sizeof(s->shape));
    c->n_boxes++;
    c->shape[0] += s->shape[0];
    c->shape[1] = s->shape[1];
    c->count += s->count;
    return GPT_OK;
}

/* Every rank gets all that it holds, copies of what is not cut as well:
 * Megatron-LM loads a rank from its own file alone. This differs from a native
 * checkpoint, in which each element is written once. */
static int plan_cuts(struct gpt_target *t, struct gpt_megatron_rank_plan *r,
                     const struct gpt_flat *flat,
                     const struct gpt_layout *layout, struct gpt_err *err)
{
    int64_t number = 0;

    GPT_TRY(
        gpt_new(&r->cuts, (size_t)flat->n, sizeof(*r->cuts), "plan", err));
    for (int64_t i = 0; i < flat->n; i++)
        GPT_TRY(add_cut(t, r, &flat->slices[i], layout, err));
    if (r->n)
        qsort(r->cuts, (size_t)r->n, sizeof(*r->cuts), compare_cuts);
    /* Megatron-LM's optimizer has two groups, decayed parameters first since
     * 2025; older versions begin with that of a rank's first parameter. Numbers
     * count through the groups, so a reader can tell by shapes. */
    for (int64_t g = 0; g < GPT_MEGATRON_GROUPS; g++)
        for (int64_t i = 0; i < r->n; i++)
            if (r->cuts[i].group == g) {
                r->cuts[i].number = number++;
                r->group_size[g]++;
            }
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
static void lay_out_buffer(struct gpt_megatron_rank_plan *r, int64_t chunk)
{
    int64_t at = 0, bucket = 0; /* in the file: the next parameter, and where
                                 * its bucket begins */
    bool empty = true;

    for (int64_t i = r->first[chunk + 1] - 1; i >= r->first[chunk]; i--) {
        struct gpt_megatron_cut *c = &r->cuts[i];

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
    r->elements[chunk] = at;
}

/* ---- files ---- */

/* The number of the stage is in the name only where there are several. */
static void name_file(const struct gpt_target *t, struct gpt_target_file *f,
                      int64_t rank, const char *name)
{
    const long long tp = rank % t->o.tp_size, pp = rank / t->o.tp_size;

    if (t->o.pp_size > 1)
        snprintf(f->name, sizeof(f->name), "mp_rank_%02lld_%03lld/%s", tp, pp,
                 name);
    else
        snprintf(f->name, sizeof(f->name), "mp_rank_%02lld/%s", tp, name);
}

/* A gate and what it is multiplied with are one tensor there, and may have come
 * in two types. */
enum gpt_dtype gpt_megatron_cut_dtype(const struct gpt_megatron_output *p,
                                      const struct gpt_megatron_block *block,
                                      const struct gpt_megatron_cut *cut)
{
    const struct gpt_tensor *const *sources = p->sources[block->kind];
    enum gpt_dtype dtype = block->dtype;

    if (dtype != GPT_N_DTYPES)
        return dtype;
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
            const enum gpt_dtype dtype =
                gpt_megatron_cut_dtype(p, &p->blocks[b], &r->cuts[i]);

            /* counts were checked for overflow with the parameter table */
            t->files[rank].bytes +=
                r->cuts[i].count * (int64_t)gpt_dtype_bytes(dtype);
            t->files[rank].tensors++;
        }
    for (int64_t v = 0; p->n_shards && v < p->chunks; v++) {
        struct gpt_target_file *f = &t->files[p->n_ranks + rank];

        f->bytes += r->elements[v] * 4 * p->n_shards;
        f->tensors += p->n_shards;
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

    GPT_TRY(gpt_target_layout(t, rank % t->o.tp_size, rank / t->o.tp_size,
                              &layout, err));
    GPT_TRY(gpt_flat_build(&flat, &p->table, &layout, err));
    int status = plan_cuts(t, r, &flat, &layout, err);
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
    for (int64_t v = 0; v < p->chunks; v++)
        lay_out_buffer(&p->ranks[rank], v);
    count_bytes(t, rank);
    return GPT_OK;
}

/* ---- the optimizer ---- */

/* The types that a run of Megatron-LM computes in. */
static enum gpt_dtype run_dtype(const struct gpt_source *s)
{
    const cJSON *precision =
        cJSON_GetObjectItemCaseSensitive(s->state, GPT_RUN_PRECISION);
    enum gpt_dtype dtype = GPT_F32;

    if (!cJSON_IsString(precision))
        return GPT_F32;
    for (int d = 0; d < GPT_N_DTYPES; d++)
        if (strcmp(precision->valuestring, gpt_dtype_name(d)) == 0)
            dtype = (enum gpt_dtype)d;
    return dtype == GPT_BF16 || dtype == GPT_F16 ? dtype : GPT_F32;
}

/* What the format could hold and this writer leaves out is said by name. */
static bool has_adam(const struct gpt_source *s)
{
    bool kinds[GPT_N_ADAM_KINDS] = {false};

    for (int64_t i = 0; i < s->n_tensors; i++) {
        const char *name = s->tensors[i].name;
        int k = GPT_KIND_EXP_AVG;

        if (!gpt_name_is_optimizer(name))
            continue;
        while (k < GPT_N_ADAM_KINDS &&
               strncmp(name, gpt_kind_prefix((enum gpt_kind)k),
                       strlen(gpt_kind_prefix((enum gpt_kind)k))) != 0)
            k++;
        if (k == GPT_N_ADAM_KINDS) {
            gpt_warn("%s: its optimizer state is left out: format megatron is "
                     "written with that of Adam only, and '%s' is a state "
                     "that Adam does not have",
                     s->dir, name);
            return false;
        }
        kinds[k] = true;
    }
    /* one without the other is no state that could be resumed */
    return kinds[GPT_KIND_EXP_AVG] && kinds[GPT_KIND_EXP_AVG_SQ];
}

/* The model's weights, then what the optimizer keeps: fp32 copies where weights
 * have another type, and moments. */
static void plan_blocks(struct gpt_target *t)
{
    struct gpt_megatron_output *p = t->data;
    const struct gpt_megatron_block moments[] = {
        {GPT_KIND_PARAMETERS, GPT_F32, "param"},
        {GPT_KIND_EXP_AVG, GPT_N_DTYPES, "exp_avg"},
        {GPT_KIND_EXP_AVG_SQ, GPT_N_DTYPES, "exp_avg_sq"},
    };

    p->dtype = t->o.dtype;
    p->optimizer = !has_adam(t->source)       ? GPT_MEGATRON_NONE
                   : t->o.shard_optimizer ? GPT_MEGATRON_DISTRIBUTED
                                          : GPT_MEGATRON_PLAIN;
    /* A run of Megatron-LM computes in the type of its weights, and has fp32
     * copies of them. A native run has fp32 weights alone and says in which
     * type it computes: its weights are rounded to that type, so that
     * Megatron-LM resumes the run as it was. */
    if (p->optimizer != GPT_MEGATRON_NONE && p->dtype == GPT_N_DTYPES)
        p->dtype = run_dtype(t->source);
    /* the model's own weights are in every file, whatever the optimizer */
    p->blocks[p->n_blocks++] =
        (struct gpt_megatron_block){GPT_KIND_PARAMETERS, p->dtype, NULL};
    for (size_t i = 0; i < GPT_COUNT(moments); i++) {
        if (p->optimizer == GPT_MEGATRON_DISTRIBUTED) {
            p->shards[p->n_shards] = moments[i];
            p->shards[p->n_shards++].dtype = GPT_F32;
        }
        if (p->optimizer == GPT_MEGATRON_PLAIN &&
            (i > 0 || p->dtype != GPT_F32))
            p->blocks[p->n_blocks++] = moments[i];
    }
}

/* Ranks that share a group have parts of one. */
int gpt_megatron_build_table(struct gpt_param_table *table,
                             const struct gpt_target_options *o,
                             struct gpt_err *err)
{
    GPT_TRY(gpt_params_build(table, &o->config, err));
    for (int64_t i = 0; gpt_megatron_shares_groups(o) && i < table->n; i++)
        table->rows[i].split_unit = 1;
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
    GPT_TRY(gpt_new(&p, 1, sizeof(*p), "plan", err));
    t->data = p;
    p->n_ranks = o->tp_size * o->pp_size;
    p->chunks = layout.chunks;
    /* Megatron-LM begins a run anew from a release, and resumes another one,
     * for which it wants optimizer state unless told otherwise. */
    p->released = t->source->iteration == 0;
    GPT_TRY(p->released ? gpt_path_join(t->path, sizeof(t->path), o->save,
                                        GPT_MEGATRON_RELEASE, err)
                        : gpt_checkpoint_path(t->path, sizeof(t->path), o->save,
                                              t->source->iteration, err));
    plan_blocks(t);
    GPT_TRY(gpt_megatron_build_table(&p->table, o, err));
    GPT_TRY(find_sources(t, err));
    GPT_TRY(gpt_target_files(t, p->n_ranks * (p->n_shards ? 2 : 1), err));
    GPT_TRY(gpt_new(&p->ranks, (size_t)p->n_ranks, sizeof(*p->ranks), "files",
                    err));
    for (int64_t i = 0; i < p->n_ranks; i++)
        GPT_TRY(plan_rank(t, i, err));
    t->n_tensors = p->table.n *
                   (p->optimizer == GPT_MEGATRON_NONE ? 1 : GPT_N_ADAM_KINDS);
    if (p->optimizer != GPT_MEGATRON_NONE)
        gpt_megatron_report_run(t);
    return GPT_OK;
}
