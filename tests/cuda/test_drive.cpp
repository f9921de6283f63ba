/*
 * Whole steps that the device takes by itself, against the CPU's: parameters, state and reports of every method, for few and
 * many losses, both types in one layout, few elements (one launch) and many (a launch to a pass); steps that are refused; rates
 * that change; state files from one to the other; and a graph.
 */
#include "tests/cuda/check.h"
#include "tests/cuda/random.h"

#include "suture/suture.h"

#include <cuda_runtime.h>
#ifdef SUT_EXEC
#include <exec.h>
#endif

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace
{

struct shape {
    int64_t count;
    sut_dtype dtype;
};

size_t size_of(const shape &s)
{
    return (size_t)s.count * sut_dtype_size(s.dtype);
}

/* An optimizer on one back end, with memory of its own for parameters and gradients. */
class side
{
  public:
    side(bool device, const std::vector<shape> &shapes, const sut_optimizer_config &config, void *stream)
        : device_(device), shapes_(shapes), m_(config.n_losses)
    {
        sut_context_config c;
        sut_context_config_init(&c);
        c.backend = device ? SUT_BACKEND_CUDA : SUT_BACKEND_CPU;
        c.n_threads = 1;
        c.stream = device ? stream : nullptr;
        c.seed = 5;
        c.log = [](void *, sut_log_level, const char *text) { std::printf("%s\n", text); };
        CHECK(sut_context_create(&ctx, &c) == SUT_OK, "no context");
        for (const shape &s : shapes_)
            theta.push_back(make(size_of(s)));
        for (int i = 0; i < m_; ++i)
            for (const shape &s : shapes_)
                rows.push_back(make(size_of(s)));
        config_ = config;
    }
    ~side()
    {
        sut_optimizer_destroy(opt);
        for (void *p : theta)
            drop(p);
        for (const void *p : rows)
            drop(const_cast<void *>(p));
        sut_context_destroy(ctx);
    }
    side(const side &) = delete;
    side &operator=(const side &) = delete;

    void create()
    {
        std::vector<sut_tensor> tensors(shapes_.size());
        names_.clear();
        for (size_t k = 0; k < shapes_.size(); ++k)
            names_.push_back("tensor " + std::to_string(k));
        for (size_t k = 0; k < shapes_.size(); ++k) {
            std::memset(&tensors[k], 0, sizeof tensors[k]);
            tensors[k].data = theta[k];
            tensors[k].dtype = shapes_[k].dtype;
            tensors[k].n_dims = 1;
            tensors[k].shape[0] = shapes_[k].count;
            tensors[k].name = names_[k].c_str();
            tensors[k].group = config_.groups ? (int)k % config_.n_groups : 0;
        }
        config_.tensors = tensors.data();
        config_.n_tensors = (int64_t)tensors.size();
        const sut_status status = sut_optimizer_create(&opt, ctx, &config_);
        CHECK(status == SUT_OK, "%s", sut_context_last_error(ctx));
    }
    void put(void *to, const void *from, size_t size)
    {
        if (size == 0)
            return;
        if (device_)
            CUDA(cudaMemcpy(to, from, size, cudaMemcpyHostToDevice));
        else
            std::memcpy(to, from, size);
    }
    std::vector<unsigned char> get(const void *from, size_t size)
    {
        std::vector<unsigned char> r(size);
        if (size == 0)
            return r;
        if (device_)
            CUDA(cudaMemcpy(r.data(), from, size, cudaMemcpyDeviceToHost));
        else
            std::memcpy(r.data(), from, size);
        return r;
    }

    sut_context *ctx = nullptr;
    sut_optimizer *opt = nullptr;
    std::vector<void *> theta;
    std::vector<const void *> rows;

  private:
    void *make(size_t size)
    {
        void *p = nullptr;
        if (device_)
            CUDA(cudaMalloc(&p, size ? size : 1));
        else
            p = std::malloc(size ? size : 1);
        return p;
    }
    void drop(void *p)
    {
        if (device_)
            CUDA(cudaFree(p));
        else
            std::free(p);
    }
    bool device_;
    std::vector<shape> shapes_;
    std::vector<std::string> names_;
    int m_;
    sut_optimizer_config config_;
};

/* Numbers of a type, as bytes. */
std::vector<unsigned char> numbers(const std::vector<double> &x, sut_dtype dtype)
{
    std::vector<unsigned char> r(x.size() * sut_dtype_size(dtype));
    for (size_t k = 0; k < x.size(); ++k) {
        const float f = (float)x[k];
        uint32_t bits;
        std::memcpy(&bits, &f, 4);
        const uint16_t bf16 = (uint16_t)(bits >> 16);
        if (dtype == SUT_DTYPE_F64)
            std::memcpy(&r[8 * k], &x[k], 8);
        else if (dtype == SUT_DTYPE_F32)
            std::memcpy(&r[4 * k], &f, 4);
        else
            std::memcpy(&r[2 * k], &bf16, 2);
    }
    return r;
}

double value(const std::vector<unsigned char> &x, sut_dtype dtype, size_t k)
{
    if (dtype == SUT_DTYPE_F64) {
        double d;
        std::memcpy(&d, &x[8 * k], 8);
        return d;
    }
    uint32_t bits = 0;
    if (dtype == SUT_DTYPE_F32) {
        std::memcpy(&bits, &x[4 * k], 4);
    } else {
        uint16_t half;
        std::memcpy(&half, &x[2 * k], 2);
        bits = (uint32_t)half << 16;
    }
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
}

/* Both sides of a problem. */
class twins
{
  public:
    twins(const std::vector<shape> &shapes, const sut_optimizer_config &config, void *stream = nullptr)
        : shapes_(shapes), m_(config.n_losses), cpu(false, shapes, config, nullptr), gpu(true, shapes, config, stream)
    {
        for (size_t k = 0; k < shapes_.size(); ++k) {
            std::vector<double> x((size_t)shapes_[k].count);
            for (double &v : x)
                v = draw();
            const std::vector<unsigned char> bytes = numbers(x, shapes_[k].dtype);
            cpu.put(cpu.theta[k], bytes.data(), bytes.size());
            gpu.put(gpu.theta[k], bytes.data(), bytes.size());
        }
        cpu.create();
        gpu.create();
    }
    double draw()
    {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return (double)(state_ >> 11) * 0x1p-52 - 1;
    }
    /* Rows that share a part and oppose each other in another; `opposed`: the last is the negative of the first, nearly. */
    void draw_rows(double opposed = 0)
    {
        for (size_t k = 0; k < shapes_.size(); ++k) {
            const size_t n = (size_t)shapes_[k].count;
            std::vector<std::vector<double>> g((size_t)m_, std::vector<double>(n));
            for (size_t e = 0; e < n; ++e) {
                const double shared = draw();
                for (int i = 0; i < m_; ++i)
                    g[(size_t)i][e] = (i % 2 ? -0.7 : 1.0) * shared + 0.6 * draw();
                if (opposed > 0)
                    g[(size_t)m_ - 1][e] = -g[0][e] + opposed * draw();
            }
            for (int i = 0; i < m_; ++i)
                put_row(i, k, g[(size_t)i]);
        }
    }
    void put_row(int i, size_t k, const std::vector<double> &x)
    {
        const std::vector<unsigned char> bytes = numbers(x, shapes_[k].dtype);
        const size_t at = (size_t)i * shapes_.size() + k;
        cpu.put(const_cast<void *>(cpu.rows[at]), bytes.data(), bytes.size());
        gpu.put(const_cast<void *>(gpu.rows[at]), bytes.data(), bytes.size());
    }
    /* The largest difference of parameters, beside how far they moved: relative to `scale`. */
    double difference()
    {
        double worst = 0;
        for (size_t k = 0; k < shapes_.size(); ++k) {
            const auto a = cpu.get(cpu.theta[k], size_of(shapes_[k])), b = gpu.get(gpu.theta[k], size_of(shapes_[k]));
            for (size_t e = 0; e < (size_t)shapes_[k].count; ++e)
                worst = std::fmax(worst, std::fabs(value(a, shapes_[k].dtype, e) - value(b, shapes_[k].dtype, e)));
        }
        return worst;
    }

  private:
    std::vector<shape> shapes_;
    int m_;
    uint64_t state_ = 77;

  public:
    side cpu, gpu;
};

sut_optimizer_config config_of(sut_optimizer_method method, int m, sut_surgery_method surgery, bool align)
{
    sut_optimizer_config c;
    sut_optimizer_config_init(&c, method);
    c.n_losses = m;
    c.hyper.lr = 1e-2;
    c.surgery.method = surgery;
    c.align = align ? SUT_ALIGN_GUA : SUT_ALIGN_NONE;
    if (align && (method == SUT_OPTIMIZER_SGD || method == SUT_OPTIMIZER_RMSPROP))
        c.hyper.momentum = 0.9;
    return c;
}

bool near(double a, double b, double tolerance)
{
    return std::fabs(a - b) <= tolerance * (1 + std::fabs(b)) || (std::isnan(a) && std::isnan(b));
}

void compare_reports(const sut_report &a, const sut_report &b, int m, double tolerance, const char *what)
{
    CHECK(a.step == b.step && a.n_losses == b.n_losses, "%s: step %lld against %lld", what, (long long)a.step,
          (long long)b.step);
    CHECK(a.projected == b.projected && a.realigned == b.realigned && a.pareto == b.pareto && a.moved == b.moved,
          "%s: projected %d %d, realigned %d %d, pareto %d %d", what, a.projected, b.projected, a.realigned,
          b.realigned, a.pareto, b.pareto);
    CHECK(near(a.norm_u, b.norm_u, tolerance) && near(a.norm_p, b.norm_p, tolerance) && near(a.lr, b.lr, 1e-12),
          "%s: |u| %g %g, |p| %g %g, lr %g %g", what, a.norm_u, b.norm_u, a.norm_p, b.norm_p, a.lr, b.lr);
    for (int i = 0; i < m; ++i)
        CHECK(near(a.weights[i], b.weights[i], tolerance) && near(a.cos_u[i], b.cos_u[i], tolerance) &&
                  near(a.cos_p[i], b.cos_p[i], tolerance),
              "%s: loss %d: w %g %g, cos u %g %g, cos p %g %g", what, i, a.weights[i], b.weights[i], a.cos_u[i],
              b.cos_u[i], a.cos_p[i], b.cos_p[i]);
}

void run_steps(const std::vector<shape> &shapes, const sut_optimizer_config &config, int steps, double tolerance,
               double opposed, const char *what)
{
    twins t(shapes, config);
    if (!t.cpu.opt || !t.gpu.opt)
        return;
    for (int step = 0; step < steps; ++step) {
        t.draw_rows(opposed);
        sut_report a, b;
        sut_report_init(&a);
        sut_report_init(&b);
        const bool report = step % 2 == 0;
        const sut_status x = sut_optimizer_step(t.cpu.opt, t.cpu.rows.data(), nullptr, report ? &a : nullptr);
        const sut_status y = sut_optimizer_step(t.gpu.opt, t.gpu.rows.data(), nullptr, report ? &b : nullptr);
        CHECK(x == y, "%s: %d against %d: %s; %s", what, (int)x, (int)y, sut_context_last_error(t.cpu.ctx),
              sut_context_last_error(t.gpu.ctx));
        if (x != SUT_OK || y != SUT_OK)
            return;
        if (report)
            compare_reports(b, a, config.n_losses, 10 * tolerance, what);
        for (int i = 0; report && config.align == SUT_ALIGN_GUA && i < config.n_losses; ++i)
            CHECK(b.cos_p[i] > -3e-7, "%s: loss %d is hurt, cosine %g", what, i, b.cos_p[i]);
    }
    CHECK(sut_optimizer_synchronize(t.gpu.opt) == SUT_OK, "%s: %s", what, sut_context_last_error(t.gpu.ctx));
    const double difference = t.difference();
    CHECK(difference <= tolerance, "%s: parameters differ by %g", what, difference);
    CHECK(sut_optimizer_steps(t.gpu.opt) == steps, "%s: %lld steps", what, (long long)sut_optimizer_steps(t.gpu.opt));
}

/* ---- the tests ---- */

void every_method()
{
    const std::vector<shape> shapes = {
        {37, SUT_DTYPE_F32}, {1500, SUT_DTYPE_F32}, {0, SUT_DTYPE_F32}, {9, SUT_DTYPE_BF16}};
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int align = 0; align < 2; ++align) {
            char what[80];
            std::snprintf(what, sizeof what, "%s, align %d", sut_optimizer_method_name((sut_optimizer_method)method),
                          align);
            run_steps(shapes, config_of((sut_optimizer_method)method, 2, SUT_SURGERY_CONFIG, align), 4, 3e-5, 0, what);
        }
}

