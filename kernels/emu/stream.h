/* Streams and events. Included by runtime.h.
 *
 * With GPT_CUDA_EMU_STREAMS=now (the default) a stream runs work as it comes. A
 * stream that is created under GPT_CUDA_EMU_STREAMS=late keeps its work until
 * the host waits for the stream, or another stream waits for an event in it.
 * When the two give different results, a wait is missing. Host memory that is
 * not of cudaHostAlloc() is read or written before a copy returns, as in
 * CUDA. */
#ifndef GPT_EMU_STREAM_H
#define GPT_EMU_STREAM_H

#include <functional>
#include <memory>

typedef struct emu_stream *cudaStream_t;
typedef struct emu_event *cudaEvent_t;
typedef struct emu_graph *cudaGraph_t;
typedef struct emu_graph *cudaGraphExec_t;
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
/* Priorities have no effect here, but must lie in the range. */
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags,
                                         int priority);
cudaError_t cudaStreamDestroy(cudaStream_t s); /* runs its work first */
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaDeviceSynchronize();

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
inline cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, 0);
}
/* By emu::spent. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begun,
                                 cudaEvent_t ended);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e,
                                unsigned flags = 0);

/* A captured stream keeps its work, with copies of arguments, in a graph. A
 * call that CUDA cannot capture, or that would use host memory when the graph
 * is launched, is refused, and the capture fails. */
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t g,
                                          unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t g);

namespace emu {
/* Milliseconds that this thread's products would take on a GPU that exists
 * nowhere: algorithms differ in it. */
extern thread_local double spent;

/* True when this thread captures a stream; the call makes the capture fail. */
bool refused();
/* Puts work on a stream; NULL, the default stream, runs it at once. What the
 * work refers to must live until it has run. When a late stream's work fails,
 * the call that waits for the stream returns the failure. */
cudaError_t submit(cudaStream_t s, std::function<cudaError_t()> work);
/* Runs all work of all streams; functions that free memory call it first. */
void finish_all();

/* Work that another thread does, such as a collective. A stream that comes to
 * it calls begin(), and runs nothing further until that thread calls end().
 * Only calls that wait for the stream wait meanwhile. begin() must not call
 * functions of this file. */
struct elsewhere {
    virtual ~elsewhere() {}
    virtual void begin() = 0;
    bool over = false;
};
void submit(cudaStream_t s, std::shared_ptr<elsewhere> work);
void end(elsewhere &work);
} // namespace emu

#endif
