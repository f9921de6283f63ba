/* Zero results are exact zeros, the report says so, and what is no noise is left alone. */
#include "support/surgery.h"
#include "surgery/surgery.h"

#include <math.h>
#include <string.h>

/* a, its weights and every figure of the report say zero. */
static void is_zero(const char *name, const double *a, int m, int n, const sut_surgery_report *report)
{
    for (int k = 0; k < n; ++k)
        if (a[k] != 0.0)
            fail_msg("%s: a[%d] is %g", name, k, a[k]);
    for (int i = 0; i < m; ++i)
        if (report->weights[i] != 0.0 || report->cos_a[i] != 0.0)
            fail_msg("%s: weight %g, cosine %g of loss %d", name, report->weights[i], report->cos_a[i], i);
    if (!report->zero || report->norm_a != 0.0 || report->n_conflicts != 0)
        fail_msg("%s: zero %d, norm %g, conflicts %d", name, report->zero, report->norm_a, report->n_conflicts);
}

/* Rows that positively span the plane: only 0 hurts none of them. The solvers leave 1e-32 to 1e-11 here. */
static void only_zero_is_in_the_cone(void **state)
{
    (void)state;
    static const struct {
        sut_surgery_method method;
        int m;
        double G[12];
    } cases[] = {
        {SUT_SURGERY_UPGRAD, 6, {2, -2, 1, 0, 1, 1, 1, -2, -1, 1, 0, 2}},
        {SUT_SURGERY_UPGRAD, 6, {2, 0, -2, -2, 0, -1, -1, 1, 2, 2, 0, 0}},
        {SUT_SURGERY_CAGRAD, 5, {-1, 2, -1, -1, 2, -2, 0, -1, -2, 1}},
        {SUT_SURGERY_DUALPROJ,
         3,
         {-1.3410163714272958, 0.005997379965220184, -0.3410163714272958, -1.9940026200347798, 0.6589836285727042,
          0.005997379965220184}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; ++c) {
        sut_surgery_config config;
        sut_surgery_report report;
        double a[2];
        float F[12], f[2] = {NAN, NAN};
        const int m = cases[c].m;
        const void *rows[6];
        test_exact(&config, cases[c].method);
        config.cagrad_c = 1.0;
        test_direction(&config, cases[c].G, m, 2, a, &report);
        is_zero(sut_surgery_method_name(config.method), a, m, 2, &report);
        assert_true(report.pareto);

        for (int k = 0; k < 2 * m; ++k)
            F[k] = (float)cases[c].G[k];
        for (int i = 0; i < m; ++i)
            rows[i] = F + 2 * (size_t)i;
        assert_int_equal(sut_surgery_direction(test_context(), &config, rows, m, 2, SUT_DTYPE_F32, NULL, 0, f, &report),
                         SUT_OK);
        a[0] = f[0];
        a[1] = f[1];
        is_zero("f32", a, m, 2, &report);
    }
}

static bool is_exact(sut_surgery_method method)
{
    return sut_surgery_table[method].degree == 1 && !sut_surgery_table[method].keeps_weights;
}

/* Small integers (f64 Gram matrices without rounding) and normal numbers, few dimensions and many losses: either all says
 * zero, or the reported norm and cosines are those of a. */
static void a_report_agrees_with_its_direction(void **state)
{
    (void)state;
    test_random r = {61};
    int zeros = 0, others = 0;
    for (int round = 0; round < 400; ++round) {
        static const int sizes[8] = {2, 3, 4, 5, 6, 8, 16, 64};
        static double G[64 * 3];
        const int m = sizes[round % 8], n = 1 + test_below(&r, 3);
        for (int k = 0; k < m * n; ++k)
            G[k] = round % 3 ? test_below(&r, 5) - 2 : test_normal(&r);
        for (int method = 0; method < SUT_SURGERY_COUNT; ++method) {
            if (!is_exact((sut_surgery_method)method))
                continue;
            sut_surgery_config config;
            sut_surgery_report report;
            double a[3];
            test_exact(&config, (sut_surgery_method)method);
            config.cagrad_c = 1.0;
            config.pcgrad_identity_order = 1;
            test_direction(&config, G, m, n, a, &report);
            const char *const name = sut_surgery_method_name(config.method);
            const double norm = test_norm(a, n);
            if (norm == 0.0) {
                is_zero(name, a, m, n, &report);
                ++zeros;
                continue;
            }
            ++others;
            if (report.zero || fabs(report.norm_a - norm) > 0.1 * norm)
                fail_msg("%s, m %d, n %d: zero %d, |a| = %g, reported %g", name, m, n, report.zero, norm,
                         report.norm_a);
            for (int i = 0; i < m; ++i) {
                const double d = test_norm(G + i * n, n);
                const double cosine = d > 0.0 ? test_dot(G + i * n, a, n) / d / norm : 0.0;
                if (fabs(cosine - report.cos_a[i]) > 0.1)
                    fail_msg("%s, m %d, n %d: cosine %g of loss %d, reported %g", name, m, n, cosine, i,
                             report.cos_a[i]);
            }
        }
    }
    assert_true(zeros > 500 && others > 1000);
}

/* 64 losses in a plane: repeated projections leave nothing of any gradient. */
static void pcgrad_of_many_losses_in_a_plane(void **state)
{
    (void)state;
    test_random r = {62};
    int zeros = 0;
    for (int round = 0; round < 100; ++round) {
        static double G[128];
        sut_surgery_config config;
        sut_surgery_report report;
        double a[2];
        for (int k = 0; k < 128; ++k)
            G[k] = test_normal(&r);
        sut_surgery_config_init(&config, SUT_SURGERY_PCGRAD);
        config.pcgrad_identity_order = 1;
        test_direction(&config, G, 64, 2, a, &report);
        if (report.zero)
            is_zero("pcgrad", a, 64, 2, &report);
        else
            assert_true(fabs(report.norm_a - test_norm(a, 2)) <= 0.1 * report.norm_a);
        zeros += report.zero;
    }
    assert_true(zeros > 0);
}

/* Cosine -1 + 1e-12, and rows that nearly surround the origin: short directions, but no noise. One row scaled changes nothing. */
static void short_directions_are_kept(void **state)
{
    (void)state;
    const double height = 1.4142135623730951e-6; /* cos = -1 + height^2 / 2 */
    const double scales[3] = {1.0, 0x1p-40, 0x1p40};
    for (int s = 0; s < 3; ++s) {
        const double pair[4] = {scales[s], 0, -1, height};
        const double three[9] = {scales[s], 0, height, -0.5, 0.75, height, -0.5, -0.75, height};
        for (int method = 0; method < SUT_SURGERY_COUNT; ++method) {
            if (!is_exact((sut_surgery_method)method) || method == SUT_SURGERY_ALIGNED_MTL) /* drops the third axis */
                continue;
            sut_surgery_config config;
            sut_surgery_report report;
            double a[3];
            test_exact(&config, (sut_surgery_method)method);
            config.cagrad_c = 1.0;
            test_direction(&config, pair, 2, 2, a, &report);
            if (report.zero || !(a[1] > 0.0) || !(report.norm_a > 0.0))
                fail_msg("%s: zero %d, a[1] = %g", sut_surgery_method_name(config.method), report.zero, a[1]);
            test_direction(&config, three, 3, 3, a, &report);
            if (report.zero || !(a[2] > 0.0) || !(report.norm_a > 0.0))
                fail_msg("%s: zero %d, a[2] = %g", sut_surgery_method_name(config.method), report.zero, a[2]);
        }
    }
}

/* Weights that keep their digits whatever K is: the sum of these rows is 1e-9, which K cannot tell from 0, but they can. */
static void determined_weights_are_kept(void **state)
{
    (void)state;
    const double G[6] = {1, 0, -0.5, 1, -0.5 + 1e-9, -1};
    sut_surgery_config config;
    sut_surgery_report report;
    double a[2];
    sut_surgery_config_init(&config, SUT_SURGERY_DUALPROJ);
    config.norm_eps = 100; /* the plain mean */
    test_direction(&config, G, 3, 2, a, &report);
    assert_true(!report.zero && fabs(a[0] - 1e-9 / 3) < 1e-16 && a[1] == 0.0);
    assert_true(report.norm_a == 0.0 && report.n_conflicts == 0); /* no figures, as for the mean */
    test_exact(&config, SUT_SURGERY_DUALPROJ);
    test_direction(&config, G, 3, 2, a, &report);
    is_zero("dualproj", a, 3, 2, &report);

    sut_surgery_config_init(&config, SUT_SURGERY_MGDA);
    config.mgda_frank_wolfe = 1;
    test_direction(&config, G, 3, 2, a, &report);
    assert_true(!report.zero && a[0] > 0.0);
    config.mgda_frank_wolfe = 0;
    test_direction(&config, G, 3, 2, a, &report);
    is_zero("mgda", a, 3, 2, &report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_zero_is_in_the_cone),         cmocka_unit_test(a_report_agrees_with_its_direction),
        cmocka_unit_test(pcgrad_of_many_losses_in_a_plane), cmocka_unit_test(short_directions_are_kept),
        cmocka_unit_test(determined_weights_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
