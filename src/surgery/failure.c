/*
 * Weights with the sentence that belongs to a failure. sut_surgery_run() runs on a GPU too and has no sentences.
 */
#include "surgery/surgery.h"

sut_status sut_surgery_explain(sut_context *ctx, const sut_surgery_config *config, int m, sut_status status,
                               sut_surgery_failure failure, int row, double value)
{
    const char *const name = sut_surgery_table[config->method].name;
    const int by = (int)config->mgda_normalisation;
    switch (failure) {
    case SUT_SURGERY_NO_LOSSES:
        SUT_FAIL(ctx, status,
                 "%s: mgda_normalisation %d divides by the losses, but losses is NULL; give the %d loss values", name,
                 by, m);
    case SUT_SURGERY_LOSS_NOT_POSITIVE:
        SUT_FAIL(ctx, status,
                 "%s: mgda_normalisation %d divides by the losses, so they must be positive; loss %d is %g", name, by,
                 row, value);
    case SUT_SURGERY_STATIONARY:
        SUT_FAIL(ctx, status,
                 "%s has no direction here: 0 lies in the convex hull of the %d gradients (Pareto-stationary point)",
                 name, m);
    case SUT_SURGERY_LONG_WEIGHT: /* weights of about 1 / |g| */
        SUT_FAIL(ctx, status,
                 "%s: the weight of loss %d, about 1 / %g, leaves the range of doubles; scale the losses up", name, row,
                 value);
    case SUT_SURGERY_WEIGHT_RANGE:
        SUT_FAIL(ctx, status,
                 "%s: the weight of loss %d leaves the range of doubles; an option or a loss is too extreme", name,
                 row);
    case SUT_SURGERY_NO_END:
    case SUT_SURGERY_FINE: break;
    }
    SUT_FAIL(ctx, status, "%s: the active-set solver reached its limit of rounds for m = %d", name, m);
}

sut_status sut_surgery_solve(sut_context *ctx, const sut_surgery_input *in, sut_surgery_output *out)
{
    const sut_status status = sut_surgery_run(in, out);
    return status == SUT_OK
               ? SUT_OK
               : sut_surgery_explain(ctx, in->config, in->m, status, out->failure, out->failed_row, out->failed_value);
}
