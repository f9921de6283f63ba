/**
 * @file optimizer.h
 * The optimizer: one call for a whole conflict-free step.
 *
 * One step, as data flows through it (G: one row per loss; M: the rule's own diagonal metric, or I):
 *
 *     pass 1   K = G G^T, finiteness          reads G, writes nothing
 *              w from K                       a = sum_i w_i g_i is never formed
 *     pass 2   state <- rule(state, a)        u on the fly;  b = G u,  K_M = G M^-1 G^T
 *              lambda >= 0 from (K_M, b)      only when u conflicts with a loss
 *     pass 3   p = u + M^-1 G^T lambda        theta <- theta - lr p;  state realigned;  G p measured
 *
 * That is gradient-update alignment: Xiao et al. 2026, arXiv 2609.01558. Working memory beyond the state is O(m^2).
 */
#ifndef SUTURE_OPTIMIZER_H
#define SUTURE_OPTIMIZER_H

#include "suture/schedule.h"
#include "suture/surgery.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sut_optimizer sut_optimizer;

typedef enum sut_optimizer_method {
    SUT_OPTIMIZER_SGD = 0, /**< momentum, dampening, Nesterov: Polyak 1964; Nesterov 1983; Sutskever et al. 2013 */
    SUT_OPTIMIZER_RMSPROP, /**< Tieleman, Hinton 2012; Graves 2013, arXiv 1308.0850 */
    SUT_OPTIMIZER_ADAGRAD, /**< Duchi, Hazan, Singer 2011 */
    SUT_OPTIMIZER_ADAM,    /**< Kingma, Ba 2014, arXiv 1412.6980; AMSGrad: Reddi et al. 2018, arXiv 1904.09237 */
    SUT_OPTIMIZER_ADAMW,   /**< Loshchilov, Hutter 2017, arXiv 1711.05101 */
    SUT_OPTIMIZER_NADAM,   /**< Dozat 2016 */
    SUT_OPTIMIZER_RADAM,   /**< Liu et al. 2019, arXiv 1908.03265 */
    SUT_OPTIMIZER_LION,    /**< Chen et al. 2023, arXiv 2302.06675 */
    SUT_OPTIMIZER_COUNT    /**< number of methods, not a method */
} sut_optimizer_method;

/**
 * Hyper-parameters of one parameter group. Which ones a method reads, their defaults and ranges:
 * sut_optimizer_parameter(). Setting one that the method does not read has no effect. In a group with f32, bf16 or f16
 * tensors none may exceed FLT_MAX.
 */
typedef struct sut_hyper {
    double lr; /**< >= 0; theta <- theta - lr p */
    double
        weight_decay; /**< lambda >= 0; added to the gradient (coupled), for adamw and lion to the proposal (decoupled) */
    double beta1, beta2;              /**< [0, 1): adam, adamw, nadam, radam, lion */
    double eps;                       /**< >= 0, outside the root */
    double momentum;                  /**< [0, 1): sgd, rmsprop */
    double dampening;                 /**< [0, 1]: sgd; the first step is undamped */
    double alpha;                     /**< [0, 1): rmsprop */
    double lr_decay;                  /**< >= 0: adagrad */
    double initial_accumulator_value; /**< >= 0: adagrad */
    double momentum_decay;            /**< >= 0: nadam */
    int nesterov;                     /**< sgd; needs momentum > 0 and dampening 0 */
    int amsgrad;                      /**< adam, adamw */
    int centered;                     /**< rmsprop */
} sut_hyper;

/** Largest number of dimensions of a tensor. */
#define SUT_MAX_DIMS 8
/** Largest number of parameter groups of an optimizer. (Tensors: 2147483647.) */
#define SUT_MAX_GROUPS 1000000
/** Longest name of a tensor or a loss, in bytes, without the final 0. */
#define SUT_MAX_NAME 1000

/** A parameter tensor, contiguous, in the memory of the back end (CUDA: of its device, or managed). */
typedef struct sut_tensor {
    void *data; /**< borrowed until the optimizer is destroyed; updated in place. NULL only for an empty tensor. */
    sut_dtype dtype;
    int n_dims;                  /**< 0 (one element) .. SUT_MAX_DIMS */
    int64_t shape[SUT_MAX_DIMS]; /**< each >= 0; a tensor with a 0 among them is empty and skipped */
    int group;                   /**< index into `groups`, 0 for a single group */
    /** Unique, 1 .. SUT_MAX_NAME bytes of UTF-8; copied. NULL: "param.<index>". State files go by name. */
    const char *name;
} sut_tensor;

