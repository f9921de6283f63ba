/* Every rule in double, once: for those who need the names and the constants rather than the loops. */
#ifndef SUT_OPTIM_RULES_DOUBLE_H
#define SUT_OPTIM_RULES_DOUBLE_H

#define SUT_REAL double
#include "optim/rules/terms.h"

#include "optim/rules/adagrad.h"
#include "optim/rules/adam.h"
#include "optim/rules/lion.h"
#include "optim/rules/nadam.h"
#include "optim/rules/radam.h"
#include "optim/rules/rmsprop.h"
#include "optim/rules/sgd.h"
#undef SUT_REAL

#endif /* SUT_OPTIM_RULES_DOUBLE_H */
