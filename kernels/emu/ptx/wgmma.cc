/* Products of a warpgroup. Each warp does its 16 of the 64 rows. A product runs
 * when it is issued, when its group is waited for, or at any time between; until
 * then the registers that it writes and reads are not to be touched, and those
 * that were used since the last wgmma.fence are not to be given to it.
 *
 * ptxas keeps these rules for the registers that it gives out, by waits of its
 * own, which cost the overlap that the kernel was written for; or it reports
 * C7510 and serialises. A kernel that breaks them in PTX is wrong by the manual
 * all the same. Descriptors are read by wgmma.cc of the emulation, against the
 * places that CuTe gives (tests/emu/selftest_layout.cu). */
#include "kernels/emu/ptx/ptx.h"

#include <array>

namespace emu {
namespace ptx {

enum : uint8_t { FREE, WRITES, READS };

/* What the name and the last operands of a product say. Operands in registers
 * are never transposed; those in shared memory are where a bit says so: then
 * their rows are k. */
struct numbers {
    unsigned n;
    bool bf16, trans_a, trans_b;
};

static struct numbers numbers_of(const struct instruction &i)
{
    bool in_registers = i.at[1].kind == operand::LIST;

    /* d, a, b, add, sign of a, sign of b, [a transposed,] b transposed */
    return {(unsigned)i.number[1], i.number[2] != 0,
            !in_registers && i.at[6].offset != 0,
            i.at[in_registers ? 6 : 7].offset != 0};
}

static const uint32_t *list_of(struct warp &w, const struct operand &o)
{
    return w.f->lists.data() + o.first;
}

/* Products of two such numbers are exact in float. */
static float widen(bool bf16, uint16_t bits)
{
    return bf16 ? gpt_bf16_to_f32(bits) : gpt_f16_to_f32(bits);
}

/* x[k * 16 + row], from registers as mma.m16n8k16 has them. */
static void read_registers(struct warp &w, float *x, const struct operand &o,
                           bool bf16)
{
    const uint32_t *slots = list_of(w, o);

    for (unsigned k = 0; k < 16; k++)
        for (unsigned r = 0; r < 16; r++) {
            uint64_t pair = get_any(w, slots[r / 8 + k / 8 * 2],
                                    r % 8 * 4 + k % 8 / 2);

            x[k * 16 + r] = widen(bf16, (uint16_t)(pair >> k % 2 * 16));
        }
}

/* Register and lane of element (r, j) of the sums. */
static char *sum_at(struct warp &w, const uint32_t *slots, unsigned r,
                    unsigned j)
{
    return row_at(w, slots[j / 8 * 4 + r / 8 * 2 + j % 2]) +
           (r % 8 * 4 + j % 8 / 2) * 4;
}

/* Operands are read now, not when the product was issued: what has
 * overwritten them since shows. Sums run in the order of k, as in wgmma.cc of
 * the emulation: results are equal bit for bit. */
static void multiply(struct warp &w, struct product &p)
{
    struct numbers m = numbers_of(*p.i);
    const uint32_t *sums = list_of(w, p.i->at[0]);
    static float a[16 * 16], b[16 * 256], sum[256];
    const struct instruction *was = w.now;

    w.now = p.i; /* messages name the product, not the wait */
    if (p.i->at[1].kind == operand::LIST)
        read_registers(w, a, p.i->at[1], m.bf16);
    else
        read_wgmma_operand(a, p.desc_a, m.trans_a, m.bf16, w.index % 4 * 16,
                           16);
    read_wgmma_operand(b, p.desc_b, m.trans_b, m.bf16, 0, m.n);
    for (unsigned r = 0; r < 16; r++) {
        for (unsigned j = 0; j < m.n; j++)
            if (p.add)
                memcpy(&sum[j], sum_at(w, sums, r, j), 4);
            else
                sum[j] = 0;
        for (unsigned k = 0; k < 16; k++) {
            const float x = a[k * 16 + r], *y = b + k * m.n;

            for (unsigned j = 0; j < m.n; j += 8)
                for (unsigned e = j; e < j + 8; e++)
                    sum[e] += x * y[e];
        }
        for (unsigned j = 0; j < m.n; j++)
            memcpy(sum_at(w, sums, r, j), &sum[j], 4);
    }
    p.done = true;
    w.now = was;
}

/* Products of groups before `end`. Their order is that of their issue. */
static void multiply_until(struct warp &w, unsigned end)
{
    for (struct product &p : w.products)
        if (!p.done && (int)(p.group - end) < 0)
            multiply(w, p);
}

/* ---- what operands in shared memory may be used for ---- */

/* How many products read each 16 bytes. Four warps make a product together, and
 * the manual does not say that a warp reads the rows of its own results alone:
 * for each of them until it has waited all rows are in use. */
enum { CHUNK = 16 };
static std::array<uint16_t, (1 << 18) / CHUNK> readers;

void begin_products()
{
    readers.fill(0);
}

static void count_readers(const struct product &p, int by)
{
    struct numbers m = numbers_of(*p.i);
    auto count = [by](unsigned address) {
        uint16_t &n = readers[address / CHUNK % readers.size()];

        n = (uint16_t)(n + by);
        if (by < 0) /* waited for: until now it may have been read */
            order_use(address, CHUNK, ~0u, USE_PRODUCT);
    };

    if (p.i->at[1].kind != operand::LIST)
        visit_wgmma_operand(p.desc_a, m.trans_a, 64, count);
    visit_wgmma_operand(p.desc_b, m.trans_b, m.n, count);
}

bool read_by_products(unsigned address, unsigned bytes)
{
    for (unsigned i = address / CHUNK; i * CHUNK < address + bytes; i++)
        if (readers[i % readers.size()])
            return true;
    return false;
}

/* ---- what registers may be used for ---- */

/* The sums count as known from here on: they will be, and until then they
 * may not be read. */
static void mark(struct warp &w, const struct product &p)
{
    const uint32_t *slots = list_of(w, p.i->at[0]);

    for (unsigned k = 0; k < p.i->at[0].count; k++) {
        w.flight[slots[k]] = WRITES;
        w.known[slots[k]] = ~0u;
    }
    if (p.i->at[1].kind == operand::LIST)
        for (unsigned k = 0; k < p.i->at[1].count; k++)
            w.flight[list_of(w, p.i->at[1])[k]] = READS;
}

static void unmark(struct warp &w, const struct product &p)
{
    for (unsigned o = 0; o < 2; o++)
        for (unsigned k = 0; k < p.i->at[o].count; k++)
            w.flight[list_of(w, p.i->at[o])[k]] = FREE;
}

/* Products of one shape that add to the same sums may follow each other
 * without a wait, and may share registers of a. All other uses of a register
 * have to be before a fence, or after a wait. */
static bool check_registers(struct warp &w, const struct instruction &i,
                            const struct operand &o, bool read)
{
    for (unsigned k = 0; k < o.count; k++) {
        uint32_t s = list_of(w, o)[k];
        bool same = w.flight[s] == (&o == &i.at[0] ? WRITES : READS);

        if (read && w.known[s] != ~0u) {
            fail("%s: register %u of an operand is not known", i.name, k);
            return false;
        }
        if (w.flight[s] != FREE && !same) {
            fail("%s: register %u of an operand is in use by a product under "
                 "way", i.name, k);
            return false;
        }
        if (w.flight[s] == FREE && w.used[s] && w.used[s] > w.fence) {
            fail("%s: register %u of an operand was used after the last "
                 "wgmma.fence", i.name, k);
            return false;
        }
    }
    return true;
}

/* The hardware takes one lane's. */
static uint64_t same_in_all(struct warp &w, const struct instruction &i,
                            const struct operand &o)
{
    uint64_t first = get_any(w, o.slot, 0);

    for (unsigned l = 1; l < 32; l++)
        if (get_any(w, o.slot, l) != first)
            fail("%s: lane %u has another descriptor", i.name, l);
    if (w.known[o.slot] != ~0u)
        fail("%s: its descriptor is not known", i.name);
    return first;
}

void trace(struct warp &w, uint64_t x)
{
    w.trace = (w.trace ^ x) * 0x100000001b3; /* FNV-1a */
}

/* Scale-d is a predicate: without it the sums begin at zero, and what the
 * registers held does not matter. */
static void run_wgmma(struct warp &w, const struct instruction &i, uint32_t)
{
    bool in_registers = i.at[1].kind == operand::LIST;
    struct numbers m = numbers_of(i);
    struct product p = {&i, 0, 0, w.group, false, false};

    uint32_t add = get_predicate(w, i.at[3].slot);
    if (w.known[i.at[3].slot] != ~0u || (add && ~add))
        return fail("%s: lanes differ in whether to add", i.name);
    p.add = add != 0;
    if (i.at[4].offset != 1 || i.at[5].offset != 1)
        return fail("%s with other signs", i.name);
    if (i.at[0].count != m.n / 2 || (in_registers && i.at[1].count != 4))
        return fail("%s: %u sums a lane", i.name, i.at[0].count);
    if (warps.size() % 4)
        return fail("%s in a block of %zu warps", i.name, warps.size());
    if (!check_registers(w, i, i.at[0], p.add) ||
        (in_registers && !check_registers(w, i, i.at[1], true)))
        return;
    if (!in_registers)
        p.desc_a = same_in_all(w, i, i.at[1]);
    p.desc_b = same_in_all(w, i, i.at[2]);
    mark(w, p);
    count_readers(p, 1);
    w.products.push_back(p);
    for (uint64_t x : {p.desc_a, p.desc_b, (uint64_t)m.n, (uint64_t)p.add})
        trace(w, x);
    if (copies_at_once || coin())
        multiply_until(w, w.group + 1);
}

static void run_fence(struct warp &w, const struct instruction &, uint32_t)
{
    w.fence = w.time;
}

static void run_commit(struct warp &w, const struct instruction &, uint32_t)
{
    w.group++;
    trace(w, 1);
}

/* Groups end in their order. */
static void run_wait(struct warp &w, const struct instruction &i, uint32_t)
{
    unsigned end = w.group - (unsigned)i.at[0].offset;
    std::vector<product> left;

    multiply_until(w, end);
    for (const struct product &p : w.products)
        if ((int)(p.group - end) < 0) {
            unmark(w, p);
            count_readers(p, -1);
        } else {
            left.push_back(p);
        }
    w.products.swap(left);
    /* A register may be in use by both. */
    for (const struct product &p : w.products)
        mark(w, p);
}

/* Four warps issue one wgmma together: their descriptors have to be the same,
 * one after another. */
void end_products()
{
    for (struct warp &w : warps) {
        if (!w.products.empty())
            fail("warp %u ended while wgmma is under way", w.index);
        if (w.trace != warps[w.index / 4 * 4].trace)
            fail("warps %u and %u of a warpgroup did different wgmma or "
                 "setmaxnreg",
                 w.index / 4 * 4, w.index);
    }
}

static void add_shape(rules &r, unsigned n, bool bf16)
{
    std::string type = bf16 ? "bf16" : "f16";
    std::string name = "wgmma.mma_async.sync.aligned.m64n" +
                       std::to_string(n) + "k16.f32." + type + "." + type;

    r[name] = {run_wgmma, "vDdp###*#", NEXT, CARE_SELF, true,
               {0, (int32_t)n, bf16, 0}};
}

void add_wgmma(rules &r)
{
    for (unsigned n = 8; n <= 256; n += 8)
        for (int bf16 = 0; bf16 < 2; bf16++)
            add_shape(r, n, bf16 != 0);
    r["wgmma.fence.sync.aligned"] = {run_fence, "", NEXT, CARE_SELF, true, {}};
    r["wgmma.commit_group.sync.aligned"] = {run_commit, "", NEXT, CARE_SELF,
                                            true, {}};
    r["wgmma.wait_group.sync.aligned"] = {run_wait, "#", NEXT, CARE_SELF, true,
                                          {}};
}

} // namespace ptx
} // namespace emu
