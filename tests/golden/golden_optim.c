/*
 * Golden runner for the optimizers: rules, realignment, whole aligned steps, schedules, clipping.
 *
 *   golden_optim FILE.json ...        format suture-golden-optim-1
 *
 * Everything goes through the public functions. Each case runs in f64, to the case's tolerance, and in f32, to 1e-5; the
 * steps both in stages and with one call, which must give the same bits. Cases of methods that are not built are counted as skipped, by name. Exit status: 0 all passed, 1 a case
 * failed, 2 usage or a file that cannot be understood.
 */
#include "suture/suture.h"
#include "support/golden.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_N 4096

typedef struct tolerance {
    double rtol, arel, aabs;
} tolerance;

static int n_passed, n_failed, n_skipped;
static const char *case_id;
static bool case_failed;
static jmp_buf malformed;
static golden_place place; /* in the file at hand */

static void complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("FAIL %s: ", case_id ? case_id : "?");
    vprintf(format, args);
    printf("\n");
    va_end(args);
    case_failed = true;
}

static void bad_file(const char *what)
{
    fprintf(stderr, "%s: case \"%s\": %s\n", place.path, case_id ? case_id : "?", what);
    longjmp(malformed, 1);
}

/* ---- reading ---- */

static const json_t *root_data;

static const json_t *resolve(const json_t *value, const char *what)
{
    if (json_is_string(value) && json_string_value(value)[0] == '@') {
        const json_t *const table = json_object_get(root_data, json_string_value(value) + 1);
        if (!table)
            bad_file("a reference to a table that is not in 'data'");
        return table;
    }
    if (!value)
        bad_file(what);
    return value;
}

static int read_vector(const json_t *value, double *out, const char *what)
{
    value = resolve(value, what);
    if (!json_is_array(value) || json_array_size(value) > MAX_N)
        bad_file(what);
    const int n = (int)json_array_size(value);
    for (int k = 0; k < n; ++k) {
        const json_t *const x = json_array_get(value, (size_t)k);
        if (!json_is_number(x))
            bad_file(what);
        out[k] = json_number_value(x);
    }
    return n;
}

static double number(const json_t *object, const char *key, double otherwise)
{
    const json_t *const x = json_object_get(object, key);
    if (!x)
        return otherwise;
    if (json_is_boolean(x))
        return json_is_true(x);
    if (!json_is_number(x))
        bad_file(key);
    return json_number_value(x);
}

static const char *text(const json_t *object, const char *key)
{
    const json_t *const x = json_object_get(object, key);
    return json_is_string(x) ? json_string_value(x) : "";
}

/* ---- comparing ---- */

static void compare(const char *what, int step, const double *got, const double *want, int n, tolerance tol)
{
    double largest = 0;
    for (int k = 0; k < n; ++k)
        largest = fmax(largest, fabs(want[k]));
    for (int k = 0; k < n; ++k) {
        const double bound = tol.rtol * fabs(want[k]) + tol.arel * largest + tol.aabs;
        if (!(fabs(got[k] - want[k]) <= bound) && got[k] != want[k]) {
            complain("step %d: %s[%d] is %.17g, expected %.17g (allowed %.3g)", step + 1, what, k, got[k], want[k],
                     bound);
            return;
        }
    }
}

/* ---- one optimizer under test ---- */

typedef struct subject {
    sut_optimizer *opt;
    sut_dtype dtype;
    int n, m;
    double theta64[MAX_N];
    float theta32[MAX_N];
    void *grads[SUT_MAX_LOSSES];
} subject;

static sut_context *ctx;

static void to_memory(const subject *s, void *to, const double *from)
{
    for (int k = 0; k < s->n; ++k) {
        if (s->dtype == SUT_DTYPE_F64)
            ((double *)to)[k] = from[k];
        else
            ((float *)to)[k] = (float)from[k];
    }
}

static void from_memory(sut_dtype dtype, int n, double *to, const void *from)
{
    for (int k = 0; k < n; ++k)
        to[k] = dtype == SUT_DTYPE_F64 ? ((const double *)from)[k] : (double)((const float *)from)[k];
}

static void *parameters(subject *s)
{
    return s->dtype == SUT_DTYPE_F64 ? (void *)s->theta64 : (void *)s->theta32;
}

