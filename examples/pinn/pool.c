/*
 * A pool of threads (see pool.h).
 *
 * `phase` counts the calls of pinn_pool_run; a worker that sees it change joins in. `ticket` holds the next task together
 * with the phase it belongs to, so a worker that comes late can never claim a task of the next phase with the old
 * function: the compare fails. `busy` counts workers inside a phase; the caller leaves when no task is left and none is
 * busy.
 */
#include "pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum { SPINS = 4000 }; /* some 50 microseconds: longer than an optimizer step between two phases */

typedef struct worker {
    pinn_pool *pool;
    int index;
    pthread_t thread;
} worker;

struct pinn_pool {
    int threads;
    worker *workers; /* threads - 1 of them */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    int sleeping; /* under the mutex */
    atomic_bool stop;
    _Atomic uint32_t phase;
    _Atomic uint64_t ticket; /* phase << 32 | next task */
    atomic_int remaining;    /* tasks of this phase that are not done */
    _Atomic int n_tasks;
    _Atomic pinn_task task;
    void *_Atomic argument;
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void work(pinn_pool *pool, uint32_t phase, int worker_index)
{
    for (;;) {
        uint64_t ticket = atomic_load(&pool->ticket);
        const uint32_t next = (uint32_t)ticket;
        const int n_tasks = atomic_load(&pool->n_tasks);
        const pinn_task task = atomic_load(&pool->task);
        void *const argument = atomic_load(&pool->argument);
        if (ticket >> 32 != phase || next >= (uint32_t)n_tasks)
            return;
        /* What was read above belongs to `phase` if the ticket is still this one. */
        if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket + 1))
            continue;
        task(argument, (int)next, worker_index);
        atomic_fetch_sub(&pool->remaining, 1);
    }
}

static void *worker_main(void *argument)
{
    worker *const self = argument;
    pinn_pool *const pool = self->pool;
    uint32_t seen = 0;
    while (!atomic_load(&pool->stop)) {
        for (int spin = 0; spin < SPINS && atomic_load(&pool->phase) == seen && !atomic_load(&pool->stop); spin++)
            relax();
        if (atomic_load(&pool->phase) == seen) {
            pthread_mutex_lock(&pool->mutex);
            pool->sleeping++;
            while (atomic_load(&pool->phase) == seen && !atomic_load(&pool->stop))
                pthread_cond_wait(&pool->wake, &pool->mutex);
            pool->sleeping--;
            pthread_mutex_unlock(&pool->mutex);
        }
        seen = atomic_load(&pool->phase);
        work(pool, seen, self->index);
    }
    return NULL;
}

pinn_pool *pinn_pool_create(int threads)
{
    pinn_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->threads = 1;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pool->workers = calloc((size_t)threads, sizeof *pool->workers);
    if (!pool->workers) {
        pinn_pool_destroy(pool);
        return NULL;
    }
    /* Signals are for the main thread, which ends the run. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = 0;
    for (int i = 1; i < threads && !error; i++) {
        worker *const w = &pool->workers[i - 1];
        *w = (worker){.pool = pool, .index = i};
        error = pthread_create(&w->thread, NULL, worker_main, w);
        pool->threads += !error;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error) {
        pinn_pool_destroy(pool);
        errno = error;
        return NULL;
    }
    return pool;
}

void pinn_pool_destroy(pinn_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->stop, true);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
    for (int i = 0; i < pool->threads - 1; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->workers);
    free(pool);
}

int pinn_pool_threads(const pinn_pool *pool)
{
    return pool->threads;
}

void pinn_pool_run(pinn_pool *pool, int n_tasks, pinn_task task, void *argument)
{
    if (n_tasks <= 0)
        return;
    if (pool->threads == 1) {
        for (int i = 0; i < n_tasks; i++)
            task(argument, i, 0);
        return;
    }
    const uint32_t phase = atomic_load(&pool->phase) + 1;
    /* A ticket of the new phase that no task fits yet, so that latecomers fail; then the work; then the first task. */
    atomic_store(&pool->ticket, (uint64_t)phase << 32 | UINT32_MAX);
    atomic_store(&pool->task, task);
    atomic_store(&pool->argument, argument);
    atomic_store(&pool->n_tasks, n_tasks);
    atomic_store(&pool->remaining, n_tasks);
    atomic_store(&pool->ticket, (uint64_t)phase << 32);
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->phase, phase);
    if (pool->sleeping)
        pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
    work(pool, phase, 0);
    for (int spin = 0; atomic_load(&pool->remaining) > 0; spin++)
        if (spin < SPINS)
            relax();
        else
            sched_yield(); /* the core of a worker may be taken: give it this one */
}

int pinn_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    const int n = CPU_COUNT(&set);
    return n < 1 ? 1 : n;
}
