/*
 * Launchers of the kernels. They take a stream and return a cudaError_t as an int: 0 for a launch that was queued. Arrays are
 * device memory of the network's type, `f64` says which; theta's parts are given by the caller.
 */
#ifndef PINN_CUDA_LAUNCH_H
#define PINN_CUDA_LAUNCH_H

#include "cuda/columns.h"

#include <cuda_runtime.h>

/* What does not change in a layer's input: the row behind the last unit, 1 for values and 0 for derivatives, whose products
 * with the adjoints are the bias's gradient; and for the first layer (`inputs` > 0) the derivatives of the inputs. */
int pinn_launch_constants(int f64, const pinn_columns *columns, int units, int inputs, void *layer,
                          cudaStream_t stream);

/* The first layer's values: x in the network's type. */
int pinn_launch_points(int f64, const pinn_columns *columns, int inputs, const double *x, void *layer,
                       cudaStream_t stream);

/* Pre-activations without bias -> activations, in place; and adjoints of activations -> of pre-activations, in place. */
int pinn_launch_tanh(int f64, const pinn_columns *columns, int units, const double *kappa, const void *bias,
                     void *layer, cudaStream_t stream);
int pinn_launch_reverse(int f64, const pinn_columns *columns, int units, const double *kappa, const void *activations,
                        void *adjoints, cudaStream_t stream);

/*
 * Residuals: the last layer's output without bias -> its adjoints, in place, each scaled for its loss; the sums of squares
 * of each block's points to squares[block]. -1: there is no such problem, or it has another number of inputs or outputs.
 */
int pinn_find_problem(const char *name, const net_shape *shape);
int pinn_launch_residual(int f64, int problem, const pinn_columns *columns, const void *bias, const double *x,
                         const double *targets, void *output, double *squares, cudaStream_t stream);

/* values[output * n + k] = output + bias for the region's n points, from `first` on. */
int pinn_launch_values(int f64, const pinn_columns *columns, int outputs, const void *bias, const void *output,
                       double *values, int64_t first, int64_t n, cudaStream_t stream);

/*
 * partial: for each layer and PINN_BLOCK columns the products of adjoints and inputs, [layer][columns][output][input, then
 * bias] -> one row of gradients per loss, in the order of the parameters. Sums are doubles, in the order of the columns.
 */
typedef struct pinn_rows {
    void *of[PINN_CUDA_TERMS];
} pinn_rows;
int pinn_launch_gradients(int f64, const pinn_columns *columns, const net_shape *shape, const void *partial,
                          const pinn_rows *rows, int n_losses, cudaStream_t stream);

#endif // PINN_CUDA_LAUNCH_H
