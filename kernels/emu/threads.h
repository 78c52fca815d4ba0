/* The threads of the block that runs: what schedule.cc and warp.cc share. */
#ifndef GPT_EMU_THREADS_H
#define GPT_EMU_THREADS_H

#include "kernels/emu/cuda.h"
#include "kernels/emu/fiber.h"

#include <functional>
#include <vector>

namespace emu {

enum { MAX_THREADS = 1024 };
enum state { READY, AT_BARRIER, IN_WARP, POLLING, ENDED };

/* A copy begun by cp.async. A GPU does the copy at any time before the wait for
 * its group ends. Here the copy happens in that wait or, with `copies_at_once`,
 * at once. */
struct async_copy {
    void *to;
    const void *from;
    size_t bytes, zeros; /* copied; set to zero after them */
    unsigned group;
};

struct thread {
    struct fiber fiber;
    uint3 index;
    enum state state;
    const char *what, *file; /* where it waits */
    int line;
    uint32_t mask; /* the lanes that it waits for, in a warp */
    void *slot;
    std::vector<async_copy> copies;
    unsigned group; /* of the next cp.async */
    bool (*over)(const struct thread *t); /* POLLING: true ends it */
    const void *on;  /* what it waits for */
    unsigned number; /* the parity, round or registers it waits for */
};

extern struct thread threads[MAX_THREADS];
extern struct thread *now; /* NULL: the scheduler runs */
extern unsigned n_threads;
extern bool copies_at_once;

/* Marks the running thread as waiting. yield() then runs other threads, unless
 * one of them has set this thread READY already. */
void set_waiting(enum state state, const char *what, const char *file,
                 int line);
void yield();

/* Waits until over(this thread) is true. */
void poll(bool (*over)(const struct thread *t), const char *what,
          const char *file, int line);

bool coin(); /* true or false by chance in random order, else false */

/* The device's architecture, 80 or 90, and its largest shared memory of a block
 * in bytes. */
unsigned arch();
size_t max_shared();

/* The scheduler calls these when a block begins and when it ends. */
void begin_warps();
void begin_async(char *shared, size_t bytes);
void begin_bulk();
void end_bulk();
void begin_wgmma();
void end_wgmma();
/* A step that the warps of a warpgroup take alike: end_wgmma() compares. */
void trace_warp(unsigned w, uint64_t x);

/* Takes bulk copy `which`, modulo how many are under way, one step on; false
 * when there are none. */
bool finish_copy(uint64_t which);
/* Whether the committed copies from shared memory that a thread has begun have
 * been read; else whether they are over. */
bool bulk_over(unsigned thread, bool read);

/* The thread that runs, here or in ptx/. */
unsigned acting_thread();

/* Bytes of a copy have come; an mbarrier is there for a copy to count on. */
void count_bytes(uint64_t *b, unsigned bytes);
void check_mbarrier(uint64_t *b, const char *file, int line);

/* The memory at an address of shared memory, for TMA and wgmma; fails unless
 * `bytes` bytes lie there and all writes to them were fenced. */
char *shared_at(unsigned address, unsigned bytes);

/* The address to which swizzling moves the data of an address: bits from 4 on
 * are combined (xor) with those from 7 on. `bits` is their number: 3 for rows
 * of 128 bytes, 2 for 64, 1 for 32, 0 for no swizzling. */
unsigned swizzled(unsigned address, unsigned bits);

/* ---- for ptx/, which runs the same blocks in its own way ---- */

/* Runs f for each block of a grid, with its shared memory; false when it
 * failed. */
bool run_blocks(const char *kernel, dim3 grid, dim3 block, size_t shared,
                const std::function<void(char *shared, size_t bytes)> &f);
/* Forgets the failures of launches before. */
void begin_failures(const char *kernel);
bool has_failed();
/* Says in messages where the program is, when no thread here runs. */
extern void (*fail_place)(char *to, size_t bytes);
/* 0..n - 1 by chance in random order, else 0. */
uint64_t random_below(uint64_t n);
/* 0..n - 1 in the order asked for. */
void permute(unsigned *permutation, unsigned n);

/* The lane of the warp that ptx/ runs. */
extern unsigned running_lane;
/* Writes that fence.proxy.async has to show; the fence of one thread. */
void shared_written(unsigned address, unsigned bytes, unsigned thread);
void fence_async_of(unsigned thread);
char *shared_pointer(unsigned address); /* NULL after fail() */
bool mbarrier_over(uint64_t *b, unsigned parity, const char *file, int line);
/* Told, unless NULL, of bulk copies and of what wgmma reads. */
extern void (*copy_begins)(unsigned shared, unsigned bytes, bool reads);
extern void (*copy_ends)(unsigned shared, unsigned bytes);
extern void (*operand_read)(unsigned address, unsigned bytes);
/* x[k * n + j] = element (first + j, k) of an operand in shared memory. */
void read_wgmma_operand(float *x, uint64_t descriptor, bool transposed,
                        bool bf16, unsigned first, unsigned n);
/* Calls f(address) for each 16 bytes of 16 k and n rows or columns of it. */
void visit_wgmma_operand(uint64_t descriptor, bool transposed, unsigned n,
                         const std::function<void(unsigned address)> &f);
/* d (16, 8) += a (16, 16) b (16, 8), of TF32 a (16, 8) b (8, 8), by lane. */
enum mma_type { MMA_F16, MMA_BF16, MMA_TF32 };
void mma_of_warp(float (*d)[4], const uint32_t (*a)[4], const uint32_t (*b)[2],
                 enum mma_type type);

} // namespace emu

#endif
