/* See many.h. Nothing in a step branches on the text but the end of a piece.
 * Start at merge_many(). */
#include "tokenizer/bpe/many.h"

#include "base/cpu.h"
#include "tokenizer/pretok_vector.h"

#include <assert.h>
#include <string.h>

/* Ranks are kept with their places in the low bits: the lowest rank, and of
 * equal ones the leftmost, is a plain minimum. */
enum { PLACE_BITS = 4, PLACES = 1 << PLACE_BITS };
_Static_assert(GPT_BPE_MANY_BYTES + 1 == PLACES, "a place fits beside a rank");
_Static_assert(GPT_RANK_BITS + PLACE_BITS < 32, "and they fit into 32 bits");

/* Puts the place into a rank. GPT_NO_RANK, which has all bits, stays the
 * largest of all. */
static inline uint32_t place_rank(uint32_t rank, uint32_t place)
{
    return rank << PLACE_BITS | place | -(uint32_t)(rank == GPT_NO_RANK);
}

void gpt_bpe_piece_begin(struct gpt_bpe_piece *p, const struct gpt_pairs *t,
                         const char *text, size_t len)
{
    const uint8_t *byte = (const uint8_t *)text;

    assert(len >= 1 && len <= GPT_BPE_MANY_BYTES);
    memset(p->low, 0xFF, sizeof(p->low));
    p->left = ((uint32_t)4 << len) - 1;
    p->id[0] = p->id[len + 1] = -1;
    p->id[len] = t->byte_id[byte[len - 1]];
    for (uint32_t i = 1; i < len; i++) {
        p->id[i] = t->byte_id[byte[i - 1]];
        p->low[i] = place_rank(
            t->byte_rank[(unsigned)byte[i - 1] << 8 | byte[i]], i);
    }
}

size_t gpt_bpe_piece_ids(const struct gpt_bpe_piece *p, int32_t *ids)
{
    size_t n = 0;
    /* without the ends, which are the lowest bit and the highest */
    uint32_t left = p->left & (p->left - 1);

    for (; left & (left - 1); left &= left - 1)
        ids[n++] = p->id[__builtin_ctz(left)];
    return n;
}

/* Merges the pair `least`, and has the words of the two pairs that come of it
 * fetched. */
GPT_INLINE void merge_pair(struct gpt_bpe_piece *p, const struct gpt_pairs *t,
                           uint32_t least)
{
    const uint32_t at = least % PLACES;
    uint32_t after = p->left & (~(uint32_t)1 << at);
    const uint32_t gone = (uint32_t)__builtin_ctz(after);
    const uint32_t before = p->left & (((uint32_t)1 << at) - 1);
    const uint32_t to = 31 - (uint32_t)__builtin_clz(before);
    const int32_t id = gpt_pairs_result(t, least >> PLACE_BITS);

    after &= after - 1;
    p->left ^= (uint32_t)1 << gone;
    p->low[gone] = GPT_NO_RANK;
    p->id[at] = id;
    p->at[0] = at;
    p->at[1] = to;
    p->name[0] = gpt_pair_name(id, p->id[__builtin_ctz(after)]);
    p->name[1] = gpt_pair_name(p->id[to], id);
    for (int i = 0; i < 2; i++) {
        p->place[i] = gpt_pair_place(t, p->name[i]);
        __builtin_prefetch(&t->table[p->place[i]]);
    }
}

typedef uint32_t lowest_fn(const uint32_t *low);
typedef uint32_t rank_fn(const struct gpt_pairs *t, size_t place,
                         uint64_t name);

/* Every piece that has a pair left merges it, then all take the ranks of the
 * new pairs; and so on until none is left. */
GPT_INLINE void merge_many(struct gpt_bpe_piece *pieces, size_t n,
                           const struct gpt_pairs *t, lowest_fn *lowest,
                           rank_fn *rank_of)
{
    struct gpt_bpe_piece *busy[GPT_BPE_MANY];

    assert(n <= GPT_BPE_MANY);
    for (size_t i = 0; i < n; i++)
        busy[i] = &pieces[i];
    while (n) {
        size_t kept = 0;

        for (size_t i = 0; i < n; i++) {
            const uint32_t least = lowest(busy[i]->low);

            if (least == GPT_NO_RANK)
                continue;
            merge_pair(busy[i], t, least);
            busy[kept++] = busy[i];
        }
        n = kept;
        for (size_t i = 0; i < n; i++) {
            struct gpt_bpe_piece *p = busy[i];

            for (int k = 0; k < 2; k++)
                p->low[p->at[k]] = place_rank(
                    rank_of(t, p->place[k], p->name[k]), p->at[k]);
        }
    }
}

/* ---- instruction sets ---- */

