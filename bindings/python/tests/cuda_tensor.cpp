/*
 * A tensor of PyTorch itself, of class torch.Tensor and on a CUDA device, over memory that is there already: what a PyTorch for
 * CUDA makes, made with one for the CPU. Nothing can be computed with it, but it says what it is. Compiled by standin.py.
 */
#include <ATen/core/TensorBase.h>
#include <c10/core/TensorImpl.h>

extern "C" __attribute__((visibility("default"))) void *make(void *data, int dim, const std::int64_t *sizes,
                                                             const std::int64_t *strides, std::int64_t bytes, int kind,
                                                             int index)
{
    const c10::ScalarType types[] = {c10::ScalarType::Float, c10::ScalarType::Double, c10::ScalarType::BFloat16,
                                     c10::ScalarType::Half};
    const c10::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index));
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(data, device), nullptr, false);
    auto tensor = c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                                       c10::scalarTypeToTypeMeta(types[kind]));
    tensor->set_sizes_and_strides(c10::IntArrayRef(sizes, dim), c10::IntArrayRef(strides, dim));
    return new at::TensorBase(std::move(tensor));
}
