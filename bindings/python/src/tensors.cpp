/* See tensors.h. */
#include "tensors.h"
#include "convert.h"
#include "device.h"
#include "errors.h"
#include "torch_tensor.h"

#include <algorithm>

namespace suture_python
{

Tensors::Tensors(nb::list entries, int n_losses, std::vector<std::string> loss_names)
    : m(n_losses), names_of_losses(std::move(loss_names)),
      grad_name(nb::steal<nb::str>(PyUnicode_InternFromString("grad")))
{
    int64_t elements = 0;
    for (nb::handle entry : entries) {
        nb::tuple t = nb::cast<nb::tuple>(entry);
        Parameter p;
        p.name = text("the name of parameter " + std::to_string(all.size()), t[0]);
        p.array = t[1];
        p.group = nb::cast<int>(t[2]);
        View view;
        view.open(p.array.ptr(), "parameter '" + p.name + "'", true);
        if (view.device != place && !all.empty())
            check_place(view, "parameter '" + p.name + "'", "all parameters of an optimizer must be on one device");
        if (!p.layout.from(view)) {
            PyErr_Format(PyExc_ValueError,
                         "parameter '%s' (shape %s) has gaps in its memory, overlaps itself or is not aligned; a "
                         "contiguous array is needed",
                         p.name.c_str(), shape_text(view.n_dims, view.shape).c_str());
            throw nb::python_error();
        }
        take_place(view, all.size());
        p.data = view.count ? view.data : nullptr;
        elements += view.count;
        all.push_back(std::move(p));
    }
    small = keeps_lock(elements * m, m);
    pointers.resize((size_t)m * all.size());
    copies.resize(pointers.size());
}

std::vector<sut_tensor> Tensors::descriptions() const
{
    std::vector<sut_tensor> result(all.size());
    for (size_t k = 0; k < all.size(); k++) {
        const Parameter &p = all[k];
        sut_tensor &t = result[k];
        t = sut_tensor{};
        t.data = p.data;
        t.dtype = p.layout.dtype;
        t.n_dims = p.layout.n_dims;
        std::copy(p.layout.memory_shape, p.layout.memory_shape + t.n_dims, t.shape);
        t.group = p.group;
        t.name = p.name.c_str();
    }
    return result;
}

void Tensors::told()
{
    for (Parameter &p : all)
        p.told = p.data;
}

/* ---- devices ---- */

/* A view that is not where the others are, or that has to be waited for on another stream, is refused. */
void Tensors::check_place(const View &view, const std::string &what, const char *needed) const
{
    if (!same_device(view.device, place)) {
        PyErr_Format(PyExc_ValueError, "%s is on %s, parameter '%s' on %s; %s", what.c_str(),
                     device_text(view.device).c_str(), all[0].name.c_str(), device_text(place).c_str(), needed);
        throw nb::python_error();
    }
    if (view.stream != View::NO_STREAM && view.stream != on_stream) {
        PyErr_Format(
            PyExc_ValueError,
            "%s will be ready on CUDA stream %s, and the optimizer works on stream %s: make all arrays of a call "
            "ready on one stream",
            what.c_str(), std::to_string(view.stream).c_str(), std::to_string(on_stream).c_str());
        throw nb::python_error();
    }
}

/* The first parameter says where all are. */
void Tensors::take_place(const View &view, size_t k)
{
    if (k == 0) {
        place = view.device;
        torch = view.is_torch;
        if (!torch)
            on_stream = view.stream == View::NO_STREAM ? 0 : view.stream;
    } else if (place == View::SOME_CUDA) {
        place = view.device;
    }
}

/* A gradient on a GPU that lies otherwise than its parameter, copied by PyTorch on its current stream. Held until release(). */
PyObject *Tensors::laid_out(int i, size_t k, PyObject *gradient)
{
    if (!is_torch_tensor(gradient) || !is_torch_tensor(all[k].array.ptr())) {
        PyErr_Format(
            PyExc_ValueError,
            "%s lies in memory otherwise than its parameter; on a GPU only tensors of PyTorch are copied for that",
            gradient_name(i, k).c_str());
        throw nb::python_error();
    }
    nb::object copy = cuda_function("laid_out_like")(nb::handle(gradient), all[k].array);
    gathered.add(nb::borrow(copy).release().ptr());
    return copy.ptr();
}

/* ---- gradients ---- */

void Tensors::gather(PyObject *rows)
{
    given.clear();
    if (!is_sequence(rows) || PySequence_Size(rows) != m) {
        PyErr_Format(is_sequence(rows) ? PyExc_ValueError : PyExc_TypeError,
                     "gradients of %d loss%s are needed: a list of %d list%s", m, m == 1 ? "" : "es", m,
                     m == 1 ? "" : "s");
        throw nb::python_error();
    }
    const Py_ssize_t n = (Py_ssize_t)all.size();
    for (int i = 0; i < m; i++) {
        PyObject *row = item(rows, i);
        if (row && PyIter_Check(row)) { /* a generator and the like */
            row = PySequence_List(row);
            if (!row)
                throw nb::python_error();
            gathered.add(row);
        }
        if (!row || !is_sequence(row) || PySequence_Size(row) != n) {
            PyErr_Clear();
            PyErr_Format(row && !is_sequence(row) ? PyExc_TypeError : PyExc_ValueError,
                         "the gradients of loss %d are not a list with one entry per tensor (%d; None: absent)", i,
                         (int)n);
            throw nb::python_error();
        }
        for (Py_ssize_t k = 0; k < n; k++) {
            PyObject *gradient = item(row, k);
            Py_INCREF(gradient);
            gathered.add(gradient);
            given.push_back(gradient);
        }
    }
}

void Tensors::gather_attributes()
{
    given.clear();
    for (Parameter &p : all) {
        PyObject *gradient = PyObject_GetAttr(p.array.ptr(), grad_name.ptr());
        if (!gradient)
            throw nb::python_error();
        gathered.add(gradient);
        given.push_back(gradient);
    }
}

std::string Tensors::gradient_name(int i, size_t k) const
{
    const std::string loss = names_of_losses.empty() ? std::to_string(i) : "'" + names_of_losses[(size_t)i] + "'";
    return m == 1 ? "the gradient of '" + all[k].name + "'"
                  : "the gradient of loss " + loss + " in '" + all[k].name + "'";
}

void Tensors::look_at_gradient(int i, size_t k, PyObject *gradient, bool unlocks, bool *ran_code)
{
    const size_t at = (size_t)i * all.size() + k;
    pointers[at] = nullptr;
    if (gradient == Py_None)
        return;
    const Parameter &p = all[k];
    if (has_lazy_sign(gradient, ran_code)) {
        gradient = given[at] = with_plain_sign(gradient).release().ptr();
        gathered.add(gradient);
        *ran_code = true;
    }
    View view;
    if (!view.try_open(gradient, false))
        view.open(gradient, gradient_name(i, k), false);
    *ran_code = *ran_code || view.ran_code;
    if (view.dtype != p.layout.dtype || !p.layout.same_shape(view)) {
        const bool type = view.dtype != p.layout.dtype;
        PyErr_Format(type ? PyExc_TypeError : PyExc_ValueError, "%s is %s of shape %s, the parameter %s of shape %s",
                     gradient_name(i, k).c_str(), dtype_text(view.dtype), shape_text(view.n_dims, view.shape).c_str(),
                     dtype_text(p.layout.dtype), shape_text(p.layout.n_dims, p.layout.shape).c_str());
        throw nb::python_error();
    }
    if (view.device != place || view.stream != View::NO_STREAM)
        check_place(view, gradient_name(i, k), "a gradient must be on the device of its parameter");
    if (!p.layout.matches(view) && view.device != View::CPU) {
        /* Looked at once more, in its place: nothing is copied twice. */
        given[at] = laid_out(i, k, gradient);
        *ran_code = true;
        View copy;
        copy.open(given[at], gradient_name(i, k), false);
        if (!p.layout.matches(copy) || copy.dtype != p.layout.dtype || !p.layout.same_shape(copy)) {
            PyErr_Format(PyExc_ValueError, "%s cannot be laid out as its parameter is", gradient_name(i, k).c_str());
            throw nb::python_error();
        }
        pointers[at] = copy.data;
        copy.keep(given[at], looked, unlocks);
        return;
    }
    if (p.layout.matches(view)) {
        pointers[at] = view.data;
        view.keep(gradient, looked, unlocks);
        return;
    }
    std::vector<char> &copy = copies[at];
    copy.resize((size_t)view.count * sut_dtype_size(view.dtype));
    p.layout.gather(view, copy.data());
    pointers[at] = copy.data();
}

/* ---- looking ---- */

bool Tensors::look_once(bool unlocks, bool *ran_code)
{
    bool moved = false;
    for (size_t k = 0; k < all.size(); k++) {
        Parameter &p = all[k];
        View view;
        if (!view.try_open(p.array.ptr(), true))
            view.open(p.array.ptr(), "parameter '" + p.name + "'", true);
        *ran_code = *ran_code || view.ran_code;
        if (k == 0 || place == View::SOME_CUDA)
            take_place(view, k);
        if (view.device != place || view.stream != View::NO_STREAM)
            check_place(view, "parameter '" + p.name + "'", "all parameters of an optimizer must be on one device");
        if (view.dtype != p.layout.dtype || !p.layout.same_shape(view) || !p.layout.matches(view)) {
            if (view.dtype == p.layout.dtype && p.layout.same_shape(view))
                PyErr_Format(
                    PyExc_ValueError,
                    "parameter '%s' lies otherwise in memory than when the optimizer was made (its memory format "
                    "or strides were changed); change it back, or make a new optimizer",
                    p.name.c_str());
            else
                PyErr_Format(PyExc_ValueError,
                             "parameter '%s' was %s of shape %s when the optimizer was made and is now %s of shape %s; "
                             "make a new optimizer",
                             p.name.c_str(), dtype_text(p.layout.dtype),
                             shape_text(p.layout.n_dims, p.layout.shape).c_str(), dtype_text(view.dtype),
                             shape_text(view.n_dims, view.shape).c_str());
            throw nb::python_error();
        }
        p.data = view.count ? view.data : nullptr;
        moved = moved || p.data != p.told;
        view.keep(p.array.ptr(), looked, unlocks);
    }
    if (!given.empty())
        for (int i = 0; i < m; i++)
            for (size_t k = 0; k < all.size(); k++)
                look_at_gradient(i, k, given[(size_t)i * all.size() + k], unlocks, ran_code);
    return moved;
}

bool Tensors::look(bool unlocks)
{
    bool ran_code = false;
    bool moved = look_once(unlocks, &ran_code);
    /* While Python code ran, another thread may have replaced what had been looked at: once more, and keep it. */
    if (ran_code && !unlocks) {
        looked.clear();
        moved = look_once(true, &ran_code);
    }
    return moved;
}

void Tensors::release()
{
    given.clear();
    looked.clear();
    gathered.clear();
}

std::vector<void *> Tensors::outputs(nb::object list, const char *what, bool write, bool unlocks)
{
    std::vector<void *> result;
    if (list.is_none())
        return result;
    if (!is_sequence(list.ptr()) || PySequence_Size(list.ptr()) != (Py_ssize_t)all.size()) {
        PyErr_Format(PyExc_ValueError, "%s: a list with one array per tensor is needed (%d)", what, (int)all.size());
        throw nb::python_error();
    }
    for (size_t k = 0; k < all.size(); k++) {
        const Layout &l = all[k].layout;
        const sut_dtype dtype = l.dtype == SUT_DTYPE_F64 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
        nb::object array = nb::borrow(item(list.ptr(), (Py_ssize_t)k));
        if (array.is_none()) {
            result.push_back(nullptr);
            continue;
        }
        View view;
        view.open(array.ptr(), std::string(what) + " of '" + all[k].name + "'", write);
        view.stream = View::NO_STREAM; /* made or read on that of the coming look, which is not known yet */
        if (view.device != place)
            check_place(view, std::string(what) + " of '" + all[k].name + "'", "they must be on one device");
        if (view.dtype != dtype || !l.same_shape(view)) {
            PyErr_Format(view.dtype != dtype ? PyExc_TypeError : PyExc_ValueError,
                         "%s of '%s' is %s of shape %s; %s of shape %s is needed", what, all[k].name.c_str(),
                         dtype_text(view.dtype), shape_text(view.n_dims, view.shape).c_str(), dtype_text(dtype),
                         shape_text(l.n_dims, l.shape).c_str());
            throw nb::python_error();
        }
        /* In the order in which the parameter lies in memory, as the library reads and writes it. */
        if (!l.scaled(dtype).matches(view)) {
            PyErr_Format(PyExc_ValueError, "%s of '%s' does not lie in memory as the parameter does", what,
                         all[k].name.c_str());
            throw nb::python_error();
        }
        result.push_back(view.count ? view.data : nullptr);
        view.keep(array.ptr(), gathered, unlocks || view.ran_code); /* look() may clear what it looked at */
        gathered.add(array.release().ptr());
    }
    return result;
}

int Tensors::traverse(visitproc visit, void *arg) const
{
    for (const Parameter &p : all)
        Py_VISIT(p.array.ptr());
    return 0;
}

void Tensors::clear()
{
    for (Parameter &p : all)
        p.array.reset();
}

} // namespace suture_python
