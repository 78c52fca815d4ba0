/* Activations. GELU's tanh form is gelu.h's. The exact form has the normal
 * distribution's integral by Abramowitz and Stegun 7.1.26, within 1.5e-7. */
#include "cpu/isa/gelu.h"

#include "backend.h"

void ISA(bias_gelu)(float *c, float *aux, const float *bias, int64_t n)
{
    for (int64_t j = 0; j < n; j += W) {
        int64_t left = n - j;

        if (left >= W) {
            /* aux gets the sum before GELU: backward computes the slope of it,
             * which costs an exp and saves a second matrix. */
            vf x = load(c + j) + load(bias + j);

            if (aux)
                store(aux + j, x);
            store(c + j, gelu_of(x));
        } else {
            vf x = load_part(c + j, left, 0) + load_part(bias + j, left, 0);

            if (aux)
                store_part(aux + j, x, left);
            store_part(c + j, gelu_of(x), left);
        }
    }
}

/* The same vector code for whole vectors and the rest, so that an element's
 * bits do not depend on where in a row it is. */
void ISA(gelu)(float *y, const float *x, int64_t n)
{
    for (int64_t j = 0; j < n; j += W) {
        int64_t left = n - j;

        if (left >= W)
            store(y + j, gelu_of(load(x + j)));
        else
            store_part(y + j, gelu_of(load_part(x + j, left, 0)), left);
    }
}

void ISA(gelu_grad)(float *c, const float *aux, int64_t n)
{
    for (int64_t j = 0; j < n; j += W) {
        int64_t left = n - j;

        if (left >= W)
            store(c + j, load(c + j) * slope(load(aux + j)));
        else
            store_part(c + j,
                       load_part(c + j, left, 0) *
                           slope(load_part(aux + j, left, 0)),
                       left);
    }
}

/* ---- any activation ---- */

/* A value and its slope: backward of a gated layer needs both. */
struct point {
    vf value, slope;
};

static inline struct point gelu_at(vf x)
{
    return (struct point){gelu_of(x), slope(x)};
}

/* e^(-x^2/2) serves the integral's tail and the density. The tail is half of
 * erfc(|x| / sqrt 2): nothing cancels far below zero. */
static inline struct point gelu_exact_at(vf x)
{
    vf size = pick(x < all(0), -x, x);
    vf bell = vexp(all(-0.5f) * x * x);
    vf t = all(1) / (all(1) + all(0.3275911f * 0.707106781f) * size);
    vf p = all(1.061405429f);

    p = p * t + all(-1.453152027f);
    p = p * t + all(1.421413741f);
    p = p * t + all(-0.284496736f);
    p = p * t + all(0.254829592f);
    vf tail = all(0.5f) * p * t * bell;
    vf whole = pick(x < all(0), tail, all(1) - tail);
    return (struct point){x * whole, whole + all(0.398942280f) * x * bell};
}

static inline struct point silu_at(vf x)
{
    vf v = pick(-x > all(80), all(80), -x); /* as in logistic_of() */
    vf s = all(1) / (vexp(v) + all(1));

    return (struct point){x * s, s + x * s * (all(1) - s)};
}

static inline struct point relu_at(vf x)
{
    /* Written so that NaN stays one: a broken step must show. */
    vf y = pick(x < all(0), all(0), x);

    return (struct point){y, pick(x > all(0), all(1), all(0))};
}

static inline struct point squared_relu_at(vf x)
{
    vf y = pick(x < all(0), all(0), x);

    return (struct point){y * y, all(2) * y};
}

/* What XIELU is made of for x <= 0: e^x - 1, and that less x. */
struct below {
    vf grown, rest;
};

/* By their series where the difference would lose digits; grown is no sum of
 * rest and x, as a large x would leave nothing of it. x is kept below a number
 * near 0, as the paper's code does. */
