/*
 * The m x m solvers on the device, from the headers that the CPU compiles: multipliers of the cone projection, and the point of
 * least norm in a convex hull. One thread works: for the few losses that are usual this takes less time than to wake a second
 * one, and the order of operations, hence every bit, is the CPU's.
 */
#include "kernels/launch.h"

#include "surgery/hull.h"

namespace
{

__global__ void nnqp_kernel(const double *K, const double *b, int m, double *lambda, double *s, double *work,
                            int *rounds)
{
    *rounds = sut_nnqp_solve(K, b, nullptr, m, lambda, s, work, true);
}

__global__ void hull_kernel(const double *S, int m, double *w, double *work, int *rounds)
{
    *rounds = sut_hull(S, m, w, work);
}

} // namespace

extern "C" int sut_cuda_launch_nnqp(const double *K, const double *b, int m, double *lambda, double *s, double *work,
                                    int *rounds, void *stream)
{
    void *arguments[] = {&K, &b, &m, &lambda, &s, &work, &rounds};
    return (int)cudaLaunchKernel(nnqp_kernel, dim3(1), dim3(1), arguments, 0, static_cast<cudaStream_t>(stream));
}

extern "C" int sut_cuda_launch_hull(const double *S, int m, double *w, double *work, int *rounds, void *stream)
{
    void *arguments[] = {&S, &m, &w, &work, &rounds};
    return (int)cudaLaunchKernel(hull_kernel, dim3(1), dim3(1), arguments, 0, static_cast<cudaStream_t>(stream));
}
