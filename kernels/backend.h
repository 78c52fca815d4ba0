/* The only door to compute: a table of operations over device memory.
 *
 * Memory is plain pointers that only the backend may dereference. Work is put
 * on a queue and runs in its order; operations return nothing, the first
 * failure sticks to the queue and sync() reports it with the operation's name.
 * So model code reads like the formulas.
 *
 * Letters: B batch, T time, N = B*T rows, C channels, H heads, G query groups
 * (key/value heads), D head size, F feed-forward, V vocabulary. Matrices are
 * row-major. "act" is the activation type: GPT_F32, GPT_BF16 or GPT_F16, of
 * which a backend has those in act_types. Statistics, losses, gradients of
 * parameters and optimizer state are float (GPT_F32).
 *
 * kernels/cpu/ is the readable specification and also fast. kernels/cuda/ runs
 * on GPUs, and kernels/emu/ runs the same sources on a CPU. On each of them
 * every sum has an order that follows from shapes alone: results do not depend
 * on the number of threads, nor on the order in which a GPU runs its blocks.
 * Backends, instruction sets and kinds of GPU differ from each other in last
 * bits.
 *
 * When an operation stores a value in bf16 or F16 and computes further with it
 * (resid_out of a norm, aux of a matmul), it takes the rounded value. So a
 * second computation from memory gives the same bits. The exception is
 * GELU within a product of cuBLASLt, which may take the sum before rounding. */
#ifndef GPT_KERNELS_BACKEND_H
#define GPT_KERNELS_BACKEND_H

#include "base/dtype.h"
#include "base/rng.h"
#include "base/status.h"

enum { GPT_BACKEND_API = 1 };

struct gpt_queue;
struct gpt_event; /* a place in a queue's order, for other queues to wait for */
struct gpt_recording; /* operations to be put on a queue many times */

/* Dropout by counter: element (sample, t, c) of a (B, T, C) block is dropped
 * when gpt_rng_uniform(rng, ((sample0 + b) * t_global + t0 + t) * C + c) < p,
 * else scaled by 1/(1-p). The mask is computed again in backward, not stored,
 * and does not depend on how samples and positions are spread over ranks. */
struct gpt_dropout {
    float p; /* 0 = off; the rest is then not read */
    struct gpt_rng rng;
    int64_t sample0;        /* global number of row 0's sample; if not NULL, */
    const int64_t *samples; /* ... this (1), in device memory, is added to it */
    int64_t t_local;          /* T of this block */
    int64_t t_global, t0;     /* sequence length; first position held here */
};

enum gpt_epilogue {
    GPT_EPI_NONE,
    GPT_EPI_BIAS,      /* + bias (N) */
    GPT_EPI_BIAS_GELU, /* pre = . + bias, stored to aux; c = gelu(pre) */
    GPT_EPI_DGELU,     /* c = . * gelu'(aux), aux (M, N) holds pre */
};

/* A matrix (N, K) in fewer bits, row-major and tight. GPT_BF16: its values.
 * GPT_I8: element (i, l) is values[i * K + l] times scale l / group of row i;
 * scales are bf16, ceil(K / group) a row. Sums of its products are those of
 * float factors; but with scales an input may be off by 2^-22 of the largest of
 * those that share its scale, and else, with many rows, by 2^-16 of itself.
 *
 * round_inputs: inputs of products are rounded to the form of the matrix, to
 * nearest even, where the error above is added to that of rounding. With
 * GPT_BF16 to bf16. With GPT_I8 to whole multiples of a float unit, 1/127 of
 * the largest |input| of their row, or where there are groups, of their group,
 * but at least 1/127 of 2^-100. Needs GPT_CAN_QUANT.
 *
 * arranged: values are as the device keeps them (quant_arrange()), and with
 * groups scales are among them. GPT_F32, floats as they are, is such a form
 * alone, where quant_bytes() is not 0; inputs are not rounded, and sums with
 * FEW and with MANY are the same. */
struct gpt_quant {
    enum gpt_dtype type;
    int64_t group; /* 32, or 0: one scale a row */
    const void *values;
    const uint16_t *scales;
    bool round_inputs, arranged;
};

/* How an element of c is summed, for products whose bits may not depend on M
 * and N: of texts that are computed together, and of ranks that have a part of
 * the columns. With FEW and with MANY they follow from its row of a and its
 * column of b alone; the two differ, and are fast for rows up to about 16, and
 * from there on. With tb, without ta, and with GPT_CAN_CHOOSE_SUMS; else it is
 * SHAPE. */
enum gpt_sums { GPT_SUMS_SHAPE, GPT_SUMS_FEW, GPT_SUMS_MANY };

/* A type of eight bits (fp8.h). */
enum gpt_fp8 { GPT_FP8_NONE, GPT_E4M3, GPT_E5M2 };

/* Factors of a product that are rounded to eight bits. Each is first multiplied
 * by its scale s = (largest value of the type) / amax, in float, where amax (1)
 * float in device memory is the largest |element| of the whole tensor, of all
 * ranks that have a part of it (amax()). The sum of products is divided by both
 * scales before old c and the epilogue. s is at most 2^126. An infinity or a
 * NaN in a factor makes NaN of what depends on it. E5M2 times E5M2 is not
 * there. A GPU adds the products of one instruction with about 14 bits, so
 * that a sum is off by up to 2^-12 of the sum of |term| (an H100: 2^-13);
 * coarse: it may keep no more bits between instructions either. scratch:
 * fp8_scratch() bytes. Such a product has bf16 factors, sizes and rows (ld)
 * that are multiples of 16, and factors at multiples of 16 bytes.
 * Needs GPT_CAN_FP8. */
