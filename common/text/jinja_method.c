/* Methods of strings, dicts and loops, and functions; see jinja_internal.h.
 * Start at methods[] and builtins[]: a row each. */
#include "text/jinja_internal.h"

#include <string.h>

/* ---- methods of strings ---- */

#define METHOD(name)                                                           \
    static int name(struct jinja_run *r, struct jinja_value self,              \
                    const struct jinja_value *args, struct jinja_value *v)

/* The characters of the argument in any order; blanks without one. */
METHOD(do_strip) { return jinja_strip(r, self, args[0], true, true, v); }

/* The same at the beginning alone. */
METHOD(do_lstrip) { return jinja_strip(r, self, args[0], true, false, v); }

/* The same at the end alone. */
METHOD(do_rstrip) { return jinja_strip(r, self, args[0], false, true, v); }

/* What comes into a safe text is escaped. */
METHOD(do_replace)
{
    struct jinja_value own[3] = {args[0], args[1], args[2]};
    struct gpt_buf b = {0};

    if (self.safe && args[1].kind == JINJA_STRING) {
        const int status = jinja_add_beside(r, &b, true, args[1]);

        GPT_TRY(jinja_take_buffer(r, &b, status, &own[1]));
    }
    GPT_TRY(jinja_replace(r, self.s, own, v));
    v->safe = self.safe;
    return GPT_OK;
}

/* See jinja_change_case() for what is refused. */
METHOD(do_upper)
{
    (void)args;
    return jinja_change_case(r, self, JINJA_UPPER, v);
}

/* Roles are compared in lower case by some templates. */
METHOD(do_lower)
{
    (void)args;
    return jinja_change_case(r, self, JINJA_LOWER, v);
}

/* Every letter behind what is no letter is the beginning of a word, also
 * behind an apostrophe. */
METHOD(do_title)
{
    (void)args;
    return jinja_change_case(r, self, JINJA_TITLE, v);
}

/* The rest becomes lower case, which surprises, and is Python's. */
METHOD(do_capitalize)
{
    (void)args;
    return jinja_change_case(r, self, JINJA_CAPITALIZE, v);
}

/* With the string, or one of a tuple of strings. */
static int match_end(struct jinja_run *r, struct gpt_str s,
                     struct jinja_value with, bool at_end,
                     struct jinja_value *v)
{
    const struct jinja_list one = {&with, 1, 1};
    const struct jinja_list *list = with.kind == JINJA_TUPLE ? with.list : &one;

    *v = jinja_bool(false);
    /* An empty string is at both ends of every text. */
    for (size_t i = 0; i < list->n; i++) {
        const struct jinja_value w = list->items[i];

        if (w.kind != JINJA_STRING)
            return jinja_fail(r, "%s wants a string, not %s",
                              at_end ? "endswith" : "startswith",
                              jinja_kind_name(w.kind));
        GPT_TRY(jinja_spend(r, w.s.len / 64));
        if (w.s.len <= s.len &&
            memcmp(s.data + (at_end ? s.len - w.s.len : 0), w.s.data,
                   w.s.len) == 0)
            *v = jinja_bool(true);
    }
    return GPT_OK;
}

/* A tuple has several beginnings, any of which will do. */
METHOD(do_startswith) { return match_end(r, self.s, args[0], false, v); }

/* Templates look so for marks that a message has brought along. */
METHOD(do_endswith) { return match_end(r, self.s, args[0], true, v); }

/* Parts are views of the text; nothing is copied. */
static int add_part(struct jinja_run *r, struct jinja_list *list,
                    struct jinja_value text, const char *from, const char *to)
{
    text.s = (struct gpt_str){from, (size_t)(to - from)};
    return jinja_list_add(r, list, text);
}

/* Words between blanks; with a limit the rest is the last of them. */
static int split_blanks(struct jinja_run *r, struct jinja_value text,
                        int64_t most, struct jinja_list *list)
{
    const char *p = text.s.data, *end = p + text.s.len, *from;

    for (;;) {
        while (p < end && jinja_is_space(p, jinja_char(p, end)))
            p += jinja_char(p, end);
        if (p == end)
            return GPT_OK;
        from = p;
        /* The rest is one word then, with the blanks at its end. */
        if (most-- == 0)
            return add_part(r, list, text, p, end);
        while (p < end && !jinja_is_space(p, jinja_char(p, end)))
            p += jinja_char(p, end);
        GPT_TRY(add_part(r, list, text, from, p));
    }
}

