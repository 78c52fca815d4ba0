/* Matrix products by cuBLASLt, which is opened at run time: without it they are
 * slower. The algorithm of a shape is asked for once and kept: the library's
 * first choice, or with GPT_CUDA_TUNE=1 the fastest of its first few. Another
 * algorithm is another order of sums, so that tuned runs do not repeat to the
 * bit. Start at gemm_run(). */
#include "cuda/gemm.cuh"
#include "cuda/library.cuh"

#include <cublasLt.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the library ---- */

#define LT_LIST(X)                                                                               \
    X(Create) X(Destroy) X(GetVersion) X(Matmul) X(MatmulAlgoGetHeuristic)                       \
    X(MatmulDescCreate) X(MatmulDescDestroy) X(MatmulDescSetAttribute)                           \
    X(MatmulPreferenceCreate) X(MatmulPreferenceDestroy) X(MatmulPreferenceSetAttribute)         \
    X(MatrixLayoutCreate) X(MatrixLayoutDestroy)

static struct {
#define X(name) decltype(&cublasLt##name) name;
    LT_LIST(X)
#undef X
} lt;
static const char *const lt_names[] = {
#define X(name) "cublasLt" #name,
    LT_LIST(X)
#undef X
};
static char lt_text[160]; /* what it is, or why it is not there */
static bool lt_found;

static void find_library(void)
{
    char soname[32]; /* of the version whose header this was compiled with */

    snprintf(soname, sizeof(soname), "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    /* Overwritten below when all is well. */
    snprintf(lt_text, sizeof(lt_text), "plain matrix products, slow: no usable %s", soname);
    if (!library_open(soname, lt_names, &lt))
        return;
    size_t v = lt.GetVersion();
    snprintf(lt_text, sizeof(lt_text), "cuBLASLt %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    lt_found = true;
}

/* Once a process, whichever thread asks first. */
static bool open_library(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find_library);
    return lt_found;
}

const char *gemm_library(void)
{
    open_library();
    return lt_text;
}

/* ---- plans: everything about a product but its addresses ---- */

struct plan {
    struct gemm_call shape; /* addresses NULL */
    unsigned aligned;       /* five bits for each address: alignment() */
    bool supported;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
};

/* WORK: what NVIDIA recommends for Hopper; with less, algorithms that cut long
 * sums are refused. MOST_PLANS: a model has some thirty shapes. */
enum { MOST_PLANS = 256, WORK = 32 << 20, CHOICES = 8, TIMES = 3 };

struct gemm {
    cublasLtHandle_t handle;
    void *work;
    bool tune;
    char why[64]; /* of the last product that failed */
    int n_plans;
    struct plan plans[MOST_PLANS];
};

int gemm_open(struct gemm **out, struct gpt_err *err)
{
    *out = NULL;
    if (!open_library())
        return GPT_OK; /* products are then gemm_plain()'s */
    const char *tune = getenv("GPT_CUDA_TUNE");
    struct gemm *g = (struct gemm *)calloc(1, sizeof(*g));
    /* A handle and work space for each queue: products of two queues at the same
     * time must not share the latter. */
    if (!g || lt.Create(&g->handle) != CUBLAS_STATUS_SUCCESS ||
        cudaMalloc(&g->work, WORK) != cudaSuccess) {
        gemm_close(g);
        return gpt_fail(err, GPT_EDEVICE, "cuda: cuBLASLt does not start, or memory is short");
    }
    g->tune = tune && strcmp(tune, "1") == 0;
    *out = g;
    return GPT_OK;
}

/* Frees whatever was made of a plan. */
static void close_plan(struct plan *p)
{
    if (p->c)
        lt.MatrixLayoutDestroy(p->c);
    if (p->b)
        lt.MatrixLayoutDestroy(p->b);
    if (p->a)
        lt.MatrixLayoutDestroy(p->a);
    if (p->desc)
        lt.MatmulDescDestroy(p->desc);
}

void gemm_close(struct gemm *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n_plans; i++)
        close_plan(&g->plans[i]);
    if (g->handle)
        lt.Destroy(g->handle);
    cudaFree(g->work);
    free(g);
}

static cudaDataType_t type_of(enum gpt_dtype t)
{
    return t == GPT_F32 ? CUDA_R_32F : t == GPT_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static cudaDataType_t factor_type(const struct gemm_call *c, enum gpt_fp8 eight)
{
    return eight == GPT_E4M3   ? CUDA_R_8F_E4M3
           : eight == GPT_E5M2 ? CUDA_R_8F_E5M2
                               : type_of(c->act);
}

template <class T>
static bool set_attribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what, T value)
{
    return lt.MatmulDescSetAttribute(desc, what, &value, sizeof(value)) ==
           CUBLAS_STATUS_SUCCESS;
}

static cublasLtEpilogue_t epilogue_of(enum gpt_epilogue e)
{
    return e == GPT_EPI_BIAS        ? CUBLASLT_EPILOGUE_BIAS
           : e == GPT_EPI_BIAS_GELU ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
           : e == GPT_EPI_DGELU     ? CUBLASLT_EPILOGUE_DGELU
                                    : CUBLASLT_EPILOGUE_DEFAULT;
}

