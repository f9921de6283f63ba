/*
 * Numbers at the ends of f32. Gradients whose squares overflow are accepted: the second moment becomes Inf and the coordinate
 * proposes nothing, but nothing ever becomes NaN, neither in that step nor later, and no second moment is lost. Gradients
 * whose squares underflow are aligned like any other. Gradients whose sum overflows are refused, and what is no number is never
 * certified.
 */
#include "support/step.h"

#include <stdio.h>
#include <string.h>

static const struct {
    double rho_m, rho_v;
} strengths[] = {{0, 0}, {0.37, 0.21}, {1, 0}, {0.37, 1}};

static void no_nan(const step_run *run, const char *what)
{
    for (int64_t k = 0; k < run->spec.length[0]; ++k) {
        if (!isfinite(step_theta(run, 0, k)))
            fail_msg("%s: parameter %lld is %g", what, (long long)k, step_theta(run, 0, k));
        const char *slot;
        for (int s = 0; (slot = sut_optimizer_state_name(run->opt, s)) != NULL; ++s)
            if (strcmp(slot, "mu_prod") != 0 && isnan(step_state(run, slot, 0, k)))
                fail_msg("%s: %s[%lld] is NaN", what, slot, (long long)k);
    }
}

static bool has_slot(const step_run *run, const char *name)
{
    const char *slot;
    for (int s = 0; (slot = sut_optimizer_state_name(run->opt, s)) != NULL; ++s)
        if (!strcmp(slot, name))
            return true;
    return false;
}

/* Element 3 and a few others are huge in some losses; the rest is ordinary. */
static void huge_gradients(void **state)
{
    (void)state;
    enum { N = 40, HUGE_STEPS = 3, STEPS = 8 };
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int variant = 0; variant < step_n_variants((sut_optimizer_method)method); ++variant)
            for (int k = 0; k < 32; ++k) {
                step_spec spec;
                sut_hyper unused;
                char what[300];
                if (!step_variant((sut_optimizer_method)method, variant, &unused))
                    break;
                step_spec_init(&spec, (sut_optimizer_method)method, variant);
                spec.dtype = SUT_DTYPE_F32;
                spec.length[0] = N;
                spec.config.n_losses = 3;
                spec.config.metric = (sut_metric)(k % 2);
                spec.config.rho_m = strengths[k / 2 % 4].rho_m;
                spec.config.rho_v = strengths[k / 2 % 4].rho_v;
                spec.config.realign_raw = k / 8 % 2;
                const bool everywhere = k / 16 == 1;
                step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
                step_grads *const g = step_grads_new(&spec);
                test_random r = {spec.seed + (uint64_t)k};
                int projections = 0;
                for (int t = 0; t < STEPS; ++t) {
                    sut_report report;
                    step_grads_conflict(g, &r);
                    for (int64_t j = 3; j < N && t < HUGE_STEPS; j += everywhere ? 1 : 7)
                        for (int i = 0; i < 3; ++i)
                            step_grad_set(g, i, 0, j, (i % 2 ? -1e30 : 1e30) * (1 + 0.1 * test_normal(&r)));
                    step_do(run, g, &report);
                    projections += report.projected;
                    (void)snprintf(what, sizeof what, "%s, metric %d, rho %g and %g, step %d",
                                   step_variant_name((sut_optimizer_method)method, variant), k % 2, spec.config.rho_m,
                                   spec.config.rho_v, t);
                    no_nan(run, what);
                    if (has_slot(run, "v") && spec.config.rho_v < 1 && !isinf(step_state(run, "v", 0, 3)))
                        fail_msg("%s: v[3] is %g", what, step_state(run, "v", 0, 3));
                }
                assert_true(projections > 0);
                step_grads_free(g);
                step_close(run);
            }
}

/*
 * Scaling the gradients by a power of two scales SGD's proposal and divides the multipliers: p is the same to the bit,
 * times that power, as long as f32 itself can hold it; and conflicts are seen at every scale.
 */
static void conflicts_are_seen_at_every_scale(void **state)
{
    (void)state;
    for (int m = 2; m <= 5; ++m)
        for (int exponent = -100; exponent <= 100; exponent += 25) {
            step_spec spec;
            step_spec_init(&spec, SUT_OPTIMIZER_SGD, 0);
            spec.dtype = SUT_DTYPE_F32;
            spec.length[0] = 1000;
            spec.config.n_losses = m;
            spec.theta_scale = 0;
            step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
            step_grads *const g = step_grads_new(&spec);
            test_random r = {(uint64_t)m};
            step_grads_conflict(g, &r);
            for (int i = 0; i < m; ++i)
                for (int64_t k = 0; k < spec.length[0]; ++k)
                    step_grad_set(g, i, 0, k, ldexp(step_grad_get(g, i, 0, k), exponent));
            sut_report report;
            step_do(run, g, &report);
            if (!report.projected || !(report.primal <= 1e-6) || report.conflict_p || !report.conflict_u)
                fail_msg("m = %d, scale 2^%d: projected %d, primal %g", m, exponent, report.projected, report.primal);
            step_grads_free(g);
            step_close(run);
        }
}

