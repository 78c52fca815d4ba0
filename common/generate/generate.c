/* From prompts to texts; see generate.h. Start at gpt_generate(): begin
 * requests while slots are free, then one step for all texts under way. */
#include "generate/generate.h"

#include "base/memory.h"
#include "base/progress.h"
#include "base/signals.h"

/* A text under way. */
struct text {
    int64_t request;
    int64_t n_tokens; /* generated so far */
    struct gpt_rng rng;
    bool done;
};

/* The loop's state. slot[] stays a permutation of all slots, so that a slot is
 * neither lost nor given to two texts; the first n of slot[], texts[] and
 * next[] belong together. */
struct run {
    struct gpt_decoder *d;
    const struct gpt_request *requests;
    const struct gpt_generation *how;
    struct gpt_speed *speed;
    int64_t vocab, slots, positions;
    struct gpt_sampler *sampler;
    float *logits;       /* (slots, V) */
    struct text *texts;  /* texts[i] is in slot[i] and continues with next[i] */
    int32_t *slot, *next; /* slot[0..slots): a permutation; first those of the
                           * texts under way, then the free ones */
    int64_t n;           /* texts under way */
};

const char *gpt_finish_name(enum gpt_finish finish)
{
    static const char *const names[] = {"eod", "tokens", "positions",
                                        "stopped", "refused"};

    return names[finish];
}

static int end_text(struct run *r, struct text *text, enum gpt_finish finish,
                    struct gpt_err *err)
{
    text->done = true;
    return r->how->finish(r->how->user, text->request, finish, err);
}

/* The random number is a function of the request and the position alone:
 * batch-mates and the order of work have no part in it. */
static int choose_token(struct run *r, int64_t i, const float *logits,
                        int32_t *token, struct gpt_err *err)
{
    int64_t position = gpt_decoder_length(r->d, r->slot[i]);
    double u = gpt_sample_uniform(r->texts[i].rng, position);

    return gpt_sample(r->sampler, logits, r->vocab, &r->how->sampling, u, token,
                      err);
}

static bool is_end(const struct run *r, int32_t token)
{
    for (int i = 0; i < r->how->n_ends; i++)
        if (token == r->how->ends[i])
            return true;
    return false;
}

/* Hands the token out and ends the text where it must. The end-of-document
 * token is not handed out. A text that fills its last position keeps its token:
 * there is no room for another one. */
static int take_token(struct run *r, int64_t i, int32_t token,
                      struct gpt_err *err)
{
    struct text *text = &r->texts[i];

    if (is_end(r, token))
        return end_text(r, text, GPT_FINISH_EOD, err);
    GPT_TRY(r->how->token(r->how->user, text->request, token, err));
    r->next[i] = token;
    if (++text->n_tokens == r->requests[text->request].max_tokens)
        return end_text(r, text, GPT_FINISH_TOKENS, err);
    if (gpt_decoder_length(r->d, r->slot[i]) == r->positions)
        return end_text(r, text, GPT_FINISH_POSITIONS, err);
    return GPT_OK;
}

/* The others keep their order, so that a step's logits are those of the texts
 * in the order in which they began. */
static void free_slot_if_done(struct run *r, int64_t i)
{
    if (!r->texts[i].done)
        return;
    int32_t freed = r->slot[i];
    r->n--;
    for (int64_t j = i; j < r->n; j++) {
        r->texts[j] = r->texts[j + 1];
        r->slot[j] = r->slot[j + 1];
        r->next[j] = r->next[j + 1];
    }
    r->slot[r->n] = freed;
}

/* Puts a request into a free slot: its prompt and its first token. */
static int begin_text(struct run *r, int64_t request, struct gpt_err *err)
{
    const struct gpt_request *q = &r->requests[request];
    int64_t i = r->n++;

    r->texts[i] = (struct text){
        .request = request,
        .rng = gpt_sample_rng(r->how->seed, q->number, q->sample),
    };
    double start = gpt_now();
    int32_t token = 0;
    gpt_decoder_truncate(r->d, r->slot[i], 0);
    GPT_TRY(gpt_decoder_append(r->d, r->slot[i], q->prompt, q->n_prompt,
                               GPT_LOGITS_LAST, r->logits, err));
    GPT_TRY(choose_token(r, i, r->logits, &token, err));
    r->speed->prompt_seconds += gpt_now() - start;
    r->speed->prompt_tokens += q->n_prompt;
    GPT_TRY(take_token(r, i, token, err));
    free_slot_if_done(r, i);
    return GPT_OK;
}

