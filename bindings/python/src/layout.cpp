/* See layout.h. */
#include "layout.h"

#include <algorithm>
#include <cstring>

namespace suture_python
{

Layout Layout::row_by_row(const View &view)
{
    Layout flat;
    flat.dtype = view.dtype;
    flat.n_dims = view.n_dims;
    flat.count = view.count;
    int64_t step = (int64_t)sut_dtype_size(view.dtype);
    for (int k = view.n_dims - 1; k >= 0; k--) {
        flat.shape[k] = view.shape[k];
        flat.stride[k] = step;
        step *= view.shape[k];
    }
    return flat;
}

bool Layout::from(const View &view)
{
    dtype = view.dtype;
    n_dims = view.n_dims;
    count = view.count;
    const int64_t size = (int64_t)sut_dtype_size(dtype);
    int order[SUT_MAX_DIMS], longer[SUT_MAX_DIMS], n_longer = 0;
    for (int k = 0; k < n_dims; k++) {
        shape[k] = view.shape[k];
        stride[k] = view.stride[k];
        if (shape[k] != 1)
            longer[n_longer++] = k;
    }
    /* The stride of a dimension of length 1 means nothing: it stays in its place. */
    std::stable_sort(longer, longer + n_longer, [&](int a, int b) { return stride[a] > stride[b]; });
    for (int k = 0, next = 0; k < n_dims; k++)
        order[k] = shape[k] == 1 ? k : longer[next++];
    int64_t expected = size;
    for (int k = n_dims - 1; k >= 0; k--) {
        const int d = order[k];
        memory_shape[k] = shape[d];
        if (count > 0 && shape[d] != 1 && stride[d] != expected)
            return false;
        expected *= shape[d];
    }
    return reinterpret_cast<uintptr_t>(view.data) % (uintptr_t)size == 0;
}

bool Layout::same_shape(const View &view) const
{
    return view.n_dims == n_dims && std::equal(shape, shape + n_dims, view.shape);
}

Layout Layout::scaled(sut_dtype to) const
{
    Layout other = *this;
    other.dtype = to;
    for (int k = 0; k < n_dims; k++)
        other.stride[k] = stride[k] / (int64_t)sut_dtype_size(dtype) * (int64_t)sut_dtype_size(to);
    return other;
}

bool Layout::matches(const View &view) const
{
    for (int k = 0; k < n_dims; k++)
        if (view.stride[k] != stride[k] && shape[k] != 1)
            return count == 0;
    return reinterpret_cast<uintptr_t>(view.data) % sut_dtype_size(dtype) == 0;
}

void Layout::gather(const View &view, void *to) const
{
    const size_t size = sut_dtype_size(dtype);
    int64_t index[SUT_MAX_DIMS] = {};
    const char *from = static_cast<const char *>(view.data);
    char *at = static_cast<char *>(to);
    for (int64_t done = 0; done < count; done++) {
        memcpy(at, from, size);
        /* The next element in the caller's order of indices, and where it belongs. */
        for (int k = n_dims - 1; k >= 0; k--) {
            from += view.stride[k];
            at += stride[k];
            if (++index[k] < shape[k])
                break;
            from -= view.stride[k] * shape[k];
            at -= stride[k] * shape[k];
            index[k] = 0;
        }
    }
}

} // namespace suture_python
