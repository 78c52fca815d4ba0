/* Instructions by which warps and copies meet: barriers, mbarriers, registers
 * that move between warps, and copies to shared memory. An instruction that has
 * to wait sets warp.blocked and is run again at the warp's next turn; it has
 * then changed nothing, but for barriers, to which a warp comes once. Nothing
 * waits for a time: when all warps wait and no copy is under way, the block
 * will never end, and block.cc says so. Words of mbarriers are those of async.cc,
 * tensor maps and the list of copies those of bulk.cc, so that both ways to run a kernel agree
 * on what the hardware does; their calls take the place in the source, which is
 * here the .loc of the instruction. */
#include "kernels/emu/ptx/ptx.h"

#include <algorithm>

namespace emu {
namespace ptx {

/* Fails unless all lanes have the same number: a barrier takes that of one lane, and PTX does not
 * say of which. */
static uint32_t uniform(struct warp &w, const struct instruction &i,
                        const struct operand &o, uint32_t lanes)
{
    uint64_t first = 0;
    bool any = false;

    for (unsigned l = 0; l < 32; l++) {
        uint64_t x = get_any(w, o.slot, l);

        if (!(lanes >> l & 1))
            continue;
        if (any && x != first)
            fail("%s: lane %u has another operand", i.name, l);
        first = x;
        any = true;
    }
    return (uint32_t)first;
}

/* ---- barriers of a block ---- */

/* As in async.cc, but for whole warps: bar.sync counts 32 for each. */
static struct barrier {
    unsigned count, arrived, round;
    struct meeting before;
} barriers[16];

/* Two sides that count one barrier differently wait for ever on a GPU, or are
 * let go too early. */
static struct barrier *barrier_of(struct warp &w, const struct instruction &i,
                                  uint32_t lanes, unsigned *count)
{
    unsigned id = uniform(w, i, i.at[0], lanes);

    *count = i.n > 1 ? uniform(w, i, i.at[1], lanes)
                     : (unsigned)warps.size() * 32;
    if (id > 15 || !*count || *count % 32 || *count > warps.size() * 32) {
        fail("%s: barrier %u of %u threads", i.name, id, *count);
        return nullptr;
    }
    struct barrier *b = &barriers[id];
    if (b->arrived && b->count != *count) {
        fail("%s: barrier %u of %u threads has begun with %u", i.name, id,
             *count, b->count);
        return nullptr;
    }
    return b;
}

static void come(struct warp &w, uint32_t lanes, struct barrier *b,
                 unsigned count)
{
    order_release(w, lanes, &b->before);
    b->count = count;
    b->arrived += 32; /* whole warps are counted */
    if (b->arrived == b->count) {
        b->arrived = 0;
        b->round++;
        order_met(&b->before);
    }
}

/* True when w still has to wait. */
static bool waits(struct warp &w, uint32_t lanes, const struct barrier &b)
{
    if (b.round == w.round)
        return true;
    order_acquire(w, lanes, b.before);
    return false;
}

/* A warp comes once. Then it asks at each of its turns whether the round that
 * it came in is over: the last to come may be in the next round already. */
static void run_barrier(struct warp &w, const struct instruction &i,
                        uint32_t lanes)
{
    unsigned count;

    if (w.in_barrier) {
        unsigned id = uniform(w, i, i.at[0], lanes);

        w.in_barrier = w.blocked = waits(w, lanes, barriers[id % 16]);
        return;
    }
    struct barrier *b = barrier_of(w, i, lanes, &count);
    if (!b)
        return;
    w.round = b->round;
    come(w, lanes, b, count);
    w.in_barrier = w.blocked = waits(w, lanes, *b);
}

/* Comes and does not wait. */
static void run_arrive(struct warp &w, const struct instruction &i,
                       uint32_t lanes)
{
    unsigned count;
    struct barrier *b = barrier_of(w, i, lanes, &count);

    if (b)
        come(w, lanes, b, count);
}

/* ---- registers ---- */

static unsigned free_registers;

/* What those did before that have come to an mbarrier. A phase may end when bytes
 * come, which its parity shows at the next use: between two ends a thread arrives. */
struct arrivals {
    struct meeting before;
    bool parity;
};
static std::unordered_map<const uint64_t *, struct arrivals> mbarriers;

/* A launch gives all threads the same number of registers, a multiple of 8. */
void begin_barriers()
{
    unsigned each =
        std::min(65536u / ((unsigned)warps.size() * 32), 255u) / 8 * 8;

    for (struct barrier &b : barriers)
        b = {};
    mbarriers.clear();
    free_registers = 0;
    for (struct warp &w : warps)
        w.registers = each;
}

static void run_registers(struct warp &w, const struct instruction &i, uint32_t)
{
    unsigned count = (unsigned)i.at[0].offset;
    bool more = i.number[1] != 0;

    if (count % 8 || count < 24 || count > 256 ||
        (more ? count < w.registers : count > w.registers))
        return fail("%s from %u to %u", i.name, w.registers, count);
    /* As set_registers() of async.cc: more come from those given up. */
    if (more && free_registers < (count - w.registers) * 32) {
        w.blocked = true;
        return;
    }
    free_registers += (w.registers - count) * 32;
    w.registers = count;
    trace(w, count);
}

/* ---- mbarriers and bulk copies: async.cc, bulk.cc ---- */

/* An mbarrier that was not initialised is memory that nothing has written. */
static uint64_t *word_at(uint64_t address, bool write, unsigned lane)
{
    return (uint64_t *)(void *)shared_for((unsigned)address, 8, write, lane);
}

enum mbarrier_way { INIT, ARRIVE, EXPECT };

static struct arrivals &arrivals_of(uint64_t *word)
{
    struct arrivals &a = mbarriers[word];
    bool parity = mbarrier_over(word, 0, source_file(), source_line());

