/*
 * Gradient surgery as m x m algebra: weights from a Gram matrix, the small dense solvers behind them, and the multipliers
 * of the cone projection. Nothing here knows n, memory layouts or back ends; all of it is double, allocates nothing, and is
 * written so that the same source can be compiled for a GPU (no library calls beyond sqrt, fabs and the like in dense.h
 * and nnqp.h). Workspaces are given by the caller.
 */
#ifndef SUT_SURGERY_SURGERY_H
#define SUT_SURGERY_SURGERY_H

#include "core/internal.h"

/* Doubles of workspace that any function here needs for m rows. */
#define SUT_SURGERY_WORK(m) ((size_t)(12 * (m) * (m) + 40 * (m) + 64))

/* What a method may look at. */
typedef struct sut_surgery_input {
    const double *K;      /* m*m Gram matrix of the rows times 2^-exponent, both triangles */
    int m;
    int exponent;
    const double *losses; /* m, or NULL */
    uint64_t seed, counter;
    const sut_surgery_config *config; /* complete (own size), validated */
    double *work;         /* SUT_SURGERY_WORK(m) doubles */
} sut_surgery_input;

typedef struct sut_surgery_output {
    double weights[SUT_MAX_LOSSES];
    int rank;
    bool zero, pareto, negative_normaliser;
} sut_surgery_output;

/* One row per method; name lookup, validation and documentation are derived from it. */
typedef struct sut_surgery_row {
    sut_surgery_method method;
    const char *name;
    sut_status (*solve)(sut_context *ctx, const sut_surgery_input *in, sut_surgery_output *out);
    bool needs_losses_hint; /* may look at losses */
    bool sum_like;          /* the direction has the size of the sum of the gradients */
    const char *source;     /* paper */
} sut_surgery_row;

extern const sut_surgery_row sut_surgery_table[SUT_SURGERY_COUNT];

/* Every option in its range for m losses, by name. `complete` must be a full struct (sut_read_struct was applied). */
sut_status sut_surgery_validate(sut_context *ctx, const sut_surgery_config *complete, int m);

/* Weights of config->method, common special cases (m = 1, all rows zero, scale_to_sum) included. */
sut_status sut_surgery_solve(sut_context *ctx, const sut_surgery_input *in, sut_surgery_output *out);

/* Fill in norms, cosines and conflict figures of a report from K, exponent and weights. */
void sut_surgery_measure(const sut_surgery_input *in, const sut_surgery_output *out, sut_surgery_report *report);

/*
 * Multipliers of the cone projection: min 1/2 l^T K l + b^T l over l >= 0 (surgery/nnqp.c).
 * K: m*m, both triangles, positive semi-definite to rounding; rows with K_ii = 0 impose nothing. Any scale.
 * lambda: out, m. s: out, m, b + K lambda (NULL: not wanted). Returns the number of rounds, or -1 (internal error).
 * `start`: NULL, or a working set to begin with (as bits).
 */
int sut_nnqp(const double *K, const double *b, int m, double *lambda, double *s, double *work);

#endif /* SUT_SURGERY_SURGERY_H */
