/*
 * The machine of algebra.h.
 *
 * Precision. f32 data go through f32 lanes. The cosines of p suffer from their error (and from the rounding of u) by about
 * eps (|u| + sum_j |lambda_j M^-1 g_j|) / |p|; where that could reach the gate, the sums of the proposal are taken again in
 * double from the state as it now is, and the last pass forms p in double ("careful"). Where K is so ill-conditioned that
 * double sums are not enough, G p is measured before anything is applied and the multipliers are solved again for the
 * remainder.
 */
#include "optim/algebra.h"

#include "surgery/nnls.h"

#include <math.h>
#include <string.h>

/* |p| below this times |u| is zero: no direction near u hurts no loss. */
#define SUT_ZERO_UPDATE 1e-10
/* Refinements end when feasibility and complementarity hold to this, or after so many passes. */
#define SUT_RESIDUAL 1e-14
#define SUT_MAX_REFINEMENTS 8
/* A p whose measured cosines are this far off is not the projection: K cannot tell the rows apart. */
#define SUT_NOT_THE_PROJECTION 1e-12

/* Where the step is: what the answer to the last request is good for. */
enum {
    BEGUN,
    FINDING_GRAM,
    CHECKING_PARAMETERS,
    WEIGHING,
    PREPARING,
    PROPOSING,
    REPEATED_FOR_RANGE,
    REPEATED_FOR_DIGITS,
    REFINING,
    FACTORED,
    FACTOR_MEASURED,
    SOLVED,
    APPLYING,
    FAILED,
    DONE
};

/* A NaN is never the larger one. */
SUT_HOST_DEVICE static double larger(double a, double b)
{
    return b > a ? b : a;
}

/* ---- requests ---- */

SUT_HOST_DEVICE static const sut_request *request(sut_algebra *a, sut_request_kind kind, int stage)
{
    memset(&a->request, 0, sizeof a->request);
    a->request.kind = kind;
    a->stage = stage;
    return &a->request;
}

SUT_HOST_DEVICE static const sut_request *request_pass(sut_algebra *a, sut_pass_kind pass, int stage)
{
    (void)request(a, SUT_REQUEST_STEP, stage);
    a->request.pass = pass;
    a->request.update = a->config->metric == SUT_METRIC_EUCLIDEAN ? SUT_UPDATE_EUCLIDEAN : SUT_UPDATE_NATURAL;
    a->request.combined = true;
    return &a->request;
}

SUT_PORTABLE void sut_algebra_fail(sut_algebra *a, sut_algebra_failure failure, int loss, int64_t tensor, int64_t index)
{
    (void)request(a, SUT_REQUEST_FAILED, FAILED);
    a->failure = failure;
    a->failed_loss = loss;
    a->failed_tensor = tensor;
    a->failed_index = index;
    a->failed_value = 0;
    a->status = SUT_ERROR_NOT_FINITE;
}

SUT_PORTABLE sut_step_failure sut_algebra_failure_of(const sut_algebra *a)
{
    sut_step_failure f;
    f.failure = a->failure;
    f.status = a->status;
    f.loss = a->failed_loss;
    f.tensor = a->failed_tensor;
    f.index = a->failed_index;
    f.step = a->t + 1;
    f.value = a->failed_value;
    f.limit = sut_algebra_longest(a);
    f.surgery = a->surgery.failure;
    f.surgery_row = a->surgery.failed_row;
    f.surgery_value = a->surgery.failed_value;
    return f;
}

SUT_HOST_DEVICE static const sut_request *fail(sut_algebra *a, sut_algebra_failure failure, sut_status status, int loss,
                                               double value)
{
    sut_algebra_fail(a, failure, loss, -1, -1);
    a->status = status;
    a->failed_value = value;
    return &a->request;
}

/* The multipliers as the passes take them: sign of maximize included. */
SUT_HOST_DEVICE static void push(sut_algebra *a, const sut_solution *s)
{
    const double sign = a->config->maximize ? -1 : 1;
    for (int i = 0; i < a->m; ++i) {
        a->signed_lambda[i] = sign * s->lambda[i];
        a->signed_correction[i] = sign * s->correction[i];
    }
    a->request.pushed = true;
    a->request.corrected = s->corrected;
}

/* A proposal that is applied as it is comes from the ordinary arithmetic, whatever the sums were taken in. */
SUT_HOST_DEVICE static bool is_careful(const sut_solution *s)
{
    return s->careful && s->update != SUT_UPDATE_PROPOSAL;
}

