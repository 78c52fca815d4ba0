/* The added tokens of a tokenizer.json: their places in the vocabulary, and the
 * two lists that are searched for in texts. Start at gpt_hf_read_added(). */
#include "base/memory.h"
#include "base/num.h"
#include "base/utf8.h"
#include "text/unicode_nfc.h"
#include "tokenizer/bytelevel.h"
#include "tokenizer/family_hf.h"
#include "tokenizer/sp_model.h"
#include "tokenizer/vocab_chars.h"

#include <string.h>

/* The least that a token takes in the file: "a":0, */
enum { ENTRY_BYTES = 6 };

/* Counts ids: one more than the highest id of an added token. Ids may leave
 * gaps, but a file must not make us allocate more than its own size justifies:
 * hence the limit. */
int gpt_hf_count_ids(const struct gpt_hf_load *f, const cJSON *added,
                     int64_t *n_ids)
{
    int64_t n = (int64_t)(f->file.vocab.len / ENTRY_BYTES);
    int64_t limit = 2 * (n + cJSON_GetArraySize(added)) + 65536;

    *n_ids = 0;
    if (added && !cJSON_IsNull(added) && !cJSON_IsArray(added))
        return gpt_fail(f->err, GPT_EDATA, "%s: added_tokens is no array",
                        f->path);
    for (const cJSON *i = added ? added->child : NULL; i; i = i->next) {
        int64_t id;

        GPT_TRY(gpt_json_int(i, "id", 0, limit, &id, f->path, f->err));
        *n_ids = id >= *n_ids ? id + 1 : *n_ids;
    }
    return GPT_OK;
}

/* Finds the id of an added token in a vocabulary of characters, -1 if it is not
 * there: "\n" and "<0x0A>" are two tokens of the same bytes. */
static int32_t find_in_chars(const struct gpt_bytelevel *t,
                             const struct gpt_added_token *token,
                             char *scratch)
{
    const struct gpt_str *place = &t->vocab.tokens[token->id];
    const size_t len = gpt_chars_print(token->text, token->len, scratch);
    const int byte =
        gpt_sp_byte_of((struct gpt_str){token->text, token->len});
    const int32_t fallback = t->vocab.fallback_id[(uint8_t)scratch[0]];

    if (byte >= 0)
        return fallback;
    if (place->data && gpt_str_equal(*place, scratch, len) &&
        (len > 1 || token->id != fallback))
        return token->id;
    const int32_t id = gpt_token_map_find(&t->map, scratch, len);
    return len == 1 && id == fallback ? -1 : id;
}

/* The id that an added token has in the vocabulary, -1 if it is not there. The
 * vocabulary is in the letters of bytes, the added token in plain text; where
 * its text has letters only, these are compared. One that cannot be written in
 * such letters can only be at its own place. `scratch` has room for the token's
 * text. */
static int32_t find_in_vocab(const struct gpt_bytelevel *t,
                             const struct gpt_added_token *token, char *scratch)
{
    const struct gpt_str *place = &t->vocab.tokens[token->id];
    size_t len;

    if (t->spaces)
        return find_in_chars(t, token, scratch);
    if (gpt_bytelevel_decode(token->text, token->len, scratch, &len))
        return gpt_token_map_find(&t->map, scratch, len);
    return place->data && place->len == token->len &&
                   memcmp(place->data, token->text, token->len) == 0
               ? token->id
               : -1;
}

/* The library (tokenizers up to 0.22) reads the id of an added token that is
 * not in the vocabulary, but gives it the next one after those that there are.
 * A file whose ids are others means other tokens there than here. */
int gpt_hf_check_next(const struct gpt_hf_load *f,
                      const struct gpt_added_token *token, int64_t next)
{
    if (token->id == next)
        return GPT_OK;
    gpt_fail(f->err, GPT_EDATA, "%s: added token '%.200s' has id %d, but "
             "Hugging Face's library would give it %lld", f->path, token->text,
             (int)token->id, (long long)next);
    return gpt_hint(f->err, "list added_tokens in the order of their ids, "
                            "which must follow those of model.vocab without "
                            "gaps");
}

