/*
 * Pass 3 as a kernel of its own, see apply.cuh.
 */
#include "kernels/apply.cuh"
#include "kernels/launch.h"

namespace
{

template <class Real, bool FEW, bool FORMS>
__global__ void __launch_bounds__(SUT_CUDA_THREADS, 1) apply_kernel(const __grid_constant__ sut_cuda_args args)
{
    SUT_BLOCK_MEMORY(Real, FEW ? 1 : PANEL * SUT_CUDA_STRIP);
    apply_body<Real, FEW, FORMS>(args, (int)blockIdx.x, memory);
}

template <class Real> int launch_apply(const sut_cuda_args *args, void *stream)
{
    const bool few = args->m <= SUT_CUDA_FEW;
    return sut_cuda_launch(args->forms ? apply_kernel<Real, false, true>
                           : few       ? apply_kernel<Real, true, false>
                                       : apply_kernel<Real, false, false>,
                           args, stream);
}

} // namespace

extern "C" int sut_cuda_launch_apply(const sut_cuda_args *args, int f64, void *stream)
{
    return f64 ? launch_apply<double>(args, stream) : launch_apply<float>(args, stream);
}
