/*
 * Time of an optimizer step, as ratios within one run.
 *
 *   bench/step [--min-n N] [--max-n N] [--losses M] [--threads T] [--seconds S] [--contended]
 *
 * For plain Adam (one loss) and for the whole ConFIG + Adam + GUA step at m = 2, 3, 8 it prints the time of a step, the
 * bytes that the method must read and write, and the share of this machine's bandwidth that this is. Every figure is the
 * best of at least nine repetitions; the state is reset outside the timer. Before anything is timed its answer is checked.
 *
 *   active     the proposal conflicts with a loss: projection, realignment
 *   inactive   no conflict: the proposal is applied as it is
 *   strict     active, all products in double
 *   bare       a plain loop over the seven streams of Adam, on the same threads
 *   floor      (12 m + 20) n bytes at 85 % of the measured read bandwidth
 *
 * With --contended it prints instead how long steps of small problems take while another process keeps one core busy.
 */
#include "suture/suture.h"

#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double budget = 1.0; /* seconds for one figure */
static int only_losses;     /* m of the aligned steps; 0: 2, 3 and 8 */

/* ---- what the machine can do ---- */

typedef struct part {
    int64_t begin, end;
    const float *g;
    float *m, *v, *x;
    double sum;
} part;

/* The bare loop: what a careful programmer writes for one array. */
CLONES static void bare_adam(const float *restrict g, float *restrict m, float *restrict v, float *restrict x,
                             int64_t n)
{
    const float lr = 1e-3f, b1 = 0.9f, b2 = 0.999f, eps = 1e-8f, c1 = 10, c2 = 1000;
    for (int64_t k = 0; k < n; ++k) {
        m[k] = b1 * m[k] + (1 - b1) * g[k];
        v[k] = b2 * v[k] + (1 - b2) * (g[k] * g[k]);
        x[k] -= lr * (m[k] * c1) / (sqrtf(v[k] * c2) + eps);
    }
}

CLONES static double read_sum(const float *x, int64_t n)
{
    float lanes[64] = {0};
    for (int64_t k = 0; k + 64 <= n; k += 64)
        for (int l = 0; l < 64; ++l)
            lanes[l] += x[k + l];
    double sum = 0;
    for (int l = 0; l < 64; ++l)
        sum += lanes[l];
    return sum;
}

static void *adam_part(void *argument)
{
    const part *const p = argument;
    bare_adam(p->g + p->begin, p->m + p->begin, p->v + p->begin, p->x + p->begin, p->end - p->begin);
    return NULL;
}

static void *read_part(void *argument)
{
    part *const p = argument;
    p->sum = read_sum(p->g + p->begin, p->end - p->begin);
    return NULL;
}

/* One repetition on `threads` threads; the caller's own works too. */
static double timed(void *(*work)(void *), part *parts, int threads)
{
    pthread_t id[64];
    const double start = seconds();
    for (int t = 1; t < threads; ++t)
        pthread_create(&id[t], NULL, work, &parts[t]);
    work(&parts[0]);
    for (int t = 1; t < threads; ++t)
        pthread_join(id[t], NULL);
    return seconds() - start;
}

static void split(part *parts, int threads, int64_t n, const float *g, float *m, float *v, float *x)
{
    for (int t = 0; t < threads; ++t)
        parts[t] =
            (part){n * t / threads / 64 * 64, t + 1 == threads ? n : n * (t + 1) / threads / 64 * 64, g, m, v, x, 0};
}

static double read_bandwidth(int threads)
{
    const int64_t n = (int64_t)64 << 20;
    float *const x = malloc((size_t)n * sizeof *x);
    if (!x)
        return NAN;
    for (int64_t k = 0; k < n; ++k)
        x[k] = 1;
    part parts[64];
    split(parts, threads, n, x, NULL, NULL, NULL);
    double best = 1e9;
    for (int r = 0; r < 12; ++r)
        best = fmin(best, timed(read_part, parts, threads));
    double sum = 0;
    for (int t = 0; t < threads; ++t)
        sum += parts[t].sum;
    free(x);
    return sum > 0 ? (double)n * 4 / best : NAN;
}

/* ---- the library ---- */

typedef struct problem {
    sut_context *ctx;
    int64_t n;
    int m, tensors;
    float *x, *grads[8];
    const void **rows;
} problem;

static uint64_t draw_state = 1;