typedef enum sut_align {
    SUT_ALIGN_NONE = 0, /**< p = u */
    /** p = projection of u onto the conflict-free cone, state realigned. With one loss there is nothing to conflict with: steps
     * are those of SUT_ALIGN_NONE, and only a p given to sut_optimizer_apply() realigns the state. */
    SUT_ALIGN_GUA = 1
} sut_align;

typedef enum sut_metric {
    SUT_METRIC_NATURAL = 0, /**< the rule's own: M u = averaged gradient; Adam: sqrt(v^) + eps */
    SUT_METRIC_EUCLIDEAN = 1
} sut_metric;

/** How much is checked before a step writes anything. */
typedef enum sut_check {
    /** Gradients are trusted. With one loss and no alignment this saves one read of the gradient; a bad one is then written
     *  into the state like in any other library. */
    SUT_CHECK_NONE = 0,
    SUT_CHECK_GRADIENTS = 1, /**< every gradient is finite (default); costs nothing when there is a Gram pass */
    SUT_CHECK_ALL = 2        /**< the parameters too (one more read of them) */
} sut_check;

typedef struct sut_optimizer_config {
    size_t struct_size;
    sut_optimizer_method method;
    const sut_tensor *tensors; /**< n_tensors of them; borrowed for the call (the data for the optimizer's life) */
    int64_t n_tensors;         /**< 1 .. 2147483647, with at least one element in all */
    const sut_hyper *groups;   /**< n_groups of them, borrowed for the call. NULL: one group with `hyper`. */
    int n_groups;              /**< 1 .. SUT_MAX_GROUPS; with groups NULL: 0 (default) or 1 */
    sut_hyper hyper;           /**< the single group's settings when `groups` is NULL; filled in by _init */
    int maximize;              /**< 1: climb (default 0) */
    int n_losses;              /**< m, 1..SUT_MAX_LOSSES, default 1 */
    /** n_losses names for error texts, 1 .. SUT_MAX_NAME bytes of UTF-8 each, copied. NULL (also one of them): "loss 0", ... */
    const char *const *loss_names;
    sut_surgery_config surgery; /**< how m gradients become one; default: sum */
    double clip_norm; /**< > 0: scale a to at most this norm (Pascanu et al. 2012, arXiv 1211.5063); 0 (default): off */
    sut_align align;  /**< default SUT_ALIGN_NONE */
    sut_metric metric; /**< default SUT_METRIC_NATURAL */
    double rho_m;      /**< [0, 1], default 0.1: realignment strength of first moments */
    double rho_v;      /**< [0, 1], default 0.03: of second moments */
    int realign_raw;   /**< 1: as the published code, decoupled decay included in the target (default 0) */
    /**
     * The gate. A proposal whose cosines with all gradients are >= -conflict_cos_tol is applied as it is, bit for bit.
     * [0, 1), default 1e-6, as published; 0: every violation is repaired.
     */
    double conflict_cos_tol;
    double correction_distance_tol; /**< >= 0, default 1e-8: the state is realigned when |p - u|/|u| exceeds it */
    int strict;                     /**< 1: all products in double (default 0: only where the conditioning needs it) */
    sut_check check;                /**< default SUT_CHECK_GRADIENTS */
    int use_schedule;               /**< 1: `schedule` drives the rate (default 0) */
    /** Group k uses lr_k s(t)/peak, t = steps done; exactly s(t) when lr_k equals peak. */
    sut_schedule schedule;
} sut_optimizer_config;

SUT_API void sut_optimizer_config_init_sized(sut_optimizer_config *config, size_t struct_size,
                                             sut_optimizer_method method);
/** Fill in every default for `method`; `tensors` and `n_losses` remain to be set. */
static inline void sut_optimizer_config_init(sut_optimizer_config *config, sut_optimizer_method method)
{
    sut_optimizer_config_init_sized(config, sizeof *config, method);
}

