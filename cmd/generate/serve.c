/* The server's main thread; see serve.h. Start at serve_calls(): calls from the
 * queue into the batch while it has room, then a step for all texts. */
#include "cmd/generate/serve_texts.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/signals.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "cmd/generate/serve_listen.h"
#include "generate/score.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Ends calls in the queue whose time is over, or whose clients have hung up:
 * they would keep others from their places. One of which texts are under way
 * ends with the last of these. A client that waits is not heard by the HTTP
 * library, so that its socket is looked at here. */
static void sweep_calls(struct gpt_serving *w)
{
    struct gpt_call *call, *before = NULL, *next;

    if (gpt_now() < w->swept + 0.1)
        return;
    w->swept = gpt_now();
    /* The lock is given up while an answer is written, as that takes it.
     * Only this thread takes calls out of the queue, so that `before` and
     * `next` stay what they are. */
    pthread_mutex_lock(&w->s.lock);
    for (call = w->s.running; call; call = call->next)
        call->gone |= gpt_http_hung_up(call);
    for (call = w->s.first; call; call = next) {
        next = call->next;
        call->gone |= gpt_http_hung_up(call);
        if (!gpt_serving_is_late(w, call) && !call->gone) {
            before = call;
            continue;
        }
        gpt_calls_leave(&w->s, call, before);
        call->wanted = call->begun;
        if (call->ended < call->wanted)
            continue;
        pthread_mutex_unlock(&w->s.lock);
        gpt_serving_end_call(&w->s, call);
        pthread_mutex_lock(&w->s.lock);
    }
    pthread_mutex_unlock(&w->s.lock);
}

/* Calls first, since a text that joins now shares all steps from here on. A
 * signal closes the queue once; the loop ends when neither the queue nor the
 * batch has a text, so that every client that was heard has its answer. */
static int serve_calls(struct gpt_serving *w, struct gpt_err *err)
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
        sweep_calls(w);
        gpt_http_end_slow(w->http);
        if (gpt_batch_room(w->batch) > 0)
            text = gpt_calls_next(&w->s, idle && !w->s.closing);
        if (text)
            GPT_TRY(gpt_serving_begin(w, text, err));
        else if (!idle)
            GPT_TRY(gpt_batch_step(w->batch, err));
        else if (w->s.closing)
            return GPT_OK;
    }
}

/* Answers that are complete are still on their way: a client that takes its
 * answer slowly has the time of a stop, and a moment at least. */
static void wait_for_clients(struct gpt_serving *w)
{
    const double now = gpt_now();
    const double until = now + 2 > w->stop_by ? now + 2 : w->stop_by;
    const struct timespec moment = {.tv_nsec = 10000000};
    bool left;

    do {
        gpt_http_end_slow(w->http);
        pthread_mutex_lock(&w->s.lock);
        left = w->s.here != NULL;
        pthread_mutex_unlock(&w->s.lock);
    } while (left && gpt_now() < until && nanosleep(&moment, NULL) == 0);
}

/* A failure of the model is that of all calls: each gets an answer, and new
 * ones are refused. Their texts in the batch are not looked at any more. */
static void fail_calls(struct gpt_serving *w)
{
    gpt_calls_close(&w->s);
    gpt_http_quiesce(w->http);
    pthread_mutex_lock(&w->s.lock);
    while (w->s.first)
        gpt_calls_leave(&w->s, w->s.first, NULL);
    pthread_mutex_unlock(&w->s.lock);
    while (w->s.running) {
        w->s.running->cut = 500;
        gpt_serving_end_call(&w->s, w->s.running);
    }
}

/* ---- set-up ---- */

static void copy_last_part(char *to, size_t size, const char *path)
{
    size_t end = strlen(path);

    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(to, size, "%.*s", (int)(end - begin), path + begin);
}

/* The path is taken as it was given, so that a link has the name that its user
 * knows. A dot names no model, and no client can ask for it. */
static void name_by_path(struct gpt_serving *w, const char *path)
{
    copy_last_part(w->name, sizeof(w->name), path);
    if (strcmp(w->name, ".") != 0 && strcmp(w->name, "..") != 0)
        return;
    char *real = realpath(path, NULL);
    if (real)
        copy_last_part(w->name, sizeof(w->name), real);
    free(real);
}

/* The name is part of all answers, which are UTF-8, and of a path. */
static int name_model(struct gpt_serving *w, struct gpt_err *err)
{
    const struct gpt_generate_options *o = w->s.m->o;

    name_by_path(w, o->load);
    w->s.model = o->served_model_name ? o->served_model_name : w->name;
    const size_t len = strlen(w->s.model);
    size_t at = 0;
    for (size_t n;
         at < len && (n = gpt_utf8_length(w->s.model + at, len - at));)
        at += n;
    if (len > 0 && at == len)
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE, "the model's name '%s' is %s", w->s.model,
             len > 0 ? "no UTF-8" : "empty");
    return gpt_hint(err, "name it with --served-model-name NAME");
}

/* As many slots as the memory that is allowed has room for, which is that of
 * all ranks together. A model with fewer positions than a block has no
 * beginning that could be kept. */
static int64_t count_prefix_slots(struct gpt_serving *w)
{
    const struct gpt_config *c = w->s.m->config;
    const int64_t each = gpt_prefix_bytes(
        c, w->s.m->positions, gpt_loaded_cache_type(w->s.m));
    const int64_t most = 65536 - w->s.m->o->batch_size - 1;
    int64_t n = 0;

    if (w->s.m->positions > GPT_DECODE_CHUNK && most > 0)
        n = gpt_min_i64(w->s.m->o->prefix_cache_size / each, most);
    w->s.prefix_bytes = n * each;
    return n;
}

/* A template that this program does not know takes nothing from completions:
 * the server starts, and refuses chats with the reason. */
static int open_chat(struct gpt_serving *w, struct gpt_err *err)
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
static int serve(struct gpt_serving *w, struct gpt_err *err)
{
    const struct gpt_generate_options *o = w->s.m->o;
    const struct gpt_sink sink = {gpt_serving_take, gpt_serving_end, w};
    const int64_t prefixes = count_prefix_slots(w);

    GPT_TRY(name_model(w, err));
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
                                    w->s.m->positions, err));
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
    GPT_TRY(gpt_scorer_open(&w->scorer, w->s.m->decoder, o->batch_size, 1,
                            err));
    GPT_TRY(gpt_http_start(w->http, err));
    const int status = serve_calls(w, err);
    if (status != GPT_OK)
        fail_calls(w);
    wait_for_clients(w);
    GPT_TRY(status);
    return gpt_loaded_report_speed(w->s.m, gpt_batch_speed(w->batch), err);
}

/* HTTP is closed first: its thread uses the calls and the encoder. */
int gpt_serve(struct gpt_loaded *m, struct gpt_err *err)
{
    struct gpt_serving w = {.s = {.m = m}};

    pthread_mutex_init(&w.s.lock, NULL);
    gpt_thread_cond_init(&w.s.more);
    int status = serve(&w, err);
    gpt_http_close(w.http);
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
