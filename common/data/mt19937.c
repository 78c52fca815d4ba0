/* MT19937 as numpy's RandomState uses it. Start at gpt_mt19937_shuffle(). */
#include "data/mt19937.h"

#include <assert.h>

enum { N = 624, M = 397 };

void gpt_mt19937_seed(struct gpt_mt19937 *mt, uint32_t seed)
{
    mt->key[0] = seed;
    for (uint32_t i = 1; i < N; i++) {
        uint32_t before = mt->key[i - 1];

        mt->key[i] = UINT32_C(1812433253) * (before ^ before >> 30) + i;
    }
    mt->next = N;
}

/* -(y & 1) is all ones or zero: no branch on a random bit. */
static uint32_t twist(uint32_t high, uint32_t low)
{
    uint32_t y = (high & UINT32_C(0x80000000)) | (low & UINT32_C(0x7fffffff));

    return y >> 1 ^ (-(y & 1) & UINT32_C(0x9908b0df));
}

/* Renews all 624 words in place. The recurrence reads words that were already
 * renewed; the loop is cut where the index wraps. */
static void generate(struct gpt_mt19937 *mt)
{
    uint32_t *k = mt->key;
    int i = 0;

    for (; i < N - M; i++)
        k[i] = k[i + M] ^ twist(k[i], k[i + 1]);
    for (; i < N - 1; i++)
        k[i] = k[i + M - N] ^ twist(k[i], k[i + 1]);
    k[N - 1] = k[M - 1] ^ twist(k[N - 1], k[0]);
    mt->next = 0;
}

uint32_t gpt_mt19937_u32(struct gpt_mt19937 *mt)
{
    if (mt->next == N)
        generate(mt);
    uint32_t y = mt->key[mt->next++];
    y ^= y >> 11;
    y ^= y << 7 & UINT32_C(0x9d2c5680);
    y ^= y << 15 & UINT32_C(0xefc60000);
    return y ^ y >> 18;
}

/* numpy draws j from [0, i] by taking words under the smallest mask that covers
 * i until one fits. Which elements are swapped does not depend on them, so that
 * partners are drawn ahead, without a branch that no processor predicts, and
 * prefetched: a large array misses the cache at every swap. */
void gpt_mt19937_shuffle(struct gpt_mt19937 *mt, uint32_t *a, int64_t n)
{
    enum { AHEAD = 64 };
    uint32_t partner[AHEAD];

    assert(n <= INT64_C(1) << 32); /* partners are 32-bit words */
    for (int64_t i = n - 1; i > 0;) {
        int64_t some = i < AHEAD ? i : AHEAD;

        for (int64_t k = 0; k < some;) {
            uint32_t max = (uint32_t)(i - k);
            uint32_t j = gpt_mt19937_u32(mt) & UINT32_MAX >>
                                                   __builtin_clz(max);

            partner[k] = j;
            __builtin_prefetch(&a[j], 1);
            /* A word that does not fit is drawn again: the same k. */
            k += j <= max;
        }
        for (int64_t k = 0; k < some; k++, i--) {
            uint32_t swap = a[i];

            a[i] = a[partner[k]];
            a[partner[k]] = swap;
        }
    }
}
