/*
 * The step: three passes over memory with m x m algebra between them (gradient-update alignment: Xiao et al. 2026, arXiv
 * 2609.01558). sut_optimizer_step() and the staged calls run the same functions in the same order, so they give the same
 * bits.
 *
 *   begin     arguments; pass 1 (Gram matrix, finiteness); surgery weights.   Nothing has been written up to here.
 *   propose   pass 2: state, proposal u, b = G u, K = G M^-1 G^T
 *   solve     gate; multipliers; how p is to be formed
 *   finish    pass 3: theta, realignment, measured cosines
 *
 * Precision. f32 data go through f32 lanes. The cosines of p suffer from their error (and from the rounding of u) by about
 * eps (|u| + sum_j |lambda_j M^-1 g_j|) / |p|; where that could reach the gate, pass 2's sums are taken again in double
 * from the state as it now is, and pass 3 forms p in double ("careful"). Where K is so ill-conditioned that double sums are
 * not enough, G p is measured before anything is applied and the multipliers are solved again for the remainder.
 */
#include "optim/optimizer.h"

#include "surgery/nnls.h"
#include "surgery/surgery.h"

#include <math.h>
#include <string.h>

/* A conflict, as it is counted in reports. */
#define SUT_CONFLICT_COS 1e-6
/* |p| below this times |u| is zero: no direction near u hurts no loss. */
#define SUT_ZERO_UPDATE 1e-10
/* A sum of f32 products below this many an element has lost digits to underflow. */
#define SUT_TINY_F32 1e-36
/* Refinements end when feasibility and complementarity hold to this, or after so many passes. */
#define SUT_RESIDUAL 1e-14
#define SUT_MAX_REFINEMENTS 8
/* Rows shorter than this times the longest impose nothing. */
#define SUT_ZERO_ROW 1e-150

/* ---- begin ---- */

/* [begin, begin + size) reaches into a parameter. */
static bool meets_parameter(const sut_optimizer *opt, const void *begin, size_t size)
{
    const uintptr_t first = (uintptr_t)begin, end = first + size;
    /* The last parameter that begins before `end` is the only one that can reach into it. */
    int64_t low = 0, high = opt->n_ranges;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (opt->range[2 * middle] < end)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && opt->range[2 * (low - 1) + 1] > first;
}

static sut_status check_gradients(sut_optimizer *opt, const void *const *grads)
{
    for (int i = 0; i < opt->config.n_losses; ++i)
        for (int64_t k = 0; k < opt->n_tensors; ++k) {
            const void *const g = grads[(int64_t)i * opt->n_tensors + k];
            if (!g || opt->tensor[k].count == 0)
                continue;
            const size_t size = sut_dtype_size(opt->tensor[k].dtype);
            if ((uintptr_t)g % size != 0)
                SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT,
                         "the gradient of loss %d in tensor \"%s\" is not aligned to its %zu-byte elements", i,
                         opt->tensor[k].name, size);
            if (meets_parameter(opt, g, (size_t)opt->tensor[k].count * size))
                SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT,
                         "the gradient of loss %d in tensor \"%s\" overlaps a parameter", i, opt->tensor[k].name);
        }
    return SUT_OK;
}

/* project and apply take the gradients that propose was given: those of a tensor that takes part must be there again. */
static sut_status check_same_gradients(sut_optimizer *opt, const void *const *grads)
{
    if (!grads)
        SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "grads is NULL");
    SUT_TRY(check_gradients(opt, grads));
    for (int64_t k = 0; k < opt->n_tensors; ++k) {
        bool present = false;
        for (int i = 0; i < opt->config.n_losses && !present; ++i)
            present = grads[(int64_t)i * opt->n_tensors + k] != NULL;
        if (opt->tensor[k].count > 0 && present != opt->pass_tensor[k].present)
            SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT,
                     "the gradients of tensor \"%s\" are %s: give those that sut_optimizer_propose() was given",
                     opt->tensor[k].name, present ? "present now and were absent" : "absent now and were present");
    }
    return SUT_OK;
}

/* Arrays of the compute type beside the parameters: outputs of the staged calls, or a p that is given. */
static sut_status check_arrays(sut_optimizer *opt, const void *const *arrays, const char *what)
{
    for (int64_t k = 0; arrays && k < opt->n_tensors; ++k) {
        if (!arrays[k] || opt->tensor[k].count == 0)
            continue;
        const size_t own = opt->tensor[k].dtype == SUT_DTYPE_F64 ? 8 : 4, count = (size_t)opt->tensor[k].count;
        if ((uintptr_t)arrays[k] % own != 0)
            SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT,
                     "%s of tensor \"%s\" is not aligned to its %zu-byte elements", what, opt->tensor[k].name, own);
        if (meets_parameter(opt, arrays[k], count * own))
            SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "%s of tensor \"%s\" overlaps a parameter", what,
                     opt->tensor[k].name);
    }
    return SUT_OK;
}

/* Heap sort of spans by where they begin: no memory, no recursion. */
static void sort_spans(sut_span *span, int64_t n)
{
    for (int64_t end = n, top = n / 2; end > 1;) {
        sut_span moving;
        if (top > 0) {
            moving = span[--top];
        } else {
            moving = span[--end];
            span[end] = span[0];
        }
        int64_t at = top;
        for (int64_t child = 2 * at + 1; child < end; child = 2 * at + 1) {
            if (child + 1 < end && span[child + 1].begin > span[child].begin)
                ++child;
            if (span[child].begin <= moving.begin)
                break;
            span[at] = span[child];
            at = child;
        }
        span[at] = moving;
    }
}

