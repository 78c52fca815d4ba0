/* Tensor maps, and bulk copies between shared memory and the GPU's. A copy waits
 * in a list until the scheduler does it: when no thread can continue, at once,
 * or at random (async.h). Start at begin_copy(). */
#include "kernels/emu/threads.h"

#include <deque>

namespace emu {

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

/* A copy to shared memory tells an mbarrier when it is over. One from there
 * belongs to a group of the thread that began it, and that thread waits; it
 * reads at some time and writes at another. */
enum bulk_way { TENSOR, LOAD, STORE, ADD };

struct bulk_copy {
    enum bulk_way way;
    struct tensor_map map; /* TENSOR */
    const char *from;      /* LOAD */
    unsigned shared, bytes;
    int at[4];
    uint64_t *barrier; /* TENSOR, LOAD */
    char *to;          /* STORE, ADD, and what follows */
    unsigned thread;
    bool committed, read;
    std::vector<char> data; /* when read */
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
    unsigned address = swizzled(c.shared + i * m.element, m.swizzle);
    char *to = shared_at(address, m.element);
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

/* ptx/ marks the bytes of a copy as long as it writes or reads them. */
void (*copy_begins)(unsigned shared, unsigned bytes, bool reads);
void (*copy_ends)(unsigned shared, unsigned bytes);

static void do_load(const struct bulk_copy &c)
{
    for (unsigned i = 0; c.way == TENSOR && i < c.bytes / c.map.element; i++)
        copy_element(c, i);
    if (c.way == LOAD)
        if (char *to = shared_at(c.shared, c.bytes))
            memcpy(to, c.from, c.bytes);
    if (copy_ends)
        copy_ends(c.shared, c.bytes);
    count_bytes(c.barrier, c.bytes);
}

/* From here on the kernel may overwrite the place. */
static void read_store(struct bulk_copy &c)
{
    const char *from = shared_pointer(c.shared);

    c.read = true;
    c.data.assign(from, from + c.bytes);
    if (copy_ends)
        copy_ends(c.shared, c.bytes);
}

/* Floats are added one by one, as the L2 cache adds them: one copy's order of
 * additions to a place is that in which copies come here. */
static void write_store(const struct bulk_copy &c)
{
    if (c.way == STORE)
        memcpy(c.to, c.data.data(), c.bytes);
    for (unsigned i = 0; c.way == ADD && i < c.bytes; i += sizeof(float)) {
        float sum, x;

        memcpy(&sum, c.to + i, sizeof(sum));
        memcpy(&x, &c.data[i], sizeof(x));
        sum += x;
        memcpy(c.to + i, &sum, sizeof(sum));
    }
}

/* Checks the part in shared memory, where all that is to be read was fenced. */
static void begin_copy(struct bulk_copy &c, const void *shared,
                       unsigned alignment, const char *file, int line)
{
    bool reads = c.way == STORE || c.way == ADD;

    c.shared = shared_address(shared, file, line);
    if (c.shared % alignment)
        fail("%s:%d: a copy at shared address %#x, no multiple of %u", file,
             line, c.shared, alignment);
    if (reads && !shared_at(c.shared, c.bytes))
        return;
    if (copy_begins)
        copy_begins(c.shared, c.bytes, reads);
    if (!copies_at_once)
        copies.push_back(c);
    else if (!reads)
        do_load(c);
    else {
        /* Kept until its group is committed, as nothing waits before. */
        read_store(c);
        copies.push_back(c);
    }
}

void tma_load(void *to, const CUtensorMap *map, uint64_t *barrier,
              const int (&at)[4], const char *file, int line)
{
    struct bulk_copy c = {};

    memcpy(&c.map, map, sizeof(c.map));
    if (c.map.magic != MAP_MAGIC || (uintptr_t)map % 64)
        fail("%s:%d: no tensor map", file, line);
    check_mbarrier(barrier, file, line);
    c.way = TENSOR;
    c.barrier = barrier;
    c.bytes = c.map.element;
    for (unsigned k = 0; k < 4; k++) {
        c.bytes *= c.map.box[k];
        c.at[k] = at[k];
    }
    begin_copy(c, to, 128, file, line);
}

/* The rules of cp.async.bulk for the part in the GPU's memory. */
static void check_bulk(const void *global, unsigned bytes, const char *file,
                       int line)
{
    check_aligned(global, 16, file, line);
    if (bytes % 16)
        fail("%s:%d: a copy of %u bytes", file, line, bytes);
}

void bulk_load(void *to, const void *from, unsigned bytes, uint64_t *barrier,
               const char *file, int line)
{
    struct bulk_copy c = {};

    check_bulk(from, bytes, file, line);
    check_mbarrier(barrier, file, line);
    c.way = LOAD;
    c.from = (const char *)from;
    c.bytes = bytes;
    c.barrier = barrier;
    begin_copy(c, to, 16, file, line);
}

void bulk_store(void *to, const void *from, unsigned bytes, bool add,
                const char *file, int line)
{
    struct bulk_copy c = {};

    check_bulk(to, bytes, file, line);
    c.way = add ? ADD : STORE;
    c.to = (char *)to;
    c.bytes = bytes;
    c.thread = acting_thread();
    begin_copy(c, from, 16, file, line);
}

void bulk_commit()
{
    for (bulk_copy &c : copies)
        if (!c.barrier && c.thread == acting_thread())
            c.committed = true;
}

/* A copy without a committed group is not waited for. */
bool bulk_over(unsigned thread, bool read)
{
    for (const bulk_copy &c : copies)
        if (c.committed && c.thread == thread && !(read && c.read))
            return false;
    return true;
}

static bool reads_over(const struct thread *t)
{
    return bulk_over((unsigned)(t - threads), true);
}

static bool writes_over(const struct thread *t)
{
    return bulk_over((unsigned)(t - threads), false);
}

void bulk_wait(bool read, const char *file, int line)
{
    poll(read ? reads_over : writes_over, "cp.async.bulk.wait_group", file,
         line);
}

/* The scheduler chooses which: copies overtake each other, as they do. A copy
 * from shared memory comes twice: it reads, then it writes. */
bool finish_copy(uint64_t which)
{
    if (copies.empty())
        return false;
    auto c = copies.begin() + (std::ptrdiff_t)(which % copies.size());
    if (!c->barrier && !c->read) {
        read_store(*c);
        return true;
    }
    struct bulk_copy doing = *c;
    copies.erase(c);
    if (doing.barrier)
        do_load(doing);
    else
        write_store(doing);
    return true;
}

void begin_bulk()
{
    copies.clear();
}

void end_bulk()
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
