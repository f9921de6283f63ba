/*
 * What a problem states. A problem is one file that fills in a pinn_problem, and one line in problems.c.
 *
 * Point arrays are [row][point] with rows `stride` apart, in double whatever the network's type: x[i * stride + k] is
 * input i of point k; value[(o * channels + c) * stride + k] is channel c of output o. Channel 0 is the value, 1 + i the
 * first derivative in input i, 1 + n_inputs the combination q = sum_i kappa_i d^2/dx_i^2 (see network.h); terms
 * without `derivatives` have channel 0 alone.
 */
#ifndef PINN_PROBLEM_H
#define PINN_PROBLEM_H

#include "network.h"
#include "sampling.h"

#include <stdint.h>

enum {
    PINN_MAX_TERMS = 3,
    PINN_MAX_AXES = 8,      /* axes of the Latin hypercubes of one term */
    PINN_MAX_COMPONENTS = 5 /* of a residual */
};

/* What sampling a term needs: its axes, and a stream for independent draws (pinn_uniform(draw->stream, index)). */
typedef struct pinn_draw {
    const pinn_axis *axes;
    uint64_t stream;
    int n_points;
} pinn_draw;

/*
 * A set of points with residuals r whose squares are averaged: the loss of the term is sum r^2 / (points * averaged).
 * Interior terms give `residual` and `adjoint`; data terms give `target`, and r = value - target for each output.
 */
typedef struct pinn_term {
    const char *name;
    int n_points;     /* of a published step; even where pairs of points belong together */
    bool derivatives; /* needs all channels */
    int components;   /* residuals per point */
    double averaged;  /* entries per point that the mean runs over */
    int n_axes;
    int axes[PINN_MAX_AXES]; /* number of strata of each */
    /* Points first .. first + count - 1 of the set. */
    void (*sample)(const pinn_draw *draw, int first, int count, double *x, int stride);
    void (*residual)(int count, int stride, const double *x, const double *value, double *r);
    /* adjoint[row] = sum_c e_c dr_c/dvalue[row], every row written. */
    void (*adjoint)(int count, int stride, const double *x, const double *value, const double *e, double *adjoint);
    void (*target)(int count, int stride, const double *x, double *target);
} pinn_term;

typedef struct pinn_problem {
    const char *name, *title;
    int n_inputs, n_outputs;
    const char *inputs[NET_MAX_INPUTS], *outputs[NET_MAX_OUTPUTS];
    double kappa[NET_MAX_INPUTS];
    int n_terms; /* interior, boundary and, where there is time, initial, in this order */
    pinn_term terms[PINN_MAX_TERMS];
    bool pooled; /* boundary_initial is one mean over both sets; else the sum of both losses */

    /* Published settings; rates for 2 and for 3 losses. */
    int64_t steps;
    double lr[2], final_lr[2];
    /* The preset quick: fewer steps, on fewer interior points each, at another rate. */
    struct {
        int64_t steps, points;
        double lr, final_lr;
    } quick;
    double rho_m, rho_v;

    /* The evaluation set, a grid: `grid` points per input, the first input varying slowest. */
    int grid[NET_MAX_INPUTS];
    void (*grid_point)(const int *index, double *x);
    /* Pictures show the slice over two inputs, across and up; the others stay at a grid index. */
    int shown[2], shown_at[NET_MAX_INPUTS];
    /* The solution at given points. */
    void (*reference)(int count, int stride, const double *x, double *value);
    /* Squared errors of one further component that counts in `mse` alone (schrodinger: |h|); NULL: none. */
    double (*extra_error)(int count, int stride, const double *predicted, const double *reference);
} pinn_problem;

/* Losses of a run: which terms each one takes. */
typedef struct pinn_loss {
    const char *name;
    int n_terms;
    int terms[2];
} pinn_loss;

const pinn_problem *pinn_problem_at(int index); /* NULL past the last */
const pinn_problem *pinn_problem_find(const char *name);

/* The split into 2 or 3 losses; their number, or 0 when the problem does not offer it. */
int pinn_problem_split(const pinn_problem *problem, int n_losses, pinn_loss *losses);

/* Width and depth of the published network. */
net_shape pinn_problem_shape(const pinn_problem *problem);

/* Glorot normal weights, biases 0.001, in double; a function of the seed. */
void pinn_initialise(const net_shape *shape, uint64_t seed, double *theta);

/* Points of the evaluation set, and point `index` of it. */
int64_t pinn_grid_size(const pinn_problem *problem);
void pinn_grid_at(const pinn_problem *problem, int64_t index, double *x);
/* Whether it lies on the slice that pictures show. */
bool pinn_grid_shown(const pinn_problem *problem, int64_t index);

#endif