/* Outputs overlap neither parameters nor gradients nor each other. `second` may be NULL, with its name. */
static sut_status check_outputs(sut_optimizer *opt, const void *const *grads, void *const *first,
                                const char *first_name, void *const *second, const char *second_name)
{
    if (!grads || (!first && !second))
        return SUT_OK; /* a NULL is refused later */
    SUT_TRY(check_arrays(opt, (const void *const *)first, first_name));
    SUT_TRY(check_arrays(opt, (const void *const *)second, second_name));
    int64_t n = 0;
    for (int which = 0; which < 2; ++which)
        for (int64_t k = 0; k < opt->n_tensors; ++k) {
            void *const *const out = which ? second : first;
            const size_t own = opt->tensor[k].dtype == SUT_DTYPE_F64 ? 8 : 4, count = (size_t)opt->tensor[k].count;
            if (out && out[k] && count)
                opt->span[n++] = (sut_span){(uintptr_t)out[k], (uintptr_t)out[k] + count * own, k, which};
        }
    sort_spans(opt->span, n);
    for (int64_t j = 1; j < n; ++j)
        if (opt->span[j].begin < opt->span[j - 1].end)
            SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "%s of tensor \"%s\" overlaps %s of tensor \"%s\"",
                     opt->span[j].which ? second_name : first_name, opt->tensor[opt->span[j].tensor].name,
                     opt->span[j - 1].which ? second_name : first_name, opt->tensor[opt->span[j - 1].tensor].name);
    for (int i = 0; n > 0 && i < opt->config.n_losses; ++i)
        for (int64_t k = 0; k < opt->n_tensors; ++k) {
            const uintptr_t begin = (uintptr_t)grads[(int64_t)i * opt->n_tensors + k];
            const uintptr_t end = begin + (size_t)opt->tensor[k].count * sut_dtype_size(opt->tensor[k].dtype);
            if (!begin)
                continue;
            int64_t low = 0, high = n; /* the last span that begins before `end` is the only one that can overlap */
            while (low < high) {
                const int64_t middle = low + (high - low) / 2;
                if (opt->span[middle].begin < end)
                    low = middle + 1;
                else
                    high = middle;
            }
            if (low > 0 && opt->span[low - 1].end > begin)
                SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT,
                         "%s of tensor \"%s\" overlaps the gradient of loss %d in tensor \"%s\"",
                         opt->span[low - 1].which ? second_name : first_name,
                         opt->tensor[opt->span[low - 1].tensor].name, i, opt->tensor[k].name);
        }
    return SUT_OK;
}

static sut_status check_losses(sut_optimizer *opt, const double *losses)
{
    for (int i = 0; losses && i < opt->config.n_losses; ++i)
        if (!isfinite(losses[i])) {
            ++opt->skipped;
            SUT_FAIL(opt->ctx, SUT_ERROR_NOT_FINITE, "loss %d%s%s%s is %g", i,
                     opt->loss_name && opt->loss_name[i] ? " (\"" : "",
                     opt->loss_name && opt->loss_name[i] ? opt->loss_name[i] : "",
                     opt->loss_name && opt->loss_name[i] ? "\")" : "", losses[i]);
        }
    return SUT_OK;
}

/* Methods whose weights do not depend on the gradients. */
static bool weights_are_free(sut_surgery_method method)
{
    return method == SUT_SURGERY_SUM || method == SUT_SURGERY_MEAN || method == SUT_SURGERY_FIXED;
}

static bool aligned(const sut_optimizer *opt)
{
    return opt->config.align == SUT_ALIGN_GUA && opt->config.n_losses > 1;
}

/* Squares of lengths beyond these leave the range of doubles, and a conflict could go unseen. */
#define SUT_SHORTEST 1e-150
#define SUT_LONGEST 1e150

static sut_status check_lengths(sut_optimizer *opt)
{
    const int m = opt->config.n_losses;
    double longest = 0;
    for (int i = 0; i < m; ++i)
        longest = fmax(longest, opt->norm[i]);
    for (int i = 0; aligned(opt) && i < m; ++i) {
        const double norm = opt->norm[i];
        if (norm <= SUT_ZERO_ROW * longest || (norm >= SUT_SHORTEST && norm <= SUT_LONGEST))
            continue;
        SUT_FAIL(
            opt->ctx, SUT_ERROR_OUT_OF_RANGE,
            "the gradient of loss %d has norm %g; an aligned step takes gradients of norm %g to %g (or 0): scale the "
            "losses",
            i, norm, SUT_SHORTEST, SUT_LONGEST);
    }
    return SUT_OK;
}

/* Pass 1 and the surgery. `report`: whether the caller wants its figures. */
static sut_status begin(sut_optimizer *opt, const void *const *grads, const double *losses, bool report)
{
    sut_context *const ctx = opt->ctx;
    const sut_optimizer_config *const c = &opt->config;
    const int m = c->n_losses;
    if (!grads)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "grads is NULL");
    SUT_TRY(check_gradients(opt, grads));
    SUT_TRY(check_losses(opt, losses));
    opt->something = false;
    opt->surgery_converged = true;
    for (int64_t k = 0; k < opt->n_tensors; ++k) {
        bool present = false;
        for (int i = 0; i < m && !present; ++i)
            present = grads[(int64_t)i * opt->n_tensors + k] != NULL;
        opt->pass_tensor[k].present = present && opt->tensor[k].count > 0;
        opt->something = opt->something || opt->pass_tensor[k].present;
    }

    const sut_rows rows = {grads, m, NULL};
    const bool plain = m == 1 || weights_are_free(c->surgery.method);
    opt->has_gram = !plain || aligned(opt) || c->clip_norm > 0 || c->check != SUT_CHECK_NONE || report;
    opt->gram_info = (sut_gram){opt->gram, 0, false};
    if (opt->has_gram) {
        const sut_status status =
            sut_gram_compute(ctx, &opt->layout, &rows, c->strict, (const char *const *)opt->loss_name,
                             (const char *const *)opt->tensor_name, &opt->gram_info);
        if (status == SUT_ERROR_NOT_FINITE)
            ++opt->skipped;
        SUT_TRY(status);
    } else {
        memset(opt->gram, 0, (size_t)(m * m) * sizeof *opt->gram);
        for (int i = 0; i < m; ++i)
            opt->gram[i * m + i] = 1; /* the surgery of a free method looks at nothing else */
    }
    if (c->check == SUT_CHECK_ALL) {
        int64_t bad, index;
        SUT_TRY(sut_step_find_bad_parameter(ctx, &opt->layout, opt->pass_tensor, &bad, &index));
        if (bad >= 0) {
            ++opt->skipped;
            SUT_FAIL(ctx, SUT_ERROR_NOT_FINITE, "parameter \"%s\" is NaN or Inf at index %lld", opt->tensor[bad].name,
                     (long long)index);
        }
    }

    if (!opt->something) { /* nothing to combine; not every method has weights for that */
        memset(opt->weights, 0, sizeof opt->weights);
        opt->surgery_zero = true;
    } else if (c->surgery.method == SUT_SURGERY_NASH && opt->kept_for > 0) {
        memcpy(opt->weights, opt->kept_weights, (size_t)m * sizeof *opt->weights);
        opt->surgery_zero = false;
    } else {
        const sut_surgery_input in = {
            opt->gram, m, opt->gram_info.exponent, losses, opt->seed, (uint64_t)opt->t, &c->surgery, opt->work};
        sut_surgery_output out;
        SUT_TRY(sut_surgery_solve(ctx, &in, &out));
        memcpy(opt->weights, out.weights, (size_t)m * sizeof *opt->weights);
        opt->surgery_zero = out.zero;
        opt->surgery_converged = out.converged;
    }
    for (int i = 0; i < m; ++i)
        opt->norm[i] = opt->has_gram ? ldexp(sqrt(opt->gram[i * m + i]), opt->gram_info.exponent) : 0;
    SUT_TRY(check_lengths(opt));
    memcpy(opt->fresh_weights, opt->weights, sizeof opt->fresh_weights);
    if (c->clip_norm > 0) {
        double squared = 0;
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < m; ++j)
                squared += opt->weights[i] * opt->weights[j] * opt->gram[i * m + j];
        const double norm = ldexp(sqrt(squared > 0 ? squared : 0), opt->gram_info.exponent);
        const double factor = c->clip_norm / (norm + 1e-6);
        if (factor < 1)
            for (int i = 0; i < m; ++i)
                opt->weights[i] *= factor;
    }
    const double sign = c->maximize ? -1 : 1;
    for (int i = 0; i < m; ++i)
        opt->signed_weights[i] = sign * opt->weights[i];
    opt->direct = m == 1 && opt->signed_weights[0] == 1;
    return SUT_OK;
}

