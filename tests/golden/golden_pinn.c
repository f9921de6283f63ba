/*
 * Golden runner of the PINN problems: golden_pinn FILE.json ...
 *
 * Formats: suture-pinn-golden/1 (network values, derivatives, residuals, losses, gradients, Gram matrices, reference
 * solution, scores: in f64 and f32), suture-pinn-conflict/1 (conflict rates of short runs), suture-pinn-schedule/1.
 * Files of problems that are not built are counted as skipped, by name. The last line is
 * "N passed, N failed, N skipped"; exit code 1 after a failure, 2 for bad usage or a malformed file.
 *
 * Tolerances are relative to the largest magnitude of each array, as the specification of the golden files gives them:
 * f64 1e-12 (gradients and Gram matrices 1e-11), f32 1e-5 (5e-5), reference solutions and scores 1e-10.
 */
#include "batch.h"
#include "evaluate.h"
#include "statistics.h"

#include "suture/schedule.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int n_passed, n_failed, n_skipped;

/* The file is not what it says: stop at once, without half a count. */
static void malformed(const char *what)
{
    fprintf(stderr, "golden_pinn: malformed file: %s\n", what);
    exit(2);
}

static json_t *get(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    if (!value)
        malformed(key);
    return value;
}

static const char *text(json_t *object, const char *key)
{
    const char *value = json_string_value(get(object, key));
    if (!value)
        malformed(key);
    return value;
}

static double number(json_t *value)
{
    if (!json_is_number(value))
        malformed("a number is missing");
    return json_number_value(value);
}

static double field(json_t *object, const char *key)
{
    return number(get(object, key));
}

static void *memory(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);
    if (!p)
        malformed("out of memory");
    return p;
}

/* A list, or a list of lists flattened; *count is the number of numbers. */
static double *numbers(json_t *list, size_t *count)
{
    if (!json_is_array(list))
        malformed("a list is missing");
    const size_t n = json_array_size(list);
    const size_t inner = n && json_is_array(json_array_get(list, 0)) ? json_array_size(json_array_get(list, 0)) : 0;
    double *out = memory(inner ? n * inner : n, sizeof *out);
    for (size_t i = 0; i < n; i++) {
        json_t *item = json_array_get(list, i);
        if (inner && json_array_size(item) != inner)
            malformed("rows of different length");
        for (size_t j = 0; j < inner; j++)
            out[i * inner + j] = number(json_array_get(item, j));
        if (!inner)
            out[i] = number(item);
    }
    *count = inner ? n * inner : n;
    return out;
}

static void check(const char *label, const char *name, const double *found, const double *expected, size_t count,
                  double tolerance)
{
    double scale = 0, error = 0;
    for (size_t i = 0; i < count; i++) {
        scale = fmax(scale, fabs(expected[i]));
        const double e = fabs(found[i] - expected[i]);
        error = e <= error ? error : e; /* NaN stays */
    }
    if (count && error <= tolerance * scale) {
        n_passed++;
    } else {
        n_failed++;
        printf("FAILED %s %s: error %.3g of %.3g, allowed %.3g\n", label, name, error, scale, tolerance * scale);
    }
}

static void check_list(const char *label, const char *name, const double *found, size_t count, json_t *expected,
                       double tolerance)
{
    size_t n;
    double *e = numbers(expected, &n);
    if (n == count) {
        check(label, name, found, e, count, tolerance);
    } else {
        n_failed++;
        printf("FAILED %s %s: %zu numbers, %zu expected\n", label, name, count, n);
    }
    free(e);
}

static void check_one(const char *label, const char *name, double found, json_t *object, double tolerance)
{
    const double expected = field(object, name);
    check(label, name, &found, &expected, 1, tolerance);
}

/* ---- networks ---- */

typedef struct point_set {
    int count;
    double *x; /* [input * count + k] */
} point_set;

typedef struct network_case {
    json_t *root, *expected;
    const pinn_problem *problem;
    const net_kernels *kernels;
    net_shape shape;
    char label[64];
    void *theta; /* of the kernels' type */
    point_set sets[PINN_MAX_TERMS];
    bool f64;
} network_case;

static double tolerance(const network_case *c, double f64, double f32)
{
    return c->f64 ? f64 : f32;
}

