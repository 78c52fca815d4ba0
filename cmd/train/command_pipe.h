/* A command that gets lines on its standard input: a tracker of experiments, in
 * whatever language. */
#ifndef GPT_CMD_TRAIN_COMMAND_PIPE_H
#define GPT_CMD_TRAIN_COMMAND_PIPE_H

#include "base/status.h"

struct gpt_command_pipe;

/* Starts `command` with sh. Its output goes where this program's goes. It is in
 * a process group of its own: Ctrl-C reaches the training alone, which then
 * ends the command's input. */
int gpt_command_pipe_open(struct gpt_command_pipe **pipe, const char *command,
                          struct gpt_err *err) GPT_MUST_USE;
/* Never waits: lines wait in memory while the command is busy, up to a
 * megabyte, and are lost beyond. A warning says so, once, and so it does when
 * the command has ended. */
void gpt_command_pipe_line(struct gpt_command_pipe *pipe, const char *line);
/* Gives the command what is left and the end of its input, and waits until it
 * ends, or until a signal asks this program to stop, or for 30 seconds. A
 * warning says when it failed. NULL is fine. */
void gpt_command_pipe_close(struct gpt_command_pipe *pipe);

#endif
