/* Text of a template to tokens; see jinja_internal.h. Start at jinja_lex():
 * text up to the next tag, what white space of it stays, then the tokens of the
 * tag. The rules for white space are those of Jinja's lexer with trim_blocks
 * and lstrip_blocks: a newline after a tag is dropped, and so is what is before
 * a tag on its line, if it is blank; '-' drops all white space on its side, '+'
 * keeps it. */
#include "text/jinja_internal.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

struct lexer {
    const char *at, *end;
    int line;
    bool line_starts; /* what was read last ended with a newline */
    struct gpt_arena *arena;
    struct gpt_err *err;
    struct jinja_token *tokens; /* (n) */
    size_t n, cap;
};

/* The line is that of the token in work, which is where the user looks. */
static int fail_lex(const struct lexer *x, const char *what)
{
    return gpt_fail(x->err, GPT_EDATA, "line %d: %s", x->line, what);
}

/* Tokens borrow their bytes from the template's copy, which lives as long. */
static int add_token(struct lexer *x, enum jinja_token_type type,
                     const char *s, size_t n)
{
    GPT_TRY(gpt_grow(&x->tokens, &x->cap, x->n + 1, sizeof(*x->tokens),
                     "a template", x->err));
    x->tokens[x->n++] = (struct jinja_token){type, {s, n}, x->line};
    return GPT_OK;
}

/* Lines are counted once, when the reader passes them. */
static void count_lines(struct lexer *x, const char *from, const char *to)
{
    for (; from < to; from++)
        x->line += *from == '\n';
}

/* True when the bytes at p are the word. */
static bool begins(const struct lexer *x, const char *p, const char *word)
{
    const size_t n = strlen(word);

    return (size_t)(x->end - p) >= n && memcmp(p, word, n) == 0;
}

/* White space is Python's, so that '-' drops what it drops there. */
static const char *skip_space(const struct lexer *x, const char *p)
{
    size_t n;

    while (p < x->end && jinja_is_space(p, n = jinja_char(p, x->end)))
        p += n;
    return p;
}

/* ---- text ---- */

/* The end of text[from..to) without its blanks; only down to `from`. */
static const char *strip_end(const char *from, const char *to)
{
    while (to > from) {
        const char *p = to - 1;

        while (p > from && ((unsigned char)*p & 0xC0) == 0x80)
            p--;
        if (!jinja_is_space(p, (size_t)(to - p)))
            break;
        to = p;
    }
    return to;
}

/* Adds the text before a tag. `sign` is what the tag begins with; tags that
 * print keep the blanks before them. */
static int add_text(struct lexer *x, const char *from, const char *to,
                    char sign, bool prints)
{
    const char *end = to;

    if (sign == '-') {
        end = strip_end(from, to);
    } else if (sign != '+' && !prints) {
        /* Where the tag's line begins. At the beginning of the text it is
         * only the beginning of a line if the tag before ended one. */
        const char *line = to;

        while (line > from && line[-1] != '\n')
            line--;
        if ((line > from || x->line_starts) && strip_end(line, to) == line)
            end = line;
    }
    if (end > from)
        GPT_TRY(add_token(x, JINJA_TEXT, from, (size_t)(end - from)));
    count_lines(x, from, to);
    return GPT_OK;
}

/* Behind the end of a tag, where p is its last two bytes' first: `sign` before
 * it drops blanks, and a tag that does not print drops one newline. */
static const char *skip_after(struct lexer *x, const char *p, char sign,
                              bool prints)
{
    const char *from = p;

    p += 2;
    if (sign == '-')
        p = skip_space(x, p);
    else if (sign != '+' && !prints && p < x->end && *p == '\n')
        p++;
    count_lines(x, from, p);
    x->line_starts = p[-1] == '\n';
    return p;
}

/* ---- inside of tags ---- */

/* An escape may name what is no character, and what has no place in UTF-8:
 * half of a pair of UTF-16. */
static size_t add_scalar(uint32_t code, char *out)
{
    return code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)
               ? 0
               : (size_t)gpt_utf8_encode(code, out);
}

