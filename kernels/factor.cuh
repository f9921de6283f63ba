/*
 * The triangle of [M^-1/2 G^T, M^1/2 y] by Householder reflections, as surgery/nnls.c makes it on the CPU. Each slice folds
 * its elements, 32 at a time, into a triangle of its own in shared memory; the last block to finish folds the slices'
 * triangles into one, in order. A warp works on a column: a lane to each of the 32 rows.
 *
 * Shared memory (dynamic): the triangle, packed by rows; the block of 32 rows, column by column; for each element of a strip
 * the root of 1/M and the entry of the last column.
 */
#ifndef SUT_KERNELS_FACTOR_CUH
#define SUT_KERNELS_FACTOR_CUH

#include "kernels/rows.cuh"

namespace
{

enum { FACTOR_ROWS = 32 };

struct factor_memory {
    double *R, *block, *roots, *y;
};

SUT_GPU int packed_size(int cols)
{
    return cols * (cols + 1) / 2;
}

/* Entry (r, c), r <= c. */
SUT_GPU int packed(int r, int c, int cols)
{
    return r * cols - r * (r - 1) / 2 + (c - r);
}

SUT_GPU factor_memory divide_memory(double *memory, int cols)
{
    factor_memory f;
    f.R = memory;
    f.block = f.R + packed_size(cols);
    f.roots = f.block + cols * FACTOR_ROWS;
    f.y = f.roots + SUT_CUDA_STRIP;
    return f;
}

/* The sum of a warp, in each of its lanes. */
SUT_GPU double warp_total(double x)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

/* Folds the block into the triangle; the block is destroyed. All threads come in after a barrier and leave after one. */
SUT_GPU void fold_block(const factor_memory &f, int cols)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int j = 0; j < cols; ++j) {
        const double v = f.block[j * FACTOR_ROWS + lane], square = warp_total(v * v);
        if (!(square > 1e-250)) /* the same in every warp */
            continue;
        const double head = f.R[packed(j, j, cols)], length = sqrt(head * head + square);
        const double diagonal = head > 0.0 ? -length : length;
        const double first = head - diagonal; /* no cancellation */
        const double beta = 1.0 / (length * fabs(first));
        for (int c = j + 1 + warp; c < cols; c += WARPS) {
            double *const x = &f.block[c * FACTOR_ROWS + lane], *const entry = &f.R[packed(j, c, cols)];
            const double old = *entry;
            const double dot = (first * old + warp_total(v * *x)) * beta;
            __syncwarp(); /* everyone has read the entry */
            if (lane == 0)
                *entry = old - dot * first;
            *x -= dot * v;
        }
        __syncthreads();
        if (threadIdx.x == 0) /* everyone has read it */
            f.R[packed(j, j, cols)] = diagonal;
    }
    __syncthreads();
}

/* A strip whose roots and last column the threads have put aside (before a barrier). */
SUT_GPU void fold_strip(const sut_cuda_args &args, const sut_cuda_chunk &chunk, int strip, const factor_memory &f)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, cols = args.m + 1;
    const int dtype = args.tensors[chunk.tensor].dtype;
    for (int at = 0; at < SUT_CUDA_STRIP && strip + at < chunk.count; at += FACTOR_ROWS) {
        const bool exists = strip + at + lane < chunk.count;
        for (int c = warp; c < cols; c += WARPS) {
            double x = 0;
            if (c == args.m) {
                x = f.y[at + lane];
            } else {
                const void *const from = row_of(args, chunk.tensor, c);
                if (from && exists)
                    x = load_one(from, dtype, chunk.offset + strip + at + lane) * args.control->scale[c] *
                        f.roots[at + lane];
            }
            f.block[c * FACTOR_ROWS + lane] = exists ? x : 0.0;
        }
        __syncthreads();
        fold_block(f, cols);
    }
}

SUT_GPU void begin_factor(const sut_cuda_args &args, const factor_memory &f)
{
    for (int k = (int)threadIdx.x; k < packed_size(args.m + 1); k += SUT_CUDA_THREADS)
        f.R[k] = 0;
    __syncthreads();
}

/* Hands in a slice's triangle; the last block folds all of them into args.sums. */
SUT_GPU void finish_factor(const sut_cuda_args &args, int slice, unsigned *ticket, const factor_memory &f)
{
    const int cols = args.m + 1, size = packed_size(cols), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int k = (int)threadIdx.x; k < size; k += SUT_CUDA_THREADS)
        args.partial[(int64_t)slice * size + k] = f.R[k];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        ticket[0] = atomicAdd(args.ticket, 1u);
    __syncthreads();
    if (ticket[0] != (unsigned)args.n_slices - 1)
        return;
    __threadfence();
    for (int k = (int)threadIdx.x; k < size; k += SUT_CUDA_THREADS)
        f.R[k] = args.partial[k];
    __syncthreads();
    for (int s = 1; s < args.n_slices; ++s)
        for (int first = 0; first < cols; first += FACTOR_ROWS) {
            const int r = first + lane;
            for (int c = warp; c < cols; c += WARPS)
                f.block[c * FACTOR_ROWS + lane] = r <= c ? args.partial[(int64_t)s * size + packed(r, c, cols)] : 0.0;
            __syncthreads();
            fold_block(f, cols);
        }
    for (int k = (int)threadIdx.x; k < size; k += SUT_CUDA_THREADS)
        args.sums[k] = f.R[k];
    if (threadIdx.x == 0)
        *args.ticket = 0;
}

} // namespace

#endif // SUT_KERNELS_FACTOR_CUH
