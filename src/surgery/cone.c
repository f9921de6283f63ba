/*
 * Projection of a vector on the conflict-free cone { p : G p >= 0 } in the metric M = diag(delta): section 7 of the
 * specification.
 *
 * Passes over the data: sums (b = G u, K = G M^-1 G^T), a measurement of the unrounded p that the multipliers give (it
 * refines them when K is badly conditioned, and finds out whether p vanishes or overflows before anything is written),
 * the write, and a measurement of what was written. When u is inside the cone there is only the first one. Where the
 * measured p is not the projection, K has lost it, and the multipliers are sought again in a triangle (nnls.h).
 *
 * Numbers are those of scaled rows, u and delta (powers of two, 1 where the range of doubles is no problem). On scaled
 * data everything of 7.1 holds as it stands; only the multipliers and slacks of the report are scaled back.
 */
#include "optim/step.h"
#include "surgery/nnls.h"
#include "surgery/prelude.h"
#include "surgery/surgery.h"

#include <float.h>

/* Everything that one projection carries along. */
typedef struct projection {
    sut_context *ctx;
    const sut_layout *layout;
    const void *const *grads;
    const void *u, *metric;
    void *p;
    int m;
    int64_t n;
    sut_dtype dtype;
    sut_rows rows;
    double row_scale[SUT_MAX_LOSSES];
    int row_exponent[SUT_MAX_LOSSES], u_exponent, delta_exponent; /* scales are 2^-exponent */
    double u_scale, delta_scale;
    sut_cone_sums sums;
    double d[SUT_MAX_LOSSES]; /* Euclidean norms of the rows, 0 where a row imposes nothing */
    double *work;             /* SUT_SURGERY_WORK(m) */
    double *R;                /* (m + 1)^2: the triangle, */
    bool factored;            /* once it is needed */
    bool frozen;              /* a coordinate with infinite delta and u_j != 0 */
    int rounds, refinements;
} projection;

/* A candidate: multipliers, and what was measured with them. */
typedef struct candidate {
    double lambda[SUT_MAX_LOSSES];
    sut_cone_measure measure;
} candidate;

void sut_cone_config_init_sized(sut_cone_config *config, size_t struct_size)
{
    sut_cone_config defaults;
    memset(&defaults, 0, sizeof defaults);
    defaults.struct_size = struct_size;
    if (!config)
        return;
    memset(config, 0, struct_size);
    memcpy(config, &defaults, struct_size < sizeof defaults ? struct_size : sizeof defaults);
}

void sut_cone_report_init_sized(sut_cone_report *report, size_t struct_size)
{
    sut_cone_report empty;
    memset(&empty, 0, sizeof empty);
    empty.struct_size = struct_size;
    if (!report)
        return;
    memset(report, 0, struct_size);
    memcpy(report, &empty, struct_size < sizeof empty ? struct_size : sizeof empty);
}

/* Checks. */

