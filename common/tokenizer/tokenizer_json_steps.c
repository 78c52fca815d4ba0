/* Reading of normalizer, pre_tokenizer, post_processor and decoder. Each is an
 * object with a "type"; the type "Sequence" holds a list of such. Start at
 * gpt_hf_pipeline_read().
 *
 * Every part is either done here exactly or refused: a part that was ignored
 * would give ids that are nearly right, and no test of the model would show it.
 */
#include "tokenizer/tokenizer_json_steps.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* What was read so far; expressions are borrowed from the tree. */
struct reading {
    struct gpt_hf_pipeline *p;
    const char *what;
    const char *regex[GPT_PRETOK_STAGES];
    size_t n_regex;
    bool bytelevel;
    bool removed; /* what an expression does not match is left out */
    struct gpt_err *err;
};

typedef int part_fn(struct reading *r, const cJSON *part, const char *type,
                    const char *field);

static const cJSON *member_of(const cJSON *obj, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(obj, key);
}

static const char *string_of(const cJSON *obj, const char *key)
{
    const cJSON *item = member_of(obj, key);

    return cJSON_IsString(item) ? item->valuestring : "";
}

static bool flag_of(const cJSON *obj, const char *key, bool def)
{
    const cJSON *item = member_of(obj, key);

    return cJSON_IsBool(item) ? cJSON_IsTrue(item) : def;
}

static int refuse(const struct reading *r, const char *field, const char *key,
                  const char *value)
{
    return gpt_fail(r->err, GPT_EDATA, "%s: %s.%s: '%.300s' is not supported",
                    r->what, field, key, value);
}

/* Calls fn for a part, or for each part of a sequence, which may hold
 * sequences; for null does nothing. The depth is that of the JSON, which is
 * limited. */
static int each_part(struct reading *r, const cJSON *part, const char *field,
                     const char *list, part_fn *fn)
{
    char name[160];
    int i = 0;

    if (!part || cJSON_IsNull(part))
        return GPT_OK;
    const char *type = string_of(part, "type");
    if (strcmp(type, "Sequence") != 0)
        return fn(r, part, type, field);
    const cJSON *parts = member_of(part, list);
    if (!cJSON_IsArray(parts))
        return gpt_fail(r->err, GPT_EDATA, "%s: %s: no array '%s'", r->what,
                        field, list);
    for (const cJSON *p = parts->child; p; p = p->next) {
        snprintf(name, sizeof(name), "%.80s.%s[%d]", field, list, i++);
        GPT_TRY(each_part(r, p, name, list, fn));
    }
    return GPT_OK;
}

/* ---- normalizer ---- */

static int read_normalizer(struct reading *r, const cJSON *part,
                           const char *type, const char *field)
{
    (void)part;
    if (strcmp(type, "NFC") != 0) {
        refuse(r, field, "type", type);
        if (strcmp(type, "Prepend") == 0 || strcmp(type, "Replace") == 0)
            gpt_hint(r->err, "for such a model take its tokenizer.model and "
                             "SentencePieceTokenizer");
        return GPT_EDATA;
    }
    r->p->nfc = true;
    return GPT_OK;
}

/* ---- pre-tokenizer ---- */

/* Pre-tokenizers follow each other, and so do their expressions: only all of
 * them together name a pre-tokenizer of pretok_table.c. */
static int add_regex(struct reading *r, const char *regex, const char *field)
{
    if (r->n_regex == GPT_PRETOK_STAGES)
        return refuse(r, field, "pattern", regex);
    r->regex[r->n_regex++] = regex;
    return GPT_OK;
}

/* Hugging Face's Split: the pieces are what the expression matches, kept
 * between the others ("Isolated"), or all that it does not remove ("Removed",
 * inverted). The two differ only in what matches nothing. */
static int read_split(struct reading *r, const cJSON *part, const char *field)
{
    const cJSON *regex = member_of(member_of(part, "pattern"), "Regex");
    const char *behavior = string_of(part, "behavior");
    bool invert = flag_of(part, "invert", false);
    bool isolated = strcmp(behavior, "Isolated") == 0 && !invert;
    bool removed = strcmp(behavior, "Removed") == 0 && invert;

    if (!isolated && !removed) {
        char value[80];

        snprintf(value, sizeof(value), "%.40s%s", behavior,
                 invert ? ", invert" : "");
        return refuse(r, field, "behavior", value);
    }
    if (!cJSON_IsString(regex))
        return refuse(r, field, "pattern", "not a Regex");
    r->removed = r->removed || removed;
    return add_regex(r, regex->valuestring, field);
}

static int read_bytelevel(struct reading *r, const cJSON *part,
                          const char *field)
{
    r->bytelevel = true;
    r->p->prefix_space = flag_of(part, "add_prefix_space", true);
    if (r->p->prefix_space && r->n_regex)
        return refuse(r, field, "add_prefix_space",
                      "true after another pre-tokenizer");
    if (!flag_of(part, "use_regex", true))
        return GPT_OK;
    /* use_regex means GPT-2's, the first row of the table */
    return add_regex(r, gpt_pretok_row(0)->regex[0], field);
}

