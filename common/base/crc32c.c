/* CRC-32C. Start at gpt_crc32c().
 *
 * A CRC register r over a message is linear: register(A || B) is register(A)
 * moved past |B| zero bytes, xored with the register of B begun at 0. The
 * instruction takes 3 cycles but one can start every cycle, so long inputs are
 * cut in three blocks that run side by side and are joined by moving. */
#include "base/hash.h"

#include "base/crc.h"

#include <pthread.h>
#include <string.h>

enum { BLOCK = 1024 }; /* bytes of one of three blocks */

static struct gpt_crc_tables tables;
static uint32_t move[4][256]; /* [k][b]: b << 8 k, then BLOCK zero bytes */
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
            r = r >> 8 ^ tables.at[0][r & 255];
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
    gpt_crc_make_tables(&tables, GPT_CRC32C_POLYNOMIAL);
    make_move_table();
#ifdef __x86_64__
    have_instruction = __builtin_cpu_supports("sse4.2");
#endif
}

static uint32_t run_tables(uint32_t r, const uint8_t *p, size_t n)
{
    return gpt_crc_run(&tables, r, p, n);
}

#ifdef __x86_64__
#include <nmmintrin.h>

/* The register after BLOCK zero bytes, which are run through it one at a
 * time. */
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
 * processor to fetch ahead by itself: the lines of the next round are asked for
 * in their order, three for each three, and past the end that is no access. By
 * the order in which the chains need them, memory gives 0.4 of the speed. */
__attribute__((target("sse4.2"))) static uint32_t
run_instruction(uint32_t r, const uint8_t *p, size_t n)
{
    for (; n >= 3 * BLOCK; n -= 3 * BLOCK, p += 3 * BLOCK) {
        uint64_t a = r, b = 0, c = 0;

        for (size_t i = 0; i < BLOCK; i += 8) {
            if (i % 64 == 0)
                for (size_t k = 0; k < 3; k++)
                    _mm_prefetch((const char *)p + 3 * (BLOCK + i) + 64 * k,
                                 _MM_HINT_T0);
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
