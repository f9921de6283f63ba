/*
 * Sequential QR and non-negative least squares, see nnls.h.
 */
#include "surgery/nnls.h"

#include "surgery/prelude.h"
#include "surgery/surgery.h"

_Static_assert(2 * 2 + SUT_FACTOR_ROWS * 2 <= SUT_SURGERY_WORK(1) &&
                   65 * 65 + SUT_FACTOR_ROWS * 65 <= SUT_SURGERY_WORK(64),
               "workspace");

SUT_PORTABLE void sut_factor_add(double *R, int cols, double *block, int rows)
{
    for (int j = 0; j < cols; ++j) {
        /* A Householder reflection of (R_jj, column j of the block) onto the diagonal. */
        double *const v = block + (size_t)j * SUT_FACTOR_ROWS, *const row = R + (size_t)j * (size_t)cols;
        double square = 0.0;
        for (int k = 0; k < rows; ++k)
            square += v[k] * v[k];
        if (!(square > 1e-250)) /* rounding of rounding: columns are longer than 1e-75 or zero */
            continue;
        const double head = row[j], length = sqrt(head * head + square);
        const double diagonal = head > 0.0 ? -length : length;
        const double first = head - diagonal; /* no cancellation */
        const double beta = 1.0 / (length * fabs(first));
        row[j] = diagonal;
        for (int c = j + 1; c < cols; ++c) {
            double *const x = block + (size_t)c * SUT_FACTOR_ROWS;
            double dot = first * row[c];
            for (int k = 0; k < rows; ++k)
                dot += v[k] * x[k];
            dot *= beta;
            row[c] -= dot * first;
            for (int k = 0; k < rows; ++k)
                x[k] -= dot * v[k];
        }
    }
}

/* Columns of unit length of the set in hand, with y as the last, and their triangle T: T[a][b], a <= b < np. */
typedef struct nnls {
    const double *R;
    int m, np;
    double scale[SUT_ROOM]; /* 1 / |b_j|; 0 where the column vanishes */
    double base[SUT_ROOM];  /* multipliers, of unit columns, that y contains */
    double delta[SUT_ROOM]; /* what is added to them: -base outside P */
    int P[SUT_ROOM];
    bool inside[SUT_ROOM];
    double *T, *block;
} nnls;

SUT_HOST_DEVICE static void nnls_init(nnls *q, const double *R, int m, const double *from, double *work)
{
    const int cols = m + 1;
    q->R = R;
    q->m = m;
    q->np = 0;
    q->T = work;
    q->block = work + (size_t)cols * (size_t)cols;
    for (int j = 0; j < m; ++j) {
        double square = 0.0;
        for (int r = 0; r <= j; ++r)
            square += R[r * cols + j] * R[r * cols + j];
        const double length = sqrt(square);
        q->scale[j] = square > 0.0 && isfinite(square) ? 1.0 / length : 0.0;
        q->base[j] = from && q->scale[j] > 0.0 ? from[j] * length : 0.0;
        q->delta[j] = 0.0;
        q->inside[j] = q->base[j] > 0.0;
        if (q->inside[j])
            q->P[q->np++] = j;
    }
}

/* y with everything in it that is not up to the set. */
SUT_HOST_DEVICE static void rest_of(const nnls *q, bool with_set, double *rest)
{
    const int rows = q->m + 1;
    for (int r = 0; r < rows; ++r)
        rest[r] = q->R[r * rows + q->m];
    for (int j = 0; j < q->m; ++j) {
        const double x = q->delta[j] * q->scale[j];
        if (x == 0.0 || (q->inside[j] && !with_set))
            continue;
        for (int r = 0; r <= j; ++r)
            rest[r] += q->R[r * rows + j] * x;
    }
}

SUT_HOST_DEVICE static void factor_set(nnls *q)
{
    const int rows = q->m + 1, cols = q->np + 1;
    SUT_ARRAY(double, rest, SUT_ROOM + 1);
    rest_of(q, false, rest);
    memset(q->T, 0, (size_t)cols * (size_t)cols * sizeof *q->T);
    for (int first = 0; first < rows; first += SUT_FACTOR_ROWS) {
        const int now = rows - first < SUT_FACTOR_ROWS ? rows - first : SUT_FACTOR_ROWS;
        for (int r = 0; r < now; ++r) {
            for (int c = 0; c < q->np; ++c) {
                const int j = q->P[c];
                q->block[c * SUT_FACTOR_ROWS + r] = first + r <= j ? q->R[(first + r) * rows + j] * q->scale[j] : 0.0;
            }
            q->block[q->np * SUT_FACTOR_ROWS + r] = rest[first + r];
        }
        sut_factor_add(q->T, cols, q->block, now);
    }
}