struct gpt_fp8_factors {
    enum gpt_fp8 a, b; /* both or neither GPT_FP8_NONE */
    const float *amax_a, *amax_b;
    void *scratch;
    bool coarse;
};

/* c (M, N) = op(a) (M, K) * op(b) (K, N) + beta * c, then the epilogue.
 * ta: a is stored (K, M); tb: b is stored (N, K). a, b, bias, aux are `act`;
 * c is `c_type`. GELU is the tanh form (Hendrycks and Gimpel 2016, eq. 2) of
 * the sum with its bias. Kernels here compute it by the logistic function,
 * which loses no digits far below zero; cuBLASLt's epilogues have a formula of
 * their own, and differ in last bits: GELU that is computed again from aux, in
 * activation recomputation, does not give the forward's bits there.
 *
 * Rounding. Factors of bf16 have exact products in float. The t terms of an
 * element (K products, the old c, the bias) are added in float, in an order
 * that depends on the shape and the processor, not on the number of threads:
 *     |sum - exact| <= g * sum of |term|,  g = (t - 1) u / (1 - (t - 1) u)
 * with u = 2^-24. Products of float factors are rounded, too: there g has t in
 * place of t - 1. The CPU rounds what it stores in bf16 once, after the
 * epilogue, to nearest even. Instructions that multiply bf16 may take subnormal
 * factors and sums for zero.
 *
 * On GPUs u is 2^-23, since tensor cores may truncate where the CPU rounds.
 * Float factors may be rounded to TF32 (allow_tf32()). Where cuBLASLt refuses
 * an epilogue, or has a slow one, c is rounded to its type before and after
 * it. */
struct gpt_matmul {
    int64_t m, n, k;
    bool ta, tb;
    const void *a, *b;
    int64_t lda, ldb, ldc; /* elements between rows; 0 = tight */
    void *c;
    enum gpt_dtype act, c_type;
    float beta; /* 0 (c is not read) or 1 */
    enum gpt_epilogue epilogue;
    const void *bias;
    void *aux;
    const struct gpt_quant *quant; /* for b, with tb and float; NULL: b is */
    enum gpt_sums sums;
    struct gpt_fp8_factors fp8; /* a GPT_FP8_NONE: factors are as they are */
};

enum gpt_norm_kind { GPT_LAYERNORM, GPT_RMSNORM };

/* Residual add, dropout and norm in one pass:
 *   resid_out = resid_in + dropout(x)      (x NULL: resid_out = resid_in)
 *   y = (resid_out - mean) * rstd * w + b
 * resid_in, x, resid_out, y (N, C) act; w, b (C) act (NULL: none); mean,
 * rstd (N) float, written (mean unused for RMSNorm). resid_out may be
 * resid_in. y NULL: only resid_out is written. Source: Ba et al.
 * 2016; Zhang and Sennrich 2019. */
struct gpt_norm {
    enum gpt_norm_kind kind;
    bool plus_one; /* w + 1 stands for w, as in Gemma: decay pulls it to 1 */
    int64_t n, c;
    float eps;
    enum gpt_dtype act;
    const void *resid_in, *x;
    void *resid_out, *y;
    const void *w, *b;
    float *mean, *rstd;
    struct gpt_dropout dropout;
};

/* The backward of a norm takes the forward's struct and
 *   dresid (N, C) act, read and written: dresid += d(norm)(dy)
 *   dx (N, C) act, written: the new dresid times the dropout mask (may be NULL)
 *   dw, db (C) float, added to; those of absent w and b NULL.
 * scratch: gpt_backend.norm_scratch() bytes. */
struct gpt_norm_grad {
    const void *dy;
    void *dresid, *dx;
    float *dw, *db;
    void *scratch;
};

/* The same norms over D elements, of every query and key head of qkv
 * (N, G * (H/G + 2) * D), as attention takes it. Values are copied. wq, bq are
 * of all queries, wk, bk of all keys: (D) act, NULL: none. out may be in.
 * each: heads have weights of their own, wq (H, D), wk (G, D), and no biases.
 * Source: Henry et al. 2020; Dehghani et al. 2023.
 *
 * Or RMSNorm over all queries of a row together, and over all keys, as in
 * OLMo 2 (GPT_CAN_NORM_WIDE): squares (N, 2) float is not NULL then. It holds
 * the sums of squares of the row's queries and of its keys, over the h_all and
 * g_all heads of all ranks. wq (H * D), wk (G * D) are those of the heads here,
 * in the order of heads. head_norm_sums() gives the sums of a rank. */
struct gpt_head_norm {
    enum gpt_norm_kind kind;
    bool plus_one;
    bool each;
    int64_t n, h, g, d;
    float eps;
    enum gpt_dtype act;
    const void *in;
    void *out;
    const void *wq, *bq, *wk, *bk;
    const float *squares;
    int64_t h_all, g_all;
};

/* Its backward takes the forward's struct (out is not read): dqkv, the
 * gradient of out, becomes that of in. dwq ... dbk (D) float, added to; those
 * of absent ones NULL. scratch: gpt_backend.head_norm_scratch() bytes. With
 * each dwq (H, D), dwk (G, D). With squares the rank's dwq (H * D),
 * dwk (G * D), and dots (N, 2) float: the sums over all ranks of
 * w * x * dqkv. */
struct gpt_head_norm_grad {
    void *dqkv;
    const float *dots;
    float *dwq, *dbq, *dwk, *dbk;
    void *scratch;
};

