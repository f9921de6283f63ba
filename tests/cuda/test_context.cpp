/*
 * A CUDA context from outside: what is said where something is missing, memory that is not the device's, failures of
 * allocations and of the device, streams and devices of the caller's choice, state files, cuBLAS.
 */
#include "device_array.h"
#include "exec.h"
#include "grid.h"
#include "random.h"

#include <cmath>
#include <cstdlib>
#include <string>

namespace
{

/* ---- contexts ---- */

std::string last_line;

void keep_line(void *, sut_log_level, const char *message)
{
    last_line = message;
}

sut_context_config cuda_config()
{
    sut_context_config config;
    sut_context_config_init(&config);
    config.backend = SUT_BACKEND_CUDA;
    config.log = keep_line;
    return config;
}

sut_context *open(const sut_context_config &config)
{
    sut_context *ctx = nullptr;
    CHECK(sut_context_create(&ctx, &config) == SUT_OK, "%s", last_line.c_str());
    return ctx;
}

/* Creation is refused with a sentence that holds `text`; what can be asked beforehand says the same. */
void refused(const sut_context_config &config, sut_status expected, const char *text, bool capable = false)
{
    sut_context *ctx = nullptr;
    last_line.clear();
    const int before = exec::allocations();
    const sut_status status = sut_context_create(&ctx, &config);
    CHECK(status == expected && !ctx, "%s: status %d", text, (int)status);
    CHECK(last_line.find(text) != std::string::npos, "\"%s\" does not say \"%s\"", last_line.c_str(), text);
    CHECK(exec::allocations() == before, "%s: %d allocations left", text, exec::allocations() - before);
    sut_capability_report report;
    sut_capabilities_init(&report);
    CHECK(sut_capabilities(&report) == SUT_OK && report.has_cuda == (capable ? 1 : 0), "%s: has_cuda is %d", text,
          report.has_cuda);
    CHECK(capable || std::strstr(report.cuda_reason, text), "\"%s\" does not say \"%s\"", report.cuda_reason, text);
    sut_context_destroy(ctx);
}

/* The library that is opened, and what is said when there is none. */
void libraries()
{
    const std::string path = std::getenv("SUTURE_CUDA_LIBRARY");
    const std::string other = path.substr(0, path.rfind('/') + 1) + "exec/libsuture_exec.so";
    /* Nowhere, as long as nobody has opened it: it stays in memory. */
    unsetenv("SUTURE_CUDA_LIBRARY");
    refused(cuda_config(), SUT_ERROR_BACKEND,
            "libsuture_cuda.so.0 was not found: build Suture with SUTURE_BUILD_CUDA=ON");
    setenv("SUTURE_CUDA_LIBRARY", "", 1); /* as if it were not set */
    refused(cuda_config(), SUT_ERROR_BACKEND, "libsuture_cuda.so.0 was not found");
    setenv("SUTURE_CUDA_LIBRARY", "/nowhere/libsuture_cuda.so", 1);
    refused(cuda_config(), SUT_ERROR_BACKEND, "SUTURE_CUDA_LIBRARY names cannot be opened: /nowhere/libsuture_cuda.so");
    setenv("SUTURE_CUDA_LIBRARY", other.c_str(), 1);
    refused(cuda_config(), SUT_ERROR_BACKEND, "libsuture_exec.so does not belong to this libsuture");
    setenv("SUTURE_CUDA_LIBRARY", path.c_str(), 1);
    sut_capability_report report;
    sut_capabilities_init(&report);
    CHECK(sut_capabilities(&report) == SUT_OK && report.has_cuda == 1 && !report.cuda_reason[0], "%s",
          report.cuda_reason);
    CHECK(std::strstr(report.cuda_found, path.c_str()) && std::strstr(report.cuda_found, "capability 9.0"), "%s",
          report.cuda_found);

    sut_context *const ctx = open(cuda_config());
    CHECK(sut_context_backend(ctx) == SUT_BACKEND_CUDA && sut_context_threads(ctx) == 1, "another back end");
    sut_context_destroy(ctx);
    sut_context_config config = cuda_config();
    config.backend = SUT_BACKEND_AUTO;
    sut_context *const automatic = open(config);
    CHECK(sut_context_backend(automatic) == SUT_BACKEND_CPU, "nobody asked for a GPU");
    sut_context_destroy(automatic);
}

void machines()
{
    const exec::device usual = exec::machine;
    exec::machine.driver = 0;
    refused(cuda_config(), SUT_ERROR_BACKEND, "no NVIDIA driver was found on this machine");
    exec::machine.driver = 12040;
    refused(cuda_config(), SUT_ERROR_BACKEND,
            "the NVIDIA driver is too old: it serves CUDA up to 12.4, this library is built for 13.0");
    exec::machine = usual;
    exec::machine.devices = 0;
    refused(cuda_config(), SUT_ERROR_BACKEND, "the NVIDIA driver lists no GPU");
    exec::machine = usual;
    exec::machine.architecture = 61;
    refused(cuda_config(), SUT_ERROR_BACKEND, "compute capability 6.1; this library needs 7.5");
    exec::machine = usual;
    exec::machine.has_code = false;
    refused(cuda_config(), SUT_ERROR_BACKEND, "built without code for device 0", true);
    exec::machine = usual;
    exec::reset();

    sut_context_config config = cuda_config();
    config.device_allocator.allocate = [](void *, size_t) -> void * { return nullptr; };
    refused(config, SUT_ERROR_INVALID_ARGUMENT, "device_allocator must give both", true);
}

/* ---- an optimizer in device memory ---- */

struct problem {
    sut_context *ctx;
    device_array theta, g0, g1;
    sut_optimizer *opt = nullptr;
    sut_status status;
    static std::vector<double> numbers(std::size_t n, uint64_t seed, double sign)
    {
        random_numbers r(seed), common(7);
        std::vector<double> out(n);
        for (double &x : out)
            x = sign * common.normal() + 0.3 * r.normal();
        return out;
    }
    problem(sut_context *ctx_, sut_dtype dtype, std::size_t n, sut_optimizer_method method = SUT_OPTIMIZER_ADAMW,
            sut_align align = SUT_ALIGN_GUA)
        : ctx(ctx_), theta(dtype, numbers(n, 1, 1)), g0(dtype, numbers(n, 2, 1)), g1(dtype, numbers(n, 3, -0.7))
    {
        sut_tensor tensor;
        std::memset(&tensor, 0, sizeof tensor);
        tensor.data = theta.at;
        tensor.dtype = dtype;
        tensor.n_dims = 1;
        tensor.shape[0] = (int64_t)n;
        sut_optimizer_config config;
        sut_optimizer_config_init(&config, method);
        config.tensors = &tensor;
        config.n_tensors = 1;
        config.n_losses = 2;
        config.align = align;
        status = sut_optimizer_create(&opt, ctx, &config);
    }
    ~problem()
    {
        sut_optimizer_destroy(opt);
    }
    sut_status step(sut_report *report = nullptr)
    {
        const void *const grads[2] = {g0.at, g1.at};
        const sut_status status = sut_optimizer_step(opt, grads, nullptr, report);
        return status != SUT_OK || report ? status : sut_optimizer_synchronize(opt);
    }
};

#define OK(ctx, call) CHECK((call) == SUT_OK, "%s: %s", #call, sut_context_last_error(ctx))

/* A call is refused, and the sentence holds `text`. */
void expect(sut_context *ctx, sut_status status, sut_status expected, const char *text)
{
    CHECK(status == expected, "status %d instead of %d (\"%s\")", (int)status, (int)expected, text);
    CHECK(std::strstr(sut_context_last_error(ctx), text), "\"%s\" does not say \"%s\"", sut_context_last_error(ctx),
          text);
}

/* Memory that is not the device's is refused by name, wherever it is given. */
void pointers()
{
    exec::machine.devices = 2;
    sut_context *const ctx = open(cuda_config());
    {
        problem p(ctx, SUT_DTYPE_F32, 100);
        OK(ctx, p.status);
        OK(ctx, p.step());
        std::vector<float> host(100, 0.0f);
        void *pinned = nullptr, *managed = nullptr;
        CUDA(cudaMallocHost(&pinned, 400));
        CUDA(cudaMallocManaged(&managed, 400));
        std::memset(pinned, 0, 400);
        std::memset(managed, 0, 400);
        CUDA(cudaSetDevice(1));
        device_array elsewhere(SUT_DTYPE_F32, std::vector<double>(100, 0.0));
        CUDA(cudaSetDevice(0));
        const char *const is_host = "is host memory; the context takes memory of CUDA device 0";
        const char *const is_elsewhere = "is memory of CUDA device 1; the context is on device 0";

        const void *grads[2] = {p.g0.at, host.data()};
        expect(ctx, sut_optimizer_step(p.opt, grads, nullptr, nullptr), SUT_ERROR_INVALID_ARGUMENT, is_host);
        CHECK(std::strstr(sut_context_last_error(ctx), "the gradient of loss 1 in tensor \"param.0\""), "%s",
              sut_context_last_error(ctx));
        /* One that a table of pointers known to be good could take for another. */
        std::vector<char> field(1 << 20);
        for (std::size_t k = 0; k + 64 < field.size(); k += 64) {
            grads[1] = &field[k];
            expect(ctx, sut_optimizer_step(p.opt, grads, nullptr, nullptr), SUT_ERROR_INVALID_ARGUMENT, is_host);
        }
        grads[1] = pinned;
        expect(ctx, sut_optimizer_step(p.opt, grads, nullptr, nullptr), SUT_ERROR_INVALID_ARGUMENT,
               "is pinned host memory");
        grads[1] = elsewhere.at;
        expect(ctx, sut_optimizer_step(p.opt, grads, nullptr, nullptr), SUT_ERROR_INVALID_ARGUMENT, is_elsewhere);
        grads[1] = managed;
        OK(ctx, sut_optimizer_step(p.opt, grads, nullptr, nullptr));
        grads[1] = p.g1.at;
        void *const host_out[1] = {host.data()}, *const elsewhere_out[1] = {elsewhere.at};
        expect(ctx, sut_optimizer_direction(p.opt, grads, nullptr, nullptr, host_out), SUT_ERROR_INVALID_ARGUMENT,
               is_host);
        OK(ctx, sut_optimizer_propose(p.opt, grads, nullptr, nullptr, nullptr));
        expect(ctx, sut_optimizer_project(p.opt, grads, elsewhere_out, nullptr), SUT_ERROR_INVALID_ARGUMENT,
               is_elsewhere);
        expect(ctx, sut_optimizer_apply(p.opt, grads, host_out, nullptr), SUT_ERROR_INVALID_ARGUMENT, is_host);
        OK(ctx, sut_optimizer_apply(p.opt, grads, nullptr, nullptr));

        sut_tensor tensor;
        std::memset(&tensor, 0, sizeof tensor);
        tensor.data = host.data();
        tensor.n_dims = 1;
        tensor.shape[0] = 100;
        sut_optimizer_config config;
        sut_optimizer_config_init(&config, SUT_OPTIMIZER_SGD);
        config.tensors = &tensor;
        config.n_tensors = 1;
        sut_optimizer *none = nullptr;
        expect(ctx, sut_optimizer_create(&none, ctx, &config), SUT_ERROR_INVALID_ARGUMENT, is_host);

        sut_surgery_config surgery;
        sut_surgery_config_init(&surgery, SUT_SURGERY_CONFIG);
        const void *rows[2] = {p.g0.at, host.data()};
        expect(ctx, sut_surgery_direction(ctx, &surgery, rows, 2, 100, SUT_DTYPE_F32, nullptr, 0, nullptr, nullptr),
               SUT_ERROR_INVALID_ARGUMENT, "surgery: grads[1] is host memory");
        rows[1] = p.g1.at;
        expect(ctx, sut_surgery_direction(ctx, &surgery, rows, 2, 100, SUT_DTYPE_F32, nullptr, 0, pinned, nullptr),
               SUT_ERROR_INVALID_ARGUMENT, "surgery: out is pinned host memory");
        expect(ctx,
               sut_cone_project(ctx, nullptr, rows, 2, 100, SUT_DTYPE_F32, elsewhere.at, nullptr, nullptr, nullptr),
               SUT_ERROR_INVALID_ARGUMENT, "cone: u is memory of CUDA device 1");
        CUDA(cudaFreeHost(pinned));
        CUDA(cudaFree(managed));
    }
    sut_context_destroy(ctx);
    exec::machine.devices = 1;
}

/* The context's device is the one that was current; calls find it from anywhere. Streams belong to devices. */
void devices_and_streams()
{
    exec::machine.devices = 2;
    CUDA(cudaSetDevice(1));
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));
    sut_context_config config = cuda_config();
    config.stream = stream;
    CUDA(cudaSetDevice(0));
    refused(config, SUT_ERROR_INVALID_ARGUMENT, "stream does not belong to CUDA device 0", true);
    CUDA(cudaSetDevice(1));
    sut_context *const ctx = open(config);
    {
        problem p(ctx, SUT_DTYPE_F64, 300);
        CUDA(cudaSetDevice(0));
        OK(ctx, p.status);
        sut_report report;
        sut_report_init(&report);
        OK(ctx, p.step(&report));
        CHECK(report.projected == 1, "the losses did not conflict");
        int current = -1;
        CUDA(cudaGetDevice(&current));
        CHECK(current == 0, "device %d is current now", current);
    }
    sut_context_destroy(ctx);
    CUDA(cudaStreamDestroy(stream));
    exec::machine.devices = 1;
}

