/* Weights, sizes and the order of a blend. Every expression is evaluated as
 * numpy and Megatron's C++ evaluate it, in double and without contraction (the
 * Makefile's -ffp-contract=off): which of two data sets with almost equal lags
 * comes first depends on the last bit of their weights, and from there on every
 * sample differs. Start at gpt_blend_build(). */
#include "data/blend.h"

#include "base/memory.h"
#include "base/num.h"
#include "data/blend_order.h"

#include <assert.h>
#include <ctype.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- arguments ---- */

/* An even number of arguments is weights and prefixes when each first one of a
 * pair is a number, and prefixes alone when none is. Anything between is a
 * slip: it must not silently become a blend of two other data sets. */
static int count_weights(const char *const *args, int64_t n_args,
                         int64_t *n_weights, struct gpt_err *err)
{
    /* Every first one of a pair is tried: one that is no number among numbers
     * is the argument to name. */
    double w;

    *n_weights = 0;
    if (n_args % 2 != 0)
        return GPT_OK;
    for (int64_t i = 0; i < n_args; i += 2)
        *n_weights += gpt_parse_real(args[i], &w);
    if (*n_weights == 0 || *n_weights == n_args / 2)
        return GPT_OK;
    for (int64_t i = 0; i < n_args; i += 2)
        if (!gpt_parse_real(args[i], &w))
            return gpt_fail(err, GPT_EUSAGE,
                            "data path: argument %" PRId64
                            " is '%s', must be a number: give every data set "
                            "a weight, or none",
                            i + 1, args[i]);
    return GPT_OK;
}

/* A prefix that looks like a number ("1") counts as a weight where one can
 * be. */
static int fill_parts(struct gpt_blend_parts *parts, const char *const *args,
                      int64_t n_args, int64_t n_weights, struct gpt_err *err)
{
    int64_t step = n_weights ? 2 : 1;

    parts->n = n_args / step;
    if (parts->n > GPT_BLEND_MAX)
        return gpt_fail(err, GPT_EUSAGE,
                        "data path: %" PRId64 " data sets, at most %d are"
                        " blended", parts->n, GPT_BLEND_MAX);
    GPT_TRY(gpt_new(&parts->prefix, (size_t)parts->n, sizeof(*parts->prefix),
                    "a blend", err));
    if (n_weights)
        GPT_TRY(gpt_new(&parts->weight, (size_t)parts->n,
                        sizeof(*parts->weight), "a blend", err));
    for (int64_t i = 0; i < parts->n; i++) {
        parts->prefix[i] = args[i * step + step - 1];
        if (n_weights && (!gpt_parse_real(args[2 * i], &parts->weight[i]) ||
                          !(parts->weight[i] > 0)))
            return gpt_fail(err, GPT_EUSAGE,
                            "data path: weight of '%s' is %s, must be > 0",
                            parts->prefix[i], args[2 * i]);
    }
    /* They are divided by their sum: by infinity, all would be 0. */
    if (n_weights && !isfinite(gpt_pairwise_sum(parts->weight, parts->n)))
        return gpt_fail(err, GPT_EUSAGE,
                        "data path: the sum of the weights is more than %g;"
                        " only their ratios count: give smaller ones", DBL_MAX);
    return GPT_OK;
}

int gpt_blend_parse(struct gpt_blend_parts *parts, const char *const *args,
                    int64_t n_args, struct gpt_err *err)
{
    int64_t n_weights;

    memset(parts, 0, sizeof(*parts));
    GPT_TRY(count_weights(args, n_args, &n_weights, err));
    int status = fill_parts(parts, args, n_args, n_weights, err);
    if (status != GPT_OK)
        gpt_blend_parts_free(parts);
    return status;
}

void gpt_blend_parts_free(struct gpt_blend_parts *parts)
{
    gpt_free(parts->prefix);
    gpt_free(parts->weight);
    memset(parts, 0, sizeof(*parts));
}

/* Megatron takes any text between two numbers as what separates them, so that
 * -1 is 1 there, and 1e3 is two shares. What could be a part of a number or of
 * a word is a slip here, and so is a comma without a number on both sides. */
static int check_separators(const char *text, struct gpt_err *err)
{
    bool number = false;

    for (const char *p = text; *p; p++) {
        if (isalpha((unsigned char)*p) || *p == '-' || *p == '+')
            return gpt_fail(err, GPT_EUSAGE,
                            "split '%s' has '%c', where a share is a number "
                            "such as 969 or 0.3", text, *p);
        if (isdigit((unsigned char)*p) || *p == '.')
            number = true;
        else if ((*p == ',' || *p == '/') && !number)
            break;
        else if (*p == ',' || *p == '/')
            number = false;
    }
    return number ? GPT_OK
                  : gpt_fail(err, GPT_EUSAGE,
                             "split '%s' lacks a number beside a comma, or has "
                             "none", text);
}

/* Whatever else is between runs of digits and dots separates the numbers:
 * Megatron takes "949,50,1" and "949/50/1" alike. The edges are sums from the
 * left of normalized shares, in this order; edge[3] may miss 1 by the last
 * bit. */
