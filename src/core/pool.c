/*
 * The pool.
 *
 * Between the passes of a step a worker spins for a few microseconds, so that the next pass finds it awake, and then
 * sleeps; the caller likewise spins and then sleeps while the last task of a run is finished elsewhere. Every spin is
 * bounded: when another process takes the core, nobody burns a time slice waiting. After a fork the child has no workers
 * (threads do not survive it); the first run there notices the new process number and starts over.
 *
 * A run is published as one 64-bit word, generation << 32 | next task. A worker that was late for an earlier run sees
 * another generation in the word and takes nothing, so the fields of a run may be written without waiting for it.
 */
#include "core/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* About 10 microseconds of pause instructions: longer than the m x m algebra between two passes. */
#define SUT_SPINS 400

struct worker {
    struct sut_pool *pool;
    int index;
    pthread_t thread;
};

struct sut_pool {
    int n_threads;
    int n_started; /* workers running, the caller not counted */
    pid_t pid;
    pthread_mutex_t mutex;
    pthread_cond_t wake, done;
    bool stop;
    _Atomic uint32_t generation;
    _Atomic uint64_t next;  /* generation << 32 | next task */
    _Atomic int n_finished; /* tasks of this run that are done */
    _Atomic int sleepers;   /* workers waiting on `wake` */
    _Atomic bool caller_sleeps;
    _Atomic int n_tasks;
    _Atomic(sut_task) task;
    _Atomic(void *) argument;
    struct worker *workers; /* n_threads - 1 */
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Pull tasks of `generation` until none is left. */
static void work(struct sut_pool *pool, uint32_t generation, int worker)
{
    for (;;) {
        uint64_t next = atomic_load_explicit(&pool->next, memory_order_acquire);
        if ((uint32_t)(next >> 32) != generation)
            return;
        const int n_tasks = atomic_load_explicit(&pool->n_tasks, memory_order_relaxed);
        const sut_task task = atomic_load_explicit(&pool->task, memory_order_relaxed);
        void *const argument = atomic_load_explicit(&pool->argument, memory_order_relaxed);
        const int index = (int)(uint32_t)next;
        if (index >= n_tasks)
            return;
        /* Success proves that the run is still this one, hence that the three fields just read belong to it. */
        if (!atomic_compare_exchange_weak_explicit(&pool->next, &next, next + 1, memory_order_acq_rel,
                                                   memory_order_relaxed))
            continue;
        task(argument, index, worker);
        if (atomic_fetch_add(&pool->n_finished, 1) + 1 == n_tasks && atomic_load(&pool->caller_sleeps)) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->mutex);
        }
    }
}

static void *worker_main(void *argument)
{
    struct worker *const self = argument;
    struct sut_pool *const pool = self->pool;
    uint32_t seen = 0;
    for (;;) {
        uint32_t now = atomic_load_explicit(&pool->generation, memory_order_acquire);
        for (int spin = 0; now == seen && spin < SUT_SPINS; ++spin) {
            relax();
            now = atomic_load_explicit(&pool->generation, memory_order_acquire);
        }
        if (now == seen) {
            pthread_mutex_lock(&pool->mutex);
            atomic_fetch_add(&pool->sleepers, 1);
            while (!pool->stop && (now = atomic_load(&pool->generation)) == seen)
                pthread_cond_wait(&pool->wake, &pool->mutex);
            atomic_fetch_sub(&pool->sleepers, 1);
            const bool stop = pool->stop;
            pthread_mutex_unlock(&pool->mutex);
            if (stop)
                return NULL;
        }
        seen = now;
        work(pool, now, self->index);
    }
}

static void pool_init(struct sut_pool *pool)
{
    pool->n_started = 0;
    pool->pid = getpid();
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->stop = false;
    atomic_init(&pool->generation, 0);
    atomic_init(&pool->next, 0);
    atomic_init(&pool->n_finished, 0);
    atomic_init(&pool->sleepers, 0);
    atomic_init(&pool->caller_sleeps, false);
    atomic_init(&pool->n_tasks, 0);
    atomic_init(&pool->task, NULL);
    atomic_init(&pool->argument, NULL);
}

struct sut_pool *sut_pool_create(sut_context *ctx, int n_threads)
{
    struct sut_pool *const pool = sut_alloc(ctx, 1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->n_threads = n_threads;
    if (n_threads > 1) {
        pool->workers = sut_alloc(ctx, (size_t)n_threads - 1, sizeof *pool->workers);
        if (!pool->workers) {
            sut_free(ctx, pool);
            return NULL;
        }
    }
    pool_init(pool);
    return pool;
}

/* Start what is missing. Fewer threads than asked for only cost time: the caller takes every task that nobody else does. */
static void start_workers(struct sut_pool *pool)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the business of the caller's threads */
    while (pool->n_started < pool->n_threads - 1) {
        struct worker *const worker = &pool->workers[pool->n_started];
        worker->pool = pool;
        worker->index = pool->n_started + 1;
        if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0)
            break;
        ++pool->n_started;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void sut_pool_run(struct sut_pool *pool, int n_tasks, bool parallel, sut_task task, void *argument)
{
    if (!parallel || pool->n_threads == 1 || n_tasks < 2) {
        for (int i = 0; i < n_tasks; ++i)
            task(argument, i, 0);
        return;
    }
    if (pool->pid != getpid())
        pool_init(pool); /* in the child of a fork: the parent's workers and locks are not ours */
    if (pool->n_started < pool->n_threads - 1)
        start_workers(pool);

    const uint32_t generation = atomic_load_explicit(&pool->generation, memory_order_relaxed) + 1;
    /* Close the old run before its fields change. */
    atomic_store_explicit(&pool->next, (uint64_t)generation << 32 | UINT32_MAX >> 1, memory_order_release);
    atomic_store_explicit(&pool->n_finished, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->n_tasks, n_tasks, memory_order_relaxed);
    atomic_store_explicit(&pool->task, task, memory_order_relaxed);
    atomic_store_explicit(&pool->argument, argument, memory_order_relaxed);
    atomic_store_explicit(&pool->next, (uint64_t)generation << 32, memory_order_release);
    atomic_store(&pool->generation, generation);
    if (atomic_load(&pool->sleepers) > 0) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
    }
    work(pool, generation, 0);

    for (int spin = 0; spin < SUT_SPINS && atomic_load(&pool->n_finished) < n_tasks; ++spin)
        relax();
    if (atomic_load(&pool->n_finished) < n_tasks) {
        pthread_mutex_lock(&pool->mutex);
        atomic_store(&pool->caller_sleeps, true);
        while (atomic_load(&pool->n_finished) < n_tasks)
            pthread_cond_wait(&pool->done, &pool->mutex);
        atomic_store(&pool->caller_sleeps, false);
        pthread_mutex_unlock(&pool->mutex);
    }
}

void sut_pool_destroy(sut_context *ctx, struct sut_pool *pool)
{
    if (!pool)
        return;
    if (pool->pid == getpid()) {
        pthread_mutex_lock(&pool->mutex);
        pool->stop = true;
        /* A worker between two runs looks at the generation before it looks at `stop`. */
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
        for (int i = 0; i < pool->n_started; ++i)
            pthread_join(pool->workers[i].thread, NULL);
        pthread_cond_destroy(&pool->done);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->mutex);
    }
    sut_free(ctx, pool->workers);
    sut_free(ctx, pool);
}
