/*
 * suture-pinn's network on the execution layer against its solver on the CPU: losses, gradients of each loss and the solution,
 * for each problem, number of losses and type; and what is said where the GPU, its memory or a library is missing.
 */
#include "check.h"
#include "exec.h"

extern "C" {
#include "batch.h"
#include "evaluate.h"
#include "run.h"
}

#include <cmath>
#include <cstring>
#include <string>
#include <unistd.h>
#include <vector>

namespace
{

struct result {
    std::vector<double> losses, terms;
    std::vector<std::vector<double>> gradients;
    std::vector<double> prediction;
};

/* Of `device` NULL: on the CPU. Three steps in a row, the third of which was drawn ahead, then one that was not. */
std::vector<result> compute(const pinn_problem *problem, const net_shape &shape, const net_kernels *kernels,
                            int n_losses, int interior, const std::vector<double> &theta, const pinn_device *device)
{
    std::vector<result> out;
    pinn_loss losses[PINN_MAX_TERMS];
    CHECK(pinn_problem_split(problem, n_losses, losses) == n_losses, "%s", problem->name);
    pinn_pool *const pool = pinn_pool_create(2);
    pinn_batch *const batch = pinn_batch_create(pool, kernels, &shape, problem, losses, n_losses, interior);
    pinn_evaluation *const evaluation = pinn_evaluation_create(pool, kernels, &shape, problem);
    const size_t n = net_parameters(&shape), size = n * kernels->real_size;
    std::vector<unsigned char> host(size), row(size);
    net_store(kernels->real, host.data(), 0, theta.data(), n);
    if (device) {
        CHECK(pinn_batch_use_device(batch, device), "%s", pinn_device_error(device));
        CHECK(pinn_evaluation_use_device(evaluation, device), "%s", pinn_device_error(device));
    }
    const auto allocate = [&] {
        return device ? device->calls->allocate(device->network, size) : std::calloc(1, size);
    };
    const auto release = [&](void *p) {
        if (device)
            device->calls->release(device->network, p);
        else
            std::free(p);
    };
    void *const where = allocate();
    void *rows[PINN_MAX_TERMS] = {};
    for (int i = 0; i < n_losses; ++i)
        rows[i] = allocate();
    if (device)
        CHECK(device->calls->upload(device->network, where, host.data(), size), "%s", pinn_device_error(device));
    else
        std::memcpy(where, host.data(), size);
    for (const int step : {0, 1, 2, 7}) {
        double terms[PINN_MAX_TERMS] = {}, found[PINN_MAX_TERMS] = {};
        CHECK(pinn_batch_gradients(batch, where, 11, step, terms, found, rows), "%s", pinn_device_error(device));
        result r;
        r.losses.assign(found, found + n_losses);
        r.terms.assign(terms, terms + problem->n_terms);
        for (int i = 0; i < n_losses; ++i) {
            if (device)
                CHECK(device->calls->download(device->network, row.data(), rows[i], size), "%s",
                      pinn_device_error(device));
            else
                std::memcpy(row.data(), rows[i], size);
            std::vector<double> gradient(n);
            net_load(kernels->real, row.data(), 0, gradient.data(), n);
            r.gradients.push_back(gradient);
        }
        out.push_back(r);
    }
    const pinn_scores scores = pinn_evaluate(evaluation, host.data());
    CHECK(std::isfinite(scores.mse), "%s", pinn_device_error(device));
    const double *const prediction = pinn_evaluation_prediction(evaluation);
    out[0].prediction.assign(prediction, prediction + pinn_evaluation_points(evaluation) * shape.outputs);
    for (void *p : rows)
        release(p);
    release(where);
    pinn_evaluation_destroy(evaluation);
    pinn_batch_destroy(batch);
    pinn_pool_destroy(pool);
    return out;
}

/* The largest difference, relative to the largest number. */
double distance(const std::vector<double> &a, const std::vector<double> &b)
{
    double scale = 0, error = a.size() == b.size() ? 0 : INFINITY;
    for (size_t i = 0; i < b.size() && i < a.size(); ++i) {
        scale = std::fmax(scale, std::fabs(b[i]));
        const double e = std::fabs(a[i] - b[i]);
        error = e <= error ? error : e; /* NaN stays */
    }
    return error / scale;
}

/* Products in another order: rounding of the type, times what second derivatives lose by cancellation. */
void agreement(const pinn_problem *problem, const net_shape &shape, net_real real, int n_losses, int interior)
{
    const net_kernels *const kernels = net_kernels_find(real, NULL);
    const double tolerance = real == NET_F32 ? 1e-5 : 1e-12;
    std::vector<double> theta(net_parameters(&shape));
    pinn_initialise(&shape, 3, theta.data());
    char why[400] = "";
    pinn_device *const device = pinn_device_open(problem, &shape, real, why, sizeof why);
    CHECK(device != NULL, "%s", why);
    if (!device)
        return;
    const auto host = compute(problem, shape, kernels, n_losses, interior, theta, NULL);
    const auto gpu = compute(problem, shape, kernels, n_losses, interior, theta, device);
    pinn_device_close(device);
    for (size_t s = 0; s < host.size(); ++s) {
        double e = distance(gpu[s].losses, host[s].losses);
        CHECK(e <= tolerance, "%s, %d losses, losses: %g", problem->name, n_losses, e);
        e = distance(gpu[s].terms, host[s].terms);
        CHECK(e <= tolerance, "%s, %d losses, terms: %g", problem->name, n_losses, e);
        for (int i = 0; i < n_losses; ++i) {
            e = distance(gpu[s].gradients[(size_t)i], host[s].gradients[(size_t)i]);
            CHECK(e <= tolerance, "%s, %s, %d losses, gradient %d: %g", problem->name, real == NET_F32 ? "f32" : "f64",
                  n_losses, i, e);
        }
    }
    const double e = distance(gpu[0].prediction, host[0].prediction);
    CHECK(e <= tolerance, "%s, solution: %g", problem->name, e);
    CHECK(exec::allocations() == 0, "%d allocations are left", exec::allocations());
    CHECK(!*exec::fault(), "%s", exec::fault());
}

/* What a run with --backend cuda says on stderr, and its exit code. */
std::string refusal(int *code)
{
    char file[] = "/tmp/suture-pinn-cuda-XXXXXX";
    const int to = mkstemp(file), before = dup(2);
    static pinn_options options;
    char name[] = "suture-pinn", problem[] = "burgers", backend[] = "--backend", cuda[] = "cuda", out[] = "--out",
         directory[] = "/dev/null/directory";
    char points[] = "--points", few[] = "40";
    char *argv[] = {name, problem, backend, cuda, out, directory, points, few, NULL};
    std::fflush(stderr);
    (void)dup2(to, 2);
    *code = pinn_options_parse(&options, 8, argv);
    if (*code == 0)
        *code = pinn_train(&options);
    std::fflush(stderr);
    (void)dup2(before, 2);
    (void)close(before);
    char text[2000] = "";
    const ssize_t size = pread(to, text, sizeof text - 1, 0);
    text[size > 0 ? size : 0] = 0;
    (void)close(to);
    (void)unlink(file);
    return text;
}

void expect_refusal(int expected, const char *what)
{
    int code = 0;
    const std::string text = refusal(&code);
    CHECK(code == expected, "%d: %s", code, text.c_str());
    CHECK(text.find(what) != std::string::npos, "no '%s' in: %s", what, text.c_str());
    CHECK(exec::allocations() == 0, "%d allocations are left", exec::allocations());
}

/* Before it is found once: a library that is loaded is found by its name. */
void library_is_missing()
{
    const std::string library = std::getenv("SUTURE_PINN_CUDA_LIBRARY") ? std::getenv("SUTURE_PINN_CUDA_LIBRARY") : "";
    (void)unsetenv("SUTURE_PINN_CUDA_LIBRARY");
    expect_refusal(PINN_EXIT_USAGE, "libsuture_pinn_cuda.so.0 was not found: build Suture with SUTURE_BUILD_CUDA=ON");
    (void)setenv("SUTURE_PINN_CUDA_LIBRARY", library.c_str(), 1);
}

void refusals()
{
    exec::machine.driver = 0;
    expect_refusal(PINN_EXIT_USAGE, "--backend cuda: no NVIDIA driver was found");
    exec::machine.driver = 12000;
    expect_refusal(PINN_EXIT_USAGE, "the NVIDIA driver is too old");
    exec::machine.driver = 13000;
    exec::machine.devices = 0;
    expect_refusal(PINN_EXIT_USAGE, "lists no GPU");
    exec::machine.devices = 1;

    const std::string library = std::getenv("SUTURE_PINN_CUDA_LIBRARY") ? std::getenv("SUTURE_PINN_CUDA_LIBRARY") : "";
    (void)setenv("SUTURE_PINN_CUDA_LIBRARY", "/nonexistent.so", 1);
    expect_refusal(PINN_EXIT_USAGE,
                   "the library that SUTURE_PINN_CUDA_LIBRARY names cannot be opened: /nonexistent.so");
    (void)setenv("SUTURE_PINN_CUDA_LIBRARY", "libm.so.6", 1);
    expect_refusal(PINN_EXIT_USAGE, "does not belong to this suture-pinn");
    (void)setenv("SUTURE_PINN_CUDA_LIBRARY", library.c_str(), 1);

    /* Each allocation in turn, until all are made and the run fails for its directory. */
    int n = 0, code = 0;
    for (bool failed = true; failed && n < 200; ++n) {
        exec::fail_allocation(n);
        const std::string text = refusal(&code);
        CHECK(code == PINN_EXIT_FAILURE || code == PINN_EXIT_USAGE, "%d: %s", code, text.c_str());
        failed = text.find("memory") != std::string::npos;
        if (!failed)
            CHECK(text.find("/dev/null") != std::string::npos, "allocation %d: %s", n, text.c_str());
        CHECK(exec::allocations() == 0, "allocation %d: %d are left", n, exec::allocations());
        exec::fail_allocation(-1);
        exec::reset();
    }
    CHECK(n > 20 && n < 200, "%d", n);
}

} // namespace

int main()
{
    exec::watch_every = 8;
    library_is_missing();
    const pinn_problem *problem;
    for (int i = 0; (problem = pinn_problem_at(i)) != NULL; ++i) {
        const net_shape published = pinn_problem_shape(problem);
        net_shape small = published;
        small.width = 7;
        small.hidden = 3;
        for (const net_real real : {NET_F32, NET_F64})
            for (const int n_losses : {2, 3}) {
                pinn_loss losses[PINN_MAX_TERMS];
                if (!pinn_problem_split(problem, n_losses, losses))
                    continue;
                agreement(problem, small, real, n_losses, 300);
                if (n_losses == 2)
                    agreement(problem, published, real, n_losses, 200);
            }
        small.hidden = 1;
        agreement(problem, small, NET_F64, 2, 1);
    }
    refusals();
    return check::finish("pinn");
}
