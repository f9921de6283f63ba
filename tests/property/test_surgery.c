/*
 * What must hold for any gradients: permutation, duplication, scaling, guarantees on the cone, relations between methods.
 * Test lists run over the library's own table of methods.
 */
#include "support/surgery.h"
#include "surgery/surgery.h"

#include <math.h>
#include <string.h>

enum { MAX_M = 12, MAX_N = 40 };

/* Random rows; with `conflict` most of the common direction is taken out; lengths 0.1 .. 10. */
static void draw(test_random *r, int m, int n, double conflict, double *G)
{
    for (int k = 0; k < n; ++k) {
        double mean = 0.0;
        for (int i = 0; i < m; ++i) {
            G[i * n + k] = test_normal(r) + (conflict < 0.0 ? 1.0 : 0.0);
            mean += G[i * n + k] / m;
        }
        for (int i = 0; i < m && conflict > 0.0; ++i)
            G[i * n + k] -= conflict * mean;
    }
    for (int i = 0; i < m; ++i) {
        const double length = pow(10.0, 2.0 * test_uniform(r) - 1.0);
        for (int k = 0; k < n; ++k)
            G[i * n + k] *= length;
    }
}

static const double some_weights[MAX_M] = {1, 2, 0.5, 1.5, 1, 3, 0.2, 1, 2, 1, 0.7, 1.1};

static void configure(sut_surgery_config *config, int method)
{
    test_exact(config, (sut_surgery_method)method);
    config->pcgrad_identity_order = 1;
    config->preference = method == SUT_SURGERY_FIXED ? some_weights : NULL;
}

/* C013: a permutation of the losses (with that of orders and preferences) leaves a as it is. */
static void permutation(void **state)
{
    (void)state;
    test_random r = {81};
    for (int round = 0; round < test_rounds(300); ++round) {
        const int m = 2 + test_below(&r, 5), n = m + 1 + test_below(&r, 8);
        double G[MAX_M * MAX_N], H[MAX_M * MAX_N], a[MAX_N], b[MAX_N], losses[MAX_M], moved_losses[MAX_M];
        double preference[MAX_M], moved[MAX_M];
        int order[MAX_M * MAX_M], moved_order[MAX_M * MAX_M], to[MAX_M];
        draw(&r, m, n, round % 3 == 0 ? 0.8 : round % 3 == 1 ? 0.0 : -1.0, G);
        for (int i = 0; i < m; ++i)
            to[i] = i;
        for (int i = m - 1; i > 0; --i) {
            const int j = test_below(&r, i + 1), kept = to[i];
            to[i] = to[j];
            to[j] = kept;
        }
        for (int i = 0; i < m; ++i) {
            preference[i] = 0.2 + test_uniform(&r);
            losses[i] = 0.2 + test_uniform(&r);
            for (int k = 0; k < m; ++k)
                order[i * m + k] = (k + i) % m;
        }
        for (int i = 0; i < m; ++i) {
            moved[to[i]] = preference[i];
            moved_losses[to[i]] = losses[i];
            memcpy(H + to[i] * n, G + i * n, (size_t)n * sizeof *G);
            for (int k = 0; k < m; ++k)
                moved_order[to[i] * m + k] = to[order[i * m + k]];
        }
        for (int method = 0; method < SUT_SURGERY_COUNT; ++method) {
            for (int weighted = 0; weighted < 2; ++weighted) {
                sut_surgery_config config;
                sut_surgery_report report, other;
                configure(&config, method);
                config.pcgrad_identity_order = 0;
                config.mgda_normalisation = (sut_mgda_normalisation)(round % 4);
                config.order = order;
                config.preference = weighted || method == SUT_SURGERY_FIXED ? preference : NULL;
                assert_int_equal(test_direction_status(&config, G, m, n, losses, a, &report), SUT_OK);
                config.order = moved_order;
                config.preference = config.preference ? moved : NULL;
                assert_int_equal(test_direction_status(&config, H, m, n, moved_losses, b, &other), SUT_OK);
                double reach = 0.0;
                for (int i = 0; i < m; ++i)
                    reach += fabs(report.weights[i]) * report.norms[i];
                test_close(b, a, n, 1e-9 * reach);
                assert_true(fabs(report.min_cos - other.min_cos) <= 1e-6);
            }
        }
    }
}

