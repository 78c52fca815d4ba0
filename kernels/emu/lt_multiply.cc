/* The products of the emulated cuBLASLt, as its descriptions have them. Nothing
 * here is taken from gemm_lt.cu or from the kernels: what a transposition, an
 * epilogue or a leading dimension means is written down a second time, so that
 * a mistake in one of them shows. Start at lt_multiply(). */
#include "kernels/emu/lt.h"

extern "C" {
#include "base/dtype.h"
}

#include <math.h>
#include <string.h>

/* ---- elements ---- */

static enum gpt_dtype dtype_of(int type)
{
    return type == CUDA_R_32F ? GPT_F32
                              : type == CUDA_R_16BF ? GPT_BF16 : GPT_F16;
}

int64_t lt_bytes(int type)
{
    return type == CUDA_R_32F ? 4
           : type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2 ? 1
                                                              : 2;
}

/* By the definition of the formats, with exponents as numbers: another way than
 * fp8.h's. */
static float load_eight(uint8_t code, bool e4m3)
{
    const int bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
    const int exponent = (code & 0x7f) >> bits, most = e4m3 ? 15 : 31;
    const int mantissa = code & ((1 << bits) - 1);
    const int whole = exponent ? (1 << bits) + mantissa : mantissa;
    float value = ldexpf((float)whole, (exponent ? exponent : 1) - bias - bits);

    if (exponent == most && (e4m3 ? mantissa == 7 : mantissa > 0))
        value = NAN;
    else if (exponent == most && !e4m3)
        value = INFINITY;
    return code & 0x80 ? -value : value;
}

static float load_element(const void *x, int type, int64_t i)
{
    enum gpt_dtype t = dtype_of(type);

    if (lt_bytes(type) == 1)
        return load_eight(((const uint8_t *)x)[i], type == CUDA_R_8F_E4M3);
    return t == GPT_F32    ? ((const float *)x)[i]
           : t == GPT_BF16 ? gpt_bf16_to_f32(((const uint16_t *)x)[i])
                           : gpt_f16_to_f32(((const uint16_t *)x)[i]);
}

static void store_element(void *x, int type, int64_t i, float value)
{
    enum gpt_dtype t = dtype_of(type);

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

/* ---- a product ---- */

int lt_type(int type, const cublasLtMatrixLayoutOpaque_t &d)
{
    return type < 0 ? d.type : type;
}

/* GELU is that of the sum before it is rounded, as NVIDIA's library has it. */
static float run_epilogue(const lt_product &p, int64_t i, int64_t j, float x)
{
    const cublasLtMatmulDescOpaque_t &e = p.desc;
    int64_t at = i + j * e.ld_aux;
    int aux_type = lt_type(e.aux_type, p.d_is);

    if (e.epilogue == CUBLASLT_EPILOGUE_DEFAULT)
        return x;
    if (e.epilogue == CUBLASLT_EPILOGUE_DGELU)
        return x * gelu_slope(load_element(e.aux, aux_type, at));
    x += load_element(e.bias, lt_type(e.bias_type, p.d_is), i);
    if (e.epilogue == CUBLASLT_EPILOGUE_BIAS)
        return x;
    /* aux has the rounded sum, for the backward pass; GELU takes the other. */
    store_element(e.aux, aux_type, at, x);
    return gelu(x);
}

/* Row i of op(a) or column i of op(b), k floats. */
static void gather(float *to, const lt_product &p, const void *x, int type,
                   int64_t first, int64_t step)
{
    for (int64_t l = 0; l < p.k; l++) {
        to[l] = load_element(x, type, first + l * step);
        if (p.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32)
            to[l] = emu::to_tf32(to[l]);
    }
}

void lt_multiply(const lt_product &p)
{
    emu::device_access open;
    /* All of op(a) once, by rows; a column of op(b) at a time: inner loops then
     * run over neighbours, whatever the strides. */
    float *a = new float[(size_t)(p.m * p.k + p.k)], *b = a + p.m * p.k;
    bool ta = p.desc.ta == CUBLAS_OP_T, tb = p.desc.tb == CUBLAS_OP_T;
    const float by = (p.desc.a_scale ? *p.desc.a_scale : 1) *
                     (p.desc.b_scale ? *p.desc.b_scale : 1) * p.alpha;

    for (int64_t i = 0; i < p.m; i++)
        gather(a + i * p.k, p, p.a, p.a_is.type, ta ? i * p.a_is.ld : i,
               ta ? 1 : p.a_is.ld);
    for (int64_t j = 0; j < p.n; j++) {
        gather(b, p, p.b, p.b_is.type, tb ? j : j * p.b_is.ld,
               tb ? p.b_is.ld : 1);
        for (int64_t i = 0; i < p.m; i++) {
            int64_t at = i + j * p.d_is.ld;
            float sum = 0;

            for (int64_t l = 0; l < p.k; l++) {
                int64_t k = p.backwards ? p.k - 1 - l : l;

                sum += a[i * p.k + k] * b[k];
            }
            sum *= by;
            /* beta 0: c may hold anything, NaN too, and is not read */
            if (p.beta != 0)
                sum += p.beta * load_element(p.c, p.d_is.type, at);
            store_element(p.d, p.d_is.type, at, run_epilogue(p, i, j, sum));
        }
    }
    delete[] a;
}
