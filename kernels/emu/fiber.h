/* Fibers: stacks that are switched by hand, one for each emulated thread. The
 * scheduler's own stack is a fiber too, one whose `stack` nobody allocated. */
#ifndef GPT_EMU_FIBER_H
#define GPT_EMU_FIBER_H

#include <stddef.h>

struct fiber {
    void *state;       /* where it stopped */
    const void *stack; /* lowest address */
    size_t bytes;
    void *shadow; /* AddressSanitizer's, while it does not run */
};

/* Maps a stack with a guard page below it; ends the process when there is no
 * memory. The stack stays until the process ends. */
void fiber_open(struct fiber *f);

/* Makes f begin at entry(), which never returns, whatever it did before. */
void fiber_begin(struct fiber *f, void (*entry)(void));

/* Leaves `from`, goes on in `to`; returns when somebody switches back. */
void fiber_switch(struct fiber *from, struct fiber *to);

#endif
