/* The store's client: one connection, and the requests that go over it.
 *
 * There is one connection a process, used by all of its threads under a lock,
 * one request at a time. So no request may wait at the server: waiting is
 * polling, with pauses from 1 to 50 ms, and the lock is free in the pauses. The
 * protocol has a WAIT, but a thread that waited in it would keep the watcher of
 * a communicator from reporting a failure.
 *
 * A request that was sent in part, or a reply that was read in part, leaves the
 * stream at an unknown place. Then the connection is lost for good and every
 * later request fails with the same reason; there is no reconnecting, since the
 * server has taken the end of the connection for the end of this rank.
 *
 * Start at gpt_store_open(), then set_locked(). */
#include "parallel/store_client.h"

#include "base/memory.h"
#include "base/num.h"
#include "base/signals.h"
#include "parallel/net.h"
#include "parallel/store_wire.h"
#include "parallel/wait.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ANSWER_SECONDS = 60,
    LINGER_SECONDS = 5,
    POLL_MS = 100,
};

/* ---- connecting ---- */

/* A timeout of zero seconds would mean none at all. A host that loses power
 * closes nothing: these turn its silence into the failure of a request. */
static void set_timeouts(int fd)
{
    const struct timeval t = {ANSWER_SECONDS, 0};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
    gpt_net_set_options(fd, GPT_WIRE_GONE);
}

static const char *owner(const struct gpt_store *s)
{
    return s->agent_store ? "the launcher" : "rank 0";
}

int gpt_store_check_signal(const struct gpt_store *s, struct gpt_err *err)
{
    if (!gpt_signals_stop() || atomic_load(&s->keeps_waiting))
        return GPT_OK;
    return gpt_fail(err, GPT_EFAIL, "was stopped by %s while the ranks met",
                    gpt_signal_name(gpt_signals_stop()));
}

/* An address is tried for 10 s at most, and every attempt looks the name up
 * again: rank 0 may start later than this rank, and its name may be known later
 * still. One rank of a node reports the wait for all of them. */
static int connect_store(struct gpt_store *s, const struct gpt_launch_env *l,
                         double timeout, struct gpt_err *err)
{
    struct gpt_wait wait = gpt_wait_begin(timeout);
    char why[128] = "no address";

    for (;;) {
        s->fd = gpt_net_connect(l->host, l->port,
                                fmax(1, fmin(gpt_wait_left(&wait), 10)), why,
                                sizeof(why));
        if (s->fd >= 0)
            break;
        GPT_TRY(gpt_store_check_signal(s, err));
        if (gpt_wait_is_over(&wait))
            return gpt_fail(err, GPT_EIO,
                            "cannot reach the store of %s at %s within %g s: "
                            "%s",
                            owner(s), s->where, timeout, why);
        if (gpt_wait_is_long(&wait) && l->local_rank == 0)
            gpt_wait_report(&wait, "the store of %s at %s (%s)", owner(s),
                            s->where, why);
        gpt_wait_pause(&wait);
    }
    set_timeouts(s->fd);
    return GPT_OK;
}

/* ---- one request; the lock is held ---- */

/* errno says why; 0 stands for the end of the stream. */
static int lose_connection(struct gpt_store *s, const char *what,
                           struct gpt_err *err)
{
    const char *reason = strerror(errno);
    char late[40];

    snprintf(late, sizeof(late), "no answer for %d s", ANSWER_SECONDS);
    if (errno == EAGAIN)
        reason = late;
    else if (errno == 0)
        reason = "the connection was closed";
    s->lost = true;
    gpt_fail(&s->why, GPT_EIO, "cannot %s the store of %s at %s: %s", what,
             owner(s), s->where, reason);
    return gpt_fail(err, GPT_EIO, "%s", s->why.text);
}

static int no_memory(struct gpt_err *err)
{
    return gpt_no_memory(err, "a request of the store");
}

/* In a world of one the request goes through the same reading and executing as
 * in a server, without sockets: there is one code for both. */
static int execute_here(struct gpt_store *s, struct gpt_err *err)
{
    struct gpt_wire_request r = {0};
    const uint8_t *data = (const uint8_t *)s->request.data;
    bool done;

    s->reply.len = s->replied = 0;
    done = gpt_wire_read(&r, data, s->request.len) == GPT_WIRE_DONE &&
           gpt_store_table_apply(s->table, &r, data, &s->reply);
    gpt_wire_free(&r);
    return done ? GPT_OK
                : gpt_fail(err, GPT_EFAIL, "the store refuses the request");
}

