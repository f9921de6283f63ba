/*
 * Inside the execution layer: what a running thread knows, and what device functions ask of the scheduler.
 */
#ifndef SUT_EXEC_GRID_H
#define SUT_EXEC_GRID_H

#include <cstddef>
#include <cstdint>

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

namespace exec
{

struct block;

/* The indices of the thread that runs. */
struct place {
    uint3 thread, block;
    dim3 block_size, grid_size;
};
extern const place *here;

/* Bytes of parameters, state and gradients that kernels have read and written, each time they did. */
struct bytes {
    long read, written;
};
extern bytes traffic;
/* Most bytes of local arrays that a thread had in use at once. */
extern long arrays_in_use;

enum class warp_op { sync, shuffle, shuffle_up, shuffle_down, shuffle_xor, ballot, any, all };

void barrier(const char *site);
void grid_barrier(const char *site);
/* The thread's part in a warp exchange; `size` <= 8 bytes of value in and out. Returns the ballot for votes. */
unsigned warp(warp_op op, unsigned mask, void *value, std::size_t size, int argument, int width, const char *site);
/* Memory of the block that belongs to `key`; poisoned when it is first asked for. */
void *shared(const void *key, std::size_t size, std::size_t alignment);
void *dynamic_shared();
/* Now and then let another thread run: atomics and fences call it. */
void pause();

/* Shared memory of a block, static and dynamic together: without asking, and at most (on the oldest architecture, 7.5). */
const int shared_unasked = 48 << 10, shared_most = 64 << 10;

/* Runs a grid to its end. `asked`: for more shared memory. Returns false on a fault. */
bool run(dim3 grid, dim3 block, std::size_t dynamic_bytes, bool asked, bool cooperative, void (*call)(void *),
         void *argument);

/* Records the first fault; inside a thread it does not return. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool failed();
std::uint64_t draw(std::uint64_t below);

/* Inside a launch? */
bool running();

} // namespace exec

#endif // SUT_EXEC_GRID_H
