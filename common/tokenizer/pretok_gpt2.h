/* What the forms of GPT-2's pre-tokenizer share: pretok.c, the specification,
 * and pretok_simd.c. */
#ifndef GPT_TOKENIZER_PRETOK_INTERNAL_H
#define GPT_TOKENIZER_PRETOK_INTERNAL_H

#include "tokenizer/pretok.h"

/* What the pattern tells apart; WIDE: not one byte, to be looked up. */
enum gpt_piece_kind { OTHER, LETTER, NUMBER, SPACE, WIDE };

/* Kind, but WIDE, and length of the character at p[0..len), len > 0. */
enum gpt_piece_kind gpt_piece_kind(const uint8_t *p, size_t len, size_t *n);

/* The same of one that starts beyond ASCII. */
enum gpt_piece_kind gpt_piece_wide_kind(const uint8_t *p, size_t len,
                                        size_t *n);

/* Bytes of a contraction that p[0..len) starts with ("'re": 3), or 0. */
size_t gpt_piece_contraction(const uint8_t *p, size_t len);

/* GPT-2's pieces by an instruction set ("avx2", "avx512"); NULL where build or
 * processor has not got it. */
gpt_cut_fn *gpt_cut_gpt2_of(const char *isa);
gpt_cut_narrow_fn *gpt_cut_narrow_of(const char *isa);

#endif
