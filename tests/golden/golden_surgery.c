/*
 * golden_surgery FILE...: the public calls of gradient surgery against surgery.json ("suture-golden-surgery-1").
 *
 * Each expectation of each case is one check in f64, and one more in f32 where the case says that its entries are f32
 * values. Methods that this version does not have are counted as skipped, by name.
 *
 * Tolerances, as the file defines them: the direction within abs_tol in f64 and abs_tol + 4 (m + 2) 2^-24 abs_sum in f32;
 * weights within 4 abs_tol / sqrt(smallest eigenvalue of the cosine matrix) / d_i where that eigenvalue exceeds 1e-6
 * (otherwise dependent rows leave them open). |a| is off by at most sqrt(n) times the error of an entry; min_cos is
 * written with six digits.
 */
#include "suture/suture.h"
#include "support/golden.h"
#include "surgery/draws.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Methods of the file that are not built, with the number of checks left out. */
enum { MAX_SKIPPED = 64 };
typedef struct skipped_names {
    const char *name[MAX_SKIPPED];
    long count[MAX_SKIPPED];
    int n;
} skipped_names;

typedef struct runner {
    sut_context *ctx;
    golden_place place;
    golden_count count;
    skipped_names skipped;
} runner;

typedef struct golden_case {
    const char *id;
    int m;
    int64_t n;
    bool f32_exact;
    double *G, *weights; /* m x n; m angle weights */
    int *orders;         /* m x m */
    double norms[SUT_MAX_LOSSES], smallest_eigenvalue;
    const json_t *stats, *expect;
} golden_case;

static void skip(runner *r, const char *name)
{
    skipped_names *const s = &r->skipped;
    ++r->count.skipped;
    for (int k = 0; k < s->n; ++k) {
        if (strcmp(s->name[k], name) == 0) {
            ++s->count[k];
            return;
        }
    }
    if (s->n < MAX_SKIPPED) {
        s->name[s->n] = name;
        s->count[s->n++] = 1;
    }
}

static void require(const runner *r, sut_status status, const char *what)
{
    if (status != SUT_OK) {
        (void)fprintf(stderr, "%s: %s\n", what, sut_context_last_error(r->ctx));
        exit(2);
    }
}

static int row_number(const runner *r, double x, int m)
{
    if (!(x >= 0.0 && x < m))
        golden_malformed(&r->place, "\"orders\" holds the row %g of %d", x, m);
    return (int)x;
}

/* Options of one entry of "parameters". */

static bool starts_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* A name under "expect" is a method and a suffix: the longest method name that it starts with. False: not built. */
static bool method_of(const char *name, sut_surgery_method *method)
{
    size_t longest = 0;
    if (starts_with(name, "aligned_")) { /* aligned_min, aligned_median, aligned_rmse */
        *method = SUT_SURGERY_ALIGNED_MTL;
        return true;
    }
    for (int k = 0; k < SUT_SURGERY_COUNT; ++k) {
        const char *const known = sut_surgery_method_name((sut_surgery_method)k);
        const size_t length = strlen(known);
        if (length > longest && starts_with(name, known) && (name[length] == '\0' || name[length] == '_')) {
            longest = length;
            *method = (sut_surgery_method)k;
        }
    }
    return longest > 0;
}

static void read_text_option(const runner *r, const golden_case *c, const char *key, const char *text,
                             sut_surgery_config *config)
{
    if (strcmp(key, "weights") == 0 && strcmp(text, "config_weights") == 0)
        config->preference = c->weights;
    else if (strcmp(key, "order") == 0 && strcmp(text, "identity") == 0)
        config->pcgrad_identity_order = 1;
    else if (strcmp(key, "order") == 0 && strcmp(text, "orders") == 0)
        config->order = c->orders;
    else if (!(strcmp(key, "weights") == 0 && strcmp(text, "equal") == 0) &&
             !(strcmp(key, "length") == 0 && strcmp(text, "projection") == 0) &&
             !(strcmp(key, "solver") == 0 && strcmp(text, "exact") == 0))
        golden_malformed(&r->place, "the parameter \"%s\" is \"%s\", which this program does not know", key, text);
}

