/*
 * The step: three passes over memory with m x m algebra between them (gradient-update alignment: Xiao et al. 2026, arXiv
 * 2609.01558). The algebra asks for the passes (algebra.h); here they are run. sut_optimizer_step() and the staged calls run
 * the same machine, so they give the same bits.
 */
#include "optim/optimizer.h"

#include <math.h>
#include <string.h>

/* ---- arguments ---- */

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
    const bool own_memory = opt->ctx->ops->pointer_fault != NULL;
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
            const char *const fault = own_memory ? sut_pointer_fault(opt->ctx, g) : NULL;
            if (fault)
                SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "the gradient of loss %d in tensor \"%s\" %s", i,
                         opt->tensor[k].name, fault);
        }
    return SUT_OK;
}

/* project and apply take the gradients that propose was given: those of a tensor that takes part must be there again, with the
 * same largest entries. (NaN has none; a buffer that was written to meanwhile has another one, as good as always.) */
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
    if (opt->config.check == SUT_CHECK_NONE)
        return SUT_OK;
    double largest[SUT_MAX_LOSSES];
    const sut_rows rows = {grads, opt->config.n_losses, NULL};
    SUT_TRY(opt->ctx->ops->row_max(opt->ctx, &opt->layout, &rows, largest));
    for (int i = 0; i < opt->config.n_losses; ++i)
        if (!(largest[i] == opt->proposed[i]))
            SUT_FAIL(opt->ctx, isfinite(largest[i]) ? SUT_ERROR_INVALID_ARGUMENT : SUT_ERROR_NOT_FINITE,
                     "the gradient of loss %d is not the one that sut_optimizer_propose() was given: its largest entry "
                     "was %g and is %g",
                     i, opt->proposed[i], largest[i]);
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
        const char *const fault = sut_pointer_fault(opt->ctx, arrays[k]);
        if (fault)
            SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "%s of tensor \"%s\" %s", what, opt->tensor[k].name, fault);
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

/* ---- what the algebra asks for ---- */

/* Rates and constants of this step; the counts advance. Only the step's own tensors are touched. */
static void prepare(sut_optimizer *opt)
{
    const double scheduled = sut_scheduled_rate(&opt->config, opt->t);
    const bool realigns = opt->config.align == SUT_ALIGN_GUA; /* with one loss: for a p that is given to apply */
    const double rho_m = realigns ? opt->config.rho_m : 0, rho_v = realigns ? opt->config.rho_v : 0;
    const bool raw = opt->config.realign_raw != 0;

    opt->lr = 0;
    for (int k = 0; k < opt->n_groups; ++k) {
        const double lr = sut_group_rate(&opt->config, &opt->group[k], scheduled);
        opt->lr = lr > opt->lr ? lr : opt->lr;
        opt->setting_t[k] = 0;
    }
    for (int64_t k = 0; k < opt->n_tensors; ++k) {
        sut_pass_tensor *const p = &opt->pass_tensor[k];
        if (!p->present)
            continue;
        sut_optimizer_tensor *const t = &opt->tensor[k];
        const double lr = sut_group_rate(&opt->config, &opt->group[t->group], scheduled);
        p->lr = lr;
        p->ratio = opt->lr > 0 ? lr / opt->lr : 0;
        ++t->t;
        /* Tensors of a group that have taken the same number of steps share their constants; NAdam's product is the
         * tensor's own and goes with its history of settings, so it is never shared. */
        if (opt->row->rule == SUT_RULE_NADAM || (opt->setting_t[t->group] != 0 && opt->setting_t[t->group] != t->t)) {
            sut_rule_setting *const own = &opt->setting[opt->n_groups + k];
            sut_rule_prepare(opt->row->rule, opt->row->decay_flag, &opt->group[t->group], t->t, lr, &t->mu_prod, rho_m,
                             rho_v, raw, own);
            p->setting = own;
            continue;
        }
        if (opt->setting_t[t->group] == 0) {
            opt->setting_t[t->group] = t->t;
            sut_rule_prepare(opt->row->rule, opt->row->decay_flag, &opt->group[t->group], t->t, lr, &t->mu_prod, rho_m,
                             rho_v, raw, &opt->setting[t->group]);
        }
        p->setting = &opt->setting[t->group];
    }
    ++opt->t;
    sut_algebra *const a = &opt->algebra;
    a->lr = opt->lr;
    a->one_rate = true;
    a->late_gradient = false;
    for (int64_t k = 0; k < opt->n_tensors; ++k) {
        const sut_pass_tensor *const p = &opt->pass_tensor[k];
        a->one_rate = a->one_rate && (!p->present || p->ratio == 1);
        a->late_gradient = a->late_gradient || (p->present && sut_rule_needs_gradient_later(p->setting));
    }
}

