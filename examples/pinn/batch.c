/* Losses and gradients of a step (see batch.h). */
#include "batch.h"

#include <stdlib.h>
#include <string.h>

enum {
    TILES_PER_TASK = 10, /* 16 tasks for 10,000 points: they share out evenly among few threads */
    MOST_TASKS = 256,    /* of a loss: each has a row of its own, which millions of points would pay with gigabytes */
    REDUCE_SLICE = 1024, /* parameters whose rows are added by one task */
    PIECE = 1024,        /* points of a device that are drawn by one task; even */
    STREAM_TERMS = 16,   /* first random stream of the terms */
    STREAMS_PER_TERM = 16
};

typedef struct tile_task {
    int loss, first, count; /* tiles of the loss, its terms one after the other */
    double *gradient;       /* double row of this task */
    double squares[PINN_MAX_TERMS];
} tile_task;

/* Working memory of one thread. */
typedef struct thread_memory {
    net_tile *tile;
    double *x, *value, *adjoint, *r, *target; /* [row][NET_MAX_TILE_POINTS] */
} thread_memory;

typedef struct term_points {
    int n_points;
    const double *given; /* NULL: drawn */
    double scale;        /* weight of a squared residual in the loss */
    pinn_axis axes[PINN_MAX_AXES];
    uint64_t stream;
} term_points;

/* What points a slot of the device holds. */
typedef struct slot_points {
    bool drawn;
    uint64_t seed;
    int64_t step;
} slot_points;

struct pinn_batch {
    pinn_pool *pool;
    const net_kernels *kernels;
    net_shape shape;
    const pinn_problem *problem;
    pinn_loss losses[PINN_MAX_TERMS];
    int n_losses;
    size_t n_parameters;
    int tile_points;
    term_points terms[PINN_MAX_TERMS];
    int n_tasks;
    tile_task *tasks;
    double *rows; /* n_tasks rows */
    int n_threads;
    thread_memory *threads;
    double *thread_doubles;
    void *packed;

    const pinn_device *device; /* NULL: the CPU */
    slot_points slots[PINN_CUDA_SLOTS];
    int slot;          /* that is used next */
    int64_t last_step; /* of the previous call */

    /* Of the call in progress. */
    const void *theta;
    void *const *gradients;
};

static int tiles_of(const pinn_batch *b, int term)
{
    return (b->terms[term].n_points + b->tile_points - 1) / b->tile_points;
}

static int tiles_of_loss(const pinn_batch *b, int loss)
{
    int tiles = 0;
    for (int t = 0; t < b->losses[loss].n_terms; t++)
        tiles += tiles_of(b, b->losses[loss].terms[t]);
    return tiles;
}

static int tiles_of_task(const pinn_batch *b, int loss)
{
    const int tiles = (tiles_of_loss(b, loss) + MOST_TASKS - 1) / MOST_TASKS;
    return tiles < TILES_PER_TASK ? TILES_PER_TASK : tiles;
}

static bool plan_device(pinn_batch *b)
{
    pinn_cuda_term terms[PINN_CUDA_TERMS];
    for (int k = 0; k < b->problem->n_terms; k++) {
        int loss = -1;
        for (int i = 0; i < b->n_losses; i++)
            for (int t = 0; t < b->losses[i].n_terms; t++)
                if (b->losses[i].terms[t] == k)
                    loss = i;
        terms[k] = (pinn_cuda_term){.n_points = b->terms[k].n_points,
                                    .derivatives = b->problem->terms[k].derivatives,
                                    .loss = loss,
                                    .scale = b->terms[k].scale};
    }
    for (int i = 0; i < PINN_CUDA_SLOTS; i++)
        b->slots[i].drawn = false;
    b->last_step = -1;
    return b->device->calls->set_terms(b->device->network, terms, b->problem->n_terms, b->n_losses);
}

