/* Tile registers and AVX-VNNI for processors without them: the instructions of
 * AMX that kernels/cpu uses, and VPDPBUSD of AVX-VNNI, are illegal there, and
 * the handler of that signal carries them out. Linked before the library, this
 * file takes the place of common/base/cpu_tiles.c. Source of what each
 * instruction does: Intel's "Architecture Instruction Set Extensions
 * Programming Reference", chapters 2 and 3.
 *
 * What a processor would refuse ends the process with a message. */
#include "base/cpu.h"

#ifdef GPT_HAVE_ISA_amx

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <xmmintrin.h>

enum { TILES = 8, ROWS = 16, ROW = 64 };
enum { VPDPBUSD = 0x50 }; /* opcode, with 32 bytes */

/* Registers of a thread; it begins without a configuration. */
static _Thread_local struct {
    bool configured;
    int rows[TILES], bytes[TILES]; /* of a row */
    _Alignas(64) uint8_t at[TILES][ROWS][ROW];
} tiles;

static _Noreturn void refuse(const char *why)
{
    fprintf(stderr, "tests/lib/tiles.c: %s\n", why);
    abort();
}

static void must(bool holds, const char *what)
{
    if (!holds)
        refuse(what);
}

/* ---- decoding ---- */

/* VEX prefix of three bytes, opcode, ModRM; all is in map 2, W = 0. */
struct instruction {
    const uint8_t *next; /* behind ModRM, then behind the whole */
    int prefix;          /* 0: none, 1: 66, 2: F3, 3: F2 */
    int opcode, mod, reg, rm, third;
    int r, x, b; /* high bits of reg, index and base */
};

static bool decode(const uint8_t *p, struct instruction *i)
{
    enum { VEX3 = 0xC4, MAP2 = 2, W = 0x80, LONG = 4 };

    if (p[0] != VEX3 || (p[1] & 0x1F) != MAP2 || (p[2] & W) != 0)
        return false;
    i->r = (~p[1] >> 7 & 1) * 8;
    i->x = (~p[1] >> 6 & 1) * 8;
    i->b = (~p[1] >> 5 & 1) * 8;
    i->third = ~p[2] >> 3 & 15;
    i->prefix = p[2] & 3;
    i->opcode = p[3];
    i->mod = p[4] >> 6;
    i->reg = p[4] >> 3 & 7;
    i->rm = p[4] & 7;
    i->next = p + 5;
    if ((p[2] & LONG) != 0)
        return i->opcode == VPDPBUSD && i->prefix == 1;
    return i->opcode == 0x49 || i->opcode == 0x4B || i->opcode == 0x5C ||
           i->opcode == 0x5E;
}

