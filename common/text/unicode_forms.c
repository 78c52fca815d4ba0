/* Marks, lower case and graphemes: see unicode_forms.h. Forms are made in
 * unicode_nfc.c. Start at gpt_grapheme_len(). */
#include "text/unicode_forms.h"

#include "base/utf8.h"
#include "text/unicode.h"

/* ---- marks and letters ---- */

bool gpt_unicode_is_mark(uint32_t cp)
{
    return gpt_unicode_in(gpt_unicode_marks, gpt_unicode_n_marks, cp);
}

bool gpt_unicode_is_sign(uint32_t cp)
{
    return gpt_unicode_in(gpt_unicode_signs, gpt_unicode_n_signs, cp);
}

bool gpt_unicode_is_flat(uint32_t cp)
{
    return gpt_unicode_in(gpt_unicode_flat, gpt_unicode_n_flat, cp);
}

bool gpt_unicode_is_control(uint32_t cp)
{
    return gpt_unicode_in(gpt_unicode_control, gpt_unicode_n_control, cp);
}

/* Ranges do not overlap, but one of every second letter may have others
 * between: so a letter may be in the range before, too. */
uint32_t gpt_unicode_to_lower(uint32_t cp)
{
    size_t low = 0, high = gpt_unicode_n_lower;

    if (cp < 0x80)
        return cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
    if (cp == 0x130)
        return 'i';
    while (low < high) { /* the first range that begins after cp */
        const size_t middle = (low + high) / 2;

        if (cp >= gpt_unicode_lower[middle].first)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t k = 0; k < 2 && low > 0; k++) {
        const struct gpt_lower_range *r = &gpt_unicode_lower[--low];

        if (cp <= r->last && (cp - r->first) % (uint32_t)r->step == 0)
            return (uint32_t)((int32_t)cp + r->add);
    }
    return cp;
}

/* ---- graphemes ---- */

static enum gpt_grapheme_class class_at(const char *text, size_t len, size_t *n)
{
    uint32_t cp;
    const int bytes = gpt_utf8_decode((const uint8_t *)text, len, &cp);

    *n = bytes ? (size_t)bytes : 1;
    if (!bytes)
        return GPT_GR_OTHER;
    return (enum gpt_grapheme_class)
        gpt_grapheme_classes[(size_t)gpt_grapheme_index[cp >> 7] << 7 |
                             (cp & 127)];
}

static bool is_extend(enum gpt_grapheme_class c)
{
    return c == GPT_GR_EXTEND || c == GPT_GR_JOINED || c == GPT_GR_LINKER;
}

/* Rules GB6 to GB8. */
static bool is_syllable(enum gpt_grapheme_class before,
                        enum gpt_grapheme_class c)
{
    if (before == GPT_GR_L)
        return c == GPT_GR_L || c == GPT_GR_V || c == GPT_GR_LV ||
               c == GPT_GR_LVT;
    if (before == GPT_GR_LV || before == GPT_GR_V)
        return c == GPT_GR_V || c == GPT_GR_T;
    return (before == GPT_GR_LVT || before == GPT_GR_T) && c == GPT_GR_T;
}

/* What is known of the characters of a grapheme so far. */
struct grapheme {
    enum gpt_grapheme_class last;
    bool picture;   /* a picture, and what extends it */
    bool consonant; /* a consonant of a conjunct, and what may follow it */
    bool linked;    /* with a linker among that */
    bool odd;       /* an odd number of regional indicators */
};

static void take_class(struct grapheme *g, enum gpt_grapheme_class c)
{
    const bool joins =
        c == GPT_GR_JOINED || c == GPT_GR_LINKER || c == GPT_GR_ZWJ;

    g->picture = c == GPT_GR_PICTURE ||
                 (g->picture && (is_extend(c) || c == GPT_GR_ZWJ) &&
                  g->last != GPT_GR_ZWJ);
    g->linked = g->consonant && joins && (g->linked || c == GPT_GR_LINKER);
    g->consonant = c == GPT_GR_CONSONANT || (g->consonant && joins);
    g->odd = c == GPT_GR_REGIONAL && !g->odd;
    g->last = c;
}

/* True where there is no boundary before a character of class c. */
static bool continues(const struct grapheme *g, enum gpt_grapheme_class c)
{
    const enum gpt_grapheme_class last = g->last;

    if (last == GPT_GR_CR || last == GPT_GR_LF || last == GPT_GR_CONTROL)
        return last == GPT_GR_CR && c == GPT_GR_LF;
    if (c == GPT_GR_CONTROL || c == GPT_GR_CR || c == GPT_GR_LF)
        return false;
    if (is_extend(c) || c == GPT_GR_ZWJ || c == GPT_GR_SPACING ||
        last == GPT_GR_PREPEND || is_syllable(last, c))
        return true;
    if (c == GPT_GR_CONSONANT)
        return g->linked;
    if (c == GPT_GR_PICTURE)
        return g->picture && last == GPT_GR_ZWJ;
    return c == GPT_GR_REGIONAL && g->odd;
}

size_t gpt_grapheme_len(const char *text, size_t len)
{
    struct grapheme g = {0};
    size_t at, n;

    take_class(&g, class_at(text, len, &at));
    while (at < len) {
        const enum gpt_grapheme_class c = class_at(text + at, len - at, &n);

        if (!continues(&g, c))
            break;
        take_class(&g, c);
        at += n;
    }
    return at;
}
