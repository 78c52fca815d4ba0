/* Streams that run work as it comes, or as late as they may, and graphs of it;
 * see stream.h. Start at emu::submit(), then advance(). */
#include "kernels/emu/cuda.h"
#include "kernels/emu/variables.h"

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>

namespace {

/* A stream's state outlives its handle: events and items of other streams may
 * refer to it after cudaStreamDestroy(). */
struct state;
typedef std::shared_ptr<state> state_p;

/* One of: work, work of another thread, the work of another stream up to a
 * number. */
struct item {
    std::function<cudaError_t()> work;
    std::shared_ptr<emu::elsewhere> elsewhere;
    state_p other;
    uint64_t number = 0;
    bool begun = false;
};

/* Items are numbered from 1 as they come; `done` of them are over. */
struct state {
    std::deque<item> held;
    uint64_t put = 0, done = 0;
    bool late = false;
    cudaError_t failure = cudaSuccess; /* the first not yet returned */
    struct emu_graph *graph = nullptr; /* it is being captured into this */
};

/* One thread at a time runs work, with the lock held, on its own stream and on
 * those that this one waits for. Two kernels never run at once: the globals of
 * schedule.cc and the order of every test stay simple. */
std::mutex lock;
std::condition_variable ended; /* work elsewhere */
typedef std::unique_lock<std::mutex> locked;
std::set<state_p> streams;

} // namespace

struct emu_stream {
    state_p state;
};
struct emu_graph {
    std::deque<std::function<cudaError_t()>> work;
    bool refused = false;
};
/* As cudaStreamCaptureModeThreadLocal: only this thread's calls are refused. */
static thread_local struct emu_graph *capture; /* of this thread */

struct emu_event {
    state_p state; /* of the stream it was recorded in, or NULL */
    uint64_t number;
    double at; /* emu::spent when it was recorded */
};

thread_local double emu::spent;

static bool advance(state &s, uint64_t number);

/* False when the item has to wait. An item that waits for another stream runs
 * that stream's work up to the number that it waits for: a late stream runs
 * nothing before another stream or the host needs it. */
static bool run_item(state &s, item &i)
{
    if (i.other)
        return advance(*i.other, i.number);
    if (i.elsewhere) {
        if (!i.begun)
            i.elsewhere->begin();
        i.begun = true;
        return i.elsewhere->over;
    }
    /* Kept for the next call that asks, as errors of a device are. */
    cudaError_t e = i.work();
    if (s.failure == cudaSuccess)
        s.failure = e;
    return true;
}

/* Runs what needs not wait, up to a number: false when there is more. */
static bool advance(state &s, uint64_t number)
{
    while (s.done < number && run_item(s, s.held.front())) {
        s.held.pop_front();
        s.done++;
    }
    return s.done >= number;
}

static void run_until(locked &hold, state &s, uint64_t number)
{
    while (!advance(s, number))
        /* Only work elsewhere holds a stream up; the lock is free meanwhile. */
        ended.wait(hold);
}

static cudaError_t take_failure(state &s)
{
    cudaError_t e = s.failure;

    s.failure = cudaSuccess;
    return e;
}

/* An eager stream runs the item here, in the caller; a late one keeps it. */
static cudaError_t add_item(state &s, item i)
{
    s.held.push_back(std::move(i));
    s.put++;
    if (!s.late)
        advance(s, s.put);
    return s.late ? cudaSuccess : take_failure(s);
}

cudaError_t emu::submit(cudaStream_t s, std::function<cudaError_t()> work)
{
    locked hold(lock);

    if (s && s->state->graph) {
        s->state->graph->work.push_back(std::move(work));
        return cudaSuccess;
    }
    item i;
    i.work = std::move(work);
    /* The default stream runs at once. */
    return s ? add_item(*s->state, std::move(i)) : i.work();
}

void emu::submit(cudaStream_t s, std::shared_ptr<elsewhere> work)
{
    locked hold(lock);

    if (s->state->graph) {
        s->state->graph->refused = true; /* no graph waits for others */
        return;
    }
    item i;
    i.elsewhere = std::move(work);
    add_item(*s->state, std::move(i));
}

