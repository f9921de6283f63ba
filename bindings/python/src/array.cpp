/*
 * See array.h. The offered layouts are checked here once and for all; what comes out of a View is f32, f64, bf16 or f16 in
 * this process's memory.
 */
#include "array.h"
#include "dlpack.h"

#include <algorithm>
#include <cstdarg>
#include <cstring>

namespace suture_python
{

/* PyTorch's type and table; set once, by register_torch(), under the interpreter lock. */
static PyTypeObject *torch_tensor = nullptr;
static const dlpack_exchange *torch_exchange = nullptr;

void register_torch(nb::object tensor_type)
{
    if (torch_tensor)
        return;
    nb::object table = nb::getattr(tensor_type, "__dlpack_c_exchange_api__", nb::none());
    if (PyCapsule_CheckExact(table.ptr())) {
        auto *api = static_cast<const dlpack_exchange *>(PyCapsule_GetPointer(table.ptr(), "dlpack_exchange_api"));
        if (!api)
            PyErr_Clear();
        while (api && api->major > 1)
            api = api->older;
        if (api && api->major == 1 && api->describe)
            torch_exchange = api;
    }
    torch_tensor = reinterpret_cast<PyTypeObject *>(tensor_type.release().ptr());
}

bool is_torch_tensor(PyObject *object)
{
    return torch_tensor && PyType_IsSubtype(Py_TYPE(object), torch_tensor);
}

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

static bool refuse(PyObject *type, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PyErr_FormatV(type, format, args);
    va_end(args);
    return false;
}

/* The name of the element type in a refusal. */
static std::string attribute_text(PyObject *object, const char *name)
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

static bool refuse_dtype(PyObject *array)
{
    return refuse(PyExc_TypeError, "has elements of type %s; float32, float64, float16 and bfloat16 are possible",
                  attribute_text(array, "dtype").c_str());
}

static bool refuse_dims(int n_dims)
{
    return refuse(PyExc_ValueError, "has %d dimensions; at most %d are possible", n_dims, SUT_MAX_DIMS);
}

/* ---- PyTorch ---- */

bool View::open_torch(PyObject *array)
{
    dlpack_tensor t;
    if (torch_exchange->describe(array, &t) != 0) {
        /* PyTorch's own text goes on with a stack trace. */
        PyErr_Clear();
        return refuse(PyExc_TypeError, "is a tensor without plain memory (device %s, layout %s, type %s)",
                      attribute_text(array, "device").c_str(), attribute_text(array, "layout").c_str(),
                      attribute_text(array, "dtype").c_str());
    }
    if (t.device_type != DLPACK_CPU)
        return refuse(PyExc_ValueError,
                      "is on device %s; this build of suture works in the processor's memory "
                      "(see suture.diagnose())",
                      attribute_text(array, "device").c_str());
    const unsigned kind = t.lanes == 1 ? t.code * 256u + t.bits : 0;
    switch (kind) {
    case DLPACK_FLOAT * 256 + 32: dtype = SUT_DTYPE_F32; break;
    case DLPACK_FLOAT * 256 + 64: dtype = SUT_DTYPE_F64; break;
    case DLPACK_FLOAT * 256 + 16: dtype = SUT_DTYPE_F16; break;
    case DLPACK_BFLOAT * 256 + 16: dtype = SUT_DTYPE_BF16; break;
    default: return refuse_dtype(array);
    }
    if (t.n_dims > SUT_MAX_DIMS)
        return refuse_dims(t.n_dims);
    const int64_t size = (int64_t)sut_dtype_size(dtype);
    data = static_cast<char *>(t.data) + t.byte_offset;
    n_dims = t.n_dims;
    count = 1;
    for (int k = n_dims - 1; k >= 0; k--) {
        shape[k] = t.shape[k];
        stride[k] = t.strides ? t.strides[k] * size : count * size;
        count *= shape[k];
    }
    return true;
}

static bool integers(PyObject *array, const char *name, int n, int64_t *out)
{
    PyObject *value = PyObject_GetAttrString(array, name);
    if (value && PyCallable_Check(value)) {
        PyObject *result = PyObject_CallNoArgs(value);
        Py_DECREF(value);
        value = result;
    }
    bool fine = value != nullptr;
    for (int k = 0; fine && k < n; k++) {
        PyObject *entry = PySequence_GetItem(value, k);
        out[k] = entry ? PyLong_AsLongLong(entry) : -1;
        fine = entry && !PyErr_Occurred();
        Py_XDECREF(entry);
    }
    Py_XDECREF(value);
    return fine;
}

/* PyTorch before 2.10 has no table. */
bool View::open_torch_methods(PyObject *array)
{
    const std::string type = attribute_text(array, "dtype"), device = attribute_text(array, "device");
    if (type == "torch.float32")
        dtype = SUT_DTYPE_F32;
    else if (type == "torch.float64")
        dtype = SUT_DTYPE_F64;
    else if (type == "torch.float16")
        dtype = SUT_DTYPE_F16;
    else if (type == "torch.bfloat16")
        dtype = SUT_DTYPE_BF16;
    else
        return refuse_dtype(array);
    if (device != "cpu" || attribute_text(array, "layout") != "torch.strided")
        return refuse(PyExc_ValueError,
                      "is on device %s with layout %s; this build of suture takes strided tensors in "
                      "the processor's memory (see suture.diagnose())",
                      device.c_str(), attribute_text(array, "layout").c_str());
    PyObject *n = PyObject_GetAttrString(array, "ndim");
    n_dims = n ? (int)PyLong_AsLong(n) : 0;
    Py_XDECREF(n);
    if (n_dims > SUT_MAX_DIMS)
        return refuse_dims(n_dims);
    int64_t elements[SUT_MAX_DIMS];
    if (!integers(array, "shape", n_dims, shape) || !integers(array, "stride", n_dims, elements))
        return false;
    count = 1;
    for (int k = 0; k < n_dims; k++) {
        stride[k] = elements[k] * (int64_t)sut_dtype_size(dtype);
        count *= shape[k];
    }
    PyObject *pointer = PyObject_CallMethod(array, "data_ptr", nullptr);
    if (!pointer)
        return false;
    data = PyLong_AsVoidPtr(pointer);
    Py_DECREF(pointer);
    return !PyErr_Occurred();
}

/* The sign of a tensor can be flipped lazily ("negative bit"); its memory then holds the opposite. Such tensors are views
 * of conjugated complex ones, so they have gaps, or one element. */
static bool refuse_lazy_sign(PyObject *array)
{
    PyObject *result = PyObject_CallMethod(array, "is_neg", nullptr);
    const int negative = result ? PyObject_IsTrue(result) : 0;
    Py_XDECREF(result);
    PyErr_Clear();
    return negative != 1 || refuse(PyExc_ValueError, "has PyTorch's negative bit set; call resolve_neg() on it");
}

/* The result of a method without arguments as a number; -1 with a Python error set. */
static int64_t call_integer(PyObject *object, PyObject *method)
{
    PyObject *result = PyObject_CallMethodNoArgs(object, method);
    const int64_t value = result ? PyLong_AsLongLong(result) : -1;
    Py_XDECREF(result);
    return value;
}

/* A tensor can be larger than the storage below it, after untyped_storage().resize_(); nothing in the tensor tells. */
bool View::open_storage(PyObject *array)
{
    static PyObject *const untyped_storage = PyUnicode_InternFromString("untyped_storage");
    static PyObject *const nbytes = PyUnicode_InternFromString("nbytes");
    static PyObject *const storage_offset = PyUnicode_InternFromString("storage_offset");
    storage = PyObject_CallMethodNoArgs(array, untyped_storage);
    const int64_t bytes = storage ? call_integer(storage, nbytes) : -1;
    const int64_t offset = bytes >= 0 ? call_integer(array, storage_offset) : -1;
    if (offset < 0) {
        PyErr_Clear();
        return refuse(PyExc_TypeError, "is a tensor without plain memory");
    }
    /* Strides of PyTorch are never negative. */
    int64_t last = count > 0 ? (offset + 1) * (int64_t)sut_dtype_size(dtype) : 0;
    for (int k = 0; k < n_dims && count > 0; k++)
        last += (shape[k] - 1) * stride[k];
    return last <= bytes || refuse(PyExc_ValueError, "needs more memory than its storage has (%lld bytes of %lld)",
                                   (long long)last, (long long)bytes);
}

/* ---- buffer protocol ---- */

bool View::open_buffer(PyObject *array, bool write)
{
    if (PyObject_GetBuffer(array, &buffer, (write ? PyBUF_WRITABLE : 0) | PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
        PyErr_Clear();
        if (!PyObject_CheckBuffer(array))
            return refuse(PyExc_TypeError, "is of type %s; an array of NumPy or a tensor of PyTorch is needed",
                          attribute_text(reinterpret_cast<PyObject *>(Py_TYPE(array)), "__name__").c_str());
        if (write && PyObject_GetBuffer(array, &buffer, PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
            PyBuffer_Release(&buffer);
            return refuse(PyExc_ValueError, "is read-only");
        }
        PyErr_Clear();
        return refuse_dtype(array);
    }
    held = true;
    const char *format = buffer.format ? buffer.format : "B";
    if (*format == '=' || *format == '@' || *format == '<') /* little-endian, as all processors that are built for */
        format++;
    if (!strcmp(format, "f"))
        dtype = SUT_DTYPE_F32;
    else if (!strcmp(format, "d"))
        dtype = SUT_DTYPE_F64;
    else if (!strcmp(format, "e"))
        dtype = SUT_DTYPE_F16;
    else
        return close(), refuse_dtype(array);
    if (buffer.ndim > SUT_MAX_DIMS)
        return close(), refuse_dims(buffer.ndim);
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
    is_torch = is_torch_tensor(array);
    if (!is_torch)
        return open_buffer(array, write);
    if (!(torch_exchange ? open_torch(array) : open_torch_methods(array)))
        return false;
    if (count > 0 && !data)
        return refuse(PyExc_ValueError, "has no memory: its storage was freed, or it only stands for a tensor");
    if (!open_storage(array))
        return false;
    return (count != 1 && is_contiguous()) || refuse_lazy_sign(array);
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
    Py_CLEAR(storage);
    data = nullptr;
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

/* ---- layouts ---- */

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
