/* Small dense algebra: factors that grow and shrink, eigenvalues, double-double sums, powers of two. */
#include "support/surgery.h"
#include "surgery/dense.h"

/* B B^T + shift I of random B: positive definite. */
static void random_spd(test_random *r, int m, double shift, double *A)
{
    double B[SUT_MAX_LOSSES * SUT_MAX_LOSSES];
    for (int k = 0; k < m * m; ++k)
        B[k] = test_normal(r);
    test_gram(B, m, m, A);
    for (int i = 0; i < m; ++i)
        A[i * m + i] += shift;
}

static void cholesky_grows_shrinks_and_solves(void **state)
{
    (void)state;
    test_random r = {1};
    for (int m = 1; m <= 64; m = m < 9 ? m + 1 : 2 * m) {
        double A[64 * 64], L[64 * 64], x[64], b[64];
        random_spd(&r, m, 1.0, A);
        for (int i = 0; i < m; ++i)
            assert_true(sut_cholesky_append(L, m, i, A + i * m, A[i * m + i], 0.0));
        /* Take rows out, first, last and middle, and compare with the matrix that is left. */
        int row[64], n = m;
        for (int i = 0; i < m; ++i)
            row[i] = i;
        while (n > 0) {
            for (int i = 0; i < n; ++i)
                x[i] = b[i] = test_normal(&r);
            sut_cholesky_solve(L, m, n, x);
            for (int i = 0; i < n; ++i) {
                double t = -b[i];
                for (int j = 0; j < n; ++j)
                    t += A[row[i] * m + row[j]] * x[j];
                assert_true(fabs(t) <= 1e-10);
            }
            const int out = n % 3 == 0 ? 0 : n % 3 == 1 ? n - 1 : n / 2;
            sut_cholesky_remove(L, m, n, out);
            for (int i = out; i + 1 < n; ++i)
                row[i] = row[i + 1];
            --n;
        }
    }
}

static void cholesky_refuses_a_dependent_row(void **state)
{
    (void)state;
    /* Row 2 = row 0 + row 1. */
    const double A[9] = {2, 1, 3, 1, 2, 3, 3, 3, 6};
    double L[9];
    assert_true(sut_cholesky_append(L, 3, 0, A, A[0], 0.0));
    assert_true(sut_cholesky_append(L, 3, 1, A + 3, A[4], 0.0));
    assert_false(sut_cholesky_append(L, 3, 2, A + 6, A[8], 1e-12));
}

static void inverse_trace_bounds_the_smallest_eigenvalue(void **state)
{
    (void)state;
    test_random r = {2};
    for (int m = 1; m <= 16; ++m) {
        double A[256], L[256], V[256], values[16], work[16], sum = 0.0;
        random_spd(&r, m, 0.01, A);
        for (int i = 0; i < m; ++i)
            assert_true(sut_cholesky_append(L, m, i, A + i * m, A[i * m + i], 0.0));
        const double trace = sut_cholesky_inverse_trace(L, m, m, work);
        sut_jacobi(A, m, V, values);
        for (int i = 0; i < m; ++i)
            sum += 1.0 / values[i];
        assert_true(fabs(trace - sum) <= 1e-9 * sum);
    }
}

static void jacobi_decomposes(void **state)
{
    (void)state;
    test_random r = {3};
    for (int m = 1; m <= 64; m = m < 9 ? m + 1 : 2 * m) {
        static double A[64 * 64], kept[64 * 64], V[64 * 64];
        double values[64];
        random_spd(&r, m, 0.0, A);
        memcpy(kept, A, sizeof kept);
        sut_jacobi(A, m, V, values);
        double largest = 0.0;
        for (int k = 0; k < m; ++k)
            largest = sut_max2(largest, values[k]);
        for (int k = 0; k < m; ++k) {
            for (int i = 0; i < m; ++i) {
                double t = -values[k] * V[k * m + i];
                for (int j = 0; j < m; ++j)
                    t += kept[i * m + j] * V[k * m + j];
                assert_true(fabs(t) <= 1e-13 * m * largest);
            }
            for (int l = 0; l <= k; ++l)
                assert_true(fabs(test_dot(V + k * m, V + l * m, m) - (k == l)) <= 1e-13 * m);
        }
    }
}

