/*
 * ConFIG: Liu, Chu, Thuerey 2024, arXiv 2408.11104. The direction whose cosines with the gradients are proportional to
 * the angle weights omega, as the least-squares solution of least norm of U p = omega, U the unit rows:
 *
 *     x = C^+ omega,  p = sum x_i u_i,  |p|^2 = x^T C x,  cos_i = (C x)_i / |p|,  w_i = L x_i / (|p| d_i).
 *
 * Two losses of equal weight have a form without a division that could fail, a = t (u_1 + u_2); the published shortcut
 * through orthogonal parts loses all digits for nearly parallel gradients.
 */
#include "surgery/dense.h"
#include "surgery/surgery.h"

/* Live rows only: m' of them, their places, cosine matrix and angle weights. */
typedef struct live_rows {
    int n;
    int row[SUT_ROOM];
    double d[SUT_ROOM], omega[SUT_ROOM];
} live_rows;

SUT_HOST_DEVICE static void gather(const sut_surgery_problem *problem, live_rows *live)
{
    live->n = 0;
    for (int i = 0; i < problem->m; ++i) {
        if (problem->d[i] == 0.0)
            continue;
        live->row[live->n] = i;
        live->d[live->n] = problem->d[i];
        live->omega[live->n++] = problem->config->preference ? problem->config->preference[i] : 1.0;
    }
}

/* The mean of the norms that a tracked length uses. */
SUT_HOST_DEVICE static double tracked_norm(const sut_surgery_problem *problem, const live_rows *live)
{
    const int n = live->n;
    double t = 0.0;
    switch (problem->config->config_length) {
    case SUT_CONFIG_MINIMUM:
        t = live->d[0];
        for (int i = 1; i < n; ++i)
            t = sut_min2(t, live->d[i]);
        return t;
    case SUT_CONFIG_MAXIMUM:
        for (int i = 0; i < n; ++i)
            t = sut_max2(t, live->d[i]);
        return t;
    case SUT_CONFIG_HARMONIC:
        for (int i = 0; i < n; ++i)
            t += 1.0 / live->d[i];
        return n / t;
    case SUT_CONFIG_ARITHMETIC:
        for (int i = 0; i < n; ++i)
            t += live->d[i];
        return t / n;
    case SUT_CONFIG_GEOMETRIC: {
        /* Exponents are summed as integers: a logarithm of 1e-150 would cost two digits. */
        int exponents = 0;
        for (int i = 0; i < n; ++i) {
            const int e = sut_exponent(live->d[i]);
            exponents += e;
            t += log(live->d[i] * sut_exp2i(-e));
        }
        const int whole = exponents / n;
        return exp((t + (exponents - whole * n) * 0.69314718055994530942) / n) * sut_exp2i(whole);
    }
    case SUT_CONFIG_SPECIFIC: return problem->d[problem->config->config_row];
    case SUT_CONFIG_PROJECTION: break;
    }
    return 0.0;
}

/*
 * x = C^-1 omega by Cholesky when C has full rank beyond doubt: the trace of C^-1 bounds its smallest eigenvalue from
 * below. A tenth of the cost of eigenvalues, and the usual case.
 */
SUT_HOST_DEVICE static bool solve_full_rank(const double *C, const live_rows *live, double *L, double *x)
{
    const int n = live->n;
    SUT_ARRAY(double, r, SUT_ROOM);
    for (int i = 0; i < n; ++i)
        if (!sut_cholesky_append(L, n, i, C + (size_t)i * (size_t)n, C[(size_t)i * (size_t)(n + 1)], 0.0))
            return false;
    const double trace = sut_cholesky_inverse_trace(L, n, n, r);
    if (!(trace < 1.0 / (16.0 * n * n * SUT_EPS))) /* lambda_max <= n */
        return false;
    for (int i = 0; i < n; ++i)
        x[i] = live->omega[i];
    sut_cholesky_solve(L, n, n, x);
    for (int i = 0; i < n; ++i) {
        double t = live->omega[i];
        for (int j = 0; j < n; ++j)
            t -= C[(size_t)i * (size_t)n + (size_t)j] * x[j];
        r[i] = t;
    }
    sut_cholesky_solve(L, n, n, r);
    for (int i = 0; i < n; ++i)
        x[i] += r[i];
    if (trace > SUT_NEARLY_DEPENDENT) {
        sut_residual(C, n, live->omega, x, r);
        sut_cholesky_solve(L, n, n, r);
        for (int i = 0; i < n; ++i)
            x[i] += r[i];
    }
    return true;
}

