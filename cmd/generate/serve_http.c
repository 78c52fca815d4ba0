/* HTTP by libmicrohttpd; see serve.h. Start at handle(). All of this runs in
 * the library's one thread, but for gpt_http_wake() and what is beside it. */
#include "cmd/generate/serve.h"

#ifdef GPT_HAVE_MICROHTTPD

#include "base/io.h"
#include "base/log.h"
#include "base/num.h"
#include "cmd/generate/serve_clients.h"
#include "cmd/generate/serve_framing.h"
#include "cmd/generate/serve_listen.h"
#include "cmd/generate/serve_pages.h"
#include "cmd/generate/serve_routes.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define JSON "application/json"

struct gpt_http {
    struct gpt_server *s;
    struct MHD_Daemon *daemon;
    int socket;
    int64_t body_bytes; /* of all requests that are here */
    struct gpt_clients clients;
};

/* A request on its way in. */
struct request {
    const struct gpt_route *route; /* NULL: it is refused, its body dropped, */
    int refusal;                   /* with this status */
    struct gpt_buf body;
    struct gpt_call *call; /* once it is queued */
};

/* ---- answers ---- */

struct header {
    const char *name, *value; /* NULL: there is none */
};
static const struct header none, closes = {"Connection", "close"};

/* What note_connection() keeps with the connection. */
static struct gpt_client *client_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

/* A client that is refused for lack of room gets the time after which it may
 * come again. */
static enum MHD_Result send_response(struct MHD_Connection *c, int status,
                                     const char *type, struct header more,
                                     struct MHD_Response *r)
{
    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, "Content-Type", type);
    if (more.name)
        MHD_add_response_header(r, more.name, more.value);
    if (status == 429 || status == 503)
        MHD_add_response_header(r, "Retry-After", "1");
    /* OpenAI's clients send every request again that got 500 or more: these
     * would get the same answer, after the same time. */
    if (status == 501 || status == 504)
        MHD_add_response_header(r, "x-should-retry", "false");
    if (status == 401)
        MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    enum MHD_Result result = MHD_queue_response(c, (unsigned)status, r);
    MHD_destroy_response(r);
    return result;
}

/* The library copies the bytes, so that the caller's buffer can go. */
static enum MHD_Result send_bytes(struct MHD_Connection *c, int status,
                                  const char *type, struct header more,
                                  const char *bytes, size_t n)
{
    gpt_client_takes(client_of(c), n);
    return send_response(c, status, type, more,
                         MHD_create_response_from_buffer(
                             n, (void *)(uintptr_t)bytes,
                             MHD_RESPMEM_MUST_COPY));
}

/* Without memory for the message the connection is closed, which is an answer,
 * too. The text is for people. */
static enum MHD_Result send_refusal(struct MHD_Connection *c, int status,
                                    struct header more, const char *code,
                                    const char *text)
{
    struct gpt_buf b = {0};
    enum MHD_Result result = MHD_NO;

    if (gpt_answer_error(status, code, text, &b) == GPT_OK)
        result = send_bytes(c, status, JSON, more, b.data, b.len);
    gpt_buf_free(&b);
    return result;
}

static enum MHD_Result send_error(struct MHD_Connection *c, int status,
                                  const char *text)
{
    return send_refusal(c, status, none, NULL, text);
}

/* ---- calls ---- */

/* The library reads nothing of a connection that sleeps, so that it does not
 * notice its end. The descriptor is open while the connection sleeps. What the
 * client has sent beside its request, as its next one, is no matter. */
