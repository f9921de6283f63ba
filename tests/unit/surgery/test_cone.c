/*
 * sut_cone_project(): refusals, what must keep its bits, metrics with infinite entries, extreme scales, strict mode,
 * memory. Values are held against the golden file and, on random cones, in tests/property/test_cone.c.
 */
#include "support/surgery.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double G[2][4] = {{1, 0, 0, 1}, {-1, 1, 0, 0}};
static const void *const grads[2] = {G[0], G[1]};
static const double conflicting[4] = {-2, -1, 3, 0.5};

static void refused(const sut_cone_config *config, const void *const *rows, int m, int64_t n, sut_dtype dtype,
                    const void *u, const void *metric, sut_status status, const char *word)
{
    double p[4], kept[4];
    sut_cone_report report, before;
    memset(p, 0x5a, sizeof p);
    memset(kept, 0x5a, sizeof kept);
    memset(&report, 0x5a, sizeof report);
    report.struct_size = sizeof report;
    before = report;
    assert_int_equal(sut_cone_project(test_context(), config, rows, m, n, dtype, u, metric, p, &report), status);
    if (!strstr(sut_context_last_error(test_context()), word))
        fail_msg("\"%s\" does not contain \"%s\"", sut_context_last_error(test_context()), word);
    assert_memory_equal(p, kept, sizeof p);
    assert_memory_equal(&report, &before, sizeof report);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    const void *const holes[2] = {G[0], NULL};
    static const double metric[4] = {1, 2, 0, 1}, negative[4] = {1, -2, 1, 1}, nan_metric[4] = {1, 2, 3, NAN};
    static const double bad_u[4] = {1, 2, INFINITY, 1}, nan_row[4] = {NAN, 0, 0, 1};
    const void *const nan_rows[2] = {G[0], nan_row};
    sut_cone_config config;
    refused(NULL, NULL, 2, 4, SUT_DTYPE_F64, conflicting, NULL, SUT_ERROR_INVALID_ARGUMENT, "grads is NULL");
    refused(NULL, holes, 2, 4, SUT_DTYPE_F64, conflicting, NULL, SUT_ERROR_INVALID_ARGUMENT, "grads[1]");
    refused(NULL, grads, 2, 4, SUT_DTYPE_F64, NULL, NULL, SUT_ERROR_INVALID_ARGUMENT, "u is NULL");
    const double *const beside = (const double *)((const char *)conflicting + 1);
    const void *const beside_rows[2] = {G[0], (const char *)G[1] - 4};
    refused(NULL, grads, 2, 3, SUT_DTYPE_F64, beside, NULL, SUT_ERROR_INVALID_ARGUMENT, "u is not aligned");
    refused(NULL, grads, 2, 3, SUT_DTYPE_F64, conflicting, beside, SUT_ERROR_INVALID_ARGUMENT, "metric is not aligned");
    refused(NULL, beside_rows, 2, 3, SUT_DTYPE_F64, conflicting, NULL, SUT_ERROR_INVALID_ARGUMENT, "grads[1] is not");
    refused(NULL, grads, 0, 4, SUT_DTYPE_F64, conflicting, NULL, SUT_ERROR_OUT_OF_RANGE, "m is 0");
    refused(NULL, grads, 65, 4, SUT_DTYPE_F64, conflicting, NULL, SUT_ERROR_OUT_OF_RANGE, "m is 65");
    refused(NULL, grads, 2, 0, SUT_DTYPE_F64, conflicting, NULL, SUT_ERROR_INVALID_ARGUMENT, "n is 0");
    refused(NULL, grads, 2, INT64_MAX, SUT_DTYPE_F64, conflicting, NULL, SUT_ERROR_INVALID_ARGUMENT, "n is");
    refused(NULL, grads, 2, 4, SUT_DTYPE_F16, conflicting, NULL, SUT_ERROR_UNSUPPORTED, "f16");
    refused(NULL, grads, 2, 4, SUT_DTYPE_F64, conflicting, metric, SUT_ERROR_OUT_OF_RANGE, "metric is 0 at index 2");
    refused(NULL, grads, 2, 4, SUT_DTYPE_F64, conflicting, negative, SUT_ERROR_OUT_OF_RANGE, "metric is -2 at index 1");
    refused(NULL, grads, 2, 4, SUT_DTYPE_F64, conflicting, nan_metric, SUT_ERROR_NOT_FINITE,
            "metric is NaN at index 3");
    refused(NULL, grads, 2, 4, SUT_DTYPE_F64, bad_u, NULL, SUT_ERROR_NOT_FINITE, "u is NaN or Inf at index 2");
    refused(NULL, nan_rows, 2, 4, SUT_DTYPE_F64, conflicting, NULL, SUT_ERROR_NOT_FINITE, "loss 1");
    for (int k = 0; k < 3; ++k) {
        sut_cone_config_init(&config);
        config.feas_tol = (const double[]){-1e-9, NAN, INFINITY}[k];
        refused(&config, grads, 2, 4, SUT_DTYPE_F64, conflicting, NULL, SUT_ERROR_OUT_OF_RANGE, "feas_tol");
    }
    sut_cone_config_init(&config);
    config.strict = 2;
    refused(&config, grads, 2, 4, SUT_DTYPE_F64, conflicting, NULL, SUT_ERROR_OUT_OF_RANGE, "strict");
    sut_cone_config_init(&config);
    config.struct_size = 1;
    refused(&config, grads, 2, 4, SUT_DTYPE_F64, conflicting, NULL, SUT_ERROR_INVALID_ARGUMENT, "struct_size");
    assert_int_equal(sut_cone_project(NULL, NULL, grads, 2, 4, SUT_DTYPE_F64, conflicting, NULL, NULL, NULL),
                     SUT_ERROR_INVALID_ARGUMENT);
    sut_cone_report report = {0};
    assert_int_equal(
        sut_cone_project(test_context(), NULL, grads, 2, 4, SUT_DTYPE_F64, conflicting, NULL, NULL, &report),
        SUT_ERROR_INVALID_ARGUMENT);
}

