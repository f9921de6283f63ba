/* What all methods have in common: one loss, zero rows, power-of-two scales, the factor m, the report's figures. */
#include "support/surgery.h"
#include "surgery/surgery.h"

#include <float.h>
#include <math.h>
#include <string.h>

static void one_loss_is_left_alone(void **state)
{
    (void)state;
    static const double g[5] = {1.5, -2, 1e-3, 0, 7}, losses[1] = {3};
    double a[5];
    for (int method = 0; method < SUT_SURGERY_COUNT; ++method) {
        sut_surgery_config config;
        sut_surgery_report report;
        sut_surgery_config_init(&config, (sut_surgery_method)method);
        config.preference = method == SUT_SURGERY_FIXED ? (const double[]){1} : NULL;
        for (int by = 0; by < (method == SUT_SURGERY_MGDA ? 4 : 1); ++by) {
            config.mgda_normalisation = (sut_mgda_normalisation)by;
            assert_int_equal(test_direction_status(&config, g, 1, 5, losses, a, &report), SUT_OK);
            if (method == SUT_SURGERY_NASH)
                assert_true(fabs(report.norm_a - 1.0) <= 1e-15);
            else
                assert_memory_equal(a, g, sizeof g);
            assert_true(report.min_cos == 1.0 && report.min_pair_cos == 0.0 && report.alignment == 1.0);
        }
    }
}

/* A preference scales one loss as it scales many; Nash-MTL is clipped below length 1. */
static void one_loss_with_options(void **state)
{
    (void)state;
    static const double g[2] = {3, 4};
    static const sut_surgery_method linear[] = {SUT_SURGERY_FIXED, SUT_SURGERY_ALIGNED_MTL, SUT_SURGERY_UPGRAD,
                                                SUT_SURGERY_DUALPROJ};
    sut_surgery_config config;
    sut_surgery_report report;
    double a[2];
    for (int k = 0; k < 4; ++k) {
        sut_surgery_config_init(&config, linear[k]);
        config.preference = (const double[]){2.5};
        test_direction(&config, g, 1, 2, a, &report);
        test_close(a, (const double[]){7.5, 10}, 2, 0.0);
    }
    sut_surgery_config_init(&config, SUT_SURGERY_CONFIG);
    config.preference = (const double[]){2.5}; /* an angle, not a length */
    test_direction(&config, g, 1, 2, a, &report);
    test_close(a, g, 2, 0.0);
    sut_surgery_config_init(&config, SUT_SURGERY_NASH);
    config.nash_max_norm = 0.25;
    test_direction(&config, g, 1, 2, a, &report);
    test_close(a, (const double[]){0.15, 0.2}, 2, 1e-16);
    config.nash_max_norm = 10;
    test_direction(&config, g, 1, 2, a, &report);
    test_close(a, (const double[]){0.6, 0.8}, 2, 1e-15);
}

static void scale_to_sum_multiplies_by_m(void **state)
{
    (void)state;
    test_random r = {41};
    double G[4 * 9], a[9], b[9];
    for (int k = 0; k < 36; ++k)
        G[k] = test_normal(&r);
    for (int method = 0; method < SUT_SURGERY_COUNT; ++method) {
        sut_surgery_config config;
        sut_surgery_config_init(&config, (sut_surgery_method)method);
        config.preference = method == SUT_SURGERY_FIXED ? (const double[]){1, 2, 3, 4} : NULL;
        test_direction(&config, G, 4, 9, a, NULL);
        config.scale_to_sum = 1;
        test_direction(&config, G, 4, 9, b, NULL);
        for (int k = 0; k < 9; ++k)
            a[k] *= 4;
        test_close(b, a, 9, 0.0);
    }
}

/* Powers of two change no bit of the weights, whatever the exponent; nash weights scale inversely. */
static void powers_of_two_change_no_bit(void **state)
{
    (void)state;
    test_random r = {42};
    double G[5 * 8], H[5 * 8], K[25];
    for (int k = 0; k < 40; ++k)
        G[k] = test_normal(&r);
    test_gram(G, 5, 8, K);
    for (int method = 0; method < SUT_SURGERY_COUNT; ++method) {
        sut_surgery_config config;
        sut_surgery_report plain, scaled;
        double a[8], b[8];
        test_exact(&config, (sut_surgery_method)method);
        config.preference = method == SUT_SURGERY_FIXED ? (const double[]){1, 2, 3, 4, 5} : NULL;
        test_direction(&config, G, 5, 8, a, &plain);
        for (int e = -300; e <= 300; e += 25) {
            for (int k = 0; k < 40; ++k)
                H[k] = ldexp(G[k], e);
            test_direction(&config, H, 5, 8, b, &scaled);
            const int degree = sut_surgery_table[method].degree;
            for (int i = 0; i < 5; ++i)
                assert_true(scaled.weights[i] == ldexp(plain.weights[i], degree ? 0 : -e));
            for (int k = 0; k < 8; ++k)
                assert_true(b[k] == ldexp(a[k], degree ? e : 0));
            assert_true(scaled.norm_a == ldexp(plain.norm_a, degree ? e : 0));
            for (int i = 0; i < 5; ++i)
                assert_true(scaled.norms[i] == ldexp(plain.norms[i], e) && scaled.cos_a[i] == plain.cos_a[i]);
        }
    }
}