/* What a stream does when it is waited for: launches of kernels. */
long launches_of(cudaStream_t stream)
{
    const long before = exec::count.launches;
    CUDA(cudaStreamSynchronize(stream));
    return exec::count.launches - before;
}

/* The context follows the caller from stream to stream, into a graph, and back; one that it may not follow to is refused. */
void following_a_stream()
{
    exec::machine.devices = 2;
    cudaStream_t first, second, elsewhere;
    CUDA(cudaSetDevice(1));
    CUDA(cudaStreamCreate(&elsewhere));
    CUDA(cudaSetDevice(0));
    CUDA(cudaStreamCreate(&first));
    CUDA(cudaStreamCreate(&second));
    sut_context_config config = cuda_config();
    config.stream = first;
    sut_context *const ctx = open(config), *const usual = open(cuda_config());
    {
        problem p(ctx, SUT_DTYPE_F32, 1000), twin(usual, SUT_DTYPE_F32, 1000);
        OK(ctx, p.status);
        const void *const grads[2] = {p.g0.at, p.g1.at};
        const auto queue = [&] { OK(ctx, sut_optimizer_step(p.opt, grads, nullptr, nullptr)); };
        queue();
        CHECK(launches_of(second) == 0 && launches_of(first) > 0, "a step on another stream than the context's");
        OK(ctx, sut_context_set_stream(ctx, first));
        OK(ctx, sut_context_set_stream(ctx, second));
        queue();
        CHECK(launches_of(first) == 0 && launches_of(second) > 0, "the step did not follow");
        expect(ctx, sut_context_set_stream(ctx, elsewhere), SUT_ERROR_INVALID_ARGUMENT,
               "stream does not belong to CUDA device 0, the device of the context");
        queue();
        CHECK(launches_of(second) > 0, "a refused stream was taken");

        cudaGraph_t graph;
        cudaGraphExec_t executable;
        CUDA(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
        OK(ctx, sut_context_set_stream(ctx, first));
        queue();
        CUDA(cudaStreamEndCapture(first, &graph));
        OK(ctx, sut_context_set_stream(ctx, nullptr));
        CUDA(cudaGraphInstantiate(&executable, graph, 0));
        CHECK(launches_of(first) == 0 && launches_of(nullptr) == 0, "a captured step was taken");
        CUDA(cudaGraphLaunch(executable, second));
        CUDA(cudaStreamSynchronize(second));
        queue();
        OK(ctx, sut_optimizer_synchronize(p.opt));
        CHECK(sut_optimizer_steps(p.opt) == 5, "%lld steps", (long long)sut_optimizer_steps(p.opt));
        for (int k = 0; k < 5; ++k)
            OK(usual, twin.step());
        CHECK(p.theta.get() == twin.theta.get(), "the stream changes the numbers");
        CUDA(cudaGraphExecDestroy(executable));
        CUDA(cudaGraphDestroy(graph));

        /* Numbers of a state, there and back. */
        void *m = nullptr;
        std::vector<float> seen(1000), back(1000);
        OK(ctx, sut_optimizer_state(p.opt, "m", 0, &m, nullptr, nullptr));
        OK(ctx, sut_context_download(ctx, seen.data(), m, 4000));
        CHECK(seen[5] != 0, "no momentum");
        seen[5] = 42;
        OK(ctx, sut_context_upload(ctx, m, seen.data(), 4000));
        OK(ctx, sut_context_download(ctx, back.data(), m, 4000));
        CHECK(back == seen, "%g", (double)back[5]);
        expect(ctx, sut_context_upload(ctx, back.data(), seen.data(), 4000), SUT_ERROR_INVALID_ARGUMENT,
               "sut_context_upload: the pointer to memory of the back end is host memory");
        expect(ctx, sut_context_download(ctx, back.data(), nullptr, 4000), SUT_ERROR_INVALID_ARGUMENT, "is NULL");
        OK(ctx, sut_context_download(ctx, nullptr, nullptr, 0));
    }
    sut_context_destroy(ctx);
    sut_context_destroy(usual);
    for (cudaStream_t stream : {first, second, elsewhere})
        CUDA(cudaStreamDestroy(stream));
    exec::machine.devices = 1;
}

/* Whatever cannot be allocated: no memory, a sentence, nothing left behind; then it works. */
void allocations()
{
    const int before = exec::allocations();
    int n = 0;
    for (;; ++n) {
        sut_context *ctx = nullptr;
        const sut_context_config config = cuda_config();
        exec::fail_allocation(n);
        const sut_status status = sut_context_create(&ctx, &config);
        exec::fail_allocation(-1);
        if (status == SUT_OK) {
            sut_context_destroy(ctx);
            break;
        }
        CHECK(status == SUT_ERROR_OUT_OF_MEMORY && last_line.find("has no memory for") != std::string::npos, "%d: %s",
              n, last_line.c_str());
        CHECK(exec::allocations() == before, "allocation %d: %d left", n, exec::allocations() - before);
    }
    CHECK(n >= 4, "%d allocations failed", n);

    sut_context *const ctx = open(cuda_config());
    {
        problem p(ctx, SUT_DTYPE_BF16, 1000);
        OK(ctx, p.status);
        const int with_one = exec::allocations();
        sut_tensor tensor;
        OK(ctx, sut_optimizer_get_tensor(p.opt, 0, &tensor));
        sut_optimizer_config config;
        sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAGRAD);
        config.tensors = &tensor;
        config.n_tensors = 1;
        for (n = 0;; ++n) {
            sut_optimizer *opt = nullptr;
            exec::fail_allocation(n);
            const sut_status status = sut_optimizer_create(&opt, ctx, &config);
            exec::fail_allocation(-1);
            sut_optimizer_destroy(opt);
            if (status == SUT_OK)
                break;
            CHECK(status == SUT_ERROR_OUT_OF_MEMORY, "%d: %s", n, sut_context_last_error(ctx));
            CHECK(exec::allocations() == with_one, "allocation %d: %d left", n, exec::allocations() - with_one);
        }
        CHECK(n >= 4, "%d allocations failed", n);
        OK(ctx, p.step());
    }
    sut_context_destroy(ctx);
    CHECK(exec::allocations() == before, "%d allocations left", exec::allocations() - before);
}