/* Addresses of bias, aux and scales are part of the descriptor: set before each
 * run, since the plan is kept for all products of its shape. */
static bool set_addresses(struct plan *p, const struct gemm_call *c)
{
    if (c->a8 != GPT_FP8_NONE &&
        !(set_attribute(p->desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, c->a_scale) &&
          set_attribute(p->desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, c->b_scale)))
        return false;
    return (!c->bias || set_attribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, c->bias)) &&
           (!c->aux || set_attribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, c->aux));
}

static bool describe_product(struct plan *p, const struct gemm_call *c)
{
    cudaDataType_t act = type_of(c->act), out = type_of(c->c_type);
    cudaDataType_t a = factor_type(c, c->a8), b = factor_type(c, c->b8);
    int8_t coarse = c->coarse;

    /* Sums in float for all types; TF32 rounds factors only. */
    if (lt.MatmulDescCreate(&p->desc, c->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                            CUDA_R_32F) ||
        lt.MatrixLayoutCreate(&p->a, a, c->ta ? c->k : c->m, c->ta ? c->m : c->k,
                                      c->lda) ||
        lt.MatrixLayoutCreate(&p->b, b, c->tb ? c->n : c->k, c->tb ? c->k : c->n,
                                      c->ldb) ||
        lt.MatrixLayoutCreate(&p->c, out, c->m, c->n, c->ldc))
        return false;
    cublasOperation_t op_a = c->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t op_b = c->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    bool good = set_attribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, op_a) &&
                set_attribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, op_b) &&
                set_attribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(c->epilogue));
    if (good && c->a8 != GPT_FP8_NONE)
        good = set_attribute(p->desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, coarse);
    /* Without this the library takes bias to be of the type of c. */
    if (good && c->bias)
        good = set_attribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, act);
    if (good && c->aux)
        good = set_attribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, c->ld_aux) &&
               set_attribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, act);
    return good && set_addresses(p, c);
}

/* The largest power of two up to 16 that divides the address. A plan serves all
 * addresses of one alignment, so that nothing better may be promised: a library
 * that was promised more refuses, or takes another algorithm with another order
 * of sums. 16 bytes is the widest load of its kernels. */
static uint32_t alignment(const void *p)
{
    uint32_t a = (uint32_t)((uintptr_t)p & -(uintptr_t)p);

    return a == 0 || a > 16 ? 16 : a;
}

static cublasStatus_t multiply(struct gemm *g, const struct plan *p, const struct gemm_call *c,
                               void *to, cudaStream_t stream)
{
    /* c is both what is added to and what is written. */
    const float one = 1;

    return lt.Matmul(g->handle, p->desc, &one, c->a, p->a, c->b, p->b, &c->beta, to, p->c, to,
                     p->c, &p->algo, g->work, WORK, stream);
}

/* ---- the choice of an algorithm ---- */

/* Measures milliseconds of p->algo, whose product goes to `to`; infinite when it does not work. */
static float time_of(struct gemm *g, const struct plan *p, const struct gemm_call *c, void *to,
                     cudaStream_t stream, cudaEvent_t begun, cudaEvent_t ended)
{
    float ms = INFINITY;
    /* The first run is not timed: it loads the kernel. */
    bool good = multiply(g, p, c, to, stream) == CUBLAS_STATUS_SUCCESS;

    cudaEventRecord(begun, stream);
    for (int i = 0; good && i < TIMES; i++)
        good = multiply(g, p, c, to, stream) == CUBLAS_STATUS_SUCCESS;
    cudaEventRecord(ended, stream);
    if (cudaEventSynchronize(ended) != cudaSuccess || !good ||
        cudaEventElapsedTime(&ms, begun, ended) != cudaSuccess)
        return INFINITY;
    return ms;
}

/* Puts the fastest of n into p->algo. A product that adds is tried into memory
 * of its own; where there is none, the first choice stays. */
static void tune_algorithm(struct gemm *g, struct plan *p, const struct gemm_call *c,
                           cudaStream_t stream, const cublasLtMatmulHeuristicResult_t *choices,
                           int n)
{
    cudaEvent_t begun = NULL, ended = NULL;
    void *to = c->c;
    /* With beta, trying in place would add the product again and again. */
    float best = INFINITY;
    bool good = cudaEventCreate(&begun) == cudaSuccess && cudaEventCreate(&ended) == cudaSuccess;

    if (good && c->beta != 0)
        good = cudaMalloc(&to, (size_t)(c->ldc * c->n) * gpt_dtype_bytes(c->c_type)) ==
               cudaSuccess;
    for (int i = 0; good && i < n; i++) {
        cublasLtMatmulAlgo_t before = p->algo;

        p->algo = choices[i].algo;
        float ms = choices[i].state == CUBLAS_STATUS_SUCCESS
                       ? time_of(g, p, c, to, stream, begun, ended)
                       : INFINITY;
        if (ms < best)
            best = ms;
        else
            p->algo = before;
    }
    if (to != c->c)
        cudaFree(to);
    if (begun)
        cudaEventDestroy(begun);
    if (ended)
        cudaEventDestroy(ended);
    cudaGetLastError(); /* what could not be tried is no failure */
}

