/*
 * Figures of a report from the Gram matrix: norms, cosines between gradients, cosines of a with each of them.
 *
 * a . g_i = (K w)_i and |a|^2 = w^T K w. When the latter vanishes to its own rounding, the norm and the cosines are reported
 * as 0: their signs would be noise, and a conflict must not be reported for noise. The bound is half of that in solve.c, so
 * that a direction which passed there has a norm here, whatever the last digits; only weights that do not hang on K's condition
 * (sum, mean, fixed, `determined`) come here without that test. At the bound the norm may be off by a tenth, and a cosine beyond
 * 1e-8 sqrt(m) has the right sign; errors fall with the square of |a|.
 */
#include "surgery/prelude.h"
#include "surgery/surgery.h"

/* A cosine below minus this is a conflict, as in the published alignment code. */
#define CONFLICT_TOL 1e-6

/* Pairs of gradients. d: norms, 0 for rows without direction. */
static void measure_pairs(const double *K, const double *d, int m, sut_surgery_report *report)
{
    int pairs = 0, conflicts = 0;
    double min_cos = 0.0, total = 0.0;
    for (int i = 0; i < m; ++i) {
        total += d[i] > 0.0 ? 1.0 : 0.0;
        for (int j = 0; j < i; ++j) {
            double cosine = 0.0;
            if (d[i] > 0.0 && d[j] > 0.0)
                cosine = sut_clamp_cosine(K[(size_t)i * (size_t)m + (size_t)j] / d[i] / d[j]);
            min_cos = pairs == 0 || cosine < min_cos ? cosine : min_cos;
            conflicts += cosine < -CONFLICT_TOL;
            total += 2.0 * cosine;
            ++pairs;
        }
    }
    report->min_pair_cos = min_cos;
    report->conflict_fraction = pairs > 0 ? (double)conflicts / pairs : 0.0;
    report->alignment = 2.0 * total / ((double)m * m) - 1.0;
}

void sut_surgery_measure(const sut_surgery_input *in, const sut_surgery_output *out, sut_surgery_report *report)
{
    const int m = in->m;
    const double *K = in->K, *w = out->weights;
    double d[SUT_MAX_LOSSES], product[SUT_MAX_LOSSES], longest = 0.0, square = 0.0, reach = 0.0;
    for (int i = 0; i < m; ++i) {
        d[i] = sqrt(sut_max2(0.0, K[(size_t)i * (size_t)(m + 1)]));
        longest = sut_max2(longest, d[i]);
    }
    report->n_losses = m;
    for (int i = 0; i < m; ++i) {
        d[i] = d[i] > SUT_ZERO_ROW * longest ? d[i] : 0.0;
        report->norms[i] = ldexp(d[i], in->exponent);
    }
    measure_pairs(K, d, m, report);

    /* Lengths w_i d_i of the parts of a, in units of the largest one, so that no square can overflow; weights are at most 1
     * in size for that, times a power of two. */
    double part[SUT_MAX_LOSSES], heaviest = 0.0, largest = 0.0;
    for (int i = 0; i < m; ++i)
        heaviest = sut_max2(heaviest, d[i] > 0.0 ? fabs(w[i]) : 0.0);
    int weight_exponent = 0;
    (void)frexp(heaviest, &weight_exponent);
    for (int i = 0; i < m; ++i) {
        part[i] = d[i] > 0.0 ? ldexp(w[i], -weight_exponent) * d[i] : 0.0;
        largest = sut_max2(largest, fabs(part[i]));
    }
    for (int i = 0; i < m; ++i)
        part[i] = largest > 0.0 ? part[i] / largest : 0.0;
    for (int i = 0; i < m; ++i) {
        product[i] = 0.0; /* a . u_i */
        for (int j = 0; j < m; ++j) {
            if (d[i] == 0.0 || part[j] == 0.0)
                continue;
            product[i] +=
                i == j ? part[j] : sut_clamp_cosine(K[(size_t)i * (size_t)m + (size_t)j] / d[i] / d[j]) * part[j];
        }
        square += part[i] * product[i];
        reach += fabs(part[i]);
    }
    const double norm = square > 0.5 * SUT_NOISE(m) * reach * reach ? sqrt(square) : 0.0;
    report->norm_a = ldexp(norm * largest, in->exponent + weight_exponent);
    report->min_cos = 0.0;
    report->n_conflicts = 0;
    bool first = true;
    for (int i = 0; i < m; ++i) {
        report->weights[i] = w[i];
        report->cos_a[i] = norm > 0.0 ? sut_clamp_cosine(product[i] / norm) : 0.0;
        report->n_conflicts += report->cos_a[i] < -CONFLICT_TOL;
        if (d[i] > 0.0 && (first || report->cos_a[i] < report->min_cos)) {
            report->min_cos = report->cos_a[i];
            first = false;
        }
    }
    report->rank = out->rank;
    report->zero = out->zero;
    report->pareto = out->pareto;
    report->negative_normaliser = out->negative_normaliser;
    report->converged = out->converged;
    report->iterations = out->iterations;
}