/* Outputs of the staged calls, n_tensors pointers each; NULL: not wanted. */
typedef struct step_outputs {
    void *const *u, *const *inverse, *const *p;
    const void *const *given; /* the p to apply in place of the algebra's */
} step_outputs;

static const step_outputs no_outputs = {NULL, NULL, NULL, NULL};

static sut_status run_pass(sut_optimizer *opt, const void *const *grads, const sut_request *request,
                           const step_outputs *outputs)
{
    sut_algebra *const a = &opt->algebra;
    const bool proposes = request->pass == SUT_PASS_FUSED || request->pass == SUT_PASS_PROPOSE;
    const sut_step_pass pass = {
        .kind = request->pass,
        .update = request->update,
        .layout = &opt->layout,
        .tensors = opt->pass_tensor,
        .rows = {grads, opt->config.n_losses, NULL},
        .direct = request->combined && a->direct,
        .weights = request->combined ? a->signed_weights : NULL,
        .exact_sum = a->exact_sum,
        .lambda = request->pushed ? a->signed_lambda : NULL,
        .correction = request->corrected ? a->signed_correction : NULL,
        .strict = opt->config.strict != 0,
        .careful = request->careful,
        .u_scale = 1,
        .factor = request->factor ? a->R : NULL,
        .factor_scale = request->factor ? a->signed_scale : NULL,
        .realign = request->realign,
        .want_sums = request->want_sums,
        .want_metric = request->want_metric,
        .u_out = proposes ? outputs->u : NULL,
        .inverse_out = proposes ? outputs->inverse : NULL,
        .p_out = proposes ? NULL : outputs->p,
        .p_in = outputs->given,
        .sums = a->sums,
    };
    return opt->ctx->ops->step(opt->ctx, &pass);
}

static sut_status check_parameters(sut_optimizer *opt)
{
    int64_t bad, index;
    SUT_TRY(sut_step_find_bad_parameter(opt->ctx, &opt->layout, opt->pass_tensor, &bad, &index));
    if (bad >= 0)
        SUT_FAIL(opt->ctx, SUT_ERROR_NOT_FINITE, "parameter \"%s\" is NaN or Inf at index %lld", opt->tensor[bad].name,
                 (long long)index);
    return SUT_OK;
}

/* Do what the algebra asks for up to a request of the kind `until`, which is left to the caller. */
static sut_status run(sut_optimizer *opt, const void *const *grads, const step_outputs *outputs, sut_request_kind until)
{
    sut_context *const ctx = opt->ctx;
    sut_algebra *const a = &opt->algebra;
    const char *const *const loss_names = (const char *const *)opt->loss_name;
    const char *const *const tensor_names = (const char *const *)opt->tensor_name;
    const sut_rows rows = {grads, a->m, NULL};
    for (;;) {
        const sut_request *const request = sut_algebra_next(a);
        if (request->kind == until)
            return SUT_OK;
        switch (request->kind) {
        case SUT_REQUEST_GRAM: SUT_TRY(sut_gram_pass(ctx, &opt->layout, &rows, &a->search, a->gram)); break;
        case SUT_REQUEST_CULPRIT:
            SUT_TRY(sut_gram_find_culprit(ctx, &opt->layout, &rows, loss_names, tensor_names));
            break;
        case SUT_REQUEST_LARGEST: SUT_TRY(ctx->ops->row_max(ctx, &opt->layout, &rows, a->largest)); break;
        case SUT_REQUEST_PARAMETERS: SUT_TRY(check_parameters(opt)); break;
        case SUT_REQUEST_PREPARE: prepare(opt); break;
        case SUT_REQUEST_STEP: SUT_TRY(run_pass(opt, grads, request, outputs)); break;
        case SUT_REQUEST_SOLVED: break;
        case SUT_REQUEST_FAILED: {
            const sut_step_failure failure = sut_algebra_failure_of(a);
            return sut_step_explain(ctx, &opt->config.surgery, a->m, &failure, loss_names, tensor_names);
        }
        case SUT_REQUEST_DONE: return SUT_OK;
        }
    }
}

