/* The size of a product's tile: MR x NV vectors of sums stay in registers,
 * with NV of b and one of a beside them: 15 of 16 registers (AVX2), 27 of 32
 * (AVX-512), 11 of 16 (SSE2). NEON has 32, too, but there the compiler loads
 * several of a ahead, so that 12 rows do not fit; 8 do. */
#ifndef GPT_KERNELS_CPU_TILE_H
#define GPT_KERNELS_CPU_TILE_H

#include "cpu/isa/simd.h"

#if defined(__AVX512F__)
enum { MR = 12 };
#elif defined(__aarch64__)
enum { MR = 8 };
#elif defined(__AVX2__)
enum { MR = 6 };
#else
enum { MR = 4 };
#endif
enum { NV = 2, NR = NV * W };

#endif
