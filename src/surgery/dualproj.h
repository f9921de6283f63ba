/*
 * What DualProj and UPGrad share.
 */
#ifndef SUT_SURGERY_DUALPROJ_H
#define SUT_SURGERY_DUALPROJ_H

#include "surgery/nnqp.h"
#include "surgery/surgery.h"

/* tr K of the true rows is below norm_eps, where both methods are the plain preferred mean by definition. */
SUT_PORTABLE bool sut_surgery_below_norm_eps(const sut_surgery_problem *problem);

/* The ridge stands out from the rounding of K, so that the weights have digits whatever the condition of K. */
SUT_PORTABLE bool sut_surgery_ridge_decides(const sut_surgery_problem *problem);

#endif /* SUT_SURGERY_DUALPROJ_H */
