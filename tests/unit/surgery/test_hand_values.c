/* Values that can be checked by hand: parallel rows (section 4.15), the two rows of section 9, and small public cases. */
#include "support/surgery.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* A method with its options, as the tables name them. */
typedef enum form {
    CONFIG,
    PCGRAD,
    CAGRAD,
    CAGRAD_PLAIN,
    IMTLG,
    ALIGNED,
    UPGRAD,
    UPGRAD_EXACT,
    DUALPROJ_EXACT,
    MGDA,
    NASH,
    SDMGRAD,
    N_FORMS
} form;

static void configure(sut_surgery_config *config, form which)
{
    static const sut_surgery_method methods[N_FORMS] = {SUT_SURGERY_CONFIG, SUT_SURGERY_PCGRAD, SUT_SURGERY_CAGRAD,
                                                        SUT_SURGERY_CAGRAD, SUT_SURGERY_IMTLG,  SUT_SURGERY_ALIGNED_MTL,
                                                        SUT_SURGERY_UPGRAD, SUT_SURGERY_UPGRAD, SUT_SURGERY_DUALPROJ,
                                                        SUT_SURGERY_MGDA,   SUT_SURGERY_NASH,   SUT_SURGERY_SDMGRAD};
    sut_surgery_config_init(config, methods[which]);
    config->pcgrad_identity_order = 1;
    if (which == CAGRAD_PLAIN)
        config->cagrad_rescale = 0;
    if (which == UPGRAD_EXACT || which == DUALPROJ_EXACT)
        config->norm_eps = config->reg_eps = 0.0;
    if (which == NASH)
        config->nash_max_norm = 0.0;
}

static void parallel_rows(void **state)
{
    (void)state;
    /* a as a multiple of g = (1, 2, 2); for nash of g / |g|. Factor on the second row, values, NaN: undefined. */
    static const form columns[] = {CONFIG, PCGRAD, CAGRAD, IMTLG, ALIGNED, UPGRAD, UPGRAD_EXACT, MGDA, NASH, SDMGRAD};
    enum { N = sizeof columns / sizeof columns[0] };
    const double root2 = sqrt(2.0);
    const struct {
        double factor, value[N];
    } table[] = {
        {1, {2, 2, 1.2, 1, 1, 1, 1, 1, root2, 1}},
        {4, {5, 5, 3, 3.4, 2.5, 2.5, 2.5, 1, root2, 35.0 / 26}},
        {-1, {0, 0, 0, 0, 0, 0, 0, 0, NAN, 0}},
        {-2, {0, 0, -0.2, -5, -0.5, -4.4e-4, 0, 0, NAN, 0}},
        {0, {1, 1, 0.4, 1, 0.5, 0.5, 0.5, 0, NAN, 3.0 / 26}},
    };
    for (size_t row = 0; row < sizeof table / sizeof table[0]; ++row) {
        const double g[3] = {1, 2, 2};
        double G[6], a[3];
        for (int k = 0; k < 3; ++k) {
            G[k] = g[k];
            G[3 + k] = table[row].factor * g[k];
        }
        for (int c = 0; c < N; ++c) {
            sut_surgery_config config;
            sut_surgery_report report;
            configure(&config, columns[c]);
            const double wanted = table[row].value[c];
            const sut_status status = test_direction_status(&config, G, 2, 3, NULL, a, &report);
            if (isnan(wanted)) {
                assert_int_equal(status, SUT_ERROR_UNDEFINED);
                continue;
            }
            assert_int_equal(status, SUT_OK);
            const double unit = columns[c] == NASH ? 1.0 / 3.0 : 1.0;
            const double tolerance = wanted == -4.4e-4 ? 1e-5 : 1e-13;
            for (int k = 0; k < 3; ++k)
                if (!(fabs(a[k] - wanted * unit * g[k]) <= tolerance * g[k]))
                    fail_msg("factor %g, %s: %.17g, expected %.17g", table[row].factor,
                             sut_surgery_method_name(config.method), a[k] / g[k], wanted * unit);
            if (wanted == 0.0) { /* exact zeros, with the flag */
                for (int k = 0; k < 3; ++k)
                    assert_true(a[k] == 0.0);
                assert_true(report.zero);
            }
            if (table[row].factor == 0 && columns[c] == CAGRAD)
                assert_true(report.pareto);
        }
    }
}

static void two_rows_of_section_9(void **state)
{
    (void)state;
    static const double G[6] = {-4, 1, 1, 6, 1, 1};
    static const struct {
        form which;
        double a[3];
    } table[] = {
        {CONFIG, {0.158809, 2.070607, 2.070607}},       {PCGRAD, {0.584795, 3.801170, 3.801170}},
        {CAGRAD_PLAIN, {0.183503, 1.204124, 1.204124}}, {IMTLG, {0.076697, 1, 1}},
        {ALIGNED, {0.213279, 0.967333, 0.967333}},      {UPGRAD, {0.292902, 1.900352, 1.900352}},
        {UPGRAD_EXACT, {0.292398, 1.900585, 1.900585}}, {MGDA, {0, 1, 1}},
    };
    for (size_t k = 0; k < sizeof table / sizeof table[0]; ++k) {
        sut_surgery_config config;
        sut_surgery_report report;
        double a[3];
        configure(&config, table[k].which);
        test_direction(&config, G, 2, 3, a, &report);
        test_close(a, table[k].a, 3, 6e-7);
        assert_true(fabs(report.min_pair_cos + 0.841191) <= 6e-7);
        assert_true(fabs(report.alignment + 0.841191) <= 6e-7); /* two losses: the cosine itself */
    }
}

