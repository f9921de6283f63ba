/*
 * Threads of this program. A run is a row of parallel phases, some fractions of a millisecond apart, so workers spin for a
 * bounded time before they sleep: short enough that a core taken by another process is not fought over.
 *
 * Tasks are claimed in order, one at a time. Who works on a task must not matter to its result.
 */
#ifndef PINN_POOL_H
#define PINN_POOL_H

typedef struct pinn_pool pinn_pool;

typedef void (*pinn_task)(void *argument, int task, int worker);

/* `threads` >= 1, the caller's included. NULL when threads or memory cannot be had. */
pinn_pool *pinn_pool_create(int threads);
void pinn_pool_destroy(pinn_pool *pool);
int pinn_pool_threads(const pinn_pool *pool);

/* Run tasks 0 .. n_tasks - 1 and return when all are done; the caller takes part. worker is 0 .. threads - 1. */
void pinn_pool_run(pinn_pool *pool, int n_tasks, pinn_task task, void *argument);

/* Processors that this process may use. */
int pinn_processors(void);

#endif
