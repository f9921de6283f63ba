/*
 * Configurations of surgery methods: defaults, and whether everything is in its range. The ranges are those of options.c.
 */
#include "surgery/options.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void sut_surgery_config_init_sized(sut_surgery_config *config, size_t struct_size, sut_surgery_method method)
{
    sut_surgery_config defaults;
    memset(&defaults, 0, sizeof defaults);
    defaults.struct_size = struct_size;
    defaults.method = method;
    for (int k = 0; k < sut_surgery_n_options; ++k)
        if (sut_surgery_options[k].kind != SUT_OPTION_ARRAY)
            sut_surgery_option_put(&defaults, &sut_surgery_options[k], sut_surgery_options[k].default_value);
    if (!config)
        return;
    memset(config, 0, struct_size);
    memcpy(config, &defaults, struct_size < sizeof defaults ? struct_size : sizeof defaults);
}

void sut_surgery_report_init_sized(sut_surgery_report *report, size_t struct_size)
{
    sut_surgery_report empty;
    memset(&empty, 0, sizeof empty);
    empty.struct_size = struct_size;
    if (!report)
        return;
    memset(report, 0, struct_size);
    memcpy(report, &empty, struct_size < sizeof empty ? struct_size : sizeof empty);
}

/* `m` losses: a row of config_row is one of theirs. */
static sut_status check_option(sut_context *ctx, const sut_surgery_config *c, const sut_surgery_option_row *o, int m)
{
    char label[64];
    (void)snprintf(label, sizeof label, "surgery: %s", o->name);
    const double value = sut_surgery_option_get(c, o);
    if (o->kind == SUT_OPTION_REAL)
        return sut_check_range(ctx, label, value, o->minimum, o->minimum_open, o->maximum, o->maximum_open);
    const bool is_row = o->offset == offsetof(sut_surgery_config, config_row);
    const double maximum = is_row ? m - 1 : o->maximum;
    if (value >= o->minimum && value <= maximum)
        return SUT_OK;
    if (maximum == INT_MAX)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "%s is %.0f; it must be at least %.0f", label, value, o->minimum);
    SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "%s is %.0f; it must be in %.0f..%.0f", label, value, o->minimum, maximum);
}

static sut_status check_preference(sut_context *ctx, const sut_surgery_config *c, int m)
{
    const char *method = sut_surgery_table[c->method].name;
    if (!sut_surgery_table[c->method].uses_preference)
        return SUT_OK;
    if (!c->preference) {
        if (c->method == SUT_SURGERY_FIXED)
            SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT,
                     "surgery: fixed needs its %d weights in preference, which is NULL", m);
        return SUT_OK;
    }
    bool some = false;
    for (int i = 0; i < m; ++i) {
        const double x = c->preference[i];
        if (!isfinite(x) || (x < 0.0 && c->method != SUT_SURGERY_FIXED))
            SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "surgery: %s: preference[%d] is %g; it must be finite%s", method, i,
                     x, c->method == SUT_SURGERY_FIXED ? "" : " and at least 0");
        some = some || x != 0.0;
    }
    if (!some && c->method == SUT_SURGERY_CONFIG)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE,
                 "surgery: config: every angle weight in preference is 0; one must be positive");
    return SUT_OK;
}

static sut_status check_order(sut_context *ctx, const sut_surgery_config *c, int m)
{
    if (c->method != SUT_SURGERY_PCGRAD || !c->order)
        return SUT_OK;
    for (int i = 0; i < m; ++i) {
        uint64_t seen = 0;
        for (int k = 0; k < m; ++k) {
            const int j = c->order[(size_t)i * (size_t)m + (size_t)k];
            if (j < 0 || j >= m)
                SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "surgery: pcgrad: order[%d][%d] is %d; it must be in 0..%d", i, k,
                         j, m - 1);
            if (seen >> j & 1)
                SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT,
                         "surgery: pcgrad: order[%d] holds %d twice; each row must be a permutation of 0..%d", i, j,
                         m - 1);
            seen |= (uint64_t)1 << j;
        }
    }
    return SUT_OK;
}

sut_status sut_surgery_validate(sut_context *ctx, const sut_surgery_config *c, int m)
{
    if (m < 1 || m > SUT_MAX_LOSSES)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "surgery: the number of losses m is %d; it must be in 1..%d", m,
                 SUT_MAX_LOSSES);
    if ((int)c->method < 0 || c->method >= SUT_SURGERY_COUNT)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "surgery: method is %d, which is none; methods are 0..%d",
                 (int)c->method, SUT_SURGERY_COUNT - 1);

    for (int k = 0; k < sut_surgery_n_options; ++k)
        if (sut_surgery_options[k].kind != SUT_OPTION_ARRAY)
            SUT_TRY(check_option(ctx, c, &sut_surgery_options[k], m));
    SUT_TRY(check_preference(ctx, c, m));
    return check_order(ctx, c, m);
}
