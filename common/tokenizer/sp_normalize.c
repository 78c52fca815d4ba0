/* Normalization: see sp_normalize.h. Start at gpt_sp_normalize().
 *
 * A text is taken part by part from its beginning: a part is the longest text
 * that the model's map has a rule for, or one character. What the rule gives is
 * not looked at again. Spaces are decided on the result, so that a rule may
 * make them: runs become one, none is at the beginning or the end.
 *
 * The map is a trie as a double array: from unit `at` the child by byte c is
 * unit at ^ c, if that unit's label is c. A position that is not in the array
 * or in the texts ends a search as if there were no rule, so that a damaged map
 * can do no harm. */
#include "tokenizer/sp_normalize.h"

#include "base/utf8.h"

#include <assert.h>
#include <string.h>

static uint32_t load32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
           (uint32_t)p[3] << 24;
}

int gpt_sp_map_open(struct gpt_sp_map *map, struct gpt_str blob,
                    const char *path, struct gpt_err *err)
{
    const uint8_t *p = (const uint8_t *)blob.data;

    *map = (struct gpt_sp_map){0};
    if (blob.len == 0)
        return GPT_OK;
    if (blob.len <= 4 || load32(p) >= blob.len - 4 || load32(p) < 4)
        return gpt_fail(err, GPT_EDATA, "%s: precompiled_charsmap is "
                        "malformed", path);
    size_t n = load32(p);
    map->units = p + 4;
    map->n_units = n / 4;
    map->texts = blob.data + 4 + n;
    map->n_text = blob.len - 4 - n;
    return GPT_OK;
}

/* ---- the map ---- */

/* A unit: bits 0-7 label, 8 has a leaf, 9 the offset is shifted, 10-30 offset,
 * 31 is a leaf, whose other bits are the value. */
static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

static uint32_t unit_at(const struct gpt_sp_map *map, uint32_t at)
{
    return at < map->n_units ? load32(map->units + (size_t)at * 4)
                             : UINT32_MAX;
}

/* Bytes of the longest or the shortest rule that text begins with, and its
 * result; 0: none. Each step takes a byte of the text, so that it ends whatever
 * the units hold. */
static size_t find_rule(const struct gpt_sp_map *map, bool shortest,
                        const char *text, size_t len, struct gpt_str *result)
{
    size_t longest = 0;

    if (!map->units)
        return 0;
    uint32_t at = offset_of(unit_at(map, 0));
    for (size_t i = 0; i < len; i++) {
        at ^= (uint8_t)text[i];
        uint32_t unit = unit_at(map, at);
        if ((unit & (1u << 31 | 0xFF)) != (uint8_t)text[i])
            break;
        at ^= offset_of(unit);
        if (!(unit >> 8 & 1))
            continue;
        uint32_t value = unit_at(map, at) & 0x7FFFFFFF;
        if (value >= map->n_text)
            break;
        const char *start = map->texts + value;
        *result = (struct gpt_str){start,
                                     strnlen(start, map->n_text - value)};
        longest = i + 1;
        if (shortest)
            break;
    }
    return longest;
}

/* A NUL ends the library's search. A result that begins inside a character is
 * that of a damaged map. */
bool gpt_sp_map_shortest(const struct gpt_sp_map *map, const char *text,
                         size_t len, struct gpt_str *result)
{
    return find_rule(map, true, text, strnlen(text, len), result) > 0 &&
           ((uint8_t)result->data[0] & 0xC0) != 0x80;
}

/* Bytes of ASCII other than spaces that text begins with, where the model has
 * no rules and no user-defined pieces, so that they stay as they are. Only for
 * speed: most models of today have no map. */
static size_t plain_ascii(const struct gpt_sp_model *m,
                          const struct gpt_sp_map *map, const char *text,
                          size_t len)
{
    size_t n = 0;

    if (map->units || m->longest_user)
        return 0;
    while (n < len && text[n] != ' ' && !((uint8_t)text[n] & 0x80))
        n++;
    return n;
}

