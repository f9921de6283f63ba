/*
 * Pass 1 as a kernel of its own, see gram.cuh.
 */
#include "kernels/gram.cuh"
#include "kernels/launch.h"

namespace
{

template <class Real, bool FEW>
__global__ void __launch_bounds__(SUT_CUDA_THREADS) gram_kernel(const sut_cuda_args args)
{
    SUT_BLOCK_MEMORY(Real, 1);
    gram_body<Real, FEW>(args, (int)blockIdx.x, memory);
}

} // namespace

extern "C" int sut_cuda_launch_gram(const sut_cuda_args *args, int f64, void *stream)
{
    const bool few = args->m <= SUT_CUDA_FEW;
    return sut_cuda_launch(f64   ? few ? gram_kernel<double, true> : gram_kernel<double, false>
                             : few ? gram_kernel<float, true>
                                 : gram_kernel<float, false>,
                           args, stream);
}
