/*
 * NNQP: minimise 1/2 l^T K l + b^T l over l >= 0, K positive semi-definite. Lawson and Hanson's active-set method (1974).
 *
 * Solution: l >= 0, s = b + K l >= 0, l_i s_i = 0. It is the dual of a projection on the cone { p : G p >= 0 }, and most
 * surgery methods are one or several calls of it.
 *
 * Rows are scaled by powers of two to a diagonal in [1, 4): this rounds nothing, so the last solve can be refined against
 * K and b exactly as they were given (residual in double-double). That matters for nearly opposed rows, where the inverse
 * of K_PP amplifies every rounding. Decisions are taken as if the rows had unit length.
 *
 * Why it ends: each accepted round leaves a working set that was never seen before (in exact arithmetic because the
 * objective fell, here because the history is looked up), and there are finitely many. A candidate that rounding makes
 * useless (its pivot vanishes, its own multiplier comes out negative, or it leads back to a known set) is passed over
 * until the set changes.
 */
#ifndef SUT_SURGERY_NNQP_H
#define SUT_SURGERY_NNQP_H

#include "surgery/dense.h"

/* More rounds than this are a bug: the size of the final set and one or two more are normal. */
#define SUT_NNQP_MAX_ROUNDS(m) (20 * (m) + 50)

/* Doubles of workspace: scaled matrix, factor, and the history of working sets as halves of a 64-bit mask. */
#define SUT_NNQP_WORK(m) ((size_t)(2 * (m) * (m) + 2 * SUT_NNQP_MAX_ROUNDS(m)))

/* K_PP in scaled rows, its factor, and what the loop below carries from round to round. */
typedef struct sut_nnqp_state {
    int n;                   /* rows that are not zero */
    int row[SUT_ROOM];       /* their places in K */
    double scale[SUT_ROOM];  /* power of two on each */
    double length[SUT_ROOM]; /* norm of each scaled row, in [1, 2) */
    const double *A;         /* n x n scaled matrix */
    double *L;               /* factor of A_PP */
    int P[SUT_ROOM];         /* working set in the order of its factor */
    int np;
    uint64_t mask; /* the same as bits */
} sut_nnqp_state;

/* Drop zero rows, scale the others to a diagonal in [1, 4). `A` and `L` have room for m*m doubles each. */
SUT_SOLVER void sut_nnqp_scale(sut_nnqp_state *q, const double *K, int m, double *A, double *L)
{
    double largest = 0.0;
    for (int i = 0; i < m; ++i)
        largest = sut_max2(largest, K[(size_t)i * (size_t)m + (size_t)i]);
    q->n = 0;
    q->np = 0;
    q->mask = 0;
    q->A = A;
    q->L = L;
    for (int i = 0; i < m; ++i) {
        const double k = K[(size_t)i * (size_t)m + (size_t)i];
        if (!(k > 0.0) || k <= SUT_ZERO_ROW * SUT_ZERO_ROW * largest)
            continue;
        const int e = sut_exponent(k), half = e >= 0 ? e / 2 : -((1 - e) / 2);
        q->row[q->n] = i;
        q->scale[q->n++] = sut_exp2i(-half);
    }
    for (int i = 0; i < q->n; ++i) {
        const double *from = K + (size_t)q->row[i] * (size_t)m;
        double *to = A + (size_t)i * (size_t)q->n;
        for (int j = 0; j < q->n; ++j)
            to[j] = from[q->row[j]] * q->scale[i] * q->scale[j];
        q->length[i] = sut_max2(sqrt(to[i]), 0.5); /* subnormal diagonals stay below 1 */
    }
}

/* Add row j to the working set; false when it depends on the rows in it. */
SUT_SOLVER bool sut_nnqp_append(sut_nnqp_state *q, int j)
{
    const double *a = q->A + (size_t)j * (size_t)q->n;
    SUT_ARRAY(double, column, SUT_ROOM);
    for (int k = 0; k < q->np; ++k)
        column[k] = a[q->P[k]];
    if (!sut_cholesky_append(q->L, q->n, q->np, column, a[j], 16.0 * q->n * SUT_EPS * a[j]))
        return false;
    q->P[q->np++] = j;
    q->mask |= (uint64_t)1 << j;
    return true;
}

/* Take position r out of the working set. */
SUT_SOLVER void sut_nnqp_remove(sut_nnqp_state *q, int r)
{
    sut_cholesky_remove(q->L, q->n, q->np, r);
    q->mask &= ~((uint64_t)1 << q->P[r]);
    for (int k = r; k + 1 < q->np; ++k)
        q->P[k] = q->P[k + 1];
    --q->np;
}

