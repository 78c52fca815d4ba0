/* Beam search; see beams.h. Start at step_search(): candidates of all beams,
 * those that end (finish_texts()), and those that go on (keep_beams()). Several
 * searches share each step of the decoder (gpt_search_beams()). */
#include "generate/beams.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/signals.h"
#include "generate/adjust.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* A text, open or finished. */
struct beam {
    int32_t *ids; /* (n), room for max_tokens */
    int64_t n;
    double score; /* open: the sum; finished: divided by the length */
    enum gpt_finish finish;
    int64_t slot; /* of the decoder; open beams alone */
};

struct candidate {
    double sum;
    int64_t beam;
    int32_t id;
};

/* The search for one request. */
struct search {
    int64_t request;    /* -1: idle */
    int64_t max_tokens; /* that fit into the positions */
    int64_t n_open, n_done;
    struct beam *open, *next; /* (beams) */
    struct beam *done;        /* (beams), the best first */
    bool over;
};

struct searches {
    struct gpt_decoder *d;
    const struct gpt_request *requests;
    const struct gpt_beam_rule *rule;
    struct gpt_speed *speed;
    int64_t vocab, positions, beams, n_searches;
    struct search *searches;
    int32_t *ids;            /* memory of all beams' ids */
    float *logits;           /* (searches * beams, V) */
    float *row;              /* (V) log-probabilities */
    int32_t *counts;         /* (V) zero */
    int32_t *slots, *tokens; /* (searches * beams) of a step */
    struct candidate *candidates;
    struct gpt_beam *best;
};

/* ---- candidates ---- */

/* Penalties act on log-probabilities here, as transformers has it, and not on
 * logits as for texts that are drawn. */
static void weigh_row(struct searches *s, const struct gpt_request *q,
                      const struct beam *beam, const float *logits)
{
    const double log_sum = gpt_log_sum(logits, s->vocab);
    const struct gpt_history history = {q->prompt, q->n_prompt, beam->ids,
                                        beam->n};

    for (int64_t i = 0; i < s->vocab; i++)
        s->row[i] = (float)((double)logits[i] - log_sum);
    if (gpt_adjusts(&q->choice->sampling))
        gpt_adjust(s->row, s->vocab, &q->choice->sampling, &history, s->counts);
}

/* Enters what is better than the last of a sorted list of at most `most`; equal
 * ones stay in the order of beams and ids. */
static int64_t enter(struct candidate *list, int64_t n, int64_t most,
                     struct candidate c)
{
    if (n == most && !(c.sum > list[n - 1].sum))
        return n;
    n += n < most;
    int64_t at = n - 1;
    for (; at > 0 && c.sum > list[at - 1].sum; at--)
        list[at] = list[at - 1];
    list[at] = c;
    return n;
}

/* So many that, even if each beam ends in all ways that it can, as many as
 * there are beams go on. */
static int64_t candidates_wanted(const struct gpt_choice *choice, int64_t beams)
{
    return gpt_max_i64(2, 1 + choice->n_ends) * beams;
}

/* One sorted list for all beams. A candidate that is worse than the last of it
 * costs one comparison, so that a vocabulary costs little more than its
 * softmax. */
static int64_t find_candidates(struct searches *s, const struct search *f,
                               const float *logits, struct gpt_err *err)
{
    const struct gpt_request *q = &s->requests[f->request];
    const int64_t most = candidates_wanted(q->choice, s->beams);
    int64_t n = 0;

    for (int64_t b = 0; b < f->n_open; b++) {
        weigh_row(s, q, &f->open[b], logits + b * s->vocab);
        for (int64_t i = 0; i < s->vocab; i++) {
            const double sum = f->open[b].score + (double)s->row[i];

            if (isnan(sum)) {
                gpt_fail(err, GPT_EDIVERGED,
                         "the model's logits are not finite numbers");
                return -1;
            }
            n = enter(s->candidates, n, most,
                      (struct candidate){sum, b, (int32_t)i});
        }
    }
    return n;
}

/* Two ends in a row do not end a beam: only ids do. */
static bool is_end(const struct gpt_choice *choice, int32_t id)
{
    for (int i = 0; i < choice->n_ends; i++)
        if (choice->ends[i] == id)
            return true;
    return false;
}

/* ---- finished texts ---- */

static void swap_beams(struct beam *a, struct beam *b)
{
    struct beam t = *a;

    *a = *b;
    *b = t;
}

/* Enters a finished text into its place; the worst leaves a full list. A beam
 * keeps its memory, so that texts change places with their ids. */
