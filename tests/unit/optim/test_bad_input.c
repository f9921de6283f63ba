/*
 * Bad input in a step: NaN and Inf at every kind of place, losses and parameters that are not finite, arrays that overlap
 * or are not aligned, calls out of order. The call is refused by name, and everything is as it was, to the bit; the next
 * good step goes on as if nothing had happened.
 */
#include "support/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t lengths[] = {1, 31, 4097, 33000};
static const char *const loss_names[] = {"data", "boundary", "energy"};
static const double bad_values[] = {NAN, INFINITY, -INFINITY};

static void refused(const step_run *run, sut_status status, sut_status expected, const char *word, const char *what)
{
    if (status != expected)
        fail_msg("%s: status %d (%s), expected %d; %s", what, status, sut_status_string(status), expected,
                 sut_context_last_error(run->ctx));
    if (word && !strstr(sut_context_last_error(run->ctx), word))
        fail_msg("%s: \"%s\" does not say \"%s\"", what, sut_context_last_error(run->ctx), word);
}

/* --- NaN and Inf in gradients ---------------------------------------------------------------------------------------- */

/* Places: first, last, and in the tail of a block of lanes. */
static void bad_gradient_everywhere(step_run *run, step_grads *g, const char *what)
{
    test_random r = {5};
    for (int i = 0; i < g->m; ++i)
        for (int k = 0; k < g->n_tensors; ++k)
            for (int place = 0; place < 3; ++place) {
                const int64_t n = g->length[k];
                const int64_t at = place == 0 ? 0 : place == 1 ? n - 1 : n - 1 - (n - 1) % 16;
                const double kept = step_grad_get(g, i, k, at);
                char word[100];
                sut_report report;
                sut_report_init(&report);
                const sut_report untouched = report;
                const int64_t skipped = sut_optimizer_skipped_steps(run->opt);
                step_snapshot before = step_snapshot_take(run);
                step_grad_set(g, i, k, at, bad_values[test_below(&r, 3)]);

                const bool staged = test_below(&r, 2);
                const sut_status status =
                    staged ? sut_optimizer_propose(run->opt, g->pointer, NULL, NULL, NULL)
                           : sut_optimizer_step(run->opt, g->pointer, NULL, test_below(&r, 2) ? &report : NULL);
                refused(run, status, SUT_ERROR_NOT_FINITE, loss_names[i], what);
                (void)snprintf(word, sizeof word, "\"param.%d\" at index %lld", k, (long long)at);
                refused(run, status, SUT_ERROR_NOT_FINITE, word, what);
                step_assert_unchanged(run, &before, what);
                assert_memory_equal(&report, &untouched, sizeof report);
                assert_int_equal(sut_optimizer_skipped_steps(run->opt), skipped + 1);
                step_grad_set(g, i, k, at, kept);
            }
}

static void not_finite_gradients(void **state)
{
    (void)state;
    for (int dtype = SUT_DTYPE_F32; dtype <= SUT_DTYPE_F16; ++dtype)
        for (int k = 0; k < 8; ++k) {
            step_spec spec;
            char what[100];
            step_spec_init(&spec, SUT_OPTIMIZER_ADAM, 3);
            step_spec_lengths(&spec, k == 0 ? 4 : 3, lengths);
            spec.dtype = (sut_dtype)dtype;
            spec.config.n_losses = k % 2 ? 1 : 3;
            spec.config.loss_names = loss_names;
            spec.config.align = (sut_align)(k / 2 % 2);
            spec.config.check = k / 4 ? SUT_CHECK_ALL : SUT_CHECK_GRADIENTS;
            spec.config.clip_norm = k == 3 ? 1 : 0;
            step_run *const run = step_open(step_context(k == 0 ? 2 : 1, SUT_ISA_AUTO), &spec);
            step_run *const other = step_open(run->ctx, &spec);
            step_grads *const g = step_grads_new(&spec);
            test_random r = {6};
            for (int t = 0; t < 2; ++t) {
                step_grads_conflict(g, &r);
                step_do(run, g, NULL);
                step_do(other, g, NULL);
                (void)snprintf(what, sizeof what, "%s, m = %d", sut_dtype_name(spec.dtype), spec.config.n_losses);
                bad_gradient_everywhere(run, g, what);
            }
            step_grads_conflict(g, &r);
            step_do(run, g, NULL);
            step_do(other, g, NULL);
            step_assert_same(run, other, what); /* as if nothing had happened */
            step_grads_free(g);
            step_close(other);
            step_close(run);
        }
}

