/* Inputs of products, rounded to the form of the weights, as floats: for roads
 * that take floats. Start at cpu_round_inputs(). */
#include "cpu/product.h"
#include "cpu/quant.h"

#include "base/num.h"

/* Rounds a row, or its groups one after the other. */
static void round_row(float *to, const float *x, int64_t k, enum cpu_form form)
{
    enum { PART = 512 };
    uint16_t narrow[PART];
    const int64_t part = form == CPU_BF16     ? PART
                         : form == CPU_GROUPS ? CPU_GROUP
                                              : k;

    for (int64_t l = 0; l < k; l += part) {
        const int64_t n = gpt_min_i64(k - l, part);

        if (form != CPU_BF16) {
            cpu_isa->round_bytes(to + l, x + l, n);
            continue;
        }
        cpu_isa->narrow(narrow, x + l, n);
        cpu_isa->widen(to + l, narrow, n);
    }
}

bool cpu_round_inputs(struct gpt_queue *q, struct cpu_product *p,
                      const struct gpt_quant *w)
{
    const enum cpu_form form = cpu_form_of(w) - CPU_ROUNDED;
    const float *x = p->a;
    const int64_t ldx = p->lda, k = p->k;
    float *to = cpu_rounded(q, (size_t)(p->m * k));

    if (!to)
        return false;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(p->m * k))
    for (int64_t i = 0; i < p->m; i++)
        round_row(to + i * k, x + i * ldx, k, form);
    p->a = to;
    p->lda = k;
    return true;
}
