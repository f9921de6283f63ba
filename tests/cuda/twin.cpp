/* See twin.h. */
#include "twin.h"

#include "backend/half.h"

#include <cmath>
#include <cstring>

static sut_dtype own_type(sut_dtype dtype)
{
    return dtype == SUT_DTYPE_F64 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
}

static void print(void *, sut_log_level, const char *message)
{
    std::printf("%s\n", message);
}

sut_context *open_gpu()
{
    sut_context_config config;
    sut_context_config_init(&config);
    config.backend = SUT_BACKEND_CUDA;
    config.log = print;
    sut_context *gpu = nullptr;
    if (sut_context_create(&gpu, &config) != SUT_OK)
        std::exit(1);
    return gpu;
}

twin_array::twin_array(sut_dtype dtype_, int64_t count_, size_t shift)
    : dtype(dtype_), count(count_), shift_(shift), host_((size_t)count_ * sut_dtype_size(dtype_) + shift),
      device_(nullptr)
{
    void *memory = nullptr;
    if (!host_.empty())
        CUDA(cudaMalloc(&memory, host_.size()));
    device_ = static_cast<char *>(memory);
}

twin_array::~twin_array()
{
    CUDA(cudaFree(device_));
}

void twin_array::set(int64_t k, double value)
{
    unsigned char *const at = host_.data() + shift_ + (size_t)k * sut_dtype_size(dtype);
    const float single = (float)value;
    const uint16_t half = dtype == SUT_DTYPE_BF16 ? sut_to_bf16(single) : sut_to_f16(single);
    if (dtype == SUT_DTYPE_F64)
        memcpy(at, &value, 8);
    else if (dtype == SUT_DTYPE_F32)
        memcpy(at, &single, 4);
    else
        memcpy(at, &half, 2);
}

double twin_array::get(int64_t k) const
{
    const unsigned char *const at = host_.data() + shift_ + (size_t)k * sut_dtype_size(dtype);
    double value;
    float single;
    uint16_t half;
    if (dtype == SUT_DTYPE_F64)
        return memcpy(&value, at, 8), value;
    if (dtype == SUT_DTYPE_F32)
        return memcpy(&single, at, 4), (double)single;
    memcpy(&half, at, 2);
    return (double)(dtype == SUT_DTYPE_BF16 ? sut_from_bf16(half) : sut_from_f16(half));
}

void twin_array::upload()
{
    if (!host_.empty())
        CUDA(cudaMemcpyAsync(device_, host_.data(), host_.size(), cudaMemcpyHostToDevice));
}

void twin_array::download()
{
    got_.resize(host_.size());
    if (!got_.empty())
        CUDA(cudaMemcpyAsync(got_.data(), device_, got_.size(), cudaMemcpyDeviceToHost));
}

int64_t twin_array::difference() const
{
    for (size_t k = 0; k < got_.size(); ++k)
        if (got_[k] != host_[k])
            return (int64_t)k;
    return -1;
}

twin_array *twin::add(sut_dtype dtype, int64_t count)
{
    const size_t shift = misaligned_ ? sut_dtype_size(dtype) * (1 + arrays_.size() % 3) : 0;
    arrays_.push_back(new twin_array(dtype, count, shift));
    return arrays_.back();
}

