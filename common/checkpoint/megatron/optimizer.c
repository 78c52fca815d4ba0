/* Optimizer state of a Megatron checkpoint, as mixed precision without a
 * distributed optimizer keeps it: Adam's moments by the number of a parameter,
 * and fp32 copies of weights in a list; that of a distributed optimizer is in
 * shards.c. Start at gpt_megatron_read_optimizer().
 *
 * Numbers have no names. They count the parameters of the groups, one group
 * after the other, and a group has its parameters in the order of the model,
 * which is the order of its state dict. Groups are those with weight decay
 * (matrices) and without (biases and norms). So the order of a group is guessed
 * and then compared with the shape of every moment; what does not fit is left
 * out as a whole, with a warning. */
#include "checkpoint/megatron/megatron.h"

#include "base/log.h"

#include <string.h>

/* A parameter of a rank: tensor `index` of a chunk. */
struct place {
    struct gpt_megatron_chunk *chunk;
    int64_t index;
};

/* The state of one rank while it is read. Where ranks share experts there are
 * two optimizers: the second has the experts of the rank. */
struct reader {
    struct gpt_megatron *m;
    struct gpt_megatron_rank *rank;
    struct place *places; /* parameters, in the order of the file */
    struct place *subset; /* of one group */
    int64_t n_places, taken;
    int64_t chain, chains; /* which one of how many is read */
    const struct gpt_pickle_value **states; /* by the number of a parameter */
    int64_t n_states;
};

/* Which parameters are in a group. */
enum subset { DECAYED, NOT_DECAYED, ALL, N_SUBSETS };

static bool is_decayed(const struct gpt_safetensor *t)
{
    const size_t n = strlen(t->name);

    return t->ndim > 1 && !(n > 5 && strcmp(t->name + n - 5, ".bias") == 0);
}

int gpt_megatron_make_states(struct gpt_megatron_chunk *c, struct gpt_err *err)
{
    for (int k = 0; k < GPT_MEGATRON_STATES; k++)
        GPT_TRY(gpt_new(&c->state[k], (size_t)c->tensors.n,
                        sizeof(*c->state[k]), "optimizer state", err));
    return GPT_OK;
}

/* Chunks follow each other, as the optimizer is given all of a rank's. The tied
 * copy of the word table on the last stage is a parameter of its own there. */
static int list_places(struct reader *r, struct gpt_err *err)
{
    int64_t most = 0;

    for (int64_t v = 0; v < r->rank->n_chunks; v++)
        most += r->rank->chunks[v].tensors.n;
    GPT_TRY(gpt_new(&r->places, (size_t)most, sizeof(*r->places), "parameters",
                    err));
    GPT_TRY(gpt_new(&r->subset, (size_t)most, sizeof(*r->subset), "parameters",
                    err));
    for (int64_t v = 0; v < r->rank->n_chunks; v++) {
        struct gpt_megatron_chunk *c = &r->rank->chunks[v];

        GPT_TRY(gpt_megatron_make_states(c, err));
        for (int64_t i = 0; i < c->tensors.n; i++)
            if (gpt_megatron_is_parameter(c->tensors.tensors[i].name))
                r->places[r->n_places++] = (struct place){c, i};
    }
    return GPT_OK;
}

/* The dict of states as an array. Numbers beyond its pairs are no writer's. */
static int list_states(struct reader *r, const struct gpt_pickle_value *state,
                       struct gpt_err *err)
{
    const struct gpt_pickle_value *key, *value;
    const struct gpt_pickle_value *map = gpt_pickle_mapping(state);
    int64_t number;

    r->n_states = map ? gpt_pickle_pairs(map) : 0;
    GPT_TRY(gpt_new(&r->states, (size_t)r->n_states, sizeof(*r->states),
                    "optimizer state", err));
    for (int64_t i = 0; i < r->n_states; i++) {
        gpt_pickle_pair(map, i, &key, &value);
        if (gpt_pickle_int(key, &number) && number >= 0 && number < r->n_states)
            r->states[number] = value; /* of equal ones the last */
    }
    return GPT_OK;
}

/* Fills r->subset; the order of the file stays. Returns how many there are,
 * which alone excludes most wrong guesses. */
static int64_t choose_subset(struct reader *r, enum subset which)
{
    int64_t n = 0;

    for (int64_t i = 0; i < r->n_places; i++) {
        const struct place *p = &r->places[i];
        const struct gpt_safetensor *t = &p->chunk->tensors.tensors[p->index];
        const bool decayed = is_decayed(t);

        if (r->chains > 1 &&
            gpt_megatron_names_expert(t->name) != (r->chain == 1))
            continue;
        if (which == ALL || decayed == (which == DECAYED))
            r->subset[n++] = *p;
    }
    return n;
}

