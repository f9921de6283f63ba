/* The table of methods against the enum; names; the suggestion for an unknown one. */
#include "support/surgery.h"
#include "surgery/surgery.h"

#include <stdio.h>
#include <string.h>

static void table_is_the_enum(void **state)
{
    (void)state;
    for (int k = 0; k < SUT_SURGERY_COUNT; ++k) {
        const sut_surgery_row *const row = &sut_surgery_table[k];
        sut_surgery_method method = SUT_SURGERY_COUNT;
        assert_int_equal(row->method, k);
        assert_non_null(row->solve);
        assert_non_null(row->source);
        assert_true(row->degree == 0 || row->degree == 1);
        assert_string_equal(sut_surgery_method_name((sut_surgery_method)k), row->name);
        assert_int_equal(sut_surgery_method_from_name(row->name, &method), SUT_OK);
        assert_int_equal(method, k);
        for (int l = 0; l < k; ++l)
            assert_string_not_equal(row->name, sut_surgery_table[l].name);
    }
}

static void names_of_the_specification(void **state)
{
    (void)state;
    static const char *const names[] = {"sum",         "mean",   "fixed",    "config", "pcgrad", "cagrad", "imtlg",
                                        "aligned_mtl", "upgrad", "dualproj", "mgda",   "nash",   "sdmgrad"};
    assert_int_equal(sizeof names / sizeof names[0], SUT_SURGERY_COUNT);
    for (int k = 0; k < SUT_SURGERY_COUNT; ++k)
        assert_string_equal(sut_surgery_method_name((sut_surgery_method)k), names[k]);
    sut_surgery_method method = SUT_SURGERY_SUM;
    assert_int_equal(sut_surgery_method_from_name("dcgd_center", &method), SUT_OK);
    assert_int_equal(method, SUT_SURGERY_CONFIG);
}

static void unknown_values(void **state)
{
    (void)state;
    sut_surgery_method method = SUT_SURGERY_MGDA;
    assert_null(sut_surgery_method_name(SUT_SURGERY_COUNT));
    assert_null(sut_surgery_method_name((sut_surgery_method)-1));
    assert_int_equal(sut_surgery_method_from_name("Config", &method), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_surgery_method_from_name("", &method), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_surgery_method_from_name(NULL, &method), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_surgery_method_from_name("mgda", NULL), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(method, SUT_SURGERY_MGDA);
}

static void the_nearest_name_is_suggested(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"conifg", "config"}, {"upgrade", "upgrad"},        {"aligned-mtl", "aligned_mtl"},
        {"MGDA", "mgda"},     {"imtl-g", "imtlg"},          {"pc_grad", "pcgrad"},
        {"nashmtl", "nash"},  {"alignedmtl", "aligned_mtl"}};
    sut_context *const ctx = test_context();
    for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; ++k) {
        sut_surgery_method method = SUT_SURGERY_COUNT;
        char wanted[80];
        (void)snprintf(wanted, sizeof wanted, "nearest known name is \"%s\"", pairs[k][1]);
        const sut_status status = sut_surgery_parse_method(ctx, pairs[k][0], &method);
        assert_int_equal(status, SUT_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(sut_context_last_error(ctx), wanted));
        assert_non_null(strstr(sut_context_last_error(ctx), pairs[k][0]));
        assert_int_equal(method, SUT_SURGERY_COUNT);
    }
    char *const endless = test_malloc(100000);
    memset(endless, 'x', 99999);
    endless[99999] = '\0';
    sut_surgery_method method;
    assert_int_equal(sut_surgery_parse_method(ctx, endless, &method), SUT_ERROR_INVALID_ARGUMENT);
    test_free(endless);
    assert_int_equal(sut_surgery_parse_method(ctx, NULL, &method), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_surgery_parse_method(ctx, "cagrad", &method), SUT_OK);
    assert_int_equal(method, SUT_SURGERY_CAGRAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_the_enum),
        cmocka_unit_test(names_of_the_specification),
        cmocka_unit_test(unknown_values),
        cmocka_unit_test(the_nearest_name_is_suggested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
