/* Matrix products as cuBLASLt sees them: matrices are column-major. gemm_lt.cu
 * calls cuBLASLt; kernels/emu/lt.cc is a cuBLASLt of plain loops. */
#ifndef GPT_KERNELS_CUDA_GEMM_CUH
#define GPT_KERNELS_CUDA_GEMM_CUH

#include "cuda/cuda.cuh"

/* c (m, n) = op(a) (m, k) op(b) (k, n) + beta c, then the epilogue; columns
 * are ld* elements apart, ta, tb: transposed. bias (m) is added to every
 * column. aux (m, n), columns ld_aux apart. */
struct gemm_call {
    int64_t m, n, k, lda, ldb, ldc, ld_aux;
    bool ta, tb;
    const void *a, *b, *bias;
    void *c, *aux;
    enum gpt_dtype act, c_type;
    float beta;
    enum gpt_epilogue epilogue;
    bool tf32; /* of float: factors may be rounded to TF32 */
    /* Factors of eight bits, both or neither; then ta and not tb. The sum is
     * multiplied by *a_scale and *b_scale, in device memory. `act` is the type
     * of bias and aux. */
    enum gpt_fp8 a8, b8;
    const float *a_scale, *b_scale;
    bool coarse; /* sums may have fewer bits */
};

enum gemm_result {
    GEMM_DONE,
    GEMM_UNSUPPORTED, /* nothing was done; try without epilogue */
    GEMM_FAILED,      /* *why says how */
};

/* *g is NULL, and nothing is supported, where the library is not. */
int gemm_open(struct gemm **g, struct gpt_err *err) GPT_MUST_USE;
void gemm_close(struct gemm *g);
/* The library's name and version, for describe(). */
const char *gemm_library(void);
/* The same by a kernel of our own, without epilogue. */
void gemm_plain(struct gpt_queue *q, const struct gemm_call *call);

enum gemm_result gemm_run(struct gemm *g, cudaStream_t stream, const struct gemm_call *call,
                          const char **why);

#endif
