/* See text_steps.h. Start at gpt_text_steps_run(). Each step is a function that
 * appends to a buffer; it fails when memory is out, or with GPT_EDATA when the
 * text becomes too long. */
#include "tokenizer/text_steps.h"

#include "base/utf8.h"
#include "text/unicode.h"

#include <assert.h>

typedef int step_fn(const struct gpt_text_step *step, struct gpt_buf *out,
                    struct gpt_step_text *text);

enum { MOST_GROWTH = 256, MOST_ADDED = 1 << 20 };

/* Appends what a rule of the file writes in place of something. */
static int add_written(struct gpt_buf *out, const struct gpt_step_text *text,
                       struct gpt_str written)
{
    return out->len > text->most || written.len > text->most - out->len
               ? GPT_EDATA
               : gpt_buf_add(out, written.data, written.len);
}

/* ---- characters ---- */

/* Decodes a character; texts are UTF-8, so that there is one. */
static size_t char_at(const char *p, size_t len, uint32_t *cp)
{
    const int n = gpt_utf8_decode((const uint8_t *)p, len, cp);

    assert(n > 0);
    return n > 0 ? (size_t)n : 1;
}

static int drop_chars(bool (*is_one)(uint32_t cp), struct gpt_buf *out,
                      struct gpt_step_text *text)
{
    const struct gpt_str s = text->s;
    const size_t first = text->first;
    size_t done = 0, n;
    uint32_t cp;

    for (size_t i = 0; i < s.len; i += n) {
        n = char_at(s.data + i, s.len - i, &cp);
        if (cp < 0x300 || !is_one(cp)) /* no mark is below that */
            continue;
        text->first -= i < first ? n : 0;
        GPT_TRY(gpt_buf_add(out, s.data + done, i - done));
        done = i + n;
    }
    return gpt_buf_add(out, s.data + done, s.len - done);
}

static int step_unmark(const struct gpt_text_step *step, struct gpt_buf *out,
                       struct gpt_step_text *text)
{
    (void)step;
    return drop_chars(gpt_unicode_is_mark, out, text);
}

static int step_unflat(const struct gpt_text_step *step, struct gpt_buf *out,
                       struct gpt_step_text *text)
{
    (void)step;
    return drop_chars(gpt_unicode_is_flat, out, text);
}

/* What becomes of a character: at most three, of which it returns the number.
 */
typedef size_t become_fn(uint32_t cp, uint32_t to[3]);

static int change_chars(become_fn *become, struct gpt_buf *out,
                        struct gpt_step_text *text)
{
    const struct gpt_str s = text->s;
    const size_t first = text->first;
    uint32_t cp, to[3] = {0};
    char utf8[4];
    size_t n;

    text->first = 0;
    for (size_t i = 0; i < s.len; i += n) {
        n = char_at(s.data + i, s.len - i, &cp);
        const size_t n_to = become(cp, to);
        for (size_t k = 0; k < n_to; k++) {
            const size_t bytes = (size_t)gpt_utf8_encode(to[k], utf8);

            text->first += i < first ? bytes : 0;
            GPT_TRY(gpt_buf_add(out, utf8, bytes));
        }
    }
    return GPT_OK;
}

static size_t lower_of(uint32_t cp, uint32_t to[3])
{
    to[0] = gpt_unicode_to_lower(cp);
    to[1] = 0x307;
    return cp == 0x130 ? 2 : 1;
}

static int step_lower(const struct gpt_text_step *step, struct gpt_buf *out,
                      struct gpt_step_text *text)
{
    (void)step;
    return change_chars(lower_of, out, text);
}

/* Itself, a space, or nothing. The list is that of SentencePiece's rules "nmt",
 * as the library has it. */
static size_t nmt_of(uint32_t cp, uint32_t to[3])
{
    const bool is_space =
        cp == '\t' || cp == '\n' || cp == '\f' || cp == '\r' ||
        cp == 0x1680 || (cp >= 0x200B && cp <= 0x200F) || cp == 0x2028 ||
        cp == 0x2029 || cp == 0x2581 || cp == 0xFEFF || cp == 0xFFFD;

    to[0] = is_space ? ' ' : cp;
    return (cp >= 1 && cp <= 8) || cp == 0xB || (cp >= 0xE && cp <= 0x1F) ||
                   cp == 0x7F || cp == 0x8F || cp == 0x9F
               ? 0
               : 1;
}

