/* GPT-2's pieces, and StarCoder's, by vectors: a window of 64 bytes that begins
 * where a piece begins is turned into bits, one a byte, for each kind of
 * character; shifts of these say where pieces begin, all of the window at once.
 * Start at cut_windows().
 *
 * No state is carried from window to window. A window ends with the last
 * beginning of a piece that its own bytes settle, and the next window is loaded
 * there again, so that its first byte begins a piece by construction. The bytes
 * between are read twice, which is cheaper than a state that every kind of run
 * would need. What no window settles, a piece of 64 bytes and more, is left to
 * pretok_gpt2.c. */
#include "tokenizer/pretok_gpt2.h"

#include "base/cpu.h"
#include "tokenizer/pretok_vector.h"

#include <string.h>

/* The characters of a window as bits. `wide` marks bytes beyond ASCII. Once
 * these are looked up, a letter or number has all its bytes marked, and a space
 * has its bytes in `space` and its first byte in space2 or space3, by its
 * length. */
struct window {
    uint64_t letter, number, space, blank, quote, wide;
    uint64_t space2, space3;
    uint64_t digits; /* first bytes of numbers */
    unsigned known; /* bytes whose kind is known */
    unsigned stop;  /* place of a character to stop at; GPT_WINDOW: none */
};

/* Fills in the bits of 64 bytes, all but the last three. */
typedef void classify_fn(const uint8_t *p, struct window *w);

/* Looks up what is beyond ASCII, character by character. A character that the
 * window's end cuts ends what is known. So does, when only `narrow` characters
 * are asked for, one of three bytes: then w->stop is its place. */
static void add_wide(struct window *w, const uint8_t *p, size_t len,
                     bool narrow)
{
    for (uint64_t left = w->wide & gpt_low_bits(w->known); left;) {
        unsigned at = gpt_first_bit(left);
        size_t n;
        enum gpt_piece_kind kind = gpt_piece_wide_kind(p + at, len - at, &n);

        if (at + n > w->known) {
            w->known = at;
            break;
        }
        uint64_t bits = gpt_low_bits((unsigned)n) << at;
        left &= ~bits;
        if (narrow && n == 3 && kind != GPT_PIECE_SPACE) {
            w->known = at + 3;
            w->stop = at;
            left = 0;
        }
        w->letter |= kind == GPT_PIECE_LETTER ? bits : 0;
        if (kind == GPT_PIECE_NUMBER) {
            w->number |= bits;
            w->digits |= (uint64_t)1 << at;
        }
        if (kind == GPT_PIECE_SPACE) {
            w->space |= bits;
            w->space2 |= n == 2 ? (uint64_t)1 << at : 0;
            w->space3 |= n == 3 ? (uint64_t)1 << at : 0;
        }
    }
}

/* A contraction begins a piece, and the next piece begins after it. A quote is
 * only asked when it begins a piece: inside "''s" it does not. */
static uint64_t cut_contractions(uint64_t begins, uint64_t quotes,
                                 const struct window *w, const uint8_t *p,
                                 size_t len)
{
    for (; quotes; quotes &= quotes - 1) {
        unsigned at = gpt_first_bit(quotes);
        unsigned n = (unsigned)gpt_piece_contraction(p + at, len - at);

        if (n == 0)
            continue;
        begins &= ~(gpt_low_bits(n - 1) << at << 1);
        if (at + n < w->known)
            begins |= (uint64_t)1 << (at + n);
    }
    return begins;
}

/* Where pieces begin in a window of which p[0] begins one, up to the last that
 * is certain. The bits of bytes that are not known do not count.
 *
 * A run begins where its kind does and the byte before is of another kind,
 * unless that byte is U+0020, which begins the piece in its place. Spaces begin
 * a piece at their first byte, and again at the last one before something else,
 * because \s+(?!\S) leaves that one behind. Where numbers are apart, a text
 * ends before each of them and begins after it. */
