/* Encoding and decoding for all byte-level families, and GPT2BPETokenizer, the
 * simplest of them. A text goes through the steps of Hugging Face tokenizers:
 * added tokens are cut out, what lies between is normalized, added tokens that
 * are defined on normalized text are cut out of that, and what lies between
 * those goes to bpe/encoder.h. Start at gpt_bytelevel_encode_text(), and read
 * upwards: each step calls the one before it in the file. */
#include "tokenizer/family_bytelevel.h"

#include "base/cpu.h"
#include "base/memory.h"
#include "tokenizer/bpe/many.h"
#include "tokenizer/sp_normalize.h"
#include "tokenizer/vocab_chars.h"
#include "text/unicode_nfc.h"

#include <assert.h>
#include <string.h>

struct bytelevel_encoder {
    struct gpt_encoder base;
    struct gpt_bpe_encoder bpe;
    struct gpt_buf normal, spaced; /* scratch */
    const char *first; /* where a text that begins its document is */
};

/* In the order in which they are tried: a vocabulary may have several of them,
 * and the first is the one that its documents were trained to end with. */
const char *const gpt_eod_names[] = {
    "<|endoftext|>", "<|end_of_text|>", "</s>", "<|eot_id|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>", "<EOT>", "<eos>", NULL,
};

/* ---- opening and closing ---- */

int gpt_bytelevel_new(struct gpt_bytelevel **t,
                      const struct gpt_tokenizer_family *family,
                      struct gpt_err *err)
{
    GPT_TRY(gpt_new(t, 1, sizeof(**t), "a tokenizer", err));
    (*t)->base = (struct gpt_tokenizer){.family = family, .eod = -1,
                                         .unk = -1};
    return GPT_OK;
}

/* Parts are closed in reverse: the merges borrow the vocabulary. */
void gpt_bytelevel_close(struct gpt_tokenizer *tok)
{
    struct gpt_bytelevel *t = (struct gpt_bytelevel *)tok;

    gpt_bpe_close(t->bpe);
    gpt_added_close(t->added);
    gpt_added_close(t->added_normalized);
    gpt_token_map_close(&t->map);
    gpt_vocab_free(&t->vocab);
    gpt_free(t->base.before);
    gpt_free(t->base.after);
    gpt_free(t);
}

/* ---- tokens that merging does not make ---- */

/* A search for tokens that merging does not make: short tokens are merged some
 * at a time. */
struct whole_search {
    struct gpt_bytelevel *t;
    bool any; /* found */
    gpt_bpe_many_fn *merge;
    struct gpt_bpe_piece pieces[GPT_BPE_MANY];
    int32_t waiting[GPT_BPE_MANY]; /* their ids */
    size_t n;
};

/* Where several tokens have the same bytes only the one in the map counts. */
static void check_token(struct whole_search *s, int32_t id, const int32_t *ids,
                        size_t n)
{
    const struct gpt_str *token = &s->t->vocab.tokens[id];

    if ((n == 1 && ids[0] == id) ||
        gpt_token_map_find(&s->t->map, token->data, token->len) != id)
        return;
    gpt_bpe_fix(s->t->bpe, id);
    s->any = true;
}

static void check_waiting(struct whole_search *s)
{
    int32_t ids[GPT_BPE_MANY_BYTES];

    s->merge(s->pieces, s->n, gpt_bpe_pairs(s->t->bpe));
    for (size_t i = 0; i < s->n; i++) {
        size_t n = gpt_bpe_piece_ids(&s->pieces[i], ids);

        check_token(s, s->waiting[i], ids, n);
    }
    s->n = 0;
}

static void add_waiting(struct whole_search *s, int32_t id)
{
    const struct gpt_str *token = &s->t->vocab.tokens[id];

    if (s->n == GPT_BPE_MANY)
        check_waiting(s);
    gpt_bpe_piece_begin(&s->pieces[s->n], gpt_bpe_pairs(s->t->bpe),
                        token->data, token->len);
    s->waiting[s->n++] = id;
}

/* Finds the tokens that a piece may be as a whole and that merging does not
 * make. Most vocabularies have none; then no piece needs to be looked up, and
 * *any stays false. */
static int find_whole(struct gpt_bytelevel *t, bool *any, struct gpt_err *err)
{
    struct whole_search s = {.t = t,
                             .merge = gpt_bpe_many_of(gpt_cpu_isa())};
    struct gpt_bpe_scratch scratch = {.nodes = NULL};
    struct gpt_ids ids = {.data = NULL};
    int status = GPT_OK;

    for (int32_t id = 0; id < t->vocab.n; id++) {
        const struct gpt_str *token = &t->vocab.tokens[id];

        if (token->len == 0)
            continue;
        if (token->len <= GPT_BPE_MANY_BYTES) {
            add_waiting(&s, id);
            continue;
        }
        ids.len = 0;
        GPT_TRY_GOTO(status, gpt_bpe_merge(t->bpe, &scratch, token->data,
                                           token->len, &ids, err), out);
        check_token(&s, id, ids.data, ids.len);
    }
    check_waiting(&s);
    *any = s.any;
out:
    gpt_bpe_scratch_free(&scratch);
    gpt_free(ids.data);
    return status;
}

