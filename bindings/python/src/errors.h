/* Each status of the library is a class of Python exceptions, which carries the library's sentence. */
#ifndef SUTURE_PYTHON_ERRORS_H
#define SUTURE_PYTHON_ERRORS_H

#include <nanobind/nanobind.h>

#include "suture/suture.h"

namespace suture_python
{

/* Make the classes and add them to the module. */
void add_exceptions(nanobind::module_ &module);

/* Throw the exception of `status` with the text of `ctx` (NULL: the status's own). Nothing happens for SUT_OK. */
void check(sut_status status, const sut_context *ctx);
[[noreturn]] void raise(sut_status status, const char *text);

} // namespace suture_python

#endif
