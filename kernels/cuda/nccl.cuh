/* The calls of NCCL that are used: nccl_lib.cu finds them in the library when
 * the program runs, kernels/emu/nccl.cc is their twin between processes without a
 * GPU. comm_nccl.cu is the only user. */
#ifndef GPT_KERNELS_CUDA_NCCL_CUH
#define GPT_KERNELS_CUDA_NCCL_CUH

#include "cuda/cuda.cuh"

#if defined(GPT_CUDA_EMU)
#include "kernels/emu/nccl.h"
#define GPT_HAVE_NCCL 1
#elif __has_include(<nccl.h>)
#include <nccl.h>
#define GPT_HAVE_NCCL 1
#else
#define GPT_HAVE_NCCL 0
#endif

#if GPT_HAVE_NCCL

#define NCCL_LIST(X)                                                                             \
    X(GetVersion) X(GetUniqueId) X(CommInitRankConfig) X(CommGetAsyncError) X(CommFinalize)      \
    X(CommDestroy) X(CommAbort) X(GetErrorString) X(GetLastError) X(GroupStart) X(GroupEnd)      \
    X(AllReduce) X(ReduceScatter) X(AllGather) X(Broadcast) X(Send) X(Recv)

struct nccl {
#define X(name) decltype(&nccl##name) name;
    NCCL_LIST(X)
#undef X
};

/* NULL where the library is not; *text says what it is, or why not. */
const struct nccl *nccl_library(const char **text);

#endif
#endif