/* From the end: parts are found in reverse, and turned round. */
static int split_from_end(struct jinja_run *r, struct jinja_value text,
                          struct gpt_str by, int64_t most,
                          struct jinja_list *list)
{
    const char *begin = text.s.data, *end = begin + text.s.len;

    /* Every place is looked at, from the end; a part that is found is
     * skipped whole. */
    for (const char *p = end; p >= begin + by.len && most > 0;) {
        GPT_TRY(jinja_spend(r, by.len / 64));
        if (memcmp(p - by.len, by.data, by.len) != 0) {
            p--;
            continue;
        }
        GPT_TRY(add_part(r, list, text, p, end));
        p -= by.len;
        end = p;
        most--;
    }
    GPT_TRY(add_part(r, list, text, begin, end));
    for (size_t i = 0; i < list->n / 2; i++) {
        const struct jinja_value swap = list->items[i];

        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = swap;
    }
    return GPT_OK;
}

/* Without a separator words are meant, and empty ones do not count; with one
 * all parts count, empty ones, too. */
static int split_text(struct jinja_run *r, struct jinja_value text,
                      const struct jinja_value *args, bool from_end,
                      struct jinja_value *v)
{
    const int64_t most = args[1].kind == JINJA_INT && args[1].i >= 0
                             ? args[1].i
                             : INT64_MAX;
    const struct gpt_str s = text.s;
    struct jinja_list *list;
    size_t at = 0, next;

    GPT_TRY(jinja_spend(r, s.len / 64));
    GPT_TRY(jinja_list_new(r, &list));
    *v = jinja_list_value(list);
    if (args[0].kind == JINJA_ABSENT || args[0].kind == JINJA_NONE) {
        if (from_end && most != INT64_MAX)
            return jinja_fail(r, "'rsplit' at blanks with a limit is not "
                                 "supported");
        return split_blanks(r, text, most, list);
    }
    if (args[0].kind != JINJA_STRING || args[0].s.len == 0)
        return jinja_fail(r, "'split' wants a string that is not empty");
    if (from_end)
        return split_from_end(r, text, args[0].s, most, list);
    for (int64_t i = 0; i < most; i++) {
        next = jinja_find_part(s, at, args[0].s);
        if (next == SIZE_MAX)
            break;
        GPT_TRY(add_part(r, list, text, s.data + at, s.data + next));
        at = next + args[0].s.len;
    }
    return add_part(r, list, text, s.data + at, s.data + s.len);
}

/* The usual way of templates to find what is behind a mark, as the end of a
 * model's thoughts. */
METHOD(do_split) { return split_text(r, self, args, false, v); }

/* With a limit, the last parts are divided first. */
METHOD(do_rsplit) { return split_text(r, self, args, true, v); }

/* The last line needs no newline, and a newline at the end makes no empty
 * line. Only the three newlines that texts have are known. */
METHOD(do_splitlines)
{
    struct gpt_str rest = self.s;
    struct jinja_list *list;

    (void)args;
    GPT_TRY(jinja_spend(r, rest.len / 64));
    GPT_TRY(jinja_list_new(r, &list));
    while (rest.len > 0) {
        const char *p = rest.data, *end = p + rest.len;

        /* Python ends lines at some separators of Unicode as well; messages
         * of chats are divided by newlines. */
        while (p < end && *p != '\n' && *p != '\r')
            p++;
        GPT_TRY(add_part(r, list, self, rest.data, p));
        if (p < end)
            p += p + 1 < end && p[0] == '\r' && p[1] == '\n' ? 2 : 1;
        rest = (struct gpt_str){p, (size_t)(end - p)};
    }
    *v = jinja_list_value(list);
    return GPT_OK;
}

/* Python's method takes strings alone; Jinja's filter makes texts of all
 * elements. */
