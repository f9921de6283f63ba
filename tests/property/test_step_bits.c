/*
 * The same inputs give the same bits: for any number of threads, on every instruction set, with and without a report, in
 * one call and in stages. Every method, every combination of its switches, f32 and f64, 1, 2, 3 and 8 losses, tensors of
 * odd lengths that begin beside every boundary, hyper-parameters that are not the defaults, and losses that conflict.
 */
#include "support/step.h"

#include <stdio.h>

static const int64_t long_tensors[] = {1, 31, 4097, 70001}, short_tensors[] = {1, 31, 4097, 2};
static const int losses[] = {1, 2, 3, 8};

typedef struct place {
    int n_threads;
    sut_isa isa;
} place;

/* The first is the reference. Each number of threads, each instruction set, and mixtures of the two. */
static const place places[] = {{1, SUT_ISA_BASELINE}, {2, SUT_ISA_AVX2},   {7, SUT_ISA_BASELINE}, {1, SUT_ISA_AVX2},
                               {3, SUT_ISA_AVX512},   {1, SUT_ISA_AVX512}, {3, SUT_ISA_AVX2}};
enum { N_PLACES = sizeof places / sizeof *places };

/* Beta powers decide where RAdam changes its form, so it needs more steps to see both. */
static int n_steps(sut_optimizer_method method)
{
    return method == SUT_OPTIMIZER_RADAM ? 9 : 3;
}

static void label(char *text, size_t size, const step_spec *spec, int variant, const char *more)
{
    (void)snprintf(text, size, "%s, %s, m = %d, metric %d, %s", step_variant_name(spec->config.method, variant),
                   sut_dtype_name(spec->dtype), spec->config.n_losses, (int)spec->config.metric, more);
}

static bool next_spec(step_spec *spec, int method, int variant)
{
    sut_hyper unused;
    if (!step_variant((sut_optimizer_method)method, variant, &unused))
        return false;
    step_spec_init(spec, (sut_optimizer_method)method, variant);
    spec->misalign = 1;
    return true;
}

/* Runs one problem in every place. */
static int everywhere(const step_spec *spec, int variant)
{
    step_run *run[N_PLACES] = {NULL};
    step_grads *const g = step_grads_new(spec);
    test_random r = {spec->seed};
    int projections = 0;
    char text[300];
    for (int k = 0; k < N_PLACES; ++k) {
        sut_context *const ctx = step_context(places[k].n_threads, places[k].isa);
        run[k] = ctx ? step_open(ctx, spec) : NULL;
    }
    for (int t = 0; t < n_steps(spec->config.method); ++t) {
        step_grads_conflict(g, &r);
        for (int k = 0; k < N_PLACES; ++k) {
            sut_report report;
            if (!run[k])
                continue;
            step_do(run[k], g, &report);
            projections += report.projected;
            (void)snprintf(text, sizeof text, "%d threads, %s", places[k].n_threads, sut_isa_name(places[k].isa));
            char full[600];
            label(full, sizeof full, spec, variant, text);
            step_assert_same(run[0], run[k], full);
        }
    }
    for (int k = 0; k < N_PLACES; ++k)
        step_close(run[k]);
    step_grads_free(g);
    return projections;
}

static void threads_and_instruction_sets(void **state)
{
    (void)state;
    step_spec spec;
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int variant = 0; variant < step_n_variants((sut_optimizer_method)method); ++variant) {
            if (!next_spec(&spec, method, variant))
                continue;
            for (int k = 0; k < 8; k += STEP_ROUNDS(1, 3)) {
                spec.dtype = k < 4 ? SUT_DTYPE_F32 : SUT_DTYPE_F64;
                spec.config.n_losses = losses[k % 4];
                spec.config.metric = (sut_metric)((variant + k) % 2);
                /* ConFIG may take its sums in double, plain sums are sure to conflict. */
                const bool plain = (variant + k / 2) % 2 == 0;
                spec.config.surgery.method = plain ? SUT_SURGERY_SUM : SUT_SURGERY_CONFIG;
                spec.config.strict = (variant + method + k) % 3 == 0;
                /* Long ones go through the pool; some of the combinations are enough for it. */
                const bool is_long = (variant + method + k) % STEP_ROUNDS(3, 10) == 0;
                step_spec_lengths(&spec, 4, is_long ? long_tensors : short_tensors);
                const int projections = everywhere(&spec, variant);
                if (plain && losses[k % 4] > 1 && projections == 0)
                    fail_msg("%s never met a conflict", step_variant_name((sut_optimizer_method)method, variant));
            }
        }
}