static sut_status check_arrays(sut_context *ctx, const void *const *grads, int m, int64_t n, sut_dtype dtype,
                               const void *u, const void *metric, const void *p)
{
    if (m < 1 || m > SUT_MAX_LOSSES)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "cone: the number of losses m is %d; it must be in 1..%d", m,
                 SUT_MAX_LOSSES);
    if (n < 1 || n > INT64_MAX / 8)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "cone: n is %lld; it must be at least 1 and fit into memory",
                 (long long)n);
    if (dtype != SUT_DTYPE_F32 && dtype != SUT_DTYPE_F64)
        SUT_FAIL(ctx, SUT_ERROR_UNSUPPORTED, "cone: dtype is %s; plain arrays are f32 or f64",
                 sut_dtype_name(dtype) ? sut_dtype_name(dtype) : "unknown");
    if (!grads || !u)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "cone: %s is NULL", grads ? "u" : "grads");
    const size_t one = sut_dtype_size(dtype), size = (size_t)n * one;
    const void *const plain[3] = {u, metric, p};
    static const char *const plain_name[3] = {"u", "metric", "p"};
    for (int k = 0; k < 3; ++k) {
        if (plain[k] && (uintptr_t)plain[k] % one != 0)
            SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "cone: %s is not aligned to its %zu-byte elements", plain_name[k],
                     one);
        const char *const fault = plain[k] ? sut_pointer_fault(ctx, plain[k]) : NULL;
        if (fault)
            SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "cone: %s %s", plain_name[k], fault);
    }
    for (int i = 0; i < m; ++i) {
        if (!grads[i])
            SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "cone: grads[%d] is NULL", i);
        if ((uintptr_t)grads[i] % one != 0)
            SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "cone: grads[%d] is not aligned to its %zu-byte elements", i,
                     one);
        if (p && sut_overlap(grads[i], size, p, size))
            SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "cone: p overlaps grads[%d]", i);
        const char *const fault = sut_pointer_fault(ctx, grads[i]);
        if (fault)
            SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "cone: grads[%d] %s", i, fault);
    }
    if (p && metric && sut_overlap(metric, size, p, size))
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "cone: p overlaps metric");
    if (p && p != u && sut_overlap(u, size, p, size))
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "cone: p overlaps u without being u");
    return SUT_OK;
}

/* delta_j > 0, Inf allowed. The smallest entry sets its scale: M^-1 then has entries up to 2, and no sum overflows. */
static sut_status check_metric(projection *q)
{
    sut_metric_scan scan = {.bad = -1, .smallest = INFINITY};
    if (q->metric)
        SUT_TRY(q->ctx->ops->scan_metric(q->ctx, q->metric, q->u, q->n, q->dtype, &scan));
    if (scan.bad >= 0 && isnan(scan.value))
        SUT_FAIL(q->ctx, SUT_ERROR_NOT_FINITE, "cone: metric is NaN at index %lld", (long long)scan.bad);
    if (scan.bad >= 0)
        SUT_FAIL(q->ctx, SUT_ERROR_OUT_OF_RANGE, "cone: metric is %g at index %lld; it must be positive", scan.value,
                 (long long)scan.bad);
    const double smallest = scan.smallest;
    q->frozen = scan.frozen;
    q->delta_exponent = isinf(smallest) ? 0 : sut_exponent(smallest);
    q->delta_scale = sut_exp2i(q->delta_exponent < -1022 ? 1022 : -q->delta_exponent);
    if (q->delta_exponent < -1022) /* subnormal */
        q->delta_exponent = -1022;
    return SUT_OK;
}

static sut_status check_finite(projection *q)
{
    int64_t k;
    for (int i = 0; i < q->m; ++i) {
        SUT_TRY(q->ctx->ops->find_nonfinite(q->ctx, q->grads[i], q->n, q->dtype, &k));
        if (k >= 0)
            SUT_FAIL(q->ctx, SUT_ERROR_NOT_FINITE, "cone: the gradient of loss %d is NaN or Inf at index %lld", i,
                     (long long)k);
    }
    SUT_TRY(q->ctx->ops->find_nonfinite(q->ctx, q->u, q->n, q->dtype, &k));
    if (k >= 0)
        SUT_FAIL(q->ctx, SUT_ERROR_NOT_FINITE, "cone: u is NaN or Inf at index %lld", (long long)k);
    return SUT_OK;
}

/* Sums. */

/* A squared norm that neither overflowed nor lost digits. */
static bool in_range(double square)
{
    return square > 1e-150 && square < 1e150;
}

static bool finite_sums(const projection *q)
{
    double bad = q->sums.uu - q->sums.uu + (q->sums.uMu - q->sums.uMu);
    for (int i = 0; i < q->m; ++i)
        bad += q->sums.b[i] - q->sums.b[i];
    for (int k = 0; k < q->m * q->m; ++k)
        bad += q->sums.K[k] - q->sums.K[k];
    return bad == 0.0;
}