/* Without the check a bad gradient is refused where the Gram matrix is needed anyway, and passes where it is not. */
static void unchecked_gradients(void **state)
{
    (void)state;
    for (int k = 0; k < 3; ++k) {
        step_spec spec;
        step_spec_init(&spec, SUT_OPTIMIZER_ADAM, 0);
        spec.config.check = SUT_CHECK_NONE;
        spec.config.align = k == 0 ? SUT_ALIGN_GUA : SUT_ALIGN_NONE;
        if (k == 1)
            sut_surgery_config_init(&spec.config.surgery, SUT_SURGERY_UPGRAD);
        step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
        step_grads *const g = step_grads_new(&spec);
        test_random r = {7};
        step_grads_conflict(g, &r);
        step_grad_set(g, 1, 0, 2, NAN);
        assert_int_equal(sut_optimizer_step(run->opt, g->pointer, NULL, NULL), k == 2 ? SUT_OK : SUT_ERROR_NOT_FINITE);
        assert_int_equal(isnan(step_theta(run, 0, 2)), k == 2);
        assert_true(isfinite(step_theta(run, 0, 3)));
        step_grads_free(g);
        step_close(run);
    }
}

/* Clipping does not hide an infinite norm. */
static void clipping_an_infinite_gradient(void **state)
{
    (void)state;
    for (int k = 0; k < 3; ++k) {
        step_spec spec;
        step_spec_init(&spec, SUT_OPTIMIZER_SGD, 0);
        spec.config.n_losses = 1;
        spec.config.clip_norm = 1;
        spec.config.check = k == 2 ? SUT_CHECK_NONE : SUT_CHECK_GRADIENTS;
        spec.length[0] = 2;
        step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
        const double g[2] = {k ? NAN : INFINITY, 1};
        const void *const rows[1] = {g};
        step_snapshot before = step_snapshot_take(run);
        refused(run, sut_optimizer_step(run->opt, rows, NULL, NULL), SUT_ERROR_NOT_FINITE, "index 0", "clipping");
        step_assert_unchanged(run, &before, "clipping");
        assert_int_equal(sut_optimizer_skipped_steps(run->opt), 1);
        step_close(run);
    }
}

/* Huge but finite numbers are no error, at the very ends of each type. */
static void huge_gradients_are_finite(void **state)
{
    (void)state;
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int k = 0; k < 4; ++k) {
            step_spec spec;
            step_spec_init(&spec, (sut_optimizer_method)method, 0);
            spec.dtype = k % 2 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
            spec.config.n_losses = 1 + k / 2;
            spec.config.hyper.lr = 1e-3;
            /* Aligned steps take f64 gradients up to 1e150 (test_lengths.c). */
            const double huge = k == 0 || k == 2 ? 1e30 : k == 1 ? 1e200 : 1e148;
            step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
            step_grads *const g = step_grads_new(&spec);
            for (int i = 0; i < g->m; ++i)
                for (int64_t j = 0; j < spec.length[0]; ++j)
                    step_grad_set(g, i, 0, j, (j % 3 ? 1 : -1) * huge);
            for (int t = 0; t < 3; ++t) {
                step_do(run, g, NULL);
                for (int64_t j = 0; j < spec.length[0]; ++j)
                    if (!isfinite(step_theta(run, 0, j)))
                        fail_msg("%s: parameter %lld is %g", sut_optimizer_method_name((sut_optimizer_method)method),
                                 (long long)j, step_theta(run, 0, j));
            }
            step_grads_free(g);
            step_close(run);
        }
}

/* --- parameters and losses ------------------------------------------------------------------------------------------- */

