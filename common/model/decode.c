/* Adding tokens to texts; see decode.h. Start at gpt_decoder_extend(): pieces
 * are cut and packed into blocks of rows, each block is a message that all
 * ranks obey (decode_pass.c).
 *
 * How a piece is cut, and which products its rows go through, depends on the
 * piece alone. That is why a text does not depend on those beside it. */
#include "model/decode_internal.h"

#include "base/num.h"

#include <assert.h>
#include <string.h>

/* ---- checks ---- */

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
static int check_piece(const struct gpt_decoder *d,
                       const struct gpt_decode_piece *piece,
                       struct gpt_err *err)
{
    const int64_t length = d->length[piece->slot];

    if (piece->n > d->o.positions - length)
        return gpt_fail(err, GPT_EDATA,
                        "a text of %lld tokens, but there are %lld positions",
                        (long long)(length + piece->n),
                        (long long)d->o.positions);
    for (int64_t i = 0; i < piece->n; i++)
        GPT_TRY(check_token(d, piece->tokens[i], err));
    return GPT_OK;
}

/* ---- blocks ---- */

/* A walk over pieces, in stretches of a text: its tokens [at, end), which were
 * turned alike. A piece is a stretch, and LongRoPE may want the tokens before
 * it, too. */
struct walk {
    const struct gpt_decode_piece *pieces;
    int64_t n, piece;
    int64_t at, end;
    int64_t wanted; /* its first token that is new: others give no logits */
    bool is_long;
    enum gpt_logits which;
};

static int64_t end_of_piece(const struct gpt_decoder *d,
                            const struct gpt_decode_piece *piece)
{
    return d->length[piece->slot] + piece->n;
}

/* The piece that the walk comes to: what it adds, and where the text is turned
 * otherwise from now on, all that it has. Tokens that are added one by one are
 * a stretch up to the last that leaves the text as it was. */
static void begin_piece(const struct gpt_decoder *d, struct walk *w)
{
    if (w->piece == w->n)
        return;
    const struct gpt_decode_piece *piece = &w->pieces[w->piece];
    const int64_t length = d->length[piece->slot];
    const int64_t before = d->o.config->rotary_positions;

    w->at = w->wanted = length;
    w->end = end_of_piece(d, piece);
    if (!d->history)
        return;
    w->is_long = gpt_config_is_long(d->o.config,
                                    gpt_max_i64(w->end, piece->whole));
    /* the others follow as a stretch of their own */
    if (w->is_long && piece->one_by_one && length < before) {
        w->is_long = false;
        w->end = before;
    }
    if (w->is_long != d->is_long[piece->slot])
        w->at = 0;
}

/* The next stretch of the piece, or the next piece. Only tokens that come one
 * by one are two stretches: what the text has up to the last one that fits is
 * turned again with the first that does not. */
static void end_stretch(const struct gpt_decoder *d, struct walk *w)
{
    const int64_t end = end_of_piece(d, &w->pieces[w->piece]);

    if (w->end == end) {
        w->piece++;
        begin_piece(d, w);
        return;
    }
    w->at = 0;
    w->wanted = w->end;
    w->end = end;
    w->is_long = true;
}

/* How many tokens a part has at most. Where sums follow the shapes of products,
 * parts are chunks: a prompt whose beginning is copied then has the shapes that
 * it has as a whole. */
static int64_t most_of_part(const struct gpt_decoder *d)
{
    return d->be->abilities & GPT_CAN_CHOOSE_SUMS ? gpt_decoder_rows(&d->o)
                                                  : GPT_DECODE_CHUNK;
}

/* How many tokens the next part takes of the `left` that its stretch has: as
 * many as a block takes, cut at a multiple of a chunk. A few tokens after the
 * last chunk are a part of their own, since they go through other products.
 * Where sums are chosen, bits do not depend on where else a piece is cut. */
