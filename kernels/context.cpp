/*
 * The context's device: opening and closing it, errors, pointers. See context.h.
 */
#include "kernels/context.h"
#include "kernels/blas.h"
#include "kernels/launch.h"
#include "kernels/plan.h"
#include "kernels/solver.h"

#include <stdio.h>

/* Oldest architecture that this library holds code for, as 10 major + minor; from the build. */
#ifndef SUT_CUDA_OLDEST
#define SUT_CUDA_OLDEST 75
#endif

/* ---- errors ---- */

/* Nothing works after these, in this process. */
static bool is_fatal(int error)
{
    switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorMpsClientTerminated:
    case cudaErrorLaunchFailure: return true;
    default: return false;
    }
}

sut_status sut_cuda_report(sut_context *ctx, int error, const char *what)
{
    if (error == cudaSuccess)
        return SUT_OK;
    sut_cuda *const cuda = cuda_of(ctx);
    const cudaError_t e = (cudaError_t)error;
    (void)cudaGetLastError(); /* do not leave it for someone else to find */
    if (error == cudaErrorMemoryAllocation)
        SUT_CUDA_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "CUDA device %d has no memory for %s", cuda->device, what);
    if (!is_fatal(error))
        SUT_CUDA_FAIL(ctx, SUT_ERROR_BACKEND, "CUDA: %s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
    if (!cuda->lost)
        (void)snprintf(cuda->lost_text, sizeof cuda->lost_text, "%s: %s (%s)", what, cudaGetErrorString(e),
                       cudaGetErrorName(e));
    cuda->lost = true;
    SUT_CUDA_FAIL(ctx, SUT_ERROR_BACKEND, "CUDA: %s; device %d cannot be used any more by this process",
                  cuda->lost_text, cuda->device);
}

sut_cuda_scope::sut_cuda_scope(sut_context *ctx) : status(SUT_OK), before_(-1), own_(cuda_of(ctx)->device)
{
    const sut_cuda *const cuda = cuda_of(ctx);
    if (cuda->lost) {
        status = cuda->host->fail(ctx, SUT_ERROR_BACKEND,
                                  "this context cannot be used any more: %s; end the process and start again from the "
                                  "last state file",
                                  cuda->lost_text);
        return;
    }
    if (cudaGetDevice(&before_) != cudaSuccess)
        before_ = -1;
    if (before_ != own_)
        status = sut_cuda_report(ctx, cudaSetDevice(own_), "making the context's device current");
}

sut_cuda_scope::~sut_cuda_scope()
{
    if (before_ >= 0 && before_ != own_)
        (void)cudaSetDevice(before_);
}

/* ---- devices ---- */

/* The device that is current for this thread, if this library can use it; else why not. */
static bool find_device(int *device_out, char *why, size_t size)
{
    int count = 0, driver = 0, major = 0, minor = 0, device = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
        (void)cudaGetLastError();
        if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
            (void)snprintf(why, size, "no NVIDIA driver was found on this machine (libcuda.so.1)");
        else if (error == cudaErrorInsufficientDriver)
            (void)snprintf(why, size,
                           "the NVIDIA driver is too old: it serves CUDA up to %d.%d, this library is built for %d.%d; "
                           "install a newer driver",
                           driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
        else
            (void)snprintf(why, size, "the NVIDIA driver lists no GPU (see nvidia-smi and CUDA_VISIBLE_DEVICES)");
        return false;
    }
    if (error == cudaSuccess)
        error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        (void)snprintf(why, size, "CUDA does not start: %s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
        return false;
    }
    if (10 * major + minor < SUT_CUDA_OLDEST) {
        (void)snprintf(why, size, "CUDA device %d has compute capability %d.%d; this library needs %d.%d or later",
                       device, major, minor, SUT_CUDA_OLDEST / 10, SUT_CUDA_OLDEST % 10);
        return false;
    }
    *device_out = device;
    return true;
}

bool sut_cuda_probe(char *text, size_t size)
{
    int device, driver = 0, major = 0, minor = 0;
    if (!find_device(&device, text, size))
        return false;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    (void)snprintf(text, size,
                   "built for CUDA %d.%d; the driver serves CUDA up to %d.%d; device %d is current, of compute "
                   "capability %d.%d",
                   CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, driver / 1000, driver % 1000 / 10, device, major,
                   minor);
    return true;
}

/* An event belongs to the device that is current; it cannot be recorded in a stream of another one. */
static sut_status check_stream(sut_context *ctx, cudaStream_t stream)
{
    sut_cuda *const cuda = cuda_of(ctx);
    cudaEvent_t event = NULL;
    SUT_CUDA_TRY(ctx, cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
    const cudaError_t error = cudaEventRecord(event, stream);
    (void)cudaEventDestroy(event);
    if (error == cudaErrorInvalidResourceHandle) {
        (void)cudaGetLastError();
        SUT_CUDA_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT,
                      "context: stream does not belong to CUDA device %d, the device of the context: the one that is "
                      "current for this thread when it is created (cudaSetDevice())",
                      cuda->device);
    }
    return sut_cuda_report(ctx, error, "the context's stream");
}

