/* What the forms of GPT-2's pre-tokenizer share: pretok_gpt2.c, which is the
 * specification, and pretok_gpt2_simd.c. */
#ifndef GPT_TOKENIZER_PRETOK_GPT2_H
#define GPT_TOKENIZER_PRETOK_GPT2_H

#include "tokenizer/pretok.h"

/* The kinds of characters that the pattern tells apart. */
enum gpt_piece_kind {
    GPT_PIECE_OTHER,
    GPT_PIECE_LETTER,
    GPT_PIECE_NUMBER,
    GPT_PIECE_SPACE,
    GPT_PIECE_WIDE, /* of a byte only: part of a character to be looked up */
};

/* The kind, never GPT_PIECE_WIDE, of the character at p[0..len), len > 0, and
 * its length. */
enum gpt_piece_kind gpt_piece_kind(const uint8_t *p, size_t len, size_t *n);

/* The same for a character that begins with a byte beyond ASCII. */
enum gpt_piece_kind gpt_piece_wide_kind(const uint8_t *p, size_t len,
                                        size_t *n);

/* Bytes of a contraction that p[0..len) starts with ("'re": 3), or 0. */
size_t gpt_piece_contraction(const uint8_t *p, size_t len);

/* GPT-2's and StarCoder's pieces by an instruction set ("avx2", "avx512"); NULL
 * where build or processor has not got it, and for other pre-tokenizers. */
gpt_cut_fn *gpt_cut_gpt2_of(gpt_pretok_fn *pretok, const char *isa);

#endif