/* ---- propose ---- */

/* Rates and constants of this step; the counts advance. Only the step's own tensors are touched. */
static void prepare(sut_optimizer *opt)
{
    double scheduled = 0;
    if (opt->config.use_schedule)
        (void)sut_schedule_lr(NULL, &opt->config.schedule, opt->t, &scheduled); /* was checked when it was set */
    const bool realigns = opt->config.align == SUT_ALIGN_GUA; /* with one loss: for a p that is given to apply */
    const double rho_m = realigns ? opt->config.rho_m : 0, rho_v = realigns ? opt->config.rho_v : 0;
    const bool raw = opt->config.realign_raw != 0;

    opt->lr = 0;
    for (int k = 0; k < opt->n_groups; ++k) {
        const double lr = sut_group_rate(opt, k, scheduled);
        opt->lr = lr > opt->lr ? lr : opt->lr;
        opt->setting_t[k] = 0;
    }
    for (int64_t k = 0; k < opt->n_tensors; ++k) {
        sut_pass_tensor *const p = &opt->pass_tensor[k];
        if (!p->present)
            continue;
        sut_optimizer_tensor *const t = &opt->tensor[k];
        const double lr = sut_group_rate(opt, t->group, scheduled);
        p->lr = lr;
        p->ratio = opt->lr > 0 ? lr / opt->lr : 0;
        ++t->t;
        /* Tensors of a group that have taken the same number of steps share their constants; NAdam's product is the
         * tensor's own and goes with its history of settings, so it is never shared. */
        if (opt->row->rule == SUT_RULE_NADAM || (opt->setting_t[t->group] != 0 && opt->setting_t[t->group] != t->t)) {
            sut_rule_setting *const own = &opt->setting[opt->n_groups + k];
            sut_rule_prepare(opt->row, &opt->group[t->group], t->t, lr, &t->mu_prod, rho_m, rho_v, raw, own);
            p->setting = own;
            continue;
        }
        if (opt->setting_t[t->group] == 0) {
            opt->setting_t[t->group] = t->t;
            sut_rule_prepare(opt->row, &opt->group[t->group], t->t, lr, &t->mu_prod, rho_m, rho_v, raw,
                             &opt->setting[t->group]);
        }
        p->setting = &opt->setting[t->group];
    }
    ++opt->t;
    if (opt->config.surgery.method == SUT_SURGERY_NASH && opt->something) {
        if (opt->kept_for > 0) {
            --opt->kept_for;
        } else {
            memcpy(opt->kept_weights, opt->fresh_weights, sizeof opt->kept_weights);
            opt->kept_for = opt->config.surgery.nash_update_every - 1;
        }
    }
}

static sut_step_pass base_pass(const sut_optimizer *opt, const void *const *grads, sut_pass_kind kind)
{
    /* Where the weights do not come from the Gram matrix there need not be one (check, report), and the bits of a step must
     * not depend on whether there is: its conditioning counts for the other methods alone. */
    const bool plain = opt->config.n_losses == 1 || weights_are_free(opt->config.surgery.method);
    return (sut_step_pass){
        .kind = kind,
        .layout = &opt->layout,
        .tensors = opt->pass_tensor,
        .rows = {grads, opt->config.n_losses, NULL},
        .direct = opt->direct,
        .weights = opt->signed_weights,
        .exact_sum = opt->config.strict || (opt->gram_info.strict && !plain),
        .strict = opt->config.strict != 0,
        .u_scale = 1,
        .sums = opt->sums,
    };
}

/* Several rates: u and 1/M differ by group. */
static bool one_rate(const sut_optimizer *opt)
{
    for (int64_t k = 0; k < opt->n_tensors; ++k)
        if (opt->pass_tensor[k].present && opt->pass_tensor[k].ratio != 1)
            return false;
    return true;
}

/* b, |u|^2, |u|_M^2 and K as the algebra wants them: of the rows -g_i under maximize. */
static void take_sums(sut_optimizer *opt, bool with_metric)
{
    const int m = opt->config.n_losses;
    const double sign = opt->config.maximize ? -1 : 1;
    opt->uu = opt->sums[SUT_SUM_UU];
    opt->uMu = opt->sums[SUT_SUM_UMU];
    for (int i = 0; i < m; ++i)
        opt->b[i] = sign * opt->sums[SUT_SUM_ROWS + i];
    if (with_metric) {
        const double *const K = opt->sums + SUT_SUM_ROWS + m;
        for (int i = 0; i < m; ++i)
            for (int j = 0; j <= i; ++j)
                opt->K[i * m + j] = opt->K[j * m + i] = K[i * (i + 1) / 2 + j];
    } else {
        /* Euclidean with one rate: M = I. */
        for (int k = 0; k < m * m; ++k)
            opt->K[k] = ldexp(opt->gram[k], 2 * opt->gram_info.exponent);
        opt->uMu = opt->uu;
    }
}