static void init_leaves_no_rubbish(void **state)
{
    (void)state;
    sut_cone_config a, b;
    sut_cone_report c, d;
    memset(&a, 0x5a, sizeof a);
    memset(&b, 0xa5, sizeof b);
    memset(&c, 0x5a, sizeof c);
    memset(&d, 0xa5, sizeof d);
    sut_cone_config_init(&a);
    sut_cone_config_init(&b);
    sut_cone_report_init(&c);
    sut_cone_report_init(&d);
    assert_memory_equal(&a, &b, sizeof a);
    assert_memory_equal(&c, &d, sizeof c);
    assert_true(a.feas_tol == 0.0 && a.strict == 0 && a.struct_size == sizeof a);
}

static void overlaps(void **state)
{
    (void)state;
    double block[24];
    for (int k = 0; k < 24; ++k)
        block[k] = k % 5 - 2.0 + 0.1 * k + (k >= 8 && k < 12 ? 3.0 : 0.0);
    const void *const rows[2] = {block, block + 4};
    for (int k = 8; k < 12; ++k)
        block[k] = fabs(block[k]) + 1.0;
    const double *const metric = block + 8;
    double kept[24];
    memcpy(kept, block, sizeof kept);
    for (int shift = 0; shift < 12; ++shift)
        assert_int_equal(
            sut_cone_project(test_context(), NULL, rows, 2, 4, SUT_DTYPE_F64, block + 16, metric, block + shift, NULL),
            SUT_ERROR_INVALID_ARGUMENT);
    for (int shift = 13; shift < 20; ++shift)
        assert_int_equal(
            sut_cone_project(test_context(), NULL, rows, 2, 4, SUT_DTYPE_F64, block + 16, metric, block + shift, NULL),
            shift == 16 ? SUT_OK : SUT_ERROR_INVALID_ARGUMENT);
    assert_memory_equal(block, kept, 16 * sizeof *block);
    assert_memory_equal(block + 20, kept + 20, 4 * sizeof *block);
}