METHOD(do_join)
{
    const struct jinja_list *items;
    struct gpt_buf b = {0};
    int status = GPT_OK;

    GPT_TRY(jinja_iterate(r, args[0], &items));
    for (size_t i = 0; i < items->n && status == GPT_OK; i++) {
        const struct jinja_value item = items->items[i];

        if (item.kind != JINJA_STRING)
            status = jinja_fail(r, "'join' wants strings, not %s",
                                jinja_kind_name(item.kind));
        if (status == GPT_OK && i > 0)
            status = jinja_write(r, &b, self.s.data, self.s.len);
        if (status == GPT_OK)
            status = jinja_add_beside(r, &b, self.safe, item);
    }
    GPT_TRY(jinja_take_buffer(r, &b, status, v));
    v->safe = self.safe;
    return GPT_OK;
}

/* In characters, not bytes. */
METHOD(do_find)
{
    size_t at, chars = 0;

    if (args[0].kind != JINJA_STRING)
        return jinja_fail(r, "'find' wants a string");
    GPT_TRY(jinja_spend(r, self.s.len / 64));
    at = jinja_find_part(self.s, 0, args[0].s);
    *v = (struct jinja_value){.kind = JINJA_STRING, .s = {self.s.data, at}};
    if (at != SIZE_MAX)
        GPT_TRY(jinja_length(r, *v, &chars));
    *v = jinja_int(at == SIZE_MAX ? -1 : (int64_t)chars);
    return GPT_OK;
}

/* Without overlap, as they would be replaced. */
METHOD(do_count)
{
    int64_t n = 0;

    if (args[0].kind != JINJA_STRING || args[0].s.len == 0)
        return jinja_fail(r, "'count' wants a string that is not empty");
    GPT_TRY(jinja_spend(r, self.s.len / 64));
    for (size_t at = jinja_find_part(self.s, 0, args[0].s); at != SIZE_MAX; n++)
        at = jinja_find_part(self.s, at + args[0].s.len, args[0].s);
    *v = jinja_int(n);
    return GPT_OK;
}

/* Python knows digits of all scripts; they are refused here. */
METHOD(do_isdigit)
{
    (void)args;
    GPT_TRY(jinja_spend(r, self.s.len / 64));
    *v = jinja_bool(self.s.len > 0);
    for (size_t i = 0; i < self.s.len; i++) {
        if ((unsigned char)self.s.data[i] >= 0x80)
            return jinja_fail(r, "'isdigit' is known for ASCII alone");
        if (self.s.data[i] < '0' || self.s.data[i] > '9')
            v->i = 0;
    }
    return GPT_OK;
}

/* ---- methods of dicts ---- */

/* Missing is none, and not undefined as behind a point: templates compare
 * the result with none. */
METHOD(do_get)
{
    struct jinja_value *found;

    GPT_TRY(jinja_dict_find(r, self.dict, args[0], &found));
    *v = found ? *found : args[1];
    if (!found && args[1].kind == JINJA_ABSENT)
        v->kind = JINJA_NONE;
    return GPT_OK;
}

/* Pairs in the order in which the keys came, which is that of the JSON. */
METHOD(do_items)
{
    struct jinja_list *list;
    struct jinja_value pair;

    (void)args;
    GPT_TRY(jinja_list_new(r, &list));
    for (size_t i = 0; i < self.dict->keys.n; i++) {
        GPT_TRY(jinja_pair(r, self.dict->keys.items[i],
                           self.dict->values.items[i], &pair));
        GPT_TRY(jinja_list_add(r, list, pair));
    }
    *v = (struct jinja_value){.kind = JINJA_VIEW, .list = list};
    return GPT_OK;
}

/* The list of the dict itself, as lists are never changed. */
METHOD(do_keys)
{
    (void)r;
    (void)args;
    *v = (struct jinja_value){.kind = JINJA_VIEW, .list = &self.dict->keys};
    return GPT_OK;
}

/* In the order of the keys. */
METHOD(do_values)
{
    (void)r;
    (void)args;
    *v = (struct jinja_value){.kind = JINJA_VIEW, .list = &self.dict->values};
    return GPT_OK;
}

/* ---- methods of loops ---- */

/* One of the values after the other, in each turn of the loop. */
static int do_cycle(struct jinja_run *r, struct jinja_value self,
                    const struct jinja_list *args,
                    const struct jinja_dict *named, struct jinja_value *v)
{
    if (args->n == 0 || named->keys.n > 0)
        return jinja_fail(r, "'cycle' wants values");
    *v = args->items[self.loop->index % args->n];
    return GPT_OK;
}

/* True in the first turn, and when the value is another one than in the last
 * turn. */
