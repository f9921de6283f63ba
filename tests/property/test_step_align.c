/*
 * What an aligned step must keep, for every method and combination of its switches: inside the cone nothing changes by a
 * bit, one loss is a plain step, a rate of 0 moves nothing, maximize is minimising the negated gradients, the order of the
 * losses and the length of a gradient do not matter, and with full strength the realigned state proposes what was applied.
 */
#include "support/step.h"

#include <stdio.h>
#include <string.h>

/* Calls `visit` for every method and variant, f32 and f64, both metrics. */
static void everywhere(void (*visit)(const step_spec *spec, const char *name))
{
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int variant = 0; variant < step_n_variants((sut_optimizer_method)method); ++variant)
            for (int k = 0; k < 4; ++k) {
                step_spec spec;
                sut_hyper unused;
                char name[300];
                if (!step_variant((sut_optimizer_method)method, variant, &unused))
                    break;
                if (!step_is_run(method + variant + k))
                    continue;
                step_spec_init(&spec, (sut_optimizer_method)method, variant);
                spec.dtype = k % 2 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
                spec.config.metric = (sut_metric)(k / 2);
                (void)snprintf(name, sizeof name, "%s, %s, metric %d",
                               step_variant_name((sut_optimizer_method)method, variant), sut_dtype_name(spec.dtype),
                               k / 2);
                visit(&spec, name);
            }
}

static sut_context *context(void)
{
    return step_context(1, SUT_ISA_AUTO);
}

/* Runs two problems side by side on the gradients that `draw` makes, and compares them after each step. */
static int side_by_side(const step_spec *first, const step_spec *second, void (*draw)(step_grads *, test_random *),
                        int steps, const char *name)
{
    step_run *const a = step_open(context(), first), *const b = step_open(context(), second);
    step_grads *const g = step_grads_new(first);
    test_random r = {first->seed};
    int projections = 0;
    for (int t = 0; t < steps; ++t) {
        sut_report report;
        draw(g, &r);
        step_do(a, g, &report);
        step_do(b, g, NULL);
        step_assert_same(a, b, name);
        projections += report.projected;
    }
    step_grads_free(g);
    step_close(b);
    step_close(a);
    return projections;
}

/* --- inside the cone ------------------------------------------------------------------------------------------------- */

static void visit_inside(const step_spec *given, const char *name)
{
    step_spec aligned = *given, plain;
    aligned.config.n_losses = 3;
    aligned.config.hyper.weight_decay *= 0.1; /* so that decay does not lead out of the cone */
    plain = aligned;
    plain.config.align = SUT_ALIGN_NONE;
    assert_int_equal(side_by_side(&aligned, &plain, step_grads_agree, 20, name), 0);
}

static void inside_the_cone_nothing_changes(void **state)
{
    (void)state;
    everywhere(visit_inside);
}

/* --- one loss -------------------------------------------------------------------------------------------------------- */

static void visit_one_loss(const step_spec *given, const char *name)
{
    for (int surgery = 0; surgery < SUT_SURGERY_COUNT; ++surgery) {
        step_spec aligned = *given, plain;
        const double one = 1;
        aligned.config.n_losses = 1;
        plain = aligned;
        plain.config.align = SUT_ALIGN_NONE;
        sut_surgery_config_init(&aligned.config.surgery, (sut_surgery_method)surgery);
        aligned.config.surgery.preference = surgery == SUT_SURGERY_FIXED ? &one : NULL;
        if (surgery == SUT_SURGERY_NASH) /* its weights are not homogeneous in the gradient */
            continue;
        assert_int_equal(side_by_side(&aligned, &plain, step_grads_conflict, 3, name), 0);
    }
}

static void one_loss_is_a_plain_step(void **state)
{
    (void)state;
    everywhere(visit_one_loss);
}

/* --- two losses with the same gradient ------------------------------------------------------------------------------- */

static void visit_twice(const step_spec *given, const char *name)
{
    step_spec twice = *given, once = *given;
    once.config.n_losses = 1;
    step_run *const a = step_open(context(), &twice), *const b = step_open(context(), &once);
    step_grads *const g = step_grads_new(&twice), *const sum = step_grads_new(&once);
    test_random r = {given->seed};
    for (int t = 0; t < 3; ++t) {
        for (int64_t k = 0; k < given->length[0]; ++k) {
            const double x = 1 + 0.2 * test_normal(&r);
            step_grad_set(g, 0, 0, k, x);
            step_grad_set(g, 1, 0, k, x);
            step_grad_set(sum, 0, 0, k, 2 * step_grad_get(g, 0, 0, k));
        }
        step_do(a, g, NULL);
        step_do(b, sum, NULL);
        step_assert_same(a, b, name);
    }
    step_grads_free(sum);
    step_grads_free(g);
    step_close(b);
    step_close(a);
}

