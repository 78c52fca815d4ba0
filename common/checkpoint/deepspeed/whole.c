/* Steps without ZeRO, which is stage 0: one file with the model whole, and in
 * it PyTorch's state of the optimizer. Start at gpt_deepspeed_open_whole().
 *
 * That state has numbers where the model has names: parameters are counted in
 * the order of the groups that the optimizer was given. Which number is which
 * name is found out and compared, never guessed: one group has the order of the
 * model; of two groups one has the matrices in that order and the other the
 * vectors, as programs part them for weight decay. All shapes must agree then.
 * Runs of 16 bits also keep weights in fp32, which are those that go on: each
 * must round to the weight of that name, at its two ends. Source: DeepSpeed,
 * runtime/fp16/unfused_optimizer.py and fused_optimizer.py. */
#include "checkpoint/deepspeed/deepspeed.h"

#include "base/log.h"
#include "base/num.h"
#include "checkpoint/huggingface/huggingface.h"
#include "checkpoint/safetensors/entry.h"
#include "checkpoint/source.h"
#include "checkpoint/torch/adam.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct whole {
    struct gpt_deepspeed *d;
    struct gpt_deepspeed_param **order; /* as groups have them */
    int64_t n, n_first;                 /* n_first: in the first group */
    bool *copy, *buffer;                /* of tensors: marks */
    const struct gpt_pickle_value **states; /* of the optimizer, by number */
    const struct gpt_pickle_value *state, *masters, *flat;
    struct gpt_tensor *weights; /* in fp32, as `order`; NULL: there are none */
    struct gpt_pickle_value **groups; /* of the optimizer */
    int64_t n_groups;
    const char *why; /* the state is not read, or NULL */
};

/* ---- weights ---- */

static int compare_places(const void *a, const void *b)
{
    const struct gpt_safetensor *const *x = a, *const *y = b;

    if ((*x)->begin != (*y)->begin)
        return (*x)->begin < (*y)->begin ? -1 : 1;
    return *x < *y ? -1 : *x > *y;
}

/* A tied output layer is in the model's states a second time, and no parameter
 * of its own: of tensors that begin at one place all but the first are marked
 * as copies. Buffers are tensors that are not trained. */
static int mark(struct whole *w, struct gpt_err *err)
{
    const struct gpt_safetensors *st = &w->d->states;
    const struct gpt_safetensor **places;
    struct gpt_pickle_value **names;
    char name[GPT_TORCH_PATH];
    int64_t n = 0;

    GPT_TRY(gpt_new(&w->copy, (size_t)st->n, sizeof(*w->copy), "tensors", err));
    GPT_TRY(gpt_new(&w->buffer, (size_t)st->n, sizeof(*w->buffer), "tensors",
                    err));
    if (!gpt_pickle_sequence(gpt_pickle_find(w->d->model.root, "buffer_names"),
                             &names, &n))
        n = 0;
    for (int64_t i = 0; i < n; i++) {
        const struct gpt_safetensor *e = NULL;

        if (names[i]->kind == GPT_PICKLE_STRING && names[i]->n < sizeof(name)) {
            snprintf(name, sizeof(name), "%.*s", (int)names[i]->n,
                     names[i]->text);
            e = gpt_safetensors_find(st, name);
        }
        if (e)
            w->buffer[e - st->tensors] = true;
    }
    GPT_TRY(gpt_new(&places, (size_t)st->n, sizeof(*places), "tensors", err));
    for (int64_t i = 0; i < st->n; i++)
        places[i] = &st->tensors[i];
    if (st->n)
        qsort(places, (size_t)st->n, sizeof(*places), compare_places);
    for (int64_t i = 1; i < st->n; i++)
        w->copy[places[i] - st->tensors] =
            places[i]->begin == places[i - 1]->begin &&
            places[i]->end == places[i - 1]->end &&
            places[i]->end > places[i]->begin;
    gpt_free(places);
    return GPT_OK;
}

/* A tensor that a model here cannot have, as the masks of old ones, has no
 * pieces: nothing reads it. */
static int add_weight(struct gpt_deepspeed *d, const struct gpt_safetensor *e,
                      struct gpt_err *err)
{
    struct gpt_deepspeed_param *p = &d->params[d->n++];
    const bool fits = e->ndim == 1 || e->ndim == 2;

    p->name = e->name;
    if (e->ndim > GPT_TENSOR_DIMS)
        return gpt_fail(err, GPT_EDATA, "%s: tensor '%.200s' has %d dimensions",
                        gpt_in_path(d->model.in), e->name, e->ndim);
    p->kinds[0] = gpt_tensor_make(e->name, e->dtype, e->ndim, e->shape);
    return fits ? gpt_stored_add(&p->kinds[0], d->model.in, e, err) : GPT_OK;
}

