/* A rank's end of a group in NCCL: what comm_nccl.cu (its beginning and its
 * calls) and clique.cu (its state and its end) share. */
#ifndef GPT_KERNELS_CUDA_CLIQUE_CUH
#define GPT_KERNELS_CUDA_CLIQUE_CUH

#include "cuda/comm_nccl.cuh"
#include "cuda/nccl.cuh"

#include <pthread.h>

#if GPT_HAVE_NCCL

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
    bool aborted;         /* comm must not be used again */
    void *token;          /* what barriers add up */

    pthread_mutex_t order; /* of what follows */
    struct flight flights[GPT_CLIQUE_CALLS];
    int64_t first, next; /* flights[i % GPT_CLIQUE_CALLS], first <= i < next */
};

/* After the abort, comm is not to be touched. */
static inline bool is_aborted(const struct gpt_clique *c)
{
    return __atomic_load_n(&c->aborted, __ATOMIC_ACQUIRE);
}

/* Queries leave "not ready" behind as if it were an error of the next launch. */
static inline bool is_over(cudaError_t e)
{
    if (e != cudaErrorNotReady)
        return true;
    cudaGetLastError();
    return false;
}

/* From now on streams may wait for other ranks. */
void clique_begun(void);

/* Waits for a moment, the longer the larger *round, which counts. */
void clique_pause(int *round);

/* With the lock: what NCCL makes of the call it was given last; what that
 * means, in one line. */
ncclResult_t clique_progress(const struct gpt_clique *c);
void clique_explain(const struct gpt_clique *c, ncclResult_t r, char *why, size_t cap);

/* As struct gpt_collectives says. */
enum gpt_clique_state clique_state(struct gpt_clique *c, char *why, size_t cap);
void clique_abort(struct gpt_clique *c);
void clique_close(struct gpt_clique *c);

#endif
#endif
