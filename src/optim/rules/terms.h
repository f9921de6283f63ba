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

SUT_RULE SUT_REAL SUT_T(root)(SUT_REAL x)
{
    return sizeof(SUT_REAL) == 4 ? (SUT_REAL)sqrtf((float)x) : (SUT_REAL)sqrt((double)x);
}

/* x / D, and 0 where D = 0: a coordinate without a metric does not move. */
SUT_RULE SUT_REAL SUT_T(quotient)(SUT_REAL x, SUT_REAL D)
{
    return D > (SUT_REAL)0 ? x / D : (SUT_REAL)0;
}