/* out (N, F) = f(pre), pre (N, F); or gated: f(gate) * up, where a row of pre
 * (N, 2F) is its F gates, then its F ups (Shazeer 2020). GELU is the tanh form
 * of gpt_matmul, GELU_EXACT x times the normal distribution's integral, SILU x
 * times the logistic function, SQUARED_RELU max(x, 0)^2. XIELU (Huang and
 * Schlag 2024), never gated, is x / 2 and to it, with s(a) = ln(1 + e^a), for
 * x > 0 s(alpha_p) x^2, else (s(alpha_n) + 1/2) (e^x - 1 - x). Of bf16 GELU,
 * SILU and their slopes, in products too, may be off by a few units of 2^-14 of
 * their size before they are rounded, which is by 2^-9. */
enum gpt_activation {
    GPT_GELU,
    GPT_GELU_EXACT,
    GPT_SILU,
    GPT_RELU,
    GPT_SQUARED_RELU,
    GPT_XIELU,
};
struct gpt_activate {
    enum gpt_activation kind;
    bool gated;
    int64_t n, f;
    enum gpt_dtype act;
    const void *pre;
    void *out;
    const void *alpha_p, *alpha_n; /* (1) act each, of XIELU alone */
};

/* out (N, C) = dropout(scale * wte[tokens] + wpe[positions]); rows of wte held
 * here are v_begin .. v_begin + v_local, other tokens contribute zero. tokens,
 * positions (N) int32. wpe (t_max, C), or NULL: words only. A scale other than
 * 0, which stands for 1, needs GPT_CAN_SCALE_WORDS. */
struct gpt_embed {
    int64_t n, c, v_begin, v_local, t_max;
    enum gpt_dtype act;
    const int32_t *tokens, *positions;
    const void *wte, *wpe;
    void *out;
    struct gpt_dropout dropout;
    float scale;
    const struct gpt_quant *quant; /* for wte, with float; NULL: wte is */
};

/* The backward takes the forward's struct, and adds to dwte (v_local, C), dwpe
 * (t_max, C) float, either of which may be NULL, from dout (N, C) act.
 * scratch: gpt_backend.embed_scratch() bytes. */
struct gpt_embed_grad {
    const void *dout;
    float *dwte, *dwpe;
    void *scratch;
};

/* Rotary positions scaled for longer texts. The share s of the rate of pair i,
 * base^(-2 i / rotary), stays, and 1 - s is divided by `factor`; s rises from 0
 * to 1 while x goes from `from` to `to`, and x is i, or rate * by_rate where
 * that is not 0.
 * Sines and cosines are multiplied by `attention`. rope_scaling.h computes it;
 * linear interpolation, Llama 3's rule and YaRN are such ramps. With n_divisors
 * above 0 there is no ramp: the rate of pair i, of n_divisors, is divided by
 * divisors[i] (LongRoPE). */
enum { GPT_ROPE_DIVISORS = 128 };
struct gpt_rope_scaling {
    double factor; /* 0: none, and the rest is not read */
    double by_rate, from, to;
    double attention;
    int64_t n_divisors;
    float divisors[GPT_ROPE_DIVISORS];
};

/* Rotary positions (Su et al. 2021) in place: in every query and key head of
 * qkv (N, G * (H/G + 2) * D), as attention takes it, elements i and
 * i + rotary/2, i < rotary/2, are a point that is rotated by the angle
 *   position * base^(-2 i / rotary)
 * or, with `inverse` (for the gradient), by its negative. Elements from
 * `rotary` (even, at most D) on do not change. With `interleaved` the points
 * are elements 2 i and 2 i + 1. The angle is computed in float, as PyTorch
 * users do.
 * positions (N) int32 in device memory, or NULL: row n has position n mod t.
 * With query_growth b above 0, where all of a head turns, queries (and their
 * gradients) are also multiplied by 1 + b ln(1 + floor(position /
 * query_positions)). */
struct gpt_rope {
    int64_t n, t, h, g, d, rotary;
    double base;
    bool interleaved;
    struct gpt_rope_scaling scaling;
    enum gpt_dtype act;
    bool inverse;
    float query_growth;
    int64_t query_positions;
    void *qkv;
    const int32_t *positions;
};

/* What is added to scores for the distance of a key: nothing; (tk - tq) *
 * gpt_alibi_slope(head), after they were scaled and capped; or Falcon's
 * gpt_alibi_bf16(), before they are scaled, less that of tq. */
enum gpt_alibi { GPT_ALIBI_NONE, GPT_ALIBI, GPT_ALIBI_BF16 };

/* Causal self-attention. qkv (B, T, G * (H/G + 2) * D): for each group its
 * query heads, its key, its value (Megatron's order). out (B, T, H * D),
 * lse (B, H, T) float: log-sum-exp of the scaled scores, for backward. H, G
 * are those held here, head0 the first one's global number of h_global.
 * doc_start (B, T) int32 or NULL: first position to which t may attend, never
 * less than that of t - 1 in a sample (the documents of a sequence do not
 * attend to each other). window: with W above 0 t attends to itself and the W
 * positions before it alone. softcap: with c above 0 a scaled score s becomes
 * c * tanh(s / c), before ALiBi is added; a backend needs GPT_CAN_WINDOW and
 * GPT_CAN_CAP for them. Probability dropout: element index
 * ((sample * h_global + head) * T + tq) * T + tk of dropout.rng; of the dropout
 * struct only p, rng, sample0 and samples are read. Never stores T x T for all
 * heads. Source: Vaswani et al. 2017; Dao et al. 2022. */
struct gpt_attn {
    int64_t b, t, h, g, d, head0, h_global;
    float scale; /* usually 1/sqrt(D) */
    enum gpt_alibi alibi;
    int64_t window;
    float softcap;
    enum gpt_dtype act;
    const void *qkv;
    void *out;
    float *lse;
    const int32_t *doc_start;
    struct gpt_dropout dropout;
};

