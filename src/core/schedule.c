/*
 * Learning-rate schedules, schedule.h. Each rate is w(t) * base(t): the warm-up factor w is 1 from step W on, and base is
 * still `peak` before it for every kind whose decay starts at W or later.
 *
 * Both ends are exact: base is `peak` itself before the decay starts and `final_lr` itself after it. Computing them from
 * the formula (final + (peak - final)) would move the plateau by a rounding error.
 *
 * Hu et al. 2024, arXiv 2404.06395 (WSD); Haegele et al. 2024, arXiv 2405.18392, and Dremov et al. 2025, arXiv 2508.01483
 * (cooldown shapes).
 */
#include "core/schedule_rate.h"

#include "core/internal.h"

#include <math.h>
#include <string.h>

static const char *const schedule_names[SUT_SCHEDULE_COUNT] = {
    [SUT_SCHEDULE_CONSTANT] = "constant",
    [SUT_SCHEDULE_LINEAR] = "linear",
    [SUT_SCHEDULE_COSINE] = "cosine",
    [SUT_SCHEDULE_WSD] = "wsd",
};

static const char *const cooldown_names[SUT_COOLDOWN_COUNT] = {
    [SUT_COOLDOWN_LINEAR] = "linear",   [SUT_COOLDOWN_COSINE] = "cosine", [SUT_COOLDOWN_MIRROR] = "mirror",
    [SUT_COOLDOWN_ONE_SQRT] = "1-sqrt", [SUT_COOLDOWN_SQUARE] = "square", [SUT_COOLDOWN_EXPONENTIAL] = "exp",
};

const char *sut_schedule_name(sut_schedule_kind kind)
{
    return (int)kind >= 0 && kind < SUT_SCHEDULE_COUNT ? schedule_names[kind] : NULL;
}

const char *sut_cooldown_name(sut_cooldown cooldown)
{
    return (int)cooldown >= 0 && cooldown < SUT_COOLDOWN_COUNT ? cooldown_names[cooldown] : NULL;
}

/* Index of `name` in a table, or -1. */
static int find_name(const char *name, const char *const *names, int count)
{
    for (int k = 0; name != NULL && k < count; k++)
        if (strcmp(name, names[k]) == 0)
            return k;
    return -1;
}

sut_status sut_schedule_from_name(const char *name, sut_schedule_kind *kind_out)
{
    const int k = find_name(name, schedule_names, SUT_SCHEDULE_COUNT);
    if (k < 0 || kind_out == NULL)
        return SUT_ERROR_INVALID_ARGUMENT;
    *kind_out = (sut_schedule_kind)k;
    return SUT_OK;
}

sut_status sut_cooldown_from_name(const char *name, sut_cooldown *cooldown_out)
{
    const int k = find_name(name, cooldown_names, SUT_COOLDOWN_COUNT);
    if (k < 0 || cooldown_out == NULL)
        return SUT_ERROR_INVALID_ARGUMENT;
    *cooldown_out = (sut_cooldown)k;
    return SUT_OK;
}

static sut_schedule schedule_defaults(sut_schedule_kind kind)
{
    sut_schedule s;
    memset(&s, 0, sizeof s); /* padding too: no byte of rubbish reaches the caller's struct */
    s.struct_size = sizeof s;
    s.kind = kind;
    s.peak = 1e-3;
    s.warmup_start = kind == SUT_SCHEDULE_WSD ? 0.01 : 0.0;
    s.cooldown_fraction = 0.1;
    s.cooldown = SUT_COOLDOWN_LINEAR;
    return s;
}

void sut_schedule_init_sized(sut_schedule *schedule, size_t struct_size, sut_schedule_kind kind)
{
    if (schedule == NULL || struct_size < sizeof schedule->struct_size)
        return;
    const sut_schedule s = schedule_defaults(kind);
    memset(schedule, 0, struct_size);
    memcpy(schedule, &s, struct_size < sizeof s ? struct_size : sizeof s);
    schedule->struct_size = struct_size;
}

static sut_status check_schedule(sut_context *ctx, const sut_schedule *s)
{
    if (sut_schedule_name(s->kind) == NULL)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "schedule: kind %d is unknown; allowed: 0 to %d", (int)s->kind,
                 SUT_SCHEDULE_COUNT - 1);
    if (sut_cooldown_name(s->cooldown) == NULL)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "schedule: cooldown %d is unknown; allowed: 0 to %d",
                 (int)s->cooldown, SUT_COOLDOWN_COUNT - 1);
    SUT_TRY(sut_check_range(ctx, "schedule peak", s->peak, 0, false, INFINITY, true));
    SUT_TRY(sut_check_range(ctx, "schedule final_lr", s->final_lr, 0, false, INFINITY, true));
    SUT_TRY(sut_check_range(ctx, "schedule warmup_start", s->warmup_start, 0, false, 1, false));
    SUT_TRY(sut_check_range(ctx, "schedule cooldown_fraction", s->cooldown_fraction, 0, false, 1, false));
    if (s->warmup < 0)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "schedule: warmup = %lld; allowed: 0 or more steps",
                 (long long)s->warmup);
    if (s->kind != SUT_SCHEDULE_CONSTANT && s->total <= s->warmup)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "schedule: total = %lld steps; `%s` needs more than its warmup of %lld",
                 (long long)s->total, schedule_names[s->kind], (long long)s->warmup);
    if (s->kind == SUT_SCHEDULE_WSD && s->cooldown == SUT_COOLDOWN_EXPONENTIAL && !(s->final_lr > 0 && s->peak > 0))
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE,
                 "schedule: the `exp` cooldown needs peak > 0 and final_lr > 0, not %g and %g", s->peak, s->final_lr);
    return SUT_OK;
}

sut_status sut_schedule_lr(sut_context *ctx, const sut_schedule *schedule, int64_t t, double *lr)
{
    if (schedule == NULL || lr == NULL)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "schedule: %s is NULL", schedule == NULL ? "schedule" : "lr");
    sut_schedule s = schedule_defaults(SUT_SCHEDULE_CONSTANT);
    SUT_TRY(sut_read_struct(ctx, "schedule", &s, sizeof s, schedule));
    SUT_TRY(check_schedule(ctx, &s));
    if (t < 0)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "schedule: step t = %lld; allowed: 0 or more", (long long)t);

    *lr = sut_schedule_rate(&s, t);
    return SUT_OK;
}
