/* A corpus: for each split the data sets it draws from, their sample indices,
 * and the blend that says which one gives sample i. Everything is built at open
 * and only read afterwards, so that gpt_corpus_get() needs no lock. Every rank
 * builds the same, from the same files, and reads other samples of it. Start at
 * gpt_corpus_open(). */
#include "data/corpus.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/num.h"
#include "data/blend.h"
#include "data/indexed.h"
#include "data/sample_index.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* A data set's part in one split. */
struct member {
    const struct gpt_indexed *set;
    double weight; /* normalized once; 0 when no weights were given */
    int64_t begin, end;
    struct gpt_samples samples;
};

/* A split that is one data set has no blend: its sample i is the set's own. */
struct split {
    int64_t n_members;
    struct member *member;
    struct gpt_blend blend; /* only when blended */
    bool blended, weighted;
    int64_t size;
};

struct gpt_corpus {
    int64_t seq_length, vocab_size;
    uint32_t seed;
    bool in_order, documents;
    int32_t begin, end; /* of documents */
    const char *impl;
    int64_t n_sets, cap_sets;
    struct gpt_indexed **set; /* each prefix once */
    struct split split[GPT_N_SPLITS];
    uint64_t digest, sets_digest;
    uint64_t stages; /* a digest, 0: there are none */
};

static const char *const split_names[GPT_N_SPLITS] = {"train", "valid",
                                                      "test"};

/* The split may have been opened in part. */
static void free_split(struct split *s)
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

/* ---- opening ---- */

/* A prefix that several splits or parts name is opened once: descriptors and
 * address space are shared. */
static int open_set(struct gpt_corpus *c, const char *prefix,
                    const struct gpt_indexed **set, struct gpt_err *err)
{
    for (int64_t i = 0; i < c->n_sets; i++)
        if (strcmp(gpt_indexed_prefix(c->set[i]), prefix) == 0) {
            *set = c->set[i];
            return GPT_OK;
        }
    size_t cap = (size_t)c->cap_sets;
    GPT_TRY(gpt_grow(&c->set, &cap, (size_t)c->n_sets + 1, sizeof(*c->set),
                     "data sets", err));
    c->cap_sets = (int64_t)cap;
    GPT_TRY(gpt_indexed_open(&c->set[c->n_sets], prefix, c->impl, err));
    /* A sample is a few pages somewhere in the file. */
    gpt_indexed_read_randomly(c->set[c->n_sets]);
    *set = c->set[c->n_sets++];
    return GPT_OK;
}

/* The lengths are borrowed from the mapped index: a corpus of thousands of sets
 * holds no copy of them. */
static int build_member(const struct gpt_corpus *c, struct member *m,
                        enum gpt_split split, int64_t wanted,
                        struct gpt_err *err)
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
                    gpt_indexed_prefix(m->set), split_names[split], m->begin,
                    m->end);
        gpt_hint(err, "give the split a larger share or more data, or"
                      " shorten the sequences");
    }
    return status;
}

/* Builds the indices of all members, several at a time. The failure of the
 * first member, not of the first thread, is reported: it is the same in each
 * run. */