/* z = argmin |B_P z + rest|. */
SUT_HOST_DEVICE static void solve_set(const nnls *q, double *z)
{
    const int cols = q->np + 1;
    for (int a = q->np - 1; a >= 0; --a) {
        double x = -q->T[a * cols + q->np];
        for (int b = a + 1; b < q->np; ++b)
            x -= q->T[a * cols + b] * z[b];
        z[a] = x / q->T[a * cols + a];
    }
}

/* The products of every unit column with what is left of y. */
SUT_HOST_DEVICE static void slacks(const nnls *q, double *s)
{
    const int rows = q->m + 1;
    SUT_ARRAY(double, rest, SUT_ROOM + 1);
    rest_of(q, true, rest);
    for (int j = 0; j < q->m; ++j) {
        s[j] = 0.0;
        for (int r = 0; r <= j; ++r)
            s[j] += q->R[r * rows + j] * rest[r];
        s[j] *= q->scale[j];
    }
}

SUT_HOST_DEVICE static void leave(nnls *q, int k)
{
    const int j = q->P[k];
    q->delta[j] = -q->base[j];
    q->inside[j] = false;
    --q->np;
    for (; k < q->np; ++k)
        q->P[k] = q->P[k + 1];
}

/* To the solution on P; multipliers that would become negative leave P on the way. */
SUT_HOST_DEVICE static void walk(nnls *q)
{
    SUT_ARRAY(double, z, SUT_ROOM);
    while (q->np > 0) {
        factor_set(q);
        solve_set(q, z);
        double step = 1.0;
        int hit = -1;
        for (int k = 0; k < q->np; ++k) {
            const int j = q->P[k];
            const double here = q->base[j] + q->delta[j], there = q->base[j] + z[k];
            if (there > 0.0)
                continue;
            const double x = here > 0.0 ? here / (here - there) : 0.0;
            if (hit < 0 || x < step) {
                step = x;
                hit = k;
            }
        }
        for (int k = 0; k < q->np; ++k) {
            double *const d = &q->delta[q->P[k]];
            *d = hit < 0 ? z[k] : *d + step * (z[k] - *d);
        }
        if (hit < 0)
            return;
        leave(q, hit);
        for (int k = q->np - 1; k >= 0; --k)
            if (!(q->base[q->P[k]] + q->delta[q->P[k]] > 0.0))
                leave(q, k);
    }
}

/* A column joins P unless it depends on the others or would leave again at once. */
SUT_HOST_DEVICE static bool join(nnls *q, int j)
{
    SUT_ARRAY(double, z, SUT_ROOM);
    const int k = q->np++;
    q->P[k] = j;
    q->inside[j] = true;
    factor_set(q);
    const double pivot = fabs(q->T[k * (q->np + 1) + k]);
    if (pivot > 8.0 * q->np * SUT_EPS) {
        solve_set(q, z);
        if (q->base[j] + z[k] > 0.0) {
            walk(q);
            return true;
        }
    }
    leave(q, k);
    return false;
}

SUT_PORTABLE bool sut_nnls(const double *R, int m, const double *from, double *lambda, double *delta, double *work,
                           sut_nnls_end *end)
{
    SUT_ARRAY(nnls, q, 1);
    double y = 0.0;
    SUT_ARRAY(double, s, SUT_ROOM);
    SUT_ZEROS(bool, passed_over, SUT_ROOM);
    nnls_init(q, R, m, from, work);
    walk(q);
    for (int r = 0; r <= m; ++r)
        y += R[r * (m + 1) + m] * R[r * (m + 1) + m];
    y = sqrt(y);
    const int limit = 20 * m + 50;
    for (end->rounds = 0; end->rounds < limit; ++end->rounds) {
        /* What rounding leaves of a sum of unit columns: hardly ever more than `size` units, never more than `noise`. */
        double size = y;
        for (int j = 0; j < m; ++j)
            size += fabs(q->delta[j]);
        end->noise = 8.0 * (m + 4) * SUT_EPS * size;
        slacks(q, s);
        int worst = -1;
        for (int j = 0; j < m; ++j)
            if (q->scale[j] > 0.0 && !q->inside[j] && !passed_over[j] && s[j] < -SUT_EPS * size &&
                (worst < 0 || s[j] < s[worst]))
                worst = j;
        if (worst < 0)
            break;
        if (join(q, worst))
            memset(passed_over, 0, (size_t)m * sizeof *passed_over);
        else
            passed_over[worst] = true;
    }
    factor_set(q);
    end->length = fabs(q->T[q->np * (q->np + 1) + q->np]);
    for (int j = 0; j < m; ++j) {
        delta[j] = q->delta[j] * q->scale[j];
        lambda[j] = q->inside[j] ? (from ? from[j] : 0.0) + delta[j] : 0.0;
    }
    return end->rounds < limit;
}
