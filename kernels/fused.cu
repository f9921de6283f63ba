/*
 * The step of one pass as a kernel of its own, see fused.cuh.
 */
#include "kernels/fused.cuh"
#include "kernels/launch.h"

namespace
{

template <class Real> __global__ void __launch_bounds__(SUT_CUDA_THREADS) fused_kernel(const sut_cuda_args args)
{
    fused_body<Real>(args, (int)blockIdx.x);
}

} // namespace

extern "C" int sut_cuda_launch_fused(const sut_cuda_args *args, int f64, void *stream)
{
    return sut_cuda_launch(f64 ? fused_kernel<double> : fused_kernel<float>, args, stream);
}
