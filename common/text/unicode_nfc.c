/* Normalization forms (UAX #15). Start at gpt_nfc(), of form C, and see
 * gpt_to_form() at the end for the others, which leave steps out or add some.
 *
 * Nearly all text is in form C already and is only read. What is not is put
 * right in stretches between boundaries. A boundary is a character of class 0
 * that neither changes nor joins what is before it: no rule reaches across its
 * beginning, so that a stretch can be normalized as if it were a text. In a
 * stretch the three steps of the standard follow each other: decompose all
 * characters, sort marks by class, compose again. */
#include "text/unicode_forms.h"

#include "base/utf8.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_UNSTABLE = 0x300, /* no character before it is */
    FIRST_COMPAT = 0xA0, /* no character before it has such a mapping */
    L_BASE = 0x1100, V_BASE = 0x1161, T_BASE = 0x11A7, S_BASE = 0xAC00,
    L_COUNT = 19, V_COUNT = 21, T_COUNT = 28, S_COUNT = 11172,
};

static struct gpt_nfc_kind_info kind_of(uint32_t cp)
{
    if (cp < FIRST_UNSTABLE || cp >= gpt_nfc_limit)
        return (struct gpt_nfc_kind_info){0, 0};
    unsigned group = gpt_nfc_index[cp >> 7];
    return gpt_nfc_kinds[gpt_nfc_kind[group << 7 | (cp & 127)]];
}

/* ---- what needs no change ---- */

/* True for a character that nothing before it acts on; *n is its length. A byte
 * that is not UTF-8 is such a character, as it never changes. */
static bool is_boundary(const uint8_t *p, size_t len, size_t *n)
{
    uint32_t cp;
    int bytes = gpt_utf8_decode(p, len, &cp);

    *n = bytes ? (size_t)bytes : 1;
    struct gpt_nfc_kind_info kind = kind_of(bytes ? cp : 0);
    return kind.class == 0 && !kind.unstable;
}

/* First position from i on that is not ASCII. */
static size_t skip_ascii(const uint8_t *p, size_t i, size_t len)
{
    uint64_t word;

    for (; len - i >= sizeof(word); i += sizeof(word)) {
        memcpy(&word, p + i, sizeof(word));
        if (word & 0x8080808080808080u)
            break;
    }
    while (i < len && p[i] < 0x80)
        i++;
    return i;
}

/* The quick check of UAX #15, section 9, but a character that may change counts
 * as one that does. What it returns is the last boundary before that place, as
 * the characters between may be part of the change. */
size_t gpt_nfc_stable(const char *text, size_t len)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t i = 0, boundary = 0;
    unsigned last_class = 0;

    while (i < len) {
        /* each ASCII character is a boundary, the last one the nearest */
        if (p[i] < 0x80) {
            i = skip_ascii(p, i, len);
            boundary = i - 1;
            last_class = 0;
            continue;
        }
        uint32_t cp;
        int n = gpt_utf8_decode(p + i, len - i, &cp);
        struct gpt_nfc_kind_info kind = kind_of(n ? cp : 0);
        /* marks out of order change, too */
        if (kind.unstable || (kind.class && kind.class < last_class))
            return boundary;
        if (kind.class == 0)
            boundary = i;
        last_class = kind.class;
        i += n ? (size_t)n : 1;
    }
    return len;
}

/* ---- decomposition ---- */

/* Characters of a stretch: class << 53 | position << 21 | code point. Sorted as
 * numbers, marks come into canonical order, and the position makes the sort
 * stable, which qsort() is not. */
struct letters {
    uint64_t *at;
    size_t n, cap;
    bool compat, apart; /* with compatibility mappings; not composed again */
};

static uint32_t cp_of(uint64_t letter)
{
    return (uint32_t)(letter & 0x1FFFFF);
}

static unsigned class_of(uint64_t letter)
{
    return (unsigned)(letter >> 53);
}

static int add_letter(struct letters *l, uint32_t cp, struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&l->at, &l->cap, l->n + 1, sizeof(*l->at),
                     "a text to normalize", err));
    l->at[l->n] = (uint64_t)kind_of(cp).class << 53 |
                  (uint64_t)(uint32_t)l->n << 21 | cp;
    l->n++;
    return GPT_OK;
}

