/* See tensors.h. */
#include "tensors.h"
#include "convert.h"
#include "errors.h"

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
        if (!p.layout.from(view)) {
            PyErr_Format(PyExc_ValueError,
                         "parameter '%s' (shape %s) has gaps in its memory, overlaps itself or is not aligned; a "
                         "contiguous array is needed",
                         p.name.c_str(), shape_text(view.n_dims, view.shape).c_str());
            throw nb::python_error();
        }
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

void Tensors::told(bool all_of_it)
{
    static char unknown;
    for (Parameter &p : all)
        p.told = all_of_it ? p.data : &unknown;
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
    for (Parameter &p : all) {
        View view;
        if (!view.try_open(p.array.ptr(), true))
            view.open(p.array.ptr(), "parameter '" + p.name + "'", true);
        *ran_code = *ran_code || view.ran_code;
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
