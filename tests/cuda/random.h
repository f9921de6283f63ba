/*
 * Repeatable random numbers of the CUDA tests.
 */
#ifndef SUT_TEST_CUDA_RANDOM_H
#define SUT_TEST_CUDA_RANDOM_H

#include <cstdint>

/* Numbers in (0, 1), and normal enough ones around 0. */
struct random_numbers {
    std::uint64_t state;
    explicit random_numbers(std::uint64_t seed) : state(seed * 0x9e3779b97f4a7c15u + 1)
    {
    }
    std::uint64_t bits()
    {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state * 0x2545f4914f6cdd1du;
    }
    double uniform()
    {
        return ((double)(bits() >> 11) + 0.5) * 0x1p-53;
    }
    double normal()
    {
        return uniform() + uniform() + uniform() + uniform() - uniform() - uniform() - uniform() - uniform();
    }
    int below(int n)
    {
        return (int)(bits() % (std::uint64_t)n);
    }
};

#endif // SUT_TEST_CUDA_RANDOM_H
