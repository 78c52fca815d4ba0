/* stderr, shared by log.c and progress.c: a message clears the progress line
 * first, and the two never interleave. Inside base/ only. */
#ifndef GPT_BASE_TERMINAL_H
#define GPT_BASE_TERMINAL_H

#include "base/log.h"

/* Writes a whole message, in one write(2), above the progress line. */
void gpt_terminal_message(const char *text, size_t n);
/* The same for a handler of signals, after which the process ends. */
void gpt_terminal_last_words(const char *text);
/* Draws (or redraws) the progress line; `text` has no line end and is cut to
 * the width of the terminal. */
void gpt_terminal_draw(const char *text);
/* Ends the progress line, so that it stays on screen. */
void gpt_terminal_keep(void);
/* stderr is a terminal, and this process is in its foreground. */
bool gpt_terminal_foreground(void);

bool gpt_log_is_json(void);

#endif
