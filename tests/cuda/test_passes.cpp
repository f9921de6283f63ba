/*
 * The kernels against the CPU back end: every rule with every flag, every kind of pass and update, every type, few rows and
 * many, several rates, gaps, ragged lengths and odd addresses. Element by element the same bits; sums to their rounding.
 */
#include "exec.h"
#include "twin.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>

namespace
{

/* f32 sums: products and pairs of four rounded to f32, 2^-24 each. Sums in double of the same products differ by the order. */
const double f32_tolerance = 1e-6, f64_tolerance = 1e-13;

struct setting {
    const sut_method_row *row;
    sut_hyper hyper;
    std::string name;
};

/* Every combination of a method's flags, momentum and decay, with hyper-parameters that are not the defaults. */
std::vector<setting> all_settings()
{
    std::vector<setting> all;
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int bits = 0; bits < 16; ++bits) {
            const sut_method_row *const row = sut_method_find((sut_optimizer_method)method);
            sut_hyper h;
            memset(&h, 0, sizeof h);
            h.lr = 0.03;
            h.beta1 = 0.8;
            h.beta2 = 0.93;
            h.eps = 1e-5;
            h.alpha = 0.9;
            h.lr_decay = 0.1;
            h.momentum_decay = 0.01;
            h.weight_decay = bits & 1 ? 0.05 : 0;
            h.momentum = bits & 2 ? 0.6 : 0;
            h.nesterov = (bits & 4) != 0;
            h.dampening = h.nesterov ? 0 : 0.2;
            h.amsgrad = (bits & 4) != 0;
            h.centered = (bits & 8) != 0;
            /* Only what the method knows. */
            const bool sgd = row->rule == SUT_RULE_SGD, rmsprop = row->rule == SUT_RULE_RMSPROP;
            if (((bits & 2) && !sgd && !rmsprop) || ((bits & 8) && !rmsprop) ||
                ((bits & 4) && !(row->rule == SUT_RULE_ADAM || (sgd && (bits & 2)))))
                continue;
            all.push_back({row, h, std::string(row->name) + " " + std::to_string(bits)});
        }
    return all;
}

/* A kind of pass with its switches. */
struct pass_case {
    const char *name;
    sut_pass_kind kind;
    sut_update_kind update;
    bool sums, metric, realign, corrected, outputs;
};
const pass_case cases[] = {
    {"fused", SUT_PASS_FUSED, SUT_UPDATE_NATURAL, false, false, false, false, false},
    {"fused, sums", SUT_PASS_FUSED, SUT_UPDATE_NATURAL, true, false, false, false, false},
    {"fused, metric", SUT_PASS_FUSED, SUT_UPDATE_NATURAL, true, true, false, false, false},
    {"propose", SUT_PASS_PROPOSE, SUT_UPDATE_NATURAL, true, true, false, false, false},
    {"propose, outputs", SUT_PASS_PROPOSE, SUT_UPDATE_NATURAL, true, true, false, false, true},
    {"propose, no sums", SUT_PASS_PROPOSE, SUT_UPDATE_NATURAL, false, false, false, false, true},
    {"propose, euclidean", SUT_PASS_PROPOSE, SUT_UPDATE_EUCLIDEAN, true, true, false, false, false},
    {"terms", SUT_PASS_TERMS, SUT_UPDATE_NATURAL, true, true, false, false, true},
    {"measure", SUT_PASS_MEASURE, SUT_UPDATE_NATURAL, true, false, true, false, true},
    {"measure, given", SUT_PASS_MEASURE, SUT_UPDATE_GIVEN, true, false, true, false, true},
    {"apply proposal", SUT_PASS_APPLY, SUT_UPDATE_PROPOSAL, false, false, false, false, false},
    {"apply proposal, sums", SUT_PASS_APPLY, SUT_UPDATE_PROPOSAL, true, false, true, false, true},
    {"apply natural", SUT_PASS_APPLY, SUT_UPDATE_NATURAL, true, false, false, false, false},
    {"apply natural, realign", SUT_PASS_APPLY, SUT_UPDATE_NATURAL, true, false, true, false, true},
    {"apply natural, no sums", SUT_PASS_APPLY, SUT_UPDATE_NATURAL, false, false, true, false, false},
    {"apply natural, corrected", SUT_PASS_APPLY, SUT_UPDATE_NATURAL, true, false, true, true, false},
    {"apply euclidean", SUT_PASS_APPLY, SUT_UPDATE_EUCLIDEAN, true, false, true, false, true},
    {"apply euclidean, corrected", SUT_PASS_APPLY, SUT_UPDATE_EUCLIDEAN, true, false, false, true, false},
    {"apply zero", SUT_PASS_APPLY, SUT_UPDATE_ZERO, true, false, true, false, true},
    {"apply given", SUT_PASS_APPLY, SUT_UPDATE_GIVEN, true, false, true, false, true},
};
const int n_cases = (int)(sizeof cases / sizeof *cases);