/* Coordinates without a metric (eps = 0, v = 0) propose 0, whatever is asked of them later. */
static void no_metric_no_step(void **state)
{
    (void)state;
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int variant = 0; variant < step_n_variants((sut_optimizer_method)method); ++variant)
            for (int dtype = SUT_DTYPE_F32; dtype <= SUT_DTYPE_F64; ++dtype) {
                step_spec spec;
                sut_hyper unused;
                if (!step_variant((sut_optimizer_method)method, variant, &unused))
                    break;
                step_spec_init(&spec, (sut_optimizer_method)method, variant);
                spec.dtype = (sut_dtype)dtype;
                spec.config.hyper.eps = 0;
                spec.config.hyper.weight_decay = 0;
                spec.config.hyper.initial_accumulator_value = 0;
                step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
                step_grads *const g = step_grads_new(&spec);
                test_random r = {7};
                const double kept = step_theta(run, 0, 5);
                for (int t = 0; t < 4; ++t) {
                    step_grads_conflict(g, &r);
                    for (int i = 0; i < 2; ++i)
                        step_grad_set(g, i, 0, 5, 0);
                    step_do(run, g, NULL);
                    no_nan(run, step_variant_name((sut_optimizer_method)method, variant));
                    if (step_theta(run, 0, 5) != kept)
                        fail_msg("%s moved a parameter without gradient",
                                 step_variant_name((sut_optimizer_method)method, variant));
                }
                step_grads_free(g);
                step_close(run);
            }
}

/* A rate that f32 cannot hold would write Inf into the parameters: it is refused wherever it could come in. */
static void rates_beyond_f32(void **state)
{
    (void)state;
    sut_context *const ctx = step_context(1, SUT_ISA_AUTO);
    for (int dtype = SUT_DTYPE_F32; dtype <= SUT_DTYPE_F16; ++dtype) {
        const bool f64 = dtype == SUT_DTYPE_F64;
        const sut_status expected = f64 ? SUT_OK : SUT_ERROR_OUT_OF_RANGE;
        double theta[2] = {0, 0};
        const sut_tensor tensor = {.data = theta, .dtype = (sut_dtype)dtype, .n_dims = 1, .shape = {2}};
        sut_optimizer_config config;
        sut_optimizer *opt, *other;
        sut_optimizer_config_init(&config, SUT_OPTIMIZER_SGD);
        config.tensors = &tensor;
        config.n_tensors = 1;
        config.hyper.lr = 1e39;
        assert_int_equal(sut_optimizer_create(&other, ctx, &config), expected);
        if (!f64)
            assert_non_null(strstr(sut_context_last_error(ctx), "lr of group 0 (sgd) is 1e+39"));
        sut_optimizer_destroy(other);
        config.hyper.lr = 3e38;
        assert_int_equal(sut_optimizer_create(&opt, ctx, &config), SUT_OK);
        assert_int_equal(sut_optimizer_set_lr(opt, -1, 3.5e38), expected);
        sut_hyper hyper = config.hyper;
        hyper.weight_decay = 1e300;
        assert_int_equal(sut_optimizer_set_hyper(opt, 0, &hyper), expected);
        assert_int_equal(sut_optimizer_set_hyper(opt, 0, &config.hyper), SUT_OK);
        sut_schedule schedule;
        sut_schedule_init(&schedule, SUT_SCHEDULE_LINEAR);
        schedule.total = 10;
        schedule.peak = 1;
        schedule.final_lr = 2; /* doubles the rate of every group */
        assert_int_equal(sut_optimizer_set_schedule(opt, &schedule), expected);
        if (!f64)
            assert_non_null(strstr(sut_context_last_error(ctx), "schedule"));
        assert_int_equal(sut_optimizer_set_lr(opt, 0, 1e38), SUT_OK);
        assert_int_equal(sut_optimizer_set_schedule(opt, &schedule), SUT_OK);
        assert_int_equal(sut_optimizer_set_lr(opt, 0, 2e38), expected);
        sut_optimizer_destroy(opt);
    }
    /* A group of f64 tensors beside one of f32 tensors has its own limit; empty tensors have none. */
    double a[2] = {0, 0};
    float b[2] = {0, 0};
    const sut_tensor tensors[3] = {{.data = a, .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {2}, .group = 0},
                                   {.data = b, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {2}, .group = 1},
                                   {.data = NULL, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {0}, .group = 0}};
    sut_optimizer_config config;
    sut_optimizer *opt;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAM);
    sut_hyper groups[2] = {config.hyper, config.hyper};
    groups[0].lr = 1e100;
    config.tensors = tensors;
    config.n_tensors = 3;
    config.groups = groups;
    config.n_groups = 2;
    assert_int_equal(sut_optimizer_create(&opt, ctx, &config), SUT_OK);
    assert_int_equal(sut_optimizer_set_lr(opt, 1, 1e39), SUT_ERROR_OUT_OF_RANGE);
    assert_int_equal(sut_optimizer_set_lr(opt, -1, 1e39), SUT_ERROR_OUT_OF_RANGE);
    double lr;
    assert_int_equal(sut_optimizer_get_lr(opt, 0, &lr), SUT_OK);
    assert_true(lr == 1e100); /* nothing was changed */
    assert_int_equal(sut_optimizer_set_lr(opt, 0, 1e39), SUT_OK);
    sut_optimizer_destroy(opt);
}

