/* Scores on the evaluation set (see evaluate.h). Sums are taken per task in double and added in order. */
#include "evaluate.h"

#include <math.h>
#include <stdlib.h>

enum { TASK_TILES = 16 };

typedef struct partial {
    double error, reference, extra; /* sums of squares */
} partial;

struct pinn_evaluation {
    pinn_pool *pool;
    const net_kernels *kernels;
    net_shape shape;
    const pinn_problem *problem;
    int64_t n_points;
    int tile_points, n_tasks;
    double *reference, *prediction; /* [output][point] */
    partial *partials;
    net_tile **tiles;
    int n_threads;
    void *packed;
    const pinn_device *device; /* NULL: the CPU */
    const void *theta;         /* of the call in progress */
};

/* Points of one tile, in x rows of NET_MAX_TILE_POINTS; returns how many. */
static int tile_points(const pinn_evaluation *e, int64_t first, double *x)
{
    const int64_t left = e->n_points - first;
    const int count = left < e->tile_points ? (int)left : e->tile_points;
    for (int k = 0; k < count; k++) {
        double point[NET_MAX_INPUTS];
        pinn_grid_at(e->problem, first + k, point);
        for (int i = 0; i < e->shape.inputs; i++)
            x[i * NET_MAX_TILE_POINTS + k] = point[i];
    }
    return count;
}

static void reference_task(void *argument, int task, int worker)
{
    pinn_evaluation *const e = argument;
    (void)worker;
    double x[NET_MAX_INPUTS * NET_MAX_TILE_POINTS], value[NET_MAX_OUTPUTS * NET_MAX_TILE_POINTS];
    for (int t = 0; t < TASK_TILES; t++) {
        const int64_t first = ((int64_t)task * TASK_TILES + t) * e->tile_points;
        if (first >= e->n_points)
            return;
        const int count = tile_points(e, first, x);
        e->problem->reference(count, NET_MAX_TILE_POINTS, x, value);
        for (int o = 0; o < e->shape.outputs; o++)
            for (int k = 0; k < count; k++)
                e->reference[o * e->n_points + first + k] = value[o * NET_MAX_TILE_POINTS + k];
    }
}

/* The network on a tile; returns how many points it has. */
static int predict(const pinn_evaluation *e, net_tile *tile, int64_t first, double *value)
{
    double x[NET_MAX_INPUTS * NET_MAX_TILE_POINTS];
    const int count = tile_points(e, first, x);
    tile->channels = 1;
    e->kernels->put_points(&e->shape, tile, x, count, NET_MAX_TILE_POINTS);
    e->kernels->forward(&e->shape, e->problem->kappa, e->theta, e->packed, tile);
    e->kernels->get_output(&e->shape, tile, value, count, NET_MAX_TILE_POINTS);
    return count;
}

/* The same from what the device left in `prediction`. */
static int predicted(const pinn_evaluation *e, int64_t first, double *value)
{
    const int64_t left = e->n_points - first;
    const int count = left < e->tile_points ? (int)left : e->tile_points;
    for (int o = 0; o < e->shape.outputs; o++)
        for (int k = 0; k < count; k++)
            value[o * NET_MAX_TILE_POINTS + k] = e->prediction[o * e->n_points + first + k];
    return count;
}

static void score_task(void *argument, int task, int worker)
{
    pinn_evaluation *const e = argument;
    net_tile *const tile = e->tiles[worker];
    double value[NET_MAX_OUTPUTS * NET_MAX_TILE_POINTS];
    double reference[NET_MAX_OUTPUTS * NET_MAX_TILE_POINTS];
    partial sum = {0};
    for (int t = 0; t < TASK_TILES; t++) {
        const int64_t first = ((int64_t)task * TASK_TILES + t) * e->tile_points;
        if (first >= e->n_points)
            break;
        const int count = e->device ? predicted(e, first, value) : predict(e, tile, first, value);
        for (int o = 0; o < e->shape.outputs; o++)
            for (int k = 0; k < count; k++) {
                const double v = value[o * NET_MAX_TILE_POINTS + k], u = e->reference[o * e->n_points + first + k];
                reference[o * NET_MAX_TILE_POINTS + k] = u;
                e->prediction[o * e->n_points + first + k] = v;
                sum.error += (v - u) * (v - u);
                sum.reference += u * u;
            }
        if (e->problem->extra_error)
            sum.extra += e->problem->extra_error(count, NET_MAX_TILE_POINTS, value, reference);
    }
    e->partials[task] = sum;
}