/* Device memory from the caller. */
struct hooks {
    int taken = 0, given = 0;
    std::size_t most = 0;
    static void *allocate(void *user, std::size_t size)
    {
        hooks *const h = static_cast<hooks *>(user);
        void *p = nullptr;
        ++h->taken;
        h->most = size > h->most ? size : h->most;
        return cudaMalloc(&p, size) == cudaSuccess ? p : nullptr;
    }
    static void release(void *user, void *p)
    {
        ++static_cast<hooks *>(user)->given;
        CUDA(cudaFree(p));
    }
};

void callers_memory()
{
    hooks h;
    sut_context_config config = cuda_config();
    config.device_allocator = {hooks::allocate, nullptr, hooks::release, &h};
    sut_context *const ctx = open(config);
    {
        problem p(ctx, SUT_DTYPE_F32, 5000);
        OK(ctx, p.status);
        const int after_creation = h.taken;
        CHECK(h.most >= 2 * 5000 * sizeof(float), "the state is not from the hooks: at most %zu bytes", h.most);
        for (int t = 0; t < 3; ++t)
            OK(ctx, p.step());
        CHECK(h.taken == after_creation, "%d allocations in three steps", h.taken - after_creation);
    }
    sut_context_destroy(ctx);
    CHECK(h.taken > 0 && h.taken == h.given, "%d taken, %d given back", h.taken, h.given);

    config.device_allocator.allocate = [](void *, std::size_t) -> void * { return nullptr; };
    config.device_allocator.release = [](void *, void *) {};
    refused(config, SUT_ERROR_OUT_OF_MEMORY, "the device_allocator of the context has no memory for", true);
    config.device_allocator.allocate = [](void *, std::size_t size) -> void * { return std::malloc(size); };
    config.device_allocator.release = [](void *, void *p) { std::free(p); };
    refused(config, SUT_ERROR_INVALID_ARGUMENT, "what the device_allocator of the context returns is host memory",
            true);
}

