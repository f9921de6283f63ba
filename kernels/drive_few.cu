/*
 * The step without the host for up to SUT_CUDA_FEW rows, see drive.cuh.
 */
#define SUT_ROOM SUT_CUDA_FEW
#define SUT_PORTABLE_STATIC
#include "kernels/drive.cuh"

namespace
{

__global__ void parcel_kernel(const __grid_constant__ sut_cuda_parcel parcel)
{
    unpack(parcel);
}

} // namespace

extern "C" int sut_cuda_launch_parcel(const sut_cuda_parcel *parcel, void *stream)
{
    sut_cuda_parcel copy = *parcel;
    void *arguments[] = {&copy};
    return (int)cudaLaunchKernel(parcel_kernel, dim3(1), dim3(SUT_CUDA_THREADS), arguments, 0,
                                 static_cast<cudaStream_t>(stream));
}

extern "C" int sut_cuda_launch_run_few(sut_cuda_drive *drive, int m, int flags, int blocks,
                                       const sut_cuda_parcel *parcel, void *stream)
{
    return launch_run(drive, m, flags, blocks, parcel, stream);
}

extern "C" int sut_cuda_run_blocks_few(int m, int *error)
{
    return run_blocks(m, error);
}

extern "C" int sut_cuda_launch_ready_few(const sut_cuda_drive *drive, int action, int set, int slices, int n_sums,
                                         bool add, void *stream)
{
    return launch_ready(drive, action, set, slices, n_sums, add, stream);
}
