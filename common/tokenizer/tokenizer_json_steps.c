/* Reading of normalizer, pre_tokenizer, post_processor and decoder. Each is
 * a part, or a sequence of parts (tokenizer_json_parts.h). Start at
 * gpt_hf_pipeline_read().
 *
 * Every part is either done here exactly or refused: a part that was ignored
 * would give ids that are nearly right, and no test of the model would show it.
 */
#include "tokenizer/tokenizer_json_steps.h"

#include "tokenizer/sp_normalize.h"
#include "tokenizer/tokenizer_json_parts.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { MOST_PIECES = 24 };

/* What templates have made of a text so far: a list of ids, with TEXT in the
 * place of the text's own, in pieces that end at end[]. */
#define TEXT (-1)
struct pieces {
    int32_t ids[MOST_PIECES];
    size_t end[MOST_PIECES];
    size_t n_ids, n;
};

/* What was read so far; expressions are borrowed from the tree. */
struct reading {
    struct gpt_hf_reading parts;
    struct gpt_hf_pipeline *p;
    const char *regex[GPT_PRETOK_STAGES];
    size_t n_regex;
    bool bytelevel;
    size_t n_decoders; /* of those of decoders[], in their order */
    bool removed; /* what an expression does not match is left out */
    struct pieces pieces;
};

static int refuse(const struct reading *r, const char *field, const char *key,
                  const char *value)
{
    return gpt_hf_refuse_part(&r->parts, field, key, value);
}

/* ---- normalizer ---- */

/* A part that changes texts as no model here does. */
static int refuse_spaces(const struct reading *r, const char *field,
                         const char *key, const char *value)
{
    refuse(r, field, key, value);
    return gpt_hint(r->parts.err,
                    "many such models have a tokenizer.model, too; name that "
                    "file as the model of the tokenizer");
}

/* True for Replace of one text by another. */
static bool replaces(const cJSON *part, const char *from, const char *to)
{
    const cJSON *pattern = gpt_hf_member(part, "pattern");

    return strcmp(gpt_hf_string(pattern, "String"), from) == 0 &&
           strcmp(gpt_hf_string(part, "content"), to) == 0;
}

/* Spaces as U+2581, and one before the text: in either order these make the
 * same. They are not done beside form C. */
static int read_spaces(struct reading *r, const cJSON *part, const char *type,
                       const char *field)
{
    const bool prepend = strcmp(type, "Prepend") == 0;

    if (r->p->nfc)
        return refuse(r, field, "type after NFC", type);
    if (prepend) {
        if (strcmp(gpt_hf_string(part, "prepend"), GPT_SP_SPACE) != 0)
            return refuse_spaces(r, field, "prepend",
                                 gpt_hf_string(part, "prepend"));
        if (r->p->prepend)
            return refuse_spaces(r, field, "type", "a second Prepend");
        r->p->prepend = true;
        return GPT_OK;
    }
    if (!replaces(part, " ", GPT_SP_SPACE))
        return refuse_spaces(r, field, "content",
                             gpt_hf_string(part, "content"));
    r->p->spaces = GPT_HF_NORMALIZED;
    return GPT_OK;
}

static int read_normalizer(void *data, const cJSON *part,
                           const char *type, const char *field)
{
    struct reading *r = data;

    if (strcmp(type, "Prepend") == 0 || strcmp(type, "Replace") == 0)
        return read_spaces(r, part, type, field);
    if (strcmp(type, "NFC") != 0)
        return refuse(r, field, "type", type);
    if (r->p->spaces || r->p->prepend)
        return refuse(r, field, "type after Replace or Prepend", type);
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
    const cJSON *regex = gpt_hf_member(gpt_hf_member(part, "pattern"), "Regex");
    const char *behavior = gpt_hf_string(part, "behavior");
    bool invert = gpt_hf_flag(part, "invert", false);
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
    r->p->prefix_space = gpt_hf_flag(part, "add_prefix_space", true);
    if (r->p->prefix_space && r->n_regex)
        return refuse(r, field, "add_prefix_space",
                      "true after another pre-tokenizer");
    if (!gpt_hf_flag(part, "use_regex", true))
        return GPT_OK;
    /* use_regex means GPT-2's, the first row of the table */
    return add_regex(r, gpt_pretok_row(0)->regex[0], field);
}

/* Spaces as U+2581, and one before the text where there is none. Without
 * "split" a text stays one piece. Files of old versions have add_prefix_space
 * in place of a scheme; the library refuses it where the two do not fit. */
