/*
 * cuSOLVER, for optimizers whose state is a matrix. Its handle is opened when it is first needed, outside of steps; it belongs to
 * the context and works on its stream, in memory of the context's allocator. No optimizer of this version needs it.
 */
#ifndef SUT_KERNELS_SOLVER_H
#define SUT_KERNELS_SOLVER_H

#include "kernels/context.h"

/* Opens it, once. SUT_ERROR_BACKEND where it is not installed: there is nothing in its place. */
sut_status sut_cuda_solver_open(sut_context *ctx);
void sut_cuda_solver_close(sut_context *ctx);
/* To the context's stream, if it is open. */
sut_status sut_cuda_solver_follow(sut_context *ctx);

/* A = V diag(values) V^T of a symmetric matrix in device memory, n x n, f64, by columns, of which the lower triangle is read: A
 * becomes V, eigenvalues ascend. Allocates and waits. */
sut_status sut_cuda_eigen(sut_context *ctx, int n, double *A, double *values);

#endif // SUT_KERNELS_SOLVER_H
