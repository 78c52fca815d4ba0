/* The inner loops of the CPU backend, compiled once for every instruction set
 * (-DGPT_ISA=base, avx2, avx512) and reached through a table that
 * cpu_choose() picks at run time. Nothing in here knows of threads.
 *
 * A loop is one line of CPU_ISA_LIST; its code is in the file of this folder
 * that the heading names. Sums run in a fixed order of lanes: a result may
 * differ between instruction sets, never between runs or numbers of threads.
 * These files are compiled with -ffp-contract=fast, so that a * b + c is one
 * fused instruction where there is one. */
#ifndef GPT_KERNELS_CPU_ISA_H
#define GPT_KERNELS_CPU_ISA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Dropout of one run of elements: dropped where the word is below `below`. */
struct cpu_drop {
    uint32_t key[2];
    uint32_t below; /* ceil(p * 2^24) */
    float scale;    /* 1 / (1 - p) */
};

struct cpu_many_ahead;

/* A tile of a product, at most `mr` rows and `nr` columns of c: element (i, l)
 * of a is a[i * a_row + l * a_col]; b is a packed panel, nr floats a row. A
 * packed panel of a has mr floats a column, whatever m is; it takes any number
 * of panels of b, `panel` floats after each other, or 0: nr * k. */
struct cpu_tile {
    int64_t m, n, k;
    const float *a;
    int64_t a_row, a_col;
    const float *b;
    int64_t panel;
    float *c;
    int64_t ldc;
    bool add;    /* c += instead of c = */
    bool packed; /* a is a panel: a_row 1, a_col mr */
    struct cpu_many_ahead *ahead; /* (2), memory to ask for, or NULL */
};

/* At most `mr` rows of a with a panel of b whose columns, at most nr, are n:
 * c (m, n) = or += them. Column l of a is m floats; row l of b nr. */
struct cpu_panel {
    int64_t m, n, k;
    const float *a;
    const float *b;
    float *c;
    int64_t ldc;
    bool add;          /* c += instead of c = */
    const float *next; /* memory to ask for: `lines` lines a row of b, 0 to 2 */
    int lines;
};

/* Keys or values of a cache: n rows of d numbers, tight, floats or bf16. */
enum { CPU_QUERIES = 4 }; /* that meet them at once, at most */
enum { CPU_CHUNK = 32 };  /* rows of floats beside them are padded to it */

struct cpu_keys {
    const void *rows;
    bool narrow; /* bf16 */
    int64_t n, d;
};

/* Constants of one AdamW step. */
struct cpu_adamw_rates {
    float b1, b2, one_b1, one_b2; /* betas, 1 - betas */
    float step_size;              /* lr / (1 - b1^t) */
    float inv_bias2;              /* 1 / (1 - b2^t) */
    float eps, grad_scale;
    float keep; /* 1 - lr * weight decay */
    float couple; /* weight decay that is part of the gradient, or 0 */
};

