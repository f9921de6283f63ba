/*
 * With gate 0 the update that is applied is the projection of the proposal: for every method and combination of its
 * switches, both metrics, on random and degenerate gradients of any scale.
 *
 *   f64   the certificate in the report: primal, complementarity and gap <= 1e-10, dual = 0
 *   f32   no cosine of the applied update below -1e-6
 *
 * Nothing is taken from the library on trust: the cosines are computed here from the parameters' own change, and the update
 * is compared with a projection that is found by trying every set of tight rows (m <= 4) in long double.
 */
#include "support/reference.h"
#include "support/step.h"

#include "optim/optimizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_N = 70, MAX_M = 12 };

enum kind {
    RANDOM,
    CONFLICTING,
    DUPLICATES,
    OPPOSED,
    NEARLY_OPPOSED,
    NEARLY_PARALLEL,
    UNRESOLVED, /* opposed to an angle at which a Gram matrix of doubles begins to fail, and below */
    ZERO_ROWS,
    MORE_ROWS_THAN_COLUMNS,
    SPANNING, /* the cone is {0}: p = 0 for any proposal */
    SPREAD,   /* coordinates of sizes 1e-4 to 1e4: rows that nearly all lie in few of them */
    N_KINDS
};
static const char *const kind_name[N_KINDS] = {"random",         "conflicting",     "duplicates", "opposed",
                                               "nearly opposed", "nearly parallel", "unresolved", "zero rows",
                                               "m > n",          "spanning",        "spread"};

typedef struct problem {
    int kind, m, n;
    double width; /* angle of the narrowest wedge that was built in; 1: none */
    double G[MAX_M][MAX_N];
} problem;

static void draw_shape(test_random *r, int kind, problem *x)
{
    x->kind = kind;
    x->m = 2 + test_below(r, 3);
    x->n = x->m + 1 + test_below(r, 30);
    if (kind == MORE_ROWS_THAN_COLUMNS) {
        x->n = 2 + test_below(r, 3);
        x->m = x->n + 1 + test_below(r, 6);
    } else if (kind == SPANNING) {
        x->n = 1 + test_below(r, 5);
        x->m = 2 * x->n;
    } else if (kind == SPREAD) {
        x->m = 2 + test_below(r, 4);
        x->n = x->m + test_below(r, 2);
    } else if (test_below(r, 4) == 0) {
        x->m = 5 + test_below(r, 4);
        x->n = x->m + test_below(r, 50);
    }
}

/* The angle of the narrowest wedge of a kind. f32 rows are what their rounding makes of them. */
static double draw_width(test_random *r, int kind)
{
    if (kind == UNRESOLVED)
        return pow(10, -5 - 4 * test_uniform(r));
    return kind == NEARLY_OPPOSED || kind == NEARLY_PARALLEL ? pow(10, -2 - 3 * test_uniform(r)) : 1;
}

/* Rows for a given shape; lengths up to a factor of 1e4 apart, all of them times `scale`. */
static void draw_rows(test_random *r, double scale, problem *x)
{
    const int m = x->m, n = x->n;
    const bool dependent = x->kind == DUPLICATES || x->kind == OPPOSED;
    for (int k = 0; k < n; ++k) {
        const double b = test_normal(r);
        for (int i = 0; i < m; ++i)
            x->G[i][k] = x->kind == CONFLICTING ? (i % 2 ? -1 : 1) * (1 + 0.7 * i) * b + 0.5 * test_normal(r)
                         : dependent            ? (double)(float)test_normal(r)
                                                : test_normal(r);
    }
    double *const last = x->G[m - 1], *const first = x->G[0];
    for (int k = 0; k < n; ++k) {
        if (x->kind == DUPLICATES)
            last[k] = 4 * first[k];
        if (x->kind == OPPOSED)
            last[k] = -2 * first[k];
        if (x->kind == NEARLY_OPPOSED || x->kind == UNRESOLVED)
            last[k] = -2 * first[k] + x->width * last[k];
        if (x->kind == NEARLY_PARALLEL)
            last[k] = 1.5 * first[k] + x->width * last[k];
        if (x->kind == ZERO_ROWS)
            last[k] = 0;
    }
    if (x->kind == SPREAD)
        for (int k = 0; k < n; ++k) {
            const double size = pow(10, test_below(r, 9) - 4);
            for (int i = 0; i < m; ++i)
                x->G[i][k] *= size;
        }
    if (x->kind == SPANNING)
        for (int i = 0; i < m; ++i)
            for (int k = 0; k < n; ++k)
                x->G[i][k] = i / 2 == k ? (i % 2 ? -1 : 1) * (0.5 + 0.1 * i) : 0;
    for (int i = 0; i < m; ++i) {
        double length = test_below(r, 2) ? pow(10, 4 * test_uniform(r) - 2) : 1;
        length =
            dependent ? exp2(floor(log2(length * scale))) : length * scale; /* exactly dependent when rounded, too */
        for (int k = 0; k < n; ++k)
            x->G[i][k] *= length;
    }
}

/* --- one step -------------------------------------------------------------------------------------------------------- */