void every_surgery()
{
    const std::vector<shape> shapes = {{600, SUT_DTYPE_F64}, {40, SUT_DTYPE_F64}};
    for (int method = 0; method < SUT_SURGERY_COUNT; ++method)
        for (int m : {1, 2, 3, 6}) {
            char what[80];
            std::snprintf(what, sizeof what, "%s, m = %d", sut_surgery_method_name((sut_surgery_method)method), m);
            sut_optimizer_config c = config_of(SUT_OPTIMIZER_ADAM, m, (sut_surgery_method)method, m > 1);
            std::vector<double> preference((size_t)m, 0.5);
            preference[0] = 1;
            if (method == SUT_SURGERY_FIXED)
                c.surgery.preference = preference.data();
            run_steps(shapes, c, 3, 1e-11, 0, what);
        }
}

void both_types_and_sizes()
{
    for (int m : {1, 2, 5}) {
        sut_optimizer_config c = config_of(SUT_OPTIMIZER_ADAMW, m, SUT_SURGERY_CONFIG, m > 1);
        run_steps({{3000, SUT_DTYPE_F32}, {2000, SUT_DTYPE_F64}, {70, SUT_DTYPE_BF16}}, c, 3, 3e-5, 0, "both types");
        if (m > 1) {
            c.metric = SUT_METRIC_EUCLIDEAN;
            run_steps({{3000, SUT_DTYPE_F32}, {2000, SUT_DTYPE_F64}}, c, 3, 3e-5, 0, "Euclidean");
            c.strict = 1;
            run_steps({{3000, SUT_DTYPE_F32}}, c, 3, 3e-6, 0, "strict");
        }
    }
    sut_optimizer_config c = config_of(SUT_OPTIMIZER_ADAM, 1, SUT_SURGERY_SUM, false);
    c.check = SUT_CHECK_NONE;
    run_steps({{500, SUT_DTYPE_F32}}, c, 3, 1e-6, 0, "one pass");
    c.clip_norm = 0.1;
    run_steps({{500, SUT_DTYPE_F32}}, c, 3, 1e-6, 0, "clipped");
    c.check = SUT_CHECK_ALL;
    c.maximize = 1;
    run_steps({{500, SUT_DTYPE_F64}}, c, 3, 1e-12, 0, "maximize");
}

