/* HuggingFaceTokenizer: a tokenizer.json of a unigram model, as transformers
 * makes them of SentencePiece's. A text goes through the steps of the library:
 * added tokens are cut out, what lies between is normalized (text_steps.h),
 * added tokens that are defined on normalized text are cut out of that, the
 * rest is cut into pieces (piece_steps.h), and each piece is searched by the
 * model (unigram.h) or is known. Start at unigram_encode(), and read upwards.
 */
#include "base/memory.h"
#include "base/num.h"
#include "text/unicode.h"
#include "tokenizer/bpe/cache.h"
#include "tokenizer/family_hf.h"
#include "tokenizer/tokenizer_json_parts.h"
#include "tokenizer/tokenizer_json_unigram.h"
#include "tokenizer/unigram.h"

#include <string.h>

struct unigram_tokenizer {
    struct gpt_tokenizer base;
    struct gpt_unigram model;
    struct gpt_hf_unigram_steps steps;
    struct gpt_added *added;            /* searched for in the text as it is */
    struct gpt_added *added_normalized; /* and in what normalization makes */
    bool parse_special;
    struct gpt_str *tokens; /* (vocab_size) as they are printed */
    size_t printed;         /* bytes of these, and of replaced ones */
    struct gpt_arena arena; /* owns their bytes, and what the steps refer to */
};

/* A thread's state. */
struct unigram_encoder {
    struct gpt_encoder base;
    struct gpt_cache cache;
    struct gpt_unigram_scratch scratch;
    struct gpt_buf valid, normal[2], spaced[GPT_PIECE_STEPS];
    struct gpt_ids *ids;    /* of the text in hand */
    const char *first;      /* where that text begins */
    struct gpt_step_text normalized; /* with the place of its beginning */
};

/* ---- encoding ---- */

static const struct unigram_tokenizer *tokenizer_of(
    const struct unigram_encoder *e)
{
    return (const struct unigram_tokenizer *)e->base.tok;
}

static int encode_long(struct unigram_encoder *e, struct gpt_str piece,
                       struct gpt_err *err)
{
    const struct gpt_unigram *u = &tokenizer_of(e)->model;
    struct gpt_ids *ids = e->ids;
    const size_t first = ids->len;
    size_t n;

    if (piece.len > GPT_CACHE_LONG)
        return gpt_unigram_encode(u, &e->scratch, piece.data, piece.len, ids,
                                  err);
    const uint32_t hash =
        gpt_cache_hash_long(&e->cache, piece.data, piece.len);
    const int32_t *known =
        gpt_cache_get_long(&e->cache, hash, piece.data, piece.len, &n);
    if (n)
        return gpt_ids_add(ids, known, n, err);
    GPT_TRY(gpt_unigram_encode(u, &e->scratch, piece.data, piece.len, ids,
                               err));
    gpt_cache_put_long(&e->cache, hash, piece.data, piece.len,
                       ids->data + first, ids->len - first);
    return GPT_OK;
}

/* Encodes a piece, by the protocol of bpe/cache.h where it is short. */
static int encode_piece(void *data, struct gpt_str piece, size_t readable,
                        struct gpt_err *err)
{
    struct unigram_encoder *e = data;
    struct gpt_ids *ids = e->ids;
    const size_t first = ids->len;
    bool known;

    if (piece.len > GPT_CACHE_SHORT)
        return encode_long(e, piece, err);
    const struct gpt_cache_key key =
        gpt_cache_key_of(piece.data, piece.len, readable);
    GPT_TRY(gpt_cache_add(&e->cache,
                          gpt_cache_at(&e->cache, gpt_cache_place(key)), key,
                          ids, &known, err));
    if (known)
        return GPT_OK;
    GPT_TRY(gpt_unigram_encode(&tokenizer_of(e)->model, &e->scratch, piece.data,
                               piece.len, ids, err));
    gpt_cache_put(&e->cache, key, ids->data + first, ids->len - first);
    return GPT_OK;
}

/* Encodes a text without added tokens. */
static int encode_words(struct unigram_encoder *e, struct gpt_str text,
                        struct gpt_err *err)
{
    const struct gpt_step_text *whole = &e->normalized;
    const size_t at = (size_t)(text.data - whole->s.data);
    const size_t first = at < whole->first ? whole->first - at : 0;

    return gpt_piece_steps_run(&tokenizer_of(e)->steps.pieces, e->spaced, text,
                               first, encode_piece, e, err);
}

typedef int encode_fn(struct unigram_encoder *e, struct gpt_str text,
                      struct gpt_err *err);

/* Encodes the added tokens of a set as their ids, and what lies between them by
 * encode_between. A token may take white space around it, so a span may begin
 * before the end of the one before it: then nothing lies between. */
