/* Where gradients live: whole, or in two buffers for the layers and this rank's
 * shards of them; and what is to be summed over tensor parallel ranks. Start at
 * lay_out(). */
#include "train/reduce_internal.h"

#include "base/memory.h"
#include "base/num.h"

bool gpt_reducer_in_turns(const struct gpt_reducer_options *o, int64_t bucket)
{
    return gpt_reducer_fresh(o) && o->flat->buckets[bucket].layer >= 0;
}

int64_t gpt_bucket_elements(const struct gpt_flat *flat, int64_t bucket)
{
    return flat->buckets[bucket].end - flat->buckets[bucket].begin;
}

bool gpt_reducer_fresh(const struct gpt_reducer_options *o)
{
    return o->zero == GPT_ZERO_2 && o->flat->shards > 1;
}

/* Where everything is, in elements from `base`; with NULL, how much it is.
 * Pointers go to r, which may be NULL, too. */
static int64_t lay_out(const struct gpt_reducer_options *o,
                       struct gpt_reducer *r, float *base)
{
    const struct gpt_flat *flat = o->flat;
    int64_t at = 0, largest = 0, turns;

    for (int64_t b = 0; b < flat->n_buckets; b++) {
        if (gpt_reducer_in_turns(o, b)) {
            largest = gpt_max_i64(largest, gpt_bucket_elements(flat, b));
            continue;
        }
        if (r)
            r->buckets[b] = base + at;
        at += gpt_bucket_elements(flat, b);
    }
    turns = at;
    at += GPT_REDUCER_TURNS * largest;
    for (int64_t b = 0; b < flat->n_buckets; b++) {
        const int64_t shard = gpt_bucket_elements(flat, b) / flat->shards;

        if (gpt_reducer_in_turns(o, b)) {
            if (r) {
                r->buckets[b] = base + turns + b % GPT_REDUCER_TURNS * largest;
                r->shards[b] = base + at;
            }
            at += shard;
        } else if (r) {
            r->shards[b] = r->buckets[b] + flat->shard * shard;
        }
    }
    return at;
}

/* The part of a slice that is in this rank's shard. */
static struct gpt_reducer_piece piece_of(const struct gpt_flat *flat,
                             const struct gpt_slice *s, float *const *shards)
{
    int64_t begin, end;

    gpt_bucket_shard(flat, s->bucket, flat->shard, &begin, &end);
    const int64_t from = gpt_max_i64(begin, s->offset);
    const int64_t to = gpt_min_i64(end, s->offset + s->count);
    return (struct gpt_reducer_piece){
        .at = shards && from < to ? shards[s->bucket] + from - begin : NULL,
        .n = gpt_max_i64(to - from, 0),
    };
}

/* Elements of all pieces, which are listed in r unless it is NULL. */
static int64_t list_pieces(const struct gpt_reducer_options *o,
                           struct gpt_reducer *r)
{
    int64_t total = 0;

    for (int64_t i = 0; o->sequence_parallel && i < o->flat->n; i++) {
        const struct gpt_slice *s = &o->flat->slices[i];
        struct gpt_reducer_piece p = piece_of(o->flat, s, r ? r->shards : NULL);

        if (!s->param->sequence_sum || p.n == 0)
            continue;
        if (r)
            r->pieces[r->n_pieces++] = p;
        total += p.n;
    }
    return total;
}

int64_t gpt_reducer_pieces(const struct gpt_reducer_options *o)
{
    return list_pieces(o, NULL);
}

int64_t gpt_reducer_memory(const struct gpt_reducer_options *o)
{
    return (lay_out(o, NULL, NULL) + gpt_reducer_pieces(o)) *
           (int64_t)sizeof(float);
}

int gpt_reducer_allocate(struct gpt_reducer *r, struct gpt_err *err)
{
    static const char what[] = "the reduction of gradients";
    const size_t n = (size_t)r->o.flat->n_buckets;
    const size_t slices = (size_t)r->o.flat->n;
    void *memory;

    GPT_TRY(gpt_new(&r->buckets, n, sizeof(*r->buckets), what, err));
    GPT_TRY(gpt_new(&r->shards, n, sizeof(*r->shards), what, err));
    GPT_TRY(gpt_new(&r->gone, n, sizeof(*r->gone), what, err));
    GPT_TRY(gpt_new(&r->pieces, slices, sizeof(*r->pieces), what, err));
    GPT_TRY(r->be->alloc(r->be, (size_t)gpt_reducer_memory(&r->o),
                         gpt_memory_kind_name(GPT_MEM_GRADIENTS), &memory,
                         err));
    r->memory = memory;
    r->packed = r->memory;
    r->packed += lay_out(&r->o, r, r->memory);
    r->n_packed = list_pieces(&r->o, r);
    return GPT_OK;
}
