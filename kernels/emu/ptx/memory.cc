/* Loads, stores, atomic operations, and what of shared memory has been
 * written. Addresses are the host's, but for shared memory, which has 32 bits as
 * in async.cc. Start at memory_for(), which every access goes through.
 *
 * Each byte of shared memory is unknown, written, in flight, or leaving. It
 * becomes unknown when a block begins; in flight from the start of a copy to its
 * end, whether that is a bulk copy or cp.async; written by stores and ended
 * copies; leaving as long as a bulk copy reads it, and others may.
 * What another thread wrote is known as soon as it is written: a missing barrier
 * shows when the reader comes first in one of the orders, not otherwise. */
#include "kernels/emu/ptx/ptx.h"

namespace emu {
namespace ptx {

/* ---- shared memory ---- */

enum : uint8_t { UNKNOWN, WRITTEN, FLIGHT, LEAVING };
static char *shared_begin;
static size_t shared_bytes;
static std::vector<uint8_t> shared_state; /* by byte */
/* The allocation that was used last. None comes or goes while a block runs. */
static const void *begin;
static size_t size;

static const char *const state_names[] = {
    "which nothing has written", "", "which a copy under way writes",
    "which a copy under way reads"};

/* A copy has begun, or is over (bulk.cc). What it reads has to be there. */
void put_in_flight(unsigned at, unsigned bytes, bool reads)
{
    if (at - SHARED_FIRST + bytes > shared_bytes)
        return; /* the copy itself reports it */
    if (!reads && read_by_products(at, bytes))
        return fail("shared address %#x is written by a copy, which a product "
                    "under way reads", at);
    uint8_t *state = &shared_state[at - SHARED_FIRST];
    for (unsigned i = 0; i < bytes; i++) {
        if (reads ? state[i] != WRITTEN : state[i] == LEAVING)
            return fail("shared address %#x is %s by a copy, %s", at + i,
                        reads ? "read" : "written", state_names[state[i]]);
        state[i] = reads ? LEAVING : FLIGHT;
    }
}

/* The copy engine is another proxy: it may overtake accesses that its own thread made before. */
static void begin_bulk_copy(unsigned at, unsigned bytes, bool reads)
{
    if (at - SHARED_FIRST + bytes <= shared_bytes)
        check_order(at, bytes, !reads, false);
    put_in_flight(at, bytes, reads);
}

void take_from_flight(unsigned to, unsigned bytes)
{
    if (to - SHARED_FIRST + bytes <= shared_bytes)
        memset(&shared_state[to - SHARED_FIRST], WRITTEN, bytes);
}

/* No access is wider than 16 bytes: one comparison answers nearly all. */
static const uint8_t all_written[16] = {
    WRITTEN, WRITTEN, WRITTEN, WRITTEN, WRITTEN, WRITTEN, WRITTEN, WRITTEN,
    WRITTEN, WRITTEN, WRITTEN, WRITTEN, WRITTEN, WRITTEN, WRITTEN, WRITTEN};

/* wgmma reads. */
static void check_read(unsigned address, unsigned bytes)
{
    if (address - SHARED_FIRST + bytes > shared_bytes)
        return; /* the product itself reports it */
    if (bytes == 16 &&
        memcmp(&shared_state[address - SHARED_FIRST], all_written, 16) == 0)
        return;
    for (unsigned i = 0; i < bytes; i++) {
        uint8_t state = shared_state[address - SHARED_FIRST + i];

        if (state != WRITTEN && state != LEAVING)
            return fail("shared address %#x is read, %s", address + i,
                        state_names[state]);
    }
}

/* Each block begins with nothing written. */
void begin_shared(char *shared, size_t bytes)
{
    shared_begin = shared;
    shared_bytes = bytes;
    shared_state.assign(bytes, UNKNOWN);
    begin = nullptr;
    begin_order(bytes);
    copy_begins = begin_bulk_copy;
    copy_ends = take_from_flight;
    operand_read = check_read;
}

/* A write marks what it writes as known, and as not yet seen by copies and
 * products: shared_written(). */
char *shared_for(unsigned address, unsigned bytes, bool write, unsigned lane)
{
    size_t at = (size_t)address - SHARED_FIRST;

    if (address < SHARED_FIRST || at + bytes > shared_bytes) {
        fail("shared memory has no %u bytes at %#x", bytes, address);
        return nullptr;
    }
    bool good = bytes <= 16 &&
                memcmp(&shared_state[at], all_written, bytes) == 0;
    for (unsigned i = 0; i < bytes && !good; i++) {
        uint8_t state = shared_state[at + i];

        if (state == FLIGHT || state == (write ? LEAVING : UNKNOWN)) {
            fail("shared address %#x is %s, %s", address + i,
                 write ? "written" : "read", state_names[state]);
            return nullptr;
        }
    }
    if (write && read_by_products(address, bytes)) {
        fail("shared address %#x is written, which a product under way reads",
             address);
        return nullptr;
    }
    if (write) {
        memset(&shared_state[at], WRITTEN, bytes);
        shared_written(address, bytes, current->index * 32 + lane);
    }
    order_use(address, bytes, 1u << lane, write ? USE_WRITE : USE_READ);
    return shared_begin + at;
}

/* ---- other memory ---- */

static bool lies_in(uint64_t address, unsigned bytes, const void *first,
                    size_t n)
{
    uint64_t at = address - (uint64_t)first;

    return at <= n && bytes <= n - at;
}

/* Host memory that is not the device's lies in no allocation: a kernel that
 * was given a pointer of the host fails here, as on a GPU. */
char *global_for(uint64_t address, unsigned bytes)
{
    if (begin && lies_in(address, bytes, begin, size))
        return (char *)address;
    if (device_block((const void *)address, &begin, &size) &&
        lies_in(address, bytes, begin, size))
        return (char *)address;
    begin = nullptr;
    if (module_data(running, (const void *)address, bytes))
        return (char *)address;
    fail("%u bytes at %#llx lie in no allocation", bytes,
         (unsigned long long)address);
    return nullptr;
}

static char *param_for(uint64_t address, unsigned bytes)
{
    const struct function *f = running;

    for (size_t k = 0; k < f->param_at.size(); k++)
        if (lies_in(address, bytes, f->params.get() + f->param_at[k],
                    f->param_bytes[k]))
            return (char *)address;
    return nullptr;
}

/* The arrays of other lanes are not this lane's, though they lie beside. */
static char *local_for(struct warp &w, uint64_t address, unsigned bytes,
                       unsigned lane)
{
    size_t each = w.f->local;

    return lies_in(address, bytes, w.local.data() + lane * each, each)
               ? (char *)address
               : nullptr;
}

enum space { GENERIC, PARAM, GLOBAL, SHARED, LOCAL, CONSTANT };

/* NULL after fail(). A vector counts as one access: its address is a multiple
 * of all its bytes. */
static char *memory_for(struct warp &w, int space, uint64_t address,
                        unsigned bytes, bool write, unsigned lane)
{
    char *p = nullptr;

    if (address % bytes) {
        fail("an access of %u bytes at %#llx, which is no multiple", bytes,
             (unsigned long long)address);
        return nullptr;
    }
    if (space == GENERIC &&
        lies_in(address, bytes, shared_begin, shared_bytes)) {
        address = address - (uint64_t)shared_begin + SHARED_FIRST;
        space = SHARED;
    }
    if (space == SHARED)
        return shared_for((unsigned)address, bytes, write, lane);
    if (space == LOCAL || space == GENERIC)
        p = local_for(w, address, bytes, lane);
    if (!p && (space == PARAM || space == GENERIC) && !write)
        p = param_for(address, bytes);
    if (p)
        return p;
    if (space == LOCAL || space == PARAM) {
        fail("%u bytes at %#llx are in no %s", bytes,
             (unsigned long long)address,
             space == LOCAL ? "local array of this lane" : "parameter");
        return nullptr;
    }
    return global_for(address, bytes);
}

/* Addresses of 32 bits wrap around, and offsets may be negative. */
row<uint64_t> addresses(struct warp &w, const struct operand &o)
{
    row<uint64_t> a;

    if (w.f->slots[o.slot].bytes == 4) {
        row<uint32_t> narrow = get<uint32_t>(w, o.slot);

        for (unsigned l = 0; l < 32; l++)
            a.v[l] = narrow.v[l] + (uint32_t)o.offset;
        return a;
    }
    a = get<uint64_t>(w, o.slot);
    for (unsigned l = 0; l < 32; l++)
        a.v[l] += (uint64_t)o.offset;
    return a;
}

/* ---- loads and stores; number: bytes of an element, sign, space. A list of
 * registers has the elements of a vector, which lie one after another. What a
 * sign is matters where a register is wider than the element. ---- */

static uint64_t load_one(const char *from, int bytes, int sign)
{
    uint64_t x = 0;

    memcpy(&x, from, (size_t)bytes);
    if (sign && bytes < 8 && x >> (bytes * 8 - 1) & 1)
        x |= ~(uint64_t)0 << bytes * 8;
    return x;
}

/* One register is a list of one. */
static const uint32_t *parts_of(struct warp &w, const struct operand &o,
                                unsigned *n)
{
    *n = o.kind == operand::LIST ? o.count : 1;
    return o.kind == operand::LIST ? w.f->lists.data() + o.first : &o.slot;
}

static void run_load(struct warp &w, const struct instruction &i,
                     uint32_t lanes)
{
    row<uint64_t> a = addresses(w, i.at[1]);
    unsigned n, each = (unsigned)i.number[0];
    const uint32_t *to = parts_of(w, i.at[0], &n);

    for (unsigned l = 0; l < 32; l++) {
        if (!(lanes >> l & 1))
            continue;
        const char *from =
            memory_for(w, i.number[2], a.v[l], each * n, false, l);
        if (!from)
            return;
        for (unsigned k = 0; k < n; k++)
            if (to[k] != NOWHERE)
                put_any(w, to[k], l,
                        load_one(from + k * each, i.number[0], i.number[1]));
    }
}

/* Lanes that write to one place do so in their order; on a GPU any may be
 * last. */
static void run_store(struct warp &w, const struct instruction &i,
                      uint32_t lanes)
{
    row<uint64_t> a = addresses(w, i.at[0]);
    unsigned n, each = (unsigned)i.number[0];
    const uint32_t *from = parts_of(w, i.at[1], &n);

    for (unsigned l = 0; l < 32; l++) {
        if (!(lanes >> l & 1))
            continue;
        char *to = memory_for(w, i.number[2], a.v[l], each * n, true, l);
        if (!to)
            return;
        for (unsigned k = 0; k < n; k++) {
            uint64_t x = get_any(w, from[k], l);

            memcpy(to + k * each, &x, each);
        }
    }
}

/* ---- atomic operations ---- */

enum change { ADD, EXCHANGE, COMPARE, MIN, MAX, AND, OR, CHANGES };
enum number_kind { UNSIGNED, SIGNED, FLOAT };

/* y is what COMPARE writes where it finds x. */
static uint64_t changed(int op, int kind, int bytes, uint64_t old, uint64_t x,
                        uint64_t y)
{
    float f, g;
    uint32_t narrow = (uint32_t)old, other = (uint32_t)x;
    int64_t a = (int64_t)old, b = (int64_t)x;

    if (kind == FLOAT) {
        memcpy(&f, &narrow, sizeof(f));
        memcpy(&g, &other, sizeof(g));
        f += g;
        memcpy(&narrow, &f, sizeof(f));
        return narrow;
    }
    if (kind == SIGNED && bytes == 4) {
        a = (int32_t)narrow;
        b = (int32_t)other;
    }
    bool less = kind == SIGNED ? b < a : x < old;
    switch (op) {
    case ADD:
        return old + x;
    case EXCHANGE:
        return x;
    case COMPARE:
        return old == x ? y : old;
    case MIN:
        return less ? x : old;
    case MAX:
        return less ? old : x;
    case AND:
        return old & x;
    }
    return old | x;
}

/* number: bytes, operation + 16 * kind, space, whether the old number is
 * wanted. Numbers of a list are changed one by one. */
static void run_atomic(struct warp &w, const struct instruction &i,
                       uint32_t lanes)
{
    unsigned n, first = i.number[3] ? 1 : 0, each = (unsigned)i.number[0];
    row<uint64_t> a = addresses(w, i.at[first]);
    const uint32_t *from = parts_of(w, i.at[first + 1], &n);

    for (unsigned l = 0; l < 32; l++) {
        if (!(lanes >> l & 1))
            continue;
        char *p = memory_for(w, i.number[2], a.v[l], each * n, false, l);
        if (!p || !memory_for(w, i.number[2], a.v[l], each * n, true, l))
            return; /* read as by a load, written as by a store */
        for (unsigned k = 0; k < n; k++, p += each) {
            uint64_t old = load_one(p, i.number[0], 0), y = 0;
            if (i.n > first + 2)
                y = get_any(w, i.at[first + 2].slot, l);
            uint64_t now = changed(i.number[1] % 16, i.number[1] / 16,
                                   i.number[0], old, get_any(w, from[k], l), y);

            memcpy(p, &now, each);
            if (first)
                put_any(w, i.at[0].slot, l, old);
        }
    }
}

/* ---- addresses of shared memory ---- */

/* A pointer to anything into shared memory is where the host has that memory.
 */
static void run_to_generic(struct warp &w, const struct instruction &i,
                           uint32_t lanes)
{
    for (unsigned l = 0; l < 32; l++)
        if (lanes >> l & 1)
            put_any(w, i.at[0].slot, l,
                    get_any(w, i.at[1].slot, l) - SHARED_FIRST +
                        (uint64_t)shared_begin);
}

static void run_to_shared(struct warp &w, const struct instruction &i,
                          uint32_t lanes)
{
    for (unsigned l = 0; l < 32; l++)
        if (lanes >> l & 1)
            put_any(w, i.at[0].slot, l,
                    get_any(w, i.at[1].slot, l) - (uint64_t)shared_begin +
                        SHARED_FIRST);
}

/* ---- the table ---- */

static const struct {
    const char *name;
    int bytes, sign;
} types[] = {
    {"b8", 1, 0},  {"u8", 1, 0},  {"s8", 1, 1},  {"b16", 2, 0}, {"u16", 2, 0},
    {"s16", 2, 1}, {"b32", 4, 0}, {"u32", 4, 0}, {"s32", 4, 1}, {"f32", 4, 0},
    {"b64", 8, 0}, {"u64", 8, 0}, {"s64", 8, 1}, {"f64", 8, 0},
};
/* volatile, and an order of other accesses: warps take turns anyway. */
static const struct {
    const char *name;
    int space;
} spaces[] = {
    {"", GENERIC},          {".param", PARAM},   {".global", GLOBAL},
    {".global.nc", GLOBAL}, {".global.cg", GLOBAL}, {".shared", SHARED},
    {".local", LOCAL},      {".const", CONSTANT},
};
static const char *const orders[] = {"", ".volatile", ".relaxed.gpu",
                                     ".acquire.gpu", ".release.gpu"};

static void add_loads(rules &r)
{
    for (auto &t : types)
        for (auto &s : spaces)
            for (const char *order : orders)
                for (const char *v : {"", ".v2", ".v4"}) {
                    std::string end =
                        std::string(order) + s.name + v + "." + t.name;

                    r["ld" + end] = {run_load, "?=m", NEXT, CARE_ALL, false,
                                     {t.bytes, t.sign, s.space, 0}};
                    r["st" + end] = {run_store, "m?", NEXT, CARE_ALL, false,
                                     {t.bytes, t.sign, s.space, 0}};
                }
}

/* red is atom without a result. */
static void add_atomics(rules &r)
{
    static const char *const names[CHANGES] = {"add", "exch", "cas", "min",
                                               "max", "and", "or"};

    for (auto &t : types)
        for (auto &s : spaces)
            for (const char *order : {"", ".relaxed.gpu", ".acq_rel.gpu"})
                for (int op = 0; op < CHANGES && t.bytes >= 4; op++) {
                    int kind = t.name[0] == 'f' ? FLOAT
                               : t.sign         ? SIGNED
                                                : UNSIGNED;
                    bool wide = t.bytes == 8, two = op == COMPARE;
                    std::string end = std::string(order) + s.name + "." +
                                      names[op] + "." + t.name;

                    r["atom" + end] = {
                        run_atomic,
                        wide ? (two ? "d=mdd" : "d=md")
                             : (two ? "w=mww" : "w=mw"),
                        NEXT, CARE_ALL, false,
                        {t.bytes, op + 16 * kind, s.space, 1}};
                    r["red" + end] = {run_atomic, wide ? "md" : "mw", NEXT,
                                      CARE_ALL, false,
                                      {t.bytes, op + 16 * kind, s.space, 0}};
                }
}

static void run_nothing(struct warp &, const struct instruction &, uint32_t)
{
}

void add_memory(rules &r)
{
    add_loads(r);
    add_atomics(r);
    r["cvta.shared.u64"] = {run_to_generic, "?=?", NEXT, CARE_ALL, false, {}};
    r["cvta.to.shared.u64"] = {run_to_shared, "?=?", NEXT, CARE_ALL, false,
                               {}};
    /* One instruction is over before the next begins. */
    for (const char *name : {"membar.gl", "membar.cta", "membar.sys",
                             "fence.acq_rel.gpu", "fence.sc.gpu",
                             "fence.proxy.async.global"})
        r[name] = {run_nothing, "", NEXT, CARE_ALL, false, {}};
}

} // namespace ptx
} // namespace emu