/* Squared Euclidean norms of the rows: the diagonal of K where M = I, else one short pass for each row. */
static sut_status row_norms(projection *q)
{
    for (int i = 0; i < q->m; ++i) {
        double square = q->sums.K[(size_t)i * (size_t)(q->m + 1)];
        if (q->metric) {
            const sut_rows row = {q->grads + i, 1, q->rows.scale ? q->row_scale + i : NULL};
            SUT_TRY(q->ctx->ops->gram(q->ctx, q->layout, &row, true, &square));
        }
        q->d[i] = sqrt(square);
    }
    return SUT_OK;
}

static sut_status take_sums(projection *q)
{
    SUT_TRY(q->ctx->ops->cone_sums(q->ctx, q->layout, &q->rows, q->u, q->u_scale, q->metric, q->delta_scale, &q->sums));
    SUT_TRY(row_norms(q));
    return SUT_OK;
}

/* Power of two that brings the largest entry x of a row near 1; 0 for a zero row. */
static int scale_exponent(double x)
{
    const int e = x > 0.0 ? sut_exponent(x) : 0;
    return e < -1022 ? -1022 : e > 1022 ? 1022 : e;
}

/* Sums of data whose squares leave the range of doubles: every row and u scaled to entries around 1. */
static sut_status take_scaled_sums(projection *q)
{
    double largest[SUT_MAX_LOSSES], length[SUT_MAX_LOSSES], longest = -INFINITY, u_largest;
    const sut_rows u_row = {&q->u, 1, NULL};
    q->rows.scale = NULL;
    SUT_TRY(q->ctx->ops->row_max(q->ctx, q->layout, &q->rows, largest));
    SUT_TRY(q->ctx->ops->row_max(q->ctx, q->layout, &u_row, &u_largest));
    for (int i = 0; i < q->m; ++i) {
        q->row_exponent[i] = scale_exponent(largest[i]);
        q->row_scale[i] = sut_exp2i(-q->row_exponent[i]);
    }
    q->u_exponent = scale_exponent(u_largest);
    q->u_scale = sut_exp2i(-q->u_exponent);
    q->rows.scale = q->row_scale;
    SUT_TRY(take_sums(q));
    if (!finite_sums(q))
        SUT_FAIL(q->ctx, SUT_ERROR_OUT_OF_RANGE,
                 "cone: sums overflow even after scaling; the metric spans too many "
                 "orders of magnitude");
    /* Rows 1e-150 times shorter than the longest have no direction. Lengths are compared as logarithms. */
    for (int i = 0; i < q->m; ++i) {
        length[i] = q->d[i] > 0.0 ? log10(q->d[i]) + q->row_exponent[i] * 0.30102999566398119521 : -INFINITY;
        longest = sut_max2(longest, length[i]);
    }
    for (int i = 0; i < q->m; ++i) {
        if (length[i] > longest - 150.0)
            continue;
        q->d[i] = q->sums.b[i] = 0.0;
        for (int j = 0; j < q->m; ++j)
            q->sums.K[i * q->m + j] = q->sums.K[j * q->m + i] = 0.0;
    }
    return SUT_OK;
}

static sut_status prepare(projection *q)
{
    SUT_TRY(check_metric(q));
    q->u_exponent = 0;
    q->u_scale = 1.0;
    for (int i = 0; i < q->m; ++i)
        q->row_exponent[i] = 0;
    SUT_TRY(take_sums(q));
    bool fine = finite_sums(q) && in_range(q->sums.uu);
    for (int i = 0; i < q->m; ++i)
        fine = fine && in_range(q->d[i] * q->d[i]) && in_range(q->sums.K[(size_t)i * (size_t)(q->m + 1)]);
    if (fine)
        return SUT_OK;
    SUT_TRY(check_finite(q));
    return take_scaled_sums(q);
}

/* Multipliers. */