/* A device that fails: the call that finds it says what, later ones that the context is of no use, and all is given back. */
void lost_device()
{
    const int before = exec::allocations();
    sut_context *const ctx = open(cuda_config());
    {
        problem p(ctx, SUT_DTYPE_F32, 20);
        OK(ctx, p.step());
        sut_tensor tensor;
        OK(ctx, sut_optimizer_get_tensor(p.opt, 0, &tensor));
        exec::fail("a kernel of somebody else has failed");
        sut_report report;
        sut_report_init(&report);
        expect(ctx, p.step(&report), SUT_ERROR_BACKEND, "cudaErrorLaunchFailure");
        CHECK(std::strstr(sut_context_last_error(ctx), "cannot be used any more"), "%s", sut_context_last_error(ctx));
        expect(ctx, p.step(&report), SUT_ERROR_BACKEND, "this context cannot be used any more");
        void *data;
        std::size_t size;
        expect(ctx, sut_optimizer_save_memory(p.opt, nullptr, &data, &size), SUT_ERROR_BACKEND,
               "this context cannot be used any more");
        sut_optimizer *none = nullptr;
        sut_optimizer_config config;
        sut_optimizer_config_init(&config, SUT_OPTIMIZER_SGD);
        config.tensors = &tensor;
        config.n_tensors = 1;
        expect(ctx, sut_optimizer_create(&none, ctx, &config), SUT_ERROR_BACKEND,
               "this context cannot be used any more");
        CHECK(sut_optimizer_steps(p.opt) >= 1, "counts can be looked at");
    }
    sut_context_destroy(ctx);
    exec::reset();
    CHECK(exec::allocations() == before, "%d allocations left", exec::allocations() - before);
}

