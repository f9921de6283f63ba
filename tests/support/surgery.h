/*
 * What the tests of surgery and cone share: a context, random rows, and the public calls on plain double arrays.
 */
#ifndef SUT_TEST_SURGERY_H
#define SUT_TEST_SURGERY_H

#include "suture/suture.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

/* On a device that is imitated (SUTURE_BACKEND=cuda, see isa.c) everything takes a thousand times longer: one round in a
 * hundred is run, rounded up. */
bool test_on_device(void);
int test_rounds(int full);

/* One thread, seed 0, lives as long as the program. */
sut_context *test_context(void);

/* Repeatable random numbers: uniform in (0, 1), standard normal, integer below a bound. */
typedef struct test_random {
    uint64_t state;
} test_random;
double test_uniform(test_random *r);
double test_normal(test_random *r);
int test_below(test_random *r, int bound);

/* a of m rows of n doubles; checks that the call succeeds. report may be NULL. */
void test_direction(const sut_surgery_config *config, const double *G, int m, int n, double *a,
                    sut_surgery_report *report);
/* The same with losses, and with the status handed back. */
sut_status test_direction_status(const sut_surgery_config *config, const double *G, int m, int n, const double *losses,
                                 double *a, sut_surgery_report *report);
/* Projection of u in f64; metric may be NULL; checks that the call succeeds. */
void test_project(const double *G, int m, int n, const double *u, const double *metric, double *p,
                  sut_cone_report *report);

/* K = G G^T. */
void test_gram(const double *G, int m, int n, double *K);
double test_dot(const double *x, const double *y, int n);
double test_norm(const double *x, int n);
/* max |x_k - y_k|. */
double test_distance(const double *x, const double *y, int n);

/* Fail with both vectors printed unless |x_k - y_k| <= tolerance for all k. */
void test_close(const double *x, const double *y, int n, double tolerance);

/* The exact forms: options that take absolute constants out of a method. */
void test_exact(sut_surgery_config *config, sut_surgery_method method);

#endif /* SUT_TEST_SURGERY_H */
