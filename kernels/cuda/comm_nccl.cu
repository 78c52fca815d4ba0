/* Collectives by NCCL, as kernels/collectives.h describes them. Communicators
 * do not block: a call returns while NCCL still works on it, and is on the
 * stream when NCCL says so. Two events around each call tell when the stream
 * has come to it and when it is over. Start at put(), then running().
 *
 * NCCL sums in an order of its own and rounds on the way, in BF16 and F16, too.
 */
#include "cuda/nccl.cuh"

#include "cuda/comm_nccl.cuh"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool abandoned; /* a stream waits for ever */

bool cuda_abandoned(void)
{
    return __atomic_load_n(&abandoned, __ATOMIC_RELAXED);
}

#if GPT_HAVE_NCCL

static bool used; /* streams may wait for other ranks */

/* A call on a stream. */
struct flight {
    int64_t number;
    bool put; /* `over` stands behind it */
    cudaEvent_t begun, over;
};

struct gpt_clique {
    const struct nccl *lib;
    ncclComm_t comm;
    pthread_mutex_t lock; /* of comm; may be held for long */
    bool aborted;         /* comm is nobody's any more */
    void *token;          /* what barriers add up */

    pthread_mutex_t order; /* of what follows */
    struct flight flights[GPT_CLIQUE_CALLS];
    int64_t first, next; /* flights[i % GPT_CLIQUE_CALLS], first <= i < next */
};

static bool is_aborted(const struct gpt_clique *c)
{
    return __atomic_load_n(&c->aborted, __ATOMIC_ACQUIRE);
}

