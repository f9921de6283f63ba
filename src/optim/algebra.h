/*
 * The m x m algebra of a step, as a machine that is asked which pass comes next: it sees the sums of the last pass and nothing
 * of n. One source for the host, where step.c runs the passes it asks for, and for a GPU, where a kernel of one thread asks it
 * between the passes, so that a whole step needs no visit to the host. It allocates nothing, and knows no texts: a failure is a
 * code, whose sentence algebra_text.c writes.
 *
 *   Gram matrix -> weights -> rates and constants -> propose -> [sums again, in double] -> multipliers
 *     -> [measure, repair] -> solved -> apply
 */
#ifndef SUT_OPTIM_ALGEBRA_H
#define SUT_OPTIM_ALGEBRA_H

#include "optim/step.h"
#include "surgery/gram.h"
#include "surgery/surgery.h"

/* A cosine below minus this is a conflict, as it is counted in reports. */
#define SUT_CONFLICT_COS 1e-6

/* Lengths of gradients that an aligned step takes: squares of others leave the range of doubles, and a conflict could go
 * unseen. */
#define SUT_SHORTEST_GRADIENT 1e-150
#define SUT_LONGEST_GRADIENT 1e150

/* Longest combined gradient: its elements, and a momentum of many of them, stay numbers of the type that a step is computed in.
 * (Second moments may become infinite: such a coordinate stands still, as in every implementation.) */
#define SUT_LONGEST_SUM_F32 1e37
#define SUT_LONGEST_SUM_F64 1e300

/* What the algebra needs next. */
typedef enum sut_request_kind {
    SUT_REQUEST_DONE = 0,
    SUT_REQUEST_GRAM,       /* products of the rows as `search` describes them, into `gram` */
    SUT_REQUEST_CULPRIT,    /* the first gradient that is not finite; if there is one, sut_algebra_fail() */
    SUT_REQUEST_LARGEST,    /* the largest absolute value of each row, into `largest` */
    SUT_REQUEST_PARAMETERS, /* the first parameter that is not finite; if there is one, sut_algebra_fail() */
    SUT_REQUEST_PREPARE,    /* rates and constants of this step, and what they say: lr, one_rate, late_gradient */
    SUT_REQUEST_STEP,       /* a pass of step.h, into `sums` */
    SUT_REQUEST_SOLVED,     /* nothing: it is settled how p is formed, SUT_PASS_APPLY comes next */
    SUT_REQUEST_FAILED      /* `failure` says why. Nothing was written if it comes before PREPARE */
} sut_request_kind;

/* A pass of step.h, as far as the algebra has a say. */
typedef struct sut_request {
    sut_request_kind kind;
    sut_pass_kind pass;
    sut_update_kind update;
    bool careful, realign, want_sums, want_metric;
    bool combined;  /* the rule needs the combined gradient: `signed_weights` */
    bool pushed;    /* `signed_lambda` */
    bool corrected; /* `signed_correction` */
    bool factor;    /* into `R`, columns times `signed_scale` */
} sut_request;

typedef enum sut_algebra_failure {
    SUT_ALGEBRA_FINE = 0,
    SUT_ALGEBRA_GRADIENT,  /* not finite: failed_loss, failed_tensor, failed_index */
    SUT_ALGEBRA_PARAMETER, /* not finite: failed_tensor, failed_index */
    SUT_ALGEBRA_LOSS,      /* not finite: failed_loss, failed_value */
    SUT_ALGEBRA_LENGTH,    /* a gradient too short or too long: failed_loss, failed_value */
    SUT_ALGEBRA_RANGE,     /* the combined gradient is too long: failed_value */
    SUT_ALGEBRA_PROPOSAL,  /* not finite, though the gradients are; comes after PREPARE, before anything is applied */
    SUT_ALGEBRA_SURGERY,   /* surgery.failure */
    SUT_ALGEBRA_GRAM,      /* a bug */
    SUT_ALGEBRA_CONE       /* a bug */
} sut_algebra_failure;

/* A step that was refused. */
typedef struct sut_step_failure {
    sut_algebra_failure failure;
    sut_status status;
    int loss;
    int64_t tensor, index;
    int64_t step;        /* the first is 1 */
    double value, limit; /* that is out of range; of a combined gradient's length */
    sut_surgery_failure surgery;
    int surgery_row;
    double surgery_value;
} sut_step_failure;

/* What was decided about a proposal. */
typedef struct sut_solution {
    sut_update_kind update;
    bool careful, realign, measured, corrected;
    double lambda[SUT_MAX_LOSSES];     /* on the rows as given, sign of maximize not included */
    double correction[SUT_MAX_LOSSES]; /* where `corrected`: what lambda has no digits for, see sut_step_pass */
    double uMu;
    double pp, dd;   /* |p|^2, |p - u|^2 where `measured` */
    double residual; /* how far the measured p is from the projection, where that was looked at */
} sut_solution;