/* Inside: the same bits, -0 and denormals included, in place or not; and only just inside with feas_tol. */
static void inside_means_the_same_bits(void **state)
{
    (void)state;
    const double u[4] = {1.0 / 3, 1, -0.0, 5e-324};
    double p[4];
    sut_cone_report report;
    test_project(G[0], 2, 4, u, NULL, p, &report);
    assert_memory_equal(p, u, sizeof u);
    assert_int_equal(report.kind, SUT_CONE_UNCHANGED);
    assert_true(report.strict_met && report.relative_change == 0.0 && report.rounds == 0);
    test_close(report.slack, (const double[]){1.0 / 3, 2.0 / 3}, 2, 2e-16);
    /* A zero vector stays what it is. */
    const double zero[4] = {0, -0.0, 0, 0};
    test_project(G[0], 2, 4, zero, NULL, p, &report);
    assert_memory_equal(p, zero, sizeof zero);
    assert_int_equal(report.kind, SUT_CONE_UNCHANGED);

    const double nearly[4] = {-1e-7, 1, 0, 0};
    sut_cone_config config;
    sut_cone_config_init(&config);
    config.feas_tol = 1e-6;
    assert_int_equal(sut_cone_project(test_context(), &config, grads, 2, 4, SUT_DTYPE_F64, nearly, NULL, p, &report),
                     SUT_OK);
    assert_memory_equal(p, nearly, sizeof nearly);
    assert_false(report.strict_met);
    assert_true(report.primal > 0.0 && report.primal <= 1e-7);
    config.feas_tol = 1e-8;
    assert_int_equal(sut_cone_project(test_context(), &config, grads, 2, 4, SUT_DTYPE_F64, nearly, NULL, p, &report),
                     SUT_OK);
    assert_int_equal(report.kind, SUT_CONE_BOUNDARY);
    assert_memory_not_equal(p, nearly, sizeof nearly);
}

static void by_hand(void **state)
{
    (void)state;
    /* One row: u less its part along g. */
    const double g[3] = {3, 4, 0}, u[3] = {-3, -4, 7};
    double p[3];
    sut_cone_report report;
    test_project(g, 1, 3, u, NULL, p, &report);
    test_close(p, (const double[]){0, 0, 7}, 3, 1e-15);
    assert_true(report.lambda[0] == 1.0 && report.active[0] && report.tight[0]);
    assert_true(fabs(report.distance2 - 25) <= 1e-14 && fabs(report.relative_change - 5 / sqrt(74.0)) <= 1e-15);
    assert_true(fabs(report.cos_u[0] + 25 / (5 * sqrt(74.0))) <= 1e-15);
    /* The same with delta = (1, 4, 1): lambda = 25 / (9 + 4) , p = u + lambda (3, 1, 0). */
    test_project(g, 1, 3, u, (const double[]){1, 4, 1}, p, &report);
    test_close(p, (const double[]){-3 + 75.0 / 13, -4 + 25.0 / 13, 7}, 3, 1e-14);
    assert_true(fabs(report.lambda[0] - 25.0 / 13) <= 1e-15);
    assert_true(fabs(report.distance2 - 25.0 * 25 / 13) <= 1e-13);
    /* An infinite delta freezes a coordinate: only the second one moves. */
    test_project(g, 1, 3, u, (const double[]){INFINITY, 4, 1}, p, &report);
    assert_true(p[0] == -3 && p[2] == 7 && fabs(p[1] - 2.25) <= 1e-15);
    /* All frozen: nothing can be done, and the report says that the row is hurt. */
    test_project(g, 1, 3, u, (const double[]){INFINITY, INFINITY, INFINITY}, p, &report);
    assert_memory_equal(p, u, sizeof u);
    assert_true(report.primal > 0.5 && report.kind == SUT_CONE_INFEASIBLE);
    /* u in the polar cone: exact zeros. */
    test_project(g, 1, 3, (const double[]){-3, -4, 0}, NULL, p, &report);
    test_close(p, (const double[]){0, 0, 0}, 3, 0.0);
    assert_true(report.kind == SUT_CONE_ZERO && report.relative_change == 1.0 && report.primal == 0.0);
    assert_true(report.tight[0] && report.slack[0] == 0.0 && report.lambda[0] == 1.0);
}

