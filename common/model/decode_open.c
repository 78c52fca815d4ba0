/* Opens and closes a decoder: which buffers it has, their sizes, one allocation
 * each. Start at gpt_decoder_open(); decode.c uses what is made here. */
#include "model/decode_internal.h"

#include "base/memory.h"
#include "base/num.h"
#include "model/abilities.h"
#include "model/experts.h"
#include "model/latent.h"

static const char *const buffer_names[GPT_DECODE_BUFFERS] = {
    [GPT_DECODE_RESIDUAL] = "residual stream",
    [GPT_DECODE_NORMED] = "normed activations",
    [GPT_DECODE_BLOCK] = "block outputs",
    [GPT_DECODE_QKV] = "queries, keys and values",
    [GPT_DECODE_ATTENTION] = "attention outputs",
    [GPT_DECODE_FFN] = "feed-forward",
    [GPT_DECODE_FFN_IN] = "activations",
    [GPT_DECODE_MEAN] = "means",
    [GPT_DECODE_RSTD] = "deviations",
    [GPT_DECODE_SQUARES] = "squares",
    [GPT_DECODE_TOKENS] = "tokens",
    [GPT_DECODE_POSITIONS] = "positions",
    [GPT_DECODE_LOGITS] = "logits",
    [GPT_DECODE_EXPERTS] = "routes to experts",
    [GPT_DECODE_EXPERT_ROWS] = "rows of experts",
    [GPT_DECODE_EXPERT_FFN] = "experts' feed-forward",
    [GPT_DECODE_EXPERT_IN] = "experts' activations",
    [GPT_DECODE_EXPERT_PAIRS] = "outputs of experts",
    [GPT_DECODE_EXPERT_SAME] = "numbers of experts' outputs",
    [GPT_DECODE_LATENT] = "latent attention",
    [GPT_DECODE_KEYS] = "key cache",
    [GPT_DECODE_VALUES] = "value cache",
    [GPT_DECODE_GATHERED] = "columns of other ranks",
    [GPT_DECODE_WIDE] = "columns of all ranks",
    [GPT_DECODE_OWN] = "columns of this rank",
    [GPT_DECODE_MESSAGE] = "messages",
};

int64_t gpt_decoder_rows(const struct gpt_decoder_options *o)
{
    const bool stages = o->ranks && o->ranks->layout.size[GPT_PP] > 1;
    const int64_t most = stages ? GPT_DECODE_CHUNK : GPT_DECODE_MOST;

    /* all texts together may be shorter than a block */
    return gpt_max_i64(o->slots, gpt_min_i64(most, o->slots * o->positions));
}

/* A step needs the logits of all texts at once; a prompt whose tokens are all
 * scored takes several turns, as V floats a row are large. */
int64_t gpt_decoder_logit_rows(const struct gpt_decoder_options *o)
{
    return gpt_max_i64(o->slots, GPT_DECODE_LOGIT_ROWS);
}

int64_t gpt_decoder_message_bytes(const struct gpt_decoder_options *o)
{
    return (int64_t)sizeof(struct gpt_decode_message) +
           o->slots * (int64_t)sizeof(struct gpt_decode_part) +
           gpt_decoder_rows(o) * (int64_t)sizeof(int32_t);
}

/* How many tensor parallel ranks share each layer of the model. */
static int64_t tp_size(const struct gpt_decoder_options *o)
{
    return o->ranks ? o->ranks->layout.size[GPT_TP] : 1;
}

static int64_t layers_here(const struct gpt_decoder_options *o)
{
    return o->ranks ? o->ranks->layout.chunk[0].n_layers
                    : o->config->num_layers;
}

enum gpt_dtype gpt_decoder_cache_type(const struct gpt_decoder_options *o)
{
    return o->narrow_cache ? GPT_BF16 : o->act;
}

/* Bytes of the tables of a layer's experts. */
static int64_t experts_bytes(const struct gpt_decoder_options *o)
{
    struct gpt_expert_acts acts;

    return o->config->num_experts == 0
               ? 0
               : gpt_experts_lay_out(&acts, o->config, gpt_decoder_rows(o),
                                     NULL);
}

/* Lays out what latent attention has, or with base NULL counts its bytes. */
static int64_t lay_latent(const struct gpt_decoder_options *o,
                          struct gpt_latent_acts *acts,
                          struct gpt_latent_work *work, char *base)
{
    const struct gpt_widths w = gpt_widths_of(o->config, tp_size(o));
    const int64_t n = gpt_decoder_rows(o);
    int64_t at = gpt_latent_lay_products(acts, &w, n, o->act, base);

