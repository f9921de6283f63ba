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

sut_status sut_algebra_explain(sut_context *ctx, const sut_algebra *a, const char *const *loss_names,
                               const char *const *tensor_names)
{
    char loss[96] = "";
    if (a->failed_loss >= 0)
        (void)name_loss(loss, sizeof loss, a->failed_loss, loss_names);
    const char *const tensor = tensor_names && a->failed_tensor >= 0 ? tensor_names[a->failed_tensor] : "";
    const long long index = (long long)a->failed_index;
    switch (a->failure) {
    case SUT_ALGEBRA_GRADIENT:
        SUT_FAIL(ctx, a->status, "the gradient of %s is NaN or Inf in tensor \"%.128s\" at index %lld", loss, tensor,
                 index);
    case SUT_ALGEBRA_PARAMETER:
        SUT_FAIL(ctx, a->status, "parameter \"%.128s\" is NaN or Inf at index %lld", tensor, index);
    case SUT_ALGEBRA_LOSS: SUT_FAIL(ctx, a->status, "%s is %g", loss, a->failed_value);
    case SUT_ALGEBRA_LENGTH:
        SUT_FAIL(ctx, a->status,
                 "the gradient of %s has norm %g; an aligned step takes gradients of norm %g to %g (or 0): scale the "
                 "losses",
                 loss, a->failed_value, SUT_SHORTEST_GRADIENT, SUT_LONGEST_GRADIENT);
    case SUT_ALGEBRA_SURGERY: return sut_surgery_explain(ctx, &a->config->surgery, a->m, a->status, &a->surgery);
    case SUT_ALGEBRA_GRAM: SUT_FAIL(ctx, a->status, "the Gram matrix of finite gradients is not finite");
    case SUT_ALGEBRA_CONE:
        SUT_FAIL(ctx, a->status, "the cone projection of step %lld did not end", (long long)a->t + 1);
    case SUT_ALGEBRA_FINE: break;
    }
    SUT_FAIL(ctx, SUT_ERROR_INTERNAL, "the algebra of step %lld failed without a reason", (long long)a->t + 1);
}
