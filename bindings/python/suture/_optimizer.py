"""The stateful optimizer for arrays of NumPy and PyTorch, and others in a GPU's memory, in place."""

from __future__ import annotations

import difflib
import math
import os
from typing import Any, Iterable, Literal, Mapping, Sequence, overload

import numpy as np

from . import _cuda, _suture
from ._arrays import change_counter, compute_like, is_array, is_cuda_array, is_jax, is_torch, torch_module
from ._state import has_master, slots


def hyper_names(method: str) -> dict[str, Any]:
    """Hyper-parameters of a method with their defaults."""
    if not isinstance(method, str):
        raise TypeError(f"method is of type {type(method).__name__}; the name of an optimizer is needed")
    try:
        return dict(_suture.optimizer_methods[method])
    except KeyError:
        near = difflib.get_close_matches(method, list(_suture.optimizer_methods), 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise _suture.InvalidArgumentError(
            f"there is no optimizer '{method}'{hint}; there are {', '.join(_suture.optimizer_methods)}"
        ) from None


def split_options(method: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Hyper-parameters of groups, and everything else."""
    known = hyper_names(method)
    hyper = {k: v for k, v in given.items() if k in known or (k == "betas" and "beta1" in known)}
    return hyper, {k: v for k, v in given.items() if k not in hyper}


def fold_betas(hyper: dict[str, Any], default: Sequence[Any]) -> None:
    """``beta1`` and ``beta2`` of a method that has them become ``betas``: a setting has one name, so that one that is changed later
    has no rival."""
    if "beta1" not in hyper and "beta2" not in hyper and "betas" not in hyper:
        return
    betas = hyper.get("betas", default)
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        kind = ValueError if isinstance(betas, (tuple, list)) else TypeError
        raise kind(f"betas is {betas!r:.80}; a pair of numbers is needed")
    if "beta1" in hyper or "beta2" in hyper:
        hyper["betas"] = (hyper.pop("beta1", betas[0]), hyper.pop("beta2", betas[1]))


def _rate(value: Any) -> float | None:
    """What can be a rate, as a number."""
    try:
        rate = None if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    return rate if rate is not None and 0 < rate < math.inf else None


def settle_rates(hyper: dict[str, Any], rest: dict[str, Any], default: float) -> None:
    """With a schedule a group's rate is lr s(t) / peak. Where one of lr and peak was not given it is the other: the rate that the
    user wrote is the one that is used."""
    schedule = rest.get("schedule")
    if not isinstance(schedule, dict):
        return
    if "lr" not in hyper and _rate(schedule.get("peak")) is not None:
        hyper["lr"] = schedule["peak"]
    if "peak" not in schedule and _rate(hyper.get("lr", default)) is not None:
        rest["schedule"] = {**schedule, "peak": _rate(hyper.get("lr", default))}


def entries_of(params: Any, what: str) -> list[Any]:
    """The entries of any iterable but a text; a hint where a model is given instead of its parameters."""
    if isinstance(params, (str, bytes)) or not isinstance(params, Iterable):
        hint = "pass its parameters()" if hasattr(params, "named_parameters") else "an array, or a list or dict of arrays, is needed"
        raise TypeError(f"{what} is of type {type(params).__name__}; {hint}")
    return list(params)


def named_tensors(params: Any, what: str = "params") -> list[tuple[str | None, Any]]:
    """Tensors with their names: of a dict, of pairs (name, tensor), of a list, of one tensor. Names default to
    'param.<index>' when the optimizer is made."""
    if isinstance(params, Mapping):
        return list(params.items())
    if is_array(params):
        return [(None, params)]
    entries = entries_of(params, what)
    return [(e[0], e[1]) if isinstance(e, tuple) and len(e) == 2 and isinstance(e[0], str) else (None, e) for e in entries]


class Optimizer:
    """
    One object for a whole conflict-free step: gradients of every loss in, updated parameters out.

    :param params: arrays that are updated in place, float32, float64, float16 or bfloat16, of NumPy or PyTorch, or with
        ``__cuda_array_interface__`` (CuPy, Numba); all in the processor's memory or all on one CUDA device: one array, a
        list, a dict or pairs (name, array), or a list of groups, each a dict with ``params`` and hyper-parameters
        of its own. They must lie in memory without gaps; any order of the axes is fine.
    :param method: "sgd", "rmsprop", "adagrad", "adam", "adamw", "nadam", "radam" or "lion".
    :param n_losses: m, the number of losses, 1 to 64.
    :param surgery: how m gradients become one direction, a name from ``suture.surgery_methods``.
    :param align: "gua": the applied step hurts no loss; "none".
    :param loss_names: names for error texts.
    :param threads: 0: one per processor. Never changes a bit of the result.
    :param seed: for methods that draw (``pcgrad``).
    :param options: hyper-parameters of the method (``lr=1e-3, betas=(0.9, 0.99)``), options of the surgery
        (``cagrad_c=0.4``), of the step (``metric``, ``rho_m``, ``rho_v``, ``conflict_cos_tol``, ``clip_norm``, ``maximize``,
        ``strict``, ``check``, ...), and ``schedule={"kind": "cosine", "peak": 1e-3, "total": 10000, "warmup": 100}`` (of ``lr``
        and ``peak`` the one that is not given is the other); their meaning, defaults and ranges are those of the C library. An unknown name is refused.

    Steps of two optimizers run side by side in two threads; one optimizer serves its callers in turn. The parameters are
    kept alive; gradients are looked at for the length of a call, never written to, and copied only where they lie in memory
    otherwise than their parameter.
    """

    def __init__(
        self,
        params: Any,
        method: str = "adam",
        *,
        n_losses: int = 1,
        surgery: str = "sum",
        align: str = "none",
        loss_names: Sequence[str] | None = None,
        threads: int = 0,
        seed: int = 0,
        isa: str = "auto",
        **options: Any,
    ) -> None:
        hyper, rest = split_options(method, options)
        names = hyper_names(method)
        settle_rates(hyper, rest, names["lr"])
        default = [names.get("beta1"), names.get("beta2")]
        if "beta1" in names:
            fold_betas(hyper, default)
        groups = self._groups(params)
        tensors: list[Any] = []
        settings = []
        for k, group in enumerate(groups):
            own = {key: value for key, value in group.items() if key != "params"}
            unknown = [key for key in own if key not in split_options(method, own)[0]]
            if unknown:
                raise TypeError(f"group {k}: '{unknown[0]}' is no hyper-parameter of {method}")
            if "beta1" in names:
                fold_betas(own, hyper.get("betas", default))
            settings.append({**hyper, **own})
            if "params" not in group:
                raise ValueError(f"group {k} has no 'params'")
            what = "params" if group is params or len(groups) == 1 else f"'params' of group {k}"
            tensors += [(name, tensor, k) for name, tensor in named_tensors(group["params"], what)]
        if not tensors:
            raise _suture.InvalidArgumentError("no parameters")
        tensors = [
            (f"param.{k}" if name is None else name if isinstance(name, str) else str(name), tensor, index)
            for k, (name, tensor, index) in enumerate(tensors)
        ]
        first: dict[int, str] = {}
        for name, tensor, _ in tensors:
            self._check_parameter(name, tensor)
            if id(tensor) in first:
                raise _suture.InvalidArgumentError(f"'{first[id(tensor)]}' and '{name}' are the same array; each is listed once")
            first[id(tensor)] = name
        self._config: dict[str, Any] = {
            "method": method,
            "groups": [sum(1 for t in tensors if t[2] == k) for k in range(len(groups))],
            "n_losses": n_losses,
            "surgery": surgery,
            "align": align,
            "loss_names": _suture.texts(loss_names, "loss_names"),
            "threads": threads,
            "seed": seed,
            "isa": isa,
            "options": rest,
            "hyper": settings,
        }
        self._tensors = tensors
        self._names = [name for name, _, _ in tensors]
        self._core = _suture.Optimizer(
            method, tensors, settings, n_losses, loss_names, surgery, {**rest, "align": align}, threads, seed, isa
        )
        torch = torch_module()
        counted = [t for _, t, _ in tensors if is_torch(t) and not t.is_inference()]
        count = change_counter(torch) if counted else None
        if count is not None:
            self._core.after_step(count, counted)

    @staticmethod
    def _groups(params: Any) -> Sequence[Mapping[str, Any]]:
        if isinstance(params, Mapping) and "params" in params and not is_array(params["params"]):
            return [params]  # one group; a dict of arrays may have one that is called params
        if not isinstance(params, Mapping) and not is_array(params):
            params = entries = entries_of(params, "params")
            if entries and all(isinstance(entry, Mapping) for entry in entries):
                return entries
        return [{"params": params}]

    @staticmethod
    def _check_parameter(name: str, tensor: Any) -> None:
        if is_jax(tensor):
            raise TypeError(f"parameter '{name}' is an array of JAX, which cannot be changed in place; use suture.jax")
        if is_torch(tensor):
            if isinstance(tensor, torch_module().nn.parameter.UninitializedParameter):
                raise ValueError(
                    f"parameter '{name}' has no shape yet, as it is one of a lazy module; call the model once on an input "
                    "before the optimizer is made"
                )
            if tensor.requires_grad and not tensor.is_leaf:
                raise ValueError(f"parameter '{name}' is not a leaf: it is computed from others and requires grad")
        elif not isinstance(tensor, np.ndarray) and not is_cuda_array(tensor):
            raise TypeError(
                f"parameter '{name}' is of type {type(tensor).__name__}; an array of NumPy, a tensor of PyTorch or an array "
                "with __cuda_array_interface__, which can be changed in place, is needed"
            )

    # -- steps --

    def _rows(self, grads: Any) -> list[list[Any]]:
        m, n = self._core.n_losses, len(self._names)
        if isinstance(grads, Mapping) or (m == 1 and (self._is_row(grads) or self._is_gradient(grads))):
            grads = [grads]
        if isinstance(grads, (str, bytes)) or not isinstance(grads, Iterable):
            raise TypeError(f"gradients are of type {type(grads).__name__}; a list with those of each of {m} losses is needed")
        return [self._row(i, row, n) for i, row in enumerate(grads)]

    @staticmethod
    def _is_row(grads: Any) -> bool:
        """One loss: the list of its gradients may stand alone."""
        if isinstance(grads, (list, tuple)):
            return all(g is None or _is_one(g) for g in grads)
        return False

    def _is_gradient(self, grads: Any) -> bool:
        """One loss and one tensor: its gradient may stand alone. Not the array with one row per loss, which has an axis more."""
        if len(self._names) != 1 or not hasattr(grads, "dtype") or not hasattr(grads, "shape"):
            return False
        return len(grads.shape) != 1 + len(self._tensors[0][1].shape)

    def _row(self, i: int, row: Any, n: int) -> list[Any]:
        if isinstance(row, Mapping):
            unknown = [name for name in row if name not in self._names]
            if unknown:
                raise KeyError(f"gradients of loss {i}: there is no parameter {unknown[0]!r}")
            return [row.get(name) for name in self._names]
        if n == 1 and (row is None or _is_one(row)):
            return [row]
        if _is_one(row):
            raise TypeError(f"gradients of loss {i}: one array, but there are {n} tensors; a list of arrays is needed")
        if isinstance(row, (str, bytes)) or not isinstance(row, Iterable):
            raise TypeError(f"gradients of loss {i} are of type {type(row).__name__}; a list with one array per tensor is needed")
        return list(row)

    @overload
    def step(self, grads: Any, losses: Sequence[float] | None = None, *, report: Literal[True] = True) -> _suture.Report: ...
    @overload
    def step(self, grads: Any, losses: Sequence[float] | None = None, *, report: Literal[False]) -> None: ...
    @overload
    def step(self, grads: Any, losses: Sequence[float] | None = None, *, report: bool) -> _suture.Report | None: ...
    def step(self, grads: Any, losses: Sequence[float] | None = None, *, report: bool = True) -> _suture.Report | None:
        """
        One step: state and parameters move.

        :param grads: a list with the gradients of each loss: a list with one array per tensor, or a dict by name; None or
            a missing name means absent, which is not the same as zero. With one tensor each row may be the array itself,
            with one loss the row may stand alone, with both the array.
        :param losses: m values, for methods that need them.
        :param report: False: none is made, which saves time with one loss. On a GPU the step is then queued and not waited
            for: what only the gradients can show (NaN) is raised by :meth:`synchronize`.
        :return: a :class:`Report`.

        What is refused (:class:`NotFiniteError`, wrong shape, type, device) leaves parameters, state and step count exactly
        as they were.
        """
        return self._core.step(self._rows(grads), losses, report)

    def _outputs(self) -> list[Any]:
        """An array like each parameter, of the type that the library computes in."""
        return [compute_like(tensor) for _, tensor, _ in self._tensors]

    def direction(self, grads: Any, losses: Sequence[float] | None = None) -> tuple[tuple[float, ...], list[Any]]:
        """Weights of the surgery in the coming step and the direction that they make, one array per tensor, float64 for
        float64 parameters and else float32. Nothing is changed."""
        out = self._outputs()
        return self._core.direction(self._rows(grads), losses, out), out

    # -- the step in stages --

    def propose(self, grads: Any, losses: Sequence[float] | None = None, *, inverse_metric: bool = False) -> Any:
        """
        The first stage of a step: the state advances by the surgery's direction, and the proposal u is given back, one array
        per tensor as in :meth:`direction`. With ``inverse_metric`` a pair: u, and 1/M of the metric that the rule measures
        steps with.

        Then comes :meth:`apply`; until then everything else that would change the optimizer is refused
        (:class:`SequenceError`). All stages get the same gradients. propose and apply together give the same bits as
        :meth:`step`.
        """
        u = self._outputs()
        d = self._outputs() if inverse_metric else None
        self._core.propose(self._rows(grads), losses, u, d)
        return (u, d) if inverse_metric else u

    def project(self, grads: Any) -> tuple[list[Any], _suture.Report]:
        """The step p that :meth:`apply` would make, and its report. Nothing is changed."""
        p = self._outputs()
        return p, self._core.project(self._rows(grads), p)

    @overload
    def apply(self, grads: Any, p: Sequence[Any] | None = None, *, report: Literal[True] = True) -> _suture.Report: ...
    @overload
    def apply(self, grads: Any, p: Sequence[Any] | None = None, *, report: Literal[False]) -> None: ...
    @overload
    def apply(self, grads: Any, p: Sequence[Any] | None = None, *, report: bool) -> _suture.Report | None: ...
    def apply(self, grads: Any, p: Sequence[Any] | None = None, *, report: bool = True) -> _suture.Report | None:
        """
        The last stage: parameters move by -lr p, and the state is realigned.

        :param p: None: the projection of u (u itself without alignment). Else a list with one array per tensor, which is
            applied instead, whatever it does to the losses; None in it stands for u.
        """
        if p is not None and (_is_one(p) or not isinstance(p, Iterable)):
            raise TypeError(f"p is of type {type(p).__name__}; a list with one array per tensor is needed")
        return self._core.apply(self._rows(grads), None if p is None else list(p), report)

    # -- settings --

    @property
    def n_losses(self) -> int:
        return self._core.n_losses

    @property
    def steps(self) -> int:
        """Steps done."""
        return self._core.steps

    @property
    def skipped_steps(self) -> int:
        """Steps refused because of non-finite input."""
        return self._core.skipped_steps

    @property
    def names(self) -> list[str]:
        """Names of the tensors; state files go by them."""
        return list(self._names)

    @property
    def lr(self) -> float:
        """Rate of the first group."""
        rate: float = self._core.group(0)["lr"]
        return rate

    @lr.setter
    def lr(self, value: float) -> None:
        self._core.set_lr(value)

    def group(self, index: int = 0) -> dict[str, Any]:
        """Hyper-parameters of a group, as they are now."""
        return self._core.group(index)

    def set(self, group: int | None = None, **hyper: Any) -> None:
        """New hyper-parameters, of one group or of all; they act from the next step."""
        method = self._config["method"]
        known, unknown = split_options(method, hyper)
        if unknown:
            near = difflib.get_close_matches(next(iter(unknown)), list(hyper_names(method)), 1, 0.5)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise TypeError(f"{method} has no hyper-parameter '{next(iter(unknown))}'{hint}")
        for k in range(len(self._config["groups"])) if group is None else [group]:
            now = self._core.group(k)
            if "beta1" in now:
                now["betas"] = (now.pop("beta1"), now.pop("beta2"))
                fold_betas(known, now["betas"])
            self._core.set_group(k, {**now, **known})

    def set_align(self, align: str, rho_m: float = 0.1, rho_v: float = 0.03) -> None:
        """Alignment on ("gua") or off ("none"), and the strengths of realignment."""
        self._core.set_align(align, rho_m, rho_v)

    def synchronize(self) -> None:
        """Wait for steps that a GPU has queued (``report=False`` does not wait). The first of them that was refused, which
        left everything as it was, raises its exception here. On the CPU there is nothing to wait for."""
        self._core.synchronize()

    def parameters_changed(self) -> None:
        """Take over float16 and bfloat16 parameters that were written from outside."""
        self._core.parameters_changed()

    # -- state --

    def state(self, tensor: str | int) -> dict[str, Any]:
        """
        The optimizer's memory of one tensor: views that may be written to between steps, and its count of steps. On a GPU
        the views are tensors for tensors of PyTorch, and objects with ``__cuda_array_interface__`` for others
        (``cupy.asarray(view)`` does not copy).
        """
        if isinstance(tensor, str) and tensor not in self._names:
            raise KeyError(f"there is no parameter {tensor!r}")
        k = self._names.index(tensor) if isinstance(tensor, str) else tensor
        step = self._core.tensor_steps(k)  # refuses what is no index
        tensor = self._tensors[k][1]
        return {"step": step, **{name: self._shown(name, k, tensor) for name in slots(self._core, tensor)}}

    def _shown(self, slot: str, k: int, tensor: Any) -> Any:
        memory, device = self._core.state(slot, k), self._core.device
        if device is not None and isinstance(memory, _suture.DeviceArray) and is_torch(tensor):
            return _cuda.show(memory, device)
        return memory

    def save(self, path: str | os.PathLike[str], *, include_parameters: bool = True) -> None:
        """
        Write everything that is needed to go on with the same bits to a file (safetensors, docs/state-files.md). A crash
        leaves the old file or the new one, complete.

        :param include_parameters: False leaves out the parameters and the float32 master copies of 16-bit ones, which belong
            to them: the optimizer that loads keeps its own. A copy that goes on with the same bits has to be given both.
        """
        self._core.save(_path(path), include_parameters)

    def load(
        self, path: str | os.PathLike[str], *, include_parameters: bool = True, restore_settings: bool = True
    ) -> None:
        """Read such a file. What does not fit is refused by name, and nothing is changed."""
        self._core.load(_path(path), include_parameters, restore_settings)

    def to_bytes(self, *, include_parameters: bool = True) -> bytes:
        """The same as bytes."""
        return self._core.to_bytes(include_parameters)

    def from_bytes(self, data: bytes, *, include_parameters: bool = True, restore_settings: bool = True) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data is of type {type(data).__name__}; the bytes that to_bytes() gives are needed")
        self._core.from_bytes(bytes(data), include_parameters, restore_settings)

    def __reduce__(self) -> Any:
        """Copies and pickles hold the parameters and the state, and go on with the same bits."""
        masters = {k: self._core.read_state("master", k) for k, (_, t, _) in enumerate(self._tensors) if has_master(t)}
        return _rebuild, (self._tensors, self._config, self._core.to_bytes(False), masters)

    def __repr__(self) -> str:
        surgery, align = self._core.methods
        return (
            f"suture.Optimizer({self._config['method']}, {len(self._names)} tensors, {self.n_losses} losses, "
            f"surgery {surgery}, align {align}, step {self.steps})"
        )


def _is_one(x: Any) -> bool:
    """An array, of whatever library, and not a list of them."""
    return hasattr(x, "dtype") or hasattr(x, "__cuda_array_interface__")


def _path(path: str | os.PathLike[str]) -> bytes:
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("embedded null byte in the path")
    return name


def _rebuild(
    tensors: Iterable[tuple[str, Any, int]], config: Mapping[str, Any], state: bytes, masters: Mapping[int, np.ndarray]
) -> Optimizer:
    groups: list[dict[str, Any]] = [{"params": [], **hyper} for hyper in config["hyper"]]
    for name, tensor, group in tensors:
        groups[group]["params"].append((name, tensor))
    opt = Optimizer(
        groups,
        config["method"],
        n_losses=config["n_losses"],
        surgery=config["surgery"],
        align=config["align"],
        loss_names=config["loss_names"],
        threads=config["threads"],
        seed=config["seed"],
        isa=config["isa"],
        **config["options"],
    )
    opt._core.from_bytes(state, False, True)
    for k, master in masters.items():
        opt._core.write_state("master", k, master)
    if masters:
        opt._core.parameters_changed()
    return opt