/* A tensor of the state at a parameter's place; false when its shape is not the
 * parameter's. */
static int take_state(struct reader *r, const struct gpt_pickle_value *v,
                      const struct place *p, int kind, bool *fits,
                      struct gpt_err *err)
{
    const struct gpt_safetensor *param = &p->chunk->tensors.tensors[p->index];
    struct gpt_safetensor *to = &p->chunk->state[kind][p->index];
    struct gpt_torch_tensor t;

    *fits = false;
    if (!v || !gpt_torch_is_tensor(v))
        return GPT_OK;
    GPT_TRY(gpt_torch_tensor(&r->rank->torch, param->name, v, &t, err));
    /* flat buffers of distributed optimizers fail here, too */
    if (t.ndim != param->ndim || !gpt_dtype_is_float(t.dtype) ||
        memcmp(t.shape, param->shape, sizeof(*t.shape) * (size_t)t.ndim) != 0)
        return GPT_OK;
    *to = (struct gpt_safetensor){
        .name = param->name,
        .dtype = t.dtype,
        .ndim = t.ndim,
        .begin = t.begin,
        .end = t.end,
    };
    memcpy(to->shape, t.shape, sizeof(to->shape));
    if (!t.tight) {
        int64_t *strides = gpt_arena_alloc(&r->m->arena, 1, sizeof(t.stride));

        if (!strides)
            return gpt_no_memory(err, "optimizer state");
        memcpy(strides, t.stride, sizeof(t.stride));
        to->strides = strides;
    }
    *fits = true;
    return GPT_OK;
}

/* Tries one order for a group. `masters` is the group's list of fp32 copies, or
 * NULL when weights are fp32 themselves. */
static int try_subset(struct reader *r, struct gpt_pickle_value **numbers,
                      int64_t n, const struct gpt_pickle_value *masters,
                      bool *fits, struct gpt_err *err)
{
    static const char *const keys[] = {"exp_avg", "exp_avg_sq"};
    struct gpt_pickle_value **copies = NULL;
    int64_t n_copies = 0, number;

    *fits = !masters ||
            (gpt_pickle_sequence(masters, &copies, &n_copies) && n_copies == n);
    for (int64_t i = 0; *fits && i < n; i++) {
        if (!gpt_pickle_int(numbers[i], &number) || number < 0 ||
            number >= r->n_states)
            *fits = false;
        for (int k = 0; *fits && k < 2; k++)
            GPT_TRY(take_state(r, gpt_pickle_find(r->states[number], keys[k]),
                               &r->subset[i], k, fits, err));
        if (*fits && masters)
            GPT_TRY(take_state(r, copies[i], &r->subset[i], GPT_MEGATRON_MASTER,
                               fits, err));
    }
    return GPT_OK;
}

/* Adam's count of steps, which the group has in Apex and Transformer Engine,
 * and each parameter in PyTorch, where it is a tensor. */
static int read_step(struct reader *r, const struct gpt_pickle_value *group,
                     const struct gpt_pickle_value *state, struct gpt_err *err)
{
    const struct gpt_pickle_value *v = gpt_pickle_find(group, "step");
    int64_t step;

    GPT_TRY(gpt_torch_count(&r->rank->torch,
                            v ? v : gpt_pickle_find(state, "step"), &step,
                            err));
    if (step < 0)
        return GPT_OK;
    r->m->steps_differ |= r->m->counted && step != r->m->step;
    r->m->counted = true;
    r->m->step = step;
    return GPT_OK;
}

/* Each group must fit one of the subsets; each parameter is in a group. */
static int read_groups(struct reader *r, const struct gpt_pickle_value *groups,
                       const struct gpt_pickle_value *masters, bool *fits,
                       struct gpt_err *err)
{
    struct gpt_pickle_value **list, **numbers, **copies = NULL;
    int64_t n_groups, n, number, n_copies = 0;
    unsigned used = 0; /* subsets, of which each is one group's */

