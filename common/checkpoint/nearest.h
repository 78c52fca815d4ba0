/* A message about a model that no row of a table is: which rows are nearest,
 * and in which fields of the model they differ. Which of them is meant, we
 * cannot know. Start at gpt_nearest_keep(). */
#ifndef GPT_CHECKPOINT_NEAREST_H
#define GPT_CHECKPOINT_NEAREST_H

#include "base/status.h"

#include <stddef.h>

enum {
    GPT_NEAREST = 3,       /* rows that a message names */
    GPT_MISFIT_FIELDS = 6, /* and fields of each */
};

/* What a row lacks of a model; SIZE_MAX: it differs in all, of which the first
 * field is a name. */
struct gpt_misfit {
    const char *name;
    const char *fields[GPT_MISFIT_FIELDS]; /* the first of n */
    size_t n;
};

/* The rows with the fewest differences, these first; of equal ones the first in
 * the table. Zero at first. */
struct gpt_nearest {
    struct gpt_misfit rows[GPT_NEAREST];
    size_t n;
};

/* Rows of one name count once, by their nearest. */
void gpt_nearest_keep(struct gpt_nearest *to, const struct gpt_misfit *m);
/* GPT_EDATA: "no WHAT is this model; the nearest of ALL differ: ..." */
int gpt_nearest_fail(const struct gpt_nearest *near, const char *what,
                     size_t all, struct gpt_err *err) GPT_MUST_USE;

#endif
