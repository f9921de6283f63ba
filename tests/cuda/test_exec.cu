/*
 * Tests of the execution layer: that it runs correct kernels correctly, in every order of threads, and that it finds the
 * mistakes it is there to find. Each mistake stands beside the same kernel without it.
 */
#include "check.h"
#include "exec.h"

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstring>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace
{

const unsigned whole = 0xffffffffu;

/* ---- kernels ---- */

/* A block turns its piece of an array around, through shared memory; the barrier can be left out. */
__global__ void turn(const int *in, int *out, bool with_barrier)
{
    SUT_SHARED(int, piece, 64);
    const unsigned first = blockIdx.x * blockDim.x;
    piece[threadIdx.x] = in[first + threadIdx.x];
    if (with_barrier)
        __syncthreads();
    out[first + threadIdx.x] = piece[blockDim.x - 1 - threadIdx.x];
}

/* Two rounds through one buffer; without the second barrier a fast thread overwrites what a slow one still reads. */
__global__ void two_rounds(int *out, bool with_barrier)
{
    SUT_SHARED(int, piece, 64);
    int sum = 0;
    for (int round = 0; round < 2; ++round) {
        piece[threadIdx.x] = (int)threadIdx.x + 100 * round;
        __syncthreads();
        sum += piece[(threadIdx.x + 17) % 64];
        if (with_barrier)
            __syncthreads();
    }
    out[threadIdx.x] = sum;
}

__global__ void divergent_barrier(int *out, int kind)
{
    if (kind == 0 && threadIdx.x == 3)
        return;
    if (kind == 1 && threadIdx.x < 32)
        __syncthreads();
    else if (kind <= 1)
        __syncthreads();
    if (kind == 2) {
        if (threadIdx.x != 5)
            __syncthreads();
    }
    out[threadIdx.x] = 1;
}

__global__ void sum_warp(const double *in, double *out)
{
    double x = in[blockIdx.x * blockDim.x + threadIdx.x];
    for (int offset = 16; offset > 0; offset /= 2)
        x += __shfl_down_sync(whole, x, offset);
    if (threadIdx.x % 32 == 0)
        out[blockIdx.x * blockDim.x / 32 + threadIdx.x / 32] = x;
}

__global__ void exchanges(int *out)
{
    const int lane = (int)(threadIdx.x % 32);
    int *const own = out + 8 * threadIdx.x;
    own[0] = __shfl_sync(whole, lane, 5);
    own[1] = __shfl_xor_sync(whole, lane, 3);
    own[2] = __shfl_up_sync(whole, lane, 2);
    own[3] = __shfl_down_sync(whole, lane, 1, 8);
    own[4] = (int)__ballot_sync(whole, lane % 3 == 0);
    own[5] = __any_sync(whole, lane == 7);
    own[6] = __all_sync(whole, lane < 31);
    if (lane < 8)
        own[7] = __shfl_sync(0xffu, lane, 7);
    __syncwarp();
}

__global__ void wrong_mask(int *out, int kind)
{
    const int lane = (int)threadIdx.x;
    int x = lane;
    if (kind == 0 && lane < 16)
        x = __shfl_sync(whole, x, 0); /* the other half never comes */
    if (kind == 1)
        x = __shfl_sync(lane < 16 ? 0xffffu : whole, x, 0); /* masks that disagree */
    if (kind == 2)
        x = __shfl_sync(0xfffffffeu, x, 1); /* lane 0 leaves itself out */
    if (kind == 3 && lane < 16)
        x = __shfl_sync(0xffffu, x, 20); /* a source outside the mask */
    if (kind == 4)
        x = lane < 16 ? __shfl_sync(whole, x, 0) : __shfl_down_sync(whole, x, 1); /* different exchanges */
    if (kind == 5 && lane == 31)
        return;
    if (kind == 5)
        x = __shfl_xor_sync(whole, x, 1); /* lane 31 has left */
    out[lane] = x;
}

/* Blocks hand values to each other across a grid barrier. */
__global__ void across(int *shared_by_all, int *out, int kind)
{
    const unsigned me = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
    shared_by_all[me] = (int)me;
    if (kind == 1 && me == 0)
        return;
    if (kind == 2 && blockIdx.x == 1) {
        __syncthreads();
        out[me] = -1;
    } else {
        cooperative_groups::this_grid().sync();
    }
    out[me] = shared_by_all[all - 1 - me];
}

/* The last block to finish adds up what the others left; without the fence order it would still need the counter. */
__global__ void last_block(unsigned *counter, int *partial, int *total)
{
    SUT_SHARED(unsigned, ticket, 1);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = (int)blockIdx.x + 1;
        __threadfence();
        ticket[0] = atomicAdd(counter, 1u);
    }
    __syncthreads();
    if (ticket[0] == gridDim.x - 1 && threadIdx.x == 0) {
        int sum = 0;
        for (unsigned k = 0; k < gridDim.x; ++k)
            sum += partial[k];
        *total = sum;
    }
}

