/*
 * How parameters are cut into tensors and groups must not matter beyond what groups are for: tensors in one call, one by
 * one and as one flat vector; equal groups and one group; groups with rates of their own against the definition (u and
 * 1/M scaled by lr_k / lr_max, one projection for all); micro-batches and one big batch.
 */
#include "support/reference.h"
#include "support/step.h"

#include <stdio.h>
#include <string.h>

static const int64_t lengths[] = {1, 2, 31, 32, 33, 1000, 4097};
enum { N_TENSORS = sizeof lengths / sizeof *lengths, N_FLAT = 5196, MAX_ELEMENTS = 64 };

static sut_context *context(void)
{
    return step_context(2, SUT_ISA_AUTO);
}

/* The variant as the other functions want it; false when there is no such variant. */
static bool begin(step_spec *spec, int method, int variant, sut_dtype dtype)
{
    sut_hyper unused;
    if (!step_variant((sut_optimizer_method)method, variant, &unused) || !step_is_run(method + variant))
        return false;
    step_spec_init(spec, (sut_optimizer_method)method, variant);
    spec->dtype = dtype;
    return true;
}

#define EVERY_VARIANT(method, variant)                           \
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method) \
        for (int variant = 0; variant < step_n_variants((sut_optimizer_method)method); ++variant)

/* --- tensors --------------------------------------------------------------------------------------------------------- */

/* Copies element by element: tensor k of `from` begins at offset[k] of the only tensor of `to`. */
static void flatten_gradients(const step_grads *from, step_grads *to)
{
    for (int i = 0; i < from->m; ++i)
        for (int64_t k = 0, at = 0; k < from->n_tensors; ++k)
            for (int64_t j = 0; j < from->length[k]; ++j, ++at)
                step_grad_set(to, i, 0, at, step_grad_get(from, i, (int)k, j));
}

static void one_call_one_by_one_one_flat_vector(void **state)
{
    (void)state;
    EVERY_VARIANT(method, variant)
    for (int dtype = SUT_DTYPE_F32; dtype <= SUT_DTYPE_F64; ++dtype) {
        step_spec spec, flat;
        if (!begin(&spec, method, variant, (sut_dtype)dtype))
            break;
        const char *const name = step_variant_name((sut_optimizer_method)method, variant);
        spec.config.align = SUT_ALIGN_NONE;
        step_spec_lengths(&spec, N_TENSORS, lengths);
        flat = spec;
        flat.n_tensors = 1;
        flat.length[0] = N_FLAT;
        step_run *const together = step_open(context(), &spec), *const vector = step_open(context(), &flat);
        step_run *alone[N_TENSORS];
        for (int k = 0; k < N_TENSORS; ++k) {
            step_spec one = spec;
            one.n_tensors = 1;
            one.length[0] = lengths[k];
            alone[k] = step_open(context(), &one);
            memcpy(alone[k]->tensor[0].data, together->tensor[k].data, (size_t)lengths[k] * sut_dtype_size(spec.dtype));
        }
        step_grads *const g = step_grads_new(&spec), *const h = step_grads_new(&flat);
        test_random r = {spec.seed};
        for (int t = 0; t < 10; ++t) {
            step_grads_conflict(g, &r);
            flatten_gradients(g, h);
            step_do(together, g, NULL);
            step_do(vector, h, NULL);
            for (int k = 0; k < N_TENSORS; ++k) {
                const void *const rows[2] = {g->pointer[k], g->pointer[N_TENSORS + k]};
                assert_int_equal(sut_optimizer_step(alone[k]->opt, rows, NULL, NULL), SUT_OK);
            }
        }
        for (int64_t k = 0, at = 0; k < N_TENSORS; ++k)
            for (int64_t j = 0; j < lengths[k]; ++j, ++at) {
                const double x = step_theta(together, (int)k, j);
                if (x != step_theta(alone[k], 0, j) || x != step_theta(vector, 0, at))
                    fail_msg("%s, %s: element %lld of tensor %lld is %.17g, alone %.17g, in a flat vector %.17g", name,
                             sut_dtype_name(spec.dtype), (long long)j, (long long)k, x, step_theta(alone[k], 0, j),
                             step_theta(vector, 0, at));
            }
        step_grads_free(h);
        step_grads_free(g);
        for (int k = 0; k < N_TENSORS; ++k)
            step_close(alone[k]);
        step_close(vector);
        step_close(together);
    }
}

