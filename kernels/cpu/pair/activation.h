/* Activations of rows of bf16, and their gradients, by the curves that
 * epilogues use. Start at activate_pairs(). */
#ifndef GPT_KERNELS_CPU_PAIR_ACTIVATION_H
#define GPT_KERNELS_CPU_PAIR_ACTIVATION_H

#include "cpu/pair/curves.h"
#include "cpu/pair/finish.h"

#ifdef __AVX512BF16__ /* as in the files that use it */

static inline struct curve curve_of(vf x, enum gpt_activation kind)
{
    return kind == GPT_SILU ? silu_curve((__m512)x) : gelu_curve((__m512)x);
}

/* `kind`, `gated` and `backward` are constants in every call, so that each
 * compiles to straight code. The end of a row runs the same code among zeros:
 * a value's bits do not depend on its place. */
static inline __attribute__((always_inline)) void
activate_run(const struct cpu_pair_activation *o, enum gpt_activation kind,
             bool gated, bool backward)
{
    for (int64_t j = 0; j < o->n; j += 32) {
        const __mmask32 lanes =
            o->n - j < 32 ? (1U << (o->n - j)) - 1 : 0xffffffff;
        vf x[2], up[2] = {{0}, {0}}, dy[2] = {{0}, {0}}, dup[2];

        wide_of(x, o->x + j, lanes);
        if (gated)
            wide_of(up, o->up + j, lanes);
        if (backward)
            wide_of(dy, o->dy + j, lanes);
        for (int half = 0; half < 2; half++) {
            const struct curve c = curve_of(x[half], kind);
            const vf y = x[half] * (vf)c.s;

            dup[half] = dy[half] * y;
            x[half] = backward ? dy[half] * (vf)c.slope : y;
            if (gated)
                x[half] *= up[half];
        }
        store_narrow(o->to + j, narrowed(x), lanes, false);
        if (backward && gated)
            store_narrow(o->dup + j, narrowed(dup), lanes, false);
    }
}

static inline __attribute__((always_inline)) void
activate_kind(const struct cpu_pair_activation *o, enum gpt_activation kind)
{
    if (o->up && o->dy)
        activate_run(o, kind, true, true);
    else if (o->up)
        activate_run(o, kind, true, false);
    else if (o->dy)
        activate_run(o, kind, false, true);
    else
        activate_run(o, kind, false, false);
}

static bool activate_pairs(const struct cpu_pair_activation *o)
{
    switch (o->kind) {
    case GPT_GELU:
        activate_kind(o, GPT_GELU);
        return true;
    case GPT_SILU:
        activate_kind(o, GPT_SILU);
        return true;
    default:
        return false;
    }
}

#endif
#endif
