/* Opening of a corpus: data sets, their sample indices, the blend of a split,
 * and the digest of it all. Splits are shares of the same data sets, or each
 * has data sets of its own; the training split may have them in stages
 * (corpus_stages.c). The numbers of samples and their rounding are
 * Megatron-LM's: the order of the samples follows from them. Start at
 * gpt_corpus_open(). */
#include "data/corpus_internal.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/num.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *const gpt_split_names[GPT_N_SPLITS] = {"train", "valid", "test"};

/* ---- data sets and their samples ---- */

int gpt_corpus_open_set(struct gpt_corpus *c, const char *prefix,
                        const struct gpt_indexed **set, struct gpt_err *err)
{
    for (int64_t i = 0; i < c->n_sets; i++)
        if (strcmp(gpt_indexed_prefix(c->set[i]), prefix) == 0) {
            *set = c->set[i];
            return GPT_OK;
        }
    GPT_TRY(gpt_grow(&c->set, &c->cap_sets, (size_t)c->n_sets + 1,
                     sizeof(*c->set), "data sets", err));
    if (c->mock)
        GPT_TRY(gpt_indexed_mock(&c->set[c->n_sets], prefix, c->vocab_size,
                                 c->mock_end, err));
    else
        GPT_TRY(gpt_indexed_open(&c->set[c->n_sets], prefix, c->impl, err));
    /* A sample is a few pages somewhere in the file. */
    gpt_indexed_read_randomly(c->set[c->n_sets]);
    *set = c->set[c->n_sets++];
    return GPT_OK;
}

/* The lengths are borrowed from the mapped index: a corpus of thousands of sets
 * holds no copy of them. */
int gpt_corpus_build_member(const struct gpt_corpus *c,
                            struct gpt_corpus_member *m, enum gpt_split split,
                            int64_t wanted, struct gpt_err *err)
{
    /* Megatron-LM lays the epochs of every split end to end, so that a few
     * sequences fill a sample, too. gpt_corpus_repeats() lets programs warn. */
    const struct gpt_samples_source source = {
        .lengths = gpt_indexed_lengths(m->set),
        .begin = m->begin,
        .end = m->end,
        .seq_length = c->seq_length,
        .wanted = wanted,
        .seed = c->seed,
        .documents = c->documents,
        .in_order = c->in_order,
        .repeat = true,
    };
    int status = gpt_samples_build(&m->samples, &source, err);

    if (status == GPT_EDATA) {
        gpt_context(err, "%s: %s split [%" PRId64 ", %" PRId64 ")",
                    gpt_indexed_prefix(m->set), gpt_split_names[split],
                    m->begin, m->end);
        gpt_hint(err, "give the split a larger share or more data, or"
                      " shorten the sequences");
    }
    return status;
}

/* Builds the indices of all members, several at a time. The failure of the
 * first member, not of the first thread, is reported: it is the same in each
 * run. */
static int build_members(const struct gpt_corpus *c, struct gpt_corpus_split *s,
                         enum gpt_split which, int64_t wanted,
                         struct gpt_err *err)
{
    int64_t failed = s->n_members;
    int status = GPT_OK;

/* Each index is shuffled by its own generator, so that the threads share
 * nothing. */
#pragma omp parallel for schedule(dynamic) if (s->n_members > 1)
    for (int64_t i = 0; i < s->n_members; i++) {
        struct gpt_corpus_member *m = &s->member[i];
        struct gpt_err e = {0};
        /* Alone: what is wanted. With weights: its share, and half a percent
         * more, as the blend rounds. Without: one epoch. */
        int64_t n = !s->blended   ? wanted
                    : s->weighted ? gpt_blend_share_built(wanted, m->weight)
                                  : 0;
        int got = gpt_corpus_build_member(c, m, which, n, &e);
/* Members fail in any order; the lowest number wins. */
#pragma omp critical(gpt_corpus_build)
        if (got != GPT_OK && i < failed) {
            failed = i;
            status = got;
            if (err)
                *err = e;
        }
    }
    return status;
}

/* With weights each set gives its share of what is wanted; the shares are
 * rounded up, so that the blend may be larger. Without weights each set gives
 * its one epoch, in proportion, and what is wanted must be there. */
