/*
 * Arguments of Python as numbers and texts, with refusals that say which argument, what was found and what is possible: a
 * TypeError for another kind of thing, a ValueError (OutOfRangeError for numbers) for what cannot be, an IndexError for an index.
 */
#ifndef SUTURE_PYTHON_CONVERT_H
#define SUTURE_PYTHON_CONVERT_H

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

namespace suture_python
{

double number(const std::string &name, nanobind::handle value);
/* Any int, or what stands for one (numpy.int64), in lowest .. highest. */
int64_t integer(const std::string &name, nanobind::handle value, int64_t lowest = INT64_MIN,
                int64_t highest = INT64_MAX);
/* 0 .. 2^64 - 1 */
uint64_t counter(const std::string &name, nanobind::handle value);
/* bool, also that of NumPy, or 0 or 1 */
bool flag(const std::string &name, nanobind::handle value);
/* An index from 0 .. count - 1 of `what` ("group"). */
int64_t index_of(const char *what, nanobind::handle value, int64_t count);
/* A str that UTF-8 can hold, without a zero character. */
std::string text(const std::string &name, nanobind::handle value);

/* None: empty. Else one entry per loss. */
std::vector<double> numbers(const std::string &name, nanobind::handle value, int n_losses);
std::vector<std::string> texts(const std::string &name, nanobind::handle value);

} // namespace suture_python

#endif
