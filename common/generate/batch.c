/* Texts under way; see batch.h. Start at gpt_batch_step(): guesses, the
 * decoder, the choice of tokens (choose_tokens()), and what becomes of a text
 * (take_token()). */
#include "generate/batch.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/num.h"
#include "generate/adjust.h"
#include "generate/guess.h"
#include "tokenizer/ids.h"

#include <assert.h>
#include <omp.h>
#include <string.h>

/* A text under way. */
struct text {
    struct gpt_request request;
    int64_t name;
    struct gpt_ids ids; /* chosen so far */
    struct gpt_rng rng;
    double top_p; /* of the next token: it may decay */
    bool done;
    /* of the step */
    int32_t fed[1 + GPT_MOST_GUESSES]; /* the token chosen last, guesses */
    int64_t n_guesses, row;            /* row: of its first logits */
    int64_t right;                     /* guesses of the step */
    int64_t may_guess;                 /* in the next one */
    int32_t chosen;
};

/* What a thread chooses tokens with. */
struct chooser {
    struct gpt_sampler *sampler;
    int32_t *counts; /* (V) zero: scratch of gpt_adjust() */
    float *adjusted; /* (V) */
};

/* slot[] stays a permutation of all slots, so that a slot is neither lost nor
 * given to two texts; the first n of slot[] and texts[] belong together. */
struct gpt_batch {
    struct gpt_decoder *d;
    struct gpt_prefixes *prefixes; /* NULL: none */
    struct gpt_sink sink;
    struct gpt_speed speed;
    int64_t vocab, slots, positions, guesses;
    struct chooser *choosers; /* (n_choosers): one a thread */
    int n_choosers;
    float *logits;       /* (slots * (1 + guesses), V) */
    struct gpt_top *top; /* (cap_top) */
    size_t cap_top;
    struct text *texts; /* texts[i] is in slot[i] */
    int32_t *slot;      /* (slots): a permutation; first those of the texts
                         * under way, then the free ones */
    int64_t n;          /* texts under way */
    struct gpt_decode_piece *pieces; /* (slots) of a pass */
    int64_t *active;                 /* (slots) texts that choose now */
};

const char *gpt_finish_name(enum gpt_finish finish)
{
    static const char *const names[] = {"eod",  "tokens",  "positions",
                                        "stop", "stopped", "refused"};

    return names[finish];
}

/* A long prompt among many must not be found after an hour of texts. */
int gpt_requests_check(const struct gpt_decoder *d,
                       const struct gpt_request *requests, int64_t n,
                       struct gpt_err *err)
{
    const int64_t positions = gpt_decoder_shape(d)->positions;

    for (int64_t i = 0; i < n; i++)
        if (requests[i].n_prompt > positions)
            return gpt_fail(err, GPT_EDATA,
                            "prompt %llu has %lld tokens, but there are only "
                            "%lld positions",
                            (unsigned long long)requests[i].number + 1,
                            (long long)requests[i].n_prompt,
                            (long long)positions);
    return GPT_OK;
}

void gpt_batch_use_prefixes(struct gpt_batch *b,
                            struct gpt_prefixes *prefixes)
{
    b->prefixes = prefixes;
}

int64_t gpt_batch_texts(const struct gpt_batch *b)
{
    return b->n;
}

int64_t gpt_batch_room(const struct gpt_batch *b)
{
    return b->slots - b->n;
}

const struct gpt_speed *gpt_batch_speed(const struct gpt_batch *b)
{
    return &b->speed;
}

static int end_text(struct gpt_batch *b, struct text *text,
                    enum gpt_finish finish, struct gpt_err *err)
{
    text->done = true;
    return b->sink.finish(b->sink.user, text->name, finish, err);
}

/* Tokens of prompt and text: the place of the next one. */
static int64_t length_of(const struct text *text)
{
    return text->request.n_prompt + (int64_t)text->ids.len;
}

/* The random number is a function of the request and the position alone:
 * batch-mates and the order of work have no part in it. Adjusted logits are a
 * copy, since log-probabilities are the model's. */
