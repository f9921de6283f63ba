/* See device.h. */
#include "device.h"
#include "convert.h"

#include <cstring>

namespace suture_python
{

/* ---- what PyTorch is asked ---- */

nb::object cuda_function(const char *name)
{
    static PyObject *module = nullptr; /* it stays as long as the process */
    if (!module)
        module = nb::object(nb::module_::import_("suture._cuda")).release().ptr();
    return nb::getattr(nb::handle(module), name);
}

int64_t current_stream(int device)
{
    return nb::cast<int64_t>(cuda_function("current_stream")(device));
}

std::string device_text(int device)
{
    return device == View::CPU ? "cpu" : device == View::SOME_CUDA ? "a CUDA device" : "cuda:" + std::to_string(device);
}

/* ---- __cuda_array_interface__ ---- */

static const char interface_name[] = "__cuda_array_interface__";

bool has_cuda_interface(PyObject *array)
{
    PyObject *found = PyObject_GetAttrString(array, interface_name);
    PyErr_Clear();
    Py_XDECREF(found);
    return found != nullptr;
}

/* Entries of a tuple of `n` integers; false when it is none. */
static bool integers(PyObject *tuple, int n, int64_t *out)
{
    bool fine = PyTuple_Check(tuple) && PyTuple_Size(tuple) == n;
    for (int k = 0; fine && k < n; k++) {
        out[k] = PyLong_AsLongLong(PyTuple_GetItem(tuple, k));
        fine = !PyErr_Occurred();
    }
    PyErr_Clear();
    return fine;
}

static bool refuse_interface(const char *what)
{
    return refuse(PyExc_TypeError, "has a __cuda_array_interface__ that cannot be used: %s", what);
}

static bool read_type(PyObject *text, View &v)
{
    nb::object bytes = nb::steal(text && PyUnicode_Check(text) ? PyUnicode_AsUTF8String(text) : nullptr);
    PyErr_Clear();
    const char *type = bytes.is_valid() ? PyBytes_AsString(bytes.ptr()) : "unknown";
    const char *kind = *type == '<' || *type == '=' || *type == '|' ? type + 1 : type;
    if (!strcmp(kind, "f4"))
        v.dtype = SUT_DTYPE_F32;
    else if (!strcmp(kind, "f8"))
        v.dtype = SUT_DTYPE_F64;
    else if (!strcmp(kind, "f2"))
        v.dtype = SUT_DTYPE_F16;
    else
        return refuse(PyExc_TypeError, "has elements of type %s; float32, float64 and float16 are possible", type);
    return true;
}

/* The device's number, from DLPack's method; those without it are on the device that is current. */
static int read_device(PyObject *array)
{
    enum { DLPACK_CUDA = 2, DLPACK_CUDA_MANAGED = 13 };
    PyObject *pair = PyObject_CallMethod(array, "__dlpack_device__", nullptr);
    int64_t device[2] = {0, 0};
    const bool fine = pair && integers(pair, 2, device);
    Py_XDECREF(pair);
    PyErr_Clear();
    return fine && (device[0] == DLPACK_CUDA || device[0] == DLPACK_CUDA_MANAGED) ? (int)device[1] : View::SOME_CUDA;
}

/* The stream on which the contents will be ready: 1 and 2 stand for the default streams. */
static bool read_stream(PyObject *stream, View &v)
{
    if (!stream || stream == Py_None)
        return true;
    v.stream = PyLong_Check(stream) ? PyLong_AsLongLong(stream) : 0;
    PyErr_Clear();
    if (v.stream <= 0)
        return refuse_interface("its stream is neither None nor a positive integer");
    if (v.stream == 1)
        v.stream = 0;
    return true;
}

static bool read_interface(PyObject *array, PyObject *dict, View &v, bool write)
{
    PyObject *const shape = PyDict_GetItemString(dict, "shape"), *const data = PyDict_GetItemString(dict, "data");
    PyObject *const strides = PyDict_GetItemString(dict, "strides"), *const mask = PyDict_GetItemString(dict, "mask");
    if (!shape || !PyTuple_Check(shape) || !data || !PyTuple_Check(data) || PyTuple_Size(data) != 2)
        return refuse_interface("'shape' or 'data' is missing");
    if (mask && mask != Py_None)
        return refuse_interface("it has a mask");
    if (!read_type(PyDict_GetItemString(dict, "typestr"), v))
        return false;
    if (PyTuple_Size(shape) > SUT_MAX_DIMS)
        return refuse_dims((int)PyTuple_Size(shape));
    v.n_dims = (int)PyTuple_Size(shape);
    v.data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
    if (PyErr_Occurred() || !integers(shape, v.n_dims, v.shape) ||
        (strides && strides != Py_None && !integers(strides, v.n_dims, v.stride))) {
        PyErr_Clear();
        return refuse_interface("'shape', 'data' or 'strides' are no integers");
    }
    int64_t step = (int64_t)sut_dtype_size(v.dtype);
    v.count = 1;
    for (int k = v.n_dims - 1; k >= 0; k--) {
        if (!strides || strides == Py_None)
            v.stride[k] = step;
        step *= v.shape[k];
        v.count *= v.shape[k];
    }
    if (v.count > 0 && !v.data)
        return refuse(PyExc_ValueError, "has no memory");
    if (write && PyObject_IsTrue(PyTuple_GetItem(data, 1)) != 0)
        return refuse(PyExc_ValueError, "is read-only");
    v.device = read_device(array);
    return read_stream(PyDict_GetItemString(dict, "stream"), v);
}

bool open_cuda_array(PyObject *array, View &v, bool write)
{
    v.ran_code = true;
    PyObject *dict = PyObject_GetAttrString(array, interface_name);
    if (!dict)
        return false;
    const bool fine = PyDict_Check(dict) ? read_interface(array, dict, v, write) : refuse_interface("it is no dict");
    Py_DECREF(dict);
    return fine;
}

/* ---- state ---- */

static nb::tuple tuple_of(int n, const int64_t *numbers)
{
    nb::object tuple = nb::steal(PyTuple_New(n));
    for (int k = 0; k < n; k++)
        PyTuple_SetItem(tuple.ptr(), k, PyLong_FromLongLong(numbers[k]));
    return nb::borrow<nb::tuple>(tuple);
}

nb::tuple DeviceArray::shape() const
{
    return tuple_of(layout.n_dims, layout.shape);
}

/* The state is used on the stream of the last call, which is what PyTorch and CuPy expect of their own arrays: no stream is
 * named. */
nb::dict DeviceArray::interface() const
{
    nb::dict d;
    d["shape"] = shape();
    d["typestr"] = layout.dtype == SUT_DTYPE_F64 ? "<f8" : "<f4";
    d["data"] = nb::make_tuple(reinterpret_cast<uintptr_t>(layout.count ? data : nullptr), false);
    d["strides"] = tuple_of(layout.n_dims, layout.stride);
    d["version"] = 3;
    d["stream"] = nb::none();
    return d;
}

void add_device(nb::module_ &module)
{
    nb::class_<DeviceArray>(module, "DeviceArray",
                            "A part of an optimizer's state in the memory of a GPU: the optimizer's own memory.")
        .def_prop_ro("shape", &DeviceArray::shape, nb::sig("def shape(self) -> tuple[int, ...]"))
        .def_prop_ro("dtype", &DeviceArray::dtype, nb::sig("def dtype(self) -> str"))
        .def_prop_ro(interface_name, &DeviceArray::interface,
                     nb::sig("def __cuda_array_interface__(self) -> dict[str, typing.Any]"));
}

} // namespace suture_python
