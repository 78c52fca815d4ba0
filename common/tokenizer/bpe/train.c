/* Training of a byte-pair vocabulary: see train.h. Start at
 * gpt_bpe_train(), then merge_pair().
 *
 * All pieces lie in one array of tokens, a slot a byte:
 *
 *     EDGE t h e EDGE t h i n g EDGE        tokens of one byte
 *     EDGE T - T EDGE T - T n g EDGE        after T = "the", "thi"
 *
 * A token's id is in the first and in the last slot that it covers, the
 * slots between hold INNER. With the length of each token known, the left
 * neighbour's id is in the slot before, the right one's in the slot after: a
 * merge is a few stores, and never moves or scans a piece. */
#include "tokenizer/bpe/train.h"

#include "base/memory.h"
#include "base/progress.h"
#include "base/signals.h"
#include "tokenizer/bpe/train_pairs.h"
#include "tokenizer/bytelevel.h"

#include <assert.h>

enum { EDGE = -2, INNER = -1 };

/* A pair seen in this round, before it is known whether it occurs often enough
 * to be kept. Most do not, which is why they have a list of their own. */
struct candidate {
    struct gpt_bpe_pair pair;
    size_t n_filled;
};

struct sighting {
    uint32_t candidate;
    struct gpt_bpe_place place;
};

/* The pairs that came up in one pass: the count of the bytes, or a merge. Pairs
 * of a merge all hold the new token, so that an index by neighbour finds them;
 * pairs of the count are found by both bytes. */
struct round {
    struct candidate *candidate;
    size_t n_candidates, cap_candidates;
    struct sighting *sighting;
    size_t n_sightings, cap_sightings;
};

struct trainer {
    const struct gpt_word *piece;
    size_t n_pieces;
    const struct gpt_bpe_train_options *options;

    int32_t *token; /* the array above */
    size_t *begin;   /* (n_pieces) first slot of each */
    uint32_t *bytes; /* (256 + max_merges) length of each token, in slots */

    struct gpt_bpe_pairs pairs;
    struct round round;
    uint32_t *before, *after; /* (256 + max_merges) candidate + 1 of (x, new)
                               * and of (new, x); 0 = none this round */
    struct gpt_bpe_place **block; /* places of the pairs kept, one a round */
    size_t n_blocks, cap_blocks;

    struct gpt_bpe_trained model;
};

/* ---- a round ---- */

/* Counts one more place of the pair that *index names (0: not seen yet). */
static int count_pair(struct round *r, uint32_t *index, int32_t left,
                      int32_t right, int64_t count,
                      struct gpt_bpe_place place, struct gpt_err *err)
{
    assert(*index <= r->n_candidates);
    if (*index == 0) {
        GPT_TRY(gpt_grow(&r->candidate, &r->cap_candidates,
                         r->n_candidates + 1, sizeof(*r->candidate),
                         "new pairs", err));
        r->candidate[r->n_candidates] =
            (struct candidate){.pair = {.left = left, .right = right}};
        *index = (uint32_t)++r->n_candidates;
    }
    GPT_TRY(gpt_grow(&r->sighting, &r->cap_sightings, r->n_sightings + 1,
                     sizeof(*r->sighting), "places of new pairs", err));
    struct candidate *c = &r->candidate[*index - 1];
    c->pair.count += count;
    c->pair.n_places++;
    r->sighting[r->n_sightings++] = (struct sighting){*index - 1, place};
    return GPT_OK;
}

/* Keeps the candidates that occur often enough, with their places; the others
 * can never be merged, because counts only fall. The places were seen in the
 * order of the text, all pairs mixed: they are dealt out to their pairs by a
 * second pass, into one block of just the right size. */
static int close_round(struct trainer *t, struct gpt_err *err)
{
    struct round *r = &t->round;
    int64_t enough = t->options->min_frequency;
    size_t n = 0;

    for (size_t i = 0; i < r->n_candidates; i++)
        if (r->candidate[i].pair.count >= enough)
            n += r->candidate[i].pair.n_places;
    if (n == 0)
        goto out;

    struct gpt_bpe_place *block;
    GPT_TRY(gpt_grow(&t->block, &t->cap_blocks, t->n_blocks + 1,
                     sizeof(*t->block), "places of pairs", err));
    GPT_TRY(gpt_new(&block, n, sizeof(*block), "places of pairs", err));
    t->block[t->n_blocks++] = block;

    for (size_t i = 0; i < r->n_candidates; i++) {
        struct candidate *c = &r->candidate[i];

        if (c->pair.count < enough)
            continue;
        c->pair.place = block;
        block += c->pair.n_places;
        GPT_TRY(gpt_bpe_pairs_add(&t->pairs, &c->pair, err));
    }
    for (size_t i = 0; i < r->n_sightings; i++) {
        struct candidate *c = &r->candidate[r->sighting[i].candidate];

        if (c->pair.place)
            c->pair.place[c->n_filled++] = r->sighting[i].place;
    }
out:
    r->n_candidates = r->n_sightings = 0;
    return GPT_OK;
}