static point_set read_points(json_t *list, int inputs)
{
    size_t n;
    double *rows = numbers(list, &n);
    point_set set = {.count = (int)n / inputs, .x = memory(n, sizeof(double))};
    for (int k = 0; k < set.count; k++)
        for (int i = 0; i < inputs; i++)
            set.x[i * set.count + k] = rows[k * inputs + i];
    free(rows);
    return set;
}

/* Outputs of all channels at a set of points: values[(output * channels + channel) * count + k]. */
static double *forward(const network_case *c, const point_set *set, int channels)
{
    double *values = memory((size_t)(c->shape.outputs * channels * set->count), sizeof *values);
    void *packed = aligned_alloc(NET_LINE, (c->kernels->packed_size(&c->shape) + NET_LINE - 1) / NET_LINE * NET_LINE);
    net_tile *tile = net_tile_create(&c->shape, channels);
    if (!packed || !tile)
        malformed("out of memory");
    if (set->count > NET_TILE_BLOCKS * c->kernels->lanes)
        malformed("more points than this runner takes");
    c->kernels->pack(&c->shape, c->theta, packed);
    c->kernels->put_points(&c->shape, tile, set->x, set->count, set->count);
    c->kernels->forward(&c->shape, c->problem->kappa, c->theta, packed, tile);
    c->kernels->get_output(&c->shape, tile, values, set->count, set->count);
    net_tile_destroy(tile);
    free(packed);
    return values;
}

/* One channel of all outputs as [point][output], the order of the file. */
static void check_channel(const network_case *c, const char *name, const point_set *set, const double *values,
                          int channels, int channel, json_t *expected)
{
    const int m = c->shape.outputs;
    double *found = memory((size_t)(set->count * m), sizeof *found);
    for (int k = 0; k < set->count; k++)
        for (int o = 0; o < m; o++)
            found[k * m + o] = values[(o * channels + channel) * set->count + k];
    check_list(c->label, name, found, (size_t)(set->count * m), expected, tolerance(c, 1e-12, 1e-5));
    free(found);
}

/* The file gives pure second derivatives in the inputs that kappa names; the network carries their combination. */
static json_t *combined_second(const network_case *c, json_t *d2)
{
    json_t *sum = NULL;
    for (int i = 0; i < c->shape.inputs; i++) {
        if (c->problem->kappa[i] == 0)
            continue;
        char key[16];
        snprintf(key, sizeof key, "%s%s", c->problem->inputs[i], c->problem->inputs[i]);
        size_t n;
        double *part = numbers(get(d2, key), &n);
        if (!sum)
            sum = json_array();
        for (size_t k = 0; k < n; k++) {
            const double term = c->problem->kappa[i] * part[k];
            if (json_array_size(sum) <= k)
                json_array_append_new(sum, json_real(term));
            else
                json_array_set_new(sum, k, json_real(number(json_array_get(sum, k)) + term));
        }
        free(part);
    }
    return sum;
}

static void check_interior(const network_case *c)
{
    json_t *expected = get(c->expected, "interior");
    const point_set *set = &c->sets[0];
    const int channels = c->shape.inputs + 2;
    double *values = forward(c, set, channels);
    check_channel(c, "value", set, values, channels, 0, get(expected, "value"));
    for (int i = 0; i < c->shape.inputs; i++)
        check_channel(c, c->problem->inputs[i], set, values, channels, 1 + i,
                      get(get(expected, "d1"), c->problem->inputs[i]));
    json_t *second = combined_second(c, get(expected, "d2"));
    check_channel(c, "second derivative", set, values, channels, channels - 1, second);
    json_decref(second);

    double *r = memory((size_t)(PINN_MAX_COMPONENTS * set->count), sizeof *r);
    c->problem->terms[0].residual(set->count, set->count, set->x, values, r);
    json_t *list;
    const char *key;
    int component = 0;
    json_object_foreach(get(expected, "residual"), key, list)
    {
        check_list(c->label, key, r + component * set->count, (size_t)set->count, list, tolerance(c, 1e-12, 1e-5));
        component++;
    }
    free(r);
    free(values);
}

