/* Products of bf16 by the tile registers of AMX: see pair.h. A step multiplies
 * two tiles of a with two of b into four tiles of sums, 32 x 32 of c, which
 * stay in registers over all chunks. TDPBF16PS rounds to nearest even and takes
 * subnormal numbers for zero, whatever the thread's mode is. */
#include "cpu/pair/pack.h"

/* The compiler's intrinsics do not say which memory they read: stores before
 * them could come late. */
#define TILE_LOAD(tile, from, stride)                                         \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile                       \
                     :                                                        \
                     : "r"(from), "r"(stride)                                 \
                     : "memory")
#define TILE_STORE(tile, to, stride)                                          \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)"                   \
                     :                                                        \
                     : "r"(to), "r"(stride)                                   \
                     : "memory")
#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define TILE_DOT(c, a, b)                                                     \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

enum { TILE = PAIR_VALUES / 2 };
static const int64_t tight = 64; /* bytes between the rows of a packed tile */

/* All eight registers hold 16 rows of 64 bytes. */
static void configure_tiles(void)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};

    for (int i = 0; i < 8; i++) {
        shape.row_bytes[i] = 64;
        shape.rows[i] = 16;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(shape));
}

/* Tiles that are in use make the kernel save 8 KiB at every switch. */
static void release_tiles(void)
{
    __asm__ volatile("tilerelease" ::);
}

/* 32 x 32 of c. */
static inline void multiply_panels(const uint16_t *a, const uint16_t *b,
                                   int64_t chunks, float *c, int64_t ldc,
                                   bool add)
{
    int64_t stride = ldc * (int64_t)sizeof(*c);
    float *below = c + 16 * ldc;

    if (add) {
        TILE_LOAD(0, c, stride);
        TILE_LOAD(1, c + 16, stride);
        TILE_LOAD(2, below, stride);
        TILE_LOAD(3, below + 16, stride);
    } else {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
    for (int64_t i = 0; i < chunks; i++) {
        TILE_LOAD(6, b, tight);
        TILE_LOAD(4, a, tight);
        TILE_DOT(0, 4, 6);
        TILE_LOAD(7, b + TILE, tight);
        TILE_DOT(1, 4, 7);
        TILE_LOAD(5, a + TILE, tight);
        TILE_DOT(2, 5, 6);
        TILE_DOT(3, 5, 7);
        a += PAIR_VALUES;
        b += PAIR_VALUES;
    }
    TILE_STORE(0, c, stride);
    TILE_STORE(1, c + 16, stride);
    TILE_STORE(2, below, stride);
    TILE_STORE(3, below + 16, stride);
}

/* A panel of a stays in the first cache while panels of b, in the second, pass
 * by. */
static void multiply_by_tiles(const struct cpu_pair_block *p)
{
    const uint16_t *a = p->a;

    configure_tiles();
    for (int64_t i = 0; i < p->m; i += PAIR_PANEL, a += p->a_step) {
        const uint16_t *b = p->b;

        for (int64_t j = 0; j < p->n; j += PAIR_PANEL, b += p->b_step)
            multiply_panels(a, b, p->chunks, p->c + i * p->ldc + j, p->ldc,
                            p->add);
    }
    release_tiles();
}

const struct cpu_pairs cpu_pairs_amx = {"amx", pack_band, multiply_by_tiles};
