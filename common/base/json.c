/* JSON. cJSON is lenient and recursive: a scan before it refuses what it would
 * let through (deep nesting, NUL bytes, bad UTF-8), a walk after it refuses
 * duplicate keys. */
#include "base/json.h"

#include "base/fault.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/json_string.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64 };

/* ---- memory of cJSON ---- */

static _Thread_local bool out_of_memory;

/* cJSON's functions that add a member take NULL for a parent and do nothing, so
 * a member that found no memory is left out without a word. Every such failure
 * is one of this function, which remembers it until the tree is printed. */
static void *allocate(size_t bytes)
{
    void *p = gpt_fault(GPT_FAULT_ALLOC) ? NULL : malloc(bytes);

    if (!p)
        out_of_memory = true;
    return p;
}

/* Before main(), so that no thread is there and no tree was made yet. */
__attribute__((constructor)) static void watch_memory(void)
{
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = allocate, .free_fn = free});
}

bool gpt_json_out_of_memory(void)
{
    const bool was = out_of_memory;

    out_of_memory = false;
    return was;
}

/* ---- before cJSON ---- */

static int scan_fail(struct gpt_err *err, const char *what, size_t at,
                     const char *why)
{
    return gpt_fail(err, GPT_EDATA, "%s: offset %zu: %s", what, at, why);
}

/* Follows strings and brackets alone. cJSON recurses once a level, so the depth
 * is bounded before it runs; bytes and characters that C strings cannot hold
 * are refused with their offset. */
static int scan(const char *text, size_t len, const char *what,
                struct gpt_err *err)
{
    const unsigned char *p = (const unsigned char *)text;
    bool in_string = false;
    int depth = 0;

    for (size_t i = 0, step; i < len; i += step) {
        step = gpt_utf8_length(p + i, len - i);
        if (step == 0)
            return scan_fail(err, what, i, "invalid UTF-8");
        if (p[i] == 0)
            return scan_fail(err, what, i, "NUL byte");
        if (in_string && p[i] == '\\') {
            if (len - i >= 6 && memcmp(p + i, "\\u0000", 6) == 0)
                return scan_fail(err, what, i, "NUL character in a string");
            if (len - i >= 2 && p[i + 1] < 0x80)
                step = 2; /* whatever follows, it does not end the string */
        } else if (p[i] == '"') {
            in_string = !in_string;
        } else if (!in_string && (p[i] == '{' || p[i] == '[')) {
            if (++depth > MAX_DEPTH)
                return scan_fail(err, what, i, "nested deeper than 64");
        } else if (!in_string && (p[i] == '}' || p[i] == ']')) {
            depth--;
        }
    }
    return GPT_OK;
}

/* ---- after cJSON ---- */

/* cJSON keeps duplicate keys and finds the first one, other readers the last: a
 * file that means two things is refused. `slots` and `cap` are kept between
 * calls to save allocations. */
static int check_keys(const cJSON *obj, const char ***slots, size_t *cap,
                      const char *what, struct gpt_err *err)
{
    size_t n = 0, n_slots = 8;

    for (const cJSON *item = obj->child; item; item = item->next)
        n++;
    /* Open addressing at half load: linear in the number of keys, where
     * comparing each with each would let a hostile object of a megabyte take
     * minutes. */
    while (n_slots < 2 * n)
        n_slots *= 2;
    GPT_TRY(gpt_grow(slots, cap, n_slots, sizeof(**slots), "JSON keys", err));
    memset((void *)*slots, 0, n_slots * sizeof(**slots));
    for (const cJSON *item = obj->child; item; item = item->next) {
        const char *key = item->string;
        size_t i = (size_t)gpt_hash64(key, strlen(key), 0);

        for (; (*slots)[i & (n_slots - 1)]; i++)
            if (strcmp((*slots)[i & (n_slots - 1)], key) == 0)
                return gpt_fail(err, GPT_EDATA, "%s: duplicate key '%.200s'",
                                what, key);
        (*slots)[i & (n_slots - 1)] = key;
    }
    return GPT_OK;
}