static void check_data_term(const network_case *c, int term)
{
    const pinn_term *what = &c->problem->terms[term];
    const point_set *set = &c->sets[term];
    double *values = forward(c, set, 1);
    check_channel(c, what->name, set, values, 1, 0, get(get(c->expected, what->name), "value"));
    char key[32];
    snprintf(key, sizeof key, "%s_target", what->name);
    double *target = memory((size_t)(c->shape.outputs * set->count), sizeof *target);
    what->target(set->count, set->count, set->x, target);
    double *rows = memory((size_t)(c->shape.outputs * set->count), sizeof *rows);
    for (int k = 0; k < set->count; k++)
        for (int o = 0; o < c->shape.outputs; o++)
            rows[k * c->shape.outputs + o] = target[o * set->count + k];
    size_t n;
    double *given = numbers(get(get(c->root, "points"), key), &n);
    double scale = 0;
    for (size_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(given[i]));
    if (scale > 0 && n == (size_t)(c->shape.outputs * set->count)) {
        check(c->label, key, rows, given, n, 1e-12);
    } else {
        for (size_t i = 0; i < n; i++) /* targets that are all zero have no scale: exactly zero */
            rows[i] += 1, given[i] += 1;
        check(c->label, key, rows, given, n, 0);
    }
    free(given);
    free(rows);
    free(target);
    free(values);
}

/* Losses, gradients and the Gram matrix of one split. */
static void check_split(const network_case *c, int n_losses)
{
    pinn_loss losses[PINN_MAX_TERMS];
    if (!pinn_problem_split(c->problem, n_losses, losses))
        return;
    pinn_pool *pool = pinn_pool_create(2);
    pinn_batch *batch = pool ? pinn_batch_create(pool, c->kernels, &c->shape, c->problem, losses, n_losses, 0) : NULL;
    if (!batch)
        malformed("out of memory");
    for (int t = 0; t < c->problem->n_terms; t++)
        if (!pinn_batch_set_points(batch, t, c->sets[t].count, c->sets[t].x))
            malformed("out of memory");
    const size_t n = net_parameters(&c->shape);
    void *rows[PINN_MAX_TERMS];
    double *gradient[PINN_MAX_TERMS], found[PINN_MAX_TERMS], terms[PINN_MAX_TERMS],
        gram[PINN_MAX_TERMS * PINN_MAX_TERMS];
    for (int i = 0; i < n_losses; i++) {
        rows[i] = memory(n, c->kernels->real_size);
        gradient[i] = memory(n, sizeof(double));
    }
    pinn_batch_gradients(batch, c->theta, 0, 0, terms, found, rows);
    for (int i = 0; i < n_losses; i++) {
        char name[64];
        net_load(c->kernels->real, rows[i], 0, gradient[i], n);
        snprintf(name, sizeof name, "%d losses, loss %s", n_losses, losses[i].name);
        const double expected = field(get(c->expected, "loss"), losses[i].name);
        check(c->label, name, &found[i], &expected, 1, tolerance(c, 1e-12, 1e-5));
        snprintf(name, sizeof name, "%d losses, gradient %s", n_losses, losses[i].name);
        check_list(c->label, name, gradient[i], n, get(get(c->expected, "gradient"), losses[i].name),
                   tolerance(c, 1e-11, 5e-5));
        for (int j = 0; j <= i; j++) {
            double sum = 0;
            for (size_t k = 0; k < n; k++)
                sum += gradient[i][k] * gradient[j][k];
            gram[i * n_losses + j] = gram[j * n_losses + i] = sum;
        }
    }
    for (int t = 0; t < c->problem->n_terms; t++) {
        const double expected = field(get(c->expected, "loss"), c->problem->terms[t].name);
        check(c->label, c->problem->terms[t].name, &terms[t], &expected, 1, tolerance(c, 1e-12, 1e-5));
    }
    const char key[] = {(char)('0' + n_losses), 0};
    check_list(c->label, "gram", gram, (size_t)(n_losses * n_losses), get(get(c->expected, "gram"), key),
               tolerance(c, 1e-11, 5e-5));
    for (int i = 0; i < n_losses; i++) {
        free(rows[i]);
        free(gradient[i]);
    }
    pinn_batch_destroy(batch);
    pinn_pool_destroy(pool);
}