/* G p, |p|^2 and |p - u|^2 of the p that lambda stands for. */
SUT_HOST_DEVICE static const sut_request *request_measure(sut_algebra *a, const sut_solution *s, int stage)
{
    (void)request_pass(a, SUT_PASS_MEASURE, stage);
    a->request.update = s->update;
    a->request.careful = is_careful(s);
    a->request.want_sums = true;
    push(a, s);
    return &a->request;
}

SUT_PORTABLE const sut_request *sut_algebra_measure(sut_algebra *a)
{
    return request_measure(a, &a->solution, SOLVED);
}

/* ---- from the gradients to weights ---- */

SUT_PORTABLE bool sut_algebra_is_aligned(const sut_algebra *a)
{
    return a->config->align == SUT_ALIGN_GUA && a->m > 1;
}

/* Weights that do not depend on the gradients. */
SUT_HOST_DEVICE static bool weights_are_free(const sut_algebra *a)
{
    switch (a->config->surgery.method) {
    case SUT_SURGERY_SUM:
    case SUT_SURGERY_MEAN:
    case SUT_SURGERY_FIXED: return true;
    case SUT_SURGERY_NASH: /* a length of its own, whatever the gradient's */
    case SUT_SURGERY_CAGRAD:
    case SUT_SURGERY_SDMGRAD: return false;
    default: return a->m == 1;
    }
}

/* Products of the gradients are needed for more than to check them. */
SUT_HOST_DEVICE static bool uses_gram(const sut_algebra *a, bool report)
{
    return !weights_are_free(a) || sut_algebra_is_aligned(a) || a->config->clip_norm > 0 || report;
}

SUT_PORTABLE bool sut_algebra_wants_gram(const sut_algebra *a, bool report)
{
    return uses_gram(a, report) || a->config->check != SUT_CHECK_NONE;
}

SUT_PORTABLE void sut_algebra_begin(sut_algebra *a)
{
    a->stage = BEGUN;
    a->failure = SUT_ALGEBRA_FINE;
    a->status = SUT_OK;
    memset(&a->solution, 0, sizeof a->solution); /* p = u */
    a->proposed = false;
}

SUT_HOST_DEVICE static const sut_request *begin_gram(sut_algebra *a)
{
    a->has_gram = true;
    a->scanned = false;
    sut_gram_begin(&a->search, a->m, a->n_elements, a->only_f64, a->config->strict != 0);
    return request(a, SUT_REQUEST_DONE, FINDING_GRAM);
}

SUT_HOST_DEVICE static const sut_request *begin(sut_algebra *a)
{
    const sut_optimizer_config *const c = a->config;
    const int m = a->m;
    for (int i = 0; a->losses && i < m; ++i)
        if (!isfinite(a->losses[i]))
            return fail(a, SUT_ALGEBRA_LOSS, SUT_ERROR_NOT_FINITE, i, a->losses[i]);
    a->has_gram = sut_algebra_wants_gram(a, a->report);
    a->scanned = a->has_gram && a->scans && !uses_gram(a, a->report);
    if (a->has_gram && !a->scanned)
        return begin_gram(a);
    a->has_gram = false;
    sut_gram_begin(&a->search, m, a->n_elements, a->only_f64, c->strict != 0);
    a->search.strict = false;
    for (int k = 0; k < m * m; ++k)
        a->gram[k] = k % (m + 1) == 0; /* the surgery of a free method looks at nothing else */
    return request(a, a->scanned ? SUT_REQUEST_LARGEST : SUT_REQUEST_DONE, CHECKING_PARAMETERS);
}

SUT_HOST_DEVICE static const sut_request *find_gram(sut_algebra *a)
{
    switch (sut_gram_next(&a->search, a->gram, a->largest, a->work)) {
    case SUT_GRAM_PRODUCTS: return request(a, SUT_REQUEST_GRAM, FINDING_GRAM);
    case SUT_GRAM_CULPRIT: return request(a, SUT_REQUEST_CULPRIT, FINDING_GRAM);
    case SUT_GRAM_LARGEST: return request(a, SUT_REQUEST_LARGEST, FINDING_GRAM);
    case SUT_GRAM_READY: break;
    case SUT_GRAM_IMPOSSIBLE: return fail(a, SUT_ALGEBRA_GRAM, SUT_ERROR_INTERNAL, -1, 0);
    }
    return request(a, SUT_REQUEST_DONE, CHECKING_PARAMETERS);
}

SUT_HOST_DEVICE static bool largest_are_finite(const sut_algebra *a)
{
    bool finite = true;
    for (int i = 0; i < a->m; ++i)
        finite = finite && isfinite(a->largest[i]);
    return finite;
}

