/*
 * What tests/cuda/exec/exec.h offers, on a real GPU: its order of threads cannot be chosen, and nobody counts its launches.
 */
#ifndef SUT_GPU_EXEC_H
#define SUT_GPU_EXEC_H

#include <cstdint>

namespace exec
{

constexpr bool counts = false;

inline int watch_every = 1; /* nobody watches */

struct counters {
    long launches, copies, sets, synchronisations;
};
inline counters count;

inline void seed(std::uint64_t)
{
}
inline int allocations()
{
    return 0;
}

} // namespace exec

#endif // SUT_GPU_EXEC_H
