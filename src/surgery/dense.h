/*
 * Dense symmetric algebra for a handful of rows: Cholesky factors that grow and shrink by a row, and eigenvalues by the
 * cyclic Jacobi method. No allocation, no library calls; one source for host and device (prelude.h).
 *
 * Jacobi rather than tridiagonal QR: for the sizes that matter (2 to 10) it is as fast, and it finds small eigenvalues of
 * a badly scaled Gram matrix to high relative accuracy (Demmel, Veselic 1992).
 */
#ifndef SUT_SURGERY_DENSE_H
#define SUT_SURGERY_DENSE_H

#include "surgery/prelude.h"

/* Trace of the inverse of a cosine matrix from which on residuals are taken in twice the precision: angles below 1e-3. */
#define SUT_NEARLY_DEPENDENT 1e6

/*
 * Append a row to the Cholesky factor L (np x np, leading dimension ld, lower triangle) of a matrix.
 * `column`: np products of the new row with the old ones; `diagonal`: with itself.
 * False, and L as it was, when the new pivot squared is not above `tolerance`.
 */
SUT_SOLVER bool sut_cholesky_append(double *L, int ld, int np, const double *column, double diagonal, double tolerance)
{
    double *row = L + (size_t)np * (size_t)ld;
    double pivot = diagonal;
    for (int k = 0; k < np; ++k) {
        const double *l = L + (size_t)k * (size_t)ld;
        double x = column[k];
        for (int j = 0; j < k; ++j)
            x -= l[j] * row[j];
        row[k] = x / l[k];
        pivot -= row[k] * row[k];
    }
    if (!(pivot > tolerance))
        return false;
    row[np] = sqrt(pivot);
    return true;
}

/* Remove row and column r from the factor of np rows by Givens rotations. */
SUT_SOLVER void sut_cholesky_remove(double *L, int ld, int np, int r)
{
    for (int k = r; k < np - 1; ++k) {
        double *to = L + (size_t)k * (size_t)ld;
        const double *from = to + ld;
        for (int j = 0; j <= k + 1; ++j)
            to[j] = from[j];
    }
    /* Row k now reaches one column beyond the diagonal; rotate columns k and k + 1 of all rows below. */
    for (int k = r; k < np - 1; ++k) {
        double *row = L + (size_t)k * (size_t)ld;
        const double a = row[k], b = row[k + 1], h = sqrt(a * a + b * b), c = a / h, s = b / h;
        row[k] = h;
        for (int i = k + 1; i < np - 1; ++i) {
            double *x = L + (size_t)i * (size_t)ld + k;
            const double x0 = x[0], x1 = x[1];
            x[0] = c * x0 + s * x1;
            x[1] = c * x1 - s * x0;
        }
    }
}

/* x <- (L L^T)^-1 x. */
SUT_SOLVER void sut_cholesky_solve(const double *L, int ld, int np, double *x)
{
    for (int k = 0; k < np; ++k) {
        const double *l = L + (size_t)k * (size_t)ld;
        double t = x[k];
        for (int j = 0; j < k; ++j)
            t -= l[j] * x[j];
        x[k] = t / l[k];
    }
    for (int k = np - 1; k >= 0; --k) {
        const double *l = L + (size_t)k * (size_t)ld;
        const double t = x[k] / l[k];
        x[k] = t;
        for (int j = 0; j < k; ++j)
            x[j] -= l[j] * t;
    }
}

/*
 * Trace of (L L^T)^-1 = squared Frobenius norm of L^-1, one column of L^-1 at a time in `work` (np doubles).
 * It is at least the inverse of the smallest eigenvalue, and at most np times that: a bound that holds, not an estimate.
 */
SUT_SOLVER double sut_cholesky_inverse_trace(const double *L, int ld, int np, double *work)
{
    double trace = 0.0;
    for (int c = 0; c < np; ++c) {
        for (int k = c; k < np; ++k) {
            const double *l = L + (size_t)k * (size_t)ld;
            double t = k == c ? 1.0 : 0.0;
            for (int j = c; j < k; ++j)
                t -= l[j] * work[j];
            work[k] = t / l[k];
            trace += work[k] * work[k];
        }
    }
    return trace;
}

/*
 * Eigenvalues and eigenvectors of the symmetric A (m x m, both triangles; destroyed): on return row k of V is the
 * eigenvector of values[k]. Order is that of the diagonal, not sorted.
 *
 * Rotations run over pairs in fixed order until every off-diagonal entry is negligible against its two diagonal
 * entries (that is what gives relative accuracy) or against the largest entry by 2^-70, which no rank rule can see.
 * Convergence is quadratic: six to eight sweeps; the limit of 60 is out of reach for finite input.
 */
