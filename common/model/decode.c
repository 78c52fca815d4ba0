/* The forward pass for generation; see decode.h. Start at forward_block(): it
 * is the layers of stage.c with attention against the cache, in place, over a
 * block of rows that are either consecutive tokens of one text or the next
 * tokens of several. */
#include "model/decode.h"

#include "base/memory.h"
#include "base/num.h"
#include "model/layer.h"

#include <assert.h>

/* Tokens of a prompt that go through the layers at once: enough for matrix
 * products at full speed, and a bound on memory. */
enum { CHUNK = 256 };
/* Rows of logits at once when all are wanted. */
enum { LOGIT_ROWS = 16 };

enum buffer {
    RESIDUAL,
    NORMED,
    BLOCK, /* a block's output, not yet added to the residual stream */
    QKV,
    ATTENTION,
    FFN,    /* after the activation */
    FFN_IN, /* before */
    MEAN,
    RSTD,
    TOKENS,
    POSITIONS,
    LOGITS,
    KEYS,
    VALUES,
    N_BUFFERS
};

static const char *const buffer_names[N_BUFFERS] = {
    [RESIDUAL] = "residual stream",
    [NORMED] = "normed activations",
    [BLOCK] = "block outputs",
    [QKV] = "queries, keys and values",
    [ATTENTION] = "attention outputs",
    [FFN] = "feed-forward",
    [FFN_IN] = "activations",
    [MEAN] = "means",
    [RSTD] = "deviations",
    [TOKENS] = "tokens",
    [POSITIONS] = "positions",
    [LOGITS] = "logits",
    [KEYS] = "key cache",
    [VALUES] = "value cache",
};

/* Device memory is in buffers[], allocated in a loop over their table; the host
 * arrays below describe one block of rows, and kernels read them during the
 * call that queues the block. */
struct gpt_decoder {
    struct gpt_backend *be;
    struct gpt_queue *q;
    struct gpt_decoder_options o;
    struct gpt_layout layout;
    int64_t step_bytes;
    size_t layer_cache_bytes; /* of the keys of a layer */
    struct gpt_layer *layers;
    struct gpt_roles outer; /* what is outside layers */
    void *buffers[N_BUFFERS];
    int32_t *length; /* (slots) tokens held */
    /* the block of rows in work, host: (rows) or (slots) */
    int32_t *tokens, *rows_pos, *pos, *len, *slot;
};

/* Rows that the activation buffers hold: a block of a prompt, or one token of
 * every text. */
static int64_t block_rows(const struct gpt_decoder_options *o)
{
    return gpt_max_i64(o->slots, gpt_min_i64(CHUNK, o->positions));
}

/* Rows of logits: a step wants those of all texts at once; a prompt whose
 * tokens are all scored takes several turns, as V floats a row are large. */
static int64_t logit_rows(const struct gpt_decoder_options *o)
{
    return gpt_max_i64(o->slots, LOGIT_ROWS);
}

/* Bytes of every buffer; false when a product overflows. The same numbers
 * predict and allocate. There is one rank: a model that is too large for one
 * device cannot be decoded. */
static bool buffer_bytes(const struct gpt_decoder_options *o,
                         int64_t bytes[N_BUFFERS])
{
    const struct gpt_config *c = o->config;
    const struct gpt_widths w = gpt_widths_of(c, 1);
    int64_t act = (int64_t)gpt_dtype_bytes(o->act), rows = block_rows(o);
    int64_t cache_rows = 0;

    if (!gpt_mul(o->slots, o->positions, &cache_rows) ||
        !gpt_mul(cache_rows, c->num_layers, &cache_rows))
        return false;
    const struct {
        int64_t rows, width, element;
    } shapes[N_BUFFERS] = {
        [RESIDUAL] = {rows, w.hidden, act},
        [NORMED] = {rows, w.hidden, act},
        [BLOCK] = {rows, w.hidden, act},
        [QKV] = {rows, w.qkv, act},
        [ATTENTION] = {rows, w.attention, act},
        [FFN] = {rows, w.ffn, act},
        [FFN_IN] = {rows, w.ffn_in, act},
        [MEAN] = {rows, 1, sizeof(float)},
        [RSTD] = {rows, 1, sizeof(float)},
        [TOKENS] = {rows, 1, sizeof(int32_t)},
        [POSITIONS] = {rows, 1, sizeof(int32_t)},
        [LOGITS] = {logit_rows(o), c->vocab_size, sizeof(float)},
        [KEYS] = {cache_rows, w.keys, act},
        [VALUES] = {cache_rows, w.keys, act},
    };
    for (int i = 0; i < N_BUFFERS; i++)
        if (!gpt_mul(shapes[i].rows, shapes[i].width, &bytes[i]) ||
            !gpt_mul(bytes[i], shapes[i].element, &bytes[i]))
            return false;
    return true;
}

