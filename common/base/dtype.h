/* Element types, with the names that safetensors files use, and conversions
 * that round to nearest even. */
#ifndef GPT_BASE_DTYPE_H
#define GPT_BASE_DTYPE_H

#include "base/status.h"

/* enumerator, safetensors name, bytes; in safetensors' order of alignment */
#define GPT_DTYPE_LIST(X)                                                      \
    X(GPT_BOOL, "BOOL", 1)                                                     \
    X(GPT_U8, "U8", 1)                                                         \
    X(GPT_I8, "I8", 1)                                                         \
    X(GPT_F8_E4M3, "F8_E4M3", 1)                                               \
    X(GPT_I16, "I16", 2)                                                       \
    X(GPT_U16, "U16", 2)                                                       \
    X(GPT_F16, "F16", 2)                                                       \
    X(GPT_BF16, "BF16", 2)                                                     \
    X(GPT_I32, "I32", 4)                                                       \
    X(GPT_U32, "U32", 4)                                                       \
    X(GPT_F32, "F32", 4)                                                       \
    X(GPT_F64, "F64", 8)                                                       \
    X(GPT_I64, "I64", 8)                                                       \
    X(GPT_U64, "U64", 8)

enum gpt_dtype {
#define X(name, text, bytes) name,
    GPT_DTYPE_LIST(X)
#undef X
    GPT_N_DTYPES
};

size_t gpt_dtype_bytes(enum gpt_dtype t);
const char *gpt_dtype_name(enum gpt_dtype t); /* "BF16" */
/* "BF16", "bf16", "bfloat16", "fp16", "float32" ...; false when unknown. */
bool gpt_dtype_parse(const char *text, enum gpt_dtype *t);
bool gpt_dtype_is_float(enum gpt_dtype t);
/* The smallest float type that holds every value of both float types. */
enum gpt_dtype gpt_dtype_join(enum gpt_dtype a, enum gpt_dtype b);

float gpt_bf16_to_f32(uint16_t x);
uint16_t gpt_f32_to_bf16(float x);
float gpt_f16_to_f32(uint16_t x);
uint16_t gpt_f32_to_f16(float x); /* overflow gives infinity */
/* Infinities among `bytes` bytes of elements of fp16. */
int64_t gpt_f16_infinite(const void *x, int64_t bytes);

/* n elements from one type to another, among the float types; same type is a
 * copy. Regions do not overlap. False when the pair is not supported. */
bool gpt_convert(void *dst, enum gpt_dtype dst_type, const void *src,
                 enum gpt_dtype src_type, size_t n);
/* The same with the loops for an instruction set that the machine has: 0 for
 * none, 1 for AVX2, 2 for AVX-512. All give the same bits. */
bool gpt_convert_with(int isa, void *dst, enum gpt_dtype dst_type,
                      const void *src, enum gpt_dtype src_type, size_t n);

#endif
