/* A context of the library, owned. */
#ifndef SUTURE_PYTHON_CONTEXT_H
#define SUTURE_PYTHON_CONTEXT_H

#include "array.h"
#include "convert.h"
#include "errors.h"

#include <memory>
#include <string>

namespace suture_python
{

struct ContextSettings {
    int threads = SUT_THREADS_AUTO;
    uint64_t seed = 0;
    sut_isa isa = SUT_ISA_AUTO;
    int device = View::CPU;
    int64_t stream = 0; /* of a CUDA device; 0: its default stream */

    bool operator==(const ContextSettings &other) const
    {
        return threads == other.threads && seed == other.seed && isa == other.isa && device == other.device &&
               stream == other.stream;
    }
};

class Context
{
  public:
    Context() = default;
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;
    ~Context()
    {
        sut_context_destroy(ctx);
    }

    /* whose: what lies on the device, for the refusal where it cannot be used. On CUDA Python code may run. */
    void open(const ContextSettings &settings, const std::string &whose);
    /* Queue what comes on another stream of the device. */
    void follow(int64_t stream);
    bool on_cuda() const
    {
        return settings.device != View::CPU;
    }

    sut_context *ctx = nullptr;
    ContextSettings settings;

  private:
    std::string said; /* the last line that the library logged */
};

/* threads: 0 for one per processor. */
ContextSettings context_settings(nb::handle threads, nb::handle seed = nb::handle(), nb::handle isa = nb::handle());

/*
 * The context of the calls without state, of this thread: made when it is first needed or when settings change. On CUDA a few
 * are kept, one for each stream: their workspaces are used in the order of a stream, and nobody but us could order two.
 */
sut_context *thread_context(const ContextSettings &settings, const std::string &whose);

} // namespace suture_python

#endif
