/* Switching stacks: some instructions on x86-64, ucontext elsewhere. Both tell
 * AddressSanitizer, when it is there, which stack runs. */
#include "kernels/emu/fiber.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
static const size_t stack_bytes = 1 << 18; /* redzones make frames longer */
#else
static const size_t stack_bytes = 1 << 16;
#endif

/* The same for all fibers; begun ones read it when they first run. */
static void (*fiber_entry)(void);

/* A page that may not be touched lies below each stack: a thread with large
 * arrays ends with a fault, not in its neighbour's stack. */
void fiber_open(struct fiber *f)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *mem = mmap(NULL, stack_bytes + page, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (mem == MAP_FAILED || mprotect(mem, page, PROT_NONE) != 0) {
        perror("emulated CUDA: the stack of a thread");
        abort();
    }
    *f = fiber{nullptr, (char *)mem + page, stack_bytes, nullptr};
}

#if defined(__x86_64__)

/* Saves what a call must keep, and the place, in *from; goes on at `to`. */
extern "C" void gpt_emu_swap(void **from, void *to);
/* swapcontext() makes a system call for the signal mask each time: ten times as
 * long. The registers here are those that a called function must keep. */
asm(R"(
.text
.p2align 4
.hidden gpt_emu_swap
.globl gpt_emu_swap
.type gpt_emu_swap, @function
gpt_emu_swap:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size gpt_emu_swap, . - gpt_emu_swap
)");

static void swap_stacks(struct fiber *from, struct fiber *to)
{
    gpt_emu_swap(&from->state, to->state);
}

static void prepare_stack(struct fiber *f, void (*entry)(void))
{
    /* Stacks are whole pages apart: beginning at different lines of a page,
     * they do not all compete for the same ones of the cache. */
    uintptr_t line = (uintptr_t)f->stack >> 12 & 31;
    /* six registers, where to go, and the word that keeps calls aligned */
    void **top = (void **)((uintptr_t)f->stack + f->bytes - 128 * line) - 8;
    memset(top, 0, 8 * sizeof(*top));
    top[6] = (void *)entry;
    f->state = top;
}

#else
#include <ucontext.h>

static void swap_stacks(struct fiber *from, struct fiber *to)
{
    if (!from->state)
        from->state = new ucontext_t;
    swapcontext((ucontext_t *)from->state, (ucontext_t *)to->state);
}

static void prepare_stack(struct fiber *f, void (*entry)(void))
{
    if (!f->state)
        f->state = new ucontext_t;
    ucontext_t *c = (ucontext_t *)f->state;
    getcontext(c);
    /* Never freed: fibers live as long as the process. */
    c->uc_stack.ss_sp = const_cast<void *>(f->stack);
    c->uc_stack.ss_size = f->bytes;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
}
#endif

/* The first thing a fiber runs. */
static void start_fiber(void)
{
#if defined(__SANITIZE_ADDRESS__)
    /* Ends what the first switch to this stack began. */
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
    fiber_entry();
    abort(); /* entry() never returns */
}

void fiber_begin(struct fiber *f, void (*entry)(void))
{
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(f->stack, f->bytes); /* of frames left */
#endif
    fiber_entry = entry;
    f->shadow = nullptr;
    prepare_stack(f, start_fiber);
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
#if defined(__SANITIZE_ADDRESS__)
    /* The scheduler learns where its own stack is by asking here. */
    if (!from->stack) {
        pthread_attr_t attr;
        void *low = nullptr;

        pthread_getattr_np(pthread_self(), &attr);
        pthread_attr_getstack(&attr, &low, &from->bytes);
        pthread_attr_destroy(&attr);
        from->stack = low;
    }
    __sanitizer_start_switch_fiber(&from->shadow, to->stack, to->bytes);
    swap_stacks(from, to);
    __sanitizer_finish_switch_fiber(from->shadow, nullptr, nullptr);
#else
    swap_stacks(from, to);
#endif
}
