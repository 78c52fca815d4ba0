/* See tokenizer_json_pieces.h. Each list has a table of the types that are
 * known, each with the function that reads it. Start at
 * gpt_hf_piece_steps_read(). */
#include "tokenizer/tokenizer_json_pieces.h"

#include "base/utf8.h"
#include "text/base64.h"
#include "tokenizer/ids.h"
#include "tokenizer/tokenizer_json_parts.h"

#include <string.h>

struct reading {
    struct gpt_hf_reading parts;
    struct gpt_hf_piece_steps *s;
    struct gpt_arena *arena;
    bool fused;   /* the decoder has made one text of all tokens */
    bool printed; /* there is a decoder */
};

typedef int read_fn(struct reading *r, const cJSON *part, const char *field);

struct row {
    const char *type;
    read_fn *read;
};

/* Reads a part by the row of its type. */
static int read_by_type(struct reading *r, const struct row *rows, size_t n,
                        const cJSON *part, const char *type, const char *field)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(type, rows[i].type) == 0)
            return rows[i].read(r, part, field);
    return gpt_hf_refuse_part(&r->parts, field, "type", type);
}

static int read_pattern(const struct reading *r, struct gpt_needle *pattern,
                        const cJSON *part, const char *field)
{
    const char *shown;

    return gpt_needle_read(pattern, gpt_hf_member(part, "pattern"), r->arena,
                           &shown)
               ? GPT_OK
               : gpt_hf_refuse_part(&r->parts, field, "pattern", shown);
}

/* A member that must be a text; it may be empty. */
static int read_text(const struct reading *r, struct gpt_str *text,
                     const cJSON *part, const char *key, const char *field)
{
    const cJSON *item = gpt_hf_member(part, key);

    if (!cJSON_IsString(item))
        return gpt_hf_refuse_part(&r->parts, field, key, "no text");
    const char *copy = gpt_arena_strdup(r->arena, item->valuestring);

    if (!copy)
        return gpt_no_memory(r->parts.err, "a tokenizer");
    *text = (struct gpt_str){copy, strlen(copy)};
    return GPT_OK;
}

/* ---- normalizer ---- */

/* The step that a part of the normalizer becomes, of a kind. */
static int add_normal(struct reading *r, enum gpt_text_step_kind kind,
                      const char *field, struct gpt_text_step **step)
{
    struct gpt_hf_piece_steps *s = r->s;

    if (s->n_normal == GPT_TEXT_STEPS)
        return gpt_hf_refuse_more(&r->parts, field, "type", GPT_TEXT_STEPS,
                                  "steps");
    *step = &s->normal[s->n_normal++];
    **step = (struct gpt_text_step){.kind = kind};
    return GPT_OK;
}

static int read_strip(struct reading *r, const cJSON *part, const char *field)
{
    struct gpt_text_step *step = NULL;

    GPT_TRY(add_normal(r, GPT_STEP_STRIP, field, &step));
    step->left = gpt_hf_flag(part, "strip_left", false);
    step->right = gpt_hf_flag(part, "strip_right", false);
    return GPT_OK;
}

static int read_prepend(struct reading *r, const cJSON *part, const char *field)
{
    struct gpt_text_step *step = NULL;

    GPT_TRY(add_normal(r, GPT_STEP_PREPEND, field, &step));
    return read_text(r, &step->content, part, "prepend", field);
}

static int read_replace(struct reading *r, const cJSON *part, const char *field)
{
    struct gpt_text_step *step = NULL;

    GPT_TRY(add_normal(r, GPT_STEP_REPLACE, field, &step));
    GPT_TRY(read_pattern(r, &step->pattern, part, field));
    return read_text(r, &step->content, part, "content", field);
}

static int read_precompiled(struct reading *r, const cJSON *part,
                            const char *field)
{
    struct gpt_text_step *step = NULL;
    struct gpt_str text = {0};
    size_t n;

    GPT_TRY(add_normal(r, GPT_STEP_MAP, field, &step));
    GPT_TRY(read_text(r, &text, part, "precompiled_charsmap", field));
    char *blob = gpt_arena_alloc(r->arena, text.len + 1, 1);
    if (!blob)
        return gpt_no_memory(r->parts.err, "a tokenizer");
    if (!gpt_base64_decode(text.data, text.len, blob, &n))
        return gpt_fail(r->parts.err, GPT_EDATA, "%s: %s.precompiled_charsmap "
                        "is not base64", r->parts.what, field);
    return gpt_text_step_map(step, (struct gpt_str){blob, n}, r->parts.what,
                             r->parts.err);
}