/* The ALiBi slope (Press et al. 2022) of head `head` of `heads`. Let m be the
 * largest power of two that is not above heads. Heads below m have the slope
 * 2^(-8 (head + 1) / m). Heads from m on have every other slope of 2 m
 * heads. */
float gpt_alibi_slope(int64_t head, int64_t heads);

/* What GPT_ALIBI_BF16 adds to scores of the key at this position, counted from
 * the beginning of its document. Slope, position and product are rounded to
 * bf16 each, so that neighbours may have the same number. */
float gpt_alibi_bf16(float slope, int64_t position);

/* The backward of attention takes the forward's struct, with out and lse as the
 * forward wrote them; dout (as out); dqkv (as qkv), written; scratch:
 * gpt_backend.attn_scratch() bytes. */
struct gpt_attn_grad {
    const void *dout;
    void *dqkv;
    void *scratch;
};

/* Positions of a cache are kept in blocks, so that what all heads of a text
 * read is one stretch of memory: (blocks, G, GPT_CACHE_BLOCK, D) a text. */
enum { GPT_CACHE_BLOCK = 32 };

/* Rows (D) that a text of t_max positions takes for each group. */
static inline int64_t gpt_cache_rows(int64_t t_max)
{
    return (t_max + GPT_CACHE_BLOCK - 1) / GPT_CACHE_BLOCK * GPT_CACHE_BLOCK;
}

/* Attention of new tokens against a cache, for generation. Rows b = 0..B-1
 * bring t_new tokens each, of which the first len[b] count; they go to
 * positions pos[b]... of cache row slot[b], then attend to all before them.
 * k_cache, v_cache (slots, blocks, G, GPT_CACHE_BLOCK, D) act, as many blocks
 * as t_max positions take; narrow_cache: bf16, to nearest even, with act float,
 * for which the backend needs GPT_CAN_NARROW_CACHE. Dots and sums are those of
 * floats also then; a backend may round queries of many tokens, and the weights
 * of their values, to bf16. qkv as above with T = t_new; out (B, t_new, H * D),
 * rows past len[b] undefined. pos, len, slot (B) int32 in host memory. */
struct gpt_attn_cached {
    int64_t b, t_new, h, g, d, t_max;
    int64_t head0, h_global; /* as in struct gpt_attn, for ALiBi; 0, 0: h are
                              * all heads */
    float scale;
    enum gpt_alibi alibi;
    int64_t window; /* as in struct gpt_attn, like softcap */
    float softcap;
    enum gpt_dtype act;
    bool narrow_cache;
    const void *qkv;
    void *out, *k_cache, *v_cache;
    const int32_t *pos, *len, *slot;
};

/* Queries, keys and values as attention takes them, from the products of latent
 * attention (DeepSeek-AI 2024). Each head is a group of its own, G = H. Of a
 * head's query and key `turned` elements turn with positions, and `nope` do
 * not; D is both. A value has `value` elements, at most D.
 *
 * latent_join() writes qkv (N, H * 3 D) from q (N, H * D), of which a head has
 * the nope elements first, then those that turn; kv (N, H * (nope + value)), of
 * which a head has its key's nope elements, then its value; k (N, turned),
 * which all heads share. In qkv queries and keys have the turned elements
 * first, as rope() takes them, and after a value come D - value zeros. All are
 * act. All that latent attention needs is there with GPT_CAN_LATENT. */
struct gpt_latent {
    int64_t n, h, nope, turned, value;
    enum gpt_dtype act;
    const void *q, *k, *kv;
    void *qkv;
};

/* The backward takes the forward's sizes, and gives the gradients dq, dk, dkv,
 * written, in the forms of q, k and kv, from dqkv. dk is summed over the heads
 * here in float, in their order, and rounded once. */
struct gpt_latent_grad {
    const void *dqkv;
    void *dq, *dk, *dkv;
};

/* Which experts a token has, for a feed-forward of E experts of which each of N
 * tokens has K (Shazeer et al. 2017). logits (N, E) float become scores: the
 * softmax over the E, or with `sigmoid` the logistic function of each. The K
 * experts of the largest score + bias are chosen, of equal ones those with the
 * smaller number; bias (E) act, or NULL. A weight is the expert's score, or
 * unless `whole` the score over the sum of the token's K scores (of `sigmoid`
 * plus GPT_ROUTER_LEAST, as all may be 0); times `scaling`.
 *
 * With `groups` above 1 a token's experts are of some groups alone: experts are
 * in groups of E / groups neighbours, and the group_topk groups are taken whose
 * group_best largest score + bias have the largest sum, of equal ones those
 * with the smaller number (DeepSeek-AI 2024). group_best is at most E / groups
 * and GPT_ROUTER_MOST, and K at most group_topk * E / groups then; else groups,
 * group_topk and group_best are not read.
 *
 * route() writes, besides weight (N, K) float, what says where tokens go, in
 * int32: expert (N, K), by falling score + bias; pairs of a token and one of
 * its experts in the order of experts, those of one expert in the order of
 * tokens, of which expert e has begin[e] to begin[e + 1], begin (E + 1);
 * source (N * K): pair p is the element source[p] of (N, K); place (N, K): its
 * pair. No token is dropped. All that experts need is there with
 * GPT_CAN_EXPERTS. */
enum { GPT_ROUTER_MOST = 64 }; /* K, group_best */
#define GPT_ROUTER_LEAST 1e-20F
struct gpt_router {
    int64_t n, e, k;
    int64_t groups, group_topk, group_best;
    bool sigmoid, whole;
    float scaling;
    enum gpt_dtype act;
    const float *logits;
    const void *bias;
    float *weight;
    int32_t *expert, *begin, *source, *place;
};

