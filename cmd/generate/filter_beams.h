/* The filter's texts by beam search. */
#ifndef GPT_CMD_GENERATE_FILTER_BEAMS_H
#define GPT_CMD_GENERATE_FILTER_BEAMS_H

#include "cmd/generate/loaded_model.h"
#include "cmd/generate/writer.h"

/* GPT_EUSAGE for options that a search does not obey. */
int gpt_check_beam_options(const struct gpt_generate_options *o,
                           struct gpt_err *err) GPT_MUST_USE;

/* Answers n_prompts prompts with o->num_samples texts each; requests
 * (n_prompts, num_samples) are those of the writer. */
int gpt_answer_with_beams(const struct gpt_loaded *m, struct gpt_writer *writer,
                          const struct gpt_request *requests, int64_t n_prompts,
                          struct gpt_speed *speed,
                          struct gpt_err *err) GPT_MUST_USE;

#endif