static int build_blend(struct gpt_corpus_split *s, const char *name,
                       int64_t wanted, struct gpt_err *err)
{
    int64_t n = s->n_members, size = 0;
    double *w;

    GPT_TRY(gpt_new(&w, (size_t)n, sizeof(*w), "a blend", err));
    for (int64_t i = 0; i < n; i++) {
        const struct gpt_corpus_member *m = &s->member[i];

        w[i] = s->weighted ? m->weight : (double)m->samples.plan.n;
        size += s->weighted ? gpt_blend_share(wanted, w[i])
                            : m->samples.plan.n;
    }
    /* The weights were normalized once, at open; a second time here gives other
     * last bits, and is what Megatron does. */
    int status = GPT_OK;
    if (size < wanted) {
        gpt_fail(err, GPT_EDATA,
                 "%s split: %" PRId64 " samples are wanted, but one epoch of "
                 "its %" PRId64 " data sets has %" PRId64,
                 name, wanted, n, size);
        status = gpt_hint(err, "give weights: weighted data sets are repeated"
                               " as often as needed");
    } else {
        if (!s->weighted)
            size = wanted;
        gpt_normalize(w, n);
        status = gpt_blend_build(&s->blend, w, n, size, err);
    }
    gpt_free(w);
    /* A blend that asks for more than was built would read past an index. */
    for (int64_t i = 0; status == GPT_OK && i < n; i++)
        if (s->blend.taken[i] > s->member[i].samples.plan.n)
            status = gpt_fail(err, GPT_EDATA,
                              "%s: %s split: the blend takes %" PRId64
                              " samples, but %" PRId64 " are there",
                              gpt_indexed_prefix(s->member[i].set), name,
                              s->blend.taken[i],
                              s->member[i].samples.plan.n);
    s->size = s->blend.size;
    return status;
}

/* True when the split has no sequence of any of its data sets. */
static bool is_empty(const struct gpt_corpus_split *s)
{
    for (int64_t i = 0; i < s->n_members; i++)
        if (s->member[i].end > s->member[i].begin)
            return false;
    return true;
}

/* Opens sequences [lo * S, hi * S) of each part. Rounded half to even, as
 * Python rounds. */
static int open_split(struct gpt_corpus *c, enum gpt_split which,
                      const struct gpt_blend_parts *parts, double lo,
                      double hi, bool blended, int64_t wanted,
                      struct gpt_err *err)
{
    struct gpt_corpus_split *s = &c->split[which];

    GPT_TRY(gpt_new(&s->member, (size_t)parts->n, sizeof(*s->member),
                    "a split", err));
    s->n_members = parts->n;
    s->blended = blended;
    s->weighted = parts->weight != NULL;
    /* Weights are normalized over all parts here, and once more over those of
     * the blend: both sums are pairwise. */
    double sum = parts->weight ? gpt_pairwise_sum(parts->weight, parts->n) : 1;
    for (int64_t i = 0; i < parts->n; i++) {
        struct gpt_corpus_member *m = &s->member[i];

        GPT_TRY(gpt_corpus_open_set(c, parts->prefix[i], &m->set, err));
        double n = (double)gpt_indexed_n_sequences(m->set);
        m->begin = (int64_t)rint(lo * n);
        m->end = gpt_min_i64((int64_t)rint(hi * n), (int64_t)n);
        m->weight = parts->weight ? parts->weight[i] / sum : 0;
    }
    /* A share of a small set may round to no sequence at all. Training needs
     * one; without the others a program says that nothing is measured. */
    if (which != GPT_TRAIN && hi - lo < 1 && is_empty(s))
        return GPT_OK;
    GPT_TRY(build_members(c, s, which, wanted, err));
    if (blended)
        return build_blend(s, gpt_split_names[which], wanted, err);
    s->size = s->member[0].samples.plan.n;
    return GPT_OK;
}

/* Opens splits that are shares of the same data sets. */
static int open_shared(struct gpt_corpus *c,
                       const struct gpt_corpus_options *o,
                       struct gpt_err *err)
{
    struct gpt_blend_parts parts;
    double edge[4];
    int status = GPT_OK;