static int send_request(struct gpt_store *s, struct gpt_err *err)
{
    size_t sent = 0;

    if (s->lost)
        return gpt_fail(err, GPT_EIO, "%s", s->why.text);
    if (s->table)
        return execute_here(s, err);
    while (sent < s->request.len) {
        ssize_t n = send(s->fd, s->request.data + sent, s->request.len - sent,
                         MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return lose_connection(s, "write to", err);
        sent += (size_t)n;
    }
    return GPT_OK;
}

static int read_reply(struct gpt_store *s, void *dst, size_t n,
                      struct gpt_err *err)
{
    uint8_t *p = dst;

    if (s->table) {
        assert(s->replied + n <= s->reply.len);
        memcpy(p, s->reply.data + s->replied, n);
        s->replied += n;
        return GPT_OK;
    }
    while (n > 0) {
        ssize_t got = recv(s->fd, p, n, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0)
            errno = 0;
        if (got <= 0)
            return lose_connection(s, "read from", err);
        p += got;
        n -= (size_t)got;
    }
    return GPT_OK;
}

static int read_u64(struct gpt_store *s, uint64_t *v, struct gpt_err *err)
{
    uint8_t raw[8];

    GPT_TRY(read_reply(s, raw, sizeof(raw), err));
    *v = gpt_get_u64(raw);
    return GPT_OK;
}

static int read_value(struct gpt_store *s, void **value, size_t *len,
                      struct gpt_err *err)
{
    uint64_t n;
    char *p;

    GPT_TRY(read_u64(s, &n, err));
    if (n > GPT_STORE_VALUE) {
        errno = EPROTO;
        return lose_connection(s, "read from", err);
    }
    int status = gpt_new(&p, (size_t)n + 1, 1, "a value of the store", err);
    if (status != GPT_OK) {
        s->lost = true; /* the value is still to be read */
        gpt_no_memory(&s->why, "a value of the store");
        return status;
    }
    status = read_reply(s, p, (size_t)n, err);
    if (status != GPT_OK) {
        gpt_free(p);
        return status;
    }
    *value = p;
    *len = (size_t)n;
    return GPT_OK;
}

static int begin_request(struct gpt_store *s, enum gpt_wire_code code)
{
    s->request.len = 0;
    return gpt_wire_put_code(&s->request, code);
}

/* The prefix keeps the keys of this run apart from those of PyTorch, of the
 * launcher and of earlier runs in the same store. */
static int put_key(struct gpt_store *s, const char *key)
{
    const size_t prefix = strlen(s->prefix), n = strlen(key);

    GPT_TRY(gpt_wire_put_u64(&s->request, prefix + n));
    GPT_TRY(gpt_buf_add(&s->request, s->prefix, prefix));
    return gpt_buf_add(&s->request, key, n);
}

static int check_sizes(const struct gpt_store *s, const char *key, size_t len,
                       struct gpt_err *err)
{
    if (strlen(s->prefix) + strlen(key) > GPT_STORE_KEY)
        return gpt_fail(err, GPT_EFAIL,
                        "a key of the store has %zu bytes, "
                        "limit %d",
                        strlen(key), GPT_STORE_KEY - 136);
    if (len > GPT_STORE_VALUE)
        return gpt_fail(err, GPT_EFAIL,
                        "the value of key '%.100s' of the store has %zu bytes, "
                        "limit %d",
                        key, len, GPT_STORE_VALUE);
    return GPT_OK;
}

/* ---- open and close ---- */

/* What listens on the port may be no store, and say nothing, or a part of an
 * answer: the limit is that of meeting, and a signal ends the wait soon. */
static int await_bytes(struct gpt_store *s, double timeout,
                       struct gpt_err *err)
{
    struct gpt_wait wait = gpt_wait_begin(fmin(timeout, ANSWER_SECONDS));
    struct pollfd answer = {.fd = s->fd, .events = POLLIN};

    while (poll(&answer, 1, POLL_MS) <= 0) {
        gpt_wait_heed_signal(&wait);
        if (!gpt_wait_is_over(&wait))
            continue;
        GPT_TRY(gpt_store_check_signal(s, err));
        return gpt_fail(err, GPT_EIO, "the server at %s does not answer "
                        "within %g s; is it another program?",
                        s->where, wait.limit);
    }
    return GPT_OK;
}

/* Returns when `size` bytes are there, or the connection is at its end. */
static int await_greeting(struct gpt_store *s, int size, double timeout,
                          struct gpt_err *err)
{
    const int one = 1;
    int status;

    (void)setsockopt(s->fd, SOL_SOCKET, SO_RCVLOWAT, &size, sizeof(size));
    status = await_bytes(s, timeout, err);
    (void)setsockopt(s->fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
    return status;
}

/* Sends VALIDATE, which has no answer, and PING, which has: the answer shows
 * that a store is there, before a rank waits for values of something else that
 * listens on the port. */
static int greet(struct gpt_store *s, double timeout, struct gpt_err *err)
{
    const uint32_t nonce = (uint32_t)s->rank ^ UINT32_C(0x5EED0000);
    uint8_t raw[4];

    if (s->table)
        return GPT_OK;
    if (begin_request(s, GPT_WIRE_VALIDATE) != GPT_OK ||
        gpt_wire_put_u32(&s->request, GPT_WIRE_MAGIC) != GPT_OK ||
        gpt_wire_put_code(&s->request, GPT_WIRE_PING) != GPT_OK ||
        gpt_wire_put_u32(&s->request, nonce) != GPT_OK)
        return no_memory(err);
    GPT_TRY(send_request(s, err));
    GPT_TRY(await_greeting(s, sizeof(raw), timeout, err));
    if (read_reply(s, raw, sizeof(raw), err) != GPT_OK ||
        gpt_get_u32(raw) != nonce)
        return gpt_fail(err, GPT_EIO,
                        "the server at %s does not speak the protocol of "
                        "PyTorch's TCPStore (2.4 or newer)",
                        s->where);
    return GPT_OK;
}

/* Rank 0 serves before it connects, and is then a client like the others. */
static int open_connection(struct gpt_store *s, const struct gpt_launch_env *l,
                           double timeout, struct gpt_err *err)
{
    if (l->world_size == 1) {
        s->table = gpt_store_table_open();
        return s->table ? GPT_OK : no_memory(err);
    }
    if (l->rank == 0 && !l->agent_store)
        GPT_TRY(gpt_store_server_open(&s->server, l->host, l->port, err));
    return connect_store(s, l, timeout, err);
}

int gpt_store_open(struct gpt_store **out, const struct gpt_launch_env *l,
                   double timeout, struct gpt_err *err)
{
    struct gpt_store *s;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&s, 1, sizeof(*s), "the store", err));
    pthread_mutex_init(&s->lock, NULL);
    s->fd = -1;
    s->world_size = l->world_size;
    s->rank = l->rank;
    s->agent_store = l->agent_store;
    snprintf(s->where, sizeof(s->where), "%s:%lld", l->host,
             (long long)l->port);
    snprintf(s->prefix, sizeof(s->prefix), "gpt/%s/", l->run_id);
    GPT_TRY_GOTO(status, open_connection(s, l, timeout, err), fail);
    GPT_TRY_GOTO(status, greet(s, timeout, err), fail);
    *out = s;
    return GPT_OK;
fail:
    gpt_store_close(s);
    return status;
}

