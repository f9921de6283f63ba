/*
 * Gradients of any size that doubles can hold: the direction of scaled rows is the scaled direction (Nash-MTL: the same
 * direction), for every method. Scaling by a power of two is exact, so nearly all of these hold bit for bit; only entries
 * that become subnormal lose digits.
 */
#include "support/surgery.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { M = 3, N = 6 };

static const double rows[2][M * N] = {
    {4, 1, 0, 1, -1, 2, -2, 3, 1, 0, 1, 1, 0, -1, 2, 1, 3, -1},  /* a conflict */
    {3, 1, 0.5, 1, 0, 2, 2, 3, 1, 0, 1, 1, 1, 0.25, 2, 1, 3, 1}, /* none */
};

static void check(sut_surgery_method method, int set, int exponent)
{
    const char *const name = sut_surgery_method_name(method);
    const double preference[M] = {0.5, 1, 2}, losses[M] = {1, 2, 3};
    double G[M * N], a[N], scaled[N], expected[N];
    sut_surgery_config config;
    sut_surgery_report report;
    sut_surgery_report_init(&report);
    test_exact(&config, method);
    config.preference = preference;
    assert_int_equal(test_direction_status(&config, rows[set], M, N, losses, a, NULL), SUT_OK);
    for (int k = 0; k < M * N; ++k)
        G[k] = ldexp(rows[set][k], exponent);
    const sut_status status = test_direction_status(&config, G, M, N, losses, scaled, &report);
    if (method == SUT_SURGERY_NASH && status == SUT_ERROR_OUT_OF_RANGE && exponent < -1000)
        return; /* its weights are about 1 / |g| and leave the range of doubles */
    if (status != SUT_OK)
        fail_msg("%s, rows times 2^%d: %s", name, exponent, sut_context_last_error(test_context()));
    for (int k = 0; k < N; ++k)
        expected[k] = method == SUT_SURGERY_NASH ? a[k] : ldexp(a[k], exponent);
    for (int i = 0; i < M; ++i)
        assert_true(isfinite(report.weights[i]) && fabs(report.cos_a[i]) <= 1);
    /* A subnormal entry is off by half of the smallest one; the algebra multiplies that by a few. */
    const double tolerance =
        exponent < -1000 ? 64 * 0x1p-1074 * (method == SUT_SURGERY_NASH ? ldexp(1, -exponent) : 1) : 0;
    for (int k = 0; k < N; ++k)
        if (!(fabs(scaled[k] - expected[k]) <= tolerance))
            fail_msg("%s, rows times 2^%d, element %d: %.17g, expected %.17g", name, exponent, k, scaled[k],
                     expected[k]);
}

static void every_method_at_every_size(void **state)
{
    (void)state;
    /* About 1e-312, 1e-307, 1e-200, 1e-150, 1e-20, 1e20, 1e150, 1e200, 1e300. */
    static const int exponents[] = {-1037, -1020, -664, -498, -66, 66, 498, 664, 996};
    for (int method = 0; method < SUT_SURGERY_COUNT; ++method)
        for (int set = 0; set < 2; ++set)
            for (size_t k = 0; k < sizeof exponents / sizeof *exponents; ++k)
                check((sut_surgery_method)method, set, exponents[k]);
}

/* Options and losses of any size: weights that are finite, or an error that says what is out of range. */
static void extreme_options(void **state)
{
    (void)state;
#define OPTION(method, member)                                \
    {                                                         \
        method, #member, offsetof(sut_surgery_config, member) \
    }
    static const struct {
        sut_surgery_method method;
        const char *name;
        size_t offset;
    } options[] = {
        OPTION(SUT_SURGERY_CAGRAD, cagrad_c),        OPTION(SUT_SURGERY_CAGRAD, cagrad_eps),
        OPTION(SUT_SURGERY_UPGRAD, reg_eps),         OPTION(SUT_SURGERY_UPGRAD, norm_eps),
        OPTION(SUT_SURGERY_DUALPROJ, reg_eps),       OPTION(SUT_SURGERY_DUALPROJ, norm_eps),
        OPTION(SUT_SURGERY_SDMGRAD, sdmgrad_lambda), OPTION(SUT_SURGERY_NASH, nash_max_norm),
        OPTION(SUT_SURGERY_MGDA, mgda_fw_epsilon),
    };
    static const double values[] = {DBL_MAX, 1e200, 1e155, 1e100, 1e-100, 1e-155, 1e-200, DBL_MIN, 5e-324};
    static const int exponents[] = {-1020, -500, 0, 500, 996};
    double G[M * N], a[N];
    for (size_t o = 0; o < sizeof options / sizeof *options; ++o)
        for (size_t v = 0; v < sizeof values / sizeof *values; ++v)
            for (size_t e = 0; e < sizeof exponents / sizeof *exponents; ++e)
                for (int set = 0; set < 2; ++set) {
                    sut_surgery_config config;
                    sut_surgery_report report;
                    sut_surgery_config_init(&config, options[o].method);
                    config.mgda_frank_wolfe = 1;
                    memcpy((char *)&config + options[o].offset, &values[v], sizeof(double));
                    for (int k = 0; k < M * N; ++k)
                        G[k] = ldexp(rows[set][k], exponents[e]);
                    const sut_status status = test_direction_status(&config, G, M, N, NULL, a, &report);
                    if (status != SUT_OK && status != SUT_ERROR_OUT_OF_RANGE)
                        fail_msg("%s = %g, rows times 2^%d: status %d, %s", options[o].name, values[v], exponents[e],
                                 status, sut_context_last_error(test_context()));
                    if (status != SUT_OK)
                        continue;
                    for (int i = 0; i < M; ++i)
                        if (!isfinite(report.weights[i]) || !isfinite(report.cos_a[i]) || !isfinite(report.norm_a))
                            fail_msg("%s = %g, rows times 2^%d: weight %g, cosine %g, norm %g", options[o].name,
                                     values[v], exponents[e], report.weights[i], report.cos_a[i], report.norm_a);
                    for (int k = 0; k < N; ++k)
                        if (!isfinite(a[k]))
                            fail_msg("%s = %g, rows times 2^%d: element %d is %g", options[o].name, values[v],
                                     exponents[e], k, a[k]);
                }
}

