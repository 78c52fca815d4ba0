/* The SentencePiece families, which differ in name only. Start at sp_encode().
 *
 * A text is normalized as a whole. For a BPE model it is then cut at its seams,
 * as in bpe/encoder.c: between characters that no piece holds in a row, which
 * is before most words, since few pieces hold U+2581 but at their beginning;
 * each part is looked up among those seen before. A unigram model is not cut:
 * the best sum is of the whole text. */
#include "base/memory.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe/cache.h"
#include "tokenizer/bpe/seams.h"
#include "tokenizer/sp_encode.h"
#include "tokenizer/sp_normalize.h"
#include "tokenizer/family.h"

#include <assert.h>
#include <string.h>

enum { SEAMS = 64 }; /* bytes that a call of gpt_seams_of() is about */

struct sp_tokenizer {
    struct gpt_tokenizer base;
    struct gpt_sp_model model;
    struct gpt_sp_map map;
    struct gpt_sp_trie trie;   /* for a unigram model */
    struct gpt_seams seams;    /* for a BPE model */
    struct gpt_added *control; /* control pieces, where they are parsed */
    struct gpt_str *tokens;    /* (model.n) as they are printed */
    struct gpt_arena arena;    /* owns their bytes */
};

/* A thread's state: the cache for a BPE model, the scratch for both. */
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
    gpt_seams_close(&t->seams);
    gpt_added_close(t->control);
    gpt_free(t->tokens);
    gpt_arena_free(&t->arena);
    gpt_free(t);
}

/* SentencePiece splits unused pieces again after merging, which is not done
 * here. */
static int check_pieces(struct sp_tokenizer *t, const char *path,
                        struct gpt_err *err)
{
    const struct gpt_sp_model *m = &t->model;

    for (int64_t id = 0; id < m->n && !m->unigram; id++)
        if (m->pieces[id].type == GPT_SP_UNUSED)
            return gpt_fail(err, GPT_EDATA, "%s: piece %lld: UNUSED in a BPE "
                            "model is not supported", path, (long long)id);
    return GPT_OK;
}

/* Prints a piece as the text that it stands for: a space for each U+2581. */
static int print_piece(struct sp_tokenizer *t, int32_t id, struct gpt_err *err)
{
    const struct gpt_sp_model *m = &t->model;
    struct gpt_str text = id == m->unk ? m->unk_surface : m->texts[id];
    char *out = gpt_arena_alloc(&t->arena, text.len + 1, 1);
    size_t n = 0, space = strlen(GPT_SP_SPACE);

    if (!out)
        return gpt_no_memory(err, "a vocabulary");
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
    /* <0x0A> and the like stand for their byte */
    for (int byte = 0; byte < 256; byte++) {
        int32_t id = m->byte_id[byte];
        char *out = gpt_arena_alloc(&t->arena, 1, 1);

        if (id < 0 || !out)
            continue;
        *out = (char)byte;
        t->tokens[id] = (struct gpt_str){out, 1};
    }
    return GPT_OK;
}

/* Control pieces are never found by normalization and search: "<s>" in a text
 * is three characters. Parsed, they are cut out of the text before. */
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

static int load_model(struct sp_tokenizer *t,
                      const struct gpt_tokenizer_options *o,
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
    /* a space is put before a text, so its first token has one too many */
    t->base.first_space = m->dummy_prefix || m->remove_spaces;
    t->base.every_space = m->remove_spaces;
    /* seams ask a vocabulary for nothing but its tokens' bytes */
    const struct gpt_vocab pieces = {.n = m->n, .tokens = m->texts};
    return m->unigram ? gpt_sp_trie_open(&t->trie, m, err)
                      : gpt_seams_open(&t->seams, &pieces, err);
}

static int sp_open_as(struct gpt_tokenizer **tok,
                      const struct gpt_tokenizer_family *family,
                      const struct gpt_tokenizer_options *o,
                      struct gpt_err *err)
{
    struct sp_tokenizer *t;

    if (!o->model)
        return gpt_fail(err, GPT_EUSAGE, "%s needs a tokenizer.model",
                        family->type);
    GPT_TRY(gpt_new(&t, 1, sizeof(*t), "a tokenizer", err));
    t->base.family = family;
    int status = load_model(t, o, err);
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
    int status = gpt_cache_open(&e->cache, tok->vocab_size, err);
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

/* Encodes a part of at most GPT_CACHE_SHORT bytes, of which `readable` may be
 * read, by the protocol of bpe/cache.h. */
static int encode_short(struct sp_encoder *e, const char *part, size_t len,
                        size_t readable, struct gpt_ids *ids,
                        struct gpt_err *err)
{
    const struct gpt_cache_key key = gpt_cache_key_of(part, len, readable);
    const size_t first = ids->len;
    bool known;

    GPT_TRY(gpt_cache_add(&e->cache,
                          gpt_cache_at(&e->cache, gpt_cache_place(key)), key,
                          ids, &known, err));
    if (known)
        return GPT_OK;
    GPT_TRY(gpt_sp_encode_bpe(&tokenizer_of(e)->model, &e->scratch, part, len,
                              ids, err));
    gpt_cache_put(&e->cache, key, ids->data + first, ids->len - first);
    return GPT_OK;
}

/* Encodes a longer part, whose cache key is a hash; parts beyond GPT_CACHE_LONG
 * bypass the cache. */
static int encode_long(struct sp_encoder *e, const char *part, size_t len,
                       struct gpt_ids *ids, struct gpt_err *err)
{
    const struct gpt_sp_model *m = &tokenizer_of(e)->model;
    size_t first = ids->len, n;

