/* See engine.h. */
#include "engine.h"
#include "errors.h"
#include "rounding.h"

namespace suture_python
{

/* NULL when tensor k has none. */
static float *master(sut_optimizer *opt, Tensors &tensors, size_t k)
{
    void *data = nullptr;
    if (tensors[k].has_master())
        check(sut_optimizer_state(opt, "master", (int64_t)k, &data, nullptr, nullptr), sut_optimizer_context(opt));
    return static_cast<float *>(data);
}

Masters read_masters(sut_optimizer *opt, Tensors &tensors)
{
    Masters all(tensors.size());
    for (size_t k = 0; k < tensors.size(); k++)
        if (const float *from = master(opt, tensors, k))
            all[k].assign(from, from + tensors[k].layout.count);
    return all;
}

void restore_masters(sut_optimizer *opt, Tensors &tensors, const Masters &old)
{
    for (size_t k = 0; k < tensors.size(); k++) {
        float *const to = master(opt, tensors, k);
        if (!to)
            continue;
        const uint16_t *const now = static_cast<const uint16_t *>(tensors[k].data);
        const bool bf16 = tensors[k].layout.dtype == SUT_DTYPE_BF16;
        for (size_t j = 0; j < old[k].size(); j++)
            if ((bf16 ? to_bf16(old[k][j]) : to_f16(old[k][j])) == now[j])
                to[j] = old[k][j];
    }
}

} // namespace suture_python
