/*
 * PCGrad: Yu et al. 2020, arXiv 2001.06782, Algorithm 1. For each loss i: h = g_i; for every other j in a random order: if
 * h . g_j < 0, take the part along g_j out of h. a is the sum of all h.
 *
 * h is kept as its weights w: h . g_j = (K w)_j, and the projection takes (K w)_j / K_jj from w_j. It is the original g_j
 * that is projected on and the current h that is tested; no epsilon in the denominator, zero rows are skipped.
 */
#include "surgery/draws.h"
#include "surgery/surgery.h"

SUT_PORTABLE sut_status sut_surgery_pcgrad(const sut_surgery_problem *problem, sut_surgery_output *out)
{
    const sut_surgery_config *config = problem->config;
    const int m = problem->m;
    const double *K = problem->K;
    sut_draws draws = sut_draws_begin(problem->seed, problem->counter);
    SUT_ARRAY(int, order, SUT_ROOM);
    SUT_ARRAY(double, w, SUT_ROOM);
    for (int i = 0; i < m; ++i) {
        if (config->order) {
            memcpy(order, config->order + (size_t)i * (size_t)m, sizeof order[0] * (size_t)m);
        } else if (config->pcgrad_identity_order) {
            for (int k = 0; k < m; ++k)
                order[k] = k;
        } else {
            sut_draw_order(&draws, m, order);
        }
        for (int k = 0; k < m; ++k)
            w[k] = k == i ? 1.0 : 0.0;
        for (int k = 0; k < m; ++k) {
            const int j = order[k];
            if (j == i || problem->d[j] == 0.0)
                continue;
            double product = 0.0;
            for (int l = 0; l < m; ++l)
                product += K[(size_t)j * (size_t)m + (size_t)l] * w[l];
            if (product < 0.0)
                w[j] -= product / K[(size_t)j * (size_t)(m + 1)];
        }
        for (int k = 0; k < m; ++k)
            out->weights[k] += w[k];
    }
    for (int k = 0; config->pcgrad_mean && k < m; ++k)
        out->weights[k] /= m;
    return SUT_OK;
}
