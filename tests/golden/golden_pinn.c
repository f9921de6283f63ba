/*
 * Golden runner of the PINN problems: golden_pinn FILE.json ...
 *
 * Formats: suture-pinn-golden/1 (network values, derivatives, residuals, losses, gradients, Gram matrices, reference
 * solution, scores: in f64 and f32), suture-pinn-conflict/1 (conflict rates of short runs), suture-pinn-schedule/1.
 * Files of problems that are not built are counted as skipped, by name. The last line is
 * "N passed, N failed, N skipped"; exit code 1 after a failure or without any case, 2 for bad usage or a malformed file.
 *
 * Tolerances are relative to the largest magnitude of each array, as the specification of the golden files gives them:
 * f64 1e-12 (gradients and Gram matrices 1e-11), f32 1e-5 (5e-5), reference solutions and scores 1e-10.
 */
#include "batch.h"
#include "evaluate.h"
#include "statistics.h"

#include "suture/schedule.h"
#include "support/golden.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static golden_count count;
static golden_place place; /* in the file at hand */

static json_t *get(const json_t *object, const char *key)
{
    return golden_member(&place, object, key);
}

static double field(const json_t *object, const char *key)
{
    return golden_number(&place, object, key);
}

static double number(const json_t *value, const char *key)
{
    if (!json_is_number(value))
        golden_malformed(&place, "\"%s\" holds something that is not a number", key);
    return json_number_value(value);
}

/* A list, or a list of lists flattened; *n is the number of numbers. */
static double *numbers(const json_t *parent, const char *key, size_t *n)
{
    const json_t *list = golden_array(&place, parent, key);
    const size_t rows = json_array_size(list);
    const bool nested = rows && json_is_array(json_array_get(list, 0));
    const size_t inner = nested ? json_array_size(json_array_get(list, 0)) : 0;
    double *out = golden_memory(nested ? rows * inner : rows, sizeof *out);
    for (size_t i = 0; i < rows; i++) {
        const json_t *item = json_array_get(list, i);
        if (nested && json_array_size(item) != inner)
            golden_malformed(&place, "\"%s\" has rows of different length", key);
        for (size_t j = 0; j < inner; j++)
            out[i * inner + j] = number(json_array_get(item, j), key);
        if (!nested)
            out[i] = number(item, key);
    }
    *n = nested ? rows * inner : rows;
    return out;
}

/* So many numbers, whatever their arrangement. */
static double *exactly(const json_t *parent, const char *key, size_t expected)
{
    size_t n;
    double *out = numbers(parent, key, &n);
    if (n != expected)
        golden_malformed(&place, "\"%s\" has %zu entries where %zu were expected", key, n, expected);
    return out;
}

static void check(const char *name, const double *found, const double *expected, size_t n, double tolerance)
{
    double scale = 0, error = 0;
    for (size_t i = 0; i < n; i++) {
        scale = fmax(scale, fabs(expected[i]));
        const double e = fabs(found[i] - expected[i]);
        error = e <= error ? error : e; /* NaN stays */
    }
    golden_check(&count, &place, n && error <= tolerance * scale, "%s: error %.3g of %.3g, allowed %.3g", name, error,
                 scale, tolerance * scale);
}

static void check_list(const char *name, const double *found, size_t n, const json_t *parent, const char *key,
                       double tolerance)
{
    double *e = exactly(parent, key, n);
    check(name, found, e, n, tolerance);
    free(e);
}

static void check_one(const char *name, double found, const json_t *object, double tolerance)
{
    const double expected = field(object, name);
    check(name, &found, &expected, 1, tolerance);
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
    void *theta; /* of the kernels' type */
    point_set sets[PINN_MAX_TERMS];
    bool f64;
} network_case;

static double tolerance(const network_case *c, double f64, double f32)
{
    return c->f64 ? f64 : f32;
}

static point_set read_points(const json_t *parent, const char *key, int inputs)
{
    size_t n;
    double *rows = numbers(parent, key, &n);
    if (n == 0 || n % (size_t)inputs)
        golden_malformed(&place, "\"%s\" has %zu entries where points of %d coordinates were expected", key, n, inputs);
    point_set set = {.count = (int)n / inputs, .x = golden_memory(n, sizeof(double))};
    for (int k = 0; k < set.count; k++)
        for (int i = 0; i < inputs; i++)
            set.x[i * set.count + k] = rows[k * inputs + i];
    free(rows);
    return set;
}