/* The same files, and they go from one back end to the other. */
void state_files()
{
    sut_context *const gpu = open(cuda_config());
    sut_context *cpu = nullptr;
    CHECK(sut_context_create(&cpu, nullptr) == SUT_OK, "no CPU context");
    const sut_dtype dtypes[] = {SUT_DTYPE_F32, SUT_DTYPE_F64, SUT_DTYPE_BF16};
    for (const sut_dtype dtype : dtypes) {
        /* No alignment: both have the same bits. */
        const std::size_t n = 777;
        problem p(gpu, dtype, n, SUT_OPTIMIZER_NADAM, SUT_ALIGN_NONE),
            again(gpu, dtype, n, SUT_OPTIMIZER_NADAM, SUT_ALIGN_NONE);
        std::vector<unsigned char> theta = p.theta.raw(), g0 = p.g0.raw(), g1 = p.g1.raw();
        sut_tensor tensor;
        OK(gpu, sut_optimizer_get_tensor(p.opt, 0, &tensor));
        tensor.data = theta.data();
        sut_optimizer_config config;
        sut_optimizer_config_init(&config, SUT_OPTIMIZER_NADAM);
        config.tensors = &tensor;
        config.n_tensors = 1;
        config.n_losses = 2;
        sut_optimizer *twin = nullptr;
        OK(cpu, sut_optimizer_create(&twin, cpu, &config));
        const void *const grads[2] = {g0.data(), g1.data()};
        for (int t = 0; t < 3; ++t) {
            OK(gpu, p.step());
            OK(cpu, sut_optimizer_step(twin, grads, nullptr, nullptr));
        }
        void *from_gpu = nullptr, *from_cpu = nullptr;
        std::size_t gpu_size = 0, cpu_size = 0;
        OK(gpu, sut_optimizer_save_memory(p.opt, nullptr, &from_gpu, &gpu_size));
        OK(cpu, sut_optimizer_save_memory(twin, nullptr, &from_cpu, &cpu_size));
        CHECK(gpu_size == cpu_size && gpu_size && std::memcmp(from_gpu, from_cpu, gpu_size) == 0,
              "%s: the files differ (%zu and %zu bytes)", sut_dtype_name(dtype), gpu_size, cpu_size);

        /* Through a file, and on from there. */
        char path[] = "/tmp/suture_state_XXXXXX";
        const int fd = mkstemp(path);
        CHECK(fd >= 0, "no temporary file");
        OK(gpu, sut_optimizer_save(p.opt, path, nullptr));
        OK(gpu, sut_optimizer_load(again.opt, path, nullptr));
        OK(gpu, sut_optimizer_load_memory(p.opt, from_cpu, cpu_size, nullptr));
        (void)std::remove(path);
        OK(gpu, p.step());
        OK(gpu, again.step());
        OK(cpu, sut_optimizer_step(twin, grads, nullptr, nullptr));
        CHECK(p.theta.raw() == theta && again.theta.raw() == theta, "%s: they part after the load",
              sut_dtype_name(dtype));
        sut_buffer_free(gpu, from_gpu);
        sut_buffer_free(cpu, from_cpu);
        sut_optimizer_destroy(twin);
    }
    sut_context_destroy(gpu);
    sut_context_destroy(cpu);
}

