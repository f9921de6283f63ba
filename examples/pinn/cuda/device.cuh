/* What the kernels begin with: shared memory, and a thread's place among the columns. */
#ifndef PINN_CUDA_DEVICE_CUH
#define PINN_CUDA_DEVICE_CUH

#include "cuda/columns.h"

#include <cuda_runtime.h>

/* tests/cuda/exec has its own, to run these files without a GPU. */
#ifdef __CUDACC__
#define SUT_SHARED(type, name, count) __shared__ type name[count]
#endif

#define PINN_GPU static __device__ __forceinline__

/* The region to which this block's points belong: the same for all threads. */
PINN_GPU int region_of_block(const pinn_columns &columns)
{
    int r = 0;
    while (r + 1 < columns.n_regions && (int64_t)blockIdx.x >= columns.region[r + 1].block)
        ++r;
    return r;
}

/* This thread's point in its region. */
PINN_GPU int64_t point_of_thread(const pinn_region &region)
{
    return ((int64_t)blockIdx.x - region.block) * PINN_BLOCK + (int64_t)threadIdx.x;
}

#endif // PINN_CUDA_DEVICE_CUH
