/* NNQP: closed forms, general path and enumeration against each other; degenerate rows; refinement. */
#include "support/surgery.h"
#include "surgery/nnqp.h"
#include "surgery/surgery.h"

static double work[SUT_SURGERY_WORK(SUT_MAX_LOSSES)];

/* |G^T (x - y)|, the difference that a projection would see, from K. */
static double seen_difference(const double *K, const double *x, const double *y, int m)
{
    double total = 0.0;
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < m; ++j)
            total += (x[i] - y[i]) * K[i * m + j] * (x[j] - y[j]);
    return sqrt(fabs(total));
}

static void one_row(void **state)
{
    (void)state;
    double lambda, s;
    assert_int_equal(sut_nnqp((const double[]){4}, (const double[]){-2}, 1, &lambda, &s, work), 1);
    assert_true(lambda == 0.5 && s == 0.0);
    assert_int_equal(sut_nnqp((const double[]){4}, (const double[]){2}, 1, &lambda, &s, work), 0);
    assert_true(lambda == 0.0 && s == 2.0);
    assert_int_equal(sut_nnqp((const double[]){0}, (const double[]){-2}, 1, &lambda, &s, work), 0);
    assert_true(lambda == 0.0 && s == -2.0);
}

static void two_rows_by_hand(void **state)
{
    (void)state;
    double lambda[2], s[2];
    /* Unit rows, kappa = 1/2: both active, lambda = (kappa b_2 - b_1, kappa b_1 - b_2) / (3/4). */
    const double K[4] = {1, 0.5, 0.5, 1};
    (void)sut_nnqp(K, (const double[]){-1, -1}, 2, lambda, s, work);
    test_close(lambda, (const double[]){2.0 / 3, 2.0 / 3}, 2, 1e-15);
    /* Row 0 alone lifts row 1 as well: b_2 - kappa b_1 = -0.2 + 0.5 > 0. */
    (void)sut_nnqp(K, (const double[]){-1, -0.2}, 2, lambda, s, work);
    test_close(lambda, (const double[]){1, 0}, 2, 0.0);
    test_close(s, (const double[]){0, 0.3}, 2, 1e-15);
    /* Opposed rows, and duplicates: the worse row alone. */
    (void)sut_nnqp((const double[]){1, -1, -1, 1}, (const double[]){-3, 3}, 2, lambda, s, work);
    test_close(lambda, (const double[]){3, 0}, 2, 0.0);
    (void)sut_nnqp((const double[]){1, 2, 2, 4}, (const double[]){-3, -6}, 2, lambda, s, work);
    assert_true(lambda[0] + 2 * lambda[1] == 3.0);
    assert_true(fabs(s[0]) <= 1e-15 && fabs(s[1]) <= 1e-15);
}

static void closed_forms_are_the_general_path(void **state)
{
    (void)state;
    test_random r = {11};
    for (int round = 0; round < 20000; ++round) {
        const int m = 1 + test_below(&r, 2);
        double G[8], u[4], K[4], b[2], closed[2], general[2], s[2], t[2];
        for (int k = 0; k < 4 * m; ++k)
            G[k] = test_normal(&r);
        if (m == 2 && round % 4 == 0) { /* angles 1 .. 1e-5 to a duplicate or to opposition */
            const double angle = pow(10.0, -5.0 * test_uniform(&r)), sign = test_below(&r, 2) ? 1.0 : -1.0;
            for (int k = 0; k < 4; ++k)
                G[4 + k] = sign * 3.0 * G[k] + angle * G[4 + k];
        }
        for (int k = 0; k < 4; ++k)
            u[k] = test_normal(&r);
        test_gram(G, m, 4, K);
        for (int i = 0; i < m; ++i)
            b[i] = test_dot(G + 4 * i, u, 4);
        (void)sut_nnqp(K, b, m, closed, s, work);
        (void)sut_nnqp_general(K, b, m, general, t, work);
        /* Where the pivot test of the general path (1 - kappa^2 <= 7e-15) could call the rows dependent, the two may differ. */
        if (m == 2 && K[0] * K[3] - K[1] * K[1] < 1e-13 * K[0] * K[3])
            continue;
        assert_true(seen_difference(K, closed, general, m) <= 1e-9 * test_norm(u, 4));
        if (m == 2 && K[1] * K[1] < 0.999 * K[0] * K[3])
            assert_true(seen_difference(K, closed, general, m) <= 1e-12 * test_norm(u, 4));
    }
}

