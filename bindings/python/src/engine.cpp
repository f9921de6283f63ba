/* See engine.h. */
#include "engine.h"
#include "errors.h"
#include "rounding.h"

namespace suture_python
{

/* In the memory of the back end; NULL when tensor k has none. */
static float *master(sut_optimizer *opt, Tensors &tensors, size_t k)
{
    void *data = nullptr;
    if (tensors[k].has_master())
        check(sut_optimizer_state(opt, "master", (int64_t)k, &data, nullptr, nullptr), sut_optimizer_context(opt));
    return static_cast<float *>(data);
}

Masters read_masters(sut_optimizer *opt, Tensors &tensors)
{
    sut_context *const ctx = sut_optimizer_context(opt);
    Masters all(tensors.size());
    for (size_t k = 0; k < tensors.size(); k++)
        if (const float *from = master(opt, tensors, k)) {
            all[k].resize((size_t)tensors[k].layout.count);
            check(sut_context_download(ctx, all[k].data(), from, all[k].size() * sizeof(float)), ctx);
        }
    return all;
}

void restore_masters(sut_optimizer *opt, Tensors &tensors, const Masters &old)
{
    sut_context *const ctx = sut_optimizer_context(opt);
    for (size_t k = 0; k < tensors.size(); k++) {
        float *const to = master(opt, tensors, k);
        if (!to)
            continue;
        const size_t n = old[k].size();
        std::vector<uint16_t> now(n);
        std::vector<float> copy(n);
        check(sut_context_download(ctx, now.data(), tensors[k].data, n * sizeof(uint16_t)), ctx);
        check(sut_context_download(ctx, copy.data(), to, n * sizeof(float)), ctx);
        const bool bf16 = tensors[k].layout.dtype == SUT_DTYPE_BF16;
        for (size_t j = 0; j < n; j++)
            if ((bf16 ? to_bf16(old[k][j]) : to_f16(old[k][j])) == now[j])
                copy[j] = old[k][j];
        check(sut_context_upload(ctx, to, copy.data(), n * sizeof(float)), ctx);
    }
}

} // namespace suture_python
