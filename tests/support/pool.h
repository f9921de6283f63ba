/*
 * What the tests that fork share.
 *
 * The address sanitizer does not hold its own locks over a fork (the C library does): when a thread is just being started,
 * which allocates, its child may wait for ever. Before such a fork every worker therefore meets the caller in a task, and
 * is past its start. Without that sanitizer nothing is done: a fork may come at any time.
 */
#ifndef SUT_TEST_POOL_H
#define SUT_TEST_POOL_H

#include "core/pool.h"

/* Tasks that wait for each other, one for each thread: how many were there at once (all of them, unless some do not run). */
int test_pool_meet(struct sut_pool *pool, int n_threads);

void test_pool_before_fork(struct sut_pool *pool, int n_threads);

#endif