static sut_status measure_unrounded(projection *q, candidate *c)
{
    return q->ctx->ops->cone_measure(q->ctx, q->layout, &q->rows, q->u, q->u_scale, q->metric, q->delta_scale, NULL,
                                     c->lambda, &c->measure);
}

static sut_status measure_stored(projection *q, const void *p, candidate *c)
{
    return q->ctx->ops->cone_measure(q->ctx, q->layout, &q->rows, q->u, q->u_scale, q->metric, q->delta_scale, p,
                                     c->lambda, &c->measure);
}

/* Largest |s_i| / (d_i |p|) that ought to be zero, and whether a row outside the working set is violated by rounding of K. */
static double residual(const projection *q, const candidate *c, const double *target, bool *violated)
{
    const double norm = sqrt(c->measure.pp);
    double worst = 0.0;
    *violated = false;
    for (int i = 0; i < q->m; ++i) {
        if (q->d[i] == 0.0 || norm == 0.0)
            continue;
        const double x = (c->measure.s[i] - target[i]) / (q->d[i] * norm);
        if (c->lambda[i] > 0.0)
            worst = sut_max2(worst, fabs(x));
        else if (x < -1e-12)
            *violated = true;
    }
    return worst;
}

/*
 * lambda = NNQP(K, b - target), refined against s = G p as measured while that helps: K_PP delta = target_P - s_P. target is
 * 0, or the inward shift of the strict mode. On return the measure belongs to lambda.
 */
static sut_status find_multipliers(projection *q, const double *target, candidate *c)
{
    double b[SUT_MAX_LOSSES], delta[SUT_MAX_LOSSES];
    for (int i = 0; i < q->m; ++i)
        b[i] = q->sums.b[i] - target[i];
    const int rounds = sut_nnqp(q->sums.K, b, q->m, c->lambda, NULL, q->work);
    if (rounds < 0)
        SUT_FAIL(q->ctx, SUT_ERROR_INTERNAL, "cone: the active-set solver reached its limit of rounds for m = %d",
                 q->m);
    q->rounds += rounds;
    SUT_TRY(measure_unrounded(q, c));
    const bool benign = sut_nnqp_condition(q->sums.K, q->m, c->lambda, q->work) <= 1e6;
    bool resolved = false;
    for (int step = 0; step < 2; ++step) {
        bool violated;
        const double worst = residual(q, c, target, &violated);
        violated = violated && !resolved; /* once: a row that depends on the set to 1e-8 stays outside for good */
        if (!violated && (benign || worst <= 4.0 * SUT_EPS))
            break;
        for (int i = 0; i < q->m; ++i)
            b[i] = c->measure.s[i] - target[i];
        if (!violated && sut_nnqp_correction(q->sums.K, b, q->m, c->lambda, delta, q->work)) {
            for (int i = 0; i < q->m; ++i)
                c->lambda[i] += delta[i];
        } else {
            const int more = sut_nnqp_resolve(q->sums.K, b, q->m, c->lambda, q->work);
            if (more < 0)
                SUT_FAIL(q->ctx, SUT_ERROR_INTERNAL,
                         "cone: the active-set solver reached its limit of rounds for m = %d", q->m);
            q->rounds += more;
            resolved = true;
        }
        ++q->refinements;
        SUT_TRY(measure_unrounded(q, c));
    }
    return SUT_OK;
}

/* How far a candidate is from the projection: cosines with the rows that push and of those that are violated. */
static double distance(const projection *q, const candidate *c)
{
    const double norm = sqrt(c->measure.pp);
    double worst = 0.0;
    for (int i = 0; i < q->m; ++i) {
        if (q->d[i] == 0.0 || norm == 0.0)
            continue;
        const double x = c->measure.s[i] / (q->d[i] * norm);
        worst = sut_max2(worst, c->lambda[i] > 0.0 ? fabs(x) : -x);
    }
    return worst;
}