/* Longer pauses the longer it takes. */
static void pause_a(int *round)
{
    const struct timespec tick = {0, 100 * 1000};
    if ((*round)++ < 200)
        sched_yield();
    else
        nanosleep(&tick, NULL);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void explain(const struct gpt_clique *c, ncclResult_t r, char *why, size_t cap)
{
    const char *last = c->comm ? c->lib->GetLastError(c->comm) : "";
    bool more = last && last[0];
    snprintf(why, cap, "NCCL: %s%s%s", c->lib->GetErrorString(r), more ? ": " : "",
             more ? last : "");
    why[strcspn(why, "\n")] = 0; /* one line */
}

static const struct nccl *library(struct gpt_err *err)
{
    const char *text;
    const struct nccl *lib = nccl_library(&text);
    if (!lib)
        gpt_fail(err, GPT_EDEVICE, "%s", text);
    return lib;
}

/* ---- state ---- */

/* With the lock: what NCCL makes of the call it was given last. */
static ncclResult_t progress(const struct gpt_clique *c)
{
    ncclResult_t state = ncclSuccess, r = c->lib->CommGetAsyncError(c->comm, &state);
    return r == ncclSuccess ? state : r;
}

/* Where another thread has the lock, NCCL is at work. */
static enum gpt_clique_state clique_state(struct gpt_clique *c, char *why, size_t cap)
{
    cuda_use_device();
    if (is_aborted(c) || pthread_mutex_trylock(&c->lock) != 0)
        return GPT_CLIQUE_BUSY;
    ncclResult_t r = is_aborted(c) ? ncclInProgress : progress(c);
    if (r != ncclSuccess && r != ncclInProgress)
        explain(c, r, why, cap);
    pthread_mutex_unlock(&c->lock);
    return r == ncclSuccess      ? GPT_CLIQUE_READY
           : r == ncclInProgress ? GPT_CLIQUE_BUSY
                                 : GPT_CLIQUE_FAILED;
}

/* ---- which calls are over ---- */

/* With `order`: forgets what is. */
static void land(struct gpt_clique *c)
{
    for (; c->first < c->next; c->first++) {
        const struct flight *f = &c->flights[c->first % GPT_CLIQUE_CALLS];
        if (!f->put || cudaEventQuery(f->over) == cudaErrorNotReady)
            return;
    }
}

static int64_t running(struct gpt_clique *c)
{
    int64_t number = 0;
    cuda_use_device();
    pthread_mutex_lock(&c->order);
    land(c);
    const struct flight *f = &c->flights[c->first % GPT_CLIQUE_CALLS];
    if (c->first < c->next && cudaEventQuery(f->begun) != cudaErrorNotReady)
        number = f->number;
    pthread_mutex_unlock(&c->order);
    return number;
}

/* Waits until there is room for one more: NULL after an abort. */
static struct flight *take_off(struct gpt_clique *c)
{
    for (int round = 0; !is_aborted(c); pause_a(&round)) {
        pthread_mutex_lock(&c->order);
        if (c->next - c->first == GPT_CLIQUE_CALLS)
            land(c);
        bool room = c->next - c->first < GPT_CLIQUE_CALLS;
        pthread_mutex_unlock(&c->order);
        if (room)
            return &c->flights[c->next % GPT_CLIQUE_CALLS];
    }
    return NULL;
}

static cudaError_t mark(cudaEvent_t *e, cudaStream_t stream)
{
    cudaError_t status = cudaSuccess;
    if (!*e)
        status = cudaEventCreateWithFlags(e, cudaEventDisableTiming);
    return status == cudaSuccess ? cudaEventRecord(*e, stream) : status;
}

static cudaError_t mark_begun(struct gpt_clique *c, struct flight *f, cudaStream_t stream,
                              int64_t number)
{
    pthread_mutex_lock(&c->order);
    cudaError_t e = mark(&f->begun, stream);
    f->number = number;
    f->put = false;
    if (e == cudaSuccess)
        c->next++;
    pthread_mutex_unlock(&c->order);
    return e;
}

static cudaError_t mark_over(struct gpt_clique *c, struct flight *f, cudaStream_t stream)
{
    pthread_mutex_lock(&c->order);
    cudaError_t e = mark(&f->over, stream);
    f->put = e == cudaSuccess;
    pthread_mutex_unlock(&c->order);
    return e;
}

/* ---- calls ---- */

static bool type_of(enum gpt_dtype t, ncclDataType_t *type)
{
    static const struct {
        enum gpt_dtype ours;
        ncclDataType_t theirs;
    } types[] = {{GPT_F32, ncclFloat32},
                 {GPT_F64, ncclFloat64},
                 {GPT_BF16, ncclBfloat16},
                 {GPT_F16, ncclFloat16},
                 {GPT_I64, ncclInt64}};
    for (size_t i = 0; i < GPT_COUNT(types); i++)
        if (types[i].ours == t) {
            *type = types[i].theirs;
            return true;
        }
    return false;
}

static ncclResult_t exchange(const struct gpt_clique *c, cudaStream_t stream,
                             const struct gpt_collective *call)
{
    ncclResult_t r = c->lib->GroupStart();
    for (int64_t i = 0; i < call->n_list && (r == ncclSuccess || r == ncclInProgress); i++) {
        const struct gpt_transfer *t = &call->list[i];
        size_t n = (size_t)t->bytes;
        r = t->send ? c->lib->Send(t->buf, n, ncclInt8, (int)t->peer, c->comm, stream)
                    : c->lib->Recv(t->buf, n, ncclInt8, (int)t->peer, c->comm, stream);
    }
    ncclResult_t end = c->lib->GroupEnd();
    return r == ncclSuccess || r == ncclInProgress ? end : r;
}

/* Where nothing is added up, types do not matter. */
static ncclResult_t start(const struct gpt_clique *c, cudaStream_t stream,
                          const struct gpt_collective *call)
{
    const struct nccl *lib = c->lib;
    const ncclRedOp_t op = call->op == GPT_MAX ? ncclMax : ncclSum;
    const size_t n = (size_t)call->n, bytes = n * gpt_dtype_bytes(call->type);
    ncclDataType_t type = ncclInt8;

    switch (call->kind) {
    case GPT_ALL_REDUCE:
        return !type_of(call->type, &type)
                   ? ncclInvalidArgument
                   : lib->AllReduce(call->in, call->out, n, type, op, c->comm, stream);
    case GPT_REDUCE_SCATTER:
        return !type_of(call->type, &type)
                   ? ncclInvalidArgument
                   : lib->ReduceScatter(call->in, call->out, n, type, op, c->comm, stream);
    case GPT_ALL_GATHER:
        return lib->AllGather(call->in, call->out, bytes, type, c->comm, stream);
    case GPT_BROADCAST:
        return lib->Broadcast(call->in, call->out, bytes, type, (int)call->root, c->comm,
                              stream);
    case GPT_EXCHANGE:
        return exchange(c, stream, call);
    case GPT_BARRIER:
        return lib->AllReduce(c->token, c->token, 1, ncclFloat32, ncclSum, c->comm, stream);
    }
    return ncclInvalidArgument;
}

static int stopped(struct gpt_err *err)
{
    return gpt_fail(err, GPT_EFAIL, "given up");
}

/* Gives NCCL the call, and waits until it is on the stream. */
static int start_and_wait(struct gpt_clique *c, cudaStream_t stream,
                          const struct gpt_collective *call, struct gpt_err *err)
{
    ncclResult_t r = ncclInProgress;
    char why[400];
    for (int round = 0; r == ncclInProgress; pause_a(&round)) {
        pthread_mutex_lock(&c->lock);
        if (!is_aborted(c)) {
            r = round == 0 ? start(c, stream, call) : progress(c);
            if (r != ncclSuccess && r != ncclInProgress)
                explain(c, r, why, sizeof why);
        }
        pthread_mutex_unlock(&c->lock);
        if (is_aborted(c))
            return stopped(err);
    }
    return r == ncclSuccess ? GPT_OK : gpt_fail(err, GPT_EFAIL, "%s", why);
}

static int put(struct gpt_clique *c, struct gpt_queue *q, const struct gpt_collective *call,
               int64_t number, struct gpt_err *err)
{
    cuda_use_device();
    struct flight *f = q->err.status == GPT_OK ? take_off(c) : NULL;
    if (q->err.status == GPT_OK && !f)
        return stopped(err);
    if (q->err.status == GPT_OK)
        q->op = "a collective";
    if (f && cuda_check(q, mark_begun(c, f, q->stream, number))) {
        GPT_TRY(start_and_wait(c, q->stream, call, err));
        cuda_check(q, mark_over(c, f, q->stream));
    }
    if (q->err.status != GPT_OK)
        *err = q->err;
    return q->err.status;
}

/* ---- the end ---- */

/* NCCL's abort has been seen to wait for ever; it gets a thread, which may
 * outlive everybody. */
struct ending {
    const struct nccl *lib;
    ncclComm_t comm;
    pthread_mutex_t lock;
    pthread_cond_t over;
    bool ended;
};

static void *end_comm(void *arg)
{
    struct ending *e = (struct ending *)arg;
    cuda_use_device();
    e->lib->CommAbort(e->comm);
    pthread_mutex_lock(&e->lock);
    e->ended = true;
    pthread_cond_broadcast(&e->over);
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static struct timespec in_seconds(int seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += seconds;
    return t;
}

static void give_up(void)
{
    __atomic_store_n(&abandoned, true, __ATOMIC_RELAXED);
}

/* Whoever has seen one hang does not wait for the next. */
static void await_end(struct ending *e, pthread_t thread)
{
    enum { PATIENCE = 5 };
    const struct timespec until = in_seconds(cuda_abandoned() ? 0 : PATIENCE);
    int late = 0;
    pthread_mutex_lock(&e->lock);
    while (!e->ended && late == 0)
        late = pthread_cond_timedwait(&e->over, &e->lock, &until);
    bool ended = e->ended;
    pthread_mutex_unlock(&e->lock);
    if (!ended) { /* *e stays */
        pthread_detach(thread);
        give_up();
        return;
    }
    pthread_join(thread, NULL);
    free(e);
}

/* The lock is with a thread that is in NCCL; if that does not come out of it,
 * the abort is what brings it out. */
static void clique_abort(struct gpt_clique *c)
{
    const struct timespec soon = in_seconds(1);
    pthread_t thread;
    bool locked = pthread_mutex_timedlock(&c->lock, &soon) == 0;
    bool again = __atomic_exchange_n(&c->aborted, true, __ATOMIC_ACQ_REL);
    if (locked)
        pthread_mutex_unlock(&c->lock);
    if (again || !c->comm)
        return;
    struct ending *e = (struct ending *)calloc(1, sizeof *e);
    if (!e)
        return give_up();
    e->lib = c->lib;
    e->comm = c->comm;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->over, NULL);
    if (pthread_create(&thread, NULL, end_comm, e) == 0)
        return await_end(e, thread);
    free(e);
    give_up();
}

/* In good order: all members have ended well when they close. One that has not
 * keeps nobody for long, and the next ones not at all. */
static void finalize(struct gpt_clique *c)
{
    static bool hurry;
    const double end = now() + 2;
    ncclResult_t r = hurry ? ncclInternalError : c->lib->CommFinalize(c->comm);
    for (int round = 0; r == ncclInProgress && now() < end; pause_a(&round))
        r = progress(c);
    if (r == ncclSuccess) {
        c->lib->CommDestroy(c->comm);
        c->aborted = true;
        return;
    }
    hurry = true;
    clique_abort(c);
}

static void clique_close(struct gpt_clique *c)
{
    if (!c)
        return;
    cuda_use_device();
    if (c->comm && !is_aborted(c))
        finalize(c);
    if (cuda_abandoned())
        return; /* events may still be waited for */
    for (size_t i = 0; i < GPT_COUNT(c->flights); i++) {
        if (c->flights[i].begun)
            cudaEventDestroy(c->flights[i].begun);
        if (c->flights[i].over)
            cudaEventDestroy(c->flights[i].over);
    }
    cudaFree(c->token);
    pthread_mutex_destroy(&c->order);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---- the beginning ---- */

static int clique_open(struct gpt_clique **out, const void *id, const char *name, int64_t size,
                       int64_t rank, struct gpt_err *err)
{
    const struct nccl *lib = library(err);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;
    char why[400];
    *out = NULL;
    if (!lib)
        return GPT_EDEVICE;
    struct gpt_clique *c = (struct gpt_clique *)calloc(1, sizeof *c);
    if (!c)
        return gpt_fail(err, GPT_EFAIL, "out of memory: group '%s'", name);
    c->lib = lib;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->order, NULL);
    memcpy(&unique, id, sizeof unique);
    config.blocking = 0;
    cuda_use_device();
    cudaError_t e = cudaMalloc(&c->token, sizeof(float));
    if (e == cudaSuccess)
        e = cudaMemset(c->token, 0, sizeof(float));
    if (e != cudaSuccess) {
        clique_close(c);
        return gpt_fail(err, GPT_EDEVICE, "group '%s': %s", name, cudaGetErrorString(e));
    }
    __atomic_store_n(&used, true, __ATOMIC_RELAXED);
    ncclResult_t r = lib->CommInitRankConfig(&c->comm, (int)size, unique, (int)rank, &config);
    *out = c;
    if (r == ncclSuccess || r == ncclInProgress)
        return GPT_OK;
    explain(c, r, why, sizeof why);
    return gpt_fail(err, GPT_EDEVICE, "%s", why);
}

static int make_id(void *id, struct gpt_err *err)
{
    static_assert(sizeof(ncclUniqueId) == GPT_CLIQUE_ID, "ids are of another size");
    const struct nccl *lib = library(err);
    if (!lib)
        return GPT_EDEVICE;
    cuda_use_device();
    ncclResult_t r = lib->GetUniqueId((ncclUniqueId *)id);
    return r == ncclSuccess
               ? GPT_OK
               : gpt_fail(err, GPT_EDEVICE, "NCCL: no id: %s", lib->GetErrorString(r));
}

static bool describe_library(char *text, size_t cap)
{
    const char *says;
    const struct nccl *lib = nccl_library(&says);
    snprintf(text, cap, "%s", says);
    return lib != NULL;
}

/* By its UUID. */
static int name_device(char *text, size_t cap, struct gpt_err *err)
{
    cudaDeviceProp p;
    int device = 0;
    cuda_use_device();
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        e = cudaGetDeviceProperties(&p, device);
    if (e != cudaSuccess)
        return gpt_fail(err, GPT_EDEVICE, "which GPU: %s", cudaGetErrorString(e));
    text[0] = 0;
    for (size_t i = 0; i < sizeof p.uuid.bytes && 2 * i + 3 <= cap; i++)
        snprintf(text + 2 * i, cap - 2 * i, "%02x", (unsigned char)p.uuid.bytes[i]);
    return GPT_OK;
}

const struct gpt_collectives *cuda_collectives(void)
{
    static const struct gpt_collectives table = {describe_library, name_device, make_id,
                                                 clique_open,      clique_state, put,
                                                 running,          clique_abort, clique_close};
    return &table;
}

bool cuda_wait(struct gpt_queue *q)
{
    if (!__atomic_load_n(&used, __ATOMIC_RELAXED))
        return cuda_check(q, cudaStreamSynchronize(q->stream));
    for (int round = 0; cudaStreamQuery(q->stream) == cudaErrorNotReady; pause_a(&round))
        if (cuda_abandoned()) {
            cuda_fail(q, "NCCL does not end a collective that was aborted");
            return false;
        }
    return cuda_check(q, cudaStreamSynchronize(q->stream)); /* at once, or why not */
}

#else

const struct gpt_collectives *cuda_collectives(void)
{
    return NULL;
}

bool cuda_wait(struct gpt_queue *q)
{
    return cuda_check(q, cudaStreamSynchronize(q->stream));
}

#endif