static int read_pre_tokenizer(struct reading *r, const cJSON *part,
                              const char *type, const char *field)
{
    if (r->bytelevel)
        return refuse(r, field, "type after ByteLevel", type);
    if (strcmp(type, "ByteLevel") == 0)
        return read_bytelevel(r, part, field);
    if (strcmp(type, "Split") == 0)
        return read_split(r, part, field);
    if (strcmp(type, "Digits") == 0)
        return add_regex(r, flag_of(part, "individual_digits", false)
                                ? "\\p{N}"
                                : "\\p{N}+",
                         field);
    return refuse(r, field, "type", type);
}

/* Finds the pre-tokenizer that the expressions name, all of them together. */
static int find_cut(struct reading *r)
{
    if (!r->bytelevel)
        return gpt_fail(r->err, GPT_EDATA,
                        "%s: pre_tokenizer without ByteLevel is not supported",
                        r->what);
    const struct gpt_pretok *pretok =
        gpt_pretok_by_regex(r->regex, r->n_regex);
    if (!pretok && r->n_regex == 1)
        return refuse(r, "pre_tokenizer", "pattern", r->regex[0]);
    if (!pretok)
        return gpt_fail(r->err, GPT_EDATA, "%s: pre_tokenizer: this sequence "
                        "of %zu patterns is not supported", r->what,
                        r->n_regex);
    /* a single pattern matches everything, so that nothing is left out */
    if (r->removed && r->n_regex > 1)
        return refuse(r, "pre_tokenizer", "behavior",
                      "Removed in a sequence of patterns");
    r->p->cut = pretok->cut;
    return GPT_OK;
}

/* ---- post-processor ---- */

/* Adds the ids of a special token of the template, listed in special_tokens. */
static int add_around(struct reading *r, const cJSON *template,
                      const cJSON *token, bool after, const char *field)
{
    const char *name = string_of(token, "id");
    int32_t *list = after ? r->p->after : r->p->before;
    size_t *n = after ? &r->p->n_after : &r->p->n_before;
    const cJSON *listed = member_of(template, "special_tokens");
    const cJSON *ids = member_of(member_of(listed, name), "ids");

    if (!cJSON_IsArray(ids))
        return gpt_fail(r->err, GPT_EDATA, "%s: %s.special_tokens: no ids of "
                        "'%.200s'", r->what, field, name);
    for (const cJSON *id = ids->child; id; id = id->next) {
        if (*n == GPT_COUNT(r->p->before))
            return refuse(r, field, "single", "more than 8 special tokens");
        if (!cJSON_IsNumber(id) || !(id->valuedouble >= 0) ||
            id->valuedouble >= GPT_VOCAB_MAX)
            return gpt_fail(r->err, GPT_EDATA, "%s: %s.special_tokens: a bad "
                            "id of '%.200s'", r->what, field, name);
        assert(*n < GPT_COUNT(r->p->after));
        list[(*n)++] = (int32_t)id->valuedouble;
    }
    return GPT_OK;
}

/* The template for one text: special tokens, the text once, special tokens. */
static int read_template(struct reading *r, const cJSON *part,
                         const char *field)
{
    bool after = false;
    const cJSON *single = member_of(part, "single");

    if (!cJSON_IsArray(single))
        return gpt_fail(r->err, GPT_EDATA, "%s: %s: no array 'single'",
                        r->what, field);
    for (const cJSON *i = single->child; i; i = i->next) {
        const cJSON *token = member_of(i, "SpecialToken");

        if (!token && after)
            return refuse(r, field, "single", "the text twice");
        after = after || !token;
        if (token)
            GPT_TRY(add_around(r, part, token, after, field));
    }
    return after ? GPT_OK
                 : refuse(r, field, "single", "a template without the text");
}

/* What is put around a text. */
static int read_post_processor(struct reading *r, const cJSON *part,
                               const char *type, const char *field)
{
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(r, part, field);
    /* ByteLevel changes offsets only */
    return strcmp(type, "ByteLevel") == 0 ? GPT_OK
                                          : refuse(r, field, "type", type);
}

/* ---- decoder ---- */

/* The decoder is not needed to encode. It is read because another one than that
 * of bytes would mean that tokens are not bytes. */
static int read_decoder(struct reading *r, const cJSON *part, const char *type,
                        const char *field)
{
    (void)part;
    return strcmp(type, "ByteLevel") == 0 ? GPT_OK
                                          : refuse(r, field, "type", type);
}

int gpt_hf_pipeline_read(struct gpt_hf_pipeline *p, const cJSON *root,
                         bool around, const char *what, struct gpt_err *err)
{
    struct reading r = {.p = p, .what = what, .err = err};

    *p = (struct gpt_hf_pipeline){0};
    GPT_TRY(each_part(&r, member_of(root, "normalizer"), "normalizer",
                      "normalizers", read_normalizer));
    GPT_TRY(each_part(&r, member_of(root, "pre_tokenizer"), "pre_tokenizer",
                      "pretokenizers", read_pre_tokenizer));
    GPT_TRY(find_cut(&r));
    if (around)
        GPT_TRY(each_part(&r, member_of(root, "post_processor"),
                          "post_processor", "processors",
                          read_post_processor));
    return each_part(&r, member_of(root, "decoder"), "decoder", "decoders",
                     read_decoder);
}
