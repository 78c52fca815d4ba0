/* Matrix products with their epilogues, in three ways. Start at cpu_matmul().
 *
 *   few rows   (m <= 16, b stored (N, K)): generation at small batches. Each
 *              row of b is read once; the speed is that of memory. A row of c
 *              does not depend on the others, not even in rounding.
 *   oneDNN     blocks of c, each one call of dnnl_sgemm in one thread.
 *   portable   the same blocks by tiles of isa/gemm.c.
 *
 * c is cut into blocks by its shape alone, and a block is one thread's: oneDNN
 * left to itself cuts long sums over its threads, and the result would depend
 * on their number. (Inside a parallel region it uses the calling thread.) */
#include "cpu/cpu.h"

#include <omp.h>
#include <string.h>

#ifdef GPT_HAVE_DNNL
#include <dnnl.h>
#endif

/* A product, or the part of it that is one block. */
struct job {
    int64_t m, n, k, lda, ldb, ldc, ld_aux;
    bool ta, tb, library;
    const float *a, *b, *bias;
    float *c, *aux, beta;
    enum gpt_epilogue epilogue;
    const float *packed; /* all of a, packed, or NULL */
    int64_t m_pad, m0;   /* rows in it; this block's first */
};

static void epilogue(const struct job *j)
{
    for (int64_t i = 0; i < j->m; i++) {
        float *c = j->c + i * j->ldc;
        float *aux = j->aux ? j->aux + i * j->ld_aux : NULL;
        if (j->epilogue == GPT_EPI_BIAS)
            cpu_isa->add(c, c, j->bias, j->n);
        else if (j->epilogue == GPT_EPI_BIAS_GELU)
            cpu_isa->bias_gelu(c, aux, j->bias, j->n);
        else if (j->epilogue == GPT_EPI_DGELU)
            cpu_isa->gelu_grad(c, aux, j->n);
    }
}

/* The block of `whole` at row m0, column n0, at most bm x bn. */
static struct job block_of(const struct job *whole, int64_t m0, int64_t n0,
                           int64_t bm, int64_t bn)
{
    struct job j = *whole;
    j.m = whole->m - m0 < bm ? whole->m - m0 : bm;
    j.n = whole->n - n0 < bn ? whole->n - n0 : bn;
    j.a += j.ta ? m0 : m0 * j.lda;
    j.b += j.tb ? n0 * j.ldb : n0;
    j.c += m0 * j.ldc + n0;
    if (j.bias)
        j.bias += n0;
    if (j.aux)
        j.aux += m0 * j.ld_aux + n0;
    j.m0 = m0;
    return j;
}

/* An empty sum; oneDNN has no such case. */
static void empty_block(const struct job *j)
{
    for (int64_t i = 0; i < j->m && j->beta == 0; i++)
        memset(j->c + i * j->ldc, 0, (size_t)j->n * sizeof *j->c);
}

#ifdef GPT_HAVE_DNNL
static bool library_block(const struct job *j)
{
    return dnnl_sgemm(j->ta ? 'T' : 'N', j->tb ? 'T' : 'N', j->m, j->n, j->k, 1,
                      j->a, j->lda, j->b, j->ldb, j->beta, j->c,
                      j->ldc) == dnnl_success;
}
#endif

/* Sums are cut every KC: a panel of b, KC rows of a tile's columns, stays in
 * the first cache while the packed part of a, MC x KC, stays in the second. */
enum { KC = 256, MC = 144, BM = 288, BN = 384 };
enum { PACK_A = (MC + CPU_MR_MAX) * KC, PACK_B = (BN + CPU_NR_MAX) * KC };

/* Rows m0.. of a, columns k0..: mc x kc of them as panels. */
static void pack_rows(const struct job *j, float *to, int64_t m0, int64_t mc,
                      int64_t k0, int64_t kc)
{
    const float *a = j->ta ? j->a + k0 * j->lda + m0 : j->a + m0 * j->lda + k0;
    cpu_isa->pack_a(to, a, j->ta ? 1 : j->lda, j->ta ? j->lda : 1, mc, kc);
}

static void portable_part(const struct job *j, int64_t k0, int64_t kc,
                          float *pack)
{
    int64_t mr = cpu_isa->mr, nr = cpu_isa->nr;
    float *pb = pack + PACK_A;
    cpu_isa->pack_b(pb, j->tb ? j->b + k0 : j->b + k0 * j->ldb,
                    j->tb ? 1 : j->ldb, j->tb ? j->ldb : 1, kc, j->n);
    for (int64_t m0 = 0; m0 < j->m; m0 += MC) {
        int64_t mc = j->m - m0 < MC ? j->m - m0 : MC;
        const float *pa = pack;
        if (j->packed)
            pa = j->packed + k0 * j->m_pad + (j->m0 + m0) * kc;
        else
            pack_rows(j, pack, m0, mc, k0, kc);
        for (int64_t n0 = 0; n0 < j->n; n0 += nr)
            for (int64_t i = 0; i < mc; i += mr) {
                struct cpu_tile t = {.m = mc - i < mr ? mc - i : mr,
                                     .n = j->n - n0 < nr ? j->n - n0 : nr,
                                     .k = kc,
                                     .a = pa + i * kc,
                                     .a_row = 1,
                                     .a_col = mr,
                                     .b = pb + n0 * kc,
                                     .c = j->c + (m0 + i) * j->ldc + n0,
                                     .ldc = j->ldc,
                                     .add = k0 > 0 || j->beta != 0};
                cpu_isa->tile(&t);
            }
    }
}

