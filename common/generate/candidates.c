/* Candidates; see candidates.h. Nothing is sorted: sums of weights of about one
 * size find the place where p is crossed, and quickselect the candidate that
 * crosses it. */
#include "generate/candidates.h"

#include "base/exp.h"
#include "base/memory.h"
#include "base/num.h"

#include <math.h>
#include <string.h>

/* The sum of a block's weights tells whether it holds what is looked for. */
enum { BLOCK = GPT_EXP_BLOCK };

/* 32 halvings of a weight, and the rest; and places for sums that are not
 * read. */
enum { BINS_OF_HALF = 64, BINS = 32 * BINS_OF_HALF + 1, UNREAD = 16 };

/* A candidate's place, and its weight. */
struct place {
    double weight;
    int64_t at;
};

struct gpt_candidates {
    int64_t n;
    double *weight; /* (n, to whole blocks) 0: dropped */
    double *sums;   /* (blocks of n) of weights; 0: all of a block is dropped */
    struct place *scratch; /* in whatever order quickselect leaves */
    double *bins;          /* (BINS + UNREAD) */
};

int gpt_candidates_open(struct gpt_candidates **out, int64_t most,
                        struct gpt_err *err)
{
    const size_t blocks = (size_t)gpt_exp_blocks(most), room = blocks * BLOCK;
    const char *const what = "a sampler's candidates";
    struct gpt_candidates *s = NULL;
    int status;

    GPT_TRY(gpt_new(&s, 1, sizeof(*s), what, err));
    GPT_TRY_GOTO(status,
                 gpt_new(&s->weight, room, sizeof(*s->weight), what, err),
                 fail);
    GPT_TRY_GOTO(status,
                 gpt_new(&s->sums, blocks, sizeof(*s->sums), what, err), fail);
    GPT_TRY_GOTO(status,
                 gpt_new(&s->scratch, room, sizeof(*s->scratch), what, err),
                 fail);
    GPT_TRY_GOTO(status,
                 gpt_new(&s->bins, BINS + UNREAD, sizeof(*s->bins), what, err),
                 fail);
    *out = s;
    return GPT_OK;
fail:
    gpt_candidates_close(s);
    return status;
}

void gpt_candidates_close(struct gpt_candidates *s)
{
    if (!s)
        return;
    gpt_free(s->weight);
    gpt_free(s->sums);
    gpt_free(s->scratch);
    gpt_free(s->bins);
    gpt_free(s);
}

void gpt_candidates_weigh(struct gpt_candidates *s, const float *logits,
                          int64_t n, double max, double temperature)
{
    s->n = n;
    gpt_exp_each(s->weight, s->sums, logits, n, max, temperature);
}

static double total_of(const struct gpt_candidates *s)
{
    double sum = 0;

    for (int64_t b = 0; b < gpt_exp_blocks(s->n); b++)
        sum += s->sums[b];
    return sum;
}

/* Drops what weighs less than `least` in a block; returns the sum of the rest.
 */
static double cut_block(double *w, double least)
{
    typedef double pair __attribute__((vector_size(16)));
    typedef int64_t mask __attribute__((vector_size(16)));
    enum { N = 4 }; /* that many sums do not wait for each other */
    const pair limit = {least, least};
    pair sum[N] = {{0}};

    for (int i = 0; i < BLOCK / 2; i += N)
        for (int l = 0; l < N; l++) {
            pair v;

            memcpy(&v, w + 2 * (i + l), sizeof(v));
            v = (pair)((mask)v & (v >= limit));
            memcpy(w + 2 * (i + l), &v, sizeof(v));
            sum[l] += v;
        }
    sum[0] += sum[1] + (sum[2] + sum[3]);
    return sum[0][0] + sum[0][1];
}

/* Drops what weighs less than `least`, and of what weighs as much the places
 * before `from` and from `to` on. A block that weighs less in sum has nothing
 * to keep. */