#define CPU_ISA_LIST(X)                                                       \
    /* gemm.c: one tile */                                                    \
    X(void, tile, (const struct cpu_tile *t))                                 \
    /* panels.c */                                                            \
    X(void, panel, (const struct cpu_panel *p))                               \
    /* Panels of nr columns, each k rows of nr floats, zeros at the end:      \
     * element (l, j) is b[l * row + j * col]. */                             \
    X(void, pack_b,                                                           \
      (float *to, const float *b, int64_t row, int64_t col, int64_t k,        \
       int64_t n))                                                            \
    /* Such a panel of columns of bf16 that lie in panels of 32 (quant.h): `b` \
     * is where its first column begins */                                    \
    X(void, widen_panel, (float *to, const void *b, int64_t k))               \
    /* The same of bytes with a scale for 32, from the beginning of a group   \
     * on: its panel, and the first column in that */                         \
    X(void, widen_groups,                                                     \
      (float *to, const void *panel, int64_t column, int64_t k))              \
    /* Groups of mr rows, the last one of what is left: k columns of a group, \
     * then those of the next; (i, l) is a[i * row + l]. */                   \
    X(void, pack_rows,                                                        \
      (float *to, const float *a, int64_t row, int64_t m, int64_t k))         \
    /* Panels of mr rows, each k columns of mr floats: (i, l) is              \
     * a[i * row + l * col]. */                                               \
    X(void, pack_a,                                                           \
      (float *to, const float *a, int64_t row, int64_t col, int64_t m,        \
       int64_t k))                                                            \
    /* gemv.c: y[i * ldy + j] = x_i . w_j, m rows of x, n rows of w,          \
     * added to y when `add`; ldx 0: x is packed, or one row */               \
    X(void, dots,                                                             \
      (float *y, int64_t ldy, const float *x, int64_t ldx, const float *w,    \
       int64_t ldw, int64_t m, int64_t n, int64_t k, bool add))               \
    /* the same of rows of bf16, and of bytes times scales of bf16, a scale   \
     * for 32 values; lds scales a row, or 0: one a row */                    \
    X(void, dots_bf16,                                                        \
      (float *y, int64_t ldy, const float *x, int64_t ldx, const uint16_t *w, \
       int64_t m, int64_t n, int64_t k, bool add))                            \
    X(void, dots_int8,                                                        \
      (float *y, int64_t ldy, const float *x, int64_t ldx, const int8_t *w,   \
       const uint16_t *scales, int64_t lds, int64_t m, int64_t n, int64_t k,  \
       bool add))                                                             \
    /* row i of m, x (k), to its place among the packed ones, which are m      \
     * rows of k rounded up to 16 */                                          \
    X(void, pack_x,                                                           \
      (float *to, const float *x, int64_t m, int64_t i, int64_t k))           \
    /* bytes times a scale */                                                 \
    X(void, widen_bytes,                                                      \
      (float *y, const int8_t *x, float scale, int64_t n))                    \
    /* keys.c: rows of floats in the order in which keys come, and back,      \
     * times a factor. Those in order have d rounded up to CPU_CHUNK; what     \
     * is past d is read and written, and 0 where it is a query's. */          \
    X(void, to_chunks, (float *y, const float *x, int64_t d, bool narrow))    \
    X(void, from_chunks,                                                      \
      (float *y, const float *x, int64_t d, float factor, bool narrow))       \
    /* y[i * ldy + j] = x_i . key_j, m <= CPU_QUERIES rows of x, in order */  \
    X(void, key_dots,                                                         \
      (float *y, int64_t ldy, const float *x, int64_t ldx,                    \
       const struct cpu_keys *keys, int64_t m))                               \
    /* y_i (d), in order, += sum over j of a[i * lda + j] * value_j */        \
    X(void, value_sums,                                                       \
      (float *y, int64_t ldy, const float *a, int64_t lda,                    \
       const struct cpu_keys *values, int64_t m))                             \
    /* softmax.c: x[j] = exp(x[j] * scale - shift), their sum */              \
    X(float, exp_sum, (float *x, int64_t n, float scale, float shift))        \
    /* the sum of exp(x[j] - shift) alone */                                  \
    X(float, sum_exp, (const float *x, int64_t n, float shift))               \
    X(float, max, (const float *x, int64_t n))                                \
    X(float, dot, (const float *x, const float *y, int64_t n))                \
    X(void, scale, (float *x, int64_t n, float factor))                       \
    X(void, times, (float *x, const float *y, int64_t n))                     \
    /* x = tanh(x * in) * out, and 1 - tanh^2 to slope, where it is wanted */ \
    X(void, softcap,                                                          \
      (float *x, float *slope, int64_t n, float in, float out))               \
    /* p = exp(s * scale - lse); ds = p * (keep * dp - delta) * scale, and    \
     * p *= keep, in the places of s and dp; keep NULL: 1 */                  \
    X(void, softmax_grad,                                                     \
      (float *s, float *dp, const float *keep, int64_t n, float scale,        \
       float lse, float delta))                                               \
    /* activation.c */                                                        \
    X(void, bias_gelu, (float *c, float *aux, const float *bias, int64_t n))  \
    X(void, gelu, (float *y, const float *x, int64_t n))                      \
    X(void, gelu_grad, (float *c, const float *aux, int64_t n))               \
    /* y = f(x), times up where that is not NULL; kind: gpt_activation;       \
     * alpha: XIELU's two slopes' growth */                                   \
    X(void, activate,                                                         \
      (float *y, const float *x, const float *up, int64_t n, int kind,        \
       const float *alpha))                                                   \
    /* dx = dy f'(x) [up], and dup = dy f(x) where up is not NULL */          \
    X(void, activate_grad,                                                    \
      (float *dx, float *dup, const float *dy, const float *x,                \
       const float *up, int64_t n, int kind, const float *alpha))             \
    /* sums (2) += dy x^2 where x > 0, dy (e^x - 1 - x) elsewhere: what the   \
     * gradients of XIELU's alpha are made of */                              \
    X(void, xielu_sums,                                                       \
      (double *sums, const float *dy, const float *x, int64_t n))             \
    /* norm.c: mean (when wanted) and reciprocal deviation of a row */        \
    X(void, moments,                                                          \
      (const float *x, int64_t n, float eps, float *mean, float *rstd))       \
    X(void, norm_row,                                                         \
      (float *y, const float *x, const float *w, const float *b, int64_t n,   \
       float mean, float rstd))                                               \
    /* dr += gradient; dw, db (NULL: none) += this row's */                   \
    X(void, norm_grad_row,                                                    \
      (float *dr, const float *dy, const float *x, const float *w, float *dw, \
       float *db, int64_t n, float mean, float rstd, bool centred))           \
    X(void, add, (float *y, const float *a, const float *b, int64_t n))       \
    /* rope.c: points (x[i], x[i + half]) are turned */                       \
    X(void, turn,                                                             \
      (float *x, const float *cosine, const float *sine, int64_t half))       \
    /* philox.c: y = x with dropout, counters from `index` on */              \
    X(void, drop,                                                             \
      (float *y, const float *x, int64_t n, const struct cpu_drop *d,         \
       uint64_t index))                                                       \
    /* flat.c */                                                              \
    /* floats as two numbers of bf16, each rounded to nearest */              \
    X(void, split,                                                            \
      (uint16_t *high, uint16_t *low, const float *x, int64_t n))             \
    /* multiples of cpu_byte_unit() of the largest, to nearest even; NaN      \
     * where one is infinite, or no number */                                 \
    X(void, round_bytes, (float *y, const float *x, int64_t n))               \
    /* y (n) += sum over i of a[i] * x_i, k rows of x */                      \
    X(void, combine,                                                          \
      (float *y, const float *a, const float *x, int64_t ldx, int64_t n,      \
       int64_t k))                                                            \
    X(void, adamw,                                                            \
      (float *p, float *m, float *v, const float *g, int64_t n,               \
       const struct cpu_adamw_rates *r))                                      \
    X(void, widen, (float *y, const uint16_t *x, int64_t n))  /* of bf16 */   \
    X(void, narrow, (uint16_t *y, const float *x, int64_t n)) /* to nearest */\
    X(double, sum_squares, (const float *x, int64_t n))                       \
    X(double, sum_plain, (const float *x, int64_t n))

struct cpu_isa {
    const char *name;
    int64_t mr, nr; /* rows and columns of a tile */
#define X(type, name, args) type(*name) args;
    CPU_ISA_LIST(X)
#undef X
};

enum { CPU_MR_MAX = 16, CPU_NR_MAX = 32 };
enum { CPU_TILE_STEP = 8 }; /* of k, between lines that a tile asks for */

/* The table in use; set before any operation runs. */
extern const struct cpu_isa *cpu_isa;

#ifdef GPT_ISA
#define ISA_PASTE_(a, b) a##_##b
#define ISA_PASTE(a, b) ISA_PASTE_(a, b)
#define ISA(name) ISA_PASTE(cpu_##name, GPT_ISA)
#define X(type, name, args) type ISA(name) args;
CPU_ISA_LIST(X)
#undef X
#endif

#endif