static int read_metaspace(struct reading *r, const cJSON *part,
                          const char *field)
{
    const char *scheme = gpt_hf_member(part, "prepend_scheme")
                             ? gpt_hf_string(part, "prepend_scheme")
                             : "always";
    const bool never = strcmp(scheme, "never") == 0;

    if (r->p->spaces || r->p->prepend || r->p->nfc)
        return refuse(r, field, "type after a normalizer", "Metaspace");
    if (strcmp(gpt_hf_string(part, "replacement"), GPT_SP_SPACE) != 0)
        return refuse_spaces(r, field, "replacement",
                             gpt_hf_string(part, "replacement"));
    if (gpt_hf_flag(part, "split", true))
        return refuse_spaces(r, field, "split", "true");
    r->p->prefix_first = strcmp(scheme, "first") == 0;
    if ((!never && !r->p->prefix_first && strcmp(scheme, "always") != 0) ||
        (!never && !gpt_hf_flag(part, "add_prefix_space", true)))
        return refuse_spaces(r, field, "prepend_scheme", scheme);
    r->p->prefix_space = !never;
    r->p->spaces = GPT_HF_PRETOKENIZED;
    return GPT_OK;
}

/* Where the normalizer has replaced all spaces there is none to split at. */
static bool splits_nothing(const struct reading *r, const cJSON *part)
{
    const cJSON *pattern = gpt_hf_member(part, "pattern");

    return r->p->spaces == GPT_HF_NORMALIZED &&
           strcmp(gpt_hf_string(part, "behavior"), "MergedWithPrevious") == 0 &&
           strcmp(gpt_hf_string(pattern, "String"), " ") == 0 &&
           !gpt_hf_flag(part, "invert", false);
}

static int read_pre_tokenizer(void *data, const cJSON *part,
                              const char *type, const char *field)
{
    struct reading *r = data;

    if (strcmp(type, "Split") == 0 && splits_nothing(r, part))
        return GPT_OK;
    if (r->p->spaces)
        return refuse(r, field, "type after U+2581 for spaces", type);
    if (strcmp(type, "Metaspace") == 0 && !r->bytelevel && !r->n_regex)
        return read_metaspace(r, part, field);
    if (r->bytelevel)
        return refuse(r, field, "type after ByteLevel", type);
    if (strcmp(type, "ByteLevel") == 0)
        return read_bytelevel(r, part, field);
    if (strcmp(type, "Split") == 0)
        return read_split(r, part, field);
    if (strcmp(type, "Digits") == 0)
        return add_regex(r, gpt_hf_flag(part, "individual_digits", false)
                                ? "\\p{N}"
                                : "\\p{N}+",
                         field);
    return refuse(r, field, "type", type);
}

/* Finds the pre-tokenizer that the expressions name, all of them together. */
static int find_cut(struct reading *r)
{
    if (r->p->spaces) {
        r->p->cut = gpt_pretok_whole;
        return GPT_OK;
    }
    if (r->p->prepend)
        return refuse_spaces(r, "normalizer", "type",
                             "Prepend without Replace");
    if (!r->bytelevel)
        return gpt_fail(r->parts.err, GPT_EDATA,
                        "%s: pre_tokenizer without ByteLevel is not supported",
                        r->parts.what);
    const struct gpt_pretok *pretok =
        gpt_pretok_by_regex(r->regex, r->n_regex);
    if (!pretok && r->n_regex == 1)
        return refuse(r, "pre_tokenizer", "pattern", r->regex[0]);
    if (!pretok)
        return gpt_fail(r->parts.err, GPT_EDATA,
                        "%s: pre_tokenizer: this sequence of %zu patterns is "
                        "not supported", r->parts.what, r->n_regex);
    /* a single pattern matches everything, so that nothing is left out */
    if (r->removed && r->n_regex > 1)
        return refuse(r, "pre_tokenizer", "behavior",
                      "Removed in a sequence of patterns");
    r->p->cut = pretok->cut;
    return GPT_OK;
}

/* ---- post-processor ----
 *
 * The library keeps what a template makes as a list of pieces, one for each
 * item of the template, and hands that list to the next template of a Sequence.
 * A list of one piece goes through the next one's template for a single text,
 * and a list of two through its template for a pair: a piece before the text is
 * then the first text of the pair. More pieces end the library. The order of
 * special tokens follows from that, and is the same here. */

static int add_id(struct reading *r, struct pieces *to, int32_t id,
                  const char *field)
{
    if (to->n_ids == MOST_PIECES)
        return gpt_hf_refuse_more(&r->parts, field, "single", MOST_PIECES,
                                  "special tokens");
    to->ids[to->n_ids++] = id;
    return GPT_OK;
}

