/* State of a distributed optimizer in torch_dist's default, which Megatron-LM
 * calls dp_reshardable: a tensor for each bucket of each group of data parallel
 * ranks, that is of each rank of the model. Start at
 * gpt_megatron_read_buckets(). Source: sharded_param_state_dp_reshardable() of
 * core/optimizer/distrib_optimizer.py.
 *
 * A bucket has parameters from the last to the first, each at a multiple of 64
 * elements, and ends with its last parameter. Names are not said, so the order
 * is that in which the modules register: of megatron-core's own layers, or of
 * Transformer Engine's. Which one it was is tried, and proved by the elements:
 * the weights in fp32, which are in the buckets as well, must round to the
 * model's weights. */
#include "checkpoint/megatron/megatron.h"

#include "base/num.h"
#include "checkpoint/dcp/dcp.h"
#include "checkpoint/format.h"
#include "checkpoint/megatron/write.h"

#include <stdio.h>
#include <string.h>

enum { ALIGN = 64, NAME = 160, PROOF = 4096 };

struct gpt_megatron_buckets {
    struct gpt_param_table table;
    struct gpt_tensor *tensors; /* (GPT_MEGATRON_STATES, rows of the table) */
};

static const char *const keys[GPT_MEGATRON_STATES] = {
    [GPT_MEGATRON_EXP_AVG] = "exp_avg",
    [GPT_MEGATRON_EXP_AVG_SQ] = "exp_avg_sq",
    [GPT_MEGATRON_MASTER] = "param",
};

/* Also for what failed halfway; what was not made is zero. */
void gpt_megatron_free_buckets(struct gpt_megatron_buckets *b)
{
    if (!b)
        return;
    for (int64_t i = 0; b->tensors && i < b->table.n * GPT_MEGATRON_STATES; i++)
        gpt_tensor_free(&b->tensors[i]);
    gpt_free(b->tensors);
    gpt_params_free(&b->table);
    gpt_free(b);
}

/* Tensors of one kind follow each other, in the order of the table. */
static struct gpt_tensor *tensor_of(const struct gpt_megatron_buckets *b,
                                    int64_t row, int kind)
{
    return &b->tensors[kind * b->table.n + row];
}

/* ---- names ---- */

/* The types in the name are those of parameters and gradients, one pair a
 * buffer; all that the list has are tried. NULL: no such bucket. */
static const struct gpt_tensor *find_bucket(const struct gpt_megatron *m,
                                            int64_t group, int64_t buffer,
                                            int64_t bucket, int kind)
{
    static const char *const types[] = {"float32", "bfloat16", "float16"};
    const struct gpt_tensor *t = NULL;
    char name[NAME];

    for (size_t i = 0; !t && i < GPT_COUNT(types) * GPT_COUNT(types); i++) {
        snprintf(name, sizeof(name),
                 "optimizer.distributed.dp_group_idx_%lld.gbuf_idx_%lld."
                 "dtype_(torch.%s, torch.%s).bucket_idx_%lld.%s",
                 (long long)group, (long long)buffer,
                 types[i / GPT_COUNT(types)], types[i % GPT_COUNT(types)],
                 (long long)bucket, keys[kind]);
        t = gpt_dcp_find(m->dist, name);
    }
    return t && t->ndim == 1 && t->dtype == GPT_F32 ? t : NULL;
}

/* ---- places ---- */

/* The box of a cut that begins at element `at` of a bucket, which is in pieces
 * where data parallel ranks cut it. */
static int add_box(struct gpt_megatron_buckets *b,
                   const struct gpt_megatron_cut *cut, int i, int kind,
                   const struct gpt_tensor *bucket, int64_t at,
                   struct gpt_err *err)
{
    const int64_t *shape = cut->boxes[i].shape;
    struct gpt_tensor *out = tensor_of(b, cut->boxes[i].row, kind);
    const int64_t n = out->ndim > 1 ? shape[0] * shape[1] : shape[0];

    for (size_t k = 0; k < bucket->n; k++) {
        const struct gpt_file_box *p = &bucket->pieces[k];
        const int64_t lo = gpt_max_i64(at, p->begin[0]);
        const int64_t hi = gpt_min_i64(at + n, p->begin[0] + p->shape[0]);

        if (lo >= hi || p->stride[0] != 4)
            continue;
        struct gpt_file_box box = {
            .in = p->in,
            .offset = p->offset + (lo - p->begin[0]) * 4,
            .dtype = GPT_F32,
        };
        memcpy(box.begin, cut->boxes[i].begin, sizeof(cut->boxes[i].begin));
        memcpy(box.shape, shape, sizeof(cut->boxes[i].shape));
        GPT_TRY(gpt_tensor_add_flat(out, &box, lo - at, hi - at, err));
    }
    return GPT_OK;
}

/* What every rank holds is taken from the first, a tied table from the first
 * stage. */
