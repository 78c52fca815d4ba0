/* Collectives made of one exchange of messages: everybody sends everybody what
 * it needs, and sums what it receives in the order of ranks. That moves as few
 * bytes as a ring does, in one step instead of many. Start at exchange().
 *
 * A thread beside it watches a call that takes long: it tells the store that
 * this rank has arrived, looks for failures of others, and gives up after the
 * timeout, naming who has not arrived. */
#include "parallel/comm_sum.h"

#include "base/memory.h"
#include "base/num.h"
#include "base/progress.h"
#include "parallel/transport.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOOK_MS = 250 };
static const double late = 1;   /* a call that takes longer is reported */
static const double reason = 1.5; /* how long a lost peer's reason may take */

struct block {
    uint8_t *p;
    size_t cap;
};

struct gpt_comm {
    struct gpt_store *store;
    struct gpt_backend *be;
    struct gpt_transport *transport; /* NULL in a group of one */
    char name[64];
    int64_t *ranks; /* world ranks */
    int64_t size, index;
    struct gpt_move *moves;
    size_t n_moves, moves_cap;
    struct block in, out, parts; /* of device memory; of sums */
    int64_t calls, bytes;
    double waited;

    pthread_t watcher;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;
    bool closing, watching, waiting;
    const char *what; /* the call that waits */
    double since, timeout;
    bool posted, failed;
    struct gpt_err why;
};

/* ---- failures ---- */

/* The first one stays; it is posted, so that all ranks learn of it. */
static void fail(struct gpt_comm *c, bool post, const char *fmt, ...)
    GPT_PRINTF(3, 4);
static void fail(struct gpt_comm *c, bool post, const char *fmt, ...)
{
    struct gpt_err ignored = {0};
    char text[700];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    pthread_mutex_lock(&c->lock);
    bool first = !c->failed;
    c->failed = true;
    if (first)
        gpt_fail(&c->why, GPT_EFAIL, "%s", text);
    pthread_mutex_unlock(&c->lock);
    if (first && post && c->store)
        (void)gpt_store_post_failure(c->store, c->ranks[c->index], text,
                                     &ignored);
}

static bool has_failed(struct gpt_comm *c)
{
    pthread_mutex_lock(&c->lock);
    bool failed = c->failed;
    pthread_mutex_unlock(&c->lock);
    return failed;
}