int gpt_hf_refuse_id(const struct gpt_hf_load *f,
                     const struct gpt_added_token *token, int32_t same)
{
    return gpt_fail(f->err, GPT_EDATA, "%s: added token '%.200s' has id %d, "
                    "but in model.vocab %s %d", f->path, token->text,
                    (int)token->id,
                    same >= 0 ? "it has id" : "another token has id",
                    (int)(same >= 0 ? same : token->id));
}

/* Lists of added tokens, by whether text is normalized before they are searched
 * for. */
struct added_lists {
    struct gpt_added_token *raw, *normalized;
    size_t n_raw, n_normalized;
    int64_t next; /* the id of one that is not in the vocabulary */
    bool *made;   /* by id: a merge makes it */
};

/* Puts an added token into the vocabulary, where it may be already: then the
 * token of the file must be the same. */
static int place_token(const struct gpt_hf_load *f,
                       const struct gpt_added_token *token,
                       const struct added_lists *lists)
{
    struct gpt_bytelevel *t = f->t;
    struct gpt_str *place = &t->vocab.tokens[token->id];
    char *bytes = gpt_arena_alloc(&t->vocab.arena, token->len + 1, 1);

    if (!bytes)
        return gpt_no_memory(f->err, "a vocabulary");
    /* -1, or the id that the vocabulary gives it: only its own will do */
    int32_t same = find_in_vocab(t, token, bytes);
    if ((same >= 0 && same != token->id) || (same < 0 && place->data))
        return gpt_hf_refuse_id(f, token, same);
    if (same < 0)
        GPT_TRY(gpt_hf_check_next(f, token, lists->next));
    else if (t->spaces || place->len == 1 || lists->made[token->id] ||
             gpt_utf8_valid(place->data, place->len) == place->len)
        return GPT_OK;
    /* Its own text: letters of it may be those of bytes, which are none. A
     * single letter stays its byte, and what merges make stays its bytes: other
     * texts are made of these. */
    *place = (struct gpt_str){bytes, token->len};
    if (t->spaces)
        place->len = gpt_chars_print(token->text, token->len, bytes);
    else
        memcpy(bytes, token->text, token->len);
    return GPT_OK;
}

/* The library's default of `normalized` is the opposite of `special`. */
int gpt_hf_read_token(const struct gpt_hf_load *f, const cJSON *item,
                      int64_t n_ids, struct gpt_added_token *token,
                      bool *normalized)
{
    const char *text;
    int64_t id;

    *token = (struct gpt_added_token){0};
    GPT_TRY(gpt_json_string(item, "content", &text, f->path, f->err));
    GPT_TRY(gpt_json_int(item, "id", 0, n_ids - 1, &id, f->path, f->err));
    token->text = text;
    token->len = strlen(text);
    token->id = (int32_t)id;
    GPT_TRY(gpt_json_bool_or(item, "special", false, &token->special, f->path,
                             f->err));
    GPT_TRY(gpt_json_bool_or(item, "lstrip", false, &token->lstrip, f->path,
                             f->err));
    GPT_TRY(gpt_json_bool_or(item, "rstrip", false, &token->rstrip, f->path,
                             f->err));
    GPT_TRY(gpt_json_bool_or(item, "single_word", false, &token->single_word,
                             f->path, f->err));
    return gpt_json_bool_or(item, "normalized", !token->special, normalized,
                            f->path, f->err);
}

/* A token that was found with the space before it is printed with it, as the
 * library does it since 0.23. The names of special tokens stay as they are. */
static int print_space(const struct gpt_hf_load *f,
                       const struct gpt_added_token *token)
{
    struct gpt_bytelevel *t = f->t;
    struct gpt_str *place = &t->vocab.tokens[token->id];

    if (token->special)
        return GPT_OK;
    if (gpt_token_map_find(&t->map, place->data, place->len) == token->id)
        return gpt_fail(f->err, GPT_EDATA, "%s: added token '%.200s' of "
                        "model.vocab: normalized with Prepend is not supported",
                        f->path, token->text);
    char *text = gpt_arena_alloc(&t->vocab.arena, place->len + 2, 1);
    if (!text)
        return gpt_no_memory(f->err, "a vocabulary");
    text[0] = ' ';
    memcpy(text + 1, place->data, place->len);
    *place = (struct gpt_str){text, place->len + 1};
    return GPT_OK;
}

