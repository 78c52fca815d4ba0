/* The calls of NCCL that kernels/cuda/comm_nccl.cu makes, between processes of
 * this machine (nccl.cc). When members disagree about a call, NCCL's behaviour
 * is undefined or it waits without end. Here the communicator gets an
 * asynchronous error whose text names the difference. Communicators do not
 * block: every call returns ncclInProgress, and a second call before the first
 * is on its stream is refused. Sums go around the ring, as NCCL's do, and are
 * rounded to their type at every rank.
 *
 * GPT_CUDA_EMU_NCCL, words separated by commas, causes failures:
 *   absent      there is no library
 *   no-id       ncclGetUniqueId() fails
 *   stuck       calls do not come to their streams
 *   silent      a member that ends is not noticed: calls wait for it
 *   fail=N      this process's Nth call of a communicator fails on the way
 *   hang-abort  ncclCommAbort() does not return, nor do calls end
 *   inside=N    a call takes N ms longer to return */
#ifndef GPT_EMU_NCCL_H
#define GPT_EMU_NCCL_H

#include "kernels/emu/cuda.h"

typedef struct ncclComm *ncclComm_t;

enum ncclResult_t {
    ncclSuccess,
    ncclUnhandledCudaError,
    ncclSystemError,
    ncclInternalError,
    ncclInvalidArgument,
    ncclInvalidUsage,
    ncclRemoteError,
    ncclInProgress,
};
enum ncclDataType_t {
    ncclInt8 = 0,
    ncclInt64 = 4,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9,
};
enum ncclRedOp_t { ncclSum = 0, ncclMax = 2 };

enum { NCCL_UNIQUE_ID_BYTES = 128 };
struct ncclUniqueId {
    char internal[NCCL_UNIQUE_ID_BYTES];
};
struct ncclConfig_t {
    int blocking;
};
#define NCCL_CONFIG_INITIALIZER {1}

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id,
                                    int rank, ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
const char *ncclGetErrorString(ncclResult_t r);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void *in, void *out, size_t n,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void *in, void *out, size_t n,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *in, void *out, size_t n,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclSend(const void *in, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);

#endif
