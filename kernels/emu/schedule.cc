/* Runs the blocks of a launch one after another and the threads of a block as
 * fibers. Start at run_launch(), then run_block().
 *
 * A thread runs until it waits for others or ends. A pass goes over all warps,
 * in the order asked for, and resumes each thread that may continue. When a
 * pass has resumed no thread and not all have ended, the threads wait for each
 * other for ever, and the launch fails with the reason. */
#include "kernels/emu/cuda.h"
#include "kernels/emu/fiber.h"
#include "kernels/emu/threads.h"
#include "kernels/emu/variables.h"

#include <algorithm>
#include <mutex>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* One thread of the host runs all of a launch, so that CUDA's own variables can
 * be plain globals, set before a fiber goes on. */
uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emu {

struct thread threads[MAX_THREADS];
struct thread *now;
unsigned n_threads;

/* Those globals are why other host threads wait. */
static std::mutex one_launch;
static struct fiber scheduler;
static unsigned n_fibers;
static unsigned at_barrier;
static char text[640]; /* of the failure */
static bool failed;

static const char *kernel_name;
static void (*kernel_body)(void *);
static void *kernel_context;
static char *shared_memory;
static size_t shared_bytes;

const char *failure()
{
    return text;
}

char *dynamic_shared()
{
    return shared_memory;
}

unsigned lane()
{
    return (unsigned)(now - threads) % 32;
}

/* ---- failures ---- */

void (*fail_place)(char *to, size_t bytes);

bool has_failed()
{
    return failed;
}

/* A kernel may fail before it runs: its text may not be there. */
void begin_failures(const char *kernel)
{
    kernel_name = kernel;
    blockIdx = uint3{0, 0, 0};
    failed = false;
    text[0] = 0;
}

/* The first failure counts: what comes after follows from it. */
static void fail_at(const char *where, const char *fmt, va_list args)
{
    if (failed)
        return;
    failed = true;
    int n =
        snprintf(text, sizeof(text), "%s, block (%u,%u,%u)%s: ", kernel_name,
                 blockIdx.x, blockIdx.y, blockIdx.z, where);
    vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, args);
}

void fail(const char *fmt, ...)
{
    char where[160] = "";

    if (now)
        snprintf(where, sizeof(where), ", thread %u",
                 (unsigned)(now - threads));
    else if (fail_place)
        fail_place(where, sizeof(where));
    va_list args;
    va_start(args, fmt);
    fail_at(where, fmt, args);
    va_end(args);
    if (now)
        /* The thread's stack is left as it is, without running destructors;
         * restart_fibers() begins it anew. */
        fiber_switch(&now->fiber, &scheduler); /* for good */
}

void check_aligned(const void *p, size_t bytes, const char *file, int line)
{
    if ((uintptr_t)p % bytes)
        fail("%s:%d: an access of %zu bytes at %p, which is no multiple", file,
             line, bytes, p);
}

/* Fails because no thread can continue. The message names the places where
 * threads wait, and how many threads have ended. */
static void report_stuck()
{
    unsigned ended = 0, waiting = 0, first_ended = 0;
    const struct thread *first = nullptr;

    for (unsigned i = 0; i < n_threads; i++) {
        struct thread *t = &threads[i];

        if (t->state == ENDED) {
            first_ended = ended++ ? first_ended : i;
        } else {
            waiting++;
            first = first ? first : t;
        }
    }
    const struct thread *other = nullptr;
    /* A thread that waits at another place is most often the reason: a barrier
     * in a branch that not all threads took. */
    for (unsigned i = 0; i < n_threads && !other; i++)
        if (threads[i].state != ENDED &&
            (threads[i].line != first->line || threads[i].file != first->file))
            other = &threads[i];
    char more[200] = "";
    if (other)
        snprintf(more, sizeof(more), ", thread %u at %s in %s:%d",
                 (unsigned)(other - threads), other->what, other->file,
                 other->line);
    else if (ended)
        snprintf(more, sizeof(more), "; thread %u has ended without it",
                 first_ended);
    now = nullptr;
    fail("%u of %u threads wait for ever and %u have ended: thread %u waits "
         "at %s in %s:%d%s",
         waiting, n_threads, ended, (unsigned)(first - threads), first->what,
         first->file, first->line, more);
}

/* ---- one thread ---- */

/* Kernels end here, and the fiber waits for the next block. */
static void thread_main()
{
    for (;;) {
        kernel_body(kernel_context);
        now->state = ENDED;
        /* A GPU lets the block's shared memory go while the copy is written. */
        if (!now->copies.empty())
            fail("ended while %zu cp.async are under way", now->copies.size());
        fiber_switch(&now->fiber, &scheduler);
    }
}

