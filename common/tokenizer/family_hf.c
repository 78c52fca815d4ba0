/* HuggingFaceTokenizer: a tokenizer.json of a byte-level BPE model, and beside
 * it tokenizer_config.json, which names the token that ends a document. Start
 * at hf_open(), then load_root(), which is the order in which the parts depend
 * on each other: the model and the steps are checked first, because they may be
 * refused; the vocabulary comes before the added tokens, which may be in it. */
#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "tokenizer/bytelevel.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/tokenizer_json_steps.h"
#include "tokenizer/family_bytelevel.h"
#include "tokenizer/gguf_tokens.h"
#include "text/unicode.h"
#include "text/unicode_nfc.h"
#include "tokenizer/hf_files.h"
#include "tokenizer/sp_model.h"
#include "tokenizer/vocab_chars.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_CONFIG = 1 << 26,
    ENTRY_BYTES = 6, /* the least that a token takes in the file: "a":0, */
};

/* A file on its way to a tokenizer. */
struct hf {
    struct gpt_bytelevel *t;
    const struct gpt_tokenizer_options *o;
    char path[GPT_PATH_BYTES];
    struct gpt_hf_file file;
    const cJSON *root; /* of it, without vocabulary and merges */
    struct gpt_hf_pipeline pipeline;
    int64_t n_listed; /* tokens of model.vocab */
    struct gpt_err *err;
};

static const cJSON *member_of(const cJSON *obj, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(obj, key);
}

/* Python writes None as null, which means the same as no member. */
static bool is_absent(const cJSON *item)
{
    return !item || cJSON_IsNull(item);
}

/* ---- the members of the file ---- */

/* The library refuses another version, and a member that it does not know: a
 * later format may change the meaning of the members that are known. */
static int check_members(const struct hf *f)
{
    static const char *const known[] = {
        "version",    "truncation",    "padding",        "added_tokens",
        "normalizer", "pre_tokenizer", "post_processor", "decoder",
        "model",
    };
    const cJSON *version = member_of(f->root, "version");

    if (version && !cJSON_IsString(version))
        return gpt_fail(f->err, GPT_EDATA, "%s: version is no string", f->path);
    if (version && strcmp(version->valuestring, "1.0") != 0)
        return gpt_fail(f->err, GPT_EDATA, "%s: version '%.40s' is not "
                        "supported, only 1.0", f->path, version->valuestring);
    for (const cJSON *i = f->root->child; i; i = i->next) {
        size_t k = 0;

        while (k < GPT_COUNT(known) && strcmp(i->string, known[k]) != 0)
            k++;
        if (k == GPT_COUNT(known))
            return gpt_fail(f->err, GPT_EDATA, "%s: '%.100s' is no member of a "
                            GPT_HF_TOKENIZER, f->path, i->string);
    }
    return GPT_OK;
}

/* ---- the model ---- */

static int refuse_model(const struct hf *f, const char *key, const char *value)
{
    return gpt_fail(f->err, GPT_EDATA, "%s: model.%s: '%.100s' is not "
                    "supported", f->path, key, value);
}

/* Refuses what would give other ids than merging alone. unk_token and fuse_unk
 * never matter: every byte has a token. */
static int check_model(const struct hf *f, const cJSON *model)
{
    static const char *const affixes[] = {"continuing_subword_prefix",
                                          "end_of_word_suffix"};
    const cJSON *type = member_of(model, "type");
    const cJSON *dropout = member_of(model, "dropout");

    if (!cJSON_IsObject(model))
        return gpt_fail(f->err, GPT_EDATA, "%s: no object 'model'", f->path);
    if (type && !cJSON_IsString(type))
        return gpt_fail(f->err, GPT_EDATA, "%s: model.type is no string",
                        f->path);
    if (type && strcmp(type->valuestring, "BPE") != 0)
        return refuse_model(f, "type", type->valuestring);
    if (!is_absent(dropout) && dropout->valuedouble != 0)
        return refuse_model(f, "dropout", "tokens by chance");
    for (size_t i = 0; i < GPT_COUNT(affixes); i++) {
        const cJSON *affix = member_of(model, affixes[i]);

        if (cJSON_IsString(affix) && *affix->valuestring)
            return refuse_model(f, affixes[i], affix->valuestring);
    }
    return GPT_OK;
}

