/*
 * Vectors of one element type and width, with tanh, for kernels.c, which is compiled once per element type and
 * instruction set: REAL_IS_F32 is 1 or 0, VEC_BYTES is 16, 32 or 64.
 */
#ifndef PINN_VEC_H
#define PINN_VEC_H

#include <stdint.h>

#define INLINE static inline __attribute__((always_inline, unused))

#if REAL_IS_F32
typedef float real;
typedef int32_t integer;
#else
typedef double real;
typedef int64_t integer;
#endif
#define VEC_LANES ((int)(VEC_BYTES / sizeof(real)))

typedef real vec __attribute__((vector_size(VEC_BYTES), may_alias));
typedef integer ivec __attribute__((vector_size(VEC_BYTES), may_alias));

/* The value goes through a register: gcc would load it twice rather than spend one, and loads are the limit there. */
#if defined(__x86_64__) || defined(__i386__)
#define IN_REGISTER(v) __asm__("" : "+x"(v))
#else
#define IN_REGISTER(v) (void)(v)
#endif

INLINE vec load(const real *p)
{
    return *(const vec *)p;
}
INLINE void store(real *p, vec v)
{
    *(vec *)p = v;
}

/*
 * p[0] += sum of a's lanes, p[1] += sum of b's, q[0] += sum of c's, q[1] += sum of d's. Four vectors are halved together,
 * down to one lane each; the last addition is in double. The order of additions depends on the vector width only.
 */
INLINE void add_sums(vec a, vec b, vec c, vec d, double *p, double *q)
{
    typedef double pair __attribute__((vector_size(16), aligned(8), may_alias));
#if REAL_IS_F32
    typedef float four __attribute__((vector_size(16)));
#if VEC_BYTES == 64
    typedef float eight __attribute__((vector_size(32)));
#define SHUFFLE(x, y, i, j, k, l)                                                                                     \
    __builtin_shufflevector(x, y, i, j, k, l, i + 4, j + 4, k + 4, l + 4, i + 8, j + 8, k + 8, l + 8, i + 12, j + 12, \
                            k + 12, l + 12)
#elif VEC_BYTES == 32
#define SHUFFLE(x, y, i, j, k, l) __builtin_shufflevector(x, y, i, j, k, l, i + 4, j + 4, k + 4, l + 4)
#else
#define SHUFFLE(x, y, i, j, k, l) __builtin_shufflevector(x, y, i, j, k, l)
#endif
    enum { Y = VEC_LANES }; /* lane 0 of the second operand */
    const vec ab = SHUFFLE(a, b, 0, Y, 1, Y + 1) + SHUFFLE(a, b, 2, Y + 2, 3, Y + 3);
    const vec cd = SHUFFLE(c, d, 0, Y, 1, Y + 1) + SHUFFLE(c, d, 2, Y + 2, 3, Y + 3);
    const vec all = SHUFFLE(ab, cd, 0, 1, Y, Y + 1) + SHUFFLE(ab, cd, 2, 3, Y + 2, Y + 3);
#undef SHUFFLE
#if VEC_BYTES == 64
    const eight half = __builtin_shufflevector(all, all, 0, 1, 2, 3, 4, 5, 6, 7) +
                       __builtin_shufflevector(all, all, 8, 9, 10, 11, 12, 13, 14, 15);
    const four total =
        __builtin_shufflevector(half, half, 0, 1, 2, 3) + __builtin_shufflevector(half, half, 4, 5, 6, 7);
#elif VEC_BYTES == 32
    const four total = __builtin_shufflevector(all, all, 0, 1, 2, 3) + __builtin_shufflevector(all, all, 4, 5, 6, 7);
#else
    const four total = all;
#endif
    *(pair *)p += __builtin_convertvector(__builtin_shufflevector(total, total, 0, 1), pair);
    const four upper = __builtin_shufflevector(total, total, 2, 3, 2, 3); /* gcc converts lower halves alone well */
    *(pair *)q += __builtin_convertvector(__builtin_shufflevector(upper, upper, 0, 1), pair);
#else
    pair x = {0, 0}, y = {0, 0};
    for (int l = 0; l < VEC_LANES; l++) {
        x += (pair){a[l], b[l]};
        y += (pair){c[l], d[l]};
    }
    *(pair *)p += x;
    *(pair *)q += y;
#endif
}

INLINE double sum_of(vec x)
{
    double sums[4] = {0, 0, 0, 0};
    add_sums(x, x, x, x, sums, sums + 2);
    return sums[0];
}

/*
 * tanh x = e / (e + 2), e = exp(2|x|) - 1, with the sign of x.
 *
 * 2|x| = n ln 2 + r, |r| <= ln(2)/2; exp(r) - 1 = r + r^2 P(r) with a Chebyshev fit of P, error 2e-8 (f32), 4e-17 (f64)
 * relative to r; e = 2^n (exp(r) - 1) + (2^n - 1) keeps the relative accuracy of small x, where n = 0. Past the limit
 * tanh rounds to 1. NaN stays NaN: the comparison is false for it. Measured: at most 3 ulp.
 */
INLINE vec tanh_vec(vec x)
{
#if REAL_IS_F32
    const real limit = 9.02f, magic = 0x1.8p23f, ln2_hi = 0x1.62ep-1f, ln2_lo = 0x1.0bfbe8p-15f;
    enum { mantissa = 23 };
    const ivec sign_bit = (ivec){0} + INT32_MIN, one_bits = (ivec){0} + 0x3f800000;
    static const real c[] = {0.5f, 0.16666576989698776f, 0.041666554617204574f, 0.0083631790527225774f,
                             0.0013926183587713495f};
#else
    const real limit = 19.07, magic = 0x1.8p52, ln2_hi = 0x1.62e42fee00000p-1, ln2_lo = 0x1.a39ef35793c76p-33;
    enum { mantissa = 52 };
    const ivec sign_bit = (ivec){0} + INT64_MIN, one_bits = (ivec){0} + 0x3ff0000000000000;
    static const real c[] = {0.50000000000000010221,   0.16666666666666667453,   0.041666666666624127873,
                             0.0083333333333300618325, 0.0013888888917213716901, 0.00019841269863053616878,
                             0.000024801521295954376,  2.7557268459997064772e-6, 2.7620088445409748161e-7,
                             2.5100385495510319078e-8};
#endif
    enum { degree = sizeof c / sizeof c[0] - 1 };
    const ivec sign = (ivec)x & sign_bit;
    vec y = (vec)((ivec)x & ~sign_bit);
    const ivec large = y > limit;
    y = (vec)(((ivec)y & ~large) | ((ivec)((vec){0} + limit) & large));
    y += y;
    const vec t = y * (real)1.4426950408889634 + magic; /* the low bits of t hold n */
    const vec n = t - magic;
    const vec r = y - n * ln2_hi - n * ln2_lo;
    vec poly = (vec){0} + c[degree];
    for (int k = degree - 1; k >= 0; k--)
        poly = poly * r + c[k];
    poly = poly * (r * r) + r;
    const vec power = (vec)(((ivec)t << mantissa) + one_bits);
    const vec e = power * poly + (power - 1);
    return (vec)((ivec)(e / (e + 2)) | sign);
}

#endif
