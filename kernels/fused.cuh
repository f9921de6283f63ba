/*
 * The whole step in one pass, for steps that need no sums: state, proposal, theta. Reads and writes everything once.
 */
#ifndef SUT_KERNELS_FUSED_CUH
#define SUT_KERNELS_FUSED_CUH

#include "kernels/pass.cuh"

namespace
{

/* One slice. */
template <class Real> SUT_GPU void fused_body(const sut_cuda_args &args, int slice)
{
    const few_rows<Real> none = {};
    const int64_t end = slice_begin(args.n_chunks, args.n_slices, slice + 1);
    for (int64_t c = slice_begin(args.n_chunks, args.n_slices, slice); c < end; ++c) {
        const sut_cuda_chunk chunk = chunk_of(args, c);
        const sut_cuda_tensor *const tensor = &args.tensors[chunk.tensor];
        if (!tensor->present)
            continue;
        const sut_cuda_setting *const setting = &args.settings[tensor->setting];
        const bool moving = tensor->lr != 0;
        for (int strip = 0; strip < chunk.count; strip += SUT_CUDA_STRIP) {
            const piece p = piece_of(args, chunk, strip);
            if (p.left <= 0)
                continue;
            elements<Real> b = {};
            if (moving || setting->coupled)
                b.theta = load_own<Real>(tensor->theta, tensor->own, p.at, p.left);
            b.a = direction<Real, false>(args, p, none, setting, b.theta);
            run_rule<Real, false>(setting, moving ? FUSED : ADVANCE, false, p, true, &b);
            if (moving)
                store_theta(tensor, p, b.theta);
        }
    }
}

} // namespace

#endif // SUT_KERNELS_FUSED_CUH
