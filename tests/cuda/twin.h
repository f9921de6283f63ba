/*
 * A problem twice, in host and in device memory: tensors of ragged lengths and odd addresses, their states, the gradients of m
 * losses, and what a pass may be given or asked for. A pass runs on both; afterwards every array must hold the same bits.
 */
#ifndef SUT_TEST_CUDA_TWIN_H
#define SUT_TEST_CUDA_TWIN_H

#include "check.h"
#include "kernels/host.h"
#include "random.h"

#include <cuda_runtime.h>
#include <vector>

extern "C" {
#include "optim/optimizer.h"
}

/* A context on the execution layer's device, through the library that libsuture opens. */
sut_context *open_gpu();

/* One array in both memories; `shift` bytes beside an address that suits vectors. */
class twin_array
{
  public:
    twin_array(sut_dtype dtype, int64_t count, size_t shift);
    ~twin_array();
    twin_array(const twin_array &) = delete;
    twin_array &operator=(const twin_array &) = delete;

    void *host()
    {
        return host_.data() + shift_;
    }
    void *device()
    {
        return device_ + shift_;
    }
    void set(int64_t k, double value);
    double get(int64_t k) const;
    /* Queued on the default stream: wait before the device's part is looked at. */
    void upload();
    void download();
    /* Index of the first byte in which what was downloaded differs, -1: the same. */
    int64_t difference() const;

    const sut_dtype dtype;
    const int64_t count;

  private:
    size_t shift_;
    std::vector<unsigned char> host_, got_;
    char *device_;
};

struct twin_shape {
    std::vector<int64_t> lengths;
    std::vector<sut_dtype> dtypes; /* one for each tensor */
    int m = 2;
    bool misaligned = false;
    bool gaps = false; /* tensors without any gradient, and rows that are absent here and there */
};

class twin
{
  public:
    twin(const twin_shape &shape, uint64_t seed);
    ~twin();
    twin(const twin &) = delete;
    twin &operator=(const twin &) = delete;

    /* Fresh contents of everything, the same in both memories. */
    void fill(uint64_t seed);
    /* Constants of every tensor; rates[k % size], the ratio is to the largest. */
    void set_rule(const sut_method_row *row, const sut_hyper &hyper, int64_t t, const std::vector<double> &rates);
    /* A pass with everything but kind, update and switches filled in; the outputs are there but not asked for. */
    sut_step_pass base(bool on_device);
    /* Runs both, compares every array, and the sums to `tolerance` of what each could be at most. */
    void run(const sut_step_pass &like, bool outputs, double tolerance, const char *what);
    void compare_arrays(const char *what);

    const int m;
    const int64_t n_tensors;
    sut_layout layout, gpu_layout; /* the second with its plan */
    sut_context *ctx, *gpu;
    std::vector<double> weights, lambda, correction, norms, scale;
    std::vector<double> cpu_sums, gpu_sums;
    std::vector<const void *> host_rows, device_rows;

  private:
    twin_array *add(sut_dtype dtype, int64_t count);
    std::vector<twin_array *> arrays_;
    std::vector<int64_t> counts_, first_chunk_;
    std::vector<sut_dtype> dtypes_;
    std::vector<twin_array *> param_, theta_, u_, inverse_, p_, given_, state_, row_;
    std::vector<sut_pass_tensor> host_tensors_, device_tensors_;
    std::vector<sut_rule_setting> settings_;
    std::vector<void *> host_out_[3], device_out_[3];
    std::vector<const void *> host_given_, device_given_;
    bool misaligned_, gaps_;
};

#endif // SUT_TEST_CUDA_TWIN_H
