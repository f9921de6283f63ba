/*
 * See array.h. The offered layouts are checked here once and for all; what comes out of a View is f32, f64, bf16 or f16 in
 * this process's memory or in that of a CUDA device.
 */
#include "array.h"
#include "device.h"
#include "torch_tensor.h"

#include <cstdarg>
#include <cstring>

namespace suture_python
{

const char *dtype_text(sut_dtype dtype)
{
    switch (dtype) {
    case SUT_DTYPE_F32: return "float32";
    case SUT_DTYPE_F64: return "float64";
    case SUT_DTYPE_BF16: return "bfloat16";
    default: return "float16";
    }
}

std::string shape_text(int n_dims, const int64_t *shape)
{
    std::string text = "(";
    for (int k = 0; k < n_dims; k++)
        text += (k ? ", " : "") + std::to_string(shape[k]);
    return text + (n_dims == 1 ? ",)" : ")");
}

bool refuse(PyObject *type, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PyErr_FormatV(type, format, args);
    va_end(args);
    return false;
}

std::string attribute_text(PyObject *object, const char *name)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    PyObject *text = value ? PyObject_Str(value) : nullptr;
    std::string result = "unknown";
    if (text) {
        PyObject *bytes = PyUnicode_AsUTF8String(text);
        if (bytes)
            result = PyBytes_AsString(bytes);
        Py_XDECREF(bytes);
    }
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(value);
    return result;
}

bool refuse_dtype(PyObject *array, bool wide_only)
{
    return refuse(PyExc_TypeError, "has elements of type %s; %s are possible", attribute_text(array, "dtype").c_str(),
                  wide_only ? "float32 and float64" : "float32, float64, float16 and bfloat16");
}

bool refuse_dims(int n_dims)
{
    return refuse(PyExc_ValueError, "has %d dimensions; at most %d are possible", n_dims, SUT_MAX_DIMS);
}

/* ---- opening ---- */

/* numpy.ndarray (other types may export their buffers by Python code), its type with masks, and what makes one; set once, by
 * register_numpy(). */
static PyTypeObject *ndarray_type = nullptr, *masked_type = nullptr;
static PyObject *empty = nullptr;

void register_numpy(nb::object numpy)
{
    if (ndarray_type)
        return;
    ndarray_type = reinterpret_cast<PyTypeObject *>(nb::object(numpy.attr("ndarray")).release().ptr());
    masked_type = reinterpret_cast<PyTypeObject *>(nb::object(numpy.attr("ma").attr("MaskedArray")).release().ptr());
    empty = nb::object(numpy.attr("empty")).release().ptr();
}

bool is_plain_ndarray(PyObject *object)
{
    return Py_TYPE(object) == ndarray_type;
}

nb::object new_ndarray(const View &like)
{
    nb::object shape = nb::steal(PyTuple_New(like.n_dims));
    for (int k = 0; k < like.n_dims; k++)
        PyTuple_SetItem(shape.ptr(), k, PyLong_FromLongLong(like.shape[k]));
    return nb::handle(empty)(shape, dtype_text(like.dtype));
}

/* As PyObject_GetBuffer(). NumPy gives no buffer of types that are not its own: an array of the bfloat16 that ml_dtypes adds
 * (JAX's) is looked at as one of integers. */
static bool get_buffer(PyObject *array, Py_buffer *buffer, int flags, bool *is_bfloat16)
{
    *is_bfloat16 = false;
    if (PyObject_GetBuffer(array, buffer, flags) == 0)
        return true;
    if (Py_TYPE(array) != ndarray_type)
        return false;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *const integers =
        attribute_text(array, "dtype") == "bfloat16" ? PyObject_CallMethod(array, "view", "s", "uint16") : nullptr;
    *is_bfloat16 = integers && PyObject_GetBuffer(integers, buffer, flags) == 0;
    Py_XDECREF(integers);
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
    if (*is_bfloat16)
        PyErr_Clear();
    return *is_bfloat16;
}