/* Four steps, each of which may be left out; without a value accents are
 * stripped where letters become small ones. */
static int read_bert(struct reading *r, const cJSON *part, const char *field)
{
    const bool lower = gpt_hf_flag(part, "lowercase", true);
    const bool accents = gpt_hf_flag(part, "strip_accents", lower);
    const struct {
        bool wanted;
        enum gpt_text_step_kind kind;
    } steps[] = {
        {gpt_hf_flag(part, "clean_text", true), GPT_STEP_CLEAN},
        {gpt_hf_flag(part, "handle_chinese_chars", true), GPT_STEP_HAN},
        {accents, GPT_STEP_FORM},
        {accents, GPT_STEP_UNFLAT},
        {lower, GPT_STEP_LOWER},
    };
    struct gpt_text_step *step = NULL;

    for (size_t i = 0; i < GPT_COUNT(steps); i++) {
        if (!steps[i].wanted)
            continue;
        GPT_TRY(add_normal(r, steps[i].kind, field, &step));
        step->form = GPT_FORM_D;
    }
    return GPT_OK;
}

static int read_normalizer(void *data, const cJSON *part, const char *type,
                           const char *field)
{
    static const struct { /* those without members */
        const char *type;
        enum gpt_text_step_kind kind;
        enum gpt_form form;
    } plain[] = {
        {"NFC", GPT_STEP_FORM, GPT_FORM_C},
        {"NFD", GPT_STEP_FORM, GPT_FORM_D},
        {"NFKC", GPT_STEP_FORM, GPT_FORM_KC},
        {"NFKD", GPT_STEP_FORM, GPT_FORM_KD},
        {"Lowercase", GPT_STEP_LOWER, 0},
        {"StripAccents", GPT_STEP_UNMARK, 0},
        {"Nmt", GPT_STEP_NMT, 0},
    };
    static const struct row rows[] = {
        {"Strip", read_strip},
        {"Prepend", read_prepend},
        {"Replace", read_replace},
        {"Precompiled", read_precompiled},
        {"BertNormalizer", read_bert},
    };
    struct gpt_text_step *step = NULL;

    for (size_t i = 0; i < GPT_COUNT(plain); i++)
        if (strcmp(type, plain[i].type) == 0) {
            GPT_TRY(add_normal(data, plain[i].kind, field, &step));
            step->form = plain[i].form;
            return GPT_OK;
        }
    return read_by_type(data, rows, GPT_COUNT(rows), part, type, field);
}

/* ---- pre-tokenizer ---- */

static int add_piece_step(struct reading *r, const char *field,
                          struct gpt_piece_step **step)
{
    struct gpt_piece_steps *s = &r->s->pieces;

    if (s->n == GPT_PIECE_STEPS)
        return gpt_hf_refuse_more(&r->parts, field, "type", GPT_PIECE_STEPS,
                                  "steps");
    *step = &s->steps[s->n++];
    **step = (struct gpt_piece_step){.splits = true};
    return GPT_OK;
}

/* What Metaspace says, as a pre-tokenizer and as a decoder. Files of old
 * versions have add_prefix_space in place of a scheme; the library refuses it
 * where the two do not fit. */
static int read_spaces(const struct reading *r, const cJSON *part,
                       const char *field, struct gpt_str *space,
                       enum gpt_prepend *prepend)
{
    static const char *const schemes[] = {"never", "always", "first"};
    const char *scheme = gpt_hf_member(part, "prepend_scheme")
                             ? gpt_hf_string(part, "prepend_scheme")
                             : "always";
    const bool add = gpt_hf_flag(part, "add_prefix_space", true);
    uint32_t cp;
    size_t i = 0;

    if (!add && !gpt_hf_member(part, "prepend_scheme"))
        scheme = "never";
    while (i < GPT_COUNT(schemes) && strcmp(scheme, schemes[i]) != 0)
        i++;
    if (i == GPT_COUNT(schemes) || (!add && i != GPT_PREPEND_NEVER))
        return gpt_hf_refuse_part(&r->parts, field, "prepend_scheme", scheme);
    *prepend = (enum gpt_prepend)i;
    GPT_TRY(read_text(r, space, part, "replacement", field));
    return space->len > 0 && (size_t)gpt_utf8_decode(
                                 (const uint8_t *)space->data, space->len,
                                 &cp) == space->len
               ? GPT_OK
               : gpt_hf_refuse_part(&r->parts, field, "replacement",
                                    space->data);
}

