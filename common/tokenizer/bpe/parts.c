/* See parts.h. The form with the vectors of AVX-512 makes the keys of 16 pieces
 * at once: the window of 64 bytes that holds a stretch is a register, and one
 * permutation of its bytes puts eight pieces into eight words. Start at
 * add_vectors(). */
#include "tokenizer/bpe/parts.h"

#include "base/cpu.h"
#include "tokenizer/pretok_vector.h"

#include <string.h>

/* This is the loop that nearly all text goes through where there is none by
 * vectors: the check for the end of the text is made once, before it, and the
 * cache is copied so that the compiler may keep it in registers. */
size_t gpt_parts_add_short(struct gpt_parts *b, const struct gpt_cache *cache,
                           size_t base, size_t begin, const size_t *ends,
                           size_t n)
{
    const struct gpt_cache c = *cache;
    const char *text = b->text;
    const size_t first = b->begin;
    struct gpt_cache_key *keys = b->keys + b->n;
    uint32_t *places = b->places + b->n, *to = b->ends + b->n;
    size_t i = 0;

    n = n < GPT_PARTS - b->n ? n : GPT_PARTS - b->n;
    while (n && b->len - base < (n > 1 ? ends[n - 2] : begin - base) + 16)
        n--;
    for (; i < n; i++) {
        size_t end = base + ends[i], part = end - begin;

        if (__builtin_expect(part > GPT_CACHE_SHORT, 0))
            break;
        keys[i] = gpt_cache_key(text + begin, part);
        places[i] = gpt_cache_place(keys[i]);
        to[i] = (uint32_t)(end - first);
        __builtin_prefetch(gpt_cache_at(&c, places[i]));
        begin = end;
    }
    b->n += i;
    return i;
}

/* Each caller is a loop of its own, for one size of ids. */
GPT_INLINE size_t write_known(const struct gpt_parts *b,
                              const struct gpt_cache *c, size_t i, bool small,
                              int32_t **out)
{
    int32_t *to = *out;

    for (; i < b->n; i++) {
        const struct gpt_cache_entry *e =
            &gpt_cache_at(c, b->places[i])->entry[0];

        if (!gpt_cache_same(e->key, b->keys[i]))
            break;
        to += gpt_cache_copy(e, small, to);
    }
    *out = to;
    return i;
}

static size_t write_base(const struct gpt_parts *b, const struct gpt_cache *c,
                         size_t i, int32_t **out)
{
    return c->small ? write_known(b, c, i, true, out)
                    : write_known(b, c, i, false, out);
}

#ifdef GPT_X86_VECTORS

#define VBMI2                                                                  \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,"     \
                          "avx512vbmi2,bmi,bmi2,lzcnt,popcnt")))

static GPT_AVX2 size_t ends_avx2(const struct gpt_stretch *stretches, size_t n,
                                 size_t *ends)
{
    return gpt_store_ends(stretches, n, ends);
}

static inline GPT_AVX2 __m128i load(const void *p)
{
    return _mm_load_si128((const __m128i *)p);
}

static inline GPT_AVX2 size_t copy_avx2(const struct gpt_cache_entry *e,
                                        bool small, int32_t *to)
{
    const __m128i mask = _mm_setr_epi32(-1, -1, -1, 0x0FFFFFFF);

    if (small) {
        _mm256_storeu_si256((__m256i *)(void *)to,
                            _mm256_cvtepu16_epi32(load(e->small)));
        return e->small[GPT_CACHE_SMALL];
    }
    _mm_storeu_si128((__m128i *)(void *)to,
                     _mm_and_si128(load(e->wide), mask));
    return e->wide[GPT_CACHE_WIDE - 1] >> GPT_CACHE_COUNT_SHIFT;
}

/* The same as write_known(). */
GPT_INLINE GPT_AVX2 size_t known_avx2(const struct gpt_parts *b,
                                      const struct gpt_cache *c, size_t i,
                                      bool small, int32_t **out)
{
    int32_t *to = *out;

    for (; i < b->n; i++) {
        const struct gpt_cache_entry *e =
            &gpt_cache_at(c, b->places[i])->entry[0];
        const __m128i differ = _mm_xor_si128(load(&b->keys[i]), load(&e->key));

        if (!_mm_testz_si128(differ, differ))
            break;
        to += copy_avx2(e, small, to);
    }
    *out = to;
    return i;
}

static GPT_AVX2 size_t write_avx2(const struct gpt_parts *b,
                                  const struct gpt_cache *c, size_t i,
                                  int32_t **out)
{
    return c->small ? known_avx2(b, c, i, true, out)
                    : known_avx2(b, c, i, false, out);
}

/* Eight pieces as eight words, in the order that makes keys of two vectors of
 * words when their lanes are put together by pairs: 0, 4, 1, 5, 2, 6, 3, 7. */
struct words {
    __m512i low, high; /* of the keys */
};

static inline VBMI2 struct words words_of(__m512i window, __m512i begins,
                                          __m512i lengths, __m512i which)
{
    const __m512i bytes = _mm512_set1_epi64(0x0706050403020100);
    const __m512i later = _mm512_set1_epi64(0x0F0E0D0C0B0A0908);
    const __m512i len = _mm512_permutexvar_epi8(which, lengths);
    const __m512i from =
        _mm512_add_epi8(_mm512_permutexvar_epi8(which, begins), bytes);
    const __m512i high = _mm512_maskz_permutexvar_epi8(
        _mm512_cmplt_epu8_mask(later, len),
        _mm512_add_epi8(from, _mm512_set1_epi8(8)), window);

    return (struct words){
        _mm512_maskz_permutexvar_epi8(_mm512_cmplt_epu8_mask(bytes, len), from,
                                      window),
        _mm512_mask_mov_epi8(high, 0x8080808080808080, len),
    };
}