static int choose_token(struct chooser *c, struct text *text,
                        const float *logits, int64_t vocab, struct gpt_err *err)
{
    struct gpt_sampling rule = text->request.choice->sampling;
    double u = gpt_sample_uniform(text->rng, length_of(text));

    rule.top_p = text->top_p;
    text->top_p = gpt_sampling_next_p(&rule, text->top_p);
    if (gpt_adjusts(&rule)) {
        const struct gpt_history history = {
            text->request.prompt, text->request.n_prompt, text->ids.data,
            (int64_t)text->ids.len};

        memcpy(c->adjusted, logits, (size_t)vocab * sizeof(*logits));
        gpt_adjust(c->adjusted, vocab, &rule, &history, c->counts);
        logits = c->adjusted;
    }
    return gpt_sample(c->sampler, logits, vocab, &rule, u, &text->chosen, err);
}

/* The logits of a text's next token; `at` guesses before it were right. */
static const float *logits_of(const struct gpt_batch *b, const struct text *t,
                              int64_t at)
{
    return b->logits + (t->row + at) * b->vocab;
}

/* For the first n of active[]. A choice passes over the vocabulary several
 * times, which for many texts would take as long as the step: threads share the
 * texts. */
static int choose_tokens(struct gpt_batch *b, int64_t n, int64_t at,
                         struct gpt_err *err)
{
    enum { SMALL = 1 << 13 }; /* not worth a thread */
    int status = GPT_OK;

#pragma omp parallel for schedule(dynamic) num_threads(b->n_choosers) if (     \
        n > 1 && b->vocab > SMALL)
    for (int64_t i = 0; i < n; i++) {
        struct text *t = &b->texts[b->active[i]];
        struct gpt_err own = {0};
        int result = choose_token(&b->choosers[omp_get_thread_num()], t,
                                  logits_of(b, t, at), b->vocab, &own);

        if (result != GPT_OK)
#pragma omp critical(gpt_batch_failure)
        {
            *err = own;
            status = result;
        }
    }
    return status;
}

/* The token before may be the prompt's last. */
static bool is_end(const struct text *text, int32_t token)
{
    const struct gpt_choice *choice = text->request.choice;

    for (int i = 0; i < choice->n_ends; i++)
        if (token == choice->ends[i])
            return true;
    int32_t before = text->ids.len
                         ? text->ids.data[text->ids.len - 1]
                         : text->request.prompt[text->request.n_prompt - 1];
    return choice->end_twice && token == choice->twice && before == token;
}

/* Only where it is asked for: the sum over the vocabulary costs as much as the
 * choice itself. One element more than wanted keeps the list from being NULL.
 */
static int describe_token(struct gpt_batch *b, const struct gpt_choice *choice,
                          const float *logits, struct gpt_chosen *chosen,
                          struct gpt_err *err)
{
    if (!choice->logprobs)
        return GPT_OK;
    const double log_sum = gpt_log_sum(logits, b->vocab);
    GPT_TRY(gpt_grow(&b->top, &b->cap_top, (size_t)choice->n_top + 1,
                     sizeof(*b->top), "log-probabilities", err));
    chosen->logprob = (double)logits[chosen->id] - log_sum;
    chosen->n_top =
        gpt_top_logprobs(logits, b->vocab, log_sum, b->top, choice->n_top);
    chosen->top = b->top;
    return GPT_OK;
}

/* Hands the token out and ends the text where it must. The token that ends a
 * text is not handed out. A text that fills its last position keeps its token:
 * there is no room for another one. */
