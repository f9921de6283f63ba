/* Conflict statistics: what counts as a conflict, as a counted step, as a projected one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "statistics.h"

#include <math.h>

static sut_report report_of(double lr, double pair, double a, double u, double p, double change)
{
    sut_report r;
    sut_report_init(&r);
    r.lr = lr;
    r.n_losses = 2;
    r.min_pair_cos = pair;
    r.conflict_fraction = pair < PINN_CONFLICT_COSINE;
    r.cos_a[0] = r.cos_u[0] = r.cos_p[0] = 0.5;
    r.cos_a[1] = a;
    r.cos_u[1] = u;
    r.cos_p[1] = p;
    r.relative_change = change;
    r.cos_pu = 0.9;
    r.ratio_pu = 0.8;
    return r;
}

static void steps_and_rates(void **state)
{
    (void)state;
    const sut_report reports[] = {
        report_of(0, -1, -1, -1, -1, 1),                /* rate 0: not counted */
        report_of(1e-3, -0.5, 0.1, -0.2, 0, 0.25),      /* projected */
        report_of(1e-3, -1e-6, -1e-6, -1e-6, -1e-6, 0), /* exactly at the threshold: no conflict */
        report_of(1e-3, -1.1e-6, -2e-6, 0.3, 0.3, 1e-8),
    };
    pinn_statistics s = {0};
    for (size_t i = 0; i < sizeof reports / sizeof reports[0]; i++)
        pinn_statistics_add(&s, &reports[i]);
    assert_true(s.steps == 3 && s.g == 2 && s.g_pairs == 2 && s.a == 1 && s.u == 1 && s.p == 0);
    assert_true(s.projected == 1 && s.change == 0.25 && s.projected_change == 0.25);
    assert_true(s.cosine == 0.9 + 2 && s.ratio == 0.8 + 2 && s.projected_cosine == 0.9 && s.projected_ratio == 0.8);
}

static void measured_from_vectors(void **state)
{
    (void)state;
    const double g0[] = {1, 0, 0}, g1[] = {-1, 1, 0}, g2[] = {0, 0, 0}, a[] = {0, 2, 0}, u[] = {3, 0, 4},
                 p[] = {3, 4, 0};
    const double *const g[] = {g0, g1, g2};
    sut_report r;
    sut_report_init(&r);
    pinn_statistics_measure(&r, 0.5, g, 3, a, u, p, 3);
    assert_true(r.lr == 0.5 && r.n_losses == 3);
    assert_true(fabs(r.min_pair_cos + sqrt(0.5)) < 1e-11 && fabs(r.conflict_fraction - 1.0 / 3) < 1e-15);
    assert_true(fabs(r.cos_u[0] - 0.6) < 1e-11 && fabs(r.cos_u[1] + 0.6 * sqrt(0.5)) < 1e-11);
    assert_true(r.cos_u[2] == 0 && r.cos_a[2] == 0); /* a zero vector conflicts with nothing */
    assert_true(fabs(r.cos_p[1] - 0.2 * sqrt(0.5)) < 1e-11);
    assert_true(fabs(r.relative_change - sqrt(32) / 5) < 1e-11 && fabs(r.cos_pu - 9.0 / 25) < 1e-11);
    assert_true(fabs(r.ratio_pu - 1) < 1e-11);
    assert_int_equal(pinn_conflict(r.cos_u, 3), 1);
    assert_int_equal(pinn_conflict(r.cos_a, 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_and_rates), cmocka_unit_test(measured_from_vectors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
