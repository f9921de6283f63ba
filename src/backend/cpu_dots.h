/*
 * Dot products in a fixed number of lanes: element k of a block goes to lane k mod 16 on every instruction set, so every
 * machine adds in the same order. Three kinds of sums:
 *
 *   float    f32 in f32 lanes, which live for one block of at most SUT_BLOCK elements and are then added to double lanes
 *   double   f64 in double lanes
 *   wide     f32, multiplied and summed in double lanes (`strict`). A product of two f32 is exact in double, so that a fused
 *            multiply-add gives the same bits as two instructions and may be used where there is one
 *
 * A kernel is a `step` on one vector of its inputs within one frame (SUT_SUMS). The frame walks the 16 lanes a few native
 * vectors at a time, so that the sums stay in registers whatever the width, and pads the rest of a block with zeros.
 * Multiplications are what limits them: two a cycle, six instructions a cycle in all. A tile of 2 x 4 rows loads 6 vectors
 * for its 8 products, the triangle of 4 rows 4 for its 10.
 */
#ifndef SUT_BACKEND_CPU_DOTS_H
#define SUT_BACKEND_CPU_DOTS_H

#include "backend/backend.h"

#include <stdint.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

#define SUT_LANES 16

#if defined(__AVX512F__)
#define SUT_VECTOR 64
#elif defined(__AVX__)
#define SUT_VECTOR 32
#else
#define SUT_VECTOR 16
#endif

/* Before a loop: unroll it; its iterations are independent. */
#if defined(__clang__)
#define SUT_UNROLL(times) _Pragma("clang loop unroll(full)")
#define SUT_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define SUT_PRAGMA(text) _Pragma(#text)
#define SUT_UNROLL(times) SUT_PRAGMA(GCC unroll times)
#define SUT_INDEPENDENT _Pragma("GCC ivdep")
#endif

#define SUT_INLINE static inline __attribute__((always_inline, unused))

typedef float sut_vector_float __attribute__((vector_size(SUT_VECTOR), aligned(4), may_alias));
typedef double sut_vector_double __attribute__((vector_size(SUT_VECTOR), aligned(8), may_alias));
typedef sut_vector_double sut_vector_wide;
typedef int32_t sut_mask_float __attribute__((vector_size(SUT_VECTOR)));
typedef int64_t sut_mask_double __attribute__((vector_size(SUT_VECTOR)));
typedef sut_mask_double sut_mask_wide;
typedef float sut_half_vector __attribute__((vector_size(SUT_VECTOR / 2), aligned(4), may_alias));

/* What a kind reads from memory, and what it computes with. */
typedef float sut_stored_float;
typedef double sut_stored_double;
typedef float sut_stored_wide;
typedef float sut_number_float;
typedef double sut_number_double;
typedef double sut_number_wide;

/* Keep a loaded vector in a register: GCC would load it again for each product, and loads are what limits a tile. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SUT_HOLD(x) __asm__("" : "+x"(x))
#else
#define SUT_HOLD(x) ((void)0)
#endif

SUT_INLINE sut_vector_float sut_read_float(const float *from)
{
    return *(const sut_vector_float *)from;
}

SUT_INLINE sut_vector_double sut_read_double(const double *from)
{
    return *(const sut_vector_double *)from;
}

/* GCC 12 takes __builtin_convertvector of four floats apart. */
SUT_INLINE sut_vector_double sut_widen(sut_half_vector x)
{
#if defined(__AVX512F__)
    return (sut_vector_double)_mm512_cvtps_pd((__m256)x);
#elif defined(__AVX__)
    return (sut_vector_double)_mm256_cvtps_pd((__m128)x);
#else
    return __builtin_convertvector(x, sut_vector_double);
#endif
}

SUT_INLINE sut_half_vector sut_narrow(sut_vector_double x)
{
#if defined(__AVX512F__)
    return (sut_half_vector)_mm512_cvtpd_ps((__m512d)x);
#elif defined(__AVX__)
    return (sut_half_vector)_mm256_cvtpd_ps((__m256d)x);
#else
    return __builtin_convertvector(x, sut_half_vector);
#endif
}

SUT_INLINE sut_vector_double sut_read_wide(const float *from)
{
    return sut_widen(*(const sut_half_vector *)from);
}

/* sum + a b; `inputs`: a and b come from memory as they are. */
SUT_INLINE sut_vector_float sut_add_inputs_float(sut_vector_float sum, sut_vector_float a, sut_vector_float b)
{
    return sum + a * b;
}

