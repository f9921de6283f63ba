/*
 * The whole step in one pass, for steps that need no sums: state, proposal, theta. Reads and writes everything once.
 */
#include "kernels/launch.h"
#include "kernels/pass.cuh"

namespace
{

template <class Real> __global__ void __launch_bounds__(SUT_CUDA_THREADS) fused_kernel(const sut_cuda_args args)
{
    const few_rows<Real> none = {};
    const int64_t end = slice_begin(args.n_chunks, args.n_slices, (int)blockIdx.x + 1);
    for (int64_t c = slice_begin(args.n_chunks, args.n_slices, (int)blockIdx.x); c < end; ++c) {
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

extern "C" int sut_cuda_launch_fused(const sut_cuda_args *args, int f64, void *stream)
{
    return sut_cuda_launch(f64 ? fused_kernel<double> : fused_kernel<float>, args, stream);
}