/* Cut the losses into tasks; called again when the number of points changes. */
static bool plan(pinn_batch *b)
{
    b->n_tasks = 0;
    for (int loss = 0; loss < b->n_losses; loss++)
        b->n_tasks += (tiles_of_loss(b, loss) + tiles_of_task(b, loss) - 1) / tiles_of_task(b, loss);
    free(b->tasks);
    free(b->rows);
    b->tasks = NULL;
    b->rows = NULL;
    if (b->n_tasks == 0)
        return false;
    b->tasks = calloc((size_t)b->n_tasks, sizeof *b->tasks);
    b->rows = aligned_alloc(NET_LINE, ((size_t)b->n_tasks * b->n_parameters * sizeof(double) + NET_LINE - 1) /
                                          NET_LINE * NET_LINE);
    if (!b->tasks || !b->rows)
        return false;
    tile_task *task = b->tasks;
    for (int loss = 0; loss < b->n_losses; loss++) {
        const int tiles = tiles_of_loss(b, loss), most = tiles_of_task(b, loss);
        for (int first = 0; first < tiles; first += most, task++) {
            task->loss = loss;
            task->first = first;
            task->count = tiles - first < most ? tiles - first : most;
            task->gradient = b->rows + (size_t)(task - b->tasks) * b->n_parameters;
        }
        /* A pooled mean runs over the entries of all its terms, a sum of means over each term's own. */
        double pooled = 0;
        for (int t = 0; t < b->losses[loss].n_terms; t++) {
            const int k = b->losses[loss].terms[t];
            pooled += b->terms[k].n_points * b->problem->terms[k].averaged;
        }
        for (int t = 0; t < b->losses[loss].n_terms; t++) {
            const int k = b->losses[loss].terms[t];
            b->terms[k].scale =
                1 / (b->problem->pooled ? pooled : b->terms[k].n_points * b->problem->terms[k].averaged);
        }
    }
    return !b->device || plan_device(b);
}

static bool create_threads(pinn_batch *b)
{
    const size_t inputs = (size_t)b->shape.inputs, outputs = (size_t)b->shape.outputs;
    const size_t rows = inputs + 2 * outputs * (inputs + 2) + PINN_MAX_COMPONENTS + outputs;
    b->threads = calloc((size_t)b->n_threads, sizeof *b->threads);
    b->thread_doubles = calloc((size_t)b->n_threads * rows * NET_MAX_TILE_POINTS, sizeof(double));
    if (!b->threads || !b->thread_doubles)
        return false;
    double *next = b->thread_doubles;
    for (int i = 0; i < b->n_threads; i++) {
        thread_memory *const t = &b->threads[i];
        t->x = next, next += inputs * NET_MAX_TILE_POINTS;
        t->value = next, next += outputs * (inputs + 2) * NET_MAX_TILE_POINTS;
        t->adjoint = next, next += outputs * (inputs + 2) * NET_MAX_TILE_POINTS;
        t->r = next, next += PINN_MAX_COMPONENTS * NET_MAX_TILE_POINTS;
        t->target = next, next += outputs * NET_MAX_TILE_POINTS;
        t->tile = net_tile_create(&b->shape, b->shape.inputs + 2);
        if (!t->tile)
            return false;
    }
    return true;
}

pinn_batch *pinn_batch_create(pinn_pool *pool, const net_kernels *kernels, const net_shape *shape,
                              const pinn_problem *problem, const pinn_loss *losses, int n_losses, int interior)
{
    pinn_batch *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->pool = pool;
    b->kernels = kernels;
    b->shape = *shape;
    b->problem = problem;
    b->n_losses = n_losses;
    memcpy(b->losses, losses, (size_t)n_losses * sizeof *losses);
    b->n_parameters = net_parameters(shape);
    b->tile_points = NET_TILE_BLOCKS * kernels->lanes;
    b->n_threads = pinn_pool_threads(pool);
    b->packed = aligned_alloc(NET_LINE, (kernels->packed_size(shape) + NET_LINE - 1) / NET_LINE * NET_LINE);
    bool ok = b->packed != NULL;
    for (int k = 0; k < problem->n_terms; k++) {
        const bool other = k == 0 && interior > 0;
        b->terms[k].n_points = other ? interior : problem->terms[k].n_points;
        for (int i = 0; i < problem->terms[k].n_axes; i++) {
            pinn_axis *const axis = &b->terms[k].axes[i];
            axis->n = other ? interior : problem->terms[k].axes[i]; /* of interior points: one stratum each */
            axis->permutation = malloc((size_t)axis->n * sizeof *axis->permutation);
            ok &= axis->permutation != NULL;
        }
    }
    if (!ok || !create_threads(b) || !plan(b)) {
        pinn_batch_destroy(b);
        return NULL;
    }
    return b;
}

void pinn_batch_destroy(pinn_batch *b)
{
    if (!b)
        return;
    for (int k = 0; k < PINN_MAX_TERMS; k++)
        for (int i = 0; i < PINN_MAX_AXES; i++)
            free(b->terms[k].axes[i].permutation);
    for (int i = 0; b->threads && i < b->n_threads; i++)
        net_tile_destroy(b->threads[i].tile);
    free(b->threads);
    free(b->thread_doubles);
    free(b->tasks);
    free(b->rows);
    free(b->packed);
    free(b);
}

bool pinn_batch_use_device(pinn_batch *b, const pinn_device *device)
{
    b->device = device;
    return plan(b);
}

bool pinn_batch_set_points(pinn_batch *b, int term, int n_points, const double *x)
{
    b->terms[term].n_points = n_points;
    b->terms[term].given = x;
    return plan(b);
}