SUT_HOST_DEVICE static const sut_request *check_parameters(sut_algebra *a)
{
    if (a->scanned && !largest_are_finite(a))
        return begin_gram(a); /* which names the culprit, before parameters are looked at */
    return request(a, a->config->check == SUT_CHECK_ALL ? SUT_REQUEST_PARAMETERS : SUT_REQUEST_DONE, WEIGHING);
}

SUT_HOST_DEVICE static bool find_weights(sut_algebra *a)
{
    const sut_optimizer_config *const c = a->config;
    sut_surgery_output *const out = &a->surgery;
    if (a->something && !(c->surgery.method == SUT_SURGERY_NASH && a->kept_for > 0)) {
        sut_surgery_input in;
        in.K = a->gram;
        in.m = a->m;
        in.exponent = a->search.exponent;
        in.losses = a->losses;
        in.seed = a->seed;
        in.counter = (uint64_t)a->t;
        in.config = &c->surgery;
        in.work = a->work;
        const sut_status status = sut_surgery_run(&in, out);
        if (status != SUT_OK)
            (void)fail(a, SUT_ALGEBRA_SURGERY, status, -1, 0);
        return status == SUT_OK;
    }
    /* Nothing to combine (not every method has weights for that), or weights that are kept. */
    for (int i = 0; i < a->m; ++i)
        out->weights[i] = a->something ? a->kept_weights[i] : 0;
    out->zero = !a->something;
    out->converged = true;
    return true;
}

SUT_PORTABLE double sut_algebra_longest(const sut_algebra *a)
{
    return a->only_f64 ? SUT_LONGEST_SUM_F64 : SUT_LONGEST_SUM_F32;
}

/* Where lengths matter, they are such that their squares are doubles. */
SUT_HOST_DEVICE static bool lengths_are_fine(sut_algebra *a)
{
    double longest = 0;
    for (int i = 0; i < a->m; ++i)
        longest = larger(longest, a->norm[i]);
    for (int i = 0; sut_algebra_is_aligned(a) && i < a->m; ++i) {
        const double norm = a->norm[i];
        if (norm <= SUT_ZERO_ROW * longest || (norm >= SUT_SHORTEST_GRADIENT && norm <= SUT_LONGEST_GRADIENT))
            continue;
        (void)fail(a, SUT_ALGEBRA_LENGTH, SUT_ERROR_OUT_OF_RANGE, i, norm);
        return false;
    }
    return true;
}

/* |sum_i w_i g_i|. */
SUT_HOST_DEVICE static double combined_norm(const sut_algebra *a)
{
    double squared = 0;
    for (int i = 0; i < a->m; ++i)
        for (int j = 0; j < a->m; ++j)
            squared += a->weights[i] * a->weights[j] * a->gram[i * a->m + j];
    return ldexp(sqrt(squared > 0 ? squared : 0), a->search.exponent);
}

SUT_HOST_DEVICE static void clip(sut_algebra *a)
{
    const double factor = a->config->clip_norm / (combined_norm(a) + 1e-6);
    for (int i = 0; factor < 1 && i < a->m; ++i)
        a->weights[i] *= factor;
}

/* Finite gradients whose sum is not: the state would not recover. */
SUT_HOST_DEVICE static bool sum_is_fine(sut_algebra *a)
{
    const double limit = sut_algebra_longest(a), norm = a->has_gram ? combined_norm(a) : 0;
    if (norm > limit)
        (void)fail(a, SUT_ALGEBRA_RANGE, SUT_ERROR_OUT_OF_RANGE, -1, norm);
    return !(norm > limit);
}

/* The largest entries show that the sum of the gradients is not too long. Where they do not, norms are looked at. */
SUT_HOST_DEVICE static bool scan_suffices(const sut_algebra *a)
{
    double bound = 0;
    for (int i = 0; i < a->m; ++i)
        bound += fabs(a->surgery.weights[i]) * a->largest[i];
    /* A norm may round to more than this; near the limit it decides. */
    return bound * sqrt((double)a->n_elements) <= sut_algebra_longest(a) * (1 - 1e-10);
}