static int build_members(const struct gpt_corpus *c, struct split *s,
                         enum gpt_split which, int64_t wanted,
                         struct gpt_err *err)
{
    int64_t failed = s->n_members;
    int status = GPT_OK;

/* Each index is shuffled by its own generator, so that the threads share
 * nothing. */
#pragma omp parallel for schedule(dynamic) if (s->n_members > 1)
    for (int64_t i = 0; i < s->n_members; i++) {
        struct member *m = &s->member[i];
        struct gpt_err e = {0};
        /* Alone: what is wanted. With weights: its share, and half a percent
         * more, as the blend rounds. Without: one epoch. */
        int64_t n = !s->blended   ? wanted
                    : s->weighted ? gpt_blend_share_built(wanted, m->weight)
                                  : 0;
        int got = build_member(c, m, which, n, &e);
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
static int build_blend(struct split *s, const char *name, int64_t wanted,
                       struct gpt_err *err)
{
    int64_t n = s->n_members, size = 0;
    double *w;

    GPT_TRY(gpt_new(&w, (size_t)n, sizeof(*w), "a blend", err));
    for (int64_t i = 0; i < n; i++) {
        const struct member *m = &s->member[i];

        w[i] = s->weighted ? m->weight : (double)m->samples.plan.n;
        size += s->weighted ? gpt_blend_share(wanted, w[i])
                            : m->samples.plan.n;
    }
    /* The weights were normalized once, at open; a second time here gives other
     * last bits, and is what Megatron does. */
    int status = GPT_OK;
    if (size < wanted) {
        gpt_fail(err, GPT_EDATA,
                 "%s split: %" PRId64 " samples wanted, one epoch of its %"
                 PRId64 " data sets has %" PRId64, name, wanted, n, size);
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
                              " samples of %" PRId64,
                              gpt_indexed_prefix(s->member[i].set), name,
                              s->blend.taken[i],
                              s->member[i].samples.plan.n);
    s->size = s->blend.size;
    return status;
}

/* True when the split has no sequence of any of its data sets. */
static bool is_empty(const struct split *s)
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
    struct split *s = &c->split[which];

    GPT_TRY(gpt_new(&s->member, (size_t)parts->n, sizeof(*s->member),
                    "a split", err));
    s->n_members = parts->n;
    s->blended = blended;
    s->weighted = parts->weight != NULL;
    /* Weights are normalized over all parts here, and once more over those of
     * the blend: both sums are pairwise. */
    double sum = parts->weight ? gpt_pairwise_sum(parts->weight, parts->n) : 1;
    for (int64_t i = 0; i < parts->n; i++) {
        struct member *m = &s->member[i];

        GPT_TRY(open_set(c, parts->prefix[i], &m->set, err));
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
        return build_blend(s, split_names[which], wanted, err);
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

/* ---- stages ---- */

/* Order matters: a digest of (a, b) is another one than that of (b, a). */
static uint64_t mix_in(uint64_t h, uint64_t v)
{
    uint8_t bytes[8];

    gpt_put_u64(bytes, v);
    return gpt_hash64(bytes, sizeof(bytes), h);
}

/* A stage of the training split while it is laid out. */
struct part {
    struct gpt_blend_parts sets;
    int64_t *member; /* (sets.n) number of each among those of the split */
    struct gpt_blend blend;
    int64_t size; /* samples */
};

/* Parts that a failure left out are zero. */
static void free_parts(struct part *part, int64_t n)
{
    for (int64_t i = 0; part && i < n; i++) {
        gpt_blend_parts_free(&part[i].sets);
        gpt_blend_free(&part[i].blend);
        gpt_free(part[i].member);
    }
    gpt_free(part);
}

/* Numbers the data sets of a stage, those of earlier ones as before. */
static int number_sets(struct gpt_corpus *c, struct split *s, struct part *p,
                       struct gpt_err *err)
{
    GPT_TRY(gpt_new(&p->member, (size_t)p->sets.n, sizeof(*p->member),
                    "a data stage", err));
    for (int64_t i = 0; i < p->sets.n; i++) {
        const struct gpt_indexed *set;
        int64_t k = 0;

        GPT_TRY(open_set(c, p->sets.prefix[i], &set, err));
        while (k < s->n_members && s->member[k].set != set)
            k++;
        p->member[i] = k;
        if (k < s->n_members)
            continue;
        s->member[s->n_members++] = (struct member){
            .set = set, .end = gpt_indexed_n_sequences(set)};
    }
    return GPT_OK;
}

/* Reads the words of all stages, and the order of data sets in those that the
 * split reaches. A single data set is a blend of one. */
static int lay_out(struct gpt_corpus *c, struct split *s,
                   const struct gpt_data_stages *stages, int64_t wanted,
                   struct part *part, struct gpt_err *err)
{
    for (int64_t i = 0; i < stages->n; i++) {
        const struct gpt_data_stage *stage = &stages->stage[i];
        const int64_t end = i + 1 < stages->n
                                ? gpt_min_i64(stage[1].first, wanted)
                                : wanted;
        struct part *p = &part[i];
        const double one = 1; /* the weight of a set alone */

        /* words of stages that are not reached are checked as well */
        GPT_TRY(gpt_blend_parse(&p->sets, stage->words, stage->n, err));
        GPT_TRY(number_sets(c, s, p, err));
        p->size = gpt_max_i64(end - stage->first, 0);
        if (p->size == 0)
            continue;
        /* twice, as Megatron does: a run of one stage is that of its words */
        for (int k = 0; k < 2 && p->sets.weight; k++)
            gpt_normalize(p->sets.weight, p->sets.n);
        GPT_TRY(gpt_blend_build(&p->blend,
                                p->sets.weight ? p->sets.weight : &one,
                                p->sets.n, p->size, err));
    }
    return GPT_OK;
}

/* One order of the whole split. A data set goes on in a stage where it stopped
 * in an earlier one, so that no sample comes again before its epoch is over. */
static int join_parts(struct split *s, const struct part *part, int64_t n,
                      int64_t wanted, struct gpt_err *err)
{
    static const char what[] = "data stages";
    struct gpt_blend *b = &s->blend;
    int64_t at = 0;

    GPT_TRY(gpt_new(&b->taken, (size_t)s->n_members, sizeof(*b->taken), what,
                    err));
    GPT_TRY(gpt_new(&b->set, (size_t)wanted, sizeof(*b->set), what, err));
    GPT_TRY(gpt_new(&b->sample, (size_t)wanted, sizeof(*b->sample), what,
                    err));
    for (int64_t i = 0; i < n; i++)
        for (int64_t t = 0; t < part[i].size; t++) {
            const int64_t k = part[i].member[part[i].blend.set[t]];

            b->set[at] = (uint16_t)k;
            b->sample[at++] = (uint32_t)b->taken[k]++;
        }
    b->size = s->size = at;
    return GPT_OK;
}

/* The samples that all stages build of a data set: as a blend of each alone
 * would, and no fewer than are taken. */
static int64_t samples_of(const struct split *s, const struct part *part,
                          int64_t n, int64_t member)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; part[i].size > 0 && k < part[i].sets.n; k++)
            if (part[i].member[k] == member)
                sum += part[i].sets.weight
                           ? gpt_blend_share_built(part[i].size,
                                                   part[i].sets.weight[k])
                           : part[i].size;
    return gpt_max_i64(sum, s->blend.taken[member]);
}

/* The indices of all data sets, as long as the stages need them. One that no
 * sample comes from yet has an epoch, as it will have when the run is made
 * longer. */
static int build_staged(const struct gpt_corpus *c, struct split *s,
                        const struct part *part, int64_t n,
                        struct gpt_err *err)
{
    for (int64_t i = 0; i < s->n_members; i++)
        GPT_TRY(build_member(c, &s->member[i], GPT_TRAIN,
                             gpt_max_i64(samples_of(s, part, n, i), 1), err));
    return GPT_OK;
}

/* What fixes the order beside the data sets: where stages begin, and their
 * weights. Names are without their directories, as in digest_member(). */
static uint64_t digest_stages(const struct gpt_data_stages *stages)
{
    uint64_t h = 's';

    for (int64_t i = 0; i < stages->n; i++) {
        h = mix_in(h, (uint64_t)stages->stage[i].first);
        for (int64_t k = 0; k < stages->stage[i].n; k++)
            h = mix_in(h,
                       gpt_fnv1a(gpt_path_name(stages->stage[i].words[k])));
    }
    return h;
}

/* Opens the training split of a staged run. The three passes need each other in
 * this order: which sets there are, which of them gives a sample, how many
 * samples of a set have to be indexed for it. */
static int open_stages(struct gpt_corpus *c,
                       const struct gpt_data_stages *stages, int64_t wanted,
                       struct gpt_err *err)
{
    struct split *s = &c->split[GPT_TRAIN];
    struct part *part = NULL;
    int64_t most = 0;
    int status;