/* The exponent of the input stands for the scale of the rows: absolute constants see it. */
static void the_exponent_counts(void **state)
{
    (void)state;
    static double work[SUT_SURGERY_WORK(2)];
    static const double K[4] = {1, -0.5, -0.5, 1};
    static const sut_surgery_method methods[] = {SUT_SURGERY_UPGRAD, SUT_SURGERY_CAGRAD, SUT_SURGERY_NASH};
    for (int k = 0; k < 3; ++k) {
        sut_surgery_config config;
        sut_surgery_output by_exponent, by_rows;
        double scaled[4];
        sut_surgery_config_init(&config, methods[k]);
        config.cagrad_eps = 1e-6;
        sut_surgery_input in = {.K = K, .m = 2, .exponent = -8, .config = &config, .work = work};
        assert_int_equal(sut_surgery_solve(test_context(), &in, &by_exponent), SUT_OK);
        for (int j = 0; j < 4; ++j)
            scaled[j] = ldexp(K[j], -16);
        in.K = scaled;
        in.exponent = 0;
        assert_int_equal(sut_surgery_solve(test_context(), &in, &by_rows), SUT_OK);
        assert_memory_equal(by_exponent.weights, by_rows.weights, 2 * sizeof(double));
        in.K = K;
        assert_int_equal(sut_surgery_solve(test_context(), &in, &by_rows), SUT_OK);
        assert_memory_not_equal(by_exponent.weights, by_rows.weights, 2 * sizeof(double));
    }
}

/* Rows up to 1e150 apart: finite weights, and unit directions that the short row has a part in. */
static void rows_of_very_different_lengths(void **state)
{
    (void)state;
    const double G[6] = {1e100, 0, 1e99, -1e-45, 1e-46, 0};
    for (int method = 0; method < SUT_SURGERY_COUNT; ++method) {
        sut_surgery_config config;
        sut_surgery_report report;
        double a[3];
        test_exact(&config, (sut_surgery_method)method);
        config.preference = method == SUT_SURGERY_FIXED ? (const double[]){1, 1} : NULL;
        test_direction(&config, G, 2, 3, a, &report);
        for (int k = 0; k < 3; ++k)
            assert_true(isfinite(a[k]));
        for (int i = 0; i < 2; ++i)
            assert_true(isfinite(report.weights[i]) && isfinite(report.cos_a[i]) && report.norms[i] > 0.0);
        if (method == SUT_SURGERY_CONFIG) {
            assert_true(fabs(report.cos_a[0] - report.cos_a[1]) <= 1e-14);
            assert_true(report.cos_a[0] > 0.0);
        }
        /* The point of least norm is the short row less its part along the long one; not a stationary point. */
        if (method == SUT_SURGERY_MGDA)
            assert_true(!report.pareto && report.norm_a > 0.0 && report.min_cos >= 0.0);
    }
    /* 1e-151 of the longest: no direction. */
    const double H[4] = {1e100, 0, -1e-52, 1e-52};
    sut_surgery_config config;
    sut_surgery_report report;
    double a[2];
    sut_surgery_config_init(&config, SUT_SURGERY_CONFIG);
    test_direction(&config, H, 2, 2, a, &report);
    assert_true(a[0] == 1e100 && a[1] == 0.0 && report.cos_a[1] == 0.0 && report.min_cos == 1.0);
}