bool gpt_http_hung_up(const struct gpt_call *call)
{
    struct pollfd p = {.fd = call->fd, .events = POLLRDHUP};

    return call->waiting && poll(&p, 1, 0) == 1 &&
           (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/* The connection sleeps until the main thread has more; the lock is held. */
static void sleep_until_more(struct gpt_call *call)
{
    call->waiting = true;
    MHD_suspend_connection(call->connection);
}

void gpt_http_wake(struct gpt_call *call)
{
    if (!call->waiting)
        return;
    call->waiting = false;
    MHD_resume_connection(call->connection);
}

void gpt_http_wake_last(struct gpt_call *call)
{
    gpt_client_takes(call->client, call->answer.len - call->sent);
    gpt_http_wake(call);
}

/* The descriptor is open while the library has the call. */
void gpt_http_drop(struct gpt_call *call)
{
    shutdown(call->fd, SHUT_RDWR);
}

/* Takes up to `max` bytes of an answer; the lock is held. Memory of what was
 * sent is given back, so that a long answer is not kept whole, even where the
 * client is always behind. */
static size_t take_bytes(struct gpt_call *call, char *buf, size_t max)
{
    struct gpt_buf *answer = &call->answer;
    const size_t left = answer->len - call->sent, n = left < max ? left : max;

    memcpy(buf, answer->data + call->sent, n);
    call->sent += n;
    call->counted -= n;
    call->server->answer_bytes -= n;
    if (call->sent >= answer->len / 2) {
        answer->len -= call->sent;
        memmove(answer->data, answer->data + call->sent, answer->len);
        call->sent = 0;
        gpt_buf_fit(answer);
    }
    return n;
}

/* Bytes of an answer, when the library can send some. */
static ssize_t read_answer(void *user, uint64_t at, char *buf, size_t max)
{
    struct gpt_call *call = user;
    ssize_t n = 0;

    (void)at;
    pthread_mutex_lock(&call->server->lock);
    if (call->sent < call->answer.len) {
        n = (ssize_t)take_bytes(call, buf, max);
    } else if (call->done) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        sleep_until_more(call);
    }
    pthread_mutex_unlock(&call->server->lock);
    return n;
}

/* The size is not known, so that the library sends chunks; it asks
 * read_answer() for more whenever the client can take some, and a slow client
 * costs memory for its own answer alone. */
static enum MHD_Result send_stream(struct MHD_Connection *c,
                                   struct gpt_call *call)
{
    struct MHD_Response *r = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, 4096, read_answer, call, NULL);

    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, "Content-Type", "text/event-stream");
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    enum MHD_Result result = MHD_queue_response(c, 200, r);
    MHD_destroy_response(r);
    return result;
}

/* Called again each time that the connection wakes. */
static enum MHD_Result continue_call(struct gpt_server *s,
                                     struct MHD_Connection *c,
                                     struct gpt_call *call)
{
    if (call->stream)
        return send_stream(c, call);
    pthread_mutex_lock(&s->lock);
    const bool done = call->done;
    if (!done)
        sleep_until_more(call);
    pthread_mutex_unlock(&s->lock);
    return done ? send_response(c, call->status, JSON, none,
                                MHD_create_response_from_callback(
                                    call->answer.len, 16384, read_answer, call,
                                    NULL))
                : MHD_YES;
}

/* A full queue is an answer, too: a client that waits forever cannot try
 * another server. */
static int queue_call(struct gpt_server *s, struct gpt_call *call)
{
    int status = 0;

    pthread_mutex_lock(&s->lock);
    if (s->closing)
        status = 503;
    else if (s->queued >= s->m->o->max_queue)
        status = 429;
    if (status == 0) {
        call->number = ++s->calls;
        call->owners = 2;
        call->beside = s->here;
        s->here = call;
        if (s->last)
            s->last->next = call;
        else
            s->first = call;
        s->last = call;
        s->queued++;
        pthread_cond_signal(&s->more);
    } else {
        s->refused++;
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* The status of HTTP for a request that fails; what is not there is the model.
 */
static int status_of(int failure)
{
    return failure == GPT_EDATA ? 400 : failure == GPT_EUSAGE ? 404 : 500;
}

/* From a body to a call in the queue. The connection then sleeps, or is a
 * stream that sleeps: the thread is free for other clients in either case. */
static enum MHD_Result begin_call(struct gpt_server *s,
                                  struct MHD_Connection *c, struct request *q)
{
    const bool chat = q->route->chat;
    struct gpt_call *call = NULL;
    struct gpt_err err = {0};
    const char *code;

    /* Before the body is read as JSON: no message could be answered. */
    if (chat && !s->chat_encoder)
        return send_error(c, 501, *s->no_chat
                                      ? s->no_chat
                                      : "the model has no template of chats");
    int failed =
        gpt_call_parse(&call, s, chat, q->body.data, q->body.len, &code, &err);

    if (failed != GPT_OK)
        return send_refusal(c, status_of(failed), none, code, err.text);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);

    call->connection = c;
    call->client = client_of(c);
    call->fd = info ? info->connect_fd : -1;
    int status = queue_call(s, call);
    if (status != 0) {
        gpt_call_free(call);
        return send_error(c, status,
                          status == 429 ? "too many requests wait; try again"
                                        : "the server is stopping");
    }
    q->call = call;
    return continue_call(s, c, call);
}

/* ---- requests ---- */

/* Made and sent at once: nothing here waits for the model. */
static enum MHD_Result send_info(struct gpt_server *s, struct MHD_Connection *c,
                                 const struct request *q)
{
    struct gpt_buf out = {0};
    struct gpt_err err = {0};
    const int status = q->route->info(s, &q->body, &out, &err);
    enum MHD_Result result;

    if (status == GPT_OK)
        result = send_bytes(c, 200, q->route->type, none, out.data, out.len);
    else
        result = send_error(c, status_of(status),
                            *err.text ? err.text : "out of memory");
    gpt_buf_free(&out);
    return result;
}

/* The request was read to its end, since a client that still writes would not
 * see the answer; or its body is not asked for. */
static enum MHD_Result refuse_request(struct gpt_server *s,
                                      struct MHD_Connection *c,
                                      const char *path, int status)
{
    /* a status of 405 says that the path is there */
    const char *method = status == 405 ? gpt_route_method(s, path) : NULL;
    char size[32], text[64];

    if (method) {
        /* HEAD is GET without the body. */
        const struct header allow = {
            "Allow", strcmp(method, "GET") == 0 ? "GET, HEAD" : method};

        snprintf(text, sizeof(text), "the method of this path is %s", method);
        return send_refusal(c, status, allow, NULL, text);
    }
    snprintf(text, sizeof(text), "the body is longer than %s",
             gpt_text_bytes(size, (double)s->m->o->max_request_size));
    return send_error(c, status,
                      status == 401   ? "the key is missing or wrong"
                      : status == 404 ? gpt_route_absent(path)
                      : status == 413 ? text
                      : status == 415 ? "the body has a Content-Encoding; send "
                                        "it as it is"
                                      : "too many long requests; try again");
}

/* ---- clients ---- */

/* A connection begins, or ends: the library closes the socket after this. */
static void note_connection(void *user, struct MHD_Connection *c, void **own,
                            enum MHD_ConnectionNotificationCode code)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct gpt_http *h = user;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *own = gpt_clients_add(&h->clients, info ? info->connect_fd : -1);
    } else {
        gpt_clients_remove(&h->clients, *own);
        *own = NULL;
    }
}

