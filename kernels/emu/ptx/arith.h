/* Instructions that compute a lane's number from the same lane's numbers, as
 * templates over a function of one lane: arith.cc, bits.cc, floating.cc. Lanes
 * that do not run compute, too, and their numbers are dropped: so no function
 * may stop at any number, division by zero included. */
#ifndef GPT_EMU_PTX_ARITH_H
#define GPT_EMU_PTX_ARITH_H

#include "kernels/emu/ptx/ptx.h"

#include <type_traits>

namespace emu {
namespace ptx {

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
    /* Compilers choose between a number and nothing where nothing is never
     * used. */
    w.unknown = (first & ~w.known[i.at[1].slot]) |
                (~first & ~w.known[i.at[2].slot]) | ~w.known[i.at[3].slot];
    put(w, i.at[0].slot, a, lanes);
}

template <class T> static bool equal(T a, T b) { return a == b; }
template <class T> static bool unequal(T a, T b) { return a != b; }
template <class T> static bool less(T a, T b) { return a < b; }
template <class T> static bool at_most(T a, T b) { return a <= b; }
template <class T> static bool more(T a, T b) { return a > b; }
template <class T> static bool at_least(T a, T b) { return a >= b; }

/* Adds an instruction of 32 lanes. In `pattern` x stands for the letter of the
 * type that has so many bytes: x=xx with 4 is w=ww (struct rule). */
void set_rule(rules &r, const std::string &name, action *run,
              const char *pattern, size_t bytes);
void add_floating(rules &r);
void add_bits(rules &r);

template <class T> static void add_compares(rules &r, const std::string &t)
{
    size_t n = sizeof(T);

    set_rule(r, "setp.eq." + t, run_compare<T, equal<T>>, "p=xx", n);
    set_rule(r, "setp.ne." + t, run_compare<T, unequal<T>>, "p=xx", n);
    set_rule(r, "setp.lt." + t, run_compare<T, less<T>>, "p=xx", n);
    set_rule(r, "setp.le." + t, run_compare<T, at_most<T>>, "p=xx", n);
    set_rule(r, "setp.gt." + t, run_compare<T, more<T>>, "p=xx", n);
    set_rule(r, "setp.ge." + t, run_compare<T, at_least<T>>, "p=xx", n);
}

} // namespace ptx
} // namespace emu

#endif