int gpt_comm_check(struct gpt_comm *c, struct gpt_err *err)
{
    int status = GPT_OK;

    pthread_mutex_lock(&c->lock);
    if (c->failed) {
        status = c->why.status;
        if (err)
            *err = c->why;
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* Did another rank say why? Waits at most `seconds` for it to do so. */
static bool other_failed(struct gpt_comm *c, const char *what, double seconds)
{
    const double end = gpt_now() + seconds;
    const struct timespec tick = {0, 50 * 1000 * 1000};
    char text[512];
    int64_t rank;

    for (;;) {
        if (gpt_store_failed(c->store, &rank, text, sizeof(text))) {
            fail(c, false, "%s %lld of group '%s': rank %lld: %s", what,
                 (long long)c->calls, c->name, (long long)rank, text);
            return true;
        }
        if (gpt_now() >= end)
            return false;
        nanosleep(&tick, NULL);
    }
}

/* ---- the watching thread ---- */

static void arrival_key(const struct gpt_comm *c, int64_t member, char *key,
                        size_t cap)
{
    snprintf(key, cap, "comm/%s/%lld", c->name, (long long)c->ranks[member]);
}

/* In how many calls, of any group, a rank has waited for long, and still does:
 * who waits is not who is waited for. */
static void count_wait(struct gpt_comm *c, int64_t change)
{
    struct gpt_err ignored = {0};
    int64_t now;
    char key[64];

    snprintf(key, sizeof(key), "waits/%lld", (long long)c->ranks[c->index]);
    (void)!gpt_store_add(c->store, key, change, &now, &ignored);
}

static bool waits(struct gpt_comm *c, int64_t member)
{
    struct gpt_err ignored = {0};
    char key[64];
    void *value;
    size_t len;

    snprintf(key, sizeof(key), "waits/%lld", (long long)c->ranks[member]);
    if (gpt_store_get(c->store, key, 0, &value, &len, &ignored) != GPT_OK)
        return false;
    bool waiting = strtoll(value, NULL, 10) > 0;
    gpt_free(value);
    return waiting;
}

static void post_arrival(struct gpt_comm *c)
{
    struct gpt_err ignored = {0};
    char key[128], text[32];

    arrival_key(c, c->index, key, sizeof(key));
    snprintf(text, sizeof(text), "%lld", (long long)c->calls);
    (void)!gpt_store_set(c->store, key, text, strlen(text), &ignored);
    count_wait(c, 1);
}

static bool has_arrived(struct gpt_comm *c, int64_t member)
{
    struct gpt_err ignored = {0};
    char key[128];
    void *value;
    size_t len;

    arrival_key(c, member, key, sizeof(key));
    if (gpt_store_get(c->store, key, 0, &value, &len, &ignored) != GPT_OK)
        return false;
    bool arrived = strtoll(value, NULL, 10) >= c->calls;
    gpt_free(value);
    return arrived;
}

static bool is_open(const struct gpt_comm *c, int64_t member)
{
    for (size_t i = 0; i < c->n_moves; i++)
        if (c->moves[i].peer == member &&
            !__atomic_load_n(&c->moves[i].done, __ATOMIC_RELAXED))
            return true;
    return false;
}

/* World ranks that do not wait in this call; with `open`, only those that it
 * waits for; with `idle`, only those that wait in no other call either. */
static size_t name_absent(struct gpt_comm *c, bool open, bool idle, char *names,
                          size_t cap)
{
    size_t at = 0;

    names[0] = '\0';
    for (int64_t m = 0; m < c->size && at + 32 < cap; m++)
        if (m != c->index && (!open || is_open(c, m)) && !has_arrived(c, m) &&
            !(idle && waits(c, m)))
            at += (size_t)snprintf(names + at, cap - at, "%s%lld",
                                   at ? ", " : "", (long long)c->ranks[m]);
    return at;
}

/* When all that this call waits for wait themselves, they will say for whom:
 * false, for a while (`over`: of the timeout). */
static bool give_up(struct gpt_comm *c, const char *what, double timeout,
                    double over)
{
    char names[400];

    if (name_absent(c, true, true, names, sizeof(names)) == 0 &&
        name_absent(c, false, true, names, sizeof(names)) == 0) {
        if (over < reason)
            return false;
        if (name_absent(c, false, false, names, sizeof(names)) == 0)
            snprintf(names, sizeof(names), "unknown");
    }
    fail(c, true, "%s %lld of group '%s': not arrived after %g s: rank%s %s",
         what, (long long)c->calls, c->name, timeout,
         strchr(names, ',') ? "s" : "", names);
    return true;
}

/* One look at a call that has begun at `since`. */
static void look(struct gpt_comm *c, const char *what, double since,
                 double timeout)
{
    const double over = gpt_now() - since - timeout;

    if (other_failed(c, what, 0) ||
        (over >= 0 && give_up(c, what, timeout, over)))
        gpt_transport_abort(c->transport);
}

static void *watch(void *arg)
{
    struct gpt_comm *c = arg;

    pthread_mutex_lock(&c->lock);
    while (!c->closing) {
        struct timespec at;
        clock_gettime(CLOCK_MONOTONIC, &at);
        at.tv_nsec += LOOK_MS * 1000000L;
        at.tv_sec += at.tv_nsec / 1000000000L;
        at.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&c->wake, &c->lock, &at);
        const double since = c->since, timeout = c->timeout;
        const char *what = c->what;
        if (!c->waiting || c->failed ||
            gpt_now() - since < (late < timeout ? late : timeout))
            continue;
        bool post = !c->posted;
        c->posted = true;
        c->watching = true; /* the call does not return meanwhile */
        pthread_mutex_unlock(&c->lock);
        if (post)
            post_arrival(c);
        look(c, what, since, timeout);
        pthread_mutex_lock(&c->lock);
        c->watching = false;
        pthread_cond_broadcast(&c->wake);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void set_waiting(struct gpt_comm *c, const char *what)
{
    pthread_mutex_lock(&c->lock);
    while (!what && c->watching)
        pthread_cond_wait(&c->wake, &c->lock);
    const bool over = c->posted && !c->failed;
    c->waiting = what != NULL;
    c->what = what;
    c->since = gpt_now();
    c->posted = false;
    pthread_mutex_unlock(&c->lock);
    if (over)
        count_wait(c, -1);
}

/* ---- exchanging ---- */

static bool add_move(struct gpt_comm *c, bool send, int64_t peer, void *buf,
                     size_t bytes)
{
    if (bytes == 0)
        return true;
    if (gpt_grow(&c->moves, &c->moves_cap, c->n_moves + 1, sizeof(*c->moves),
                 "transfers", NULL) != GPT_OK) {
        fail(c, true, "out of memory for transfers of group '%s'", c->name);
        return false;
    }
    c->moves[c->n_moves++] = (struct gpt_move){
        .send = send, .peer = peer, .buf = buf, .bytes = bytes};
    if (send)
        c->bytes += (int64_t)bytes;
    return true;
}

/* Sources are only read; Gloo has one kind of buffer for both ways. */
static bool add_send(struct gpt_comm *c, int64_t peer, const void *buf,
                     size_t bytes)
{
    void *p;

    memcpy(&p, &buf, sizeof(p));
    return add_move(c, true, peer, p, bytes);
}

/* Begins a call: false when it cannot be. */
static bool begin(struct gpt_comm *c, struct gpt_queue *q)
{
    struct gpt_err err = {0};

    c->calls++;
    c->n_moves = 0;
    if (has_failed(c))
        return false;
    if (q && c->be->sync(q, &err) != GPT_OK) {
        fail(c, true, "%s", err.text);
        return false;
    }
    return true;
}

/* A peer is gone, and nobody says why. */
static void lose(struct gpt_comm *c, const char *what, const char *why)
{
    size_t i = 0;

    while (i < c->n_moves && !c->moves[i].lost)
        i++;
    fail(c, true, "%s %lld of group '%s': lost rank %lld: %s", what,
         (long long)c->calls, c->name,
         i < c->n_moves ? (long long)c->ranks[c->moves[i].peer] : -1LL, why);
}

/* The moves that were added. */
static bool exchange(struct gpt_comm *c, const char *what)
{
    struct gpt_err err = {0};
    const double begun = gpt_now();

    if (has_failed(c) || c->n_moves == 0)
        return !has_failed(c);
    set_waiting(c, what);
    int status = gpt_transport_exchange(c->transport, c->moves,
                                        (int64_t)c->n_moves, &err);
    set_waiting(c, NULL);
    c->waited += gpt_now() - begun;
    if (status != GPT_OK && !has_failed(c) && !other_failed(c, what, reason))
        lose(c, what, err.text);
    return status == GPT_OK;
}

/* ---- memory ---- */

static uint8_t *room(struct gpt_comm *c, struct block *b, size_t bytes)
{
    if (gpt_grow(&b->p, &b->cap, bytes + 1, 1, "a collective", NULL) == GPT_OK)
        return b->p;
    fail(c, true, "out of memory: %zu bytes for a collective of group '%s'",
         bytes, c->name);
    return NULL;
}

/* What the host may read of `bytes` at p: p itself, or a copy. */
static uint8_t *host_of(struct gpt_comm *c, struct gpt_queue *q,
                        struct block *b, const void *p, size_t bytes, bool read)
{
    struct gpt_err err = {0};
    uint8_t *host;

    if (c->be->host_memory) {
        memcpy(&host, &p, sizeof(host));
        return host;
    }
    host = room(c, b, bytes);
    if (!host || !read)
        return host;
    c->be->copy_out(q, host, p, bytes);
    if (c->be->sync(q, &err) == GPT_OK)
        return host;
    fail(c, true, "%s", err.text);
    return NULL;
}

/* The host's copy is used again by the next call, so this one waits. */
static void back(struct gpt_comm *c, struct gpt_queue *q, void *p,
                 const uint8_t *host, size_t bytes)
{
    struct gpt_err err = {0};

    if (c->be->host_memory)
        return;
    c->be->copy_in(q, p, host, bytes);
    if (c->be->sync(q, &err) != GPT_OK)
        fail(c, true, "%s", err.text);
}

/* ---- slices ---- */

struct slice {
    int64_t begin, count; /* elements */
};

/* Member m's part of n elements, `part` to each while they last; part 0:
 * everybody has all. */
static struct slice slice_of(int64_t m, int64_t part, int64_t n)
{
    if (part == 0)
        return (struct slice){0, n};
    int64_t begin = gpt_min_i64(m * part, n);

    return (struct slice){begin, gpt_min_i64(part, n - begin)};
}

/* out: the sum of this rank's slice of everybody's `in` (n). */
static bool reduce_slices(struct gpt_comm *c, const char *what, uint8_t *out,
                          const uint8_t *in, int64_t part, int64_t n,
                          enum gpt_dtype type, enum gpt_reduce op)
{
    const int64_t bytes = (int64_t)gpt_dtype_bytes(type);
    const struct slice mine = slice_of(c->index, part, n);
    const size_t room_each = (size_t)(mine.count * bytes);
    gpt_reduce_fn *reduce = gpt_reduce_of(type);
    uint8_t *parts =
        room(c, &c->parts, (sizeof(uint8_t *) + room_each) * (size_t)c->size);

    if (!reduce)
        fail(c, true, "group '%s' cannot sum %s", c->name,
             gpt_dtype_name(type));
    if (!reduce || !parts)
        return false;
    /* pointers in front; blocks of memory.h are aligned */
    const uint8_t **from = (const uint8_t **)(void *)parts;
    uint8_t *base = parts + sizeof(uint8_t *) * (size_t)c->size;
    for (int64_t m = 0; m < c->size; m++) {
        const struct slice s = slice_of(m, part, n);
        uint8_t *to = base + (size_t)m * room_each;
        from[m] = m == c->index ? in + mine.begin * bytes : to;
        if (m == c->index)
            continue;
        if (!add_send(c, m, in + s.begin * bytes, (size_t)(s.count * bytes)) ||
            !add_move(c, false, m, to, room_each))
            return false;
    }
    if (!exchange(c, what))
        return false;
    reduce(out, from, c->size, mine.count, op);
    return true;
}

/* ---- collectives ---- */

/* Does everybody add up everything? One exchange instead of two, for more sums
 * and (unless there are two ranks) more bytes. */
static bool at_once(const struct gpt_comm *c, int64_t bytes)
{
    enum { FEW = 1 << 20 };
    const int64_t others = gpt_max_i64(c->size - 1, 1);

    return bytes <= FEW / (others * others);
}

void gpt_comm_all_reduce(struct gpt_comm *c, struct gpt_queue *q, void *buf,
                         int64_t n, enum gpt_dtype type, enum gpt_reduce op)
{
    const int64_t bytes = (int64_t)gpt_dtype_bytes(type);
    const int64_t part =
        at_once(c, n * bytes) ? 0 : gpt_ceil_div(n, c->size);
    const struct slice mine = slice_of(c->index, part, n);
    uint8_t *host;

    if (!begin(c, q) || c->size == 1 ||
        !(host = host_of(c, q, &c->in, buf, (size_t)(n * bytes), true)) ||
        !reduce_slices(c, "all-reduce", host + mine.begin * bytes, host, part,
                       n, type, op))
        return;
    c->n_moves = 0;
    for (int64_t m = 0; part > 0 && m < c->size; m++) {
        const struct slice s = slice_of(m, part, n);
        if (m != c->index && (!add_send(c, m, host + mine.begin * bytes,
                                        (size_t)(mine.count * bytes)) ||
                              !add_move(c, false, m, host + s.begin * bytes,
                                        (size_t)(s.count * bytes))))
            return;
    }
    if (part == 0 || exchange(c, "all-reduce"))
        back(c, q, buf, host, (size_t)(n * bytes));
}

void gpt_comm_reduce_scatter(struct gpt_comm *c, struct gpt_queue *q, void *out,
                             const void *in, int64_t n, enum gpt_dtype type)
{
    const size_t bytes = (size_t)n * gpt_dtype_bytes(type);
    uint8_t *from, *to;

    if (!begin(c, q))
        return;
    if (c->size == 1) {
        if (out != in)
            c->be->copy(q, out, in, bytes);
        return;
    }
    from = host_of(c, q, &c->in, in, bytes * (size_t)c->size, true);
    to = host_of(c, q, &c->out, out, bytes, false);
    if (from && to &&
        reduce_slices(c, "reduce-scatter", to, from, n, n * c->size, type,
                      GPT_SUM))
        back(c, q, out, to, bytes);
}

void gpt_comm_all_gather(struct gpt_comm *c, struct gpt_queue *q, void *out,
                         const void *in, int64_t n, enum gpt_dtype type)
{
    const size_t bytes = (size_t)n * gpt_dtype_bytes(type);
    uint8_t *from, *to;

    if (!begin(c, q))
        return;
    if (c->size == 1) {
        if (out != in)
            c->be->copy(q, out, in, bytes);
        return;
    }
    from = host_of(c, q, &c->in, in, bytes, true);
    to = host_of(c, q, &c->out, out, bytes * (size_t)c->size, false);
    if (!from || !to)
        return;
    for (int64_t m = 0; m < c->size; m++)
        if (m != c->index &&
            (!add_send(c, m, from, bytes) ||
             !add_move(c, false, m, to + (size_t)m * bytes, bytes)))
            return;
    uint8_t *own = to + (size_t)c->index * bytes;
    if (own != from)
        memmove(own, from, bytes);
    if (exchange(c, "all-gather"))
        back(c, q, out, to, bytes * (size_t)c->size);
}

void gpt_comm_broadcast(struct gpt_comm *c, struct gpt_queue *q, void *buf,
                        int64_t n, enum gpt_dtype type, int64_t root)
{
    const size_t bytes = (size_t)n * gpt_dtype_bytes(type);
    const bool is_root = c->index == root;
    uint8_t *host;

    if (!begin(c, q) || c->size == 1 ||
        !(host = host_of(c, q, &c->in, buf, bytes, is_root)))
        return;
    for (int64_t m = 0; m < c->size; m++)
        if (is_root ? m != root && !add_send(c, m, host, bytes)
                    : m == root && !add_move(c, false, m, host, bytes))
            return;
    if (exchange(c, "broadcast") && !is_root)
        back(c, q, buf, host, bytes);
}

void gpt_comm_barrier(struct gpt_comm *c, struct gpt_queue *q)
{
    uint8_t *bytes;

    if (!begin(c, q) || c->size == 1 ||
        !(bytes = room(c, &c->parts, (size_t)c->size)))
        return;
    for (int64_t m = 0; m < c->size; m++)
        if (m != c->index && (!add_send(c, m, &bytes[c->index], 1) ||
                              !add_move(c, false, m, &bytes[m], 1)))
            return;
    (void)exchange(c, "barrier");
}

/* Device memory: all that is sent stands in one copy, all received in another,
 * in the order of the list. */
void gpt_comm_exchange(struct gpt_comm *c, struct gpt_queue *q,
                       const struct gpt_transfer *list, int64_t n)
{
    size_t total[2] = {0, 0}, at[2] = {0, 0};
    uint8_t *host[2] = {NULL, NULL};

    if (!begin(c, q))
        return;
    for (int64_t i = 0; i < n; i++)
        total[list[i].send] += (size_t)list[i].bytes;
    for (int k = 0; k < 2 && !c->be->host_memory; k++)
        if (!(host[k] = room(c, k ? &c->in : &c->out, total[k])))
            return;
    for (int64_t i = 0; i < n; i++) {
        const struct gpt_transfer *t = &list[i];
        uint8_t *p = t->buf;
        if (!c->be->host_memory) {
            p = host[t->send] + at[t->send];
            at[t->send] += (size_t)t->bytes;
            if (t->send)
                c->be->copy_out(q, p, t->buf, (size_t)t->bytes);
        }
        if (!add_move(c, t->send, t->peer, p, (size_t)t->bytes))
            return;
    }
    struct gpt_err err = {0};
    if (c->be->sync(q, &err) != GPT_OK)
        fail(c, true, "%s", err.text);
    if (!exchange(c, "exchange") || c->be->host_memory)
        return;
    at[0] = 0;
    for (int64_t i = 0; i < n; i++)
        if (!list[i].send) {
            back(c, q, list[i].buf, host[0] + at[0], (size_t)list[i].bytes);
            at[0] += (size_t)list[i].bytes;
        }
}

/* ---- open and close ---- */

/* The thread leaves signals to the program. */
static bool start_watcher(struct gpt_comm *c)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool started = pthread_create(&c->watcher, NULL, watch, c) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return started;
}

static int connect_group(struct gpt_comm *c, double timeout,
                         struct gpt_err *err)
{
    GPT_TRY(gpt_transport_open(&c->transport, c->store, c->name, c->index,
                               c->size, timeout, err));
    if (start_watcher(c))
        return GPT_OK;
    gpt_transport_close(c->transport);
    c->transport = NULL;
    return gpt_fail(err, GPT_EFAIL, "cannot start a thread");
}

int gpt_comm_open(struct gpt_comm **out, struct gpt_store *store,
                  struct gpt_backend *be, const char *name,
                  const int64_t *ranks, int64_t n, int64_t index,
                  double timeout, struct gpt_err *err)
{
    pthread_condattr_t monotonic;
    struct gpt_comm *c;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&c, 1, sizeof(*c), "a group of ranks", err));
    *c = (struct gpt_comm){.store = store,
                           .be = be,
                           .size = n,
                           .index = index,
                           .timeout = timeout};
    snprintf(c->name, sizeof(c->name), "%s", name);
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    status = gpt_new(&c->ranks, (size_t)n, sizeof(*c->ranks),
                     "a group of ranks", err);
    if (status == GPT_OK) {
        memcpy(c->ranks, ranks, (size_t)n * sizeof(*ranks));
        if (n > 1)
            status = connect_group(c, timeout, err);
    }
    if (status == GPT_OK)
        *out = c;
    else
        gpt_comm_close(c);
    return status;
}

void gpt_comm_close(struct gpt_comm *c)
{
    if (!c)
        return;
    if (c->transport) {
        pthread_mutex_lock(&c->lock);
        c->closing = true;
        pthread_cond_broadcast(&c->wake);
        pthread_mutex_unlock(&c->lock);
        pthread_join(c->watcher, NULL);
    }
    gpt_transport_close(c->transport);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->lock);
    gpt_free(c->moves);
    gpt_free(c->in.p);
    gpt_free(c->out.p);
    gpt_free(c->parts.p);
    gpt_free(c->ranks);
    gpt_free(c);
}

int64_t gpt_comm_size(const struct gpt_comm *c)
{
    return c->size;
}

int64_t gpt_comm_rank(const struct gpt_comm *c)
{
    return c->index;
}

bool gpt_comm_waits(const struct gpt_comm *c)
{
    (void)c;
    return true;
}

void gpt_comm_set_timeout(struct gpt_comm *c, double timeout)
{
    pthread_mutex_lock(&c->lock);
    c->timeout = timeout;
    pthread_mutex_unlock(&c->lock);
}

void gpt_comm_counters(const struct gpt_comm *c, int64_t *bytes, double *waited)
{
    *bytes = c->bytes;
    *waited = c->waited;
}
