/*
 * What every kernel begins with: shared memory, numbers in their storage types, four at a time.
 */
#ifndef SUT_KERNELS_DEVICE_CUH
#define SUT_KERNELS_DEVICE_CUH

#include "kernels/tables.h"

#include <cuda_runtime.h>

/* bf16 and f16 are converted by the functions that the CPU uses; nvcc has to be told that they run on a device. */
#ifdef __CUDACC__
#define inline __host__ __device__ inline
#include "backend/half.h"
#undef inline
#else
#include "backend/half.h"
#endif

/* Shared memory of a block: `name` is an array of `count`; dynamic: a pointer. */
#ifdef __CUDACC__
#define SUT_SHARED(type, name, count) __shared__ type name[count]
#define SUT_DYNAMIC_SHARED(type, name)                           \
    extern __shared__ __align__(16) unsigned char sut_dynamic[]; \
    type *const name = reinterpret_cast<type *>(sut_dynamic)
#endif

/* The execution layer counts the elements that are read and written; a device has better things to do. */
#ifndef SUT_TRAFFIC
#define SUT_TRAFFIC(counter, elements, size) ((void)0)
#endif

#define SUT_GPU static __device__ __forceinline__
#define SUT_MEMBER __device__ __forceinline__
#define SUT_GPU_SPECIAL __device__ __forceinline__ /* specialisations take their linkage from the template */

namespace
{

/* Four numbers of one thread. Those behind the end of a chunk are zeros and are not stored. */
template <class Real> struct four {
    Real x[SUT_CUDA_EACH];
};

template <class Real> SUT_GPU four<Real> zeros()
{
    four<Real> r;
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e)
        r.x[e] = 0;
    return r;
}

template <class Real> SUT_GPU four<Real> ones()
{
    four<Real> r;
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e)
        r.x[e] = 1;
    return r;
}

/* Vector loads are taken where the address suits them; tested, not assumed: rows are wherever the caller put them. */
SUT_GPU bool is_aligned(const void *p, unsigned bytes)
{
    return (reinterpret_cast<uintptr_t>(p) & (bytes - 1)) == 0;
}

/* Elements at..at+3 of an array: f32, f64, and either of the halves. */
template <class Real> SUT_GPU four<Real> load_f32(const void *base, int64_t at, int left)
{
    SUT_TRAFFIC(read, left < SUT_CUDA_EACH ? left : SUT_CUDA_EACH, 4);
    const float *const from = static_cast<const float *>(base) + at;
    four<Real> r;
    if (left >= SUT_CUDA_EACH && is_aligned(from, 16)) {
        const float4 v = *reinterpret_cast<const float4 *>(from);
        r.x[0] = v.x, r.x[1] = v.y, r.x[2] = v.z, r.x[3] = v.w;
        return r;
    }
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e)
        r.x[e] = e < left ? (Real)from[e] : (Real)0;
    return r;
}

SUT_GPU four<double> load_f64(const void *base, int64_t at, int left)
{
    SUT_TRAFFIC(read, left < SUT_CUDA_EACH ? left : SUT_CUDA_EACH, 8);
    const double *const from = static_cast<const double *>(base) + at;
    four<double> r;
    if (left >= SUT_CUDA_EACH && is_aligned(from, 16)) {
        const double2 v = reinterpret_cast<const double2 *>(from)[0], w = reinterpret_cast<const double2 *>(from)[1];
        r.x[0] = v.x, r.x[1] = v.y, r.x[2] = w.x, r.x[3] = w.y;
        return r;
    }
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e)
        r.x[e] = e < left ? from[e] : 0.0;
    return r;
}

template <class Real> SUT_GPU four<Real> load_half(const void *base, bool bf16, int64_t at, int left)
{
    SUT_TRAFFIC(read, left < SUT_CUDA_EACH ? left : SUT_CUDA_EACH, 2);
    const uint16_t *const from = static_cast<const uint16_t *>(base) + at;
    uint16_t bits[SUT_CUDA_EACH];
    if (left >= SUT_CUDA_EACH && is_aligned(from, 8)) {
        const uint2 v = *reinterpret_cast<const uint2 *>(from);
        bits[0] = (uint16_t)v.x, bits[1] = (uint16_t)(v.x >> 16);
        bits[2] = (uint16_t)v.y, bits[3] = (uint16_t)(v.y >> 16);
    } else {
#pragma unroll
        for (int e = 0; e < SUT_CUDA_EACH; ++e)
            bits[e] = e < left ? from[e] : (uint16_t)0;
    }
    four<Real> r;
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e)
        r.x[e] = (Real)(bf16 ? sut_from_bf16(bits[e]) : sut_from_f16(bits[e]));
    return r;
}

