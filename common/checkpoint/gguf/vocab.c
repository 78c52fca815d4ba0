/* The vocabulary of a GGUF file that is written: from the files that go with
 * the source to keys that llama.cpp reads. The tokenizer is opened as for
 * encoding, so that a file that does not work is found here. Start at
 * gpt_gguf_put_vocabulary(). Source: llama.cpp, gguf-py/gguf/vocab.py.
 *
 * A way of cutting texts that llama.cpp has no name for is refused: it would
 * give other tokens, and the model noise. */
#include "checkpoint/gguf/internal.h"

#include "base/io.h"
#include "base/log.h"
#include "base/utf8.h"
#include "checkpoint/attached.h"
#include "checkpoint/huggingface/huggingface.h"
#include "tokenizer/bytelevel.h"
#include "tokenizer/chat.h"
#include "tokenizer/family_bytelevel.h"
#include "tokenizer/gguf_tokens.h"
#include "tokenizer/sp_model.h"
#include "tokenizer/sp_normalize.h"
#include "tokenizer/tokenizer_json.h"

#include <stdio.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name
#define END_NAME "<|endoftext|>"

/* What is written, and from what. */
struct vocabulary {
    struct gpt_gguf_keys *k;
    const struct gpt_target *t;
    struct gpt_tokenizer_options o;
    struct gpt_tokenizer *tok;
    int64_t rows;  /* of the word table: tokens that are written */
    uint8_t *types; /* (rows) enum gpt_gguf_token */
    int64_t bos, eos;
    struct gpt_err *err;
};

/* ---- tokens ---- */

/* llama.cpp gives a model as many tokens as the list has; ids beyond the word
 * table would be read past its end. */
static int check_rows(const struct vocabulary *v)
{
    const int64_t n = gpt_tokenizer_vocab_size(v->tok);

    return n <= v->rows
               ? GPT_OK
               : gpt_fail(v->err, GPT_EDATA,
                          "the tokenizer has %lld tokens, the model %lld",
                          (long long)n, (long long)v->rows);
}

/* A place in the table that no token has. */
static void put_unused(struct vocabulary *v, int64_t id)
{
    char text[32];

    snprintf(text, sizeof(text), "[PAD%lld]", (long long)id);
    gpt_gguf_add_string(v->k, text, strlen(text));
    v->types[id] = GPT_GGUF_UNUSED;
}

/* Kept while tokens are written, because some become known only then. */
static void put_types(struct vocabulary *v)
{
    gpt_gguf_put_array(v->k, KEY("token_type"), GPT_GGUF_I32, v->rows);
    for (int64_t id = 0; id < v->rows; id++)
        gpt_gguf_add_u32(v->k, v->types[id]);
}

static int64_t first_end(const struct gpt_source *s)
{
    return s->eos_token_id < 0 && s->ends.n ? s->ends.ids[0] : s->eos_token_id;
}

/* The numbers of tokens that stand for something; those that the source does
 * not know are the tokenizer's. */
static void put_ids(struct vocabulary *v, int64_t bos, bool add_bos,
                    bool add_eos)
{
    const struct gpt_source *s = v->t->source;

    v->eos = first_end(s) >= 0 ? first_end(s) : gpt_tokenizer_eod(v->tok);
    v->bos = s->bos_token_id >= 0 ? s->bos_token_id : bos >= 0 ? bos : v->eos;
    gpt_gguf_put_ends(v->k, v->bos, v->eos, &s->ends);
    gpt_gguf_put_int(v->k, KEY("add_bos_token"), GPT_GGUF_BOOL, add_bos);
    gpt_gguf_put_int(v->k, KEY("add_eos_token"), GPT_GGUF_BOOL, add_eos);
}

/* ---- byte-level pairs ---- */

/* True for a token that is found under conditions, for which these files have
 * no word. */
static bool has_conditions(const cJSON *token)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip"};

    for (size_t i = 0; i < GPT_COUNT(flags); i++)
        if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(token, flags[i])))
            return true;
    return false;
}