static int take_token(struct gpt_batch *b, struct text *text,
                      const float *logits, struct gpt_err *err)
{
    struct gpt_chosen chosen = {.id = text->chosen, .logits = logits};
    bool stop = false;

    chosen.end = is_end(text, chosen.id);
    if (chosen.end && !text->request.choice->show_end)
        return end_text(b, text, GPT_FINISH_EOD, err);
    GPT_TRY(describe_token(b, text->request.choice, logits, &chosen, err));
    GPT_TRY(b->sink.token(b->sink.user, text->name, &chosen, &stop, err));
    if (chosen.end)
        return end_text(b, text, GPT_FINISH_EOD, err);
    GPT_TRY(gpt_ids_add(&text->ids, &chosen.id, 1, err));
    if (stop)
        return end_text(b, text, GPT_FINISH_STOP, err);
    if ((int64_t)text->ids.len == text->request.max_tokens)
        return end_text(b, text, GPT_FINISH_TOKENS, err);
    if (length_of(text) > b->positions)
        return end_text(b, text, GPT_FINISH_POSITIONS, err);
    return GPT_OK;
}

/* The first *n of active[] choose from their rows number `at`, and hand their
 * tokens out. What stays in active[] are texts whose next row is that of a
 * guess that was right. All tokens are chosen before the first is handed out,
 * as the callback may fail. */
static int choose_and_take(struct gpt_batch *b, int64_t *n, int64_t at,
                           double *seconds, struct gpt_err *err)
{
    const double start = gpt_now();
    int64_t stay = 0;

    GPT_TRY(choose_tokens(b, *n, at, err));
    *seconds += gpt_now() - start;
    for (int64_t i = 0; i < *n; i++) {
        struct text *t = &b->texts[b->active[i]];

        GPT_TRY(take_token(b, t, logits_of(b, t, at), err));
        if (t->done || at == t->n_guesses || t->fed[at + 1] != t->chosen)
            continue;
        t->right++;
        b->active[stay++] = b->active[i];
    }
    *n = stay;
    return GPT_OK;
}

/* The others keep their order, so that a step's logits are those of the texts
 * in the order in which they began. */
static void free_slot_if_done(struct gpt_batch *b, int64_t i)
{
    if (!b->texts[i].done)
        return;
    int32_t freed = b->slot[i];
    gpt_free(b->texts[i].ids.data);
    b->n--;
    for (int64_t j = i; j < b->n; j++) {
        b->texts[j] = b->texts[j + 1];
        b->slot[j] = b->slot[j + 1];
    }
    b->slot[b->n] = freed;
}

/* Texts that are done are removed from the end, since removing one moves those
 * after it. */
static void free_slots(struct gpt_batch *b)
{
    for (int64_t i = b->n - 1; i >= 0; i--)
        free_slot_if_done(b, i);
}

/* ---- beginning ---- */

/* What the slot holds of the prompt already goes; the rest is a piece. */
static int begin_prompt(struct gpt_batch *b, const struct gpt_request *q,
                        int64_t slot, struct gpt_decode_piece *piece,
                        struct gpt_err *err)
{
    int64_t cached;

    GPT_TRY(gpt_prefixes_copy(b->prefixes, b->d, slot, q->prompt, q->n_prompt,
                              &cached, err));
    *piece = (struct gpt_decode_piece){.slot = slot,
                                       .n = q->n_prompt - cached,
                                       .tokens = q->prompt + cached};
    b->speed.prompt_tokens += piece->n;
    if (q->cached)
        *q->cached += cached;
    return GPT_OK;
}

/* Puts the prompts of n new texts, which come after those under way, into their
 * slots. A prompt that the request before has, too, is copied. Slots may hold
 * earlier texts, which are cut away. */
static int put_prompts(struct gpt_batch *b, int64_t n, struct gpt_err *err)
{
    struct text *texts = b->texts + b->n;
    const int32_t *slot = b->slot + b->n;
    int64_t pieces = 0;

    for (int64_t i = 0; i < n; i++) {
        const struct gpt_request *q = &texts[i].request;
        const bool again = i > 0 && q->prompt == texts[i - 1].request.prompt &&
                           q->n_prompt == texts[i - 1].request.n_prompt;

        if (again)
            gpt_decoder_truncate(b->d, slot[i], 0);
        else
            GPT_TRY(begin_prompt(b, q, slot[i], &b->pieces[pieces++], err));
        texts[i].row = pieces - 1;
    }
    GPT_TRY(gpt_decoder_extend(b->d, b->pieces, pieces, GPT_LOGITS_LAST,
                               b->logits, err));
    for (int64_t i = 0; i < n; i++) {
        const struct gpt_request *q = &texts[i].request;

        if (i > 0 && texts[i].row == texts[i - 1].row)
            GPT_TRY(gpt_decoder_copy(b->d, slot[i - 1], slot[i], q->n_prompt,
                                     err));
        else
            GPT_TRY(gpt_prefixes_keep(b->prefixes, b->d, slot[i], q->prompt,
                                      q->n_prompt, err));
    }
    return GPT_OK;
}

