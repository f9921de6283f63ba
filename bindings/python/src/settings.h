/* Keyword arguments of Python become the library's configuration structs, by table. */
#ifndef SUTURE_PYTHON_SETTINGS_H
#define SUTURE_PYTHON_SETTINGS_H

#include <nanobind/nanobind.h>

#include "suture/suture.h"

#include <vector>

namespace nb = nanobind;

namespace suture_python
{

/* Arrays that a surgery configuration borrows. */
struct SurgeryArrays {
    std::vector<double> preference;
    std::vector<int> order;
};

inline nb::dict copy_of(nb::dict dict)
{
    return nb::steal<nb::dict>(PyDict_Copy(dict.ptr()));
}

/* Set every option in `options` (a dict) that belongs to the surgery and remove it from there. `m`: number of losses. */
void read_surgery(nb::dict options, int m, sut_surgery_config *config, SurgeryArrays *arrays);

/* Likewise for what sut_optimizer_config has beside tensors, groups and surgery. */
void read_optimizer(nb::dict options, sut_optimizer_config *config);

/* Anything left in `options` is unknown: TypeError with the nearest known name. `known`: further names. */
void refuse_unknown(nb::dict options, const char *function, nb::list known);

/* One group's hyper-parameters from a dict; other keys are ignored. `betas` stands for beta1 and beta2. */
void read_hyper(nb::dict group, sut_optimizer_method method, sut_hyper *hyper, const sut_context *ctx);

/* A name that there is not is refused with those that there are. */
sut_optimizer_method optimizer_method(nb::handle name);
sut_surgery_method surgery_method(nb::handle name);

/* What there is, for Python: names of options by place, and of methods. */
void add_tables(nb::module_ &module);

} // namespace suture_python

#endif
