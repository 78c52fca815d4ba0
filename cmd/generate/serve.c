/* The server's main thread; see serve.h. Start at serve_calls(): calls from the
 * queue into the batch while it has room, then a step for all texts. */
#include "cmd/generate/serve.h"

#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/progress.h"
#include "base/signals.h"
#include "cmd/generate/serve_listen.h"
#include "generate/score.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

/* What the main thread has for itself. */
struct work {
    struct gpt_server s;
    struct gpt_batch *batch;
    struct gpt_prefixes *prefixes; /* beginnings of prompts, or NULL */
    struct gpt_request *requests; /* (batch size) that begin together, */
    int64_t *names;               /* and their texts */
    struct gpt_scorer *scorer; /* for prompts whose probabilities are wanted */
    struct gpt_call_text *scored; /* whose prompt it scores now */
    struct gpt_http *http;
    bool serving;        /* its thread is there */
    double swept;        /* when calls were last looked at for their time */
    double stop_by;      /* by when calls end after a signal */
    struct gpt_buf keys; /* text of the key file */
};

/* ---- answers ---- */

/* The other thread may have left: the last of the two frees the call. */
static void leave_call(struct gpt_server *s, struct gpt_call *call)
{
    pthread_mutex_lock(&s->lock);
    bool last = --call->owners == 0;
    if (!last)
        gpt_http_wake(call);
    pthread_mutex_unlock(&s->lock);
    if (last)
        gpt_call_free(call);
}

/* Appends to the answer of a call, which the other thread sends from. */
static int add_to_answer(struct gpt_server *s, struct gpt_call *call,
                         const struct gpt_buf *bytes, struct gpt_err *err)
{
    pthread_mutex_lock(&s->lock);
    int status = gpt_buf_add(&call->answer, bytes->data, bytes->len);
    call->status = call->cut ? call->cut : 200;
    gpt_http_wake(call);
    pthread_mutex_unlock(&s->lock);
    return status == GPT_OK ? GPT_OK : gpt_no_memory(err, "an answer");
}

/* A piece goes out when it is there, also when it is one character: a client
 * that streams wants to see the text grow. What is built is copied once, under
 * the lock. */
static int stream_piece(struct gpt_server *s, struct gpt_call_text *t, bool end,
                        struct gpt_err *err)
{
    struct gpt_buf piece = {0};
    int status = gpt_answer_piece(s, t, end, &piece);

    status = status == GPT_OK ? add_to_answer(s, t->call, &piece, err)
                              : gpt_no_memory(err, "an answer");
    gpt_buf_free(&piece);
    return status;
}

/* The last text of a call has ended. Its tokens are counted before its client
 * has the answer, so that a reader of the counters afterwards finds them. */
static int end_call(struct gpt_server *s, struct gpt_call *call,
                    struct gpt_err *err)
{
    struct gpt_buf end = {0};
    int status = call->stream ? gpt_answer_stream_end(s, call, &end)
                              : gpt_answer_whole(s, call, &end);

    status = status == GPT_OK ? add_to_answer(s, call, &end, err)
                              : gpt_no_memory(err, "an answer");
    gpt_buf_free(&end);
    pthread_mutex_lock(&s->lock);
    call->done = true;
    s->active--;
    s->cut += call->cut != 0;
    s->prompt_tokens += (uint64_t)call->prompt_tokens;
    s->cached_tokens += (uint64_t)call->cached_tokens;
    s->new_tokens += (uint64_t)call->new_tokens;
    pthread_mutex_unlock(&s->lock);
    leave_call(s, call);
    return status;
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
static bool is_late(const struct work *w, struct gpt_call *call)
{
    const double now = gpt_now();

    if (!call->cut && now > call->deadline)
        call->cut = 504;
    if (!call->cut && w->stop_by > 0 && now > w->stop_by)
        call->cut = 503;
    return call->cut != 0;
}

/* The HTTP thread sets the flag when a client has hung up; the texts of such a
 * call end at their next token and are never sent. */
static bool is_gone(struct gpt_server *s, const struct gpt_call *call)
{
    pthread_mutex_lock(&s->lock);
    bool gone = call->gone;
    pthread_mutex_unlock(&s->lock);
    return gone;
}

/* A text whose client has hung up ends here; its slot is free for others. */
static int take_token(void *user, int64_t name, const struct gpt_chosen *chosen,
                      bool *stop, struct gpt_err *err)
{
    struct work *w = user;
    struct gpt_call_text *t = text_of(name);

    /* A token that ends the text has a probability, but neither a text nor a
     * place in the counts. */
    if (chosen->end)
        return gpt_answer_end(&w->s, t, chosen->id, chosen->logprob,
                              chosen->top, chosen->n_top) == GPT_OK
                   ? GPT_OK
                   : gpt_no_memory(err, "an answer");
    t->call->new_tokens++;
    if (gpt_answer_token(&w->s, t, chosen->id, chosen->logprob, chosen->top,
                         chosen->n_top) != GPT_OK)
        return gpt_no_memory(err, "an answer");
    *stop = t->text.stopped || is_late(w, t->call) || is_gone(&w->s, t->call);
    return t->call->stream ? stream_piece(&w->s, t, false, err) : GPT_OK;
}

/* A stream gets its last piece with the reason of the end; an answer that goes
 * out whole waits for the last of its texts. */
static int end_text(void *user, int64_t name, enum gpt_finish finish,
                    struct gpt_err *err)
{
    struct work *w = user;
    struct gpt_call_text *t = text_of(name);
    struct gpt_call *call = t->call;

