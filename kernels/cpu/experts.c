/* Rows of tokens, side by side for each of their experts, and products of these
 * rows; router.c says where a token goes. What is summed is summed in float and
 * rounded once. Rows are independent of each other, so that no result depends
 * on the number of threads. Start at cpu_expert_pick(). */
#include "cpu/cpu.h"

#include "base/num.h"

#include <assert.h>
#include <omp.h>
#include <string.h>

/* ---- rows ---- */

static size_t row_bytes(int64_t c, enum gpt_dtype act)
{
    return (size_t)c * gpt_dtype_bytes(act);
}

static int64_t first_pair(const struct gpt_expert_rows *rows)
{
    return rows->begin[rows->first];
}

static int64_t end_pair(const struct gpt_expert_rows *rows)
{
    return rows->begin[rows->first + rows->count];
}

void cpu_expert_pick(struct gpt_queue *q, const struct gpt_expert_rows *rows,
                     const void *x, void *out, int64_t c)
{
    const size_t bytes = row_bytes(c, rows->act);

    if (!cpu_ready_narrow(q, "expert_pick", rows->act))
        return;
    const int64_t first = first_pair(rows), end = end_pair(rows);
#pragma omp parallel for schedule(static) \
    if (cpu_worth_threads((end - first) * c / 4))
    for (int64_t p = first; p < end; p++)
        memcpy((char *)out + (size_t)(p - first) * bytes,
               (const char *)x + (size_t)(rows->source[p] / rows->k) * bytes,
               bytes);
}

/* A row as floats: itself, or widened to `room`. */
static const float *floats_of(const void *x, int64_t row, int64_t c,
                              enum gpt_dtype act, float *room)
{
    if (act != GPT_BF16)
        return (const float *)x + row * c;
    cpu_isa->widen(room, (const uint16_t *)x + row * c, c);
    return room;
}

/* room: 2 C floats. */
static void sum_token(const struct gpt_expert_rows *rows, const void *x,
                      void *y, int64_t c, int64_t n, bool weighed, bool add,
                      float *room)
{
    const int64_t first = first_pair(rows), end = end_pair(rows);
    float *sum = room;

    if (add)
        memcpy(sum, floats_of(y, n, c, rows->act, room),
               (size_t)c * sizeof(*sum));
    else
        memset(sum, 0, (size_t)c * sizeof(*sum));
    for (int64_t i = n * rows->k; i < (n + 1) * rows->k; i++) {
        const int64_t p = rows->place[i];

        if (p < first || p >= end)
            continue;
        const float w = weighed ? rows->weight[i] : 1;
        const float *row = floats_of(x, p - first, c, rows->act, room + c);

        cpu_isa->combine(sum, &w, row, c, c, 1);
    }
    cpu_convert((char *)y + (size_t)n * row_bytes(c, rows->act), rows->act,
                sum, GPT_F32, c);
}

void cpu_expert_sum(struct gpt_queue *q, const struct gpt_expert_rows *rows,
                    const void *x, void *y, int64_t c, bool weighed, bool add)
{
    float *room;

    if (!cpu_ready_narrow(q, "expert_sum", rows->act) ||
        !(room = cpu_work(q, (size_t)(2 * c * omp_get_max_threads()))))
        return;
#pragma omp parallel for schedule(static) \
    if (cpu_worth_threads(rows->n * rows->k * c / 4))
    for (int64_t n = 0; n < rows->n; n++)
        sum_token(rows, x, y, c, n, weighed, add,
                  room + omp_get_thread_num() * 2 * c);
}

/* Two rows (F) of one pair, or token; h and dh are multiplied by w. Returns
 * their dot before. room: 2 F floats. */
static float weigh_rows(void *h, void *dh, int64_t row, int64_t f, float w,
                        enum gpt_dtype act, float *room)
{
    float *x = act == GPT_BF16 ? room : (float *)h + row * f;
    float *dx = act == GPT_BF16 ? room + f : (float *)dh + row * f;

    floats_of(h, row, f, act, x);
    floats_of(dh, row, f, act, dx);
    const float dot = cpu_isa->dot(x, dx, f);
    cpu_isa->scale(x, f, w);
    cpu_isa->scale(dx, f, w);
    if (act == GPT_BF16) {
        cpu_isa->narrow((uint16_t *)h + row * f, x, f);
        cpu_isa->narrow((uint16_t *)dh + row * f, dx, f);
    }
    return dot;
}

void cpu_expert_weigh(struct gpt_queue *q, const struct gpt_expert_rows *rows,
                      void *h, void *dh, int64_t f, float *dweight)
{
    float *room;

    if (!cpu_ready_narrow(q, "expert_weigh", rows->act) ||
        !(room = cpu_work(q, (size_t)(2 * f * omp_get_max_threads()))))
        return;
    const int64_t first = first_pair(rows), end = end_pair(rows);
    memset(dweight, 0, (size_t)(rows->n * rows->k) * sizeof(*dweight));
#pragma omp parallel for schedule(static) \
    if (cpu_worth_threads((end - first) * f / 2))
    for (int64_t p = first; p < end; p++) {
        const int32_t at = rows->source[p];

        dweight[at] = weigh_rows(h, dh, p - first, f, rows->weight[at],
                                 rows->act,
                                 room + omp_get_thread_num() * 2 * f);
    }
}