/* One token for each text under way. All tokens are chosen before the first is
 * handed out, as the callback may fail; texts that are done are removed from
 * the end, since removing one moves those after it. */
static int step_texts(struct run *r, struct gpt_err *err)
{
    int64_t n = r->n;
    double start = gpt_now();

    GPT_TRY(gpt_decoder_step(r->d, r->slot, r->next, n, r->logits, err));
    for (int64_t i = 0; i < n; i++)
        GPT_TRY(choose_token(r, i, r->logits + i * r->vocab, &r->next[i], err));
    r->speed->step_seconds += gpt_now() - start;
    r->speed->step_tokens += n;
    r->speed->steps++;
    for (int64_t i = 0; i < n; i++)
        GPT_TRY(take_token(r, i, r->next[i], err));
    for (int64_t i = n - 1; i >= 0; i--)
        free_slot_if_done(r, i);
    return GPT_OK;
}

/* A free slot is filled before the next step, since a step costs much the same
 * for one text as for many. */
static int answer_all(struct run *r, int64_t n, struct gpt_err *err)
{
    int64_t begun = 0;

    while (!gpt_signals_stop() && (begun < n || r->n > 0)) {
        if (begun < n && r->requests[begun].n_prompt == 0)
            GPT_TRY(r->how->finish(r->how->user, begun++, GPT_FINISH_REFUSED,
                                   err));
        else if (begun < n && r->n < r->slots)
            GPT_TRY(begin_text(r, begun++, err));
        else
            GPT_TRY(step_texts(r, err));
    }
    for (int64_t i = 0; i < r->n; i++)
        GPT_TRY(end_text(r, &r->texts[i], GPT_FINISH_STOPPED, err));
    return GPT_OK;
}

/* Before anything is generated: a long prompt among many must not be found
 * after an hour of texts. */
static int check_prompts(const struct run *r, int64_t n, struct gpt_err *err)
{
    for (int64_t i = 0; i < n; i++)
        if (r->requests[i].n_prompt > r->positions)
            return gpt_fail(err, GPT_EDATA,
                            "prompt %llu has %lld tokens, but there are only "
                            "%lld positions",
                            (unsigned long long)r->requests[i].number + 1,
                            (long long)r->requests[i].n_prompt,
                            (long long)r->positions);
    return GPT_OK;
}

static int allocate_run(struct run *r, struct gpt_err *err)
{
    size_t slots = (size_t)r->slots;

    GPT_TRY(gpt_sampler_open(&r->sampler, r->vocab, err));
    GPT_TRY(gpt_new(&r->logits, slots * (size_t)r->vocab, sizeof(*r->logits),
                    "logits", err));
    GPT_TRY(gpt_new(&r->texts, slots, sizeof(*r->texts), "texts", err));
    GPT_TRY(gpt_new(&r->next, slots, sizeof(*r->next), "texts", err));
    GPT_TRY(gpt_new(&r->slot, slots, sizeof(*r->slot), "texts", err));
    for (int64_t i = 0; i < r->slots; i++)
        r->slot[i] = (int32_t)i;
    return GPT_OK;
}

int gpt_generate(struct gpt_decoder *d, const struct gpt_request *requests,
                 int64_t n, const struct gpt_generation *how,
                 struct gpt_speed *speed, struct gpt_err *err)
{
    const struct gpt_decoder_options *shape = gpt_decoder_shape(d);
    struct run r = {
        .d = d,
        .requests = requests,
        .how = how,
        .speed = speed,
        .vocab = shape->config->vocab_size,
        .slots = shape->slots,
        .positions = shape->positions,
    };

    *speed = (struct gpt_speed){0};
    int status;
    GPT_TRY_GOTO(status, check_prompts(&r, n, err), out);
    GPT_TRY_GOTO(status, allocate_run(&r, err), out);
    status = answer_all(&r, n, err);
out:
    gpt_sampler_close(r.sampler);
    gpt_free(r.logits);
    gpt_free(r.texts);
    gpt_free(r.next);
    gpt_free(r.slot);
    return status;
}
