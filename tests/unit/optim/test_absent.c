/*
 * Gradients that are not there. Absent is not zero: a tensor that no loss has a gradient for is left alone (no decay, no
 * momentum, its own count of steps stands still). A tensor that only some losses use counts as zero for the others, to
 * the bit. Empty tensors change nothing, and a step with nothing to do succeeds.
 */
#include "support/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sut_context *context(void)
{
    return step_context(1, SUT_ISA_AUTO);
}

/* Decay and momentum, from one number: (a) a zero gradient, (b) none. */
static void absent_is_not_zero(void **state)
{
    (void)state;
    const double one = 1, zero = 0;
    for (int absent = 0; absent < 2; ++absent) {
        const void *const present[2] = {&one, &one};
        const void *const second[2] = {absent ? NULL : &zero, &one}; /* the other tensor goes on */
        for (int k = 0; k < 2; ++k) {
            step_spec spec;
            step_spec_init(&spec, k ? SUT_OPTIMIZER_SGD : SUT_OPTIMIZER_ADAMW, 0);
            sut_optimizer_config_init(&spec.config, spec.config.method);
            spec.config.hyper.lr = 0.1;
            spec.config.hyper.weight_decay = k ? 0 : 0.1;
            spec.config.hyper.momentum = k ? 0.9 : 0;
            spec.n_tensors = 2;
            spec.length[0] = spec.length[1] = 1;
            spec.theta_scale = 0;
            step_run *const run = step_open(context(), &spec);
            step_set(run->tensor[0].data, spec.dtype, 0, k ? 0 : 1);
            if (k)
                assert_int_equal(sut_optimizer_step(run->opt, present, NULL, NULL), SUT_OK);
            assert_int_equal(sut_optimizer_step(run->opt, second, NULL, NULL), SUT_OK);
            const double expected = k ? (absent ? -0.1 : -0.19) : (absent ? 1.0 : 0.99);
            if (absent)
                assert_true(step_theta(run, 0, 0) == expected);
            else
                assert_true(fabs(step_theta(run, 0, 0) - expected) <= 1e-15);
            assert_int_equal(sut_optimizer_tensor_steps(run->opt, 0), k + !absent);
            assert_int_equal(sut_optimizer_tensor_steps(run->opt, 1), k + 1);
            assert_int_equal(sut_optimizer_steps(run->opt), k + 1);
            if (k)
                assert_true(fabs(step_state(run, "b", 0, 0) - (absent ? 1 : 0.9)) <= 1e-15);
            step_close(run);
        }
    }
    assert_int_equal(sut_optimizer_tensor_steps(NULL, 0), -1);
}

/* Tensor B is used by some losses only: the same bits as with zeros in the others, aligned or not. */
static void absent_from_some_losses_is_zero_there(void **state)
{
    (void)state;
    static const int64_t lengths[] = {33, 520, 7};
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int variant = 0; variant < step_n_variants((sut_optimizer_method)method); ++variant)
            for (int k = 0; k < 16; ++k) {
                step_spec spec;
                sut_hyper unused;
                char name[300];
                if (!step_variant((sut_optimizer_method)method, variant, &unused))
                    break;
                step_spec_init(&spec, (sut_optimizer_method)method, variant);
                step_spec_lengths(&spec, 3, lengths);
                spec.dtype = k % 2 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
                spec.config.n_losses = k / 2 % 2 ? 3 : 5;
                spec.config.metric = (sut_metric)(k / 4 % 2);
                sut_surgery_config_init(&spec.config.surgery, k / 8 ? SUT_SURGERY_UPGRAD : SUT_SURGERY_SUM);
                step_run *const a = step_open(context(), &spec), *const b = step_open(context(), &spec);
                step_grads *const g = step_grads_new(&spec), *const zeros = step_grads_new(&spec);
                test_random r = {spec.seed};
                int projections = 0;
                for (int t = 0; t < 4; ++t) {
                    sut_report x, y;
                    const int m = spec.config.n_losses;
                    step_grads_conflict(g, &r);
                    for (int at = 0; at < m * 3; ++at) {
                        const bool absent = at % 3 > 0 && test_below(&r, 3) == 0 && at / 3 > 0;
                        const size_t size = (size_t)lengths[at % 3] * sut_dtype_size(spec.dtype);
                        void *const to = (void *)(uintptr_t)zeros->pointer[at];
                        if (absent)
                            memset(to, 0, size);
                        else
                            memcpy(to, g->memory[at], size);
                        g->pointer[at] = absent ? NULL : g->memory[at];
                    }
                    step_do(a, g, &x);
                    step_do(b, zeros, &y);
                    for (int at = 0; at < m * 3; ++at)
                        g->pointer[at] = g->memory[at];
                    (void)snprintf(name, sizeof name, "%s, %s, m = %d",
                                   step_variant_name((sut_optimizer_method)method, variant), sut_dtype_name(spec.dtype),
                                   m);
                    step_assert_same(a, b, name);
                    assert_memory_equal(x.lambda, y.lambda, sizeof x.lambda);
                    assert_memory_equal(x.cos_p, y.cos_p, sizeof x.cos_p);
                    projections += x.projected;
                }
                assert_true(projections > 0 || k / 8);
                step_grads_free(zeros);
                step_grads_free(g);
                step_close(b);
                step_close(a);
            }
}