/* The guarantees of the table in section 0, to rounding. */
static void cone_guarantees(void **state)
{
    (void)state;
    test_random r = {82};
    for (int round = 0; round < test_rounds(1000); ++round) {
        const int m = 2 + test_below(&r, 5), n = 8;
        double G[MAX_M * MAX_N], a[MAX_N];
        draw(&r, m, n, round % 2 ? 0.8 : 0.0, G);
        for (int method = SUT_SURGERY_CONFIG; method < SUT_SURGERY_COUNT; ++method) {
            sut_surgery_config config;
            sut_surgery_report report;
            configure(&config, method);
            if (method == SUT_SURGERY_CAGRAD)
                config.cagrad_c = round % 3 == 0 ? 1.0 : 2.5;
            if (method == SUT_SURGERY_ALIGNED_MTL || method == SUT_SURGERY_SDMGRAD ||
                (method == SUT_SURGERY_PCGRAD && m > 2))
                continue;
            test_direction(&config, G, m, n, a, &report);
            if (report.zero)
                continue;
            const double length = test_norm(a, n), sign = report.negative_normaliser ? -1.0 : 1.0;
            if (method == SUT_SURGERY_IMTLG)
                assert_true(m > 2 || !report.negative_normaliser);
            for (int i = 0; i < m; ++i) {
                const double product = sign * test_dot(a, G + i * n, n) / report.norms[i];
                assert_true(product >= -1e-9 * length);
                if (method == SUT_SURGERY_NASH || method == SUT_SURGERY_CONFIG)
                    assert_true(product > 0.0);
                if (method == SUT_SURGERY_MGDA)
                    assert_true(product * report.norms[i] >= length * length * (1.0 - 1e-9));
            }
            if (method != SUT_SURGERY_IMTLG || !report.negative_normaliser)
                assert_int_equal(report.n_conflicts, 0);
        }
    }
}

/* The default form gives up a . g_i >= 0 by at most reg_eps tr K w_i. */
static void default_upgrad_gives_up_what_it_says(void **state)
{
    (void)state;
    test_random r = {83};
    for (int round = 0; round < test_rounds(500); ++round) {
        const int m = 2 + test_below(&r, 5), n = 8;
        double G[MAX_M * MAX_N], a[MAX_N];
        draw(&r, m, n, 0.9, G);
        for (int which = 0; which < 2; ++which) {
            sut_surgery_config config;
            sut_surgery_report report;
            sut_surgery_config_init(&config, which ? SUT_SURGERY_DUALPROJ : SUT_SURGERY_UPGRAD);
            test_direction(&config, G, m, n, a, &report);
            double trace = 0.0;
            for (int i = 0; i < m; ++i)
                trace += report.norms[i] * report.norms[i];
            for (int i = 0; i < m; ++i)
                assert_true(test_dot(a, G + i * n, n) >= -config.reg_eps * trace * report.weights[i] * (1.0 + 1e-6));
        }
    }
}

/* C013, C030: where nothing conflicts, nothing is changed. */
static void no_conflict_no_change(void **state)
{
    (void)state;
    test_random r = {84};
    int unchanged_means = 0;
    for (int round = 0; round < test_rounds(1000); ++round) {
        const int m = 2 + test_below(&r, 5), n = 8;
        double G[MAX_M * MAX_N], a[MAX_N], mean[MAX_N], sum[MAX_N];
        draw(&r, m, n, round % 2 ? 0.0 : -1.0, G);
        if (round % 4 == 0)
            for (int k = 0; k < m * n; ++k)
                G[k] = fabs(G[k]); /* every product positive */
        sut_surgery_config config;
        configure(&config, SUT_SURGERY_MEAN);
        test_direction(&config, G, m, n, mean, NULL);
        configure(&config, SUT_SURGERY_SUM);
        test_direction(&config, G, m, n, sum, NULL);
        bool free = true, all = true;
        for (int i = 0; i < m; ++i) {
            free = free && test_dot(G + i * n, mean, n) >= 0.0;
            for (int j = 0; j < m; ++j)
                all = all && test_dot(G + i * n, G + j * n, n) >= 0.0;
        }
        for (int form = 0; form < 2 && free; ++form) {
            configure(&config, SUT_SURGERY_DUALPROJ);
            config.reg_eps = form ? 1e-4 : 0.0;
            test_direction(&config, G, m, n, a, NULL);
            assert_memory_equal(a, mean, (size_t)n * sizeof *a);
            ++unchanged_means;
            if (!all)
                continue;
            configure(&config, SUT_SURGERY_UPGRAD);
            config.reg_eps = form ? 1e-4 : 0.0;
            test_direction(&config, G, m, n, a, NULL);
            test_close(a, mean, n, 1e-15 * test_norm(sum, n));
            configure(&config, SUT_SURGERY_PCGRAD);
            test_direction(&config, G, m, n, a, NULL);
            assert_memory_equal(a, sum, (size_t)n * sizeof *a);
        }
    }
    assert_true(unchanged_means > test_rounds(300));
}

