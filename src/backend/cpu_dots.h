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

/* Where the sums of a block begin: f32 at 0, f64 at what the lanes hold already. */
static inline __attribute__((always_inline)) sut_vector_float sut_start_float(const double *lanes)
{
    (void)lanes;
    return (sut_vector_float){0};
}

static inline __attribute__((always_inline)) sut_vector_double sut_start_double(const double *lanes)
{
    return *(const sut_vector_double *)lanes;
}

/* And where they end: f32 sums are added to the double lanes. */
static inline __attribute__((always_inline)) void sut_end_float(const float *sums, double *lanes)
{
    for (int l = 0; l < SUT_LANES; l += SUT_VECTOR / 8)
        *(sut_vector_double *)(lanes + l) +=
            __builtin_convertvector(*(const sut_half_vector *)(sums + l), sut_vector_double);
}

static inline __attribute__((always_inline)) void sut_end_double(const double *sums, double *lanes)
{
    memcpy(lanes, sums, SUT_LANES * sizeof *lanes);
}

/* Keep a loaded vector in a register: GCC would load it again for each product, and loads are what limits a tile. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SUT_HOLD(x) __asm__("" : "+x"(x))
#else
#define SUT_HOLD(x) ((void)0)
#endif

/*
 * The frame of a loop with S sums over n elements: BODY(sum, k) adds vectors to sum[0..S), TAIL single elements to lane l of
 * part[0..S). Vectors of the 16 lanes are taken together as long as 8 sums are in flight, so that few sums do not wait for
 * each other.
 */
