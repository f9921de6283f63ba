/* See convert.h. */
#include "convert.h"
#include "errors.h"

#include <cstring>

namespace nb = nanobind;

namespace suture_python
{

static std::string class_name(nb::handle value)
{
    const nb::handle type(reinterpret_cast<PyObject *>(Py_TYPE(value.ptr())));
    return nb::borrow<nb::str>(nb::getattr(type, "__name__")).c_str();
}

/* `%R` of something long would hide the sentence. */
static nb::str shown(nb::handle value)
{
    PyObject *repr = PyObject_Repr(value.ptr());
    if (!repr) {
        PyErr_Clear();
        return nb::str("something that cannot be shown");
    }
    nb::str whole = nb::steal<nb::str>(repr);
    if (PyUnicode_GetLength(whole.ptr()) <= 80)
        return whole;
    nb::str part = nb::steal<nb::str>(PyUnicode_Substring(whole.ptr(), 0, 77));
    return nb::steal<nb::str>(PyUnicode_FromFormat("%U...", part.ptr()));
}

double number(const std::string &name, nb::handle value)
{
    const double x = PyFloat_AsDouble(value.ptr());
    if (x == -1 && PyErr_Occurred()) {
        const bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError);
        PyErr_Clear();
        PyErr_Format(too_large ? PyExc_OverflowError : PyExc_TypeError,
                     too_large ? "%s is %U, beyond the range of a float" : "%s is %U, not a number", name.c_str(),
                     shown(value).ptr());
        throw nb::python_error();
    }
    return x;
}

/* value.__index__(), a new reference. */
static nb::object whole_number(const std::string &name, nb::handle value)
{
    PyObject *index = PyNumber_Index(value.ptr());
    if (!index) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s is %U, not an integer", name.c_str(), shown(value).ptr());
        throw nb::python_error();
    }
    return nb::steal(index);
}

[[noreturn]] static void raise_range(const std::string &name, nb::handle value, const std::string &lowest,
                                     const std::string &highest)
{
    nb::str found = shown(value);
    raise(SUT_ERROR_OUT_OF_RANGE,
          (name + " is " + found.c_str() + "; allowed is " + lowest + " to " + highest).c_str());
}

int64_t integer(const std::string &name, nb::handle value, int64_t lowest, int64_t highest)
{
    nb::object index = whole_number(name, value);
    int beyond = 0;
    const long long x = PyLong_AsLongLongAndOverflow(index.ptr(), &beyond);
    if (beyond || x < lowest || x > highest)
        raise_range(name, index, std::to_string(lowest), std::to_string(highest));
    return x;
}

uint64_t counter(const std::string &name, nb::handle value)
{
    nb::object index = whole_number(name, value);
    const unsigned long long x = PyLong_AsUnsignedLongLong(index.ptr());
    if (x == (unsigned long long)-1 && PyErr_Occurred()) {
        PyErr_Clear();
        raise_range(name, index, "0", "2**64 - 1");
    }
    return x;
}

bool flag(const std::string &name, nb::handle value)
{
    if (PyBool_Check(value.ptr()) || class_name(value) == "bool" || class_name(value) == "bool_")
        return PyObject_IsTrue(value.ptr()) == 1;
    if (PyLong_Check(value.ptr()))
        return integer(name, value, 0, 1) == 1;
    PyErr_Format(PyExc_TypeError, "%s is %U; True or False is needed", name.c_str(), shown(value).ptr());
    throw nb::python_error();
}

int64_t index_of(const char *what, nb::handle value, int64_t count)
{
    nb::object index = whole_number(what, value);
    int beyond = 0;
    const long long x = PyLong_AsLongLongAndOverflow(index.ptr(), &beyond);
    if (beyond || x < 0 || x >= count) {
        PyErr_Format(PyExc_IndexError, "there is no %s %R; there %s %lld, counted from 0", what, index.ptr(),
                     count == 1 ? "is" : "are", (long long)count);
        throw nb::python_error();
    }
    return x;
}

std::string text(const std::string &name, nb::handle value)
{
    if (!PyUnicode_Check(value.ptr())) {
        PyErr_Format(PyExc_TypeError, "%s is %U, of type %s; a str is needed", name.c_str(), shown(value).ptr(),
                     class_name(value).c_str());
        throw nb::python_error();
    }
    PyObject *bytes = PyUnicode_AsUTF8String(value.ptr());
    if (!bytes) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s is %A, which has characters that UTF-8 cannot hold (lone surrogates)",
                     name.c_str(), value.ptr());
        throw nb::python_error();
    }
    const std::string result(PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes));
    Py_DECREF(bytes);
    if (strlen(result.c_str()) != result.size()) {
        PyErr_Format(PyExc_ValueError, "%s is %A; a zero character cannot be in it", name.c_str(), value.ptr());
        throw nb::python_error();
    }
    return result;
}

/* The entries of any iterable but a str, which is one thing and not many. */
static nb::list entries(const std::string &name, nb::handle value, const char *of_what)
{
    PyObject *list = PyUnicode_Check(value.ptr()) ? nullptr : PySequence_List(value.ptr());
    if (!list) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s is %U; a list of %s is needed, one per loss", name.c_str(),
                     shown(value).ptr(), of_what);
        throw nb::python_error();
    }
    return nb::steal<nb::list>(list);
}

std::vector<double> numbers(const std::string &name, nb::handle value, int n_losses)
{
    std::vector<double> result;
    if (value.is_none())
        return result;
    for (nb::handle x : entries(name, value, "numbers"))
        result.push_back(PyFloat_Check(x.ptr()) ? PyFloat_AsDouble(x.ptr())
                                                : number(name + "[" + std::to_string(result.size()) + "]", x));
    if ((int)result.size() != n_losses)
        raise(SUT_ERROR_INVALID_ARGUMENT,
              (name + " has " + std::to_string(result.size()) + (result.size() == 1 ? " entry" : " entries") +
               ", one per loss is needed: " + std::to_string(n_losses))
                  .c_str());
    return result;
}

std::vector<std::string> texts(const std::string &name, nb::handle value)
{
    std::vector<std::string> result;
    if (value.is_none())
        return result;
    for (nb::handle x : entries(name, value, "strs"))
        result.push_back(text(name + "[" + std::to_string(result.size()) + "]", x));
    return result;
}

} // namespace suture_python
