"""
Everything that this package asks of PyTorch, CuPy or Numba about GPUs; the extension module calls these functions, too. None
of the three is imported here: a tensor on a GPU can only be there when its library already is.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Callable, ContextManager

import numpy as np

_raw_stream: Callable[[int], int] | None = None


def current_stream(device: int) -> int:
    """The address of PyTorch's current stream of that device; 0: the default stream."""
    global _raw_stream
    if _raw_stream is None:
        torch = sys.modules["torch"]
        _raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (
            lambda index: torch.cuda.current_stream(index).cuda_stream  # some hundred nanoseconds more
        )
    return _raw_stream(device)


def device(index: int) -> ContextManager[Any]:
    """That device is current inside, for the CUDA runtime of this thread."""
    scope: ContextManager[Any]
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        scope = torch.cuda.device(index)
    elif "cupy" in sys.modules:
        scope = sys.modules["cupy"].cuda.Device(index)
    else:
        scope = contextlib.nullcontext()  # the caller's business; the library refuses memory of another device by name
    return scope


def empty_cache() -> None:
    """Memory that PyTorch and CuPy keep without using it goes back to the driver."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()


def empty(shape: tuple[int, ...], dtype: str, index: int) -> Any:
    """A tensor on that device."""
    torch = sys.modules["torch"]
    return torch.empty(shape, dtype=getattr(torch, dtype), device=torch.device("cuda", index))


def empty_like(x: Any, dtype: str) -> Any:
    """An array of x's library that lies in memory as x does."""
    if "torch" in sys.modules and isinstance(x, sys.modules["torch"].Tensor):
        torch = sys.modules["torch"]
        return torch.empty_like(x.detach(), dtype=getattr(torch, dtype))
    library = type(x).__module__.split(".")[0]
    if library == "cupy":
        return sys.modules["cupy"].empty_like(x, dtype=dtype, order="K")
    if library == "numba":
        size = np.dtype(dtype).itemsize
        strides = tuple(s // x.dtype.itemsize * size for s in x.strides)
        return sys.modules["numba.cuda"].device_array(x.shape, dtype=dtype, strides=strides)
    raise TypeError(
        f"parameters of type {type(x).__name__} are in a GPU's memory, and nothing is known that makes arrays like them; "
        "arrays of PyTorch, CuPy and Numba are possible here"
    )


def contiguous(tensor: Any) -> Any:
    """A copy of the tensor that lies row by row."""
    return tensor.detach().contiguous()


def laid_out_like(gradient: Any, parameter: Any) -> Any:
    """A copy of the gradient that lies in memory as the parameter does."""
    torch = sys.modules["torch"]
    return torch.empty_like(parameter.detach(), dtype=gradient.dtype).copy_(gradient.detach())


def show(array: Any, index: int) -> Any:
    """A tensor over the memory of an object with ``__cuda_array_interface__``, which it keeps alive."""
    torch = sys.modules["torch"]
    if 0 in array.shape:  # no address to go by
        return torch.empty(array.shape, dtype=getattr(torch, array.dtype), device=torch.device("cuda", index))
    return torch.as_tensor(array, device=torch.device("cuda", index))


def to_host(tensor: Any) -> Any:
    """The same tensor in the processor's memory."""
    return tensor.detach().cpu()


def to_device(tensor: Any, like: Any) -> Any:
    """A copy of the tensor on the device of another one."""
    return tensor.to(like.device)
