/*
 * cuBLAS, for the Gram matrix of many f64 rows that lie at equal distances in memory. The library is opened when it is first
 * needed and belongs to the context, as do its workspace and its stream; where it is not installed the kernels of this
 * directory serve.
 */
#ifndef SUT_KERNELS_BLAS_H
#define SUT_KERNELS_BLAS_H

#include "kernels/plan.h"

/* Below this many rows the Gram kernel reads the rows about as often as cuBLAS does. */
#define SUT_CUDA_BLAS_ROWS 17

/* Whether it could serve a layout: many rows, f64 throughout. */
bool sut_cuda_blas_serves(const sut_layout *layout, int m);

/* Opens it, once; SUT_OK also where it is not installed. The workspace is allocated here. */
sut_status sut_cuda_blas_open(sut_context *ctx);
void sut_cuda_blas_close(sut_context *ctx);
/* The context's stream is another one now. */
sut_status sut_cuda_blas_follow(sut_context *ctx);

/* K = G G^T where cuBLAS can do it: *done says whether it did. */
sut_status sut_cuda_blas_gram(sut_context *ctx, sut_cuda_plan *plan, const sut_layout *layout, const sut_rows *rows,
                              double *K, bool *done);

#endif // SUT_KERNELS_BLAS_H
