/* ZeRO's partitions as whole tensors: views, no element is read. Start at
 * gpt_deepspeed_open_zero().
 *
 * Stages 1 and 2 make a flat vector of each group of parameters and cut it
 * evenly over the ranks, so that a parameter may begin in one rank's part and
 * end in another's. Stage 3 cuts every parameter over all ranks, and a rank has
 * a flat vector of its parts. What fills the last rank's part is at the end of
 * a vector, and of a parameter in stage 3; it belongs to nothing. */
#include "checkpoint/deepspeed/deepspeed.h"

#include "base/log.h"
#include "base/num.h"
#include "checkpoint/torch/adam.h"

#include <stdio.h>

/* A flat vector of a rank: one tensor a kind. */
struct vector {
    struct gpt_torch_tensor kinds[GPT_N_ADAM_KINDS];
    int64_t n; /* elements of the weights' */
};

struct reader {
    struct gpt_deepspeed *d;
    bool optimizer, sharded; /* sharded: stage 3 */
    const char *why;         /* it is not read, or NULL */
    struct vector *vectors;  /* (ranks, groups) */
    int64_t n_groups;
};

/* Vectors of a rank are neighbours. */
static struct vector *vector_of(const struct reader *r, int64_t rank,
                                int64_t group)
{
    return &r->vectors[rank * r->n_groups + group];
}

/* Every failure names the file of a rank, or that of the model. */
static int bad_file(const struct gpt_torch *t, const char *what,
                    struct gpt_err *err)
{
    return gpt_fail(err, GPT_EDATA, "%s: %s", gpt_in_path(t->in), what);
}

/* ---- ranks' files ---- */

/* With and without the mark of runs in bf16. */
static int open_ranks(struct gpt_deepspeed *d, struct gpt_err *err)
{
    static const char *const marks[] = {"", "bf16_"};
    struct gpt_torch *t;
    char name[96];

    for (int64_t rank = 0; rank < GPT_DEEPSPEED_RANKS; rank++) {
        bool found = false;

        for (size_t i = 0; !found && i < GPT_COUNT(marks); i++) {
            snprintf(name, sizeof(name),
                     "%szero_pp_rank_%lld_mp_rank_00_optim_states.pt", marks[i],
                     (long long)rank);
            found = gpt_path_holds(d->dir, name);
        }
        /* the last one; whether more are missing is compared below */
        if (!found)
            return GPT_OK;
        GPT_TRY(gpt_deepspeed_add_file(d, name, &t, err));
    }
    return gpt_fail(err, GPT_EDATA, "%s: more than %d ranks", d->dir,
                    GPT_DEEPSPEED_RANKS);
}

/* A directory that lost its last ranks would look like one of fewer. The count
 * is a number, or one for each group. */
static int check_count(const struct gpt_deepspeed *d,
                       const struct gpt_pickle_value *state,
                       struct gpt_err *err)
{
    const struct gpt_pickle_value *v =
        gpt_pickle_find(state, "partition_count");
    struct gpt_pickle_value **list;
    int64_t n, count = d->n_files;

    if (gpt_pickle_sequence(v, &list, &n) && n > 0)
        v = list[0];
    (void)gpt_pickle_int(v, &count);
    if (count == d->n_files)
        return GPT_OK;
    gpt_fail(err, GPT_EDATA,
             "%s: has optimizer states of %lld ranks, its run had %lld", d->dir,
             (long long)d->n_files, (long long)count);
    return gpt_hint(err, "copy the directory of the step whole");
}

/* ---- vectors ---- */

/* A tensor that is one range of its file. */
static int take_flat(const struct gpt_torch *t, const char *what,
                     const struct gpt_pickle_value *v,
                     struct gpt_torch_tensor *out, struct gpt_err *err)
{
    if (!v || !gpt_torch_is_tensor(v))
        return bad_file(t, "its optimizer state is of a kind that is not read",
                        err);
    GPT_TRY(gpt_torch_tensor(t, what, v, out, err));
    if (out->ndim != 1 || !out->tight || !gpt_dtype_is_float(out->dtype))
        return bad_file(t, "a partition that is no flat vector of numbers",
                        err);
    return GPT_OK;
}

/* The moments of a group: state `group` of PyTorch's dict. They may be longer
 * than the weights' vector, by what fills the last rank's part. */
static int take_moments(struct reader *r, const struct gpt_torch *t,
                        const struct gpt_pickle_value *base, int64_t group,
                        struct vector *to, struct gpt_err *err)
{
    const struct gpt_pickle_value *map =
        gpt_pickle_mapping(gpt_pickle_find(base, "state"));
    const struct gpt_pickle_value *key, *value, *state = NULL;
    struct gpt_pickle_value **groups;
    int64_t number, n;

