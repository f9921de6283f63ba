/*
 * The sentence that belongs to a failure of the algebra.
 */
#include "optim/algebra.h"

#include <stdio.h>

/* `loss 1 ("name")`. */
static const char *name_loss(char *to, size_t size, int loss, const char *const *names)
{
    if (names && names[loss])
        (void)snprintf(to, size, "loss %d (\"%.64s\")", loss, names[loss]);
    else
        (void)snprintf(to, size, "loss %d", loss);
    return to;
}

sut_status sut_step_explain(sut_context *ctx, const sut_surgery_config *surgery, int m, const sut_step_failure *f,
                            const char *const *loss_names, const char *const *tensor_names)
{
    char loss[96] = "";
    if (f->loss >= 0)
        (void)name_loss(loss, sizeof loss, f->loss, loss_names);
    const char *const tensor = tensor_names && f->tensor >= 0 ? tensor_names[f->tensor] : "";
    const long long index = (long long)f->index, step = (long long)f->step;
    switch (f->failure) {
    case SUT_ALGEBRA_GRADIENT:
        SUT_FAIL(ctx, f->status, "the gradient of %s is NaN or Inf in tensor \"%.128s\" at index %lld", loss, tensor,
                 index);
    case SUT_ALGEBRA_PARAMETER:
        SUT_FAIL(ctx, f->status, "parameter \"%.128s\" is NaN or Inf at index %lld", tensor, index);
    case SUT_ALGEBRA_LOSS: SUT_FAIL(ctx, f->status, "%s is %g", loss, f->value);
    case SUT_ALGEBRA_LENGTH:
        SUT_FAIL(ctx, f->status,
                 "the gradient of %s has norm %g; an aligned step takes gradients of norm %g to %g (or 0): scale the "
                 "losses",
                 loss, f->value, SUT_SHORTEST_GRADIENT, SUT_LONGEST_GRADIENT);
    case SUT_ALGEBRA_RANGE:
        SUT_FAIL(ctx, f->status,
                 "the combined gradient has norm %g; a step in this type takes up to %g, since sums of it would become "
                 "infinite: scale the losses, or clip",
                 f->value, f->limit);
    case SUT_ALGEBRA_PROPOSAL:
        SUT_FAIL(
            ctx, f->status,
            "the proposal of step %lld is NaN or Inf although the gradients are not: a parameter or the state holds "
            "NaN, Inf or what overflows; the parameters are as they were",
            step);
    case SUT_ALGEBRA_SURGERY:
        return sut_surgery_explain(ctx, surgery, m, f->status, f->surgery, f->surgery_row, f->surgery_value);
    case SUT_ALGEBRA_GRAM: SUT_FAIL(ctx, f->status, "the Gram matrix of finite gradients is not finite");
    case SUT_ALGEBRA_CONE: SUT_FAIL(ctx, f->status, "the cone projection of step %lld did not end", step);
    case SUT_ALGEBRA_FINE: break;
    }
    SUT_FAIL(ctx, SUT_ERROR_INTERNAL, "the algebra of step %lld failed without a reason", step);
}
