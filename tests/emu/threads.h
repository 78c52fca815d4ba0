/* The threads of the block that runs: what schedule.cc and warp.cc share. */
#ifndef GPT_EMU_THREADS_H
#define GPT_EMU_THREADS_H

#include "tests/emu/cuda.h"
#include "tests/emu/fiber.h"

#include <vector>

namespace emu {

/* MAX_SHARED is the least of the architectures built for (8.6, 8.9, 12.0). */
enum { MAX_THREADS = 1024, MAX_SHARED = 99 * 1024 };
enum state { READY, AT_BARRIER, IN_WARP, ENDED };

/* A copy begun by cp.async. A GPU does it at any time until its group is waited
 * for: here it is done then, or at once where `copies_at_once`. */
struct async_copy {
    void *to;
    const void *from;
    size_t bytes, zeros; /* copied; set to zero behind them */
    unsigned group;
};

struct thread {
    struct fiber fiber;
    uint3 index;
    enum state state;
    const char *what, *file; /* where it waits */
    int line;
    uint32_t mask; /* whom it waits for, in a warp */
    void *slot;
    std::vector<async_copy> copies;
    unsigned group; /* of the next cp.async */
};

extern struct thread threads[MAX_THREADS];
extern struct thread *now; /* NULL: the scheduler runs */
extern unsigned n_threads;
extern bool copies_at_once;

/* Marks the running thread as waiting; yield() then lets others run unless
 * somebody has set it READY already. */
void wait(enum state state, const char *what, const char *file, int line);
void yield();

/* A new block begins. */
void begin_warps();

} // namespace emu

#endif