/* What is behind it goes on by itself, as on a device. */
void emu::end(elsewhere &work)
{
    locked hold(lock);

    work.over = true;
    for (const state_p &s : streams)
        if (!s->late)
            advance(*s, s->put);
    ended.notify_all();
}

void emu::finish_all()
{
    locked hold(lock);
    /* A copy: the lock is given up while waiting, and streams may come and
     * go. */
    const std::set<state_p> all = streams;

    for (const state_p &s : all)
        run_until(hold, *s, s->put);
}

bool emu::refused()
{
    if (capture)
        capture->refused = true;
    return capture != nullptr;
}

/* CUDA remembers it as if it were an error of the calling thread. */
static cudaError_t not_ready()
{
    emu::set_error(cudaErrorNotReady);
    return cudaErrorNotReady;
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    locked hold(lock);
    const char *when = emu::word("GPT_CUDA_EMU_STREAMS", {"now", "late"});
    state_p made = std::make_shared<state>();

    made->late = strcmp(when, "late") == 0;
    streams.insert(made);
    *s = new emu_stream{made};
    return cudaSuccess;
}

enum { LEAST = 0, GREATEST = -5 };

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    /* Checked but without effect: which of two streams goes first is nothing
     * that results may depend on. */
    *least = LEAST;
    *greatest = GREATEST;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags,
                                         int priority)
{
    if (priority > LEAST || priority < GREATEST)
        return cudaErrorInvalidValue;
    return cudaStreamCreateWithFlags(s, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    locked hold(lock);

    run_until(hold, *s->state, s->state->put);
    /* CUDA returns at once and frees when work is over; here it is. */
    streams.erase(s->state);
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    emu::counted.waits++;
    if (emu::refused())
        return cudaErrorStreamCaptureUnsupported;
    locked hold(lock);
    if (!s)
        return cudaSuccess;
    run_until(hold, *s->state, s->state->put);
    return take_failure(*s->state);
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    locked hold(lock);

    if (!advance(*s->state, s->state->put))
        return not_ready();
    return take_failure(*s->state);
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
    *e = new emu_event{nullptr, 0, 0};
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begun,
                                 cudaEvent_t ended)
{
    *ms = (float)(ended->at - begun->at);
    return cudaSuccess;
}

/* What waits for the event has its own reference to the stream's state. */
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    locked hold(lock);

    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    if (s && s->state->graph && emu::refused())
        return cudaErrorStreamCaptureUnsupported;
    locked hold(lock);
    /* A place in the stream: the number of items put so far. Recording again
     * moves it; waits that were put before keep the old place. */
    e->state = s ? s->state : nullptr;
    e->number = s ? s->state->put : 0;
    e->at = emu::spent;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    emu::counted.waits++;
    locked hold(lock);
    if (e->state)
        run_until(hold, *e->state, e->number);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    locked hold(lock);

    return !e->state || advance(*e->state, e->number) ? cudaSuccess
                                                      : not_ready();
}

/* For what was recorded last by now, whatever is recorded later. */
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    if (s && s->state->graph && emu::refused())
        return cudaErrorStreamCaptureUnsupported;
    locked hold(lock);
    if (!e->state || (s && s->state == e->state))
        return cudaSuccess;
    if (!s) {
        run_until(hold, *e->state, e->number);
        return cudaSuccess;
    }
    item i;
    i.other = e->state;
    i.number = e->number;
    return add_item(*s->state, std::move(i));
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    locked hold(lock);

    if (capture || !s || s->state->graph)
        return cudaErrorStreamCaptureUnsupported;
    capture = s->state->graph = new emu_graph();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
    locked hold(lock);

    *g = s->state->graph;
    capture = s->state->graph = nullptr;
    /* A call that cannot be captured spoils the capture, and the end says
     * so. */
    if (*g && !(*g)->refused)
        return cudaSuccess;
    delete *g;
    *g = nullptr;
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t g,
                                          unsigned long long)
{
    /* Work items hold their arguments by value, as nodes of a graph do. */
    *exec = new emu_graph(*g);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    cudaError_t e = cudaSuccess;

    emu::counted.graphs++;
    for (size_t i = 0; i < exec->work.size() && e == cudaSuccess; i++)
        e = emu::submit(s, exec->work[i]);
    return e;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    delete g;
    return cudaSuccess;
}
