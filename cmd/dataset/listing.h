/* What info, stat and verify print of data sets: a table for people, or a JSON
 * object a line for scripts. A command fills a listing and prints it at its
 * end. */
#ifndef GPT_CMD_DATASET_LISTING_H
#define GPT_CMD_DATASET_LISTING_H

#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "data/indexed.h"

struct gpt_listing {
    struct gpt_buf text;
    bool json; /* objects, no table */
    int64_t n; /* sets in the table so far; the command counts them */
};

/* Writes the text to `out`, also when `status` says that the command failed, as
 * what was found before is of use; frees it. Returns `status`, or that of
 * writing. */
int gpt_listing_print(struct gpt_listing *l, struct gpt_out *out, int status,
                      struct gpt_err *err) GPT_MUST_USE;

/* Turns the result of gpt_buf_printf() and gpt_buf_add(), which fail only
 * without memory, into an error. */
int gpt_listing_check(int status, struct gpt_err *err) GPT_MUST_USE;

/* Adds an object as a line and frees it. NULL: out of memory. */
int gpt_listing_add(struct gpt_listing *l, cJSON *object, struct gpt_err *err)
    GPT_MUST_USE;

/* Adds a number to an object. */
void gpt_listing_put_int(cJSON *object, const char *name, int64_t v);

/* Adds prefix, format, dtype and counts of a set to an object. */
void gpt_listing_put_counts(cJSON *object, const struct gpt_indexed *set);

/* Bytes of a set's two files. */
int64_t gpt_listing_bin_bytes(const struct gpt_indexed *set);
int64_t gpt_listing_idx_bytes(const struct gpt_indexed *set);

#endif
