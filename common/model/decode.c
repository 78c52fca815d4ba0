/* The forward pass for generation; see decode.h. Start at forward_block(): it
 * is the layers of stage.c with attention against the cache, in place, over a
 * block of rows that are either consecutive tokens of one text or the next
 * tokens of several. decode_open.c makes the decoder. */
#include "model/decode_internal.h"

#include "base/num.h"
#include "model/norm_site.h"

#include <assert.h>

/* ---- the pass ---- */

/* Rows and positions are copied first, on the same queue, so no wait is needed
 * before the lookup. */
static void embed_tokens(struct gpt_decoder *d, int64_t n)
{
    const struct gpt_config *c = d->o.config;
    size_t bytes = (size_t)n * sizeof(int32_t);

    d->be->copy_in(d->q, d->buffers[GPT_DECODE_TOKENS], d->tokens, bytes);
    d->be->copy_in(d->q, d->buffers[GPT_DECODE_POSITIONS], d->rows_pos, bytes);
    struct gpt_embed op = {
        .n = n,
        .c = c->hidden_size,
        .v_local = c->padded_vocab_size,
        .act = d->o.act,
        .tokens = d->buffers[GPT_DECODE_TOKENS],
        .positions = d->buffers[GPT_DECODE_POSITIONS],
        .wte = d->outer.at[GPT_WORD_EMBEDDING],
        .wpe = gpt_roles_positions(&d->outer, c, gpt_dtype_bytes(d->o.act)),
        .scale = gpt_config_word_scale(c),
        .quant = gpt_roles_quant(&d->outer, GPT_WORD_EMBEDDING),
        .out = d->buffers[GPT_DECODE_RESIDUAL],
    };
    d->be->embed_fwd(d->q, &op);
}

/* The norm after the embedding, where there is one: normed rows become the
 * stream. */
static void norm_embedded(struct gpt_decoder *d, const struct gpt_pass *pass,
                          const struct gpt_norm_acts *acts)
{
    const struct gpt_norm_site site = {
        .acts = acts,
        .w = d->outer.at[GPT_EMBEDDING_NORM_WEIGHT],
        .b = d->outer.at[GPT_EMBEDDING_NORM_BIAS],
    };

    if (!site.w)
        return;
    /* by way of the other buffer: a norm's output may not be its input */
    gpt_norm_site_forward(pass, &site, acts->r);
    d->be->copy(d->q, acts->r, acts->y,
                (size_t)(pass->n * pass->widths.hidden) *
                    gpt_dtype_bytes(d->o.act));
}

/* Embedding, layers and final norm over b texts with t tokens each, as
 * d->tokens, rows_pos, pos, len and slot say. Leaves the normed rows in
 * buffers[GPT_DECODE_NORMED]. All layers use the same buffers, the residual
 * stream is updated in place. */
static void forward_block(struct gpt_decoder *d, int64_t b, int64_t t)
{
    static const struct gpt_rng no_rng; /* dropout is off: never drawn from */
    struct gpt_norm_acts norm = {
        .r = d->buffers[GPT_DECODE_RESIDUAL],
        .y = d->buffers[GPT_DECODE_NORMED],
        .mean = d->buffers[GPT_DECODE_MEAN],
        .rstd = d->buffers[GPT_DECODE_RSTD],
    };
    /* without norms, blocks read the stream itself */
    struct gpt_norm_acts pre = {
        .r = norm.r,
        .y = d->o.config->no_pre_norm ? norm.r : norm.y,
        .mean = norm.mean,
        .rstd = norm.rstd,
    };
    /* what a block read is done with when its output comes, to be normed */
    const struct gpt_norm_acts post = {
        .r = norm.y,
        .mean = norm.mean,
        .rstd = norm.rstd,
    };
    /* norms share their buffers: nothing is kept for a backward */
    struct gpt_layer_acts acts = {
        .norm1 = pre,
        .norm2 = pre,
        .post1 = post,
        .post2 = post,
        .squares = d->buffers[GPT_DECODE_SQUARES],
        .qkv = d->buffers[GPT_DECODE_QKV],
        .att = d->buffers[GPT_DECODE_ATTENTION],
        .pre = d->buffers[GPT_DECODE_FFN_IN],
        .activated = d->buffers[GPT_DECODE_FFN],
    };
    struct gpt_attn_cached cache = {
        .b = b,
        .t_new = t,
        .t_max = d->o.positions,
        .k_cache = d->buffers[GPT_DECODE_KEYS],
        .v_cache = d->buffers[GPT_DECODE_VALUES],
        .pos = d->pos,
        .len = d->len,
        .slot = d->slot,
    };
    struct gpt_pass pass = {
        .be = d->be,
        .q = d->q,
        .config = d->o.config,
        .layout = &d->layout,
        .widths = gpt_widths_of(d->o.config, 1),
        .act = d->o.act,
        .b = b,
        .t = t,
        .n = b * t,
        .rows = b * t,
        .cache = &cache,
        .positions = d->buffers[GPT_DECODE_POSITIONS],
        .work.x = d->buffers[GPT_DECODE_BLOCK],
    };

    embed_tokens(d, b * t);
    norm_embedded(d, &pass, &norm);
    for (int64_t l = 0; l < d->o.config->num_layers; l++) {
        /* from the second layer on, the first norm adds the block before */
        gpt_layer_forward(&d->layers[l], &pass, &acts, norm.r,
                          l > 0 ? &no_rng : NULL);
        cache.k_cache = (char *)cache.k_cache + d->layer_cache_bytes;
        cache.v_cache = (char *)cache.v_cache + d->layer_cache_bytes;
    }
    struct gpt_norm_site last = {
        .acts = &norm,
        .w = d->outer.at[GPT_FINAL_NORM_WEIGHT],
        .b = d->outer.at[GPT_FINAL_NORM_BIAS],
        .x_rng = &no_rng,
    };
    gpt_norm_site_forward(&pass, &last, norm.r);
}