    at += gpt_latent_lay_normed(acts, &w, n, o->act, base ? base + at : NULL);
    return at + gpt_latent_lay_work(work, &w, n, o->act, false,
                                    base ? base + at : NULL);
}

static int64_t latent_bytes(const struct gpt_decoder_options *o)
{
    struct gpt_latent_acts acts;
    struct gpt_latent_work work;

    return gpt_config_is_latent(o->config) ? lay_latent(o, &acts, &work, NULL)
                                           : 0;
}

/* Bytes of every buffer; false when a product overflows. The same numbers
 * predict and allocate. */
static bool buffer_bytes(const struct gpt_decoder_options *o,
                         int64_t bytes[GPT_DECODE_BUFFERS])
{
    const struct gpt_config *c = o->config;
    const int64_t tp = tp_size(o);
    const struct gpt_widths w = gpt_widths_of(c, tp);
    /* rows whose columns ranks exchange: none where there is one */
    const int64_t rows = gpt_decoder_rows(o), shared = tp > 1 ? rows : 0;
    const int64_t ffn = gpt_widths_widest(c, &w);
    const int64_t widest = gpt_max_i64(w.attention, ffn) * tp;
    const int64_t pairs = rows * c->moe_router_topk;
    const int64_t exchanged = tp > 1 ? pairs : 0;
    const int64_t act = (int64_t)gpt_dtype_bytes(o->act);
    const int64_t cached = (int64_t)gpt_dtype_bytes(gpt_decoder_cache_type(o));
    int64_t cache_rows = 0;

    if (!gpt_mul(o->slots, gpt_cache_rows(o->positions), &cache_rows) ||
        !gpt_mul(cache_rows, layers_here(o), &cache_rows))
        return false;
    const struct {
        int64_t rows, width, element;
    } shapes[GPT_DECODE_BUFFERS] = {
        [GPT_DECODE_RESIDUAL] = {rows, w.hidden, act},
        [GPT_DECODE_NORMED] = {rows, w.hidden, act},
        [GPT_DECODE_BLOCK] = {rows, w.hidden, act},
        [GPT_DECODE_QKV] = {rows, w.qkv, act},
        [GPT_DECODE_ATTENTION] = {rows, w.attention, act},
        [GPT_DECODE_FFN] = {rows, ffn, act},
        [GPT_DECODE_FFN_IN] = {rows, gpt_widths_before(c, ffn), act},
        [GPT_DECODE_MEAN] = {rows, 1, sizeof(float)},
        [GPT_DECODE_RSTD] = {rows, 1, sizeof(float)},
        /* two numbers a row, also where no norm reads them */
        [GPT_DECODE_SQUARES] = {rows, 2, sizeof(float)},
        [GPT_DECODE_TOKENS] = {rows, 1, sizeof(int32_t)},
        [GPT_DECODE_POSITIONS] = {rows, 1, sizeof(int32_t)},
        /* the first rank gets those of all words */
        [GPT_DECODE_LOGITS] = {gpt_decoder_logit_rows(o), c->vocab_size,
                               sizeof(float)},
        [GPT_DECODE_EXPERTS] = {1, experts_bytes(o), 1},
        [GPT_DECODE_EXPERT_ROWS] = {pairs, w.hidden, act},
        [GPT_DECODE_EXPERT_FFN] = {pairs, w.expert, act},
        [GPT_DECODE_EXPERT_IN] = {pairs, w.expert_in, act},
        [GPT_DECODE_EXPERT_PAIRS] = {exchanged, w.hidden, act},
        /* their numbers, and two */
        [GPT_DECODE_EXPERT_SAME] = {exchanged > 0 ? exchanged + 2 : 0, 1,
                                    sizeof(int32_t)},
        [GPT_DECODE_LATENT] = {1, latent_bytes(o), 1},
        [GPT_DECODE_KEYS] = {cache_rows, w.keys, cached},
        [GPT_DECODE_VALUES] = {cache_rows, w.keys, cached},
        [GPT_DECODE_GATHERED] = {shared, gpt_max_i64(widest, w.hidden), act},
        [GPT_DECODE_WIDE] = {shared, widest, act},
        [GPT_DECODE_OWN] = {shared, w.hidden / tp, act},
        [GPT_DECODE_MESSAGE] = {o->ranks ? 1 : 0, gpt_decoder_message_bytes(o),
                                1},
    };
    for (int i = 0; i < GPT_DECODE_BUFFERS; i++)
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
    int64_t each[GPT_DECODE_BUFFERS];

    GPT_TRY(check_options(o, err));
    *bytes = 0;
    bool fits = buffer_bytes(o, each);
    for (int i = 0; fits && i < GPT_DECODE_BUFFERS; i++)
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
    int64_t bytes[GPT_DECODE_BUFFERS];

    buffer_bytes(o, bytes);
    for (int i = 0; i < GPT_DECODE_BUFFERS; i++)
        if (bytes[i] > 0)
            GPT_TRY(d->be->alloc(d->be, (size_t)bytes[i], buffer_names[i],
                                 &d->buffers[i], err));
    /* the layers' parts of a cache follow each other: run_layers() moves
     * from one to the next by this */
    d->layer_cache_bytes =
        (size_t)(bytes[GPT_DECODE_KEYS] / layers_here(o));
    return GPT_OK;
}

