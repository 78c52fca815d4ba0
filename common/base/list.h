/* A list of words, as an option of several values holds it. */
#ifndef GPT_BASE_LIST_H
#define GPT_BASE_LIST_H

#include <stdint.h>

struct gpt_list {
    const char **items; /* (n), borrowed */
    int64_t n;
};

#endif