static int step_nmt(const struct gpt_text_step *step, struct gpt_buf *out,
                    struct gpt_step_text *text)
{
    (void)step;
    return change_chars(nmt_of, out, text);
}

/* A space for white space, and nothing for what cannot be seen. */
static size_t clean_of(uint32_t cp, uint32_t to[3])
{
    const bool is_line = cp == '\t' || cp == '\n' || cp == '\r';

    to[0] = gpt_unicode_class(cp) == GPT_UC_SPACE ? ' ' : cp;
    return cp != 0xFFFD && (is_line || !gpt_unicode_is_control(cp));
}

static int step_clean(const struct gpt_text_step *step, struct gpt_buf *out,
                      struct gpt_step_text *text)
{
    (void)step;
    return change_chars(clean_of, out, text);
}

/* The library's list, of which one row begins at 2B920 where Unicode's block
 * begins at 2B820. */
static size_t spaced_han_of(uint32_t cp, uint32_t to[3])
{
    static const uint32_t han[][2] = {
        {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
        {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
        {0x2F800, 0x2FA1F},
    };
    const bool is_han = cp >= han[0][0] &&
                        gpt_unicode_in(han, GPT_COUNT(han), cp);

    to[0] = to[2] = ' ';
    to[is_han] = cp;
    return is_han ? 3 : 1;
}

static int step_han(const struct gpt_text_step *step, struct gpt_buf *out,
                    struct gpt_step_text *text)
{
    (void)step;
    return change_chars(spaced_han_of, out, text);
}

/* ---- parts of the text ---- */

static int step_strip(const struct gpt_text_step *step, struct gpt_buf *out,
                      struct gpt_step_text *text)
{
    const struct gpt_str s = text->s;
    size_t begin = 0, end = 0, n;
    uint32_t cp;

    for (size_t i = 0; i < s.len; i += n) {
        n = char_at(s.data + i, s.len - i, &cp);
        if (gpt_unicode_class(cp) != GPT_UC_SPACE)
            end = i + n;
        else if (begin == i)
            begin = i + n;
    }
    begin = step->left ? begin : 0;
    end = step->right ? end : s.len;
    text->first -= begin < text->first ? begin : text->first;
    return begin < end ? gpt_buf_add(out, s.data + begin, end - begin) : GPT_OK;
}

static int step_prepend(const struct gpt_text_step *step, struct gpt_buf *out,
                        struct gpt_step_text *text)
{
    if (text->s.len == 0)
        return GPT_OK;
    text->first += text->first ? step->content.len : 0;
    GPT_TRY(add_written(out, text, step->content));
    return gpt_buf_add(out, text->s.data, text->s.len);
}

/* Appends the part of the old text between two places. */
static int add_between(struct gpt_buf *out, struct gpt_step_text *text,
                       size_t old_first, size_t begin, size_t end)
{
    const size_t last = end < old_first ? end : old_first;

    text->first += last > begin ? last - begin : 0;
    return gpt_buf_add(out, text->s.data + begin, end - begin);
}

/* The library takes what replaces a match for a part of the match's last
 * character. */
static int step_replace(const struct gpt_text_step *step, struct gpt_buf *out,
                        struct gpt_step_text *text)
{
    const struct gpt_str s = text->s;
    const size_t first = text->first;
    size_t done = 0, begin, end;

    text->first = 0;
    while (gpt_needle_find(&step->pattern, s.data, s.len, done, &begin,
                           &end)) {
        GPT_TRY(add_between(out, text, first, done, begin));
        text->first += end <= first ? step->content.len : 0;
        GPT_TRY(add_written(out, text, step->content));
        done = end;
    }
    return add_between(out, text, first, done, s.len);
}

/* ---- the map of SentencePiece ----
 *
 * SentencePiece takes the longest rule at each place. The library cuts a text
 * into graphemes; one of at most 5 bytes becomes what the shortest rule says
 * that it begins with, as a whole, and of others each character by itself. */

enum { SHORT_GRAPHEME = 5 };

int gpt_text_step_map(struct gpt_text_step *step, struct gpt_str blob,
                      const char *what, struct gpt_err *err)
{
    struct gpt_str result;

    step->kind = GPT_STEP_MAP;
    GPT_TRY(gpt_sp_map_open(&step->map, blob, what, err));
    if (!step->map.units || (step->map.texts - blob.data) % 4 != 0 ||
        gpt_utf8_valid(step->map.texts, step->map.n_text) != step->map.n_text)
        return gpt_fail(err, GPT_EDATA, "%s: precompiled_charsmap is malformed",
                        what);
    for (int c = 0; c < 128; c++) {
        const char byte = (char)c;

        step->plain[c] = !gpt_sp_map_shortest(&step->map, &byte, 1, &result);
    }
    step->plain['\r'] = false; /* it may begin a grapheme of two */
    return GPT_OK;
}

/* Bytes of ASCII from text on that stay as they are: each is a grapheme, which
 * is not sure of the last one before other characters. */
static size_t plain_ascii(const struct gpt_text_step *step, const char *text,
                          size_t len)
{
    size_t n = 0;

    while (n < len && !((uint8_t)text[n] & 0x80) &&
           step->plain[(uint8_t)text[n]])
        n++;
    return n > 0 && n < len && ((uint8_t)text[n] & 0x80) ? n - 1 : n;
}

/* A text on its way through the rules. */
struct mapping {
    const struct gpt_text_step *step;
    struct gpt_str rest;
    size_t apart; /* bytes of a grapheme that is taken character by character */
};

static void pass_bytes(struct mapping *m, size_t n)
{
    m->rest.data += n;
    m->rest.len -= n;
}

/* Passes over what is next, and gives what it becomes: a grapheme, or a
 * character of one of which no rule takes the whole. There must be a rest. */
static void map_next(struct mapping *m, struct gpt_str *from,
                     struct gpt_str *result)
{
    const struct gpt_sp_map *map = &m->step->map;
    uint32_t cp;
    bool found = false;

    *from = m->rest;
    if (m->apart == 0) {
        from->len = gpt_grapheme_len(m->rest.data, m->rest.len);
        found = from->len <= SHORT_GRAPHEME &&
                gpt_sp_map_shortest(map, from->data, from->len, result);
        m->apart = found ? 0 : from->len;
    }
    if (m->apart) {
        from->len = char_at(from->data, m->apart, &cp);
        found = gpt_sp_map_shortest(map, from->data, from->len, result);
        m->apart -= from->len;
    }
    if (!found)
        *result = *from;
    pass_bytes(m, from->len);
}

/* Where the first characters of the text come from, as the library counts it:
 * each character of a rule's result is that of one character of the rule's text
 * in turn, and those too many are the last one's. What becomes nothing at the
 * beginning is forgotten, so that what follows takes its place. */
struct origin {
    size_t n_first; /* characters of the old text that count as the first */
    size_t at;      /* characters of it that were passed */
    size_t bytes;   /* of the new text, that come from the first */
};

/* Passes over characters that become `result`. */
static void pass_origin(struct origin *o, struct gpt_str from,
                        struct gpt_str result)
{
    const size_t n = gpt_utf8_count(from.data, from.len);
    size_t k = 0, bytes;
    uint32_t cp;

    for (size_t i = 0; i < result.len; i += bytes, k++) {
        bytes = char_at(result.data + i, result.len - i, &cp);
        o->bytes += o->at + (k < n ? k : n - 1) < o->n_first ? bytes : 0;
    }
    o->at += result.len || o->bytes ? n : 0;
}

static size_t map_origin(const struct gpt_text_step *step, struct gpt_str s,
                         size_t first)
{
    struct origin o = {.n_first = gpt_utf8_count(s.data, first)};
    struct mapping m = {.step = step, .rest = s};
    struct gpt_str from, result;

    while (m.rest.len && o.at < o.n_first) {
        map_next(&m, &from, &result);
        pass_origin(&o, from, result);
    }
    return o.bytes;
}

static int step_map(const struct gpt_text_step *step, struct gpt_buf *out,
                    struct gpt_step_text *text)
{
    struct mapping m = {.step = step, .rest = text->s};
    struct gpt_str from, result;

    text->first = map_origin(step, text->s, text->first);
    while (m.rest.len) {
        const size_t n =
            m.apart ? 0 : plain_ascii(step, m.rest.data, m.rest.len);

        if (n > 0) {
            GPT_TRY(gpt_buf_add(out, m.rest.data, n));
            pass_bytes(&m, n);
            continue;
        }
        map_next(&m, &from, &result);
        GPT_TRY(add_written(out, text, result));
    }
    return GPT_OK;
}

/* ---- all of them ---- */

/* Bytes of the first n characters, or of all. */
static size_t bytes_of(struct gpt_str s, size_t n)
{
    size_t i = 0;

    for (; i < s.len; i++) {
        const bool begins = ((uint8_t)s.data[i] & 0xC0) != 0x80;

        if (begins && n == 0)
            break;
        n -= begins;
    }
    return i;
}

/* The first characters become as many as they do by themselves, though the last
 * of these may have been joined with what follows. */
static int step_form(const struct gpt_text_step *step, struct gpt_buf *out,
                     struct gpt_step_text *text, struct gpt_err *err)
{
    size_t n = 0;

    if (text->first) {
        GPT_TRY(gpt_to_form(out, step->form, text->s.data, text->first, err));
        n = gpt_utf8_count(out->data, out->len);
        out->len = 0;
    }
    GPT_TRY(gpt_to_form(out, step->form, text->s.data, text->s.len, err));
    text->first = bytes_of((struct gpt_str){out->data, out->len}, n);
    return GPT_OK;
}

static int too_long(const struct gpt_step_text *text, struct gpt_err *err)
{
    return gpt_fail(err, GPT_EDATA, "the normalizer makes more than %zu bytes "
                    "of a text, which is %d for each of its bytes and %d more",
                    text->most, MOST_GROWTH, MOST_ADDED);
}

static int run_step(const struct gpt_text_step *step, struct gpt_buf *out,
                    struct gpt_step_text *text, struct gpt_err *err)
{
    static step_fn *const fns[] = {
        [GPT_STEP_MAP] = step_map,         [GPT_STEP_REPLACE] = step_replace,
        [GPT_STEP_STRIP] = step_strip,     [GPT_STEP_UNMARK] = step_unmark,
        [GPT_STEP_LOWER] = step_lower,     [GPT_STEP_PREPEND] = step_prepend,
        [GPT_STEP_NMT] = step_nmt,         [GPT_STEP_CLEAN] = step_clean,
        [GPT_STEP_HAN] = step_han,         [GPT_STEP_UNFLAT] = step_unflat,
    };

    out->len = 0;
    if (step->kind == GPT_STEP_FORM)
        return step_form(step, out, text, err);
    const int status = fns[step->kind](step, out, text);
    if (status == GPT_EDATA)
        return too_long(text, err);
    return status == GPT_OK ? GPT_OK : gpt_no_memory(err, "a text");
}

int gpt_text_steps_run(const struct gpt_text_step *steps, size_t n,
                       struct gpt_buf buffers[2], struct gpt_step_text *text,
                       struct gpt_err *err)
{
    text->most = text->s.len * MOST_GROWTH + MOST_ADDED;
    for (size_t i = 0; i < n; i++) {
        struct gpt_buf *out = &buffers[i % 2];

        GPT_TRY(run_step(&steps[i], out, text, err));
        if (out->len > text->most)
            return too_long(text, err);
        text->s = (struct gpt_str){out->data ? out->data : "", out->len};
        text->first = text->first < out->len ? text->first : out->len;
    }
    return GPT_OK;
}
