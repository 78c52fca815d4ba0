/* The store's server: one thread, poll(2), no locks, since nothing but this
 * thread touches table and clients.
 *
 * A turn of the loop: read from the clients that have sent something, execute
 * what is whole until nothing changes any more, send replies, drop clients that
 * are gone. Requests of one client are executed in their order; replies leave
 * in that order, too, as a client's protocol has no numbers to pair them by.
 *
 * Clients are not trusted: a message that is no request, or a client that never
 * reads its replies, costs bounded memory and ends with that client dropped;
 * the others do not notice. Start at serve(). */
#include "parallel/store.h"

#include "base/clock.h"
#include "base/thread.h"
#include "parallel/net.h"
#include "parallel/store_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    READ_BYTES = 64 << 10,
    STRANGERS = 64,    /* clients that have not sent VALIDATE: at most */
    STRANGE_SECONDS = 5,
    TURN_MS = 1000, /* the longest wait of a turn while there are such */
    RESERVED = 64, /* descriptors that are left to the rest of the process */
    OUT_HIGH = 16 << 20, /* replies that wait: no more requests until sent */
};

struct client {
    int fd;
    double since;      /* of the server's time: when it was accepted */
    struct gpt_buf in; /* from `taken` on: not yet executed */
    size_t taken;
    struct gpt_buf out; /* from `sent` on: not yet sent */
    size_t sent;
    struct gpt_wire_request request;
    bool valid;   /* it has sent VALIDATE */
    bool waiting; /* the request is a WAIT whose keys are not all there */
    size_t found; /* keys of the WAIT that were seen */
    bool dropped;
    struct gpt_buf will; /* a request, see keep_will(); empty: none */
};

struct gpt_store_server {
    int listener, wake[2]; /* a pipe: seconds to linger end the thread */
    int64_t port;
    double time, turn; /* the server's time, see tell_time(); gpt_now() then */
    struct gpt_store_table *table;
    struct client **clients;
    size_t n, cap, limit; /* limit: clients that there may be */
    struct pollfd *polls;
    size_t polls_cap;
    bool full; /* no descriptor for another client; the listener is left out
                * of the next poll, which would return at once */
    pthread_t thread;
};

/* ---- one client ---- */

static void client_free(struct client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    gpt_buf_free(&c->in);
    gpt_buf_free(&c->out);
    gpt_buf_free(&c->will);
    gpt_wire_free(&c->request);
    gpt_free(c);
}

static const uint8_t *message(const struct client *c)
{
    /* nothing can be added to NULL, not even 0 */
    return c->in.data ? (const uint8_t *)c->in.data + c->taken : NULL;
}

static size_t message_bytes(const struct client *c)
{
    return c->in.len - c->taken;
}

static void reply_byte(struct client *c, uint8_t byte)
{
    if (gpt_buf_add(&c->out, &byte, 1) != GPT_OK)
        c->dropped = true;
}

static void next_request(struct client *c, size_t bytes)
{
    c->taken += bytes;
    c->waiting = false;
    gpt_wire_restart(&c->request);
}

/* A WAIT stays the client's first message until its keys are there, or until a
 * CANCEL_WAIT follows. `found` only grows: keys that a WAIT has seen are not
 * looked up again at every change of the table. */
static bool wait_ends(const struct gpt_store_server *v, struct client *c)
{
    const struct gpt_wire_request *r = &c->request;

    while (c->found < r->n &&
           gpt_store_table_has(v->table, message(c) + r->fields[c->found].at,
                               r->fields[c->found].len))
        c->found++;
    if (c->found == r->n) {
        reply_byte(c, GPT_WIRE_STOP_WAITING);
        next_request(c, r->end);
        return true;
    }
    if (message_bytes(c) > r->end &&
        message(c)[r->end] == GPT_WIRE_CANCEL_WAIT) {
        reply_byte(c, GPT_WIRE_CANCELED);
        next_request(c, r->end + 1);
        return true;
    }
    return false;
}

/* ---- wills ---- */

/* A client that sets PREFIX/will/RANK leaves a report of its failure. When its
 * connection ends before it has deleted the key, the report is posted as
 * PREFIX/failure, unless there is one. A killed process thereby reports itself:
 * the kernel closes its connection, however it died. (A host that loses power
 * closes nothing; keep-alive and the timeouts of the others find that.)
 *
 * The will is a complete COMPARE_SET request, made when the key is set, so that
 * nothing has to be composed, or can fail, at the time of death. */
