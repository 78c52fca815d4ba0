/* Signals as flags that loops look at. SIGINT, SIGTERM, SIGHUP, SIGXCPU and
 * SIGUSR2 ask to stop, SIGUSR1 asks to save; inherited SIG_IGN is respected. A
 * second SIGINT and SIGPIPE remove temporary files and the process dies at
 * once. SIGQUIT is left to the system: it is for a program that does not end
 * otherwise. */
#ifndef GPT_BASE_SIGNALS_H
#define GPT_BASE_SIGNALS_H

#include "base/status.h"

void gpt_signals_setup(void);
/* The signals that ask to stop. */
enum { GPT_STOP_SIGNALS = 5 };
extern const int gpt_stop_signals[GPT_STOP_SIGNALS];
/* The signal that asked to stop, or 0. */
int gpt_signals_stop(void);
/* From now on as if this process had received it: it ends for that reason. One
 * that it did receive stays. */
void gpt_signals_adopt(int sig);
/* GPT_EFAIL with its name, or GPT_OK: for loops that end by a failure. */
int gpt_signals_check(struct gpt_err *err) GPT_MUST_USE;
/* True once for every SIGUSR1 (several before the call count as one). */
bool gpt_signals_take_save(void);
/* From then on a write to a pipe that nothing reads fails with EPIPE: for jobs
 * that must outlive a reader of their messages, or a peer. */
void gpt_signals_ignore_pipes(void);
/* Gives signals that this process ignores their default action again, for a
 * program that it starts; safe between fork() and exec(). */
void gpt_signals_for_child(void);
const char *gpt_signal_name(int sig); /* "SIGTERM" */
/* Dies of `sig` as if it had not been caught, so that the shell sees 128+n.
 * gpt_main() calls it after a run that was stopped. */
void gpt_signals_reraise(int sig);
/* For handlers of other signals: removes temporary files, writes `words` to
 * stderr, and ends the process with `status`. Of several threads that call it
 * the first one does. */
void gpt_signals_end(const char *words, int status)
    __attribute__((noreturn));

#endif
