/* Where the buffers of latent attention are in a block of memory: stages and
 * the decoder lay them out alike. See latent.h. */
#include "model/latent.h"

#include "base/memory.h"
#include "base/num.h"

/* A block that is laid out; base NULL: sizes alone. */
struct block {
    char *base;
    int64_t at, n;
    size_t element;
};

/* The next n rows of so many elements; NULL where there is none. */
static void *take(struct block *b, int64_t width)
{
    const int64_t from = b->at;

    b->at += gpt_round_up(b->n * width * (int64_t)b->element, GPT_ALIGN);
    return b->base && width > 0 ? b->base + from : NULL;
}

int64_t gpt_latent_lay_products(struct gpt_latent_acts *a,
                                const struct gpt_widths *w, int64_t n,
                                enum gpt_dtype act, void *base)
{
    struct block b = {base, 0, n, gpt_dtype_bytes(act)};

    a->q_down = take(&b, w->q_rank);
    a->kv_down = take(&b, w->kv_rank);
    b.element = sizeof(float);
    a->q_rstd = take(&b, w->q_rank > 0);
    a->kv_rstd = take(&b, w->kv_rank > 0);
    return b.at;
}

int64_t gpt_latent_lay_normed(struct gpt_latent_acts *a,
                              const struct gpt_widths *w, int64_t n,
                              enum gpt_dtype act, void *base)
{
    struct block b = {base, 0, n, gpt_dtype_bytes(act)};

    a->q = take(&b, w->q_rank);
    a->kv = take(&b, w->kv_rank);
    return b.at;
}

int64_t gpt_latent_lay_work(struct gpt_latent_work *work,
                            const struct gpt_widths *w, int64_t n,
                            enum gpt_dtype act, bool backward, void *base)
{
    const bool latent = w->kv_rank > 0;
    struct block b = {base, 0, n, gpt_dtype_bytes(act)};

    *work = (struct gpt_latent_work){0};
    work->q = take(&b, latent ? w->attention : 0);
    work->kv = take(&b, w->kv_up);
    work->turned = take(&b, w->turned);
    work->values = take(&b, w->values < w->attention ? w->values : 0);
    if (!backward)
        return b.at;
    work->dnormed = take(&b, gpt_max_i64(w->q_rank, w->kv_rank));
    work->dq_down = take(&b, w->q_rank);
    work->dkv_down = take(&b, w->kv_rank);
    return b.at;
}
