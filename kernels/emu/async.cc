/* Mbarriers, named barriers, register counts, and the copies that mbarriers
 * count. A copy waits in a list until the scheduler does it: when no thread
 * can continue, at once, or at random (async.h). */
#include "kernels/emu/threads.h"

#include <algorithm>
#include <deque>

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

/* A fiber is one thread; in ptx/ a lane of a warp writes. */
static unsigned writer()
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
    fence_async_of(writer());
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
    shared_written(shared_address(b, file, line), 8, writer());
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
static void count_bytes(uint64_t *b, unsigned bytes)
{
    struct mbarrier *m = (struct mbarrier *)(void *)b;

    m->bytes = m->bytes - (int)bytes;
    end_phase_if_complete(m);
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

/* A round is over when `count` threads have come, whether they wait or not.
 * bar.sync of all 32 lanes counts 32: here each comes by itself. */
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

static void named_come(struct named *b)
{
    if (++b->arrived == b->count) {
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
    struct named *b = named_of(id, count, file, line);

    now->on = b;
    /* Taken before coming: the last to come ends the round at once. */
    now->number = b->round;
    named_come(b);
    poll(round_over, "bar.sync", file, line);
}

void named_arrive(unsigned id, unsigned count, const char *file, int line)
{
    named_come(named_of(id, count, file, line));
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

/* ---- tensor maps ---- */

struct tensor_map {
    const char *base;
    uint64_t magic;
    uint32_t element, swizzle; /* bytes; of 16: bits exchanged */
    uint64_t dim[4], stride[4]; /* stride[0] = element */
    uint32_t box[4];
};
static_assert(sizeof(struct tensor_map) <= sizeof(CUtensorMap), "128 bytes");
/* Tells a map that was encoded from other bytes. */
static const uint64_t MAP_MAGIC = 0x70616d736f736e65;

static unsigned element_bytes(CUtensorMapDataType type)
{
    return type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
}

/* True when the map keeps the limits that the driver documents. The real driver
 * refuses other maps, too, and a kernel that passes here must not fail on a
 * machine that the tests do not have. */
static bool map_valid(const struct tensor_map &m, unsigned rank)
{
    bool good = (uintptr_t)m.base % 16 == 0 &&
                m.box[0] * m.element % 16 == 0 &&
                (!m.swizzle || m.box[0] * m.element <= 16u << m.swizzle);

    for (unsigned i = 0; i < rank; i++) {
        good = good && m.dim[i] >= 1 && m.dim[i] <= (uint64_t)1 << 32 &&
               m.box[i] >= 1 && m.box[i] <= 256;
        if (i > 0)
            good = good && m.stride[i] % 16 == 0 &&
                   m.stride[i] < (uint64_t)1 << 40 &&
                   m.stride[i] >= m.stride[i - 1];
    }
    return good;
}

/* ---- copies under way ---- */

struct bulk_copy {
    bool tensor;
    struct tensor_map map; /* tensor */
    const char *from;      /* else */
    unsigned to, bytes;
    int at[4];
    uint64_t *barrier;
};
static std::deque<bulk_copy> copies;

unsigned swizzled(unsigned address, unsigned bits)
{
    return address ^ ((address >> 7 & ((1u << bits) - 1)) << 4);
}

/* Element i of the box: the coordinates count from the innermost. */
static void copy_element(const struct bulk_copy &c, unsigned i)
{
    const struct tensor_map &m = c.map;
    const char *from = m.base;
    bool inside = true;
    /* The swizzle is of the address, not of the place in the tile: a tile that
     * is not aligned to the pattern comes out wrong, here as there. */
    char *to = shared_at(swizzled(c.to + i * m.element, m.swizzle), m.element);
    for (unsigned k = 0; k < 4; k++) {
        int64_t x = (int64_t)c.at[k] + i % m.box[k];

        i /= m.box[k];
        inside = inside && x >= 0 && (uint64_t)x < m.dim[k];
        from += x * (int64_t)m.stride[k];
    }
    if (to && inside)
        memcpy(to, from, m.element);
    else if (to)
        memset(to, 0, m.element);
}

/* ptx/ marks the bytes of a copy as long as it is under way. */
void (*copy_begins)(unsigned to, unsigned bytes);
void (*copy_ends)(unsigned to, unsigned bytes);

static void do_copy(const struct bulk_copy &c)
{
    for (unsigned i = 0; c.tensor && i < c.bytes / c.map.element; i++)
        copy_element(c, i);
    if (!c.tensor)
        if (char *to = shared_at(c.to, c.bytes))
            memcpy(to, c.from, c.bytes);
    if (copy_ends)
        copy_ends(c.to, c.bytes);
    count_bytes(c.barrier, c.bytes);
}

static void begin_copy(struct bulk_copy &c, void *to, uint64_t *barrier,
                       unsigned alignment, const char *file, int line)
{
    mbarrier_of(barrier, file, line);
    /* The copy will count on the mbarrier: is its initialization fenced? */
    shared_at(shared_address(barrier, file, line), 8); /* fenced? */
    c.to = shared_address(to, file, line);
    /* Arguments are kept by value, as in the instruction. */
    c.barrier = barrier;
    if (c.to % alignment)
        fail("%s:%d: a copy to shared address %#x, no multiple of %u", file,
             line, c.to, alignment);
    if (copy_begins)
        copy_begins(c.to, c.bytes);
    if (copies_at_once)
        do_copy(c);
    else
        copies.push_back(c);
}

void tma_load(void *to, const CUtensorMap *map, uint64_t *barrier,
              const int (&at)[4], const char *file, int line)
{
    struct bulk_copy c = {};

    memcpy(&c.map, map, sizeof(c.map));
    if (c.map.magic != MAP_MAGIC || (uintptr_t)map % 64)
        fail("%s:%d: no tensor map", file, line);
    c.tensor = true;
    c.bytes = c.map.element;
    for (unsigned k = 0; k < 4; k++) {
        c.bytes *= c.map.box[k];
        c.at[k] = at[k];
    }
    begin_copy(c, to, barrier, 128, file, line);
}

void bulk_load(void *to, const void *from, unsigned bytes, uint64_t *barrier,
               const char *file, int line)
{
    struct bulk_copy c = {};

    check_aligned(from, 16, file, line);
    if (bytes % 16)
        fail("%s:%d: a copy of %u bytes", file, line, bytes);
    c.from = (const char *)from;
    c.bytes = bytes;
    begin_copy(c, to, barrier, 16, file, line);
}

/* The scheduler chooses which: copies overtake each other, as they do. */
bool finish_copy(uint64_t which)
{
    if (copies.empty())
        return false;
    auto c = copies.begin() + (std::ptrdiff_t)(which % copies.size());
    struct bulk_copy doing = *c;
    copies.erase(c);
    do_copy(doing);
    return true;
}

void begin_async(char *shared, size_t bytes)
{
    shared_begin = shared;
    shared_size = bytes;
    /* A block begins with nothing written, nothing under way. */
    unfenced.assign(bytes / 4 + 1, 0);
    memset(named, 0, sizeof(named));
    copies.clear();
    share_registers();
}

void end_async()
{
    if (!copies.empty())
        fail("ended while %zu bulk copies are under way", copies.size());
}

} // namespace emu

CUresult cuTensorMapEncodeTiled(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base,
    const cuuint64_t *dim, const cuuint64_t *strides, const cuuint32_t *box,
    const cuuint32_t *steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
{
    if (rank != 4 || (uintptr_t)map % 64) /* of others there is no use yet */
        return CUDA_ERROR_INVALID_VALUE;
    emu::tensor_map m = {(const char *)base, emu::MAP_MAGIC,
                         emu::element_bytes(type), (uint32_t)swizzle,
                         {}, {}, {}};
    for (unsigned i = 0; i < rank; i++) {
        m.dim[i] = dim[i];
        m.box[i] = box[i];
        m.stride[i] = i ? strides[i - 1] : m.element;
        /* A step would skip elements of the tensor; no kernel here does. */
        if (steps[i] != 1)
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (!emu::map_valid(m, rank))
        return CUDA_ERROR_INVALID_VALUE;
    memset(map, 0, sizeof(*map));
    memcpy(map, &m, sizeof(m));
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(
    const char *symbol, void **function, unsigned, unsigned long long,
    cudaDriverEntryPointQueryResult *result)
{
    if (strcmp(symbol, "cuTensorMapEncodeTiled") != 0)
        return cudaErrorInvalidValue;
    /* The one function of the driver that is asked for by name. */
    *function = (void *)cuTensorMapEncodeTiled;
    *result = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