static int encode_around(struct unigram_encoder *e,
                         const struct gpt_added *added,
                         encode_fn *encode_between, struct gpt_str text,
                         struct gpt_err *err)
{
    const bool special = tokenizer_of(e)->parse_special;
    struct gpt_added_search search = {0};
    struct gpt_added_span span;
    size_t done = 0;

    while (gpt_added_next(added, special, text.data, text.len, &search,
                          &span)) {
        const struct gpt_str between = {text.data + done, span.start - done};

        if (done < span.start)
            GPT_TRY(encode_between(e, between, err));
        GPT_TRY(gpt_ids_add(e->ids, &span.id, 1, err));
        done = span.end;
    }
    const struct gpt_str rest = {text.data + done, text.len - done};
    return rest.len ? encode_between(e, rest, err) : GPT_OK;
}

/* Normalizes what lies between the added tokens of the first set, and cuts the
 * second set out of it. */
static int encode_normalized(struct unigram_encoder *e, struct gpt_str text,
                             struct gpt_err *err)
{
    const struct unigram_tokenizer *t = tokenizer_of(e);
    uint32_t cp;
    const int n = gpt_utf8_decode((const uint8_t *)text.data, text.len, &cp);

    e->normalized = (struct gpt_step_text){
        .s = text, .first = text.data == e->first ? (size_t)n : 0};
    GPT_TRY(gpt_text_steps_run(t->steps.normal, t->steps.n_normal, e->normal,
                               &e->normalized, err));
    return encode_around(e, t->added_normalized, encode_words, e->normalized.s,
                         err);
}

/* Brings a text into *out with U+FFFD for each byte that is not UTF-8, as
 * SentencePiece reads such a text. Fails only when memory is out. */
static int write_valid(struct gpt_buf *out, const char *text, size_t len)
{
    out->len = 0;
    for (size_t done = 0; done < len;) {
        const size_t n = gpt_utf8_valid(text + done, len - done);

        GPT_TRY(gpt_buf_add(out, text + done, n));
        done += n;
        if (done < len)
            GPT_TRY(gpt_buf_add(out, "\xEF\xBF\xBD", 3));
        done += done < len;
    }
    return GPT_OK;
}

static int unigram_encode(struct gpt_encoder *enc, const char *text, size_t len,
                          struct gpt_ids *ids, struct gpt_err *err)
{
    struct unigram_encoder *e = (struct unigram_encoder *)enc;
    struct gpt_str valid = {text, len};

    if (gpt_utf8_valid(text, len) < len) {
        if (write_valid(&e->valid, text, len) != GPT_OK)
            return gpt_no_memory(err, "a text");
        valid = (struct gpt_str){e->valid.data, e->valid.len};
    }
    e->ids = ids;
    e->first = valid.data;
    return encode_around(e, tokenizer_of(e)->added, encode_normalized, valid,
                         err);
}

/* ---- encoders ---- */

static int unigram_encoder_open(struct gpt_encoder **enc,
                                const struct gpt_tokenizer *tok,
                                struct gpt_err *err)
{
    struct unigram_encoder *e;

    GPT_TRY(gpt_new(&e, 1, sizeof(*e), "an encoder", err));
    const int status = gpt_cache_open(&e->cache, tok->vocab_size, err);
    if (status != GPT_OK) {
        gpt_free(e);
        return status;
    }
    e->base.tok = tok;
    *enc = &e->base;
    return GPT_OK;
}

static void unigram_encoder_close(struct gpt_encoder *enc)
{
    struct unigram_encoder *e = (struct unigram_encoder *)enc;

    gpt_cache_close(&e->cache);
    gpt_free(e->scratch.paths);
    gpt_buf_free(&e->valid);
    for (size_t i = 0; i < GPT_COUNT(e->normal); i++)
        gpt_buf_free(&e->normal[i]);
    for (size_t i = 0; i < GPT_COUNT(e->spaced); i++)
        gpt_buf_free(&e->spaced[i]);
    gpt_free(e);
}

/* ---- decoding ---- */

static const char *unigram_token(const struct gpt_tokenizer *tok, int32_t id,
                                 size_t *len)
{
    const struct gpt_str *token =
        &((const struct unigram_tokenizer *)tok)->tokens[id];

    *len = token->len;
    return token->data ? token->data : "";
}

static bool unigram_is_special(const struct gpt_tokenizer *tok, int32_t id)
{
    const struct unigram_tokenizer *t = (const struct unigram_tokenizer *)tok;

    return gpt_added_is_special(t->added, id) ||
           gpt_added_is_special(t->added_normalized, id);
}