/* The method and its settings; false for a method that is not built. */
static bool configure(const json_t *c, sut_optimizer_config *cfg)
{
    sut_optimizer_method method;
    if (sut_optimizer_method_from_name(text(c, "optimizer"), &method) != SUT_OK)
        return false;
    sut_optimizer_config_init(cfg, method);
    const json_t *const hyper = json_object_get(c, "hyper");
    if (!json_is_object(hyper))
        bad_file("hyper");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)hyper, key, value)
    {
        if (!strcmp(key, "betas")) {
            cfg->hyper.beta1 = json_number_value(json_array_get(value, 0));
            cfg->hyper.beta2 = json_number_value(json_array_get(value, 1));
        } else if (!strcmp(key, "maximize")) {
            cfg->maximize = (int)number(hyper, key, 0);
        } else if (!strcmp(key, "raw_realign")) {
            cfg->realign_raw = (int)number(hyper, key, 0);
        } else if (!strcmp(key, "decoupled")) {
            const bool decoupled = number(hyper, key, 0) != 0;
            if (decoupled != (method == SUT_OPTIMIZER_ADAMW))
                return false; /* adam with decoupled decay is adamw and the other way round */
        } else if (sut_hyper_set(&cfg->hyper, method, key, number(hyper, key, 0)) != SUT_OK) {
            complain("hyper-parameter \"%s\" is unknown to %s or out of range", key, text(c, "optimizer"));
        }
    }
    return true;
}

static void subject_free(subject *s)
{
    if (!s)
        return;
    sut_optimizer_destroy(s->opt);
    for (int i = 0; i < s->m; ++i)
        free(s->grads[i]);
    free(s);
}

static subject *subject_new(const sut_optimizer_config *given, const double *theta0, int n, int m, sut_dtype dtype)
{
    subject *const s = calloc(1, sizeof *s);
    if (!s)
        bad_file("out of memory");
    s->dtype = dtype;
    s->n = n;
    s->m = m;
    to_memory(s, parameters(s), theta0);
    for (int i = 0; i < m; ++i)
        s->grads[i] = calloc((size_t)n, 8);
    const sut_tensor tensor = {.data = parameters(s), .dtype = dtype, .n_dims = 1, .shape = {n}, .name = "theta"};
    sut_optimizer_config cfg = *given;
    cfg.tensors = &tensor;
    cfg.n_tensors = 1;
    cfg.n_losses = m;
    if (sut_optimizer_create(&s->opt, ctx, &cfg) != SUT_OK) {
        complain("create: %s", sut_context_last_error(ctx));
        subject_free(s);
        return NULL;
    }
    return s;
}

static void check_state(subject *s, int step, const json_t *state, tolerance tol)
{
    const char *key;
    json_t *value;
    if (!json_is_object(state))
        bad_file("state");
    json_object_foreach((json_t *)state, key, value)
    {
        if (!strcmp(key, "t")) {
            if (sut_optimizer_tensor_steps(s->opt, 0) != (int64_t)json_number_value(value))
                complain("step %d: t is %lld, expected %g", step + 1, (long long)sut_optimizer_tensor_steps(s->opt, 0),
                         json_number_value(value));
            continue;
        }
        void *data;
        sut_dtype dtype;
        int64_t count;
        double want[MAX_N], got[MAX_N];
        int n = 1;
        if (json_is_array(value))
            n = read_vector(value, want, key);
        else
            want[0] = json_number_value(value);
        if (sut_optimizer_state(s->opt, key, 0, &data, &dtype, &count) != SUT_OK) {
            double largest = 0;
            for (int k = 0; k < n; ++k)
                largest = fmax(largest, fabs(want[k]));
            if (largest > 0 || strcmp(key, "b") != 0) /* an unused momentum buffer need not exist */
                complain("step %d: %s", step + 1, sut_context_last_error(ctx));
            continue;
        }
        if (count != n) {
            complain("step %d: state %s has %lld elements, expected %d", step + 1, key, (long long)count, n);
            continue;
        }
        from_memory(dtype, n, got, data);
        compare(key, step, got, want, n, tol);
    }
}

static tolerance case_tolerance(const json_t *c, const json_t *defaults, sut_dtype dtype)
{
    tolerance t = {number(c, "rtol", number(defaults, "rtol", 1e-10)),
                   number(c, "arel", number(defaults, "arel", 1e-13)), number(c, "aabs", number(defaults, "aabs", 0))};
    if (dtype == SUT_DTYPE_F32)
        t = (tolerance){1e-5, 1e-5, 0};
    return t;
}

