/*
 * Numbers worked out by hand: what a user of other libraries expects, down to the last convention. Values are chosen so
 * that a wrong rule gives another number.
 */
#include "support/step.h"

#include <string.h>

/* One parameter tensor of n doubles that starts at `start`, defaults of the method, n_losses losses. */
static step_spec defaults(sut_optimizer_method method, int64_t n, int n_losses)
{
    step_spec spec;
    step_spec_init(&spec, method, 0);
    sut_optimizer_config_init(&spec.config, method);
    spec.config.n_losses = n_losses;
    spec.length[0] = n;
    spec.theta_scale = 0;
    return spec;
}

static step_run *start_at(const step_spec *spec, double value)
{
    step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), spec);
    for (int64_t k = 0; k < spec->length[0]; ++k)
        step_set(run->tensor[0].data, spec->dtype, k, value);
    return run;
}

static void step_with(step_run *run, const double *rows)
{
    const int64_t n = run->spec.length[0];
    const void *pointers[4];
    for (int i = 0; i < run->spec.config.n_losses; ++i)
        pointers[i] = rows + i * n;
    assert_int_equal(sut_optimizer_step(run->opt, pointers, NULL, NULL), SUT_OK);
}

static void near(double x, double expected, double tolerance)
{
    if (!(fabs(x - expected) <= tolerance))
        fail_msg("%.15g, expected %.15g", x, expected);
}

/* p = 1, g = 0.5 twice, lr 0.1, decay 0.1: decoupled decay is not an L2 penalty. */
static void adamw_is_not_adam_with_a_penalty(void **state)
{
    (void)state;
    const double g = 0.5, expected[2][2] = {{0.9000000017, 0.8000473405}, {0.890000002, 0.781100004}};
    const double moments[2][2] = {{0.06, 0.113}, {0.05, 0.095}};
    const sut_optimizer_method methods[2] = {SUT_OPTIMIZER_ADAM, SUT_OPTIMIZER_ADAMW};
    for (int k = 0; k < 2; ++k) {
        step_spec spec = defaults(methods[k], 1, 1);
        spec.config.hyper.lr = spec.config.hyper.weight_decay = 0.1;
        step_run *const run = start_at(&spec, 1);
        for (int t = 0; t < 2; ++t) {
            step_with(run, &g);
            near(step_theta(run, 0, 0), expected[k][t], 1e-9);
            near(step_state(run, "m", 0, 0), moments[k][t], 1e-9);
        }
        step_close(run);
    }
}

/* The running averages are kept as they are; corrections are made on the way out. */
static void bias_correction_is_not_written_back(void **state)
{
    (void)state;
    const double g = 1;
    step_spec spec = defaults(SUT_OPTIMIZER_ADAM, 1, 1);
    step_run *const run = start_at(&spec, 0);
    for (int t = 1; t <= 10; ++t) {
        step_with(run, &g);
        if (t == 2) {
            near(step_state(run, "m", 0, 0), 0.19, 1e-12);
            near(step_state(run, "v", 0, 0), 0.001999, 1e-12);
        }
    }
    near(step_theta(run, 0, 0), -0.01, 1e-9);
    near(step_state(run, "m", 0, 0), 0.6513215599, 1e-9);
    near(step_state(run, "v", 0, 0), 0.0099551197903, 1e-9);
    step_close(run);
}

/* g = 1 three times, lr 0.1, momentum 0.9: a sum, not an average; dampening spares the first step. */
static void momentum_conventions(void **state)
{
    (void)state;
    const double g = 1;
    const struct {
        int nesterov;
        double dampening, expected[3];
    } cases[] = {{0, 0, {-0.1, -0.29, -0.561}}, {1, 0, {-0.19, -0.461, -0.8049}}, {0, 0.5, {-0.1, -0.24, -0.416}}};
    for (int k = 0; k < 3; ++k) {
        step_spec spec = defaults(SUT_OPTIMIZER_SGD, 1, 1);
        spec.config.hyper.lr = 0.1;
        spec.config.hyper.momentum = 0.9;
        spec.config.hyper.nesterov = cases[k].nesterov;
        spec.config.hyper.dampening = cases[k].dampening;
        step_run *const run = start_at(&spec, 0);
        for (int t = 0; t < 3; ++t) {
            step_with(run, &g);
            near(step_theta(run, 0, 0), cases[k].expected[t], 1e-12);
        }
        step_close(run);
    }
}

/* p = 0, g = 1e-8, lr 0.1, eps 1e-8: outside the root. */
static void eps_stands_outside_the_root(void **state)
{
    (void)state;
    const double g = 1e-8;
    const sut_optimizer_method methods[] = {SUT_OPTIMIZER_ADAM, SUT_OPTIMIZER_ADAMW};
    for (int k = 0; k < 2; ++k) {
        step_spec spec = defaults(methods[k], 1, 1);
        spec.config.hyper.lr = 0.1;
        step_run *const run = start_at(&spec, 0);
        step_with(run, &g);
        near(step_theta(run, 0, 0), -0.05, 5e-8);
        step_close(run);
    }
}