/* Finite gradients whose sum is not, in f32: refused with everything as it was, by steps of one loss and of two. */
static void sums_beyond_f32(void **state)
{
    (void)state;
    const float g0[3] = {1e38f, -2e38f, 3e38f}, g1[3] = {-1e38f, 1e38f, 1e38f};
    const void *const grads[2] = {g0, g1};
    sut_context *const ctx = step_context(1, SUT_ISA_AUTO);
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int m = 1; m <= 2; ++m) {
            float theta[3] = {1, 2, 3}, m0 = 0;
            const sut_tensor tensor = {.data = theta, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {3}};
            sut_optimizer_config config;
            sut_optimizer *opt;
            sut_optimizer_config_init(&config, (sut_optimizer_method)method);
            config.tensors = &tensor;
            config.n_tensors = 1;
            config.n_losses = m;
            config.surgery.method = SUT_SURGERY_CONFIG;
            config.align = m == 2 ? SUT_ALIGN_GUA : SUT_ALIGN_NONE;
            assert_int_equal(sut_optimizer_create(&opt, ctx, &config), SUT_OK);
            assert_int_equal(sut_optimizer_step(opt, grads, NULL, NULL), SUT_ERROR_OUT_OF_RANGE);
            assert_non_null(strstr(sut_context_last_error(ctx), "the combined gradient has norm"));
            assert_true(theta[0] == 1 && theta[1] == 2 && theta[2] == 3);
            assert_int_equal(sut_optimizer_steps(opt), 0);
            if (sut_optimizer_state_name(opt, 0)) {
                void *data;
                assert_int_equal(sut_optimizer_state(opt, sut_optimizer_state_name(opt, 0), 0, &data, NULL, NULL),
                                 SUT_OK);
                memcpy(&m0, data, sizeof m0);
                assert_true(m0 == (float)config.hyper.initial_accumulator_value);
            }
            config.clip_norm = 1; /* makes them short */
            sut_optimizer *clipped;
            assert_int_equal(sut_optimizer_create(&clipped, ctx, &config), SUT_OK);
            assert_int_equal(sut_optimizer_step(clipped, grads, NULL, NULL), SUT_OK);
            sut_optimizer_destroy(clipped);
            sut_optimizer_destroy(opt);
        }
}

/*
 * Steps that only check their gradients look at the largest entries, those with a report at the norms: both refuse the same
 * gradients, in the same words, and take the same steps.
 */