static void jacobi_sees_small_eigenvalues_of_scaled_matrices(void **state)
{
    (void)state;
    /* D C D with C well conditioned: eigenvalues far below 2^-52 of the largest keep their digits. */
    const double d[3] = {1.0, 1e-6, 1e-9};
    const double C[9] = {1, 0.5, 0.25, 0.5, 1, -0.25, 0.25, -0.25, 1};
    double A[9], V[9], values[3], product = 1.0;
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j)
            A[3 * i + j] = C[3 * i + j] * d[i] * d[j];
    sut_jacobi(A, 3, V, values);
    for (int k = 0; k < 3; ++k)
        product *= values[k] / d[k] / d[k];
    assert_true(fabs(product - 0.5625) <= 1e-12); /* det C = 1 - 1/4 - 1/16 - 1/16 - 1/16 */
}

static void pseudo_inverse_has_least_norm(void **state)
{
    (void)state;
    /* Rank 1: (1, 2) (1, 2)^T; rhs (1, 2) -> (1, 2) / 5; rhs (2, -1) -> 0. */
    double A[4] = {1, 2, 2, 4}, V[4], values[2], x[2];
    sut_jacobi(A, 2, V, values);
    const double threshold = sut_rank_threshold(values, 2, SUT_EPS);
    assert_int_equal(sut_pseudo_solve(V, values, 2, threshold, (const double[]){1, 2}, x), 1);
    test_close(x, (const double[]){0.2, 0.4}, 2, 1e-15);
    sut_pseudo_solve(V, values, 2, threshold, (const double[]){2, -1}, x);
    test_close(x, (const double[]){0, 0}, 2, 1e-15);
}

static void double_double_keeps_what_double_loses(void **state)
{
    (void)state;
    sut_dd t = {1e16, 0.0};
    sut_dd_add(&t, 1.0);
    sut_dd_add(&t, -1e16);
    assert_true(sut_dd_value(t) == 1.0);
    /* (1 + 2^-30)^2 - 1 - 2^-29 = 2^-60. */
    t = sut_two_product(1.0 + 0x1p-30, 1.0 + 0x1p-30);
    sut_dd_add(&t, -1.0);
    sut_dd_add_product(&t, -0x1p-15, 0x1p-14);
    assert_true(sut_dd_value(t) == 0x1p-60);
}

static void powers_of_two(void **state)
{
    (void)state;
    for (int e = -1022; e <= 1023; ++e) {
        assert_true(sut_exp2i(e) == ldexp(1.0, e));
        assert_int_equal(sut_exponent(ldexp(1.5, e)), e);
    }
    assert_int_equal(sut_exponent(0x1p-1060), -1023);
}

/* A = 1 1^T + 2^-40 I and a right-hand side whose sum is 0: x = 2^40 rhs exactly. */
static void refinement_of_nearly_dependent_rows(void **state)
{
    (void)state;
    enum { M = 12 };
    double A[M * M], L[M * M], V[M * M], values[M], rhs[M], x[M], r[M], plain = 0, refined = 0;
    for (int i = 0; i < M; ++i) {
        rhs[i] = i - 0.5 * (M - 1);
        for (int j = 0; j < M; ++j)
            A[i * M + j] = i == j ? 1 + 0x1p-40 : 1;
    }
    memcpy(L, A, sizeof A);
    sut_jacobi(L, M, V, values);
    assert_int_equal(sut_pseudo_solve(V, values, M, sut_rank_threshold(values, M, SUT_EPS), rhs, x), M);
    for (int i = 0; i < M; ++i)
        plain = fmax(plain, fabs(x[i] - 0x1p40 * rhs[i]));
    sut_refine(A, V, values, M, rhs, x);
    for (int i = 0; i < M; ++i)
        refined = fmax(refined, fabs(x[i] - 0x1p40 * rhs[i]));
    /* The rounding of x is 2^-10 or so, that of A x as much as 1: with it the residual would say nothing. */
    assert_true(plain > 1e6);
    assert_true(refined <= 1e-3);
    for (int i = 0; i < M; ++i)
        x[i] = 0x1p40 * rhs[i] + (i == 3 ? 1 : 0);
    sut_residual(A, M, rhs, x, r);
    for (int i = 0; i < M; ++i)
        assert_true(r[i] == -A[3 * M + i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refinement_of_nearly_dependent_rows),
        cmocka_unit_test(cholesky_grows_shrinks_and_solves),
        cmocka_unit_test(cholesky_refuses_a_dependent_row),
        cmocka_unit_test(inverse_trace_bounds_the_smallest_eigenvalue),
        cmocka_unit_test(jacobi_decomposes),
        cmocka_unit_test(jacobi_sees_small_eigenvalues_of_scaled_matrices),
        cmocka_unit_test(pseudo_inverse_has_least_norm),
        cmocka_unit_test(double_double_keeps_what_double_loses),
        cmocka_unit_test(powers_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
