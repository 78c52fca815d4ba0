/* Whether what threads did with shared memory is over before a copy overwrites
 * it. The copy engine and cp.async write whenever they like once a thread has
 * begun the copy: a read of another thread, or the thread's own by the other
 * proxy, has to be ordered before that by a barrier, an mbarrier or a fence.
 * Whether warps happen to take turns in which it comes out right does not
 * matter here: each thread knows up to which step of each other thread all
 * accesses are over (vector clocks: Mattern 1989), and what it releases, others
 * acquire. Start at check_order().
 *
 * A thread's time is the number of instructions of its warp. Kernels that begin
 * no copies are not looked at. */
#include "kernels/emu/ptx/module.h"

#include <algorithm>

namespace emu {
namespace ptx {

/* Lanes of a warp that used a place at one time, the last time that they did. */
struct use {
    const struct instruction *i;
    uint32_t time, lanes;
    unsigned warp;
    enum use_way way;
};

enum { CHUNK = 16 };
static unsigned n_ordered; /* threads; 0: the kernel begins no copies */
static size_t n_bytes;
/* [t * n_ordered + u]: accesses of thread u up to this time are over for t.
 * Of itself a thread knows those before its last barrier or fence. */
static std::vector<uint32_t> clocks;
static std::vector<std::vector<use>> uses; /* by CHUNK bytes */

void begin_order(size_t bytes)
{
    n_ordered = running->copies ? (unsigned)warps.size() * 32 : 0;
    n_bytes = bytes;
    clocks.assign((size_t)n_ordered * n_ordered, 0);
    uses.resize(n_ordered ? bytes / CHUNK + 1 : 0);
    for (std::vector<use> &u : uses)
        u.clear();
}

/* ---- what threads tell each other ---- */

static uint32_t *clock_of(unsigned thread)
{
    return clocks.data() + (size_t)thread * n_ordered;
}

static void join(uint32_t *to, const uint32_t *from)
{
    for (unsigned u = 0; u < n_ordered; u++)
        to[u] = std::max(to[u], from[u]);
}

template <class F> static void each_lane(uint32_t lanes, F f)
{
    for (unsigned l = 0; l < 32; l++)
        if (lanes >> l & 1)
            f(l);
}

void order_fence(const struct warp &w, uint32_t lanes)
{
    if (n_ordered)
        each_lane(lanes, [&](unsigned l) {
            clock_of(w.index * 32 + l)[w.index * 32 + l] = w.time;
        });
}

void order_release(const struct warp &w, uint32_t lanes, struct meeting *m)
{
    order_fence(w, lanes);
    m->coming.resize(n_ordered);
    if (n_ordered)
        each_lane(lanes, [&](unsigned l) {
            join(m->coming.data(), clock_of(w.index * 32 + l));
        });
}

void order_met(struct meeting *m)
{
    m->over.swap(m->coming);
    m->coming.assign(n_ordered, 0);
}

void order_acquire(const struct warp &w, uint32_t lanes,
                   const struct meeting &m)
{
    if (n_ordered && m.over.size() == n_ordered)
        each_lane(lanes, [&](unsigned l) {
            join(clock_of(w.index * 32 + l), m.over.data());
        });
}

void order_lanes(const struct warp &w, uint32_t lanes)
{
    static struct meeting m;

    if (!n_ordered)
        return;
    m.coming.assign(n_ordered, 0);
    order_release(w, lanes, &m);
    order_met(&m);
    order_acquire(w, lanes, m);
}

/* ---- what they do ---- */

/* Takes lanes out of older uses of the same kind: the newest is over last. */
void order_use(unsigned address, unsigned bytes, uint32_t lanes,
               enum use_way way)
{
    struct warp &w = *current;

    if (!n_ordered || address - SHARED_FIRST + bytes > n_bytes)
        return; /* a wrong address: the access itself reports it */
    for (unsigned c = (address - SHARED_FIRST) / CHUNK;
         c * CHUNK < address - SHARED_FIRST + bytes; c++) {
        std::vector<use> &at = uses[c];
        struct use now = {w.now, w.time, lanes, w.index, way};

        for (size_t k = 0; k < at.size();) {
            if (at[k].warp == w.index && at[k].way == way) {
                if (at[k].time == now.time)
                    now.lanes |= at[k].lanes;
                at[k].lanes &= ~now.lanes;
            }
            if (at[k].lanes)
                k++;
            else {
                at[k] = at.back();
                at.pop_back();
            }
        }
        at.push_back(now);
    }
}

/* The first lane whose use is not over for the running thread; 32: none.
 * `own`: what that thread did itself is. */
static unsigned open_lane(const struct use &u, bool own)
{
    unsigned thread = running_thread(), open = 32;

    for (unsigned l = 32; l-- > 0;) {
        if (!(u.lanes >> l & 1))
            continue;
        if ((own && u.warp * 32 + l == thread) ||
            clock_of(thread)[u.warp * 32 + l] >= u.time) {
            if (u.way == USE_PRODUCT)
                return 32; /* over for one lane, over for all */
        } else {
            open = l;
        }
    }
    return open;
}

/* What is overwritten in order is of no account to later copies. */
void check_order(unsigned address, unsigned bytes, bool writes, bool own)
{
    if (!n_ordered || address - SHARED_FIRST + bytes > n_bytes)
        return;
    for (unsigned c = (address - SHARED_FIRST) / CHUNK;
         c * CHUNK < address - SHARED_FIRST + bytes; c++) {
        for (const struct use &u : uses[c]) {
            unsigned lane =
                writes || u.way == USE_WRITE ? open_lane(u, own) : 32;

            if (lane == 32)
                continue;
            auto s = running->in->sources.find(u.i->source);
            return fail("shared address %#x is %s by a copy, before which "
                        "nothing orders that thread %u %s it at PTX line %u "
                        "(%s:%u)", SHARED_FIRST + c * CHUNK,
                        writes ? "written" : "read", u.warp * 32 + lane,
                        u.way == USE_WRITE ? "wrote" : "read", u.i->line,
                        s == running->in->sources.end() ? "?"
                                                        : s->second.c_str(),
                        u.i->source_line);
        }
        if (writes)
            uses[c].clear();
    }
}

} // namespace ptx
} // namespace emu