/* More than 2^20 elements: a launch to a pass. */
void many_elements()
{
    const int64_t n = ((int64_t)1 << 20) + 5000;
    for (int m : {1, 2}) {
        sut_optimizer_config c = config_of(SUT_OPTIMIZER_ADAM, m, SUT_SURGERY_CONFIG, m > 1);
        if (m == 1)
            c.check = SUT_CHECK_NONE;
        run_steps({{n, SUT_DTYPE_F32}}, c, 2, 1e-4, 0, "many elements");
    }
    sut_optimizer_config c = config_of(SUT_OPTIMIZER_ADAM, 2, SUT_SURGERY_UPGRAD, true);
    run_steps({{n, SUT_DTYPE_F32}, {3000, SUT_DTYPE_F64}}, c, 2, 1e-4, 0, "many elements, both types");
}

/* Sums again in double, multipliers refined, the triangle: passes that the device asks of itself. */
void nearly_opposed()
{
    for (double angle : {1e-3, 1e-5, 1e-9})
        for (int m : {2, 3, 6}) {
            char what[80];
            std::snprintf(what, sizeof what, "opposed to %g, m = %d", angle, m);
            sut_optimizer_config c = config_of(SUT_OPTIMIZER_ADAM, m, SUT_SURGERY_SUM, true);
            c.conflict_cos_tol = 0;
            /* Rows this close in f32: whether the last of them pushes too is below the rounding of the sums, and both answers
             * keep every cosine above -3e-7. */
            run_steps({{700, SUT_DTYPE_F32}}, c, 3, angle < 1e-4 ? 2e-2 : 1e-4, angle, what);
            if (angle > 1e-8)
                run_steps({{700, SUT_DTYPE_F64}}, c, 3, 1e-6, angle, what);
        }
}