/** What one step did. Arrays hold n_losses entries. Norms and cosines are Euclidean. */
typedef struct sut_report {
    size_t struct_size;
    int n_losses;
    int64_t step;                   /**< steps done, this one included */
    double lr;                      /**< largest rate of a group in this step */
    int moved;                      /**< 0: the rate was 0; the state advanced, the parameters did not */
    double weights[SUT_MAX_LOSSES]; /**< surgery weights w, clipping included */
    double norms[SUT_MAX_LOSSES];   /**< |g_i| */
    double cos_a[SUT_MAX_LOSSES];   /**< cosine of a with g_i; 0 when either vanishes */
    double cos_u[SUT_MAX_LOSSES];   /**< of the proposal */
    double cos_p[SUT_MAX_LOSSES];   /**< of the step that was applied, measured on it */
    double lambda[SUT_MAX_LOSSES];  /**< multipliers of the projection on the rows as given */
    double norm_a, norm_u, norm_p;
    double min_pair_cos;      /**< smallest cosine between two gradients */
    double conflict_fraction; /**< share of pairs with cosine < -1e-6 */
    int conflict_g;           /**< 1: a pair of gradients conflicts (cosine < -1e-6) */
    int conflict_a;           /**< 1: a conflicts with a gradient (cosine < -1e-6) */
    int conflict_u, conflict_p;
    int projected;          /**< 1: p differs from u */
    int realigned;          /**< 1: the state was realigned */
    int pareto;             /**< 1: p = 0; no direction near u hurts no loss */
    int surgery_zero;       /**< 1: a = 0 */
    int strict;             /**< 1: products were taken in double */
    double relative_change; /**< |p - u| / |u|; 0 where u = 0 */
    double cos_pu;          /**< cosine of p and u (1 when p = u) */
    double ratio_pu;        /**< |p| / |u| (1 when p = u) */
    /** KKT certificate of the projection, from p as applied; all 0 when p = u. */
    double primal;          /**< max_i max(0, -g_i.p) / (|g_i| |p|) */
    double dual;            /**< max_i max(0, -lambda_i) */
    double complementarity; /**< max_i |lambda_i g_i.p| / |u|_M^2 */
    double gap;             /**< |sum_i lambda_i g_i.p| / |u|_M^2 */
    int64_t skipped_steps;  /**< steps refused so far (non-finite input) */
    int surgery_converged;  /**< 0: the surgery stopped at its limit of iterations, see sut_surgery_report */
} sut_report;

SUT_API void sut_report_init_sized(sut_report *report, size_t struct_size);
static inline void sut_report_init(sut_report *report)
{
    sut_report_init_sized(report, sizeof *report);
}

/**
 * Create an optimizer. All memory it will ever need is allocated here; state starts at zero (t = 0).
 *
 * @param opt_out  Out; NULL on failure. Freed with sut_optimizer_destroy(), before the context.
 * @param ctx      Borrowed until then.
 * @param config   Borrowed for the call; see the fields for what must live longer.
 * @return SUT_OK; SUT_ERROR_INVALID_ARGUMENT (NULL, no parameters, overlapping or repeated tensors, repeated names, bad
 *         group index), SUT_ERROR_OUT_OF_RANGE (hyper-parameter by name, value and range), SUT_ERROR_NOT_FINITE (a
 *         parameter), SUT_ERROR_UNSUPPORTED, SUT_ERROR_OUT_OF_MEMORY.
 *
 * bf16 and f16 parameters get an f32 master copy in the state; the parameter is its rounding (nearest even). The master
 * is authoritative: call sut_optimizer_parameters_changed() after writing to such a parameter from outside.
 */
SUT_API sut_status sut_optimizer_create(sut_optimizer **opt_out, sut_context *ctx, const sut_optimizer_config *config);

/** Free an optimizer; NULL is allowed. The parameters are the caller's and stay. */
SUT_API void sut_optimizer_destroy(sut_optimizer *opt);

/**
 * One step.
 *
 * @param grads   n_losses * n_tensors pointers (host memory); grads[i * n_tensors + k] is the gradient of loss i in tensor k,
 *                of the tensor's shape and dtype, in the memory of the back end. Read only. NULL: absent. A tensor absent
 *                from every loss is not touched: no decay, no momentum, its own step count stands still. Absent from some
 *                losses only: as zero there.
 * @param losses  n_losses finite values (host memory), or NULL when no method needs them.
 * @param report  Out (host memory), initialised by sut_report_init(). NULL: not wanted.
 *
 * @return SUT_OK, or an error with parameters, state and step count exactly as before: SUT_ERROR_NOT_FINITE (names loss,
 *         tensor and index), SUT_ERROR_OUT_OF_RANGE (aligned, and a gradient's norm is outside 1e-150 .. 1e150; or the
 *         combined gradient's norm, where it is known (check, alignment, report), is above 1e37, f64 throughout 1e300),
 *         SUT_ERROR_INVALID_ARGUMENT (a gradient overlaps a parameter, ...), SUT_ERROR_UNDEFINED, SUT_ERROR_SEQUENCE (a
 *         proposal waits for sut_optimizer_apply()).
 *         One error comes later: an aligned step whose proposal is NaN or Inf because a parameter or the state holds such a
 *         value gives SUT_ERROR_NOT_FINITE and moves no parameter, but the state has taken the gradients in and the step
 *         counts. (SUT_CHECK_ALL finds such parameters beforehand, by name.)
 *
 * Allocates nothing. With every gradient absent the call succeeds, counts as a step, and moves nothing.
 *
 * CUDA: queued on the context's stream; gradients stay as they are until the step is through there. With a report the call
 * waits for the step. Without one it does not, and may be captured in a CUDA graph: what can only be seen in the gradients
 * (NaN) is then told by sut_optimizer_synchronize(). A graph keeps the settings, rates and losses of its capture: what is set
 * afterwards acts on steps outside of it (capture again).
 */
