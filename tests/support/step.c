/* What the tests of the step share, see step.h. */
#include "support/step.h"

#include "backend/half.h"
#include "optim/optimizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- contexts -------------------------------------------------------------------------------------------------------- */

enum { MAX_CONTEXTS = 32 };
static struct {
    int n_threads;
    sut_isa isa;
    sut_context *ctx;
} contexts[MAX_CONTEXTS];
static int n_contexts;

static void end_contexts(void)
{
    for (int k = 0; k < n_contexts; ++k)
        sut_context_destroy(contexts[k].ctx);
}

sut_context *step_context(int n_threads, sut_isa isa)
{
    for (int k = 0; k < n_contexts; ++k)
        if (contexts[k].n_threads == n_threads && contexts[k].isa == isa)
            return contexts[k].ctx;
    assert_true(n_contexts < MAX_CONTEXTS);
    if (n_contexts == 0)
        (void)atexit(end_contexts);
    sut_context_config config;
    sut_context_config_init(&config);
    config.n_threads = n_threads;
    config.isa = isa;
    sut_context *ctx = NULL;
    const sut_status status = sut_context_create(&ctx, &config);
    if (status == SUT_ERROR_BACKEND && isa != SUT_ISA_AUTO)
        return NULL;
    assert_int_equal(status, SUT_OK);
    contexts[n_contexts].n_threads = n_threads;
    contexts[n_contexts].isa = isa;
    contexts[n_contexts++].ctx = ctx;
    return ctx;
}

bool step_is_run(int turn)
{
    return !test_on_device() || turn % (STEP_SANITIZED ? 12 : 3) == 0;
}

/* --- variants -------------------------------------------------------------------------------------------------------- */

/* Parameters that select other loops: flags, and numbers whose zero switches something off. */
static bool is_switch(const sut_parameter_info *p)
{
    return p->is_flag || !strcmp(p->name, "momentum") || !strcmp(p->name, "weight_decay");
}

/* A value that is not the default and shows. */
static double other_value(const sut_parameter_info *p)
{
    if (p->is_flag)
        return 1;
    if (!strcmp(p->name, "lr"))
        return 0.037;
    if (!strcmp(p->name, "eps"))
        return 3e-3;
    if (p->maximum <= 1)
        return p->default_value > 0.5 ? 0.93 * p->default_value : 0.61;
    return p->default_value > 0 ? 3 * p->default_value : 0.043;
}

int step_n_variants(sut_optimizer_method method)
{
    sut_parameter_info p;
    int n = 1;
    for (int k = 0; sut_optimizer_parameter(method, k, &p) == SUT_OK; ++k)
        n *= is_switch(&p) ? 2 : 1;
    return n;
}

static bool accepted(sut_optimizer_method method, const sut_hyper *h)
{
    return sut_hyper_check(NULL, sut_method_find(method), h, 0) == SUT_OK;
}

bool step_variant(sut_optimizer_method method, int variant, sut_hyper *h)
{
    sut_parameter_info p;
    assert_int_equal(sut_hyper_init(h, method), SUT_OK);
    for (int k = 0; sut_optimizer_parameter(method, k, &p) == SUT_OK; ++k) {
        double value = other_value(&p);
        if (is_switch(&p)) {
            value = variant & 1 ? value : 0;
            variant >>= 1;
        }
        assert_int_equal(sut_hyper_set(h, method, p.name, value), SUT_OK);
    }
    if (accepted(method, h))
        return true;
    h->dampening = 0; /* nesterov wants none */
    return accepted(method, h);
}

const char *step_variant_name(sut_optimizer_method method, int variant)
{
    static char text[200];
    sut_parameter_info p;
    (void)snprintf(text, sizeof text, "%s", sut_optimizer_method_name(method));
    for (int k = 0; sut_optimizer_parameter(method, k, &p) == SUT_OK; ++k) {
        if (!is_switch(&p))
            continue;
        if (variant & 1)
            (void)snprintf(text + strlen(text), sizeof text - strlen(text), " %s=%g", p.name, other_value(&p));
        variant >>= 1;
    }
    return text;
}

