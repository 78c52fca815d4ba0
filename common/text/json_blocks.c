/* See json_blocks.h. A block is 64 bytes, which become bits, one a byte, for
 * each kind of character; shifts and sums of these say what each byte is. No
 * state goes from block to block: a block ends before a character or an escape
 * that it does not hold all of, and the next one begins there. Start at
 * take_blocks(). */
#include "text/json_blocks.h"

#include "base/cpu.h"

#include <stddef.h>

const char gpt_json_escapes[256] = {
    ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
    ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
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

static VBMI2 const uint8_t *take_blocks(const uint8_t *p, const uint8_t *end,
                                        char **out)
{
    const __m512i low = _mm512_loadu_si512(gpt_json_escapes);
    const __m512i high = _mm512_loadu_si512(gpt_json_escapes + GPT_JSON_BLOCK);
    uint64_t stop = 0;
    char *to = *out;

    while (!stop && end - p >= GPT_JSON_BLOCK) {
        __m512i v = _mm512_loadu_si512(p);
        const uint64_t back = equal(v, '\\'), wide = _mm512_movepi8_mask(v);
        uint64_t begins = 0, cut = 0;

        stop = equal(v, '"') | below(v, 0x20);
        if (wide && wrong_utf8(v, wide, &cut))
            stop |= wide & (~wide + 1);
        if (back) {
            begins = escape_begins(back);
            const uint64_t letters = begins << 1;
            const __m512i meant = _mm512_permutex2var_epi8(low, v, high);
            const uint64_t known =
                letters & ~wide & _mm512_test_epi8_mask(meant, meant);

            stop = (stop & ~letters) | (letters & ~known) >> 1;
            cut |= begins & (uint64_t)1 << (GPT_JSON_BLOCK - 1);
            v = _mm512_mask_mov_epi8(v, known, meant);
        }
        const uint64_t first = (stop | cut) & (~(stop | cut) + 1);
        const uint64_t taken = first - 1; /* all of them when first is 0 */
        const uint64_t kept = taken & ~begins;

        _mm512_storeu_si512(to, _mm512_maskz_compress_epi8(kept, v));
        to += __builtin_popcountll(kept);
        p += __builtin_popcountll(taken);
        stop &= first;
    }
    *out = to;
    return p;
}
#endif

gpt_json_blocks_fn *gpt_json_blocks(void)
{
#ifdef VBMI2
    if (gpt_cpu_has("avx512") && __builtin_cpu_supports("avx512vbmi") &&
        __builtin_cpu_supports("avx512vbmi2"))
        return take_blocks;
#endif
    return NULL;
}
