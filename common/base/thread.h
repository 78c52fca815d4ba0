/* Threads beside main: started with a name that gdb and top show, and with the
 * signals left to main. */
#ifndef GPT_BASE_THREAD_H
#define GPT_BASE_THREAD_H

#include "base/status.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

/* Runs function(arg) in a thread of its own, joined by gpt_thread_join().
 * `name` has at most 15 characters. Signals that ask a process to do something
 * are blocked in the thread, so that they interrupt main, which waits for them
 * (base/signals.h). GPT_EFAIL names the thread and the reason. */
int gpt_thread_start(pthread_t *thread, const char *name,
                     void *(*function)(void *), void *arg,
                     struct gpt_err *err) GPT_MUST_USE;

/* How many threads, n at most, the system would start now beside those that
 * there are: they are started and end. n where memory for a list is lacking. */
int gpt_thread_room(int n);

/* Limits OpenMP to the threads that the system starts now, with a warning where
 * they are fewer. */
void gpt_thread_fit(void);

/* Waits until the thread's function has returned. */
void gpt_thread_join(pthread_t thread);

/* Signals that ask a process to do something wait, as far as the calling thread
 * is concerned, until the release; *old is its mask of before. Signals of its
 * own faults come as ever. */
void gpt_thread_hold_signals(sigset_t *old);
void gpt_thread_release_signals(const sigset_t *old);

/* A condition whose waits end at times of CLOCK_MONOTONIC: setting the time of
 * day neither ends nor prolongs them. */
void gpt_thread_cond_init(pthread_cond_t *condition);
/* The time, by that clock, at which a wait of so many seconds ends. */
struct timespec gpt_thread_after(double seconds);

#endif