/* An escape of hexadecimal or octal digits; *p is the first digit. */
static size_t read_code(const char **p, const char *end, int base, int digits,
                        char *out)
{
    char text[9] = "";
    int n = 0;

    while (n < digits && *p + n < end &&
           strchr(base == 8 ? "01234567" : "0123456789abcdefABCDEF", (*p)[n])
           && (*p)[n]) {
        text[n] = (*p)[n];
        n++;
    }
    *p += n;
    /* Octal escapes may be short, the others have all of their digits. */
    if (n == 0 || (base == 16 && n < digits))
        return 0;
    return add_scalar((uint32_t)strtoul(text, NULL, base), out);
}

/* One escape, as Python has them; *p is behind the backslash. Returns the bytes
 * written, or SIZE_MAX for one that is wrong. */
static size_t read_escape(const char **p, const char *end, char *out)
{
    static const char names[] = "abfnrtv\\'\"", bytes[] = "\a\b\f\n\r\t\v\\'\"";
    const char c = **p;
    const char *simple = strchr(names, c);
    size_t n;

    if (c >= '0' && c <= '7') {
        n = read_code(p, end, 8, 3, out);
        return n ? n : SIZE_MAX;
    }
    (*p)++;
    if (c && simple) {
        *out = bytes[simple - names];
        return 1;
    }
    if (c == '\n')
        return 0;
    if (c == 'x' || c == 'u' || c == 'U') {
        n = read_code(p, end, 16, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
        return n ? n : SIZE_MAX;
    }
    /* A character by its name in Unicode would need the table of all names. */
    if (c == 'N')
        return SIZE_MAX;
    /* Python keeps the backslash of an escape that it does not know. */
    out[0] = '\\';
    out[1] = c;
    return 2;
}

/* A string with its escapes decoded, which are never shorter than what they
 * stand for. */
static int read_string(struct lexer *x)
{
    const char quote = *x->at;
    const char *end = x->at + 1;
    size_t n = 0;

    while (end < x->end && *end != quote)
        /* A backslash hides the quote behind it. */
        end += *end == '\\' && end + 1 < x->end ? 2 : 1;
    if (end >= x->end)
        return fail_lex(x, "a string has no end");
    char *text = gpt_arena_alloc(x->arena, (size_t)(end - x->at) + 4, 1);
    if (!text)
        return gpt_no_memory(x->err, "a template");
    for (const char *p = x->at + 1; p < end;) {
        if (*p != '\\') {
            text[n++] = *p++;
            continue;
        }
        p++;
        const size_t m = read_escape(&p, end, text + n);
        if (m == SIZE_MAX)
            return fail_lex(x, "a string has an escape that is not known here");
        n += m;
    }
    const char *from = x->at;
    x->at = end + 1;
    GPT_TRY(add_token(x, JINJA_LITERAL, text, n));
    count_lines(x, from, x->at);
    return GPT_OK;
}

/* ASCII alone: digits of other scripts are no numbers in templates. */
static bool is_digit(const struct lexer *x, const char *p)
{
    return p < x->end && *p >= '0' && *p <= '9';
}

/* Underscores may stand between digits, as in Python. */
static const char *skip_digits(const struct lexer *x, const char *p)
{
    while (is_digit(x, p) || (p < x->end && *p == '_' && is_digit(x, p + 1)))
        p++;
    return p;
}

/* Digits, a fraction and an exponent, each with digits of their own. */
static int read_number(struct lexer *x)
{
    const char *from = x->at, *p = skip_digits(x, from), *q;
    enum jinja_token_type type = JINJA_WHOLE;

    if (begins(x, p, "x") || begins(x, p, "b") || begins(x, p, "o"))
        return fail_lex(x, "only decimal numbers are known here");
    if (begins(x, p, ".") && is_digit(x, p + 1)) {
        type = JINJA_FRACTION;
        p = skip_digits(x, p + 1);
    }
    if (p < x->end && (*p == 'e' || *p == 'E')) {
        q = p + 1;
        if (q < x->end && (*q == '+' || *q == '-'))
            q++;
        if (is_digit(x, q)) {
            type = JINJA_FRACTION;
            p = skip_digits(x, q);
        }
    }
    x->at = p;
    return add_token(x, type, from, (size_t)(p - from));
}

/* Names are ASCII here. Jinja allows letters of all scripts, which no
 * template uses. */
static bool in_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (c >= '0' && c <= '9');
}

