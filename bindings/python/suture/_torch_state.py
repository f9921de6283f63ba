"""The state of a core as the dicts of torch.optim.Optimizer.state_dict(), and back. What does not fit is refused by name before
anything is changed."""

from __future__ import annotations

import operator
from typing import Any, Mapping, Sequence

import numpy as np
import torch

from . import _cuda, _state, _suture

#: Names that torch.optim has for slots.
_NAMES = {
    "exp_avg": "m", "exp_avg_sq": "v", "max_exp_avg_sq": "vmax", "mu_product": "mu_prod", "momentum_buffer": "b",
    "square_avg": "v", "grad_avg": "ga", "sum": "v",
}  # fmt: skip
#: Settings of torch.optim's groups that do not change what a step is; "maximize" is compared with ours.
_HOW = ("foreach", "fused", "capturable", "differentiable", "maximize")
#: Slots that hold squares.
_NOT_NEGATIVE = ("v", "vmax")


def pack(core: Any, tensors: Sequence[torch.Tensor]) -> tuple[dict[int, dict[str, Any]], dict[str, Any]]:
    """Copies of each tensor's state, in the processor's memory, and of what belongs to the whole optimizer."""
    arrays, texts = _state.read(core.to_bytes(False))
    state: dict[int, dict[str, Any]] = {}
    for k, p in enumerate(tensors):
        entry: dict[str, Any] = {"step": core.tensor_steps(k)}
        for slot in _state.slots(core, p):
            # In the order of the indices, whatever the parameter's order in memory.
            entry[slot] = torch.from_numpy(core.read_state(slot, k).copy(order="C"))
        state[k] = entry
    whole = {
        "method": texts["suture.method"],
        "n_losses": core.n_losses,
        "texts": {key: texts[key] for key in (*_state.COUNTS, "suture.surgery.kept_for")},
        "kept_weights": torch.from_numpy(arrays["suture.surgery.kept_weights"]),
    }
    return state, whole


def _as_ours(entry: Any) -> Any:
    """The state that torch.optim, or a tool that keeps its keys alone, has of one parameter."""
    if not isinstance(entry, Mapping):
        return entry
    ours = {_NAMES.get(name, name): value for name, value in entry.items() if value is not None}
    if "mu_product" in entry:
        ours["mu_prod"] = _tensor(entry["mu_product"]).reshape(1)
    return {"step": 1 if ours else 0, **ours}  # sgd counts none


def _groups_as_ours(groups: Any, method: str, maximize: bool) -> Any:
    if not isinstance(groups, (list, tuple)):
        return groups
    result = []
    for k, group in enumerate(groups):
        if isinstance(group, Mapping):
            if bool(group.get("maximize", maximize)) != maximize:
                raise _suture.MismatchError(f"group {k} of the state_dict has maximize={group['maximize']}, this optimizer {maximize}")
            decoupled = group.get("decoupled_weight_decay")
            if decoupled is not None and bool(decoupled) != (method == "adamw") and group.get("weight_decay"):
                kind = "decoupled" if decoupled else "not decoupled"
                raise _suture.MismatchError(f"the weight decay of group {k} of the state_dict is {kind}, other than that of {method}")
            group = {key: value for key, value in group.items() if key not in (*_HOW, "decoupled_weight_decay")}
        result.append(group)
    return result


def check_dict(
    given: Mapping[str, Any], method: str, groups: Sequence[Mapping[str, Any]], maximize: bool
) -> tuple[dict[int, Mapping[str, Any]], Sequence[dict[str, Any]], Mapping[str, Any]]:
    """
    State by place among the tensors of ``groups``, groups, and what belongs to the whole, of a state_dict. Without the latter it
    is one of torch.optim's optimizers, or went through a tool that keeps the keys of those.
    """
    foreign = "suture" not in given and "state" in given and "param_groups" in given
    if foreign:
        theirs = given["state"]
        given = {
            "state": {k: _as_ours(entry) for k, entry in theirs.items()} if isinstance(theirs, Mapping) else theirs,
            "param_groups": _groups_as_ours(given["param_groups"], method, maximize),
            "suture": {},
        }
    for key, kind in (("state", Mapping), ("param_groups", (list, tuple)), ("suture", Mapping)):
        if key not in given:
            raise _suture.MismatchError(f"this is no state_dict of suture.torch.Optimizer: it has no '{key}'")
        if not isinstance(given[key], kind):
            raise TypeError(f"'{key}' of the state_dict is of type {type(given[key]).__name__}")
    others, whole = given["param_groups"], given["suture"]
    if len(others) != len(groups):
        raise _suture.MismatchError(
            f"the state_dict has {len(others)} parameter groups, this optimizer has {len(groups)}"
        )
    order: dict[Any, int] = {}
    for k, (mine, other) in enumerate(zip(groups, others)):
        if not isinstance(other, Mapping) or not isinstance(other.get("params"), (list, tuple)):
            raise TypeError(f"group {k} of the state_dict is no dict with a list 'params'")
        if len(mine["params"]) != len(other["params"]):
            raise _suture.MismatchError(
                f"group {k} has {len(other['params'])} parameters in the state_dict and {len(mine['params'])} here"
            )
        for index in other["params"]:
            order[index] = len(order)
    if whole:
        missing = [key for key in ("method", "n_losses", "texts", "kept_weights") if key not in whole]
        if missing:
            raise _suture.MismatchError(f"'suture' of the state_dict has no '{missing[0]}'")
        if whole["method"] != method:
            raise _suture.MismatchError(f"the state_dict was written by {whole['method']}, this is {method}")
    elif given["state"] and not foreign:
        raise _suture.MismatchError("the state_dict has a 'state', but 'suture' is empty")
    state: dict[int, Mapping[str, Any]] = {}
    for index, entry in given["state"].items():
        if index not in order:
            raise _suture.MismatchError(f"the state_dict has state of a parameter {index!r:.80}, which is in none of its groups")
        state[order[index]] = entry
    return state, others, whole