static void the_scan_decides_as_the_norms_do(void **state)
{
    (void)state;
    enum { N = 40000, CASES = 22 };
    static const sut_surgery_method methods[] = {SUT_SURGERY_SUM, SUT_SURGERY_MEAN, SUT_SURGERY_FIXED};
    static const double sizes[] = {1e-30, 1,   1e-3, 0.4,
                                   0.9,   1.1, 3}; /* the first two as they are, else parts of the limit */
    static const double preference[3] = {0.5, 2, 0};
    static double memory[3][N];
    int refused = 0, taken = 0;
    for (int dtype = SUT_DTYPE_F32; dtype <= SUT_DTYPE_F64; ++dtype)
        for (int m = 1; m <= 3; ++m)
            for (int method = 0; method < 3; ++method)
                for (int k = 0; k < CASES; ++k) {
                    test_random r = {(uint64_t)(k + 100 * m)};
                    const double size = sizes[k % 7], longest = dtype == SUT_DTYPE_F32 ? 1e37 : 1e300;
                    const double scale = k % 7 < 2 ? size : size * longest / (k / 7 % 2 ? 1 : sqrt(N));
                    const void *grads[2 * 3];
                    for (int i = 0; i < m; ++i) {
                        for (int64_t j = 0; j < N; ++j)
                            step_set(memory[i], (sut_dtype)dtype, j,
                                     k / 7 % 2 ? (j == 777 * i ? scale : 0) /* one entry, or all of them */
                                               : (test_below(&r, 2) ? scale : -scale));
                        grads[2 * i] = memory[i];
                        grads[2 * i + 1] = (char *)memory[i] + 1001 * sut_dtype_size((sut_dtype)dtype);
                    }
                    if (k == CASES - 1) {
                        step_set(memory[m - 1], (sut_dtype)dtype, 30123, NAN); /* where the weight may be 0 */
                        grads[0] = NULL;
                    }
                    sut_status status[2];
                    char text[2][200];
                    static double theta[2][N];
                    for (int with = 0; with < 2; ++with) {
                        sut_context *const ctx = step_context(1 + with, SUT_ISA_AUTO);
                        memset(theta[with], 0, sizeof theta[with]);
                        const sut_tensor tensors[2] = {
                            {.data = theta[with], .dtype = (sut_dtype)dtype, .n_dims = 1, .shape = {1001}},
                            {.data = (char *)theta[with] + 1001 * sut_dtype_size((sut_dtype)dtype),
                             .dtype = (sut_dtype)dtype,
                             .n_dims = 1,
                             .shape = {N - 1001}}};
                        sut_optimizer_config config;
                        sut_optimizer *opt;
                        sut_report report;
                        sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAM);
                        config.tensors = tensors;
                        config.n_tensors = 2;
                        config.n_losses = m;
                        config.check = k % 2 ? SUT_CHECK_ALL : SUT_CHECK_GRADIENTS;
                        config.surgery.method = methods[method];
                        config.surgery.preference = methods[method] == SUT_SURGERY_FIXED ? preference : NULL;
                        assert_int_equal(sut_optimizer_create(&opt, ctx, &config), SUT_OK);
                        sut_report_init(&report);
                        if (k == CASES - 1)
                            step_set(theta[with], (sut_dtype)dtype, 5, NAN); /* told after the gradient */
                        status[with] = sut_optimizer_step(opt, grads, NULL, with ? &report : NULL);
                        (void)snprintf(text[with], sizeof text[with], "%s",
                                       status[with] ? sut_context_last_error(ctx) : "");
                        assert_int_equal(sut_optimizer_steps(opt), status[with] == SUT_OK);
                        sut_optimizer_destroy(opt);
                    }
                    assert_int_equal(status[0], status[1]);
                    assert_string_equal(text[0], text[1]);
                    assert_memory_equal(theta[0], theta[1], sizeof theta[0]);
                    if (k == CASES - 1)
                        assert_int_equal(status[0], SUT_ERROR_NOT_FINITE);
                    refused += status[0] == SUT_ERROR_OUT_OF_RANGE;
                    taken += status[0] == SUT_OK;
                }
    assert_true(refused > 50 && taken > 100);

    /* At the limit itself, where the last bit of a norm decides. */
    for (int n = 3000; n < 3100; ++n) {
        sut_context *const ctx = step_context(1, SUT_ISA_AUTO);
        double *const theta = memory[1];
        const void *const grads[1] = {memory[0]};
        const sut_tensor tensor = {.data = theta, .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {n}};
        sut_optimizer_config config;
        sut_optimizer_config_init(&config, SUT_OPTIMIZER_SGD);
        config.tensors = &tensor;
        config.n_tensors = 1;
        config.hyper.lr = 1e-303;
        sut_status status[2];
        for (int k = 0; k < n; ++k)
            memory[0][k] = 1e300 / sqrt(n);
        memset(theta, 0, sizeof memory[1]);
        for (int with = 0; with < 2; ++with) {
            sut_optimizer *opt;
            sut_report report;
            sut_report_init(&report);
            assert_int_equal(sut_optimizer_create(&opt, ctx, &config), SUT_OK);
            status[with] = sut_optimizer_step(opt, grads, NULL, with ? &report : NULL);
            sut_optimizer_destroy(opt);
        }
        assert_int_equal(status[0], status[1]);
    }
}

