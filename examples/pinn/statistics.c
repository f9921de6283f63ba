/* Conflict statistics (see statistics.h). */
#include "statistics.h"

#include <math.h>

int pinn_conflict(const double *cosines, int m)
{
    for (int i = 0; i < m; i++)
        if (cosines[i] < PINN_CONFLICT_COSINE)
            return 1;
    return 0;
}

void pinn_statistics_add(pinn_statistics *s, const sut_report *report)
{
    if (!(report->lr > 0))
        return;
    const int m = report->n_losses;
    s->steps++;
    s->g += report->min_pair_cos < PINN_CONFLICT_COSINE;
    s->g_pairs += report->conflict_fraction;
    s->a += pinn_conflict(report->cos_a, m);
    s->u += pinn_conflict(report->cos_u, m);
    s->p += pinn_conflict(report->cos_p, m);
    if (report->relative_change > PINN_PROJECTED_CHANGE) {
        s->projected++;
        s->change += report->relative_change;
        s->cosine += report->cos_pu;
        s->ratio += report->ratio_pu;
        s->projected_change += report->relative_change;
        s->projected_cosine += report->cos_pu;
        s->projected_ratio += report->ratio_pu;
    } else {
        s->cosine++;
        s->ratio++;
    }
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
        sum += x[j] * y[j];
    return sum;
}

double pinn_cosine(const double *g, const double *d, int64_t n)
{
    return dot(g, d, n) / (sqrt(dot(g, g, n)) * sqrt(dot(d, d, n)) + 1e-12);
}

void pinn_statistics_measure(sut_report *report, double lr, const double *const *g, int m, const double *a,
                             const double *u, const double *p, int64_t n)
{
    report->lr = lr;
    report->n_losses = m;
    report->min_pair_cos = m > 1 ? 1 : 0;
    int pairs = 0, conflicts = 0;
    for (int i = 0; i < m; i++) {
        report->cos_a[i] = pinn_cosine(g[i], a, n);
        report->cos_u[i] = pinn_cosine(g[i], u, n);
        report->cos_p[i] = pinn_cosine(g[i], p, n);
        for (int j = i + 1; j < m; j++, pairs++) {
            const double c = pinn_cosine(g[i], g[j], n);
            report->min_pair_cos = fmin(report->min_pair_cos, c);
            conflicts += c < PINN_CONFLICT_COSINE;
        }
    }
    report->conflict_fraction = pairs ? (double)conflicts / pairs : 0;
    double distance = 0;
    for (int64_t j = 0; j < n; j++)
        distance += (p[j] - u[j]) * (p[j] - u[j]);
    const double length = sqrt(dot(u, u, n));
    report->relative_change = sqrt(distance) / (length + 1e-12);
    report->cos_pu = pinn_cosine(p, u, n);
    report->ratio_pu = sqrt(dot(p, p, n)) / (length + 1e-12);
}
