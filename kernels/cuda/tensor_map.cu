/* What kernels for Hopper need of the host: a GPU that runs them, and descriptions
 * of tensors for the copies of hopper.cuh. The driver makes the latter; nothing is
 * linked to it. */
#include "cuda/hopper.cuh"

#include <stdlib.h>

static bool flash_is(const char *way)
{
    const char *flash = getenv("GPT_CUDA_FLASH");

    return flash && strcmp(flash, way) == 0;
}

bool cuda_runs_hopper(const cudaDeviceProp &p)
{
    /* sm_90a code runs on compute capability 9.0 alone, not on what came after. */
    return p.major == 9 && p.minor == 0 && !flash_is("mma");
}

/* Blocks of the backward wait for each other, which those of no other kernel do: a
 * GPU on which they hang has a way around it. */
bool cuda_hopper_backward(void)
{
    return !flash_is("mma-backward");
}

typedef decltype(cuTensorMapEncodeTiled) encode_fn;

/* By the runtime, which has the driver open: the plugin must load on machines
 * without one. */
static encode_fn *find_encode()
{
    void *f = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000,
                                                     cudaEnableDefault, &found);
#else
    cudaError_t e = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &f, cudaEnableDefault,
                                            &found);
#endif
    return e == cudaSuccess && found == cudaDriverEntryPointSuccess ? (encode_fn *)f : nullptr;
}

bool cuda_tensor_map(struct gpt_queue *q, CUtensorMap *map, const struct tensor &t)
{
    /* Found once; initializing a static is safe among threads. */
    static encode_fn *const encode = find_encode();
    cuuint64_t dim[4], stride[3];
    cuuint32_t box[4], steps[4] = {1, 1, 1, 1};

    for (int i = 0; i < 4; i++) {
        dim[i] = (cuuint64_t)t.dim[i];
        box[i] = t.box[i];
        if (i < 3)
            stride[i] = (cuuint64_t)t.stride[i];
    }
    if (!encode) {
        cuda_fail(q, "this driver has no tensor maps: it is older than 12.0");
        return false;
    }
    /* Swizzled by 128 bytes, as wgmma reads tiles without bank conflicts; zeros
     * outside the tensor, so that padded heads and rows add nothing. */
    CUresult e = encode(map,
                        t.type == GPT_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                           : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                        4, const_cast<void *>(t.at), dim, stride, box, steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (e != CUDA_SUCCESS)
        cuda_fail(q, "a tensor map of %lld x %lld x %lld x %lld is refused (%d)",
                  (long long)t.dim[3], (long long)t.dim[2], (long long)t.dim[1],
                  (long long)t.dim[0], (int)e);
    return e == CUDA_SUCCESS;
}
