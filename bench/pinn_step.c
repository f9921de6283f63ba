/*
 * Time of one Burgers training step of suture-pinn: 10,000 interior and 500 data points, network 2-50x5-1, f32.
 *
 *   bench/pinn_step [--threads T] [--seconds S] [--isa NAME]
 *
 *   gradients   points, forward sweep, residuals, reverse sweep, for 1 .. T threads (default 2)
 *   step        the same, then ConFIG + Adam + GUA through the library
 *   tanh        the tanh of a step alone, on one thread
 *   sgemm       the matrix products of a step alone, on one thread, through the installed BLAS: 64 points times four
 *               channels in the columns, the larger part of what a network built on BLAS would take
 *
 * Each figure is the best and the median of at least nine repetitions; `cpu` is the best processor time of all threads,
 * which other programs on the same cores disturb less. GFLOP/s counts the products of the four square layers, 60,000
 * operations for each point and channel. The gradients are compared with f64 before anything is timed.
 */
#include "batch.h"

#include "suture/suture.h"

#include <cblas.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { POINTS = 10000, DATA = 500, CHANNELS = 4, WIDTH = 50, SQUARE_LAYERS = 4, TANH_LAYERS = 5, MOST = 4096 };

static const double flop = (double)SQUARE_LAYERS * 3 * 2 * WIDTH * WIDTH * (POINTS * CHANNELS + DATA);
static double budget = 2; /* seconds for one figure */

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *memory(size_t count, size_t size)
{
    void *const p = aligned_alloc(NET_LINE, (count * size + NET_LINE - 1) / NET_LINE * NET_LINE);
    if (!p) {
        fprintf(stderr, "pinn_step: out of memory\n");
        exit(1);
    }
    memset(p, 0, count * size);
    return p;
}

typedef struct step {
    const net_kernels *kernels;
    net_shape shape;
    pinn_pool *pool;
    pinn_batch *batch;
    void *theta, *gradients[2];
    double terms[PINN_MAX_TERMS], losses[2];
    int64_t number; /* of the next draw of points */
    sut_context *context;
    sut_optimizer *optimizer;
} step;

static step make(const net_kernels *kernels, int threads)
{
    const pinn_problem *const problem = pinn_problem_find("burgers");
    step s = {.kernels = kernels, .shape = pinn_problem_shape(problem), .pool = pinn_pool_create(threads)};
    const size_t n = net_parameters(&s.shape);
    pinn_loss losses[PINN_MAX_TERMS];
    pinn_problem_split(problem, 2, losses);
    s.batch = s.pool ? pinn_batch_create(s.pool, kernels, &s.shape, problem, losses, 2, POINTS) : NULL;
    if (!s.batch) {
        fprintf(stderr, "pinn_step: out of memory\n");
        exit(1);
    }
    double *const start = memory(n, sizeof *start);
    s.theta = memory(n, kernels->real_size);
    pinn_initialise(&s.shape, 0, start);
    net_store(kernels->real, s.theta, 0, start, n);
    free(start);
    for (int i = 0; i < 2; i++)
        s.gradients[i] = memory(n, kernels->real_size);

    sut_context_config context;
    sut_context_config_init(&context);
    context.n_threads = threads;
    const sut_tensor tensor = {.data = s.theta,
                               .dtype = kernels->real == NET_F32 ? SUT_DTYPE_F32 : SUT_DTYPE_F64,
                               .n_dims = 1,
                               .shape = {(int64_t)n},
                               .name = "theta"};
    sut_optimizer_config config;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAM);
    config.tensors = &tensor;
    config.n_tensors = 1;
    config.n_losses = 2;
    config.surgery.method = SUT_SURGERY_CONFIG;
    config.align = SUT_ALIGN_GUA;
    config.hyper.lr = 1e-4;
    if (sut_context_create(&s.context, &context) != SUT_OK ||
        sut_optimizer_create(&s.optimizer, s.context, &config) != SUT_OK) {
        fprintf(stderr, "pinn_step: %s\n", s.context ? sut_context_last_error(s.context) : "no context");
        exit(1);
    }
    return s;
}

static void destroy(step *s)
{
    sut_optimizer_destroy(s->optimizer);
    sut_context_destroy(s->context);
    pinn_batch_destroy(s->batch);
    pinn_pool_destroy(s->pool);
    free(s->theta);
    free(s->gradients[0]);
    free(s->gradients[1]);
}

static void gradients(void *argument)
{
    step *const s = argument;
    pinn_batch_gradients(s->batch, s->theta, 0, s->number++, s->terms, s->losses, s->gradients);
}

static void whole_step(void *argument)
{
    step *const s = argument;
    gradients(s);
    if (sut_optimizer_step(s->optimizer, (const void *const *)s->gradients, s->losses, NULL) != SUT_OK) {
        fprintf(stderr, "pinn_step: %s\n", sut_context_last_error(s->context));
        exit(1);
    }
}

