/*
 * Pass 2 as a kernel of its own, see propose.cuh.
 */
#include "kernels/launch.h"
#include "kernels/propose.cuh"

namespace
{

template <class Real, bool FEW>
__global__ void __launch_bounds__(SUT_CUDA_THREADS, 1) propose_kernel(const __grid_constant__ sut_cuda_args args)
{
    SUT_BLOCK_MEMORY(Real, FEW ? 1 : 2 * PANEL * SUT_CUDA_STRIP);
    propose_body<Real, FEW>(args, (int)blockIdx.x, memory);
}

} // namespace

extern "C" int sut_cuda_launch_propose(const sut_cuda_args *args, int f64, void *stream)
{
    const bool few = args->m <= SUT_CUDA_FEW;
    return sut_cuda_launch(f64   ? few ? propose_kernel<double, true> : propose_kernel<double, false>
                             : few ? propose_kernel<float, true>
                                 : propose_kernel<float, false>,
                           args, stream);
}
