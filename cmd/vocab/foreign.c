/* The table of foreign.h. What is trained is GPT-2's kind of vocabulary: names
 * of other kinds are answered with that. */
#include "cmd/vocab/foreign.h"

#define SENTENCEPIECE "SentencePiece"
#define TOKENIZERS "tokenizers"

const struct gpt_foreign_option gpt_vocab_foreign[] = {
    {"files", TOKENIZERS, .means = "--input=%"},
    {"show-progress", TOKENIZERS, .answer = "--progress says when",
     .flag = true, .skip = true},
    {"special-tokens", TOKENIZERS,
     .answer = "<|endoftext|> is the one special token"},
    {"initial-alphabet", TOKENIZERS,
     .answer = "all 256 bytes are always in the vocabulary"},
    {"save-model", TOKENIZERS, .means = "--output-prefix=%"},
    {"model-prefix", SENTENCEPIECE, .means = "--output-prefix=%"},
    {"character-coverage", SENTENCEPIECE,
     .answer = "all 256 bytes are in the vocabulary, and so every text",
     .skip = true},
    {"model-type", SENTENCEPIECE,
     .answer = "what is trained is byte-level BPE, as GPT-2's"},
    {"input-sentence-size", SENTENCEPIECE,
     .answer = "all of the input is counted", .skip = true},
};

const size_t gpt_vocab_n_foreign = GPT_COUNT(gpt_vocab_foreign);