/* SDMGrad goes to the mean as lambda grows, also where the square of lambda is no double any more. */
static void a_large_lambda_gives_the_mean(void **state)
{
    (void)state;
    double a[N], mean[N];
    sut_surgery_config config;
    for (int k = 0; k < N; ++k)
        mean[k] = (rows[0][k] + rows[0][N + k] + rows[0][2 * N + k]) / M;
    sut_surgery_config_init(&config, SUT_SURGERY_SDMGRAD);
    for (double lambda = 1e15; lambda < 1e300; lambda *= 1e30) {
        config.sdmgrad_lambda = lambda;
        test_direction(&config, rows[0], M, N, a, NULL);
        test_close(a, mean, N, 1e-13);
    }
}

/* Preferences and losses of any size, for the methods that read them; entries of a Gram matrix up to the largest double. */
static void extreme_numbers(void **state)
{
    (void)state;
    static const double values[] = {DBL_MAX, 1e200, 1e155, 1e-155, 1e-200, DBL_MIN, 5e-324, 1};
    for (int method = 0; method < SUT_SURGERY_COUNT; ++method)
        for (size_t x = 0; x < sizeof values / sizeof *values; ++x)
            for (size_t y = 0; y < sizeof values / sizeof *values; ++y)
                for (int normalisation = SUT_MGDA_NONE; normalisation <= SUT_MGDA_LOSS_PLUS; ++normalisation) {
                    const double preference[M] = {values[x], 1, values[y]}, losses[M] = {values[y], values[x], 1};
                    const double size = values[(x + y) % 8] / 4;
                    const double gram[M * M] = {size * 3,  size * -1, size,      size * -1, size * 2,
                                                -size / 2, size,      -size / 2, size * 1.5};
                    sut_surgery_config config;
                    sut_surgery_report report;
                    sut_surgery_report_init(&report);
                    sut_surgery_config_init(&config, (sut_surgery_method)method);
                    config.preference = preference;
                    config.mgda_normalisation = (sut_mgda_normalisation)normalisation;
                    double G[M * N], a[N];
                    memcpy(G, rows[0], sizeof G);
                    for (int call = 0; call < 2; ++call) {
                        const sut_status status =
                            call ? test_direction_status(&config, G, M, N, losses, a, &report)
                                 : sut_surgery_weights(test_context(), &config, gram, M, losses, 0, &report);
                        if (method == SUT_SURGERY_NASH && status == SUT_ERROR_UNDEFINED && !call)
                            continue; /* a row that vanished */
                        if (status != SUT_OK && status != SUT_ERROR_OUT_OF_RANGE)
                            fail_msg("%s, %g and %g: status %d, %s", sut_surgery_method_name(config.method), values[x],
                                     values[y], status, sut_context_last_error(test_context()));
                        for (int i = 0; status == SUT_OK && i < M; ++i)
                            if (!isfinite(report.weights[i]) || !isfinite(report.cos_a[i]) || isnan(report.norm_a) ||
                                (call && isinf(report.norm_a)))
                                fail_msg("%s, %g and %g: weight %g, cosine %g, norm %g",
                                         sut_surgery_method_name(config.method), values[x], values[y],
                                         report.weights[i], report.cos_a[i], report.norm_a);
                        for (int k = 0; status == SUT_OK && call && k < N; ++k)
                            assert_true(isfinite(a[k]));
                    }
                    if (method != SUT_SURGERY_MGDA)
                        break;
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method_at_every_size),
        cmocka_unit_test(extreme_options),
        cmocka_unit_test(extreme_numbers),
        cmocka_unit_test(a_large_lambda_gives_the_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