SUT_INLINE sut_vector_double sut_add_inputs_double(sut_vector_double sum, sut_vector_double a, sut_vector_double b)
{
    return sum + a * b;
}

SUT_INLINE sut_vector_double sut_add_inputs_wide(sut_vector_double sum, sut_vector_double a, sut_vector_double b)
{
#if defined(__FMA__) && defined(__AVX512F__)
    return (sut_vector_double)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)sum);
#elif defined(__FMA__)
    return (sut_vector_double)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)sum);
#else
    return sum + a * b;
#endif
}

/* Where the sums of a block begin: f32 at 0, doubles at what the lanes hold already. */
SUT_INLINE sut_vector_float sut_start_float(const double *lanes)
{
    (void)lanes;
    return (sut_vector_float){0};
}

SUT_INLINE sut_vector_double sut_start_double(const double *lanes)
{
    return *(const sut_vector_double *)lanes;
}
#define sut_start_wide sut_start_double

/* And where they end: f32 sums are added to the double lanes. */
SUT_INLINE void sut_end_float(sut_vector_float sum, double *lanes)
{
    sut_half_vector half[2];
    memcpy(half, &sum, sizeof sum);
    *(sut_vector_double *)lanes += sut_widen(half[0]);
    *(sut_vector_double *)(lanes + SUT_VECTOR / 8) += sut_widen(half[1]);
}

SUT_INLINE void sut_end_double(sut_vector_double sum, double *lanes)
{
    *(sut_vector_double *)lanes = sum;
}
#define sut_end_wide sut_end_double

/* The elements from `full` to n of some arrays, with zeros up to 16. */
static __attribute__((noinline, unused)) void sut_pad_float(const float *const *in, int inputs, int64_t full, int64_t n,
                                                            float (*rest)[SUT_LANES], const float **padded)
{
    memset(rest, 0, (size_t)inputs * sizeof *rest);
    for (int i = 0; i < inputs; ++i)
        padded[i] = memcpy(rest[i], in[i] + full, (size_t)(n - full) * sizeof **rest);
}

static __attribute__((noinline, unused)) void sut_pad_double(const double *const *in, int inputs, int64_t full,
                                                             int64_t n, double (*rest)[SUT_LANES],
                                                             const double **padded)
{
    memset(rest, 0, (size_t)inputs * sizeof *rest);
    for (int i = 0; i < inputs; ++i)
        padded[i] = memcpy(rest[i], in[i] + full, (size_t)(n - full) * sizeof **rest);
}
#define sut_pad_wide sut_pad_float

/* The lanes of one sum, added in pairs. */
static inline double sut_fold(const double *lanes)
{
    double eight[8], four[4];
    for (int l = 0; l < 8; ++l)
        eight[l] = lanes[l] + lanes[l + 8];
    for (int l = 0; l < 4; ++l)
        four[l] = eight[l] + eight[l + 4];
    return (four[0] + four[2]) + (four[1] + four[3]);
}

/*
 * The frame. STEP(sum, in, k) adds one vector of each of the INPUTS arrays, from element k on, to sum[0..S). Vectors of the
 * 16 lanes are taken together as long as 8 sums are in flight, so that few sums do not wait for each other. The first
 * STREAMS inputs come from memory and are fetched `ahead` elements ahead (0: not at all).
 */
