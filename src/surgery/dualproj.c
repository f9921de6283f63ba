/*
 * DualProj, the projection of GEM: Lopez-Paz, Ranzato 2017, arXiv 1706.08840. The preferred mean of the gradients is
 * projected on their cone: w = v + lambda, v the preference, lambda = NNQP(K', K' v), K' = K / tr K + reg_eps I.
 *
 * K' may be multiplied by tr K without changing lambda, which spares the exact form (reg_eps = 0) a rounding of K.
 */
#include "surgery/dualproj.h"

SUT_PORTABLE bool sut_surgery_project_weights(const sut_surgery_problem *problem, const double *v, double ridge,
                                              double *w, double *work)
{
    const size_t m = (size_t)problem->m;
    const double *K = problem->K;
    SUT_ARRAY(double, b, SUT_ROOM);
    SUT_ARRAY(double, lambda, SUT_ROOM);
    double *A = work;
    for (size_t i = 0; i < m; ++i) {
        b[i] = ridge * v[i];
        for (size_t j = 0; j < m; ++j) {
            A[i * m + j] = K[i * m + j] + (i == j ? ridge : 0.0);
            b[i] += K[i * m + j] * v[j];
        }
    }
    if (sut_nnqp_solve(A, b, NULL, problem->m, lambda, NULL, work + m * m, true) < 0)
        return false;
    bool changed = false;
    for (size_t i = 0; i < m; ++i) {
        w[i] = v[i] + lambda[i];
        changed = changed || lambda[i] > 0.0;
    }
    if (changed && ridge == 0.0 && sut_surgery_vanishes(problem, w))
        for (size_t i = 0; i < m; ++i)
            w[i] = 0.0;
    return true;
}

SUT_PORTABLE bool sut_surgery_below_norm_eps(const sut_surgery_problem *problem)
{
    return ldexp(problem->trace, 2 * problem->exponent) < problem->config->norm_eps;
}

SUT_PORTABLE bool sut_surgery_ridge_decides(const sut_surgery_problem *problem)
{
    return problem->config->reg_eps > SUT_NOISE(problem->m);
}

SUT_PORTABLE sut_status sut_surgery_dualproj(const sut_surgery_problem *problem, sut_surgery_output *out)
{
    const sut_surgery_config *config = problem->config;
    const int m = problem->m;
    SUT_ARRAY(double, v, SUT_ROOM);
    for (int i = 0; i < m; ++i)
        out->weights[i] = v[i] = config->preference ? config->preference[i] : 1.0 / m;
    const bool mean = sut_surgery_below_norm_eps(problem);
    out->determined = mean || sut_surgery_ridge_decides(problem);
    if (!mean &&
        !sut_surgery_project_weights(problem, v, config->reg_eps * problem->trace, out->weights, problem->work))
        return SUT_ERROR_INTERNAL;
    return SUT_OK;
}