static void enter_text(struct searches *s, struct search *f,
                       const struct beam *parent, int32_t id, double score,
                       enum gpt_finish finish)
{
    if (f->n_done == s->beams && !(score > f->done[s->beams - 1].score))
        return;
    f->n_done += f->n_done < s->beams;
    struct beam *text = &f->done[f->n_done - 1];
    memcpy(text->ids, parent->ids, (size_t)parent->n * sizeof(*text->ids));
    text->n = parent->n;
    if (finish != GPT_FINISH_EOD)
        text->ids[text->n++] = id;
    text->score = score;
    text->finish = finish;
    for (int64_t i = f->n_done - 1; i > 0 && score > f->done[i - 1].score; i--)
        swap_beams(&f->done[i], &f->done[i - 1]);
}

/* A penalty of 0 compares sums, one below 0 favours short texts. */
static double divide_by_length(const struct searches *s, double sum,
                               int64_t length)
{
    return sum / pow((double)length, s->rule->length_penalty);
}

/* A candidate that ends its text counts only among the first `beams`; the
 * candidates after these are there so that enough texts continue. With
 * GPT_STOP_FIRST a full list is final; else a better text may still take the
 * place of the worst. */
static void finish_texts(struct searches *s, struct search *f, int64_t n,
                         int64_t length)
{
    const struct gpt_choice *choice = s->requests[f->request].choice;
    const bool full = f->n_done == s->beams && s->rule->early == GPT_STOP_FIRST;

    for (int64_t i = 0; i < gpt_min_i64(n, s->beams) && !full; i++) {
        const struct candidate *c = &s->candidates[i];
        const bool end = is_end(choice, c->id);

        if (end || length == f->max_tokens)
            enter_text(s, f, &f->open[c->beam], c->id,
                       divide_by_length(s, c->sum, length),
                       end ? GPT_FINISH_EOD : GPT_FINISH_TOKENS);
    }
}

/* ---- open beams ---- */

/* Gives each new beam a slot that holds its text. The first child of a beam
 * takes over its slot, others get copies in the slots of beams without
 * children. Sources are never overwritten: they are children's slots, too. */
static int move_slots(struct searches *s, struct search *f,
                      const int64_t *parents, int64_t n, struct gpt_err *err)
{
    const int64_t first = (f - s->searches) * s->beams;
    bool used[GPT_MOST_BEAMS] = {false};

    for (int64_t i = 0; i < n; i++) {
        int64_t slot = f->open[parents[i]].slot;

        f->next[i].slot = used[slot - first] ? -1 : slot;
        used[slot - first] = true;
    }
    for (int64_t i = 0, free = 0; i < n; i++) {
        if (f->next[i].slot >= 0)
            continue;
        while (used[free])
            free++;
        used[free] = true;
        f->next[i].slot = first + free;
        const int64_t from = f->open[parents[i]].slot;
        GPT_TRY(gpt_decoder_copy(s->d, from, first + free,
                                 gpt_decoder_length(s->d, from), err));
    }
    return GPT_OK;
}

/* The best candidates that do not end become the open beams. */
static int keep_beams(struct searches *s, struct search *f, int64_t n,
                      struct gpt_err *err)
{
    const struct gpt_choice *choice = s->requests[f->request].choice;
    int64_t parents[GPT_MOST_BEAMS], kept = 0;

    for (int64_t i = 0; i < n && kept < s->beams; i++) {
        const struct candidate *c = &s->candidates[i];
        const struct beam *parent = &f->open[c->beam];
        struct beam *beam = &f->next[kept];

        if (is_end(choice, c->id))
            continue;
        memcpy(beam->ids, parent->ids, (size_t)parent->n * sizeof(*beam->ids));
        beam->n = parent->n;
        beam->ids[beam->n++] = c->id;
        beam->score = c->sum;
        parents[kept++] = c->beam;
    }
    GPT_TRY(move_slots(s, f, parents, kept, err));
    struct beam *old = f->open;
    f->open = f->next;
    f->next = old;
    f->n_open = kept;
    return GPT_OK;
}

/* True when an open beam may still become a better text than the worst of the
 * finished ones, by the rule's idea of what it may become. */
static bool can_improve(const struct searches *s, const struct search *f,
                        int64_t length)
{
    if (f->n_open == 0)
        return false;
    if (f->n_done < s->beams)
        return true;
    if (s->rule->early == GPT_STOP_FIRST)
        return false;
    if (s->rule->early == GPT_STOP_NEVER && s->rule->length_penalty > 0)
        length = f->max_tokens;
    return divide_by_length(s, f->open[0].score, length) >
           f->done[s->beams - 1].score;
}