template <class Real> SUT_GPU void store_f32(void *base, int64_t at, int left, const four<Real> &r)
{
    SUT_TRAFFIC(written, left < SUT_CUDA_EACH ? left : SUT_CUDA_EACH, 4);
    float *const to = static_cast<float *>(base) + at;
    if (left >= SUT_CUDA_EACH && is_aligned(to, 16)) {
        const float4 v = {(float)r.x[0], (float)r.x[1], (float)r.x[2], (float)r.x[3]};
        *reinterpret_cast<float4 *>(to) = v;
        return;
    }
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e)
        if (e < left)
            to[e] = (float)r.x[e];
}

SUT_GPU void store_f64(void *base, int64_t at, int left, const four<double> &r)
{
    SUT_TRAFFIC(written, left < SUT_CUDA_EACH ? left : SUT_CUDA_EACH, 8);
    double *const to = static_cast<double *>(base) + at;
    if (left >= SUT_CUDA_EACH && is_aligned(to, 16)) {
        const double2 v = {r.x[0], r.x[1]}, w = {r.x[2], r.x[3]};
        reinterpret_cast<double2 *>(to)[0] = v;
        reinterpret_cast<double2 *>(to)[1] = w;
        return;
    }
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e)
        if (e < left)
            to[e] = r.x[e];
}

template <class Real> SUT_GPU void store_half(void *base, bool bf16, int64_t at, int left, const four<Real> &r)
{
    SUT_TRAFFIC(written, left < SUT_CUDA_EACH ? left : SUT_CUDA_EACH, 2);
    uint16_t *const to = static_cast<uint16_t *>(base) + at;
    uint16_t bits[SUT_CUDA_EACH];
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e)
        bits[e] = bf16 ? sut_to_bf16((float)r.x[e]) : sut_to_f16((float)r.x[e]);
    if (left >= SUT_CUDA_EACH && is_aligned(to, 8)) {
        const uint2 v = {bits[0] | (unsigned)bits[1] << 16, bits[2] | (unsigned)bits[3] << 16};
        *reinterpret_cast<uint2 *>(to) = v;
        return;
    }
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e)
        if (e < left)
            to[e] = bits[e];
}

/* theta, state, outputs: f32 where the arithmetic is f32; f64 arithmetic also serves f32 tensors in careful passes. */
template <class Real> SUT_GPU four<Real> load_own(const void *base, int own, int64_t at, int left);
template <> SUT_GPU_SPECIAL four<float> load_own<float>(const void *base, int, int64_t at, int left)
{
    return load_f32<float>(base, at, left);
}
template <> SUT_GPU_SPECIAL four<double> load_own<double>(const void *base, int own, int64_t at, int left)
{
    return own == SUT_DTYPE_F64 ? load_f64(base, at, left) : load_f32<double>(base, at, left);
}

SUT_GPU void store_own(void *base, int, int64_t at, int left, const four<float> &r)
{
    store_f32(base, at, left, r);
}
SUT_GPU void store_own(void *base, int own, int64_t at, int left, const four<double> &r)
{
    if (own == SUT_DTYPE_F64)
        store_f64(base, at, left, r);
    else
        store_f32(base, at, left, r);
}

/* Gradients, in any type. */
template <class Real> SUT_GPU four<Real> load(const void *base, int dtype, int64_t at, int left)
{
    if (dtype == SUT_DTYPE_BF16 || dtype == SUT_DTYPE_F16)
        return load_half<Real>(base, dtype == SUT_DTYPE_BF16, at, left);
    return load_own<Real>(base, dtype, at, left);
}

/* One of them. */
SUT_GPU double load_one(const void *base, int dtype, int64_t at)
{
    switch (dtype) {
    case SUT_DTYPE_F64: return static_cast<const double *>(base)[at];
    case SUT_DTYPE_BF16: return (double)sut_from_bf16(static_cast<const uint16_t *>(base)[at]);
    case SUT_DTYPE_F16: return (double)sut_from_f16(static_cast<const uint16_t *>(base)[at]);
    default: return (double)static_cast<const float *>(base)[at];
    }
}

/* First chunk of slice s: the same cut as on the CPU. */
SUT_GPU int64_t slice_begin(int64_t n_chunks, int n_slices, int s)
{
    const int64_t q = n_chunks / n_slices, r = n_chunks % n_slices;
    return q * s + (s < r ? s : r);
}

} // namespace

#endif // SUT_KERNELS_DEVICE_CUH
