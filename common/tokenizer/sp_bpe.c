/* Encoding by a BPE model, as bpe_model.cc of SentencePiece does it: from
 * single characters on, the two neighbours are merged whose text together is
 * the piece of the best score, of equal ones the leftmost. Start at
 * gpt_sp_encode_bpe().
 *
 * It differs from bpe/bpe.c in what a merge is: there a pair of tokens that is
 * in a list, here any two neighbours whose bytes together are a piece. */
#include "tokenizer/sp_encode.h"

#include <assert.h>
#include <string.h>

#define NONE UINT32_MAX

/* A character, or what characters were merged to. */
struct gpt_sp_symbol {
    uint32_t len;        /* bytes, from the place of its first on */
    uint32_t prev, next; /* places; NONE at the ends */
    uint32_t rank;       /* of the pair with `next`; NONE: no pair */
    bool frozen;         /* user-defined: never merged */
};

/* A score as a number of which the lowest is the best, so that a heap of words
 * serves: floats of one sign are ordered as their bits are, and those of the
 * other sign the other way round. NONE is kept free. */
static uint32_t rank_of(float score)
{
    uint32_t bits;

    memcpy(&bits, &score, sizeof(bits));
    bits = bits >> 31 ? ~bits : bits | 1u << 31;
    return ~bits - (~bits == NONE);
}

/* Finds the rank of the pair that begins at `at`, and puts it into the heap. */
static int push_pair(const struct gpt_sp_model *m, struct gpt_sp_scratch *s,
                     const char *text, uint32_t at, struct gpt_err *err)
{
    struct gpt_sp_symbol *left = &s->symbols[at];

    left->rank = NONE;
    if (left->frozen || left->next == NONE || s->symbols[left->next].frozen)
        return GPT_OK;
    int32_t id = gpt_token_map_find(&m->normal, text + at,
                                    left->len + s->symbols[left->next].len);
    if (id < 0)
        return GPT_OK;
    left->rank = rank_of(m->pieces[id].score);
    return gpt_pair_heap_push(&s->heap, left->rank, at, err);
}

/* Writes a symbol for each character or user-defined piece, where it begins.
 * The first byte of a character says how long it is, as in SentencePiece: the
 * text is normalized and therefore UTF-8. */
static void cut_symbols(const struct gpt_sp_model *m,
                        struct gpt_sp_symbol *symbols, const char *text,
                        size_t len)
{
    uint32_t prev = NONE;

    for (size_t at = 0; at < len;) {
        size_t user = m->longest_user
                          ? gpt_sp_user_prefix(m, text + at, len - at)
                          : 0;
        size_t n = user ? user : gpt_sp_char_len(text + at, len - at);

        symbols[at] = (struct gpt_sp_symbol){
            .len = (uint32_t)n, .prev = prev, .rank = NONE, .frozen = user > 0,
            .next = at + n < len ? (uint32_t)(at + n) : NONE};
        prev = (uint32_t)at;
        at += n;
    }
}

/* As in bpe/bpe.c an entry of the heap is good while its rank is that of the
 * symbol at its place. */
static int merge_symbols(const struct gpt_sp_model *m,
                         struct gpt_sp_scratch *s, const char *text,
                         struct gpt_err *err)
{
    struct gpt_sp_symbol *symbols = s->symbols;
    uint32_t at, rank;

    s->heap.n = 0; /* a call that failed may have left some */
    for (at = 0; at != NONE; at = symbols[at].next)
        GPT_TRY(push_pair(m, s, text, at, err));
    while (gpt_pair_heap_pop(&s->heap, &rank, &at)) {
        struct gpt_sp_symbol *left = &symbols[at];

        if (left->rank != rank)
            continue; /* it was merged since */
        assert(left->next != NONE); /* a symbol with a rank has a neighbour */
        struct gpt_sp_symbol *right = &symbols[left->next];
        right->rank = NONE;
        left->len += right->len;
        left->next = right->next;
        if (left->next != NONE)
            symbols[left->next].prev = at;
        if (left->prev != NONE)
            GPT_TRY(push_pair(m, s, text, left->prev, err));
        GPT_TRY(push_pair(m, s, text, at, err));
    }
    return GPT_OK;
}

int gpt_sp_encode_bpe(const struct gpt_sp_model *m, struct gpt_sp_scratch *s,
                      const char *text, size_t len, struct gpt_ids *ids,
                      struct gpt_err *err)
{
    const size_t first = ids->len;

    assert(len > 0);
    GPT_TRY(gpt_sp_check_len(len, err));
    GPT_TRY(gpt_grow(&s->symbols, &s->symbols_cap, len, sizeof(*s->symbols),
                     "a text", err));
    cut_symbols(m, s->symbols, text, len);
    GPT_TRY(merge_symbols(m, s, text, err));
    for (uint32_t at = 0; at != NONE; at = s->symbols[at].next) {
        size_t n = s->symbols[at].len;

        GPT_TRY(gpt_sp_add_piece(m, text + at, n, gpt_sp_find(m, text + at, n),
                                 first, ids, err));
    }
    return GPT_OK;
}