SUT_HOST_DEVICE static const sut_request *weigh(sut_algebra *a)
{
    const int m = a->m;
    if (!find_weights(a))
        return &a->request;
    if (a->scanned && !scan_suffices(a))
        return begin_gram(a);
    for (int i = 0; i < m; ++i) {
        a->weights[i] = a->surgery.weights[i];
        a->norm[i] = a->has_gram ? ldexp(sqrt(a->gram[i * m + i]), a->search.exponent) : 0;
    }
    if (!lengths_are_fine(a))
        return &a->request;
    if (a->config->clip_norm > 0)
        clip(a);
    if (!sum_is_fine(a))
        return &a->request;
    const double sign = a->config->maximize ? -1 : 1;
    for (int i = 0; i < m; ++i)
        a->signed_weights[i] = sign * a->weights[i];
    a->direct = m == 1 && a->signed_weights[0] == 1;
    /* Where the weights do not come from the Gram matrix there need not be one (check, report), and the bits of a step must
     * not depend on whether there is: its conditioning counts for the other methods alone. */
    a->exact_sum = a->config->strict || (a->search.strict && !weights_are_free(a));
    return request(a, SUT_REQUEST_PREPARE, PREPARING);
}

/* ---- the proposal ---- */

/* From here on the step is taken: memory of the surgery moves on. */
SUT_HOST_DEVICE static void keep_weights(sut_algebra *a)
{
    if (a->config->surgery.method != SUT_SURGERY_NASH || !a->something)
        return;
    if (a->kept_for > 0) {
        --a->kept_for;
        return;
    }
    for (int i = 0; i < a->m; ++i)
        a->kept_weights[i] = a->surgery.weights[i];
    a->kept_for = a->config->surgery.nash_update_every - 1;
}

/* Whether p could differ from u in this step. */
SUT_HOST_DEVICE static bool may_project(const sut_algebra *a)
{
    return sut_algebra_is_aligned(a) && a->lr > 0;
}

/* M = I: K is the Gram matrix. */
SUT_HOST_DEVICE static bool metric_is_trivial(const sut_algebra *a)
{
    return a->config->metric == SUT_METRIC_EUCLIDEAN && a->one_rate;
}

SUT_HOST_DEVICE static const sut_request *propose(sut_algebra *a)
{
    keep_weights(a);
    const bool fused = a->fused && !sut_algebra_is_aligned(a);
    (void)request_pass(a, fused ? SUT_PASS_FUSED : SUT_PASS_PROPOSE, PROPOSING);
    a->request.want_sums = a->report || may_project(a);
    a->request.want_metric = may_project(a) && !metric_is_trivial(a);
    return &a->request;
}

/* Pass 2's sums once more, in double, from the state as it is now. */
SUT_HOST_DEVICE static const sut_request *repeat(sut_algebra *a, int stage)
{
    a->solution.careful = true;
    (void)request_pass(a, SUT_PASS_TERMS, stage);
    a->request.careful = true;
    a->request.want_sums = true;
    a->request.want_metric = !metric_is_trivial(a);
    return &a->request;
}

/* b, |u|^2, |u|_M^2 and K as the algebra wants them: of the rows -g_i under maximize. */
SUT_HOST_DEVICE static void take_sums(sut_algebra *a)
{
    const int m = a->m;
    const double sign = a->config->maximize ? -1 : 1;
    a->uu = a->sums[SUT_SUM_UU];
    a->uMu = a->sums[SUT_SUM_UMU];
    for (int i = 0; i < m; ++i)
        a->b[i] = sign * a->sums[SUT_SUM_ROWS + i];
    if (a->request.want_metric) {
        const double *const K = a->sums + SUT_SUM_ROWS + m;
        for (int i = 0; i < m; ++i)
            for (int j = 0; j <= i; ++j)
                a->K[i * m + j] = a->K[j * m + i] = K[i * (i + 1) / 2 + j];
    } else {
        for (int k = 0; k < m * m; ++k)
            a->K[k] = ldexp(a->gram[k], 2 * a->search.exponent);
        a->uMu = a->uu;
    }
    a->proposed = true;
}

SUT_PORTABLE void sut_algebra_set_aside(sut_algebra *a)
{
    if (!a->proposed)
        take_sums(a);
    memset(&a->solution, 0, sizeof a->solution);
}

/* ---- multipliers ---- */

SUT_PORTABLE double sut_algebra_cosine(double dot, double norm_g, double norm_v)
{
    const double scale = norm_g * norm_v;
    if (isnan(dot) || isnan(scale))
        return NAN; /* nothing is known, which is no conflict's absence */
    if (!(scale > 0) || !isfinite(dot))
        return 0;
    const double c = dot / scale;
    return c > 1 ? 1 : c < -1 ? -1 : c;
}

SUT_PORTABLE bool sut_algebra_is_zero_row(const sut_algebra *a, int i)
{
    double longest = 0;
    for (int j = 0; j < a->m; ++j)
        longest = larger(longest, a->gram[j * a->m + j]);
    return sqrt(a->gram[i * a->m + i]) <= SUT_ZERO_ROW * sqrt(longest);
}

