/*
 * Second moments under rounding: a variance or a sum of squares that rounding makes negative must not become NaN, and a
 * denormal eps beside v = 0 gives no coordinate an infinite step.
 */
#include "support/step.h"

#include <string.h>

enum { N = 64 };

static sut_context *context(void)
{
    return step_context(1, SUT_ISA_AUTO);
}

static sut_optimizer *make(sut_optimizer_config *config, float *theta)
{
    sut_optimizer *opt;
    const sut_tensor tensor = {.data = theta, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {N}};
    config->tensors = &tensor;
    config->n_tensors = 1;
    if (sut_optimizer_create(&opt, context(), config) != SUT_OK)
        fail_msg("%s", sut_context_last_error(context()));
    return opt;
}

static float *state_of(sut_optimizer *opt, const char *slot)
{
    void *data;
    assert_int_equal(sut_optimizer_state(opt, slot, 0, &data, NULL, NULL), SUT_OK);
    return data;
}

/* Constant gradients: v and ga^2 meet, and their difference is rounding of either sign. A negative one counts as 0, so that
 * eps alone scales the step. */
static void variance_of_constant_gradients(void **state)
{
    (void)state;
    for (int momentum = 0; momentum < 2; ++momentum) {
        float theta[N] = {0}, g[N];
        const void *grads[1] = {g};
        sut_optimizer_config config;
        sut_optimizer_config_init(&config, SUT_OPTIMIZER_RMSPROP);
        config.hyper.centered = 1;
        config.hyper.alpha = 0.7;
        config.hyper.momentum = 0.5 * momentum;
        sut_optimizer *const opt = make(&config, theta);
        const float *const v = state_of(opt, "v"), *const ga = state_of(opt, "ga");
        test_random r = {3};
        int negative = 0;
        for (int k = 0; k < N; ++k)
            g[k] = (float)test_normal(&r);
        for (int t = 0; t < 200; ++t) {
            float before[N];
            memcpy(before, theta, sizeof before);
            assert_int_equal(sut_optimizer_step(opt, grads, NULL, NULL), SUT_OK);
            for (int k = 0; k < N; ++k) {
                const float square = ga[k] * ga[k];
                negative += v[k] - square < 0;
                if (!isfinite(theta[k]))
                    fail_msg("step %d: parameter %d is %g (v = %g, ga = %g)", t, k, (double)theta[k], (double)v[k],
                             (double)ga[k]);
                const double moved = fabs((double)before[k] - (double)theta[k]),
                             least = 0.5e-2 * fabs((double)g[k]) / 1e-8;
                if (v[k] < square && moved < least)
                    fail_msg("step %d: parameter %d moved by %g, at least %g expected", t, k, moved, least);
            }
        }
        assert_true(negative > 100); /* else this shows nothing */
        sut_optimizer_destroy(opt);
    }
}

/* Adagrad's last square is taken out again when p = 0 replaces the proposal; it was multiplied and divided meanwhile. */
static void sum_without_its_last_square(void **state)
{
    (void)state;
    float theta[N] = {0}, g[N], zero[N] = {0};
    const void *grads[1] = {g}, *p[1] = {zero};
    sut_optimizer_config config;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAGRAD);
    config.hyper.lr_decay = 0.37;
    config.align = SUT_ALIGN_GUA;
    config.rho_v = 1;
    sut_optimizer *const opt = make(&config, theta);
    const float *const v = state_of(opt, "v");
    test_random r = {5};
    for (int t = 0; t < 6; ++t) {
        for (int k = 0; k < N; ++k)
            g[k] = (float)test_normal(&r);
        assert_int_equal(sut_optimizer_propose(opt, grads, NULL, NULL, NULL), SUT_OK);
        assert_int_equal(sut_optimizer_apply(opt, grads, p, NULL), SUT_OK);
        for (int k = 0; k < N; ++k)
            if (!(v[k] >= 0 && v[k] < 1e-5F))
                fail_msg("step %d: v[%d] is %g", t, k, (double)v[k]);
    }
    sut_optimizer_destroy(opt);
}

/* eps below the normal numbers and v = 0: 1 / D would be infinite, and 0 times that NaN. */
static void denormal_eps(void **state)
{
    (void)state;
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method) {
        float theta[N], before[N], g[2][N] = {{0}};
        const void *grads[2] = {g[0], g[1]};
        sut_optimizer_config config;
        sut_optimizer_config_init(&config, (sut_optimizer_method)method);
        config.n_losses = 2;
        config.align = SUT_ALIGN_GUA;
        config.hyper.eps = 1e-40;
        config.hyper.weight_decay = 0;
        for (int k = 0; k < N; ++k)
            theta[k] = before[k] = (float)k;
        sut_optimizer *const opt = make(&config, theta);
        for (int k = 0; k < N; k += 2) {
            g[0][k] = 1;
            g[1][k] = k % 4 ? -2 : 0.5F;
        }
        for (int t = 0; t < 10; ++t)
            assert_int_equal(sut_optimizer_step(opt, grads, NULL, NULL), SUT_OK);
        for (int k = 0; k < N; ++k)
            if (!isfinite(theta[k]) || (k % 2 && theta[k] != before[k]))
                fail_msg("%s: parameter %d is %g", sut_optimizer_method_name((sut_optimizer_method)method), k,
                         (double)theta[k]);
        sut_optimizer_destroy(opt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variance_of_constant_gradients),
        cmocka_unit_test(sum_without_its_last_square),
        cmocka_unit_test(denormal_eps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
