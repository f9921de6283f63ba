/*
 * Aligned-MTL: Senushkin et al. 2023, arXiv 2305.19000, Algorithm 1. The gradients are replaced by the nearest orthogonal
 * system of one length: with K = V L V^T,
 *
 *     B = sqrt(sigma) V L^(-1/2) V^T over the kept eigenvalues,  w = B preference,
 *
 * sigma the smallest kept eigenvalue, their lower median, or their mean. Eigenvalues up to m rank_tol lambda_max are
 * dropped; the default of rank_tol is the f32 constant of the published code, which is part of the definition.
 */
#include "surgery/dense.h"
#include "surgery/surgery.h"

/* sigma from the kept eigenvalues, which are sorted in place. */
SUT_HOST_DEVICE static double common_scale(sut_aligned_scale scale, double *kept, int n)
{
    double mean = 0.0;
    for (int i = 1; i < n; ++i) {
        const double x = kept[i];
        int j = i;
        for (; j > 0 && kept[j - 1] > x; --j)
            kept[j] = kept[j - 1];
        kept[j] = x;
    }
    switch (scale) {
    case SUT_ALIGNED_MIN: return kept[0];
    case SUT_ALIGNED_MEDIAN: return kept[(n - 1) / 2];
    case SUT_ALIGNED_RMSE: break;
    }
    for (int i = 0; i < n; ++i)
        mean += kept[i];
    return mean / n;
}

SUT_PORTABLE sut_status sut_surgery_aligned_mtl(const sut_surgery_problem *problem, sut_surgery_output *out)
{
    const int m = problem->m;
    const size_t size = (size_t)m * (size_t)m;
    const double *preference = problem->config->preference;
    double *A = problem->work, *V = A + size;
    SUT_ARRAY(double, values, SUT_ROOM);
    SUT_ARRAY(double, kept, SUT_ROOM);
    memcpy(A, problem->K, size * sizeof *A);
    sut_jacobi(A, m, V, values);

    const double threshold = sut_rank_threshold(values, m, problem->config->aligned_rank_tol);
    out->rank = 0;
    for (int k = 0; k < m; ++k)
        if (values[k] > threshold)
            kept[out->rank++] = values[k];
    const double sigma = out->rank > 0 ? common_scale(problem->config->aligned_scale, kept, out->rank) : 0.0;
    double kept2 = 0.0, preference2 = 0.0;
    for (int i = 0; i < m; ++i)
        preference2 += preference ? preference[i] * preference[i] : 1.0 / m / m;
    for (int k = 0; k < m; ++k) {
        if (!(values[k] > threshold))
            continue;
        const double *v = V + (size_t)k * (size_t)m;
        double t = 0.0;
        for (int i = 0; i < m; ++i)
            t += v[i] * (preference ? preference[i] : 1.0 / m);
        kept2 += t * t;
        t *= sqrt(sigma / values[k]);
        for (int i = 0; i < m; ++i)
            out->weights[i] += t * v[i];
    }
    /* The preference lies in the part that was dropped (rows that surround the origin): weights would be noise. */
    const double noise = 64.0 * m * SUT_EPS;
    out->zero = kept2 <= noise * noise * preference2;
    return SUT_OK;
}
