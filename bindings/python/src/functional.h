/* suture._suture.project, combine and weights; the public functions are in suture/_functional.py. */
#ifndef SUTURE_PYTHON_FUNCTIONAL_H
#define SUTURE_PYTHON_FUNCTIONAL_H

#include <nanobind/nanobind.h>

namespace suture_python
{

void add_functional(nanobind::module_ &module);

} // namespace suture_python

#endif