/* Depth is at most MAX_DEPTH by now. */
static int check_tree(const cJSON *node, const char ***slots, size_t *cap,
                      const char *what, struct gpt_err *err)
{
    if (cJSON_IsObject(node))
        GPT_TRY(check_keys(node, slots, cap, what, err));
    for (const cJSON *item = node->child; item; item = item->next)
        if (item->child)
            GPT_TRY(check_tree(item, slots, cap, what, err));
    return GPT_OK;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

int gpt_json_parse(cJSON **root, const char *text, size_t len,
                   const char *what, struct gpt_err *err)
{
    const char *end = text;

    *root = NULL;
    /* cJSON reports where it stopped but not why; the scan has told every
     * reason that it knows. */
    GPT_TRY(scan(text, len, what, err));
    cJSON *tree = cJSON_ParseWithLengthOpts(text, len, &end, false);
    size_t at = (size_t)(end - text);
    if (!tree && gpt_json_out_of_memory())
        return gpt_no_memory(err, what);
    if (!tree)
        return scan_fail(err, what, at,
                         at + 1 >= len ? "not valid JSON, or cut short"
                                       : "not valid JSON");
    while (at < len && is_space(text[at]))
        at++;
    /* Two values in one file are two files glued together, or a
     * half-overwritten one. */
    if (at < len) {
        cJSON_Delete(tree);
        return scan_fail(err, what, at, "something follows the JSON value");
    }
    const char **slots = NULL;
    size_t cap = 0;
    int status = check_tree(tree, &slots, &cap, what, err);
    gpt_free(slots);
    if (status != GPT_OK) {
        cJSON_Delete(tree);
        return status;
    }
    *root = tree;
    return GPT_OK;
}

/* ---- numbers as they were written ---- */

/* The next number at *text or behind it, and *text behind that: a digit or a
 * sign that is in no string begins one. */
static char *take_number(const char **text)
{
    const char *p = *text;

    while (*p != '-' && !(*p >= '0' && *p <= '9')) {
        if (*p++ != '"')
            continue;
        for (; *p != '"'; p++)
            p += *p == '\\';
        p++;
    }
    const size_t n = strspn(p, "0123456789+-.eE");
    char *copy = cJSON_malloc(n + 1);
    if (copy) {
        memcpy(copy, p, n);
        copy[n] = '\0';
    }
    *text = p + n;
    return copy;
}

/* Members of a tree are in the order of its text, in which a bracket follows
 * the last one: a number alone may have nothing behind it. */
static void keep_numbers(cJSON *item, const char **text)
{
    for (cJSON *kid = item->child; kid; kid = kid->next) {
        if (cJSON_IsNumber(kid))
            kid->valuestring = take_number(text);
        keep_numbers(kid, text);
    }
}

void gpt_json_keep_numbers(cJSON *root, const char *text)
{
    keep_numbers(root, &text);
}

int gpt_json_read(cJSON **root, const char *path, int64_t limit,
                  struct gpt_err *err)
{
    char *text;
    size_t len;

    *root = NULL;
    GPT_TRY(gpt_read_held(path, limit, &text, &len, err));
    int status = gpt_json_parse(root, text, len, path, err);
    gpt_free(text);
    return status == GPT_EDATA ? gpt_in_explain(path, err) : status;
}

/* ---- fields ---- */

/* cJSON's shorter function ignores case, which would make "Seed" and "seed" one
 * field. */
static const cJSON *field(const cJSON *obj, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(obj, key);
}

/* One text for a missing field and one for a field of another type, with the
 * same place in front. */
static int wrong_type(struct gpt_err *err, const char *what, const char *key,
                      const cJSON *item, const char *wanted)
{
    return item ? gpt_fail(err, GPT_EDATA, "%s: '%s' is not %s", what, key,
                           wanted)
                : gpt_fail(err, GPT_EDATA, "%s: no field '%s'", what, key);
}

const cJSON *gpt_json_member(const cJSON *obj, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(obj, key);

    return cJSON_IsNull(item) ? NULL : item;
}

int gpt_json_int(const cJSON *obj, const char *key, int64_t min, int64_t max,
                 int64_t *out, const char *what, struct gpt_err *err)
{
    const cJSON *item = field(obj, key);

    if (!cJSON_IsNumber(item))
        return wrong_type(err, what, key, item, "an integer");
    double v = item->valuedouble;
    /* Written so that NaN fails, too. */
    if (!(fabs(v) <= (double)GPT_JSON_EXACT) || v != floor(v))
        return gpt_fail(err, GPT_EDATA,
                        "%s: '%s' is %.17g, not an integer of at most 2^53",
                        what, key, v);
    int64_t i = (int64_t)v;
    if (i < min || i > max)
        return gpt_fail(err, GPT_EDATA,
                        "%s: '%s' is %lld, out of range (%lld to %lld)", what,
                        key, (long long)i, (long long)min, (long long)max);
    *out = i;
    return GPT_OK;
}

/* A field that is there but wrong is an error, not the default. */
int gpt_json_int_or(const cJSON *obj, const char *key, int64_t def,
                    int64_t min, int64_t max, int64_t *out, const char *what,
                    struct gpt_err *err)
{
    *out = def;
    return field(obj, key) ? gpt_json_int(obj, key, min, max, out, what, err)
                           : GPT_OK;
}

int gpt_json_real_or(const cJSON *obj, const char *key, double def,
                     double *out, const char *what, struct gpt_err *err)
{
    const cJSON *item = field(obj, key);

    *out = def;
    if (!item)
        return GPT_OK;
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble))
        return wrong_type(err, what, key, item, "a finite number");
    *out = item->valuedouble;
    return GPT_OK;
}

