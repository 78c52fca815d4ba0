/* Writes a trained byte-pair vocabulary as the two files that GPT-2's
 * tokenizers read: NAME-vocab.json, one object on one line, and
 * NAME-merges.txt. Ids are GPT-2's: the bytes in the order of their letters
 * (tokenizer/bytelevel.h), merge r as 256 + r, "<|endoftext|>" last. */
#ifndef GPT_TOKENIZER_VOCAB_WRITE_H
#define GPT_TOKENIZER_VOCAB_WRITE_H

#include "base/io.h"
#include "tokenizer/bpe/train.h"

#define GPT_END_OF_TEXT "<|endoftext|>"

/* Ids that the vocabulary will have. */
int64_t gpt_vocab_size(const struct gpt_bpe_trained *model);

int gpt_vocab_write_json(struct gpt_out *out,
                         const struct gpt_bpe_trained *model,
                         struct gpt_err *err) GPT_MUST_USE;
int gpt_vocab_write_merges(struct gpt_out *out,
                           const struct gpt_bpe_trained *model,
                           struct gpt_err *err) GPT_MUST_USE;

#endif
