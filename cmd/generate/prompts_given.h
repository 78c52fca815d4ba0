/* The prompts that a command names, for every front end that reads some. */
#ifndef GPT_CMD_GENERATE_PROMPTS_GIVEN_H
#define GPT_CMD_GENERATE_PROMPTS_GIVEN_H

#include "cmd/generate/loaded_model.h"
#include "cmd/generate/prompts.h"

/* What a file holds. */
enum gpt_prompt_files {
    GPT_FILES_TEXT,  /* a prompt, without the newline at its end */
    GPT_FILES_WHOLE, /* a text, as it is */
    GPT_FILES_JSONL, /* a prompt a line */
};

/* Appends the prompts of the command line and of files, or else those of
 * standard input. GPT_EUSAGE when there are
 * none and standard input is a terminal. */
int gpt_prompts_read_given(struct gpt_prompts *p,
                           const struct gpt_generate_options *o,
                           enum gpt_prompt_files files,
                           struct gpt_err *err) GPT_MUST_USE;

/* Appends the tokens of prompt i to *ids: those of its text, with what the
 * tokenizer puts around it or not, or its own ids, which give the prompt its
 * text then. GPT_EDATA: an id that the model does not
 * have. */
int gpt_prompts_encode(struct gpt_prompts *p, size_t i,
                       const struct gpt_loaded *m, struct gpt_encoder *encoder,
                       enum gpt_around around, struct gpt_ids *ids,
                       struct gpt_err *err) GPT_MUST_USE;

/* False after a warning of text that is no UTF-8, which `what` names: the model
 * may read other characters than the user meant. */
bool gpt_prompt_check_utf8(const char *text, size_t len, const char *what);

#endif
