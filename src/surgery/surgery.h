/*
 * Gradient surgery as m x m algebra: weights from a Gram matrix, the small dense solvers behind them, and the multipliers
 * of the cone projection. Nothing here knows n, memory layouts or back ends; all of it is double, allocates nothing, and is
 * written so that the same source can be compiled for a GPU (dense.h, nnqp.h, hull.h and the methods call nothing but
 * sqrt, fabs and, for one length model of ConFIG, exp and log). Workspaces are given by the caller.
 */
#ifndef SUT_SURGERY_SURGERY_H
#define SUT_SURGERY_SURGERY_H

#include "core/internal.h"
#include "surgery/prelude.h"

/* Doubles of workspace that any function here needs for m rows. */
#define SUT_SURGERY_WORK(m) ((size_t)(12 * (m) * (m) + 64 * (m) + 256))

/* What the caller knows. */
typedef struct sut_surgery_input {
    const double *K; /* m*m Gram matrix of the rows times 2^-exponent, both triangles */
    int m;
    int exponent;
    const double *losses; /* m, or NULL */
    uint64_t seed, counter;
    const sut_surgery_config *config; /* complete (own size), validated */
    double *work;                     /* SUT_SURGERY_WORK(m) doubles */
} sut_surgery_input;

/* Why there are no weights; texts in failure.c. */
typedef enum sut_surgery_failure {
    SUT_SURGERY_FINE = 0,
    SUT_SURGERY_NO_LOSSES,
    SUT_SURGERY_LOSS_NOT_POSITIVE,
    SUT_SURGERY_STATIONARY,
    SUT_SURGERY_NO_END,
    SUT_SURGERY_LONG_WEIGHT,
    SUT_SURGERY_WEIGHT_RANGE
} sut_surgery_failure;

typedef struct sut_surgery_output {
    double weights[SUT_MAX_LOSSES];
    int rank;
    bool zero, pareto, negative_normaliser;
    bool determined; /* set by a method: its weights do not hang on the condition of K, so a small a is not noise */
    bool converged;  /* false: the method stopped at its limit of iterations; the weights are the best so far */
    int iterations;  /* of the method's own loop; 0 where it has none */
    sut_surgery_failure failure;
    int failed_row;      /* the loss that it is about, or -1 */
    double failed_value; /* of that loss */
} sut_surgery_output;

/*
 * What a method sees: rows scaled by a common power of two so that the longest has a norm in [1/2, 2), rows without
 * direction (norm at most 1e-150 of the longest) set to exact zero. At least one row is not zero, and m >= 2.
 */
typedef struct sut_surgery_problem {
    int m, n_live;
    const double *K; /* m*m Gram matrix */
    const double *C; /* m*m cosines in [-1, 1]; 1 on the diagonal of live rows, 0 beside zero rows */
    const double *d; /* norms, 0 for zero rows */
    double largest;  /* max K_ii */
    double trace;    /* tr K */
    int exponent;    /* true rows are these times 2^exponent */
    const double *losses;
    uint64_t seed, counter;
    const sut_surgery_config *config;
    double *work; /* what is left: SUT_METHOD_WORK(m) doubles */
} sut_surgery_problem;

#define SUT_METHOD_WORK(m) ((size_t)(10 * (m) * (m) + 60 * (m) + 256))

/* One row per method; name lookup, validation and documentation are derived from it. */
typedef struct sut_surgery_row {
    sut_surgery_method method;
    const char *name;
    /*
     * Weights for the scaled rows, into an output that was cleared (rank = m, converged). SUT_OK, SUT_ERROR_UNDEFINED or
     * SUT_ERROR_INTERNAL; no text: the caller writes it.
     */
    sut_status (*solve)(const sut_surgery_problem *problem, sut_surgery_output *out);
    int degree;             /* homogeneity of a in G: 1, or 0 (weights shrink as rows grow) */
    bool sum_like;          /* the direction has the size of the sum of the gradients, else of their mean */
    bool keeps_weights;     /* weights do not depend on the gradients: never set to zero */
    bool uses_preference;   /* reads config->preference */
    bool needs_losses_hint; /* may look at losses */
    const char *source;     /* paper */
} sut_surgery_row;

extern const sut_surgery_row sut_surgery_table[SUT_SURGERY_COUNT];