SUT_API sut_status sut_optimizer_step(sut_optimizer *opt, const void *const *grads, const double *losses,
                                      sut_report *report);

/**
 * Waits for the steps that a device has queued (CUDA back end). The first of them that was refused since the last call is
 * returned as sut_optimizer_step() would have returned it (those that it has returned, with a report, do not count); it changed
 * nothing, and the steps after it were taken. On the CPU there is nothing to wait for.
 */
SUT_API sut_status sut_optimizer_synchronize(sut_optimizer *opt);

/**
 * The step in stages, for those who want to look inside: direction (optional, reads only), propose, project (optional),
 * apply. The same gradients must be given to each (others are refused by their largest entries, unless `check` is
 * SUT_CHECK_NONE; the proposal then waits on). propose + apply gives the same bits as sut_optimizer_step().
 * Between propose and apply every other call that would change the optimizer is refused with SUT_ERROR_SEQUENCE.
 *
 * Outputs named `..._out` are n_tensors pointers to memory of the back end, of the tensor's size in the compute type (f64 for
 * f64 tensors, f32 for all others); NULL entries, or NULL altogether, are not wanted. They may not overlap gradients or
 * parameters. Tensors that are absent get zeros. CUDA: they are ready when the stream is.
 */
/** Weights of the surgery (m doubles, host memory) and the direction a. Nothing is changed; draws are those of the coming step. */
SUT_API sut_status sut_optimizer_direction(sut_optimizer *opt, const void *const *grads, const double *losses,
                                           double *weights_out, void *const *a_out);
/** state <- rule(state, a); the proposal u and, if wanted, 1/M per element. The step count advances. */
SUT_API sut_status sut_optimizer_propose(sut_optimizer *opt, const void *const *grads, const double *losses,
                                         void *const *u_out, void *const *inverse_metric_out);
/** The update p that apply would make, with its multipliers and cosines in the report. May be called repeatedly. */
SUT_API sut_status sut_optimizer_project(sut_optimizer *opt, const void *const *grads, void *const *p_out,
                                         sut_report *report);
/**
 * theta <- theta - lr p, and the realignment of the state.
 * @param p  NULL: the library's own projection. Else n_tensors pointers (compute type, memory of the back end): this p is
 *           applied instead, and the state is realigned towards it with (rho_m, rho_v) when align is SUT_ALIGN_GUA. NULL
 *           entries stand for p = u.
 */
SUT_API sut_status sut_optimizer_apply(sut_optimizer *opt, const void *const *grads, const void *const *p,
                                       sut_report *report);

/** The context that the optimizer was created from (its error text tells why a call failed); NULL for NULL. */
SUT_API sut_context *sut_optimizer_context(const sut_optimizer *opt);
/**
 * Every setting as it is now, after loads and changes: method, n_losses, surgery, alignment, schedule, ... with `hyper` that of
 * group 0, `n_groups` and `n_tensors`; the groups themselves: sut_optimizer_get_hyper(), tensors: sut_optimizer_get_tensor().
 * The pointers `tensors`, `groups` and `loss_names` are NULL; those inside `surgery` are the ones that were given.
 * @param config_out  Initialised by sut_optimizer_config_init(), with any method.
 */
SUT_API sut_status sut_optimizer_get_config(const sut_optimizer *opt, sut_optimizer_config *config_out);
/** Tensor `tensor` (0 .. n_tensors - 1) as it was given; `name` is lent and never NULL. */
SUT_API sut_status sut_optimizer_get_tensor(const sut_optimizer *opt, int64_t tensor, sut_tensor *tensor_out);
/** The rate that a group will use in the coming step, schedule included. */
SUT_API sut_status sut_optimizer_get_lr(const sut_optimizer *opt, int group, double *lr_out);

