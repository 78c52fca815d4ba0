/* Rows of the experts of a rank, which are picked, summed and weighed, and rows
 * times gates, against sums in double. Tokens without experts here, and experts
 * without tokens, are among the cases. Start at check_shape(). */
#include "tests/unit/experts.h"

/* ---- rows ---- */

struct rows_case {
    struct gpt_expert_rows rows;
    const void *x, *y0;
    int64_t c;
    bool weighed, add;
    float *out; /* picked rows; y; h, dh, dweight */
    int64_t picked, summed, weighs, words;
};

static void run_rows(void *ctx)
{
    struct rows_case *k = ctx;
    const struct gpt_expert_rows *r = &k->rows;
    float *y = k->out + k->picked, *h = y + k->summed, *dh = h + k->picked;
    const size_t all = bytes_of(r->n * r->k * k->c, r->act);

    spoil(k->out, k->words);
    be->expert_pick(q, r, k->x, k->out, k->c);
    if (k->add)
        memcpy(y, k->y0, bytes_of(r->n * k->c, r->act));
    be->expert_sum(q, r, k->out, y, k->c, k->weighed, k->add);
    memcpy(h, k->out, all);
    memcpy(dh, k->x, bytes_of(r->n * k->c, r->act));
    for (int64_t i = 0; i < r->n * r->k * k->c; i++) /* other numbers than h */
        if (r->act == GPT_BF16)
            ((uint16_t *)(void *)dh)[i] =
                ((const uint16_t *)k->x)[i * 7 % (r->n * k->c)];
        else
            dh[i] = ((const float *)k->x)[i * 7 % (r->n * k->c)];
    be->expert_weigh(q, r, h, dh, k->c, dh + k->picked);
}

/* The row here of pair (n, i), or -1. */
static int64_t row_of(const struct gpt_expert_rows *r, int64_t n, int64_t i)
{
    const int64_t row = r->place[n * r->k + i] - r->begin[r->first];

    return row < here(r) ? (row < 0 ? -1 : row) : -1;
}

static int64_t wrong_picks(const struct rows_case *k)
{
    const struct gpt_expert_rows *r = &k->rows;
    const size_t row = bytes_of(k->c, r->act);
    int64_t wrong = 0, seen = 0;

    for (int64_t i = 0; i < r->n * r->k; i++) {
        const int64_t p = row_of(r, i / r->k, i % r->k);

        if (p < 0)
            continue;
        seen++;
        wrong += memcmp((const char *)(void *)k->out + (size_t)p * row,
                        (const char *)k->x + (size_t)(i / r->k) * row,
                        row) != 0;
    }
    /* what is past the rows here is not written */
    for (int64_t i = here(r) * k->c; i < r->n * r->k * k->c; i++)
        wrong += !isnan(at(k->out, i, r->act));
    return wrong + (seen != here(r));
}

static int64_t wrong_sums(const struct rows_case *k)
{
    const struct gpt_expert_rows *r = &k->rows;
    double *want = calloc((size_t)k->c, sizeof(*want));
    double *size = calloc((size_t)k->c, sizeof(*size));
    int64_t wrong = 0;

    for (int64_t n = 0; n < r->n; n++) {
        for (int64_t j = 0; j < k->c; j++) {
            want[j] = k->add ? at(k->y0, n * k->c + j, r->act) : 0;
            size[j] = fabs(want[j]);
        }
        for (int64_t i = 0; i < r->k; i++) {
            const int64_t p = row_of(r, n, i);
            const double w =
                k->weighed ? (double)r->weight[n * r->k + i] : 1;

            for (int64_t j = 0; p >= 0 && j < k->c; j++) {
                const double x = w * at(k->out, p * k->c + j, r->act);

                want[j] += x;
                size[j] += fabs(x);
            }
        }
        wrong += wrong_by((const char *)(k->out + k->picked) +
                              bytes_of(n * k->c, r->act),
                          want, size, k->c, r->k, r->act);
    }
    free(want), free(size);
    return wrong;
}

/* h has the rows that were picked, dh those of x from 7 times their place on:
 * both times weights; and dweight their dots. */
static int64_t wrong_weights(const struct rows_case *k)
{
    const struct gpt_expert_rows *r = &k->rows;
    const float *h = k->out + k->picked + k->summed, *dh = h + k->picked;
    const float *dweight = dh + k->picked;
    int64_t wrong = 0;

    for (int64_t i = 0; i < r->n * r->k; i++) {
        const int64_t p = row_of(r, i / r->k, i % r->k);
        double dot = 0, size = 0;

        for (int64_t j = 0; p >= 0 && j < k->c; j++) {
            const int64_t e = p * k->c + j;
            const double w = (double)r->weight[i];
            const double a = at(k->out, e, r->act);
            const double b = at(k->x, e * 7 % (r->n * k->c), r->act);
            const double want[2] = {a * w, b * w};
            const double sizes[2] = {fabs(a * w), fabs(b * w)};

            dot += a * b;
            size += fabs(a * b);
            wrong += wrong_by((const char *)h + bytes_of(e, r->act), want,
                              sizes, 1, 1, r->act);
            wrong += wrong_by((const char *)dh + bytes_of(e, r->act), want + 1,
                              sizes + 1, 1, 1, r->act);
        }
        wrong += wrong_by(dweight + i, &dot, &size, 1, k->c, GPT_F32);
    }
    return wrong;
}