static void not_finite_parameters(void **state)
{
    (void)state;
    for (int k = 0; k < 9; ++k) {
        step_spec spec;
        step_spec_init(&spec, SUT_OPTIMIZER_ADAM, 0);
        step_spec_lengths(&spec, 3, lengths);
        spec.dtype = k < 6 && k % 2 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
        spec.config.check = SUT_CHECK_ALL;
        step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
        step_grads *const g = step_grads_new(&spec);
        test_random r = {8};
        step_grads_conflict(g, &r);
        step_do(run, g, NULL);
        const int tensor = k % 3;
        const int64_t at = lengths[tensor] - 1;
        const double kept = step_theta(run, tensor, at);
        char word[100];
        (void)snprintf(word, sizeof word, "\"param.%d\" is NaN or Inf at index %lld", tensor, (long long)at);
        step_set(run->tensor[tensor].data, spec.dtype, at, bad_values[k % 3]);
        step_snapshot before = step_snapshot_take(run);
        refused(run, sut_optimizer_step(run->opt, g->pointer, NULL, NULL), SUT_ERROR_NOT_FINITE, word, "parameter");
        refused(run, sut_optimizer_propose(run->opt, g->pointer, NULL, NULL, NULL), SUT_ERROR_NOT_FINITE, word,
                "parameter");
        refused(run, sut_optimizer_parameters_changed(run->opt), SUT_ERROR_NOT_FINITE, word, "parameter");
        step_assert_unchanged(run, &before, "a bad parameter");
        assert_int_equal(sut_optimizer_skipped_steps(run->opt), 2);
        step_set(run->tensor[tensor].data, spec.dtype, at, kept);
        step_do(run, g, NULL);
        step_grads_free(g);
        step_close(run);
    }
}

static void not_finite_losses(void **state)
{
    (void)state;
    step_spec spec;
    step_spec_init(&spec, SUT_OPTIMIZER_ADAM, 0);
    spec.config.n_losses = 3;
    spec.config.loss_names = loss_names;
    step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
    step_grads *const g = step_grads_new(&spec);
    test_random r = {9};
    step_grads_conflict(g, &r);
    for (int i = 0; i < 3; ++i)
        for (int k = 0; k < 3; ++k) {
            double losses[3] = {1, 2, 3};
            losses[i] = bad_values[k];
            step_snapshot before = step_snapshot_take(run);
            refused(run, sut_optimizer_step(run->opt, g->pointer, losses, NULL), SUT_ERROR_NOT_FINITE, loss_names[i],
                    "loss");
            refused(run, sut_optimizer_propose(run->opt, g->pointer, losses, NULL, NULL), SUT_ERROR_NOT_FINITE,
                    loss_names[i], "loss");
            refused(run, sut_optimizer_direction(run->opt, g->pointer, losses, NULL, NULL), SUT_ERROR_NOT_FINITE,
                    loss_names[i], "loss");
            step_assert_unchanged(run, &before, "a bad loss");
        }
    step_grads_free(g);
    step_close(run);
}

/* A surgery that needs the losses says so; one without a direction at this point is refused before anything moves. */
static void surgery_that_cannot(void **state)
{
    (void)state;
    for (int k = 0; k < 2; ++k) {
        step_spec spec;
        step_spec_init(&spec, SUT_OPTIMIZER_ADAM, 0);
        sut_surgery_config_init(&spec.config.surgery, k ? SUT_SURGERY_NASH : SUT_SURGERY_MGDA);
        spec.config.surgery.mgda_normalisation = SUT_MGDA_LOSS;
        step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
        step_grads *const g = step_grads_new(&spec);
        test_random r = {10};
        step_grads_conflict(g, &r);
        for (int64_t j = 0; j < spec.length[0] && k; ++j)
            step_grad_set(g, 1, 0, j, -2 * step_grad_get(g, 0, 0, j));
        step_snapshot before = step_snapshot_take(run);
        refused(run, sut_optimizer_step(run->opt, g->pointer, NULL, NULL),
                k ? SUT_ERROR_UNDEFINED : SUT_ERROR_INVALID_ARGUMENT, k ? "nash" : "loss", "surgery");
        step_assert_unchanged(run, &before, "surgery");
        step_grads_free(g);
        step_close(run);
    }
}

/* --- overlap and alignment ------------------------------------------------------------------------------------------- */