static void the_same_loss_twice_is_twice_the_gradient(void **state)
{
    (void)state;
    everywhere(visit_twice);
}

/* --- rate 0 ---------------------------------------------------------------------------------------------------------- */

static void visit_rate_zero(const step_spec *given, const char *name)
{
    step_spec frozen = *given, moving = *given;
    frozen.config.hyper.lr = 0;
    moving.config.align = SUT_ALIGN_NONE;
    step_run *const a = step_open(context(), &frozen), *const b = step_open(context(), &moving);
    step_grads *const g = step_grads_new(given);
    test_random r = {given->seed};
    double before[64];
    for (int64_t k = 0; k < given->length[0]; ++k)
        before[k] = step_theta(a, 0, k);
    sut_report report;
    for (int t = 0; t < 3; ++t) {
        step_grads_conflict(g, &r);
        step_do(a, g, &report);
        assert_int_equal(report.moved, 0);
        assert_int_equal(report.projected, 0);
        assert_int_equal(report.realigned, 0);
        assert_int_equal(report.step, t + 1);
        assert_true(report.lr == 0);
        step_do(b, g, NULL);
        /* The other one moves only so that it advances its state; it is put back. */
        for (int64_t k = 0; k < given->length[0]; ++k)
            step_set(b->tensor[0].data, given->dtype, k, before[k]);
        step_assert_same(a, b, name);
    }
    /* In stages likewise, and the first moment of the next real step is the one that went on. */
    step_do_staged(a, g, &report);
    step_do(b, g, NULL);
    for (int64_t k = 0; k < given->length[0]; ++k)
        step_set(b->tensor[0].data, given->dtype, k, before[k]);
    step_assert_same(a, b, name);
    assert_int_equal(report.moved, 0);
    step_grads_free(g);
    step_close(b);
    step_close(a);
}

static void rate_zero_moves_nothing_but_the_state(void **state)
{
    (void)state;
    everywhere(visit_rate_zero);
}

/* --- maximize -------------------------------------------------------------------------------------------------------- */

static void negate(step_grads *to, const step_grads *from)
{
    for (int i = 0; i < from->m; ++i)
        for (int k = 0; k < from->n_tensors; ++k)
            for (int64_t j = 0; j < from->length[k]; ++j)
                step_grad_set(to, i, k, j, -step_grad_get(from, i, k, j));
}

static void visit_maximize(const step_spec *given, const char *name)
{
    for (int m = 1; m <= 3; ++m) {
        step_spec up = *given, down = *given;
        up.config.n_losses = down.config.n_losses = m;
        up.config.maximize = 1;
        step_run *const a = step_open(context(), &up), *const b = step_open(context(), &down);
        step_grads *const g = step_grads_new(&up), *const h = step_grads_new(&up);
        test_random r = {given->seed};
        int projections = 0;
        for (int t = 0; t < 4; ++t) {
            sut_report x, y;
            step_grads_conflict(g, &r);
            negate(h, g);
            step_do(a, g, &x);
            step_do(b, h, &y);
            step_assert_same(a, b, name);
            for (int i = 0; i < m; ++i)
                assert_true(x.lambda[i] == y.lambda[i] && x.cos_u[i] == y.cos_u[i] && x.cos_p[i] == y.cos_p[i]);
            assert_true(x.primal == y.primal && x.realigned == y.realigned);
            projections += x.projected;
        }
        if (m > 1 && projections == 0)
            fail_msg("%s never met a conflict", name);
        step_grads_free(h);
        step_grads_free(g);
        step_close(b);
        step_close(a);
    }
}

static void maximize_is_minimising_the_negated_gradients(void **state)
{
    (void)state;
    everywhere(visit_maximize);
}

/* --- order and length of the rows ------------------------------------------------------------------------------------ */

