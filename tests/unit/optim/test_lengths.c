/*
 * An aligned step on gradients whose squared lengths leave the range of doubles is refused, with nothing changed; within
 * the range, and without alignment, it is taken.
 */
#include "suture/suture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static sut_status take_step(double scale, sut_align align, double *x, char *text, size_t size)
{
    sut_context *ctx;
    sut_optimizer *opt;
    assert_int_equal(sut_context_create(&ctx, NULL), SUT_OK);
    const sut_tensor tensor = {.data = x, .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {2}};
    sut_optimizer_config config;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_SGD);
    config.tensors = &tensor;
    config.n_tensors = 1;
    config.n_losses = 2;
    config.align = align;
    assert_int_equal(sut_optimizer_create(&opt, ctx, &config), SUT_OK);
    const double g0[2] = {scale, 0}, g1[2] = {-3 * scale, scale};
    const void *const grads[2] = {g0, g1};
    sut_report report;
    sut_report_init(&report);
    const sut_status status = sut_optimizer_step(opt, grads, NULL, &report);
    (void)strncpy(text, sut_context_last_error(ctx), size - 1);
    text[size - 1] = 0;
    if (status == SUT_OK && align == SUT_ALIGN_GUA) {
        assert_int_equal(report.projected, 1);
        assert_int_equal(report.conflict_p, 0);
    }
    assert_int_equal(sut_optimizer_steps(opt), status == SUT_OK);
    sut_optimizer_destroy(opt);
    sut_context_destroy(ctx);
    return status;
}

static void test_range(void **state)
{
    (void)state;
    static const double within[] = {1e-149, 1e-100, 1, 1e100, 1e149}, outside[] = {1e-151, 1e-200, 1e151, 1e200};
    char text[256];
    for (size_t k = 0; k < sizeof within / sizeof *within; ++k) {
        double x[2] = {0, 0};
        assert_int_equal(take_step(within[k], SUT_ALIGN_GUA, x, text, sizeof text), SUT_OK);
    }
    for (size_t k = 0; k < sizeof outside / sizeof *outside; ++k) {
        double x[2] = {1, 2};
        assert_int_equal(take_step(outside[k], SUT_ALIGN_GUA, x, text, sizeof text), SUT_ERROR_OUT_OF_RANGE);
        assert_non_null(strstr(text, "gradient of loss 0 has norm"));
        assert_true(x[0] == 1 && x[1] == 2);
        assert_int_equal(take_step(outside[k], SUT_ALIGN_NONE, x, text, sizeof text), SUT_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_range)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
