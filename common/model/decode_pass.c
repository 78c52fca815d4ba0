/* A block of rows through the layers that this rank has, as a message says; see
 * decode_internal.h. Start at run_block(): it is the pass of stage.c, with
 * attention against the cache, and with all buffers shared by all layers. */
#include "model/decode_internal.h"

#include "base/num.h"
#include "model/norm_site.h"

#include <assert.h>

static size_t row_bytes(const struct gpt_decoder *d)
{
    return (size_t)d->o.config->hidden_size * gpt_dtype_bytes(d->o.act);
}

/* ---- what the message describes ---- */

/* Lists the runs of the block: texts with equally many new tokens, side by
 * side, which are one call of attention. */
static int64_t list_runs(struct gpt_decoder *d)
{
    const struct gpt_decode_message *m = d->message;
    int64_t n = 0, row = 0;

    for (int32_t i = 0; i < m->n_parts; i++) {
        const struct gpt_decode_part *part = &m->parts[i];

        if (n == 0 || d->runs[n - 1].tokens != part->n)
            d->runs[n++] = (struct gpt_pass_run){0, part->n};
        d->runs[n - 1].texts++;
        d->slot[i] = part->slot;
        d->pos[i] = part->start;
        d->len[i] = part->n;
        for (int32_t k = 0; k < part->n; k++)
            d->rows_pos[row++] = part->start + k;
    }
    assert(row == m->n_rows);
    return n;
}

/* ---- the embedding ---- */

/* Rows and positions are copied first, on the same queue, so no wait is needed
 * before the lookup. One tensor parallel rank holds the word and the first one
 * adds the position: the others give zeros, and their sum has the bits of one
 * rank alone. */
static void embed_tokens(struct gpt_decoder *d, const struct gpt_pass *pass)
{
    const struct gpt_config *c = d->o.config;
    struct gpt_embed op = {
        .n = pass->n,
        .c = c->hidden_size,
        .v_begin = pass->widths.vocab * d->layout.at[GPT_TP],
        .v_local = pass->widths.vocab,
        .act = d->o.act,
        .tokens = d->buffers[GPT_DECODE_TOKENS],
        .positions = d->buffers[GPT_DECODE_POSITIONS],
        .wte = d->outer.at[GPT_WORD_EMBEDDING],
        .quant = gpt_roles_quant(&d->outer, GPT_WORD_EMBEDDING),
        .wpe = gpt_roles_positions(&d->outer, c, gpt_dtype_bytes(d->o.act)),
        .scale = gpt_config_word_scale(c),
        .out = d->buffers[GPT_DECODE_RESIDUAL],
    };

    d->be->copy_in(d->q, d->buffers[GPT_DECODE_TOKENS], d->tokens,
                   (size_t)pass->n * sizeof(*d->tokens));
    if (d->layout.at[GPT_TP] > 0)
        op.wpe = NULL;
    d->be->embed_fwd(d->q, &op);
    if (pass->tp)
        gpt_comm_all_reduce(pass->tp, d->q, op.out, pass->n * c->hidden_size,
                            d->o.act, GPT_SUM);
}

/* Applies the norm after the embedding, where there is one: its output becomes
 * the stream. */
static void norm_embedded(struct gpt_decoder *d, const struct gpt_pass *pass,
                          const struct gpt_norm_acts *acts)
{
    const struct gpt_norm_site site = {
        .acts = acts,
        .norms = d->o.config->embedding_norm,
        .w = d->outer.at[GPT_EMBEDDING_NORM_WEIGHT],
        .b = d->outer.at[GPT_EMBEDDING_NORM_BIAS],
    };

    if (!site.norms)
        return;
    /* by way of the other buffer: a norm's output may not be its input */
    gpt_norm_site_forward(pass, &site, acts->r);
    d->be->copy(d->q, acts->r, acts->y, (size_t)pass->n * row_bytes(d));
}

/* ---- layers ---- */

/* All layers use the same buffers, the residual stream is updated in place. */
static void run_layers(struct gpt_decoder *d, struct gpt_pass *pass,
                       const struct gpt_norm_acts *norm,
                       struct gpt_pass_cache *cache)
{
    static const struct gpt_rng no_rng; /* dropout is off: never drawn from */
    /* without norms, blocks read the stream itself */
    const struct gpt_norm_acts pre = {
        .r = norm->r,
        .y = d->o.config->no_pre_norm ? norm->r : norm->y,
        .mean = norm->mean,
        .rstd = norm->rstd,
    };
    /* what a block read is done with when its output comes, to be normed */
    const struct gpt_norm_acts post = {
        .r = norm->y,
        .mean = norm->mean,
        .rstd = norm->rstd,
    };
    /* norms share their buffers: nothing is kept for a backward */
    const struct gpt_layer_acts acts = {
        .norm1 = pre,
        .norm2 = pre,
        .post1 = post,
        .post2 = post,
        .squares = d->buffers[GPT_DECODE_SQUARES],
        .qkv = d->buffers[GPT_DECODE_QKV],
        .att = d->buffers[GPT_DECODE_ATTENTION],
        .pre = d->buffers[GPT_DECODE_FFN_IN],
        .activated = d->buffers[GPT_DECODE_FFN],
        .latent = d->latent,
        .experts = d->experts,
    };