#define SUT_SUMS(real, S, BODY, TAIL)                                           \
    enum {                                                                      \
        W = SUT_VECTOR / (int)sizeof(real),                                     \
        ALL = SUT_LANES / W,                                                    \
        WANTED = (S) >= 8   ? 1                                                 \
                 : (S) >= 4 ? 2                                                 \
                 : (S) >= 2 ? 4                                                 \
                            : 8,                                                \
        TOGETHER = WANTED < ALL ? WANTED : ALL                                  \
    };                                                                          \
    const int64_t full = n - n % SUT_LANES;                                     \
    const int rest = (int)(n - full);                                           \
    real part[S][SUT_LANES] __attribute__((aligned(64)));                       \
    for (int first = 0; first < SUT_LANES; first += TOGETHER * W) {             \
        sut_vector_##real sums[TOGETHER][S];                                    \
        _Pragma("GCC unroll 8") for (int v = 0; v < TOGETHER; ++v)              \
            _Pragma("GCC unroll 16") for (int s = 0; s < (S); ++s) sums[v][s] = \
                sut_start_##real(lanes[s] + first + v * W);                     \
        for (int64_t block = first; block < full; block += SUT_LANES) {         \
            _Pragma("GCC unroll 8") for (int v = 0; v < TOGETHER; ++v)          \
            {                                                                   \
                sut_vector_##real *const sum = sums[v];                         \
                const int64_t k = block + v * W;                                \
                BODY                                                            \
            }                                                                   \
        }                                                                       \
        _Pragma("GCC unroll 8") for (int v = 0; v < TOGETHER; ++v)              \
                _Pragma("GCC unroll 16") for (int s = 0; s < (S); ++s) *        \
            (sut_vector_##real *)(part[s] + first + v * W) = sums[v][s];        \
    }                                                                           \
    for (int l = 0; l < rest; ++l) {                                            \
        const int64_t k = full + l;                                             \
        TAIL                                                                    \
    }                                                                           \
    for (int s = 0; s < (S); ++s)                                               \
        sut_end_##real(part[s], lanes[s]);

/* A tile: rows x[0..NX) against y[0..NY); lanes[i * NY + j] belongs to x_i . y_j. */
#define SUT_TILE_BODY(real, NX, NY)                                                       \
    sut_vector_##real a[NX];                                                              \
    _Pragma("GCC unroll 4") for (int i = 0; i < NX; ++i)                                  \
    {                                                                                     \
        a[i] = *(const sut_vector_##real *)(x[i] + k);                                    \
        SUT_HOLD(a[i]);                                                                   \
    }                                                                                     \
    _Pragma("GCC unroll 4") for (int j = 0; j < NY; ++j)                                  \
    {                                                                                     \
        sut_vector_##real b = *(const sut_vector_##real *)(y[j] + k);                     \
        SUT_HOLD(b);                                                                      \
        _Pragma("GCC unroll 4") for (int i = 0; i < NX; ++i) sum[i * NY + j] += a[i] * b; \
    }
#define SUT_TILE_TAIL(NX, NY)        \
    for (int i = 0; i < NX; ++i)     \
        for (int j = 0; j < NY; ++j) \
            part[i * NY + j][l] += x[i][k] * y[j][k];

#define SUT_TILE(real, NX, NY)                                                                       \
    static void sut_tile_##NX##_##NY##_##real(const real *const *x, const real *const *y, int64_t n, \
                                              double *const *lanes)                                  \
    {                                                                                                \
        SUT_SUMS(real, NX *NY, SUT_TILE_BODY(real, NX, NY), SUT_TILE_TAIL(NX, NY))                   \
    }

/* x against `rows` arrays y, sums in consecutive lanes. */
#define SUT_DOT_PRODUCTS(real)                                                                                             \
    SUT_TILE(real, 1, 1)                                                                                                   \
    SUT_TILE(real, 1, 2)                                                                                                   \
    SUT_TILE(real, 1, 4)                                                                                                   \
    SUT_TILE(real, 2, 1)                                                                                                   \
    SUT_TILE(real, 2, 2)                                                                                                   \
    SUT_TILE(real, 2, 4)                                                                                                   \
    static void sut_dots_##real(const real *x, const real *const *y, int rows, int64_t n, double(*lanes)[SUT_LANES])       \
    {                                                                                                                      \
        int r = 0;                                                                                                         \
        for (; r + 4 <= rows; r += 4) {                                                                                    \
            double *const to[4] = {lanes[r], lanes[r + 1], lanes[r + 2], lanes[r + 3]};                                    \
            sut_tile_1_4_##real(&x, y + r, n, to);                                                                         \
        }                                                                                                                  \
        if (r + 2 <= rows) {                                                                                               \
            double *const to[2] = {lanes[r], lanes[r + 1]};                                                                \
            sut_tile_1_2_##real(&x, y + r, n, to);                                                                         \
            r += 2;                                                                                                        \
        }                                                                                                                  \
        if (r < rows) {                                                                                                    \
            double *const to[1] = {lanes[r]};                                                                              \
            sut_tile_1_1_##real(&x, y + r, n, to);                                                                         \
        }                                                                                                                  \
    }                                                                                                                      \
                                                                                                                           \
    /* x_i . y_j for j <= i, in the lanes of a packed lower triangle. `row` numbers the rows that are present. Products  \
     * above the diagonal that a tile brings along go to `spare`. */ \
    static void sut_triangle_##real(const real *const *x, const real *const *y, const int *row, int n_rows, int64_t n,     \
                                    double(*lanes)[SUT_LANES])                                                             \
    {                                                                                                                      \
        double spare[SUT_LANES] = {0};                                                                                     \
        for (int i = 0; i < n_rows; i += 2) {                                                                              \
            const int nx = i + 1 < n_rows ? 2 : 1;                                                                         \
            for (int j = 0; j < i + nx;) {                                                                                 \
                const int left = i + nx - j, ny = left >= 4 ? 4 : left >= 2 ? 2 : 1;                                       \
                double *to[8];                                                                                             \
                for (int a = 0; a < nx; ++a)                                                                               \
                    for (int b = 0; b < ny; ++b)                                                                           \
                        to[a * ny + b] =                                                                                   \
                            j + b <= i + a ? lanes[row[i + a] * (row[i + a] + 1) / 2 + row[j + b]] : spare;                \
                if (nx == 2)                                                                                               \
                    (ny == 4   ? sut_tile_2_4_##real                                                                       \
                     : ny == 2 ? sut_tile_2_2_##real                                                                       \
                               : sut_tile_2_1_##real)(x + i, y + j, n, to);                                                \
                else                                                                                                       \
                    (ny == 4   ? sut_tile_1_4_##real                                                                       \
                     : ny == 2 ? sut_tile_1_2_##real                                                                       \
                               : sut_tile_1_1_##real)(x + i, y + j, n, to);                                                \
                j += ny;                                                                                                   \
            }                                                                                                              \
        }                                                                                                                  \
    }

SUT_DOT_PRODUCTS(float)
SUT_DOT_PRODUCTS(double)

/* G G^T of few rows, in the lanes of its packed triangle. */
#define SUT_GRAM_BODY(real, M)                                                                        \
    sut_vector_##real x[M];                                                                           \
    _Pragma("GCC unroll 4") for (int i = 0; i < M; ++i)                                               \
    {                                                                                                 \
        x[i] = *(const sut_vector_##real *)(g[i] + k);                                                \
        SUT_HOLD(x[i]);                                                                               \
        _Pragma("GCC unroll 4") for (int j = 0; j <= i; ++j) sum[i * (i + 1) / 2 + j] += x[i] * x[j]; \
    }
#define SUT_GRAM_TAIL(M)             \
    for (int i = 0; i < M; ++i)      \
        for (int j = 0; j <= i; ++j) \
            part[i * (i + 1) / 2 + j][l] += g[i][k] * g[j][k];

#define SUT_GRAM(real, M)                                                                         \
    static void sut_gram_##M##_##real(const real *const *g, int64_t n, double(*lanes)[SUT_LANES]) \
    {                                                                                             \
        SUT_SUMS(real, M *(M + 1) / 2, SUT_GRAM_BODY(real, M), SUT_GRAM_TAIL(M))                  \
    }

/* `value` where the comparison holds, else 0. */
#define SUT_WHERE(real, comparison, value) \
    ((sut_vector_##real)((sut_mask_##real)(value) & (sut_mask_##real)(comparison)))

/*
 * Everything that a proposal of few losses is asked for, in one loop: u.u, u.(D u), u.g_i, g_i.(1/D g_j). u = 0 has no share in u.(D u) even where D is Inf. `lanes`: uu, uMu, then b and the packed triangle.
 */
#define SUT_PROPOSAL_BODY(real, M)                                                                          \
    const sut_vector_##real uk = *(const sut_vector_##real *)(u + k);                                       \
    const sut_vector_##real dk = *(const sut_vector_##real *)(d + k);                                       \
    const sut_vector_##real w = *(const sut_vector_##real *)(inverse + k);                                  \
    sum[0] += uk * uk;                                                                                      \
    sum[1] += uk * SUT_WHERE(real, uk != 0, uk * dk);                                                       \
    sut_vector_##real gk[M];                                                                                \
    _Pragma("GCC unroll 4") for (int i = 0; i < M; ++i)                                                     \
    {                                                                                                       \
        gk[i] = *(const sut_vector_##real *)(g[i] + k);                                                     \
        SUT_HOLD(gk[i]);                                                                                    \
        sum[2 + i] += uk * gk[i];                                                                           \
        const sut_vector_##real x = gk[i] * w;                                                              \
        _Pragma("GCC unroll 4") for (int j = 0; j <= i; ++j) sum[2 + M + i * (i + 1) / 2 + j] += x * gk[j]; \
    }
#define SUT_PROPOSAL_TAIL(real, M)                               \
    part[0][l] += u[k] * u[k];                                   \
    part[1][l] += u[k] != 0 ? u[k] * (u[k] * d[k]) : 0;          \
    for (int i = 0; i < M; ++i) {                                \
        part[2 + i][l] += u[k] * g[i][k];                        \
        const real x = g[i][k] * inverse[k];                     \
        for (int j = 0; j <= i; ++j)                             \
            part[2 + M + i * (i + 1) / 2 + j][l] += x * g[j][k]; \
    }

#define SUT_PROPOSAL_SUMS(real, M)                                                                      \
    static void sut_proposal_sums_##M##_##real(const real *u, const real *d, const real *inverse,       \
                                               const real *const *g, int64_t n, double *const *lanes)   \
    {                                                                                                   \
        SUT_SUMS(real, 2 + M + M * (M + 1) / 2, SUT_PROPOSAL_BODY(real, M), SUT_PROPOSAL_TAIL(real, M)) \
    }

/* An update p beside its proposal u: p.p, p.u, |p - u|^2, p.g_i. */
#define SUT_UPDATE_BODY(real, M)                                      \
    const sut_vector_##real uk = *(const sut_vector_##real *)(u + k); \
    const sut_vector_##real pk = *(const sut_vector_##real *)(p + k); \
    const sut_vector_##real difference = pk - uk;                     \
    sum[0] += pk * pk;                                                \
    sum[1] += pk * uk;                                                \
    sum[2] += difference * difference;                                \
    _Pragma("GCC unroll 4") for (int i = 0; i < M; ++i) sum[3 + i] += pk * *(const sut_vector_##real *)(g[i] + k);
#define SUT_UPDATE_TAIL(real, M)           \
    const real difference = p[k] - u[k];   \
    part[0][l] += p[k] * p[k];             \
    part[1][l] += p[k] * u[k];             \
    part[2][l] += difference * difference; \
    for (int i = 0; i < M; ++i)            \
        part[3 + i][l] += p[k] * g[i][k];

#define SUT_UPDATE_SUMS(real, M)                                                                            \
    static void sut_update_sums_##M##_##real(const real *u, const real *p, const real *const *g, int64_t n, \
                                             double *const *lanes)                                          \
    {                                                                                                       \
        (void)g;                                                                                            \
        SUT_SUMS(real, 3 + M, SUT_UPDATE_BODY(real, M), SUT_UPDATE_TAIL(real, M))                           \
    }

#define SUT_FEW_LOSSES(real)   \
    SUT_GRAM(real, 2)          \
    SUT_GRAM(real, 3)          \
    SUT_PROPOSAL_SUMS(real, 2) \
    SUT_PROPOSAL_SUMS(real, 3) \
    SUT_UPDATE_SUMS(real, 0)   \
    SUT_UPDATE_SUMS(real, 2)   \
    SUT_UPDATE_SUMS(real, 3)

SUT_FEW_LOSSES(float)
SUT_FEW_LOSSES(double)

#endif /* SUT_BACKEND_CPU_DOTS_H */
