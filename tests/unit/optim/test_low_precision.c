/*
 * bf16 and f16 parameters: the arithmetic is that of f32 on a master copy, and the parameter is the rounding of the master.
 */
#include "support/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sut_context *context(void)
{
    return step_context(1, SUT_ISA_AUTO);
}

/* Same numbers, one in a low type and one in f32: the master is the f32 parameter, bit for bit. */
static void the_master_is_an_f32_parameter(void **state)
{
    (void)state;
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int variant = 0; variant < step_n_variants((sut_optimizer_method)method); ++variant)
            for (int k = 0; k < 8; ++k) {
                step_spec low, full;
                sut_hyper unused;
                if (!step_variant((sut_optimizer_method)method, variant, &unused))
                    break;
                const char *const name = step_variant_name((sut_optimizer_method)method, variant);
                step_spec_init(&low, (sut_optimizer_method)method, variant);
                low.config.align = (sut_align)(k / 2 % 2);
                low.config.metric = (sut_metric)(k / 4);
                low.config.n_losses = 3;
                low.length[0] = 700;
                full = low;
                low.dtype = k % 2 ? SUT_DTYPE_F16 : SUT_DTYPE_BF16;
                full.dtype = SUT_DTYPE_F32;
                low.misalign = 1;
                step_run *const a = step_open(context(), &low), *const b = step_open(context(), &full);
                for (int64_t j = 0; j < low.length[0]; ++j)
                    step_set(b->tensor[0].data, SUT_DTYPE_F32, j, step_theta(a, 0, j));
                step_grads *const g = step_grads_new(&low), *const h = step_grads_new(&full);
                test_random r = {low.seed};
                for (int t = 0; t < 4; ++t) {
                    sut_report x, y;
                    step_grads_conflict(g, &r);
                    for (int i = 0; i < 3; ++i)
                        for (int64_t j = 0; j < low.length[0]; ++j)
                            step_grad_set(h, i, 0, j, step_grad_get(g, i, 0, j));
                    step_do(a, g, &x);
                    step_do(b, h, &y);
                    assert_int_equal(x.projected, y.projected);
                    for (int64_t j = 0; j < low.length[0]; ++j) {
                        const double master = step_state(a, "master", 0, j);
                        uint16_t rounded;
                        if (master != step_theta(b, 0, j))
                            fail_msg("%s: master %.9g, f32 %.9g", name, master, step_theta(b, 0, j));
                        step_set(&rounded, low.dtype, 0, master);
                        if (memcmp(&rounded, (const uint16_t *)a->tensor[0].data + j, sizeof rounded) != 0)
                            fail_msg("%s: the parameter %.9g is not the rounding of %.9g", name, step_theta(a, 0, j),
                                     master);
                    }
                }
                step_grads_free(h);
                step_grads_free(g);
                step_close(b);
                step_close(a);
            }
}

/* f16 p = (1, -2, 0.5), g = 0 for three steps: nothing moves. Then g = 6e-8, which needs an eps that was not rounded to 0. */
static void eps_is_not_rounded_away(void **state)
{
    (void)state;
    for (int k = 0; k < 2; ++k) {
        step_spec spec;
        step_spec_init(&spec, SUT_OPTIMIZER_ADAM, 0);
        sut_optimizer_config_init(&spec.config, SUT_OPTIMIZER_ADAM);
        spec.dtype = k ? SUT_DTYPE_BF16 : SUT_DTYPE_F16;
        spec.length[0] = 3;
        step_run *const run = step_open(context(), &spec);
        static const double start[3] = {1, -2, 0.5};
        for (int j = 0; j < 3; ++j)
            step_set(run->tensor[0].data, spec.dtype, j, start[j]);
        assert_int_equal(sut_optimizer_parameters_changed(run->opt), SUT_OK);
        step_grads *const g = step_grads_new(&spec);
        for (int t = 0; t < 3; ++t) {
            step_do(run, g, NULL);
            for (int j = 0; j < 3; ++j)
                assert_true(step_theta(run, 0, j) == start[j] && step_state(run, "master", 0, j) == start[j]);
        }
        step_grad_set(g, 0, 0, 0, 6e-8);
        step_do(run, g, NULL);
        const double moved = 1 - step_state(run, "master", 0, 0);
        assert_true(moved > 0.42e-3 && moved < 0.45e-3); /* about 0.435 lr */
        assert_true(step_theta(run, 0, 0) == (k ? 1.0 : 0.99951171875));
        for (int j = 1; j < 3; ++j)
            assert_true(step_theta(run, 0, j) == start[j]);
        step_grads_free(g);
        step_close(run);
    }
}