GPT_INLINE uint64_t piece_begins(const struct window *w, const uint8_t *p,
                                 size_t len, bool apart)
{
    uint64_t letter = w->letter, number = w->number, space = w->space;
    uint64_t other = gpt_low_bits(w->known) & ~(letter | number | space);
    uint64_t ink = letter | other | (apart ? 0 : number);
    uint64_t narrow = space & ~(w->space2 | w->space2 << 1 | w->space3 |
                                w->space3 << 1 | w->space3 << 2);
    uint64_t begins = (letter & ~(letter << 1)) | (other & ~(other << 1));

    if (!apart)
        begins |= number & ~(number << 1);
    begins &= ~(w->blank << 1);
    if (apart)
        begins |= w->digits;
    /* taken here, where begins are those of runs: a quote with a blank before
     * it is no contraction */
    uint64_t quotes = begins & w->quote;
    begins |= space & ~(space << 1);
    /* the last space before something else */
    begins |= (narrow & ink >> 1) | (w->space2 & ink >> 2) |
              (w->space3 & ink >> 3);
    if (quotes)
        begins = cut_contractions(begins, quotes, w, p, len);
    if (w->known == len)
        return begins;
    /* Whether a space ends its run depends on the byte after it, which is up to
     * three bytes further where spaces may be that long. A character to stop at
     * is known not to be a space, whatever follows it. */
    unsigned ahead = w->stop < GPT_WINDOW ? 2 : w->wide ? 3 : 1;
    return w->known > ahead ? begins & gpt_low_bits(w->known - ahead) : 0;
}

/* The end of a text is copied, for 64 bytes must be there to load. */
GPT_INLINE void load_window(struct window *w, const uint8_t *p, size_t len,
                            classify_fn *classify, bool narrow)
{
    uint8_t tail[GPT_WINDOW];

    w->space2 = w->space3 = 0;
    w->known = w->stop = GPT_WINDOW;
    if (len < GPT_WINDOW) {
        memset(tail, 0, sizeof(tail));
        memcpy(tail, p, len);
        w->known = (unsigned)len;
        classify(tail, w);
    } else {
        classify(p, w);
    }
    w->digits = w->number;
    if (w->wide)
        add_wide(w, p, len, narrow);
}

/* `wide`: see gpt_cut_narrow_fn; NULL: do not stop. Each window is a stretch up
 * to the last beginning of a piece that is certain. */
GPT_INLINE size_t cut_windows(const char *text, size_t len,
                              struct gpt_stretch *s, size_t room, size_t *wide,
                              gpt_pretok_fn *pretok, classify_fn *classify)
{
    const bool apart = pretok == gpt_pretok_starcoder;
    size_t n = 0;

    s[0].at = 0;
    while (n < room && s[n].at < len) {
        const size_t at = s[n].at;
        const uint8_t *p = (const uint8_t *)text + at;
        struct window w;

        load_window(&w, p, len - at, classify, wide != NULL);
        if (w.stop == 0) {
            /* only a wide character at text[0] is cut here */
            if (at > 0)
                break;
            s[n].begins = 1;
            s[++n].at = pretok(text, len);
            continue;
        }
        const uint64_t begins = piece_begins(&w, p, len - at, apart) | 1;

        if (w.stop < GPT_WINDOW) {
            *wide = at + w.stop;
            n += gpt_end_stretch(&s[n], begins);
            break;
        }
        s[n].begins = begins;
        if (w.known == len - at)
            s[++n].at = len;
        else if (begins == 1) /* a piece longer than the window */
            s[++n].at = at + pretok(text + at, len - at);
        else
            n += gpt_end_stretch(&s[n], begins);
    }
    return n;
}

#ifdef GPT_X86_VECTORS

/* Letters of both cases are one range once bit 5 is set: no byte that is not a
 * letter falls into it by that. */
static inline GPT_AVX2 void classify_avx2(const uint8_t *p, struct window *w)
{
    __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)p);
    __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(p + 32));
    __m256i lower = _mm256_set1_epi8(0x20);

    w->letter = gpt_range_bits(_mm256_or_si256(a, lower),
                               _mm256_or_si256(b, lower), GPT_TOP('z'),
                               GPT_ABOVE('a', 'z'));
    w->number = gpt_range_bits(a, b, GPT_TOP('9'), GPT_ABOVE('0', '9'));
    w->blank = gpt_equal_bits(a, b, ' ');
    w->space = w->blank | gpt_range_bits(a, b, GPT_TOP('\r'),
                                         GPT_ABOVE('\t', '\r'));
    w->quote = gpt_equal_bits(a, b, '\'');
    w->wide = gpt_bits_of(a, b);
}