static bool is_taken(const struct gpt_megatron_buckets *b,
                     const struct gpt_megatron_cut *cut, int64_t tp_rank)
{
    return !cut->copy &&
           (tp_rank == 0 ||
            gpt_megatron_is_expert(b->table.rows[cut->boxes[0].row].role) ||
            b->table.rows[cut->boxes[0].row].split != GPT_SPLIT_NONE);
}

/* All kinds have the same places. A gate and its partner are one parameter
 * there, and two tensors here. */
static int take_cut(struct gpt_megatron *m, struct gpt_megatron_buckets *b,
                    const struct gpt_megatron_cut *cut, int64_t group,
                    int64_t buffer, int64_t bucket, int64_t at, bool *fits,
                    struct gpt_err *err)
{
    for (int kind = 0; kind < GPT_MEGATRON_STATES; kind++) {
        const struct gpt_tensor *t =
            find_bucket(m, group, buffer, bucket, kind);
        int64_t begin = at;

        if (!t || t->shape[0] < at + cut->count) {
            *fits = false;
            return GPT_OK;
        }
        for (int i = 0; i < cut->n_boxes; i++) {
            GPT_TRY(add_box(b, cut, i, kind, t, begin, err));
            begin += cut->boxes[i].shape[0] *
                     (cut->ndim > 1 ? cut->boxes[i].shape[1] : 1);
        }
    }
    return GPT_OK;
}

/* The buffer of a chunk: a bucket that is full to its last element is
 * followed by the next. */
static int take_buffer(struct gpt_megatron *m, struct gpt_megatron_buckets *b,
                       const struct gpt_megatron_rank_plan *r, int64_t group,
                       int64_t tp_size, int64_t v, bool *fits,
                       struct gpt_err *err)
{
    int64_t bucket = 0, at = 0;
    const struct gpt_tensor *t =
        find_bucket(m, group, v, bucket, GPT_MEGATRON_MASTER);

    for (int64_t i = r->first[v + 1] - 1; *fits && i >= r->first[v]; i--) {
        const struct gpt_megatron_cut *cut = &r->cuts[i];

        if (cut->group < 0)
            continue;
        if (t && at == t->shape[0]) {
            at = 0;
            t = find_bucket(m, group, v, ++bucket, GPT_MEGATRON_MASTER);
        }
        at = gpt_round_up(at, ALIGN);
        if (!t || at + cut->count > t->shape[0])
            *fits = false;
        else if (is_taken(b, cut, group % tp_size))
            GPT_TRY(take_cut(m, b, cut, group, v, bucket, at, fits, err));
        at += cut->count;
    }
    *fits = *fits && t && at == t->shape[0] &&
            !find_bucket(m, group, v, bucket + 1, GPT_MEGATRON_MASTER);
    return GPT_OK;
}

/* ---- the proof ---- */

/* The first elements of a parameter in both places, the one rounded to the type
 * of the other. */
static int prove(struct gpt_megatron *m, const struct gpt_megatron_buckets *b,
                 int64_t row, bool *fits, struct gpt_err *err)
{
    const struct gpt_param *p = &b->table.rows[row];
    struct gpt_tensor *master = tensor_of(b, row, GPT_MEGATRON_MASTER);
    int64_t layer, zero[GPT_TENSOR_DIMS] = {0}, shape[GPT_TENSOR_DIMS] = {1, 1};
    const struct gpt_tensor *t =
        gpt_megatron_dist_tensor(m, "", p->role, p->layer, &layer);
    struct gpt_tensor weight =
        gpt_tensor_make(p->name, GPT_F32, p->ndim, p->shape);
    uint8_t x[PROOF], y[PROOF];

    /* no bucket has it */
    if (p->counts)
        return GPT_OK;
    if (!t || gpt_tensor_check(master, m->dir, NULL) != GPT_OK) {
        *fits = false;
        return GPT_OK;
    }
    const int64_t most = PROOF / 8;
    shape[p->ndim - 1] = gpt_min_i64(p->shape[p->ndim - 1], most);
    if (p->ndim > 1)
        shape[0] = gpt_max_i64(1, gpt_min_i64(p->shape[0], most / shape[1]));
    int status;
    GPT_TRY_GOTO(
        status,
        gpt_megatron_merge_dist(m, p, &weight, GPT_MEGATRON_MASTER, err), out);
    GPT_TRY_GOTO(status,
                 gpt_tensor_gather(&weight, zero, shape, t->dtype, x, err),
                 out);
    GPT_TRY_GOTO(status,
                 gpt_tensor_gather(master, zero, shape, t->dtype, y, err), out);
    *fits = memcmp(x, y, (size_t)(shape[0] * (p->ndim > 1 ? shape[1] : 1)) *
                             gpt_dtype_bytes(t->dtype)) == 0;
out:
    gpt_tensor_free(&weight);
    return status;
}

/* ---- all of it ---- */

/* Layout and options of the run that wrote the checkpoint, from its arguments.
 * A run without arguments had one rank. */
static struct gpt_target_options find_layout(const struct gpt_megatron *m)
{
    const struct gpt_pickle_value *args =
        gpt_pickle_find(m->ranks[0].torch.root, "args");
    struct gpt_target_options o = {.config = m->config, .tp_size = 1,
                                   .pp_size = 1, .ep_size = 1};