typedef struct sut_algebra {
    /* Given once. Pointers are memory of the processor that runs the algebra. */
    const sut_optimizer_config *config;
    int m;
    int64_t n_elements;
    bool only_f64;     /* every tensor */
    bool f64_elements; /* every tensor that has elements */
    bool scans;        /* where gradients are only checked, their largest entries do: less work than their products */
    double *gram, *K;  /* m*m each */
    double *R;         /* (m + 1)^2: the triangle of surgery/nnls.h */
    double *work;      /* SUT_SURGERY_WORK(m) */
    double *sums;      /* SUT_SUM_ROWS + m + m(m+1)/2: of the last pass */

    /* Given for a step: sut_algebra_begin(). */
    const double *losses; /* m, or NULL */
    uint64_t seed;
    int64_t t;      /* steps before this one */
    bool something; /* a tensor has a gradient */
    bool report;    /* figures are wanted */
    bool fused;     /* apply the proposal in the same pass where it cannot change */

    /* Answers to SUT_REQUEST_PREPARE. */
    double lr;          /* largest of a group */
    bool one_rate;      /* of all tensors that take part */
    bool late_gradient; /* a rule looks at the gradient in the last pass */

    /* The step in hand. */
    int stage;
    sut_request request;
    sut_algebra_failure failure;
    sut_status status; /* of the failure */
    int failed_loss;
    int64_t failed_tensor, failed_index;
    double failed_value;
    sut_gram_search search;
    double largest[SUT_MAX_LOSSES];
    bool has_gram;
    bool scanned;   /* `largest` instead: nothing but a check wants to know about the gradients */
    bool direct;    /* one loss with weight 1 */
    bool exact_sum; /* the rows may cancel: their combination is taken in double */
    sut_surgery_output surgery;
    double weights[SUT_MAX_LOSSES];        /* w, clipping included */
    double signed_weights[SUT_MAX_LOSSES]; /* as the passes take them: sign of maximize included */
    double signed_lambda[SUT_MAX_LOSSES], signed_correction[SUT_MAX_LOSSES], signed_scale[SUT_MAX_LOSSES + 1];
    double norm[SUT_MAX_LOSSES];
    double b[SUT_MAX_LOSSES];
    double uu, uMu;
    bool proposed; /* sums of the proposal are in b, uu, uMu and K */
    sut_solution solution;

    /* While p is being repaired. */
    sut_solution best, now;
    double least, previous; /* residuals */
    int round;
    bool ill, searched, vanishes;
    double scale[SUT_MAX_LOSSES + 1];

    /* Memory of the surgery from step to step: weights kept by nash_update_every. */
    double kept_weights[SUT_MAX_LOSSES];
    int64_t kept_for; /* calls that still use them */
} sut_algebra;

/* A step begins: what is given for it has been filled in. */
SUT_PORTABLE void sut_algebra_begin(sut_algebra *a);

/* The next request. The one before has been done; after DONE or FAILED the same comes again. */
SUT_PORTABLE const sut_request *sut_algebra_next(sut_algebra *a);

/* The pass that was asked for found something that ends the step. */
SUT_PORTABLE void sut_algebra_fail(sut_algebra *a, sut_algebra_failure failure, int loss, int64_t tensor,
                                   int64_t index);

/* The cone may change a proposal: several losses and alignment. */
SUT_PORTABLE bool sut_algebra_is_aligned(const sut_algebra *a);

/* Another p than the algebra's is applied: what is known of the proposal stays, the solution is none. */
SUT_PORTABLE void sut_algebra_set_aside(sut_algebra *a);

/* A step with these settings takes the Gram matrix. `report`: figures are wanted. */
SUT_PORTABLE bool sut_algebra_wants_gram(const sut_algebra *a, bool report);

/* The request that measures G p and the lengths of the p that is settled. After SUT_REQUEST_SOLVED. */
SUT_PORTABLE const sut_request *sut_algebra_measure(sut_algebra *a);

/* Row i is shorter than 1e-150 of the longest: it imposes nothing. */
SUT_PORTABLE bool sut_algebra_is_zero_row(const sut_algebra *a, int i);

/* dot / (norm_g norm_v) within [-1, 1]; 0 where that is not defined. */
/* The longest combined gradient that a step takes. */
SUT_PORTABLE double sut_algebra_longest(const sut_algebra *a);
SUT_PORTABLE double sut_algebra_cosine(double dot, double norm_g, double norm_v);

SUT_PORTABLE sut_step_failure sut_algebra_failure_of(const sut_algebra *a);

/* A failure as a status, with its sentence in ctx. Names may be NULL. */
sut_status sut_step_explain(sut_context *ctx, const sut_surgery_config *surgery, int m, const sut_step_failure *failure,
                            const char *const *loss_names, const char *const *tensor_names);

#endif /* SUT_OPTIM_ALGEBRA_H */
