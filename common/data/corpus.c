/* A corpus: for each split the data sets it draws from, their sample indices,
 * and the blend that says which one gives sample i. Everything is built at open
 * (corpus_open.c) and only read afterwards, so that gpt_corpus_get() needs no
 * lock. Every rank builds the same, from the same files, and reads other
 * samples of it. Start at gpt_corpus_get(). */
#include "data/corpus_internal.h"

#include "base/memory.h"
#include "base/num.h"

#include <assert.h>
#include <inttypes.h>

/* The split may have been opened in part. */
static void free_split(struct gpt_corpus_split *s)
{
    for (int64_t i = 0; s->member && i < s->n_members; i++)
        gpt_samples_free(&s->member[i].samples);
    gpt_free(s->member);
    gpt_blend_free(&s->blend);
}

void gpt_corpus_close(struct gpt_corpus *c)
{
    if (!c)
        return;
    for (int k = 0; k < GPT_N_SPLITS; k++)
        free_split(&c->split[k]);
    for (int64_t i = 0; i < c->n_sets; i++)
        gpt_indexed_close(c->set[i]);
    gpt_free(c->set);
    gpt_free(c);
}

/* What is allocated beside these, as names and weights, is of the size of the
 * list of data sets and not of the data. */
int64_t gpt_corpus_memory(const struct gpt_corpus *c)
{
    int64_t bytes = 0;

    for (int64_t i = 0; i < c->n_sets; i++)
        bytes += gpt_indexed_cached(c->set[i]);
    for (int k = 0; k < GPT_N_SPLITS; k++) {
        const struct gpt_corpus_split *s = &c->split[k];

        bytes += gpt_blend_bytes(s->blend.size);
        for (int64_t i = 0; i < s->n_members; i++)
            bytes += gpt_samples_bytes(s->member[i].samples.plan.n,
                                       s->member[i].samples.n_visits);
    }
    return bytes;
}

/* As gpt_corpus_open() decides: one data set with a weight is a blend of one
 * part where splits share their data sets, and none where a split has its
 * own. */
static bool is_blended(const struct gpt_corpus_options *o, int split)
{
    const int64_t n = o->n_split_path[split];
    double weight;

    return o->n_data_path > 1 || (split == GPT_TRAIN && o->stages) || n > 2 ||
           (n == 2 && !gpt_parse_real(o->split_path[split][0], &weight));
}

/* The last epoch, which a member has whole, is left to gpt_corpus_memory(). */
int64_t gpt_corpus_predict(const struct gpt_corpus_options *o)
{
    int64_t bytes = 0;

    for (int k = 0; k < GPT_N_SPLITS; k++) {
        const int64_t n = gpt_max_i64(o->n_samples[k], 0);

        bytes += gpt_samples_bytes(n, 0) +
                 (is_blended(o, k) ? gpt_blend_bytes(n) : 0);
    }
    return bytes;
}

int64_t gpt_corpus_size(const struct gpt_corpus *c, enum gpt_split split)
{
    return c->split[split].size;
}

bool gpt_corpus_repeats(const struct gpt_corpus *c, enum gpt_split split,
                        struct gpt_repeat *repeat)
{
    const struct gpt_corpus_split *s = &c->split[split];

    for (int64_t i = 0; i < s->n_members; i++) {
        const struct gpt_corpus_member *m = &s->member[i];

        if (c->documents || m->begin == m->end ||
            m->samples.n_tokens > c->seq_length)
            continue;
        *repeat = (struct gpt_repeat){gpt_indexed_prefix(m->set), m->begin,
                                      m->end, m->samples.n_tokens};
        return true;
    }
    return false;
}

/* A blend without weights draws each set once, a set alone has its plan for
 * several epochs: the samples of one are counted anew. */
int64_t gpt_corpus_epoch(const struct gpt_corpus *c, enum gpt_split split)
{
    const struct gpt_corpus_split *s = &c->split[split];
    int64_t n = 0;

    if (s->blended && s->weighted)
        return -1;
    for (int64_t i = 0; i < s->n_members; i++) {
        const struct gpt_corpus_member *m = &s->member[i];

        n += c->documents ? m->end - m->begin
                          : (m->samples.n_tokens - 1) / c->seq_length;
    }
    return n;
}