/* A candidate this far off is not the projection, and K is to blame. */
#define SUT_NOT_THE_PROJECTION 1e-11

/* The triangle of u, or of the update that multipliers make. Rows that impose nothing (1e-150 times the longest) vanish. */
static sut_status factor_of(projection *q, const void *u, const double *lambda)
{
    SUT_TRY(
        q->ctx->ops->cone_factor(q->ctx, q->layout, &q->rows, u, q->u_scale, q->metric, q->delta_scale, lambda, q->R));
    for (int i = 0; i < q->m; ++i)
        for (int r = 0; q->d[i] == 0.0 && r <= q->m; ++r)
            q->R[r * (q->m + 1) + i] = 0.0;
    return SUT_OK;
}

/*
 * The multipliers once more, from the triangle of u, then from that of the update they make while this helps. *zero_out: what
 * is left of u is rounding. *c is replaced if the result is better.
 */
static sut_status find_by_factor(projection *q, candidate *c, bool *zero_out)
{
    double delta[SUT_MAX_LOSSES], from[SUT_MAX_LOSSES], previous = HUGE_VAL;
    candidate now;
    for (int round = 0; round < 4; ++round) {
        sut_nnls_end end;
        SUT_TRY(factor_of(q, q->u, round ? now.lambda : NULL));
        if (round)
            memcpy(from, now.lambda, sizeof from);
        if (!sut_nnls(q->R, q->m, round ? from : NULL, now.lambda, delta, q->work, &end))
            return SUT_OK;
        q->rounds += end.rounds;
        q->refinements += round > 0;
        if (end.length <= end.noise && !q->frozen) {
            *zero_out = true;
            *c = now;
            return SUT_OK;
        }
        SUT_TRY(measure_unrounded(q, &now));
        const double off = distance(q, &now);
        if (off < distance(q, c)) {
            *c = now;
            q->factored = true;
        }
        if (off <= 4.0 * SUT_EPS || !(off < 0.5 * previous))
            return SUT_OK;
        previous = off;
    }
    return SUT_OK;
}

/* Writing. */

/* p = from + M^-1 G^T lambda; `from` is u, or p itself. */
static sut_status apply(projection *q, const void *from, const double *lambda)
{
    double weights[SUT_MAX_LOSSES];
    for (int i = 0; i < q->m; ++i)
        weights[i] = ldexp(lambda[i], q->u_exponent + q->delta_exponent);
    SUT_TRY(q->ctx->ops->cone_apply(q->ctx, q->layout, &q->rows, from, q->metric, weights, q->p));
    return SUT_OK;
}

/*
 * Multipliers around 1 / angle cannot be rounded to doubles without moving p along the rows. What is left of s_P is therefore
 * taken out of the stored p itself, in f64, where the correction is larger than a rounding of p.
 */
static sut_status correct_stored(projection *q, candidate *c)
{
    const double zero[SUT_MAX_LOSSES] = {0};
    double delta[SUT_MAX_LOSSES];
    if (q->dtype != SUT_DTYPE_F64)
        return SUT_OK;
    for (int step = 0; step < 2; ++step) {
        bool violated;
        const double worst = residual(q, c, zero, &violated);
        if (!q->factored) {
            if (worst <= 1e-14 || !sut_nnqp_correction(q->sums.K, c->measure.s, q->m, c->lambda, delta, q->work))
                return SUT_OK;
        } else {
            /* From the stored p as it is: rows may join or leave. */
            sut_nnls_end end;
            double lambda[SUT_MAX_LOSSES];
            if (distance(q, c) <= 1e-14)
                return SUT_OK;
            SUT_TRY(factor_of(q, q->p, NULL));
            if (!sut_nnls(q->R, q->m, c->lambda, lambda, delta, q->work, &end))
                return SUT_OK;
        }
        for (int i = 0; i < q->m; ++i)
            c->lambda[i] = sut_max2(0.0, c->lambda[i] + delta[i]);
        SUT_TRY(apply(q, q->p, delta));
        SUT_TRY(measure_stored(q, q->p, c));
        ++q->refinements;
    }
    return SUT_OK;
}