/** Steps done. */
SUT_API int64_t sut_optimizer_steps(const sut_optimizer *opt);
/** Steps done by one tensor (steps in which at least one loss gave it a gradient); -1 for a bad index. */
SUT_API int64_t sut_optimizer_tensor_steps(const sut_optimizer *opt, int64_t tensor);
/** Steps refused because of non-finite input. */
SUT_API int64_t sut_optimizer_skipped_steps(const sut_optimizer *opt);

/**
 * Settings of one group (0..n_groups-1). A new value acts from the next step. A setting that would need state the
 * optimizer was created without (momentum from 0, amsgrad, centered) is refused with SUT_ERROR_UNSUPPORTED.
 */
SUT_API sut_status sut_optimizer_get_hyper(const sut_optimizer *opt, int group, sut_hyper *hyper_out);
SUT_API sut_status sut_optimizer_set_hyper(sut_optimizer *opt, int group, const sut_hyper *hyper);
/** The rate alone; group -1: all groups. */
SUT_API sut_status sut_optimizer_set_lr(sut_optimizer *opt, int group, double lr);
/** Replace the schedule; NULL: none. */
SUT_API sut_status sut_optimizer_set_schedule(sut_optimizer *opt, const sut_schedule *schedule);
/** Alignment on or off, and its strengths. */
SUT_API sut_status sut_optimizer_set_align(sut_optimizer *opt, sut_align align, double rho_m, double rho_v);
/** Take over parameters that were written from outside (refreshes the f32 master copies; checks finiteness). */
SUT_API sut_status sut_optimizer_parameters_changed(sut_optimizer *opt);

/**
 * Look at state: slot "m", "v", "vmax", "b", "ga", "master" of one tensor.
 * @param data_out   Lent; valid as long as the optimizer. f64 for f64 tensors, else f32. Writing to it is allowed between steps.
 *                   In the memory of the back end; nadam's product of momenta, "mu_prod", is one double in host memory
 *                   (CUDA: as of this call, which waits; call it again before every look and every change).
 * @param count_out  Number of elements.
 * @return SUT_ERROR_INVALID_ARGUMENT when the method has no such slot; the text lists those it has.
 */
SUT_API sut_status sut_optimizer_state(sut_optimizer *opt, const char *slot, int64_t tensor, void **data_out,
                                       sut_dtype *dtype_out, int64_t *count_out);
/** Name of slot `index` (0, 1, ...); NULL past the last. */
SUT_API const char *sut_optimizer_state_name(const sut_optimizer *opt, int index);
/** Bytes of state that the optimizer holds (master copies included), and bytes of everything else it allocated. */
SUT_API sut_status sut_optimizer_memory(const sut_optimizer *opt, size_t *state_out, size_t *workspace_out);

/**
 * Parameter `index` (0, 1, ...) of a method.
 * @return SUT_ERROR_OUT_OF_RANGE past the last one.
 */
SUT_API sut_status sut_optimizer_parameter(sut_optimizer_method method, int index, sut_parameter_info *info_out);
/** Set a member of sut_hyper by name; SUT_ERROR_INVALID_ARGUMENT for a name that the method does not read. */
SUT_API sut_status sut_hyper_set(sut_hyper *hyper, sut_optimizer_method method, const char *name, double value);
SUT_API sut_status sut_hyper_get(const sut_hyper *hyper, sut_optimizer_method method, const char *name,
                                 double *value_out);
/** Defaults of a method. */
SUT_API sut_status sut_hyper_init(sut_hyper *hyper, sut_optimizer_method method);

/** "sgd", "adamw", ...; NULL for an unknown value. */
SUT_API const char *sut_optimizer_method_name(sut_optimizer_method method);
SUT_API sut_status sut_optimizer_method_from_name(const char *name, sut_optimizer_method *method_out);
/** "none", "gua"; NULL for an unknown value. */
SUT_API const char *sut_align_name(sut_align align);
SUT_API sut_status sut_align_from_name(const char *name, sut_align *align_out);
/** "natural", "euclidean"; NULL for an unknown value. */
SUT_API const char *sut_metric_name(sut_metric metric);
SUT_API sut_status sut_metric_from_name(const char *name, sut_metric *metric_out);

#ifdef __cplusplus
}
#endif

#endif /* SUTURE_OPTIMIZER_H */
