/* Compares decoding with the cache and a naive forward pass in double: every
 * position, several architectures, prompts longer than a block, texts of
 * different lengths together, slots that are used again. */
#include "model/abilities.h"
#include "model/weights.h"
#include "tests/lib/model.h"
#include "tests/lib/tap.h"

#include <assert.h>

/* ---- the naive forward pass ---- */

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

/* Queries and keys of a row of qkv, turned by position t. */
static void naive_turn(const struct gpt_config *c, double *qkv, int64_t t)
{
    int64_t per = c->num_attention_heads / c->num_query_groups + 2;
    int64_t d = c->head_size, half = d / 2;

    for (int64_t h = 0; h < c->num_query_groups * per; h++)
        for (int64_t i = 0; i < half && h % per < per - 1; i++) {
            double *x = qkv + h * d + i, a = x[0], b = x[half];
            double angle = (double)t * pow(c->rotary_base, -2.0 * (double)i /
                                                               (double)d);

            x[0] = a * cos(angle) - b * sin(angle);
            x[half] = b * cos(angle) + a * sin(angle);
        }
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

    for (int64_t s = from; s <= t; s++) {
        const double *key = qkv + s * ld + base + per * d;
        double dot = 0;

        for (int64_t i = 0; i < d; i++)
            dot += query[i] * key[i];
        dot /= sqrt(c->query_pre_attn_scalar > 0 ? c->query_pre_attn_scalar
                                                 : (double)d);
        dot = cap > 0 ? cap * tanh(dot / cap) : dot;
        if (c->position_embedding == GPT_POSITION_ALIBI)
            dot -= (double)(t - s) *
                   (double)gpt_alibi_slope(h, c->num_attention_heads);
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

        if (c->qk_norm && h % per < per - 1)
            naive_norm(x, w->at[key ? GPT_K_NORM_WEIGHT : GPT_Q_NORM_WEIGHT],
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

/* Heads of a layer at position t, turned as that layer turns them. */
static void naive_turn_layer(const struct gpt_config *c, int64_t layer,
                             double *qkv, int64_t t)
{
    struct gpt_config own = *c;

    if (c->rotary_local_base > 0 && first_seen(c, layer, 1 << 20) > 0)
        own.rotary_base = c->rotary_local_base;
    if (c->position_embedding == GPT_POSITION_ROPE &&
        (c->no_rope_freq == 0 || (layer + 1) % c->no_rope_freq != 0))
        naive_turn(&own, qkv, t);
}

static double factor_of(double x) { return x > 0 ? x : 1; }

/* x (t, C) through one layer, in place. */
static void naive_layer(struct model *m, int64_t layer, int64_t t, double *x)
{
    const struct gpt_config *c = &m->c;
    int64_t d = c->head_size, n = c->hidden_size, f = c->ffn_hidden_size;
    int64_t heads = c->num_attention_heads * d;
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
        naive_linear(y, w.at[GPT_QKV_WEIGHT], w.at[GPT_QKV_BIAS], n, ld,
                     qkv + i * ld);
        naive_head_norms(c, &w, qkv + i * ld);
        naive_turn_layer(c, layer, qkv + i * ld, i);
    }
    for (int64_t i = 0; i < t; i++) {
        for (int64_t h = 0; h < c->num_attention_heads; h++)
            naive_head(c, qkv, i, h, first_seen(c, layer, i), att + h * d);
        naive_linear(att, w.at[GPT_PROJ_WEIGHT], w.at[GPT_PROJ_BIAS], heads, n,
                     y);
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

/* ---- comparisons ---- */

/* The largest difference, relative to the largest logit. */
static double distance(const float *a, const double *b, int64_t n)
{
    double most = 0, scale = 0;

    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)a[i] - b[i]);

        most = off <= most ? most : off; /* NaN gets through */
        scale = fmax(scale, fabs(b[i]));
    }
    return most / scale;
}

static void make_text(int32_t *tokens, int64_t n, int64_t vocab, int salt)
{
    struct gpt_rng rng = gpt_rng_open((uint64_t)salt, "text");

    for (int64_t i = 0; i < n; i++)
        tokens[i] =
            (int32_t)(gpt_rng_u32(rng, (uint64_t)i) % (uint32_t)vocab);
}

/* Every way to bring t tokens into a slot gives the naive logits. */
static void test_forms(struct model *m, const char *what, int64_t t)
{
    int64_t v = m->c.vocab_size;
    int32_t *tokens = gpt_alloc((size_t)t, sizeof(*tokens));

    make_text(tokens, t, v, 1);
    double *want = naive_logits(m, tokens, t);
    float *got = gpt_alloc((size_t)(t * v), sizeof(*got));
    struct gpt_decoder *d = decoder_of(m, 3, t);
    struct gpt_err err = {0};
    int32_t slot = 2;

    must(gpt_decoder_append(d, slot, tokens, t, GPT_LOGITS_ALL, got, &err),
         &err);
    double off = distance(got, want, t * v);
    ok(off < 1e-4, "%s: whole text at once: %.1e", what, off);

    gpt_decoder_truncate(d, slot, 0);
    for (int64_t i = 0; i < t; i++)
        must(gpt_decoder_step(d, &slot, tokens + i, 1, got + i * v, &err),
             &err);
    off = distance(got, want, t * v);
    ok(off < 1e-4, "%s: one by one: %.1e", what, off);

    int64_t cut = t / 3 + 1;
    gpt_decoder_truncate(d, slot, cut);
    must(gpt_decoder_append(d, slot, tokens + cut, t - cut, GPT_LOGITS_LAST,
                            got, &err),
         &err);
    off = distance(got, want + (t - 1) * v, v);
    ok(off < 1e-4, "%s: cut back and appended: %.1e", what, off);
    is_int(gpt_decoder_length(d, slot), t, "%s: length", what);
    gpt_decoder_close(d);
    gpt_free(tokens);
    gpt_free(want);
    gpt_free(got);
}

/* Texts of lengths 1, 4, 7... advance together; each one's logits are, to the
 * bit, those that it has alone. */
static void test_side_by_side(struct model *m)
{
    enum { N = 5, STEPS = 6, T = 32 };
    int64_t v = m->c.vocab_size;
    int32_t text[N][T], slots[N], next[N];
    float *together = gpt_alloc((size_t)(N * v), sizeof(*together));
    float *alone = gpt_alloc((size_t)v, sizeof(*alone));
    struct gpt_decoder *d = decoder_of(m, N, T), *one = decoder_of(m, 1, T);
    struct gpt_err err = {0};
    int differ = 0;
    for (int i = 0; i < N; i++) {
        make_text(text[i], T, v, 10 + i);
        slots[i] = (i * 2 + 1) % N;
        must(gpt_decoder_append(d, slots[i], text[i], 1 + 3 * i,
                                GPT_LOGITS_LAST, together, &err),
             &err);
    }
    for (int s = 0; s < STEPS; s++) {
        for (int i = 0; i < N; i++)
            next[i] = text[i][1 + 3 * i + s];
        must(gpt_decoder_step(d, slots, next, N, together, &err), &err);
        for (int i = 0; i < N; i++) {
            gpt_decoder_truncate(one, 0, 0);
            must(gpt_decoder_append(one, 0, text[i], 1 + 3 * i,
                                    GPT_LOGITS_LAST, alone, &err),
                 &err);
            int32_t slot = 0;
            for (int k = 0; k <= s; k++)
                must(gpt_decoder_step(one, &slot, text[i] + 1 + 3 * i + k, 1,
                                      alone, &err),
                     &err);
            differ += memcmp(alone, together + i * v,
                             (size_t)v * sizeof(*alone)) != 0;
        }
    }
    is_int(differ, 0, "texts side by side do not touch each other");
    gpt_decoder_close(d);
    gpt_decoder_close(one);
    gpt_free(together);
    gpt_free(alone);
}

/* Pieces of any length in one call, some longer than a block, have the bits
 * that each of them has alone. */
static void test_pieces(struct model *m)
{
    enum { N = 9, T = 300, SUM = 923 };
    static const int64_t lengths[N] = {3, 40, 1, 17, 300, 16, 200, 256, 90};
    const int64_t v = m->c.vocab_size;
    int32_t *text = gpt_alloc(N * T, sizeof(*text));
    float *together = gpt_alloc((size_t)(SUM * v), sizeof(*together));
    float *alone = gpt_alloc((size_t)(T * v), sizeof(*alone));
    struct gpt_decoder *d = decoder_of(m, N, T), *one = decoder_of(m, 1, T);
    struct gpt_decode_piece pieces[N];
    struct gpt_err err = {0};
    int64_t row = 0;
    int differ = 0, last = 0;

    for (int i = 0; i < N; i++) {
        make_text(text + i * T, T, v, 50 + i);
        pieces[i] = (struct gpt_decode_piece){(i * 2 + 1) % N, lengths[i],
                                              text + i * T};
    }
    must(gpt_decoder_extend(d, pieces, N, GPT_LOGITS_ALL, together, &err),
         &err);
    for (int i = 0; i < N; i++) {
        const size_t bytes = (size_t)(lengths[i] * v) * sizeof(*alone);

        gpt_decoder_truncate(one, 0, 0);
        must(gpt_decoder_append(one, 0, pieces[i].tokens, lengths[i],
                                GPT_LOGITS_ALL, alone, &err),
             &err);
        differ += memcmp(alone, together + row * v, bytes) != 0;
        row += lengths[i];
        memcpy(alone, together + (row - 1) * v, (size_t)v * sizeof(*alone));
        memmove(together + i * v, alone, (size_t)v * sizeof(*alone));
        gpt_decoder_truncate(d, pieces[i].slot, 0);
    }
    is_int(differ, 0, "pieces side by side do not touch each other");
    float *ends = together + N * v;
    must(gpt_decoder_extend(d, pieces, N, GPT_LOGITS_LAST, ends, &err), &err);
    last = memcmp(together, ends, (size_t)(N * v) * sizeof(*ends));
    is_int(last, 0, "and their last logits alone are the same");
    gpt_decoder_close(d);
    gpt_decoder_close(one);
    gpt_free(text);
    gpt_free(together);
    gpt_free(alone);
}

/* Weights in a form; NULL: floats, as they are. */
static struct gpt_quant_store *store_of(struct model *m,
                                        struct gpt_quant_form form)
{
    struct gpt_quant_store *store = NULL;
    struct gpt_err err = {0};

    if (!gpt_quant_store_wanted(m->be, form))
        return NULL;
    must(gpt_quant_store_open(&store, m->be, &m->flat, form, &err), &err);
    for (int64_t i = 0; i < m->flat.n; i++)
        must(gpt_quant_store_put(store, i, m->w + m->flat.slices[i].offset,
                                 &err),
             &err);
    return store;
}

/* A prompt of several chunks has the bits that it has when its first chunk is
 * in the slot already, copied from another text or put in by a call of its own.
 */
static void test_cuts(struct model *m, struct gpt_quant_form form,
                      bool narrow_cache)
{
    enum { T = 512 };
    static const int64_t lengths[] = {264, 272, 273, 300, 511, 512};
    const int64_t v = m->c.vocab_size;
    int32_t text[T];
    float *whole = gpt_alloc((size_t)v, sizeof(*whole));
    float *cut = gpt_alloc((size_t)v, sizeof(*cut));
    struct gpt_quant_store *store = store_of(m, form);
    const struct gpt_decoder_options o = {.config = &m->c,
                                          .flat = &m->flat,
                                          .act = GPT_F32,
                                          .slots = 1,
                                          .positions = T,
                                          .narrow_cache = narrow_cache,
                                          .quant = store};
    struct gpt_decoder *d = NULL;
    struct gpt_err err = {0};
    int differ = 0;

    must(gpt_decoder_open(&d, m->be, &o, m->device, &err), &err);
    make_text(text, T, v, 90);
    for (size_t i = 0; i < GPT_COUNT(lengths); i++) {
        const int64_t n = lengths[i] - GPT_DECODE_CHUNK;

        gpt_decoder_truncate(d, 0, 0);
        must(gpt_decoder_append(d, 0, text, lengths[i], GPT_LOGITS_LAST, whole,
                                &err),
             &err);
        gpt_decoder_truncate(d, 0, 0);
        must(gpt_decoder_append(d, 0, text, GPT_DECODE_CHUNK, GPT_LOGITS_LAST,
                                cut, &err),
             &err);
        must(gpt_decoder_append(d, 0, text + GPT_DECODE_CHUNK, n,
                                GPT_LOGITS_LAST, cut, &err),
             &err);
        differ += memcmp(whole, cut, (size_t)v * sizeof(*cut)) != 0;
    }
    is_int(differ, 0, "%s-%lld: a prompt's bits do not depend on its cuts",
           gpt_dtype_name(form.type), (long long)form.group);
    gpt_decoder_close(d);
    gpt_quant_store_close(store);
    gpt_free(whole);
    gpt_free(cut);
}

/* Rows of products, in the order of calls. */
static struct {
    int64_t m[64], n;
} shapes;

static void note_shape(struct gpt_queue *q, const struct gpt_matmul *op)
{
    (void)q;
    assert(shapes.n < (int64_t)GPT_COUNT(shapes.m));
    shapes.m[shapes.n++] = op->m;
}

/* Where sums follow the shapes of products, what comes after a chunk has the
 * same shapes whether that chunk is there already or not. */
static void test_shapes(struct model *m)
{
    enum { T = 500 };
    int32_t text[T];
    float *logits = gpt_alloc((size_t)m->c.vocab_size, sizeof(*logits));
    struct gpt_backend be = *m->be, *own = m->be;
    struct gpt_err err = {0};

    be.abilities &= ~(unsigned)GPT_CAN_CHOOSE_SUMS;
    be.matmul = note_shape;
    m->be = &be;
    struct gpt_decoder *d = decoder_of(m, 1, T);
    shapes.n = 0;
    make_text(text, T, m->c.vocab_size, 91);
    must(gpt_decoder_append(d, 0, text, T, GPT_LOGITS_LAST, logits, &err),
         &err);
    const int64_t whole = shapes.n;
    gpt_decoder_truncate(d, 0, GPT_DECODE_CHUNK);
    must(gpt_decoder_append(d, 0, text + GPT_DECODE_CHUNK, T - GPT_DECODE_CHUNK,
                            GPT_LOGITS_LAST, logits, &err),
         &err);
    const int64_t rest = shapes.n - whole;
    ok(rest < whole && memcmp(shapes.m + whole - rest, shapes.m + whole,
                              (size_t)rest * sizeof(*shapes.m)) == 0,
       "shapes do not depend on what is copied");
    gpt_decoder_close(d);
    m->be = own;
    gpt_free(logits);
}

/* What is guessed is checked with the bits that the tokens have one by one,
 * also beside texts with other numbers of guesses. */
static void test_few_at_once(struct model *m)
{
    enum { N = 3, T = 32 };
    const int64_t v = m->c.vocab_size;
    int32_t text[N][T];
    float *together = gpt_alloc((size_t)(N * T * v), sizeof(*together));
    float *alone = gpt_alloc((size_t)v, sizeof(*alone));
    struct gpt_decoder *d = decoder_of(m, N, T), *one = decoder_of(m, 1, T);
    struct gpt_decode_piece pieces[N];
    struct gpt_err err = {0};
    int64_t row = 0;
    int differ = 0;

    for (int i = 0; i < N; i++) {
        make_text(text[i], T, v, 70 + i);
        pieces[i] = (struct gpt_decode_piece){
            i, i == 1 ? 3 : GPT_DECODE_SAME_BITS, text[i] + 9 + i};
        must(gpt_decoder_append(d, i, text[i], 9 + i, GPT_LOGITS_LAST, alone,
                                &err),
             &err);
    }
    must(gpt_decoder_extend(d, pieces, N, GPT_LOGITS_ALL, together, &err),
         &err);
    const int32_t slot = 0;
    for (int i = 0; i < N; i++) {
        gpt_decoder_truncate(one, 0, 0);
        must(gpt_decoder_append(one, 0, text[i], 9 + i, GPT_LOGITS_LAST, alone,
                                &err),
             &err);
        for (int64_t k = 0; k < pieces[i].n; k++, row++) {
            must(gpt_decoder_step(one, &slot, pieces[i].tokens + k, 1, alone,
                                  &err),
                 &err);
            differ += memcmp(alone, together + row * v,
                             (size_t)v * sizeof(*alone)) != 0;
        }
    }
    is_int(differ, 0, "a few tokens at once are as one by one");
    gpt_decoder_close(d);
    gpt_decoder_close(one);
    gpt_free(together);
    gpt_free(alone);
}

static void test_together(struct model *m, bool pieces)
{
    test_side_by_side(m);
    test_few_at_once(m);
    if (pieces) {
        test_pieces(m);
        test_shapes(m);
        test_cuts(m, (struct gpt_quant_form){.type = GPT_F32}, false);
        test_cuts(m, (struct gpt_quant_form){.type = GPT_F32}, true);
        for (int i = 0; i < 2; i++) {
            test_cuts(m, (struct gpt_quant_form){GPT_BF16, 0, i}, i);
            test_cuts(m, (struct gpt_quant_form){GPT_I8, 0, i}, i);
            test_cuts(m, (struct gpt_quant_form){GPT_I8, 32, i}, i);
        }
    }
}

static void test_refusals(struct model *m)
{
    struct gpt_decoder *d = decoder_of(m, 2, 8);
    int32_t tokens[9] = {0}, bad[2] = {1, (int32_t)m->c.vocab_size};
    int32_t slot = 1, negative = -1;
    float *logits = gpt_alloc((size_t)m->c.vocab_size, sizeof(*logits));
    struct gpt_err err = {0};

    is_int(gpt_decoder_append(d, 1, bad, 2, GPT_LOGITS_LAST, logits, &err),
           GPT_EDATA, "a dummy row's id is refused");
    ok(strstr(err.text, "vocabulary") != NULL, "saying so: %s", err.text);
    is_int(gpt_decoder_step(d, &slot, &negative, 1, logits, &err), GPT_EDATA,
           "a negative id is refused");
    is_int(gpt_decoder_append(d, 1, tokens, 9, GPT_LOGITS_LAST, logits, &err),
           GPT_EDATA, "a text longer than its slot is refused");
    is_int(gpt_decoder_length(d, 1), 0, "the slot stays as it was");
    is_int(gpt_decoder_append(d, 1, tokens, 8, GPT_LOGITS_LAST, logits, &err),
           GPT_OK, "one as long as the slot is not");
    is_int(gpt_decoder_step(d, &slot, tokens, 1, logits, &err), GPT_EDATA,
           "and then it is full");
    gpt_decoder_close(d);
    gpt_free(logits);

    const struct {
        int64_t slots, positions;
    } wrong[] = {{0, 8}, {1, 0}, {1, m->c.max_positions + 1}, {70000, 8}};
    for (size_t i = 0; i < GPT_COUNT(wrong); i++) {
        struct gpt_decoder_options o = {
            .config = &m->c,
            .flat = &m->flat,
            .act = GPT_F32,
            .slots = wrong[i].slots,
            .positions = wrong[i].positions,
        };

        d = NULL;
        is_int(gpt_decoder_open(&d, m->be, &o, m->device, &err), GPT_EUSAGE,
               "%lld slots of %lld are refused", (long long)wrong[i].slots,
               (long long)wrong[i].positions);
    }
}

/* Keys and values in bf16 take half the memory, where a backend has them. */
static void test_cache_ability(struct model *m)
{
    struct gpt_decoder_options o = {
        .config = &m->c, .flat = &m->flat, .act = GPT_F32, .slots = 2,
        .positions = 40};
    struct gpt_backend be = *m->be;
    struct gpt_decoder *d = NULL;
    struct gpt_err err = {0};
    int64_t wide = 0, narrow = 0;

    must(gpt_decoder_memory(&wide, &o, &err), &err);
    o.narrow_cache = true;
    must(gpt_decoder_memory(&narrow, &o, &err), &err);
    is_int(wide - narrow,
           2 * 2 * gpt_cache_rows(40) * m->c.num_layers *
               m->c.num_query_groups * m->c.head_size * 2,
           "two bytes less for each key and value");
    be.abilities &= ~(unsigned)GPT_CAN_NARROW_CACHE;
    is_int(gpt_decoder_open(&d, &be, &o, m->device, &err), GPT_EDEVICE,
           "a device without them refuses keys and values in bf16");
    ok(strstr(err.text, "keys and values") != NULL, "by name: %s", err.text);
}

/* A backend says what it computes; a model that asks for more is refused. */
static void test_abilities(struct model *m)
{
    static const struct {
        enum gpt_ability ability;
        const char *field;
        struct gpt_config c;
    } rows[] = {
        {GPT_CAN_WINDOW, "window_size", {.num_layers = 1, .window_size = 3}},
        {GPT_CAN_CAP, "attn_logit_softcapping", {.attn_logit_softcapping = 1}},
        {GPT_CAN_CAP, "final_logit_softcapping",
         {.final_logit_softcapping = 1}},
        {GPT_CAN_SCALE_WORDS, "scale_embedding", {.scale_embedding = true}},
        {GPT_CAN_SCALE_WORDS, "embedding_multiplier",
         {.embedding_multiplier = 2}},
        {GPT_CAN_NORM_WIDE, "qk_norm_whole", {.qk_norm_whole = true}},
    };
    struct gpt_backend be = *m->be;

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        const struct gpt_config c = rows[i].c;
        struct gpt_err err = {0};

        be.abilities = ~(unsigned)rows[i].ability;
        is_int(gpt_abilities_check(&c, 9, &be, &err), GPT_EDEVICE,
               "a device without it refuses %s", rows[i].field);
        ok(strstr(err.text, rows[i].field) != NULL, "by name: %s", err.text);
        be.abilities = rows[i].ability;
        is_int(gpt_abilities_check(&c, 9, &be, &err), GPT_OK,
               "and one with it does not");
    }
    be.abilities = 0;
    is_int(gpt_abilities_check(&rows[0].c, 4, &be, NULL), GPT_OK,
           "a window that is as long as all texts is none");
    test_cache_ability(m);
}

