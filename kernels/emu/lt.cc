/* cuBLASLt, emulated: products by plain loops, column-major, with float sums. It
 * checks what gemm_lt.cu tells it more strictly than the library documents, and
 * refuses what the library refuses: attributes of a wrong size, matrices that do
 * not fit together, addresses less aligned than was promised when the algorithm
 * was chosen, an algorithm of another product, work space that is not there.
 *
 * GPT_CUDA_EMU_GEMM, read when a handle is made: plain refuses epilogues, as the
 * library does for some shapes, none refuses everything, late refuses only when
 * the product is to be made, and broken fails then. Read at each call: absent,
 * there is no library; dead, it does not start; and calls that fail: mute, no
 * description is made; deaf, no attribute is taken; blind, no preference.
 *
 * Start at cublasLtMatmul(). */
#include "kernels/emu/lt.h"

#include "kernels/emu/library.h"
#include "kernels/emu/variables.h"

#include <string.h>

/* Handles are what they point to. */
struct cublasLtContext {
    bool plain, none, late, broken;
};
struct cublasLtMatmulPreferenceOpaque_t {
    size_t work;
    uint32_t aligned[4]; /* a, b, c, d */
};

namespace {

/* What an algorithm keeps: its number, the product that it is for, the work
 * space that it wants and the alignment that it relies on. */
struct choice {
    uint64_t number, product, work;
    uint32_t aligned[4], bias, aux;
    uint64_t unused[2];
};
static_assert(sizeof(choice) == sizeof(cublasLtMatmulAlgo_t), "opaque data");

struct counts {
    long asked, made, refused;
};
struct counts counted;

} // namespace

/* ---- descriptions ---- */

static bool is_mode(const char *name)
{
    const char *mode = emu::word(
        "GPT_CUDA_EMU_GEMM", {"library", "absent", "blind", "broken", "dead",
                              "deaf", "late", "mute", "none", "plain"});

    return strcmp(mode, name) == 0;
}

