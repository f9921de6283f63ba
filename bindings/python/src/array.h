/*
 * Arrays of other libraries, looked at without a copy. NumPy arrays (and whatever else has the buffer protocol) come through
 * that protocol, tensors of PyTorch as torch_tensor.h says, other arrays in the memory of a GPU as device.h says.
 *
 * A View is what an array was at one moment. It stays true as long as no other Python code can run. A call that releases the
 * interpreter lock keeps what it looked at (View::keep) until it has the lock again. A View names what it refuses: element
 * type, device, byte order, layout, memory that is not there.
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

/* What one call keeps alive and in place. */
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
    /* Takes over a reference. */
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
        /* Emptied first: an object that goes may run code that comes back here. */
        std::vector<Py_buffer> old_buffers;
        std::vector<PyObject *> old_objects;
        old_buffers.swap(buffers);
        old_objects.swap(objects);
        for (Py_buffer &buffer : old_buffers)
            PyBuffer_Release(&buffer);
        for (PyObject *o : old_objects)
            Py_DECREF(o);
        /* Their memory serves the next call. */
        old_buffers.clear();
        old_objects.clear();
        if (buffers.empty())
            buffers.swap(old_buffers);
        if (objects.empty())
            objects.swap(old_objects);
    }

  private:
    std::vector<PyObject *> objects;
    std::vector<Py_buffer> buffers;
};

struct View {
    enum : int { CPU = -1, SOME_CUDA = -2 /* the one that is current */ };
    enum : int64_t { NO_STREAM = -1 };

    void *data = nullptr;
    sut_dtype dtype = SUT_DTYPE_F32;
    int n_dims = 0;
    int64_t shape[SUT_MAX_DIMS] = {};
    int64_t stride[SUT_MAX_DIMS] = {}; /* in bytes */
    int64_t count = 1;                 /* elements */
    bool is_torch = false;
    int device = CPU;           /* or the number of a CUDA device; then `data` is its memory */
    int64_t stream = NO_STREAM; /* what an array of CUDA (not of PyTorch) says on which its contents will be ready */
    bool wide_only = false;     /* set before opening: the types of 16 bits are refused, too */
    bool ran_code = false;      /* looking may have run Python code, during which other threads may have run */

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
    /*
     * Hand what this view has opened to a list that outlives it. With `against_others` other threads may run meanwhile: the
     * memory of `array`, the object that was opened, is kept alive even if they drop the array or give it other memory, and
     * NumPy is kept from resizing it. (A tensor's storage that is resized by another thread in the middle of a call cannot be
     * protected: PyTorch has no means for that.) Throws a Python exception.
     */
    void keep(PyObject *array, Held &list, bool against_others);

    /* Row by row without gaps, and aligned. */
    bool is_contiguous() const;

  private:
    bool open_buffer(PyObject *array, bool write);

    Py_buffer buffer = {};
    bool held = false;
};

/* Tell the module what NumPy is. Called from Python, with the module. */
void register_numpy(nb::object numpy);
/* Exactly an ndarray. */
bool is_plain_ndarray(PyObject *object);
/* A new one of a view's shape and type, row by row, not filled. */
nb::object new_ndarray(const View &like);

/* Lists and tuples, and their entries, borrowed. */
inline bool is_sequence(PyObject *object)
{
    return PyList_Check(object) || PyTuple_Check(object);
}
inline PyObject *item(PyObject *sequence, Py_ssize_t k)
{
    return PyList_Check(sequence) ? PyList_GetItem(sequence, k) : PyTuple_GetItem(sequence, k);
}

/*
 * Whether a call over this many elements in all keeps the interpreter lock. Up to some ten microseconds of work the lock is
 * not worth giving away: taking it back can cost a thread switch, 5 ms, and while it is held no other thread can touch the
 * arrays, so nothing has to be kept alive. (Python's hashlib and NumPy's loops draw such a line, too.) Many losses mean
 * algebra that grows with their third power.
 */
inline bool keeps_lock(int64_t elements, int n_losses)
{
    return elements <= 1 << 16 && n_losses <= 16;
}

/* Set a Python error; false. */
bool refuse(PyObject *type, const char *format, ...);
bool refuse_dtype(PyObject *array, bool wide_only);
bool refuse_dims(int n_dims);
/* str(object.name), "unknown" where there is none. No error is left. */
std::string attribute_text(PyObject *object, const char *name);

std::string shape_text(int n_dims, const int64_t *shape);
const char *dtype_text(sut_dtype dtype);

} // namespace suture_python

#endif
