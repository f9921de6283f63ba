/*
 * The matrix products, by cuBLAS, which is opened at run time: neither its header nor its library is needed to build. Matrices
 * are stored by columns, as cuBLAS has them; element types are those of the network.
 */
#ifndef PINN_CUDA_BLAS_H
#define PINN_CUDA_BLAS_H

#include <cuda_runtime.h>

#include <stddef.h>
#include <stdint.h>

typedef struct pinn_blas pinn_blas;

/* What NVIDIA recommends for Hopper; others need less. */
static const size_t pinn_blas_workspace = (size_t)32 << 20;

/* `workspace`: that many bytes of device memory, lent. NULL: `why` says what is missing. */
pinn_blas *pinn_blas_open(bool f64, cudaStream_t stream, void *workspace, char *why, size_t size);
void pinn_blas_close(pinn_blas *blas);

/* `count` products C = op(A) op(B), the operands of the next one so many elements further on; `count` 1: a single product.
 * op(A) is m x k, op(B) k x n. Returns 0 or cuBLAS's status. */
typedef struct pinn_operand {
    const void *at;
    int64_t ld, step;
    bool transposed;
} pinn_operand;
typedef struct pinn_result {
    void *at;
    int64_t ld, step;
} pinn_result;
int pinn_blas_product(const pinn_blas *blas, int64_t m, int64_t n, int64_t k, pinn_operand A, pinn_operand B,
                      pinn_result C, int64_t count);

#endif // PINN_CUDA_BLAS_H
