/* The rows of a softmax: maximum, exponentials and their sum, gradient. */
#include "cpu/isa/simd.h"

#include <math.h>

/* Computes a maximum by two chains, as a comparison waits for the one before.
 * larger() gives its second argument where the first is NaN: a maximum ignores
 * NaN, and exp() of that element brings it into the sum, where it stays. */
float ISA(max)(const float *x, int64_t n)
{
    vf a = all(-INFINITY), b = a;
    int64_t j = 0;

    for (; j + 2 * W <= n; j += 2 * W) {
        a = larger(load(x + j), a);
        b = larger(load(x + j + W), b);
    }
    for (; j < n; j += W)
        a = larger(load_part(x + j, n - j < W ? n - j : W, -INFINITY), a);
    return lanes_max(larger(a, b));
}

/* Terms that a vector adds up before they are added to the sums of others: a
 * row of a large vocabulary in one vector of floats would lose its small
 * terms. */
enum { RUN = 64 };

/* The end of the run of whole vectors that begins at j. */
static int64_t end_of_run(int64_t j, int64_t n)
{
    const int64_t whole = n - n % W;

    return whole - j < RUN * W ? whole : j + RUN * W;
}

/* scale > 0. Lanes past the end are -inf, whose exp is 0: they add nothing. One
 * vector of sums, of runs in the order of the row, then the tree of
 * lanes_sum(): how many lanes there are is what differs between instruction
 * sets. */
float ISA(exp_sum)(float *x, int64_t n, float scale, float shift)
{
    vf s = all(scale), t = all(shift), sum = {0};
    int64_t j = 0;

    while (j + W <= n) {
        vf run = {0};

        for (const int64_t end = end_of_run(j, n); j < end; j += W) {
            vf e = vexp(load(x + j) * s - t);

            store(x + j, e);
            run += e;
        }
        sum += run;
    }
    if (j < n) {
        vf e = vexp(load_part(x + j, n - j, -INFINITY) * s - t);

        store_part(x + j, e, n - j);
        sum += e;
    }
    return lanes_sum(sum);
}

/* Adds the same terms in the same order as exp_sum(), so that a loss is the
 * same with and without its gradient. */
float ISA(sum_exp)(const float *x, int64_t n, float shift)
{
    vf t = all(shift), sum = {0};
    int64_t j = 0;

    while (j + W <= n) {
        vf run = {0};

        for (const int64_t end = end_of_run(j, n); j < end; j += W)
            run += vexp(load(x + j) - t);
        sum += run;
    }
    if (j < n)
        sum += vexp(load_part(x + j, n - j, -INFINITY) - t);
    return lanes_sum(sum);
}

/* Two vectors hold sums: a fused multiply-add waits four cycles for the one
 * before. */
float ISA(dot)(const float *x, const float *y, int64_t n)
{
    vf a = {0}, b = {0};
    int64_t j = 0;

    for (; j + 2 * W <= n; j += 2 * W) {
        a += load(x + j) * load(y + j);
        b += load(x + j + W) * load(y + j + W);
    }
    for (; j < n; j += W) {
        int64_t left = n - j < W ? n - j : W;

        a += load_part(x + j, left, 0) * load_part(y + j, left, 0);
    }
    return lanes_sum(a + b);
}

void ISA(scale)(float *x, int64_t n, float factor)
{
    for (int64_t j = 0; j < n; j++)
        x[j] *= factor;
}

void ISA(times)(float *x, const float *y, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        x[j] *= y[j];
}

/* Computes tanh from e^(2 |v|), without cancellation where |v| is large; near 0
 * by the continued fraction, which is within 1e-7 of the value up to 0.6
 * there. */
static inline vf tanh_of(vf v)
{
    vf size = pick(v < all(0), -v, v), square = v * v;
    vf large = all(1) - all(2) / (vexp(size + size) + all(1));
    vf small = v * ((square + all(105)) * square + all(945)) /
               ((all(15) * square + all(420)) * square + all(945));

    large = pick(v < all(0), -large, large);
    return pick(size < all(0.6f), small, large);
}

void ISA(softcap)(float *x, float *slope, int64_t n, float in, float out)
{
    for (int64_t j = 0; j < n; j += W) {
        int64_t left = n - j;
        bool part = left < W;
        vf t = tanh_of((part ? load_part(x + j, left, 0) : load(x + j)) *
                       all(in));
        vf rise = all(1) - t * t;

        if (part)
            store_part(x + j, t * all(out), left);
        else
            store(x + j, t * all(out));
        if (slope && part)
            store_part(slope + j, rise, left);
        else if (slope)
            store(slope + j, rise);
    }
}

static inline void grad_step(vf *s, vf *dp, vf keep, vf scale, vf lse, vf delta)
{
    /* lse holds both the maximum and the sum: p is normalized at once. */
    vf p = vexp(*s * scale - lse);

    *dp = p * (*dp * keep - delta) * scale;
    *s = p * keep;
}

void ISA(softmax_grad)(float *s, float *dp, const float *keep, int64_t n,
                       float scale, float lse, float delta)
{
    int64_t j = 0;

    for (; j < n; j += W) {
        int64_t left = n - j;
        bool part = left < W;
        vf sj = part ? load_part(s + j, left, 0) : load(s + j);
        vf dj = part ? load_part(dp + j, left, 0) : load(dp + j);
        /* `keep` is NULL without dropout. */
        vf kj = !keep  ? all(1)
                : part ? load_part(keep + j, left, 0)
                       : load(keep + j);

        grad_step(&sj, &dj, kj, all(scale), all(lse), all(delta));
        if (part) {
            store_part(s + j, sj, left);
            store_part(dp + j, dj, left);
        } else {
            store(s + j, sj);
            store(dp + j, dj);
        }
    }
}