    *fits = gpt_pickle_sequence(groups, &list, &n_groups) &&
            (!masters || gpt_pickle_sequence(masters, &copies, &n_copies)) &&
            (!masters || n_copies == n_groups);
    for (int64_t g = 0; *fits && g < n_groups; g++) {
        const struct gpt_pickle_value *params =
            gpt_pickle_find(list[g], "params");

        *fits = false;
        if (!gpt_pickle_sequence(params, &numbers, &n))
            return GPT_OK;
        *fits = n == 0;
        for (int s = 0; !*fits && s < N_SUBSETS; s++) {
            const unsigned mask = s == ALL ? ~0U : 1U << s;

            if (used & mask || choose_subset(r, (enum subset)s) != n)
                continue;
            GPT_TRY(try_subset(r, numbers, n, masters ? copies[g] : NULL, fits,
                               err));
            used |= *fits ? mask : 0;
        }
        r->taken += n;
        if (*fits && n > 0 && gpt_pickle_int(numbers[0], &number))
            GPT_TRY(read_step(r, list[g], r->states[number], err));
    }
    return GPT_OK;
}

/* A run in mixed precision wraps the optimizer: its state dict is inside
 * another, with the copies of weights beside it. */
static int read_chain(struct reader *r, const struct gpt_pickle_value *outer,
                      bool *fits, struct gpt_err *err)
{
    const struct gpt_pickle_value *inner = gpt_pickle_find(outer, "optimizer");
    const struct gpt_pickle_value *masters =
        gpt_pickle_find(outer, "fp32_from_fp16_params");

    if (!inner) /* of a run in fp32: no wrapper around PyTorch's own dict */
        inner = outer;
    gpt_free(r->states);
    r->states = NULL;
    GPT_TRY(list_states(r, gpt_pickle_find(inner, "state"), err));
    return read_groups(r, gpt_pickle_find(inner, "param_groups"), masters, fits,
                       err);
}

static int read_rank(struct reader *r, bool *fits, struct gpt_err *err)
{
    const struct gpt_pickle_value *outer =
        gpt_pickle_find(r->rank->torch.root, "optimizer");
    struct gpt_pickle_value **list;

    GPT_TRY(list_places(r, err));
    r->chains = 1;
    *fits = true;
    if (!gpt_pickle_sequence(outer, &list, &r->chains))
        GPT_TRY(read_chain(r, outer, fits, err));
    else
        for (; *fits && r->chain < r->chains; r->chain++)
            GPT_TRY(read_chain(r, list[r->chain], fits, err));
    /* a parameter without moments would stay at zero and drift */
    *fits = *fits && r->taken == r->n_places;
    return GPT_OK;
}

/* In torch_dist a chain is a dict with numbers for keys. */
const struct gpt_pickle_value *
gpt_megatron_optimizer(const struct gpt_pickle_value *root)
{
    const struct gpt_pickle_value *v = gpt_pickle_find(root, "optimizer");
    const struct gpt_pickle_value *map = gpt_pickle_mapping(v), *key, *value;
    struct gpt_pickle_value **list;
    int64_t n, number;

    if (gpt_pickle_sequence(v, &list, &n) && n > 0)
        return list[0];
    for (int64_t i = 0; map && i < gpt_pickle_pairs(map); i++) {
        gpt_pickle_pair(map, i, &key, &value);
        if (key->kind == GPT_PICKLE_INT && gpt_pickle_int(key, &number) &&
            number == 0)
            return value;
    }
    return v;
}

/* State that is in a file of its own has no numbers of parameters in the
 * model's; the groups there have the step. */
static int read_sharded(struct reader *r, int64_t rank, bool *found, bool *fits,
                        struct gpt_err *err)
{
    const struct gpt_pickle_value *outer =
        gpt_megatron_optimizer(r->rank->torch.root);
    struct gpt_pickle_value **list;
    int64_t n;

    GPT_TRY(gpt_megatron_read_shards(r->m, rank, found, fits, err));
    if (!*found)
        return GPT_OK;
    outer = gpt_pickle_find(gpt_pickle_find(outer, "optimizer"),
                            "param_groups");
    if (gpt_pickle_sequence(outer, &list, &n) && n > 0)
        return read_step(r, list[0], NULL, err);
    return GPT_OK;
}

/* One rank's state, in the one way or the other. */
static int read_any(struct gpt_megatron *m, int64_t rank, bool *fits,
                    struct gpt_err *err)
{
    struct reader r = {.m = m, .rank = &m->ranks[rank]};
    bool found = false;
    int status = read_sharded(&r, rank, &found, fits, err);

    if (status == GPT_OK && !found) {
        r.rank->state_in = r.rank->torch.in;
        status = read_rank(&r, fits, err);
    }
    gpt_free(r.places);
    gpt_free(r.subset);
    gpt_free(r.states);
    return status;
}