/* A duplicated loss: ConFIG counts it twice in its length and once in its direction; exact projections see one cone. */
static void duplication(void **state)
{
    (void)state;
    test_random r = {85};
    for (int round = 0; round < test_rounds(300); ++round) {
        const int m = 2 + test_below(&r, 4), n = 10;
        double G[MAX_M * MAX_N], a[MAX_N], b[MAX_N];
        draw(&r, m, n, 0.7, G);
        const int twice = test_below(&r, m);
        memcpy(G + m * n, G + twice * n, (size_t)n * sizeof *G);
        static const sut_surgery_method same[] = {SUT_SURGERY_MGDA, SUT_SURGERY_CONFIG};
        for (int k = 0; k < 2; ++k) {
            sut_surgery_config config;
            sut_surgery_report report;
            configure(&config, (int)same[k]);
            test_direction(&config, G, m, n, a, &report);
            test_direction(&config, G, m + 1, n, b, NULL);
            double scale = 1.0;
            if (same[k] == SUT_SURGERY_CONFIG) { /* L = sum d_i cos_i with one term more */
                double length = 0.0;
                for (int i = 0; i < m; ++i)
                    length += report.norms[i];
                scale = (length + report.norms[twice]) / length;
            }
            for (int j = 0; j < n; ++j)
                a[j] *= scale;
            test_close(b, a, n, 1e-9 * (test_norm(a, n) + report.norms[twice]));
        }
        /* DualProj of preferences that add up to the same mean. */
        double one[MAX_M], two[MAX_M];
        for (int i = 0; i <= m; ++i)
            one[i] = two[i] = 1.0;
        two[twice] = two[m] = 0.5;
        sut_surgery_config config;
        configure(&config, SUT_SURGERY_DUALPROJ);
        config.preference = one;
        test_direction(&config, G, m, n, a, NULL);
        config.preference = two;
        test_direction(&config, G, m + 1, n, b, NULL);
        test_close(b, a, n, 1e-10 * (1.0 + test_norm(a, n)) * 10.0);
    }
}

/* Rows times d_i > 0: the direction of ConFIG and IMTL-G stays (up to sign), Nash-MTL does not change at all. */
static void row_scaling(void **state)
{
    (void)state;
    test_random r = {86};
    for (int round = 0; round < test_rounds(300); ++round) {
        const int m = 2 + test_below(&r, 5), n = 10;
        double G[MAX_M * MAX_N], a[MAX_N], b[MAX_N];
        static const sut_surgery_method methods[] = {SUT_SURGERY_CONFIG, SUT_SURGERY_IMTLG, SUT_SURGERY_NASH};
        draw(&r, m, n, 0.6, G);
        for (int k = 0; k < 3; ++k) {
            double H[MAX_M * MAX_N];
            sut_surgery_config config;
            configure(&config, (int)methods[k]);
            test_direction(&config, G, m, n, a, NULL);
            for (int i = 0; i < m; ++i) {
                const double d = pow(10.0, 6.0 * test_uniform(&r) - 3.0);
                for (int j = 0; j < n; ++j)
                    H[i * n + j] = d * G[i * n + j];
            }
            test_direction(&config, H, m, n, b, NULL);
            if (methods[k] == SUT_SURGERY_NASH) {
                test_close(b, a, n, 1e-10 * test_norm(a, n));
                continue;
            }
            const double cosine = test_dot(a, b, n) / (test_norm(a, n) * test_norm(b, n));
            assert_true(fabs(fabs(cosine) - 1.0) <= 1e-10);
            if (methods[k] == SUT_SURGERY_CONFIG)
                assert_true(cosine > 0.0);
        }
    }
}

