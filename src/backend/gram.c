/*
 * The Gram matrix of m gradients: the passes that surgery/gram.h asks for, one after the other.
 */
#include "surgery/gram.h"
#include "backend/backend.h"

#include <stdio.h>

sut_status sut_gram_find_culprit(sut_context *ctx, const sut_layout *layout, const sut_rows *rows,
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

sut_status sut_gram_pass(sut_context *ctx, const sut_layout *layout, const sut_rows *rows,
                         const sut_gram_search *search, double *K)
{
    double scale[SUT_MAX_LOSSES];
    for (int i = 0; i < rows->m; ++i)
        scale[i] = search->scale;
    const sut_rows scaled = {rows->data, rows->m, search->scale != 1 ? scale : NULL};
    return ctx->ops->gram(ctx, layout, &scaled, search->strict, K);
}

bool sut_layout_is_f64(const sut_layout *layout)
{
    bool only_f64 = true;
    for (int64_t t = 0; t < layout->n_tensors && only_f64; ++t)
        only_f64 = layout->dtype[t] == SUT_DTYPE_F64;
    return only_f64;
}

sut_status sut_gram_compute(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, bool strict,
                            const char *const *loss_names, const char *const *tensor_names, sut_gram *gram)
{
    double work[SUT_MAX_LOSSES * SUT_MAX_LOSSES], largest[SUT_MAX_LOSSES];
    sut_gram_search search;
    sut_gram_begin(&search, rows->m, layout->n_elements, sut_layout_is_f64(layout), strict);
    for (;;)
        switch (sut_gram_next(&search, gram->K, largest, work)) {
        case SUT_GRAM_PRODUCTS: SUT_TRY(sut_gram_pass(ctx, layout, rows, &search, gram->K)); break;
        case SUT_GRAM_CULPRIT: SUT_TRY(sut_gram_find_culprit(ctx, layout, rows, loss_names, tensor_names)); break;
        case SUT_GRAM_LARGEST: SUT_TRY(ctx->ops->row_max(ctx, layout, rows, largest)); break;
        case SUT_GRAM_IMPOSSIBLE:
            SUT_FAIL(ctx, SUT_ERROR_INTERNAL, "the Gram matrix of finite gradients is not finite");
        case SUT_GRAM_READY:
            gram->exponent = search.exponent;
            gram->strict = search.strict;
            return SUT_OK;
        }
}