METHOD(do_changed)
{
    bool equal = false;

    if (self.loop->changed.kind != JINJA_ABSENT)
        GPT_TRY(jinja_equal(r, self.loop->changed, args[0], &equal));
    self.loop->changed = args[0];
    *v = jinja_bool(!equal);
    return GPT_OK;
}

/* ---- the tables ---- */

static const struct method {
    enum jinja_kind kind;
    struct jinja_function f;
} methods[] = {
    {JINJA_STRING, {"strip", do_strip, {"chars"}, NULL}},
    {JINJA_STRING, {"lstrip", do_lstrip, {"chars"}, NULL}},
    {JINJA_STRING, {"rstrip", do_rstrip, {"chars"}, NULL}},
    {JINJA_STRING, {"split", do_split, {"sep", "maxsplit"}, NULL}},
    {JINJA_STRING, {"rsplit", do_rsplit, {"sep", "maxsplit"}, NULL}},
    {JINJA_STRING, {"splitlines", do_splitlines, {NULL}, NULL}},
    {JINJA_STRING, {"startswith", do_startswith, {"prefix"}, NULL}},
    {JINJA_STRING, {"endswith", do_endswith, {"suffix"}, NULL}},
    {JINJA_STRING, {"replace", do_replace, {"old", "new", "count"}, NULL}},
    {JINJA_STRING, {"upper", do_upper, {NULL}, NULL}},
    {JINJA_STRING, {"lower", do_lower, {NULL}, NULL}},
    {JINJA_STRING, {"title", do_title, {NULL}, NULL}},
    {JINJA_STRING, {"capitalize", do_capitalize, {NULL}, NULL}},
    {JINJA_STRING, {"join", do_join, {"iterable"}, NULL}},
    {JINJA_STRING, {"find", do_find, {"sub"}, NULL}},
    {JINJA_STRING, {"count", do_count, {"sub"}, NULL}},
    {JINJA_STRING, {"format", NULL, {NULL}, jinja_format}},
    {JINJA_STRING, {"isdigit", do_isdigit, {NULL}, NULL}},
    {JINJA_DICT, {"get", do_get, {"key", "default"}, NULL}},
    {JINJA_DICT, {"items", do_items, {NULL}, NULL}},
    {JINJA_DICT, {"keys", do_keys, {NULL}, NULL}},
    {JINJA_DICT, {"values", do_values, {NULL}, NULL}},
    {JINJA_LOOP, {"cycle", NULL, {NULL}, do_cycle}},
    {JINJA_LOOP, {"changed", do_changed, {"value"}, NULL}},
};

/* Methods of Python that are not here; those that change a list or a dict are
 * refused by Jinja's sandbox, too. */
static const struct {
    enum jinja_kind kind;
    const char *names;
} others[] = {
    {JINJA_STRING,
     " casefold center encode expandtabs format_map index isalnum "
     "isalpha isascii isdecimal isidentifier islower isnumeric isprintable "
     "isspace istitle isupper ljust partition removeprefix removesuffix rfind "
     "rindex rjust rpartition swapcase translate zfill "},
    {JINJA_LIST,
     " append clear copy count extend index insert pop remove reverse sort "},
    {JINJA_TUPLE, " count index "},
    {JINJA_RANGE, " count index start step stop "},
    {JINJA_VIEW, " isdisjoint mapping "},
    {JINJA_DICT, " clear copy fromkeys pop popitem setdefault update "},
};

/* A name that Python has and this table has not is reported by *known, so
 * that it can be refused by name. */
const struct jinja_function *jinja_find_method(enum jinja_kind kind,
                                               struct gpt_str name, bool *known)
{
    char word[32];

    *known = false;
    if (name.len == 0 || name.len > sizeof(word) - 3)
        return NULL;
    for (size_t i = 0; i < GPT_COUNT(methods); i++)
        if (methods[i].kind == kind &&
            gpt_str_equal(name, methods[i].f.name, strlen(methods[i].f.name)))
            return &methods[i].f;
    /* Names in the lists below stand between blanks, so that a part of a
     * name is not taken for one. */
    word[0] = ' ';
    memcpy(word + 1, name.data, name.len);
    memcpy(word + 1 + name.len, " ", 2);
    for (size_t i = 0; i < GPT_COUNT(others); i++)
        *known |= others[i].kind == kind && strstr(others[i].names, word);
    return NULL;
}
