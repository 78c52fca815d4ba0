/* Text to text, for filters and methods alike; see jinja_internal.h. Texts are
 * bytes of UTF-8 here, which may be wrong: messages come from anywhere. A byte
 * that is none counts as a character of its own. */
#include "text/jinja_internal.h"

#include "base/num.h"
#include "base/utf8.h"
#include "text/unicode.h"

#include <string.h>

/* True when p..p+n is one of the characters, or a blank where none are given.
 * Characters are compared whole, so that a byte of one is not taken for
 * another. */
static bool is_one_of(struct jinja_value chars, const char *p, size_t n)
{
    if (chars.kind != JINJA_STRING)
        return jinja_is_space(p, n);
    for (const char *c = chars.s.data, *end = c + chars.s.len; c < end;
         c += jinja_char(c, end))
        if (jinja_char(c, end) == n && memcmp(c, p, n) == 0)
            return true;
    return false;
}

/* Each character of a text is looked for among those that are given, and both
 * may be long. */
static int spend_characters(struct jinja_run *r, struct jinja_value chars)
{
    return jinja_spend(r, chars.kind == JINJA_STRING ? chars.s.len / 64 : 0);
}

/* The result is a part of the text, which is borrowed: nothing is copied,
 * however long the message. */
int jinja_strip(struct jinja_run *r, struct jinja_value text,
                struct jinja_value chars, bool left, bool right,
                struct jinja_value *v)
{
    const char *from = text.s.data, *end = from + text.s.len, *p;

    GPT_TRY(jinja_spend(r, text.s.len / 64));
    while (left && from < end &&
           is_one_of(chars, from, jinja_char(from, end))) {
        GPT_TRY(spend_characters(r, chars));
        from += jinja_char(from, end);
    }
    while (right && end > from) {
        /* Back over the bytes that continue a character. */
        for (p = end - 1; p > from && ((unsigned char)*p & 0xC0) == 0x80;)
            p--;
        if (!is_one_of(chars, p, (size_t)(end - p)))
            break;
        GPT_TRY(spend_characters(r, chars));
        end = p;
    }
    *v = (struct jinja_value){.kind = JINJA_STRING,
                              .safe = text.safe,
                              .s = {from, (size_t)(end - from)}};
    return GPT_OK;
}

/* Where `part` is in s from byte `at` on, or SIZE_MAX. */
size_t jinja_find_part(struct gpt_str s, size_t at, struct gpt_str part)
{
    const char *p = at <= s.len ? memmem(s.data + at, s.len - at, part.data,
                                         part.len) : NULL;

    return p ? (size_t)(p - s.data) : SIZE_MAX;
}

/* From the left, without overlap. An empty string would be found between all
 * characters, which no template means. */
int jinja_replace(struct jinja_run *r, struct gpt_str s,
                  const struct jinja_value *args, struct jinja_value *v)
{
    int64_t left = args[2].kind == JINJA_INT && args[2].i >= 0 ? args[2].i
                                                                : INT64_MAX;
    struct gpt_buf b = {0};
    size_t at = 0, next;
    int status = GPT_OK;

    if (args[0].kind != JINJA_STRING || args[1].kind != JINJA_STRING)
        return jinja_fail(r, "'replace' wants two strings");
    if (args[0].s.len == 0)
        return jinja_fail(r, "'replace' of an empty string is not supported");
    GPT_TRY(jinja_spend(r, s.len / 64));
    for (; left > 0; left--) {
        next = jinja_find_part(s, at, args[0].s);
        if (next == SIZE_MAX)
            break;
        GPT_TRY_GOTO(status, jinja_write(r, &b, s.data + at, next - at), out);
        GPT_TRY_GOTO(status, jinja_write(r, &b, args[1].s.data, args[1].s.len),
                     out);
        GPT_TRY_GOTO(status, jinja_spend(r, 1), out);
        at = next + args[0].s.len;
    }
    status = jinja_write(r, &b, s.data + at, s.len - at);
out:
    return jinja_take_buffer(r, &b, status, v);
}

/* The argument that a field of a format names: the next one, one by number, or
 * one by name. *next counts those without a name; -1: there were numbers, which
 * Python does not take beside these. */
static int find_argument(struct jinja_run *r, struct gpt_str field,
                         const struct jinja_list *args,
                         const struct jinja_dict *named, int64_t *next,
                         struct jinja_value *v)
{
    const bool numbered = field.len > 0 &&
                          strspn(field.data, "0123456789") >= field.len;
    struct jinja_value *found = NULL;
    size_t i = 0;

