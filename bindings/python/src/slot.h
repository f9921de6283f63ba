/* Parts of an optimizer's state ("m", "v", "master") as arrays: where they are, or copies of them in the processor's memory. */
#ifndef SUTURE_PYTHON_SLOT_H
#define SUTURE_PYTHON_SLOT_H

#include "engine.h"
#include "layout.h"

namespace suture_python
{

struct Slot {
    void *data = nullptr;
    Layout layout;       /* that of the tensor, in the type of the state */
    bool is_host = true; /* the host can touch it */

    /* Of a tensor with this layout. A name that there is not is refused. */
    Slot(const Engine &engine, const char *name, int64_t tensor, const Layout &of_tensor);
    size_t size() const
    {
        return (size_t)layout.count * sut_dtype_size(layout.dtype);
    }

    /* The state's own memory, which keeps `engine` alive: an array of NumPy, or a DeviceArray. */
    nb::object view(const std::shared_ptr<Engine> &engine) const;
    /* An array of NumPy with memory of its own in this order; *memory has room for size() bytes. */
    nb::object empty(void **memory) const;
    /* The contents of an array of NumPy of this shape and type, in this order. `name` is what refusals call it. */
    std::vector<char> contents(const char *name, nb::handle array) const;
};

} // namespace suture_python

#endif
