/* CRC-32, of zip archives. A checkpoint's writer computes it over every byte,
 * beside memory of gigabytes a second. Start at gpt_crc32().
 *
 * Processors that multiply without carries fold the message (Gopal and others,
 * Intel 2009): 64 bytes, as a polynomial, are multiplied by x^512 modulo the
 * CRC's and added to the 64 bytes after them, so that 16 bytes with the same
 * remainder are left. Tables take those, and everything on other
 * processors. */
#include "base/hash.h"

#include "base/crc.h"

#include <pthread.h>

static struct gpt_crc_tables tables;
static bool have_instruction;

static void make_constants(void);

static void make_tables(void)
{
    gpt_crc_make_tables(&tables, GPT_CRC32_POLYNOMIAL);
#ifdef __x86_64__
    have_instruction = __builtin_cpu_supports("pclmul");
#endif
    make_constants();
}

/* Runs n bytes through the register r, which the caller inverts. */
static uint32_t run_tables(uint32_t r, const uint8_t *p, size_t n)
{
    return gpt_crc_run(&tables, r, p, n);
}

#ifdef __x86_64__
#include <wmmintrin.h>

enum { LANES = 4, LANE = 16 }; /* registers that fold side by side; bytes */

/* Factors that move 16 bytes past LANES lanes, and past one: of their first
 * eight bytes and of their last. */
static uint64_t past_all[2], past_one[2];

/* Computes x^n modulo the polynomial, as the upper half of a 64-bit factor.
 * Bits are reversed, and the product of two reversed numbers is one place too
 * low: n is one less than the bits to move by. */
static uint64_t power(int n)
{
    uint32_t r = UINT32_C(1) << 31;

    for (int i = 0; i < n; i++)
        r = r >> 1 ^ (r & 1 ? GPT_CRC32_POLYNOMIAL : 0);
    return (uint64_t)r << 32;
}

static void make_constants(void)
{
    past_all[0] = power(8 * LANE * LANES + 64 - 1);
    past_all[1] = power(8 * LANE * LANES - 1);
    past_one[0] = power(8 * LANE + 64 - 1);
    past_one[1] = power(8 * LANE - 1);
}

__attribute__((target("pclmul"))) static inline __m128i
move(__m128i x, __m128i factors)
{
    return _mm_xor_si128(_mm_clmulepi64_si128(x, factors, 0x00),
                         _mm_clmulepi64_si128(x, factors, 0x11));
}

static inline __m128i load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* n is a multiple of 64, and not 0. The register is added to the first bytes of
 * the message; that of what is left begins at 0. */
__attribute__((target("pclmul"))) static uint32_t
run_instruction(uint32_t r, const uint8_t *p, size_t n)
{
    const __m128i all =
        _mm_set_epi64x((int64_t)past_all[1], (int64_t)past_all[0]);
    const __m128i one =
        _mm_set_epi64x((int64_t)past_one[1], (int64_t)past_one[0]);
    uint8_t left[LANE];
    __m128i x[LANES];

    for (int i = 0; i < LANES; i++)
        x[i] = load(p + i * LANE);
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)r));
    for (size_t at = LANES * LANE; at < n; at += LANES * LANE)
        for (int i = 0; i < LANES; i++)
            x[i] = _mm_xor_si128(move(x[i], all), load(p + at + i * LANE));
    for (int i = 1; i < LANES; i++)
        x[i] = _mm_xor_si128(move(x[i - 1], one), x[i]);
    _mm_storeu_si128((__m128i *)(void *)left, x[LANES - 1]);
    return run_tables(0, left, LANE);
}
#else
enum { LANES = 4, LANE = 16 };
#define run_instruction run_tables
static void make_constants(void) {}
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The register is inverted before and after, as the format has it, so that
 * running sums can be continued. */
uint32_t gpt_crc32(uint32_t crc, const void *data, size_t n)
{
    const size_t folded = n - n % (LANES * LANE);
    const uint8_t *p = data;

    pthread_once(&once, make_tables);
    crc = ~crc;
    if (!have_instruction || folded == 0)
        return ~run_tables(crc, p, n);
    return ~run_tables(run_instruction(crc, p, folded), p + folded, n - folded);
}

uint32_t gpt_crc32_portable(uint32_t crc, const void *data, size_t n)
{
    pthread_once(&once, make_tables);
    return ~run_tables(~crc, data, n);
}