/* Fixed weights, so that the direction stays when a row is scaled. */
static void visit_permutation(const step_spec *given, const char *name)
{
    enum { M = 4 };
    static const int order[M] = {2, 0, 3, 1};
    double weights[M] = {1, 0.5, 2, 0.75}, permuted[M];
    for (int i = 0; i < M; ++i)
        permuted[i] = weights[order[i]];
    step_spec first = *given, second;
    first.config.n_losses = M;
    sut_surgery_config_init(&first.config.surgery, SUT_SURGERY_FIXED);
    first.config.surgery.preference = weights;
    second = first;
    second.config.surgery.preference = permuted;
    step_run *const a = step_open(context(), &first), *const b = step_open(context(), &second);
    step_grads *const g = step_grads_new(&first), *const h = step_grads_new(&first);
    test_random r = {given->seed};
    const double tolerance = given->dtype == SUT_DTYPE_F64 ? 1e-11 : 1e-3;
    for (int t = 0; t < 3; ++t) {
        sut_report x, y;
        step_grads_conflict(g, &r);
        for (int i = 0; i < M; ++i)
            h->pointer[i] = g->pointer[order[i]];
        step_do(a, g, &x);
        step_do(b, h, &y);
        if (x.projected != y.projected || x.conflict_u != y.conflict_u)
            fail_msg("%s: another order, another decision", name);
        double largest = 0;
        for (int i = 0; i < M; ++i)
            largest = fmax(largest, x.lambda[i]);
        for (int i = 0; i < M; ++i) {
            if (!(fabs(x.lambda[order[i]] - y.lambda[i]) <= tolerance * largest))
                fail_msg("%s: multiplier %d is %g, in another order %g", name, order[i], x.lambda[order[i]],
                         y.lambda[i]);
            assert_true(fabs(x.cos_u[order[i]] - y.cos_u[i]) <= tolerance);
        }
        for (int64_t k = 0; k < given->length[0]; ++k)
            assert_true(fabs(step_theta(a, 0, k) - step_theta(b, 0, k)) <= tolerance * (1 + fabs(step_theta(a, 0, k))));
    }
    step_grads_free(h);
    step_grads_free(g);
    step_close(b);
    step_close(a);
}

static void order_of_the_losses(void **state)
{
    (void)state;
    everywhere(visit_permutation);
}

/* Powers of two round nothing: the same bits, and multipliers divided by exactly that power. */
static void visit_scaling(const step_spec *given, const char *name)
{
    enum { M = 3 };
    static const double factor[M] = {2, 0.25, 1};
    double weights[M] = {1, 0.5, 2}, scaled[M];
    for (int i = 0; i < M; ++i)
        scaled[i] = weights[i] / factor[i];
    step_spec first = *given, second;
    first.config.n_losses = M;
    sut_surgery_config_init(&first.config.surgery, SUT_SURGERY_FIXED);
    first.config.surgery.preference = weights;
    second = first;
    second.config.surgery.preference = scaled;
    step_run *const a = step_open(context(), &first), *const b = step_open(context(), &second);
    step_grads *const g = step_grads_new(&first), *const h = step_grads_new(&first);
    test_random r = {given->seed};
    int projections = 0;
    for (int t = 0; t < 4; ++t) {
        sut_report x, y;
        step_grads_conflict(g, &r);
        for (int i = 0; i < M; ++i)
            for (int64_t k = 0; k < given->length[0]; ++k)
                step_grad_set(h, i, 0, k, factor[i] * step_grad_get(g, i, 0, k));
        step_do(a, g, &x);
        step_do(b, h, &y);
        step_assert_same(a, b, name);
        for (int i = 0; i < M; ++i)
            if (x.lambda[i] != factor[i] * y.lambda[i])
                fail_msg("%s: multiplier %d is %.17g, of %g times the row %.17g", name, i, x.lambda[i], factor[i],
                         y.lambda[i]);
        projections += x.projected;
    }
    assert_true(projections > 0);
    step_grads_free(h);
    step_grads_free(g);
    step_close(b);
    step_close(a);
}

static void length_of_the_rows(void **state)
{
    (void)state;
    everywhere(visit_scaling);
}

/* --- full strength --------------------------------------------------------------------------------------------------- */

/*
 * u as the formulas of the methods give it from a state, for element k at step t (> 0), with the gradient g that the rule
 * saw (coupled decay included) and theta before the step. NaN: not linear in a first moment.
 */
