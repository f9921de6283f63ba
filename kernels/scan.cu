/*
 * Searches that pass 1 needs when its sums are not finite or out of range: the largest element of each row, and where the
 * first bad element is. Maxima and minima of integers do not depend on the order of blocks, so these may use atomics.
 */
#include "kernels/launch.h"
#include "kernels/rows.cuh"

namespace
{

/* The bits of |x|: they order like the numbers, with Inf above all of them and NaN above Inf. */
SUT_DEVICE unsigned long long magnitude_bits(double x)
{
    unsigned long long bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffffffffffull;
}

__global__ void __launch_bounds__(SUT_CUDA_THREADS) row_max_kernel(const sut_cuda_args args, unsigned long long *out)
{
    SUT_SHARED(unsigned long long, largest, WARPS);
    const int64_t end = slice_begin(args.n_chunks, args.n_slices, (int)blockIdx.x + 1);
    for (int i = 0; i < args.m; ++i) {
        unsigned long long mine = 0;
        for (int64_t c = slice_begin(args.n_chunks, args.n_slices, (int)blockIdx.x); c < end; ++c) {
            const sut_cuda_chunk chunk = args.chunks[c];
            for (int strip = 0; strip < chunk.count; strip += SUT_CUDA_STRIP) {
                const four<double> x = load_row<double>(args, piece_of(args, chunk, strip), i);
#pragma unroll
                for (int e = 0; e < SUT_CUDA_EACH; ++e) {
                    const unsigned long long bits = magnitude_bits(x.x[e]);
                    mine = bits > mine ? bits : mine;
                }
            }
        }
        for (int offset = 16; offset > 0; offset /= 2) {
            const unsigned long long other = __shfl_down_sync(0xffffffffu, mine, offset);
            mine = other > mine ? other : mine;
        }
        if (threadIdx.x % 32 == 0)
            largest[threadIdx.x / 32] = mine;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int w = 1; w < WARPS; ++w)
                mine = largest[w] > mine ? largest[w] : mine;
            atomicMax(out + i, mine);
        }
        __syncthreads();
    }
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
    const int64_t strips = (n + SUT_CUDA_STRIP - 1) / SUT_CUDA_STRIP;
    const unsigned blocks = (unsigned)(strips < SUT_CUDA_SLICES ? strips : SUT_CUDA_SLICES);
    void *arguments[] = {&x, &n, &dtype, &out};
    return (int)cudaLaunchKernel(find_nonfinite_kernel, dim3(blocks), dim3(SUT_CUDA_THREADS), arguments, 0,
                                 static_cast<cudaStream_t>(stream));
}
