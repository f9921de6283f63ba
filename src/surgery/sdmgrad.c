/*
 * SDMGrad in its deterministic form: Xiao, Ban, Ji 2023, arXiv 2305.18409. Minimise |g_w + lambda g_0| over the simplex, g_0
 * the mean gradient;  a = (g_w + lambda g_0) / (1 + lambda).
 *
 * sum w = 1, so g_w + lambda g_0 = sum w_i (g_i + lambda g_0): the point of least norm of shifted rows, whose Gram matrix is
 * K_ij + lambda (k_i + k_j) + lambda^2 |g_0|^2, k = K 1/m. The published code takes 20 stochastic rounds instead.
 */
#include "surgery/hull.h"
#include "surgery/surgery.h"

SUT_PORTABLE sut_status sut_surgery_sdmgrad(const sut_surgery_problem *problem, sut_surgery_output *out)
{
    const int m = problem->m;
    const double lambda = problem->config->sdmgrad_lambda;
    /* The rows g_i + lambda g_0, divided by lambda where that is large: its square may overflow. */
    const double own = lambda > 1.0 ? 1.0 / lambda : 1.0, shared = lambda > 1.0 ? 1.0 : lambda;
    const double *K = problem->K;
    double *S = problem->work, *work = S + (size_t)m * (size_t)m, k0 = 0.0;
    SUT_ARRAY(double, k, SUT_ROOM);
    for (int i = 0; i < m; ++i) {
        k[i] = 0.0;
        for (int j = 0; j < m; ++j)
            k[i] += K[(size_t)i * (size_t)m + (size_t)j];
        k[i] /= m;
        k0 += k[i] / m;
    }
    for (int i = 0; i < m; ++i) {
        for (int j = 0; j < m; ++j) {
            const size_t ij = (size_t)i * (size_t)m + (size_t)j;
            S[ij] = own * own * K[ij] + own * shared * (k[i] + k[j]) + shared * shared * k0;
        }
        /* g_i = -lambda g_0 up to rounding: the origin itself. */
        const size_t ii = (size_t)i * (size_t)(m + 1);
        if (S[ii] <= 64.0 * m * SUT_EPS * (own * own * K[ii] + shared * shared * k0))
            S[ii] = 0.0;
    }
    out->iterations = sut_hull(S, m, out->weights, work);
    if (out->iterations < 0)
        return SUT_ERROR_INTERNAL;
    const double norm2 = sut_form(S, m, out->weights, out->weights);
    out->zero = sut_surgery_hull_has_zero(S, m, out->weights, norm2);
    out->pareto = out->zero; /* sum (w_i + lambda / m) g_i = 0 with positive weights */
    for (int i = 0; i < m; ++i)
        out->weights[i] = (out->weights[i] + lambda / m) / (1.0 + lambda);
    return SUT_OK;
}