/* The backward of route() takes the forward's struct, with what it wrote, and
 * dweight (N, K) float, the gradient of the weights: 0 but for pairs of experts
 * on this rank, where ranks have some each, as gradients of logits add up.
 * dlogits (N, E) act, written. The gradient of two losses of the tokens here
 * is added to it, times the sum of weights (N) float, those of the tokens'
 * losses, and *scale, (1) float in device memory, or NULL:
 *   aux * E / (K N^2) sum_e (begin[e + 1] - begin[e]) sum_n p(n, e)
 *   z / N sum_n (ln sum_e exp(logits(n, e)))^2
 * where p are the scores, those of `sigmoid` over their sum in a token (Fedus
 * et al. 2022; Zoph et al. 2022). losses (2) float, device: both, times the sum
 * of weights, are added to it. With aux and z 0 neither weights nor losses are
 * looked at. counts (E) float, or NULL: how many pairs each expert has,
 * begin[e + 1] - begin[e], is added to it. */
struct gpt_router_grad {
    const float *dweight;
    void *dlogits;
    float aux, z;
    const float *weights, *scale;
    float *losses;
    float *counts;
};

/* One step of the biases by which experts are chosen, of which those rise that
 * have too few tokens (Wang et al. 2024):
 *   p += rate * sign(mean - counts)
 * p, counts (n) float; p_act: as for struct gpt_adamw. */
struct gpt_balance {
    int64_t n;
    float *p;
    const float *counts;
    void *p_act;
    enum gpt_dtype act;
    double mean, rate;
};

/* The pairs of `count` experts from `first` on, begin[first] to
 * begin[first + count], whose rows lie side by side: row 0 is the first one.
 * Buffers of rows have room for N * K. The rest is of route(). */
struct gpt_expert_rows {
    int64_t n, k, first, count;
    enum gpt_dtype act;
    const int32_t *begin, *source, *place;
    const float *weight;
};

/* A product of each expert's rows with a matrix of its own, of `count` that lie
 * one after the other. With the rows of expert e, m_e of them:
 *   c (m_e, N) = a (m_e, K) * op(b_e), b_e (K, N), or with tb (N, K);
 *   with ta      c_e (M, N) = a (m_e, M)^T * b (m_e, N) + beta * c_e
 * The former's c is act; c_e of the latter float, and 0 where beta is 0 and no
 * token has the expert. quant, sums: as in struct gpt_matmul, of all matrices
 * as one (count * N, K); arranged ones have N a multiple of 32. */
struct gpt_expert_matmul {
    const struct gpt_expert_rows *rows;
    int64_t m, n, k; /* m of ta alone, k without it */
    bool ta, tb;
    const void *a, *b;
    void *c;
    float beta;
    const struct gpt_quant *quant;
    enum gpt_sums sums;
};

/* Softmax cross-entropy and its gradient in place:
 *   loss[i] = log(sum_j exp(logits[i][j])) - logits[i][target[i]]
 *   logits[i][j] = (softmax_j - [j == target[i]]) * weight[i]   (grad true)
 * over the columns j < v_real; columns v_real..v (dummy vocabulary rows) take
 * no probability and get gradient zero. logits (N, V) act with row stride ld,
 * target (N) int32, weight (N) float (loss mask and averaging folded in; rows
 * with weight 0 get zero gradient), loss (N) float, unweighted. scale (1)
 * float, device, or NULL: weights are multiplied by it (the loss scale).
 * Log-sum-exp shift as in Blanchard et al. 2021.
 *
 * With `smoothing` e the target's share of the loss is 1 - e, and e is spread
 * over all v_real columns (Szegedy et al. 2016); `z_loss` z adds
 * z * (log sum_j exp(logits[i][j]))^2, which keeps logits from drifting
 * (de Brebisson and Vincent 2016). Loss and gradient have both.
 *
 * A vocabulary that is cut over ranks takes two steps. Here are the V columns
 * from v_begin on (target and v_real stay global numbers). xent_partial()
 * writes stats (N, 4) float, of the columns here: largest logit, sum of
 * exp(logit - largest), logit of the target (0: it is elsewhere), sum of the
 * logits (0: there is no smoothing), and with `grad` leaves those exponentials
 * in logits (or the logits, on a device where computing the exponentials again
 * is cheaper). xent_finish(), given the stats of all ranks (ranks, N, 4),
 * combines them in the order of ranks. */
enum { GPT_XENT_STATS = 4 };
struct gpt_xent {
    int64_t n, v, v_real, ld;
    enum gpt_dtype act;
    void *logits;
    const int32_t *target;
    const float *weight;
    float *loss;
    bool grad;
    int64_t v_begin; /* xent(): 0 */
    const float *scale;
    float smoothing, z_loss;
};

/* Which elements of a flat buffer are decayed: segment i is [begin_i,
 * begin_{i+1}). Lists of them are in device memory. */
struct gpt_decay_segment {
    int64_t begin;
    bool decay;
};

/* One pass of AdamW (Loshchilov and Hutter 2019) over flat buffers:
 *   g' = g * grad_scale; m = b1 m + (1-b1) g'; v = b2 v + (1-b2) g'^2
 *   p -= lr * (m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) + wd * p)
 * With `coupled` decay it is Adam (Kingma and Ba 2015): wd * p is added to g',
 * and p is not decayed besides.
 * p, m, v, g (n) float; p_act: a copy of p in `act`, or NULL. */
struct gpt_adamw {
    int64_t n;
    float *p, *m, *v;
    const float *g;
    void *p_act;
    enum gpt_dtype act;
    double lr, beta1, beta2, eps, weight_decay, grad_scale;
    bool coupled;
    int64_t step; /* t, from 1 */
    const struct gpt_decay_segment *segments; /* (n_segments) */
    int64_t n_segments;
};