static int read_metaspace(struct reading *r, const cJSON *part,
                          const char *field)
{
    struct gpt_piece_step *step = NULL;

    GPT_TRY(add_piece_step(r, field, &step));
    GPT_TRY(read_spaces(r, part, field, &step->space, &step->prepend));
    step->metaspace = true;
    step->splits = gpt_hf_flag(part, "split", true);
    step->split = GPT_SPLIT_NEXT;
    step->pattern = (struct gpt_needle){.text = step->space};
    return GPT_OK;
}

static int read_behavior(const struct reading *r, enum gpt_separated *split,
                         const cJSON *part, const char *field)
{
    static const char *const names[] = {
        [GPT_SPLIT_REMOVED] = "Removed",
        [GPT_SPLIT_ISOLATED] = "Isolated",
        [GPT_SPLIT_PREVIOUS] = "MergedWithPrevious",
        [GPT_SPLIT_NEXT] = "MergedWithNext",
        [GPT_SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const char *behavior = gpt_hf_string(part, "behavior");

    for (size_t i = 0; i < GPT_COUNT(names); i++)
        if (strcmp(behavior, names[i]) == 0) {
            *split = (enum gpt_separated)i;
            return GPT_OK;
        }
    return gpt_hf_refuse_part(&r->parts, field, "behavior", behavior);
}

static int read_split(struct reading *r, const cJSON *part, const char *field)
{
    struct gpt_piece_step *step = NULL;

    GPT_TRY(add_piece_step(r, field, &step));
    step->invert = gpt_hf_flag(part, "invert", false);
    GPT_TRY(read_pattern(r, &step->pattern, part, field));
    return read_behavior(r, &step->split, part, field);
}

/* Splits at each character of a kind. */
static int add_split_at(struct reading *r, enum gpt_needle_kind kind,
                        const char *field, struct gpt_piece_step **step)
{
    GPT_TRY(add_piece_step(r, field, step));
    (*step)->pattern = (struct gpt_needle){.kind = kind, .least = 1};
    return GPT_OK;
}

static int read_whitespace_split(struct reading *r, const cJSON *part,
                                 const char *field)
{
    struct gpt_piece_step *step = NULL;

    (void)part;
    GPT_TRY(add_split_at(r, GPT_NEEDLE_BLANK, field, &step));
    step->split = GPT_SPLIT_REMOVED;
    return GPT_OK;
}

static int read_digits(struct reading *r, const cJSON *part, const char *field)
{
    struct gpt_piece_step *step = NULL;

    GPT_TRY(add_split_at(r, GPT_NEEDLE_DIGIT, field, &step));
    step->split = gpt_hf_flag(part, "individual_digits", false)
                      ? GPT_SPLIT_ISOLATED
                      : GPT_SPLIT_CONTIGUOUS;
    return GPT_OK;
}

static int read_punctuation(struct reading *r, const cJSON *part,
                            const char *field)
{
    struct gpt_piece_step *step = NULL;

    GPT_TRY(add_split_at(r, GPT_NEEDLE_SIGN, field, &step));
    step->split = GPT_SPLIT_ISOLATED;
    return gpt_hf_member(part, "behavior")
               ? read_behavior(r, &step->split, part, field)
               : GPT_OK;
}

/* At white space, and around each sign of punctuation. */
static int read_bert_words(struct reading *r, const cJSON *part,
                           const char *field)
{
    struct gpt_piece_step *step = NULL;

    GPT_TRY(read_whitespace_split(r, part, field));
    GPT_TRY(add_split_at(r, GPT_NEEDLE_SIGN, field, &step));
    step->split = GPT_SPLIT_ISOLATED;
    return GPT_OK;
}

/* What '\w+|[^\w\s]+' matches: words, and all else between white space. */
static int read_whitespace(struct reading *r, const cJSON *part,
                           const char *field)
{
    struct gpt_piece_step *step = NULL;

    GPT_TRY(read_whitespace_split(r, part, field));
    GPT_TRY(add_split_at(r, GPT_NEEDLE_WORD, field, &step));
    step->pattern.all = true;
    step->split = GPT_SPLIT_ISOLATED;
    return GPT_OK;
}

static int read_pre_tokenizer(void *data, const cJSON *part, const char *type,
                              const char *field)
{
    static const struct row rows[] = {
        {"Metaspace", read_metaspace},
        {"WhitespaceSplit", read_whitespace_split},
        {"Split", read_split},
        {"Digits", read_digits},
        {"Punctuation", read_punctuation},
        {"BertPreTokenizer", read_bert_words},
        {"Whitespace", read_whitespace},
    };

    return read_by_type(data, rows, GPT_COUNT(rows), part, type, field);
}

/* ---- decoder ----
 *
 * Tokens are printed one by one, so that a step is done here if it does the
 * same to each token wherever that is. */

static int print_replace(struct reading *r, const cJSON *part,
                         const char *field)
{
    struct gpt_hf_printing *p = &r->s->printing;
    const size_t i = p->n_replace;

    if (i == GPT_COUNT(p->replace))
        return gpt_hf_refuse_more(&r->parts, field, "type",
                                  GPT_COUNT(p->replace), "of Replace");
    if (p->space.data || p->bytes || r->fused)
        return gpt_hf_refuse_part(&r->parts, field, "type after another",
                                  "Replace");
    p->n_replace++;
    GPT_TRY(read_pattern(r, &p->replace[i].pattern, part, field));
    return read_text(r, &p->replace[i].content, part, "content", field);
}

static int print_bytes(struct reading *r, const cJSON *part, const char *field)
{
    (void)part;
    if (r->s->printing.bytes || r->fused)
        return gpt_hf_refuse_part(&r->parts, field, "type after another",
                                  "ByteFallback");
    r->s->printing.bytes = true;
    return GPT_OK;
}

static int print_fused(struct reading *r, const cJSON *part, const char *field)
{
    (void)part;
    (void)field;
    r->fused = true;
    return GPT_OK;
}

static int print_spaces(struct reading *r, const cJSON *part, const char *field)
{
    struct gpt_hf_printing *p = &r->s->printing;
    enum gpt_prepend prepend;

    if (p->space.data || r->fused)
        return gpt_hf_refuse_part(&r->parts, field, "type after another",
                                  "Metaspace");
    GPT_TRY(read_spaces(r, part, field, &p->space, &prepend));
    p->strip = prepend != GPT_PREPEND_NEVER;
    return GPT_OK;
}

static int print_strip(struct reading *r, const cJSON *part, const char *field)
{
    struct gpt_hf_printing *p = &r->s->printing;

    if (!r->fused || p->strip)
        return gpt_hf_refuse_part(&r->parts, field, "type",
                                  r->fused ? "a second Strip"
                                           : "Strip without Fuse before it");
    GPT_TRY(gpt_hf_check_strip(&r->parts, part, field));
    p->strip = true;
    return GPT_OK;
}

static int print_joined(struct reading *r, const cJSON *part,
                        const char *field)
{
    struct gpt_hf_printing *p = &r->s->printing;

    p->joined = true;
    p->cleanup = gpt_hf_flag(part, "cleanup", true);
    return read_text(r, &p->inside, part, "prefix", field);
}

static int read_decoder(void *data, const cJSON *part, const char *type,
                        const char *field)
{
    static const struct row rows[] = {
        {"Replace", print_replace},  {"ByteFallback", print_bytes},
        {"Fuse", print_fused},       {"Metaspace", print_spaces},
        {"Strip", print_strip},      {"WordPiece", print_joined},
    };
    struct reading *r = data;

    /* WordPiece makes of a token what depends on its place */
    if (r->printed && (r->s->printing.joined || strcmp(type, "WordPiece") == 0))
        return gpt_hf_refuse_part(&r->parts, field, "type after another", type);
    r->printed = true;
    return read_by_type(r, rows, GPT_COUNT(rows), part, type, field);
}

/* ---- all of it ---- */

int gpt_hf_piece_steps_read(struct gpt_hf_piece_steps *s, const cJSON *root,
                            bool joined, struct gpt_arena *arena,
                            const char *what, struct gpt_err *err)
{
    struct reading r = {.parts = {.what = what, .err = err}, .s = s,
                        .arena = arena};

    r.parts.data = &r;
    *s = (struct gpt_hf_piece_steps){0};
    GPT_TRY(gpt_hf_each_part(&r.parts, gpt_hf_member(root, "normalizer"),
                             "normalizer", "normalizers", read_normalizer));
    GPT_TRY(gpt_hf_each_part(&r.parts, gpt_hf_member(root, "pre_tokenizer"),
                             "pre_tokenizer", "pretokenizers",
                             read_pre_tokenizer));
    GPT_TRY(gpt_hf_each_part(&r.parts, gpt_hf_member(root, "decoder"),
                             "decoder", "decoders", read_decoder));
    if (!r.printed && joined) {
        s->printing.joined = true;
    } else if (!r.printed) { /* the library would join tokens of Unigram, too */
        s->printing.space = (struct gpt_str){GPT_SP_SPACE, 3};
        s->printing.strip = true;
    }
    return GPT_OK;
}
