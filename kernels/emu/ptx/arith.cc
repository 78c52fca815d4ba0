/* Instructions that compute a lane's number from the same lane's numbers. Lanes
 * that do not run compute, too, and their numbers are dropped: so no instruction
 * may stop at any number, division by zero included. */
#include "kernels/emu/ptx/ptx.h"

#include <algorithm>
#include <cfenv>
#include <ctype.h>
#include <set>
#include <type_traits>

namespace emu {
namespace ptx {

/* A text that stays. */
static const char *kept(const std::string &s)
{
    static std::set<std::string> all;

    return all.insert(s).first->c_str();
}

template <class D, class A, D (*f)(A)>
static void run1(struct warp &w, const struct instruction &i, uint32_t lanes)
{
    row<A> a = get<A>(w, i.at[1].slot);
    row<D> d;

    for (int l = 0; l < 32; l++)
        d.v[l] = f(a.v[l]);
    put(w, i.at[0].slot, d, lanes);
}

template <class D, class A, class B, D (*f)(A, B)>
static void run2(struct warp &w, const struct instruction &i, uint32_t lanes)
{
    row<A> a = get<A>(w, i.at[1].slot);
    row<B> b = get<B>(w, i.at[2].slot);
    row<D> d;

    for (int l = 0; l < 32; l++)
        d.v[l] = f(a.v[l], b.v[l]);
    put(w, i.at[0].slot, d, lanes);
}

template <class D, class A, class C, D (*f)(A, A, C)>
static void run3(struct warp &w, const struct instruction &i, uint32_t lanes)
{
    row<A> a = get<A>(w, i.at[1].slot);
    row<A> b = get<A>(w, i.at[2].slot);
    row<C> c = get<C>(w, i.at[3].slot);
    row<D> d;

    for (int l = 0; l < 32; l++)
        d.v[l] = f(a.v[l], b.v[l], c.v[l]);
    put(w, i.at[0].slot, d, lanes);
}

template <class A, bool (*f)(A, A)>
static void run_compare(struct warp &w, const struct instruction &i,
                        uint32_t lanes)
{
    row<A> a = get<A>(w, i.at[1].slot), b = get<A>(w, i.at[2].slot);
    uint32_t bits = 0;

    for (int l = 0; l < 32; l++)
        bits |= (uint32_t)f(a.v[l], b.v[l]) << l;
    put_predicate(w, i.at[0].slot, bits, lanes);
}

template <class A>
static void run_select(struct warp &w, const struct instruction &i,
                       uint32_t lanes)
{
    row<A> a = get<A>(w, i.at[1].slot), b = get<A>(w, i.at[2].slot);
    uint32_t first = get_predicate(w, i.at[3].slot);

    for (int l = 0; l < 32; l++)
        a.v[l] = first >> l & 1 ? a.v[l] : b.v[l];
    put(w, i.at[0].slot, a, lanes);
}

template <uint32_t (*f)(uint32_t, uint32_t)>
static void run_predicates(struct warp &w, const struct instruction &i,
                           uint32_t lanes)
{
    uint32_t a = get_predicate(w, i.at[1].slot);
    uint32_t b = i.n > 2 ? get_predicate(w, i.at[2].slot) : 0;

    put_predicate(w, i.at[0].slot, f(a, b), lanes);
}

/* ---- moves ---- */

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

template <class T>
static void run_any_move(struct warp &w, const struct instruction &i,
                         uint32_t lanes)
{
    bool list = i.at[0].kind == operand::LIST || i.at[1].kind == operand::LIST;

    (list ? run_parts : run_move<T>)(w, i, lanes);
}

/* ---- whole numbers ---- */

template <class T> using without_sign = std::make_unsigned_t<T>;
template <class T> static T add(T a, T b)
{
    return (T)((without_sign<T>)a + (without_sign<T>)b);
}
template <class T> static T subtract(T a, T b)
{
    return (T)((without_sign<T>)a - (without_sign<T>)b);
}
template <class T> static T multiply(T a, T b)
{
    return (T)((uint64_t)a * (uint64_t)b);
}
template <class T> static T multiply_add(T a, T b, T c)
{
    return (T)((uint64_t)a * (uint64_t)b + (uint64_t)c);
}
template <class T> static T multiply_high(T a, T b)
{
    if constexpr (std::is_signed_v<T>)
        return (T)((__int128)a * b >> sizeof(T) * 8);
    else
        return (T)((unsigned __int128)a * b >> sizeof(T) * 8);
}
template <class D, class T> static D multiply_wide(T a, T b)
{
    return (D)((D)a * (D)b);
}
template <class D, class T> static D multiply_wide_add(T a, T b, D c)
{
    return (D)((uint64_t)((D)a * (D)b) + (uint64_t)c);
}
/* A GPU gives all ones, or anything: no kernel here divides by zero where the
 * result matters. */
template <class T> static T divide(T a, T b)
{
    return b == 0 || (std::is_signed_v<T> && b == (T)-1) ? (T)(0 - (uint64_t)a)
                                                         : (T)(a / b);
}
template <class T> static T remain(T a, T b)
{
    return b == 0 || (std::is_signed_v<T> && b == (T)-1) ? (T)0 : (T)(a % b);
}
template <class T> static T least(T a, T b) { return a < b ? a : b; }
template <class T> static T greatest(T a, T b) { return a > b ? a : b; }
template <class T> static T negate(T a) { return (T)(0 - (uint64_t)a); }
template <class T> static T magnitude(T a)
{
    return a < 0 ? (T)(0 - (uint64_t)a) : a;
}
template <class T> static T shift_left(T a, uint32_t n)
{
    return n >= sizeof(T) * 8 ? 0 : (T)((uint64_t)a << n);
}
template <class T> static T shift_right(T a, uint32_t n)
{
    return (T)(a >> std::min<uint32_t>(n, sizeof(T) * 8 - 1)) &
           (T)(!std::is_signed_v<T> && n >= sizeof(T) * 8 ? 0 : ~(T)0);
}
template <class T> static T both(T a, T b) { return a & b; }
template <class T> static T either(T a, T b) { return a | b; }
template <class T> static T differ(T a, T b) { return a ^ b; }
template <class T> static T invert(T a) { return (T)~a; }
template <class T> static bool equal(T a, T b) { return a == b; }
template <class T> static bool unequal(T a, T b) { return a != b; }
template <class T> static bool less(T a, T b) { return a < b; }
template <class T> static bool at_most(T a, T b) { return a <= b; }
template <class T> static bool more(T a, T b) { return a > b; }
template <class T> static bool at_least(T a, T b) { return a >= b; }
/* The same, or one is NaN. */
template <class T> static bool less_u(T a, T b) { return !(a >= b); }
template <class T> static bool at_most_u(T a, T b) { return !(a > b); }
template <class T> static bool more_u(T a, T b) { return !(a <= b); }
template <class T> static bool at_least_u(T a, T b) { return !(a < b); }
template <class T> static bool equal_u(T a, T b) { return !(a < b || a > b); }
template <class T> static bool unequal_o(T a, T b) { return a < b || a > b; }
template <class T> static bool no_nan(T a, T b) { return a == a && b == b; }
template <class T> static bool a_nan(T a, T b) { return a != a || b != b; }

/* ww for two operands of the type's letter, and so on. */
static const char *taking(const char *pattern, char letter)
{
    std::string s = pattern;

    for (char &c : s)
        c = c == 'x' ? letter : c;
    return kept(s);
}

static const char letter_of[9] = {'p', 0, 'h', 0, 'w', 0, 0, 0, 'd'};

static void set(rules &r, const std::string &name, action *run,
                const char *pattern, size_t bytes)
{
    r[name] = {run, taking(pattern, letter_of[bytes]), NEXT, CARE_ALL, false,
               {}};
}

template <class T> static void add_compares(rules &r, const std::string &t)
{
    size_t n = sizeof(T);

    set(r, "setp.eq." + t, run_compare<T, equal<T>>, "p=xx", n);
    set(r, "setp.ne." + t, run_compare<T, unequal<T>>, "p=xx", n);
    set(r, "setp.lt." + t, run_compare<T, less<T>>, "p=xx", n);
    set(r, "setp.le." + t, run_compare<T, at_most<T>>, "p=xx", n);
    set(r, "setp.gt." + t, run_compare<T, more<T>>, "p=xx", n);
    set(r, "setp.ge." + t, run_compare<T, at_least<T>>, "p=xx", n);
}

template <class T> static void add_whole(rules &r, const std::string &t)
{
    size_t n = sizeof(T);

    set(r, "add." + t, run2<T, T, T, add<T>>, "x=xx", n);
    set(r, "sub." + t, run2<T, T, T, subtract<T>>, "x=xx", n);
    set(r, "mul.lo." + t, run2<T, T, T, multiply<T>>, "x=xx", n);
    set(r, "mad.lo." + t, run3<T, T, T, multiply_add<T>>, "x=xxx", n);
    set(r, "mul.hi." + t, run2<T, T, T, multiply_high<T>>, "x=xx", n);
    set(r, "div." + t, run2<T, T, T, divide<T>>, "x=xx", n);
    set(r, "rem." + t, run2<T, T, T, remain<T>>, "x=xx", n);
    set(r, "min." + t, run2<T, T, T, least<T>>, "x=xx", n);
    set(r, "max." + t, run2<T, T, T, greatest<T>>, "x=xx", n);
    set(r, "shr." + t, run2<T, T, uint32_t, shift_right<T>>, "x=xw", n);
    set(r, "selp." + t, run_select<T>, "x=xxp", n);
    if constexpr (std::is_signed_v<T>) {
        set(r, "neg." + t, run1<T, T, negate<T>>, "x=x", n);
        set(r, "abs." + t, run1<T, T, magnitude<T>>, "x=x", n);
    }
    add_compares<T>(r, t);
}

template <class D, class T>
static void add_wide(rules &r, const std::string &t, char d)
{
    const char *two = d == 'w' ? "w=hh" : "d=ww";
    const char *three = d == 'w' ? "w=hhw" : "d=wwd";

    r["mul.wide." + t] = {run2<D, T, T, multiply_wide<D, T>>, two, NEXT,
                          CARE_ALL, false, {}};
    r["mad.wide." + t] = {run3<D, T, D, multiply_wide_add<D, T>>, three, NEXT,
                          CARE_ALL, false, {}};
}

template <class T> static void add_bits(rules &r, const std::string &t)
{
    size_t n = sizeof(T);

    set(r, "and." + t, run2<T, T, T, both<T>>, "x=xx", n);
    set(r, "or." + t, run2<T, T, T, either<T>>, "x=xx", n);
    set(r, "xor." + t, run2<T, T, T, differ<T>>, "x=xx", n);
    set(r, "not." + t, run1<T, T, invert<T>>, "x=x", n);
    set(r, "shl." + t, run2<T, T, uint32_t, shift_left<T>>, "x=xw", n);
    set(r, "shr." + t, run2<T, T, uint32_t, shift_right<T>>, "x=xw", n);
    set(r, "selp." + t, run_select<T>, "x=xxp", n);
    set(r, "setp.eq." + t, run_compare<T, equal<T>>, "p=xx", n);
    set(r, "setp.ne." + t, run_compare<T, unequal<T>>, "p=xx", n);
    for (const char *kind : {"b", "u", "s", "f"}) {
        std::string name = "mov." + (kind + t.substr(1));

        r[name] = {run_any_move<T>,
                   taking("x=x", (char)toupper(letter_of[n])), NEXT, CARE_MOVE,
                   false, {(int32_t)n / 2, 0, 0, 0}};
    }
}

/* ---- bits ---- */

static uint32_t count_ones(uint32_t a) { return (uint32_t)__builtin_popcount(a); }
static uint32_t count_ones64(uint64_t a)
{
    return (uint32_t)__builtin_popcountll(a);
}
static uint32_t leading(uint32_t a)
{
    return a ? (uint32_t)__builtin_clz(a) : 32;
}
static uint32_t leading64(uint64_t a)
{
    return a ? (uint32_t)__builtin_clzll(a) : 64;
}
static uint32_t reverse(uint32_t a)
{
    uint32_t x = 0;

    for (int i = 0; i < 32; i++)
        x |= (a >> i & 1) << (31 - i);
    return x;
}
static uint32_t find_top(uint32_t a)
{
    return a ? 31 - (uint32_t)__builtin_clz(a) : ~0u;
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

/* bfe d, a, from, count */
template <class T>
static void run_extract(struct warp &w, const struct instruction &i,
                        uint32_t lanes)
{
    typedef without_sign<T> U;
    row<T> a = get<T>(w, i.at[1].slot);
    row<uint32_t> at = get<uint32_t>(w, i.at[2].slot);
    row<uint32_t> n = get<uint32_t>(w, i.at[3].slot);
    const unsigned bits = sizeof(T) * 8;

    for (int l = 0; l < 32; l++) {
        unsigned from = std::min(at.v[l] & 255, bits - 1);
        unsigned count = std::min(n.v[l] & 255, bits - from);
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
    put_rule("popc.b64", run1<uint32_t, uint64_t, count_ones64>, "w=d");
    put_rule("clz.b32", run1<uint32_t, uint32_t, leading>, "w=w");
    put_rule("clz.b64", run1<uint32_t, uint64_t, leading64>, "w=d");
    put_rule("brev.b32", run1<uint32_t, uint32_t, reverse>, "w=w");
    put_rule("bfind.u32", run1<uint32_t, uint32_t, find_top>, "w=w");
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

/* ---- floating point ---- */

template <class T> static T f_add(T a, T b) { return a + b; }
template <class T> static T f_sub(T a, T b) { return a - b; }
template <class T> static T f_mul(T a, T b) { return a * b; }
template <class T> static T f_div(T a, T b) { return a / b; }
template <class T> static T f_fma(T a, T b, T c) { return std::fma(a, b, c); }
/* Towards minus infinity. */
static float f_fma_down(float a, float b, float c)
{
    int was = std::fegetround();

    std::fesetround(FE_DOWNWARD);
    volatile float x = a, y = b, z = c;
    float sum = std::fma(x, y, z);
    std::fesetround(was);
    return sum;
}
/* Of a number and NaN the number. */
template <class T> static T f_min(T a, T b) { return std::fmin(a, b); }
template <class T> static T f_max(T a, T b) { return std::fmax(a, b); }
template <class T> static T f_neg(T a) { return -a; }
template <class T> static T f_abs(T a) { return std::fabs(a); }
template <class T> static T f_sqrt(T a) { return std::sqrt(a); }
template <class T> static T f_inverse(T a) { return 1 / a; }
static float f_rsqrt(float a) { return 1 / std::sqrt(a); }
static float f_exp2(float a) { return std::exp2(a); }
/* .ftz: results and operands below 2^-126 are zero. */
static float flush(float a)
{
    return std::fabs(a) < 0x1p-126f ? std::copysign(0.0f, a) : a;
}
static float f_exp2_flush(float a) { return flush(std::exp2(flush(a))); }
static float f_log2(float a) { return std::log2(a); }
static float f_tanh(float a) { return std::tanh(a); }
static float f_sin(float a) { return std::sin(a); }
static float f_cos(float a) { return std::cos(a); }
static float f_copysign(float a, float b) { return std::copysign(b, a); }

template <class T> static void add_floating(rules &r, const std::string &t)
{
    size_t n = sizeof(T);

    for (const char *round : {"", "rn."}) {
        std::string suffix = round + t;

        set(r, "add." + suffix, run2<T, T, T, f_add<T>>, "x=xx", n);
        set(r, "sub." + suffix, run2<T, T, T, f_sub<T>>, "x=xx", n);
        set(r, "mul." + suffix, run2<T, T, T, f_mul<T>>, "x=xx", n);
    }
    set(r, "div.rn." + t, run2<T, T, T, f_div<T>>, "x=xx", n);
    set(r, "fma.rn." + t, run3<T, T, T, f_fma<T>>, "x=xxx", n);
    set(r, "min." + t, run2<T, T, T, f_min<T>>, "x=xx", n);
    set(r, "max." + t, run2<T, T, T, f_max<T>>, "x=xx", n);
    set(r, "neg." + t, run1<T, T, f_neg<T>>, "x=x", n);
    set(r, "abs." + t, run1<T, T, f_abs<T>>, "x=x", n);
    set(r, "sqrt.rn." + t, run1<T, T, f_sqrt<T>>, "x=x", n);
    set(r, "rcp.rn." + t, run1<T, T, f_inverse<T>>, "x=x", n);
    set(r, "selp." + t, run_select<T>, "x=xxp", n);
    add_compares<T>(r, t);
    set(r, "setp.ne." + t, run_compare<T, unequal_o<T>>, "p=xx", n);
    set(r, "setp.neu." + t, run_compare<T, unequal<T>>, "p=xx", n);
    set(r, "setp.equ." + t, run_compare<T, equal_u<T>>, "p=xx", n);
    set(r, "setp.ltu." + t, run_compare<T, less_u<T>>, "p=xx", n);
    set(r, "setp.leu." + t, run_compare<T, at_most_u<T>>, "p=xx", n);
    set(r, "setp.gtu." + t, run_compare<T, more_u<T>>, "p=xx", n);
    set(r, "setp.geu." + t, run_compare<T, at_least_u<T>>, "p=xx", n);
    set(r, "setp.num." + t, run_compare<T, no_nan<T>>, "p=xx", n);
    set(r, "setp.nan." + t, run_compare<T, a_nan<T>>, "p=xx", n);
}

/* What a GPU computes to a few units of the last place, the library does
 * better: tests allow for both. */
static void add_approximate(rules &r)
{
    auto one = [&](const char *name, action *run) {
        set(r, name, run, "x=x", 4);
    };

    one("ex2.approx.f32", run1<float, float, f_exp2>);
    one("ex2.approx.ftz.f32", run1<float, float, f_exp2_flush>);
    one("lg2.approx.f32", run1<float, float, f_log2>);
    one("lg2.approx.ftz.f32", run1<float, float, f_log2>);
    one("rsqrt.approx.f32", run1<float, float, f_rsqrt>);
    one("rcp.approx.f32", run1<float, float, f_inverse<float>>);
    one("rcp.approx.ftz.f32", run1<float, float, f_inverse<float>>);
    one("tanh.approx.f32", run1<float, float, f_tanh>);
    one("sin.approx.f32", run1<float, float, f_sin>);
    one("cos.approx.f32", run1<float, float, f_cos>);
    set(r, "div.approx.f32", run2<float, float, float, f_div<float>>, "x=xx",
        4);
    set(r, "div.full.f32", run2<float, float, float, f_div<float>>, "x=xx", 4);
    set(r, "fma.rm.f32", run3<float, float, float, f_fma_down>, "x=xxx", 4);
    set(r, "copysign.f32", run2<float, float, float, f_copysign>, "x=xx", 4);
}

void add_arithmetic(rules &r)
{
    add_whole<int16_t>(r, "s16");
    add_whole<uint16_t>(r, "u16");
    add_whole<int32_t>(r, "s32");
    add_whole<uint32_t>(r, "u32");
    add_whole<int64_t>(r, "s64");
    add_whole<uint64_t>(r, "u64");
    add_wide<int32_t, int16_t>(r, "s16", 'w');
    add_wide<uint32_t, uint16_t>(r, "u16", 'w');
    add_wide<int64_t, int32_t>(r, "s32", 'd');
    add_wide<uint64_t, uint32_t>(r, "u32", 'd');
    add_bits<uint16_t>(r, "b16");
    add_bits<uint32_t>(r, "b32");
    add_bits<uint64_t>(r, "b64");
    add_odd(r);
    add_floating<float>(r, "f32");
    add_floating<double>(r, "f64");
    add_approximate(r);
}

} // namespace ptx
} // namespace emu
