/*
 * The Burgers problem: the reference solution against what is known about it, and the initial parameters.
 *
 * The steepest slope, 152.00516 at x = 0 and t = 1.6037/pi, is that of Basdevant et al., Spectral and finite difference
 * solutions of the Burgers equation, Computers and Fluids 14 (1986).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "problem.h"

#include <math.h>
#include <stdlib.h>

static double u(double x, double t)
{
    const double point[2] = {x, t};
    double value;
    pinn_problem_find("burgers")->reference(1, 1, point, &value);
    return value;
}

static void initial_and_boundary_values(void **state)
{
    (void)state;
    for (int k = 0; k <= 20; k++) {
        const double s = k / 20.0, x = 2 * s - 1;
        assert_true(fabs(u(x, 0) + sin(M_PI * x)) < 1e-15);
        assert_true(fabs(u(x, 1e-12) + sin(M_PI * x)) < 1e-10);
        assert_true(fabs(u(-1, s)) < 1e-12 && fabs(u(1, s)) < 1e-12 && fabs(u(0, s)) < 1e-12);
        assert_true(fabs(u(x, s) + u(-x, s)) < 1e-12); /* odd in x */
        assert_true(fabs(u(x, s)) <= 1);               /* maximum principle */
    }
}

static void steepest_slope(void **state)
{
    (void)state;
    const double h = 1e-5;
    double steepest = 0, at = 0;
    for (int k = 0; k < 600; k++) {
        const double t = 0.48 + 1e-4 * k;
        const double slope = (u(-2 * h, t) - 8 * u(-h, t) + 8 * u(h, t) - u(2 * h, t)) / (12 * h);
        if (-slope > steepest)
            steepest = -slope, at = t;
    }
    assert_true(fabs(steepest - 152.00516) < 1e-4);
    assert_true(fabs(at * M_PI - 1.6037) < 1e-3);
}

/* u_t + u u_x = nu u_xx by differences of fourth order, where the solution is smooth on their scale. */
static void equation_holds(void **state)
{
    (void)state;
    const double nu = 0.01 / M_PI, h = 1e-3;
    for (int i = 0; i < 10; i++)
        for (int j = 0; j < 20; j++) {
            const double t = 0.05 + 0.1 * i, x = -0.95 + 0.1 * j;
            if (fabs(x) < 0.15)
                continue; /* the shock */
            const double u0 = u(x, t);
            const double u_x = (u(x - 2 * h, t) - 8 * u(x - h, t) + 8 * u(x + h, t) - u(x + 2 * h, t)) / (12 * h);
            const double u_t = (u(x, t - 2 * h) - 8 * u(x, t - h) + 8 * u(x, t + h) - u(x, t + 2 * h)) / (12 * h);
            const double u_xx =
                (-u(x - 2 * h, t) + 16 * u(x - h, t) - 30 * u0 + 16 * u(x + h, t) - u(x + 2 * h, t)) / (12 * h * h);
            assert_true(fabs(u_t + u0 * u_x - nu * u_xx) < 1e-8);
        }
}

static void settings_of_the_protocol(void **state)
{
    (void)state;
    const pinn_problem *p = pinn_problem_find("burgers");
    const net_shape shape = pinn_problem_shape(p);
    assert_int_equal(net_parameters(&shape), 10401);
    assert_int_equal(p->steps, 30000);
    assert_true(p->lr[0] == 1e-3 && p->final_lr[0] == 1e-4 && p->rho_m == 0.1 && p->rho_v == 0.03);
    assert_int_equal(pinn_grid_size(p), 25600);
    double first[2], last[2];
    pinn_grid_at(p, 0, first);
    pinn_grid_at(p, 25599, last);
    assert_true(first[0] == -1 + 1.0 / 256 && first[1] == 0 && last[0] == 1 - 1.0 / 256 && last[1] == 1);
    assert_true(pinn_grid_shown(p, 12345));
    assert_null(pinn_problem_find("burger"));
    pinn_loss losses[PINN_MAX_TERMS];
    assert_int_equal(pinn_problem_split(p, 2, losses), 2);
    assert_string_equal(losses[1].name, "boundary_initial");
    assert_int_equal(pinn_problem_split(p, 3, losses), 3);
    assert_string_equal(losses[2].name, "initial");
    assert_int_equal(pinn_problem_split(p, 4, losses), 0);
}

static void initial_parameters(void **state)
{
    (void)state;
    const net_shape shape = pinn_problem_shape(pinn_problem_find("burgers"));
    const size_t n = net_parameters(&shape);
    double *theta = calloc(n, sizeof *theta), *other = calloc(n, sizeof *other);
    assert_true(theta && other);
    pinn_initialise(&shape, 0, theta);
    pinn_initialise(&shape, 1, other);
    for (int layer = 0; layer <= shape.hidden; layer++) {
        const int in = net_layer_inputs(&shape, layer), out = net_layer_outputs(&shape, layer), count = in * out;
        const double *w = theta + net_offset(&shape, layer);
        double mean = 0, square = 0;
        for (int i = 0; i < count; i++) {
            mean += w[i] / count;
            square += w[i] * w[i] / count;
        }
        const double variance = 2.0 / (in + out);
        assert_true(fabs(mean) < 5 * sqrt(variance / count));
        assert_true(fabs(square / variance - 1) < 5 * sqrt(2.0 / count));
        for (int i = 0; i < out; i++)
            assert_true(w[count + i] == 0.001);
        assert_true(w[0] != other[net_offset(&shape, layer)]);
    }
    free(theta);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initial_and_boundary_values),
        cmocka_unit_test(steepest_slope),
        cmocka_unit_test(equation_holds),
        cmocka_unit_test(settings_of_the_protocol),
        cmocka_unit_test(initial_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