static inline GPT_AVX512 void classify_avx512(const uint8_t *p,
                                              struct window *w)
{
    __m512i v = _mm512_loadu_si512(p);
    __m512i lower = _mm512_or_si512(v, _mm512_set1_epi8(0x20));

    w->letter = gpt_range_mask(lower, 'a', 'z');
    w->number = gpt_range_mask(v, '0', '9');
    w->blank = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8(' '));
    w->space = w->blank | gpt_range_mask(v, '\t', '\r');
    w->quote = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('\''));
    w->wide = _mm512_movepi8_mask(v);
}

/* The functions for one instruction set: a target attribute holds for one
 * function and what is inlined into it. */
#define CUTS(isa, target)                                                      \
    static target size_t cut_##isa(const char *text, size_t len,               \
                                   struct gpt_stretch *s, size_t room)         \
    {                                                                          \
        return cut_windows(text, len, s, room, NULL, gpt_pretok_gpt2,          \
                           classify_##isa);                                    \
    }                                                                          \
    static target size_t cut_starcoder_##isa(const char *text, size_t len,     \
                                             struct gpt_stretch *s,            \
                                             size_t room)                      \
    {                                                                          \
        return cut_windows(text, len, s, room, NULL, gpt_pretok_starcoder,     \
                           classify_##isa);                                    \
    }                                                                          \
    static target size_t cut_narrow_##isa(const char *text, size_t len,        \
                                          struct gpt_stretch *s, size_t room,  \
                                          size_t *wide)                        \
    {                                                                          \
        *wide = 0;                                                             \
        return cut_windows(text, len, s, room, wide, gpt_pretok_gpt2,          \
                           classify_##isa);                                    \
    }
CUTS(avx2, GPT_AVX2)
CUTS(avx512, GPT_AVX512)

#else
#define cut_avx2 NULL
#define cut_avx512 NULL
#define cut_starcoder_avx2 NULL
#define cut_starcoder_avx512 NULL
#define cut_narrow_avx2 NULL
#define cut_narrow_avx512 NULL
#endif

static const struct form {
    gpt_pretok_fn *pretok;
    const char *isa;
    gpt_cut_fn *cut;
    gpt_cut_narrow_fn *narrow;
} forms[] = {
    {gpt_pretok_gpt2, "avx2", cut_avx2, cut_narrow_avx2},
    {gpt_pretok_gpt2, "avx512", cut_avx512, cut_narrow_avx512},
    {gpt_pretok_starcoder, "avx2", cut_starcoder_avx2, NULL},
    {gpt_pretok_starcoder, "avx512", cut_starcoder_avx512, NULL},
};

static const struct form *form_of(gpt_pretok_fn *pretok, const char *isa)
{
    static const struct form none;

    for (size_t i = 0; i < GPT_COUNT(forms) && gpt_cpu_has(isa); i++)
        if (forms[i].pretok == pretok && strcmp(forms[i].isa, isa) == 0)
            return &forms[i];
    return &none;
}

gpt_cut_fn *gpt_cut_gpt2_of(gpt_pretok_fn *pretok, const char *isa)
{
    return form_of(pretok, isa)->cut;
}

/* Both are here and not with the table of pretok_table.c, so that a program
 * that only names pre-tokenizers links no vector form. */
gpt_cut_fn *gpt_cut_like(gpt_pretok_fn *pretok)
{
    gpt_cut_fn *cut = gpt_cut_gpt2_of(pretok, gpt_cpu_isa());

    return cut ? cut : gpt_cut_words_of(pretok, gpt_cpu_isa());
}

gpt_cut_narrow_fn *gpt_cut_narrow_like(gpt_pretok_fn *pretok)
{
    return form_of(pretok, gpt_cpu_isa())->narrow;
}
