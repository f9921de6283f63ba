"""What the steps of suture.torch are given: losses, the graphs below them, and what their user is told of them."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any, Iterable, Mapping, Sequence, Union

import torch

#: Losses as they may be given.
Losses = Union[Sequence[torch.Tensor], torch.Tensor, Mapping[str, torch.Tensor]]


def listed(losses: Any, names: Sequence[str] | None) -> list[Any]:
    """One entry per loss, in the order of the names if there are any."""
    if isinstance(losses, Mapping):
        if names and set(losses) != set(names):
            odd = sorted(set(losses) ^ set(names), key=str)[0]
            where = "loss_names has" if odd in losses else "losses has"
            raise KeyError(f"{where} no '{odd}'")
        return [losses[name] for name in names] if names else list(losses.values())
    if isinstance(losses, torch.Tensor) and losses.ndim == 1:
        return list(losses.unbind())
    if isinstance(losses, (torch.Tensor, str, bytes)) or not isinstance(losses, Iterable):
        raise TypeError(f"losses is of type {type(losses).__name__}; a list with one tensor per loss is needed")
    return list(losses)


def check(losses: Sequence[Any], names: Sequence[str] | None) -> None:
    """Each is a tensor of one element, of which there are derivatives."""
    for i, loss in enumerate(losses):
        which = f"loss '{names[i]}'" if names else f"loss {i}"
        if not isinstance(loss, torch.Tensor):
            raise TypeError(f"{which} is of type {type(loss).__name__}; a tensor with one element is needed")
        if loss.numel() != 1:
            raise ValueError(f"{which} has shape {tuple(loss.shape)}; a tensor with one element is needed")
        if loss.is_complex():
            raise TypeError(f"{which} is complex")
        if not loss.requires_grad:
            raise ValueError(f"{which} does not depend on anything that requires grad")


def processes() -> int:
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def has_reentrant_checkpoint(losses: Sequence[torch.Tensor]) -> bool:
    seen: set[Any] = set()
    nodes = [loss.grad_fn for loss in losses]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        if type(node).__name__ == "CheckpointFunctionBackward":
            return True
        seen.add(node)
        nodes += [after for after, _ in node.next_functions]
    return False


#: Where a caller is not: this package, and PyTorch's wrappers of steps.
_OWN = tuple(os.path.dirname(os.path.abspath(str(place))) + os.sep for place in (__file__, torch.__file__))


def tell(text: str) -> None:
    """A warning at the line of the user's program that made the step."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)
