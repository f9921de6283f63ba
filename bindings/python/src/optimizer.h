/* suture._suture.Optimizer: one sut_optimizer with the arrays that it updates. The public classes are made of it. */
#ifndef SUTURE_PYTHON_OPTIMIZER_H
#define SUTURE_PYTHON_OPTIMIZER_H

#include <nanobind/nanobind.h>

namespace suture_python
{

void add_optimizer(nanobind::module_ &module);

} // namespace suture_python

#endif