/* The gradients may be read; which tensors take part. */
static sut_status check_presence(sut_optimizer *opt, const void *const *grads)
{
    sut_algebra *const a = &opt->algebra;
    if (!grads)
        SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "grads is NULL");
    SUT_TRY(check_gradients(opt, grads));
    a->something = false;
    for (int64_t k = 0; k < opt->n_tensors; ++k) {
        bool present = false;
        for (int i = 0; i < a->m && !present; ++i)
            present = grads[(int64_t)i * opt->n_tensors + k] != NULL;
        opt->pass_tensor[k].present = present && opt->tensor[k].count > 0;
        a->something = a->something || opt->pass_tensor[k].present;
    }
    return SUT_OK;
}

/* Everything up to the weights: nothing has been written. `report`: whether figures are wanted. */
static sut_status begin(sut_optimizer *opt, const void *const *grads, const double *losses, bool report)
{
    SUT_TRY(sut_optimizer_pull(opt)); /* stages are run by the host */
    sut_algebra *const a = &opt->algebra;
    SUT_TRY(check_presence(opt, grads));
    a->losses = losses;
    a->seed = opt->seed;
    a->t = opt->t;
    a->report = report;
    a->fused = true;
    sut_algebra_begin(a);
    const sut_status status = run(opt, grads, &no_outputs, SUT_REQUEST_PREPARE);
    if (status == SUT_ERROR_NOT_FINITE) {
        ++opt->skipped;
        opt->told_state = false; /* a device counts for itself */
    }
    return status;
}

/* ---- reports ---- */

static void report_gradients(const sut_optimizer *opt, sut_report *r)
{
    const sut_algebra *const a = &opt->algebra;
    const sut_surgery_input in = {
        .K = a->gram, .m = a->m, .exponent = a->search.exponent, .config = &opt->config.surgery, .work = a->work};
    sut_surgery_output out = {.zero = a->surgery.zero, .converged = a->surgery.converged};
    memcpy(out.weights, a->weights, sizeof out.weights);
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
    r->surgery_zero = a->surgery.zero;
    r->surgery_converged = a->surgery.converged;
}

