/* What normalizers of a tokenizer.json do to characters beside form C
 * (unicode_nfc.h): the other normalization forms, marks, lower case, and
 * graphemes, which are what a reader takes for one character. Each is of the
 * version of Unicode that Hugging Face tokenizers has of it: 9.0 for forms and
 * marks, 8.0 for punctuation and what BertNormalizer drops, 17.0 for lower case
 * and graphemes. Texts are UTF-8. */
#ifndef GPT_TEXT_UNICODE_FORMS_H
#define GPT_TEXT_UNICODE_FORMS_H

#include "text/unicode_nfc.h"

enum gpt_form { /* UAX #15 */
    GPT_FORM_C,
    GPT_FORM_D,
    GPT_FORM_KC,
    GPT_FORM_KD,
};

/* text[0..len) in that form, to the end of *out. */
int gpt_to_form(struct gpt_buf *out, enum gpt_form form, const char *text,
                size_t len, struct gpt_err *err) GPT_MUST_USE;

/* True for marks: Mn, Mc and Me. */
bool gpt_unicode_is_mark(uint32_t cp);
/* True for punctuation, and for symbols of ASCII. */
bool gpt_unicode_is_sign(uint32_t cp);
/* True for marks without width: Mn. */
bool gpt_unicode_is_flat(uint32_t cp);
/* True for characters without a sign: Cc, Cf and Co. */
bool gpt_unicode_is_control(uint32_t cp);

/* The lower case of a character by itself; but U+0130 has two letters, of which
 * this is the first and U+0307 the second. */
uint32_t gpt_unicode_to_lower(uint32_t cp);

/* Bytes of the grapheme that text[0..len) begins with (UAX #29, extended
 * grapheme clusters); len > 0. */
size_t gpt_grapheme_len(const char *text, size_t len);

/* ---- tables ---- */

enum gpt_grapheme_class {
    GPT_GR_OTHER,
    GPT_GR_CONTROL,
    GPT_GR_CR,
    GPT_GR_LF,
    GPT_GR_EXTEND, /* this and the next two have GCB=Extend */
    GPT_GR_JOINED, /* and may be in a conjunct of Indic letters */
    GPT_GR_LINKER, /* and makes one */
    GPT_GR_ZWJ,
    GPT_GR_SPACING,
    GPT_GR_PREPEND,
    GPT_GR_REGIONAL,
    GPT_GR_L, /* Hangul */
    GPT_GR_V,
    GPT_GR_T,
    GPT_GR_LV,
    GPT_GR_LVT,
    GPT_GR_CONSONANT, /* of a conjunct */
    GPT_GR_PICTURE,
};

struct gpt_lower_range { /* every `step`th letter from first to last */
    uint32_t first, last;
    int32_t step, add;
};

extern const size_t gpt_compat_n_mappings;
extern const struct gpt_nfc_mapping gpt_compat_mappings[]; /* by cp */
extern const uint32_t gpt_compat_letters[];
extern const size_t gpt_unicode_n_marks, gpt_unicode_n_signs;
extern const uint32_t gpt_unicode_marks[][2], gpt_unicode_signs[][2];
extern const size_t gpt_unicode_n_flat, gpt_unicode_n_control;
extern const uint32_t gpt_unicode_flat[][2], gpt_unicode_control[][2];
extern const size_t gpt_unicode_n_lower;
extern const struct gpt_lower_range gpt_unicode_lower[]; /* by first */
extern const uint8_t gpt_grapheme_index[];   /* code point / 128 -> group */
extern const uint8_t gpt_grapheme_classes[]; /* 128 a group */

#endif