sut_status sut_cuda_open(sut_context *ctx, const sut_backend_host *host, const sut_context_config *config)
{
    sut_cuda *const cuda = static_cast<sut_cuda *>(host->alloc(ctx, 1, sizeof *cuda));
    if (!cuda)
        return host->fail(ctx, SUT_ERROR_OUT_OF_MEMORY, "context: no memory");
    ctx->device = cuda;
    cuda->host = host;
    cuda->stream = static_cast<cudaStream_t>(config->stream);
    cuda->allocator = config->device_allocator;
    char why[400];
    if (!find_device(&cuda->device, why, sizeof why))
        SUT_CUDA_FAIL(ctx, SUT_ERROR_BACKEND, "context: no CUDA back end: %s", why);
    cuda->opened = true;
    SUT_CUDA_ENTER(ctx);
    const int error = sut_cuda_find_code();
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
        (void)cudaGetLastError();
        SUT_CUDA_FAIL(ctx, SUT_ERROR_BACKEND,
                      "context: no CUDA back end: this library was built without code for device %d; build it with its "
                      "architecture in CMAKE_CUDA_ARCHITECTURES",
                      cuda->device);
    }
    SUT_TRY(sut_cuda_report(ctx, error, "the code of the kernels"));
    SUT_TRY(check_stream(ctx, cuda->stream));
    return sut_cuda_reserve(ctx, 1);
}

void sut_cuda_close(sut_context *ctx)
{
    sut_cuda *const cuda = cuda_of(ctx);
    if (!cuda)
        return;
    if (cuda->opened) {
        const sut_cuda_scope scope(ctx); /* what has to be given back is given back by a lost device too */
        sut_cuda_blas_close(ctx);
        sut_cuda_solver_close(ctx);
        sut_cuda_plan_destroy(ctx, cuda->plain);
    }
    const sut_backend_host *const host = cuda->host;
    ctx->device = NULL;
    host->free(ctx, cuda);
}

sut_status sut_cuda_set_stream(sut_context *ctx, void *given)
{
    sut_cuda *const cuda = cuda_of(ctx);
    const cudaStream_t before = cuda->stream, stream = static_cast<cudaStream_t>(given);
    if (stream == before)
        return SUT_OK;
    SUT_CUDA_ENTER(ctx);
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    SUT_CUDA_TRY(ctx, cudaStreamIsCapturing(stream, &capture), "the new stream of the context");
    if (capture == cudaStreamCaptureStatusNone) /* an event would become a part of the graph */
        SUT_TRY(check_stream(ctx, stream));
    cuda->stream = stream;
    sut_status status = sut_cuda_blas_follow(ctx);
    if (status == SUT_OK)
        status = sut_cuda_solver_follow(ctx);
    if (status != SUT_OK) {
        cuda->stream = before;
        (void)sut_cuda_blas_follow(ctx);
        (void)sut_cuda_solver_follow(ctx);
    }
    return status;
}

sut_status sut_cuda_synchronize(sut_context *ctx)
{
    SUT_CUDA_ENTER(ctx);
    return sut_cuda_report(ctx, cudaStreamSynchronize(cuda_of(ctx)->stream), "what was queued");
}

/* ---- pointers ---- */

const char *sut_cuda_pointer_fault(sut_context *ctx, const void *p)
{
    sut_cuda *const cuda = cuda_of(ctx);
    const uintptr_t address = (uintptr_t)p;
    const void **const slot = &cuda->known[(address >> 6 ^ address >> 18) % SUT_CUDA_KNOWN];
    if (*slot == p)
        return NULL;
    if (cuda->lost)
        return NULL; /* what comes next says so */
    const sut_cuda_scope scope(ctx);
    cudaPointerAttributes attributes;
    const cudaError_t error = cudaPointerGetAttributes(&attributes, p);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        (void)snprintf(cuda->fault, sizeof cuda->fault, "is no pointer that CUDA knows (%s)", cudaGetErrorName(error));
        return cuda->fault;
    }
    const bool managed = attributes.type == cudaMemoryTypeManaged;
    if (managed || (attributes.type == cudaMemoryTypeDevice && attributes.device == cuda->device)) {
        *slot = p;
        return NULL;
    }
    if (attributes.type == cudaMemoryTypeDevice)
        (void)snprintf(cuda->fault, sizeof cuda->fault, "is memory of CUDA device %d; the context is on device %d",
                       attributes.device, cuda->device);
    else
        (void)snprintf(cuda->fault, sizeof cuda->fault, "is %s memory; the context takes memory of CUDA device %d",
                       attributes.type == cudaMemoryTypeHost ? "pinned host" : "host", cuda->device);
    return cuda->fault;
}
