/*
 * The arrays of one call without state: m rows of the same shape and type, which are a list of arrays or one array whose first
 * axis counts them, and vectors of a row's shape. Each is used where it lies, or copied when it does not lie row by row (on a
 * GPU by PyTorch). All are on one device.
 */
#ifndef SUTURE_PYTHON_ARGUMENTS_H
#define SUTURE_PYTHON_ARGUMENTS_H

#include "context.h"
#include "errors.h"
#include "unlocked.h"

#include <initializer_list>
#include <memory>

namespace suture_python
{

class Arguments
{
  public:
    /* Arrays of NumPy, or all tensors of PyTorch without a gradient, None left out: nothing has to be converted. */
    static bool are_plain(std::initializer_list<nb::handle> arguments);

    explicit Arguments(nb::object rows);
    /* A vector; None is left out. The object must stay. `name` is what refusals call it. */
    void add(const char *name, nb::handle array);
    /* With these settings, on the device of row 0 and its current stream. */
    sut_context *context(ContextSettings settings);
    /* A result, of the library, shape and type of row 0. */
    nb::object make_output();
    /* Once, when everything was added and every other argument was read: until work() no Python code runs. */
    void open();

    /* The library at work; its refusal becomes an exception. */
    template <typename F> void work(sut_context *ctx, F function) const
    {
        sut_status status;
        if (unlocks) {
            const Unlocked unlocked;
            status = function();
        } else {
            status = function();
        }
        check(status, ctx);
    }

    int64_t count() const
    {
        return views[0].count;
    }
    sut_dtype dtype() const
    {
        return views[0].dtype;
    }

    int m = 0;
    const void *rows[SUT_MAX_LOSSES];
    const void *vectors[2] = {}; /* in the order of add(); NULL for None */
    void *output = nullptr;      /* NULL when none was made */

  private:
    struct vector_argument {
        const char *name = nullptr;
        PyObject *array = nullptr;
        View view;
    };

    PyObject *hold(PyObject *array);
    int64_t look_at_whole();
    void look_at_first();
    bool straighten(View &v, PyObject *&array, const std::string &name);
    bool look(bool keep);
    void check_like_first(const View &v, const std::string &name) const;
    const void *contiguous(const View &v);

    nb::object G;
    bool is_list;
    bool unlocks = false;
    int device = View::CPU;
    View whole;
    std::unique_ptr<View[]> views;
    PyObject *objects[SUT_MAX_LOSSES];
    vector_argument given[2];
    int n_given = 0;
    View made; /* the result's */
    std::vector<std::vector<char>> copies;
    Held held;
};

} // namespace suture_python

#endif