/* Low-precision parameters that were written from outside, and bad numbers in them. */
void parameters()
{
    sut_context *const ctx = open(cuda_config());
    {
        problem p(ctx, SUT_DTYPE_F16, 500);
        OK(ctx, p.step());
        std::vector<double> values(500, 0.25);
        p.theta.put(values);
        OK(ctx, sut_optimizer_parameters_changed(p.opt));
        void *master = nullptr;
        OK(ctx, sut_optimizer_state(p.opt, "master", 0, &master, nullptr, nullptr));
        std::vector<float> seen(500);
        CUDA(cudaMemcpy(seen.data(), master, 2000, cudaMemcpyDeviceToHost));
        for (const float x : seen)
            CHECK(x == 0.25f, "%g", (double)x);
        values[321] = NAN;
        p.theta.put(values);
        expect(ctx, sut_optimizer_parameters_changed(p.opt), SUT_ERROR_NOT_FINITE,
               "parameter \"param.0\" is NaN or Inf at index 321");
        p.theta.put(std::vector<double>(500, 1.0));
        OK(ctx, sut_optimizer_parameters_changed(p.opt));
        std::vector<double> g = p.g1.get();
        g[77] = INFINITY;
        p.g1.put(g);
        expect(ctx, p.step(), SUT_ERROR_NOT_FINITE,
               "the gradient of loss 1 is NaN or Inf in tensor \"param.0\" at index 77");
        CHECK(sut_optimizer_steps(p.opt) == 1 && p.theta.get() == std::vector<double>(500, 1.0),
              "a refused step moved something");
    }
    sut_context_destroy(ctx);
}

