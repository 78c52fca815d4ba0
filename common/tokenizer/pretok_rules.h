/* The families of pretok_words.c by what differs between them, for its portable
 * and its vector form. */
#ifndef GPT_TOKENIZER_PRETOK_RULES_H
#define GPT_TOKENIZER_PRETOK_RULES_H

#include "tokenizer/pretok.h"
#include "tokenizer/pretok_chars.h"

/* Makes each caller a loop of its own, in which its rules are constants and its
 * instruction set is the caller's. */
#define GPT_INLINE static inline __attribute__((always_inline))

struct gpt_word_rules {
    bool contraction_first; /* a contraction is tried before all else */
    bool by_case;           /* a word ends where its case does: case_word() */
    bool contraction_after; /* a word takes one along, by_case only */
    bool slash;             /* after symbols '/' goes with the line ends */
    bool end_first;         /* spaces that end the text are one piece, even if
                             * there are line ends among them */
    bool deepseek;          /* as gpt_pretok_deepseek3() has it; vectors only */
    unsigned word;          /* characters of a word, unless by_case */
    unsigned digits;        /* the most in a piece; 0: any number */
};

/* Constants in every file, so that the compiler sees them and leaves out of a
 * family's machine what the family does not do. */
#define RULES static const struct gpt_word_rules
RULES gpt_rules_cl100k = {
    .contraction_first = true, .word = GPT_CH_L, .digits = 3};
RULES gpt_rules_cl100k_end = {.contraction_first = true, .end_first = true,
                              .word = GPT_CH_L, .digits = 3};
RULES gpt_rules_cl100k_runs = {
    .contraction_first = true, .end_first = true, .word = GPT_CH_L};
RULES gpt_rules_qwen2 = {
    .contraction_first = true, .word = GPT_CH_L, .digits = 1};
RULES gpt_rules_qwen35 = {.contraction_first = true,
                          .word = GPT_CH_L | GPT_CH_M, .digits = 1};
RULES gpt_rules_o200k = {.by_case = true, .contraction_after = true,
                         .slash = true, .digits = 3};
RULES gpt_rules_tekken = {.by_case = true, .slash = true, .digits = 1};
RULES gpt_rules_megatron_v1 = {.word = GPT_CH_L, .digits = 1};
RULES gpt_rules_deepseek3 = {
    .deepseek = true, .word = GPT_CH_L | GPT_CH_M, .digits = 3};
#undef RULES

#define GPT_WORD_FAMILIES(X)                                                   \
    X(cl100k)                                                                  \
    X(cl100k_end)                                                              \
    X(cl100k_runs)                                                             \
    X(qwen2)                                                                   \
    X(qwen35)                                                                  \
    X(o200k)                                                                   \
    X(tekken)                                                                  \
    X(megatron_v1)

/* Those with a vector form in pretok_words_simd.c. */
#define GPT_VECTOR_FAMILIES(X)                                                 \
    GPT_WORD_FAMILIES(X)                                                       \
    X(deepseek3)

/* True for the characters, of n bytes each, that DeepSeek's second pattern
 * isolates. */
bool gpt_deepseek_cjk(const uint8_t *p, size_t n);

/* Bytes of a contraction of any case that p[0..len) begins with, or 0. */
size_t gpt_word_contraction(const uint8_t *p, size_t len);

/* A family's pieces by an instruction set; NULL where build or processor has
 * not got it, and for a family that is not in the list above. */
gpt_cut_fn *gpt_cut_words_of(gpt_pretok_fn *pretok, const char *isa);

#endif
