/* The calls of tokenizer.h: each hands over to the family that the tokenizer is
 * of. Start at gpt_tokenizer_open(), which finds the family by its type. */
#include "tokenizer/family.h"
#include "tokenizer/tokenizer_options.h"

#include "base/io.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* In the order of gpt_tokenizer_types, which programs offer as choices. */
static const struct gpt_tokenizer_family *const families[] = {
    &gpt_family_gpt2,
    &gpt_family_hf,
    &gpt_family_tiktoken,
    &gpt_family_sp,
    &gpt_family_sp_gpt,
    &gpt_family_sp_llama2,
    &gpt_family_bytes,
    &gpt_family_null,
};

const char *const gpt_tokenizer_types[] = {
    "GPT2BPETokenizer",
    "HuggingFaceTokenizer",
    "TikTokenizer",
    "SentencePieceTokenizer",
    "GPTSentencePieceTokenizer",
    "Llama2Tokenizer",
    "ByteTokenizer",
    "NullTokenizer",
    NULL,
};

const char *const gpt_special_choices[] = {"plain", "parse", NULL};

/* Models are published as directories, and may be named by these. */
int gpt_tokenizer_file(const char *model, const char *name, char *path,
                       size_t cap, struct gpt_err *err)
{
    if (gpt_path_is_dir(model))
        return gpt_path_join(path, cap, model, name, err);
    if ((size_t)snprintf(path, cap, "%s", model) >= cap)
        return gpt_fail(err, GPT_EUSAGE, "the path '%.100s...' is too long",
                        model);
    if (gpt_path_exists(path))
        return GPT_OK;
    gpt_fail_errno(err, GPT_EIO, "cannot open '%s'", path);
    return gpt_hint(err, "tokenizers are not fetched by a name: name %s, or "
                    "the directory that holds it", name);
}

bool gpt_tokenizer_parses_special(const struct gpt_tokenizer_options *o)
{
    return o->special && strcmp(o->special, "parse") == 0;
}

/* A file that is none of its family's may be what a download has left. */
static int explain(const struct gpt_tokenizer_options *options,
                   struct gpt_err *err)
{
    struct gpt_tokenizer_file files[GPT_TOKENIZER_FILES];
    size_t n = 0;

    if (gpt_tokenizer_files(options, files, &n, NULL) == GPT_OK)
        for (size_t i = 0; i < n; i++)
            (void)gpt_in_explain(files[i].path, err);
    return GPT_EDATA;
}

/* The type is compared once, here. Every later call goes through the family's
 * table. */
int gpt_tokenizer_open(struct gpt_tokenizer **tok,
                       const struct gpt_tokenizer_options *options,
                       struct gpt_err *err)
{
    for (size_t i = 0; i < GPT_COUNT(families); i++)
        if (strcmp(options->type, families[i]->type) == 0) {
            const int status = families[i]->open(tok, options, err);

            return status == GPT_EDATA ? explain(options, err) : status;
        }
    return gpt_fail(err, GPT_EUSAGE, "unknown tokenizer type '%s'",
                    options->type);
}

void gpt_tokenizer_close(struct gpt_tokenizer *tok)
{
    if (tok)
        tok->family->close(tok);
}

int64_t gpt_tokenizer_vocab_size(const struct gpt_tokenizer *tok)
{
    return tok->vocab_size;
}

int32_t gpt_tokenizer_eod(const struct gpt_tokenizer *tok)
{
    return tok->eod;
}

/* Others may follow it, which are part of the beginning, too. */
int32_t gpt_tokenizer_bos(const struct gpt_tokenizer *tok)
{
    return tok->n_before ? tok->before[0] : -1;
}

/* They come from the tokenizer's files: most tokenizers put none. */
size_t gpt_tokenizer_before(const struct gpt_tokenizer *tok)
{
    return tok->n_before;
}

/* The name of a special token, or the text of another one by itself. */
static const char *token_name(const struct gpt_tokenizer *tok, int32_t id,
                              size_t *len)
{
    return tok->family->first_bytes && gpt_token_exists(tok, id)
               ? tok->family->first_bytes(tok, id, len)
               : gpt_token_bytes(tok, id, len);
}

/* A special token goes first: another one may have the same text. */
static int32_t find_token(const struct gpt_tokenizer *tok, const char *name)
{
    const size_t len = strlen(name);
    int32_t id = gpt_special_token(tok, name, len);
    size_t n;

    for (int32_t i = 0; len > 0 && id < 0 && i < tok->vocab_size; i++) {
        const char *text = token_name(tok, i, &n);

        if (n == len && memcmp(text, name, n) == 0)
            id = i;
    }
    return id;
}