/* The longest operator counts. */
static int read_operator(struct lexer *x, int *nesting)
{
    static const char *const operators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~",
        "[",  "]",  "(",  ")",  "{",  "}",  ">", "<", "=", ".", ":", "|",
        ",",
    };

    for (size_t i = 0; i < GPT_COUNT(operators); i++) {
        const char *o = operators[i];

        if (!begins(x, x->at, o))
            continue;
        *nesting += strchr("[({", *o) != NULL;
        *nesting -= strchr("])}", *o) != NULL;
        x->at += strlen(o);
        return add_token(x, JINJA_OPERATOR, o, strlen(o));
    }
    return gpt_fail(x->err, GPT_EDATA, "line %d: a character 0x%02x that is "
                    "not known here", x->line, (unsigned char)*x->at);
}

/* The tokens up to the end of the tag, which brackets that are open hide: }}
 * may be the ends of two objects. */
static int read_tag(struct lexer *x, bool prints)
{
    const char *mark = prints ? "}}" : "%}";
    int nesting = 0;

    for (;;) {
        const char *blank = x->at;

        x->at = skip_space(x, x->at);
        count_lines(x, blank, x->at);
        if (x->at == x->end)
            return fail_lex(x, prints ? "'{{' has no end" : "'{%' has no end");
        const char sign = *x->at;
        const char *p =
            x->at + (sign == '-' || (sign == '+' && !prints) ? 1 : 0);
        /* Where brackets are open, the marks are braces of a dict, or a
         * remainder and a brace. */
        if (nesting <= 0 && begins(x, p, mark)) {
            GPT_TRY(add_token(x, JINJA_END, p, 2));
            x->at = skip_after(x, p, p > x->at ? sign : 0, prints);
            return GPT_OK;
        }
        if (*x->at == '"' || *x->at == '\'') {
            GPT_TRY(read_string(x));
        } else if (is_digit(x, x->at)) {
            GPT_TRY(read_number(x));
        } else if (in_name(*x->at)) {
            const char *from = x->at;

            while (x->at < x->end && in_name(*x->at))
                x->at++;
            GPT_TRY(add_token(x, JINJA_NAME, from, (size_t)(x->at - from)));
        } else {
            GPT_TRY(read_operator(x, &nesting));
        }
    }
}

/* ---- comments and raw text ---- */

/* A comment drops the newline behind it like a tag that does not print, and
 * may have signs at both ends. */
static int skip_comment(struct lexer *x)
{
    const char *p = x->at + 2;

    while (p < x->end && !begins(x, p, "#}"))
        p++;
    if (p == x->end)
        return fail_lex(x, "a comment has no end");
    const char sign = p > x->at + 2 ? p[-1] : 0;
    count_lines(x, x->at, p);
    x->at = skip_after(x, p, sign == '-' || sign == '+' ? sign : 0, false);
    return GPT_OK;
}

/* When p is the tag "{% word %}": the end of it, and the signs at both ends. */
static const char *match_tag(const struct lexer *x, const char *p,
                             const char *word, char *first, char *last)
{
    if (!begins(x, p, "{%"))
        return NULL;
    p += 2;
    *first = p < x->end && (*p == '-' || *p == '+') ? *p : 0;
    p = skip_space(x, p + (*first != 0));
    if (!begins(x, p, word))
        return NULL;
    p = skip_space(x, p + strlen(word));
    *last = p < x->end && (*p == '-' || *p == '+') ? *p : 0;
    p += *last != 0;
    return begins(x, p, "%}") ? p : NULL;
}