struct kind_of_sum {
    const char *name;
    bool strict, careful, exact;
};
const kind_of_sum sums[] = {
    {"f32", false, false, false},   {"exact", false, false, true},         {"strict", true, false, true},
    {"careful", false, true, true}, {"careful, strict", true, true, true},
};

void run_case(twin *problem, const pass_case &c, const kind_of_sum &k, const std::string &name)
{
    sut_step_pass pass = problem->base(false);
    pass.kind = c.kind;
    pass.update = c.update;
    pass.want_sums = c.sums;
    pass.want_metric = c.metric;
    pass.realign = c.realign;
    pass.strict = k.strict;
    pass.careful = k.careful;
    pass.exact_sum = k.exact;
    /* Corrections belong to f64 arithmetic, scales to careful passes. */
    pass.careful = pass.careful || c.corrected;
    pass.correction = c.corrected ? problem->correction.data() : nullptr;
    if (pass.careful && !pass.correction && c.kind == SUT_PASS_TERMS)
        pass.u_scale = 0.25;
    if (problem->m == 1) {
        problem->weights[0] = 1;
        pass.direct = true;
    }
    bool all_f64 = true;
    for (int64_t t = 0; t < problem->n_tensors; ++t)
        all_f64 = all_f64 && problem->layout.dtype[t] == SUT_DTYPE_F64;
    const bool exact = pass.strict || pass.careful || all_f64;
    problem->run(pass, c.outputs, exact ? f64_tolerance : f32_tolerance,
                 (name + ", " + c.name + ", " + k.name).c_str());
}

twin_shape shape_of(int which)
{
    const sut_dtype f32 = SUT_DTYPE_F32, f64 = SUT_DTYPE_F64, bf16 = SUT_DTYPE_BF16, f16 = SUT_DTYPE_F16;
    twin_shape s;
    s.lengths = {1, 1031, 257, 0, 64, 31};
    s.dtypes = {f32, f32, f32, f32, f32, f32};
    switch (which) {
    case 0: break;
    case 1:
        s.dtypes = {f64, f64, f64, f64, f64, f64};
        s.m = 3;
        s.misaligned = true;
        break;
    case 2:
        s.dtypes = {bf16, f16, bf16, f16, f16, bf16};
        s.gaps = true;
        break;
    case 3:
        s.dtypes = {f32, f64, bf16, f32, f16, f64};
        s.m = 4;
        s.gaps = true;
        s.misaligned = true;
        break;
    case 4:
        s.m = 1;
        s.misaligned = true;
        break;
    case 5:
        s.m = 7;
        s.gaps = true;
        break;
    case 6:
        s.dtypes = {f64, f32, f64, f64, bf16, f32};
        s.m = 6;
        break;
    }
    return s;
}
const int n_shapes = 7;

