"""
The optimizer of PyTorch training loops. Three lines change:

    import suture.torch
    opt = suture.torch.Optimizer(model.parameters(), "adam", lr=1e-3, surgery="config", align="gua")
    ...
    opt.step_losses([residual_loss, boundary_loss])     # backward passes, surgery, aligned step
"""

from __future__ import annotations

import copy
from typing import Any, Callable, Iterable, Literal, Mapping, Sequence, TypeVar, Union, cast, overload

import torch

from ._arrays import change_counter, needs_version, torch_module

_version = needs_version(torch, "suture.torch", "PyTorch", 2, 6)  # before names are imported that older ones lack

from torch.compiler import is_compiling
from torch.nn.parameter import UninitializedParameter
from torch.optim.optimizer import (
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
)

from . import _cuda, _state, _suture, _torch_losses, _torch_state
from ._optimizer import entries_of, fold_betas, hyper_names, settle_rates, split_options
from ._shown import Shown
from ._torch_losses import Losses

__all__ = ["Optimizer"]

#: Options with an entry per loss.
_PER_LOSS = ("preference", "order")

_count_changes = change_counter(torch)

#: What step_grads() takes.
Rows = Sequence[Sequence[Union[torch.Tensor, None]]]
_F = TypeVar("_F", bound=Callable[..., Any])


def _not_compiled(function: _F) -> _F:
    """torch.compile calls it as it is, as it does with PyTorch's own optimizers: a break of the graph."""
    disable = getattr(torch, "_disable_dynamo", None)
    return function if disable is None else cast(_F, disable(function))


def _compiler_of(version: tuple[int, ...]) -> Callable[[], Any]:
    """A function that returns what compiles functions that are called, None when nothing does. PyTorch's own gives away a
    reference that it does not hold before 2.8, which ends in a crash; there every step goes the way of those in compiled
    functions."""
    if version < (2, 8):
        return lambda: True
    frames = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    return getattr(frames, "get_eval_frame_callback", lambda: None)


_compiler = _compiler_of(_version)


