/* Squared norms for the gradient noise scale; see noise.h. The sums of a
 * bucket's matrices are made when backward has completed it for the first time
 * in a step: its memory then holds the first microbatch alone, and the reducer,
 * whose hook is called next, has not yet begun to add other ranks'. */
#include "train/noise.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

struct gpt_noise {
    struct gpt_noise_options o;
    struct gpt_backend *be;
    bool *seen;         /* by bucket: in this step */
    double *sums;       /* device: (2, slices), of the microbatch, of all */
    double *host;       /* the same, pinned */
};

/* Tied tables, norms, biases, routers and what latent attention makes heads of
 * have parts of their gradients on several ranks until these are summed; other
 * matrices of layers do not. */
static bool is_measured(const struct gpt_slice *s)
{
    return s->param->place == GPT_PLACE_LAYER && s->param->decay &&
           !s->param->heads_sum;
}

int64_t gpt_noise_memory(const struct gpt_flat *flat)
{
    return 2 * flat->n * (int64_t)sizeof(double);
}

int gpt_noise_open(struct gpt_noise **out, struct gpt_backend *be,
                   const struct gpt_noise_options *options, struct gpt_err *err)
{
    static const char what[] = "the noise scale";
    const size_t bytes = (size_t)gpt_noise_memory(options->flat);
    struct gpt_noise *n;
    void *memory;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&n, 1, sizeof(*n), what, err));
    n->o = *options;
    n->be = be;
    GPT_TRY_GOTO(status,
                 gpt_new(&n->seen, (size_t)options->flat->n_buckets,
                         sizeof(*n->seen), what, err),
                 fail);
    GPT_TRY_GOTO(status, be->host_alloc(be, bytes, what, &memory, err), fail);
    n->host = memory;
    GPT_TRY_GOTO(status, be->alloc(be, bytes, what, &memory, err), fail);
    n->sums = memory;
    *out = n;
    return GPT_OK;
fail:
    gpt_noise_close(n);
    return status;
}

void gpt_noise_close(struct gpt_noise *n)
{
    if (!n)
        return;
    if (n->sums)
        n->be->free(n->be, n->sums);
    if (n->host)
        n->be->host_free(n->be, n->host);
    gpt_free(n->seen);
    gpt_free(n);
}

/* The reducer may have to wait for the bucket's memory. */
static void before_bucket(void *context, int64_t bucket)
{
    const struct gpt_noise *n = context;

    if (n->o.hooks.before)
        n->o.hooks.before(n->o.hooks.context, bucket);
}

static void after_bucket(void *context, int64_t bucket)
{
    struct gpt_noise *n = context;
    const struct gpt_bucket *b = &n->o.flat->buckets[bucket];

    /* one rank has the first microbatch of the global batch */
    for (int64_t i = b->first_slice;
         n->o.dp_rank == 0 && !n->seen[bucket] && i < b->end_slice; i++) {
        const struct gpt_slice *s = &n->o.flat->slices[i];

        if (is_measured(s))
            n->be->sumsq(n->o.q, n->sums + i,
                         n->o.buckets[bucket] + s->offset - b->begin,
                         s->count);
    }
    n->seen[bucket] = true;
    if (n->o.hooks.after)
        n->o.hooks.after(n->o.hooks.context, bucket);
}

struct gpt_gradient_hooks gpt_noise_hooks(struct gpt_noise *n)
{
    return (struct gpt_gradient_hooks){
        .context = n, .before = before_bucket, .after = after_bucket};
}

void gpt_noise_begin(struct gpt_noise *n)
{
    memset(n->seen, 0, (size_t)n->o.flat->n_buckets * sizeof(*n->seen));
}

/* Adds the squares of the elements of a slice in this rank's shard; their
 * number may be 0. Without shards every data parallel rank has all sums, and
 * the first one counts. */
static void measure_shard(const struct gpt_noise *n, int64_t i)
{
    const struct gpt_flat *flat = n->o.flat;
    const struct gpt_slice *s = &flat->slices[i];
    const struct gpt_shard_part part = gpt_slice_shard(flat, s);

    if (!is_measured(s) || (flat->shards == 1 && n->o.dp_rank > 0))
        return;
    if (part.begin < part.end)
        n->be->sumsq(n->o.q, n->sums + flat->n + i,
                     n->o.shards[s->bucket] + part.at, part.end - part.begin);
}

int gpt_noise_squares(struct gpt_noise *n, double *small, double *big,
                      struct gpt_err *err)
{
    const int64_t slices = n->o.flat->n;

    for (int64_t i = 0; i < slices; i++)
        measure_shard(n, i);
    n->be->copy_out(n->o.q, n->host, n->sums,
                    (size_t)gpt_noise_memory(n->o.flat));
    GPT_TRY(n->be->sync(n->o.q, err));
    /* what is not measured here is zero since the allocation */
    *small = *big = 0;
    for (int64_t i = 0; i < slices; i++) {
        *small += n->host[i];
        *big += n->host[slices + i];
    }
    return GPT_OK;
}

double gpt_noise_scale(double small, double big, double n_small, double n_big)
{
    const double trace = (small - big) / (1 / n_small - 1 / n_big);
    const double square = (n_big * big - n_small * small) / (n_big - n_small);

    return square > 0 ? trace / square : (double)NAN;
}
