/* The SentencePiece families, which differ in name only. A BPE model none of
 * whose pieces goes on behind a word is encoded word by word, each looked up
 * among those seen before. Start at sp_encode(). */
#include "base/memory.h"
#include "text/added_tokens.h"
#include "text/bpe_cache.h"
#include "text/sp_encode.h"
#include "text/sp_normalize.h"
#include "text/tokenizer_family.h"

#include <string.h>

struct sp_tokenizer {
    struct gpt_tokenizer base;
    struct gpt_sp_model model;
    struct gpt_sp_map map;
    struct gpt_sp_trie trie; /* of a unigram model */
    struct gpt_added *control; /* control pieces, where they are parsed */
    struct gpt_slice *tokens;  /* (model.n) as they are printed */
    struct gpt_arena arena;
    bool by_words;
};

struct sp_encoder {
    struct gpt_encoder base;
    struct gpt_sp_scratch scratch;
    struct gpt_buf normal;
    struct gpt_cache cache;
};

/* ---- opening and closing ---- */

static void sp_close(struct gpt_tokenizer *tok)
{
    struct sp_tokenizer *t = (struct sp_tokenizer *)tok;
    gpt_sp_model_free(&t->model);
    gpt_sp_trie_close(&t->trie);
    gpt_added_close(t->control);
    gpt_free(t->tokens);
    gpt_arena_free(&t->arena);
    gpt_free(t);
}

/* Where a U+2581 follows another character in text, or NULL. */
static const char *inner_space(const char *text, size_t len)
{
    const size_t n = strlen(GPT_SP_SPACE);
    size_t i = 0;
    while (len - i >= n && memcmp(text + i, GPT_SP_SPACE, n) == 0)
        i += n;
    return memmem(text + i, len - i, GPT_SP_SPACE, n);
}

static int check_pieces(struct sp_tokenizer *t, const char *path,
                        struct gpt_err *err)
{
    const struct gpt_sp_model *m = &t->model;
    t->by_words = !m->unigram && m->escape_spaces;
    for (int64_t id = 0; id < m->n; id++) {
        if (!m->unigram && m->pieces[id].type == GPT_SP_UNUSED)
            return gpt_fail(err, GPT_EDATA, "%s: piece %lld: UNUSED in a BPE "
                            "model is not supported", path, (long long)id);
        if (inner_space(m->texts[id].data, m->texts[id].len))
            t->by_words = false;
    }
    return GPT_OK;
}

/* A piece as text: spaces for U+2581, its byte for <0x0A>. */
static int print_piece(struct sp_tokenizer *t, int32_t id, struct gpt_err *err)
{
    const struct gpt_sp_model *m = &t->model;
    struct gpt_slice text = id == m->unk ? m->unk_surface : m->texts[id];
    char *out = gpt_arena_alloc(&t->arena, text.len + 1, 1);
    size_t n = 0, space = strlen(GPT_SP_SPACE);
    if (!out)
        return gpt_fail(err, GPT_EFAIL, "cannot allocate a vocabulary");
    t->tokens[id].data = out;
    for (size_t i = 0; i < text.len;) {
        bool is_space = m->pieces[id].type != GPT_SP_CONTROL &&
                        text.len - i >= space &&
                        memcmp(text.data + i, GPT_SP_SPACE, space) == 0;
        out[n++] = is_space ? ' ' : text.data[i];
        i += is_space ? space : 1;
    }
    t->tokens[id].len = n;
    return GPT_OK;
}

static int print_pieces(struct sp_tokenizer *t, struct gpt_err *err)
{
    const struct gpt_sp_model *m = &t->model;
    GPT_TRY(gpt_new(&t->tokens, (size_t)m->n, sizeof(*t->tokens),
                    "a vocabulary", err));
    for (int64_t id = 0; id < m->n; id++)
        GPT_TRY(print_piece(t, (int32_t)id, err));
    for (int byte = 0; byte < 256; byte++) {
        int32_t id = m->byte_id[byte];
        char *out = gpt_arena_alloc(&t->arena, 1, 1);
        if (id < 0 || !out)
            continue;
        *out = (char)byte;
        t->tokens[id] = (struct gpt_slice){out, 1};
    }
    return GPT_OK;
}