/* The list of pairs in their own order never changes: it is filled once. */
static int number_pairs(struct gpt_decoder *d, int64_t pairs,
                        struct gpt_err *err)
{
    int32_t *same;

    GPT_TRY(gpt_new(&same, (size_t)pairs + 2, sizeof(*same),
                    "routes to experts", err));
    for (int64_t i = 0; i < pairs; i++)
        same[i] = (int32_t)i;
    same[pairs + 1] = (int32_t)pairs;
    d->be->copy_in(d->q, d->buffers[GPT_DECODE_EXPERT_SAME], same,
                   ((size_t)pairs + 2) * sizeof(*same));
    const int status = d->be->sync(d->q, err);
    gpt_free(same);
    return status;
}

static int open_experts(struct gpt_decoder *d,
                        const struct gpt_decoder_options *o,
                        struct gpt_err *err)
{
    const int64_t rows = gpt_decoder_rows(o);
    const int64_t pairs = rows * o->config->moe_router_topk;
    int32_t *same = d->buffers[GPT_DECODE_EXPERT_SAME];

    if (o->config->num_experts > 0)
        gpt_experts_lay_out(&d->experts, o->config, rows,
                            d->buffers[GPT_DECODE_EXPERTS]);
    d->experts.pre = d->buffers[GPT_DECODE_EXPERT_IN];
    d->experts.activated = d->buffers[GPT_DECODE_EXPERT_FFN];
    d->expert_work.rows = d->buffers[GPT_DECODE_EXPERT_ROWS];
    d->expert_work.pairs = d->buffers[GPT_DECODE_EXPERT_PAIRS];
    if (!same)
        return GPT_OK;
    d->expert_work.same = same;
    d->expert_work.ends = same + pairs;
    return number_pairs(d, pairs, err);
}

static int alloc_host(struct gpt_decoder *d,
                      const struct gpt_decoder_options *o, struct gpt_err *err)
{
    size_t rows = (size_t)gpt_decoder_rows(o), slots = (size_t)o->slots;
    const size_t int32 = sizeof(int32_t);

    GPT_TRY(gpt_new(&d->layers, (size_t)d->n_layers, sizeof(*d->layers),
                    "layers", err));
    GPT_TRY(gpt_new(&d->length, slots, int32, "a decoder's slots", err));
    GPT_TRY(gpt_new(&d->message, (size_t)gpt_decoder_message_bytes(o), 1,
                    "a decoder's messages", err));
    d->tokens = (int32_t *)(void *)(d->message->parts + slots);
    GPT_TRY(gpt_new(&d->rows_pos, rows, int32, "a decoder's tokens", err));
    GPT_TRY(gpt_new(&d->pos, slots, int32, "a decoder's slots", err));
    GPT_TRY(gpt_new(&d->len, slots, int32, "a decoder's slots", err));
    GPT_TRY(gpt_new(&d->slot, slots, int32, "a decoder's slots", err));
    GPT_TRY(gpt_new(&d->runs, slots, sizeof(*d->runs), "a decoder's slots",
                    err));
    if (d->rank == 0 && gpt_config_is_long(o->config, o->positions)) {
        GPT_TRY(gpt_new(&d->history, slots * (size_t)o->positions, int32,
                        "the texts of a decoder", err));
        GPT_TRY(gpt_new(&d->is_long, slots, sizeof(*d->is_long),
                        "a decoder's slots", err));
    }
    return gpt_new(&d->pieces, slots, sizeof(*d->pieces), "a decoder's slots",
                   err);
}

/* A step reads one row of the embedding for each text, which is not counted; a
 * tied table is read whole as the output layer, without its dummy rows, by the
 * ranks of the last stage. Of experts it reads those of a token, of which ranks
 * have equally many in the mean. */
