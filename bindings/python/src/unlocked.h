/*
 * The interpreter lock released for a scope. When the interpreter shuts down, it ends every thread that asks for the lock
 * again (a daemon thread in the middle of a step), by a forced unwinding that C++ would answer with an abort: such a thread
 * rests here until the process is gone.
 */
#ifndef SUTURE_PYTHON_UNLOCKED_H
#define SUTURE_PYTHON_UNLOCKED_H

#include <nanobind/nanobind.h>

#include <cxxabi.h>
#include <unistd.h>

namespace suture_python
{

class Unlocked
{
  public:
    Unlocked() : state(PyEval_SaveThread())
    {
    }
    Unlocked(const Unlocked &) = delete;
    Unlocked &operator=(const Unlocked &) = delete;
    ~Unlocked()
    {
        try {
            PyEval_RestoreThread(state);
        } catch (abi::__forced_unwind &) {
            for (;;)
                (void)pause();
        }
    }

  private:
    PyThreadState *state;
};

} // namespace suture_python

#endif