    t->finish = finish;
    if (gpt_text_end(&t->text, &call->stops, &t->out) != GPT_OK)
        return gpt_no_memory(err, "an answer");
    if (call->stream && !call->cut)
        GPT_TRY(stream_piece(&w->s, t, true, err));
    return ++call->ended == call->wanted ? end_call(&w->s, call, err) : GPT_OK;
}

/* ---- beginning ---- */

/* A token of a prompt that is repeated with its probabilities.
 * The scorer gives tokens alone; whose they are is remembered beside it, as
 * one prompt is scored at a time. */
static int take_prompt_token(void *user, const struct gpt_chosen *chosen,
                             struct gpt_err *err)
{
    struct work *w = user;

    return gpt_answer_token(&w->s, w->scored, chosen->id, chosen->logprob,
                            chosen->top, chosen->n_top) == GPT_OK
               ? GPT_OK
               : gpt_no_memory(err, "an answer");
}

/* Repeats a prompt in front of its text. The first token has no probability:
 * nothing is before it. */
static int echo_prompt(struct work *w, struct gpt_call_text *t,
                       const struct gpt_ids *ids, struct gpt_err *err)
{
    const struct gpt_choice *choice = &t->call->choice;
    struct gpt_score score;
    int status = gpt_answer_token(&w->s, t, ids->data[0], NAN, NULL, 0);

    if (choice->logprobs && ids->len > 1 && status == GPT_OK) {
        w->scored = t;
        return gpt_score_text(w->scorer, ids->data, (int64_t)ids->len, 1,
                              choice->n_top, take_prompt_token, w, &score, err);
    }
    for (size_t i = 1; i < ids->len && status == GPT_OK; i++)
        status = gpt_answer_token(&w->s, t, ids->data[i], NAN, NULL, 0);
    return status == GPT_OK ? GPT_OK : gpt_no_memory(err, "an answer");
}

/* For the counters: prompts have gone through the model together, and what the
 * cache of prompts holds now. */
static void count_beginning(struct work *w, bool any)
{
    int64_t entries, tokens;

    gpt_prefixes_count(w->prefixes, &entries, &tokens);
    pthread_mutex_lock(&w->s.lock);
    w->s.prompt_passes += any;
    w->s.prefixes = entries;
    w->s.prefix_tokens = tokens;
    pthread_mutex_unlock(&w->s.lock);
}

/* Fills in the request of a text. One without tokens, or of a call that is
 * over, ends at once, and *begins is false. */
static int prepare_text(struct work *w, struct gpt_call_text *t,
                        struct gpt_request *request, bool *begins,
                        struct gpt_err *err)
{
    struct gpt_call *call = t->call;
    const struct gpt_ids *ids = &call->prompts[t->prompt];

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
    if (call->echo) {
        t->echoing = true;
        GPT_TRY(echo_prompt(w, t, ids, err));
        t->echoing = false;
    }
    *begins =
        call->max_tokens > 0 && !is_late(w, call) && !is_gone(&w->s, call);
    if (*begins)
        return GPT_OK;
    return end_text(w, (int64_t)(intptr_t)t, GPT_FINISH_TOKENS, err);
}

/* Whether a prompt begins with more of one of the n that are about to begin
 * than is kept: when that one has begun, this one copies it. Texts of the same
 * prompt begin together. */
static bool waits_for_prompt(const struct work *w,
                             const struct gpt_call_text *t, int64_t n)
{
    const struct gpt_ids *ids = &t->call->prompts[t->prompt];
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
 * then no more. */
static int begin_texts(struct work *w, struct gpt_call_text *t,
                       struct gpt_err *err)
{
    const int64_t room = gpt_batch_room(w->batch);
    int64_t n = 0;

    for (; t && n < room && !waits_for_prompt(w, t, n);
         t = gpt_calls_next(&w->s, false)) {
        bool begins;

        gpt_calls_take(&w->s, t);
        w->names[n] = (int64_t)(intptr_t)t;
        GPT_TRY(prepare_text(w, t, &w->requests[n], &begins, err));
        n += begins;
    }
    if (n > 0)
        GPT_TRY(gpt_batch_begin_all(w->batch, w->requests, w->names, n, err));
    count_beginning(w, n > 0);
    return GPT_OK;
}

/* Calls in the queue whose time is over, or whose clients have hung up: they
 * would keep others from their places. One of which texts are under way ends
 * with the last of these. */
static int sweep_queue(struct work *w, struct gpt_err *err)
{
    struct gpt_call *call, *before = NULL, *next;

    if (gpt_now() < w->swept + 0.1)
        return GPT_OK;
    w->swept = gpt_now();
    /* The lock is given up while an answer is written, as that takes it.
     * Only this thread takes calls out of the queue, so that `before` and
     * `next` stay what they are. */
    pthread_mutex_lock(&w->s.lock);
    for (call = w->s.first; call; call = next) {
        next = call->next;
        if (!is_late(w, call) && !call->gone) {
            before = call;
            continue;
        }
        gpt_calls_leave(&w->s, call, before);
        call->wanted = call->begun;
        if (call->ended < call->wanted)
            continue;
        pthread_mutex_unlock(&w->s.lock);
        GPT_TRY(end_call(&w->s, call, err));
        pthread_mutex_lock(&w->s.lock);
    }
    pthread_mutex_unlock(&w->s.lock);
    return GPT_OK;
}

/* Calls first, since a text that joins now shares all steps from here on. A
 * signal closes the queue once; the loop ends when neither the queue nor the
 * batch has a text, so that every client that was heard has its answer. */
static int serve_calls(struct work *w, struct gpt_err *err)
{
    for (;;) {
        struct gpt_call_text *text = NULL;
        const bool idle = gpt_batch_texts(w->batch) == 0;

        if (gpt_signals_stop() && !w->s.closing) {
            gpt_info("stopping: requests that are here are finished, for at "
                     "most %lld s", (long long)w->s.m->o->stop_timeout);
            w->stop_by = gpt_now() + (double)w->s.m->o->stop_timeout;
            gpt_calls_close(&w->s);
            gpt_http_quiesce(w->http);
        }
        GPT_TRY(sweep_queue(w, err));
        gpt_http_end_slow(w->http);
        if (gpt_batch_room(w->batch) > 0)
            text = gpt_calls_next(&w->s, idle && !w->s.closing);
        if (text)
            GPT_TRY(begin_texts(w, text, err));
        else if (!idle)
            GPT_TRY(gpt_batch_step(w->batch, err));
        else if (w->s.closing)
            return GPT_OK;
    }
}

/* Answers that are complete are still on their way: a client that takes its
 * answer slowly has the time of a stop, and a moment at least. */
static void wait_for_clients(struct work *w)
{
    const double now = gpt_now();
    const double until = now + 2 > w->stop_by ? now + 2 : w->stop_by;
    const struct timespec moment = {.tv_nsec = 10000000};
    int64_t left;

    do {
        gpt_http_end_slow(w->http);
        pthread_mutex_lock(&w->s.lock);
        left = w->s.unsent;
        pthread_mutex_unlock(&w->s.lock);
    } while (left > 0 && gpt_now() < until && nanosleep(&moment, NULL) == 0);
}

/* ---- set-up ---- */

/* The last part of the checkpoint's path, unless there is a better name. */
static const char *model_name(const struct gpt_generate_options *o)
{
    const char *name = gpt_path_name(o->load);

    if (o->served_model_name)
        return o->served_model_name;
    return *name ? name : o->load;
}

/* As many slots as the memory that is allowed has room for, which is that of
 * all ranks together. A model with fewer positions than a block has no
 * beginning that could be kept. */
static int64_t count_prefix_slots(struct work *w)
{
    const struct gpt_config *c = w->s.m->config;
    const int64_t each = gpt_prefix_bytes(c, c->max_positions, GPT_F32);
    const int64_t most = 65536 - w->s.m->o->batch_size - 1;
    int64_t n = 0;

    if (c->max_positions > GPT_DECODE_CHUNK && most > 0)
        n = gpt_min_i64(w->s.m->o->prefix_cache_size / each, most);
    w->s.prefix_bytes = n * each;
    return n;
}

/* A template that this program does not know takes nothing from completions:
 * the server starts, and refuses chats with the reason. */
static int open_chat(struct work *w, struct gpt_err *err)
{
    struct gpt_err own = {0};
    const int status = gpt_loaded_open_chat(w->s.m, &own);

    if (status == GPT_EDATA && !w->s.m->o->chat_template) {
        gpt_warn("no chats: %s", own.text);
        snprintf(w->s.no_chat, sizeof(w->s.no_chat), "%s", own.text);
        return GPT_OK;
    }
    if (status != GPT_OK) {
        *err = own;
        return status;
    }
    return w->s.m->chat ? gpt_encoder_open(&w->s.chat_encoder,
                                           w->s.m->chat_tokenizer, err)
                        : GPT_OK;
}

/* In the order of what can go wrong: the address, keys, then the weights,
 * which take longest. One slot more than texts is for scoring prompts, which
 * must not disturb the texts under way. */
static int serve(struct work *w, struct gpt_err *err)
{
    const struct gpt_generate_options *o = w->s.m->o;
    const struct gpt_sink sink = {take_token, end_text, w};
    const int64_t prefixes = count_prefix_slots(w);

    w->s.model = model_name(o);
    w->s.started = gpt_now();
    if (o->api_key_file)
        GPT_TRY(gpt_listen_read_keys(&w->s.keys, &w->keys,
                                     o->api_key_file, err));
    if (o->prompt.n + o->prompt_file.n > 0) {
        gpt_fail(err, GPT_EUSAGE, "--serve has its prompts from requests");
        return gpt_hint(err, "leave out --prompt and --prompt-file");
    }
    GPT_TRY(gpt_http_open(&w->http, &w->s, o->serve, err));
    GPT_TRY(gpt_encoder_open(&w->s.encoder, w->s.m->tokenizer, err));
    GPT_TRY(open_chat(w, err));
    GPT_TRY(gpt_loaded_open_decoder(w->s.m, o->batch_size + 1 + prefixes,
                                    w->s.m->config->max_positions, err));
    GPT_TRY(
        gpt_batch_open(&w->batch, w->s.m->decoder, o->batch_size, &sink, err));
    GPT_TRY(gpt_batch_guess(w->batch, o->speculate, err));
    GPT_TRY(gpt_new(&w->requests, (size_t)o->batch_size, sizeof(*w->requests),
                    "requests", err));
    GPT_TRY(gpt_new(&w->names, (size_t)o->batch_size, sizeof(*w->names),
                    "requests", err));
    /* The last slots of the decoder are the cache's. */
    if (prefixes > 0) {
        GPT_TRY(gpt_prefixes_open(&w->prefixes, w->s.m->decoder,
                                  o->batch_size + 1, prefixes, err));
        gpt_batch_use_prefixes(w->batch, w->prefixes);
    }
    GPT_TRY(gpt_scorer_open(&w->scorer, w->s.m->decoder, o->batch_size, err));
    GPT_TRY(gpt_http_start(w->http, err));
    w->serving = true;
    GPT_TRY(serve_calls(w, err));
    wait_for_clients(w);
    return gpt_loaded_report_speed(w->s.m, gpt_batch_speed(w->batch), err);
}

/* HTTP is closed first: its thread uses the calls and the encoder. */
int gpt_serve(struct gpt_loaded *m, struct gpt_err *err)
{
    struct work w = {.s = {.m = m}};

    pthread_mutex_init(&w.s.lock, NULL);
    pthread_cond_init(&w.s.more, NULL);
    int status = serve(&w, err);
    /* After a failure connections still sleep, which the library does not
     * close: the process ends with its other thread. */
    if (status != GPT_OK && w.serving)
        return status;
    gpt_http_close(w.http);
    while (w.s.first) {
        struct gpt_call *call = w.s.first;

        w.s.first = call->next;
        gpt_call_free(call);
    }
    gpt_scorer_close(w.scorer);
    gpt_prefixes_close(w.prefixes);
    gpt_batch_close(w.batch);
    gpt_free(w.requests);
    gpt_free(w.names);
    gpt_encoder_close(w.s.encoder);
    gpt_encoder_close(w.s.chat_encoder);
    gpt_free(w.s.keys.items);
    gpt_buf_free(&w.keys);
    pthread_cond_destroy(&w.s.more);
    pthread_mutex_destroy(&w.s.lock);
    return status;
}