/* The form of a token that is searched for in normalized text where that has a
 * vocabulary of characters: U+2581 is a space here, and one is before each
 * text. White space around such a token would be another there. */
static int space_token(const struct gpt_hf_load *f,
                       struct gpt_added_token *token)
{
    const bool prepend = f->pipeline.prepend;
    char *text = gpt_arena_alloc(&f->t->vocab.arena, token->len + 2, 1);

    if (prepend)
        GPT_TRY(print_space(f, token));
    if (!text)
        return gpt_no_memory(f->err, "a vocabulary");
    if (token->lstrip || token->rstrip)
        return gpt_fail(f->err, GPT_EDATA, "%s: added token '%.200s': %s with "
                        "normalized is not supported", f->path, token->text,
                        token->lstrip ? "lstrip" : "rstrip");
    text[0] = ' ';
    token->len = prepend + gpt_chars_spaces(token->text, token->len,
                                            text + prepend);
    token->text = text;
    return GPT_OK;
}

/* A token that is searched for in normalized text must be in that form itself,
 * or it would never be found. It is printed in that form, too, unless it is
 * special; none of model.vocab changes, as those are in letters of bytes. */
static int normalize_token(const struct gpt_hf_load *f,
                           struct gpt_added_token *token)
{
    if (f->pipeline.spaces == GPT_HF_NORMALIZED)
        return space_token(f, token);
    struct gpt_buf b = {0};
    int status;

    if (!f->pipeline.nfc ||
        gpt_nfc_stable(token->text, token->len) == token->len)
        return GPT_OK;
    GPT_TRY_GOTO(status, gpt_nfc(&b, token->text, token->len, f->err), out);
    char *text = gpt_arena_alloc(&f->t->vocab.arena, b.len + 1, 1);
    if (!text) {
        status = gpt_no_memory(f->err, "a vocabulary");
        goto out;
    }
    memcpy(text, b.data, b.len);
    token->text = text;
    token->len = b.len;
    if (!token->special)
        f->t->vocab.tokens[token->id] = (struct gpt_str){text, b.len};
out:
    gpt_buf_free(&b);
    return status;
}

/* Reads one added token, places it, and lists it for the search. */
static int add_token(const struct gpt_hf_load *f, const cJSON *item,
                     struct added_lists *lists)
{
    struct gpt_added_token token;
    bool normalized;

    GPT_TRY(gpt_hf_read_token(f, item, f->t->vocab.n, &token, &normalized));
    GPT_TRY(place_token(f, &token, lists));
    lists->next = gpt_max_i64(lists->next, token.id + 1);
    if (normalized) {
        GPT_TRY(normalize_token(f, &token));
        lists->normalized[lists->n_normalized++] = token;
    } else {
        lists->raw[lists->n_raw++] = token;
    }
    return GPT_OK;
}

/* Both lists are as long as all added tokens, which is simpler than a count. */
static int fill_added(struct gpt_hf_load *f, const cJSON *added,
                      struct added_lists *lists)
{
    size_t n = (size_t)cJSON_GetArraySize(added);

    GPT_TRY(gpt_new(&lists->raw, n, sizeof(*lists->raw), "tokens", f->err));
    GPT_TRY(gpt_new(&lists->normalized, n, sizeof(*lists->raw), "tokens",
                    f->err));
    for (const cJSON *i = added ? added->child : NULL; i; i = i->next)
        GPT_TRY(add_token(f, i, lists));
    GPT_TRY(gpt_added_open(&f->t->added, lists->raw, lists->n_raw, f->path,
                           f->err));
    return gpt_added_open(&f->t->added_normalized, lists->normalized,
                          lists->n_normalized, f->path, f->err);
}

int gpt_hf_read_added(struct gpt_hf_load *f, const cJSON *added)
{
    const struct gpt_vocab *v = &f->t->vocab;
    struct added_lists lists = {.next = f->n_listed};

    GPT_TRY(gpt_new(&lists.made, (size_t)(v->n + v->n_prefixes),
                    sizeof(*lists.made), "tokens", f->err));
    for (size_t i = 0; i < v->n_merges; i++)
        lists.made[v->merges[i].result] = true;
    int status = fill_added(f, added, &lists);

    gpt_free(lists.made);
    gpt_free(lists.raw);
    gpt_free(lists.normalized);
    return status;
}