/* The batch grows only when the prompts went through: a prompt that fails
 * leaves the texts under way as they were. */
int gpt_batch_begin(struct gpt_batch *b, const struct gpt_request *requests,
                    const int64_t *names, int64_t n, struct gpt_err *err)
{
    const double start = gpt_now();

    assert(n >= 1 && b->n + n <= b->slots);
    for (int64_t i = 0; i < n; i++) {
        const struct gpt_request *q = &requests[i];

        assert(q->n_prompt > 0);
        b->texts[b->n + i] = (struct text){
            .request = *q,
            .name = names[i],
            .rng = gpt_sample_rng(q->seed, q->stream, q->sample),
            .top_p = q->choice->sampling.top_p,
            .may_guess = b->guesses,
        };
        b->active[i] = b->n + i;
    }
    GPT_TRY(put_prompts(b, n, err));
    b->speed.prompt_seconds += gpt_now() - start;
    b->n += n;
    GPT_TRY(choose_and_take(b, &n, 0, &b->speed.prompt_seconds, err));
    free_slots(b);
    return GPT_OK;
}

/* ---- a step ---- */

/* What a text puts into the model: the token that was chosen last, and guesses
 * of those after it, while they fit. */
static void feed_text(struct gpt_batch *b, struct text *t)
{
    const struct gpt_history history = {t->request.prompt, t->request.n_prompt,
                                        t->ids.data, (int64_t)t->ids.len};
    const int64_t room = gpt_min_i64(
        b->positions - length_of(t),
        t->request.max_tokens - (int64_t)t->ids.len - 1);

    t->fed[0] = t->chosen;
    t->right = 0;
    t->n_guesses =
        gpt_guess(&history, gpt_min_i64(t->may_guess, room), t->fed + 1);
}

/* Guesses that were wrong are cut away. The next step guesses few more than
 * were right, so that a text that repeats nothing costs little. */
static void settle_guesses(struct gpt_batch *b, int64_t i)
{
    struct text *t = &b->texts[i];

    b->speed.guessed += t->n_guesses;
    b->speed.right += t->right;
    if (t->n_guesses > 0)
        t->may_guess = gpt_min_i64(b->guesses, 2 * t->right + 1);
    gpt_decoder_truncate(b->d, b->slot[i], length_of(t) - 1);
}

/* One token for each text under way, and more where guesses were right: then
 * the row after a guess is that of the token after it. */
int gpt_batch_step(struct gpt_batch *b, struct gpt_err *err)
{
    const double start = gpt_now();
    double choosing = 0;
    int64_t n = b->n, rows = 0;

    for (int64_t i = 0; i < n; i++) {
        struct text *t = &b->texts[i];

        feed_text(b, t);
        t->row = rows;
        rows += 1 + t->n_guesses;
        b->pieces[i] = (struct gpt_decode_piece){.slot = b->slot[i],
                                                 .n = 1 + t->n_guesses,
                                                 .tokens = t->fed,
                                                 .one_by_one = true};
        b->active[i] = i;
    }
    GPT_TRY(gpt_decoder_extend(b->d, b->pieces, n, GPT_LOGITS_ALL, b->logits,
                               err));
    b->speed.step_seconds += gpt_now() - start;
    for (int64_t at = 0, left = n; left > 0; at++) {
        b->speed.step_tokens += left;
        GPT_TRY(choose_and_take(b, &left, at, &choosing, err));
    }
    b->speed.step_seconds += choosing;
    b->speed.steps++;
    for (int64_t i = 0; i < n; i++)
        settle_guesses(b, i);
    free_slots(b);
    return GPT_OK;
}