/* Numbers that f32 cannot hold belong to f64 alone. */
static bool fits_f32(const json_t *rows)
{
    rows = resolve(rows, "numbers");
    size_t i;
    json_t *x;
    json_array_foreach((json_t *)rows, i, x)
    {
        if (json_is_array(x) ? !fits_f32(x)
                             : json_number_value(x) != 0 &&
                                   (fabs(json_number_value(x)) > 1e15 || fabs(json_number_value(x)) < 1e-15))
            return false;
    }
    return true;
}

/* ---- kinds ---- */

static void run_steps(const json_t *c, const json_t *defaults, sut_dtype dtype)
{
    sut_optimizer_config cfg;
    configure(c, &cfg);
    const tolerance tol = case_tolerance(c, defaults, dtype);
    double theta0[MAX_N], want[MAX_N], got[MAX_N];
    const int n = read_vector(json_object_get(c, "theta0"), theta0, "theta0");
    subject *const s = subject_new(&cfg, theta0, n, 1, dtype);
    if (!s)
        return;
    /* The clone takes each step with one call. */
    subject *const clone = subject_new(&cfg, theta0, n, 1, dtype);
    const json_t *const grads = resolve(json_object_get(c, "grads"), "grads");
    const json_t *const rates = json_object_get(c, "lr_per_step");
    const json_t *const steps = json_object_get(c, "steps");
    double u64[MAX_N];
    void *const u_out[1] = {u64};
    for (size_t t = 0; t < json_array_size(steps) && !case_failed; ++t) {
        const json_t *const expected = json_array_get(steps, t);
        if (rates) {
            const double lr = json_number_value(json_array_get(rates, t));
            sut_optimizer_set_lr(s->opt, 0, lr);
            sut_optimizer_set_lr(clone->opt, 0, lr);
        }
        if (read_vector(json_array_get(grads, t), got, "grads") != n)
            bad_file("a gradient has another length than theta0");
        to_memory(s, s->grads[0], got);
        const void *const g[1] = {s->grads[0]};
        if (sut_optimizer_propose(s->opt, g, NULL, u_out, NULL) != SUT_OK ||
            sut_optimizer_apply(s->opt, g, NULL, NULL) != SUT_OK ||
            sut_optimizer_step(clone->opt, g, NULL, NULL) != SUT_OK) {
            complain("step %zu: %s", t + 1, sut_context_last_error(ctx));
            break;
        }
        if (memcmp(parameters(s), parameters(clone), (size_t)n * sut_dtype_size(dtype)) != 0)
            complain("step %zu: the staged calls and the one-call step give other bits", t + 1);
        from_memory(dtype, n, got, u64);
        read_vector(json_object_get(expected, "u"), want, "u");
        compare("u", (int)t, got, want, n, tol);
        from_memory(dtype, n, got, parameters(s));
        read_vector(json_object_get(expected, "theta"), want, "theta");
        compare("theta", (int)t, got, want, n, tol);
        check_state(s, (int)t, json_object_get(expected, "state"), tol);
    }
    subject_free(s);
    subject_free(clone);
}

static void run_realign(const json_t *c, const json_t *base, const json_t *defaults, sut_dtype dtype)
{
    sut_optimizer_config cfg;
    configure(c, &cfg);
    cfg.align = SUT_ALIGN_GUA;
    cfg.rho_m = number(c, "rho_m", 0);
    cfg.rho_v = number(c, "rho_v", 0);
    const tolerance tol = case_tolerance(c, defaults, dtype);
    double theta0[MAX_N], buffer[MAX_N], inverse[MAX_N], want[MAX_N], p[MAX_N];
    const int n = read_vector(json_object_get(base, "theta0"), theta0, "theta0");
    subject *const s = subject_new(&cfg, theta0, n, 1, dtype);
    if (!s)
        return;
    const json_t *const grads = resolve(json_object_get(base, "grads"), "grads");
    const json_t *const rates = json_object_get(base, "lr_per_step");
    const int last = (int)number(c, "after_step", 1);
    for (int t = 0; t < last && !case_failed; ++t) {
        if (rates)
            sut_optimizer_set_lr(s->opt, 0, json_number_value(json_array_get(rates, (size_t)t)));
        read_vector(json_array_get(grads, (size_t)t), buffer, "grads");
        to_memory(s, s->grads[0], buffer);
        const void *const g[1] = {s->grads[0]};
        if (t + 1 < last) {
            if (sut_optimizer_step(s->opt, g, NULL, NULL) != SUT_OK)
                complain("step %d: %s", t + 1, sut_context_last_error(ctx));
            continue;
        }
        void *const inverse_out[1] = {inverse};
        read_vector(json_object_get(c, "p"), buffer, "p");
        to_memory(s, p, buffer);
        const void *const given[1] = {p};
        if (sut_optimizer_propose(s->opt, g, NULL, NULL, inverse_out) != SUT_OK ||
            sut_optimizer_apply(s->opt, g, given, NULL) != SUT_OK) {
            complain("step %d: %s", t + 1, sut_context_last_error(ctx));
            break;
        }
        if (json_is_array(json_object_get(c, "inv_metric"))) {
            from_memory(dtype, n, buffer, inverse);
            read_vector(json_object_get(c, "inv_metric"), want, "inv_metric");
            compare("inv_metric", t, buffer, want, n, tol);
        }
        check_state(s, t, json_object_get(c, "state"), tol);
    }
    subject_free(s);
}

