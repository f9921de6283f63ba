/*
 * Rates and constants of a step: on the host, and on a GPU, where the step counts are.
 */
#ifndef SUT_OPTIM_RATES_H
#define SUT_OPTIM_RATES_H

#include "core/schedule_rate.h"
#include "optim/step.h"

/* The rate of a group where the schedule, if there is one, says `scheduled`. */
SUT_SMALL double sut_group_rate(const sut_optimizer_config *config, const sut_hyper *group, double scheduled)
{
    if (!config->use_schedule)
        return group->lr;
    return group->lr == config->schedule.peak ? scheduled : group->lr * (scheduled / config->schedule.peak);
}

/* What the schedule says of the coming step, t steps having been taken; 0 where there is none. */
SUT_SMALL double sut_scheduled_rate(const sut_optimizer_config *config, int64_t t)
{
    return config->use_schedule ? sut_schedule_rate(&config->schedule, t) : 0;
}

/* Constants of step t (the coming one: 1, 2, ...) in both types; advances mu_prod for NAdam. decay_flag: of the method. */
SUT_PORTABLE void sut_rule_prepare(sut_rule rule, int decay_flag, const sut_hyper *h, int64_t t, double lr,
                                   double *mu_prod, double rho_m, double rho_v, bool raw, sut_rule_setting *setting);

/* True where the rule needs the gradient after its state was updated. */
SUT_PORTABLE bool sut_rule_needs_gradient_later(const sut_rule_setting *setting);
SUT_PORTABLE bool sut_rule_defers_state(sut_rule rule);

#endif /* SUT_OPTIM_RATES_H */
