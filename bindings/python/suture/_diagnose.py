"""What this installation can do on this machine, and why not more."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from typing import Any

from . import _arrays, _suture


class Diagnosis(dict[str, Any]):
    """A dict that prints as a table."""

    def __str__(self) -> str:
        width = max(len(key) for key in self)
        return "\n".join(f"{key:<{width}}  {value}" for key, value in self.items())


def _framework(name: str, use: str) -> str:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return f"not installed; only {use} needs it: pip install {name}"
    try:
        importlib.import_module(name)
    except Exception as error:  # a broken installation must not break the diagnosis
        return f"{version} is installed but cannot be imported: {type(error).__name__}: {error}"
    return version


def _torch() -> str:
    text = _framework("torch", "suture.torch")
    if _arrays.torch_module() is None:
        return text
    if _arrays.torch_in_c:
        return text + ", tensors are looked at through its functions in C"
    return text + ", tensors are looked at through methods, some microseconds each: this version's functions in C are unknown"


def diagnose() -> Diagnosis:
    """
    A dict, printed as a table: versions, the processor's instruction set that is used, OpenBLAS and its kernel, the CUDA
    back end with driver and device, or the reason why it is not used, the Python packages that Suture works with and what to
    do about missing ones.

    >>> print(suture.diagnose())                                                            # doctest: +SKIP
    """
    c = _suture.capabilities()
    kernel = f", kernel {c['blas_kernel']}" if c["blas_kernel"] else ""
    return Diagnosis(
        {
            "suture": c["version"],
            "python": sys.version.split()[0],
            "extension": _suture.__file__,
            "processors": c["processors"],
            "instruction set": c["instruction_set"],
            "OpenBLAS": f"{c['blas']}{kernel}, {c['blas_integer_bits']}-bit integers",
            "CUDA": c["cuda_found"] if c["cuda"] else f"not used: {c['cuda_reason']}",
            "numpy": _framework("numpy", "everything"),
            "torch": _torch(),
            "jax": _framework("jax", "suture.jax"),
        }
    )