/* In a vocabulary of characters one with U+2581 is not found in a text, where
 * that stands for no space yet: it is a piece as others are. */
static bool is_piece(const struct vocabulary *v, const cJSON *token)
{
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(token, "content");

    return v->tok->family == &gpt_family_hf &&
           ((const struct gpt_bytelevel *)v->tok)->spaces &&
           cJSON_IsString(text) && strstr(text->valuestring, GPT_SP_SPACE);
}

static enum gpt_gguf_token type_of(const cJSON *token, const cJSON *model)
{
    const cJSON *unknown = cJSON_GetObjectItemCaseSensitive(model, "unk_token");
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(token, "content");

    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(model,
                                                      "byte_fallback")) &&
        cJSON_Compare(unknown, text, true))
        return GPT_GGUF_UNKNOWN;
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(token, "special"))
               ? GPT_GGUF_CONTROL
               : GPT_GGUF_USER;
}

/* Tokens that are found in a text by themselves are marked, from the list of
 * the file. */
static int mark_added(struct vocabulary *v)
{
    struct gpt_hf_file file;
    const cJSON *item, *id;
    int64_t n = 0;
    int status = GPT_OK;

    if (strcmp(v->o.type, "HuggingFaceTokenizer") != 0)
        return GPT_OK;
    GPT_TRY_GOTO(status, gpt_hf_file_read(&file, v->o.model, v->err), out);
    cJSON_ArrayForEach(
        item, cJSON_GetObjectItemCaseSensitive(file.root, "added_tokens"))
    {
        id = cJSON_GetObjectItemCaseSensitive(item, "id");
        n += has_conditions(item);
        if (cJSON_IsNumber(id) && id->valuedouble >= 0 &&
            id->valuedouble < (double)v->rows && !is_piece(v, item))
            v->types[(int64_t)id->valuedouble] = type_of(
                item, cJSON_GetObjectItemCaseSensitive(file.root, "model"));
    }
    if (n)
        gpt_warn("%s: %lld added tokens take white space beside them, or stand "
                 "alone; in %s they are found everywhere as they are",
                 v->o.model, (long long)n, v->t->o.save);
out:
    gpt_hf_file_close(&file);
    return status;
}

/* In letters, or as it is where it is an added text. One that is the letter
 * of a byte is that byte. `letters` has two bytes for each of the longest
 * token. */
static void put_token(struct vocabulary *v, const struct gpt_bytelevel *t,
                      int64_t id, char *letters)
{
    const struct gpt_str *token = id < t->vocab.n ? &t->vocab.tokens[id] : NULL;

    if (!token || !token->data)
        put_unused(v, id);
    else if (v->types[id] != GPT_GGUF_NORMAL &&
             gpt_utf8_valid(token->data, token->len) == token->len)
        gpt_gguf_add_string(v->k, token->data, token->len);
    else
        gpt_gguf_add_string(v->k, letters,
                            gpt_bytelevel_encode(token->data, token->len,
                                                 letters));
}

/* In the order of ranks, which is their meaning. Neither side can hold a
 * space in letters, so that the one between is found. */
static void put_merges(struct vocabulary *v, const struct gpt_vocab *vocab,
                       char *letters)
{
    gpt_gguf_put_array(v->k, KEY("merges"), GPT_GGUF_STRING,
                       (int64_t)vocab->n_merges);
    for (size_t i = 0; i < vocab->n_merges; i++) {
        const struct gpt_str *left = &vocab->tokens[vocab->merges[i].left];
        const struct gpt_str *right = &vocab->tokens[vocab->merges[i].right];
        size_t n = gpt_bytelevel_encode(left->data, left->len, letters);

        letters[n++] = ' ';
        n += gpt_bytelevel_encode(right->data, right->len, letters + n);
        gpt_gguf_add_string(v->k, letters, n);
    }
}