    if (parity != a.parity)
        order_met(&a.before);
    a.parity = parity;
    return a;
}

/* f(word, lane) for each lane; `o` is the address of the mbarrier. */
template <class F>
static void each_barrier(struct warp &w, const struct operand &o,
                         uint32_t lanes, bool write, F f)
{
    row<uint64_t> a = addresses(w, o);

    for (unsigned l = 0; l < 32; l++)
        if (lanes >> l & 1)
            if (uint64_t *word = word_at(a.v[l], write, l)) {
                running_lane = l;
                f(word, l);
            }
}

/* Lanes arrive one by one, as threads do. The word's own state is not an
 * operand that kernels here use. */
static void run_mbarrier(struct warp &w, const struct instruction &i,
                         uint32_t lanes)
{
    const char *file = source_file();
    int line = source_line(), way = i.number[1];
    const struct operand &o = i.at[way != INIT];
    const struct operand *x = i.n > 1 + (way != INIT) ? &i.at[i.n - 1] : nullptr;

    if (way != INIT && i.at[0].slot != NOWHERE)
        return fail("%s: its state is not there to be used", i.name);
    each_barrier(w, o, lanes, way == INIT, [&](uint64_t *word, unsigned l) {
        unsigned n = x ? (unsigned)get_any(w, x->slot, l) : 1;

        if (way == INIT) {
            mbarriers.erase(word);
            return mbarrier_init(word, n, file, line);
        }
        order_release(w, 1u << l, &arrivals_of(word).before);
        if (way == EXPECT)
            mbarrier_expect(word, n, file, line);
        for (; way == ARRIVE && n; n--)
            mbarrier_arrive(word, file, line);
        arrivals_of(word);
    });
}

/* The warp sleeps until the phase is over: to ask again and again would be
 * the same, only slower. */
static void run_try_wait(struct warp &w, const struct instruction &i,
                         uint32_t lanes)
{
    bool over = true;

    each_barrier(w, i.at[1], lanes, false, [&](uint64_t *word, unsigned l) {
        over = over && mbarrier_over(word,
                                     (unsigned)get_any(w, i.at[2].slot, l),
                                     source_file(), source_line());
    });
    if (!over) {
        w.blocked = true;
        return;
    }
    each_barrier(w, i.at[1], lanes, false, [&](uint64_t *word, unsigned l) {
        order_acquire(w, 1u << l, arrivals_of(word).before);
    });
    /* It may fail though the phase is over: kernels have to ask again. */
    put_predicate(w, i.at[0].slot, random_below(8) == 1 ? 0 : ~0u, lanes);
}

/* It shows the writes of the lanes that run it, and no others. */
static void run_proxy_fence(struct warp &w, const struct instruction &,
                            uint32_t lanes)
{
    for (unsigned l = 0; l < 32; l++)
        if (lanes >> l & 1)
            fence_async_of(w.index * 32 + l);
    order_fence(w, lanes);
}

/* The map is read where the kernel points: in its own parameter, at a
 * multiple of 64. */
static void run_tensor_copy(struct warp &w, const struct instruction &i,
                            uint32_t lanes)
{
    row<uint64_t> to = addresses(w, i.at[0]), map = addresses(w, i.at[1]);
    const uint32_t *at = w.f->lists.data() + i.at[1].first;

    each_barrier(w, i.at[2], lanes, false, [&](uint64_t *word, unsigned l) {
        int place[4];

        for (unsigned k = 0; k < 4; k++)
            place[k] = (int)(uint32_t)get_any(w, at[k], l);
        char *p = shared_pointer((unsigned)to.v[l]);
        if (p)
            tma_load(p, (const CUtensorMap *)map.v[l], word, place,
                     source_file(), source_line());
    });
}

/* Tensor copies read zeros outside of the tensor; this one may not read
 * outside of an allocation. */
static void run_bulk_copy(struct warp &w, const struct instruction &i,
                          uint32_t lanes)
{
    row<uint64_t> to = addresses(w, i.at[0]), from = addresses(w, i.at[1]);

    each_barrier(w, i.at[3], lanes, false, [&](uint64_t *word, unsigned l) {
        unsigned bytes = (unsigned)get_any(w, i.at[2].slot, l);
        char *p = shared_pointer((unsigned)to.v[l]);

        if (p && global_for(from.v[l], bytes))
            bulk_load(p, (const void *)from.v[l], bytes, word, source_file(),
                      source_line());
    });
}

/* The other way, plain or adding floats (number). What lies outside of an
 * allocation, or was not written, is an error when the copy begins: the engine
 * of a GPU would fault, or copy rubbish, some time later. */
static void run_bulk_store(struct warp &w, const struct instruction &i,
                           uint32_t lanes)
{
    row<uint64_t> to = addresses(w, i.at[0]), from = addresses(w, i.at[1]);

    for (unsigned l = 0; l < 32; l++) {
        if (!(lanes >> l & 1))
            continue;
        unsigned bytes = (unsigned)get_any(w, i.at[2].slot, l);
        char *p = shared_pointer((unsigned)from.v[l]);

        running_lane = l;
        if (p && global_for(to.v[l], bytes))
            bulk_store((void *)to.v[l], p, bytes, i.number[1], source_file(),
                       source_line());
    }
}

/* Groups belong to a thread: a commit by one lane says nothing of copies that
 * another has begun. */
static void run_bulk_commit(struct warp &, const struct instruction &,
                            uint32_t lanes)
{
    for (unsigned l = 0; l < 32; l++)
        if (lanes >> l & 1) {
            running_lane = l;
            bulk_commit();
        }
}

/* The warp sleeps until the copies of all lanes that wait are read (number), or
 * over. Kernels here wait for all groups; another number would need groups to be
 * counted. */
static void run_bulk_wait(struct warp &w, const struct instruction &i,
                          uint32_t lanes)
{
    if (i.at[0].offset)
        return fail("%s that leaves some groups", i.name);
    for (unsigned l = 0; l < 32; l++)
        if (lanes >> l & 1 && !bulk_over(w.index * 32 + l, i.number[1]))
            w.blocked = true;
}

/* ---- cp.async ---- */

/* Until now the place was in flight: to read it before the wait is an error. */
static void do_copy(const struct small_copy &c, unsigned lane)
{
    take_from_flight(c.to, c.size);
    char *to = shared_for(c.to, c.size, true, lane);
    if (!to)
        return;
    if (c.bytes)
        memcpy(to, c.from, c.bytes);
    memset(to + c.bytes, 0, c.size - c.bytes);
}

/* Bytes after the first n become zeros, and are not read from memory. */
static void run_small_copy(struct warp &w, const struct instruction &i,
                           uint32_t lanes)
{
    row<uint64_t> to = addresses(w, i.at[0]), from = addresses(w, i.at[1]);
    unsigned size = (unsigned)i.at[2].offset;

    for (unsigned l = 0; l < 32; l++) {
        if (!(lanes >> l & 1))
            continue;
        unsigned n = i.n > 3 ? (unsigned)get_any(w, i.at[3].slot, l) : size;
        struct small_copy c = {(unsigned)to.v[l], size, n, w.copy_group,
                               (const char *)from.v[l]};

        if (c.to % size || from.v[l] % size || n > size)
            return fail("%s of %u of %u bytes from %#llx to %#x", i.name, n,
                        size, (unsigned long long)from.v[l], c.to);
        running_lane = l;
        if (size == 16) /* others share their 16 bytes with what is not theirs */
            check_order(c.to, size, true, true);
        if ((n && !global_for(from.v[l], n)) ||
            !shared_for(c.to, size, true, l))
            return;
        put_in_flight(c.to, size, false);
        w.copies[l].push_back(c);
    }
}

/* Groups are counted for the warp: lanes of one warp commit together here. */
static void run_copy_commit(struct warp &w, const struct instruction &,
                            uint32_t)
{
    w.copy_group++;
}

/* A GPU copies at any time before; here as late as may be, so that a wait for
 * too few groups shows. */
static void run_copy_wait(struct warp &w, const struct instruction &i, uint32_t)
{
    unsigned left = i.n ? (unsigned)i.at[0].offset : 0;

    for (unsigned l = 0; l < 32; l++) {
        std::vector<small_copy> later;

        for (const struct small_copy &c : w.copies[l])
            if (i.n && c.group + left >= w.copy_group)
                later.push_back(c);
            else
                do_copy(c, l);
        w.copies[l].swap(later);
    }
}

/* ---- the table ---- */

/* Those with .aligned in their full name, and barriers of the block, are for
 * all lanes of a warp at once. */
void add_meetings(rules &r)
{
    auto whole = [&](const char *name, action *run, const char *takes, int x) {
        r[name] = {run, takes, NEXT, CARE_ALL, true, {0, x, 0, 0}};
    };
    auto any = [&](const char *name, action *run, const char *takes, int x) {
        r[name] = {run, takes, NEXT, CARE_ALL, false, {0, x, 0, 0}};
    };

    whole("bar.sync", run_barrier, "w*w", 0);
    whole("barrier.sync", run_barrier, "w*w", 0);
    whole("bar.arrive", run_arrive, "ww", 0);
    whole("setmaxnreg.inc.sync.aligned.u32", run_registers, "#", 1);
    whole("setmaxnreg.dec.sync.aligned.u32", run_registers, "#", 0);
    any("mbarrier.init.shared::cta.b64", run_mbarrier, "mw", INIT);
    any("mbarrier.arrive.shared::cta.b64", run_mbarrier, "d=m*w", ARRIVE);
    any("mbarrier.arrive.expect_tx.shared::cta.b64", run_mbarrier, "d=mw",
        EXPECT);
    any("mbarrier.try_wait.parity.shared::cta.b64", run_try_wait, "p=mw", 0);
    any("fence.proxy.async.shared::cta", run_proxy_fence, "", 0);
    any("fence.proxy.async", run_proxy_fence, "", 0);
    any("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx"
        "::bytes", run_tensor_copy, "mmm", 0);
    any("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
        run_bulk_copy, "mmwm", 0);
    any("cp.async.bulk.global.shared::cta.bulk_group", run_bulk_store, "mmw",
        0);
    any("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32",
        run_bulk_store, "mmw", 1);
    any("cp.async.bulk.commit_group", run_bulk_commit, "", 0);
    any("cp.async.bulk.wait_group", run_bulk_wait, "#", 0);
    any("cp.async.bulk.wait_group.read", run_bulk_wait, "#", 1);
    any("cp.async.cg.shared.global", run_small_copy, "mm#*w", 0);
    any("cp.async.ca.shared.global", run_small_copy, "mm#*w", 0);
    whole("cp.async.commit_group", run_copy_commit, "", 0);
    whole("cp.async.wait_group", run_copy_wait, "#", 0);
    whole("cp.async.wait_all", run_copy_wait, "", 0);
}

} // namespace ptx
} // namespace emu