/*
 * All supports, the first that satisfies the conditions to 1e-9 (rows of any rank; section 7.5). False: none did, which for
 * a good K cannot be.
 */
static bool enumerate(const double *K, const double *b, int m, double *lambda)
{
    for (int set = 0; set < 1 << m; ++set) {
        double L[64], x[8], column[8];
        int row[8], n = 0;
        bool good = true;
        for (int i = 0; i < m && good; ++i) {
            if (!(set >> i & 1))
                continue;
            for (int k = 0; k < n; ++k)
                column[k] = K[i * m + row[k]];
            good = sut_cholesky_append(L, 8, n, column, K[i * m + i], 1e-13 * K[i * m + i]);
            row[n++] = i;
        }
        if (!good)
            continue;
        for (int k = 0; k < n; ++k)
            x[k] = -b[row[k]];
        sut_cholesky_solve(L, 8, n, x);
        for (int i = 0; i < m; ++i)
            lambda[i] = 0.0;
        for (int k = 0; k < n; ++k) {
            good = good && x[k] >= 0.0;
            lambda[row[k]] = x[k];
        }
        for (int i = 0; i < m && good; ++i) {
            double s = b[i], size = fabs(b[i]);
            for (int j = 0; j < m; ++j) {
                s += K[i * m + j] * lambda[j];
                size += fabs(K[i * m + j] * lambda[j]);
            }
            good = s >= -1e-11 * size;
        }
        if (good)
            return true;
    }
    return false;
}

static void active_set_is_enumeration(void **state)
{
    (void)state;
    test_random r = {12};
    for (int round = 0; round < 1000; ++round) {
        const int m = 2 + test_below(&r, 7), n = 2 + test_below(&r, 9);
        double G[8 * 10], u[10], K[64], b[8], active[8], all[8], p[10], q[10];
        for (int k = 0; k < m * n; ++k)
            G[k] = test_normal(&r);
        if (round % 3 == 0) /* a common direction taken out: conflicts */
            for (int k = 0; k < n; ++k) {
                double mean = 0.0;
                for (int i = 0; i < m; ++i)
                    mean += G[i * n + k] / m;
                for (int i = 0; i < m; ++i)
                    G[i * n + k] -= 0.95 * mean;
            }
        if (round % 5 == 0) /* a scaled duplicate */
            for (int k = 0; k < n; ++k)
                G[(m - 1) * n + k] = 2.5 * G[k];
        for (int k = 0; k < n; ++k)
            u[k] = test_normal(&r);
        test_gram(G, m, n, K);
        for (int i = 0; i < m; ++i)
            b[i] = test_dot(G + i * n, u, n);
        const int rounds = sut_nnqp_general(K, b, m, active, NULL, work);
        assert_true(rounds >= 0 && rounds <= 4 * m);
        assert_true(enumerate(K, b, m, all));
        for (int k = 0; k < n; ++k) {
            p[k] = q[k] = u[k];
            for (int i = 0; i < m; ++i) {
                p[k] += active[i] * G[i * n + k];
                q[k] += all[i] * G[i * n + k];
            }
        }
        test_close(p, q, n, 1e-7 * test_norm(u, n));
    }
}

static void any_scale_of_rows(void **state)
{
    (void)state;
    test_random r = {13};
    double G[5 * 6], u[6], K[25], b[5], plain[5], scaled[5];
    for (int k = 0; k < 30; ++k)
        G[k] = test_normal(&r);
    for (int k = 0; k < 6; ++k)
        u[k] = -G[k] - G[6 + k] + 0.1 * test_normal(&r);
    test_gram(G, 5, 6, K);
    for (int i = 0; i < 5; ++i)
        b[i] = test_dot(G + 6 * i, u, 6);
    (void)sut_nnqp(K, b, 5, plain, NULL, work);
    /* Powers of two change no bit: rows 2^-240 .. 2^240. */
    const int e[5] = {-240, 240, 0, 7, -100};
    for (int i = 0; i < 5; ++i) {
        b[i] = ldexp(b[i], e[i]);
        for (int j = 0; j < 5; ++j)
            K[5 * i + j] = ldexp(K[5 * i + j], e[i] + e[j]);
    }
    (void)sut_nnqp(K, b, 5, scaled, NULL, work);
    for (int i = 0; i < 5; ++i)
        assert_true(ldexp(scaled[i], e[i]) == plain[i]);
}

