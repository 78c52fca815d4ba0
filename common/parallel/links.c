/* The ring of links; see links.h. Rank r connects to rank r + 1 and accepts
 * rank r - 1, so that each has two neighbours however many ranks there are.
 *
 * Meeting: a rank listens on a free port, sets "link/RANK" in the store to its
 * address and a random number, and waits until both links stand. The rank
 * that connects sends that number, and gets an answer: nothing else that
 * connects to the port is taken for a rank.
 *
 * After that a thread waits for either link to end. A byte before the end means
 * that the rank has ended as it should (gpt_links_close); an end without one
 * that it was killed, or that its machine or the network is gone, which the
 * keep-alive of the connection finds out. A rank that fails with a message has
 * put it into the store before its connection ends, so the thread looks there
 * before it calls lost().
 *
 * Start at meet_neighbours(), then watch_links(). */
#include "parallel/links.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "parallel/net.h"
#include "parallel/wait.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    GONE_SECONDS = 8, /* of silence of a machine */
    STRANGERS = 16,   /* accepted, and not yet known to be a rank */
    ACCEPTED = 'A',
    LEAVE = 'L'
};
/* Less than gpt_comm_reason: a call that fails of the same end waits that long
 * for the report that is made here. */
static const double reason_seconds = 1;

struct gpt_links {
    struct gpt_links_options o;
    struct gpt_store *store;
    int fd[2]; /* the rank before, and the next one; -1: none */
    int wake[2];
    pthread_t thread;
    bool started;
};

static int64_t neighbour(const struct gpt_links *l, int side)
{
    const int64_t step = side == 0 ? l->o.size - 1 : 1;

    return (l->o.rank + step) % l->o.size;
}

/* ---- meeting ---- */

/* What a rank waits with until its links stand. */
struct meeting {
    struct gpt_links *l;
    int listener;
    uint64_t number; /* that the rank before has to send */
    int next;        /* connected, and not yet accepted by the next rank */
    int strangers[STRANGERS];
};

/* Listens on the address by which the other ranks reach this machine. */
static int listen_here(struct meeting *m, char *address, size_t cap,
                       struct gpt_err *err)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *a = NULL;

    gpt_store_local_address(m->l->store, address, cap);
    if (getaddrinfo(address, "0", &hints, &a) != 0)
        return gpt_fail(err, GPT_EIO, "'%s' is no address", address);
    m->listener =
        socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool listens = m->listener >= 0 &&
                         bind(m->listener, a->ai_addr, a->ai_addrlen) == 0 &&
                         listen(m->listener, STRANGERS) == 0;
    int status = listens ? GPT_OK
                         : gpt_fail_errno(err, GPT_EIO, "cannot listen on %s",
                                          address);

    freeaddrinfo(a);
    return status;
}

static int announce(struct meeting *m, struct gpt_err *err)
{
    char address[128], key[40], value[200];

    GPT_TRY(listen_here(m, address, sizeof(address), err));
    if (getrandom(&m->number, sizeof(m->number), 0) != sizeof(m->number))
        return gpt_fail_errno(err, GPT_EFAIL, "no random number");
    snprintf(key, sizeof(key), "link/%lld", (long long)m->l->o.rank);
    snprintf(value, sizeof(value), "%s %lld %llu", address,
             (long long)gpt_net_port(m->listener),
             (unsigned long long)m->number);
    return gpt_store_set(m->l->store, key, value, strlen(value), err);
}

/* Connects to the next rank when it has announced itself. A connection that
 * fails is tried again until the time is over. */
static int try_next(struct meeting *m, char *why, size_t cap,
                    struct gpt_err *err)
{
    struct gpt_links *l = m->l;
    char key[40], address[128];
    unsigned long long number;
    long long port;
    bool exists;
    void *value;
    size_t len;

