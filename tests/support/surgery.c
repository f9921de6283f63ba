/* What the tests of surgery and cone share, see surgery.h. */
#include "support/surgery.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool test_on_device(void)
{
    const char *const backend = getenv("SUTURE_BACKEND");
    return backend && !strcmp(backend, "cuda");
}

int test_rounds(int full)
{
    return test_on_device() ? (full + 99) / 100 : full;
}

static sut_context *ctx;

static void test_context_end(void)
{
    sut_context_destroy(ctx);
}

sut_context *test_context(void)
{
    if (!ctx) {
        sut_context_config config;
        sut_context_config_init(&config);
        config.n_threads = 1;
        assert_int_equal(sut_context_create(&ctx, &config), SUT_OK);
        (void)atexit(test_context_end);
    }
    return ctx;
}

double test_uniform(test_random *r)
{
    uint64_t z = r->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    return ((double)(z >> 12) + 0.5) * 0x1p-52;
}

double test_normal(test_random *r)
{
    const double radius = sqrt(-2.0 * log(test_uniform(r)));
    return radius * cos(6.283185307179586 * test_uniform(r));
}

int test_below(test_random *r, int bound)
{
    return (int)(test_uniform(r) * bound);
}

sut_status test_direction_status(const sut_surgery_config *config, const double *G, int m, int n, const double *losses,
                                 double *a, sut_surgery_report *report)
{
    const void *grads[SUT_MAX_LOSSES];
    for (int i = 0; i < m; ++i)
        grads[i] = G + (size_t)i * (size_t)n;
    if (report)
        sut_surgery_report_init(report);
    return sut_surgery_direction(test_context(), config, grads, m, n, SUT_DTYPE_F64, losses, 0, a, report);
}

void test_direction(const sut_surgery_config *config, const double *G, int m, int n, double *a,
                    sut_surgery_report *report)
{
    const sut_status status = test_direction_status(config, G, m, n, NULL, a, report);
    if (status != SUT_OK)
        fail_msg("%s: %s", sut_surgery_method_name(config->method), sut_context_last_error(test_context()));
}

void test_project(const double *G, int m, int n, const double *u, const double *metric, double *p,
                  sut_cone_report *report)
{
    const void *grads[SUT_MAX_LOSSES];
    for (int i = 0; i < m; ++i)
        grads[i] = G + (size_t)i * (size_t)n;
    if (report)
        sut_cone_report_init(report);
    const sut_status status = sut_cone_project(test_context(), NULL, grads, m, n, SUT_DTYPE_F64, u, metric, p, report);
    if (status != SUT_OK)
        fail_msg("cone: %s", sut_context_last_error(test_context()));
}

void test_gram(const double *G, int m, int n, double *K)
{
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < m; ++j)
            K[i * m + j] = test_dot(G + (size_t)i * (size_t)n, G + (size_t)j * (size_t)n, n);
}

double test_dot(const double *x, const double *y, int n)
{
    double sum = 0.0;
    for (int k = 0; k < n; ++k)
        sum += x[k] * y[k];
    return sum;
}

double test_norm(const double *x, int n)
{
    return sqrt(test_dot(x, x, n));
}

double test_distance(const double *x, const double *y, int n)
{
    double largest = 0.0;
    for (int k = 0; k < n; ++k) {
        const double d = fabs(x[k] - y[k]);
        if (!(d <= largest)) /* NaN gets through */
            largest = d;
    }
    return largest;
}

void test_close(const double *x, const double *y, int n, double tolerance)
{
    if (test_distance(x, y, n) <= tolerance)
        return;
    for (int k = 0; k < n && k < 16; ++k)
        print_message("    %3d: %.17g, expected %.17g\n", k, x[k], y[k]);
    fail_msg("vectors differ by %.3g, allowed %.3g", test_distance(x, y, n), tolerance);
}

void test_exact(sut_surgery_config *config, sut_surgery_method method)
{
    sut_surgery_config_init(config, method);
    config->norm_eps = config->reg_eps = 0.0;
}
