/* One program at a time writes into a checkpoint directory. */
#ifndef GPT_CHECKPOINT_LOCK_H
#define GPT_CHECKPOINT_LOCK_H

#include "base/status.h"

/* Makes `dir` if needed and locks it until gpt_lock_close() or the end of the
 * process, however it ends. GPT_EEXIST names the process that holds it. *fd is
 * -1 after a failure. */
int gpt_lock_open(int *fd, const char *dir, struct gpt_err *err) GPT_MUST_USE;
/* The same for a program that is no run: it locks a directory in which a run
 * has saved, and creates nothing. *fd is -1 where there is no lock file. */
int gpt_lock_join(int *fd, const char *dir, struct gpt_err *err) GPT_MUST_USE;
void gpt_lock_close(int fd); /* -1 is fine */

#endif