static bool is_id(const cJSON *item)
{
    return cJSON_IsNumber(item) && item->valuedouble >= 0 &&
           item->valuedouble < GPT_VOCAB_MAX;
}

/* Adds the ids of a special token of the template, listed in special_tokens. */
static int add_special(struct reading *r, struct pieces *to,
                       const cJSON *template, const cJSON *token,
                       const char *field)
{
    const char *name = gpt_hf_string(token, "id");
    const cJSON *listed = gpt_hf_member(template, "special_tokens");
    const cJSON *ids = gpt_hf_member(gpt_hf_member(listed, name), "ids");

    if (!cJSON_IsArray(ids))
        return gpt_fail(r->parts.err, GPT_EDATA,
                        "%s: %s.special_tokens: no ids of '%.200s'",
                        r->parts.what, field, name);
    for (const cJSON *id = ids->child; id; id = id->next) {
        if (!is_id(id))
            return gpt_fail(r->parts.err, GPT_EDATA,
                            "%s: %s.special_tokens: a bad id of '%.200s'",
                            r->parts.what, field, name);
        GPT_TRY(add_id(r, to, (int32_t)id->valuedouble, field));
    }
    return GPT_OK;
}

/* Adds the piece that a template calls A or B: the first or the second. */
static int add_piece(struct reading *r, struct pieces *to, const cJSON *item,
                     const char *field)
{
    const struct pieces *from = &r->pieces;
    const char *name = gpt_hf_string(gpt_hf_member(item, "Sequence"), "id");
    size_t i = strcmp(name, "B") == 0;

    if (i >= from->n)
        return refuse(r, field, "single", "B, where there is one text");
    for (size_t k = i ? from->end[i - 1] : 0; k < from->end[i]; k++)
        GPT_TRY(add_id(r, to, from->ids[k], field));
    return GPT_OK;
}

static int read_template(struct reading *r, const cJSON *part,
                         const char *field)
{
    const char *list = r->pieces.n == 1 ? "single" : "pair";
    const cJSON *items = gpt_hf_member(part, list);
    struct pieces to = {.n = 0};

    if (r->pieces.n > 2)
        return refuse(r, field, "type", "TemplateProcessing after one of more "
                                        "than two items");
    if (!cJSON_IsArray(items))
        return gpt_fail(r->parts.err, GPT_EDATA, "%s: %s: no array '%s'",
                        r->parts.what, field, list);
    for (const cJSON *i = items->child; i; i = i->next) {
        const cJSON *token = gpt_hf_member(i, "SpecialToken");

        if (to.n == MOST_PIECES)
            return gpt_hf_refuse_more(&r->parts, field, list, MOST_PIECES,
                                      "items");
        GPT_TRY(token ? add_special(r, &to, part, token, field)
                      : add_piece(r, &to, i, field));
        to.end[to.n++] = to.n_ids;
    }
    r->pieces = to;
    return GPT_OK;
}

/* Adds the token of a member that is a list of its text and its id. */
static int add_end(struct reading *r, struct pieces *to, const cJSON *part,
                   const char *key, const char *field)
{
    const cJSON *id = cJSON_GetArrayItem(gpt_hf_member(part, key), 1);

    if (!is_id(id))
        return gpt_fail(r->parts.err, GPT_EDATA, "%s: %s.%s: no list of a text "
                        "and an id", r->parts.what, field, key);
    return add_id(r, to, (int32_t)id->valuedouble, field);
}

/* BertProcessing and RobertaProcessing: `cls` before a text, `sep` behind it.
 * They differ in what they do to a pair. */
static int read_ends(struct reading *r, const cJSON *part, const char *field)
{
    const struct pieces *from = &r->pieces;
    struct pieces to = {.n = 0};

    if (from->n != 1)
        return refuse(r, field, "type", gpt_hf_string(part, "type"));
    GPT_TRY(add_end(r, &to, part, "cls", field));
    for (size_t k = 0; k < from->n_ids; k++)
        GPT_TRY(add_id(r, &to, from->ids[k], field));
    GPT_TRY(add_end(r, &to, part, "sep", field));
    to.end[to.n++] = to.n_ids;
    r->pieces = to;
    return GPT_OK;
}

/* What is around the text when all templates are read. The text must be there
 * once. */
