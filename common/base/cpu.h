/* Instruction sets that the vector loops are compiled for. */
#ifndef GPT_BASE_CPU_H
#define GPT_BASE_CPU_H

#include "base/status.h"

#include <stdbool.h>

/* True when this processor (with its operating system) and the build have
 * "amx", "avx512bf16", "avx512vnni", "avx512" (each with what follows it),
 * "avx2vnni", "avx2" or "base"; "base" is always there. Asking for "amx" has
 * the kernel permit the process to use tile registers. */
bool gpt_cpu_has(const char *isa);

/* True when the processor has AMX's tile registers for bf16 and bytes, the
 * build has code for them, and the kernel permits this process to use them: it
 * is asked to. */
bool gpt_cpu_has_tiles(void);

/* True when the processor has AVX-VNNI, VPDPBUSD of 32 bytes without AVX-512.
 */
bool gpt_cpu_has_vnni(void);

/* GPT_CPU_ISA of the environment; NULL when it is not set, or empty. */
const char *gpt_cpu_named(void);

/* Refuses what GPT_CPU_ISA says: GPT_EUSAGE for a name that is none of those,
 * GPT_EDEVICE for a set that is not there. NULL is right: it says nothing. */
int gpt_cpu_check(const char *isa, struct gpt_err *err) GPT_MUST_USE;

/* The best set; not above GPT_CPU_ISA of the environment. */
const char *gpt_cpu_best(void);
/* The best of avx512, avx2 and base, for vector loops; not above GPT_CPU_ISA,
 * either. */
const char *gpt_cpu_isa(void);
/* The same as a number: 0 base, 1 avx2, 2 avx512. */
int gpt_cpu_loops(void);

#endif
