/*
 * For the tests of suture-pinn's network: every set of kernels that this processor has, and numbers to try them on.
 */
#ifndef TEST_PINN_KERNELS_H
#define TEST_PINN_KERNELS_H

#include "network.h"
#include "random.h"

#include <stdlib.h>

/* Kernels 0, 1, ... of this processor, f32 and f64 in turn; NULL past the last. */
static inline const net_kernels *kernels_at(int index)
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};
    for (int i = 0; i < 6; i++) {
        const net_kernels *kernels = net_kernels_find(i % 2 ? NET_F64 : NET_F32, isas[i / 2]);
        if (kernels && index-- == 0)
            return kernels;
    }
    return NULL;
}

/* n numbers, uniform in [-size, size). */
static inline double *random_numbers(uint64_t seed, size_t n, double size)
{
    double *x = malloc((n ? n : 1) * sizeof *x);
    for (size_t i = 0; x && i < n; i++)
        x[i] = size * (2 * pinn_uniform(pinn_stream(seed, 7, 0), i) - 1);
    return x;
}

/* The same as elements of the kernels' type; both must be freed. */
static inline void *typed(const net_kernels *kernels, const double *x, size_t n)
{
    void *out = calloc(n ? n : 1, kernels->real_size);
    if (out)
        net_store(kernels->real, out, 0, x, n);
    return out;
}

#endif