pinn_evaluation *pinn_evaluation_create(pinn_pool *pool, const net_kernels *kernels, const net_shape *shape,
                                        const pinn_problem *problem)
{
    pinn_evaluation *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->pool = pool;
    e->kernels = kernels;
    e->shape = *shape;
    e->problem = problem;
    e->n_points = pinn_grid_size(problem);
    e->tile_points = NET_TILE_BLOCKS * kernels->lanes;
    const int64_t task_points = (int64_t)TASK_TILES * e->tile_points;
    e->n_tasks = (int)((e->n_points + task_points - 1) / task_points);
    e->n_threads = pinn_pool_threads(pool);
    const size_t values = (size_t)e->n_points * (size_t)shape->outputs;
    e->reference = malloc(values * sizeof(double));
    e->prediction = malloc(values * sizeof(double));
    e->partials = calloc((size_t)e->n_tasks, sizeof *e->partials);
    e->tiles = calloc((size_t)e->n_threads, sizeof(net_tile *));
    e->packed = aligned_alloc(NET_LINE, (kernels->packed_size(shape) + NET_LINE - 1) / NET_LINE * NET_LINE);
    bool ok = e->reference && e->prediction && e->partials && e->tiles && e->packed;
    for (int i = 0; ok && i < e->n_threads; i++)
        ok = (e->tiles[i] = net_tile_create(shape, 1)) != NULL;
    if (!ok) {
        pinn_evaluation_destroy(e);
        return NULL;
    }
    pinn_pool_run(pool, e->n_tasks, reference_task, e);
    return e;
}

void pinn_evaluation_destroy(pinn_evaluation *e)
{
    if (!e)
        return;
    for (int i = 0; e->tiles && i < e->n_threads; i++)
        net_tile_destroy(e->tiles[i]);
    free(e->tiles);
    free(e->reference);
    free(e->prediction);
    free(e->partials);
    free(e->packed);
    free(e);
}

bool pinn_evaluation_use_device(pinn_evaluation *e, const pinn_device *device)
{
    const int64_t n = e->n_points;
    double *const x = malloc((size_t)n * (size_t)e->shape.inputs * sizeof *x);
    if (!x)
        return false;
    for (int64_t k = 0; k < n; k++) {
        double point[NET_MAX_INPUTS];
        pinn_grid_at(e->problem, k, point);
        for (int i = 0; i < e->shape.inputs; i++)
            x[i * n + k] = point[i];
    }
    e->device = device;
    const bool ok = device->calls->set_grid(device->network, n, x);
    free(x);
    return ok;
}

pinn_scores pinn_evaluate(pinn_evaluation *e, const void *theta)
{
    e->theta = theta;
    if (e->device && !e->device->calls->evaluate(e->device->network, theta, e->prediction))
        return (pinn_scores){NAN, NAN, NAN, NAN};
    if (!e->device)
        e->kernels->pack(&e->shape, theta, e->packed);
    pinn_pool_run(e->pool, e->n_tasks, score_task, e);
    partial sum = {0};
    for (int i = 0; i < e->n_tasks; i++) {
        sum.error += e->partials[i].error;
        sum.reference += e->partials[i].reference;
        sum.extra += e->partials[i].extra;
    }
    const double n = (double)e->n_points, m = e->shape.outputs + (e->problem->extra_error ? 1 : 0);
    return (pinn_scores){.selection_mse = sum.error / (n * e->shape.outputs),
                         .mse = (sum.error + sum.extra) / (n * m),
                         .relative_l2 = sqrt(sum.error) / sqrt(sum.reference),
                         .reference_norm = sqrt(sum.reference)};
}

const double *pinn_evaluation_prediction(const pinn_evaluation *e)
{
    return e->prediction;
}

const double *pinn_evaluation_reference(const pinn_evaluation *e)
{
    return e->reference;
}

int64_t pinn_evaluation_points(const pinn_evaluation *e)
{
    return e->n_points;
}