    if (field.len > 0 && !numbered) {
        const struct jinja_value key = {.kind = JINJA_STRING, .s = field};

        GPT_TRY(jinja_dict_find(r, named, key, &found));
    } else {
        if (numbered ? *next > 0 : *next < 0)
            return jinja_fail(r, "'format' has fields with numbers beside "
                                 "some without");
        i = numbered ? 0 : (size_t)(*next)++;
        if (numbered)
            *next = -1;
        /* past the arguments it is of no matter how far */
        for (size_t k = 0; numbered && k < field.len && i < args->n; k++)
            i = 10 * i + (size_t)(field.data[k] - '0');
        found = i < args->n ? &args->items[i] : NULL;
    }
    if (!found)
        return jinja_fail(r, "'format' has no argument for '{%.*s}'",
                          (int)gpt_min_i64((int64_t)field.len, 32), field.data);
    *v = *found;
    return GPT_OK;
}

/* Writes the field that begins at s.data[at], behind the brace; *at becomes the
 * place behind its end. */
static int format_field(struct jinja_run *r, struct gpt_buf *b,
                        struct gpt_str s, size_t *at,
                        const struct jinja_list *args,
                        const struct jinja_dict *named, int64_t *next)
{
    const char *const from = s.data + *at;
    const char *const end = memchr(from, '}', s.len - *at);
    struct jinja_value v;

    if (!end)
        return jinja_fail(r, "'format' of a '{' without its '}'");
    const struct gpt_str field = {from, (size_t)(end - from)};
    for (size_t i = 0; i < field.len; i++)
        if (memchr("!:.[{", from[i], 5))
            return jinja_fail(r, "'format' with '%c' in a field is not "
                              "supported", from[i]);
    GPT_TRY(find_argument(r, field, args, named, next, &v));
    *at += field.len + 1;
    return jinja_add_text(r, b, v);
}

/* Python's str.format() of fields that only name an argument. */
int jinja_format(struct jinja_run *r, struct jinja_value self,
                 const struct jinja_list *args, const struct jinja_dict *named,
                 struct jinja_value *v)
{
    const struct gpt_str s = self.s;
    struct gpt_buf b = {0};
    int64_t next = 0;
    int status = self.safe ? jinja_fail(r, "'format' of a safe text is not "
                                        "supported")
                           : jinja_spend(r, s.len / 64);

    for (size_t at = 0; status == GPT_OK && at < s.len;) {
        const char c = s.data[at++];
        const bool brace = c == '{' || c == '}';
        const bool twice = brace && at < s.len && s.data[at] == c;

        if (!brace || twice)
            status = jinja_write(r, &b, &c, 1);
        else if (c == '{')
            status = format_field(r, &b, s, &at, args, named, &next);
        else
            status = jinja_fail(r, "'format' of a '}' without its '{'");
        at += twice;
    }
    return jinja_take_buffer(r, &b, status, v);
}

/* ASCII: other letters with a case were refused before. */
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* True when the character begins a word: for the method after what is no
 * letter, for the filter after blanks, hyphens and brackets that open. */
static bool begins_word(enum jinja_case how, const char *s, size_t at)
{
    if (at == 0 || how == JINJA_CAPITALIZE)
        return at == 0;
    return how == JINJA_TITLE ? !is_letter(s[at - 1])
                              : strchr(" \t\n\r\f\v-({[<", s[at - 1]) != NULL;
}

/* Letters with a case outside of ASCII are refused: their rules are tables
 * of Unicode that depend on its version, and a text that differs from
 * transformers' in one letter would do so in silence. Letters without case
 * pass. */
int jinja_change_case(struct jinja_run *r, struct jinja_value of,
                      enum jinja_case how, struct jinja_value *v)
{
    const struct gpt_str s = of.s;
    char *text;
    size_t n;

    for (const char *p = s.data, *end = p + s.len; p < end; p += n) {
        uint32_t code = 0;

        n = jinja_char(p, end);
        gpt_utf8_decode((const uint8_t *)p, n, &code);
        if (code >= 0x80 && gpt_unicode_class(code) >= GPT_UC_LL)
            return jinja_fail(r, "upper and lower case of U+%04X is not "
                                 "supported, but of ASCII alone", code);
    }
    GPT_TRY(jinja_spend(r, s.len / 64));
    GPT_TRY(jinja_new(r, &text, s.len + 1, 1));
    for (size_t i = 0; i < s.len; i++) {
        const bool upper = how == JINJA_UPPER ||
                           (how != JINJA_LOWER && begins_word(how, s.data, i));
        const char c = s.data[i];

        text[i] = !is_letter(c) ? c : (char)(upper ? c & ~0x20 : c | 0x20);
    }
    *v = (struct jinja_value){
        .kind = JINJA_STRING, .safe = of.safe, .s = {text, s.len}};
    return GPT_OK;
}
