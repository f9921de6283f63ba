/*
 * Stands in for CUDA's header of this name when .cu files are compiled by the host compiler: the part of the language and of
 * the runtime that the kernels use, nothing else. What is not here does not compile, floating-point atomics on purpose: sums
 * must not depend on the order of blocks.
 *
 * Two things that a library cannot imitate are macros in the kernels: SUT_SHARED and SUT_DYNAMIC_SHARED declare shared
 * memory. nvcc gets its own definitions of them from kernels/device.cuh.
 */
#ifndef SUT_EXEC_CUDA_RUNTIME_H
#define SUT_EXEC_CUDA_RUNTIME_H

#include "grid.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#define SUT_EXEC 1
#define CUDART_VERSION 13000

/* ---- the language ---- */

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__ __restrict

#define SUT_SHARED(type, name, count) \
    static char name##_key;           \
    type(&name)[count] = *static_cast<type(*)[count]>(exec::shared(&name##_key, sizeof(type) * (count), alignof(type)))
#define SUT_DYNAMIC_SHARED(type, name) type *const name = static_cast<type *>(exec::dynamic_shared())

#define SUT_TRAFFIC(counter, elements, size) \
    ((elements) > 0 ? (void)(exec::traffic.counter += (elements) * (size)) : (void)0)
#define SUT_ARRAYS_IN_USE(bytes) ((bytes) > exec::arrays_in_use ? (void)(exec::arrays_in_use = (bytes)) : (void)0)

#define threadIdx (exec::here->thread)
#define blockIdx (exec::here->block)
#define blockDim (exec::here->block_size)
#define gridDim (exec::here->grid_size)

#define EXEC_TEXT_(x) #x
#define EXEC_TEXT(x) EXEC_TEXT_(x)
#define EXEC_SITE (__FILE__ ":" EXEC_TEXT(__LINE__))

#define __syncthreads() exec::barrier(EXEC_SITE)
/* The mask is optional, as in CUDA. */
#define __syncwarp(...) exec::syncwarp(exec::mask_of(__VA_ARGS__), EXEC_SITE)
#define __ballot_sync(mask, predicate) exec::vote(exec::warp_op::ballot, mask, predicate, EXEC_SITE)
#define __any_sync(mask, predicate) ((int)exec::vote(exec::warp_op::any, mask, predicate, EXEC_SITE))
#define __all_sync(mask, predicate) ((int)exec::vote(exec::warp_op::all, mask, predicate, EXEC_SITE))
#define __shfl_sync(mask, ...) exec::shuffle(exec::warp_op::shuffle, EXEC_SITE, mask, __VA_ARGS__)
#define __shfl_up_sync(mask, ...) exec::shuffle(exec::warp_op::shuffle_up, EXEC_SITE, mask, __VA_ARGS__)
#define __shfl_down_sync(mask, ...) exec::shuffle(exec::warp_op::shuffle_down, EXEC_SITE, mask, __VA_ARGS__)
#define __shfl_xor_sync(mask, ...) exec::shuffle(exec::warp_op::shuffle_xor, EXEC_SITE, mask, __VA_ARGS__)

namespace exec
{

inline unsigned mask_of(unsigned mask = 0xffffffffu)
{
    return mask;
}

inline void syncwarp(unsigned mask, const char *site)
{
    (void)warp(warp_op::sync, mask, nullptr, 0, 0, 32, site);
}

inline unsigned vote(warp_op op, unsigned mask, int predicate, const char *site)
{
    return warp(op, mask, &predicate, sizeof predicate, 0, 32, site);
}

template <class T> T shuffle(warp_op op, const char *site, unsigned mask, T value, int argument, int width = 32)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    (void)warp(op, mask, &value, sizeof value, argument, width, site);
    return value;
}

/* Only one thread runs at a time: an operation is atomic as it is. The pause lets others come between two of them. */
template <class T, class F> T atomic(T *address, F change)
{
    const T old = *address;
    *address = change(old);
    pause();
    return old;
}

} // namespace exec

#define EXEC_ATOMIC(type)                                                            \
    inline type atomicAdd(type *a, type x)                                           \
    {                                                                                \
        return exec::atomic(a, [x](type old) { return (type)(old + x); });           \
    }                                                                                \
    inline type atomicMax(type *a, type x)                                           \
    {                                                                                \
        return exec::atomic(a, [x](type old) { return old > x ? old : x; });         \
    }                                                                                \
    inline type atomicMin(type *a, type x)                                           \
    {                                                                                \
        return exec::atomic(a, [x](type old) { return old < x ? old : x; });         \
    }                                                                                \
    inline type atomicOr(type *a, type x)                                            \
    {                                                                                \
        return exec::atomic(a, [x](type old) { return (type)(old | x); });           \
    }                                                                                \
    inline type atomicExch(type *a, type x)                                          \
    {                                                                                \
        return exec::atomic(a, [x](type) { return x; });                             \
    }                                                                                \
    inline type atomicCAS(type *a, type expected, type x)                            \
    {                                                                                \
        return exec::atomic(a, [=](type old) { return old == expected ? x : old; }); \
    }
EXEC_ATOMIC(int)
EXEC_ATOMIC(unsigned)
EXEC_ATOMIC(unsigned long long)
#undef EXEC_ATOMIC

inline void __threadfence()
{
    exec::pause();
}
inline void __threadfence_block()
{
    exec::pause();
}

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

/* ---- the runtime ---- */

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorECCUncorrectable = 214,
    cudaErrorNvlinkUncorrectable = 220,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchTimeout = 702,
    cudaErrorAssert = 710,
    cudaErrorHardwareStackError = 714,
    cudaErrorIllegalInstruction = 715,
    cudaErrorMisalignedAddress = 716,
    cudaErrorInvalidAddressSpace = 717,
    cudaErrorInvalidPc = 718,
    cudaErrorLaunchFailure = 719,
    cudaErrorCooperativeLaunchTooLarge = 720,
    cudaErrorMpsClientTerminated = 810,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901
};
enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};
enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrCooperativeLaunch = 95
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2,
    cudaMemoryTypeManaged = 3
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeThreadLocal = 1 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };
enum { cudaEventDisableTiming = 2, cudaStreamNonBlocking = 1 };

struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};

struct cudaFuncAttributes {
    int binaryVersion;
};

typedef struct exec_stream *cudaStream_t;
typedef struct exec_event *cudaEvent_t;
typedef struct exec_graph *cudaGraph_t;
typedef struct exec_graph *cudaGraphExec_t;

cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer);

cudaError_t cudaMalloc(void **pointer, std::size_t size);
cudaError_t cudaMallocManaged(void **pointer, std::size_t size, unsigned flags = 1);
cudaError_t cudaFree(void *pointer);
cudaError_t cudaMallocHost(void **pointer, std::size_t size);
cudaError_t cudaFreeHost(void *pointer);
cudaError_t cudaMemcpy(void *to, const void *from, std::size_t size, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, std::size_t size, cudaMemcpyKind kind, cudaStream_t stream = 0);
cudaError_t cudaMemsetAsync(void *to, int value, std::size_t size, cudaStream_t stream = 0);
cudaError_t cudaMemset(void *to, int value, std::size_t size);

cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = 0);
cudaError_t cudaEventSynchronize(cudaEvent_t event);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

namespace exec
{

cudaError_t enqueue(dim3 grid, dim3 block, std::size_t dynamic_bytes, bool cooperative, const void *kernel,
                    std::function<void()> body, cudaStream_t stream);
cudaError_t set_dynamic_limit(const void *kernel, int bytes);
cudaError_t attributes(cudaFuncAttributes *attributes);
cudaError_t occupancy(int *blocks, int threads);

/* The arguments are copied when the launch is queued, as a device's driver does. */
template <class... P, std::size_t... I>
std::function<void()> bind(void (*kernel)(P...), void **arguments, std::index_sequence<I...>)
{
    std::tuple<P...> copy(*static_cast<P *>(arguments[I])...);
    (void)arguments;
    return [kernel, copy] { std::apply(kernel, copy); };
}

} // namespace exec

template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **arguments,
                             std::size_t dynamic_bytes = 0, cudaStream_t stream = 0)
{
    return exec::enqueue(grid, block, dynamic_bytes, false, (const void *)kernel,
                         exec::bind(kernel, arguments, std::index_sequence_for<P...>()), stream);
}

template <class... P>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **arguments,
                                        std::size_t dynamic_bytes = 0, cudaStream_t stream = 0)
{
    return exec::enqueue(grid, block, dynamic_bytes, true, (const void *)kernel,
                         exec::bind(kernel, arguments, std::index_sequence_for<P...>()), stream);
}

template <class... P> cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute, int value)
{
    return exec::set_dynamic_limit((const void *)kernel, value);
}

template <class... P> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, void (*)(P...))
{
    return exec::attributes(attributes);
}

template <class... P>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void (*)(P...), int threads, std::size_t)
{
    return exec::occupancy(blocks, threads);
}

#endif // SUT_EXEC_CUDA_RUNTIME_H
