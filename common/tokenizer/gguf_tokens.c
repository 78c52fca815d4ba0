/* See gguf_tokens.h. Source: llama.cpp, src/llama-vocab.cpp, which reads these
 * keys; tokenizers, the format of tokenizer.json; sentencepiece_model.proto,
 * whose field numbers are in write_pieces(). Start at gpt_gguf_read(). */
#include "tokenizer/gguf_tokens.h"

#include "base/json_string.h"
#include "base/num.h"
#include "base/utf8.h"
#include "tokenizer/ids.h"
#include "tokenizer/pretok.h"
#include "tokenizer/hf_files.h"

#include <errno.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

const struct gpt_gguf_pre gpt_gguf_pres[] = {
    {"gpt-2", "gpt2", false, false},
    {"llama-bpe", "llama3", true, true},
    {"dbrx", "llama3", false, false},
    {"qwen2", "qwen2", false, false},
    {"qwen35", "qwen3.5", false, false},
    {"gpt-4o", "o200k", false, false},
    {"tekken", "v2", true, true},
    {"starcoder", "starcoder", false, false},
    {"deepseek-v3", "deepseek3", false, false},
    /* other names of the same, which are only read */
    {"gpt2", "gpt2", false, false},
    {"phi-2", "gpt2", false, false},
    {"mpt", "gpt2", false, false},
    {"olmo", "gpt2", false, false},
    {"llama3", "llama3", true, true},
    {"llama-v3", "llama3", true, true},
    {"smaug-bpe", "llama3", false, false},
    {"deepseek-r1-qwen", "qwen2", false, false},
    {"llama4", "o200k", false, false},
    {"refact", "starcoder", false, false},
    {"smollm", "starcoder", false, false},
    {0},
};

/* The models that are known, the first one cut by the table above; "bert" and
 * "rwkv" are others. */
static const struct model {
    const char *model, *type, *name;
    bool begins, ends; /* a text by its tokens, where no key says so */
} models[] = {
    {"gpt2", "HuggingFaceTokenizer", GPT_HF_TOKENIZER, false, false},
    {"llama", "SentencePieceTokenizer", GPT_HF_PIECES, true, false},
    {"t5", "SentencePieceTokenizer", GPT_HF_PIECES, false, true},
};

/* What is read of the file. */
struct tokens {
    struct gpt_gguf g;
    const struct model *row; /* NULL: of another model */
    const char *pre;
    struct gpt_str *texts, *merges;
    int64_t n, n_merges, n_types, n_scores;
    int32_t *types; /* (n), or NULL: all normal */
    float *scores;
    int64_t bos, eos;
    bool add_bos, add_eos;
};

/* The strings are in the file's arena, the lists are not. */
static void close_tokens(struct tokens *t)
{
    gpt_free(t->texts);
    gpt_free(t->merges);
    gpt_free(t->types);
    gpt_free(t->scores);
    gpt_gguf_close(&t->g);
}

/* Lists that go with the tokens must be as long as they are. */
static int check_length(const struct tokens *t, const char *key, int64_t n,
                        struct gpt_err *err)
{
    if (n == 0 || n == t->n)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: '%s' has %lld elements for %lld tokens",
                    gpt_in_path(t->g.in), key, (long long)n, (long long)t->n);
}

/* An id without a token counts as absent: files are found that name a token
 * which their list does not have. */
static int read_id(const struct tokens *t, const char *key, int64_t *id,
                   struct gpt_err *err)
{
    *id = -1;
    GPT_TRY(gpt_gguf_int(&t->g, key, -1, UINT32_MAX, id, err));
    if (*id >= t->n) /* 2^32 - 1 is a way of saying none */
        *id = -1;
    return GPT_OK;
}

/* The row of what tokenizer.ggml.pre says; that without names, of none. */
static const struct gpt_gguf_pre *find_pre(const struct tokens *t)
{
    const struct gpt_gguf_pre *row = gpt_gguf_pres;

    while (row->pre && (!t->pre || strcmp(row->pre, t->pre) != 0))
        row++;
    return row;
}

/* Whether a text begins and ends with its tokens. Where no key says it, the
 * model decides, as in llama.cpp. */