void gpt_store_close(struct gpt_store *s)
{
    if (!s)
        return;
    gpt_store_withdraw_will(s); /* this end is no failure */
    if (s->fd >= 0)
        close(s->fd);
    /* after its own connection: others may still read why the job ends */
    gpt_store_server_close(s->server, LINGER_SECONDS);
    gpt_store_table_close(s->table);
    gpt_buf_free(&s->request);
    gpt_buf_free(&s->reply);
    pthread_mutex_destroy(&s->lock);
    gpt_free(s);
}

bool gpt_store_lost(struct gpt_store *s)
{
    pthread_mutex_lock(&s->lock);
    const bool lost = s->lost;
    pthread_mutex_unlock(&s->lock);
    return lost;
}

void gpt_store_keep_waiting(struct gpt_store *s)
{
    atomic_store(&s->keeps_waiting, true);
}

void gpt_store_local_address(const struct gpt_store *s, char *text, size_t cap)
{
    if (s->fd < 0 || !gpt_net_address(s->fd, text, cap))
        snprintf(text, cap, "127.0.0.1");
}

/* ---- values ---- */

/* A SET has no reply. A server that refuses it closes the connection, which the
 * next request reports. */
static int set_locked(struct gpt_store *s, const char *key, const void *value,
                      size_t len, struct gpt_err *err)
{
    if (begin_request(s, GPT_WIRE_SET) != GPT_OK || put_key(s, key) != GPT_OK ||
        gpt_wire_put_bytes(&s->request, value, len) != GPT_OK)
        return no_memory(err);
    return send_request(s, err);
}

