/* TCP connections; see net.h. Start at gpt_net_connect(). */
#include "parallel/net.h"

#include "base/memory.h"
#include "base/thread.h"
#include "parallel/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 50 };

/* ---- names ---- */

/* A resolver that waits for a server cannot be interrupted, so it has a thread
 * of its own, which is left behind when the wait is given up. The last of
 * the two frees the struct. */
struct lookup {
    pthread_mutex_t lock;
    char host[256], port[8];
    struct addrinfo *list;
    int code;
    bool done, abandoned;
};

static void free_lookup(struct lookup *l)
{
    if (l->list)
        freeaddrinfo(l->list);
    pthread_mutex_destroy(&l->lock);
    gpt_free(l);
}

static int resolve(struct lookup *l, int flags)
{
    const struct addrinfo hints = {.ai_flags = flags,
                                   .ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM};

    return getaddrinfo(l->host, l->port, &hints, &l->list);
}

static void *look_up(void *arg)
{
    struct lookup *l = arg;
    int code = resolve(l, 0);

    pthread_mutex_lock(&l->lock);
    l->code = code;
    l->done = true;
    const bool abandoned = l->abandoned;
    pthread_mutex_unlock(&l->lock);
    if (abandoned)
        free_lookup(l);
    return NULL;
}

/* True when the thread has finished. Otherwise it owns the struct from then
 * on. */
static bool wait_for_lookup(struct lookup *l, struct gpt_wait *wait)
{
    const struct timespec tick = {0, 5 * 1000000L};
    bool done, give_up;

    do {
        nanosleep(&tick, NULL);
        gpt_wait_heed_signal(wait);
        pthread_mutex_lock(&l->lock);
        done = l->done;
        give_up = !done && gpt_wait_is_over(wait);
        l->abandoned = give_up;
        pthread_mutex_unlock(&l->lock);
    } while (!done && !give_up);
    return done;
}

/* Numbers need no resolver and no thread. NULL: `why` says the reason. */
static struct lookup *find_addresses(const char *host, int64_t port,
                                     struct gpt_wait *wait, char *why,
                                     size_t cap)
{
    struct lookup *l = gpt_alloc(1, sizeof(*l));
    pthread_t thread;

    if (!l) {
        snprintf(why, cap, "out of memory");
        return NULL;
    }
    pthread_mutex_init(&l->lock, NULL);
    snprintf(l->host, sizeof(l->host), "%s", host);
    snprintf(l->port, sizeof(l->port), "%u", (unsigned)port & 0xFFFF);
    if (resolve(l, AI_NUMERICHOST) == 0)
        return l;
    l->list = NULL;
    if (gpt_thread_start(&thread, "resolve", look_up, l, NULL) != GPT_OK) {
        snprintf(why, cap, "no thread to look the name up");
        free_lookup(l);
        return NULL;
    }
    pthread_detach(thread);
    if (!wait_for_lookup(l, wait)) {
        snprintf(why, cap, "the resolver does not answer");
        return NULL;
    }
    if (l->code == 0)
        return l;
    snprintf(why, cap, "%s", gai_strerror(l->code));
    l->list = NULL;
    free_lookup(l);
    return NULL;
}

/* ---- connecting ---- */

/* Waits for a connection that is under way. Returns its error, or 0. */
static int finish_connecting(int fd, struct gpt_wait *wait)
{
    struct pollfd p = {fd, POLLOUT, 0};
    socklen_t len = sizeof(int);
    int code = 0;

    while (poll(&p, 1, TICK_MS) <= 0) {
        gpt_wait_heed_signal(wait);
        if (gpt_wait_is_over(wait))
            return ETIMEDOUT;
    }
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &len) == 0 ? code
                                                                  : errno;
}

/* The kernel may give a socket the very port that it connects to, where that is
 * one of those that it gives out. If no socket listens there TCP then connects
 * this one to itself, and would wait for an answer in vain. */
static bool is_own_end(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t n = sizeof(here), m = sizeof(there);

    return getsockname(fd, (struct sockaddr *)&here, &n) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &m) == 0 && n == m &&
           memcmp(&here, &there, n) == 0;
}

static int connect_to(const struct addrinfo *a, struct gpt_wait *wait,
                      char *why, size_t cap)
{
    int code = 0;
    int fd =
        socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || connect(fd, a->ai_addr, a->ai_addrlen) != 0)
        code = errno;
    if (fd >= 0 && (code == EINPROGRESS || code == EINTR))
        code = finish_connecting(fd, wait);
    if (code == 0 && is_own_end(fd))
        code = ECONNREFUSED;
    if (code == 0 && fcntl(fd, F_SETFL, 0) == 0)
        return fd;
    snprintf(why, cap, "%s", code == ETIMEDOUT ? "no answer" : strerror(code));
    if (fd >= 0)
        close(fd);
    return -1;
}

int gpt_net_connect(const char *host, int64_t port, double seconds, char *why,
                    size_t cap)
{
    struct gpt_wait wait = gpt_wait_begin(seconds);
    struct lookup *l = find_addresses(host, port, &wait, why, cap);
    int fd = -1;

    if (!l)
        return -1;
    for (struct addrinfo *a = l->list; a && fd < 0; a = a->ai_next)
        fd = connect_to(a, &wait, why, cap);
    free_lookup(l);
    return fd;
}

/* ---- options and addresses ---- */

/* Two mechanisms for one purpose: keep-alive watches a connection on which
 * nothing is under way, and the user timeout one with unanswered bytes. */
void gpt_net_set_options(int fd, int seconds)
{
    const int on = 1, idle = seconds / 2, interval = 1;
    const int count = seconds - idle - 1;
    const unsigned limit = (unsigned)seconds * 1000;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof(limit));
}

int64_t gpt_net_port(int fd)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof(a);
    struct sockaddr_in in;
    struct sockaddr_in6 in6;

    if (getsockname(fd, (struct sockaddr *)&a, &len) != 0)
        return 0;
    memcpy(&in, &a, sizeof(in));
    memcpy(&in6, &a, sizeof(in6));
    return ntohs(a.ss_family == AF_INET ? in.sin_port : in6.sin6_port);
}

bool gpt_net_address(int fd, char *text, size_t cap)
{
    struct sockaddr_storage a;
    struct sockaddr *p = (struct sockaddr *)&a;
    socklen_t len = sizeof(a);

    return getsockname(fd, p, &len) == 0 &&
           getnameinfo(p, len, text, (socklen_t)cap, NULL, 0,
                       NI_NUMERICHOST) == 0;
}