static void relations_between_methods(void **state)
{
    (void)state;
    test_random r = {87};
    for (int round = 0; round < test_rounds(300); ++round) {
        const int m = 2 + test_below(&r, 5), n = 10;
        double G[MAX_M * MAX_N], a[MAX_N], b[MAX_N];
        sut_surgery_config config;
        sut_surgery_report report;
        draw(&r, m, n, round % 2 ? 0.5 : 0.0, G);

        /* imtlg is parallel to config, up to sign. */
        configure(&config, SUT_SURGERY_CONFIG);
        test_direction(&config, G, m, n, a, NULL);
        configure(&config, SUT_SURGERY_IMTLG);
        test_direction(&config, G, m, n, b, &report);
        const double cosine = test_dot(a, b, n) / (test_norm(a, n) * test_norm(b, n));
        assert_true(fabs(cosine - (report.negative_normaliser ? -1.0 : 1.0)) <= 1e-9);
        config.imtlg_abs_normaliser = 1;
        test_direction(&config, G, m, n, b, NULL);
        assert_true(test_dot(a, b, n) > 0.0);

        /* cagrad with c = 0 is the mean, with and without rescaling. */
        configure(&config, SUT_SURGERY_MEAN);
        test_direction(&config, G, m, n, b, NULL);
        configure(&config, SUT_SURGERY_CAGRAD);
        config.cagrad_c = 0.0;
        for (config.cagrad_rescale = 0; config.cagrad_rescale < 3; ++config.cagrad_rescale) {
            test_direction(&config, G, m, n, a, NULL);
            test_close(a, b, n, 1e-14 * (1.0 + test_norm(b, n)));
        }

        /* sdmgrad with lambda = 0 is mgda, with a huge one the mean. */
        configure(&config, SUT_SURGERY_SDMGRAD);
        config.sdmgrad_lambda = 1e9;
        test_direction(&config, G, m, n, a, NULL);
        test_close(a, b, n, 1e-7 * (1.0 + test_norm(b, n)) * 10.0);
        config.sdmgrad_lambda = 0.0;
        test_direction(&config, G, m, n, a, NULL);
        configure(&config, SUT_SURGERY_MGDA);
        test_direction(&config, G, m, n, b, NULL);
        test_close(a, b, n, 1e-11 * (1.0 + test_norm(b, n)));

        /* nash: K alpha . alpha = 1 for each loss, |a| = sqrt(m) before and max_norm after clipping. */
        configure(&config, SUT_SURGERY_NASH);
        config.nash_max_norm = 0.0;
        test_direction(&config, G, m, n, a, &report);
        assert_true(fabs(test_norm(a, n) - sqrt(m)) <= 1e-10);
        for (int i = 0; i < m; ++i)
            assert_true(fabs(test_dot(a, G + i * n, n) * report.weights[i] - 1.0) <= 1e-9);
        config.nash_max_norm = 0.7;
        test_direction(&config, G, m, n, a, NULL);
        assert_true(fabs(test_norm(a, n) - 0.7) <= 1e-10);
        config.nash_max_norm = 50.0; /* a limit, not a length */
        test_direction(&config, G, m, n, a, NULL);
        assert_true(fabs(test_norm(a, n) - sqrt(m)) <= 1e-10);

        /* fixed with equal weights is the sum. */
        configure(&config, SUT_SURGERY_FIXED);
        config.preference = (const double[]){1, 1, 1, 1, 1, 1};
        test_direction(&config, G, m, n, a, NULL);
        configure(&config, SUT_SURGERY_SUM);
        test_direction(&config, G, m, n, b, NULL);
        assert_memory_equal(a, b, (size_t)n * sizeof *a);
    }
}

