/* What may have been meant by the prefix of a data set that is not there. */
#ifndef GPT_DATA_PREFIX_HINT_H
#define GPT_DATA_PREFIX_HINT_H

#include "base/status.h"

/* Gives the error of opening PREFIX.idx or .bin a hint, where there is one. */
void gpt_hint_at_prefix(const char *prefix, struct gpt_err *err);

#endif
