/* Texts of calls; see serve_texts.h. Start at gpt_serving_begin(), which begins
 * them, and gpt_serving_take(), which hears of their tokens. */
#include "cmd/generate/serve_texts.h"

#include "base/clock.h"

#include <math.h>
#include <pthread.h>

/* ---- answers ---- */

/* The other thread may have left: the last of the two frees the call. */
static void leave_call(struct gpt_server *s, struct gpt_call *call)
{
    pthread_mutex_lock(&s->lock);
    bool last = gpt_calls_disown(call);
    if (!last)
        gpt_http_wake_last(call);
    pthread_mutex_unlock(&s->lock);
    if (last)
        gpt_call_free(call);
}

/* Memory is out for what a call has to say: the call ends with that, and others
 * go on. */
static void lose_call(struct gpt_call *call)
{
    call->cut = call->cut ? call->cut : 507;
}

/* Appends to the answer of a call, which the other thread sends from. Bytes for
 * an empty one change hands: a whole answer is never there twice. */
static void add_to_answer(struct gpt_server *s, struct gpt_call *call,
                          struct gpt_buf *bytes)
{
    pthread_mutex_lock(&s->lock);
    if (call->answer.len == 0) {
        const struct gpt_buf empty = call->answer;

        call->answer = *bytes;
        *bytes = empty;
    } else if (gpt_buf_add(&call->answer, bytes->data, bytes->len) != GPT_OK) {
        lose_call(call);
    }
    gpt_calls_count(call);
    call->status = call->cut ? call->cut : 200;
    gpt_http_wake(call);
    pthread_mutex_unlock(&s->lock);
}

/* A piece goes out when it is there, also when it is one character: a client
 * that streams wants to see the text grow. */
static void stream_piece(struct gpt_server *s, struct gpt_call_text *t,
                         bool end)
{
    struct gpt_buf piece = {0};

    if (gpt_answer_piece(s, t, end, &piece) == GPT_OK)
        add_to_answer(s, t->call, &piece);
    else
        lose_call(t->call);
    gpt_buf_free(&piece);
}

/* The answer of a call that is over; one without memory for it is a message,
 * and without memory for that an empty one with the status. */
static void write_end(const struct gpt_server *s, struct gpt_call *call,
                      struct gpt_buf *end)
{
    for (int tries = 0; tries < 2; tries++) {
        const int status = call->stream ? gpt_answer_stream_end(s, call, end)
                                        : gpt_answer_whole(s, call, end);

        if (status == GPT_OK)
            return;
        end->len = 0;
        lose_call(call);
    }
}

/* The last text of a call has ended. Its tokens are counted before its client
 * has the answer, so that a reader of the counters afterwards finds them. */
void gpt_serving_end_call(struct gpt_server *s, struct gpt_call *call)
{
    struct gpt_buf end = {0};

    write_end(s, call, &end);
    gpt_call_free_texts(call);
    add_to_answer(s, call, &end);
    gpt_buf_free(&end);
    pthread_mutex_lock(&s->lock);
    gpt_calls_end(s, call);
    s->cut += call->cut != 0;
    s->prompt_tokens += (uint64_t)call->prompt_tokens;
    s->cached_tokens += (uint64_t)call->cached_tokens;
    s->new_tokens += (uint64_t)call->new_tokens;
    pthread_mutex_unlock(&s->lock);
    leave_call(s, call);
}

/* ---- the sink ---- */

/* A batch knows its texts by a number, which here is the text's address: texts
 * do not move while their call lives, and a call lives until its last text has
 * ended. */
static struct gpt_call_text *text_of(int64_t name)
{
    return (struct gpt_call_text *)(intptr_t)name;
}

/* A call whose time is over ends with the texts that it has begun; the main
 * thread alone looks and writes here. */
bool gpt_serving_is_late(const struct gpt_serving *w, struct gpt_call *call)
{
    const double now = gpt_now();

    if (!call->cut && now > call->deadline)
        call->cut = 504;
    if (!call->cut && w->stop_by > 0 && now > w->stop_by)
        call->cut = 503;
    return call->cut != 0;
}

/* The HTTP thread sets the flag when a client has hung up; the texts of such a
 * call end at their next token and are never sent. An answer that is too long
 * ends, as it would take the memory of the others' answers: of a stream what
 * its client has not taken. */