void refused_steps()
{
    for (int m : {1, 2, 6}) {
        const std::vector<shape> shapes = {{37, SUT_DTYPE_F32}, {1100, SUT_DTYPE_F32}};
        twins t(shapes, config_of(SUT_OPTIMIZER_ADAM, m, SUT_SURGERY_CONFIG, m > 1));
        t.draw_rows();
        for (side *s : {&t.cpu, &t.gpu})
            CHECK(sut_optimizer_step(s->opt, s->rows.data(), nullptr, nullptr) == SUT_OK, "%s",
                  sut_context_last_error(s->ctx));
        std::vector<double> bad(1100, 0.5);
        bad[1023] = bad[1090] = std::numeric_limits<double>::quiet_NaN();
        t.put_row(m - 1, 1, bad);
        const auto before = t.gpu.get(t.gpu.theta[1], size_of(shapes[1]));
        sut_report r;
        sut_report_init(&r);
        std::string text[2];
        int at = 0;
        for (side *s : {&t.cpu, &t.gpu}) {
            CHECK(sut_optimizer_step(s->opt, s->rows.data(), nullptr, &r) == SUT_ERROR_NOT_FINITE, "NaN was taken");
            text[at++] = sut_context_last_error(s->ctx);
        }
        CHECK(text[0] == text[1], "\"%s\" against \"%s\"", text[0].c_str(), text[1].c_str());
        CHECK(before == t.gpu.get(t.gpu.theta[1], size_of(shapes[1])), "a refused step changed parameters");
        CHECK(sut_optimizer_steps(t.gpu.opt) == 1 && sut_optimizer_skipped_steps(t.gpu.opt) == 1, "counts %lld, %lld",
              (long long)sut_optimizer_steps(t.gpu.opt), (long long)sut_optimizer_skipped_steps(t.gpu.opt));
        /* Without a report nobody waits: the step after it is taken, and the failure is told once. */
        CHECK(sut_optimizer_step(t.gpu.opt, t.gpu.rows.data(), nullptr, nullptr) == SUT_OK, "%s",
              sut_context_last_error(t.gpu.ctx));
        t.draw_rows();
        CHECK(sut_optimizer_step(t.gpu.opt, t.gpu.rows.data(), nullptr, nullptr) == SUT_OK, "%s",
              sut_context_last_error(t.gpu.ctx));
        CHECK(sut_optimizer_step(t.cpu.opt, t.cpu.rows.data(), nullptr, nullptr) == SUT_OK, "%s",
              sut_context_last_error(t.cpu.ctx));
        CHECK(sut_optimizer_synchronize(t.gpu.opt) == SUT_ERROR_NOT_FINITE, "the failure was lost");
        CHECK(text[0] == sut_context_last_error(t.gpu.ctx), "\"%s\"", sut_context_last_error(t.gpu.ctx));
        CHECK(sut_optimizer_synchronize(t.gpu.opt) == SUT_OK, "the failure was told twice");
        CHECK(sut_optimizer_steps(t.gpu.opt) == 2 && sut_optimizer_skipped_steps(t.gpu.opt) == 2, "counts %lld, %lld",
              (long long)sut_optimizer_steps(t.gpu.opt), (long long)sut_optimizer_skipped_steps(t.gpu.opt));
        CHECK(t.difference() < 1e-5, "parameters differ by %g", t.difference());
    }
    /* A bad parameter, and a loss. */
    sut_optimizer_config c = config_of(SUT_OPTIMIZER_ADAM, 2, SUT_SURGERY_SUM, true);
    c.check = SUT_CHECK_ALL;
    twins t({{37, SUT_DTYPE_F32}, {1100, SUT_DTYPE_F64}}, c);
    t.draw_rows();
    const double nan = std::numeric_limits<double>::quiet_NaN(), losses[2] = {1, nan};
    std::string text[2][2];
    int at = 0;
    for (side *s : {&t.cpu, &t.gpu}) {
        sut_report r;
        sut_report_init(&r);
        CHECK(sut_optimizer_step(s->opt, s->rows.data(), losses, &r) == SUT_ERROR_NOT_FINITE, "a loss that is NaN");
        text[at][0] = sut_context_last_error(s->ctx);
        s->put((char *)s->theta[1] + 8 * 1050, &nan, 8);
        CHECK(sut_optimizer_step(s->opt, s->rows.data(), nullptr, &r) == SUT_ERROR_NOT_FINITE,
              "a parameter that is NaN");
        text[at++][1] = sut_context_last_error(s->ctx);
    }
    for (int k = 0; k < 2; ++k)
        CHECK(text[0][k] == text[1][k], "\"%s\" against \"%s\"", text[0][k].c_str(), text[1][k].c_str());
}