int gpt_batch_stop(struct gpt_batch *b, struct gpt_err *err)
{
    for (int64_t i = 0; i < b->n; i++)
        GPT_TRY(end_text(b, &b->texts[i], GPT_FINISH_STOPPED, err));
    free_slots(b);
    return GPT_OK;
}

/* Everything that a step needs is there before the first: a batch does not
 * fail half-way for memory, but for the ids of its texts, which grow. */
static int allocate(struct gpt_batch *b, struct gpt_err *err)
{
    const size_t slots = (size_t)b->slots, vocab = (size_t)b->vocab;

    GPT_TRY(gpt_new(&b->choosers, (size_t)b->n_choosers, sizeof(*b->choosers),
                    "texts", err));
    for (int i = 0; i < b->n_choosers; i++) {
        struct chooser *c = &b->choosers[i];

        GPT_TRY(gpt_sampler_open(&c->sampler, b->vocab, err));
        GPT_TRY(gpt_new(&c->adjusted, vocab, sizeof(*c->adjusted), "logits",
                        err));
        GPT_TRY(gpt_new(&c->counts, vocab, sizeof(*c->counts), "counts", err));
    }
    GPT_TRY(
        gpt_new(&b->logits, slots * vocab, sizeof(*b->logits), "logits", err));
    GPT_TRY(gpt_new(&b->texts, slots, sizeof(*b->texts), "texts", err));
    GPT_TRY(gpt_new(&b->slot, slots, sizeof(*b->slot), "texts", err));
    GPT_TRY(gpt_new(&b->pieces, slots, sizeof(*b->pieces), "texts", err));
    GPT_TRY(gpt_new(&b->active, slots, sizeof(*b->active), "texts", err));
    for (int64_t i = 0; i < b->slots; i++)
        b->slot[i] = (int32_t)i;
    return GPT_OK;
}

int gpt_batch_guess(struct gpt_batch *b, int64_t n, struct gpt_err *err)
{
    const size_t rows = (size_t)(b->slots * (1 + n));

    assert(n >= 0 && n <= GPT_MOST_GUESSES && b->n == 0);
    gpt_free(b->logits);
    b->logits = NULL;
    b->guesses = n;
    return gpt_new(&b->logits, rows * (size_t)b->vocab, sizeof(*b->logits),
                   "logits", err);
}

/* A batch may have fewer slots than the decoder: the others are free for
 * scoring between two steps. */
int gpt_batch_open(struct gpt_batch **out, struct gpt_decoder *d, int64_t slots,
                   const struct gpt_sink *sink, struct gpt_err *err)
{
    const struct gpt_decoder_options *shape = gpt_decoder_shape(d);
    struct gpt_batch *b = NULL;

    GPT_TRY(gpt_new(&b, 1, sizeof(*b), "a batch", err));
    b->d = d;
    b->sink = *sink;
    b->vocab = shape->config->vocab_size;
    assert(slots >= 1 && slots <= shape->slots);
    b->slots = slots;
    b->positions = shape->positions;
    b->n_choosers = (int)gpt_min_i64(omp_get_max_threads(), slots);
    int status = allocate(b, err);
    if (status != GPT_OK) {
        gpt_batch_close(b);
        return status;
    }
    *out = b;
    return GPT_OK;
}

void gpt_batch_close(struct gpt_batch *b)
{
    if (!b)
        return;
    for (int64_t i = 0; i < b->n; i++)
        gpt_free(b->texts[i].ids.data);
    for (int i = 0; b->choosers && i < b->n_choosers; i++) {
        gpt_sampler_close(b->choosers[i].sampler);
        gpt_free(b->choosers[i].adjusted);
        gpt_free(b->choosers[i].counts);
    }
    gpt_free(b->choosers);
    gpt_free(b->logits);
    gpt_free(b->top);
    gpt_free(b->texts);
    gpt_free(b->slot);
    gpt_free(b->pieces);
    gpt_free(b->active);
    gpt_free(b);
}
