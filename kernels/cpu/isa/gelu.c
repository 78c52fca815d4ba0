/* GELU in its tanh form, through the logistic function: with
 * u = sqrt(2/pi) (x + 0.044715 x^3) and s = 1 / (1 + exp(-2u)),
 * 0.5 x (1 + tanh u) = x s, and its slope is s + 2 x s (1 - s) u'. */
#include "cpu/isa/simd.h"

static const float root = 0.797884561f, cubic = 0.044715f;

/* Held above e^-80: smaller values add nothing, and subnormal numbers would
 * come out of their products, which processors are slow with. */
static inline vf logistic_of(vf x, vf square)
{
    vf v = all(-2 * root) * x * (all(cubic) * square + all(1));

    v = pick(v > all(80), all(80), v);
    return all(1) / (vexp(v) + all(1));
}

static inline vf gelu_of(vf x)
{
    return x * logistic_of(x, x * x);
}

/* s is used twice, in the value and in its derivative s (1 - s): one exp. */
static inline vf slope(vf x)
{
    vf square = x * x, s = logistic_of(x, square);
    vf du = all(root) * (all(3 * cubic) * square + all(1));

    return s + all(2) * x * s * (all(1) - s) * du;
}

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
