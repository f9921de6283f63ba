/*
 * cuSOLVER at run time, see solver.h. The functions that are used are declared here as cusolverDn.h has them.
 */
#include "kernels/solver.h"
#include "kernels/shared_library.h"

/* Its major version is one behind CUDA's. */
#if CUDART_VERSION >= 13000
#define CUSOLVER_NAME "libcusolver.so.12"
#else
#define CUSOLVER_NAME "libcusolver.so.11"
#endif

typedef struct cusolverDnContext *cusolverHandle;
enum { CUSOLVER_OK = 0, CUSOLVER_VECTORS = 1, CUSOLVER_LOWER = 0 };

struct sut_cuda_solver {
    void *library;
    cusolverHandle handle;
    int (*create)(cusolverHandle *handle);
    int (*destroy)(cusolverHandle handle);
    int (*set_stream)(cusolverHandle handle, cudaStream_t stream);
    int (*syevd_size)(cusolverHandle handle, int vectors, int triangle, int n, const double *A, int lda,
                      const double *values, int *count);
    int (*syevd)(cusolverHandle handle, int vectors, int triangle, int n, double *A, int lda, double *values,
                 double *work, int count, int *info);
};

static sut_status solver_error(sut_context *ctx, int error, const char *what)
{
    if (error == CUSOLVER_OK)
        return SUT_OK;
    SUT_TRY(sut_cuda_report(ctx, cudaGetLastError(), what));
    SUT_CUDA_FAIL(ctx, SUT_ERROR_BACKEND, "cuSOLVER: %s failed with status %d", what, error);
}

sut_status sut_cuda_solver_follow(sut_context *ctx)
{
    const sut_cuda_solver *const s = cuda_of(ctx)->solver;
    if (!s || !s->handle)
        return SUT_OK;
    return solver_error(ctx, s->set_stream(s->handle, cuda_of(ctx)->stream), "taking the context's stream");
}

static sut_status open_library(sut_context *ctx, sut_cuda_solver *s)
{
    s->library = sut_open_library(CUSOLVER_NAME);
    if (!s->library)
        SUT_CUDA_FAIL(ctx, SUT_ERROR_BACKEND,
                      "cuSOLVER (" CUSOLVER_NAME ") is not installed, or not found by the loader");
    if (!sut_find_function(s->library, "cusolverDnCreate", &s->create) ||
        !sut_find_function(s->library, "cusolverDnDestroy", &s->destroy) ||
        !sut_find_function(s->library, "cusolverDnSetStream", &s->set_stream) ||
        !sut_find_function(s->library, "cusolverDnDsyevd_bufferSize", &s->syevd_size) ||
        !sut_find_function(s->library, "cusolverDnDsyevd", &s->syevd))
        SUT_CUDA_FAIL(ctx, SUT_ERROR_BACKEND, "cuSOLVER (" CUSOLVER_NAME ") lacks functions that are needed");
    SUT_TRY(solver_error(ctx, s->create(&s->handle), "making its handle"));
    return sut_cuda_solver_follow(ctx);
}

sut_status sut_cuda_solver_open(sut_context *ctx)
{
    sut_cuda *const cuda = cuda_of(ctx);
    if (cuda->solver)
        return SUT_OK;
    cuda->solver = static_cast<sut_cuda_solver *>(cuda->host->alloc(ctx, 1, sizeof *cuda->solver));
    if (!cuda->solver)
        SUT_CUDA_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for cuSOLVER");
    const sut_status status = open_library(ctx, cuda->solver);
    if (status != SUT_OK)
        sut_cuda_solver_close(ctx);
    return status;
}

void sut_cuda_solver_close(sut_context *ctx)
{
    sut_cuda *const cuda = cuda_of(ctx);
    sut_cuda_solver *const s = cuda->solver;
    if (!s)
        return;
    if (s->handle)
        (void)s->destroy(s->handle);
    if (s->library)
        (void)dlclose(s->library);
    cuda->solver = NULL;
    cuda->host->free(ctx, s);
}

sut_status sut_cuda_eigen(sut_context *ctx, int n, double *A, double *values)
{
    SUT_CUDA_ENTER(ctx);
    SUT_TRY(sut_cuda_solver_open(ctx));
    sut_cuda *const cuda = cuda_of(ctx);
    const sut_cuda_solver *const s = cuda->solver;
    int count = 0, info = 0;
    SUT_TRY(solver_error(ctx, s->syevd_size(s->handle, CUSOLVER_VECTORS, CUSOLVER_LOWER, n, A, n, values, &count),
                         "the workspace of eigenvalues"));
    /* The outcome lies behind the workspace. */
    void *work = NULL;
    SUT_TRY(sut_cuda_allocate(ctx, (size_t)(count + 1) * sizeof(double), &work));
    double *const numbers = static_cast<double *>(work);
    int *const outcome = reinterpret_cast<int *>(numbers + count);
    sut_status status = solver_error(
        ctx, s->syevd(s->handle, CUSOLVER_VECTORS, CUSOLVER_LOWER, n, A, n, values, numbers, count, outcome),
        "eigenvalues");
    if (status == SUT_OK)
        status = sut_cuda_download(ctx, &info, outcome, sizeof info);
    sut_cuda_release(ctx, work);
    SUT_TRY(status);
    if (info != 0)
        SUT_CUDA_FAIL(ctx, SUT_ERROR_BACKEND, "cuSOLVER: eigenvalues of a %d x %d matrix did not converge (%d)", n, n,
                      info);
    return SUT_OK;
}
