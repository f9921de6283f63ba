/* What libsuture finds in this library, see backend/cuda.h. */
#include "kernels/context.h"
#include "kernels/drive.h"
#include "kernels/solver.h"

extern "C" {
#include "backend/cuda.h"
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

static const sut_backend_ops ops = {
    SUT_BACKEND_VERSION,     sut_cuda_open,
    sut_cuda_close,          sut_cuda_set_stream,
    sut_cuda_pointer_fault,  sut_cuda_plan_create,
    sut_cuda_plan_destroy,   sut_cuda_reserve,
    sut_cuda_synchronize,    sut_cuda_allocate_zeroed,
    sut_cuda_release_memory, sut_cuda_upload,
    sut_cuda_download,       sut_cuda_copy,
    sut_cuda_clear,          sut_cuda_fill,
    sut_cuda_convert,        sut_cuda_gram,
    sut_cuda_row_max,        sut_cuda_find_nonfinite,
    sut_cuda_scan_metric,    sut_cuda_combine,
    sut_cuda_cone_sums,      sut_cuda_cone_apply,
    sut_cuda_cone_measure,   sut_cuda_cone_factor,
    sut_cuda_drive_create,   sut_cuda_drive_destroy,
    sut_cuda_drive_step,     sut_cuda_drive_pull,
    sut_cuda_drive_push,     sut_cuda_eigen,
    sut_cuda_step,
};

extern "C" SUT_API const sut_cuda_library *SUT_CUDA_ENTRY(void)
{
    static const sut_cuda_library library = {
        TEXT(SUT_VERSION_MAJOR) "." TEXT(SUT_VERSION_MINOR) "." TEXT(SUT_VERSION_PATCH), &ops, sut_cuda_probe};
    return &library;
}
