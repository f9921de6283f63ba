/*
 * The pool under stress: every task runs exactly once and is done when the run returns, for any number of threads and tasks,
 * for many tiny runs in a row, with workers asleep or awake, with more threads than processors; pools that never ran, that
 * are destroyed at once, and that were inherited through fork.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ROUNDS(full) ((full) / 20)
#else
#define ROUNDS(full) (full)
#endif

enum { MAX_TASKS = 64 };

static sut_context *new_context(void)
{
    sut_context_config config;
    sut_context *ctx;
    sut_context_config_init(&config);
    config.n_threads = 1;
    assert_int_equal(sut_context_create(&ctx, &config), SUT_OK);
    return ctx;
}

typedef struct record {
    int runs[MAX_TASKS]; /* plain integers: a task that ran twice at once would be a race */
    int worker[MAX_TASKS];
    int n_threads;
    atomic_int bad_worker;
    long spin;
} record;

static void task(void *argument, int index, int worker)
{
    record *const r = argument;
    if (worker < 0 || worker >= r->n_threads)
        atomic_store(&r->bad_worker, 1);
    ++r->runs[index];
    r->worker[index] = worker;
    for (volatile long k = 0; k < r->spin; ++k)
        ;
}

static void run(struct sut_pool *pool, record *r, int n_tasks, bool parallel)
{
    memset(r->runs, 0, sizeof r->runs);
    sut_pool_run(pool, n_tasks, parallel, task, r);
    for (int k = 0; k < MAX_TASKS; ++k)
        if (r->runs[k] != (k < n_tasks))
            fail_msg("%d threads, %d tasks: task %d ran %d times", r->n_threads, n_tasks, k, r->runs[k]);
    assert_int_equal(atomic_load(&r->bad_worker), 0);
}

static void pause_for(long microseconds)
{
    const struct timespec t = {0, microseconds * 1000};
    (void)nanosleep(&t, NULL);
}

static void every_task_once(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 3, 7, 16};
    sut_context *const ctx = new_context();
    for (size_t t = 0; t < sizeof threads / sizeof *threads; ++t) {
        struct sut_pool *const pool = sut_pool_create(ctx, threads[t]);
        assert_non_null(pool);
        record r = {.n_threads = threads[t]};
        for (int n = 0; n <= MAX_TASKS; ++n)
            run(pool, &r, n, true);
        for (int n = 0; n < 5; ++n) {
            run(pool, &r, n, false);
            for (int k = 0; k < n; ++k)
                assert_int_equal(r.worker[k], 0); /* the caller alone */
        }
        sut_pool_destroy(ctx, pool);
    }
    sut_context_destroy(ctx);
}

/* Tiny runs one after the other: late workers, workers that just fell asleep. */
static void many_tiny_runs(void **state)
{
    (void)state;
    static const int threads[] = {2, 5};
    sut_context *const ctx = new_context();
    for (int t = 0; t < 2; ++t) {
        struct sut_pool *const pool = sut_pool_create(ctx, threads[t]);
        record r = {.n_threads = threads[t]};
        for (int k = 0; k < ROUNDS(20000); ++k) {
            r.spin = k % 7 == 0 ? 200 : 0;
            run(pool, &r, 2 + k % 9, true);
            if (k % 500 == 0)
                pause_for(200); /* long enough for the workers to sleep */
        }
        sut_pool_destroy(ctx, pool);
    }
    sut_context_destroy(ctx);
}

/* Tasks that wait for each other: only threads of their own can finish them. */
static void tasks_run_at_the_same_time(void **state)
{
    (void)state;
    sut_context *const ctx = new_context();
    struct sut_pool *const pool = sut_pool_create(ctx, 4);
    for (int k = 0; k < 5; ++k)
        assert_int_equal(test_pool_meet(pool, 4), 4);
    sut_pool_destroy(ctx, pool);
    sut_context_destroy(ctx);
}

/* Pools come and go: unused, used once, asleep, awake. */
static void create_and_destroy(void **state)
{
    (void)state;
    sut_context *const ctx = new_context();
    sut_pool_destroy(ctx, NULL);
    for (int k = 0; k < ROUNDS(400); ++k) {
        struct sut_pool *const pool = sut_pool_create(ctx, 1 + k % 6);
        record r = {.n_threads = 1 + k % 6};
        for (int runs = k % 4; runs > 0; --runs)
            run(pool, &r, 8, true);
        if (k % 16 == 3)
            pause_for(300);
        sut_pool_destroy(ctx, pool);
    }
    sut_context_destroy(ctx);
}