static int read_around(struct tokens *t, struct gpt_err *err)
{
    t->add_bos = t->row->begins || (t->row == models && find_pre(t)->begins);
    t->add_eos = t->row->ends;
    GPT_TRY(gpt_gguf_bool(&t->g, KEY("add_bos_token"), &t->add_bos, err));
    GPT_TRY(gpt_gguf_bool(&t->g, KEY("add_eos_token"), &t->add_eos, err));
    t->add_bos = t->add_bos && t->bos >= 0;
    t->add_eos = t->add_eos && t->eos >= 0;
    return GPT_OK;
}

/* All lists at once, because each is checked against the number of tokens.
 * Scores and types may be absent; ids of other special tokens are not needed
 * to encode. */
static int read_tokens(struct tokens *t, struct gpt_err *err)
{
    void *types, *scores;

    GPT_TRY(gpt_gguf_text(&t->g, KEY("pre"), &t->pre, err));
    GPT_TRY(gpt_gguf_strings(&t->g, KEY("tokens"), &t->texts, &t->n, err));
    /* the limit of all families here, before lists of that size are made */
    if (t->n == 0 || t->n > GPT_VOCAB_MAX)
        return gpt_fail(err, GPT_EDATA, "%s: '" KEY("tokens") "' has %lld "
                        "elements, out of range: 1 to %lld",
                        gpt_in_path(t->g.in), (long long)t->n,
                        (long long)GPT_VOCAB_MAX);
    GPT_TRY(gpt_gguf_strings(&t->g, KEY("merges"), &t->merges, &t->n_merges,
                             err));
    GPT_TRY(gpt_gguf_words(&t->g, KEY("token_type"), GPT_GGUF_I32, &types,
                           &t->n_types, err));
    t->types = types;
    GPT_TRY(check_length(t, KEY("token_type"), t->n_types, err));
    GPT_TRY(gpt_gguf_words(&t->g, KEY("scores"), GPT_GGUF_F32, &scores,
                           &t->n_scores, err));
    t->scores = scores;
    GPT_TRY(check_length(t, KEY("scores"), t->n_scores, err));
    GPT_TRY(read_id(t, KEY("bos_token_id"), &t->bos, err));
    GPT_TRY(read_id(t, KEY("eos_token_id"), &t->eos, err));
    return read_around(t, err);
}

/* Files of older converters have no types: then every token is a text. */
static int32_t type_of(const struct tokens *t, int64_t id)
{
    return t->n_types ? t->types[id] : GPT_GGUF_NORMAL;
}

/* ---- tokenizer.json ---- */

/* Bytes that are no UTF-8 are left to the reader. */
static int add_string(struct gpt_buf *b, struct gpt_str s)
{
    return gpt_json_add_string(b, s.data, s.len);
}

/* Tokens that merging does not make, by their own text. */
static int add_added(struct gpt_buf *b, const struct tokens *t)
{
    bool first = true;

    GPT_TRY(gpt_buf_printf(b, "\"added_tokens\":["));
    for (int64_t id = 0; id < t->n; id++) {
        const int32_t type = type_of(t, id);

        if (type != GPT_GGUF_CONTROL && type != GPT_GGUF_USER)
            continue;
        GPT_TRY(gpt_buf_printf(b, "%s{\"id\":%lld,\"content\":",
                               first ? "" : ",", (long long)id));
        GPT_TRY(add_string(b, t->texts[id]));
        GPT_TRY(gpt_buf_printf(b, ",\"single_word\":false,\"lstrip\":false,"
                                  "\"rstrip\":false,\"normalized\":false,"
                                  "\"special\":%s}",
                               type == GPT_GGUF_CONTROL ? "true" : "false"));
        first = false;
    }
    return gpt_buf_printf(b, "],\"normalizer\":null,");
}

/* The expressions of the pre-tokenizer. GPT-2's is the one that ByteLevel has
 * itself; it may be the last of several. */
static int add_cut(struct gpt_buf *b, const struct gpt_pretok *cut)
{
    const char *own = gpt_pretok_row(0)->regex[0];
    int n = 0;

    GPT_TRY(gpt_buf_printf(b, "\"pre_tokenizer\":{\"type\":\"Sequence\","
                              "\"pretokenizers\":["));
    while (n < GPT_PRETOK_STAGES && cut->regex[n])
        n++;
    /* what ByteLevel cuts by itself needs no Split, and a file that has one all
     * the same would not be found in the table of pre-tokenizers */
    const bool use_own = strcmp(cut->regex[n - 1], own) == 0;
    for (int i = 0; i < n - use_own; i++) {
        struct gpt_str regex = {cut->regex[i], strlen(cut->regex[i])};

        GPT_TRY(gpt_buf_printf(b, "{\"type\":\"Split\","
                                  "\"pattern\":{\"Regex\":"));
        GPT_TRY(add_string(b, regex));
        GPT_TRY(gpt_buf_printf(b, "},\"behavior\":\"Isolated\","
                                  "\"invert\":false},"));
    }
    return gpt_buf_printf(b, "{\"type\":\"ByteLevel\","
                             "\"add_prefix_space\":false,"
                             "\"trim_offsets\":true,\"use_regex\":%s}]},",
                          use_own ? "true" : "false");
}

