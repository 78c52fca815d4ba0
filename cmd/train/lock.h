/* One run at a time in a checkpoint directory. */
#ifndef GPT_CMD_TRAIN_LOCK_H
#define GPT_CMD_TRAIN_LOCK_H

#include "base/status.h"

/* Makes `dir` if needed and locks it until gpt_lock_close() or the end of the
 * process, however it ends. GPT_EEXIST names the process that holds it. *fd is
 * -1 after a failure. */
int gpt_lock_open(int *fd, const char *dir, struct gpt_err *err) GPT_MUST_USE;
void gpt_lock_close(int fd); /* -1 is fine */

#endif
