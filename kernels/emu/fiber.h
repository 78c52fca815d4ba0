/* Fibers: stacks that fiber_switch() switches, one for each emulated thread.
 * The scheduler is a fiber, too; it runs on the stack of its host thread, which
 * fiber_open() did not allocate. */
#ifndef GPT_EMU_FIBER_H
#define GPT_EMU_FIBER_H

#include <stddef.h>

struct fiber {
    void *state;       /* where it stopped */
    const void *stack; /* lowest address */
    size_t bytes;
    void *shadow; /* AddressSanitizer's, while the fiber does not run */
};

/* Maps a stack with a guard page below it; ends the process when there is no
 * memory. The stack stays until the process ends. */
void fiber_open(struct fiber *f);

/* Makes f begin anew at entry(), which must not return. The next switch to f
 * starts it, wherever f was before. */
void fiber_begin(struct fiber *f, void (*entry)(void));

/* Stops `from`, which is the caller, and continues `to`. Returns when a later
 * call switches to `from`. */
void fiber_switch(struct fiber *from, struct fiber *to);

#endif