/* What is put around a text. */
static int add_around(struct gpt_buf *b, const struct tokens *t)
{
    const bool bos = t->add_bos, eos = t->add_eos;
    static const char special[] = "{\"SpecialToken\":{\"id\":\"%s\","
                                  "\"type_id\":0}}";
    static const char listed[] = "\"%s\":{\"id\":\"%s\",\"ids\":[%lld],"
                                 "\"tokens\":[\"%s\"]}";

    /* a template of the text alone would do the same, but no file has one */
    if (!bos && !eos)
        return gpt_buf_printf(b, "\"post_processor\":null,");
    GPT_TRY(gpt_buf_printf(b, "\"post_processor\":{\"type\":"
                              "\"TemplateProcessing\",\"single\":["));
    if (bos) {
        GPT_TRY(gpt_buf_printf(b, special, "bos"));
        GPT_TRY(gpt_buf_add(b, ",", 1));
    }
    GPT_TRY(gpt_buf_printf(b, "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"));
    if (eos) {
        GPT_TRY(gpt_buf_add(b, ",", 1));
        GPT_TRY(gpt_buf_printf(b, special, "eos"));
    }
    GPT_TRY(gpt_buf_printf(b, "],\"pair\":[],\"special_tokens\":{"));
    if (bos)
        GPT_TRY(gpt_buf_printf(b, listed, "bos", "bos", (long long)t->bos,
                               "bos"));
    if (bos && eos)
        GPT_TRY(gpt_buf_add(b, ",", 1));
    if (eos)
        GPT_TRY(gpt_buf_printf(b, listed, "eos", "eos", (long long)t->eos,
                               "eos"));
    return gpt_buf_printf(b, "}},");
}

/* True for a token that model.vocab lists. It lists added tokens, too, so that
 * they keep the ids of the file: the library gives tokens that are not listed
 * the next ids after the vocabulary, but in this file they may lie before its
 * end, and unused ones between them. */
static bool is_in_vocab(const struct tokens *t, int64_t id)
{
    const int32_t type = type_of(t, id);

    return type == GPT_GGUF_NORMAL || type == GPT_GGUF_CONTROL ||
           type == GPT_GGUF_USER;
}

/* Unused tokens fill up a table and are no text. */
static int add_model(struct gpt_buf *b, const struct tokens *t, bool whole)
{
    bool first = true;

    GPT_TRY(gpt_buf_printf(b, "\"decoder\":{\"type\":\"ByteLevel\","
                              "\"add_prefix_space\":true,"
                              "\"trim_offsets\":true,"
                              "\"use_regex\":true},\"model\":{"
                              "\"type\":\"BPE\",\"ignore_merges\":%s,"
                              "\"vocab\":{", whole ? "true" : "false"));
    for (int64_t id = 0; id < t->n; id++) {
        if (!is_in_vocab(t, id))
            continue;
        if (!first)
            GPT_TRY(gpt_buf_add(b, ",", 1));
        GPT_TRY(add_string(b, t->texts[id]));
        GPT_TRY(gpt_buf_printf(b, ":%lld", (long long)id));
        first = false;
    }
    GPT_TRY(gpt_buf_printf(b, "},\"merges\":["));
    for (int64_t i = 0; i < t->n_merges; i++) {
        if (i)
            GPT_TRY(gpt_buf_add(b, ",", 1));
        GPT_TRY(add_string(b, t->merges[i]));
    }
    return gpt_buf_printf(b, "]}}\n");
}

/* The members in the order in which the library writes them. A failure of any
 * is a lack of memory. */
static int add_file(struct gpt_buf *b, const struct tokens *t,
                    const struct gpt_gguf_pre *pre)
{
    GPT_TRY(gpt_buf_printf(b, "{\"version\":\"1.0\","));
    GPT_TRY(add_added(b, t));
    GPT_TRY(add_cut(b, gpt_pretok_by_name(pre->pretok)));
    GPT_TRY(add_around(b, t));
    return add_model(b, t, pre->whole);
}

