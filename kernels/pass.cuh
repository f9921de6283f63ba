/*
 * What the passes over a step share: the combined gradient, the multipliers' part of an update, sums of few and of many rows.
 * Each operation stands in the order of backend/cpu_pass.h: element by element both give the same bits.
 */
#ifndef SUT_KERNELS_PASS_CUH
#define SUT_KERNELS_PASS_CUH

#include "kernels/rules.cuh"

namespace
{

/* Strips that the passes with many rows put aside before they go through the tiles. */
enum { PANEL = 2 };

/* Rows of a strip: in registers where there are few, else from memory each time. */
template <class Real, bool FEW>
SUT_GPU four<Real> row(const sut_cuda_args &args, const piece &p, const few_rows<Real> &g, int i)
{
    if (FEW) {
        four<Real> r = g.row[0];
#pragma unroll
        for (int k = 1; k < SUT_CUDA_FEW; ++k)
            if (k == i)
                r = g.row[k];
        return r;
    }
    return load_row<Real>(args, p, i);
}

/* sum_i w_i g_i in double, in the order of the rows; rows of weight 0 could only add zeros. */
template <class Real, bool FEW>
SUT_GPU void combine(const sut_cuda_args &args, const piece &p, const few_rows<Real> &g, const double *w,
                     double (&sum)[SUT_CUDA_EACH])
{
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e)
        sum[e] = 0.0;
    for (int i = 0; i < args.m; ++i) {
        const double a = w[i];
        if (a == 0 || !row_of(args, p.tensor_index, i))
            continue;
        const four<Real> x = row<Real, FEW>(args, p, g, i);
#pragma unroll
        for (int e = 0; e < SUT_CUDA_EACH; ++e)
            sum[e] = sum[e] + a * (double)x.x[e];
    }
}

/* The combined gradient as the rule takes it, coupled decay included. */
template <class Real, bool FEW>
SUT_GPU four<Real> direction(const sut_cuda_args &args, const piece &p, const few_rows<Real> &g,
                             const sut_cuda_setting *setting, const four<Real> &theta)
{
    if (!args.direct && !args.weighted)
        return zeros<Real>();
    four<Real> a = zeros<Real>();
    if (args.direct) {
        a = row<Real, FEW>(args, p, g, 0);
    } else if (args.exact_sum || sizeof(Real) == sizeof(double)) {
        double sum[SUT_CUDA_EACH];
        combine<Real, FEW>(args, p, g, args.control->weights, sum);
#pragma unroll
        for (int e = 0; e < SUT_CUDA_EACH; ++e)
            a.x[e] = (Real)sum[e];
    } else {
        bool first = true;
        for (int i = 0; i < args.m; ++i) {
            if (!row_of(args, p.tensor_index, i))
                continue;
            const four<Real> x = row<Real, FEW>(args, p, g, i);
            const Real w = (Real)args.control->weights[i];
#pragma unroll
            for (int e = 0; e < SUT_CUDA_EACH; ++e)
                a.x[e] = first ? w * x.x[e] : a.x[e] + w * x.x[e];
            first = false;
        }
    }
    if (setting->coupled) {
        /* The second constant of every rule is the weight of its decay. */
        const Real wd =
            sizeof(Real) == 4 ? (Real)((const float *)setting->f32)[1] : (Real)((const double *)setting->f64)[1];
#pragma unroll
        for (int e = 0; e < SUT_CUDA_EACH; ++e)
            a.x[e] = a.x[e] + wd * theta.x[e];
    }
    return a;
}

/* p = (u + chi/D) + chi'/D: what is left of the cancellation in the first sum is repaired by the second. chi is in `b`. */
template <class Real, bool FEW>
SUT_GPU void add_multipliers(const sut_cuda_args &args, const piece &p, const few_rows<Real> &g, bool natural,
                             elements<Real> *b)
{
    double more[SUT_CUDA_EACH] = {0};
    if (args.control->corrected)
        combine<Real, FEW>(args, p, g, args.control->correction, more);
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e) {
        const double inverse = natural ? (double)b->inverse.x[e] : 1.0;
        double x = (double)b->u.x[e] + b->chi[e] * inverse;
        if (args.control->corrected)
            x = x + more[e] * inverse;
        b->p.x[e] = (Real)x;
    }
}

/* Nothing beyond the end of a chunk has a share in a sum. */
template <class Real> SUT_GPU four<Real> mask(const four<Real> &x, int left)
{
    four<Real> r;
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e)
        r.x[e] = e < left ? x.x[e] : (Real)0;
    return r;
}

template <class Real> SUT_GPU four<Real> times(const four<Real> &x, Real factor)
{
    four<Real> r;
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e)
        r.x[e] = x.x[e] * factor;
    return r;
}

