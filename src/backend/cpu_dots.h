/*
 * Dot products in a fixed number of lanes: element k of a block goes to lane k mod 16 on every instruction set, so every
 * machine adds in the same order. f32 lanes live for one block of at most SUT_BLOCK elements and are then added to double
 * lanes; doubles are summed in double lanes throughout.
 *
 * Lanes are taken one native vector at a time (the loop over v is outermost), so that a tile of products keeps its sums in
 * registers whatever the width: with 8 sums in flight two products a cycle are possible, and a tile of 2 x 4 rows needs
 * only 6 loads for its 8 products.
 */
#ifndef SUT_BACKEND_CPU_DOTS_H
#define SUT_BACKEND_CPU_DOTS_H

#include "backend/backend.h"

#include <stdint.h>
#include <string.h>

#define SUT_LANES 16

#if defined(__AVX512F__)
#define SUT_VECTOR 64
#elif defined(__AVX__)
#define SUT_VECTOR 32
#else
#define SUT_VECTOR 16
#endif

typedef float sut_vector_float __attribute__((vector_size(SUT_VECTOR), aligned(4), may_alias));
typedef double sut_vector_double __attribute__((vector_size(SUT_VECTOR), aligned(8), may_alias));
typedef int32_t sut_mask_float __attribute__((vector_size(SUT_VECTOR)));
typedef int64_t sut_mask_double __attribute__((vector_size(SUT_VECTOR)));
typedef float sut_half_vector __attribute__((vector_size(SUT_VECTOR / 2), aligned(4), may_alias));

/* The lanes of one sum, added in pairs. */
static inline double sut_fold(const double *lanes)
{
    double t[SUT_LANES];
    memcpy(t, lanes, sizeof t);
    for (int width = SUT_LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; ++l)
            t[l] += t[l + width];
    return t[0];
}

/* Add one vector of sums to its double lanes. */
static inline __attribute__((always_inline)) void sut_flush_float(sut_vector_float sum, double *lanes)
{
    sut_half_vector half[2];
    memcpy(half, &sum, sizeof sum);
    for (int h = 0; h < 2; ++h)
        *(sut_vector_double *)(lanes + h * (SUT_VECTOR / 8)) += __builtin_convertvector(half[h], sut_vector_double);
}

static inline __attribute__((always_inline)) void sut_flush_double(sut_vector_double sum, double *lanes)
{
    *(sut_vector_double *)lanes = sum;
}

/* Where a block's sums begin: f32 at 0, f64 at what the lanes hold already. */
static inline __attribute__((always_inline)) sut_vector_float sut_start_float(const double *lanes)
{
    (void)lanes;
    return (sut_vector_float){0};
}

static inline __attribute__((always_inline)) sut_vector_double sut_start_double(const double *lanes)
{
    return *(const sut_vector_double *)lanes;
}

/*
 * A tile: rows x[0..NX) against y[0..NY); lanes[i * NY + j] belongs to x_i . y_j. The few elements past the last full 16
 * are added lane by lane.
 */
