/*
 * Tensors of PyTorch, looked at without a copy and without linking to PyTorch.
 *
 * PyTorch publishes functions in C for compiled models (torch/csrc/inductor/aoti_torch/c/shim.h, kept stable from version to
 * version). They take a handle, which is the address of an at::Tensor: one pointer to the tensor's implementation. The Python
 * object has that pointer at a fixed place. A handful of these functions, some nanoseconds each, tell everything: memory, shape,
 * strides, types, and the size of the storage below; where a method of the tensor would cost fifty and could run Python code
 * (__torch_function__, modes like that of torch.set_default_device).
 *
 * Nothing of this is taken on trust. register_torch() finds the functions in the library that Python has loaded, finds the
 * place as the one word of several objects of different kinds that holds what their `_cdata` shows, and compares handles made
 * that way with those that PyTorch itself makes, and what the functions tell of both with what is known. Both are fixed by
 * compilation: what holds for one object of a type holds for all in this process. Where anything is missing or different,
 * tensors are looked at through their methods, which costs some microseconds each. Tensors on GPUs go the same two ways; the
 * first one that is seen is looked at in both, and what the functions say must be what the methods say. So are all tensors of a type that is not
 * exactly torch.Tensor or torch.nn.Parameter, and all that a function refuses.
 */
#ifndef SUTURE_PYTHON_TORCH_TENSOR_H
#define SUTURE_PYTHON_TORCH_TENSOR_H

#include "array.h"

namespace suture_python
{

/* Tell the module what tensors are. Called from Python when torch was imported, with the module; true when the functions in C
 * were found. */
bool register_torch(nb::object torch);
bool is_torch_tensor(PyObject *object);
/* Exactly torch.Tensor or torch.nn.Parameter, and no gradient is asked for. */
bool is_plain_tensor(PyObject *object);
/* Whether the memory holds the opposite of the values: PyTorch flips signs lazily ("negative bit"), and autograd gives such
 * gradients where complex numbers are conjugated. The bit is looked for as the place above, since no function tells of it; where
 * it was not found the tensor's method is asked, and `ran_code` set. */
bool has_lazy_sign(PyObject *object, bool *ran_code);
/* The tensor's values as its memory has them: resolve_neg(). */
nb::object with_plain_sign(PyObject *tensor);
/* A new tensor of a view's shape and type, row by row, not filled. */
nb::object new_tensor(const View &like);
/* Fill in `view`. False, with a Python error set, when the tensor is refused. */
bool open_torch(PyObject *tensor, View &view);
/* The object that owns the tensor's memory, a new reference; NULL with a Python error set. */
PyObject *torch_storage(PyObject *tensor);

} // namespace suture_python

#endif