static void read_options(const runner *r, const golden_case *c, const char *name, const json_t *parameters,
                         sut_surgery_config *config)
{
    const char *key;
    json_t *value;
    json_t *const options = json_object_get(parameters, name);
    if (strcmp(name, "aligned_median") == 0)
        config->aligned_scale = SUT_ALIGNED_MEDIAN;
    if (strcmp(name, "aligned_rmse") == 0)
        config->aligned_scale = SUT_ALIGNED_RMSE;
    if (strcmp(name, "mgda_fw") == 0)
        config->mgda_frank_wolfe = 1;
    json_object_foreach(options, key, value)
    {
        if (json_is_string(value)) {
            read_text_option(r, c, key, json_string_value(value), config);
            continue;
        }
        const double x = json_is_true(value)    ? 1.0
                         : json_is_false(value) ? 0.0
                                                : golden_number(&r->place, options, key);
        if (strcmp(key, "c") == 0)
            config->cagrad_c = x;
        else if (strcmp(key, "rescale") == 0)
            config->cagrad_rescale = (int)x;
        else if (strcmp(key, "eps") == 0)
            config->cagrad_eps = x;
        else if (strcmp(key, "scale_to_sum") == 0)
            config->scale_to_sum = (int)x;
        else if (strcmp(key, "rank_tol") == 0)
            config->aligned_rank_tol = x;
        else if (strcmp(key, "norm_eps") == 0)
            config->norm_eps = x;
        else if (strcmp(key, "reg_eps") == 0)
            config->reg_eps = x;
        else if (strcmp(key, "epsilon") == 0)
            config->mgda_fw_epsilon = x;
        else if (strcmp(key, "max_iters") == 0)
            config->mgda_fw_max_iterations = (int)x;
        else if (strcmp(key, "max_norm") == 0)
            config->nash_max_norm = x;
        else if (strcmp(key, "lambda") == 0)
            config->sdmgrad_lambda = x;
        else
            golden_malformed(&r->place, "the parameter \"%s\" of \"%s\" is unknown to this program", key, name);
    }
}

/* One call in f64 or f32. `direction`: n doubles, out; filled with a pattern before, so that a missed entry shows. */
static sut_status call(runner *r, const golden_case *c, const sut_surgery_config *config, sut_dtype dtype,
                       double *direction, sut_surgery_report *report)
{
    const size_t n = (size_t)c->n, size = sut_dtype_size(dtype);
    char *const rows = golden_memory((size_t)c->m * n, size), *const out = golden_memory(n, size);
    const void *grads[SUT_MAX_LOSSES];
    for (size_t k = 0; k < (size_t)c->m * n; ++k) {
        if (dtype == SUT_DTYPE_F32)
            ((float *)(void *)rows)[k] = (float)c->G[k];
        else
            ((double *)(void *)rows)[k] = c->G[k];
    }
    for (int i = 0; i < c->m; ++i)
        grads[i] = rows + (size_t)i * n * size;
    memset(out, 0x5a, n * size);
    sut_surgery_report_init(report);
    const sut_status status = sut_surgery_direction(r->ctx, config, grads, c->m, c->n, dtype, NULL, 0, out, report);
    for (size_t k = 0; k < n; ++k)
        direction[k] = dtype == SUT_DTYPE_F32 ? (double)((float *)(void *)out)[k] : ((double *)(void *)out)[k];
    if (status != SUT_OK)
        for (size_t k = 0; k < n * size; ++k)
            if (out[k] != 0x5a)
                golden_check(&r->count, &r->place, false, "the call failed and yet wrote to out");
    free(rows);
    free(out);
    return status;
}