#define SUT_TILE(real, NX, NY)                                                                                      \
    static void sut_tile_##NX##_##NY##_##real(const real *const *x, const real *const *y, int64_t n,                \
                                              double *const *lanes)                                                 \
    {                                                                                                               \
        enum { W = SUT_VECTOR / (int)sizeof(real) };                                                                \
        const int64_t full = n - n % SUT_LANES;                                                                     \
        const int rest = (int)(n - full);                                                                           \
        for (int v = 0; v < SUT_LANES; v += W) {                                                                    \
            sut_vector_##real sum[NX][NY];                                                                          \
            for (int i = 0; i < NX; ++i)                                                                            \
                for (int j = 0; j < NY; ++j)                                                                        \
                    sum[i][j] = sut_start_##real(lanes[i * NY + j] + v);                                            \
            for (int64_t k = v; k < full; k += SUT_LANES) {                                                         \
                sut_vector_##real a[NX];                                                                            \
                _Pragma("GCC unroll 4") for (int i = 0; i < NX; ++i) a[i] = *(const sut_vector_##real *)(x[i] + k); \
                _Pragma("GCC unroll 4") for (int j = 0; j < NY; ++j)                                                \
                {                                                                                                   \
                    const sut_vector_##real b = *(const sut_vector_##real *)(y[j] + k);                             \
                    _Pragma("GCC unroll 4") for (int i = 0; i < NX; ++i) sum[i][j] += a[i] * b;                     \
                }                                                                                                   \
            }                                                                                                       \
            if (rest > v)                                                                                           \
                for (int i = 0; i < NX; ++i)                                                                        \
                    for (int j = 0; j < NY; ++j) {                                                                  \
                        real part[W] __attribute__((aligned(64)));                                                  \
                        *(sut_vector_##real *)part = sum[i][j];                                                     \
                        for (int l = 0; l < W && v + l < rest; ++l)                                                 \
                            part[l] += x[i][full + v + l] * y[j][full + v + l];                                     \
                        sum[i][j] = *(const sut_vector_##real *)part;                                               \
                    }                                                                                               \
            for (int i = 0; i < NX; ++i)                                                                            \
                for (int j = 0; j < NY; ++j)                                                                        \
                    sut_flush_##real(sum[i][j], lanes[i * NY + j] + v);                                             \
        }                                                                                                           \
    }

/* x against `rows` arrays y, sums in consecutive lanes. */
#define SUT_ONE_AGAINST(real)                                                                                       \
    SUT_TILE(real, 1, 1)                                                                                            \
    SUT_TILE(real, 1, 2)                                                                                            \
    SUT_TILE(real, 1, 4)                                                                                            \
    SUT_TILE(real, 2, 1)                                                                                            \
    SUT_TILE(real, 2, 2)                                                                                            \
    SUT_TILE(real, 2, 4)                                                                                            \
    static void sut_dots_##real(const real *x, const real *const *y, int rows, int64_t n, double (*lanes)[SUT_LANES]) \
    {                                                                                                               \
        int r = 0;                                                                                                  \
        for (; r + 4 <= rows; r += 4) {                                                                             \
            double *const to[4] = {lanes[r], lanes[r + 1], lanes[r + 2], lanes[r + 3]};                             \
            sut_tile_1_4_##real(&x, y + r, n, to);                                                                  \
        }                                                                                                           \
        if (r + 2 <= rows) {                                                                                        \
            double *const to[2] = {lanes[r], lanes[r + 1]};                                                         \
            sut_tile_1_2_##real(&x, y + r, n, to);                                                                  \
            r += 2;                                                                                                 \
        }                                                                                                           \
        if (r < rows) {                                                                                             \
            double *const to[1] = {lanes[r]};                                                                       \
            sut_tile_1_1_##real(&x, y + r, n, to);                                                                  \
        }                                                                                                           \
    }                                                                                                               \
                                                                                                                    \
    /* x_i . y_j for j <= i, in the lanes of a packed lower triangle. `row` numbers the rows that are present. Products  \
     * above the diagonal that a tile brings along go to `spare`. */                                                 \
    static void sut_triangle_##real(const real *const *x, const real *const *y, const int *row, int n_rows, int64_t n,   \
                                    double (*lanes)[SUT_LANES])                                                     \
    {                                                                                                               \
        double spare[SUT_LANES] = {0};                                                                              \
        for (int i = 0; i < n_rows; i += 2) {                                                                       \
            const int nx = i + 1 < n_rows ? 2 : 1;                                                                  \
            for (int j = 0; j < i + nx;) {                                                                          \
                const int left = i + nx - j, ny = left >= 4 ? 4 : left >= 2 ? 2 : 1;                                \
                double *to[8];                                                                                      \
                for (int a = 0; a < nx; ++a)                                                                        \
                    for (int b = 0; b < ny; ++b)                                                                    \
                        to[a * ny + b] =                                                                            \
                            j + b <= i + a ? lanes[row[i + a] * (row[i + a] + 1) / 2 + row[j + b]] : spare;         \
                if (nx == 2)                                                                                        \
                    (ny == 4 ? sut_tile_2_4_##real : ny == 2 ? sut_tile_2_2_##real : sut_tile_2_1_##real)(          \
                        x + i, y + j, n, to);                                                                       \
                else                                                                                                \
                    (ny == 4 ? sut_tile_1_4_##real : ny == 2 ? sut_tile_1_2_##real : sut_tile_1_1_##real)(          \
                        x + i, y + j, n, to);                                                                       \
                j += ny;                                                                                            \
            }                                                                                                       \
        }                                                                                                           \
    }

SUT_ONE_AGAINST(float)
SUT_ONE_AGAINST(double)

/* G G^T of few rows, in the lanes of its packed triangle. */
#define SUT_GRAM(real, M)                                                                                           \
    static void sut_gram_##M##_##real(const real *const *g, int64_t n, double (*lanes)[SUT_LANES])                  \
    {                                                                                                               \
        enum { W = SUT_VECTOR / (int)sizeof(real), S = M * (M + 1) / 2 };                                           \
        const int64_t full = n - n % SUT_LANES;                                                                     \
        const int rest = (int)(n - full);                                                                           \
        for (int v = 0; v < SUT_LANES; v += W) {                                                                    \
            sut_vector_##real sum[S];                                                                               \
            for (int s = 0; s < S; ++s)                                                                             \
                sum[s] = sut_start_##real(lanes[s] + v);                                                            \
            for (int64_t k = v; k < full; k += SUT_LANES) {                                                         \
                sut_vector_##real x[M];                                                                             \
                _Pragma("GCC unroll 4") for (int i = 0; i < M; ++i)                                                 \
                {                                                                                                   \
                    x[i] = *(const sut_vector_##real *)(g[i] + k);                                                  \
                    _Pragma("GCC unroll 4") for (int j = 0; j <= i; ++j) sum[i * (i + 1) / 2 + j] += x[i] * x[j];   \
                }                                                                                                   \
            }                                                                                                       \
            if (rest > v)                                                                                           \
                for (int i = 0; i < M; ++i)                                                                         \
                    for (int j = 0; j <= i; ++j) {                                                                  \
                        real part[W] __attribute__((aligned(64)));                                                  \
                        *(sut_vector_##real *)part = sum[i * (i + 1) / 2 + j];                                      \
                        for (int l = 0; l < W && v + l < rest; ++l)                                                 \
                            part[l] += g[i][full + v + l] * g[j][full + v + l];                                     \
                        sum[i * (i + 1) / 2 + j] = *(const sut_vector_##real *)part;                                \
                    }                                                                                               \
            for (int s = 0; s < S; ++s)                                                                             \
                sut_flush_##real(sum[s], lanes[s] + v);                                                             \
        }                                                                                                           \
    }

SUT_GRAM(float, 2)
SUT_GRAM(float, 3)
SUT_GRAM(double, 2)
SUT_GRAM(double, 3)

/* `value` where the comparison holds, else 0. */
#define SUT_WHERE(real, comparison, value) ((sut_vector_##real)((sut_mask_##real)(value) & (sut_mask_##real)(comparison)))

/*
 * Everything that a proposal of few losses is asked for, in one loop: with w = 1/D (times the ratio of rates)
 * u.u, u.(D u), u.g_i, g_i.(w g_j). `lanes`: uu, uMu, then b and the packed triangle.
 */
#define SUT_PROPOSAL_SUMS(real, M)                                                                                  \
    static void sut_proposal_sums_##M##_##real(const real *u, const real *d, const real *const *g, int64_t n,       \
                                               double *const *lanes)                                                \
    {                                                                                                               \
        enum { W = SUT_VECTOR / (int)sizeof(real), S = 2 + M + M * (M + 1) / 2 };                                   \
        const int64_t full = n - n % SUT_LANES;                                                                     \
        const int rest = (int)(n - full);                                                                           \
        for (int v = 0; v < SUT_LANES; v += W) {                                                                    \
            sut_vector_##real sum[S];                                                                               \
            for (int s = 0; s < S; ++s)                                                                             \
                sum[s] = sut_start_##real(lanes[s] + v);                                                            \
            for (int64_t k = v; k < full; k += SUT_LANES) {                                                         \
                const sut_vector_##real uk = *(const sut_vector_##real *)(u + k);                                   \
                const sut_vector_##real dk = *(const sut_vector_##real *)(d + k);                                   \
                /* D = 0: 1/M = 0. u = 0 has no share in u.(D u) even where D is Inf. */                            \
                const sut_vector_##real w = SUT_WHERE(real, dk > 0, 1 / dk);                                        \
                sum[0] += uk * uk;                                                                                  \
                sum[1] += uk * SUT_WHERE(real, uk != 0, uk * dk);                                                   \
                sut_vector_##real gk[M];                                                                            \
                _Pragma("GCC unroll 4") for (int i = 0; i < M; ++i)                                                 \
                {                                                                                                   \
                    gk[i] = *(const sut_vector_##real *)(g[i] + k);                                                 \
                    sum[2 + i] += uk * gk[i];                                                                       \
                    const sut_vector_##real x = gk[i] * w;                                                          \
                    _Pragma("GCC unroll 4") for (int j = 0; j <= i; ++j) sum[2 + M + i * (i + 1) / 2 + j] +=        \
                        x * gk[j];                                                                                  \
                }                                                                                                   \
            }                                                                                                       \
            if (rest > v) {                                                                                         \
                real part[S][W] __attribute__((aligned(64)));                                                       \
                for (int s = 0; s < S; ++s)                                                                         \
                    *(sut_vector_##real *)part[s] = sum[s];                                                         \
                for (int l = 0; l < W && v + l < rest; ++l) {                                                       \
                    const int64_t k = full + v + l;                                                                 \
                    const real w = d[k] > 0 ? 1 / d[k] : 0;                                                         \
                    part[0][l] += u[k] * u[k];                                                                      \
                    part[1][l] += u[k] != 0 ? u[k] * (u[k] * d[k]) : 0;                                             \
                    for (int i = 0; i < M; ++i) {                                                                   \
                        part[2 + i][l] += u[k] * g[i][k];                                                           \
                        const real x = g[i][k] * w;                                                                 \
                        for (int j = 0; j <= i; ++j)                                                                \
                            part[2 + M + i * (i + 1) / 2 + j][l] += x * g[j][k];                                    \
                    }                                                                                               \
                }                                                                                                   \
                for (int s = 0; s < S; ++s)                                                                         \
                    sum[s] = *(const sut_vector_##real *)part[s];                                                   \
            }                                                                                                       \
            for (int s = 0; s < S; ++s)                                                                             \
                sut_flush_##real(sum[s], lanes[s] + v);                                                             \
        }                                                                                                           \
    }

SUT_PROPOSAL_SUMS(float, 2)
SUT_PROPOSAL_SUMS(float, 3)
SUT_PROPOSAL_SUMS(double, 2)
SUT_PROPOSAL_SUMS(double, 3)

/* The same for an update p beside its proposal u: p.p, p.u, |p - u|^2, p.g_i. */
#define SUT_UPDATE_SUMS(real, M)                                                                                    \
    static void sut_update_sums_##M##_##real(const real *u, const real *p, const real *const *g, int64_t n,         \
                                             double *const *lanes)                                                  \
    {                                                                                                               \
        enum { W = SUT_VECTOR / (int)sizeof(real), S = 3 + M };                                                     \
        const int64_t full = n - n % SUT_LANES;                                                                     \
        const int rest = (int)(n - full);                                                                           \
        for (int v = 0; v < SUT_LANES; v += W) {                                                                    \
            sut_vector_##real sum[S];                                                                               \
            for (int s = 0; s < S; ++s)                                                                             \
                sum[s] = sut_start_##real(lanes[s] + v);                                                            \
            for (int64_t k = v; k < full; k += SUT_LANES) {                                                         \
                const sut_vector_##real uk = *(const sut_vector_##real *)(u + k);                                   \
                const sut_vector_##real pk = *(const sut_vector_##real *)(p + k);                                   \
                const sut_vector_##real difference = pk - uk;                                                       \
                sum[0] += pk * pk;                                                                                  \
                sum[1] += pk * uk;                                                                                  \
                sum[2] += difference * difference;                                                                  \
                _Pragma("GCC unroll 4") for (int i = 0; i < M; ++i) sum[3 + i] +=                                   \
                    pk * *(const sut_vector_##real *)(g[i] + k);                                                    \
            }                                                                                                       \
            if (rest > v) {                                                                                         \
                real part[S][W] __attribute__((aligned(64)));                                                       \
                for (int s = 0; s < S; ++s)                                                                         \
                    *(sut_vector_##real *)part[s] = sum[s];                                                         \
                for (int l = 0; l < W && v + l < rest; ++l) {                                                       \
                    const int64_t k = full + v + l;                                                                 \
                    const real difference = p[k] - u[k];                                                            \
                    part[0][l] += p[k] * p[k];                                                                      \
                    part[1][l] += p[k] * u[k];                                                                      \
                    part[2][l] += difference * difference;                                                          \
                    for (int i = 0; i < M; ++i)                                                                     \
                        part[3 + i][l] += p[k] * g[i][k];                                                           \
                }                                                                                                   \
                for (int s = 0; s < S; ++s)                                                                         \
                    sum[s] = *(const sut_vector_##real *)part[s];                                                   \
            }                                                                                                       \
            for (int s = 0; s < S; ++s)                                                                             \
                sut_flush_##real(sum[s], lanes[s] + v);                                                             \
        }                                                                                                           \
    }

SUT_UPDATE_SUMS(float, 0)
SUT_UPDATE_SUMS(float, 2)
SUT_UPDATE_SUMS(float, 3)
SUT_UPDATE_SUMS(double, 0)
SUT_UPDATE_SUMS(double, 2)
SUT_UPDATE_SUMS(double, 3)

#endif /* SUT_BACKEND_CPU_DOTS_H */
