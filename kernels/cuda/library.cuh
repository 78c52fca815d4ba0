/* Libraries that are opened at run time: cuBLASLt (gemm_lt.cu) and NCCL
 * (nccl_lib.cu). The plugin starts on machines that lack either. */
#ifndef GPT_KERNELS_CUDA_LIBRARY_CUH
#define GPT_KERNELS_CUDA_LIBRARY_CUH

#include <dlfcn.h>
#include <stddef.h>

#ifdef GPT_CUDA_EMU
#include "kernels/emu/library.h"
#endif

/* Opens a library and puts the addresses of N functions into `table`, a struct
 * of function pointers in the order of names. False when the library or one of
 * them is missing; the table is then incomplete. The library stays open. */
template <class Table, size_t N>
bool library_open(const char *soname, const char *const (&names)[N], Table *table)
{
    static_assert(sizeof(Table) == N * sizeof(void *), "a name for each function");
    void **to = reinterpret_cast<void **>(table);
#ifdef GPT_CUDA_EMU
    auto find = [&](const char *name) { return emu::library_function(soname, name); };
#else
    void *library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    auto find = [&](const char *name) { return library ? dlsym(library, name) : NULL; };
#endif

    for (size_t i = 0; i < N; i++)
        if (!(to[i] = find(names[i])))
            return false;
    return true;
}

#endif