/* Frozen coordinates can make constraints impossible, alone or together: the report must not call that feasible. */
static void frozen_constraints(void **state)
{
    (void)state;
    const double inf = INFINITY;
    sut_cone_report report;
    double p[3];

    /* The only coordinate of the first row is frozen on the wrong side; the second row is projected all the same. */
    const double G[6] = {1, 0, 0, 0, 1, 1}, u[3] = {-2, -1, 0.5}, frozen[3] = {inf, 1, 1};
    test_project(G, 2, 3, u, frozen, p, &report);
    assert_int_equal(report.kind, SUT_CONE_INFEASIBLE);
    test_close(p, (const double[]){-2, -0.75, 0.75}, 3, 1e-15);
    assert_true(report.cos_p[0] < -0.8 && report.primal == -report.cos_p[0] && report.lambda[0] == 0);
    assert_int_equal(report.strict_met, 0);
    /* Nothing but the frozen row is violated: u is given back, and is outside all the same. */
    const double inside[3] = {-2, 1, 0.5};
    test_project(G, 2, 3, inside, frozen, p, &report);
    assert_int_equal(report.kind, SUT_CONE_INFEASIBLE);
    assert_memory_equal(p, inside, sizeof p);
    /* On the right side it is as ever. */
    const double right[3] = {2, -1, 0.5}, feasible[3] = {2, 1, 0.5};
    test_project(G, 2, 3, right, frozen, p, &report);
    assert_int_equal(report.kind, SUT_CONE_BOUNDARY);
    assert_true(report.primal <= 1e-15);
    test_project(G, 2, 3, feasible, frozen, p, &report);
    assert_int_equal(report.kind, SUT_CONE_UNCHANGED);

    /* Each row can be met, not both: p_0 >= 1 and p_0 <= -1. */
    const double pair[4] = {1, 1, -1, 1}, v[2] = {0.25, -1}, second[2] = {1, inf};
    test_project(pair, 2, 2, v, second, p, &report);
    assert_int_equal(report.kind, SUT_CONE_INFEASIBLE);
    assert_true(isfinite(p[0]) && p[1] == -1);
    assert_true(report.primal > 0.1);

    /* A frozen coordinate stays what it is, also where everything else vanishes. */
    const double opposed[6] = {1, 0, 0, -1, 1, 0}, tiny[3] = {-1, -1, 1e-30}, third[3] = {1, 1, inf};
    test_project(opposed, 2, 3, tiny, third, p, &report);
    assert_true(p[2] == 1e-30);
}

static void in_place_is_the_same(void **state)
{
    (void)state;
    const double metric[4] = {1, 3, 0.5, 2};
    for (int strict = 0; strict < 2; ++strict) {
        for (int with = 0; with < 2; ++with) {
            double p[4], u[4];
            sut_cone_config config;
            sut_cone_report a, b;
            memcpy(u, conflicting, sizeof u);
            sut_cone_config_init(&config);
            sut_cone_report_init(&a);
            sut_cone_report_init(&b);
            config.strict = strict;
            assert_int_equal(sut_cone_project(test_context(), &config, grads, 2, 4, SUT_DTYPE_F64, conflicting,
                                              with ? metric : NULL, p, &a),
                             SUT_OK);
            assert_int_equal(
                sut_cone_project(test_context(), &config, grads, 2, 4, SUT_DTYPE_F64, u, with ? metric : NULL, u, &b),
                SUT_OK);
            assert_memory_equal(p, u, sizeof p);
            assert_true(a.kind == SUT_CONE_BOUNDARY);
            assert_true(fabs(a.distance2 - b.distance2) <= 1e-14 &&
                        fabs(a.relative_change - b.relative_change) <= 1e-14);
            assert_memory_equal(a.lambda, b.lambda, sizeof a.lambda);
            assert_memory_equal(a.slack, b.slack, sizeof a.slack);
        }
    }
}