int gpt_split_parse(double edge[4], const char *text, struct gpt_err *err)
{
    static const char digits[] = ".0123456789";
    double share[3] = {0, 0, 0};
    int n = 0;

    GPT_TRY(check_separators(text, err));
    for (const char *p = text + strcspn(text, digits); *p;) {
        char word[64];
        size_t len = strspn(p, digits);

        if (n == 3)
            return gpt_fail(err, GPT_EUSAGE,
                            "split '%s' has more than three numbers", text);
        if (len >= sizeof(word))
            return gpt_fail(err, GPT_EUSAGE,
                            "split '%s' has a number that is too long",
                            text);
        memcpy(word, p, len);
        word[len] = '\0';
        if (!gpt_parse_real(word, &share[n++]))
            return gpt_fail(err, GPT_EUSAGE,
                            "split '%s': '%s' is not a number", text, word);
        p += len;
        p += strcspn(p, digits);
    }
    if (!(share[0] + share[1] + share[2] > 0))
        return gpt_fail(err, GPT_EUSAGE,
                        "split '%s' has no positive number", text);
    /* The sum that divides is numpy's pairwise one: another order of the three
     * additions may give another last bit. */
    gpt_normalize(share, 3);
    edge[0] = 0;
    for (int i = 0; i < 3; i++)
        edge[i + 1] = edge[i] + share[i];
    return GPT_OK;
}

/* ---- sums and sizes ---- */

/* The order of additions is numpy's pairwise_sum for doubles: up to 8 terms one
 * after the other, up to 128 in eight partial sums, more in two halves, of
 * which the first is a multiple of 8. Any other order gives other last bits. */
double gpt_pairwise_sum(const double *a, int64_t n)
{
    if (n < 8) {
        double sum = 0;

        for (int64_t i = 0; i < n; i++)
            sum += a[i];
        return sum;
    }
    if (n > 128) {
        int64_t half = n / 2 - n / 2 % 8;

        return gpt_pairwise_sum(a, half) + gpt_pairwise_sum(a + half,
                                                            n - half);
    }
    double r[8];
    int64_t i = 8;
    memcpy(r, a, sizeof(r));
    for (; i < n - n % 8; i += 8)
        for (int k = 0; k < 8; k++)
            r[k] += a[i + k];
    /* The parentheses are numpy's, too; what is left over is added last. */
    double sum = ((r[0] + r[1]) + (r[2] + r[3])) +
                 ((r[4] + r[5]) + (r[6] + r[7]));
    for (; i < n; i++)
        sum += a[i];
    return sum;
}

void gpt_normalize(double *w, int64_t n)
{
    double sum = gpt_pairwise_sum(w, n);

    for (int64_t i = 0; i < n; i++)
        w[i] /= sum;
}

/* The share is rounded up, so that the shares of a blend cover it; their sum
 * may be larger. */
int64_t gpt_blend_share(int64_t size, double w)
{
    return (int64_t)ceil((double)size * w);
}

int64_t gpt_blend_share_built(int64_t size, double w)
{
    return (int64_t)ceil((double)gpt_blend_share(size, w) * (1 + 0.005));
}

/* ---- the order ---- */

int gpt_blend_build(struct gpt_blend *blend, const double *weight, int64_t n,
                    int64_t size, struct gpt_err *err)
{
    static const char what[] = "a blend";
    struct gpt_blend_order *order = NULL;
    int status;

    memset(blend, 0, sizeof(*blend));
    if (n < 1 || n > GPT_BLEND_MAX || size < 0 || size > UINT32_MAX)
        return gpt_fail(err, GPT_EUSAGE,
                        "a blend of %" PRId64 " data sets with %" PRId64
                        " samples is too large: at most %d data sets and"
                        " 4294967295 samples are taken",
                        n, size, GPT_BLEND_MAX);
    GPT_TRY_GOTO(status, gpt_blend_order_open(&order, weight, n, size, err),
                 out);
    GPT_TRY_GOTO(status, gpt_new(&blend->taken, (size_t)n,
                                 sizeof(*blend->taken), what, err), out);
    GPT_TRY_GOTO(status, gpt_new(&blend->set, (size_t)size,
                                 sizeof(*blend->set), what, err), out);
    GPT_TRY_GOTO(status, gpt_new(&blend->sample, (size_t)size,
                                 sizeof(*blend->sample), what, err), out);
    blend->size = size;
    /* `given` counts the samples that the set gave before: the samples of each
     * set are taken in their own order, none twice. */
    for (int64_t t = 0; t < size; t++) {
        int64_t given, i = gpt_blend_order_next(order, &given);

        assert(i >= 0 && i < n && given == blend->taken[i]);
        blend->set[t] = (uint16_t)i;
        blend->sample[t] = (uint32_t)given;
        blend->taken[i]++;
    }
out:
    gpt_blend_order_close(order);
    if (status != GPT_OK)
        gpt_blend_free(blend);
    return status;
}

int64_t gpt_blend_bytes(int64_t size)
{
    const struct gpt_blend *b = NULL;

    return size * (int64_t)(sizeof(*b->set) + sizeof(*b->sample));
}

void gpt_blend_free(struct gpt_blend *blend)
{
    gpt_free(blend->set);
    gpt_free(blend->sample);
    gpt_free(blend->taken);
    memset(blend, 0, sizeof(*blend));
}
