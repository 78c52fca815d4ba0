/* See json_blocks.h. A block is 64 bytes, which become bits, one a byte, for
 * each kind of character; shifts and sums of these say what each byte is. No
 * state goes from block to block: a block ends before a character or an escape
 * that it does not hold all of, and the next one begins there. Start at
 * take_blocks(). */
#include "text/json_blocks.h"

#include "base/cpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

const char gpt_json_escapes[256] = {
    ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
    ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
};

const int8_t gpt_json_digits[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,
    ['6'] = 7,  ['7'] = 8,  ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12,
    ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16, ['A'] = 11, ['B'] = 12,
    ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
};

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define VBMI2                                                                  \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,"  \
                          "bmi,bmi2,lzcnt,popcnt")))

static inline VBMI2 uint64_t equal(__m512i v, uint8_t c)
{
    return _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8((char)c));
}

static inline VBMI2 uint64_t below(__m512i v, uint8_t c)
{
    return _mm512_cmplt_epu8_mask(v, _mm512_set1_epi8((char)c));
}

/* The backslashes that escape what follows: every second one of a run. The
 * difference borrows through each run, and so tells apart those that begin at
 * odd and at even places. */
static inline uint64_t escape_begins(uint64_t back)
{
    const uint64_t odd = 0xAAAAAAAAAAAAAAAAu;

    return (((back << 1 | odd) - back) ^ odd) & back;
}

/* Bits of bytes that are wrong in UTF-8, if what the block cuts off is right.
 * `cut` gets the bit of a character that goes on beyond the block. Second bytes
 * have less than their whole range after E0 and F0, where they would begin a
 * form that is too long, after ED, a surrogate, and after F4, beyond U+10FFFF.
 */
static inline VBMI2 uint64_t wrong_utf8(__m512i v, uint64_t wide, uint64_t *cut)
{
    const uint64_t tail = wide & below(v, 0xC0), from3 = wide & ~below(v, 0xE0);
    const uint64_t four = from3 & ~below(v, 0xF0), three = from3 & ~four;
    const uint64_t two = wide & ~(tail | from3);
    const uint64_t want = (two | from3) << 1 | from3 << 2 | four << 3;
    uint64_t wrong = (want ^ tail) | (two & below(v, 0xC2)) |
                     (four & ~below(v, 0xF5));
    const uint64_t rare = four | (three & (equal(v, 0xE0) | equal(v, 0xED)));

    *cut = (two & (uint64_t)1 << 63) | (three & (uint64_t)3 << 62) |
           (four & (uint64_t)7 << 61);
    if (rare) {
        wrong |= equal(v, 0xE0) << 1 & below(v, 0xA0);
        wrong |= equal(v, 0xED) << 1 & ~below(v, 0xA0);
        wrong |= equal(v, 0xF0) << 1 & below(v, 0x90);
        wrong |= equal(v, 0xF4) << 1 & ~below(v, 0x90);
    }
    return wrong;
}

/* A block of 64 bytes: their values once unescaped, and a bit for each byte
 * that says what is done with it. */
struct block {
    __m512i v;
    uint64_t drop; /* these have no part in what is written */
    uint64_t stop; /* these are left to the caller */
    uint64_t cut;  /* here begins what the block does not hold all of */
};

/* v[i] of the result is v[i - n] */
static inline VBMI2 __m512i later(__m512i v, int n)
{
    static const uint8_t count[GPT_JSON_BLOCK] = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
        16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
        32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
        48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63,
    };
    const __m512i from = _mm512_sub_epi8(_mm512_loadu_si512(count),
                                         _mm512_set1_epi8((char)n));

    return _mm512_permutexvar_epi8(from, v);
}

static inline VBMI2 __m512i both(__m512i v, uint8_t c)
{
    return _mm512_and_si512(v, _mm512_set1_epi8((char)c));
}

static inline VBMI2 __m512i either(__m512i v, uint8_t c)
{
    return _mm512_or_si512(v, _mm512_set1_epi8((char)c));
}

static inline VBMI2 void put(struct block *b, uint64_t where, __m512i what)
{
    b->v = _mm512_mask_mov_epi8(b->v, where, what);
}

/* The escapes \uXXXX that begin at `halves` are of surrogates. With h and l for
 * the bits of a high one and a low one, the code point less 0x10000 is
 * hhhhhhhhhhllllllllll, and `six` has six of these bits at the third digit and
 * at the fourth of each: the bytes of UTF-8 are made there, four for a pair.
 * A half without the other is U+FFFD. */
static inline VBMI2 void take_halves(struct block *b, uint64_t halves,
                                     __m512i digit, __m512i six)
{
    const uint64_t third = _mm512_test_epi8_mask(digit, _mm512_set1_epi8(4));
    const uint64_t low = halves & third >> 3, high = halves & ~low;
    const uint64_t pair = high & low >> 6, lone = halves ^ (pair | pair << 6);
    const __m512i four = both(six, 15);
    const __m512i top = _mm512_add_epi8(four, _mm512_set1_epi8(1));
    const __m512i rest = _mm512_mask_mov_epi8(later(top, 1), pair << 10,
                                              later(digit, 5));
    const __m512i high_bits = both(_mm512_slli_epi16(rest, 4), 0x30);

    put(b, pair << 4, either(both(_mm512_srli_epi16(top, 2), 7), 0xF0));
    put(b, pair << 5 | pair << 10,
        either(_mm512_or_si512(four, high_bits), 0x80));
    put(b, lone << 2, _mm512_set1_epi8((char)0xEF));
    put(b, lone << 4, _mm512_set1_epi8((char)0xBF));
    put(b, lone << 5, _mm512_set1_epi8((char)0xBD));
    b->drop |= pair << 2 | pair << 8;
    b->cut |= high & ~(uint64_t)0 << (GPT_JSON_BLOCK - 11);
}