@_not_compiled
def _called(opt: Optimizer, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A step in a function that is compiled. Steps ask whether they are in one, traced (``is_compiling()``) or between two
    graphs (``_compiler()``): a tenth of the microsecond that wrapping each of them would take."""
    return opt._hooked(step, (opt, *args), kwargs)


class _Held:
    """What changes as an optimizer is used. Wrappers of optimizers (those of Lightning and Fabric) have the methods of the one
    that they wrap and read its attributes, but what a method assigns becomes theirs: so all of it is held in one place."""

    __slots__ = (
        "absent", "built", "called", "core", "generation", "low", "needs_losses", "report", "reports", "several", "state", "told",
        "versions", "whole",
    )  # fmt: skip

    def __init__(self) -> None:
        self.core: Any = None
        self.built: list[torch.Tensor] = []  # the tensors of the core, in its order
        self.low: list[torch.Tensor] = []  # those of 16 bits, and their versions after the last step
        self.versions: list[int] = []
        self.generation = -1  # of the core whose memory `state` shows
        self.state: Any = Shown()
        self.report: _suture.Report | None = None
        self.reports = False  # keep_reports
        self.called = False
        self.needs_losses = True  # until a core says otherwise
        self.whole = True  # all groups are there
        self.several = False  # a step had several losses
        self.absent: frozenset[int] = frozenset()  # parameters that no loss reached, when that was last looked into
        self.told: set[str] = set()  # warnings that were given

    def forget(self) -> None:
        """No core and no state, as before the first step."""
        self.core, self.built, self.low, self.versions, self.generation = None, [], [], [], -1
        if isinstance(self.state, Shown):
            self.state.show({})


class Optimizer(torch.optim.Optimizer):
    """
    A ``torch.optim.Optimizer`` whose steps hurt none of several losses. Parameter groups, schedulers, ``state_dict``,
    ``zero_grad``, closures and hooks work as with every optimizer of PyTorch.

    :param params: as for every optimizer of PyTorch: tensors, groups, or ``model.named_parameters()``. float32, float64,
        float16 or bfloat16, on the CPU or all on one CUDA device, where steps are queued on PyTorch's current stream.
    :param method: "sgd", "rmsprop", "adagrad", "adam", "adamw", "nadam", "radam" or "lion".
    :param surgery, align, options: as in :class:`suture.Optimizer`. Hyper-parameters are named as in PyTorch (``lr``,
        ``betas``, ``eps``, ``weight_decay``, ...) and can differ between groups; all others belong to the whole optimizer.
    :param loss_names: names for error texts; fixes the number of losses, as do options with an entry per loss
        (``preference``, ``order``).

    ``step()`` takes one loss: the gradients in ``.grad``. ``step_losses([...])`` takes several and does the backward passes.
    The number of losses may change from step to step; the moments are carried over, which costs a copy of the state.
    """

    def __init__(
        self,
        params: Any,
        method: str = "adam",
        *,
        surgery: str = "sum",
        align: str = "none",
        loss_names: Sequence[str] | None = None,
        threads: int = 0,
        seed: int = 0,
        isa: str = "auto",
        **options: Any,
    ) -> None:
        hyper, rest = split_options(method, options)
        defaults = hyper_names(method)
        if "beta1" in defaults:
            defaults["betas"] = (defaults.pop("beta1"), defaults.pop("beta2"))
            fold_betas(hyper, defaults["betas"])
        settle_rates(hyper, rest, defaults["lr"])
        defaults.update(hyper)
        for name in _PER_LOSS:
            if isinstance(rest.get(name), Iterable) and not isinstance(rest[name], (str, bytes)):
                rest[name] = list(rest[name])
        torch_module()
        self._config: dict[str, Any] = {
            "method": method,
            "surgery": surgery,
            "loss_names": _suture.texts(loss_names, "loss_names"),
            "threads": threads,
            "seed": seed,
            "isa": isa,
            "options": {**rest, "align": align},
        }
        self._begin_empty()
        self._held.whole = False
        super().__init__(params if isinstance(params, torch.Tensor) else entries_of(params, "params"), defaults)
        self._held.whole = True
        self._build(self._first_count())  # so that every mistake is found now
        if not self._counts:
            self._held.forget()

    def _begin_empty(self) -> None:
        per_loss = {"loss_names": self._config["loss_names"], **self._config["options"]}
        #: Settings with an entry per loss, and their lengths.
        self._counts = {name: len(per_loss[name]) for name in ("loss_names", *_PER_LOSS) if hasattr(per_loss.get(name), "__len__")}
        self._turn = _suture.Turn()  # what several calls of the core do together, one thread at a time
        self._held = _Held()

    @property
    def state(self) -> Any:
        """
        For each parameter a dict of its moments, which are the optimizer's own memory: writing into them acts on the next
        step. Before the first step it is empty. Entries that are removed begin anew (``opt.state.clear()``,
        ``opt.state = {}``: all of them, as in a new optimizer); entries and tensors that are assigned are copied in.
        """
        return self._held.state

    @state.setter
    def state(self, given: Mapping[Any, Mapping[str, Any]]) -> None:
        if not isinstance(given, Mapping):
            raise TypeError(f"state is of type {type(given).__name__}; a dict with a dict for each parameter is needed")
        self._held.state = given

    # -- the core --

    def _first_count(self) -> int:
        """Losses of a core that is made before a step tells their number."""
        return next(iter(self._counts.values()), 1)

    def _check_count(self, n_losses: int, caller: str = "") -> None:
        """No step for another number of losses than settings are for. Names alone do not forbid step(), which has one."""
        for name, count in self._counts.items():
            if n_losses == count or (name == "loss_names" and n_losses == 1 and not caller):
                continue
            given = "1 loss was" if n_losses == 1 else f"{n_losses} losses were"
            hint = "" if caller or n_losses > 1 else "; step() takes one loss, step_losses() several"
            raise _suture.InvalidArgumentError(f"{given} given, but {name} has {count}{hint}")

    def _tensors(self) -> list[tuple[str, torch.Tensor, int]]:
        tensors, index = [], 0
        for k, group in enumerate(self.param_groups):
            names = group.get("param_names")
            for j, p in enumerate(group["params"]):
                tensors.append((names[j] if names else f"param.{index}", p, k))
                index += 1
        return tensors

    def _make(self, n_losses: int) -> _suture.Optimizer:
        """A new core for the groups as they are."""
        c, tensors = self._config, self._tensors()
        for name, p, _ in tensors:
            if isinstance(p, UninitializedParameter):
                raise ValueError(
                    f"parameter '{name}' has no shape yet, as it is one of a lazy module; call the model once on an input "
                    "before the optimizer is made"
                )
            if p.requires_grad and not p.is_leaf:
                raise ValueError(f"parameter '{name}' is not a leaf tensor any more")
        core = _suture.Optimizer(
            c["method"],
            tensors,
            [{k: v for k, v in g.items() if k != "params"} for g in self.param_groups],
            n_losses,
            c["loss_names"] if c["loss_names"] and len(c["loss_names"]) == n_losses else None,
            c["surgery"],
            c["options"],
            c["threads"],
            c["seed"],
            c["isa"],
        )
        counted = [p for _, p, _ in tensors if not p.is_inference()]
        if counted and _count_changes is not None:
            core.after_step(_count_changes, counted)
        return core

    def _use(self, core: _suture.Optimizer, restored: bool = True) -> None:
        held, tensors = self._held, [p for _, p, _ in self._tensors()]
        held.core, held.built = core, tensors
        held.needs_losses = core.needs_losses
        held.low = [p for p in tensors if _state.has_master(p) and not p.is_inference()]
        # Copies from elsewhere are compared with their parameters at the next step, when the model has been loaded, too.
        held.versions = [-1 if restored else p._version for p in held.low]
        self._show_state()

    def _build(self, n_losses: int) -> None:
        """A core for that many losses, with the state so far."""
        core, held = self._make(n_losses), self._held
        if held.core is not None:
            entries, whole = _torch_state.pack(held.core, held.built)
            known = {id(p): entries[k] for k, p in enumerate(held.built)}
            tensors = self._tensors()
            entries = {k: known[id(p)] for k, (_, p, _) in enumerate(tensors) if id(p) in known}
            _torch_state.restore(core, tensors, entries, whole, begin=True)
        self._use(core, held.core is not None)

    def _show_state(self) -> None:
        held = self._held
        if not isinstance(held.state, Shown):
            held.state = Shown()
        held.generation = held.core.generation
        held.state.show(
            {p: {name: self._shown(name, k) for name in _state.slots(held.core, p)} for k, p in enumerate(held.built)}
        )

    def _shown(self, slot: str, k: int) -> torch.Tensor:
        """A part of the state as a tensor over the optimizer's own memory."""
        core = self._held.core
        memory = core.state(slot, k)
        shown: torch.Tensor = (
            _cuda.show(memory, core.device) if isinstance(memory, _suture.DeviceArray) else torch.from_numpy(memory)
        )
        return shown

    def _take_over_edits(self) -> None:
        """``self.state`` was edited or assigned: what it holds now is the state."""
        held, tensors = self._held, self._tensors()
        places = {id(p): k for k, (_, p, _) in enumerate(tensors)}
        given: dict[int, Mapping[str, Any]] = {}
        for p, entry in held.state.items():
            if not isinstance(p, torch.Tensor):
                raise TypeError(f"state has the key {p!r:.80}; parameters are its keys")
            if not isinstance(entry, Mapping):
                raise TypeError(f"state has an entry of type {type(entry).__name__}; a dict is needed")
            if entry and id(p) in places:  # that of a parameter which left its group is no state of ours
                given[places[id(p)]] = entry
        if not given:
            if type(held.state) is not Shown:
                held.state = Shown()
            held.forget()
            return
        core = self._make(self._first_count() if held.core is None else held.core.n_losses)
        entries: dict[int, dict[str, Any]] = {}
        whole = None
        if held.core is not None:
            packed, whole = _torch_state.pack(held.core, held.built)
            entries = {places[id(p)]: packed[k] for k, p in enumerate(held.built) if id(p) in places}
        counts = {k: entries[k]["step"] if k in entries else 0 for k in given}
        _torch_state.restore(core, tensors, {k: {"step": counts[k], **entry} for k, entry in given.items()}, whole)
        self._use(core)

    def _settled(self) -> None:
        """Edits of ``state`` and of the groups are taken over, if there is a core."""
        held = self._held
        if type(held.state) is not Shown or held.state.flag.edited:
            self._take_over_edits()
        if held.core is not None and not held.core.fits(self.param_groups):
            self._build(held.core.n_losses)

    def _ready(self, n_losses: int) -> _suture.Optimizer:
        held = self._held
        if type(held.state) is not Shown or held.state.flag.edited:
            self._take_over_edits()
        core: _suture.Optimizer = held.core
        if core is None or not self._follow(core, n_losses):
            self._check_count(n_losses)
            self._build(n_losses)
            core = held.core
        if held.low and held.versions != [p._version for p in held.low]:
            core.parameters_changed()
        return core

    def _follow(self, core: _suture.Optimizer, n_losses: int) -> bool:
        try:
            return core.follow(self.param_groups, n_losses)
        except _suture.UnsupportedError:
            return False  # a setting that wants more state, as a schedule of the momentum does: a new core has it

    def _seen(self) -> None:
        """After a step: what later steps compare with."""
        held = self._held
        if held.low:
            held.versions = [p._version for p in held.low]
        if held.core.generation != held.generation:  # memory of parameters moved
            self._show_state()

    @_not_compiled
    def synchronize(self) -> None:
        """
        Wait for steps that a GPU has queued. A step without a report does not wait; one that was refused (NaN in a gradient)
        left everything as it was, and the first of those raises its exception here. On the CPU there is nothing to wait for.
        """
        with _Inside(self._turn):
            if self._held.core is not None:
                self._held.core.synchronize()

    @_not_compiled
    def parameters_changed(self) -> None:
        """
        Take over float16 and bfloat16 parameters that were written from outside: the optimizer steps float32 copies of them.
        Writing that PyTorch counts (``model.load_state_dict()``, ``p.copy_()``) is noticed without this; writing through
        ``p.data`` or ``p.numpy()`` is not.
        """
        with _Inside(self._turn):
            self._settled()
            if self._held.core is not None:
                self._held.core.parameters_changed()

    # -- steps --

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """
        One step for one loss, from the gradients in ``.grad`` (None: the parameter is left alone; everywhere: this is no step).

        :param closure: computes the loss again and does the backward pass; or returns a list or tuple of losses and does none,
            then the step is that of :meth:`step_losses`. Trainers that know of ``step(closure)`` alone take several losses so.
        :return: what the closure returned.
        """
        if is_compiling() or _compiler():
            return _called(self, Optimizer._step, *(() if closure is None else (closure,)))
        if self._has_hooks():
            return self._hooked(Optimizer._step, (self,) if closure is None else (self, closure), {})
        return self._step(closure)

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            if not callable(closure):
                raise TypeError(f"closure is of type {type(closure).__name__}; a function is needed")
            with torch.enable_grad():
                loss = closure()
            if isinstance(loss, (list, tuple)) and all(isinstance(x, torch.Tensor) for x in loss):
                self._step_losses(loss)
                return loss
        held, turn = self._held, self._turn
        if held.core is not None and held.core.n_losses > 1 and not self._has_gradient():
            return loss  # before the state is carried over to one loss
        turn.enter()
        try:
            report = self._ready(1).step_grad(held.reports)
            if report is False:  # there was no gradient
                return loss
            held.report = report
            self._seen()
        finally:
            turn.leave()
        if not held.several and "surgery" not in held.told and self._config["surgery"] not in ("sum", "mean", "fixed"):
            held.told.add("surgery")
            _torch_losses.tell(
                f"step() has one loss, where surgery '{self._config['surgery']}' has nothing to do; step_losses() takes several, "
                "as does step() with a closure that returns a list of them"
            )
        return loss

    def _has_gradient(self) -> bool:
        return any(p.grad is not None for group in self.param_groups for p in group["params"])

    # PyTorch wraps step() of every subclass to run hooks and to mark the step for its profiler, which costs more than a
    # small step itself. The hooks are run by _hooked().
    step.hooked = True  # type: ignore[attr-defined]

    @property
    def keep_reports(self) -> bool:
        """Whether step() keeps a report, too. Costs one more pass over the gradients."""
        return self._held.reports

    @keep_reports.setter
    def keep_reports(self, keep: bool) -> None:
        self._held.reports = keep

    @property
    def _opt_called(self) -> bool:
        """By this schedulers know that a step came before theirs."""
        return self._held.called

    @_opt_called.setter
    def _opt_called(self, called: bool) -> None:
        self._held.called = called

    def _has_hooks(self) -> bool:
        return bool(
            self._optimizer_step_pre_hooks
            or _global_optimizer_pre_hooks
            or self._optimizer_step_post_hooks
            or _global_optimizer_post_hooks
        )

    def _hooked(self, step: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``step(*args, **kwargs)`` with hooks around it as PyTorch runs them: those before it may replace the arguments, of
        which the optimizer is the first."""
        for before in [*_global_optimizer_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()]:
            changed: Any = before(self, args, kwargs)
            if changed is None:
                continue
            if not isinstance(changed, tuple) or len(changed) != 2:
                raise RuntimeError(
                    f"a hook before {step.__name__.lstrip('_')}() returned {changed!r:.80}; it must return None or a tuple of "
                    "(new_args, new_kwargs)"
                )
            args, kwargs = changed
        result = step(*args, **kwargs)
        for after in [*self._optimizer_step_post_hooks.values(), *_global_optimizer_post_hooks.values()]:
            after(self, args, kwargs)
        return result

    @overload
    def step_losses(self, losses: Losses, *, retain_graph: bool = False, report: Literal[True] = True) -> _suture.Report: ...
    @overload
    def step_losses(self, losses: Losses, *, retain_graph: bool = False, report: Literal[False]) -> None: ...
    @overload
    def step_losses(self, losses: Losses, *, retain_graph: bool = False, report: bool) -> _suture.Report | None: ...
    def step_losses(
        self, losses: Losses, *, retain_graph: bool = False, report: bool = True
    ) -> _suture.Report | None:
        """
        One step for several losses: a backward pass for each (they may share a graph), surgery, aligned step. ``.grad`` is
        neither read nor written. A parameter that a loss does not use is absent for it.

        :param losses: scalars that require grad, one per loss: a list, a tensor with one element per loss, or a dict, by the
            ``loss_names`` if there are any.
        :param retain_graph: keep the graph after the last backward pass.
        :param report: False: none is made. On a GPU the step is then queued and not waited for (:meth:`synchronize`).
        """
        settings = {"retain_graph": retain_graph, "report": report}
        if is_compiling() or _compiler():
            return cast("_suture.Report | None", _called(self, Optimizer._step_losses, losses, **settings))
        if self._has_hooks():
            return cast("_suture.Report | None", self._hooked(Optimizer._step_losses, (self, losses), settings))
        return self._step_losses(losses, **settings)

    def _step_losses(
        self, losses: Losses, *, retain_graph: bool = False, report: bool = True
    ) -> _suture.Report | None:
        held, names = self._held, self._config["loss_names"]
        losses = _torch_losses.listed(losses, names)
        self._check_count(len(losses), "step_losses")
        if not 1 <= len(losses) <= _suture.max_losses:
            raise _suture.OutOfRangeError(f"{len(losses)} losses were given; possible are 1 to {_suture.max_losses}")
        _torch_losses.check(losses, names)
        params = [p for group in self.param_groups for p in group["params"]]
        wanted = [p for p in params if p.requires_grad]
        if not wanted:
            raise ValueError("no parameter requires grad")
        processes = _torch_losses.processes()
        if processes > 1 and "processes" not in held.told:
            held.told.add("processes")
            _torch_losses.tell(
                f"step_losses() steps with the gradients of this process alone, and there are {processes}; average them between "
                "torch.autograd.grad() and step_grads() (docs/python.md)"
            )
        rows = []
        for i, loss in enumerate(losses):
            keep = retain_graph or i + 1 < len(losses)
            grads: Sequence[Any] = torch.autograd.grad(loss, wanted, retain_graph=keep, allow_unused=True)
            if len(wanted) != len(params):
                found = iter(grads)
                grads = [next(found) if p.requires_grad else None for p in params]
            rows.append(grads)
        self._look_for_absent(losses, rows)
        return self._step_grads(rows, self._values(losses), report=report)

    def _look_for_absent(self, losses: Sequence[torch.Tensor], rows: Sequence[Sequence[Any]]) -> None:
        """No loss reaches some parameters: they are left alone, unless the reason is a mistake that would go unseen."""
        absent = frozenset(k for k, column in enumerate(zip(*rows)) if all(g is None for g in column))
        if not absent or absent == self._held.absent:
            return
        if len(absent) == len(rows[0]):
            raise ValueError("no loss depends on any parameter of this optimizer")
        if _torch_losses.has_reentrant_checkpoint(losses):
            raise ValueError(
                "a part of the model is checkpointed with use_reentrant=True, which torch.autograd.grad() passes by: its "
                "parameters would get no gradient; use torch.utils.checkpoint.checkpoint(..., use_reentrant=False)"
            )
        self._held.absent = absent

    def _values(self, losses: Sequence[torch.Tensor]) -> list[float] | None:
        """The losses as numbers. Those on a GPU would have to be waited for, and are left there when the surgery does not
        need them."""
        if all(loss.device.type == "cpu" for loss in losses):
            return [float(loss.detach()) for loss in losses]
        if not self._held.needs_losses:
            return None
        host = [_cuda.to_host(loss) if loss.device.type == "cuda" else loss.detach() for loss in losses]
        return [float(loss) for loss in host]

    @overload
    def step_grads(self, rows: Rows, losses: Sequence[float] | None = None, *, report: Literal[True] = True) -> _suture.Report: ...
    @overload
    def step_grads(self, rows: Rows, losses: Sequence[float] | None = None, *, report: Literal[False]) -> None: ...
    @overload
    def step_grads(self, rows: Rows, losses: Sequence[float] | None = None, *, report: bool) -> _suture.Report | None: ...
    def step_grads(
        self, rows: Rows, losses: Sequence[float] | None = None, *, report: bool = True
    ) -> _suture.Report | None:
        """The same from gradients that are there already: one list per loss with one tensor (None: absent) per parameter, in
        the order of the groups."""
        args = (rows,) if losses is None else (rows, losses)
        if is_compiling() or _compiler():
            return cast("_suture.Report | None", _called(self, Optimizer._step_grads, *args, report=report))
        if self._has_hooks():
            return cast("_suture.Report | None", self._hooked(Optimizer._step_grads, (self, *args), {"report": report}))
        return self._step_grads(rows, losses, report=report)

    def _step_grads(
        self, rows: Rows, losses: Sequence[float] | None = None, *, report: bool = True
    ) -> _suture.Report | None:
        if not isinstance(rows, (list, tuple)):
            if isinstance(rows, torch.Tensor) or not isinstance(rows, Iterable):
                raise TypeError(f"gradients are of type {type(rows).__name__}; a list with those of each loss is needed")
            rows = list(rows)
        held, turn = self._held, self._turn
        held.called = True
        held.several = held.several or len(rows) > 1
        turn.enter()
        try:
            held.report = found = self._ready(len(rows)).step(rows, losses, report)
            self._seen()
        finally:
            turn.leave()
        return found

    @property
    def report(self) -> _suture.Report | None:
        """The report of the last step, if one was made."""
        return self._held.report

    @property
    def steps(self) -> int:
        """Steps done."""
        core = self._held.core
        return 0 if core is None else core.steps

    @_not_compiled
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """
        As in every optimizer of PyTorch. ``beta1`` and ``beta2`` become ``betas``; keys that the method does not know are carried
        along, but options that belong to the whole optimizer are refused. A group that is refused is not there afterwards.
        """
        given = dict(param_group) if isinstance(param_group, dict) else None
        with _Inside(self._turn):
            count = len(self.param_groups)
            try:
                if given is not None:
                    self._look_at_group(param_group)
                super().add_param_group(param_group)
                if not self._held.whole:
                    return  # the constructor looks when all groups are there
                if self._held.core is None:
                    self._make(self._first_count())
                else:
                    self._settled()
            except Exception:
                del self.param_groups[count:]
                if given is not None:
                    param_group.clear()
                    param_group.update(given)
                raise

    def _look_at_group(self, group: dict[str, Any]) -> None:
        if "betas" in self.defaults:
            fold_betas(group, self.defaults["betas"])
        if isinstance(group.get("params"), (torch.Tensor, set, type(None))):
            return
        group["params"] = entries_of(group["params"], "params")
        first: dict[int, int] = {}
        for k, entry in enumerate(group["params"]):
            tensor = entry[1] if isinstance(entry, tuple) and len(entry) == 2 else entry
            if first.setdefault(id(tensor), k) != k:
                raise ValueError(f"parameters {first[id(tensor)]} and {k} of the group are the same tensor; each is listed once")

    # -- state --

    @_not_compiled
    def state_dict(self) -> dict[str, Any]:
        """
        As PyTorch's: ``state`` with copies of the moments and the count of steps of each parameter, ``param_groups``; and
        ``suture`` with what belongs to the whole optimizer.
        """
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        with _Inside(self._turn):
            self._settled()
            state, whole = ({}, {}) if self._held.core is None else _torch_state.pack(self._held.core, self._held.built)
            index = {id(p): k for k, (_, p, _) in enumerate(self._tensors())}
            groups = []
            for group in self.param_groups:
                packed = {k: v for k, v in group.items() if k != "params"}
                packed["params"] = [index[id(p)] for p in group["params"]]
                groups.append(packed)
        result: dict[str, Any] = {"state": state, "param_groups": groups, "suture": whole}
        for after in self._optimizer_state_dict_post_hooks.values():
            changed = after(self, result)
            result = result if changed is None else changed
        return result

    @_not_compiled
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Take over such a dict; nothing of it is kept by reference. One that belongs to another model or method is refused by
        name, and nothing is changed. Hyper-parameters and other keys of the groups come from the dict, as with every
        optimizer of PyTorch.

        A dict of the optimizer of that name in ``torch.optim`` is taken over, too: the moments mean the same. So is one
        without the key ``suture``, as tools for distributed checkpoints leave it; only what the surgery remembers is lost then.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"state_dict is of type {type(state_dict).__name__}; the dict that state_dict() gives is needed")
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        with _Inside(self._turn):
            maximize = bool(self._config["options"].get("maximize", False))
            self._load(*_torch_state.check_dict(state_dict, self._config["method"], self.param_groups, maximize))
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def _load(self, state: Mapping[int, Mapping[str, Any]], groups: Sequence[dict[str, Any]], whole: Mapping[str, Any]) -> None:
        kept = [dict(group) for group in self.param_groups]
        try:
            for mine, other in zip(self.param_groups, groups):
                given = {k: copy.deepcopy(v) for k, v in other.items() if k not in ("params", "param_names")}
                if "betas" in self.defaults:
                    fold_betas(given, mine["betas"])
                mine.update(given)
            # Everything is tried on a core of its own before anything is changed.
            core = self._make(int(whole["n_losses"]) if whole else self._first_count())
            if whole:
                _torch_state.restore(core, self._tensors(), state, whole, complete=True)
            elif state:
                _torch_state.restore(core, self._tensors(), state, None)
        except Exception:
            for mine, old in zip(self.param_groups, kept):
                mine.clear()
                mine.update(old)
            raise
        self._held.state = Shown()
        if whole or state:
            self._use(core)
        else:
            self._held.forget()

    # -- copies and pickles --

    def __getstate__(self) -> dict[str, Any]:
        with _Inside(self._turn):
            self._settled()
            packed = None if self._held.core is None else _torch_state.pack(self._held.core, self._held.built)
        if packed is not None:
            # As arrays: a tensor goes to another process by a descriptor of its memory, which is closed when nobody here
            # keeps the tensor until that process has begun.
            state, whole = packed
            packed = {k: {slot: _torch_state.plain(x) for slot, x in e.items()} for k, e in state.items()}, {
                key: _torch_state.plain(x) for key, x in whole.items()
            }
        return {
            "defaults": self.defaults,
            "param_groups": self.param_groups,
            "config": self._config,
            "packed": packed,
            "keep_reports": self.keep_reports,
        }

    def __setstate__(self, given: dict[str, Any]) -> None:
        torch_module()
        super().__setstate__({"defaults": given["defaults"], "param_groups": given["param_groups"]})
        self._config = given["config"]
        self._begin_empty()
        if given["keep_reports"]:
            self.keep_reports = True
        if given["packed"] is not None:
            state, whole = given["packed"]
            core = self._make(int(whole["n_losses"]))
            _torch_state.restore(core, self._tensors(), state, whole)
            self._use(core)

    def __repr__(self) -> str:
        c = self._config
        head = f"suture.torch.Optimizer({c['method']}, surgery {c['surgery']}, align {c['options']['align']})"
        return head + super().__repr__()[len(type(self).__name__) :]


class _Inside:
    """A turn as a context."""

    def __init__(self, turn: Any) -> None:
        self.turn = turn

    def __enter__(self) -> None:
        self.turn.enter()

    def __exit__(self, *_: Any) -> None:
        self.turn.leave()
