/* The training split of a run in stages, each of which has data sets and
 * weights of its own; see data_stages.h. A stage is a blend that is as long as
 * the stage, and the blends are joined to one order of the whole split. So a
 * corpus reads it as any other. Start at gpt_corpus_open_stages(). */
#include "data/corpus_internal.h"

#include "base/memory.h"
#include "base/num.h"

#include <inttypes.h>

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
static int number_sets(struct gpt_corpus *c, struct gpt_corpus_split *s,
                       struct part *p, struct gpt_err *err)
{
    GPT_TRY(gpt_new(&p->member, (size_t)p->sets.n, sizeof(*p->member),
                    "a data stage", err));
    for (int64_t i = 0; i < p->sets.n; i++) {
        const struct gpt_indexed *set;
        int64_t k = 0;

        GPT_TRY(gpt_corpus_open_set(c, p->sets.prefix[i], &set, err));
        while (k < s->n_members && s->member[k].set != set)
            k++;
        p->member[i] = k;
        if (k < s->n_members)
            continue;
        s->member[s->n_members++] = (struct gpt_corpus_member){
            .set = set, .end = gpt_indexed_n_sequences(set)};
    }
    return GPT_OK;
}

/* Reads the words of all stages, and the order of data sets in those that the
 * split reaches. A single data set is a blend of one. */
static int lay_out(struct gpt_corpus *c, struct gpt_corpus_split *s,
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
static int join_parts(struct gpt_corpus_split *s, const struct part *part,
                      int64_t n, int64_t wanted, struct gpt_err *err)
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
static int64_t samples_of(const struct gpt_corpus_split *s,
                          const struct part *part, int64_t n, int64_t member)
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
static int build_staged(const struct gpt_corpus *c, struct gpt_corpus_split *s,
                        const struct part *part, int64_t n,
                        struct gpt_err *err)
{
    for (int64_t i = 0; i < s->n_members; i++) {
        const int64_t wanted = gpt_max_i64(samples_of(s, part, n, i), 1);

        GPT_TRY(gpt_corpus_build_member(c, &s->member[i], GPT_TRAIN, wanted,
                                        err));
    }
    return GPT_OK;
}

/* The three passes need each other in this order: which sets there are, which
 * of them gives a sample, how many samples of a set have to be indexed for
 * it. */
int gpt_corpus_open_stages(struct gpt_corpus *c,
                           const struct gpt_data_stages *stages, int64_t wanted,
                           struct gpt_err *err)
{
    struct gpt_corpus_split *s = &c->split[GPT_TRAIN];
    struct part *part = NULL;
    int64_t most = 0;
    int status;

    for (int64_t i = 0; i < stages->n; i++)
        most += stages->stage[i].n;
    if (most > GPT_BLEND_MAX)
        return gpt_fail(err, GPT_EUSAGE,
                        "data stages: all stages together name %" PRId64
                        " data sets and weights, at most %d are taken",
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
out:
    free_parts(part, stages->n);
    return status;
}