/* bf16 p = 1, 500 steps of 1e-3, each of them less than half a unit of bf16 at 1. */
static void small_updates_do_not_vanish(void **state)
{
    (void)state;
    step_spec spec;
    step_spec_init(&spec, SUT_OPTIMIZER_ADAM, 0);
    sut_optimizer_config_init(&spec.config, SUT_OPTIMIZER_ADAM);
    spec.dtype = SUT_DTYPE_BF16;
    spec.length[0] = 1024;
    step_run *const run = step_open(context(), &spec);
    step_grads *const g = step_grads_new(&spec);
    for (int64_t j = 0; j < 1024; ++j) {
        step_set(run->tensor[0].data, spec.dtype, j, 1);
        step_grad_set(g, 0, 0, j, 1);
    }
    assert_int_equal(sut_optimizer_parameters_changed(run->opt), SUT_OK);
    for (int t = 0; t < 500; ++t)
        step_do(run, g, NULL);
    for (int64_t j = 0; j < 1024; ++j)
        assert_true(fabs(step_theta(run, 0, j) - 0.5) <= 0.01);
    step_grads_free(g);
    step_close(run);
}

/* The master is authoritative until it is told otherwise. */
static void parameters_changed_from_outside(void **state)
{
    (void)state;
    for (int k = 0; k < 4; ++k) {
        step_spec spec;
        step_spec_init(&spec, SUT_OPTIMIZER_SGD, 0);
        sut_optimizer_config_init(&spec.config, SUT_OPTIMIZER_SGD);
        spec.dtype = (sut_dtype)k;
        spec.length[0] = 2;
        spec.config.hyper.lr = 0.25;
        step_run *const run = step_open(context(), &spec);
        step_grads *const g = step_grads_new(&spec);
        const bool low = k >= SUT_DTYPE_BF16;
        const double old = step_theta(run, 0, 0);
        step_set(run->tensor[0].data, spec.dtype, 0, 8);
        step_do(run, g, NULL);
        assert_true(step_theta(run, 0, 0) == (low ? old : 8));
        step_set(run->tensor[0].data, spec.dtype, 0, 8);
        assert_int_equal(sut_optimizer_parameters_changed(run->opt), SUT_OK);
        step_grad_set(g, 0, 0, 0, 4);
        step_do(run, g, NULL);
        assert_true(step_theta(run, 0, 0) == 7);
        step_grads_free(g);
        step_close(run);
    }
}

/* Tensors of all types in one optimizer: each is what it is alone, unaligned; aligned, the cone is one. */
static void mixed_types(void **state)
{
    (void)state;
    enum { N = 4, COUNT = 50 };
    for (int align = 0; align < 2; ++align)
        for (int metric = 0; metric < 2; ++metric) {
            step_spec spec;
            step_spec_init(&spec, SUT_OPTIMIZER_ADAM, 1);
            spec.length[0] = COUNT;
            spec.config.align = (sut_align)align;
            spec.config.metric = (sut_metric)metric;
            step_run *alone[N];
            step_grads *g[N];
            sut_tensor tensors[N];
            void *copies[N];
            for (int k = 0; k < N; ++k) {
                spec.dtype = (sut_dtype)k;
                alone[k] = step_open(context(), &spec);
                g[k] = step_grads_new(&spec);
                copies[k] = malloc(COUNT * sut_dtype_size(spec.dtype));
                memcpy(copies[k], alone[k]->tensor[0].data, COUNT * sut_dtype_size(spec.dtype));
                tensors[k] = alone[k]->tensor[0];
                tensors[k].data = copies[k];
            }
            sut_optimizer_config config = spec.config;
            config.tensors = tensors;
            config.n_tensors = N;
            sut_optimizer *opt;
            assert_int_equal(sut_optimizer_create(&opt, context(), &config), SUT_OK);
            test_random r = {22};
            int projections = 0;
            for (int t = 0; t < 3; ++t) {
                const void *rows[2 * N];
                sut_report report;
                sut_report_init(&report);
                for (int k = 0; k < N; ++k) {
                    step_grads_conflict(g[k], &r);
                    rows[k] = g[k]->pointer[0];
                    rows[N + k] = g[k]->pointer[1];
                    step_do(alone[k], g[k], NULL);
                }
                assert_int_equal(sut_optimizer_step(opt, rows, NULL, &report), SUT_OK);
                projections += report.projected;
                if (align)
                    assert_true(report.primal <= 1e-7);
                for (int k = 0; k < N && !align; ++k)
                    assert_memory_equal(copies[k], alone[k]->tensor[0].data, COUNT * sut_dtype_size((sut_dtype)k));
            }
            assert_int_equal(projections > 0, align);
            sut_optimizer_destroy(opt);
            for (int k = 0; k < N; ++k) {
                free(copies[k]);
                step_grads_free(g[k]);
                step_close(alone[k]);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_master_is_an_f32_parameter),
        cmocka_unit_test(eps_is_not_rounded_away),
        cmocka_unit_test(small_updates_do_not_vanish),
        cmocka_unit_test(parameters_changed_from_outside),
        cmocka_unit_test(mixed_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
