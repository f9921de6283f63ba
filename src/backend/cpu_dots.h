/*
 * Dot products in a fixed number of lanes: element k of a block goes to lane k mod 16 on every instruction set, so every
 * machine adds in the same order. f32 lanes live for one block of at most SUT_BLOCK elements and are then added to double
 * lanes; doubles are summed in double lanes throughout.
 */
#ifndef SUT_BACKEND_CPU_DOTS_H
#define SUT_BACKEND_CPU_DOTS_H

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

typedef float sut_vf __attribute__((vector_size(SUT_VECTOR), aligned(4), may_alias));
typedef float sut_vh __attribute__((vector_size(SUT_VECTOR / 2), aligned(4), may_alias));
typedef double sut_vd __attribute__((vector_size(SUT_VECTOR), aligned(8), may_alias));

enum {
    SUT_NF = SUT_LANES * 4 / SUT_VECTOR, /* f32 vectors in 16 lanes */
    SUT_ND = SUT_LANES * 8 / SUT_VECTOR, /* f64 vectors in 16 lanes */
    SUT_WF = SUT_VECTOR / 4,
    SUT_WD = SUT_VECTOR / 8
};

/* lanes += acc, f32 lanes to double ones. */
static inline __attribute__((always_inline)) void sut_flush(const float *acc, double *lanes)
{
    for (int v = 0; v < SUT_ND; ++v) {
        const sut_vh part = *(const sut_vh *)(acc + v * SUT_WD);
        *(sut_vd *)(lanes + v * SUT_WD) += __builtin_convertvector(part, sut_vd);
    }
}

/* R rows against x; n at most SUT_BLOCK. */
#define SUT_DOTS_F32(R)                                                                                         \
    static inline __attribute__((always_inline)) void sut_dots##R##_f32(                                        \
        const float *x, const float *const *y, int64_t n, double (*lanes)[SUT_LANES])                           \
    {                                                                                                           \
        sut_vf acc[R][SUT_NF];                                                                                  \
        for (int r = 0; r < R; ++r)                                                                             \
            for (int v = 0; v < SUT_NF; ++v)                                                                    \
                acc[r][v] = (sut_vf){0};                                                                        \
        int64_t k = 0;                                                                                          \
        for (; k + SUT_LANES <= n; k += SUT_LANES) {                                                            \
            _Pragma("GCC unroll 4") for (int v = 0; v < SUT_NF; ++v)                                            \
            {                                                                                                   \
                const sut_vf a = *(const sut_vf *)(x + k + v * SUT_WF);                                         \
                _Pragma("GCC unroll 4") for (int r = 0; r < R; ++r) acc[r][v] +=                                \
                    a * *(const sut_vf *)(y[r] + k + v * SUT_WF);                                               \
            }                                                                                                   \
        }                                                                                                       \
        for (int r = 0; r < R; ++r) {                                                                           \
            float tail[SUT_LANES] __attribute__((aligned(64)));                                                 \
            memcpy(tail, acc[r], sizeof tail);                                                                  \
            for (int64_t j = k; j < n; ++j)                                                                     \
                tail[j - k] += x[j] * y[r][j];                                                                  \
            sut_flush(tail, lanes[r]);                                                                          \
        }                                                                                                       \
    }
SUT_DOTS_F32(1)
SUT_DOTS_F32(2)
SUT_DOTS_F32(4)

#define SUT_DOTS_F64(R)                                                                                         \
    static inline __attribute__((always_inline)) void sut_dots##R##_f64(                                        \
        const double *x, const double *const *y, int64_t n, double (*lanes)[SUT_LANES])                         \
    {                                                                                                           \
        sut_vd acc[R][SUT_ND];                                                                                  \
        for (int r = 0; r < R; ++r)                                                                             \
            for (int v = 0; v < SUT_ND; ++v)                                                                    \
                acc[r][v] = *(const sut_vd *)(lanes[r] + v * SUT_WD);                                           \
        int64_t k = 0;                                                                                          \
        for (; k + SUT_LANES <= n; k += SUT_LANES) {                                                            \
            _Pragma("GCC unroll 8") for (int v = 0; v < SUT_ND; ++v)                                            \
            {                                                                                                   \
                const sut_vd a = *(const sut_vd *)(x + k + v * SUT_WD);                                         \
                _Pragma("GCC unroll 4") for (int r = 0; r < R; ++r) acc[r][v] +=                                \
                    a * *(const sut_vd *)(y[r] + k + v * SUT_WD);                                               \
            }                                                                                                   \
        }                                                                                                       \
        for (int r = 0; r < R; ++r) {                                                                           \
            for (int v = 0; v < SUT_ND; ++v)                                                                    \
                *(sut_vd *)(lanes[r] + v * SUT_WD) = acc[r][v];                                                 \
            for (int64_t j = k; j < n; ++j)                                                                     \
                lanes[r][j - k] += x[j] * y[r][j];                                                              \
        }                                                                                                       \
    }
SUT_DOTS_F64(1)
SUT_DOTS_F64(2)

static void sut_dots_float(const float *x, const float *const *y, int rows, int64_t n, double (*lanes)[SUT_LANES])
{
    int r = 0;
    for (; r + 4 <= rows; r += 4)
        sut_dots4_f32(x, y + r, n, lanes + r);
    for (; r + 2 <= rows; r += 2)
        sut_dots2_f32(x, y + r, n, lanes + r);
    if (r < rows)
        sut_dots1_f32(x, y + r, n, lanes + r);
}

static void sut_dots_double(const double *x, const double *const *y, int rows, int64_t n, double (*lanes)[SUT_LANES])
{
    int r = 0;
    for (; r + 2 <= rows; r += 2)
        sut_dots2_f64(x, y + r, n, lanes + r);
    if (r < rows)
        sut_dots1_f64(x, y + r, n, lanes + r);
}

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

#endif /* SUT_BACKEND_CPU_DOTS_H */
