/*
 * Arrays of other libraries, looked at without a copy. NumPy arrays (and whatever else has the buffer protocol) come through
 * that protocol; PyTorch tensors through the C table that PyTorch publishes for DLPack exchange, which costs some
 * nanoseconds, or, before PyTorch 2.10, through their methods.
 *
 * A View is open for the length of one call. It names what it refuses: element type, device, byte order, layout.
 */
#ifndef SUTURE_PYTHON_ARRAY_H
#define SUTURE_PYTHON_ARRAY_H

#include <nanobind/nanobind.h>

#include "suture/suture.h"

#include <string>
#include <vector>

namespace nb = nanobind;

namespace suture_python
{

/* What an open view keeps alive, for the length of a call: other threads may drop arrays or give them other memory while the
 * interpreter lock is released. */
class Held
{
  public:
    Held() = default;
    Held(const Held &) = delete;
    Held &operator=(const Held &) = delete;
    ~Held()
    {
        clear();
    }
    void add(PyObject *owned)
    {
        objects.push_back(owned);
    }
    void add(const Py_buffer &buffer)
    {
        buffers.push_back(buffer);
    }
    void clear()
    {
        for (Py_buffer &buffer : buffers)
            PyBuffer_Release(&buffer);
        buffers.clear();
        for (PyObject *o : objects)
            Py_DECREF(o);
        objects.clear();
    }

  private:
    std::vector<PyObject *> objects;
    std::vector<Py_buffer> buffers;
};

struct View {
    void *data = nullptr;
    sut_dtype dtype = SUT_DTYPE_F32;
    int n_dims = 0;
    int64_t shape[SUT_MAX_DIMS] = {};
    int64_t stride[SUT_MAX_DIMS] = {}; /* in bytes */
    int64_t count = 1;                 /* elements */
    bool is_torch = false;

    View() = default;
    View(const View &) = delete;
    View &operator=(const View &) = delete;
    ~View()
    {
        close();
    }

    /* Open `array`; `what` names it in refusals ("gradient of loss 1 in tensor w"). `write`: it will be written to.
     * Throws a Python exception. */
    void open(PyObject *array, const std::string &what, bool write);
    /* The same without a name: false, with a Python error set, when it is refused. For the fast path. */
    bool try_open(PyObject *array, bool write);
    /* Row i of another view, which must stay open. */
    void row(const View &whole, int64_t i);
    void close();
    /* Hand what keeps the memory alive to a list that outlives the view. */
    void give(Held &list)
    {
        if (held)
            list.add(buffer);
        if (storage)
            list.add(storage);
        held = false;
        storage = nullptr;
    }

    /* Row by row without gaps, and aligned. */
    bool is_contiguous() const;

  private:
    bool open_torch(PyObject *array);
    bool open_torch_methods(PyObject *array);
    bool open_buffer(PyObject *array, bool write);
    bool open_storage(PyObject *array);

    PyObject *storage = nullptr; /* PyTorch's, which owns the memory; owned */
    Py_buffer buffer = {};
    bool held = false;
};

/* Tell the module what a PyTorch tensor is: torch.Tensor. Called from Python when torch was imported. */
void register_torch(nb::object tensor_type);
bool is_torch_tensor(PyObject *object);

/*
 * How a parameter lies in memory: without gaps, but not necessarily row by row (Fortran order, channels last). Suture sees
 * the dimensions in the order of their strides, so that memory runs straight.
 */
struct Layout {
    sut_dtype dtype = SUT_DTYPE_F32;
    int n_dims = 0;
    int64_t shape[SUT_MAX_DIMS] = {};  /* as the caller sees it */
    int64_t stride[SUT_MAX_DIMS] = {}; /* in bytes */
    int64_t memory_shape[SUT_MAX_DIMS] = {};
    int64_t count = 1;

    /* False when the view has gaps, overlaps itself or is not aligned. */
    bool from(const View &view);
    /* The view has this layout: its memory can be used as it is. */
    bool matches(const View &view) const;
    bool same_shape(const View &view) const;
    /* Copy the elements of a view of the same shape and type into `to`, in the order of this layout's memory. */
    void gather(const View &view, void *to) const;
};

std::string shape_text(int n_dims, const int64_t *shape);
const char *dtype_text(sut_dtype dtype);

} // namespace suture_python

#endif
