/*
 * Conflict statistics over the steps of a run: which share of the steps had gradients, a combined direction, a proposal
 * or an applied update that conflict with a loss. A vector d conflicts with g when cos(g, d) < -1e-6.
 */
#ifndef PINN_STATISTICS_H
#define PINN_STATISTICS_H

#include "suture/optimizer.h"

#define PINN_CONFLICT_COSINE (-1e-6)
#define PINN_PROJECTED_CHANGE 1e-8

/* Sums over counted steps; all doubles, so that a checkpoint keeps them as one array. */
typedef struct pinn_statistics {
    double steps;                 /* counted: the learning rate was positive */
    double g, g_pairs, a, u, p;   /* steps with a conflict; g_pairs: sum of the shares of conflicting pairs */
    double projected;             /* steps with |p - u|/|u| > 1e-8 */
    double change, cosine, ratio; /* sums over all counted steps */
    double projected_change, projected_cosine, projected_ratio; /* over the projected ones */
} pinn_statistics;

enum { PINN_STATISTICS_COUNT = sizeof(pinn_statistics) / sizeof(double) };

/* Add one step. Uses lr, min_pair_cos, conflict_fraction, cos_a, cos_u, cos_p and the correction figures of the report. */
void pinn_statistics_add(pinn_statistics *statistics, const sut_report *report);

/* 1 when one of the m cosines says conflict. */
int pinn_conflict(const double *cosines, int m);

/* The cosine of section 2 of the protocol, g.d/(|g||d| + 1e-12). */
double pinn_cosine(const double *g, const double *d, int64_t n);

/* The figures of a report that pinn_statistics_add() uses, from m gradients and the vectors themselves. */
void pinn_statistics_measure(sut_report *report, double lr, const double *const *g, int m, const double *a,
                             const double *u, const double *p, int64_t n);

#endif
