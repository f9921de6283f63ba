/*
 * MGDA: Desideri 2012; Sener, Koltun 2018, arXiv 1810.04650. The point of least norm in the convex hull of the gradients.
 *
 * With a normalisation, row i is divided by d_i, L_i or L_i d_i before the solve; the weights then apply to the rows as they
 * are. Zero when 0 lies in the hull. The Frank-Wolfe form stops after gamma < epsilon and serves for comparison: what it
 * returns is what published code returns.
 */
#include "surgery/hull.h"
#include "surgery/surgery.h"

/* Frank, Wolfe 1956, with the exact step between the present point and one row; each is at least as good as the one before.
 * False: max_iterations came first. */
SUT_HOST_DEVICE static bool frank_wolfe(const double *K, int m, double epsilon, int max_iterations, double *alpha,
                                        int *iterations_out)
{
    SUT_ARRAY(double, Ka, SUT_ROOM);
    for (int i = 0; i < m; ++i)
        alpha[i] = 1.0 / m;
    for (int iteration = 0; iteration < max_iterations; ++iteration) {
        int t = 0;
        double q = 0.0;
        for (int i = 0; i < m; ++i) {
            Ka[i] = 0.0;
            for (int j = 0; j < m; ++j)
                Ka[i] += K[(size_t)i * (size_t)m + (size_t)j] * alpha[j];
            q += alpha[i] * Ka[i];
            if (Ka[i] < Ka[t])
                t = i;
        }
        const double p = Ka[t], r = K[(size_t)t * (size_t)(m + 1)];
        const double gamma = r <= p ? 1.0 : q <= p ? 0.0 : (q - p) / (q + r - 2.0 * p);
        for (int i = 0; i < m; ++i)
            alpha[i] *= 1.0 - gamma;
        alpha[t] += gamma;
        *iterations_out = iteration + 1;
        if (gamma < epsilon)
            return true;
    }
    return false;
}

/* Length by which row i is divided. */
SUT_HOST_DEVICE static double divisor(const sut_surgery_problem *problem, int i)
{
    switch (problem->config->mgda_normalisation) {
    case SUT_MGDA_NONE: break;
    case SUT_MGDA_L2: return problem->d[i];
    case SUT_MGDA_LOSS: return problem->losses[i];
    case SUT_MGDA_LOSS_PLUS: return problem->losses[i] * problem->d[i];
    }
    return 1.0;
}

SUT_PORTABLE sut_status sut_surgery_mgda(const sut_surgery_problem *problem, sut_surgery_output *out)
{
    const sut_surgery_config *config = problem->config;
    const int m = problem->m;
    double *S = problem->work, *work = S + (size_t)m * (size_t)m;
    for (int i = 0; i < m; ++i) {
        for (int j = 0; j < m; ++j) {
            const size_t ij = (size_t)i * (size_t)m + (size_t)j;
            S[ij] = problem->K[ij] == 0.0 ? 0.0 : problem->K[ij] / divisor(problem, i) / divisor(problem, j);
        }
    }
    if (config->mgda_frank_wolfe) {
        out->determined = true; /* an average of rows, whatever K */
        out->converged =
            frank_wolfe(S, m, config->mgda_fw_epsilon, config->mgda_fw_max_iterations, out->weights, &out->iterations);
        return SUT_OK;
    }
    out->iterations = sut_hull(S, m, out->weights, work);
    if (out->iterations < 0)
        return SUT_ERROR_INTERNAL;
    const double norm2 = sut_form(S, m, out->weights, out->weights);
    out->zero = out->pareto = sut_surgery_hull_has_zero(S, m, out->weights, norm2);
    return SUT_OK;
}