/* How a text is cut is named by a word, and the word decides the expressions.
 * A word that is not known is refused: llama.cpp itself falls back to another
 * way, with a warning, and gives ids that are nearly right. */
static int write_json(struct gpt_buf *b, const struct tokens *t,
                      struct gpt_err *err)
{
    const struct gpt_gguf_pre *pre = find_pre(t);

    if (!pre->pre) {
        gpt_fail(err, GPT_EDATA, "%s: '" KEY("pre") "' is '%.100s', a way of "
                 "cutting text that is not supported",
                 gpt_in_path(t->g.in), t->pre ? t->pre : "absent");
        return gpt_hint(err, "name the files of the model's tokenizer");
    }
    return add_file(b, t, pre) == GPT_OK ? GPT_OK
                                         : gpt_no_memory(err, "a vocabulary");
}

/* ---- tokenizer.model ---- */

/* Fields of a protocol buffer: a varint, or bytes after their length. */
static int add_varint(struct gpt_buf *b, uint64_t v)
{
    char byte;

    for (; v > 127; v >>= 7) {
        byte = (char)(v | 128);
        GPT_TRY(gpt_buf_add(b, &byte, 1));
    }
    byte = (char)v;
    return gpt_buf_add(b, &byte, 1);
}

/* A key is the field's number and its wire type in the low three bits: 0 for
 * a varint, 2 for bytes. */
static int add_number(struct gpt_buf *b, unsigned field, uint64_t v)
{
    GPT_TRY(add_varint(b, field << 3));
    return add_varint(b, v);
}

static int add_bytes(struct gpt_buf *b, unsigned field, const void *p, size_t n)
{
    GPT_TRY(add_varint(b, field << 3 | 2));
    GPT_TRY(add_varint(b, n));
    return gpt_buf_add(b, p, n);
}

/* SentencePiece: piece = 1, score = 2, type = 3. In a model of pairs an unused
 * piece would be split again; what fills up a table is never found either way
 * as a control piece. */
static int add_piece(struct gpt_buf *b, const struct tokens *t, int64_t id)
{
    const int32_t type = type_of(t, id) == GPT_GGUF_UNUSED
                             ? (int32_t)GPT_GGUF_CONTROL
                             : type_of(t, id);
    struct gpt_buf m = {0};
    char score[5] = {2 << 3 | 5};
    uint32_t bits = 0;

    /* a field of 32 bits: wire type 5 */
    if (t->n_scores)
        memcpy(&bits, &t->scores[id], sizeof(bits));
    gpt_put_u32(score + 1, bits);
    int status;
    GPT_TRY_GOTO(status,
                 add_bytes(&m, 1, t->texts[id].data, t->texts[id].len), out);
    GPT_TRY_GOTO(status, gpt_buf_add(&m, score, sizeof(score)), out);
    GPT_TRY_GOTO(status, add_number(&m, 3, (uint64_t)(uint32_t)type), out);
    status = add_bytes(b, 1, m.data, m.len);
out:
    gpt_buf_free(&m);
    return status;
}

/* TrainerSpec: model_type = 3 (UNIGRAM 1, BPE 2), byte_fallback = 35,
 * eos_piece = 47. */
static int add_trainer(struct gpt_buf *b, const struct tokens *t, bool unigram)
{
    struct gpt_buf m = {0};
    bool bytes = false;

    /* the model falls back to bytes where it has pieces for them */
    for (int64_t id = 0; !bytes && id < t->n; id++)
        bytes = type_of(t, id) == GPT_GGUF_BYTE;
    int status;
    GPT_TRY_GOTO(status, add_number(&m, 3, unigram ? 1 : 2), out);
    GPT_TRY_GOTO(status, add_number(&m, 35, bytes), out);
    if (t->eos >= 0)
        GPT_TRY_GOTO(status, add_bytes(&m, 47, t->texts[t->eos].data,
                                       t->texts[t->eos].len), out);
    status = add_bytes(b, 2, m.data, m.len);
out:
    gpt_buf_free(&m);
    return status;
}

/* NormalizerSpec: precompiled_charsmap = 2, add_dummy_prefix = 3,
 * remove_extra_whitespaces = 4. */
static int add_normalizer(struct gpt_buf *b, const struct tokens *t,
                          struct gpt_err *err)
{
    const struct gpt_gguf_key *map =
        gpt_gguf_find(&t->g, KEY("precompiled_charsmap"));
    struct gpt_buf m = {0};
    bool prefix = true, remove = false;
    char *text = NULL;
    int status;