/* The name of the way in which texts are cut. */
static int find_pre(const struct vocabulary *v, const struct gpt_bytelevel *t,
                    const char **pre)
{
    const struct gpt_gguf_pre *row = gpt_gguf_pres;

    while (row->pre && (gpt_pretok_by_name(row->pretok)->cut !=
                            t->model.pretok ||
                        (t->model.whole && !row->whole)))
        row++;
    *pre = row->pre;
    if (row->pre && !t->prefix_space && t->base.n_before <= 1 &&
        t->base.n_after <= 1 && !t->vocab.shared_ranks)
        return GPT_OK;
    gpt_fail(v->err, GPT_EDATA,
             "GGUF files have no word for the way in which %s cuts texts",
             v->o.model ? v->o.model : v->o.type);
    return gpt_hint(v->err, "leave its files out to write the weights alone");
}

/* A vocabulary of characters. Its bytes stand for what has no token, so that
 * the unknown one is never used. */
static int put_chars(struct vocabulary *v)
{
    const struct gpt_bytelevel *t = (const struct gpt_bytelevel *)v->tok;

    GPT_TRY(mark_added(v));
    if (v->tok->eod >= 0)
        v->types[v->tok->eod] = GPT_GGUF_CONTROL;
    GPT_TRY(gpt_gguf_put_chars(v->k, t, v->rows, v->types, v->o.model,
                               v->err));
    put_types(v);
    put_ids(v, t->base.n_before ? t->base.before[0] : -1, t->base.n_before == 1,
            t->base.n_after == 1);
    return GPT_OK;
}

/* Types are known before tokens: a control token is written as it is, and one
 * of bytes in letters. */
static int put_bytelevel(struct vocabulary *v)
{
    const struct gpt_bytelevel *t = (const struct gpt_bytelevel *)v->tok;
    const char *pre;
    char *letters;
    size_t longest = 0;

    GPT_TRY(find_pre(v, t, &pre));
    for (int64_t id = 0; id < t->vocab.n; id++)
        if (t->vocab.tokens[id].len > longest)
            longest = t->vocab.tokens[id].len;
    /* of two tokens that are merged, and the space between */
    GPT_TRY(gpt_new(&letters, longest * 2 * GPT_BYTELEVEL_MAX + 1, 1,
                    "a vocabulary", v->err));
    int status = mark_added(v);
    if (v->tok->eod >= 0)
        v->types[v->tok->eod] = GPT_GGUF_CONTROL;
    gpt_gguf_put_text(v->k, KEY("model"), "gpt2");
    gpt_gguf_put_text(v->k, KEY("pre"), pre);
    gpt_gguf_put_array(v->k, KEY("tokens"), GPT_GGUF_STRING, v->rows);
    for (int64_t id = 0; id < v->rows; id++)
        put_token(v, t, id, letters);
    put_types(v);
    put_merges(v, &t->vocab, letters);
    gpt_free(letters);
    put_ids(v, t->base.n_before ? t->base.before[0] : -1, t->base.n_before == 1,
            t->base.n_after == 1);
    return status;
}

/* Bytes are byte-level pairs without a pair. */
static void put_bytes(struct vocabulary *v)
{
    char letter[GPT_BYTELEVEL_MAX], byte;

    gpt_gguf_put_text(v->k, KEY("model"), "gpt2");
    gpt_gguf_put_text(v->k, KEY("pre"), gpt_gguf_pres[0].pre);
    gpt_gguf_put_array(v->k, KEY("tokens"), GPT_GGUF_STRING, v->rows);
    for (int64_t id = 0; id < v->rows; id++) {
        byte = (char)id;
        if (id < 256)
            gpt_gguf_add_string(v->k, letter,
                                gpt_bytelevel_encode(&byte, 1, letter));
        else if (id == v->tok->eod) {
            gpt_gguf_add_string(v->k, END_NAME, strlen(END_NAME));
            v->types[id] = GPT_GGUF_CONTROL;
        } else
            put_unused(v, id);
    }
    put_types(v);
    gpt_gguf_put_array(v->k, KEY("merges"), GPT_GGUF_STRING, 0);
    put_ids(v, -1, false, false);
}

