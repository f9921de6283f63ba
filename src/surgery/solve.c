/*
 * From a Gram matrix to weights: scaling, what all methods have in common, and the call of the method.
 *
 * Rows are scaled by one power of two, so that no method meets overflow or needs an absolute threshold; squares of rows up
 * to 1e150 times shorter than the longest are still normal numbers. Methods of degree 1 give the same weights on scaled
 * rows; weights of degree 0 are scaled back here.
 */
#include "surgery/hull.h"
#include "surgery/methods.h"
#include "surgery/surgery.h"

_Static_assert(SUT_METHOD_WORK(1) + 2 * 1 + 1 <= SUT_SURGERY_WORK(1), "workspace");
_Static_assert(SUT_METHOD_WORK(64) + 2 * 64 * 64 + 64 <= SUT_SURGERY_WORK(64), "workspace");

SUT_HOST_DEVICE static sut_status fail(sut_surgery_output *out, sut_status status, sut_surgery_failure failure, int row,
                                       double value)
{
    out->failure = failure;
    out->failed_row = row;
    out->failed_value = value;
    return status;
}

/* Lengths w_i d_i in units of the largest one, as weights can be as large as 1e150; their sum, 0 if all vanish. */
SUT_HOST_DEVICE static double parts(const sut_surgery_problem *problem, const double *w, double *part)
{
    double largest = 0.0, reach = 0.0;
    for (int i = 0; i < problem->m; ++i) {
        part[i] = problem->d[i] > 0.0 ? w[i] * problem->d[i] : 0.0;
        largest = sut_max2(largest, fabs(part[i]));
    }
    for (int i = 0; i < problem->m && largest > 0.0; ++i) {
        part[i] /= largest;
        reach += fabs(part[i]);
    }
    return reach;
}

/* u_i . a, in the unit of parts(). */
SUT_HOST_DEVICE static double product(const sut_surgery_problem *problem, int i, const double *part)
{
    double sum = 0.0;
    for (int j = 0; j < problem->m; ++j)
        sum += problem->C[(size_t)i * (size_t)problem->m + (size_t)j] * part[j];
    return sum;
}

/*
 * Why |a|^2 <= 16 m eps (sum |w_i| d_i)^2 is noise, eps = 2^-52; reach stands for that sum.
 *
 * Entries of K carry errors of a few eps d_i d_j, and every solver here is exact for a matrix K + E with
 * |E_ij| <= (m + 1) eps d_i d_j (Cholesky on unit rows; a pivot below 16 m eps counts as dependent, which is a change of that
 * size, too). w^T E w <= max |E_ij| / (d_i d_j) reach^2, so where the true |a|^2 is 0 the one of these weights can be as large
 * as 16 m eps reach^2, and a, sqrt(16 m eps) reach long, points anywhere. The sum w^T K w rounds by up to (m + 1) eps reach^2
 * itself: below the bound the report could not say how long a is nor whom it hurts.
 *
 * In lengths that is |a| <= 6e-8 sqrt(m) reach, about the angle below which a Gram matrix cannot tell opposed rows from nearly
 * opposed ones. It does not see the scale of a row, w_i d_i being lengths. Over 1500 matrices of small integers and of normal
 * numbers, m = 2..64, noise ended at 1e-7 of the bound and results began at 1e3 times it, except for pcgrad: its repeated
 * projections make every size down to 0.
 */
SUT_PORTABLE bool sut_surgery_vanishes(const sut_surgery_problem *problem, const double *w)
{
    double square = 0.0;
    SUT_ARRAY(double, part, SUT_ROOM);
    const double reach = parts(problem, w, part);
    for (int i = 0; i < problem->m && reach > 0.0; ++i)
        square += part[i] * product(problem, i, part);
    return square <= SUT_NOISE(problem->m) * reach * reach;
}

/*
 * The rule for weights that are no solution of a system with K: |u_i . a| is below the rounding of its own sum for every row.
 * That reaches down to some m eps reach, 1e-8 of the other bound.
 */
SUT_HOST_DEVICE static bool cancels(const sut_surgery_problem *problem, const double *w)
{
    SUT_ARRAY(double, part, SUT_ROOM);
    const double reach = parts(problem, w, part);
    for (int i = 0; i < problem->m && reach > 0.0; ++i)
        if (fabs(product(problem, i, part)) > SUT_NOISE(problem->m) * reach)
            return false;
    return true;
}

