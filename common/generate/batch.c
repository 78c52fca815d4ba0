/* Texts under way; see batch.h. Start at gpt_batch_step(): the decoder, the
 * choice of tokens (choose_token()), and what becomes of a text
 * (take_token()). */
#include "generate/batch.h"

#include "base/memory.h"
#include "base/progress.h"
#include "generate/adjust.h"
#include "tokenizer/ids.h"

#include <assert.h>
#include <string.h>

/* A text under way. */
struct text {
    struct gpt_request request;
    int64_t name;
    struct gpt_ids ids; /* chosen so far */
    struct gpt_rng rng;
    double top_p; /* of the next token: it may decay */
    bool done;
};

/* slot[] stays a permutation of all slots, so that a slot is neither lost nor
 * given to two texts; the first n of slot[], texts[] and next[] belong
 * together. */
struct gpt_batch {
    struct gpt_decoder *d;
    struct gpt_prefixes *prefixes; /* NULL: none */
    struct gpt_sink sink;
    struct gpt_speed speed;
    int64_t vocab, slots, positions;
    struct gpt_sampler *sampler;
    int32_t *counts;     /* (V) zero: scratch of gpt_adjust() */
    float *adjusted;     /* (V) */
    float *logits;       /* (slots, V) */
    struct gpt_top *top; /* (cap_top) */
    size_t cap_top;
    struct text *texts; /* texts[i] is in slot[i] and continues with next[i] */
    int32_t *slot, *next; /* slot[0..slots): a permutation; first those of the
                           * texts under way, then the free ones */
    int64_t n;            /* texts under way */
};

