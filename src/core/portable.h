/*
 * Qualifiers of functions that both the host and a GPU run: one source, compiled by the C compiler and by nvcc.
 */
#ifndef SUT_CORE_PORTABLE_H
#define SUT_CORE_PORTABLE_H

#ifdef __CUDACC__
#define SUT_HOST_DEVICE __host__ __device__
#else
#define SUT_HOST_DEVICE
#endif

/* The same for functions in headers. */
#define SUT_SMALL SUT_HOST_DEVICE static inline

#endif /* SUT_CORE_PORTABLE_H */
