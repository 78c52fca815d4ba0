/* See words.h. Start at gpt_word_parts_encode(). */
#include "tokenizer/words.h"

#include "base/io.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* ---- reading ---- */

static int check_tokens(const struct gpt_words *w, const char *name,
                        struct gpt_err *err)
{
    if (w->names.n_listed == 0)
        return gpt_fail(err, GPT_EDATA, "%s has no tokens", name);
    for (int64_t id = 0; id < w->names.n; id++)
        if (w->names.texts[id].len > GPT_TOKEN_MAX)
            return gpt_fail(err, GPT_EDATA, "%s: token %lld has %zu bytes, "
                            "must have at most %d", name, (long long)id,
                            w->names.texts[id].len, GPT_TOKEN_MAX);
    return GPT_OK;
}

int gpt_words_read(struct gpt_words *w, const cJSON *model,
                   struct gpt_str vocab, const char *what, struct gpt_err *err)
{
    const struct gpt_vocab_ids ids = {.gaps = true};
    char name[GPT_JOINED_BYTES];
    const char *unk;

    *w = (struct gpt_words){.unk = -1};
    GPT_TRY(gpt_json_string(model, "unk_token", &unk, what, err));
    snprintf(name, sizeof(name), "%s: model.vocab", what);
    GPT_TRY(gpt_vocab_names_read(&w->names, vocab, &ids, name, err));
    GPT_TRY(check_tokens(w, name, err));
    w->unk = gpt_vocab_name_find(&w->names, unk, strlen(unk));
    return GPT_OK;
}

/* The node behind a text, 0 where no token begins with it. */
static uint32_t walk(const struct gpt_sp_trie *t, const char *text)
{
    uint32_t at = 0;

    for (; *text; text++) {
        at = gpt_sp_trie_child(t, at, (uint8_t)*text);
        if (!at)
            break;
    }
    return at;
}

int gpt_word_parts_read(struct gpt_words *w, const cJSON *model,
                        struct gpt_str vocab, const char *what,
                        struct gpt_err *err)
{
    enum { MOST = INT32_MAX };
    const char *prefix;

    GPT_TRY(gpt_words_read(w, model, vocab, what, err));
    GPT_TRY(gpt_json_string(model, "continuing_subword_prefix", &prefix, what,
                            err));
    GPT_TRY(gpt_json_int(model, "max_input_chars_per_word", 0, MOST, &w->most,
                         what, err));
    GPT_TRY(gpt_sp_trie_of(&w->trie, w->names.texts, w->names.n, err));
    w->inside = walk(&w->trie, prefix);
    if (*prefix && !w->inside)
        w->inside = GPT_NO_PATH;
    return GPT_OK;
}

void gpt_words_close(struct gpt_words *w)
{
    gpt_sp_trie_close(&w->trie);
    gpt_vocab_names_close(&w->names);
}

/* ---- encoding ---- */

static int add_unknown(const struct gpt_words *w, struct gpt_str piece,
                       struct gpt_ids *ids, struct gpt_err *err)
{
    if (w->unk < 0)
        return gpt_fail(err, GPT_EDATA, "the model has no token for '%.*s', "
                        "and none for unknown words (model.unk_token)",
                        gpt_str_shown(piece.len), piece.data);
    return gpt_ids_add(ids, &w->unk, 1, err);
}

int gpt_words_encode(const struct gpt_words *w, struct gpt_str piece,
                     struct gpt_ids *ids, struct gpt_err *err)
{
    const int32_t id = gpt_vocab_name_find(&w->names, piece.data, piece.len);

    return id >= 0 ? gpt_ids_add(ids, &id, 1, err)
                   : add_unknown(w, piece, ids, err);
}

/* Bytes of the longest token that the rest of a piece begins with behind
 * `node`; 0 when there is none. */
static size_t longest(const struct gpt_sp_trie *t, uint32_t node,
                      struct gpt_str rest, int32_t *id)
{
    size_t found = 0;

    for (size_t i = 0; i < rest.len;) {
        node = gpt_sp_trie_child(t, node, (uint8_t)rest.data[i++]);
        if (!node)
            break;
        if (t->ids[node] < 0)
            continue;
        *id = t->ids[node];
        found = i;
    }
    return found;
}

int gpt_word_parts_encode(const struct gpt_words *w, struct gpt_str piece,
                          struct gpt_ids *ids, struct gpt_err *err)
{
    const size_t first = ids->len;
    size_t n;
    int32_t id = -1;

    if (gpt_utf8_count(piece.data, piece.len) > (size_t)w->most)
        return add_unknown(w, piece, ids, err);
    for (size_t at = 0; at < piece.len; at += n) {
        const struct gpt_str rest = {piece.data + at, piece.len - at};
        const uint32_t node = at ? w->inside : 0;

        n = node == GPT_NO_PATH ? 0 : longest(&w->trie, node, rest, &id);
        if (n == 0) {
            ids->len = first;
            return add_unknown(w, piece, ids, err);
        }
        GPT_TRY(gpt_ids_add(ids, &id, 1, err));
    }
    return GPT_OK;
}
