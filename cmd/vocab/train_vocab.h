/* What gpt-vocab does: counts the pieces of a corpus, merges them, writes the
 * two files. */
#ifndef GPT_CMD_VOCAB_TRAIN_VOCAB_H
#define GPT_CMD_VOCAB_TRAIN_VOCAB_H

#include "base/options.h"
#include "tokenizer/bpe/train.h"
#include "tokenizer/ids.h"

/* Without a merge a vocabulary has the bytes and <|endoftext|>. One of more
 * tokens than the maximum would be refused by its readers. */
enum { GPT_TRAINED_MIN = GPT_BPE_BYTES + 1, GPT_TRAINED_MAX = GPT_VOCAB_MAX };

/* The command line, as main.c's option table fills it. */
struct gpt_vocab_command {
    struct gpt_common_options common; /* first, as base/options.h wants it */
    struct gpt_list input, json_keys;
    const char *input_format, *output_prefix;
    int64_t vocab_size, min_frequency;
};

/* Writes PREFIX-vocab.json and PREFIX-merges.txt, both or none. The result does
 * not depend on the number of threads. GPT_EDATA when the input holds no text;
 * GPT_EEXIST before the work when a file exists. */
int gpt_train_vocab(const struct gpt_vocab_command *command,
                    struct gpt_err *err) GPT_MUST_USE;

#endif