/* Rates by hand and by schedule, absent gradients, groups. */
void what_changes_between_steps()
{
    sut_optimizer_config c = config_of(SUT_OPTIMIZER_ADAM, 2, SUT_SURGERY_CONFIG, true);
    sut_hyper groups[2] = {c.hyper, c.hyper};
    groups[1].lr = 3e-3;
    groups[1].beta1 = 0.8;
    c.groups = groups;
    c.n_groups = 2;
    twins t({{300, SUT_DTYPE_F32}, {1200, SUT_DTYPE_F32}, {50, SUT_DTYPE_F32}}, c);
    for (int step = 0; step < 8; ++step) {
        t.draw_rows();
        for (side *s : {&t.cpu, &t.gpu}) {
            std::vector<const void *> rows = s->rows;
            if (step % 3 == 1)
                rows[1] = rows[4] = nullptr; /* a tensor that takes no part */
            if (step % 3 == 2)
                rows[0] = nullptr; /* in one loss */
            if (step == 3)
                CHECK(sut_optimizer_set_lr(s->opt, 0, 2e-2) == SUT_OK, "%s", sut_context_last_error(s->ctx));
            if (step == 5) {
                sut_schedule schedule;
                sut_schedule_init(&schedule, SUT_SCHEDULE_COSINE);
                schedule.peak = 2e-2;
                schedule.total = 20;
                schedule.warmup = 2;
                CHECK(sut_optimizer_set_schedule(s->opt, &schedule) == SUT_OK, "%s", sut_context_last_error(s->ctx));
            }
            CHECK(sut_optimizer_step(s->opt, rows.data(), nullptr, nullptr) == SUT_OK, "%s",
                  sut_context_last_error(s->ctx));
        }
    }
    CHECK(t.difference() < 3e-5, "parameters differ by %g", t.difference());
    double a, b;
    CHECK(sut_optimizer_get_lr(t.cpu.opt, 1, &a) == SUT_OK && sut_optimizer_get_lr(t.gpu.opt, 1, &b) == SUT_OK &&
              a == b,
          "rates %g, %g", a, b);
    for (int64_t k = 0; k < 3; ++k)
        CHECK(sut_optimizer_tensor_steps(t.cpu.opt, k) == sut_optimizer_tensor_steps(t.gpu.opt, k), "tensor %lld",
              (long long)k);
}

/* Preferences are the caller's memory, and may change. */
void preferences()
{
    double preference[2] = {1, 0};
    int order[4] = {0, 1, 1, 0};
    for (const sut_surgery_method method : {SUT_SURGERY_FIXED, SUT_SURGERY_PCGRAD}) {
        sut_optimizer_config c = config_of(SUT_OPTIMIZER_SGD, 2, method, false);
        if (method == SUT_SURGERY_FIXED)
            c.surgery.preference = preference;
        else
            c.surgery.order = order;
        twins t({{300, SUT_DTYPE_F64}}, c);
        for (int step = 0; step < 4; ++step) {
            t.draw_rows();
            preference[step % 2] = step;
            std::swap(order[0], order[1]);
            for (side *s : {&t.cpu, &t.gpu})
                CHECK(sut_optimizer_step(s->opt, s->rows.data(), nullptr, nullptr) == SUT_OK, "%s",
                      sut_context_last_error(s->ctx));
            CHECK(t.difference() < 1e-12, "%s, step %d: parameters differ by %g", sut_surgery_method_name(method), step,
                  t.difference());
        }
    }
}

/* NAdam's product is on the device; who asks sees it, and may change it. */
void product_of_momenta()
{
    twins t({{300, SUT_DTYPE_F64}}, config_of(SUT_OPTIMIZER_NADAM, 1, SUT_SURGERY_SUM, false));
    for (int step = 0; step < 6; ++step) {
        t.draw_rows();
        double product[2];
        int at = 0;
        for (side *s : {&t.cpu, &t.gpu}) {
            CHECK(sut_optimizer_step(s->opt, s->rows.data(), nullptr, nullptr) == SUT_OK, "%s",
                  sut_context_last_error(s->ctx));
            void *data = nullptr;
            CHECK(sut_optimizer_state(s->opt, "mu_prod", 0, &data, nullptr, nullptr) == SUT_OK, "%s",
                  sut_context_last_error(s->ctx));
            product[at++] = *static_cast<double *>(data);
            if (step == 2)
                *static_cast<double *>(data) = 0.25;
        }
        CHECK(near(product[1], product[0], 1e-14), "step %d: %.17g, the CPU's %.17g", step, product[1], product[0]);
    }
    CHECK(t.difference() < 1e-12, "parameters differ by %g", t.difference());
}

