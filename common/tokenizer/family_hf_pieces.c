/* HuggingFaceTokenizer: a tokenizer.json of a model that takes pieces of whole
 * characters: Unigram, as transformers makes them of SentencePiece's, WordPiece
 * as BERT has it, and WordLevel; models[] has a row for each. A text goes
 * through the steps of the library: added tokens are cut out, what lies between
 * is normalized (text_steps.h), added tokens that are defined on normalized
 * text are cut out of that, the rest is cut into pieces (piece_steps.h), and
 * each piece is searched by the model (unigram.h, words.h) or is known. Start
 * at pieces_encode(), and read upwards. */
#include "base/memory.h"
#include "base/utf8.h"
#include "tokenizer/bpe/cache.h"
#include "tokenizer/family_hf_pieces.h"
#include "tokenizer/tokenizer_json_parts.h"

#include <string.h>

/* A thread's state. */
struct gpt_pieces_encoder {
    struct gpt_encoder base;
    struct gpt_cache cache;
    struct gpt_unigram_scratch scratch;
    struct gpt_buf valid, normal[2], spaced[GPT_PIECE_STEPS];
    struct gpt_ids *ids;    /* of the text in hand */
    const char *first;      /* where that text begins */
    struct gpt_step_text normalized; /* with the place of its beginning */
};

/* ---- encoding ---- */

static const struct gpt_hf_pieces *tokenizer_of(
    const struct gpt_pieces_encoder *e)
{
    return (const struct gpt_hf_pieces *)e->base.tok;
}

static int encode_unigram(struct gpt_pieces_encoder *e, struct gpt_str piece,
                          struct gpt_err *err)
{
    return gpt_unigram_encode(&tokenizer_of(e)->unigram, &e->scratch,
                              piece.data, piece.len, e->ids, err);
}

static int encode_word(struct gpt_pieces_encoder *e, struct gpt_str piece,
                       struct gpt_err *err)
{
    return gpt_words_encode(&tokenizer_of(e)->words, piece, e->ids, err);
}

static int encode_word_parts(struct gpt_pieces_encoder *e, struct gpt_str piece,
                             struct gpt_err *err)
{
    return gpt_word_parts_encode(&tokenizer_of(e)->words, piece, e->ids, err);
}

static int encode_long(struct gpt_pieces_encoder *e, struct gpt_str piece,
                       struct gpt_err *err)
{
    const struct gpt_piece_model *model = tokenizer_of(e)->model;
    struct gpt_ids *ids = e->ids;
    const size_t first = ids->len;
    size_t n;

    if (piece.len > GPT_CACHE_LONG)
        return model->encode(e, piece, err);
    const uint32_t hash =
        gpt_cache_hash_long(&e->cache, piece.data, piece.len);
    const int32_t *known =
        gpt_cache_get_long(&e->cache, hash, piece.data, piece.len, &n);
    if (n)
        return gpt_ids_add(ids, known, n, err);
    GPT_TRY(model->encode(e, piece, err));
    gpt_cache_put_long(&e->cache, hash, piece.data, piece.len,
                       ids->data + first, ids->len - first);
    return GPT_OK;
}

/* Encodes a piece, by the protocol of bpe/cache.h where it is short. */
static int encode_piece(void *data, struct gpt_str piece, size_t readable,
                        struct gpt_err *err)
{
    struct gpt_pieces_encoder *e = data;
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
    GPT_TRY(tokenizer_of(e)->model->encode(e, piece, err));
    gpt_cache_put(&e->cache, key, ids->data + first, ids->len - first);
    return GPT_OK;
}

/* Encodes a text without added tokens. */
static int encode_words(struct gpt_pieces_encoder *e, struct gpt_str text,
                        struct gpt_err *err)
{
    const struct gpt_step_text *whole = &e->normalized;
    const size_t at = (size_t)(text.data - whole->s.data);
    const size_t first = at < whole->first ? whole->first - at : 0;

    return gpt_piece_steps_run(&tokenizer_of(e)->steps.pieces, e->spaced, text,
                               first, encode_piece, e, err);
}

typedef int encode_fn(struct gpt_pieces_encoder *e, struct gpt_str text,
                      struct gpt_err *err);