SUT_SOLVER void sut_jacobi(double *A, int m, double *V, double *values)
{
    const size_t n = (size_t)m;
    double largest = 0.0;
    for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j < n; ++j) {
            V[i * n + j] = i == j ? 1.0 : 0.0;
            largest = sut_max2(largest, fabs(A[i * n + j]));
        }
    }
    const double negligible = largest * 0x1p-70;
    for (int sweep = 0; sweep < 60; ++sweep) {
        bool rotated = false;
        for (size_t p = 0; p + 1 < n; ++p) {
            for (size_t q = p + 1; q < n; ++q) {
                const double apq = A[p * n + q], app = A[p * n + p], aqq = A[q * n + q];
                const double size = fabs(apq);
                if (size <= negligible || size <= 0x1p-54 * sqrt(fabs(app)) * sqrt(fabs(aqq)))
                    continue;
                rotated = true;
                /* tan of the rotation angle, the smaller root (Golub, Van Loan, 8.5.2). */
                const double theta = (aqq - app) / (2.0 * apq);
                const double t = (theta >= 0.0 ? 1.0 : -1.0) / (fabs(theta) + sqrt(1.0 + theta * theta));
                const double c = 1.0 / sqrt(1.0 + t * t), s = t * c;
                double *ap = A + p * n, *aq = A + q * n, *vp = V + p * n, *vq = V + q * n;
                for (size_t k = 0; k < n; ++k) {
                    const double x = ap[k], y = aq[k];
                    ap[k] = c * x - s * y;
                    aq[k] = s * x + c * y;
                }
                ap[p] = app - t * apq;
                aq[q] = aqq + t * apq;
                ap[q] = aq[p] = 0.0;
                for (size_t k = 0; k < n; ++k) {
                    if (k != p && k != q) {
                        A[k * n + p] = ap[k];
                        A[k * n + q] = aq[k];
                    }
                }
                for (size_t k = 0; k < n; ++k) {
                    const double x = vp[k], y = vq[k];
                    vp[k] = c * x - s * y;
                    vq[k] = s * x + c * y;
                }
            }
        }
        if (!rotated)
            break;
    }
    for (size_t i = 0; i < n; ++i)
        values[i] = A[i * n + i];
}

/* Rank rule: an eigenvalue counts as zero when it is at most m * tolerance times the largest one. */
SUT_SOLVER double sut_rank_threshold(const double *values, int m, double tolerance)
{
    double largest = 0.0;
    for (int i = 0; i < m; ++i)
        largest = sut_max2(largest, values[i]);
    return (double)m * tolerance * largest;
}

/* x = A^+ rhs from the eigen-decomposition, over eigenvalues above `threshold`. Returns the rank. */
SUT_SOLVER int sut_pseudo_solve(const double *V, const double *values, int m, double threshold, const double *rhs,
                                double *x)
{
    int rank = 0;
    for (int i = 0; i < m; ++i)
        x[i] = 0.0;
    for (int k = 0; k < m; ++k) {
        if (!(values[k] > threshold))
            continue;
        ++rank;
        const double *v = V + (size_t)k * (size_t)m;
        double t = 0.0;
        for (int i = 0; i < m; ++i)
            t += v[i] * rhs[i];
        t /= values[k];
        for (int i = 0; i < m; ++i)
            x[i] += t * v[i];
    }
    return rank;
}

/* rhs - A x, as if in twice the precision. */
SUT_SOLVER void sut_residual(const double *A, int m, const double *rhs, const double *x, double *out)
{
    for (int i = 0; i < m; ++i) {
        sut_dd sum = {rhs[i], 0.0};
        for (int j = 0; j < m; ++j)
            sut_dd_add_product(&sum, -A[(size_t)i * (size_t)m + (size_t)j], x[j]);
        out[i] = sut_dd_value(sum);
    }
}

/*
 * Refines x = A^-1 rhs, found from the eigen-decomposition of an A of full rank, while that helps. Jacobi's absolute error, m
 * roundings of the largest eigenvalue, is some per cent of the smallest one that a rank rule lets pass; a few rounds take
 * that out.
 */
SUT_SOLVER void sut_refine(const double *A, const double *V, const double *values, int m, const double *rhs, double *x)
{
    double before = INFINITY;
    SUT_ARRAY(double, r, SUT_ROOM);
    SUT_ARRAY(double, dx, SUT_ROOM);
    for (int round = 0; round < 10; ++round) {
        double size = 0.0, change = 0.0;
        sut_residual(A, m, rhs, x, r);
        (void)sut_pseudo_solve(V, values, m, 0.0, r, dx);
        for (int i = 0; i < m; ++i) {
            size = sut_max2(size, fabs(x[i]));
            change = sut_max2(change, fabs(dx[i]));
        }
        if (!(change <= 0.5 * before))
            return;
        for (int i = 0; i < m; ++i)
            x[i] += dx[i];
        if (change <= SUT_EPS * size)
            return;
        before = change;
    }
}

#endif /* SUT_SURGERY_DENSE_H */
