/* Bad lines of an input: their kinds, the word for each kind, and the report
 * of those that were left out. */
#ifndef GPT_DATA_BAD_LINES_H
#define GPT_DATA_BAD_LINES_H

#include "text/json_scan.h"

/* The kinds of text/json_scan.h, and one of data sets. */
enum {
    GPT_BAD_LONG = GPT_JSON_BADS, /* tokens that no data set can hold */
    GPT_BAD_KINDS,
    GPT_BAD_NAMED = 5, /* the first bad lines are reported one by one */
};

/* The bad lines that were left out. */
struct gpt_bad_report {
    int64_t n, of_kind[GPT_BAD_KINDS];
    int64_t n_named;
    struct gpt_err named[GPT_BAD_NAMED]; /* file:line: what is wrong */
};

/* "blank line" and so on. */
const char *gpt_bad_word(int kind);

#endif