/* Rows whose Gram matrix is singular, in all orders: the limit of rounds is never met. */
static void degenerate_rows_do_not_cycle(void **state)
{
    (void)state;
    test_random r = {14};
    for (int round = 0; round < 2000; ++round) {
        const int m = 3 + test_below(&r, 30), n = 2 + test_below(&r, 3);
        double G[33 * 4], u[4], K[33 * 33], b[33], lambda[33], s[33];
        for (int i = 0; i < m; ++i)
            for (int k = 0; k < n; ++k)
                G[i * n + k] = (double)(test_below(&r, 5) - 2); /* small integers: many exact coincidences */
        for (int k = 0; k < n; ++k)
            u[k] = (double)(test_below(&r, 7) - 3);
        test_gram(G, m, n, K);
        for (int i = 0; i < m; ++i)
            b[i] = test_dot(G + i * n, u, n);
        assert_true(sut_nnqp(K, b, m, lambda, s, work) >= 0);
        for (int i = 0; i < m; ++i) {
            assert_true(lambda[i] >= 0.0);
            assert_true(s[i] >= -1e-11 && fabs(lambda[i] * s[i]) <= 1e-11);
        }
    }
}

static void correction_recovers_lost_digits(void **state)
{
    (void)state;
    /* Rows at angle 1e-4 to opposition; multipliers spoiled in the ninth digit come back from the measured slack. */
    const double G[6] = {1, 1e-4, 0, -1, 1e-4, 0.5e-4}, u[3] = {0.3, -2, 1};
    double K[4], b[2], lambda[2], spoiled[2], s[2], delta[2], p[3];
    test_gram(G, 2, 3, K);
    for (int i = 0; i < 2; ++i)
        b[i] = test_dot(G + 3 * i, u, 3);
    (void)sut_nnqp(K, b, 2, lambda, NULL, work);
    assert_true(lambda[0] > 0 && lambda[1] > 0);
    assert_true(sut_nnqp_condition(K, 2, lambda, work) > 1e6);
    spoiled[0] = lambda[0] * (1 + 1e-9);
    spoiled[1] = lambda[1];
    for (int k = 0; k < 3; ++k)
        p[k] = u[k] + spoiled[0] * G[k] + spoiled[1] * G[3 + k];
    for (int i = 0; i < 2; ++i)
        s[i] = test_dot(G + 3 * i, p, 3);
    assert_true(fabs(s[0]) > 1e-9);
    assert_true(sut_nnqp_correction(K, s, 2, spoiled, delta, work));
    for (int k = 0; k < 3; ++k)
        p[k] += delta[0] * G[k] + delta[1] * G[3 + k];
    for (int i = 0; i < 2; ++i)
        assert_true(fabs(test_dot(G + 3 * i, p, 3)) <= 1e-14);
}

static void resolve_finds_another_working_set(void **state)
{
    (void)state;
    /* Multipliers of the wrong rows; the slacks measured with them lead to the right ones. */
    const double K[4] = {1, 0.5, 0.5, 1}, b[2] = {-1, -0.2};
    double lambda[2] = {0, 0.2}, s[2], delta[2];
    for (int i = 0; i < 2; ++i)
        s[i] = b[i] + K[2 * i] * lambda[0] + K[2 * i + 1] * lambda[1];
    assert_true(sut_nnqp_resolve(K, s, 2, lambda, work) >= 0);
    test_close(lambda, (const double[]){1, 0}, 2, 1e-15);
    /* A correction that would turn a multiplier negative is refused. */
    double wrong[2] = {0.1, 0.1};
    for (int i = 0; i < 2; ++i)
        s[i] = b[i] + K[2 * i] * wrong[0] + K[2 * i + 1] * wrong[1];
    assert_false(sut_nnqp_correction(K, s, 2, wrong, delta, work));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_row),
        cmocka_unit_test(two_rows_by_hand),
        cmocka_unit_test(closed_forms_are_the_general_path),
        cmocka_unit_test(active_set_is_enumeration),
        cmocka_unit_test(any_scale_of_rows),
        cmocka_unit_test(degenerate_rows_do_not_cycle),
        cmocka_unit_test(correction_recovers_lost_digits),
        cmocka_unit_test(resolve_finds_another_working_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
