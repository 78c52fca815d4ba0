/* See vocab_chars.h. Start at gpt_chars_join().
 *
 * A character of several bytes is merged from its first byte on: the token of a
 * beginning and the next byte make a longer beginning, and at last the token of
 * the character. A byte after the first is never the left half of such a merge,
 * so that these merges do not compete, and as the first of all merges they are
 * done before any other. What is left of a character that has no token is its
 * bytes, some of them joined to a beginning: gpt_chars_expand() parts it. */
#include "tokenizer/vocab_chars.h"

#include "base/utf8.h"
#include "tokenizer/sp_model.h"
#include "tokenizer/sp_normalize.h"
#include "tokenizer/token_map.h"

#include <assert.h>
#include <string.h>

/* Texts of the file have U+2581 for a space, and so has a text that was
 * normalized; here both have the space. A space in a text of the file then
 * looks the same, but no normalized text holds one, and no merge makes it. */
size_t gpt_chars_spaces(const char *text, size_t len, char *out)
{
    const size_t space = strlen(GPT_SP_SPACE);
    size_t n = 0;

    for (size_t i = 0; i < len;) {
        bool is_space = len - i >= space &&
                        memcmp(text + i, GPT_SP_SPACE, space) == 0;

        out[n++] = is_space ? ' ' : text[i];
        i += is_space ? space : 1;
    }
    return n;
}

/* The decoder's steps, Replace and ByteFallback, for one token. */
size_t gpt_chars_print(const char *text, size_t len, char *out)
{
    const int byte = gpt_sp_byte_of((struct gpt_str){text, len});

    if (byte < 0)
        return gpt_chars_spaces(text, len, out);
    out[0] = (char)byte;
    return 1;
}

/* Characters on their way to merges. A character of n bytes has n - 2
 * beginnings of two bytes and more, which others may share, so that its n bytes
 * are room for all that it adds. */
struct joining {
    struct gpt_vocab *v;
    struct gpt_str *prefixes; /* (n_prefixes), their ids from v->n on */
    size_t n_prefixes;
    struct gpt_token_map map; /* over prefixes */
    struct gpt_merge *merges;
    size_t n_merges;
};

/* True for a token that is one character of several bytes. */
static bool is_wide_char(const struct gpt_str *token)
{
    uint32_t cp;

    return token->data && token->len > 1 && token->len <= 4 &&
           gpt_utf8_decode((const uint8_t *)token->data, token->len, &cp) ==
               (int)token->len;
}

/* The id of the first n bytes of a character, 1 < n; a new one if need be. */
static int32_t prefix_of(struct joining *j, const char *text, size_t n,
                         bool *is_new)
{
    int32_t at = gpt_token_map_find(&j->map, text, n);

    *is_new = at < 0;
    if (*is_new) {
        at = (int32_t)j->n_prefixes++;
        j->prefixes[at] = (struct gpt_str){text, n};
        gpt_token_map_add(&j->map, at);
    }
    return (int32_t)j->v->n + at;
}

/* Adds the merges of a token that is a character: those of its beginnings that
 * are new, and the last one, which makes the character itself. */
static void join_char(struct joining *j, int32_t id)
{
    const struct gpt_str c = j->v->tokens[id];
    int32_t left = j->v->byte_id[(uint8_t)c.data[0]];

    for (size_t n = 2; n <= c.len; n++) {
        const int32_t right = j->v->byte_id[(uint8_t)c.data[n - 1]];
        bool is_new = true;
        int32_t made = n == c.len ? id : prefix_of(j, c.data, n, &is_new);

        if (is_new)
            j->merges[j->n_merges++] = (struct gpt_merge){left, right, made};
        left = made;
    }
}

/* Puts the prefixes behind the tokens. */
static int append_prefixes(struct joining *j, const char *what,
                           struct gpt_err *err)
{
    struct gpt_vocab *v = j->v;
    const size_t n = (size_t)v->n + j->n_prefixes;
    size_t cap = (size_t)v->n;

    if (n > GPT_VOCAB_MAX)
        return gpt_fail(err, GPT_EDATA, "%s: %zu tokens and beginnings of "
                        "characters, limit %d", what, n, GPT_VOCAB_MAX);
    GPT_TRY(gpt_grow(&v->tokens, &cap, n, sizeof(*v->tokens), "a vocabulary",
                     err));
    for (size_t i = 0; i < j->n_prefixes; i++)
        v->tokens[(size_t)v->n + i] = j->prefixes[i];
    v->n_prefixes = (int64_t)j->n_prefixes;
    return GPT_OK;
}

/* Room is made once: a character of the vocabulary adds at most as many merges
 * and beginnings as it has bytes. */
static int join_all(struct joining *j, size_t n_bytes, const char *what,
                    struct gpt_err *err)
{
    struct gpt_vocab *v = j->v;
    const size_t most = n_bytes + v->n_merges;

    GPT_TRY(gpt_new(&j->prefixes, n_bytes, sizeof(*j->prefixes),
                    "a vocabulary", err));
    GPT_TRY(gpt_new(&j->merges, most, sizeof(*j->merges), "merges", err));
    GPT_TRY(gpt_token_map_open(&j->map, j->prefixes, n_bytes, err));
    for (int64_t id = 0; id < v->n; id++)
        if (is_wide_char(&v->tokens[id]))
            join_char(j, (int32_t)id);
    assert(j->n_merges + v->n_merges <= most);
    if (v->n_merges)
        memcpy(j->merges + j->n_merges, v->merges,
               v->n_merges * sizeof(*v->merges));
    j->n_merges += v->n_merges;
    return append_prefixes(j, what, err);
}

/* The merges of the file keep their order behind the new ones. */
int gpt_chars_join(struct gpt_vocab *v, const char *what, struct gpt_err *err)
{
    struct joining j = {.v = v};
    size_t n_bytes = 1;

    for (int64_t id = 0; id < v->n; id++)
        n_bytes += is_wide_char(&v->tokens[id]) ? v->tokens[id].len : 0;
    int status = join_all(&j, n_bytes, what, err);

    gpt_token_map_close(&j.map);
    gpt_free(j.prefixes);
    if (status != GPT_OK) {
        gpt_free(j.merges);
        return status;
    }
    gpt_free(v->merges);
    v->merges = j.merges;
    v->n_merges = j.n_merges;
    return GPT_OK;
}

/* From the end to the beginning, so that it is done in place. */
int gpt_chars_expand(struct gpt_ids *ids, size_t first,
                     const struct gpt_vocab *v, int64_t n_tokens,
                     struct gpt_err *err)
{
    size_t more = 0, from = ids->len;

    for (size_t i = first; i < ids->len; i++)
        more += ids->data[i] >= n_tokens ? v->tokens[ids->data[i]].len - 1 : 0;
    if (!more)
        return GPT_OK;
    GPT_TRY(gpt_ids_reserve(ids, more, err));
    ids->len += more;
    for (size_t to = ids->len; to > from;) {
        const int32_t id = ids->data[--from];
        const struct gpt_str *token = &v->tokens[id];

        if (id < n_tokens) {
            ids->data[--to] = id;
            continue;
        }
        for (size_t i = token->len; i > 0; i--)
            ids->data[--to] = v->byte_id[(uint8_t)token->data[i - 1]];
    }
    return GPT_OK;
}