/* Aligned: the conflict is that of the whole vector, so cutting changes roundings of sums and nothing else. */
static void an_aligned_step_sees_the_whole_vector(void **state)
{
    (void)state;
    EVERY_VARIANT(method, variant)
    for (int k = 0; k < 4; ++k) {
        step_spec spec, flat;
        if (!begin(&spec, method, variant, k % 2 ? SUT_DTYPE_F64 : SUT_DTYPE_F32))
            break;
        spec.config.metric = (sut_metric)(k / 2);
        step_spec_lengths(&spec, N_TENSORS - 1, lengths);
        flat = spec;
        flat.n_tensors = 1;
        flat.length[0] = N_FLAT - 4097;
        step_run *const a = step_open(context(), &spec), *const b = step_open(context(), &flat);
        step_grads *const g = step_grads_new(&spec), *const h = step_grads_new(&flat);
        test_random r = {spec.seed};
        const double tolerance = spec.dtype == SUT_DTYPE_F64 ? 1e-13 : 2e-5;
        for (int t = 0; t < 2; ++t) {
            sut_report x, y;
            step_grads_conflict(g, &r);
            flatten_gradients(g, h);
            step_do(a, g, &x);
            step_do(b, h, &y);
            assert_int_equal(x.projected, y.projected);
            for (int i = 0; i < 2; ++i)
                assert_true(fabs(x.cos_u[i] - y.cos_u[i]) <= tolerance);
        }
        for (int64_t i = 0, at = 0; i < spec.n_tensors; ++i)
            for (int64_t j = 0; j < spec.length[i]; ++j, ++at)
                assert_true(fabs(step_theta(a, (int)i, j) - step_theta(b, 0, at)) <=
                            tolerance * (1 + fabs(step_theta(b, 0, at))));
        step_grads_free(h);
        step_grads_free(g);
        step_close(b);
        step_close(a);
    }
}

/* The same number, 50 times, with the same gradient: every copy moves alike, and by the rate in the first step. */
static void fifty_tensors_one_counter(void **state)
{
    (void)state;
    step_spec spec;
    step_spec_init(&spec, SUT_OPTIMIZER_ADAM, 0);
    sut_hyper_init(&spec.config.hyper, SUT_OPTIMIZER_ADAM);
    spec.config.hyper.lr = 0.1;
    spec.config.n_losses = 1;
    spec.n_tensors = STEP_MAX_TENSORS;
    for (int k = 0; k < spec.n_tensors; ++k)
        spec.length[k] = 1;
    step_run *const run = step_open(context(), &spec);
    step_grads *const g = step_grads_new(&spec);
    for (int k = 0; k < spec.n_tensors; ++k) {
        step_set(run->tensor[k].data, spec.dtype, 0, 0.25);
        step_grad_set(g, 0, k, 0, 1);
    }
    for (int t = 1; t <= 5; ++t) {
        step_do(run, g, NULL);
        for (int k = 0; k < spec.n_tensors; ++k) {
            assert_true(step_theta(run, k, 0) == step_theta(run, 0, 0));
            assert_int_equal(sut_optimizer_tensor_steps(run->opt, k), t);
        }
        if (t == 1)
            assert_true(fabs(step_theta(run, 0, 0) - 0.15) <= 1e-8);
    }
    step_grads_free(g);
    step_close(run);
}

/* --- groups ---------------------------------------------------------------------------------------------------------- */

static void equal_groups_are_one_group(void **state)
{
    (void)state;
    static const int64_t three[] = {40, 700, 33};
    EVERY_VARIANT(method, variant)
    for (int k = 0; k < 4; ++k) {
        step_spec spec, grouped;
        if (!begin(&spec, method, variant, k % 2 ? SUT_DTYPE_F64 : SUT_DTYPE_F32))
            break;
        spec.config.metric = (sut_metric)(k / 2);
        step_spec_lengths(&spec, 3, three);
        grouped = spec;
        const sut_hyper twice[2] = {spec.config.hyper, spec.config.hyper};
        grouped.config.groups = twice;
        grouped.config.n_groups = 2;
        grouped.group[1] = 1;
        step_run *const a = step_open(context(), &spec), *const b = step_open(context(), &grouped);
        step_grads *const g = step_grads_new(&spec);
        test_random r = {spec.seed};
        for (int t = 0; t < 4; ++t) {
            step_grads_conflict(g, &r);
            step_do(a, g, NULL);
            step_do(b, g, NULL);
            step_assert_same(a, b, step_variant_name((sut_optimizer_method)method, variant));
        }
        step_grads_free(g);
        step_close(b);
        step_close(a);
    }
}

