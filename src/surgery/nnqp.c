/*
 * Multipliers of the cone projection, compiled: the solver of nnqp.h, and the refinement against a measured G p.
 *
 * When K_PP is badly conditioned (nearly opposed rows), the rounding of K itself, not that of the solver, limits the
 * multipliers. s = G p measured with p formed from them says how far they are off: K_PP delta = -s_P.
 */
#include "surgery/nnqp.h"
#include "surgery/surgery.h"

_Static_assert(SUT_NNQP_WORK(1) <= SUT_SURGERY_WORK(1) && SUT_NNQP_WORK(64) <= SUT_SURGERY_WORK(64), "workspace");

SUT_PORTABLE int sut_nnqp(const double *K, const double *b, int m, double *lambda, double *s, double *work)
{
    return sut_nnqp_solve(K, b, NULL, m, lambda, s, work, true);
}

SUT_PORTABLE int sut_nnqp_general(const double *K, const double *b, int m, double *lambda, double *s, double *work)
{
    return sut_nnqp_solve(K, b, NULL, m, lambda, s, work, false);
}

/* The working set { lambda > 0 } with its factor. Rows that depend on others are left out; false when there are any. */
SUT_HOST_DEVICE static bool factor_active(sut_nnqp_state *q, const double *K, int m, const double *lambda, double *work)
{
    bool independent = true;
    sut_nnqp_scale(q, K, m, work, work + (size_t)m * (size_t)m);
    for (int i = 0; i < q->n; ++i)
        if (lambda[q->row[i]] > 0.0)
            independent = sut_nnqp_append(q, i) && independent;
    return independent;
}

SUT_PORTABLE double sut_nnqp_condition(const double *K, int m, const double *lambda, double *work)
{
    SUT_ARRAY(sut_nnqp_state, q, 1);
    SUT_ARRAY(double, column, SUT_ROOM);
    const bool independent = factor_active(q, K, m, lambda, work);
    if (q->np == 0)
        return 1.0;
    if (!independent)
        return 1.0 / (16.0 * q->n * SUT_EPS);
    double trace = 0.0;
    for (int k = 0; k < q->np; ++k)
        trace += q->A[(size_t)q->P[k] * (size_t)(q->n + 1)];
    return trace * sut_cholesky_inverse_trace(q->L, q->n, q->np, column);
}

SUT_PORTABLE bool sut_nnqp_correction(const double *K, const double *s, int m, const double *lambda, double *delta,
                                      double *work)
{
    SUT_ARRAY(sut_nnqp_state, q, 1);
    SUT_ARRAY(double, c, SUT_ROOM);
    SUT_ARRAY(double, z, SUT_ROOM);
    (void)factor_active(q, K, m, lambda, work);
    for (int i = 0; i < m; ++i)
        delta[i] = 0.0;
    for (int i = 0; i < q->n; ++i)
        c[i] = s[q->row[i]] * q->scale[i];
    sut_nnqp_solve_set(q, c, z);
    bool positive = true;
    for (int k = 0; k < q->np; ++k) {
        const int i = q->row[q->P[k]];
        delta[i] = z[k] * q->scale[q->P[k]];
        positive = positive && lambda[i] + delta[i] > 0.0;
    }
    return positive;
}

SUT_PORTABLE int sut_nnqp_resolve(const double *K, const double *s, int m, double *lambda, double *work)
{
    /* b that belongs to the measured s: s - K lambda, in double-double, since the two nearly cancel. */
    SUT_ARRAY(double, b, SUT_ROOM);
    SUT_ARRAY(double, b_lo, SUT_ROOM);
    for (int i = 0; i < m; ++i) {
        sut_dd t = {s[i], 0.0};
        for (int j = 0; j < m; ++j)
            if (lambda[j] != 0.0)
                sut_dd_add_product(&t, -K[(size_t)i * (size_t)m + (size_t)j], lambda[j]);
        b[i] = sut_dd_value(t);
        b_lo[i] = (t.hi - b[i]) + t.lo;
    }
    return sut_nnqp_solve(K, b, b_lo, m, lambda, NULL, work, true);
}