/* Where the random numbers of a step begin. */
static void set_streams(pinn_batch *b, uint64_t seed, int64_t step)
{
    for (int k = 0; k < b->problem->n_terms; k++) {
        const uint64_t stream = STREAM_TERMS + (uint64_t)k * STREAMS_PER_TERM;
        b->terms[k].stream = pinn_stream(seed, stream, (uint64_t)step);
        for (int i = 0; i < b->problem->terms[k].n_axes; i++)
            b->terms[k].axes[i].stream = pinn_stream(seed, stream + 1 + (uint64_t)i, (uint64_t)step);
    }
}

/* One permutation. */
static void shuffle(void *argument, int task, int worker)
{
    pinn_batch *const b = argument;
    (void)worker;
    const int term = task / PINN_MAX_AXES, axis = task % PINN_MAX_AXES;
    if (axis < b->problem->terms[term].n_axes && !b->terms[term].given)
        pinn_axis_shuffle(&b->terms[term].axes[axis]);
}

/* Task 0 rearranges the weights, the others draw one permutation each. */
static void prepare(void *argument, int task, int worker)
{
    pinn_batch *const b = argument;
    if (task == 0)
        b->kernels->pack(&b->shape, b->theta, b->packed);
    else
        shuffle(argument, task - 1, worker);
}

/* One tile: points, forward sweep, residual, reverse sweep. Returns the sum of squared residuals. */
static double run_tile(const pinn_batch *b, thread_memory *t, int term, int first, double *gradient)
{
    enum { STRIDE = NET_MAX_TILE_POINTS };
    const pinn_term *const what = &b->problem->terms[term];
    const term_points *const points = &b->terms[term];
    const int count = points->n_points - first < b->tile_points ? points->n_points - first : b->tile_points;
    if (points->given)
        for (int i = 0; i < b->shape.inputs; i++)
            memcpy(t->x + i * STRIDE, points->given + (size_t)i * (size_t)points->n_points + first,
                   (size_t)count * sizeof(double));
    else
        what->sample(&(pinn_draw){points->axes, points->stream, points->n_points}, first, count, t->x, STRIDE);

    t->tile->channels = what->derivatives ? b->shape.inputs + 2 : 1;
    b->kernels->put_points(&b->shape, t->tile, t->x, count, STRIDE);
    b->kernels->forward(&b->shape, b->problem->kappa, b->theta, b->packed, t->tile);
    b->kernels->get_output(&b->shape, t->tile, t->value, count, STRIDE);

    if (what->target) {
        what->target(count, STRIDE, t->x, t->target);
        for (int c = 0; c < what->components; c++)
            for (int k = 0; k < count; k++)
                t->r[c * STRIDE + k] = t->value[c * t->tile->channels * STRIDE + k] - t->target[c * STRIDE + k];
    } else
        what->residual(count, STRIDE, t->x, t->value, t->r);

    double squares = 0;
    for (int c = 0; c < what->components; c++)
        for (int k = 0; k < count; k++) {
            double *const r = &t->r[c * STRIDE + k];
            squares += *r * *r;
            *r *= 2 * points->scale; /* from here on e = d loss / d r */
        }
    const double *adjoint = t->r;
    if (!what->target) {
        what->adjoint(count, STRIDE, t->x, t->value, t->r, t->adjoint);
        adjoint = t->adjoint;
    }
    b->kernels->put_adjoint(&b->shape, t->tile, adjoint, count, STRIDE);
    b->kernels->reverse(&b->shape, b->problem->kappa, b->packed, t->tile, gradient);
    return squares;
}

static void run_tiles(void *argument, int index, int worker)
{
    pinn_batch *const b = argument;
    tile_task *const task = &b->tasks[index];
    memset(task->gradient, 0, b->n_parameters * sizeof(double));
    memset(task->squares, 0, sizeof task->squares);
    const pinn_loss *const loss = &b->losses[task->loss];
    int tile = task->first, end = task->first + task->count;
    for (int t = 0; t < loss->n_terms && tile < end; t++) {
        const int term = loss->terms[t], tiles = tiles_of(b, term);
        for (; tile < end && tile < tiles; tile++)
            task->squares[term] += run_tile(b, &b->threads[worker], term, tile * b->tile_points, task->gradient);
        tile -= tiles, end -= tiles; /* counted from the next term's first tile */
    }
}

