/*
 * The CPU back end: choice of instruction set, layouts, scratch memory.
 */
#include "backend/backend.h"
#include "optim/step.h"

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
    plain->layout = (sut_layout){1, &plain->count, &plain->dtype, plain->first_chunk, plain->first_chunk[1], n};
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