/* Every rule meets every case; shapes, sums and rates go round with a step that is prime to their number. */
void rules()
{
    const std::vector<setting> settings = all_settings();
    std::vector<twin *> problems;
    for (int shape = 0; shape < n_shapes; ++shape)
        problems.push_back(new twin(shape_of(shape), 1 + (uint64_t)shape));
    const std::vector<double> one_rate = {0.03}, rates = {0.03, 0.0075, 0, 0.03};
    std::set<int> flags_seen[SUT_RULE_COUNT];
    unsigned turn = 0;
    for (const setting &s : settings)
        for (int c = 0; c < n_cases; ++c) {
            twin *const problem = problems[turn * 3 % n_shapes];
            const kind_of_sum &k = sums[turn * 2 % (sizeof sums / sizeof *sums)];
            /* Step 1 has its own branches, RAdam is rectified from a later step on. */
            const int64_t t = turn % 3 == 0 ? 1 : turn % 3 == 1 ? 3 : 30;
            exec::seed(turn);
            problem->fill(turn);
            problem->set_rule(s.row, s.hyper, t, turn % 4 == 3 ? rates : one_rate);
            run_case(problem, cases[c], k,
                     s.name + ", shape " + std::to_string(turn * 3 % n_shapes) + ", t = " + std::to_string(t));
            flags_seen[s.row->rule].insert(problem->base(false).tensors[0].setting->flags);
            ++turn;
        }
    for (int rule = 0; rule < SUT_RULE_COUNT; ++rule)
        CHECK(flags_seen[rule].size() >= 2, "rule %d was seen with %zu combinations of flags", rule,
              flags_seen[rule].size());
    for (twin *p : problems)
        delete p;
}

/* Adam through every case on every shape with every kind of sum. */
void shapes()
{
    const std::vector<setting> settings = all_settings();
    for (const setting &s : settings) {
        if (s.name != "adamw 1" && s.name != "lion 1")
            continue;
        for (int shape = 0; shape < n_shapes; ++shape) {
            twin problem(shape_of(shape), 77);
            for (int c = 0; c < n_cases; ++c)
                for (size_t k = (size_t)c % 3; k < sizeof sums / sizeof *sums; k += 3) {
                    problem.fill((uint64_t)c);
                    problem.set_rule(s.row, s.hyper, 4, {0.03, 0.015});
                    run_case(&problem, cases[c], sums[k], s.name + ", shape " + std::to_string(shape));
                }
        }
    }
}

/* Pass 1: the Gram matrix, the largest elements, the first bad one. */
void first_pass()
{
    for (int shape = 0; shape < n_shapes; ++shape) {
        twin problem(shape_of(shape), 5);
        const int m = problem.m;
        bool all_f64 = true;
        for (int64_t t = 0; t < problem.n_tensors; ++t)
            all_f64 = all_f64 && problem.layout.dtype[t] == SUT_DTYPE_F64;
        std::vector<double> cpu((size_t)(m * m)), gpu((size_t)(m * m));
        for (int kind = 0; kind < 3; ++kind) {
            const double *const scale = kind == 2 ? problem.scale.data() : nullptr;
            const sut_rows host = {problem.host_rows.data(), m, scale}, device = {problem.device_rows.data(), m, scale};
            (void)problem.ctx->ops->gram(problem.ctx, &problem.layout, &host, kind > 0, cpu.data());
            CHECK(problem.gpu->ops->gram(problem.gpu, &problem.gpu_layout, &device, kind > 0, gpu.data()) == SUT_OK,
                  "%s", sut_context_last_error(problem.gpu));
            for (int i = 0; i < m; ++i)
                for (int j = 0; j < m; ++j) {
                    const double size = std::sqrt(cpu[(size_t)(i * m + i)] * cpu[(size_t)(j * m + j)]);
                    const double allowed = size * (kind > 0 || all_f64 ? f64_tolerance : f32_tolerance);
                    CHECK(std::fabs(cpu[(size_t)(i * m + j)] - gpu[(size_t)(i * m + j)]) <= allowed,
                          "shape %d, kind %d: K[%d][%d] = %.17g, the CPU's %.17g", shape, kind, i, j,
                          gpu[(size_t)(i * m + j)], cpu[(size_t)(i * m + j)]);
                }
        }
        const sut_rows host = {problem.host_rows.data(), m, nullptr}, device = {problem.device_rows.data(), m, nullptr};
        (void)problem.ctx->ops->row_max(problem.ctx, &problem.layout, &host, cpu.data());
        for (uint64_t order = 0; order < 4; ++order) {
            exec::seed(order);
            CHECK(problem.gpu->ops->row_max(problem.gpu, &problem.gpu_layout, &device, gpu.data()) == SUT_OK, "%s",
                  sut_context_last_error(problem.gpu));
            for (int i = 0; i < m; ++i)
                CHECK(cpu[(size_t)i] == gpu[(size_t)i], "shape %d: row %d: %.17g, the CPU's %.17g", shape, i,
                      gpu[(size_t)i], cpu[(size_t)i]);
        }
    }
}