    for (int64_t i = 0; map && i < gpt_pickle_pairs(map); i++) {
        gpt_pickle_pair(map, i, &key, &value);
        if (gpt_pickle_int(key, &number) && number == group)
            state = value;
    }
    if (gpt_pickle_sequence(gpt_pickle_find(base, "param_groups"), &groups,
                            &n) &&
        group < n)
        r->why = gpt_torch_adam_denied(groups[group], &r->d->arena);
    /* another optimizer, or one that is kept by rank in lists (elastic) */
    if (r->why || !gpt_torch_is_adam(state, &r->d->arena, &r->d->beside)) {
        r->optimizer = false;
        return GPT_OK;
    }
    for (int k = GPT_KIND_EXP_AVG; k < GPT_N_ADAM_KINDS; k++) {
        const char *name = gpt_torch_adam_keys[k];

        GPT_TRY(take_flat(t, name, gpt_pickle_find(state, name), &to->kinds[k],
                          err));
        if (to->kinds[k].shape[0] < to->n)
            return bad_file(t, "moments that are shorter than their weights",
                            err);
    }
    GPT_TRY(gpt_deepspeed_take_step(r->d, t, gpt_pickle_find(state, "step"),
                                    err));
    r->optimizer = !r->d->steps_differ;
    return GPT_OK;
}

/* Where weights and moments are, has other names in each stage. */
static int take_rank(struct reader *r, int64_t rank, struct gpt_err *err)
{
    const struct gpt_torch *t = &r->d->files[rank];
    const struct gpt_pickle_value *state =
        gpt_pickle_find(t->root, "optimizer_state_dict");
    const struct gpt_pickle_value *flat =
        gpt_pickle_find(state, "fp32_flat_groups");
    const struct gpt_pickle_value *base =
        gpt_pickle_find(state, flat ? "optimizer_state_dict"
                                    : "base_optimizer_state");
    struct gpt_pickle_value **groups;
    int64_t n;

    /* the first rank's file tells the stage, the others must have the same */
    if (rank == 0)
        r->sharded = flat != NULL;
    if (!flat)
        flat = gpt_pickle_find(state, "single_partition_of_fp32_groups");
    if (!gpt_pickle_sequence(flat, &groups, &n) ||
        r->sharded != (gpt_pickle_find(state, "fp32_flat_groups") != NULL))
        return bad_file(t, "no partitions of ZeRO, stages 1 to 3", err);
    if (rank == 0) {
        GPT_TRY(check_count(r->d, state, err));
        r->n_groups = n;
        GPT_TRY(gpt_new(&r->vectors, (size_t)(n * r->d->n_files),
                        sizeof(*r->vectors), "partitions", err));
    }
    if (n != r->n_groups)
        return bad_file(t, "other groups than the first rank has", err);
    for (int64_t g = 0; g < n; g++) {
        struct vector *to = vector_of(r, rank, g);

        GPT_TRY(take_flat(t, "fp32 weights", groups[g], &to->kinds[0], err));
        to->n = to->kinds[0].shape[0];
        if (r->optimizer)
            GPT_TRY(take_moments(r, t, base, g, to, err));
    }
    return GPT_OK;
}

/* ---- parameters ---- */

/* Elements [from, from + n) of a parameter that begin at element `at` of a
 * rank's vector, of every kind. */
static int add_spans(struct reader *r, struct gpt_deepspeed_param *p,
                     int64_t rank, int64_t group, int64_t at, int64_t from,
                     int64_t n, struct gpt_err *err)
{
    const struct vector *v = vector_of(r, rank, group);

    for (int k = 0; k < (r->optimizer ? GPT_N_ADAM_KINDS : 1); k++) {
        const struct gpt_torch_tensor *t = &v->kinds[k];
        const int64_t size = (int64_t)gpt_dtype_bytes(t->dtype);

        /* the same elements of each: vectors of a group are alike */
        p->kinds[k].dtype = t->dtype;
        GPT_TRY(gpt_tensor_add_span(&p->kinds[k], r->d->files[rank].in,
                                    t->begin + at * size, t->dtype, from,
                                    from + n, err));
    }
    return GPT_OK;
}

/* n elements from *at on in the concatenation of a group's vectors over the
 * ranks: the last one may end in another rank than the first. */
static int cut_group(struct reader *r, struct gpt_deepspeed_param *p,
                     int64_t group, int64_t *at, int64_t n, struct gpt_err *err)
{
    int64_t before = 0, from = 0;

    for (int64_t rank = 0; rank < r->d->n_files && from < n; rank++) {
        const int64_t here = vector_of(r, rank, group)->n;
        const int64_t skip = *at + from - before;

        /* the vector of a rank before the first element is passed over */
        if (skip < here) {
            const int64_t count = gpt_min_i64(here - skip, n - from);

            GPT_TRY(add_spans(r, p, rank, group, skip, from, count, err));
            from += count;
        }
        before += here;
    }
    *at += n;
    return GPT_OK;
}

/* ceil(n / ranks) elements of each rank, from *at on in the concatenation of
 * its groups. */
