/* Token and position embeddings. The backward pass cuts the columns over the
 * threads, so that rows are added in their order for any number of them. */
#include "cpu/cpu.h"

#include <string.h>

/* Row of the words held here for token i, or -1 when it is held elsewhere.
 * Under tensor parallelism a rank holds a part of the vocabulary; the sum over
 * ranks adds the zeros of the others. */
static int64_t word_row(const struct gpt_embed *op, int64_t i)
{
    int64_t row = op->tokens[i] - op->v_begin;

    return row >= 0 && row < op->v_local ? row : -1;
}

enum { PART = 256 };

/* Computes columns j .. j + n - 1 of row i in float, rounded at the end. */
static void forward_part(const struct gpt_embed *op,
                         const struct cpu_drop *drop, int64_t i, int64_t j,
                         int64_t n)
{
    size_t type = gpt_dtype_bytes(op->act);
    int64_t c = op->c, row = word_row(op, i);
    /* Both rows are added in float and rounded once, whatever `act` is. */
    float y[PART] = {0}, position[PART];

    if (row >= 0 && op->quant)
        cpu_quant_row(y, op->quant, row, j, n, c);
    else if (row >= 0)
        gpt_convert(y, GPT_F32, (const char *)op->wte + (size_t)(row * c + j) *
                    type, op->act, (size_t)n);
    if (op->scale != 0)
        cpu_isa->scale(y, n, op->scale);
    if (op->wpe) {
        size_t at = (size_t)(op->positions[i] * c + j) * type;

        gpt_convert(position, GPT_F32, (const char *)op->wpe + at, op->act,
                    (size_t)n);
        cpu_isa->add(y, y, position, n);
    }
    if (op->dropout.p > 0)
        cpu_isa->drop(y, y, n, drop,
                      cpu_drop_index(&op->dropout, i, c) + (uint64_t)j);
    gpt_convert((char *)op->out + (size_t)(i * c + j) * type, op->act, y,
                GPT_F32, (size_t)n);
}

void cpu_embed_fwd(struct gpt_queue *q, const struct gpt_embed *op)
{
    /* This operation converts its own rows: widening all of wte, as bf16.c does
     * with operands, would cost more than the lookup. */
    if (op->act != GPT_BF16 && !cpu_ready(q, "embed_fwd", op->act))
        return;
    if (q->err.status != GPT_OK)
        return;
    int64_t c = op->c;
    struct cpu_drop drop = {0};
    if (op->dropout.p > 0)
        drop = cpu_drop_of(&op->dropout);
#pragma omp parallel for schedule(static) if (cpu_worth_threads(op->n * c))
    for (int64_t i = 0; i < op->n; i++)
        for (int64_t j = 0; j < c; j += PART)
            forward_part(op, &drop, i, j, c - j < PART ? c - j : PART);
}

/* Columns of a task: four cache lines, so that two threads never write to the
 * same line of a table. */
enum { COLUMNS = 64 };

/* No scratch is needed: each thread adds to its own columns of the tables. */
size_t cpu_embed_scratch(int64_t n, int64_t c, bool positions)
{
    (void)n, (void)c, (void)positions;
    return 0;
}

void cpu_embed_bwd(struct gpt_queue *q, const struct gpt_embed *op,
                   const struct gpt_embed_grad *grad)
{
    if (!cpu_ready(q, "embed_bwd", op->act))
        return;
    int64_t c = op->c;
    float *dwte = grad->dwte, *dwpe = grad->dwpe;
    const float *dy = grad->dout;
    struct cpu_drop drop = {0};
    if (op->dropout.p > 0)
        drop = cpu_drop_of(&op->dropout);
#pragma omp parallel for schedule(static) if (cpu_worth_threads(op->n * c))
    for (int64_t c0 = 0; c0 < c; c0 += COLUMNS) {
        int64_t w = c - c0 < COLUMNS ? c - c0 : COLUMNS;

        for (int64_t i = 0; i < op->n; i++) {
            /* Tokens repeat, and their rows are added to: a thread has all rows
             * of its columns, in the order of positions, and no other thread
             * touches them. Cutting the rows instead would need atomics, whose
             * order differs from run to run. */
            float dropped[COLUMNS], scaled[COLUMNS];
            const float *d = dy + i * c + c0;

            if (op->dropout.p > 0) {
                uint64_t at = cpu_drop_index(&op->dropout, i, c);

                cpu_isa->drop(dropped, d, w, &drop, at + (uint64_t)c0);
                d = dropped;
            }
            int64_t row = word_row(op, i);
            if (dwpe) {
                float *dp = dwpe + op->positions[i] * c + c0;

                cpu_isa->add(dp, dp, d, w);
            }
            if (!dwte || row < 0)
                continue;
            if (op->scale != 0) {
                memcpy(scaled, d, (size_t)w * sizeof(*d));
                cpu_isa->scale(scaled, w, op->scale);
                d = scaled;
            }
            float *dw = dwte + row * c + c0;

            cpu_isa->add(dw, dw, d, w);
        }
    }
}
