/*
 * The step without the host for more than SUT_CUDA_FEW rows, see drive.cuh.
 */
#define SUT_ROOM SUT_MAX_LOSSES
#define SUT_PORTABLE_STATIC
#include "kernels/drive.cuh"

extern "C" int sut_cuda_launch_run_many(sut_cuda_drive *drive, int m, int flags, int blocks,
                                        const sut_cuda_parcel *parcel, void *stream)
{
    return launch_run(drive, m, flags, blocks, parcel, stream);
}

extern "C" int sut_cuda_run_blocks_many(int m, int *error)
{
    return run_blocks(m, error);
}

extern "C" int sut_cuda_launch_ready_many(const sut_cuda_drive *drive, int action, int set, int slices, int n_sums,
                                          bool add, void *stream)
{
    return launch_ready(drive, action, set, slices, n_sums, add, stream);
}