static int cut_ranks(struct reader *r, struct gpt_deepspeed_param *p,
                     int64_t *at, int64_t n, struct gpt_err *err)
{
    const int64_t part = (n + r->d->n_files - 1) / r->d->n_files;

    for (int64_t rank = 0; rank < r->d->n_files; rank++) {
        const int64_t from = rank * part;
        const int64_t count = gpt_min_i64(part, n - from);
        int64_t group = 0, before = 0;

        while (group < r->n_groups &&
               *at >= before + vector_of(r, rank, group)->n)
            before += vector_of(r, rank, group++)->n;
        /* a parameter is in one group */
        if (count > 0 && (group == r->n_groups ||
                          *at - before + count > vector_of(r, rank, group)->n))
            return bad_file(&r->d->files[rank],
                            "its partitions end before their parameters", err);
        if (count > 0)
            GPT_TRY(add_spans(r, p, rank, group, *at - before, from, count,
                              err));
    }
    *at += part;
    return GPT_OK;
}

/* Fills between parameters, of newer versions; absent: none. */
static int64_t padding_of(const struct gpt_pickle_value *paddings,
                          int64_t group, int64_t i)
{
    struct gpt_pickle_value **list;
    int64_t n, value = 0;

    if (!gpt_pickle_sequence(paddings, &list, &n) || group >= n ||
        !gpt_pickle_sequence(list[group], &list, &n) || i >= n ||
        !gpt_pickle_int(list[i], &value) || value < 0 || value > 1 << 20)
        return 0;
    return value;
}

/* Parameters in the order of the optimizer: a dict for each group. */
static int cut_params(struct reader *r, struct gpt_err *err)
{
    const struct gpt_pickle_value *paddings =
        gpt_pickle_find(gpt_pickle_find(r->d->files[0].root,
                                        "optimizer_state_dict"),
                        "param_alignment_paddings");
    struct gpt_pickle_value **groups;
    const struct gpt_pickle_value *key, *value;
    int64_t n, total = 0, at = 0;

    if (!gpt_pickle_sequence(gpt_pickle_find(r->d->model.root, "param_shapes"),
                             &groups, &n) ||
        (!r->sharded && n != r->n_groups))
        return bad_file(&r->d->model, "no shapes of the parameters", err);
    /* counted first, for the array: a parameter is in one group */
    for (int64_t g = 0; g < n; g++)
        if (gpt_pickle_mapping(groups[g]))
            total += gpt_pickle_pairs(gpt_pickle_mapping(groups[g]));
    total += gpt_deepspeed_count_frozen(r->d);
    GPT_TRY(gpt_new(&r->d->params, (size_t)total, sizeof(*r->d->params),
                    "parameters", err));
    for (int64_t g = 0; g < n; g++) {
        const struct gpt_pickle_value *map = gpt_pickle_mapping(groups[g]);

        /* a vector a group, or one of all groups in stage 3 */
        at = r->sharded ? at : 0;
        for (int64_t i = 0; map && i < gpt_pickle_pairs(map); i++) {
            struct gpt_deepspeed_param *p = &r->d->params[r->d->n];
            int64_t count;

            gpt_pickle_pair(map, i, &key, &value);
            GPT_TRY(
                gpt_deepspeed_read_param(r->d, key, value, p, &count, err));
            r->d->n++;
            GPT_TRY(r->sharded ? cut_ranks(r, p, &at, count, err)
                               : cut_group(r, p, g, &at, count, err));
            at += r->sharded ? 0 : padding_of(paddings, g, i);
        }
    }
    return GPT_OK;
}

/* All ranks' vectors are known before parameters are cut out of them, as a
 * parameter may be in any. */
int gpt_deepspeed_open_zero(struct gpt_deepspeed *d, bool optimizer,
                            struct gpt_err *err)
{
    struct reader r = {.d = d, .optimizer = optimizer};
    int status;

    GPT_TRY(open_ranks(d, err));
    if (d->n_files == 0)
        return gpt_deepspeed_open_whole(d, optimizer, err);
    for (int64_t i = 0; i < d->n_files; i++)
        GPT_TRY_GOTO(status, take_rank(&r, i, err), out);
    if (optimizer && !r.optimizer)
        gpt_warn("%s: its optimizer state is left out: %s", d->dir,
                 r.why             ? r.why
                 : d->steps_differ ? GPT_TORCH_STEPS_DIFFER
                                   : gpt_torch_not_adam(d->beside, &d->arena));
    GPT_TRY_GOTO(status, cut_params(&r, err), out);
    if (r.sharded)
        GPT_TRY_GOTO(status, gpt_deepspeed_add_frozen(d, err), out);
    d->has_optimizer = r.optimizer;
    /* what is not covered was cut off, or is of another run */
    for (int64_t i = 0; i < d->n - d->n_frozen; i++)
        for (int k = 0; k < (r.optimizer ? GPT_N_ADAM_KINDS : 1); k++)
            GPT_TRY_GOTO(status,
                         gpt_tensor_check(&d->params[i].kinds[k], d->dir, err),
                         out);
out:
    gpt_free(r.vectors);
    return status;
}