static int check_options(const struct gpt_decoder_options *o,
                         struct gpt_err *err)
{
    /* positions past the model's would have no row, or no meaning */
    if (o->slots < 1 || o->slots > 65536)
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld texts at once: must be 1 to 65536",
                        (long long)o->slots);
    if (o->positions < 1 || o->positions > o->config->max_positions)
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld positions: must be 1 to %lld, the model's",
                        (long long)o->positions,
                        (long long)o->config->max_positions);
    return GPT_OK;
}

int gpt_decoder_memory(int64_t *bytes, const struct gpt_decoder_options *o,
                       struct gpt_err *err)
{
    int64_t each[N_BUFFERS];

    GPT_TRY(check_options(o, err));
    *bytes = 0;
    bool fits = buffer_bytes(o, each);
    for (int i = 0; fits && i < N_BUFFERS; i++)
        fits = gpt_add(*bytes, each[i], bytes);
    if (!fits)
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld texts of %lld positions at once: too much",
                        (long long)o->slots, (long long)o->positions);
    return GPT_OK;
}

/* ---- open and close: what fails half-way is closed like what is open ---- */

static int alloc_device(struct gpt_decoder *d,
                        const struct gpt_decoder_options *o,
                        struct gpt_err *err)
{
    int64_t bytes[N_BUFFERS];

    buffer_bytes(o, bytes);
    for (int i = 0; i < N_BUFFERS; i++)
        GPT_TRY(d->be->alloc(d->be, (size_t)bytes[i], buffer_names[i],
                             &d->buffers[i], err));
    /* the layers' parts of a cache follow each other: forward_block() moves
     * from one to the next by this */
    d->layer_cache_bytes = (size_t)(bytes[KEYS] / o->config->num_layers);
    return GPT_OK;
}

static int alloc_host(struct gpt_decoder *d,
                      const struct gpt_decoder_options *o, struct gpt_err *err)
{
    size_t rows = (size_t)block_rows(o), slots = (size_t)o->slots;
    const size_t int32 = sizeof(int32_t);

    GPT_TRY(gpt_new(&d->layers, (size_t)o->config->num_layers,
                    sizeof(*d->layers), "layers", err));
    GPT_TRY(gpt_new(&d->length, slots, int32, "a decoder's slots", err));
    GPT_TRY(gpt_new(&d->tokens, rows, int32, "a decoder's tokens", err));
    GPT_TRY(gpt_new(&d->rows_pos, rows, int32, "a decoder's tokens", err));
    GPT_TRY(gpt_new(&d->pos, slots, int32, "a decoder's slots", err));
    GPT_TRY(gpt_new(&d->len, slots, int32, "a decoder's slots", err));
    return gpt_new(&d->slot, slots, int32, "a decoder's slots", err);
}

/* The weights are used where they are, and only read: the caller keeps them. */
static void bind_weights(struct gpt_decoder *d,
                         const struct gpt_decoder_options *o, void *weights)
{
    const struct gpt_flat *flat = o->flat;
    int64_t count = 0;

    /* a step reads one row of the embedding for each text, which is not
     * counted; a tied table is read whole as the output layer, without its
     * dummy rows */
    for (int64_t i = 0; i < flat->n; i++) {
        const struct gpt_param *p = flat->slices[i].param;

        if (p->place != GPT_PLACE_EMBEDDING)
            count += flat->slices[i].count;
    }
    if (o->config->tied_embeddings)
        count += o->config->vocab_size * o->config->hidden_size;
    d->step_bytes = count * (int64_t)gpt_dtype_bytes(o->act);
    gpt_roles_bind(&d->outer, flat, -1, weights, o->act);
    for (int64_t l = 0; l < o->config->num_layers; l++)
        gpt_layer_bind(&d->layers[l], flat, l, weights, o->act, NULL, 0);
}

int gpt_decoder_open(struct gpt_decoder **out, struct gpt_backend *be,
                     const struct gpt_decoder_options *o, void *weights,
                     struct gpt_err *err)
{
    int64_t bytes = 0;
    struct gpt_decoder *d = NULL;

