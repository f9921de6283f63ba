/*
 * The passes over plain arrays, as the host asks for them. They share the context's plain plan.
 */
#include "kernels/launch.h"
#include "kernels/plan.h"

sut_status sut_cuda_scan_metric(sut_context *ctx, const void *delta, const void *u, int64_t n, sut_dtype dtype,
                                sut_metric_scan *scan)
{
    static const char what[] = "the search in a metric";
    SUT_CUDA_ENTER(ctx);
    sut_cuda *const cuda = cuda_of(ctx);
    sut_cuda_plan *const plan = cuda->plain;
    /* The start values go through the pinned tables, as those of a pass do. */
    SUT_CUDA_TRY(ctx, cudaEventSynchronize(plan->uploaded), what);
    sut_cuda_metric_scan *const start = reinterpret_cast<sut_cuda_metric_scan *>(plan->host);
    sut_cuda_metric_scan *const to = reinterpret_cast<sut_cuda_metric_scan *>(plan->work + plan->found_at);
    const sut_cuda_metric_scan nothing = {~0ull, 0x7ff0000000000000ull, 0};
    *start = nothing;
    SUT_CUDA_TRY(ctx, cudaMemcpyAsync(to, start, sizeof *start, cudaMemcpyHostToDevice, cuda->stream), what);
    SUT_CUDA_TRY(ctx, cudaEventRecord(plan->uploaded, cuda->stream), what);
    SUT_CUDA_TRY(ctx, sut_cuda_launch_scan_metric(delta, u, n, (int)dtype, to, cuda->stream), what);
    unsigned long long found[sizeof nothing / sizeof(unsigned long long)];
    SUT_TRY(sut_cuda_fetch_found(ctx, plan, (int)(sizeof found / sizeof *found), found));
    sut_cuda_metric_scan result;
    memcpy(&result, found, sizeof result);
    memset(scan, 0, sizeof *scan);
    scan->bad = result.bad == ~0ull ? -1 : (int64_t)result.bad;
    scan->frozen = result.frozen != 0;
    memcpy(&scan->smallest, &result.smallest, sizeof scan->smallest);
    if (scan->bad < 0)
        return SUT_OK;
    const size_t size = dtype == SUT_DTYPE_F64 ? sizeof(double) : sizeof(float);
    double value = 0;
    float single = 0;
    SUT_TRY(sut_cuda_download(ctx, dtype == SUT_DTYPE_F64 ? (void *)&value : (void *)&single,
                              static_cast<const char *>(delta) + (size_t)scan->bad * size, size));
    scan->value = dtype == SUT_DTYPE_F64 ? value : (double)single;
    return SUT_OK;
}

/* Tables and arguments of a pass; `weights` may be NULL. */
static sut_status begin(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const double *weights,
                        int n_sums, sut_cuda_plan **plan_out, sut_cuda_plain_args *args)
{
    sut_cuda_plan *plan;
    SUT_TRY(sut_cuda_find_plan(ctx, layout, rows->m, &plan));
    SUT_TRY(sut_cuda_begin_tables(ctx, plan, layout, rows));
    if (weights)
        memcpy(sut_cuda_control_of(plan)->weights, weights, (size_t)rows->m * sizeof *weights);
    for (int i = 0; i <= rows->m;
         ++i) /* of the triangle's columns: rows are scaled there, whether they say so or not */
        sut_cuda_control_of(plan)->scale[i] = rows->scale && i < rows->m ? rows->scale[i] : 1.0;
    SUT_TRY(sut_cuda_upload_tables(ctx, plan));
    const sut_cuda_chunks all = sut_cuda_chunks_of(plan, layout, 2);
    memset(args, 0, sizeof *args);
    args->pass = sut_cuda_base_args(plan, layout, rows, &all, n_sums);
    args->pass.u_scale = 1;
    args->pass.strict = 1;
    args->pass.want_sums = n_sums > 0;
    args->delta_scale = 1;
    *plan_out = plan;
    return SUT_OK;
}

sut_status sut_cuda_combine(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const double *weights,
                            void *out)
{
    SUT_CUDA_ENTER(ctx);
    sut_cuda_plan *plan;
    sut_cuda_plain_args args;
    SUT_TRY(begin(ctx, layout, rows, weights, 0, &plan, &args));
    args.out = out;
    return sut_cuda_report(ctx, sut_cuda_launch_combine(&args, cuda_of(ctx)->stream), "a direction");
}