static bool check_figures(runner *r, const golden_case *c, const json_t *entry, double tolerance, sut_dtype dtype,
                          const sut_surgery_report *report)
{
    const double error = sqrt((double)c->n) * tolerance;
    const double norm = golden_number_or(&r->place, entry, "norm", -1.0);
    double reach = 0.0;
    for (int i = 0; i < c->m; ++i)
        reach += fabs(report->weights[i]) * c->norms[i];
    /* norm_a comes from the Gram matrix, whose rounding is 2^-52 of (sum |w_i| d_i)^2: the square is compared. */
    if (norm >= 0.0 && !(fabs(report->norm_a * report->norm_a - norm * norm) <=
                         2.0 * error * norm + error * error + 16.0 * c->m * 0x1p-52 * reach * reach))
        return golden_check(&r->count, &r->place, false, "norm_a is %.17g instead of %.17g", report->norm_a, norm);
    if (json_object_get(entry, "min_cos") && norm > 1e6 * error) {
        const double cosine = golden_number(&r->place, entry, "min_cos");
        if (!(fabs(report->min_cos - cosine) <= 1e-6 + 4.0 * error / norm))
            return golden_check(&r->count, &r->place, false, "min_cos is %.9g instead of %.9g", report->min_cos,
                                cosine);
    }
    if (json_object_get(entry, "normaliser_sign")) {
        const bool negative = golden_number(&r->place, entry, "normaliser_sign") < 0.0;
        if (negative != (report->negative_normaliser != 0))
            return golden_check(&r->count, &r->place, false, "negative_normaliser is %d", report->negative_normaliser);
    }
    if (json_object_get(entry, "weights") && c->smallest_eigenvalue > 1e-6 && dtype == SUT_DTYPE_F64) {
        double weights[SUT_MAX_LOSSES];
        golden_vector(&r->place, entry, "weights", c->m, weights);
        for (int i = 0; i < c->m; ++i) {
            if (!(fabs(report->weights[i] - weights[i]) * c->norms[i] <=
                  4.0 * tolerance / sqrt(c->smallest_eigenvalue)))
                return golden_check(&r->count, &r->place, false, "weight %d is %.17g instead of %.17g", i,
                                    report->weights[i], weights[i]);
        }
    }
    return true;
}

static void check_expectation(runner *r, const golden_case *c, const char *name, const json_t *parameters,
                              const json_t *entry, sut_dtype dtype)
{
    sut_surgery_method method;
    if (!method_of(name, &method)) {
        skip(r, name);
        return;
    }
    golden_at(&r->place, "case %s, %s, %s", c->id, name, sut_dtype_name(dtype));
    const char *const expected = golden_text(&r->place, entry, "status");
    sut_surgery_config config;
    sut_surgery_config_init(&config, method);
    read_options(r, c, name, parameters, &config);
    sut_surgery_report report;
    double *const direction = golden_memory((size_t)c->n, sizeof *direction);
    double *const wanted = golden_memory((size_t)c->n, sizeof *wanted);
    const sut_status status = call(r, c, &config, dtype, direction, &report);

    if (strcmp(expected, "undefined") == 0) {
        golden_check(&r->count, &r->place, status == SUT_ERROR_UNDEFINED, "the status is \"%s\" instead of undefined",
                     sut_status_string(status));
        goto done;
    }
    const bool zero = strcmp(expected, "zero") == 0, pareto = strcmp(expected, "pareto") == 0;
    if (!zero && !pareto && strcmp(expected, "ok") != 0)
        golden_malformed(&r->place, "the status \"%s\" is unknown", expected);
    if (status != SUT_OK) {
        golden_check(&r->count, &r->place, false, "%s: %s", sut_status_string(status), sut_context_last_error(r->ctx));
        goto done;
    }
    const double abs_tol = golden_number(&r->place, entry, "abs_tol");
    const double abs_sum = golden_number_or(&r->place, entry, "abs_sum", 0.0);
    const double tolerance = dtype == SUT_DTYPE_F32 ? abs_tol + 4.0 * (c->m + 2) * 0x1p-24 * abs_sum : abs_tol;
    golden_vector(&r->place, entry, "direction", (long)c->n, wanted);
    for (int64_t k = 0; k < c->n; ++k) {
        const double x = direction[k];
        /* Rule 1.8: where the specification says zero, it means exactly zero. */
        if (zero && x != 0.0) {
            golden_check(&r->count, &r->place, false, "entry %lld is %.3g; exact zero was expected", (long long)k, x);
            goto done;
        }
        if (!(fabs(x - wanted[k]) <= tolerance)) {
            golden_check(&r->count, &r->place, false,
                         "entry %lld is %.17g instead of %.17g (off by %.3g, allowed %.3g)", (long long)k, x, wanted[k],
                         fabs(x - wanted[k]), tolerance);
            goto done;
        }
    }
    if (zero && !report.zero) {
        golden_check(&r->count, &r->place, false, "the flag zero is not set");
        goto done;
    }
    if (pareto && !report.pareto) {
        golden_check(&r->count, &r->place, false, "the flag pareto is not set");
        goto done;
    }
    if (check_figures(r, c, entry, tolerance, dtype, &report))
        golden_check(&r->count, &r->place, true, " ");
done:
    free(direction);
    free(wanted);
}