static void check_scores(const network_case *c)
{
    json_t *expected = get(c->root, "evaluation");
    pinn_pool *pool = pinn_pool_create(2);
    pinn_evaluation *evaluation = pool ? pinn_evaluation_create(pool, c->kernels, &c->shape, c->problem) : NULL;
    if (!evaluation)
        malformed("out of memory");
    const pinn_scores scores = pinn_evaluate(evaluation, c->theta);
    const double tol = tolerance(c, 1e-10, 1e-5);
    check_one(c->label, "points", (double)pinn_evaluation_points(evaluation), expected, 0);
    check_one(c->label, "mse", scores.mse, expected, tol);
    check_one(c->label, "selection_mse", scores.selection_mse, expected, tol);
    check_one(c->label, "reference_norm", scores.reference_norm, expected, tol);
    check_one(c->label, "relative_l2", scores.relative_l2, expected, tol);
    pinn_evaluation_destroy(evaluation);
    pinn_pool_destroy(pool);
}

static void check_reference(json_t *root, const pinn_problem *problem)
{
    json_t *reference = get(root, "reference");
    const point_set set = read_points(get(reference, "points"), problem->n_inputs);
    double *value = memory((size_t)(problem->n_outputs * set.count), sizeof *value);
    double *rows = memory((size_t)(problem->n_outputs * set.count), sizeof *rows);
    problem->reference(set.count, set.count, set.x, value);
    for (int k = 0; k < set.count; k++)
        for (int o = 0; o < problem->n_outputs; o++)
            rows[k * problem->n_outputs + o] = value[o * set.count + k];
    check_list(problem->name, "reference", rows, (size_t)(problem->n_outputs * set.count), get(reference, "value"),
               1e-10);
    free(rows);
    free(value);
    free(set.x);
}

static void run_network(json_t *root, const pinn_problem *problem, const net_kernels *kernels)
{
    network_case c = {.root = root, .problem = problem, .kernels = kernels, .f64 = kernels->real == NET_F64};
    snprintf(c.label, sizeof c.label, "%s %s %s", problem->name, c.f64 ? "f64" : "f32", kernels->isa);
    c.expected = get(root, "expected");
    json_t *network = get(root, "network");
    size_t n_layers, n_theta;
    double *layers = numbers(get(network, "layers"), &n_layers), *theta = numbers(get(network, "theta"), &n_theta);
    c.shape = (net_shape){.inputs = (int)layers[0],
                          .width = (int)layers[1],
                          .hidden = (int)n_layers - 2,
                          .outputs = (int)layers[n_layers - 1]};
    if (c.shape.inputs != problem->n_inputs || c.shape.outputs != problem->n_outputs ||
        net_parameters(&c.shape) != n_theta)
        malformed("network");
    c.theta = memory(n_theta, kernels->real_size);
    net_store(kernels->real, c.theta, 0, theta, n_theta);
    for (int t = 0; t < problem->n_terms; t++)
        c.sets[t] = read_points(get(get(root, "points"), problem->terms[t].name), problem->n_inputs);

    check_interior(&c);
    for (int t = 1; t < problem->n_terms; t++)
        check_data_term(&c, t);
    check_split(&c, 2);
    check_split(&c, 3);
    check_scores(&c);

    for (int t = 0; t < problem->n_terms; t++)
        free(c.sets[t].x);
    free(c.theta);
    free(theta);
    free(layers);
}

static void run_problem(json_t *root, const char *path)
{
    const char *name = text(root, "problem");
    const pinn_problem *problem = pinn_problem_find(name);
    if (!problem) {
        printf("SKIPPED %s: the problem %s is not built\n", path, name);
        n_skipped++;
        return;
    }
    check_reference(root, problem);
    static const char *const isas[] = {"baseline", "avx2", "avx512"};
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++)
        for (int real = NET_F32; real <= NET_F64; real++) {
            const net_kernels *kernels = net_kernels_find((net_real)real, isas[i]);
            if (kernels)
                run_network(root, problem, kernels);
        }
}

/* ---- conflict statistics ---- */

