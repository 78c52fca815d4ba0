/* A forward pass in double, a loop a formula, for tests of decoding: every
 * variant of a model that they have. Start at naive_logits(), at the end. */
#ifndef GPT_TESTS_NAIVE_H
#define GPT_TESTS_NAIVE_H

#include "base/num.h"
#include "model/weights.h"
#include "tests/lib/model.h"

#include <math.h>
#include <string.h>

static void naive_norm(const double *x, const float *w, const float *b,
                       int64_t n, const struct gpt_config *c, double *y)
{
    double mean = 0, var = 0, one = c->norm_plus_one ? 1 : 0;

    for (int64_t i = 0; i < n && c->normalization == GPT_LAYERNORM; i++)
        mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        var += (x[i] - mean) * (x[i] - mean) / (double)n;
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) / sqrt(var + c->norm_epsilon) *
                   ((double)w[i] + one) +
               (b ? (double)b[i] : 0);
}

/* y (out) = W (out, in) x + b */
static void naive_linear(const double *x, const float *w, const float *b,
                         int64_t in, int64_t out, double *y)
{
    for (int64_t o = 0; o < out; o++) {
        y[o] = b ? (double)b[o] : 0;
        for (int64_t i = 0; i < in; i++)
            y[o] += (double)w[o * in + i] * x[i];
    }
}

/* What LongRoPE divides the rate of pair i by in a text of n tokens, and what
 * it makes of the size of queries and keys. */
static double naive_divisor(const struct gpt_config *c, int64_t n, int64_t i)
{
    if (c->rotary_scaling != GPT_SCALING_LONGROPE)
        return 1;
    return n > c->rotary_positions ? c->rotary_long_factors[i]
                                   : c->rotary_short_factors[i];
}

static double naive_size(const struct gpt_config *c)
{
    const double before = (double)c->rotary_positions;

    return c->rotary_scaling == GPT_SCALING_LONGROPE
               ? sqrt(1 + log((double)c->max_positions / before) / log(before))
               : 1;
}

/* Queries and keys of a row of qkv, turned by position t of a text of n. */
static void naive_turn(const struct gpt_config *c, double *qkv, int64_t t,
                       int64_t n)
{
    int64_t per = c->num_attention_heads / c->num_query_groups + 2;
    int64_t d = c->head_size, turned = gpt_config_rotary(c);
    int64_t step = c->rotary_interleaved ? 2 : 1;
    int64_t other = c->rotary_interleaved ? 1 : turned / 2;
    double size = naive_size(c);

    for (int64_t h = 0; h < c->num_query_groups * per; h++)
        for (int64_t i = 0; i < turned / 2 && h % per < per - 1; i++) {
            double *x = qkv + h * d + i * step, a = x[0], b = x[other];
            double angle = (double)t * pow(c->rotary_base,
                                           -2.0 * (double)i /
                                               (double)turned) /
                           naive_divisor(c, n, i);

            x[0] = (a * cos(angle) - b * sin(angle)) * size;
            x[other] = (b * cos(angle) + a * sin(angle)) * size;
        }
}

/* Queries, keys and values of latent attention, from the normed row x, in the
 * order of other attention: what turns first, zeros after a value. */
static void naive_latent(const struct gpt_config *c, const struct gpt_roles *w,
                         const double *x, double *qkv)
{
    const int64_t n = c->hidden_size, heads = c->num_attention_heads;
    const int64_t d = c->head_size, nope = c->qk_head_dim;
    const int64_t turned = c->qk_pos_emb_head_dim, own = nope + c->v_head_dim;
    const int64_t rq = c->q_lora_rank, rkv = c->kv_lora_rank;
    double *q_row = gpt_alloc((size_t)(rq + rkv + turned + heads * (d + own)),
                              sizeof(*q_row));
    double *kv_row = q_row + rq, *k = kv_row + rkv, *q = k + turned;
    double *kv = q + heads * d;
    struct gpt_config rows = *c;

    if (c->latent_norm_epsilon > 0)
        rows.norm_epsilon = c->latent_norm_epsilon;
    if (rq > 0) {
        naive_linear(x, w->at[GPT_Q_DOWN], NULL, n, rq, q_row);
        naive_norm(q_row, w->at[GPT_Q_LATENT_NORM], NULL, rq, &rows, q_row);
    }
    naive_linear(rq > 0 ? q_row : x, w->at[rq > 0 ? GPT_Q_UP : GPT_Q_PROJ],
                 NULL, rq > 0 ? rq : n, heads * d, q);
    naive_linear(x, w->at[GPT_KV_DOWN], NULL, n, rkv, kv_row);
    naive_norm(kv_row, w->at[GPT_KV_LATENT_NORM], NULL, rkv, &rows, kv_row);
    naive_linear(kv_row, w->at[GPT_KV_UP], NULL, rkv, heads * own, kv);
    naive_linear(x, w->at[GPT_K_TURNED], NULL, n, turned, k);
    for (int64_t h = 0; h < heads; h++) {
        double *to = qkv + h * 3 * d;

        for (int64_t i = 0; i < d; i++) {
            to[i] = q[h * d + (i < turned ? nope + i : i - turned)];
            to[d + i] = i < turned ? k[i] : kv[h * own + i - turned];
            to[2 * d + i] = i < c->v_head_dim ? kv[h * own + nope + i] : 0;
        }
    }
    gpt_free(q_row);
}

