/* The emulated cuBLASLt: its descriptions, which lt.cc takes and checks, and
 * its products, which lt_multiply.cc makes. Handles are pointers to these
 * structs; the names are those of the library's header. */
#ifndef GPT_EMU_LT_H
#define GPT_EMU_LT_H

#include "kernels/emu/include/cublasLt.h"

/* What cublasLtMatmulDescSetAttribute() has set. Types are cudaDataType_t, or
 * -1 for the type of the result, which is the library's default. */
struct cublasLtMatmulDescOpaque_t {
    cublasComputeType_t compute;
    cublasOperation_t ta, tb;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    void *aux;
    int64_t ld_aux;
    int bias_type, aux_type;
    const float *a_scale, *b_scale; /* NULL: 1 */
    int8_t fast; /* sums of eight bits may have fewer */
};
/* A matrix in column-major order, `ld` elements from one column to the next. */
struct cublasLtMatrixLayoutOpaque_t {
    cudaDataType_t type;
    int64_t rows, columns, ld;
};

/* A product, when its stream comes to it. */
struct lt_product {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a_is, b_is, d_is;
    int64_t m, n, k;
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
    bool backwards; /* the order of sums of another algorithm */
};

/* Bytes of an element. */
int64_t lt_bytes(int type);
/* `type`, or that of d where it is -1. */
int lt_type(int type, const cublasLtMatrixLayoutOpaque_t &d);

/* d = alpha op(a) op(b) + beta c, then the epilogue; all is on the device. */
void lt_multiply(const lt_product &p);

#endif
