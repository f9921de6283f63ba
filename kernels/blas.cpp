/*
 * cuBLAS at run time, see blas.h. The few functions that are used are declared here, as cublas_v2.h has them (64-bit sizes:
 * since CUDA 12), so that neither its header nor its library is needed to build; its major version follows CUDA's.
 *
 * G is n x m in cuBLAS's order, with the distance of two rows as its leading dimension, and K = G^T G: a product that reduces
 * over n, which gemm splits over the device as syrk does not; the lower triangle is taken.
 */
#include "kernels/blas.h"
#include "kernels/shared_library.h"

#if CUDART_VERSION >= 13000
#define CUBLAS_NAME "libcublas.so.13"
#else
#define CUBLAS_NAME "libcublas.so.12"
#endif

/* What NVIDIA recommends for Hopper; others need less. */
static const size_t workspace_size = (size_t)32 << 20;

typedef struct cublasContext *cublasHandle;
enum { CUBLAS_OK = 0, CUBLAS_OP_PLAIN = 0, CUBLAS_OP_TRANSPOSED = 1 };

struct sut_cuda_blas {
    void *library; /* NULL: not there */
    cublasHandle handle;
    void *workspace;
    int (*create)(cublasHandle *handle);
    int (*destroy)(cublasHandle handle);
    int (*set_stream)(cublasHandle handle, cudaStream_t stream);
    int (*set_workspace)(cublasHandle handle, void *workspace, size_t size);
    int (*dgemm)(cublasHandle handle, int op_a, int op_b, int64_t m, int64_t n, int64_t k, const double *alpha,
                 const double *A, int64_t lda, const double *B, int64_t ldb, const double *beta, double *C,
                 int64_t ldc);
};

static void find_functions(sut_cuda_blas *blas)
{
    blas->library = sut_open_library(CUBLAS_NAME);
    if (!blas->library)
        return;
    const bool complete = sut_find_function(blas->library, "cublasCreate_v2", &blas->create) &&
                          sut_find_function(blas->library, "cublasDestroy_v2", &blas->destroy) &&
                          sut_find_function(blas->library, "cublasSetStream_v2", &blas->set_stream) &&
                          sut_find_function(blas->library, "cublasSetWorkspace_v2", &blas->set_workspace) &&
                          sut_find_function(blas->library, "cublasDgemm_v2_64", &blas->dgemm);
    if (!complete) {
        (void)dlclose(blas->library);
        blas->library = NULL;
    }
}

static sut_status blas_error(sut_context *ctx, int error, const char *what)
{
    if (error == CUBLAS_OK)
        return SUT_OK;
    SUT_TRY(sut_cuda_report(ctx, cudaGetLastError(), what));
    SUT_CUDA_FAIL(ctx, SUT_ERROR_BACKEND, "cuBLAS: %s failed with status %d", what, error);
}

/* A new stream takes the workspace away from the handle. */
sut_status sut_cuda_blas_follow(sut_context *ctx)
{
    const sut_cuda_blas *const blas = cuda_of(ctx)->blas;
    if (!blas || !blas->library)
        return SUT_OK;
    SUT_TRY(blas_error(ctx, blas->set_stream(blas->handle, cuda_of(ctx)->stream), "taking the context's stream"));
    return blas_error(ctx, blas->set_workspace(blas->handle, blas->workspace, workspace_size), "taking its workspace");
}

sut_status sut_cuda_blas_open(sut_context *ctx)
{
    sut_cuda *const cuda = cuda_of(ctx);
    if (cuda->blas)
        return SUT_OK;
    sut_cuda_blas *const blas = static_cast<sut_cuda_blas *>(cuda->host->alloc(ctx, 1, sizeof *blas));
    if (!blas)
        SUT_CUDA_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for cuBLAS");
    cuda->blas = blas;
    find_functions(blas);
    if (!blas->library)
        return SUT_OK;
    sut_status status = blas_error(ctx, blas->create(&blas->handle), "making its handle");
    if (status == SUT_OK)
        status = sut_cuda_allocate(ctx, workspace_size, &blas->workspace);
    if (status == SUT_OK)
        status = sut_cuda_blas_follow(ctx);
    if (status != SUT_OK)
        sut_cuda_blas_close(ctx);
    return status;
}

void sut_cuda_blas_close(sut_context *ctx)
{
    sut_cuda *const cuda = cuda_of(ctx);
    sut_cuda_blas *const blas = cuda->blas;
    if (!blas)
        return;
    if (blas->handle)
        (void)blas->destroy(blas->handle);
    sut_cuda_release(ctx, blas->workspace);
    if (blas->library)
        (void)dlclose(blas->library);
    cuda->blas = NULL;
    cuda->host->free(ctx, blas);
}

bool sut_cuda_blas_serves(const sut_layout *layout, int m)
{
    bool f64 = m >= SUT_CUDA_BLAS_ROWS;
    for (int64_t k = 0; k < layout->n_tensors && f64; ++k)
        f64 = layout->dtype[k] == SUT_DTYPE_F64;
    return f64;
}

/* The distance of neighbouring rows of a tensor, in elements; 0: they are not equally far apart, or absent. */
static int64_t row_distance(const sut_layout *layout, const sut_rows *rows, int64_t tensor)
{
    const uintptr_t first = (uintptr_t)rows->data[tensor];
    const uintptr_t step = (uintptr_t)rows->data[layout->n_tensors + tensor] - first;
    for (int i = 0; i < rows->m; ++i) {
        const uintptr_t row = (uintptr_t)rows->data[i * layout->n_tensors + tensor];
        if (row == 0 || row != first + (uintptr_t)i * step)
            return 0;
    }
    const int64_t distance = (int64_t)(step / sizeof(double));
    return step % sizeof(double) == 0 && (intptr_t)step > 0 && distance >= layout->count[tensor] ? distance : 0;
}

sut_status sut_cuda_blas_gram(sut_context *ctx, sut_cuda_plan *plan, const sut_layout *layout, const sut_rows *rows,
                              double *K, bool *done)
{
    const int m = rows->m;
    *done = false;
    /* K is made where the slices' sums are: room for m^2 numbers from two slices on. */
    if (!sut_cuda_blas_serves(layout, m) || rows->scale || sut_cuda_chunks_of(plan, layout, 2).count < 2)
        return SUT_OK;
    for (int64_t k = 0; k < layout->n_tensors; ++k)
        if (layout->count[k] > 0 && row_distance(layout, rows, k) == 0)
            return SUT_OK;
    SUT_TRY(sut_cuda_blas_open(ctx));
    const sut_cuda_blas *const blas = cuda_of(ctx)->blas;
    if (!blas->library)
        return SUT_OK;
    double *const to = reinterpret_cast<double *>(plan->work + plan->partial_at);
    const double one = 1, zero = 0;
    bool first = true;
    for (int64_t k = 0; k < layout->n_tensors; ++k) {
        if (layout->count[k] == 0)
            continue;
        const double *const G = static_cast<const double *>(rows->data[k]);
        const int64_t distance = row_distance(layout, rows, k);
        SUT_TRY(blas_error(ctx,
                           blas->dgemm(blas->handle, CUBLAS_OP_TRANSPOSED, CUBLAS_OP_PLAIN, m, m, layout->count[k],
                                       &one, G, distance, G, distance, first ? &zero : &one, to, m),
                           "the Gram matrix"));
        first = false;
    }
    SUT_TRY(sut_cuda_fetch(ctx, plan, plan->partial_at, (size_t)m * (size_t)m * sizeof *K, K));
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < i; ++j)
            K[j * m + i] = K[i * m + j];
    *done = true;
    return SUT_OK;
}
