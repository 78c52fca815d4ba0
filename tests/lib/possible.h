/* What this build can do. */
#ifndef GPT_TESTS_POSSIBLE_H
#define GPT_TESTS_POSSIBLE_H

#include <stdbool.h>

#ifdef GPT_HAVE_GLOO
static const bool ranks_possible = true;
#else
static const bool ranks_possible = false; /* more than one, that is */
#endif

#endif