/* One query head at position t over qkv rows 0..t. */
static void naive_head(const struct gpt_config *c, const double *qkv,
                       int64_t t, int64_t h, int64_t from, double *out)
{
    int64_t per = c->num_attention_heads / c->num_query_groups;
    int64_t d = c->head_size, ld = c->num_query_groups * (per + 2) * d;
    int64_t base = h / per * (per + 2) * d;
    const double *query = qkv + t * ld + base + h % per * d;
    double p[512], sum = 0, cap = c->attn_logit_softcapping;
    const float slope = gpt_alibi_slope(h, c->num_attention_heads);

    for (int64_t s = from; s <= t; s++) {
        const double *key = qkv + s * ld + base + per * d;
        double dot = 0;

        for (int64_t i = 0; i < d; i++)
            dot += query[i] * key[i];
        dot /= sqrt(c->query_pre_attn_scalar > 0 ? c->query_pre_attn_scalar
                                                 : (double)d);
        dot = cap > 0 ? cap * tanh(dot / cap) : dot;
        if (c->position_embedding == GPT_POSITION_ALIBI)
            dot -= (double)(t - s) * (double)slope;
        if (c->position_embedding == GPT_POSITION_ALIBI_BF16)
            dot += ((double)gpt_alibi_bf16(slope, s) -
                    (double)gpt_alibi_bf16(slope, t)) / sqrt((double)d);
        sum += p[s] = exp(dot);
    }
    for (int64_t i = 0; i < d; i++)
        out[i] = 0;
    for (int64_t s = from; s <= t; s++)
        for (int64_t i = 0; i < d; i++)
            out[i] += p[s] / sum * qkv[s * ld + base + (per + 1) * d + i];
}

static double naive_activation(const struct gpt_config *c, double x)
{
    if (c->activation == GPT_SILU)
        return x / (1 + exp(-x));
    if (c->activation == GPT_GELU_EXACT)
        return 0.5 * x * erfc(-x / sqrt(2));
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) *
                               (x + 0.044715 * x * x * x)));
}

/* y (C) = the feed-forward of the normed x; wide: room for 2 F. */
static void naive_feed_forward(const struct gpt_config *c,
                               const struct gpt_roles *w, const double *x,
                               double *wide, double *y)
{
    int64_t n = c->hidden_size, f = c->ffn_hidden_size;

    naive_linear(x, w->at[GPT_FC1_WEIGHT], w->at[GPT_FC1_BIAS], n, f, wide);
    if (c->gated)
        naive_linear(x, w->at[GPT_GATE_WEIGHT], w->at[GPT_GATE_BIAS], n, f,
                     wide + f);
    for (int64_t k = 0; k < f; k++)
        wide[k] = c->gated ? naive_activation(c, wide[f + k]) * wide[k]
                           : naive_activation(c, wide[k]);
    naive_linear(wide, w->at[GPT_FC2_WEIGHT], w->at[GPT_FC2_BIAS], f, n, y);
}

/* One norm of the heads [first, end) of all groups of a row, in place. */
static void naive_whole_norm(const struct gpt_config *c, const float *w,
                             double *qkv, int64_t first, int64_t end)
{
    int64_t per = c->num_attention_heads / c->num_query_groups + 2;
    int64_t d = c->head_size, n = c->num_query_groups * (end - first) * d;
    double *x = gpt_alloc((size_t)n, sizeof(*x));

    for (int64_t i = 0; i < n; i++)
        x[i] = qkv[(i / d / (end - first) * per + first +
                    i / d % (end - first)) * d + i % d];
    naive_norm(x, w, NULL, n, c, x);
    for (int64_t i = 0; i < n; i++)
        qkv[(i / d / (end - first) * per + first +
             i / d % (end - first)) * d + i % d] = x[i];
    gpt_free(x);
}