/* Outputs of all channels at a set of points: values[(output * channels + channel) * count + k]. */
static double *forward(const network_case *c, const point_set *set, int channels)
{
    double *values = golden_memory((size_t)(c->shape.outputs * channels * set->count), sizeof *values);
    void *packed = aligned_alloc(NET_LINE, (c->kernels->packed_size(&c->shape) + NET_LINE - 1) / NET_LINE * NET_LINE);
    net_tile *tile = net_tile_create(&c->shape, channels);
    if (!packed || !tile)
        golden_malformed(&place, "no memory for the network");
    if (set->count > NET_TILE_BLOCKS * c->kernels->lanes)
        golden_malformed(&place, "a list of %d points, more than this runner takes", set->count);
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
                          int channels, int channel, const json_t *parent, const char *key)
{
    const int m = c->shape.outputs;
    double *found = golden_memory((size_t)(set->count * m), sizeof *found);
    for (int k = 0; k < set->count; k++)
        for (int o = 0; o < m; o++)
            found[k * m + o] = values[(o * channels + channel) * set->count + k];
    check_list(name, found, (size_t)(set->count * m), parent, key, tolerance(c, 1e-12, 1e-5));
    free(found);
}

/* The file gives pure second derivatives in the inputs that kappa names; the network carries their combination. */
static json_t *combined_second(const network_case *c, const json_t *d2)
{
    json_t *sum = NULL;
    size_t length = 0;
    for (int i = 0; i < c->shape.inputs; i++) {
        if (c->problem->kappa[i] == 0)
            continue;
        char key[16];
        snprintf(key, sizeof key, "%s%s", c->problem->inputs[i], c->problem->inputs[i]);
        double *part = sum ? exactly(d2, key, length) : numbers(d2, key, &length);
        if (!sum)
            sum = json_array();
        for (size_t k = 0; k < length; k++) {
            const double term = c->problem->kappa[i] * part[k];
            if (json_array_size(sum) <= k)
                json_array_append_new(sum, json_real(term));
            else
                json_array_set_new(sum, k, json_real(number(json_array_get(sum, k), key) + term));
        }
        free(part);
    }
    return sum;
}