    snprintf(key, sizeof(key), "link/%lld", (long long)neighbour(l, 1));
    GPT_TRY(gpt_store_check(l->store, key, &exists, err));
    if (!exists)
        return GPT_OK;
    GPT_TRY(gpt_store_get(l->store, key, 1, &value, &len, err));
    const bool known =
        sscanf(value, "%127s %lld %llu", address, &port, &number) == 3;
    gpt_free(value);
    if (!known)
        return gpt_fail(err, GPT_EIO, "'%s' in the store is no address", key);
    const uint64_t word = number;
    int fd = gpt_net_connect(address, port, 2, why, cap);
    if (fd >= 0 && send(fd, &word, sizeof(word), MSG_NOSIGNAL) ==
                       (ssize_t)sizeof(word))
        m->next = fd;
    else if (fd >= 0)
        close(fd);
    return GPT_OK;
}

/* The next rank answers when it has read the number; it may as well have closed
 * the connection, crowded by strangers. */
static void read_answer(struct meeting *m)
{
    char byte = 0;
    ssize_t n = recv(m->next, &byte, 1, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == 1 && byte == ACCEPTED)
        m->l->fd[1] = m->next;
    else
        close(m->next);
    m->next = -1;
}

/* A stranger that has sent the number is the rank before. The others are
 * dropped when they send something else, and when another one needs the
 * place. */
static void check_stranger(struct meeting *m, int *place)
{
    const char accepted = ACCEPTED;
    uint64_t word;
    ssize_t n = recv(*place, &word, sizeof(word), MSG_DONTWAIT | MSG_PEEK);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == (ssize_t)sizeof(word) && word == m->number && m->l->fd[0] < 0 &&
        recv(*place, &word, sizeof(word), MSG_DONTWAIT) == n &&
        send(*place, &accepted, 1, MSG_NOSIGNAL) == 1)
        m->l->fd[0] = *place;
    else if (n == 0 || n >= (ssize_t)sizeof(word) || n < 0)
        close(*place);
    else
        return;
    *place = -1;
}