/* The most losses: their sums take the most shared memory that a block can be asked for. */
void most_losses()
{
    const std::vector<setting> settings = all_settings();
    for (const sut_dtype dtype : {SUT_DTYPE_F32, SUT_DTYPE_F64}) {
        twin_shape shape;
        shape.lengths = {70, 3};
        shape.dtypes = {dtype, dtype};
        shape.m = SUT_MAX_LOSSES;
        twin problem(shape, 3);
        for (const pass_case &c : cases)
            if (c.sums) {
                problem.fill(4);
                problem.set_rule(settings.back().row, settings.back().hyper, 2, {0.01});
                run_case(&problem, c, sums[2], "most losses");
            }
    }
}

/* R^T R of a triangle of `cols` columns. */
std::vector<double> square_of(const std::vector<double> &R, int cols)
{
    std::vector<double> K((size_t)(cols * cols), 0);
    for (int i = 0; i < cols; ++i)
        for (int j = 0; j < cols; ++j)
            for (int r = 0; r <= (i < j ? i : j); ++r)
                K[(size_t)(i * cols + j)] += R[(size_t)(r * cols + i)] * R[(size_t)(r * cols + j)];
    return K;
}

/* The triangle of a step: [M^-1/2 G^T, M^1/2 p], of the proposal and of an update. */
void triangles()
{
    const std::vector<setting> settings = all_settings();
    for (int shape = 0; shape < 3 + n_shapes; ++shape) {
        twin_shape s = shape_of(shape % n_shapes);
        if (shape >= n_shapes) { /* several slices, many rows */
            s = twin_shape();
            s.lengths = {5000, 40, 2000};
            s.dtypes = {SUT_DTYPE_F32, SUT_DTYPE_F64, SUT_DTYPE_F32};
            s.m = shape == n_shapes ? 2 : shape == n_shapes + 1 ? 9 : SUT_MAX_LOSSES;
            if (s.m == SUT_MAX_LOSSES)
                s.lengths = {1100, 40, 30};
        }
        twin problem(s, 5);
        const int m = problem.m, cols = m + 1;
        for (const sut_pass_kind kind : {SUT_PASS_TERMS, SUT_PASS_MEASURE}) {
            std::vector<double> R[2], K[2], scale = problem.scale;
            scale.resize((size_t)cols, 0.5);
            problem.fill(6);
            problem.set_rule(settings.back().row, settings.back().hyper, 2, {0.01, 0.02});
            for (int device = 0; device < 2; ++device) {
                R[device].assign((size_t)(cols * cols), 0);
                sut_step_pass pass = problem.base(device != 0);
                pass.kind = kind;
                pass.update = SUT_UPDATE_NATURAL;
                pass.careful = pass.exact_sum = true;
                pass.correction = kind == SUT_PASS_MEASURE ? problem.correction.data() : nullptr;
                pass.factor = R[device].data();
                pass.factor_scale = scale.data();
                sut_context *const ctx = device ? problem.gpu : problem.ctx;
                CHECK(ctx->ops->step(ctx, &pass) == SUT_OK, "%s", sut_context_last_error(ctx));
                K[device] = square_of(R[device], cols);
            }
            for (int i = 0; i < cols; ++i)
                for (int j = 0; j < cols; ++j) {
                    const double size = std::sqrt(K[0][(size_t)(i * cols + i)] * K[0][(size_t)(j * cols + j)]);
                    const double x = K[0][(size_t)(i * cols + j)], y = K[1][(size_t)(i * cols + j)];
                    CHECK(std::fabs(x - y) <= 1e-12 * size,
                          "shape %d, kind %d: product %d, %d is %.17g, the CPU's %.17g", shape, (int)kind, i, j, y, x);
                }
            CHECK(K[0][0] > 0, "the triangle is empty");
        }
    }
}