void set_waiting(enum state state, const char *what, const char *file, int line)
{
    now->state = state;
    now->what = what;
    now->file = file;
    now->line = line;
}

/* Returns to the scheduler until another thread has set this one READY. */
void yield()
{
    if (now->state != READY)
        fiber_switch(&now->fiber, &scheduler);
}

/* Waits for a condition that other threads make true without knowing that this
 * one waits: the scheduler calls over() at each turn of the thread. */
void poll(bool (*over)(const struct thread *t), const char *what,
          const char *file, int line)
{
    set_waiting(POLLING, what, file, line);
    now->over = over;
    if (over(now))
        now->state = READY;
    yield();
}

static void resume(struct thread *t)
{
    now = t;
    /* Other fibers have changed it since. */
    threadIdx = t->index;
    fiber_switch(&scheduler, &t->fiber);
    now = nullptr;
}

} // namespace emu

void __syncthreads(const char *file, int line)
{
    using namespace emu;
    set_waiting(AT_BARRIER, "__syncthreads", file, line);
    if (++at_barrier == n_threads) {
        at_barrier = 0;
        for (unsigned i = 0; i < n_threads; i++) {
            struct thread *t = &threads[i];

            /* On some GPUs barriers at different places of the source happen to
             * meet; CUDA does not promise it. */
            if (t->line != line || strcmp(t->file, file) != 0)
                fail("meets at __syncthreads in %s:%d thread %u, which is at "
                     "%s:%d", file, line, i, t->file, t->line);
            t->state = READY;
        }
    }
    yield();
}