/* ---- merging ---- */

/* Counts the two pairs that a token just made at `slot` forms with its
 * neighbours. */
static int count_neighbours(struct trainer *t, int32_t new_token, size_t slot,
                            struct gpt_bpe_place place, struct gpt_err *err)
{
    int64_t count = t->piece[place.piece].count;
    int32_t left = t->token[slot - 1];
    int32_t right = t->token[slot + t->bytes[new_token]];

    if (left != EDGE) {
        struct gpt_bpe_place p = {place.piece, place.offset - t->bytes[left]};

        GPT_TRY(count_pair(&t->round, &t->before[left], left, new_token, count,
                           p, err));
    }
    if (right != EDGE)
        GPT_TRY(count_pair(&t->round, &t->after[right], new_token, right, count,
                           place, err));
    return GPT_OK;
}

/* Takes away one place of a pair of neighbours that a merge parts. If the left
 * one is the new token the pair was first counted in this round, a place
 * before, as in "aaaa": then it is a candidate still. Any other is an old pair.
 */
static void uncount_pair(struct trainer *t, int32_t new_token, int32_t left,
                         int32_t right, int64_t count)
{
    if (left == new_token)
        t->round.candidate[t->after[right] - 1].pair.count -= count;
    else
        gpt_bpe_pairs_lower(&t->pairs, left, right, count);
}

/* Merges `pair` at one of its places, unless the pair has gone from there. */
static int merge_at(struct trainer *t, const struct gpt_bpe_pair *pair,
                    struct gpt_bpe_place place, int32_t new_token,
                    struct gpt_err *err)
{
    int32_t *token = t->token;
    size_t n_left = t->bytes[pair->left], n_right = t->bytes[pair->right];
    size_t slot = t->begin[place.piece] + place.offset;
    size_t middle = slot + n_left, end = middle + n_right;

    /* Places are never taken back, so this one may be of the past. A slot that
     * no longer begins this token holds a longer one's id, or INNER, so the
     * first comparison settles that. */
    if (token[slot] != pair->left || token[middle] != pair->right)
        return GPT_OK;

    int64_t count = t->piece[place.piece].count;
    if (token[slot - 1] != EDGE)
        uncount_pair(t, new_token, token[slot - 1], pair->left, count);
    if (token[end] != EDGE)
        uncount_pair(t, new_token, pair->right, token[end], count);

    token[middle - 1] = token[middle] = INNER;
    token[slot] = token[end - 1] = new_token;
    t->model.n_tokens -= count;
    return count_neighbours(t, new_token, slot, place, err);
}

/* Makes the next token out of `pair`, which is a copy, as new pairs move the
 * list. Its places are in the order of the text, so that a run of one token
 * ("aaa") is merged from left to right. */
static int merge_pair(struct trainer *t, struct gpt_bpe_pair pair,
                      struct gpt_err *err)
{
    struct gpt_bpe_trained *m = &t->model;
    int32_t new_token = (int32_t)(GPT_BPE_BYTES + m->n_merges);

    assert(pair.left < new_token && pair.right < new_token);
    m->merges[m->n_merges++] = (struct gpt_bpe_merge){pair.left, pair.right};
    t->bytes[new_token] = t->bytes[pair.left] + t->bytes[pair.right];

    for (size_t i = 0; i < pair.n_places; i++)
        GPT_TRY(merge_at(t, &pair, pair.place[i], new_token, err));

    /* the index by neighbour is emptied for the next round, and only where this
     * one wrote: it is as long as the vocabulary */
    for (size_t i = 0; i < t->round.n_candidates; i++) {
        const struct gpt_bpe_pair *p = &t->round.candidate[i].pair;

        t->before[p->left] = 0;
        t->after[p->right] = 0;
    }
    return close_round(t, err);
}

static int merge_all(struct trainer *t, struct gpt_err *err)
{
    while (t->model.n_merges < t->options->max_merges) {
        const struct gpt_bpe_pair *pair = gpt_bpe_pairs_take(&t->pairs);

        if (!pair || pair->count < t->options->min_frequency)
            break;
        if (gpt_signals_stop())
            return gpt_fail(err, GPT_EFAIL, "interrupted after %lld merges",
                            (long long)t->model.n_merges);
        GPT_TRY(merge_pair(t, *pair, err));
        gpt_progress_set(t->options->progress, t->model.n_merges, NULL);
    }
    return GPT_OK;
}

/* ---- the beginning ---- */