sut_status sut_cuda_cone_apply(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const void *u,
                               const void *delta, const double *lambda, void *p)
{
    SUT_CUDA_ENTER(ctx);
    sut_cuda_plan *plan;
    sut_cuda_plain_args args;
    SUT_TRY(begin(ctx, layout, rows, lambda, 0, &plan, &args));
    args.u = u;
    args.delta = delta;
    args.out = p;
    return sut_cuda_report(ctx, sut_cuda_launch_combine(&args, cuda_of(ctx)->stream), "a projection");
}

sut_status sut_cuda_cone_sums(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const void *u,
                              double u_scale, const void *delta, double delta_scale, sut_cone_sums *sums)
{
    SUT_CUDA_ENTER(ctx);
    const int m = rows->m, n_sums = SUT_SUM_ROWS + m + m * (m + 1) / 2;
    double all[SUT_SUM_ROWS + SUT_MAX_LOSSES + SUT_MAX_LOSSES * (SUT_MAX_LOSSES + 1) / 2];
    sut_cuda_plan *plan;
    sut_cuda_plain_args args;
    SUT_TRY(begin(ctx, layout, rows, NULL, n_sums, &plan, &args));
    args.pass.u_scale = u_scale;
    args.u = u;
    args.delta = delta;
    args.delta_scale = delta_scale;
    SUT_CUDA_TRY(ctx, sut_cuda_launch_cone_sums(&args, cuda_of(ctx)->stream), "the sums of a projection");
    SUT_TRY(sut_cuda_fetch_sums(ctx, plan, n_sums, all));
    sums->uu = all[SUT_SUM_UU];
    sums->uMu = all[SUT_SUM_UMU];
    memcpy(sums->b, all + SUT_SUM_ROWS, (size_t)m * sizeof *sums->b);
    for (int i = 0; i < m; ++i)
        for (int j = 0; j <= i; ++j)
            sums->K[i * m + j] = sums->K[j * m + i] = all[SUT_SUM_ROWS + m + i * (i + 1) / 2 + j];
    return SUT_OK;
}

sut_status sut_cuda_cone_measure(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const void *u,
                                 double u_scale, const void *delta, double delta_scale, const void *p,
                                 const double *lambda, sut_cone_measure *measure)
{
    SUT_CUDA_ENTER(ctx);
    const int m = rows->m, n_sums = SUT_SUM_ROWS + m;
    double all[SUT_SUM_ROWS + SUT_MAX_LOSSES];
    sut_cuda_plan *plan;
    sut_cuda_plain_args args;
    SUT_TRY(begin(ctx, layout, rows, lambda, n_sums, &plan, &args));
    args.pass.u_scale = u_scale;
    args.u = u;
    args.delta = delta;
    args.delta_scale = delta_scale;
    args.p = p;
    args.multiplied = !p;
    SUT_CUDA_TRY(ctx, sut_cuda_launch_cone_measure(&args, cuda_of(ctx)->stream), "the measurement of a projection");
    SUT_TRY(sut_cuda_fetch_sums(ctx, plan, n_sums, all));
    measure->pp = all[0];
    measure->dist2 = all[1];
    measure->dist2_M = all[2];
    memcpy(measure->s, all + SUT_SUM_ROWS, (size_t)m * sizeof *measure->s);
    return SUT_OK;
}

sut_status sut_cuda_cone_factor(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const void *u,
                                double u_scale, const void *delta, double delta_scale, const double *lambda, double *R)
{
    SUT_CUDA_ENTER(ctx);
    sut_cuda_plan *plan;
    sut_cuda_plain_args args;
    SUT_TRY(begin(ctx, layout, rows, lambda, 0, &plan, &args));
    sut_cuda_begin_triangle(&args.pass);
    args.pass.u_scale = u_scale;
    args.u = u;
    args.delta = delta;
    args.delta_scale = delta_scale;
    args.multiplied = lambda != NULL;
    SUT_CUDA_TRY(ctx, sut_cuda_launch_cone_factor(&args, cuda_of(ctx)->stream), "the triangle of a projection");
    return sut_cuda_take_triangle(ctx, plan, rows->m, R);
}