static bool is_over(struct gpt_serving *w, struct gpt_call *call)
{
    const int64_t most = GPT_CALL_REQUESTS * w->s.m->o->max_request_size;

    pthread_mutex_lock(&w->s.lock);
    gpt_calls_count(call);
    const bool gone = call->gone;
    const size_t bytes = call->counted;
    pthread_mutex_unlock(&w->s.lock);
    if (!call->cut && (int64_t)bytes > most)
        call->cut = 413;
    return gpt_serving_is_late(w, call) || gone;
}

/* A text whose client has hung up ends here; its slot is free for others. A
 * token that ends the text has a probability, but neither a text nor a place in
 * the counts. */
int gpt_serving_take(void *user, int64_t name, const struct gpt_chosen *chosen,
                     bool *stop, struct gpt_err *err)
{
    struct gpt_serving *w = user;
    struct gpt_call_text *t = text_of(name);
    const int status =
        chosen->end
            ? gpt_answer_end(&w->s, t, chosen->id, chosen->logprob, chosen->top,
                             chosen->n_top)
            : gpt_answer_token(&w->s, t, chosen->id, chosen->logprob,
                               chosen->top, chosen->n_top);

    (void)err;
    if (status != GPT_OK)
        lose_call(t->call);
    if (chosen->end)
        return GPT_OK;
    t->call->new_tokens++;
    *stop = is_over(w, t->call) || t->text.stopped;
    if (t->call->stream)
        stream_piece(&w->s, t, false);
    return GPT_OK;
}

/* A stream gets its last piece with the reason of the end; an answer that goes
 * out whole waits for the last of its texts. */
int gpt_serving_end(void *user, int64_t name, enum gpt_finish finish,
                    struct gpt_err *err)
{
    struct gpt_serving *w = user;
    struct gpt_call_text *t = text_of(name);
    struct gpt_call *call = t->call;

    (void)err;
    t->finish = finish;
    if (gpt_text_end(&t->text, &call->stops, &t->out) != GPT_OK)
        lose_call(call);
    if (call->stream && !call->cut)
        stream_piece(&w->s, t, true);
    if (++call->ended == call->wanted)
        gpt_serving_end_call(&w->s, call);
    return GPT_OK;
}

/* ---- beginning ---- */

/* A token of a prompt that is repeated with its probabilities.
 * The scorer gives tokens alone; whose they are is remembered beside it, as
 * one prompt is scored at a time. */
static int take_prompt_token(void *user, const struct gpt_chosen *chosen,
                             struct gpt_err *err)
{
    struct gpt_serving *w = user;

    (void)err;
    if (gpt_answer_prompt(&w->s, w->echo, chosen->id, chosen->logprob,
                          chosen->top, chosen->n_top) != GPT_OK)
        lose_call(w->echo->call);
    return GPT_OK;
}

/* A prompt with its probabilities, once for all texts that repeat it. The first
 * token has none: nothing is before it. */
static int score_echo(struct gpt_serving *w, struct gpt_call_text *echo,
                      const struct gpt_ids *ids, struct gpt_err *err)
{
    const struct gpt_choice *choice = &echo->call->choice;
    const bool scores = choice->logprobs && ids->len > 1;
    struct gpt_scored_text text = {.tokens = ids->data,
                                   .n = (int64_t)ids->len,
                                   .first = 1,
                                   .user = w};
    int status = GPT_OK;

    for (size_t i = 0; i < (scores ? 1 : ids->len) && status == GPT_OK; i++)
        status = gpt_answer_prompt(&w->s, echo, ids->data[i], (double)NAN, NULL,
                                   0);
    if (status != GPT_OK)
        lose_call(echo->call);
    if (!scores)
        return GPT_OK;
    w->echo = echo;
    w->scored = true;
    return gpt_score_texts(w->scorer, &text, 1, choice->n_top,
                           take_prompt_token, err);
}

/* Repeats a prompt in front of its text. The texts of a prompt begin one after
 * the other, so that one echo is enough. */
static int echo_prompt(struct gpt_serving *w, struct gpt_call_text *t,
                       struct gpt_err *err)
{
    struct gpt_call *call = t->call;
    struct gpt_call_text *echo = &call->repeated;