/* An attribute: as many bytes as the header says, no more and no fewer. */
template <class T> static cublasStatus_t take(T *to, const void *from, size_t n)
{
    if (!from || n != sizeof(*to) || is_mode("deaf"))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, from, sizeof(*to));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if ((compute != CUBLAS_COMPUTE_32F &&
         compute != CUBLAS_COMPUTE_32F_FAST_TF32) || scale != CUDA_R_32F ||
        is_mode("mute"))
        return CUBLAS_STATUS_INVALID_VALUE;
    *desc = new cublasLtMatmulDescOpaque_t{
        compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
        nullptr, nullptr, 0, -1, -1, nullptr, nullptr, 0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what,
    const void *value, size_t bytes)
{
    switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return take(&desc->ta, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return take(&desc->tb, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return take(&desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return take(&desc->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return take(&desc->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return take(&desc->ld_aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
        return take(&desc->aux_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return take(&desc->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
        return take(&desc->a_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
        return take(&desc->b_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
        return take(&desc->fast, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout,
                                          cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld)
{
    *layout = new cublasLtMatrixLayoutOpaque_t{type, (int64_t)rows,
                                               (int64_t)columns, ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    if (is_mode("blind"))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    /* The library takes 256 where nothing is promised. */
    *p = new cublasLtMatmulPreferenceOpaque_t{0, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t what,
    const void *value, size_t bytes)
{
    if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return take(&p->work, value, bytes);
    if (what < CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES ||
        what > CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
        return CUBLAS_STATUS_INVALID_VALUE;
    return take(&p->aligned[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                value, bytes);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- what can be multiplied ---- */

/* Epilogues are sums of bits: 4 adds a bias, 32 is GELU, 64 its slope, and 128
 * takes or writes the values before it. */
static bool has_bias(const cublasLtMatmulDescOpaque_t &e)
{
    return e.epilogue & CUBLASLT_EPILOGUE_BIAS;
}

static bool has_aux(const cublasLtMatmulDescOpaque_t &e)
{
    return e.epilogue & 128;
}

/* A number of the product's description. Addresses are no part of it. */
static uint64_t number_of(const lt_product &p)
{
    const int64_t parts[] = {
        p.desc.compute, p.desc.ta,    p.desc.tb,     p.desc.epilogue,
        p.desc.ld_aux,  p.m,          p.n,           p.k,
        p.a_is.type,    p.a_is.ld,    p.b_is.ld,     p.d_is.type,
        p.d_is.ld,      p.desc.aux_type, p.desc.bias_type,
        p.b_is.type,    p.desc.fast};
    uint64_t number = 0xcbf29ce484222325;

    for (int64_t part : parts)
        number = (number ^ (uint64_t)part) * 0x100000001b3;
    return number;
}

static bool is_eight(int type)
{
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

/* Factors of eight bits as tensor cores of 8.9 and 9.0 take them: neighbours in
 * the direction of k, rows and sizes of whole 16 bytes, and not both E5M2. Bias
 * is bf16 whatever the result is. */
static cublasStatus_t check_eight(const lt_product &p)
{
    const int a = p.a_is.type, b = p.b_is.type, d = p.d_is.type;
    const bool layout = p.desc.ta == CUBLAS_OP_T && p.desc.tb == CUBLAS_OP_N &&
                        (p.m | p.n | p.k | p.a_is.ld | p.b_is.ld | p.d_is.ld) %
                                16 == 0;
    const bool types =
        is_eight(a) && is_eight(b) &&
        !(a == CUDA_R_8F_E5M2 && b == CUDA_R_8F_E5M2) &&
        (d == CUDA_R_16BF || d == CUDA_R_32F) &&
        (!has_bias(p.desc) || p.desc.bias_type == CUDA_R_16BF);

    return layout && types && p.desc.compute == CUBLAS_COMPUTE_32F
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* The rows of the library's table of types that gemm_lt.cu needs: factors of one
 * type, a result of that type or of float. TF32 rounds factors of float alone. */
static cublasStatus_t check_types(const lt_product &p)
{
    const int a = p.a_is.type, d = p.d_is.type;

    if (is_eight(a) || is_eight(p.b_is.type))
        return check_eight(p);
    /* the header promises this refusal */
    if (p.desc.a_scale || p.desc.b_scale || p.desc.fast)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (a != p.b_is.type || (d != a && d != CUDA_R_32F))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return p.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a != CUDA_R_32F
               ? CUBLAS_STATUS_NOT_SUPPORTED
               : CUBLAS_STATUS_SUCCESS;
}

/* What a GPU would find out by a fault in the middle of a run is refused before
 * it: an epilogue without its operand. The opposite, too: the library refuses to
 * multiply with a bias that the epilogue does not have (cuBLASLt 13.1, seen). */
static cublasStatus_t check_epilogue(const lt_product &p)
{
    const cublasLtMatmulDescOpaque_t &e = p.desc;
    const int64_t row = e.ld_aux * lt_bytes(lt_type(e.aux_type, p.d_is));

    if (has_bias(e) != (e.bias != nullptr) ||
        has_aux(e) != (e.aux != nullptr) || (has_aux(e) && e.ld_aux < p.m))
        return CUBLAS_STATUS_INVALID_VALUE;
    /* The library wants rows of aux in multiples of 16 bytes. */
    if (has_aux(e) && row % 16 != 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

/* Puts the product together; c and d are one matrix here, as in gemm_lt.cu. */
static cublasStatus_t describe(lt_product *p, cublasLtMatmulDesc_t desc,
                               cublasLtMatrixLayout_t a,
                               cublasLtMatrixLayout_t b,
                               cublasLtMatrixLayout_t c,
                               cublasLtMatrixLayout_t d)
{
    bool ta = desc->ta == CUBLAS_OP_T, tb = desc->tb == CUBLAS_OP_T;

    *p = lt_product{*desc, *a, *b, *d, d->rows, d->columns,
                 ta ? a->rows : a->columns, nullptr, nullptr, nullptr,
                 nullptr, 1, 0, false};
    if (p->m != (ta ? a->columns : a->rows) ||
        p->n != (tb ? b->rows : b->columns) ||
        p->k != (tb ? b->columns : b->rows) || a->ld < a->rows ||
        b->ld < b->rows || d->ld < d->rows || c->rows != d->rows ||
        c->columns != d->columns || c->ld != d->ld || c->type != d->type)
        return CUBLAS_STATUS_INVALID_VALUE;
    cublasStatus_t s = check_types(*p);
    return s == CUBLAS_STATUS_SUCCESS ? check_epilogue(*p) : s;
}

/* The largest power of two up to 256, beyond which the library asks nothing. */
static uint32_t alignment(const void *p)
{
    uint32_t a = (uint32_t)((uintptr_t)p & -(uintptr_t)p);

    return a == 0 || a > 256 ? 256 : a;
}

/* Three algorithms: the second is the fastest and sums in another order, and
 * the third turns out not to work. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int asked,
    cublasLtMatmulHeuristicResult_t *results, int *found)
{
    lt_product p;
    cublasStatus_t s = describe(&p, desc, a, b, c, d);

    counted.asked++;
    *found = 0;
    /* The real library answers for a shape, and some shapes it does not have. */
    if (s == CUBLAS_STATUS_SUCCESS &&
        (handle->none ||
         (handle->plain && desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT)))
        s = CUBLAS_STATUS_NOT_SUPPORTED;
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    for (int i = 0; i < asked && i < 3; i++) {
        cublasLtMatmulHeuristicResult_t r = {};
        struct choice k = {(uint64_t)i, number_of(p), preference->work, {},
                           alignment(desc->bias), alignment(desc->aux), {}};

        memcpy(k.aligned, preference->aligned, sizeof(k.aligned));
        memcpy(&r.algo, &k, sizeof(k));
        r.workspaceSize = preference->work;
        results[(*found)++] = r;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- products ---- */

/* The elements from the first to the last of a matrix are on the device. */
static bool is_there(const void *x, const cublasLtMatrixLayoutOpaque_t &is)
{
    int64_t n = (is.columns - 1) * is.ld + is.rows;

    return emu::on_device(x, (size_t)(n * lt_bytes(is.type)));
}

/* Scales are read when the stream comes here. */
static bool has_scales(const cublasLtMatmulDescOpaque_t &e)
{
    return (!e.a_scale || emu::on_device(e.a_scale, sizeof(*e.a_scale))) &&
           (!e.b_scale || emu::on_device(e.b_scale, sizeof(*e.b_scale)));
}

/* True when a product, its work space and its alignment are those that the caller asked for. A
 * library may read a misaligned address wrongly instead of refusing it. */
static bool keeps_promises(const choice &k, const lt_product &p, const void *work,
                           size_t work_bytes)
{
    return k.product == number_of(p) && k.work <= work_bytes &&
           emu::on_device(work, work_bytes) && has_scales(p.desc) &&
           alignment(p.a) >= k.aligned[0] && alignment(p.b) >= k.aligned[1] &&
           alignment(p.c) >= k.aligned[2] && alignment(p.d) >= k.aligned[3];
}

cublasStatus_t
cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
               const void *alpha, const void *a, cublasLtMatrixLayout_t a_is,
               const void *b, cublasLtMatrixLayout_t b_is, const void *beta,
               const void *c, cublasLtMatrixLayout_t c_is, void *d,
               cublasLtMatrixLayout_t d_is, const cublasLtMatmulAlgo_t *algo,
               void *work, size_t work_bytes, cudaStream_t stream)
{
    /* What an algorithm costs, for a caller that measures: see emu::spent. */
    static const double milliseconds[] = {2, 1, 0};
    lt_product p;
    choice k;
    cublasStatus_t s = describe(&p, desc, a_is, b_is, c_is, d_is);

    memcpy(&k, algo, sizeof(k));
    p.a = a;
    p.b = b;
    p.c = c;
    p.d = d;
    /* Scalars are on the host, and may be gone when the stream comes here. */
    p.alpha = *(const float *)alpha;
    p.beta = *(const float *)beta;
    p.backwards = k.number == 1;
    if (s == CUBLAS_STATUS_SUCCESS &&
        (!keeps_promises(k, p, work, work_bytes) || !is_there(a, *a_is) ||
         !is_there(b, *b_is) || !is_there(d, *d_is)))
        s = CUBLAS_STATUS_INVALID_VALUE;
    /* After all checks: a refusal must not hide a mistake of the caller. */
    if (s == CUBLAS_STATUS_SUCCESS && (handle->late || k.number == 2))
        s = CUBLAS_STATUS_NOT_SUPPORTED;
    if (s == CUBLAS_STATUS_SUCCESS && handle->broken)
        s = CUBLAS_STATUS_EXECUTION_FAILED;
    if (s != CUBLAS_STATUS_SUCCESS) {
        counted.refused++;
        return s;
    }
    counted.made++;
    emu::spent += milliseconds[k.number];
    return emu::submit(stream,
                       [p] {
                           lt_multiply(p);
                           return cudaSuccess;
                       }) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

/* ---- the library ---- */

/* A queue's handle keeps the mode of its beginning, whatever the test sets
 * later for another. */
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = NULL;
    if (is_mode("dead"))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    /* Without these modes no test would reach the backend's own product and
     * epilogue kernels. */
    *handle = new cublasLtContext{is_mode("plain"), is_mode("none"),
                                  is_mode("late"), is_mode("broken")};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion()
{
    return CUBLAS_VER_MAJOR * 10000;
}

/* By name, as dlsym() finds them: gemm_lt.cu's list of names is tried, too. */
void *emu::library_function(const char *soname, const char *name)
{
#define FUNCTION(f) {"cublasLt" #f, (void *)cublasLt##f}
    static const struct {
        const char *name;
        void *function;
    } list[] = {
        FUNCTION(Create), FUNCTION(Destroy), FUNCTION(GetVersion),
        FUNCTION(Matmul), FUNCTION(MatmulAlgoGetHeuristic),
        FUNCTION(MatmulDescCreate), FUNCTION(MatmulDescDestroy),
        FUNCTION(MatmulDescSetAttribute), FUNCTION(MatmulPreferenceCreate),
        FUNCTION(MatmulPreferenceDestroy),
        FUNCTION(MatmulPreferenceSetAttribute), FUNCTION(MatrixLayoutCreate),
        FUNCTION(MatrixLayoutDestroy)};
#undef FUNCTION

    /* The version is in the name: gemm_lt.cu makes it of the header's number. */
    if (strcmp(soname, "libcublasLt.so.0") != 0 || is_mode("absent"))
        return nullptr;
    for (const auto &f : list)
        if (strcmp(f.name, name) == 0)
            return f.function;
    return nullptr;
}

/* For tests that have opened the plugin: how often algorithms were asked for,
 * products were made, and were refused. */
extern "C" __attribute__((visibility("default"))) void
gpt_emu_products(long *asked, long *made, long *refused)
{
    *asked = counted.asked;
    *made = counted.made;
    *refused = counted.refused;
}