static inline uint32_t rank_base(const struct gpt_pairs *t, size_t place,
                                 uint64_t name)
{
    return gpt_pair_rank_of(*gpt_pairs_find(t, place, name));
}

static inline uint32_t lowest_base(const uint32_t *low)
{
    uint32_t least = low[0];

    for (int i = 1; i < PLACES; i++)
        least = low[i] < least ? low[i] : least;
    return least;
}

static void many_base(struct gpt_bpe_piece *pieces, size_t n,
                      const struct gpt_pairs *t)
{
    merge_many(pieces, n, t, lowest_base, rank_base);
}

#ifdef GPT_X86_VECTORS
static inline GPT_AVX2 __m256i load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline GPT_AVX2 uint32_t lowest_avx2(const uint32_t *low)
{
    const __m256i eight = _mm256_min_epu32(load(low), load(low + 8));
    __m128i four = _mm_min_epu32(_mm256_castsi256_si128(eight),
                                 _mm256_extracti128_si256(eight, 1));

    four = _mm_min_epu32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_min_epu32(four, _mm_shuffle_epi32(four, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(four);
}

static inline GPT_AVX2 unsigned top_bits(__m256i words)
{
    return (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(words));
}

/* The rank of a pair, or GPT_NO_RANK. `found` marks the words of a line that
 * hold the pair, `unused` those that are free. Where all hold other pairs, the
 * next lines are searched as well, which is rare. */
static inline uint32_t rank_in_line(const struct gpt_pairs *t, size_t place,
                                    uint64_t name, unsigned found,
                                    unsigned unused)
{
    const uint64_t *line =
        &t->table[place & ~(size_t)(GPT_PAIR_LINE - 1)];

    if (__builtin_expect((found | unused) == 0, 0))
        return gpt_pair_rank_of(*gpt_pairs_find(t, place, name));
    return (uint32_t)(line[__builtin_ctz(found | 1 << 7)] &
                      (((uint64_t)1 << GPT_RANK_BITS) - 1)) |
           -(uint32_t)(found == 0);
}

/* Compares all words of a line at once. */
static inline GPT_AVX2 uint32_t rank_avx2(const struct gpt_pairs *t,
                                          size_t place, uint64_t name)
{
    const uint64_t *line =
        &t->table[place & ~(size_t)(GPT_PAIR_LINE - 1)];
    const __m256i this = _mm256_set1_epi64x((int64_t)name);
    const __m256i none = _mm256_set1_epi64x(-1);
    const __m256i a = load(line), b = load(line + 4);
    const __m256i free_a = _mm256_cmpeq_epi64(a, none);
    const __m256i free_b = _mm256_cmpeq_epi64(b, none);
    /* a free word looks like the pair of the two largest ids */
    const __m256i found_a = _mm256_andnot_si256(
        free_a, _mm256_cmpeq_epi64(_mm256_srli_epi64(a, GPT_RANK_BITS), this));
    const __m256i found_b = _mm256_andnot_si256(
        free_b, _mm256_cmpeq_epi64(_mm256_srli_epi64(b, GPT_RANK_BITS), this));

    return rank_in_line(t, place, name,
                        top_bits(found_a) | top_bits(found_b) << 4,
                        top_bits(_mm256_or_si256(free_a, free_b)));
}

static GPT_AVX2 void many_avx2(struct gpt_bpe_piece *pieces, size_t n,
                               const struct gpt_pairs *t)
{
    merge_many(pieces, n, t, lowest_avx2, rank_avx2);
}

static inline GPT_AVX512 uint32_t rank_avx512(const struct gpt_pairs *t,
                                              size_t place, uint64_t name)
{
    const __m512i line = _mm512_loadu_si512(
        &t->table[place & ~(size_t)(GPT_PAIR_LINE - 1)]);
    const unsigned unused =
        _mm512_cmpeq_epi64_mask(line, _mm512_set1_epi64(-1));
    const unsigned found = _mm512_cmpeq_epi64_mask(
        _mm512_srli_epi64(line, GPT_RANK_BITS),
        _mm512_set1_epi64((int64_t)name));

    return rank_in_line(t, place, name, found & ~unused, unused);
}

static GPT_AVX512 void many_avx512(struct gpt_bpe_piece *pieces, size_t n,
                                   const struct gpt_pairs *t)
{
    merge_many(pieces, n, t, lowest_avx2, rank_avx512);
}
#else
#define many_avx2 NULL
#define many_avx512 NULL
#endif

gpt_bpe_many_fn *gpt_bpe_many_of(const char *isa)
{
    return strcmp(isa, "avx512") == 0 && gpt_cpu_has(isa) ? many_avx512
           : strcmp(isa, "base") != 0 && gpt_cpu_has("avx2")
               ? many_avx2
               : many_base;
}