twin::twin(const twin_shape &shape, uint64_t seed)
    : m(shape.m), n_tensors((int64_t)shape.lengths.size()), ctx(nullptr), gpu(nullptr), misaligned_(shape.misaligned),
      gaps_(shape.gaps)
{
    const size_t n = shape.lengths.size(), rows = (size_t)m;
    counts_ = shape.lengths;
    dtypes_ = shape.dtypes;
    first_chunk_.assign(n + 1, 0);
    int64_t total = 0;
    for (size_t k = 0; k < n; ++k) {
        first_chunk_[k + 1] = first_chunk_[k] + (counts_[k] + SUT_CHUNK - 1) / SUT_CHUNK;
        total += counts_[k];
    }
    layout = {n_tensors, counts_.data(), dtypes_.data(), first_chunk_.data(), first_chunk_[n], total, nullptr};
    weights.resize(rows);
    lambda.resize(rows);
    correction.resize(rows);
    norms.resize(rows);
    scale.resize(rows);
    cpu_sums.resize((size_t)(SUT_SUM_ROWS + m + m * (m + 1) / 2));
    gpu_sums = cpu_sums;

    sut_context_config config;
    sut_context_config_init(&config);
    config.n_threads = 1;
    CHECK(sut_context_create(&ctx, &config) == SUT_OK && sut_backend_reserve(ctx, m) == SUT_OK, "no CPU context");
    gpu = open_gpu();
    gpu_layout = layout;
    size_t bytes = 0;
    CHECK(gpu->ops->plan_create(gpu, &layout, m, &gpu_layout.plan, &bytes) == SUT_OK, "%s",
          sut_context_last_error(gpu));

    for (size_t k = 0; k < n; ++k) {
        const sut_dtype own = own_type(dtypes_[k]);
        theta_.push_back(add(own, counts_[k]));
        param_.push_back(own == dtypes_[k] ? theta_[k] : add(dtypes_[k], counts_[k]));
        for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot)
            state_.push_back(add(own, counts_[k]));
        u_.push_back(add(own, counts_[k]));
        inverse_.push_back(add(own, counts_[k]));
        p_.push_back(add(own, counts_[k]));
        given_.push_back(add(own, counts_[k]));
    }
    host_rows.assign(rows * n, nullptr);
    device_rows = host_rows;
    for (size_t i = 0; i < rows; ++i)
        for (size_t k = 0; k < n; ++k) {
            row_.push_back(add(dtypes_[k], counts_[k]));
            const bool absent = gaps_ && (k % 4 == 2 || (m > 1 && (i + k) % 5 == 3));
            host_rows[i * n + k] = absent || counts_[k] == 0 ? nullptr : row_.back()->host();
            device_rows[i * n + k] = absent || counts_[k] == 0 ? nullptr : row_.back()->device();
        }
    settings_.resize(n);
    host_tensors_.resize(n);
    for (size_t k = 0; k < n; ++k) {
        sut_pass_tensor *const t = &host_tensors_[k];
        memset(t, 0, sizeof *t);
        t->param = param_[k]->host();
        t->theta = theta_[k]->host();
        for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot)
            t->state[slot] = state_[k * SUT_MAX_SLOTS + (size_t)slot]->host();
        for (size_t i = 0; i < rows; ++i)
            t->present = t->present || host_rows[i * n + k];
        t->setting = &settings_[k];
    }
    device_tensors_ = host_tensors_;
    std::vector<twin_array *> *const outs[3] = {&u_, &inverse_, &p_};
    for (size_t k = 0; k < n; ++k) {
        sut_pass_tensor *const t = &device_tensors_[k];
        t->param = param_[k]->device();
        t->theta = theta_[k]->device();
        for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot)
            t->state[slot] = state_[k * SUT_MAX_SLOTS + (size_t)slot]->device();
        for (int o = 0; o < 3; ++o) {
            /* Some tensors' outputs are not wanted. */
            host_out_[o].push_back(k % 3 == 2 ? nullptr : (*outs[o])[k]->host());
            device_out_[o].push_back(k % 3 == 2 ? nullptr : (*outs[o])[k]->device());
        }
        host_given_.push_back(k % 4 == 3 ? nullptr : given_[k]->host());
        device_given_.push_back(k % 4 == 3 ? nullptr : given_[k]->device());
    }
    fill(seed);
}

twin::~twin()
{
    gpu->ops->plan_destroy(gpu, gpu_layout.plan);
    sut_context_destroy(gpu);
    sut_context_destroy(ctx);
    for (twin_array *a : arrays_)
        delete a;
}

void twin::fill(uint64_t seed)
{
    random_numbers r(seed);
    for (size_t k = 0; k < counts_.size(); ++k)
        for (int64_t j = 0; j < counts_[k]; ++j) {
            theta_[k]->set(j, r.normal());
            if (param_[k] != theta_[k])
                param_[k]->set(j, theta_[k]->get(j));
            /* A first moment in slot 0 or 1, a second moment beside it; both are positive enough to be either. */
            state_[k * 3 + 0]->set(j, 0.01 + r.uniform());
            state_[k * 3 + 1]->set(j, 0.02 + r.uniform());
            state_[k * 3 + 2]->set(j, 0.1 * r.uniform());
            given_[k]->set(j, r.normal());
            u_[k]->set(j, 0);
            inverse_[k]->set(j, 0);
            p_[k]->set(j, 0);
        }
    for (int i = 0; i < m; ++i) {
        double sum = 0;
        for (size_t k = 0; k < counts_.size(); ++k) {
            twin_array *const x = row_[(size_t)i * counts_.size() + k];
            for (int64_t j = 0; j < counts_[k]; ++j) {
                x->set(j, (1 + i % 3) * r.normal());
                sum += host_rows[(size_t)i * counts_.size() + k] ? x->get(j) * x->get(j) : 0;
            }
        }
        norms[(size_t)i] = std::sqrt(sum);
        weights[(size_t)i] = i % 4 == 3 ? 0 : r.normal();
        lambda[(size_t)i] = i % 3 == 1 ? 0 : 0.1 * r.uniform();
        correction[(size_t)i] = 1e-9 * r.normal();
        scale[(size_t)i] = std::ldexp(1.0, 3 - i % 7);
    }
    for (twin_array *a : arrays_)
        a->upload();
    CUDA(cudaDeviceSynchronize());
}

