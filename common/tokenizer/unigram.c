/* Encoding by the unigram model of a tokenizer.json, with the library's ids in
 * every case: see unigram.h for what it does otherwise than SentencePiece. The
 * search is explained in sp_unigram.c. Start at gpt_unigram_encode(). */
#include "tokenizer/unigram.h"

#include <assert.h>

#define NONE UINT32_MAX
#define UNKNOWN_PENALTY 10.0

/* The best way to a position of the piece, by its last token. */
struct gpt_unigram_path {
    double score;
    int32_t id;
    uint32_t begin; /* NONE: there is no way yet */
};

/* The way found first stays where another one is as good. */
static void offer_path(struct gpt_unigram_path *end, double score, int32_t id,
                       size_t begin)
{
    if (end->begin == NONE || score > end->score)
        *end = (struct gpt_unigram_path){score, id, (uint32_t)begin};
}

/* Offers all tokens that begin at `begin`, and the unknown one for a character
 * that is no token, so that a way to the end always exists. */
static void extend_paths(const struct gpt_unigram *u,
                         struct gpt_unigram_path *paths, const char *text,
                         size_t begin, size_t char_len, size_t len)
{
    const double here = paths[begin].score;
    bool has_char = false;
    uint32_t at = 0;

    for (size_t end = begin; end < len;) {
        at = gpt_sp_trie_child(&u->trie, at, (uint8_t)text[end++]);
        if (!at)
            break;
        const int32_t id = u->trie.ids[at];
        if (id < 0)
            continue;
        offer_path(&paths[end], u->scores[id] + here, id, begin);
        has_char = has_char || end - begin == char_len;
    }
    if (!has_char)
        offer_path(&paths[begin + char_len],
                   u->lowest - UNKNOWN_PENALTY + here, u->unk, begin);
}

/* Turns the chain of last tokens round, in place: paths[p].begin becomes where
 * the token after position p ends. */
static void reverse_path(struct gpt_unigram_path *paths, size_t len)
{
    uint32_t end = (uint32_t)len, next = NONE;

    while (end > 0) {
        uint32_t begin = paths[end].begin;

        paths[end].begin = next;
        next = end;
        end = begin;
    }
    paths[0].begin = next;
}

/* Unknown characters in a row are one text, which may happen to be a token
 * after all, or its bytes, or the unknown token. */
static int add_unknown(const struct gpt_unigram *u, const char *text,
                       size_t len, struct gpt_ids *ids, struct gpt_err *err)
{
    const int32_t id = gpt_token_map_find(&u->map, text, len);

    if (id >= 0)
        return gpt_ids_add(ids, &id, 1, err);
    if (!u->byte_fallback)
        return gpt_ids_add(ids, &u->unk, 1, err);
    for (size_t i = 0; i < len; i++) {
        int32_t byte = u->byte_id[(uint8_t)text[i]];

        /* the library asks for the bytes of this text alone */
        if (byte < 0) {
            ids->len -= i;
            return gpt_ids_add(ids, &u->unk, 1, err);
        }
        GPT_TRY(gpt_ids_add(ids, &byte, 1, err));
    }
    return GPT_OK;
}

static int add_path(const struct gpt_unigram *u,
                    const struct gpt_unigram_path *paths, const char *text,
                    struct gpt_ids *ids, struct gpt_err *err)
{
    uint32_t at = 0, end;

    while ((end = paths[at].begin) != NONE) {
        const int32_t id = paths[end].id;

        while (id == u->unk && paths[end].begin != NONE &&
               paths[paths[end].begin].id == id)
            end = paths[end].begin;
        GPT_TRY(id == u->unk
                    ? add_unknown(u, text + at, end - at, ids, err)
                    : gpt_ids_add(ids, &id, 1, err));
        at = end;
    }
    return GPT_OK;
}

int gpt_unigram_encode(const struct gpt_unigram *u,
                       struct gpt_unigram_scratch *s, const char *text,
                       size_t len, struct gpt_ids *ids, struct gpt_err *err)
{
    if (len == 0)
        return GPT_OK;
    GPT_TRY(gpt_sp_check_len(len, err));
    GPT_TRY(gpt_grow(&s->paths, &s->cap, len + 1, sizeof(*s->paths), "a text",
                     err));
    struct gpt_unigram_path *paths = s->paths;
    for (size_t i = 0; i <= len; i++)
        paths[i] = (struct gpt_unigram_path){0, -1, NONE};
    for (size_t at = 0; at < len;) {
        const size_t n = gpt_sp_char_len(text + at, len - at);

        extend_paths(u, paths, text, at, n, len);
        at += n;
    }
    assert(paths[len].begin != NONE); /* the unknown token leads everywhere */
    reverse_path(paths, len);
    return add_path(u, paths, text, ids, err);
}