static int allocate_trainer(struct trainer *t, struct gpt_err *err)
{
    size_t n_slots = 1;

    /* a place has 32 bits for each of its two numbers */
    if (t->n_pieces > UINT32_MAX)
        return gpt_fail(err, GPT_EDATA, "more than 2^32 - 1 distinct pieces");
    for (size_t i = 0; i < t->n_pieces; i++) {
        if (t->piece[i].len > UINT32_MAX)
            return gpt_fail(err, GPT_EDATA,
                            "a piece of %zu bytes without a break is longer "
                            "than 2^32 - 1", t->piece[i].len);
        n_slots += t->piece[i].len + 1;
    }
    size_t n_ids = (size_t)(GPT_BPE_BYTES + t->options->max_merges);
    GPT_TRY(gpt_new(&t->token, n_slots, sizeof(*t->token), "tokens", err));
    GPT_TRY(gpt_new(&t->begin, t->n_pieces, sizeof(*t->begin), "pieces", err));
    GPT_TRY(gpt_new(&t->bytes, n_ids, sizeof(*t->bytes), "lengths", err));
    GPT_TRY(gpt_new(&t->before, n_ids, sizeof(*t->before), "neighbours", err));
    GPT_TRY(gpt_new(&t->after, n_ids, sizeof(*t->after), "neighbours", err));
    return gpt_new(&t->model.merges, (size_t)t->options->max_merges,
                   sizeof(*t->model.merges), "merges", err);
}

/* Writes the first state of the array: every byte is a token. */
static void lay_out_bytes(struct trainer *t)
{
    int32_t id[GPT_BPE_BYTES];

    for (int rank = 0; rank < GPT_BPE_BYTES; rank++) {
        id[gpt_byte_of_rank(rank)] = rank;
        t->bytes[rank] = 1;
    }
    size_t slot = 0;
    t->token[slot++] = EDGE;
    for (size_t i = 0; i < t->n_pieces; i++) {
        const struct gpt_word *p = &t->piece[i];

        t->begin[i] = slot;
        for (size_t k = 0; k < p->len; k++)
            t->token[slot++] = id[(uint8_t)p->data[k]];
        t->token[slot++] = EDGE;
        t->model.n_bytes += p->count * (int64_t)p->len;
    }
    t->model.n_tokens = t->model.n_bytes;
}

/* Counts the pairs of bytes of piece number i. */
static int count_piece(struct trainer *t, uint32_t (*seen)[GPT_BPE_BYTES],
                       size_t i, struct gpt_err *err)
{
    const struct gpt_word *p = &t->piece[i];
    const int32_t *token = t->token + t->begin[i];

    for (size_t k = 0; k + 1 < p->len; k++) {
        struct gpt_bpe_place place = {(uint32_t)i, (uint32_t)k};

        GPT_TRY(count_pair(&t->round, &seen[token[k]][token[k + 1]], token[k],
                           token[k + 1], p->count, place, err));
    }
    return GPT_OK;
}

/* Counts the pairs of bytes in the first round, with an index by both bytes. */
static int count_byte_pairs(struct trainer *t, struct gpt_err *err)
{
    uint32_t(*seen)[GPT_BPE_BYTES];
    int status;

    GPT_TRY(gpt_new(&seen, GPT_BPE_BYTES, sizeof(*seen), "pairs of bytes",
                    err));
    for (size_t i = 0; i < t->n_pieces; i++)
        GPT_TRY_GOTO(status, count_piece(t, seen, i, err), out);
    status = close_round(t, err);
out:
    gpt_free(seen);
    return status;
}

static void trainer_free(struct trainer *t)
{
    for (size_t i = 0; i < t->n_blocks; i++)
        gpt_free(t->block[i]);
    gpt_free(t->block);
    gpt_bpe_pairs_free(&t->pairs);
    gpt_free(t->round.candidate);
    gpt_free(t->round.sighting);
    gpt_free(t->token);
    gpt_free(t->begin);
    gpt_free(t->bytes);
    gpt_free(t->before);
    gpt_free(t->after);
}

int gpt_bpe_train(struct gpt_bpe_trained *model, const struct gpt_word *pieces,
                  size_t n_pieces, const struct gpt_bpe_train_options *options,
                  struct gpt_err *err)
{
    struct trainer t = {
        .piece = pieces, .n_pieces = n_pieces, .options = options};
    int status;

    GPT_TRY_GOTO(status, allocate_trainer(&t, err), out);
    lay_out_bytes(&t);
    GPT_TRY_GOTO(status, count_byte_pairs(&t, err), out);
    GPT_TRY_GOTO(status, merge_all(&t, err), out);
    *model = t.model;
out:
    if (status != GPT_OK)
        gpt_bpe_trained_free(&t.model);
    trainer_free(&t);
    return status;
}

void gpt_bpe_trained_free(struct gpt_bpe_trained *model)
{
    gpt_free(model->merges);
    *model = (struct gpt_bpe_trained){0};
}
