/*
 * golden_cone FILE...: sut_cone_project() against cone.json ("suture-golden-cone-1").
 *
 * Each case is run in f64, and in f32 where its entries are f32 values; plain, in place (p is u), with the report alone
 * (p NULL), and in strict mode. One check for each.
 *
 * Tolerances. f64: p within abs_tol; primal, complementarity and gap at most 1e-12. f32: p within abs_tol and one rounding
 * (2^-23 of the largest entry); primal at most 2^-23; complementarity and gap what a rounding of p makes of them.
 * `feasible` asks for the same bits as u, `zero` for exact zeros. Multipliers are compared when they are unique: relative
 * to their sum, scaled by the smallest tolerance that the file gives for p.
 */
#include "suture/suture.h"
#include "support/golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct runner {
    sut_context *ctx;
    golden_place place;
    golden_count count;
    int strict_met, strict_asked; /* f32 boundary cases */
} runner;

typedef struct cone_case {
    const char *id, *kind;
    int m;
    int64_t n;
    bool f32_exact, diagonal, unique;
    double *G, *u, *delta, *p;
    double lambda[SUT_MAX_LOSSES], slack_cos[SUT_MAX_LOSSES], dist2, abs_tol;
    bool active[SUT_MAX_LOSSES], tight[SUT_MAX_LOSSES];
} cone_case;

typedef enum mode { PLAIN, IN_PLACE, REPORT_ONLY, STRICT, N_MODES } mode;
static const char *const mode_names[N_MODES] = {"plain", "in place", "report only", "strict"};

/* n numbers as `dtype`. */
static void *typed(const double *x, int64_t n, sut_dtype dtype)
{
    char *const out = golden_memory((size_t)n, sut_dtype_size(dtype));
    for (int64_t k = 0; k < n; ++k) {
        if (dtype == SUT_DTYPE_F32)
            ((float *)(void *)out)[k] = (float)x[k];
        else
            ((double *)(void *)out)[k] = x[k];
    }
    return out;
}

static double entry_of(const void *x, sut_dtype dtype, int64_t k)
{
    return dtype == SUT_DTYPE_F32 ? (double)((const float *)x)[k] : ((const double *)x)[k];
}

static sut_cone_kind expected_kind(const runner *r, const cone_case *c)
{
    if (strcmp(c->kind, "feasible") == 0)
        return SUT_CONE_UNCHANGED;
    if (strcmp(c->kind, "boundary") == 0)
        return SUT_CONE_BOUNDARY;
    if (strcmp(c->kind, "zero") == 0)
        return SUT_CONE_ZERO;
    golden_malformed(&r->place, "the kind \"%s\" is unknown", c->kind);
}

/* NULL, or what is wrong with p. */
static const char *check_vector(const cone_case *c, const void *u, const void *p, sut_dtype dtype, bool strict,
                                char *text, size_t size)
{
    double largest = 0.0;
    if (strcmp(c->kind, "feasible") == 0)
        return memcmp(u, p, (size_t)c->n * sut_dtype_size(dtype)) == 0 ? NULL : "p does not have the bits of u";
    for (int64_t k = 0; k < c->n; ++k)
        largest = fmax(largest, fabs(c->p[k]));
    double tolerance = c->abs_tol + (dtype == SUT_DTYPE_F32 ? 0x1p-23 * largest : 0.0);
    if (strict) /* moved by one rounding of p over the width of the cone, at most 1e-3 |p| */
        tolerance += 2e-3 * largest;
    for (int64_t k = 0; k < c->n; ++k) {
        const double x = entry_of(p, dtype, k);
        if (strcmp(c->kind, "zero") == 0 && x != 0.0)
            return "an entry of p is not exactly zero";
        if (!(fabs(x - c->p[k]) <= tolerance)) {
            (void)snprintf(text, size, "entry %lld is %.17g instead of %.17g (off by %.3g, allowed %.3g)", (long long)k,
                           x, c->p[k], fabs(x - c->p[k]), tolerance);
            return text;
        }
    }
    return NULL;
}

static double row_norm(const cone_case *c, int i)
{
    double square = 0.0;
    for (int64_t k = 0; k < c->n; ++k)
        square += c->G[(int64_t)i * c->n + k] * c->G[(int64_t)i * c->n + k];
    return sqrt(square);
}

static double norm_of(const double *x, int64_t n)
{
    double square = 0.0;
    for (int64_t k = 0; k < n; ++k)
        square += x[k] * x[k];
    return sqrt(square);
}