    GPT_TRY(gpt_split_parse(edge, o->split ? o->split : "969,30,1", err));
    if (o->n_samples[GPT_TRAIN] > 0 && edge[GPT_TRAIN + 1] <= edge[GPT_TRAIN])
        return gpt_fail(err, GPT_EUSAGE, "split '%s' has no share for training",
                        o->split);
    GPT_TRY(gpt_blend_parse(&parts, o->data_path, o->n_data_path, err));
    bool blended = parts.n > 1 || parts.weight;
    for (int k = 0; k < GPT_N_SPLITS; k++)
        if (o->n_samples[k] > 0 && edge[k + 1] > edge[k])
            GPT_TRY_GOTO(status, open_split(c, (enum gpt_split)k, &parts,
                                            edge[k], edge[k + 1], blended,
                                            o->n_samples[k], err), out);
out:
    gpt_blend_parts_free(&parts);
    return status;
}

/* ---- all splits ---- */

/* Opens splits that have data sets of their own. A single one is not blended
 * here even with a weight, unlike in open_shared(): both are Megatron's
 * rule. */
static int open_per_split(struct gpt_corpus *c,
                          const struct gpt_corpus_options *o,
                          struct gpt_err *err)
{
    if (o->stages && o->n_samples[GPT_TRAIN] > 0)
        GPT_TRY(gpt_corpus_open_stages(c, o->stages, o->n_samples[GPT_TRAIN],
                                       err));
    for (int k = 0; k < GPT_N_SPLITS; k++) {
        struct gpt_blend_parts parts;

        if (o->n_samples[k] == 0 || o->n_split_path[k] == 0)
            continue;
        GPT_TRY(gpt_blend_parse(&parts, o->split_path[k], o->n_split_path[k],
                                err));
        int status = open_split(c, (enum gpt_split)k, &parts, 0, 1,
                                parts.n > 1, o->n_samples[k], err);
        gpt_blend_parts_free(&parts);
        GPT_TRY(status);
    }
    return GPT_OK;
}

static int check_options(const struct gpt_corpus_options *o,
                         bool per_split, struct gpt_err *err)
{
    if (per_split && (o->n_data_path > 0 || o->split))
        return gpt_fail(err, GPT_EUSAGE,
                        "data sets are given for each split: common data sets"
                        " and a division into splits do not go with them");
    if (!per_split && o->n_data_path <= 0)
        return gpt_fail(err, GPT_EUSAGE, "no data set is given");
    /* One token more than the sequence must still be counted in 31 bits: the
     * index of samples has an offset of that width. */
    if (o->seq_length < 1 || o->seq_length >= INT32_MAX)
        return gpt_fail(err, GPT_EUSAGE,
                        "sequence length is %" PRId64
                        ", must be from 1 to 2147483646", o->seq_length);
    /* as tokens of the data, they are indices of the word table */
    if (o->vocab_size > 0 &&
        (o->begin >= o->vocab_size || o->end >= o->vocab_size))
        return gpt_fail(err, GPT_EUSAGE,
                        "tokens %d and %d around documents must be below the"
                        " vocabulary size %" PRId64,
                        o->begin, o->end, o->vocab_size);
    for (int k = 0; k < GPT_N_SPLITS; k++)
        if (o->n_samples[k] < 0 || o->n_samples[k] >= UINT32_MAX)
            return gpt_fail(err, GPT_EUSAGE,
                            "%s split: %" PRId64
                            " samples wanted, must be from 0 to 4294967294",
                            gpt_split_names[k], o->n_samples[k]);
    if (o->seed > UINT32_MAX)
        return gpt_fail(err, GPT_EUSAGE,
                        "seed is %" PRIu64 ", the sample order takes at most"
                        " 4294967295", o->seed);
    return GPT_OK;
}

/* ---- digest ---- */

/* Order matters: a digest of (a, b) is another one than that of (b, a). */
static uint64_t mix_in(uint64_t h, uint64_t v)
{
    uint8_t bytes[8];

    gpt_put_u64(bytes, v);
    return gpt_hash64(bytes, sizeof(bytes), h);
}

/* The lengths of all sequences enter, not the tokens: reading these would take
 * as long as an epoch does. */
