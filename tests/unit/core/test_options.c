/*
 * Options: each one has an effect, each value outside its range is refused by name at creation and later, and a new
 * learning rate acts at once. The lists of hyper-parameters are the library's own, so that a new one is covered.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "suture/suture.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { N = 4, STEPS = 4 };

static sut_context *ctx;

/* Two losses that conflict; the first step's gradients are the longest (AMSGrad remembers them). */
static const double gradients[STEPS][2][N] = {
    {{4, 8, -4, 2}, {-6, 2, 4, 1.2}},
    {{1, 2, -1, 0.5}, {-1.5, 0.5, 1, 0.3}},
    {{0.5, -1, -1, 0.25}, {-0.75, 0.5, 2, 0.5}},
    {{1, 1, -2, 0.5}, {-1, 0.25, 1, -0.5}},
};

static sut_optimizer *make(double *theta, sut_optimizer_config *config)
{
    const sut_tensor tensor = {.data = theta, .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {N}, .name = "theta"};
    sut_optimizer *opt;
    const double start[N] = {1, -2, 0.5, 3};
    memcpy(theta, start, sizeof start);
    config->tensors = &tensor;
    config->n_tensors = 1;
    config->n_losses = 2;
    if (sut_optimizer_create(&opt, ctx, config) != SUT_OK)
        fail_msg("%s", sut_context_last_error(ctx));
    return opt;
}

static void step(sut_optimizer *opt, int t)
{
    const void *grads[2] = {gradients[t][0], gradients[t][1]};
    if (sut_optimizer_step(opt, grads, NULL, NULL) != SUT_OK)
        fail_msg("%s", sut_context_last_error(ctx));
}

static void run(sut_optimizer_config config, double *theta)
{
    sut_optimizer *opt = make(theta, &config);
    for (int t = 0; t < 2 * STEPS; t++) /* RAdam needs six steps before beta2 shows */
        step(opt, t % STEPS);
    sut_optimizer_destroy(opt);
}

static void expect_effect(const char *what, sut_optimizer_config a, sut_optimizer_config b)
{
    double x[N], y[N];
    run(a, x);
    run(b, y);
    for (int k = 0; k < N; k++)
        assert_true(isfinite(x[k]) && isfinite(y[k]));
    if (memcmp(x, y, sizeof x) == 0)
        fail_msg("%s has no effect", what);
}

/* --- C050 ------------------------------------------------------------------------------------------------------------ */

/* Another value than that of `hyper`, well inside the range. */
static double other_value(const sut_parameter_info *info, const sut_hyper *hyper, sut_optimizer_method method)
{
    double now;
    assert_int_equal(sut_hyper_get(hyper, method, info->name, &now), SUT_OK);
    if (info->is_flag)
        return now == 0;
    return now == 0 ? 0.25 : strcmp(info->name, "eps") == 0 ? 0.5 : 0.75 * now;
}

static void every_hyper_parameter_has_an_effect(void **state)
{
    (void)state;
    int covered = 0;
    for (int k = 0; k < SUT_OPTIMIZER_COUNT; k++) {
        const sut_optimizer_method method = (sut_optimizer_method)k;
        sut_parameter_info info;
        for (int j = 0; sut_optimizer_parameter(method, j, &info) == SUT_OK; j++) {
            sut_optimizer_config a;
            sut_optimizer_config_init(&a, method);
            /* What some need to show: momentum for dampening and Nesterov, weight for momenta that only average. */
            if (!strcmp(info.name, "dampening") || !strcmp(info.name, "nesterov"))
                assert_int_equal(sut_hyper_set(&a.hyper, method, "momentum", 0.9), SUT_OK);
            sut_optimizer_config b = a;
            char what[80];
            (void)snprintf(what, sizeof what, "%s of %s", info.name, sut_optimizer_method_name(method));
            const double value = other_value(&info, &b.hyper, method);
            assert_int_equal(sut_hyper_set(&b.hyper, method, info.name, value), SUT_OK);
            expect_effect(what, a, b);
            covered++;
        }
    }
    assert_true(covered >= 8 * 4);
}

