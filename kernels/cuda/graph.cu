/* Recordings are CUDA graphs: a stream is captured, then launched at once. */
#include "cuda/cuda.cuh"

#include <stdlib.h>

struct gpt_recording {
    cudaGraphExec_t exec;
    const void *work; /* of the queue, when it was recorded: kernels have it */
};

static int fail(struct gpt_err *err, cudaError_t e)
{
    cudaGetLastError(); /* it is reported here */
    return gpt_fail(err, GPT_EDEVICE, "cuda: recording: %s", cudaGetErrorString(e));
}

int cuda_record_begin(struct gpt_queue *q, struct gpt_err *err)
{
    if (q->err.status != GPT_OK) {
        *err = q->err;
        return q->err.status;
    }
    /* Waiting for a stream ends its capture with an error. */
    if (q->step_by_step)
        return gpt_fail(err, GPT_EDEVICE, "cuda: GPT_CUDA_SYNC waits for every operation");
    /* Thread-local: other threads (the saver, NCCL's) may allocate and copy while
     * this one records. */
    cudaError_t e = cudaStreamBeginCapture(q->stream, cudaStreamCaptureModeThreadLocal);
    return e == cudaSuccess ? GPT_OK : fail(err, e);
}

int cuda_record_end(struct gpt_queue *q, struct gpt_recording **out, struct gpt_err *err)
{
    struct gpt_recording *r = (struct gpt_recording *)calloc(1, sizeof(*r));
    cudaGraph_t graph = NULL;

    *out = NULL;
    cudaError_t e = cudaStreamEndCapture(q->stream, &graph);
    if (e == cudaSuccess)
        e = r ? cudaGraphInstantiateWithFlags(&r->exec, graph, 0) : cudaErrorMemoryAllocation;
    if (graph)
        cudaGraphDestroy(graph);
    /* The executable graph has copies of all arguments; the graph goes. */
    if (e == cudaSuccess && q->err.status == GPT_OK) {
        r->work = q->work;
        *out = r;
        return GPT_OK;
    }
    free(r);
    if (q->err.status == GPT_OK)
        return fail(err, e);
    *err = q->err; /* of what was not run: the queue goes on without */
    /* A failure while recording is none of the queue's: nothing has run. */
    q->err = gpt_err();
    cudaGetLastError();
    return err->status;
}

bool cuda_replay(struct gpt_queue *q, struct gpt_recording *r)
{
    /* The kernels hold the address of work space that has been freed. */
    if (r->work != q->work)
        return false;
    if (cuda_ready(q, "replay", GPT_F32))
        cuda_check(q, cudaGraphLaunch(r->exec, q->stream));
    return true;
}

void cuda_recording_close(struct gpt_recording *r)
{
    if (!r)
        return;
    cudaGraphExecDestroy(r->exec);
    free(r);
}