/* Smallest cosine of p with a row, in long double; 0 where one of them vanishes. */
static double smallest_cosine(const problem *x, const double *p)
{
    long double worst = 0, norm = 0;
    for (int k = 0; k < x->n; ++k)
        norm += (long double)p[k] * p[k];
    for (int i = 0; i < x->m; ++i) {
        long double dot = 0, square = 0;
        for (int k = 0; k < x->n; ++k) {
            dot += (long double)x->G[i][k] * p[k];
            square += (long double)x->G[i][k] * x->G[i][k];
        }
        const long double scale = sqrtl(square) * sqrtl(norm);
        if (scale > 0 && dot / scale < worst)
            worst = dot / scale;
    }
    return (double)worst;
}

/* Gradients for the library; x keeps them as they are stored, with the sign that the cone sees. */
static void fill(step_grads *g, bool maximize, problem *x)
{
    for (int i = 0; i < x->m; ++i)
        for (int k = 0; k < x->n; ++k) {
            step_grad_set(g, i, 0, k, x->G[i][k]);
            x->G[i][k] = (maximize ? -1 : 1) * step_grad_get(g, i, 0, k);
        }
}

typedef struct worst {
    double primal, complementarity, gap, cosine, difference;
    int projected, zero, steps;
} worst;

static void keep(double *largest, double x)
{
    if (!(x <= *largest))
        *largest = x;
}

/* Everything about one step: what was applied, what the report says, and the reference. */
static void check(const step_spec *spec, const problem *x, const double *before, const double *after, const double *u,
                  const double *inverse, const double *p, const sut_report *report, worst *w, const char *name)
{
    const double eps = spec->dtype == SUT_DTYPE_F64 ? 0x1p-52 : 0x1p-23, lr = spec->config.hyper.lr;
    double step[MAX_N];
    for (int k = 0; k < x->n; ++k) {
        step[k] = before[k] - after[k];
        if (!(fabs(step[k] - lr * p[k]) <= 2 * eps * (fabs(before[k]) + fabs(lr * p[k])) + 1e-44))
            fail_msg("%s: element %d moved by %.17g, p is %.17g", name, k, step[k] / lr, p[k]);
        if (report->pareto && (p[k] != 0 || step[k] != 0))
            fail_msg("%s: p is said to be 0, but element %d is %g", name, k, p[k]);
    }
    if (x->kind == SPANNING && report->norm_u > 0 && !(report->pareto && report->norm_p == 0))
        fail_msg("%s: the cone is {0}, but |p| = %g |u|", name, report->ratio_pu);
    for (int i = 0; i < x->m; ++i)
        if (!(report->lambda[i] >= 0))
            fail_msg("%s: multiplier %d is %g", name, i, report->lambda[i]);
    if (report->dual != 0)
        fail_msg("%s: dual is %g", name, report->dual);
    /* Where the parameters were 0 their change is the update to the last digit. */
    keep(&w->cosine, -smallest_cosine(x, spec->theta_scale == 0 && report->step == 1 ? step : p));
    keep(&w->primal, report->primal);
    keep(&w->complementarity, report->complementarity);
    keep(&w->gap, report->gap);
    w->projected += report->projected;
    w->zero += report->pareto;
    ++w->steps;
    if (x->m > REFERENCE_MAX_M)
        return;
    double metric[MAX_N], expected[MAX_N], distance = 0, norm = 0;
    for (int k = 0; k < x->n; ++k)
        metric[k] = spec->config.metric == SUT_METRIC_EUCLIDEAN ? 1 : inverse[k];
    reference_project(x->G[0], MAX_N, x->m, x->n, metric, u, expected);
    for (int k = 0; k < x->n; ++k) {
        distance += (expected[k] - p[k]) * (expected[k] - p[k]);
        norm += u[k] * u[k];
    }
    if (norm > 0)
        keep(&w->difference, sqrt(distance / norm) * x->width);
}

/* Warm-up steps on gradients of the same kind, then one that is looked at. */
static void look(const step_spec *given, test_random *r, int kind, double scale, worst *w, const char *name)
{
    step_spec spec = *given;
    problem x;
    draw_shape(r, kind, &x);
    x.width = draw_width(r, kind);
    spec.length[0] = x.n;
    spec.config.n_losses = x.m;
    spec.seed = (uint64_t)(test_uniform(r) * 1e9);
    step_run *const run = step_open(step_context(1, SUT_ISA_AUTO), &spec);
    step_grads *const g = step_grads_new(&spec);
    step_arrays *const u = step_arrays_new(run), *const inverse = step_arrays_new(run), *const p = step_arrays_new(run);
    for (int t = test_below(r, 4); t > 0; --t) {
        draw_rows(r, scale, &x);
        fill(g, spec.config.maximize, &x);
        step_do(run, g, NULL);
    }
    draw_rows(r, scale, &x);
    fill(g, spec.config.maximize, &x);
    double before[MAX_N], after[MAX_N], U[MAX_N], D[MAX_N], P[MAX_N];
    for (int k = 0; k < x.n; ++k)
        before[k] = step_theta(run, 0, k);
    sut_report report;
    sut_report_init(&report);
    if (sut_optimizer_propose(run->opt, g->pointer, NULL, u->pointer, inverse->pointer) != SUT_OK ||
        sut_optimizer_project(run->opt, g->pointer, p->pointer, NULL) != SUT_OK ||
        sut_optimizer_apply(run->opt, g->pointer, NULL, &report) != SUT_OK)
        fail_msg("%s: %s", name, sut_context_last_error(run->ctx));
    for (int k = 0; k < x.n; ++k) {
        after[k] = step_theta(run, 0, k);
        U[k] = step_get(u->pointer[0], u->dtype, k);
        D[k] = step_get(inverse->pointer[0], inverse->dtype, k);
        P[k] = step_get(p->pointer[0], p->dtype, k);
    }
    check(&spec, &x, before, after, U, D, P, &report, w, name);
    step_arrays_free(p);
    step_arrays_free(inverse);
    step_arrays_free(u);
    step_grads_free(g);
    step_close(run);
}

