/* Products of bf16 by the tile registers of AMX: see pair.h. A step multiplies
 * two tiles of a with two of b into four tiles of sums, 32 x 32 of c, which
 * stay in registers over all chunks. TDPBF16PS rounds to nearest even and takes
 * subnormal numbers for zero, whatever the thread's mode is. */
#include "cpu/pair/activation.h"
#include "cpu/pair/ahead.h"
#include "cpu/pair/finish.h"
#include "cpu/pair/pack.h"
#include "cpu/pair/scores.h"
#include "cpu/pair/tiles.h"

/* Configures all eight registers for 16 rows of 64 bytes. */
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

/* Releases the tiles: as long as they are in use the kernel saves 8 KiB at
 * every switch. */
static void release_tiles(void)
{
    __asm__ volatile("tilerelease" ::);
    stores_end();
}

/* What a chunk adds to 32 x 32 of c. Passing tiles are loaded by an instruction
 * that says that they are not used again: else they would drive the tiles that
 * stay out of the first cache. Tiles that stay take turns in one register: with
 * four registers of operands a product takes 1.05 to 1.3 times as long, most in
 * the slower of the two states of the core (tests/bench/RESULTS.md). */
static inline __attribute__((always_inline)) void
multiply_chunk(const uint16_t *a, const uint16_t *b, bool still_a)
{
    if (still_a) {
        TILE_PASS(6, b, tight);
        TILE_PASS(7, b + TILE, tight);
        TILE_LOAD(4, a, tight);
        TILE_DOT(0, 4, 6);
        TILE_DOT(1, 4, 7);
        TILE_LOAD(4, a + TILE, tight);
        TILE_DOT(2, 4, 6);
        TILE_DOT(3, 4, 7);
        return;
    }
    TILE_PASS(4, a, tight);
    TILE_PASS(5, a + TILE, tight);
    TILE_LOAD(6, b, tight);
    TILE_DOT(0, 4, 6);
    TILE_DOT(2, 5, 6);
    TILE_LOAD(6, b + TILE, tight);
    TILE_DOT(1, 4, 6);
    TILE_DOT(3, 5, 6);
}

static inline void load_sums(const struct sums *sums)
{
    const float *from = sums->from;
    int64_t stride = sums->ld_from * (int64_t)sizeof(*from);

    if (!from) {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
        return;
    }
    const float *below = from + 16 * sums->ld_from;
    TILE_LOAD(0, from, stride);
    TILE_LOAD(1, from + 16, stride);
    TILE_LOAD(2, below, stride);
    TILE_LOAD(3, below + 16, stride);
}

static inline void store_sums(const struct sums *sums)
{
    float *to = sums->to, *below = to + 16 * sums->ld_to;
    int64_t stride = sums->ld_to * (int64_t)sizeof(*to);

    TILE_STORE(0, to, stride);
    TILE_STORE(1, to + 16, stride);
    TILE_STORE(2, below, stride);
    TILE_STORE(3, below + 16, stride);
}

/* 32 x 32 of c. Odd panels go from the last chunk to the first: the first cache
 * holds the end of what stays when it cannot hold all. With panels of 24 chunks
 * this and the loads of what passes raise the share of the peak from 0.71 to
 * 0.95, and to 0.86 with the stores.
 *
 * The sums before these are finished meanwhile, a few rows at a time. Beside
 * tiles the processor has one vector instruction a cycle, 64 a chunk, as many
 * as a row and a half with GELU take: with GELU two rows at a time raise the
 * share of the peak from 0.48 to 0.54, while other rows, of few instructions,
 * come best four at a time. */
static inline int64_t rows_at_once(const struct finishing *due)
{
    const bool curved =
        due->rows > 0 && due->way->epilogue >= GPT_EPI_BIAS_GELU;

    return curved ? 2 : 4;
}

static inline __attribute__((always_inline)) void
multiply_panels(const struct cpu_pair_sweep *s, int64_t panel,
                const uint16_t *a, const uint16_t *b, const struct sums *sums,
                struct finishing *due, bool still_a)
{
    const int64_t piece = rows_at_once(due), pieces = PAIR_PANEL / piece;
    const int64_t every = s->chunks > pieces ? s->chunks / pieces : 1;
    int64_t next = PAIR_VALUES, wait = every;
    struct ahead to = ahead_of(s, panel);

    if (!s->one_order && ((panel + s->odd) & 1)) {
        a += (s->chunks - 1) * PAIR_VALUES;
        b += (s->chunks - 1) * PAIR_VALUES;
        next = -PAIR_VALUES;
    }
    load_sums(sums);
    for (int64_t i = 0; i < s->chunks; i++, a += next, b += next) {
        multiply_chunk(a, b, still_a);
        fetch_ahead(s, &to);
        if (due->rows > 0 && --wait == 0) {
            finish_rows(due, piece);
            wait = every;
        }
    }
    store_sums(sums);
    finish_rows(due, due->rows);
}

/* Tile registers stay configured between sweeps: a unit that is released needs
 * microseconds to come to its full rate again. */
static void multiply_by_tiles(const struct cpu_pair_sweep *s)
{
    /* Sums of one panel are stored while those before are still read. */
    _Alignas(64) float room[2][PAIR_PANEL * PAIR_PANEL];
    struct finishing due = {.rows = 0};

    for (int64_t i = 0; i < s->panels; i++) {
        const uint16_t *pass = s->pass + i * s->step;
        const struct sums sums = sums_of(s, i, room[i & 1]);

        if (s->still_a)
            multiply_panels(s, i, s->still, pass, &sums, &due, true);
        else
            multiply_panels(s, i, pass, s->still, &sums, &due, false);
        if (s->finish)
            due = finishing_of(s, i, sums.to);
    }
    finish_rows(&due, due.rows);
}

const struct cpu_pairs cpu_pairs_amx = {
    "amx", configure_tiles, release_tiles, pack_band, multiply_by_tiles,
    softmax_scores, grad_scores, store_queries, dot_pairs,
    activate_pairs};