/* ---- tokens ---- */

/* A failure of the steps, which do not know the file. */
static int in_file(const struct gpt_hf_load *f, int status)
{
    if (status != GPT_OK)
        gpt_context(f->err, "%s", f->path);
    return status;
}

/* Keeps what a token is printed as. */
static int print_token(struct unigram_tokenizer *t, const struct gpt_hf_load *f,
                       int32_t id, struct gpt_str text, struct gpt_buf *scratch)
{
    scratch->len = 0;
    GPT_TRY(in_file(f, gpt_hf_print(&t->steps.printing, text, scratch,
                                    f->err)));
    t->printed += scratch->len;
    if (t->printed > GPT_VOCAB_FILE_MAX)
        return gpt_fail(f->err, GPT_EDATA, "%s: the decoder makes more than %d "
                        "bytes of all tokens", f->path, GPT_VOCAB_FILE_MAX);
    char *copy = gpt_arena_alloc(&t->arena, scratch->len + 1, 1);
    if (!copy)
        return gpt_no_memory(f->err, "a vocabulary");
    if (scratch->len)
        memcpy(copy, scratch->data, scratch->len);
    t->tokens[id] = (struct gpt_str){copy, scratch->len};
    return GPT_OK;
}

static int print_tokens(struct unigram_tokenizer *t,
                        const struct gpt_hf_load *f)
{
    struct gpt_buf scratch = {0};
    int status = GPT_OK;

    for (int64_t id = 0; status == GPT_OK && id < t->model.n; id++)
        status = print_token(t, f, (int32_t)id, t->model.texts[id], &scratch);
    gpt_buf_free(&scratch);
    return status;
}

static int32_t find_text(const void *data, const char *text, size_t len)
{
    return gpt_token_map_find(&((const struct gpt_unigram *)data)->map, text,
                              len);
}

/* ---- added tokens ---- */

/* Added tokens on their way to two lists, by whether text is normalized before
 * they are searched for. */
struct added_lists {
    const struct gpt_hf_load *f;
    struct unigram_tokenizer *t;
    struct gpt_added_token *raw, *normalized;
    size_t n_raw, n_normalized;
    int64_t next; /* the id of one that is not in the vocabulary */
    struct gpt_buf buffers[2], scratch;
};

/* A token that is in the vocabulary has its id there. */
static int place_token(const struct added_lists *l,
                       const struct gpt_added_token *token)
{
    const int32_t same =
        gpt_token_map_find(&l->t->model.map, token->text, token->len);

    if (same == token->id)
        return GPT_OK;
    if (same >= 0 || token->id < l->t->model.n)
        return gpt_hf_refuse_id(l->f, token, same);
    return gpt_hf_check_next(l->f, token, l->next);
}

/* The form in which a token is searched for in normalized text, and printed
 * unless it is special. */
static int normalize_token(struct added_lists *l, struct gpt_added_token *token)
{
    struct unigram_tokenizer *t = l->t;
    struct gpt_step_text text = {.s = {token->text, token->len}};

    GPT_TRY(in_file(l->f, gpt_text_steps_run(t->steps.normal,
                                             t->steps.n_normal, l->buffers,
                                             &text, l->f->err)));
    char *copy = gpt_arena_alloc(&t->arena, text.s.len + 1, 1);
    if (!copy)
        return gpt_no_memory(l->f->err, "a vocabulary");
    memcpy(copy, text.s.data, text.s.len);
    token->text = copy;
    token->len = text.s.len;
    return GPT_OK;
}

static int add_token(struct added_lists *l, const cJSON *item)
{
    const struct gpt_hf_load *f = l->f;
    struct gpt_added_token token;
    bool normalized;

    GPT_TRY(gpt_hf_read_token(f, item, l->t->base.vocab_size, &token,
                              &normalized));
    GPT_TRY(place_token(l, &token));
    l->next = gpt_max_i64(l->next, token.id + 1);
    struct gpt_str shown = {token.text, token.len};
    if (normalized) {
        GPT_TRY(normalize_token(l, &token));
        shown = token.special ? shown
                              : (struct gpt_str){token.text, token.len};
        l->normalized[l->n_normalized++] = token;
    } else {
        l->raw[l->n_raw++] = token;
    }
    return print_token(l->t, f, token.id, shown, &l->scratch);
}