/* Norms of a row's query and key heads, in place. */
static void naive_head_norms(const struct gpt_config *c,
                             const struct gpt_roles *w, double *qkv)
{
    int64_t per = c->num_attention_heads / c->num_query_groups + 2;

    if (c->qk_norm_whole) {
        naive_whole_norm(c, w->at[GPT_Q_NORM_WEIGHT], qkv, 0, per - 2);
        naive_whole_norm(c, w->at[GPT_K_NORM_WEIGHT], qkv, per - 2, per - 1);
        return;
    }
    for (int64_t h = 0; h < c->num_query_groups * per; h++) {
        bool key = h % per == per - 2;
        double *x = qkv + h * c->head_size;
        int64_t own = key ? h / per : h / per * (per - 2) + h % per;

        if (c->qk_norm && h % per < per - 1)
            naive_norm(x, (const float *)w->at[key ? GPT_K_NORM_WEIGHT
                                                   : GPT_Q_NORM_WEIGHT] +
                              (c->qk_norm_each ? own * c->head_size : 0),
                       w->at[key ? GPT_K_NORM_BIAS : GPT_Q_NORM_BIAS],
                       c->head_size, c, x);
    }
}

/* The first position that position t of a layer attends to. */
static int64_t first_seen(const struct gpt_config *c, int64_t layer, int64_t t)
{
    bool all = c->window_size == 0 || layer < c->window_full_layers ||
               (c->window_attn_skip_freq > 0 &&
                (layer + 1) % c->window_attn_skip_freq == 0);

    return all || t < c->window_size ? 0 : t - c->window_size;
}

/* Heads of a layer at position t of n, turned as that layer turns them. */
static void naive_turn_layer(const struct gpt_config *c, int64_t layer,
                             double *qkv, int64_t t, int64_t n)
{
    struct gpt_config own = *c;

    if (c->rotary_local_base > 0 && first_seen(c, layer, 1 << 20) > 0)
        own.rotary_base = c->rotary_local_base;
    if (c->position_embedding == GPT_POSITION_ROPE &&
        (c->no_rope_freq == 0 || (layer + 1) % c->no_rope_freq != 0))
        naive_turn(&own, qkv, t, n);
}

static double factor_of(double x) { return x > 0 ? x : 1; }

static double logistic_of(double x) { return 1 / (1 + exp(-x)); }

/* Scores of all experts, from logits, in place. */
static void naive_scores(const struct gpt_config *c, double *score)
{
    double sum = 0;

    for (int64_t e = 0; e < c->num_experts; e++)
        sum += exp(score[e]);
    for (int64_t e = 0; e < c->num_experts; e++)
        score[e] = c->moe_router_score_function == GPT_SCORE_SIGMOID
                       ? logistic_of(score[e])
                       : exp(score[e]) / sum;
}

/* What a group of experts is chosen by. */
static double naive_group(const struct gpt_config *c, const double *by,
                          int64_t group)
{
    const int64_t each = c->num_experts / c->moe_router_num_groups;
    double first = -INFINITY, second = -INFINITY;

    for (int64_t e = group * each; e < (group + 1) * each; e++) {
        second = fmax(second, fmin(first, by[e]));
        first = fmax(first, by[e]);
    }
    return c->moe_router_score_function == GPT_SCORE_SIGMOID ? first + second
                                                             : first;
}

/* Puts the experts of all but the best groups behind the others. */
static void naive_groups(const struct gpt_config *c, double *by)
{
    const int64_t groups = c->moe_router_num_groups;
    double *sums = gpt_alloc((size_t)groups + 1, sizeof(*sums));

    for (int64_t g = 0; g < groups; g++)
        sums[g] = naive_group(c, by, g);
    for (int64_t e = 0; e < c->num_experts && groups > 0; e++) {
        int64_t before = 0;

        for (int64_t g = 0; g < groups; g++)
            before += sums[g] > sums[e / (c->num_experts / groups)];
        if (before >= c->moe_router_group_topk)
            by[e] = -INFINITY;
    }
    gpt_free(sums);
}

/* Leaves the scores of the K experts of the largest, with their bias, and 0 of
 * the others. */