/* The escapes \uXXXX that begin at `begins`. Their UTF-8 is made in place: the
 * first byte at the first digit, the second at the third, where that digit and
 * the one before have its bits, the last at the fourth. */
static inline VBMI2 void take_hex(struct block *b, uint64_t begins)
{
    const __m512i v = b->v, small = either(v, 0x20);
    const uint64_t letter =
        below(_mm512_sub_epi8(small, _mm512_set1_epi8('a')), 6);
    const uint64_t hex =
        letter | below(_mm512_sub_epi8(v, _mm512_set1_epi8('0')), 10);
    const uint64_t all = begins & hex >> 2 & hex >> 3 & hex >> 4 & hex >> 5;
    const uint64_t late = begins & ~(uint64_t)0 << (GPT_JSON_BLOCK - 5);
    __m512i digit = _mm512_maskz_mov_epi8(hex, both(v, 15));

    digit = _mm512_mask_add_epi8(digit, letter, digit, _mm512_set1_epi8(9));
    /* two digits, and the upper six bits of them */
    const __m512i two =
        _mm512_or_si512(_mm512_slli_epi16(later(digit, 1), 4), digit);
    const __m512i six = both(_mm512_srli_epi16(two, 2), 0x3F);
    const uint64_t zero = ~_mm512_test_epi8_mask(digit, digit);
    const uint64_t over7 = ~below(digit, 8);
    const uint64_t below800 = all & zero >> 2 & ~over7 >> 3;
    const uint64_t below80 = below800 & zero >> 3 & ~over7 >> 4;
    const uint64_t halves = all & equal(digit, 13) >> 2 & over7 >> 3;

    put(b, all << 2, either(digit, 0xE0));
    put(b, all << 4, either(six, 0x80));
    put(b, below800 << 4, either(six, 0xC0));
    put(b, all << 5, either(both(two, 0x3F), 0x80));
    put(b, below80 << 5, two);
    b->drop |= all << 1 | all << 3 | below800 << 2 | below80 << 4;
    b->stop |= begins & ~(all | late);
    b->cut |= late;
    if (halves)
        take_halves(b, halves, digit, six);
}

/* Escapes, whose backslashes are at `back`; bits of `wide` are beyond ASCII. */
static inline VBMI2 void take_escapes(struct block *b, uint64_t back,
                                      uint64_t wide)
{
    const __m512i low = _mm512_loadu_si512(gpt_json_escapes);
    const __m512i high = _mm512_loadu_si512(gpt_json_escapes + GPT_JSON_BLOCK);
    const __m512i meant = _mm512_permutex2var_epi8(low, b->v, high);
    const uint64_t begins = escape_begins(back), letters = begins << 1;
    const uint64_t known =
        letters & ~wide & _mm512_test_epi8_mask(meant, meant);
    const uint64_t hex = letters & equal(b->v, 'u');

    b->drop = begins;
    b->stop = (b->stop & ~letters) | (letters & ~(known | hex)) >> 1;
    b->cut |= begins & (uint64_t)1 << (GPT_JSON_BLOCK - 1);
    if (hex)
        take_hex(b, hex >> 1);
    put(b, known, meant);
}

/* What lies beyond the end is read as NULs, at which a string stops. */
static inline VBMI2 __m512i load(const uint8_t *p, const uint8_t *end)
{
    if (end - p >= GPT_JSON_BLOCK)
        return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi8(((uint64_t)1 << (end - p)) - 1, p);
}

static VBMI2 const uint8_t *take_blocks(const uint8_t *p, const uint8_t *end,
                                        char **out)
{
    char *to = *out;

    for (bool more = true; more;) {
        struct block b = {.v = load(p, end)};
        const uint64_t back = equal(b.v, '\\'), wide = _mm512_movepi8_mask(b.v);

        b.stop = equal(b.v, '"') | below(b.v, 0x20);
        if (wide && wrong_utf8(b.v, wide, &b.cut))
            b.stop |= wide & (~wide + 1);
        if (back)
            take_escapes(&b, back, wide);
        const uint64_t first = (b.stop | b.cut) & (~(b.stop | b.cut) + 1);
        const uint64_t taken = first - 1; /* all of them when first is 0 */
        const uint64_t kept = taken & ~b.drop;

        _mm512_storeu_si512(to, _mm512_maskz_compress_epi8(kept, b.v));
        to += __builtin_popcountll(kept);
        p += __builtin_popcountll(taken);
        more = !(b.stop & first);
    }
    *out = to;
    return p;
}
#endif

gpt_json_blocks_fn *gpt_json_blocks(void)
{
#ifdef VBMI2
    if (strcmp(gpt_cpu_isa(), "avx512") == 0 &&
        __builtin_cpu_supports("avx512vbmi") &&
        __builtin_cpu_supports("avx512vbmi2"))
        return take_blocks;
#endif
    return NULL;
}