/* Two losses in closed form: 4.1, 4.4 and 4.8. */
static void two_losses(void **state)
{
    (void)state;
    test_random r = {88};
    for (int round = 0; round < test_rounds(500); ++round) {
        const int n = 6;
        double G[2 * MAX_N], a[MAX_N], b[MAX_N];
        sut_surgery_config config;
        draw(&r, 2, n, round % 2 ? 0.7 : 0.0, G);
        const double ratio = test_norm(G, n) / test_norm(G + n, n);
        if (round % 5 == 0) /* nearly parallel: the published form loses every digit */
            for (int k = 0; k < n; ++k)
                G[n + k] = 2.0 * G[k] + 1e-5 * ratio * G[n + k];
        const double d0 = test_norm(G, n), d1 = test_norm(G + n, n);
        for (int k = 0; k < n; ++k)
            b[k] = G[k] / d0 + G[n + k] / d1;
        configure(&config, SUT_SURGERY_CONFIG);
        test_direction(&config, G, 2, n, a, NULL);
        for (int k = 0; k < n; ++k)
            a[k] /= 0.5 * (d0 + d1);
        test_close(a, b, n, 1e-14);
        configure(&config, SUT_SURGERY_IMTLG);
        test_direction(&config, G, 2, n, a, NULL);
        for (int k = 0; k < n; ++k)
            a[k] /= d0 * d1 / (d0 + d1);
        test_close(a, b, n, 1e-14);
        /* General angle weights: p is proportional to (w0 - k w1) u0 + (w1 - k w0) u1. */
        const double kappa = test_dot(G, G + n, n) / (d0 * d1);
        if (round % 5 == 0)
            continue;
        configure(&config, SUT_SURGERY_CONFIG);
        config.preference = (const double[]){1, 2.5};
        test_direction(&config, G, 2, n, a, NULL);
        for (int k = 0; k < n; ++k)
            b[k] = (1 - kappa * 2.5) * G[k] / d0 + (2.5 - kappa) * G[n + k] / d1;
        assert_true(fabs(test_dot(a, b, n) / (test_norm(a, n) * test_norm(b, n)) - 1.0) <= 1e-12);
        assert_true(fabs(test_dot(a, G + n, n) / d1 / (test_dot(a, G, n) / d0) - 2.5) <= 1e-9);
    }
}

/* CAGrad maximises min_i g_i . v in the ball around the mean: no other point of the ball does better. */
static void cagrad_is_optimal(void **state)
{
    (void)state;
    test_random r = {89};
    for (int round = 0; round < test_rounds(400); ++round) {
        const int m = 2 + test_below(&r, 5), n = 6 + test_below(&r, 5);
        double G[MAX_M * MAX_N], v[MAX_N], mean[MAX_N], step[MAX_N];
        sut_surgery_config config;
        draw(&r, m, n, (round % 3) * 0.45, G);
        configure(&config, SUT_SURGERY_MEAN);
        test_direction(&config, G, m, n, mean, NULL);
        configure(&config, SUT_SURGERY_CAGRAD);
        config.cagrad_rescale = 0;
        config.cagrad_c = 0.1 + 2.0 * test_uniform(&r);
        test_direction(&config, G, m, n, v, NULL);
        const double radius = config.cagrad_c * test_norm(mean, n);
        for (int k = 0; k < n; ++k)
            step[k] = v[k] - mean[k];
        assert_true(test_norm(step, n) <= radius * (1.0 + 1e-9));
        double best = INFINITY, scale = 0.0;
        for (int i = 0; i < m; ++i) {
            best = fmin(best, test_dot(v, G + i * n, n));
            scale = fmax(scale, test_norm(G + i * n, n));
        }
        for (int trial = 0; trial < 40; ++trial) {
            double worst = INFINITY, other[MAX_N];
            const double size = pow(10.0, -4.0 * test_uniform(&r));
            for (int k = 0; k < n; ++k)
                other[k] = step[k] + size * radius * test_normal(&r);
            const double length = test_norm(other, n), shrink = length > radius ? radius / length : 1.0;
            for (int k = 0; k < n; ++k)
                other[k] = mean[k] + shrink * other[k];
            for (int i = 0; i < m; ++i)
                worst = fmin(worst, test_dot(other, G + i * n, n));
            assert_true(worst <= best + 1e-9 * scale * radius);
        }
    }
}

/*
 * The smoothed objective of the published code, by golden-section search over the two-loss simplex:
 * w^T k + r sqrt(|g_w|^2 + eps), r = c sqrt(|g_0|^2 + eps) + eps, weights 1/m + r w / (|g_w| + eps).
 */
static double smoothed(const double *K, double c, double eps, double x, double *norm)
{
    const double w[2] = {x, 1.0 - x}, g0 = (K[0] + 2 * K[1] + K[3]) / 4;
    const double along = w[0] * (K[0] + K[1]) / 2 + w[1] * (K[1] + K[3]) / 2;
    const double square = w[0] * w[0] * K[0] + 2 * w[0] * w[1] * K[1] + w[1] * w[1] * K[3];
    *norm = sqrt(square);
    return along + (c * sqrt(g0 + eps) + eps) * sqrt(square + eps);
}