/* Scales at both ends of the range, and rows of very different lengths: the same projection, scaled. */
static void extreme_scales(void **state)
{
    (void)state;
    double plain[4], p[4], rows[8], u[4];
    sut_cone_report a, b;
    test_project(G[0], 2, 4, conflicting, NULL, plain, &a);
    static const int exponents[][3] = {{300, -300, 0}, {-300, 300, 0}, {400, 400, 400},  {-400, -400, -400},
                                       {0, 0, 1000},   {0, 0, -1000},  {200, -200, 500}, {-1000, -900, -950}};
    for (size_t k = 0; k < sizeof exponents / sizeof exponents[0]; ++k) {
        const int *const e = exponents[k];
        for (int j = 0; j < 4; ++j) {
            rows[j] = ldexp(G[0][j], e[0]);
            rows[4 + j] = ldexp(G[1][j], e[1]);
            u[j] = ldexp(conflicting[j], e[2]);
        }
        test_project(rows, 2, 4, u, NULL, p, &b);
        /* Rows 2^600 apart are more than 1e150 apart: the shorter one imposes nothing. */
        if (abs(e[0] - e[1]) >= 500) {
            assert_true(b.lambda[e[0] < e[1] ? 0 : 1] == 0.0);
            continue;
        }
        for (int j = 0; j < 4; ++j)
            assert_true(fabs(ldexp(p[j], -e[2]) - plain[j]) <= 1e-15);
        for (int i = 0; i < 2; ++i) {
            const double lambda = ldexp(a.lambda[i], e[2] - e[i]);
            assert_true(isinf(lambda) || fabs(b.lambda[i] - lambda) <= 1e-15 * lambda);
            assert_true(isfinite(b.lambda[i]) && isfinite(b.slack[i]));
        }
    }
    /* f32 at the ends of its range. */
    float f[4], q[4], h[8];
    for (int j = 0; j < 4; ++j) {
        h[j] = (float)G[0][j] * 1e30f;
        h[4 + j] = (float)G[1][j] * 1e-38f;
        f[j] = (float)conflicting[j] * 1e37f;
    }
    const void *const floats[2] = {h, h + 4};
    assert_int_equal(sut_cone_project(test_context(), NULL, floats, 2, 4, SUT_DTYPE_F32, f, NULL, q, &b), SUT_OK);
    for (int j = 0; j < 4; ++j)
        assert_true(fabs((double)q[j] / 1e37 - plain[j]) <= 1e-6);
}

static void a_metric_of_any_scale(void **state)
{
    (void)state;
    const double metric[4] = {1, 3, 0.5, 2};
    double plain[4], p[4], delta[4];
    sut_cone_report a, b;
    test_project(G[0], 2, 4, conflicting, metric, plain, &a);
    for (int e = -900; e <= 900; e += 300) {
        for (int j = 0; j < 4; ++j)
            delta[j] = ldexp(metric[j], e);
        test_project(G[0], 2, 4, conflicting, delta, p, &b);
        assert_memory_equal(p, plain, sizeof p);
        for (int i = 0; i < 2; ++i)
            assert_true(b.lambda[i] == ldexp(a.lambda[i], e));
        assert_true(b.complementarity == a.complementarity);
    }
}

