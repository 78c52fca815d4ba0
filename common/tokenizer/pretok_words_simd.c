/* The families of pretok_words.c by vectors: a window of 64 bytes that begins
 * where a piece begins becomes bits, one a byte, for each class of characters;
 * from these follows where pieces begin, as pretok_words.c says it. Start at
 * cut_words().
 *
 * As in pretok_gpt2_simd.c no state is carried from window to window. What the
 * window does not settle, its end and rare mixtures of classes, is not counted:
 * the next window begins with the last piece that is certain, and where there
 * is none the portable form cuts one piece. So whatever is too rare to be worth
 * bits (numbers beyond ASCII, marks in words that go by case) costs time only
 * where it occurs, and is right by the portable form. */
#include "tokenizer/pretok_rules.h"

#include "base/cpu.h"
#include "tokenizer/pretok_vector.h"

#include <assert.h>
#include <string.h>

enum { LONGEST = 4 }; /* bytes of a character */

/* The classes of a window's characters, each with all of its bytes. */
struct classes {
    uint64_t letter, number, space, other; /* one of them each */
    uint64_t line_end, blank, quote, slash, wide;
    uint64_t upper, lower, uncased; /* letters, by_case only */
    uint64_t control;               /* of ASCII, deepseek only, as the next */
    uint64_t cjk_word, cjk_other;   /* isolated: in no class but these */
    /* [i]: first bytes of the characters of i + 1 bytes */
    uint64_t space_of[LONGEST], other_of[LONGEST];
    unsigned known; /* bytes of which all this is known */
};

/* Fills in the bits of 64 bytes, those of ASCII. */
typedef void classify_fn(const uint8_t *p, struct classes *c);

/* ---- classes beyond ASCII ---- */

/* Adds the character at p[at], of *n bytes. False for a character that the
 * window cuts or that the bits cannot say: nothing is known from there on. */
GPT_INLINE bool add_char(struct classes *c, const uint8_t *p, size_t len,
                         unsigned at, size_t *n,
                         const struct gpt_word_rules *r)
{
    const unsigned both = GPT_CH_HEAD | GPT_CH_TAIL;
    const unsigned class = gpt_ch_wide(p + at, len - at, n);
    const uint64_t first = (uint64_t)1 << at;
    const uint64_t all = gpt_low_bits((unsigned)*n) << at;

    if (at + *n > c->known || class & GPT_CH_N ||
        (r->by_case && class & GPT_CH_M) || (r->deepseek && class == 0))
        return false;
    if (r->deepseek && gpt_deepseek_cjk(p + at, *n)) {
        *(class & r->word ? &c->cjk_word : &c->cjk_other) |= all;
        return true;
    }
    if (class & (GPT_CH_L | r->word)) {
        c->letter |= all;
        c->uncased |= (class & both) == both ? all : 0;
        c->upper |= (class & both) == GPT_CH_HEAD ? all : 0;
        c->lower |= (class & both) == GPT_CH_TAIL ? all : 0;
    } else if (class & GPT_CH_SPACE) {
        c->space |= all;
        c->space_of[*n - 1] |= first;
    } else {
        c->other |= all;
        c->other_of[*n - 1] |= first;
    }
    return true;
}

GPT_INLINE void add_wide(struct classes *c, const uint8_t *p, size_t len,
                         const struct gpt_word_rules *r)
{
    size_t n;

    for (uint64_t left = c->wide & gpt_low_bits(c->known); left;
         left &= ~gpt_low_bits((unsigned)n) << gpt_first_bit(left))
        if (!add_char(c, p, len, gpt_first_bit(left), &n, r)) {
            c->known = gpt_first_bit(left);
            return;
        }
}

/* Classes of the window at p. Zeros stand after the end of the text, where they
 * are in no class but `other`, and are masked out of that. */
GPT_INLINE void load_classes(struct classes *c, const uint8_t *p, size_t len,
                             const struct gpt_word_rules *r,
                             classify_fn *classify)
{
    uint8_t tail[GPT_WINDOW] = {0};
    const bool whole = len >= GPT_WINDOW;

    *c = (struct classes){.known = whole ? GPT_WINDOW : (unsigned)len};
    if (!whole)
        memcpy(tail, p, len);
    classify(whole ? p : tail, c);
    if (r->deepseek && c->control & gpt_low_bits(c->known))
        c->known = gpt_first_bit(c->control);
    const uint64_t known = gpt_low_bits(c->known);
    c->letter &= known;
    c->other = known & ~(c->letter | c->number | c->space | c->wide);
    c->space_of[0] = c->space;
    c->other_of[0] = c->other;
    if (c->wide)
        add_wide(c, p, len, r);
}