/* Smallest Cholesky pivot of the cosine matrix over rows that are not zero. */
static double pivot(double *const *G, int m, int n)
{
    double L[SUT_MAX_LOSSES][SUT_MAX_LOSSES], norm[SUT_MAX_LOSSES], smallest = 1;
    int live[SUT_MAX_LOSSES], k = 0;
    for (int i = 0; i < m; ++i) {
        double sum = 0;
        for (int j = 0; j < n; ++j)
            sum += G[i][j] * G[i][j];
        norm[i] = sqrt(sum);
        if (sum > 0)
            live[k++] = i;
    }
    for (int i = 0; i < k; ++i)
        for (int j = 0; j <= i; ++j) {
            double x = 0;
            for (int e = 0; e < n; ++e)
                x += G[live[i]][e] / norm[live[i]] * (G[live[j]][e] / norm[live[j]]);
            for (int e = 0; e < j; ++e)
                x -= L[i][e] * L[j][e];
            if (i == j) {
                smallest = fmin(smallest, x);
                L[i][i] = sqrt(fmax(x, 1e-300));
            } else {
                L[i][j] = x / L[j][j];
            }
        }
    return smallest;
}

static void run_gua(const json_t *c, const json_t *defaults, sut_dtype dtype)
{
    static double G[SUT_MAX_LOSSES][MAX_N];
    sut_optimizer_config cfg;
    configure(c, &cfg);
    cfg.align = SUT_ALIGN_GUA;
    cfg.rho_m = number(c, "rho_m", 0);
    cfg.rho_v = number(c, "rho_v", 0);
    cfg.conflict_cos_tol = number(c, "conflict_cos_tol", 1e-6);
    cfg.correction_distance_tol = number(c, "correction_distance_tol", 1e-8);
    cfg.metric = !strcmp(text(c, "metric"), "euclidean") ? SUT_METRIC_EUCLIDEAN : SUT_METRIC_NATURAL;
    if (sut_surgery_method_from_name(text(c, "direction"), &cfg.surgery.method) != SUT_OK)
        bad_file("direction");
    const tolerance tol = case_tolerance(c, defaults, dtype);
    const json_t *const all = json_object_get(c, "G"), *const steps = json_object_get(c, "steps");
    const int m = (int)json_array_size(json_array_get(all, 0));
    if (m < 1 || m > SUT_MAX_LOSSES)
        bad_file("G");
    double theta0[MAX_N], want[MAX_N], got[MAX_N], a64[MAX_N], u64[MAX_N], p64[MAX_N], weights[SUT_MAX_LOSSES];
    const int n = read_vector(json_object_get(c, "theta0"), theta0, "theta0");
    subject *const s = subject_new(&cfg, theta0, n, m, dtype);
    if (!s)
        return;
    subject *const clone = subject_new(&cfg, theta0, n, m, dtype);
    const json_t *const rates = json_object_get(c, "lr_per_step");
    void *const a_out[1] = {a64}, *const u_out[1] = {u64}, *const p_out[1] = {p64};
    for (size_t t = 0; t < json_array_size(steps) && !case_failed; ++t) {
        const json_t *const expected = json_array_get(steps, t);
        const int step = (int)t;
        if (rates) {
            const double lr = json_number_value(json_array_get(rates, t));
            sut_optimizer_set_lr(s->opt, 0, lr);
            sut_optimizer_set_lr(clone->opt, 0, lr);
        }
        const void *g[SUT_MAX_LOSSES];
        double *rows[SUT_MAX_LOSSES];
        for (int i = 0; i < m; ++i) {
            if (read_vector(json_array_get(json_array_get(all, t), (size_t)i), G[i], "G") != n)
                bad_file("a row of G has another length than theta0");
            to_memory(s, s->grads[i], G[i]);
            g[i] = s->grads[i];
            rows[i] = G[i];
        }
        sut_report project, report;
        sut_report_init(&project);
        sut_report_init(&report);
        bool ok = sut_optimizer_direction(s->opt, g, NULL, weights, a_out) == SUT_OK &&
                  sut_optimizer_propose(s->opt, g, NULL, u_out, NULL) == SUT_OK;
        if (ok && json_object_get(expected, "state_before_realign") && cfg.method != SUT_OPTIMIZER_LION)
            check_state(s, step, json_object_get(expected, "state_before_realign"), tol);
        ok = ok && sut_optimizer_project(s->opt, g, p_out, &project) == SUT_OK &&
             sut_optimizer_apply(s->opt, g, NULL, &report) == SUT_OK &&
             sut_optimizer_step(clone->opt, g, NULL, NULL) == SUT_OK;
        if (!ok) {
            complain("step %d: %s", step + 1, sut_context_last_error(ctx));
            break;
        }
        if (memcmp(parameters(s), parameters(clone), (size_t)n * sut_dtype_size(dtype)) != 0)
            complain("step %d: the staged calls and the one-call step give other bits", step + 1);
        from_memory(dtype, n, got, a64);
        read_vector(json_object_get(expected, "a"), want, "a");
        compare("a", step, got, want, n, tol);
        from_memory(dtype, n, got, u64);
        read_vector(json_object_get(expected, "u"), want, "u");
        compare("u", step, got, want, n, tol);
        from_memory(dtype, n, got, parameters(s));
        read_vector(json_object_get(expected, "theta"), want, "theta");
        compare("theta", step, got, want, n, tol);
        check_state(s, step, json_object_get(expected, "state"), tol);
        if (json_object_get(expected, "skipped")) {
            if (report.moved || report.projected || report.realigned)
                complain("step %d: the rate is 0, but the report says that something moved", step + 1);
            continue;
        }
        from_memory(dtype, n, got, p64);
        read_vector(json_object_get(expected, "p"), want, "p");
        tolerance p_tol = tol; /* an f32 update that ought to vanish does so up to the rounding of u */
        for (int k = 0; dtype == SUT_DTYPE_F32 && k < n; ++k)
            p_tol.aabs = fmax(p_tol.aabs, 1e-6 * fabs((double)((const float *)u64)[k]));
        compare("p", step, got, want, n, p_tol);
        read_vector(json_object_get(expected, "b"), want, "b");
        for (int i = 0; i < m; ++i)
            got[i] = report.cos_u[i] * report.norms[i] * report.norm_u;
        compare("b", step, got, want, m, (tolerance){tol.rtol, fmax(tol.arel, 1e-12), tol.aabs});
        const bool conflict = number(expected, "conflict", 0) != 0;
        if (report.projected != conflict)
            complain("step %d: projected is %d, expected conflict %d", step + 1, report.projected, conflict);
        if (cfg.rho_m > 0 && report.realigned != (number(expected, "applied", 0) != 0))
            complain("step %d: realigned is %d, expected applied %g", step + 1, report.realigned,
                     number(expected, "applied", 0));
        const double change = number(expected, "relative_change", 0);
        compare("relative_change", step, &report.relative_change, &change, 1,
                (tolerance){fmax(tol.rtol, 1e-9), tol.arel, 1e-11});
        /* Multipliers are a matter of taste where the rows depend on each other. */
        if (pivot(rows, m, n) > 1e-6) {
            read_vector(json_object_get(expected, "lambda"), want, "lambda");
            compare("lambda", step, report.lambda, want, m,
                    (tolerance){fmax(tol.rtol, 1e-8), fmax(tol.arel, 1e-9), tol.aabs});
            const json_t *const active = json_object_get(expected, "active");
            int n_active = 0;
            for (int i = 0; i < m; ++i)
                n_active += report.lambda[i] > 0;
            if (json_is_array(active) && n_active != (int)json_array_size(active))
                complain("step %d: %d active losses, expected %zu", step + 1, n_active, json_array_size(active));
        }
        for (int i = 0; i < m; ++i)
            if (conflict && report.cos_p[i] < (dtype == SUT_DTYPE_F64 ? -1e-12 : -1e-6))
                complain("step %d: the applied step conflicts with loss %d, cosine %.3g", step + 1, i, report.cos_p[i]);
        if (report.complementarity > (dtype == SUT_DTYPE_F64 ? 1e-10 : 1e-5) || report.dual != 0)
            complain("step %d: certificate: complementarity %.3g, dual %.3g", step + 1, report.complementarity,
                     report.dual);
    }
    subject_free(s);
    subject_free(clone);
}