static void figures_of_a_report(void **state)
{
    (void)state;
    /* Rows (2, 0), (-1, 1), (0, 0), (0, 3); the sum (1, 4). */
    static const double G[8] = {2, 0, -1, 1, 0, 0, 0, 3};
    const double root2 = sqrt(2.0), root17 = sqrt(17.0);
    sut_surgery_config config;
    sut_surgery_report report;
    double a[2];
    sut_surgery_config_init(&config, SUT_SURGERY_SUM);
    test_direction(&config, G, 4, 2, a, &report);
    assert_int_equal(report.n_losses, 4);
    test_close(report.weights, (const double[]){1, 1, 1, 1}, 4, 0.0);
    test_close(report.norms, (const double[]){2, root2, 0, 3}, 4, 1e-15);
    test_close(report.cos_a, (const double[]){1 / root17, 3 / (root2 * root17), 0, 4 / root17}, 4, 1e-15);
    assert_true(fabs(report.norm_a - root17) <= 1e-15 * root17);
    assert_true(fabs(report.min_cos - 1 / root17) <= 1e-15);
    assert_true(fabs(report.min_pair_cos + 1 / root2) <= 1e-15);
    assert_true(report.conflict_fraction == 1.0 / 6);
    /* Sum of cosines: 3 on the diagonal, 2 (-1/sqrt 2 + 0 + 1/sqrt 2) beside it. */
    assert_true(fabs(report.alignment - (2.0 / 16 * 3 - 1)) <= 1e-15);
    assert_int_equal(report.n_conflicts, 0);
    assert_int_equal(report.rank, 4);
    assert_false(report.zero || report.pareto || report.negative_normaliser);

    /* w = (1, 5, 1, 1): a = (-3, 8) hurts the first loss. */
    sut_surgery_config_init(&config, SUT_SURGERY_FIXED);
    config.preference = (const double[]){1, 5, 1, 1};
    test_direction(&config, G, 4, 2, a, &report);
    assert_int_equal(report.n_conflicts, 1);
    assert_true(fabs(report.min_cos + 3 / sqrt(73.0)) <= 1e-15);
}

static void noise_is_not_reported_as_a_conflict(void **state)
{
    (void)state;
    /* ConFIG of g, 3g/7 and its negative third: weights whose sum is lost in rounding have no sign. */
    static const double third = 1.0 / 3.0;
    double G[8], a[4];
    test_random r = {43};
    for (int round = 0; round < 200; ++round) {
        for (int k = 0; k < 4; ++k) {
            G[k] = test_normal(&r);
            G[4 + k] = -third * G[k];
        }
        for (int method = SUT_SURGERY_CONFIG; method < SUT_SURGERY_COUNT; ++method) {
            sut_surgery_config config;
            sut_surgery_report report;
            test_exact(&config, (sut_surgery_method)method);
            config.cagrad_c = 1.0;
            if (method == SUT_SURGERY_IMTLG || method == SUT_SURGERY_ALIGNED_MTL || method == SUT_SURGERY_NASH)
                continue; /* no guarantee for dependent rows, or undefined */
            test_direction(&config, G, 2, 4, a, &report);
            assert_int_equal(report.n_conflicts, 0);
            test_close(a, (const double[]){0, 0, 0, 0}, 4, 0.0);
            assert_true(report.zero && report.pareto);
        }
    }
}

/* Weights given by the caller that cancel the rows: what is left has no sign. */
static void noise_of_fixed_weights_has_no_sign(void **state)
{
    (void)state;
    test_random r = {44};
    for (int round = 0; round < 200; ++round) {
        double G[8], a[4];
        sut_surgery_config config;
        sut_surgery_report report;
        for (int k = 0; k < 4; ++k) {
            G[k] = test_normal(&r);
            G[4 + k] = -G[k] / 3.0;
        }
        sut_surgery_config_init(&config, SUT_SURGERY_FIXED);
        config.preference = (const double[]){1, 3};
        test_direction(&config, G, 2, 4, a, &report);
        assert_true(report.norm_a == 0.0 && report.cos_a[0] == 0.0 && report.cos_a[1] == 0.0);
        assert_int_equal(report.n_conflicts, 0);
    }
}

/* Three rows at 120 degrees in a plane: equal angle weights lie in the null space of C, equal lengths in that of K. */
static void rows_that_surround_the_origin(void **state)
{
    (void)state;
    test_random r = {45};
    for (int round = 0; round < 100; ++round) {
        double G[6], a[2];
        const double turn = 6.28 * test_uniform(&r), length = 0.1 + test_uniform(&r);
        for (int i = 0; i < 3; ++i) {
            G[2 * i] = length * cos(turn + i * 2.0943951023931953);
            G[2 * i + 1] = length * sin(turn + i * 2.0943951023931953);
        }
        for (int method = SUT_SURGERY_CONFIG; method < SUT_SURGERY_COUNT; ++method) {
            sut_surgery_config config;
            sut_surgery_report report;
            test_exact(&config, (sut_surgery_method)method);
            config.cagrad_c = 0.3;
            const sut_status status = test_direction_status(&config, G, 3, 2, NULL, a, &report);
            if (method == SUT_SURGERY_NASH) {
                assert_int_equal(status, SUT_ERROR_UNDEFINED);
                continue;
            }
            assert_int_equal(status, SUT_OK);
            if (method == SUT_SURGERY_PCGRAD) /* the projections of a random order need not cancel */
                continue;
            if (!(a[0] == 0.0 && a[1] == 0.0 && report.zero && report.pareto))
                fail_msg("%s: (%g, %g), zero %d, pareto %d", sut_surgery_method_name(config.method), a[0], a[1],
                         report.zero, report.pareto);
        }
    }
}