void step_spec_init(step_spec *spec, sut_optimizer_method method, int variant)
{
    memset(spec, 0, sizeof *spec);
    sut_optimizer_config *const c = &spec->config;
    sut_optimizer_config_init(c, method);
    if (!step_variant(method, variant, &c->hyper))
        fail_msg("%s is not a variant", step_variant_name(method, variant));
    c->n_losses = 2;
    c->align = SUT_ALIGN_GUA;
    c->rho_m = 0.37;
    c->rho_v = 0.21;
    c->conflict_cos_tol = 0;
    spec->dtype = SUT_DTYPE_F64;
    spec->n_tensors = 1;
    spec->length[0] = 40;
    spec->theta_scale = 1;
    spec->seed = 1 + (uint64_t)method + 100u * (uint64_t)variant;
}

void step_spec_lengths(step_spec *spec, int n_tensors, const int64_t *lengths)
{
    assert_true(n_tensors <= STEP_MAX_TENSORS);
    spec->n_tensors = n_tensors;
    memcpy(spec->length, lengths, (size_t)n_tensors * sizeof *lengths);
}

/* --- numbers --------------------------------------------------------------------------------------------------------- */

sut_dtype step_compute_type(sut_dtype dtype)
{
    return dtype == SUT_DTYPE_F64 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
}

double step_get(const void *x, sut_dtype dtype, int64_t k)
{
    switch (dtype) {
    case SUT_DTYPE_F32: return (double)((const float *)x)[k];
    case SUT_DTYPE_F64: return ((const double *)x)[k];
    case SUT_DTYPE_BF16: return (double)sut_from_bf16(((const uint16_t *)x)[k]);
    case SUT_DTYPE_F16: return (double)sut_from_f16(((const uint16_t *)x)[k]);
    }
    fail();
    return 0;
}

void step_set(void *x, sut_dtype dtype, int64_t k, double value)
{
    switch (dtype) {
    case SUT_DTYPE_F32: ((float *)x)[k] = (float)value; break;
    case SUT_DTYPE_F64: ((double *)x)[k] = value; break;
    case SUT_DTYPE_BF16: ((uint16_t *)x)[k] = sut_to_bf16((float)value); break;
    case SUT_DTYPE_F16: ((uint16_t *)x)[k] = sut_to_f16((float)value); break;
    }
}

/* `count` elements that begin `misalign` elements beside a 64-byte boundary; exactly as long as they say, so that an address
 * sanitizer sees the first byte behind them. *memory is what to free. */
static void *take(int64_t count, sut_dtype dtype, int misalign, void **memory)
{
    const size_t size = sut_dtype_size(dtype);
    void *raw = NULL;
    if (posix_memalign(&raw, 64, ((size_t)count + (size_t)misalign) * size + (count == 0)) != 0)
        fail_msg("no memory for a test");
    memset(raw, 0, ((size_t)count + (size_t)misalign) * size);
    *memory = raw;
    return (char *)raw + (size_t)misalign * size;
}

/* --- runs ------------------------------------------------------------------------------------------------------------ */

step_run *step_open(sut_context *ctx, const step_spec *spec)
{
    step_run *const run = calloc(1, sizeof *run);
    assert_non_null(run);
    run->spec = *spec;
    run->ctx = ctx;
    test_random r = {spec->seed};
    for (int k = 0; k < spec->n_tensors; ++k) {
        void *const data = take(spec->length[k], spec->dtype, spec->misalign, &run->memory[k]);
        for (int64_t j = 0; j < spec->length[k]; ++j)
            step_set(data, spec->dtype, j, spec->theta_scale * test_normal(&r));
        run->tensor[k] = (sut_tensor){.data = spec->length[k] ? data : NULL,
                                      .dtype = spec->dtype,
                                      .n_dims = 1,
                                      .shape = {spec->length[k]},
                                      .group = spec->group[k]};
    }
    run->spec.config.tensors = run->tensor;
    run->spec.config.n_tensors = spec->n_tensors;
    const sut_status status = sut_optimizer_create(&run->opt, ctx, &run->spec.config);
    if (status != SUT_OK)
        fail_msg("%s: %s", sut_optimizer_method_name(spec->config.method), sut_context_last_error(ctx));
    return run;
}

void step_close(step_run *run)
{
    if (!run)
        return;
    sut_optimizer_destroy(run->opt);
    for (int k = 0; k < run->spec.n_tensors; ++k)
        free(run->memory[k]);
    free(run);
}

double step_theta(const step_run *run, int tensor, int64_t k)
{
    return step_get(run->tensor[tensor].data, run->spec.dtype, k);
}

