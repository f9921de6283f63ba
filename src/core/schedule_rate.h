/*
 * The rate of a schedule that was checked (schedule.c): on the host, and on a GPU, where the step count is.
 */
#ifndef SUT_CORE_SCHEDULE_RATE_H
#define SUT_CORE_SCHEDULE_RATE_H

#include "core/portable.h"
#include "suture/schedule.h"

#include <math.h>
#include <stdint.h>

/* The rate at x in (0, 1) of a decay of the given shape. */
SUT_SMALL double sut_schedule_decay(const sut_schedule *s, sut_cooldown shape, double x)
{
    const double half_cosine = 0.5 * (1.0 + cos(3.14159265358979323846 * x));
    double S;
    switch (shape) {
    case SUT_COOLDOWN_COSINE: S = half_cosine; break;
    case SUT_COOLDOWN_MIRROR: S = 2.0 * (1.0 - x) - half_cosine; break;
    case SUT_COOLDOWN_ONE_SQRT: S = 1.0 - sqrt(x); break;
    case SUT_COOLDOWN_SQUARE: S = 1.0 - x * x; break;
    case SUT_COOLDOWN_EXPONENTIAL:
        /* peak (final/peak)^x, written so that no quotient can overflow */
        return pow(s->peak, 1.0 - x) * pow(s->final_lr, x);
    default: S = 1.0 - x; break;
    }
    return s->final_lr + (s->peak - s->final_lr) * S;
}

/* First step of the decay and its length; a length of 0 means that there is none. */
SUT_SMALL void sut_schedule_decay_range(const sut_schedule *s, int64_t *start, int64_t *length)
{
    if (s->kind == SUT_SCHEDULE_WSD) {
        const double product = floor(s->cooldown_fraction * (double)s->total);
        /* For totals beyond 2^53 the product may round up to 2^63, which no int64_t holds. */
        *length = product >= (double)s->total ? s->total : (int64_t)product;
        *start = s->total - *length;
    } else {
        *start = s->warmup;
        *length = s->kind == SUT_SCHEDULE_CONSTANT ? 0 : s->total - s->warmup;
    }
}

SUT_SMALL double sut_schedule_rate(const sut_schedule *s, int64_t t)
{
    int64_t start, length;
    sut_schedule_decay_range(s, &start, &length);
    double rate = s->peak;
    if (length > 0 && t > start) {
        const sut_cooldown shape = s->kind == SUT_SCHEDULE_WSD      ? s->cooldown
                                   : s->kind == SUT_SCHEDULE_COSINE ? SUT_COOLDOWN_COSINE
                                                                    : SUT_COOLDOWN_LINEAR;
        rate = t - start >= length ? s->final_lr : sut_schedule_decay(s, shape, (double)(t - start) / (double)length);
    }
    if (t < s->warmup)
        rate *= s->warmup_start + (1.0 - s->warmup_start) * ((double)t / (double)s->warmup);
    return rate;
}

#endif /* SUT_CORE_SCHEDULE_RATE_H */
