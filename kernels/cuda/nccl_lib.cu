/* NCCL, opened at run time: without it, and where nccl.h was not there when
 * this was built, ranks talk through Gloo. */
#include "cuda/nccl.cuh"

#if GPT_HAVE_NCCL

#include "cuda/library.cuh"

#include <pthread.h>
#include <stdio.h>

/* The first in which communicators that do not block can be aborted. */
enum { OLDEST = NCCL_VERSION(2, 18, 1) };

static struct nccl calls;
static const char *const names[] = {
#define X(name) "nccl" #name,
    NCCL_LIST(X)
#undef X
};
static char text[160]; /* what it is, or why it is not there */
static bool found;

static void find_library(void)
{
    /* NCCL keeps its ABI within a major version. */
    static const char soname[] = "libnccl.so.2";
    int v = 0;

    snprintf(text, sizeof(text), "no usable %s", soname);
    /* All or nothing: a library that lacks one call is too old for the rest. */
    if (!library_open(soname, names, &calls) || calls.GetVersion(&v) != ncclSuccess)
        return;
    snprintf(text, sizeof(text), "NCCL %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    found = v >= OLDEST;
    if (!found)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), ", which is too old");
}

const struct nccl *nccl_library(const char **says)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find_library);
    *says = text;
    return found ? &calls : NULL;
}

#endif
