/* What ranks that share a model tell and send each other; see decode_ranks.h.
 * Start at gpt_decoder_tell(). Every call is made by all members of its group,
 * also by those that have nothing to move in it, so that they count calls alike
 * and messages about a rank that is missing name the right one. */
#include "model/decode_internal.h"

#include "base/num.h"

#include <math.h>

/* ---- the cut ---- */

/* Rows of proj and fc2 are outputs, which any number of ranks may share: the
 * unit of their columns was 1, and so is that of their rows. */
int gpt_decode_params(struct gpt_param_table *t, const struct gpt_config *c,
                      struct gpt_err *err)
{
    GPT_TRY(gpt_params_build(t, c, err));
    for (int64_t i = 0; i < t->n; i++)
        if (t->rows[i].split == GPT_SPLIT_COLUMNS)
            t->rows[i].split = GPT_SPLIT_ROWS;
    return GPT_OK;
}

/* Stages may have a layer more or less than others: nothing is exchanged but
 * rows of the stream. */
int gpt_decode_layout(struct gpt_layout *layout, const struct gpt_config *c,
                      int64_t tp, int64_t pp, int64_t rank,
                      struct gpt_err *err)
{
    const int64_t stage = rank / tp, layers = c->num_layers;
    const int64_t first = layers * stage / pp;

    if (tp > GPT_DECODE_MOST_RANKS)
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld tensor parallel ranks: at most %d",
                        (long long)tp, GPT_DECODE_MOST_RANKS);
    if (pp > layers)
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld pipeline stages, but only %lld layers",
                        (long long)pp, (long long)layers);
    GPT_TRY(gpt_widths_check(c, tp, err));
    if (c->hidden_size % tp != 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "hidden_size (%lld) does not divide by the tensor "
                        "model parallel size (%lld)",
                        (long long)c->hidden_size, (long long)tp);
    *layout = (struct gpt_layout){
        .size = {[GPT_TP] = tp, [GPT_DP] = 1, [GPT_PP] = pp},
        .at = {[GPT_TP] = rank % tp, [GPT_PP] = stage},
        .chunks = 1,
        .chunk = {{first, layers * (stage + 1) / pp - first}},
        .has_embedding = stage == 0,
        .has_output = stage == pp - 1,
        .shards = 1,
    };
    return GPT_OK;
}

/* ---- messages ---- */

static bool is_alone(const struct gpt_decoder *d)
{
    return d->n_ranks == 1;
}

/* Between two messages any time may pass, while the first rank waits for a
 * prompt: the others wait for it without a limit, and notice its end all the
 * same. Within a message everything comes soon. */
int gpt_decoder_tell(struct gpt_decoder *d, struct gpt_err *err)
{
    const size_t bytes = (size_t)gpt_decoder_message_bytes(&d->o);
    void *device = d->buffers[GPT_DECODE_MESSAGE];
    const struct gpt_collective call = {
        .kind = GPT_BROADCAST,
        .in = device,
        .out = device,
        .n = (int64_t)(bytes / sizeof(int32_t)),
        .type = GPT_I32,
        .root = 0,
    };

    if (is_alone(d))
        return GPT_OK;
    if (d->rank == 0)
        d->be->copy_in(d->q, device, d->message, bytes);
    const double limit = gpt_comm_timeout(d->o.ranks->world);
    if (d->rank > 0)
        gpt_comm_set_timeout(d->o.ranks->world, HUGE_VAL);
    gpt_comm_call(d->o.ranks->world, d->q, &call);
    if (d->rank > 0)
        d->be->copy_out(d->q, d->message, device, bytes);
    const int status = gpt_decoder_sync(d, err);
    if (d->rank > 0)
        gpt_comm_set_timeout(d->o.ranks->world, limit);
    return status;
}

/* A transfer that failed leaves memory as it was, and says so only here. */
int gpt_decoder_sync(struct gpt_decoder *d, struct gpt_err *err)
{
    const struct gpt_decode_ranks *r = d->o.ranks;
    const int status = d->be->sync(d->q, err);

    if (is_alone(d))
        return status;
    /* a queue that was given up with its calls has no reason of its own */
    GPT_TRY(gpt_comm_check(r->world, err));
    if (r->tp)
        GPT_TRY(gpt_comm_check(r->tp, err));
    if (r->pp)
        GPT_TRY(gpt_comm_check(r->pp, err));
    return status;
}