/* Many equally spaced f64 rows go through cuBLAS: no kernel of ours forms the Gram matrix, and it is the same to rounding. */
void many_rows()
{
    const int m = 20;
    const std::size_t n = 3000, stride = 3004;
    sut_context *const gpu = open(cuda_config());
    sut_context *cpu = nullptr;
    CHECK(sut_context_create(&cpu, nullptr) == SUT_OK, "no CPU context");
    {
        random_numbers r(11);
        std::vector<double> G(stride * m);
        for (double &x : G)
            x = r.normal();
        device_array on_device(SUT_DTYPE_F64, G);
        sut_surgery_config config;
        sut_surgery_config_init(&config, SUT_SURGERY_CONFIG);
        sut_surgery_report expected, together, apart;
        const void *host[m], *device[m];
        for (int i = 0; i < m; ++i) {
            host[i] = &G[stride * (std::size_t)i];
            device[i] = static_cast<const double *>(on_device.at) + stride * (std::size_t)i;
        }
        sut_surgery_report_init(&expected);
        sut_surgery_report_init(&together);
        sut_surgery_report_init(&apart);
        OK(cpu,
           sut_surgery_direction(cpu, &config, host, m, (int64_t)n, SUT_DTYPE_F64, nullptr, 0, nullptr, &expected));
        exec::count = {};
        OK(gpu,
           sut_surgery_direction(gpu, &config, device, m, (int64_t)n, SUT_DTYPE_F64, nullptr, 0, nullptr, &together));
        CHECK(exec::count.launches == 0, "%ld kernels", exec::count.launches);
        cudaStream_t other; /* cuBLAS follows to it */
        CUDA(cudaStreamCreate(&other));
        OK(gpu, sut_context_set_stream(gpu, other));
        OK(gpu, sut_surgery_direction(gpu, &config, device, m, (int64_t)n, SUT_DTYPE_F64, nullptr, 0, nullptr, &apart));
        CHECK(std::memcmp(apart.weights, together.weights, sizeof apart.weights) == 0, "another stream, other weights");
        OK(gpu, sut_context_set_stream(gpu, nullptr));
        CUDA(cudaStreamDestroy(other));
        std::swap(device[3], device[4]);
        std::swap(host[3], host[4]);
        exec::count = {};
        OK(gpu, sut_surgery_direction(gpu, &config, device, m, (int64_t)n, SUT_DTYPE_F64, nullptr, 0, nullptr, &apart));
        CHECK(exec::count.launches == 1, "%ld kernels", exec::count.launches);
        for (int i = 0; i < m; ++i) {
            const int j = i == 3 ? 4 : i == 4 ? 3 : i;
            CHECK(std::fabs(together.weights[i] - expected.weights[i]) < 1e-11 * std::fabs(expected.weights[i]) + 1e-14,
                  "weight %d: %.17g and %.17g", i, together.weights[i], expected.weights[i]);
            CHECK(std::fabs(apart.weights[j] - expected.weights[i]) < 1e-11 * std::fabs(expected.weights[i]) + 1e-14,
                  "weight %d: %.17g and %.17g", i, apart.weights[j], expected.weights[i]);
        }
    }
    sut_context_destroy(gpu);
    sut_context_destroy(cpu);
}

} // namespace

int main()
{
    libraries();
    machines();
    pointers();
    devices_and_streams();
    following_a_stream();
    allocations();
    callers_memory();
    lost_device();
    state_files();
    parameters();
    many_rows();
    CHECK(exec::allocations() == 0, "%d allocations left", exec::allocations());
    return check::finish("context");
}
