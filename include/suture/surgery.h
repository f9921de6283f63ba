/**
 * @file surgery.h
 * Gradient surgery: m gradients of m losses become one direction  a = sum_i w_i g_i.
 *
 * Every method here finds the weights w from the m x m Gram matrix K = G G^T alone (row i of G is the gradient g_i), so
 * the cost beyond one pass over G does not depend on the number of parameters. The step is theta <- theta - lr (..a..):
 * a . g_i > 0 means that loss i goes down.
 *
 * Conventions: `mean`-like methods (mean, cagrad, aligned_mtl, upgrad, dualproj, mgda, sdmgrad) give a direction of the
 * size of the mean gradient, `sum`-like ones (sum, config, pcgrad) of the sum; `scale_to_sum` multiplies by m.
 * A row whose norm is exactly zero (or 1e-150 times that of the longest row) has no direction: it gets weight 0 wherever
 * a unit vector is needed.
 *
 * Zero results are exact zeros: a direction that is rounding noise, |a| <= 6e-8 sqrt(m) sum |w_i| |g_i| (below that K does not
 * tell it from 0), comes back as 0 with weights 0. Exempt are methods whose weights keep their digits however ill-conditioned K
 * is: mgda_frank_wolfe, and upgrad and dualproj with a ridge (their default), which end at 4e-15 m sum |w_i| |g_i| instead; and
 * sum, mean and fixed, whose weights are never replaced.
 */
#ifndef SUTURE_SURGERY_H
#define SUTURE_SURGERY_H

#include "suture/context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sut_surgery_method {
    SUT_SURGERY_SUM = 0,     /**< w = 1 */
    SUT_SURGERY_MEAN,        /**< w = 1/m */
    SUT_SURGERY_FIXED,       /**< w = preference, as given */
    SUT_SURGERY_CONFIG,      /**< Liu, Chu, Thuerey 2024, arXiv 2408.11104 */
    SUT_SURGERY_PCGRAD,      /**< Yu et al. 2020, arXiv 2001.06782 */
    SUT_SURGERY_CAGRAD,      /**< Liu, Liu, Jin, Stone, Liu 2021, arXiv 2110.14048 */
    SUT_SURGERY_IMTLG,       /**< Liu et al. 2021, ICLR (IMTL-G) */
    SUT_SURGERY_ALIGNED_MTL, /**< Senushkin et al. 2023, arXiv 2305.19000 */
    SUT_SURGERY_UPGRAD,      /**< Quinton, Rey 2024, arXiv 2406.16232 */
    SUT_SURGERY_DUALPROJ,    /**< Lopez-Paz, Ranzato 2017, arXiv 1706.08840 */
    SUT_SURGERY_MGDA,        /**< Desideri 2012; Sener, Koltun 2018, arXiv 1810.04650 */
    SUT_SURGERY_NASH,        /**< Navon et al. 2022, arXiv 2202.01017 */
    SUT_SURGERY_SDMGRAD,     /**< Xiao, Ban, Ji 2023, arXiv 2305.18409 */
    SUT_SURGERY_COUNT        /**< number of methods, not a method */
} sut_surgery_method;

/** Length of ConFIG's direction. d_i: norm of g_i, cos_i: cosine of the direction with g_i; sums over rows that are not zero. */
typedef enum sut_config_length {
    SUT_CONFIG_PROJECTION = 0, /**< sum d_i cos_i (default) */
    SUT_CONFIG_MINIMUM,
    SUT_CONFIG_MAXIMUM,
    SUT_CONFIG_HARMONIC,
    SUT_CONFIG_ARITHMETIC,
    SUT_CONFIG_GEOMETRIC,
    SUT_CONFIG_SPECIFIC /**< d_k sum cos_i, k = config_row */
} sut_config_length;

/** Scale of Aligned-MTL: the smallest kept eigenvalue of K, the lower median, or the mean of the kept ones. */
typedef enum sut_aligned_scale { SUT_ALIGNED_MIN = 0, SUT_ALIGNED_MEDIAN, SUT_ALIGNED_RMSE } sut_aligned_scale;

/** CAGrad's answer at a Pareto-stationary point, where its dual leaves the direction open. */
typedef enum sut_cagrad_pareto {
    SUT_PARETO_PROJECT = 0, /**< projection of the mean onto the cone (default): the optimum nearest to the mean */
    SUT_PARETO_ZERO,
    SUT_PARETO_MEAN
} sut_cagrad_pareto;

typedef enum sut_mgda_normalisation {
    SUT_MGDA_NONE = 0, /**< default */
    SUT_MGDA_L2,       /**< rows divided by their norm before the solve */
    SUT_MGDA_LOSS,     /**< by the loss */
    SUT_MGDA_LOSS_PLUS /**< by loss times norm */
} sut_mgda_normalisation;

