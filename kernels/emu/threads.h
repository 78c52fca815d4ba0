/* The threads of the block that runs: what schedule.cc and warp.cc share. */
#ifndef GPT_EMU_THREADS_H
#define GPT_EMU_THREADS_H

#include "kernels/emu/cuda.h"
#include "kernels/emu/fiber.h"

#include <vector>

namespace emu {

enum { MAX_THREADS = 1024 };
enum state { READY, AT_BARRIER, IN_WARP, POLLING, ENDED };

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
    bool (*over)(const struct thread *t); /* POLLING: may it go on? */
    const void *on;  /* what it waits for */
    unsigned number; /* of that: parity, round, registers */
};

extern struct thread threads[MAX_THREADS];
extern struct thread *now; /* NULL: the scheduler runs */
extern unsigned n_threads;
extern bool copies_at_once;

/* Marks the running thread as waiting; yield() then lets others run unless
 * somebody has set it READY already. */
void set_waiting(enum state state, const char *what, const char *file,
                 int line);
void yield();

/* Waits until over(this thread) is true. */
void poll(bool (*over)(const struct thread *t), const char *what,
          const char *file, int line);

bool coin(); /* in random order: heads or tails; else false */

/* Of an emulated device: its architecture, 80 or 90, and what follows. */
unsigned arch();
size_t max_shared();

/* A new block begins; it ends. */
void begin_warps();
void begin_async(char *shared, size_t bytes);
void end_async();
void begin_wgmma();
void end_wgmma();

/* Does one of the bulk copies under way; false when there is none. */
bool finish_copy(uint64_t which);

/* `bytes` at an address of shared memory, for TMA and wgmma. */
char *shared_at(unsigned address, unsigned bytes);

/* Where swizzling puts what lies at an address: bits 4.. change by bits 7..,
 * 3 of them for 128 bytes, 2 for 64, 1 for 32, 0 for none. */
unsigned swizzled(unsigned address, unsigned bits);

} // namespace emu

#endif