int gpt_bytelevel_finish(struct gpt_bytelevel *t, gpt_pretok_fn *cut,
                         bool whole, const char *what, struct gpt_err *err)
{
    bool any = false;

    t->vocab.n += t->vocab.n_prefixes; /* tokens of their own from now on */
    GPT_TRY(gpt_bpe_open(&t->bpe, &t->vocab, what, err));
    if (whole)
        GPT_TRY(find_whole(t, &any, err));
    t->model = (struct gpt_bpe_model){.pretok = cut, .bpe = t->bpe,
                                      .whole = any ? &t->map : NULL};
    t->base.vocab_size = t->vocab.n - t->vocab.n_prefixes;
    return GPT_OK;
}

/* ---- encoding ---- */

int gpt_bytelevel_encoder_open(struct gpt_encoder **enc,
                               const struct gpt_tokenizer *tok,
                               struct gpt_err *err)
{
    const struct gpt_bytelevel *t = (const struct gpt_bytelevel *)tok;
    struct bytelevel_encoder *e;

    GPT_TRY(gpt_new(&e, 1, sizeof(*e), "an encoder", err));
    e->base.tok = tok;
    int status = gpt_bpe_encoder_open(&e->bpe, &t->model, err);
    if (status != GPT_OK) {
        gpt_free(e);
        return status;
    }
    *enc = &e->base;
    return GPT_OK;
}

void gpt_bytelevel_encoder_close(struct gpt_encoder *enc)
{
    struct bytelevel_encoder *e = (struct bytelevel_encoder *)enc;

    gpt_bpe_encoder_close(&e->bpe);
    gpt_buf_free(&e->normal);
    gpt_buf_free(&e->spaced);
    gpt_free(e);
}

static const struct gpt_bytelevel *tokenizer_of(
    const struct bytelevel_encoder *e)
{
    assert(e->base.tok->family->encode == gpt_bytelevel_encode_text);
    return (const struct gpt_bytelevel *)e->base.tok;
}

/* Brings a text into *out: with a space before it, and where `marks` is set one
 * in place of each U+2581, which is what a vocabulary of characters has for it.
 * Fails only when memory is out. */
static int write_spaced(struct gpt_buf *out, bool before, bool marks,
                        const char *text, size_t len)
{
    const size_t n = strlen(GPT_SP_SPACE);
    const char *mark;

    out->len = 0;
    if (before)
        GPT_TRY(gpt_buf_add(out, " ", 1));
    while (marks && (mark = memmem(text, len, GPT_SP_SPACE, n))) {
        GPT_TRY(gpt_buf_add(out, text, (size_t)(mark - text)));
        GPT_TRY(gpt_buf_add(out, " ", 1));
        len -= (size_t)(mark - text) + n;
        text = mark + n;
    }
    return gpt_buf_add(out, text, len);
}

/* The same for a text that mostly stays as it is, and then is not copied. */
static int space_text(struct gpt_buf *out, bool before, bool marks,
                      struct gpt_str *text, struct gpt_err *err)
{
    if (!before && !(marks && memmem(text->data, text->len, GPT_SP_SPACE,
                                     strlen(GPT_SP_SPACE))))
        return GPT_OK;
    if (write_spaced(out, before, marks, text->data, text->len) != GPT_OK)
        return gpt_no_memory(err, "a text");
    *text = (struct gpt_str){out->data, out->len};
    return GPT_OK;
}

/* True for a text that gets a space because it begins with none. In a
 * vocabulary of characters U+2581 is a space, too, which Metaspace has put
 * there by the time that it looks. e->first is compared as an address: added
 * tokens are cut out of a text where it lies, so that only its own beginning is
 * there. */
static bool lacks_space(const struct bytelevel_encoder *e, struct gpt_str text)
{
    const struct gpt_bytelevel *t = tokenizer_of(e);
    const size_t n = strlen(GPT_SP_SPACE);

    return t->prefix_space && (!t->prefix_first || text.data == e->first) &&
           text.data[0] != ' ' &&
           !(t->spaces && text.len >= n &&
             memcmp(text.data, GPT_SP_SPACE, n) == 0);
}

/* Encodes a text without added tokens. */
static int encode_words(struct bytelevel_encoder *e, const char *text,
                        size_t len, struct gpt_ids *ids, struct gpt_err *err)
{
    const bool marks = tokenizer_of(e)->spaces == GPT_HF_PRETOKENIZED;
    struct gpt_str words = {text, len};

    if (len)
        GPT_TRY(space_text(&e->spaced, lacks_space(e, words), marks, &words,
                           err));
    return gpt_bpe_encode(&e->bpe, words.data, words.len, ids, err);
}

typedef int encode_fn(struct bytelevel_encoder *e, const char *text,
                      size_t len, struct gpt_ids *ids, struct gpt_err *err);

