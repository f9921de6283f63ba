/*
 * Options of surgery methods: defaults, and the range of each.
 *
 * Numbers are checked whatever the method is, so that a config with rubbish in it never gets in; preference and order, which
 * point to the caller's memory, are read only by the methods that use them.
 */
#include "surgery/surgery.h"

#include <math.h>
#include <string.h>

void sut_surgery_config_init_sized(sut_surgery_config *config, size_t struct_size, sut_surgery_method method)
{
    sut_surgery_config defaults;
    memset(&defaults, 0, sizeof defaults);
    defaults.struct_size = struct_size;
    defaults.method = method;
    defaults.config_length = SUT_CONFIG_PROJECTION;
    defaults.cagrad_c = 0.5;
    defaults.cagrad_rescale = 1;
    defaults.cagrad_pareto = SUT_PARETO_PROJECT;
    defaults.aligned_scale = SUT_ALIGNED_MIN;
    defaults.aligned_rank_tol = 0x1p-23;
    defaults.norm_eps = 1e-4;
    defaults.reg_eps = 1e-4;
    defaults.mgda_normalisation = SUT_MGDA_NONE;
    defaults.mgda_fw_epsilon = 1e-3;
    defaults.mgda_fw_max_iterations = 100;
    defaults.nash_max_norm = 1.0;
    defaults.nash_update_every = 1;
    defaults.sdmgrad_lambda = 0.3;
    memset(config, 0, struct_size);
    memcpy(config, &defaults, struct_size < sizeof defaults ? struct_size : sizeof defaults);
}

void sut_surgery_report_init_sized(sut_surgery_report *report, size_t struct_size)
{
    sut_surgery_report empty;
    memset(&empty, 0, sizeof empty);
    empty.struct_size = struct_size;
    memset(report, 0, struct_size);
    memcpy(report, &empty, struct_size < sizeof empty ? struct_size : sizeof empty);
}

static sut_status check_integer(sut_context *ctx, const char *name, int value, int minimum, int maximum)
{
    if (value >= minimum && value <= maximum)
        return SUT_OK;
    if (maximum == INT32_MAX)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "surgery: %s is %d; it must be at least %d", name, value, minimum);
    SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "surgery: %s is %d; it must be in %d..%d", name, value, minimum, maximum);
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

    SUT_TRY(check_integer(ctx, "scale_to_sum", c->scale_to_sum, 0, 1));
    SUT_TRY(check_integer(ctx, "pcgrad_identity_order", c->pcgrad_identity_order, 0, 1));
    SUT_TRY(check_integer(ctx, "pcgrad_mean", c->pcgrad_mean, 0, 1));
    SUT_TRY(check_integer(ctx, "config_length", (int)c->config_length, 0, SUT_CONFIG_SPECIFIC));
    SUT_TRY(check_integer(ctx, "config_row", c->config_row, 0, m - 1));
    SUT_TRY(sut_check_range(ctx, "cagrad_c", c->cagrad_c, 0.0, false, INFINITY, false));
    SUT_TRY(check_integer(ctx, "cagrad_rescale", c->cagrad_rescale, 0, 2));
    SUT_TRY(sut_check_range(ctx, "cagrad_eps", c->cagrad_eps, 0.0, false, INFINITY, false));
    SUT_TRY(check_integer(ctx, "cagrad_pareto", (int)c->cagrad_pareto, 0, SUT_PARETO_MEAN));
    SUT_TRY(check_integer(ctx, "imtlg_abs_normaliser", c->imtlg_abs_normaliser, 0, 1));
    SUT_TRY(check_integer(ctx, "aligned_scale", (int)c->aligned_scale, 0, SUT_ALIGNED_RMSE));
    SUT_TRY(sut_check_range(ctx, "aligned_rank_tol", c->aligned_rank_tol, 0.0, true, 1.0, true));
    SUT_TRY(sut_check_range(ctx, "norm_eps", c->norm_eps, 0.0, false, INFINITY, false));
    SUT_TRY(sut_check_range(ctx, "reg_eps", c->reg_eps, 0.0, false, INFINITY, false));
    SUT_TRY(check_integer(ctx, "mgda_normalisation", (int)c->mgda_normalisation, 0, SUT_MGDA_LOSS_PLUS));
    SUT_TRY(check_integer(ctx, "mgda_frank_wolfe", c->mgda_frank_wolfe, 0, 1));
    SUT_TRY(sut_check_range(ctx, "mgda_fw_epsilon", c->mgda_fw_epsilon, 0.0, true, INFINITY, false));
    SUT_TRY(check_integer(ctx, "mgda_fw_max_iterations", c->mgda_fw_max_iterations, 1, INT32_MAX));
    SUT_TRY(sut_check_range(ctx, "nash_max_norm", c->nash_max_norm, 0.0, false, INFINITY, false));
    SUT_TRY(check_integer(ctx, "nash_update_every", c->nash_update_every, 1, INT32_MAX));
    SUT_TRY(sut_check_range(ctx, "sdmgrad_lambda", c->sdmgrad_lambda, 0.0, false, INFINITY, false));
    SUT_TRY(check_preference(ctx, c, m));
    return check_order(ctx, c, m);
}