/* Both lists are as long as all added tokens, which is simpler than a count. */
static int fill_added(struct added_lists *l, const cJSON *added)
{
    const size_t n = (size_t)cJSON_GetArraySize(added);
    struct gpt_err *err = l->f->err;

    GPT_TRY(gpt_new(&l->raw, n, sizeof(*l->raw), "tokens", err));
    GPT_TRY(gpt_new(&l->normalized, n, sizeof(*l->raw), "tokens", err));
    for (const cJSON *i = added ? added->child : NULL; i; i = i->next)
        GPT_TRY(add_token(l, i));
    GPT_TRY(gpt_added_open(&l->t->added, l->raw, l->n_raw, l->f->path, err));
    return gpt_added_open(&l->t->added_normalized, l->normalized,
                          l->n_normalized, l->f->path, err);
}

static int read_added(struct unigram_tokenizer *t, const struct gpt_hf_load *f,
                      const cJSON *added)
{
    struct added_lists l = {.f = f, .t = t, .next = t->model.n};
    const int status = fill_added(&l, added);

    gpt_free(l.raw);
    gpt_free(l.normalized);
    gpt_buf_free(&l.buffers[0]);
    gpt_buf_free(&l.buffers[1]);
    gpt_buf_free(&l.scratch);
    return status;
}

/* ---- opening and closing ---- */

static void unigram_close(struct gpt_tokenizer *tok)
{
    struct unigram_tokenizer *t = (struct unigram_tokenizer *)tok;

    gpt_unigram_close(&t->model);
    gpt_added_close(t->added);
    gpt_added_close(t->added_normalized);
    gpt_free(t->tokens);
    gpt_arena_free(&t->arena);
    gpt_free(t->base.before);
    gpt_free(t->base.after);
    gpt_free(t);
}

/* The members of the model beside its vocabulary. Without an unknown token a
 * text that needs one fails, as in the library. */
static int read_model(struct unigram_tokenizer *t, const struct gpt_hf_load *f)
{
    const cJSON *model = gpt_hf_member(f->root, "model");
    int64_t id = -1;

    GPT_TRY(gpt_unigram_read(&t->model, f->file.vocab, f->path, f->err));
    if (gpt_json_member(model, "unk_id"))
        GPT_TRY(gpt_json_int(model, "unk_id", 0, t->model.n - 1, &id, f->path,
                             f->err));
    t->model.unk = (int32_t)id;
    return gpt_json_bool_or(model, "byte_fallback", false,
                            &t->model.byte_fallback, f->path, f->err);
}

static int load(struct unigram_tokenizer *t, const struct gpt_hf_load *f)
{
    const cJSON *added = gpt_hf_member(f->root, "added_tokens");
    struct gpt_hf_pipeline around;
    int64_t n_ids;

    /* first what may be refused, before the work of loading */
    GPT_TRY(gpt_hf_unigram_steps_read(&t->steps, f->root, &t->arena, f->path,
                                      f->err));
    GPT_TRY(gpt_hf_around_read(&around, f->root, !f->o->hf_no_special, f->path,
                               f->err));
    GPT_TRY(gpt_hf_count_ids(f, added, &n_ids));
    GPT_TRY(read_model(t, f));
    t->base.vocab_size = n_ids > t->model.n ? n_ids : t->model.n;
    t->base.first_space = t->steps.printing.strip;
    GPT_TRY(gpt_new(&t->tokens, (size_t)t->base.vocab_size, sizeof(*t->tokens),
                    "a vocabulary", f->err));
    GPT_TRY(print_tokens(t, f));
    GPT_TRY(read_added(t, f, added));
    GPT_TRY(gpt_hf_copy_around(f, around.before, around.n_before,
                               t->base.vocab_size, &t->base.before,
                               &t->base.n_before));
    GPT_TRY(gpt_hf_copy_around(f, around.after, around.n_after,
                               t->base.vocab_size, &t->base.after,
                               &t->base.n_after));
    return gpt_hf_find_eod(f, find_text, &t->model, &t->base.eod);
}

int gpt_hf_unigram_open(struct gpt_tokenizer **tok, const struct gpt_hf_load *f)
{
    struct unigram_tokenizer *t;

    GPT_TRY(gpt_new(&t, 1, sizeof(*t), "a tokenizer", f->err));
    t->base = (struct gpt_tokenizer){.family = &gpt_family_hf_unigram,
                                     .eod = -1, .unk = -1};
    t->parse_special = gpt_tokenizer_parses_special(f->o);
    const int status = load(t, f);
    if (status != GPT_OK) {
        unigram_close(&t->base);
        return status;
    }
    *tok = &t->base;
    return GPT_OK;
}

const struct gpt_tokenizer_family gpt_family_hf_unigram = {
    .type = "HuggingFaceTokenizer",
    .close = unigram_close,
    .encoder_open = unigram_encoder_open,
    .encoder_close = unigram_encoder_close,
    .encode = unigram_encode,
    .token_bytes = unigram_token,
    .is_special = unigram_is_special,
};
