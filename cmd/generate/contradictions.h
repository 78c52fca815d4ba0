/* Options that contradict each other, or have no effect beside others. */
#ifndef GPT_CMD_GENERATE_CONTRADICTIONS_H
#define GPT_CMD_GENERATE_CONTRADICTIONS_H

#include "cmd/generate/options.h"

/* GPT_EUSAGE names an option of a kind of work that is not asked for, or one
 * that draws among several tokens beside --greedy. These two must come from the
 * same place: --greedy on the command line overrides what a file sets. */
int gpt_contradictions_check(const struct gpt_generate_options *o,
                             const struct gpt_args *args,
                             struct gpt_err *err) GPT_MUST_USE;

/* Warns, in one line, of options that do nothing, though scripts may well have
 * them: choices of tokens beside --serve or scores, and what only several
 * processes or texts need. */
int gpt_contradictions_report(const struct gpt_generate_options *o,
                              const struct gpt_args *args,
                              struct gpt_err *err) GPT_MUST_USE;

#endif