static void add_rows(void *argument, int slice, int worker)
{
    pinn_batch *const b = argument;
    (void)worker;
    const size_t first = (size_t)slice * REDUCE_SLICE;
    const size_t count = b->n_parameters - first < REDUCE_SLICE ? b->n_parameters - first : REDUCE_SLICE;
    double sum[REDUCE_SLICE];
    for (int task = 0; task < b->n_tasks;) {
        const int loss = b->tasks[task].loss;
        memcpy(sum, b->tasks[task++].gradient + first, count * sizeof(double));
        for (; task < b->n_tasks && b->tasks[task].loss == loss; task++)
            for (size_t j = 0; j < count; j++)
                sum[j] += b->tasks[task].gradient[first + j];
        net_store(b->kernels->real, b->gradients[loss], first, sum, count);
    }
}

static int pieces_of(const pinn_batch *b, int term)
{
    return (b->terms[term].n_points + PIECE - 1) / PIECE;
}

/* Points and targets of one piece, into the slot that is being filled. */
static void draw_piece(void *argument, int task, int worker)
{
    pinn_batch *const b = argument;
    (void)worker;
    int term = 0;
    for (; task >= pieces_of(b, term); term++)
        task -= pieces_of(b, term);
    const pinn_term *const what = &b->problem->terms[term];
    const term_points *const points = &b->terms[term];
    const int n = points->n_points, first = task * PIECE, count = n - first < PIECE ? n - first : PIECE;
    double *const x = b->device->calls->points(b->device->network, b->slot, term) + first;
    if (points->given)
        for (int i = 0; i < b->shape.inputs; i++)
            memcpy(x + (size_t)i * (size_t)n, points->given + (size_t)i * (size_t)n + first,
                   (size_t)count * sizeof(double));
    else
        what->sample(&(pinn_draw){points->axes, points->stream, n}, first, count, x, n);
    if (what->target)
        what->target(count, n, x, b->device->calls->targets(b->device->network, b->slot, term) + first);
}

/* The slot with the points of (seed, step), which are drawn unless they are there. */
static int fill_slot(pinn_batch *b, uint64_t seed, int64_t step)
{
    for (int i = 0; i < PINN_CUDA_SLOTS; i++)
        if (b->slots[i].drawn && b->slots[i].seed == seed && b->slots[i].step == step)
            return i;
    set_streams(b, seed, step);
    int pieces = 0;
    for (int k = 0; k < b->problem->n_terms; k++)
        pieces += pieces_of(b, k);
    pinn_pool_run(b->pool, b->problem->n_terms * PINN_MAX_AXES, shuffle, b);
    pinn_pool_run(b->pool, pieces, draw_piece, b);
    const int filled = b->slot;
    b->slots[filled] = (slot_points){true, seed, step};
    b->slot = (filled + 1) % PINN_CUDA_SLOTS;
    return filled;
}

/* Where one step follows the other, the next one's points are drawn while the device is at work. */
static bool device_gradients(pinn_batch *b, const void *theta, uint64_t seed, int64_t step, double *squares,
                             void *const *gradients)
{
    const pinn_cuda_library *const calls = b->device->calls;
    const int slot = fill_slot(b, seed, step);
    b->slot = (slot + 1) % PINN_CUDA_SLOTS;
    if (!calls->gradients(b->device->network, slot, theta, gradients))
        return false;
    if (step == b->last_step + 1)
        (void)fill_slot(b, seed, step + 1);
    b->last_step = step;
    return calls->squares(b->device->network, squares);
}

static void host_gradients(pinn_batch *b, const void *theta, uint64_t seed, int64_t step, double *squares,
                           void *const *gradients)
{
    b->theta = theta;
    b->gradients = gradients;
    set_streams(b, seed, step);
    pinn_pool_run(b->pool, 1 + b->problem->n_terms * PINN_MAX_AXES, prepare, b);
    pinn_pool_run(b->pool, b->n_tasks, run_tiles, b);
    pinn_pool_run(b->pool, (int)((b->n_parameters + REDUCE_SLICE - 1) / REDUCE_SLICE), add_rows, b);

    for (int i = 0; i < b->n_tasks; i++)
        for (int k = 0; k < b->problem->n_terms; k++)
            squares[k] += b->tasks[i].squares[k];
}

bool pinn_batch_gradients(pinn_batch *b, const void *theta, uint64_t seed, int64_t step, double *terms, double *losses,
                          void *const *gradients)
{
    double squares[PINN_MAX_TERMS] = {0};
    if (!b->device)
        host_gradients(b, theta, seed, step, squares, gradients);
    else if (!device_gradients(b, theta, seed, step, squares, gradients))
        return false;
    for (int k = 0; k < b->problem->n_terms; k++)
        terms[k] = squares[k] / (b->terms[k].n_points * b->problem->terms[k].averaged);
    for (int i = 0; i < b->n_losses; i++) {
        losses[i] = 0;
        for (int t = 0; t < b->losses[i].n_terms; t++)
            losses[i] += squares[b->losses[i].terms[t]] * b->terms[b->losses[i].terms[t]].scale;
    }
    return true;
}