/* The p of these multipliers, measured as stored. */
static sut_status store(projection *q, candidate *c)
{
    SUT_TRY(apply(q, q->u, c->lambda));
    SUT_TRY(measure_stored(q, q->p, c));
    return correct_stored(q, c);
}

static bool all_inside(const projection *q, const double *s)
{
    bool inside = true;
    for (int i = 0; i < q->m; ++i)
        inside = inside && (q->d[i] == 0.0 || s[i] >= 0.0);
    return inside;
}

/*
 * Section 7.6: s_i >= 0 of the stored p. The cone is shifted inwards by one rounding of p and the result taken if that
 * does it without moving p by more than 1e-3 |p|; otherwise the plain result is written again. `u_copy` is u where p is u.
 */
static sut_status store_strict(projection *q, candidate *plain)
{
    const double unit = q->dtype == SUT_DTYPE_F32 ? 0x1p-24 : 0x1p-53, norm = sqrt(plain->measure.pp);
    candidate shifted, moved;
    double target[SUT_MAX_LOSSES];
    for (int i = 0; i < q->m; ++i)
        target[i] = unit * q->d[i] * norm;
    SUT_TRY(find_multipliers(q, target, &shifted));
    for (int i = 0; i < q->m; ++i)
        moved.lambda[i] = shifted.lambda[i] - plain->lambda[i];
    SUT_TRY(measure_unrounded(q, &moved));
    if (sqrt(moved.measure.dist2) <= 1e-3 * norm) {
        SUT_TRY(apply(q, q->u, shifted.lambda));
        SUT_TRY(measure_stored(q, q->p, &shifted));
        if (all_inside(q, shifted.measure.s)) {
            *plain = shifted;
            return SUT_OK;
        }
    }
    return store(q, plain);
}

/* Report. */

static double unscaled(double x, int exponent)
{
    const double y = ldexp(x, exponent);
    return y > DBL_MAX ? DBL_MAX : y < -DBL_MAX ? -DBL_MAX : y;
}

static void fill_report(const projection *q, sut_cone_kind kind, const candidate *c, sut_cone_report *report)
{
    const sut_cone_sums *sums = &q->sums;
    const double norm_u = sqrt(sums->uu), norm_p = sqrt(c->measure.pp);
    const double tolerance = q->dtype == SUT_DTYPE_F32 ? 0x1p-23 : 1e-12;
    double total = 0.0;
    sut_cone_report_init(report);
    report->n_losses = q->m;
    report->kind = kind;
    for (int i = 0; i < q->m; ++i) {
        const double d = q->d[i], s = d > 0.0 ? c->measure.s[i] : 0.0, product = c->lambda[i] * s;
        report->lambda[i] = unscaled(c->lambda[i], q->u_exponent + q->delta_exponent - q->row_exponent[i]);
        report->slack[i] = unscaled(s, q->u_exponent + q->row_exponent[i]);
        report->cos_u[i] = d > 0.0 && norm_u > 0.0 ? sut_clamp_cosine(sums->b[i] / (d * norm_u)) : 0.0;
        report->cos_p[i] = d > 0.0 && norm_p > 0.0 ? sut_clamp_cosine(s / (d * norm_p)) : 0.0;
        report->active[i] = c->lambda[i] > 0.0;
        report->tight[i] = s <= tolerance * d * norm_p;
        report->primal = sut_max2(report->primal, -report->cos_p[i]);
        report->dual = sut_max2(report->dual, -c->lambda[i]);
        report->complementarity = sut_max2(report->complementarity, fabs(product));
        total += product;
    }
    if (sums->uMu > 0.0) {
        report->complementarity /= sums->uMu;
        report->gap = fabs(total) / sums->uMu;
    }
    report->relative_change = sums->uu > 0.0 ? sqrt(c->measure.dist2 / sums->uu) : 0.0;
    report->distance2 = unscaled(c->measure.dist2_M, 2 * q->u_exponent + q->delta_exponent);
    report->refinements = q->refinements;
    report->rounds = q->rounds;
    report->strict_met = all_inside(q, c->measure.s);
}