/* Each group obeys its own settings: an unaligned step with groups is a step of an optimizer for each group. */
static void groups_have_settings_of_their_own(void **state)
{
    (void)state;
    EVERY_VARIANT(method, variant)
    {
        step_spec spec;
        if (!begin(&spec, method, variant, SUT_DTYPE_F32))
            continue;
        sut_hyper groups[2] = {spec.config.hyper, spec.config.hyper};
        groups[0].lr = 0.3, groups[0].beta1 = 0.5, groups[0].beta2 = 0.7, groups[0].alpha = 0.4, groups[0].eps = 0.1;
        groups[0].weight_decay *= 2, groups[0].momentum *= 0.5, groups[0].lr_decay = 1, groups[0].momentum_decay = 1;
        spec.config.align = SUT_ALIGN_NONE;
        spec.config.groups = groups;
        spec.config.n_groups = 2;
        spec.n_tensors = 2;
        spec.length[1] = 33;
        spec.group[1] = 1;
        step_run *const both = step_open(context(), &spec);
        step_run *alone[2];
        for (int k = 0; k < 2; ++k) {
            step_spec one = spec;
            one.config.groups = NULL;
            one.config.n_groups = 0;
            one.config.hyper = groups[k];
            one.n_tensors = 1;
            one.length[0] = spec.length[k];
            one.group[0] = 0;
            alone[k] = step_open(context(), &one);
            memcpy(alone[k]->tensor[0].data, both->tensor[k].data, (size_t)spec.length[k] * sizeof(float));
        }
        step_grads *const g = step_grads_new(&spec);
        test_random r = {spec.seed};
        for (int t = 0; t < 9; ++t) {
            step_grads_conflict(g, &r);
            step_do(both, g, NULL);
            for (int k = 0; k < 2; ++k) {
                const void *const rows[2] = {g->pointer[k], g->pointer[2 + k]};
                assert_int_equal(sut_optimizer_step(alone[k]->opt, rows, NULL, NULL), SUT_OK);
                assert_memory_equal(alone[k]->tensor[0].data, both->tensor[k].data,
                                    (size_t)spec.length[k] * sizeof(float));
            }
        }
        step_grads_free(g);
        for (int k = 0; k < 2; ++k)
            step_close(alone[k]);
        step_close(both);
    }
}

/*
 * Three groups with rates lr_k, one of them possibly 0. By definition p is found from r_k u_k and r_k / M_k, r_k = lr_k /
 * lr_max, in one projection, and group k moves by lr_k p_k with p_k = p / r_k.
 */
