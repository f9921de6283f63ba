/*
 * Projection on the cone, on random and degenerate rows: the certificate, and what holds for every projection.
 *
 * The first test takes 100,000 cones through the m x m solver; the certificate is evaluated in n dimensions, from p itself.
 */
#include "support/surgery.h"
#include "surgery/surgery.h"

#include <math.h>
#include <string.h>

enum { MAX_N = 80 };

typedef struct cone {
    int m, n;
    double G[SUT_MAX_LOSSES * MAX_N], u[MAX_N], delta[MAX_N];
    double width; /* of the narrowest wedge that was built in; 1 for none: rounding is amplified by 1 / width */
} cone;

enum {
    RANDOM,
    CONFLICTING,
    DUPLICATES,
    OPPOSED,
    PARALLEL,
    NEARLY_OPPOSED,
    ZERO_ROWS,
    MANY_ROWS,
    INTEGERS,
    POLAR,
    N_KINDS
};

/* Rows of one of the kinds above, of lengths up to 1e6 apart. */
static void draw(test_random *r, int kind, cone *c)
{
    const bool many = kind == MANY_ROWS || kind == INTEGERS;
    c->m = many ? 3 + test_below(r, 14) : 1 + test_below(r, 8);
    c->n = many ? 2 + test_below(r, 4) : c->m + 1 + test_below(r, 12);
    c->width = 1.0;
    for (int k = 0; k < c->m * c->n; ++k)
        c->G[k] = kind == INTEGERS ? (double)(test_below(r, 7) - 3) : test_normal(r);
    for (int k = 0; k < c->n; ++k) {
        c->u[k] = kind == INTEGERS ? (double)(test_below(r, 9) - 4) : test_normal(r);
        c->delta[k] = pow(10.0, 4.0 * test_uniform(r) - 2.0);
    }
    double *const last = c->G + (c->m - 1) * c->n, *const first = c->G;
    if (kind == CONFLICTING) {
        for (int k = 0; k < c->n; ++k) {
            double mean = 0.0;
            for (int i = 0; i < c->m; ++i)
                mean += c->G[i * c->n + k] / c->m;
            for (int i = 0; i < c->m; ++i)
                c->G[i * c->n + k] -= 0.9 * mean;
            c->u[k] = c->m * mean;
        }
    }
    for (int k = 0; k < c->n && c->m > 1; ++k) {
        if (kind == DUPLICATES)
            last[k] = 3.0 * first[k];
        if (kind == OPPOSED)
            last[k] = -2.0 * first[k];
    }
    if ((kind == PARALLEL || kind == NEARLY_OPPOSED) && c->m > 1) {
        c->width = pow(10.0, -1.0 - 4.0 * test_uniform(r));
        for (int k = 0; k < c->n; ++k)
            last[k] = (kind == PARALLEL ? 1.0 : -1.0) * first[k] + c->width * last[k];
    }
    if (kind == ZERO_ROWS)
        memset(last, 0, (size_t)c->n * sizeof *last);
    if (kind == POLAR) {
        memset(c->u, 0, sizeof c->u);
        for (int i = 0; i < c->m; ++i) {
            const double weight = test_uniform(r);
            for (int k = 0; k < c->n; ++k)
                c->u[k] -= weight * c->G[i * c->n + k];
        }
    }
    for (int i = 0; i < c->m && kind != INTEGERS && test_below(r, 2); ++i) {
        const double length = pow(10.0, 6.0 * test_uniform(r) - 3.0);
        for (int k = 0; k < c->n; ++k)
            c->G[i * c->n + k] *= length;
    }
}

static void certificate_on_100000_cones(void **state)
{
    (void)state;
    static double work[SUT_SURGERY_WORK(SUT_MAX_LOSSES)];
    test_random r = {71};
    static cone c;
    for (int round = 0; round < test_rounds(100000); ++round) {
        double K[17 * 17], b[17], lambda[17], s[17], p[MAX_N];
        draw(&r, round % N_KINDS, &c);
        test_gram(c.G, c.m, c.n, K);
        for (int i = 0; i < c.m; ++i)
            b[i] = test_dot(c.G + i * c.n, c.u, c.n);
        const int rounds = sut_nnqp(K, b, c.m, lambda, s, work);
        assert_true(rounds >= 0 && rounds <= 4 * c.m + 2);
        const double norm_u = test_norm(c.u, c.n);
        double reach = norm_u;
        memcpy(p, c.u, sizeof p);
        for (int i = 0; i < c.m; ++i) {
            assert_true(lambda[i] >= 0.0);
            reach += lambda[i] * sqrt(K[i * c.m + i]);
            for (int k = 0; k < c.n; ++k)
                p[k] += lambda[i] * c.G[i * c.n + k];
        }
        /* Primal feasibility and complementarity, to the rounding of K and b: 1e-12 of the sums that they come from. Below
         * an angle of 1e-8 dependent rows count as one, so their slack may be that large. */
        const bool dependent = round % N_KINDS == OPPOSED || round % N_KINDS == DUPLICATES;
        const double tolerance = (dependent ? 2e-8 : 1e-11) * reach;
        for (int i = 0; i < c.m; ++i) {
            const double d = sqrt(K[i * c.m + i]), slack = test_dot(c.G + i * c.n, p, c.n);
            if (!(slack >= -tolerance * d) || !(lambda[i] * d * slack <= tolerance * d * reach))
                fail_msg("round %d, kind %d, m %d, n %d: slack %.3g, lambda %.3g (unit rows, |u| = %.3g)", round,
                         round % N_KINDS, c.m, c.n, slack / d, lambda[i] * d, norm_u);
        }
        if (round % N_KINDS == POLAR)
            assert_true(test_norm(p, c.n) <= 1e-9 * reach);
    }
}

