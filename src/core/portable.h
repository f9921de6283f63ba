/*
 * Qualifiers of functions that both the host and a GPU run: one source, compiled by the C compiler and by nvcc. SUT_SMALL: a
 * few operations, in a header; SUT_SOLVER: a loop, in a header; SUT_HOST_DEVICE: in a source.
 */
#ifndef SUT_CORE_PORTABLE_H
#define SUT_CORE_PORTABLE_H

#ifdef __CUDACC__
#define SUT_SMALL __host__ __device__ static inline
/* Calls are cheap beside what these do; inlined into one another they would take nvcc minutes and threads deep stacks. */
#ifdef SUT_PORTABLE_STATIC
#define SUT_HOST_DEVICE __device__ __noinline__
#else
#define SUT_HOST_DEVICE __host__ __device__ __noinline__
#endif
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

/*
 * Local arrays of these functions, uninitialised and of zeros. A stack on a GPU is set aside for every thread that could run, so
 * that the source of the GPU takes them from memory of the one thread that does (kernels/array.cuh). Not to be copied, and no
 * operand of sizeof.
 */
#ifndef SUT_ARRAY
#define SUT_ARRAY(type, name, count) type name[count]
#define SUT_ZEROS(type, name, count) type name[count] = {0}
#endif

#endif /* SUT_CORE_PORTABLE_H */
