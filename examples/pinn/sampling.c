/* The permutations of Latin hypercube sampling. */
#include "sampling.h"

void pinn_axis_shuffle(pinn_axis *axis)
{
    uint32_t *const p = axis->permutation;
    const uint32_t n = (uint32_t)axis->n;
    for (uint32_t k = 0; k < n; k++) {
        /* A uniform index in 0..k from 32 random bits; its bias, k / 2^32, is a millionth. */
        const uint64_t bits = pinn_bits(axis->stream, k) >> 32;
        const uint32_t j = (uint32_t)(bits * (k + 1) >> 32);
        p[k] = p[j];
        p[j] = k;
    }
}
