/*
 * Stands in for cuBLAS: the calls that the library makes, queued on the handle's stream and answered by OpenBLAS. It is built
 * under cuBLAS's own name beside the execution layer, so that it is found as the real one is.
 */
#include "cuda_runtime.h"
#include "exec.h"

#include <cstdint>

extern "C" void cblas_dgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, double alpha,
                            const double *A, int lda, const double *B, int ldb, double beta, double *C, int ldc);

struct cublasContext {
    cudaStream_t stream = nullptr;
    bool has_workspace = false;
};

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7 };

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int cublasCreate_v2(cublasContext **handle)
{
    *handle = new cublasContext;
    return SUCCESS;
}

EXPORT int cublasDestroy_v2(cublasContext *handle)
{
    delete handle;
    return SUCCESS;
}

EXPORT int cublasSetStream_v2(cublasContext *handle, cudaStream_t stream)
{
    handle->stream = stream;
    handle->has_workspace = false; /* as cuBLAS does */
    return SUCCESS;
}

EXPORT int cublasSetWorkspace_v2(cublasContext *handle, void *workspace, std::size_t size)
{
    if (!exec::is_allocated(workspace, size) || (std::uintptr_t)workspace % 256 != 0)
        return INVALID_VALUE;
    handle->has_workspace = true;
    return SUCCESS;
}

/* Each column lies in device memory; what is between them does not matter. */
static bool are_columns(const double *A, std::int64_t rows, std::int64_t columns, std::int64_t lda)
{
    for (std::int64_t c = 0; c < columns; ++c)
        if (!exec::is_allocated(A + c * lda, (std::size_t)rows * sizeof *A))
            return false;
    return true;
}

EXPORT int cublasDgemm_v2_64(cublasContext *handle, int op_a, int op_b, std::int64_t m, std::int64_t n, std::int64_t k,
                             const double *alpha, const double *A, std::int64_t lda, const double *B, std::int64_t ldb,
                             const double *beta, double *C, std::int64_t ldc)
{
    /* Without a workspace of its own cuBLAS allocates one when it likes. */
    if (!handle->has_workspace || m < 1 || n < 1 || k < 1 || lda < (op_a ? k : m) || ldb < (op_b ? n : k) || ldc < m)
        return INVALID_VALUE;
    if (!are_columns(A, op_a ? k : m, op_a ? m : k, lda) || !are_columns(B, op_b ? n : k, op_b ? k : n, ldb) ||
        !are_columns(C, m, n, ldc))
        return INVALID_VALUE;
    const double a = *alpha, b = *beta;
    exec::queue(handle->stream, [=] {
        cblas_dgemm(102, 111 + (op_a != 0), 111 + (op_b != 0), (int)m, (int)n, (int)k, a, A, (int)lda, B, (int)ldb, b,
                    C, (int)ldc);
    });
    return SUCCESS;
}