/* Whether p could differ from u in this step. */
static bool may_project(const sut_optimizer *opt)
{
    return aligned(opt) && opt->lr > 0;
}

static sut_status propose(sut_optimizer *opt, const void *const *grads, void *const *u_out, void *const *inverse_out,
                          bool fused, bool want_sums)
{
    prepare(opt);
    sut_step_pass pass = base_pass(opt, grads, fused ? SUT_PASS_FUSED : SUT_PASS_PROPOSE);
    const bool euclidean = opt->config.metric == SUT_METRIC_EUCLIDEAN;
    pass.update = euclidean ? SUT_UPDATE_EUCLIDEAN : SUT_UPDATE_NATURAL;
    pass.want_sums = want_sums || may_project(opt);
    pass.want_metric = may_project(opt) && !(euclidean && one_rate(opt));
    pass.u_out = u_out;
    pass.inverse_out = inverse_out;
    SUT_TRY(opt->ctx->ops->step(opt->ctx, &pass));
    if (pass.want_sums)
        take_sums(opt, pass.want_metric);
    return SUT_OK;
}

/* ---- solve ---- */

static double cosine(double dot, double norm_g, double norm_v)
{
    const double scale = norm_g * norm_v;
    if (!(scale > 0) || !isfinite(dot))
        return 0;
    const double c = dot / scale;
    return c > 1 ? 1 : c < -1 ? -1 : c;
}

static bool is_zero_row(const sut_optimizer *opt, int i)
{
    const int m = opt->config.n_losses;
    double longest = 0;
    for (int j = 0; j < m; ++j)
        longest = opt->gram[j * m + j] > longest ? opt->gram[j * m + j] : longest;
    return sqrt(opt->gram[i * m + i]) <= SUT_ZERO_ROW * sqrt(longest);
}

static double worst_cosine(const sut_optimizer *opt)
{
    double worst = 0;
    for (int i = 0; i < opt->config.n_losses; ++i) {
        const double c = is_zero_row(opt, i) ? 0 : cosine(opt->b[i], opt->norm[i], sqrt(opt->uu));
        worst = c < worst ? c : worst;
    }
    return worst;
}

/* Pass 2's sums once more, in double, from the state as it is now. */
static sut_status repeat_sums(sut_optimizer *opt, const void *const *grads)
{
    sut_step_pass pass = base_pass(opt, grads, SUT_PASS_TERMS);
    const bool euclidean = opt->config.metric == SUT_METRIC_EUCLIDEAN;
    pass.update = euclidean ? SUT_UPDATE_EUCLIDEAN : SUT_UPDATE_NATURAL;
    pass.careful = true;
    pass.want_sums = true;
    pass.want_metric = !(euclidean && one_rate(opt));
    SUT_TRY(opt->ctx->ops->step(opt->ctx, &pass));
    take_sums(opt, pass.want_metric);
    return SUT_OK;
}

/* A proposal that is applied as it is comes from the ordinary arithmetic, whatever the sums were taken in. */
static bool is_careful(const sut_solution *s)
{
    return s->careful && s->update != SUT_UPDATE_PROPOSAL;
}

/* The multipliers as the passes take them: sign of maximize included. */
static void set_multipliers(sut_optimizer *opt, const sut_solution *s, sut_step_pass *pass)
{
    const double sign = opt->config.maximize ? -1 : 1;
    for (int i = 0; i < opt->config.n_losses; ++i) {
        opt->signed_lambda[i] = sign * s->lambda[i];
        opt->signed_correction[i] = sign * s->correction[i];
    }
    pass->lambda = opt->signed_lambda;
    pass->correction = s->corrected ? opt->signed_correction : NULL;
}

/* G p, |p|^2 and |p - u|^2 of the p that lambda stands for; nothing is written but `p_out`. */
static sut_status measure(sut_optimizer *opt, const void *const *grads, const sut_solution *s, void *const *p_out,
                          double *slack, double *pp, double *pu, double *dd)
{
    const int m = opt->config.n_losses;
    const double sign = opt->config.maximize ? -1 : 1;
    sut_step_pass pass = base_pass(opt, grads, SUT_PASS_MEASURE);
    pass.update = s->update;
    set_multipliers(opt, s, &pass);
    pass.careful = is_careful(s);
    pass.want_sums = true;
    pass.p_out = p_out;
    SUT_TRY(opt->ctx->ops->step(opt->ctx, &pass));
    for (int i = 0; i < m; ++i)
        slack[i] = sign * opt->sums[SUT_SUM_ROWS + i];
    *pp = opt->sums[SUT_SUM_PP];
    *pu = opt->sums[SUT_SUM_PU];
    *dd = opt->sums[SUT_SUM_DD];
    return SUT_OK;
}

/*
 * Multipliers from the sums in hand, on the live rows; `violation_out`: the largest cosine by which they still leave the
 * cone, as far as these sums can tell (rows that depend on each other to their rounding are not told apart). False: the
 * solver gave up, which is a bug.
 */
static bool multipliers(sut_optimizer *opt, double *lambda, double *violation_out)
{
    const int m = opt->config.n_losses;
    double b[SUT_MAX_LOSSES], slack[SUT_MAX_LOSSES];
    memcpy(b, opt->b, sizeof b);
    for (int i = 0; i < m; ++i) {
        if (is_zero_row(opt, i)) {
            b[i] = 0;
            for (int j = 0; j < m; ++j)
                opt->K[i * m + j] = opt->K[j * m + i] = 0;
        }
    }
    if (sut_nnqp(opt->K, b, m, lambda, slack, opt->work) < 0)
        return false;
    *violation_out = 0;
    for (int i = 0; i < m; ++i)
        if (!is_zero_row(opt, i))
            *violation_out = fmax(*violation_out, -slack[i] / (opt->norm[i] * sqrt(opt->uu)));
    return true;
}

/*
 * How much larger than a rounding error the error of a cosine of p can be: (|u| + sum_j |lambda_j M^-1 g_j|) / |p|, with
 * the lengths that K offers in place of those of M^-1 g_j. Also |p|_M^2 / |u|_M^2.
 */