static void cagrad_with_eps_is_the_published_form(void **state)
{
    (void)state;
    test_random r = {91};
    for (int round = 0; round < test_rounds(200); ++round) {
        const double eps = pow(10.0, -4.0 * test_uniform(&r)), c = 0.2 + test_uniform(&r);
        double G[2 * MAX_N], K[4], a[MAX_N], low = 0.0, high = 1.0, norm;
        sut_surgery_config config;
        sut_surgery_report report;
        draw(&r, 2, 5, round % 2 ? 0.8 : 0.0, G);
        test_gram(G, 2, 5, K);
        for (int step = 0; step < 200; ++step) {
            const double x = low + 0.381966 * (high - low), y = high - 0.381966 * (high - low);
            if (smoothed(K, c, eps, x, &norm) < smoothed(K, c, eps, y, &norm))
                high = y;
            else
                low = x;
        }
        const double w0 = 0.5 * (low + high);
        (void)smoothed(K, c, eps, w0, &norm);
        const double radius = c * sqrt((K[0] + 2 * K[1] + K[3]) / 4 + eps) + eps;
        const double wanted[2] = {0.5 + radius * w0 / (norm + eps), 0.5 + radius * (1 - w0) / (norm + eps)};
        configure(&config, SUT_SURGERY_CAGRAD);
        config.cagrad_rescale = 0;
        config.cagrad_c = c;
        config.cagrad_eps = eps;
        test_direction(&config, G, 2, 5, a, &report);
        for (int i = 0; i < 2; ++i)
            assert_true(fabs(report.weights[i] - wanted[i]) <= 1e-5 * wanted[i]);
    }
}

/* Degenerate rows of every sort: no method fails, every number is finite, a zero answer is exactly zero. */
static void degenerate_rows(void **state)
{
    (void)state;
    test_random r = {90};
    for (int round = 0; round < test_rounds(3000); ++round) {
        const int m = 2 + test_below(&r, MAX_M - 1), n = 1 + test_below(&r, 4);
        double G[MAX_M * MAX_N], a[MAX_N], losses[MAX_M];
        for (int k = 0; k < m * n; ++k)
            G[k] = (double)(test_below(&r, 5) - 2);
        for (int i = 0; i < m; ++i)
            losses[i] = 0.5 + test_uniform(&r);
        for (int method = 0; method < SUT_SURGERY_COUNT; ++method) {
            sut_surgery_config config;
            sut_surgery_report report;
            sut_surgery_config_init(&config, (sut_surgery_method)method);
            config.preference = method == SUT_SURGERY_FIXED ? some_weights : NULL;
            config.mgda_normalisation = (sut_mgda_normalisation)(round % 4);
            if (round % 2)
                config.norm_eps = config.reg_eps = 0.0;
            const sut_status status = test_direction_status(&config, G, m, n, losses, a, &report);
            if (method == SUT_SURGERY_NASH && status == SUT_ERROR_UNDEFINED)
                continue;
            if (status != SUT_OK)
                fail_msg("%s: %s", sut_surgery_method_name(config.method), sut_context_last_error(test_context()));
            for (int k = 0; k < n; ++k)
                assert_true(isfinite(a[k]) && (!report.zero || a[k] == 0.0));
            const bool exact = round % 2 && (method == SUT_SURGERY_UPGRAD || method == SUT_SURGERY_DUALPROJ);
            for (int i = 0; i < m && (exact || (method == SUT_SURGERY_MGDA && round % 4 == 0)); ++i)
                assert_true(test_dot(a, G + i * n, n) >= -1e-9);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutation),
        cmocka_unit_test(cone_guarantees),
        cmocka_unit_test(default_upgrad_gives_up_what_it_says),
        cmocka_unit_test(no_conflict_no_change),
        cmocka_unit_test(duplication),
        cmocka_unit_test(row_scaling),
        cmocka_unit_test(relations_between_methods),
        cmocka_unit_test(two_losses),
        cmocka_unit_test(cagrad_is_optimal),
        cmocka_unit_test(cagrad_with_eps_is_the_published_form),
        cmocka_unit_test(degenerate_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