static void naive_choose(const struct gpt_config *c, const float *bias,
                         double *score)
{
    double *by = gpt_alloc((size_t)c->num_experts, sizeof(*by));
    double sum = 0;

    for (int64_t e = 0; e < c->num_experts; e++)
        by[e] = score[e] + (bias ? (double)bias[e] : 0);
    naive_groups(c, by);
    for (int64_t e = 0; e < c->num_experts; e++) {
        int64_t before = 0;

        for (int64_t o = 0; o < c->num_experts; o++)
            before += by[o] > by[e];
        if (before >= c->moe_router_topk)
            score[e] = 0;
        sum += score[e];
    }
    for (int64_t e = 0; e < c->num_experts; e++)
        score[e] *= factor_of(c->moe_router_topk_scaling_factor) /
                    (c->moe_router_pre_softmax ? 1 : sum);
    gpt_free(by);
}

/* y (C) of a layer with experts, from x (C). */
static void naive_experts(const struct gpt_config *c, const struct gpt_roles *w,
                          const double *x, double *y)
{
    const int64_t n = c->hidden_size, f = c->moe_ffn_hidden_size;
    const int64_t in = c->gated ? 2 * f : f;
    const int64_t widest =
        gpt_max_i64(f, c->moe_shared_expert_intermediate_size);
    double *score = gpt_alloc((size_t)(c->num_experts + n + 1 + 2 * widest),
                              sizeof(*score));
    double *out = score + c->num_experts, *gate = out + n, *wide = gate + 1;
    struct gpt_config own = *c;

    naive_linear(x, w->at[GPT_ROUTER_WEIGHT], NULL, n, c->num_experts, score);
    naive_scores(c, score);
    naive_choose(c, w->at[GPT_ROUTER_BIAS], score);
    memset(y, 0, (size_t)n * sizeof(*y));
    own.ffn_hidden_size = f;
    for (int64_t e = 0; e < c->num_experts; e++) {
        float *fc1 = (float *)w->at[GPT_EXPERTS_FC1] + e * in * n;
        float *fc2 = (float *)w->at[GPT_EXPERTS_FC2] + e * n * f;
        struct gpt_roles expert = {.at = {NULL}};

        expert.at[GPT_GATE_WEIGHT] = fc1;
        expert.at[GPT_FC1_WEIGHT] = fc1 + (c->gated ? f * n : 0);
        expert.at[GPT_FC2_WEIGHT] = fc2;
        naive_feed_forward(&own, &expert, x, wide, out);
        for (int64_t k = 0; k < n; k++)
            y[k] += score[e] * out[k];
    }
    if (c->moe_shared_expert_intermediate_size > 0) {
        struct gpt_roles shared = {.at = {NULL}};

        shared.at[GPT_GATE_WEIGHT] = w->at[GPT_SHARED_GATE];
        shared.at[GPT_FC1_WEIGHT] = w->at[GPT_SHARED_FC1];
        shared.at[GPT_FC2_WEIGHT] = w->at[GPT_SHARED_FC2];
        own.ffn_hidden_size = c->moe_shared_expert_intermediate_size;
        naive_feed_forward(&own, &shared, x, wide, out);
        *gate = INFINITY;
        if (w->at[GPT_SHARED_ROUTER])
            naive_linear(x, w->at[GPT_SHARED_ROUTER], NULL, n, 1, gate);
        for (int64_t k = 0; k < n; k++)
            y[k] += logistic_of(*gate) * out[k];
    }
    gpt_free(score);
}

