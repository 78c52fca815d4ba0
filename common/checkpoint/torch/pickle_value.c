/* Reading the values of a pickle: what is a number, what has keys, and a text
 * of it for people. Names of Python that mean something to every reader are
 * here; those of PyTorch alone are in torch.c. */
#include "checkpoint/torch/pickle.h"

#include "base/num.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Text of a node has no NUL at its end, so lengths are compared first. */
static bool text_is(const struct gpt_pickle_value *v, const char *text)
{
    size_t n = strlen(text);

    return v->n == n && memcmp(v->text, text, n) == 0;
}

bool gpt_pickle_is(const struct gpt_pickle_value *v, const char *text)
{
    return v && v->kind == GPT_PICKLE_STRING && text_is(v, text);
}

bool gpt_pickle_is_global(const struct gpt_pickle_value *v, const char *name)
{
    return v && v->kind == GPT_PICKLE_GLOBAL && text_is(v, name);
}

bool gpt_pickle_is_call(const struct gpt_pickle_value *v, const char *name)
{
    return v && v->kind == GPT_PICKLE_OBJECT &&
           gpt_pickle_is_global(v->callee, name);
}

/* ---- numbers ---- */

/* Decodes bytes of protocol 2, which are a call: of a string whose characters,
 * all below 256, are the bytes in UTF-8. Returns how many there are, or -1. */
static int decode_bytes(const struct gpt_pickle_value *v, uint8_t *out, int cap)
{
    int n = 0;

    if (v && v->kind == GPT_PICKLE_BLOB && v->n <= (uint32_t)cap) {
        memcpy(out, v->text, v->n);
        return (int)v->n;
    }
    if (!gpt_pickle_is_call(v, "_codecs.encode") || v->args->n != 2 ||
        !gpt_pickle_is(v->args->items[1], "latin1") ||
        (v->args->items[0]->kind != GPT_PICKLE_STRING &&
         v->args->items[0]->kind != GPT_PICKLE_BLOB)) /* one with a NUL */
        return -1;
    const struct gpt_pickle_value *s = v->args->items[0];
    for (uint32_t i = 0; i < s->n && n < cap; i++) {
        uint8_t c = (uint8_t)s->text[i];

        if (c >= 0xc4) /* over 255 */
            return -1;
        if (c >= 0xc2 && i + 1 < s->n)
            c = (uint8_t)(c << 6 | ((uint8_t)s->text[++i] & 0x3f));
        out[n++] = c;
    }
    return n;
}

/* Reads numpy.float64(x) and the like: scalar(dtype, bytes), where the dtype is
 * dtype('f8', ...) with a state that has the order of bytes. Returns the kind
 * letter, or 0. */
static char numpy_scalar(const struct gpt_pickle_value *v, uint8_t *bytes,
                         int *n)
{
    if (!gpt_pickle_is_call(v, "numpy.core.multiarray.scalar") &&
        !gpt_pickle_is_call(v, "numpy._core.multiarray.scalar"))
        return 0;
    if (v->args->n != 2)
        return 0;
    const struct gpt_pickle_value *type = v->args->items[0];
    if (!gpt_pickle_is_call(type, "numpy.dtype") || type->args->n < 1 ||
        type->args->items[0]->kind != GPT_PICKLE_STRING ||
        type->args->items[0]->n != 2 || !type->state ||
        type->state->kind != GPT_PICKLE_TUPLE || type->state->n < 2 ||
        gpt_pickle_is(type->state->items[1], ">"))
        return 0;
    const char *letters = type->args->items[0]->text;
    *n = decode_bytes(v->args->items[1], bytes, 8);
    return *n > 0 && *n == letters[1] - '0' ? letters[0] : 0;
}

/* Numbers from numpy are everywhere in arguments that a user computed. One that
 * is unsigned and over 63 bits has no int64_t. */
bool gpt_pickle_int(const struct gpt_pickle_value *v, int64_t *out)
{
    uint8_t bytes[8] = {0};
    int n;

    if (v && (v->kind == GPT_PICKLE_INT || v->kind == GPT_PICKLE_BOOL)) {
        *out = v->i;
        return true;
    }
    char kind = v ? numpy_scalar(v, bytes, &n) : 0;
    if (kind != 'i' && kind != 'u' && kind != 'b')
        return false;
    /* two's complement, widened by its sign */
    if (kind == 'i' && bytes[n - 1] & 0x80)
        memset(bytes + n, 0xff, sizeof(bytes) - (size_t)n);
    *out = (int64_t)gpt_get_u64(bytes);
    return kind != 'u' || *out >= 0;
}

/* Integers count: Python writes lr = 1 as one. */
bool gpt_pickle_real(const struct gpt_pickle_value *v, double *out)
{
    uint8_t bytes[8] = {0};
    int64_t i;
    int n;
    float f;

    if (v && v->kind == GPT_PICKLE_FLOAT) {
        *out = v->f;
        return true;
    }
    if (gpt_pickle_int(v, &i)) {
        *out = (double)i;
        return true;
    }
    if (!v || numpy_scalar(v, bytes, &n) != 'f' || (n != 4 && n != 8))
        return false;
    /* the four bytes of a float32, or the first four of a float64 */
    memcpy(&f, bytes, sizeof(f));
    *out = (double)f;
    if (n == 8)
        memcpy(out, bytes, sizeof(*out));
    return true;
}