/* Names of entries are those of parameters, which outlive this call. */
static int read_weights(struct whole *w, struct gpt_err *err)
{
    struct gpt_deepspeed *d = w->d;
    const char *file = gpt_in_path(d->model.in);
    const struct gpt_pickle_value *module =
        gpt_pickle_find(d->model.root, "module");

    if (!gpt_pickle_mapping(module)) {
        gpt_fail(err, GPT_EDATA,
                 "%s: no zero_pp_rank_0_mp_rank_00_optim_states.pt, and no "
                 "'module' in %s", d->dir, d->model_file);
        return gpt_hint(err, "steps of ZeRO, stages 0 to 3, are read; those of "
                             "a pipeline can be made a universal checkpoint "
                             "with DeepSpeed's ds_to_universal.py");
    }
    GPT_TRY(gpt_torch_list(&d->states, &d->model, module, err));
    GPT_TRY(gpt_new(&d->params, (size_t)d->states.n, sizeof(*d->params),
                    "parameters", err));
    GPT_TRY(mark(w, err));
    for (int64_t i = 0; i < d->states.n; i++)
        if (!w->copy[i]) {
            w->buffer[d->n] = w->buffer[i]; /* from here on of parameters */
            GPT_TRY(add_weight(d, &d->states.tensors[i], err));
        }
    return gpt_hf_unwrap_names(&d->states, file, err);
}

/* ---- which number is which name ---- */

/* ndim 0: all that are trained, in the order of the model. */
static void put_in_order(struct whole *w, int ndim)
{
    for (int64_t i = 0; i < w->d->n; i++) {
        struct gpt_deepspeed_param *p = &w->d->params[i];

        if ((ndim == 0 || p->kinds[0].ndim == ndim) && !w->buffer[i])
            w->order[w->n++] = p;
    }
}

/* The first vector or matrix that an optimizer has state of tells what its
 * first group holds. Flat vectors tell it by their length. */
static bool matrices_first(const struct whole *w)
{
    struct gpt_torch_tensor t;
    struct gpt_pickle_value **items;
    int64_t n, elements = 0;

    for (int64_t i = 0; i < w->d->n; i++) {
        const struct gpt_tensor *p = &w->d->params[i].kinds[0];

        if (p->ndim == 2)
            elements += p->shape[0] * p->shape[1];
    }
    if (gpt_pickle_sequence(w->flat, &items, &n) && n > 0)
        return gpt_torch_is_tensor(items[0]) &&
               gpt_torch_tensor(&w->d->model, "flat weights", items[0], &t,
                                NULL) == GPT_OK &&
               t.ndim == 1 && t.shape[0] == elements;
    const struct gpt_pickle_value *v = gpt_pickle_find(w->states[0], "exp_avg");
    return v && gpt_torch_is_tensor(v) &&
           gpt_torch_tensor(&w->d->model, "exp_avg", v, &t, NULL) == GPT_OK &&
           t.ndim == 2;
}

/* Values of PyTorch's dict by their numbers, of which there are no more than
 * parameters. */
static int number_states(struct whole *w, struct gpt_err *err)
{
    const struct gpt_pickle_value *key, *value;
    int64_t number;

    GPT_TRY(gpt_new(&w->states, (size_t)w->d->n + 2, sizeof(*w->states),
                    "states", err));
    for (int64_t i = 0; i < gpt_pickle_pairs(w->state); i++) {
        gpt_pickle_pair(w->state, i, &key, &value);
        if (gpt_pickle_int(key, &number) && number >= 0 && number < w->d->n + 2)
            w->states[number] = value;
    }
    return GPT_OK;
}

static int find_order(struct whole *w, struct gpt_err *err)
{
    GPT_TRY(gpt_new(&w->order, (size_t)w->d->n, sizeof(*w->order), "parameters",
                    err));
    if (w->n_groups == 1) {
        put_in_order(w, 0);
        w->n_first = w->n;
    } else if (w->n_groups == 2) {
        const bool first = matrices_first(w);

        put_in_order(w, first ? 2 : 1);
        w->n_first = w->n;
        put_in_order(w, first ? 1 : 2);
    } else {
        w->why = "it has more than two groups of parameters, of which nothing "
                 "says the names";
    }
    return GPT_OK;
}

/* ---- state ---- */