static void rates_of_their_own(void **state)
{
    (void)state;
    static const double rates[][3] = {{0.1, 0.02, 0.05}, {0.01, 0.3, 0}, {0, 0.2, 0}, {1e-6, 1, 0.5}};
    static const int64_t three[] = {7, 20, 12};
    enum { N = 39 };
    int projections = 0;
    EVERY_VARIANT(method, variant)
    for (int k = 0; k < 16; ++k) {
        step_spec spec;
        if (!begin(&spec, method, variant, k % 2 ? SUT_DTYPE_F64 : SUT_DTYPE_F32))
            break;
        const char *const name = step_variant_name((sut_optimizer_method)method, variant);
        sut_hyper groups[3];
        for (int i = 0; i < 3; ++i) {
            groups[i] = spec.config.hyper;
            groups[i].lr = rates[k / 4][i];
            groups[i].eps *= 1 + i;
        }
        spec.config.metric = (sut_metric)(k / 2 % 2);
        spec.config.n_losses = 3;
        spec.config.groups = groups;
        spec.config.n_groups = 3;
        step_spec_lengths(&spec, 3, three);
        spec.group[1] = 1;
        spec.group[2] = 2;
        step_run *const run = step_open(context(), &spec);
        step_grads *const g = step_grads_new(&spec);
        step_arrays *const u = step_arrays_new(run), *const w = step_arrays_new(run), *const p = step_arrays_new(run);
        test_random r = {spec.seed + (uint64_t)k};
        for (int t = 0; t < 3; ++t) {
            double before[N], G[3 * N], U[N], W[N], P[N], largest = 0, top = 0;
            for (int i = 0; i < 3; ++i)
                top = fmax(top, groups[i].lr);
            step_grads_conflict(g, &r);
            assert_int_equal(sut_optimizer_propose(run->opt, g->pointer, NULL, u->pointer, w->pointer), SUT_OK);
            for (int64_t i = 0, at = 0; i < 3; ++i)
                for (int64_t j = 0; j < three[i]; ++j, ++at) {
                    const double ratio = groups[i].lr / top;
                    before[at] = step_theta(run, (int)i, j);
                    U[at] = ratio * step_get(u->pointer[i], u->dtype, j);
                    W[at] =
                        ratio * (spec.config.metric == SUT_METRIC_EUCLIDEAN ? 1 : step_get(w->pointer[i], w->dtype, j));
                    for (int loss = 0; loss < 3; ++loss) /* what does not move is not part of any gradient */
                        G[loss * N + at] = ratio > 0 ? step_grad_get(g, loss, (int)i, j) : 0;
                    largest = fmax(largest, fabs(U[at]));
                }
            sut_report report;
            sut_report_init(&report);
            assert_int_equal(sut_optimizer_project(run->opt, g->pointer, p->pointer, NULL), SUT_OK);
            assert_int_equal(sut_optimizer_apply(run->opt, g->pointer, NULL, &report), SUT_OK);
            reference_project(G, N, 3, N, W, U, P);
            projections += report.projected;
            const double tolerance = spec.dtype == SUT_DTYPE_F64 ? 1e-12 : 2e-6;
            for (int64_t i = 0, at = 0; i < 3; ++i)
                for (int64_t j = 0; j < three[i]; ++j, ++at) {
                    const double moved = before[at] - step_theta(run, (int)i, j);
                    const double eps = spec.dtype == SUT_DTYPE_F64 ? 0x1p-51 : 0x1p-22;
                    if (!(fabs(moved - top * P[at]) <= tolerance * top * largest + eps * fabs(before[at])))
                        fail_msg("%s, %s, rates %d, step %d: element %lld of group %lld moved by %.15g, expected %.15g",
                                 name, sut_dtype_name(spec.dtype), k / 4, t, (long long)j, (long long)i, moved,
                                 top * P[at]);
                    if (groups[i].lr == 0)
                        assert_true(moved == 0);
                    else if (!(fabs(groups[i].lr / top * step_get(p->pointer[i], p->dtype, j) - P[at]) <=
                               tolerance * largest))
                        fail_msg("%s: project gives another p", name);
                }
            if (report.lr != top)
                fail_msg("%s: the report says lr = %g", name, report.lr);
        }
        step_arrays_free(p);
        step_arrays_free(w);
        step_arrays_free(u);
        step_grads_free(g);
        step_close(run);
    }
    assert_true(projections > (test_on_device() ? 0 : 500));
}