/* z = -A_PP^-1 b_P with one step of refinement. */
SUT_SOLVER void sut_nnqp_solve_set(const sut_nnqp_state *q, const double *b, double *z)
{
    SUT_ARRAY(double, r, SUT_ROOM);
    for (int k = 0; k < q->np; ++k)
        z[k] = -b[q->P[k]];
    sut_cholesky_solve(q->L, q->n, q->np, z);
    for (int k = 0; k < q->np; ++k) {
        const double *a = q->A + (size_t)q->P[k] * (size_t)q->n;
        double t = -b[q->P[k]];
        for (int i = 0; i < q->np; ++i)
            t -= a[q->P[i]] * z[i];
        r[k] = t;
    }
    sut_cholesky_solve(q->L, q->n, q->np, r);
    for (int k = 0; k < q->np; ++k)
        z[k] += r[k];
}

/*
 * Refine z = -A_PP^-1 (b + b_lo)_P against the data as given, residuals in double-double. At most four steps; a step is taken
 * only while it is smaller than half the one before (otherwise the factor is too far off to help) and keeps z positive.
 */
SUT_SOLVER void sut_nnqp_polish(const sut_nnqp_state *q, const double *b, const double *b_lo, double *z)
{
    double before = 0.0;
    SUT_ARRAY(double, r, SUT_ROOM);
    for (int k = 0; k < q->np; ++k)
        before = sut_max2(before, fabs(z[k]));
    for (int step = 0; step < 4 && before > 0.0; ++step) {
        for (int k = 0; k < q->np; ++k) {
            const double *a = q->A + (size_t)q->P[k] * (size_t)q->n;
            sut_dd t = {-b[q->P[k]], b_lo ? -b_lo[q->P[k]] : 0.0};
            for (int i = 0; i < q->np; ++i)
                sut_dd_add_product(&t, -a[q->P[i]], z[i]);
            r[k] = sut_dd_value(t);
        }
        sut_cholesky_solve(q->L, q->n, q->np, r);
        double size = 0.0, largest = 0.0;
        bool positive = true;
        for (int k = 0; k < q->np; ++k) {
            size = sut_max2(size, fabs(r[k]));
            largest = sut_max2(largest, fabs(z[k]));
            positive = positive && z[k] + r[k] > 0.0;
        }
        if (!positive || !(size < 0.5 * before))
            return;
        for (int k = 0; k < q->np; ++k)
            z[k] += r[k];
        if (size <= 0x1p-54 * largest)
            return;
        before = size;
    }
}

/* s = b + A lambda, and the size of the sum that it came from. */
SUT_SOLVER void sut_nnqp_slack(const sut_nnqp_state *q, const double *b, const double *lambda, double *s, double *size)
{
    for (int i = 0; i < q->n; ++i) {
        const double *a = q->A + (size_t)i * (size_t)q->n;
        double t = b[i], total = fabs(b[i]);
        for (int k = 0; k < q->np; ++k) {
            const double x = a[q->P[k]] * lambda[q->P[k]];
            t += x;
            total += fabs(x);
        }
        s[i] = t;
        size[i] = total;
    }
}

/*
 * One outer round with candidate j: add it, walk until every multiplier of the working set is positive.
 * False when j turns out useless; the set is then whatever the walk left, and the caller restores it.
 */
SUT_SOLVER bool sut_nnqp_round(sut_nnqp_state *q, const double *b, double *lambda, int j)
{
    SUT_ZEROS(double, z, SUT_ROOM);
    if (!sut_nnqp_append(q, j))
        return false;
    sut_nnqp_solve_set(q, b, z);
    if (!(z[q->np - 1] > 0.0))
        return false;
    for (;;) {
        double alpha = 1.0;
        int blocking = -1;
        for (int k = 0; k < q->np; ++k) {
            if (z[k] > 0.0)
                continue;
            const double now = lambda[q->P[k]], t = now / (now - z[k]);
            if (blocking < 0 || t < alpha) {
                alpha = t;
                blocking = k;
            }
        }
        if (blocking < 0)
            break;
        for (int k = 0; k < q->np; ++k) {
            const double now = lambda[q->P[k]];
            lambda[q->P[k]] = k == blocking ? 0.0 : now + alpha * (z[k] - now);
        }
        for (int k = q->np - 1; k >= 0; --k) {
            if (!(lambda[q->P[k]] > 0.0)) {
                lambda[q->P[k]] = 0.0;
                sut_nnqp_remove(q, k);
            }
        }
        sut_nnqp_solve_set(q, b, z);
    }
    for (int k = 0; k < q->np; ++k)
        lambda[q->P[k]] = z[k];
    return true;
}

