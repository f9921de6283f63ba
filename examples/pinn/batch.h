/*
 * A step's losses and their gradients: the points of every term are cut into tiles, a fixed number of tiles makes a task,
 * and each task sums its tiles' gradients in double into a row of its own. The rows are then added in order. Nothing of
 * this depends on the number of threads, so neither do the results.
 */
#ifndef PINN_BATCH_H
#define PINN_BATCH_H

#include "device.h"
#include "pool.h"
#include "problem.h"

typedef struct pinn_batch pinn_batch;

/*
 * `shape` is the network's (that of the problem, or a smaller one in tests), `interior` the number of interior points,
 * 0 for the published one. Everything is borrowed for the batch's life. NULL: out of memory.
 */
pinn_batch *pinn_batch_create(pinn_pool *pool, const net_kernels *kernels, const net_shape *shape,
                              const pinn_problem *problem, const pinn_loss *losses, int n_losses, int interior);
void pinn_batch_destroy(pinn_batch *batch);

/*
 * Compute on the device, in whose memory theta and the gradients then are; borrowed for the batch's life. Points are drawn here
 * all the same. False: pinn_device_error() says why.
 */
bool pinn_batch_use_device(pinn_batch *batch, const pinn_device *device);

/* Use these points for a term instead of drawing them: x[input * n_points + k], borrowed. False: out of memory, the device's too. */
bool pinn_batch_set_points(pinn_batch *batch, int term, int n_points, const double *x);

/*
 * Draw the points of (seed, step), then the losses and gradients at `theta` (elements of the kernels' type).
 *
 * @param terms      Out: the loss of each term of the problem, in its own mean; those in no loss are 0.
 * @param losses     Out: n_losses.
 * @param gradients  Out: n_losses rows of net_parameters(shape) elements of the kernels' type.
 * @return           False: the device failed, pinn_device_error() says how.
 */
bool pinn_batch_gradients(pinn_batch *batch, const void *theta, uint64_t seed, int64_t step, double *terms,
                          double *losses, void *const *gradients);

#endif