static int64_t step_bytes(const struct gpt_decoder *d,
                          const struct gpt_decoder_options *o)
{
    int64_t bytes = 0, first;

    for (int64_t i = 0; i < o->flat->n; i++) {
        const struct gpt_slice *s = &o->flat->slices[i];
        int64_t rows = s->shape[0];

        if (s->param->split == GPT_SPLIT_BY_EXPERT)
            rows = rows * o->config->moe_router_topk / o->config->num_experts;
        if (s->param->place == GPT_PLACE_EMBEDDING) {
            if (!s->param->tied || !d->layout.has_output)
                continue;
            rows = gpt_decoder_words(d, d->layout.at[GPT_TP], &first);
        }
        bytes += o->quant ? gpt_quant_store_rows(o->quant, i, rows)
                          : rows * (s->count / s->shape[0]) *
                                (int64_t)gpt_dtype_bytes(o->act);
    }
    return bytes;
}

/* The weights are used where they are, and only read: the caller keeps them. */
static void bind_weights(struct gpt_decoder *d,
                         const struct gpt_decoder_options *o, void *weights)
{
    void *base = o->quant ? NULL : weights;

    d->step_bytes = step_bytes(d, o);
    gpt_roles_bind(&d->outer, o->flat, -1, base, o->act);
    if (o->quant)
        gpt_quant_store_bind(o->quant, -1, &d->outer);
    for (int64_t l = 0; l < d->n_layers; l++) {
        gpt_layer_bind(&d->layers[l], o->flat, d->first_layer + l, base,
                       o->act, NULL, 0);
        if (o->quant)
            gpt_quant_store_bind(o->quant, d->first_layer + l,
                                 &d->layers[l].w);
    }
}

/* Without other ranks the layout is that of one. */
static void place(struct gpt_decoder *d, const struct gpt_decoder_options *o)
{
    d->layout = o->ranks ? o->ranks->layout : GPT_LAYOUT_SINGLE(o->config);
    d->first_layer = d->layout.chunk[0].first_layer;
    d->n_layers = d->layout.chunk[0].n_layers;
    d->n_ranks = d->layout.size[GPT_TP] * d->layout.size[GPT_PP];
    d->rank = d->layout.at[GPT_PP] * d->layout.size[GPT_TP] +
              d->layout.at[GPT_TP];
}

int gpt_decoder_check(const struct gpt_backend *be,
                      const struct gpt_decoder_options *o, struct gpt_err *err)
{
    int64_t bytes = 0;

    GPT_TRY(gpt_decoder_memory(&bytes, o, err));
    GPT_TRY(gpt_abilities_check(o->config, o->positions, be, err));
    if (o->narrow_cache && !(be->abilities & GPT_CAN_NARROW_CACHE))
        return gpt_fail(err, GPT_EDEVICE,
                        "device %s has keys and values of %s alone: the CPU "
                        "keeps them in bf16", be->name,
                        gpt_dtype_name(o->act));
    return GPT_OK;
}

int gpt_decoder_open(struct gpt_decoder **out, struct gpt_backend *be,
                     const struct gpt_decoder_options *o, void *weights,
                     struct gpt_err *err)
{
    struct gpt_decoder *d = NULL;

    GPT_TRY(gpt_decoder_check(be, o, err));
    GPT_TRY(gpt_new(&d, 1, sizeof(*d), "a decoder", err));
    d->be = be;
    d->o = *o;
    place(d, o);
    int status = GPT_OK;
    GPT_TRY_GOTO(status, alloc_host(d, o, err), fail);
    GPT_TRY_GOTO(status, be->queue_open(be, &d->q, err), fail);
    GPT_TRY_GOTO(status, alloc_device(d, o, err), fail);
    if (gpt_config_is_latent(o->config))
        lay_latent(o, &d->latent, &d->latent_work,
                   d->buffers[GPT_DECODE_LATENT]);
    GPT_TRY_GOTO(status, open_experts(d, o, err), fail);
    bind_weights(d, o, weights);
    d->opened = true;
    *out = d;
    return GPT_OK;
fail:
    gpt_decoder_close(d);
    return status;
}

void gpt_decoder_close(struct gpt_decoder *d)
{
    struct gpt_err ignored = {0};

    if (!d)
        return;
    /* the other ranks are asked to stop; when that fails they have failed,
     * too */
    if (d->opened && d->rank == 0) {
        d->message->kind = GPT_DECODE_END;
        (void)!gpt_decoder_tell(d, &ignored);
    }
    for (int i = 0; i < GPT_DECODE_BUFFERS; i++)
        if (d->buffers[i])
            d->be->free(d->be, d->buffers[i]);
    if (d->q)
        d->be->queue_close(d->q);
    gpt_free(d->layers);
    gpt_free(d->length);
    gpt_free(d->message);
    gpt_free(d->rows_pos);
    gpt_free(d->pos);
    gpt_free(d->len);
    gpt_free(d->slot);
    gpt_free(d->runs);
    gpt_free(d->history);
    gpt_free(d->is_long);
    gpt_free(d->pieces);
    gpt_free(d);
}
