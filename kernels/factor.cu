/*
 * The triangle of a step as a kernel of its own, see step_factor.cuh.
 */
#include "kernels/launch.h"
#include "kernels/step_factor.cuh"

namespace
{

__global__ void __launch_bounds__(SUT_CUDA_THREADS) step_factor_kernel(const sut_cuda_args args)
{
    SUT_DYNAMIC_SHARED(double, memory);
    SUT_SHARED(unsigned, ticket, 1);
    step_factor_body(args, (int)blockIdx.x, memory, ticket);
}

} // namespace

extern "C" int sut_cuda_launch_step_factor(const sut_cuda_args *args, void *stream)
{
    return sut_cuda_launch_factor(step_factor_kernel, args, stream);
}
