/*
 * Searches: the largest element of each row and the first bad element, for sums that are not finite or out of range; what is
 * in a metric. Maxima and minima of integers do not depend on the order of blocks, so these may use atomics.
 */
#include "kernels/launch.h"
#include "kernels/scan.cuh"

namespace
{

__global__ void __launch_bounds__(SUT_CUDA_THREADS) row_max_kernel(const sut_cuda_args args, unsigned long long *out)
{
    SUT_SHARED(unsigned long long, largest, WARPS);
    row_max_body(args, (int)blockIdx.x, largest, out);
}

__global__ void __launch_bounds__(SUT_CUDA_THREADS)
    find_nonfinite_kernel(const void *x, int64_t n, int dtype, unsigned long long *out)
{
    unsigned long long first = ~0ull;
    const int64_t step = (int64_t)gridDim.x * SUT_CUDA_STRIP;
    for (int64_t at = (int64_t)blockIdx.x * SUT_CUDA_STRIP + threadIdx.x * SUT_CUDA_EACH; at < n; at += step) {
        const four<double> v = load<double>(x, dtype, at, n - at < SUT_CUDA_EACH ? (int)(n - at) : SUT_CUDA_EACH);
#pragma unroll
        for (int e = SUT_CUDA_EACH - 1; e >= 0; --e)
            if (magnitude_bits(v.x[e]) >= 0x7ff0000000000000ull && (unsigned long long)(at + e) < first)
                first = (unsigned long long)(at + e);
    }
    if (first != ~0ull)
        atomicMin(out, first);
}

/* The first entry that is not positive, the smallest, and whether an infinite one meets u != 0. */
__global__ void __launch_bounds__(SUT_CUDA_THREADS)
    scan_metric_kernel(const void *delta, const void *u, int64_t n, int dtype, sut_cuda_metric_scan *scan)
{
    unsigned long long bad = ~0ull, smallest = 0x7ff0000000000000ull;
    bool frozen = false;
    const int64_t step = (int64_t)gridDim.x * SUT_CUDA_STRIP;
    for (int64_t at = (int64_t)blockIdx.x * SUT_CUDA_STRIP + threadIdx.x * SUT_CUDA_EACH; at < n; at += step) {
        const int left = n - at < SUT_CUDA_EACH ? (int)(n - at) : SUT_CUDA_EACH;
        const four<double> x = load<double>(delta, dtype, at, left), v = load<double>(u, dtype, at, left);
#pragma unroll
        for (int e = SUT_CUDA_EACH - 1; e >= 0; --e) {
            if (e >= left)
                continue;
            const unsigned long long bits = magnitude_bits(x.x[e]);
            if (!(x.x[e] > 0))
                bad = (unsigned long long)(at + e) < bad ? (unsigned long long)(at + e) : bad;
            else if (bits < smallest)
                smallest = bits;
            frozen = frozen || (bits == 0x7ff0000000000000ull && v.x[e] != 0);
        }
    }
    if (bad != ~0ull)
        atomicMin(&scan->bad, bad);
    if (smallest != 0x7ff0000000000000ull)
        atomicMin(&scan->smallest, smallest);
    if (frozen)
        atomicOr(&scan->frozen, 1u);
}

} // namespace

extern "C" int sut_cuda_launch_row_max(const sut_cuda_args *args, unsigned long long *out, void *stream)
{
    sut_cuda_args copy = *args;
    void *arguments[] = {&copy, &out};
    return (int)cudaLaunchKernel(row_max_kernel, dim3((unsigned)args->n_slices), dim3(SUT_CUDA_THREADS), arguments, 0,
                                 static_cast<cudaStream_t>(stream));
}

extern "C" int sut_cuda_launch_find_nonfinite(const void *x, int64_t n, int dtype, unsigned long long *out,
                                              void *stream)
{
    void *arguments[] = {&x, &n, &dtype, &out};
    return (int)cudaLaunchKernel(find_nonfinite_kernel, sut_cuda_blocks(n), dim3(SUT_CUDA_THREADS), arguments, 0,
                                 static_cast<cudaStream_t>(stream));
}

extern "C" int sut_cuda_launch_scan_metric(const void *delta, const void *u, int64_t n, int dtype,
                                           sut_cuda_metric_scan *scan, void *stream)
{
    void *arguments[] = {&delta, &u, &n, &dtype, &scan};
    return (int)cudaLaunchKernel(scan_metric_kernel, sut_cuda_blocks(n), dim3(SUT_CUDA_THREADS), arguments, 0,
                                 static_cast<cudaStream_t>(stream));
}

extern "C" int sut_cuda_find_code(void)
{
    cudaFuncAttributes attributes;
    return (int)cudaFuncGetAttributes(&attributes, find_nonfinite_kernel);
}
