/* Collectives by NCCL, as kernels/collectives.h describes them. Communicators
 * do not block: a call returns while NCCL still works on it, and is on the
 * stream when NCCL says so. Two events around each call tell when the stream
 * has come to it and when it is over. Start at put_call(), then running().
 *
 * NCCL sums in an order of its own and rounds on the way, in BF16 and F16, too.
 */
#include "cuda/clique.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if GPT_HAVE_NCCL

/* ---- which calls are over ---- */

/* Called with `order` held: forgets the calls that are over. Flights are a ring,
 * first to next, in the order in which calls were put. One that is over while an older one is not
 * waits for it: order is all that the callers ask about. */
static void land(struct gpt_clique *c)
{
    for (; c->first < c->next; c->first++) {
        const struct flight *f = &c->flights[c->first % GPT_CLIQUE_CALLS];

        if (!f->put || !is_over(cudaEventQuery(f->over)))
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
    /* The oldest call that is not over runs once its stream has reached it. Before that, the
     * stream is busy with other work, and this rank does not wait for another one. */
    if (c->first < c->next && is_over(cudaEventQuery(f->begun)))
        number = f->number;
    pthread_mutex_unlock(&c->order);
    return number;
}

/* Waits until there is room for one more: NULL after an abort. */
static struct flight *take_off(struct gpt_clique *c)
{
    for (int round = 0; !is_aborted(c); clique_pause(&round)) {
        pthread_mutex_lock(&c->order);
        if (c->next - c->first == GPT_CLIQUE_CALLS)
            land(c);
        bool room = c->next - c->first < GPT_CLIQUE_CALLS;
        pthread_mutex_unlock(&c->order);
        /* One thread at a time puts calls, so the place stays free. */
        if (room)
            return &c->flights[c->next % GPT_CLIQUE_CALLS];
    }
    return NULL;
}

static cudaError_t mark(cudaEvent_t *e, cudaStream_t stream)
{
    cudaError_t status = cudaSuccess;

    /* Made at the first use of a place, and used for every later flight. */
    if (!*e)
        status = cudaEventCreateWithFlags(e, cudaEventDisableTiming);
    return status == cudaSuccess ? cudaEventRecord(*e, stream) : status;
}

static cudaError_t mark_begun(struct gpt_clique *c, struct flight *f, cudaStream_t stream,
                              int64_t number)
{
    pthread_mutex_lock(&c->order);
    /* Under the lock: running() looks at the event and the number together. */
    cudaError_t e = mark(&f->begun, stream);
    f->number = number;
    /* `over` holds the flight that was here before until it is recorded anew:
     * land() must not take its end for this one's. */
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
    /* Ended even after a failure: an open group would swallow the next calls. */
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
        /* A sum of one float ends on no rank before all ranks have called it. */
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

    for (int round = 0; r == ncclInProgress; clique_pause(&round)) {
        pthread_mutex_lock(&c->lock);
        if (!is_aborted(c)) {
            /* A communicator that does not block is asked again and again; the
             * lock is free in between for the watching thread. */
            r = round == 0 ? start(c, stream, call) : clique_progress(c);
            if (r != ncclSuccess && r != ncclInProgress)
                clique_explain(c, r, why, sizeof(why));
        }
        pthread_mutex_unlock(&c->lock);
        if (is_aborted(c))
            return stopped(err);
    }
    return r == ncclSuccess ? GPT_OK : gpt_fail(err, GPT_EFAIL, "%s", why);
}

static int put_call(struct gpt_clique *c, struct gpt_queue *q, const struct gpt_collective *call,
               int64_t number, struct gpt_err *err)
{
    cuda_use_device();
    struct flight *f = q->err.status == GPT_OK ? take_off(c) : NULL;
    if (q->err.status == GPT_OK && !f)
        return stopped(err);
    if (q->err.status == GPT_OK)
        q->op = "a collective";
    /* begun, the call, over: in this order on the stream. When the call fails in
     * between, `put` stays false, and the flight counts as never over. */
    if (f && cuda_check(q, mark_begun(c, f, q->stream, number))) {
        GPT_TRY(start_and_wait(c, q->stream, call, err));
        cuda_check(q, mark_over(c, f, q->stream));
    }
    if (q->err.status != GPT_OK)
        *err = q->err;
    return q->err.status;
}

/* ---- the beginning ---- */

static const struct nccl *library(struct gpt_err *err)
{
    const char *text;
    const struct nccl *lib = nccl_library(&text);

    if (!lib)
        gpt_fail(err, GPT_EDEVICE, "%s", text);
    return lib;
}

static cudaError_t clique_init(struct gpt_clique *c, const struct nccl *lib)
{
    c->lib = lib;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->order, NULL);
    return cudaMalloc(&c->token, sizeof(float));
}

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
    memcpy(&unique, id, sizeof(unique));
    /* Calls then return at once, and a thread that waits can see an abort. */
    config.blocking = 0;
    cuda_use_device();
    struct gpt_clique *c = (struct gpt_clique *)calloc(1, sizeof(*c));
    cudaError_t e = c ? clique_init(c, lib) : cudaErrorMemoryAllocation;
    if (e == cudaSuccess)
        e = cudaMemset(c->token, 0, sizeof(float));
    if (e != cudaSuccess) {
        clique_close(c);
        return gpt_fail(err, GPT_EDEVICE, "group '%s': %s", name, cudaGetErrorString(e));
    }
    clique_begun();
    /* Returns while members still connect; clique_state() says when all have. */
    ncclResult_t r = lib->CommInitRankConfig(&c->comm, (int)size, unique, (int)rank, &config);
    *out = c;
    if (r == ncclSuccess || r == ncclInProgress)
        return GPT_OK;
    clique_explain(c, r, why, sizeof(why));
    return gpt_fail(err, GPT_EDEVICE, "%s", why);
}

static int make_id(void *id, struct gpt_err *err)
{
    /* The id goes to the other ranks through the store, as bytes. */
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
    const bool found = nccl_library(&says) != NULL;

    snprintf(text, cap, "%s", says);
    return found;
}

/* Names the device by its UUID. */
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
    for (size_t i = 0; i < sizeof(p.uuid.bytes) && 2 * i + 3 <= cap; i++)
        snprintf(text + 2 * i, cap - 2 * i, "%02x", (unsigned char)p.uuid.bytes[i]);
    return GPT_OK;
}

const char *cuda_collectives_library(void)
{
    const char *text;

    nccl_library(&text);
    return text;
}

const struct gpt_collectives *cuda_collectives(void)
{
    static const struct gpt_collectives table = {describe_library, name_device, make_id,
                                                 clique_open,      clique_state, put_call,
                                                 running,          clique_abort, clique_close};

    return &table;
}

#else

const char *cuda_collectives_library(void)
{
    return "built without NCCL";
}

const struct gpt_collectives *cuda_collectives(void)
{
    return NULL;
}

#endif