/* The rule keeps squares of gradients. */
static bool has_squares(const step_spec *spec)
{
    const char *const *const slot = sut_method_table[spec->config.method].slot;
    for (int k = 0; k < SUT_MAX_SLOTS && slot[k]; ++k)
        if (!strcmp(slot[k], "v"))
            return true;
    return false;
}

static worst every_method(int kind, sut_dtype dtype, int rounds)
{
    test_random r = {2024 + (uint64_t)kind};
    worst w = {0};
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int variant = 0; variant < step_n_variants((sut_optimizer_method)method); ++variant)
            for (int round = 0; round < rounds; ++round) {
                step_spec spec;
                sut_hyper unused;
                char name[300];
                if (!step_variant((sut_optimizer_method)method, variant, &unused) ||
                    (test_on_device() && (method + variant) % 3 != 0))
                    break;
                step_spec_init(&spec, (sut_optimizer_method)method, variant);
                const int bits = test_below(&r, 32);
                spec.dtype = dtype;
                spec.config.metric = (sut_metric)(round % 2);
                spec.config.hyper.eps = bits & 1 ? 1e-8 : spec.config.hyper.eps;
                spec.theta_scale = bits & 2 ? 1 : 0;
                spec.config.maximize = bits & 4 ? 1 : 0;
                spec.config.strict = bits & 16 ? 1 : 0;
                /* Up to 1e20, but not so far that squares overflow the state. */
                const double top = dtype == SUT_DTYPE_F32 && has_squares(&spec) ? 14 : 20;
                const double scale = bits & 8 ? pow(10, (20 + top) * test_uniform(&r) - 20) : 1;
                (void)snprintf(name, sizeof name, "%s, %s rows, round %d, scale %.1e",
                               step_variant_name((sut_optimizer_method)method, variant), kind_name[kind], round, scale);
                look(&spec, &r, kind, scale, &w, name);
            }
    if (getenv("SUT_TEST_VERBOSE"))
        print_message("%s %-16s %d steps, %d projected, %d zero; primal %.1e complementarity %.1e gap %.1e cosine %.1e "
                      "distance %.1e\n",
                      sut_dtype_name(dtype), kind_name[kind], w.steps, w.projected, w.zero, w.primal, w.complementarity,
                      w.gap, w.cosine, w.difference);
    return w;
}

/*
 * Angles down to 1e-9 are resolved. What is left of the certificate is there the rounding of p itself, as its multipliers of
 * 1e9 show it. Its distance from the reference is that of the two roundings of u, amplified as much.
 */
static void f64(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_KINDS; ++kind) {
        const worst w = every_method(kind, SUT_DTYPE_F64, STEP_ROUNDS(80, test_on_device() ? 2 : 4));
        const double primal = kind == UNRESOLVED ? 1e-8 : 1e-10;
        const double complementarity = kind == UNRESOLVED ? 1e-8 : 1e-10;
        if (!(w.primal <= primal && w.cosine <= primal && w.complementarity <= complementarity &&
              w.gap <= complementarity))
            fail_msg("%s rows: primal %g, cosine %g, complementarity %g, gap %g", kind_name[kind], w.primal, w.cosine,
                     w.complementarity, w.gap);
        /* Rounding of u, amplified by 1 / width (which is divided out); |p| <= 1e-10 |u| becomes 0. */
        if (kind != UNRESOLVED && kind != SPREAD && !(w.difference <= 1.1e-10))
            fail_msg("%s rows: p is %g |u| from the reference", kind_name[kind], w.difference);
        assert_true(w.projected > w.steps / 4);
    }
}

static void f32(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_KINDS; ++kind) {
        const worst w = every_method(kind, SUT_DTYPE_F32, STEP_ROUNDS(80, test_on_device() ? 2 : 4));
        if (!(w.cosine <= 1e-6))
            fail_msg("%s rows: a cosine of the update is %g", kind_name[kind], -w.cosine);
        if (kind != UNRESOLVED && kind != SPREAD && !(w.difference <= 4e-6))
            fail_msg("%s rows: p is %g |u| from the reference", kind_name[kind], w.difference);
        assert_true(w.projected > w.steps / 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f64),
        cmocka_unit_test(f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
