/* Matrix instructions: each is a meeting of 32 lanes, computed when the last
 * lane has come. cp.async copies late, so that a missing wait reads NaN, or at
 * once, so that a tile still in use is overwritten. */
#include "kernels/emu/threads.h"

#include <utility>

namespace emu {

/* ---- mma ---- */

struct fragments {
    float *d;
    const uint32_t *a, *b;
};

static uint16_t half_of(uint32_t pair, unsigned i)
{
    return (uint16_t)(pair >> 16 * i);
}

/* A lane's place in slots. */
static const struct fragments &lane(void *const slots[32], unsigned l)
{
    return *(const struct fragments *)slots[l];
}

/* Elements (row, k) of a and (k, column) of b. Lane l holds rows l / 4 and
 * l / 4 + 8 and pairs of columns from l % 4 * 2 on; two elements of 16 bits
 * share a register, the lower first. That is the layout of mma.m16n8k16 in
 * NVIDIA's PTX ISA. */
template <float (*widen)(uint16_t)> struct pairs {
    enum { K = 16 };
    static float a(void *const slots[32], unsigned row, unsigned k)
    {
        const struct fragments &f = lane(slots, row % 8 * 4 + k % 8 / 2);

        return widen(half_of(f.a[row / 8 + k / 8 * 2], k % 2));
    }
    static float b(void *const slots[32], unsigned k, unsigned column)
    {
        const struct fragments &f = lane(slots, column * 4 + k % 8 / 2);

        return widen(half_of(f.b[k / 8], k % 2));
    }
};

/* The same of mma.m16n8k8 with factors of TF32: a register holds one. What
 * lies in its lower bits is not defined to be passed over. */
struct floats {
    enum { K = 8 };
    static float of(uint32_t bits)
    {
        float x;

        if (bits & 0x1fff)
            fail("mma of TF32 has a factor with other bits, %08x", bits);
        memcpy(&x, &bits, sizeof(x));
        return x;
    }
    static float a(void *const slots[32], unsigned row, unsigned k)
    {
        return of(lane(slots, row % 8 * 4 + k % 4).a[row / 8 + k / 4 * 2]);
    }
    static float b(void *const slots[32], unsigned k, unsigned column)
    {
        return of(lane(slots, column * 4 + k % 4).b[k / 4]);
    }
};

/* Element (row, column) of d, of all types. */
static float *d_at(void *const slots[32], unsigned row, unsigned column)
{
    return &lane(slots, row % 8 * 4 + column / 2).d[row / 8 * 2 + column % 2];
}

template <class F> static void multiply_fragments(void *const slots[32], uint32_t)
{
    float a[16][F::K], b[8][F::K];

    for (unsigned k = 0; k < F::K; k++) {
        for (unsigned i = 0; i < 16; i++)
            a[i][k] = F::a(slots, i, k);
        for (unsigned j = 0; j < 8; j++)
            b[j][k] = F::b(slots, k, j);
    }
    for (unsigned i = 0; i < 16; i++)
        for (unsigned j = 0; j < 8; j++) {
            float sum = 0;

            for (unsigned k = 0; k < F::K; k++)
                sum += a[i][k] * b[j][k];
            /* The hardware's order is not documented: kernels' tests have to
             * allow for any. d is added last, as the sum of K products is one
             * step. */
            *d_at(slots, i, j) += sum;
        }
}

typedef void multiply(void *const slots[32], uint32_t);
static multiply *const products[] = {
    multiply_fragments<pairs<gpt_f16_to_f32>>,
    multiply_fragments<pairs<gpt_bf16_to_f32>>,
    multiply_fragments<floats>,
};

/* The same product for a warp whose lanes are no fibers. */
void mma_of_warp(float (*d)[4], const uint32_t (*a)[4], const uint32_t (*b)[2],
                 enum mma_type type)
{
    struct fragments lanes[32];
    void *slots[32];

    for (unsigned l = 0; l < 32; l++) {
        lanes[l] = {d[l], a[l], b[l]};
        slots[l] = &lanes[l];
    }
    products[type](slots, ~0u);
}

static void mma(enum mma_type type, float d[4], const uint32_t a[4],
                const uint32_t b[2], const char *file, int line)
{
    struct fragments f = {d, a, b};

    meet_lanes("mma", ~0u, &f, products[type], file, line);
}

void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2],
             const char *file, int line)
{
    mma(MMA_F16, d, a, b, file, line);
}

void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2],
              const char *file, int line)
{
    mma(MMA_BF16, d, a, b, file, line);
}

void mma_tf32(float d[4], const uint32_t a[4], const uint32_t b[2],
              const char *file, int line)
{
    mma(MMA_TF32, d, a, b, file, line);
}

/* ---- ldmatrix ---- */

struct rows {
    const void *row;
    uint32_t out[4];
    int n;
    bool transposed;
};

static void load_rows(void *const slots[32], uint32_t)
{
    for (unsigned l = 0; l < 32; l++) {
        struct rows *r = (struct rows *)slots[l];

        for (unsigned m = 0; m < (unsigned)r->n; m++) {
            uint16_t pair[2];

            for (unsigned k = 0; k < 2; k++) {
                unsigned row = l / 4, column = l % 4 * 2 + k;

                if (r->transposed)
                    std::swap(row, column);
                /* Lane 8 m + r brings the address of row r of matrix m. */
                struct rows *owner = (struct rows *)slots[m * 8 + row];
                memcpy(&pair[k], (const uint16_t *)owner->row + column, 2);
            }
            r->out[m] = (uint32_t)pair[0] | (uint32_t)pair[1] << 16;
        }
    }
}

void ldmatrix(uint32_t *to, int n, bool transposed, const void *row,
              const char *file, int line)
{
    /* Each lane's address, though only 8 n of them are used: as the PTX manual
     * demands. */
    check_aligned(row, 16, file, line);
    struct rows r = {row, {0, 0, 0, 0}, n, transposed};
    meet_lanes("ldmatrix", ~0u, &r, load_rows, file, line);
    memcpy(to, r.out, (size_t)n * sizeof(*to));
}

/* ---- cp.async ---- */

static void do_copy(const async_copy &c)
{
    memcpy(c.to, c.from, c.bytes);
    memset((char *)c.to + c.bytes, 0, c.zeros);
}

void copy_async(void *to, const void *from, size_t bytes, const char *file,
                int line)
{
    check_aligned(to, 16, file, line);
    check_aligned(from, 16, file, line);
    /* Until the wait, the destination keeps what it held: NaN, or the tile of
     * the step before. */
    now->copies.push_back({to, from, bytes, 16 - bytes, now->group});
    if (copies_at_once)
        do_copy(now->copies.back());
}

void copy_commit()
{
    now->group++;
}

void copy_wait(unsigned groups_left)
{
    /* A copy of another group than the newest `groups_left` must be over. */
    std::vector<async_copy> later;
    for (const async_copy &c : now->copies) {
        if (c.group + groups_left >= now->group)
            later.push_back(c);
        else if (!copies_at_once)
            do_copy(c);
    }
    now->copies.swap(later);
}

} // namespace emu
