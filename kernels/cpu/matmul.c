/* Matrix products with their epilogues, in six ways. Start at cpu_matmul().
 *
 *   few rows   (m <= 16, b stored (N, K)): generation at small batches. Each
 *              row of b is read once; the speed is that of memory. A row of c
 *              does not depend on the others, not even in rounding.
 *   oneDNN     blocks of c, each one product in one thread (library.c).
 *   portable   items of c by tiles of isa/gemm.c (tiles.c).
 *   pairs      bf16 by instructions that multiply pairs of it (pairs.c).
 *   quant      with weights in fewer bits, by these (quant.c), or with floats
 *              in panels (panel_products.c).
 *   fp8        factors rounded to eight bits, by these (fp8.c).
 *
 * c is cut into blocks by its shape alone, and a block is one thread's: oneDNN
 * left to itself cuts long sums over its threads, and the result would depend
 * on their number. (Inside a parallel region it uses the calling thread.)
 *
 * With operands in bf16 sums are float sums all the same: operands are widened
 * on the way to the tiles, or multiplied by a processor that can; what is
 * stored in bf16 is rounded once, after the epilogue. */
#include "cpu/product.h"

#include "base/num.h"

#include <assert.h>
#include <omp.h>
#include <string.h>

static size_t element(const struct cpu_product *p)
{
    return p->narrow ? sizeof(uint16_t) : sizeof(float);
}

/* ---- epilogues ---- */

/* Finishes row i while its block is in the cache: a separate pass over c would
 * read and write all of it again. */
static void float_epilogue(const struct cpu_product *p, float *c, int64_t i)
{
    float *aux = p->aux ? (float *)p->aux + i * p->ld_aux : NULL;

    if (p->epilogue == GPT_EPI_BIAS)
        cpu_isa->add(c, c, p->bias, p->n);
    else if (p->epilogue == GPT_EPI_BIAS_GELU)
        cpu_isa->bias_gelu(c, aux, p->bias, p->n);
    else if (p->epilogue == GPT_EPI_DGELU)
        cpu_isa->gelu_grad(c, aux, p->n);
}

/* Finishes and rounds a row. GELU is that of what is stored before it, with the
 * bits of a pass of its own, by which backward may compute it again. */
static void narrow_epilogue(const struct cpu_product *p, float *c, int64_t i,
                            const float *bias)
{
    /* A row of a block is at most CPU_BN wide. */
    uint16_t *aux = p->aux ? (uint16_t *)p->aux + i * p->ld_aux : NULL;
    float wide[CPU_BN];

    if (p->epilogue == GPT_EPI_BIAS || p->epilogue == GPT_EPI_BIAS_GELU)
        cpu_isa->add(c, c, bias, p->n);
    if (p->epilogue == GPT_EPI_BIAS_GELU) {
        cpu_isa->narrow(aux, c, p->n);
        if (p->c16) {
            cpu_gelu_narrow(p->c16 + i * p->ld16, aux, p->n);
            return;
        }
        cpu_isa->widen(c, aux, p->n);
        cpu_isa->gelu(c, c, p->n);
    } else if (p->epilogue == GPT_EPI_DGELU) {
        cpu_isa->widen(wide, aux, p->n);
        cpu_isa->gelu_grad(c, wide, p->n);
    }
    if (p->c16)
        cpu_isa->narrow(p->c16 + i * p->ld16, c, p->n);
}

void cpu_finish_block(const struct cpu_product *p)
{
    float bias[CPU_BN];

    if (p->narrow && p->bias)
        cpu_isa->widen(bias, p->bias, p->n);
    for (int64_t i = 0; i < p->m; i++) {
        float *c = p->c + i * p->ldc;

        if (p->narrow)
            narrow_epilogue(p, c, i, bias);
        else
            float_epilogue(p, c, i);
    }
}

/* ---- blocks ---- */

/* Element i of memory of a, b, bias or aux. */
static const void *at(const struct cpu_product *p, const void *mem, int64_t i)
{
    return p->narrow ? (const void *)((const uint16_t *)mem + i)
                     : (const void *)((const float *)mem + i);
}