double step_state(const step_run *run, const char *slot, int tensor, int64_t k)
{
    void *data;
    sut_dtype dtype;
    int64_t count;
    const sut_status status = sut_optimizer_state(run->opt, slot, tensor, &data, &dtype, &count);
    if (status != SUT_OK || k >= count)
        fail_msg("state \"%s\" of tensor %d: %s", slot, tensor, sut_context_last_error(run->ctx));
    return step_get(data, dtype, k);
}

/* --- gradients ------------------------------------------------------------------------------------------------------- */

step_grads *step_grads_new(const step_spec *spec)
{
    step_grads *const g = calloc(1, sizeof *g);
    assert_non_null(g);
    g->m = spec->config.n_losses;
    g->n_tensors = spec->n_tensors;
    g->dtype = spec->dtype;
    memcpy(g->length, spec->length, sizeof g->length);
    for (int i = 0; i < g->m; ++i)
        for (int k = 0; k < g->n_tensors; ++k) {
            const int at = i * g->n_tensors + k;
            /* Rows beside different boundaries: loads of one row say nothing about the next. */
            g->pointer[at] = take(g->length[k], g->dtype, spec->misalign ? spec->misalign + i % 3 : 0, &g->memory[at]);
        }
    return g;
}

void step_grads_free(step_grads *g)
{
    if (!g)
        return;
    for (int k = 0; k < g->m * g->n_tensors; ++k)
        free(g->memory[k]);
    free(g);
}

double step_grad_get(const step_grads *g, int loss, int tensor, int64_t k)
{
    return step_get(g->pointer[loss * g->n_tensors + tensor], g->dtype, k);
}

void step_grad_set(step_grads *g, int loss, int tensor, int64_t k, double value)
{
    step_set((void *)(uintptr_t)g->pointer[loss * g->n_tensors + tensor], g->dtype, k, value);
}

void step_grads_conflict(step_grads *g, test_random *r)
{
    for (int k = 0; k < g->n_tensors; ++k)
        for (int64_t j = 0; j < g->length[k]; ++j) {
            const double b = test_normal(r);
            for (int i = 0; i < g->m; ++i)
                step_grad_set(g, i, k, j, (i % 2 ? -1 : 1) * (1 + 0.7 * i) * b + 0.4 * test_normal(r));
        }
}

void step_grads_agree(step_grads *g, test_random *r)
{
    for (int k = 0; k < g->n_tensors; ++k)
        for (int64_t j = 0; j < g->length[k]; ++j) {
            const double b = 1 + 0.2 * test_normal(r);
            for (int i = 0; i < g->m; ++i)
                step_grad_set(g, i, k, j, (1 + 0.5 * i) * (b + 0.2 * test_normal(r)));
        }
}

step_arrays *step_arrays_new(const step_run *run)
{
    step_arrays *const a = calloc(1, sizeof *a);
    assert_non_null(a);
    a->n_tensors = run->spec.n_tensors;
    a->dtype = step_compute_type(run->spec.dtype);
    for (int k = 0; k < a->n_tensors; ++k) {
        a->length[k] = run->spec.length[k];
        a->pointer[k] = take(a->length[k], a->dtype, 0, &a->pointer[k]);
    }
    return a;
}

void step_arrays_free(step_arrays *a)
{
    if (!a)
        return;
    for (int k = 0; k < a->n_tensors; ++k)
        free(a->pointer[k]);
    free(a);
}

/* --- calls ----------------------------------------------------------------------------------------------------------- */

static void succeed(const step_run *run, sut_status status, const char *call)
{
    if (status != SUT_OK)
        fail_msg("%s of %s: %s", call, sut_optimizer_method_name(run->spec.config.method),
                 sut_context_last_error(run->ctx));
}

void step_do(step_run *run, const step_grads *g, sut_report *report)
{
    if (report)
        sut_report_init(report);
    succeed(run, sut_optimizer_step(run->opt, g->pointer, NULL, report), "step");
}

