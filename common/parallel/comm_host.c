/* Collectives through Gloo, made of messages between all pairs of members.
 *
 * A sum: member m is responsible for the m-th slice of the elements. Every
 * member sends each other member that one's slice, adds up the `size` versions
 * of its own slice, and sends the sum to all (an all-reduce; a reduce-scatter
 * ends before that). A member sends 2 (n - 1)/n of the elements, as in a ring,
 * in two steps instead of 2 (n - 1), which are what a small sum costs. Short
 * vectors take one step: every member gets all versions whole (at_once).
 *
 * The versions of a slice are added in the order of ranks, whichever message
 * came first, and only its owner adds them. So all members hold the same bits
 * and the replicas of a model stay equal without being compared.
 *
 * Start at exchange(), then reduce_slices(). */
#include "parallel/comm_internal.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/num.h"
#include "parallel/comm_sum.h"
#include "parallel/gloo.h"

#include <assert.h>
#include <string.h>

struct block {
    uint8_t *p;
    int64_t bytes;
};

struct gpt_comm_host {
    struct gpt_gloo *gloo;
    struct gpt_move *moves;
    size_t n_moves, moves_cap;
    struct block in, out, parts; /* of device memory; of sums */
};

/* ---- exchanging ---- */

/* Moves are collected first and posted together by exchange(). */
static bool add_move(struct gpt_comm *c, bool send, int64_t peer, void *buf,
                     size_t bytes)
{
    struct gpt_comm_host *h = c->host;

    if (bytes == 0)
        return true;
    if (gpt_grow(&h->moves, &h->moves_cap, h->n_moves + 1, sizeof(*h->moves),
                 "transfers", NULL) != GPT_OK) {
        gpt_comm_fail(c, true, "out of memory for transfers of group '%s'",
                      c->name);
        return false;
    }
    h->moves[h->n_moves++] = (struct gpt_move){
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

/* A connection is lost, and no rank has reported why: names the peer. */
static void report_lost_peer(struct gpt_comm *c, const char *what,
                             const char *why)
{
    const struct gpt_comm_host *h = c->host;
    size_t i = 0;

    while (i < h->n_moves && !h->moves[i].lost)
        i++;
    gpt_comm_fail(c, true, "%s %lld of group '%s': lost rank %lld: %s", what,
                  (long long)c->calls, c->name,
                  i < h->n_moves ? (long long)c->ranks[h->moves[i].peer] : -1LL,
                  why);
}

/* Makes the moves that were added. When a connection fails, the peer has mostly
 * failed itself and says why in the store a moment later: that reason is worth
 * the wait, as "connection reset" explains nothing. */
static bool exchange(struct gpt_comm *c, enum gpt_collective_kind kind)
{
    const char *what = gpt_collective_name(kind);
    struct gpt_comm_host *h = c->host;
    struct gpt_err err = {0};
    const double begun = gpt_now();

    if (gpt_comm_failed(c) || h->n_moves == 0)
        return !gpt_comm_failed(c);
    gpt_comm_watch(c, what, c->calls);
    int status = gpt_gloo_exchange(h->gloo, h->moves,
                                   (int64_t)h->n_moves, &err);
    gpt_comm_watch(c, NULL, 0);
    c->waited += gpt_now() - begun;
    if (status != GPT_OK && !gpt_comm_failed(c) &&
        !gpt_comm_other_failed(c, what, c->calls, gpt_comm_reason))
        report_lost_peer(c, what, err.text);
    return status == GPT_OK;
}

/* ---- memory ---- */

/* True when every member adds up everything: one exchange instead of two, for
 * more additions and (unless there are two ranks) more bytes. All members get
 * the same answer, from sizes alone. */
static bool at_once(int64_t size, int64_t bytes)
{
    enum { FEW = 1 << 20 };
    const int64_t others = gpt_max_i64(size - 1, 1);

    return bytes <= FEW / (others * others);
}

/* Room for all members' versions of a slice of `bytes`, and pointers to
 * them. */
static int64_t parts_bytes(int64_t size, int64_t bytes)
{
    return size * ((int64_t)sizeof(uint8_t *) + bytes);
}

void gpt_comm_room_add(struct gpt_comm_room *room, int64_t size, bool staged,
                       const struct gpt_collective *call)
{
    const int64_t type = (int64_t)gpt_dtype_bytes(call->type);
    const int64_t bytes = call->n * type;
    struct gpt_comm_room r = {0};

    switch (call->kind) {
    case GPT_ALL_REDUCE:
        r.in = bytes;
        r.parts = parts_bytes(size, at_once(size, bytes)
                                        ? bytes
                                        : gpt_ceil_div(call->n, size) * type);
        break;
    case GPT_REDUCE_SCATTER:
        r.in = bytes * size;
        r.out = bytes;
        r.parts = parts_bytes(size, bytes);
        break;
    case GPT_ALL_GATHER:
        r.in = bytes;
        r.out = bytes * size;
        break;
    case GPT_BROADCAST:
        r.in = bytes;
        break;
    case GPT_EXCHANGE:
        for (int64_t i = 0; i < call->n_list; i++)
            *(call->list[i].send ? &r.in : &r.out) += call->list[i].bytes;
        break;
    case GPT_BARRIER:
        r.parts = size;
    }
    if (staged) {
        room->in = gpt_max_i64(room->in, r.in);
        room->out = gpt_max_i64(room->out, r.out);
    }
    room->parts = gpt_max_i64(room->parts, r.parts);
}

int64_t gpt_comm_room_bytes(const struct gpt_comm_room *room)
{
    return room->in + room->out + room->parts;
}

/* Makes a block at least as long as `bytes`; its contents may be lost. */
static bool widen(struct gpt_comm *c, struct block *b, int64_t bytes)
{
    if (b->p && bytes <= b->bytes)
        return true;
    gpt_free(b->p);
    b->bytes = bytes;
    b->p = gpt_alloc((size_t)bytes, 1);
    if (!b->p)
        gpt_comm_fail(c, true,
                      "out of memory: %lld bytes for a collective of group "
                      "'%s'",
                      (long long)bytes, c->name);
    return b->p != NULL;
}

static bool make_room(struct gpt_comm *c, const struct gpt_collective *call)
{
    struct gpt_comm_host *h = c->host;
    struct gpt_comm_room room = {0};

    gpt_comm_room_add(&room, c->size, !c->be->host_memory, call);
    return widen(c, &h->in, room.in) && widen(c, &h->out, room.out) &&
           widen(c, &h->parts, room.parts);
}

/* Waits for what is on the queue. False when it has failed. */
static bool wait_for_queue(struct gpt_comm *c, struct gpt_queue *q)
{
    struct gpt_err err = {0};

    if (!q || c->be->sync(q, &err) == GPT_OK)
        return true;
    gpt_comm_fail(c, true, "%s", err.text);
    return false;
}

/* Where the host has the `bytes` of p: p itself, or a block beside it. read:
 * the block is filled with what the device has there. */
static uint8_t *host_of(struct gpt_comm *c, struct gpt_queue *q,
                        const struct block *b, const void *p, size_t bytes,
                        bool read)
{
    uint8_t *host;

    if (c->be->host_memory) {
        memcpy(&host, &p, sizeof(host));
        return host;
    }
    if (!read)
        return b->p;
    c->be->copy_out(q, b->p, p, bytes);
    return wait_for_queue(c, q) ? b->p : NULL;
}

/* Puts a result to where the device wants it. The block is used again by the
 * next call, so this one waits until the copy is made. */
static void copy_back(struct gpt_comm *c, struct gpt_queue *q, void *p,
                      const uint8_t *host, size_t bytes)
{
    if (c->be->host_memory)
        return;
    c->be->copy_in(q, p, host, bytes);
    (void)wait_for_queue(c, q);
}

/* ---- slices ---- */

struct slice {
    int64_t begin, count; /* elements */
};

/* Member m's slice of n elements, `part` to each while they last; part 0: all
 * of them for each member. */
static struct slice slice_of(int64_t m, int64_t part, int64_t n)
{
    if (part == 0)
        return (struct slice){0, n};
    int64_t begin = gpt_min_i64(m * part, n);

    return (struct slice){begin, gpt_min_i64(part, n - begin)};
}

/* Writes to `out` the sum over all members of this rank's slice of `in`
 * (n elements). */
static bool reduce_slices(struct gpt_comm *c, const struct gpt_collective *call,
                          uint8_t *out, const uint8_t *in, int64_t part,
                          int64_t n)
{
    const int64_t bytes = (int64_t)gpt_dtype_bytes(call->type);
    const struct slice mine = slice_of(c->index, part, n);
    const size_t room_each = (size_t)(mine.count * bytes);
    gpt_reduce_fn *reduce = gpt_reduce_of(call->type);
    uint8_t *parts = c->host->parts.p;

    if (!reduce) {
        gpt_comm_fail(c, true, "group '%s' cannot sum %s", c->name,
                      gpt_dtype_name(call->type));
        return false;
    }
    /* pointers in front; blocks of memory.h are aligned */
    const uint8_t **from = (const uint8_t **)(void *)parts;
    uint8_t *base = parts + sizeof(uint8_t *) * (size_t)c->size;
    assert((const uint8_t *)base <= parts + c->host->parts.bytes);
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
    if (!exchange(c, call->kind))
        return false;
    /* from[] is in the order of ranks: the order of the sum */
    reduce(out, from, c->size, mine.count, call->op);
    return true;
}

/* ---- collectives ---- */

static void all_reduce(struct gpt_comm *c, struct gpt_queue *q,
                       const struct gpt_collective *call)
{
    const int64_t n = call->n, bytes = (int64_t)gpt_dtype_bytes(call->type);
    const int64_t part =
        at_once(c->size, n * bytes) ? 0 : gpt_ceil_div(n, c->size);
    const struct slice mine = slice_of(c->index, part, n);
    uint8_t *host = host_of(c, q, &c->host->in, call->in, (size_t)(n * bytes),
                            true);

    if (!host || !reduce_slices(c, call, host + mine.begin * bytes, host, part,
                                n))
        return;
    c->host->n_moves = 0;
    for (int64_t m = 0; part > 0 && m < c->size; m++) {
        const struct slice s = slice_of(m, part, n);

        if (m != c->index && (!add_send(c, m, host + mine.begin * bytes,
                                        (size_t)(mine.count * bytes)) ||
                              !add_move(c, false, m, host + s.begin * bytes,
                                        (size_t)(s.count * bytes))))
            return;
    }
    if (part == 0 || exchange(c, call->kind))
        copy_back(c, q, call->out, host, (size_t)(n * bytes));
}

static void reduce_scatter(struct gpt_comm *c, struct gpt_queue *q,
                           const struct gpt_collective *call)
{
    const size_t bytes = (size_t)call->n * gpt_dtype_bytes(call->type);
    uint8_t *from = host_of(c, q, &c->host->in, call->in,
                            bytes * (size_t)c->size, true);
    uint8_t *to = host_of(c, q, &c->host->out, call->out, bytes, false);

    if (from && to &&
        reduce_slices(c, call, to, from, call->n, call->n * c->size))
        copy_back(c, q, call->out, to, bytes);
}

static void all_gather(struct gpt_comm *c, struct gpt_queue *q,
                       const struct gpt_collective *call)
{
    const size_t bytes = (size_t)call->n * gpt_dtype_bytes(call->type);
    const size_t all = bytes * (size_t)c->size;
    uint8_t *from = host_of(c, q, &c->host->in, call->in, bytes, true);
    uint8_t *to = host_of(c, q, &c->host->out, call->out, all, false);

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
    if (exchange(c, call->kind))
        copy_back(c, q, call->out, to, all);
}

static void broadcast(struct gpt_comm *c, struct gpt_queue *q,
                      const struct gpt_collective *call)
{
    const size_t bytes = (size_t)call->n * gpt_dtype_bytes(call->type);
    const bool is_root = c->index == call->root;
    uint8_t *host = host_of(c, q, &c->host->in, call->in, bytes, is_root);

    if (!host)
        return;
    for (int64_t m = 0; m < c->size; m++)
        if (is_root ? m != call->root && !add_send(c, m, host, bytes)
                    : m == call->root && !add_move(c, false, m, host, bytes))
            return;
    if (exchange(c, call->kind) && !is_root)
        copy_back(c, q, call->out, host, bytes);
}

static void barrier(struct gpt_comm *c, struct gpt_queue *q,
                    const struct gpt_collective *call)
{
    uint8_t *bytes = c->host->parts.p;

    (void)q;
    for (int64_t m = 0; m < c->size; m++)
        if (m != c->index && (!add_send(c, m, &bytes[c->index], 1) ||
                              !add_move(c, false, m, &bytes[m], 1)))
            return;
    (void)exchange(c, call->kind);
}

/* With device memory, all that is sent is in one block and all that is received
 * in another, in the order of the list. */
static void exchange_list(struct gpt_comm *c, struct gpt_queue *q,
                          const struct gpt_collective *call)
{
    size_t at[2] = {0, 0};
    uint8_t *const host[2] = {c->host->out.p, c->host->in.p};

    for (int64_t i = 0; i < call->n_list; i++) {
        const struct gpt_transfer *t = &call->list[i];
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
    (void)wait_for_queue(c, q);
    if (!exchange(c, call->kind) || c->be->host_memory)
        return;
    at[0] = 0;
    for (int64_t i = 0; i < call->n_list; i++)
        if (!call->list[i].send) {
            const size_t bytes = (size_t)call->list[i].bytes;

            copy_back(c, q, call->list[i].buf, host[0] + at[0], bytes);
            at[0] += bytes;
        }
}

/* ---- the carrier ---- */

static void make_call(struct gpt_comm *c, struct gpt_queue *q,
                      const struct gpt_collective *call)
{
    static void (*const kinds[])(struct gpt_comm *, struct gpt_queue *,
                                 const struct gpt_collective *) = {
        [GPT_ALL_REDUCE] = all_reduce, [GPT_REDUCE_SCATTER] = reduce_scatter,
        [GPT_ALL_GATHER] = all_gather, [GPT_BROADCAST] = broadcast,
        [GPT_EXCHANGE] = exchange_list, [GPT_BARRIER] = barrier,
    };

    assert((size_t)call->kind < GPT_COUNT(kinds));
    c->host->n_moves = 0;
    if (make_room(c, call) && wait_for_queue(c, q))
        kinds[call->kind](c, q, call);
}

/* Runs in the watching thread while the exchange is under way; the list itself
 * does not change then. */
static bool waits_for(struct gpt_comm *c, int64_t member)
{
    const struct gpt_comm_host *h = c->host;

    for (size_t i = 0; i < h->n_moves; i++)
        if (h->moves[i].peer == member &&
            !__atomic_load_n(&h->moves[i].done, __ATOMIC_RELAXED))
            return true;
    return false;
}

static void end_exchange(struct gpt_comm *c)
{
    gpt_gloo_abort(c->host->gloo);
}

static int open_host(struct gpt_comm *c, double timeout, struct gpt_err *err)
{
    const struct gpt_gloo_options o = {
        .name = c->name, .rank = c->index, .size = c->size, .timeout = timeout};

    GPT_TRY(gpt_new(&c->host, 1, sizeof(*c->host), "a group of ranks", err));
    if (gpt_gloo_open(&c->host->gloo, c->store, &o, err) == GPT_OK)
        return GPT_OK;
    gpt_comm_name_idle(c, err);
    return gpt_context(err, "cannot connect group '%s'", c->name);
}

static void close_host(struct gpt_comm *c)
{
    struct gpt_comm_host *h = c->host;

    if (!h)
        return;
    gpt_gloo_close(h->gloo);
    gpt_free(h->moves);
    gpt_free(h->in.p);
    gpt_free(h->out.p);
    gpt_free(h->parts.p);
    gpt_free(h);
}

static int64_t held(const struct gpt_comm *c)
{
    const struct gpt_comm_host *h = c->host;

    return h->in.bytes + h->out.bytes + h->parts.bytes;
}

const struct gpt_comm_carrier gpt_comm_through_host = {
    .open = open_host,
    .close = close_host,
    .run = make_call,
    .abort = end_exchange,
    .waits_for = waits_for,
    .held = held,
};
