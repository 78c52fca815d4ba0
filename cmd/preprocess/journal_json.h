/* The lines of a journal as JSON: what a run is, and how far it has come. */
#ifndef GPT_CMD_PREPROCESS_JOURNAL_JSON_H
#define GPT_CMD_PREPROCESS_JOURNAL_JSON_H

#include "base/json.h"
#include "cmd/preprocess/journal.h"

/* What the lines describe. */
struct gpt_journal_about {
    const struct gpt_preprocess_options *o;
    char *path;     /* of the journal, for messages */
    int64_t n_sums; /* of inputs, in the lines so far */
};

/* Describes a run: all that the bytes of the output depend on, but for what is
 * done with bad lines, which may change as long as there was none. NULL when an
 * input is not there, or memory is out. */
cJSON *gpt_resume_to_json(const struct gpt_preprocess_options *options,
                          enum gpt_dtype dtype);
/* GPT_EEXIST names the first difference. */
int gpt_resume_check(const struct gpt_journal_about *j, const cJSON *now,
                     const cJSON *was, struct gpt_err *err) GPT_MUST_USE;

/* A point, with the sums of inputs j->n_sums .. n_sums - 1. NULL when memory is
 * out. */
cJSON *gpt_point_to_json(const struct gpt_journal_about *j,
                         const struct gpt_point *p, int64_t n_sums);
/* Reads all but the sums. GPT_EDATA names a field that no journal has so;
 * GPT_EEXIST: bad lines were skipped otherwise. */
int gpt_point_from_json(const struct gpt_journal_about *j, const cJSON *o,
                        struct gpt_point *p, struct gpt_err *err)
    GPT_MUST_USE;
/* Reads the sums of one line, which follow those of the lines before. */
int gpt_sums_from_json(struct gpt_journal_about *j, const cJSON *o,
                       struct gpt_point *p, struct gpt_err *err) GPT_MUST_USE;

#endif
