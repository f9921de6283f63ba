/* The extension module suture._suture: everything of the Python package that is not Python. */
#include "array.h"
#include "convert.h"
#include "device.h"
#include "errors.h"
#include "functional.h"
#include "optimizer.h"
#include "report.h"
#include "settings.h"
#include "torch_tensor.h"

namespace suture_python
{

static nb::dict capabilities()
{
    sut_capability_report r;
    sut_capabilities_init(&r);
    check(sut_capabilities(&r), nullptr);
    nb::dict d;
    d["version"] = r.version;
    d["cuda"] = r.has_cuda != 0;
    d["cuda_reason"] = r.cuda_reason;
    d["cuda_found"] = r.cuda_found;
    d["instruction_set"] = sut_isa_name(r.best_isa);
    d["blas"] = r.blas;
    d["blas_kernel"] = r.blas_kernel;
    d["blas_integer_bits"] = r.blas_integer_bits;
    d["processors"] = r.processors;
    d["max_losses"] = r.max_losses;
    return d;
}

/* Checksum of state files, docs/state-files.md: CRC-64 as in xz. */
static uint64_t checksum(nb::object data)
{
    Py_buffer buffer;
    if (PyObject_GetBuffer(data.ptr(), &buffer, PyBUF_SIMPLE) != 0)
        throw nb::python_error();
    uint64_t table[256], crc = ~UINT64_C(0);
    for (uint64_t b = 0; b < 256; b++) {
        uint64_t x = b;
        for (int k = 0; k < 8; k++)
            x = x >> 1 ^ (x & 1 ? UINT64_C(0xC96C5795D7870F42) : 0);
        table[b] = x;
    }
    const unsigned char *bytes = static_cast<const unsigned char *>(buffer.buf);
    for (Py_ssize_t k = 0; k < buffer.len; k++)
        crc = table[(crc ^ bytes[k]) & 255] ^ crc >> 8;
    PyBuffer_Release(&buffer);
    return ~crc;
}

/* A list of strs, checked as loss_names. */
static nb::object checked_texts(nb::object value, const char *name)
{
    if (value.is_none())
        return value;
    nb::list list;
    for (const std::string &x : texts(name, value))
        list.append(nb::str(x.c_str()));
    return list;
}

NB_MODULE(_suture, module)
{
    module.doc() = "The compiled part of the package suture.";
    module.attr("version") = sut_version();
    module.attr("max_losses") = SUT_MAX_LOSSES;
    /* Objects that are alive when the process ends are no leaks when a thread was inside; nanobind cannot tell. */
    nb::set_leak_warnings(false);
    module.def("leak_warnings", nb::set_leak_warnings, "For tests.");
    add_exceptions(module);
    add_tables(module);
    add_reports(module);
    add_device(module);
    add_functional(module);
    add_optimizer(module);
    module.def("register_numpy", register_numpy);
    module.def("register_torch", register_torch);
    module.def("capabilities", capabilities, nb::sig("def capabilities() -> dict[str, typing.Any]"));
    module.def("texts", checked_texts, nb::arg("value").none(), nb::arg("name"),
               nb::sig("def texts(value: object, name: str) -> list[str] | None"));
    module.def("checksum", checksum);
}

} // namespace suture_python