void bad_elements()
{
    twin_shape shape;
    shape.lengths = {3000};
    shape.dtypes = {SUT_DTYPE_F32};
    shape.m = 1;
    twin problem(shape, 1);
    sut_context *const gpu = problem.gpu;
    for (const sut_dtype dtype : {SUT_DTYPE_F32, SUT_DTYPE_F64, SUT_DTYPE_BF16, SUT_DTYPE_F16}) {
        const int64_t n = 2500;
        twin_array x(dtype, n, sut_dtype_size(dtype));
        for (int64_t k = 0; k < n; ++k)
            x.set(k, (double)k * 0.5);
        int64_t index = 0;
        for (const int64_t bad : {(int64_t)-1, n - 1, (int64_t)1777, (int64_t)1024, (int64_t)0}) {
            if (bad >= 0)
                x.set(bad, bad % 2 ? NAN : -INFINITY);
            x.upload();
            CHECK(gpu->ops->find_nonfinite(gpu, x.device(), n, dtype, &index) == SUT_OK, "%s",
                  sut_context_last_error(gpu));
            CHECK(index == bad, "%s: %lld instead of %lld", sut_dtype_name(dtype), (long long)index, (long long)bad);
        }
    }
    /* The sums are not finite where a gradient is not, and the row says NaN. */
    twin_array row(SUT_DTYPE_F32, 3000, 0);
    for (int64_t k = 0; k < 3000; ++k)
        row.set(k, k == 2222 ? NAN : 1.0);
    row.upload();
    const void *const data[1] = {row.device()};
    const sut_rows rows = {data, 1, nullptr};
    double K = 0, largest = 0;
    CHECK(gpu->ops->gram(gpu, &problem.gpu_layout, &rows, false, &K) == SUT_OK && std::isnan(K), "K = %g", K);
    CHECK(gpu->ops->row_max(gpu, &problem.gpu_layout, &rows, &largest) == SUT_OK && std::isnan(largest), "%g", largest);
}

/* The same bits in every order of threads and blocks, over enough chunks for several slices and for two chunk sizes. */
void determinism()
{
    const std::vector<setting> settings = all_settings();
    twin_shape shape;
    shape.dtypes = {SUT_DTYPE_F32, SUT_DTYPE_F32, SUT_DTYPE_F64};
    for (const int m : {3, 6}) {
        /* With few rows more slices than a warp has lanes. */
        shape.lengths = {m == 3 ? 34000 : 5000, 33, 9001};
        shape.m = m;
        twin problem(shape, 3);
        std::vector<double> first_K, first_sums;
        for (uint64_t seed = 1; seed <= 4; ++seed) {
            exec::seed(seed);
            problem.fill(9);
            problem.set_rule(settings.back().row, settings.back().hyper, 2, {0.01});
            std::vector<double> K((size_t)(m * m));
            const sut_rows rows = {problem.device_rows.data(), m, nullptr};
            CHECK(problem.gpu->ops->gram(problem.gpu, &problem.gpu_layout, &rows, false, K.data()) == SUT_OK, "%s",
                  sut_context_last_error(problem.gpu));
            run_case(&problem, cases[3], sums[0], "determinism");
            if (seed == 1) {
                first_K = K;
                first_sums = problem.gpu_sums;
            }
            CHECK(memcmp(K.data(), first_K.data(), K.size() * sizeof(double)) == 0, "seed %d: another K", (int)seed);
            CHECK(memcmp(problem.gpu_sums.data(), first_sums.data(), first_sums.size() * sizeof(double)) == 0,
                  "seed %d: other sums", (int)seed);
        }
    }
}