void step_do_staged(step_run *run, const step_grads *g, sut_report *report)
{
    step_arrays *const a = step_arrays_new(run), *const u = step_arrays_new(run), *const p = step_arrays_new(run);
    double weights[SUT_MAX_LOSSES];
    sut_report looked;
    sut_report_init(&looked);
    if (report)
        sut_report_init(report);
    succeed(run, sut_optimizer_direction(run->opt, g->pointer, NULL, weights, a->pointer), "direction");
    succeed(run, sut_optimizer_propose(run->opt, g->pointer, NULL, u->pointer, a->pointer), "propose");
    succeed(run, sut_optimizer_project(run->opt, g->pointer, p->pointer, &looked), "project");
    succeed(run, sut_optimizer_project(run->opt, g->pointer, NULL, NULL), "project");
    succeed(run, sut_optimizer_apply(run->opt, g->pointer, NULL, report), "apply");
    step_arrays_free(p);
    step_arrays_free(u);
    step_arrays_free(a);
}

/* --- comparisons ----------------------------------------------------------------------------------------------------- */

static void same_bytes(const void *a, const void *b, int64_t count, sut_dtype dtype, const char *what,
                       const char *array, int tensor)
{
    const size_t size = sut_dtype_size(dtype);
    if (count == 0 || memcmp(a, b, (size_t)count * size) == 0)
        return;
    int64_t k = 0;
    while (memcmp((const char *)a + (size_t)k * size, (const char *)b + (size_t)k * size, size) == 0)
        ++k;
    fail_msg("%s: \"%s\" of tensor %d differs at index %lld: %.17g and %.17g", what, array, tensor, (long long)k,
             step_get(a, dtype, k), step_get(b, dtype, k));
}

void step_assert_same(const step_run *a, const step_run *b, const char *what)
{
    assert_int_equal(a->spec.n_tensors, b->spec.n_tensors);
    assert_int_equal(sut_optimizer_steps(a->opt), sut_optimizer_steps(b->opt));
    for (int k = 0; k < a->spec.n_tensors; ++k) {
        if (sut_optimizer_tensor_steps(a->opt, k) != sut_optimizer_tensor_steps(b->opt, k))
            fail_msg("%s: step counts of tensor %d differ", what, k);
        same_bytes(a->tensor[k].data, b->tensor[k].data, a->spec.length[k], a->spec.dtype, what, "theta", k);
        const char *slot;
        for (int s = 0; (slot = sut_optimizer_state_name(a->opt, s)) != NULL; ++s) {
            void *x, *y;
            sut_dtype dtype;
            int64_t count, other;
            assert_int_equal(sut_optimizer_state(a->opt, slot, k, &x, &dtype, &count), SUT_OK);
            assert_int_equal(sut_optimizer_state(b->opt, slot, k, &y, NULL, &other), SUT_OK);
            assert_int_equal(count, other);
            same_bytes(x, y, count, dtype, what, slot, k);
        }
    }
}

static void append(step_snapshot *s, const void *from, size_t size)
{
    if (size == 0)
        return;
    s->bytes = realloc(s->bytes, s->size + size);
    assert_non_null(s->bytes);
    memcpy(s->bytes + s->size, from, size);
    s->size += size;
}

step_snapshot step_snapshot_take(const step_run *run)
{
    step_snapshot s = {NULL, 0};
    const sut_optimizer *const opt = run->opt;
    append(&s, &opt->t, sizeof opt->t);
    append(&s, opt->algebra.kept_weights, sizeof opt->algebra.kept_weights);
    append(&s, &opt->algebra.kept_for, sizeof opt->algebra.kept_for);
    append(&s, opt->group, (size_t)opt->n_groups * sizeof *opt->group);
    append(&s, &opt->config, sizeof opt->config);
    void *const state = malloc(opt->state_bytes + 1);
    assert_non_null(state);
    assert_int_equal(opt->ctx->ops->download(opt->ctx, state, opt->state_memory, opt->state_bytes), SUT_OK);
    append(&s, state, opt->state_bytes);
    free(state);
    for (int k = 0; k < run->spec.n_tensors; ++k) {
        append(&s, &opt->tensor[k].t, sizeof opt->tensor[k].t);
        append(&s, &opt->tensor[k].mu_prod, sizeof opt->tensor[k].mu_prod);
        append(&s, run->tensor[k].data, (size_t)run->spec.length[k] * sut_dtype_size(run->spec.dtype));
    }
    return s;
}

void step_assert_unchanged(const step_run *run, step_snapshot *before, const char *what)
{
    step_snapshot now = step_snapshot_take(run);
    if (now.size != before->size || memcmp(now.bytes, before->bytes, now.size) != 0)
        fail_msg("%s has changed something", what);
    free(now.bytes);
    free(before->bytes);
    before->bytes = NULL;
}
