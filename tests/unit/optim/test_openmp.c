/*
 * Inside an OpenMP parallel region of the caller's: surgery and whole steps in its tasks, on contexts with 1, 2 and 4
 * threads, with and without an explicit thread count of OpenBLAS. It ends, with the bits of a serial run. Built without
 * OpenMP where the compiler lacks it, and then skipped.
 */
#include "support/step.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>

extern void openblas_set_num_threads(int);
extern int openblas_get_num_threads(void);

enum { M = 4, N = 1000000, N_STEP = 60000, REGION = 2 };

typedef struct task {
    sut_context *ctx;
    step_run *run;
    float *direction;
    bool good;
} task;

/* No check of cmocka here: those belong to the main thread. */
static void work(task *t, const float *const *rows, const step_grads *g)
{
    const void *grads[M] = {rows[0], rows[1], rows[2], rows[3]};
    sut_surgery_config config;
    sut_surgery_config_init(&config, SUT_SURGERY_UPGRAD);
    t->good = sut_surgery_direction(t->ctx, &config, grads, M, N, SUT_DTYPE_F32, NULL, 0, t->direction, NULL) == SUT_OK;
    for (int k = 0; k < 3; ++k)
        t->good = t->good && sut_optimizer_step(t->run->opt, g->pointer, NULL, NULL) == SUT_OK;
}

static void inside_a_parallel_region(void **state)
{
    (void)state;
    (void)alarm(120); /* 10 s are the limit of the run itself; this is for a loaded machine */
    static float rows_memory[M][N];
    const float *rows[M];
    test_random r = {51};
    for (int i = 0; i < M; ++i) {
        rows[i] = rows_memory[i];
        for (int k = 0; k < N; ++k)
            rows_memory[i][k] = (float)(test_uniform(&r) - 0.5);
    }
    step_spec spec;
    step_spec_init(&spec, SUT_OPTIMIZER_ADAM, 0);
    spec.dtype = SUT_DTYPE_F32;
    spec.length[0] = N_STEP;
    step_grads *const g = step_grads_new(&spec);
    step_grads_conflict(g, &r);

    const int blas = openblas_get_num_threads();
    omp_set_max_active_levels(1);
    task serial = {.ctx = step_context(1, SUT_ISA_AUTO), .direction = malloc(N * sizeof(float))};
    serial.run = step_open(serial.ctx, &spec);
    work(&serial, rows, g);
    assert_true(serial.good);
    for (int k = 0; k < 6; ++k) {
        task tasks[REGION];
        if (k / 3)
            openblas_set_num_threads(2);
        for (int i = 0; i < REGION; ++i) {
            sut_context_config config;
            sut_context_config_init(&config);
            config.n_threads = 1 << k % 3;
            assert_int_equal(sut_context_create(&tasks[i].ctx, &config), SUT_OK);
            tasks[i].run = step_open(tasks[i].ctx, &spec);
            tasks[i].direction = malloc(N * sizeof(float));
        }
        const int before = omp_get_max_threads();
#pragma omp parallel num_threads(REGION)
#pragma omp single
        for (int i = 0; i < REGION; ++i) {
#pragma omp task firstprivate(i)
            work(&tasks[i], rows, g);
        }
        assert_int_equal(omp_get_max_threads(), before);
        for (int i = 0; i < REGION; ++i) {
            assert_true(tasks[i].good);
            step_assert_same(serial.run, tasks[i].run, "inside a parallel region");
            assert_memory_equal(serial.direction, tasks[i].direction, N * sizeof(float));
            free(tasks[i].direction);
            step_close(tasks[i].run);
            sut_context_destroy(tasks[i].ctx);
        }
    }
    openblas_set_num_threads(blas);
    free(serial.direction);
    step_close(serial.run);
    step_grads_free(g);
}

#else

static void inside_a_parallel_region(void **state)
{
    (void)state;
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(inside_a_parallel_region)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