/* One call, and direction + propose + project + project + apply; with and without a report; every check. */
static void stages_and_reports(void **state)
{
    (void)state;
    step_spec spec;
    sut_context *const ctx = step_context(2, SUT_ISA_AUTO);
    const int64_t lengths[] = {1, 31, 700, 5};
    char text[600];
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int variant = 0; variant < step_n_variants((sut_optimizer_method)method); ++variant)
            for (int k = 0; k < 32; k += STEP_ROUNDS(1, 5)) {
                if (!next_spec(&spec, method, variant))
                    break;
                step_spec_lengths(&spec, 4, lengths);
                spec.config.n_losses = losses[k % 4];
                spec.config.metric = (sut_metric)(k / 4 % 2);
                spec.dtype = k / 8 % 2 ? SUT_DTYPE_F32 : SUT_DTYPE_F64;
                spec.config.strict = k / 2 % 2;
                if (k / 16) {
                    spec.config.align = SUT_ALIGN_NONE;
                    spec.config.surgery.method = k % 2 ? SUT_SURGERY_SUM : SUT_SURGERY_UPGRAD;
                    spec.config.check = SUT_CHECK_NONE;
                }
                step_run *const one = step_open(ctx, &spec), *const quiet = step_open(ctx, &spec);
                step_run *const staged = step_open(ctx, &spec);
                step_grads *const g = step_grads_new(&spec);
                test_random r = {spec.seed};
                for (int t = 0; t < n_steps(spec.config.method); ++t) {
                    sut_report report, other;
                    step_grads_conflict(g, &r);
                    step_do(one, g, &report);
                    step_do(quiet, g, NULL);
                    step_do_staged(staged, g, &other);
                    label(text, sizeof text, &spec, variant, "without a report");
                    step_assert_same(one, quiet, text);
                    label(text, sizeof text, &spec, variant, "in stages");
                    step_assert_same(one, staged, text);
                    assert_memory_equal(report.lambda, other.lambda, sizeof report.lambda);
                    assert_memory_equal(report.cos_p, other.cos_p, sizeof report.cos_p);
                    assert_memory_equal(report.weights, other.weights, sizeof report.weights);
                    assert_int_equal(report.realigned, other.realigned);
                    assert_int_equal(report.projected, other.projected);
                }
                step_grads_free(g);
                step_close(staged);
                step_close(quiet);
                step_close(one);
            }
}

/* Rows that nearly cancel: what the products are taken in must not depend on whether a report is wanted. */
static void ill_conditioned_rows(void **state)
{
    (void)state;
    step_spec spec;
    sut_context *const ctx = step_context(1, SUT_ISA_AUTO);
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int k = 0; k < 4; ++k) {
            step_spec_init(&spec, (sut_optimizer_method)method, 0);
            spec.dtype = SUT_DTYPE_F32;
            spec.config.n_losses = 3;
            spec.length[0] = 1000;
            spec.config.align = k % 2 ? SUT_ALIGN_GUA : SUT_ALIGN_NONE;
            spec.config.surgery.method = k / 2 ? SUT_SURGERY_CONFIG : SUT_SURGERY_SUM;
            spec.config.check = SUT_CHECK_NONE;
            step_run *const one = step_open(ctx, &spec), *const quiet = step_open(ctx, &spec);
            step_run *const staged = step_open(ctx, &spec);
            step_grads *const g = step_grads_new(&spec);
            test_random r = {spec.seed};
            for (int t = 0; t < 3; ++t) {
                sut_report report;
                step_grads_conflict(g, &r);
                for (int64_t j = 0; j < spec.length[0]; ++j)
                    step_grad_set(g, 2, 0, j,
                                  -step_grad_get(g, 0, 0, j) - step_grad_get(g, 1, 0, j) + 1e-5 * test_normal(&r));
                step_do(one, g, &report);
                step_do(quiet, g, NULL);
                step_do_staged(staged, g, NULL);
                step_assert_same(one, quiet, step_variant_name((sut_optimizer_method)method, 0));
                step_assert_same(one, staged, step_variant_name((sut_optimizer_method)method, 0));
            }
            step_grads_free(g);
            step_close(staged);
            step_close(quiet);
            step_close(one);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_and_instruction_sets),
        cmocka_unit_test(stages_and_reports),
        cmocka_unit_test(ill_conditioned_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
