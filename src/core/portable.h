/*
 * Qualifiers of functions that both the host and a GPU run: one source, compiled by the C compiler and by nvcc. SUT_SMALL: a
 * few operations, in a header; SUT_SOLVER: a loop, in a header; SUT_HOST_DEVICE: in a source.
 */
#ifndef SUT_CORE_PORTABLE_H
#define SUT_CORE_PORTABLE_H

#ifdef __CUDACC__
#define SUT_SMALL __host__ __device__ static inline
/* Calls are cheap beside what these do; inlined into one another they would take nvcc minutes and threads deep stacks. */
#define SUT_HOST_DEVICE __host__ __device__ __noinline__
#define SUT_SOLVER SUT_HOST_DEVICE static __attribute__((unused))
#else
#define SUT_SMALL static inline
#define SUT_HOST_DEVICE
#define SUT_SOLVER static inline
#endif

/* For functions with external linkage. A source of the GPU that includes these files as they are has copies of its own. */
#ifdef SUT_PORTABLE_STATIC
#define SUT_PORTABLE SUT_HOST_DEVICE static
#else
#define SUT_PORTABLE SUT_HOST_DEVICE
#endif

#endif /* SUT_CORE_PORTABLE_H */
