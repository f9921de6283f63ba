/*
 * The passes over a layout, as the host asks for them: tables, launches, sums.
 *
 * f32 and f64 tensors of one layout are two launches, f32 first; the second adds its sums to those of the first. Careful
 * passes are one launch in f64 over all of them.
 */
#include "kernels/blas.h"
#include "kernels/launch.h"
#include "kernels/plan.h"
#include "kernels/setting.h"

typedef int (*launcher)(const sut_cuda_args *args, int f64, void *stream);

/* One launch for each type that is there, with the sums of both. */
static sut_status launch_sets(sut_context *ctx, sut_cuda_plan *plan, const sut_layout *layout, const sut_rows *rows,
                              sut_cuda_args args, bool careful, launcher launch, const char *what)
{
    int add = 0;
    for (int k = careful ? 2 : 0; k < (careful ? 3 : 2); ++k) {
        const sut_cuda_chunks chunks = sut_cuda_chunks_of(plan, layout, k);
        if (chunks.count == 0)
            continue;
        const sut_cuda_args own = sut_cuda_base_args(plan, layout, rows, &chunks, args.n_sums);
        args.chunks = own.chunks;
        args.n_chunks = own.n_chunks;
        args.n_slices = own.n_slices;
        args.add = add;
        SUT_CUDA_TRY(ctx, launch(&args, k > 0, cuda_of(ctx)->stream), what);
        add = 1;
    }
    if (!add && args.n_sums > 0) /* a layout without elements */
        SUT_CUDA_TRY(ctx, cudaMemsetAsync(args.sums, 0, (size_t)args.n_sums * sizeof(double), cuda_of(ctx)->stream),
                     what);
    return SUT_OK;
}

/* ---- pass 1 ---- */

sut_status sut_cuda_gram(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, bool strict, double *K)
{
    SUT_CUDA_ENTER(ctx);
    const int m = rows->m, n_sums = m * (m + 1) / 2;
    sut_cuda_plan *plan;
    SUT_TRY(sut_cuda_find_plan(ctx, layout, m, &plan));
    bool done = false;
    SUT_TRY(sut_cuda_blas_gram(ctx, plan, layout, rows, K, &done));
    if (done)
        return SUT_OK;
    SUT_TRY(sut_cuda_begin_tables(ctx, plan, layout, rows));
    SUT_TRY(sut_cuda_upload_tables(ctx, plan));
    const sut_cuda_chunks all = sut_cuda_chunks_of(plan, layout, 2);
    sut_cuda_args args = sut_cuda_base_args(plan, layout, rows, &all, n_sums);
    args.strict = strict;
    args.want_sums = 1;
    SUT_TRY(launch_sets(ctx, plan, layout, rows, args, rows->scale != NULL, sut_cuda_launch_gram, "the Gram pass"));
    double sums[SUT_MAX_LOSSES * (SUT_MAX_LOSSES + 1) / 2];
    SUT_TRY(sut_cuda_fetch_sums(ctx, plan, n_sums, sums));
    for (int i = 0; i < m; ++i)
        for (int j = 0; j <= i; ++j)
            K[i * m + j] = K[j * m + i] = sums[i * (i + 1) / 2 + j];
    return SUT_OK;
}

sut_status sut_cuda_row_max(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, double *max_out)
{
    static const char what[] = "the search for the largest elements";
    SUT_CUDA_ENTER(ctx);
    sut_cuda_plan *plan;
    SUT_TRY(sut_cuda_find_plan(ctx, layout, rows->m, &plan));
    unsigned long long found[SUT_MAX_LOSSES];
    unsigned long long *const to = reinterpret_cast<unsigned long long *>(plan->work + plan->found_at);
    SUT_TRY(sut_cuda_begin_tables(ctx, plan, layout, rows));
    SUT_TRY(sut_cuda_upload_tables(ctx, plan));
    SUT_CUDA_TRY(ctx, cudaMemsetAsync(to, 0, sizeof found, cuda_of(ctx)->stream), what);
    const sut_cuda_chunks all = sut_cuda_chunks_of(plan, layout, 2);
    const sut_cuda_args args = sut_cuda_base_args(plan, layout, rows, &all, 0);
    if (all.count > 0)
        SUT_CUDA_TRY(ctx, sut_cuda_launch_row_max(&args, to, cuda_of(ctx)->stream), what);
    SUT_TRY(sut_cuda_fetch_found(ctx, plan, rows->m, found));
    for (int i = 0; i < rows->m; ++i)
        memcpy(&max_out[i], &found[i], sizeof max_out[i]);
    return SUT_OK;
}

sut_status sut_cuda_find_nonfinite(sut_context *ctx, const void *x, int64_t n, sut_dtype dtype, int64_t *index_out)
{
    static const char what[] = "the search for NaN";
    *index_out = -1;
    if (n <= 0)
        return SUT_OK;
    SUT_CUDA_ENTER(ctx);
    sut_cuda_plan *const plan = cuda_of(ctx)->plain;
    unsigned long long found = ~0ull;
    unsigned long long *const to = reinterpret_cast<unsigned long long *>(plan->work + plan->found_at);
    SUT_CUDA_TRY(ctx, cudaMemsetAsync(to, 0xff, sizeof found, cuda_of(ctx)->stream), what);
    SUT_CUDA_TRY(ctx, sut_cuda_launch_find_nonfinite(x, n, (int)dtype, to, cuda_of(ctx)->stream), what);
    SUT_TRY(sut_cuda_fetch_found(ctx, plan, 1, &found));
    *index_out = found == ~0ull ? -1 : (int64_t)found;
    return SUT_OK;
}

