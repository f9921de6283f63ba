/*
 * Device memory: allocation through the context's hooks, copies on its stream, numbers filled in and converted. Copies to and
 * from memory of the host wait: it may be anything, and may be gone when the call has returned.
 */
#include "kernels/context.h"
#include "kernels/device.cuh"
#include "kernels/launch.h"

#include <stdio.h>

namespace
{

__global__ void __launch_bounds__(SUT_CUDA_THREADS) fill_kernel(void *to, int64_t n, int dtype, double value)
{
    const int64_t step = (int64_t)gridDim.x * SUT_CUDA_THREADS;
    for (int64_t k = (int64_t)blockIdx.x * SUT_CUDA_THREADS + threadIdx.x; k < n; k += step) {
        if (dtype == SUT_DTYPE_F64)
            static_cast<double *>(to)[k] = value;
        else
            static_cast<float *>(to)[k] = (float)value;
    }
}

/* One of the two types is f32, the other is a half. */
__global__ void __launch_bounds__(SUT_CUDA_THREADS)
    convert_kernel(void *to, int to_dtype, const void *from, int from_dtype, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * SUT_CUDA_STRIP;
    for (int64_t at = (int64_t)blockIdx.x * SUT_CUDA_STRIP + threadIdx.x * SUT_CUDA_EACH; at < n; at += step) {
        const int left = n - at < SUT_CUDA_EACH ? (int)(n - at) : SUT_CUDA_EACH;
        const four<float> x = load<float>(from, from_dtype, at, left);
        if (to_dtype == SUT_DTYPE_F32)
            store_f32(to, at, left, x);
        else
            store_half(to, to_dtype == SUT_DTYPE_BF16, at, left, x);
    }
}

} // namespace

extern "C" int sut_cuda_launch_fill(void *to, int64_t n, int dtype, double value, void *stream)
{
    void *arguments[] = {&to, &n, &dtype, &value};
    return (int)cudaLaunchKernel(fill_kernel, sut_cuda_blocks(n), dim3(SUT_CUDA_THREADS), arguments, 0,
                                 static_cast<cudaStream_t>(stream));
}

extern "C" int sut_cuda_launch_convert(void *to, int to_dtype, const void *from, int from_dtype, int64_t n,
                                       void *stream)
{
    void *arguments[] = {&to, &to_dtype, &from, &from_dtype, &n};
    return (int)cudaLaunchKernel(convert_kernel, sut_cuda_blocks(n), dim3(SUT_CUDA_THREADS), arguments, 0,
                                 static_cast<cudaStream_t>(stream));
}

/* ---- the entries ---- */

sut_status sut_cuda_allocate(sut_context *ctx, size_t size, void **out)
{
    sut_cuda *const cuda = cuda_of(ctx);
    *out = NULL;
    char what[64];
    (void)snprintf(what, sizeof what, "%zu bytes", size);
    size = size ? size : 1;
    if (!cuda->allocator.allocate)
        return sut_cuda_report(ctx, cudaMalloc(out, size), what);
    *out = cuda->allocator.allocate(cuda->allocator.user, size);
    if (!*out)
        SUT_CUDA_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "the device_allocator of the context has no memory for %s", what);
    const char *const fault = sut_cuda_pointer_fault(ctx, *out);
    if (fault) {
        char text[96];
        (void)snprintf(text, sizeof text, "%s", fault);
        sut_cuda_release(ctx, *out);
        *out = NULL;
        SUT_CUDA_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "what the device_allocator of the context returns %s", text);
    }
    return SUT_OK;
}

void sut_cuda_release(sut_context *ctx, void *memory)
{
    sut_cuda *const cuda = cuda_of(ctx);
    if (!memory)
        return;
    (void)cudaStreamSynchronize(cuda->stream);
    if (cuda->allocator.release)
        cuda->allocator.release(cuda->allocator.user, memory);
    else
        (void)cudaFree(memory);
    (void)cudaGetLastError();
}

sut_status sut_cuda_allocate_zeroed(sut_context *ctx, size_t size, void **out)
{
    *out = NULL;
    SUT_CUDA_ENTER(ctx);
    SUT_TRY(sut_cuda_allocate(ctx, size, out));
    const sut_status status =
        sut_cuda_report(ctx, cudaMemsetAsync(*out, 0, size, cuda_of(ctx)->stream), "clearing new memory");
    if (status != SUT_OK) {
        sut_cuda_release(ctx, *out);
        *out = NULL;
    }
    return status;
}

void sut_cuda_release_memory(sut_context *ctx, void *memory)
{
    const sut_cuda_scope scope(ctx);
    sut_cuda_release(ctx, memory);
}

sut_status sut_cuda_upload(sut_context *ctx, void *to, const void *host, size_t size)
{
    SUT_CUDA_ENTER(ctx);
    const cudaStream_t stream = cuda_of(ctx)->stream;
    if (size == 0)
        return SUT_OK;
    SUT_CUDA_TRY(ctx, cudaMemcpyAsync(to, host, size, cudaMemcpyHostToDevice, stream), "a copy to the device");
    return sut_cuda_report(ctx, cudaStreamSynchronize(stream), "a copy to the device");
}

sut_status sut_cuda_download(sut_context *ctx, void *host, const void *from, size_t size)
{
    SUT_CUDA_ENTER(ctx);
    const cudaStream_t stream = cuda_of(ctx)->stream;
    if (size == 0)
        return SUT_OK;
    SUT_CUDA_TRY(ctx, cudaMemcpyAsync(host, from, size, cudaMemcpyDeviceToHost, stream), "a copy from the device");
    return sut_cuda_report(ctx, cudaStreamSynchronize(stream), "a copy from the device");
}

sut_status sut_cuda_copy(sut_context *ctx, void *to, const void *from, size_t size)
{
    SUT_CUDA_ENTER(ctx);
    if (size == 0)
        return SUT_OK;
    return sut_cuda_report(ctx, cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, cuda_of(ctx)->stream),
                           "a copy on the device");
}

sut_status sut_cuda_clear(sut_context *ctx, void *to, size_t size)
{
    SUT_CUDA_ENTER(ctx);
    if (size == 0)
        return SUT_OK;
    return sut_cuda_report(ctx, cudaMemsetAsync(to, 0, size, cuda_of(ctx)->stream), "clearing memory");
}

sut_status sut_cuda_fill(sut_context *ctx, void *to, int64_t n, sut_dtype dtype, double value)
{
    SUT_CUDA_ENTER(ctx);
    if (n == 0)
        return SUT_OK;
    return sut_cuda_report(ctx, sut_cuda_launch_fill(to, n, (int)dtype, value, cuda_of(ctx)->stream),
                           "the first values of a state");
}

sut_status sut_cuda_convert(sut_context *ctx, void *to, sut_dtype to_dtype, const void *from, sut_dtype from_dtype,
                            int64_t n)
{
    SUT_CUDA_ENTER(ctx);
    if (n == 0)
        return SUT_OK;
    return sut_cuda_report(ctx,
                           sut_cuda_launch_convert(to, (int)to_dtype, from, (int)from_dtype, n, cuda_of(ctx)->stream),
                           "a master copy");
}
