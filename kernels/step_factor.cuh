/*
 * The triangle of a step's proposal (TERMS), or of the update that corrected multipliers make (MEASURE): for the rare step whose
 * rows K cannot tell apart. In double throughout.
 */
#ifndef SUT_KERNELS_STEP_FACTOR_CUH
#define SUT_KERNELS_STEP_FACTOR_CUH

#include "kernels/factor.cuh"
#include "kernels/pass.cuh"

namespace
{

/* One slice; memory: that of factor.cuh. */
SUT_GPU void step_factor_body(const sut_cuda_args &args, int slice, double *memory, unsigned *ticket)
{
    const factor_memory f = divide_memory(memory, args.m + 1);
    const few_rows<double> none = {};
    begin_factor(args, f);
    const int64_t end = slice_begin(args.n_chunks, args.n_slices, slice + 1);
    for (int64_t c = slice_begin(args.n_chunks, args.n_slices, slice); c < end; ++c) {
        const sut_cuda_chunk chunk = chunk_of(args, c);
        const sut_cuda_tensor *const tensor = &args.tensors[chunk.tensor];
        if (!tensor->present || tensor->lr == 0)
            continue; /* what does not move has no share */
        const sut_cuda_setting *const setting = &args.settings[tensor->setting];
        for (int strip = 0; strip < chunk.count; strip += SUT_CUDA_STRIP) {
            const piece p = piece_of(args, chunk, strip);
            elements<double> b = {};
            if (setting->uses_theta)
                b.theta = load_own<double>(tensor->theta, tensor->own, p.at, p.left);
            b.a = direction<double, false>(args, p, none, setting, b.theta);
            run_rule<double, false>(setting, TERMS, false, p, false, &b);
            if (args.kind == SUT_PASS_MEASURE) {
                combine<double, false>(args, p, none, args.control->lambda, b.chi);
                add_multipliers<double, false>(args, p, none, !args.euclidean, &b);
            } else {
                b.p = b.u;
            }
            /* Groups of different rates: u r and r/M, as in the sums. */
#pragma unroll
            for (int e = 0; e < SUT_CUDA_EACH; ++e) {
                const int k = (int)threadIdx.x * SUT_CUDA_EACH + e;
                const double root = e < p.left ? sqrt(tensor->ratio * (args.euclidean ? 1.0 : b.inverse.x[e])) : 0.0;
                f.roots[k] = root;
                f.y[k] = root > 0 ? b.p.x[e] * args.control->scale[args.m] * (tensor->ratio / root) : 0.0;
            }
            __syncthreads();
            fold_strip(args, chunk, strip, f);
        }
    }
    finish_factor(args, slice, ticket, f);
}

} // namespace

#endif // SUT_KERNELS_STEP_FACTOR_CUH