struct cpu_product cpu_block_of(const struct cpu_product *whole, int64_t m0,
                                int64_t n0, int64_t bm, int64_t bn,
                                float *room)
{
    struct cpu_product p = *whole;

    p.m = whole->m - m0 < bm ? whole->m - m0 : bm;
    p.n = whole->n - n0 < bn ? whole->n - n0 : bn;
    p.a = at(whole, p.a, p.ta ? m0 : m0 * p.lda);
    p.b = at(whole, p.b, p.tb ? n0 * p.ldb : n0);
    if (p.bias)
        p.bias = at(whole, p.bias, n0);
    if (p.aux)
        p.aux = (char *)p.aux + (size_t)(m0 * p.ld_aux + n0) * element(whole);
    /* What ends as bf16 is summed in `room`, the thread's own floats, in which
     * beta's old c is the first term. */
    p.m0 = m0;
    if (!p.c16) {
        p.c += m0 * p.ldc + n0;
        return p;
    }
    p.c16 += m0 * p.ld16 + n0;
    p.c = room;
    p.ldc = p.n;
    for (int64_t i = 0; i < p.m && p.beta != 0; i++)
        cpu_isa->widen(p.c + i * p.ldc, p.c16 + i * p.ld16, p.n);
    return p;
}

/* Finishes a block of empty sums; oneDNN has no such case. */
static void empty_block(const struct cpu_product *p)
{
    for (int64_t i = 0; i < p->m && p->beta == 0; i++)
        memset(p->c + i * p->ldc, 0, (size_t)p->n * sizeof(*p->c));
}

static bool library_block(const struct cpu_product *p)
{
    bool good = true;

    assert(p->m > 0 && p->n > 0 && p->n <= CPU_BN);
    if (p->k == 0)
        empty_block(p);
    else
        good = cpu_library(p);
    cpu_finish_block(p);
    return good;
}

static void multiply_blocks(struct gpt_queue *q, const struct cpu_product *p)
{
    const int64_t each = p->c16 ? CPU_BM * CPU_BN : 0;
    float *work = NULL;

    if (each > 0 &&
        !(work = cpu_work(q, (size_t)(each * omp_get_max_threads()))))
        return;
    /* Blocks follow from the shape, and a block's result from its operands: the
     * number of threads only decides which thread computes which block.
     * Neighbours in i share columns of b. */
    int64_t rows = gpt_ceil_div(p->m, CPU_BM);
    int64_t cols = gpt_ceil_div(p->n, CPU_BN);
    bool good = true;
#pragma omp parallel for schedule(dynamic) reduction(&& : good)
    for (int64_t i = 0; i < rows * cols; i++) {
        float *mine = work ? work + omp_get_thread_num() * each : NULL;
        struct cpu_product part = cpu_block_of(
            p, i % rows * CPU_BM, i / rows * CPU_BN, CPU_BM, CPU_BN, mine);

        good = library_block(&part) && good;
    }
    if (!good)
        cpu_fail(q, "matmul: oneDNN refused %lld x %lld x %lld: it has no such "
                 "product, or too little memory (ulimit -v)",
                 (long long)p->m, (long long)p->n, (long long)p->k);
}

/* ---- few rows ---- */

/* With up to FEW rows of a, they meet STRIP rows of b at a time, which stay in
 * the second cache. bf16 becomes floats on the way, ROWS rows of a at a
 * time. */
enum { FEW = 16, ROWS = 8, STRIP = 16 };

static void multiply_strip(const struct cpu_product *p, int64_t n0, float *room)
{
    /* Rows of b in bf16 are widened once for all rows of a. */
    int64_t n = p->n - n0 < STRIP ? p->n - n0 : STRIP, ldb = p->ldb;
    float *sums = room, *wide = room + ROWS * STRIP;
    const float *b = cpu_floats(p, p->b, n0 * ldb, n, p->k, &ldb, wide);
    const int64_t rows = p->narrow ? ROWS : p->m;

    wide += STRIP * p->k;
    for (int64_t m0 = 0; m0 < p->m; m0 += rows) {
        struct cpu_product part = cpu_block_of(p, m0, n0, rows, STRIP, sums);
        int64_t lda = p->lda;
        const float *a = cpu_floats(&part, part.a, 0, part.m, p->k, &lda, wide);

        cpu_isa->dots(part.c, part.ldc, a, lda, b, ldb, part.m, part.n, p->k,
                      part.beta != 0);
        cpu_finish_block(&part);
    }
}

bool cpu_pack_inputs(struct gpt_queue *q, struct cpu_product *p)
{
    enum { STEP = 16 };
    const float *x = p->a;
    const int64_t ldx = p->lda;

    if (p->m < 2)
        return true;
    float *to = cpu_work(q, (size_t)(p->m * gpt_round_up(p->k, STEP)));
    if (!to)
        return false;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(p->m * p->k))
    for (int64_t i = 0; i < p->m; i++)
        cpu_isa->pack_x(to, x + i * ldx, p->m, i, p->k);
    p->a = to;
    p->lda = 0;
    return true;
}

