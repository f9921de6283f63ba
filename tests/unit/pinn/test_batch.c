/*
 * Losses and gradients of a step: against finite differences of the losses, for any number of threads, as functions of seed
 * and step, and with the pooled mean.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "batch.h"
#include "kernels.h"

#include <math.h>
#include <string.h>

enum { INTERIOR = 1500 }; /* three tasks */

typedef struct result {
    double terms[PINN_MAX_TERMS], losses[PINN_MAX_TERMS];
    void *gradients[PINN_MAX_TERMS]; /* of the kernels' type */
    size_t n;                        /* parameters */
} result;

typedef struct setting {
    const net_kernels *kernels;
    net_shape shape;
    int n_losses, threads;
} setting;

static void drop(result *r)
{
    for (int i = 0; i < PINN_MAX_TERMS; i++)
        free(r->gradients[i]);
}

/* With points of our own: x[term] holds `counts[term]` points; NULL: drawn for (seed, step). */
static result evaluate(const setting *s, const double *theta, uint64_t seed, int64_t step, const double *const *x,
                       const int *counts)
{
    const pinn_problem *problem = pinn_problem_find("burgers");
    pinn_loss losses[PINN_MAX_TERMS];
    assert_int_equal(pinn_problem_split(problem, s->n_losses, losses), s->n_losses);
    pinn_pool *pool = pinn_pool_create(s->threads);
    assert_non_null(pool);
    pinn_batch *batch = pinn_batch_create(pool, s->kernels, &s->shape, problem, losses, s->n_losses, INTERIOR);
    assert_non_null(batch);
    for (int t = 0; x && t < problem->n_terms; t++)
        assert_true(pinn_batch_set_points(batch, t, counts[t], x[t]));
    result r = {.n = net_parameters(&s->shape)};
    for (int i = 0; i < s->n_losses; i++)
        assert_non_null(r.gradients[i] = calloc(r.n, s->kernels->real_size));
    void *const typed_theta = typed(s->kernels, theta, r.n);
    assert_non_null(typed_theta);
    pinn_batch_gradients(batch, typed_theta, seed, step, r.terms, r.losses, r.gradients);
    free(typed_theta);
    pinn_batch_destroy(batch);
    pinn_pool_destroy(pool);
    return r;
}

static bool same(const setting *s, const result *a, const result *b)
{
    bool equal = true;
    for (int i = 0; i < PINN_MAX_TERMS; i++)
        equal &= a->terms[i] == b->terms[i];
    for (int i = 0; i < s->n_losses; i++)
        equal &= a->losses[i] == b->losses[i];
    for (int i = 0; i < s->n_losses; i++)
        equal &= !memcmp(a->gradients[i], b->gradients[i], a->n * s->kernels->real_size);
    return equal;
}

static void gradients_are_those_of_the_losses(void **state)
{
    (void)state;
    const int counts[PINN_MAX_TERMS] = {70, 11, 40};
    double *x[PINN_MAX_TERMS];
    for (int t = 0; t < PINN_MAX_TERMS; t++)
        assert_non_null(x[t] = random_numbers(20 + (uint64_t)t, 2 * (size_t)counts[t], 1));
    for (int n_losses = 2; n_losses <= 3; n_losses++) {
        const setting s = {net_kernels_find(NET_F64, NULL), {2, 8, 2, 1}, n_losses, 2};
        const size_t n = net_parameters(&s.shape);
        double *theta = random_numbers(31, n, 0.9);
        result here = evaluate(&s, theta, 0, 0, (const double *const *)x, counts);
        for (size_t j = 0; j < n; j++) {
            const double h = 1e-3, old = theta[j];
            double at[4][PINN_MAX_TERMS];
            for (int side = 0; side < 4; side++) {
                theta[j] = old + h * (side < 2 ? side - 2 : side - 1);
                result r = evaluate(&s, theta, 0, 0, (const double *const *)x, counts);
                memcpy(at[side], r.losses, sizeof at[side]);
                drop(&r);
            }
            theta[j] = old;
            for (int i = 0; i < n_losses; i++) {
                const double expected = (at[0][i] - 8 * at[1][i] + 8 * at[2][i] - at[3][i]) / (12 * h);
                const double found = ((const double *)here.gradients[i])[j];
                if (!(fabs(found - expected) <= 1e-8)) /* error of the difference, for losses of order 1 */
                    fail_msg("loss %d, parameter %zu: %.12g instead of %.12g", i, j, found, expected);
            }
        }
        const double b = here.terms[1], i = here.terms[2], n_b = counts[1], n_i = counts[2];
        if (n_losses == 2)
            assert_true(fabs(here.losses[1] - (n_b * b + n_i * i) / (n_b + n_i)) < 1e-15);
        else
            assert_true(here.losses[1] == b && here.losses[2] == i);
        assert_true(here.losses[0] == here.terms[0] && here.terms[0] > 0);
        drop(&here);
        free(theta);
    }
    for (int t = 0; t < PINN_MAX_TERMS; t++)
        free(x[t]);
}

static void same_bits_for_any_number_of_threads(void **state)
{
    (void)state;
    static const int threads[] = {2, 3, 7};
    const net_kernels *kernels;
    for (int i = 0; (kernels = kernels_at(i)) != NULL; i++)
        for (int n_losses = 2; n_losses <= 3; n_losses++) {
            setting s = {kernels, {2, 50, 5, 1}, n_losses, 1};
            double *theta = random_numbers(32, net_parameters(&s.shape), 0.3);
            result one = evaluate(&s, theta, 5, 17, NULL, NULL);
            for (size_t k = 0; k < sizeof threads / sizeof threads[0]; k++) {
                s.threads = threads[k];
                result many = evaluate(&s, theta, 5, 17, NULL, NULL);
                assert_true(same(&s, &one, &many));
                drop(&many);
            }
            drop(&one);
            free(theta);
        }
}

static void points_follow_seed_and_step(void **state)
{
    (void)state;
    const setting s = {net_kernels_find(NET_F32, NULL), {2, 8, 2, 1}, 2, 2};
    double *theta = random_numbers(33, net_parameters(&s.shape), 0.9);
    result first = evaluate(&s, theta, 5, 17, NULL, NULL), again = evaluate(&s, theta, 5, 17, NULL, NULL),
           step = evaluate(&s, theta, 5, 18, NULL, NULL), seed = evaluate(&s, theta, 6, 17, NULL, NULL);
    assert_true(same(&s, &first, &again));
    for (int t = 0; t < PINN_MAX_TERMS; t++) {
        assert_true(first.terms[t] != step.terms[t] && first.terms[t] != seed.terms[t]);
        assert_true(fabs(first.terms[t] / step.terms[t] - 1) < 0.3); /* the same integral */
    }
    drop(&first);
    drop(&again);
    drop(&step);
    drop(&seed);
    free(theta);
}

static void bad_parameters_give_bad_losses(void **state)
{
    (void)state;
    const setting s = {net_kernels_find(NET_F32, NULL), {2, 8, 2, 1}, 2, 1};
    double *theta = random_numbers(33, net_parameters(&s.shape), 0.9);
    theta[40] = NAN;
    result r = evaluate(&s, theta, 0, 0, NULL, NULL);
    assert_true(!isfinite(r.losses[0]) && !isfinite(r.losses[1]));
    drop(&r);
    free(theta);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_the_losses),
        cmocka_unit_test(same_bits_for_any_number_of_threads),
        cmocka_unit_test(points_follow_seed_and_step),
        cmocka_unit_test(bad_parameters_give_bad_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