int gpt_json_bool_or(const cJSON *obj, const char *key, bool def, bool *out,
                     const char *what, struct gpt_err *err)
{
    const cJSON *item = field(obj, key);

    *out = def;
    if (!item)
        return GPT_OK;
    if (!cJSON_IsBool(item))
        return wrong_type(err, what, key, item, "true or false");
    *out = cJSON_IsTrue(item);
    return GPT_OK;
}

int gpt_json_string(const cJSON *obj, const char *key, const char **out,
                    const char *what, struct gpt_err *err)
{
    const cJSON *item = field(obj, key);

    if (!cJSON_IsString(item))
        return wrong_type(err, what, key, item, "a string");
    *out = item->valuestring;
    return GPT_OK;
}

/* ---- printing ---- */

/* The shortest decimal that reads back as the same double. */
static void exact_text(double v, char text[32])
{
    if (v == floor(v) && fabs(v) <= (double)GPT_JSON_EXACT) {
        snprintf(text, 32, "%lld", (long long)v);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, 32, "%.*g", digits, v);
        if (digits == 17 || strtod(text, NULL) == v)
            return;
    }
}

/* cJSON prints a number with 15 digits when that is "about" right, which
 * changes large integers and the last bits of others: such numbers become raw
 * text first. */
static bool pin_numbers(cJSON *node)
{
    char text[32];

    for (cJSON *item = node; item; item = item->next) {
        double v = item->valuedouble;

        if (item->child && !pin_numbers(item->child))
            return false;
        if (!cJSON_IsNumber(item) || !isfinite(v) ||
            v == (double)item->valueint)
            continue;
        exact_text(v, text);
        size_t bytes = strlen(text) + 1;
        item->valuestring = cJSON_malloc(bytes);
        if (!item->valuestring)
            return false;
        memcpy(item->valuestring, text, bytes);
        item->type = (item->type & cJSON_StringIsConst) | cJSON_Raw;
    }
    return true;
}

cJSON *gpt_json_add(cJSON *parent, const char *name, cJSON *item)
{
    if (name ? cJSON_AddItemToObject(parent, name, item)
             : cJSON_AddItemToArray(parent, item))
        return item;
    cJSON_Delete(item);
    return NULL;
}

/* What stands in the text for the bytes that p (n bytes left) begins with; ""
 * when they stand for themselves. *bytes of p are meant. */
static const char *stand_in(const char *p, size_t n, size_t *bytes,
                            char escape[GPT_JSON_ESCAPE])
{
    unsigned code;

    *bytes = gpt_utf8_line_end(p, n, &code);
    if (*bytes > 0) {
        gpt_json_escape_code(code, escape);
        return escape;
    }
    *bytes = gpt_utf8_length(p, n);
    if (*bytes > 0)
        return "";
    *bytes = 1;
    return "\xef\xbf\xbd";
}

/* Text of a tree as cJSON prints it, with two changes, both in strings alone.
 * What ends a line in Unicode is escaped: an object on a line is on one for all
 * readers. A byte that is no UTF-8, as names of files may have, becomes U+FFFD,
 * as itself and not as an escape: what was read back prints the same. Takes the
 * text. */
static char *clean(char *text)
{
    const size_t len = text ? strlen(text) : 0;
    size_t changes = 0, to = 0, n;
    char escape[GPT_JSON_ESCAPE];

    for (size_t i = 0; i < len; i += n)
        changes += *stand_in(text + i, len - i, &n, escape) != '\0';
    if (changes == 0)
        return text;
    /* None is longer than six bytes, and at least one is left out for it. */
    char *out = cJSON_malloc(len + changes * 5 + 1);

    for (size_t i = 0; out && i < len; i += n) {
        const char *other = stand_in(text + i, len - i, &n, escape);
        const size_t m = *other ? strlen(other) : n;

        memcpy(out + to, *other ? other : text + i, m);
        to += m;
    }
    if (out)
        out[to] = '\0';
    cJSON_free(text);
    return out;
}

char *gpt_json_print(const cJSON *root, bool pretty)
{
    /* The caller's tree is const; pin_numbers() changes nodes. */
    cJSON *copy = cJSON_Duplicate(root, true);
    char *text = NULL;

    if (copy && pin_numbers(copy))
        text = clean(pretty ? cJSON_Print(copy)
                            : cJSON_PrintUnformatted(copy));
    cJSON_Delete(copy);
    if (!gpt_json_out_of_memory())
        return text;
    cJSON_free(text);
    return NULL;
}