/* ---- where pieces begin ---- */

/* Bits of the runs of `in` that begin at `starts`, all of them beginnings of
 * runs: the sum carries through each such run and clears it. */
static inline uint64_t runs_from(uint64_t starts, uint64_t in)
{
    return in & ~(in + starts);
}

/* Where characters begin that follow one of these. of[i] holds the first bytes
 * of the characters of i + 1 bytes. */
static inline uint64_t after(const uint64_t of[LONGEST], uint64_t which)
{
    return (of[0] & which) << 1 | (of[1] & which) << 2 |
           (of[2] & which) << 3 | (of[3] & which) << 4;
}

/* Those of the characters of[] that have a bit of `next` just after them. */
static inline uint64_t before(const uint64_t of[LONGEST], uint64_t next)
{
    return (of[0] & next >> 1) | (of[1] & next >> 2) | (of[2] & next >> 3);
}

/* Where the rest of a run of spaces begins after its last line end, which ends
 * the piece of \s*[\r\n]+. A line end later in the run makes it no rest. */
static inline uint64_t tails(uint64_t space, uint64_t line_end)
{
    const uint64_t plain = space & ~line_end;
    uint64_t starts = plain & (space & line_end) << 1, found = 0;

    for (; starts; starts &= starts - 1) {
        unsigned at = gpt_first_bit(starts);
        uint64_t end = ~(plain >> at);
        unsigned n = end ? gpt_first_bit(end) : GPT_WINDOW;
        bool last = at + n >= GPT_WINDOW || !(space >> (at + n) & 1);

        found |= (uint64_t)last << at;
    }
    return found;
}

/* Where pieces of numbers begin, `digits` of them at most. A run longer than
 * three is rare enough to be counted off one by one. */
static inline uint64_t numbers(uint64_t number, unsigned digits)
{
    uint64_t begins = number & ~(number << 1);

    assert(digits <= 1 || digits == 3);
    if (digits == 1)
        return number;
    if (digits == 0 || !(number & number << 1 & number << 2 & number << 3))
        return begins;
    for (uint64_t left = begins; left; left &= left - 1) {
        unsigned at = gpt_first_bit(left);
        uint64_t end = ~(number >> at);
        unsigned n = end ? gpt_first_bit(end) : GPT_WINDOW;

        for (unsigned k = digits; k < n; k += digits)
            begins |= (uint64_t)1 << (at + k);
    }
    return begins;
}

/* A contraction begins a piece, and the next piece begins after it. */
static uint64_t cut_contractions(uint64_t begins, uint64_t quotes,
                                 const struct classes *c, const uint8_t *p,
                                 size_t len)
{
    for (; quotes; quotes &= quotes - 1) {
        unsigned at = gpt_first_bit(quotes);
        unsigned n = (unsigned)gpt_word_contraction(p + at, len - at);

        if (n == 0)
            continue;
        begins &= ~(gpt_low_bits(n - 1) << at << 1);
        if (at + n < c->known)
            begins |= (uint64_t)1 << (at + n);
    }
    return begins;
}

/* A contraction goes with the word before it; one that follows another does
 * not, because the word's pattern takes one only. */
static uint64_t join_contractions(uint64_t begins, uint64_t quotes,
                                  const struct classes *c, const uint8_t *p,
                                  size_t len)
{
    for (unsigned end = 0; quotes; quotes &= quotes - 1) {
        unsigned at = gpt_first_bit(quotes);
        unsigned n = (unsigned)gpt_word_contraction(p + at, len - at);

        if (n == 0 || (end > 0 && at == end))
            continue;
        end = at + n;
        begins &= ~(gpt_low_bits(n) << at);
        if (end < c->known)
            begins |= (uint64_t)1 << end;
    }
    return begins;
}

/* Where the spaces begin that a window ends with; `known` if it does not. */
static inline unsigned last_spaces(const struct classes *c, uint64_t space)
{
    uint64_t ink = ~space & gpt_low_bits(c->known);

    return ink ? GPT_WINDOW - (unsigned)__builtin_clzll(ink) : 0;
}

/* Beginnings of pieces before this place are certain. `taken` are line ends
 * that go with symbols. Three things make them uncertain: what comes after the
 * window, a slash among the line ends after symbols, and a word in which
 * letters with case meet letters without. */
