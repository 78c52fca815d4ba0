/* The machine's own limits, by loops that do nothing else: fused multiply-adds,
 * products of pairs, of bytes and of tiles, on one core and on all, and
 * streaming on one core (on all: bench.h). They are floors of what a library's
 * figure cannot be. Start at peak_rate(). */
#ifndef GPT_TESTS_PEAK_H
#define GPT_TESTS_PEAK_H

#include "base/cpu.h"
#include "tests/bench/bench.h"

enum peak_kind { PEAK_FMA, PEAK_PAIRS, PEAK_BYTES, PEAK_TILES };

#ifdef __x86_64__
/* Twelve chains: more than the eight that two units of four cycles need. */
#define PEAK_ALL(x, r)                                                        \
    x(r, 0) x(r, 1) x(r, 2) x(r, 3) x(r, 4) x(r, 5) x(r, 6) x(r, 7) x(r, 8)   \
    x(r, 9) x(r, 10) x(r, 11)
#define PEAK_FMA_ONE(r, i)                                                    \
    "vfmadd231ps %%" r "mm15, %%" r "mm14, %%" r "mm" #i "\n\t"
#define PEAK_PAIRS_ONE(r, i)                                                  \
    "vdpbf16ps %%" r "mm15, %%" r "mm14, %%" r "mm" #i "\n\t"
#define PEAK_BYTES_ONE(r, i)                                                  \
    "vpdpbusd %%" r "mm15, %%" r "mm14, %%" r "mm" #i "\n\t"
#define PEAK_CLOBBERS                                                         \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",   \
        "xmm9", "xmm10", "xmm11", "xmm14", "xmm15"

/* Registers hold zeros: what was in them could be slow. */
#define PEAK_LOOP(name, r, one)                                               \
    static void name(int64_t n)                                               \
    {                                                                         \
        __asm__ volatile("vxorps %%xmm14, %%xmm14, %%xmm14\n\t"               \
                         "vxorps %%xmm15, %%xmm15, %%xmm15\n\t"               \
                         "1:\n\t" PEAK_ALL(one, r) "dec %0\n\t"               \
                         "jnz 1b"                                             \
                         : "+r"(n)                                            \
                         :                                                    \
                         : PEAK_CLOBBERS, "cc");                              \
    }
PEAK_LOOP(peak_fma_512, "z", PEAK_FMA_ONE)
PEAK_LOOP(peak_fma_256, "y", PEAK_FMA_ONE)
PEAK_LOOP(peak_pairs, "z", PEAK_PAIRS_ONE)
PEAK_LOOP(peak_bytes, "z", PEAK_BYTES_ONE)

static void peak_tiles(int64_t n)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};

    for (int i = 0; i < 8; i++) {
        shape.row_bytes[i] = 64;
        shape.rows[i] = 16;
    }
    __asm__ volatile("ldtilecfg %1\n\t"
                     "1:\n\t"
                     "tdpbf16ps %%tmm7, %%tmm6, %%tmm0\n\t"
                     "tdpbf16ps %%tmm7, %%tmm6, %%tmm1\n\t"
                     "tdpbf16ps %%tmm7, %%tmm6, %%tmm2\n\t"
                     "tdpbf16ps %%tmm7, %%tmm6, %%tmm3\n\t"
                     "tdpbf16ps %%tmm7, %%tmm6, %%tmm4\n\t"
                     "dec %0\n\t"
                     "jnz 1b\n\t"
                     "tilerelease"
                     : "+r"(n)
                     : "m"(shape)
                     : "cc");
}

/* A loop and what one round of it computes. */
struct peak_loop {
    void (*run)(int64_t n);
    double flop;
};

static struct peak_loop peak_loop(enum peak_kind kind)
{
    static const struct peak_loop none = {NULL, 0};
    bool wide = gpt_cpu_has("avx512");

    if (kind == PEAK_FMA && (wide || gpt_cpu_has("avx2")))
        return (struct peak_loop){wide ? peak_fma_512 : peak_fma_256,
                                  12 * (wide ? 32 : 16)};
    if (kind == PEAK_PAIRS && gpt_cpu_has("avx512bf16"))
        return (struct peak_loop){peak_pairs, 12 * 64};
    if (kind == PEAK_BYTES && gpt_cpu_has("avx512vnni"))
        return (struct peak_loop){peak_bytes, 12 * 128};
    if (kind == PEAK_TILES && gpt_cpu_has("amx"))
        return (struct peak_loop){peak_tiles, 5 * 2 * 16 * 16 * 32};
    return none;
}
#else
struct peak_loop {
    void (*run)(int64_t n);
    double flop;
};

static struct peak_loop peak_loop(enum peak_kind kind)
{
    (void)kind;
    return (struct peak_loop){NULL, 0};
}
#endif

/* FLOP/s of one round of about 50 microseconds on each of `threads` cores, from
 * the first's start to the last's end; 0 where the processor has no such
 * instruction. Rounds are short so that some of them are not interrupted. */
__attribute__((unused)) static double peak_round(enum peak_kind kind,
                                                 int threads)
{
    struct peak_loop loop = peak_loop(kind);
    int64_t n = kind == PEAK_TILES ? 2000 : 30000;
    double begin = 0, end = 0;

    if (!loop.run)
        return 0;
#pragma omp parallel num_threads(threads)
    {
#pragma omp barrier
#pragma omp master
        begin = bench_clock();
        loop.run(n);
#pragma omp barrier
#pragma omp master
        end = bench_clock();
    }
    return loop.flop * (double)n * threads / (end - begin);
}

/* The best of `rounds`. */
__attribute__((unused)) static double peak_rate(enum peak_kind kind,
                                                int threads, int rounds)
{
    double best = 0;

    for (int i = 0; i < rounds; i++)
        best = fmax(best, peak_round(kind, threads));
    return best;
}

#endif
