/*
 * Lets a test that knows host memory only run on a CUDA context. Test programs are linked with --wrap for the calls that take
 * arrays: each of them then goes through here, and on a CUDA context every array of the caller gets a copy in device memory,
 * before the call and after it. Arrays that overlap keep their overlap, and addresses their offset from a 64-byte boundary.
 *
 * SUTURE_BACKEND=cuda (support/isa.c) makes the contexts of a test CUDA contexts. On others everything passes through.
 */
#include "suture/suture.h"

#include "exec.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime.h> /* after the others: it takes words of the language for itself */

#define WRAPPED(result, name, parameters) \
    result __real_##name parameters;      \
    result __wrap_##name parameters

namespace
{

void demand(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    std::fprintf(stderr, "mirror: %s: %s\n", what, cudaGetErrorString(error));
    std::exit(2);
}

/* These tests make many small calls. */
const int watched = exec::watch_every = 16;

/* A copy of [host, host + size) on the device. */
struct block {
    char *host;
    std::size_t size, offset;
    char *memory = nullptr;
    block(const void *host_, std::size_t size_)
        : host(static_cast<char *>(const_cast<void *>(host_))), size(size_), offset((std::uintptr_t)host_ % 64)
    {
        void *p = nullptr;
        demand(cudaMalloc(&p, size + offset), "an array");
        memory = static_cast<char *>(p);
        upload();
    }
    ~block()
    {
        (void)cudaFree(memory);
    }
    block(const block &) = delete;
    block &operator=(const block &) = delete;
    void upload()
    {
        if (size)
            demand(cudaMemcpy(memory + offset, host, size, cudaMemcpyHostToDevice), "upload");
    }
    void download()
    {
        std::vector<char> now(size);
        if (size && cudaMemcpy(now.data(), memory + offset, size, cudaMemcpyDeviceToHost) == cudaSuccess &&
            std::memcmp(now.data(), host, size) != 0)
            std::memcpy(host, now.data(), size);
    }
    bool holds(const void *p) const
    {
        return (std::uintptr_t)p >= (std::uintptr_t)host && (std::uintptr_t)p < (std::uintptr_t)host + size;
    }
    char *at(const void *p) const
    {
        return memory + offset + ((std::uintptr_t)p - (std::uintptr_t)host);
    }
};

typedef std::vector<std::unique_ptr<block>> blocks;

/* The arrays of one call. Those that meet a block that is there already become part of it. */
class call
{
  public:
    explicit call(const blocks *kept) : kept_(kept)
    {
    }
    void add(const void *p, std::size_t size)
    {
        if (p && size && !find(p))
            spans_.push_back({static_cast<const char *>(p), static_cast<const char *>(p) + size});
    }
    /* After all have been added. */
    void begin()
    {
        std::sort(spans_.begin(), spans_.end());
        for (std::size_t k = 0; k < spans_.size();) {
            const char *const first = spans_[k].first, *last = spans_[k].second;
            for (++k; k < spans_.size() && spans_[k].first < last; ++k)
                last = std::max(last, spans_[k].second);
            own_.emplace_back(new block(first, (std::size_t)(last - first)));
        }
    }
    void *to_device(const void *p) const
    {
        const block *const b = p ? find(p) : nullptr;
        return b ? b->at(p) : const_cast<void *>(p);
    }
    void finish()
    {
        for (const auto &b : own_)
            b->download();
    }

  private:
    const block *find(const void *p) const
    {
        for (const auto &b : own_)
            if (b->holds(p))
                return b.get();
        for (std::size_t k = 0; kept_ && k < kept_->size(); ++k)
            if ((*kept_)[k]->holds(p))
                return (*kept_)[k].get();
        return nullptr;
    }
    const blocks *kept_;
    std::vector<std::pair<const char *, const char *>> spans_;
    blocks own_;
};

/* An optimizer's parameters, and the states that the test has looked at. */
struct state_copy {
    std::vector<char> host;
    void *device;
};
struct mirror {
    int m = 0;
    std::vector<sut_tensor> tensors; /* as the test gave them */
    std::vector<std::size_t> count;
    blocks parameters;
    std::map<std::pair<std::string, std::int64_t>, state_copy> states;

