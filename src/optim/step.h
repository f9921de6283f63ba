/*
 * What a back end needs to know to run the passes of an optimizer step. Filled in by optim/step.c, read by a back end;
 * the only outputs are the state and parameters themselves, the optional arrays, and `sums`.
 */
#ifndef SUT_OPTIM_STEP_H
#define SUT_OPTIM_STEP_H

#include "backend/backend.h"

/* State slots of one optimizer at most, the f32 master copy not counted. */
#define SUT_MAX_SLOTS 3
/* Bytes of a rule's constants at most. */
#define SUT_RULE_CONSTANTS 160

/* The GPU's files are C++, which has its own word for it. */
#ifdef __cplusplus
#define SUT_ALIGNED(bytes) alignas(bytes)
#else
#define SUT_ALIGNED(bytes) _Alignas(bytes)
#endif

/* The rules, one per header in optim/rules/; several methods may share one (adam, adamw). */
typedef enum sut_rule {
    SUT_RULE_SGD = 0,
    SUT_RULE_RMSPROP,
    SUT_RULE_ADAGRAD,
    SUT_RULE_ADAM,
    SUT_RULE_NADAM,
    SUT_RULE_RADAM,
    SUT_RULE_LION,
    SUT_RULE_COUNT
} sut_rule;

/* A rule with the constants of one step, for both compute types (f64 also serves f32 data in careful passes). */
typedef struct sut_rule_setting {
    sut_rule rule;
    int flags; /* compile-time flags of the rule header */
    SUT_ALIGNED(16) unsigned char f32[SUT_RULE_CONSTANTS];
    SUT_ALIGNED(16) unsigned char f64[SUT_RULE_CONSTANTS];
} sut_rule_setting;

typedef struct sut_pass_tensor {
    void *param; /* as the caller stores it */
    void *theta; /* in the compute type: `param` itself, or the f32 master copy */
    void *state[SUT_MAX_SLOTS];
    bool present; /* at least one loss has a gradient for it */
    double lr;
    double ratio; /* lr / largest lr of the step: scales u and 1/M, see spec of groups in docs/cone.md */
    const sut_rule_setting *setting;
} sut_pass_tensor;

typedef enum sut_pass_kind {
    SUT_PASS_FUSED = 0, /* state, proposal and theta <- theta - lr u in one go */
    SUT_PASS_PROPOSE,   /* state and proposal; writes the state (unless the rule defers that) */
    SUT_PASS_TERMS,     /* the proposal again, nothing written but outputs: repeats PROPOSE's sums in double */
    SUT_PASS_APPLY,     /* theta <- theta - lr p, state realigned */
    SUT_PASS_MEASURE    /* what APPLY would do, nothing written but outputs and sums */
} sut_pass_kind;

/* Which p an APPLY or MEASURE pass takes. */
typedef enum sut_update_kind {
    SUT_UPDATE_PROPOSAL = 0, /* p = u, same bits */
    SUT_UPDATE_NATURAL,      /* p = base + (num + G^T lambda)/D */
    SUT_UPDATE_EUCLIDEAN,    /* p = u + G^T lambda */
    SUT_UPDATE_ZERO,         /* p = 0 */
    SUT_UPDATE_GIVEN         /* p = p_in */
} sut_update_kind;

/* Sums of a pass, in this order; K and the dot products with the rows only where asked for. */
enum { SUT_SUM_UU = 0, SUT_SUM_UMU, SUT_SUM_PP, SUT_SUM_PU, SUT_SUM_DD, SUT_SUM_ROWS };

typedef struct sut_step_pass {
    sut_pass_kind kind;
    sut_update_kind update;
    const sut_layout *layout;
    const sut_pass_tensor *tensors;
    sut_rows rows;
    bool direct;           /* one loss with weight 1: a is the row itself */
    const double *weights; /* m: a = sum w_i g_i (sign of maximize included) */
    bool exact_sum;        /* take that sum in double: the rows may cancel */
    const double *lambda;  /* m: chi = sum lambda_i g_i (likewise) */
    /* m, or NULL: small corrections of lambda, whose chi is added to p after the rest of it was rounded. Multipliers of
     * nearly dependent rows are too large to carry these digits. Needs SUT_REAL = double (`careful` for f32). */
    const double *correction;
    bool strict;    /* products and sums in double */
    bool careful;   /* f64 arithmetic (and sums) for f32 tensors too */
    double u_scale; /* a power of two that keeps the sums in range; 1 unless `careful` */
    /* TERMS and MEASURE with `correction`, careful: the triangle of [M^-1/2 G^T, M^1/2 u or p] is made here, of (m + 1)^2
     * zeros (surgery/nnls.h), or NULL; its columns are multiplied by factor_scale, m + 1 powers of two. */
    double *factor;
    const double *factor_scale;
    bool realign;
    bool want_sums;   /* uu, uMu, G u (PROPOSE, TERMS, FUSED); pp, pu, dd, G p (APPLY, MEASURE) */
    bool want_metric; /* K = G M^-1 G^T too */
    bool prefetch;
    void *const *u_out, *const *inverse_out, *const *p_out; /* n_tensors pointers or NULL; inverse_out receives 1/M */
    const void *const *p_in;
    double *sums; /* SUT_SUM_ROWS + m + m(m+1)/2 */
} sut_step_pass;

/* Non-finite elements of the parameters: the first bad tensor and its first bad element; -1 if there is none. */
sut_status sut_step_find_bad_parameter(sut_context *ctx, const sut_layout *layout, const sut_pass_tensor *tensors,
                                       int64_t *tensor_out, int64_t *index_out);

/* Doubles of scratch that the passes need for m rows: lanes and row buffers of each worker, sums of each slice. */
size_t sut_backend_scratch(int m, int n_threads);
/* Make the context's scratch large enough for m rows (allocates; never called inside a step). */
sut_status sut_backend_reserve(sut_context *ctx, int m);

#endif /* SUT_OPTIM_STEP_H */