/* Largest difference between the gradients in f32 and f64, relative to the largest entry. */
static double check(const net_kernels *kernels)
{
    step a = make(kernels, 1), b = make(net_kernels_find(NET_F64, kernels->isa), 1);
    const size_t n = net_parameters(&a.shape);
    double *const x = memory(n, sizeof *x), *const y = memory(n, sizeof *y), worst = 0;
    net_load(NET_F32, a.theta, 0, x, n); /* the same parameters, not those before rounding */
    net_store(NET_F64, b.theta, 0, x, n);
    gradients(&a);
    gradients(&b);
    for (int i = 0; i < 2; i++) {
        double size = 0, error = 0;
        net_load(NET_F32, a.gradients[i], 0, x, n);
        net_load(NET_F64, b.gradients[i], 0, y, n);
        for (size_t j = 0; j < n; j++) {
            size = fmax(size, fabs(y[j]));
            error = fmax(error, fabs(x[j] - y[j]));
        }
        worst = fmax(worst, size > 0 ? error / size : INFINITY);
    }
    destroy(&a);
    destroy(&b);
    free(x);
    free(y);
    return worst;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Prints one row; returns the best processor time. */
static double report(const char *name, int threads, double operations, void (*work)(void *), void *argument)
{
    static double wall[MOST];
    double cpu = INFINITY;
    int n = 0;
    work(argument);
    work(argument);
    for (const double begun = now(CLOCK_MONOTONIC); n < 9 || (n < MOST && now(CLOCK_MONOTONIC) - begun < budget);) {
        const double c = now(CLOCK_PROCESS_CPUTIME_ID), t = now(CLOCK_MONOTONIC);
        work(argument);
        wall[n++] = now(CLOCK_MONOTONIC) - t;
        cpu = fmin(cpu, now(CLOCK_PROCESS_CPUTIME_ID) - c);
    }
    qsort(wall, (size_t)n, sizeof wall[0], ascending);
    printf("%-10s %7d %10.2f %10.2f %10.2f", name, threads, 1e3 * wall[0], 1e3 * wall[n / 2], 1e3 * cpu);
    if (operations > 0)
        printf(" %10.1f", 1e-9 * operations / wall[0]);
    printf("\n");
    fflush(stdout);
    return cpu;
}

typedef struct tanh_work {
    const net_kernels *kernels;
    void *x;
} tanh_work;

static void tanh_of_a_step(void *argument)
{
    enum { LINES = 50 * NET_TILE_BLOCKS }; /* of a layer and tile */
    const tanh_work *const w = argument;
    const int lines = TANH_LAYERS * WIDTH * ((POINTS + DATA) / w->kernels->lanes);
    for (int done = 0; done < lines; done += LINES)
        w->kernels->tanh(w->x, LINES);
}

typedef struct blas_work {
    float *w, *a, *z, *gradient;
} blas_work;

static void products_of_a_step(void *argument)
{
    enum { TILE = 64 };
    const blas_work *const b = argument;
    for (int point = 0; point < POINTS + DATA; point += TILE) {
        const int columns = point < POINTS ? TILE * CHANNELS : TILE;
        for (int layer = 0; layer < SQUARE_LAYERS; layer++) {
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, WIDTH, columns, WIDTH, 1, b->w, WIDTH, b->a, columns,
                        0, b->z, columns);
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, WIDTH, WIDTH, columns, 1, b->z, columns, b->a, columns,
                        1, b->gradient, WIDTH);
            cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, WIDTH, columns, WIDTH, 1, b->w, WIDTH, b->z, columns,
                        0, b->a, columns);
        }
    }
    memset(b->a, 0, (size_t)(WIDTH * TILE * CHANNELS) * sizeof *b->a); /* nothing grows from step to step */
    memset(b->gradient, 0, (size_t)(WIDTH * WIDTH) * sizeof *b->gradient);
}

int main(int argc, char **argv)
{
    int threads = 2;
    const char *isa = NULL;
    static const struct option options[] = {{"threads", required_argument, NULL, 't'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"isa", required_argument, NULL, 'i'},
                                            {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (c) {
        case 't': threads = atoi(optarg); break;
        case 's': budget = atof(optarg); break;
        case 'i': isa = optarg; break;
        default: return 2;
        }
    const net_kernels *const kernels = net_kernels_find(NET_F32, isa);
    if (!kernels || threads < 1) {
        fprintf(stderr, "pinn_step: %s\n", kernels ? "--threads: at least 1" : "--isa: not on this processor");
        return 2;
    }
    const double error = check(kernels);
    printf("%s kernels, f32; largest difference to f64 in a gradient: %.1e of its largest entry\n\n", kernels->isa,
           error);
    if (!(error < 5e-5)) {
        fprintf(stderr, "pinn_step: the gradients are wrong\n");
        return 1;
    }
    printf("%-10s %7s %10s %10s %10s %10s\n", "", "threads", "best ms", "median ms", "cpu ms", "GFLOP/s");
    double one = 0;
    for (int t = 1; t <= threads; t++) {
        step s = make(kernels, t);
        const double cpu = report("gradients", t, flop, gradients, &s);
        one = t == 1 ? cpu : one;
        report("step", t, flop, whole_step, &s);
        destroy(&s);
    }
    tanh_work tanh_work = {kernels, memory(50 * NET_TILE_BLOCKS, NET_LINE)};
    const double tanh_time = report("tanh", 1, 0, tanh_of_a_step, &tanh_work);
    const size_t tile = 50 * 64 * CHANNELS;
    blas_work blas = {memory(2500, sizeof(float)), memory(tile, sizeof(float)), memory(tile, sizeof(float)),
                      memory(2500, sizeof(float))};
    openblas_set_num_threads(1);
    report("sgemm", 1, flop, products_of_a_step, &blas);
    printf("\ntanh: %.1f %% of the gradients' processor time on one thread; sgemm kernel: %s\n", 100 * tanh_time / one,
           openblas_get_corename());
    free(tanh_work.x);
    free(blas.w);
    free(blas.a);
    free(blas.z);
    free(blas.gradient);
    return 0;
}