static void keep_from(struct gpt_candidates *s, double least, int64_t from,
                      int64_t to)
{
    const double above = nextafter(least, 2);

    for (int64_t b = 0; b < gpt_exp_blocks(s->n); b++) {
        const int64_t first = b * BLOCK, end = first + BLOCK;
        const bool inside = first >= from && end <= to;
        double *const w = s->weight + first;

        if (!(s->sums[b] >= least)) {
            s->sums[b] = 0;
            continue;
        }
        const bool outside = end <= from || first >= to;
        for (int64_t i = 0; !inside && !outside && i < BLOCK; i++)
            if ((first + i < from || first + i >= to) && w[i] <= least)
                w[i] = 0;
        s->sums[b] = cut_block(w, outside ? above : least);
    }
}

/* The heaviest weigh 1, so that min_p is a weight. */
void gpt_candidates_keep_min_p(struct gpt_candidates *s, double min_p)
{
    keep_from(s, min_p, 0, s->n);
}

/* The first candidate at which the running sum passes u * total, in the first
 * block at whose end it does. Rounding may leave either sum short of that: then
 * the last one that has any weight. */
int64_t gpt_candidates_draw(const struct gpt_candidates *s, double u)
{
    const double goal = u * total_of(s);
    double sum = 0, reached = 0;
    int64_t block = 0, at = 0;

    for (int64_t b = 0; b < gpt_exp_blocks(s->n) && !(sum > goal); b++)
        if (s->sums[b] > 0) {
            block = b;
            reached = sum;
            sum += s->sums[b];
        }
    const double *const w = s->weight + block * BLOCK;
    for (int64_t i = 0; i < BLOCK && !(reached > goal); i++)
        if (w[i] > 0) {
            at = block * BLOCK + i;
            reached += w[i];
        }
    return at;
}

/* The order of tokens: larger weights first, equal ones by place, which is by
 * id; with Hugging Face, which sorts from the least probable up, from above.
 * Total, so that quickselect's result does not depend on its pivots. */
static bool before(const struct place *a, const struct place *b, bool hf)
{
    return a->weight > b->weight ||
           (a->weight == b->weight && (hf ? a->at > b->at : a->at < b->at));
}

static void swap(struct place *a, struct place *b)
{
    struct place t = *a;

    *a = *b;
    *b = t;
}

/* Puts the median of first, middle and last of a[0..n) at a[0]. */
static void choose_pivot(struct place *a, int64_t n, bool hf)
{
    struct place *mid = a + n / 2, *last = a + n - 1;

    if (before(mid, a, hf))
        swap(mid, a);
    if (before(last, a, hf))
        swap(last, a);
    if (before(last, mid, hf))
        swap(last, mid);
    swap(a, mid);
}

/* Hoare's partition around a[0]: returns the pivot's place; all before it
 * are earlier in the order, all after it later. n >= 1. */
static int64_t partition(struct place *a, int64_t n, bool hf)
{
    choose_pivot(a, n, hf);
    struct place pivot = a[0];
    int64_t i = 0, j = n;
    for (;;) {
        do
            i++;
        while (i < n && before(&a[i], &pivot, hf));
        do
            j--;
        while (before(&pivot, &a[j], hf));
        if (i >= j)
            break;
        swap(&a[i], &a[j]);
    }
    swap(&a[0], &a[j]);
    return j;
}

/* True when a candidate is dropped because of what is before it. */
static bool is_full(double ahead, double limit, bool hf)
{
    return hf ? ahead >= limit : ahead > limit;
}

/* Returns the last of a[0..n) that is kept: in the order above, the last one
 * whose predecessors do not fill `limit` together, `ahead` being the weight of
 * those that are before all of a. Reorders a. Quickselect goes into one side
 * only, so this is O(n) where sorting is not; each partition's head is summed
 * once. */
static struct place nucleus_end(struct place *a, int64_t n, double ahead,
                                double limit, bool hf)
{
    for (;;) {
        int64_t p = partition(a, n, hf);
        double head = ahead;

        for (int64_t i = 0; i < p; i++)
            head += a[i].weight;
        if (head > 0 &&
            is_full(head, limit, hf)) { /* the pivot is dropped already */
            n = p;
            continue;
        }
        ahead = head + a[p].weight;
        if (is_full(ahead, limit, hf) || p + 1 == n)
            return a[p];
        a += p + 1;
        n -= p + 1;
    }
}

/* The bin of a weight, which is at most 1: BINS_OF_HALF for each halving of the
 * weight, the heaviest first; the last bin has the rest. A double's bits, read
 * as a number, are in the order of weights. */
