/*
 * The smallest use of Suture: two losses that pull apart, one conflict-free step per iteration.
 *     loss 0 = |x - a|^2 with steep first axis,    loss 1 = |x - b|^2 with steep second axis
 * Exits with 0 when both losses fell.
 */
#include <suture/suture.h>

#include <stdio.h>

static double loss(const float *x, const float *centre, const float *steep, float *gradient)
{
    double sum = 0;
    for (int j = 0; j < 2; j++) {
        const float d = x[j] - centre[j];
        gradient[j] = 2 * steep[j] * d;
        sum += steep[j] * d * d;
    }
    return sum;
}

int main(void)
{
    float x[2] = {4, -3}, g0[2], g1[2];
    const float a[2] = {1, 0}, b[2] = {0, 1}, steep0[2] = {10, 1}, steep1[2] = {1, 10};
    sut_context *ctx = NULL;
    sut_optimizer *opt = NULL;
    sut_tensor theta = {.data = x, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {2}, .name = "x"};
    sut_optimizer_config config;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAM);
    config.tensors = &theta;
    config.n_tensors = 1;
    config.n_losses = 2;
    config.surgery.method = SUT_SURGERY_CONFIG;
    config.align = SUT_ALIGN_GUA;
    config.hyper.lr = 0.02;
    sut_status status = sut_context_create(&ctx, NULL);
    if (status == SUT_OK)
        status = sut_optimizer_create(&opt, ctx, &config);
    const double first0 = loss(x, a, steep0, g0), first1 = loss(x, b, steep1, g1);
    for (int i = 0; i < 200 && status == SUT_OK; i++) {
        const void *const gradients[] = {g0, g1};
        status = sut_optimizer_step(opt, gradients, NULL, NULL);
        loss(x, a, steep0, g0);
        loss(x, b, steep1, g1);
    }
    if (status != SUT_OK)
        fprintf(stderr, "%s\n", ctx ? sut_context_last_error(ctx) : sut_status_string(status));
    const double last0 = loss(x, a, steep0, g0), last1 = loss(x, b, steep1, g1);
    printf("loss 0: %.3f -> %.3f\nloss 1: %.3f -> %.3f\n", first0, last0, first1, last1);
    sut_optimizer_destroy(opt);
    sut_context_destroy(ctx);
    return status == SUT_OK && last0 < first0 && last1 < first1 ? 0 : 1;
}