    GPT_TRY(gpt_gguf_bool(&t->g, KEY("add_space_prefix"), &prefix, err));
    GPT_TRY(gpt_gguf_bool(&t->g, KEY("remove_extra_whitespaces"), &remove,
                          err));
    /* T5's models have a table of characters; Llama's have none */
    if (map && map->type == GPT_GGUF_ARRAY &&
        (map->element == GPT_GGUF_U8 || map->element == GPT_GGUF_I8)) {
        GPT_TRY(gpt_new(&text, (size_t)map->n, 1, "a vocabulary", err));
        GPT_TRY_GOTO(status, gpt_in_read(t->g.in, text, map->offset,
                                         (size_t)map->n, err), out);
        GPT_TRY_GOTO(status, add_bytes(&m, 2, text, (size_t)map->n), out);
    }
    GPT_TRY_GOTO(status, add_number(&m, 3, prefix), out);
    GPT_TRY_GOTO(status, add_number(&m, 4, remove), out);
    status = add_bytes(b, 3, m.data, m.len);
out:
    gpt_free(text);
    gpt_buf_free(&m);
    return status;
}

/* Pieces come first, as ids are their places; readers take the other messages
 * in any order. */
static int write_pieces(struct gpt_buf *b, const struct tokens *t,
                        struct gpt_err *err)
{
    const bool unigram = strcmp(t->row->model, "t5") == 0;

    for (int64_t id = 0; id < t->n; id++)
        if (add_piece(b, t, id) != GPT_OK)
            return gpt_no_memory(err, "a vocabulary");
    if (add_trainer(b, t, unigram) != GPT_OK)
        return gpt_no_memory(err, "a vocabulary");
    return add_normalizer(b, t, err);
}

/* ---- tokenizer_config.json ---- */

static int add_named(struct gpt_buf *b, const struct tokens *t,
                     const char *name, int64_t id)
{
    if (id < 0)
        return GPT_OK;
    GPT_TRY(gpt_buf_printf(b, "\"%s\":", name));
    GPT_TRY(add_string(b, t->texts[id]));
    return gpt_buf_printf(b, ",");
}

/* A template alone is a string, one beside that for tools a list of both. */
static int add_templates(struct gpt_buf *b, const char *chat, const char *tools)
{
    const struct gpt_str chat_text = {chat, strlen(chat)};

    GPT_TRY(gpt_buf_printf(b, "\"chat_template\":"));
    if (tools)
        GPT_TRY(gpt_buf_printf(b, "[{\"name\":\"default\",\"template\":"));
    GPT_TRY(add_string(b, chat_text));
    if (tools) {
        GPT_TRY(gpt_buf_printf(b, "},{\"name\":\"tool_use\",\"template\":"));
        GPT_TRY(add_string(b, (struct gpt_str){tools, strlen(tools)}));
        GPT_TRY(gpt_buf_printf(b, "}]"));
    }
    return gpt_buf_printf(b, ",");
}

static int add_config(struct gpt_buf *b, const struct tokens *t,
                      const char *chat, const char *tools)
{
    GPT_TRY(gpt_buf_printf(b, "{"));
    GPT_TRY(add_named(b, t, "bos_token", t->bos));
    GPT_TRY(add_named(b, t, "eos_token", t->eos));
    if (chat)
        GPT_TRY(add_templates(b, chat, tools));
    return gpt_buf_printf(b, "\"add_bos_token\":%s,\"add_eos_token\":%s}\n",
                          t->add_bos ? "true" : "false",
                          t->add_eos ? "true" : "false");
}

/* The words that stand beside a vocabulary: its ends, and what makes one text
 * of a chat. */
static int write_config(struct gpt_buf *b, struct tokens *t,
                        struct gpt_err *err)
{
    const char *chat = NULL, *tools = NULL;

    GPT_TRY(gpt_gguf_text(&t->g, "tokenizer.chat_template", &chat, err));
    GPT_TRY(gpt_gguf_text(&t->g, "tokenizer.chat_template.tool_use", &tools,
                          err));
    if (add_config(b, t, chat, tools) != GPT_OK)
        return gpt_no_memory(err, "a vocabulary");
    /* a token may be a part of a character, and a template anything */
    if (gpt_utf8_valid(b->data, b->len) == b->len)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: the template of chats, or a token that begins or ends "
                    "a text, is no UTF-8", gpt_in_path(t->g.in));
}