/* What the beginning of a text becomes; returns the bytes that it takes. A byte
 * that is not UTF-8 becomes U+FFFD. */
static size_t next_part(const struct gpt_sp_model *m,
                        const struct gpt_sp_map *map, const char *text,
                        size_t len, struct gpt_str *part)
{
    assert(len > 0);
    uint32_t cp;
    size_t n = m->longest_user ? gpt_sp_user_prefix(m, text, len)
                               : plain_ascii(m, map, text, len);

    if (n == 0) {
        n = find_rule(map, false, text, len, part);
        if (n)
            return n;
        n = (size_t)gpt_utf8_decode((const uint8_t *)text, len, &cp);
    }
    *part = n ? (struct gpt_str){text, n}
              : (struct gpt_str){"\xEF\xBF\xBD", 3};
    return n ? n : 1;
}

/* ---- spaces ---- */

/* Some models keep spaces as they are. */
static int add_space(const struct gpt_sp_model *m, struct gpt_buf *out)
{
    return m->escape_spaces ? gpt_buf_add(out, GPT_SP_SPACE, 3)
                            : gpt_buf_add(out, " ", 1);
}

/* Appends a part, with its spaces as the model writes them. */
static int add_part(const struct gpt_sp_model *m, struct gpt_buf *out,
                    struct gpt_str part)
{
    while (part.len) {
        const char *space =
            m->escape_spaces ? memchr(part.data, ' ', part.len) : NULL;
        size_t n = space ? (size_t)(space - part.data) : part.len;

        GPT_TRY(gpt_buf_add(out, part.data, n));
        if (space)
            GPT_TRY(add_space(m, out));
        part.data += n + (space != NULL);
        part.len -= n + (space != NULL);
    }
    return GPT_OK;
}

/* The result is trimmed, as a rule may have made the spaces. */
static void drop_last_spaces(const struct gpt_sp_model *m, struct gpt_buf *out)
{
    const char *space = m->escape_spaces ? GPT_SP_SPACE : " ";
    size_t n = strlen(space);

    while (out->len >= n && memcmp(out->data + out->len - n, space, n) == 0)
        out->len -= n;
}

/* Bytes of the spaces that the text begins with, once mapped. */
static size_t first_spaces(const struct gpt_sp_model *m,
                           const struct gpt_sp_map *map, const char *text,
                           size_t len)
{
    size_t at = 0;

    while (at < len) {
        struct gpt_str part;
        size_t n = next_part(m, map, text + at, len - at, &part);

        if (part.len != 1 || part.data[0] != ' ')
            break;
        at += n;
    }
    return at;
}

/* Fails only when memory is out, and then without a message. */
static int normalize(const struct gpt_sp_model *m,
                     const struct gpt_sp_map *map, const char *text,
                     size_t len, struct gpt_buf *out)
{
    size_t at = m->remove_spaces ? first_spaces(m, map, text, len) : 0;
    bool after_space = m->remove_spaces;

    if (at == len)
        return GPT_OK;
    if (m->dummy_prefix)
        GPT_TRY(add_space(m, out));
    while (at < len) {
        struct gpt_str part;

        at += next_part(m, map, text + at, len - at, &part);
        /* of several spaces in a row the first one stays */
        for (; after_space && part.len && part.data[0] == ' '; part.len--)
            part.data++;
        if (part.len) {
            GPT_TRY(add_part(m, out, part));
            after_space =
                m->remove_spaces && part.data[part.len - 1] == ' ';
        }
    }
    if (m->remove_spaces)
        drop_last_spaces(m, out);
    return GPT_OK;
}

int gpt_sp_normalize(const struct gpt_sp_model *m,
                     const struct gpt_sp_map *map, const char *text,
                     size_t len, struct gpt_buf *out, struct gpt_err *err)
{
    out->len = 0;
    return normalize(m, map, text, len, out) == GPT_OK
               ? GPT_OK
               : gpt_no_memory(err, "a text");
}