void twin::set_rule(const sut_method_row *row, const sut_hyper &hyper, int64_t t, const std::vector<double> &rates)
{
    double largest = 0;
    for (const double rate : rates)
        largest = rate > largest ? rate : largest;
    for (size_t k = 0; k < settings_.size(); ++k) {
        const double lr = rates[k % rates.size()];
        double mu_prod = t > 1 ? 0.8 : 1;
        memset(&settings_[k], 0, sizeof settings_[k]);
        sut_rule_prepare(row->rule, row->decay_flag, &hyper, t, lr, &mu_prod, 0.7, 0.6, k % 2 == 1, &settings_[k]);
        host_tensors_[k].lr = device_tensors_[k].lr = lr;
        host_tensors_[k].ratio = device_tensors_[k].ratio = largest > 0 ? lr / largest : 0;
    }
}

sut_step_pass twin::base(bool on_device)
{
    sut_step_pass pass;
    memset(&pass, 0, sizeof pass);
    pass.layout = on_device ? &gpu_layout : &layout;
    pass.tensors = on_device ? device_tensors_.data() : host_tensors_.data();
    pass.rows = {on_device ? device_rows.data() : host_rows.data(), m, nullptr};
    pass.weights = weights.data();
    pass.lambda = lambda.data();
    pass.u_scale = 1;
    pass.p_in = on_device ? device_given_.data() : host_given_.data();
    pass.sums = on_device ? gpu_sums.data() : cpu_sums.data();
    return pass;
}

void twin::compare_arrays(const char *what)
{
    for (twin_array *a : arrays_)
        a->download();
    CUDA(cudaDeviceSynchronize());
    for (size_t k = 0; k < arrays_.size(); ++k) {
        const int64_t at = arrays_[k]->difference();
        CHECK(at < 0, "%s: array %zu (%s, %lld elements) differs at byte %lld", what, k,
              sut_dtype_name(arrays_[k]->dtype), (long long)arrays_[k]->count, (long long)at);
    }
}

/* What each sum could be at most, by Cauchy and Schwarz. */
static double bound(const std::vector<double> &sums, const std::vector<double> &norms, int m, bool update, int k)
{
    const double pp = sums[SUT_SUM_PP], dd = sums[SUT_SUM_DD], uu = sums[SUT_SUM_UU];
    if (k < SUT_SUM_ROWS)
        return k == SUT_SUM_PU   ? std::sqrt(pp) * (std::sqrt(pp) + std::sqrt(dd))
               : k == SUT_SUM_DD ? pp + dd
                                 : sums[(size_t)k];
    if (k < SUT_SUM_ROWS + m)
        return norms[(size_t)(k - SUT_SUM_ROWS)] * std::sqrt(update ? pp : uu);
    int i = 0, j = k - SUT_SUM_ROWS - m;
    while (j > i)
        j -= ++i;
    const double *const K = &sums[(size_t)(SUT_SUM_ROWS + m)];
    return std::sqrt(K[i * (i + 1) / 2 + i] * K[j * (j + 1) / 2 + j]);
}

void twin::run(const sut_step_pass &like, bool outputs, double tolerance, const char *what)
{
    sut_step_pass on[2];
    for (int device = 0; device < 2; ++device) {
        const sut_step_pass own = base(device != 0);
        on[device] = like;
        on[device].layout = own.layout;
        on[device].tensors = own.tensors;
        on[device].rows.data = own.rows.data;
        on[device].p_in = own.p_in;
        on[device].sums = own.sums;
        std::vector<void *> *const out = device ? device_out_ : host_out_;
        const bool update = like.kind == SUT_PASS_APPLY || like.kind == SUT_PASS_MEASURE;
        on[device].u_out = outputs && !update ? out[0].data() : nullptr;
        on[device].inverse_out = outputs && !update ? out[1].data() : nullptr;
        on[device].p_out = outputs && update ? out[2].data() : nullptr;
    }
    CHECK(ctx->ops->step(ctx, &on[0]) == SUT_OK, "%s", what);
    CHECK(gpu->ops->step(gpu, &on[1]) == SUT_OK, "%s: %s", what, sut_context_last_error(gpu));
    compare_arrays(what);
    if (!like.want_sums)
        return;
    const bool update = like.kind == SUT_PASS_APPLY || like.kind == SUT_PASS_MEASURE;
    const int n = SUT_SUM_ROWS + m + (like.want_metric ? m * (m + 1) / 2 : 0);
    for (int k = 0; k < n; ++k) {
        double allowed = 0;
        for (int i = 0; i < m && like.rows.scale; ++i)
            allowed = scale[(size_t)i] > allowed ? scale[(size_t)i] : allowed;
        allowed = tolerance * bound(cpu_sums, norms, m, update, k) * (allowed > 0 ? allowed : 1);
        const double difference = std::fabs(cpu_sums[(size_t)k] - gpu_sums[(size_t)k]);
        CHECK(difference <= allowed, "%s: sum %d is %.17g, the CPU's %.17g (%.2g allowed)", what, k,
              gpu_sums[(size_t)k], cpu_sums[(size_t)k], allowed);
    }
}