/* The methods, one file each. */
SUT_PORTABLE sut_status sut_surgery_sum(const sut_surgery_problem *problem, sut_surgery_output *out);
SUT_PORTABLE sut_status sut_surgery_mean(const sut_surgery_problem *problem, sut_surgery_output *out);
SUT_PORTABLE sut_status sut_surgery_fixed(const sut_surgery_problem *problem, sut_surgery_output *out);
SUT_PORTABLE sut_status sut_surgery_config_solve(const sut_surgery_problem *problem, sut_surgery_output *out);
SUT_PORTABLE sut_status sut_surgery_pcgrad(const sut_surgery_problem *problem, sut_surgery_output *out);
SUT_PORTABLE sut_status sut_surgery_cagrad(const sut_surgery_problem *problem, sut_surgery_output *out);
SUT_PORTABLE sut_status sut_surgery_imtlg(const sut_surgery_problem *problem, sut_surgery_output *out);
SUT_PORTABLE sut_status sut_surgery_aligned_mtl(const sut_surgery_problem *problem, sut_surgery_output *out);
SUT_PORTABLE sut_status sut_surgery_upgrad(const sut_surgery_problem *problem, sut_surgery_output *out);
SUT_PORTABLE sut_status sut_surgery_dualproj(const sut_surgery_problem *problem, sut_surgery_output *out);
SUT_PORTABLE sut_status sut_surgery_mgda(const sut_surgery_problem *problem, sut_surgery_output *out);
SUT_PORTABLE sut_status sut_surgery_nash(const sut_surgery_problem *problem, sut_surgery_output *out);
SUT_PORTABLE sut_status sut_surgery_sdmgrad(const sut_surgery_problem *problem, sut_surgery_output *out);

/*
 * v + lambda: the weights of the projection of G^T v on the cone, K + ridge I in place of K (section 3; 0: exact). An
 * exactly vanishing projection gives exact zeros. False: the solver reached its limit.
 */
SUT_PORTABLE bool sut_surgery_project_weights(const sut_surgery_problem *problem, const double *v, double ridge,
                                              double *w, double *work);

/* |sum w_i g_i|^2 is zero to the rounding of K: what is left of the sum is noise, if w comes from a solve with K. */
SUT_PORTABLE bool sut_surgery_vanishes(const sut_surgery_problem *problem, const double *w);

/* That share of (sum |w_i| d_i)^2 up to which |a|^2 is rounding; solve.c says why. */
#define SUT_NOISE(m) (16.0 * (m)*SUT_EPS)

/* ||g_w||^2 = w^T K w is zero to rounding, w >= 0: 0 lies in the hull of the rows. */
SUT_PORTABLE bool sut_surgery_hull_has_zero(const double *K, int m, const double *w, double norm2);

/* Every option in its range for m losses, by name. `complete` must be a full struct (sut_read_struct was applied). */
sut_status sut_surgery_validate(sut_context *ctx, const sut_surgery_config *complete, int m);

/* Weights of config->method, common special cases (m = 1, all rows zero, scale_to_sum) included. */
SUT_PORTABLE sut_status sut_surgery_run(const sut_surgery_input *in, sut_surgery_output *out);

/* The same, with the text of a failure in ctx; and that text alone: status is what sut_surgery_run() returned. */
sut_status sut_surgery_solve(sut_context *ctx, const sut_surgery_input *in, sut_surgery_output *out);
sut_status sut_surgery_explain(sut_context *ctx, const sut_surgery_config *config, int m, sut_status status,
                               sut_surgery_failure failure, int row, double value);

/*
 * Fill in norms, cosines and conflict figures of a report from K, exponent and weights. Everything but struct_size and
 * `strict` is written. A norm that vanishes to its own rounding is reported as 0, and so are its cosines: this happens to
 * weights that are all 0, to those of sum, mean and fixed, and to `determined` ones.
 */
void sut_surgery_measure(const sut_surgery_input *in, const sut_surgery_output *out, sut_surgery_report *report);

/* The method called `name` (aliases included) into *method_out; else an error whose text gives the nearest known name. */
sut_status sut_surgery_parse_method(sut_context *ctx, const char *name, sut_surgery_method *method_out);

/*
 * Multipliers of the cone projection: min 1/2 l^T K l + b^T l over l >= 0 (surgery/nnqp.h).
 * K: m*m, both triangles, positive semi-definite to rounding; rows with K_ii = 0 impose nothing. Any scale.
 * lambda: out, m. s: out, m, b + K lambda (NULL: not wanted). Returns the number of rounds, or -1 (internal error).
 */
SUT_PORTABLE int sut_nnqp(const double *K, const double *b, int m, double *lambda, double *s, double *work);
/* The same without the closed forms for one and two rows: for tests. */
SUT_PORTABLE int sut_nnqp_general(const double *K, const double *b, int m, double *lambda, double *s, double *work);

/* Upper bound on the condition of K_PP, P = { lambda > 0 }, rows at unit length; at most m times too large. */
SUT_PORTABLE double sut_nnqp_condition(const double *K, int m, const double *lambda, double *work);

/*
 * With s = G p measured, p formed from lambda: delta = -K_PP^-1 s_P, zero outside P. True when lambda + delta stays
 * positive on P (add it); false when the working set is wrong: call sut_nnqp_resolve.
 */
SUT_PORTABLE bool sut_nnqp_correction(const double *K, const double *s, int m, const double *lambda, double *delta,
                                      double *work);

/* Solve again with the b that belongs to the measured s, b = s - K lambda. Returns rounds, or -1; lambda is replaced. */
SUT_PORTABLE int sut_nnqp_resolve(const double *K, const double *s, int m, double *lambda, double *work);

#endif /* SUT_SURGERY_SURGERY_H */
