/* Heads of attention; see heads.h. Norms of heads come before rotation, which
 * keeps lengths, and backward undoes the two in reverse. */
#include "model/heads.h"

#include "model/abilities.h"
#include "model/rotary.h"

#include <math.h>

/* The tensor that attention reads: qkv itself, where norms of heads and
 * rotation are in place. */
static void *heads_of(const struct gpt_layer_acts *acts)
{
    return acts->heads ? acts->heads : acts->qkv;
}

struct gpt_attn gpt_layer_attn(const struct gpt_layer *layer,
                               const struct gpt_pass *pass,
                               const struct gpt_layer_acts *acts)
{
    const struct gpt_config *c = pass->config;
    const struct gpt_widths *w = &pass->widths;
    /* Gemma 2 27B divides by the width over the heads, and not by the size of a
     * head, which is another number there */
    const double under =
        c->query_pre_attn_scalar > 0 ? c->query_pre_attn_scalar
                                     : (double)c->head_size;
    /* in generation a text may become as long as its place in the cache */
    const int64_t length = pass->cache ? pass->cache->t_max : pass->t;

    return (struct gpt_attn){
        .b = pass->b,
        .t = pass->t,
        .h = w->heads,
        .g = w->groups,
        .d = c->head_size,
        .head0 = w->heads * pass->layout->at[GPT_TP],
        .h_global = c->num_attention_heads, /* keys dropout and ALiBi */
        .scale = 1.0F / sqrtf((float)under),
        .alibi = gpt_alibi_of(c),
        .window = gpt_config_window(c, layer->number, length),
        .softcap = (float)c->attn_logit_softcapping,
        .act = pass->act,
        .qkv = heads_of(acts),
        .out = acts->att,
        .lse = acts->lse,
        .doc_start = pass->doc_start,
        .dropout =
            gpt_pass_dropout(pass, layer->attention_rng, c->attention_dropout),
    };
}

/* Turns the queries and keys of qkv by their positions, or their gradients
 * back. Layers may differ: some do not turn, and some have angles of their
 * own. */
static void apply_rope(const struct gpt_layer *layer,
                       const struct gpt_pass *pass, void *qkv, bool inverse)
{
    const struct gpt_config *c = pass->config;
    struct gpt_rope op = {
        .n = pass->n,
        .t = pass->t,
        .h = pass->widths.heads,
        .g = pass->widths.groups,
        .d = c->head_size,
        .act = pass->act,
        .inverse = inverse,
        .qkv = qkv,
        .positions = pass->positions,
    };

    if (!gpt_config_turns(c, layer->number))
        return;
    gpt_rotary_fill(&op, c, layer->number, pass->is_long);
    pass->be->rope(pass->q, &op);
}

/* Forward and backward take the same operation: backward computes statistics
 * again from `in`, which is why qkv is kept beside the heads. */
static struct gpt_head_norm head_norm_op(const struct gpt_layer *layer,
                                         const struct gpt_pass *pass,
                                         const struct gpt_layer_acts *acts)
{
    return (struct gpt_head_norm){
        .kind = (enum gpt_norm_kind)pass->config->normalization,
        .plus_one = pass->config->norm_plus_one,
        .n = pass->n,
        .h = pass->widths.heads,
        .g = pass->widths.groups,
        .d = pass->config->head_size,
        .eps = (float)pass->config->norm_epsilon,
        .act = pass->act,
        .in = acts->qkv,
        .out = heads_of(acts),
        .wq = layer->w.at[GPT_Q_NORM_WEIGHT],
        .bq = layer->w.at[GPT_Q_NORM_BIAS],
        .wk = layer->w.at[GPT_K_NORM_WEIGHT],
        .bk = layer->w.at[GPT_K_NORM_BIAS],
        .each = pass->config->qk_norm_each,
        .squares = pass->config->qk_norm_whole ? acts->squares : NULL,
        .h_all = pass->config->num_attention_heads,
        .g_all = pass->config->num_query_groups,
    };
}

/* Sums over the heads of all ranks, where these are normed together: the
 * squares, or what backward needs (dqkv). A row has two sums. */
static void sum_over_heads(const struct gpt_pass *pass,
                           const struct gpt_head_norm *norm, const void *dqkv,
                           float *sums)
{
    const struct gpt_collective call = {
        .kind = GPT_ALL_REDUCE,
        .out = sums,
        .in = sums,
        .n = 2 * pass->n,
        .type = GPT_F32,
    };

    pass->be->head_norm_sums(pass->q, norm, dqkv, sums);
    if (pass->tp)
        gpt_comm_call(pass->tp, pass->q, &call);
}

static void norm_heads(const struct gpt_layer *layer,
                       const struct gpt_pass *pass,
                       const struct gpt_layer_acts *acts)
{
    struct gpt_head_norm norm = head_norm_op(layer, pass, acts);

    /* before the norm, which may be in place */
    if (norm.squares)
        sum_over_heads(pass, &norm, NULL, acts->squares);
    if (pass->config->qk_norm)
        pass->be->head_norm(pass->q, &norm);
    else if (acts->heads)
        pass->be->copy(pass->q, acts->heads, acts->qkv,
                       (size_t)(pass->n * pass->widths.qkv) *
                           gpt_dtype_bytes(pass->act));
}

/* Limits what the product gave, in place: backward finds it so. */
static void clip(const struct gpt_pass *pass, const struct gpt_layer_acts *acts)
{
    const float limit = (float)pass->config->clip_qkv;

    if (limit > 0)
        pass->be->clip(pass->q, acts->qkv, pass->n * pass->widths.qkv, limit,
                       pass->act);
}

