/*
 * The small things under every call: texts of failures, range checks, structs of any size that a caller may have compiled.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sut_context *new_context(void)
{
    sut_context_config config;
    sut_context *ctx;
    sut_context_config_init(&config);
    config.n_threads = 1;
    assert_int_equal(sut_context_create(&ctx, &config), SUT_OK);
    return ctx;
}

static void status_strings(void **state)
{
    (void)state;
    for (int a = 0; a <= SUT_ERROR_INTERNAL; ++a) {
        assert_true(strlen(sut_status_string((sut_status)a)) > 3);
        for (int b = 0; b < a; ++b)
            assert_string_not_equal(sut_status_string((sut_status)a), sut_status_string((sut_status)b));
    }
    assert_string_equal(sut_status_string((sut_status)(SUT_ERROR_INTERNAL + 1)), "unknown status");
    char version[64];
    (void)snprintf(version, sizeof version, "%d.%d.%d", SUT_VERSION_MAJOR, SUT_VERSION_MINOR, SUT_VERSION_PATCH);
    assert_string_equal(sut_version(), version);
}

/* Written by a failure, cut to the room there is, and only in the context that failed. */
static void the_text_of_a_failure(void **state)
{
    (void)state;
    sut_context *const ctx = new_context(), *const other = new_context();
    assert_string_equal(sut_context_last_error(ctx), "");
    assert_int_equal(sut_fail(ctx, SUT_ERROR_IO, "%s %d", "disk", 7), SUT_ERROR_IO);
    assert_string_equal(sut_context_last_error(ctx), "disk 7");
    assert_string_equal(sut_context_last_error(other), "");
    char *const text = malloc(5000);
    memset(text, 'x', 4999);
    text[4999] = '\0';
    assert_int_equal(sut_fail(ctx, SUT_ERROR_IO, "%s", text), SUT_ERROR_IO);
    const size_t length = strlen(sut_context_last_error(ctx));
    assert_true(length > 500 && length < 5000);
    free(text);
    /* Always UTF-8: what is cut in the middle of a character, or is no text, becomes question marks. */
    assert_int_equal(sut_fail(ctx, SUT_ERROR_IO, "%.3s|%s", "\xc3\xa9\xc3\xa9",
                              "a\xff"
                              "b\xe2\x82\xac"),
                     SUT_ERROR_IO);
    assert_string_equal(sut_context_last_error(ctx), "\xc3\xa9?|a?b\xe2\x82\xac");
    assert_int_equal(sut_fail(NULL, SUT_ERROR_IO, "nowhere to go"), SUT_ERROR_IO);
    sut_context_destroy(other);
    sut_context_destroy(ctx);
}

static void ranges(void **state)
{
    (void)state;
    sut_context *const ctx = new_context();
    const struct {
        double value, minimum, maximum;
        bool minimum_open, maximum_open, inside;
    } cases[] = {
        {0, 0, 1, false, false, true},
        {0, 0, 1, true, false, false},
        {1, 0, 1, false, false, true},
        {1, 0, 1, false, true, false},
        {0.5, 0, 1, true, true, true},
        {-1e-300, 0, 1, false, false, false},
        {nextafter(1, 0), 0, 1, false, true, true},
        {nextafter(1, 2), 0, 1, false, false, false},
        {NAN, 0, 1, false, false, false},
        {NAN, 0, HUGE_VAL, false, false, false},
        {INFINITY, 0, HUGE_VAL, false, false, false},
        {-INFINITY, 0, HUGE_VAL, false, false, false},
        {1.7e308, 0, HUGE_VAL, false, false, true},
        {0, 0, HUGE_VAL, true, false, false},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; ++k) {
        const sut_status status = sut_check_range(ctx, "the_name", cases[k].value, cases[k].minimum,
                                                  cases[k].minimum_open, cases[k].maximum, cases[k].maximum_open);
        assert_int_equal(status, cases[k].inside ? SUT_OK : SUT_ERROR_OUT_OF_RANGE);
        if (!cases[k].inside)
            assert_non_null(strstr(sut_context_last_error(ctx), "the_name"));
    }
    assert_int_equal(sut_check_range(ctx, "beta", 1, 0, false, 1, true), SUT_ERROR_OUT_OF_RANGE);
    assert_string_equal(sut_context_last_error(ctx), "beta is 1; it must lie in [0, 1)");
    assert_int_equal(sut_check_range(ctx, "lr", -2, 0, false, HUGE_VAL, false), SUT_ERROR_OUT_OF_RANGE);
    assert_string_equal(sut_context_last_error(ctx), "lr is -2; it must be finite and >= 0");
    sut_context_destroy(ctx);
}

/* An older caller's struct is shorter: what it lacks keeps its default. A longer one is refused. No byte more is read. */
static void structs_of_every_size(void **state)
{
    (void)state;
    sut_context *const ctx = new_context();
    typedef struct grown {
        size_t struct_size;
        int first;
        double second;
    } grown;
    for (size_t size = 0; size <= sizeof(grown) + 8; ++size) {
        unsigned char *const given =
            malloc(size < sizeof size ? sizeof size : size); /* a checker sees a byte too many */
        memset(given, 0x11, size < sizeof size ? sizeof size : size);
        memcpy(given, &size, sizeof size);
        grown own = {sizeof own, -1, -2};
        const sut_status status = sut_read_struct(ctx, "grown", &own, sizeof own, given);
        if (size < sizeof size || size > sizeof own) {
            assert_int_equal(status, SUT_ERROR_INVALID_ARGUMENT);
            assert_non_null(strstr(sut_context_last_error(ctx), "grown: struct_size"));
            assert_true(own.first == -1 && own.second == -2);
        } else {
            assert_int_equal(status, SUT_OK);
            assert_int_equal(own.struct_size, sizeof own);
            if (size >= offsetof(grown, first) + sizeof own.first)
                assert_int_equal(own.first, 0x11111111);
            else if (size <= offsetof(grown, first))
                assert_int_equal(own.first, -1);
            if (size <= offsetof(grown, second))
                assert_true(own.second == -2);
            else if (size == sizeof own)
                assert_true(own.second != -2);
        }
        free(given);
    }
    sut_context_destroy(ctx);
}

static void overlaps(void **state)
{
    (void)state;
    char memory[32];
    for (int a = 0; a < 8; ++a)
        for (int a_size = 0; a_size < 8; ++a_size)
            for (int b = 0; b < 8; ++b)
                for (int b_size = 0; b_size < 8; ++b_size) {
                    bool share = false;
                    for (int k = 0; k < 32; ++k)
                        share = share || (k >= a && k < a + a_size && k >= b && k < b + b_size);
                    assert_int_equal(sut_overlap(memory + a, (size_t)a_size, memory + b, (size_t)b_size), share);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_strings), cmocka_unit_test(the_text_of_a_failure),
        cmocka_unit_test(ranges),         cmocka_unit_test(structs_of_every_size),
        cmocka_unit_test(overlaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
