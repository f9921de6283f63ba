/*
 * The switch by which the whole test suite is run on the plain instruction set: an ordinary context obeys SUTURE_ISA, so
 * that such a run is what it says; and each instruction set can be asked for, or is refused with a reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "suture/suture.h"

static void test_default_context_obeys_the_variable(void **state)
{
    (void)state;
    sut_capability_report report;
    sut_capabilities_init(&report);
    assert_int_equal(sut_capabilities(&report), SUT_OK);

    const char *const wanted = getenv("SUTURE_ISA");
    sut_context *ctx;
    assert_int_equal(sut_context_create(&ctx, NULL), SUT_OK);
    assert_string_equal(sut_isa_name(sut_context_isa(ctx)), wanted ? wanted : sut_isa_name(report.best_isa));
    sut_context_destroy(ctx);
}

static void test_each_instruction_set_is_given_or_refused(void **state)
{
    (void)state;
    sut_capability_report report;
    sut_capabilities_init(&report);
    assert_int_equal(sut_capabilities(&report), SUT_OK);
    for (int isa = SUT_ISA_BASELINE; isa <= SUT_ISA_AVX512; isa++) {
        sut_context_config config;
        sut_context_config_init(&config);
        config.isa = (sut_isa)isa;
        sut_context *ctx;
        const sut_status status = sut_context_create(&ctx, &config);
        if (isa <= (int)report.best_isa) {
            assert_int_equal(status, SUT_OK);
            assert_int_equal(sut_context_isa(ctx), isa);
        } else {
            assert_int_equal(status, SUT_ERROR_BACKEND);
            assert_null(ctx);
        }
        sut_context_destroy(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default_context_obeys_the_variable),
        cmocka_unit_test(test_each_instruction_set_is_given_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
