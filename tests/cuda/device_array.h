/*
 * Numbers in device memory, for tests that call the library as a program with a GPU does.
 */
#ifndef SUT_TEST_CUDA_DEVICE_ARRAY_H
#define SUT_TEST_CUDA_DEVICE_ARRAY_H

#include "check.h"

#include "suture/suture.h"

extern "C" {
#include "backend/half.h"
}

#include <cstring>
#include <vector>

#include <cuda_runtime.h>

class device_array
{
  public:
    device_array(sut_dtype dtype_, std::size_t count_) : dtype(dtype_), count(count_), at(nullptr)
    {
        CUDA(cudaMalloc(&at, bytes()));
    }
    device_array(sut_dtype dtype_, const std::vector<double> &values) : device_array(dtype_, values.size())
    {
        put(values);
    }
    ~device_array()
    {
        (void)cudaFree(at);
    }
    device_array(const device_array &) = delete;
    device_array &operator=(const device_array &) = delete;

    std::size_t bytes() const
    {
        return count * sut_dtype_size(dtype);
    }
    void put(const std::vector<double> &values)
    {
        std::vector<unsigned char> raw = encode(dtype, values);
        CUDA(cudaMemcpy(at, raw.data(), raw.size(), cudaMemcpyHostToDevice));
    }
    /* Waits for whatever was queued. */
    std::vector<unsigned char> raw() const
    {
        std::vector<unsigned char> out(bytes());
        CUDA(cudaMemcpy(out.data(), at, out.size(), cudaMemcpyDeviceToHost));
        return out;
    }
    std::vector<double> get() const
    {
        return decode(dtype, raw());
    }

    static std::vector<unsigned char> encode(sut_dtype dtype, const std::vector<double> &values)
    {
        const std::size_t size = sut_dtype_size(dtype);
        std::vector<unsigned char> out(values.size() * size);
        for (std::size_t k = 0; k < values.size(); ++k) {
            const float single = (float)values[k];
            const uint16_t half = dtype == SUT_DTYPE_BF16 ? sut_to_bf16(single) : sut_to_f16(single);
            const void *const from = dtype == SUT_DTYPE_F64   ? (const void *)&values[k]
                                     : dtype == SUT_DTYPE_F32 ? (const void *)&single
                                                              : (const void *)&half;
            std::memcpy(&out[k * size], from, size);
        }
        return out;
    }
    static std::vector<double> decode(sut_dtype dtype, const std::vector<unsigned char> &raw)
    {
        const std::size_t size = sut_dtype_size(dtype);
        std::vector<double> out(raw.size() / size);
        for (std::size_t k = 0; k < out.size(); ++k) {
            float single;
            uint16_t half;
            if (dtype == SUT_DTYPE_F64) {
                std::memcpy(&out[k], &raw[k * size], size);
            } else if (dtype == SUT_DTYPE_F32) {
                std::memcpy(&single, &raw[k * size], size);
                out[k] = (double)single;
            } else {
                std::memcpy(&half, &raw[k * size], size);
                out[k] = (double)(dtype == SUT_DTYPE_BF16 ? sut_from_bf16(half) : sut_from_f16(half));
            }
        }
        return out;
    }

    const sut_dtype dtype;
    const std::size_t count;
    void *at;
};

#endif // SUT_TEST_CUDA_DEVICE_ARRAY_H