/* Encodes the added tokens of a set as their ids, and what lies between them by
 * encode_between. A token may take white space around it, so a span may begin
 * before the end of the one before it: then nothing lies between. */
static int encode_around(struct gpt_pieces_encoder *e,
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
static int encode_normalized(struct gpt_pieces_encoder *e, struct gpt_str text,
                             struct gpt_err *err)
{
    const struct gpt_hf_pieces *t = tokenizer_of(e);
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

static int pieces_encode(struct gpt_encoder *enc, const char *text, size_t len,
                         struct gpt_ids *ids, struct gpt_err *err)
{
    struct gpt_pieces_encoder *e = (struct gpt_pieces_encoder *)enc;
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

static int pieces_encoder_open(struct gpt_encoder **enc,
                               const struct gpt_tokenizer *tok,
                               struct gpt_err *err)
{
    struct gpt_pieces_encoder *e;

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

static void pieces_encoder_close(struct gpt_encoder *enc)
{
    struct gpt_pieces_encoder *e = (struct gpt_pieces_encoder *)enc;

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

static const char *give_token(const struct gpt_str *token, size_t *len)
{
    *len = token->len;
    return token->data; /* NULL in a gap between ids */
}

static const char *pieces_token(const struct gpt_tokenizer *tok, int32_t id,
                                size_t *len)
{
    const struct gpt_hf_pieces *t = (const struct gpt_hf_pieces *)tok;

    return give_token(&t->tokens[id], len);
}

static const char *pieces_first(const struct gpt_tokenizer *tok, int32_t id,
                                size_t *len)
{
    const struct gpt_hf_pieces *t = (const struct gpt_hf_pieces *)tok;

    return give_token(&(t->firsts ? t->firsts : t->tokens)[id], len);
}

static bool pieces_is_special(const struct gpt_tokenizer *tok, int32_t id)
{
    const struct gpt_hf_pieces *t = (const struct gpt_hf_pieces *)tok;

    return gpt_added_is_special(t->added, id) ||
           gpt_added_is_special(t->added_normalized, id);
}

/* ---- opening and closing ---- */

static void pieces_close(struct gpt_tokenizer *tok)
{
    struct gpt_hf_pieces *t = (struct gpt_hf_pieces *)tok;

    gpt_unigram_close(&t->unigram);
    gpt_words_close(&t->words);
    gpt_added_close(t->added);
    gpt_added_close(t->added_normalized);
    gpt_free(t->tokens);
    gpt_free(t->firsts);
    gpt_arena_free(&t->arena);
    gpt_free(t->base.before);
    gpt_free(t->base.after);
    gpt_free(t);
}

/* Without an unknown token a text that needs one fails, as in the library. */
static int read_unigram(struct gpt_hf_pieces *t, const struct gpt_hf_load *f)
{
    const cJSON *model = gpt_hf_member(f->root, "model");
    struct gpt_unigram *u = &t->unigram;
    int64_t id = -1;

    GPT_TRY(gpt_unigram_read(u, f->file.vocab, f->path, f->err));
    t->n = t->n_listed = u->n;
    t->texts = u->texts;
    t->map = &u->map;
    if (gpt_json_member(model, "unk_id"))
        GPT_TRY(gpt_json_int(model, "unk_id", 0, u->n - 1, &id, f->path,
                             f->err));
    u->unk = (int32_t)id;
    return gpt_json_bool_or(model, "byte_fallback", false, &u->byte_fallback,
                            f->path, f->err);
}

typedef int read_words_fn(struct gpt_words *w, const cJSON *model,
                          struct gpt_str vocab, const char *what,
                          struct gpt_err *err);

static int read_words_by(read_words_fn *fn, struct gpt_hf_pieces *t,
                         const struct gpt_hf_load *f)
{
    GPT_TRY(fn(&t->words, gpt_hf_member(f->root, "model"), f->file.vocab,
               f->path, f->err));
    t->n = t->words.names.n;
    t->n_listed = t->words.names.n_listed;
    t->texts = t->words.names.texts;
    t->map = &t->words.names.map;
    return GPT_OK;
}

static int read_words(struct gpt_hf_pieces *t, const struct gpt_hf_load *f)
{
    return read_words_by(gpt_words_read, t, f);
}

static int read_word_parts(struct gpt_hf_pieces *t,
                           const struct gpt_hf_load *f)
{
    return read_words_by(gpt_word_parts_read, t, f);
}

static const struct gpt_piece_model models[] = {
    {"Unigram", false, read_unigram, encode_unigram},
    {"WordPiece", true, read_word_parts, encode_word_parts},
    {"WordLevel", true, read_words, encode_word},
};

static int32_t find_text(const void *data, const char *text, size_t len)
{
    return gpt_token_map_find(data, text, len);
}

static int load(struct gpt_hf_pieces *t, const struct gpt_hf_load *f)
{
    const cJSON *added = gpt_hf_member(f->root, "added_tokens");
    struct gpt_hf_pipeline around;
    int64_t n_ids;

    /* first what may be refused, before the work of loading */
    GPT_TRY(gpt_hf_piece_steps_read(&t->steps, f->root, t->model->joined,
                                    &t->arena, f->path, f->err));
    GPT_TRY(gpt_hf_around_read(&around, f->root, !f->o->hf_no_special, f->path,
                               f->err));
    GPT_TRY(gpt_hf_count_ids(f, added, &n_ids));
    GPT_TRY(t->model->load(t, f));
    t->base.vocab_size = n_ids > t->n ? n_ids : t->n;
    t->base.first_space = t->steps.printing.strip;
    GPT_TRY(gpt_hf_print_tokens(t, f));
    GPT_TRY(gpt_hf_add_tokens(t, f, added));
    GPT_TRY(gpt_hf_copy_around(f, around.before, around.n_before,
                               t->base.vocab_size, &t->base.before,
                               &t->base.n_before));
    GPT_TRY(gpt_hf_copy_around(f, around.after, around.n_after,
                               t->base.vocab_size, &t->base.after,
                               &t->base.n_after));
    return gpt_hf_find_eod(f, find_text, t->map, &t->base.eod);
}

/* Old files have no type: a list is the vocabulary of Unigram, merges are of
 * BPE, and of the other two only WordPiece has parts of words. */
static const char *guess_type(const struct gpt_hf_load *f)
{
    const cJSON *model = gpt_hf_member(f->root, "model");

    if (f->file.vocab.len && f->file.vocab.data[0] == '[')
        return "Unigram";
    if (f->file.merges.len ||
        !cJSON_IsString(gpt_hf_member(model, "unk_token")))
        return "BPE";
    return gpt_hf_member(model, "max_input_chars_per_word") ? "WordPiece"
                                                            : "WordLevel";
}

/* NULL for BPE, and for what is not known. */
static const struct gpt_piece_model *find_model(const struct gpt_hf_load *f)
{
    const cJSON *type = gpt_hf_member(gpt_hf_member(f->root, "model"), "type");
    const char *name = type ? type->valuestring : guess_type(f);

    for (size_t i = 0; name && i < GPT_COUNT(models); i++)
        if (strcmp(name, models[i].type) == 0)
            return &models[i];
    return NULL;
}

int gpt_hf_pieces_open(struct gpt_tokenizer **tok, bool *known,
                       const struct gpt_hf_load *f)
{
    const struct gpt_piece_model *model = find_model(f);
    struct gpt_hf_pieces *t;

    *known = model != NULL;
    if (!model)
        return GPT_OK;
    GPT_TRY(gpt_new(&t, 1, sizeof(*t), "a tokenizer", f->err));
    t->base = (struct gpt_tokenizer){.family = &gpt_family_hf_pieces,
                                     .eod = -1, .unk = -1};
    t->model = model;
    t->parse_special = gpt_tokenizer_parses_special(f->o);
    const int status = load(t, f);
    if (status != GPT_OK) {
        pieces_close(&t->base);
        return status;
    }
    *tok = &t->base;
    return GPT_OK;
}

const char *gpt_hf_model_type(const struct gpt_tokenizer *tok)
{
    return ((const struct gpt_hf_pieces *)tok)->model->type;
}

const struct gpt_tokenizer_family gpt_family_hf_pieces = {
    .type = "HuggingFaceTokenizer",
    .close = pieces_close,
    .encoder_open = pieces_encoder_open,
    .encoder_close = pieces_encoder_close,
    .encode = pieces_encode,
    .token_bytes = pieces_token,
    .first_bytes = pieces_first,
    .is_special = pieces_is_special,
};
