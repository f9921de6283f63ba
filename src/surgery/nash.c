/*
 * Nash-MTL: Navon et al. 2022, arXiv 2202.01017. alpha > 0 with K alpha = 1 / alpha, the stationary point of the convex
 * 1/2 alpha^T K alpha - sum log alpha_i: unique, and existing iff 0 is not in the hull of the gradients. |a| = sqrt((double)m).
 *
 * The equation is solved on unit rows, C y = 1 / y with y_i = d_i alpha_i, by damped Newton steps (self-concordant
 * function: step 1 / (1 + delta) while the decrement delta is above 1/4, full steps after). In relative steps z = dy / y the
 * Newton matrix is Y C Y + I, whose eigenvalues are at least 1 however close to the boundary y is.
 */
#include "surgery/hull.h"
#include "surgery/surgery.h"

enum { MAX_ROUNDS = 500 };

/*
 * The residual cannot fall below the rounding of y_i (C y)_i, so the loop also ends where full steps stop gaining. Returns the
 * number of steps, MAX_ROUNDS when it came to no end.
 */
SUT_HOST_DEVICE static int newton(const double *C, int m, double *y, double *H)
{
    double before = INFINITY;
    SUT_ARRAY(double, z, SUT_ROOM);
    SUT_ARRAY(double, r, SUT_ROOM);
    for (int i = 0; i < m; ++i) {
        double sum = 0.0;
        for (int j = 0; j < m; ++j)
            sum += C[(size_t)i * (size_t)m + (size_t)j];
        y[i] = 1.0 / sqrt(sut_max2(sum, 0.1));
    }
    for (int round = 0; round < MAX_ROUNDS; ++round) {
        double delta2 = 0.0;
        for (int i = 0; i < m; ++i) {
            double t = 0.0;
            SUT_ARRAY(double, column, SUT_ROOM);
            for (int j = 0; j < m; ++j) {
                const double h = y[i] * C[(size_t)i * (size_t)m + (size_t)j] * y[j];
                t += h;
                column[j] = h;
            }
            z[i] = r[i] = 1.0 - t;                                            /* minus the gradient, times y_i */
            (void)sut_cholesky_append(H, m, i, column, column[i] + 1.0, 0.0); /* positive definite by construction */
        }
        sut_cholesky_solve(H, m, m, z);
        for (int i = 0; i < m; ++i)
            delta2 += r[i] * z[i];
        const double delta = sqrt(sut_max2(0.0, delta2));
        if (delta < 1e-15 * m || (delta < 0.25 && delta > 0.5 * before))
            return round;
        before = delta < 0.25 ? delta : INFINITY;
        const double step = delta > 0.25 ? 1.0 / (1.0 + delta) : 1.0;
        for (int i = 0; i < m; ++i)
            y[i] *= 1.0 + step * z[i]; /* stays positive: |z_i| <= delta, since the Newton matrix is at least I */
    }
    return MAX_ROUNDS;
}

SUT_PORTABLE sut_status sut_surgery_nash(const sut_surgery_problem *problem, sut_surgery_output *out)
{
    const int m = problem->m;
    const double max_norm = problem->config->nash_max_norm;
    SUT_ZEROS(double, y, SUT_ROOM);
    if (problem->n_live < m)
        return SUT_ERROR_UNDEFINED;
    /* Unit rows have 0 in their hull when the rows have. */
    if (sut_hull(problem->C, m, y, problem->work) < 0)
        return SUT_ERROR_INTERNAL;
    if (sut_surgery_hull_has_zero(problem->C, m, y, sut_form(problem->C, m, y, y))) {
        out->pareto = true;
        return SUT_ERROR_UNDEFINED;
    }
    out->iterations = newton(problem->C, m, y, problem->work);
    out->converged = out->iterations < MAX_ROUNDS;
    const double length = max_norm > 0.0 && max_norm < sqrt((double)m) ? max_norm / sqrt((double)m) : 1.0;
    for (int i = 0; i < m; ++i)
        out->weights[i] = length * y[i] / problem->d[i];
    return SUT_OK;
}