GPT_INLINE unsigned certain(const struct classes *c, size_t len,
                            uint64_t taken, const struct gpt_word_rules *r)
{
    const unsigned ahead = c->wide ? 3 : 1; /* bytes that a space looks at */
    unsigned sure = GPT_WINDOW;

    assert(c->known <= GPT_WINDOW && c->known <= len);
    if (c->known < len) {
        /* a run of spaces may go on, and a line end in it would join it all */
        unsigned spaces = last_spaces(c, c->space & ~taken) + 1;

        sure = c->known > ahead ? c->known - ahead : 0;
        sure = spaces < sure ? spaces : sure;
    }
    uint64_t slashes = r->slash ? c->slash & taken << 1 : 0;
    if (slashes)
        sure = gpt_first_bit(slashes) < sure ? gpt_first_bit(slashes) : sure;
    /* HEAD and TAIL overlap there: where such a word is cut depends on all of
     * it, so it is left from its beginning on */
    const uint64_t cased = c->upper | c->lower;
    uint64_t mixed = (c->uncased & cased << 1) | (cased & c->uncased << 1);
    if (r->by_case && mixed) {
        uint64_t words = c->letter & ~(c->letter << 1);

        words &= gpt_low_bits(gpt_first_bit(mixed) + 1);
        unsigned word = GPT_WINDOW - (unsigned)__builtin_clzll(words);
        sure = word < sure ? word : sure;
    }
    return sure;
}

/* Where pieces begin in a window of which p[0] begins one, up to the last that
 * is certain. A word begins at its first letter, or at the one character before
 * it that the pattern lets go with it: a space that is no line end, or a symbol
 * that begins a run, for a later symbol belongs to the piece of symbols. */
GPT_INLINE uint64_t piece_begins(const struct classes *c, const uint8_t *p,
                                 size_t len, const struct gpt_word_rules *r)
{
    const uint64_t symbols = c->other & ~(c->other << 1) & ~(c->blank << 1);
    const uint64_t words = c->letter & ~(c->letter << 1);
    const uint64_t taken = runs_from(
        c->line_end & ~(c->line_end << 1) & c->other << 1, c->line_end);
    const uint64_t space = c->space & ~taken, plain = space & ~c->line_end;
    const uint64_t ink = c->letter | c->number | c->other;
    uint64_t begins = words & ~after(c->space_of, plain) &
                      ~after(c->other_of, symbols);

    begins |= symbols | numbers(c->number, r->digits);
    begins |= (space & ~(space << 1)) | tails(space, c->line_end) |
              (before(c->space_of, ink) & plain);
    if (r->by_case)
        begins |= c->upper & c->lower << 1;
    const uint64_t quotes = c->quote & symbols;
    if (r->contraction_first && quotes)
        begins = cut_contractions(begins, quotes, c, p, len);
    if (r->contraction_after && quotes & c->letter << 1)
        begins = join_contractions(begins, quotes & c->letter << 1, c, p, len);
    if (r->end_first && c->known == len)
        begins &= gpt_low_bits(last_spaces(c, space) + 1);
    return begins & gpt_low_bits(certain(c, len, taken, r));
}

/* The same for DeepSeek's patterns: see match_third() of pretok_stages.c.
 * Numbers and runs of Chinese or Japanese characters are texts of their own,
 * and what lies between ends there: a space before them stays with its run. A
 * symbol of ASCII that begins a piece takes the letters of ASCII after it, but
 * no others. */
GPT_INLINE uint64_t deepseek_begins(const struct classes *c, size_t len,
                                    const struct gpt_word_rules *r)
{
    const uint64_t symbols = c->other & ~(c->other << 1) & ~(c->blank << 1);
    const uint64_t taken = runs_from(
        c->line_end & ~(c->line_end << 1) & c->other << 1, c->line_end);
    const uint64_t space = c->space & ~taken, plain = space & ~c->line_end;
    const uint64_t latin = c->letter & ~c->wide;
    const uint64_t joined = (symbols & ~c->wide) << 1 & latin;
    uint64_t begins = c->letter & ~(c->letter << 1) & ~joined &
                      ~after(c->space_of, plain);

    begins |= runs_from(joined, latin) << 1 & c->letter & ~latin;
    begins |= symbols | numbers(c->number, r->digits);
    begins |= (c->cjk_word & ~(c->cjk_word << 1)) |
              (c->cjk_other & ~(c->cjk_other << 1));
    begins |= (space & ~(space << 1)) | tails(space, c->line_end) |
              (before(c->space_of, c->letter | c->other) & plain);
    return begins & gpt_low_bits(certain(c, len, taken, r));
}

/* Each window begins with the last piece that the one before found, so its
 * first bit is set whatever it holds. */