namespace emu {

/* ---- orders ---- */

static uint64_t random_state; /* 0: not random */
static bool backwards;
bool copies_at_once;

/* Reads the environment anew for each launch: a test runs the same kernel in
 * all orders in one process. */
static void read_order()
{
    const char *order = getenv("GPT_CUDA_EMU_ORDER");
    const bool is_seed = order && strncmp(order, "random:", 7) == 0;

    if (is_seed && order[7 + strspn(order + 7, "0123456789")])
        refuse("GPT_CUDA_EMU_ORDER");
    if (!is_seed)
        order = word("GPT_CUDA_EMU_ORDER", {"forward", "reverse", "random"});
    backwards = strcmp(order, "reverse") == 0;
    copies_at_once = backwards;
    random_state = is_seed ? strtoull(order + 7, nullptr, 10) * 2 + 1
                           : strcmp(order, "random") == 0;
}

/* splitmix64 (Steele, Lea and Flood, 2014) */
static uint64_t next_random()
{
    uint64_t x = random_state += 0x9e3779b97f4a7c15;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

bool coin()
{
    return random_state && next_random() % 2;
}

uint64_t random_below(uint64_t n)
{
    return random_state ? next_random() % n : 0;
}

/* The i-th of n things in the order asked for. */
void permute(unsigned *permutation, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        permutation[i] = backwards ? n - 1 - i : i;
    /* Fisher and Yates */
    for (unsigned i = n; random_state && i > 1; i--)
        std::swap(permutation[i - 1], permutation[next_random() % i]);
}

/* ---- blocks ---- */

static void begin_threads()
{
    /* Stacks are kept between launches: mapping one takes longer than most
     * threads run. */
    for (; n_fibers < n_threads; n_fibers++) {
        fiber_open(&threads[n_fibers].fiber);
        fiber_begin(&threads[n_fibers].fiber, thread_main);
    }
    for (unsigned i = 0; i < n_threads; i++) {
        threads[i].index = uint3{i % blockDim.x, i / blockDim.x % blockDim.y,
                                 i / blockDim.x / blockDim.y};
        threads[i].state = READY;
    }
    begin_warps();
    begin_wgmma();
    begin_async(shared_memory, shared_bytes);
    at_barrier = 0;
    if (shared_bytes)
        memset(shared_memory, 0xff, shared_bytes); /* NaN in every format */
}

/* Runs the lanes of one warp until all of them wait for other warps or have
 * ended; in random order it may stop before. False when no lane could run. */
static bool run_warp(unsigned first)
{
    unsigned turn[32], lanes = std::min(32u, n_threads - first);
    /* Leaving a warp early lets others overtake it, which finds missing
     * barriers between warps. */
    unsigned sweeps = random_state ? 1 + next_random() % 8 : ~0u;
    bool moved = true, any = false;

    for (; moved && sweeps > 0; sweeps--) {
        moved = false;
        permute(turn, lanes);
        for (unsigned i = 0; i < lanes && !failed; i++) {
            struct thread *t = &threads[first + turn[i]];

            /* Asked here, in the scheduler: a poll costs no switch of
             * stacks. */
            if (t->state == POLLING && t->over(t))
                t->state = READY;
            if (t->state != READY)
                continue;
            resume(t);
            moved = any = true;
        }
    }
    return any;
}

static unsigned count_ended()
{
    unsigned n = 0;

    for (unsigned i = 0; i < n_threads; i++)
        n += threads[i].state == ENDED;
    return n;
}

static void run_block()
{
    unsigned turn[MAX_THREADS / 32], warps = (n_threads + 31) / 32;

    begin_threads();
    while (!failed && count_ended() < n_threads) {
        bool moved = false;

        permute(turn, warps);
        for (unsigned i = 0; i < warps && !failed; i++)
            moved = run_warp(turn[i] * 32) || moved;
        /* Copies are as late as may be: when no thread can go on without. In
         * random order, now and then before. */
        if ((!moved || coin()) && !failed)
            moved = finish_copy(random_state ? next_random() : 0) || moved;
        if (!moved && !failed)
            report_stuck();
    }
    if (!failed)
        end_bulk();
    if (!failed)
        end_wgmma();
}

/* Threads that were left in the middle begin anew. */
static void restart_fibers()
{
    for (unsigned i = 0; i < n_fibers; i++) {
        threads[i].copies.clear();
        fiber_begin(&threads[i].fiber, thread_main);
    }
}

static void check_limits(dim3 grid, dim3 block, size_t shared)
{
    uint64_t count = (uint64_t)block.x * block.y * block.z;

    if (count < 1 || count > MAX_THREADS || block.z > 64)
        fail("%u x %u x %u threads in a block", block.x, block.y, block.z);
    if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffff ||
        grid.y > 65535 || grid.z > 65535)
        fail("a grid of %u x %u x %u blocks", grid.x, grid.y, grid.z);
    if (shared > max_shared())
        fail("%zu bytes of shared memory, limit %zu", shared, max_shared());
}

/* All blocks; the number of a block counts x fastest. */
static void run_grid(const std::function<void()> &run)
{
    uint64_t count = (uint64_t)gridDim.x * gridDim.y * gridDim.z;
    uint64_t step = 1; /* random: a step that has no factor with count */

    if (random_state)
        /* Such steps visit every block once, and need no list of blocks. */
        for (step = next_random() % count + 1; std::__gcd(step, count) != 1;)
            step++;
    for (uint64_t i = 0; i < count && !failed; i++) {
        uint64_t b = backwards ? count - 1 - i : i * step % count;

        blockIdx.x = (unsigned)(b % gridDim.x);
        blockIdx.y = (unsigned)(b / gridDim.x % gridDim.y);
        blockIdx.z = (unsigned)(b / gridDim.x / gridDim.y);
        run();
    }
}

/* By one thread of the host at a time: the caller holds the lock. `run` runs
 * the block whose number is in blockIdx. */
static bool run_alone(const char *kernel, dim3 grid, dim3 block, size_t shared,
                      const std::function<void()> &run)
{
    device_access open;
    begin_failures(kernel);
    gridDim = grid;
    blockDim = block;
    scheduler = fiber();
    check_limits(grid, block, shared);
    if (failed)
        return false;
    n_threads = block.x * block.y * block.z;
    shared_bytes = shared;
    shared_memory = nullptr;
    /* Exactly as many bytes as asked for, so that AddressSanitizer sees
     * accesses past the end; at 1024, as tiles of TMA need. */
    if (shared && posix_memalign((void **)&shared_memory, 1024, shared) != 0)
        fail("no memory for %zu bytes of shared memory", shared);
    read_order();
    if (!failed)
        run_grid(run);
    free(shared_memory);
    return !failed;
}

bool run_launch(const char *kernel, dim3 grid, dim3 block, size_t shared,
                void (*body)(void *), void *context)
{
    std::lock_guard<std::mutex> alone(one_launch);
    fail_place = nullptr;
    copy_begins = nullptr;
    copy_ends = operand_read = nullptr;
    kernel_body = body;
    kernel_context = context;
    bool good = run_alone(kernel, grid, block, shared, run_block);
    if (!good)
        restart_fibers();
    return good;
}

/* The interpreter of PTX has warps of its own; orders, shared memory and the
 * list of copies are those of here. */
bool run_blocks(const char *kernel, dim3 grid, dim3 block, size_t shared,
                const std::function<void(char *shared, size_t bytes)> &f)
{
    std::lock_guard<std::mutex> alone(one_launch);
    return run_alone(kernel, grid, block, shared, [&] {
        begin_async(shared_memory, shared_bytes);
        if (shared_bytes)
            memset(shared_memory, 0xff, shared_bytes);
        f(shared_memory, shared_bytes);
        if (!failed)
            end_bulk();
    });
}

} // namespace emu