/* A step says of itself alone whether it was taken; what was refused before it is told when someone waits. */
void late_refusals()
{
    twins t({{300, SUT_DTYPE_F32}}, config_of(SUT_OPTIMIZER_ADAM, 2, SUT_SURGERY_CONFIG, true));
    sut_report r;
    sut_report_init(&r);
    const auto step = [&](bool bad, bool report) {
        t.draw_rows();
        if (bad)
            t.put_row(1, 0, std::vector<double>(300, std::numeric_limits<double>::infinity()));
        return sut_optimizer_step(t.gpu.opt, t.gpu.rows.data(), nullptr, report ? &r : nullptr);
    };
    CHECK(step(true, false) == SUT_OK, "a step that nobody waits for");
    CHECK(step(false, true) == SUT_OK && r.step == 1 && r.skipped_steps == 1, "step %lld, %lld skipped: %s",
          (long long)r.step, (long long)r.skipped_steps, sut_context_last_error(t.gpu.ctx));
    CHECK(sut_optimizer_synchronize(t.gpu.opt) == SUT_ERROR_NOT_FINITE, "the refusal was lost");
    CHECK(sut_optimizer_synchronize(t.gpu.opt) == SUT_OK, "the refusal was told twice");
    CHECK(step(true, true) == SUT_ERROR_NOT_FINITE, "Inf was taken");
    CHECK(sut_optimizer_synchronize(t.gpu.opt) == SUT_OK, "the refusal was told twice");
    CHECK(step(true, false) == SUT_OK && step(true, true) == SUT_ERROR_NOT_FINITE, "Inf was taken");
    CHECK(sut_optimizer_synchronize(t.gpu.opt) == SUT_ERROR_NOT_FINITE, "the first of two refusals was lost");
    CHECK(sut_optimizer_steps(t.gpu.opt) == 1 && sut_optimizer_skipped_steps(t.gpu.opt) == 4,
          "%lld steps, %lld skipped", (long long)sut_optimizer_steps(t.gpu.opt),
          (long long)sut_optimizer_skipped_steps(t.gpu.opt));
}

/* The proposal is no number because the state is none: the parameters stay, on both sides. */
void bad_state()
{
    for (const sut_dtype dtype : {SUT_DTYPE_F32, SUT_DTYPE_F64}) {
        const shape s = {300, dtype};
        twins t({s}, config_of(SUT_OPTIMIZER_ADAM, 2, SUT_SURGERY_CONFIG, true));
        t.draw_rows();
        const std::vector<unsigned char> nan = numbers({std::numeric_limits<double>::quiet_NaN()}, dtype);
        std::string text[2];
        int at = 0;
        for (side *x : {&t.cpu, &t.gpu}) {
            void *data = nullptr;
            sut_report r;
            sut_report_init(&r);
            CHECK(sut_optimizer_state(x->opt, "m", 0, &data, nullptr, nullptr) == SUT_OK, "%s",
                  sut_context_last_error(x->ctx));
            x->put(static_cast<char *>(data) + 7 * sut_dtype_size(dtype), nan.data(), nan.size());
            const auto before = x->get(x->theta[0], size_of(s));
            CHECK(sut_optimizer_step(x->opt, x->rows.data(), nullptr, &r) == SUT_ERROR_NOT_FINITE, "NaN was taken");
            text[at++] = sut_context_last_error(x->ctx);
            CHECK(before == x->get(x->theta[0], size_of(s)), "parameters moved");
            CHECK(sut_optimizer_skipped_steps(x->opt) == 1, "%lld skipped",
                  (long long)sut_optimizer_skipped_steps(x->opt));
        }
        CHECK(text[0] == text[1] && text[0].find("the proposal of step 1") == 0, "\"%s\" against \"%s\"",
              text[0].c_str(), text[1].c_str());
    }
}

/* Fewer blocks than slices: each block takes several. */
void few_processors()
{
#ifdef SUT_EXEC
    const exec::device machine = exec::machine;
    exec::machine.processors = 1;
    exec::machine.blocks_per_processor = 2;
    for (int m : {2, 6}) {
        sut_optimizer_config c = config_of(SUT_OPTIMIZER_ADAM, m, SUT_SURGERY_SUM, true);
        c.conflict_cos_tol = 0;
        run_steps({{5000, SUT_DTYPE_F32}, {300, SUT_DTYPE_F64}}, c, 2, 1e-4, 0, "few processors");
        run_steps({{5000, SUT_DTYPE_F64}}, c, 2, 1e-6, 1e-5, "few processors, nearly opposed");
        /* Large rows, whose largest elements are looked for. */
        c.surgery.method = SUT_SURGERY_CONFIG;
        c.align = SUT_ALIGN_NONE;
        twins t({{9000, SUT_DTYPE_F64}}, c);
        for (int i = 0; i < m; ++i) {
            std::vector<double> x(9000);
            for (double &value : x)
                value = std::ldexp(t.draw(), 560 + 5 * i);
            t.put_row(i, 0, x);
        }
        sut_report a, b;
        sut_report_init(&a);
        sut_report_init(&b);
        const sut_status x = sut_optimizer_step(t.cpu.opt, t.cpu.rows.data(), nullptr, &a);
        const sut_status y = sut_optimizer_step(t.gpu.opt, t.gpu.rows.data(), nullptr, &b);
        CHECK(x == SUT_OK && y == SUT_OK, "%s; %s", sut_context_last_error(t.cpu.ctx),
              sut_context_last_error(t.gpu.ctx));
        compare_reports(b, a, m, 1e-9, "large rows");
    }
    exec::machine = machine;
#endif
}

