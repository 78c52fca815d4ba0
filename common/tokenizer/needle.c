/* See needle.h. Start at gpt_needle_find(). */
#include "tokenizer/needle.h"

#include "base/utf8.h"
#include "text/unicode.h"
#include "text/unicode_forms.h"

#include <string.h>

/* Characters that stand for themselves only behind a backslash. */
#define SYNTAX ".^$*+?()[]{}|\\"

/* ---- reading ---- */

/* The row of a character or of a class that an expression begins with; how many
 * bytes it took, 0 for what is not known. */
static size_t read_atom(struct gpt_needle *p, const char *regex)
{
    static const struct {
        const char *name, *text;
        enum gpt_needle_kind kind;
    } classes[] = {
        {"\\s", "", GPT_NEEDLE_BLANK},   {"\\n", "\n", GPT_NEEDLE_CHAR},
        {"\\r", "\r", GPT_NEEDLE_CHAR},  {"\\t", "\t", GPT_NEEDLE_CHAR},
        {"\\p{N}", "", GPT_NEEDLE_DIGIT},
    };
    uint32_t cp;

    for (size_t i = 0; i < GPT_COUNT(classes); i++)
        if (strncmp(regex, classes[i].name, strlen(classes[i].name)) == 0) {
            p->kind = classes[i].kind;
            p->text = (struct gpt_str){classes[i].text,
                                       strlen(classes[i].text)};
            return strlen(classes[i].name);
        }
    const int n =
        gpt_utf8_decode((const uint8_t *)regex, strlen(regex) + 1, &cp);
    if (!regex[0] || n == 0 || (cp < 0x80 && strchr(SYNTAX, regex[0])))
        return 0;
    p->kind = GPT_NEEDLE_CHAR;
    p->text = (struct gpt_str){regex, (size_t)n};
    return (size_t)n;
}

/* How often the atom may be there: once, "+" or "{2,}"; how many bytes that
 * took. */
static size_t read_count(struct gpt_needle *p, const char *rest)
{
    p->least = 1;
    p->all = true;
    if (rest[0] == '+')
        return 1;
    if (rest[0] == '{' && rest[1] >= '1' && rest[1] <= '9' &&
        rest[2] == ',' && rest[3] == '}') {
        p->least = (size_t)(rest[1] - '0');
        return 4;
    }
    p->all = false;
    return 0;
}

/* One alternative: an atom and its count, perhaps behind \A or before \z.
 * Returns its length, 0 for what is not known. */
static size_t read_run(struct gpt_needle *p, const char *regex)
{
    const char *rest = regex;

    *p = (struct gpt_needle){0};
    p->at_begin = strncmp(rest, "\\A", 2) == 0;
    rest += p->at_begin ? 2 : 0;
    const size_t n = read_atom(p, rest);
    if (n == 0)
        return 0;
    rest += n;
    rest += read_count(p, rest);
    p->at_end = strncmp(rest, "\\z", 2) == 0;
    rest += p->at_end ? 2 : 0;
    return p->at_begin && p->at_end ? 0 : (size_t)(rest - regex);
}

/* Two alternatives may be the same run at either end of the text; plain texts
 * may be any number. */
static bool read_regex(struct gpt_needle *p, const char *regex,
                       struct gpt_arena *arena)
{
    struct gpt_needle other;
    const size_t n = read_run(p, regex);

    if (n && regex[n] == '\0')
        return true;
    if (n && regex[n] == '|' && p->at_begin) {
        const size_t rest = read_run(&other, regex + n + 1);

        p->at_end = true;
        return rest && regex[n + 1 + rest] == '\0' && other.at_end &&
               other.kind == p->kind && other.least == p->least &&
               other.all == p->all &&
               gpt_str_equal(other.text, p->text.data, p->text.len);
    }
    *p = (struct gpt_needle){0};
    if (!gpt_needle_list_read(&p->list, &p->text, regex, arena))
        return false;
    p->kind = p->list ? GPT_NEEDLE_LIST : GPT_NEEDLE_TEXT;
    return true;
}