static int64_t part_size(int64_t left, int64_t most)
{
    const int64_t over = left % GPT_DECODE_CHUNK;

    if (left > most)
        return most / GPT_DECODE_CHUNK * GPT_DECODE_CHUNK;
    return over <= GPT_DECODE_FEW && left > over ? left - over : left;
}

/* The part of the stretch that the walk is at, whatever is beside it. Of a text
 * that is computed again, what it had is apart from what is new: so new tokens
 * have the same bits however many come at once. */
static struct gpt_decode_part next_part(const struct gpt_decoder *d,
                                        const struct walk *w)
{
    const struct gpt_decode_piece *piece = &w->pieces[w->piece];
    const bool again = w->at < w->wanted;
    const int64_t stop = again ? w->wanted : w->end;
    const int64_t n = part_size(stop - w->at, most_of_part(d));

    return (struct gpt_decode_part){
        .slot = (int32_t)piece->slot,
        .start = (int32_t)w->at,
        .n = (int32_t)n,
        .wants = w->which == GPT_LOGITS_ALL
                     ? (again ? 0 : (int32_t)n)
                     : w->at + n == end_of_piece(d, piece),
    };
}

/* Token i of the text to which the piece is added. Those that the text had are
 * asked for where there is a history alone. */
static int32_t token_at(const struct gpt_decoder *d,
                        const struct gpt_decode_piece *piece, int64_t i)
{
    const int64_t length = d->length[piece->slot];

    return i < length ? d->history[piece->slot * d->o.positions + i]
                      : piece->tokens[i - length];
}

/* Fills the message with as many parts as it has room for; a slot has one part
 * in a block at most, as a part attends to what is in the cache before it. */
static void fill_block(struct gpt_decoder *d, struct walk *w)
{
    struct gpt_decode_message *m = d->message;
    const int64_t most = gpt_decoder_rows(&d->o);
    int64_t last = -1;

    m->kind = GPT_DECODE_ROWS;
    m->n_parts = m->n_rows = 0;
    while (w->piece < w->n && w->piece != last) {
        const struct gpt_decode_piece *piece = &w->pieces[w->piece];
        const struct gpt_decode_part part = next_part(d, w);
        const bool few = part.n <= GPT_DECODE_FEW;

        if (m->n_parts > 0 && (m->n_rows + part.n > most || few != m->few ||
                               w->is_long != m->is_long))
            return;
        m->few = few;
        m->is_long = w->is_long;
        for (int64_t i = 0; i < part.n; i++)
            d->tokens[m->n_rows + i] = token_at(d, piece, w->at + i);
        m->parts[m->n_parts++] = part;
        m->n_rows += part.n;
        last = w->piece;
        w->at += part.n;
        if (w->at == w->end)
            end_stretch(d, w);
    }
}

/* What is added becomes a part of the texts. The history has room for it: a
 * text is never longer than its slot. */
static void keep_pieces(struct gpt_decoder *d,
                        const struct gpt_decode_piece *pieces, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const struct gpt_decode_piece *piece = &pieces[i];
        const int64_t length = d->length[piece->slot];
        const int64_t end = end_of_piece(d, piece);

        if (d->history) {
            memcpy(d->history + piece->slot * d->o.positions + length,
                   piece->tokens, (size_t)piece->n * sizeof(*piece->tokens));
            d->is_long[piece->slot] = gpt_config_is_long(
                d->o.config, gpt_max_i64(end, piece->whole));
        }
        d->length[piece->slot] = (int32_t)end;
    }
}

/* The cache of a text that was to be computed again may be turned in both ways:
 * nothing of it can be used. Others stay as they were. */
static int fail_pieces(struct gpt_decoder *d,
                       const struct gpt_decode_piece *pieces, int64_t n,
                       int status)
{
    for (int64_t i = 0; d->history && i < n; i++)
        d->length[pieces[i].slot] = 0;
    return status;
}

/* All checks come before any work, and lengths grow only when all of it is
 * done: a call that fails leaves all texts as they were. What its blocks have
 * put into the cache is overwritten later. */