/* One table of rates. Returns false for a kind that is not built. */
static bool run_schedule(const json_t *table)
{
    sut_schedule_kind kind;
    if (sut_schedule_from_name(text(table, "name"), &kind) != SUT_OK)
        return false;
    const json_t *const params = json_object_get(table, "params");
    sut_schedule s;
    sut_schedule_init(&s, kind);
    s.peak = number(params, "peak", s.peak);
    s.final_lr = number(params, "final", s.final_lr);
    s.warmup = (int64_t)number(params, "warmup", 0);
    s.total = (int64_t)number(params, "total", 0);
    s.warmup_start = number(params, "warmup_start", s.warmup_start);
    s.cooldown_fraction = number(params, "decay_fraction", s.cooldown_fraction);
    if (json_object_get(params, "shape") && sut_cooldown_from_name(text(params, "shape"), &s.cooldown) != SUT_OK)
        return false;
    double t[MAX_N], want[MAX_N], got[MAX_N];
    const int n = read_vector(json_object_get(table, "t"), t, "t");
    if (read_vector(json_object_get(table, "lr"), want, "lr") != n)
        bad_file("lr");
    for (int k = 0; k < n; ++k)
        if (sut_schedule_lr(ctx, &s, (int64_t)t[k], &got[k]) != SUT_OK) {
            complain("t = %g: %s", t[k], sut_context_last_error(ctx));
            return true;
        }
    compare("lr", 0, got, want, n, (tolerance){1e-10, 1e-13, 0});
    return true;
}