SUT_HOST_DEVICE static double worst_cosine(const sut_algebra *a)
{
    double worst = 0;
    for (int i = 0; i < a->m; ++i) {
        const double c = sut_algebra_is_zero_row(a, i) ? 0 : sut_algebra_cosine(a->b[i], a->norm[i], sqrt(a->uu));
        worst = c < worst ? c : worst;
    }
    return worst;
}

SUT_HOST_DEVICE static bool is_inside(const sut_algebra *a)
{
    return !(a->uu > 0) || worst_cosine(a) >= -a->config->conflict_cos_tol;
}

/* Sums from f32 lanes, of proposals and gradients of any size: none has overflowed or lost digits to underflow. */
SUT_HOST_DEVICE static bool in_range_of_f32(const sut_algebra *a)
{
    const int m = a->m;
    const double least = SUT_TINY_F32 * (double)a->n_elements;
    bool fine = a->uu > least && a->uMu > least && isfinite(a->uu) && isfinite(a->uMu);
    for (int i = 0; i < m && fine; ++i) {
        fine = sut_algebra_is_zero_row(a, i) || (a->K[i * m + i] > least && a->norm[i] * sqrt(a->uu) > least);
        fine = fine && isfinite(a->b[i]);
        for (int j = 0; j <= i; ++j)
            fine = fine && isfinite(a->K[i * m + j]);
    }
    return fine;
}

/*
 * Multipliers from the sums in hand, on the live rows; `violation_out`: the largest cosine by which they still leave the
 * cone, as far as these sums can tell (rows that depend on each other to their rounding are not told apart). False: the
 * solver gave up, which is a bug.
 */
SUT_HOST_DEVICE static bool find_multipliers(sut_algebra *a, double *lambda, double *violation_out)
{
    const int m = a->m;
    SUT_ZEROS(double, b, SUT_ROOM);
    SUT_ARRAY(double, slack, SUT_ROOM);
    for (int i = 0; i < m; ++i) {
        const bool zero = sut_algebra_is_zero_row(a, i);
        b[i] = zero ? 0 : a->b[i];
        for (int j = 0; zero && j < m; ++j)
            a->K[i * m + j] = a->K[j * m + i] = 0;
    }
    *violation_out = 0;
    if (sut_nnqp(a->K, b, m, lambda, slack, a->work) < 0)
        return false;
    for (int i = 0; i < m; ++i)
        if (!sut_algebra_is_zero_row(a, i))
            *violation_out = larger(*violation_out, -slack[i] / (a->norm[i] * sqrt(a->uu)));
    return true;
}

/*
 * How much larger than a rounding error the error of a cosine of p can be: (|u| + sum_j |lambda_j M^-1 g_j|) / |p|, with
 * the lengths that K offers in place of those of M^-1 g_j. Also |p|_M^2 / |u|_M^2.
 */
SUT_HOST_DEVICE static double amplification(const sut_algebra *a, const double *lambda, double *reduction_out)
{
    const int m = a->m;
    const double u = sqrt(a->uu);
    double sum = 0, decrease = 0;
    for (int i = 0; i < m; ++i) {
        sum += lambda[i] * sqrt(a->K[i * m + i]);
        for (int j = 0; j < m; ++j)
            decrease += lambda[i] * lambda[j] * a->K[i * m + j];
    }
    const double reduction = a->uMu > 0 ? 1 - decrease / a->uMu : 1;
    *reduction_out = reduction > 0 ? reduction : 0;
    double worst = 0;
    for (int i = 0; i < m; ++i) {
        if (sut_algebra_is_zero_row(a, i))
            continue;
        const double x = 1 + sqrt(a->K[i * m + i]) * sum / (a->norm[i] * u);
        worst = x > worst ? x : worst;
    }
    return worst / sqrt(*reduction_out > 1e-30 ? *reduction_out : 1e-30);
}

/* ---- p is settled ---- */

SUT_HOST_DEVICE static const sut_request *settle(sut_algebra *a)
{
    return request(a, SUT_REQUEST_SOLVED, SOLVED);
}

/* relative: |p - u| / |u|, or a lower bound. */
SUT_HOST_DEVICE static const sut_request *settle_projection(sut_algebra *a, double relative)
{
    const sut_optimizer_config *const c = a->config;
    a->solution.realign = relative > c->correction_distance_tol && (c->rho_m > 0 || c->rho_v > 0);
    return settle(a);
}