/* ---- passes of a step ---- */

static bool write_tensors(sut_cuda_plan *plan, const sut_step_pass *pass)
{
    sut_cuda_tensor *const tensors = sut_cuda_tensors(plan);
    const sut_rule_setting *last = NULL;
    for (int64_t k = 0; k < plan->n_tensors; ++k) {
        const sut_pass_tensor *const from = &pass->tensors[k];
        sut_cuda_tensor *const to = &tensors[k];
        to->present = from->present;
        if (!from->present)
            continue;
        to->param = from->param;
        to->theta = from->theta;
        for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot)
            to->state[slot] = from->state[slot];
        to->u_out = pass->u_out ? pass->u_out[k] : NULL;
        to->inverse_out = pass->inverse_out ? pass->inverse_out[k] : NULL;
        to->p_out = pass->p_out ? pass->p_out[k] : NULL;
        to->p_in = pass->p_in ? pass->p_in[k] : NULL;
        to->lr = from->lr;
        to->ratio = from->ratio;
        /* Neighbours of one group share their constants. */
        if (from->setting != last &&
            !sut_cuda_write_setting(from->setting, &sut_cuda_settings(plan)[plan->n_settings++]))
            return false;
        last = from->setting;
        to->setting = (int)plan->n_settings - 1;
    }
    return true;
}

static void write_control(sut_cuda_plan *plan, const sut_step_pass *pass)
{
    sut_cuda_control *const control = sut_cuda_control_of(plan);
    const int m = pass->rows.m;
    const size_t size = (size_t)m * sizeof(double);
    if (pass->weights)
        memcpy(control->weights, pass->weights, size);
    if (pass->lambda)
        memcpy(control->lambda, pass->lambda, size);
    if (pass->correction)
        memcpy(control->correction, pass->correction, size);
    if (pass->factor)
        memcpy(control->scale, pass->factor_scale, size + sizeof(double));
    control->update = pass->update;
    control->realign = pass->realign;
    control->corrected = pass->correction != NULL;
}

sut_status sut_cuda_step(sut_context *ctx, const sut_step_pass *pass)
{
    SUT_CUDA_ENTER(ctx);
    const int m = pass->rows.m;
    sut_cuda_plan *plan;
    SUT_TRY(sut_cuda_find_plan(ctx, pass->layout, m, &plan));
    SUT_TRY(sut_cuda_begin_tables(ctx, plan, pass->layout, &pass->rows));
    if (!write_tensors(plan, pass))
        SUT_CUDA_FAIL(ctx, SUT_ERROR_INTERNAL, "a rule that the kernels do not know");
    write_control(plan, pass);
    SUT_TRY(sut_cuda_upload_tables(ctx, plan));

    const int n_sums = !pass->want_sums ? 0 : SUT_SUM_ROWS + m + (pass->want_metric ? m * (m + 1) / 2 : 0);
    const sut_cuda_chunks all = sut_cuda_chunks_of(plan, pass->layout, 2);
    sut_cuda_args args = sut_cuda_base_args(plan, pass->layout, &pass->rows, &all, n_sums);
    args.kind = pass->kind;
    args.direct = pass->direct;
    args.weighted = pass->weights && !pass->direct;
    args.exact_sum = pass->exact_sum;
    args.strict = pass->strict;
    args.want_sums = pass->want_sums;
    args.want_metric = pass->want_sums && pass->want_metric;
    args.euclidean = pass->update == SUT_UPDATE_EUCLIDEAN;
    args.forms =
        pass->p_out || pass->correction || (pass->update != SUT_UPDATE_PROPOSAL && pass->update != SUT_UPDATE_NATURAL);
    args.u_scale = pass->u_scale;
    if (pass->factor) {
        sut_cuda_begin_triangle(&args);
        SUT_CUDA_TRY(ctx, sut_cuda_launch_step_factor(&args, cuda_of(ctx)->stream), "the triangle of a step");
        return sut_cuda_take_triangle(ctx, plan, m, pass->factor);
    }
    launcher launch = sut_cuda_launch_propose;
    if (pass->kind == SUT_PASS_FUSED && !pass->want_sums)
        launch = sut_cuda_launch_fused;
    else if (pass->kind == SUT_PASS_APPLY || pass->kind == SUT_PASS_MEASURE)
        launch = sut_cuda_launch_apply;
    SUT_TRY(launch_sets(ctx, plan, pass->layout, &pass->rows, args, pass->careful, launch, "a pass of the step"));
    return n_sums > 0 ? sut_cuda_fetch_sums(ctx, plan, n_sums, pass->sums) : SUT_OK;
}
