/* num, D and base of a proposal; included once per SUT_REAL, before the rules. */
#include "optim/rules/prelude.h"

typedef struct SUT_T(terms) {
    SUT_REAL num, D, base;
} SUT_T(terms);

/* Bound at 0 for second moments that rounding has made negative; NaN (Inf - Inf) becomes 0 too. */
SUT_RULE SUT_REAL SUT_T(positive)(SUT_REAL x)
{
    return x > (SUT_REAL)0 ? x : (SUT_REAL)0;
}

/* Inf or NaN. */
SUT_RULE int SUT_T(overflowed)(SUT_REAL x)
{
    return !(x <= (SUT_REAL)(sizeof(SUT_REAL) == 4 ? 3.4028234663852886e38 : 1.7976931348623157e308));
}

SUT_RULE SUT_REAL SUT_T(root)(SUT_REAL x)
{
    return sizeof(SUT_REAL) == 4 ? (SUT_REAL)sqrtf((float)x) : (SUT_REAL)sqrt((double)x);
}

/*
 * 1/D, and 0 where D = 0: a coordinate without a metric does not move. (The inverse of a denormal D could overflow; D is a
 * square root or 1, so that only a denormal eps beside v = 0 is concerned.) Proposals are num times this inverse, not
 * num / D: pass 2 needs the inverse anyway, and one division an element is what the loops are bound by.
 */
SUT_RULE SUT_REAL SUT_T(inverse)(SUT_REAL D)
{
    return D >= (SUT_REAL)(sizeof(SUT_REAL) == 4 ? 1.17549435e-38 : 2.2250738585072014e-308) ? 1 / D : (SUT_REAL)0;
}
