#include "support/pool.h"

#include <stdatomic.h>
#include <time.h>

typedef struct meeting {
    atomic_int arrived;
    int n_threads;
} meeting;

/* Ends after 20 seconds at the latest. */
static void arrive(void *argument, int index, int worker)
{
    meeting *const m = argument;
    (void)index, (void)worker;
    (void)atomic_fetch_add(&m->arrived, 1);
    for (int k = 0; k < 20000 && atomic_load(&m->arrived) < m->n_threads; ++k) {
        const struct timespec millisecond = {0, 1000000};
        (void)nanosleep(&millisecond, NULL);
    }
}

int test_pool_meet(struct sut_pool *pool, int n_threads)
{
    meeting m = {.n_threads = n_threads};
    sut_pool_run(pool, n_threads, true, arrive, &m);
    return atomic_load(&m.arrived);
}

void test_pool_before_fork(struct sut_pool *pool, int n_threads)
{
#if defined(__SANITIZE_ADDRESS__)
    (void)test_pool_meet(pool, n_threads);
#else
    (void)pool, (void)n_threads;
#endif
}