/* f32 rows at random: with strict, no slack of the stored p is negative unless the report says so, and p hardly moves. */
static void strict_mode(void **state)
{
    (void)state;
    test_random r = {61};
    int met = 0, asked = 0, negative_without = 0;
    for (int round = 0; round < 300; ++round) {
        const int m = 1 + test_below(&r, 6), n = 8 + test_below(&r, 60);
        static float rows[6][68], u[68], plain[68], strict[68], again[68];
        const void *pointers[6];
        sut_cone_config config;
        sut_cone_report report, first;
        for (int i = 0; i < m; ++i) {
            pointers[i] = rows[i];
            for (int k = 0; k < n; ++k)
                rows[i][k] = (float)test_normal(&r);
        }
        for (int k = 0; k < n; ++k)
            u[k] = (float)(test_normal(&r) - 0.3 * rows[0][k]);
        sut_cone_config_init(&config);
        sut_cone_report_init(&report);
        sut_cone_report_init(&first);
        assert_int_equal(
            sut_cone_project(test_context(), &config, pointers, m, n, SUT_DTYPE_F32, u, NULL, plain, &first), SUT_OK);
        assert_true(first.primal <= 0x1p-23);
        config.strict = 1;
        assert_int_equal(
            sut_cone_project(test_context(), &config, pointers, m, n, SUT_DTYPE_F32, u, NULL, strict, &report), SUT_OK);
        if (report.kind != SUT_CONE_BOUNDARY)
            continue;
        ++asked;
        met += report.strict_met;
        negative_without += !first.strict_met;
        double moved = 0.0, length = 0.0;
        for (int k = 0; k < n; ++k) {
            moved += (double)(strict[k] - plain[k]) * (strict[k] - plain[k]);
            length += (double)plain[k] * plain[k];
        }
        assert_true(moved <= 1e-10 * length);
        for (int i = 0; i < m && report.strict_met; ++i) {
            double s = 0.0;
            for (int k = 0; k < n; ++k)
                s += (double)rows[i][k] * strict[k];
            assert_true(s >= -1e-14 * sqrt(length) * 10.0 && report.slack[i] >= 0.0);
        }
        if (report.strict_met) { /* a second projection changes nothing */
            assert_int_equal(
                sut_cone_project(test_context(), NULL, pointers, m, n, SUT_DTYPE_F32, strict, NULL, again, &report),
                SUT_OK);
            assert_memory_equal(again, strict, (size_t)n * sizeof(float));
        }
    }
    assert_true(asked > 200 && negative_without > 50);
    assert_true(met == asked); /* independent rows: the cone has an interior */
}

static void strict_is_given_up_without_an_interior(void **state)
{
    (void)state;
    /* An opposed pair: the cone is a plane, and f32 cannot stay on its right side for both rows. */
    static const float rows[2][3] = {{0.3f, -0.7f, 1.1f}, {-0.3f, 0.7f, -1.1f}};
    static const float u[3] = {1, 0.2f, -0.4f};
    const void *const pointers[2] = {rows[0], rows[1]};
    float plain[3], strict[3];
    sut_cone_config config;
    sut_cone_report report;
    sut_cone_config_init(&config);
    sut_cone_report_init(&report);
    assert_int_equal(sut_cone_project(test_context(), NULL, pointers, 2, 3, SUT_DTYPE_F32, u, NULL, plain, &report),
                     SUT_OK);
    assert_false(report.strict_met);
    config.strict = 1;
    assert_int_equal(sut_cone_project(test_context(), &config, pointers, 2, 3, SUT_DTYPE_F32, u, NULL, strict, &report),
                     SUT_OK);
    assert_false(report.strict_met);
    assert_memory_equal(plain, strict, sizeof plain);
    assert_true(report.primal <= 0x1p-23);
}

/* A wedge of width 1e-5 in f32: one rounding inwards would move p by 1e-2. */
static void strict_is_given_up_in_a_narrow_wedge(void **state)
{
    (void)state;
    test_random r = {62};
    int given_up = 0;
    for (int round = 0; round < 50; ++round) {
        float rows[2][12], u[12], plain[12], strict[12];
        const void *const pointers[2] = {rows[0], rows[1]};
        sut_cone_config config;
        sut_cone_report report;
        for (int k = 0; k < 12; ++k) {
            rows[0][k] = (float)test_normal(&r);
            rows[1][k] = (float)(-rows[0][k] + 1e-5 * test_normal(&r));
            u[k] = (float)(test_normal(&r) - 3e5 * (rows[0][k] + rows[1][k]));
        }
        sut_cone_config_init(&config);
        sut_cone_report_init(&report);
        assert_int_equal(sut_cone_project(test_context(), NULL, pointers, 2, 12, SUT_DTYPE_F32, u, NULL, plain, NULL),
                         SUT_OK);
        config.strict = 1;
        assert_int_equal(
            sut_cone_project(test_context(), &config, pointers, 2, 12, SUT_DTYPE_F32, u, NULL, strict, &report),
            SUT_OK);
        double moved = 0.0, length = 0.0;
        for (int k = 0; k < 12; ++k) {
            moved += (double)(strict[k] - plain[k]) * (strict[k] - plain[k]);
            length += (double)plain[k] * plain[k];
        }
        given_up += !report.strict_met;
        assert_true(sqrt(moved) <= (report.strict_met ? 1.001e-3 : 0.0) * sqrt(length));
    }
    assert_true(given_up > 20);
}

