/* The smallest use of Suture: two losses that pull apart, steep along different axes; every step hurts neither. */
#include <stdio.h>
#include <suture/suture.h>

/* sum_j steep_j (x_j - centre_j)^2 and its gradient */
static double loss(const float *x, const float *centre, const float *steep, float *gradient)
{
    const float d0 = x[0] - centre[0], d1 = x[1] - centre[1];
    gradient[0] = 2 * steep[0] * d0, gradient[1] = 2 * steep[1] * d1;
    return steep[0] * d0 * d0 + steep[1] * d1 * d1;
}

int main(void)
{
    float x[2] = {4, -3}, g0[2], g1[2];
    const float a[2] = {1, 0}, b[2] = {0, 1}, steep_a[2] = {10, 1}, steep_b[2] = {1, 10};
    const sut_tensor theta = {.data = x, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {2}, .name = "x"};
    sut_context *ctx = NULL;
    sut_optimizer *opt = NULL;
    sut_optimizer_config config;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAM);
    config.tensors = &theta, config.n_tensors = 1, config.n_losses = 2;
    config.surgery.method = SUT_SURGERY_CONFIG, config.align = SUT_ALIGN_GUA, config.hyper.lr = 0.02;
    sut_status status = sut_context_create(&ctx, NULL);
    if (status == SUT_OK)
        status = sut_optimizer_create(&opt, ctx, &config);
    double first = 0, last = 1; /* larger of both losses */
    for (int i = 0; i <= 200 && status == SUT_OK; i++) {
        const double l0 = loss(x, a, steep_a, g0), l1 = loss(x, b, steep_b, g1);
        last = l0 > l1 ? l0 : l1, first = i ? first : last;
        if (i % 50 == 0)
            printf("step %3d  losses %7.3f %7.3f\n", i, l0, l1);
        status = sut_optimizer_step(opt, (const void *const[]){g0, g1}, NULL, NULL);
    }
    if (status != SUT_OK)
        fprintf(stderr, "%s\n", ctx ? sut_context_last_error(ctx) : sut_status_string(status));
    sut_optimizer_destroy(opt);
    sut_context_destroy(ctx);
    return status == SUT_OK && last < first ? 0 : 1;
}
