/*
 * Optimizers whose steps are run by the back end without the host (CUDA): when the host learns what they did, and how it is
 * told that one was refused.
 */
#include "optim/optimizer.h"

sut_status sut_optimizer_pull(sut_optimizer *opt)
{
    if (!opt->ahead && !opt->captured)
        return SUT_OK;
    SUT_TRY(opt->ctx->ops->drive_pull(opt->ctx, opt));
    opt->ahead = false;
    return SUT_OK;
}

sut_status sut_optimizer_push(sut_optimizer *opt)
{
    opt->told_settings = false;
    return opt->drive ? opt->ctx->ops->drive_push(opt->ctx, opt) : SUT_OK;
}

static sut_status explain(sut_optimizer *opt, const sut_step_failure *failure)
{
    return sut_step_explain(opt->ctx, &opt->config.surgery, opt->config.n_losses, failure,
                            (const char *const *)opt->loss_name, (const char *const *)opt->tensor_name);
}

sut_status sut_optimizer_deliver_last(sut_optimizer *opt)
{
    if (opt->n_late > 0 && --opt->n_late == 0)
        opt->late.failure = SUT_ALGEBRA_FINE; /* it was the only one */
    return explain(opt, &opt->last_failure);
}

sut_status sut_optimizer_synchronize(sut_optimizer *opt)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    SUT_TRY(sut_optimizer_pull(opt));
    const sut_step_failure late = opt->late;
    opt->late.failure = SUT_ALGEBRA_FINE;
    opt->n_late = 0;
    return late.failure == SUT_ALGEBRA_FINE ? SUT_OK : explain(opt, &late);
}
