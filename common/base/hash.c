/* CRC-32C and table hashes.
 *
 * A CRC register r over a message is linear: register(A || B) is register(A)
 * moved past |B| zero bytes, xored with the register of B begun at 0. The
 * instruction takes 3 cycles but one can start every cycle, so long inputs are
 * cut in three blocks that run side by side and are joined by moving. */
#include "base/hash.h"

#include "base/num.h"

#include <pthread.h>
#include <string.h>

enum { BLOCK = 1024 }; /* bytes of one of three blocks */

/* slice[k][b]: register b followed by k zero bytes; move[k][b]: register
 * b << 8 k followed by BLOCK zero bytes. */
static uint32_t slice[8][256], move[4][256];
static bool have_instruction;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Moving past zeros is linear, so the table is built from 32 moved bits instead
 * of 1024 shifted values an entry. */
static void make_move_table(void)
{
    uint32_t bits[32]; /* where every single bit ends up */

    for (int i = 0; i < 32; i++) {
        uint32_t r = UINT32_C(1) << i;

        for (int n = 0; n < BLOCK; n++)
            r = r >> 8 ^ slice[0][r & 255];
        bits[i] = r;
    }
    for (int k = 0; k < 4; k++)
        for (int b = 0; b < 256; b++)
            for (int i = 0; i < 8; i++)
                if (b >> i & 1)
                    move[k][b] ^= bits[8 * k + i];
}

static void make_tables(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t r = b;

        for (int i = 0; i < 8; i++)
            r = r >> 1 ^ (r & 1 ? GPT_CRC32C_POLYNOMIAL : 0);
        slice[0][b] = r;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++)
            slice[k][b] =
                slice[k - 1][b] >> 8 ^ slice[0][slice[k - 1][b] & 255];
    make_move_table();
#ifdef __x86_64__
    have_instruction = __builtin_cpu_supports("sse4.2");
#endif
}

/* Eight bytes a step ("slicing by eight"): eight independent look-ups instead
 * of a chain of eight. */
static uint32_t run_tables(uint32_t r, const uint8_t *p, size_t n)
{
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t w = gpt_get_u64(p) ^ r;

        r = 0;
        for (int k = 0; k < 8; k++)
            r ^= slice[7 - k][w >> (8 * k) & 255];
    }
    for (; n > 0; n--, p++)
        r = r >> 8 ^ slice[0][(r ^ *p) & 255];
    return r;
}

#ifdef __x86_64__
#include <nmmintrin.h>

/* The register after BLOCK zero bytes, a byte at a time. */
static uint32_t past_block(uint32_t r)
{
    return move[0][r & 255] ^ move[1][r >> 8 & 255] ^ move[2][r >> 16 & 255] ^
           move[3][r >> 24];
}

static inline uint64_t load(const uint8_t *p)
{
    uint64_t w;

    memcpy(&w, p, sizeof(w));
    return w;
}

/* Three chains a round hide the latency of the instruction; the joined register
 * then takes the rest of the message. The chains are too short for the
 * processor to fetch ahead by itself: each line asks for that of the next
 * round, which past the end is no access. */
__attribute__((target("sse4.2"))) static uint32_t
run_instruction(uint32_t r, const uint8_t *p, size_t n)
{
    for (; n >= 3 * BLOCK; n -= 3 * BLOCK, p += 3 * BLOCK) {
        uint64_t a = r, b = 0, c = 0;

        for (size_t i = 0; i < BLOCK; i += 8) {
            if (i % 64 == 0)
                for (size_t k = 3; k < 6; k++)
                    _mm_prefetch((const char *)p + k * BLOCK + i, _MM_HINT_T0);
            a = _mm_crc32_u64(a, load(p + i));
            b = _mm_crc32_u64(b, load(p + BLOCK + i));
            c = _mm_crc32_u64(c, load(p + 2 * BLOCK + i));
        }
        r = past_block(past_block((uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
    }
    uint64_t w = r;
    for (; n >= 8; n -= 8, p += 8)
        w = _mm_crc32_u64(w, load(p));
    r = (uint32_t)w;
    for (; n > 0; n--, p++)
        r = _mm_crc32_u8(r, *p);
    return r;
}
#else
#define run_instruction run_tables
#endif

uint32_t gpt_crc32c(uint32_t crc, const void *p, size_t n)
{
    pthread_once(&once, make_tables);
    return ~(have_instruction ? run_instruction(~crc, p, n)
                              : run_tables(~crc, p, n));
}

uint32_t gpt_crc32c_portable(uint32_t crc, const void *p, size_t n)
{
    pthread_once(&once, make_tables);
    return ~run_tables(~crc, p, n);
}

/* a * b modulo the polynomial. Bit 31 is the coefficient of x^0. */
static uint32_t multiply(uint32_t polynomial, uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (uint32_t bit = UINT32_C(1) << 31; bit; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = b >> 1 ^ (b & 1 ? polynomial : 0);
    }
    return product;
}

/* A checksum moved past n zero bytes is multiplied by x^(8 n), which is made of
 * the squares x^8, x^16, x^32, ... What the register is inverted with, before
 * and after, cancels out. */
uint32_t gpt_crc_join(uint32_t polynomial, uint32_t a, uint32_t b, int64_t n)
{
    uint32_t power = UINT32_C(1) << 31, square = UINT32_C(1) << 23;

    for (; n > 0; n >>= 1) {
        if (n & 1)
            power = multiply(polynomial, square, power);
        square = multiply(polynomial, square, square);
    }
    return multiply(polynomial, power, a) ^ b;
}

/* Folds the 128-bit product: every bit of both factors counts. */
static uint64_t fold(uint64_t a, uint64_t b)
{
    __extension__ unsigned __int128 p = (unsigned __int128)a * b;

    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* For tables in memory: its values may change from version to version. */
uint64_t gpt_hash64(const void *p, size_t n, uint64_t seed)
{
    const uint8_t *b = p;
    uint64_t h = seed ^ fold(n ^ 0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9);

    for (; n >= 8; n -= 8, b += 8)
        h = fold(h ^ gpt_get_u64(b), 0x94d049bb133111eb);
    uint64_t tail = 0;
    if (n >= 4) /* the two words may overlap: n is in the seed */
        tail = gpt_get_u32(b) | (uint64_t)gpt_get_u32(b + n - 4) << 32;
    else if (n)
        tail = b[0] | (uint64_t)b[n / 2] << 8 | (uint64_t)b[n - 1] << 16;
    return fold(h ^ tail ^ 0xd6e8feb86659fd93, 0xa0761d6478bd642f);
}

/* Slow and simple: its values are part of the meaning of checkpoints
 * (gpt_rng_open()), so it never changes. */
uint64_t gpt_fnv1a(const char *s)
{
    uint64_t h = 0xcbf29ce484222325;

    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 0x100000001b3;
    return h;
}