static const struct {
    const char *what;
    int64_t l, c, h, g, d, f, v;
    bool tied;
    int64_t t;
    enum gpt_position_embedding positions;
    struct gpt_config variant; /* fields of variants alone */
} models[] = {
    {"plain", 2, 32, 4, 4, 8, 128, 61, true, 40, GPT_POSITION_LEARNED,
     {0}},
    {"query groups", 2, 48, 6, 2, 8, 96, 64, true, 19,
     GPT_POSITION_LEARNED, {0}},
    {"one group, own output", 1, 24, 4, 1, 6, 40, 33, false, 11,
     GPT_POSITION_LEARNED, {0}},
    {"odd sizes", 3, 21, 3, 3, 5, 13, 7, false, 9, GPT_POSITION_LEARNED,
     {0}},
    {"longer than a block", 1, 16, 2, 2, 8, 32, 20, true, 300,
     GPT_POSITION_LEARNED, {0}},
    {"rotary", 2, 32, 4, 2, 8, 64, 61, true, 290, GPT_POSITION_ROPE, {0}},
    {"alibi", 2, 24, 6, 3, 4, 64, 61, true, 290, GPT_POSITION_ALIBI, {0}},
    {"llama", 2, 30, 6, 2, 8, 64, 61, true, 290, GPT_POSITION_ROPE,
     {.normalization = GPT_RMSNORM, .activation = GPT_SILU, .gated = true,
      .no_linear_bias = true, .qkv_bias = true, .qk_norm = true}},
    {"gated, odd sizes", 2, 21, 3, 3, 6, 13, 61, true, 19,
     GPT_POSITION_ROPE,
     {.gated = true, .norm_plus_one = true, .qk_norm = true}},
    {"neox", 2, 30, 3, 3, 8, 64, 61, true, 19, GPT_POSITION_ROPE,
     {.activation = GPT_GELU_EXACT, .parallel_blocks = true}},
    {"falcon", 2, 30, 3, 1, 8, 64, 61, true, 19, GPT_POSITION_ROPE,
     {.activation = GPT_GELU_EXACT, .parallel_blocks = true,
      .shared_norm = true, .no_linear_bias = true}},
    {"gemma2", 3, 30, 6, 3, 8, 64, 61, true, 290, GPT_POSITION_ROPE,
     {.normalization = GPT_RMSNORM, .norm_plus_one = true, .gated = true,
      .no_linear_bias = true, .post_norm = true, .scale_embedding = true,
      .window_size = 20, .window_attn_skip_freq = 2,
      .attn_logit_softcapping = 2, .final_logit_softcapping = 3,
      .query_pre_attn_scalar = 11}},
    {"window over late layers", 3, 24, 4, 1, 6, 40, 33, false, 70,
     GPT_POSITION_ROPE, {.window_size = 3, .window_full_layers = 1}},
    {"olmo2", 2, 30, 6, 3, 8, 64, 61, false, 290, GPT_POSITION_ROPE,
     {.normalization = GPT_RMSNORM, .activation = GPT_SILU, .gated = true,
      .no_linear_bias = true, .post_norm = true, .no_pre_norm = true,
      .qk_norm = true, .qk_norm_whole = true}},
    {"bloom", 2, 24, 6, 6, 4, 64, 61, true, 40, GPT_POSITION_ALIBI,
     {.embedding_norm = true}},
    {"opt", 2, 24, 6, 6, 4, 64, 61, true, 40, GPT_POSITION_LEARNED,
     {.position_offset = 2}},
    {"gptj", 2, 30, 3, 3, 8, 64, 61, false, 19, GPT_POSITION_ROPE,
     {.parallel_blocks = true, .shared_norm = true, .output_bias = true,
      .no_attention_bias = true}},
    {"cohere2", 3, 30, 6, 3, 8, 64, 61, true, 290, GPT_POSITION_ROPE,
     {.activation = GPT_SILU, .gated = true, .no_linear_bias = true,
      .no_norm_bias = true, .parallel_blocks = true, .shared_norm = true,
      .window_size = 20, .window_attn_skip_freq = 2, .no_rope_freq = 2,
      .logit_multiplier = 0.3}},
    {"granite, local base", 3, 24, 4, 1, 6, 40, 33, false, 70,
     GPT_POSITION_ROPE,
     {.normalization = GPT_RMSNORM, .window_size = 3,
      .window_attn_skip_freq = 3, .rotary_local_base = 10,
      .embedding_multiplier = 3, .residual_multiplier = 0.3,
      .logit_multiplier = 0.5}},
};

int main(void)
{
    for (size_t i = 0; i < GPT_COUNT(models); i++) {
        struct model m;
        const struct gpt_config *v = &models[i].variant;
        struct gpt_config c = *v;

        c.num_layers = models[i].l;
        c.hidden_size = models[i].c;
        c.num_attention_heads = models[i].h;
        c.num_query_groups = models[i].g;
        c.head_size = models[i].d;
        c.ffn_hidden_size = models[i].f;
        c.max_positions = 512;
        c.position_embedding = models[i].positions;
        c.rotary_base = 10000;
        c.rotary_percent = 1;
        c.vocab_size = models[i].v;
        c.norm_epsilon = 1e-5;
        c.init_std = 0.02;
        c.tied_embeddings = models[i].tied;

        open_model(&m, c);
        test_forms(&m, models[i].what, models[i].t);
        test_together(&m, models[i].t == 290);
        if (i == 0)
            test_refusals(&m);
        if (i == 0)
            test_abilities(&m);
        close_model(&m);
    }
    return tap_done();
}