static void run_conflict(json_t *root)
{
    size_t r, s;
    json_t *run, *step;
    json_array_foreach(get(root, "runs"), r, run)
    {
        char label[48];
        snprintf(label, sizeof label, "conflict run %zu", r);
        const int m = (int)field(run, "losses");
        pinn_statistics statistics = {0};
        json_array_foreach(get(run, "steps"), s, step)
        {
            size_t n, total;
            double *a = numbers(get(step, "a"), &n), *u = numbers(get(step, "u"), &n), *p = numbers(get(step, "p"), &n);
            double *G = numbers(get(step, "G"), &total);
            const double *rows[SUT_MAX_LOSSES];
            for (int i = 0; i < m; i++)
                rows[i] = G + (size_t)i * n;
            sut_report report;
            memset(&report, 0, sizeof report);
            pinn_statistics_measure(&report, field(step, "lr"), rows, m, a, u, p, (int64_t)n);
            pinn_statistics_add(&statistics, &report);
            if (json_is_true(get(step, "counted"))) {
                double one = 1, zero = 0;
                check_list(label, "cos_a", report.cos_a, (size_t)m, get(step, "cos_a"), 1e-12);
                check_list(label, "cos_u", report.cos_u, (size_t)m, get(step, "cos_u"), 1e-12);
                json_t *conflict = get(step, "conflict");
                const int found[] = {report.min_pair_cos < PINN_CONFLICT_COSINE, pinn_conflict(report.cos_a, m),
                                     pinn_conflict(report.cos_u, m), pinn_conflict(report.cos_p, m)};
                static const char *const keys[] = {"g", "a", "u", "p"};
                for (int k = 0; k < 4; k++)
                    check(label, keys[k], found[k] == json_is_true(get(conflict, keys[k])) ? &one : &zero, &one, 1, 0);
                const double change = field(step, "relative_correction");
                if (change > 0)
                    check(label, "relative_correction", &report.relative_change, &change, 1, 1e-12);
            }
            free(a);
            free(u);
            free(p);
            free(G);
        }
        json_t *expected = get(run, "expected");
        const double steps = statistics.steps;
        const struct {
            const char *key;
            double value;
        } rates[] = {{"steps_counted", steps},
                     {"r_g", statistics.g / steps},
                     {"r_g_pair", statistics.g_pairs / steps},
                     {"r_a", statistics.a / steps},
                     {"r_u", statistics.u / steps},
                     {"r_p", statistics.p / steps},
                     {"projected_rate", statistics.projected / steps}};
        for (size_t k = 0; k < sizeof rates / sizeof rates[0]; k++)
            check_one(label, rates[k].key, rates[k].value, expected, 1e-12);
    }
}

/* ---- schedules ---- */

static void run_schedule(json_t *root)
{
    size_t i;
    json_t *item;
    json_array_foreach(get(root, "cases"), i, item)
    {
        sut_schedule schedule;
        sut_schedule_init(&schedule, SUT_SCHEDULE_COSINE);
        schedule.peak = field(item, "lr");
        schedule.final_lr = field(item, "final_lr");
        schedule.warmup = (int64_t)field(item, "warmup");
        schedule.total = (int64_t)field(item, "steps");
        size_t n;
        double *steps = numbers(get(item, "step_index"), &n), *found = memory(n, sizeof *found);
        for (size_t k = 0; k < n; k++)
            if (sut_schedule_lr(NULL, &schedule, (int64_t)steps[k], &found[k]) != SUT_OK)
                found[k] = NAN;
        check_list("schedule", text(item, "case"), found, n, get(item, "value"), 1e-12);
        free(found);
        free(steps);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: golden_pinn FILE.json ...\n");
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        json_error_t error;
        json_t *root = json_load_file(argv[i], JSON_REJECT_DUPLICATES, &error);
        if (!root) {
            fprintf(stderr, "golden_pinn: %s: line %d: %s\n", argv[i], error.line, error.text);
            return 2;
        }
        const char *format = text(root, "format");
        if (!strcmp(format, "suture-pinn-golden/1"))
            run_problem(root, argv[i]);
        else if (!strcmp(format, "suture-pinn-conflict/1"))
            run_conflict(root);
        else if (!strcmp(format, "suture-pinn-schedule/1"))
            run_schedule(root);
        else
            malformed(format);
        json_decref(root);
    }
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_skipped);
    return n_failed ? 1 : 0;
}
