/*
 * Searches over the rows of a pass. Maxima and minima of integers do not depend on the order of blocks, so these may use
 * atomics.
 */
#ifndef SUT_KERNELS_SCAN_CUH
#define SUT_KERNELS_SCAN_CUH

#include "kernels/rows.cuh"

namespace
{

/* The bits of |x|: they order like the numbers, with Inf above all of them and NaN above Inf. */
SUT_GPU unsigned long long magnitude_bits(double x)
{
    unsigned long long bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffffffffffull;
}

/* The largest |x| of each row over one slice. largest: WARPS numbers of shared memory. */
SUT_GPU void row_max_body(const sut_cuda_args &args, int slice, unsigned long long *largest, unsigned long long *out)
{
    const int64_t end = slice_begin(args.n_chunks, args.n_slices, slice + 1);
    for (int i = 0; i < args.m; ++i) {
        unsigned long long mine = 0;
        for (int64_t c = slice_begin(args.n_chunks, args.n_slices, slice); c < end; ++c) {
            const sut_cuda_chunk chunk = chunk_of(args, c);
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

} // namespace

#endif // SUT_KERNELS_SCAN_CUH
