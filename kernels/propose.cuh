/*
 * Pass 2: state <- rule(state, a), the proposal u on the fly, b = G u and K = G M^-1 G^T. The same with theta written too
 * (FUSED) where a step of one pass wants its sums, and from the state as it is (TERMS).
 */
#ifndef SUT_KERNELS_PROPOSE_CUH
#define SUT_KERNELS_PROPOSE_CUH

#include "kernels/pass.cuh"

namespace
{

/* Sums of a thread over few rows. */
struct proposal_sums {
    double lengths[2], slack[SUT_CUDA_FEW], metric[TILE];
};

/* One slice. */
template <class Real, bool FEW>
SUT_GPU void propose_body(const sut_cuda_args &args, int slice, const block_memory memory)
{
    double *const total = memory.total, *const scratch = memory.scratch;
    Real *const aside = static_cast<Real *>(memory.aside);
    const bool strict = args.strict != 0, fused = args.kind == SUT_PASS_FUSED;
    const Real scale = (Real)args.u_scale;
    proposal_sums sum = {};
    if (args.want_sums)
        clear_totals(total, args.n_sums);
    const int64_t end = slice_begin(args.n_chunks, args.n_slices, slice + 1);
    for (int64_t c = slice_begin(args.n_chunks, args.n_slices, slice); c < end; ++c) {
        const sut_cuda_chunk chunk = chunk_of(args, c);
        const sut_cuda_tensor *const tensor = &args.tensors[chunk.tensor];
        if (!tensor->present)
            continue;
        const sut_cuda_setting *const setting = &args.settings[tensor->setting];
        const bool advance = fused && tensor->lr == 0;
        const int what = advance ? ADVANCE : fused ? FUSED : args.kind == SUT_PASS_TERMS ? TERMS : PROPOSE;
        const bool reads_theta = setting->coupled || (!advance && (fused || setting->uses_theta));
        /* A group that does not move has no share in anything. */
        const Real ratio = (Real)tensor->ratio;
        const bool sums = args.want_sums && !advance && ratio != 0;
        for (int strip = 0; strip < chunk.count; strip += SUT_CUDA_STRIP) {
            const piece p = piece_of(args, chunk, strip);
            few_rows<Real> g = {};
            if (FEW)
                load_few(args, p, &g);
            elements<Real> b = {};
            if (reads_theta)
                b.theta = load_own<Real>(tensor->theta, tensor->own, p.at, p.left);
            b.a = direction<Real, FEW>(args, p, g, setting, b.theta);
            run_rule<Real, false>(setting, what, false, p, args.kind != SUT_PASS_TERMS, &b);
            if (what == FUSED)
                store_theta(tensor, p, b.theta);
            if (!fused && tensor->u_out)
                store_own(tensor->u_out, tensor->own, p.at, p.left, b.u);
            if (!fused && tensor->inverse_out)
                store_own(tensor->inverse_out, tensor->own, p.at, p.left, args.euclidean ? ones<Real>() : b.inverse);
            if (!sums)
                continue;

            /* Over groups of different rates u and 1/M are scaled by the ratio r: u r, M u unchanged. */
            const four<Real> u = mask(b.u, p.left), v = times(u, ratio * scale), Mv = times(u, scale);
            four<Real> w = times(mask(b.inverse, p.left), ratio);
            sum.lengths[0] += dot(v, v, strict);
            if (args.want_metric)
                sum.lengths[1] += args.euclidean ? dot(v, Mv, strict) : dot_length(v, Mv, b.D, strict);
            if (args.euclidean) {
#pragma unroll
                for (int e = 0; e < SUT_CUDA_EACH; ++e)
                    w.x[e] = ratio;
            }
            if constexpr (FEW) {
#pragma unroll
                for (int i = 0; i < SUT_CUDA_FEW; ++i)
                    if (i < args.m)
                        sum.slack[i] += dot(v, g.row[i], strict);
                if (args.want_metric)
                    add_metric_triangle(g, w, args.m, strict, sum.metric);
            } else {
                const int in_panel = strip / SUT_CUDA_STRIP % PANEL;
                Real *const us = aside, *const ws = aside + PANEL * SUT_CUDA_STRIP;
                put_aside(us, in_panel, v);
                put_aside(ws, in_panel, w);
                if (in_panel == PANEL - 1 || strip + SUT_CUDA_STRIP >= chunk.count)
                    add_tiles(args, chunk, strip - in_panel * SUT_CUDA_STRIP, us, args.want_metric ? ws : nullptr,
                              scratch, total);
            }
        }
    }
    if (!args.want_sums)
        return;
    add_to_block(sum.lengths, place_from{SUT_SUM_UU, 2}, scratch, total);
    if (FEW) {
        add_to_block(sum.slack, place_from{SUT_SUM_ROWS, args.m}, scratch, total);
        if (args.want_metric)
            add_to_block(sum.metric, place_tile{SUT_SUM_ROWS + args.m, 0, 0, args.m}, scratch, total);
    }
    finish_sums(args, slice, memory);
}

} // namespace

#endif // SUT_KERNELS_PROPOSE_CUH
