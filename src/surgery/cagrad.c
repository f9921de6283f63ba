/*
 * CAGrad: Liu, Liu, Jin, Stone, Liu 2021, arXiv 2110.14048. Maximise min_i g_i . v over |v - g_0| <= c |g_0|, g_0 the mean
 * gradient. Dual: w in the simplex minimises  w^T k + r |g_w|,  k = K 1/m, r = c |g_0|, g_w = sum w_i g_i; then
 *
 *     v = g_0 + r g_w / |g_w|,  weights f (1/m + r w_i / |g_w|).
 *
 * Exact solution. For nu > 0, min over w of w^T k + r (|g_w|^2 / nu + nu) / 2 is the point of least norm in the hull of the
 * rows g_i + (nu / r) g_0; as a function of nu it is convex with derivative r (1 - |g_w(nu)|^2 / nu^2) / 2, so the wanted nu
 * is the root of |g_w(nu)| = nu. While the support of w stays the same, w is affine in nu and the root has a closed form:
 * with x = K_PP^-1 1, y = K_PP^-1 k_P, X = 1^T x, Y = 1^T y, Q = y^T k_P - Y^2 / X,
 *
 *     |g_w|^2 = 1 / X + (nu / r)^2 Q,   nu^2 = 1 / X / (1 - Q / r^2).
 *
 * The loop takes that root if it lies in the bracket, else bisects; three to six solves instead of sixty.
 *
 * eps > 0 reproduces the smoothing of the published code: |g_0| -> sqrt(|g_0|^2 + eps), r = c |g_0| + eps,
 * |g_w| -> sqrt(|g_w|^2 + eps) in the objective and |g_w| + eps in the quotient.
 */
#include "surgery/hull.h"
#include "surgery/surgery.h"

typedef struct cagrad {
    const double *K;
    int m;
    double k[SUT_ROOM]; /* g_i . g_0 */
    double k0;          /* |g_0|^2 */
    double r;           /* radius of the ball around g_0 */
    double eps;         /* added to |g_w|^2 */
    double *S;          /* shifted Gram matrix */
    double *work;
} cagrad;

/* w(nu) and |g_w|^2 + eps. */
SUT_HOST_DEVICE static bool solve_at(const cagrad *p, double nu, double *w, double *norm2)
{
    const int m = p->m;
    const double shift = nu / p->r;
    for (int i = 0; i < m; ++i) {
        const double *K = p->K + (size_t)i * (size_t)m;
        double *S = p->S + (size_t)i * (size_t)m;
        for (int j = 0; j < m; ++j)
            S[j] = K[j] + shift * (p->k[i] + p->k[j]) + shift * shift * p->k0;
        /* g_i = -shift g_0 up to rounding: the origin itself. */
        if (S[i] <= 64.0 * m * SUT_EPS * (K[i] + shift * shift * p->k0))
            S[i] = 0.0;
    }
    if (sut_hull(p->S, m, w, p->work) < 0)
        return false;
    *norm2 = sut_max2(0.0, sut_form(p->K, m, w, w)) + p->eps;
    return true;
}

/* The root of the support of w; NaN when its rows are dependent or there is none. */
SUT_HOST_DEVICE static double root_of_support(const cagrad *p, const double *w)
{
    SUT_ARRAY(sut_nnqp_state, q, 1);
    SUT_ARRAY(double, x, SUT_ROOM);
    SUT_ARRAY(double, y, SUT_ROOM);
    sut_nnqp_scale(q, p->K, p->m, p->work, p->work + (size_t)p->m * (size_t)p->m);
    for (int i = 0; i < q->n; ++i)
        if (w[q->row[i]] > 0.0 && !sut_nnqp_append(q, i))
            return NAN;
    for (int k = 0; k < q->np; ++k) {
        const double scale = q->scale[q->P[k]];
        x[k] = scale;
        y[k] = p->k[q->row[q->P[k]]] * scale;
    }
    sut_cholesky_solve(q->L, q->n, q->np, x);
    sut_cholesky_solve(q->L, q->n, q->np, y);
    double X = 0.0, Y = 0.0, Q = 0.0;
    for (int k = 0; k < q->np; ++k) {
        const double scale = q->scale[q->P[k]];
        X += x[k] * scale;
        Y += y[k] * scale;
        Q += y[k] * p->k[q->row[q->P[k]]] * scale;
    }
    Q -= Y / X * Y;
    const double rest = 1.0 - sut_max2(0.0, Q) / p->r / p->r;
    return rest > 0.0 ? sqrt((1.0 / X + p->eps) / rest) : NAN;
}

/* The support as bits. */
SUT_HOST_DEVICE static uint64_t support(const double *w, int m)
{
    uint64_t bits = 0;
    for (int i = 0; i < m; ++i)
        bits |= (uint64_t)(w[i] > 0.0) << i;
    return bits;
}

enum { MAX_STEPS = 200 };

/*
 * The root in (low, high]; w on return belongs to it. low: |g_w(low)|^2 + eps > low^2. False: a solve failed.
 * *steps_out: solves; MAX_STEPS + 1 when the bracket is still open after as many as that.
 */
