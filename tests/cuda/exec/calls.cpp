/*
 * The execution layer for programs that are not C++ (the tests of the Python package): device memory, copies, streams, graphs
 * and devices, under names that can be looked up. Each returns an error of the runtime, 0 for none.
 */
#include "cuda_runtime.h"
#include "exec.h"

#define EXEC_CALL extern "C" __attribute__((visibility("default")))

EXEC_CALL void *exec_allocate(std::size_t size)
{
    void *memory = nullptr;
    return cudaMalloc(&memory, size) == cudaSuccess ? memory : nullptr;
}

EXEC_CALL int exec_free(void *memory)
{
    return cudaFree(memory);
}

/* In order with a stream, and waited for; others go on only as far as they must. */
EXEC_CALL int exec_write(void *to, const void *host, std::size_t size, exec_stream *stream)
{
    const cudaError_t error = cudaMemcpyAsync(to, host, size, cudaMemcpyHostToDevice, stream);
    return error != cudaSuccess ? error : cudaStreamSynchronize(stream);
}

EXEC_CALL int exec_read(void *host, const void *from, std::size_t size, exec_stream *stream)
{
    const cudaError_t error = cudaMemcpyAsync(host, from, size, cudaMemcpyDeviceToHost, stream);
    return error != cudaSuccess ? error : cudaStreamSynchronize(stream);
}

EXEC_CALL exec_stream *exec_stream_create()
{
    cudaStream_t stream = nullptr;
    return cudaStreamCreate(&stream) == cudaSuccess ? stream : nullptr;
}

EXEC_CALL int exec_stream_destroy(exec_stream *stream)
{
    return cudaStreamDestroy(stream);
}

EXEC_CALL int exec_wait(exec_stream *stream)
{
    return cudaStreamSynchronize(stream);
}

EXEC_CALL int exec_capture(exec_stream *stream)
{
    return cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
}

/* The graph that was recorded since, ready to be launched; NULL: none. It stays as long as the process. */
EXEC_CALL exec_graph *exec_end_capture(exec_stream *stream)
{
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess ||
        cudaGraphInstantiate(&executable, graph, 0) != cudaSuccess)
        return nullptr;
    (void)cudaGraphDestroy(graph);
    return executable;
}

EXEC_CALL int exec_launch(exec_graph *graph, exec_stream *stream)
{
    return cudaGraphLaunch(graph, stream);
}

EXEC_CALL int exec_devices(int count)
{
    exec::machine.devices = count;
    return 0;
}

EXEC_CALL int exec_driver(int version)
{
    exec::machine.driver = version;
    return 0;
}

EXEC_CALL int exec_set_device(int device)
{
    return cudaSetDevice(device);
}

EXEC_CALL int exec_device()
{
    int device = -1;
    return cudaGetDevice(&device) == cudaSuccess ? device : -1;
}

EXEC_CALL int exec_allocations()
{
    return exec::allocations();
}

/* The n-th allocation from now fails (0: the next); negative: none. */
EXEC_CALL void exec_fail_allocation(int n)
{
    exec::fail_allocation(n);
}

EXEC_CALL long exec_launches()
{
    return exec::count.launches;
}

EXEC_CALL long exec_waits()
{
    return exec::count.synchronisations;
}

/* Forget a fault and an error that stays. */
EXEC_CALL void exec_reset()
{
    exec::reset();
}

/* Check less often that nobody touches device memory: these tests make many small calls. */
EXEC_CALL void exec_watch(int every)
{
    exec::watch_every = every;
}
