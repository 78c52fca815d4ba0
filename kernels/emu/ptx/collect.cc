/* Instructions by which lanes, warps and copies meet: shuffles, votes, barriers,
 * mbarriers, matrix instructions of a warp, and copies to shared memory. */
#include "kernels/emu/ptx/ptx.h"

#include <algorithm>

namespace emu {
namespace ptx {

/* ---- lanes of a warp ---- */

/* The lanes that an instruction names must be those that run it. */
static bool check_mask(struct warp &w, const struct instruction &i,
                       const struct operand &o, uint32_t lanes)
{
    row<uint32_t> mask = get<uint32_t>(w, o.slot);

    for (unsigned l = 0; l < 32; l++)
        if ((lanes >> l & 1) && (mask.v[l] & w.live) != lanes) {
            fail("%s of lanes %08x is run by lanes %08x of %08x", i.name,
                 mask.v[l], lanes, w.live);
            return false;
        }
    return true;
}

enum shuffle_way { UP, DOWN, BUTTERFLY, INDEX };

/* PTX ISA, shfl.sync: the lane that lane l reads, or -1. */
static int source_lane(int way, int l, uint32_t b, uint32_t c)
{
    int segment = (int)(c >> 8 & 31), by = (int)(b & 31);
    int top = (l & segment) | ((int)(c & 31) & ~segment), low = l & segment;

    switch (way) {
    case UP:
        return l - by >= top ? l - by : -1;
    case DOWN:
        return l + by <= top ? l + by : -1;
    case BUTTERFLY:
        return (l ^ by) <= top ? l ^ by : -1;
    }
    int from = low | (by & ~segment);
    return from <= top ? from : -1;
}

static void run_shuffle(struct warp &w, const struct instruction &i,
                        uint32_t lanes)
{
    row<uint32_t> a = get<uint32_t>(w, i.at[2].slot), d = a;
    row<uint32_t> b = get<uint32_t>(w, i.at[3].slot);
    row<uint32_t> c = get<uint32_t>(w, i.at[4].slot);
    uint32_t inside = 0;

    if (!check_mask(w, i, i.at[5], lanes))
        return;
    for (int l = 0; l < 32; l++) {
        int from = source_lane(i.number[1], l, b.v[l], c.v[l]);

        if (from < 0)
            continue;
        inside |= 1u << l;
        d.v[l] = a.v[from];
        /* A lane that does not take part gives anything. */
        if (!(lanes >> from & 1))
            w.unknown |= 1u << l;
    }
    put(w, i.at[0].slot, d, lanes);
    put_predicate(w, i.at[1].slot, inside, lanes);
}

enum vote { ALL, ANY, SAME, BALLOT };

static void run_vote(struct warp &w, const struct instruction &i,
                     uint32_t lanes)
{
    uint32_t yes = get_predicate(w, i.at[1].slot) & lanes;
    row<uint32_t> d;

    if (!check_mask(w, i, i.at[2], lanes))
        return;
    if (i.number[1] == BALLOT) {
        std::fill(d.v, d.v + 32, yes);
        put(w, i.at[0].slot, d, lanes);
        return;
    }
    bool result = i.number[1] == ALL   ? yes == lanes
                  : i.number[1] == ANY ? yes != 0
                                       : yes == lanes || !yes;
    put_predicate(w, i.at[0].slot, result ? ~0u : 0, lanes);
}

static void run_match(struct warp &w, const struct instruction &i,
                      uint32_t lanes)
{
    row<uint32_t> d = {};

    if (!check_mask(w, i, i.at[2], lanes))
        return;
    for (unsigned l = 0; l < 32; l++)
        for (unsigned k = 0; k < 32; k++)
            if ((lanes >> k & 1) && get_any(w, i.at[1].slot, l) ==
                                        get_any(w, i.at[1].slot, k))
                d.v[l] |= 1u << k;
    put(w, i.at[0].slot, d, lanes);
}

static void run_warp_barrier(struct warp &w, const struct instruction &i,
                             uint32_t lanes)
{
    check_mask(w, i, i.at[0], lanes);
}

static void run_active(struct warp &w, const struct instruction &i,
                       uint32_t lanes)
{
    row<uint32_t> d;

    std::fill(d.v, d.v + 32, lanes);
    put(w, i.at[0].slot, d, lanes);
}

/* All lanes have the same number, or it is an error. */
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

static struct barrier {
    unsigned count, arrived, round;
} barriers[16];

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

static void come(struct barrier *b, unsigned count)
{
    b->count = count;
    b->arrived += 32; /* whole warps are counted */
    if (b->arrived == b->count) {
        b->arrived = 0;
        b->round++;
    }
}

static void run_barrier(struct warp &w, const struct instruction &i,
                        uint32_t lanes)
{
    unsigned count;

    if (w.in_barrier) {
        unsigned id = uniform(w, i, i.at[0], lanes);

        w.in_barrier = w.blocked = barriers[id % 16].round == w.round;
        return;
    }
    struct barrier *b = barrier_of(w, i, lanes, &count);
    if (!b)
        return;
    w.round = b->round;
    come(b, count);
    w.in_barrier = w.blocked = b->round == w.round;
}

static void run_arrive(struct warp &w, const struct instruction &i,
                       uint32_t lanes)
{
    unsigned count;
    struct barrier *b = barrier_of(w, i, lanes, &count);

    if (b)
        come(b, count);
}

/* ---- registers ---- */

static unsigned free_registers;

void begin_barriers()
{
    unsigned each =
        std::min(65536u / ((unsigned)warps.size() * 32), 255u) / 8 * 8;

    memset(barriers, 0, sizeof(barriers));
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
}

/* ---- mbarriers and bulk copies: async.cc ---- */

static uint64_t *word_at(uint64_t address, bool write, unsigned lane)
{
    return (uint64_t *)(void *)shared_for((unsigned)address, 8, write, lane);
}

enum mbarrier_way { INIT, ARRIVE, EXPECT };

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