/* Parameters in a pool of memory, gaps between them; every position of a gradient, against the definition of overlap. */
static void gradients_that_overlap(void **state)
{
    (void)state;
    enum { N = 3, SIZE = 120 };
    float pool[SIZE];
    for (int k = 0; k < SIZE; ++k)
        pool[k] = 0.5f;
    static const int start[N] = {60, 10, 31}, count[N] = {20, 15, 9}; /* not in the order of memory */
    sut_tensor tensors[N + 1];
    for (int k = 0; k < N; ++k)
        tensors[k] = (sut_tensor){.data = pool + start[k], .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {count[k]}};
    tensors[N] =
        (sut_tensor){.data = pool + 20, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {0}}; /* empty: nowhere */
    sut_optimizer_config config;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_SGD);
    config.tensors = tensors;
    config.n_tensors = N + 1;
    sut_optimizer *opt;
    sut_context *const ctx = step_context(1, SUT_ISA_AUTO);
    assert_int_equal(sut_optimizer_create(&opt, ctx, &config), SUT_OK);
    int refusals = 0;
    for (int k = 0; k < N; ++k)
        for (int at = 0; at + count[k] <= SIZE; ++at) {
            bool overlaps = false;
            for (int j = 0; j < N; ++j)
                overlaps = overlaps || (at < start[j] + count[j] && start[j] < at + count[k]);
            const void *rows[N + 1] = {NULL};
            rows[k] = pool + at;
            const sut_status status = sut_optimizer_step(opt, rows, NULL, NULL);
            assert_int_equal(status, overlaps ? SUT_ERROR_INVALID_ARGUMENT : SUT_OK);
            refusals += overlaps;
            if (overlaps)
                assert_non_null(strstr(sut_context_last_error(ctx), "overlaps"));
        }
    assert_true(refusals > 30);
    sut_optimizer_destroy(opt);
}

/* Outputs of the staged calls may lie on nothing that the call reads or writes. */
static void outputs_that_overlap(void **state)
{
    (void)state;
    for (int dtype = SUT_DTYPE_F32; dtype <= SUT_DTYPE_BF16; ++dtype) {
        step_spec spec;
        step_spec_init(&spec, SUT_OPTIMIZER_ADAM, 0);
        spec.dtype = (sut_dtype)dtype;
        step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
        step_grads *const g = step_grads_new(&spec);
        step_arrays *const fine = step_arrays_new(run);
        test_random r = {13};
        step_grads_conflict(g, &r);
        void *const bad[] = {run->tensor[0].data, g->memory[0], (char *)g->memory[1] + 16,
                             (char *)fine->pointer[0] + 1};
        for (int k = 0; k < 4; ++k) {
            /* An output is longer than a gradient of bf16: it may reach into what lies behind, and that be named. */
            const char *const word = k == 0 ? "overlaps a parameter" : k < 3 ? "overlaps" : "aligned";
            void *const out[1] = {bad[k]};
            step_snapshot before = step_snapshot_take(run);
            refused(run, sut_optimizer_direction(run->opt, g->pointer, NULL, NULL, out), SUT_ERROR_INVALID_ARGUMENT,
                    word, "a_out");
            refused(run, sut_optimizer_propose(run->opt, g->pointer, NULL, out, NULL), SUT_ERROR_INVALID_ARGUMENT, word,
                    "u_out");
            refused(run, sut_optimizer_propose(run->opt, g->pointer, NULL, NULL, out), SUT_ERROR_INVALID_ARGUMENT, word,
                    "inverse_metric_out");
            step_assert_unchanged(run, &before, "an output that overlaps");
            assert_int_equal(sut_optimizer_propose(run->opt, g->pointer, NULL, NULL, NULL), SUT_OK);
            refused(run, sut_optimizer_project(run->opt, g->pointer, out, NULL), SUT_ERROR_INVALID_ARGUMENT, word,
                    "p_out");
            const void *const given[1] = {bad[k]};
            if (k == 0 || k == 3) /* a gradient may be the p that is applied */
                refused(run, sut_optimizer_apply(run->opt, g->pointer, given, NULL), SUT_ERROR_INVALID_ARGUMENT, word,
                        "p");
            assert_int_equal(sut_optimizer_apply(run->opt, g->pointer, NULL, NULL), SUT_OK);
        }
        step_arrays_free(fine);
        step_grads_free(g);
        step_close(run);
    }
}