bool View::open_buffer(PyObject *array, bool write)
{
    bool is_bfloat16;
    if (Py_TYPE(array) != ndarray_type && masked_type && PyObject_TypeCheck(array, masked_type))
        return refuse(PyExc_TypeError, "is a masked array, whose mask would go unseen; pass filled(0) or its data");
    if (!get_buffer(array, &buffer, (write ? PyBUF_WRITABLE : 0) | PyBUF_STRIDES | PyBUF_FORMAT, &is_bfloat16)) {
        PyErr_Clear();
        if (!PyObject_CheckBuffer(array) && has_cuda_interface(array))
            return open_cuda_array(array, *this, write);
        if (!PyObject_CheckBuffer(array))
            return refuse(PyExc_TypeError, "is of type %s; an array of NumPy or a tensor of PyTorch is needed",
                          attribute_text(reinterpret_cast<PyObject *>(Py_TYPE(array)), "__name__").c_str());
        if (write && get_buffer(array, &buffer, PyBUF_STRIDES | PyBUF_FORMAT, &is_bfloat16)) {
            PyBuffer_Release(&buffer);
            return refuse(PyExc_ValueError, "is read-only");
        }
        PyErr_Clear();
        return refuse_dtype(array, wide_only);
    }
    held = true;
    ran_code = Py_TYPE(array) != ndarray_type || is_bfloat16;
    const char *format = buffer.format ? buffer.format : "B";
    if (*format == '=' || *format == '@' || *format == '<') /* little-endian, as all processors that are built for */
        format++;
    if (is_bfloat16)
        dtype = SUT_DTYPE_BF16;
    else if (!strcmp(format, "f"))
        dtype = SUT_DTYPE_F32;
    else if (!strcmp(format, "d"))
        dtype = SUT_DTYPE_F64;
    else if (!strcmp(format, "e"))
        dtype = SUT_DTYPE_F16;
    else
        return close(), refuse_dtype(array, wide_only);
    if (buffer.ndim > SUT_MAX_DIMS) {
        const int n = buffer.ndim;
        return close(), refuse_dims(n);
    }
    data = buffer.buf;
    n_dims = buffer.ndim;
    count = 1;
    for (int k = 0; k < n_dims; k++) {
        shape[k] = buffer.shape[k];
        stride[k] = buffer.strides[k];
        count *= shape[k];
    }
    return true;
}

bool View::try_open(PyObject *array, bool write)
{
    close();
    device = CPU;
    stream = NO_STREAM;
    is_torch = is_torch_tensor(array);
    if (!(is_torch ? open_torch(array, *this) : open_buffer(array, write)))
        return false;
    return !wide_only || dtype == SUT_DTYPE_F32 || dtype == SUT_DTYPE_F64 || refuse_dtype(array, true);
}

void View::open(PyObject *array, const std::string &what, bool write)
{
    PyErr_Clear(); /* of a try_open() that came first: calls into Python must not begin with an error set */
    if (try_open(array, write))
        return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *text = value ? PyObject_Str(value) : nullptr;
    if (text)
        PyErr_Format(type, "%s %U", what.c_str(), text);
    else
        PyErr_Restore(type, value, trace), type = value = trace = nullptr;
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    throw nb::python_error();
}

void View::row(const View &whole, int64_t i)
{
    close();
    data = static_cast<char *>(whole.data) + i * whole.stride[0];
    dtype = whole.dtype;
    is_torch = whole.is_torch;
    device = whole.device;
    stream = whole.stream;
    ran_code = false;
    n_dims = whole.n_dims - 1;
    count = whole.shape[0] ? whole.count / whole.shape[0] : 0;
    for (int k = 0; k < n_dims; k++) {
        shape[k] = whole.shape[k + 1];
        stride[k] = whole.stride[k + 1];
    }
}

void View::close()
{
    if (held)
        PyBuffer_Release(&buffer);
    held = false;
    data = nullptr;
}

/* ---- keeping ---- */

/* NumPy resizes an array without asking for its buffers (resize(refcheck=False)), but never one that has a weak reference, and
 * a view's memory is that of its base. */
static void forbid_resizing(PyObject *array, Held &list)
{
    nb::object at = nb::borrow(array);
    for (int depth = 0; at.is_valid() && !at.is_none() && depth < 100; depth++) {
        PyObject *weak = PyWeakref_NewRef(at.ptr(), nullptr);
        if (!weak)
            PyErr_Clear(); /* no array of NumPy; what exports its buffer with care is resized by nobody */
        else
            list.add(weak);
        at = nb::getattr(at, "base", nb::none());
    }
}

void View::keep(PyObject *array, Held &list, bool against_others)
{
    if (held)
        list.add(buffer); /* which has a reference to the array */
    const bool is_buffer = held;
    held = false;
    if (!against_others)
        return;
    if (is_buffer) {
        forbid_resizing(array, list);
    } else if (is_torch) {
        PyObject *storage = torch_storage(array);
        if (!storage)
            throw nb::python_error();
        list.add(storage);
    }
}

bool View::is_contiguous() const
{
    int64_t expected = (int64_t)sut_dtype_size(dtype);
    if (reinterpret_cast<uintptr_t>(data) % (uintptr_t)expected)
        return false;
    for (int k = n_dims - 1; k >= 0; k--) {
        if (shape[k] != 1 && stride[k] != expected)
            return count == 0;
        expected *= shape[k];
    }
    return true;
}

} // namespace suture_python