/* A whole tensor of a parameter's shape; *fits is false if it has another. */
static int take_tensor(struct whole *w, const struct gpt_pickle_value *v,
                       struct gpt_deepspeed_param *p, enum gpt_kind kind,
                       bool *fits, struct gpt_err *err)
{
    const struct gpt_tensor *weight = &p->kinds[0];
    struct gpt_file_box box = {.in = w->d->model.in};
    struct gpt_torch_tensor t;

    *fits = false;
    if (!v || !gpt_torch_is_tensor(v))
        return GPT_OK;
    GPT_TRY(gpt_torch_tensor(&w->d->model, p->name, v, &t, err));
    if (t.ndim != weight->ndim || t.dtype == GPT_N_DTYPES)
        return GPT_OK;
    box.offset = t.begin;
    box.dtype = t.dtype;
    for (int k = 0; k < t.ndim; k++) {
        if (t.shape[k] != weight->shape[k])
            return GPT_OK;
        box.shape[k] = t.shape[k];
        box.stride[k] = t.stride[k];
    }
    struct gpt_tensor made =
        gpt_tensor_make(weight->name, t.dtype, t.ndim, t.shape);
    GPT_TRY(gpt_tensor_add(&made, &box, err));
    gpt_tensor_free(&p->kinds[kind]);
    p->kinds[kind] = made;
    *fits = true;
    return GPT_OK;
}

/* Elements from *at on of a group's flat vector. */
static int take_span(struct whole *w, const struct gpt_pickle_value *v,
                     struct gpt_deepspeed_param *p, enum gpt_kind kind,
                     int64_t at, bool *fits, struct gpt_err *err)
{
    const struct gpt_tensor *weight = &p->kinds[0];
    const int64_t n = weight->shape[0] *
                      (weight->ndim == 2 ? weight->shape[1] : 1);
    struct gpt_torch_tensor t;

    *fits = false;
    if (!v || !gpt_torch_is_tensor(v))
        return GPT_OK;
    GPT_TRY(gpt_torch_tensor(&w->d->model, p->name, v, &t, err));
    if (t.ndim != 1 || !t.tight || !gpt_dtype_is_float(t.dtype) ||
        t.shape[0] < at + n)
        return GPT_OK;
    struct gpt_tensor made =
        gpt_tensor_make(weight->name, t.dtype, weight->ndim, weight->shape);
    GPT_TRY(gpt_tensor_add_span(
        &made, w->d->model.in,
        t.begin + at * (int64_t)gpt_dtype_bytes(t.dtype), t.dtype, 0, n, err));
    gpt_tensor_free(&p->kinds[kind]);
    p->kinds[kind] = made;
    *fits = true;
    return GPT_OK;
}

/* True when what is kept in fp32 rounds to the weight that was computed with:
 * the beginnings of its first and of its last row. */
static int compare_master(const struct gpt_tensor *master,
                          const struct gpt_tensor *weight, bool *same,
                          struct gpt_err *err)
{
    enum { MOST = 256 };
    const bool matrix = weight->ndim == 2;
    const int64_t ends[] = {0, weight->shape[0] - 1};
    char a[MOST * 8], b[MOST * 8];

    *same = true;
    for (int i = 0; *same && weight->shape[0] > 0 && i < (matrix ? 2 : 1);
         i++) {
        const int64_t begin[GPT_TENSOR_DIMS] = {ends[i]};
        const int64_t box[GPT_TENSOR_DIMS] = {
            matrix ? 1 : gpt_min_i64(weight->shape[0], MOST),
            gpt_min_i64(weight->shape[1], MOST)};
        const size_t n = (size_t)(matrix ? box[1] : box[0]) *
                         gpt_dtype_bytes(weight->dtype);

        GPT_TRY(
            gpt_tensor_gather(master, begin, box, weight->dtype, a, err));
        GPT_TRY(
            gpt_tensor_gather(weight, begin, box, weight->dtype, b, err));
        *same = memcmp(a, b, n) == 0;
    }
    return GPT_OK;
}

/* Item i of list `group` of a list of lists. */
static const struct gpt_pickle_value *
item_of(const struct gpt_pickle_value *lists, int64_t group, int64_t i)
{
    struct gpt_pickle_value **items;
    int64_t n;

    if (!gpt_pickle_sequence(lists, &items, &n) || group >= n ||
        (i >= 0 && (!gpt_pickle_sequence(items[group], &items, &n) || i >= n)))
        return NULL;
    return items[i >= 0 ? i : group];
}

/* The moments and, of runs of 16 bits, the weights of parameter i in the order
 * of the optimizer; at: elements of its group before it. */
static int take_param(struct whole *w, int64_t i, int64_t at, bool *fits,
                      struct gpt_err *err)
{
    struct gpt_deepspeed_param *p = w->order[i];
    const int64_t group = i >= w->n_first;
    const int64_t inside = i - (group ? w->n_first : 0);
    const struct gpt_pickle_value *state = w->states[w->flat ? group : i];

