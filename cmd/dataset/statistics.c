/* Statistics of data sets in constant memory: quantiles by narrowing a range
 * down, pass after pass over the index, instead of sorting lengths. Start at
 * gpt_stat(), at the end. */
#include "cmd/dataset/statistics.h"

#include "base/memory.h"
#include "base/num.h"
#include "base/signals.h"

#include <stdlib.h>
#include <string.h>

/* Tokens of document d. */
static int64_t document_length(const struct gpt_indexed *set, int64_t d)
{
    return gpt_indexed_start(set, gpt_indexed_document(set, d + 1)) -
           gpt_indexed_start(set, gpt_indexed_document(set, d));
}

/* 0 for length 0, k for lengths in [2^(k-1), 2^k). */
static int bucket_of(int64_t length)
{
    return length == 0 ? 0 : 64 - __builtin_clzll((uint64_t)length);
}

/* One pass over the index gives all but the quantiles, which need the range of
 * lengths. */
static void count_lengths(struct gpt_stat *s, const struct gpt_indexed *set)
{
    s->documents = gpt_indexed_n_documents(set);
    s->sequences = gpt_indexed_n_sequences(set);
    s->tokens = gpt_indexed_n_tokens(set);
    s->min = s->documents ? INT64_MAX : 0;
    for (int64_t d = 0; d < s->documents; d++) {
        int64_t n = document_length(set, d);

        s->min = gpt_min_i64(s->min, n);
        s->max = gpt_max_i64(s->max, n);
        s->bucket[bucket_of(n)]++;
    }
    s->empty_documents = s->bucket[0];
    for (int64_t i = 0; i < s->sequences; i++)
        s->empty_sequences += gpt_indexed_length(set, i) == 0;
}

/* The length at `rank`, from 0, in the order of lengths. Each pass counts the
 * lengths of the range in BINS equal bins and keeps the bin that holds the
 * rank: lengths below 2^31 need four passes, whatever the number of
 * documents. */
static int64_t length_at_rank(const struct gpt_stat *s,
                              const struct gpt_indexed *set, int64_t rank)
{
    enum { BINS = 1024 };
    int64_t low = s->min, high = s->max; /* it is one of these */

    while (low < high) {
        int64_t width = (high - low) / BINS + 1;
        int64_t bins[BINS] = {0}, before = 0;
        int k = 0;

        for (int64_t d = 0; d < s->documents; d++) {
            int64_t n = document_length(set, d);

            if (n < low)
                before++;
            else if (n <= high)
                bins[(n - low) / width]++;
        }
        while (before + bins[k] <= rank)
            before += bins[k++];
        low += k * width;
        high = gpt_min_i64(high, low + width - 1);
    }
    return low;
}

static int64_t quantile(const struct gpt_stat *s, const struct gpt_indexed *set,
                        int64_t percent)
{
    int64_t n = s->documents;
    /* ceil(n * percent / 100), in parts that cannot overflow. */
    int64_t rank = n / 100 * percent + gpt_ceil_div(n % 100 * percent, 100);

    return n == 0 ? 0 : length_at_rank(s, set, rank - 1);
}

/* ---- tokens ---- */

struct counts {
    int64_t *ids; /* (GPT_STAT_IDS) */
    const struct gpt_tokenizer *tokenizer;
};

/* Counts n tokens. Ids beyond the table, which only a damaged set or a huge
 * vocabulary has, are counted together. */
static void count_piece(struct gpt_stat *s, const struct counts *c,
                        const int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        size_t len = 0;

        if (ids[i] >= 0 && ids[i] < GPT_STAT_IDS)
            c->ids[ids[i]]++;
        else
            s->other++;
        /* The end of a document is a token without text in the input. */
        if (!c->tokenizer || ids[i] == gpt_tokenizer_eod(c->tokenizer))
            continue;
        (void)gpt_token_bytes(c->tokenizer, ids[i], &len);
        s->text_bytes += (int64_t)len;
    }
}

/* Counts how many documents end as the first one does: mostly its
 * end-of-document token, which an index does not name. */
static void count_last(struct gpt_stat *s, int64_t id)
{
    if (s->filled++ == 0)
        s->last_id = id;
    s->n_last += id == s->last_id;
}

/* Counts the tokens of a document, a piece at a time: memory does not depend on
 * its length. */
static int count_document(struct gpt_stat *s, const struct counts *c,
                          const struct gpt_indexed *set, int64_t d,
                          struct gpt_err *err)
{
    enum { PIECE = 4096 };
    int32_t ids[PIECE];
    int64_t first = gpt_indexed_document(set, d);
    int64_t end = gpt_indexed_document(set, d + 1), last = -1;

    for (int64_t i = first; i < end; i++) {
        int64_t length = gpt_indexed_length(set, i);

        for (int64_t at = 0; at < length; at += PIECE) {
            int64_t n = gpt_min_i64(PIECE, length - at);

            GPT_TRY(gpt_indexed_read(set, i, at, n, ids, err));
            count_piece(s, c, ids, n);
            last = ids[n - 1];
        }
    }
    if (document_length(set, d) > 0)
        count_last(s, last);
    return gpt_signals_check(err);
}

/* Ties go by id, so that the list does not depend on qsort(). */
static int by_count(const void *a, const void *b)
{
    const struct gpt_token_count *x = a, *y = b;

    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

static int find_top(struct gpt_stat *s, const struct counts *c, int64_t top,
                    struct gpt_err *err)
{
    for (int64_t id = 0; id < GPT_STAT_IDS; id++)
        s->distinct += c->ids[id] > 0;
    GPT_TRY(gpt_new(&s->top, (size_t)s->distinct, sizeof(*s->top),
                    "token counts", err));
    for (int64_t id = 0; id < GPT_STAT_IDS; id++)
        if (c->ids[id] > 0)
            s->top[s->n_top++] = (struct gpt_token_count){id, c->ids[id]};
    qsort(s->top, (size_t)s->n_top, sizeof(*s->top), by_count);
    s->n_top = gpt_min_i64(s->n_top, top);
    return GPT_OK;
}

static int count_tokens(struct gpt_stat *s, const struct gpt_indexed *set,
                        const struct gpt_stat_options *o, struct gpt_err *err)
{
    struct counts c = {NULL, o->tokenizer};

    GPT_TRY(gpt_new(&c.ids, GPT_STAT_IDS, sizeof(*c.ids), "token counts", err));
    s->text_bytes = o->tokenizer ? 0 : -1;
    int status = GPT_OK;
    for (int64_t d = 0; d < s->documents; d++)
        GPT_TRY_GOTO(status, count_document(s, &c, set, d, err), out);
    status = find_top(s, &c, o->top, err);
out:
    gpt_free(c.ids);
    return status;
}

int gpt_stat(struct gpt_stat *s, const struct gpt_indexed *set,
             const struct gpt_stat_options *o, struct gpt_err *err)
{
    memset(s, 0, sizeof(*s));
    s->text_bytes = -1;
    count_lengths(s, set);
    /* Each takes passes over the index alone; the tokens are read at most once,
     * below. */
    s->median = quantile(s, set, 50);
    s->p90 = quantile(s, set, 90);
    s->p99 = quantile(s, set, 99);
    int status = o->tokens ? count_tokens(s, set, o, err) : GPT_OK;
    if (status != GPT_OK)
        gpt_stat_free(s);
    return status;
}

void gpt_stat_free(struct gpt_stat *s)
{
    gpt_free(s->top);
    s->top = NULL;
}
