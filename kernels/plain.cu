/*
 * Passes over plain arrays (one tensor, f32 or f64): directions and projections outside an optimizer, with products in double
 * throughout. What is written has the bits of the CPU back end.
 */
#include "kernels/factor.cuh"
#include "kernels/launch.h"
#include "kernels/pass.cuh"

namespace
{

/* What a thread works on: u (or p) and the metric's inverse, zeros beyond the end. */
struct plain_elements {
    four<double> u, inverse;
};

SUT_GPU plain_elements load_plain(const sut_cuda_plain_args &args, const piece &p)
{
    const int dtype = p.tensor->dtype;
    plain_elements b;
    b.u = times(load<double>(args.u, dtype, p.at, p.left), args.pass.u_scale);
    b.inverse = mask(ones<double>(), p.left);
    if (args.delta) {
        const four<double> delta = load<double>(args.delta, dtype, p.at, p.left);
#pragma unroll
        for (int e = 0; e < SUT_CUDA_EACH; ++e)
            if (e < p.left)
                b.inverse.x[e] = 1.0 / (delta.x[e] * args.delta_scale);
    }
    return b;
}

/* u + M^-1 G^T lambda. */
SUT_GPU four<double> update_of(const sut_cuda_plain_args &args, const piece &p, const plain_elements &b)
{
    double chi[SUT_CUDA_EACH];
    const few_rows<double> none = {};
    combine<double, false>(args.pass, p, none, args.pass.control->weights, chi);
    four<double> r;
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e)
        r.x[e] = b.u.x[e] + (args.delta ? chi[e] * b.inverse.x[e] : chi[e]);
    return mask(r, p.left);
}

SUT_GPU void store_plain(void *to, const piece &p, const four<double> &x)
{
    store_own(to, p.tensor->dtype, p.at, p.left, x);
}

/* The chunks of this block: for (range r = ...; r.at < r.end; ++r.at). */
struct chunk_range {
    int64_t at, end;
};

SUT_GPU chunk_range chunks_of_block(const sut_cuda_args &args)
{
    const chunk_range r = {slice_begin(args.n_chunks, args.n_slices, (int)blockIdx.x),
                           slice_begin(args.n_chunks, args.n_slices, (int)blockIdx.x + 1)};
    return r;
}

/* out = G^T w (`u` NULL), or u + M^-1 G^T lambda; rounded once. */
__global__ void __launch_bounds__(SUT_CUDA_THREADS) combine_kernel(const sut_cuda_plain_args args)
{
    for (chunk_range r = chunks_of_block(args.pass); r.at < r.end; ++r.at) {
        const sut_cuda_chunk chunk = chunk_of(args.pass, r.at);
        for (int strip = 0; strip < chunk.count; strip += SUT_CUDA_STRIP) {
            const piece p = piece_of(args.pass, chunk, strip);
            if (p.left <= 0)
                continue;
            if (args.u) {
                store_plain(args.out, p, update_of(args, p, load_plain(args, p)));
                continue;
            }
            four<double> a;
            const few_rows<double> none = {};
            combine<double, false>(args.pass, p, none, args.pass.control->weights, a.x);
            store_plain(args.out, p, a);
        }
    }
}

/* b = G u, K = G M^-1 G^T, |u|^2, |u|_M^2. */
template <bool FEW> __global__ void __launch_bounds__(SUT_CUDA_THREADS) cone_sums_kernel(const sut_cuda_plain_args args)
{
    SUT_BLOCK_MEMORY(double, FEW ? 1 : 2 * PANEL * SUT_CUDA_STRIP);
    const int m = args.pass.m;
    double lengths[2] = {0}, slack[SUT_CUDA_FEW] = {0}, metric[TILE] = {0};
    clear_totals(total, args.pass.n_sums);
    for (chunk_range r = chunks_of_block(args.pass); r.at < r.end; ++r.at) {
        const sut_cuda_chunk chunk = chunk_of(args.pass, r.at);
        for (int strip = 0; strip < chunk.count; strip += SUT_CUDA_STRIP) {
            const piece p = piece_of(args.pass, chunk, strip);
            const plain_elements b = load_plain(args, p);
            four<double> Mu = b.u;
#pragma unroll
            for (int e = 0; e < SUT_CUDA_EACH; ++e)
                if (args.delta)
                    Mu.x[e] = b.inverse.x[e] > 0 ? b.u.x[e] / b.inverse.x[e] : 0.0;
            lengths[0] += dot(b.u, b.u, true);
            lengths[1] += dot(Mu, b.u, true);
            if constexpr (FEW) {
                few_rows<double> g;
                load_few(args.pass, p, &g);
#pragma unroll
                for (int i = 0; i < SUT_CUDA_FEW; ++i)
                    if (i < m)
                        slack[i] += dot(b.u, g.row[i], true);
                add_metric_triangle(g, b.inverse, m, true, metric);
            } else {
                const int in_panel = strip / SUT_CUDA_STRIP % PANEL;
                put_aside(aside, in_panel, b.u);
                put_aside(aside + PANEL * SUT_CUDA_STRIP, in_panel, b.inverse);
                if (in_panel == PANEL - 1 || strip + SUT_CUDA_STRIP >= chunk.count)
                    add_tiles<double>(args.pass, chunk, strip - in_panel * SUT_CUDA_STRIP, aside,
                                      aside + PANEL * SUT_CUDA_STRIP, scratch, total);
            }
        }
    }
    add_to_block(lengths, place_from{SUT_SUM_UU, 2}, scratch, total);
    if (FEW) {
        add_to_block(slack, place_from{SUT_SUM_ROWS, m}, scratch, total);
        add_to_block(metric, place_tile{SUT_SUM_ROWS + m, 0, 0, m}, scratch, total);
    }
    finish_sums(args.pass, (int)blockIdx.x, memory);
}