/* A vocabulary of characters needs its bytes for those that it lacks. That a
 * text is a token as a whole is done for pieces only. */
static int check_chars_model(const struct hf *f, const cJSON *model, bool whole)
{
    bool fallback;

    GPT_TRY(gpt_json_bool_or(model, "byte_fallback", false, &fallback, f->path,
                             f->err));
    if (!fallback)
        return refuse_model(f, "byte_fallback", "false");
    return whole ? refuse_model(f, "ignore_merges", "true") : GPT_OK;
}

/* ---- added tokens ---- */

/* One more than the highest id of an added token. Ids may leave gaps, but a
 * file must not make us allocate more than its own size justifies: hence the
 * limit. */
static int count_ids(const struct hf *f, const cJSON *added, int64_t *n_ids)
{
    int64_t n = (int64_t)(f->file.vocab.len / ENTRY_BYTES);
    int64_t limit = 2 * (n + cJSON_GetArraySize(added)) + 65536;

    *n_ids = 0;
    if (!is_absent(added) && !cJSON_IsArray(added))
        return gpt_fail(f->err, GPT_EDATA, "%s: added_tokens is no array",
                        f->path);
    for (const cJSON *i = added ? added->child : NULL; i; i = i->next) {
        int64_t id;

        GPT_TRY(gpt_json_int(i, "id", 0, limit, &id, f->path, f->err));
        *n_ids = id >= *n_ids ? id + 1 : *n_ids;
    }
    return GPT_OK;
}

/* The id of an added token in a vocabulary of characters, -1 if it is not there:
 * there, "\n" and "<0x0A>" are two tokens
 * of the same bytes. */
static int32_t find_in_chars(const struct gpt_bytelevel *t,
                             const struct gpt_added_token *token, char *scratch)
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
static int check_next(const struct hf *f, const struct gpt_added_token *token,
                      int64_t next)
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

/* Puts an added token into the vocabulary, where it may be already: then the
 * token of the file must be the same. `next` is the id of a new token. */
static int place_token(const struct hf *f, const struct gpt_added_token *token,
                       int64_t next)
{
    struct gpt_bytelevel *t = f->t;
    struct gpt_str *place = &t->vocab.tokens[token->id];
    char *bytes = gpt_arena_alloc(&t->vocab.arena, token->len + 1, 1);

    if (!bytes)
        return gpt_no_memory(f->err, "a vocabulary");
    /* -1, or the id that the vocabulary gives it: only its own will do */
    int32_t same = find_in_vocab(t, token, bytes);
    if ((same >= 0 && same != token->id) || (same < 0 && place->data))
        return gpt_fail(f->err, GPT_EDATA, "%s: added token '%.200s' has id "
                        "%d, in model.vocab %s %d", f->path, token->text,
                        (int)token->id, same >= 0 ? "it has" : "another has",
                        (int)(same >= 0 ? same : token->id));
    if (same < 0)
        GPT_TRY(check_next(f, token, next));
    else if (t->spaces || place->len == 1 ||
             gpt_utf8_valid(place->data, place->len) == place->len)
        return GPT_OK;
    /* Its own text: letters of it may be those of bytes, which are none. A
     * single letter stays its byte, which other texts are made of. */
    *place = (struct gpt_str){bytes, token->len};
    if (t->spaces)
        place->len = gpt_chars_print(token->text, token->len, bytes);
    else
        memcpy(bytes, token->text, token->len);
    return GPT_OK;
}

/* What Hugging Face assumes where a flag is absent. */
static int read_flags(const struct hf *f, const cJSON *item,
                      struct gpt_added_token *token, bool *normalized)
{
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
static int print_space(const struct hf *f, const struct gpt_added_token *token)
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
static int space_token(const struct hf *f, struct gpt_added_token *token)
{
    const bool prepend = f->pipeline.prepend;
    if (prepend)
        GPT_TRY(print_space(f, token));
    char *text = gpt_arena_alloc(&f->t->vocab.arena, token->len + 2, 1);

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
 * or it would never be found. */
static int normalize_token(const struct hf *f, struct gpt_added_token *token)
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
out:
    gpt_buf_free(&b);
    return status;
}

/* Added tokens by the text that they are searched for in. */
struct added_lists {
    struct gpt_added_token *raw, *normalized;
    size_t n_raw, n_normalized;
    int64_t next; /* the id of one that is not in the vocabulary */
};

/* Reads one added token, places it, and lists it for the search. */
static int add_token(const struct hf *f, const cJSON *item,
                     struct added_lists *lists)
{
    struct gpt_added_token token = {0};
    const char *text;
    int64_t id;
    bool normalized;

