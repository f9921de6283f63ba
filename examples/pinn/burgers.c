/*
 * Burgers' equation:  u_t + u u_x = nu u_xx  on -1 <= x <= 1, 0 <= t <= 1, nu = 0.01/pi,
 * u(x, 0) = -sin(pi x), u(-1, t) = u(1, t) = 0. A viscous shock forms at x = 0 around t = 1/pi.
 */
#include "problem.h"

#include <math.h>

#define POINT static inline
#include "burgers.h"

static void sample_interior(const pinn_draw *draw, int first, int count, double *x, int stride)
{
    for (int k = 0; k < count; k++) {
        x[k] = -1 + 2 * pinn_axis_at(&draw->axes[0], first + k);
        x[stride + k] = pinn_axis_at(&draw->axes[1], first + k);
    }
}

/* The first half on x = -1, the others on x = 1. */
static void sample_boundary(const pinn_draw *draw, int first, int count, double *x, int stride)
{
    for (int k = 0; k < count; k++) {
        x[k] = first + k < draw->n_points / 2 ? -1 : 1;
        x[stride + k] = pinn_axis_at(&draw->axes[0], first + k);
    }
}

static void sample_initial(const pinn_draw *draw, int first, int count, double *x, int stride)
{
    for (int k = 0; k < count; k++) {
        x[k] = -1 + 2 * pinn_axis_at(&draw->axes[0], first + k);
        x[stride + k] = 0;
    }
}

static void residual(int count, int stride, const double *x, const double *value, double *r)
{
    for (int k = 0; k < count; k++)
        burgers_residual(stride, x + k, value + k, r + k);
}

static void residual_adjoint(int count, int stride, const double *x, const double *value, const double *e,
                             double *adjoint)
{
    for (int k = 0; k < count; k++)
        burgers_adjoint(stride, x + k, value + k, e + k, adjoint + k);
}

static void boundary_target(int count, int stride, const double *x, double *target)
{
    (void)stride, (void)x;
    for (int k = 0; k < count; k++)
        target[k] = 0;
}

static void initial_target(int count, int stride, const double *x, double *target)
{
    (void)stride;
    for (int k = 0; k < count; k++)
        target[k] = -sin(M_PI * x[k]);
}

/*
 * Cole (1951) and Hopf (1950): with F(y) = exp(-50 cos pi y), 50 = 1/(2 pi nu), and y = x - 2 sqrt(nu t) eta,
 *     u = - int sin(pi y) F(y) exp(-eta^2) d eta / int F(y) exp(-eta^2) d eta.
 * The trapezoidal rule with step 1/4 on |eta| <= 12 is exact to 4e-15 for these analytic, rapidly falling integrands.
 * The exponent is shifted by its maximum, which cancels in the quotient and keeps F within e^0.
 */
static double solution(double x, double t)
{
    enum { NODES = 97 };
    if (t <= 0)
        return -sin(M_PI * x);
    const double spread = 2 * sqrt(BURGERS_NU * t);
    double exponent[NODES], sine[NODES], largest = -INFINITY;
    for (int i = 0; i < NODES; i++) {
        const double eta = -12 + 0.25 * i, y = x - spread * eta;
        exponent[i] = -50 * cos(M_PI * y) - eta * eta;
        sine[i] = sin(M_PI * y);
        largest = fmax(largest, exponent[i]);
    }
    double numerator = 0, denominator = 0;
    for (int i = 0; i < NODES; i++) {
        const double weight = exp(exponent[i] - largest);
        numerator += sine[i] * weight;
        denominator += weight;
    }
    return -numerator / denominator;
}

static void reference(int count, int stride, const double *x, double *value)
{
    for (int k = 0; k < count; k++)
        value[k] = solution(x[k], x[stride + k]);
}

/* Cell centres in x, end points included in t. */
static void grid_point(const int *index, double *x)
{
    x[0] = -1 + (2 * index[0] + 1) / 256.0;
    x[1] = index[1] / 99.0;
}

const pinn_problem pinn_burgers = {
    .name = "burgers",
    .title = "u_t + u u_x = nu u_xx, nu = 0.01/pi",
    .n_inputs = 2,
    .n_outputs = 1,
    .inputs = {"x", "t"},
    .outputs = {"u"},
    .kappa = {1, 0},
    .n_terms = 3,
    .terms = {{.name = "interior",
               .n_points = 10000,
               .derivatives = true,
               .components = 1,
               .averaged = 1,
               .n_axes = 2,
               .axes = {10000, 10000},
               .sample = sample_interior,
               .residual = residual,
               .adjoint = residual_adjoint},
              {.name = "boundary",
               .n_points = 250,
               .components = 1,
               .averaged = 1,
               .n_axes = 1,
               .axes = {250},
               .sample = sample_boundary,
               .target = boundary_target},
              {.name = "initial",
               .n_points = 250,
               .components = 1,
               .averaged = 1,
               .n_axes = 1,
               .axes = {250},
               .sample = sample_initial,
               .target = initial_target}},
    .pooled = true,
    .steps = 30000,
    .lr = {1e-3, 1e-3},
    .final_lr = {1e-4, 1e-4},
    .quick = {.steps = 6000, .points = 2500, .lr = 2e-3, .final_lr = 1e-4},
    .rho_m = 0.1,
    .rho_v = 0.03,
    .grid = {256, 100},
    .grid_point = grid_point,
    .shown = {1, 0},
    .reference = reference,
};