static void portable_block(const struct job *j, float *pack)
{
    for (int64_t k0 = 0; k0 < j->k; k0 += KC)
        portable_part(j, k0, j->k - k0 < KC ? j->k - k0 : KC, pack);
}

static bool run_block(const struct job *j, float *pack)
{
    bool good = true;
    if (j->k == 0)
        empty_block(j);
    else if (!j->library)
        portable_block(j, pack);
#ifdef GPT_HAVE_DNNL
    else
        good = library_block(j);
#endif
    epilogue(j);
    return good;
}

/* About how long it takes one thread. */
static int64_t nanoseconds(const struct job *j)
{
    return j->m * j->n / 16 * j->k;
}

/* When several blocks stand side by side and a is small, it is packed once for
 * all of them instead of by each. */
static bool pack_whole(const struct job *j)
{
    enum { MOST = 1 << 22 };
    return !j->library && j->n > 2 * BN && j->m * j->k <= MOST;
}

static void pack_all(struct job *j, float *to)
{
    j->packed = to;
    int64_t rows = (j->m + MC - 1) / MC, parts = (j->k + KC - 1) / KC;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(j->m * j->k))
    for (int64_t i = 0; i < rows * parts; i++) {
        int64_t m0 = i % rows * MC, k0 = i / rows * KC;
        int64_t mc = j->m - m0 < MC ? j->m - m0 : MC;
        int64_t kc = j->k - k0 < KC ? j->k - k0 : KC;
        pack_rows(j, to + k0 * j->m_pad + m0 * kc, m0, mc, k0, kc);
    }
}

static void product(struct gpt_queue *q, struct job *j)
{
    int64_t threads = omp_get_max_threads(), whole = 0;
    int64_t each = j->library ? 0 : PACK_A + PACK_B;
    j->m_pad = (j->m + cpu_isa->mr - 1) / cpu_isa->mr * cpu_isa->mr;
    if (pack_whole(j))
        whole = j->m_pad * j->k;
    float *pack = NULL;
    if (each && !(pack = cpu_work(q, (size_t)(each * threads + whole))))
        return;
    if (whole)
        pack_all(j, pack + each * threads);
    int64_t rows = (j->m + BM - 1) / BM, cols = (j->n + BN - 1) / BN;
    bool good = true;
#pragma omp parallel for schedule(dynamic) reduction(&& : good) if (           \
        j->library || cpu_worth_threads(nanoseconds(j)))
    for (int64_t i = 0; i < rows * cols; i++) {
        struct job part = block_of(j, i % rows * BM, i / rows * BN, BM, BN);
        float *mine = each ? pack + omp_get_thread_num() * each : NULL;
        good = run_block(&part, mine) && good;
    }
    if (!good)
        cpu_fail(q, "matmul: oneDNN refused %lld x %lld x %lld",
                 (long long)j->m, (long long)j->n, (long long)j->k);
}

/* Eight rows of a at a time, which stay in the first cache, meet STRIP rows of
 * b, which stay in the second. */
enum { FEW = 16, STRIP = 16 };

static void few_rows(const struct job *j)
{
#pragma omp parallel for schedule(static) if (cpu_worth_threads(nanoseconds(j)))
    for (int64_t n0 = 0; n0 < j->n; n0 += STRIP)
        for (int64_t m0 = 0; m0 < j->m; m0 += 8) {
            struct job part = block_of(j, m0, n0, 8, STRIP);
            cpu_isa->dots(part.c, part.ldc, part.a, part.lda, part.b, part.ldb,
                          part.m, part.n, part.k, part.beta != 0);
            epilogue(&part);
        }
}

/* oneDNN (2.6) multiplies blocks of this size without packing them, which with
 * a transposed `a` whose rows are a multiple of 4 KiB apart takes twice as long
 * (F = 3072, AVX2: 38 against 83 GFLOP/s a core of the tiles here). */
static bool by_library(const struct gpt_matmul *op)
{
    return cpu_use_dnnl && !(op->ta && cpu_isa->mr > 4);
}

void cpu_matmul(struct gpt_queue *q, const struct gpt_matmul *op)
{
    if (!cpu_ready(q, "matmul", op->act) || !cpu_ready(q, "matmul", op->c_type))
        return;
    struct job j = {
        .m = op->m,
        .n = op->n,
        .k = op->k,
        .ta = op->ta,
        .tb = op->tb,
        .lda = op->lda  ? op->lda
               : op->ta ? op->m
                        : op->k,
        .ldb = op->ldb  ? op->ldb
               : op->tb ? op->k
                        : op->n,
        .ldc = op->ldc ? op->ldc : op->n,
        .ld_aux = op->n,
        .a = op->a,
        .b = op->b,
        .bias = op->bias,
        .c = op->c,
        .aux = op->aux,
        .beta = op->beta,
        .epilogue = op->epilogue,
        .library = by_library(op),
    };
    if (j.m <= FEW && !j.ta && j.tb)
        few_rows(&j);
    else
        product(q, &j);
}