/* The public call in f64: certificate of the report, Pythagoras, idempotence. */
static void projections_are_projections(void **state)
{
    (void)state;
    test_random r = {72};
    static cone c;
    int kinds[3] = {0};
    for (int round = 0; round < test_rounds(4000); ++round) {
        double p[MAX_N], again[MAX_N];
        sut_cone_report report, second;
        draw(&r, round % N_KINDS, &c);
        const double *const metric = round / N_KINDS % 2 ? c.delta : NULL;
        test_project(c.G, c.m, c.n, c.u, metric, p, &report);
        ++kinds[report.kind];
        double uu = 0.0, pp = 0.0, dd = 0.0, up = 0.0, pd = 0.0, norm_p = 0.0;
        for (int k = 0; k < c.n; ++k) {
            const double delta = metric ? metric[k] : 1.0;
            uu += delta * c.u[k] * c.u[k];
            pp += delta * p[k] * p[k];
            dd += delta * (p[k] - c.u[k]) * (p[k] - c.u[k]);
            up += delta * c.u[k] * p[k];
            pd += delta * p[k] * (p[k] - c.u[k]);
            norm_p += p[k] * p[k];
        }
        norm_p = sqrt(norm_p);
        /* A wedge of width w amplifies the rounding of p by 1 / w in lambda s. */
        if (!(report.primal <= 1e-12 && report.dual == 0.0 && report.complementarity <= 1e-12 / c.width &&
              report.gap <= 1e-12 / c.width))
            fail_msg("round %d, kind %d, m %d: primal %.3g, complementarity %.3g, gap %.3g", round, round % N_KINDS,
                     c.m, report.primal, report.complementarity, report.gap);
        const double tolerance = 1e-11 / c.width * uu;
        assert_true(fabs(uu - pp - dd) <= tolerance && fabs(up - pp) <= tolerance && fabs(pd) <= tolerance);
        assert_true(fabs(report.distance2 - dd) <= tolerance);
        /* Again: within rounding of the same point; the same bits when nothing is negative. */
        test_project(c.G, c.m, c.n, p, metric, again, &second);
        if (report.strict_met)
            assert_memory_equal(again, p, (size_t)c.n * sizeof *p);
        assert_true(test_distance(p, again, c.n) <= 1e-10 * norm_p);
        if (report.kind == SUT_CONE_UNCHANGED)
            assert_memory_equal(p, c.u, (size_t)c.n * sizeof *p);
        for (int k = 0; k < c.n && report.kind == SUT_CONE_ZERO; ++k)
            assert_true(p[k] == 0.0);
        for (int i = 0; i < c.m; ++i)
            assert_true(report.active[i] == (report.lambda[i] > 0.0) && (!report.active[i] || report.tight[i]));
    }
    assert_true(kinds[0] > test_rounds(200) && kinds[1] > test_rounds(1000) && kinds[2] > test_rounds(200));
}

