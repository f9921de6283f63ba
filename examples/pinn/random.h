/*
 * Random numbers as a function of (seed, stream, step, index), so that a number is the same whoever draws it, in whatever
 * order, and the generator's whole state is the seed and the step. SplitMix64 (Steele, Lea, Flood 2014) at position
 * `index` from a start that mixes the other three.
 */
#ifndef PINN_RANDOM_H
#define PINN_RANDOM_H

#include <stdint.h>

#define PINN_WEYL UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t pinn_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Start of one stream. */
static inline uint64_t pinn_stream(uint64_t seed, uint64_t stream, uint64_t step)
{
    return pinn_mix(pinn_mix(pinn_mix(seed + PINN_WEYL) + stream) + step * PINN_WEYL);
}

static inline uint64_t pinn_bits(uint64_t start, uint64_t index)
{
    return pinn_mix(start + (index + 1) * PINN_WEYL);
}

/* In [0, 1), 53 bits. */
static inline double pinn_uniform(uint64_t start, uint64_t index)
{
    return (double)(pinn_bits(start, index) >> 11) * 0x1p-53;
}

#endif