/* Logits of normed rows first..first+n to host memory. All turns share one
 * buffer of logits. The queue copies a turn out before it computes the next
 * one. */
static void write_logits(struct gpt_decoder *d, int64_t first, int64_t n,
                         float *logits)
{
    const struct gpt_config *c = d->o.config;
    struct gpt_matmul op = {
        .m = n,
        .n = c->vocab_size, /* dummy rows come last: they are left out */
        .k = c->hidden_size,
        .tb = true,
        .a = (char *)d->buffers[GPT_DECODE_NORMED] +
            (size_t)(first * c->hidden_size) * gpt_dtype_bytes(d->o.act),
        .b = gpt_roles_output(&d->outer),
        .c = d->buffers[GPT_DECODE_LOGITS],
        .act = d->o.act,
        .c_type = GPT_F32,
        .quant =
            gpt_roles_quant(&d->outer, gpt_roles_output_role(&d->outer)),
    };

    d->be->matmul(d->q, &op);
    if (c->final_logit_softcapping > 0)
        d->be->softcap(d->q, d->buffers[GPT_DECODE_LOGITS], NULL,
                       n * c->vocab_size, (float)c->final_logit_softcapping,
                       GPT_F32);
    d->be->copy_out(d->q, logits, d->buffers[GPT_DECODE_LOGITS],
                    (size_t)(n * c->vocab_size) * sizeof(float));
}

/* ---- adding tokens ---- */

/* An id past the vocabulary would read past the word table. */
static int check_token(const struct gpt_decoder *d, int32_t token,
                       struct gpt_err *err)
{
    if (token < 0 || token >= d->o.config->vocab_size)
        return gpt_fail(err, GPT_EDATA,
                        "token id %d is outside the vocabulary of %lld", token,
                        (long long)d->o.config->vocab_size);
    return GPT_OK;
}

/* Positions of a slot are fixed when the decoder opens; a longer text would
 * write into the cache of the next slot. */
static int check_room(const struct gpt_decoder *d, int64_t slot, int64_t n,
                      struct gpt_err *err)
{
    if (n > d->o.positions - d->length[slot])
        return gpt_fail(err, GPT_EDATA,
                        "a text of %lld tokens, but there are %lld positions",
                        (long long)(d->length[slot] + n),
                        (long long)d->o.positions);
    return GPT_OK;
}

/* One block of consecutive tokens through the layers. The length grows when the
 * block is on the queue: the next block of the same text begins after it. */
static void append_block(struct gpt_decoder *d, int64_t slot,
                         const int32_t *tokens, int64_t n)
{
    int32_t start = d->length[slot];

    for (int64_t i = 0; i < n; i++) {
        d->tokens[i] = tokens[i];
        d->rows_pos[i] = start + (int32_t)i;
    }
    assert(n <= gpt_decoder_rows(&d->o));
    d->pos[0] = start;
    d->len[0] = (int32_t)n;
    d->slot[0] = (int32_t)slot;
    forward_block(d, 1, n);
    d->length[slot] += (int32_t)n;
}

