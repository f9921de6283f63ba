/* See torch_tensor.h. */
#include "torch_tensor.h"
#include "device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <malloc.h>
#include <vector>

namespace suture_python
{

/* torch.Tensor and torch.nn.Parameter; set once, by register_torch(), with the interpreter lock. */
static PyTypeObject *tensor_type = nullptr, *parameter_type = nullptr;

/* ---- PyTorch's functions in C ---- */

/* Each returns 0, or another number when an exception was caught. */
struct shim {
    int (*get_data_ptr)(void *handle, void **out);
    int (*get_dim)(void *handle, int64_t *out);
    int (*get_sizes)(void *handle, int64_t **out);
    int (*get_strides)(void *handle, int64_t **out);     /* in elements */
    int (*get_storage_size)(void *handle, int64_t *out); /* in bytes */
    int (*get_storage_offset)(void *handle, int64_t *out);
    int (*get_dtype)(void *handle, int32_t *out);
    int (*get_device_type)(void *handle, int32_t *out);
    int (*get_device_index)(void *handle, int32_t *out);
    int (*get_layout)(void *handle, int32_t *out);
    int (*delete_handle)(void *handle);
    /* Types, device and layout in numbers. */
    int32_t f32, f64, bf16, f16, cpu, cuda, strided;
};

static shim functions;
static bool have_functions = false;
/* Whether they tell the truth about tensors on GPUs: known when the first one was seen, since none is made to find out. */
static enum { NOT_KNOWN, RIGHT, WRONG } functions_on_cuda = NOT_KNOWN;
/* torch.empty, with its keyword arguments for f32 and f64. The name of an attribute. */
static PyObject *empty = nullptr, *kind_f32 = nullptr, *kind_f64 = nullptr, *requires_grad = nullptr;
/* Where in a tensor's object the pointer to its implementation is, in words. */
static size_t place = 0;
/* Where in the implementation the negative bit is: a word, and a mask; 0: not known. */
static size_t sign_word = 0;
static uint64_t sign_bit = 0;

template <typename F> static bool find(void *library, const char *name, F *function)
{
    *function = reinterpret_cast<F>(dlsym(library, name));
    return *function != nullptr;
}

static bool find_value(void *library, const char *name, int32_t *value)
{
    int32_t (*function)() = nullptr;
    if (!find(library, name, &function))
        return false;
    *value = function();
    return true;
}

static bool find_functions(shim *s)
{
    /* The copy that is loaded already, or none. It stays: PyTorch cannot be unloaded. */
    void *const library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
    return library && find(library, "aoti_torch_get_data_ptr", &s->get_data_ptr) &&
           find(library, "aoti_torch_get_dim", &s->get_dim) && find(library, "aoti_torch_get_sizes", &s->get_sizes) &&
           find(library, "aoti_torch_get_strides", &s->get_strides) &&
           find(library, "aoti_torch_get_storage_size", &s->get_storage_size) &&
           find(library, "aoti_torch_get_storage_offset", &s->get_storage_offset) &&
           find(library, "aoti_torch_get_dtype", &s->get_dtype) &&
           find(library, "aoti_torch_get_device_type", &s->get_device_type) &&
           find(library, "aoti_torch_get_device_index", &s->get_device_index) &&
           find(library, "aoti_torch_get_layout", &s->get_layout) &&
           find(library, "aoti_torch_delete_tensor_object", &s->delete_handle) &&
           find_value(library, "aoti_torch_dtype_float32", &s->f32) &&
           find_value(library, "aoti_torch_dtype_float64", &s->f64) &&
           find_value(library, "aoti_torch_dtype_bfloat16", &s->bf16) &&
           find_value(library, "aoti_torch_dtype_float16", &s->f16) &&
           find_value(library, "aoti_torch_device_type_cpu", &s->cpu) &&
           find_value(library, "aoti_torch_device_type_cuda", &s->cuda) &&
           find_value(library, "aoti_torch_layout_strided", &s->strided);
}

/* What a tensor's handle points to. */
static void *implementation(PyObject *tensor)
{
    return reinterpret_cast<void **>(tensor)[place];
}

/* The one word of all these objects that holds what `_cdata` shows. */
static bool find_place(const nb::list &tensors, const nb::object &type)
{
    const size_t words = nb::cast<size_t>(type.attr("__basicsize__")) / sizeof(void *);
    size_t found = 0;
    for (size_t k = 0; k < words; k++) {
        bool all = true;
        for (nb::handle t : tensors)
            all = all && reinterpret_cast<uintptr_t *>(t.ptr())[k] == nb::cast<uintptr_t>(t.attr("_cdata"));
        if (all)
            found++, place = k;
    }
    return found == 1;
}

static uint64_t implementation_word(PyObject *tensor, size_t k)
{
    uint64_t word;
    memcpy(&word, static_cast<const char *>(implementation(tensor)) + k * sizeof word, sizeof word);
    return word;
}

/* Words that the memory of both implementations has. */
static size_t common_words(PyObject *a, PyObject *b)
{
    const size_t most = 64 * sizeof(uint64_t);
    return std::min({malloc_usable_size(implementation(a)), malloc_usable_size(implementation(b)), most}) /
           sizeof(uint64_t);
}

/* The one bit that is set in views of the opposite sign, and neither in the tensors below them nor in the views of these views.
 * Pointers and counts differ, too, but not in the same bit for each of so many, and not up and down again. */
static void find_sign(const nb::object &torch, const nb::list &tensors)
{
    const nb::object negative_view = torch.attr("_neg_view");
    nb::list alive; /* so that no two lie in the same place */
    std::vector<uint64_t> differs(64, UINT64_MAX);
    const auto keep_what_is_set_in = [&](PyObject *one, PyObject *and_not_in) {
        differs.resize(std::min(differs.size(), common_words(one, and_not_in)));
        for (size_t w = 0; w < differs.size(); w++)
            differs[w] &= implementation_word(one, w) & ~implementation_word(and_not_in, w);
    };
    for (size_t k = 0; k < 24; k++) {
        const nb::object plain = tensors[k % nb::len(tensors)] + nb::int_(k), negative = negative_view(plain);
        keep_what_is_set_in(negative.ptr(), plain.ptr());
        const nb::object back = negative_view(negative); /* now counts of references differ the other way */
        keep_what_is_set_in(negative.ptr(), back.ptr());
        for (const nb::object &t : {plain, negative, back})
            alive.append(t);
    }
    size_t found = 0, at = 0;
    for (size_t k = 0; k < differs.size(); k++)
        if (differs[k]) {
            found += (differs[k] & (differs[k] - 1)) ? 2 : 1;
            at = k;
        }
    if (found != 1)
        return;
    /* As autograd makes them, and as it does not. */
    const nb::object one = tensors[0] + nb::int_(1), complex = torch.attr("complex")(one, one);
    const nb::object lazy = complex.attr("conj")().attr("imag"), plain = complex.attr("imag");
    if (!nb::cast<bool>(lazy.attr("is_neg")()) || (implementation_word(lazy.ptr(), at) & differs[at]) == 0 ||
        (implementation_word(plain.ptr(), at) & differs[at]) != 0)
        return;
    sign_word = at;
    sign_bit = differs[at];
}

/* PyTorch's own handle of a tensor holds the same pointer, and the functions tell of both what is known of the tensor: 2 x 5
 * elements of float64 that begin at element 5 of 20. */
static bool check_handle(const nb::object &aoti, const nb::object &tensor)
{
    const int64_t begin = nb::cast<int64_t>(tensor.attr("data_ptr")());
    void *pointer = implementation(tensor.ptr());
    nb::object capsule = aoti.attr("unsafe_alloc_void_ptr_from_tensor")(tensor);
    void **const handle = static_cast<void **>(PyCapsule_GetPointer(capsule.ptr(), PyCapsule_GetName(capsule.ptr())));
    bool fine = handle && *handle == pointer;
    for (void *h : {static_cast<void *>(handle), static_cast<void *>(&pointer)}) {
        void *data = nullptr;
        int64_t dims = 0, *sizes = nullptr, *strides = nullptr, bytes = 0, offset = 0;
        int32_t dtype = -1, device = -1, index = 99, layout = -1;
        fine = fine && functions.get_data_ptr(h, &data) == 0 && functions.get_dim(h, &dims) == 0 &&
               functions.get_sizes(h, &sizes) == 0 && functions.get_strides(h, &strides) == 0 &&
               functions.get_storage_size(h, &bytes) == 0 && functions.get_storage_offset(h, &offset) == 0 &&
               functions.get_dtype(h, &dtype) == 0 && functions.get_device_type(h, &device) == 0 &&
               functions.get_device_index(h, &index) == 0 && index <= 0 && /* that of a CPU is none, or 0 */
               functions.get_layout(h, &layout) == 0 && reinterpret_cast<int64_t>(data) == begin && dims == 2 &&
               sizes[0] == 2 && sizes[1] == 5 && strides[0] == 5 && strides[1] == 1 && bytes == 160 && offset == 5 &&
               dtype == functions.f64 && device == functions.cpu && layout == functions.strided;
    }
    /* Not by alloc_tensor_by_stealing_from_void_ptr(), which keeps a reference for ever in 2.13. */
    return (!handle || functions.delete_handle(handle) == 0) && fine;
}

static bool understand(const nb::object &torch)
{
    const nb::object zeros = torch.attr("zeros");
    nb::object whole = zeros(nb::make_tuple(4, 5), nb::arg("dtype") = torch.attr("float64"), nb::arg("device") = "cpu");
    nb::object part = whole[nb::slice(nb::int_(1), nb::int_(3), nb::none())];
    nb::list tensors;
    tensors.append(whole);
    tensors.append(part);
    tensors.append(torch.attr("nn").attr("Parameter")(zeros(3, nb::arg("device") = "cpu")));
    tensors.append(tensors[2] * tensors[2]);
    for (nb::handle t : tensors)
        if (Py_TYPE(t.ptr()) != tensor_type && Py_TYPE(t.ptr()) != parameter_type)
            return false; /* a mode that makes tensors of its own is active */
    if (!find_place(tensors, torch.attr("Tensor")))
        return false;
    find_sign(torch, tensors);
    return find_functions(&functions) && check_handle(torch.attr("_C").attr("_aoti"), part);
}

bool register_torch(nb::object torch)
{
    if (tensor_type)
        return have_functions;
    parameter_type = reinterpret_cast<PyTypeObject *>(nb::object(torch.attr("nn").attr("Parameter")).release().ptr());
    empty = nb::object(torch.attr("empty")).release().ptr();
    nb::dict f32, f64;
    f32["dtype"] = torch.attr("float32");
    f64["dtype"] = torch.attr("float64");
    f32["device"] = f64["device"] = torch.attr("device")("cpu"); /* not the default one */
    kind_f32 = f32.release().ptr();
    kind_f64 = f64.release().ptr();
    requires_grad = PyUnicode_InternFromString("requires_grad");
    tensor_type = reinterpret_cast<PyTypeObject *>(nb::object(torch.attr("Tensor")).release().ptr());
    try {
        have_functions = understand(torch);
    } catch (nb::python_error &) { /* a version without these names */
        have_functions = false;
    }
    PyErr_Clear();
    return have_functions;
}

bool is_torch_tensor(PyObject *object)
{
    return tensor_type && (Py_TYPE(object) == parameter_type || Py_TYPE(object) == tensor_type ||
                           PyType_IsSubtype(Py_TYPE(object), tensor_type));
}

bool is_plain_tensor(PyObject *object)
{
    if (!tensor_type || (Py_TYPE(object) != parameter_type && Py_TYPE(object) != tensor_type))
        return false;
    PyObject *value = PyObject_GetAttr(object, requires_grad);
    const bool plain = value == Py_False;
    Py_XDECREF(value);
    PyErr_Clear();
    return plain;
}

bool has_lazy_sign(PyObject *object, bool *ran_code)
{
    if (!is_torch_tensor(object))
        return false;
    if (sign_bit && implementation(object))
        return (implementation_word(object, sign_word) & sign_bit) != 0;
    *ran_code = true;
    PyObject *result = PyObject_CallMethod(object, "is_neg", nullptr);
    const int negative = result ? PyObject_IsTrue(result) : 0;
    Py_XDECREF(result);
    PyErr_Clear();
    return negative == 1;
}

nb::object with_plain_sign(PyObject *tensor)
{
    return nb::handle(tensor).attr("detach")().attr("resolve_neg")();
}

/* ---- making ---- */

nb::object new_tensor(const View &like)
{
    if (like.device != View::CPU) {
        nb::object shape = nb::steal(PyTuple_New(like.n_dims));
        for (int k = 0; k < like.n_dims; k++)
            PyTuple_SetItem(shape.ptr(), k, PyLong_FromLongLong(like.shape[k]));
        return cuda_function("empty")(shape, dtype_text(like.dtype), like.device);
    }
    /* The lengths one by one: PyTorch tries several signatures on a tuple, which takes twice as long. */
    nb::object args = nb::steal(PyTuple_New(like.n_dims ? like.n_dims : 1));
    if (like.n_dims == 0)
        PyTuple_SetItem(args.ptr(), 0, PyTuple_New(0));
    for (int k = 0; k < like.n_dims; k++)
        PyTuple_SetItem(args.ptr(), k, PyLong_FromLongLong(like.shape[k]));
    PyObject *made = PyObject_Call(empty, args.ptr(), like.dtype == SUT_DTYPE_F64 ? kind_f64 : kind_f32);
    if (!made)
        throw nb::python_error();
    return nb::steal(made);
}

/* ---- looking ---- */

/* A tensor's storage, as far as the tensor goes. In bytes. */
struct extent {
    int64_t offset; /* of the first element */
    int64_t length; /* from the first element to the end of the last; 0 without elements */
    int64_t storage;
};

/* Strides of PyTorch are never negative. */
static extent extent_of(const View &v, int64_t offset, int64_t storage)
{
    const int64_t size = (int64_t)sut_dtype_size(v.dtype);
    extent e = {offset * size, v.count > 0 ? size : 0, storage};
    for (int k = 0; k < v.n_dims && v.count > 0; k++)
        e.length += (v.shape[k] - 1) * v.stride[k];
    return e;
}

/* A tensor can be larger than the storage below it, after untyped_storage().resize_(); nothing in the tensor tells. */
static bool check_memory(const View &v, const extent &e)
{
    if (v.count > 0 && !v.data)
        return refuse(PyExc_ValueError, "has no memory: its storage was freed, or it only stands for a tensor");
    return v.count == 0 || e.offset + e.length <= e.storage ||
           refuse(PyExc_ValueError, "needs more memory than its storage has (%lld bytes of %lld)",
                  (long long)(e.offset + e.length), (long long)e.storage);
}

enum outcome { OPENED, REFUSED, TRY_METHODS };

/* A tensor that is not on the CPU: its device. False: the functions are not to be asked. */
static bool find_cuda_device(void *pointer, int32_t type, View &v)
{
    int32_t index = 0;
    if (functions_on_cuda == WRONG || type != functions.cuda || functions.get_device_index(&pointer, &index) != 0 ||
        index < 0)
        return false;
    v.device = index;
    return true;
}

static outcome open_by_functions(PyObject *tensor, View &v, extent *e)
{
    void *pointer = implementation(tensor);
    int64_t dims, *sizes, *strides, bytes, offset;
    int32_t dtype, device, layout;
    if (!pointer)
        return TRY_METHODS;
    /* A function that fails prints a line, so the kinds of tensors that have no strides or no memory are sorted out first. */
    if (functions.get_layout(&pointer, &layout) != 0 || layout != functions.strided ||
        functions.get_device_type(&pointer, &device) != 0 ||
        (device != functions.cpu && !find_cuda_device(pointer, device, v)) ||
        functions.get_dtype(&pointer, &dtype) != 0 || functions.get_dim(&pointer, &dims) != 0 || dims > SUT_MAX_DIMS)
        return TRY_METHODS;
    if (dtype == functions.f32)
        v.dtype = SUT_DTYPE_F32;
    else if (dtype == functions.f64)
        v.dtype = SUT_DTYPE_F64;
    else if (dtype == functions.bf16)
        v.dtype = SUT_DTYPE_BF16;
    else if (dtype == functions.f16)
        v.dtype = SUT_DTYPE_F16;
    else
        return TRY_METHODS;
    if (functions.get_sizes(&pointer, &sizes) != 0 || functions.get_strides(&pointer, &strides) != 0 ||
        functions.get_storage_size(&pointer, &bytes) != 0 || functions.get_storage_offset(&pointer, &offset) != 0 ||
        functions.get_data_ptr(&pointer, &v.data) != 0)
        return TRY_METHODS;
    const int64_t size = (int64_t)sut_dtype_size(v.dtype);
    v.n_dims = (int)dims;
    v.count = 1;
    for (int k = 0; k < v.n_dims; k++) {
        v.shape[k] = sizes[k];
        v.stride[k] = strides[k] * size;
        v.count *= sizes[k];
    }
    *e = extent_of(v, offset, bytes);
    return OPENED;
}

static bool integers(PyObject *tensor, const char *name, int n, int64_t *out)
{
    PyObject *value = PyObject_GetAttrString(tensor, name);
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

/* The result of a method without arguments as a number; false with a Python error set. */
static bool call_integer(PyObject *object, const char *method, int64_t *out)
{
    PyObject *result = object ? PyObject_CallMethod(object, method, nullptr) : nullptr;
    *out = result ? PyLong_AsLongLong(result) : -1;
    Py_XDECREF(result);
    return result && !PyErr_Occurred();
}

PyObject *torch_storage(PyObject *tensor)
{
    PyObject *storage = PyObject_CallMethod(tensor, "untyped_storage", nullptr);
    if (!storage) {
        PyErr_Clear();
        (void)refuse(PyExc_TypeError, "is a tensor without plain memory");
    }
    return storage;
}

static bool open_by_methods(PyObject *tensor, View &v, extent *e)
{
    const std::string type = attribute_text(tensor, "dtype"), device = attribute_text(tensor, "device"),
                      layout = attribute_text(tensor, "layout");
    if (type == "torch.float32")
        v.dtype = SUT_DTYPE_F32;
    else if (type == "torch.float64")
        v.dtype = SUT_DTYPE_F64;
    else if (type == "torch.float16")
        v.dtype = SUT_DTYPE_F16;
    else if (type == "torch.bfloat16")
        v.dtype = SUT_DTYPE_BF16;
    else
        return refuse_dtype(tensor, v.wide_only);
    if (layout != "torch.strided")
        return refuse(PyExc_TypeError, "is a tensor of layout %s; torch.strided is needed (to_dense())",
                      layout.c_str());
    v.device = View::CPU;
    if (device.rfind("cuda:", 0) == 0)
        v.device = atoi(device.c_str() + 5);
    else if (device != "cpu")
        return refuse(PyExc_ValueError, "is on device %s; cpu and cuda are possible", device.c_str());
    PyObject *n = PyObject_GetAttrString(tensor, "ndim");
    v.n_dims = n ? (int)PyLong_AsLong(n) : 0;
    Py_XDECREF(n);
    if (v.n_dims > SUT_MAX_DIMS)
        return refuse_dims(v.n_dims);
    int64_t elements[SUT_MAX_DIMS], bytes = 0, offset = 0, address = 0;
    bool fine = integers(tensor, "shape", v.n_dims, v.shape) && integers(tensor, "stride", v.n_dims, elements);
    v.count = 1;
    for (int k = 0; fine && k < v.n_dims; k++) {
        v.stride[k] = elements[k] * (int64_t)sut_dtype_size(v.dtype);
        v.count *= v.shape[k];
    }
    PyObject *storage = fine ? torch_storage(tensor) : nullptr;
    fine = fine && call_integer(storage, "nbytes", &bytes) && call_integer(tensor, "storage_offset", &offset) &&
           call_integer(tensor, "data_ptr", &address);
    Py_XDECREF(storage);
    if (!fine) { /* PyTorch's own text goes on with a stack trace */
        PyErr_Clear();
        return refuse(PyExc_TypeError, "is a tensor without plain memory (device %s, layout %s, type %s)",
                      device.c_str(), layout.c_str(), type.c_str());
    }
    v.data = reinterpret_cast<void *>(address);
    *e = extent_of(v, offset, bytes);
    return true;
}

/* The first tensor on a GPU that the functions opened is compared with what its methods say. */
static bool check_functions_on_cuda(PyObject *tensor, const View &v, const extent &e)
{
    View other;
    extent f = {};
    bool same = open_by_methods(tensor, other, &f) && other.data == v.data && other.dtype == v.dtype &&
                other.device == v.device && other.n_dims == v.n_dims && f.offset == e.offset && f.length == e.length &&
                f.storage == e.storage;
    for (int k = 0; same && k < v.n_dims; k++)
        same = other.shape[k] == v.shape[k] && other.stride[k] == v.stride[k];
    PyErr_Clear();
    functions_on_cuda = same ? RIGHT : WRONG;
    return same;
}

bool open_torch(PyObject *tensor, View &v)
{
    /* A type of its own may answer for its methods in Python (__torch_function__) and have other memory than it seems. */
    const bool plain = Py_TYPE(tensor) == parameter_type || Py_TYPE(tensor) == tensor_type;
    extent e = {};
    outcome found = have_functions && plain ? open_by_functions(tensor, v, &e) : TRY_METHODS;
    v.ran_code = found == TRY_METHODS;
    if (found == OPENED && v.device != View::CPU && functions_on_cuda == NOT_KNOWN) {
        v.ran_code = true;
        if (!check_functions_on_cuda(tensor, v, e))
            found = TRY_METHODS;
    }
    if (found == TRY_METHODS)
        found = open_by_methods(tensor, v, &e) ? OPENED : REFUSED;
    return found == OPENED && check_memory(v, e) &&
           (!has_lazy_sign(tensor, &v.ran_code) ||
            refuse(PyExc_ValueError, "has PyTorch's negative bit set; call resolve_neg() on it"));
}

} // namespace suture_python
