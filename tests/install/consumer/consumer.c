/* One aligned step through the installed headers and library: x^2 and (x - 1)^2 pull in opposite directions at x = 1/2,
 * so the step must be zero there, and the same at every other program that links this library. */
#include <suture/suture.h>

#include <stdio.h>

int main(void)
{
    double x = 0.5;
    sut_tensor tensor = {.data = &x, .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {1}, .name = "x"};
    sut_optimizer_config config;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_SGD);
    config.tensors = &tensor;
    config.n_tensors = 1;
    config.n_losses = 2;
    config.align = SUT_ALIGN_GUA;

    sut_context *ctx = NULL;
    sut_optimizer *opt = NULL;
    sut_status status = sut_context_create(&ctx, NULL);
    if (status == SUT_OK)
        status = sut_optimizer_create(&opt, ctx, &config);
    const double up = 1, down = -1;
    const void *grads[2] = {&up, &down};
    if (status == SUT_OK)
        status = sut_optimizer_step(opt, grads, NULL, NULL);
    if (status != SUT_OK)
        printf("%s: %s\n", sut_status_string(status), sut_context_last_error(ctx));
    sut_optimizer_destroy(opt);
    sut_context_destroy(ctx);
    printf("suture %s: x = %g\n", sut_version(), x);
    return status != SUT_OK || x != 0.5;
}
