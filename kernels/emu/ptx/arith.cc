/* Whole numbers: sums, products, quotients, comparisons of 16, 32 and 64 bits,
 * with sign and without. Sums and products wrap around, as PTX says; they are
 * computed without sign, where C++ lets them. Start at add_arithmetic(), which
 * also asks the neighbours for their rows of the table. An instruction is a
 * function of one lane and a pattern of what it takes; arith.h makes an action
 * of 32 lanes of it. */
#include "kernels/emu/ptx/arith.h"

#include <algorithm>
#include <set>

namespace emu {
namespace ptx {

/* A text that stays. */
static const char *kept(const std::string &s)
{
    static std::set<std::string> all;

    return all.insert(s).first->c_str();
}

/* ww for two operands of the type's letter, and so on. Patterns are for many
 * types; texts of rules live as long as the process. */
static const char *taking(const char *pattern, char letter)
{
    std::string s = pattern;

    for (char &c : s)
        c = c == 'x' ? letter : c;
    return kept(s);
}

static const char letter_of[9] = {'p', 0, 'h', 0, 'w', 0, 0, 0, 'd'};

void set_rule(rules &r, const std::string &name, action *run,
              const char *pattern, size_t bytes)
{
    r[name] = {run, taking(pattern, letter_of[bytes]), NEXT, CARE_ALL, false,
               {}};
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
template <class T> static void add_whole(rules &r, const std::string &t)
{
    size_t n = sizeof(T);

    set_rule(r, "add." + t, run2<T, T, T, add<T>>, "x=xx", n);
    set_rule(r, "sub." + t, run2<T, T, T, subtract<T>>, "x=xx", n);
    set_rule(r, "mul.lo." + t, run2<T, T, T, multiply<T>>, "x=xx", n);
    set_rule(r, "mad.lo." + t, run3<T, T, T, multiply_add<T>>, "x=xxx", n);
    set_rule(r, "mul.hi." + t, run2<T, T, T, multiply_high<T>>, "x=xx", n);
    set_rule(r, "div." + t, run2<T, T, T, divide<T>>, "x=xx", n);
    set_rule(r, "rem." + t, run2<T, T, T, remain<T>>, "x=xx", n);
    set_rule(r, "min." + t, run2<T, T, T, least<T>>, "x=xx", n);
    set_rule(r, "max." + t, run2<T, T, T, greatest<T>>, "x=xx", n);
    set_rule(r, "selp." + t, run_select<T>, "x=xxp", n);
    r["selp." + t].care = CARE_CHOICE;
    if constexpr (std::is_signed_v<T>) {
        set_rule(r, "neg." + t, run1<T, T, negate<T>>, "x=x", n);
        set_rule(r, "abs." + t, run1<T, T, magnitude<T>>, "x=x", n);
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
    add_bits(r);
    add_floating(r);
}

} // namespace ptx
} // namespace emu
