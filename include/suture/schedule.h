/**
 * @file schedule.h
 * Learning-rate schedules: lr(t) for t = 0, 1, 2, ... = number of steps already done. Pure functions of t in double.
 *
 * Warm-up factor: w(t) = s0 + (1 - s0) t/W for t < W, then 1. With s0 = 0 the rate of step 0 is exactly 0: the
 * optimizer's moments advance, the parameters do not move. After `total` steps every schedule stays at its last value.
 */
#ifndef SUTURE_SCHEDULE_H
#define SUTURE_SCHEDULE_H

#include "suture/context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sut_schedule_kind {
    SUT_SCHEDULE_CONSTANT = 0, /**< peak after the warm-up */
    SUT_SCHEDULE_LINEAR,       /**< peak -> final over [W, T] */
    SUT_SCHEDULE_COSINE,       /**< final + (peak - final)(1 + cos pi x)/2, x = (t - W)/(T - W) */
    SUT_SCHEDULE_WSD, /**< peak until T - floor(f T), then final + (peak - final) S(x): Hu et al. 2024, arXiv 2404.06395 */
    SUT_SCHEDULE_COUNT
} sut_schedule_kind;

/** Cooldown shapes S(x) of WSD, x in [0, 1]: Haegele et al. 2024, arXiv 2405.18392; Dremov et al. 2025, arXiv 2508.01483. */
typedef enum sut_cooldown {
    SUT_COOLDOWN_LINEAR = 0,  /**< 1 - x */
    SUT_COOLDOWN_COSINE,      /**< (1 + cos pi x)/2 */
    SUT_COOLDOWN_MIRROR,      /**< 2(1 - x) - (1 + cos pi x)/2 */
    SUT_COOLDOWN_ONE_SQRT,    /**< 1 - sqrt x */
    SUT_COOLDOWN_SQUARE,      /**< 1 - x^2 */
    SUT_COOLDOWN_EXPONENTIAL, /**< the rate itself is peak (final/peak)^x; needs final > 0 */
    SUT_COOLDOWN_COUNT
} sut_cooldown;

typedef struct sut_schedule {
    size_t struct_size;
    sut_schedule_kind kind;
    double peak;              /**< >= 0, default 1e-3 */
    double final_lr;          /**< >= 0, default 0 */
    int64_t warmup;           /**< W >= 0 steps, default 0 */
    int64_t total;            /**< T > W steps (ignored by `constant`), default 0: must be set */
    double warmup_start;      /**< s0 in [0, 1], default 0 (WSD: 0.01) */
    double cooldown_fraction; /**< f in [0, 1], default 0.1 */
    sut_cooldown cooldown;    /**< default SUT_COOLDOWN_LINEAR */
} sut_schedule;

SUT_API void sut_schedule_init_sized(sut_schedule *schedule, size_t struct_size, sut_schedule_kind kind);
static inline void sut_schedule_init(sut_schedule *schedule, sut_schedule_kind kind)
{
    sut_schedule_init_sized(schedule, sizeof *schedule, kind);
}

/**
 * The rate of step t.
 * @param ctx  For the error text; NULL is allowed.
 * @return SUT_OK; SUT_ERROR_OUT_OF_RANGE (t < 0, or a field outside its range, by name) with *lr unchanged.
 */
SUT_API sut_status sut_schedule_lr(sut_context *ctx, const sut_schedule *schedule, int64_t t, double *lr);

/** "constant", "linear", "cosine", "wsd"; NULL for an unknown value. */
SUT_API const char *sut_schedule_name(sut_schedule_kind kind);
SUT_API sut_status sut_schedule_from_name(const char *name, sut_schedule_kind *kind_out);
/** "linear", "cosine", "mirror", "1-sqrt", "square", "exp"; NULL for an unknown value. */
SUT_API const char *sut_cooldown_name(sut_cooldown cooldown);
SUT_API sut_status sut_cooldown_from_name(const char *name, sut_cooldown *cooldown_out);

#ifdef __cplusplus
}
#endif

#endif /* SUTURE_SCHEDULE_H */
