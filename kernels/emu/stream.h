/* Streams and events. Included by runtime.h.
 *
 * GPT_CUDA_EMU_STREAMS=now (the default) runs work as it comes. late, said when
 * a stream is created, holds its work back until somebody needs it: the host
 * that waits for the stream, or another stream that waits for an event in it.
 * Where the two give different results, a wait is missing. Copies between the
 * device and memory that is not of cudaHostAlloc() take or leave the host's
 * bytes before they return, as CUDA's do. */
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
/* Priorities change nothing here, but must be ones that there are. */
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags,
                                         int priority);
cudaError_t cudaStreamDestroy(cudaStream_t s); /* runs what is on it */
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaDeviceSynchronize();

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e,
                                unsigned flags = 0);

/* A captured stream keeps its work, with copies of arguments, in a graph. What
 * a GPU cannot capture, or what would refer to the host when it is launched,
 * is refused and makes the capture void. */
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t g,
                                          unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t g);

namespace emu {
/* True, and the capture is void, when this thread captures a stream. */
bool refused();
/* Puts work on a stream; NULL, the default stream, runs it at once. What the
 * work refers to must live until then. A failure of work that is held back is
 * returned by who needs it. */
cudaError_t submit(cudaStream_t s, std::function<cudaError_t()> work);
/* Runs all work of all streams, as what frees memory must. */
void finish_all();

/* Work of another thread, as a collective is: a stream that comes to it begins
 * it, and stays there until that thread calls end(). Nobody waits but who waits
 * for the stream. begin() calls nothing of this file. */
struct elsewhere {
    virtual ~elsewhere() {}
    virtual void begin() = 0;
    bool over = false;
};
void submit(cudaStream_t s, std::shared_ptr<elsewhere> work);
void end(elsewhere &work);
} // namespace emu

#endif
