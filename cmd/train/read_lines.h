/* Files of lines that evaluation reads: JSON Lines, or plain ones. */
#ifndef GPT_CMD_TRAIN_READ_LINES_H
#define GPT_CMD_TRAIN_READ_LINES_H

#include "base/json.h"

/* Called for each line that is not empty: as an object where the file is JSON
 * Lines, else as text[0..len). `where` is "FILE:LINE". */
struct gpt_line_reader {
    int (*object)(void *user, const cJSON *object, const char *where,
                  struct gpt_err *err);
    int (*text)(void *user, const char *text, size_t len, const char *where,
                struct gpt_err *err); /* NULL: lines must be objects */
    void *user;
};

/* A file whose first character is a brace is JSON Lines. GPT_EDATA names file
 * and line. Nothing that the program writes may be this file. */
int gpt_read_lines(const char *path, const struct gpt_line_reader *reader,
                   struct gpt_err *err) GPT_MUST_USE;

#endif
