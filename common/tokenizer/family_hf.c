/* HuggingFaceTokenizer: a tokenizer.json of a BPE model, and beside it
 * tokenizer_config.json, which names the token that ends a document; files of
 * other models go on in family_hf_pieces.c. Start at hf_open(), then
 * load_root(), which is the order in which the parts depend on each other: the
 * model and the steps are checked first, because they may be refused; the
 * vocabulary comes before the added tokens, which may be in it. */
#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "tokenizer/family_hf.h"
#include "tokenizer/gguf_tokens.h"
#include "tokenizer/hf_files.h"
#include "tokenizer/tokenizer_json_parts.h"

#include <stdio.h>
#include <string.h>

enum { MAX_CONFIG = 1 << 26 };

/* ---- the members of the file ---- */

/* The library refuses another version, and a member that it does not know: a
 * later format may change the meaning of the members that are known. */
static int check_members(const struct gpt_hf_load *f)
{
    static const char *const known[] = {
        "version",    "truncation",    "padding",        "added_tokens",
        "normalizer", "pre_tokenizer", "post_processor", "decoder",
        "model",
    };
    const cJSON *version = gpt_hf_member(f->root, "version");

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

/* A model that would give other ids is refused by the member that says so. */
static int refuse_model(const struct gpt_hf_load *f, const char *key,
                        const char *value)
{
    return gpt_fail(f->err, GPT_EDATA, "%s: model.%s: '%.100s' is not "
                    "supported", f->path, key, value);
}

/* Refuses what would give other ids than merging alone. unk_token and fuse_unk
 * never matter: every byte has a token. */
static int check_model(const struct gpt_hf_load *f, const cJSON *model)
{
    static const char *const affixes[] = {"continuing_subword_prefix",
                                          "end_of_word_suffix"};
    const cJSON *type = gpt_hf_member(model, "type");
    const cJSON *dropout = gpt_json_member(model, "dropout");

    if (!cJSON_IsObject(model))
        return gpt_fail(f->err, GPT_EDATA, "%s: no object 'model'", f->path);
    if (type && !cJSON_IsString(type))
        return gpt_fail(f->err, GPT_EDATA, "%s: model.type is no string",
                        f->path);
    if (type && strcmp(type->valuestring, "BPE") != 0)
        return refuse_model(f, "type", type->valuestring);
    if (dropout && dropout->valuedouble != 0)
        return refuse_model(f, "dropout", "tokens by chance");
    for (size_t i = 0; i < GPT_COUNT(affixes); i++) {
        const cJSON *affix = gpt_hf_member(model, affixes[i]);

        if (cJSON_IsString(affix) && *affix->valuestring)
            return refuse_model(f, affixes[i], affix->valuestring);
    }
    return GPT_OK;
}

/* A vocabulary of characters needs its bytes for those that it lacks. That a
 * text is a token as a whole is done for pieces only. */
static int check_chars_model(const struct gpt_hf_load *f, const cJSON *model,
                             bool whole)
{
    bool fallback;

    GPT_TRY(gpt_json_bool_or(model, "byte_fallback", false, &fallback, f->path,
                             f->err));
    if (!fallback)
        return refuse_model(f, "byte_fallback", "false");
    return whole ? refuse_model(f, "ignore_merges", "true") : GPT_OK;
}

/* ---- tokens ---- */

/* Fills the map before the added tokens are placed, so that it holds only
 * tokens that text may become by merging. */
static int fill_map(struct gpt_hf_load *f)
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

/* The ids are only now known to be in range. */
int gpt_hf_copy_around(const struct gpt_hf_load *f, const int32_t *from,
                       size_t n, int64_t n_ids, int32_t **ids, size_t *n_copied)
{
    GPT_TRY(gpt_new(ids, n, sizeof(**ids), "special tokens", f->err));
    for (size_t i = 0; i < n; i++) {
        (*ids)[i] = from[i];
        if (from[i] >= n_ids)
            return gpt_fail(f->err, GPT_EDATA, "%s: post_processor: token id "
                            "is %d, must be below %lld", f->path, (int)from[i],
                            (long long)n_ids);
    }
    *n_copied = n;
    return GPT_OK;
}

/* A search for the end of a document. */
struct eod_search {
    const struct gpt_hf_load *f;
    gpt_hf_find_fn *find;
    const void *data;
};

/* Finds the id of an added token by its text, else of one of the model; -1
 * where there is none. The members that are read were checked when added tokens
 * were. */
static int32_t find_token(const struct eod_search *s, const char *text)
{
    const cJSON *added = gpt_hf_member(s->f->root, "added_tokens");

    for (const cJSON *i = added ? added->child : NULL; i; i = i->next)
        if (strcmp(gpt_hf_member(i, "content")->valuestring, text) == 0)
            return (int32_t)gpt_hf_member(i, "id")->valuedouble;
    return s->find(s->data, text, strlen(text));
}

/* Finds the id of eos_token in tokenizer_config.json, which is a string, or an
 * object with `content`. *named is false where the file does not have the
 * member at all, as in one that names a class and no tokens; null means that
 * there is no such token. */
static int eod_of_config(const struct eod_search *s, const char *path,
                         bool *named, int32_t *eod)
{
    cJSON *config;
    int status = GPT_OK;

    GPT_TRY(gpt_json_read(&config, path, MAX_CONFIG, s->f->err));
    const cJSON *eos = gpt_hf_member(config, "eos_token");
    *named = eos != NULL;
    if (cJSON_IsObject(eos)) /* an AddedToken with its flags */
        eos = gpt_hf_member(eos, "content");
    if (cJSON_IsString(eos)) {
        *eod = find_token(s, eos->valuestring);
        if (*eod < 0)
            status = gpt_fail(s->f->err, GPT_EDATA, "%s: eos_token '%.200s' "
                              "is not in %s", path, eos->valuestring,
                              s->f->path);
    }
    cJSON_Delete(config);
    return status;
}

/* Without a configuration that names it, the common names decide. */
int gpt_hf_find_eod(const struct gpt_hf_load *f, gpt_hf_find_fn *find,
                    const void *data, int32_t *eod)
{
    const struct eod_search s = {f, find, data};
    char path[GPT_JOINED_BYTES];
    const char *slash = strrchr(f->path, '/');
    int dir = slash ? (int)(slash - f->path) + 1 : 0;
    bool named = false;

    if (gpt_gguf_recognises(f->path))
        return gpt_gguf_end_token(f->path, eod, f->err);
    /* the configuration lies beside the file, whatever that is called */
    snprintf(path, sizeof(path), "%.*stokenizer_config.json", dir, f->path);
    if (gpt_path_exists(path))
        GPT_TRY(eod_of_config(&s, path, &named, eod));
    for (size_t i = 0; !named && gpt_eod_names[i] && *eod < 0; i++)
        *eod = find_token(&s, gpt_eod_names[i]);
    return GPT_OK;
}

static int32_t find_in_map(const void *data, const char *text, size_t len)
{
    return gpt_token_map_find(data, text, len);
}

/* ---- the whole ---- */

/* The steps that the tokenizer does on each text. */
static void take_pipeline(const struct gpt_hf_load *f)
{
    const struct gpt_hf_pipeline *p = &f->pipeline;

    f->t->nfc = p->nfc;
    f->t->spaces = p->spaces;
    f->t->prepend = p->prepend;
    f->t->prefix_space = p->prefix_space;
    f->t->prefix_first = p->prefix_first;
    f->t->base.first_space = p->strip;
}

static int load_root(struct gpt_hf_load *f)
{
    const cJSON *model = gpt_hf_member(f->root, "model");
    const cJSON *added = gpt_hf_member(f->root, "added_tokens");
    struct gpt_bytelevel *t = f->t;
    int64_t n_ids;
    bool whole;

    /* first what may be refused, before the work of loading */
    GPT_TRY(check_model(f, model));
    GPT_TRY(gpt_json_bool_or(model, "ignore_merges", false, &whole, f->path,
                             f->err));
    GPT_TRY(gpt_hf_pipeline_read(&f->pipeline, f->root, !f->o->hf_no_special,
                                 f->path, f->err));
    GPT_TRY(gpt_hf_count_ids(f, added, &n_ids));
    if (f->pipeline.spaces)
        GPT_TRY(check_chars_model(f, model, whole));
    GPT_TRY((f->pipeline.spaces ? gpt_vocab_load_chars : gpt_vocab_load_json)(
        &t->vocab, f->file.vocab, f->file.merges, n_ids, f->path, f->err));
    GPT_TRY(fill_map(f));
    take_pipeline(f);
    GPT_TRY(gpt_hf_read_added(f, added));
    GPT_TRY(gpt_hf_copy_around(f, f->pipeline.before, f->pipeline.n_before,
                               t->vocab.n, &t->base.before, &t->base.n_before));
    GPT_TRY(gpt_hf_copy_around(f, f->pipeline.after, f->pipeline.n_after,
                               t->vocab.n, &t->base.after, &t->base.n_after));
    GPT_TRY(gpt_hf_find_eod(f, find_in_map, &t->map, &t->base.eod));
    return gpt_bytelevel_finish(t, f->pipeline.cut, whole, f->path, f->err);
}

static int open_pairs(struct gpt_tokenizer **tok, struct gpt_hf_load *f)
{
    GPT_TRY(gpt_bytelevel_new(&f->t, &gpt_family_hf, f->err));
    f->t->parse_special = gpt_tokenizer_parses_special(f->o);
    int status = load_root(f);
    if (status != GPT_OK) {
        gpt_bytelevel_close(&f->t->base);
        return status;
    }
    *tok = &f->t->base;
    return GPT_OK;
}

static int hf_open(struct gpt_tokenizer **tok,
                   const struct gpt_tokenizer_options *o, struct gpt_err *err)
{
    struct gpt_hf_load f = {.o = o, .err = err};
    bool known;
    int status;

    if (!o->model)
        return gpt_fail(err, GPT_EUSAGE, "HuggingFaceTokenizer needs a "
                        GPT_HF_TOKENIZER);
    GPT_TRY(gpt_tokenizer_file(o->model, GPT_HF_TOKENIZER, f.path,
                               sizeof(f.path), err));
    GPT_TRY_GOTO(status, gpt_hf_file_read(&f.file, f.path, err), out);
    f.root = f.file.root;
    GPT_TRY_GOTO(status, check_members(&f), out);
    GPT_TRY_GOTO(status, gpt_hf_pieces_open(tok, &known, &f), out);
    status = known ? GPT_OK : open_pairs(tok, &f);
out:
    gpt_hf_file_close(&f.file);
    return status;
}

const struct gpt_tokenizer_family gpt_family_hf = {
    .type = "HuggingFaceTokenizer",
    .open = hf_open,
    GPT_BYTELEVEL_FAMILY,
};
