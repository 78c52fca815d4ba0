/* What a file holds that is no text of ours: known by its first bytes, so that
 * a message can name it and the command that makes text of it. */
#ifndef GPT_TEXT_CONTENT_H
#define GPT_TEXT_CONTENT_H

#include "base/status.h"

/* Refuses the first n bytes of file `name` (GPT_EDATA, with a hint) when they
 * are those of a format that is no UTF-8 text. */
int gpt_content_check(const void *bytes, size_t n, const char *name,
                      struct gpt_err *err) GPT_MUST_USE;

/* Refuses the first n bytes of plain text `name` (GPT_EDATA, with a hint) when
 * they hold NUL, which no text has: UTF-16 without a mark, tokens, a program.
 * Bytes that are no UTF-8 are only warned of: text may have some. */
int gpt_content_check_text(const void *bytes, size_t n, const char *name,
                           struct gpt_err *err) GPT_MUST_USE;

/* True when the JSON object that begins in a line is continued in the next one,
 * as in files made for people. `end` is after the last byte in memory. */
bool gpt_content_is_pretty(const char *line, const char *end);

#endif