SUT_HOST_DEVICE static const sut_request *settle_measured(sut_algebra *a)
{
    sut_solution *const s = &a->solution;
    s->measured = true;
    if (a->vanishes || sqrt(s->pp) <= SUT_ZERO_UPDATE * sqrt(a->uu)) {
        s->update = SUT_UPDATE_ZERO;
        s->pp = 0;
        s->dd = a->uu;
    }
    return settle_projection(a, sqrt(s->dd) / sqrt(a->uu));
}

/* ---- repair by measuring ---- */

/* What a MEASURE pass found, of the step that *s makes. */
SUT_HOST_DEVICE static void take_measure(const sut_algebra *a, sut_solution *s, double *slack)
{
    const double sign = a->config->maximize ? -1 : 1;
    for (int i = 0; i < a->m; ++i)
        slack[i] = sign * a->sums[SUT_SUM_ROWS + i];
    s->pp = a->sums[SUT_SUM_PP];
    s->dd = a->sums[SUT_SUM_DD];
}

/*
 * How far the measured s = G p is from what it ought to be: the larger of |s_i| as a cosine and |lambda_i s_i| / |u|_M^2 of
 * the rows that push, -s_i as a cosine of the others. *outside_out: the others are clearly worse, so that the set of rows
 * that push is in doubt. (A row opposed to one that pushes has the same cosine.)
 */
SUT_HOST_DEVICE static double residual(const sut_algebra *a, const sut_solution *s, const double *slack,
                                       bool *outside_out)
{
    double pushing = 0, others = 0;
    for (int i = 0; i < a->m; ++i) {
        if (sut_algebra_is_zero_row(a, i))
            continue;
        const double lambda = s->lambda[i] + s->correction[i];
        const bool pushes = lambda > 0;
        double x = (pushes ? fabs(slack[i]) : -slack[i]) / (a->norm[i] * sqrt(s->pp));
        if (pushes && a->uMu > 0)
            x = larger(x, fabs(lambda * slack[i]) / a->uMu);
        double *const worst = pushes ? &pushing : &others;
        *worst = larger(*worst, x);
    }
    *outside_out = others > 2 * pushing;
    return larger(pushing, others);
}

/*
 * Measure G p before anything is applied and, where the sums were too coarse (`ill`), repair p while that helps:
 * K_PP correction = -s_P. Multipliers of nearly dependent rows are of the order 1/angle; what is left of s is below their
 * last digit and goes into a correction of its own. If a row that does not push is violated, the set of rows is looked for
 * again, once. The best of all rounds stays.
 */
SUT_HOST_DEVICE static const sut_request *begin_refining(sut_algebra *a, bool ill)
{
    a->ill = ill;
    a->solution.corrected = ill; /* p is formed in the same way in each round */
    a->best = a->solution;
    a->least = HUGE_VAL;
    a->searched = a->vanishes = false;
    a->round = 0;
    return request_measure(a, &a->solution, REFINING);
}

SUT_HOST_DEVICE static const sut_request *begin_factoring(sut_algebra *a);

SUT_HOST_DEVICE static const sut_request *refine(sut_algebra *a)
{
    const int m = a->m;
    sut_solution *const s = &a->solution;
    SUT_ARRAY(double, slack, SUT_ROOM);
    SUT_ZEROS(double, total, SUT_ROOM);
    SUT_ARRAY(double, delta, SUT_ROOM);
    bool outside;
    take_measure(a, s, slack);
    if (!a->ill || sqrt(s->pp) <= SUT_ZERO_UPDATE * sqrt(a->uu))
        return begin_factoring(a);
    const double now = residual(a, s, slack, &outside);
    const bool helped = now <= 0.5 * a->least;
    s->residual = now;
    if (now < a->least) {
        a->least = now;
        a->best = *s;
    }
    const bool enough = now <= SUT_RESIDUAL || a->round == SUT_MAX_REFINEMENTS || (!helped && a->searched);
    for (int i = 0; i < m; ++i)
        total[i] = s->lambda[i] + s->correction[i];
    if (!enough && helped && !outside && sut_nnqp_correction(a->K, slack, m, total, delta, a->work)) {
        for (int i = 0; i < m; ++i)
            s->correction[i] += delta[i];
    } else if (!enough && !a->searched && sut_nnqp_resolve(a->K, slack, m, total, a->work) >= 0) {
        a->searched = true;
        a->least = HUGE_VAL; /* the new set is another candidate: it has to be measured against itself */
        for (int i = 0; i < m; ++i) {
            s->lambda[i] = total[i];
            s->correction[i] = 0;
        }
    } else {
        *s = a->best;
        return begin_factoring(a);
    }
    ++a->round;
    return request_measure(a, s, REFINING);
}