    for (int64_t l = 0; l < d->n_layers; l++) {
        /* from the second layer on, the first norm adds the block before */
        gpt_layer_forward(&d->layers[l], pass, &acts, norm->r,
                          l > 0 ? &no_rng : NULL);
        cache->k = (char *)cache->k + d->layer_cache_bytes;
        cache->v = (char *)cache->v + d->layer_cache_bytes;
    }
    /* The last block is added; on the last stage the sum is normed, too. */
    const struct gpt_norm_acts end = {
        .r = norm->r,
        .y = d->layout.has_output ? norm->y : NULL,
        .mean = norm->mean,
        .rstd = norm->rstd,
    };
    const struct gpt_norm_site last = {
        .acts = &end,
        .norms = true,
        .w = d->outer.at[GPT_FINAL_NORM_WEIGHT],
        .b = d->outer.at[GPT_FINAL_NORM_BIAS],
        .x_rng = d->n_layers > 0 ? &no_rng : NULL,
    };
    gpt_norm_site_forward(pass, &last, norm->r);
}

/* ---- logits ---- */

/* Where this rank's part of the logits goes: a rank that has all of them puts
 * them where they are wanted, if it can. */
static void *own_logits(const struct gpt_decoder *d, int64_t first,
                        float *logits)
{
    return d->n_ranks == 1 && d->be->host_memory
               ? logits + first * d->o.config->vocab_size
               : d->buffers[GPT_DECODE_LOGITS];
}

/* Copies rows first .. first + n - 1 of the wanted logits to the first rank's
 * host memory. Each rank computes those of its own words, at `rows` on the
 * device, which are then joined. All turns share one buffer. The queue copies a
 * turn out before it computes the next one. */
static void give_logits(struct gpt_decoder *d, char *rows, int64_t first,
                        int64_t n, float *logits)
{
    const struct gpt_config *c = d->o.config;
    int64_t word;
    struct gpt_matmul op = {
        .m = n,
        .n = gpt_decoder_words(d, d->layout.at[GPT_TP], &word),
        .k = c->hidden_size,
        .tb = true,
        .a = rows + (size_t)first * row_bytes(d),
        .b = gpt_roles_output(&d->outer),
        .c = own_logits(d, first, logits),
        .act = d->o.act,
        .c_type = GPT_F32,
        .epilogue = d->outer.at[GPT_OUTPUT_BIAS] ? GPT_EPI_BIAS : GPT_EPI_NONE,
        .bias = d->outer.at[GPT_OUTPUT_BIAS],
        .quant =
            gpt_roles_quant(&d->outer, gpt_roles_output_role(&d->outer)),
        .sums = GPT_SUMS_FEW,
    };

    if (d->layout.has_output && op.n > 0) {
        d->be->matmul(d->q, &op);
        /* of the logits, in float: training multiplies the normed rows */
        if (c->logit_multiplier > 0)
            d->be->scale(d->q, op.c, n * op.n, (float)c->logit_multiplier,
                         GPT_F32);
        if (c->final_logit_softcapping > 0)
            d->be->softcap(d->q, op.c, NULL, n * op.n,
                           (float)c->final_logit_softcapping, GPT_F32);
    }
    if (op.c == d->buffers[GPT_DECODE_LOGITS])
        gpt_decoder_collect(d, n,
                            logits ? logits + first * c->vocab_size : NULL);
}

/* Returns the n normed rows that are wanted, side by side: where they are, or
 * copied to the buffer of a block's output, which nothing reads any more. */
static char *wanted_rows(struct gpt_decoder *d, int64_t n)
{
    const struct gpt_decode_message *m = d->message;
    char *normed = d->buffers[GPT_DECODE_NORMED];
    char *to = d->buffers[GPT_DECODE_BLOCK];

    if (n == m->n_rows || !d->layout.has_output)
        return normed;
    for (int32_t i = 0; i < m->n_parts; i++) {
        const struct gpt_decode_part *part = &m->parts[i];
        const size_t bytes = (size_t)part->wants * row_bytes(d);

        normed += (size_t)part->n * row_bytes(d);
        if (bytes > 0)
            d->be->copy(d->q, to, normed - bytes, bytes);
        to += bytes;
    }
    return d->buffers[GPT_DECODE_BLOCK];
}

int64_t gpt_decoder_count_wanted(const struct gpt_decode_message *m)
{
    int64_t n = 0;

    for (int32_t i = 0; i < m->n_parts; i++)
        n += m->parts[i].wants;
    return n;
}