    if (!call->repeats || echo->prompt != t->prompt) {
        call->bytes -= echo->held;
        gpt_call_text_free(echo);
        *echo = (struct gpt_call_text){.call = call, .prompt = t->prompt};
        call->repeats = true;
        GPT_TRY(score_echo(w, echo, &call->prompts[t->prompt].ids, err));
    }
    if (gpt_answer_echo(t, echo) != GPT_OK)
        lose_call(call);
    return GPT_OK;
}

/* For the counters: prompts have gone through the model together, and what the
 * cache of prompts holds now. */
static void count_beginning(struct gpt_serving *w, bool any)
{
    int64_t entries, tokens;

    gpt_prefixes_count(w->prefixes, &entries, &tokens);
    pthread_mutex_lock(&w->s.lock);
    w->s.prompt_passes += (uint64_t)any + (uint64_t)w->scored;
    w->s.prefixes = entries;
    w->s.prefix_tokens = tokens;
    pthread_mutex_unlock(&w->s.lock);
}

/* Fills in the request of a text. One without tokens, or of a call that is
 * over, ends at once, and *begins is false. */
static int prepare_text(struct gpt_serving *w, struct gpt_call_text *t,
                        struct gpt_request *request, bool *begins,
                        struct gpt_err *err)
{
    struct gpt_call *call = t->call;
    const struct gpt_ids *ids = &call->prompts[t->prompt].ids;
    const bool over = is_over(w, call);

    *request = (struct gpt_request){
        .cached = t->sample == 0 ? &call->cached_tokens : NULL,
        .prompt = ids->data,
        .n_prompt = (int64_t)ids->len,
        .max_tokens = call->max_tokens,
        .seed = call->seed,
        .stream = (uint64_t)t->prompt,
        .sample = (uint64_t)t->sample,
        .choice = &call->choice,
    };
    /* A prompt goes through the model for each of its texts, but is counted for
     * the first alone, as clients are used to. */
    call->prompt_tokens += t->sample == 0 ? (int64_t)ids->len : 0;
    if (call->echo && !over)
        GPT_TRY(echo_prompt(w, t, err));
    *begins = call->max_tokens > 0 && !over;
    if (*begins)
        return GPT_OK;
    return gpt_serving_end(w, (int64_t)(intptr_t)t, GPT_FINISH_TOKENS, err);
}

/* True when the prompt has a longer beginning in common with one of the n texts
 * that are about to begin than with what is kept. It waits until that text has
 * begun, and then copies from it. Texts of the same prompt begin together. */
static bool waits_for_prompt(const struct gpt_serving *w,
                             const struct gpt_call_text *t, int64_t n)
{
    const struct gpt_ids *ids = &t->call->prompts[t->prompt].ids;
    const int64_t len = (int64_t)ids->len;
    const int64_t kept = gpt_prefixes_find(w->prefixes, ids->data, len);
    bool waits = false;

    for (int64_t i = 0; w->prefixes && i < n && !waits; i++)
        waits = w->requests[i].prompt != ids->data &&
                gpt_prefix_common(w->requests[i].prompt,
                                  w->requests[i].n_prompt, ids->data,
                                  len) > kept;
    return waits;
}

/* Begins the texts that wait, beginning with t, as many as there is room for:
 * their prompts go through the model together, which reads its weights once for
 * all. A text may be its call's last and over with its first token: the call is
 * then no more. A prompt that is scored ends the round, since it takes as long
 * as a step of many, between which times and signals are looked at. */
int gpt_serving_begin(struct gpt_serving *w, struct gpt_call_text *t,
                      struct gpt_err *err)
{
    const int64_t room = gpt_batch_room(w->batch);
    int64_t n = 0;

    w->scored = false;
    for (; t && n < room && !w->scored && !waits_for_prompt(w, t, n);
         t = gpt_calls_next(&w->s, false)) {
        bool begins;

        gpt_calls_take(&w->s, t);
        w->names[n] = (int64_t)(intptr_t)t;
        GPT_TRY(prepare_text(w, t, &w->requests[n], &begins, err));
        n += begins;
    }
    if (n > 0)
        GPT_TRY(gpt_batch_begin(w->batch, w->requests, w->names, n, err));
    count_beginning(w, n > 0);
    return GPT_OK;
}
