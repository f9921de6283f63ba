/*
 * The library's objects alone: an optimizer and its context, which on a GPU is its own: whoever drops the last view of the
 * state, in whatever thread, meets nobody there. Views of the state hold on to this and not to the arrays, so that
 * they do not hide a reference cycle through the arrays from the garbage collector.
 */
#ifndef SUTURE_PYTHON_ENGINE_H
#define SUTURE_PYTHON_ENGINE_H

#include "context.h"
#include "tensors.h"

#include <memory>
#include <vector>

namespace suture_python
{

struct Engine {
    std::shared_ptr<Context> context;
    sut_optimizer *opt = nullptr;
    /* Nobody but the engine knows whether a stream is still there that is not PyTorch's: then the default stream is waited for,
     * and the device, by what frees memory. */
    bool streams_may_end = false;
    ~Engine()
    {
        if (opt && streams_may_end)
            (void)sut_context_set_stream(context->ctx, nullptr);
        sut_optimizer_destroy(opt);
    }
};

/* The f32 master copies of 16-bit parameters, read from and given back to an optimizer: they are no part of a state file
 * without parameters, which says what the library's own rounding of a parameter cannot. One entry per tensor, empty for those
 * that have none. */
using Masters = std::vector<std::vector<float>>;
Masters read_masters(sut_optimizer *opt, Tensors &tensors);
/* An element that still is the rounding of its old master copy was not written to from outside: the copy's further digits are
 * taken back. */
void restore_masters(sut_optimizer *opt, Tensors &tensors, const Masters &old);

} // namespace suture_python

#endif
