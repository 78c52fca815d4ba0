/* The twin of NCCL; see nccl.h. A communicator has two threads: one puts calls
 * on their streams (launch), one connects to the other members and makes the
 * calls when the streams have come to them. Start at ncclComm::work().
 * How: nccl_call.cc. */
#include "cuda/nccl.cuh"

#include "kernels/emu/nccl_call.h"
#include "kernels/emu/variables.h"

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <stdio.h>
#include <string>
#include <sys/random.h>
#include <thread>
#include <unistd.h>
#include <vector>

/* The number behind a word of GPT_CUDA_EMU_NCCL, or 1; 0: it is not there. */
static int asked_for(const char *word)
{
    return (int)emu::number_of("GPT_CUDA_EMU_NCCL", word,
                               {"absent", "no-id", "stuck", "silent", "fail",
                                "hang-abort", "inside"});
}

/* ---- calls ---- */

/* One call, or those of a group: what is put on a stream. A stream that comes
 * to a job stands still until the worker has made its calls with the other
 * processes. The job then says with which result, and the stream continues. */
struct job : emu::elsewhere {
    ncclComm *comm;
    cudaStream_t stream;
    std::vector<call> calls;
    bool begun = false;

    void begin() override;
};

/* state is ncclInProgress from a call until its job is on a stream: the next
 * call of a communicator that does not block has to wait for that. */
struct ncclComm {
    int size, rank;
    std::string id;
    struct wires wires;
    std::mutex lock; /* of what follows */
    std::condition_variable changed;
    std::deque<std::shared_ptr<job>> given, put; /* not yet, on streams */
    ncclResult_t state = ncclInProgress;
    bool connected = false, finalizing = false, aborted = false;
    bool destroyed = false;
    std::string why;
    int made = 0; /* calls */
    std::thread launcher, worker;

    void launch();
    void work();
    void work_off(std::unique_lock<std::mutex> &hold);
    bool well() const;
    void fail(ncclResult_t r, const std::string &text);
};

void job::begin()
{
    std::lock_guard<std::mutex> hold(comm->lock);
    begun = true;
    comm->changed.notify_all();
}

/* ---- the thread ---- */

/* The first failure stays: it is the cause of those after it. */
void ncclComm::fail(ncclResult_t r, const std::string &text)
{
    std::lock_guard<std::mutex> hold(lock);
    if (state == ncclSuccess || state == ncclInProgress) {
        state = r;
        why = text;
    }
}

/* True while the communicator has not failed. The caller holds the lock. */
bool ncclComm::well() const
{
    return state == ncclSuccess || state == ncclInProgress;
}

/* Puts calls on their streams, one by one. */
void ncclComm::launch()
{
    std::unique_lock<std::mutex> hold(lock);
    while (!aborted && !destroyed) {
        if (!connected || !well() || given.empty() || asked_for("stuck")) {
            changed.wait(hold);
            continue;
        }
        std::shared_ptr<job> j = given.front();
        given.pop_front();
        put.push_back(j);
        hold.unlock();
        /* Without the lock: an eager stream calls job::begin(), which takes
         * it. */
        emu::submit(j->stream, j);
        hold.lock();
        if (state == ncclInProgress)
            state = ncclSuccess;
    }
}

/* Makes a call that a stream has come to. What fails stays on its stream until
 * the abort, as on a device. */
void ncclComm::work_off(std::unique_lock<std::mutex> &hold)
{
    /* fail=N counts the calls of this communicator from 1. */
    const bool forced = ++made == asked_for("fail");

    std::shared_ptr<job> j = put.front();
    hold.unlock();
    /* Without the lock, since this waits for other processes; the job stays at
     * the head of `put` until it is over. */
    const bool good = !forced && make_calls(&wires, size, rank, j->calls);
    if (good)
        emu::end(*j);
    else
        fail(forced ? ncclInternalError : wires.result,
             forced ? "forced" : wires.why);
    hold.lock();
    if (good)
        put.pop_front();
}

void ncclComm::work()
{
    if (!wires.connect(id, rank, size))
        fail(wires.result, wires.why);
    std::unique_lock<std::mutex> hold(lock);
    if (state == ncclInProgress)
        state = ncclSuccess;
    connected = true;
    changed.notify_all();
    while (!aborted && !destroyed) {
        /* In the order of calls, and not before the stream is there: a GPU
         * would not start the kernel, either. */
        if (well() && !put.empty() && put.front()->begun) {
            work_off(hold);
            continue;
        }
        if (finalizing && put.empty() && state == ncclInProgress)
            state = ncclSuccess;
        changed.wait(hold);
    }
    hold.unlock();
    /* The launcher has seen `aborted` or `destroyed`, too. Streams that wait
     * for jobs continue: after an abort no stream may be held up. */
    launcher.join();
    for (const std::shared_ptr<job> &j : put)
        emu::end(*j);
    wires.close();
}

/* ---- the interface: communicators ---- */

ncclResult_t ncclGetVersion(int *version)
{
    *version = 10000; /* 1.0.0 */
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    uint64_t bits[2];

    memset(id, 0, sizeof(*id));
    if (asked_for("no-id") || getrandom(bits, sizeof(bits), 0) != sizeof(bits))
        return ncclSystemError;
    snprintf(id->internal, sizeof(id->internal), "gpt-emu-nccl.%016llx%016llx",
             (unsigned long long)bits[0], (unsigned long long)bits[1]);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id,
                                    int rank, ncclConfig_t *config)
{
    if (config->blocking != 0 || rank < 0 || rank >= size)
        return ncclInvalidArgument;
    id.internal[sizeof(id.internal) - 1] = 0;
    ncclComm *c = *comm = new ncclComm;
    c->size = size;
    c->rank = rank;
    c->id = id.internal;
    c->wires.silent = asked_for("silent") > 0;
    /* Two threads, as putting a call may block in a stream's work while the
     * other one is needed to end that work. */
    c->launcher = std::thread([c] { c->launch(); });
    c->worker = std::thread([c] { c->work(); });
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
    std::lock_guard<std::mutex> hold(c->lock);
    *state = c->state;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    std::lock_guard<std::mutex> hold(c->lock);
    if (c->state != ncclSuccess)
        return c->state == ncclInProgress ? ncclInvalidArgument : c->state;
    /* In progress until all jobs are over. */
    c->finalizing = true;
    c->state = ncclInProgress;
    c->changed.notify_all();
    return ncclInProgress;
}

