/*
 * A rule with its flags as the kernels number them: a table's entry made from the constants of a step, on the host or on the
 * device.
 */
#ifndef SUT_KERNELS_SETTING_H
#define SUT_KERNELS_SETTING_H

#include "core/portable.h"
#include "kernels/tables.h"
#include "optim/rules/double.h"

/* -1 for a rule that does not exist. Coupled decay is not part of it. */
SUT_SMALL int sut_cuda_variant_of(sut_rule rule, int flags)
{
    const bool decoupled = (flags & SUT_RULE_DECOUPLED) != 0;
    switch (rule) {
    case SUT_RULE_SGD:
        return flags & SGD_NESTEROV   ? SUT_CUDA_SGD_NESTEROV
               : flags & SGD_MOMENTUM ? SUT_CUDA_SGD_MOMENTUM
                                      : SUT_CUDA_SGD;
    case SUT_RULE_RMSPROP:
        return SUT_CUDA_RMSPROP + (flags & RMSPROP_MOMENTUM ? 1 : 0) + (flags & RMSPROP_CENTERED ? 2 : 0);
    case SUT_RULE_ADAGRAD: return SUT_CUDA_ADAGRAD;
    case SUT_RULE_ADAM: return SUT_CUDA_ADAM + (decoupled ? 1 : 0) + (flags & ADAM_AMSGRAD ? 2 : 0);
    case SUT_RULE_NADAM: return SUT_CUDA_NADAM;
    case SUT_RULE_RADAM: return flags & RADAM_RECTIFIED ? SUT_CUDA_RADAM_RECTIFIED : SUT_CUDA_RADAM;
    case SUT_RULE_LION: return decoupled ? SUT_CUDA_LION_DECOUPLED : SUT_CUDA_LION;
    case SUT_RULE_COUNT: break;
    }
    return -1;
}

/* The slots that a variant uses, as bits. */
SUT_SMALL int sut_cuda_slots_of(int variant)
{
    switch (variant) {
    case SUT_CUDA_SGD: return 0;
    case SUT_CUDA_SGD_MOMENTUM:
    case SUT_CUDA_SGD_NESTEROV:
    case SUT_CUDA_RMSPROP:
    case SUT_CUDA_ADAGRAD:
    case SUT_CUDA_LION:
    case SUT_CUDA_LION_DECOUPLED: return 1;
    case SUT_CUDA_RMSPROP_CENTERED: return 5;
    case SUT_CUDA_RMSPROP_BOTH:
    case SUT_CUDA_ADAM_MAX:
    case SUT_CUDA_ADAM_MAX_DECOUPLED: return 7;
    default: return 3;
    }
}

/* False for a rule that does not exist. */
SUT_SMALL bool sut_cuda_write_setting(const sut_rule_setting *from, sut_cuda_setting *to)
{
    to->variant = sut_cuda_variant_of(from->rule, from->flags);
    to->coupled = (from->flags & SUT_RULE_COUPLED) != 0;
    to->uses_theta = (from->flags & (SUT_RULE_COUPLED | SUT_RULE_DECOUPLED)) != 0;
    to->deferred = from->rule == SUT_RULE_LION;
    to->slots = sut_cuda_slots_of(to->variant);
    memcpy(to->f32, from->f32, sizeof to->f32);
    memcpy(to->f64, from->f64, sizeof to->f64);
    return to->variant >= 0;
}

#endif // SUT_KERNELS_SETTING_H