static void check_interior(const network_case *c)
{
    const json_t *expected = get(c->expected, "interior");
    const point_set *set = &c->sets[0];
    const int channels = c->shape.inputs + 2;
    double *values = forward(c, set, channels);
    check_channel(c, "value", set, values, channels, 0, expected, "value");
    for (int i = 0; i < c->shape.inputs; i++)
        check_channel(c, c->problem->inputs[i], set, values, channels, 1 + i, get(expected, "d1"),
                      c->problem->inputs[i]);
    json_t *second = json_object();
    json_object_set_new(second, "d2", combined_second(c, get(expected, "d2")));
    check_channel(c, "second derivative", set, values, channels, channels - 1, second, "d2");
    json_decref(second);

    double *r = golden_memory((size_t)(PINN_MAX_COMPONENTS * set->count), sizeof *r);
    c->problem->terms[0].residual(set->count, set->count, set->x, values, r);
    json_t *list, *residual = golden_object(&place, expected, "residual");
    const char *key;
    int component = 0;
    if (json_object_size(residual) != (size_t)c->problem->terms[0].components)
        golden_malformed(&place, "\"residual\" has %zu components where %d were expected", json_object_size(residual),
                         c->problem->terms[0].components);
    json_object_foreach(residual, key, list)
    {
        check_list(key, r + component * set->count, (size_t)set->count, residual, key, tolerance(c, 1e-12, 1e-5));
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
    check_channel(c, what->name, set, values, 1, 0, get(c->expected, what->name), "value");
    char key[32];
    snprintf(key, sizeof key, "%s_target", what->name);
    double *target = golden_memory((size_t)(c->shape.outputs * set->count), sizeof *target);
    what->target(set->count, set->count, set->x, target);
    double *rows = golden_memory((size_t)(c->shape.outputs * set->count), sizeof *rows);
    for (int k = 0; k < set->count; k++)
        for (int o = 0; o < c->shape.outputs; o++)
            rows[k * c->shape.outputs + o] = target[o * set->count + k];
    const size_t n = (size_t)(c->shape.outputs * set->count);
    double *given = exactly(get(c->root, "points"), key, n);
    double scale = 0;
    for (size_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(given[i]));
    if (scale > 0) {
        check(key, rows, given, n, 1e-12);
    } else {
        for (size_t i = 0; i < n; i++) /* targets that are all zero have no scale: exactly zero */
            rows[i] += 1, given[i] += 1;
        check(key, rows, given, n, 0);
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
        golden_malformed(&place, "no memory for the network");
    for (int t = 0; t < c->problem->n_terms; t++)
        if (!pinn_batch_set_points(batch, t, c->sets[t].count, c->sets[t].x))
            golden_malformed(&place, "no memory for the network");
    const size_t n = net_parameters(&c->shape);
    void *rows[PINN_MAX_TERMS];
    double *gradient[PINN_MAX_TERMS], found[PINN_MAX_TERMS], terms[PINN_MAX_TERMS],
        gram[PINN_MAX_TERMS * PINN_MAX_TERMS];
    for (int i = 0; i < n_losses; i++) {
        rows[i] = golden_memory(n, c->kernels->real_size);
        gradient[i] = golden_memory(n, sizeof(double));
    }
    pinn_batch_gradients(batch, c->theta, 0, 0, terms, found, rows);
    for (int i = 0; i < n_losses; i++) {
        char name[64];
        net_load(c->kernels->real, rows[i], 0, gradient[i], n);
        snprintf(name, sizeof name, "%d losses, loss %s", n_losses, losses[i].name);
        const double expected = field(get(c->expected, "loss"), losses[i].name);
        check(name, &found[i], &expected, 1, tolerance(c, 1e-12, 1e-5));
        snprintf(name, sizeof name, "%d losses, gradient %s", n_losses, losses[i].name);
        check_list(name, gradient[i], n, get(c->expected, "gradient"), losses[i].name, tolerance(c, 1e-11, 5e-5));
        for (int j = 0; j <= i; j++) {
            double sum = 0;
            for (size_t k = 0; k < n; k++)
                sum += gradient[i][k] * gradient[j][k];
            gram[i * n_losses + j] = gram[j * n_losses + i] = sum;
        }
    }
    for (int t = 0; t < c->problem->n_terms; t++) {
        const double expected = field(get(c->expected, "loss"), c->problem->terms[t].name);
        check(c->problem->terms[t].name, &terms[t], &expected, 1, tolerance(c, 1e-12, 1e-5));
    }
    const char key[] = {(char)('0' + n_losses), 0};
    check_list("gram", gram, (size_t)(n_losses * n_losses), get(c->expected, "gram"), key, tolerance(c, 1e-11, 5e-5));
    for (int i = 0; i < n_losses; i++) {
        free(rows[i]);
        free(gradient[i]);
    }
    pinn_batch_destroy(batch);
    pinn_pool_destroy(pool);
}

static void check_scores(const network_case *c)
{
    const json_t *expected = get(c->root, "evaluation");
    pinn_pool *pool = pinn_pool_create(2);
    pinn_evaluation *evaluation = pool ? pinn_evaluation_create(pool, c->kernels, &c->shape, c->problem) : NULL;
    if (!evaluation)
        golden_malformed(&place, "no memory for the network");
    const pinn_scores scores = pinn_evaluate(evaluation, c->theta);
    const double tol = tolerance(c, 1e-10, 1e-5);
    check_one("points", (double)pinn_evaluation_points(evaluation), expected, 0);
    check_one("mse", scores.mse, expected, tol);
    check_one("selection_mse", scores.selection_mse, expected, tol);
    check_one("reference_norm", scores.reference_norm, expected, tol);
    check_one("relative_l2", scores.relative_l2, expected, tol);
    pinn_evaluation_destroy(evaluation);
    pinn_pool_destroy(pool);
}

static void check_reference(json_t *root, const pinn_problem *problem)
{
    const json_t *reference = get(root, "reference");
    const point_set set = read_points(reference, "points", problem->n_inputs);
    double *value = golden_memory((size_t)(problem->n_outputs * set.count), sizeof *value);
    double *rows = golden_memory((size_t)(problem->n_outputs * set.count), sizeof *rows);
    problem->reference(set.count, set.count, set.x, value);
    for (int k = 0; k < set.count; k++)
        for (int o = 0; o < problem->n_outputs; o++)
            rows[k * problem->n_outputs + o] = value[o * set.count + k];
    check_list("reference", rows, (size_t)(problem->n_outputs * set.count), reference, "value", 1e-10);
    free(rows);
    free(value);
    free(set.x);
}

static void run_network(json_t *root, const pinn_problem *problem, const net_kernels *kernels)
{
    network_case c = {.root = root, .problem = problem, .kernels = kernels, .f64 = kernels->real == NET_F64};
    golden_at(&place, "%s %s %s", problem->name, c.f64 ? "f64" : "f32", kernels->isa);
    c.expected = get(root, "expected");
    const json_t *network = get(root, "network");
    size_t n_layers, n_theta;
    double *layers = numbers(network, "layers", &n_layers), *theta = numbers(network, "theta", &n_theta);
    for (size_t i = 0; i < n_layers; i++)
        if (!(layers[i] >= 1 && layers[i] <= NET_MAX_WIDTH) || layers[i] != floor(layers[i]))
            golden_malformed(&place, "\"layers\" holds %g; it must be an integer in 1..%d", layers[i], NET_MAX_WIDTH);
    if (n_layers < 3)
        golden_malformed(&place, "\"layers\" has %zu entries where at least 3 were expected", n_layers);
    c.shape = (net_shape){.inputs = (int)layers[0],
                          .width = (int)layers[1],
                          .hidden = (int)n_layers - 2,
                          .outputs = (int)layers[n_layers - 1]};
    if (c.shape.inputs != problem->n_inputs || c.shape.outputs != problem->n_outputs ||
        net_parameters(&c.shape) != n_theta)
        golden_malformed(&place, "\"layers\" and \"theta\" do not belong to one network of this problem");
    c.theta = golden_memory(n_theta, kernels->real_size);
    net_store(kernels->real, c.theta, 0, theta, n_theta);
    for (int t = 0; t < problem->n_terms; t++)
        c.sets[t] = read_points(get(root, "points"), problem->terms[t].name, problem->n_inputs);

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

static void run_problem(json_t *root)
{
    const char *name = golden_text(&place, root, "problem");
    const pinn_problem *problem = pinn_problem_find(name);
    if (!problem) {
        printf("SKIPPED %s: the problem %s is not built\n", place.path, name);
        count.skipped++;
        return;
    }
    golden_at(&place, "%s", name);
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
    json_array_foreach(golden_array(&place, root, "runs"), r, run)
    {
        golden_at(&place, "conflict run %zu", r);
        const int m = (int)golden_integer(&place, run, "losses", 1, SUT_MAX_LOSSES);
        pinn_statistics statistics = {0};
        json_array_foreach(golden_array(&place, run, "steps"), s, step)
        {
            size_t n;
            double *a = numbers(step, "a", &n), *u = exactly(step, "u", n), *p = exactly(step, "p", n);
            double *G = exactly(step, "G", (size_t)m * n);
            const double *rows[SUT_MAX_LOSSES];
            for (int i = 0; i < m; i++)
                rows[i] = G + (size_t)i * n;
            sut_report report;
            memset(&report, 0, sizeof report);
            pinn_statistics_measure(&report, field(step, "lr"), rows, m, a, u, p, (int64_t)n);
            pinn_statistics_add(&statistics, &report);
            if (golden_bool(&place, step, "counted")) {
                double one = 1, zero = 0;
                check_list("cos_a", report.cos_a, (size_t)m, step, "cos_a", 1e-12);
                check_list("cos_u", report.cos_u, (size_t)m, step, "cos_u", 1e-12);
                const json_t *conflict = get(step, "conflict");
                const int found[] = {report.min_pair_cos < PINN_CONFLICT_COSINE, pinn_conflict(report.cos_a, m),
                                     pinn_conflict(report.cos_u, m), pinn_conflict(report.cos_p, m)};
                static const char *const keys[] = {"g", "a", "u", "p"};
                for (int k = 0; k < 4; k++)
                    check(keys[k], found[k] == golden_bool(&place, conflict, keys[k]) ? &one : &zero, &one, 1, 0);
                const double change = field(step, "relative_correction");
                if (change > 0)
                    check("relative_correction", &report.relative_change, &change, 1, 1e-12);
            }
            free(a);
            free(u);
            free(p);
            free(G);
        }
        const json_t *expected = get(run, "expected");
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
            check_one(rates[k].key, rates[k].value, expected, 1e-12);
    }
}

/* ---- schedules ---- */

static void run_schedule(json_t *root)
{
    size_t i;
    json_t *item;
    json_array_foreach(golden_array(&place, root, "cases"), i, item)
    {
        golden_at(&place, "schedule %zu", i);
        sut_schedule schedule;
        sut_schedule_init(&schedule, SUT_SCHEDULE_COSINE);
        schedule.peak = field(item, "lr");
        schedule.final_lr = field(item, "final_lr");
        schedule.warmup = golden_integer(&place, item, "warmup", 0, 1000000000);
        schedule.total = golden_integer(&place, item, "steps", 1, 1000000000);
        size_t n;
        double *steps = numbers(item, "step_index", &n), *found = golden_memory(n, sizeof *found);
        for (size_t k = 0; k < n; k++)
            if (!(fabs(steps[k]) < 1e15) || sut_schedule_lr(NULL, &schedule, (int64_t)steps[k], &found[k]) != SUT_OK)
                found[k] = NAN;
        check_list(golden_text(&place, item, "case"), found, n, item, "value", 1e-12);
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
        json_t *root = golden_load(&place, argv[i]);
        const char *format = golden_text(&place, root, "format");
        if (!strcmp(format, "suture-pinn-golden/1"))
            run_problem(root);
        else if (!strcmp(format, "suture-pinn-conflict/1"))
            run_conflict(root);
        else if (!strcmp(format, "suture-pinn-schedule/1"))
            run_schedule(root);
        else
            golden_malformed(&place, "the format \"%s\" is none that this program reads", format);
        json_decref(root);
    }
    return golden_finish(&count);
}
