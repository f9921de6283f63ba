/*
 * Schedules: the golden tables, the exact ends, every refusal by name.
 *
 * Golden tables: case "schedules" of tests/golden/data/optim.json (float64 in Python). Both sides evaluate the same
 * formulas in double, with cos and pow of different libraries and factors in a different order: 1e-14 is some 40 roundings.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "suture/suture.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static double rate(const sut_schedule *schedule, int64_t t)
{
    double lr = NAN;
    assert_int_equal(sut_schedule_lr(NULL, schedule, t, &lr), SUT_OK);
    return lr;
}

static double number(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);
    return value ? json_number_value(value) : otherwise;
}

static void golden_tables(void **state)
{
    (void)state;
    json_error_t error;
    json_t *root = json_load_file(SUT_TEST_DATA "/optim.json", 0, &error);
    assert_non_null(root);
    int tables = 0, rates = 0;
    size_t c, k;
    json_t *item, *table;
    json_array_foreach(json_object_get(root, "cases"), c, item)
    {
        if (strcmp(json_string_value(json_object_get(item, "kind")), "schedules") != 0)
            continue;
        json_array_foreach(json_object_get(item, "tables"), k, table)
        {
            sut_schedule_kind kind;
            if (sut_schedule_from_name(json_string_value(json_object_get(table, "name")), &kind) != SUT_OK)
                continue; /* one_cycle and linear_scaling_warmup are not offered */
            const json_t *params = json_object_get(table, "params");
            sut_schedule s;
            sut_schedule_init(&s, kind);
            s.peak = number(params, "peak", s.peak);
            s.final_lr = number(params, "final", s.final_lr);
            s.warmup = (int64_t)number(params, "warmup", 0);
            s.total = (int64_t)number(params, "total", 0);
            s.warmup_start = number(params, "warmup_start", s.warmup_start);
            s.cooldown_fraction = number(params, "decay_fraction", s.cooldown_fraction);
            const char *shape = json_string_value(json_object_get(params, "shape"));
            if (shape)
                assert_int_equal(sut_cooldown_from_name(shape, &s.cooldown), SUT_OK);
            const json_t *ts = json_object_get(table, "t"), *lrs = json_object_get(table, "lr");
            assert_int_equal(json_array_size(ts), json_array_size(lrs));
            for (size_t i = 0; i < json_array_size(ts); i++, rates++) {
                const double lr = rate(&s, json_integer_value(json_array_get(ts, i)));
                const double expected = json_number_value(json_array_get(lrs, i));
                if (!(fabs(lr - expected) <= 1e-14 * fabs(expected)))
                    fail_msg("table %zu (%s), entry %zu: %.17g, expected %.17g", k, sut_schedule_name(kind), i, lr,
                             expected);
            }
            tables++;
        }
    }
    json_decref(root);
    assert_int_equal(tables, 10);
    assert_int_equal(rates, 10 * 43);
}

/* The published PINN protocol: E = 30000, W = 100, cosine from 1e-3 to 1e-4, steps 0 .. E-1. */
static void pinn_rates(void **state)
{
    (void)state;
    sut_schedule s;
    sut_schedule_init(&s, SUT_SCHEDULE_COSINE);
    s.peak = 1e-3;
    s.final_lr = 1e-4;
    s.warmup = 100;
    s.total = 30000;
    assert_true(rate(&s, 0) == 0.0); /* exactly: nothing moves in step 0 */
    assert_true(rate(&s, 100) == 1e-3);
    for (int64_t k = 0; k < 30000; k += 7) {
        const double expected =
            k < 100 ? 1e-3 * (double)k / 100.0
                    : 1e-4 + 9e-4 * 0.5 * (1.0 + cos(3.14159265358979323846 * (double)(k - 100) / 29900.0));
        assert_true(fabs(rate(&s, k) - expected) <= 1e-15 * 1e-3);
    }
    assert_true(rate(&s, 29999) > 1e-4);
}