    GPT_TRY(gpt_decoder_memory(&bytes, o, err));
    GPT_TRY(gpt_new(&d, 1, sizeof(*d), "a decoder", err));
    d->be = be;
    d->o = *o;
    d->layout = GPT_LAYOUT_SINGLE(o->config);
    int status = GPT_OK;
    GPT_TRY_GOTO(status, alloc_host(d, o, err), fail);
    GPT_TRY_GOTO(status, be->queue_open(be, &d->q, err), fail);
    GPT_TRY_GOTO(status, alloc_device(d, o, err), fail);
    bind_weights(d, o, weights);
    *out = d;
    return GPT_OK;
fail:
    gpt_decoder_close(d);
    return status;
}

void gpt_decoder_close(struct gpt_decoder *d)
{
    if (!d)
        return;
    for (int i = 0; i < N_BUFFERS; i++)
        if (d->buffers[i])
            d->be->free(d->be, d->buffers[i]);
    if (d->q)
        d->be->queue_close(d->q);
    gpt_free(d->layers);
    gpt_free(d->length);
    gpt_free(d->tokens);
    gpt_free(d->rows_pos);
    gpt_free(d->pos);
    gpt_free(d->len);
    gpt_free(d->slot);
    gpt_free(d);
}

/* ---- the pass ---- */

/* Rows and positions are copied first, on the same queue, so no wait is needed
 * before the lookup. */
static void embed_tokens(struct gpt_decoder *d, int64_t n)
{
    const struct gpt_config *c = d->o.config;
    size_t bytes = (size_t)n * sizeof(int32_t);

    d->be->copy_in(d->q, d->buffers[TOKENS], d->tokens, bytes);
    d->be->copy_in(d->q, d->buffers[POSITIONS], d->rows_pos, bytes);
    struct gpt_embed op = {
        .n = n,
        .c = c->hidden_size,
        .v_local = c->padded_vocab_size,
        .act = d->o.act,
        .tokens = d->buffers[TOKENS],
        .positions = d->buffers[POSITIONS],
        .wte = d->outer.at[GPT_WORD_EMBEDDING],
        .wpe = d->outer.at[GPT_POSITION_EMBEDDING], /* NULL: none are learned */
        .out = d->buffers[RESIDUAL],
    };
    d->be->embed_fwd(d->q, &op);
}

/* Embedding, layers and final norm over b texts with t tokens each, as
 * d->tokens, rows_pos, pos, len and slot say. Leaves the normed rows in
 * buffers[NORMED]. All layers use the same buffers, the residual stream is
 * updated in place. */
static void forward_block(struct gpt_decoder *d, int64_t b, int64_t t)
{
    static const struct gpt_rng no_rng; /* dropout is off: never drawn from */
    struct gpt_norm_acts norm = {
        .r = d->buffers[RESIDUAL],
        .y = d->buffers[NORMED],
        .mean = d->buffers[MEAN],
        .rstd = d->buffers[RSTD],
    };
    /* both norms share their buffers: nothing is kept for a backward */
    struct gpt_layer_acts acts = {
        .norm1 = norm,
        .norm2 = norm,
        .qkv = d->buffers[QKV],
        .att = d->buffers[ATTENTION],
        .pre = d->buffers[FFN_IN],
        .activated = d->buffers[FFN],
    };
    struct gpt_attn_cached cache = {
        .b = b,
        .t_new = t,
        .t_max = d->o.positions,
        .k_cache = d->buffers[KEYS],
        .v_cache = d->buffers[VALUES],
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
        .positions = d->buffers[POSITIONS],
        .work.x = d->buffers[BLOCK],
    };

    embed_tokens(d, b * t);
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
        .a = (char *)d->buffers[NORMED] +
            (size_t)(first * c->hidden_size) * gpt_dtype_bytes(d->o.act),
        .b = gpt_roles_output(&d->outer),
        .c = d->buffers[LOGITS],
        .act = d->o.act,
        .c_type = GPT_F32,
    };

    d->be->matmul(d->q, &op);
    d->be->copy_out(d->q, logits, d->buffers[LOGITS],
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
    assert(n <= block_rows(&d->o));
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
    for (int64_t at = 0; at < n && status == GPT_OK; at += CHUNK) {
        int64_t rows = gpt_min_i64(CHUNK, n - at);

        append_block(d, slot, tokens + at, rows);
        if (which == GPT_LOGITS_LAST && at + rows == n)
            write_logits(d, rows - 1, 1, logits);
        for (int64_t i = 0; which == GPT_LOGITS_ALL && i < rows;
             i += LOGIT_ROWS)
            write_logits(d, i, gpt_min_i64(LOGIT_ROWS, rows - i),
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

        copy_layer(d, (char *)d->buffers[KEYS] + layer, from, to);
        copy_layer(d, (char *)d->buffers[VALUES] + layer, from, to);
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
