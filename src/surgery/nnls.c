/*
 * Sequential QR and non-negative least squares, see nnls.h.
 */
#include "surgery/nnls.h"

#include "surgery/prelude.h"
#include "surgery/surgery.h"

_Static_assert(2 * 2 + SUT_FACTOR_ROWS * 2 <= SUT_SURGERY_WORK(1) &&
                   65 * 65 + SUT_FACTOR_ROWS * 65 <= SUT_SURGERY_WORK(64),
               "workspace");

void sut_factor_add(double *R, int cols, double *block, int rows)
{
    for (int j = 0; j < cols; ++j) {
        /* A Householder reflection of (R_jj, column j of the block) onto the diagonal. */
        double *const v = block + (size_t)j * SUT_FACTOR_ROWS, *const row = R + (size_t)j * (size_t)cols;
        double square = 0.0;
        for (int k = 0; k < rows; ++k)
            square += v[k] * v[k];
        if (square == 0.0)
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
    double scale[SUT_MAX_LOSSES]; /* 1 / |b_j|; 0 where the column vanishes */
    int P[SUT_MAX_LOSSES];
    double *T, *block;
} nnls;

static void nnls_init(nnls *q, const double *R, int m, double *work)
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
        q->scale[j] = square > 0.0 && isfinite(square) ? 1.0 / sqrt(square) : 0.0;
    }
}

static void factor_set(nnls *q)
{
    const int rows = q->m + 1, cols = q->np + 1;
    memset(q->T, 0, (size_t)cols * (size_t)cols * sizeof *q->T);
    for (int first = 0; first < rows; first += SUT_FACTOR_ROWS) {
        const int now = rows - first < SUT_FACTOR_ROWS ? rows - first : SUT_FACTOR_ROWS;
        for (int c = 0; c < cols; ++c) {
            const int j = c < q->np ? q->P[c] : q->m;
            const double scale = c < q->np ? q->scale[j] : 1.0;
            for (int r = 0; r < now; ++r)
                q->block[c * SUT_FACTOR_ROWS + r] = first + r <= j ? q->R[(first + r) * rows + j] * scale : 0.0;
        }
        sut_factor_add(q->T, cols, q->block, now);
    }
}

/* z = argmin |B_P z + y|. */
static void solve_set(const nnls *q, double *z)
{
    const int cols = q->np + 1;
    for (int a = q->np - 1; a >= 0; --a) {
        double x = -q->T[a * cols + q->np];
        for (int b = a + 1; b < q->np; ++b)
            x -= q->T[a * cols + b] * z[b];
        z[a] = x / q->T[a * cols + a];
    }
}

/* The products of every column with what is left of y: those of p with the gradients, up to a length. */
static void slacks(const nnls *q, const double *lambda, double *s)
{
    const int rows = q->m + 1;
    double rest[SUT_MAX_LOSSES + 1];
    for (int r = 0; r < rows; ++r) {
        rest[r] = q->R[r * rows + q->m];
        for (int k = 0; k < q->np; ++k)
            if (q->P[k] >= r)
                rest[r] += q->R[r * rows + q->P[k]] * (q->scale[q->P[k]] * lambda[q->P[k]]);
    }
    for (int j = 0; j < q->m; ++j) {
        s[j] = 0.0;
        for (int r = 0; r <= j; ++r)
            s[j] += q->R[r * rows + j] * rest[r];
        s[j] *= q->scale[j];
    }
}

static void drop(nnls *q, int k)
{
    --q->np;
    for (; k < q->np; ++k)
        q->P[k] = q->P[k + 1];
}