/* One case: rows, and the exact answers of some forms. */
typedef struct answer {
    form which;
    double a[3];
} answer;

static void expect(const double *G, int m, int n, const answer *answers, int n_answers, double tolerance)
{
    for (int k = 0; k < n_answers; ++k) {
        sut_surgery_config config;
        double a[3];
        configure(&config, answers[k].which);
        test_direction(&config, G, m, n, a, NULL);
        test_close(a, answers[k].a, n, tolerance);
    }
}

/* C001: exactly opposed gradients, plain, padded to 1002 columns, and in f32. */
static void opposed_gradients(void **state)
{
    (void)state;
    static double G[2][1002];
    static float F[2][1002];
    double a[1002];
    float f[1002];
    G[0][0] = 1;
    G[1][0] = -1;
    F[0][0] = 1;
    F[1][0] = -1;
    const void *const grads[2] = {G[0], G[1]}, *const floats[2] = {F[0], F[1]};
    for (int which = 0; which < N_FORMS; ++which) {
        if (which == NASH)
            continue;
        for (int n = 2; n <= 1002; n += 1000) {
            sut_surgery_config config;
            sut_surgery_report report;
            configure(&config, (form)which);
            sut_surgery_report_init(&report);
            memset(a, 0x5a, sizeof a);
            assert_int_equal(
                sut_surgery_direction(test_context(), &config, grads, 2, n, SUT_DTYPE_F64, NULL, 0, a, &report),
                SUT_OK);
            for (int k = 0; k < n; ++k)
                assert_true(a[k] == 0.0);
            assert_true(report.zero && report.pareto);
            assert_int_equal(
                sut_surgery_direction(test_context(), &config, floats, 2, n, SUT_DTYPE_F32, NULL, 0, f, &report),
                SUT_OK);
            for (int k = 0; k < n; ++k)
                assert_true(f[k] == 0.0f);
            assert_true(report.zero && report.pareto);
        }
    }
}

/* C002: one zero gradient, then all of them. */
static void zero_gradients(void **state)
{
    (void)state;
    static const double G[6] = {0, 0, 0, 1, 2, 2}, zero[6] = {0};
    static const answer answers[] = {{PCGRAD, {1, 2, 2}},
                                     {CONFIG, {1, 2, 2}},
                                     {UPGRAD, {0.5, 1, 1}},
                                     {UPGRAD_EXACT, {0.5, 1, 1}},
                                     {IMTLG, {1, 2, 2}}};
    expect(G, 2, 3, answers, 5, 1e-12);
    for (int which = 0; which < N_FORMS; ++which) {
        sut_surgery_config config;
        sut_surgery_report report;
        double a[3];
        configure(&config, (form)which);
        const sut_status status = test_direction_status(&config, G, 2, 3, NULL, a, &report);
        if (status == SUT_OK) {
            for (int i = 0; i < 2; ++i)
                assert_true(isfinite(report.weights[i]) && isfinite(report.cos_a[i]) && isfinite(report.norms[i]));
        } else {
            assert_int_equal(which, NASH);
        }
        const sut_status all = test_direction_status(&config, zero, 2, 3, NULL, a, &report);
        if (which == NASH) {
            assert_int_equal(all, SUT_ERROR_UNDEFINED);
            continue;
        }
        assert_int_equal(all, SUT_OK);
        assert_true(report.zero && report.pareto);
        test_close(a, zero, 3, 0.0);
    }
}

/* C003: huge and tiny factors. The default UPGrad has an absolute constant; the exact form is the homogeneous one. */
static void huge_and_tiny_gradients(void **state)
{
    (void)state;
    static const answer answers[] = {{UPGRAD_EXACT, {0.25, 0.75}},
                                     {DUALPROJ_EXACT, {0, 0.5}},
                                     {PCGRAD, {0.5, 1.5}},
                                     {CONFIG, {0.35355339059327376, 0.85355339059327376}},
                                     {IMTLG, {0.17157287525380990, 0.41421356237309505}},
                                     {ALIGNED, {0.13819660112501052, 0.41458980337503154}}};
    for (size_t k = 0; k < sizeof answers / sizeof answers[0]; ++k) {
        sut_surgery_config config;
        sut_surgery_report report;
        configure(&config, answers[k].which);
        sut_surgery_report_init(&report);
        for (int c = 0; c < 2; ++c) {
            const double factor = c ? 1e200 : 1e-200;
            const double G[4] = {factor, 0, -factor, factor};
            double a[2];
            test_direction(&config, G, 2, 2, a, &report);
            for (int j = 0; j < 2; ++j)
                assert_true(fabs(a[j] / factor - answers[k].a[j]) <= 1e-9);
            assert_true(fabs(report.norms[1] / factor - sqrt(2.0)) <= 1e-12);
            const float f = c ? 1e30f : 1e-30f;
            const float F[4] = {f, 0, -f, f};
            const void *const floats[2] = {F, F + 2};
            float b[2];
            assert_int_equal(
                sut_surgery_direction(test_context(), &config, floats, 2, 2, SUT_DTYPE_F32, NULL, 0, b, &report),
                SUT_OK);
            for (int j = 0; j < 2; ++j)
                assert_true(fabs((double)b[j] / f - answers[k].a[j]) <= 1e-5);
        }
    }
}