/* An inner product just above zero is no conflict. */
static void pcgrad_needs_a_conflict(void **state)
{
    (void)state;
    const double G[4] = {1, 0, 1e-10, 1};
    double a[2];
    sut_surgery_config config;
    sut_surgery_config_init(&config, SUT_SURGERY_PCGRAD);
    test_direction(&config, G, 2, 2, a, NULL);
    assert_true(a[0] == 1.0 + 1e-10 && a[1] == 1.0);
}

/* Frank-Wolfe goes to the lowest index of those that tie. */
static void frank_wolfe_ties(void **state)
{
    (void)state;
    const double G[6] = {1, 0, 0, 1, 5, 5};
    double a[2];
    sut_surgery_config config;
    sut_surgery_report report;
    sut_surgery_config_init(&config, SUT_SURGERY_MGDA);
    config.mgda_frank_wolfe = 1;
    config.mgda_fw_max_iterations = 1;
    test_direction(&config, G, 3, 2, a, &report);
    /* K alpha = (2, 2, 20), q = 8, r = 1: gamma = 1. */
    test_close(report.weights, (const double[]){1, 0, 0}, 3, 0.0);
}

/* A loop that stops at its limit says so and leaves weights that can be used; with room it converges, and so do the others. */
static void a_limit_of_iterations_is_reported(void **state)
{
    (void)state;
    const double G[9] = {1, 0.2, 0, 0, 1, 0.1, 0.3, 0, 1}, losses[3] = {1, 1, 1}, preference[3] = {1, 1, 1};
    double a[3], before = HUGE_VAL;
    sut_surgery_config config;
    sut_surgery_report report;
    sut_surgery_config_init(&config, SUT_SURGERY_MGDA);
    config.mgda_frank_wolfe = 1;
    config.mgda_fw_epsilon = 1e-12;
    for (int limit = 1; limit <= 4; ++limit) {
        config.mgda_fw_max_iterations = limit;
        test_direction(&config, G, 3, 3, a, &report);
        assert_int_equal(report.converged, 0);
        assert_int_equal(report.iterations, limit);
        double sum = 0;
        for (int i = 0; i < 3; ++i) {
            assert_true(report.weights[i] >= 0);
            sum += report.weights[i];
        }
        assert_true(fabs(sum - 1) <= 1e-15);
        assert_true(report.norm_a < before); /* better with each one */
        before = report.norm_a;
    }
    config.mgda_fw_epsilon = 1e-3;
    config.mgda_fw_max_iterations = 1000;
    test_direction(&config, G, 3, 3, a, &report);
    assert_int_equal(report.converged, 1);
    assert_true(report.iterations > 1 && report.iterations < 1000);

    for (int method = 0; method < SUT_SURGERY_COUNT; ++method) {
        sut_surgery_config_init(&config, (sut_surgery_method)method);
        config.preference = method == SUT_SURGERY_FIXED ? preference : NULL;
        assert_int_equal(test_direction_status(&config, G, 3, 3, losses, a, &report), SUT_OK);
        assert_int_equal(report.converged, 1);
        const bool iterates = method == SUT_SURGERY_NASH || method == SUT_SURGERY_CAGRAD ||
                              method == SUT_SURGERY_MGDA || method == SUT_SURGERY_SDMGRAD;
        assert_int_equal(report.iterations > 0, iterates);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_loss_is_left_alone),
        cmocka_unit_test(one_loss_with_options),
        cmocka_unit_test(scale_to_sum_multiplies_by_m),
        cmocka_unit_test(powers_of_two_change_no_bit),
        cmocka_unit_test(the_exponent_counts),
        cmocka_unit_test(rows_of_very_different_lengths),
        cmocka_unit_test(figures_of_a_report),
        cmocka_unit_test(noise_is_not_reported_as_a_conflict),
        cmocka_unit_test(noise_of_fixed_weights_has_no_sign),
        cmocka_unit_test(rows_that_surround_the_origin),
        cmocka_unit_test(pcgrad_needs_a_conflict),
        cmocka_unit_test(frank_wolfe_ties),
        cmocka_unit_test(a_limit_of_iterations_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
