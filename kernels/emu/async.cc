/* What of shared memory copies and products may read, mbarriers, named barriers
 * and register counts. The copies that mbarriers count are in bulk.cc. */
#include "kernels/emu/threads.h"

#include <algorithm>

namespace emu {

/* ---- shared memory ---- */

/* Addresses are of 18 bits in descriptors, and 0 is one that a mistake gives:
 * shared memory begins behind it. */
static const unsigned first_address = 1024;

static char *shared_begin;
static size_t shared_size;
/* By 4 bytes: the thread + 1 that wrote and has not fenced, 0: none. */
static std::vector<uint16_t> unfenced;

unsigned shared_address(const void *p, const char *file, int line)
{
    size_t at = (size_t)((const char *)p - shared_begin);

    if (!shared_begin || at >= shared_size)
        fail("%s:%d: %p is not in dynamic shared memory", file, line, p);
    return first_address + (unsigned)at;
}

char *shared_at(unsigned address, unsigned bytes)
{
    if (address < first_address ||
        address - first_address + bytes > shared_size) {
        fail("shared memory has no address %#x", address);
        return nullptr;
    }
    /* Copies and products come through here: the asynchronous proxy. */
    for (unsigned i = address & ~3u; i < address + bytes; i += 4)
        if (unsigned writer = unfenced[(i - first_address) / 4])
            fail("shared address %#x is read by the asynchronous proxy, but "
                 "thread %u wrote it without fence.proxy.async", i, writer - 1);
    return shared_begin + (address - first_address);
}

unsigned running_lane;

/* A fiber is one thread; in ptx/ a lane of a warp. */
unsigned acting_thread()
{
    return now ? (unsigned)(now - threads) : ptx::running_thread();
}

void shared_written(unsigned address, unsigned bytes, unsigned thread)
{
    unsigned at = address - first_address;

    for (unsigned i = at / 4; i < (at + bytes + 3) / 4; i++)
        unfenced[i] = (uint16_t)(thread + 1);
}

/* Without a question of what lies there: the caller asks. */
char *shared_pointer(unsigned address)
{
    if (address >= first_address && address - first_address < shared_size)
        return shared_begin + (address - first_address);
    fail("shared memory has no address %#x", address);
    return nullptr;
}

void fence_async_of(unsigned thread)
{
    for (uint16_t &by : unfenced)
        /* The fence of one thread says nothing of another's writes. */
        if (by == thread + 1)
            by = 0;
}

void fence_async()
{
    fence_async_of(acting_thread());
}

/* ---- mbarriers ---- */

/* Packed into the 8 bytes that the kernel has for it, so that one that another
 * tile overwrites is noticed. The hardware's layout is not documented. */
struct mbarrier {
    uint64_t expected : 20, pending : 20;
    int64_t bytes : 21;
    uint64_t parity : 1, valid : 2; /* valid = 1: initialised */
};
static_assert(sizeof(struct mbarrier) == 8, "an mbarrier is 8 bytes");

static struct mbarrier *mbarrier_of(uint64_t *b, const char *file, int line)
{
    shared_address(b, file, line);
    check_aligned(b, 8, file, line);
    struct mbarrier *m = (struct mbarrier *)(void *)b;
    /* Shared memory is all ones at first, where valid is 3. */
    if (m->valid != 1)
        fail("%s:%d: an mbarrier that is not initialised", file, line);
    return m;
}

/* Ends the phase when all have arrived and all bytes are there. */
static void end_phase_if_complete(struct mbarrier *m)
{
    if (m->pending || m->bytes)
        return;
    m->parity ^= 1;
    m->pending = m->expected;
}

void mbarrier_init(uint64_t *b, unsigned count, const char *file, int line)
{
    check_aligned(b, 8, file, line);
    if (count < 1 || count >= 1u << 20)
        fail("%s:%d: an mbarrier of %u threads", file, line, count);
    shared_written(shared_address(b, file, line), 8, acting_thread());
    struct mbarrier m = {count, count, 0, 0, 1};
    memcpy(b, &m, sizeof(m));
}

static void arrive(struct mbarrier *m, const char *file, int line)
{
    if (!m->pending)
        fail("%s:%d: more than %u arrive at an mbarrier", file, line,
             (unsigned)m->expected);
    m->pending--;
    end_phase_if_complete(m);
}

void mbarrier_arrive(uint64_t *b, const char *file, int line)
{
    arrive(mbarrier_of(b, file, line), file, line);
}

void mbarrier_expect(uint64_t *b, unsigned bytes, const char *file, int line)
{
    struct mbarrier *m = mbarrier_of(b, file, line);

    if ((int64_t)bytes + m->bytes >= 1 << 20)
        fail("%s:%d: %u bytes more than an mbarrier counts", file, line, bytes);
    /* Bytes are added before the thread arrives: the phase cannot end
     * between. */
    m->bytes = m->bytes + bytes;
    arrive(m, file, line);
}

/* Copies may be over before they are expected: the count is then negative, and
 * the phase goes on. */
void count_bytes(uint64_t *b, unsigned bytes)
{
    struct mbarrier *m = (struct mbarrier *)(void *)b;

    /* The manual's range of a count of bytes is the same on both sides of 0. */
    if (m->bytes - (int64_t)bytes <= -(1 << 20))
        fail("bytes that are not expected are more than an mbarrier counts");
    m->bytes = m->bytes - (int)bytes;
    end_phase_if_complete(m);
}

void check_mbarrier(uint64_t *b, const char *file, int line)
{
    mbarrier_of(b, file, line);
    /* The copy will count on the mbarrier: is its initialization fenced? */
    shared_at(shared_address(b, file, line), 8);
}

static bool phase_over(const struct thread *t)
{
    /* The phase of parity p is over when the current one has the other parity.
     * A thread that waits a whole phase too long waits for ever, as on a
     * GPU. */
    return ((const struct mbarrier *)t->on)->parity != t->number;
}

bool mbarrier_over(uint64_t *b, unsigned parity, const char *file, int line)
{
    if (parity > 1)
        fail("%s:%d: a parity of %u", file, line, parity);
    return mbarrier_of(b, file, line)->parity != parity;
}

void mbarrier_wait(uint64_t *b, unsigned parity, const char *file, int line)
{
    if (parity > 1)
        fail("%s:%d: a parity of %u", file, line, parity);
    now->on = mbarrier_of(b, file, line);
    now->number = parity;
    poll(phase_over, "mbarrier_wait", file, line);
}

/* ---- named barriers ---- */

/* A round is over when `count` threads have come, whether they wait or not. A
 * warp comes as a whole, when all its lanes are there, and counts 32. */
static struct named {
    unsigned count, arrived, round;
} named[16];

static struct named *named_of(unsigned id, unsigned count, const char *file,
                              int line)
{
    if (id < 1 || id > 15 || count % 32 || !count || count > n_threads)
        fail("%s:%d: barrier %u of %u threads", file, line, id, count);
    struct named *b = &named[id];
    /* Undefined on a GPU: a barrier that two sides count differently. */
    if (b->arrived && b->count != count)
        fail("%s:%d: barrier %u of %u threads has begun with %u", file, line,
             id, count, b->count);
    b->count = count;
    return b;
}

/* What a lane asks for, and the round that it came in. */
struct visit {
    unsigned id, count;
    const char *file;
    int line;
    struct named *b;
    unsigned round;
};

/* bar.sync is for whole warps: lanes that have parted may not come. */
static void come_together(void *const slots[32], uint32_t)
{
    const struct visit first = *(struct visit *)slots[0];
    struct named *b = named_of(first.id, first.count, first.file, first.line);

    for (unsigned l = 0; l < 32; l++) {
        struct visit *v = (struct visit *)slots[l];

        if (v->id != first.id || v->count != first.count)
            fail("%s:%d: lane %u comes to another barrier than lane 0",
                 v->file, v->line, l);
        v->b = b;
        /* Taken before coming: the last to come ends the round at once. */
        v->round = b->round;
    }
    b->arrived += 32;
    if (b->arrived == b->count) {
        b->arrived = 0;
        b->round++;
    }
}

static bool round_over(const struct thread *t)
{
    return ((const struct named *)t->on)->round != t->number;
}

void named_sync(unsigned id, unsigned count, const char *file, int line)
{
    struct visit v = {id, count, file, line, nullptr, 0};

    meet_lanes("bar.sync", ~0u, &v, come_together, file, line);
    now->on = v.b;
    now->number = v.round;
    poll(round_over, "bar.sync", file, line);
}

void named_arrive(unsigned id, unsigned count, const char *file, int line)
{
    struct visit v = {id, count, file, line, nullptr, 0};

    meet_lanes("bar.arrive", ~0u, &v, come_together, file, line);
}

/* ---- registers ---- */

enum { REGISTERS = 65536 };
static unsigned free_registers, warp_registers[MAX_THREADS / 32];

/* A launch gives every thread the same number of registers, a multiple of 8. No
 * warp can have the registers of the multiprocessor that remain. All threads of
 * a warp have the same number, so the emulation keeps one for each warp. */
static void share_registers()
{
    unsigned each = std::min(REGISTERS / n_threads, 255u) / 8 * 8;

    for (unsigned w = 0; w < (n_threads + 31) / 32; w++)
        warp_registers[w] = each;
    free_registers = 0;
}

static bool registers_there(const struct thread *t)
{
    unsigned w = (unsigned)(t - threads) / 32;

    /* More registers come from those that others have given up: a kernel that
     * asks for more than there will be waits for ever, and is reported. */
    return warp_registers[w] >= t->number ||
           free_registers >= (t->number - warp_registers[w]) * 32;
}

static void change_registers(void *const slots[32], uint32_t)
{
    unsigned w = (unsigned)(now - threads) / 32;
    unsigned count = *(unsigned *)slots[0];

    free_registers += (warp_registers[w] - count) * 32;
    warp_registers[w] = count;
    trace_warp(w, count);
}

void set_registers(unsigned count, bool more, const char *file, int line)
{
    unsigned w = (unsigned)(now - threads) / 32;

    if (count % 8 || count < 24 || count > 256)
        fail("%s:%d: setmaxnreg of %u", file, line, count);
    if (more ? count < warp_registers[w] : count > warp_registers[w])
        fail("%s:%d: setmaxnreg from %u to %u", file, line, warp_registers[w],
             count);
    now->number = count;
    poll(registers_there, "setmaxnreg", file, line);
    /* One change for the warp, when all its lanes may go on. */
    meet_lanes("setmaxnreg", ~0u, &count, change_registers, file, line);
}

void begin_async(char *shared, size_t bytes)
{
    shared_begin = shared;
    shared_size = bytes;
    /* A block begins with nothing written. */
    unfenced.assign(bytes / 4 + 1, 0);
    memset(named, 0, sizeof(named));
    begin_bulk();
    share_registers();
}

} // namespace emu