static inline VBMI2 __m512i places_of(struct words w)
{
    const __m512i h = _mm512_add_epi64(
        _mm512_mullo_epi64(w.low,
                           _mm512_set1_epi64((int64_t)GPT_CACHE_HASH_LOW)),
        _mm512_mullo_epi64(w.high,
                           _mm512_set1_epi64((int64_t)GPT_CACHE_HASH_HIGH)));

    return _mm512_and_si512(
        _mm512_srli_epi64(h, 64 - GPT_CACHE_LINES_LOG - 6),
        _mm512_set1_epi64(GPT_CACHE_NOWHERE - 64));
}

/* Adds 16 pieces from the first byte of begins and lengths on. */
static inline VBMI2 void add_16(struct gpt_cache_key *keys, uint32_t *places,
                                const char *lines, __m512i window,
                                __m512i begins, __m512i lengths, __m512i which)
{
    const __m512i pairs = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 16, 20,
                                            24, 28, 18, 22, 26, 30);
    const struct words a = words_of(window, begins, lengths, which);
    const struct words b =
        words_of(window, begins, lengths,
                 _mm512_add_epi8(which, _mm512_set1_epi8(8)));

    _mm512_storeu_si512(
        places, _mm512_permutex2var_epi32(places_of(a), pairs, places_of(b)));
    _mm512_storeu_si512(keys, _mm512_unpacklo_epi64(a.low, a.high));
    _mm512_storeu_si512(keys + 4, _mm512_unpackhi_epi64(a.low, a.high));
    _mm512_storeu_si512(keys + 8, _mm512_unpacklo_epi64(b.low, b.high));
    _mm512_storeu_si512(keys + 12, _mm512_unpackhi_epi64(b.low, b.high));
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        __builtin_prefetch(lines + places[i]);
}

static VBMI2 size_t add_vectors(struct gpt_parts *b, const struct gpt_cache *c,
                                size_t base, const struct gpt_stretch *s,
                                size_t n)
{
    const __m512i bytes = _mm512_set_epi64(
        0x3F3E3D3C3B3A3938, 0x3736353433323130, 0x2F2E2D2C2B2A2928,
        0x2726252423222120, 0x1F1E1D1C1B1A1918, 0x1716151413121110,
        0x0F0E0D0C0B0A0908, 0x0706050403020100);
    const __m512i which = _mm512_set_epi64(
        0x0707070707070707, 0x0303030303030303, 0x0606060606060606,
        0x0202020202020202, 0x0505050505050505, 0x0101010101010101,
        0x0404040404040404, 0);
    const char *lines = (const char *)c->lines;
    size_t i = 0;

    for (; i < n && b->n <= GPT_PARTS - GPT_STRETCH; i++) {
        const size_t at = base + s[i].at, len = s[i + 1].at - s[i].at;
        const uint64_t begins = s[i].begins;

        if (len >= GPT_STRETCH)
            break;
        const __m512i from = _mm512_maskz_compress_epi8(begins, bytes);
        const __m512i to = _mm512_maskz_compress_epi8(
            (begins & (begins - 1)) | (uint64_t)1 << len, bytes);
        const __m512i lengths = _mm512_sub_epi8(to, from);
        if (_mm512_cmpgt_epu8_mask(lengths, _mm512_set1_epi8(GPT_CACHE_SHORT)))
            break;
        const __m512i window =
            _mm512_maskz_loadu_epi8(gpt_low_bits((unsigned)len), b->text + at);
        const __m512i offset = _mm512_set1_epi32((int)(at - b->begin));
        const unsigned pieces = (unsigned)__builtin_popcountll(begins);
        __m512i rest = to, some = which;

        for (unsigned k = 0; k < pieces; k += 16) {
            _mm512_storeu_si512(
                b->ends + b->n + k,
                _mm512_add_epi32(
                    offset,
                    _mm512_cvtepu8_epi32(_mm512_castsi512_si128(rest))));
            rest = _mm512_alignr_epi64(rest, rest, 2);
            add_16(b->keys + b->n + k, b->places + b->n + k, lines, window,
                   from, lengths, some);
            some = _mm512_add_epi8(some, _mm512_set1_epi8(16));
        }
        b->n += pieces;
    }
    return i;
}
#endif

const struct gpt_parts_ways *gpt_parts_ways_of(const char *isa)
{
    static const struct gpt_parts_ways base = {gpt_stretch_ends, NULL,
                                               write_base};
#ifdef GPT_X86_VECTORS
    static const struct gpt_parts_ways avx2 = {ends_avx2, NULL, write_avx2};
    static const struct gpt_parts_ways vectors = {ends_avx2, add_vectors,
                                                  write_avx2};

    if (strcmp(isa, "avx512") == 0 && gpt_cpu_has(isa) &&
        __builtin_cpu_supports("avx512vbmi") &&
        __builtin_cpu_supports("avx512vbmi2"))
        return &vectors;
    if (strcmp(isa, "base") != 0 && gpt_cpu_has("avx2"))
        return &avx2;
#endif
    (void)isa;
    return &base;
}
