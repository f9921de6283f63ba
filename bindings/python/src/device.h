/*
 * Arrays in the memory of a GPU. Tensors of PyTorch say themselves where they are (torch_tensor.h); everything else comes
 * through the CUDA Array Interface (`__cuda_array_interface__`, versions 2 and 3: CuPy, Numba).
 *
 * What has to be asked of PyTorch about GPUs (the current stream, memory for outputs, which device is current) goes through
 * the Python module suture._cuda and nothing else. This module never touches memory of a GPU: the library copies
 * (sut_context_upload(), sut_context_download()).
 */
#ifndef SUTURE_PYTHON_DEVICE_H
#define SUTURE_PYTHON_DEVICE_H

#include "engine.h"
#include "layout.h"

namespace suture_python
{

/* Fill in `view` from `__cuda_array_interface__`; false, with a Python error set, when it is refused. */
bool open_cuda_array(PyObject *array, View &view, bool write);
bool has_cuda_interface(PyObject *array);

/* A function of suture._cuda, as it is now. */
nb::object cuda_function(const char *name);
/* The stream that is current in PyTorch on this device. */
int64_t current_stream(int device);
/* "cpu", "cuda:1", or "a CUDA device" */
std::string device_text(int device);
/* One of the two does not know its number, or they are the same. */
inline bool same_device(int a, int b)
{
    return a == b || (a != View::CPU && b != View::CPU && (a == View::SOME_CUDA || b == View::SOME_CUDA));
}

/* A part of an optimizer's state on a GPU, which it keeps alive. To Python an object with `__cuda_array_interface__`. */
class DeviceArray
{
  public:
    DeviceArray(std::shared_ptr<Engine> owner, const Layout &layout, void *data)
        : engine(std::move(owner)), layout(layout), data(data)
    {
    }
    nb::tuple shape() const;
    const char *dtype() const
    {
        return dtype_text(layout.dtype);
    }
    nb::dict interface() const;

  private:
    std::shared_ptr<Engine> engine;
    Layout layout; /* without gaps */
    void *data;
};

void add_device(nb::module_ &module);

} // namespace suture_python

#endif
