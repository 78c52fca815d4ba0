/* State of Megatron-LM's distributed optimizer: distrib_optim.pt beside a
 * rank's file. Its tensors are flat buffers, in which parameters have no names:
 * a parameter's place follows from the order and the sizes of all. Start at
 * gpt_megatron_read_shards(). Source: core/distributed/param_and_grad_buffer.py
 * and core/optimizer/distrib_optimizer.py of Megatron-LM, since February 2024.
 *
 * A buffer has a chunk's parameters from the last to the first, each at a
 * multiple of 64 elements of its bucket. Buckets follow each other without what
 * fills their ends in memory. So where a bucket ends moves what follows, and
 * this depends on options of the run; the number of elements, which is in the
 * file, tells whether a guess was right. */
#include "checkpoint/megatron/megatron.h"

#include "base/num.h"

#include <string.h>

enum { ALIGN = 64 };

/* Where parameters begin in a buffer, and how long it is. */
struct layout {
    int64_t *offsets; /* one a tensor of the chunk; -1: none */
    int64_t elements;
};

static const char *const keys[GPT_MEGATRON_STATES] = {
    [GPT_MEGATRON_EXP_AVG] = "exp_avg",
    [GPT_MEGATRON_EXP_AVG_SQ] = "exp_avg_sq",
    [GPT_MEGATRON_MASTER] = "param",
};

/* Sizes of parameters are those of the model's file. */
static int64_t count_elements(const struct gpt_safetensor *t)
{
    int64_t n = 1;

    /* the shape of a tensor that is in a file, so it does not overflow */
    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    return n;
}

/* A tied word table of a pipeline, of which both ends have a copy, is a bucket
 * of its own. */
static bool is_shared(const struct gpt_megatron *m, const char *name)
{
    return m->pp_size > 1 && m->config.tied_embeddings &&
           (strstr(name, "word_embeddings") ||
            strcmp(name, "output_layer.weight") == 0);
}

/* Where ranks share experts, these have buffers of their own: the second of a
 * chain of two optimizers. */
static bool is_in_chain(const struct gpt_megatron *m, int64_t chain,
                        const char *name)
{
    return gpt_megatron_is_parameter(name) &&
           (m->ep_size == 1 || gpt_megatron_names_expert(name) == (chain == 1));
}

/* Places in the buffer of a chunk. bucket_size: elements after which a bucket
 * ends; 0: never. */
static void lay_out(const struct gpt_megatron *m,
                    const struct gpt_megatron_chunk *c, int64_t chain,
                    int64_t bucket_size, struct layout *out)
{
    int64_t at = 0, bucket = 0;
    bool empty = true;

    for (int64_t i = c->tensors.n - 1; i >= 0; i--) {
        const struct gpt_safetensor *t = &c->tensors.tensors[i];
        const bool shared = is_shared(m, t->name);

        out->offsets[i] = -1;
        if (!is_in_chain(m, chain, t->name))
            continue;
        at = bucket + gpt_round_up(at - bucket, ALIGN);
        if (shared && !empty)
            bucket = at;
        out->offsets[i] = at;
        at += count_elements(t);
        empty = shared || (bucket_size > 0 && at - bucket >= bucket_size);
        if (empty)
            bucket = at;
    }
    out->elements = at;
}

/* Buckets end early only where gradients are reduced during the backward pass,
 * and there in the first chunk of the first stage alone. */
static int64_t guess_bucket_size(const struct gpt_megatron *m, int64_t pp,
                                 int64_t v)
{
    const struct gpt_pickle_value *args =
        gpt_pickle_find(m->ranks[0].torch.root, "args");
    int64_t replicas = 1, size = 0;

    if (!gpt_megatron_flag(args, "overlap_grad_reduce", false) || pp || v)
        return 0;
    gpt_megatron_int(args, "data_parallel_size", &replicas);
    gpt_megatron_int(args, "ddp_bucket_size", &size);
    if (size > 0)
        return size;
    /* its default; more replicas than that are no run's */
    replicas = gpt_max_i64(1, gpt_min_i64(replicas, 1 << 20));
    return gpt_max_i64(40000000, 1000000 * replicas);
}

/* The states of a chunk as parts of the three buffers. */
static int take_buffers(struct gpt_megatron_rank *r,
                        struct gpt_megatron_chunk *c,
                        const struct layout *layout,
                        const struct gpt_pickle_value *buffers, bool *fits,
                        struct gpt_err *err)
{
    const int64_t size = (int64_t)gpt_dtype_bytes(GPT_F32);

    /* all three have the same length and layout, or none is taken */
    for (int k = 0; k < GPT_MEGATRON_STATES; k++) {
        const struct gpt_pickle_value *v = gpt_pickle_find(buffers, keys[k]);
        struct gpt_torch_tensor t;

        *fits = false;
        if (!v || !gpt_torch_is_tensor(v))
            return GPT_OK;
        GPT_TRY(gpt_torch_tensor(&r->shards, keys[k], v, &t, err));
        if (t.dtype != GPT_F32 || t.ndim != 1 || !t.tight ||
            t.shape[0] != layout->elements)
            return GPT_OK;
        for (int64_t i = 0; i < c->tensors.n; i++) {
            const struct gpt_safetensor *param = &c->tensors.tensors[i];
            struct gpt_safetensor *to = &c->state[k][i];

            if (layout->offsets[i] < 0)
                continue;
            /* a parameter's shape, in row-major order, in the buffer's file;
             * the length was compared, so that it ends inside */
            *to = *param;
            to->dtype = GPT_F32;
            to->strides = NULL;
            to->begin = t.begin + layout->offsets[i] * size;
            to->end = to->begin + count_elements(param) * size;
        }
    }
    *fits = true;
    return GPT_OK;
}

