/*
 * Draws that depend on a seed and a counter alone, so that a step can be replayed on any back end. SplitMix64: Steele, Lea,
 * Flood 2014; integers below a bound without bias: Lemire 2019.
 */
#ifndef SUT_SURGERY_DRAWS_H
#define SUT_SURGERY_DRAWS_H

#include "surgery/prelude.h"

typedef struct sut_draws {
    uint64_t state;
} sut_draws;

SUT_SOLVER sut_draws sut_draws_begin(uint64_t seed, uint64_t counter)
{
    sut_draws draws;
    draws.state = seed + counter * UINT64_C(0xD1342543DE82EF95);
    return draws;
}

SUT_SOLVER uint64_t sut_draw(sut_draws *draws)
{
    uint64_t z = draws->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Integer in 0..bound-1, each equally likely; bound < 2^32. The 128-bit product draw * bound is built from halves. */
SUT_SOLVER uint64_t sut_draw_below(sut_draws *draws, uint64_t bound)
{
    const uint64_t reject = (0 - bound) % bound; /* (2^64 - bound) mod bound */
    for (;;) {
        const uint64_t x = sut_draw(draws);
        const uint64_t low = (x & 0xffffffffu) * bound, middle = (x >> 32) * bound + (low >> 32);
        if ((middle << 32 | (low & 0xffffffffu)) >= reject)
            return middle >> 32;
    }
}

/* 0..m-1 in random order (Fisher, Yates). */
SUT_SOLVER void sut_draw_order(sut_draws *draws, int m, int *order)
{
    for (int i = 0; i < m; ++i)
        order[i] = i;
    for (int k = m - 1; k >= 1; --k) {
        const int other = (int)sut_draw_below(draws, (uint64_t)k + 1);
        const int kept = order[k];
        order[k] = order[other];
        order[other] = kept;
    }
}

#endif /* SUT_SURGERY_DRAWS_H */
