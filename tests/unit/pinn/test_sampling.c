/*
 * Sampling: every slice of every axis holds one point, sides and ranges, moments, independence of the axes, the same
 * points however they are asked for. Bounds on moments are five standard deviations of the statistic.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct draw {
    pinn_axis axes[PINN_MAX_AXES];
    double *x; /* [input * n + k] */
    int n;
} draw;

static draw make(const pinn_term *term, uint64_t seed)
{
    draw d = {.n = term->n_points, .x = calloc(2 * (size_t)term->n_points, sizeof *d.x)};
    assert_non_null(d.x);
    for (int i = 0; i < term->n_axes; i++) {
        d.axes[i] = (pinn_axis){.n = term->axes[i], .stream = pinn_stream(seed, 1 + (uint64_t)i, 0)};
        d.axes[i].permutation = calloc((size_t)term->axes[i], sizeof(uint32_t));
        assert_non_null(d.axes[i].permutation);
        pinn_axis_shuffle(&d.axes[i]);
    }
    const pinn_draw what = {d.axes, pinn_stream(seed, 0, 0), d.n};
    term->sample(&what, 0, d.n, d.x, d.n);
    /* In pieces, the same. */
    double piece[2 * 16];
    for (int first = 0; first < d.n; first += 13) {
        const int count = d.n - first < 13 ? d.n - first : 13;
        term->sample(&what, first, count, piece, 16);
        for (int i = 0; i < 2; i++)
            assert_memory_equal(piece + i * 16, d.x + i * d.n + first, (size_t)count * sizeof(double));
    }
    return d;
}

static void drop(draw *d)
{
    for (int i = 0; i < PINN_MAX_AXES; i++)
        free(d->axes[i].permutation);
    free(d->x);
}

/* One point in each slice (k/n, (k + 1)/n] of [low, high]. */
static void assert_strata(const double *x, int n, double low, double high)
{
    char *seen = calloc((size_t)n, 1);
    assert_non_null(seen);
    for (int k = 0; k < n; k++) {
        assert_true(x[k] >= low && x[k] <= high);
        int slice = (int)ceil((x[k] - low) / (high - low) * n - 1e-9) - 1;
        slice = slice < 0 ? 0 : slice;
        assert_true(slice < n && !seen[slice]);
        seen[slice] = 1;
    }
    free(seen);
}

static void burgers_points(void **state)
{
    (void)state;
    const pinn_problem *p = pinn_problem_find("burgers");
    assert_int_equal(p->terms[0].n_points, 10000);
    assert_int_equal(p->terms[1].n_points, 250);
    assert_int_equal(p->terms[2].n_points, 250);
    draw interior = make(&p->terms[0], 3), boundary = make(&p->terms[1], 3), initial = make(&p->terms[2], 3);
    assert_strata(interior.x, 10000, -1, 1);
    assert_strata(interior.x + 10000, 10000, 0, 1);
    assert_strata(boundary.x + 250, 250, 0, 1);
    assert_strata(initial.x, 250, -1, 1);
    for (int k = 0; k < 250; k++) {
        assert_true(boundary.x[k] == (k < 125 ? -1 : 1));
        assert_true(initial.x[250 + k] == 0);
    }
    drop(&interior);
    drop(&boundary);
    drop(&initial);
}

/* x and t are independent: every quarter of the square holds its share, and their correlation vanishes. */
static void axes_are_independent(void **state)
{
    (void)state;
    const pinn_term *term = &pinn_problem_find("burgers")->terms[0];
    for (uint64_t seed = 0; seed < 5; seed++) {
        draw d = make(term, seed);
        const double n = d.n;
        double product = 0;
        int quarter = 0;
        for (int k = 0; k < d.n; k++) {
            product += d.x[k] * (2 * d.x[d.n + k] - 1) * 3;
            quarter += d.x[k] < 0 && d.x[d.n + k] < 0.5;
        }
        assert_true(fabs(product / n) < 5 / sqrt(n));
        assert_true(fabs(quarter - n / 4) < 5 * sqrt(n) / 4);
        drop(&d);
    }
}

/* The place inside a slice is uniform: mean 1/2, variance 1/12. */
static void jitter_is_uniform(void **state)
{
    (void)state;
    const pinn_term *term = &pinn_problem_find("burgers")->terms[0];
    draw d = make(term, 9);
    const double n = d.n;
    double mean = 0, square = 0;
    for (int k = 0; k < d.n; k++) {
        const double t = d.x[d.n + k] * n, u = ceil(t) - t;
        mean += u / n;
        square += (u - 0.5) * (u - 0.5) / n;
    }
    assert_true(fabs(mean - 0.5) < 5 / sqrt(12 * n));
    assert_true(fabs(square - 1.0 / 12) < 5 / sqrt(180 * n));
    drop(&d);
}

static void permutations_are_uniform(void **state)
{
    (void)state;
    enum { DRAWS = 60000 };
    int counts[27] = {0};
    uint32_t p[3];
    for (uint64_t step = 0; step < DRAWS; step++) {
        pinn_axis axis = {.n = 3, .stream = pinn_stream(1, 2, step), .permutation = p};
        pinn_axis_shuffle(&axis);
        assert_true(p[0] + p[1] + p[2] == 3 && p[0] != p[1] && p[1] != p[2] && p[0] < 3 && p[1] < 3);
        counts[9 * p[0] + 3 * p[1] + p[2]]++;
    }
    for (int i = 0; i < 27; i++)
        if (counts[i])
            assert_true(abs(counts[i] - DRAWS / 6) < 5 * 91); /* sqrt(60000 * 1/6 * 5/6) = 91 */
}

static void streams_differ(void **state)
{
    (void)state;
    const uint64_t start = pinn_stream(0, 0, 0);
    assert_true(start != pinn_stream(1, 0, 0) && start != pinn_stream(0, 1, 0) && start != pinn_stream(0, 0, 1));
    assert_true(pinn_stream(1, 0, 0) != pinn_stream(0, 1, 0) && pinn_stream(0, 1, 0) != pinn_stream(0, 0, 1));
    double mean = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        const double u = pinn_uniform(start, i);
        assert_true(u >= 0 && u < 1);
        mean += u / 100000;
    }
    assert_true(fabs(mean - 0.5) < 5 / sqrt(12 * 100000.0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(burgers_points),    cmocka_unit_test(axes_are_independent),
        cmocka_unit_test(jitter_is_uniform), cmocka_unit_test(permutations_are_uniform),
        cmocka_unit_test(streams_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