/* NULL, or what is wrong with the certificate and the figures of the report. */
static const char *check_report(const runner *r, const cone_case *c, const sut_cone_report *report, sut_dtype dtype,
                                mode how, char *text, size_t size)
{
    const bool f32 = dtype == SUT_DTYPE_F32;
    if (report->kind != expected_kind(r, c))
        return "the kind differs";
    double reach = 0.0, uMu = 0.0;
    const double norm_u = norm_of(c->u, c->n), norm_p = norm_of(c->p, c->n);
    for (int i = 0; i < c->m; ++i)
        reach += report->lambda[i] * row_norm(c, i);
    for (int64_t k = 0; k < c->n; ++k)
        uMu += c->u[k] * c->u[k] * (c->diagonal ? c->delta[k] : 1.0);
    if (!(report->primal <= (f32 ? 0x1p-23 : 1e-12)) || report->dual != 0.0) {
        (void)snprintf(text, size, "primal %.3g, dual %.3g", report->primal, report->dual);
        return text;
    }
    /* The stored p is off the boundary by a rounding, the shifted one by two: s_i is that times d_i |p|. Without a stored p
     * the rounding is that of the multipliers, which moves p by 2^-53 sum lambda_i d_i in the Euclidean metric. */
    double limit = 1e-12;
    if (f32 || how == STRICT)
        limit = fmax(limit, (how == STRICT ? 4.0 : 1.0) * (f32 ? 0x1p-23 : 0x1p-52) * reach * norm_p / uMu);
    if (how == REPORT_ONLY && !c->diagonal)
        limit = fmax(limit, 4.0 * 0x1p-52 * reach * reach / uMu);
    if (!(report->complementarity <= limit) || !(report->gap <= limit)) {
        (void)snprintf(text, size, "complementarity %.3g, gap %.3g, allowed %.3g", report->complementarity, report->gap,
                       limit);
        return text;
    }
    if (how == STRICT)
        return NULL;
    const double looseness = f32 ? 1e-5 : 1e-9;
    if (!(fabs(report->distance2 - c->dist2) <= looseness * c->dist2 + (f32 ? 1e-13 : 1e-18) * norm_u * norm_u)) {
        (void)snprintf(text, size, "distance2 is %.17g instead of %.17g", report->distance2, c->dist2);
        return text;
    }
    for (int i = 0; i < c->m; ++i) {
        if (!(fabs(report->cos_p[i] - c->slack_cos[i]) <= (f32 ? 0x1p-22 : 1e-9))) {
            (void)snprintf(text, size, "cos_p[%d] is %.9g instead of %.9g", i, report->cos_p[i], c->slack_cos[i]);
            return text;
        }
        if (c->unique) {
            double sum = 0.0;
            for (int j = 0; j < c->m; ++j)
                sum += c->lambda[j] * row_norm(c, j);
            if (!(fabs(report->lambda[i] - c->lambda[i]) * row_norm(c, i) <= 1e-7 * sum)) {
                (void)snprintf(text, size, "lambda[%d] is %.17g instead of %.17g", i, report->lambda[i], c->lambda[i]);
                return text;
            }
            /* Membership with a multiplier at the level of rounding is not tested. */
            if (c->lambda[i] * row_norm(c, i) > 1e-10 * sum && !report->active[i])
                return "a row that should be active is not";
            if (!c->active[i] && report->lambda[i] * row_norm(c, i) > 1e-7 * sum)
                return "a row that should be idle is active";
        }
        if (c->tight[i] && strcmp(c->kind, "boundary") == 0 && fabs(c->slack_cos[i]) == 0.0 && !f32 &&
            !report->tight[i])
            return "a row that should be tight is not";
    }
    return NULL;
}

static void run_mode(runner *r, const cone_case *c, sut_dtype dtype, mode how)
{
    char text[256];
    const size_t size = sut_dtype_size(dtype);
    const void *grads[SUT_MAX_LOSSES];
    char *const G = typed(c->G, (int64_t)c->m * c->n, dtype);
    void *const u = typed(c->u, c->n, dtype), *const delta = c->diagonal ? typed(c->delta, c->n, dtype) : NULL;
    void *const kept = typed(c->u, c->n, dtype), *const other = golden_memory((size_t)c->n, size);
    void *const p = how == IN_PLACE ? u : how == REPORT_ONLY ? NULL : other;
    sut_cone_config config;
    sut_cone_report report;
    golden_at(&r->place, "case %s, %s, %s", c->id, sut_dtype_name(dtype), mode_names[how]);
    for (int i = 0; i < c->m; ++i)
        grads[i] = G + (size_t)i * (size_t)c->n * size;
    memset(other, 0x5a, (size_t)c->n * size);
    sut_cone_config_init(&config);
    sut_cone_report_init(&report);
    config.strict = how == STRICT;
    const sut_status status =
        sut_cone_project(r->ctx, how == PLAIN ? NULL : &config, grads, c->m, c->n, dtype, u, delta, p, &report);
    const char *wrong = NULL;
    if (status != SUT_OK)
        wrong = sut_context_last_error(r->ctx);
    if (!wrong && p)
        wrong = check_vector(c, kept, p, dtype, how == STRICT, text, sizeof text);
    if (!wrong)
        wrong = check_report(r, c, &report, dtype, how, text, sizeof text);
    if (how == STRICT && dtype == SUT_DTYPE_F32 && report.kind == SUT_CONE_BOUNDARY) {
        ++r->strict_asked;
        r->strict_met += report.strict_met;
    }
    golden_check(&r->count, &r->place, !wrong, "%s", wrong ? wrong : "");
    free(G);
    free(u);
    free(delta);
    free(kept);
    free(other);
}

