/*
 * What a step moves: launches, and bytes of parameters, state and gradients for each parameter, beside the fewest that the
 * method needs. Printed as the table of docs/cuda.md; a step of up to four losses moves no byte too many.
 */
#include "tests/cuda/check.h"

#include "suture/suture.h"

#include <cuda_runtime.h>
#include <exec.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace
{

struct row {
    const char *name;
    sut_optimizer_method method;
    int m;
    bool conflict, check;
    int fewest; /* bytes a parameter, f32 */
};

/* Fewest: what is read of gradients in each pass that needs them, state and parameters in and out. */
const row rows[] = {
    {"SGD, momentum", SUT_OPTIMIZER_SGD, 1, false, false, 20},
    {"Lion", SUT_OPTIMIZER_LION, 1, false, false, 20},
    {"Adam", SUT_OPTIMIZER_ADAM, 1, false, false, 28},
    {"Adam, gradients checked", SUT_OPTIMIZER_ADAM, 1, false, true, 32},
    {"Adam, ConFIG, aligned, 2 losses, inside the cone", SUT_OPTIMIZER_ADAM, 2, false, true, 8 * 2 + 32},
    {"the same, projected", SUT_OPTIMIZER_ADAM, 2, true, true, 12 * 2 + 40},
    {"3 losses, projected", SUT_OPTIMIZER_ADAM, 3, true, true, 12 * 3 + 40},
    {"4 losses, projected", SUT_OPTIMIZER_ADAM, 4, true, true, 12 * 4 + 40},
    {"8 losses, projected", SUT_OPTIMIZER_ADAM, 8, true, true, 12 * 8 + 40},
};

void measure(const row &r, int64_t n, bool print)
{
    sut_context_config context;
    sut_context_config_init(&context);
    context.backend = SUT_BACKEND_CUDA;
    sut_context *ctx = nullptr;
    CHECK(sut_context_create(&ctx, &context) == SUT_OK, "no context");
    const size_t size = (size_t)n * sizeof(float);
    std::vector<float> x((size_t)n, 0.5f);
    void *theta = nullptr;
    std::vector<const void *> g((size_t)r.m);
    CUDA(cudaMalloc(&theta, size));
    CUDA(cudaMemcpy(theta, x.data(), size, cudaMemcpyHostToDevice));
    for (int i = 0; i < r.m; ++i) {
        void *p = nullptr;
        CUDA(cudaMalloc(&p, size));
        g[(size_t)i] = p;
    }
    sut_tensor tensor;
    std::memset(&tensor, 0, sizeof tensor);
    tensor.data = theta;
    tensor.dtype = SUT_DTYPE_F32;
    tensor.n_dims = 1;
    tensor.shape[0] = n;
    sut_optimizer_config c;
    sut_optimizer_config_init(&c, r.method);
    c.tensors = &tensor;
    c.n_tensors = 1;
    c.n_losses = r.m;
    c.check = r.check ? SUT_CHECK_GRADIENTS : SUT_CHECK_NONE;
    if (r.method == SUT_OPTIMIZER_SGD)
        c.hyper.momentum = 0.9;
    if (r.m > 1) {
        c.surgery.method = SUT_SURGERY_CONFIG;
        c.align = SUT_ALIGN_GUA;
    }
    sut_optimizer *opt = nullptr;
    CHECK(sut_optimizer_create(&opt, ctx, &c) == SUT_OK, "%s", sut_context_last_error(ctx));
    /* Momentum of a lasting part that the last step's gradients oppose: the proposal leaves the cone, or stays inside. */
    for (int step = 0; step < 3; ++step) {
        for (int i = 0; i < r.m; ++i) {
            for (size_t k = 0; k < (size_t)n; ++k) {
                const float own = std::sin((float)(k * (size_t)(i + 3) % 1013)), shared = std::cos((float)(k % 997));
                x[k] = (r.conflict && step == 2 && i == 0 ? -1.0f : 1.0f) * shared + 0.4f * own;
            }
            CUDA(cudaMemcpy(const_cast<void *>(g[(size_t)i]), x.data(), size, cudaMemcpyHostToDevice));
        }
        exec::traffic = exec::bytes();
        exec::count = exec::counters();
        CHECK(sut_optimizer_step(opt, g.data(), nullptr, nullptr) == SUT_OK, "%s", sut_context_last_error(ctx));
        CUDA(cudaStreamSynchronize(nullptr));
    }
    const double read = (double)exec::traffic.read / (double)n, written = (double)exec::traffic.written / (double)n;
    if (print)
        std::printf("| %s | %ld | %.0f | %.0f | %d |\n", r.name, exec::count.launches, read, written, r.fewest);
    if (r.m <= 4)
        CHECK(read + written == r.fewest, "%s: %g read, %g written, %d are enough", r.name, read, written, r.fewest);
    sut_optimizer_destroy(opt);
    for (const void *p : g)
        CUDA(cudaFree(const_cast<void *>(p)));
    CUDA(cudaFree(theta));
    sut_context_destroy(ctx);
}

} // namespace

int main()
{
    std::printf("| step, f32 | launches to 2^20 elements | bytes read a parameter | written | fewest "
                "|\n|---|---|---|---|---|\n");
    for (const row &r : rows)
        measure(r, 5000, true);
    measure(rows[2], ((int64_t)1 << 20) + 4096, true);
    measure(rows[5], ((int64_t)1 << 20) + 4096, true);
    return check::finish("traffic");
}