static bool choose_algorithm(struct gemm *g, struct plan *p, const struct gemm_call *c,
                             cudaStream_t stream)
{
    cublasLtMatmulPreference_t like = NULL;
    cublasLtMatmulHeuristicResult_t choices[CHOICES] = {};
    size_t work = WORK;
    uint32_t a = alignment(c->a), b = alignment(c->b), to = alignment(c->c);
    int n = 0;

    if (lt.MatmulPreferenceCreate(&like))
        return false;
#define LIKE(what, value)                                                                        \
    lt.MatmulPreferenceSetAttribute(like, CUBLASLT_MATMUL_PREF_##what, &(value),         \
                                            sizeof(value))
    LIKE(MAX_WORKSPACE_BYTES, work);
    LIKE(MIN_ALIGNMENT_A_BYTES, a);
    LIKE(MIN_ALIGNMENT_B_BYTES, b);
    LIKE(MIN_ALIGNMENT_C_BYTES, to);
    LIKE(MIN_ALIGNMENT_D_BYTES, to);
#undef LIKE
    bool found = lt.MatmulAlgoGetHeuristic(g->handle, p->desc, p->a, p->b, p->c, p->c, like,
                                           g->tune ? CHOICES : 1, choices,
                                           &n) == CUBLAS_STATUS_SUCCESS &&
                 n > 0 && choices[0].state == CUBLAS_STATUS_SUCCESS;
    lt.MatmulPreferenceDestroy(like);
    p->algo = choices[0].algo;
    if (found && n > 1)
        tune_algorithm(g, p, c, stream, choices, n);
    return found;
}

/* Makes the key of a plan: the call without its addresses, and how these are aligned. */
static void key_of(const struct gemm_call *c, struct plan *p)
{
    const void *const at[] = {c->a, c->b, c->c, c->bias, c->aux};

    /* Whole structs are not compared: they have padding. */
    *p = plan();
    p->shape = *c;
    p->shape.a = p->shape.b = p->shape.bias = p->shape.c = p->shape.aux = NULL;
    p->shape.a_scale = p->shape.b_scale = NULL;
    for (size_t i = 0; i < GPT_COUNT(at); i++)
        p->aligned |= alignment(at[i]) << 5 * i;
}

static bool same_shape(const struct gemm_call *x, const struct gemm_call *y)
{
    return x->m == y->m && x->n == y->n && x->k == y->k && x->lda == y->lda && x->ldb == y->ldb &&
           x->ldc == y->ldc && x->ld_aux == y->ld_aux && x->ta == y->ta && x->tb == y->tb &&
           x->act == y->act && x->c_type == y->c_type && x->beta == y->beta &&
           x->epilogue == y->epilogue && x->tf32 == y->tf32 && x->a8 == y->a8 &&
           x->b8 == y->b8 && x->coarse == y->coarse;
}

static struct plan *plan_of(struct gemm *g, const struct gemm_call *c, cudaStream_t stream)
{
    /* A walk through some thirty plans takes less than the launch it is for. */
    struct plan key;

    key_of(c, &key);
    for (int i = 0; i < g->n_plans; i++)
        if (g->plans[i].aligned == key.aligned && same_shape(&g->plans[i].shape, c))
            return &g->plans[i];
    if (g->n_plans == MOST_PLANS) /* more shapes than any model has: begin again */
        while (g->n_plans > 0)
            close_plan(&g->plans[--g->n_plans]);
    struct plan *p = &g->plans[g->n_plans++];
    *p = key;
    /* Kept also when it is not supported, so as not to ask again. */
    p->supported = describe_product(p, c) && choose_algorithm(g, p, c, stream);
    return p;
}

enum gemm_result gemm_run(struct gemm *g, cudaStream_t stream, const struct gemm_call *c,
                          const char **why)
{
    if (!g)
        return GEMM_UNSUPPORTED;
    struct plan *p = plan_of(g, c, stream);
    if (!p->supported || !set_addresses(p, c))
        return GEMM_UNSUPPORTED;
    cublasStatus_t s = multiply(g, p, c, c->c, stream);
    if (s != CUBLAS_STATUS_SUCCESS)
        snprintf(g->why, sizeof(g->why), "cublasLtMatmul failed with status %d", (int)s);
    *why = g->why;
    if (s == CUBLAS_STATUS_NOT_SUPPORTED)
        p->supported = false; /* the next call does not try again */
    return s == CUBLAS_STATUS_SUCCESS ? GEMM_DONE
           : s == CUBLAS_STATUS_NOT_SUPPORTED ? GEMM_UNSUPPORTED
                                              : GEMM_FAILED;
}