static void misaligned_pointers(void **state)
{
    (void)state;
    for (int dtype = SUT_DTYPE_F32; dtype <= SUT_DTYPE_F16; ++dtype) {
        step_spec spec;
        step_spec_init(&spec, SUT_OPTIMIZER_ADAM, 0);
        spec.dtype = (sut_dtype)dtype;
        spec.config.n_losses = 1;
        step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
        char *const memory = malloc(41 * sizeof(double));
        memset(memory, 0, 41 * sizeof(double));
        const void *const rows[1] = {memory + 1};
        refused(run, sut_optimizer_step(run->opt, rows, NULL, NULL), SUT_ERROR_INVALID_ARGUMENT, "aligned", "gradient");
        sut_tensor tensor = run->tensor[0];
        tensor.data = memory + 1;
        sut_optimizer_config config = spec.config;
        config.tensors = &tensor;
        config.n_tensors = 1;
        sut_optimizer *opt;
        refused(run, sut_optimizer_create(&opt, run->ctx, &config), SUT_ERROR_INVALID_ARGUMENT, "aligned", "parameter");
        assert_null(opt);
        free(memory);
        step_close(run);
    }
}

/* --- calls out of order ---------------------------------------------------------------------------------------------- */

static void stages_out_of_order(void **state)
{
    (void)state;
    step_spec spec;
    step_spec_init(&spec, SUT_OPTIMIZER_ADAM, 0);
    spec.n_tensors = 2;
    spec.length[1] = 7;
    step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
    step_run *const other = step_open(run->ctx, &spec);
    step_grads *const g = step_grads_new(&spec);
    step_arrays *const p = step_arrays_new(run);
    test_random r = {14};
    step_grads_conflict(g, &r);
    refused(run, sut_optimizer_project(run->opt, g->pointer, NULL, NULL), SUT_ERROR_SEQUENCE, "propose", "project");
    refused(run, sut_optimizer_apply(run->opt, g->pointer, NULL, NULL), SUT_ERROR_SEQUENCE, "propose", "apply");
    assert_int_equal(sut_optimizer_propose(run->opt, g->pointer, NULL, NULL, NULL), SUT_OK);
    step_snapshot before = step_snapshot_take(run);
    refused(run, sut_optimizer_step(run->opt, g->pointer, NULL, NULL), SUT_ERROR_SEQUENCE, "apply", "step");
    refused(run, sut_optimizer_propose(run->opt, g->pointer, NULL, NULL, NULL), SUT_ERROR_SEQUENCE, "apply", "propose");
    refused(run, sut_optimizer_direction(run->opt, g->pointer, NULL, NULL, NULL), SUT_ERROR_SEQUENCE, "apply",
            "direction");
    refused(run, sut_optimizer_project(run->opt, NULL, NULL, NULL), SUT_ERROR_INVALID_ARGUMENT, "grads", "project");
    refused(run, sut_optimizer_apply(run->opt, NULL, NULL, NULL), SUT_ERROR_INVALID_ARGUMENT, "grads", "apply");

    /* Other gradients than those of the proposal, as far as it can be seen. */
    const void *const fewer[4] = {g->pointer[0], NULL, g->pointer[2], NULL};
    refused(run, sut_optimizer_project(run->opt, fewer, NULL, NULL), SUT_ERROR_INVALID_ARGUMENT, "param.1", "project");
    refused(run, sut_optimizer_apply(run->opt, fewer, NULL, NULL), SUT_ERROR_INVALID_ARGUMENT, "param.1", "apply");

    const void *const given[2] = {p->pointer[0], p->pointer[1]};
    step_set(p->pointer[1], p->dtype, 6, NAN);
    refused(run, sut_optimizer_apply(run->opt, g->pointer, given, NULL), SUT_ERROR_NOT_FINITE, "\"param.1\" at index 6",
            "apply");
    step_assert_unchanged(run, &before, "calls out of order");
    assert_int_equal(sut_optimizer_apply(run->opt, g->pointer, NULL, NULL), SUT_OK); /* still there */
    refused(run, sut_optimizer_apply(run->opt, g->pointer, NULL, NULL), SUT_ERROR_SEQUENCE, "propose", "apply");
    step_do(other, g, NULL);
    step_assert_same(run, other, "refused calls between the stages");
    step_arrays_free(p);
    step_grads_free(g);
    step_close(other);
    step_close(run);
}

