/* Messages for people, on stderr; one write(2) a message, control bytes
 * escaped. stdout carries only a program's product. */
#ifndef GPT_BASE_LOG_H
#define GPT_BASE_LOG_H

#include "base/status.h"

enum gpt_log_level { GPT_LOG_ERROR, GPT_LOG_WARNING, GPT_LOG_INFO,
                     GPT_LOG_DEBUG };

struct gpt_log_options {
    const char *program;
    enum gpt_log_level level; /* messages above it are dropped */
    bool json;                /* one object a line: t, level, program, msg */
    bool color;
};

struct gpt_buf;

void gpt_log_setup(const struct gpt_log_options *options);
/* Changes the form alone: for messages before all options are known. */
void gpt_log_as_json(bool json);
/* Drops messages above this level from now on, so that of several processes
 * only one speaks. */
void gpt_log_limit(enum gpt_log_level level);
/* True when messages of this level are printed. */
bool gpt_log_wants(enum gpt_log_level level);
void gpt_log(enum gpt_log_level level, const char *fmt, ...) GPT_PRINTF(2, 3);
#define gpt_info(...) gpt_log(GPT_LOG_INFO, __VA_ARGS__)
#define gpt_warn(...) gpt_log(GPT_LOG_WARNING, __VA_ARGS__)
#define gpt_debug(...) gpt_log(GPT_LOG_DEBUG, __VA_ARGS__)

/* While it is on, a message that this thread gave before while it was on is
 * left out, but for errors and lines: a program that opens a file twice warns
 * of it once. Returns how it was. The first 64 messages are remembered. */
bool gpt_log_once(bool on);

/* A line that is printed without a level (Megatron's log lines, tables); under
 * --log-format json it becomes the msg of an info object. */
void gpt_log_line(const char *fmt, ...) GPT_PRINTF(1, 2);

/* From here on gpt_log_line() writes a program's product: to standard output,
 * whatever --quiet says. For dry runs. */
void gpt_log_lines_to_stdout(void);

/* The width of the terminal behind a descriptor; 0 where none is known. */
int gpt_terminal_columns(int fd);
/* A terminal that obeys escape sequences: TERM=dumb, as in a shell within an
 * editor, is one that shows them. */
bool gpt_terminal_obeys(int fd);

/* "gpt-train: error: text" and "hint: ..."; see status.h. */
void gpt_log_error(const struct gpt_err *err);
/* Appends what gpt_log_error() would write: for a handler of a signal, which
 * can only write what is ready. There gpt_log_stamp() makes the time of such
 * lines, which JSON has, that of its call. */
int gpt_log_prepare_error(struct gpt_buf *b,
                          const struct gpt_err *err) GPT_MUST_USE;
void gpt_log_stamp(char *lines);

#endif
