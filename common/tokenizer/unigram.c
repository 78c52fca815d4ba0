/* Encoding by the unigram model of a tokenizer.json, with the library's ids in
 * every case: see unigram.h for what it does otherwise than SentencePiece. The
 * search is explained in sp_unigram.c. Start at gpt_unigram_encode(). */
#include "tokenizer/unigram.h"

#include <assert.h>

#define UNKNOWN_PENALTY 10.0

static int refuse_unknown(const char *text, size_t n, struct gpt_err *err)
{
    return gpt_fail(err, GPT_EDATA, "the model has no token for '%.*s', and "
                    "none for unknown characters (model.unk_id)", (int)n, text);
}

/* Offers all tokens that begin at `begin`, and the unknown one for a character
 * that is no token, so that a way to the end always exists. GPT_EDATA where
 * that is the best way and the model has no such token. */
static int extend_paths(const struct gpt_unigram *u,
                        struct gpt_best_path *paths, const char *text,
                        size_t begin, size_t char_len, size_t len,
                        struct gpt_err *err)
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
        gpt_best_offer(&paths[end], u->scores[id] + here, id, begin);
        has_char = has_char || end - begin == char_len;
    }
    if (has_char)
        return GPT_OK;
    gpt_best_offer(&paths[begin + char_len],
                   u->lowest - UNKNOWN_PENALTY + here, u->unk, begin);
    return paths[begin + char_len].id < 0
               ? refuse_unknown(text + begin, char_len, err)
               : GPT_OK;
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
                    const struct gpt_best_path *paths, const char *text,
                    struct gpt_ids *ids, struct gpt_err *err)
{
    uint32_t at = 0, end;

    while ((end = paths[at].begin) != GPT_NO_PATH) {
        const int32_t id = paths[end].id;

        while (id == u->unk && paths[end].begin != GPT_NO_PATH &&
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
    GPT_TRY(gpt_best_begin(&s->paths, &s->cap, len, err));
    struct gpt_best_path *paths = s->paths;
    for (size_t at = 0; at < len;) {
        const size_t n = gpt_sp_char_len(text + at, len - at);

        GPT_TRY(extend_paths(u, paths, text, at, n, len, err));
        at += n;
    }
    /* the unknown token leads everywhere */
    assert(paths[len].begin != GPT_NO_PATH);
    gpt_best_reverse(paths, len);
    return add_path(u, paths, text, ids, err);
}