/* One step of SGD with rate 1 from 0 shows the direction with its sign turned. */
static void direction_of(const step_spec *given, const double *rows, double *a)
{
    step_spec spec = *given;
    spec.config.hyper.lr = 1;
    step_run *const run = start_at(&spec, 0);
    step_with(run, rows);
    for (int64_t k = 0; k < spec.length[0]; ++k)
        a[k] = -step_theta(run, 0, k);
    step_close(run);
}

/* PCGrad projects on the gradients as they were given. */
static void pcgrad_in_a_step(void **state)
{
    (void)state;
    const double G[9] = {1, 0, 0, -1, 1, 0, 0, -1, 2};
    double a[3];
    step_spec spec = defaults(SUT_OPTIMIZER_SGD, 3, 3);
    sut_surgery_config_init(&spec.config.surgery, SUT_SURGERY_PCGRAD);
    spec.config.surgery.pcgrad_identity_order = 1;
    direction_of(&spec, G, a);
    near(a[0], 0, 1e-12);
    near(a[1], 0.7, 1e-12);
    near(a[2], 2.6, 1e-12);
}

/* A conflict is judged on all tensors together: (2 | 1) and (-1 | 3) have the product 1. */
static void conflict_is_judged_on_the_whole_vector(void **state)
{
    (void)state;
    for (int align = 0; align < 2; ++align) {
        step_spec spec = defaults(SUT_OPTIMIZER_SGD, 1, 2);
        sut_surgery_config_init(&spec.config.surgery, SUT_SURGERY_PCGRAD);
        spec.config.align = (sut_align)align;
        spec.config.hyper.lr = 1;
        spec.n_tensors = 2;
        spec.length[1] = 1;
        step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
        const double g[4] = {2, 1, -1, 3};
        const void *const rows[4] = {&g[0], &g[1], &g[2], &g[3]};
        sut_report report;
        sut_report_init(&report);
        assert_int_equal(sut_optimizer_step(run->opt, rows, NULL, &report), SUT_OK);
        assert_true(step_theta(run, 0, 0) == -1 && step_theta(run, 1, 0) == -4);
        assert_int_equal(report.conflict_g, 0);
        near(report.min_pair_cos, 1 / sqrt(50), 1e-15);
        step_close(run);
    }
}

/* Rows (3,4), (-4,3) and ten times the first: ConFIG and IMTL-G keep the direction, UPGrad and PCGrad do not. */
static void a_change_of_units(void **state)
{
    (void)state;
    const double G[2][4] = {{3, 4, -4, 3}, {30, 40, -4, 3}};
    const struct {
        sut_surgery_method method;
        double a[2][2];
    } cases[] = {{SUT_SURGERY_CONFIG, {{-1, 7}, {-5.5, 38.5}}},
                 {SUT_SURGERY_IMTLG, {{-0.5, 3.5}, {-0.9090909091, 6.3636363636}}},
                 {SUT_SURGERY_UPGRAD, {{-0.5, 3.5}, {13, 21.5}}},
                 {SUT_SURGERY_PCGRAD, {{-1, 7}, {26, 43}}}};
    for (int k = 0; k < 4; ++k)
        for (int scale = 0; scale < 2; ++scale) {
            double a[2];
            step_spec spec = defaults(SUT_OPTIMIZER_SGD, 2, 2);
            test_exact(&spec.config.surgery, cases[k].method);
            direction_of(&spec, G[scale], a);
            near(a[0], cases[k].a[scale][0], 1e-9);
            near(a[1], cases[k].a[scale][1], 1e-9);
        }
}

/* Clipping: g *= min(1, c / (|g| + 1e-6)), on the combined gradient. */
static void clipping(void **state)
{
    (void)state;
    const double G[4] = {3, 0, 0, 4};
    double a[2];
    for (int k = 0; k < 2; ++k) {
        step_spec spec = defaults(SUT_OPTIMIZER_SGD, 2, 2);
        spec.config.clip_norm = k ? 2.5 : 5.1;
        direction_of(&spec, G, a);
        const double factor = k ? 2.5 / (5 + 1e-6) : 1;
        near(a[0], 3 * factor, 1e-14);
        near(a[1], 4 * factor, 1e-14);
    }
}

/*
 * Weights that Nash-MTL keeps for some steps are those of the method; clipping is done anew in each step. Otherwise a step
 * that was clipped would shorten the steps after it.
 */
static void clipping_is_not_kept(void **state)
{
    (void)state;
    const double large[4] = {3e3, 1e3, -1e3, 2e3}, small[4] = {3, 1, -1, 2};
    double kept[2], moved[2];
    for (int clipped = 0; clipped < 2; ++clipped) {
        step_spec spec = defaults(SUT_OPTIMIZER_SGD, 2, 2);
        spec.config.hyper.lr = 1;
        spec.config.clip_norm = clipped ? 0.05 : 0; /* |a| is at most 1 in the first step, 1e-3 in the second */
        sut_surgery_config_init(&spec.config.surgery, SUT_SURGERY_NASH);
        spec.config.surgery.nash_update_every = 3;
        step_run *const run = start_at(&spec, 0);
        step_with(run, large);
        for (int k = 0; k < 2; ++k)
            kept[k] = step_theta(run, 0, k);
        step_with(run, small);
        for (int k = 0; k < 2; ++k) {
            const double now = kept[k] - step_theta(run, 0, k);
            if (clipped)
                near(now, moved[k], 1e-12);
            moved[k] = now;
        }
        assert_true(moved[0] != 0 && moved[1] != 0);
        step_close(run);
    }
}