bool gpt_needle_read(struct gpt_needle *p, const cJSON *item,
                     struct gpt_arena *arena, const char **shown)
{
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(item, "String");
    const cJSON *regex = cJSON_GetObjectItemCaseSensitive(item, "Regex");
    const cJSON *given = text ? text : regex;

    *p = (struct gpt_needle){0};
    *shown = cJSON_IsString(given) ? given->valuestring : "no text";
    if (!cJSON_IsString(given) || (text && regex))
        return false;
    const char *copy = gpt_arena_strdup(arena, given->valuestring);
    if (!copy)
        return false;
    if (regex)
        return read_regex(p, copy, arena);
    p->text = (struct gpt_str){copy, strlen(copy)};
    return p->text.len > 0;
}

/* ---- searching ---- */

/* True when the character at text is one of the pattern's; *n is its length in
 * any case. */
static bool is_of(const struct gpt_needle *p, const char *text, size_t len,
                  size_t *n)
{
    uint32_t cp;
    const int bytes = gpt_utf8_decode((const uint8_t *)text, len, &cp);

    *n = bytes ? (size_t)bytes : 1;
    if (p->kind == GPT_NEEDLE_CHAR)
        return *n == p->text.len && memcmp(text, p->text.data, *n) == 0;
    if (!bytes)
        return false;
    switch (p->kind) {
    case GPT_NEEDLE_BLANK:
        return gpt_unicode_class(cp) == GPT_UC_SPACE;
    case GPT_NEEDLE_DIGIT:
        return gpt_unicode_class(cp) == GPT_UC_N;
    case GPT_NEEDLE_WORD:
        return gpt_unicode_is_word(cp);
    default:
        return gpt_unicode_is_sign(cp);
    }
}

/* Bytes of the run of the pattern's characters at text; *count is their number,
 * at most 1 where each is a match. */
static size_t run_at(const struct gpt_needle *p, const char *text, size_t len,
                     size_t *count)
{
    size_t at = 0, n;

    for (*count = 0; at < len && (p->all || *count == 0); ++*count, at += n)
        if (!is_of(p, text + at, len - at, &n))
            break;
    return at;
}

static bool is_placed(const struct gpt_needle *p, size_t begin, size_t end,
                      size_t len)
{
    return (!p->at_begin && !p->at_end) || (p->at_begin && begin == 0) ||
           (p->at_end && end == len);
}

/* The next run that is long enough and where it should be. */
static bool find_run(const struct gpt_needle *p, const char *text, size_t len,
                     size_t at, size_t *begin, size_t *end)
{
    size_t count, n;

    for (; at < len; at += n) {
        if (p->kind == GPT_NEEDLE_CHAR) { /* only for speed */
            const char *next = memchr(text + at, p->text.data[0], len - at);

            if (!next)
                return false;
            at = (size_t)(next - text);
        }
        n = run_at(p, text + at, len - at, &count);
        *begin = at;
        *end = at + n;
        if (n && count >= p->least && is_placed(p, *begin, *end, len))
            return true;
        if (p->at_begin && !p->at_end)
            return false;
        if (n == 0)
            is_of(p, text + at, len - at, &n);
    }
    return false;
}

bool gpt_needle_find(const struct gpt_needle *p, const char *text, size_t len,
                     size_t at, size_t *begin, size_t *end)
{
    if (p->kind == GPT_NEEDLE_LIST)
        return gpt_needle_list_find(p->list, text, len, at, begin, end);
    if (p->kind != GPT_NEEDLE_TEXT)
        return find_run(p, text, len, at, begin, end);
    const char *found = at < len
                            ? memmem(text + at, len - at, p->text.data,
                                     p->text.len)
                            : NULL;
    if (!found)
        return false;
    *begin = (size_t)(found - text);
    *end = *begin + p->text.len;
    return true;
}
