/*
 * Stands in for cuBLAS: the calls that the library makes, queued on the handle's stream and answered by OpenBLAS. It is built
 * under cuBLAS's own name beside the execution layer, so that it is found as the real one is.
 */
#include "cuda_runtime.h"
#include "exec.h"

#include <cstdint>

extern "C" void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                            const float *A, int lda, const float *B, int ldb, float beta, float *C, int ldc);
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
template <class Real> static bool are_columns(const Real *A, std::int64_t rows, std::int64_t columns, std::int64_t lda)
{
    for (std::int64_t c = 0; c < columns; ++c)
        if (!exec::is_allocated(A + c * lda, (std::size_t)rows * sizeof *A))
            return false;
    return true;
}

static void gemm(int op_a, int op_b, int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb,
                 float beta, float *C, int ldc)
{
    cblas_sgemm(102, 111 + op_a, 111 + op_b, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}
static void gemm(int op_a, int op_b, int m, int n, int k, double alpha, const double *A, int lda, const double *B,
                 int ldb, double beta, double *C, int ldc)
{
    cblas_dgemm(102, 111 + op_a, 111 + op_b, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}

/* `count` products, whose operands are so many elements apart. */
template <class Real>
static int products(cublasContext *handle, int op_a, int op_b, std::int64_t m, std::int64_t n, std::int64_t k,
                    const Real *alpha, const Real *A, std::int64_t lda, long long step_a, const Real *B,
                    std::int64_t ldb, long long step_b, const Real *beta, Real *C, std::int64_t ldc, long long step_c,
                    std::int64_t count)
{
    /* Without a workspace of its own cuBLAS allocates one when it likes. */
    if (!handle->has_workspace || m < 1 || n < 1 || k < 1 || count < 1 || lda < (op_a ? k : m) ||
        ldb < (op_b ? n : k) || ldc < m)
        return INVALID_VALUE;
    for (std::int64_t i = 0; i < count; ++i)
        if (!are_columns(A + i * step_a, op_a ? k : m, op_a ? m : k, lda) ||
            !are_columns(B + i * step_b, op_b ? n : k, op_b ? k : n, ldb) || !are_columns(C + i * step_c, m, n, ldc))
            return INVALID_VALUE;
    const Real a = *alpha, b = *beta;
    exec::queue(handle->stream, [=] {
        for (std::int64_t i = 0; i < count; ++i)
            gemm(op_a != 0, op_b != 0, (int)m, (int)n, (int)k, a, A + i * step_a, (int)lda, B + i * step_b, (int)ldb, b,
                 C + i * step_c, (int)ldc);
    });
    return SUCCESS;
}

#define GEMM(letter, Real)                                                                                             \
    EXPORT int cublas##letter##gemm_v2_64(                                                                             \
        cublasContext *handle, int op_a, int op_b, std::int64_t m, std::int64_t n, std::int64_t k, const Real *alpha,  \
        const Real *A, std::int64_t lda, const Real *B, std::int64_t ldb, const Real *beta, Real *C, std::int64_t ldc) \
    {                                                                                                                  \
        return products(handle, op_a, op_b, m, n, k, alpha, A, lda, 0, B, ldb, 0, beta, C, ldc, 0, 1);                 \
    }                                                                                                                  \
    EXPORT int cublas##letter##gemmStridedBatched_64(                                                                  \
        cublasContext *handle, int op_a, int op_b, std::int64_t m, std::int64_t n, std::int64_t k, const Real *alpha,  \
        const Real *A, std::int64_t lda, long long step_a, const Real *B, std::int64_t ldb, long long step_b,          \
        const Real *beta, Real *C, std::int64_t ldc, long long step_c, std::int64_t count)                             \
    {                                                                                                                  \
        return products(handle, op_a, op_b, m, n, k, alpha, A, lda, step_a, B, ldb, step_b, beta, C, ldc, step_c,      \
                        count);                                                                                        \
    }
GEMM(S, float)
GEMM(D, double)