static int compare_mapping(const void *key, const void *row)
{
    uint32_t a = *(const uint32_t *)key;
    uint32_t b = ((const struct gpt_nfc_mapping *)row)->cp;

    return (a > b) - (a < b);
}

static const struct gpt_nfc_mapping *
find_mapping(uint32_t cp, const struct gpt_nfc_mapping *mappings, size_t n)
{
    return bsearch(&cp, mappings, n, sizeof(*mappings), compare_mapping);
}

/* The mapping of a compatibility character, NULL for others. */
static const struct gpt_nfc_mapping *compat_of(uint32_t cp)
{
    return cp < FIRST_COMPAT ? NULL
                             : find_mapping(cp, gpt_compat_mappings,
                                            gpt_compat_n_mappings);
}

static int add_mapping(struct letters *l, const struct gpt_nfc_mapping *m,
                       const uint32_t *letters, struct gpt_err *err)
{
    for (unsigned i = 0; i < m->n; i++)
        GPT_TRY(add_letter(l, letters[m->first + i], err));
    return GPT_OK;
}

static int decompose(struct letters *l, uint32_t cp, struct gpt_err *err)
{
    uint32_t s = cp - S_BASE; /* Hangul syllables go by arithmetic */

    if (s < S_COUNT) {
        GPT_TRY(add_letter(l, L_BASE + s / (V_COUNT * T_COUNT), err));
        GPT_TRY(add_letter(l, V_BASE + s / T_COUNT % V_COUNT, err));
        return s % T_COUNT ? add_letter(l, T_BASE + s % T_COUNT, err) : GPT_OK;
    }
    const struct gpt_nfc_mapping *compat = l->compat ? compat_of(cp) : NULL;
    if (compat)
        return add_mapping(l, compat, gpt_compat_letters, err);
    const struct gpt_nfc_mapping *m =
        cp < 0x80 ? NULL
                  : find_mapping(cp, gpt_nfc_mappings, gpt_nfc_n_mappings);
    return m ? add_mapping(l, m, gpt_nfc_letters, err) : add_letter(l, cp, err);
}

