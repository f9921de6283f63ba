/*
 * The gradients of the losses as a thread sees them, and sums over them. Up to SUT_CUDA_FEW rows stay in registers through a
 * slice; more go through tiles, chunk by chunk, and are read again from the caches.
 */
#ifndef SUT_KERNELS_ROWS_CUH
#define SUT_KERNELS_ROWS_CUH

#include "kernels/reduce.cuh"

namespace
{

/* One tensor's part of a pass: what a thread needs to reach its elements. */
struct piece {
    const sut_cuda_tensor *tensor;
    int64_t tensor_index;
    int64_t at; /* the thread's first element in the tensor */
    int left;   /* how many of its elements exist, 0 or less: none */
};

SUT_GPU const void *row_of(const sut_cuda_args &args, int64_t tensor, int i)
{
    return args.rows[(int64_t)i * args.n_tensors + tensor];
}

/* Row i, zeros where it is absent. */
template <class Real> SUT_GPU four<Real> load_row(const sut_cuda_args &args, const piece &p, int i)
{
    const void *const from = row_of(args, p.tensor_index, i);
    if (!from || p.left <= 0)
        return zeros<Real>();
    four<Real> r = load<Real>(from, p.tensor->dtype, p.at, p.left);
    if (args.scaled) {
        const Real scale = (Real)args.control->scale[i];
#pragma unroll
        for (int e = 0; e < SUT_CUDA_EACH; ++e)
            r.x[e] = r.x[e] * scale;
    }
    return r;
}

/* The few rows of one strip. */
template <class Real> struct few_rows {
    four<Real> row[SUT_CUDA_FEW];
};

template <class Real> SUT_GPU void load_few(const sut_cuda_args &args, const piece &p, few_rows<Real> *g)
{
#pragma unroll
    for (int i = 0; i < SUT_CUDA_FEW; ++i)
        g->row[i] = i < args.m ? load_row<Real>(args, p, i) : zeros<Real>();
}

/* Lower triangle of the products of few rows, a full tile of which the upper half stays 0. */
enum { TILE = SUT_CUDA_FEW * SUT_CUDA_FEW };

template <class Real> SUT_GPU void add_triangle(const few_rows<Real> &g, int m, bool strict, double (&sum)[TILE])
{
#pragma unroll
    for (int i = 0; i < SUT_CUDA_FEW; ++i)
#pragma unroll
        for (int j = 0; j <= i; ++j)
            if (i < m)
                sum[i * SUT_CUDA_FEW + j] += dot(g.row[i], g.row[j], strict);
}

template <class Real>
SUT_GPU void add_metric_triangle(const few_rows<Real> &g, const four<Real> &w, int m, bool strict, double (&sum)[TILE])
{
#pragma unroll
    for (int i = 0; i < SUT_CUDA_FEW; ++i)
#pragma unroll
        for (int j = 0; j <= i; ++j)
            if (i < m)
                sum[i * SUT_CUDA_FEW + j] += dot_metric(g.row[i], w, g.row[j], strict);
}

/* Chunk c of a launch: from the list, or counted where there is one tensor and no list. */
SUT_GPU sut_cuda_chunk chunk_of(const sut_cuda_args &args, int64_t c)
{
    if (args.chunks)
        return args.chunks[c];
    const int64_t at = c * args.chunk_elements, left = args.n_elements - at;
    const sut_cuda_chunk chunk = {at, 0, (int32_t)(left < args.chunk_elements ? left : args.chunk_elements)};
    return chunk;
}

SUT_GPU piece piece_of(const sut_cuda_args &args, const sut_cuda_chunk &chunk, int strip)
{
    const int first = strip + (int)threadIdx.x * SUT_CUDA_EACH;
    piece p;
    p.tensor_index = chunk.tensor;
    p.tensor = &args.tensors[chunk.tensor];
    p.at = chunk.offset + first;
    p.left = chunk.count - first;
    return p;
}

} // namespace

#endif // SUT_KERNELS_ROWS_CUH