/* One token more for all beams of a search; logits (n_open, V). All open beams
 * have the same length. At the last token every candidate ends, and none goes
 * on. */
static int step_search(struct searches *s, struct search *f,
                       const float *logits, struct gpt_err *err)
{
    const int64_t n = find_candidates(s, f, logits, err);
    const int64_t length = f->open[0].n + 1;

    if (n < 0)
        return GPT_EDIVERGED;
    finish_texts(s, f, n, length);
    if (length == f->max_tokens) {
        f->over = true;
        return GPT_OK;
    }
    GPT_TRY(keep_beams(s, f, n, err));
    f->over = !can_improve(s, f, length);
    return GPT_OK;
}

/* ---- all searches ---- */

/* The prompt is in one slot; the first step makes the copies for the beams
 * that it opens. */
static int begin_search(struct searches *s, struct search *f, int64_t request,
                        struct gpt_err *err)
{
    const struct gpt_request *q = &s->requests[request];
    const int64_t slot = (f - s->searches) * s->beams;
    const double start = gpt_now();

    f->request = request;
    f->max_tokens = gpt_min_i64(q->max_tokens, s->positions + 1 - q->n_prompt);
    f->n_open = 1;
    f->n_done = 0;
    f->over = false;
    f->open[0].n = 0;
    f->open[0].score = 0;
    f->open[0].slot = slot;
    gpt_decoder_truncate(s->d, slot, 0);
    GPT_TRY(gpt_decoder_append(s->d, slot, q->prompt, q->n_prompt,
                               GPT_LOGITS_LAST, s->logits, err));
    s->speed->prompt_seconds += gpt_now() - start;
    s->speed->prompt_tokens += q->n_prompt;
    return step_search(s, f, s->logits, err);
}

/* The list is in order of scores already; what is past the n best was there
 * for the search alone. */
static int end_search(struct searches *s, struct search *f, bool stopped,
                      int (*found)(void *, int64_t, const struct gpt_beam *,
                                   int64_t, struct gpt_err *),
                      void *user, struct gpt_err *err)
{
    const int64_t n = stopped ? 0 : gpt_min_i64(f->n_done, s->rule->n_best);
    const int64_t request = f->request;

    for (int64_t i = 0; i < n; i++)
        s->best[i] = (struct gpt_beam){f->done[i].ids, f->done[i].n,
                                       f->done[i].score, f->done[i].finish};
    f->request = -1;
    return found(user, request, s->best, n, err);
}

/* The beams of all searches take one step together: it reads the weights once,
 * for a search of four beams as for four searches. A search that ended in its
 * last step has left before. */
static int step_all(struct searches *s, struct gpt_err *err)
{
    const double start = gpt_now();
    int64_t n = 0, at = 0;

    for (int64_t i = 0; i < s->n_searches; i++) {
        const struct search *f = &s->searches[i];

        for (int64_t b = 0; f->request >= 0 && b < f->n_open; b++, n++) {
            s->slots[n] = (int32_t)f->open[b].slot;
            s->tokens[n] = f->open[b].ids[f->open[b].n - 1];
        }
    }
    GPT_TRY(gpt_decoder_step(s->d, s->slots, s->tokens, n, s->logits, err));
    for (int64_t i = 0; i < s->n_searches; i++) {
        struct search *f = &s->searches[i];
        const int64_t rows = f->request >= 0 ? f->n_open : 0;

        if (rows > 0)
            GPT_TRY(step_search(s, f, s->logits + at * s->vocab, err));
        at += rows;
    }
    s->speed->step_seconds += gpt_now() - start;
    s->speed->step_tokens += n;
    s->speed->steps++;
    return GPT_OK;
}

/* Idle searches take the next requests; a step is for those under way. A search
 * may be over with its first token, so that a place can be filled several times
 * before a step. */
static int search_all(struct searches *s, int64_t n_requests,
                      int (*found)(void *, int64_t, const struct gpt_beam *,
                                   int64_t, struct gpt_err *),
                      void *user, struct gpt_err *err)
{
    int64_t begun = 0, under_way;

    do {
        under_way = 0;
        for (int64_t i = 0; i < s->n_searches; i++) {
            struct search *f = &s->searches[i];

            while (f->request < 0 && begun < n_requests &&
                   !gpt_signals_stop()) {
                if (s->requests[begun].n_prompt == 0)
                    GPT_TRY(found(user, begun, NULL, 0, err));
                else
                    GPT_TRY(begin_search(s, f, begun, err));
                begun++;
            }
            if (f->request >= 0 && (f->over || gpt_signals_stop()))
                GPT_TRY(end_search(s, f, !f->over, found, user, err));
            under_way += f->request >= 0;
        }
        if (under_way > 0)
            GPT_TRY(step_all(s, err));
    } while (under_way > 0 || (begun < n_requests && !gpt_signals_stop()));
    return GPT_OK;
}

