/*
 * The step without the host for up to SUT_CUDA_FEW rows, see drive.cuh.
 */
#define SUT_ROOM SUT_CUDA_FEW
#define SUT_PORTABLE_STATIC
#include "kernels/drive.cuh"

extern "C" int sut_cuda_launch_run_few(sut_cuda_drive *drive, int m, int flags, int blocks, void *stream)
{
    return launch_run(drive, m, flags, blocks, stream);
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