/* Each tensor's constants (bias corrections, NAdam's product) follow its own count: as if it were alone. */
static void counts_are_each_tensors_own(void **state)
{
    (void)state;
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int variant = 0; variant < step_n_variants((sut_optimizer_method)method); ++variant) {
            step_spec spec;
            sut_hyper unused;
            if (!step_variant((sut_optimizer_method)method, variant, &unused))
                continue;
            const char *const name = step_variant_name((sut_optimizer_method)method, variant);
            step_spec_init(&spec, (sut_optimizer_method)method, variant);
            spec.config.n_losses = 1;
            spec.n_tensors = 3;
            spec.length[1] = spec.length[2] = 9;
            step_run *const all = step_open(context(), &spec);
            step_run *alone[3];
            for (int k = 0; k < 3; ++k) {
                step_spec one = spec;
                one.n_tensors = 1;
                one.length[0] = spec.length[k];
                alone[k] = step_open(context(), &one);
                memcpy(alone[k]->tensor[0].data, all->tensor[k].data, (size_t)spec.length[k] * sizeof(double));
            }
            step_grads *const g = step_grads_new(&spec);
            test_random r = {3};
            for (int t = 0; t < 12; ++t) {
                const void *rows[3];
                step_grads_conflict(g, &r);
                for (int k = 0; k < 3; ++k) {
                    rows[k] = t % (k + 1) == 0 ? g->pointer[k] : NULL; /* always, every second, every third step */
                    if (rows[k])
                        assert_int_equal(sut_optimizer_step(alone[k]->opt, &rows[k], NULL, NULL), SUT_OK);
                }
                assert_int_equal(sut_optimizer_step(all->opt, rows, NULL, NULL), SUT_OK);
            }
            for (int k = 0; k < 3; ++k) {
                assert_int_equal(sut_optimizer_tensor_steps(all->opt, k), 12 / (k + 1));
                if (memcmp(alone[k]->tensor[0].data, all->tensor[k].data, (size_t)spec.length[k] * sizeof(double)) != 0)
                    fail_msg("%s: tensor %d is not what it is alone", name, k);
                step_close(alone[k]);
            }
            assert_int_equal(sut_optimizer_steps(all->opt), 12);
            step_grads_free(g);
            step_close(all);
        }
}

/* 40 tensors with empty ones at 0, 29, 35 and 39, the data pointers NULL. */
static void empty_tensors(void **state)
{
    (void)state;
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method) {
        step_spec with, without;
        step_spec_init(&with, (sut_optimizer_method)method, 0);
        with.dtype = SUT_DTYPE_F32;
        without = with;
        without.n_tensors = 0;
        with.n_tensors = 40;
        for (int k = 0; k < 40; ++k) {
            const bool empty = k == 0 || k == 29 || k == 35 || k == 39;
            with.length[k] = empty ? 0 : 5;
            if (!empty)
                without.length[without.n_tensors++] = 5;
        }
        step_run *const a = step_open(context(), &with), *const b = step_open(context(), &without);
        step_grads *const g = step_grads_new(&with), *const h = step_grads_new(&without);
        test_random r = {11};
        for (int t = 0; t < 3; ++t) {
            step_grads_conflict(g, &r);
            for (int i = 0; i < 2; ++i)
                for (int k = 0, at = 0; k < 40; ++k) {
                    if (with.length[k] == 0) {
                        g->pointer[i * 40 + k] = t == 1 ? (const void *)"" : NULL; /* never looked at */
                        continue;
                    }
                    h->pointer[i * 36 + at++] = g->pointer[i * 40 + k];
                }
            step_do(a, g, NULL);
            step_do(b, h, NULL);
        }
        for (int k = 0, at = 0; k < 40; ++k) {
            assert_int_equal(sut_optimizer_tensor_steps(a->opt, k), with.length[k] ? 3 : 0);
            if (with.length[k] == 0)
                continue;
            assert_memory_equal(a->tensor[k].data, b->tensor[at].data, 5 * sizeof(float));
            ++at;
        }
        step_grads_free(h);
        step_grads_free(g);
        step_close(b);
        step_close(a);
    }
}