/* C004: dependent losses. ConFIG keeps to its formula and the report says who is hurt. */
static void dependent_gradients(void **state)
{
    (void)state;
    static const double G[6] = {1, 0, 1, 0, 0, 1}, H[8] = {1, 0, 2, 0, 3, 0, -1, 0};
    static const answer a[] = {{CONFIG, {1.5, 1.5}}, {UPGRAD_EXACT, {2.0 / 3, 1.0 / 3}}, {PCGRAD, {2, 1}}};
    static const answer b[] = {{UPGRAD_EXACT, {0, 0}}, {DUALPROJ_EXACT, {0, 0}}, {CONFIG, {5, 0}}};
    expect(G, 3, 2, a, 3, 1e-10);
    expect(H, 4, 2, b, 3, 1e-10);
    sut_surgery_config config;
    sut_surgery_report report;
    double x[2];
    configure(&config, CONFIG);
    test_direction(&config, H, 4, 2, x, &report);
    assert_true(report.min_cos == -1.0);
    assert_int_equal(report.n_conflicts, 1);
    assert_int_equal(report.rank, 1);
}

/* C012: f32 rows at 1e-6 to opposition. */
static void nearly_opposed_f32(void **state)
{
    (void)state;
    static const float F[4] = {1, 1e-6f, -1, 1e-6f};
    const void *const grads[2] = {F, F + 2};
    static const answer answers[] = {{DUALPROJ_EXACT, {0, 1e-6}}, {UPGRAD_EXACT, {0, 2e-6}}};
    float a[2];
    sut_surgery_config config;
    sut_surgery_report report;
    sut_surgery_report_init(&report);
    for (int k = 0; k < 2; ++k) {
        configure(&config, answers[k].which);
        assert_int_equal(
            sut_surgery_direction(test_context(), &config, grads, 2, 2, SUT_DTYPE_F32, NULL, 0, a, &report), SUT_OK);
        assert_true(fabs(a[0]) <= 1e-9 && fabs(a[1] / answers[k].a[1] - 1.0) <= 1e-3);
        assert_true(report.strict); /* f32 lanes could not see the angle */
    }
    configure(&config, CONFIG);
    assert_int_equal(sut_surgery_direction(test_context(), &config, grads, 2, 2, SUT_DTYPE_F32, NULL, 0, a, NULL),
                     SUT_OK);
    assert_true(a[1] > 0 && fabs(a[0] / a[1]) <= 1e-6);
}

/* C024: PCGrad projects on the original gradients. C027: lengths of one loss. C025: whole vectors. */
static void two_readings(void **state)
{
    (void)state;
    static const double G[9] = {1, 0, 0, -1, 1, 0, 0, -1, 2};
    static const answer pcgrad = {PCGRAD, {0, 0.7, 2.6}};
    expect(G, 3, 3, &pcgrad, 1, 1e-12);

    static const double unit[4] = {3, 4, -4, 3}, longer[4] = {30, 40, -4, 3};
    static const answer a[] = {{CONFIG, {-1, 7}}, {IMTLG, {-0.5, 3.5}}, {UPGRAD_EXACT, {-0.5, 3.5}}, {PCGRAD, {-1, 7}}};
    static const answer b[] = {
        {CONFIG, {-5.5, 38.5}}, {IMTLG, {-10.0 / 11, 70.0 / 11}}, {UPGRAD_EXACT, {13, 21.5}}, {PCGRAD, {26, 43}}};
    expect(unit, 2, 2, a, 4, 1e-9);
    expect(longer, 2, 2, b, 4, 1e-9);

    static const double whole[4] = {2, 1, -1, 3};
    static const answer c = {PCGRAD, {1, 4}};
    expect(whole, 2, 2, &c, 1, 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parallel_rows),           cmocka_unit_test(two_rows_of_section_9),
        cmocka_unit_test(opposed_gradients),       cmocka_unit_test(zero_gradients),
        cmocka_unit_test(huge_and_tiny_gradients), cmocka_unit_test(dependent_gradients),
        cmocka_unit_test(nearly_opposed_f32),      cmocka_unit_test(two_readings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
