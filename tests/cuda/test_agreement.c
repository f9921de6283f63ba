/*
 * The CPU and CUDA back ends side by side, through the public calls: every variant of every method, every type, several
 * groups with rates and settings of their own, tensors of ragged lengths and odd addresses, absent gradients.
 *
 * Without alignment a step is element-wise once the weights are known: parameters and states have the same bits. Aligned
 * steps depend on sums, which the two take in different orders: they agree to the rounding of these sums, amplified by the
 * condition of the projection, which is mild here.
 */
#include "support/step.h"

#include <stdio.h>
#include <string.h>

static sut_context *context(sut_backend backend)
{
    static sut_context *ctx[3];
    if (!ctx[backend]) {
        sut_context_config config;
        sut_context_config_init(&config);
        config.backend = backend;
        config.n_threads = 1;
        assert_int_equal(sut_context_create(&ctx[backend], &config), SUT_OK);
    }
    return ctx[backend];
}

/* A tensor that fills more than one chunk, small ones, an empty one. */
static const int64_t lengths[] = {1, 1500, 0, 77, 256, 3};
enum { N_TENSORS = sizeof lengths / sizeof *lengths };

/* New gradients; a tensor that some losses, one that all losses leave out, now and then. `all`: the pointers of every row. */
static void draw(step_grads *g, const void *const *all, int t, test_random *r)
{
    memcpy(g->pointer, all, sizeof g->pointer);
    step_grads_conflict(g, r);
    if (t % 3 == 1)
        g->pointer[3] = NULL;
    for (int i = 0; i < g->m && t % 3 == 2; ++i)
        g->pointer[i * g->n_tensors + 4] = NULL;
}

/* The largest difference of two runs, relative to the largest entry of each array. */
static double difference(const step_run *a, const step_run *b)
{
    double worst = 0;
    const char *slot;
    for (int k = 0; k < a->spec.n_tensors; ++k) {
        double largest = 0, apart = 0;
        for (int64_t j = 0; j < a->spec.length[k]; ++j) {
            largest = fmax(largest, fabs(step_theta(a, k, j)));
            apart = fmax(apart, fabs(step_theta(a, k, j) - step_theta(b, k, j)));
        }
        worst = fmax(worst, largest > 0 ? apart / largest : apart);
        for (int s = 0; (slot = sut_optimizer_state_name(a->opt, s)) != NULL; ++s) {
            void *x, *y;
            sut_dtype dtype;
            int64_t count;
            if (sut_optimizer_state(a->opt, slot, k, &x, &dtype, &count) != SUT_OK ||
                sut_optimizer_state(b->opt, slot, k, &y, NULL, NULL) != SUT_OK)
                continue; /* masters of some tensors only */
            largest = apart = 0;
            for (int64_t j = 0; j < count; ++j) {
                largest = fmax(largest, fabs(step_get(x, dtype, j)));
                apart = fmax(apart, fabs(step_get(x, dtype, j) - step_get(y, dtype, j)));
            }
            worst = fmax(worst, largest > 0 ? apart / largest : apart);
        }
    }
    return worst;
}