/* Lambda, of unit columns, moves to the solution on P; what would become negative leaves P on the way. */
static void walk(nnls *q, double *lambda)
{
    double z[SUT_MAX_LOSSES];
    while (q->np > 0) {
        factor_set(q);
        solve_set(q, z);
        double step = 1.0;
        int hit = -1;
        for (int k = 0; k < q->np; ++k) {
            const double from = lambda[q->P[k]];
            if (z[k] > 0.0)
                continue;
            const double x = from / (from - z[k]);
            if (hit < 0 || x < step) {
                step = x;
                hit = k;
            }
        }
        for (int k = 0; k < q->np; ++k)
            lambda[q->P[k]] = hit < 0 ? z[k] : lambda[q->P[k]] + step * (z[k] - lambda[q->P[k]]);
        if (hit < 0)
            return;
        lambda[q->P[hit]] = 0.0;
        for (int k = q->np - 1; k >= 0; --k)
            if (!(lambda[q->P[k]] > 0.0)) {
                lambda[q->P[k]] = 0.0;
                drop(q, k);
            }
    }
}

/* A column joins P unless it depends on the others or would leave again at once. */
static bool join(nnls *q, int j, double *lambda)
{
    double z[SUT_MAX_LOSSES];
    const int k = q->np++;
    q->P[k] = j;
    factor_set(q);
    const double pivot = fabs(q->T[k * (q->np + 1) + k]);
    if (pivot > 8.0 * q->np * SUT_EPS) {
        solve_set(q, z);
        if (z[k] > 0.0) {
            walk(q, lambda);
            return true;
        }
    }
    --q->np;
    return false;
}

bool sut_nnls(const double *R, int m, double *lambda, double *work, sut_nnls_end *end)
{
    nnls q;
    double s[SUT_MAX_LOSSES], y = 0.0;
    bool passed_over[SUT_MAX_LOSSES] = {false};
    nnls_init(&q, R, m, work);
    memset(lambda, 0, (size_t)m * sizeof *lambda);
    for (int r = 0; r <= m; ++r)
        y += R[r * (m + 1) + m] * R[r * (m + 1) + m];
    y = sqrt(y);
    const int limit = 20 * m + 50;
    for (end->rounds = 0; end->rounds < limit; ++end->rounds) {
        /* What rounding leaves of a sum of columns. */
        double size = y;
        for (int j = 0; j < m; ++j)
            size += lambda[j];
        end->noise = 8.0 * (m + 4) * SUT_EPS * size;
        slacks(&q, lambda, s);
        int worst = -1;
        for (int j = 0; j < m; ++j)
            if (q.scale[j] > 0.0 && lambda[j] == 0.0 && !passed_over[j] && s[j] < -end->noise &&
                (worst < 0 || s[j] < s[worst]))
                worst = j;
        if (worst < 0)
            break;
        if (join(&q, worst, lambda))
            memset(passed_over, 0, sizeof passed_over);
        else
            passed_over[worst] = true;
    }
    factor_set(&q);
    end->length = fabs(q.T[q.np * (q.np + 1) + q.np]);
    for (int j = 0; j < m; ++j)
        lambda[j] *= q.scale[j];
    return end->rounds < limit;
}

bool sut_nnls_correction(const double *R, int m, const double *lambda, const double *s, double *delta, double *work)
{
    nnls q;
    double x[SUT_MAX_LOSSES];
    nnls_init(&q, R, m, work);
    memset(delta, 0, (size_t)m * sizeof *delta);
    for (int j = 0; j < m; ++j)
        if (lambda[j] > 0.0 && q.scale[j] > 0.0)
            q.P[q.np++] = j;
    factor_set(&q);
    /* T^T T delta = -s. */
    const int cols = q.np + 1;
    for (int a = 0; a < q.np; ++a) {
        x[a] = -s[q.P[a]] * q.scale[q.P[a]];
        for (int b = 0; b < a; ++b)
            x[a] -= q.T[b * cols + a] * x[b];
        x[a] /= q.T[a * cols + a];
    }
    bool positive = true;
    for (int a = q.np - 1; a >= 0; --a) {
        for (int b = a + 1; b < q.np; ++b)
            x[a] -= q.T[a * cols + b] * x[b];
        x[a] /= q.T[a * cols + a];
        delta[q.P[a]] = x[a] * q.scale[q.P[a]];
        positive = positive && lambda[q.P[a]] + delta[q.P[a]] > 0.0;
    }
    return positive;
}