enum { BIN_SHIFT = 52 - 6 }; /* 2^6 bins */

static int64_t bin_of(double weight)
{
    const double one = 1;
    int64_t bits, top;

    memcpy(&bits, &weight, sizeof(bits));
    memcpy(&top, &one, sizeof(top));
    return gpt_min_i64((top >> BIN_SHIFT) - (bits >> BIN_SHIFT), BINS - 1);
}

/* The least weight of a bin. */
static double bin_begins(int64_t bin)
{
    double weight = 1;
    int64_t bits;

    if (bin == BINS - 1)
        return 0;
    memcpy(&bits, &weight, sizeof(bits));
    bits -= (int64_t)((uint64_t)bin << BIN_SHIFT);
    memcpy(&weight, &bits, sizeof(weight));
    return weight;
}

/* Adds the weights of a block to their bins, up to bin `most`. What is beyond
 * is added to sums that are not read, to one after the other: a sum waits for
 * the one before it in the same place, and a branch would be mispredicted. */
static void add_to_bins(double *bins, const double *w, int64_t most)
{
    for (int64_t i = 0; i < BLOCK; i++) {
        const int64_t bin = bin_of(w[i]), beyond = bin > most;

        bins[bin + (-beyond & (BINS + i % UNREAD - bin))] += w[i];
    }
}

/* Adds up all that weighs at least `least`, and a little that weighs less. */
static void fill_bins(struct gpt_candidates *s, double least)
{
    const int64_t most = bin_of(least);

    memset(s->bins, 0, BINS * sizeof(*s->bins));
    for (int64_t b = 0; b < gpt_exp_blocks(s->n); b++)
        if (s->sums[b] >= least)
            add_to_bins(s->bins, s->weight + b * BLOCK, most);
}

/* The bin of the last candidate that is kept; *ahead becomes the weight of the
 * bins before it. */
static int64_t bin_of_end(const double *bins, double limit, bool hf,
                          double *ahead)
{
    int64_t bin = 0;

    *ahead = 0;
    for (; bin < BINS - 1; bin++) {
        const double next = *ahead + bins[bin];

        if (next > 0 && is_full(next, limit, hf))
            break;
        *ahead = next;
    }
    return bin;
}

/* Copies what weighs at least `from` and less than `to` of a block; returns how
 * many there are. `out` has room for the whole block. */
static int64_t take_of_block(struct place *out, const double *w, int64_t first,
                             double from, double to)
{
    int64_t m = 0;

    for (int64_t i = 0; i < BLOCK; i++) {
        out[m] = (struct place){w[i], first + i};
        m += (w[i] >= from) & (w[i] < to);
    }
    return m;
}

/* The same of all candidates, to scratch. */
static int64_t take_between(struct gpt_candidates *s, double from, double to)
{
    int64_t m = 0;

    for (int64_t b = 0; b < gpt_exp_blocks(s->n); b++)
        if (s->sums[b] >= from)
            m += take_of_block(s->scratch + m, s->weight + b * BLOCK,
                               b * BLOCK, from, to);
    return m;
}

/* Keeps the nucleus, which leaves out a share of 1 - p. If a candidate is
 * followed by at most n others, none heavier, and all of these together would
 * weigh less than that share, the candidate is left out as well. On a peaked
 * distribution this passes over nearly all of the vocabulary; 0.999 allows for
 * rounding. Where p is so close to 1 that rounding alone decides, all stay. */
void gpt_candidates_keep_top_p(struct gpt_candidates *s, double p, bool hf)
{
    const double total = total_of(s);
    const double least = 0.999 * (1 - p) * total / (double)s->n;
    double ahead;

    fill_bins(s, least);
    const int64_t bin = bin_of_end(s->bins, p * total, hf, &ahead);
    const int64_t m = take_between(s, fmax(least, bin_begins(bin)),
                                   bin > 0 ? bin_begins(bin - 1) : 2);

    if (m == 0)
        return;
    const struct place last = nucleus_end(s->scratch, m, ahead, p * total, hf);
    keep_from(s, last.weight, hf ? last.at : 0, hf ? s->n : last.at + 1);
}