/* G p, |p|^2 and |p - u|^2 in both metrics, of a p that is stored or that multipliers make. */
template <bool FEW>
__global__ void __launch_bounds__(SUT_CUDA_THREADS) cone_measure_kernel(const sut_cuda_plain_args args)
{
    SUT_BLOCK_MEMORY(double, FEW ? 1 : PANEL *SUT_CUDA_STRIP);
    const int m = args.pass.m;
    double lengths[3] = {0}, slack[SUT_CUDA_FEW] = {0};
    clear_totals(total, args.pass.n_sums);
    for (chunk_range r = chunks_of_block(args.pass); r.at < r.end; ++r.at) {
        const sut_cuda_chunk chunk = chunk_of(args.pass, r.at);
        for (int strip = 0; strip < chunk.count; strip += SUT_CUDA_STRIP) {
            const piece p = piece_of(args.pass, chunk, strip);
            const plain_elements b = load_plain(args, p);
            const four<double> q = args.multiplied
                                       ? update_of(args, p, b)
                                       : times(load<double>(args.p, p.tensor->dtype, p.at, p.left), args.pass.u_scale);
            four<double> difference, stretched, delta = ones<double>();
            if (args.delta)
                delta = times(load<double>(args.delta, p.tensor->dtype, p.at, p.left), args.delta_scale);
#pragma unroll
            for (int e = 0; e < SUT_CUDA_EACH; ++e) {
                difference.x[e] = q.x[e] - b.u.x[e];
                stretched.x[e] = difference.x[e] != 0 ? difference.x[e] * delta.x[e] : 0.0;
            }
            lengths[0] += dot(q, q, true);
            lengths[1] += dot(difference, difference, true);
            lengths[2] += dot(stretched, difference, true);
            if constexpr (FEW) {
                few_rows<double> g;
                load_few(args.pass, p, &g);
#pragma unroll
                for (int i = 0; i < SUT_CUDA_FEW; ++i)
                    if (i < m)
                        slack[i] += dot(q, g.row[i], true);
            } else {
                const int in_panel = strip / SUT_CUDA_STRIP % PANEL;
                put_aside(aside, in_panel, q);
                if (in_panel == PANEL - 1 || strip + SUT_CUDA_STRIP >= chunk.count)
                    add_tiles<double>(args.pass, chunk, strip - in_panel * SUT_CUDA_STRIP, aside, nullptr, scratch,
                                      total);
            }
        }
    }
    add_to_block(lengths, place_from{0, 3}, scratch, total);
    if (FEW)
        add_to_block(slack, place_from{SUT_SUM_ROWS, m}, scratch, total);
    finish_sums(args.pass, (int)blockIdx.x, memory);
}

/* The triangle of u, or of u + M^-1 G^T lambda. */
__global__ void __launch_bounds__(SUT_CUDA_THREADS) cone_factor_kernel(const sut_cuda_plain_args args)
{
    SUT_DYNAMIC_SHARED(double, memory);
    SUT_SHARED(unsigned, ticket, 1);
    const factor_memory f = divide_memory(memory, args.pass.m + 1);
    begin_factor(args.pass, f);
    for (chunk_range r = chunks_of_block(args.pass); r.at < r.end; ++r.at) {
        const sut_cuda_chunk chunk = chunk_of(args.pass, r.at);
        for (int strip = 0; strip < chunk.count; strip += SUT_CUDA_STRIP) {
            const piece p = piece_of(args.pass, chunk, strip);
            const plain_elements b = load_plain(args, p);
            const four<double> v = args.multiplied ? update_of(args, p, b) : b.u;
#pragma unroll
            for (int e = 0; e < SUT_CUDA_EACH; ++e) {
                const int k = (int)threadIdx.x * SUT_CUDA_EACH + e;
                const double root = sqrt(b.inverse.x[e]); /* 0: a frozen coordinate, which has no share */
                f.roots[k] = root;
                f.y[k] = root > 0 ? v.x[e] / root : 0.0;
            }
            __syncthreads();
            fold_strip(args.pass, chunk, strip, f);
        }
    }
    finish_factor(args.pass, (int)blockIdx.x, ticket, f);
}

} // namespace

extern "C" int sut_cuda_launch_combine(const sut_cuda_plain_args *args, void *stream)
{
    return sut_cuda_launch(combine_kernel, args, stream);
}

extern "C" int sut_cuda_launch_cone_sums(const sut_cuda_plain_args *args, void *stream)
{
    const bool few = args->pass.m <= SUT_CUDA_FEW;
    return sut_cuda_launch(few ? cone_sums_kernel<true> : cone_sums_kernel<false>, args, stream);
}

extern "C" int sut_cuda_launch_cone_measure(const sut_cuda_plain_args *args, void *stream)
{
    const bool few = args->pass.m <= SUT_CUDA_FEW;
    return sut_cuda_launch(few ? cone_measure_kernel<true> : cone_measure_kernel<false>, args, stream);
}

extern "C" int sut_cuda_launch_cone_factor(const sut_cuda_plain_args *args, void *stream)
{
    return sut_cuda_launch_factor(cone_factor_kernel, args, stream);
}