/* Encodes the added tokens of a set as their ids, and what lies between them by
 * encode_between. A token may take white space around it, so a span may begin
 * before the end of the one before it: then nothing lies between. */
static int encode_around(struct bytelevel_encoder *e,
                         const struct gpt_added *added,
                         encode_fn *encode_between, const char *text,
                         size_t len, struct gpt_ids *ids, struct gpt_err *err)
{
    bool special = tokenizer_of(e)->parse_special;
    struct gpt_added_search search = {0};
    struct gpt_added_span span;
    size_t done = 0;

    while (gpt_added_next(added, special, text, len, &search, &span)) {
        if (done < span.start)
            GPT_TRY(encode_between(e, text + done, span.start - done, ids,
                                   err));
        GPT_TRY(gpt_ids_add(ids, &span.id, 1, err));
        done = span.end;
    }
    return done < len ? encode_between(e, text + done, len - done, ids, err)
                      : GPT_OK;
}

/* Normalizes what lies between the added tokens of the first set, and cuts the
 * second set out of it. */
static int encode_normalized(struct bytelevel_encoder *e, const char *text,
                             size_t len, struct gpt_ids *ids,
                             struct gpt_err *err)
{
    const struct gpt_bytelevel *t = tokenizer_of(e);

    /* nearly all text is in form C already and is not copied */
    if (t->nfc && gpt_nfc_stable(text, len) < len) {
        e->normal.len = 0;
        GPT_TRY(gpt_nfc(&e->normal, text, len, err));
        text = e->normal.data;
        len = e->normal.len;
    }
    struct gpt_str normal = {text, len};
    if (t->spaces == GPT_HF_NORMALIZED && len)
        GPT_TRY(space_text(&e->normal, t->prepend, true, &normal, err));
    return encode_around(e, t->added_normalized, encode_words, normal.data,
                         normal.len, ids, err);
}

int gpt_bytelevel_encode_text(struct gpt_encoder *enc, const char *text,
                              size_t len, struct gpt_ids *ids,
                              struct gpt_err *err)
{
    struct bytelevel_encoder *e = (struct bytelevel_encoder *)enc;
    const struct gpt_bytelevel *t = tokenizer_of(e);
    const size_t first = ids->len;

    e->first = text;
    GPT_TRY(encode_around(e, t->added, encode_normalized, text, len, ids,
                          err));
    return t->vocab.n_prefixes
               ? gpt_chars_expand(ids, first, &t->vocab, t->base.vocab_size,
                                  err)
               : GPT_OK;
}

/* ---- decoding ---- */

const char *gpt_bytelevel_token(const struct gpt_tokenizer *tok, int32_t id,
                                size_t *len)
{
    const struct gpt_str *token =
        &((const struct gpt_bytelevel *)tok)->vocab.tokens[id];

    *len = token->len;
    return token->data; /* NULL in a gap between ids */
}

bool gpt_bytelevel_is_special(const struct gpt_tokenizer *tok, int32_t id)
{
    const struct gpt_bytelevel *t = (const struct gpt_bytelevel *)tok;

    return gpt_added_is_special(t->added, id) ||
           gpt_added_is_special(t->added_normalized, id);
}

/* ---- GPT2BPETokenizer ---- */

/* Fills in *t, whose owner closes it after a failure. */
static int load_gpt2(struct gpt_bytelevel *t,
                     const struct gpt_tokenizer_options *o,
                     struct gpt_err *err)
{
    GPT_TRY(gpt_vocab_load(&t->vocab, o->vocab_file, o->merge_file, err));
    t->base.eod = t->vocab.eod;
    /* GPT-2 has one special token; others are not in its files */
    if (t->vocab.eod >= 0) {
        struct gpt_str eod = t->vocab.tokens[t->vocab.eod];
        struct gpt_added_token added = {.text = eod.data, .len = eod.len,
                                        .id = t->vocab.eod, .special = true};

        GPT_TRY(gpt_added_open(&t->added, &added, 1, o->vocab_file, err));
    }
    return gpt_bytelevel_finish(t, gpt_pretok_gpt2, false, o->merge_file, err);
}

static int gpt2_open(struct gpt_tokenizer **tok,
                     const struct gpt_tokenizer_options *o,
                     struct gpt_err *err)
{
    struct gpt_bytelevel *t;

    if (!o->vocab_file || !o->merge_file)
        return gpt_fail(err, GPT_EUSAGE, "GPT2BPETokenizer needs %s",
                        o->vocab_file ? "a file of merges, merges.txt"
                                      : "a vocabulary, vocab.json");
    GPT_TRY(gpt_bytelevel_new(&t, &gpt_family_gpt2, err));
    t->parse_special = gpt_tokenizer_parses_special(o);
    int status = load_gpt2(t, o, err);
    if (status != GPT_OK) {
        gpt_bytelevel_close(&t->base);
        return status;
    }
    *tok = &t->base;
    return GPT_OK;
}

const struct gpt_tokenizer_family gpt_family_gpt2 = {
    .type = "GPT2BPETokenizer",
    .open = gpt2_open,
    GPT_BYTELEVEL_FAMILY,
};