static void keep_will(struct client *c)
{
    static const char mark[] = "/will/", place[] = "/failure";
    const struct gpt_wire_request *r = &c->request;
    const struct gpt_wire_field *key = &r->fields[0], *report = key + 1;
    const uint8_t *name = message(c) + key->at;
    const uint8_t *at = memmem(name, key->len, mark, sizeof(mark) - 1);
    const size_t prefix = at ? (size_t)(at - name) : 0;

    if (!at)
        return;
    c->will.len = 0;
    if (r->code != GPT_WIRE_SET)
        return;
    if (gpt_wire_put_code(&c->will, GPT_WIRE_COMPARE_SET) != GPT_OK ||
        gpt_wire_put_u64(&c->will, prefix + sizeof(place) - 1) != GPT_OK ||
        gpt_buf_add(&c->will, name, prefix) != GPT_OK ||
        gpt_buf_add(&c->will, place, sizeof(place) - 1) != GPT_OK ||
        gpt_wire_put_bytes(&c->will, "", 0) != GPT_OK ||
        gpt_wire_put_bytes(&c->will, message(c) + report->at, report->len) !=
            GPT_OK)
        c->will.len = 0;
}

static void execute_will(struct gpt_store_server *v, struct client *c)
{
    const uint8_t *will = (const uint8_t *)c->will.data;
    struct gpt_wire_request r = {0};
    struct gpt_buf unread = {0};

    if (c->will.len > 0 &&
        gpt_wire_read(&r, will, c->will.len) == GPT_WIRE_DONE)
        (void)gpt_store_table_apply(v->table, &r, will, &unread);
    gpt_wire_free(&r);
    gpt_buf_free(&unread);
}

/* Executes a complete request. */
static void execute(struct gpt_store_server *v, struct client *c)
{
    const struct gpt_wire_request *r = &c->request;

    if (r->code == GPT_WIRE_VALIDATE)
        c->valid = r->number == GPT_WIRE_MAGIC;
    if (!c->valid) {
        c->dropped = true;
    } else if (r->code == GPT_WIRE_WAIT) {
        c->waiting = true;
        c->found = 0;
        return;
    } else if (r->code == GPT_WIRE_CANCEL_WAIT) {
        reply_byte(c, GPT_WIRE_CANCELED);
    } else if (r->code != GPT_WIRE_VALIDATE) {
        if (r->code == GPT_WIRE_SET || r->code == GPT_WIRE_DELETE)
            keep_will(c);
        c->dropped = !gpt_store_table_apply(v->table, r, message(c), &c->out);
    }
    next_request(c, r->end);
}

/* Executes what has arrived, while the client takes its replies. */
static void process(struct gpt_store_server *v, struct client *c)
{
    while (!c->dropped && c->out.len - c->sent < OUT_HIGH) {
        if (c->waiting) {
            if (!wait_ends(v, c))
                break;
            continue;
        }
        enum gpt_wire_status s =
            gpt_wire_read(&c->request, message(c), message_bytes(c));
        if (s == GPT_WIRE_BAD)
            c->dropped = true;
        if (s != GPT_WIRE_DONE)
            break;
        execute(v, c);
    }
    /* What remains moves to the front once a turn, not once a request. Places
     * in a request that is half read count from its first byte, so they stay
     * right. */
    if (c->taken > 0) {
        memmove(c->in.data, c->in.data + c->taken, message_bytes(c));
        c->in.len -= c->taken;
        c->taken = 0;
    }
}

/* One read a turn: a client that sends without pause cannot keep the thread
 * from the others. */
static void receive(struct client *c)
{
    if (gpt_buf_reserve(&c->in, READ_BYTES) != GPT_OK) {
        c->dropped = true;
        return;
    }
    ssize_t n = recv(c->fd, c->in.data + c->in.len, READ_BYTES, MSG_DONTWAIT);
    if (n > 0)
        c->in.len += (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        c->dropped = true;
}

/* The buffer is freed when it is empty. A large reply does not keep its memory
 * for the rest of the client's life. */
static void transmit(struct client *c)
{
    while (c->sent < c->out.len && !c->dropped) {
        ssize_t n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0 && errno != EINTR)
            c->dropped = true;
        if (n > 0)
            c->sent += (size_t)n;
    }
    gpt_buf_free(&c->out);
    c->sent = 0;
}

