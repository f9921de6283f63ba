/* A context of the library, owned. */
#ifndef SUTURE_PYTHON_CONTEXT_H
#define SUTURE_PYTHON_CONTEXT_H

#include "errors.h"

#include <cstring>
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

inline ContextSettings context_settings(int threads, uint64_t seed, const char *isa)
{
    ContextSettings s;
    s.threads = threads == 0 ? SUT_THREADS_AUTO : threads;
    s.seed = seed;
    for (int k = SUT_ISA_AUTO; k <= SUT_ISA_AVX512; k++)
        if (!strcmp(isa, sut_isa_name((sut_isa)k))) {
            s.isa = (sut_isa)k;
            return s;
        }
    raise(SUT_ERROR_INVALID_ARGUMENT,
          (std::string("there is no instruction set '") + isa + "'; there are auto, baseline, avx2, avx512").c_str());
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