    std::size_t own_size(std::size_t k) const
    {
        return count[k] * (tensors[k].dtype == SUT_DTYPE_F64 ? 8 : 4);
    }
    void upload()
    {
        for (const auto &b : parameters)
            b->upload();
        for (auto &s : states)
            demand(cudaMemcpy(s.second.device, s.second.host.data(), s.second.host.size(), cudaMemcpyHostToDevice),
                   "a state");
    }
    void download()
    {
        for (const auto &b : parameters)
            b->download();
        for (auto &s : states)
            (void)cudaMemcpy(s.second.host.data(), s.second.device, s.second.host.size(), cudaMemcpyDeviceToHost);
    }
};

std::map<const sut_optimizer *, std::unique_ptr<mirror>> &mirrors()
{
    static std::map<const sut_optimizer *, std::unique_ptr<mirror>> all;
    return all;
}

mirror *mirror_of(const sut_optimizer *opt)
{
    const auto found = mirrors().find(opt);
    return found == mirrors().end() ? nullptr : found->second.get();
}

/* The lists of pointers of a call on an optimizer. */
class step_call
{
  public:
    step_call(mirror *m, const void *const *grads) : m_(m), call_(&m->parameters), grads_(grads)
    {
        for (std::size_t k = 0; grads && k < (std::size_t)m->m * n(); ++k)
            call_.add(grads[k], m->count[k % n()] * sut_dtype_size(m->tensors[k % n()].dtype));
    }
    void add(const void *const *arrays)
    {
        for (std::size_t k = 0; arrays && k < n(); ++k)
            call_.add(arrays[k], m_->own_size(k));
    }
    void begin()
    {
        call_.begin();
        m_->upload();
        for (std::size_t k = 0; grads_ && k < (std::size_t)m_->m * n(); ++k)
            device_grads_.push_back(call_.to_device(grads_[k]));
    }
    const void *const *grads() const
    {
        return grads_ ? device_grads_.data() : nullptr;
    }
    void *const *list(const void *const *arrays, std::vector<void *> *storage) const
    {
        for (std::size_t k = 0; arrays && k < n(); ++k)
            storage->push_back(call_.to_device(arrays[k]));
        return arrays ? storage->data() : nullptr;
    }
    sut_status finish(sut_status status)
    {
        call_.finish();
        m_->download();
        return status;
    }

  private:
    std::size_t n() const
    {
        return m_->tensors.size();
    }
    mirror *m_;
    call call_;
    const void *const *grads_;
    std::vector<const void *> device_grads_;
};

bool is_cuda(const sut_context *ctx)
{
    return sut_context_backend(ctx) == SUT_BACKEND_CUDA;
}

} // namespace