/* The projection. */

/*
 * Whether p hurts a loss by more than rounding can explain. Without frozen coordinates 0 is in the cone and every constraint
 * can be met; with them the constraints may contradict each other, alone or together.
 */
static bool is_infeasible(const projection *q, const sut_cone_config *config, const candidate *c)
{
    const double tolerance = sut_max2(config->feas_tol, q->dtype == SUT_DTYPE_F32 ? 1e-5 : 1e-9);
    bool violated = false;
    for (int i = 0; i < q->m; ++i)
        violated = violated || (q->d[i] > 0.0 && c->measure.s[i] < -tolerance * q->d[i] * sqrt(c->measure.pp));
    return q->frozen && violated;
}

/* u is inside, or nothing can be done about it: p = u, same bits. */
static sut_status leave(projection *q, candidate *c, sut_cone_kind *kind)
{
    memset(c, 0, sizeof *c);
    memcpy(c->measure.s, q->sums.b, sizeof c->measure.s);
    c->measure.pp = q->sums.uu;
    *kind = SUT_CONE_UNCHANGED;
    if (q->p && q->p != q->u)
        SUT_TRY(q->ctx->ops->copy(q->ctx, q->p, q->u, (size_t)q->n * sut_dtype_size(q->dtype)));
    return SUT_OK;
}

static sut_status project(projection *q, const sut_cone_config *config, candidate *c, sut_cone_kind *kind)
{
    const double norm_u = sqrt(q->sums.uu);
    const double zero[SUT_MAX_LOSSES] = {0};
    bool inside = true;
    for (int i = 0; i < q->m; ++i)
        inside = inside && (q->d[i] == 0.0 || q->sums.b[i] >= -config->feas_tol * q->d[i] * norm_u);
    if (inside)
        return leave(q, c, kind);
    SUT_TRY(find_multipliers(q, zero, c));
    bool some = false, vanishes = false;
    for (int i = 0; i < q->m; ++i)
        some = some || c->lambda[i] > 0.0;
    if (some && distance(q, c) > SUT_NOT_THE_PROJECTION)
        SUT_TRY(find_by_factor(q, c, &vanishes));
    if (!some) { /* violated by less than the tolerance of the solver, or in frozen coordinates alone */
        SUT_TRY(leave(q, c, kind));
        if (is_infeasible(q, config, c))
            *kind = SUT_CONE_INFEASIBLE;
        return SUT_OK;
    }

    const bool zero_allowed = !q->frozen; /* frozen coordinates keep what they have, however small */
    if (vanishes)
        c->measure.pp = 0.0;
    if (!zero_allowed || !(c->measure.pp <= 1e-20 * q->sums.uu)) {
        const double limit = q->dtype == SUT_DTYPE_F32 ? FLT_MAX : DBL_MAX;
        if (!(sqrt(c->measure.pp) <= ldexp(limit, -q->u_exponent)))
            SUT_FAIL(q->ctx, SUT_ERROR_OUT_OF_RANGE, "cone: the projection is too long for %s (norm %g times 2^%d)",
                     sut_dtype_name(q->dtype), sqrt(c->measure.pp), q->u_exponent);
        *kind = is_infeasible(q, config, c) ? SUT_CONE_INFEASIBLE : SUT_CONE_BOUNDARY;
        if (!q->p)
            return SUT_OK;
        const sut_cone_measure unrounded = c->measure;
        const bool in_place = q->p == q->u;
        void *copy = NULL;
        sut_status status = SUT_OK;
        if (config->strict && in_place) { /* a second attempt needs u again */
            const size_t size = (size_t)q->n * sut_dtype_size(q->dtype);
            status = q->ctx->ops->allocate(q->ctx, size, &copy);
            if (status == SUT_ERROR_OUT_OF_MEMORY)
                SUT_FAIL(q->ctx, status, "cone: no memory for a copy of u, which strict mode in place needs");
            SUT_TRY(status);
            status = q->ctx->ops->copy(q->ctx, copy, q->u, size);
            q->u = copy;
        }
        if (status == SUT_OK)
            status = store(q, c);
        if (status == SUT_OK && config->strict && c->measure.pp > 1e-20 * q->sums.uu && !all_inside(q, c->measure.s))
            status = store_strict(q, c);
        if (in_place && !copy) { /* measured against p itself */
            c->measure.dist2 = unrounded.dist2;
            c->measure.dist2_M = unrounded.dist2_M;
        }
        q->ctx->ops->release(q->ctx, copy);
        SUT_TRY(status);
    }
    if (zero_allowed && c->measure.pp <= 1e-20 * q->sums.uu) {
        if (q->p)
            SUT_TRY(q->ctx->ops->clear(q->ctx, q->p, (size_t)q->n * sut_dtype_size(q->dtype)));
        memset(c->measure.s, 0, sizeof c->measure.s);
        c->measure.pp = 0.0;
        c->measure.dist2 = q->sums.uu;
        c->measure.dist2_M = q->sums.uMu;
        *kind = SUT_CONE_ZERO;
    }
    return SUT_OK;
}