static double proposal(const step_run *run, int64_t k, double t, double g, double theta)
{
    const sut_hyper *const h = &run->spec.config.hyper;
    const double m_total = 1 - pow(h->beta1, t), v_total = 1 - pow(h->beta2, t);
    switch (run->spec.config.method) {
    case SUT_OPTIMIZER_SGD:
        if (h->momentum == 0)
            return NAN;
        return h->nesterov ? g + h->momentum * step_state(run, "b", 0, k) : step_state(run, "b", 0, k);
    case SUT_OPTIMIZER_RMSPROP: return h->momentum == 0 ? NAN : step_state(run, "b", 0, k);
    case SUT_OPTIMIZER_ADAM:
    case SUT_OPTIMIZER_ADAMW: {
        const double v = step_state(run, h->amsgrad ? "vmax" : "v", 0, k);
        const double u = step_state(run, "m", 0, k) / m_total / (sqrt(v / v_total) + h->eps);
        return run->spec.config.method == SUT_OPTIMIZER_ADAMW ? u + h->weight_decay * theta : u;
    }
    case SUT_OPTIMIZER_NADAM: {
        double product = 1;
        for (int i = 1; i <= (int)t; ++i)
            product *= h->beta1 * (1 - 0.5 * pow(0.96, i * h->momentum_decay));
        const double mu = h->beta1 * (1 - 0.5 * pow(0.96, t * h->momentum_decay));
        const double next = h->beta1 * (1 - 0.5 * pow(0.96, (t + 1) * h->momentum_decay));
        const double c1 = (1 - mu) / (1 - product), c2 = next / (1 - product * next);
        return (c1 * g + c2 * step_state(run, "m", 0, k)) / (sqrt(step_state(run, "v", 0, k) / v_total) + h->eps);
    }
    case SUT_OPTIMIZER_RADAM: {
        const double top = 2 / (1 - h->beta2) - 1, now = top - 2 * t * pow(h->beta2, t) / v_total;
        const double m = step_state(run, "m", 0, k) / m_total;
        if (now <= 5)
            return m;
        const double r = sqrt((now - 4) * (now - 2) * top / ((top - 4) * (top - 2) * now));
        return r * m * sqrt(v_total) / (sqrt(step_state(run, "v", 0, k)) + h->eps);
    }
    default: return NAN;
    }
}

static int checked_proposals;

static void visit_full_strength(const step_spec *given, const char *name)
{
    step_spec spec = *given;
    spec.config.n_losses = 3;
    spec.config.rho_m = 1;
    spec.config.rho_v = 0;
    step_run *const run = step_open(context(), &spec);
    step_grads *const g = step_grads_new(&spec);
    step_arrays *const a = step_arrays_new(run), *const u = step_arrays_new(run), *const p = step_arrays_new(run);
    const bool coupled = spec.config.method != SUT_OPTIMIZER_ADAMW && spec.config.method != SUT_OPTIMIZER_LION;
    const double tolerance = spec.dtype == SUT_DTYPE_F64 ? 1e-12 : 1e-4;
    test_random r = {spec.seed};
    for (int t = 1; t <= 9; ++t) {
        double theta[64], largest = 0;
        sut_report report;
        sut_report_init(&report);
        step_grads_conflict(g, &r);
        for (int64_t k = 0; k < spec.length[0]; ++k)
            theta[k] = step_theta(run, 0, k);
        assert_int_equal(sut_optimizer_direction(run->opt, g->pointer, NULL, NULL, a->pointer), SUT_OK);
        assert_int_equal(sut_optimizer_propose(run->opt, g->pointer, NULL, u->pointer, NULL), SUT_OK);
        for (int64_t k = 0; k < spec.length[0]; ++k)
            largest = fmax(largest, fabs(step_get(u->pointer[0], u->dtype, k)));
        for (int pass = 0; pass < 2; ++pass) { /* before the realignment u, after it p */
            if (pass == 1) {
                assert_int_equal(sut_optimizer_project(run->opt, g->pointer, p->pointer, NULL), SUT_OK);
                assert_int_equal(sut_optimizer_apply(run->opt, g->pointer, NULL, &report), SUT_OK);
                if (!report.projected)
                    break;
                checked_proposals += report.realigned;
            }
            const step_arrays *const expected = pass == 0 ? u : p;
            for (int64_t k = 0; k < spec.length[0]; ++k) {
                const double gradient =
                    step_get(a->pointer[0], a->dtype, k) + (coupled ? spec.config.hyper.weight_decay * theta[k] : 0);
                const double x = proposal(run, k, t, gradient, theta[k]);
                const double y = step_get(expected->pointer[0], expected->dtype, k);
                if (!isnan(x) && !(fabs(x - y) <= tolerance * largest))
                    fail_msg("%s, step %d: the %s state proposes %.15g for element %lld, %c is %.15g", name, t,
                             pass ? "realigned" : "new", x, (long long)k, pass ? 'p' : 'u', y);
            }
        }
    }
    step_arrays_free(p);
    step_arrays_free(u);
    step_arrays_free(a);
    step_grads_free(g);
    step_close(run);
}

