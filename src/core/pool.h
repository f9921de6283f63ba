/*
 * A small thread pool: tasks 0..n-1 are pulled by the caller and the workers, in any order. What a task computes must
 * depend on its number alone, never on who runs it.
 */
#ifndef SUT_CORE_POOL_H
#define SUT_CORE_POOL_H

#include "core/internal.h"

typedef void (*sut_task)(void *argument, int task, int worker);

struct sut_pool;

/* n_threads includes the caller. Threads start at the first run that needs them. NULL: out of memory. */
struct sut_pool *sut_pool_create(sut_context *ctx, int n_threads);
void sut_pool_destroy(sut_context *ctx, struct sut_pool *pool);

/* Run all tasks and return when they are done. `worker` is 0 for the caller, below n_threads for all. */
void sut_pool_run(struct sut_pool *pool, int n_tasks, bool parallel, sut_task task, void *argument);

#endif /* SUT_CORE_POOL_H */
