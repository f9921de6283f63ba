/*
 * The execution layer: runs .cu files, compiled by the host's C++ compiler, on the CPU. A test instrument: slow, strict, and
 * apart from the library. This header is for tests; kernels see cuda_runtime.h and cooperative_groups.h beside it.
 *
 * Every thread of a block is a fibre. One runs until it waits (barrier, warp exchange, grid barrier) or ends; then a random
 * one of those that can go on is taken; in most launches one warp is late, and goes on when nobody else can. Blocks are taken in
 * random order, a few at a time; a cooperative grid has all of its blocks at once. Work on a stream is queued, and done when
 * the program waits for it, so that a buffer that is reused too soon, or a result read too early, is seen.
 *
 * Faults end the launch and are reported as a device reports them: an error that stays until exec::reset(). The sentence is
 * in exec::fault(). What is found:
 *   - a barrier that some threads of a block do not reach, or reach at another line; grid barriers likewise
 *   - warp exchanges whose mask names threads that do not take part, left out, or disagree; a source outside the mask
 *   - a launch in which nobody can go on, or that never ends
 *   - writes outside an allocation, when the launch ends (with the address sanitizer: reads and writes, at once)
 *   - the host touching device memory: a segmentation fault at once
 * Shared memory and fresh device memory hold bytes 0xff: NaN as numbers, -1 as integers. A missing barrier shows as that, or
 * as results that change with exec::seed().
 */
#ifndef SUT_EXEC_H
#define SUT_EXEC_H

#include "grid.h"

#include <cstddef>
#include <cstdint>
#include <functional>

struct exec_stream;

namespace exec
{

/* What the order of threads, blocks and streams is drawn from. */
void seed(std::uint64_t value);

/* The first fault since the last reset; "" if there was none. */
const char *fault();

/* Forget a fault. Allocations, streams and what they hold stay. */
void reset();

/* Bytes of device memory in use, and allocations: for tests of leaks. */
std::size_t memory_in_use();
int allocations();

/* Let the n-th allocation from now fail (0: the next), negative: none. */
void fail_allocation(int n);

/* The host is kept out of device memory after each call (1), or after one call in so many: locking it takes longer than a
 * small kernel. */
extern int watch_every;

/* False in the header of this name that tests get on a real GPU. */
constexpr bool counts = true;

struct counters {
    long launches, copies, sets, synchronisations;
};
extern counters count;

/* The machine as the runtime describes it; tests may change it. Its devices are alike, and do not reach each other's memory. */
struct device {
    int processors = 4, blocks_per_processor = 2, devices = 1;
    int driver = 13000;    /* 0: there is none */
    int architecture = 90; /* 10 major + minor */
    bool has_code = true;  /* the program holds code for it */
};
extern device machine;

/* For stand-ins of libraries: work of the host that is queued like a launch, and whether device memory reaches from
 * `begin` over `size` bytes. */
void queue(exec_stream *stream, std::function<void()> work);
bool is_allocated(const void *begin, std::size_t size);

} // namespace exec

#endif // SUT_EXEC_H