/* ---- the thread ---- */

/* A client that connects and says nothing costs a descriptor that the ranks and
 * the rest of this process need: there are few such clients, for seconds, and
 * the oldest gives way to a new one. Clients are in the order in which they
 * came. */
static void drop_strangers(struct gpt_store_server *v)
{
    size_t strangers = 0, crowd = v->n;

    for (size_t i = 0; i < v->n; i++)
        strangers += !v->clients[i]->valid;
    for (size_t i = 0; i < v->n; i++) {
        struct client *c = v->clients[i];

        if (c->valid)
            continue;
        if (crowd > v->limit || strangers > STRANGERS ||
            v->time - c->since > STRANGE_SECONDS) {
            c->dropped = true;
            strangers--;
            crowd--;
        }
    }
}

/* A job that was stopped as a whole, as by SIGSTOP or with its machine, has no
 * late clients: its ranks could not send either. So a turn counts no more than
 * its own longest wait. */
static void tell_time(struct gpt_store_server *v)
{
    const double now = gpt_now();

    v->time += fmin(now - v->turn, 1.5 * TURN_MS / 1000);
    v->turn = now;
}

static bool has_strangers(const struct gpt_store_server *v)
{
    for (size_t i = 0; i < v->n; i++)
        if (!v->clients[i]->valid)
            return true;
    return false;
}

/* Without a free descriptor the connection stays in the kernel's queue, and the
 * thread tries again after 50 ms. Above the limit it is closed: its rank then
 * reports that the store cannot be reached, and this process goes on. */
static void accept_client(struct gpt_store_server *v)
{
    int fd = accept4(v->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    v->full = fd < 0 && (errno == EMFILE || errno == ENFILE ||
                         errno == ENOBUFS || errno == ENOMEM);
    if (fd < 0)
        return;
    struct client *c =
        v->n < v->limit || has_strangers(v) ? gpt_alloc(1, sizeof(*c)) : NULL;
    if (!c || gpt_grow(&v->clients, &v->cap, v->n + 1, sizeof(*v->clients),
                       "clients", NULL) != GPT_OK) {
        gpt_free(c);
        close(fd);
        return;
    }
    gpt_net_set_options(fd, GPT_WIRE_GONE);
    c->fd = fd;
    c->since = v->time;
    v->clients[v->n++] = c;
}

/* Wills are executed before the next turn, so that waits see the failure. */
static void drop_clients(struct gpt_store_server *v)
{
    size_t kept = 0;

    for (size_t i = 0; i < v->n; i++)
        if (v->clients[i]->dropped) {
            execute_will(v, v->clients[i]);
            client_free(v->clients[i]);
        } else {
            v->clients[kept++] = v->clients[i];
        }
    v->n = kept;
}

/* A change by one client can end the wait of another, whose next request may be
 * a change again: clients are gone through until a round changes nothing. */
static void process_all(struct gpt_store_server *v)
{
    uint64_t seen;

    do {
        seen = gpt_store_table_changes(v->table);
        for (size_t i = 0; i < v->n; i++)
            process(v, v->clients[i]);
    } while (seen != gpt_store_table_changes(v->table));
    for (size_t i = 0; i < v->n; i++)
        transmit(v->clients[i]);
    drop_strangers(v);
    drop_clients(v);
}

/* Which events of a client matter now. Clients that do not take their replies,
 * or wait for a key, are not read beyond one message: their sender then waits,
 * and this process holds no more than that for them. */
static short interest(const struct client *c)
{
    short events = 0;

    if (c->out.len - c->sent < OUT_HIGH &&
        message_bytes(c) < GPT_WIRE_MESSAGE + READ_BYTES)
        events |= POLLIN;
    if (c->sent < c->out.len)
        events |= POLLOUT;
    return events;
}

/* Returns the number of descriptors in v->polls: the pipe, the listener, then
 * the clients. */
static nfds_t fill_polls(struct gpt_store_server *v, bool ending)
{
    if (gpt_grow(&v->polls, &v->polls_cap, v->n + 2, sizeof(*v->polls),
                 "clients", NULL) != GPT_OK)
        return 0;
    v->polls[0] = (struct pollfd){ending ? -1 : v->wake[0], POLLIN, 0};
    v->polls[1] = (struct pollfd){v->full ? -1 : v->listener, POLLIN, 0};
    for (size_t i = 0; i < v->n; i++)
        v->polls[i + 2] =
            (struct pollfd){v->clients[i]->fd, interest(v->clients[i]), 0};
    return v->n + 2;
}

/* A pipe does not divide a write of 8 bytes, so the number arrives whole. */
static double read_linger(const struct gpt_store_server *v)
{
    double seconds;

    return read(v->wake[0], &seconds, sizeof(seconds)) == sizeof(seconds)
               ? seconds
               : 0;
}

/* When there is no memory for the list of descriptors, the thread sleeps for 50
 * ms and tries again; clients wait meanwhile. Only clients that were polled are
 * read: a client that was accepted in this turn is listed after them. */
static void *serve(void *arg)
{
    struct gpt_store_server *v = arg;
    double end = -1; /* of lingering, once it began */

    for (;;) {
        size_t n = v->n;
        nfds_t polled = fill_polls(v, end >= 0);
        int wait = end >= 0 || v->full || polled == 0 ? 50
                   : has_strangers(v)                 ? TURN_MS
                                                      : -1;

        v->full = false;
        if (end >= 0 && (n == 0 || gpt_now() >= end))
            return NULL;
        if (poll(v->polls, polled, wait) < 0 || polled == 0)
            continue; /* interrupted, or no memory */
        tell_time(v);
        for (size_t i = 0; i < n; i++)
            if (v->polls[i + 2].revents & ~POLLOUT)
                receive(v->clients[i]);
        if (v->polls[1].revents)
            accept_client(v);
        if (v->polls[0].revents)
            end = gpt_now() + read_linger(v);
        process_all(v);
    }
}

/* ---- open and close ---- */

/* Clients that fit beside RESERVED descriptors. The soft limit is raised as far
 * as the system lets a process raise it: a job may have thousands of ranks. */
static size_t client_limit(void)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) != 0)
        return 512;
    l.rlim_cur = l.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &l);
    if (getrlimit(RLIMIT_NOFILE, &l) != 0)
        return 512;
    const rlim_t reserved = l.rlim_cur / 2 < RESERVED ? l.rlim_cur / 2
                                                      : RESERVED;
    const rlim_t most = 1 << 20;
    return (size_t)(l.rlim_cur - reserved < most ? l.rlim_cur - reserved
                                                 : most);
}

