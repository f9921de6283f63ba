"""Which library an array belongs to, and arrays like it. PyTorch and JAX are never imported here: an array of theirs can
only be there when they already are."""

from __future__ import annotations

import re
import sys
from typing import Any, Callable

import numpy as np

from . import _cuda, _suture

_suture.register_numpy(np)

#: None until PyTorch is there; then whether its tensors are looked at through its functions in C, or through their methods.
torch_in_c: bool | None = None


def torch_module() -> Any:
    """PyTorch if it was imported, else None; makes its tensors known to the extension module."""
    global torch_in_c
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return None
    if torch_in_c is None:
        torch_in_c = _suture.register_torch(torch)
    return torch


def needs_version(module: Any, user: str, name: str, *least: int) -> tuple[int, ...]:
    """The version of a module as numbers; an ImportError where it is older than that."""
    version = tuple(map(int, re.findall(r"\d+", module.__version__)[: len(least)]))
    if version < least:
        raise ImportError(f"{user} needs {name} {'.'.join(map(str, least))} or later; this is {module.__version__}")
    return version


def change_counter(torch: Any) -> Callable[[list[Any]], None] | None:
    """PyTorch's function that counts a change of each tensor of a list. In older versions it takes one tensor."""
    count: Callable[[Any], None] | None = getattr(torch._C, "_increment_version", None)
    if count is None:
        return None
    try:
        count([])
        return count
    except (RuntimeError, TypeError):
        single = count

    def one_by_one(tensors: list[Any]) -> None:
        for t in tensors:
            single(t)

    return one_by_one


def is_torch(x: Any) -> bool:
    torch = torch_module()
    return torch is not None and isinstance(x, torch.Tensor)


def is_jax(x: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and hasattr(jax, "Array") and isinstance(x, jax.Array)


def is_cuda_array(x: Any) -> bool:
    """In a GPU's memory, and no tensor of PyTorch or array of JAX (CuPy, Numba)."""
    # Tensors of PyTorch first: those that require grad answer with another error than that they have no such attribute.
    return not is_torch(x) and not is_jax(x) and hasattr(x, "__cuda_array_interface__")


def is_array(x: Any) -> bool:
    """One array, as opposed to a list of them."""
    return isinstance(x, np.ndarray) or is_torch(x) or is_jax(x) or is_cuda_array(x)


def library(x: Any) -> str:
    """'torch', 'jax' or 'numpy' (which also stands for lists of numbers)."""
    return "torch" if is_torch(x) else "jax" if is_jax(x) else "numpy"


def common_library(named: list[tuple[str, Any]]) -> str:
    """The library of all arrays; a mix is refused by name."""
    first_name, first = named[0]
    expected = library(first)
    for name, x in named:
        if x is None:
            raise TypeError(f"{name} is None; an array of NumPy, PyTorch or JAX is needed")
        if library(x) != expected:
            raise TypeError(f"{name} is an array of {library(x)}, {first_name} of {expected}; convert one of them")
    return expected


def plain(name: str, x: Any, kind: str) -> Any:
    """An array that the extension module can look at. Anything that NumPy takes for numbers counts as NumPy's."""
    if kind == "torch":
        if x.requires_grad:
            raise ValueError(f"{name} requires grad; derivatives do not flow through this call: pass {name}.detach()")
        return x
    if is_cuda_array(x):
        raise TypeError(
            f"{name} is of type {type(x).__name__}, in a GPU's memory; pass it as a tensor: torch.as_tensor({name}, device='cuda')"
        )
    if kind == "numpy" and not isinstance(x, np.ndarray):
        x = numbers(name, x)
        if x.dtype.kind in "iu":
            x = x.astype(np.float64)
    return x


def numbers(name: str, x: Any) -> np.ndarray:
    """What is no array yet as one of NumPy's."""
    if x is None or isinstance(x, (str, bytes, dict, set)) or callable(x):
        raise TypeError(f"{name} is of type {type(x).__name__}; an array of NumPy, PyTorch or JAX is needed")
    try:
        array = np.asarray(x)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is no array of numbers: {error}") from None
    if array.dtype == object:
        raise TypeError(f"{name} is of type {type(x).__name__}; an array of NumPy, PyTorch or JAX is needed")
    return array


def rows(G: Any, kind: str) -> Any:
    """The rows of G as the extension module takes them: a list of arrays, or one array whose first axis counts the losses."""
    if not isinstance(G, (list, tuple)):
        return plain("G", G, kind)
    if kind == "numpy" and not any(isinstance(row, np.ndarray) for row in G):
        return plain("G", G, kind)
    return [plain(f"G[{i}]", row, kind) for i, row in enumerate(G)]


def compute_like(x: Any) -> Any:
    """An array of the same library that lies in memory as the parameter x does, float64 for float64 and else float32."""
    if is_torch(x):
        torch = torch_module()
        if x.device.type == "cuda":
            return _cuda.empty_like(x, "float64" if x.dtype == torch.float64 else "float32")
        return torch.empty_like(x.detach(), dtype=torch.float64 if x.dtype == torch.float64 else torch.float32)
    if is_cuda_array(x):
        return _cuda.empty_like(x, "float64" if x.__cuda_array_interface__["typestr"].endswith("f8") else "float32")
    return np.empty_like(x, dtype=np.float64 if x.dtype == np.float64 else np.float32, order="K", subok=False)