/* A group of rate 0: its state advances without realignment, and a conflict inside it alone is no conflict. */
static void a_group_that_rests(void **state)
{
    (void)state;
    EVERY_VARIANT(method, variant)
    {
        step_spec spec;
        if (!begin(&spec, method, variant, SUT_DTYPE_F64))
            continue;
        const char *const name = step_variant_name((sut_optimizer_method)method, variant);
        sut_hyper groups[2] = {spec.config.hyper, spec.config.hyper};
        groups[1].lr = 0;
        groups[0].weight_decay *= 0.1;
        spec.config.groups = groups;
        spec.config.n_groups = 2;
        spec.n_tensors = 2;
        spec.length[1] = 30;
        spec.group[1] = 1;
        step_spec plain = spec;
        plain.config.align = SUT_ALIGN_NONE;
        step_run *const a = step_open(context(), &spec), *const b = step_open(context(), &plain);
        step_grads *const conflicting = step_grads_new(&spec), *const agreeing = step_grads_new(&spec);
        test_random r = {spec.seed};
        for (int t = 0; t < 4; ++t) {
            sut_report report;
            step_grads_conflict(conflicting, &r);
            step_grads_agree(agreeing, &r);
            const void *const rows[4] = {agreeing->pointer[0], conflicting->pointer[1], agreeing->pointer[2],
                                         conflicting->pointer[3]};
            sut_report_init(&report);
            assert_int_equal(sut_optimizer_step(a->opt, rows, NULL, &report), SUT_OK);
            assert_int_equal(sut_optimizer_step(b->opt, rows, NULL, NULL), SUT_OK);
            assert_int_equal(report.projected, 0);
            step_assert_same(a, b, name);
        }
        /* Now the moving group conflicts: the resting one goes on as if nothing had happened. */
        for (int t = 0; t < 2; ++t) {
            sut_report report;
            step_grads_conflict(conflicting, &r);
            step_do(a, conflicting, &report);
            step_do(b, conflicting, NULL);
            if (t == 0)
                assert_int_equal(report.projected, 1);
            const char *slot;
            for (int s = 0; (slot = sut_optimizer_state_name(a->opt, s)) != NULL; ++s)
                for (int64_t k = 0; k < spec.length[1] && strcmp(slot, "mu_prod") != 0; ++k)
                    if (step_state(a, slot, 1, k) != step_state(b, slot, 1, k))
                        fail_msg("%s: %s of the resting group was realigned", name, slot);
        }
        step_grads_free(agreeing);
        step_grads_free(conflicting);
        step_close(b);
        step_close(a);
    }
}

/* --- batches --------------------------------------------------------------------------------------------------------- */

/* The mean of four micro-batches as four losses, and their mean as one gradient. */
static void micro_batches(void **state)
{
    (void)state;
    EVERY_VARIANT(method, variant)
    for (int dtype = SUT_DTYPE_F32; dtype <= SUT_DTYPE_F64; ++dtype) {
        step_spec spec, once;
        if (!begin(&spec, method, variant, (sut_dtype)dtype))
            break;
        spec.config.align = SUT_ALIGN_NONE;
        once = spec;
        once.config.n_losses = 1;
        spec.config.n_losses = 4;
        sut_surgery_config_init(&spec.config.surgery, SUT_SURGERY_MEAN);
        step_run *const a = step_open(context(), &spec), *const b = step_open(context(), &once);
        step_grads *const g = step_grads_new(&spec), *const mean = step_grads_new(&once);
        test_random r = {spec.seed};
        const double tolerance = dtype == SUT_DTYPE_F64 ? 1e-13 : 1e-5;
        for (int t = 0; t < 3; ++t) {
            step_grads_agree(g, &r);
            for (int64_t k = 0; k < spec.length[0]; ++k)
                step_grad_set(mean, 0, 0, k,
                              0.25 * (step_grad_get(g, 0, 0, k) + step_grad_get(g, 1, 0, k) +
                                      step_grad_get(g, 2, 0, k) + step_grad_get(g, 3, 0, k)));
            step_do(a, g, NULL);
            step_do(b, mean, NULL);
            for (int64_t k = 0; k < spec.length[0]; ++k)
                if (!(fabs(step_theta(a, 0, k) - step_theta(b, 0, k)) <= tolerance * (1 + fabs(step_theta(b, 0, k)))))
                    fail_msg("%s: element %lld is %.15g, with the mean gradient %.15g",
                             step_variant_name((sut_optimizer_method)method, variant), (long long)k,
                             step_theta(a, 0, k), step_theta(b, 0, k));
        }
        step_grads_free(mean);
        step_grads_free(g);
        step_close(b);
        step_close(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_call_one_by_one_one_flat_vector),
        cmocka_unit_test(an_aligned_step_sees_the_whole_vector),
        cmocka_unit_test(fifty_tensors_one_counter),
        cmocka_unit_test(equal_groups_are_one_group),
        cmocka_unit_test(groups_have_settings_of_their_own),
        cmocka_unit_test(rates_of_their_own),
        cmocka_unit_test(a_group_that_rests),
        cmocka_unit_test(micro_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
