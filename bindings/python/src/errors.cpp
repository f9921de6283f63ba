/* See errors.h. One row per status; a test holds the table against the enum. */
#include "errors.h"

#include <cctype>
#include <string>

namespace nb = nanobind;

namespace suture_python
{

struct row {
    sut_status status;
    const char *name;
    PyObject **also; /* built-in class that it is, too */
    const char *doc;
};

static const row rows[] = {
    {SUT_ERROR_INVALID_ARGUMENT, "InvalidArgumentError", &PyExc_ValueError,
     "An argument that cannot be: wrong size, overlapping memory, unknown name."},
    {SUT_ERROR_OUT_OF_RANGE, "OutOfRangeError", &PyExc_ValueError, "A number outside its allowed range."},
    {SUT_ERROR_UNSUPPORTED, "UnsupportedError", &PyExc_NotImplementedError,
     "A combination that this build or method does not offer; the text says why."},
    {SUT_ERROR_NOT_FINITE, "NotFiniteError", &PyExc_ArithmeticError,
     "NaN or Inf in a gradient, a loss or a parameter; the text says where."},
    {SUT_ERROR_OUT_OF_MEMORY, "OutOfMemoryError", &PyExc_MemoryError, "No memory."},
    {SUT_ERROR_IO, "StateFileError", &PyExc_OSError, "The operating system refused a file."},
    {SUT_ERROR_CORRUPT, "CorruptStateError", &PyExc_ValueError, "Not a state file, or a damaged one."},
    {SUT_ERROR_MISMATCH, "MismatchError", &PyExc_ValueError,
     "A sound state of another method, of other tensors or of another format."},
    {SUT_ERROR_UNDEFINED, "UndefinedError", &PyExc_ArithmeticError, "The method has no direction at this point."},
    {SUT_ERROR_SEQUENCE, "SequenceError", &PyExc_RuntimeError, "Calls out of order."},
    {SUT_ERROR_BACKEND, "BackendError", &PyExc_RuntimeError,
     "The back end asked for is not available here; the text says what was looked for."},
    {SUT_ERROR_INTERNAL, "InternalError", &PyExc_RuntimeError, "A bug in Suture: please report it with the text."},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* Classes live as long as the process; index by status. */
static PyObject *classes[N_ROWS + 1];

void add_exceptions(nb::module_ &module)
{
    /* The module's own name: stubs are made from it as a module that stands alone. */
    const nb::str own(nb::object(module.attr("__name__")));
    const std::string prefix = std::string(own.c_str()) + ".";
    nb::dict none;
    none["status"] = -1; /* that each class has its own is known to type checkers */
    PyObject *base = PyErr_NewExceptionWithDoc((prefix + "Error").c_str(), "What every exception of Suture is.",
                                               nullptr, none.ptr());
    if (!base)
        throw nb::python_error();
    module.attr("Error") = nb::handle(base);
    classes[0] = base;
    for (const row &r : rows) {
        nb::object bases = nb::make_tuple(nb::handle(base), nb::handle(*r.also));
        nb::dict members;
        members["status"] = (int)r.status;
        PyObject *type = PyErr_NewExceptionWithDoc((prefix + r.name).c_str(), r.doc, bases.ptr(), members.ptr());
        if (!type)
            throw nb::python_error();
        classes[r.status] = type;
        module.attr(r.name) = nb::handle(type);
    }
}

void raise(sut_status status, const char *text)
{
    const int k = (int)status > 0 && (int)status <= (int)N_ROWS ? (int)status : 0;
    PyErr_SetString(classes[k], text && *text ? text : sut_status_string(status));
    throw nb::python_error();
}

/* The library's text as its caller in Python knows the thing: what is NULL there was None, sut_optimizer_step() is step(). */
static std::string in_python(const char *text)
{
    static const char prefix[] = "sut_optimizer_";
    std::string result = text ? text : "";
    for (size_t at; (at = result.find(prefix)) != std::string::npos;)
        result.erase(at, sizeof prefix - 1);
    for (size_t at = 0; (at = result.find(" NULL", at)) != std::string::npos; at += 5) {
        const char after = at + 5 < result.size() ? result[at + 5] : '\0';
        if (!isalnum((unsigned char)after) && after != '_')
            result.replace(at, 5, " None");
    }
    return result;
}

void check(sut_status status, const sut_context *ctx)
{
    if (status != SUT_OK)
        raise(status, in_python(sut_context_last_error(ctx)).c_str());
}

} // namespace suture_python
