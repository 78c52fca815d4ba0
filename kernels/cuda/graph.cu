/* Recordings are CUDA graphs: the work of a stream is captured, and later one call launches all of
 * it. The life of a recording: cuda_record_begin(), operations, cuda_record_end(), any number of
 * cuda_replay(). */
#include "cuda/cuda.cuh"

#include <stdlib.h>

struct gpt_recording {
    cudaGraphExec_t exec;
    const void *work; /* the queue's work space at capture, an argument of the kernels */
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
    cuda_recording_close(r);
    if (q->err.status == GPT_OK)
        return fail(err, e);
    *err = q->err;
    /* A failure while recording is reported here alone. The captured operations have not run, so
     * the queue is still good. */
    q->err = gpt_err();
    cudaGetLastError();
    return err->status;
}

bool cuda_replay(struct gpt_queue *q, struct gpt_recording *r)
{
    /* The queue's work space has grown since the capture, and the kernels would use the freed
     * one: the caller records anew. */
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
    if (r->exec)
        cudaGraphExecDestroy(r->exec);
    free(r);
}
