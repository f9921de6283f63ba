/* cuBLAS at run time, see blas.h. Its functions with 64-bit sizes are there since CUDA 12; its major version follows CUDA's. */
#include "cuda/blas.h"

#include <dlfcn.h>
#include <new>
#include <stdio.h>
#include <string.h>

#if CUDART_VERSION >= 13000
#define CUBLAS_NAME "libcublas.so.13"
#else
#define CUBLAS_NAME "libcublas.so.12"
#endif

typedef struct cublasContext *cublasHandle;
enum { CUBLAS_OK = 0 };

/* More products in one call than cuBLAS is sure to take. */
static const int64_t most_products = 32768;

template <class Real>
using gemm = int (*)(cublasHandle, int op_a, int op_b, int64_t m, int64_t n, int64_t k, const Real *alpha,
                     const Real *A, int64_t lda, const Real *B, int64_t ldb, const Real *beta, Real *C, int64_t ldc);
template <class Real>
using gemm_batched = int (*)(cublasHandle, int op_a, int op_b, int64_t m, int64_t n, int64_t k, const Real *alpha,
                             const Real *A, int64_t lda, long long step_a, const Real *B, int64_t ldb, long long step_b,
                             const Real *beta, Real *C, int64_t ldc, long long step_c, int64_t count);

struct pinn_blas {
    bool f64;
    void *library;
    cublasHandle handle;
    int (*create)(cublasHandle *handle);
    int (*destroy)(cublasHandle handle);
    int (*set_stream)(cublasHandle handle, cudaStream_t stream);
    int (*set_workspace)(cublasHandle handle, void *workspace, size_t size);
    gemm<float> sgemm;
    gemm<double> dgemm;
    gemm_batched<float> sgemm_batched;
    gemm_batched<double> dgemm_batched;
};

template <class Function> static bool find(void *library, const char *name, Function *out)
{
    void *const symbol = dlsym(library, name);
    memcpy(out, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool find_functions(pinn_blas *b)
{
    return find(b->library, "cublasCreate_v2", &b->create) && find(b->library, "cublasDestroy_v2", &b->destroy) &&
           find(b->library, "cublasSetStream_v2", &b->set_stream) &&
           find(b->library, "cublasSetWorkspace_v2", &b->set_workspace) &&
           find(b->library, "cublasSgemm_v2_64", &b->sgemm) && find(b->library, "cublasDgemm_v2_64", &b->dgemm) &&
           find(b->library, "cublasSgemmStridedBatched_64", &b->sgemm_batched) &&
           find(b->library, "cublasDgemmStridedBatched_64", &b->dgemm_batched);
}

pinn_blas *pinn_blas_open(bool f64, cudaStream_t stream, void *workspace, char *why, size_t size)
{
    pinn_blas *const b = new (std::nothrow) pinn_blas();
    if (!b) {
        (void)snprintf(why, size, "out of memory");
        return NULL;
    }
    b->f64 = f64;
    b->library = dlopen(CUBLAS_NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!b->library) {
        const char *const said = dlerror();
        (void)snprintf(why, size,
                       "cuBLAS (" CUBLAS_NAME ") cannot be opened: %s; it comes with the CUDA toolkit, whose library "
                       "directory must be where the system's loader looks, or in LD_LIBRARY_PATH",
                       said ? said : "the loader does not say why");
    } else if (!find_functions(b)) {
        (void)snprintf(why, size, CUBLAS_NAME " lacks the functions with 64-bit sizes: it is older than CUDA 12");
    } else {
        int status = b->create(&b->handle);
        if (status == CUBLAS_OK)
            status = b->set_stream(b->handle, stream);
        if (status == CUBLAS_OK)
            status = b->set_workspace(b->handle, workspace, pinn_blas_workspace);
        if (status == CUBLAS_OK)
            return b;
        (void)snprintf(why, size, "cuBLAS does not start: status %d", status);
    }
    pinn_blas_close(b);
    return NULL;
}

void pinn_blas_close(pinn_blas *b)
{
    if (b && b->handle)
        (void)b->destroy(b->handle);
    if (b && b->library)
        (void)dlclose(b->library);
    delete b;
}

template <class Real>
static int product(cublasHandle handle, gemm<Real> single, gemm_batched<Real> batched, int64_t m, int64_t n, int64_t k,
                   pinn_operand A, pinn_operand B, pinn_result C, int64_t count)
{
    const Real one = 1, zero = 0;
    const Real *a = static_cast<const Real *>(A.at), *b = static_cast<const Real *>(B.at);
    Real *c = static_cast<Real *>(C.at);
    if (count == 1)
        return single(handle, A.transposed, B.transposed, m, n, k, &one, a, A.ld, b, B.ld, &zero, c, C.ld);
    for (int64_t done = 0; done < count;) {
        const int64_t some = count - done < most_products ? count - done : most_products;
        const int status = batched(handle, A.transposed, B.transposed, m, n, k, &one, a + done * A.step, A.ld, A.step,
                                   b + done * B.step, B.ld, B.step, &zero, c + done * C.step, C.ld, C.step, some);
        if (status != CUBLAS_OK)
            return status;
        done += some;
    }
    return CUBLAS_OK;
}

int pinn_blas_product(const pinn_blas *blas, int64_t m, int64_t n, int64_t k, pinn_operand A, pinn_operand B,
                      pinn_result C, int64_t count)
{
    return blas->f64 ? product<double>(blas->handle, blas->dgemm, blas->dgemm_batched, m, n, k, A, B, C, count)
                     : product<float>(blas->handle, blas->sgemm, blas->sgemm_batched, m, n, k, A, B, C, count);
}