static void accept_previous(struct meeting *m)
{
    int fd;

    while ((fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        if (m->strangers[0] >= 0) /* the oldest */
            close(m->strangers[0]);
        memmove(m->strangers, m->strangers + 1,
                (STRANGERS - 1) * sizeof(m->strangers[0]));
        m->strangers[STRANGERS - 1] = fd;
    }
    for (int i = 0; i < STRANGERS; i++)
        if (m->strangers[i] >= 0)
            check_stranger(m, &m->strangers[i]);
}

/* Polls both sides. The neighbours that are missing are reported by rank 0
 * alone: all ranks would say the same of a rank that was not started. */
static int wait_for_both(struct meeting *m, struct gpt_err *err)
{
    struct gpt_links *l = m->l;
    struct gpt_wait wait = gpt_wait_begin(l->o.timeout);
    bool counted = false;
    char why[128] = "it has not come";

    for (;;) {
        if (l->fd[1] < 0 && m->next < 0)
            GPT_TRY(try_next(m, why, sizeof(why), err));
        if (m->next >= 0)
            read_answer(m);
        if (l->fd[0] < 0)
            accept_previous(m);
        if (l->fd[0] >= 0 && l->fd[1] >= 0)
            break;
        const bool next = l->fd[1] < 0; /* else the rank before is missing */
        const int64_t missing = neighbour(l, next);
        const char *reason = next ? why : "it has not come";
        if (gpt_wait_is_over(&wait))
            return gpt_fail(err, GPT_EIO,
                            "no connection to rank %lld within %g s: %s",
                            (long long)missing, l->o.timeout, reason);
        if (gpt_wait_is_check_due(&wait)) {
            GPT_TRY(gpt_store_check_wait(l->store, err));
            if (!counted)
                gpt_store_count_wait(l->store, 1);
            counted = true;
        }
        if (l->o.rank == 0 && gpt_wait_is_long(&wait))
            gpt_wait_report(&wait, "a connection to rank %lld (%s)",
                            (long long)missing, reason);
        gpt_wait_pause(&wait);
    }
    if (counted)
        gpt_store_count_wait(l->store, -1);
    return GPT_OK;
}

static int meet_neighbours(struct gpt_links *l, struct gpt_err *err)
{
    struct meeting m = {.l = l, .listener = -1, .next = -1};

    for (int i = 0; i < STRANGERS; i++)
        m.strangers[i] = -1;
    int status = announce(&m, err);
    if (status == GPT_OK)
        status = wait_for_both(&m, err);
    for (int i = 0; i < STRANGERS; i++)
        if (m.strangers[i] >= 0)
            close(m.strangers[i]);
    if (m.next >= 0)
        close(m.next);
    if (m.listener >= 0)
        close(m.listener);
    return status;
}

/* ---- watching ---- */

static void close_link(struct gpt_links *l, int side)
{
    close(l->fd[side]);
    l->fd[side] = -1;
}

/* True when gpt_links_close() was called meanwhile. */
static bool closing_within(struct gpt_links *l, double seconds)
{
    struct pollfd p = {l->wake[0], POLLIN, 0};

    return poll(&p, 1, (int)(seconds * 1e3)) > 0;
}

/* A report of a failure says more than the end of a connection, and explains
 * it: then nothing is lost that was not reported. */
static void report_loss(struct gpt_links *l, int64_t rank, const char *text)
{
    const double end = gpt_now() + reason_seconds;
    struct gpt_err failure;

    do {
        failure = (struct gpt_err){.rank = -1};
        (void)gpt_store_failed(l->store, &failure);
        /* a store that is lost, too, is one more sign, and no reason */
        if (failure.rank >= 0 && !gpt_store_lost(l->store))
            return;
        if (closing_within(l, 0.05))
            return;
    } while (gpt_now() < end && !gpt_store_lost(l->store));
    l->o.lost(l->o.context, rank, text);
}

static void check_link(struct gpt_links *l, int side)
{
    const int64_t rank = neighbour(l, side);
    char text[200];
    char byte = 0;
    ssize_t n = recv(l->fd[side], &byte, 1, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0 && errno == ETIMEDOUT)
        snprintf(text, sizeof(text),
                 "its machine or the network is gone: no answer for %d s",
                 GONE_SECONDS);
    else
        snprintf(text, sizeof(text),
                 "ended without a word: its connection was closed");
    close_link(l, side);
    if (n != 1 || byte != LEAVE)
        report_loss(l, rank, text);
}

static void *watch_links(void *arg)
{
    struct gpt_links *l = arg;

    for (;;) {
        struct pollfd p[3] = {{l->fd[0], POLLIN, 0},
                              {l->fd[1], POLLIN, 0},
                              {l->wake[0], POLLIN, 0}};

        if (poll(p, 3, -1) < 0)
            continue;
        if (p[2].revents)
            return NULL;
        for (int side = 0; side < 2; side++)
            if (p[side].revents)
                check_link(l, side);
    }
}

/* ---- open and close ---- */

int gpt_links_open(struct gpt_links **out, struct gpt_store *store,
                   const struct gpt_links_options *o, struct gpt_err *err)
{
    struct gpt_links *l;
    int status;

    *out = NULL;
    assert(o->size > 1 && o->rank >= 0 && o->rank < o->size);
    GPT_TRY(gpt_new(&l, 1, sizeof(*l), "links between ranks", err));
    *l = (struct gpt_links){
        .o = *o, .store = store, .fd = {-1, -1}, .wake = {-1, -1}};
    GPT_TRY_GOTO(status, meet_neighbours(l, err), fail);
    for (int side = 0; side < 2; side++)
        gpt_net_set_options(l->fd[side], GONE_SECONDS);
    if (pipe2(l->wake, O_CLOEXEC) != 0) {
        status = gpt_fail_errno(err, GPT_EFAIL, "cannot make a pipe");
        goto fail;
    }
    GPT_TRY_GOTO(status,
                 gpt_thread_start(&l->thread, "links", watch_links, l, err),
                 fail);
    l->started = true;
    *out = l;
    return GPT_OK;
fail:
    gpt_links_close(l);
    return status;
}

void gpt_links_close(struct gpt_links *l)
{
    const char leave = LEAVE;

    if (!l)
        return;
    if (l->started) {
        while (write(l->wake[1], &leave, 1) < 0 && errno == EINTR)
            ;
        gpt_thread_join(l->thread);
    }
    for (int i = 0; i < 2; i++) {
        if (l->started && l->fd[i] >= 0)
            (void)!send(l->fd[i], &leave, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (l->fd[i] >= 0)
            close(l->fd[i]);
        if (l->wake[i] >= 0)
            close(l->wake[i]);
    }
    gpt_free(l);
}