    for (int64_t i = 0; i < stages->n; i++)
        most += stages->stage[i].n;
    if (most > GPT_BLEND_MAX)
        return gpt_fail(err, GPT_EUSAGE,
                        "data stages: %" PRId64 " words, at most %d are taken",
                        most, GPT_BLEND_MAX);
    GPT_TRY(gpt_new(&s->member, (size_t)most, sizeof(*s->member), "a split",
                    err));
    /* an epoch has no length where weights decide */
    s->blended = s->weighted = true;
    GPT_TRY_GOTO(status, gpt_new(&part, (size_t)stages->n, sizeof(*part),
                                 "data stages", err), out);
    GPT_TRY_GOTO(status, lay_out(c, s, stages, wanted, part, err), out);
    GPT_TRY_GOTO(status, join_parts(s, part, stages->n, wanted, err), out);
    status = build_staged(c, s, part, stages->n, err);
    c->stages = digest_stages(stages);
out:
    free_parts(part, stages->n);
    return status;
}

/* Opens splits that have data sets of their own. A single one is not blended
 * here even with a weight, unlike in open_shared(): both are Megatron's
 * rule. */
static int open_per_split(struct gpt_corpus *c,
                          const struct gpt_corpus_options *o,
                          struct gpt_err *err)
{
    if (o->stages && o->n_samples[GPT_TRAIN] > 0)
        GPT_TRY(open_stages(c, o->stages, o->n_samples[GPT_TRAIN], err));
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
                            split_names[k], o->n_samples[k]);
    if (o->seed > UINT32_MAX)
        return gpt_fail(err, GPT_EUSAGE,
                        "seed is %" PRIu64 ", the sample order takes at most"
                        " 4294967295", o->seed);
    return GPT_OK;
}