int gpt_store_server_open(struct gpt_store_server **out, const char *host,
                          int64_t port, struct gpt_err *err)
{
    struct gpt_store_server *v;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&v, 1, sizeof(*v), "the store's server", err));
    v->wake[0] = v->wake[1] = -1;
    v->limit = client_limit();
    v->listener = gpt_net_listen(host, port);
    if (v->listener < 0) {
        gpt_fail_errno(err, GPT_EIO, "cannot listen on port %lld",
                       (long long)port);
        status = gpt_hint(err, "another job may use it: set MASTER_PORT");
        goto fail;
    }
    v->port = gpt_net_port(v->listener);
    v->table = gpt_store_table_open();
    if (!v->table || pipe2(v->wake, O_CLOEXEC) != 0) {
        status =
            gpt_fail_errno(err, GPT_EFAIL, "cannot start the store's server");
        goto fail;
    }
    GPT_TRY_GOTO(status,
                 gpt_thread_start(&v->thread, "store", serve, v, err), fail);
    *out = v;
    return GPT_OK;
fail:
    if (v->listener >= 0)
        close(v->listener);
    for (int i = 0; i < 2; i++)
        if (v->wake[i] >= 0)
            close(v->wake[i]);
    gpt_store_table_close(v->table);
    gpt_free(v);
    return status;
}

int64_t gpt_store_server_port(const struct gpt_store_server *v)
{
    return v->port;
}

void gpt_store_server_close(struct gpt_store_server *v, double linger)
{
    if (!v)
        return;
    while (write(v->wake[1], &linger, sizeof(linger)) < 0 && errno == EINTR)
        ;
    gpt_thread_join(v->thread);
    /* the server's thread has ended: clients and table belong to this one */
    for (size_t i = 0; i < v->n; i++)
        client_free(v->clients[i]);
    close(v->listener);
    close(v->wake[0]);
    close(v->wake[1]);
    gpt_store_table_close(v->table);
    gpt_free(v->clients);
    gpt_free(v->polls);
    gpt_free(v);
}
