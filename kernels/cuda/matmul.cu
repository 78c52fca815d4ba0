/* Matrix products: the row-major call becomes the transposed column-major one
 * that the library knows, c' (N, M) = op(b)' op(a)'. What the library refuses
 * or is slow at, products or only their epilogues, is done by kernels of our own. */
#include "cuda/fp8.cuh"
#include "cuda/gelu.cuh"

enum { THREADS = 256 };

/* True when products of float may use TF32, attention's too. One value serves the whole process, as
 * the option does that sets it; operations read the value when they are put on a queue. */
static bool tf32;

void cuda_allow_tf32(struct gpt_backend *be, bool allow)
{
    (void)be;
    tf32 = allow;
}

bool cuda_uses_tf32()
{
    return tf32;
}

/* The library refuses the address of a bias that the epilogue does not use. */
static void set_epilogue(struct gemm_call *g, const struct gpt_matmul *op, enum gpt_epilogue e)
{
    g->epilogue = e;
    g->bias = e == GPT_EPI_BIAS || e == GPT_EPI_BIAS_GELU ? op->bias : NULL;
    g->aux = e == GPT_EPI_BIAS_GELU || e == GPT_EPI_DGELU ? op->aux : NULL;
}

static struct gemm_call transposed(const struct gpt_matmul *op)
{
    struct gemm_call g = {};

    /* Row-major c (m, n) is column-major c' (n, m): the same memory. Factors
     * change places, and keep how they are stored. */
    g.m = op->n;
    g.n = op->m;
    g.k = op->k;
    g.a = op->b;
    g.b = op->a;
    g.ta = op->tb;
    g.tb = op->ta;
    g.lda = op->ldb ? op->ldb : op->tb ? op->k : op->n;
    g.ldb = op->lda ? op->lda : op->ta ? op->m : op->k;
    g.ldc = op->ldc ? op->ldc : op->n;
    g.ld_aux = op->n;
    g.c = op->c;
    g.act = op->act;
    g.c_type = op->c_type;
    g.beta = op->beta;
    set_epilogue(&g, op, op->epilogue);
    g.tf32 = tf32 && op->act == GPT_F32;
    return g;
}

/* c (rows, n), rows ld apart; aux (rows, n) tight. store() rounds x to what memory holds, so GELU
 * is that of aux as stored. c itself was rounded to its type by the product before: here, where the
 * library refuses an epilogue, what is stored in bf16 is rounded twice. */
template <class T, class C, int W>
static __global__ void epilogue(C *c, T *aux, const T *bias, int64_t n, int64_t ld,
                                enum gpt_epilogue kind)
{
    C *row = c + (int64_t)blockIdx.x * ld;
    T *pre = aux + (int64_t)blockIdx.x * n;

    for (int64_t j = threadIdx.x * W; j < n; j += THREADS * W) {
        float x[W], y[W];

        load(x, row + j);
        load(y, kind == GPT_EPI_DGELU ? pre + j : bias + j);
#pragma unroll
        for (int e = 0; e < W; e++)
            x[e] = kind == GPT_EPI_DGELU ? x[e] * gelu_slope(y[e]) : x[e] + y[e];
        if (kind == GPT_EPI_BIAS_GELU) {
            store(pre + j, x);
#pragma unroll
            for (int e = 0; e < W; e++)
                x[e] = gelu(x[e]);
        }
        store(row + j, x);
    }
}

static void run_epilogue(struct gpt_queue *q, const struct gpt_matmul *op)
{
    const int64_t ld = op->ldc ? op->ldc : op->n;
    const bool wide = op->act == op->c_type && cuda_wide(op->act, op->n, op->bias, op->aux) &&
                      cuda_wide(op->act, ld, op->c);

    with_access(op->act, wide, [&](auto act, auto width) {
        using T = decltype(act);
        const int W = decltype(width)::value;
        auto put = [&](auto c_type) {
            using C = decltype(c_type);
            launch(q, epilogue<T, C, W>, op->m, THREADS, 0, (C *)op->c, (T *)op->aux,
                   (const T *)op->bias, op->n, ld, op->epilogue);
        };

        if constexpr (W > 1)
            put(act);
        else
            with_type(op->c_type, put);
    });
}

/* True when the library's epilogue is faster than a pass of our own. With factors of eight bits it
 * multiplies by GELU's slope in a pass that takes as long as three such products: 1.07 ms for 16384
 * x 6400 on an H100 (cuBLASLt 13.1). */
static bool worth_fusing(const struct gpt_matmul *op)
{
    return op->fp8.a == GPT_FP8_NONE || op->epilogue != GPT_EPI_DGELU;
}

static bool library_ready(struct gpt_queue *q)
{
    struct gpt_err err;

    /* Not when the queue is opened: 32 MiB for queues that only copy. */
    if (!q->gemm_known && gemm_open(&q->gemm, &err) != GPT_OK)
        cuda_fail(q, "%s", err.text);
    q->gemm_known = true;
    return q->err.status == GPT_OK;
}

void cuda_matmul(struct gpt_queue *q, const struct gpt_matmul *op)
{
    if (!cuda_ready(q, "matmul", op->act) || !cuda_ready(q, "matmul", op->c_type) || !op->m ||
        !op->n || !library_ready(q))
        return;
    struct gemm_call call = transposed(op);
    const char *why = NULL;
    if (op->fp8.a != GPT_FP8_NONE && !cuda_fp8_factors(q, op, &call))
        return;
    enum gemm_result r = worth_fusing(op) ? gemm_run(q->gemm, q->stream, &call, &why)
                                          : GEMM_UNSUPPORTED;
    /* Three tries: fused if that is worth it, the product alone, our own kernel. Which
     * one serves depends on shape and alignment, and is the same at every call. */
    bool finish = r == GEMM_UNSUPPORTED && op->epilogue != GPT_EPI_NONE;
    if (finish) {
        set_epilogue(&call, op, GPT_EPI_NONE);
        r = gemm_run(q->gemm, q->stream, &call, &why);
    }
    if (r == GEMM_UNSUPPORTED)
        gemm_plain(q, &call);
    /* A refusal is a limit of the library; a failure is one of the device. */
    if (r == GEMM_FAILED)
        cuda_fail(q, "%lld x %lld x %lld of %s: %s", (long long)op->m, (long long)op->n,
                  (long long)op->k, gpt_dtype_name(op->act), why);
    else if (finish)
        run_epilogue(q, op);
}