/* Each length model of ConFIG: the norm of a. One check for each. */
static void check_lengths(runner *r, const golden_case *c, const json_t *entry)
{
    static const char *const models[] = {"projection", "minimum",   "maximum", "harmonic",
                                         "arithmetic", "geometric", "specific"};
    const json_t *const lengths = json_object_get(entry, "lengths");
    if (!lengths)
        return;
    double *const direction = golden_memory((size_t)c->n, sizeof *direction);
    for (int k = 0; k < 7; ++k) {
        sut_surgery_config config;
        sut_surgery_report report;
        golden_at(&r->place, "case %s, config, length %s", c->id, models[k]);
        const double wanted = golden_number(&r->place, lengths, models[k]);
        const double tolerance = sqrt((double)c->n) * golden_number(&r->place, entry, "abs_tol");
        const double norm = golden_number(&r->place, entry, "norm");
        sut_surgery_config_init(&config, SUT_SURGERY_CONFIG);
        config.config_length = (sut_config_length)k;
        const sut_status status = call(r, c, &config, SUT_DTYPE_F64, direction, &report);
        double square = 0.0;
        for (int64_t j = 0; j < c->n; ++j)
            square += direction[j] * direction[j];
        /* abs_tol is that of the projection length; other lengths scale it. */
        const double scaled = tolerance * sut_max2(1.0, norm > 0.0 ? wanted / norm : 1.0) + 1e-13 * wanted;
        golden_check(&r->count, &r->place, status == SUT_OK && fabs(sqrt(square) - fabs(wanted)) <= scaled,
                     "the length is %.17g instead of %.17g", sqrt(square), wanted);
    }
    free(direction);
}

/* Norms, cosines and pair statistics, through the report. One check for each case and dtype. */
static void check_stats(runner *r, golden_case *c, sut_dtype dtype)
{
    sut_surgery_config config;
    sut_surgery_report report;
    double *const direction = golden_memory((size_t)c->n, sizeof *direction);
    golden_at(&r->place, "case %s, stats, %s", c->id, sut_dtype_name(dtype));
    golden_vector(&r->place, c->stats, "norms", c->m, c->norms);
    sut_surgery_config_init(&config, SUT_SURGERY_SUM);
    require(r, call(r, c, &config, dtype, direction, &report), "sum");
    /* f32 lanes carry a product to 3e-8. */
    const double tolerance = dtype == SUT_DTYPE_F32 ? 1e-7 : 1e-13;
    bool good = true;
    for (int i = 0; i < c->m; ++i)
        good = good && fabs(report.norms[i] - c->norms[i]) <= tolerance * c->norms[i];
    good = good && fabs(report.min_pair_cos - golden_number(&r->place, c->stats, "min_cos")) <= tolerance;
    good = good && fabs(report.alignment - golden_number(&r->place, c->stats, "alignment")) <= 2.0 * tolerance;
    good = good && fabs(report.conflict_fraction - golden_number(&r->place, c->stats, "conflict_fraction")) <= 1e-12;
    good = good && (report.conflict_fraction > 0.0) == golden_bool(&r->place, c->stats, "conflict_any");
    golden_check(&r->count, &r->place, good, "norms or pair statistics differ (min_pair_cos %.17g, alignment %.17g)",
                 report.min_pair_cos, report.alignment);
    free(direction);
}