static int split_around(struct reading *r)
{
    struct gpt_hf_pipeline *p = r->p;
    bool after = false;

    for (size_t i = 0; i < r->pieces.n_ids; i++) {
        int32_t id = r->pieces.ids[i];

        if (id == TEXT && after)
            return refuse(r, "post_processor", "single", "the text twice");
        after = after || id == TEXT;
        if (id == TEXT)
            continue;
        size_t *n = after ? &p->n_after : &p->n_before;
        if (*n == GPT_COUNT(p->before))
            return refuse(r, "post_processor", "single",
                          "more than 8 special tokens");
        assert(*n < GPT_COUNT(p->after));
        (after ? p->after : p->before)[(*n)++] = id;
    }
    return after ? GPT_OK
                 : refuse(r, "post_processor", "single",
                          "a template without the text");
}

/* What is put around a text. */
static int read_post_processor(void *data, const cJSON *part,
                               const char *type, const char *field)
{
    struct reading *r = data;

    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(r, part, field);
    if (strcmp(type, "BertProcessing") == 0 ||
        strcmp(type, "RobertaProcessing") == 0)
        return read_ends(r, part, field);
    /* ByteLevel changes offsets only */
    return strcmp(type, "ByteLevel") == 0 ? GPT_OK
                                          : refuse(r, field, "type", type);
}

/* ---- decoder ---- */

/* A list of steps for characters: each once, in this order. Without Fuse each
 * token would lose its space, and without ByteFallback "<0x0A>" would be text.
 * The space that is dropped is that of the whole text. */
static int read_chars_decoder(struct reading *r, const cJSON *part,
                              const char *type, const char *field)
{
    static const char *const decoders[] = {"Replace", "ByteFallback", "Fuse",
                                           "Strip"};
    const size_t i = r->n_decoders++;

    if (i == GPT_COUNT(decoders) || strcmp(type, decoders[i]) != 0)
        return refuse(r, field, "type", type);
    if (i == 0 && !replaces(part, GPT_SP_SPACE, " "))
        return refuse(r, field, "content", gpt_hf_string(part, "content"));
    if (i < 3)
        return GPT_OK;
    GPT_TRY(gpt_hf_check_strip(&r->parts, part, field));
    r->p->strip = true;
    return GPT_OK;
}

/* The decoder is not needed to encode. It is read because another one than that
 * of bytes would mean that tokens are not bytes. */
static int read_decoder(void *data, const cJSON *part,
                        const char *type, const char *field)
{
    struct reading *r = data;

    if (r->p->spaces)
        return read_chars_decoder(r, part, type, field);
    return strcmp(type, "ByteLevel") == 0 ? GPT_OK
                                          : refuse(r, field, "type", type);
}

/* A reading of nothing yet. */
static void begin_reading(struct reading *r, struct gpt_hf_pipeline *p,
                          const char *what, struct gpt_err *err)
{
    *p = (struct gpt_hf_pipeline){0};
    *r = (struct reading){
        .parts = {.what = what, .err = err, .data = r},
        .p = p,
        .pieces = {.ids = {TEXT}, .end = {1}, .n_ids = 1, .n = 1},
    };
}

static int read_around(struct reading *r, const cJSON *root, bool around)
{
    if (around)
        GPT_TRY(gpt_hf_each_part(&r->parts,
                                 gpt_hf_member(root, "post_processor"),
                                 "post_processor", "processors",
                                 read_post_processor));
    return split_around(r);
}

int gpt_hf_around_read(struct gpt_hf_pipeline *p, const cJSON *root,
                       bool around, const char *what, struct gpt_err *err)
{
    struct reading r;

    begin_reading(&r, p, what, err);
    return read_around(&r, root, around);
}

int gpt_hf_pipeline_read(struct gpt_hf_pipeline *p, const cJSON *root,
                         bool around, const char *what, struct gpt_err *err)
{
    struct reading r;

    begin_reading(&r, p, what, err);
    GPT_TRY(gpt_hf_each_part(&r.parts, gpt_hf_member(root, "normalizer"),
                             "normalizer", "normalizers", read_normalizer));
    GPT_TRY(gpt_hf_each_part(&r.parts, gpt_hf_member(root, "pre_tokenizer"),
                             "pre_tokenizer", "pretokenizers",
                             read_pre_tokenizer));
    GPT_TRY(find_cut(&r));
    GPT_TRY(read_around(&r, root, around));
    GPT_TRY(gpt_hf_each_part(&r.parts, gpt_hf_member(root, "decoder"),
                             "decoder", "decoders", read_decoder));
    return p->spaces && r.n_decoders < 3
               ? gpt_fail(err, GPT_EDATA, "%s: decoder: less than Replace, "
                          "ByteFallback and Fuse is not supported for a "
                          "vocabulary of characters", what)
               : GPT_OK;
}
