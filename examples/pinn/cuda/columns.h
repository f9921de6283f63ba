/*
 * The columns of an array, as host and kernels know them.
 *
 * An array of a layer is [unit][column]: every unit's channels at every point of a step side by side, so that a linear layer is
 * one matrix product for all of them. A set of points is a region of columns: its values at all of its points, then the
 * derivatives in the first input, and so on; the data terms have values alone. Regions are filled up to whole blocks of points
 * with copies of the last one, whose adjoints are 0.
 */
#ifndef PINN_CUDA_COLUMNS_H
#define PINN_CUDA_COLUMNS_H

#include "cuda/interface.h"

/* Points of a block, and columns whose products are added in the network's type before they become doubles. */
enum { PINN_BLOCK = 256 };

typedef struct pinn_region {
    int64_t column, block; /* the first of each */
    int64_t n_points, n_padded;
    int64_t x_at, target_at; /* in the arrays of points and targets */
    int channels;            /* inputs + 2, or 1 */
    int loss;
    double scale;
} pinn_region;

typedef struct pinn_columns {
    pinn_region region[PINN_CUDA_TERMS];
    int n_regions;
    int64_t total, blocks;
} pinn_columns;

/* Numbers that every point's derivatives use; of the network's type. */
template <class Real> struct pinn_kappa {
    Real of[NET_MAX_INPUTS];
};

#endif // PINN_CUDA_COLUMNS_H