/** Options of all methods; those of other methods than `method` are ignored. */
typedef struct sut_surgery_config {
    size_t struct_size;
    sut_surgery_method method; /**< default: as given to _init */
    int scale_to_sum;          /**< 0 (default) or 1: multiply a by m. */
    /**
     * m weights, finite. `fixed`: the weights themselves (needed). `config`: angle weights, >= 0, not all 0.
     * `aligned_mtl`, `upgrad`, `dualproj`: preferences, >= 0. NULL (default): equal. Borrowed: read in each call, so it
     * must outlive the optimizer that was configured with it.
     */
    const double *preference;
    /** `pcgrad`: m*m entries, row i a permutation of 0..m-1: the order for loss i. NULL: drawn from seed and step. Borrowed. */
    const int *order;
    int pcgrad_identity_order;       /**< 1: orders are 0,1,2,... (default 0: random) */
    int pcgrad_mean;                 /**< 1: divide by m (default 0) */
    sut_config_length config_length; /**< default SUT_CONFIG_PROJECTION */
    int config_row;                  /**< row of SUT_CONFIG_SPECIFIC, 0..m-1, default 0 */
    double cagrad_c;                 /**< >= 0, default 0.5 */
    int cagrad_rescale;              /**< factor 1 (0), 1/(1+c^2) (1, default), 1/(1+c) (2) */
    double cagrad_eps;               /**< >= 0, default 0: exact. > 0: the smoothed objective of the published code. */
    sut_cagrad_pareto cagrad_pareto; /**< default SUT_PARETO_PROJECT */
    int imtlg_abs_normaliser;        /**< 1: divide by the absolute value of the normaliser (default 0) */
    sut_aligned_scale aligned_scale; /**< default SUT_ALIGNED_MIN */
    double aligned_rank_tol;         /**< in (0, 1), default 2^-23: eigenvalues <= m rank_tol max are dropped */
    double norm_eps;                 /**< `upgrad`, `dualproj`: >= 0, default 1e-4. tr K below it: the plain mean. */
    double reg_eps;                  /**< `upgrad`, `dualproj`: >= 0, default 1e-4. Added to K / tr K; 0: exact cone. */
    sut_mgda_normalisation mgda_normalisation;
    int mgda_frank_wolfe;       /**< 1: Frank-Wolfe instead of the exact solution (default 0) */
    double mgda_fw_epsilon;     /**< > 0, default 1e-3 */
    int mgda_fw_max_iterations; /**< >= 1, default 100 */
    double nash_max_norm;       /**< >= 0, default 1; 0: no limit */
    int nash_update_every;      /**< >= 1, default 1: keep the weights for that many steps (optimizers only) */
    double sdmgrad_lambda;      /**< >= 0, default 0.3 */
} sut_surgery_config;

SUT_API void sut_surgery_config_init_sized(sut_surgery_config *config, size_t struct_size, sut_surgery_method method);
/** Fill in every default for `method`. */
static inline void sut_surgery_config_init(sut_surgery_config *config, sut_surgery_method method)
{
    sut_surgery_config_init_sized(config, sizeof *config, method);
}

/** What a surgery call found. Arrays hold m entries. */
typedef struct sut_surgery_report {
    size_t struct_size;
    int n_losses;
    double weights[SUT_MAX_LOSSES]; /**< w */
    double norms[SUT_MAX_LOSSES];   /**< d_i = norm of g_i (Inf or 0 where a double cannot hold it) */
    double cos_a[SUT_MAX_LOSSES];   /**< cosine of a with g_i, 0 where the norm of either is reported as 0 */
    double norm_a;            /**< norm of a (likewise; 0 too where it is below what K can tell from 0, see above) */
    double min_cos;           /**< smallest entry of cos_a over rows that are not zero (0 if there is none) */
    double min_pair_cos;      /**< smallest cosine between two gradients (m = 1: 0) */
    double conflict_fraction; /**< share of pairs with cosine < -1e-6 */
    double alignment;         /**< 2 |mean unit gradient|^2 - 1 in [-1, 1]: Wang et al. 2025, arXiv 2502.00604 */
    int rank;                 /**< numerical rank that the method used; m where it uses none */
    int zero; /**< a is exactly zero: no direction helps, or the method's own zero case. sum, mean, fixed: K w = 0, all digits. */
    int pareto; /**< stationary: 0 lies in the convex hull of the gradients. Found by config, pcgrad, cagrad,
                                         mgda, sdmgrad; other methods set it only where their answer is zero. */
    int negative_normaliser; /**< IMTL-G: a climbs every loss */
    int n_conflicts;         /**< rows with cos_a < -1e-6 */
    int strict;              /**< 1: products were taken in double (asked for, or needed by the conditioning) */
    /**
     * 0: the method's inner loop stopped at its limit (mgda_fw_max_iterations; 500 for nash, 200 for cagrad, which no input
     * is known to reach). The call succeeds all the same: the weights are the best so far, finite and usable. Else 1.
     */
    int converged;
    int iterations; /**< rounds of that loop: nash, cagrad, mgda, sdmgrad; 0 where there is none */
} sut_surgery_report;