bool gpt_tokenizer_begin_with(struct gpt_tokenizer *tok, const char *name)
{
    const int32_t id = find_token(tok, name);

    if (tok->n_before > 0 || id < 0)
        return tok->n_before > 0;
    tok->begin = id;
    tok->before = &tok->begin;
    tok->n_before = 1;
    return true;
}

bool gpt_tokenizer_end_with(struct gpt_tokenizer *tok, const char *name)
{
    const int32_t id = find_token(tok, name);

    if (tok->n_after > 0 || id < 0)
        return tok->n_after > 0;
    tok->end = id;
    tok->after = &tok->end;
    tok->n_after = 1;
    return true;
}

int gpt_encoder_open(struct gpt_encoder **enc,
                     const struct gpt_tokenizer *tok, struct gpt_err *err)
{
    assert(tok->vocab_size > 0 && tok->eod < tok->vocab_size);
    return tok->family->encoder_open(enc, tok, err);
}

void gpt_encoder_close(struct gpt_encoder *enc)
{
    if (enc)
        enc->tok->family->encoder_close(enc);
}

/* An empty text has the ids around it, too. */
int gpt_encode_as(struct gpt_encoder *enc, enum gpt_around around,
                  const char *text, size_t len, struct gpt_ids *ids,
                  struct gpt_err *err)
{
    const struct gpt_tokenizer *tok = enc->tok;

    if (around != GPT_AROUND_NONE)
        GPT_TRY(gpt_ids_add(ids, tok->before, tok->n_before, err));
    GPT_TRY(tok->family->encode(enc, text, len, ids, err));
    return around == GPT_AROUND_BOTH
               ? gpt_ids_add(ids, tok->after, tok->n_after, err)
               : GPT_OK;
}

/* What programs that make documents of texts want. */
int gpt_encode(struct gpt_encoder *enc, const char *text, size_t len,
               struct gpt_ids *ids, struct gpt_err *err)
{
    return gpt_encode_as(enc, GPT_AROUND_BOTH, text, len, ids, err);
}

/* An unknown token may begin with a space that is its own, as SentencePiece
 * prints it. */
static bool drops_space(const struct gpt_tokenizer *tok, int32_t id)
{
    return tok->first_space && id != tok->unk &&
           !(tok->family->keeps_space && tok->family->keeps_space(tok, id));
}

const char *gpt_first_bytes(const struct gpt_tokenizer *tok, int32_t id,
                            size_t *len)
{
    const char *bytes = token_name(tok, id, len);
    const bool drops = *len && bytes[0] == ' ' && drops_space(tok, id);

    *len -= drops;
    return bytes + drops;
}

const char *gpt_next_bytes(const struct gpt_tokenizer *tok, int32_t id,
                           bool *begins, size_t *len)
{
    if (!*begins)
        return gpt_token_bytes(tok, id, len);
    const char *bytes = gpt_first_bytes(tok, id, len);

    *begins = tok->every_space && *len == 0;
    return bytes;
}

/* Ids from a data set may be anything, so the range is checked here and in no
 * family. */
const char *gpt_token_bytes(const struct gpt_tokenizer *tok, int32_t id,
                            size_t *len)
{
    const char *bytes = NULL;

    *len = 0;
    if (id >= 0 && id < tok->vocab_size)
        bytes = tok->family->token_bytes(tok, id, len);
    return bytes ? bytes : "";
}

bool gpt_token_exists(const struct gpt_tokenizer *tok, int32_t id)
{
    size_t len;

    return id >= 0 && id < tok->vocab_size &&
           tok->family->token_bytes(tok, id, &len);
}

bool gpt_token_is_special(const struct gpt_tokenizer *tok, int32_t id)
{
    if (id < 0 || id >= tok->vocab_size)
        return false;
    return id == tok->eod ||
           (tok->family->is_special && tok->family->is_special(tok, id));
}

/* Names are compared first: to ask whether a token is special takes longer. */
int32_t gpt_special_token(const struct gpt_tokenizer *tok, const char *text,
                          size_t len)
{
    for (int32_t id = 0; len > 0 && id < tok->vocab_size; id++) {
        size_t n;
        const char *name = token_name(tok, id, &n);

        if (n == len && memcmp(name, text, n) == 0 &&
            gpt_token_is_special(tok, id))
            return id;
    }
    return -1;
}

/* ---- an encoder without state ---- */

/* For families whose encoding keeps nothing between two calls. */
int gpt_plain_encoder_open(struct gpt_encoder **enc,
                           const struct gpt_tokenizer *tok,
                           struct gpt_err *err)
{
    GPT_TRY(gpt_new(enc, 1, sizeof(**enc), "an encoder", err));
    (*enc)->tok = tok;
    return GPT_OK;
}

void gpt_plain_encoder_close(struct gpt_encoder *enc)
{
    gpt_free(enc);
}
