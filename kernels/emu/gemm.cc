/* The twin of gemm_lt.cu: the same products by plain loops, column-major, with
 * float sums. GPT_CUDA_EMU_GEMM=plain refuses epilogues, as the library does
 * for some shapes, and GPT_CUDA_EMU_GEMM=none refuses everything. */
#include "cuda/gemm.cuh"

#include <math.h>
#include <stdlib.h>

struct gemm {
    bool plain, none;
};

int gemm_open(struct gemm **g, struct gpt_err *)
{
    /* Without `none` and `plain` no test would reach the backend's own product
     * and epilogue kernels. */
    const char *mode = getenv("GPT_CUDA_EMU_GEMM");

    *g = new gemm{mode && strcmp(mode, "plain") == 0,
                  mode && strcmp(mode, "none") == 0};
    return GPT_OK;
}

void gemm_close(struct gemm *g)
{
    delete g;
}

const char *gemm_library(void)
{
    return "emulated cuBLASLt";
}

static float load_element(const void *x, enum gpt_dtype t, int64_t i)
{
    return t == GPT_F32    ? ((const float *)x)[i]
           : t == GPT_BF16 ? gpt_bf16_to_f32(((const uint16_t *)x)[i])
                           : gpt_f16_to_f32(((const uint16_t *)x)[i]);
}

static void store_element(void *x, enum gpt_dtype t, int64_t i, float value)
{
    if (t == GPT_F32)
        ((float *)x)[i] = value;
    else
        ((uint16_t *)x)[i] =
            t == GPT_BF16 ? gpt_f32_to_bf16(value) : gpt_f32_to_f16(value);
}

/* The tanh form with the C library's tanh: another formula than the kernels',
 * so that a mistake in one of them shows. */
static float gelu(float x)
{
    float u = 0.7978845608f * (x + 0.044715f * x * x * x);

    return 0.5f * x * (1 + tanhf(u));
}

static float gelu_slope(float x)
{
    float u = 0.7978845608f * (x + 0.044715f * x * x * x), t = tanhf(u);
    float du = 0.7978845608f * (1 + 3 * 0.044715f * x * x);

    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * du;
}

static float run_epilogue(const struct gemm_call *c, int64_t i, int64_t j,
                          float x)
{
    int64_t at = i + j * c->ld_aux;

    switch (c->epilogue) {
    case GPT_EPI_NONE:
        break;
    case GPT_EPI_BIAS:
        return x + load_element(c->bias, c->act, i);
    case GPT_EPI_BIAS_GELU:
        x += load_element(c->bias, c->act, i);
        store_element(c->aux, c->act, at, x);
        return gelu(
            load_element(c->aux, c->act, at)); /* as stored (backend.h) */
    case GPT_EPI_DGELU:
        return x * gelu_slope(load_element(c->aux, c->act, at));
    }
    return x;
}

/* To 10 bits of mantissa, ties away from zero, as tensor cores take it. */
static float to_tf32(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    /* Rounding the bits of an infinity would make a NaN of it. */
    if (isfinite(x))
        bits = (bits + 0x1000) & ~0x1fffu;
    memcpy(&x, &bits, sizeof(bits));
    return x;
}

/* Row i of op(a) or column i of op(b), k floats. */
static void gather(float *to, const struct gemm_call *c, const void *x,
                   int64_t first, int64_t step, int64_t k)
{
    for (int64_t l = 0; l < k; l++) {
        to[l] = load_element(x, c->act, first + l * step);
        if (c->tf32)
            to[l] = to_tf32(to[l]);
    }
}

static void multiply(const struct gemm_call *c)
{
    emu::device_access open;
    /* All of op(a) once, by rows; a column of op(b) at a time: inner loops then
     * run over neighbours, whatever the strides. */
    float *a = new float[(size_t)(c->m * c->k + c->k)], *b = a + c->m * c->k;

    for (int64_t i = 0; i < c->m; i++)
        gather(a + i * c->k, c, c->a, c->ta ? i * c->lda : i,
               c->ta ? 1 : c->lda, c->k);
    for (int64_t j = 0; j < c->n; j++) {
        gather(b, c, c->b, c->tb ? j : j * c->ldb, c->tb ? c->ldb : 1,
               c->k);
        for (int64_t i = 0; i < c->m; i++) {
            int64_t at = i + j * c->ldc;
            float sum = 0;

            for (int64_t l = 0; l < c->k; l++)
                sum += a[i * c->k + l] * b[l];
            /* beta 0: c may hold anything, NaN too, and is not read */
            if (c->beta != 0)
                sum += c->beta * load_element(c->c, c->c_type, at);
            store_element(c->c, c->c_type, at, run_epilogue(c, i, j, sum));
        }
    }
    delete[] a;
}

enum gemm_result gemm_run(struct gemm *g, cudaStream_t stream,
                          const struct gemm_call *c, const char **why)
{
    if (g->none)
        return GEMM_UNSUPPORTED;
    /* cuBLASLt wants aux in multiples of 8 elements. */
    if (c->epilogue != GPT_EPI_NONE &&
        (g->plain || (c->aux && c->ld_aux % 8 != 0)))
        return GEMM_UNSUPPORTED;
    /* A copy: the call is made when the stream comes to it. */
    const struct gemm_call call = *c;
    cudaError_t e = emu::submit(stream, [call] {
        multiply(&call);
        return cudaSuccess;
    });
    *why = cudaGetErrorString(e);
    return e == cudaSuccess ? GEMM_DONE : GEMM_FAILED;
}
