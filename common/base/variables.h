/* Environment variables of these programs whose values are words. One table has
 * them, and every program refuses another word in any of them when it starts: a
 * setting that is misspelled would otherwise be no setting, without a message.
 *
 * Variables with values of other kinds are checked where they are read:
 * GPT_CPU_ISA in cpu.h, GPT_THREADS and GPT_CONFIG as the options that they
 * stand for. gpt(7) describes all of them. */
#ifndef GPT_BASE_VARIABLES_H
#define GPT_BASE_VARIABLES_H

#include "base/status.h"

/* Refuses the first variable whose word is not in its row. One that is empty
 * counts as unset: scripts empty a variable where they cannot unset it.
 * GPT_EUSAGE. */
int gpt_variables_check(struct gpt_err *err);

/* The place of the variable's word in its row, from 0, or -1 where it is unset.
 * After gpt_variables_check() only; the name is one of the table. */
int gpt_variable_word(const char *name);

#endif
