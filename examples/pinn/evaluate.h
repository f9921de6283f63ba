/*
 * The network on the problem's evaluation set, held against the reference solution, which is computed once.
 */
#ifndef PINN_EVALUATE_H
#define PINN_EVALUATE_H

#include "device.h"
#include "pool.h"
#include "problem.h"

typedef struct pinn_evaluation pinn_evaluation;

typedef struct pinn_scores {
    double selection_mse; /* mean squared error over points and outputs: what the kept parameters are chosen by */
    double mse;           /* the published one; differs where a problem counts a further component */
    double relative_l2;
    double reference_norm; /* the denominator of relative_l2 */
} pinn_scores;

/* NULL: out of memory. Arguments are borrowed for the evaluation's life. */
pinn_evaluation *pinn_evaluation_create(pinn_pool *pool, const net_kernels *kernels, const net_shape *shape,
                                        const pinn_problem *problem);
void pinn_evaluation_destroy(pinn_evaluation *evaluation);

/* Let the device compute the solution; borrowed. False: pinn_device_error() says why. */
bool pinn_evaluation_use_device(pinn_evaluation *evaluation, const pinn_device *device);

/* Scores of `theta` (elements of the kernels' type, in host memory); NAN when the device failed. */
pinn_scores pinn_evaluate(pinn_evaluation *evaluation, const void *theta);

/* Lent, of the last call: [output][point], and the number of points. */
const double *pinn_evaluation_prediction(const pinn_evaluation *evaluation);
const double *pinn_evaluation_reference(const pinn_evaluation *evaluation);
int64_t pinn_evaluation_points(const pinn_evaluation *evaluation);

#endif
