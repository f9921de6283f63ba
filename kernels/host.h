/*
 * The library's C headers as the C++ files of this directory see them: the interface of the back ends and the description of
 * a pass.
 */
#ifndef SUT_KERNELS_HOST_H
#define SUT_KERNELS_HOST_H

#include "suture/suture.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

extern "C" {
#include "backend/backend.h"
#include "optim/step.h"
}

#endif // SUT_KERNELS_HOST_H