__global__ void dynamic(int *out, int count)
{
    SUT_DYNAMIC_SHARED(int, buffer);
    for (int k = (int)threadIdx.x; k < count; k += (int)blockDim.x)
        buffer[k] = k * k;
    __syncthreads();
    for (int k = (int)threadIdx.x; k < count; k += (int)blockDim.x)
        out[k] = buffer[count - 1 - k];
}

__global__ void write_at(int *out, long long index)
{
    out[index] = 7;
}

__global__ void read_uninitialised(float *out)
{
    SUT_SHARED(float, nothing, 4);
    *out = nothing[2];
}

__global__ void write_behind_shared(int index)
{
    SUT_SHARED(int, piece, 5);
    piece[index] = 1;
    __syncthreads();
}

__global__ void add_one(int *x)
{
    ++*x;
}

struct indices {
    int x, y, z;
};

__global__ void where(indices *out)
{
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned block = blockIdx.x + gridDim.x * blockIdx.y;
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] = {
        (int)(threadIdx.x + 10 * blockIdx.x), (int)(threadIdx.y + 10 * blockIdx.y), (int)threadIdx.z};
}

/* ---- helpers ---- */

template <class T> T *device_array(std::size_t n)
{
    void *p = nullptr;
    CUDA(cudaMalloc(&p, n * sizeof(T)));
    return static_cast<T *>(p);
}

template <class T> std::vector<T> fetch(const T *from, std::size_t n)
{
    std::vector<T> out(n);
    CUDA(cudaMemcpy(out.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
}

template <class... P, class... A> cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, A... given)
{
    std::tuple<P...> arguments(given...);
    return std::apply(
        [&](auto &...a) {
            void *pointers[] = {(void *)&a...};
            const cudaError_t error = cudaLaunchKernel(kernel, grid, block, pointers, 0, nullptr);
            return error != cudaSuccess ? error : cudaDeviceSynchronize();
        },
        arguments);
}

/* A launch that has to end in a fault whose sentence contains `text`. */
template <class... P, class... A>
void expect_fault(const char *text, void (*kernel)(P...), dim3 grid, dim3 block, A... given)
{
    const cudaError_t error = launch(kernel, grid, block, given...);
    CHECK(error == cudaErrorLaunchFailure, "\"%s\" was expected, the launch returned %s", text,
          cudaGetErrorName(error));
    CHECK(std::strstr(exec::fault(), text), "\"%s\" was expected, the fault is \"%s\"", text, exec::fault());
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure, "the error did not stay");
    exec::reset();
    CHECK(cudaDeviceSynchronize() == cudaSuccess, "the error stayed after a reset");
}

/* The program ends by a signal or, under a sanitizer, with its report. */
template <class F> void expect_death(const char *what, F body)
{
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)std::freopen("/dev/null", "w", stderr);
        body();
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "no child");
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != 0, "%s went unseen", what);
}

/* ---- tests ---- */