const char *gpt_finish_name(enum gpt_finish finish)
{
    static const char *const names[] = {"eod",  "tokens",  "positions",
                                        "stop", "stopped", "refused"};

    return names[finish];
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

bool gpt_batch_full(const struct gpt_batch *b)
{
    return b->n == b->slots;
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

/* The random number is a function of the request and the position alone:
 * batch-mates and the order of work have no part in it. Adjusted logits are a
 * copy, since log-probabilities are the model's. */
static int choose_token(struct gpt_batch *b, int64_t i, const float *logits,
                        int32_t *token, struct gpt_err *err)
{
    struct text *text = &b->texts[i];
    struct gpt_sampling rule = text->request.choice->sampling;
    int64_t position = gpt_decoder_length(b->d, b->slot[i]);
    double u = gpt_sample_uniform(text->rng, position);

    rule.top_p = text->top_p;
    text->top_p = gpt_sampling_next_p(&rule, text->top_p);
    if (gpt_adjusts(&rule)) {
        const struct gpt_history history = {
            text->request.prompt, text->request.n_prompt, text->ids.data,
            (int64_t)text->ids.len};

        memcpy(b->adjusted, logits, (size_t)b->vocab * sizeof(*logits));
        gpt_adjust(b->adjusted, b->vocab, &rule, &history, b->counts);
        logits = b->adjusted;
    }
    return gpt_sample(b->sampler, logits, b->vocab, &rule, u, token, err);
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
static int take_token(struct gpt_batch *b, int64_t i, int32_t token,
                      const float *logits, struct gpt_err *err)
{
    struct text *text = &b->texts[i];
    struct gpt_chosen chosen = {.id = token, .logits = logits};
    bool stop = false;

    chosen.end = is_end(text, token);
    if (chosen.end && !text->request.choice->show_end)
        return end_text(b, text, GPT_FINISH_EOD, err);
    GPT_TRY(describe_token(b, text->request.choice, logits, &chosen, err));
    GPT_TRY(b->sink.token(b->sink.user, text->name, &chosen, &stop, err));
    if (chosen.end)
        return end_text(b, text, GPT_FINISH_EOD, err);
    GPT_TRY(gpt_ids_add(&text->ids, &token, 1, err));
    b->next[i] = token;
    if (stop)
        return end_text(b, text, GPT_FINISH_STOP, err);
    if ((int64_t)text->ids.len == text->request.max_tokens)
        return end_text(b, text, GPT_FINISH_TOKENS, err);
    if (gpt_decoder_length(b->d, b->slot[i]) == b->positions)
        return end_text(b, text, GPT_FINISH_POSITIONS, err);
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
        b->next[j] = b->next[j + 1];
    }
    b->slot[b->n] = freed;
}

/* The slot may hold an earlier text, which is cut away. The batch grows only
 * when the prompt went through: a prompt that fails leaves the texts under way
 * as they were. */
int gpt_batch_begin(struct gpt_batch *b, const struct gpt_request *q,
                    int64_t name, struct gpt_err *err)
{
    int64_t i = b->n;

    assert(i < b->slots && q->n_prompt > 0);
    double start = gpt_now();
    int32_t token = 0;
    int64_t cached = 0;
    GPT_TRY(gpt_prefixes_append(b->prefixes, b->d, b->slot[i], q->prompt,
                                q->n_prompt, b->logits, &cached, err));
    if (q->cached)
        *q->cached += cached;
    b->texts[i] = (struct text){
        .request = *q,
        .name = name,
        .rng = gpt_sample_rng(q->seed, q->stream, q->sample),
        .top_p = q->choice->sampling.top_p,
    };
    b->n++;
    GPT_TRY(choose_token(b, i, b->logits, &token, err));
    b->speed.prompt_seconds += gpt_now() - start;
    b->speed.prompt_tokens += q->n_prompt - cached;
    GPT_TRY(take_token(b, i, token, b->logits, err));
    free_slot_if_done(b, i);
    return GPT_OK;
}

/* One token for each text under way. All tokens are chosen before the first is
 * handed out, as the callback may fail; texts that are done are removed from
 * the end, since removing one moves those after it. */
int gpt_batch_step(struct gpt_batch *b, struct gpt_err *err)
{
    int64_t n = b->n;
    double start = gpt_now();

    GPT_TRY(gpt_decoder_step(b->d, b->slot, b->next, n, b->logits, err));
    for (int64_t i = 0; i < n; i++)
        GPT_TRY(choose_token(b, i, b->logits + i * b->vocab, &b->next[i], err));
    b->speed.step_seconds += gpt_now() - start;
    b->speed.step_tokens += n;
    b->speed.steps++;
    for (int64_t i = 0; i < n; i++)
        GPT_TRY(take_token(b, i, b->next[i], b->logits + i * b->vocab, err));
    for (int64_t i = n - 1; i >= 0; i--)
        free_slot_if_done(b, i);
    return GPT_OK;
}

int gpt_batch_end(struct gpt_batch *b, enum gpt_finish finish,
                  struct gpt_err *err)
{
    for (int64_t i = 0; i < b->n; i++)
        GPT_TRY(end_text(b, &b->texts[i], finish, err));
    for (int64_t i = b->n - 1; i >= 0; i--)
        free_slot_if_done(b, i);
    return GPT_OK;
}

/* Everything that a step needs is there before the first: a batch does not
 * fail half-way for memory, but for the ids of its texts, which grow. */
static int allocate(struct gpt_batch *b, struct gpt_err *err)
{
    const size_t slots = (size_t)b->slots, vocab = (size_t)b->vocab;

    GPT_TRY(gpt_sampler_open(&b->sampler, b->vocab, err));
    GPT_TRY(
        gpt_new(&b->logits, slots * vocab, sizeof(*b->logits), "logits", err));
    GPT_TRY(gpt_new(&b->adjusted, vocab, sizeof(*b->adjusted), "logits", err));
    GPT_TRY(gpt_new(&b->counts, vocab, sizeof(*b->counts), "counts", err));
    GPT_TRY(gpt_new(&b->texts, slots, sizeof(*b->texts), "texts", err));
    GPT_TRY(gpt_new(&b->next, slots, sizeof(*b->next), "texts", err));
    GPT_TRY(gpt_new(&b->slot, slots, sizeof(*b->slot), "texts", err));
    for (int64_t i = 0; i < b->slots; i++)
        b->slot[i] = (int32_t)i;
    return GPT_OK;
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
    gpt_sampler_close(b->sampler);
    gpt_free(b->logits);
    gpt_free(b->adjusted);
    gpt_free(b->counts);
    gpt_free(b->top);
    gpt_free(b->texts);
    gpt_free(b->next);
    gpt_free(b->slot);
    gpt_free(b);
}