/* In generation both are in place: the cache takes what attention sees, and no
 * backward reads the product again. */
void gpt_heads_make(const struct gpt_layer *layer,
                    const struct gpt_pass *pass,
                    const struct gpt_layer_acts *acts)
{
    clip(pass, acts);
    /* turned in place, so that backward finds what was normed */
    if (pass->config->qk_norm_turned)
        apply_rope(layer, pass, acts->qkv, false);
    gpt_heads_make_again(layer, pass, acts);
}

void gpt_heads_make_again(const struct gpt_layer *layer,
                          const struct gpt_pass *pass,
                          const struct gpt_layer_acts *acts)
{
    norm_heads(layer, pass, acts);
    if (!pass->config->qk_norm_turned)
        apply_rope(layer, pass, heads_of(acts), false);
}

void gpt_heads_backward(const struct gpt_layer *layer,
                        const struct gpt_pass *pass,
                        const struct gpt_layer_acts *acts)
{
    struct gpt_head_norm norm = head_norm_op(layer, pass, acts);
    const struct gpt_head_norm_grad grad = {
        .dqkv = pass->work.dwide,
        .dots = pass->work.dots,
        .dwq = layer->dw.at[GPT_Q_NORM_WEIGHT],
        .dbq = layer->dw.at[GPT_Q_NORM_BIAS],
        .dwk = layer->dw.at[GPT_K_NORM_WEIGHT],
        .dbk = layer->dw.at[GPT_K_NORM_BIAS],
        .scratch = pass->work.scratch,
    };

    /* a rotation's transpose is the rotation back */
    if (!pass->config->qk_norm_turned)
        apply_rope(layer, pass, pass->work.dwide, true);
    if (norm.squares)
        sum_over_heads(pass, &norm, pass->work.dwide, pass->work.dots);
    if (pass->config->qk_norm)
        pass->be->head_norm_bwd(pass->q, &norm, &grad);
    if (pass->config->qk_norm_turned)
        apply_rope(layer, pass, pass->work.dwide, true);
    if (pass->config->clip_qkv > 0)
        pass->be->clip_bwd(pass->q, pass->work.dwide, acts->qkv,
                           pass->n * pass->widths.qkv,
                           (float)pass->config->clip_qkv, pass->act);
}

/* ---- values that are smaller than keys ---- */

/* In the rows of attention zeros follow each head's value (struct gpt_latent),
 * and so they do in its output. */
const void *gpt_heads_values(const struct gpt_pass *pass,
                             const struct gpt_layer_acts *acts)
{
    const struct gpt_config *c = pass->config;
    void *values = pass->work.latent.values;

    if (!values)
        return acts->att;
    pass->be->fit_columns(pass->q, values, gpt_config_value_size(c), acts->att,
                          c->head_size, pass->n * pass->widths.heads,
                          pass->act);
    return values;
}

void *gpt_heads_dvalues(const struct gpt_pass *pass)
{
    void *values = pass->work.latent.values;

    return values ? values : pass->work.dy;
}

void gpt_heads_spread(const struct gpt_pass *pass)
{
    const struct gpt_config *c = pass->config;
    const void *values = pass->work.latent.values;

    if (values)
        pass->be->fit_columns(pass->q, pass->work.dy, c->head_size, values,
                              gpt_config_value_size(c),
                              pass->n * pass->widths.heads, pass->act);
}

/* ---- attention ---- */

/* Attends for the texts of one run in one call; runs follow each other in the
 * rows. */
static void attend_run(const struct gpt_pass *pass, const struct gpt_attn *attn,
                       const struct gpt_pass_run *run, int64_t text,
                       int64_t row)
{
    const struct gpt_pass_cache *cache = pass->cache;
    const size_t element = gpt_dtype_bytes(attn->act);
    const struct gpt_attn_cached op = {
        .b = run->texts,
        .t_new = run->tokens,
        .h = attn->h,
        .g = attn->g,
        .d = attn->d,
        .head0 = attn->head0,
        .h_global = attn->h_global,
        .t_max = cache->t_max,
        .scale = attn->scale,
        .alibi = attn->alibi,
        .window = attn->window,
        .softcap = attn->softcap,
        .act = attn->act,
        .narrow_cache = cache->narrow,
        .qkv = (const char *)attn->qkv +
               (size_t)(row * pass->widths.qkv) * element,
        .out = (char *)attn->out +
               (size_t)(row * pass->widths.attention) * element,
        .k_cache = cache->k,
        .v_cache = cache->v,
        .pos = cache->pos + text,
        .len = cache->len + text,
        .slot = cache->slot + text,
    };

    pass->be->attn_cached(pass->q, &op);
}

/* Generation brings its own cache; the heads are those of training. */
void gpt_heads_attend(const struct gpt_layer *layer,
                      const struct gpt_pass *pass,
                      const struct gpt_layer_acts *acts)
{
    const struct gpt_attn attn = gpt_layer_attn(layer, pass, acts);
    int64_t text = 0, row = 0;

    if (!pass->cache) {
        pass->be->attn_fwd(pass->q, &attn);
        return;
    }
    for (int64_t i = 0; i < pass->cache->n_runs; i++) {
        const struct gpt_pass_run *run = &pass->cache->runs[i];

        attend_run(pass, &attn, run, text, row);
        text += run->texts;
        row += run->texts * run->tokens;
    }
}
