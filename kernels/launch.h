/*
 * Launchers of the passes, one file each. All of them take the tables of a pass and a stream, and return a cudaError_t as an
 * int: 0 for a launch that was queued.
 */
#ifndef SUT_KERNELS_LAUNCH_H
#define SUT_KERNELS_LAUNCH_H

#include "kernels/tables.h"

#include <cuda_runtime.h>

extern "C" {

/* Whether the library holds code for the device that is current. */
int sut_cuda_find_code(void);

/* f64: the chunks of `args` are computed in double, else in float. */
int sut_cuda_launch_gram(const sut_cuda_args *args, int f64, void *stream);
int sut_cuda_launch_fused(const sut_cuda_args *args, int f64, void *stream);   /* FUSED without sums */
int sut_cuda_launch_propose(const sut_cuda_args *args, int f64, void *stream); /* FUSED with sums, PROPOSE, TERMS */
int sut_cuda_launch_apply(const sut_cuda_args *args, int f64, void *stream);   /* APPLY, MEASURE */
/* The triangle of TERMS or MEASURE, packed, into the sums. */
int sut_cuda_launch_step_factor(const sut_cuda_args *args, void *stream);

/* Largest absolute values of the rows, as the bits of doubles, into out[0..m) that was set to 0. */
int sut_cuda_launch_row_max(const sut_cuda_args *args, unsigned long long *out, void *stream);
/* The first element that is not finite, into *out that was set to ~0. */
int sut_cuda_launch_find_nonfinite(const void *x, int64_t n, int dtype, unsigned long long *out, void *stream);

/* Plain arrays. Sums of cone_sums are those of PROPOSE; of cone_measure: |p|^2, |p - u|^2, |p - u|_M^2, and G p. */
int sut_cuda_launch_scan_metric(const void *delta, const void *u, int64_t n, int dtype, sut_cuda_metric_scan *scan,
                                void *stream);
int sut_cuda_launch_combine(const sut_cuda_plain_args *args, void *stream);
int sut_cuda_launch_cone_apply(const sut_cuda_plain_args *args, void *stream);
int sut_cuda_launch_cone_sums(const sut_cuda_plain_args *args, void *stream);
int sut_cuda_launch_cone_measure(const sut_cuda_plain_args *args, void *stream);
int sut_cuda_launch_cone_factor(const sut_cuda_plain_args *args, void *stream);

int sut_cuda_launch_fill(void *to, int64_t n, int dtype, double value, void *stream);
int sut_cuda_launch_convert(void *to, int to_dtype, const void *from, int from_dtype, int64_t n, void *stream);

} // extern "C"

static inline const sut_cuda_args *sut_cuda_pass_of(const sut_cuda_args *args)
{
    return args;
}
static inline const sut_cuda_args *sut_cuda_pass_of(const sut_cuda_plain_args *args)
{
    return &args->pass;
}

/* Shared memory for a triangle, a block and a strip, see factor.cuh. */
static inline size_t sut_cuda_factor_memory(int m)
{
    const size_t cols = (size_t)m + 1;
    return (cols * (cols + 1) / 2 + cols * 32 + 2 * SUT_CUDA_STRIP) * sizeof(double);
}

/* For the totals of the sums of a pass. */
static inline size_t sut_cuda_sums_memory(int n_sums)
{
    return (size_t)(n_sums > 0 ? n_sums : 1) * sizeof(double);
}

/*
 * One block to a slice, with dynamic shared memory, `most` of it for SUT_MAX_LOSSES. A kernel's static and dynamic shared memory
 * together may be more than a block has unasked; the limit is set to the most, always the same, since it belongs to the kernel,
 * which contexts of other threads launch too.
 */
template <class Args>
static inline int sut_cuda_launch_slices(void (*kernel)(const Args), const Args *args, size_t shared, size_t most,
                                         void *stream)
{
    Args copy = *args;
    void *arguments[] = {&copy};
    if (shared > 8 << 10) {
        const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)most);
        if (error != cudaSuccess)
            return (int)error;
    }
    return (int)cudaLaunchKernel(kernel, dim3((unsigned)sut_cuda_pass_of(args)->n_slices), dim3(SUT_CUDA_THREADS),
                                 arguments, shared, static_cast<cudaStream_t>(stream));
}

/* With the totals of its sums in shared memory. */
template <class Args> static inline int sut_cuda_launch(void (*kernel)(const Args), const Args *args, void *stream)
{
    const int m = SUT_MAX_LOSSES, most = SUT_SUM_ROWS + m + m * (m + 1) / 2;
    return sut_cuda_launch_slices(kernel, args, sut_cuda_sums_memory(sut_cuda_pass_of(args)->n_sums),
                                  sut_cuda_sums_memory(most), stream);
}

template <class Args>
static inline int sut_cuda_launch_factor(void (*kernel)(const Args), const Args *args, void *stream)
{
    return sut_cuda_launch_slices(kernel, args, sut_cuda_factor_memory(sut_cuda_pass_of(args)->m),
                                  sut_cuda_factor_memory(SUT_MAX_LOSSES), stream);
}

/* Elements one after the other, without sums: blocks take turns where there are many. */
static inline dim3 sut_cuda_blocks(int64_t n)
{
    const int64_t strips = n / SUT_CUDA_STRIP + (n % SUT_CUDA_STRIP != 0);
    return dim3((unsigned)(strips < SUT_CUDA_SLICES ? strips : SUT_CUDA_SLICES));
}

#endif // SUT_KERNELS_LAUNCH_H