static void run_case(runner *r, const json_t *entry, const json_t *parameters)
{
    golden_case c = {0};
    c.id = golden_text(&r->place, entry, "id");
    golden_at(&r->place, "case %s", c.id);
    c.m = (int)golden_integer(&r->place, entry, "m", 1, SUT_MAX_LOSSES);
    c.n = golden_integer(&r->place, entry, "n", 1, 1 << 24);
    c.f32_exact = golden_bool(&r->place, entry, "f32_exact");
    c.smallest_eigenvalue = golden_number(&r->place, entry, "gram_min_eig_unit");
    c.stats = golden_object(&r->place, entry, "stats");
    c.expect = golden_object(&r->place, entry, "expect");
    const size_t mm = (size_t)c.m * (size_t)c.m;
    double *const orders = golden_memory(mm, sizeof *orders);
    c.G = golden_memory((size_t)c.m * (size_t)c.n, sizeof *c.G);
    c.weights = golden_memory((size_t)c.m, sizeof *c.weights);
    c.orders = golden_memory(mm, sizeof *c.orders);
    golden_matrix(&r->place, entry, "G", c.m, (long)c.n, c.G);
    golden_vector(&r->place, entry, "config_weights", c.m, c.weights);
    golden_matrix(&r->place, entry, "orders", c.m, c.m, orders);
    for (size_t k = 0; k < mm; ++k)
        c.orders[k] = row_number(r, orders[k], c.m);

    check_stats(r, &c, SUT_DTYPE_F64);
    if (c.f32_exact)
        check_stats(r, &c, SUT_DTYPE_F32);
    const char *name;
    json_t *expectation;
    json_object_foreach((json_t *)c.expect, name, expectation)
    {
        check_expectation(r, &c, name, parameters, expectation, SUT_DTYPE_F64);
        if (c.f32_exact)
            check_expectation(r, &c, name, parameters, expectation, SUT_DTYPE_F32);
        if (strcmp(name, "config") == 0)
            check_lengths(r, &c, expectation);
    }
    free(orders);
    free(c.G);
    free(c.weights);
    free(c.orders);
}

/*
 * Orders of the generator: drawn directly, and by a random-order PCGrad call that must give the same bits as one with the
 * listed orders, on rows that conflict so much that the order matters. Uniforms belong to GradDrop.
 */
static void run_generator(runner *r, const json_t *entry, size_t index)
{
    golden_at(&r->place, "generator %zu", index);
    const uint64_t seed = golden_unsigned(&r->place, entry, "seed"),
                   counter = golden_unsigned(&r->place, entry, "counter");
    const int m = (int)golden_integer(&r->place, entry, "m", 1, SUT_MAX_LOSSES);
    const size_t mm = (size_t)m * (size_t)m;
    double *const listed = golden_memory(mm, sizeof *listed), *const gram = golden_memory(mm, sizeof *gram);
    int *const orders = golden_memory(mm, sizeof *orders), drawn[SUT_MAX_LOSSES];
    golden_matrix(&r->place, entry, "orders", m, m, listed);
    bool same = true;
    sut_draws draws = sut_draws_begin(seed, counter);
    for (int i = 0; i < m; ++i) {
        sut_draw_order(&draws, m, drawn);
        for (int k = 0; k < m; ++k) {
            orders[i * m + k] = row_number(r, listed[i * m + k], m);
            same = same && drawn[k] == orders[i * m + k];
        }
    }
    golden_check(&r->count, &r->place, same, "the drawn orders differ");

    /* Cosines of about -1 / m between rows of different lengths: positive definite, every pair in conflict. */
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < m; ++j)
            gram[i * m + j] = (1.0 + 0.1 * i) * (1.0 + 0.1 * j) * (i == j ? 1.0 : -(0.7 + 0.01 * (i + j)) / m);
    sut_context_config context;
    sut_context *ctx;
    sut_context_config_init(&context);
    context.seed = seed;
    context.n_threads = 1;
    require(r, sut_context_create(&ctx, &context), "context");
    sut_surgery_config config;
    sut_surgery_report random, given, identity;
    sut_surgery_report_init(&random);
    sut_surgery_report_init(&given);
    sut_surgery_report_init(&identity);
    sut_surgery_config_init(&config, SUT_SURGERY_PCGRAD);
    bool good = sut_surgery_weights(ctx, &config, gram, m, NULL, counter, &random) == SUT_OK;
    config.order = orders;
    good = good && sut_surgery_weights(ctx, &config, gram, m, NULL, counter, &given) == SUT_OK;
    config.order = NULL;
    config.pcgrad_identity_order = 1;
    good = good && sut_surgery_weights(ctx, &config, gram, m, NULL, counter, &identity) == SUT_OK;
    good = good && memcmp(random.weights, given.weights, (size_t)m * sizeof(double)) == 0;
    good = good && (m < 3 || memcmp(random.weights, identity.weights, (size_t)m * sizeof(double)) != 0);
    golden_check(&r->count, &r->place, good, "PCGrad with drawn orders differs from PCGrad with the listed ones");
    sut_context_destroy(ctx);
    skip(r, "generator: uniforms (graddrop)");
    free(listed);
    free(gram);
    free(orders);
}