static double amplification(const sut_optimizer *opt, const double *lambda, double *reduction_out)
{
    const int m = opt->config.n_losses;
    const double u = sqrt(opt->uu);
    double sum = 0, decrease = 0;
    for (int i = 0; i < m; ++i) {
        sum += lambda[i] * sqrt(opt->K[i * m + i]);
        for (int j = 0; j < m; ++j)
            decrease += lambda[i] * lambda[j] * opt->K[i * m + j];
    }
    const double reduction = opt->uMu > 0 ? 1 - decrease / opt->uMu : 1;
    *reduction_out = reduction > 0 ? reduction : 0;
    double worst = 0;
    for (int i = 0; i < m; ++i) {
        if (is_zero_row(opt, i))
            continue;
        const double x = 1 + sqrt(opt->K[i * m + i]) * sum / (opt->norm[i] * u);
        worst = x > worst ? x : worst;
    }
    return worst / sqrt(*reduction_out > 1e-30 ? *reduction_out : 1e-30);
}

/*
 * How far the measured s = G p is from what it ought to be: the larger of |s_i| as a cosine and |lambda_i s_i| / |u|_M^2 of
 * the rows that push, -s_i as a cosine of the others. *outside_out: the others are clearly worse, so that the set of rows
 * that push is in doubt. (A row opposed to one that pushes has the same cosine.)
 */
static double residual(const sut_optimizer *opt, const sut_solution *s, const double *slack, bool *outside_out)
{
    double pushing = 0, others = 0;
    for (int i = 0; i < opt->config.n_losses; ++i) {
        if (is_zero_row(opt, i))
            continue;
        const double lambda = s->lambda[i] + s->correction[i];
        const bool pushes = lambda > 0;
        double x = (pushes ? fabs(slack[i]) : -slack[i]) / (opt->norm[i] * sqrt(s->pp));
        if (pushes && opt->uMu > 0)
            x = fmax(x, fabs(lambda * slack[i]) / opt->uMu);
        double *const worst = pushes ? &pushing : &others;
        *worst = fmax(*worst, x);
    }
    *outside_out = others > 2 * pushing;
    return fmax(pushing, others);
}

/*
 * Measure G p before anything is applied and, where the sums were too coarse (`ill`), repair p while that helps:
 * K_PP correction = -s_P. Multipliers of nearly dependent rows are of the order 1/angle; what is left of s is below their
 * last digit and goes into a correction of its own. If a row that does not push is violated, the set of rows is looked for
 * again, once. The best of all rounds stays.
 */
static sut_status refine(sut_optimizer *opt, const void *const *grads, sut_solution *s, bool ill)
{
    const int m = opt->config.n_losses;
    double slack[SUT_MAX_LOSSES], total[SUT_MAX_LOSSES], delta[SUT_MAX_LOSSES], pu, best_residual = HUGE_VAL;
    bool searched = false, outside;
    s->corrected = ill; /* p is formed in the same way in each round */
    sut_solution best = *s;
    for (int round = 0;; ++round) {
        SUT_TRY(measure(opt, grads, s, NULL, slack, &s->pp, &pu, &s->dd));
        if (!ill || sqrt(s->pp) <= SUT_ZERO_UPDATE * sqrt(opt->uu))
            return SUT_OK;
        const double now = residual(opt, s, slack, &outside);
        const bool helped = now <= 0.5 * best_residual;
        s->residual = now;
        if (now < best_residual) {
            best_residual = now;
            best = *s;
        }
        if (now <= SUT_RESIDUAL || round == SUT_MAX_REFINEMENTS || (!helped && searched))
            break;
        for (int i = 0; i < m; ++i)
            total[i] = s->lambda[i] + s->correction[i];
        if (helped && !outside && sut_nnqp_correction(opt->K, slack, m, total, delta, opt->work)) {
            for (int i = 0; i < m; ++i)
                s->correction[i] += delta[i];
            continue;
        }
        if (searched || sut_nnqp_resolve(opt->K, slack, m, total, opt->work) < 0)
            break;
        searched = true;
        best_residual = HUGE_VAL; /* the new set is another candidate: it has to be measured against itself */
        memcpy(s->lambda, total, sizeof s->lambda);
        memset(s->correction, 0, sizeof s->correction);
    }
    *s = best;
    return SUT_OK;
}

/* A p whose measured cosines are this far off is not the projection: K cannot tell the rows apart. */
#define SUT_NOT_THE_PROJECTION 1e-12

/* Powers of two that bring the columns of the triangle near 1; rows that impose nothing become 0. */
static bool factor_scales(const sut_optimizer *opt, double *scale)
{
    const int m = opt->config.n_losses;
    for (int i = 0; i <= m; ++i) {
        const double square = i < m ? opt->K[i * m + i] : opt->uMu;
        int exponent = 0;
        if (!isfinite(square))
            return false;
        (void)frexp(sqrt(square), &exponent);
        scale[i] = i < m && is_zero_row(opt, i) ? 0 : ldexp(1, -exponent);
    }
    return true;
}

/* The triangle of the proposal (`s` NULL), or of the update that *s makes. */
static sut_status factor(sut_optimizer *opt, const void *const *grads, const sut_solution *s, const double *scale)
{
    const int m = opt->config.n_losses;
    double signed_scale[SUT_MAX_LOSSES + 1];
    for (int i = 0; i <= m; ++i)
        signed_scale[i] = i < m && opt->config.maximize ? -scale[i] : scale[i];
    sut_step_pass pass = base_pass(opt, grads, s ? SUT_PASS_MEASURE : SUT_PASS_TERMS);
    pass.update = opt->config.metric == SUT_METRIC_EUCLIDEAN ? SUT_UPDATE_EUCLIDEAN : SUT_UPDATE_NATURAL;
    pass.careful = true;
    pass.factor = opt->R;
    pass.factor_scale = signed_scale;
    if (s)
        set_multipliers(opt, s, &pass);
    memset(opt->R, 0, ((size_t)m + 1) * ((size_t)m + 1) * sizeof *opt->R);
    return opt->ctx->ops->step(opt->ctx, &pass);
}

/*
 * The multipliers from the triangle of [M^-1/2 G^T, M^1/2 u], whose condition is the root of K's; then again from that of
 * the update they make, while this helps. *s is replaced if the result is better. *vanishes_out: what is left of u is nothing
 * but rounding, p = 0.
 */