static int64_t register_of(const ucontext_t *c, int number)
{
    static const int at[] = {
        REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
        REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

    return c->uc_mcontext.gregs[at[number]];
}

static int64_t number_at(const uint8_t **p, int bytes)
{
    int32_t wide;
    int8_t narrow;

    if (bytes == 1)
        memcpy(&narrow, *p, 1);
    else
        memcpy(&wide, *p, 4);
    *p += bytes;
    return bytes == 1 ? narrow : wide;
}

/* The address of the operand in memory; *stride, where asked for, is its index
 * times its scale, which is then no part of the address. */
static uint8_t *address_of(struct instruction *i, const ucontext_t *c,
                           int64_t *stride)
{
    enum { SIB = 4, NO_BASE = 5, NO_INDEX = 4 };
    int64_t at = 0, index = 0;
    int base = i->rm;
    bool based = true;

    must(!stride || i->rm == SIB, "a tile's memory without SIB");
    if (i->rm == SIB) {
        const int sib = *i->next++, number = (sib >> 3 & 7) + i->x;

        base = sib & 7;
        if (number != NO_INDEX)
            index = register_of(c, number) << (sib >> 6);
    }
    if (base == NO_BASE && i->mod == 0) {
        based = false;
        at = number_at(&i->next, 4);
        if (i->rm != SIB) /* of the next instruction */
            at += (int64_t)(intptr_t)i->next;
    } else if (i->mod == 1 || i->mod == 2) {
        at = number_at(&i->next, i->mod == 1 ? 1 : 4);
    }
    if (based)
        at += register_of(c, base + i->b);
    if (stride)
        *stride = index;
    else
        at += index;
    return (uint8_t *)(intptr_t)at;
}

/* ---- instructions ---- */

static void configure(const uint8_t *from)
{
    int palette = from[0];

    memset(&tiles, 0, sizeof(tiles));
    if (palette == 0)
        return;
    must(palette == 1, "LDTILECFG: palette");
    for (int k = 1; k < ROW; k++)
        must(from[k] == 0 || (k >= 16 && k < 32) || (k >= 48 && k < 56),
             "LDTILECFG: start row, reserved bytes");
    for (int t = 0; t < TILES; t++) {
        tiles.bytes[t] = from[16 + 2 * t] | from[17 + 2 * t] << 8;
        tiles.rows[t] = from[48 + t];
        must(tiles.bytes[t] <= ROW && tiles.rows[t] <= ROWS &&
                 (tiles.bytes[t] == 0) == (tiles.rows[t] == 0),
             "LDTILECFG: shape of a tile");
    }
    tiles.configured = true;
}

static void load(int t, const uint8_t *from, int64_t stride)
{
    memset(tiles.at[t], 0, sizeof(tiles.at[t]));
    for (int r = 0; r < tiles.rows[t]; r++)
        memcpy(tiles.at[t][r], from + r * stride, (size_t)tiles.bytes[t]);
}

static void store(int t, uint8_t *to, int64_t stride)
{
    for (int r = 0; r < tiles.rows[t]; r++)
        memcpy(to + r * stride, tiles.at[t][r], (size_t)tiles.bytes[t]);
}

/* Element 0 or 1 of each pair of bf16 in a row. */
static void floats_of(float *to, const uint8_t *row, int element)
{
    uint32_t pairs[ROW / 4];

    memcpy(pairs, row, sizeof(pairs));
    for (int n = 0; n < ROW / 4; n++)
        pairs[n] = element ? pairs[n] & 0xFFFF0000 : pairs[n] << 16;
    memcpy(to, pairs, sizeof(pairs));
}

/* The loops of AMX's products, whose set has AVX-512: all else also runs where
 * AVX-VNNI alone is emulated, on processors without. */
#define WIDE __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

/* Rounds to nearest even, with subnormal numbers as zero: sums of the even and
 * of the odd elements of k are apart until the end. What a row has beyond its
 * bytes is zero. */
WIDE static void dot_pairs(int c, int a, int b)
{
    const unsigned mode = _mm_getcsr();
    float y[2][ROWS][ROW / 4];

    _mm_setcsr(0x9FC0); /* all exceptions masked, FTZ, DAZ, nearest */
    for (int k = 0; k < tiles.rows[b]; k++)
        for (int e = 0; e < 2; e++)
            floats_of(y[e][k], tiles.at[b][k], e);
    for (int m = 0; m < tiles.rows[c]; m++) {
        float x[2][ROW / 4], parts[2][ROW / 4] = {{0}}, sums[ROW / 4];

        memcpy(sums, tiles.at[c][m], sizeof(sums));
        for (int e = 0; e < 2; e++) {
            floats_of(x[e], tiles.at[a][m], e);
            for (int k = 0; k < tiles.rows[b]; k++)
                for (int n = 0; n < ROW / 4; n++)
                    parts[e][n] += x[e][k] * y[e][k][n];
        }
        for (int n = 0; n < ROW / 4; n++)
            sums[n] += parts[0][n] + parts[1][n];
        memcpy(tiles.at[c][m], sums, (size_t)tiles.bytes[c]);
    }
    _mm_setcsr(mode);
}

/* Byte `at` of each four, as TDPB* with signs or without take it. */
static void bytes_of(int32_t *to, const uint8_t *row, int at, bool has_sign)
{
    for (int n = 0; n < ROW / 4; n++)
        to[n] = has_sign ? (int8_t)row[4 * n + at] : row[4 * n + at];
}

/* Four products of bytes are added to each sum of 32 bits, modulo 2^32. */
WIDE static void dot_bytes(int c, int a, int b, bool signed_a, bool signed_b)
{
    int32_t y[4][ROWS][ROW / 4];

    for (int k = 0; k < tiles.rows[b]; k++)
        for (int at = 0; at < 4; at++)
            bytes_of(y[at][k], tiles.at[b][k], at, signed_b);
    for (int m = 0; m < tiles.rows[c]; m++) {
        int32_t x[ROW / 4];
        uint32_t sums[ROW / 4];

        memcpy(sums, tiles.at[c][m], sizeof(sums));
        for (int at = 0; at < 4; at++) {
            bytes_of(x, tiles.at[a][m], at, signed_a);
            for (int k = 0; k < tiles.rows[b]; k++)
                for (int n = 0; n < ROW / 4; n++)
                    sums[n] += (uint32_t)(x[k] * y[at][k][n]);
        }
        memcpy(tiles.at[c][m], sums, (size_t)tiles.bytes[c]);
    }
}

/* c (M, N) += a (M, K) b (K, N). */
static void dot(const struct instruction *i)
{
    const int c = i->reg, a = i->rm, b = i->third;

    must(i->mod == 3 && b < TILES && a != b && b != c && a != c,
         "TDP*: three different tiles");
    must(tiles.rows[c] == tiles.rows[a] && tiles.bytes[c] == tiles.bytes[b] &&
             tiles.bytes[a] / 4 == tiles.rows[b],
         "TDP*: shapes of tiles");
    if (i->opcode == 0x5C)
        must(i->prefix == 2, "a product other than TDPBF16PS");
    if (i->opcode == 0x5C)
        dot_pairs(c, a, b);
    else
        dot_bytes(c, a, b, i->prefix >= 2, i->prefix == 1 || i->prefix == 3);
}

/* LDTILECFG, TILERELEASE and TILEZERO have one opcode. */
static void set_up(struct instruction *i, const ucontext_t *c)
{
    if (i->prefix == 0 && i->mod == 3) {
        memset(&tiles, 0, sizeof(tiles));
    } else if (i->prefix == 0) {
        configure(address_of(i, c, NULL));
    } else {
        must(i->prefix == 3 && i->mod == 3 && tiles.configured, "TILEZERO");
        memset(tiles.at[i->reg], 0, sizeof(tiles.at[i->reg]));
    }
}

/* TILELOADD, TILELOADDT1 and TILESTORED. */
static void move(struct instruction *i, const ucontext_t *c)
{
    int64_t stride;
    uint8_t *at = address_of(i, c, &stride);

    must(i->prefix != 0 && i->mod != 3, "a move of tiles");
    must(tiles.configured && tiles.rows[i->reg] > 0,
         "a move of a tile that is not configured");
    if (i->prefix == 2)
        store(i->reg, at, stride);
    else
        load(i->reg, at, stride);
}

/* ---- AVX-VNNI ---- */

/* Where the kernel keeps both halves of a register of 32 bytes: as FXSAVE does,
 * and behind that and a header. Upper halves that are all zero may be left out.
 * Source: Intel's "Software Developer's Manual", volume 1, 13.4. */
static void halves_of(const ucontext_t *c, int number, uint8_t *half[2])
{
    enum { LOW = 160, HEADER = 512, HIGH = 576, HALF = 16, UPPER = 4 };
    uint8_t *area = (uint8_t *)c->uc_mcontext.fpregs;

    if ((area[HEADER] & UPPER) == 0)
        memset(area + HIGH, 0, 16 * HALF);
    area[HEADER] |= UPPER | 2;
    half[0] = area + LOW + number * HALF;
    half[1] = area + HIGH + number * HALF;
}

/* Four products of bytes, the first factor without a sign, are added to each
 * sum of 32 bits, modulo 2^32. */
static void dot_fours(struct instruction *i, const ucontext_t *c)
{
    uint8_t *to[2], *first[2], *second[2];

    halves_of(c, i->reg + i->r, to);
    halves_of(c, i->third, first);
    if (i->mod == 3) {
        halves_of(c, i->rm + i->b, second);
    } else {
        second[0] = address_of(i, c, NULL);
        second[1] = second[0] + 16;
    }
    for (int n = 0; n < 8; n++) {
        const int half = n / 4, at = n % 4 * 4;
        uint32_t sum;

        memcpy(&sum, to[half] + at, sizeof(sum));
        for (int l = at; l < at + 4; l++)
            sum += (uint32_t)(first[half][l] * (int8_t)second[half][l]);
        memcpy(to[half] + at, &sum, sizeof(sum));
    }
}

static void carry_out(int signal, siginfo_t *info, void *context)
{
    ucontext_t *c = context;
    const uint8_t *p = (const uint8_t *)(intptr_t)c->uc_mcontext.gregs[REG_RIP];
    struct instruction i;

    (void)signal;
    (void)info;
    must(decode(p, &i), "an illegal instruction of another kind");
    /* those that follow at once need no signal of their own */
    for (; decode(p, &i); p = i.next) {
        if (i.opcode == 0x49) {
            set_up(&i, c);
        } else if (i.opcode == 0x4B) {
            move(&i, c);
        } else if (i.opcode == VPDPBUSD) {
            dot_fours(&i, c);
        } else {
            must(tiles.configured, "TDP* without a configuration");
            dot(&i);
        }
    }
    c->uc_mcontext.gregs[REG_RIP] = (greg_t)(intptr_t)p;
}

static bool handle_illegal(void)
{
    struct sigaction action = {.sa_sigaction = carry_out,
                               .sa_flags = SA_SIGINFO | SA_NODEFER};

    return sigaction(SIGILL, &action, NULL) == 0;
}

bool gpt_cpu_has_tiles(void)
{
    return handle_illegal();
}

bool gpt_cpu_has_vnni(void)
{
    return handle_illegal();
}

#else

bool gpt_cpu_has_vnni(void)
{
    return false;
}

bool gpt_cpu_has_tiles(void)
{
    return false;
}

#endif