static ncclResult_t end_comm(ncclComm_t c, bool *how)
{
    {
        std::lock_guard<std::mutex> hold(c->lock);
        *how = true;
        c->changed.notify_all();
    }
    c->worker.join();
    delete c;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    return end_comm(c, &c->destroyed);
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    /* Asked again every second, so that a test can let it end. */
    while (asked_for("hang-abort"))
        sleep(1);
    c->wires.aborted = true;
    return end_comm(c, &c->aborted);
}

const char *ncclGetErrorString(ncclResult_t r)
{
    static const char *const texts[] = {
        "no error",         "CUDA error",    "system error", "internal error",
        "invalid argument", "invalid usage", "remote error", "in progress"};

    return texts[r];
}

const char *ncclGetLastError(ncclComm_t c)
{
    /* The caller may read it after the communicator has changed its mind. */
    static thread_local std::string text;

    std::lock_guard<std::mutex> hold(c->lock);
    text = c->why;
    return text.c_str();
}

/* ---- the interface: calls ---- */

struct grouped {
    ncclComm *comm;
    cudaStream_t stream;
    call c;
};
static thread_local std::vector<grouped> group;
static thread_local int depth;

static ncclResult_t give_job(ncclComm_t comm, cudaStream_t stream,
                             std::vector<call> calls)
{
    /* Calls that take so many milliseconds, as when NCCL connects members. */
    usleep(1000 * (useconds_t)asked_for("inside"));
    std::lock_guard<std::mutex> hold(comm->lock);
    if (comm->state == ncclInProgress)
        /* NCCL would misbehave silently; here the caller gets an error. */
        comm->why = "a call before the last one was on its stream";
    if (comm->state != ncclSuccess)
        return comm->state == ncclInProgress ? ncclInvalidArgument
                                             : comm->state;
    auto j = std::make_shared<job>();
    j->comm = comm;
    j->stream = stream;
    j->calls = std::move(calls);
    /* From here on the launcher owns it. */
    comm->given.push_back(j);
    comm->state = ncclInProgress;
    comm->changed.notify_all();
    return ncclInProgress;
}

/* True when all that a call reads and writes lies in device memory. */
static bool in_memory(const ncclComm *comm, const call &c)
{
    const size_t bytes = c.n * bytes_of(c.type);
    const size_t all = bytes * (size_t)comm->size;
    const bool reads = c.kind != RECEIVE, writes = c.kind != SEND;

    return (!reads ||
            emu::on_device(c.in, c.kind == REDUCE_SCATTER ? all : bytes)) &&
           (!writes ||
            emu::on_device(c.out, c.kind == ALL_GATHER ? all : bytes));
}

static ncclResult_t take_call(ncclComm_t comm, cudaStream_t stream,
                              const call &c)
{
    const bool moves = c.kind >= SEND;

    /* Checked when it is called, though it runs later: the line that is wrong
     * is on the stack. */
    if (!in_memory(comm, c) || c.peer < 0 || c.peer >= comm->size ||
        (moves && c.peer == comm->rank))
        return ncclInvalidArgument;
    if (depth == 0)
        return give_job(comm, stream, {c});
    if (!group.empty() && (group[0].comm != comm || group[0].stream != stream ||
                           !moves || group[0].c.kind < SEND))
        return ncclInvalidUsage; /* NCCL could; no kernel needs it */
    group.push_back(grouped{comm, stream, c});
    return ncclSuccess;
}

ncclResult_t ncclGroupStart()
{
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd()
{
    if (depth == 0)
        return ncclInvalidUsage;
    /* Groups nest; the outermost end gives all of it as one job. */
    if (--depth > 0 || group.empty())
        return ncclSuccess;
    std::vector<call> calls;
    for (const grouped &g : group)
        calls.push_back(g.c);
    const grouped first = group[0];
    group.clear();
    return give_job(first.comm, first.stream, std::move(calls));
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t n,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    return take_call(
        comm, stream,
        {ALL_REDUCE, (const char *)in, (char *)out, n, type, op, 0});
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    return take_call(
        comm, stream,
        {REDUCE_SCATTER, (const char *)in, (char *)out, n, type, op, 0});
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t n,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return take_call(
        comm, stream,
        {ALL_GATHER, (const char *)in, (char *)out, n, type, ncclSum, 0});
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t n,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    return take_call(
        comm, stream,
        {BROADCAST, (const char *)in, (char *)out, n, type, ncclSum, root});
}

ncclResult_t ncclSend(const void *in, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return take_call(comm, stream,
                     {SEND, (const char *)in, nullptr, n, type, ncclSum, peer});
}

ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return take_call(comm, stream,
                     {RECEIVE, nullptr, (char *)out, n, type, ncclSum, peer});
}

/* ---- the library ---- */

const struct nccl *nccl_library(const char **text)
{
    static const struct nccl calls = {
#define X(name) nccl##name,
        NCCL_LIST(X)
#undef X
    };
    const bool absent = asked_for("absent") > 0;

    *text = absent ? "no usable emulated NCCL" : "emulated NCCL";
    return absent ? nullptr : &calls;
}
