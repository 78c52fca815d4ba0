/* The progress line: "train  12.3% step 2460/20000  loss 3.41  ETA 3 h 10 min".
 * On a terminal it is redrawn at most 5 times a second and cleared before any
 * message; elsewhere a plain line appears now and then. */
#ifndef GPT_BASE_PROGRESS_H
#define GPT_BASE_PROGRESS_H

#include "base/status.h"

struct gpt_progress;

/* mode: "auto", "always" or "never" (--progress). `unit` is what `done` and
 * `total` count ("B" prints as bytes); total <= 0: unknown. NULL when off or
 * out of memory: the calls below take NULL. One progress line at a time. */
struct gpt_progress *gpt_progress_open(const char *mode, const char *what,
                                       const char *unit, int64_t total);
/* Cheap when called often. `note` is appended ("loss 3.41"), may be NULL. */
void gpt_progress_set(struct gpt_progress *p, int64_t done, const char *note);
void gpt_progress_close(struct gpt_progress *p);

#endif
