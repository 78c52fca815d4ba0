/* Showing what a conversion would read and write. */
#ifndef GPT_CMD_RESHAPE_PRINT_PLAN_H
#define GPT_CMD_RESHAPE_PRINT_PLAN_H

#include "cmd/reshape/reshape.h"

/* Prints files, bytes, memory and time to standard output. rate: of
 * gpt_reshape_measure(); 0: no time is shown. */
void gpt_plan_print(const struct gpt_reshape *r, double rate);
/* The same as one JSON object on one line. */
int gpt_plan_print_json(const struct gpt_reshape *r, double rate,
                        struct gpt_err *err) GPT_MUST_USE;

#endif