/*
 * Start with every row that u violates, if that is a valid working set (independent, multipliers positive): the answer
 * for rows that all conflict, in one factorization instead of m rounds. Returns the rounds spent.
 */
SUT_SOLVER int sut_nnqp_guess(sut_nnqp_state *q, const double *b, double *lambda)
{
    SUT_ARRAY(double, z, SUT_ROOM);
    bool valid = true;
    for (int i = 0; i < q->n && valid; ++i)
        if (b[i] < -1e-13 * q->length[i])
            valid = sut_nnqp_append(q, i);
    valid = valid && q->np > 1;
    if (valid)
        sut_nnqp_solve_set(q, b, z);
    for (int k = 0; k < q->np && valid; ++k)
        valid = z[k] > 0.0;
    if (!valid) {
        q->np = 0;
        q->mask = 0;
        return 0;
    }
    for (int k = 0; k < q->np; ++k)
        lambda[q->P[k]] = z[k];
    return 1;
}

/*
 * The active-set loop on scaled rows. b is of order 1; b_lo: its low parts, or NULL. lambda, s: n entries, out.
 * Returns the number of rounds, -1 when the limit is reached.
 */
SUT_SOLVER int sut_nnqp_loop(sut_nnqp_state *q, const double *b, const double *b_lo, double *lambda, double *s,
                             double *history)
{
    SUT_ARRAY(double, size, SUT_ROOM);
    SUT_ARRAY(double, kept, SUT_ROOM);
    SUT_ARRAY(int, kept_P, SUT_ROOM);
    const int limit = SUT_NNQP_MAX_ROUNDS(q->n);
    int rounds, n_history = 0;
    uint64_t passed = 0; /* candidates that proved useless beside the present set */
    for (int i = 0; i < q->n; ++i)
        lambda[i] = 0.0;
    rounds = sut_nnqp_guess(q, b, lambda);
    sut_nnqp_slack(q, b, lambda, s, size);
    for (;;) {
        int best = -1;
        for (int i = 0; i < q->n; ++i) {
            if ((q->mask | passed) >> i & 1)
                continue;
            const double unit = s[i] / q->length[i];
            if (unit < -1e-13 * sut_max2(1.0, size[i] / q->length[i]) && (best < 0 || unit < s[best] / q->length[best]))
                best = i;
        }
        if (best < 0)
            break;
        if (++rounds > limit)
            return -1;
        const int kept_np = q->np;
        memcpy(kept_P, q->P, sizeof kept_P[0] * (size_t)kept_np);
        memcpy(kept, lambda, sizeof kept[0] * (size_t)q->n);
        bool useful = sut_nnqp_round(q, b, lambda, best);
        const double upper = (double)(q->mask >> 32), lower = (double)(q->mask & 0xffffffffu);
        for (int k = 0; useful && k < n_history; ++k)
            useful = history[2 * k] != upper || history[2 * k + 1] != lower;
        if (useful) {
            history[2 * n_history] = upper;
            history[2 * n_history++ + 1] = lower;
            passed = 0;
            sut_nnqp_slack(q, b, lambda, s, size);
        } else {
            passed |= (uint64_t)1 << best;
            memcpy(lambda, kept, sizeof kept[0] * (size_t)q->n);
            q->np = 0;
            q->mask = 0;
            for (int k = 0; k < kept_np; ++k)
                (void)sut_nnqp_append(q, kept_P[k]); /* was independent before, in this order or a longer one */
        }
    }
    if (q->np > 0) {
        SUT_ARRAY(double, z, SUT_ROOM);
        for (int k = 0; k < q->np; ++k)
            z[k] = lambda[q->P[k]];
        sut_nnqp_polish(q, b, b_lo, z);
        for (int k = 0; k < q->np; ++k)
            lambda[q->P[k]] = z[k];
        sut_nnqp_slack(q, b, lambda, s, size);
    }
    return rounds;
}

/*
 * One and two rows in closed form (section 7.3). The signs that decide, and the determinant 1 - kappa^2 of the two-row
 * case, are taken in double-double. Returns rounds as the loop would count them.
 */
