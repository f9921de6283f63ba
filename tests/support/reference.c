/* See reference.h. */
#include "support/reference.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

typedef long double real;

typedef struct problem {
    const double *G, *w, *u;
    int stride, m, n;
} problem;

static real row(const problem *x, int i, int k)
{
    return (real)x->G[i * x->stride + k];
}

/*
 * Projection of u on the rows of `set` being tight: its components along the rows, made orthonormal in the metric, are taken
 * out. False when the rows depend on each other (another set has the same span).
 */
static bool tight(const problem *x, unsigned set, real *p)
{
    real q[REFERENCE_MAX_M][REFERENCE_MAX_N]; /* M-orthonormal basis of the M^-1 g_i; 0 where w is 0 */
    int rank = 0;
    for (int k = 0; k < x->n; ++k)
        p[k] = x->u[k];
    for (int i = 0; i < x->m; ++i) {
        if (!(set >> i & 1))
            continue;
        real *const v = q[rank], before = 0, after = 0;
        for (int k = 0; k < x->n; ++k) {
            v[k] = x->w[k] * row(x, i, k);
            before += v[k] * row(x, i, k);
        }
        if (before == 0)
            return false;
        for (int pass = 0; pass < 3; ++pass)
            for (int j = 0; j < rank; ++j) {
                real dot = 0;
                for (int k = 0; k < x->n; ++k)
                    dot += x->w[k] > 0 ? v[k] * q[j][k] / x->w[k] : 0;
                for (int k = 0; k < x->n; ++k)
                    v[k] -= dot * q[j][k];
            }
        for (int k = 0; k < x->n; ++k)
            after += x->w[k] > 0 ? v[k] * v[k] / x->w[k] : 0;
        if (sqrtl(after / before) < 1e-14L)
            return false;
        for (int k = 0; k < x->n; ++k)
            v[k] /= sqrtl(after);
        ++rank;
    }
    for (int j = 0; j < rank; ++j) {
        real dot = 0;
        for (int k = 0; k < x->n; ++k)
            dot += x->w[k] > 0 ? x->u[k] * q[j][k] / x->w[k] : 0;
        for (int k = 0; k < x->n; ++k)
            p[k] -= dot * q[j][k];
    }
    return true;
}

/* Feasible to the rounding of long double. */
static bool feasible(const problem *x, const real *p, real norm_u)
{
    for (int i = 0; i < x->m; ++i) {
        real s = 0, d = 0;
        for (int k = 0; k < x->n; ++k) {
            s += row(x, i, k) * p[k];
            d += row(x, i, k) * row(x, i, k);
        }
        if (s < -1e-16L * sqrtl(d) * norm_u)
            return false;
    }
    return true;
}

/* Of all feasible candidates the nearest to u is the answer. Each is a projection on a subspace, so the nearest is the
 * longest, and lengths can be told apart where distances to u cannot. */
void reference_project(const double *G, int stride, int m, int n, const double *w, const double *u, double *p)
{
    const problem x = {G, w, u, stride, m, n};
    real longest = 0, norm_u = 0;
    for (int k = 0; k < n; ++k) {
        norm_u += (real)u[k] * u[k];
        p[k] = w[k] > 0 ? 0 : u[k];
    }
    norm_u = sqrtl(norm_u);
    for (unsigned set = 0; set < 1u << m; ++set) {
        real candidate[REFERENCE_MAX_N], length = 0;
        if (!tight(&x, set, candidate) || !feasible(&x, candidate, norm_u))
            continue;
        for (int k = 0; k < n; ++k)
            length += w[k] > 0 ? candidate[k] * candidate[k] / w[k] : 0;
        if (!(length > longest))
            continue;
        longest = length;
        for (int k = 0; k < n; ++k)
            p[k] = (double)candidate[k];
    }
}
