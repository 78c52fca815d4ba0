/* Streams that run work as it comes, or as late as they may; see stream.h.
 * Start at emu::submit(), then run_until(). */
#include "tests/emu/cuda.h"

#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <stdlib.h>

namespace {

/* Work is numbered from 1 as it comes; `done` of it has been run. */
struct state {
    std::deque<std::function<cudaError_t()>> held;
    uint64_t put = 0, done = 0;
    bool late = false;
    cudaError_t failure = cudaSuccess; /* the first that nobody knows of */
};
typedef std::shared_ptr<state> state_p;

/* One thread at a time runs work: what it needs of other streams, too. */
std::recursive_mutex lock;
typedef std::lock_guard<std::recursive_mutex> locked;
std::set<state_p> streams;

} // namespace

struct emu_stream {
    state_p state;
};
struct emu_event {
    state_p state; /* of the stream it was recorded in, or NULL */
    uint64_t number;
};

static void run_until(state &s, uint64_t number)
{
    while (s.done < number && !s.held.empty()) {
        std::function<cudaError_t()> work = std::move(s.held.front());
        s.held.pop_front();
        cudaError_t e = work();
        s.done++;
        if (s.failure == cudaSuccess)
            s.failure = e;
    }
}

static cudaError_t finish(state &s)
{
    run_until(s, s.put);
    cudaError_t e = s.failure;
    s.failure = cudaSuccess;
    return e;
}

cudaError_t emu::submit(cudaStream_t s, std::function<cudaError_t()> work)
{
    locked hold(lock);
    if (!s)
        return work();
    s->state->held.push_back(std::move(work));
    s->state->put++;
    return s->state->late ? cudaSuccess : finish(*s->state);
}

void emu::finish_all()
{
    locked hold(lock);
    for (const state_p &s : streams)
        run_until(*s, s->put);
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    locked hold(lock);
    const char *when = getenv("GPT_CUDA_EMU_STREAMS");
    state_p made = std::make_shared<state>();
    made->late = when && strcmp(when, "late") == 0;
    streams.insert(made);
    *s = new emu_stream{made};
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    locked hold(lock);
    finish(*s->state);
    streams.erase(s->state);
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    emu::counted.waits++;
    locked hold(lock);
    return s ? finish(*s->state) : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize()
{
    emu::counted.waits++;
    emu::finish_all();
    return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    *e = new emu_event{nullptr, 0};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    locked hold(lock);
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    locked hold(lock);
    e->state = s ? s->state : nullptr;
    e->number = s ? s->state->put : 0;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    emu::counted.waits++;
    locked hold(lock);
    if (e->state)
        run_until(*e->state, e->number);
    return cudaSuccess;
}

/* For what was recorded last by now, whatever is recorded later. */
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    locked hold(lock);
    const state_p other = e->state;
    const uint64_t number = e->number;
    if (!other || (s && s->state == other))
        return cudaSuccess;
    return emu::submit(s, [other, number] {
        run_until(*other, number);
        return cudaSuccess;
    });
}
