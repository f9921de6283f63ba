/*
 * Steps on a GPU, f32: times of events around many of them, the least of several rounds, beside the bandwidth of a copy on the
 * same device in the same run. Rows stay where they are, so that a step is what its launches are.
 */
#include "suture/suture.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace
{

#define CUDA(call)                                                              \
    do {                                                                        \
        const cudaError_t error = (call);                                       \
        if (error != cudaSuccess) {                                             \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
            std::exit(1);                                                       \
        }                                                                       \
    } while (0)

sut_context *ctx;
cudaStream_t stream;

#define SUT(call)                                                                 \
    do {                                                                          \
        if ((call) != SUT_OK) {                                                   \
            std::fprintf(stderr, "%s: %s\n", #call, sut_context_last_error(ctx)); \
            std::exit(1);                                                         \
        }                                                                         \
    } while (0)

/* Microseconds of one call, from `count` of them between two events: the least of nine rounds after one to warm up. */
template <class Call> double least(int count, Call call)
{
    cudaEvent_t begin, end;
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    double best = 1e30;
    for (int round = 0; round < 10; ++round) {
        CUDA(cudaEventRecord(begin, stream));
        for (int k = 0; k < count; ++k)
            call();
        CUDA(cudaEventRecord(end, stream));
        CUDA(cudaEventSynchronize(end));
        float milliseconds;
        CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
        const double each = 1e3 * milliseconds / count;
        if (round > 0 && each < best)
            best = each;
    }
    CUDA(cudaEventDestroy(begin));
    CUDA(cudaEventDestroy(end));
    return best;
}

float *make(int64_t n, unsigned seed, float shared)
{
    std::vector<float> x((size_t)n);
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1, common = 12345;
    for (float &v : x) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        common = common * 6364136223846793005u + 1442695040888963407u;
        v = shared * ((float)(common >> 40) * 0x1p-23f - 1) + 0.5f * ((float)(state >> 40) * 0x1p-23f - 1);
    }
    float *p = nullptr;
    CUDA(cudaMalloc(&p, (size_t)n * sizeof(float)));
    CUDA(cudaMemcpy(p, x.data(), (size_t)n * sizeof(float), cudaMemcpyHostToDevice));
    return p;
}

/* A step of Adam: its time, in a graph where `graph`. n in 12 tensors. */
double step(int64_t n, int m, bool conflict, bool check, bool graph, int count, int *projected)
{
    std::vector<sut_tensor> tensors(12);
    std::vector<const void *> rows;
    float *const theta = make(n, 1, 0.3f);
    std::vector<float *> memory(1, theta);
    for (int t = 0; t < 12; ++t) {
        std::memset(&tensors[(size_t)t], 0, sizeof tensors[0]);
        const int64_t begin = n * t / 12, end = n * (t + 1) / 12;
        tensors[(size_t)t].data = theta + begin;
        tensors[(size_t)t].dtype = SUT_DTYPE_F32;
        tensors[(size_t)t].n_dims = 1;
        tensors[(size_t)t].shape[0] = end - begin;
    }
    for (int i = 0; i < m; ++i) {
        float *const g = make(n, 7u + (unsigned)i, conflict && i % 2 ? -0.6f : 1.0f);
        memory.push_back(g);
        for (int t = 0; t < 12; ++t)
            rows.push_back(g + n * t / 12);
    }
    sut_optimizer_config c;
    sut_optimizer_config_init(&c, SUT_OPTIMIZER_ADAM);
    c.tensors = tensors.data();
    c.n_tensors = 12;
    c.n_losses = m;
    c.hyper.lr = 1e-5;
    c.check = check ? SUT_CHECK_GRADIENTS : SUT_CHECK_NONE;
    if (m > 1) {
        c.surgery.method = SUT_SURGERY_SUM; /* leaves the conflict to the projection, whatever the rows */
        c.align = SUT_ALIGN_GUA;
    }
    sut_optimizer *opt = nullptr;
    SUT(sut_optimizer_create(&opt, ctx, &c));
    sut_report report;
    sut_report_init(&report);
    SUT(sut_optimizer_step(opt, rows.data(), nullptr, &report));
    *projected = report.projected;
    double time;
    if (graph) {
        cudaGraph_t recorded;
        cudaGraphExec_t executable;
        CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        SUT(sut_optimizer_step(opt, rows.data(), nullptr, nullptr));
        CUDA(cudaStreamEndCapture(stream, &recorded));
        CUDA(cudaGraphInstantiate(&executable, recorded, 0));
        time = least(count, [&] { CUDA(cudaGraphLaunch(executable, stream)); });
        CUDA(cudaGraphExecDestroy(executable));
        CUDA(cudaGraphDestroy(recorded));
    } else {
        time = least(count, [&] { SUT(sut_optimizer_step(opt, rows.data(), nullptr, nullptr)); });
    }
    SUT(sut_optimizer_synchronize(opt));
    sut_optimizer_destroy(opt);
    for (float *p : memory)
        CUDA(cudaFree(p));
    return time;
}

} // namespace

int main()
{
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    sut_context_config c;
    sut_context_config_init(&c);
    c.backend = SUT_BACKEND_CUDA;
    c.stream = stream;
    c.log = [](void *, sut_log_level, const char *text) { std::fprintf(stderr, "%s\n", text); };
    if (sut_context_create(&ctx, &c) != SUT_OK)
        return 1;
    cudaDeviceProp device;
    CUDA(cudaGetDeviceProperties(&device, 0));
    const size_t size = (size_t)1 << 30;
    void *from = nullptr, *to = nullptr;
    CUDA(cudaMalloc(&from, size));
    CUDA(cudaMalloc(&to, size));
    CUDA(cudaMemset(from, 0, size));
    const double copy =
        2 * (double)size /
        (1e3 * least(4, [&] { CUDA(cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream)); }));
    CUDA(cudaFree(from));
    CUDA(cudaFree(to));
    std::printf("%s, copy %.0f GB/s (both directions)\n\n", device.name, copy);
    std::printf("| n | step | time | bytes a parameter | GB/s | of the copy |\n|---|---|---|---|---|---|\n");
    static const struct {
        const char *name;
        int m;
        bool conflict, check;
        int bytes;
    } kinds[] = {
        {"Adam", 1, false, false, 28},
        {"Adam, gradients checked", 1, false, true, 32},
        {"aligned, 2 losses, inside the cone", 2, false, true, 48},
        {"aligned, 2 losses, projected", 2, true, true, 64},
        {"aligned, 3 losses, projected", 3, true, true, 76},
        {"aligned, 8 losses, projected", 8, true, true, 136},
    };
    for (const int64_t n : {(int64_t)10000, (int64_t)1000000, (int64_t)10000000, (int64_t)100000000})
        for (const auto &k : kinds)
            for (int graph = 0; graph < (n <= 1000000 ? 2 : 1); ++graph) {
                int projected;
                const double time = step(n, k.m, k.conflict, k.check, graph != 0,
                                         n < 10000000    ? 200
                                         : n < 100000000 ? 20
                                                         : 4,
                                         &projected);
                const double rate = 1e-3 * (double)k.bytes * (double)n / time;
                std::printf("| %.0e | %s%s%s | %.1f us | %d | %.0f | %.0f %% |\n", (double)n, k.name,
                            graph ? ", in a graph" : "", k.m > 1 && projected != k.conflict ? " (not as meant)" : "",
                            time, k.bytes, rate, 100 * rate / copy);
            }
    sut_context_destroy(ctx);
    return 0;
}