/* Shapes: no dimensions is one element, an empty dimension empties the tensor. */
static void shapes(void **state)
{
    (void)state;
    double scalar = 1, block[24] = {0};
    sut_tensor tensors[3] = {
        {.data = &scalar, .dtype = SUT_DTYPE_F64, .n_dims = 0, .name = "scalar"},
        {.data = block, .dtype = SUT_DTYPE_F64, .n_dims = 3, .shape = {2, 3, 4}, .name = "block"},
        {.data = NULL, .dtype = SUT_DTYPE_F64, .n_dims = 2, .shape = {0, INT64_MAX}, .name = "nothing"},
    };
    sut_optimizer_config config;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAM);
    config.tensors = tensors;
    config.n_tensors = 3;
    sut_optimizer *opt;
    assert_int_equal(sut_optimizer_create(&opt, context(), &config), SUT_OK);
    const int64_t expected[3] = {1, 24, 0};
    for (int k = 0; k < 3; ++k) {
        void *data;
        sut_dtype dtype;
        int64_t count;
        assert_int_equal(sut_optimizer_state(opt, "m", k, &data, &dtype, &count), SUT_OK);
        assert_int_equal(count, expected[k]);
        assert_int_equal(dtype, SUT_DTYPE_F64);
    }
    const double g = 1;
    const void *const rows[3] = {&g, NULL, NULL};
    assert_int_equal(sut_optimizer_step(opt, rows, NULL, NULL), SUT_OK);
    assert_true(fabs(scalar - 0.999) < 1e-9);
    sut_optimizer_destroy(opt);
}

/* Every gradient absent: a step that moves nothing, whatever the surgery. */
static void nothing_to_do(void **state)
{
    (void)state;
    const double weights[3] = {1, 2, 3}, losses[3] = {1, 2, 3};
    const void *const none[6] = {NULL};
    for (int surgery = 0; surgery < SUT_SURGERY_COUNT; ++surgery)
        for (int k = 0; k < 8; ++k) {
            step_spec spec;
            step_spec_init(&spec, SUT_OPTIMIZER_ADAMW, 1);
            spec.dtype = k % 2 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
            spec.config.align = (sut_align)(k / 2 % 2);
            spec.config.n_losses = k / 4 ? 3 : 1;
            spec.config.clip_norm = 1;
            spec.n_tensors = 2;
            spec.length[1] = 3;
            sut_surgery_config_init(&spec.config.surgery, (sut_surgery_method)surgery);
            spec.config.surgery.preference = surgery == SUT_SURGERY_FIXED ? weights : NULL;
            step_run *const run = step_open(context(), &spec);
            void *const kept = malloc(40 * sizeof(double));
            memcpy(kept, run->tensor[0].data, 40 * sut_dtype_size(spec.dtype));
            sut_report report;
            sut_report_init(&report);
            const sut_status status = sut_optimizer_step(run->opt, none, losses, &report);
            if (status != SUT_OK)
                fail_msg("%s, m = %d: %s", sut_surgery_method_name((sut_surgery_method)surgery), spec.config.n_losses,
                         sut_context_last_error(run->ctx));
            assert_memory_equal(kept, run->tensor[0].data, 40 * sut_dtype_size(spec.dtype));
            assert_int_equal(sut_optimizer_steps(run->opt), 1);
            assert_int_equal(sut_optimizer_tensor_steps(run->opt, 0), 0);
            assert_int_equal(report.step, 1);
            assert_true(report.norm_u == 0 && report.norm_p == 0 && report.norm_a == 0);
            assert_int_equal(report.projected, 0);
            free(kept);
            step_close(run);
        }
}

/* A step without gradients uses up nothing: weights that Nash-MTL keeps for three steps are those of steps that had some. */
static void a_pause_changes_nothing(void **state)
{
    (void)state;
    const void *const none[2] = {NULL, NULL};
    step_spec spec;
    step_spec_init(&spec, SUT_OPTIMIZER_ADAM, 0);
    sut_surgery_config_init(&spec.config.surgery, SUT_SURGERY_NASH);
    spec.config.surgery.nash_update_every = 3;
    step_run *const a = step_open(context(), &spec), *const b = step_open(context(), &spec);
    step_grads *const g = step_grads_new(&spec);
    test_random r = {12};
    for (int t = 0; t < 7; ++t) {
        step_grads_conflict(g, &r);
        step_do(a, g, NULL);
        for (int pause = t % 3; pause < 2; ++pause)
            assert_int_equal(sut_optimizer_step(b->opt, none, NULL, NULL), SUT_OK);
        step_do(b, g, NULL);
        for (int64_t k = 0; k < spec.length[0]; ++k)
            assert_true(step_theta(a, 0, k) == step_theta(b, 0, k));
    }
    step_grads_free(g);
    step_close(b);
    step_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_is_not_zero),
        cmocka_unit_test(absent_from_some_losses_is_zero_there),
        cmocka_unit_test(counts_are_each_tensors_own),
        cmocka_unit_test(empty_tensors),
        cmocka_unit_test(shapes),
        cmocka_unit_test(nothing_to_do),
        cmocka_unit_test(a_pause_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