/* ---- containers ---- */

/* Python 2 wrote an OrderedDict as a call with a list of pairs. */
static const struct gpt_pickle_value *
listed_pairs(const struct gpt_pickle_value *v)
{
    if (v->kind != GPT_PICKLE_OBJECT || v->n || v->args->n != 1 ||
        !gpt_pickle_is_global(v->callee, "collections.OrderedDict") ||
        v->args->items[0]->kind != GPT_PICKLE_LIST)
        return NULL;
    return v->args->items[0];
}

/* An OrderedDict's state is that of its attributes ("_metadata" of a state
 * dict), which are not its keys. */
const struct gpt_pickle_value *
gpt_pickle_mapping(const struct gpt_pickle_value *v)
{
    if (!v)
        return NULL;
    if (v->kind == GPT_PICKLE_DICT)
        return v;
    if (v->kind != GPT_PICKLE_OBJECT)
        return NULL;
    /* other classes may be dicts, too: what took pairs is one */
    if ((v->paired && v->n) || listed_pairs(v) ||
        gpt_pickle_is_global(v->callee, "collections.OrderedDict"))
        return v;
    return v->state && v->state->kind == GPT_PICKLE_DICT ? v->state : NULL;
}

/* An object that took items without keys has no pairs. */
int64_t gpt_pickle_pairs(const struct gpt_pickle_value *mapping)
{
    const struct gpt_pickle_value *list = listed_pairs(mapping);

    if (list)
        return list->n;
    return mapping->paired ? mapping->n / 2 : 0;
}

/* A listed pair that is none counts as a pair of itself, so that it is shown
 * and matches no name. */
void gpt_pickle_pair(const struct gpt_pickle_value *mapping, int64_t i,
                     const struct gpt_pickle_value **key,
                     const struct gpt_pickle_value **value)
{
    const struct gpt_pickle_value *list = listed_pairs(mapping);

    if (!list) {
        *key = mapping->items[2 * i];
        *value = mapping->items[2 * i + 1];
        return;
    }
    *key = *value = list->items[i];
    if ((*key)->kind == GPT_PICKLE_LIST || (*key)->kind == GPT_PICKLE_TUPLE)
        if ((*key)->n == 2) {
            *value = list->items[i]->items[1];
            *key = list->items[i]->items[0];
        }
}

/* By comparison with each key: trees that are looked into have few keys, and
 * tables of tensors are indexed by others. */
const struct gpt_pickle_value *gpt_pickle_find(const struct gpt_pickle_value *v,
                                               const char *key)
{
    const struct gpt_pickle_value *k, *value;
    const struct gpt_pickle_value *mapping = gpt_pickle_mapping(v);

    if (!mapping)
        return NULL;
    /* from the end, so that of equal keys the last one counts */
    for (int64_t i = gpt_pickle_pairs(mapping); i-- > 0;) {
        gpt_pickle_pair(mapping, i, &k, &value);
        if (gpt_pickle_is(k, key))
            return value;
    }
    return NULL;
}

/* True for a key that is known, and for what is no text and so cannot be
 * named. */
static bool is_known(const struct gpt_pickle_value *key,
                     const char *const *known)
{
    if (key->kind != GPT_PICKLE_STRING)
        return true;
    for (; *known; known++) {
        const size_t n = strcspn(*known, "*");

        if ((*known)[n] ? key->n >= n && memcmp(key->text, *known, n) == 0
                        : text_is(key, *known))
            return true;
    }
    return false;
}

/* None is no value, and neither are containers without items. */
const char *gpt_pickle_others(const struct gpt_pickle_value *v,
                              const char *const *known,
                              struct gpt_arena *arena)
{
    enum { LONGEST = 60, MOST = 16 };
    const struct gpt_pickle_value *map = gpt_pickle_mapping(v), *key, *value;
    const char *list = NULL;
    int n = 0;

    for (int64_t i = 0; map && i < gpt_pickle_pairs(map) && n < MOST; i++) {
        gpt_pickle_pair(map, i, &key, &value);
        if (is_known(key, known) || value->kind == GPT_PICKLE_NONE ||
            (value->kind >= GPT_PICKLE_LIST &&
             value->kind <= GPT_PICKLE_DICT && value->n == 0))
            continue;
        list = gpt_arena_printf(arena, "%s%s%.*s", list ? list : "",
                                list ? ", " : "",
                                key->n < LONGEST ? (int)key->n : LONGEST,
                                key->text);
        n++;
    }
    return list;
}

/* torch.Size is a tuple with a name. */
bool gpt_pickle_sequence(const struct gpt_pickle_value *v,
                         struct gpt_pickle_value ***items, int64_t *n)
{
    if (v && gpt_pickle_is_call(v, "torch.Size") && v->args->n == 1)
        v = v->args->items[0];
    if (!v || (v->kind != GPT_PICKLE_LIST && v->kind != GPT_PICKLE_TUPLE &&
               v->kind != GPT_PICKLE_SET))
        return false;
    *items = v->items;
    *n = v->n;
    return true;
}