void gpt_http_end_slow(struct gpt_http *h)
{
    gpt_clients_end_slow(&h->clients);
}

/* ---- parts of a request ---- */

/* A part of a body that is too long is dropped. */
static int take_part(struct gpt_http *h, struct request *q, const char *data,
                     size_t n)
{
    const int64_t most = h->s->m->o->max_request_size;

    /* A client that still writes would not see an answer, so that the rest
     * is read, and forgotten. */
    if (!q->route)
        return GPT_OK;
    if ((int64_t)(q->body.len + n) > most)
        q->refusal = 413;
    else if (h->body_bytes + (int64_t)n > GPT_CALL_REQUESTS * most)
        q->refusal = 429;
    if (q->refusal == 413 || q->refusal == 429) {
        q->route = NULL;
        return GPT_OK;
    }
    h->body_bytes += (int64_t)n;
    return gpt_buf_add(&q->body, data, n);
}

/* The head is there. A client that waits for a word before it sends the body
 * gets the refusal instead, and so does one whose body could never be read in
 * time. */
static enum MHD_Result begin_request(struct gpt_http *h, struct request *q,
                                     struct MHD_Connection *c, const char *path,
                                     const char *method)
{
    const uint64_t most = (uint64_t)h->s->m->o->max_request_size;
    const struct gpt_framing framing = gpt_framing_of(c);

    if (framing.fault)
        return send_refusal(c, 400, closes, NULL, framing.fault);
    const char *refused =
        h->s->keys.n == 0 ? gpt_pages_refusal(c, h->s->m->o->serve,
                                              gpt_route_reads(method))
                          : NULL;
    if (refused)
        return send_refusal(c, 403, closes, NULL, refused);
    /* A connection may have been idle; its time is that of this body. */
    gpt_client_sends(client_of(c));
    q->route = gpt_route_find(
        h->s, path, method,
        MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization"),
        &q->refusal);
    if (q->route && (framing.announced > most || framing.encoded)) {
        q->route = NULL;
        q->refusal = framing.encoded ? 415 : 413;
    }
    return !q->route &&
                   (framing.announced > GPT_CALL_REQUESTS * most ||
                    MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Expect"))
               ? refuse_request(h->s, c, path, q->refusal)
               : MHD_YES;
}

/* The library calls this for the head of a request, for each part of its body,
 * at its end, and each time that a sleeping connection wakes. */
static enum MHD_Result handle(void *user, struct MHD_Connection *c,
                              const char *path, const char *method,
                              const char *version, const char *data, size_t *n,
                              void **own)
{
    struct gpt_http *h = user;
    struct request *q = *own;

    (void)version;
    path = gpt_route_path(path);
    if (!q) {
        *own = q = gpt_alloc(1, sizeof(*q));
        if (!q)
            return MHD_NO;
        return begin_request(h, q, c, path, method);
    }
    if (q->call)
        return continue_call(h->s, c, q->call);
    if (*n > 0) {
        if (take_part(h, q, data, *n) != GPT_OK)
            return MHD_NO;
        *n = 0;
        return MHD_YES;
    }
    gpt_client_waits(client_of(c));
    if (!q->route)
        return refuse_request(h->s, c, path, q->refusal);
    return q->route->info ? send_info(h->s, c, q)
                          : begin_call(h->s, c, q);
}

/* The connection is done with a request, whether it was answered or cut. */
static void end_request(void *user, struct MHD_Connection *c, void **own,
                        enum MHD_RequestTerminationCode code)
{
    struct gpt_http *h = user;
    struct gpt_server *s = h->s;
    struct request *q = *own;
    struct gpt_call **at;

    gpt_client_sends(client_of(c));
    if (!q)
        return;
    /* Only bytes that were kept were counted. */
    h->body_bytes -= (int64_t)q->body.len;
    if (q->call) {
        pthread_mutex_lock(&s->lock);
        /* The main thread looks at this before each token that it adds, and
         * must not wake a connection that is no more. */
        q->call->gone = true;
        q->call->waiting = false;
        s->untaken += code != MHD_REQUEST_TERMINATED_COMPLETED_OK;
        for (at = &s->here; *at != q->call;)
            at = &(*at)->beside;
        *at = q->call->beside;
        bool last = gpt_calls_disown(q->call);
        pthread_mutex_unlock(&s->lock);
        if (last)
            gpt_call_free(q->call);
    }
    gpt_buf_free(&q->body);
    gpt_free(q);
    *own = NULL;
}

/* ---- the daemon ---- */

/* The address is taken before the model is read: a port that is in use is
 * reported at once, and clients that connect early wait in the socket's queue.
 */
int gpt_http_open(struct gpt_http **out, struct gpt_server *s,
                  const char *where, struct gpt_err *err)
{
    struct gpt_http *h = NULL;

    GPT_TRY(gpt_new(&h, 1, sizeof(*h), "a server", err));
    h->s = s;
    h->socket = -1;
    gpt_clients_init(&h->clients, (double)s->m->o->client_timeout,
                     (double)s->m->o->max_request_size);
    int status = gpt_listen(where, s->keys.n > 0, &h->socket, err);
    if (status != GPT_OK) {
        gpt_http_close(h);
        return status;
    }
    *out = h;
    return GPT_OK;
}

/* One thread for all connections: they cost little beside the model, and the
 * encoder needs no lock. */
int gpt_http_start(struct gpt_http *h, struct gpt_err *err)
{
    struct gpt_err few = {0};

    if (gpt_in_allow(h->s->m->o->max_connections, &few) != GPT_OK)
        gpt_warn("fewer clients than --max-connections have room: %s",
                 few.text);
    errno = 0;
    h->daemon = MHD_start_daemon(
        MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD |
            MHD_ALLOW_SUSPEND_RESUME,
        0, NULL, NULL, handle, h, MHD_OPTION_LISTEN_SOCKET, h->socket,
        MHD_OPTION_NOTIFY_COMPLETED, end_request, h,
        MHD_OPTION_NOTIFY_CONNECTION, note_connection, h,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->s->m->o->max_connections,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)h->s->m->o->client_timeout,
        MHD_OPTION_END);
    if (!h->daemon && errno) /* the library sets it, but does not promise to */
        return gpt_fail_errno(err, GPT_EFAIL, "cannot start the server");
    if (!h->daemon)
        return gpt_fail(err, GPT_EFAIL, "cannot start the server");
    char url[256];
    if (gpt_listen_url(h->socket, url, sizeof(url)))
        gpt_info("serving %s at %s", h->s->model, url);
    return GPT_OK;
}

/* Connections that are open stay so, and their answers go out. */
void gpt_http_quiesce(struct gpt_http *h)
{
    int socket = MHD_quiesce_daemon(h->daemon);

    if (socket >= 0)
        close(socket);
}

/* The daemon waits for its thread. No connection may sleep then: all calls are
 * done. */
void gpt_http_close(struct gpt_http *h)
{
    if (!h)
        return;
    if (h->daemon)
        MHD_stop_daemon(h->daemon);
    else if (h->socket >= 0)
        close(h->socket);
    gpt_clients_free(&h->clients);
    gpt_free(h);
}

#endif
