/* Floating point. What PTX rounds is rounded the same way, bit for bit, and
 * numbers below 2^-126 are kept, but for instructions named .ftz. What PTX calls
 * approximate comes from the C library, which is closer: a test compares with
 * the CPU within a tolerance that holds for a GPU, too. So an error of one of
 * these instructions, or of a kernel that counts on more than they promise, is
 * not found here. */
#include "kernels/emu/ptx/arith.h"

#include <cfenv>
#include <cmath>

namespace emu {
namespace ptx {

/* The same, or one is NaN. */
template <class T> static bool less_u(T a, T b) { return !(a >= b); }
template <class T> static bool at_most_u(T a, T b) { return !(a > b); }
template <class T> static bool more_u(T a, T b) { return !(a <= b); }
template <class T> static bool at_least_u(T a, T b) { return !(a < b); }
template <class T> static bool equal_u(T a, T b) { return !(a < b || a > b); }
template <class T> static bool unequal_o(T a, T b) { return a < b || a > b; }
template <class T> static bool no_nan(T a, T b) { return a == a && b == b; }
template <class T> static bool a_nan(T a, T b) { return a != a || b != b; }

template <class T> static T f_add(T a, T b) { return a + b; }
template <class T> static T f_sub(T a, T b) { return a - b; }
template <class T> static T f_mul(T a, T b) { return a * b; }
template <class T> static T f_div(T a, T b) { return a / b; }
template <class T> static T f_fma(T a, T b, T c) { return std::fma(a, b, c); }
/* a * b + c, rounded in a direction of fesetround(). */
static float f_fma_rounded(int direction, float a, float b, float c)
{
    int was = std::fegetround();

    std::fesetround(direction);
    volatile float x = a, y = b, z = c;
    float sum = std::fma(x, y, z);
    std::fesetround(was);
    return sum;
}
static float f_fma_down(float a, float b, float c)
{
    return f_fma_rounded(FE_DOWNWARD, a, b, c);
}
static float f_add_cut(float a, float b)
{
    return f_fma_rounded(FE_TOWARDZERO, a, 1, b);
}
/* The number, of a number and NaN. */
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
/* PTX ISA: subnormal operands and results are flushed to zero of their sign.
 */
static float f_exp2_flush(float a) { return flush(std::exp2(flush(a))); }
static float f_sign(float a, float b) { return std::copysign(b, a); }
static float f_log2(float a) { return std::log2(a); }

/* Without a rounding mode in its name add is rounded to nearest as with .rn;
 * only .rn keeps ptxas from contracting it, which has happened in PTX already
 * or not at all here: ptxas may still fuse mul and add, and results then
 * differ in the last place. */
template <class T> static void add_float_type(rules &r, const std::string &t)
{
    size_t n = sizeof(T);

    for (const char *round : {"", "rn."}) {
        std::string suffix = round + t;

        set_rule(r, "add." + suffix, run2<T, T, T, f_add<T>>, "x=xx", n);
        set_rule(r, "sub." + suffix, run2<T, T, T, f_sub<T>>, "x=xx", n);
        set_rule(r, "mul." + suffix, run2<T, T, T, f_mul<T>>, "x=xx", n);
    }
    set_rule(r, "div.rn." + t, run2<T, T, T, f_div<T>>, "x=xx", n);
    set_rule(r, "fma.rn." + t, run3<T, T, T, f_fma<T>>, "x=xxx", n);
    set_rule(r, "min." + t, run2<T, T, T, f_min<T>>, "x=xx", n);
    set_rule(r, "max." + t, run2<T, T, T, f_max<T>>, "x=xx", n);
    set_rule(r, "neg." + t, run1<T, T, f_neg<T>>, "x=x", n);
    set_rule(r, "abs." + t, run1<T, T, f_abs<T>>, "x=x", n);
    set_rule(r, "sqrt.rn." + t, run1<T, T, f_sqrt<T>>, "x=x", n);
    set_rule(r, "rcp.rn." + t, run1<T, T, f_inverse<T>>, "x=x", n);
    set_rule(r, "selp." + t, run_select<T>, "x=xxp", n);
    r["selp." + t].care = CARE_CHOICE;
    add_compares<T>(r, t);
    set_rule(r, "setp.ne." + t, run_compare<T, unequal_o<T>>, "p=xx", n);
    set_rule(r, "setp.neu." + t, run_compare<T, unequal<T>>, "p=xx", n);
    set_rule(r, "setp.equ." + t, run_compare<T, equal_u<T>>, "p=xx", n);
    set_rule(r, "setp.ltu." + t, run_compare<T, less_u<T>>, "p=xx", n);
    set_rule(r, "setp.leu." + t, run_compare<T, at_most_u<T>>, "p=xx", n);
    set_rule(r, "setp.gtu." + t, run_compare<T, more_u<T>>, "p=xx", n);
    set_rule(r, "setp.geu." + t, run_compare<T, at_least_u<T>>, "p=xx", n);
    set_rule(r, "setp.num." + t, run_compare<T, no_nan<T>>, "p=xx", n);
    set_rule(r, "setp.nan." + t, run_compare<T, a_nan<T>>, "p=xx", n);
}

/* What a GPU computes to a few units of the last place, the library does
 * better: tests allow for both. */
static void add_approximate(rules &r)
{
    auto one = [&](const char *name, action *run) {
        set_rule(r, name, run, "x=x", 4);
    };

    one("ex2.approx.f32", run1<float, float, f_exp2>);
    one("ex2.approx.ftz.f32", run1<float, float, f_exp2_flush>);
    one("lg2.approx.f32", run1<float, float, f_log2>);
    one("lg2.approx.ftz.f32", run1<float, float, f_log2>);
    one("rsqrt.approx.f32", run1<float, float, f_rsqrt>);
    one("rcp.approx.f32", run1<float, float, f_inverse<float>>);
    one("rcp.approx.ftz.f32", run1<float, float, f_inverse<float>>);
    set_rule(r, "div.approx.f32", run2<float, float, float, f_div<float>>, "x=xx",
             4);
    set_rule(r, "div.full.f32", run2<float, float, float, f_div<float>>, "x=xx", 4);
    set_rule(r, "copysign.f32", run2<float, float, float, f_sign>, "x=xx", 4);
    set_rule(r, "fma.rm.f32", run3<float, float, float, f_fma_down>, "x=xxx", 4);
    set_rule(r, "add.rz.f32", run2<float, float, float, f_add_cut>, "x=xx", 4);
}

void add_floating(rules &r)
{
    add_float_type<float>(r, "f32");
    add_float_type<double>(r, "f64");
    add_approximate(r);
}

} // namespace ptx
} // namespace emu