/* Text between raw and endraw is no template. True when there was one. */
static int read_raw(struct lexer *x, bool *found)
{
    char first, last, first_of_end = 0, last_of_end = 0;
    const char *p = match_tag(x, x->at, "raw", &first, &last);
    const char *end = NULL, *from;

    *found = p != NULL;
    if (!p)
        return GPT_OK;
    /* Jinja drops blanks after the tag by '-', but no single newline */
    x->at = last == '-' ? skip_space(x, p + 2) : p + 2;
    x->line_starts = false;
    for (from = x->at; from < x->end && !end; from++)
        end = match_tag(x, from, "endraw", &first_of_end, &last_of_end);
    if (!end)
        return fail_lex(x, "'raw' has no end");
    GPT_TRY(add_text(x, x->at, from - 1, first_of_end, false));
    x->at = skip_after(x, end, last_of_end, false);
    return GPT_OK;
}

/* ---- the whole ---- */

/* The next of the three ways in which a tag may begin. */
static const char *find_tag(const struct lexer *x)
{
    const char *p = x->at;

    while (p < x->end &&
           !(*p == '{' && p + 1 < x->end &&
             (p[1] == '{' || p[1] == '%' || p[1] == '#')))
        p++;
    return p;
}

/* Text, and the tag behind it. Text at the end of the template keeps its
 * white space. */
static int read_next(struct lexer *x)
{
    const char *tag = find_tag(x);
    bool raw = false;

    if (tag == x->end) {
        GPT_TRY(add_text(x, x->at, tag, '+', true));
        x->at = tag;
        return GPT_OK;
    }
    const bool prints = tag[1] == '{';
    const char sign = tag + 2 < x->end ? tag[2] : 0;
    const bool signed_ = sign == '-' || sign == '+';
    GPT_TRY(add_text(x, x->at, tag, sign, prints));
    x->at = tag;
    /* The text before a comment was cut like that before a tag. */
    if (tag[1] == '#')
        return skip_comment(x);
    /* Only 'raw' is known to this reader; other tags are the parser's. */
    GPT_TRY(read_raw(x, &raw));
    if (raw)
        return GPT_OK;
    GPT_TRY(add_token(x, prints ? JINJA_OUTPUT : JINJA_TAG, tag, 2));
    x->at = tag + 2 + signed_;
    return read_tag(x, prints);
}

/* Newlines are made "\n", and one at the end of the template is dropped. */
static int normalize(struct lexer *x, const char *text, size_t len)
{
    char *copy = gpt_arena_alloc(x->arena, len + 1, 1);
    size_t n = 0;

    if (!copy)
        return gpt_no_memory(x->err, "a template");
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n')
            continue;
        copy[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    /* Editors put a newline at the end of a file, which the model never saw. */
    n -= n > 0 && copy[n - 1] == '\n';
    x->at = copy;
    x->end = copy + n;
    return GPT_OK;
}

/* Tokens are collected in a list that grows, and then moved into the arena
 * in one piece. */
static int read_all(struct lexer *x, const struct jinja_token **tokens)
{
    while (x->at < x->end)
        GPT_TRY(read_next(x));
    GPT_TRY(add_token(x, JINJA_EOF, x->end, 0));
    struct jinja_token *kept =
        gpt_arena_alloc(x->arena, x->n, sizeof(*kept));
    if (!kept)
        return gpt_no_memory(x->err, "a template");
    memcpy(kept, x->tokens, x->n * sizeof(*kept));
    *tokens = kept;
    return GPT_OK;
}

/* Both limits are checked before anything is allocated: the template may
 * come from anywhere. */
int jinja_lex(const struct jinja_token **tokens, const char *text, size_t len,
              struct gpt_arena *arena, struct gpt_err *err)
{
    struct lexer x = {.line = 1, .line_starts = true, .arena = arena,
                      .err = err};

    if (len > GPT_JINJA_SOURCE)
        return gpt_fail(err, GPT_EDATA, "a template of %zu bytes, limit %d",
                        len, GPT_JINJA_SOURCE);
    const size_t valid = gpt_utf8_valid(text, len);
    if (valid < len)
        return gpt_fail(err, GPT_EDATA, "byte %zu is not UTF-8", valid);
    GPT_TRY(normalize(&x, text, len));
    int status = read_all(&x, tokens);
    gpt_free(x.tokens);
    return status;
}