/* Tensors of torch_dist have names, or buckets; the step is left to read. With
 * buckets it is in an object of its own, and taken to be the iteration. */
static int read_dist(struct gpt_megatron *m, struct gpt_err *err)
{
    struct reader r = {.m = m, .rank = &m->ranks[0]};
    const struct gpt_pickle_value *outer =
        gpt_megatron_optimizer(r.rank->torch.root);
    const struct gpt_pickle_value *inner = gpt_pickle_find(outer, "optimizer");
    struct gpt_pickle_value **list;
    bool other, buckets, fits;
    int64_t n;

    m->has_optimizer = gpt_megatron_dist_has_optimizer(m, &other);
    if (!m->has_optimizer && other) {
        GPT_TRY(gpt_megatron_read_buckets(m, &buckets, &fits, err));
        m->has_optimizer = fits;
        if (!fits)
            gpt_warn("%s: its optimizer state is left out: %s; Megatron-LM "
                     "writes names with dist-ckpt-optim-fully-reshardable",
                     m->dir,
                     buckets ? "its buckets are not those of its model"
                             : "it has no names of parameters");
    }
    if (!inner)
        inner = outer;
    if (gpt_pickle_sequence(gpt_pickle_find(inner, "param_groups"), &list,
                            &n) &&
        n > 0)
        GPT_TRY(read_step(&r, list[0], gpt_pickle_find(inner, "state"), err));
    return GPT_OK;
}

/* True when the rank that gives a tensor has its state: a distributed optimizer
 * has it in the file of one of those that have the tensor. */
static bool has_state(const struct gpt_megatron *m, int64_t rank)
{
    const int64_t tp = rank % m->tp_size, pp = rank / m->tp_size % m->pp_size;
    const int64_t ep = rank / (m->tp_size * m->pp_size);
    const struct gpt_megatron_rank *r = &m->ranks[rank];

    for (int64_t v = 0; v < r->n_chunks; v++)
        for (int64_t i = 0; i < r->chunks[v].tensors.n; i++) {
            const char *name = r->chunks[v].tensors.tensors[i].name;
            const struct gpt_megatron_rank *gives =
                gpt_megatron_names_expert(name)
                    ? gpt_megatron_expert_rank(m, ep, pp, tp % m->etp_size)
                    : gpt_megatron_rank(m, pp, tp);

            if (r == gives && gpt_megatron_is_parameter(name) &&
                !r->chunks[v].state[GPT_MEGATRON_EXP_AVG][i].name)
                return false;
        }
    return true;
}

/* `rank` is the first whose state does not fit. That a file should be there
 * follows from an argument, or from the file of the first rank. */
static void warn_left_out(const struct gpt_megatron *m, int64_t rank)
{
    const struct gpt_megatron_rank *r = &m->ranks[rank];
    const struct gpt_pickle_value *args =
        gpt_pickle_find(m->ranks[0].torch.root, "args");

    if (!r->shards.root &&
        (m->ranks[0].shards.root ||
         gpt_megatron_flag(args, "use_distributed_optimizer", false)))
        gpt_warn("%s: its optimizer state is left out: %s is missing beside %s",
                 m->dir, GPT_MEGATRON_SHARDS, r->file);
    else
        gpt_warn("%s: its optimizer state is left out: it is neither that of a "
                 "mixed precision optimizer with one group for matrices and "
                 "one for biases and norms, nor that of a distributed "
                 "optimizer since 2024",
                 m->dir);
}

/* A rank whose state does not fit ends the attempt for all: half of it is no
 * state. */
int gpt_megatron_read_optimizer(struct gpt_megatron *m, struct gpt_err *err)
{
    bool fits = true;

    if (!gpt_pickle_find(m->ranks[0].torch.root, "optimizer"))
        return GPT_OK;
    /* what counts is a number that the optimizer has; steps that were skipped
     * are in the iteration, not in it */
    m->step = m->iteration;
    if (m->dist)
        return read_dist(m, err);
    for (int64_t i = 0; fits && i < gpt_megatron_ranks(m); i++) {
        if (!m->ranks[i].file)
            continue;
        GPT_TRY(read_any(m, i, &fits, err));
        fits = fits && has_state(m, i);
        if (!fits)
            warn_left_out(m, i);
    }
    if (fits && m->steps_differ)
        gpt_warn("%s: its optimizer state is left out: %s", m->dir,
                 GPT_TORCH_STEPS_DIFFER);
    m->has_optimizer = fits && !m->steps_differ;
    return GPT_OK;
}