void barriers(std::uint64_t seed)
{
    exec::seed(seed);
    const int blocks = 5, size = 64;
    int *const in = device_array<int>(blocks * size), *const out = device_array<int>(blocks * size);
    std::vector<int> numbers(blocks * size);
    for (int k = 0; k < blocks * size; ++k)
        numbers[(std::size_t)k] = k;
    CUDA(cudaMemcpy(in, numbers.data(), numbers.size() * sizeof(int), cudaMemcpyHostToDevice));
    for (int with = 1; with >= 0; --with) {
        CUDA(launch(turn, blocks, size, in, out, with != 0));
        int wrong = 0, poisoned = 0;
        const std::vector<int> got = fetch(out, blocks * size);
        for (int k = 0; k < blocks * size; ++k) {
            const int expected = k / size * size + size - 1 - k % size;
            wrong += got[(std::size_t)k] != expected;
            poisoned += got[(std::size_t)k] == -1;
        }
        if (with)
            CHECK(wrong == 0, "%d wrong values", wrong);
        else
            CHECK(poisoned > 0, "a missing barrier went unseen (seed %llu)", (unsigned long long)seed);

        CUDA(launch(two_rounds, 1, size, out, with != 0));
        const std::vector<int> sums = fetch(out, size);
        wrong = 0;
        for (int k = 0; k < size; ++k)
            wrong += sums[(std::size_t)k] != 2 * ((k + 17) % 64) + 100;
        CHECK((wrong == 0) == (with != 0), "%d wrong sums %s the barrier", wrong, with ? "with" : "without");
    }
    expect_fault("the kernel", divergent_barrier, 1, size, out, 0);
    expect_fault("wait at", divergent_barrier, 1, size, out, 1);
    expect_fault("the kernel", divergent_barrier, 1, size, out, 2);
    CUDA(cudaFree(in));
    CUDA(cudaFree(out));
}

void warps(std::uint64_t seed)
{
    exec::seed(seed);
    double *const in = device_array<double>(128), *const out = device_array<double>(4);
    std::vector<double> numbers(128);
    for (int k = 0; k < 128; ++k)
        numbers[(std::size_t)k] = 1.0 / (k + 1);
    CUDA(cudaMemcpy(in, numbers.data(), 128 * sizeof(double), cudaMemcpyHostToDevice));
    CUDA(launch(sum_warp, 2, 64, in, out));
    const std::vector<double> sums = fetch(out, 4);
    for (int w = 0; w < 4; ++w) {
        double x[32];
        memcpy(x, &numbers[(std::size_t)w * 32], sizeof x);
        for (int offset = 16; offset > 0; offset /= 2)
            for (int lane = 0; lane < offset; ++lane)
                x[lane] += x[lane + offset];
        CHECK(sums[(std::size_t)w] == x[0], "warp %d: %.17g instead of %.17g", w, sums[(std::size_t)w], x[0]);
    }
    int *const table = device_array<int>(64 * 8);
    CUDA(launch(exchanges, 1, 64, table));
    const std::vector<int> got = fetch(table, 64 * 8);
    for (int k = 0; k < 64; ++k) {
        const int lane = k % 32, *const own = &got[(std::size_t)k * 8];
        CHECK(own[0] == 5 && own[1] == (lane ^ 3) && own[2] == (lane >= 2 ? lane - 2 : lane), "thread %d: %d %d %d", k,
              own[0], own[1], own[2]);
        CHECK(own[3] == (lane % 8 < 7 ? lane + 1 : lane), "thread %d: %d", k, own[3]);
        CHECK((unsigned)own[4] == 0x49249249u && own[5] == 1 && own[6] == 0, "thread %d: %x %d %d", k, own[4], own[5],
              own[6]);
        CHECK(lane >= 8 || own[7] == 7, "thread %d: %d", k, own[7]);
    }
    /* What is said first depends on who comes first; each sentence names the lane. */
    for (int kind = 0; kind <= 5; ++kind)
        expect_fault("lane", wrong_mask, 1, 32, table, kind);
    expect_fault("does not exist", sum_warp, 1, 24, in, out);
    CUDA(cudaFree(in));
    CUDA(cudaFree(out));
    CUDA(cudaFree(table));
}