GPT_INLINE size_t cut_words(const char *text, size_t len,
                            struct gpt_stretch *s, size_t room,
                            const struct gpt_word_rules *r,
                            gpt_pretok_fn *pretok, classify_fn *classify)
{
    size_t n = 0;

    s[0].at = 0;
    while (n < room && s[n].at < len) {
        const size_t at = s[n].at;
        const uint8_t *p = (const uint8_t *)text + at;
        struct classes c;

        load_classes(&c, p, len - at, r, classify);
        const uint64_t begins = 1 | (r->deepseek
                                         ? deepseek_begins(&c, len - at, r)
                                         : piece_begins(&c, p, len - at, r));
        if (begins == 1) {
            s[n].begins = 1;
            s[++n].at = at + pretok(text + at, len - at);
        } else {
            n += gpt_end_stretch(&s[n], begins);
        }
    }
    return n;
}

/* ---- instruction sets ---- */

#ifdef GPT_X86_VECTORS

static inline GPT_AVX2 void classify_avx2(const uint8_t *p, struct classes *c)
{
    __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)p);
    __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(p + 32));

    c->upper = gpt_range_bits(a, b, GPT_TOP('Z'), GPT_ABOVE('A', 'Z'));
    c->lower = gpt_range_bits(a, b, GPT_TOP('z'), GPT_ABOVE('a', 'z'));
    c->letter = c->upper | c->lower;
    c->number = gpt_range_bits(a, b, GPT_TOP('9'), GPT_ABOVE('0', '9'));
    c->blank = gpt_equal_bits(a, b, ' ');
    c->space = c->blank | gpt_range_bits(a, b, GPT_TOP('\r'),
                                         GPT_ABOVE('\t', '\r'));
    c->line_end = gpt_equal_bits(a, b, '\n') | gpt_equal_bits(a, b, '\r');
    c->control = (gpt_range_bits(a, b, GPT_TOP(0x1F), GPT_ABOVE(0, 0x1F)) |
                  gpt_equal_bits(a, b, 0x7F)) & ~c->space;
    c->quote = gpt_equal_bits(a, b, '\'');
    c->slash = gpt_equal_bits(a, b, '/');
    c->wide = gpt_bits_of(a, b);
}

static inline GPT_AVX512 void classify_avx512(const uint8_t *p,
                                              struct classes *c)
{
    __m512i v = _mm512_loadu_si512(p);

    c->upper = gpt_range_mask(v, 'A', 'Z');
    c->lower = gpt_range_mask(v, 'a', 'z');
    c->letter = c->upper | c->lower;
    c->number = gpt_range_mask(v, '0', '9');
    c->blank = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8(' '));
    c->space = c->blank | gpt_range_mask(v, '\t', '\r');
    c->line_end = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('\n')) |
                  _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('\r'));
    c->control = (gpt_range_mask(v, 0, 0x1F) |
                  _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8(0x7F))) &
                 ~c->space;
    c->quote = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('\''));
    c->slash = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('/'));
    c->wide = _mm512_movepi8_mask(v);
}

/* A function for each family and instruction set, as a target attribute holds
 * for one function and what is inlined into it. */
#define FORMS(family)                                                          \
    static GPT_AVX2 size_t family##_avx2(                                      \
        const char *text, size_t len, struct gpt_stretch *s, size_t room)      \
    {                                                                          \
        return cut_words(text, len, s, room, &gpt_rules_##family,              \
                         gpt_pretok_##family, classify_avx2);                  \
    }                                                                          \
    static GPT_AVX512 size_t family##_avx512(                                  \
        const char *text, size_t len, struct gpt_stretch *s, size_t room)      \
    {                                                                          \
        return cut_words(text, len, s, room, &gpt_rules_##family,              \
                         gpt_pretok_##family, classify_avx512);                \
    }
GPT_VECTOR_FAMILIES(FORMS)

static const struct form {
    gpt_pretok_fn *pretok;
    const char *isa;
    gpt_cut_fn *cut;
} forms[] = {
#define ROWS(family)                                                           \
    {gpt_pretok_##family, "avx2", family##_avx2},                              \
        {gpt_pretok_##family, "avx512", family##_avx512},
    GPT_VECTOR_FAMILIES(ROWS)
};

gpt_cut_fn *gpt_cut_words_of(gpt_pretok_fn *pretok, const char *isa)
{
    for (size_t i = 0; i < GPT_COUNT(forms) && gpt_cpu_has(isa); i++)
        if (forms[i].pretok == pretok && strcmp(forms[i].isa, isa) == 0)
            return forms[i].cut;
    return NULL;
}

#else

gpt_cut_fn *gpt_cut_words_of(gpt_pretok_fn *pretok, const char *isa)
{
    (void)pretok;
    (void)isa;
    return NULL;
}

#endif