/* Plateau and end are the very numbers that were given, for every kind and shape; numbers that the formula would move. */
static void ends_are_exact(void **state)
{
    (void)state;
    const double peak = 0.1, final = 0.3e-4;
    for (int kind = 0; kind < SUT_SCHEDULE_COUNT; kind++) {
        for (int shape = 0; shape < SUT_COOLDOWN_COUNT; shape++) {
            sut_schedule s;
            sut_schedule_init(&s, (sut_schedule_kind)kind);
            s.peak = peak;
            s.final_lr = final;
            s.warmup = 5;
            s.total = 70;
            s.cooldown_fraction = 0.3; /* floor(21) steps: the decay starts after step 49 */
            s.cooldown = (sut_cooldown)shape;
            assert_true(rate(&s, 5) == peak);
            if (kind == SUT_SCHEDULE_CONSTANT) {
                assert_true(rate(&s, 1000) == peak);
                continue;
            }
            assert_true(rate(&s, 70) == final);
            assert_true(rate(&s, INT64_MAX) == final);
            assert_true(rate(&s, 69) > final && rate(&s, 69) < peak);
            if (kind == SUT_SCHEDULE_WSD) {
                assert_true(rate(&s, 49) == peak);
                assert_true(rate(&s, 50) < peak);
            }
            for (int64_t t = 5; t < 70; t++)
                assert_true(rate(&s, t + 1) <= rate(&s, t));
        }
    }
}

static void warmup_starts_where_it_should(void **state)
{
    (void)state;
    sut_schedule s;
    sut_schedule_init(&s, SUT_SCHEDULE_CONSTANT);
    s.peak = 2.0;
    s.warmup = 4;
    s.warmup_start = 0.25;
    const double expected[] = {0.5, 0.875, 1.25, 1.625, 2.0, 2.0};
    for (int t = 0; t < 6; t++)
        assert_true(rate(&s, t) == expected[t]);
    sut_schedule_init(&s, SUT_SCHEDULE_WSD);
    assert_true(s.warmup_start == 0.01);
}

/* Cooldowns of no and of all steps, totals beyond 2^53, and rates whose quotient has no double. */
static void extremes(void **state)
{
    (void)state;
    sut_schedule s;
    sut_schedule_init(&s, SUT_SCHEDULE_WSD);
    s.total = 10;
    s.cooldown_fraction = 0.09; /* floor(0.9) = 0 steps of cooldown: the last value is the peak */
    assert_true(rate(&s, 9) == s.peak && rate(&s, 10) == s.peak && rate(&s, 1000) == s.peak);
    s.cooldown_fraction = 1;
    assert_true(rate(&s, 0) == s.peak && rate(&s, 10) == 0);
    s.total = INT64_MAX;
    assert_true(rate(&s, INT64_MAX) == 0);
    assert_true(rate(&s, INT64_MAX / 2) > 0.4e-3 && rate(&s, INT64_MAX / 2) < 0.6e-3);
    s.total = 2;
    s.peak = 1e300;
    s.final_lr = 1e-300;
    s.cooldown = SUT_COOLDOWN_EXPONENTIAL;
    assert_true(fabs(rate(&s, 1) - 1.0) < 1e-10);
}

static void refused(sut_context *ctx, const sut_schedule *s, int64_t t, sut_status status, const char *word)
{
    double lr = 42;
    assert_int_equal(sut_schedule_lr(ctx, s, t, &lr), status);
    assert_true(lr == 42);
    if (!strstr(sut_context_last_error(ctx), word))
        fail_msg("\"%s\" does not name \"%s\"", sut_context_last_error(ctx), word);
    assert_int_equal(sut_schedule_lr(NULL, s, t, &lr), status); /* also without a context */
}