SUT_HOST_DEVICE static bool find_root(const cagrad *p, double low, double high, double *w, double *norm2,
                                      int *steps_out)
{
    double nu = high, closed = NAN;
    uint64_t from = 0;
    for (int step = 0; step < MAX_STEPS; ++step) {
        *steps_out = step + 1;
        if (!solve_at(p, nu, w, norm2))
            return false;
        const uint64_t here = support(w, p->m);
        if (nu == closed && here == from)
            return true; /* the root of this very support */
        if (*norm2 > nu * nu)
            low = nu;
        else
            high = nu;
        if (high <= low * (1.0 + 4.0 * SUT_EPS))
            return true;
        closed = root_of_support(p, w);
        from = here;
        if (fabs(closed - nu) <= 4.0 * SUT_EPS * nu)
            return true;
        /* A root at the lower end itself (w the same for every nu) may come out below it by rounding. Every fourth step
         * halves the bracket, so that roots which crawl along one end cannot take long. */
        if (closed < low && closed > low * (1.0 - 1e-12))
            closed = low;
        nu = closed >= low && closed < high && step % 4 != 3 ? closed : sqrt(low) * sqrt(high);
    }
    *steps_out = MAX_STEPS + 1;
    return true;
}

/* 0 lies in the hull and is the best g_w: the dual leaves the direction open. */
SUT_HOST_DEVICE static sut_status answer_stationary(const sut_surgery_problem *problem, double factor,
                                                    sut_surgery_output *out)
{
    const int m = problem->m;
    SUT_ZEROS(double, mean, SUT_ROOM);
    for (int i = 0; i < m; ++i)
        mean[i] = 1.0 / m;
    out->pareto = true;
    switch (problem->config->cagrad_pareto) {
    case SUT_PARETO_ZERO: out->zero = true; return SUT_OK;
    case SUT_PARETO_MEAN: memcpy(out->weights, mean, sizeof mean[0] * (size_t)m); break;
    case SUT_PARETO_PROJECT:
        if (!sut_surgery_project_weights(problem, mean, 0.0, out->weights, problem->work))
            return SUT_ERROR_INTERNAL;
        break;
    }
    for (int i = 0; i < m; ++i)
        out->weights[i] *= factor;
    return SUT_OK;
}

SUT_PORTABLE sut_status sut_surgery_cagrad(const sut_surgery_problem *problem, sut_surgery_output *out)
{
    const sut_surgery_config *config = problem->config;
    const int m = problem->m;
    const double c = config->cagrad_c, mean = 1.0 / m;
    const double factor = config->cagrad_rescale == 1   ? 1.0 / (1.0 + c * c)
                          : config->cagrad_rescale == 2 ? 1.0 / (1.0 + c)
                                                        : 1.0;
    SUT_ARRAY(cagrad, p, 1);
    double longest = 0.0;
    p->K = problem->K;
    p->m = m;
    p->k0 = 0.0;
    p->S = problem->work;
    p->work = problem->work + (size_t)m * (size_t)m;
    for (int i = 0; i < m; ++i) {
        p->k[i] = 0.0;
        for (int j = 0; j < m; ++j)
            p->k[i] += p->K[(size_t)i * (size_t)m + (size_t)j];
        p->k[i] *= mean;
        p->k0 += p->k[i];
        longest = sut_max2(longest, problem->d[i]);
    }
    p->k0 = sut_max2(0.0, p->k0 * mean);
    /* eps has the unit of a squared norm in one place, of a norm in two others. */
    p->eps = ldexp(config->cagrad_eps, -2 * problem->exponent);
    const double eps_length = ldexp(config->cagrad_eps, -problem->exponent);
    const bool smooth = config->cagrad_eps > 0.0;
    p->r = c * sqrt(p->k0 + p->eps) + eps_length;

    if (!smooth && p->k0 <= 64.0 * m * SUT_EPS * problem->largest) {
        out->zero = out->pareto = true; /* the mean itself is 0 */
        return SUT_OK;
    }
    for (int i = 0; i < m; ++i)
        out->weights[i] = factor * mean;
    if (p->r == 0.0)
        return SUT_OK;

    /* The point of least norm is w(0): a root lies above its length. */
    double norm2;
    SUT_ARRAY(double, w, SUT_ROOM);
    if (sut_hull(p->K, m, w, p->work) < 0)
        return SUT_ERROR_INTERNAL;
    norm2 = sut_max2(0.0, sut_form(p->K, m, w, w));
    out->pareto = sut_surgery_hull_has_zero(p->K, m, w, norm2);
    double low = sqrt(norm2 + p->eps);
    if (out->pareto && !smooth) {
        /* 1e-7 of the rows that meet in 0; with rows of similar lengths, of the longest. */
        double reach = 0.0;
        for (int i = 0; i < m; ++i)
            reach += w[i] * problem->d[i];
        low = 1e-7 * (reach > 0.0 ? reach : longest);
        if (!solve_at(p, low, w, &norm2))
            return SUT_ERROR_INTERNAL;
        if (norm2 <= low * low)
            return answer_stationary(problem, factor, out);
    }
    if (!find_root(p, low, sut_max2(sqrt(longest * longest + p->eps), low), w, &norm2, &out->iterations))
        return SUT_ERROR_INTERNAL;
    out->converged = out->iterations <= MAX_STEPS;
    const double length = smooth ? sqrt(sut_max2(0.0, norm2 - p->eps)) + eps_length : sqrt(norm2);
    for (int i = 0; i < m; ++i)
        out->weights[i] += factor * p->r * w[i] / length;
    /* g_w was noise after all: weights of r / |g_w| that cancel. */
    if (out->pareto && !smooth && sut_surgery_vanishes(problem, out->weights))
        return answer_stationary(problem, factor, out);
    return SUT_OK;
}
