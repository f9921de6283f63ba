/* See context.h. */
#include "context.h"
#include "device.h"

namespace suture_python
{

/* The device is current for this thread in this scope, if its number is known: the library takes the one that is current. */
class OnDevice
{
  public:
    explicit OnDevice(int device)
    {
        if (device < 0)
            return;
        scope = cuda_function("device")(device);
        scope.attr("__enter__")();
    }
    ~OnDevice()
    {
        if (!scope.is_valid())
            return;
        try {
            scope.attr("__exit__")(nb::none(), nb::none(), nb::none());
        } catch (nb::python_error &error) {
            error.discard_as_unraisable("leaving a CUDA device");
        }
    }
    OnDevice(const OnDevice &) = delete;
    OnDevice &operator=(const OnDevice &) = delete;

  private:
    nb::object scope;
};

static void keep_line(void *text, sut_log_level, const char *message)
{
    *static_cast<std::string *>(text) = message;
}

static std::string without(const std::string &text, const std::string &prefix)
{
    return text.rfind(prefix, 0) == 0 ? text.substr(prefix.size()) : text;
}

void Context::open(const ContextSettings &wanted, const std::string &whose)
{
    sut_context_destroy(ctx);
    ctx = nullptr;
    const bool cuda = wanted.device != View::CPU;
    said.clear();
    sut_context_config config;
    sut_context_config_init(&config);
    config.backend = cuda ? SUT_BACKEND_CUDA : SUT_BACKEND_CPU;
    config.n_threads = wanted.threads;
    config.seed = wanted.seed;
    config.isa = wanted.isa;
    config.stream = reinterpret_cast<void *>(wanted.stream);
    config.log = keep_line;
    config.log_user = &said;
    sut_status status;
    {
        const OnDevice scope(wanted.device);
        status = sut_context_create(&ctx, &config);
    }
    if (status == SUT_ERROR_OUT_OF_RANGE)
        raise(status, ("threads is " + std::to_string(wanted.threads) + "; allowed is 1 to 1024").c_str());
    const bool can_be_built = said.find("SUTURE_BUILD_CUDA") != std::string::npos; /* it was not found */
    if (status == SUT_ERROR_BACKEND && cuda)
        raise(status, (whose + " is on " + device_text(wanted.device) +
                       ", and there is no CUDA back end: " + without(without(said, "context: "), "no CUDA back end: ") +
                       (can_be_built ? "; for this package: pip install . -C cmake.define.SUTURE_BUILD_CUDA=ON" : "") +
                       "; or move everything to the CPU")
                          .c_str());
    if (status != SUT_OK && cuda)
        raise(status, (whose + " is on " + device_text(wanted.device) + ": " + without(said, "context: ")).c_str());
    if (status != SUT_OK)
        raise(status, "no context: the back end or instruction set asked for is not available here; see "
                      "suture.diagnose()");
    settings = wanted;
}

void Context::follow(int64_t stream)
{
    if (stream == settings.stream)
        return;
    check(sut_context_set_stream(ctx, reinterpret_cast<void *>(stream)), ctx);
    settings.stream = stream;
}

ContextSettings context_settings(nb::handle threads, nb::handle seed, nb::handle isa)
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

static sut_context *cuda_context(const ContextSettings &settings, const std::string &whose)
{
    enum { KEPT = 4 };
    static thread_local std::vector<std::unique_ptr<Context>> contexts;
    for (const std::unique_ptr<Context> &context : contexts)
        if (context->settings == settings)
            return context->ctx;
    std::unique_ptr<Context> made(new Context);
    made->open(settings, whose);
    if (contexts.size() == KEPT)
        contexts.erase(contexts.begin()); /* which waits for its stream */
    contexts.push_back(std::move(made));
    return contexts.back()->ctx;
}

sut_context *thread_context(const ContextSettings &settings, const std::string &whose)
{
    static thread_local Context context;
    if (settings.device != View::CPU)
        return cuda_context(settings, whose);
    if (!context.ctx || !(context.settings == settings))
        context.open(settings, whose);
    return context.ctx;
}

} // namespace suture_python