/* One pass of gradient descent with momentum, as PyTorch has it:
 *   g' = g * grad_scale + wd * p; m = momentum m + g'; p -= lr * m
 * m NULL: without momentum, m is g'. The rest is as for AdamW. */
struct gpt_sgd {
    int64_t n;
    float *p, *m;
    const float *g;
    void *p_act;
    enum gpt_dtype act;
    double lr, momentum, weight_decay, grad_scale;
    const struct gpt_decay_segment *segments; /* (n_segments) */
    int64_t n_segments;
};

/* out = a x + b y, elementwise, (n) float; y NULL: a x. out may be x or y.
 * squares (1) double, in device memory, or NULL: x is divided by the larger of
 * its root and `least`, which is how a matrix gets the norm 1. */
struct gpt_mix {
    int64_t n;
    float *out;
    const float *x, *y;
    double a, b;
    const double *squares;
    double least;
};

struct gpt_collectives; /* collectives.h */

/* What not every backend computes: bits of gpt_backend.abilities. */
enum gpt_ability {
    GPT_CAN_WINDOW = 1,      /* attention to a window */
    GPT_CAN_CAP = 2,         /* capped scores, and capped logits: softcap() */
    GPT_CAN_SCALE_WORDS = 4, /* embeddings times a number */
    GPT_CAN_NORM_WIDE = 8,   /* head norms of all heads together */
    GPT_CAN_QUANT = 16,      /* weights in fewer bits: struct gpt_quant */
    GPT_CAN_FP8 = 32,        /* products of eight bits: struct gpt_fp8_factors,
                              * amax() and fp8_scratch(), else NULL */
    GPT_CAN_CHOOSE_SUMS = 64, /* enum gpt_sums; else all are SHAPE */
    GPT_CAN_NARROW_CACHE = 128, /* struct gpt_attn_cached, narrow_cache */
    GPT_CAN_EXPERTS = 256, /* struct gpt_router and what follows it; else the
                            * operations are NULL */
    GPT_CAN_LATENT = 512, /* struct gpt_latent, fit_columns(); else NULL */
};

struct gpt_backend {
    unsigned api; /* GPT_BACKEND_API */
    const char *name;
    void *state;
    unsigned act_types; /* it computes in: bits 1 << enum gpt_dtype */
    unsigned abilities; /* enum gpt_ability */
    bool host_memory; /* after sync the host may use this memory directly */
    int64_t logits_bytes; /* of logits, how much is worth to have at a time */

    /* One line for people: device, instruction set, libraries. */
    void (*describe)(const struct gpt_backend *be, char *text, size_t cap);

    /* Device memory, 64-byte aligned and zeroed. `what` names the memory in the
     * message of GPT_EDEVICE. */
    int (*alloc)(struct gpt_backend *be, size_t bytes, const char *what,
                 void **mem, struct gpt_err *err);
    void (*free)(struct gpt_backend *be, void *mem);
    /* Host memory (64-byte aligned, zeroed) that devices copy from and to
     * directly. copy_in() and copy_out() of this memory return at once, and it
     * must not change until they are over. Copies of other host memory may
     * wait. */
    int (*host_alloc)(struct gpt_backend *be, size_t bytes, const char *what,
                      void **mem, struct gpt_err *err);
    void (*host_free)(struct gpt_backend *be, void *mem);
    /* Bytes of device memory, free and in all; 0, 0 where they are not
     * known. */
    void (*memory)(struct gpt_backend *be, int64_t *available, int64_t *total);

    /* queue */
    int (*queue_open)(struct gpt_backend *be, struct gpt_queue **q,
                      struct gpt_err *err);
    /* Opens a high-priority queue, for short work that other queues wait
     * for. */
    int (*queue_open_beside)(struct gpt_backend *be, struct gpt_queue **q,
                             struct gpt_err *err);
    void (*queue_close)(struct gpt_queue *q);
    int (*sync)(struct gpt_queue *q, struct gpt_err *err);
    /* Work put on q after event_wait() begins when the work is done that was on
     * the event's queue at its last event_record(); the host does not wait.
     * Waiting for an event that was never recorded has no effect. Calls for one
     * event come from one thread, or from threads that take turns. */
    int (*event_open)(struct gpt_backend *be, struct gpt_event **e,
                      struct gpt_err *err);
    void (*event_close)(struct gpt_event *e); /* NULL is fine */
    void (*event_record)(struct gpt_queue *q, struct gpt_event *e);
    void (*event_wait)(struct gpt_queue *q, struct gpt_event *e);
    /* Recordings; NULL where the device has none. Operations between
     * record_begin() and record_end() are kept instead of run. Their arguments
     * are fixed then; the memory is read at each replay. They are of queue q
     * and of one thread, without copies from or to the host, without events,
     * and each has run on q before in the same sizes. replay() puts all of them
     * on q at the cost of one. It returns false, and puts nothing, when q's
     * memory has changed since: the caller then records anew. */
    int (*record_begin)(struct gpt_queue *q, struct gpt_err *err);
    int (*record_end)(struct gpt_queue *q, struct gpt_recording **r,
                      struct gpt_err *err);
    bool (*replay)(struct gpt_queue *q, struct gpt_recording *r);
    void (*recording_close)(struct gpt_recording *r); /* NULL is fine */
    void (*copy_in)(struct gpt_queue *q, void *dst, const void *host,
                    size_t bytes);
    void (*copy_out)(struct gpt_queue *q, void *host, const void *src,
                     size_t bytes);
    void (*copy)(struct gpt_queue *q, void *dst, const void *src,
                 size_t bytes);
    void (*zero)(struct gpt_queue *q, void *dst, size_t bytes);
    void (*cast)(struct gpt_queue *q, void *dst, enum gpt_dtype dst_type,
                 const void *src, enum gpt_dtype src_type, int64_t n);