/* Unchanged by row scaling, duplication, permutation; homogeneous in u; scaled with the metric. */
static void invariances(void **state)
{
    (void)state;
    test_random r = {73};
    static cone c;
    for (int round = 0; round < test_rounds(2000); ++round) {
        static double H[(SUT_MAX_LOSSES + 1) * MAX_N];
        double p[MAX_N], q[MAX_N], v[MAX_N], delta[MAX_N];
        sut_cone_report a, b;
        const int kind = round % N_KINDS;
        draw(&r, kind, &c);
        const double *const metric = round / N_KINDS % 2 ? c.delta : NULL;
        const size_t row = (size_t)c.n * sizeof *c.G;
        test_project(c.G, c.m, c.n, c.u, metric, p, &a);
        const double norm_u = test_norm(c.u, c.n),
                     tolerance = 1e-10 / c.width * (1.0 + norm_u) * (metric ? 100.0 : 1.0);

        for (int i = 0; i < c.m; ++i) { /* rows times 0.1 .. 10 */
            const double scale = pow(10.0, 2.0 * test_uniform(&r) - 1.0);
            for (int k = 0; k < c.n; ++k)
                H[i * c.n + k] = scale * c.G[i * c.n + k];
        }
        test_project(H, c.m, c.n, c.u, metric, q, &b);
        test_close(q, p, c.n, tolerance);

        memcpy(H, c.G, (size_t)c.m * row); /* one row twice */
        memcpy(H + c.m * c.n, c.G + test_below(&r, c.m) * c.n, row);
        test_project(H, c.m + 1, c.n, c.u, metric, q, &b);
        test_close(q, p, c.n, tolerance);

        for (int i = 0; i < c.m; ++i) /* in reverse order */
            memcpy(H + i * c.n, c.G + (c.m - 1 - i) * c.n, row);
        test_project(H, c.m, c.n, c.u, metric, q, &b);
        test_close(q, p, c.n, tolerance);

        for (int k = 0; k < c.n; ++k)
            v[k] = 7.3 * c.u[k];
        test_project(c.G, c.m, c.n, v, metric, q, &b);
        for (int k = 0; k < c.n; ++k)
            q[k] /= 7.3;
        test_close(q, p, c.n, tolerance);

        for (int k = 0; k < c.n; ++k)
            delta[k] = 5.1 * (metric ? metric[k] : 1.0);
        test_project(c.G, c.m, c.n, c.u, delta, q, &b);
        test_close(q, p, c.n, tolerance);

        if (!metric) { /* 1-Lipschitz */
            double moved = 0.0;
            for (int k = 0; k < c.n; ++k) {
                v[k] = c.u[k] + 0.1 * test_normal(&r);
                moved += (v[k] - c.u[k]) * (v[k] - c.u[k]);
            }
            test_project(c.G, c.m, c.n, v, NULL, q, &b);
            double distance = 0.0;
            for (int k = 0; k < c.n; ++k)
                distance += (q[k] - p[k]) * (q[k] - p[k]);
            assert_true(sqrt(distance) <= sqrt(moved) + tolerance);
        }
    }
}

/* Up to the largest m: the certificate, in f64 and f32. */
static void many_losses(void **state)
{
    (void)state;
    test_random r = {74};
    for (int round = 0; round < test_rounds(120); ++round) {
        const int m = 9 + test_below(&r, 56), n = MAX_N;
        static double G[SUT_MAX_LOSSES * MAX_N], u[MAX_N], p[MAX_N];
        static float F[SUT_MAX_LOSSES * MAX_N], f[MAX_N], q[MAX_N];
        const void *rows[SUT_MAX_LOSSES];
        sut_cone_report report;
        for (int k = 0; k < n; ++k) {
            u[k] = f[k] = (float)test_normal(&r);
            double mean = 0.0;
            for (int i = 0; i < m; ++i) {
                G[i * n + k] = test_normal(&r);
                mean += G[i * n + k] / m;
            }
            for (int i = 0; i < m; ++i)
                G[i * n + k] = F[i * n + k] = (float)(G[i * n + k] - (round % 3) * 0.5 * mean);
        }
        test_project(G, m, n, u, NULL, p, &report);
        /* Every third time the rows sum to the rounding of f32, 1e-8: an angle that a Gram matrix does not see, and that
         * makes multipliers of 1e6 and more, whose products with rounding are not small. */
        const double small = round % 3 == 2 ? 1e-8 : 1e-12;
        assert_true(report.complementarity <= small && report.gap <= small);
        assert_true(report.primal <= 1e-12);
        if (round % 3 == 2)
            continue;
        for (int i = 0; i < m; ++i)
            rows[i] = F + i * n;
        sut_cone_report_init(&report);
        assert_int_equal(sut_cone_project(test_context(), NULL, rows, m, n, SUT_DTYPE_F32, f, NULL, q, &report),
                         SUT_OK);
        assert_true(report.primal <= 0x1p-23);
        for (int k = 0; k < n; ++k)
            assert_true(fabs(q[k] - p[k]) <= 0x1p-23 * test_norm(u, n));
    }
}

/* Metrics of twelve orders of magnitude: rows that a Gram matrix of doubles cannot tell apart, and p that nearly vanish. */
static void wide_metrics(void **state)
{
    (void)state;
    test_random r = {76};
    int kinds[4] = {0};
    double primal = 0, complementarity = 0;
    for (int round = 0; round < test_rounds(4000); ++round) {
        const int m = 2 + test_below(&r, round % 8 ? 7 : 20), n = 2 + test_below(&r, 11);
        double G[22 * 12], u[12], p[12], delta[12];
        sut_cone_report report;
        for (int k = 0; k < n; ++k) {
            u[k] = test_normal(&r);
            delta[k] = pow(10, 12 * test_uniform(&r) - 6);
            for (int i = 0; i < m; ++i)
                G[i * n + k] = test_normal(&r);
        }
        test_project(G, m, n, u, delta, p, &report);
        ++kinds[report.kind];
        primal = fmax(primal, report.primal);
        complementarity = fmax(complementarity, report.complementarity);
    }
    if (!(primal <= 1e-10 && complementarity <= 1e-10))
        fail_msg("primal %g, complementarity %g", primal, complementarity);
    assert_true(kinds[SUT_CONE_BOUNDARY] > test_rounds(1000) && kinds[SUT_CONE_ZERO] >= test_rounds(50));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificate_on_100000_cones),
        cmocka_unit_test(projections_are_projections),
        cmocka_unit_test(invariances),
        cmocka_unit_test(many_losses),
        cmocka_unit_test(wide_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