/* Data sets side by side without weights have one epoch; a weight says how
 * often a set is drawn from, as long as anything is wanted. */
bool gpt_corpus_ends(const struct gpt_corpus *c, enum gpt_split split)
{
    return c->split[split].blended && !c->split[split].weighted;
}

uint64_t gpt_corpus_digest(const struct gpt_corpus *c)
{
    return c->digest;
}

uint64_t gpt_corpus_sets_digest(const struct gpt_corpus *c)
{
    return c->sets_digest;
}

/* Refuses tokens that the model has no row for, with their place: beyond here
 * an id is an index. As unsigned, a negative one is too large. */
static int check_tokens(const struct gpt_corpus *c,
                        const struct gpt_indexed *set, int64_t sequence,
                        int64_t begin, const int32_t *tokens, int64_t n,
                        struct gpt_err *err)
{
    uint32_t limit = c->vocab_size > 0 && c->vocab_size < INT32_MAX
                         ? (uint32_t)c->vocab_size
                         : UINT32_C(1) << 31;

    for (int64_t i = 0; i < n; i++)
        if ((uint32_t)tokens[i] >= limit)
            return gpt_fail(err, GPT_EDATA,
                            "%s: token %" PRId64 " of sequence %" PRId64
                            " is %d, must be from 0 to %" PRIu32,
                            gpt_indexed_prefix(set), begin + i, sequence,
                            tokens[i], limit - 1);
    return GPT_OK;
}

/* Sample k of a data set: its sequence with the tokens around it. A clipped one
 * has lost its end. */
static int get_document(const struct gpt_corpus *c,
                        const struct gpt_corpus_member *m, uint32_t k,
                        int32_t *tokens, struct gpt_err *err)
{
    const int64_t sequence = m->samples.document[m->samples.visit[k]];
    const int64_t room = c->seq_length + 1 - (c->begin >= 0);
    const int64_t n =
        gpt_min_i64(gpt_indexed_length(m->set, sequence), room);
    int64_t at = 0;

    if (c->begin >= 0)
        tokens[at++] = c->begin;
    /* the tokens around it are checked once, at open */
    GPT_TRY(gpt_indexed_read(m->set, sequence, 0, n, tokens + at, err));
    GPT_TRY(check_tokens(c, m->set, sequence, 0, tokens + at, n, err));
    at += n;
    if (c->end >= 0 && at <= c->seq_length &&
        (n == 0 || tokens[at - 1] != c->end))
        tokens[at++] = c->end;
    while (at <= c->seq_length)
        tokens[at++] = -1;
    return GPT_OK;
}

int gpt_corpus_get(const struct gpt_corpus *c, enum gpt_split split,
                   int64_t i, int32_t *tokens, struct gpt_err *err)
{
    const struct gpt_corpus_split *s = &c->split[split];

    if (i < 0 || i >= s->size)
        return gpt_fail(err, GPT_EFAIL,
                        "sample %" PRId64 " is past the end of the %s split, "
                        "which has %" PRId64 " samples",
                        i, gpt_split_names[split], s->size);
    assert(!s->blended || s->blend.set[i] < s->n_members);
    const struct gpt_corpus_member *m =
        &s->member[s->blended ? s->blend.set[i] : 0];
    const struct gpt_samples *samples = &m->samples;
    uint32_t k = samples->shuffle[s->blended ? s->blend.sample[i] : i];
    if (c->documents)
        return get_document(c, m, k, tokens, err);
    uint32_t visit = samples->visit[k];
    int64_t begin = samples->offset[k];
    /* A sample runs on into the sequences visited next, as many as it takes. */
    for (int64_t left = c->seq_length + 1; left > 0; visit++, begin = 0) {
        int64_t sequence = samples->document[visit];
        int64_t n = gpt_indexed_length(m->set, sequence) - begin;

        n = gpt_min_i64(n, left);
        GPT_TRY(gpt_indexed_read(m->set, sequence, begin, n, tokens, err));
        GPT_TRY(check_tokens(c, m->set, sequence, begin, tokens, n, err));
        tokens += n;
        left -= n;
    }
    return GPT_OK;
}