/* 10 steps, the rate halved each time through the API: the same bits as a new optimizer with the same state and that rate. */
static void a_new_rate_acts_at_once(void **state)
{
    (void)state;
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int variant = 0; variant < step_n_variants((sut_optimizer_method)method); ++variant) {
            step_spec spec;
            sut_hyper groups[2];
            if (!step_variant((sut_optimizer_method)method, variant, &groups[0]))
                continue;
            step_spec_init(&spec, (sut_optimizer_method)method, variant);
            groups[1] = groups[0];
            groups[1].lr *= 3;
            spec.config.groups = groups;
            spec.config.n_groups = 2;
            spec.n_tensors = 2;
            spec.length[1] = 30;
            spec.group[1] = 1;
            step_run *run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
            step_grads *const g = step_grads_new(&spec);
            test_random r = {spec.seed};
            for (int t = 0; t < 10; ++t) {
                void *bytes;
                size_t size;
                groups[0].lr *= 0.5;
                groups[1].lr *= 0.5;
                assert_int_equal(sut_optimizer_save_memory(run->opt, NULL, &bytes, &size), SUT_OK);
                step_run *const fresh = step_open(run->ctx, &spec);
                sut_checkpoint_config keep_settings;
                sut_checkpoint_config_init(&keep_settings);
                keep_settings.restore_settings = 0;
                assert_int_equal(sut_optimizer_load_memory(fresh->opt, bytes, size, &keep_settings), SUT_OK);
                sut_buffer_free(run->ctx, bytes);
                for (int k = 0; k < 2; ++k)
                    assert_int_equal(sut_optimizer_set_lr(run->opt, k, groups[k].lr), SUT_OK);
                step_grads_conflict(g, &r);
                step_do(run, g, NULL);
                step_do(fresh, g, NULL);
                step_assert_same(run, fresh, step_variant_name((sut_optimizer_method)method, variant));
                step_close(run);
                run = fresh;
            }
            step_grads_free(g);
            step_close(run);
        }
}

/* A schedule: group k runs at lr_k s(t) / peak, t = steps already done; exactly s(t) where lr_k is the peak. */
static void a_schedule_drives_the_rate(void **state)
{
    (void)state;
    step_spec spec = defaults(SUT_OPTIMIZER_SGD, 1, 1);
    sut_hyper groups[2] = {spec.config.hyper, spec.config.hyper};
    groups[0].lr = 0.3;
    groups[1].lr = 0.1;
    spec.config.groups = groups;
    spec.config.n_groups = 2;
    spec.config.use_schedule = 1;
    sut_schedule_init(&spec.config.schedule, SUT_SCHEDULE_COSINE);
    spec.config.schedule.peak = 0.3;
    spec.config.schedule.final_lr = 0.01;
    spec.config.schedule.warmup = 3;
    spec.config.schedule.total = 9;
    spec.n_tensors = 2;
    spec.length[1] = 1;
    spec.group[1] = 1;
    step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
    const double one = 1;
    const void *const rows[2] = {&one, &one};
    for (int t = 0; t < 12; ++t) {
        double expected, before[2] = {step_theta(run, 0, 0), step_theta(run, 1, 0)};
        sut_report report;
        sut_report_init(&report);
        assert_int_equal(sut_schedule_lr(NULL, &spec.config.schedule, t, &expected), SUT_OK);
        assert_int_equal(sut_optimizer_step(run->opt, rows, NULL, &report), SUT_OK);
        assert_true(step_theta(run, 0, 0) == before[0] - expected && report.lr == expected);
        near(step_theta(run, 1, 0), before[1] - expected / 3, 1e-15);
        assert_int_equal(report.moved, t > 0);
    }
    assert_int_equal(sut_optimizer_set_schedule(run->opt, NULL), SUT_OK);
    const double before = step_theta(run, 0, 0);
    assert_int_equal(sut_optimizer_step(run->opt, rows, NULL, NULL), SUT_OK);
    assert_true(step_theta(run, 0, 0) == before - 0.3);
    step_close(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_is_not_adam_with_a_penalty),
        cmocka_unit_test(bias_correction_is_not_written_back),
        cmocka_unit_test(momentum_conventions),
        cmocka_unit_test(eps_stands_outside_the_root),
        cmocka_unit_test(pcgrad_in_a_step),
        cmocka_unit_test(conflict_is_judged_on_the_whole_vector),
        cmocka_unit_test(a_change_of_units),
        cmocka_unit_test(clipping),
        cmocka_unit_test(clipping_is_not_kept),
        cmocka_unit_test(a_new_rate_acts_at_once),
        cmocka_unit_test(a_schedule_drives_the_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
