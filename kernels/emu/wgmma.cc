/* wgmma: matrix instructions of four warps. Each warp owns 16 of the 64 rows of
 * a and d and does them on its own: nothing but a barrier of the kernel keeps
 * the four together. Until the group is waited for, accumulators hold NaN and
 * their numbers live here; operands are read as late as then, or at once. */
#include "kernels/emu/threads.h"

#include <array>

namespace emu {

static const uint32_t PENDING = 0x7fc5a5a5; /* a NaN */

/* 16 rows of accumulators in flight, of one warp. Identified by the address of
 * lane 0's registers: an array of the kernel's that stays in place while wgmma
 * is in flight. */
struct accumulator {
    float *at[32]; /* the lanes' registers */
    unsigned n;
    std::vector<float> sum; /* (16, n) */
    unsigned group;         /* the newest that adds to it */
};

struct product {
    struct wgmma op;
    const uint32_t *a[32];
    float *d; /* names the accumulator: lane 0's registers */
    unsigned group;
    bool done;
};

/* Four warps issue one wgmma together; each records what it was asked for, and
 * end_wgmma() compares: on a GPU a difference hangs or computes nonsense. */
static struct warp {
    std::vector<accumulator> sums;
    std::vector<product> products;
    unsigned group; /* of the next wgmma */
    bool fenced;
    uint64_t trace; /* of all instructions: the four warps' must be equal */
} warps[MAX_THREADS / 32];

static struct warp *own_warp()
{
    return &warps[(now - threads) / 32];
}

/* ---- operands in shared memory ---- */

struct matrix {
    unsigned start, leading, stride, bits; /* bytes; of the swizzle */
    bool k_major;
};

static unsigned field(uint64_t descriptor, unsigned bit)
{
    return (unsigned)(descriptor >> bit & 0x3fff) << 4;
}

static struct matrix decode(uint64_t d, bool transposed)
{
    static const unsigned bits[4] = {0, 3, 2, 1}; /* none, 128, 64, 32 B */
    struct matrix m = {field(d, 0), field(d, 16), field(d, 32), bits[d >> 62],
                       !transposed};