        if (way == INIT)
            return mbarrier_init(word, n, file, line);
        if (way == EXPECT)
            return mbarrier_expect(word, n, file, line);
        while (n--)
            mbarrier_arrive(word, file, line);
    });
}

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
    /* It may fail though the phase is over: kernels have to ask again. */
    put_predicate(w, i.at[0].slot, random_below(8) == 1 ? 0 : ~0u, lanes);
}

static void run_proxy_fence(struct warp &w, const struct instruction &,
                            uint32_t lanes)
{
    for (unsigned l = 0; l < 32; l++)
        if (lanes >> l & 1)
            fence_async_of(w.index * 32 + l);
}

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

/* ---- cp.async ---- */

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
        if ((n && !global_for(from.v[l], n)) ||
            !shared_for(c.to, size, true, l))
            return;
        put_in_flight(c.to, size);
        w.copies[l].push_back(c);
    }
}

static void run_copy_commit(struct warp &w, const struct instruction &,
                            uint32_t)
{
    w.copy_group++;
}

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

/* ---- matrix instructions of a warp ---- */

static void run_ldmatrix(struct warp &w, const struct instruction &i, uint32_t)
{
    row<uint64_t> a = addresses(w, i.at[1]);
    const uint32_t *to = w.f->lists.data() + i.at[0].first;
    const char *rows[32];

    for (unsigned l = 0; l < i.at[0].count * 8; l++) {
        if (a.v[l] % 16)
            return fail("%s: lane %u has address %#llx, no multiple of 16",
                        i.name, l, (unsigned long long)a.v[l]);
        if (!(rows[l] = shared_for((unsigned)a.v[l], 16, false, l)))
            return;
    }
    for (unsigned m = 0; m < i.at[0].count; m++)
        for (unsigned l = 0; l < 32; l++) {
            uint16_t pair[2];

            for (unsigned k = 0; k < 2; k++) {
                unsigned r = l / 4, c = l % 4 * 2 + k;

                if (i.number[1])
                    std::swap(r, c);
                memcpy(&pair[k], rows[m * 8 + r] + c * 2, 2);
            }
            put_any(w, to[m], l, (uint32_t)pair[0] | (uint32_t)pair[1] << 16);
        }
}

/* d = a b + c */
static void run_mma(struct warp &w, const struct instruction &i, uint32_t)
{
    const uint32_t *lists = w.f->lists.data();
    float d[32][4];
    uint32_t a[32][4], b[32][2];

    for (unsigned l = 0; l < 32; l++) {
        for (unsigned k = 0; k < 4; k++) {
            uint32_t c = (uint32_t)get_any(w, lists[i.at[3].first + k], l);

            memcpy(&d[l][k], &c, sizeof(c));
            a[l][k] = (uint32_t)get_any(w, lists[i.at[1].first + k], l);
        }
        for (unsigned k = 0; k < 2; k++)
            b[l][k] = (uint32_t)get_any(w, lists[i.at[2].first + k], l);
    }
    mma_of_warp(d, a, b, i.number[1] != 0);
    for (unsigned l = 0; l < 32; l++)
        for (unsigned k = 0; k < 4; k++) {
            uint32_t bits;

            memcpy(&bits, &d[l][k], sizeof(bits));
            put_any(w, lists[i.at[0].first + k], l, bits);
        }
}

/* ---- the table ---- */

static void add_lanes(rules &r)
{
    static const char *const ways[] = {"up", "down", "bfly", "idx"};
    static const char *const votes[] = {"all.pred", "any.pred", "uni.pred",
                                        "ballot.b32"};

    for (int k = 0; k < 4; k++) {
        r[std::string("shfl.sync.") + ways[k] + ".b32"] = {
            run_shuffle, "wp=wwww", NEXT, CARE_ALL, false, {0, k, 0, 0}};
        r[std::string("vote.sync.") + votes[k]] = {
            run_vote, k == BALLOT ? "w=pw" : "p=pw", NEXT, CARE_ALL, false,
            {0, k, 0, 0}};
    }
    r["match.any.sync.b32"] = {run_match, "w=ww", NEXT, CARE_ALL, false, {}};
    r["match.any.sync.b64"] = {run_match, "w=dw", NEXT, CARE_ALL, false, {}};
    r["bar.warp.sync"] = {run_warp_barrier, "w", NEXT, CARE_ALL, false, {}};
    r["activemask.b32"] = {run_active, "w=", NEXT, CARE_ALL, false, {}};
}

static void add_meetings(rules &r)
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
    any("cp.async.cg.shared.global", run_small_copy, "mm#*w", 0);
    any("cp.async.ca.shared.global", run_small_copy, "mm#*w", 0);
    whole("cp.async.commit_group", run_copy_commit, "", 0);
    whole("cp.async.wait_group", run_copy_wait, "#", 0);
    whole("cp.async.wait_all", run_copy_wait, "", 0);
    for (const char *n : {"1", "2", "4"})
        for (int t = 0; t < 2; t++)
            whole((std::string("ldmatrix.sync.aligned.m8n8.x") + n +
                   (t ? ".trans" : "") + ".shared.b16").c_str(),
                  run_ldmatrix, "v=m", t);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        std::string type = bf16 ? "bf16" : "f16";

        whole(("mma.sync.aligned.m16n8k16.row.col.f32." + type + "." + type +
               ".f32").c_str(), run_mma, "v=vvv", bf16);
    }
}

void add_collectives(rules &r)
{
    add_lanes(r);
    add_meetings(r);
}

} // namespace ptx
} // namespace emu