/* Rows of a prompt whose tokens are all scored take several turns: V floats a
 * row are more than all of its activations. Every rank counts the turns from
 * the message, so that all of them make the same calls. */
static void give_all_logits(struct gpt_decoder *d, float *logits)
{
    const int64_t most = gpt_decoder_logit_rows(&d->o);
    const int64_t n = gpt_decoder_count_wanted(d->message);
    char *rows = wanted_rows(d, n);

    for (int64_t i = 0; i < n; i += most)
        give_logits(d, rows, i, gpt_min_i64(most, n - i), logits);
}

/* ---- a block ---- */

/* Runs a block. The stream begins with the embedding, or comes from the stage
 * before; it ends with logits, or goes to the next stage. The first rank, when
 * it is done with a block that gives no logits, starts the next block of a
 * prompt while the stages after it still work on this one. */
static void run_block(struct gpt_decoder *d, float *logits)
{
    const struct gpt_decode_message *m = d->message;
    const struct gpt_norm_acts norm = {
        .r = d->buffers[GPT_DECODE_RESIDUAL],
        .y = d->buffers[GPT_DECODE_NORMED],
        .mean = d->buffers[GPT_DECODE_MEAN],
        .rstd = d->buffers[GPT_DECODE_RSTD],
    };
    const struct gpt_pass_columns columns = {
        .gathered = d->buffers[GPT_DECODE_GATHERED],
        .wide = d->buffers[GPT_DECODE_WIDE],
        .own = d->buffers[GPT_DECODE_OWN],
    };
    struct gpt_pass_cache cache = {
        .t_max = d->o.positions,
        .narrow = d->o.narrow_cache,
        .k = d->buffers[GPT_DECODE_KEYS],
        .v = d->buffers[GPT_DECODE_VALUES],
        .pos = d->pos,
        .len = d->len,
        .slot = d->slot,
        .runs = d->runs,
        .n_runs = list_runs(d),
    };
    struct gpt_comm *tp = d->o.ranks ? d->o.ranks->tp : NULL;
    struct gpt_pass pass = {
        .be = d->be,
        .q = d->q,
        .config = d->o.config,
        .layout = &d->layout,
        .widths = gpt_widths_of(d->o.config, d->layout.size[GPT_TP]),
        .act = d->o.act,
        .b = m->n_rows,
        .t = 1,
        .n = m->n_rows,
        .rows = m->n_rows,
        .tp = tp,
        .columns = tp ? &columns : NULL,
        .sums = m->few ? GPT_SUMS_FEW : GPT_SUMS_MANY,
        .cache = &cache,
        .positions = d->buffers[GPT_DECODE_POSITIONS],
        .is_long = m->is_long,
        .work.x = d->buffers[GPT_DECODE_BLOCK],
        .work.latent = d->latent_work,
        .work.experts = d->expert_work,
    };

    d->be->copy_in(d->q, d->buffers[GPT_DECODE_POSITIONS], d->rows_pos,
                   (size_t)m->n_rows * sizeof(*d->rows_pos));
    if (d->layout.has_embedding) {
        embed_tokens(d, &pass);
        norm_embedded(d, &pass, &norm);
    } else {
        gpt_decoder_receive_rows(d, m->n_rows);
    }
    run_layers(d, &pass, &norm, &cache);
    if (!d->layout.has_output)
        gpt_decoder_send_rows(d, m->n_rows);
    give_all_logits(d, logits);
}

/* Copies the blocks of a slot that have tokens, in the caches of n layers,
 * which are of keys or of values: all heads of some positions lie together. */
static void copy_caches(struct gpt_decoder *d, char *cache, int64_t n)
{
    const struct gpt_decode_message *m = d->message;
    const size_t slot_bytes = d->layer_cache_bytes / (size_t)d->o.slots;
    const size_t row_bytes =
        slot_bytes / (size_t)gpt_cache_rows(d->o.positions);

    for (int64_t l = 0; l < n; l++, cache += d->layer_cache_bytes)
        d->be->copy(d->q, cache + (size_t)m->to * slot_bytes,
                    cache + (size_t)m->from * slot_bytes,
                    row_bytes * (size_t)gpt_cache_rows(m->length));
}

/* Each rank copies the cache of its own heads and layers: nothing is
 * exchanged. */
int gpt_decoder_obey(struct gpt_decoder *d, float *logits, struct gpt_err *err)
{
    switch ((enum gpt_decode_kind)d->message->kind) {
    case GPT_DECODE_ROWS:
        run_block(d, logits);
        break;
    case GPT_DECODE_COPY:
        copy_caches(d, d->buffers[GPT_DECODE_KEYS], d->n_layers);
        copy_caches(d, d->buffers[GPT_DECODE_VALUES], d->n_layers);
        break;
    case GPT_DECODE_END:
        break;
    }
    /* the next message fills the host arrays again, so this one is waited for
     */
    return gpt_decoder_sync(d, err);
}