static inline struct below below_at(vf x)
{
    vf m = pick(x > all(-1e-6f), all(-1e-6f), x);
    vf p = all(1.0f / 40320);

    p = p * m + all(1.0f / 5040);
    p = p * m + all(1.0f / 720);
    p = p * m + all(1.0f / 120);
    p = p * m + all(1.0f / 24);
    p = p * m + all(1.0f / 6);
    p = p * m + all(0.5f);
    vf near = p * m * m;
    vf far = vexp(pick(m < all(-80), all(-80), m)) - all(1);
    vi is_near = m > all(-0.5f);
    return (struct below){pick(is_near, near + m, far),
                          pick(is_near, near + (m - x), far - x)};
}

/* alpha: of both sides of 0, as both are used. */
static inline struct point xielu_at(vf x, const float *alpha)
{
    struct below b = below_at(x);
    vf above = all(alpha[0]) * x, below = all(alpha[1]), beta = all(0.5f);
    vi side = x > all(0);

    return (struct point){
        pick(side, above * x, below * b.rest) + beta * x,
        pick(side, above + above, below * b.grown) + beta};
}

void ISA(xielu_sums)(double *sums, const float *dy, const float *x, int64_t n)
{
    vf above = {0}, below = {0};

    for (int64_t j = 0; j < n; j += W) {
        vf v = any_load(x, j, n), d = any_load(dy, j, n);
        vi side = v > all(0);

        above += pick(side, d * v * v, all(0));
        below += pick(side, all(0), d * below_at(v).rest);
    }
    sums[0] += (double)lanes_sum(above);
    sums[1] += (double)lanes_sum(below);
}

/* The kind is a constant in every loop below, so that each compiles to straight
 * code without the part that it does not use. */
static inline struct point at(vf x, int kind, const float *alpha)
{
    switch (kind) {
    case GPT_GELU:
        return gelu_at(x);
    case GPT_GELU_EXACT:
        return gelu_exact_at(x);
    case GPT_SILU:
        return silu_at(x);
    case GPT_RELU:
        return relu_at(x);
    case GPT_XIELU:
        return xielu_at(x, alpha);
    default:
        return squared_relu_at(x);
    }
}

static inline void activate_as(float *y, const float *x, const float *up,
                               int64_t n, int kind, const float *alpha)
{
    for (int64_t j = 0; j < n; j += W) {
        vf v = at(any_load(x, j, n), kind, alpha).value;

        any_store(y, up ? v * any_load(up, j, n) : v, j, n);
    }
}

static inline void activate_grad_as(float *dx, float *dup, const float *dy,
                                    const float *x, const float *up, int64_t n,
                                    int kind, const float *alpha)
{
    for (int64_t j = 0; j < n; j += W) {
        struct point p = at(any_load(x, j, n), kind, alpha);
        vf d = any_load(dy, j, n);

        if (up) {
            any_store(dup, d * p.value, j, n);
            d *= any_load(up, j, n);
        }
        any_store(dx, d * p.slope, j, n);
    }
}

#define EACH_KIND(X)                                                          \
    X(GPT_GELU) X(GPT_GELU_EXACT) X(GPT_SILU) X(GPT_RELU)                     \
    X(GPT_SQUARED_RELU) X(GPT_XIELU)

void ISA(activate)(float *y, const float *x, const float *up, int64_t n,
                   int kind, const float *alpha)
{
    switch (kind) {
#define ONE(k)                                                                \
    case k:                                                                   \
        activate_as(y, x, up, n, k, alpha);                                   \
        break;
        EACH_KIND(ONE)
#undef ONE
    }
}

void ISA(activate_grad)(float *dx, float *dup, const float *dy, const float *x,
                        const float *up, int64_t n, int kind,
                        const float *alpha)
{
    switch (kind) {
#define ONE(k)                                                                \
    case k:                                                                   \
        activate_grad_as(dx, dup, dy, x, up, n, k, alpha);                    \
        break;
        EACH_KIND(ONE)
#undef ONE
    }
}