/* Everything the report says about u and p. `sums`: those of the pass that applied or measured p, NULL when p = u. */
static void report_step(const sut_optimizer *opt, const double *sums, bool given, bool moved, sut_report *r)
{
    const sut_algebra *const a = &opt->algebra;
    const int m = a->m;
    const double sign = opt->config.maximize ? -1 : 1;
    const sut_solution *const s = &a->solution;
    r->n_losses = m;
    r->step = opt->t;
    r->lr = a->lr;
    r->moved = moved && a->lr > 0 && a->something;
    r->skipped_steps = opt->skipped;
    r->strict = a->search.strict || s->careful;
    report_gradients(opt, r);
    r->norm_u = sqrt(a->uu);
    const bool changed = sums && (!given || sums[SUT_SUM_DD] > 0); /* a given p may be the proposal */
    r->projected = changed;
    r->realigned = changed && (given ? opt->config.align == SUT_ALIGN_GUA : s->realign);
    r->pareto = s->update == SUT_UPDATE_ZERO && !given;
    const double pp = sums ? sums[SUT_SUM_PP] : a->uu, pu = sums ? sums[SUT_SUM_PU] : a->uu;
    const double dd = sums ? sums[SUT_SUM_DD] : 0;
    r->norm_p = sqrt(pp);
    const double same = isnan(a->uu) ? NAN : 1; /* p = u */
    r->relative_change = isnan(a->uu) ? NAN : a->uu > 0 ? sqrt(dd) / r->norm_u : 0;
    r->cos_pu = !sums ? same : sut_algebra_cosine(pu, r->norm_p, r->norm_u);
    r->ratio_pu = !sums ? same : a->uu > 0 ? r->norm_p / r->norm_u : 0;
    double gap = 0;
    for (int i = 0; i < m; ++i) {
        const bool zero = sut_algebra_is_zero_row(a, i);
        const double slack = sums ? sign * sums[SUT_SUM_ROWS + i] : a->b[i];
        const double lambda = s->lambda[i] + s->correction[i];
        r->lambda[i] = given ? 0 : lambda;
        r->cos_u[i] = zero ? 0 : sut_algebra_cosine(a->b[i], a->norm[i], r->norm_u);
        r->cos_p[i] = zero ? 0 : sums ? sut_algebra_cosine(slack, a->norm[i], r->norm_p) : r->cos_u[i];
        r->conflict_u |= !(r->cos_u[i] >= -SUT_CONFLICT_COS); /* NaN: nothing is certified */
        r->conflict_p |= !(r->cos_p[i] >= -SUT_CONFLICT_COS);
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

/* The sums that the last pass took of p, NULL where p = u. */
static const double *sums_of_p(const sut_optimizer *opt)
{
    return opt->algebra.solution.update != SUT_UPDATE_PROPOSAL ? opt->algebra.sums : NULL;
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

/* The back end takes the step by itself; a report waits for it. */
static sut_status drive(sut_optimizer *opt, const void *const *grads, const double *losses, sut_report *report,
                        size_t size)
{
    SUT_TRY(check_presence(opt, grads));
    const unsigned kind = (report ? SUT_DRIVE_REPORT : 0u) |
                          (sut_algebra_wants_gram(&opt->algebra, report != NULL) ? SUT_DRIVE_GRAM : 0u) |
                          (sut_algebra_is_aligned(&opt->algebra) ? SUT_DRIVE_ALIGNED : 0u);
    opt->ahead = true;
    SUT_TRY(opt->ctx->ops->drive_step(opt->ctx, opt, grads, losses, kind));
    if (!report)
        return SUT_OK;
    SUT_TRY(sut_optimizer_pull(opt));
    if (opt->last_failed)
        return sut_optimizer_deliver_last(opt);
    sut_report full;
    sut_report_init(&full);
    report_step(opt, sums_of_p(opt), false, true, &full);
    give_report(&full, report, size);
    return SUT_OK; /* steps before that were refused are told by sut_optimizer_synchronize() */
}

sut_status sut_optimizer_step(sut_optimizer *opt, const void *const *grads, const double *losses, sut_report *report)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    REFUSE_WHILE_PENDING(opt, "sut_optimizer_step");
    size_t size;
    SUT_TRY(read_report(opt, report, &size));
    if (opt->drive)
        return drive(opt, grads, losses, report, size);
    SUT_TRY(begin(opt, grads, losses, report != NULL));
    prepare(opt);
    const sut_status status = run(opt, grads, &no_outputs, SUT_REQUEST_DONE);
    opt->skipped += status == SUT_ERROR_NOT_FINITE;
    SUT_TRY(status);
    if (report) {
        sut_report full;
        sut_report_init(&full);
        report_step(opt, sums_of_p(opt), false, true, &full);
        give_report(&full, report, size);
    }
    return SUT_OK;
}

/* Absent tensors propose nothing. */
static sut_status clear_absent(const sut_optimizer *opt, void *const *out)
{
    for (int64_t k = 0; out && k < opt->n_tensors; ++k) {
        const size_t size = (size_t)opt->tensor[k].count * (opt->tensor[k].dtype == SUT_DTYPE_F64 ? 8 : 4);
        if (out[k] && !opt->pass_tensor[k].present)
            SUT_TRY(opt->ctx->ops->clear(opt->ctx, out[k], size));
    }
    return SUT_OK;
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
        memcpy(weights_out, opt->algebra.weights, (size_t)opt->config.n_losses * sizeof *weights_out);
    if (!a_out)
        return SUT_OK;
    /* Plain SGD with rate 0 proposes a itself. `maximize` turns the sign of what the rule sees, not of a. */
    sut_rule_setting plain = {.rule = SUT_RULE_SGD};
    const double *const weights = opt->algebra.weights;
    const sut_step_pass pass = {
        .kind = SUT_PASS_TERMS,
        .layout = &opt->layout,
        .tensors = opt->pass_tensor,
        .rows = {grads, opt->config.n_losses, NULL},
        .direct = opt->config.n_losses == 1 && weights[0] == 1,
        .weights = weights,
        .exact_sum = opt->algebra.exact_sum,
        .strict = opt->config.strict != 0,
        .u_scale = 1,
        .u_out = a_out,
        .sums = opt->algebra.sums,
    };
    for (int64_t k = 0; k < opt->n_tensors; ++k)
        opt->pass_tensor[k].setting = &plain;
    SUT_TRY(opt->ctx->ops->step(opt->ctx, &pass));
    for (int64_t k = 0; k < opt->n_tensors; ++k)
        opt->pass_tensor[k].setting = NULL;
    return clear_absent(opt, a_out);
}

sut_status sut_optimizer_propose(sut_optimizer *opt, const void *const *grads, const double *losses, void *const *u_out,
                                 void *const *inverse_metric_out)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    REFUSE_WHILE_PENDING(opt, "sut_optimizer_propose");
    SUT_TRY(check_outputs(opt, grads, u_out, "u_out", inverse_metric_out, "inverse_metric_out"));
    SUT_TRY(begin(opt, grads, losses, true));
    if (opt->config.check != SUT_CHECK_NONE) {
        const sut_rows rows = {grads, opt->config.n_losses, NULL};
        SUT_TRY(opt->ctx->ops->row_max(opt->ctx, &opt->layout, &rows, opt->proposed));
    }
    opt->algebra.fused = false;
    opt->told_state = false;
    prepare(opt);
    const step_outputs outputs = {u_out, inverse_metric_out, NULL, NULL};
    SUT_TRY(run_pass(opt, grads, sut_algebra_next(&opt->algebra), &outputs));
    opt->pending = true;
    opt->solved = false;
    SUT_TRY(clear_absent(opt, u_out));
    return clear_absent(opt, inverse_metric_out);
}

/* How p is to be formed, if that is not settled yet. */
static sut_status solve(sut_optimizer *opt, const void *const *grads)
{
    if (!opt->solved)
        SUT_TRY(run(opt, grads, &no_outputs, SUT_REQUEST_SOLVED));
    opt->solved = true;
    return SUT_OK;
}

/* Nothing comes of a proposal that is no number: it is withdrawn. */
static sut_status solve_or_withdraw(sut_optimizer *opt, const void *const *grads)
{
    const sut_status status = solve(opt, grads);
    if (status == SUT_ERROR_NOT_FINITE) {
        opt->pending = false;
        ++opt->skipped;
    }
    return status;
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
    SUT_TRY(solve_or_withdraw(opt, grads));
    const step_outputs outputs = {NULL, NULL, p_out, NULL};
    SUT_TRY(run_pass(opt, grads, sut_algebra_measure(&opt->algebra), &outputs));
    SUT_TRY(clear_absent(opt, p_out));
    if (report) {
        sut_report full;
        sut_report_init(&full);
        report_step(opt, sums_of_p(opt), false, false, &full);
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
    sut_algebra *const a = &opt->algebra;
    a->report = report != NULL;
    if (p) {
        const step_outputs outputs = {NULL, NULL, NULL, p};
        const sut_request request = {
            .kind = SUT_REQUEST_STEP,
            .pass = SUT_PASS_APPLY,
            .update = SUT_UPDATE_GIVEN,
            .realign = opt->config.align == SUT_ALIGN_GUA,
            .want_sums = report != NULL,
            .combined = a->late_gradient,
        };
        sut_algebra_set_aside(a);
        SUT_TRY(run_pass(opt, grads, &request, &outputs));
    } else {
        SUT_TRY(solve_or_withdraw(opt, grads));
        SUT_TRY(run(opt, grads, &no_outputs, SUT_REQUEST_DONE));
    }
    if (report) {
        sut_report full;
        sut_report_init(&full);
        const double *const sums = !p ? sums_of_p(opt) : a->lr > 0 ? a->sums : NULL;
        report_step(opt, sums, p != NULL, true, &full);
        give_report(&full, report, size);
    }
    opt->pending = opt->solved = false;
    return sut_optimizer_push(opt);
}