static void refusals_name_the_field(void **state)
{
    (void)state;
    sut_context *ctx;
    assert_int_equal(sut_context_create(&ctx, NULL), SUT_OK);
    sut_schedule good, s;
    sut_schedule_init(&good, SUT_SCHEDULE_WSD);
    good.warmup = 2;
    good.total = 10;
    refused(ctx, &good, -1, SUT_ERROR_OUT_OF_RANGE, "t = -1");
    refused(ctx, &good, INT64_MIN, SUT_ERROR_OUT_OF_RANGE, "t =");

    const double bad[] = {-1e-9, NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 4; i++) {
        s = good, s.peak = bad[i];
        refused(ctx, &s, 0, SUT_ERROR_OUT_OF_RANGE, "peak");
        s = good, s.final_lr = bad[i];
        refused(ctx, &s, 0, SUT_ERROR_OUT_OF_RANGE, "final_lr");
        s = good, s.warmup_start = bad[i];
        refused(ctx, &s, 0, SUT_ERROR_OUT_OF_RANGE, "warmup_start");
        s = good, s.cooldown_fraction = bad[i];
        refused(ctx, &s, 0, SUT_ERROR_OUT_OF_RANGE, "cooldown_fraction");
    }
    s = good, s.warmup_start = 1.0000001;
    refused(ctx, &s, 0, SUT_ERROR_OUT_OF_RANGE, "warmup_start");
    s = good, s.cooldown_fraction = 1.0000001;
    refused(ctx, &s, 0, SUT_ERROR_OUT_OF_RANGE, "cooldown_fraction");
    s = good, s.warmup = -1;
    refused(ctx, &s, 0, SUT_ERROR_OUT_OF_RANGE, "warmup");
    s = good, s.total = 2; /* not more than the warm-up */
    refused(ctx, &s, 0, SUT_ERROR_OUT_OF_RANGE, "total");
    s = good, s.kind = SUT_SCHEDULE_COUNT;
    refused(ctx, &s, 0, SUT_ERROR_INVALID_ARGUMENT, "kind");
    s = good, s.cooldown = (sut_cooldown)-1;
    refused(ctx, &s, 0, SUT_ERROR_INVALID_ARGUMENT, "cooldown");
    s = good, s.cooldown = SUT_COOLDOWN_EXPONENTIAL; /* final_lr is 0 */
    refused(ctx, &s, 0, SUT_ERROR_OUT_OF_RANGE, "final_lr");
    s = good, s.struct_size = 0;
    refused(ctx, &s, 0, SUT_ERROR_INVALID_ARGUMENT, "schedule");
    s = good, s.struct_size = sizeof s + 1;
    refused(ctx, &s, 0, SUT_ERROR_INVALID_ARGUMENT, "schedule");
    refused(ctx, NULL, 0, SUT_ERROR_INVALID_ARGUMENT, "NULL");
    assert_int_equal(sut_schedule_lr(ctx, &good, 0, NULL), SUT_ERROR_INVALID_ARGUMENT);

    sut_schedule_init(&s, SUT_SCHEDULE_CONSTANT); /* `constant` needs no total */
    assert_true(rate(&s, 5) == 1e-3);
    sut_context_destroy(ctx);
}

static void names_go_both_ways(void **state)
{
    (void)state;
    for (int k = 0; k < SUT_SCHEDULE_COUNT; k++) {
        sut_schedule_kind kind = SUT_SCHEDULE_COUNT;
        assert_non_null(sut_schedule_name((sut_schedule_kind)k));
        assert_int_equal(sut_schedule_from_name(sut_schedule_name((sut_schedule_kind)k), &kind), SUT_OK);
        assert_int_equal(kind, k);
    }
    for (int k = 0; k < SUT_COOLDOWN_COUNT; k++) {
        sut_cooldown cooldown = SUT_COOLDOWN_COUNT;
        assert_non_null(sut_cooldown_name((sut_cooldown)k));
        assert_int_equal(sut_cooldown_from_name(sut_cooldown_name((sut_cooldown)k), &cooldown), SUT_OK);
        assert_int_equal(cooldown, k);
    }
    sut_schedule_kind kind = SUT_SCHEDULE_LINEAR;
    sut_cooldown cooldown = SUT_COOLDOWN_MIRROR;
    assert_null(sut_schedule_name((sut_schedule_kind)-1));
    assert_null(sut_schedule_name(SUT_SCHEDULE_COUNT));
    assert_null(sut_cooldown_name((sut_cooldown)-1));
    assert_null(sut_cooldown_name(SUT_COOLDOWN_COUNT));
    assert_int_equal(sut_schedule_from_name("Linear", &kind), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_schedule_from_name(NULL, &kind), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_schedule_from_name("linear", NULL), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_cooldown_from_name("", &cooldown), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_cooldown_from_name(NULL, &cooldown), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_cooldown_from_name("exp", NULL), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(kind, SUT_SCHEDULE_LINEAR);
    assert_int_equal(cooldown, SUT_COOLDOWN_MIRROR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_tables),      cmocka_unit_test(pinn_rates),
        cmocka_unit_test(ends_are_exact),     cmocka_unit_test(warmup_starts_where_it_should),
        cmocka_unit_test(extremes),           cmocka_unit_test(refusals_name_the_field),
        cmocka_unit_test(names_go_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
