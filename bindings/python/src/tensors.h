/*
 * The arrays that an optimizer updates, and the gradients of one call, as pointers for the library.
 *
 * Before each call every parameter is looked at again: its memory may have been replaced (module.to(), p.data = ...), freed or
 * resized, and a pointer into freed memory must never reach the library. What a step costs beyond the library's own time
 * matters here: a training loop of a small network calls it a hundred thousand times. So all pointers are collected in one
 * loop in C++, which for plain tensors and arrays calls nothing of Python.
 */
#ifndef SUTURE_PYTHON_TENSORS_H
#define SUTURE_PYTHON_TENSORS_H

#include "array.h"
#include "layout.h"

#include <string>
#include <vector>

namespace suture_python
{

struct Parameter {
    std::string name;
    nb::object array;
    int group = 0;
    Layout layout;
    void *data = nullptr; /* as the last look found it; NULL without elements */
    void *told = nullptr; /* as the library was told */

    bool has_master() const
    {
        return layout.dtype == SUT_DTYPE_BF16 || layout.dtype == SUT_DTYPE_F16;
    }
};

class Tensors
{
  public:
    /* entries: tuples (name, array, group). */
    Tensors(nb::list entries, int n_losses, std::vector<std::string> loss_names);

    size_t size() const
    {
        return all.size();
    }
    Parameter &operator[](size_t k)
    {
        return all[k];
    }
    const std::vector<Parameter> &parameters() const
    {
        return all;
    }
    int n_losses() const
    {
        return m;
    }
    /* Where all of them are, as the last look found it: a device of View. */
    int device() const
    {
        return place;
    }
    /* They are tensors of PyTorch (the first one is), whose current stream is asked for. */
    bool of_torch() const
    {
        return torch;
    }
    /* On CUDA: the stream of the coming look. The last look's, where the parameters themselves say it. */
    void set_stream(int64_t current)
    {
        on_stream = current;
    }
    int64_t stream() const
    {
        return on_stream;
    }
    /* For sut_optimizer_config, from the last look; the names stay where they are. */
    std::vector<sut_tensor> descriptions() const;
    /* The library was told what descriptions() gives. */
    void told();

    /* The gradients of the coming look: a list of n_losses lists with one array (or None) per tensor ... */
    void gather(PyObject *rows);
    /* ... or, for one loss, the attributes `grad`. */
    void gather_attributes();
    /* Whether what was gathered is more than None. */
    bool has_gradient() const
    {
        for (PyObject *gradient : given)
            if (gradient != Py_None)
                return true;
        return false;
    }

    /*
     * Look at every parameter, and at the gradients that were gathered. True when a parameter's memory is not what the library
     * was told, but of the same kind (all of them may lie on another device). Anything that does not fit throws. What was looked at stays as it is until release(); with
     * `unlocks` even while other threads run.
     */
    bool look(bool unlocks);
    /* Gives back what was looked at, and keeps what was gathered. */
    void release_looked()
    {
        looked.clear();
    }
    void release();

    /* After look(): n_losses * size() pointers. */
    const void *const *gradients() const
    {
        return pointers.data();
    }
    /*
     * Between gather and look: a list of one array per tensor, contiguous, of its shape, f64 for f64 tensors and else f32, which
     * the library writes (or reads). None for the list gives no pointers, None in it a NULL. They stay until release().
     */
    std::vector<void *> outputs(nb::object list, const char *what, bool write, bool unlocks);

    /* A call over everything need not release the interpreter lock. */
    bool is_small() const
    {
        return small;
    }
    int traverse(visitproc visit, void *arg) const;
    void clear();

  private:
    bool look_once(bool unlocks, bool *ran_code);
    void look_at_gradient(int i, size_t k, PyObject *gradient, bool unlocks, bool *ran_code);
    std::string gradient_name(int i, size_t k) const;
    void check_place(const View &view, const std::string &what, const char *needed) const;
    void take_place(const View &view, size_t k);
    PyObject *laid_out(int i, size_t k, PyObject *gradient);

    std::vector<Parameter> all;
    int m;
    int place = View::CPU;
    bool torch = false;
    int64_t on_stream = 0;
    std::vector<std::string> names_of_losses;
    bool small = false;
    std::vector<PyObject *> given; /* gradients, held in `gathered` */
    std::vector<const void *> pointers;
    std::vector<std::vector<char>> copies;
    Held gathered, looked;
    nb::str grad_name;
};

} // namespace suture_python

#endif