/* ---- the files ---- */

static const char config_name[] = GPT_HF_TOKENIZER_CONFIG;

/* A word of llama.cpp's tells the kinds apart. It names the algorithm and not
 * the family: Llama 3's model is "gpt2". */
static int find_model(struct tokens *t, struct gpt_err *err)
{
    const char *name = NULL;

    GPT_TRY(gpt_gguf_text(&t->g, KEY("model"), &name, err));
    for (size_t i = 0; name && i < GPT_COUNT(models); i++)
        if (strcmp(models[i].model, name) == 0)
            t->row = &models[i];
    return GPT_OK;
}

/* The row of the vocabulary at `path`, or NULL: then there is none, or one that
 * is cut in a way that is not known. That the file cannot be read is
 * neither. */
static int model_of(const struct model **row, const char *path,
                    struct gpt_err *err)
{
    struct tokens t = {0};
    int status;

    *row = NULL;
    GPT_TRY_GOTO(status, gpt_gguf_open(&t.g, path, err), out);
    GPT_TRY_GOTO(status, find_model(&t, err), out);
    GPT_TRY_GOTO(status, gpt_gguf_text(&t.g, KEY("pre"), &t.pre, err), out);
    if (t.row != models || find_pre(&t)->pre)
        *row = t.row;
out:
    close_tokens(&t);
    return status;
}

int gpt_gguf_tokenizer_type(const char **type, const char *path,
                            struct gpt_err *err)
{
    const struct model *row;

    *type = NULL;
    GPT_TRY(model_of(&row, path, err));
    if (row)
        *type = row->type;
    return GPT_OK;
}

int gpt_gguf_vocabulary_name(const char **name, const char *path,
                             struct gpt_err *err)
{
    const struct model *row;

    *name = NULL;
    GPT_TRY(model_of(&row, path, err));
    if (row)
        *name = row->name;
    return GPT_OK;
}

/* The text is made in a growing buffer and copied once, as callers free what
 * they read from files with gpt_free(). */
static int make_file(const char *name, char **text, size_t *len,
                     const char *path, struct gpt_err *err)
{
    struct tokens t = {0};
    struct gpt_buf made = {0};
    int status;

    *text = NULL;
    GPT_TRY_GOTO(status, gpt_gguf_open(&t.g, path, err), out);
    GPT_TRY_GOTO(status, find_model(&t, err), out);
    const bool config = strcmp(name, config_name) == 0;
    if (!t.row || (!config && strcmp(t.row->name, name) != 0)) {
        status = gpt_fail(err, GPT_EDATA, "%s holds no vocabulary that a %s "
                          "holds", path, name);
        goto out;
    }
    GPT_TRY_GOTO(status, read_tokens(&t, err), out);
    status = config            ? write_config(&made, &t, err)
             : t.row == models ? write_json(&made, &t, err)
                               : write_pieces(&made, &t, err);
    if (status != GPT_OK)
        goto out;
    *len = made.len;
    /* a buffer's memory is not gpt_alloc()'s */
    GPT_TRY_GOTO(status, gpt_new(text, made.len + 1, 1, "a vocabulary", err),
                 out);
    memcpy(*text, made.data, made.len);
out:
    gpt_buf_free(&made);
    close_tokens(&t);
    return status;
}

/* A file that cannot be opened is neither: that is reported, and not that a
 * GGUF file is no JSON. */
int gpt_gguf_read(const char *name, char **text, size_t *len, const char *path,
                  int64_t limit, struct gpt_err *err)
{
    errno = 0;
    if (gpt_gguf_recognises(path))
        return make_file(name, text, len, path, err);
    if (gpt_path_hidden(errno))
        return gpt_fail_errno(err, GPT_EIO, "cannot open '%s'", path);
    return gpt_read_file(path, limit, text, len, err);
}

/* A tokenizer.json does not say which token ends a text;
 * tokenizer_config.json does, and here a key. */
int gpt_gguf_end_token(const char *path, int32_t *id, struct gpt_err *err)
{
    struct gpt_gguf g;
    int64_t eos = -1;

    GPT_TRY(gpt_gguf_open(&g, path, err));
    int status = gpt_gguf_int(&g, KEY("eos_token_id"), -1, UINT32_MAX, &eos,
                              err);
    gpt_gguf_close(&g);
    *id = eos < GPT_VOCAB_MAX ? (int32_t)eos : -1;
    return status;
}