static void compare(sut_optimizer_method method, int variant, sut_dtype dtype, sut_align align, int turn)
{
    step_spec spec;
    char name[300];
    step_spec_init(&spec, method, variant);
    step_spec_lengths(&spec, N_TENSORS, lengths);
    spec.dtype = dtype;
    spec.misalign = turn % 4;
    spec.config.align = align;
    spec.config.n_losses = 1 + turn % 3;
    spec.config.maximize = turn / 2 % 2;
    spec.config.metric = (sut_metric)(turn / 4 % 2);
    spec.config.surgery.method = align && turn % 5 == 0 ? SUT_SURGERY_CONFIG : SUT_SURGERY_SUM;
    /* Two groups beside the first: a rate of their own, and no movement at all. */
    sut_hyper groups[3] = {spec.config.hyper, spec.config.hyper, spec.config.hyper};
    groups[1].lr *= 0.25;
    groups[2].lr = 0;
    spec.config.groups = groups;
    spec.config.n_groups = 3;
    for (int k = 0; k < N_TENSORS; ++k)
        spec.group[k] = turn % 2 ? k % 3 : 0;
    (void)snprintf(name, sizeof name, "%s, %s, align %d, turn %d", step_variant_name(method, variant),
                   sut_dtype_name(dtype), (int)align, turn);

    step_run *const cpu = step_open(context(SUT_BACKEND_CPU), &spec), *const gpu =
                                                                          step_open(context(SUT_BACKEND_CUDA), &spec);
    step_grads *const g = step_grads_new(&spec);
    test_random r = {99 + (uint64_t)turn};
    static const void *all[SUT_MAX_LOSSES * STEP_MAX_TENSORS];
    memcpy(all, g->pointer, sizeof all);
    for (int t = 0; t < 3; ++t) {
        sut_report on_cpu, on_gpu;
        draw(g, all, t, &r);
        step_do(cpu, g, &on_cpu);
        if (t % 2)
            step_do_staged(gpu, g, &on_gpu);
        else
            step_do(gpu, g, &on_gpu);
        if (align == SUT_ALIGN_NONE)
            step_assert_same(cpu, gpu, name);
        if (on_cpu.projected != on_gpu.projected || on_cpu.realigned != on_gpu.realigned)
            fail_msg("%s: projected %d and %d, realigned %d and %d", name, on_cpu.projected, on_gpu.projected,
                     on_cpu.realigned, on_gpu.realigned);
        /* f32: 1e-7 of a sum, ten times that for the condition; halves round to 2^-8 or 2^-11 when they differ at all. */
        const double figures = dtype == SUT_DTYPE_F64 ? 1e-11 : 1e-5;
        for (int i = 0; i < g->m; ++i)
            if (!(fabs(on_cpu.cos_u[i] - on_gpu.cos_u[i]) <= figures &&
                  fabs(on_cpu.cos_p[i] - on_gpu.cos_p[i]) <= figures &&
                  fabs(on_cpu.norms[i] - on_gpu.norms[i]) <= figures * on_cpu.norms[i]))
                fail_msg("%s: figures of loss %d: cos_u %.12g and %.12g, cos_p %.12g and %.12g, norm %.12g and %.12g",
                         name, i, on_cpu.cos_u[i], on_gpu.cos_u[i], on_cpu.cos_p[i], on_gpu.cos_p[i], on_cpu.norms[i],
                         on_gpu.norms[i]);
    }
    const double allowed = dtype == SUT_DTYPE_F64 ? 1e-11 : dtype == SUT_DTYPE_F32 ? 1e-5 : 0x1p-7;
    const double found = difference(cpu, gpu);
    if (!(found <= allowed))
        fail_msg("%s: the back ends are %.3g apart, %.3g allowed", name, found, allowed);
    step_grads_free(g);
    step_close(cpu);
    step_close(gpu);
}

static void every_variant(sut_align align)
{
    int turn = 0;
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int variant = 0; variant < step_n_variants((sut_optimizer_method)method); ++variant) {
            sut_hyper unused;
            if (!step_variant((sut_optimizer_method)method, variant, &unused))
                continue;
            for (int dtype = SUT_DTYPE_F32; dtype <= SUT_DTYPE_F16; ++dtype, ++turn)
                if (!STEP_SANITIZED || turn % 5 == 0) /* prime to the choices that go with the turn */
                    compare((sut_optimizer_method)method, variant, (sut_dtype)dtype, align, turn);
        }
    assert_true(turn > 100);
}

static void plain_steps_have_the_same_bits(void **state)
{
    (void)state;
    every_variant(SUT_ALIGN_NONE);
}

static void aligned_steps_agree_to_rounding(void **state)
{
    (void)state;
    every_variant(SUT_ALIGN_GUA);
}

static int end(void **state)
{
    (void)state;
    sut_context_destroy(context(SUT_BACKEND_CPU));
    sut_context_destroy(context(SUT_BACKEND_CUDA));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_steps_have_the_same_bits),
        cmocka_unit_test(aligned_steps_agree_to_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
