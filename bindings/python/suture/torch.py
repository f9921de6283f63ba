"""
The optimizer of PyTorch training loops. Three lines change:

    import suture.torch
    opt = suture.torch.Optimizer(model.parameters(), "adam", lr=1e-3, surgery="config", align="gua")
    ...
    opt.step_losses([residual_loss, boundary_loss])     # backward passes, surgery, aligned step
"""

from __future__ import annotations

import itertools
from typing import Any, Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from torch.optim.optimizer import (
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
)

from . import _state, _suture
from ._arrays import torch_module
from ._optimizer import hyper_names, split_options

__all__ = ["Optimizer"]

_increment_version = getattr(torch._C, "_increment_version", None)


class Optimizer(torch.optim.Optimizer):
    """
    A ``torch.optim.Optimizer`` whose steps hurt none of several losses. Parameter groups, schedulers, ``state_dict``,
    ``zero_grad``, closures and hooks work as with every optimizer of PyTorch.

    :param params: as for every optimizer of PyTorch: tensors, groups, or ``model.named_parameters()``. float32, float64,
        float16 or bfloat16, on the CPU.
    :param method: "sgd", "rmsprop", "adagrad", "adam", "adamw", "nadam", "radam" or "lion".
    :param surgery, align, options: as in :class:`suture.Optimizer`. Hyper-parameters are named as in PyTorch (``lr``,
        ``betas``, ``eps``, ``weight_decay``, ...) and can differ between groups; all others belong to the whole optimizer.
    :param loss_names: names for error texts; fixes the number of losses.

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
            betas = hyper.pop("betas", (defaults["beta1"], defaults["beta2"]))
            defaults["betas"] = (hyper.pop("beta1", betas[0]), hyper.pop("beta2", betas[1]))
            del defaults["beta1"], defaults["beta2"]
        defaults.update(hyper)
        torch_module()
        self._config: dict[str, Any] = {
            "method": method,
            "surgery": surgery,
            "loss_names": None if loss_names is None else list(loss_names),
            "threads": threads,
            "seed": seed,
            "isa": isa,
            "options": {**rest, "align": align},
        }
        self._core: Any = None
        self._built: list[torch.Tensor] = []  # the tensors of the core, in its order
        self._low: list[torch.Tensor] = []  # those of 16 bits, and their versions after the last step
        self._versions: list[int] = []
        self._shown = -1  # generation of the core whose memory self.state shows
        self._report: _suture.Report | None = None
        self._waiting: Any = None  # a state that was loaded before the first step
        super().__init__(params, defaults)
        self._build(1 if loss_names is None else len(loss_names))  # so that every mistake is found now
        if loss_names is None:
            self._core = None

    # -- the core --

    def _tensors(self) -> list[tuple[str, torch.Tensor, int]]:
        tensors, index = [], 0
        for k, group in enumerate(self.param_groups):
            names = group.get("param_names")
            for j, p in enumerate(group["params"]):
                tensors.append((names[j] if names else f"param.{index}", p, k))
                index += 1
        return tensors

    def _build(self, n_losses: int) -> None:
        """A core for that many losses, with the state so far."""
        old, c = self._core, self._config
        tensors = self._tensors()
        for name, p, _ in tensors:
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
        if old is not None:
            entries, whole = self._pack(old)
            known = {id(p): entries[k] for k, p in enumerate(self._built)}
            carried = {k: known[id(p)] for k, (_, p, _) in enumerate(tensors) if id(p) in known}
            self._restore(core, tensors, carried, whole)
        elif self._waiting is not None:
            state, whole = self._waiting
            for k, (name, _, _) in enumerate(tensors):
                if k not in state:
                    raise _suture.MismatchError(f"the state_dict has no state of parameter {k} ('{name}')")
            self._restore(core, tensors, state, whole)
            self._waiting = None
        counted = [p for _, p, _ in tensors if not p.is_inference()]
        if counted and _increment_version is not None:
            core.after_step(_increment_version, counted)
        self._core, self._built = core, [p for _, p, _ in tensors]
        self._low = [p for p in counted if _state.has_master(p)]
        self._versions = [p._version for p in self._low]
        self._show_state()

    def _show_state(self) -> None:
        """``self.state[p]`` shows the memory of the core; writing to it between steps is allowed."""
        self._shown = self._core.generation
        self.state.clear()
        for k, p in enumerate(self._built):
            self.state[p] = {
                name: torch.from_numpy(self._core.state(name, k)) for name in _state.slots(self._core, p)
            }

    def _ready(self, n_losses: int) -> Any:
        core = self._core
        if core is None or not core.follow(self.param_groups, n_losses):
            self._build(n_losses)
            core = self._core
        if self._low and self._versions != [p._version for p in self._low]:
            core.parameters_changed()
        return core

    def _seen(self) -> None:
        """After a step: what later steps compare with."""
        if self._low:
            self._versions = [p._version for p in self._low]
        if self._core.generation != self._shown:  # memory of parameters moved
            self._show_state()

    def parameters_changed(self) -> None:
        """
        Take over float16 and bfloat16 parameters that were written from outside: the optimizer steps float32 copies of them.
        Writing that PyTorch counts (``model.load_state_dict()``, ``p.copy_()``) is noticed without this; writing through
        ``p.data`` or ``p.numpy()`` is not.
        """
        if self._core is not None:
            self._core.parameters_changed()

    # -- steps --

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """
        One step for one loss, from the gradients in ``.grad`` (None: the parameter is left alone).

        :param closure: computes the loss again and does the backward pass.
        :return: what the closure returned.
        """
        hooked = self._optimizer_step_pre_hooks or _global_optimizer_pre_hooks
        if hooked:
            self._hooks(_global_optimizer_pre_hooks, self._optimizer_step_pre_hooks, closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._report = self._ready(1).step_grad(self.keep_reports)
        self._seen()
        if self._optimizer_step_post_hooks or _global_optimizer_post_hooks:
            self._hooks(self._optimizer_step_post_hooks, _global_optimizer_post_hooks, closure)
        return loss

    # PyTorch wraps step() of every subclass to run hooks and to mark the step for its profiler, which costs more than a
    # small step itself. The hooks are run above.
    step.hooked = True  # type: ignore[attr-defined]

    #: Whether step() keeps a report, too. Costs one more pass over the gradients.
    keep_reports = False

    def _hooks(self, first: Mapping[int, Callable[..., Any]], then: Mapping[int, Callable[..., Any]], closure: Any) -> None:
        args = () if closure is None else (closure,)
        for hook in itertools.chain(list(first.values()), list(then.values())):
            hook(self, args, {})

    def step_losses(
        self, losses: Sequence[torch.Tensor], *, retain_graph: bool = False, report: bool = True
    ) -> _suture.Report | None:
        """
        One step for several losses: a backward pass for each (they may share a graph), surgery, aligned step. ``.grad`` is
        neither read nor written. A parameter that a loss does not use is absent for it.

        :param losses: scalars that require grad, one per loss.
        :param retain_graph: keep the graph after the last backward pass.
        """
        losses = list(losses)
        names = self._config["loss_names"]
        if names is not None and len(losses) != len(names):
            raise ValueError(f"{len(losses)} losses were given, but loss_names has {len(names)}")
        values = []
        for i, loss in enumerate(losses):
            which = f"loss '{names[i]}'" if names else f"loss {i}"
            if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
                raise ValueError(f"{which} is not a tensor with one element")
            if not loss.requires_grad:
                raise ValueError(f"{which} does not depend on anything that requires grad")
            values.append(float(loss.detach()))
        params = [p for group in self.param_groups for p in group["params"]]
        wanted = [p for p in params if p.requires_grad]
        rows = []
        for i, loss in enumerate(losses):
            keep = retain_graph or i + 1 < len(losses)
            grads: Sequence[Any] = torch.autograd.grad(loss.reshape(()), wanted, retain_graph=keep, allow_unused=True)
            if len(wanted) != len(params):
                found = iter(grads)
                grads = [next(found) if p.requires_grad else None for p in params]
            rows.append(grads)
        return self.step_grads(rows, values, report=report)

    def step_grads(
        self,
        rows: Sequence[Sequence[torch.Tensor | None]],
        losses: Sequence[float] | None = None,
        *,
        report: bool = True,
    ) -> _suture.Report | None:
        """The same from gradients that are there already: one list per loss with one tensor (None: absent) per parameter, in
        the order of the groups."""
        if self._optimizer_step_pre_hooks or _global_optimizer_pre_hooks:
            self._hooks(_global_optimizer_pre_hooks, self._optimizer_step_pre_hooks, None)
        self._opt_called = True  # the sign by which schedulers know that a step came before theirs
        self._report = self._ready(len(rows)).step(list(rows), losses, report)
        self._seen()
        if self._optimizer_step_post_hooks or _global_optimizer_post_hooks:
            self._hooks(self._optimizer_step_post_hooks, _global_optimizer_post_hooks, None)
        return self._report

    @property
    def report(self) -> _suture.Report | None:
        """The report of the last step, if one was made."""
        return self._report

    @property
    def steps(self) -> int:
        """Steps done."""
        return 0 if self._core is None else self._core.steps

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        known = hyper_names(self._config["method"])
        for key in self.param_groups[-1]:
            if key not in known and key not in ("params", "param_names", "betas", "initial_lr"):
                # PyTorch would carry along what it does not know; here that would hide a misspelt name.
                del self.param_groups[-1]
                raise TypeError(f"'{key}' is no hyper-parameter of {self._config['method']} that a group can have")
        if self._core is not None:
            try:
                self._build(self._core.n_losses)
            except Exception:
                del self.param_groups[-1]
                raise

    # -- state --

    def state_dict(self) -> dict[str, Any]:
        """
        As PyTorch's: ``state`` with copies of the moments and the count of steps of each parameter, ``param_groups``; and
        ``suture`` with what belongs to the whole optimizer.
        """
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        self._sync()
        index = {id(p): k for k, (_, p, _) in enumerate(self._tensors())}
        groups = []
        for group in self.param_groups:
            packed = {k: v for k, v in group.items() if k != "params"}
            packed["params"] = [index[id(p)] for p in group["params"]]
            groups.append(packed)
        if self._core is None and self._waiting is not None:
            state, whole = self._waiting
        elif self._core is None:
            state, whole = {}, {}
        else:
            state, whole = self._pack(self._core)
        result = {"state": state, "param_groups": groups, "suture": whole}
        for after in self._optimizer_state_dict_post_hooks.values():
            changed = after(self, result)
            result = result if changed is None else changed
        return result

    def _sync(self) -> None:
        """Groups that were edited are taken over."""
        if self._core is not None and not self._core.follow(self.param_groups, self._core.n_losses):
            self._build(self._core.n_losses)

    def _pack(self, core: Any) -> tuple[dict[int, dict[str, Any]], dict[str, Any]]:
        arrays, texts = _state.read(core.to_bytes(False))
        state: dict[int, dict[str, Any]] = {}
        for k, p in enumerate(self._built):
            entry: dict[str, Any] = {"step": core.tensor_steps(k)}
            for slot in _state.slots(core, p):
                # In the order of the indices, whatever the parameter's order in memory.
                entry[slot] = torch.from_numpy(core.state(slot, k).copy(order="C"))
            state[k] = entry
        whole: dict[str, Any] = {
            "method": self._config["method"],
            "n_losses": core.n_losses,
            "texts": {key: texts[key] for key in (*_state.COUNTS, "suture.surgery.kept_for")},
            "kept_weights": torch.from_numpy(arrays["suture.surgery.kept_weights"]),
        }
        return state, whole

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Take over such a dict. One that belongs to another model or method is refused by name, and nothing is changed.
        Hyper-parameters come from the dict, as with every optimizer of PyTorch.
        """
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        missing = [key for key in ("state", "param_groups", "suture") if key not in state_dict]
        if missing:
            raise _suture.MismatchError(f"this is no state_dict of suture.torch.Optimizer: it has no '{missing[0]}'")
        groups, whole, state = state_dict["param_groups"], state_dict["suture"], state_dict["state"]
        if len(groups) != len(self.param_groups):
            raise _suture.MismatchError(
                f"the state_dict has {len(groups)} parameter groups, this optimizer has {len(self.param_groups)}"
            )
        for k, (mine, other) in enumerate(zip(self.param_groups, groups)):
            if len(mine["params"]) != len(other["params"]):
                raise _suture.MismatchError(
                    f"group {k} has {len(other['params'])} parameters in the state_dict and {len(mine['params'])} here"
                )
        if whole and whole["method"] != self._config["method"]:
            raise _suture.MismatchError(
                f"the state_dict was written by {whole['method']}, this is {self._config['method']}"
            )
        # Everything is tried on a core of its own before anything is changed.
        kept = [dict(g) for g in self.param_groups], self._core, self._waiting
        try:
            order = {old: new for new, old in enumerate(i for g in groups for i in g["params"])}
            state = {order[int(k)]: dict(entry) for k, entry in state.items()}
            for mine, other in zip(self.param_groups, groups):
                mine.update({k: v for k, v in other.items() if k not in ("params", "param_names")})
            self._core, self._waiting = None, (state, dict(whole)) if whole else None
            if whole:
                self._build(int(whole["n_losses"]))
        except Exception:
            for mine, old in zip(self.param_groups, kept[0]):
                mine.clear()
                mine.update(old)
            self._core, self._waiting = kept[1], kept[2]
            if self._core is not None:
                self._show_state()
            raise
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def _restore(
        self,
        core: Any,
        tensors: Sequence[tuple[str, torch.Tensor, int]],
        state: Mapping[int, Mapping[str, Any]],
        whole: Mapping[str, Any],
    ) -> None:
        """Give a new core this state; parameters without an entry begin anew."""
        arrays: dict[str, np.ndarray] = {}
        given: list[tuple[np.ndarray, np.ndarray]] = []
        for k, (name, p, _) in enumerate(tensors):
            entry = state.get(k)
            if entry is None:
                continue
            arrays[f"suture.state.step.{name}"] = np.asarray(int(entry["step"]), dtype=np.int64)
            for slot in _state.slots(core, p):
                if slot not in entry:
                    raise _suture.MismatchError(f"the state of parameter {k} ('{name}') has no '{slot}'")
                memory, value = core.state(slot, k), entry[slot].detach().cpu().numpy()
                if value.shape != memory.shape:
                    raise _suture.MismatchError(
                        f"'{slot}' of parameter {k} ('{name}') has shape {value.shape} in the state_dict, "
                        f"{memory.shape} is needed"
                    )
                given.append((memory, value))
        texts = {key: text for key, text in whole["texts"].items() if key in _state.COUNTS}
        if whole["n_losses"] == core.n_losses:
            arrays["suture.surgery.kept_weights"] = whole["kept_weights"].cpu().numpy()
            texts = whole["texts"]
        core.from_bytes(_state.graft(core.to_bytes(False), arrays, texts), False, False)
        for memory, value in given:
            memory[...] = value
        if any(_state.has_master(p) for _, p, _ in tensors):
            core.parameters_changed()  # a master copy that the parameter is not the rounding of is none

    # -- copies and pickles --

    def __getstate__(self) -> dict[str, Any]:
        self._sync()
        packed = self._pack(self._core) if self._core is not None else self._waiting
        return {
            "defaults": self.defaults,
            "param_groups": self.param_groups,
            "config": self._config,
            "packed": packed,
            "keep_reports": self.keep_reports,
        }

    def __setstate__(self, given: dict[str, Any]) -> None:
        torch_module()
        super().__setstate__({"defaults": given["defaults"], "param_groups": given["param_groups"], "state": {}})
        self.__dict__.setdefault("state", {})
        if not hasattr(self.state, "default_factory"):
            from collections import defaultdict

            self.state = defaultdict(dict)
        self._config = given["config"]
        self._core, self._shown, self._report, self._waiting = None, -1, None, given["packed"]
        self._built, self._low, self._versions = [], [], []
        if given["keep_reports"]:
            self.keep_reports = True
        if self._waiting is not None:
            self._build(int(self._waiting[1]["n_losses"]))

    def __repr__(self) -> str:
        c = self._config
        head = f"suture.torch.Optimizer({c['method']}, surgery {c['surgery']}, align {c['options']['align']})"
        return head + super().__repr__()[len(type(self).__name__) :]
