/*
 * What it takes to trust a Gram matrix: which pass over the gradients is needed next, given what the last one found.
 *
 * f32 lanes carry a dot product to about 3e-8 of sum |x_k y_k|. That is enough while the cosine matrix is well
 * conditioned; the weights of a surgery method change by the error over its smallest eigenvalue. Where that could exceed
 * a few f32 roundings of the direction (the smallest Cholesky pivot of the cosines below SUT_PIVOT_F32), where squares
 * leave the range of f32, or where a sum is not finite, the pass is repeated in double, which is exact for products of
 * f32. Doubles overflow too, for norms beyond 1e150: then the rows are scaled by a common power of two.
 */
#ifndef SUT_SURGERY_GRAM_H
#define SUT_SURGERY_GRAM_H

#include "surgery/prelude.h"

/* 3e-8 / pivot stays near 2^-24 * 4 (m + 2), the accuracy promised for f32 directions. */
#define SUT_PIVOT_F32 0.0625
/* A sum of f32 products below this many an element has lost digits to underflow. */
#define SUT_TINY_F32 1e-36

typedef enum sut_gram_need {
    SUT_GRAM_READY = 0,  /* K may be used */
    SUT_GRAM_PRODUCTS,   /* K = G G^T, in double where `strict`, of the rows times `scale` */
    SUT_GRAM_CULPRIT,    /* the first element that is not finite; if there is one, that is the end */
    SUT_GRAM_LARGEST,    /* the largest absolute value of each row */
    SUT_GRAM_IMPOSSIBLE, /* finite rows, scaled, and K is not finite: a bug */
} sut_gram_need;

typedef struct sut_gram_search {
    int m;
    int64_t n_elements;
    bool only_f64; /* every row is f64 */
    bool strict;   /* products are (to be) taken in double */
    int exponent; /* K is that of the rows times 2^-exponent; 0 unless they are too long or too short for their squares */
    double scale; /* 2^-exponent */
    int stage;
} sut_gram_search;

SUT_SOLVER void sut_gram_begin(sut_gram_search *g, int m, int64_t n_elements, bool only_f64, bool strict)
{
    g->m = m;
    g->n_elements = n_elements;
    g->only_f64 = only_f64;
    g->strict = strict || only_f64;
    g->exponent = 0;
    g->scale = 1;
    g->stage = 0;
}

/* Smallest pivot of the Cholesky factorisation of the cosine matrix over live rows; 1 for m = 1. work: m*m. */
SUT_SOLVER double sut_gram_smallest_pivot(const double *K, int m, double *work)
{
    int n = 0;
    SUT_ARRAY(int, live, SUT_ROOM);
    for (int i = 0; i < m; ++i)
        if (K[i * m + i] > 0)
            live[n++] = i;
    double smallest = 1;
    for (int i = 0; i < n; ++i) {
        double *const row = work + i * m;
        const double di = sqrt(K[live[i] * m + live[i]]);
        for (int j = 0; j <= i; ++j) {
            double x = K[live[i] * m + live[j]] / (di * sqrt(K[live[j] * m + live[j]]));
            if (i == j)
                x = 1;
            for (int k = 0; k < j; ++k)
                x -= row[k] * work[j * m + k];
            if (i == j) {
                if (x < smallest)
                    smallest = x;
                if (x <= 0)
                    return 0;
                row[i] = sqrt(x);
            } else {
                row[j] = x / work[j * m + j];
            }
        }
    }
    return smallest;
}

SUT_SOLVER bool sut_gram_is_finite(const double *K, int m)
{
    double bad = 0;
    for (int k = 0; k < m * m; ++k)
        bad += K[k] - K[k];
    return bad == 0;
}

/* Squares of the longest row neither overflow nor vanish. */
SUT_SOLVER bool sut_gram_in_range(const double *K, int m)
{
    double largest = 0;
    for (int i = 0; i < m; ++i)
        largest = K[i * m + i] > largest ? K[i * m + i] : largest;
    return largest == 0 || (largest > 1e-280 && largest < 1e280);
}

/* f32 lanes were enough. */
SUT_SOLVER bool sut_gram_is_trusted(const sut_gram_search *g, const double *K, double *work)
{
    bool trusted = sut_gram_is_finite(K, g->m);
    for (int i = 0; i < g->m && trusted; ++i)
        trusted = K[i * g->m + i] > SUT_TINY_F32 * (double)g->n_elements;
    return trusted && !(sut_gram_smallest_pivot(K, g->m, work) < SUT_PIVOT_F32);
}

/* The power of two of rows whose largest entry is `top`. */
SUT_SOLVER void sut_gram_set_scale(sut_gram_search *g, double top)
{
    (void)frexp(top, &g->exponent);
    g->scale = ldexp(1.0, -g->exponent);
    /* 2^-exponent itself can leave the range of normal doubles by a few places at either end. */
    if (!isfinite(g->scale) || g->scale < 1e-300) {
        g->exponent = g->exponent > 0 ? 996 : -996;
        g->scale = ldexp(1.0, -g->exponent);
    }
}

/*
 * What is needed next. K: m*m, both triangles, of the last SUT_GRAM_PRODUCTS; largest: m, of the last SUT_GRAM_LARGEST;
 * work: m*m doubles. Begins with products; after SUT_GRAM_READY it is not called again.
 */
SUT_SOLVER sut_gram_need sut_gram_next(sut_gram_search *g, const double *K, const double *largest, double *work)
{
    enum { BEGIN, FIRST, REPEATED, SEARCHED, MEASURED, SCALED };
    if (g->stage == BEGIN) {
        g->stage = FIRST;
        return SUT_GRAM_PRODUCTS;
    }
    if (g->stage == FIRST && !g->strict && !sut_gram_is_trusted(g, K, work)) {
        g->stage = REPEATED;
        g->strict = true;
        return SUT_GRAM_PRODUCTS;
    }
    if (g->stage == FIRST || g->stage == REPEATED) {
        const bool finite = sut_gram_is_finite(K, g->m);
        if (finite && sut_gram_in_range(K, g->m)) {
            /* Squares that vanish beside an ordinary row belong to rows that count as zero; alone they are looked at. */
            bool vanished = true;
            for (int i = 0; i < g->m; ++i)
                vanished = vanished && K[i * g->m + i] == 0;
            if (!vanished || !g->only_f64)
                return SUT_GRAM_READY;
        }
        g->stage = finite ? MEASURED : SEARCHED;
        return finite ? SUT_GRAM_LARGEST : SUT_GRAM_CULPRIT;
    }
    if (g->stage == SEARCHED) {
        g->stage = MEASURED;
        return SUT_GRAM_LARGEST;
    }
    if (g->stage == MEASURED) {
        double top = 0;
        for (int i = 0; i < g->m; ++i)
            top = largest[i] > top ? largest[i] : top;
        if (top == 0)
            return SUT_GRAM_READY; /* all rows are exact zeros */
        sut_gram_set_scale(g, top);
        g->stage = SCALED;
        g->strict = true;
        return SUT_GRAM_PRODUCTS;
    }
    return sut_gram_is_finite(K, g->m) ? SUT_GRAM_READY : SUT_GRAM_IMPOSSIBLE;
}

#endif /* SUT_SURGERY_GRAM_H */