#define SUT_SUMS(kind, name, INPUTS, STREAMS, S, STEP)                                                                \
    static __attribute__((unused)) void name(const sut_stored_##kind *const *in, int64_t n, int64_t ahead,            \
                                             double *const *lanes)                                                    \
    {                                                                                                                 \
        enum {                                                                                                        \
            W = SUT_VECTOR / (int)sizeof(sut_number_##kind),                                                          \
            ALL = SUT_LANES / W,                                                                                      \
            WANTED = (S) >= 8   ? 1                                                                                   \
                     : (S) >= 4 ? 2                                                                                   \
                     : (S) >= 2 ? 4                                                                                   \
                                : 8,                                                                                  \
            TOGETHER = WANTED < ALL ? WANTED : ALL                                                                    \
        };                                                                                                            \
        const int64_t full = n - n % SUT_LANES;                                                                       \
        sut_stored_##kind rest[INPUTS][SUT_LANES];                                                                    \
        const sut_stored_##kind *padded[INPUTS];                                                                      \
        if (full < n)                                                                                                 \
            sut_pad_##kind(in, INPUTS, full, n, rest, padded);                                                        \
        for (int first = 0; first < SUT_LANES; first += TOGETHER * W) {                                               \
            sut_vector_##kind sums[TOGETHER][S];                                                                      \
            SUT_UNROLL(8)                                                                                             \
            for (int v = 0; v < TOGETHER; ++v)                                                                        \
                SUT_UNROLL(16) for (int s = 0; s < (S); ++s) sums[v][s] = sut_start_##kind(lanes[s] + first + v * W); \
            for (int64_t block = first; block < full; block += SUT_LANES) {                                           \
                if ((STREAMS) && ahead && first == 0)                                                                 \
                    SUT_UNROLL(4) for (int i = 0; i < (STREAMS); ++i) __builtin_prefetch(in[i] + block + ahead);      \
                SUT_UNROLL(8) for (int v = 0; v < TOGETHER; ++v) STEP(sums[v], in, block + v * W);                    \
            }                                                                                                         \
            if (full < n)                                                                                             \
                SUT_UNROLL(8) for (int v = 0; v < TOGETHER; ++v) STEP(sums[v], padded, first + v * W);                \
            SUT_UNROLL(8)                                                                                             \
            for (int v = 0; v < TOGETHER; ++v)                                                                        \
                SUT_UNROLL(16) for (int s = 0; s < (S); ++s) sut_end_##kind(sums[v][s], lanes[s] + first + v * W);    \
        }                                                                                                             \
    }

/* NX rows against NY others: inputs x[0..NX), y[0..NY); sum i * NY + j is x_i . y_j. */
#define SUT_TILE(kind, NX, NY)                                                                                     \
    SUT_INLINE void sut_tile_step_##NX##_##NY##_##kind(sut_vector_##kind *sum, const sut_stored_##kind *const *in, \
                                                       int64_t k)                                                  \
    {                                                                                                              \
        sut_vector_##kind x[NX];                                                                                   \
        SUT_UNROLL(4) for (int i = 0; i < (NX); ++i)                                                               \
        {                                                                                                          \
            x[i] = sut_read_##kind(in[i] + k);                                                                     \
            SUT_HOLD(x[i]);                                                                                        \
        }                                                                                                          \
        SUT_UNROLL(8) for (int j = 0; j < (NY); ++j)                                                               \
        {                                                                                                          \
            sut_vector_##kind y = sut_read_##kind(in[(NX) + j] + k);                                               \
            if ((NX) > 1)                                                                                          \
                SUT_HOLD(y);                                                                                       \
            SUT_UNROLL(4)                                                                                          \
            for (int i = 0; i < (NX); ++i)                                                                         \
                sum[i * (NY) + j] = sut_add_inputs_##kind(sum[i * (NY) + j], x[i], y);                             \
        }                                                                                                          \
    }                                                                                                              \
    SUT_SUMS(kind, sut_tile_##NX##_##NY##_##kind, NX + NY, 0, NX * NY, sut_tile_step_##NX##_##NY##_##kind)

/* The same under a metric: inputs x, y, w; x_i . (w y_j) with the product w x_i taken first. */
#define SUT_METRIC_TILE(kind, NX, NY)                                                                        \
    SUT_INLINE void sut_metric_tile_step_##NX##_##NY##_##kind(sut_vector_##kind *sum,                        \
                                                              const sut_stored_##kind *const *in, int64_t k) \
    {                                                                                                        \
        sut_vector_##kind w = sut_read_##kind(in[(NX) + (NY)] + k), x[NX];                                   \
        SUT_HOLD(w);                                                                                         \
        SUT_UNROLL(4) for (int i = 0; i < (NX); ++i) x[i] = sut_read_##kind(in[i] + k) * w;                  \
        SUT_UNROLL(8) for (int j = 0; j < (NY); ++j)                                                         \
        {                                                                                                    \
            sut_vector_##kind y = sut_read_##kind(in[(NX) + j] + k);                                         \
            if ((NX) > 1)                                                                                    \
                SUT_HOLD(y);                                                                                 \
            SUT_UNROLL(4) for (int i = 0; i < (NX); ++i) sum[i * (NY) + j] += x[i] * y;                      \
        }                                                                                                    \
    }                                                                                                        \
    SUT_SUMS(kind, sut_metric_tile_##NX##_##NY##_##kind, NX + NY + 1, 0, NX * NY,                            \
             sut_metric_tile_step_##NX##_##NY##_##kind)

/* M rows against each other, as a packed lower triangle. */
#define SUT_TRIANGLE_OF(kind, M)                                                                               \
    SUT_INLINE void sut_triangle_step_##M##_##kind(sut_vector_##kind *sum, const sut_stored_##kind *const *in, \
                                                   int64_t k)                                                  \
    {                                                                                                          \
        sut_vector_##kind x[M];                                                                                \
        SUT_UNROLL(4) for (int i = 0; i < (M); ++i)                                                            \
        {                                                                                                      \
            x[i] = sut_read_##kind(in[i] + k);                                                                 \
            SUT_HOLD(x[i]);                                                                                    \
            SUT_UNROLL(4)                                                                                      \
            for (int j = 0; j <= i; ++j)                                                                       \
                sum[i * (i + 1) / 2 + j] = sut_add_inputs_##kind(sum[i * (i + 1) / 2 + j], x[i], x[j]);        \
        }                                                                                                      \
    }                                                                                                          \
    SUT_SUMS(kind, sut_triangle_##M##_##kind, M, M, M *(M + 1) / 2, sut_triangle_step_##M##_##kind)

/* Those of M rows in two places: inputs x, y; the products of the x, then those of the y. */
#define SUT_TRIANGLE_PAIR(kind, M)                                                                                  \
    SUT_INLINE void sut_triangle_pair_step_##M##_##kind(sut_vector_##kind *sum, const sut_stored_##kind *const *in, \
                                                        int64_t k)                                                  \
    {                                                                                                               \
        sut_triangle_step_##M##_##kind(sum, in, k);                                                                 \
        sut_triangle_step_##M##_##kind(sum + M * (M + 1) / 2, in + M, k);                                           \
    }                                                                                                               \
    SUT_SUMS(kind, sut_triangle_pair_##M##_##kind, 2 * M, 2 * M, M * (M + 1), sut_triangle_pair_step_##M##_##kind)

/* And under a metric: inputs x, w. */
#define SUT_METRIC_TRIANGLE(kind, M)                                                                                  \
    SUT_INLINE void sut_metric_triangle_step_##M##_##kind(sut_vector_##kind *sum, const sut_stored_##kind *const *in, \
                                                          int64_t k)                                                  \
    {                                                                                                                 \
        const sut_vector_##kind w = sut_read_##kind(in[M] + k);                                                       \
        sut_vector_##kind x[M];                                                                                       \
        SUT_UNROLL(4) for (int i = 0; i < (M); ++i)                                                                   \
        {                                                                                                             \
            x[i] = sut_read_##kind(in[i] + k);                                                                        \
            SUT_HOLD(x[i]);                                                                                           \
            const sut_vector_##kind weighted = x[i] * w;                                                              \
            SUT_UNROLL(4) for (int j = 0; j <= i; ++j) sum[i * (i + 1) / 2 + j] += weighted * x[j];                   \
        }                                                                                                             \
    }                                                                                                                 \
    SUT_SUMS(kind, sut_metric_triangle_##M##_##kind, M + 1, 0, M * (M + 1) / 2, sut_metric_triangle_step_##M##_##kind)

/* `value` where the comparison holds, else 0. */
#define SUT_WHERE(kind, comparison, value) \
    ((sut_vector_##kind)((sut_mask_##kind)(value) & (sut_mask_##kind)(comparison)))

/* Inputs u, D, v: u.u and u.(D v), v being u or what u was before its scaling. u = 0 has no share even where D is Inf. */
#define SUT_LENGTHS(kind)                                                                                          \
    SUT_INLINE void sut_lengths_step_##kind(sut_vector_##kind *sum, const sut_stored_##kind *const *in, int64_t k) \
    {                                                                                                              \
        const sut_vector_##kind u = sut_read_##kind(in[0] + k), v = sut_read_##kind(in[2] + k);                    \
        sum[0] = sut_add_inputs_##kind(sum[0], u, u);                                                              \
        sum[1] += u * SUT_WHERE(kind, v != 0, v * sut_read_##kind(in[1] + k));                                     \
    }                                                                                                              \
    SUT_SUMS(kind, sut_lengths_##kind, 3, 0, 2, sut_lengths_step_##kind)

/*
 * Everything that a proposal of M losses is asked for, in one go. Inputs u, D, 1/D, g_1..g_M; sums u.u, u.(D u), u.g_i and
 * the packed triangle g_i.(1/D g_j).
 */
#define SUT_PROPOSAL_SUMS(kind, M)                                                                             \
    SUT_INLINE void sut_proposal_step_##M##_##kind(sut_vector_##kind *sum, const sut_stored_##kind *const *in, \
                                                   int64_t k)                                                  \
    {                                                                                                          \
        const sut_vector_##kind u = sut_read_##kind(in[0] + k), w = sut_read_##kind(in[2] + k);                \
        sum[0] = sut_add_inputs_##kind(sum[0], u, u);                                                          \
        sum[1] += u * SUT_WHERE(kind, u != 0, u * sut_read_##kind(in[1] + k));                                 \
        sut_vector_##kind g[M];                                                                                \
        SUT_UNROLL(4) for (int i = 0; i < (M); ++i)                                                            \
        {                                                                                                      \
            g[i] = sut_read_##kind(in[3 + i] + k);                                                             \
            SUT_HOLD(g[i]);                                                                                    \
            sum[2 + i] = sut_add_inputs_##kind(sum[2 + i], u, g[i]);                                           \
            const sut_vector_##kind x = g[i] * w;                                                              \
            SUT_UNROLL(4) for (int j = 0; j <= i; ++j) sum[2 + (M) + i * (i + 1) / 2 + j] += x * g[j];         \
        }                                                                                                      \
    }                                                                                                          \
    SUT_SUMS(kind, sut_proposal_sums_##M##_##kind, 3 + M, 0, 2 + M + M * (M + 1) / 2, sut_proposal_step_##M##_##kind)

/* An update p beside its proposal u: inputs u, p, g_1..g_M; sums p.p, p.u, |p - u|^2, p.g_i. */
#define SUT_UPDATE_SUMS(kind, M)                                                                             \
    SUT_INLINE void sut_update_step_##M##_##kind(sut_vector_##kind *sum, const sut_stored_##kind *const *in, \
                                                 int64_t k)                                                  \
    {                                                                                                        \
        const sut_vector_##kind u = sut_read_##kind(in[0] + k), p = sut_read_##kind(in[1] + k);              \
        const sut_vector_##kind difference = p - u;                                                          \
        sum[0] = sut_add_inputs_##kind(sum[0], p, p);                                                        \
        sum[1] = sut_add_inputs_##kind(sum[1], p, u);                                                        \
        sum[2] += difference * difference;                                                                   \
        SUT_UNROLL(4)                                                                                        \
        for (int i = 0; i < (M); ++i)                                                                        \
            sum[3 + i] = sut_add_inputs_##kind(sum[3 + i], p, sut_read_##kind(in[2 + i] + k));               \
    }                                                                                                        \
    SUT_SUMS(kind, sut_update_sums_##M##_##kind, 2 + M, 0, 3 + M, sut_update_step_##M##_##kind)

/*
 * Any number of rows from these. sut_dots: x against `rows` arrays. sut_triangle: rows x_i . x_j, or x_i . (w x_j) where w is
 * given, for j <= i, into the lanes of a packed lower triangle in which `row` numbers the rows that are present.
 */
#define SUT_MANY_ROWS(kind)                                                                                         \
    static void sut_dots_##kind(const sut_stored_##kind *x, const sut_stored_##kind *const *y, int rows, int64_t n, \
                                double(*lanes)[SUT_LANES])                                                          \
    {                                                                                                               \
        for (int r = 0; r < rows;) {                                                                                \
            const int left = rows - r, now = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;                     \
            const sut_stored_##kind *in[9] = {x};                                                                   \
            double *to[8];                                                                                          \
            for (int j = 0; j < now; ++j) {                                                                         \
                in[1 + j] = y[r + j];                                                                               \
                to[j] = lanes[r + j];                                                                               \
            }                                                                                                       \
            (now == 8   ? sut_tile_1_8_##kind                                                                       \
             : now == 4 ? sut_tile_1_4_##kind                                                                       \
             : now == 2 ? sut_tile_1_2_##kind                                                                       \
                        : sut_tile_1_1_##kind)(in, n, 0, to);                                                       \
            r += now;                                                                                               \
        }                                                                                                           \
    }                                                                                                               \
                                                                                                                    \
    static void sut_triangle_##kind(const sut_stored_##kind *const *x, const sut_stored_##kind *w, const int *row,  \
                                    int n_rows, int64_t n, int64_t ahead, double(*lanes)[SUT_LANES])                \
    {                                                                                                               \
        for (int i = 0; i < n_rows; i += 4) {                                                                       \
            const int size = n_rows - i < 4 ? n_rows - i : 4;                                                       \
            const sut_stored_##kind *in[7];                                                                         \
            double *to[10];                                                                                         \
            for (int a = 0; a < size; ++a) {                                                                        \
                in[a] = x[i + a];                                                                                   \
                for (int b = 0; b <= a; ++b)                                                                        \
                    to[a * (a + 1) / 2 + b] = lanes[row[i + a] * (row[i + a] + 1) / 2 + row[i + b]];                \
            }                                                                                                       \
            if (w) {                                                                                                \
                in[size] = w;                                                                                       \
                (size == 4   ? sut_metric_triangle_4_##kind                                                         \
                 : size == 3 ? sut_metric_triangle_3_##kind                                                         \
                 : size == 2 ? sut_metric_triangle_2_##kind                                                         \
                             : sut_metric_triangle_1_##kind)(in, n, ahead, to);                                     \
            } else {                                                                                                \
                (size == 4   ? sut_triangle_4_##kind                                                                \
                 : size == 3 ? sut_triangle_3_##kind                                                                \
                 : size == 2 ? sut_triangle_2_##kind                                                                \
                             : sut_triangle_1_##kind)(in, n, ahead, to);                                            \
            }                                                                                                       \
            for (int a = 0; a < size;) {                                                                            \
                const int nx = a + 1 < size ? 2 : 1;                                                                \
                for (int j = 0; j < i; j += 4) {                                                                    \
                    for (int c = 0; c < nx; ++c) {                                                                  \
                        in[c] = x[i + a + c];                                                                       \
                        for (int b = 0; b < 4; ++b)                                                                 \
                            to[c * 4 + b] = lanes[row[i + a + c] * (row[i + a + c] + 1) / 2 + row[j + b]];          \
                    }                                                                                               \
                    for (int b = 0; b < 4; ++b)                                                                     \
                        in[nx + b] = x[j + b];                                                                      \
                    in[nx + 4] = w;                                                                                 \
                    if (nx == 2)                                                                                    \
                        (w ? sut_metric_tile_2_4_##kind : sut_tile_2_4_##kind)(in, n, 0, to);                       \
                    else                                                                                            \
                        (w ? sut_metric_tile_1_4_##kind : sut_tile_1_4_##kind)(in, n, 0, to);                       \
                }                                                                                                   \
                a += nx;                                                                                            \
            }                                                                                                       \
        }                                                                                                           \
    }

#define SUT_DOT_PRODUCTS(kind)   \
    SUT_TILE(kind, 1, 1)         \
    SUT_TILE(kind, 1, 2)         \
    SUT_TILE(kind, 1, 4)         \
    SUT_TILE(kind, 1, 8)         \
    SUT_TILE(kind, 2, 4)         \
    SUT_METRIC_TILE(kind, 1, 4)  \
    SUT_METRIC_TILE(kind, 2, 4)  \
    SUT_TRIANGLE_OF(kind, 1)     \
    SUT_TRIANGLE_OF(kind, 2)     \
    SUT_TRIANGLE_OF(kind, 3)     \
    SUT_TRIANGLE_OF(kind, 4)     \
    SUT_METRIC_TRIANGLE(kind, 1) \
    SUT_METRIC_TRIANGLE(kind, 2) \
    SUT_METRIC_TRIANGLE(kind, 3) \
    SUT_METRIC_TRIANGLE(kind, 4) \
    SUT_LENGTHS(kind)            \
    SUT_PROPOSAL_SUMS(kind, 2)   \
    SUT_PROPOSAL_SUMS(kind, 3)   \
    SUT_UPDATE_SUMS(kind, 0)     \
    SUT_UPDATE_SUMS(kind, 2)     \
    SUT_UPDATE_SUMS(kind, 3)     \
    SUT_MANY_ROWS(kind)

SUT_DOT_PRODUCTS(float)
SUT_DOT_PRODUCTS(double)
SUT_DOT_PRODUCTS(wide)

SUT_TRIANGLE_PAIR(float, 1)
SUT_TRIANGLE_PAIR(float, 2)
SUT_TRIANGLE_PAIR(float, 3)

#endif /* SUT_BACKEND_CPU_DOTS_H */
