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

/* Set the option of that name, if it belongs to the surgery; else false. One that config->method does not read is refused.
 * `m`: number of losses. */
bool take_surgery(const char *name, nb::handle value, int m, sut_surgery_config *config, SurgeryArrays *arrays);

/* Likewise for what sut_optimizer_config has beside tensors, groups and surgery. */
bool take_optimizer(const char *name, nb::handle value, sut_optimizer_config *config);

/* The name of an option, lent by its key; "" for what cannot be one. */
const char *option_name(nb::handle key);

/* A TypeError with the nearest of the known names. */
[[noreturn]] void refuse_unknown(nb::handle key, const char *function, nb::list known);

/* One group's hyper-parameters from a dict; other keys are ignored. `betas` stands for beta1 and beta2, and instead of them. */
void read_hyper(nb::dict group, sut_optimizer_method method, sut_hyper *hyper, const sut_context *ctx);

/* A key of the group that is an option of the whole optimizer, where it would have no effect, is refused by name. */
void refuse_whole(nb::dict group, int index);

/* A name that there is not is refused with those that there are. */
sut_optimizer_method optimizer_method(nb::handle name);
sut_surgery_method surgery_method(nb::handle name);

/* What there is, for Python: names of options by place, and of methods. */
void add_tables(nb::module_ &module);

} // namespace suture_python

#endif
