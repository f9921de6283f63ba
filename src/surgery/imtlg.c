/*
 * IMTL-G: Liu et al. 2021, ICLR ("Towards impartial multi-task learning"). The point of the affine hull of the gradients
 * with equal projections on all unit gradients:  w = v / sum v,  v = K^+ d.
 *
 * Independent rows: v_i = x_i / d_i with C x = 1, which is the same and does not see the lengths. Dependent or zero rows:
 * the pseudo-inverse of K, as defined by Quinton and Rey 2024; there the value jumps as rows become dependent.
 */
#include "surgery/dense.h"
#include "surgery/surgery.h"

/* Two losses: v = (1 / d_1, 1 / d_2) / (1 + kappa), a = d_1 d_2 / (d_1 + d_2) (u_1 + u_2). */
SUT_HOST_DEVICE static void solve_pair(const sut_surgery_problem *problem, sut_surgery_output *out)
{
    const double *d = problem->d, sum = d[0] + d[1];
    out->weights[0] = d[1] / sum;
    out->weights[1] = d[0] / sum;
}

/*
 * v by Cholesky when C has full rank by the rank rule; the bound of the trace of C^-1 says so without eigenvalues. A bound
 * on lambda_max(K) for the zero rule comes with it.
 */
SUT_HOST_DEVICE static bool solve_full_rank(const sut_surgery_problem *problem, double *v, double *largest)
{
    const int m = problem->m;
    double *L = problem->work;
    SUT_ARRAY(double, r, SUT_ROOM);
    const double *C = problem->C;
    if (problem->n_live < m)
        return false;
    for (int i = 0; i < m; ++i)
        if (!sut_cholesky_append(L, m, i, C + (size_t)i * (size_t)m, 1.0, 0.0))
            return false;
    const double trace = sut_cholesky_inverse_trace(L, m, m, r);
    if (!(trace < 1.0 / (m * (double)m * SUT_EPS)))
        return false;
    for (int i = 0; i < m; ++i)
        v[i] = 1.0;
    sut_cholesky_solve(L, m, m, v);
    for (int i = 0; i < m; ++i) {
        double t = 1.0;
        for (int j = 0; j < m; ++j)
            t -= C[(size_t)i * (size_t)m + (size_t)j] * v[j];
        r[i] = t;
    }
    sut_cholesky_solve(L, m, m, r);
    for (int i = 0; i < m; ++i)
        v[i] += r[i];
    for (int round = 0; round < 3 && trace > SUT_NEARLY_DEPENDENT; ++round) {
        SUT_ARRAY(double, ones, SUT_ROOM);
        for (int i = 0; i < m; ++i)
            ones[i] = 1.0;
        sut_residual(C, m, ones, v, r);
        sut_cholesky_solve(L, m, m, r);
        for (int i = 0; i < m; ++i)
            v[i] += r[i];
    }
    for (int i = 0; i < m; ++i)
        v[i] /= problem->d[i];
    *largest = problem->trace;
    return true;
}

/* The same by eigenvalues: C where it has full rank after all, else K. */
SUT_HOST_DEVICE static void solve_by_eigenvalues(const sut_surgery_problem *problem, double *v, double *largest,
                                                 int *rank)
{
    const int m = problem->m;
    const size_t size = (size_t)m * (size_t)m;
    double *A = problem->work, *V = A + size;
    SUT_ARRAY(double, values, SUT_ROOM);
    SUT_ARRAY(double, ones, SUT_ROOM);
    *largest = problem->trace;
    if (problem->n_live == m) {
        memcpy(A, problem->C, size * sizeof *A);
        sut_jacobi(A, m, V, values);
        for (int i = 0; i < m; ++i)
            ones[i] = 1.0;
        *rank = sut_pseudo_solve(V, values, m, sut_rank_threshold(values, m, SUT_EPS), ones, v);
        if (*rank == m) {
            sut_refine(problem->C, V, values, m, ones, v);
            for (int i = 0; i < m; ++i)
                v[i] /= problem->d[i];
            return;
        }
    }
    memcpy(A, problem->K, size * sizeof *A);
    sut_jacobi(A, m, V, values);
    const double threshold = sut_rank_threshold(values, m, SUT_EPS);
    *rank = sut_pseudo_solve(V, values, m, threshold, problem->d, v);
    *largest = threshold / (m * SUT_EPS);
}

SUT_PORTABLE sut_status sut_surgery_imtlg(const sut_surgery_problem *problem, sut_surgery_output *out)
{
    const int m = problem->m;
    double largest;
    SUT_ARRAY(double, v, SUT_ROOM);
    if (m == 2 && problem->n_live == 2 && 1.0 - fabs(problem->C[1]) > 4.0 * SUT_EPS) {
        solve_pair(problem, out);
        return SUT_OK;
    }
    if (!solve_full_rank(problem, v, &largest))
        solve_by_eigenvalues(problem, v, &largest, &out->rank);

    double sum = 0.0, size = 0.0, d = 0.0;
    for (int i = 0; i < m; ++i) {
        sum += v[i];
        size += fabs(v[i]);
        d += problem->d[i];
    }
    if (fabs(sum) <= 1e-12 * sut_max2(size, d / largest)) {
        out->zero = true;
        return SUT_OK;
    }
    out->negative_normaliser = sum < 0.0;
    if (problem->config->imtlg_abs_normaliser)
        sum = fabs(sum);
    for (int i = 0; i < m; ++i)
        out->weights[i] = v[i] / sum;
    return SUT_OK;
}
