/* The instruction set that kernels are to use. */
#ifndef GPT_BASE_CPU_H
#define GPT_BASE_CPU_H

/* "avx512", "avx2" or "base": the best that both the build (GPT_HAVE_ISA_*)
 * and this processor with its operating system have. */
const char *gpt_cpu_isa(void);

#endif
