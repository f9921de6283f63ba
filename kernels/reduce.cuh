/*
 * Sums in fixed order. A thread adds its elements in pairs of four and keeps doubles; a warp adds its lanes in a tree, a block
 * its warps one after the other, and the block that finishes the last slice adds the slices, one warp to a sum. Which block is
 * the last does not matter to the result: it reads what all have written.
 */
#ifndef SUT_KERNELS_REDUCE_CUH
#define SUT_KERNELS_REDUCE_CUH

#include "kernels/device.cuh"

namespace
{

enum { WARPS = SUT_CUDA_THREADS / 32 };

SUT_GPU double warp_sum(double x)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        x += __shfl_down_sync(0xffffffffu, x, offset);
    return x;
}

/* x . y of four elements: products in f32 unless `strict`; the sum of four goes to double. */
SUT_GPU double dot(const four<float> &x, const four<float> &y, bool strict)
{
    if (strict)
        return ((double)x.x[0] * (double)y.x[0] + (double)x.x[1] * (double)y.x[1]) +
               ((double)x.x[2] * (double)y.x[2] + (double)x.x[3] * (double)y.x[3]);
    return (double)((x.x[0] * y.x[0] + x.x[1] * y.x[1]) + (x.x[2] * y.x[2] + x.x[3] * y.x[3]));
}

SUT_GPU double dot(const four<double> &x, const four<double> &y, bool)
{
    return (x.x[0] * y.x[0] + x.x[1] * y.x[1]) + (x.x[2] * y.x[2] + x.x[3] * y.x[3]);
}

/* (w x) . y: the metric's product is taken first, in double where the sums are. */
SUT_GPU double dot_metric(const four<float> &x, const four<float> &w, const four<float> &y, bool strict)
{
    if (strict) {
        double sum[SUT_CUDA_EACH];
#pragma unroll
        for (int e = 0; e < SUT_CUDA_EACH; ++e)
            sum[e] = ((double)x.x[e] * (double)w.x[e]) * (double)y.x[e];
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
    return (double)(((x.x[0] * w.x[0]) * y.x[0] + (x.x[1] * w.x[1]) * y.x[1]) +
                    ((x.x[2] * w.x[2]) * y.x[2] + (x.x[3] * w.x[3]) * y.x[3]));
}

SUT_GPU double dot_metric(const four<double> &x, const four<double> &w, const four<double> &y, bool)
{
    return ((x.x[0] * w.x[0]) * y.x[0] + (x.x[1] * w.x[1]) * y.x[1]) +
           ((x.x[2] * w.x[2]) * y.x[2] + (x.x[3] * w.x[3]) * y.x[3]);
}

/*
 * Adds what each thread holds in x to a block's totals in shared memory: x[k] to total[place(k)], nowhere where place(k) is
 * negative. `scratch` has room for WARPS * COUNT doubles.
 */
template <int COUNT, class Place>
SUT_GPU void add_to_block(const double (&x)[COUNT], Place place, double *scratch, double *total)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
        if (place.of(k) < 0) /* the same for all threads */
            continue;
        const double sum = warp_sum(x[k]);
        if (lane == 0)
            scratch[warp * COUNT + k] = sum;
    }
    __syncthreads();
    const int k = (int)threadIdx.x, at = k < COUNT ? place.of(k) : -1;
    if (at >= 0) {
        double sum = scratch[k];
        for (int w = 1; w < WARPS; ++w)
            sum += scratch[w * COUNT + k];
        total[at] += sum;
    }
    __syncthreads();
}

/* Places of consecutive sums. */
struct place_from {
    int first, count;
    SUT_MEMBER int of(int k) const
    {
        return k < count ? first + k : -1;
    }
};

/* Places of a tile of FEW x FEW products in the packed lower triangle from `first` on; on the diagonal the lower half. */
struct place_tile {
    int first, row, column, m;
    SUT_MEMBER int of(int k) const
    {
        const int i = row + k / SUT_CUDA_FEW, j = column + k % SUT_CUDA_FEW;
        return i < m && j <= i ? first + i * (i + 1) / 2 + j : -1;
    }
};

SUT_GPU void clear_totals(double *total, int n_sums)
{
    for (int k = (int)threadIdx.x; k < n_sums; k += SUT_CUDA_THREADS)
        total[k] = 0;
    __syncthreads();
}

/*
 * Shared memory of a block as the bodies of the passes use it: totals of the sums, scratch of add_to_block(), what the passes
 * over many rows put aside (PANEL strips of the type of the arithmetic, two of them), and the number of the slice that ends.
 */
struct block_memory {
    double *total, *scratch;
    void *aside;
    unsigned *ticket;
};

/* That of a kernel with one pass: `memory`. */
#define SUT_BLOCK_MEMORY(Real, count)         \
    SUT_DYNAMIC_SHARED(double, total);        \
    SUT_SHARED(double, scratch, WARPS *TILE); \
    SUT_SHARED(Real, aside, count);           \
    SUT_SHARED(unsigned, ticket, 1);          \
    const block_memory memory = {total, scratch, aside, ticket}

/* Hands in a slice's totals; whoever hands in the last slice folds all of them into args.sums. */
SUT_GPU void finish_sums(const sut_cuda_args &args, int slice, const block_memory memory)
{
    double *const total = memory.total;
    unsigned *const ticket = memory.ticket;
    for (int k = (int)threadIdx.x; k < args.n_sums; k += SUT_CUDA_THREADS)
        args.partial[(int64_t)k * args.n_slices + slice] = total[k];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        ticket[0] = atomicAdd(args.ticket, 1u);
    __syncthreads();
    if (ticket[0] != (unsigned)args.n_slices - 1)
        return;
    __threadfence();
    const int lane = threadIdx.x % 32;
    for (int k = (int)threadIdx.x / 32; k < args.n_sums; k += WARPS) {
        double sum = 0;
        for (int s = lane; s < args.n_slices; s += 32)
            sum += args.partial[(int64_t)k * args.n_slices + s];
        sum = warp_sum(sum);
        if (lane == 0)
            args.sums[k] = args.add ? args.sums[k] + sum : sum;
    }
    if (threadIdx.x == 0)
        *args.ticket = 0;
}

} // namespace

#endif // SUT_KERNELS_REDUCE_CUH
