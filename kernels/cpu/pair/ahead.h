/* Memory that a sweep fetches (see cpu_pair_ahead), a few lines beside each
 * chunk of its products. Start at ahead_of(). */
#ifndef GPT_KERNELS_CPU_PAIR_AHEAD_H
#define GPT_KERNELS_CPU_PAIR_AHEAD_H

#include "base/num.h"
#include "cpu/pair/pair.h"

/* Lines that are fetched beside a panel's products, one or two a chunk, since
 * a burst would hold up the products' own loads: of rows that are read with its
 * sums, a few a chunk until all 32 are asked for, and of what comes after. */
struct ahead {
    const char *beside[2], *read;
    int64_t rows, left; /* of beside: a chunk; chunks that have some */
};

static inline struct ahead ahead_of(const struct cpu_pair_sweep *s,
                                    int64_t panel)
{
    struct ahead to = {.rows = gpt_ceil_div(PAIR_PANEL, s->chunks)};

    to.left = s->beside[0].mem ? PAIR_PANEL / to.rows : 0;
    for (int w = 0; w < 2; w++)
        if (s->beside[w].mem)
            to.beside[w] = s->beside[w].mem + panel * s->beside[w].next;
    if (s->read.mem && panel * s->read_rows < PAIR_PANEL)
        to.read = s->read.mem + panel * s->read.next;
    return to;
}

static inline __attribute__((always_inline)) void
fetch_ahead(const struct cpu_pair_sweep *s, struct ahead *to)
{
    for (int64_t r = 0; to->left > 0 && r < to->rows; r++) {
        __builtin_prefetch(to->beside[0]);
        to->beside[0] += s->beside[0].ld;
        if (to->beside[1]) {
            __builtin_prefetch(to->beside[1]);
            to->beside[1] += s->beside[1].ld;
        }
    }
    to->left--;
    if (!to->read)
        return;
    for (int64_t r = 0; r < s->read_rows; r++)
        __builtin_prefetch(to->read + r * s->read.ld, 0, 2);
    to->read += s->read_step;
}

#endif