/* ---- repair by the triangle ---- */

/* Powers of two that bring the columns of the triangle near 1; rows that impose nothing become 0. */
SUT_HOST_DEVICE static bool factor_scales(const sut_algebra *a, double *scale)
{
    const int m = a->m;
    for (int i = 0; i <= m; ++i) {
        const double square = i < m ? a->K[i * m + i] : a->uMu;
        int exponent = 0;
        if (!isfinite(square))
            return false;
        (void)frexp(sqrt(square), &exponent);
        scale[i] = i < m && sut_algebra_is_zero_row(a, i) ? 0 : ldexp(1.0, -exponent);
    }
    return true;
}

/* The triangle of the proposal (`s` NULL), or of the update that *s makes. */
SUT_HOST_DEVICE static const sut_request *request_factor(sut_algebra *a, const sut_solution *s)
{
    const int m = a->m;
    for (int i = 0; i <= m; ++i)
        a->signed_scale[i] = i < m && a->config->maximize ? -a->scale[i] : a->scale[i];
    memset(a->R, 0, ((size_t)m + 1) * ((size_t)m + 1) * sizeof *a->R);
    (void)request_pass(a, s ? SUT_PASS_MEASURE : SUT_PASS_TERMS, FACTORED);
    a->request.careful = true;
    a->request.factor = true;
    if (s)
        push(a, s);
    return &a->request;
}

/*
 * The multipliers from the triangle of [M^-1/2 G^T, M^1/2 u], whose condition is the root of K's; then again from that of
 * the update they make, while this helps. The solution is replaced if the result is better.
 */
SUT_HOST_DEVICE static const sut_request *begin_factoring(sut_algebra *a)
{
    if (!(a->solution.residual > SUT_NOT_THE_PROJECTION) || !factor_scales(a, a->scale))
        return settle_measured(a);
    a->now = a->solution;
    memset(a->now.correction, 0, sizeof a->now.correction);
    a->now.corrected = true;
    a->previous = HUGE_VAL;
    a->round = 0;
    return request_factor(a, NULL);
}

SUT_HOST_DEVICE static const sut_request *use_factor(sut_algebra *a)
{
    const int m = a->m;
    SUT_ARRAY(double, delta, SUT_ROOM);
    SUT_ARRAY(double, from, SUT_ROOM);
    SUT_ARRAY(double, lambda, SUT_ROOM);
    const double *const scale = a->scale;
    sut_solution *const now = &a->now;
    sut_nnls_end end;
    for (int i = 0; i < m; ++i)
        from[i] = scale[i] == 0 ? 0 : (now->lambda[i] + now->correction[i]) * scale[m] / scale[i];
    if (!sut_nnls(a->R, m, a->round ? (const double *)from : NULL, lambda, delta, a->work, &end))
        return settle_measured(a);
    a->vanishes = end.length <= end.noise; /* what is left of u is nothing but rounding: p = 0 */
    if (a->vanishes)
        return settle_measured(a);
    /* Changes that are not small beside the multipliers, and rows that join or leave, are multipliers themselves. */
    bool anew = a->round == 0;
    for (int i = 0; i < m; ++i)
        anew = anew || fabs(delta[i]) > 1e-6 * lambda[i] || (lambda[i] > 0) != (from[i] > 0);
    for (int i = 0; i < m; ++i) {
        if (anew) {
            now->lambda[i] = lambda[i] * scale[i] / scale[m];
            now->correction[i] = 0;
        } else {
            now->correction[i] += delta[i] * scale[i] / scale[m];
        }
    }
    a->previous = anew ? HUGE_VAL : a->previous;
    return request_measure(a, now, FACTOR_MEASURED);
}

SUT_HOST_DEVICE static const sut_request *judge_factor(sut_algebra *a)
{
    SUT_ARRAY(double, slack, SUT_ROOM);
    bool outside;
    sut_solution *const now = &a->now;
    take_measure(a, now, slack);
    now->residual = residual(a, now, slack, &outside);
    if (now->residual < a->solution.residual)
        a->solution = *now;
    if (now->residual <= SUT_RESIDUAL || !(now->residual < 0.5 * a->previous) || a->round == SUT_MAX_REFINEMENTS)
        return settle_measured(a);
    a->previous = now->residual;
    ++a->round;
    return request_factor(a, now);
}

/* ---- how p is to be formed ---- */

SUT_HOST_DEVICE static const sut_request *find_projection(sut_algebra *a);