static sut_optimizer_config gua(sut_optimizer_method method)
{
    sut_optimizer_config c;
    sut_optimizer_config_init(&c, method);
    c.align = SUT_ALIGN_GUA;
    return c;
}

static void every_setting_has_an_effect(void **state)
{
    (void)state;
    const sut_optimizer_config base = gua(SUT_OPTIMIZER_ADAMW);
    sut_optimizer_config c;
#define EFFECT(change)                   \
    do {                                 \
        c = base;                        \
        change;                          \
        expect_effect(#change, base, c); \
    } while (0)
    EFFECT(c.maximize = 1);
    EFFECT(c.clip_norm = 0.5);
    EFFECT(c.align = SUT_ALIGN_NONE);
    EFFECT(c.metric = SUT_METRIC_EUCLIDEAN);
    EFFECT(c.rho_m = 0.5);
    EFFECT(c.rho_v = 0.5);
    EFFECT(c.realign_raw = 1);
    EFFECT(c.conflict_cos_tol = 0.9);
    EFFECT(c.correction_distance_tol = 100);
    EFFECT(c.surgery.method = SUT_SURGERY_CONFIG);
    EFFECT(c.use_schedule = 1; sut_schedule_init(&c.schedule, SUT_SCHEDULE_LINEAR); c.schedule.total = 10);

    /* The fields of a schedule. */
    sut_optimizer_config with = base;
    with.use_schedule = 1;
    sut_schedule_init(&with.schedule, SUT_SCHEDULE_WSD);
    with.schedule.total = 6, with.schedule.warmup = 1, with.schedule.final_lr = 2e-4,
    with.schedule.cooldown_fraction = 0.7;
#define SCHEDULE_EFFECT(change)          \
    do {                                 \
        c = with;                        \
        change;                          \
        expect_effect(#change, with, c); \
    } while (0)
    SCHEDULE_EFFECT(c.schedule.kind = SUT_SCHEDULE_COSINE);
    SCHEDULE_EFFECT(c.schedule.peak = 0.5);
    SCHEDULE_EFFECT(c.schedule.final_lr = 1e-4);
    SCHEDULE_EFFECT(c.schedule.warmup = 2);
    SCHEDULE_EFFECT(c.schedule.total = 7);
    SCHEDULE_EFFECT(c.schedule.warmup_start = 0.5);
    SCHEDULE_EFFECT(c.schedule.cooldown_fraction = 0.9);
    SCHEDULE_EFFECT(c.schedule.cooldown = SUT_COOLDOWN_SQUARE);
}

/* `check`: whether a bad gradient is refused, with one loss and nothing else that would look at it; `strict`: reported. */
static void checks_have_an_effect(void **state)
{
    (void)state;
    for (int check = 0; check <= SUT_CHECK_ALL; check++)
        for (int strict = 0; strict < 2; strict++) {
            float theta[2] = {1, 2}, g[2] = {1, -1};
            const void *grads[1] = {g};
            const sut_tensor tensor = {
                .data = theta, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {2}, .name = "theta"};
            sut_optimizer_config c;
            sut_optimizer *opt;
            sut_report report;
            sut_report_init(&report);
            sut_optimizer_config_init(&c, SUT_OPTIMIZER_SGD);
            c.tensors = &tensor;
            c.n_tensors = 1;
            c.check = (sut_check)check;
            c.strict = strict;
            assert_int_equal(sut_optimizer_create(&opt, ctx, &c), SUT_OK);
            assert_int_equal(sut_optimizer_step(opt, grads, NULL, &report), SUT_OK);
            assert_int_equal(report.strict, strict);
            g[1] = NAN;
            assert_int_equal(sut_optimizer_step(opt, grads, NULL, NULL),
                             check == SUT_CHECK_NONE ? SUT_OK : SUT_ERROR_NOT_FINITE);
            g[1] = -1;
            theta[0] = theta[1] = NAN;
            assert_int_equal(sut_optimizer_step(opt, grads, NULL, NULL),
                             check == SUT_CHECK_ALL ? SUT_ERROR_NOT_FINITE : SUT_OK);
            sut_optimizer_destroy(opt);
        }
}

enum { M = 3 };

/* Weights for the Gram matrix of rows (4,1,0,1), (-2,3,1,0), (0,-1,2,1). */
static void weights(const sut_surgery_config *config, const double *gram, uint64_t counter, double *w)
{
    const double losses[M] = {1, 3, 0.5};
    sut_surgery_report report;
    sut_surgery_report_init(&report);
    if (sut_surgery_weights(ctx, config, gram, M, losses, counter, &report) != SUT_OK)
        fail_msg("%s: %s", sut_surgery_method_name(config->method), sut_context_last_error(ctx));
    memcpy(w, report.weights, M * sizeof *w);
}

static void expect_weights(const char *what, sut_surgery_config a, sut_surgery_config b, const double *gram)
{
    double x[M], y[M];
    for (uint64_t counter = 0; counter < 20; counter++) { /* a random order may happen to be the given one */
        weights(&a, gram, counter, x);
        weights(&b, gram, counter, y);
        if (memcmp(x, y, sizeof x) != 0)
            return;
    }
    fail_msg("%s has no effect", what);
}

static void every_surgery_option_has_an_effect(void **state)
{
    (void)state;
    static const double gram[M * M] = {18, -5, 0, -5, 14, -1, 0, -1, 6};
    static const double small[M * M] = {18e-6, -5e-6, 0, -5e-6, 14e-6, -1e-6, 0, -1e-6, 6e-6};
    /* (1,0), (-1,1), (-1,-1): 0 lies in the hull, with a mean that is not 0. */
    static const double stationary[M * M] = {1, -1, -1, -1, 2, 0, -1, 0, 2};
    /* (4,0), (-1,1/2), (0,1) in thousandths: the mean hurts the second row. */
    static const double skewed[M * M] = {16e-6, -4e-6, 0, -4e-6, 1.25e-6, 0.5e-6, 0, 0.5e-6, 1e-6};
    static const double preference[M] = {1, 2, 0.5};
    static const int order[M * M] = {2, 1, 0, 2, 1, 0, 2, 1, 0};
    sut_surgery_config a, b;
#define SURGERY_EFFECT(m, k, change)        \
    do {                                    \
        sut_surgery_config_init(&a, (m));   \
        b = a;                              \
        change;                             \
        expect_weights(#change, a, b, (k)); \
    } while (0)
    SURGERY_EFFECT(SUT_SURGERY_MEAN, gram, b.scale_to_sum = 1);
    SURGERY_EFFECT(SUT_SURGERY_CONFIG, gram, b.preference = preference);
    SURGERY_EFFECT(SUT_SURGERY_ALIGNED_MTL, gram, b.preference = preference);
    SURGERY_EFFECT(SUT_SURGERY_UPGRAD, gram, b.preference = preference);
    SURGERY_EFFECT(SUT_SURGERY_DUALPROJ, gram, b.preference = preference);
    SURGERY_EFFECT(SUT_SURGERY_PCGRAD, gram, b.order = order);
    SURGERY_EFFECT(SUT_SURGERY_PCGRAD, gram, b.pcgrad_identity_order = 1);
    SURGERY_EFFECT(SUT_SURGERY_PCGRAD, gram, b.pcgrad_mean = 1);
    /* With equal angles the arithmetic mean is the projection; unequal ones tell them apart. */
    for (int length = SUT_CONFIG_MINIMUM; length <= SUT_CONFIG_SPECIFIC; length++)
        SURGERY_EFFECT(SUT_SURGERY_CONFIG, gram, a.preference = b.preference = preference;
                       b.config_length = (sut_config_length)length);
    SURGERY_EFFECT(SUT_SURGERY_CONFIG, gram, a.config_length = b.config_length = SUT_CONFIG_SPECIFIC; b.config_row = 1);
    SURGERY_EFFECT(SUT_SURGERY_CAGRAD, gram, b.cagrad_c = 0.3);
    SURGERY_EFFECT(SUT_SURGERY_CAGRAD, gram, b.cagrad_rescale = 0);
    SURGERY_EFFECT(SUT_SURGERY_CAGRAD, gram, b.cagrad_rescale = 2);
    SURGERY_EFFECT(SUT_SURGERY_CAGRAD, gram, b.cagrad_eps = 0.5);
    SURGERY_EFFECT(SUT_SURGERY_CAGRAD, stationary, a.cagrad_c = b.cagrad_c = 2; b.cagrad_pareto = SUT_PARETO_MEAN);
    SURGERY_EFFECT(SUT_SURGERY_ALIGNED_MTL, gram, b.aligned_scale = SUT_ALIGNED_MEDIAN);
    SURGERY_EFFECT(SUT_SURGERY_ALIGNED_MTL, gram, b.aligned_scale = SUT_ALIGNED_RMSE);
    SURGERY_EFFECT(SUT_SURGERY_ALIGNED_MTL, gram, b.aligned_rank_tol = 0.2);
    SURGERY_EFFECT(SUT_SURGERY_UPGRAD, small, b.norm_eps = 0);
    SURGERY_EFFECT(SUT_SURGERY_DUALPROJ, skewed, b.norm_eps = 0);
    SURGERY_EFFECT(SUT_SURGERY_UPGRAD, gram, b.reg_eps = 0.1);
    SURGERY_EFFECT(SUT_SURGERY_MGDA, gram, b.mgda_normalisation = SUT_MGDA_L2);
    SURGERY_EFFECT(SUT_SURGERY_MGDA, gram, b.mgda_normalisation = SUT_MGDA_LOSS);
    SURGERY_EFFECT(SUT_SURGERY_MGDA, gram, b.mgda_normalisation = SUT_MGDA_LOSS_PLUS);
    SURGERY_EFFECT(SUT_SURGERY_MGDA, gram, b.mgda_frank_wolfe = 1);
    SURGERY_EFFECT(SUT_SURGERY_MGDA, gram, a.mgda_frank_wolfe = b.mgda_frank_wolfe = 1; b.mgda_fw_epsilon = 0.5);
    SURGERY_EFFECT(SUT_SURGERY_MGDA, gram, a.mgda_frank_wolfe = b.mgda_frank_wolfe = 1; b.mgda_fw_max_iterations = 1);
    SURGERY_EFFECT(SUT_SURGERY_NASH, gram, b.nash_max_norm = 0.1);
    SURGERY_EFFECT(SUT_SURGERY_SDMGRAD, gram, b.sdmgrad_lambda = 1);

    /* nash_update_every belongs to optimizers. */
    sut_optimizer_config c = gua(SUT_OPTIMIZER_SGD), d;
    c.align = SUT_ALIGN_NONE;
    sut_surgery_config_init(&c.surgery, SUT_SURGERY_NASH);
    d = c;
    d.surgery.nash_update_every = 3;
    expect_effect("nash_update_every", c, d);
}

/* --- C051 ------------------------------------------------------------------------------------------------------------ */

/* Values that a hyper-parameter must not have; the number of them. */
static int bad_values(const sut_parameter_info *info, double *bad)
{
    int n = 0;
    bad[n++] = NAN;
    bad[n++] = INFINITY;
    bad[n++] = -INFINITY;
    bad[n++] = info->minimum_open ? info->minimum : info->minimum - 0.5;
    if (isfinite(info->maximum))
        bad[n++] = info->maximum_open ? info->maximum : info->maximum + 0.5;
    return n;
}

static void put(sut_hyper *hyper, const char *name, double value)
{
    /* By hand: sut_hyper_set would refuse. */
    static const struct {
        const char *name;
        size_t offset;
        bool is_flag;
    } members[] = {
#define REAL(m) {#m, offsetof(sut_hyper, m), false}
#define FLAG(m)                          \
    {                                    \
#m, offsetof(sut_hyper, m), true \
    }
        REAL(lr),
        REAL(weight_decay),
        REAL(beta1),
        REAL(beta2),
        REAL(eps),
        REAL(momentum),
        REAL(dampening),
        REAL(alpha),
        REAL(lr_decay),
        REAL(initial_accumulator_value),
        REAL(momentum_decay),
        FLAG(nesterov),
        FLAG(amsgrad),
        FLAG(centered),
    };
    for (size_t k = 0; k < sizeof members / sizeof *members; k++)
        if (strcmp(members[k].name, name) == 0) {
            const int flag = isfinite(value) && value >= 0 && value <= 1 ? (int)value : 2;
            if (members[k].is_flag)
                memcpy((char *)hyper + members[k].offset, &flag, sizeof flag);
            else
                memcpy((char *)hyper + members[k].offset, &value, sizeof value);
            return;
        }
    fail_msg("sut_hyper has no member %s", name);
}

static void values_outside_their_range(void **state)
{
    (void)state;
    for (int k = 0; k < SUT_OPTIMIZER_COUNT; k++) {
        const sut_optimizer_method method = (sut_optimizer_method)k;
        double theta[N];
        sut_optimizer_config good;
        sut_optimizer_config_init(&good, method);
        sut_optimizer *opt = make(theta, &good);
        const sut_tensor tensor = {.data = theta, .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {N}, .name = "theta"};
        sut_parameter_info info;
        for (int j = 0; sut_optimizer_parameter(method, j, &info) == SUT_OK; j++) {
            double bad[8];
            const int n = bad_values(&info, bad);
            for (int i = 0; i < n; i++) {
                sut_optimizer_config config = good;
                sut_optimizer *none = opt;
                put(&config.hyper, info.name, bad[i]);
                config.tensors = &tensor;
                assert_int_equal(sut_optimizer_create(&none, ctx, &config), SUT_ERROR_OUT_OF_RANGE);
                assert_null(none);
                assert_non_null(strstr(sut_context_last_error(ctx), info.name));
                assert_int_equal(sut_optimizer_set_hyper(opt, 0, &config.hyper), SUT_ERROR_OUT_OF_RANGE);
                assert_non_null(strstr(sut_context_last_error(ctx), info.name));
                sut_hyper hyper = good.hyper;
                assert_int_equal(sut_hyper_set(&hyper, method, info.name, bad[i]), SUT_ERROR_OUT_OF_RANGE);
                assert_memory_equal(&hyper, &good.hyper, sizeof hyper);
                assert_int_equal(sut_optimizer_get_hyper(opt, 0, &hyper), SUT_OK);
                assert_memory_equal(&hyper, &good.hyper, sizeof hyper);
            }
        }
        sut_optimizer_destroy(opt);
    }
}

/* --- C028, C045, C047 ------------------------------------------------------------------------------------------------ */

/* Ten halved rates; each step is that of a fresh optimizer that took over the state and was made with the rate. */
static void a_new_rate_acts_at_once(void **state)
{
    (void)state;
    for (int k = 0; k < SUT_OPTIMIZER_COUNT; k++) {
        double theta[N], theta_fresh[N];
        sut_optimizer_config config;
        sut_optimizer_config_init(&config, (sut_optimizer_method)k);
        sut_optimizer *opt = make(theta, &config);
        sut_checkpoint_config keep;
        sut_checkpoint_config_init(&keep);
        keep.restore_settings = 0;
        for (int t = 0; t < 10; t++) {
            const double lr = ldexp(0.5, -t);
            void *data;
            size_t size;
            sut_optimizer_config fresh;
            sut_optimizer_config_init(&fresh, (sut_optimizer_method)k);
            fresh.hyper.lr = lr;
            assert_int_equal(sut_optimizer_save_memory(opt, NULL, &data, &size), SUT_OK);
            sut_optimizer *other = make(theta_fresh, &fresh);
            assert_int_equal(sut_optimizer_load_memory(other, data, size, &keep), SUT_OK);
            assert_int_equal(sut_optimizer_set_lr(opt, 0, lr), SUT_OK);
            step(opt, t % STEPS);
            step(other, t % STEPS);
            assert_memory_equal(theta, theta_fresh, sizeof theta);
            sut_buffer_free(ctx, data);
            sut_optimizer_destroy(other);
        }
        sut_optimizer_destroy(opt);
    }
}

/* With nothing to do a step succeeds and counts; tensors that had no gradient do not. */
static void a_step_without_gradients(void **state)
{
    (void)state;
    for (int k = 0; k < SUT_OPTIMIZER_COUNT; k++) {
        double theta[N], before[N];
        sut_optimizer_config config = gua((sut_optimizer_method)k);
        config.hyper.weight_decay = 0.1;
        sut_optimizer *opt = make(theta, &config);
        const void *none[2] = {NULL, NULL};
        step(opt, 0);
        memcpy(before, theta, sizeof theta);
        sut_report report;
        sut_report_init(&report);
        assert_int_equal(sut_optimizer_step(opt, none, NULL, &report), SUT_OK);
        assert_memory_equal(before, theta, sizeof theta); /* no decay, no momentum */
        assert_int_equal(sut_optimizer_steps(opt), 2);
        assert_int_equal(sut_optimizer_tensor_steps(opt, 0), 1);
        sut_optimizer_destroy(opt);
    }
}

/* One loss: every surgery gives back the row; Nash-MTL, whose directions know no length, the unit vector. */
static void one_loss_is_its_own_direction(void **state)
{
    (void)state;
    static const double one[1] = {1};
    const double g[N] = {3, -1, 4, 1}, norm = sqrt(27);
    const void *grads[1] = {g};
    for (int k = 0; k < SUT_SURGERY_COUNT; k++) {
        double out[N] = {0};
        sut_surgery_config config;
        sut_surgery_config_init(&config, (sut_surgery_method)k);
        config.preference = k == SUT_SURGERY_FIXED ? one : NULL;
        config.nash_max_norm = 0;
        if (sut_surgery_direction(ctx, &config, grads, 1, N, SUT_DTYPE_F64, one, 0, out, NULL) != SUT_OK)
            fail_msg("%s: %s", sut_surgery_method_name((sut_surgery_method)k), sut_context_last_error(ctx));
        for (int j = 0; j < N; j++)
            if (fabs(out[j] - g[j] / (k == SUT_SURGERY_NASH ? norm : 1)) > 1e-12)
                fail_msg("%s: element %d is %g", sut_surgery_method_name((sut_surgery_method)k), j, out[j]);
    }
}

static int open_context(void **state)
{
    (void)state;
    return sut_context_create(&ctx, NULL) == SUT_OK ? 0 : -1;
}

static int close_context(void **state)
{
    (void)state;
    sut_context_destroy(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_hyper_parameter_has_an_effect),
        cmocka_unit_test(every_setting_has_an_effect),
        cmocka_unit_test(checks_have_an_effect),
        cmocka_unit_test(every_surgery_option_has_an_effect),
        cmocka_unit_test(values_outside_their_range),
        cmocka_unit_test(a_new_rate_acts_at_once),
        cmocka_unit_test(a_step_without_gradients),
        cmocka_unit_test(one_loss_is_its_own_direction),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
