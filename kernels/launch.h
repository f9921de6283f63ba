/*
 * Launchers of the passes, one file each. All of them take the tables of a pass and a stream, and return a cudaError_t as an
 * int: 0 for a launch that was queued.
 */
#ifndef SUT_KERNELS_LAUNCH_H
#define SUT_KERNELS_LAUNCH_H

#include "kernels/tables.h"

#include <cuda_runtime.h>

extern "C" {

/* f64: the chunks of `args` are computed in double, else in float. */
int sut_cuda_launch_gram(const sut_cuda_args *args, int f64, void *stream);
int sut_cuda_launch_fused(const sut_cuda_args *args, int f64, void *stream);   /* FUSED without sums */
int sut_cuda_launch_propose(const sut_cuda_args *args, int f64, void *stream); /* FUSED with sums, PROPOSE, TERMS */
int sut_cuda_launch_apply(const sut_cuda_args *args, int f64, void *stream);   /* APPLY, MEASURE */

/* Largest absolute values of the rows, as the bits of doubles, into out[0..m) that was set to 0. */
int sut_cuda_launch_row_max(const sut_cuda_args *args, unsigned long long *out, void *stream);
/* The first element that is not finite, into *out that was set to ~0. */
int sut_cuda_launch_find_nonfinite(const void *x, int64_t n, int dtype, unsigned long long *out, void *stream);

/*
 * The solvers of src/surgery/nnqp.h and hull.h, all arrays in device memory; work: SUT_NNQP_WORK(m) and SUT_HULL_WORK(m)
 * doubles. *rounds is negative where a solver reached its limit.
 */
int sut_cuda_launch_nnqp(const double *K, const double *b, int m, double *lambda, double *s, double *work, int *rounds,
                         void *stream);
int sut_cuda_launch_hull(const double *S, int m, double *w, double *work, int *rounds, void *stream);

} // extern "C"

/* One block to a slice, the totals of its sums in dynamic shared memory. */
static inline int sut_cuda_launch(void (*kernel)(const sut_cuda_args), const sut_cuda_args *args, void *stream)
{
    sut_cuda_args copy = *args;
    void *arguments[] = {&copy};
    const size_t shared = (size_t)(args->n_sums > 0 ? args->n_sums : 1) * sizeof(double);
    return (int)cudaLaunchKernel(kernel, dim3((unsigned)args->n_slices), dim3(SUT_CUDA_THREADS), arguments, shared,
                                 static_cast<cudaStream_t>(stream));
}

#endif // SUT_KERNELS_LAUNCH_H
