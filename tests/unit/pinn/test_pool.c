/*
 * The pool: every task once, in every phase, whatever the number of threads; fewer tasks than threads; many short phases,
 * with pauses that let the workers fall asleep.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool.h"

#include <stdatomic.h>
#include <time.h>

enum { MOST = 64 };

typedef struct tally {
    atomic_int done[MOST];
    atomic_int strangers; /* workers out of range */
    int threads;
} tally;

static void count(void *argument, int task, int worker)
{
    tally *const t = argument;
    atomic_fetch_add(&t->done[task], 1);
    if (worker < 0 || worker >= t->threads)
        atomic_fetch_add(&t->strangers, 1);
}

static void every_task_once(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 7, 0, 64};
    for (int threads = 1; threads <= 7; threads += 2) {
        pinn_pool *pool = pinn_pool_create(threads);
        assert_non_null(pool);
        assert_int_equal(pinn_pool_threads(pool), threads);
        for (int phase = 0; phase < 600; phase++) {
            tally t = {.threads = threads};
            const int n = sizes[phase % 6];
            pinn_pool_run(pool, n, count, &t);
            for (int i = 0; i < MOST; i++)
                assert_int_equal(atomic_load(&t.done[i]), i < n);
            assert_int_equal(atomic_load(&t.strangers), 0);
            if (phase % 100 == 99)
                nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        }
        pinn_pool_destroy(pool);
    }
    pinn_pool_destroy(NULL);
    assert_true(pinn_processors() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_task_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
