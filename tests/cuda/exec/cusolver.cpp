/*
 * Stands in for cuSOLVER as cublas.cpp does for cuBLAS, answered by LAPACK.
 */
#include "cuda_runtime.h"
#include "exec.h"

#include <cstdint>
#include <vector>

extern "C" void dsyevd_(const char *job, const char *triangle, const int *n, double *A, const int *lda, double *values,
                        double *work, const int *count, int *integers, const int *integer_count, int *info);

struct cusolverDnContext {
    cudaStream_t stream = nullptr;
};

enum { SUCCESS = 0, INVALID_VALUE = 3, VECTORS = 1, LOWER = 0 };

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int cusolverDnCreate(cusolverDnContext **handle)
{
    *handle = new cusolverDnContext;
    return SUCCESS;
}

EXPORT int cusolverDnDestroy(cusolverDnContext *handle)
{
    delete handle;
    return SUCCESS;
}

EXPORT int cusolverDnSetStream(cusolverDnContext *handle, cudaStream_t stream)
{
    handle->stream = stream;
    return SUCCESS;
}

EXPORT int cusolverDnDsyevd_bufferSize(cusolverDnContext *, int job, int triangle, int n, const double *, int lda,
                                       const double *, int *count)
{
    if (job != VECTORS || triangle != LOWER || n < 1 || lda < n)
        return INVALID_VALUE;
    *count = 1 + 6 * n + 2 * n * n;
    return SUCCESS;
}

EXPORT int cusolverDnDsyevd(cusolverDnContext *handle, int job, int triangle, int n, double *A, int lda, double *values,
                            double *work, int count, int *info)
{
    const std::size_t wide = sizeof(double), square = (std::size_t)lda * (std::size_t)n;
    if (job != VECTORS || triangle != LOWER || n < 1 || lda < n || count < 1 + 6 * n + 2 * n * n ||
        !exec::is_allocated(A, square * wide) || !exec::is_allocated(values, (std::size_t)n * wide) ||
        !exec::is_allocated(work, (std::size_t)count * wide) || !exec::is_allocated(info, sizeof *info))
        return INVALID_VALUE;
    exec::queue(handle->stream, [=] {
        std::vector<int> integers((std::size_t)(3 + 5 * n));
        const int integer_count = (int)integers.size();
        dsyevd_("V", "L", &n, A, &lda, values, work, &count, integers.data(), &integer_count, info);
    });
    return SUCCESS;
}
