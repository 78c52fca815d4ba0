/* What is known of the kernels of kernels/cuda without a GPU: how much memory
 * they want beside their operands, and which attention tensor cores do. The
 * kernels go by these rules, and so does the plan of a run for a GPU that is
 * not here (gpt_backend_planned()). Bytes, unless something else is said. */
#ifndef GPT_KERNELS_GPU_SIZES_H
#define GPT_KERNELS_GPU_SIZES_H

#include "backend.h"
#include "base/num.h"

/* Abilities that every GPU has. Products of eight bits are not among them. */
enum {
    GPU_ABILITIES = GPT_CAN_WINDOW | GPT_CAN_CAP | GPT_CAN_SCALE_WORDS |
                    GPT_CAN_NORM_WIDE | GPT_CAN_EXPERTS | GPT_CAN_LATENT,
};

/* Logits at a time: products of a few thousand rows leave half of a GPU idle
 * and read and write the gradient of the output layer each time; a GPU of less
 * memory has fewer. */
static inline int64_t gpu_logits_bytes(int64_t memory)
{
    return gpt_min_i64((int64_t)1 << 30, memory / 32);
}

/* Rows of a block in the backward of norms. More blocks than a GPU has
 * multiprocessors, few enough to be added up quickly. How many there are
 * depends on n alone, and so does the order of sums. */
static inline int64_t gpu_norm_rows_each(int64_t n)
{
    return gpt_ceil_div(n, 512);
}

/* Each block's sums of so many gradients of c elements; something to allocate
 * where there are no rows. */
static inline size_t gpu_norm_sums(int64_t n, int64_t gradients, int64_t c)
{
    const int64_t blocks = n ? gpt_ceil_div(n, gpu_norm_rows_each(n)) : 0;

    return n ? (size_t)(blocks * gradients * c) * sizeof(float) : 64;
}

/* dw, db; dwq, dbq, dwk, dbk */
enum { GPU_NORM_GRADS = 2, GPU_HEAD_NORM_GRADS = 4 };
static inline size_t gpu_norm_scratch(int64_t n, int64_t c)
{
    return gpu_norm_sums(n, GPU_NORM_GRADS, c);
}

static inline size_t gpu_head_norm_scratch(int64_t n, int64_t d)
{
    return gpu_norm_sums(n, GPU_HEAD_NORM_GRADS, d);
}

/* The sort's blocks are few: each reads the counts of all. */
enum { GPU_SORT_TILE = 1024, GPU_SORT_BLOCKS = 32, GPU_SORT_DIGITS = 1024 };
static inline int64_t gpu_sort_each(int64_t n)
{
    return gpt_ceil_div(gpt_ceil_div(n, GPU_SORT_TILE), GPU_SORT_BLOCKS) *
           GPU_SORT_TILE;
}

/* Keys and where they came from, twice, and each block's counts. */
static inline size_t gpu_sort_scratch(int64_t n)
{
    const int64_t blocks = n ? gpt_ceil_div(n, gpu_sort_each(n)) : 0;

    return (size_t)(4 * n + GPU_SORT_DIGITS * blocks) * sizeof(int32_t);
}

/* A table needs two rows of sums for each GPU_EMBED_PIECE sorted rows, and what
 * the sort needs. The table of words is always there, that of positions in
 * models that learn them. */
enum { GPU_EMBED_TABLES = 2, GPU_EMBED_PIECE = 32 };
static inline size_t gpu_embed_sums(int64_t n, int64_t c)
{
    return (size_t)(gpt_ceil_div(n, GPU_EMBED_PIECE) * 2 * c) * sizeof(float);
}

static inline size_t gpu_embed_scratch(int64_t n, int64_t c, bool positions)
{
    return (positions ? GPU_EMBED_TABLES : 1) *
           (gpu_embed_sums(n, c) + gpu_sort_scratch(n));
}

/* Factors in eight bits after their scales. */
enum { GPU_FP8_HEAD = 256 };
static inline size_t gpu_fp8_scratch(int64_t m, int64_t n, int64_t k)
{
    return GPU_FP8_HEAD + (size_t)(m + n) * (size_t)k;
}

/* The largest head of a type that the kernels for tensor cores do: of floats,
 * where they may be rounded to TF32, half as many elements fit into a block's
 * shared memory. */
enum { GPU_HEAD_MOST = 256, GPU_HEAD_MOST_TF32 = 128 };
static inline int64_t gpu_flash_most(enum gpt_dtype act, bool tf32)
{
    return act != GPT_F32 ? GPU_HEAD_MOST : tf32 ? GPU_HEAD_MOST_TF32 : 0;
}

/* True when the kernels for tensor cores do op's type, options and head size.
 * ALiBi is added after the cap, whose slope could not be told from the sum. Its
 * form in bf16 is a number of each key, which they do not read. */
static inline bool gpu_flash_does(const struct gpt_attn *op, bool tf32)
{
    return op->d % 8 == 0 && op->d <= gpu_flash_most(op->act, tf32) &&
           !(op->softcap > 0 && op->alibi) && op->alibi != GPT_ALIBI_BF16;
}

/* As gpt_backend.attn_slow: without tensor cores a warp does one query, many
 * times slower. */
static inline const char *gpu_attn_slow(const struct gpt_attn *op, bool tf32)
{
    const int64_t most = gpu_flash_most(op->act, tf32);

    if (gpu_flash_does(op, tf32))
        return NULL;
    if (!most)
        return "tensor cores compute it in bf16 and fp16, in float where TF32 "
               "is allowed";
    if (op->d % 8 == 0 && op->d <= most)
        return op->alibi == GPT_ALIBI_BF16
                   ? "tensor cores do not add ALiBi that is rounded to bf16"
                   : "tensor cores do not cap scores beside ALiBi";
    return op->act == GPT_F32
               ? "tensor cores take heads of a multiple of 8 floats, up to 128"
               : "tensor cores take heads of a multiple of 8 elements, up to "
                 "256";
}

/* True when the kernels that only Hopper has do the type, options and head size
 * of op. Heads are padded to 64 or 128 elements. */
static inline bool gpu_hopper_attends(const struct gpt_attn *op)
{
    return op->act != GPT_F32 && op->d % 8 == 0 && op->d <= 128 &&
           op->softcap <= 0 && op->alibi != GPT_ALIBI_BF16;
}

/* What attention's backward needs of each query, up to whole steps; on Hopper
 * sums of dQ, too. Which kernels run is known only at the call: enough for any.
 */
enum { GPU_ATTN_STEP = 128, GPU_ATTN_QUERY = 16 };
static inline size_t gpu_attn_scratch(const struct gpt_attn *op, bool hopper)
{
    const int64_t rows = op->b * op->h * gpt_round_up(op->t, GPU_ATTN_STEP);
    const int64_t sums = hopper && gpu_hopper_attends(op)
                             ? (op->d <= 64 ? 64 : 128) * 4
                             : 0;

    return (size_t)(rows * (GPU_ATTN_QUERY + sums));
}

#endif
