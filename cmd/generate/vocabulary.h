/* The tokenizer of gpt-generate: that of the checkpoint, or the one that the
 * command line names, if it is the model's. */
#ifndef GPT_CMD_GENERATE_VOCABULARY_H
#define GPT_CMD_GENERATE_VOCABULARY_H

#include "checkpoint/source.h"
#include "tokenizer/tokenizer_options.h"

/* `given` are the options of the command line. GPT_EDATA when they name another
 * vocabulary than the checkpoint's, or one that does not fit the model; with
 * `insist` a vocabulary that only differs gets a warning. */
int gpt_vocabulary_open(struct gpt_tokenizer **tok,
                        const struct gpt_source *source,
                        const struct gpt_tokenizer_options *given, bool insist,
                        struct gpt_err *err) GPT_MUST_USE;

/* The same tokenizer for texts that were made for the model: names of special
 * tokens in them are the tokens, and nothing is put around a text. */
int gpt_vocabulary_open_special(struct gpt_tokenizer **tok,
                                const struct gpt_source *source,
                                const struct gpt_tokenizer_options *given,
                                struct gpt_err *err) GPT_MUST_USE;

#endif