int gpt_store_set(struct gpt_store *s, const char *key, const void *value,
                  size_t len, struct gpt_err *err)
{
    GPT_TRY(check_sizes(s, key, len, err));
    pthread_mutex_lock(&s->lock);
    int status = set_locked(s, key, value, len, err);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static int add_locked(struct gpt_store *s, const char *key, int64_t delta,
                      int64_t *result, struct gpt_err *err)
{
    uint64_t v;

    if (begin_request(s, GPT_WIRE_ADD) != GPT_OK || put_key(s, key) != GPT_OK ||
        gpt_wire_put_u64(&s->request, (uint64_t)delta) != GPT_OK)
        return no_memory(err);
    GPT_TRY(send_request(s, err));
    GPT_TRY(read_u64(s, &v, err));
    *result = (int64_t)v;
    return GPT_OK;
}

int gpt_store_add(struct gpt_store *s, const char *key, int64_t delta,
                  int64_t *result, struct gpt_err *err)
{
    GPT_TRY(check_sizes(s, key, 0, err));
    pthread_mutex_lock(&s->lock);
    int status = add_locked(s, key, delta, result, err);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static int check_locked(struct gpt_store *s, const char *key, bool *exists,
                        struct gpt_err *err)
{
    uint8_t answer;

    if (begin_request(s, GPT_WIRE_CHECK) != GPT_OK ||
        gpt_wire_put_u64(&s->request, 1) != GPT_OK || put_key(s, key) != GPT_OK)
        return no_memory(err);
    GPT_TRY(send_request(s, err));
    GPT_TRY(read_reply(s, &answer, 1, err));
    *exists = answer == GPT_WIRE_READY;
    return GPT_OK;
}

int gpt_store_check(struct gpt_store *s, const char *key, bool *exists,
                    struct gpt_err *err)
{
    GPT_TRY(check_sizes(s, key, 0, err));
    pthread_mutex_lock(&s->lock);
    int status = check_locked(s, key, exists, err);
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* Two requests under one lock; a key is never deleted between them, as only
 * wills are deleted. */
int gpt_store_get_if_set(struct gpt_store *s, const char *key, bool *exists,
                         void **value, size_t *len, struct gpt_err *err)
{
    int status;

    pthread_mutex_lock(&s->lock);
    GPT_TRY_GOTO(status, check_locked(s, key, exists, err), out);
    if (!*exists)
        goto out;
    if (begin_request(s, GPT_WIRE_GET) != GPT_OK || put_key(s, key) != GPT_OK)
        GPT_TRY_GOTO(status, no_memory(err), out);
    GPT_TRY_GOTO(status, send_request(s, err), out);
    status = read_value(s, value, len, err);
out:
    pthread_mutex_unlock(&s->lock);
    return status;
}

int gpt_store_get(struct gpt_store *s, const char *key, double timeout,
                  void **value, size_t *len, struct gpt_err *err)
{
    struct gpt_wait wait = gpt_wait_begin(timeout);
    bool exists = false;

    GPT_TRY(check_sizes(s, key, 0, err));
    for (;;) {
        GPT_TRY(gpt_store_get_if_set(s, key, &exists, value, len, err));
        if (exists)
            return GPT_OK;
        if (gpt_wait_is_over(&wait))
            return gpt_fail(err, GPT_EFAIL,
                            "'%.100s' was not set in the store at %s within "
                            "%g s",
                            key, s->where, timeout);
        /* another thread may let waits go on between the two */
        if (gpt_store_check_signal(s, err) != GPT_OK)
            GPT_TRY(gpt_store_check_wait(s, err));
        gpt_wait_pause(&wait);
    }
}

/* COMPARE_SET with an empty expectation writes only where there is no value:
 * the server decides which of several values is the first. */
int gpt_store_set_once(struct gpt_store *s, const char *key, const void *value,
                       size_t len, void **first, struct gpt_err *err)
{
    int status = GPT_OK;

    GPT_TRY(check_sizes(s, key, len, err));
    pthread_mutex_lock(&s->lock);
    if (begin_request(s, GPT_WIRE_COMPARE_SET) != GPT_OK ||
        put_key(s, key) != GPT_OK ||
        gpt_wire_put_bytes(&s->request, "", 0) != GPT_OK ||
        gpt_wire_put_bytes(&s->request, value, len) != GPT_OK)
        GPT_TRY_GOTO(status, no_memory(err), out);
    GPT_TRY_GOTO(status, send_request(s, err), out);
    status = read_value(s, first, &len, err);
out:
    pthread_mutex_unlock(&s->lock);
    return status;
}

static int delete_locked(struct gpt_store *s, const char *key,
                         struct gpt_err *err)
{
    uint64_t deleted;

    if (begin_request(s, GPT_WIRE_DELETE) != GPT_OK ||
        put_key(s, key) != GPT_OK)
        return no_memory(err);
    GPT_TRY(send_request(s, err));
    return read_u64(s, &deleted, err);
}

int gpt_store_delete(struct gpt_store *s, const char *key, struct gpt_err *err)
{
    pthread_mutex_lock(&s->lock);
    int status = delete_locked(s, key, err);
    pthread_mutex_unlock(&s->lock);
    return status;
}