/* ---- digest ---- */

/* The lengths of all sequences enter, not the tokens: reading these would take
 * as long as an epoch does. */
static uint64_t digest_member(uint64_t h, const struct member *m, bool epochs)
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

/* The digest of the first split in use. It is built from what the order depends
 * on, not from what was asked for: a longer run that needs no further epoch
 * keeps it. Without `epochs` any other length does. */
static uint64_t digest_corpus(const struct gpt_corpus *c, bool epochs)
{
    uint64_t h = mix_in(mix_in(1, (uint64_t)c->seq_length), c->seed);

    /* as before these were there, where they are not used */
    if (c->in_order)
        h = mix_in(h, 'o');
    if (c->documents)
        h = mix_in(mix_in(mix_in(h, 'd'), (uint64_t)c->begin),
                   (uint64_t)c->end);

    if (c->stages)
        h = mix_in(h, c->stages);
    for (int k = 0; k < GPT_N_SPLITS; k++) {
        const struct split *s = &c->split[k];

        for (int64_t i = 0; i < s->n_members; i++)
            h = digest_member(h, &s->member[i], epochs);
        if (s->n_members > 0)
            break;
    }
    return h;
}

/* ---- open, read ---- */

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
    c->impl = o->impl;
    int status = per_split ? open_per_split(c, o, err)
                           : open_shared(c, o, err);
    if (status != GPT_OK) {
        gpt_corpus_close(c);
        return status;
    }
    /* It is only needed while sets are opened. */
    c->impl = NULL; /* the caller's */
    c->digest = digest_corpus(c, true);
    c->sets_digest = digest_corpus(c, false);
    *out = c;
    return GPT_OK;
}

/* What is allocated beside these, as names and weights, is of the size of the
 * list of data sets and not of the data. */
int64_t gpt_corpus_memory(const struct gpt_corpus *c)
{
    int64_t bytes = 0;

    for (int64_t i = 0; i < c->n_sets; i++)
        bytes += gpt_indexed_cached(c->set[i]);
    for (int k = 0; k < GPT_N_SPLITS; k++) {
        const struct split *s = &c->split[k];

        bytes += gpt_blend_bytes(s->blend.size);
        for (int64_t i = 0; i < s->n_members; i++)
            bytes += gpt_samples_bytes(s->member[i].samples.plan.n,
                                       s->member[i].samples.n_visits);
    }
    return bytes;
}

/* As open_shared(), open_per_split() and open_stages() decide: one data set
 * with a weight is a blend of one part where splits share their data sets, and
 * none where a split has its own. */
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
    const struct split *s = &c->split[split];

    for (int64_t i = 0; i < s->n_members; i++) {
        const struct member *m = &s->member[i];

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
    const struct split *s = &c->split[split];
    int64_t n = 0;

    if (s->blended && s->weighted)
        return -1;
    for (int64_t i = 0; i < s->n_members; i++) {
        const struct member *m = &s->member[i];

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
static int get_document(const struct gpt_corpus *c, const struct member *m,
                        uint32_t k, int32_t *tokens, struct gpt_err *err)
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
    const struct split *s = &c->split[split];

    if (i < 0 || i >= s->size)
        return gpt_fail(err, GPT_EFAIL,
                        "sample %" PRId64 " of the %s split: it has %" PRId64,
                        i, split_names[split], s->size);
    assert(!s->blended || s->blend.set[i] < s->n_members);
    const struct member *m = &s->member[s->blended ? s->blend.set[i] : 0];
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
