/* e^x of many numbers in double, the same bits on every machine: in the choice
 * of a token all of a vocabulary goes through it. */
#ifndef GPT_BASE_EXP_H
#define GPT_BASE_EXP_H

#include <stdint.h>

/* Numbers are taken in blocks of so many. */
enum { GPT_EXP_BLOCK = 64 };

/* How many blocks n numbers have. */
int64_t gpt_exp_blocks(int64_t n);

/* y[i] = e^((x[i] - shift) / by) of x (n), and sums[b] the sum of block b. y
 * has room for whole blocks; what is past n becomes 0. Within 1.1 units in the
 * last place (test_exp). Exponents must be at most 709; below -708 the result
 * is 0 (no subnormals), and NaN stays NaN. */
void gpt_exp_each(double *y, double *sums, const float *x, int64_t n,
                  double shift, double by);

/* The same with the loops of a set of instructions, by gpt_cpu_loops(), which
 * must be there: for tests. */
void gpt_exp_with(int isa, double *y, double *sums, const float *x, int64_t n,
                  double shift, double by);

/* The sum of e^(x[i] - shift) of x (n): that of the sums of blocks above. */
double gpt_exp_sum(const float *x, int64_t n, double shift);

#endif