static float uniform(void)
{
    draw_state = draw_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(draw_state >> 40) * 0x1p-23f - 1;
}

static sut_optimizer *make(problem *p, int m, bool aligned, bool strict, sut_check check)
{
    sut_tensor tensor[64];
    int64_t at = 0;
    for (int t = 0; t < p->tensors; ++t) {
        const int64_t end = p->n * (t + 1) / p->tensors;
        tensor[t] = (sut_tensor){.data = p->x + at, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {end - at}};
        for (int i = 0; i < m; ++i)
            p->rows[i * p->tensors + t] = p->grads[i] + at;
        at = end;
    }
    sut_optimizer_config cfg;
    sut_optimizer_config_init(&cfg, SUT_OPTIMIZER_ADAM);
    cfg.tensors = tensor;
    cfg.n_tensors = p->tensors;
    cfg.n_losses = m;
    cfg.hyper.lr = 1e-5;
    cfg.strict = strict;
    cfg.check = check;
    if (aligned) {
        cfg.surgery.method = SUT_SURGERY_CONFIG;
        cfg.align = SUT_ALIGN_GUA;
    }
    sut_optimizer *opt;
    if (sut_optimizer_create(&opt, p->ctx, &cfg) != SUT_OK) {
        fprintf(stderr, "bench/step: %s\n", sut_context_last_error(p->ctx));
        exit(1);
    }
    return opt;
}

/* First moments that make the next proposal conflict with loss 0, or with none. */
static void reset(problem *p, sut_optimizer *opt, bool conflict)
{
    int64_t at = 0;
    for (int t = 0; t < p->tensors; ++t) {
        void *m, *v;
        int64_t count;
        sut_dtype dtype;
        sut_optimizer_state(opt, "m", t, &m, &dtype, &count);
        sut_optimizer_state(opt, "v", t, &v, &dtype, &count);
        for (int64_t k = 0; k < count; ++k) {
            float sum = 0;
            for (int i = 0; i < p->m; ++i)
                sum += p->grads[i][at + k];
            ((float *)m)[k] = conflict ? sum - 3 * p->grads[0][at + k] : 3 * sum;
            ((float *)v)[k] = 1;
        }
        at += count;
    }
}

typedef struct figure {
    double best;
    int active, repetitions;
} figure;

static figure time_steps(problem *p, sut_optimizer *opt, int kind) /* 0 plain, 1 conflict, 2 none */
{
    figure f = {1e9, 0, 0};
    const double start = seconds();
    while (f.repetitions < 9 || (seconds() - start < budget && f.repetitions < 5000)) {
        if (kind && (p->n > 100000 || f.repetitions % 8 == 0))
            reset(p, opt, kind == 1);
        sut_report report;
        sut_report_init(&report);
        const double from = seconds();
        const sut_status status = sut_optimizer_step(opt, p->rows, NULL, kind ? &report : NULL);
        const double took = seconds() - from;
        if (status != SUT_OK) {
            fprintf(stderr, "bench/step: %s\n", sut_context_last_error(p->ctx));
            exit(1);
        }
        /* A repetition counts only if it did what its row says. */
        if (!kind || report.projected == (kind == 1)) {
            f.best = fmin(f.best, took);
            ++f.active;
        }
        ++f.repetitions;
        if (f.repetitions >= 60 && !f.active)
            break;
    }
    return f;
}

/* The library against the bare loop on the same numbers, before anything is timed. */
static void check_answers(problem *p)
{
    const int64_t n = p->n < 100000 ? p->n : 100000;
    const int64_t saved = p->n;
    p->n = n;
    sut_optimizer *const opt = make(p, 1, false, false, SUT_CHECK_GRADIENTS);
    float *const x = malloc((size_t)n * 4), *const m = calloc((size_t)n, 4), *const v = calloc((size_t)n, 4);
    memcpy(x, p->x, (size_t)n * 4);
    sut_optimizer_step(opt, p->rows, NULL, NULL);
    double worst = 0;
    for (int64_t k = 0; k < n; ++k) {
        const double g = p->grads[0][k], u = g / (fabs(g) + 1e-8);
        worst = fmax(worst, fabs(p->x[k] - (x[k] - 1e-5 * u)));
    }
    if (!(worst < 1e-6)) {
        fprintf(stderr, "bench/step: the first step of Adam is off by %g\n", worst);
        exit(1);
    }
    free(x);
    free(m);
    free(v);
    sut_optimizer_destroy(opt);
    p->n = saved;
}