/* With sums that can be relied on. */
SUT_HOST_DEVICE static const sut_request *settle_or_project(sut_algebra *a)
{
    /* A parameter or the state holds what is no number: nothing can be said of such a step, and it is not taken. */
    if (!isfinite(a->uu))
        return fail(a, SUT_ALGEBRA_PROPOSAL, SUT_ERROR_NOT_FINITE, -1, a->uu);
    return is_inside(a) ? settle(a) : find_projection(a);
}

SUT_HOST_DEVICE static const sut_request *use_proposal(sut_algebra *a)
{
    if (!may_project(a))
        return settle(a);
    if (!a->f64_elements && !in_range_of_f32(a))
        return repeat(a, REPEATED_FOR_RANGE);
    return settle_or_project(a);
}

SUT_HOST_DEVICE static const sut_request *find_projection(sut_algebra *a)
{
    const sut_optimizer_config *const c = a->config;
    const int m = a->m;
    sut_solution *const s = &a->solution;
    double reduction, left;
    if (!find_multipliers(a, s->lambda, &left))
        return fail(a, SUT_ALGEBRA_CONE, SUT_ERROR_INTERNAL, -1, 0);
    const double amplified = amplification(a, s->lambda, &reduction);
    /* f32: roundings of 6e-8 must stay below a third of the conflict threshold; f64: below 1e-13. */
    if (!a->f64_elements && !s->careful && (amplified > 5 || left > SUT_CONFLICT_COS / 10)) {
        memset(s->lambda, 0, sizeof s->lambda);
        return repeat(a, REPEATED_FOR_DIGITS);
    }
    bool pushed = false;
    for (int i = 0; i < m; ++i)
        pushed = pushed || s->lambda[i] > 0;
    if (!pushed)
        return settle(a); /* violated by less than the solver's rounding, or in coordinates that cannot move */
    s->uMu = a->uMu;
    s->update = c->metric == SUT_METRIC_EUCLIDEAN ? SUT_UPDATE_EUCLIDEAN : SUT_UPDATE_NATURAL;
    const double violation = -worst_cosine(a);

    /* Look before applying where the sums in hand cannot decide: |p| or the multipliers are dominated by rounding, or the
     * correction is about as small as the threshold of realignment (|p - u| >= |u| violation always). */
    const bool missed =
        (a->f64_elements || s->careful) && left > 1e-11 * sqrt(reduction); /* a row that K cannot tell from others */
    const bool ill = missed || amplified > (a->f64_elements ? 450 : 1e6) || reduction < 1e-6 ||
                     sut_nnqp_condition(a->K, m, s->lambda, a->work) > 1e6;
    if (ill || violation <= 4 * c->correction_distance_tol) {
        s->careful = s->careful || !a->f64_elements;
        return begin_refining(a, ill);
    }
    return settle_projection(a, violation);
}

/* ---- the machine ---- */

SUT_HOST_DEVICE static const sut_request *apply(sut_algebra *a)
{
    const sut_solution *const s = &a->solution;
    (void)request_pass(a, SUT_PASS_APPLY, APPLYING);
    a->request.update = s->update;
    a->request.careful = is_careful(s);
    a->request.realign = s->realign;
    a->request.want_sums = a->report && s->update != SUT_UPDATE_PROPOSAL;
    a->request.combined = a->late_gradient;
    push(a, s);
    return &a->request;
}

SUT_HOST_DEVICE static const sut_request *advance(sut_algebra *a)
{
    switch (a->stage) {
    case BEGUN: return begin(a);
    case FINDING_GRAM: return find_gram(a);
    case CHECKING_PARAMETERS: return check_parameters(a);
    case WEIGHING: return weigh(a);
    case PREPARING: return propose(a);
    case PROPOSING:
        if (a->request.want_sums)
            take_sums(a);
        return a->request.pass == SUT_PASS_FUSED ? request(a, SUT_REQUEST_DONE, DONE) : use_proposal(a);
    case REPEATED_FOR_RANGE:
    case REPEATED_FOR_DIGITS: take_sums(a); return settle_or_project(a);
    case REFINING: return refine(a);
    case FACTORED: return use_factor(a);
    case FACTOR_MEASURED: return judge_factor(a);
    case SOLVED: return apply(a);
    case APPLYING: return request(a, SUT_REQUEST_DONE, DONE);
    default: return &a->request;
    }
}

SUT_PORTABLE const sut_request *sut_algebra_next(sut_algebra *a)
{
    /* DONE before the last stage: nothing has to be done for the one that follows. */
    for (;;) {
        const sut_request *const next = advance(a);
        if (next->kind != SUT_REQUEST_DONE || a->stage == DONE)
            return next;
    }
}