/* Each thread has a pool of its own; all of them run at once. */
static void *owner(void *argument)
{
    sut_context *ctx;
    sut_context_config config;
    sut_context_config_init(&config);
    config.n_threads = 1;
    if (sut_context_create(&ctx, &config) != SUT_OK)
        return NULL;
    struct sut_pool *const pool = sut_pool_create(ctx, 3);
    record r = {.n_threads = 3};
    bool good = pool != NULL;
    for (int k = 0; good && k < ROUNDS(2000); ++k) {
        memset(r.runs, 0, sizeof r.runs);
        sut_pool_run(pool, 5, true, task, &r);
        for (int i = 0; i < 5; ++i)
            good = good && r.runs[i] == 1;
    }
    sut_pool_destroy(ctx, pool);
    sut_context_destroy(ctx);
    return good ? argument : NULL;
}

static void pools_side_by_side(void **state)
{
    (void)state;
    pthread_t thread[4];
    int good[4];
    for (int k = 0; k < 4; ++k)
        assert_int_equal(pthread_create(&thread[k], NULL, owner, &good[k]), 0);
    for (int k = 0; k < 4; ++k) {
        void *result;
        assert_int_equal(pthread_join(thread[k], &result), 0);
        assert_ptr_equal(result, &good[k]);
    }
}

/* The child of a fork goes on with workers of its own, whatever the parent's were doing, and so does its child. */
#if !defined(__SANITIZE_THREAD__)
static int in_child(sut_context *ctx, struct sut_pool *pool, record *r, int generations)
{
    int bad = 0;
    (void)alarm(60); /* a hang ends the child, and the test */
    for (int k = 0; k < 20; ++k) {
        memset(r->runs, 0, sizeof r->runs);
        sut_pool_run(pool, 8, true, task, r);
        for (int i = 0; i < 8; ++i)
            bad = bad || r->runs[i] != 1;
    }
    if (generations > 0) {
        test_pool_before_fork(pool, r->n_threads);
        const pid_t child = fork();
        if (child == 0)
            _exit(in_child(ctx, pool, r, generations - 1));
        int status = -1;
        bad = bad || child < 0 || waitpid(child, &status, 0) != child || status != 0;
    }
    sut_pool_destroy(ctx, pool);
    sut_context_destroy(ctx);
    return bad;
}
#endif

static void fork_in_every_state(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* the thread sanitizer does not follow threads of a forked process */
#else
    sut_context *const ctx = new_context();
    for (int k = 0; k < 6; ++k) {
        struct sut_pool *const pool = sut_pool_create(ctx, 1 + k);
        record r = {.n_threads = 1 + k};
        for (int runs = 0; runs < k; ++runs)
            run(pool, &r, 8, true);
        if (k % 2)
            pause_for(300);
        test_pool_before_fork(pool, 1 + k);
        const pid_t child = fork();
        if (child == 0)
            _exit(in_child(ctx, pool, &r, 1));
        run(pool, &r, 8, true);
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        run(pool, &r, 8, true);
        sut_pool_destroy(ctx, pool);
    }
    sut_context_destroy(ctx);
#endif
}

/* Workers take no signals: they are the business of the caller's threads. */
static atomic_int signals_elsewhere;
static pthread_t signal_thread;

static void on_signal(int number)
{
    (void)number;
    if (!pthread_equal(pthread_self(), signal_thread))
        atomic_store(&signals_elsewhere, 1);
}

static void signals_stay_with_the_caller(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_signal}, old;
    signal_thread = pthread_self();
    assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
    sut_context *const ctx = new_context();
    struct sut_pool *const pool = sut_pool_create(ctx, 4);
    record r = {.n_threads = 4, .spin = 1000};
    for (int k = 0; k < 50; ++k) {
        run(pool, &r, 16, true);
        (void)kill(getpid(), SIGUSR1);
    }
    assert_int_equal(atomic_load(&signals_elsewhere), 0);
    sut_pool_destroy(ctx, pool);
    sut_context_destroy(ctx);
    (void)sigaction(SIGUSR1, &old, NULL);
}

int main(void)
{
    (void)alarm(300); /* a lost wake-up ends here */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_once),
        cmocka_unit_test(many_tiny_runs),
        cmocka_unit_test(tasks_run_at_the_same_time),
        cmocka_unit_test(create_and_destroy),
        cmocka_unit_test(pools_side_by_side),
        cmocka_unit_test(fork_in_every_state),
        cmocka_unit_test(signals_stay_with_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
