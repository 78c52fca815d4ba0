/* Pre-tokenizers: where a text is cut before byte pairs are merged. Each is a
 * function that returns the length of a text's first piece, so that a faster
 * form can take its place without anything else changing. Start at
 * gpt_pretok_gpt2(). */
#ifndef GPT_TOKENIZER_PRETOK_H
#define GPT_TOKENIZER_PRETOK_H

#include "base/status.h"

/* Bytes of the first piece of text[0..len), len > 0; between 1 and len. A
 * document is cut by calling it again on what remains: the pieces do not
 * depend on anything before them. Invalid UTF-8 is taken byte by byte, each
 * such byte a character that is neither letter, number nor space. */
typedef size_t gpt_pretok_fn(const char *text, size_t len);

/* GPT-2's pieces, those of the pattern
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * with the classes of Unicode 16.0. Source: Radford et al. 2019, encoder.py. */
gpt_pretok_fn gpt_pretok_gpt2;

/* The families after it; their patterns are in pretok_table.c. */
gpt_pretok_fn gpt_pretok_cl100k;     /* cl100k of Hugging Face, Llama 3 */
gpt_pretok_fn gpt_pretok_cl100k_end; /* cl100k of tiktoken since 0.8 */
gpt_pretok_fn gpt_pretok_cl100k_runs; /* its spelling in Hugging Face's files */
gpt_pretok_fn gpt_pretok_qwen2;      /* Qwen 2, 2.5, 3 */
gpt_pretok_fn gpt_pretok_qwen35;     /* Qwen 3.5 */
gpt_pretok_fn gpt_pretok_o200k;      /* o200k, Llama 4 */
gpt_pretok_fn gpt_pretok_tekken;     /* Tekken, Megatron's v2 */
gpt_pretok_fn gpt_pretok_megatron_v1;
gpt_pretok_fn gpt_pretok_starcoder; /* StarCoder, SmolLM */
gpt_pretok_fn gpt_pretok_deepseek3;

gpt_pretok_fn gpt_pretok_whole; /* the text as it is, in no table */

/* A pre-tokenizer as files name it: by regular expressions, applied one after
 * the other, each to the pieces that the one before has made. */
enum { GPT_PRETOK_STAGES = 3 };
struct gpt_pretok {
    const char *name;
    const char *regex[GPT_PRETOK_STAGES]; /* NULL after the last */
    gpt_pretok_fn *cut;
};

/* By expressions, which must be those of the table to the letter, n of them;
 * NULL for any others. */
const struct gpt_pretok *gpt_pretok_by_regex(const char *const *regex,
                                             size_t n);
/* By one of the names, which are NULL-terminated; NULL for any other. */
extern const char *const gpt_pretok_names[];
const struct gpt_pretok *gpt_pretok_by_name(const char *name);
/* Row i of the table, for listing it; NULL after the last. Several rows may
 * have one name: spellings of the same pattern. */
const struct gpt_pretok *gpt_pretok_row(size_t i);

/* A stretch of a text: pieces begin at text[at + i] for each bit i of `begins`,
 * of which bit 0 is always set. The last of them ends where the next stretch
 * begins, so a stretch of several pieces has at most 64 bytes. */
struct gpt_stretch {
    size_t at;
    uint64_t begins;
};
enum { GPT_STRETCH = 64 };

/* The same pieces, many at once: fills in the stretches that text[0..len)
 * begins with, at most `room`, and the place where the last one ends, as `at`
 * of one more. Returns how many, one at least when len > 0. What remains is cut
 * by another call. */
typedef size_t gpt_cut_fn(const char *text, size_t len,
                          struct gpt_stretch *stretches, size_t room);

/* Writes where the pieces of n stretches end; returns their number. There must
 * be room for three ends more than GPT_STRETCH for each stretch. */
size_t gpt_stretch_ends(const struct gpt_stretch *stretches, size_t n,
                        size_t *ends);

/* The fastest form of a pre-tokenizer on this processor that makes the same
 * pieces; NULL when there is none but itself. */
gpt_cut_fn *gpt_cut_like(gpt_pretok_fn *pretok);

/* The same up to the first character of three bytes that is not a space and not
 * at text[0]. Its place is in *wide, 0 where there is none. The pieces are
 * those that end there or before; there may be none. For callers that have a
 * faster way through such characters (bpe/wide.h). */
typedef size_t gpt_cut_narrow_fn(const char *text, size_t len,
                                 struct gpt_stretch *stretches, size_t room,
                                 size_t *wide);
gpt_cut_narrow_fn *gpt_cut_narrow_like(gpt_pretok_fn *pretok);

#endif
