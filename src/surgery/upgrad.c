/*
 * UPGrad: Quinton, Rey 2024, arXiv 2406.16232. a = sum_i v_i P(g_i), P the projection on the cone of all rows, v the
 * preference. One NNQP for each loss: w = sum_i (v_i e_i + lambda_i), lambda_i = NNQP(K', v_i K' e_i).
 *
 * K' = K / tr K + reg_eps I. reg_eps > 0 (the default) gives up a . g_i >= 0 by at most reg_eps tr K w_i, visible for nearly
 * opposed losses; and below tr K = norm_eps the method is the plain preferred mean. norm_eps = reg_eps = 0 is the exact form.
 */
#include "surgery/dualproj.h"

SUT_PORTABLE sut_status sut_surgery_upgrad(const sut_surgery_problem *problem, sut_surgery_output *out)
{
    const sut_surgery_config *config = problem->config;
    const int m = problem->m;
    const bool mean = sut_surgery_below_norm_eps(problem);
    SUT_ARRAY(double, e, SUT_ROOM);
    SUT_ARRAY(double, w, SUT_ROOM);
    out->determined = mean || sut_surgery_ridge_decides(problem);
    for (int i = 0; i < m; ++i)
        e[i] = 0.0;
    for (int i = 0; i < m; ++i) {
        const double v = config->preference ? config->preference[i] : 1.0 / m;
        if (mean) {
            out->weights[i] = v;
            continue;
        }
        e[i] = v;
        if (!sut_surgery_project_weights(problem, e, config->reg_eps * problem->trace, w, problem->work))
            return SUT_ERROR_INTERNAL;
        e[i] = 0.0;
        for (int j = 0; j < m; ++j)
            out->weights[j] += w[j];
    }
    return SUT_OK;
}
