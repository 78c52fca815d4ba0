/* Texts that the model writes while it is trained (--sample-prompts): prompts
 * of a file, continued at each interval by the same choices, so that what
 * changes is the model. The choices are those of gpt-generate with the same
 * options. */
#ifndef GPT_CMD_TRAIN_PROMPT_SAMPLES_H
#define GPT_CMD_TRAIN_PROMPT_SAMPLES_H

#include "base/memory.h"
#include "generate/sample.h"
#include "tokenizer/tokenizer.h"
#include "train/texts.h"

struct gpt_prompt_samples; /* prompts, and room for what follows them */

struct gpt_prompt_options {
    const struct gpt_tokenizer *tokenizer; /* outlives the samples */
    struct gpt_sampling sampling;
    uint64_t seed;
    int64_t tokens;     /* to add at most */
    int32_t eod;        /* ends a text, begins an empty one; < 0: none */
    int64_t vocab_size; /* of the model */
    int64_t seq_length; /* T: prompt and text together */
};

/* Lines of a file, or JSON Lines with "prompt". GPT_EDATA names a line that is
 * too long. */
int gpt_prompt_samples_read(struct gpt_prompt_samples **p, const char *path,
                            const struct gpt_prompt_options *o,
                            struct gpt_err *err) GPT_MUST_USE;
void gpt_prompt_samples_close(struct gpt_prompt_samples *p); /* NULL is fine */
int64_t gpt_prompt_samples_n(const struct gpt_prompt_samples *p);
/* Ids of all prompts, to be compared between ranks. */
const struct gpt_ids *
gpt_prompt_samples_ids(const struct gpt_prompt_samples *p);

/* Continues all prompts together; every rank of the world calls it, and gets
 * the same texts. */
int gpt_prompt_samples_run(struct gpt_prompt_samples *p,
                           struct gpt_texts *texts,
                           struct gpt_err *err) GPT_MUST_USE;

/* A text of the last run, until the next one; text is valid UTF-8. */
struct gpt_prompt_sample {
    const char *prompt, *text;
    int64_t tokens;     /* added */
    const char *finish; /* "eod", "tokens", "positions", or "diverged": the
                         * logits were no numbers */
};
int gpt_prompt_samples_get(struct gpt_prompt_samples *p, int64_t i,
                           struct gpt_prompt_sample *sample,
                           struct gpt_err *err) GPT_MUST_USE;

#endif