static int compare_letters(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Sorts each run of marks by class. */
static void reorder(struct letters *l)
{
    for (size_t i = 0, end; i < l->n; i = end) {
        end = i + 1;
        if (class_of(l->at[i]) == 0)
            continue;
        bool sorted = true;
        for (; end < l->n && class_of(l->at[end]); end++)
            sorted = sorted && l->at[end - 1] < l->at[end];
        if (!sorted)
            qsort(l->at + i, end - i, sizeof(*l->at), compare_letters);
    }
}

/* ---- composition ---- */

static int compare_pair(const void *key, const void *row)
{
    const struct gpt_nfc_pair *a = key, *b = row;

    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return (a->second > b->second) - (a->second < b->second);
}

/* The character that two make, 0 when they make none. Hangul goes by
 * arithmetic, the others by the table, from which the standard's exclusions are
 * left out. */
static uint32_t compose_pair(uint32_t first, uint32_t second)
{
    uint32_t l = first - L_BASE, v = second - V_BASE, s = first - S_BASE;

    if (l < L_COUNT && v < V_COUNT)
        return S_BASE + (l * V_COUNT + v) * T_COUNT;
    if (s < S_COUNT && s % T_COUNT == 0 && second > T_BASE &&
        second < T_BASE + T_COUNT)
        return first + second - T_BASE;
    struct gpt_nfc_pair key = {first, second, 0};
    const struct gpt_nfc_pair *pair = bsearch(
        &key, gpt_nfc_pairs, gpt_nfc_n_pairs, sizeof(*pair), compare_pair);
    return pair ? pair->joined : 0;
}

/* Joins each character to the starter before it, unless one between them blocks
 * it: one of the same or a higher class. The result is written over the list,
 * as it is never longer. */
static void compose(struct letters *l)
{
    size_t n = 0, starter = 0;
    bool have_starter = false;

    for (size_t i = 0; i < l->n; i++) {
        uint64_t letter = l->at[i];
        unsigned class = class_of(letter);
        bool free = have_starter &&
                    (n == starter + 1 || class_of(l->at[n - 1]) < class);
        uint32_t joined =
            free ? compose_pair(cp_of(l->at[starter]), cp_of(letter)) : 0;

        if (joined) {
            l->at[starter] = joined;
            continue;
        }
        if (class == 0) {
            starter = n;
            have_starter = true;
        }
        assert(n <= i);
        l->at[n++] = letter;
    }
    l->n = n;
}

/* ---- the whole ---- */

static int add_stretch(struct gpt_buf *out, struct letters *l,
                       const uint8_t *p, size_t len, struct gpt_err *err)
{
    l->n = 0;
    for (size_t i = 0; i < len;) {
        uint32_t cp = 0;
        const int n = gpt_utf8_decode(p + i, len - i, &cp);

        assert(n > 0); /* stretches are cut between characters */
        i += n ? (size_t)n : 1;
        GPT_TRY(decompose(l, cp, err));
    }
    reorder(l);
    if (!l->apart)
        compose(l);
    for (size_t i = 0; i < l->n; i++) {
        char utf8[4];
        int n = gpt_utf8_encode(cp_of(l->at[i]), utf8);

        if (gpt_buf_add(out, utf8, (size_t)n) != GPT_OK)
            return gpt_no_memory(err, "a text");
    }
    return GPT_OK;
}

static int add_text(struct gpt_buf *out, const uint8_t *p, size_t len,
                    struct gpt_err *err)
{
    return gpt_buf_add(out, p, len) == GPT_OK
               ? GPT_OK
               : gpt_no_memory(err, "a text");
}

/* Appends the next part of text[0..len) in form C, len > 0, and returns in
 * *used how much that was: what is stable, and the stretch after it. */
static int add_part(struct gpt_buf *out, struct letters *l, const uint8_t *p,
                    size_t len, size_t *used, struct gpt_err *err)
{
    size_t n, end = gpt_nfc_stable((const char *)p, len);
    uint32_t cp;

    /* a stray byte at the last boundary is a stable text of its own */
    if (end < len && gpt_utf8_decode(p + end, len - end, &cp) == 0)
        end++;
    GPT_TRY(add_text(out, p, end, err));
    *used = end;
    if (end == len)
        return GPT_OK;
    is_boundary(p + end, len - end, &n); /* for the length of the first one */
    for (end += n; end < len && !is_boundary(p + end, len - end, &n);)
        end += n;
    assert(end <= len);
    GPT_TRY(add_stretch(out, l, p + *used, end - *used, err));
    *used = end;
    return GPT_OK;
}

int gpt_nfc(struct gpt_buf *out, const char *text, size_t len,
            struct gpt_err *err)
{
    const uint8_t *p = (const uint8_t *)text;
    struct letters letters = {0};
    size_t used;
    int status = GPT_OK;

    for (; len; p += used, len -= used)
        GPT_TRY_GOTO(status, add_part(out, &letters, p, len, &used, err), out);
out:
    gpt_free(letters.at);
    return status;
}

/* ---- the other forms ---- */

/* Bytes of a stretch: a character, and those after it that are no boundaries in
 * any form. What is ASCII is one, of which all but the last stay as they are:
 * *same says so. */
static size_t next_stretch(const struct letters *l, const uint8_t *p,
                           size_t len, bool *same)
{
    const size_t ascii = skip_ascii(p, 0, len);
    size_t end, n;
    uint32_t cp;

    *same = ascii == len || ascii > 1;
    if (*same)
        return ascii == len ? len : ascii - 1;
    is_boundary(p, len, &end);
    while (end < len && (!is_boundary(p + end, len - end, &n) ||
                         (l->compat &&
                          gpt_utf8_decode(p + end, len - end, &cp) &&
                          compat_of(cp))))
        end += n;
    return end;
}

int gpt_to_form(struct gpt_buf *out, enum gpt_form form, const char *text,
                size_t len, struct gpt_err *err)
{
    const uint8_t *p = (const uint8_t *)text;
    struct letters letters = {
        .compat = form == GPT_FORM_KC || form == GPT_FORM_KD,
        .apart = form == GPT_FORM_D || form == GPT_FORM_KD,
    };
    int status = GPT_OK;

    if (form == GPT_FORM_C)
        return gpt_nfc(out, text, len, err);
    while (len && status == GPT_OK) {
        bool same;
        const size_t n = next_stretch(&letters, p, len, &same);

        status = same ? add_text(out, p, n, err)
                      : add_stretch(out, &letters, p, n, err);
        p += n;
        len -= n;
    }
    gpt_free(letters.at);
    return status;
}