/* ---- SentencePiece ---- */

/* What is said beside the vocabulary; NULL where that is nothing. */
static int read_config(const struct vocabulary *v, cJSON **config)
{
    const char *path = gpt_target_attached(v->t, GPT_HF_TOKENIZER_CONFIG);
    char *text;
    size_t len;

    *config = NULL;
    if (!path)
        return GPT_OK;
    GPT_TRY(gpt_gguf_read(GPT_HF_TOKENIZER_CONFIG, &text, &len, path,
                          GPT_FILE_LIMIT, v->err));
    const int status = gpt_json_parse(config, text, len, path, v->err);
    gpt_free(text);
    return status;
}

/* Models of the hub say beside them whether a text begins with <s>; runs of
 * this project begin it with nothing. */
static int read_flag(const struct vocabulary *v, const char *key, bool *flag)
{
    cJSON *config;

    GPT_TRY(read_config(v, &config));
    *flag = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(config, key));
    cJSON_Delete(config);
    return GPT_OK;
}

/* Pieces keep their numbers and scores; U+2581 stands for a space here as
 * there. Bytes have pieces such as <0x0A>, which llama.cpp knows by their
 * type. */
static void put_pieces(struct vocabulary *v, const struct gpt_sp_model *m)
{
    gpt_gguf_put_text(v->k, KEY("model"), m->unigram ? "t5" : "llama");
    gpt_gguf_put_text(v->k, KEY("pre"), "default");
    gpt_gguf_put_array(v->k, KEY("tokens"), GPT_GGUF_STRING, v->rows);
    for (int64_t id = 0; id < v->rows; id++) {
        if (id >= m->n) {
            put_unused(v, id);
            continue;
        }
        gpt_gguf_add_string(v->k, m->texts[id].data, m->texts[id].len);
        v->types[id] = m->pieces[id].type;
    }
    gpt_gguf_put_array(v->k, KEY("scores"), GPT_GGUF_F32, v->rows);
    for (int64_t id = 0; id < v->rows; id++) {
        uint32_t bits = 0;

        if (id < m->n)
            memcpy(&bits, &m->pieces[id].score, sizeof(bits));
        gpt_gguf_add_u32(v->k, bits);
    }
    put_types(v);
    if (m->unk >= 0)
        gpt_gguf_put_int(v->k, KEY("unknown_token_id"), GPT_GGUF_U32, m->unk);
    gpt_gguf_put_int(v->k, KEY("add_space_prefix"), GPT_GGUF_BOOL,
                     m->dummy_prefix);
    gpt_gguf_put_int(v->k, KEY("remove_extra_whitespaces"), GPT_GGUF_BOOL,
                     m->remove_spaces);
    if (m->charsmap.len) {
        gpt_gguf_put_array(v->k, KEY("precompiled_charsmap"), GPT_GGUF_U8,
                           (int64_t)m->charsmap.len);
        if (gpt_buf_add(&v->k->b, m->charsmap.data, m->charsmap.len) != GPT_OK)
            v->k->failed = true;
    }
}

/* The model is read once more in place of a way into the open tokenizer: it
 * has a few hundred kilobytes. */
static int put_sentencepiece(struct vocabulary *v)
{
    struct gpt_sp_model m;
    bool add_bos, add_eos;
    int status;

    GPT_TRY(read_flag(v, "add_bos_token", &add_bos));
    GPT_TRY(read_flag(v, "add_eos_token", &add_eos));
    GPT_TRY_GOTO(status, gpt_sp_model_read(&m, v->o.model, v->err), out);
    put_pieces(v, &m);
    put_ids(v, gpt_sp_find(&m, "<s>", 3), add_bos, add_eos);
out:
    gpt_sp_model_free(&m);
    return status;
}

/* ---- all of it ---- */