static sut_status solve_by_factor(sut_optimizer *opt, const void *const *grads, sut_solution *s, bool *vanishes_out)
{
    const int m = opt->config.n_losses;
    double scale[SUT_MAX_LOSSES + 1], slack[SUT_MAX_LOSSES], delta[SUT_MAX_LOSSES], from[SUT_MAX_LOSSES];
    double lambda[SUT_MAX_LOSSES], pu, previous = HUGE_VAL;
    bool outside;
    *vanishes_out = false;
    if (!factor_scales(opt, scale))
        return SUT_OK;
    sut_solution now = *s;
    memset(now.correction, 0, sizeof now.correction);
    now.corrected = true;
    for (int round = 0; round <= SUT_MAX_REFINEMENTS; ++round) {
        sut_nnls_end end;
        SUT_TRY(factor(opt, grads, round ? &now : NULL, scale));
        for (int i = 0; i < m; ++i)
            from[i] = scale[i] == 0 ? 0 : (now.lambda[i] + now.correction[i]) * scale[m] / scale[i];
        if (!sut_nnls(opt->R, m, round ? from : NULL, lambda, delta, opt->work, &end))
            break;
        *vanishes_out = end.length <= end.noise;
        if (*vanishes_out)
            break;
        /* Changes that are not small beside the multipliers, and rows that join or leave, are multipliers themselves. */
        bool anew = round == 0;
        for (int i = 0; i < m; ++i)
            anew = anew || fabs(delta[i]) > 1e-6 * lambda[i] || (lambda[i] > 0) != (from[i] > 0);
        for (int i = 0; i < m; ++i) {
            if (anew) {
                now.lambda[i] = lambda[i] * scale[i] / scale[m];
                now.correction[i] = 0;
            } else {
                now.correction[i] += delta[i] * scale[i] / scale[m];
            }
        }
        previous = anew ? HUGE_VAL : previous;
        SUT_TRY(measure(opt, grads, &now, NULL, slack, &now.pp, &pu, &now.dd));
        now.residual = residual(opt, &now, slack, &outside);
        if (now.residual < s->residual)
            *s = now;
        if (now.residual <= SUT_RESIDUAL || !(now.residual < 0.5 * previous))
            break;
        previous = now.residual;
    }
    return SUT_OK;
}

static bool all_f64(const sut_optimizer *opt)
{
    for (int64_t k = 0; k < opt->n_tensors; ++k)
        if (opt->tensor[k].count && opt->layout_dtype[k] != SUT_DTYPE_F64)
            return false;
    return true;
}

/* Sums from f32 lanes, of proposals and gradients of any size: none has overflowed or lost digits to underflow. */
static bool in_range_of_f32(const sut_optimizer *opt)
{
    const int m = opt->config.n_losses;
    const double least = SUT_TINY_F32 * (double)opt->layout.n_elements;
    bool fine = opt->uu > least && opt->uMu > least && isfinite(opt->uu) && isfinite(opt->uMu);
    for (int i = 0; i < m && fine; ++i) {
        fine = is_zero_row(opt, i) || (opt->K[i * m + i] > least && opt->norm[i] * sqrt(opt->uu) > least);
        fine = fine && isfinite(opt->b[i]);
        for (int j = 0; j <= i; ++j)
            fine = fine && isfinite(opt->K[i * m + j]);
    }
    return fine;
}

static sut_status solve(sut_optimizer *opt, const void *const *grads)
{
    const sut_optimizer_config *const c = &opt->config;
    const int m = c->n_losses;
    sut_solution *const s = &opt->solution;
    memset(s, 0, sizeof *s);
    s->update = SUT_UPDATE_PROPOSAL;
    opt->solved = true;
    if (!may_project(opt))
        return SUT_OK;
    const bool f64 = all_f64(opt);
    if (!f64 && !in_range_of_f32(opt)) {
        SUT_TRY(repeat_sums(opt, grads));
        s->careful = true;
    }
    if (!(opt->uu > 0) || worst_cosine(opt) >= -c->conflict_cos_tol)
        return SUT_OK;

    /* f32: roundings of 6e-8 must stay below a third of the conflict threshold; f64: below 1e-13. */
    double reduction, left;
    if (!multipliers(opt, s->lambda, &left))
        SUT_FAIL(opt->ctx, SUT_ERROR_INTERNAL, "the cone projection of step %lld did not end", (long long)opt->t);
    if (!f64 && !s->careful && (amplification(opt, s->lambda, &reduction) > 5 || left > SUT_CONFLICT_COS / 10)) {
        s->careful = true;
        SUT_TRY(repeat_sums(opt, grads));
        if (!(opt->uu > 0) || worst_cosine(opt) >= -c->conflict_cos_tol) {
            memset(s->lambda, 0, sizeof s->lambda);
            return SUT_OK;
        }
        if (!multipliers(opt, s->lambda, &left))
            SUT_FAIL(opt->ctx, SUT_ERROR_INTERNAL, "the cone projection of step %lld did not end", (long long)opt->t);
    }
    bool pushed = false;
    for (int i = 0; i < m; ++i)
        pushed = pushed || s->lambda[i] > 0;
    if (!pushed)
        return SUT_OK; /* violated by less than the solver's rounding, or in coordinates that cannot move */
    s->uMu = opt->uMu;
    s->update = c->metric == SUT_METRIC_EUCLIDEAN ? SUT_UPDATE_EUCLIDEAN : SUT_UPDATE_NATURAL;
    const double violation = -worst_cosine(opt);

    /* Look before applying where the sums in hand cannot decide: |p| or the multipliers are dominated by rounding, or the
     * correction is about as small as the threshold of realignment (|p - u| >= |u| violation always). */
    const double amplified = amplification(opt, s->lambda, &reduction);
    const bool missed =
        (f64 || s->careful) && left > 1e-11 * sqrt(reduction); /* a row that K cannot tell from others */
    const bool ill = missed || amplified > (f64 ? 450 : 1e6) || reduction < 1e-6 ||
                     sut_nnqp_condition(opt->K, m, s->lambda, opt->work) > 1e6;
    const bool unclear = violation <= 4 * c->correction_distance_tol;
    if (ill || unclear) {
        s->careful = s->careful || !f64;
        SUT_TRY(refine(opt, grads, s, ill));
        bool vanishes = false;
        if (s->residual > SUT_NOT_THE_PROJECTION)
            SUT_TRY(solve_by_factor(opt, grads, s, &vanishes));
        s->measured = true;
        if (vanishes || sqrt(s->pp) <= SUT_ZERO_UPDATE * sqrt(opt->uu)) {
            s->update = SUT_UPDATE_ZERO;
            s->pp = 0;
            s->dd = opt->uu;
        }
    }
    const double relative = s->measured ? sqrt(s->dd) / sqrt(opt->uu) : violation;
    s->realign = relative > c->correction_distance_tol && (c->rho_m > 0 || c->rho_v > 0);
    return SUT_OK;
}