/* ---- the stream ---- */

/* Sends rows to the rank `peer`, or receives them. Stages have the same tensor
 * parallel ranks, each of which holds all rows: a rank sends to the one in its
 * place. */
static void move_rows(struct gpt_decoder *d, bool send, int64_t peer,
                      int64_t rows)
{
    const struct gpt_transfer move = {
        .send = send,
        .peer = peer,
        .buf = d->buffers[GPT_DECODE_RESIDUAL],
        .bytes = rows * d->o.config->hidden_size *
                 (int64_t)gpt_dtype_bytes(d->o.act),
    };

    gpt_comm_exchange(d->o.ranks->pp, d->q, &move, 1);
}

void gpt_decoder_receive_rows(struct gpt_decoder *d, int64_t rows)
{
    move_rows(d, false, d->layout.at[GPT_PP] - 1, rows);
}

void gpt_decoder_send_rows(struct gpt_decoder *d, int64_t rows)
{
    move_rows(d, true, d->layout.at[GPT_PP] + 1, rows);
}

/* ---- logits ---- */

int64_t gpt_decoder_words(const struct gpt_decoder *d, int64_t tp_rank,
                          int64_t *first)
{
    const struct gpt_config *c = d->o.config;
    const int64_t width = c->padded_vocab_size / d->layout.size[GPT_TP];

    /* dummy rows come last: they are left out */
    *first = gpt_min_i64(tp_rank * width, c->vocab_size);
    return gpt_min_i64(width, c->vocab_size - *first);
}

/* Where the logits of a rank are in the first rank's buffer: after those of the
 * words before, all of them of n rows. */
static char *words_at(const struct gpt_decoder *d, int64_t first, int64_t n)
{
    return (char *)d->buffers[GPT_DECODE_LOGITS] +
           (size_t)(first * n) * sizeof(float);
}

/* Copies logits from the buffer, where the words of each rank are a block (n,
 * words), to rows of all words. */
static void copy_out(struct gpt_decoder *d, int64_t n, float *logits)
{
    const int64_t vocab = d->o.config->vocab_size;

    for (int64_t t = 0; t < d->layout.size[GPT_TP]; t++) {
        int64_t first;
        const int64_t words = gpt_decoder_words(d, t, &first);
        const size_t bytes = (size_t)words * sizeof(float);

        if (words == vocab) {
            d->be->copy_out(d->q, logits, words_at(d, 0, n), (size_t)n * bytes);
            return;
        }
        for (int64_t i = 0; i < n && words > 0; i++)
            d->be->copy_out(d->q, logits + i * vocab + first,
                            words_at(d, first, n) + (size_t)i * bytes, bytes);
    }
}

/* With one stage the first rank has logits itself; a rank may have dummy words
 * alone, and no logits. */
void gpt_decoder_collect(struct gpt_decoder *d, int64_t n, float *logits)
{
    const int64_t tp = d->layout.size[GPT_TP];
    const int64_t last = d->n_ranks - tp; /* the last stage's first rank */
    struct gpt_transfer moves[GPT_DECODE_MOST_RANKS];
    int64_t n_moves = 0, first;

    for (int64_t t = 0; t < tp; t++) {
        const int64_t bytes =
            gpt_decoder_words(d, t, &first) * n * (int64_t)sizeof(float);
        const int64_t peer = last + t;

        if (peer == 0 || bytes == 0 || (d->rank != 0 && d->rank != peer))
            continue;
        moves[n_moves++] = (struct gpt_transfer){
            .send = d->rank == peer,
            .peer = d->rank == peer ? 0 : peer,
            .buf = words_at(d, d->rank == peer ? 0 : first, n),
            .bytes = bytes,
        };
    }
    if (!is_alone(d))
        gpt_comm_exchange(d->o.ranks->world, d->q, moves, n_moves);
    if (d->rank == 0)
        copy_out(d, n, logits);
}