/* One buffer, in a dict by the types of parameters and gradients, of which
 * there is one pair. */
static int read_chunk(struct gpt_megatron *m, struct gpt_megatron_rank *r,
                      int64_t pp, int64_t v, int64_t chain,
                      const struct gpt_pickle_value *by_type, bool *fits,
                      struct gpt_err *err)
{
    struct gpt_megatron_chunk *c = &r->chunks[v];
    const struct gpt_pickle_value *key, *buffers;
    const int64_t guesses[] = {guess_bucket_size(m, pp, v), 0};
    struct layout layout = {0};
    int64_t elements = -1;

    *fits = false;
    by_type = gpt_pickle_mapping(by_type);
    if (!by_type || gpt_pickle_pairs(by_type) != 1)
        return GPT_OK;
    gpt_pickle_pair(by_type, 0, &key, &buffers);
    (void)gpt_pickle_int(gpt_pickle_find(buffers, "numel_unpadded"), &elements);
    GPT_TRY(gpt_new(&layout.offsets, (size_t)c->tensors.n,
                    sizeof(*layout.offsets), "optimizer state", err));
    /* the second guess is right for runs whose arguments are lost */
    int status = GPT_OK;
    for (size_t i = 0; status == GPT_OK && !*fits && i < GPT_COUNT(guesses);
         i++) {
        lay_out(m, c, chain, guesses[i], &layout);
        if (layout.elements == elements)
            status = take_buffers(r, c, &layout, buffers, fits, err);
    }
    gpt_free(layout.offsets);
    return status;
}

static bool has_parameters(const struct gpt_megatron *m,
                           const struct gpt_megatron_chunk *c, int64_t chain)
{
    for (int64_t i = 0; i < c->tensors.n; i++)
        if (is_in_chain(m, chain, c->tensors.tensors[i].name))
            return true;
    return false;
}

/* The buffers are numbered as chunks are. */
static int read_chain(struct gpt_megatron *m, struct gpt_megatron_rank *r,
                      int64_t pp, int64_t chain,
                      const struct gpt_pickle_value *root, bool *fits,
                      struct gpt_err *err)
{
    const struct gpt_pickle_value *key, *value;
    int64_t number;

    /* older files have a list of buckets, in an order of their own */
    *fits = gpt_megatron_flag(root, "buckets_coalesced", false);
    root = gpt_pickle_mapping(root);
    for (int64_t v = 0; *fits && v < r->n_chunks; v++) {
        /* not every layer has experts */
        *fits = !has_parameters(m, &r->chunks[v], chain);
        for (int64_t i = 0; !*fits && i < gpt_pickle_pairs(root); i++) {
            gpt_pickle_pair(root, i, &key, &value);
            if (key->kind == GPT_PICKLE_INT && gpt_pickle_int(key, &number) &&
                number == v)
                GPT_TRY(read_chunk(m, r, pp, v, chain, value, fits, err));
        }
    }
    return GPT_OK;
}

/* Optimizers that are chained are a list. One is None where another rank has
 * its state, or, of experts that no ranks share, where there is none. */
static int read_rank(struct gpt_megatron *m, struct gpt_megatron_rank *r,
                     int64_t pp, bool *fits, struct gpt_err *err)
{
    const struct gpt_pickle_value *root = r->shards.root;
    struct gpt_pickle_value **list;
    int64_t n;

    for (int64_t v = 0; v < r->n_chunks; v++)
        GPT_TRY(gpt_megatron_make_states(&r->chunks[v], err));
    if (!gpt_pickle_sequence(root, &list, &n) || n < 1)
        return read_chain(m, r, pp, 0, root, fits, err);
    *fits = m->ep_size == 1 || n == 2;
    for (int64_t i = 0; *fits && i < (m->ep_size == 1 ? 1 : n); i++)
        if (m->ep_size == 1 || list[i]->kind != GPT_PICKLE_NONE)
            GPT_TRY(read_chain(m, r, pp, i, list[i], fits, err));
    return GPT_OK;
}

/* The file beside that of the model; the step is in the model's file. */
int gpt_megatron_read_shards(struct gpt_megatron *m, int64_t rank, bool *found,
                             bool *fits, struct gpt_err *err)
{
    struct gpt_megatron_rank *r = &m->ranks[rank];
    char path[GPT_PATH_BYTES];

    *found = *fits = false;
    GPT_TRY(gpt_path_join(path, sizeof(path), m->dir, r->file, err));
    /* names of ranks' files have a directory */
    const size_t room = sizeof(path) - (size_t)(strrchr(path, '/') + 1 - path);
    if (strlen(GPT_MEGATRON_SHARDS) >= room)
        return GPT_OK;
    memcpy(strrchr(path, '/') + 1, GPT_MEGATRON_SHARDS,
           sizeof(GPT_MEGATRON_SHARDS));
    if (!gpt_path_exists(path))
        return GPT_OK;
    *found = true;
    GPT_TRY(gpt_torch_open(&r->shards, path, err));
    r->state_in = r->shards.in;
    return read_rank(m, r, rank / m->tp_size % m->pp_size, fits, err);
}