/* v . (D u) where u is not 0: a coordinate with D = Inf does not move and has no share. */
template <class Real>
SUT_GPU double dot_length(const four<Real> &v, const four<Real> &u, const four<Real> &D, bool strict)
{
    if (strict) {
        double sum = 0;
#pragma unroll
        for (int e = 0; e < SUT_CUDA_EACH; ++e)
            sum += (double)v.x[e] * (u.x[e] != 0 ? (double)u.x[e] * (double)D.x[e] : 0.0);
        return sum;
    }
    four<Real> Du;
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e)
        Du.x[e] = u.x[e] != 0 ? u.x[e] * D.x[e] : (Real)0;
    return dot(v, Du, false);
}

/* |x - y|^2. */
template <class Real> SUT_GPU double distance(const four<Real> &x, const four<Real> &y, bool strict)
{
    if (strict) {
        four<double> wide;
#pragma unroll
        for (int e = 0; e < SUT_CUDA_EACH; ++e)
            wide.x[e] = (double)x.x[e] - (double)y.x[e];
        return dot(wide, wide, true);
    }
    four<Real> difference;
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e)
        difference.x[e] = x.x[e] - y.x[e];
    return dot(difference, difference, false);
}

/* theta, and the caller's low-precision copy of it. */
template <class Real> SUT_GPU void store_theta(const sut_cuda_tensor *tensor, const piece &p, const four<Real> &theta)
{
    store_own(tensor->theta, tensor->own, p.at, p.left, theta);
    if (tensor->param != tensor->theta)
        store_half(tensor->param, tensor->dtype == SUT_DTYPE_BF16, p.at, p.left, theta);
}

/*
 * Sums of many rows over a panel of strips: `v` against each row into total[SUT_SUM_ROWS..], and with `w` the products under the
 * metric behind them. v and w are what each thread put aside for itself.
 */
template <class Real>
SUT_GPU void add_tiles(const sut_cuda_args &args, const sut_cuda_chunk &chunk, int panel, const Real *v, const Real *w,
                       double *scratch, double *total)
{
    const bool strict = args.strict != 0;
    for (int r = 0; r < args.m; r += SUT_CUDA_FEW)
        for (int column = 0; column <= (w ? r : 0); column += SUT_CUDA_FEW) {
            double sum[TILE] = {0}, slack[SUT_CUDA_FEW] = {0};
            for (int s = 0; s < PANEL && panel + s * SUT_CUDA_STRIP < chunk.count; ++s) {
                const piece p = piece_of(args, chunk, panel + s * SUT_CUDA_STRIP);
                four<Real> x[SUT_CUDA_FEW], own, metric = zeros<Real>();
#pragma unroll
                for (int e = 0; e < SUT_CUDA_EACH; ++e) {
                    own.x[e] = v[(s * SUT_CUDA_EACH + e) * SUT_CUDA_THREADS + threadIdx.x];
                    if (w)
                        metric.x[e] = w[(s * SUT_CUDA_EACH + e) * SUT_CUDA_THREADS + threadIdx.x];
                }
#pragma unroll
                for (int i = 0; i < SUT_CUDA_FEW; ++i)
                    x[i] = r + i < args.m ? load_row<Real>(args, p, r + i) : zeros<Real>();
                if (column == 0) {
#pragma unroll
                    for (int i = 0; i < SUT_CUDA_FEW; ++i)
                        slack[i] += dot(own, x[i], strict);
                }
                if (!w)
                    continue;
#pragma unroll
                for (int j = 0; j < SUT_CUDA_FEW; ++j) {
                    const four<Real> y = column + j < args.m ? load_row<Real>(args, p, column + j) : zeros<Real>();
#pragma unroll
                    for (int i = 0; i < SUT_CUDA_FEW; ++i)
                        sum[i * SUT_CUDA_FEW + j] += dot_metric(x[i], metric, y, strict);
                }
            }
            const int left = args.m - r;
            if (column == 0)
                add_to_block(slack, place_from{SUT_SUM_ROWS + r, left}, scratch, total);
            if (w)
                add_to_block(sum, place_tile{SUT_SUM_ROWS + args.m, r, column, args.m}, scratch, total);
        }
}

/* Put four numbers aside for add_tiles(): neighbours in memory belong to neighbouring threads. */
template <class Real> SUT_GPU void put_aside(Real *to, int strip_in_panel, const four<Real> &x)
{
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e)
        to[(strip_in_panel * SUT_CUDA_EACH + e) * SUT_CUDA_THREADS + threadIdx.x] = x.x[e];
}

} // namespace

#endif // SUT_KERNELS_PASS_CUH