void cpu_gate_rows(struct gpt_queue *q, void *x, const float *gate, int64_t n,
                   int64_t f, enum gpt_dtype act)
{
    float *room;

    if (!cpu_ready_narrow(q, "gate_rows", act) ||
        !(room = cpu_work(q, (size_t)(f * omp_get_max_threads()))))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(n * f / 4))
    for (int64_t i = 0; i < n; i++) {
        float *row = act == GPT_BF16 ? room + omp_get_thread_num() * f
                                    : (float *)x + i * f;

        floats_of(x, i, f, act, row);
        cpu_isa->scale(row, f, cpu_logistic(gate[i]));
        if (act == GPT_BF16)
            cpu_isa->narrow((uint16_t *)x + i * f, row, f);
    }
}

void cpu_gate_rows_bwd(struct gpt_queue *q, const void *x, void *dx,
                       const float *gate, void *dgate, int64_t n, int64_t f,
                       enum gpt_dtype act)
{
    float *room;

    if (!cpu_ready_narrow(q, "gate_rows_bwd", act) ||
        !(room = cpu_work(q, (size_t)(2 * f * omp_get_max_threads()))))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(n * f / 2))
    for (int64_t i = 0; i < n; i++) {
        float *mine = room + omp_get_thread_num() * 2 * f;
        const float s = cpu_logistic(gate[i]);
        const float *row = floats_of(x, i, f, act, mine);
        float *drow = act == GPT_BF16 ? mine + f : (float *)dx + i * f;

        floats_of(dx, i, f, act, drow);
        const float d = (1 - s) * cpu_isa->dot(row, drow, f);
        cpu_isa->scale(drow, f, s);
        if (act == GPT_BF16)
            cpu_isa->narrow((uint16_t *)dx + i * f, drow, f);
        cpu_convert((char *)dgate + (size_t)i * row_bytes(1, act), act, &d,
                    GPT_F32, 1);
    }
}

/* ---- products ---- */

/* The matrix of expert e in fewer bits, of all of them. */
static struct gpt_quant quant_of(const struct gpt_expert_matmul *op, int64_t e)
{
    struct gpt_quant w = *op->quant;
    const int64_t before = e * op->n;
    const int64_t groups = w.group ? gpt_ceil_div(op->k, w.group) : 1;
    const size_t bytes =
        w.arranged ? cpu_quant_bytes(&w, before, op->k)
                   : (size_t)(before * op->k) * gpt_dtype_bytes(w.type);

    assert(!w.arranged || op->n % 32 == 0);
    w.values = (const char *)w.values + bytes;
    if (w.scales)
        w.scales += before * groups;
    return w;
}

/* The product of an expert's rows, which are [begin, begin + m) of all rows
 * here. */
static void multiply(struct gpt_queue *q, const struct gpt_expert_matmul *op,
                     int64_t e, int64_t begin, int64_t m)
{
    const enum gpt_dtype act = op->rows->act;
    struct gpt_quant quant;
    struct gpt_matmul one = {
        .m = m,
        .n = op->n,
        .k = op->k,
        .tb = op->tb,
        .a = (const char *)op->a + (size_t)begin * row_bytes(op->k, act),
        .b = (const char *)op->b +
             (size_t)e * row_bytes(op->n * op->k, act),
        .c = (char *)op->c + (size_t)begin * row_bytes(op->n, act),
        .act = act,
        .c_type = act,
        .sums = op->sums,
    };

    if (m == 0)
        return;
    if (op->quant) {
        quant = quant_of(op, e);
        one.quant = &quant;
        one.b = quant.values;
    }
    cpu_matmul(q, &one);
}

/* The gradient of an expert's matrix. */
static void multiply_back(struct gpt_queue *q,
                          const struct gpt_expert_matmul *op, int64_t e,
                          int64_t begin, int64_t m)
{
    const enum gpt_dtype act = op->rows->act;
    const struct gpt_matmul one = {
        .m = op->m,
        .n = op->n,
        .k = m,
        .ta = true,
        .a = (const char *)op->a + (size_t)begin * row_bytes(op->m, act),
        .b = (const char *)op->b + (size_t)begin * row_bytes(op->n, act),
        .c = (float *)op->c + e * op->m * op->n,
        .act = act,
        .c_type = GPT_F32,
        .beta = op->beta,
    };

    if (m > 0)
        cpu_matmul(q, &one);
    else if (op->beta == 0)
        memset(one.c, 0, (size_t)(op->m * op->n) * sizeof(float));
}

/* Experts one after the other: the threads share each product. */
void cpu_expert_matmul(struct gpt_queue *q, const struct gpt_expert_matmul *op)
{
    const struct gpt_expert_rows *rows = op->rows;

    if (!cpu_ready_narrow(q, "expert_matmul", rows->act))
        return;
    for (int64_t e = 0; e < rows->count; e++) {
        const int32_t *begin = rows->begin + rows->first + e;
        const int64_t at = begin[0] - first_pair(rows);

        if (op->ta)
            multiply_back(q, op, e, at, begin[1] - begin[0]);
        else
            multiply(q, op, e, at, begin[1] - begin[0]);
    }
}