SUT_SOLVER int sut_nnqp_closed(const sut_nnqp_state *q, const double *b, const double *b_lo, double *lambda)
{
    const double *A = q->A;
    lambda[0] = sut_max2(0.0, -b[0] / A[0]);
    if (q->n == 1)
        return lambda[0] > 0.0;
    lambda[0] = lambda[1] = 0.0;
    if (b[0] >= 0.0 && b[1] >= 0.0)
        return 0;
    const double k = A[1];
    const double lo[2] = {b_lo ? b_lo[0] : 0.0, b_lo ? b_lo[1] : 0.0};
    sut_dd slack[2]; /* A_ii b_j - k b_i: s_j times A_ii with row i alone */
    for (int i = 0; i < 2; ++i) {
        const int j = 1 - i;
        slack[i] = sut_two_product(A[3 * i], b[j]);
        sut_dd_add_product(&slack[i], -k, b[i]);
        slack[i].lo += A[3 * i] * lo[j] - k * lo[i];
    }
    for (int i = 0; i < 2; ++i) {
        if (b[i] < 0.0 && sut_dd_value(slack[i]) >= 0.0) {
            lambda[i] = -b[i] / A[3 * i];
            return 1;
        }
    }
    sut_dd det = sut_two_product(A[0], A[3]);
    sut_dd_add_product(&det, -k, k);
    const double d = sut_dd_value(det);
    if (d <= 8.0 * SUT_EPS * A[0] * A[3]) { /* opposed, or duplicates, to working precision: 1 -+ kappa <= 4 2^-52 */
        const int i = b[0] / q->length[0] <= b[1] / q->length[1] ? 0 : 1;
        lambda[i] = -b[i] / A[3 * i];
        return 1;
    }
    lambda[1] = sut_max2(0.0, -sut_dd_value(slack[0]) / d);
    lambda[0] = sut_max2(0.0, -sut_dd_value(slack[1]) / d);
    return 2;
}

/*
 * The solver. K: m x m, both triangles, any scale; b + b_lo: m (b_lo NULL: none). Rows without length get lambda 0 and
 * s = b. lambda: m, out; s: m, out, or NULL. work: SUT_NNQP_WORK(m). `closed`: use the closed forms for up to two rows.
 * Returns the number of rounds, or -1.
 */
SUT_SOLVER int sut_nnqp_solve(const double *K, const double *b, const double *b_lo, int m, double *lambda, double *s,
                              double *work, bool closed)
{
    SUT_ARRAY(sut_nnqp_state, q, 1);
    double *history = work + 2 * (size_t)m * (size_t)m;
    SUT_ARRAY(double, c, SUT_ROOM);
    SUT_ARRAY(double, c_lo, SUT_ROOM);
    SUT_ARRAY(double, x, SUT_ROOM);
    SUT_ARRAY(double, t, SUT_ROOM);
    for (int i = 0; i < m; ++i) {
        lambda[i] = 0.0;
        if (s)
            s[i] = b[i];
    }
    bool inside = true;
    for (int i = 0; i < m; ++i)
        inside = inside && b[i] >= 0.0;
    if (inside)
        return 0;

    sut_nnqp_scale(q, K, m, work, work + (size_t)m * (size_t)m);
    double largest = 0.0;
    for (int i = 0; i < q->n; ++i) {
        c[i] = b[q->row[i]] * q->scale[i];
        largest = sut_max2(largest, fabs(c[i]));
    }
    if (q->n == 0 || largest == 0.0)
        return 0;
    int e = sut_exponent(largest); /* b to order 1, by a power of two */
    e = e < -1000 ? -1000 : e > 1000 ? 1000 : e;
    const double down = sut_exp2i(-e), up = sut_exp2i(e);
    for (int i = 0; i < q->n; ++i) {
        c[i] *= down;
        c_lo[i] = b_lo ? b_lo[q->row[i]] * q->scale[i] * down : 0.0;
    }

    int rounds;
    if (closed && q->n <= 2) {
        rounds = sut_nnqp_closed(q, c, c_lo, x);
    } else {
        rounds = sut_nnqp_loop(q, c, c_lo, x, t, history);
        if (rounds < 0)
            return rounds;
    }
    for (int i = 0; i < q->n; ++i)
        lambda[q->row[i]] = x[i] * q->scale[i] * up;
    if (s) {
        for (int i = 0; i < q->n; ++i) {
            double y = c[i];
            for (int j = 0; j < q->n; ++j)
                y += q->A[i * q->n + j] * x[j];
            s[q->row[i]] = y / q->scale[i] * up;
        }
    }
    return rounds;
}

#endif /* SUT_SURGERY_NNQP_H */