static void full_strength_proposes_what_was_applied(void **state)
{
    (void)state;
    everywhere(visit_full_strength);
    assert_true(checked_proposals > (test_on_device() ? 0 : 500));
}

/* --- the gate -------------------------------------------------------------------------------------------------------- */

/* SGD that follows loss 1 alone: u = g_1, whose cosine with g_0 = (1, 0) is x. */
static void gate_at(double x, double tolerance, double distance_tolerance, sut_report *report)
{
    step_spec spec;
    const double weights[2] = {0, 1};
    step_spec_init(&spec, SUT_OPTIMIZER_SGD, 0);
    spec.length[0] = 2;
    spec.config.conflict_cos_tol = tolerance;
    spec.config.correction_distance_tol = distance_tolerance;
    sut_surgery_config_init(&spec.config.surgery, SUT_SURGERY_FIXED);
    spec.config.surgery.preference = weights;
    spec.config.hyper.momentum = 0.5;
    step_run *const run = step_open(context(), &spec);
    step_grads *const g = step_grads_new(&spec);
    step_grad_set(g, 0, 0, 0, 1);
    step_grad_set(g, 1, 0, 0, x);
    step_grad_set(g, 1, 0, 1, sqrt(1 - x * x));
    step_do(run, g, report);
    step_grads_free(g);
    step_close(run);
}

static void the_gate(void **state)
{
    (void)state;
    sut_report r;
    gate_at(-0.99e-6, 1e-6, 1e-8, &r);
    assert_int_equal(r.projected, 0);
    assert_true(fabs(r.cos_u[0] + 0.99e-6) < 1e-15 && r.cos_p[0] == r.cos_u[0] && r.primal == 0);
    assert_true(r.relative_change == 0 && r.ratio_pu == 1 && r.cos_pu == 1);
    assert_int_equal(r.conflict_u, 0); /* not a conflict as they are counted */
    gate_at(-1.01e-6, 1e-6, 1e-8, &r);
    assert_int_equal(r.projected, 1);
    assert_int_equal(r.realigned, 1);
    assert_int_equal(r.conflict_u, 1);
    assert_int_equal(r.conflict_p, 0);
    assert_true(fabs(r.relative_change - 1.01e-6) < 1e-14 && fabs(r.lambda[0] - 1.01e-6) < 1e-14 && r.lambda[1] == 0);
    gate_at(-0.5e-9, 0, 1e-8, &r); /* repaired, but too little to realign */
    assert_int_equal(r.projected, 1);
    assert_int_equal(r.realigned, 0);
    assert_int_equal(r.conflict_u, 0);
    assert_true(fabs(r.cos_p[0]) < 1e-15);
    gate_at(-1.5e-8, 0, 1e-8, &r);
    assert_int_equal(r.realigned, 1);
    gate_at(-0.3, 0.4, 1e-8, &r); /* the gate is a setting */
    assert_int_equal(r.projected, 0);
    assert_int_equal(r.conflict_p, 1);
    gate_at(-0.3, 0, 0.31, &r);
    assert_int_equal(r.projected, 1);
    assert_int_equal(r.realigned, 0);
    gate_at(-0.3, 0, 0.29, &r);
    assert_int_equal(r.realigned, 1);
    gate_at(0, 0, 0, &r);
    assert_int_equal(r.projected, 0);
    gate_at(0.1, 0, 0, &r);
    assert_int_equal(r.projected, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inside_the_cone_nothing_changes),
        cmocka_unit_test(one_loss_is_a_plain_step),
        cmocka_unit_test(the_same_loss_twice_is_twice_the_gradient),
        cmocka_unit_test(rate_zero_moves_nothing_but_the_state),
        cmocka_unit_test(maximize_is_minimising_the_negated_gradients),
        cmocka_unit_test(order_of_the_losses),
        cmocka_unit_test(length_of_the_rows),
        cmocka_unit_test(full_strength_proposes_what_was_applied),
        cmocka_unit_test(the_gate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