    /* Bits 14-15, 30-31, 46-61: reserved, or the base offset, which tiles that
     * are aligned to the swizzle leave at 0. */
    if (d & 0x3fffc000c000c000)
        fail("wgmma: descriptor %#llx has bits set that are reserved, or a "
             "base offset", (unsigned long long)d);
    /* The pattern repeats every 8 rows. Rows 16 i of a tile are whole
     * patterns. */
    if (m.start & ((1u << m.bits) - 1) << 7)
        fail("wgmma: descriptor %#llx begins within the swizzle's pattern",
             (unsigned long long)d);
    return m;
}

/* Address of 8 elements, 16 bytes: (mn, k), (mn, k + 1).. where k is the major
 * dimension, else (mn, k), (mn + 1, k)... The canonical layouts of the PTX
 * manual, in units of 16 bytes, of which w are a row of the swizzle. */
static unsigned address_of(const struct matrix &m, unsigned mn, unsigned k)
{
    unsigned w = 1u << m.bits, at = m.start;

    if (m.k_major)
        at += mn % 8 * 16 * w + mn / 8 * m.stride +
              k / 8 * (m.bits ? 16 : m.leading);
    else if (m.bits)
        at += mn / 8 % w * 16 + mn / 8 / w * m.leading + k % 8 * 16 * w +
              k / 8 * m.stride;
    else
        at += mn / 8 * m.stride + k % 8 * 16 + k / 8 * m.leading;
    return swizzled(at, m.bits);
}

static float widen(enum wgmma_type type, uint16_t bits)
{
    return type == WGMMA_BF16 ? gpt_bf16_to_f32(bits) : gpt_f16_to_f32(bits);
}

void (*operand_read)(unsigned address, unsigned bytes);

/* x[k * n + j] = element (first + j, k), for 16 k and n j. */
static void read_operand(float *x, const struct matrix &m, enum wgmma_type type,
                         unsigned first, unsigned n)
{
    unsigned step_j = m.k_major ? 1 : 8, step_k = m.k_major ? 8 : 1;

    for (unsigned k = 0; k < 16; k += step_k)
        for (unsigned j = 0; j < n; j += step_j) {
            uint16_t bits[8];
            unsigned at = address_of(m, first + j, k);

            if (operand_read)
                operand_read(at, sizeof(bits));
            /* 16 bytes stay together under every swizzle. */
            memcpy(bits, shared_at(at, sizeof(bits)), sizeof(bits));
            for (unsigned i = 0; i < 8; i++)
                x[m.k_major ? (k + i) * n + j : k * n + j + i] =
                    widen(type, bits[i]);
        }
}

/* Warps of ptx/ keep sums in registers of their own; how operands lie is
 * written once. */
void read_wgmma_operand(float *x, uint64_t descriptor, bool transposed,
                        bool bf16, unsigned first, unsigned n)
{
    read_operand(x, decode(descriptor, transposed),
                 bf16 ? WGMMA_BF16 : WGMMA_F16, first, n);
}

/* The same places, whatever lies there: for what is not to be overwritten as
 * long as a product may read it. */
void visit_wgmma_operand(uint64_t descriptor, bool transposed, unsigned n,
                         const std::function<void(unsigned address)> &f)
{
    struct matrix m = decode(descriptor, transposed);
    unsigned step_j = m.k_major ? 1 : 8, step_k = m.k_major ? 8 : 1;

    for (unsigned k = 0; k < 16; k += step_k)
        for (unsigned j = 0; j < n; j += step_j)
            f(address_of(m, j, k));
}

/* Element (row, k) of the warp's 16 rows of a. */
static float a_at(const struct product &p, unsigned row, unsigned k)
{
    unsigned pair = p.a[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];

    return widen(p.op.type, (uint16_t)(pair >> k % 2 * 16));
}

/* ---- products ---- */

static struct accumulator *find_accumulator(struct warp *w, const float *d)
{
    for (struct accumulator &s : w->sums)
        if (s.at[0] == d)
            return &s;
    return nullptr;
}

static void read_a(float *x, const struct product &p, unsigned first)
{
    if (!p.op.a)
        return read_operand(x, decode(p.op.desc_a, p.op.trans_a), p.op.type,
                            first, 16);
    for (unsigned k = 0; k < 16; k++)
        for (unsigned i = 0; i < 16; i++)
            x[k * 16 + i] = a_at(p, i, k);
}

static void multiply(struct warp *w, struct product &p)
{
    struct accumulator *s = find_accumulator(w, p.d);
    float a[16 * 16], b[16 * 256];
    unsigned n = p.op.n;

    /* Operands are read now: a kernel that overwrites them before it has waited
     * finds that out. */
    read_a(a, p, (unsigned)(w - warps) % 4 * 16);
    read_operand(b, decode(p.op.desc_b, p.op.trans_b), p.op.type, 0, n);
    if (!p.op.add)
        std::fill(s->sum.begin(), s->sum.end(), 0.0f);
    for (unsigned i = 0; i < 16; i++)
        for (unsigned k = 0; k < 16; k++)
            for (unsigned j = 0; j < n; j += 8)
                for (unsigned e = j; e < j + 8; e++)
                    s->sum[i * n + e] += a[k * 16 + i] * b[k * n + e];
    p.done = true;
}

static void multiply_until(struct warp *w, unsigned end)
{
    for (struct product &p : w->products)
        /* In the order of issue, as products that add to the same sums run. The
         * difference is signed, so that numbers of groups may wrap around. */
        if (!p.done && (int)(p.group - end) < 0)
            multiply(w, p);
}

/* Lane and register of element (i, j) of d. */
static unsigned lane_of(unsigned i, unsigned j)
{
    return i % 8 * 4 + j % 8 / 2;
}

static unsigned register_of(unsigned i, unsigned j)
{
    return j / 8 * 4 + i / 8 * 2 + j % 2;
}

/* ---- the instructions ---- */

struct slot {
    float *d;
    struct wgmma op;
};

/* The numbers in the registers move here. */
static void take_registers(struct accumulator *s)
{
    for (unsigned i = 0; i < 16; i++)
        for (unsigned j = 0; j < s->n; j++) {
            float *r = &s->at[lane_of(i, j)][register_of(i, j)];

            s->sum[i * s->n + j] = *r;
            /* Reading an accumulator in flight gives NaN, and shows. */
            memcpy(r, &PENDING, sizeof(*r));
        }
}

/* Fails when the kernel has written to registers of a wgmma in flight. */
static void check_untouched(const struct accumulator *s)
{
    for (unsigned l = 0; l < 32; l++)
        for (unsigned r = 0; r < s->n / 2; r++)
            if (memcmp(&s->at[l][r], &PENDING, sizeof(PENDING)) != 0)
                fail("wgmma: lane %u wrote to an accumulator in flight", l);
}

static struct accumulator *accumulator_of(struct warp *w,
                                          void *const slots[32], unsigned n)
{
    struct accumulator *s = find_accumulator(w, ((struct slot *)slots[0])->d);

    if (!s) {
        w->sums.emplace_back();
        s = &w->sums.back();
        s->n = n;
        s->sum.resize(16 * n);
        for (unsigned l = 0; l < 32; l++)
            s->at[l] = ((struct slot *)slots[l])->d;
        take_registers(s);
    } else if (s->n != n) {
        fail("wgmma: n is %u, but %u for the same accumulator in flight", n,
             s->n);
    } else {
        check_untouched(s);
    }
    return s;
}

static void check_lanes(void *const slots[32])
{
    const struct wgmma &first = ((struct slot *)slots[0])->op;
    for (unsigned l = 1; l < 32; l++) {
        const struct wgmma &o = ((struct slot *)slots[l])->op;
        if (o.desc_a != first.desc_a || o.desc_b != first.desc_b ||
            o.add != first.add || o.n != first.n)
            fail("wgmma: lane %u differs from lane 0", l);
    }
}

static void trace_value(struct warp *w, uint64_t x)
{
    w->trace = (w->trace ^ x) * 0x100000001b3; /* FNV-1a */
}

void trace_warp(unsigned w, uint64_t x)
{
    trace_value(&warps[w], x);
}

static void issue(void *const slots[32], uint32_t)
{
    struct warp *w = own_warp();

    const struct wgmma &op = ((struct slot *)slots[0])->op;
    /* Descriptors are uniform: the hardware takes one lane's. */
    check_lanes(slots);
    if (!w->fenced)
        fail("wgmma: no wgmma.fence since registers were free to use");
    struct accumulator *s = accumulator_of(w, slots, op.n);
    struct product p = {op, {}, s->at[0], w->group, false};
    for (unsigned l = 0; l < 32; l++)
        p.a[l] = ((struct slot *)slots[l])->op.a;
    s->group = w->group;
    w->products.push_back(p);
    for (uint64_t x : {op.a ? 0 : op.desc_a, op.desc_b, (uint64_t)op.n,
                       (uint64_t)op.add})
        trace_value(w, x);
    if (copies_at_once || coin())
        /* At once: what is overwritten too late is then not noticed, but what
         * was not there yet is. */
        multiply_until(w, w->group + 1);
}

void wgmma_issue(float *d, const struct wgmma &op, const char *file, int line)
{
    struct slot s = {d, op};

    if (op.n < 8 || op.n > 256 || op.n % 8)
        fail("%s:%d: wgmma of n = %u", file, line, op.n);
    if (n_threads % 128)
        fail("%s:%d: wgmma in a block of %u threads", file, line, n_threads);
    meet_lanes("wgmma", ~0u, &s, issue, file, line);
}

void wgmma_fence()
{
    own_warp()->fenced = true;
}

static void commit_group(void *const *, uint32_t)
{
    struct warp *w = own_warp();

    w->group++;
    /* The next wgmma needs a fence again: registers may be used in between. */
    w->fenced = false;
    trace_value(w, 1);
}

void wgmma_commit(const char *file, int line)
{
    meet_lanes("wgmma.commit_group", ~0u, nullptr, commit_group, file, line);
}

/* Numbers go back into registers that no group in flight adds to. */
static void give_back(struct warp *w, unsigned end)
{
    std::vector<accumulator> left;
    for (struct accumulator &s : w->sums) {
        check_untouched(&s);
        if ((int)(s.group - end) >= 0) {
            left.push_back(s);
            continue;
        }
        for (unsigned i = 0; i < 16; i++)
            for (unsigned j = 0; j < s.n; j++)
                s.at[lane_of(i, j)][register_of(i, j)] = s.sum[i * s.n + j];
    }
    w->sums.swap(left);
}

static void finish_groups(void *const slots[32], uint32_t)
{
    struct warp *w = own_warp();
    unsigned end = w->group - *(const unsigned *)slots[0];

    multiply_until(w, end);
    give_back(w, end);
    std::vector<product> left;
    for (struct product &p : w->products)
        if ((int)(p.group - end) >= 0)
            left.push_back(p);
    w->products.swap(left);
}

void wgmma_wait(unsigned groups_left, const char *file, int line)
{
    meet_lanes("wgmma.wait_group", ~0u, &groups_left, finish_groups, file,
               line);
}

void begin_wgmma()
{
    for (struct warp &w : warps)
        w = warp();
}

void end_wgmma()
{
    for (unsigned i = 0; i < n_threads / 32; i++) {
        if (!warps[i].products.empty())
            fail("warp %u ended while wgmma is under way", i);
        if (warps[i].trace != warps[i / 4 * 4].trace)
            fail("warps %u and %u of a warpgroup did different wgmma or "
                 "setmaxnreg",
                 i / 4 * 4, i);
    }
}

} // namespace emu
