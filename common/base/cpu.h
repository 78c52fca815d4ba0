/* Instruction sets that the vector loops are compiled for. */
#ifndef GPT_BASE_CPU_H
#define GPT_BASE_CPU_H

#include <stdbool.h>

/* True when this processor (with its operating system) and the build have
 * "avx512", "avx2" or "base"; "base" is always there. */
bool gpt_cpu_has(const char *isa);

/* The best of the three. */
const char *gpt_cpu_isa(void);

#endif
