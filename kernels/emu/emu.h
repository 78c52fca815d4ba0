/* Launches, and where threads meet: barriers, shuffles, votes. Included by
 * cuda.h. When some threads of a meeting do not arrive, or arrive from
 * different places of the source, the launch fails with a message that names
 * kernel, block, threads and lines. */
#ifndef GPT_EMU_EMU_H
#define GPT_EMU_EMU_H

/* The caller's place in the source, as default arguments. */
#define EMU_HERE                                                               \
    const char *file = __builtin_FILE(), int line = __builtin_LINE()

#include <tuple>

namespace emu {

/* Runs body(context) as every thread of every block. False when the launch
 * failed: failure() then returns the message. A process runs one launch at a
 * time; other calls wait. */
bool run_launch(const char *kernel, dim3 grid, dim3 block, size_t shared,
                void (*body)(void *context), void *context);
const char *failure();

template <class F>
bool launch(const char *kernel, dim3 grid, dim3 block, size_t shared, F body)
{
    return run_launch(
        kernel, grid, block, shared, [](void *context) { (*(F *)context)(); },
        &body);
}

namespace ptx {

/* A parameter of a kernel. */
struct argument {
    const void *at;
    size_t bytes;
};

/* GPT_CUDA_PTX, or NULL: kernels run as C++ compiled them. */
const char *directory();
/* The kernel's PTX in that directory (ptx/). */
bool launch(const char *name, void *kernel, dim3 grid, dim3 block,
            size_t shared, const struct argument *args, size_t n);
/* The thread for which the interpreter runs an instruction. */
unsigned running_thread();

} // namespace ptx

/* A kernel and its arguments. `name` is for messages. */
template <class... P, class... A>
bool launch_kernel(const char *name, dim3 grid, dim3 block, size_t shared,
                   void (*kernel)(P...), const A &...args)
{
    if (!ptx::directory())
        return launch(name, grid, block, shared, [=] { kernel(args...); });
    std::tuple<P...> values(args...);
    return std::apply(
        [&](const P &...v) {
            const struct ptx::argument all[] = {{&v, sizeof(P)}...};

            return ptx::launch(name, (void *)kernel, grid, block, shared, all,
                               sizeof(all) / sizeof(all[0]));
        },
        values);
}

/* Dynamic shared memory of the running block: as many bytes as the launch asked
 * for, filled with NaN when the block begins. */
char *dynamic_shared();

/* Ends the launch with the message "kernel, block, thread: text". A call from a
 * kernel's thread does not return; a call from the scheduler does. */
void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Fails when p is no multiple of `bytes`, as a GPU does for wide accesses. */
void check_aligned(const void *p, size_t bytes, EMU_HERE);

/* Waits until all lanes of `mask` have called it. `slot` is this lane's data.
 * The last lane to come calls f with the slots of all lanes (NULL for a lane
 * that is not in the mask); then all lanes continue. */
typedef void (*exchange)(void *const slots[32], uint32_t mask);
void meet_lanes(const char *what, uint32_t mask, void *slot, exchange f,
                const char *file, int line);

/* Lane of the running thread. */
unsigned lane();

/* A lane's data in a shuffle: it brings `in` and takes `out`. */
struct shuffle {
    uint64_t in, out;
    int from; /* the lane whose `in` becomes this lane's `out` */
};
uint64_t shuffled(const char *what, uint32_t mask, uint64_t value, int from,
                  const char *file, int line);
uint32_t ballot(const char *what, uint32_t mask, bool vote, const char *file,
                int line);
uint32_t same(uint32_t mask, uint64_t value, const char *file, int line);

template <class T> T shuffle_to(const char *what, uint32_t mask, T value,
                                int from, const char *file, int line)
{
    static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(value));
    bits = shuffled(what, mask, bits, from, file, line);
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Lane `to` where it is inside the caller's group of `width`, else its own. */
static inline int inside(int to, int width)
{
    int own = (int)lane(), first = own & ~(width - 1);

    return to >= first && to < first + width ? to : own;
}

} // namespace emu

void __syncthreads(EMU_HERE);
void __syncwarp(uint32_t mask = ~0u, EMU_HERE);

template <class T> T __shfl_sync(uint32_t mask, T x, int from, int width = 32,
                                 EMU_HERE)
{
    int first = (int)emu::lane() & ~(width - 1);

    return emu::shuffle_to("__shfl_sync", mask, x,
                           first + (from & (width - 1)), file, line);
}
template <class T> T __shfl_xor_sync(uint32_t mask, T x, int bits,
                                     int width = 32, EMU_HERE)
{
    return emu::shuffle_to("__shfl_xor_sync", mask, x,
                           emu::inside((int)emu::lane() ^ bits, width), file,
                           line);
}
template <class T> T __shfl_up_sync(uint32_t mask, T x, int by, int width = 32,
                                    EMU_HERE)
{
    return emu::shuffle_to("__shfl_up_sync", mask, x,
                           emu::inside((int)emu::lane() - by, width), file,
                           line);
}
template <class T> T __shfl_down_sync(uint32_t mask, T x, int by,
                                      int width = 32, EMU_HERE)
{
    return emu::shuffle_to("__shfl_down_sync", mask, x,
                           emu::inside((int)emu::lane() + by, width), file,
                           line);
}
static inline uint32_t __ballot_sync(uint32_t mask, int vote, EMU_HERE)
{
    return emu::ballot("__ballot_sync", mask, vote != 0, file, line);
}
static inline int __all_sync(uint32_t mask, int vote, EMU_HERE)
{
    return emu::ballot("__all_sync", mask, vote != 0, file, line) == mask;
}
template <class T> uint32_t __match_any_sync(uint32_t mask, T x, EMU_HERE)
{
    uint64_t bits = 0;

    memcpy(&bits, &x, sizeof(x));
    return emu::same(mask, bits, file, line);
}

#endif
