/* What a rank owns of each tensor; see ownership.h. A shard cuts through
 * matrices at any element: what it has of one is a part of a row, whole rows
 * and a part of a row. */
#include "checkpoint/ownership.h"

#include "base/memory.h"
#include "base/num.h"

#include <assert.h>

/* ---- cutting ---- */

static int add_box(struct gpt_ownership *p, const struct gpt_slice *s,
                   int64_t row, int64_t column, int64_t rows, int64_t columns,
                   int64_t at, struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&p->items, &p->cap, p->n + 1, sizeof(*p->items),
                     "parts of a checkpoint", err));
    p->items[p->n++] = (struct gpt_owned_box){
        .slice = s,
        .begin = {s->begin[0] + row, s->begin[1] + column},
        .shape = {rows, columns},
        .at = at,
        .count = rows * columns,
    };
    p->elements += rows * columns;
    return GPT_OK;
}

/* Adds elements [begin, end) of a slice, of which the first is at `at`. A shard
 * cuts at any element, so the range is at most a part of a row, whole rows as
 * one box, and a part of a row. */
static int add_range(struct gpt_ownership *p, const struct gpt_slice *s,
                     int64_t begin, int64_t end, int64_t at,
                     struct gpt_err *err)
{
    const int64_t width = s->shape[1];

    assert(begin >= 0 && end <= s->count);
    while (begin < end) {
        int64_t column = begin % width, left = end - begin;
        bool whole = column == 0 && left >= width;
        int64_t rows = whole ? left / width : 1;
        int64_t columns = whole ? width : gpt_min_i64(width - column, left);

        GPT_TRY(add_box(p, s, begin / width, column, rows, columns, at, err));
        begin += rows * columns;
        at += rows * columns;
    }
    return GPT_OK;
}

static int add_shard(struct gpt_ownership *p, const struct gpt_flat *flat,
                     const struct gpt_slice *s, struct gpt_err *err)
{
    const struct gpt_shard_part part = gpt_slice_shard(flat, s);

    return add_range(p, s, part.begin, part.end,
                     gpt_bucket_compact(flat, s->bucket) + part.at, err);
}

/* ---- what a rank writes ---- */

/* Gives every bucket to the data parallel rank that has least so far. Every
 * rank computes this for itself from the same sizes, and all come to the same
 * result without a message. */
static int share_buckets(const struct gpt_flat *flat, int64_t dp_size,
                         int64_t *owners, struct gpt_err *err)
{
    int64_t *load;

    GPT_TRY(gpt_new(&load, (size_t)dp_size, sizeof(*load), "ranks", err));
    for (int64_t b = 0; b < flat->n_buckets; b++) {
        int64_t least = 0;

        for (int64_t r = 1; r < dp_size; r++)
            if (load[r] < load[least])
                least = r;
        owners[b] = least;
        load[least] += flat->buckets[b].end - flat->buckets[b].begin;
    }
    gpt_free(load);
    return GPT_OK;
}

/* True when the writer writes its part of this slice. Every element must be
 * written once: not the copy of a tied table, not by the other holders of what
 * tensor parallelism does not cut. owners NULL: data parallel ranks hold
 * different parts, so each writes its own. */
static bool writes(const struct gpt_ownership_writer *w, const int64_t *owners,
                   const struct gpt_slice *s)
{
    if (s->copy || (s->param->split == GPT_SPLIT_NONE && w->tp_rank > 0))
        return false;
    return !owners || owners[s->bucket] == w->dp_rank;
}

static int add_slices(struct gpt_ownership *p, const struct gpt_flat *flat,
                      bool shards, const struct gpt_ownership_writer *writer,
                      const int64_t *owners, struct gpt_err *err)
{
    for (int64_t i = 0; i < flat->n; i++) {
        const struct gpt_slice *s = &flat->slices[i];

        if (writer && !writes(writer, owners, s))
            continue;
        if (shards)
            GPT_TRY(add_shard(p, flat, s, err));
        else
            GPT_TRY(add_range(p, s, 0, s->count, s->offset, err));
    }
    return GPT_OK;
}

int gpt_ownership_build(struct gpt_ownership *p, const struct gpt_flat *flat,
                        bool compact, const struct gpt_ownership_writer *writer,
                        struct gpt_err *err)
{
    bool shards = compact && flat->shards > 1;
    int64_t *owners = NULL;
    int status = GPT_OK;

    *p = (struct gpt_ownership){0};
    if (writer && !shards) {
        GPT_TRY(gpt_new(&owners, (size_t)flat->n_buckets, sizeof(*owners),
                        "buckets", err));
        GPT_TRY_GOTO(status, share_buckets(flat, writer->dp_size, owners, err),
                     out);
    }
    status = add_slices(p, flat, shards, writer, owners, err);
out:
    gpt_free(owners);
    if (status != GPT_OK)
        gpt_ownership_free(p);
    return status;
}

void gpt_ownership_free(struct gpt_ownership *p)
{
    gpt_free(p->items);
    *p = (struct gpt_ownership){0};
}
