/* Point of least norm in a hull. */
#include "support/surgery.h"
#include "surgery/hull.h"

static double work[4 * 64 * 64 + 40 * 64 + 256];

static void by_hand(void **state)
{
    (void)state;
    double w[3];
    assert_true(sut_hull((const double[]){9}, 1, w, work) >= 0 && w[0] == 1.0);
    /* (1, 0) and (0, 2): weights 4/5, 1/5. */
    (void)sut_hull((const double[]){1, 0, 0, 4}, 2, w, work);
    test_close(w, (const double[]){0.8, 0.2}, 2, 1e-16);
    /* g and 4g: g. */
    (void)sut_hull((const double[]){1, 4, 4, 16}, 2, w, work);
    test_close(w, (const double[]){1, 0}, 2, 0.0);
    /* The axes with lengths 1, 2, 1/2: weights proportional to 1 / d^2. */
    (void)sut_hull((const double[]){1, 0, 0, 0, 4, 0, 0, 0, 0.25}, 3, w, work);
    test_close(w, (const double[]){4 / 21.0, 1 / 21.0, 16 / 21.0}, 3, 1e-15);
    /* A zero row is the point. */
    (void)sut_hull((const double[]){1, 0, 0, 0, 0, 0, 0, 0, 1}, 3, w, work);
    test_close(w, (const double[]){0, 1, 0}, 3, 0.0);
    /* Three unit rows at 120 degrees: the origin. */
    (void)sut_hull((const double[]){1, -0.5, -0.5, -0.5, 1, -0.5, -0.5, -0.5, 1}, 3, w, work);
    test_close(w, (const double[]){1 / 3.0, 1 / 3.0, 1 / 3.0}, 3, 1e-15);
}

/* Optimality: g_i . g_w >= |g_w|^2 for all i, equality where w_i > 0. Lengths up to 1e6 apart. */
static void optimal_for_rows_of_any_length(void **state)
{
    (void)state;
    test_random r = {21};
    for (int round = 0; round < 500; ++round) {
        const int m = 1 + test_below(&r, 12), n = 3 + test_below(&r, 20);
        double G[12 * 23], S[144], w[12], a[23] = {0}, sum = 0.0, reach = 0.0;
        for (int i = 0; i < m; ++i) {
            const double length = round % 2 ? pow(10.0, 6.0 * test_uniform(&r)) : 1.0;
            for (int k = 0; k < n; ++k)
                G[i * n + k] = length * test_normal(&r);
        }
        test_gram(G, m, n, S);
        assert_true(sut_hull(S, m, w, work) >= 0);
        for (int i = 0; i < m; ++i) {
            assert_true(w[i] >= 0.0);
            sum += w[i];
            reach += w[i] * sqrt(S[i * m + i]);
            for (int k = 0; k < n; ++k)
                a[k] += w[i] * G[i * n + k];
        }
        assert_true(fabs(sum - 1.0) <= 1e-14);
        const double norm2 = test_dot(a, a, n);
        for (int i = 0; i < m; ++i) {
            const double product = test_dot(a, G + i * n, n), noise = 1e-11 * reach * sqrt(S[i * m + i]);
            assert_true(product >= norm2 - noise);
            if (w[i] > 0.0)
                assert_true(fabs(product - norm2) <= noise);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(optimal_for_rows_of_any_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