bool gpt_pickle_sizes(const struct gpt_pickle_value *v, int most, int64_t *out,
                      int *n)
{
    struct gpt_pickle_value **items;
    int64_t count;

    if (!gpt_pickle_sequence(v, &items, &count) || count > most)
        return false;
    for (int64_t i = 0; i < count; i++)
        if (!gpt_pickle_int(items[i], &out[i]) || out[i] < 0)
            return false;
    *n = (int)count;
    return true;
}

/* ---- text ---- */

/* A key and its value count as one of `most`. */
static int print_values(struct gpt_buf *b, struct gpt_pickle_value **items,
                        int64_t n, bool paired, const char *brackets, int depth,
                        int64_t most)
{
    const int step = paired ? 2 : 1;

    GPT_TRY(gpt_buf_add(b, brackets, 1));
    for (int64_t i = 0; i + step <= n; i += step) {
        if (i)
            GPT_TRY(gpt_buf_printf(b, ", "));
        if (depth <= 0 || i >= most * step) {
            GPT_TRY(gpt_buf_printf(b, "..."));
            break;
        }
        GPT_TRY(gpt_pickle_print(b, items[i], depth - 1, most));
        if (!paired)
            continue;
        GPT_TRY(gpt_buf_printf(b, ": "));
        GPT_TRY(gpt_pickle_print(b, items[i + 1], depth - 1, most));
    }
    return gpt_buf_add(b, brackets + 1, 1);
}

/* Prints a call: its name, its arguments, and what was set afterwards. */
static int print_object(struct gpt_buf *b, const struct gpt_pickle_value *v,
                        int depth, int64_t most)
{
    if (depth < 0)
        return gpt_buf_printf(b, "...");
    GPT_TRY(gpt_pickle_print(b, v->callee, depth - 1, most));
    GPT_TRY(
        print_values(b, v->args->items, v->args->n, false, "()", depth, most));
    if (v->n)
        GPT_TRY(print_values(b, v->items, v->n, v->paired,
                             v->paired ? "{}" : "[]", depth, most));
    /* what __setstate__() or the attributes would be */
    if (!v->state)
        return GPT_OK;
    GPT_TRY(gpt_buf_printf(b, " with "));
    return gpt_pickle_print(b, v->state, depth - 1, most);
}

/* Prints the shortest text that reads back as the same double, as Python
 * does. */
static int print_number(struct gpt_buf *b, const struct gpt_pickle_value *v)
{
    if (v->kind == GPT_PICKLE_BOOL)
        return gpt_buf_printf(b, v->i ? "True" : "False");
    if (v->kind == GPT_PICKLE_INT)
        return gpt_buf_printf(b, "%lld", (long long)v->i);
    if (!isfinite(v->f))
        return gpt_buf_printf(b, isnan(v->f) ? "nan"
                                 : v->f > 0  ? "inf"
                                             : "-inf");
    for (int digits = 6; digits <= 17; digits++) {
        char text[40];

        snprintf(text, sizeof(text), "%.*g", digits, v->f);
        if (digits == 17 ||
            !(strtod(text, NULL) < v->f || strtod(text, NULL) > v->f))
            return gpt_buf_printf(b, "%s%s", text,
                                  strpbrk(text, ".en") ? "" : ".0");
    }
    return GPT_OK;
}

/* Depth bounds both a file's nesting and its circles: a list may hold itself.
 * The text of a level has at most `most` values, so the whole is bounded,
 * too. */
int gpt_pickle_print(struct gpt_buf *b, const struct gpt_pickle_value *v,
                     int depth, int64_t most)
{
    switch ((enum gpt_pickle_kind)v->kind) {
    case GPT_PICKLE_NONE:
        return gpt_buf_printf(b, "None");
    case GPT_PICKLE_BOOL:
    case GPT_PICKLE_INT:
    case GPT_PICKLE_FLOAT:
        return print_number(b, v);
    case GPT_PICKLE_LONG:
        return gpt_buf_printf(b, "<a number of %u bits>", v->n * 8);
    case GPT_PICKLE_BLOB:
        return gpt_buf_printf(b, "<%u bytes>", v->n);
    case GPT_PICKLE_STRING:
    case GPT_PICKLE_GLOBAL:
        return gpt_buf_add(b, v->text, v->n);
    case GPT_PICKLE_LIST:
        return print_values(b, v->items, v->n, false, "[]", depth, most);
    case GPT_PICKLE_TUPLE:
        return print_values(b, v->items, v->n, false, "()", depth, most);
    case GPT_PICKLE_SET:
    case GPT_PICKLE_DICT:
        return print_values(b, v->items, v->n, v->paired, "{}", depth, most);
    case GPT_PICKLE_OBJECT:
        return print_object(b, v, depth, most);
    case GPT_PICKLE_PERSISTENT:
        return gpt_buf_printf(b, "<persistent>");
    }
    return GPT_OK;
}
