/* The stand-in's text: a recursive parser, and printing as cJSON lays it out.
 * base/json.c has checked depth, UTF-8 and NUL bytes before. */
#include "cJSON.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- parsing ---- */

struct reader {
    const char *at, *end;
};

static void skip_blanks(struct reader *r)
{
    while (r->at < r->end && (unsigned char)*r->at <= ' ')
        r->at++;
}

static bool take(struct reader *r, char c)
{
    skip_blanks(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool take_word(struct reader *r, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return false;
    r->at += n;
    return true;
}

/* Four hexadecimal digits, or -1. */
static long hex4(struct reader *r)
{
    char digits[5] = "", *end;
    if (r->end - r->at < 4)
        return -1;
    memcpy(digits, r->at, 4);
    if (strspn(digits, "0123456789abcdefABCDEF") != 4)
        return -1;
    r->at += 4;
    return strtol(digits, &end, 16);
}

/* After "\u": a character outside the basic plane is two of them. */
static long code_point(struct reader *r)
{
    long high = hex4(r), low;
    if (high < 0xd800 || high > 0xdfff)
        return high;
    if (high > 0xdbff || !take_word(r, "\\u"))
        return -1;
    low = hex4(r);
    if (low < 0xdc00 || low > 0xdfff)
        return -1;
    return 0x10000 + ((high & 0x3ff) << 10 | (low & 0x3ff));
}

static char *put_utf8(char *to, long c)
{
    static const int first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (n == 1) {
        *to++ = (char)c;
        return to;
    }
    *to++ = (char)(first[n] | c >> 6 * (n - 1));
    while (--n > 0)
        *to++ = (char)(0x80 | (c >> 6 * (n - 1) & 0x3f));
    return to;
}

/* What an escape stands for goes to *to. */
static bool escape(struct reader *r, char **to)
{
    static const char names[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    const char *name = r->at < r->end ? strchr(names, *r->at) : NULL;
    if (name && *name) {
        *(*to)++ = means[name - names];
        r->at++;
        return true;
    }
    if (!take_word(r, "u"))
        return false;
    long c = code_point(r);
    if (c < 0)
        return false;
    *to = put_utf8(*to, c);
    return true;
}

/* After the opening quote; NULL: not a string. */
static char *parse_text(struct reader *r)
{
    const char *close = r->at;
    while (close < r->end && *close != '"')
        close += *close == '\\' ? 2 : 1;
    if (close >= r->end)
        return NULL;
    char *text = malloc((size_t)(close - r->at) + 1), *to = text;
    while (text && r->at < close) {
        if (*r->at != '\\') {
            *to++ = *r->at++;
        } else if (r->at++, !escape(r, &to)) {
            free(text);
            return NULL;
        }
    }
    if (text)
        *to = 0;
    r->at = close + 1;
    return text;
}

static cJSON *parse_number(struct reader *r)
{
    char text[64] = "", *end;
    size_t n = 0;
    while (n < sizeof text - 1 && r->at + n < r->end &&
           strchr("0123456789+-.eE", r->at[n]) && r->at[n])
        n++;
    memcpy(text, r->at, n);
    double number = strtod(text, &end);
    if (end == text)
        return NULL;
    r->at += end - text;
    return cJSON_CreateNumber(number);
}

static cJSON *parse_value(struct reader *r);

/* The rest of an array or object after its opening bracket. */
static bool parse_items(struct reader *r, cJSON *to, char close)
{
    bool keyed = close == '}';
    if (take(r, close))
        return true;
    do {
        char *key = NULL;
        if (keyed && (!take(r, '"') || !(key = parse_text(r)) ||
                      !take(r, ':'))) {
            free(key);
            return false;
        }
        cJSON *item = parse_value(r);
        if (!item) {
            free(key);
            return false;
        }
        item->string = key;
        cJSON_AddItemToArray(to, item);
    } while (take(r, ','));
    return take(r, close);
}

static cJSON *parse_tree(struct reader *r, cJSON *tree, char close)
{
    if (tree && parse_items(r, tree, close))
        return tree;
    cJSON_Delete(tree);
    return NULL;
}

static cJSON *parse_string(struct reader *r)
{
    char *text = parse_text(r);
    cJSON *item = text ? cJSON_CreateString(text) : NULL;
    free(text);
    return item;
}

static cJSON *parse_word(struct reader *r)
{
    static const struct {
        const char *word;
        int type;
    } words[] = {{"null", cJSON_NULL}, {"true", cJSON_True},
                 {"false", cJSON_False}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (take_word(r, words[i].word)) {
            cJSON *item = cJSON_CreateObject();
            if (item)
                item->type = words[i].type;
            return item;
        }
    return parse_number(r);
}

static cJSON *parse_value(struct reader *r)
{
    if (take(r, '{'))
        return parse_tree(r, cJSON_CreateObject(), '}');
    if (take(r, '['))
        return parse_tree(r, cJSON_CreateArray(), ']');
    if (take(r, '"'))
        return parse_string(r);
    return parse_word(r);
}

cJSON *cJSON_ParseWithLengthOpts(const char *text, size_t len,
                                 const char **end, cJSON_bool whole)
{
    struct reader r = {text, text + len};
    cJSON *tree = parse_value(&r);
    skip_blanks(&r);
    if (tree && whole && r.at < r.end) {
        cJSON_Delete(tree);
        tree = NULL;
    }
    if (end)
        *end = r.at;
    return tree;
}

cJSON *cJSON_ParseWithLength(const char *text, size_t len)
{
    return cJSON_ParseWithLengthOpts(text, len, NULL, false);
}

/* ---- printing ---- */

static void print_text(FILE *out, const char *text)
{
    static const char plain[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    fputc('"', out);
    for (const char *p = text; *p; p++) {
        const char *special = strchr(plain, *p);
        if (special)
            fprintf(out, "\\%c", names[special - plain]);
        else if ((unsigned char)*p < ' ')
            fprintf(out, "\\u%04x", (unsigned char)*p);
        else
            fputc(*p, out);
    }
    fputc('"', out);
}

static void print_number(FILE *out, const cJSON *item)
{
    char text[32];
    double d = item->valuedouble;
    if (!isfinite(d)) {
        fputs("null", out);
        return;
    }
    snprintf(text, sizeof text, "%1.15g", d);
    if (strtod(text, NULL) != d)
        snprintf(text, sizeof text, "%1.17g", d);
    fputs(text, out);
}

static void print_tabs(FILE *out, int n)
{
    while (n-- > 0)
        fputc('\t', out);
}

static void print_value(FILE *out, const cJSON *item, bool pretty, int depth);

static void print_array(FILE *out, const cJSON *array, bool pretty, int depth)
{
    const cJSON *item;
    fputc('[', out);
    cJSON_ArrayForEach(item, array) {
        if (item != array->child)
            fputs(pretty ? ", " : ",", out);
        print_value(out, item, pretty, depth + 1);
    }
    fputc(']', out);
}

static void print_object(FILE *out, const cJSON *object, bool pretty, int depth)
{
    const cJSON *item;
    fputs(pretty ? "{\n" : "{", out);
    cJSON_ArrayForEach(item, object) {
        print_tabs(out, pretty ? depth + 1 : 0);
        print_text(out, item->string);
        fputs(pretty ? ":\t" : ":", out);
        print_value(out, item, pretty, depth + 1);
        fputs(item->next ? "," : "", out);
        fputs(pretty ? "\n" : "", out);
    }
    print_tabs(out, pretty ? depth : 0);
    fputc('}', out);
}

static void print_value(FILE *out, const cJSON *item, bool pretty, int depth)
{
    if (cJSON_IsObject(item))
        print_object(out, item, pretty, depth);
    else if (cJSON_IsArray(item))
        print_array(out, item, pretty, depth);
    else if (cJSON_IsString(item))
        print_text(out, item->valuestring);
    else if (cJSON_IsNumber(item))
        print_number(out, item);
    else if (item->type & cJSON_Raw)
        fputs(item->valuestring, out);
    else
        fputs(cJSON_IsTrue(item)    ? "true"
              : cJSON_IsFalse(item) ? "false"
                                    : "null", out);
}

static char *print(const cJSON *item, bool pretty)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = item ? open_memstream(&text, &len) : NULL;
    if (!out)
        return NULL;
    print_value(out, item, pretty, 0);
    fclose(out);
    return text;
}

char *cJSON_Print(const cJSON *item)
{
    return print(item, true);
}

char *cJSON_PrintUnformatted(const cJSON *item)
{
    return print(item, false);
}