static int find_control(struct sp_tokenizer *t, const char *path,
                        struct gpt_err *err)
{
    const struct gpt_sp_model *m = &t->model;
    struct gpt_added_token *tokens;
    size_t n = 0;
    GPT_TRY(gpt_new(&tokens, (size_t)m->n, sizeof(*tokens), "control pieces",
                    err));
    for (int64_t id = 0; id < m->n; id++)
        if (m->pieces[id].type == GPT_SP_CONTROL)
            tokens[n++] = (struct gpt_added_token){.text = m->texts[id].data,
                                                   .len = m->texts[id].len,
                                                   .id = (int32_t)id,
                                                   .special = true};
    int status = gpt_added_open(&t->control, tokens, n, path, err);
    gpt_free(tokens);
    return status;
}

static int load(struct sp_tokenizer *t, const struct gpt_tokenizer_options *o,
                struct gpt_err *err)
{
    struct gpt_sp_model *m = &t->model;
    GPT_TRY(gpt_sp_model_read(m, o->model, err));
    GPT_TRY(gpt_sp_map_open(&t->map, m->charsmap, o->model, err));
    GPT_TRY(check_pieces(t, o->model, err));
    GPT_TRY(print_pieces(t, err));
    if (gpt_tokenizer_parses_special(o))
        GPT_TRY(find_control(t, o->model, err));
    t->base.vocab_size = m->n;
    t->base.eod = m->eos;
    t->base.unk = m->unk;
    t->base.first_space = m->dummy_prefix || m->remove_spaces;
    return m->unigram ? gpt_sp_trie_open(&t->trie, m, err) : GPT_OK;
}

static int sp_open_as(struct gpt_tokenizer **tok,
                      const struct gpt_tokenizer_family *family,
                      const struct gpt_tokenizer_options *o,
                      struct gpt_err *err)
{
    struct sp_tokenizer *t;
    if (!o->model)
        return gpt_fail(err, GPT_EUSAGE, "%s needs --tokenizer-model",
                        family->type);
    GPT_TRY(gpt_new(&t, 1, sizeof(*t), "a tokenizer", err));
    t->base.family = family;
    int status = load(t, o, err);
    if (status != GPT_OK) {
        sp_close(&t->base);
        return status;
    }
    *tok = &t->base;
    return GPT_OK;
}

static int sp_encoder_open(struct gpt_encoder **enc,
                           const struct gpt_tokenizer *tok,
                           struct gpt_err *err)
{
    struct sp_encoder *e;
    GPT_TRY(gpt_new(&e, 1, sizeof(*e), "an encoder", err));
    int status = gpt_cache_open(&e->cache, err);
    if (status != GPT_OK) {
        gpt_free(e);
        return status;
    }
    e->base.tok = tok;
    *enc = &e->base;
    return GPT_OK;
}

static void sp_encoder_close(struct gpt_encoder *enc)
{
    struct sp_encoder *e = (struct sp_encoder *)enc;
    gpt_cache_close(&e->cache);
    gpt_sp_scratch_free(&e->scratch);
    gpt_buf_free(&e->normal);
    gpt_free(e);
}

/* ---- encoding ---- */

static const struct sp_tokenizer *tokenizer_of(const struct sp_encoder *e)
{
    return (const struct sp_tokenizer *)e->base.tok;
}

/* Of several unknown ids in a row one stays: `first` is where this word's ids
 * begin, `text_first` where those of the text do. */
static void join_unknown(const struct gpt_sp_model *m, struct gpt_ids *ids,
                         size_t first, size_t text_first)
{
    int32_t *data = ids->data;
    if (first == text_first || ids->len == first || data[first] != m->unk ||
        data[first - 1] != m->unk)
        return;
    memmove(data + first, data + first + 1,
            (ids->len - first - 1) * sizeof(*data));
    ids->len--;
}