sut_status sut_cone_project(sut_context *ctx, const sut_cone_config *config, const void *const *grads, int m, int64_t n,
                            sut_dtype dtype, const void *u, const void *metric, void *p, sut_cone_report *report)
{
    if (!ctx)
        return SUT_ERROR_INVALID_ARGUMENT;
    sut_cone_config complete;
    sut_cone_config_init(&complete);
    if (config)
        SUT_TRY(sut_read_struct(ctx, "sut_cone_config", &complete, sizeof complete, config));
    SUT_TRY(sut_check_range(ctx, "cone: feas_tol", complete.feas_tol, 0.0, false, INFINITY, false));
    if (complete.strict != 0 && complete.strict != 1)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "cone: strict is %d; it must be in 0..1", complete.strict);
    if (report && (report->struct_size < sizeof report->struct_size || report->struct_size > sizeof *report))
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT,
                 "sut_cone_report: struct_size is %zu; fill the struct in with sut_cone_report_init()",
                 report->struct_size);
    SUT_TRY(check_arrays(ctx, grads, m, n, dtype, u, metric, p));
    SUT_TRY(sut_backend_reserve(ctx, m));

    const size_t mm = (size_t)m * (size_t)m;
    const size_t triangle = ((size_t)m + 1) * ((size_t)m + 1);
    double *const memory = sut_alloc(ctx, mm + triangle + SUT_SURGERY_WORK(m), sizeof *memory);
    if (!memory)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "cone: no memory for the workspace of %d losses", m);
    sut_plain_layout plain;
    projection q = {.ctx = ctx, .grads = grads, .u = u, .metric = metric, .p = p, .m = m, .n = n, .dtype = dtype};
    q.layout = sut_plain_layout_init(&plain, n, dtype);
    q.rows = (sut_rows){grads, m, NULL};
    q.sums.K = memory;
    q.R = memory + mm;
    q.work = q.R + triangle;
    candidate c;
    sut_cone_kind kind = SUT_CONE_UNCHANGED;
    sut_status status = prepare(&q);
    if (status == SUT_OK)
        status = project(&q, &complete, &c, &kind);
    if (status == SUT_OK && report) {
        sut_cone_report full;
        fill_report(&q, kind, &c, &full);
        full.struct_size = report->struct_size;
        memcpy(report, &full, report->struct_size);
    }
    sut_free(ctx, memory);
    return status;
}
