/* The instructions of AMX's tile registers. Each register has 16 rows of 64
 * bytes, as configure_tiles() of amx.c says. */
#ifndef GPT_KERNELS_CPU_PAIR_TILES_H
#define GPT_KERNELS_CPU_PAIR_TILES_H

#include <stdint.h>

/* The compiler's intrinsics do not say which memory they read: stores before
 * them could come late. */
#define TILE_LOAD(tile, from, stride)                                         \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile                       \
                     :                                                        \
                     : "r"(from), "r"(stride)                                 \
                     : "memory")
#define TILE_PASS(tile, from, stride)                                         \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #tile                     \
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
/* of signed bytes, with sums of 32 bits */
#define TILE_DOT_BYTES(c, a, b)                                               \
    __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

/* the same, the bytes of a without a sign */
#define TILE_DOT_DIGITS(c, a, b)                                              \
    __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

static const int64_t tight = 64; /* bytes between the rows of a packed tile */

#endif
