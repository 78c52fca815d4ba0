/* The queue of a server's calls, and the memory of their answers. The thread of
 * HTTP adds calls at its end (serve_http.c); the main thread alone takes texts
 * from its head. Start at gpt_calls_next(). */
#include "cmd/generate/serve.h"

#include "base/thread.h"

#include <pthread.h>
#include <time.h>

/* A call is counted among those that wait until its first text begins; the lock
 * is held. */
static void count_begun(struct gpt_server *s)
{
    s->queued--;
    s->active++;
}

/* Takes a call, which is behind `before`, from the queue to those that run; the
 * lock is held. The other thread only adds calls at the end. */
void gpt_calls_leave(struct gpt_server *s, struct gpt_call *call,
                     struct gpt_call *before)
{
    if (before)
        before->next = call->next;
    else
        s->first = call->next;
    if (!call->next)
        s->last = before;
    if (call->begun == 0)
        count_begun(s);
    call->next = s->running;
    s->running = call;
}

/* Takes a call whose last text has ended out of the queue; the lock is held. */
void gpt_calls_end(struct gpt_server *s, struct gpt_call *call)
{
    struct gpt_call **at = &s->running;

    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
    s->active--;
    call->done = true;
}

/* The next text of the call at the head of the queue; NULL when there is none.
 * With `wait` that takes a moment. What was asked for does not change while a
 * call is in the queue, which the main thread alone takes calls from. */
struct gpt_call_text *gpt_calls_next(struct gpt_server *s, bool wait)
{
    const struct timespec until = gpt_thread_after(0.1);

    pthread_mutex_lock(&s->lock);
    /* A signal is looked for between two waits. */
    if (!s->first && wait)
        pthread_cond_timedwait(&s->more, &s->lock, &until);
    struct gpt_call *call = s->first;
    pthread_mutex_unlock(&s->lock);
    return call ? &call->texts[call->begun] : NULL;
}

/* The text is begun; its call leaves the queue with its last one. */
void gpt_calls_take(struct gpt_server *s, struct gpt_call_text *t)
{
    pthread_mutex_lock(&s->lock);
    if (t->call->begun++ == 0)
        count_begun(s);
    if (t->call->begun == t->call->wanted)
        gpt_calls_leave(s, t->call, NULL);
    pthread_mutex_unlock(&s->lock);
}

bool gpt_calls_disown(struct gpt_call *call)
{
    if (--call->owners > 0)
        return false;
    call->server->answer_bytes -= call->counted;
    return true;
}

/* The longest answer makes room: the others have done less to fill the memory.
 * What calls have that were cut is left out, as it goes with their next token:
 * others need not end for it. */
static void make_room(const struct gpt_server *s, size_t most)
{
    struct gpt_call *longest = NULL;
    size_t left = s->answer_bytes;

    for (struct gpt_call *call = s->here; call; call = call->beside) {
        if (call->gone || (call->cut && !call->done))
            left -= call->counted;
        else if (!longest || call->counted > longest->counted)
            longest = call;
    }
    if (left <= most || !longest)
        return;
    if (longest->done) {
        longest->gone = true;
        gpt_http_drop(longest);
    } else {
        longest->cut = 507;
    }
}

void gpt_calls_count(struct gpt_call *call)
{
    struct gpt_server *s = call->server;
    const size_t most = (size_t)GPT_ANSWERS_REQUESTS *
                        (size_t)s->m->o->max_request_size;
    const size_t held = call->bytes + call->answer.len - call->sent;

    s->answer_bytes += held - call->counted;
    call->counted = held;
    if (s->answer_bytes > most)
        make_room(s, most);
}

/* Calls that wait are refused at the end; those whose texts are under way are
 * finished. */
void gpt_calls_close(struct gpt_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_mutex_unlock(&s->lock);
}