static void parts_may_be_left_out(void **state)
{
    (void)state;
    double p[4];
    sut_cone_report full, alone;
    test_project(G[0], 2, 4, conflicting, NULL, p, &full);
    test_project(G[0], 2, 4, conflicting, NULL, NULL, &alone);
    test_close(alone.lambda, full.lambda, 2, 1e-15);
    test_project(G[0], 2, 4, conflicting, NULL, p, NULL);
    /* A shorter report gets its part. */
    sut_cone_report_init(&alone);
    alone.struct_size = offsetof(sut_cone_report, slack);
    assert_int_equal(sut_cone_project(test_context(), NULL, grads, 2, 4, SUT_DTYPE_F64, conflicting, NULL, p, &alone),
                     SUT_OK);
    assert_memory_equal(alone.lambda, full.lambda, 2 * sizeof(double));
    assert_true(alone.cos_p[1] == 0.0 && alone.rounds == 0);
}

typedef struct budget {
    int left, live;
} budget;

static void *allocate(void *user, size_t size)
{
    budget *const b = user;
    if (b->left-- <= 0)
        return NULL;
    ++b->live;
    return malloc(size);
}

static void *resize(void *user, void *pointer, size_t size)
{
    budget *const b = user;
    if (b->left-- <= 0)
        return NULL;
    b->live += pointer == NULL;
    return realloc(pointer, size);
}

static void release(void *user, void *pointer)
{
    ((budget *)user)->live -= pointer != NULL;
    free(pointer);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    bool done = false;
    int failures = 0;
    for (int n = 0; n < 20 && !done; ++n) {
        budget b = {1000, 0};
        sut_context_config context;
        sut_context *ctx;
        sut_cone_config config;
        sut_context_config_init(&context);
        context.n_threads = 1;
        context.allocator = (sut_allocator){allocate, resize, release, &b};
        assert_int_equal(sut_context_create(&ctx, &context), SUT_OK);
        b.left = n;
        double u[4];
        memcpy(u, conflicting, sizeof u);
        sut_cone_config_init(&config);
        config.strict = 1; /* in place: needs a copy of u */
        const sut_status status = sut_cone_project(ctx, &config, grads, 2, 4, SUT_DTYPE_F64, u, NULL, u, NULL);
        assert_true(status == SUT_OK || status == SUT_ERROR_OUT_OF_MEMORY);
        if (status != SUT_OK) {
            ++failures;
            assert_memory_equal(u, conflicting, sizeof u);
        }
        done = status == SUT_OK;
        sut_context_destroy(ctx);
        assert_int_equal(b.live, 0);
    }
    assert_true(done && failures >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(init_leaves_no_rubbish),
        cmocka_unit_test(overlaps),
        cmocka_unit_test(inside_means_the_same_bits),
        cmocka_unit_test(by_hand),
        cmocka_unit_test(frozen_constraints),
        cmocka_unit_test(in_place_is_the_same),
        cmocka_unit_test(extreme_scales),
        cmocka_unit_test(a_metric_of_any_scale),
        cmocka_unit_test(strict_mode),
        cmocka_unit_test(strict_is_given_up_without_an_interior),
        cmocka_unit_test(strict_is_given_up_in_a_narrow_wedge),
        cmocka_unit_test(parts_may_be_left_out),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
