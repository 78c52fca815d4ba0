/* Normalization form C (UAX #15). Nearly all text is in form C already and is
 * only looked at; what is not is put right from one stable starter to the
 * next: a character of class 0 that neither changes nor joins what is before
 * it. Start at gpt_nfc(). */
#include "text/unicode_nfc.h"

#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST_UNSTABLE = 0x300, /* no character before it is */
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

/* A character that nothing before it acts on, and length of it. Bytes that are
 * not UTF-8 are such. */
static bool is_fence(const uint8_t *p, size_t len, size_t *n)
{
    uint32_t cp;
    int bytes = gpt_utf8_decode(p, len, &cp);

    *n = bytes ? (size_t)bytes : 1;
    struct gpt_nfc_kind_info kind = kind_of(bytes ? cp : 0);
    return kind.class == 0 && !kind.unstable;
}

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

size_t gpt_nfc_stable(const char *text, size_t len)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t i = 0, fence = 0;
    unsigned last_class = 0;

    while (i < len) {
        if (p[i] < 0x80) {
            i = skip_ascii(p, i, len);
            fence = i - 1;
            last_class = 0;
            continue;
        }
        uint32_t cp;
        int n = gpt_utf8_decode(p + i, len - i, &cp);
        struct gpt_nfc_kind_info kind = kind_of(n ? cp : 0);
        if (kind.unstable || (kind.class && kind.class < last_class))
            return fence;
        if (kind.class == 0)
            fence = i;
        last_class = kind.class;
        i += n ? (size_t)n : 1;
    }
    return len;
}

/* ---- decomposition ---- */

/* Characters of a stretch: class << 53 | position << 21 | code point, so that
 * sorting brings marks into canonical order. */
struct letters {
    uint64_t *at;
    size_t n, cap;
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

static int decompose(struct letters *l, uint32_t cp, struct gpt_err *err)
{
    uint32_t s = cp - S_BASE;

    if (s < S_COUNT) {
        GPT_TRY(add_letter(l, L_BASE + s / (V_COUNT * T_COUNT), err));
        GPT_TRY(add_letter(l, V_BASE + s / T_COUNT % V_COUNT, err));
        return s % T_COUNT ? add_letter(l, T_BASE + s % T_COUNT, err) : GPT_OK;
    }
    const struct gpt_nfc_mapping *m =
        bsearch(&cp, gpt_nfc_mappings, gpt_nfc_n_mappings, sizeof(*m),
                compare_mapping);
    if (!m)
        return add_letter(l, cp, err);
    for (unsigned i = 0; i < m->n; i++)
        GPT_TRY(add_letter(l, gpt_nfc_letters[m->first + i], err));
    return GPT_OK;
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

/* 0 when the two do not join. */
static uint32_t join(uint32_t first, uint32_t second)
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

/* Each character joins the starter before it unless one between them stands in
 * its way: one of no lower class. */
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
            free ? join(cp_of(l->at[starter]), cp_of(letter)) : 0;

        if (joined) {
            l->at[starter] = joined;
            continue;
        }
        if (class == 0) {
            starter = n;
            have_starter = true;
        }
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

        i += (size_t)gpt_utf8_decode(p + i, len - i, &cp);
        GPT_TRY(decompose(l, cp, err));
    }
    reorder(l);
    compose(l);
    for (size_t i = 0; i < l->n; i++) {
        char utf8[4];
        int n = gpt_utf8_encode(cp_of(l->at[i]), utf8);

        if (gpt_buf_add(out, utf8, (size_t)n) != GPT_OK)
            return gpt_fail(err, GPT_EFAIL, "cannot allocate a text");
    }
    return GPT_OK;
}

static int add_text(struct gpt_buf *out, const uint8_t *p, size_t len,
                    struct gpt_err *err)
{
    return gpt_buf_add(out, p, len) == GPT_OK
               ? GPT_OK
               : gpt_fail(err, GPT_EFAIL, "cannot allocate a text");
}

int gpt_nfc(struct gpt_buf *out, const char *text, size_t len,
            struct gpt_err *err)
{
    const uint8_t *p = (const uint8_t *)text;
    struct letters letters = {0};
    int status = GPT_OK;

    while (len && status == GPT_OK) {
        size_t n, end = gpt_nfc_stable((const char *)p, len);
        uint32_t cp;

        if (end < len && gpt_utf8_decode(p + end, len - end, &cp) == 0)
            end++; /* a stray byte is a fence of its own */
        status = add_text(out, p, end, err);
        p += end;
        len -= end;
        if (len == 0 || status != GPT_OK)
            break;
        is_fence(p, len, &n);
        for (end = n; end < len && !is_fence(p + end, len - end, &n);)
            end += n;
        status = add_stretch(out, &letters, p, end, err);
        p += end;
        len -= end;
    }
    gpt_free(letters.at);
    return status;
}