static void multiply_few_rows(struct gpt_queue *q, const struct cpu_product *p)
{
    struct cpu_product packed = *p;
    int64_t each = p->narrow ? ROWS * STRIP + (STRIP + ROWS) * p->k : 0;
    float *room = NULL;

    if (each ? !(room = cpu_work(q, (size_t)(each * omp_get_max_threads())))
             : !cpu_pack_inputs(q, &packed))
        return;
#pragma omp parallel for schedule(static) if (cpu_product_worth_threads(p))
    for (int64_t n0 = 0; n0 < p->n; n0 += STRIP)
        multiply_strip(&packed, n0,
                       room ? room + omp_get_thread_num() * each : NULL);
}

/* ---- the operation ---- */

/* True when oneDNN multiplies. oneDNN (2.6) takes blocks of this size without
 * packing them, which with a transposed `a` whose rows are a multiple of 4 KiB
 * apart takes twice as long (F = 3072, AVX2: 38 against 83 GFLOP/s a core of
 * the tiles here). And it rounds by shape, where tiles sum each element in one
 * order. */
static bool by_library(const struct gpt_matmul *op)
{
    if (op->act == GPT_BF16)
        return cpu_use_dnnl_bf16;
    return cpu_use_dnnl && op->sums != GPT_SUMS_MANY &&
           !(op->ta && cpu_isa->mr > 4);
}

bool cpu_has_few_rows(const struct cpu_product *p)
{
    const bool few = p->sums == GPT_SUMS_SHAPE ? p->m <= FEW
                                               : p->sums == GPT_SUMS_FEW;

    return few && !p->ta && p->tb;
}

struct cpu_sharing cpu_share_few(const struct cpu_product *p, bool several)
{
    enum { ENOUGH = 16 }; /* rows */
    const int64_t threads =
        cpu_product_worth_threads(p) ? omp_get_max_threads() : 1;
    int64_t parts = several ? gpt_min_i64(p->m / ENOUGH, threads) : 1;

    while (parts > 1 && threads % parts != 0)
        parts--;
    parts = parts > 1 ? parts : 1;
    return (struct cpu_sharing){parts, threads / parts};
}

struct cpu_product cpu_rows_of(const struct cpu_product *p, int64_t parts,
                               int64_t i)
{
    const int64_t first = cpu_cut(p->m, parts, i);

    return cpu_block_of(p, first, 0, cpu_cut(p->m, parts, i + 1) - first, p->n,
                        NULL);
}

static int64_t tight(int64_t ld, int64_t columns)
{
    return ld ? ld : columns;
}

void cpu_matmul(struct gpt_queue *q, const struct gpt_matmul *op)
{
    bool narrow = op->act == GPT_BF16, c_narrow = op->c_type == GPT_BF16;

    if (!cpu_ready_narrow(q, "matmul", op->act) ||
        !cpu_ready(q, "matmul", narrow && c_narrow ? GPT_F32 : op->c_type))
        return;
    struct cpu_product p = {
        .m = op->m,
        .n = op->n,
        .k = op->k,
        .ta = op->ta,
        .tb = op->tb,
        .narrow = narrow,
        .lda = tight(op->lda, op->ta ? op->m : op->k),
        .ldb = tight(op->ldb, op->tb ? op->k : op->n),
        .ldc = tight(op->ldc, op->n),
        .ld16 = tight(op->ldc, op->n),
        .ld_aux = op->n,
        .a = op->a,
        .b = op->b,
        .bias = op->bias,
        .c = c_narrow ? NULL : op->c,
        .c16 = c_narrow ? op->c : NULL,
        .aux = op->aux,
        .beta = op->beta,
        .epilogue = op->epilogue,
        .sums = op->sums,
    };
    /* Few rows: packing b would take as long as the product. m is part of the
     * shape, so this choice depends on no thread either. */
    if (op->fp8.a != GPT_FP8_NONE)
        cpu_multiply_fp8(q, &p, &op->fp8);
    else if (op->quant)
        cpu_multiply_quant(q, &p, op->quant);
    else if (cpu_has_few_rows(&p))
        multiply_few_rows(q, &p);
    else if (narrow && cpu_pairs && p.k > 0)
        cpu_multiply_pairs(q, &p);
    else if (by_library(op))
        multiply_blocks(q, &p);
    else
        cpu_multiply_tiles(q, &p, NULL);
}