static void row(const char *name, int m, double n, double time, double bytes, double bandwidth, double plain,
                double floor_time)
{
    printf("%8.0e  %-22s %2d  %12.2f us  %9.1f MB  %6.2f GB/s  %5.0f %%", n, name, m, time * 1e6, bytes * 1e-6,
           bytes / time * 1e-9, 100 * bytes / time / bandwidth);
    if (plain > 0)
        printf("  %5.2fx plain", time / plain);
    if (floor_time > 0)
        printf("  %5.2fx floor/0.85", time / floor_time);
    printf("\n");
    fflush(stdout);
}

static void run(int64_t n, int threads, double bandwidth)
{
    sut_context_config cc;
    sut_context_config_init(&cc);
    cc.n_threads = threads;
    problem p = {.n = n, .tensors = n <= 10000 ? 12 : 1};
    if (sut_context_create(&p.ctx, &cc) != SUT_OK)
        exit(1);
    p.x = malloc((size_t)n * 4);
    p.rows = calloc(8 * 64, sizeof *p.rows);
    int available = 0;
    for (; available < 8; ++available) {
        p.grads[available] = malloc((size_t)n * 4);
        if (!p.grads[available])
            break;
        for (int64_t k = 0; k < n; ++k) {
            if (available == 0)
                p.x[k] = uniform();
            p.grads[available][k] = uniform();
        }
    }
    check_answers(&p);

    /* Bare loop. */
    float *const m = calloc((size_t)n, 4), *const v = calloc((size_t)n, 4);
    part parts[64];
    const int bare_threads = n <= 30000 ? 1 : threads;
    split(parts, bare_threads, n, p.grads[0], m, v, p.x);
    double bare = 1e9;
    const double start = seconds();
    for (int r = 0; r < 9 || (seconds() - start < budget && r < 5000); ++r)
        bare = fmin(bare, timed(adam_part, parts, bare_threads));
    free(m);
    free(v);
    row("bare loop", 1, (double)n, bare, 28.0 * (double)n, bandwidth, 0, 0);

    p.m = 1;
    sut_optimizer *opt = make(&p, 1, false, false, SUT_CHECK_NONE);
    const double trusted = time_steps(&p, opt, 0).best;
    sut_optimizer_destroy(opt);
    row("adam, unchecked", 1, (double)n, trusted, 28.0 * (double)n, bandwidth, 0, 0);
    opt = make(&p, 1, false, false, SUT_CHECK_GRADIENTS);
    const double plain = time_steps(&p, opt, 0).best;
    sut_optimizer_destroy(opt);
    row("adam", 1, (double)n, plain, 32.0 * (double)n, bandwidth, 0, 0);
    printf("          adam / bare loop: unchecked %.2fx, checked %.2fx\n", trusted / bare, plain / bare);

    static const int losses[] = {2, 3, 8};
    for (int l = 0; l < 3; ++l) {
        p.m = losses[l];
        if (only_losses && p.m != only_losses)
            continue;
        if (p.m > available) {
            printf("          m = %d left out: not enough memory\n", p.m);
            continue;
        }
        const double floor_time = (12.0 * p.m + 20) * (double)n / (0.85 * bandwidth);
        double times[3];
        for (int kind = 0; kind < 3; ++kind) { /* active, inactive, strict */
            opt = make(&p, p.m, true, kind == 2, SUT_CHECK_GRADIENTS);
            const figure f = time_steps(&p, opt, kind == 1 ? 2 : 1);
            sut_optimizer_destroy(opt);
            times[kind] = f.best;
            static const char *const names[] = {"config+adam+gua active", "  inactive", "  active, strict"};
            const double bytes = kind == 1 ? 8.0 * p.m + 32 : 12.0 * p.m + 40;
            if (!f.active) {
                printf("          %s, m = %d: no step of this kind occurred\n", names[kind], p.m);
                continue;
            }
            row(names[kind], p.m, (double)n, f.best, bytes * (double)n, bandwidth, plain,
                n >= 1000000 && kind != 1 ? floor_time : 0);
        }
        printf("          m = %d: inactive / active %.2f, strict / active %.2f\n", p.m, times[1] / times[0],
               times[2] / times[0]);
    }
    for (int i = 0; i < available; ++i)
        free(p.grads[i]);
    free(p.x);
    free(p.rows);
    sut_context_destroy(p.ctx);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times of `count` aligned steps, in ascending order. */
static void sorted_times(problem *p, sut_optimizer *opt, double *times, int count)
{
    for (int r = 0; r < count; ++r) {
        sut_report report;
        sut_report_init(&report);
        if (r % 8 == 0)
            reset(p, opt, true);
        const double from = seconds();
        if (sut_optimizer_step(opt, p->rows, NULL, &report) != SUT_OK)
            exit(1);
        times[r] = seconds() - from;
    }
    qsort(times, (size_t)count, sizeof *times, by_value);
}

static void run_contended(int64_t n)
{
    enum { STEPS = 20000 };
    static double times[STEPS];
    sut_context_config cc;
    sut_context_config_init(&cc);
    cc.n_threads = 2;
    problem p = {.n = n, .m = 2, .tensors = 12};
    if (sut_context_create(&p.ctx, &cc) != SUT_OK)
        exit(1);
    p.x = malloc((size_t)n * 4);
    p.rows = calloc(8 * 64, sizeof *p.rows);
    for (int i = 0; i < 2; ++i)
        p.grads[i] = malloc((size_t)n * 4);
    for (int64_t k = 0; k < n; ++k) {
        p.x[k] = uniform();
        p.grads[0][k] = uniform();
        p.grads[1][k] = uniform();
    }
    sut_optimizer *const opt = make(&p, 2, true, false, SUT_CHECK_GRADIENTS);
    double quiet = 0;
    for (int busy = 0; busy < 2; ++busy) {
        const pid_t child = busy ? fork() : 0;
        if (busy && child == 0)
            for (volatile uint64_t x = 0;; ++x)
                ;
        sorted_times(&p, opt, times, STEPS);
        if (busy && child > 0) {
            (void)kill(child, SIGKILL);
            (void)waitpid(child, NULL, 0);
        }
        quiet = busy ? quiet : times[STEPS / 2];
        printf(
            "%8.0e  m = 2, %s  median %7.2f us, 99 %% %7.2f, 99.9 %% %7.2f, longest %9.2f (%.1f x the quiet median)\n",
            (double)n, busy ? "one core busy" : "quiet        ", times[STEPS / 2] * 1e6, times[STEPS / 100 * 99] * 1e6,
            times[STEPS / 1000 * 999] * 1e6, times[STEPS - 1] * 1e6, times[STEPS - 1] / quiet);
    }
    sut_optimizer_destroy(opt);
    sut_context_destroy(p.ctx);
    for (int i = 0; i < 2; ++i)
        free(p.grads[i]);
    free(p.x);
    free(p.rows);
}

int main(int argc, char **argv)
{
    int64_t min_n = 10000, max_n = 100000000;
    int only_threads = 0;
    bool contended = false;
    static const struct option options[] = {{"min-n", required_argument, NULL, 'b'},
                                            {"max-n", required_argument, NULL, 'n'},
                                            {"losses", required_argument, NULL, 'm'},
                                            {"threads", required_argument, NULL, 't'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"contended", no_argument, NULL, 'c'},
                                            {0}};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 'n')
            max_n = (int64_t)atof(optarg);
        else if (o == 'b')
            min_n = (int64_t)atof(optarg);
        else if (o == 'm')
            only_losses = atoi(optarg);
        else if (o == 't')
            only_threads = atoi(optarg);
        else if (o == 's')
            budget = atof(optarg);
        else if (o == 'c')
            contended = true;
        else
            return 2;
    }
    sut_capability_report machine;
    sut_capabilities_init(&machine);
    sut_capabilities(&machine);
    printf("Suture %s, %s, %d processors\n", machine.version, sut_isa_name(machine.best_isa), machine.processors);
    if (contended) {
        run_contended(10000);
        run_contended(30000);
        return 0;
    }
    for (int threads = 1; threads <= 2; ++threads) {
        if (only_threads && threads != only_threads)
            continue;
        const double bandwidth = read_bandwidth(threads);
        printf("\n%d thread%s: read bandwidth %.1f GB/s\n", threads, threads > 1 ? "s" : "", bandwidth * 1e-9);
        printf("%8s  %-22s %2s  %15s  %12s  %11s  %7s\n", "n", "step", "m", "best time", "bytes", "rate", "of read");
        for (int64_t n = min_n; n <= max_n; n *= 10)
            run(n, threads, bandwidth);
    }
    return 0;
}