SUT_API void sut_surgery_report_init_sized(sut_surgery_report *report, size_t struct_size);
static inline void sut_surgery_report_init(sut_surgery_report *report)
{
    sut_surgery_report_init_sized(report, sizeof *report);
}

/**
 * Combine m gradients into one direction, a = sum_i w_i g_i.
 *
 * @param ctx     Borrowed.
 * @param config  Borrowed for the call. NULL is not allowed: the method is in it.
 * @param grads   m pointers, each to n elements of `dtype` in the memory of the back end, aligned to their size. Read only,
 *                not kept.
 * @param m, n    1 <= m <= SUT_MAX_LOSSES; 1 <= n <= INT64_MAX / 8.
 * @param dtype   f32 or f64.
 * @param losses  m finite values, or NULL; needed by mgda with a `loss` normalisation (then > 0).
 * @param counter Number of calls so far, for methods that draw: seed and counter determine the draw.
 * @param out     Out, n elements of `dtype`, aligned to their size, may not overlap any gradient. NULL: only the report is wanted.
 * @param report  Out, initialised by sut_surgery_report_init(). NULL: not wanted.
 *
 * @return SUT_OK, or an error with nothing written: SUT_ERROR_NOT_FINITE (the text names the loss and the index),
 *         SUT_ERROR_UNDEFINED (nash, when 0 lies in the convex hull of the gradients), SUT_ERROR_INVALID_ARGUMENT,
 *         SUT_ERROR_OUT_OF_RANGE (m or an option, by name; losses that are not positive where a normalisation divides by them;
 *         entries of `out` could overflow `dtype`; a weight would leave the range of doubles, as nash's, about 1/|g_i|, do
 *         for gradients shorter than 1e-308), SUT_ERROR_UNSUPPORTED (dtype), SUT_ERROR_OUT_OF_MEMORY.
 *
 * CUDA: gradients and `out` are memory of the context's device, or managed; losses and report are host memory. Queued on the
 * context's stream; the report is complete on return, `out` when the stream is.
 */
SUT_API sut_status sut_surgery_direction(sut_context *ctx, const sut_surgery_config *config, const void *const *grads,
                                         int m, int64_t n, sut_dtype dtype, const double *losses, uint64_t counter,
                                         void *out, sut_surgery_report *report);

/**
 * The weights alone, from a Gram matrix that the caller formed.
 *
 * @param gram    m*m doubles in host memory, row by row, symmetric to rounding (the lower triangle is read), non-negative diagonal.
 * @param report  Out; norms and cosines are those of the Gram matrix.
 * Other arguments and errors as in sut_surgery_direction().
 */
SUT_API sut_status sut_surgery_weights(sut_context *ctx, const sut_surgery_config *config, const double *gram, int m,
                                       const double *losses, uint64_t counter, sut_surgery_report *report);

/**
 * Option `index` (0, 1, ...) of those that a method reads: name, default, range, names of choices. In sut_parameter_info
 * `config_row` has the range of any m; it must be below the m of the call, too.
 * @return SUT_OK; SUT_ERROR_OUT_OF_RANGE past the last one; SUT_ERROR_INVALID_ARGUMENT for NULL or an unknown method.
 */
SUT_API sut_status sut_surgery_option(sut_surgery_method method, int index, sut_parameter_info *info_out);
/**
 * Set an option by name; choices by their number. `config` was filled in by sut_surgery_config_init().
 * @return SUT_OK; SUT_ERROR_INVALID_ARGUMENT for a name that config->method does not read, or an array;
 *         SUT_ERROR_OUT_OF_RANGE for a value outside its range or not whole, with `config` unchanged.
 */
SUT_API sut_status sut_surgery_config_set(sut_surgery_config *config, const char *name, double value);
SUT_API sut_status sut_surgery_config_get(const sut_surgery_config *config, const char *name, double *value_out);

/** Name as used in files, Python and on the command line ("aligned_mtl"); NULL for an unknown value. */
SUT_API const char *sut_surgery_method_name(sut_surgery_method method);
/** The method of that name; SUT_ERROR_INVALID_ARGUMENT for an unknown one (`*method_out` unchanged). */
SUT_API sut_status sut_surgery_method_from_name(const char *name, sut_surgery_method *method_out);

#ifdef __cplusplus
}
#endif

#endif /* SUTURE_SURGERY_H */