static void read_flags(const runner *r, const json_t *parent, const char *key, int m, bool *flags)
{
    const json_t *const list = golden_array(&r->place, parent, key);
    const size_t n = json_array_size(list);
    double index[SUT_MAX_LOSSES];
    if (n > (size_t)m)
        golden_malformed(&r->place, "\"%s\" has more entries than there are rows", key);
    golden_vector(&r->place, parent, key, (long)n, index);
    for (int i = 0; i < m; ++i)
        flags[i] = false;
    for (size_t k = 0; k < n; ++k) {
        if (!(index[k] >= 0.0 && index[k] < m))
            golden_malformed(&r->place, "\"%s\" holds the row %g of %d", key, index[k], m);
        flags[(int)index[k]] = true;
    }
}

static void run_case(runner *r, const json_t *entry)
{
    cone_case c = {0};
    c.id = golden_text(&r->place, entry, "id");
    golden_at(&r->place, "case %s", c.id);
    c.m = (int)golden_integer(&r->place, entry, "m", 1, SUT_MAX_LOSSES);
    c.n = golden_integer(&r->place, entry, "n", 1, 1 << 24);
    c.f32_exact = golden_bool(&r->place, entry, "f32_exact");
    const char *const metric = golden_text(&r->place, entry, "metric");
    c.diagonal = strcmp(metric, "diagonal") == 0;
    if (!c.diagonal && strcmp(metric, "euclidean") != 0)
        golden_malformed(&r->place, "the metric \"%s\" is unknown", metric);
    c.G = golden_memory((size_t)c.m * (size_t)c.n, sizeof *c.G);
    c.u = golden_memory((size_t)c.n, sizeof *c.u);
    c.p = golden_memory((size_t)c.n, sizeof *c.p);
    c.delta = golden_memory((size_t)c.n, sizeof *c.delta);
    golden_matrix(&r->place, entry, "G", c.m, (long)c.n, c.G);
    golden_vector(&r->place, entry, "u", (long)c.n, c.u);
    if (c.diagonal)
        golden_vector(&r->place, entry, "d", (long)c.n, c.delta);
    const json_t *const expect = golden_object(&r->place, entry, "expect");
    c.kind = golden_text(&r->place, expect, "kind");
    c.abs_tol = golden_number(&r->place, expect, "abs_tol");
    c.dist2 = golden_number(&r->place, expect, "dist2");
    c.unique = golden_bool(&r->place, expect, "lambda_unique");
    golden_vector(&r->place, expect, "p", (long)c.n, c.p);
    golden_vector(&r->place, expect, "slack_cos", c.m, c.slack_cos);
    if (c.unique) {
        golden_vector(&r->place, expect, "lambda", c.m, c.lambda);
        read_flags(r, expect, "active", c.m, c.active);
    }
    read_flags(r, expect, "tight", c.m, c.tight);
    for (int how = 0; how < N_MODES; ++how) {
        run_mode(r, &c, SUT_DTYPE_F64, (mode)how);
        if (c.f32_exact)
            run_mode(r, &c, SUT_DTYPE_F32, (mode)how);
    }
    free(c.G);
    free(c.u);
    free(c.p);
    free(c.delta);
}

int main(int argc, char **argv)
{
    runner r = {0};
    if (argc < 2) {
        (void)fprintf(stderr, "usage: golden_cone FILE...\n");
        return 2;
    }
    sut_context_config config;
    sut_context_config_init(&config);
    config.n_threads = 1;
    if (sut_context_create(&r.ctx, &config) != SUT_OK) {
        (void)fprintf(stderr, "no context\n");
        return 2;
    }
    for (int k = 1; k < argc; ++k) {
        size_t index;
        json_t *entry;
        json_t *const root = golden_open(&r.place, argv[k], "suture-golden-cone-1");
        json_array_foreach(golden_array(&r.place, root, "cases"), index, entry)
        {
            golden_at(&r.place, "case %zu", index);
            run_case(&r, entry);
        }
        json_decref(root);
    }
    (void)printf("strict: met in %d of %d f32 cases on the boundary\n", r.strict_met, r.strict_asked);
    sut_context_destroy(r.ctx);
    return golden_finish(&r.count);
}
