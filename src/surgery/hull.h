/*
 * Point of least norm in the convex hull of m rows, from their Gram matrix S: minimise w^T S w over w >= 0, sum w = 1.
 *
 * On the ray l = sigma w the NNQP objective with S + t 1 1^T and b = -t 1 is 1/2 sigma^2 w^T S w + 1/2 t (sigma - 1)^2 up
 * to a constant; its minimum over sigma grows with w^T S w, so the best w is the point of least norm for every t > 0, and
 * the problem stays bounded when 0 lies in the hull.
 *
 * Rows are first scaled to similar lengths (y_i = w_i / c_i, c_i a power of two, 1 for the shortest row), which turns 1
 * into c and lets t = 1 suit every row. Without that, rows 1e4 times shorter than the longest drown in t.
 */
#ifndef SUT_SURGERY_HULL_H
#define SUT_SURGERY_HULL_H

#include "surgery/nnqp.h"

/* Doubles of workspace. */
#define SUT_HULL_WORK(m) ((size_t)((m) * (m)) + SUT_NNQP_WORK(m))

/*
 * w: out, m weights. A row with S_ii <= 0 is the point itself. Returns the rounds of the solver, or -1.
 * Rows are compared only with each other: any common scale, and lengths up to 1e150 apart.
 */
SUT_SOLVER int sut_hull(const double *S, int m, double *w, double *work)
{
    const size_t n = (size_t)m;
    int shortest = 0;
    SUT_ARRAY(int, e, SUT_ROOM);
    for (int i = 0; i < m; ++i)
        w[i] = 0.0;
    for (int i = 0; i < m; ++i) {
        if (!(S[(size_t)i * (n + 1)] > 0.0)) {
            w[i] = 1.0;
            return 0;
        }
    }
    if (m == 1) {
        w[0] = 1.0;
        return 0;
    }
    if (m == 2) {
        const double from0 = S[0] - S[1], from1 = S[3] - S[1];
        w[0] = from0 <= 0.0 ? 1.0 : from1 <= 0.0 ? 0.0 : from1 / (from0 + from1);
        w[1] = from0 <= 0.0 ? 0.0 : from1 <= 0.0 ? 1.0 : from0 / (from0 + from1);
        return 1;
    }
    for (int i = 0; i < m; ++i) {
        const int k = sut_exponent(S[(size_t)i * (n + 1)]);
        e[i] = k >= 0 ? k / 2 : -((1 - k) / 2);
        shortest = i == 0 || e[i] < shortest ? e[i] : shortest;
    }
    double *B = work;
    SUT_ARRAY(double, c, SUT_ROOM);
    SUT_ARRAY(double, b, SUT_ROOM);
    for (int i = 0; i < m; ++i) {
        c[i] = sut_exp2i(shortest - e[i] < -1022 ? -1022 : shortest - e[i]);
        b[i] = -c[i];
    }
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < m; ++j)
            B[(size_t)i * n + (size_t)j] =
                S[(size_t)i * n + (size_t)j] * sut_exp2i(-e[i]) * sut_exp2i(-e[j]) + c[i] * c[j];
    const int rounds = sut_nnqp_solve(B, b, NULL, m, w, NULL, work + n * n, true);
    if (rounds < 0)
        return rounds;
    double sum = 0.0;
    for (int i = 0; i < m; ++i) {
        w[i] *= c[i];
        sum += w[i];
    }
    for (int i = 0; i < m; ++i)
        w[i] /= sum;
    return rounds;
}

/* x^T S y. */
SUT_SOLVER double sut_form(const double *S, int m, const double *x, const double *y)
{
    double total = 0.0;
    for (int i = 0; i < m; ++i) {
        double t = 0.0;
        for (int j = 0; j < m; ++j)
            t += S[(size_t)i * (size_t)m + (size_t)j] * y[j];
        total += x[i] * t;
    }
    return total;
}

#endif /* SUT_SURGERY_HULL_H */