/* clip_norm scales the direction; SGD with rate 1 shows it. */
static void run_clip_norm(const json_t *c, sut_dtype dtype)
{
    double g[MAX_N], want[MAX_N], got[MAX_N];
    const int n = read_vector(json_object_get(c, "grad"), g, "grad");
    static const double zero[MAX_N];
    const json_t *out = json_object_get(c, "out");
    size_t i;
    json_t *entry;
    json_array_foreach((json_t *)out, i, entry)
    {
        sut_optimizer_config cfg;
        sut_optimizer_config_init(&cfg, SUT_OPTIMIZER_SGD);
        cfg.hyper.lr = 1;
        cfg.clip_norm = number(entry, "max_norm", 0);
        subject *const s = subject_new(&cfg, zero, n, 1, dtype);
        if (!s)
            return;
        to_memory(s, s->grads[0], g);
        const void *const rows[1] = {s->grads[0]};
        if (sut_optimizer_step(s->opt, rows, NULL, NULL) != SUT_OK)
            complain("%s", sut_context_last_error(ctx));
        from_memory(dtype, n, got, parameters(s));
        for (int k = 0; k < n; ++k)
            got[k] = -got[k];
        const json_t *const expected =
            json_object_get(entry, "grad") ? json_object_get(entry, "grad") : json_object_get(entry, "clipped");
        read_vector(expected, want, "clipped gradient");
        compare("clipped", (int)i, got, want, n,
                dtype == SUT_DTYPE_F64 ? (tolerance){1e-10, 1e-13, 0} : (tolerance){1e-5, 1e-5, 0});
        subject_free(s);
    }
}

/* ---- the file ---- */

static void finish_case(void)
{
    if (case_failed)
        ++n_failed;
    else
        ++n_passed;
}

static void skip(const char *why)
{
    ++n_skipped;
    printf("skip %s: %s\n", case_id, why);
}