    gpt_megatron_int(args, "tensor_model_parallel_size", &o.tp_size);
    gpt_megatron_int(args, "pipeline_model_parallel_size", &o.pp_size);
    gpt_megatron_int(args, "virtual_pipeline_model_parallel_size", &o.chunks);
    gpt_megatron_int(args, "decoder_first_pipeline_num_layers",
                     &o.first_layers);
    gpt_megatron_int(args, "decoder_last_pipeline_num_layers", &o.last_layers);
    return o;
}

/* One way of naming, all ranks. What does not fit is no error: another way may
 * fit, and a run without its optimizer is one, too. */
static int try_style(struct gpt_megatron *m, enum gpt_megatron_names style,
                     bool *fits, struct gpt_err *err)
{
    struct gpt_megatron_output output = {.n_ranks = 1};
    struct gpt_target t = {.format = &gpt_format_megatron,
                           .o = find_layout(m),
                           .data = &output};
    struct gpt_megatron_buckets *b;
    struct gpt_err why;
    int status = GPT_OK;

    GPT_TRY(gpt_new(&b, 1, sizeof(*b), "optimizer state", err));
    m->buckets = b;
    t.o.style = (int)style;
    GPT_TRY(gpt_megatron_build_table(&b->table, &t.o, err));
    GPT_TRY(gpt_new(&b->tensors, (size_t)b->table.n * GPT_MEGATRON_STATES,
                    sizeof(*b->tensors), "optimizer state", err));
    for (int64_t i = 0; i < b->table.n * GPT_MEGATRON_STATES; i++) {
        const struct gpt_param *p = &b->table.rows[i % b->table.n];

        b->tensors[i] = gpt_tensor_make(p->name, GPT_F32, p->ndim, p->shape);
    }
    output.table = b->table;
    *fits = true;
    for (int64_t rank = 0;
         status == GPT_OK && *fits && rank < t.o.tp_size * t.o.pp_size;
         rank++) {
        struct gpt_megatron_rank_plan r = {.n = 0};

        *fits = gpt_megatron_plan_cuts(&t, rank, &r, &why) == GPT_OK;
        for (int64_t v = 0;
             status == GPT_OK && *fits && v < gpt_max_i64(1, t.o.chunks); v++)
            status = take_buffer(m, b, &r, rank, t.o.tp_size, v, fits, err);
        gpt_free(r.cuts);
    }
    gpt_arena_free(&t.arena);
    /* the weights to compare with are the model's, not those of the buckets */
    m->buckets = NULL;
    for (int64_t i = 0; status == GPT_OK && *fits && i < b->table.n; i++)
        status = prove(m, b, i, fits, err);
    m->buckets = b;
    return status;
}

/* More ranks than the list has tensors are no run's. */
int gpt_megatron_read_buckets(struct gpt_megatron *m, bool *found, bool *fits,
                              struct gpt_err *err)
{
    static const enum gpt_megatron_names styles[] = {GPT_MEGATRON_TE,
                                                     GPT_MEGATRON_CORE};
    const struct gpt_target_options o = find_layout(m);
    int64_t ranks, experts = 1; /* ranks that share these have other buckets */

    *found = find_bucket(m, 0, 0, 0, GPT_MEGATRON_MASTER) != NULL;
    *fits = false;
    gpt_megatron_int(gpt_pickle_find(m->ranks[0].torch.root, "args"),
                     "expert_model_parallel_size", &experts);
    if (!*found || experts > 1 || o.tp_size < 1 || o.pp_size < 1 ||
        !gpt_mul(o.tp_size, o.pp_size, &ranks) || ranks > m->dist->n ||
        o.chunks < 0 || o.chunks > GPT_MAX_CHUNKS)
        return GPT_OK;
    for (size_t i = 0; !*fits && i < GPT_COUNT(styles); i++) {
        gpt_megatron_free_buckets(m->buckets);
        m->buckets = NULL;
        GPT_TRY(try_style(m, styles[i], fits, err));
    }
    if (!*fits) {
        gpt_megatron_free_buckets(m->buckets);
        m->buckets = NULL;
    }
    return GPT_OK;
}

/* The table here and that of the model are built of the same configuration, so
 * rows have the same names. Coverage is checked once more, as padding of the
 * vocabulary may differ between the two. */
int gpt_megatron_copy_bucket(const struct gpt_megatron_buckets *b,
                             const struct gpt_param *p, int kind,
                             struct gpt_tensor *out, struct gpt_err *err)
{
    const struct gpt_param *own = gpt_params_find(&b->table, p->name);
    const struct gpt_tensor *from =
        own ? tensor_of(b, own - b->table.rows, kind) : NULL;

    if (!from)
        return gpt_fail(err, GPT_EDATA, "no state of '%s'", p->name);
    for (size_t i = 0; i < from->n; i++)
        GPT_TRY(gpt_tensor_add(out, &from->pieces[i], err));
    return gpt_tensor_check(out, p->name, err);
}
