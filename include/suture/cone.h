/**
 * @file cone.h
 * Projection onto the conflict-free cone  C = { p : g_i . p >= 0 for all i }.
 *
 *     p* = argmin 1/2 |p - u|_M^2  over C,      M = diag(delta)
 *     lambda* in argmin 1/2 l^T K l + b^T l  over l >= 0,   K = G M^-1 G^T,  b = G u
 *     p* = u + M^-1 G^T lambda*
 *
 * p* exists (unless coordinates are frozen, see SUT_CONE_INFEASIBLE), is unique, and is u itself, bit for bit, when u is in
 * the cone. The multipliers are found by an exact
 * active-set method (Lawson, Hanson 1974) in double.
 */
#ifndef SUTURE_CONE_H
#define SUTURE_CONE_H

#include "suture/context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sut_cone_kind {
    SUT_CONE_UNCHANGED = 0, /**< u was in the cone, up to feas_tol and the solver's rounding: p = u, same bits */
    SUT_CONE_BOUNDARY = 1,  /**< p is on the boundary */
    SUT_CONE_ZERO = 2,      /**< p = 0 exactly: no direction near u hurts no loss (Pareto-stationary proposal) */
    /** There is no p: constraints cannot be met because coordinates that they need are frozen (Inf in the metric). What is
     *  returned has those coordinates of u and still hurts a loss; `primal` and `cos_p` say by how much. */
    SUT_CONE_INFEASIBLE = 3
} sut_cone_kind;

/** The certificate of one projection; every figure is computed from the p and lambda that were returned, whatever `kind` is. */
typedef struct sut_cone_report {
    size_t struct_size;
    int n_losses;
    sut_cone_kind kind;
    double lambda[SUT_MAX_LOSSES]; /**< multipliers on the rows as given, >= 0 */
    double slack[SUT_MAX_LOSSES];  /**< s_i = g_i . p */
    double cos_u[SUT_MAX_LOSSES];  /**< cosine of u with g_i, 0 when either vanishes */
    double cos_p[SUT_MAX_LOSSES];  /**< cosine of p with g_i, likewise */
    int active[SUT_MAX_LOSSES];    /**< 1: lambda_i > 0 */
    int tight[SUT_MAX_LOSSES];     /**< 1: s_i <= 1e-12 d_i |p| (f32: 2^-23); zero rows are tight */
    double primal;                 /**< max_i max(0, -s_i) / (d_i |p|) */
    double dual;                   /**< max_i max(0, -lambda_i) */
    double complementarity;        /**< max_i |lambda_i s_i| / |u|_M^2 */
    double gap;                    /**< |sum lambda_i s_i| / |u|_M^2 */
    double relative_change;        /**< |p - u| / |u| (0 for u = 0) */
    double distance2;              /**< |p - u|_M^2 */
    int refinements;               /**< refinement steps of the multipliers */
    int rounds;                    /**< rounds of the active-set method */
    int strict_met; /**< every s_i >= 0 as summed in double from the stored p (from the unrounded one where p is NULL) */
} sut_cone_report;

SUT_API void sut_cone_report_init_sized(sut_cone_report *report, size_t struct_size);
static inline void sut_cone_report_init(sut_cone_report *report)
{
    sut_cone_report_init_sized(report, sizeof *report);
}

/** Options of sut_cone_project(). */
typedef struct sut_cone_config {
    size_t struct_size;
    double feas_tol; /**< >= 0, default 0: u counts as inside when every g_i . u >= -feas_tol d_i |u| */
    int strict;      /**< 1: ask for s_i >= 0 of the stored p, not only up to its rounding; default 0 */
} sut_cone_config;

SUT_API void sut_cone_config_init_sized(sut_cone_config *config, size_t struct_size);
static inline void sut_cone_config_init(sut_cone_config *config)
{
    sut_cone_config_init_sized(config, sizeof *config);
}

/**
 * Project u onto the cone of m gradients.
 *
 * Elements are in the memory of the back end of `ctx` (CUDA: of its device, or managed), everything else is host memory.
 *
 * @param ctx     Borrowed.
 * @param config  Borrowed. NULL: defaults.
 * @param grads   m pointers, each to n elements of `dtype`. Read only.
 * @param m, n    1 <= m <= SUT_MAX_LOSSES; 1 <= n <= INT64_MAX / 8.
 * @param dtype   f32 or f64, of gradients, u, metric and p alike.
 * @param u       n elements.
 * @param metric  n elements delta_j > 0 (Inf freezes coordinate j: p_j = u_j). NULL: Euclidean.
 * @param p       Out, n elements; may be u itself, may not overlap a gradient or the metric. NULL: only the report is wanted.
 * @param report  Out, initialised by sut_cone_report_init(). NULL: not wanted.
 *
 * @return SUT_OK, or an error with nothing written: SUT_ERROR_NOT_FINITE (names the loss or argument, and the index),
 *         SUT_ERROR_INVALID_ARGUMENT, SUT_ERROR_UNSUPPORTED (dtype), SUT_ERROR_OUT_OF_MEMORY; SUT_ERROR_OUT_OF_RANGE (m, an
 *         option or an entry of the metric; a metric that spans too many orders of magnitude; a p too long for `dtype`).
 *
 * CUDA: queued on the context's stream; the report is complete on return, p when the stream is.
 */
SUT_API sut_status sut_cone_project(sut_context *ctx, const sut_cone_config *config, const void *const *grads, int m,
                                    int64_t n, sut_dtype dtype, const void *u, const void *metric, void *p,
                                    sut_cone_report *report);

#ifdef __cplusplus
}
#endif

#endif /* SUTURE_CONE_H */