static void check_rows(const struct layer *l, int64_t first, int64_t count,
                       int64_t c, bool weighed, bool add)
{
    const int64_t n = l->op.n, pairs = n * l->op.k;
    void *x = rnd_rows(n * c, 1, l->act), *y0 = rnd_rows(n * c, 1, l->act);
    struct rows_case k = {.rows = rows_of(l, first, count), .x = x, .y0 = y0,
                          .c = c, .weighed = weighed, .add = add,
                          .picked = words_of(pairs * c, l->act),
                          .summed = words_of(n * c, l->act)};

    k.words = 3 * k.picked + k.summed + pairs;
    k.out = poisoned(k.words);
    const bool same = same_bytes(run_rows, &k, k.out, k.words);
    is_int(wrong_picks(&k), 0, "%s: %lld experts from %lld, rows of %lld, %s: "
           "wrong picks", setting, (long long)count, (long long)first,
           (long long)c, name_of(l->act));
    is_int(wrong_sums(&k), 0, "%s: wrong sums%s%s", setting,
           weighed ? ", weighed" : "", add ? ", added" : "");
    is_int(wrong_weights(&k), 0, "%s: wrong weighed rows", setting);
    ok(same, "%s: equal for 1, 2, 3 threads", setting);
    free(x), free(y0), free(k.out);
}

/* ---- gates ---- */

struct gate_case {
    int64_t n, f;
    enum gpt_dtype act;
    const void *x0, *dx0;
    const float *gate;
    float *out; /* x after gate_rows(); dx, dgate of the backward */
    int64_t words, all;
};

static void run_gates(void *ctx)
{
    struct gate_case *k = ctx;
    const size_t bytes = bytes_of(k->n * k->f, k->act);
    float *dx = k->out + k->words;

    spoil(k->out, k->all);
    memcpy(k->out, k->x0, bytes);
    memcpy(dx, k->dx0, bytes);
    be->gate_rows(q, k->out, k->gate, k->n, k->f, k->act);
    be->gate_rows_bwd(q, k->out, dx, k->gate, dx + k->words, k->n, k->f,
                      k->act);
}

static void check_gates(int64_t n, int64_t f, enum gpt_dtype act)
{
    void *x0 = rnd_rows(n * f, 1, act), *dx0 = rnd_rows(n * f, 1, act);
    float *gate = rnd_floats(n, 5);
    struct gate_case k = {.n = n, .f = f, .act = act, .x0 = x0, .dx0 = dx0,
                          .gate = gate, .words = words_of(n * f, act)};
    int64_t wrong = 0;

    k.all = 2 * k.words + words_of(n, act);
    k.out = poisoned(k.all);
    const bool same = same_bytes(run_gates, &k, k.out, k.all);
    for (int64_t i = 0; i < n; i++) {
        const double s = 1 / (1 + exp(-(double)gate[i]));
        double dot = 0, size = 0;

        for (int64_t j = i * f; j < (i + 1) * f; j++) {
            const double x = at(x0, j, act) * s, dx = at(dx0, j, act) * s;
            const double xs = fabs(x), dxs = fabs(dx);
            const char *out = (const char *)k.out + bytes_of(j, act);
            const double term = at(k.out, j, act) * at(dx0, j, act);

            dot += term * (1 - s);
            size += fabs(term); /* 1 - s cancels */
            wrong += wrong_by(out, &x, &xs, 1, 4, act);
            out += (size_t)k.words * sizeof(float);
            wrong += wrong_by(out, &dx, &dxs, 1, 4, act);
        }
        wrong += wrong_by((const char *)(k.out + 2 * k.words) +
                              bytes_of(i, act),
                          &dot, &size, 1, f + 4, act);
    }
    is_int(wrong, 0, "%s: gates of %lld rows of %lld, %s: wrong elements",
           setting, (long long)n, (long long)f, name_of(act));
    ok(same, "%s: equal for 1, 2, 3 threads", setting);
    free(x0), free(dx0), free(gate), free(k.out);
}

/* ---- all of it ---- */

/* What is done with the tokens of a router. */
static void check_shape(int64_t n, int64_t e, int64_t k, enum gpt_dtype act,
                        bool sigmoid)
{
    struct layer l = new_layer(n, e, k, act);
    const int64_t first = rnd_int(0, e - 1), count = rnd_int(1, e - first);

    l.op.sigmoid = sigmoid;
    leave_out(&l);
    run_route(&l);
    check_rows(&l, 0, e, rnd_int(1, 70), true, false);
    check_rows(&l, first, count, rnd_int(1, 70), n % 2, true);
    check_gates(n, rnd_int(1, 70), act);
    free_layer(&l);
}

static void body(void)
{
    for (size_t i = 0; i < GPT_COUNT(experts_shapes); i++)
        for (int t = 0; t < 2; t++)
            check_shape(experts_shapes[i][0], experts_shapes[i][1],
                        experts_shapes[i][2], t ? GPT_BF16 : GPT_F32,
                        i / 2 % 2);
    for (int i = 0; i < 12; i++) {
        const int64_t e = rnd_int(1, 20);

        check_shape(rnd_int(1, 60), e, rnd_int(1, e < 9 ? e : 9),
                    i % 2 ? GPT_BF16 : GPT_F32, i / 2 % 2);
    }
}

int main(void)
{
    each_setting(body);
    return tap_done();
}
