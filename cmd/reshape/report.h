/* What is shown of a checkpoint or a file: a head, files and tensors, as a
 * table for people or as an object for programs. Start at gpt_report_print().
 */
#ifndef GPT_CMD_RESHAPE_REPORT_H
#define GPT_CMD_RESHAPE_REPORT_H

#include "base/json.h"
#include "base/memory.h"
#include "checkpoint/source.h"

/* A tensor as the files have it, and its size. */
struct gpt_shown_row {
    struct gpt_stored t;
    int64_t bytes;
};

/* What is shown of a checkpoint. Names belong to the source or the file, which
 * is open while the report is printed. */
struct gpt_shown {
    const char *format;
    cJSON *head; /* object: config, state, ... */
    struct gpt_shown_row *rows;
    struct gpt_source_file *files;
    size_t n_rows, cap_rows, n_files, cap_files;
    int64_t parameters, bytes; /* optimizer state counts in bytes only */
};

/* A gpt_stored_visit for a struct gpt_shown. GPT_EDATA when the sum of all
 * sizes overflows. */
int gpt_report_add_row(void *report, const struct gpt_stored *t,
                       struct gpt_err *err) GPT_MUST_USE;
int gpt_report_add_file(struct gpt_shown *r,
                        const struct gpt_source_file *file,
                        struct gpt_err *err) GPT_MUST_USE;
/* Sorts the rows, and appends all to `out`; path: what was asked for. */
int gpt_report_print(struct gpt_buf *out, struct gpt_shown *r,
                     const char *path, bool json,
                     struct gpt_err *err) GPT_MUST_USE;
void gpt_report_free(struct gpt_shown *r); /* zero is fine */

#endif
