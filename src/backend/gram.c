/*
 * The Gram matrix of m gradients with everything that can go wrong taken care of.
 *
 * f32 lanes carry a dot product to about 3e-8 of sum |x_k y_k|. That is enough while the cosine matrix is well
 * conditioned; the weights of a surgery method change by the error over its smallest eigenvalue. Where that could exceed
 * a few f32 roundings of the direction (the smallest Cholesky pivot of the cosines below SUT_PIVOT_F32), where squares
 * leave the range of f32, or where a sum is not finite, the pass is repeated in double, which is exact for products of
 * f32. Doubles overflow too, for norms beyond 1e150: then the rows are scaled by a common power of two.
 */
#include "backend/backend.h"

#include <math.h>
#include <stdio.h>

/* 3e-8 / pivot stays near 2^-24 * 4 (m + 2), the accuracy promised for f32 directions. */
#define SUT_PIVOT_F32 0.0625
/* A squared norm below this many f32 denormals per element has lost digits to underflow. */
#define SUT_TINY_F32 1e-36

/* Smallest pivot of the Cholesky factorisation of the cosine matrix over live rows; 1 for m = 1. */
static double smallest_pivot(const double *K, int m)
{
    double L[SUT_MAX_LOSSES][SUT_MAX_LOSSES];
    int live[SUT_MAX_LOSSES], n = 0;
    for (int i = 0; i < m; ++i)
        if (K[i * m + i] > 0)
            live[n++] = i;
    double smallest = 1;
    for (int i = 0; i < n; ++i) {
        const double di = sqrt(K[live[i] * m + live[i]]);
        for (int j = 0; j <= i; ++j) {
            double x = K[live[i] * m + live[j]] / (di * sqrt(K[live[j] * m + live[j]]));
            if (i == j)
                x = 1;
            for (int k = 0; k < j; ++k)
                x -= L[i][k] * L[j][k];
            if (i == j) {
                if (x < smallest)
                    smallest = x;
                if (x <= 0)
                    return 0;
                L[i][i] = sqrt(x);
            } else {
                L[i][j] = x / L[j][j];
            }
        }
    }
    return smallest;
}

static bool all_finite(const double *K, int m)
{
    double bad = 0;
    for (int k = 0; k < m * m; ++k)
        bad += K[k] - K[k];
    return bad == 0;
}

/* A number with a common exponent range: squares of the longest row must neither overflow nor vanish. */
static bool in_range(const double *K, int m)
{
    double largest = 0;
    for (int i = 0; i < m; ++i)
        largest = K[i * m + i] > largest ? K[i * m + i] : largest;
    return largest == 0 || (largest > 1e-280 && largest < 1e280);
}

static sut_status name_the_bad_one(sut_context *ctx, const sut_layout *layout, const sut_rows *rows,
                                   const char *const *loss_names, const char *const *tensor_names)
{
    for (int i = 0; i < rows->m; ++i)
        for (int64_t t = 0; t < layout->n_tensors; ++t) {
            const void *const x = rows->data[(int64_t)i * layout->n_tensors + t];
            if (!x)
                continue;
            int64_t k;
            SUT_TRY(ctx->ops->find_nonfinite(ctx, x, layout->count[t], layout->dtype[t], &k));
            if (k < 0)
                continue;
            char loss[96], tensor[160] = "";
            if (loss_names && loss_names[i])
                (void)snprintf(loss, sizeof loss, "loss %d (\"%.64s\")", i, loss_names[i]);
            else
                (void)snprintf(loss, sizeof loss, "loss %d", i);
            if (tensor_names && tensor_names[t])
                (void)snprintf(tensor, sizeof tensor, " in tensor \"%.128s\"", tensor_names[t]);
            SUT_FAIL(ctx, SUT_ERROR_NOT_FINITE, "the gradient of %s is NaN or Inf%s at index %lld", loss, tensor,
                     (long long)k);
        }
    return SUT_OK;
}

sut_status sut_gram_compute(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, bool strict,
                            const char *const *loss_names, const char *const *tensor_names, sut_gram *gram)
{
    const int m = rows->m;
    gram->exponent = 0;
    bool only_f64 = true;
    for (int64_t t = 0; t < layout->n_tensors && only_f64; ++t)
        only_f64 = layout->dtype[t] == SUT_DTYPE_F64;
    gram->strict = strict || only_f64;
    SUT_TRY(ctx->ops->gram(ctx, layout, rows, gram->strict, gram->K));
    if (!gram->strict) {
        bool trusted = all_finite(gram->K, m);
        for (int i = 0; i < m && trusted; ++i)
            trusted = gram->K[i * m + i] > SUT_TINY_F32 * (double)layout->n_elements;
        if (!trusted || smallest_pivot(gram->K, m) < SUT_PIVOT_F32) {
            gram->strict = true;
            SUT_TRY(ctx->ops->gram(ctx, layout, rows, true, gram->K));
        }
    }
    const bool finite = all_finite(gram->K, m);
    if (finite && in_range(gram->K, m)) {
        /* Squares that vanish beside an ordinary row belong to rows that count as zero; alone they are looked at below. */
        bool vanished = true;
        for (int i = 0; i < m; ++i)
            vanished = vanished && gram->K[i * m + i] == 0;
        if (!vanished || !only_f64)
            return SUT_OK;
    }
    if (!finite)
        SUT_TRY(name_the_bad_one(ctx, layout, rows, loss_names, tensor_names));

    double largest[SUT_MAX_LOSSES], scale[SUT_MAX_LOSSES], top = 0;
    SUT_TRY(ctx->ops->row_max(ctx, layout, rows, largest));
    for (int i = 0; i < m; ++i)
        top = largest[i] > top ? largest[i] : top;
    if (top == 0)
        return SUT_OK; /* all rows are exact zeros */
    (void)frexp(top, &gram->exponent);
    for (int i = 0; i < m; ++i)
        scale[i] = ldexp(1.0, -gram->exponent);
    /* 2^-exponent itself can leave the range of normal doubles by a few places at either end. */
    if (!isfinite(scale[0]) || scale[0] < 1e-300) {
        gram->exponent = gram->exponent > 0 ? 996 : -996;
        for (int i = 0; i < m; ++i)
            scale[i] = ldexp(1.0, -gram->exponent);
    }
    const sut_rows scaled = {rows->data, m, scale};
    gram->strict = true;
    SUT_TRY(ctx->ops->gram(ctx, layout, &scaled, true, gram->K));
    if (!all_finite(gram->K, m))
        SUT_FAIL(ctx, SUT_ERROR_INTERNAL, "the Gram matrix of finite gradients is not finite");
    return SUT_OK;
}