/* A state goes from one back end to the other and back. */
void state_files()
{
    for (int from = 0; from < 2; ++from) {
        twins t({{300, SUT_DTYPE_F32}, {40, SUT_DTYPE_BF16}},
                config_of(SUT_OPTIMIZER_NADAM, 2, SUT_SURGERY_NASH, true));
        side *const a = from ? &t.gpu : &t.cpu, *const b = from ? &t.cpu : &t.gpu;
        for (int step = 0; step < 3; ++step) {
            t.draw_rows();
            CHECK(sut_optimizer_step(a->opt, a->rows.data(), nullptr, nullptr) == SUT_OK, "%s",
                  sut_context_last_error(a->ctx));
        }
        void *data = nullptr;
        size_t size = 0;
        CHECK(sut_optimizer_save_memory(a->opt, nullptr, &data, &size) == SUT_OK, "%s", sut_context_last_error(a->ctx));
        CHECK(sut_optimizer_load_memory(b->opt, data, size, nullptr) == SUT_OK, "%s", sut_context_last_error(b->ctx));
        sut_buffer_free(a->ctx, data);
        CHECK(t.difference() == 0, "loaded parameters differ by %g", t.difference());
        for (int step = 0; step < 2; ++step) {
            t.draw_rows();
            for (side *s : {a, b})
                CHECK(sut_optimizer_step(s->opt, s->rows.data(), nullptr, nullptr) == SUT_OK, "%s",
                      sut_context_last_error(s->ctx));
        }
        CHECK(t.difference() < 1e-5, "parameters differ by %g", t.difference());
        CHECK(sut_optimizer_steps(b->opt) == 5, "%lld steps", (long long)sut_optimizer_steps(b->opt));
    }
}

/* Stages are run by the host; whole steps before and after them by the device. */
void stages_between()
{
    twins t({{300, SUT_DTYPE_F32}}, config_of(SUT_OPTIMIZER_ADAM, 2, SUT_SURGERY_CONFIG, true));
    for (int step = 0; step < 6; ++step) {
        t.draw_rows();
        for (side *s : {&t.cpu, &t.gpu}) {
            if (step % 2 == 0 || s == &t.cpu) {
                CHECK(sut_optimizer_step(s->opt, s->rows.data(), nullptr, nullptr) == SUT_OK, "%s",
                      sut_context_last_error(s->ctx));
                continue;
            }
            CHECK(sut_optimizer_propose(s->opt, s->rows.data(), nullptr, nullptr, nullptr) == SUT_OK &&
                      sut_optimizer_apply(s->opt, s->rows.data(), nullptr, nullptr) == SUT_OK,
                  "%s", sut_context_last_error(s->ctx));
        }
    }
    CHECK(t.difference() < 1e-5, "parameters differ by %g", t.difference());
    CHECK(sut_optimizer_steps(t.gpu.opt) == 6, "%lld steps", (long long)sut_optimizer_steps(t.gpu.opt));
}

#ifdef SUT_EXEC
/* What a step costs the host: launches and copies, never a wait. */
void launches()
{
    static const struct {
        int64_t n;
        int m;
        sut_check check;
        long launches;
    } cases[] = {
        {1000, 1, SUT_CHECK_NONE, 1},
        {1000, 2, SUT_CHECK_GRADIENTS, 1},
        {((int64_t)1 << 20) + 1, 1, SUT_CHECK_NONE, 2},
        {((int64_t)1 << 20) + 1, 2, SUT_CHECK_GRADIENTS, 5},
    }; /* rows that have moved are one launch more before products, none otherwise */
    for (const auto &k : cases) {
        sut_optimizer_config c = config_of(SUT_OPTIMIZER_ADAM, k.m, SUT_SURGERY_CONFIG, k.m > 1);
        c.check = k.check;
        twins t({{k.n, SUT_DTYPE_F32}}, c);
        t.draw_rows();
        for (int step = 0; step < 2; ++step) { /* the second finds its rows where they were */
            exec::count = exec::counters();
            CHECK(sut_optimizer_step(t.gpu.opt, t.gpu.rows.data(), nullptr, nullptr) == SUT_OK, "%s",
                  sut_context_last_error(t.gpu.ctx));
            const long waits = exec::count.synchronisations;
            CUDA(cudaStreamSynchronize(nullptr)); /* what was queued is done, and counted, now */
            const long more = step == 0 && k.n > (1 << 20) && k.m > 1;
            CHECK(exec::count.launches == k.launches + more && waits == 0 && exec::count.sets == 0 &&
                      exec::count.copies == 0,
                  "n = %lld, m = %d: %ld launches, %ld copies, %ld sets, %ld waits", (long long)k.n, k.m,
                  exec::count.launches, exec::count.copies, exec::count.sets, waits);
        }
        CHECK(sut_optimizer_synchronize(t.gpu.opt) == SUT_OK, "%s", sut_context_last_error(t.gpu.ctx));
    }
}
#endif

#ifdef SUT_EXEC
/* The algebra's local arrays have 16 KB of shared memory (kernels/drive.cuh): what the most losses take of them. */
void local_arrays()
{
    exec::arrays_in_use = 0;
    for (int method = 0; method < SUT_SURGERY_COUNT; ++method) {
        sut_optimizer_config c = config_of(SUT_OPTIMIZER_ADAM, SUT_MAX_LOSSES, (sut_surgery_method)method, true);
        std::vector<double> preference((size_t)SUT_MAX_LOSSES, 0.5);
        if (method == SUT_SURGERY_FIXED)
            c.surgery.preference = preference.data();
        run_steps({{70, SUT_DTYPE_F64}}, c, 2, 1e-8, 0, sut_surgery_method_name((sut_surgery_method)method));
    }
    /* Neighbouring rows are nearly opposed: the triangle, and multipliers from it. */
    sut_optimizer_config c = config_of(SUT_OPTIMIZER_ADAM, SUT_MAX_LOSSES, SUT_SURGERY_SUM, true);
    c.conflict_cos_tol = 0;
    run_steps({{70, SUT_DTYPE_F64}}, c, 2, 1e-4, 1e-7, "64 losses, opposed to 1e-7");
    const long limit = 16384;
    std::printf("drive: local arrays take %ld bytes of %ld\n", exec::arrays_in_use, limit);
    CHECK(exec::arrays_in_use > 0 && exec::arrays_in_use <= limit, "%ld bytes of local arrays", exec::arrays_in_use);
}
#endif

