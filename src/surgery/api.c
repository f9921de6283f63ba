/*
 * The public calls of gradient surgery: checks, the Gram pass, weights, the weighted sum.
 *
 * Everything that can fail comes before the first write to the caller's memory.
 */
#include "optim/step.h"
#include "surgery/surgery.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* The caller's config over the defaults, in range for m losses. */
static sut_status read_config(sut_context *ctx, const sut_surgery_config *given, int m, sut_surgery_config *config)
{
    if (!given)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "surgery: config is NULL; the method is in it");
    sut_surgery_config_init(config, SUT_SURGERY_SUM);
    SUT_TRY(sut_read_struct(ctx, "sut_surgery_config", config, sizeof *config, given));
    return sut_surgery_validate(ctx, config, m);
}

static sut_status check_losses(sut_context *ctx, const double *losses, int m)
{
    for (int i = 0; losses && i < m; ++i)
        if (!isfinite(losses[i]))
            SUT_FAIL(ctx, SUT_ERROR_NOT_FINITE, "surgery: loss %d is %g", i, losses[i]);
    return SUT_OK;
}

static sut_status check_report(sut_context *ctx, const sut_surgery_report *report)
{
    if (report && (report->struct_size < sizeof report->struct_size || report->struct_size > sizeof *report))
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT,
                 "sut_surgery_report: struct_size is %zu; fill the struct in with sut_surgery_report_init()",
                 report->struct_size);
    return SUT_OK;
}

static void write_report(const sut_surgery_input *in, const sut_surgery_output *out, bool strict,
                         sut_surgery_report *report)
{
    sut_surgery_report full;
    if (!report)
        return;
    sut_surgery_report_init(&full);
    sut_surgery_measure(in, out, &full);
    full.strict = strict;
    full.struct_size = report->struct_size;
    memcpy(report, &full, report->struct_size);
}

static sut_status check_arrays(sut_context *ctx, const void *const *grads, int m, int64_t n, sut_dtype dtype,
                               const void *out)
{
    if (n < 1)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "surgery: n is %lld; it must be at least 1", (long long)n);
    if (dtype != SUT_DTYPE_F32 && dtype != SUT_DTYPE_F64)
        SUT_FAIL(ctx, SUT_ERROR_UNSUPPORTED, "surgery: dtype is %s; plain arrays are f32 or f64",
                 sut_dtype_name(dtype) ? sut_dtype_name(dtype) : "unknown");
    if (n > INT64_MAX / 8)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "surgery: n is %lld; no memory holds as many", (long long)n);
    if (!grads)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "surgery: grads is NULL");
    const size_t size = (size_t)n * sut_dtype_size(dtype);
    for (int i = 0; i < m; ++i) {
        if (!grads[i])
            SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "surgery: grads[%d] is NULL", i);
        if ((uintptr_t)grads[i] % sut_dtype_size(dtype) != 0)
            SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "surgery: grads[%d] is not aligned to its %zu-byte elements", i,
                     sut_dtype_size(dtype));
        if (out && sut_overlap(grads[i], size, out, size))
            SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "surgery: out overlaps grads[%d]", i);
        const char *const fault = sut_pointer_fault(ctx, grads[i]);
        if (fault)
            SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "surgery: grads[%d] %s", i, fault);
    }
    if ((uintptr_t)out % sut_dtype_size(dtype) != 0)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "surgery: out is not aligned to its %zu-byte elements",
                 sut_dtype_size(dtype));
    const char *const fault = out ? sut_pointer_fault(ctx, out) : NULL;
    if (fault)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "surgery: out %s", fault);
    return SUT_OK;
}

/*
 * No entry of a, nor a partial sum of one, may overflow: |a_j| <= sum |w_i| max_k |g_ik|. Norms bound the maxima, so that the
 * pass for these is needed only near the end of the range.
 */
static sut_status check_range_of_direction(sut_context *ctx, const sut_layout *layout, const sut_rows *rows,
                                           const sut_gram *gram, const double *weights)
{
    const sut_dtype dtype = layout->dtype[0];
    const double limit = dtype == SUT_DTYPE_F32 ? FLT_MAX : DBL_MAX;
    double largest[SUT_MAX_LOSSES], reach = 0.0;
    for (int i = 0; i < rows->m; ++i)
        reach += fabs(weights[i]) * ldexp(sqrt(gram->K[(size_t)i * (size_t)(rows->m + 1)]), gram->exponent);
    if (reach < limit)
        return SUT_OK;
    SUT_TRY(ctx->ops->row_max(ctx, layout, rows, largest));
    reach = 0.0;
    for (int i = 0; i < rows->m; ++i)
        reach += fabs(weights[i]) * largest[i];
    if (reach < limit)
        return SUT_OK;
    SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "surgery: the direction could overflow %s; its entries may reach %g",
             sut_dtype_name(dtype), reach);
}

