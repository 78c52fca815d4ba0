/* How emulated NCCL moves and adds up; see nccl_call.h. Start at make_calls().
 */
#include "kernels/emu/nccl_call.h"

extern "C" {
#include "base/dtype.h"
}

#include <algorithm>
#include <string.h>

size_t bytes_of(ncclDataType_t t)
{
    return t == ncclInt8                           ? 1
           : t == ncclFloat16 || t == ncclBfloat16 ? 2
           : t == ncclFloat32                      ? 4
                                                   : 8;
}

/* ---- sums ---- */

/* to (n) = in[first] + in[first + 1] + ..., around the ring, as values that
 * load() makes of what is stored, and store() makes that again. */
template <class T, class F, class G>
static void add_around(char *to, const std::vector<const char *> &in, size_t n,
                       size_t first, ncclRedOp_t op, F load, G store)
{
    for (size_t i = 0; i < n; i++) {
        auto at = [&](size_t r) { return ((const T *)in[r % in.size()])[i]; };
        /* Rounded to T after every addition: in a ring the partial sum travels
         * in the type of the data. */
        T sum = at(first);

        for (size_t r = 1; r < in.size(); r++) {
            auto a = load(sum), b = load(at(first + r));

            sum = op == ncclSum ? store(a + b) : store(a > b ? a : b);
        }
        ((T *)to)[i] = sum;
    }
}

static void sum_ring(char *to, const std::vector<const char *> &in, size_t n,
                     size_t first, const call &c)
{
    auto same = [](auto x) { return x; };

    switch (c.type) {
    case ncclFloat32:
        return add_around<float>(to, in, n, first, c.op, same, same);
    case ncclFloat64:
        return add_around<double>(to, in, n, first, c.op, same, same);
    case ncclInt64:
        return add_around<int64_t>(to, in, n, first, c.op, same, same);
    case ncclBfloat16:
        return add_around<uint16_t>(to, in, n, first, c.op, gpt_bf16_to_f32,
                                    gpt_f32_to_bf16);
    case ncclFloat16:
        return add_around<uint16_t>(to, in, n, first, c.op, gpt_f16_to_f32,
                                    gpt_f32_to_f16);
    case ncclInt8:
        break;
    }
}

/* Every member's part is added up from the next one on, as a ring does. */
static void sum_parts(const std::vector<const char *> &in, const call &c)
{
    const size_t each = bytes_of(c.type);
    /* A ring all-reduce is a reduce-scatter and an all-gather of such parts;
     * the part decides which member's element is added first. */
    const size_t part = (c.n + in.size() - 1) / in.size();

    for (size_t at = 0, m = 0; at < c.n; at += part, m++) {
        std::vector<const char *> slices;
        for (const char *p : in)
            slices.push_back(p + at * each);
        sum_ring(c.out + at * each, slices, std::min(part, c.n - at), m + 1, c);
    }
}

/* ---- one call ---- */

/* Makes the result of this member from what all members have sent. Every member makes it from the
 * same bytes in the same order, so that all members have equal bits, as with NCCL. */
static void make_result(const std::vector<const char *> &in, size_t rank,
                        const call &c)
{
    const size_t bytes = c.n * bytes_of(c.type);

    switch (c.kind) {
    case ALL_REDUCE:
        return sum_parts(in, c);
    case REDUCE_SCATTER:
        return sum_ring(c.out, in, c.n, rank + 1, c);
    case ALL_GATHER:
        for (size_t r = 0; r < in.size(); r++)
            memcpy(c.out + r * bytes, in[r], bytes);
        return;
    case BROADCAST:
        memcpy(c.out, in[(size_t)c.peer], bytes);
        return;
    case SEND:
    case RECEIVE:
        return;
    }
}

/* Copies of what is sent, as out may be a part of in. */
static bool make_collective(struct wires *wires, size_t size, size_t rank,
                            const call &c)
{
    const size_t bytes = c.n * bytes_of(c.type);
    const bool all = c.kind != BROADCAST;
    /* Everybody sends all to everybody: a group is small, and what each says
     * the call is can be compared. */
    const size_t root = (size_t)c.peer;
    const struct header h = {c.kind, c.type, c.op, c.peer, bytes};

    std::vector<std::vector<char>> got(size);
    std::vector<const char *> in;
    std::vector<struct message> list;

    emu::device_access open;
    for (size_t r = 0; r < size; r++) {
        const char *out = c.in + (c.kind == REDUCE_SCATTER ? r * bytes : 0);

        /* One more, so that data() is an address for empty calls, too. */
        got[r].resize(bytes + 1);
        in.push_back(got[r].data());
        if (r == rank)
            memcpy(got[r].data(), out, bytes);
        if (r != rank && (all || rank == root))
            list.push_back(message{(int)r, true, h, out, nullptr});
        if (r != rank && (all || r == root))
            list.push_back(message{(int)r, false, h, nullptr, got[r].data()});
    }
    if (!wires->exchange(list))
        return false;
    make_result(in, rank, c);
    return true;
}

/* Sends and receives of a group are under way together, so that two members
 * which both send first do not wait for each other. */
static bool make_transfers(struct wires *wires, const std::vector<call> &calls)
{
    emu::device_access open;

    std::vector<struct message> list;
    for (const call &c : calls) {
        const size_t bytes = c.n * bytes_of(c.type);
        /* Both ends call it SEND, so that headers are equal. */
        const struct header h = {SEND, c.type, 0, 0, bytes};

        list.push_back(message{c.peer, c.kind == SEND, h, c.in, c.out});
    }
    return wires->exchange(list);
}

bool make_calls(struct wires *wires, int size, int rank,
                const std::vector<call> &calls)
{
    return calls[0].kind < SEND
               ? make_collective(wires, (size_t)size, (size_t)rank, calls[0])
               : make_transfers(wires, calls);
}