    GPT_TRY(gpt_json_string(item, "content", &text, f->path, f->err));
    GPT_TRY(gpt_json_int(item, "id", 0, f->t->vocab.n - 1, &id, f->path,
                         f->err));
    GPT_TRY(read_flags(f, item, &token, &normalized));
    token.text = text;
    token.len = strlen(text);
    token.id = (int32_t)id;
    GPT_TRY(place_token(f, &token, lists->next));
    lists->next = id >= lists->next ? id + 1 : lists->next;
    if (normalized)
        GPT_TRY(normalize_token(f, &token));
    if (normalized)
        lists->normalized[lists->n_normalized++] = token;
    else
        lists->raw[lists->n_raw++] = token;
    return GPT_OK;
}

/* Both lists are as long as all added tokens, which is simpler than a count. */
static int fill_added(struct hf *f, const cJSON *added,
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

static int read_added(struct hf *f, const cJSON *added)
{
    struct added_lists lists = {.next = f->n_listed};
    int status = fill_added(f, added, &lists);

    gpt_free(lists.raw);
    gpt_free(lists.normalized);
    return status;
}

/* Before the added tokens are placed, so that the map holds only tokens that
 * text may become by merging. */
static int fill_map(struct hf *f)
{
    struct gpt_vocab *v = &f->t->vocab;

    GPT_TRY(gpt_token_map_open(&f->t->map, v->tokens, (size_t)v->n, f->err));
    for (int64_t id = 0; id < v->n; id++)
        if (v->tokens[id].data) {
            gpt_token_map_add(&f->t->map, (int32_t)id);
            f->n_listed++;
        }
    return GPT_OK;
}

/* ---- special tokens ---- */

/* Copies the ids around a text, which are only now known to be in range. */
static int copy_around(const struct hf *f, const int32_t *from, size_t n,
                       int32_t **ids, size_t *n_ids)
{
    GPT_TRY(gpt_new(ids, n, sizeof(**ids), "special tokens", f->err));
    for (size_t i = 0; i < n; i++) {
        (*ids)[i] = from[i];
        if (from[i] >= f->t->vocab.n)
            return gpt_fail(f->err, GPT_EDATA, "%s: post_processor: token %d "
                            "of %lld", f->path, (int)from[i],
                            (long long)f->t->vocab.n);
    }
    *n_ids = n;
    return GPT_OK;
}

/* The id of an added token by its text, else of one of the model; -1 = none.
 * The members that are read were checked by add_token(). */
static int32_t find_token(const struct hf *f, const char *text)
{
    const cJSON *added = member_of(f->root, "added_tokens");

    for (const cJSON *i = added ? added->child : NULL; i; i = i->next)
        if (strcmp(member_of(i, "content")->valuestring, text) == 0)
            return (int32_t)member_of(i, "id")->valuedouble;
    return gpt_token_map_find(&f->t->map, text, strlen(text));
}

/* eos_token of tokenizer_config.json: a string, or an object with `content`.
 * *named is false where the file does not have the member at all, as in one
 * that names a class and no tokens; null means that there is no such token. */
static int eod_of_config(const struct hf *f, const char *path, bool *named)
{
    cJSON *config;
    int status = GPT_OK;

    GPT_TRY(gpt_json_read(&config, path, MAX_CONFIG, f->err));
    const cJSON *eos = member_of(config, "eos_token");
    *named = eos != NULL;
    if (cJSON_IsObject(eos)) /* an AddedToken with its flags */
        eos = member_of(eos, "content");
    if (cJSON_IsString(eos)) {
        f->t->base.eod = find_token(f, eos->valuestring);
        if (f->t->base.eod < 0)
            status = gpt_fail(f->err, GPT_EDATA, "%s: eos_token '%.200s' is "
                              "not in %s", path, eos->valuestring, f->path);
    }
    cJSON_Delete(config);
    return status;
}

/* Without a configuration that names it, the names that are common decide. */
static int find_eod(const struct hf *f)
{
    char path[GPT_JOINED_BYTES];
    const char *slash = strrchr(f->path, '/');
    int dir = slash ? (int)(slash - f->path) + 1 : 0;
    bool named = false;

    if (gpt_gguf_recognises(f->path))
        return gpt_gguf_end_token(f->path, &f->t->base.eod, f->err);
    /* the configuration lies beside the file, whatever that is called */
    snprintf(path, sizeof(path), "%.*stokenizer_config.json", dir, f->path);
    if (gpt_path_exists(path))
        GPT_TRY(eod_of_config(f, path, &named));
    for (size_t i = 0; !named && gpt_eod_names[i] && f->t->base.eod < 0; i++)
        f->t->base.eod = find_token(f, gpt_eod_names[i]);
    return GPT_OK;
}

/* ---- the whole ---- */

static void take_pipeline(const struct hf *f)
{
    const struct gpt_hf_pipeline *p = &f->pipeline;

    f->t->nfc = p->nfc;
    f->t->spaces = p->spaces;
    f->t->prepend = p->prepend;
    f->t->prefix_space = p->prefix_space;
    f->t->prefix_first = p->prefix_first;
    f->t->base.first_space = p->strip;
}

static int load_root(struct hf *f)
{
    const cJSON *model = member_of(f->root, "model");
    const cJSON *added = member_of(f->root, "added_tokens");
    struct gpt_bytelevel *t = f->t;
    int64_t n_ids;
    bool whole;

    /* first what may be refused, before the work of loading */
    GPT_TRY(check_members(f));
    GPT_TRY(check_model(f, model));
    GPT_TRY(gpt_json_bool_or(model, "ignore_merges", false, &whole, f->path,
                             f->err));
    GPT_TRY(gpt_hf_pipeline_read(&f->pipeline, f->root, !f->o->hf_no_special,
                                 f->path, f->err));
    GPT_TRY(count_ids(f, added, &n_ids));
    if (f->pipeline.spaces)
        GPT_TRY(check_chars_model(f, model, whole));
    GPT_TRY((f->pipeline.spaces ? gpt_vocab_load_chars : gpt_vocab_load_json)(
        &t->vocab, f->file.vocab, f->file.merges, n_ids, f->path, f->err));
    GPT_TRY(fill_map(f));
    take_pipeline(f);
    GPT_TRY(read_added(f, added));
    GPT_TRY(copy_around(f, f->pipeline.before, f->pipeline.n_before,
                        &t->base.before, &t->base.n_before));
    GPT_TRY(copy_around(f, f->pipeline.after, f->pipeline.n_after,
                        &t->base.after, &t->base.n_after));
    GPT_TRY(find_eod(f));
    return gpt_bytelevel_finish(t, f->pipeline.cut, whole, f->path, f->err);
}

static int load_file(struct hf *f)
{
    int status;

    GPT_TRY_GOTO(status, gpt_hf_file_read(&f->file, f->path, f->err), out);
    f->root = f->file.root;
    status = load_root(f);
out:
    gpt_hf_file_close(&f->file);
    return status;
}

static int hf_open(struct gpt_tokenizer **tok,
                   const struct gpt_tokenizer_options *o, struct gpt_err *err)
{
    struct hf f = {.o = o, .err = err};

    if (!o->model)
        return gpt_fail(err, GPT_EUSAGE, "HuggingFaceTokenizer needs a "
                        GPT_HF_TOKENIZER);
    GPT_TRY(gpt_tokenizer_file(o->model, GPT_HF_TOKENIZER, f.path,
                               sizeof(f.path), err));
    GPT_TRY(gpt_bytelevel_new(&f.t, &gpt_family_hf, err));
    f.t->parse_special = gpt_tokenizer_parses_special(o);
    int status = load_file(&f);
    if (status != GPT_OK) {
        gpt_bytelevel_close(&f.t->base);
        return status;
    }
    *tok = &f.t->base;
    return GPT_OK;
}

const struct gpt_tokenizer_family gpt_family_hf = {
    .type = "HuggingFaceTokenizer",
    .open = hf_open,
    GPT_BYTELEVEL_FAMILY,
};