def plain(value: Any) -> Any:
    """The array of NumPy that a tensor on the CPU is; what is no tensor as it is."""
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def _count(value: Any, whose: str) -> int:
    try:
        number = float(value)
        if number >= 0 and number == int(number):
            return int(number)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise _suture.MismatchError(f"'step' of {whose} is {value!r:.80}; a count of steps is needed")


def _tensor(value: torch.Tensor | np.ndarray) -> torch.Tensor:
    """A tensor where the value is: as_tensor() would bring it to the device of a torch.device(...) context or the default one."""
    return value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))


def _array(value: Any, slot: str, whose: str, shape: tuple[int, ...]) -> np.ndarray:
    if not isinstance(value, (torch.Tensor, np.ndarray)):
        raise TypeError(f"'{slot}' of {whose} is of type {type(value).__name__}; a tensor is needed")
    tensor = _tensor(value)
    if not tensor.is_floating_point():
        raise TypeError(f"'{slot}' of {whose} has elements of type {tensor.dtype}; a floating type is needed")
    if tuple(tensor.shape) != shape:
        raise _suture.MismatchError(f"'{slot}' of {whose} has shape {tuple(tensor.shape)}, {shape} is needed")
    if tensor.device.type == "cuda":
        tensor = _cuda.to_host(tensor)
    array = tensor.detach().to(device="cpu", dtype=torch.float64).numpy()
    bad = ~np.isfinite(array) if slot not in _NOT_NEGATIVE else ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        place = tuple(map(int, np.argwhere(bad)[0]))
        text = f"'{slot}' of {whose} holds {float(array[place])!r} at {list(place)}"
        if np.isfinite(array[place]):
            raise _suture.OutOfRangeError(text + "; it is a mean of squares")
        raise _suture.NotFiniteError(text)
    return array


def restore(
    core: Any,
    tensors: Sequence[tuple[str, torch.Tensor, int]],
    state: Mapping[int, Mapping[str, Any]],
    whole: Mapping[str, Any] | None,
    complete: bool = False,
    begin: bool = False,
) -> None:
    """
    Give a new core this state. Parameters without an entry begin anew, unless it has to be complete; slots without one only where
    they may begin. Master copies have yet to be compared with their parameters (parameters_changed()), so they may be missing,
    or be there for a parameter that has none now.
    """
    arrays: dict[str, np.ndarray] = {}
    counts: list[int] = []
    given: list[tuple[str, int, np.ndarray]] = []
    for k, (name, p, _) in enumerate(tensors):
        whose = f"parameter {k} ('{name}')"
        if k not in state:
            if complete:
                raise _suture.MismatchError(f"the state_dict has no state of {whose}")
            continue
        entry, slots = state[k], _state.slots(core, p)
        if not isinstance(entry, Mapping):
            raise TypeError(f"the state of {whose} is of type {type(entry).__name__}; a dict is needed")
        wanted = ["step", *slots]
        missing = [slot for slot in wanted if slot not in entry and slot != "master" and not (begin and slot != "step")]
        unknown = [slot for slot in entry if slot not in wanted and slot != "master"]
        if missing or unknown:
            text = f"no '{missing[0]}'" if missing else f"'{unknown[0]}', for which there is no place"
            raise _suture.MismatchError(f"the state of {whose} has {text}; it consists of {', '.join(wanted)}")
        counts.append(_count(entry["step"], whose))
        arrays[f"suture.state.step.{name}"] = np.asarray(counts[-1], dtype=np.int64)
        for slot in slots:
            if slot not in entry:
                continue
            memory = core.state(slot, k)
            value = _array(entry[slot], slot, whose, tuple(memory.shape)).astype(memory.dtype)
            if slot == "mu_prod":  # on a GPU the device keeps it, and is told when a state is loaded
                arrays[f"suture.state.mu_prod.{name}"] = value.reshape(())
            given.append((slot, k, value))
    texts: dict[str, str] = {}
    if whole is not None:
        texts = {key: text for key, text in whole["texts"].items() if key in _state.COUNTS}
        if operator.index(whole["n_losses"]) == core.n_losses:
            arrays["suture.surgery.kept_weights"] = _tensor(whole["kept_weights"]).cpu().numpy()
            texts = dict(whole["texts"])
    # No tensor made more steps than the whole: entries that were assigned to a young optimizer make it older.
    texts["suture.steps"] = str(max([int(texts.get("suture.steps", 0)), *counts]))
    core.from_bytes(_state.graft(core.to_bytes(False), arrays, texts), False, False)
    for slot, k, value in given:
        core.write_state(slot, k, value)