int gpt_decoder_append(struct gpt_decoder *d, int64_t slot,
                       const int32_t *tokens, int64_t n, enum gpt_logits which,
                       float *logits, struct gpt_err *err)
{
    /* all checks before any work: a refused text leaves the slot as it was */
    GPT_TRY(check_room(d, slot, n, err));
    for (int64_t i = 0; i < n; i++)
        GPT_TRY(check_token(d, tokens[i], err));
    int32_t before = d->length[slot];
    int status = GPT_OK;
    for (int64_t at = 0; at < n && status == GPT_OK; at += GPT_DECODE_CHUNK) {
        int64_t rows = gpt_min_i64(GPT_DECODE_CHUNK, n - at);

        append_block(d, slot, tokens + at, rows);
        if (which == GPT_LOGITS_LAST && at + rows == n)
            write_logits(d, rows - 1, 1, logits);
        for (int64_t i = 0; which == GPT_LOGITS_ALL && i < rows;
             i += GPT_DECODE_LOGIT_ROWS)
            write_logits(d, i, gpt_min_i64(GPT_DECODE_LOGIT_ROWS, rows - i),
                         logits + (at + i) * d->o.config->vocab_size);
        /* the next block fills the host arrays again, so this one is waited for
         */
        status = d->be->sync(d->q, err);
    }
    /* what blocks before have put into the cache is overwritten later */
    if (status != GPT_OK)
        d->length[slot] = before;
    return status;
}

/* Reads the weights once for all texts: that is what makes several texts cost
 * little more than one. */
int gpt_decoder_step(struct gpt_decoder *d, const int32_t *slots,
                     const int32_t *tokens, int64_t n, float *logits,
                     struct gpt_err *err)
{
    for (int64_t i = 0; i < n; i++) {
        GPT_TRY(check_token(d, tokens[i], err));
        GPT_TRY(check_room(d, slots[i], 1, err));
        d->tokens[i] = tokens[i];
        d->slot[i] = slots[i];
        /* texts of any lengths: each row has its own position */
        d->rows_pos[i] = d->pos[i] = d->length[slots[i]];
        d->len[i] = 1;
    }
    forward_block(d, n, 1);
    write_logits(d, 0, n, logits);
    /* only now: a device that fails adds no token to any text */
    GPT_TRY(d->be->sync(d->q, err));
    for (int64_t i = 0; i < n; i++)
        d->length[slots[i]]++;
    return GPT_OK;
}

int64_t gpt_decoder_length(const struct gpt_decoder *d, int64_t slot)
{
    assert(slot >= 0 && slot < d->o.slots);
    return d->length[slot];
}

void gpt_decoder_truncate(struct gpt_decoder *d, int64_t slot, int64_t length)
{
    /* keys past the end stay in the cache, where no query reads them */
    if (length < d->length[slot])
        d->length[slot] = (int32_t)length;
}

/* A slot's keys of a layer lie by group, (G, positions, D): of each group the
 * tokens that are there are copied. */
static void copy_layer(struct gpt_decoder *d, char *cache, int64_t from,
                       int64_t to)
{
    const struct gpt_config *c = d->o.config;
    const size_t groups = (size_t)c->num_query_groups;
    const size_t slot_bytes = d->layer_cache_bytes / (size_t)d->o.slots;
    const size_t group_bytes = slot_bytes / groups;
    const size_t bytes = group_bytes / (size_t)d->o.positions *
        (size_t)d->length[from];

    for (size_t g = 0; g < groups; g++)
        d->be->copy(d->q, cache + (size_t)to * slot_bytes + g * group_bytes,
                    cache + (size_t)from * slot_bytes + g * group_bytes, bytes);
}

int gpt_decoder_copy(struct gpt_decoder *d, int64_t from, int64_t to,
                     struct gpt_err *err)
{
    assert(from != to && from < d->o.slots && to < d->o.slots);
    for (int64_t l = 0; l < d->o.config->num_layers; l++) {
        const size_t layer = (size_t)l * d->layer_cache_bytes;

        copy_layer(d, (char *)d->buffers[GPT_DECODE_KEYS] + layer, from, to);
        copy_layer(d, (char *)d->buffers[GPT_DECODE_VALUES] + layer, from, to);
    }
    /* the length grows only when the copies are there: a device that fails
     * leaves a slot that is shorter, and not one with holes */
    GPT_TRY(d->be->sync(d->q, err));
    d->length[to] = d->length[from];
    return GPT_OK;
}

const struct gpt_decoder_options *gpt_decoder_shape(
    const struct gpt_decoder *d)
{
    return &d->o;
}

int64_t gpt_decoder_step_bytes(const struct gpt_decoder *d)
{
    return d->step_bytes;
}
