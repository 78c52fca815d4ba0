/* The table of foreign.h. What is trained is GPT-2's kind of vocabulary: names
 * of other kinds are answered with that. */
#include "cmd/vocab/foreign.h"

#define SENTENCEPIECE "SentencePiece"
#define TOKENIZERS "tokenizers"
#define ALL_BYTES                                                              \
    "all 256 bytes are in the vocabulary, so that no text is unknown"
#define NO_MARKS "tokens have no mark: a blank is part of the word behind it"
#define AS_IT_IS "texts are taken as they are, without a change"
#define ONE_SPECIAL "<|endoftext|> is the one special token"
#define LAST_ID ONE_SPECIAL ", and the last one"
#define NO_LENGTH "tokens have no greatest length"
#define ANY_LENGTH "texts of any length are counted"
#define CUT_AS_GPT2 "texts are cut by the pattern of GPT-2"

const struct gpt_foreign_option gpt_vocab_foreign[] = {
    {"files", TOKENIZERS, .means = "--input=%"},
    {"show-progress", TOKENIZERS, .answer = "--progress says when",
     .flag = true, .skip = true},
    {"special-tokens", TOKENIZERS, .answer = ONE_SPECIAL},
    {"initial-alphabet", TOKENIZERS,
     .answer = "all 256 bytes are always in the vocabulary"},
    {"save-model", TOKENIZERS, .means = "--output-prefix=%"},
    {"model-prefix", SENTENCEPIECE, .means = "--output-prefix=%"},
    {"character-coverage", SENTENCEPIECE,
     .answer = "all 256 bytes are in the vocabulary, and so every text",
     .skip = true},
    {"model-type", SENTENCEPIECE,
     .answer = "what is trained is byte-level BPE, as GPT-2's"},
    {"limit-alphabet", TOKENIZERS, .answer = ALL_BYTES},
    {"byte-fallback", SENTENCEPIECE, .answer = ALL_BYTES},
    {"unk-token", TOKENIZERS, .answer = ALL_BYTES},
    {"unk-id", SENTENCEPIECE, .answer = ALL_BYTES},
    {"max-token-length", TOKENIZERS, .answer = NO_LENGTH},
    {"max-sentencepiece-length", SENTENCEPIECE, .answer = NO_LENGTH},
    {"continuing-subword-prefix", TOKENIZERS, .answer = NO_MARKS},
    {"end-of-word-suffix", TOKENIZERS, .answer = NO_MARKS},
    {"dropout", TOKENIZERS, .answer = "merges are always applied"},
    {"add-prefix-space", TOKENIZERS, .answer = AS_IT_IS},
    {"add-dummy-prefix", SENTENCEPIECE, .answer = AS_IT_IS},
    {"lowercase", TOKENIZERS, .answer = AS_IT_IS},
    {"unicode-normalizer", TOKENIZERS, .answer = AS_IT_IS},
    {"normalization-rule-name", SENTENCEPIECE, .answer = AS_IT_IS},
    {"pattern", "tiktoken", .answer = CUT_AS_GPT2},
    {"split-digits", SENTENCEPIECE, .answer = CUT_AS_GPT2},
    {"user-defined-symbols", SENTENCEPIECE, .answer = ONE_SPECIAL},
    {"control-symbols", SENTENCEPIECE, .answer = ONE_SPECIAL},
    {"bos-id", SENTENCEPIECE, .answer = LAST_ID},
    {"eos-id", SENTENCEPIECE, .answer = LAST_ID},
    {"pad-id", SENTENCEPIECE, .answer = LAST_ID},
    {"hard-vocab-limit", SENTENCEPIECE,
     .answer = "a vocabulary that stays smaller than --vocab-size is written "
               "with a warning"},
    {"num-threads", SENTENCEPIECE, .answer = "--threads"},
    {"num-workers", TOKENIZERS, .answer = "--threads"},
    {"max-sentence-length", SENTENCEPIECE, .answer = ANY_LENGTH},
    {"train-extremely-large-corpus", SENTENCEPIECE, .answer = ANY_LENGTH},
    {"shuffle-input-sentence", SENTENCEPIECE,
     .answer = "the order of texts does not matter: all are counted"},
    {"input-sentence-size", SENTENCEPIECE,
     .answer = "all of the input is counted", .skip = true},
};

const size_t gpt_vocab_n_foreign = GPT_COUNT(gpt_vocab_foreign);