/* Inputs that every method must refuse. */
static void run_error(runner *r, const json_t *entry)
{
    golden_case c = {0};
    c.id = golden_text(&r->place, entry, "id");
    golden_at(&r->place, "error %s", c.id);
    const json_t *const rows = golden_array(&r->place, entry, "G");
    c.m = (int)json_array_size(rows);
    c.n = (int64_t)json_array_size(json_array_get(rows, 0));
    if (c.m < 1 || c.m > SUT_MAX_LOSSES || c.n < 1)
        golden_malformed(&r->place, "G is empty or has more than %d rows", SUT_MAX_LOSSES);
    if (strcmp(golden_text(&r->place, entry, "error"), "non-finite") != 0)
        golden_malformed(&r->place, "the error is none that this program knows");
    c.G = golden_memory((size_t)c.m * (size_t)c.n, sizeof *c.G);
    golden_matrix(&r->place, entry, "G", c.m, (long)c.n, c.G);
    double *const direction = golden_memory((size_t)c.n, sizeof *direction);
    const double preference[SUT_MAX_LOSSES] = {1.0, 1.0};
    for (int k = 0; k < SUT_SURGERY_COUNT; ++k) {
        for (int dtype = SUT_DTYPE_F32; dtype <= SUT_DTYPE_F64; ++dtype) {
            sut_surgery_config config;
            sut_surgery_report report;
            golden_at(&r->place, "error %s, %s, %s", c.id, sut_surgery_method_name((sut_surgery_method)k),
                      sut_dtype_name((sut_dtype)dtype));
            sut_surgery_config_init(&config, (sut_surgery_method)k);
            config.preference = k == SUT_SURGERY_FIXED ? preference : NULL;
            const sut_status status = call(r, &c, &config, (sut_dtype)dtype, direction, &report);
            golden_check(&r->count, &r->place, status == SUT_ERROR_NOT_FINITE, "the status is \"%s\"",
                         sut_status_string(status));
        }
    }
    free(direction);
    free(c.G);
}

static void run_file(runner *r, const char *path)
{
    size_t index;
    json_t *entry;
    json_t *const root = golden_open(&r->place, path, "suture-golden-surgery-1");
    const json_t *const parameters = golden_object(&r->place, root, "parameters");
    json_array_foreach(golden_array(&r->place, root, "cases"), index, entry)
    {
        golden_at(&r->place, "case %zu", index);
        run_case(r, entry, parameters);
    }
    r->place.text[0] = '\0';
    json_array_foreach(golden_array(&r->place, root, "generator"), index, entry) run_generator(r, entry, index);
    r->place.text[0] = '\0';
    json_array_foreach(golden_array(&r->place, root, "errors"), index, entry)
    {
        golden_at(&r->place, "error %zu", index);
        run_error(r, entry);
    }
    r->place.text[0] = '\0';
    json_array_foreach(golden_array(&r->place, root, "sequences"), index, entry)
    {
        golden_at(&r->place, "sequence %zu", index);
        (void)golden_text(&r->place, entry, "id");
        skip(r, golden_text(&r->place, entry, "method"));
    }
    for (int k = 0; k < r->skipped.n; ++k)
        (void)printf("skipped, not built: %s (%ld)\n", r->skipped.name[k], r->skipped.count[k]);
    r->skipped.n = 0;
    json_decref(root);
}

int main(int argc, char **argv)
{
    runner r = {0};
    if (argc < 2) {
        (void)fprintf(stderr, "usage: golden_surgery FILE...\n");
        return 2;
    }
    sut_context_config config;
    sut_context_config_init(&config);
    config.n_threads = 1;
    if (sut_context_create(&r.ctx, &config) != SUT_OK) {
        (void)fprintf(stderr, "no context\n");
        return 2;
    }
    for (int k = 1; k < argc; ++k)
        run_file(&r, argv[k]);
    sut_context_destroy(r.ctx);
    return golden_finish(&r.count);
}
