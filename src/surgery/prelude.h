/*
 * What the small dense solvers are made of: qualifiers for host and device, powers of two, double-double sums.
 *
 * Everything here is inline, works on memory of the caller and calls nothing but sqrt and fabs, so that the same source
 * can be compiled for a GPU. Multiply and add must not be contracted (see STYLE): two_product would lose its error term.
 */
#ifndef SUT_SURGERY_PRELUDE_H
#define SUT_SURGERY_PRELUDE_H

#include "core/portable.h"
#include "suture/status.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Losses that the local arrays of these functions have room for (SUT_ARRAY, core/portable.h): a source of the GPU that serves few
 * losses only has short ones. */
#ifndef SUT_ROOM
#define SUT_ROOM SUT_MAX_LOSSES
#endif

/* Distance from 1 to the next double: the 2^-52 of every tolerance. */
#define SUT_EPS 0x1p-52

/* A norm below this times the longest one has no direction: its square is not a normal number any more. */
#define SUT_ZERO_ROW 1e-150

/* Unevaluated sum hi + lo: about 106 bits. */
typedef struct sut_dd {
    double hi, lo;
} sut_dd;

/* Error-free product (Dekker 1971): a * b = hi + lo, for |a|, |b| < 2^996 and no underflow. */
SUT_SMALL sut_dd sut_two_product(double a, double b)
{
    const double ca = 134217729.0 * a, cb = 134217729.0 * b; /* 2^27 + 1 */
    const double ah = ca - (ca - a), al = a - ah;
    const double bh = cb - (cb - b), bl = b - bh;
    sut_dd r;
    r.hi = a * b;
    r.lo = ((ah * bh - r.hi) + ah * bl + al * bh) + al * bl;
    return r;
}

/* acc += x, the rounding error is kept (Knuth's two-sum). */
SUT_SMALL void sut_dd_add(sut_dd *acc, double x)
{
    const double s = acc->hi + x, t = s - acc->hi;
    acc->lo += (acc->hi - (s - t)) + (x - t);
    acc->hi = s;
}

/* acc += a * b, as if in twice the precision (Ogita, Rump, Oishi 2005: Dot2). */
SUT_SMALL void sut_dd_add_product(sut_dd *acc, double a, double b)
{
    const sut_dd p = sut_two_product(a, b);
    sut_dd_add(acc, p.hi);
    acc->lo += p.lo;
}

SUT_SMALL double sut_dd_value(sut_dd x)
{
    return x.hi + x.lo;
}

/* Exponent e with 2^e <= x < 2^(e+1) for a positive normal x (subnormals: -1023). Bits, not logb: it sits in every step. */
SUT_SMALL int sut_exponent(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int)(bits >> 52 & 0x7ff) - 1023;
}

/* 2^e for -1022 <= e <= 1023. */
SUT_SMALL double sut_exp2i(int e)
{
    const uint64_t bits = (uint64_t)(e + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

SUT_SMALL double sut_max2(double a, double b)
{
    return a > b ? a : b;
}

SUT_SMALL double sut_min2(double a, double b)
{
    return a < b ? a : b;
}

/* x within [-1, 1]: a cosine computed from rounded products. */
SUT_SMALL double sut_clamp_cosine(double x)
{
    return x > 1.0 ? 1.0 : x < -1.0 ? -1.0 : x;
}

#endif /* SUT_SURGERY_PRELUDE_H */
