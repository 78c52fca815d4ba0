/* cvt, between any two types, and cvta, between kinds of addresses. A whole
 * number that does not fit its new type loses its upper bits; a float becomes
 * the nearest number that fits. Rounding is in the name: .rn to the nearest, or
 * for results that are whole .rni, .rzi, .rmi, .rpi to the nearest, to zero,
 * down, up. */
#include "kernels/emu/ptx/ptx.h"

extern "C" {
#include "fp8.h"
}

#include <cmath>

namespace emu {
namespace ptx {

namespace {

enum type { U8, S8, U16, S16, U32, S32, U64, S64, F16, BF16, F32, F64, TYPES };
enum rounding { AS_IT_IS, NEAREST, ZERO, DOWN, UP, TYPE_ROUNDINGS };

const char *const type_names[TYPES] = {"u8",  "s8",  "u16", "s16",
                                       "u32", "s32", "u64", "s64",
                                       "f16", "bf16", "f32", "f64"};
const unsigned type_sizes[TYPES] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};

} // namespace

static bool is_float(int t)
{
    return t >= F16;
}

/* A double holds every number of the narrower types exactly, so that there is
 * one rounding, at the end. */
static double float_of(int t, uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float f;
    double d;

    if (t == F16)
        return (double)gpt_f16_to_f32((uint16_t)bits);
    if (t == BF16)
        return (double)gpt_bf16_to_f32((uint16_t)bits);
    memcpy(&f, &low, sizeof(f));
    memcpy(&d, &bits, sizeof(d));
    return t == F32 ? (double)f : d;
}

/* From double to half in two roundings: no kernel converts so, and rule names
 * of that pair stay for completeness of the table. */
static uint64_t bits_of(int t, double x)
{
    float f = (float)x;
    uint32_t low;
    uint64_t bits;

    if (t == F16)
        return gpt_f32_to_f16(f);
    if (t == BF16)
        return gpt_f32_to_bf16(f);
    memcpy(&low, &f, sizeof(low));
    memcpy(&bits, &x, sizeof(bits));
    return t == F32 ? low : bits;
}

/* Bits of a type's width as a number of 64 bits, with its sign. */
static uint64_t widen(int t, uint64_t x)
{
    unsigned unused = 64 - type_sizes[t] * 8;

    return t % 2 == S8 % 2 ? (uint64_t)((int64_t)(x << unused) >> unused)
                           : x << unused >> unused;
}

static double rounded(int how, double x)
{
    switch (how) {
    case NEAREST:
        return std::nearbyint(x);
    case ZERO:
        return std::trunc(x);
    case DOWN:
        return std::floor(x);
    case UP:
        return std::ceil(x);
    }
    return x;
}

/* NaN becomes 0, and what does not fit the nearest that does: so PTX says for
 * all conversions to whole numbers. In C++ such a conversion is undefined, and
 * limits have to be asked for first. */
static uint64_t whole_of(int t, double x)
{
    bool sign = t % 2 == S8 % 2;
    int bits = (int)type_sizes[t] * 8 - sign;
    double top = std::ldexp(1.0, bits), bottom = sign ? -top : 0;

    if (x != x)
        return 0;
    if (x >= top)
        return bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
    if (x <= bottom)
        return sign ? ~(uint64_t)0 << bits : 0;
    return sign ? (uint64_t)(int64_t)x : (uint64_t)x;
}

/* A whole number to a float, rounded once. */
static uint64_t from_whole(int to, int from, uint64_t x)
{
    bool sign = from % 2 == S8 % 2;

    if (to == F64)
        return bits_of(F64, sign ? (double)(int64_t)x : (double)x);
    return bits_of(to, (double)(sign ? (float)(int64_t)x : (float)x));
}

/* number: the types, how to round, whether to limit to 0..1. */
static uint64_t convert(const struct instruction &i, uint64_t x)
{
    int to = i.number[0], from = i.number[1], how = i.number[2];

    if (!is_float(from)) {
        x = widen(from, x);
        return is_float(to) ? from_whole(to, from, x) : x;
    }
    double d = float_of(from, x);
    if (!is_float(to))
        return whole_of(to, rounded(how, d));
    d = to == from ? rounded(how, d) : d;
    if (i.number[3]) /* .sat */
        d = d != d ? 0 : d < 0 ? 0 : d > 1 ? 1 : d;
    return bits_of(to, d);
}

/* Lane by lane: widths differ, and there are few of them in inner loops. */
static void run_convert(struct warp &w, const struct instruction &i,
                        uint32_t lanes)
{
    for (unsigned l = 0; l < 32; l++)
        if (lanes >> l & 1)
            put_any(w, i.at[0].slot, l,
                    convert(i, get_any(w, i.at[1].slot, l)));
}

/* Two floats into one register, the first in its upper half. */
static void run_pack(struct warp &w, const struct instruction &i,
                     uint32_t lanes)
{
    row<float> high = get<float>(w, i.at[1].slot);
    row<float> low = get<float>(w, i.at[2].slot);
    row<uint32_t> d;

    for (int l = 0; l < 32; l++)
        d.v[l] = i.number[1] == BF16
                     ? (uint32_t)gpt_f32_to_bf16(high.v[l]) << 16 |
                           gpt_f32_to_bf16(low.v[l])
                     : (uint32_t)gpt_f32_to_f16(high.v[l]) << 16 |
                           gpt_f32_to_f16(low.v[l]);
    put(w, i.at[0].slot, d, lanes);
}

/* A float rounded to TF32 stays in a register of 32 bits. The manual leaves open
 * what its 13 lower bits then are; here they are 0, which mma demands (tensor.cc),
 * so that a factor that was not rounded shows. */
static void run_tf32(struct warp &w, const struct instruction &i, uint32_t lanes)
{
    row<float> x = get<float>(w, i.at[1].slot);

    for (float &v : x.v)
        v = to_tf32(v);
    put(w, i.at[0].slot, x, lanes);
}

/* Two floats into eight bits each; number: the type. Rounding and the largest number
 * are those of the CPU's reference, which agrees with PyTorch on every code. */
static void run_pack_eight(struct warp &w, const struct instruction &i,
                           uint32_t lanes)
{
    enum gpt_fp8 type = (enum gpt_fp8)i.number[0];
    row<float> high = get<float>(w, i.at[1].slot);
    row<float> low = get<float>(w, i.at[2].slot);
    row<uint16_t> d;

    for (int l = 0; l < 32; l++)
        d.v[l] = (uint16_t)(gpt_fp8_of(high.v[l], type) << 8 |
                            gpt_fp8_of(low.v[l], type));
    put(w, i.at[0].slot, d, lanes);
}

/* Names like cvt.rn.f32.s32; roundings of results that are whole end in i. */
static void add_pair(rules &r, int to, int from)
{
    std::string types = std::string(type_names[to]) + "." + type_names[from];
    static const char *const ways[2][TYPE_ROUNDINGS] = {
        {"", "rn.", nullptr, nullptr, nullptr},
        {"", "rni.", "rzi.", "rmi.", "rpi."}};
    /* To a whole number roundings have names of their own. */
    bool whole = is_float(from) && (!is_float(to) || to == from);

    for (int how = 0; how < TYPE_ROUNDINGS; how++)
        if (ways[whole][how]) {
            struct rule x = {run_convert, "?=?", NEXT, CARE_ALL, false,
                             {to, from, how, 0}};
            r[std::string("cvt.") + ways[whole][how] + types] = x;
            x.number[3] = 1;
            r[std::string("cvt.") + ways[whole][how] + "sat." + types] = x;
        }
}

/* ---- addresses: generic ones are the host's ---- */

/* Global, local and parameter memory have the same addresses as pointers to
 * anything. */
static void run_same(struct warp &w, const struct instruction &i,
                     uint32_t lanes)
{
    for (unsigned l = 0; l < 32; l++)
        if (lanes >> l & 1)
            put_any(w, i.at[0].slot, l, get_any(w, i.at[1].slot, l));
}

void add_conversions(rules &r)
{
    for (int to = 0; to < TYPES; to++)
        for (int from = 0; from < TYPES; from++)
            add_pair(r, to, from);
    r["cvt.rn.f16x2.f32"] = {run_pack, "w=ww", NEXT, CARE_ALL, false,
                             {4, F16, 0, 0}};
    r["cvt.rn.bf16x2.f32"] = {run_pack, "w=ww", NEXT, CARE_ALL, false,
                              {4, BF16, 0, 0}};
    r["cvt.rna.tf32.f32"] = {run_tf32, "w=w", NEXT, CARE_ALL, false, {}};
    r["cvt.rn.satfinite.e4m3x2.f32"] = {run_pack_eight, "h=ww", NEXT, CARE_ALL,
                                        false, {GPT_E4M3, 0, 0, 0}};
    r["cvt.rn.satfinite.e5m2x2.f32"] = {run_pack_eight, "h=ww", NEXT, CARE_ALL,
                                        false, {GPT_E5M2, 0, 0, 0}};
    for (const char *space : {"global", "local", "param", "const"})
        for (const char *way : {"cvta.", "cvta.to."})
            r[std::string(way) + space + ".u64"] = {
                run_same, "?=?", NEXT, CARE_ALL, false, {}};
}

} // namespace ptx
} // namespace emu
