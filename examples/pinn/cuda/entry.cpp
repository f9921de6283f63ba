/* What suture-pinn finds in this library, see interface.h. */
#include "cuda/solver.h"

#include "suture/status.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

extern "C" __attribute__((visibility("default"))) const pinn_cuda_library *PINN_CUDA_ENTRY(void)
{
    static const pinn_cuda_library library = {
        PINN_CUDA_VERSION,   TEXT(SUT_VERSION_MAJOR) "." TEXT(SUT_VERSION_MINOR) "." TEXT(SUT_VERSION_PATCH),
        pinn_cuda_create,    pinn_cuda_destroy,
        pinn_cuda_error,     pinn_cuda_device_name,
        pinn_cuda_stream,    pinn_cuda_allocate,
        pinn_cuda_release,   pinn_cuda_upload,
        pinn_cuda_download,  pinn_cuda_set_terms,
        pinn_cuda_points,    pinn_cuda_targets,
        pinn_cuda_gradients, pinn_cuda_squares,
        pinn_cuda_set_grid,  pinn_cuda_evaluate,
    };
    return &library;
}