    /* maths */

    /* Allows products of float, those of attn_fwd() and attn_bwd() among them,
     * on all queues from now on, to round their factors to TF32 (10 bits of
     * mantissa); not allowed at first. It is not changed between the forward
     * and the backward of one attention. NULL where the device has no TF32. */
    void (*allow_tf32)(struct gpt_backend *be, bool allow);
    void (*matmul)(struct gpt_queue *q, const struct gpt_matmul *op);
    /* Bytes of a matrix (N, K) of w's form as the device keeps it, or 0: it
     * keeps it as it is. NULL without GPT_CAN_QUANT. */
    size_t (*quant_bytes)(const struct gpt_quant *w, int64_t n, int64_t k);
    /* Writes rows first .. first + rows - 1 of the matrix (N, K), which are
     * those of w, to its place in host memory; `first` is a multiple of 32, and
     * `rows` is, too, but for the last ones. */
    void (*quant_arrange)(void *to, const struct gpt_quant *w, int64_t first,
                          int64_t rows, int64_t k);
    /* *amax (1) float = the larger of itself and of all |x[i]|; x (n) bf16. A
     * NaN is larger than all numbers. */
    void (*amax)(struct gpt_queue *q, float *amax, const void *x, int64_t n);
    size_t (*fp8_scratch)(int64_t m, int64_t n, int64_t k);
    /* dbias (n) float += column sums of dy (m, n) act */
    void (*bias_grad)(struct gpt_queue *q, float *dbias, const void *dy,
                      int64_t m, int64_t n, enum gpt_dtype act);
    /* x (m, n) act += bias (n) act, for a bias that is added after a sum over
     * ranks */
    void (*bias_add)(struct gpt_queue *q, void *x, const void *bias,
                     int64_t m, int64_t n, enum gpt_dtype act);
    /* With GPT_GELU and pre = aux of a product, out is its c again. */
    void (*activate)(struct gpt_queue *q, const struct gpt_activate *op);
    /* dpre (as pre), written, from dout (N, F); op->out is not read. */
    void (*activate_bwd)(struct gpt_queue *q, const struct gpt_activate *op,
                         const void *dout, void *dpre);
    /* The gradients of XIELU's two parameters, (1) float each, added to, from
     * that of op->out; op->out is not read. */
    void (*xielu_grads)(struct gpt_queue *q, const struct gpt_activate *op,
                        const void *dout, float *dalpha_p, float *dalpha_n);
    void (*norm_fwd)(struct gpt_queue *q, const struct gpt_norm *op);
    void (*norm_bwd)(struct gpt_queue *q, const struct gpt_norm *op,
                     const struct gpt_norm_grad *grad);
    size_t (*norm_scratch)(int64_t n, int64_t c);
    void (*head_norm)(struct gpt_queue *q, const struct gpt_head_norm *op);
    void (*head_norm_bwd)(struct gpt_queue *q, const struct gpt_head_norm *op,
                          const struct gpt_head_norm_grad *grad);
    /* d: of a head; with each or squares (H + G) * D, of the heads here */
    size_t (*head_norm_scratch)(int64_t n, int64_t d);
    /* sums (N, 2) float, written, of queries and of keys: of x^2 where dqkv is
     * NULL, else of w * x * dqkv. NULL without GPT_CAN_NORM_WIDE. */
    void (*head_norm_sums)(struct gpt_queue *q, const struct gpt_head_norm *op,
                           const void *dqkv, float *sums);
    /* y (n, c) = x (n, c) with dropout; y may be x. For places where no norm
     * follows, which would include the dropout. */
    void (*dropout)(struct gpt_queue *q, void *y, const void *x, int64_t n,
                    int64_t c, enum gpt_dtype act,
                    const struct gpt_dropout *dropout);
    void (*embed_fwd)(struct gpt_queue *q, const struct gpt_embed *op);
    void (*embed_bwd)(struct gpt_queue *q, const struct gpt_embed *op,
                      const struct gpt_embed_grad *grad);
    /* positions: dwpe is wanted, too */
    size_t (*embed_scratch)(int64_t n, int64_t c, bool positions);
    void (*rope)(struct gpt_queue *q, const struct gpt_rope *op);
    void (*attn_fwd)(struct gpt_queue *q, const struct gpt_attn *op);
    void (*attn_bwd)(struct gpt_queue *q, const struct gpt_attn *op,
                     const struct gpt_attn_grad *grad);
    size_t (*attn_scratch)(const struct gpt_attn *op);
    /* Why attention of op's type, head size and options runs far below what
     * the device can do, for people; NULL: it does not. May be NULL: no
     * attention does. */
    const char *(*attn_slow)(const struct gpt_attn *op);
    void (*attn_cached)(struct gpt_queue *q,
                        const struct gpt_attn_cached *op);
    /* x (n) act = c tanh(x / c), in place; slope (n) act, or NULL: the
     * derivative there. times(): x (n) act *= y (n) act. NULL without
     * GPT_CAN_CAP. */
    void (*softcap)(struct gpt_queue *q, void *x, void *slope, int64_t n,
                    float c, enum gpt_dtype act);
    void (*times)(struct gpt_queue *q, void *x, const void *y, int64_t n,
                  enum gpt_dtype act);
    /* x (n) act *= factor, in place */
    void (*scale)(struct gpt_queue *q, void *x, int64_t n, float factor,
                  enum gpt_dtype act);
    /* x (n) act = max(-limit, min(x, limit)), in place; and its backward: d (n)
     * act = 0 where that x, as clip() has left it, is at a limit. */
    void (*clip)(struct gpt_queue *q, void *x, int64_t n, float limit,
                 enum gpt_dtype act);
    void (*clip_bwd)(struct gpt_queue *q, void *d, const void *x, int64_t n,
                     float limit, enum gpt_dtype act);
    void (*latent_join)(struct gpt_queue *q, const struct gpt_latent *op);
    void (*latent_split)(struct gpt_queue *q, const struct gpt_latent *op,
                         const struct gpt_latent_grad *grad);
    /* y (n, to) act = the first columns of x (n, from) act, as many as both
     * have, then zeros. They do not overlap. */
    void (*fit_columns)(struct gpt_queue *q, void *y, int64_t to,
                        const void *x, int64_t from, int64_t n,
                        enum gpt_dtype act);
    void (*route)(struct gpt_queue *q, const struct gpt_router *op);
    void (*route_bwd)(struct gpt_queue *q, const struct gpt_router *op,
                      const struct gpt_router_grad *grad);
    void (*balance)(struct gpt_queue *q, const struct gpt_balance *op);
    /* out, a row (C) for each pair = that of its token in x (N, C) */
    void (*expert_pick)(struct gpt_queue *q, const struct gpt_expert_rows *rows,
                        const void *x, void *out, int64_t c);
    /* y (N, C) = the sum of each token's rows x, in the order of (N, K), times
     * their weights (weighed), which is rounded once; add: added to y. Tokens
     * without rows here get zeros. */
    void (*expert_sum)(struct gpt_queue *q, const struct gpt_expert_rows *rows,
                       const void *x, void *y, int64_t c, bool weighed,
                       bool add);
    void (*expert_matmul)(struct gpt_queue *q,
                          const struct gpt_expert_matmul *op);
    /* dweight (N, K) float, written: the dot of each pair's rows h and dh, of F
     * elements, and 0 for pairs that are not here; then both rows are
     * multiplied by the pair's weight. */
    void (*expert_weigh)(struct gpt_queue *q,
                         const struct gpt_expert_rows *rows, void *h, void *dh,
                         int64_t f, float *dweight);
    /* x (N, F) act, row by row, times s, the logistic function of gate (N)
     * float; and its backward, with that x: dgate (N) act = (1 - s) times the
     * dot of each row of x and of dx; then dx is multiplied by s. For a
     * feed-forward that a gate of each token weighs. */
    void (*gate_rows)(struct gpt_queue *q, void *x, const float *gate,
                      int64_t n, int64_t f, enum gpt_dtype act);
    void (*gate_rows_bwd)(struct gpt_queue *q, const void *x, void *dx,
                          const float *gate, void *dgate, int64_t n, int64_t f,
                          enum gpt_dtype act);
    void (*xent)(struct gpt_queue *q, const struct gpt_xent *op);
    void (*xent_partial)(struct gpt_queue *q, const struct gpt_xent *op,
                         float *stats);
    void (*xent_finish)(struct gpt_queue *q, const struct gpt_xent *op,
                        const float *stats, int64_t ranks, int64_t rank);
    void (*adamw)(struct gpt_queue *q, const struct gpt_adamw *op);
    void (*sgd)(struct gpt_queue *q, const struct gpt_sgd *op);
    void (*mix)(struct gpt_queue *q, const struct gpt_mix *op);
    /* *out (1) double, in device memory, = the sum of x[i]^2, which is made in
     * double and in a fixed order. */
    void (*sumsq)(struct gpt_queue *q, double *out, const float *x,
                  int64_t n);

