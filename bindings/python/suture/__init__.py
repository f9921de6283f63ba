"""
Suture: optimizers and gradient surgery whose applied steps hurt none of several losses.

    suture.combine(G, "config")                    m gradients become one direction
    suture.project(u, G)                           the nearest step to u that hurts no loss
    suture.Optimizer(params, "adam", lr=1e-3,      a whole step, in place, for arrays of NumPy and PyTorch
                     surgery="config", align="gua")
    suture.torch.Optimizer(...)                    the same as a torch.optim.Optimizer
    suture.jax                                     the same as pure functions and as an optax-style transformation

The arithmetic is that of the C library; https://arxiv.org/abs/2609.01558 is the paper behind the alignment. The import
always succeeds; ``suture.diagnose()`` says what this installation can do and why not more.
"""

from typing import Any as _Any

from ._diagnose import diagnose
from ._functional import ConflictReport, combine, conflict, project, weights
from ._optimizer import Optimizer
from ._suture import (
    BackendError,
    ConeReport,
    CorruptStateError,
    Error,
    InternalError,
    InvalidArgumentError,
    MismatchError,
    NotFiniteError,
    OutOfMemoryError,
    OutOfRangeError,
    Report,
    SequenceError,
    StateFileError,
    SurgeryReport,
    UndefinedError,
    UnsupportedError,
    max_losses,
    optimizer_methods,
    surgery_methods,
)
from ._suture import version as __version__
from .callbacks import CSVWriter, TensorBoardWriter

__all__ = [
    "BackendError",
    "CSVWriter",
    "ConeReport",
    "ConflictReport",
    "CorruptStateError",
    "Error",
    "InternalError",
    "InvalidArgumentError",
    "MismatchError",
    "NotFiniteError",
    "Optimizer",
    "OutOfMemoryError",
    "OutOfRangeError",
    "Report",
    "SequenceError",
    "StateFileError",
    "SurgeryReport",
    "TensorBoardWriter",
    "UndefinedError",
    "UnsupportedError",
    "__version__",
    "combine",
    "conflict",
    "diagnose",
    "exceptions",
    "max_losses",
    "optimizer_methods",
    "project",
    "surgery_methods",
    "weights",
]

#: One class per status of the library.
exceptions: tuple[type[Error], ...] = (
    InvalidArgumentError,
    OutOfRangeError,
    UnsupportedError,
    NotFiniteError,
    OutOfMemoryError,
    StateFileError,
    CorruptStateError,
    MismatchError,
    UndefinedError,
    SequenceError,
    BackendError,
    InternalError,
)

# Where users find them, and what tracebacks show.
for _exception in (Error, *exceptions):
    _exception.__module__ = __name__


def __getattr__(name: str) -> _Any:
    # PyTorch and JAX are imported when they are used, not before.
    if name in ("torch", "jax"):
        import importlib

        try:
            return importlib.import_module(f".{name}", __name__)
        except ImportError as error:  # hasattr() is to be answered, and the reason told
            raise AttributeError(f"module 'suture' has no attribute '{name}' here: {error}") from error
    raise AttributeError(f"module 'suture' has no attribute {name!r}")
