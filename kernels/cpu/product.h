/* A matrix product on its way through matmul.c (blocks, epilogues), tiles.c
 * (portable blocks), library.c (blocks by oneDNN) and pairs.c (bf16). */
#ifndef GPT_KERNELS_CPU_PRODUCT_H
#define GPT_KERNELS_CPU_PRODUCT_H

#include "cpu/cpu.h"

/* c is cut into blocks of this size, and a block is one thread's. */
enum { CPU_BM = 288, CPU_BN = 384 };
/* Tiles cut sums at multiples of this. */
enum { CPU_KC = 256 };

/* A product, or the part of it that is one block. a, b, bias and aux are float,
 * or bf16 when `narrow`; c, where the sums are made, is float. */
struct cpu_product {
    int64_t m, n, k, lda, ldb, ldc, ld_aux;
    bool ta, tb, narrow;
    const void *a, *b, *bias;
    float *c;
    void *aux;
    float beta;
    enum gpt_epilogue epilogue;
    uint16_t *c16;       /* where c goes in the end, rows ld16 apart, or NULL */
    int64_t ld16;
    enum gpt_sums sums;
    const float *packed; /* all of a, packed, or NULL */
    int64_t m_pad, m0;   /* rows in it; this block's first */
};

/* One thread takes about a nanosecond for 16 multiplications: a slow core with
 * AVX2. An estimate that is wrong costs time, never a bit. */
static inline bool cpu_product_worth_threads(const struct cpu_product *p)
{
    return cpu_worth_threads(p->m * p->n / 16 * p->k);
}

/* rows x cols of the memory of a, b, bias or aux from element `at` on, rows ld
 * apart, as floats: where it is, or widened into `room`, *ld then cols. */
const float *cpu_floats(const struct cpu_product *p, const void *mem,
                        int64_t at, int64_t rows, int64_t cols, int64_t *ld,
                        float *room);

/* The block of `whole` at row m0, column n0, at most bm x bn (bn <= CPU_BN).
 * Where c is stored elsewhere in the end, its sums are made in `room`: bm x bn
 * floats, rows as long as the block is wide. */
struct cpu_product cpu_block_of(const struct cpu_product *whole, int64_t m0,
                                int64_t n0, int64_t bm, int64_t bn,
                                float *room);

/* Does what is left to do with the sums of a block: the epilogue, and
 * storing. */
void cpu_finish_block(const struct cpu_product *block);

/* Computes a whole product of bf16, by the instructions of cpu_pairs. */
void cpu_multiply_pairs(struct gpt_queue *q, const struct cpu_product *whole);

/* Computes a whole product of floats, or of bf16 widened, by tiles. b is w;
 * where w is NULL, it is the product's own (tiles.c). */
void cpu_multiply_tiles(struct gpt_queue *q, const struct cpu_product *whole,
                        const struct gpt_quant *w);

/* True when the product has few rows, which are to get the sums that each gets
 * alone. */
bool cpu_has_few_rows(const struct cpu_product *whole);

/* How threads share few rows, which are cut into `parts`: each part is the work
 * of `shares` threads, which share its columns. Where `several` is set and
 * threads have enough rows each, there are several parts: multiplying then
 * takes longer than reading the weights once more does, and what a thread
 * writes of its rows is in its own caches when the next operation reads it. */
struct cpu_sharing {
    int64_t parts, shares;
};
struct cpu_sharing cpu_share_few(const struct cpu_product *whole, bool several);

/* The rows of part i of `parts`; m0 is the first. */
struct cpu_product cpu_rows_of(const struct cpu_product *whole, int64_t parts,
                               int64_t i);

/* Puts few rows of a, floats, into work memory, in the order in which
 * cpu_isa->dots reads them; lda becomes 0. One row stays where it is. */
bool cpu_pack_inputs(struct gpt_queue *q, struct cpu_product *whole);

/* Computes a whole product of floats whose b is w (quant.c). */
void cpu_multiply_quant(struct gpt_queue *q, const struct cpu_product *whole,
                        const struct gpt_quant *w);

/* The same with many rows, by cpu_many, where that has such products
 * (quant_many.c). */
bool cpu_can_many(const struct cpu_product *whole, const struct gpt_quant *w);
void cpu_multiply_many(struct gpt_queue *q, const struct cpu_product *whole,
                       const struct gpt_quant *w);

/* The same with floats in panels, few rows or many (panel_products.c). */
void cpu_multiply_panels(struct gpt_queue *q, const struct cpu_product *whole,
                         const struct gpt_quant *w);

/* Rounds a, floats, to the form of w: the rows go to memory of the queue
 * (quant_inputs.c). */
bool cpu_round_inputs(struct gpt_queue *q, struct cpu_product *whole,
                      const struct gpt_quant *w);

/* Computes a whole product of bf16 with both factors rounded to eight bits
 * (fp8.c). */
void cpu_multiply_fp8(struct gpt_queue *q, const struct cpu_product *whole,
                      const struct gpt_fp8_factors *fp8);

/* Before any block is given to oneDNN, where it is used: false where a limit
 * leaves it no memory for its code. */
bool cpu_library_prepare(void);

/* One block by oneDNN; false where it has no such product. Deterministic: in
 * the calling thread alone. */
bool cpu_library(const struct cpu_product *block);

/* Multiplies a block as cpu_library() does bf16: by a primitive of oneDNN,
 * which takes floats, too. */
bool cpu_library_primitive(const struct cpu_product *block);

/* True when this processor multiplies bf16 and oneDNN's products on it are
 * correct. */
bool cpu_library_bf16(void);

#endif