/* x (t, C) through one layer, in place. */
static void naive_layer(struct model *m, int64_t layer, int64_t t, double *x)
{
    const struct gpt_config *c = &m->c;
    int64_t d = c->head_size, n = c->hidden_size, f = c->ffn_hidden_size;
    int64_t heads = c->num_attention_heads * d, v = gpt_config_value_size(c);
    int64_t ld = heads + 2 * c->num_query_groups * d;
    struct gpt_roles w;

    gpt_roles_bind(&w, &m->flat, layer, m->w, GPT_F32);
    double *qkv = gpt_alloc((size_t)(t * ld), sizeof(*qkv));
    double *y = gpt_alloc((size_t)(3 * n + heads + 2 * f), sizeof(*y));
    double *att = y + n, *wide = att + heads, *normed = wide + 2 * f;
    double *sum = normed + n;
    for (int64_t i = 0; i < t; i++) {
        if (c->no_pre_norm)
            memcpy(y, x + i * n, (size_t)n * sizeof(*y));
        else
            naive_norm(x + i * n, w.at[GPT_NORM1_WEIGHT],
                       w.at[GPT_NORM1_BIAS], n, c, y);
        if (gpt_config_is_latent(c))
            naive_latent(c, &w, y, qkv + i * ld);
        else
            naive_linear(y, w.at[GPT_QKV_WEIGHT], w.at[GPT_QKV_BIAS], n, ld,
                         qkv + i * ld);
        naive_head_norms(c, &w, qkv + i * ld);
        naive_turn_layer(c, layer, qkv + i * ld, i, t);
    }
    for (int64_t i = 0; i < t; i++) {
        for (int64_t h = 0; h < c->num_attention_heads; h++)
            naive_head(c, qkv, i, h, first_seen(c, layer, i), att + h * v);
        naive_linear(att, w.at[GPT_PROJ_WEIGHT], w.at[GPT_PROJ_BIAS],
                     c->num_attention_heads * v, n, y);
        if (c->post_norm)
            naive_norm(y, w.at[GPT_POST1_WEIGHT], w.at[GPT_POST1_BIAS], n, c,
                       y);
        for (int64_t k = 0; k < n; k++)
            sum[k] = x[i * n + k] + y[k] * factor_of(c->residual_multiplier);
        bool shared = c->shared_norm;
        if (c->no_pre_norm)
            memcpy(normed, sum, (size_t)n * sizeof(*sum));
        else
            naive_norm(c->parallel_blocks ? x + i * n : sum,
                   w.at[shared ? GPT_NORM1_WEIGHT : GPT_NORM2_WEIGHT],
                   w.at[shared ? GPT_NORM1_BIAS : GPT_NORM2_BIAS], n, c,
                   normed);
        if (w.at[GPT_ROUTER_WEIGHT])
            naive_experts(c, &w, normed, y);
        else
            naive_feed_forward(c, &w, normed, wide, y);
        if (c->post_norm)
            naive_norm(y, w.at[GPT_POST2_WEIGHT], w.at[GPT_POST2_BIAS], n, c,
                       y);
        for (int64_t k = 0; k < n; k++)
            x[i * n + k] = sum[k] + y[k] * factor_of(c->residual_multiplier);
    }
    gpt_free(qkv);
    gpt_free(y);
}

/* logits (t, V) of a text. */
static double *naive_logits(struct model *m, const int32_t *tokens, int64_t t)
{
    const struct gpt_config *c = &m->c;
    int64_t n = c->hidden_size, v = c->vocab_size;
    struct gpt_roles w;

    gpt_roles_bind(&w, &m->flat, -1, m->w, GPT_F32);
    const float *wte = w.at[GPT_WORD_EMBEDDING];
    const float *wpe = w.at[GPT_POSITION_EMBEDDING];
    double *x = gpt_alloc((size_t)(t * n + n), sizeof(*x)), *y = x + t * n;
    double *logits = gpt_alloc((size_t)(t * v), sizeof(*logits));
    for (int64_t i = 0; i < t; i++)
        for (int64_t k = 0; k < n; k++)
            x[i * n + k] =
                (double)wte[tokens[i] * n + k] *
                    (c->scale_embedding ? sqrt((double)n)
                                        : factor_of(c->embedding_multiplier)) +
                (wpe ? (double)wpe[(i + c->position_offset) * n + k] : 0);
    for (int64_t i = 0; i < t && c->embedding_norm; i++)
        naive_norm(x + i * n, w.at[GPT_EMBEDDING_NORM_WEIGHT],
                   w.at[GPT_EMBEDDING_NORM_BIAS], n, c, x + i * n);
    for (int64_t l = 0; l < c->num_layers; l++)
        naive_layer(m, l, t, x);
    for (int64_t i = 0; i < t; i++) {
        naive_norm(x + i * n, w.at[GPT_FINAL_NORM_WEIGHT],
                   w.at[GPT_FINAL_NORM_BIAS], n, c, y);
        naive_linear(y, gpt_roles_output(&w), w.at[GPT_OUTPUT_BIAS], n, v,
                     logits + i * v);
    }
    for (int64_t i = 0; i < t * v; i++)
        logits[i] *= factor_of(c->logit_multiplier);
    for (int64_t i = 0; i < t * v && c->final_logit_softcapping > 0; i++)
        logits[i] = c->final_logit_softcapping *
                    tanh(logits[i] / c->final_logit_softcapping);
    gpt_free(x);
    return logits;
}

#endif