/* A p of the caller's own is what is applied; NULL entries stand for the proposal. */
static void an_update_that_is_given(void **state)
{
    (void)state;
    for (int align = 0; align < 2; ++align) {
        step_spec spec;
        step_spec_init(&spec, SUT_OPTIMIZER_ADAM, 0);
        spec.n_tensors = 2;
        spec.length[1] = 7;
        spec.theta_scale = 0;
        spec.config.align = (sut_align)align;
        step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
        step_grads *const g = step_grads_new(&spec);
        step_arrays *const p = step_arrays_new(run), *const u = step_arrays_new(run);
        test_random r = {15};
        step_grads_conflict(g, &r);
        for (int64_t k = 0; k < spec.length[0]; ++k)
            step_set(p->pointer[0], p->dtype, k, test_normal(&r));
        const void *const given[2] = {p->pointer[0], NULL};
        sut_report report;
        sut_report_init(&report);
        assert_int_equal(sut_optimizer_propose(run->opt, g->pointer, NULL, u->pointer, NULL), SUT_OK);
        const double before = step_state(run, "m", 0, 3), kept = step_state(run, "m", 1, 3);
        assert_int_equal(sut_optimizer_apply(run->opt, g->pointer, given, &report), SUT_OK);
        for (int64_t k = 0; k < spec.length[0]; ++k)
            assert_true(step_theta(run, 0, k) == 0 - spec.config.hyper.lr * step_get(p->pointer[0], p->dtype, k));
        for (int64_t k = 0; k < spec.length[1]; ++k)
            assert_true(step_theta(run, 1, k) == 0 - spec.config.hyper.lr * step_get(u->pointer[1], u->dtype, k));
        assert_int_equal(report.projected, 1);
        assert_int_equal(report.realigned, align);
        assert_int_equal(step_state(run, "m", 0, 3) != before, align);
        assert_true(step_state(run, "m", 1, 3) == kept);
        step_arrays_free(u);
        step_arrays_free(p);
        step_grads_free(g);
        step_close(run);
    }
}

/* Two optimizers on one context: the proposal that waits in one does not hold up the other. */
static void optimizers_share_a_context(void **state)
{
    (void)state;
    step_spec spec;
    step_spec_init(&spec, SUT_OPTIMIZER_ADAM, 0);
    spec.length[0] = 40000;
    spec.dtype = SUT_DTYPE_F32;
    step_run *const a = step_open(step_context(2, SUT_ISA_AUTO), &spec);
    spec.config.n_losses = 5;
    step_run *const b = step_open(a->ctx, &spec), *const c = step_open(step_context(2, SUT_ISA_AUTO), &spec);
    spec.config.n_losses = 2;
    step_run *const alone = step_open(a->ctx, &spec);
    step_grads *const g = step_grads_new(&a->spec), *const h = step_grads_new(&b->spec);
    test_random r = {16};
    for (int t = 0; t < 3; ++t) {
        step_grads_conflict(g, &r);
        step_grads_conflict(h, &r);
        step_do(alone, g, NULL);
        assert_int_equal(sut_optimizer_propose(a->opt, g->pointer, NULL, NULL, NULL), SUT_OK);
        step_do(b, h, NULL);
        step_do(c, h, NULL);
        assert_int_equal(sut_optimizer_apply(a->opt, g->pointer, NULL, NULL), SUT_OK);
        step_assert_same(a, alone, "an optimizer beside another");
        step_assert_same(b, c, "an optimizer beside a proposal that waits");
    }
    step_grads_free(h);
    step_grads_free(g);
    step_close(alone);
    step_close(c);
    step_close(b);
    step_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(not_finite_gradients),          cmocka_unit_test(unchecked_gradients),
        cmocka_unit_test(clipping_an_infinite_gradient), cmocka_unit_test(huge_gradients_are_finite),
        cmocka_unit_test(not_finite_parameters),         cmocka_unit_test(not_finite_losses),
        cmocka_unit_test(surgery_that_cannot),           cmocka_unit_test(gradients_that_overlap),
        cmocka_unit_test(outputs_that_overlap),          cmocka_unit_test(misaligned_pointers),
        cmocka_unit_test(stages_out_of_order),           cmocka_unit_test(an_update_that_is_given),
        cmocka_unit_test(optimizers_share_a_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