/*
 * x = C^+ omega, Cx, and the rank. False: the weights lie in the null space of C (an opposed pair with equal weights), so
 * the direction is zero.
 */
SUT_HOST_DEVICE static bool solve_direction(const sut_surgery_problem *problem, const live_rows *live, double *x,
                                            double *Cx, int *rank)
{
    const int n = live->n;
    const size_t ld = (size_t)n;
    double *C = problem->work, *L = C + ld * ld, *V = L + ld * ld;
    SUT_ARRAY(double, values, SUT_ROOM);
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j)
            C[(size_t)i * ld + (size_t)j] =
                problem->C[(size_t)live->row[i] * (size_t)problem->m + (size_t)live->row[j]];
    if (solve_full_rank(C, live, L, x)) {
        for (int i = 0; i < n; ++i)
            Cx[i] = live->omega[i];
        *rank = n;
        return true;
    }
    memcpy(L, C, ld * ld * sizeof *L);
    sut_jacobi(L, n, V, values);
    const double threshold = sut_rank_threshold(values, n, SUT_EPS);
    *rank = sut_pseudo_solve(V, values, n, threshold, live->omega, x);
    if (*rank == n)
        sut_refine(C, V, values, n, live->omega, x);
    double norm2 = 0.0, omega2 = 0.0;
    for (int i = 0; i < n; ++i) {
        Cx[i] = 0.0;
        for (int j = 0; j < n; ++j)
            Cx[i] += C[(size_t)i * ld + (size_t)j] * x[j];
        norm2 += x[i] * Cx[i];
        omega2 += live->omega[i] * live->omega[i];
    }
    const double noise = 64.0 * n * SUT_EPS;
    return norm2 * (threshold / (n * SUT_EPS)) > noise * noise * omega2; /* threshold / (n 2^-52) = lambda_max */
}

/* Two live rows of equal weight: a = t (u_1 + u_2), t = (d_1 + d_2) / 2 for the projection length. */
SUT_HOST_DEVICE static bool solve_pair(const sut_surgery_problem *problem, const live_rows *live,
                                       sut_surgery_output *out)
{
    const int i = live->row[0], j = live->row[1];
    const double kappa = problem->C[(size_t)i * (size_t)problem->m + (size_t)j];
    out->rank = 1.0 - fabs(kappa) <= 4.0 * SUT_EPS ? 1 : 2;
    if (1.0 + kappa <= 4.0 * SUT_EPS)
        return false;
    const double t = problem->config->config_length == SUT_CONFIG_PROJECTION ? 0.5 * (live->d[0] + live->d[1])
                                                                             : tracked_norm(problem, live);
    out->weights[i] = t / live->d[0];
    out->weights[j] = t / live->d[1];
    return true;
}

SUT_PORTABLE sut_status sut_surgery_config_solve(const sut_surgery_problem *problem, sut_surgery_output *out)
{
    SUT_ARRAY(live_rows, live, 1);
    SUT_ARRAY(double, x, SUT_ROOM);
    SUT_ARRAY(double, Cx, SUT_ROOM);
    gather(problem, live);
    if (live->n == 2 && live->omega[0] == live->omega[1]) {
        /* omega = 0 on all live rows: no angle is asked for. */
        out->zero = live->omega[0] == 0.0 || !solve_pair(problem, live, out);
        return SUT_OK;
    }
    bool some = false;
    for (int i = 0; i < live->n; ++i)
        some = some || live->omega[i] != 0.0;
    if (!some || !solve_direction(problem, live, x, Cx, &out->rank)) {
        out->zero = true;
        return SUT_OK;
    }
    double norm2 = 0.0, sum = 0.0, length = 0.0;
    for (int i = 0; i < live->n; ++i) {
        norm2 += x[i] * Cx[i];
        sum += Cx[i];
        length += live->d[i] * Cx[i];
    }
    if (problem->config->config_length != SUT_CONFIG_PROJECTION)
        length = tracked_norm(problem, live) * sum;
    /* |p| appears twice, in the cosines of L and in front of x: L / |p| = (sum ..) / |p|^2. */
    for (int i = 0; i < live->n; ++i)
        out->weights[live->row[i]] = length / norm2 * x[i] / live->d[i];
    return SUT_OK;
}
