/* A block: its warps take turns, a warp runs instructions in lockstep. Start at
 * run_block(), then step(). Blocks of a grid run one after another.
 *
 * Lanes that have parted form levels, the topmost of which runs: at a branch
 * whose lanes differ the running level waits where the ways meet, and a level
 * for each way is put on top. An instruction sees the lanes of its level, less
 * those that its predicate leaves out. */
#include "kernels/emu/ptx/module.h"

#include <algorithm>
#include <stdio.h>

namespace emu {
namespace ptx {

/* The mutex of schedule.cc lets one launch of the process run at a time, so
 * that a block can be plain globals. Warps keep their memory from block to
 * block. */
std::vector<warp> warps;
const struct function *running;
struct warp *current;

/* ---- numbers of any width ---- */

/* For instructions whose operands may have any width. Others read whole rows,
 * which is faster. */
uint64_t get_any(struct warp &w, uint32_t slot, unsigned lane)
{
    const char *at = row_at(w, slot);
    uint64_t x = 0;

    switch (w.f->slots[slot].bytes) {
    case 0:
        return get_predicate(w, slot) >> lane & 1;
    case 8:
        memcpy(&x, at + lane * 8, 8);
        return x;
    }
    memcpy(&x, at + lane * 4, 4);
    return x;
}

/* What does not fit is cut off, as PTX does for loads into narrow registers.
 */
void put_any(struct warp &w, uint32_t slot, unsigned lane, uint64_t x)
{
    char *at = row_at(w, slot);

    switch (w.f->slots[slot].bytes) {
    case 8:
        memcpy(at + lane * 8, &x, 8);
        return;
    case 2:
        x &= 0xffff;
        break;
    }
    memcpy(at + lane * 4, &x, 4);
}

/* ---- where the program is ---- */

/* A .loc names the function that the compiler saw last, also where that was
 * inlined: the line of hopper.cuh rather than that of its caller. */
const char *source_file()
{
    auto s = running->in->sources.find(current && current->now
                                           ? current->now->source : 0);

    return s == running->in->sources.end() ? "" : s->second.c_str();
}

int source_line()
{
    return current && current->now ? (int)current->now->source_line : 0;
}

/* For messages (schedule.cc). */
static void say_where(char *to, size_t bytes)
{
    if (!current || !current->now)
        return;
    int n = snprintf(to, bytes, ", warp %u, PTX line %u", current->index,
                     current->now->line);
    if (*source_file())
        snprintf(to + n, bytes - (size_t)n, " (%s:%d)", source_file(),
                 source_line());
}

unsigned running_thread()
{
    return current ? current->index * 32 + running_lane : 0;
}

/* ---- lanes that part and meet ---- */

/* Drops what has ended or has come to where others wait. The topmost level is
 * the one that runs. When its lanes have come to the join, they are among the
 * lanes of the level below, which waits there. */
static void settle(struct warp &w)
{
    while (!w.levels.empty()) {
        struct level &top = w.levels.back();

        top.lanes &= w.live;
        if (top.lanes && top.pc != top.join)
            return;
        w.levels.pop_back();
    }
}

/* PTX does not say which side runs first, and a kernel must not depend on it.
 * Where the ways never meet again, both sides run until they end, under the
 * join of the level that they came from. */
static void part(struct warp &w, const struct instruction &i, uint32_t taken)
{
    struct level &top = w.levels.back();
    uint32_t stay = top.lanes & ~taken, next = top.pc + 1, join = i.join;
    struct level a = {next, join, stay}, b = {i.target, join, taken};

    /* Either may run first. */
    if (coin())
        std::swap(a, b);
    if (join == NOWHERE) {
        a.join = b.join = top.join;
        top = a;
    } else {
        top.pc = join;
        w.levels.push_back(a);
    }
    w.levels.push_back(b);
}

/* A lane that ends leaves all levels: settle() takes it out of each when that
 * level comes up. */
static void run_flow(struct warp &w, const struct instruction &i,
                     uint32_t lanes)
{
    struct level &top = w.levels.back();

    if (i.flow == EXIT) {
        w.live &= ~lanes;
        top.pc++;
    } else if (lanes == top.lanes) {
        top.pc = i.target;
    } else if (!lanes) {
        top.pc++;
    } else {
        part(w, i, lanes);
    }
    settle(w);
}

/* ---- one instruction ---- */

static const char *register_use(uint8_t flight)
{
    return flight == 1 ? "a product under way writes"
                       : "a product under way reads";
}

/* Registers that an asynchronous product writes hold anything until it is
 * waited for, those that it reads must keep what they have: on a GPU both are
 * read or written at some later time. A use is stamped with its time, for the
 * rule of wgmma.fence. */
static bool check_slots(struct warp &w, const struct instruction &i,
                        uint32_t lanes)
{
    const uint32_t *slots = w.f->lists.data() + i.read;

    for (uint32_t k = 0; k < i.n_read + i.n_written; k++) {
        uint32_t s = slots[k];
        bool read = k < i.n_read;

        if (w.flight[s] && (!read || w.flight[s] == 1)) {
            fail("%s %s a register that %s", i.name, read ? "reads" : "writes",
                 register_use(w.flight[s]));
            return false;
        }
        if (read && i.care == CARE_ALL && (lanes & ~w.known[s])) {
            fail("%s reads operand %u, which lanes %08x have not written",
                 i.name, k + 1, lanes & ~w.known[s]);
            return false;
        }
        w.used[s] = w.time;
    }
    return true;
}

/* Compilers move registers that nothing was written to, for instance where
 * two ways meet of which one never uses them. So a move takes what is unknown
 * along, and its use for anything else is the error. */
static void mark_slots(struct warp &w, const struct instruction &i,
                       uint32_t lanes)
{
    const uint32_t *slots = w.f->lists.data() + i.read;
    uint32_t good = lanes & ~w.unknown;

    if (i.care == CARE_MOVE)
        for (uint32_t k = 0; k < i.n_read; k++)
            good &= w.known[slots[k]];
    for (uint32_t k = i.n_read; k < i.n_read + i.n_written; k++)
        w.known[slots[k]] = (w.known[slots[k]] & ~lanes) | good;
    w.unknown = 0;
}

/* Lanes for which the instruction's predicate holds. A predicate that is not
 * known makes the way of the program depend on chance. */
static uint32_t guarded(struct warp &w, const struct instruction &i,
                        uint32_t lanes)
{
    if (i.guard == NOWHERE)
        return lanes;
    if (lanes & ~w.known[i.guard])
        fail("%s: the predicate of lanes %08x is not known", i.name,
             lanes & ~w.known[i.guard]);
    uint32_t p = get_predicate(w, i.guard);
    return lanes & (i.guard_not ? ~p : p);
}

bool step(struct warp &w)
{
    struct level &top = w.levels.back();
    const struct instruction &i = w.f->code[top.pc];
    uint32_t lanes = top.lanes;

    w.now = &i;
    w.time++;
    lanes = guarded(w, i, lanes);
    if (i.flow != NEXT) {
        run_flow(w, i, lanes);
        return true;
    }
    if (lanes) {
        if (i.whole && lanes != w.live) {
            fail("%s is run by lanes %08x of %08x", i.name, lanes, w.live);
            return false;
        }
        if (i.care != CARE_SELF && !check_slots(w, i, lanes))
            return false;
        w.blocked = false;
        w.lanes = lanes;
        i.run(w, i, lanes);
        if (w.blocked)
            return false;
        mark_slots(w, i, lanes);
    }
    w.levels.back().pc++;
    settle(w);
    return true;
}

/* ---- a block ---- */

/* Registers that a kernel finds filled. They are written when a warp begins
 * and are slots like all others then. */
static uint64_t special_of(const std::string &name, unsigned thread)
{
    char axis = name.back();
    dim3 b = blockDim;
    unsigned in_block[3] = {thread % b.x, thread / b.x % b.y,
                            thread / b.x / b.y};
    int k = axis == 'x' ? 0 : axis == 'y' ? 1 : 2;

    if (name.compare(0, 5, "%tid.") == 0)
        return in_block[k];
    if (name.compare(0, 6, "%ntid.") == 0)
        return k == 0 ? b.x : k == 1 ? b.y : b.z;
    if (name.compare(0, 7, "%ctaid.") == 0)
        return k == 0 ? blockIdx.x : k == 1 ? blockIdx.y : blockIdx.z;
    if (name.compare(0, 8, "%nctaid.") == 0)
        return k == 0 ? gridDim.x : k == 1 ? gridDim.y : gridDim.z;
    if (name == "%laneid")
        return thread % 32;
    if (name == "%WARP_SZ")
        return 32;
    fail("the interpreter has no register %s", name.c_str());
    return 0;
}

/* The image has the constants; registers that follow it keep what the block
 * before left there, which no instruction can see, as none is known. */
static void begin_warp(struct warp &w, unsigned index, unsigned n)
{
    const struct function *f = running;
    unsigned left = n - index * 32;

    w.f = f;
    w.index = index;
    w.live = left < 32 ? (1u << left) - 1 : ~0u;
    w.levels.assign(1, {0, NOWHERE, w.live});
    w.rows.resize(f->bytes);
    memcpy(w.rows.data(), f->image.data(), f->image.size());
    w.local.assign(f->local * 32, (char)0xff);
    w.known.assign(f->slots.size(), 0);
    std::fill(w.known.begin(), w.known.begin() + f->n_fixed, ~0u);
    w.used.assign(f->slots.size(), 0);
    w.flight.assign(f->slots.size(), 0);
    w.time = w.fence = 0;
    w.group = w.copy_group = w.round = 0;
    w.trace = 0;
    w.products.clear();
    for (auto &c : w.copies)
        c.clear();
    w.blocked = w.in_barrier = false;
    w.unknown = 0;
    w.now = nullptr;
    for (unsigned l = 0; l < 32; l++) {
        for (auto &s : f->specials)
            put_any(w, s.second, l, special_of(s.first, index * 32 + l));
        if (f->local_slot != NOWHERE)
            put_any(w, f->local_slot, l,
                    (uint64_t)(w.local.data() + l * f->local));
    }
}

static void check_end(struct warp &w)
{
    for (auto &c : w.copies)
        if (!c.empty())
            fail("warp %u ended while %zu cp.async are under way", w.index,
                 c.size());
}

/* Nothing has moved and no copy is under way: barriers that some never come
 * to, bytes that never come, registers that no warp gives up. */
static void report_waiting()
{
    const struct warp *first = nullptr;
    unsigned n = 0;

    for (struct warp &w : warps)
        if (!w.levels.empty()) {
            first = first ? first : &w;
            n++;
        }
    current = const_cast<struct warp *>(first);
    fail("%u of %zu warps wait for ever, this one at %s", n, warps.size(),
         first->now ? first->now->name : "its start");
}

/* True when it ran at least one instruction. In forward and in reverse order
 * a warp runs until it has to wait, so that copies and other warps are as
 * late as can be. */
static bool run_warp(struct warp &w)
{
    /* Leaving it early lets others overtake it. */
    uint64_t most = random_below(8) ? 1 + random_below(60) : ~(uint64_t)0;
    bool any = false;

    current = &w;
    for (; most > 0 && !w.levels.empty() && !has_failed() && step(w); most--)
        any = true;
    if (w.levels.empty() && any)
        check_end(w);
    current = nullptr;
    return any;
}

/* A mistake in a loop's end would run for ever. */
static const uint64_t TOO_LONG = (uint64_t)1 << 32;

static void run_block()
{
    unsigned turn[MAX_THREADS / 32], n = (unsigned)warps.size(), left = n;
    uint64_t turns = 0;

    for (unsigned k = 0; k < n; k++)
        begin_warp(warps[k], k, blockDim.x * blockDim.y * blockDim.z);
    begin_barriers();
    begin_products();
    while (left && !has_failed()) {
        bool moved = false;

        permute(turn, n);
        left = 0;
        for (unsigned k = 0; k < n && !has_failed(); k++) {
            struct warp &w = warps[turn[k]];

            moved = (!w.levels.empty() && run_warp(w)) || moved;
            left += !w.levels.empty();
        }
        if ((!moved || coin()) && !has_failed())
            moved = finish_copy(random_below(~(uint64_t)0)) || moved;
        if (!moved && left && !has_failed())
            report_waiting();
        if (++turns > TOO_LONG)
            fail("it does not come to an end");
    }
    if (!has_failed())
        end_products();
}

bool run(const char *name, const struct function *f, dim3 grid, dim3 block,
         size_t dynamic)
{
    unsigned n = block.x * block.y * block.z;

    return run_blocks(name, grid, block, f->dynamic + dynamic,
                      [f, n](char *shared, size_t bytes) {
                          running = f;
                          fail_place = say_where;
                          warps.resize((n + 31) / 32);
                          begin_shared(shared, bytes);
                          run_block();
                          current = nullptr;
                      });
}

} // namespace ptx
} // namespace emu