/* All ids lie in one block: three lists of beams a search. A search that begins
 * allocates nothing: lists of idle searches wait with their memory. */
static int allocate(struct searches *s, int64_t most_tokens,
                    int64_t most_candidates, struct gpt_err *err)
{
    const size_t rows = (size_t)(s->n_searches * s->beams);
    const size_t beams = (size_t)s->beams, vocab = (size_t)s->vocab;
    int32_t *at;

    GPT_TRY(gpt_new(&s->searches, (size_t)s->n_searches, sizeof(*s->searches),
                    "searches", err));
    GPT_TRY(gpt_new(&s->ids, 3 * rows * (size_t)most_tokens, sizeof(*s->ids),
                    "beams", err));
    GPT_TRY(
        gpt_new(&s->logits, rows * vocab, sizeof(*s->logits), "logits", err));
    GPT_TRY(gpt_new(&s->row, vocab, sizeof(*s->row), "logits", err));
    GPT_TRY(gpt_new(&s->counts, vocab, sizeof(*s->counts), "counts", err));
    GPT_TRY(gpt_new(&s->slots, rows, sizeof(*s->slots), "beams", err));
    GPT_TRY(gpt_new(&s->tokens, rows, sizeof(*s->tokens), "beams", err));
    GPT_TRY(gpt_new(&s->best, beams, sizeof(*s->best), "beams", err));
    GPT_TRY(gpt_new(&s->candidates, (size_t)most_candidates,
                    sizeof(*s->candidates), "candidates", err));
    at = s->ids;
    for (int64_t i = 0; i < s->n_searches; i++) {
        struct beam **lists[] = {&s->searches[i].open, &s->searches[i].next,
                                 &s->searches[i].done};

        s->searches[i].request = -1;
        for (size_t k = 0; k < GPT_COUNT(lists); k++) {
            GPT_TRY(gpt_new(lists[k], beams, sizeof(**lists[k]), "beams", err));
            for (int64_t b = 0; b < s->beams; b++, at += most_tokens)
                (*lists[k])[b].ids = at;
        }
    }
    return GPT_OK;
}

static void free_searches(struct searches *s)
{
    for (int64_t i = 0; s->searches && i < s->n_searches; i++) {
        gpt_free(s->searches[i].open);
        gpt_free(s->searches[i].next);
        gpt_free(s->searches[i].done);
    }
    gpt_free(s->searches);
    gpt_free(s->ids);
    gpt_free(s->logits);
    gpt_free(s->row);
    gpt_free(s->counts);
    gpt_free(s->slots);
    gpt_free(s->tokens);
    gpt_free(s->best);
    gpt_free(s->candidates);
}

int gpt_search_beams(struct gpt_decoder *d, const struct gpt_request *requests,
                     int64_t n_requests, const struct gpt_beam_rule *rule,
                     int (*found)(void *user, int64_t request,
                                  const struct gpt_beam *beams, int64_t n,
                                  struct gpt_err *err),
                     void *user, struct gpt_speed *speed, struct gpt_err *err)
{
    const struct gpt_decoder_options *shape = gpt_decoder_shape(d);
    struct searches s = {
        .d = d,
        .requests = requests,
        .rule = rule,
        .speed = speed,
        .vocab = shape->config->vocab_size,
        .positions = shape->positions,
        .beams = rule->beams,
        .n_searches = gpt_min_i64(shape->slots / rule->beams, n_requests),
    };
    int64_t most_tokens = 1, most_candidates = 1;

    assert(rule->beams >= 1 && rule->n_best <= rule->beams);
    *speed = (struct gpt_speed){0};
    if (rule->beams > shape->slots || rule->beams > GPT_MOST_BEAMS)
        return gpt_fail(err, GPT_EUSAGE, "%lld beams, but %lld texts at once",
                        (long long)rule->beams, (long long)shape->slots);
    GPT_TRY(gpt_requests_check(d, requests, n_requests, err));
    for (int64_t i = 0; i < n_requests; i++) {
        most_tokens = gpt_max_i64(
            most_tokens, gpt_min_i64(requests[i].max_tokens, s.positions));
        most_candidates = gpt_max_i64(
            most_candidates, candidates_wanted(requests[i].choice, s.beams));
    }
    int status = allocate(&s, most_tokens + 1, most_candidates, err);
    if (status == GPT_OK)
        status = search_all(&s, n_requests, found, user, err);
    free_searches(&s);
    return status;
}