static int put_template_file(struct vocabulary *v, const char *path)
{
    char *text;
    size_t len;

    GPT_TRY(gpt_read_file(path, GPT_FILE_LIMIT, &text, &len, v->err));
    gpt_gguf_put_text(v->k, "tokenizer.chat_template", text);
    gpt_free(text);
    return GPT_OK;
}

/* Chat programs find it in the file alone; without it they would use a default
 * that the model was not trained with. A file of its own goes first, as in
 * chat.c. */
static int put_chat_template(struct vocabulary *v)
{
    const char *file = gpt_target_attached(v->t, GPT_HF_CHAT_TEMPLATE);
    cJSON *config;

    if (file)
        return put_template_file(v, file);
    GPT_TRY(read_config(v, &config));
    const cJSON *text = gpt_chat_find_template(config, "default");
    const cJSON *tools = gpt_chat_find_template(config, "tool_use");
    if (text)
        gpt_gguf_put_text(v->k, "tokenizer.chat_template", text->valuestring);
    if (text && tools)
        gpt_gguf_put_text(v->k, "tokenizer.chat_template.tool_use",
                          tools->valuestring);
    cJSON_Delete(config);
    return GPT_OK;
}

/* llama.cpp searches as SentencePiece does, by other sums than those of a
 * tokenizer.json, and has none of its steps. */
static int refuse_pieces(const struct vocabulary *v)
{
    const char *type = gpt_hf_model_type(v->tok);

    gpt_fail(v->err, GPT_EDATA, "%s: model.type: '%s' is not supported in a "
             "GGUF file: llama.cpp would give other ids", v->o.model, type);
    if (strcmp(type, "Unigram") != 0)
        return GPT_EDATA;
    return gpt_hint(v->err, "llama.cpp reads the SentencePiece models that "
                            "such files are made of: give that one in its "
                            "place");
}

/* By the tokenizer that was opened and not by its files: families share their
 * files' names. */
static int put_tokenizer(struct vocabulary *v)
{
    const struct gpt_tokenizer_family *family = v->tok->family;

    GPT_TRY(check_rows(v));
    GPT_TRY(gpt_new(&v->types, (size_t)v->rows, 1, "a vocabulary", v->err));
    memset(v->types, GPT_GGUF_NORMAL, (size_t)v->rows);
    if (family == &gpt_family_hf_pieces)
        return refuse_pieces(v);
    if (family == &gpt_family_bytes)
        put_bytes(v);
    else if (family == &gpt_family_hf &&
             ((const struct gpt_bytelevel *)v->tok)->spaces)
        GPT_TRY(put_chars(v));
    else if (family == &gpt_family_gpt2 || family == &gpt_family_hf ||
             family == &gpt_family_tiktoken)
        GPT_TRY(put_bytelevel(v));
    else
        GPT_TRY(put_sentencepiece(v));
    return put_chat_template(v);
}

/* A model without a vocabulary is no failure: many are trained on numbers.
 * Where files were forgotten, llama.cpp would be the first to say so, and its
 * message names no file; hence the warning. */
int gpt_gguf_put_vocabulary(struct gpt_gguf_keys *k, const struct gpt_target *t,
                            struct gpt_err *err)
{
    struct vocabulary v = {
        .k = k, .t = t, .rows = t->o.config.vocab_size, .err = err};
    int status = gpt_target_tokenizer(&v.tok, &v.o, t, err);

    if (status == GPT_OK && v.tok) {
        status = put_tokenizer(&v);
    } else if (status == GPT_OK) {
        gpt_warn("%s holds no vocabulary, and %s will hold none: programs that "
                 "read it take and give numbers of tokens alone",
                 t->source->dir, t->o.save);
        gpt_gguf_put_text(k, KEY("model"), "none");
        gpt_gguf_put_ends(k, t->source->bos_token_id, first_end(t->source),
                          &t->source->ends);
    }
    gpt_tokenizer_close(v.tok);
    gpt_free(v.types);
    return status;
}