static int encode_word(struct sp_encoder *e, const char *word, size_t len,
                       struct gpt_ids *ids, struct gpt_err *err)
{
    const struct gpt_sp_model *m = &tokenizer_of(e)->model;
    size_t first = ids->len, n;
    if (len > GPT_CACHE_LONG)
        return gpt_sp_encode_bpe(m, &e->scratch, word, len, ids, err);
    uint32_t hash = gpt_cache_aim_long(&e->cache, word, len);
    const int32_t *known =
        gpt_cache_get_long(&e->cache, hash, word, len, &n);
    if (n) {
        GPT_TRY(gpt_grow(&ids->data, &ids->cap, first + n, sizeof(*ids->data),
                         "token ids", err));
        memcpy(ids->data + first, known, n * sizeof(*known));
        ids->len += n;
        return GPT_OK;
    }
    GPT_TRY(gpt_sp_encode_bpe(m, &e->scratch, word, len, ids, err));
    gpt_cache_put_long(&e->cache, hash, word, len, ids->data + first,
                       ids->len - first);
    return GPT_OK;
}

static int encode_words(struct sp_encoder *e, const char *text, size_t len,
                        struct gpt_ids *ids, struct gpt_err *err)
{
    const size_t text_first = ids->len;
    while (len) {
        const char *next = inner_space(text, len);
        size_t n = next ? (size_t)(next - text) : len, first = ids->len;
        GPT_TRY(encode_word(e, text, n, ids, err));
        join_unknown(&tokenizer_of(e)->model, ids, first, text_first);
        text += n;
        len -= n;
    }
    return GPT_OK;
}

static int encode_plain(struct sp_encoder *e, const char *text, size_t len,
                        struct gpt_ids *ids, struct gpt_err *err)
{
    const struct sp_tokenizer *t = tokenizer_of(e);
    GPT_TRY(gpt_sp_normalize(&t->model, &t->map, text, len, &e->normal, err));
    if (e->normal.len == 0)
        return GPT_OK;
    if (t->model.unigram)
        return gpt_sp_encode_unigram(&t->model, &t->trie, &e->scratch,
                                     e->normal.data, e->normal.len, ids, err);
    if (t->by_words)
        return encode_words(e, e->normal.data, e->normal.len, ids, err);
    return gpt_sp_encode_bpe(&t->model, &e->scratch, e->normal.data,
                             e->normal.len, ids, err);
}

/* Control pieces, and what lies between them, each part by itself. */
static int sp_encode(struct gpt_encoder *enc, const char *text, size_t len,
                     struct gpt_ids *ids, struct gpt_err *err)
{
    struct sp_encoder *e = (struct sp_encoder *)enc;
    struct gpt_added_search search = {0};
    struct gpt_added_span span;
    size_t done = 0;
    while (gpt_added_next(tokenizer_of(e)->control, true, text, len, &search,
                          &span)) {
        GPT_TRY(encode_plain(e, text + done, span.start - done, ids, err));
        GPT_TRY(gpt_grow(&ids->data, &ids->cap, ids->len + 1,
                         sizeof(*ids->data), "token ids", err));
        ids->data[ids->len++] = span.id;
        done = span.end;
    }
    return encode_plain(e, text + done, len - done, ids, err);
}

static const char *sp_token(const struct gpt_tokenizer *tok, int32_t id,
                            size_t *len)
{
    const struct gpt_slice *token =
        &((const struct sp_tokenizer *)tok)->tokens[id];
    *len = token->len;
    return token->data;
}

/* ---- the names ---- */

#define SP_FAMILY(name, megatron)                                              \
    static int name##_open(struct gpt_tokenizer **tok,                         \
                           const struct gpt_tokenizer_options *o,              \
                           struct gpt_err *err)                                \
    {                                                                          \
        return sp_open_as(tok, &gpt_family_##name, o, err);                    \
    }                                                                          \
    const struct gpt_tokenizer_family gpt_family_##name = {                    \
        .type = megatron,                                                      \
        .open = name##_open,                                                   \
        .close = sp_close,                                                     \
        .encoder_open = sp_encoder_open,                                       \
        .encoder_close = sp_encoder_close,                                     \
        .encode = sp_encode,                                                   \
        .token_bytes = sp_token,                                               \
    }
SP_FAMILY(sp, "SentencePieceTokenizer");
SP_FAMILY(sp_gpt, "GPTSentencePieceTokenizer");
SP_FAMILY(sp_llama2, "Llama2Tokenizer");