/* ---- finish ---- */

/* Whether the last pass needs the combined gradient again. */
static bool needs_gradient(const sut_optimizer *opt)
{
    for (int64_t k = 0; k < opt->n_tensors; ++k)
        if (opt->pass_tensor[k].present && sut_rule_needs_gradient_later(opt->pass_tensor[k].setting))
            return true;
    return false;
}

/* G p and the lengths of p and p - u, into opt->sums, if `want_sums`. */
static sut_status finish(sut_optimizer *opt, const void *const *grads, const void *const *given, bool want_sums)
{
    sut_solution *const s = &opt->solution;
    sut_step_pass pass = base_pass(opt, grads, SUT_PASS_APPLY);
    pass.update = given ? SUT_UPDATE_GIVEN : s->update;
    set_multipliers(opt, s, &pass);
    pass.careful = is_careful(s) && !given;
    pass.realign = given ? opt->config.align == SUT_ALIGN_GUA : s->realign;
    pass.want_sums = want_sums && pass.update != SUT_UPDATE_PROPOSAL;
    pass.p_in = given;
    if (!needs_gradient(opt)) {
        pass.weights = NULL;
        pass.direct = false;
    }
    return opt->ctx->ops->step(opt->ctx, &pass);
}

static void report_gradients(const sut_optimizer *opt, sut_report *r)
{
    const sut_surgery_input in = {.K = opt->gram,
                                  .m = opt->config.n_losses,
                                  .exponent = opt->gram_info.exponent,
                                  .config = &opt->config.surgery,
                                  .work = opt->work};
    sut_surgery_output out = {.zero = opt->surgery_zero, .converged = opt->surgery_converged};
    memcpy(out.weights, opt->weights, sizeof out.weights);
    sut_surgery_report surgery;
    sut_surgery_report_init(&surgery);
    sut_surgery_measure(&in, &out, &surgery);
    memcpy(r->weights, surgery.weights, sizeof r->weights);
    memcpy(r->norms, surgery.norms, sizeof r->norms);
    memcpy(r->cos_a, surgery.cos_a, sizeof r->cos_a);
    r->norm_a = surgery.norm_a;
    r->min_pair_cos = surgery.min_pair_cos;
    r->conflict_fraction = surgery.conflict_fraction;
    r->conflict_g = surgery.conflict_fraction > 0;
    r->conflict_a = surgery.n_conflicts > 0;
    r->surgery_zero = opt->surgery_zero;
    r->surgery_converged = opt->surgery_converged;
}

/* Everything the report says about u and p; `sums`: those of finish() or measure(), NULL when p = u. */
static void report_step(const sut_optimizer *opt, const double *sums, bool given, bool moved, sut_report *r)
{
    const int m = opt->config.n_losses;
    const double sign = opt->config.maximize ? -1 : 1;
    const sut_solution *const s = &opt->solution;
    r->n_losses = m;
    r->step = opt->t;
    r->lr = opt->lr;
    r->moved = moved && opt->lr > 0 && opt->something;
    r->skipped_steps = opt->skipped;
    r->strict = opt->gram_info.strict || s->careful;
    report_gradients(opt, r);
    r->norm_u = sqrt(opt->uu);
    const bool changed = sums && (!given || sums[SUT_SUM_DD] > 0); /* a given p may be the proposal */
    r->projected = changed;
    r->realigned = changed && (given ? opt->config.align == SUT_ALIGN_GUA : s->realign);
    r->pareto = s->update == SUT_UPDATE_ZERO && !given;
    const double pp = sums ? sums[SUT_SUM_PP] : opt->uu, pu = sums ? sums[SUT_SUM_PU] : opt->uu;
    const double dd = sums ? sums[SUT_SUM_DD] : 0;
    r->norm_p = sqrt(pp);
    r->relative_change = opt->uu > 0 ? sqrt(dd) / r->norm_u : 0;
    r->cos_pu = !sums ? 1 : cosine(pu, r->norm_p, r->norm_u);
    r->ratio_pu = !sums ? 1 : opt->uu > 0 ? r->norm_p / r->norm_u : 0;
    double gap = 0;
    for (int i = 0; i < m; ++i) {
        const bool zero = is_zero_row(opt, i);
        const double slack = sums ? sign * sums[SUT_SUM_ROWS + i] : opt->b[i];
        const double lambda = s->lambda[i] + s->correction[i];
        r->lambda[i] = given ? 0 : lambda;
        r->cos_u[i] = zero ? 0 : cosine(opt->b[i], opt->norm[i], r->norm_u);
        r->cos_p[i] = zero ? 0 : sums ? cosine(slack, opt->norm[i], r->norm_p) : r->cos_u[i];
        r->conflict_u |= r->cos_u[i] < -SUT_CONFLICT_COS;
        r->conflict_p |= r->cos_p[i] < -SUT_CONFLICT_COS;
        if (!sums || given)
            continue;
        r->primal = fmax(r->primal, -r->cos_p[i]);
        r->dual = fmax(r->dual, -lambda);
        if (s->uMu > 0)
            r->complementarity = fmax(r->complementarity, fabs(lambda * slack) / s->uMu);
        gap += lambda * slack;
    }
    if (sums && !given && s->uMu > 0)
        r->gap = fabs(gap) / s->uMu;
}

/* ---- the calls ---- */

static sut_status read_report(sut_optimizer *opt, sut_report *given, size_t *size_out)
{
    *size_out = 0;
    if (!given)
        return SUT_OK;
    if (given->struct_size < sizeof(size_t) || given->struct_size > sizeof(sut_report))
        SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "report: struct_size is %zu; call sut_report_init() first",
                 given->struct_size);
    *size_out = given->struct_size;
    return SUT_OK;
}

static void give_report(const sut_report *full, sut_report *given, size_t size)
{
    memcpy(given, full, size);
    given->struct_size = size;
}

#define REFUSE_WHILE_PENDING(opt, what)                                                                    \
    do {                                                                                                   \
        if ((opt)->pending)                                                                                \
            SUT_FAIL((opt)->ctx, SUT_ERROR_SEQUENCE, what ": a proposal waits for sut_optimizer_apply()"); \
    } while (0)

