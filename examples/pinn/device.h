/*
 * The GPU, for --backend cuda: libsuture_pinn_cuda, opened at run time, with one network on the device (cuda/interface.h).
 */
#ifndef PINN_DEVICE_H
#define PINN_DEVICE_H

#include "cuda/interface.h"
#include "problem.h"

typedef struct pinn_device {
    void *handle;
    const pinn_cuda_library *calls;
    pinn_cuda *network;
} pinn_device;

/*
 * The file that the environment variable SUTURE_PINN_CUDA_LIBRARY names; else libsuture_pinn_cuda.so.0 beside the program, then
 * where the system's loader looks. NULL: `why` says what is missing, what was looked for and what to do.
 */
pinn_device *pinn_device_open(const pinn_problem *problem, const net_shape *shape, net_real real, char *why,
                              size_t size);
void pinn_device_close(pinn_device *device);

/* What failed; "" while nothing has, and for NULL. */
const char *pinn_device_error(const pinn_device *device);

#endif
