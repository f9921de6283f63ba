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

sut_status sut_optimizer_deliver(sut_optimizer *opt)
{
    const sut_step_failure late = opt->late;
    opt->late.failure = SUT_ALGEBRA_FINE;
    if (late.failure == SUT_ALGEBRA_FINE)
        return SUT_OK;
    return sut_step_explain(opt->ctx, &opt->config.surgery, opt->config.n_losses, &late,
                            (const char *const *)opt->loss_name, (const char *const *)opt->tensor_name);
}

sut_status sut_optimizer_synchronize(sut_optimizer *opt)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    SUT_TRY(sut_optimizer_pull(opt));
    return sut_optimizer_deliver(opt);
}