static uint64_t digest_member(uint64_t h, const struct gpt_corpus_member *m,
                              bool epochs)
{
    const struct gpt_samples_plan *plan = &m->samples.plan;
    int64_t n = gpt_indexed_n_sequences(m->set);
    uint64_t weight;

    /* The weight enters bit for bit: the order depends on its last bit. */
    memcpy(&weight, &m->weight, sizeof(weight));
    /* The name alone: a data set may be moved to another directory. */
    h = mix_in(h, gpt_fnv1a(gpt_path_name(gpt_indexed_prefix(m->set))));
    h = mix_in(h, (uint64_t)n);
    h = mix_in(h, (uint64_t)gpt_indexed_n_tokens(m->set));
    h = mix_in(h, gpt_crc32c(0, gpt_indexed_lengths(m->set), 4 * (size_t)n));
    h = mix_in(h, (uint64_t)m->begin);
    h = mix_in(h, (uint64_t)m->end);
    if (epochs) {
        h = mix_in(h, (uint64_t)plan->n);
        h = mix_in(h, (uint64_t)plan->n_before);
    }
    return mix_in(h, weight);
}

/* What fixes the order beside the data sets: where stages begin, and their
 * weights. Names are without their directories, as in digest_member(). */
static uint64_t digest_stages(const struct gpt_data_stages *stages)
{
    uint64_t h = 's';

    for (int64_t i = 0; i < stages->n; i++) {
        const struct gpt_data_stage *stage = &stages->stage[i];

        h = mix_in(h, (uint64_t)stage->first);
        for (int64_t k = 0; k < stage->n; k++)
            h = mix_in(h, gpt_fnv1a(gpt_path_name(stage->words[k])));
    }
    return h;
}

/* The digest of the first split in use. It is built from what the order depends
 * on, not from what was asked for: a longer run that needs no further epoch
 * keeps it. Without `epochs` any other length does. */
static uint64_t digest_corpus(const struct gpt_corpus *c, bool epochs)
{
    uint64_t h = mix_in(mix_in(1, (uint64_t)c->seq_length), c->seed);

    /* only where they are used: digests of runs without them stay valid */
    if (c->in_order)
        h = mix_in(h, 'o');
    if (c->documents)
        h = mix_in(mix_in(mix_in(h, 'd'), (uint64_t)c->begin),
                   (uint64_t)c->end);

    if (c->stages)
        h = mix_in(h, c->stages);
    for (int k = 0; k < GPT_N_SPLITS; k++) {
        const struct gpt_corpus_split *s = &c->split[k];

        for (int64_t i = 0; i < s->n_members; i++)
            h = digest_member(h, &s->member[i], epochs);
        if (s->n_members > 0)
            break;
    }
    return h;
}

/* ---- all of it ---- */

int gpt_corpus_open(struct gpt_corpus **out,
                    const struct gpt_corpus_options *o, struct gpt_err *err)
{
    struct gpt_corpus *c;
    bool per_split = o->stages != NULL;

    *out = NULL;
    for (int k = 0; k < GPT_N_SPLITS; k++)
        per_split = per_split || o->n_split_path[k] > 0;
    GPT_TRY(check_options(o, per_split, err));
    GPT_TRY(gpt_new(&c, 1, sizeof(*c), "a corpus", err));
    c->seq_length = o->seq_length;
    c->vocab_size = o->vocab_size;
    c->seed = (uint32_t)o->seed;
    c->in_order = o->in_order;
    c->documents = o->documents;
    c->begin = o->begin;
    c->end = o->end;
    c->mock = o->mock;
    c->mock_end = o->mock_end;
    c->impl = o->impl;
    int status = per_split ? open_per_split(c, o, err)
                           : open_shared(c, o, err);
    if (status != GPT_OK) {
        gpt_corpus_close(c);
        return status;
    }
    c->impl = NULL;
    if (o->stages && o->n_samples[GPT_TRAIN] > 0)
        c->stages = digest_stages(o->stages);
    c->digest = digest_corpus(c, true);
    c->sets_digest = digest_corpus(c, false);
    *out = c;
    return GPT_OK;
}
