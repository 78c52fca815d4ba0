/* Bits, predicates, and moves, which take numbers as bits. Most are one line of
 * the table in add_logic() and add_odd(); those whose operands are not all of
 * one type have an action of their own. Shifts by more than a number has give 0,
 * or copies of its sign: in C++ they would be undefined. Names follow the PTX
 * manual, "Logic and Shift Instructions" and "Integer Arithmetic". */
#include "kernels/emu/ptx/arith.h"

#include <algorithm>

namespace emu {
namespace ptx {

/* ---- moves ---- */

/* Bits, whatever the type's name: a NaN stays the NaN that it was. */
template <class T>
static void run_move(struct warp &w, const struct instruction &i,
                     uint32_t lanes)
{
    put(w, i.at[0].slot, get<T>(w, i.at[1].slot), lanes);
}

/* From or to a list, whose parts lie one after another: number[0] bytes each. */
static void run_parts(struct warp &w, const struct instruction &i,
                      uint32_t lanes)
{
    const struct operand &to = i.at[0], &from = i.at[1];
    const uint32_t *lists = w.f->lists.data();
    unsigned bits = (unsigned)i.number[0] * 8;

    for (unsigned l = 0; l < 32; l++) {
        uint64_t x = 0;

        if (!(lanes >> l & 1))
            continue;
        if (from.kind != operand::LIST)
            x = get_any(w, from.slot, l);
        for (unsigned k = 0; k < from.count; k++)
            x |= get_any(w, lists[from.first + k], l) << k * bits;
        if (to.kind != operand::LIST)
            put_any(w, to.slot, l, x);
        for (unsigned k = 0; k < to.count; k++)
            if (lists[to.first + k] != NOWHERE)
                put_any(w, lists[to.first + k], l, x >> k * bits);
    }
}

/* mov.b64 takes {low, high} on either side. */
template <class T>
static void run_any_move(struct warp &w, const struct instruction &i,
                         uint32_t lanes)
{
    bool list = i.at[0].kind == operand::LIST || i.at[1].kind == operand::LIST;

    (list ? run_parts : run_move<T>)(w, i, lanes);
}

/* A predicate is one bit a lane: 32 at once. */
template <uint32_t (*f)(uint32_t, uint32_t)>
static void run_predicates(struct warp &w, const struct instruction &i,
                           uint32_t lanes)
{
    uint32_t a = get_predicate(w, i.at[1].slot);
    uint32_t b = i.n > 2 ? get_predicate(w, i.at[2].slot) : 0;

    put_predicate(w, i.at[0].slot, f(a, b), lanes);
}

/* ---- words ---- */

template <class T> static T shift_left(T a, uint32_t n)
{
    return n >= sizeof(T) * 8 ? 0 : (T)((uint64_t)a << n);
}
template <class T> static T both(T a, T b) { return a & b; }
template <class T> static T either(T a, T b) { return a | b; }
template <class T> static T differ(T a, T b) { return a ^ b; }
template <class T> static T invert(T a) { return (T)~a; }
template <class T> static T shift_right(T a, uint32_t n)
{
    return (T)(a >> std::min<uint32_t>(n, sizeof(T) * 8 - 1)) &
           (T)(!std::is_signed_v<T> && n >= sizeof(T) * 8 ? 0 : ~(T)0);
}
template <class T> static void add_shift(rules &r, const std::string &t)
{
    set_rule(r, "shr." + t, run2<T, T, uint32_t, shift_right<T>>, "x=xw",
             sizeof(T));
}

template <class T> static void add_logic(rules &r, const std::string &t)
{
    size_t n = sizeof(T);

    add_shift<T>(r, t);
    set_rule(r, "and." + t, run2<T, T, T, both<T>>, "x=xx", n);
    set_rule(r, "or." + t, run2<T, T, T, either<T>>, "x=xx", n);
    set_rule(r, "xor." + t, run2<T, T, T, differ<T>>, "x=xx", n);
    set_rule(r, "not." + t, run1<T, T, invert<T>>, "x=x", n);
    set_rule(r, "shl." + t, run2<T, T, uint32_t, shift_left<T>>, "x=xw", n);
    set_rule(r, "selp." + t, run_select<T>, "x=xxp", n);
    r["selp." + t].care = CARE_CHOICE;
    set_rule(r, "setp.eq." + t, run_compare<T, equal<T>>, "p=xx", n);
    set_rule(r, "setp.ne." + t, run_compare<T, unequal<T>>, "p=xx", n);
    for (const char *kind : {"b", "u", "s", "f"}) {
        std::string name = "mov." + (kind + t.substr(1));

        r[name] = {run_any_move<T>,
                   n == 2 ? "H=H" : n == 4 ? "W=W" : "D=D", NEXT, CARE_MOVE,
                   false, {(int32_t)n / 2, 0, 0, 0}};
    }
}

/* ---- bits ---- */

static uint32_t count_ones(uint32_t a) { return (uint32_t)__builtin_popcount(a); }
static uint32_t leading(uint32_t a)
{
    return a ? (uint32_t)__builtin_clz(a) : 32;
}

/* Bytes of b:a that the digits of c name; the default mode. */
static uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t c)
{
    uint64_t both_words = (uint64_t)b << 32 | a;
    uint32_t x = 0;

    for (unsigned k = 0; k < 4; k++) {
        uint32_t digit = c >> 4 * k & 15;
        uint32_t byte = (uint32_t)(both_words >> 8 * (digit & 7)) & 255;

        if (digit & 8)
            byte = byte & 128 ? 255 : 0;
        x |= byte << 8 * k;
    }
    return x;
}

static uint32_t funnel_left(uint32_t a, uint32_t b, uint32_t c)
{
    return (uint32_t)((((uint64_t)b << 32 | a) << (c & 31)) >> 32);
}
static uint32_t funnel_right(uint32_t a, uint32_t b, uint32_t c)
{
    return (uint32_t)(((uint64_t)b << 32 | a) >> (c & 31));
}

/* bfi d, a, b, from, count: the low bits of a into b. */
template <class T>
static void run_insert(struct warp &w, const struct instruction &i,
                       uint32_t lanes)
{
    row<T> a = get<T>(w, i.at[1].slot), b = get<T>(w, i.at[2].slot);
    row<uint32_t> at = get<uint32_t>(w, i.at[3].slot);
    row<uint32_t> n = get<uint32_t>(w, i.at[4].slot);
    const unsigned bits = sizeof(T) * 8;

    for (int l = 0; l < 32; l++) {
        unsigned from = at.v[l] & 255, count = n.v[l] & 255;
        T mask = count >= bits ? ~(T)0 : (T)(((T)1 << count) - 1);

        mask = from >= bits ? 0 : (T)(mask << from);
        T moved = from >= bits ? 0 : (T)(a.v[l] << from);
        b.v[l] = (b.v[l] & (T)~mask) | (moved & mask);
    }
    put(w, i.at[0].slot, b, lanes);
}

/* bfe d, a, from, count. Past the end of a there are zeros, or copies of its
 * sign. */
template <class T>
static void run_extract(struct warp &w, const struct instruction &i,
                        uint32_t lanes)
{
    typedef std::make_unsigned_t<T> U;
    row<T> a = get<T>(w, i.at[1].slot);
    row<uint32_t> at = get<uint32_t>(w, i.at[2].slot);
    row<uint32_t> n = get<uint32_t>(w, i.at[3].slot);
    const unsigned bits = sizeof(T) * 8;

    for (int l = 0; l < 32; l++) {
        bool past = !std::is_signed_v<T> && (at.v[l] & 255) >= bits;
        unsigned from = std::min(at.v[l] & 255, bits - 1);
        unsigned count = past ? 0 : std::min(n.v[l] & 255, bits - from);
        U x = (U)((U)a.v[l] << (bits - from - count) % bits);

        a.v[l] = count ? (T)((T)x >> (bits - count)) : (T)0;
    }
    put(w, i.at[0].slot, a, lanes);
}

/* lop3 d, a, b, c, table */
static void run_lop3(struct warp &w, const struct instruction &i,
                     uint32_t lanes)
{
    row<uint32_t> a = get<uint32_t>(w, i.at[1].slot);
    row<uint32_t> b = get<uint32_t>(w, i.at[2].slot);
    row<uint32_t> c = get<uint32_t>(w, i.at[3].slot), d = {};
    uint32_t table = (uint32_t)i.at[4].offset;

    for (int l = 0; l < 32; l++)
        for (unsigned k = 0; k < 8; k++)
            if (table >> k & 1)
                d.v[l] |= (k & 4 ? a.v[l] : ~a.v[l]) &
                          (k & 2 ? b.v[l] : ~b.v[l]) &
                          (k & 1 ? c.v[l] : ~c.v[l]);
    put(w, i.at[0].slot, d, lanes);
}

static uint32_t p_and(uint32_t a, uint32_t b) { return a & b; }
static uint32_t p_or(uint32_t a, uint32_t b) { return a | b; }
static uint32_t p_xor(uint32_t a, uint32_t b) { return a ^ b; }
static uint32_t p_not(uint32_t a, uint32_t) { return ~a; }
static uint32_t p_move(uint32_t a, uint32_t) { return a; }

static void add_odd(rules &r)
{
    auto put_rule = [&](const char *name, action *run, const char *takes) {
        r[name] = {run, takes, NEXT, CARE_ALL, false, {}};
    };

    put_rule("popc.b32", run1<uint32_t, uint32_t, count_ones>, "w=w");
    put_rule("clz.b32", run1<uint32_t, uint32_t, leading>, "w=w");
    put_rule("prmt.b32",
             run3<uint32_t, uint32_t, uint32_t, permute_bytes>, "w=www");
    put_rule("shf.l.wrap.b32",
             run3<uint32_t, uint32_t, uint32_t, funnel_left>, "w=www");
    put_rule("shf.r.wrap.b32",
             run3<uint32_t, uint32_t, uint32_t, funnel_right>, "w=www");
    put_rule("bfi.b32", run_insert<uint32_t>, "w=wwww");
    put_rule("bfi.b64", run_insert<uint64_t>, "d=ddww");
    put_rule("bfe.u32", run_extract<uint32_t>, "w=www");
    put_rule("bfe.s32", run_extract<int32_t>, "w=www");
    put_rule("bfe.u64", run_extract<uint64_t>, "d=dww");
    put_rule("bfe.s64", run_extract<int64_t>, "d=dww");
    put_rule("lop3.b32", run_lop3, "w=www#");
    put_rule("and.pred", run_predicates<p_and>, "p=pp");
    put_rule("or.pred", run_predicates<p_or>, "p=pp");
    put_rule("xor.pred", run_predicates<p_xor>, "p=pp");
    put_rule("not.pred", run_predicates<p_not>, "p=p");
    put_rule("mov.pred", run_predicates<p_move>, "p=p");
    r["mov.pred"].care = CARE_MOVE;
}

void add_bits(rules &r)
{
    add_logic<uint16_t>(r, "b16");
    add_logic<uint32_t>(r, "b32");
    add_logic<uint64_t>(r, "b64");
    add_shift<int16_t>(r, "s16");
    add_shift<uint16_t>(r, "u16");
    add_shift<int32_t>(r, "s32");
    add_shift<uint32_t>(r, "u32");
    add_shift<int64_t>(r, "s64");
    add_shift<uint64_t>(r, "u64");
    add_odd(r);
}

} // namespace ptx
} // namespace emu