void grids(std::uint64_t seed)
{
    exec::seed(seed);
    const int all = 8 * 33;
    int *shared_by_all = device_array<int>(all), *out = device_array<int>(all);
    unsigned *const counter = device_array<unsigned>(1);
    int kind = 0;
    void *arguments[] = {&shared_by_all, &out, &kind};
    CUDA(cudaLaunchCooperativeKernel(across, 8, 33, arguments, 0, nullptr));
    CUDA(cudaDeviceSynchronize());
    const std::vector<int> got = fetch(out, all);
    int wrong = 0;
    for (int k = 0; k < all; ++k)
        wrong += got[(std::size_t)k] != all - 1 - k;
    CHECK(wrong == 0, "%d wrong values", wrong);
    for (kind = 1; kind <= 2; ++kind) {
        CUDA(cudaLaunchCooperativeKernel(across, 8, 33, arguments, 0, nullptr));
        CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure, "a grid barrier that %s",
              kind == 1 ? "a thread left out" : "a block left out");
        exec::reset();
    }
    expect_fault("not cooperative", across, 8, 33, shared_by_all, out, 0);
    CHECK(cudaLaunchCooperativeKernel(across, 9, 33, arguments, 0, nullptr) == cudaErrorCooperativeLaunchTooLarge,
          "nine blocks do not fit");
    CHECK(cudaGetLastError() == cudaErrorCooperativeLaunchTooLarge, "the last error is lost");

    CUDA(cudaMemset(counter, 0, sizeof *counter));
    CUDA(launch(last_block, 50, 32, counter, shared_by_all, out));
    CHECK(fetch(out, 1)[0] == 50 * 51 / 2, "%d", fetch(out, 1)[0]);
    CUDA(cudaFree(shared_by_all));
    CUDA(cudaFree(out));
    CUDA(cudaFree(counter));

    indices *const table = device_array<indices>(3 * 2 * 24);
    CUDA(launch(where, dim3(3, 2), dim3(4, 3, 2), table));
    const std::vector<indices> places = fetch(table, 3 * 2 * 24);
    for (int k = 0; k < 3 * 2 * 24; ++k) {
        const int thread = k % 24, block = k / 24;
        const indices p = places[(std::size_t)k];
        CHECK(p.x == thread % 4 + 10 * (block % 3) && p.y == thread / 4 % 3 + 10 * (block / 3) && p.z == thread / 12,
              "thread %d: %d %d %d", k, p.x, p.y, p.z);
    }
    CUDA(cudaFree(table));
}

void shared_memory()
{
    const int count = 15000;
    int *out = device_array<int>((std::size_t)count), n = 1000;
    void *arguments[] = {&out, &n};
    CUDA(cudaLaunchKernel(dynamic, 1, 64, arguments, (std::size_t)n * sizeof(int), nullptr));
    CUDA(cudaDeviceSynchronize());
    CHECK(fetch(out, 1)[0] == (n - 1) * (n - 1), "%d", fetch(out, 1)[0]);
    n = count;
    CHECK(cudaLaunchKernel(dynamic, 1, 64, arguments, (std::size_t)n * sizeof(int), nullptr) == cudaErrorInvalidValue,
          "60 kB were not asked for");
    CUDA(cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, n * (int)sizeof(int)));
    CUDA(cudaLaunchKernel(dynamic, 1, 64, arguments, (std::size_t)n * sizeof(int), nullptr));
    CUDA(cudaDeviceSynchronize());
    CHECK(fetch(out, 1)[0] == (count - 1) * (count - 1), "%d", fetch(out, 1)[0]);
    n = 10;
    CUDA(cudaLaunchKernel(dynamic, 1, 64, arguments, 0, nullptr));
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure, "there was no dynamic memory");
    exec::reset();
    float *const value = device_array<float>(1);
    CUDA(launch(read_uninitialised, 1, 1, value));
    const float x = fetch(value, 1)[0];
    CHECK(x != x, "uninitialised shared memory holds %g", (double)x);
    CUDA(cudaFree(value));
    CUDA(cudaFree(out));
    CHECK(cudaLaunchKernel(dynamic, 1, 1025, arguments, 0, nullptr) == cudaErrorInvalidConfiguration,
          "1025 threads are too many");
    (void)cudaGetLastError();
}