sut_status sut_surgery_direction(sut_context *ctx, const sut_surgery_config *config, const void *const *grads, int m,
                                 int64_t n, sut_dtype dtype, const double *losses, uint64_t counter, void *out,
                                 sut_surgery_report *report)
{
    if (!ctx)
        return SUT_ERROR_INVALID_ARGUMENT;
    sut_surgery_config complete;
    SUT_TRY(read_config(ctx, config, m, &complete));
    SUT_TRY(check_arrays(ctx, grads, m, n, dtype, out));
    SUT_TRY(check_losses(ctx, losses, m));
    SUT_TRY(check_report(ctx, report));
    SUT_TRY(sut_backend_reserve(ctx, m));

    const size_t mm = (size_t)m * (size_t)m;
    double *const memory = sut_alloc(ctx, mm + SUT_SURGERY_WORK(m), sizeof *memory);
    if (!memory)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "surgery: no memory for the workspace of %d losses", m);
    sut_plain_layout plain;
    const sut_layout *const layout = sut_plain_layout_init(&plain, n, dtype);
    const sut_rows rows = {grads, m, NULL};
    sut_gram gram = {memory, 0, false};
    sut_surgery_output weights;
    sut_status status = sut_gram_compute(ctx, layout, &rows, false, NULL, NULL, &gram);
    const sut_surgery_input in = {gram.K, m, gram.exponent, losses, ctx->seed, counter, &complete, memory + mm};
    if (status == SUT_OK)
        status = sut_surgery_solve(ctx, &in, &weights);
    if (status == SUT_OK && out)
        status = check_range_of_direction(ctx, layout, &rows, &gram, weights.weights);
    if (status == SUT_OK && out)
        status = ctx->ops->combine(ctx, layout, &rows, weights.weights, out);
    if (status == SUT_OK)
        write_report(&in, &weights, gram.strict, report);
    sut_free(ctx, memory);
    return status;
}

/* The lower triangle of the caller's matrix, mirrored. */
static sut_status read_gram(sut_context *ctx, const double *gram, int m, double *K)
{
    for (int i = 0; i < m; ++i) {
        for (int j = 0; j <= i; ++j) {
            const double x = gram[(size_t)i * (size_t)m + (size_t)j];
            if (!isfinite(x))
                SUT_FAIL(ctx, SUT_ERROR_NOT_FINITE, "surgery: gram[%d][%d] is %g", i, j, x);
            if (i == j && x < 0.0)
                SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "surgery: gram[%d][%d] is %g; a squared norm is at least 0", i, j,
                         x);
            K[(size_t)i * (size_t)m + (size_t)j] = K[(size_t)j * (size_t)m + (size_t)i] = x;
        }
    }
    return SUT_OK;
}

sut_status sut_surgery_weights(sut_context *ctx, const sut_surgery_config *config, const double *gram, int m,
                               const double *losses, uint64_t counter, sut_surgery_report *report)
{
    if (!ctx)
        return SUT_ERROR_INVALID_ARGUMENT;
    sut_surgery_config complete;
    SUT_TRY(read_config(ctx, config, m, &complete));
    if (!gram)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "surgery: gram is NULL");
    SUT_TRY(check_losses(ctx, losses, m));
    SUT_TRY(check_report(ctx, report));

    const size_t mm = (size_t)m * (size_t)m;
    double *const memory = sut_alloc(ctx, mm + SUT_SURGERY_WORK(m), sizeof *memory);
    if (!memory)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "surgery: no memory for the workspace of %d losses", m);
    const sut_surgery_input in = {memory, m, 0, losses, ctx->seed, counter, &complete, memory + mm};
    sut_surgery_output out;
    sut_status status = read_gram(ctx, gram, m, memory);
    if (status == SUT_OK)
        status = sut_surgery_solve(ctx, &in, &out);
    if (status == SUT_OK)
        write_report(&in, &out, false, report);
    sut_free(ctx, memory);
    return status;
}