    if (len > GPT_CACHE_LONG)
        return gpt_sp_encode_bpe(m, &e->scratch, part, len, ids, err);
    uint32_t hash = gpt_cache_hash_long(&e->cache, part, len);
    const int32_t *known =
        gpt_cache_get_long(&e->cache, hash, part, len, &n);
    if (n)
        return gpt_ids_add(ids, known, n, err);
    GPT_TRY(gpt_sp_encode_bpe(m, &e->scratch, part, len, ids, err));
    gpt_cache_put_long(&e->cache, hash, part, len, ids->data + first,
                       ids->len - first);
    return GPT_OK;
}

/* Keeps one of several unknown ids in a row. Inside a part the search has seen
 * to that; here it is done where two parts meet. `first` is where this part's
 * ids begin, `text_first` where those of the text do. */
static void join_unknown(const struct gpt_sp_model *m, struct gpt_ids *ids,
                         size_t first, size_t text_first)
{
    int32_t *data = ids->data;

    if (m->byte_fallback || first == text_first || data[first] != m->unk ||
        data[first - 1] != m->unk)
        return;
    memmove(data + first, data + first + 1,
            (ids->len - first - 1) * sizeof(*data));
    ids->len--;
}

/* Encodes the part of a text from `begin` to `end`. */
static int encode_part(struct sp_encoder *e, struct gpt_str text,
                       size_t begin, size_t end, size_t text_first,
                       struct gpt_ids *ids, struct gpt_err *err)
{
    const size_t first = ids->len, len = end - begin;

    GPT_TRY(len <= GPT_CACHE_SHORT
                ? encode_short(e, text.data + begin, len, text.len - begin,
                               ids, err)
                : encode_long(e, text.data + begin, len, ids, err));
    join_unknown(&tokenizer_of(e)->model, ids, first, text_first);
    return GPT_OK;
}

/* Cuts a normalized text at its seams, and encodes the parts. */
static int encode_parts(struct sp_encoder *e, struct gpt_str text,
                        struct gpt_ids *ids, struct gpt_err *err)
{
    const struct gpt_seams *seams = &tokenizer_of(e)->seams;
    const size_t text_first = ids->len;
    size_t begin = 0;

    for (size_t at = 0; at < text.len; at += SEAMS) {
        uint64_t cuts = gpt_seams_of(seams, text.data + at, text.len - at);

        for (; cuts; cuts &= cuts - 1) {
            size_t end = at + (size_t)__builtin_ctzll(cuts) + 1;

            /* no cut inside a character: symbols are whole characters, and an
             * unknown one is unknown as a whole */
            if (((uint8_t)text.data[end] & 0xC0) == 0x80)
                continue;
            GPT_TRY(encode_part(e, text, begin, end, text_first, ids, err));
            begin = end;
        }
    }
    assert(begin < text.len); /* no seam is at the end */
    return encode_part(e, text, begin, text.len, text_first, ids, err);
}

/* Encodes a text without control pieces. */
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
    struct gpt_str normal = {e->normal.data, e->normal.len};
    return encode_parts(e, normal, ids, err);
}

/* Encodes control pieces as their ids, and what lies between them each as a
 * text of its own, which gets a first space of its own. */
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
        GPT_TRY(gpt_ids_add(ids, &span.id, 1, err));
        done = span.end;
    }
    return encode_plain(e, text + done, len - done, ids, err);
}

/* The text of a token as it was printed when the model was opened, once for all
 * texts. */
static const char *sp_token(const struct gpt_tokenizer *tok, int32_t id,
                            size_t *len)
{
    const struct gpt_str *token =
        &((const struct sp_tokenizer *)tok)->tokens[id];

    *len = token->len;
    return token->data;
}

/* An unused piece is in no text either. */
static bool sp_is_special(const struct gpt_tokenizer *tok, int32_t id)
{
    const struct sp_tokenizer *t = (const struct sp_tokenizer *)tok;
    const uint8_t type = t->model.pieces[id].type;

    return type == GPT_SP_CONTROL || type == GPT_SP_UNUSED;
}

/* A space that is one in the model, and no U+2581: in a piece that a user has
 * defined, or as a byte. */
static bool sp_keeps_space(const struct gpt_tokenizer *tok, int32_t id)
{
    const struct gpt_sp_model *m = &((const struct sp_tokenizer *)tok)->model;

    return m->pieces[id].type == GPT_SP_BYTE ||
           (m->texts[id].len && m->texts[id].data[0] == ' ');
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
        .is_special = sp_is_special,                                           \
        .keeps_space = sp_keeps_space,                                         \
    }
SP_FAMILY(sp, "SentencePieceTokenizer");
SP_FAMILY(sp_gpt, "GPTSentencePieceTokenizer");
SP_FAMILY(sp_llama2, "Llama2Tokenizer");
