/* Tasks that are scored while a model is trained (--score-set): lines with a
 * context and its continuation, as LAMBADA's, or with a context, several
 * endings and the number of the right one, as HellaSwag's. Tokens and figures
 * are those of the language model evaluation harness, and so those of
 * gpt-generate --score. */
#ifndef GPT_CMD_TRAIN_SCORE_SETS_H
#define GPT_CMD_TRAIN_SCORE_SETS_H

#include "tokenizer/tokenizer.h"
#include "train/texts.h"

struct gpt_score_set {
    const char *name;
    bool choices; /* endings, not continuations */
    int64_t n_lines, cut; /* cut: lines whose context lost its beginning */
    struct gpt_score_line *lines; /* (n_lines) */
    size_t cap_lines;
    struct gpt_given *texts; /* (n_texts): a continuation or an ending each */
    int64_t n_texts;
    size_t cap_texts;
    struct gpt_ids tokens; /* of all texts */
};

struct gpt_score_options {
    const struct gpt_tokenizer *tokenizer;
    int32_t eod; /* what comes before an empty context; < 0: nothing */
    int64_t vocab_size;  /* of the model */
    int64_t seq_length;  /* T: a text has one token more at most */
};

/* GPT_EDATA names the line. */
int gpt_score_set_read(struct gpt_score_set *set, const char *name,
                       const char *path, const struct gpt_score_options *o,
                       struct gpt_err *err) GPT_MUST_USE;
void gpt_score_set_free(struct gpt_score_set *set);

struct gpt_score_figures {
    double accuracy;   /* lines whose continuation is the most probable one */
    double perplexity; /* of a continuation, or of a right ending */
    double normalized; /* choices: accuracy where endings count by their
                        * characters; NaN: no choices */
};

/* Every rank of the world calls it; all get the figures. */
int gpt_score_set_run(const struct gpt_score_set *set, struct gpt_texts *texts,
                      struct gpt_score_figures *figures,
                      struct gpt_err *err) GPT_MUST_USE;

#endif