/*
 * The rounding of w^T K w is of the order 2^-52 (sum w_i d_i)^2. The specification compares with max K_ii instead, which is
 * the same for rows of similar lengths but would call every hull with a row 1e7 times shorter than the longest stationary.
 */
SUT_PORTABLE bool sut_surgery_hull_has_zero(const double *K, int m, const double *w, double norm2)
{
    double reach = 0.0;
    for (int i = 0; i < m; ++i)
        reach += w[i] * sqrt(K[(size_t)i * (size_t)(m + 1)]);
    return norm2 <= 64.0 * m * SUT_EPS * reach * reach;
}

/* Scale the rows, mark the live ones, form norms and cosines. Uses 2 m^2 + m doubles of in->work. */
SUT_HOST_DEVICE static void prepare(const sut_surgery_input *in, sut_surgery_problem *problem)
{
    const size_t m = (size_t)in->m;
    double *K = in->work, *C = K + m * m, *d = C + m * m;
    double largest = 0.0;
    for (size_t i = 0; i < m; ++i)
        largest = sut_max2(largest, in->K[i * m + i]);

    const int e = largest > 0.0 ? sut_exponent(largest) : 0;
    const int half = e >= 0 ? e / 2 : -((1 - e) / 2);
    const double factor = sut_exp2i(-half);
    problem->m = in->m;
    problem->n_live = 0;
    problem->trace = 0.0;
    problem->largest = largest * factor * factor;
    for (size_t i = 0; i < m; ++i) {
        const double k = in->K[i * m + i] * factor * factor;
        const bool live = k > SUT_ZERO_ROW * SUT_ZERO_ROW * problem->largest;
        d[i] = live ? sqrt(k) : 0.0;
        problem->n_live += live;
        problem->trace += live ? k : 0.0;
    }
    for (size_t i = 0; i < m; ++i) {
        for (size_t j = 0; j < m; ++j) {
            const bool live = d[i] > 0.0 && d[j] > 0.0;
            const double k = live ? in->K[i * m + j] * factor * factor : 0.0;
            K[i * m + j] = k;
            C[i * m + j] = !live ? 0.0 : i == j ? 1.0 : sut_clamp_cosine(k / d[i] / d[j]);
        }
    }
    problem->K = K;
    problem->C = C;
    problem->d = d;
    problem->exponent = in->exponent + half;
    problem->losses = in->losses;
    problem->seed = in->seed;
    problem->counter = in->counter;
    problem->config = in->config;
    problem->work = d + m;
}

/* Losses that a normalisation divides by: present and positive. */
SUT_HOST_DEVICE static sut_status check_losses(const sut_surgery_input *in, sut_surgery_output *out)
{
    const sut_mgda_normalisation by = in->config->mgda_normalisation;
    if (in->config->method != SUT_SURGERY_MGDA || (by != SUT_MGDA_LOSS && by != SUT_MGDA_LOSS_PLUS))
        return SUT_OK;
    if (!in->losses)
        return fail(out, SUT_ERROR_INVALID_ARGUMENT, SUT_SURGERY_NO_LOSSES, -1, 0.0);
    for (int i = 0; i < in->m; ++i)
        if (!(in->losses[i] > 0.0))
            return fail(out, SUT_ERROR_OUT_OF_RANGE, SUT_SURGERY_LOSS_NOT_POSITIVE, i, in->losses[i]);
    return SUT_OK;
}

/* K w = 0 without rounding: the sum of an opposed pair. The weights of sum, mean and fixed stay as they are. */
SUT_HOST_DEVICE static bool cancels_exactly(const double *K, int m, const double *w)
{
    for (int i = 0; i < m; ++i) {
        double sum = 0.0;
        for (int j = 0; j < m; ++j)
            sum += K[(size_t)i * (size_t)m + (size_t)j] * w[j];
        if (sum != 0.0)
            return false;
    }
    return true;
}

/* Whether no direction helps, for a method that answered zero without saying why. */
SUT_HOST_DEVICE static bool is_stationary(const sut_surgery_problem *problem)
{
    SUT_ZEROS(double, w, SUT_ROOM);
    return sut_hull(problem->K, problem->m, w, problem->work) >= 0 &&
           sut_surgery_hull_has_zero(problem->K, problem->m, w, sut_form(problem->K, problem->m, w, w));
}

