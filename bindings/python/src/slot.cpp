/* See slot.h. */
#include "slot.h"
#include "device.h"

#include <nanobind/ndarray.h>

#include <cstring>

namespace suture_python
{

Slot::Slot(const Engine &engine, const char *name, int64_t tensor, const Layout &of_tensor)
{
    sut_dtype dtype;
    int64_t count;
    check(sut_optimizer_state(engine.opt, name, tensor, &data, &dtype, &count), engine.context->ctx);
    layout = of_tensor.scaled(dtype);
    const bool one = strcmp(name, "mu_prod") == 0; /* one number for the whole tensor, which is always the host's */
    if (one) {
        layout.n_dims = 1;
        layout.shape[0] = layout.count = 1;
        layout.stride[0] = (int64_t)sut_dtype_size(dtype);
    }
    is_host = one || !engine.context->on_cuda();
}

static nb::object array_over(const Layout &l, void *data, const nb::capsule &owner)
{
    size_t shape[SUT_MAX_DIMS];
    int64_t strides[SUT_MAX_DIMS];
    for (int d = 0; d < l.n_dims; d++) {
        shape[d] = (size_t)l.shape[d];
        strides[d] = l.stride[d] / (int64_t)sut_dtype_size(l.dtype);
    }
    const size_t n = (size_t)l.n_dims;
    return l.dtype == SUT_DTYPE_F64
               ? nb::cast(nb::ndarray<nb::numpy, double>(data, n, shape, owner, strides), nb::rv_policy::reference)
               : nb::cast(nb::ndarray<nb::numpy, float>(data, n, shape, owner, strides), nb::rv_policy::reference);
}

nb::object Slot::view(const std::shared_ptr<Engine> &engine) const
{
    if (!is_host)
        return nb::cast(DeviceArray(engine, layout, data));
    return array_over(layout, data, nb::capsule(new std::shared_ptr<Engine>(engine), [](void *p) noexcept {
                          delete static_cast<std::shared_ptr<Engine> *>(p);
                      }));
}

nb::object Slot::empty(void **memory) const
{
    char *const own = new char[size() + 1];
    *memory = own;
    return array_over(layout, own, nb::capsule(own, [](void *p) noexcept { delete[] static_cast<char *>(p); }));
}

std::vector<char> Slot::contents(const char *name, nb::handle array) const
{
    View view;
    view.open(array.ptr(), std::string("'") + name + "'", false);
    if (view.device != View::CPU || view.dtype != layout.dtype || !layout.same_shape(view))
        raise(SUT_ERROR_INVALID_ARGUMENT,
              (std::string("'") + name + "' is " + dtype_text(view.dtype) + " of shape " +
               shape_text(view.n_dims, view.shape) + "; " + dtype_text(layout.dtype) + " of shape " +
               shape_text(layout.n_dims, layout.shape) + " in the processor's memory is needed")
                  .c_str());
    std::vector<char> copy(size());
    layout.gather(view, copy.data());
    return copy;
}

} // namespace suture_python