/* A step in a graph: recorded once, launched many times, with rows that change in place; other steps in between. */
void a_graph()
{
    for (int large = 0; large < 2; ++large) {
        const int64_t n = large ? ((int64_t)1 << 20) + 77 : 700;
        cudaStream_t stream;
        CUDA(cudaStreamCreate(&stream));
        {
            const std::vector<shape> shapes = {{n, SUT_DTYPE_F32}};
            const sut_optimizer_config c = config_of(SUT_OPTIMIZER_ADAM, 2, SUT_SURGERY_CONFIG, true);
            twins t(shapes, c, stream);
            t.draw_rows();
            const auto eager = [&](side &s) {
                CHECK(sut_optimizer_step(s.opt, s.rows.data(), nullptr, nullptr) == SUT_OK, "%s",
                      sut_context_last_error(s.ctx));
            };
            eager(t.cpu);
            eager(t.gpu);
            cudaGraph_t graph;
            cudaGraphExec_t executable;
            CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
            sut_report r;
            sut_report_init(&r);
            CHECK(sut_optimizer_step(t.gpu.opt, t.gpu.rows.data(), nullptr, &r) == SUT_ERROR_SEQUENCE,
                  "a captured step gave a report");
            eager(t.gpu);
            CHECK(sut_optimizer_synchronize(t.gpu.opt) == SUT_ERROR_SEQUENCE, "a capture was waited for");
            CUDA(cudaStreamEndCapture(stream, &graph));
            CUDA(cudaGraphInstantiate(&executable, graph, 0));
            for (int step = 0; step < (large ? 2 : 8); ++step) {
                t.draw_rows();
                /* A graph keeps the rate of its capture; a step outside of it has its own, before it and after. */
                if (step == 5)
                    CHECK(sut_optimizer_set_lr(t.gpu.opt, 0, 3e-2) == SUT_OK, "%s", sut_context_last_error(t.gpu.ctx));
                if (step >= 5)
                    CHECK(sut_optimizer_set_lr(t.cpu.opt, 0, step == 6 ? 1e-2 : 3e-2) == SUT_OK, "%s",
                          sut_context_last_error(t.cpu.ctx));
                if (step == 3)
                    for (side *s : {&t.cpu, &t.gpu})
                        CHECK(sut_optimizer_set_lr(s->opt, 0, 1e-2) == SUT_OK, "%s", sut_context_last_error(s->ctx));
                eager(t.cpu);
                if (step == 2 || step == 5 || step == 7)
                    eager(t.gpu);
                else
                    CUDA(cudaGraphLaunch(executable, stream));
                CUDA(cudaStreamSynchronize(stream));
                CHECK(sut_optimizer_steps(t.gpu.opt) == step + 2, "%lld steps",
                      (long long)sut_optimizer_steps(t.gpu.opt));
            }
            CHECK(sut_optimizer_synchronize(t.gpu.opt) == SUT_OK, "%s", sut_context_last_error(t.gpu.ctx));
            CHECK(t.difference() < 1e-4, "parameters differ by %g", t.difference());
            /* NaN in a graph: nothing changes, and it is told afterwards. */
            std::vector<double> bad((size_t)n, 0.5);
            bad[601] = std::numeric_limits<double>::infinity();
            t.put_row(1, 0, bad);
            CUDA(cudaGraphLaunch(executable, stream));
            CHECK(sut_optimizer_synchronize(t.gpu.opt) == SUT_ERROR_NOT_FINITE, "Inf was taken");
            CHECK(std::strstr(sut_context_last_error(t.gpu.ctx), "index 601"), "%s", sut_context_last_error(t.gpu.ctx));
            CHECK(t.difference() < 1e-4, "parameters differ by %g", t.difference());
            CUDA(cudaGraphExecDestroy(executable));
            CUDA(cudaGraphDestroy(graph));
        }
        CUDA(cudaStreamDestroy(stream));
    }
}

} // namespace

/* "short": what a tool that slows everything down can finish. */
int main(int argc, char **argv)
{
#ifdef SUT_EXEC
    exec::watch_every = 16; /* locking takes longer than a small kernel */
#endif
    const bool all = argc < 2 || std::strcmp(argv[1], "short") != 0;
    refused_steps();
    late_refusals();
    bad_state();
    what_changes_between_steps();
    preferences();
    product_of_momenta();
    a_graph();
    if (all) {
        every_method();
        every_surgery();
        both_types_and_sizes();
        nearly_opposed();
        state_files();
        stages_between();
        few_processors();
        many_elements();
    }
#ifdef SUT_EXEC
    launches();
    local_arrays();
#endif
    return check::finish("drive");
}