SUT_HOST_DEVICE static void clear(sut_surgery_output *out, int m)
{
    for (int i = 0; i < m; ++i)
        out->weights[i] = 0.0;
    out->rank = m;
    out->zero = out->pareto = out->negative_normaliser = out->determined = false;
    out->converged = true;
    out->iterations = 0;
    out->failure = SUT_SURGERY_FINE;
}

/* What the list says about a method, without the table, whose addresses are the host's. */
typedef struct method_traits {
    int degree;
    bool keeps_weights, uses_preference;
} method_traits;

SUT_HOST_DEVICE static method_traits traits_of(sut_surgery_method method)
{
    method_traits traits = {1, false, false};
    switch (method) {
#define ROW(method, name, solve, degree_, sum_like, keeps, preference, hint, source) \
    case method:                                                                     \
        traits.degree = degree_;                                                     \
        traits.keeps_weights = keeps;                                                \
        traits.uses_preference = preference;                                         \
        break;
        SUT_SURGERY_METHODS(ROW)
#undef ROW
    case SUT_SURGERY_COUNT: break;
    }
    return traits;
}

SUT_HOST_DEVICE static sut_status call(const sut_surgery_problem *problem, sut_surgery_output *out)
{
    switch (problem->config->method) {
#define ROW(method, name, solve, degree, sum_like, keeps, preference, hint, source) \
    case method: return solve(problem, out);
        SUT_SURGERY_METHODS(ROW)
#undef ROW
    case SUT_SURGERY_COUNT: break;
    }
    return SUT_ERROR_INTERNAL;
}

/* One loss: g unchanged, weighted where the method has weights of its own, and of unit length under Nash-MTL. */
SUT_HOST_DEVICE static void solve_single(const sut_surgery_problem *problem, method_traits traits,
                                         sut_surgery_output *out)
{
    const sut_surgery_config *config = problem->config;
    double w = 1.0;
    if (traits.uses_preference && config->method != SUT_SURGERY_CONFIG && config->preference)
        w = config->preference[0];
    if (traits.degree == 0) {
        const double length = config->nash_max_norm > 0.0 ? sut_min2(1.0, config->nash_max_norm) : 1.0;
        w = length / problem->d[0];
    }
    out->weights[0] = w;
    out->rank = 1;
}

SUT_PORTABLE sut_status sut_surgery_run(const sut_surgery_input *in, sut_surgery_output *out)
{
    const method_traits traits = traits_of(in->config->method);
    const int m = in->m;
    sut_surgery_problem problem;
    clear(out, m);
    SUT_TRY(check_losses(in, out));
    prepare(in, &problem);

    sut_status status = SUT_OK;
    if (problem.n_live == 0 && traits.degree == 0)
        status = SUT_ERROR_UNDEFINED;
    else if (traits.keeps_weights || (problem.n_live > 0 && m > 1))
        status = call(&problem, out);
    else if (problem.n_live > 0)
        solve_single(&problem, traits, out);

    if (status == SUT_ERROR_UNDEFINED)
        return fail(out, status, SUT_SURGERY_STATIONARY, -1, 0.0);
    if (status != SUT_OK)
        return fail(out, status, SUT_SURGERY_NO_END, -1, 0.0);

    if (problem.n_live == 0) {
        out->zero = out->pareto = true;
        out->rank = traits.keeps_weights ? m : 0;
        return SUT_OK;
    }
    if (traits.keeps_weights) {
        out->zero = cancels_exactly(problem.K, m, out->weights);
    } else {
        out->zero = out->zero ||
                    (out->determined ? cancels(&problem, out->weights) : sut_surgery_vanishes(&problem, out->weights));
        if (out->zero) {
            out->pareto = out->pareto || is_stationary(&problem);
            for (int i = 0; i < m; ++i)
                out->weights[i] = 0.0;
        }
    }

    const double sum = in->config->scale_to_sum ? m : 1.0;
    for (int i = 0; i < m; ++i) {
        double w = out->weights[i] * sum;
        if (traits.degree == 0)
            w = ldexp(w, -problem.exponent);
        if (!isfinite(w))
            return fail(out, SUT_ERROR_OUT_OF_RANGE,
                        traits.degree == 0 ? SUT_SURGERY_LONG_WEIGHT : SUT_SURGERY_WEIGHT_RANGE, i,
                        ldexp(problem.d[i], problem.exponent));
        out->weights[i] = w;
    }
    return SUT_OK;
}
