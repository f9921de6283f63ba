/*
 * Latin hypercube sampling. An axis with n strata takes coordinate (pi(k) - U_k)/n for point k, pi a random permutation
 * of 1..n, U_k uniform in [0, 1): every one of the n slices of (0, 1] holds exactly one point. Axes are independent.
 */
#ifndef PINN_SAMPLING_H
#define PINN_SAMPLING_H

#include "random.h"

/* One axis in one step: its permutation must have been drawn before its coordinates are asked for. */
typedef struct pinn_axis {
    int n;
    uint64_t stream;       /* start of the random numbers of this axis and step */
    uint32_t *permutation; /* of 0 .. n - 1 */
} pinn_axis;

/* Fisher-Yates shuffle. */
void pinn_axis_shuffle(pinn_axis *axis);

static inline double pinn_axis_at(const pinn_axis *axis, int k)
{
    const double u = pinn_uniform(axis->stream, (uint64_t)axis->n + (uint64_t)k);
    return ((double)(axis->permutation[k] + 1) - u) / axis->n;
}

#endif