int gpt_decoder_extend(struct gpt_decoder *d,
                       const struct gpt_decode_piece *pieces, int64_t n,
                       enum gpt_logits which, float *logits,
                       struct gpt_err *err)
{
    struct walk w = {.pieces = pieces, .n = n, .which = which};

    assert(d->rank == 0 && n <= d->o.slots);
    for (int64_t i = 0; i < n; i++)
        GPT_TRY(check_piece(d, &pieces[i], err));
    begin_piece(d, &w);
    while (w.piece < n) {
        fill_block(d, &w);
        int status = gpt_decoder_tell(d, err);
        if (status == GPT_OK)
            status = gpt_decoder_obey(d, logits, err);
        if (status != GPT_OK)
            return fail_pieces(d, pieces, n, status);
        logits += gpt_decoder_count_wanted(d->message) *
                  d->o.config->vocab_size;
    }
    keep_pieces(d, pieces, n);
    return GPT_OK;
}

int gpt_decoder_append(struct gpt_decoder *d, int64_t slot,
                       const int32_t *tokens, int64_t n, enum gpt_logits which,
                       float *logits, struct gpt_err *err)
{
    const struct gpt_decode_piece piece = {
        .slot = slot, .n = n, .tokens = tokens};

    return gpt_decoder_extend(d, &piece, 1, which, logits, err);
}

/* Reads the weights once for all texts: that is what makes several texts cost
 * little more than one. */
int gpt_decoder_step(struct gpt_decoder *d, const int32_t *slots,
                     const int32_t *tokens, int64_t n, float *logits,
                     struct gpt_err *err)
{
    struct gpt_decode_piece *pieces = d->pieces;

    for (int64_t i = 0; i < n; i++)
        pieces[i] = (struct gpt_decode_piece){
            .slot = slots[i], .n = 1, .tokens = &tokens[i]};
    return gpt_decoder_extend(d, pieces, n, GPT_LOGITS_LAST, logits, err);
}

/* ---- slots ---- */

int64_t gpt_decoder_length(const struct gpt_decoder *d, int64_t slot)
{
    assert(slot >= 0 && slot < d->o.slots);
    return d->length[slot];
}

void gpt_decoder_truncate(struct gpt_decoder *d, int64_t slot, int64_t length)
{
    /* keys past the end stay in the cache, where no query reads them; other
     * ranks get the place of new tokens with these */
    if (length < d->length[slot])
        d->length[slot] = (int32_t)length;
}

int gpt_decoder_copy(struct gpt_decoder *d, int64_t from, int64_t to,
                     int64_t n, struct gpt_err *err)
{
    assert(from != to && from < d->o.slots && to < d->o.slots);
    assert(n <= d->length[from]);
    d->message->kind = GPT_DECODE_COPY;
    d->message->from = (int32_t)from;
    d->message->to = (int32_t)to;
    d->message->length = (int32_t)n;
    GPT_TRY(gpt_decoder_tell(d, err));
    /* the length grows only when the copies are there: a device that fails
     * leaves a slot that is shorter, and not one with holes */
    GPT_TRY(gpt_decoder_obey(d, NULL, err));
    if (d->history) {
        memcpy(d->history + to * d->o.positions,
               d->history + from * d->o.positions,
               (size_t)n * sizeof(*d->history));
        d->is_long[to] = d->is_long[from];
    }
    d->length[to] = (int32_t)n;
    return GPT_OK;
}

/* A message of the first rank is trusted: the first rank has checked what
 * callers gave. */
int gpt_decoder_follow(struct gpt_decoder *d, struct gpt_err *err)
{
    assert(d->rank > 0);
    for (;;) {
        GPT_TRY(gpt_decoder_tell(d, err));
        if (d->message->kind == GPT_DECODE_END)
            return GPT_OK;
        GPT_TRY(gpt_decoder_obey(d, NULL, err));
    }
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