    *fits = true;
    for (int k = GPT_KIND_EXP_AVG; *fits && k < GPT_N_ADAM_KINDS; k++) {
        const struct gpt_pickle_value *v =
            gpt_pickle_find(state, gpt_torch_adam_keys[k]);

        GPT_TRY(w->flat ? take_span(w, v, p, (enum gpt_kind)k, at, fits, err)
                        : take_tensor(w, v, p, (enum gpt_kind)k, fits, err));
    }
    if (*fits)
        GPT_TRY(gpt_torch_step(&w->d->model, state, i == 0, &w->d->step,
                               &w->why, err));
    if (!*fits || !w->weights)
        return GPT_OK;
    struct gpt_deepspeed_param master = {.name = p->name};
    master.kinds[0] = p->kinds[0];
    master.kinds[0].pieces = NULL;
    master.kinds[0].n = master.kinds[0].cap = 0;
    int status =
        w->flat ? take_span(w, item_of(w->flat, group, -1), &master,
                            GPT_KIND_PARAMETERS, at, fits, err)
                : take_tensor(w, item_of(w->masters, group, inside), &master,
                              GPT_KIND_PARAMETERS, fits, err);
    if (status == GPT_OK && *fits)
        status = compare_master(&master.kinds[0], &p->kinds[0], fits, err);
    w->weights[i] = master.kinds[0];
    return status;
}

/* Weights in fp32 take the places of those that were computed with where all
 * of the state is read: some of each kind would be another model. */
static void settle_weights(struct whole *w)
{
    for (int64_t i = 0; w->weights && i < w->n; i++) {
        struct gpt_tensor *own = &w->order[i]->kinds[0];
        const struct gpt_tensor computed = *own;

        if (w->d->has_optimizer) {
            *own = w->weights[i];
            w->weights[i] = computed;
        }
        gpt_tensor_free(&w->weights[i]);
    }
    gpt_free(w->weights);
}

static int read_state(struct whole *w, struct gpt_err *err)
{
    int64_t at = 0;

    GPT_TRY(number_states(w, err));
    if (!gpt_torch_is_adam(w->states[0], &w->d->arena, &w->d->beside)) {
        w->why = gpt_torch_not_adam(w->d->beside, &w->d->arena);
        return GPT_OK;
    }
    for (int64_t i = 0; !w->why && i < w->n_groups; i++)
        w->why = gpt_torch_adam_denied(w->groups[i], &w->d->arena);
    if (w->why)
        return GPT_OK;
    GPT_TRY(find_order(w, err));
    if (w->flat || w->masters)
        GPT_TRY(gpt_new(&w->weights, (size_t)w->d->n, sizeof(*w->weights),
                        "weights in fp32", err));
    if (!w->why && !w->flat && gpt_pickle_pairs(w->state) != w->n)
        w->why = "not every parameter has moments of Adam";
    for (int64_t i = 0; !w->why && i < w->n; i++) {
        const struct gpt_tensor *t = &w->order[i]->kinds[0];
        const int64_t n = t->shape[0] * (t->ndim == 2 ? t->shape[1] : 1);
        bool fits;

        if (i == w->n_first)
            at = 0;
        GPT_TRY(take_param(w, i, at, &fits, err));
        at += n;
        if (!fits)
            w->why = "its parameters are in another order than those of the "
                     "model";
    }
    return GPT_OK;
}

/* Where the optimizer is wrapped, its state has keys of its own. */
static void find_state(struct whole *w)
{
    const struct gpt_pickle_value *all =
        gpt_pickle_find(w->d->model.root, "optimizer");
    const struct gpt_pickle_value *base =
        gpt_pickle_find(all, "optimizer_state_dict");

    w->masters = gpt_pickle_find(all, "fp32_groups");
    w->flat = gpt_pickle_find(all, "fp32_groups_flat");
    base = base ? base : all;
    w->state = gpt_pickle_mapping(gpt_pickle_find(base, "state"));
    if (!gpt_pickle_mapping(all))
        w->why = "there is none";
    else if (!w->state || !gpt_pickle_sequence(
                              gpt_pickle_find(base, "param_groups"),
                              &w->groups, &w->n_groups))
        w->why = "it is of a kind that is not read";
}

/* Weights of 16 bits are those that were computed with: better ones are in the
 * state, and are read with it. */
int gpt_deepspeed_open_whole(struct gpt_deepspeed *d, bool optimizer,
                             struct gpt_err *err)
{
    struct whole w = {.d = d};
    int status;

    GPT_TRY_GOTO(status, read_weights(&w, err), out);
    if (!optimizer)
        goto out;
    find_state(&w);
    if (!w.why)
        GPT_TRY_GOTO(status, read_state(&w, err), out);
    if (w.why)
        gpt_warn("%s: its optimizer state%s left out: %s", d->dir,
                 w.masters || w.flat ? " and its weights in fp32 are" : " is",
                 w.why);
    d->has_optimizer = !w.why;
out:
    settle_weights(&w);
    gpt_free(w.order);
    gpt_free(w.states);
    gpt_free(w.copy);
    gpt_free(w.buffer);
    return status;
}