/* Off by one at either end, for sizes that fill their allocation and sizes that do not. */
void bounds()
{
    for (const std::size_t n : {(std::size_t)64, (std::size_t)61})
        for (const long long index : {-1LL, (long long)n}) {
#if defined(__SANITIZE_ADDRESS__)
            expect_death("a write outside an allocation", [=] {
                int *const out = device_array<int>(n);
                (void)launch(write_at, 1, 1, out, index);
            });
#else
            int *const out = device_array<int>(n);
            expect_fault("device allocation", write_at, 1, 1, out, index);
            CUDA(cudaFree(out));
#endif
        }
#if defined(__SANITIZE_ADDRESS__)
    expect_death("a write behind a shared array", [] { (void)launch(write_behind_shared, 1, 1, 5); });
#endif
    CUDA(launch(write_behind_shared, 1, 1, 4));
    int *const x = device_array<int>(4);
    CHECK(fetch(x, 4)[3] == -1, "fresh memory holds %d", fetch(x, 4)[3]);
    expect_death("device memory read by the host", [=] { std::printf("%d", *(volatile int *)x); });
    int host = 0;
    CHECK(cudaMemcpy(x, x, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue, "the source is not on the host");
    CHECK(cudaMemcpy(&host, x, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue, "the target is not on the device");
    (void)cudaGetLastError();
    CUDA(cudaFree(x));
    CHECK(cudaFree(x) == cudaErrorInvalidValue, "freed twice");
    (void)cudaGetLastError();
    exec::fail_allocation(1);
    void *first = nullptr, *second = nullptr;
    CUDA(cudaMalloc(&first, 8));
    CHECK(cudaMalloc(&second, 8) == cudaErrorMemoryAllocation && !second, "the second allocation has to fail");
    (void)cudaGetLastError();
    CUDA(cudaFree(first));
}

/* Nothing happens before someone waits; what was queued first is done first; a graph repeats it. */
void streams()
{
    int *const x = device_array<int>(1);
    cudaStream_t one, two;
    cudaEvent_t event;
    CUDA(cudaStreamCreate(&one));
    CUDA(cudaStreamCreate(&two));
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    int start = 10, result = 0;
    int *argument = x;
    void *arguments[] = {&argument};
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
        exec::seed(seed);
        result = 0;
        CUDA(cudaMemcpyAsync(x, &start, sizeof start, cudaMemcpyHostToDevice, one));
        CUDA(cudaLaunchKernel(add_one, 1, 1, arguments, 0, one));
        CUDA(cudaEventRecord(event, one));
        CUDA(cudaStreamWaitEvent(two, event));
        CUDA(cudaLaunchKernel(add_one, 1, 1, arguments, 0, two));
        CUDA(cudaMemcpyAsync(&result, x, sizeof result, cudaMemcpyDeviceToHost, two));
        CHECK(result == 0, "the copy was done before anyone waited");
        CUDA(cudaStreamSynchronize(two));
        CHECK(result == 12, "%d", result);
    }
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CUDA(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
    CUDA(cudaLaunchKernel(add_one, 1, 1, arguments, 0, one));
    CUDA(cudaLaunchKernel(add_one, 1, 1, arguments, 0, one));
    void *none;
    CHECK(cudaStreamSynchronize(one) == cudaErrorStreamCaptureUnsupported, "waiting inside a capture");
    CHECK(cudaMalloc(&none, 8) == cudaErrorStreamCaptureUnsupported, "allocating inside a capture");
    (void)cudaGetLastError();
    CUDA(cudaStreamEndCapture(one, &graph));
    CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    CHECK(fetch(x, 1)[0] == 12, "a captured launch was run");
    for (int k = 0; k < 3; ++k)
        CUDA(cudaGraphLaunch(executable, two));
    CUDA(cudaStreamSynchronize(two));
    CHECK(fetch(x, 1)[0] == 18, "%d", fetch(x, 1)[0]);
    CUDA(cudaGraphExecDestroy(executable));
    CUDA(cudaEventDestroy(event));
    CUDA(cudaStreamDestroy(one));
    CUDA(cudaStreamDestroy(two));
    CUDA(cudaFree(x));
}

/* The same seed gives the same order, another seed another one. */
void reproducible()
{
    int *const in = device_array<int>(64), *const out = device_array<int>(64);
    CUDA(cudaMemset(in, 0, 64 * sizeof(int)));
    std::vector<int> first;
    bool differ = false;
    for (const std::uint64_t seed : {3u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u, 11u}) {
        exec::seed(seed);
        CUDA(launch(turn, 1, 64, in, out, false));
        const std::vector<int> got = fetch(out, 64);
        if (first.empty())
            first = got;
        else if (seed == 3)
            CHECK(got == first, "the same seed gave another order");
        else
            differ = differ || got != first;
    }
    CHECK(differ, "nine seeds gave one order");
    CUDA(cudaFree(in));
    CUDA(cudaFree(out));
}

} // namespace

int main()
{
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        barriers(seed);
        warps(seed);
        grids(seed);
    }
    shared_memory();
    bounds();
    streams();
    reproducible();
    CHECK(exec::allocations() == 0, "%d allocations left", exec::allocations());
    return check::finish("exec");
}