#define NEED_PROPOSAL(opt, what)                                                                                   \
    do {                                                                                                           \
        if (!(opt)->pending)                                                                                       \
            SUT_FAIL((opt)->ctx, SUT_ERROR_SEQUENCE, what ": there is no proposal; call sut_optimizer_propose()"); \
    } while (0)

sut_status sut_optimizer_step(sut_optimizer *opt, const void *const *grads, const double *losses, sut_report *report)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    REFUSE_WHILE_PENDING(opt, "sut_optimizer_step");
    size_t size;
    SUT_TRY(read_report(opt, report, &size));
    SUT_TRY(begin(opt, grads, losses, report != NULL));
    if (!aligned(opt)) {
        SUT_TRY(propose(opt, grads, NULL, NULL, true, report != NULL));
        memset(&opt->solution, 0, sizeof opt->solution);
    } else {
        SUT_TRY(propose(opt, grads, NULL, NULL, false, report != NULL));
        SUT_TRY(solve(opt, grads));
        SUT_TRY(finish(opt, grads, NULL, report != NULL));
    }
    if (report) {
        sut_report full;
        sut_report_init(&full);
        report_step(opt, opt->solution.update != SUT_UPDATE_PROPOSAL ? opt->sums : NULL, false, true, &full);
        give_report(&full, report, size);
    }
    opt->solved = false;
    return SUT_OK;
}

/* Absent tensors propose nothing. */
static void clear_absent(const sut_optimizer *opt, void *const *out)
{
    for (int64_t k = 0; out && k < opt->n_tensors; ++k)
        if (out[k] && !opt->pass_tensor[k].present)
            memset(out[k], 0, (size_t)opt->tensor[k].count * (opt->tensor[k].dtype == SUT_DTYPE_F64 ? 8 : 4));
}

sut_status sut_optimizer_direction(sut_optimizer *opt, const void *const *grads, const double *losses,
                                   double *weights_out, void *const *a_out)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    REFUSE_WHILE_PENDING(opt, "sut_optimizer_direction");
    SUT_TRY(check_outputs(opt, grads, a_out, "a_out", NULL, NULL));
    SUT_TRY(begin(opt, grads, losses, true));
    if (weights_out)
        memcpy(weights_out, opt->weights, (size_t)opt->config.n_losses * sizeof *weights_out);
    if (!a_out)
        return SUT_OK;
    /* Plain SGD with rate 0 proposes a itself. `maximize` turns the sign of what the rule sees, not of a. */
    sut_rule_setting plain = {.rule = SUT_RULE_SGD};
    sut_step_pass pass = base_pass(opt, grads, SUT_PASS_TERMS);
    pass.weights = opt->weights;
    pass.direct = opt->config.n_losses == 1 && opt->weights[0] == 1;
    pass.u_out = a_out;
    for (int64_t k = 0; k < opt->n_tensors; ++k)
        opt->pass_tensor[k].setting = &plain;
    SUT_TRY(opt->ctx->ops->step(opt->ctx, &pass));
    for (int64_t k = 0; k < opt->n_tensors; ++k)
        opt->pass_tensor[k].setting = NULL;
    clear_absent(opt, a_out);
    return SUT_OK;
}

sut_status sut_optimizer_propose(sut_optimizer *opt, const void *const *grads, const double *losses, void *const *u_out,
                                 void *const *inverse_metric_out)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    REFUSE_WHILE_PENDING(opt, "sut_optimizer_propose");
    SUT_TRY(check_outputs(opt, grads, u_out, "u_out", inverse_metric_out, "inverse_metric_out"));
    SUT_TRY(begin(opt, grads, losses, true));
    SUT_TRY(propose(opt, grads, u_out, inverse_metric_out, false, true));
    clear_absent(opt, u_out);
    clear_absent(opt, inverse_metric_out);
    opt->pending = true;
    opt->solved = false;
    return SUT_OK;
}

sut_status sut_optimizer_project(sut_optimizer *opt, const void *const *grads, void *const *p_out, sut_report *report)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    NEED_PROPOSAL(opt, "sut_optimizer_project");
    size_t size;
    SUT_TRY(read_report(opt, report, &size));
    SUT_TRY(check_same_gradients(opt, grads));
    SUT_TRY(check_outputs(opt, grads, p_out, "p_out", NULL, NULL));
    if (!opt->solved)
        SUT_TRY(solve(opt, grads));
    double slack[SUT_MAX_LOSSES], pp, pu, dd;
    SUT_TRY(measure(opt, grads, &opt->solution, p_out, slack, &pp, &pu, &dd));
    clear_absent(opt, p_out);
    if (report) {
        sut_report full;
        sut_report_init(&full);
        report_step(opt, opt->solution.update != SUT_UPDATE_PROPOSAL ? opt->sums : NULL, false, false, &full);
        full.realigned = 0;
        give_report(&full, report, size);
    }
    return SUT_OK;
}

sut_status sut_optimizer_apply(sut_optimizer *opt, const void *const *grads, const void *const *p, sut_report *report)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    NEED_PROPOSAL(opt, "sut_optimizer_apply");
    size_t size;
    SUT_TRY(read_report(opt, report, &size));
    SUT_TRY(check_same_gradients(opt, grads));
    SUT_TRY(check_arrays(opt, p, "p"));
    for (int64_t k = 0; p && k < opt->n_tensors; ++k) {
        const sut_dtype own = opt->tensor[k].dtype == SUT_DTYPE_F64 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
        int64_t index = -1;
        if (p[k] && opt->pass_tensor[k].present)
            SUT_TRY(opt->ctx->ops->find_nonfinite(opt->ctx, p[k], opt->tensor[k].count, own, &index));
        if (index >= 0)
            SUT_FAIL(opt->ctx, SUT_ERROR_NOT_FINITE, "p is NaN or Inf in tensor \"%s\" at index %lld",
                     opt->tensor[k].name, (long long)index);
    }
    if (!opt->solved && !p)
        SUT_TRY(solve(opt, grads));
    if (p)
        memset(&opt->solution, 0, sizeof opt->solution);
    SUT_TRY(finish(opt, grads, p, report != NULL));
    if (report) {
        sut_report full;
        sut_report_init(&full);
        const bool changed = p ? opt->lr > 0 : opt->solution.update != SUT_UPDATE_PROPOSAL;
        report_step(opt, changed ? opt->sums : NULL, p != NULL, true, &full);
        give_report(&full, report, size);
    }
    opt->pending = opt->solved = false;
    return SUT_OK;
}