static const json_t *find_case(const json_t *cases, const char *id)
{
    size_t i;
    json_t *c;
    json_array_foreach((json_t *)cases, i, c) if (!strcmp(text(c, "id"), id)) return c;
    return NULL;
}

static void run_case(const json_t *cases, const json_t *c, const json_t *defaults)
{
    const char *const kind = text(c, "kind");
    char label[300];
    case_id = text(c, "id");
    if (!strcmp(kind, "schedules")) {
        size_t i;
        json_t *table;
        json_array_foreach(json_object_get(c, "tables"), i, table)
        {
            (void)snprintf(label, sizeof label, "schedules[%zu]: %s", i, text(table, "name"));
            case_id = label;
            case_failed = false;
            if (run_schedule(table))
                finish_case();
            else
                skip("this schedule is not built");
        }
        return;
    }
    /* Kinds of the format whose methods are not built yet; any other name is a mistake in the file. */
    static const char *const later[] = {"closure", "qn_update",  "lsq",   "spring", "kfac",      "kappa",
                                        "zo",      "clip_value", "adagc", "sam",    "averaging", "newton_schulz"};
    const bool clip = !strcmp(kind, "clip_norm");
    bool known = clip || !strcmp(kind, "steps") || !strcmp(kind, "realign") || !strcmp(kind, "gua");
    for (size_t k = 0; k < sizeof later / sizeof *later; ++k)
        known = known || !strcmp(kind, later[k]);
    if (!json_is_object(c) || !known)
        bad_file("a case that is no object, or of a kind that the format does not have");
    if (!clip && strcmp(kind, "steps") != 0 && strcmp(kind, "realign") != 0 && strcmp(kind, "gua") != 0) {
        (void)snprintf(label, sizeof label, "kind \"%s\" is not built", kind);
        skip(label);
        return;
    }
    sut_optimizer_config cfg;
    sut_optimizer_method method;
    if (!clip && sut_optimizer_method_from_name(text(c, "optimizer"), &method) != SUT_OK) {
        (void)snprintf(label, sizeof label, "optimizer \"%s\" is not built", text(c, "optimizer"));
        skip(label);
        return;
    }
    case_failed = false;
    if (!clip && !configure(c, &cfg)) {
        skip("this combination of options is not built");
        return;
    }
    const json_t *base = NULL;
    if (!strcmp(kind, "realign")) {
        base = find_case(cases, text(c, "base"));
        if (!base)
            bad_file("base");
    }
    const json_t *const numbers = clip                   ? json_object_get(c, "grad")
                                  : !strcmp(kind, "gua") ? json_object_get(c, "G")
                                  : base                 ? json_object_get(base, "grads")
                                                         : json_object_get(c, "grads");
    for (int pass = 0; pass < 2; ++pass) {
        const sut_dtype dtype = pass == 0 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
        (void)snprintf(label, sizeof label, "%s (%s)", text(c, "id"), sut_dtype_name(dtype));
        case_id = label;
        if (pass == 1 && (!fits_f32(numbers) || strstr(text(c, "id"), "nearly-opposite"))) {
            skip("its numbers or angles are beyond f32");
            continue;
        }
        case_failed = false;
        if (clip)
            run_clip_norm(c, dtype);
        else if (!strcmp(kind, "steps"))
            run_steps(c, defaults, dtype);
        else if (base)
            run_realign(c, base, defaults, dtype);
        else
            run_gua(c, defaults, dtype);
        finish_case();
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: golden_optim FILE.json ...\n");
        return 2;
    }
    if (sut_context_create(&ctx, NULL) != SUT_OK) {
        fprintf(stderr, "golden_optim: no context\n");
        return 2;
    }
    for (int i = 1; i < argc; ++i) {
        json_t *const root = golden_load(&place, argv[i]);
        const char *const format = golden_text(&place, root, "format");
        if (strcmp(format, "suture-golden-optim-1") != 0)
            golden_malformed(&place, "the format is \"%s\"; this program reads \"suture-golden-optim-1\"", format);
        const json_t *const cases = golden_array(&place, root, "cases");
        root_data = json_object_get(root, "data");
        if (setjmp(malformed))
            return 2;
        size_t k;
        json_t *c;
        json_array_foreach((json_t *)cases, k, c) run_case(cases, c, json_object_get(root, "defaults"));
        json_decref(root);
    }
    sut_context_destroy(ctx);
    return golden_finish(&(golden_count){n_passed, n_failed, n_skipped});
}
