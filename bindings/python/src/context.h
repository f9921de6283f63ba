/* A context of the library, owned. */
#ifndef SUTURE_PYTHON_CONTEXT_H
#define SUTURE_PYTHON_CONTEXT_H

#include "convert.h"
#include "errors.h"

#include <string>

namespace suture_python
{

struct ContextSettings {
    int threads = SUT_THREADS_AUTO;
    uint64_t seed = 0;
    sut_isa isa = SUT_ISA_AUTO;

    bool operator==(const ContextSettings &other) const
    {
        return threads == other.threads && seed == other.seed && isa == other.isa;
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

    void open(const ContextSettings &settings)
    {
        sut_context_destroy(ctx);
        ctx = nullptr;
        sut_context_config config;
        sut_context_config_init(&config);
        config.backend = SUT_BACKEND_CPU; /* that is where the arrays are */
        config.n_threads = settings.threads;
        config.seed = settings.seed;
        config.isa = settings.isa;
        const sut_status status = sut_context_create(&ctx, &config);
        if (status == SUT_ERROR_OUT_OF_RANGE)
            raise(status, ("threads is " + std::to_string(settings.threads) + "; allowed is 1 to 1024").c_str());
        if (status != SUT_OK)
            raise(status, "no context: the back end or instruction set asked for is not available here; see "
                          "suture.diagnose()");
        this->settings = settings;
    }

    sut_context *ctx = nullptr;
    ContextSettings settings;
};

/* threads: 0 for one per processor. */
inline ContextSettings context_settings(nanobind::handle threads, nanobind::handle seed = nanobind::handle(),
                                        nanobind::handle isa = nanobind::handle())
{
    ContextSettings s;
    s.threads = (int)integer("threads", threads, 0, 1024);
    if (s.threads == 0)
        s.threads = SUT_THREADS_AUTO;
    if (seed.is_valid())
        s.seed = counter("seed", seed);
    if (!isa.is_valid())
        return s;
    const std::string name = text("isa", isa);
    for (int k = SUT_ISA_AUTO; k <= SUT_ISA_AVX512; k++)
        if (name == sut_isa_name((sut_isa)k)) {
            s.isa = (sut_isa)k;
            return s;
        }
    raise(SUT_ERROR_INVALID_ARGUMENT,
          ("there is no instruction set '" + name + "'; there are auto, baseline, avx2, avx512").c_str());
}

/* The context of the calls without state: one per thread, made when it is first needed or when settings change. */
inline sut_context *thread_context(const ContextSettings &settings)
{
    static thread_local Context context;
    if (!context.ctx || !(context.settings == settings))
        context.open(settings);
    return context.ctx;
}

} // namespace suture_python

#endif