/* cuSOLVER's handle: on the context's stream, in memory of the context's allocator. A v = value v for each pair. */
void eigenvalues()
{
    const int n = 12;
    sut_context *const gpu = open_gpu();
    random_numbers r(5);
    std::vector<double> A((size_t)(n * n));
    for (int i = 0; i < n; ++i)
        for (int j = 0; j <= i; ++j)
            A[(size_t)(i * n + j)] = A[(size_t)(j * n + i)] = r.normal();
    twin_array V(SUT_DTYPE_F64, n * n, 0), values(SUT_DTYPE_F64, n, 0);
    for (int k = 0; k < n * n; ++k)
        V.set(k, A[(size_t)k]);
    V.upload();
    for (int call = 0; call < 2; ++call) { /* the second finds the handle */
        const sut_status status =
            gpu->ops->eigen(gpu, n, static_cast<double *>(V.device()), static_cast<double *>(values.device()));
        if (status == SUT_ERROR_BACKEND && strstr(sut_context_last_error(gpu), "is not installed")) {
            std::printf("passes: eigenvalues are left out: %s\n", sut_context_last_error(gpu));
            sut_context_destroy(gpu);
            return;
        }
        CHECK(status == SUT_OK, "%s", sut_context_last_error(gpu));
        if (call == 0) {
            std::vector<double> v((size_t)(n * n)), lambda((size_t)n);
            CHECK(gpu->ops->download(gpu, v.data(), V.device(), v.size() * sizeof(double)) == SUT_OK &&
                      gpu->ops->download(gpu, lambda.data(), values.device(), lambda.size() * sizeof(double)) == SUT_OK,
                  "%s", sut_context_last_error(gpu));
            for (int c = 0; c < n; ++c)
                for (int i = 0; i < n; ++i) {
                    double y = 0;
                    for (int j = 0; j < n; ++j)
                        y += A[(size_t)(i * n + j)] * v[(size_t)(c * n + j)];
                    CHECK(std::fabs(y - lambda[(size_t)c] * v[(size_t)(c * n + i)]) < 1e-13 &&
                              (c == 0 || lambda[(size_t)c] >= lambda[(size_t)c - 1]),
                          "eigenvalue %d: %.17g", c, lambda[(size_t)c]);
                }
        }
        V.upload();
    }
    CHECK(gpu->ops->eigen(gpu, 0, static_cast<double *>(V.device()), static_cast<double *>(values.device())) ==
              SUT_ERROR_BACKEND,
          "a matrix without rows was taken");
    CHECK(std::strstr(sut_context_last_error(gpu), "cuSOLVER"), "%s", sut_context_last_error(gpu));
    sut_context_destroy(gpu);
}

/* A pass over one type is one launch and one copy of its tables; one whose sums are not asked for waits for nothing. */
void launches()
{
    const std::vector<setting> settings = all_settings();
    for (int shape : {0, 3}) {
        twin problem(shape_of(shape), 1);
        const long types = shape == 3 ? 2 : 1;
        for (const pass_case &c : cases) {
            problem.set_rule(settings[0].row, settings[0].hyper, 2, {0.1});
            sut_step_pass pass = problem.base(true);
            pass.kind = c.kind;
            pass.update = c.update;
            pass.want_sums = c.sums;
            pass.want_metric = c.metric;
            CUDA(cudaDeviceSynchronize());
            exec::count = {};
            CHECK(problem.gpu->ops->step(problem.gpu, &pass) == SUT_OK, "%s", sut_context_last_error(problem.gpu));
            const long waits = exec::count.synchronisations - 1; /* for the tables of the pass before, long read */
            CHECK(!exec::counts || waits == (c.sums ? 1 : 0), "%s: %ld waits", c.name, waits);
            CUDA(cudaDeviceSynchronize());
            CHECK(!exec::counts || exec::count.launches == types, "%s: %ld launches", c.name, exec::count.launches);
            CHECK(!exec::counts || exec::count.copies == (c.sums ? 2 : 1), "%s: %ld copies", c.name,
                  exec::count.copies);
        }
    }
}

} // namespace

/* "short": without what would take minutes under a sanitizer. */
int main(int argc, char **argv)
{
    exec::watch_every = 16; /* locking takes longer than a small kernel */
    first_pass();
    if (argc < 2 || strcmp(argv[1], "short") != 0) {
        most_losses();
        triangles();
        determinism();
    }
    bad_elements();
    eigenvalues();
    launches();
    rules();
    shapes();
    CHECK(exec::allocations() == 0, "%d allocations left", exec::allocations());
    return check::finish("passes");
}
