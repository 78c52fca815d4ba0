/* Normalization form C: characters that can be written in several ways, in one
 * way. Source: UAX #15. The tables are those of Unicode 9.0, which Hugging
 * Face tokenizers have: characters that are newer keep their place and join
 * nothing, so that a text gives the ids that the library gives. */
#ifndef GPT_TEXT_UNICODE_NFC_H
#define GPT_TEXT_UNICODE_NFC_H

#include "base/memory.h"

/* Bytes of text[0..len) before the first that may have to change; len when the
 * text is in form C. Bytes that are not UTF-8 never change. */
size_t gpt_nfc_stable(const char *text, size_t len);

/* text[0..len) in form C, to the end of *out. */
int gpt_nfc(struct gpt_buf *out, const char *text, size_t len,
            struct gpt_err *err) GPT_MUST_USE;

/* ---- tables, for unicode_nfc.c and unicode.c ---- */

/* Canonical combining class; and whether the character changes, or may join
 * the one before it. */
struct gpt_nfc_kind_info {
    uint8_t class;
    uint8_t unstable;
};
struct gpt_nfc_mapping {
    uint32_t cp;
    uint16_t first; /* of its `n` letters in gpt_nfc_letters */
    uint8_t n;
};
struct gpt_nfc_pair {
    uint32_t first, second, joined;
};

extern const uint32_t gpt_nfc_limit; /* kind 0 from here on */
extern const uint8_t gpt_nfc_index[]; /* code point / 128 -> group */
extern const uint8_t gpt_nfc_kind[];  /* 128 a group */
extern const struct gpt_nfc_kind_info gpt_nfc_kinds[];
extern const size_t gpt_nfc_n_mappings, gpt_nfc_n_pairs;
extern const struct gpt_nfc_mapping gpt_nfc_mappings[]; /* by cp */
extern const uint32_t gpt_nfc_letters[];
extern const struct gpt_nfc_pair gpt_nfc_pairs[]; /* by first, second */
/* Ranges of numbers that are no word characters: category No. */
extern const size_t gpt_unicode_n_no;
extern const uint32_t gpt_unicode_no[][2];

#endif