    /* Collectives of the device's own library, or NULL. */
    const struct gpt_collectives *collectives;
};

/* The CPU backend; valid until the process ends. `matmul` uses oneDNN where it
 * was built with it, except for floats on AVX2, where its own tiles were
 * measured to be as fast and without oneDNN's slow cases (strides of a multiple
 * of 4 KiB), and except for bf16 where the processor has AMX, or AVX512-BF16
 * and is AMD's. In the environment GPT_CPU_MATMUL=portable|dnnl forces the one
 * or the other, GPT_CPU_ISA an instruction set of base/cpu.h (tests). */
int gpt_backend_cpu(struct gpt_backend **be, struct gpt_err *err)
    GPT_MUST_USE;

/* Opens the backend of a device: "cpu"; "cuda" or "cuda:N", a GPU
 * (libgpt-cuda.so); "cuda-emu", its kernels emulated on the CPU
 * (libgpt-cuda-emu.so, for tests); "auto", GPU 0 when there is one, else the
 * CPU, and the log has the reason. Plugins are looked for in $GPT_PLUGIN_DIR,
 * or beside the program and in ../lib/gpt from there. GPT_EDEVICE when it is
 * not there. */
int gpt_backend_open(struct gpt_backend **be, const char *device,
                     struct gpt_err *err) GPT_MUST_USE;

/* The table of a GPU of so many bytes that is not here, for plans of its
 * memory: sizes alone, no operation. capability: 10 times its compute
 * capability, 90 being that of Hopper, whose kernels want more memory for
 * attention's backward than the others do (and than GPT_CUDA_FLASH=mma-backward
 * leaves them). */
void gpt_backend_planned(struct gpt_backend *be, int64_t memory,
                         int capability);

/* The names of devices, NULL-terminated; "cuda:N" is one, too. */
extern const char *const gpt_device_words[];

/* The same for process local_rank of this machine: "cuda" and "auto" then mean
 * GPU local_rank modulo the number of GPUs, so that ranks share GPUs evenly. */
int gpt_backend_open_rank(struct gpt_backend **be, const char *device,
                          int64_t local_rank, struct gpt_err *err)
    GPT_MUST_USE;

/* Appends a line for a program's version: the GPUs for which the plugin is
 * built, and the first GPU of this machine. */
struct gpt_buf;
int gpt_backend_version(struct gpt_buf *b);

#endif
