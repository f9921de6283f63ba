/*
 * The CPU back end: choice of instruction set, layouts, memory. Its memory is the host's.
 */
#include "backend/cpu.h"
#include "backend/half.h"
#include "optim/step.h"

#include <math.h>
#include <string.h>

extern const sut_backend_ops sut_cpu_ops_baseline;
#ifdef SUT_HAVE_AVX2
extern const sut_backend_ops sut_cpu_ops_avx2;
#endif
#ifdef SUT_HAVE_AVX512
extern const sut_backend_ops sut_cpu_ops_avx512;
#endif

static bool has_avx2(void)
{
#ifdef SUT_HAVE_AVX2
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

static bool has_avx512(void)
{
#ifdef SUT_HAVE_AVX512
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
#else
    return false;
#endif
}

sut_isa sut_backend_cpu_best_isa(void)
{
    return has_avx512() ? SUT_ISA_AVX512 : has_avx2() ? SUT_ISA_AVX2 : SUT_ISA_BASELINE;
}

const sut_backend_ops *sut_backend_cpu(sut_isa isa)
{
    switch (isa) {
    case SUT_ISA_BASELINE: return &sut_cpu_ops_baseline;
#ifdef SUT_HAVE_AVX2
    case SUT_ISA_AVX2: return has_avx2() ? &sut_cpu_ops_avx2 : NULL;
#endif
#ifdef SUT_HAVE_AVX512
    case SUT_ISA_AVX512: return has_avx512() ? &sut_cpu_ops_avx512 : NULL;
#endif
    default: return NULL;
    }
}

const sut_layout *sut_plain_layout_init(sut_plain_layout *plain, int64_t n, sut_dtype dtype)
{
    plain->count = n;
    plain->dtype = dtype;
    plain->first_chunk[0] = 0;
    plain->first_chunk[1] = n / SUT_CHUNK + (n % SUT_CHUNK != 0);
    plain->layout = (sut_layout){1, &plain->count, &plain->dtype, plain->first_chunk, plain->first_chunk[1], n, NULL};
    return &plain->layout;
}

size_t sut_backend_scratch(int m, int n_threads)
{
    enum { LANES = 16 }; /* SUT_LANES of cpu_dots.h */
    const size_t rows = (size_t)m, sums = (size_t)SUT_SUM_ROWS + rows + rows * (rows + 1) / 2;
    return (size_t)n_threads * (sums * LANES + rows * SUT_BLOCK) + SUT_MAX_SLICES * sums;
}

sut_status sut_backend_reserve(sut_context *ctx, int m)
{
    return ctx->ops->reserve(ctx, m);
}

sut_status sut_cpu_reserve(sut_context *ctx, int m)
{
    const size_t needed = sut_backend_scratch(m, ctx->n_threads);
    if (needed <= ctx->scratch_size)
        return SUT_OK;
    double *const larger = sut_alloc(ctx, needed, sizeof *larger);
    if (!larger)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes of scratch (%d losses, %d threads)",
                 needed * sizeof *larger, m, ctx->n_threads);
    sut_free(ctx, ctx->scratch);
    ctx->scratch = larger;
    ctx->scratch_size = needed;
    return SUT_OK;
}

sut_status sut_cpu_synchronize(sut_context *ctx)
{
    (void)ctx;
    return SUT_OK;
}

sut_status sut_cpu_allocate(sut_context *ctx, size_t size, void **out)
{
    *out = sut_alloc(ctx, size, 1);
    if (!*out)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes", size);
    return SUT_OK;
}

void sut_cpu_release(sut_context *ctx, void *memory)
{
    sut_free(ctx, memory);
}

sut_status sut_cpu_copy(sut_context *ctx, void *to, const void *from, size_t size)
{
    (void)ctx;
    if (size)
        memcpy(to, from, size);
    return SUT_OK;
}

sut_status sut_cpu_clear(sut_context *ctx, void *to, size_t size)
{
    (void)ctx;
    if (size)
        memset(to, 0, size);
    return SUT_OK;
}

sut_status sut_cpu_fill(sut_context *ctx, void *to, int64_t n, sut_dtype dtype, double value)
{
    (void)ctx;
    for (int64_t k = 0; k < n; ++k) {
        if (dtype == SUT_DTYPE_F64)
            ((double *)to)[k] = value;
        else
            ((float *)to)[k] = (float)value;
    }
    return SUT_OK;
}

sut_status sut_cpu_convert(sut_context *ctx, void *to, sut_dtype to_dtype, const void *from, sut_dtype from_dtype,
                           int64_t n)
{
    (void)ctx;
    if (from_dtype == SUT_DTYPE_BF16)
        for (int64_t k = 0; k < n; ++k)
            ((float *)to)[k] = sut_from_bf16(((const uint16_t *)from)[k]);
    else if (from_dtype == SUT_DTYPE_F16)
        for (int64_t k = 0; k < n; ++k)
            ((float *)to)[k] = sut_from_f16(((const uint16_t *)from)[k]);
    else if (to_dtype == SUT_DTYPE_BF16)
        for (int64_t k = 0; k < n; ++k)
            ((uint16_t *)to)[k] = sut_to_bf16(((const float *)from)[k]);
    else
        for (int64_t k = 0; k < n; ++k)
            ((uint16_t *)to)[k] = sut_to_f16(((const float *)from)[k]);
    return SUT_OK;
}

static double element(const void *x, sut_dtype dtype, int64_t k)
{
    return dtype == SUT_DTYPE_F32 ? (double)((const float *)x)[k] : ((const double *)x)[k];
}

sut_status sut_cpu_scan_metric(sut_context *ctx, const void *delta, const void *u, int64_t n, sut_dtype dtype,
                               sut_metric_scan *scan)
{
    (void)ctx;
    *scan = (sut_metric_scan){.bad = -1, .smallest = INFINITY};
    for (int64_t k = 0; k < n; ++k) {
        const double x = element(delta, dtype, k);
        if (!(x > 0.0)) {
            scan->bad = k;
            scan->value = x;
            return SUT_OK;
        }
        scan->smallest = x < scan->smallest ? x : scan->smallest;
        scan->frozen = scan->frozen || (isinf(x) && element(u, dtype, k) != 0.0);
    }
    return SUT_OK;
}
