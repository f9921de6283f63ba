/* See arguments.h. */
#include "arguments.h"
#include "device.h"
#include "layout.h"
#include "torch_tensor.h"

#include <algorithm>
#include <sys/mman.h>
#include <unistd.h>

namespace suture_python
{

static std::string row_name(int i)
{
    return "G[" + std::to_string(i) + "]";
}

bool Arguments::are_plain(std::initializer_list<nb::handle> arguments)
{
    int library = 0;
    for (nb::handle x : arguments) {
        if (x.is_none())
            continue;
        const bool list = is_sequence(x.ptr());
        const Py_ssize_t n = list ? PySequence_Size(x.ptr()) : 1;
        for (Py_ssize_t k = 0; k < n; k++) {
            PyObject *array = list ? item(x.ptr(), k) : x.ptr();
            const int own = is_plain_ndarray(array) ? 1 : is_plain_tensor(array) ? 2 : 0;
            if (own == 0 || (library != 0 && own != library))
                return false;
            library = own;
        }
    }
    return library != 0;
}

/* Held until the call is over; in its place what has PyTorch's lazy sign in its memory. */
PyObject *Arguments::hold(PyObject *array)
{
    bool ran_code = false; /* nothing was looked at yet */
    nb::object own = has_lazy_sign(array, &ran_code) ? with_plain_sign(array) : nb::borrow(array);
    PyObject *const result = own.release().ptr();
    held.add(result);
    return result;
}

Arguments::Arguments(nb::object rows) : G(rows), is_list(is_sequence(rows.ptr()))
{
    const int64_t found = is_list ? (int64_t)PySequence_Size(G.ptr()) : look_at_whole();
    if (found < 1 || found > SUT_MAX_LOSSES)
        raise(
            SUT_ERROR_OUT_OF_RANGE,
            ("G has " + std::to_string(found) + " rows; possible are 1 to " + std::to_string(SUT_MAX_LOSSES)).c_str());
    m = (int)found;
    views.reset(new View[(size_t)m]);
    for (int i = 0; i < m && is_list; i++) {
        objects[i] = hold(item(G.ptr(), i));
        views[i].wide_only = true;
    }
}

void Arguments::add(const char *name, nb::handle array)
{
    vector_argument &v = given[n_given++];
    v.name = name;
    v.array = array.is_none() ? nullptr : hold(array.ptr());
    v.view.wide_only = true;
}

void Arguments::look_at_first()
{
    if (is_list)
        views[0].open(objects[0], row_name(0), false);
    else
        views[0].row(whole, 0);
}

sut_context *Arguments::context(ContextSettings settings)
{
    look_at_first();
    device = settings.device = views[0].device;
    if (device != View::CPU)
        settings.stream = current_stream(device);
    return thread_context(settings, row_name(0));
}

/* On a GPU what does not lie row by row is copied by PyTorch, and the copy takes its place. True when that was done. */
bool Arguments::straighten(View &v, PyObject *&array, const std::string &name)
{
    if (v.device == View::CPU || v.is_contiguous())
        return false;
    array = nb::object(cuda_function("contiguous")(nb::handle(array))).release().ptr();
    held.add(array);
    v.open(array, name, false);
    return true;
}

/* A large tensor's memory comes fresh from the system, a fault for every 4 KB of it: ten milliseconds for 40 MB. NumPy asks for
 * huge pages itself, from the same size on. */
static void ask_for_huge_pages(void *memory, size_t size)
{
#ifdef MADV_HUGEPAGE
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = reinterpret_cast<uintptr_t>(memory);
    const uintptr_t begin = (at + page - 1) & ~(page - 1), end = (at + size) & ~(page - 1);
    if (size >= (size_t)4 << 20)
        (void)madvise(reinterpret_cast<void *>(begin), end - begin, MADV_HUGEPAGE); /* a wish */
#else
    (void)memory, (void)size;
#endif
}

nb::object Arguments::make_output()
{
    look_at_first();
    const View &like = views[0];
    nb::object result = like.is_torch ? new_tensor(like) : new_ndarray(like);
    made.open(result.ptr(), "the result", true);
    output = made.data;
    if (like.is_torch && made.device == View::CPU)
        ask_for_huge_pages(made.data, (size_t)made.count * sut_dtype_size(made.dtype));
    return result;
}

int64_t Arguments::look_at_whole()
{
    bool ran_code = false;
    if (has_lazy_sign(G.ptr(), &ran_code)) {
        G = with_plain_sign(G.ptr());
        ran_code = true;
    }
    whole.wide_only = true;
    whole.open(G.ptr(), "G", false);
    whole.ran_code = whole.ran_code || ran_code;
    if (whole.device != View::CPU && !whole.is_contiguous()) {
        G = cuda_function("contiguous")(G);
        whole.open(G.ptr(), "G", false);
        whole.ran_code = true;
    }
    if (whole.n_dims < 2) {
        PyErr_Format(PyExc_ValueError, "G has shape %s; one row per loss is needed, (losses, ...)",
                     shape_text(whole.n_dims, whole.shape).c_str());
        throw nb::python_error();
    }
    return whole.shape[0];
}

/* Look at everything; true when Python code may have run meanwhile. */
bool Arguments::look(bool keep)
{
    bool ran_code = false;
    const auto look_at = [&](View &v, PyObject *array) {
        if (keep)
            v.keep(array, held, true);
        ran_code = ran_code || v.ran_code;
    };
    for (int i = 0; i < m && is_list; i++) {
        if (!views[i].try_open(objects[i], false))
            views[i].open(objects[i], row_name(i), false);
        ran_code = straighten(views[i], objects[i], row_name(i)) || ran_code;
        look_at(views[i], objects[i]);
    }
    if (!is_list) {
        if (look_at_whole() != m) {
            PyErr_SetString(PyExc_ValueError, "G was changed by another thread");
            throw nb::python_error();
        }
        for (int i = 0; i < m; i++)
            views[i].row(whole, i);
        look_at(whole, G.ptr());
    }
    for (int k = 0; k < n_given; k++)
        if (given[k].array) {
            given[k].view.open(given[k].array, given[k].name, false);
            ran_code = straighten(given[k].view, given[k].array, given[k].name) || ran_code;
            look_at(given[k].view, given[k].array);
        }
    return ran_code;
}

void Arguments::open()
{
    const bool ran_code = look(false);
    unlocks = device != View::CPU || !keeps_lock(count() * m, m);
    if (unlocks || ran_code)
        (void)look(true);
    for (int i = 0; i < m; i++) {
        if (i > 0 || views[0].device != device)
            check_like_first(views[i], row_name(i));
        rows[i] = contiguous(views[i]);
    }
    for (int k = 0; k < n_given; k++)
        if (given[k].array) {
            check_like_first(given[k].view, given[k].name);
            vectors[k] = contiguous(given[k].view);
        }
    if (output && (made.count != count() || made.dtype != dtype() || made.device != device)) {
        PyErr_SetString(PyExc_ValueError, "G was changed by another thread");
        throw nb::python_error();
    }
}

void Arguments::check_like_first(const View &v, const std::string &name) const
{
    const View &first = views[0];
    if (v.device != device)
        PyErr_Format(PyExc_ValueError, "%s is on %s, G[0] on %s; all arrays must be on one device", name.c_str(),
                     device_text(v.device).c_str(), device_text(device).c_str());
    else if (v.dtype != first.dtype)
        PyErr_Format(PyExc_TypeError, "%s has elements of type %s, G[0] of type %s", name.c_str(), dtype_text(v.dtype),
                     dtype_text(first.dtype));
    else if (v.n_dims != first.n_dims || !std::equal(v.shape, v.shape + v.n_dims, first.shape))
        PyErr_Format(PyExc_ValueError, "%s has shape %s, G[0] has %s", name.c_str(),
                     shape_text(v.n_dims, v.shape).c_str(), shape_text(first.n_dims, first.shape).c_str());
    else
        return;
    throw nb::python_error();
}

const void *Arguments::contiguous(const View &v)
{
    if (v.is_contiguous())
        return v.data;
    const Layout flat = Layout::row_by_row(v);
    copies.emplace_back((size_t)v.count * sut_dtype_size(v.dtype));
    flat.gather(v, copies.back().data());
    return copies.back().data();
}

} // namespace suture_python