/* NaN in a parameter or in the state is no clean step: an aligned one is refused before a parameter moves, in stages too; the
 * report of another one certifies nothing. */
static void proposals_that_are_no_numbers(void **state)
{
    (void)state;
    const double g0[3] = {1, -2, 3}, g1[3] = {-1, 1, 1};
    const float f0[3] = {1, -2, 3}, f1[3] = {-1, 1, 1};
    sut_context *const ctx = step_context(1, SUT_ISA_AUTO);
    for (int dtype = SUT_DTYPE_F32; dtype <= SUT_DTYPE_F64; ++dtype)
        for (int aligned = 0; aligned < 2; ++aligned)
            for (int where = 0; where < 2; ++where) {
                const bool f64 = dtype == SUT_DTYPE_F64;
                double theta64[3] = {1, 2, 3};
                float theta32[3] = {1, 2, 3};
                const void *const grads[2] = {f64 ? (const void *)g0 : f0, f64 ? (const void *)g1 : f1};
                const sut_tensor tensor = {
                    .data = f64 ? (void *)theta64 : theta32, .dtype = (sut_dtype)dtype, .n_dims = 1, .shape = {3}};
                sut_optimizer_config config;
                sut_optimizer *opt;
                sut_report report;
                void *slot;
                sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAMW);
                config.tensors = &tensor;
                config.n_tensors = 1;
                config.n_losses = 2;
                config.surgery.method = SUT_SURGERY_CONFIG;
                config.align = aligned ? SUT_ALIGN_GUA : SUT_ALIGN_NONE;
                assert_int_equal(sut_optimizer_create(&opt, ctx, &config), SUT_OK);
                assert_int_equal(sut_optimizer_state(opt, "m", 0, &slot, NULL, NULL), SUT_OK);
                void *const bad = where == 0 ? tensor.data : slot;
                if (f64)
                    ((double *)bad)[1] = NAN;
                else
                    ((float *)bad)[1] = NAN;
                const double first = f64 ? theta64[0] : theta32[0];
                sut_report_init(&report);
                const sut_status status = sut_optimizer_step(opt, grads, NULL, &report);
                if (aligned) {
                    assert_int_equal(status, SUT_ERROR_NOT_FINITE);
                    assert_non_null(strstr(sut_context_last_error(ctx), "the proposal of step 1 is NaN or Inf"));
                    assert_true((f64 ? theta64[0] : theta32[0]) == first);
                    assert_int_equal(sut_optimizer_propose(opt, grads, NULL, NULL, NULL), SUT_OK);
                    assert_int_equal(sut_optimizer_project(opt, grads, NULL, NULL), SUT_ERROR_NOT_FINITE);
                    assert_int_equal(sut_optimizer_apply(opt, grads, NULL, NULL), SUT_ERROR_SEQUENCE);
                    assert_int_equal(sut_optimizer_propose(opt, grads, NULL, NULL, NULL), SUT_OK);
                    assert_int_equal(sut_optimizer_apply(opt, grads, NULL, NULL), SUT_ERROR_NOT_FINITE);
                    assert_true((f64 ? theta64[0] : theta32[0]) == first);
                    /* The proposal is withdrawn, and the optimizer goes on when the cause is gone. */
                    assert_int_equal(sut_optimizer_state(opt, "m", 0, &slot, NULL, NULL), SUT_OK);
                    theta64[1] = 2;
                    theta32[1] = 2;
                    if (f64)
                        ((double *)slot)[1] = 0;
                    else
                        ((float *)slot)[1] = 0;
                    assert_int_equal(sut_optimizer_step(opt, grads, NULL, &report), SUT_OK);
                    assert_true(report.primal <= 1e-6 && !report.conflict_p && report.skipped_steps == 3);
                } else {
                    assert_int_equal(status, SUT_OK);
                    assert_true(isnan(report.norm_p) && isnan(report.cos_p[0]) && report.conflict_p &&
                                report.conflict_u);
                    assert_true(isnan(report.cos_pu) && isnan(report.ratio_pu) && isnan(report.relative_change));
                }
                sut_optimizer_destroy(opt);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_beyond_f32),
        cmocka_unit_test(the_scan_decides_as_the_norms_do),
        cmocka_unit_test(proposals_that_are_no_numbers),
        cmocka_unit_test(rates_beyond_f32),
        cmocka_unit_test(huge_gradients),
        cmocka_unit_test(conflicts_are_seen_at_every_scale),
        cmocka_unit_test(no_metric_no_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