extern "C" {

WRAPPED(sut_status, sut_optimizer_create,
        (sut_optimizer * *opt_out, sut_context *ctx, const sut_optimizer_config *config))
{
    const bool complete = config && config->struct_size == sizeof *config && config->tensors && config->n_tensors > 0 &&
                          config->n_tensors < 100000;
    if (!is_cuda(ctx) || !opt_out || !complete)
        return __real_sut_optimizer_create(opt_out, ctx, config);
    std::unique_ptr<mirror> m(new mirror);
    m->m = config->n_losses;
    m->tensors.assign(config->tensors, config->tensors + config->n_tensors);
    std::vector<sut_tensor> on_device = m->tensors;
    for (sut_tensor &t : on_device) {
        std::size_t count = 1;
        for (int d = 0; d < t.n_dims && d < SUT_MAX_DIMS; ++d)
            count *= (std::size_t)t.shape[d];
        m->count.push_back(count);
        if (!t.data || count == 0)
            continue;
        m->parameters.emplace_back(new block(t.data, count * sut_dtype_size(t.dtype)));
        t.data = m->parameters.back()->at(t.data);
    }
    sut_optimizer_config own = *config;
    own.tensors = on_device.data();
    const sut_status status = __real_sut_optimizer_create(opt_out, ctx, &own);
    if (status == SUT_OK)
        mirrors()[*opt_out] = std::move(m);
    return status;
}

WRAPPED(void, sut_optimizer_destroy, (sut_optimizer * opt))
{
    __real_sut_optimizer_destroy(opt);
    mirrors().erase(opt);
}

WRAPPED(sut_status, sut_optimizer_step,
        (sut_optimizer * opt, const void *const *grads, const double *losses, sut_report *report))
{
    mirror *const m = mirror_of(opt);
    if (!m)
        return __real_sut_optimizer_step(opt, grads, losses, report);
    step_call c(m, grads);
    c.begin();
    return c.finish(__real_sut_optimizer_step(opt, c.grads(), losses, report));
}

WRAPPED(sut_status, sut_optimizer_direction,
        (sut_optimizer * opt, const void *const *grads, const double *losses, double *weights_out, void *const *a_out))
{
    mirror *const m = mirror_of(opt);
    if (!m)
        return __real_sut_optimizer_direction(opt, grads, losses, weights_out, a_out);
    std::vector<void *> a;
    step_call c(m, grads);
    c.add(a_out);
    c.begin();
    return c.finish(__real_sut_optimizer_direction(opt, c.grads(), losses, weights_out, c.list(a_out, &a)));
}

WRAPPED(sut_status, sut_optimizer_propose,
        (sut_optimizer * opt, const void *const *grads, const double *losses, void *const *u_out,
         void *const *inverse_metric_out))
{
    mirror *const m = mirror_of(opt);
    if (!m)
        return __real_sut_optimizer_propose(opt, grads, losses, u_out, inverse_metric_out);
    std::vector<void *> u, inverse;
    step_call c(m, grads);
    c.add(u_out);
    c.add(inverse_metric_out);
    c.begin();
    return c.finish(
        __real_sut_optimizer_propose(opt, c.grads(), losses, c.list(u_out, &u), c.list(inverse_metric_out, &inverse)));
}

WRAPPED(sut_status, sut_optimizer_project,
        (sut_optimizer * opt, const void *const *grads, void *const *p_out, sut_report *report))
{
    mirror *const m = mirror_of(opt);
    if (!m)
        return __real_sut_optimizer_project(opt, grads, p_out, report);
    std::vector<void *> p;
    step_call c(m, grads);
    c.add(p_out);
    c.begin();
    return c.finish(__real_sut_optimizer_project(opt, c.grads(), c.list(p_out, &p), report));
}

WRAPPED(sut_status, sut_optimizer_apply,
        (sut_optimizer * opt, const void *const *grads, const void *const *p, sut_report *report))
{
    mirror *const m = mirror_of(opt);
    if (!m)
        return __real_sut_optimizer_apply(opt, grads, p, report);
    std::vector<void *> given;
    step_call c(m, grads);
    c.add(p);
    c.begin();
    return c.finish(__real_sut_optimizer_apply(opt, c.grads(), (const void *const *)c.list(p, &given), report));
}

WRAPPED(sut_status, sut_optimizer_parameters_changed, (sut_optimizer * opt))
{
    mirror *const m = mirror_of(opt);
    if (m)
        m->upload();
    const sut_status status = __real_sut_optimizer_parameters_changed(opt);
    if (m)
        m->download();
    return status;
}

WRAPPED(sut_status, sut_optimizer_state,
        (sut_optimizer * opt, const char *slot, int64_t tensor, void **data_out, sut_dtype *dtype_out,
         int64_t *count_out))
{
    mirror *const m = mirror_of(opt);
    sut_dtype dtype;
    int64_t count;
    const sut_status status = __real_sut_optimizer_state(opt, slot, tensor, data_out, &dtype, &count);
    if (status != SUT_OK)
        return status;
    if (dtype_out)
        *dtype_out = dtype;
    if (count_out)
        *count_out = count;
    if (!m || count == 0 || std::strcmp(slot, "mu_prod") == 0) /* that one is the host's */
        return status;
    state_copy &s = m->states[{slot, tensor}];
    s.device = *data_out;
    s.host.resize((std::size_t)count * sut_dtype_size(dtype));
    demand(cudaMemcpy(s.host.data(), s.device, s.host.size(), cudaMemcpyDeviceToHost), "a state");
    *data_out = s.host.data();
    return status;
}

WRAPPED(sut_status, sut_optimizer_get_tensor, (const sut_optimizer *opt, int64_t tensor, sut_tensor *tensor_out))
{
    mirror *const m = mirror_of(opt);
    const sut_status status = __real_sut_optimizer_get_tensor(opt, tensor, tensor_out);
    if (status == SUT_OK && m)
        tensor_out->data = m->tensors[(std::size_t)tensor].data;
    return status;
}

/* State files: the parameters in device memory are those of the test, before and after. */
#define MIRRORED(opt, expression)          \
    do {                                   \
        mirror *const m = mirror_of(opt);  \
        if (m)                             \
            m->upload();                   \
        const sut_status s = (expression); \
        if (m)                             \
            m->download();                 \
        return s;                          \
    } while (0)

WRAPPED(sut_status, sut_optimizer_save, (sut_optimizer * opt, const char *path, const sut_checkpoint_config *config))
{
    MIRRORED(opt, __real_sut_optimizer_save(opt, path, config));
}

WRAPPED(sut_status, sut_optimizer_load, (sut_optimizer * opt, const char *path, const sut_checkpoint_config *config))
{
    MIRRORED(opt, __real_sut_optimizer_load(opt, path, config));
}

WRAPPED(sut_status, sut_optimizer_save_memory,
        (sut_optimizer * opt, const sut_checkpoint_config *config, void **data_out, size_t *size_out))
{
    MIRRORED(opt, __real_sut_optimizer_save_memory(opt, config, data_out, size_out));
}

WRAPPED(sut_status, sut_optimizer_load_memory,
        (sut_optimizer * opt, const void *data, size_t size, const sut_checkpoint_config *config))
{
    MIRRORED(opt, __real_sut_optimizer_load_memory(opt, data, size, config));
}

WRAPPED(sut_status, sut_surgery_direction,
        (sut_context * ctx, const sut_surgery_config *config, const void *const *grads, int m, int64_t n,
         sut_dtype dtype, const double *losses, uint64_t counter, void *out, sut_surgery_report *report))
{
    if (!is_cuda(ctx) || !grads || m < 1 || m > SUT_MAX_LOSSES || n < 1 || n > 1 << 28)
        return __real_sut_surgery_direction(ctx, config, grads, m, n, dtype, losses, counter, out, report);
    const std::size_t size = (std::size_t)n * sut_dtype_size(dtype);
    std::vector<const void *> rows;
    call c(nullptr);
    for (int i = 0; i < m; ++i)
        c.add(grads[i], size);
    c.add(out, size);
    c.begin();
    for (int i = 0; i < m; ++i)
        rows.push_back(c.to_device(grads[i]));
    const sut_status status =
        __real_sut_surgery_direction(ctx, config, rows.data(), m, n, dtype, losses, counter, c.to_device(out), report);
    c.finish();
    return status;
}

WRAPPED(sut_status, sut_cone_project,
        (sut_context * ctx, const sut_cone_config *config, const void *const *grads, int m, int64_t n, sut_dtype dtype,
         const void *u, const void *metric, void *p, sut_cone_report *report))
{
    if (!is_cuda(ctx) || !grads || m < 1 || m > SUT_MAX_LOSSES || n < 1 || n > 1 << 28)
        return __real_sut_cone_project(ctx, config, grads, m, n, dtype, u, metric, p, report);
    const std::size_t size = (std::size_t)n * sut_dtype_size(dtype);
    std::vector<const void *> rows;
    call c(nullptr);
    for (int i = 0; i < m; ++i)
        c.add(grads[i], size);
    c.add(u, size);
    c.add(metric, size);
    c.add(p, size);
    c.begin();
    for (int i = 0; i < m; ++i)
        rows.push_back(c.to_device(grads[i]));
    const sut_status status = __real_sut_cone_project(ctx, config, rows.data(), m, n, dtype, c.to_device(u),
                                                      c.to_device(metric), c.to_device(p), report);
    c.finish();
    return status;
}

} // extern "C"
