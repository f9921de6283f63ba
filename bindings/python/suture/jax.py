"""
Suture for JAX: pure functions that return new arrays, and an optimizer as an optax-style pair of functions. All of them
work under ``jit``: the library is then called on the host, through ``jax.pure_callback``.

    opt = suture.jax.optimizer("adam", n_losses=2, lr=1e-3, surgery="config", align="gua")
    state = opt.init(params)
    updates, state = opt.update([grads0, grads1], state, params)
    params = optax.apply_updates(params, updates)

A refusal (NaN in a gradient, say) is an exception of suture outside ``jit``; inside, JAX wraps its text into its own.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, NamedTuple, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from . import _functional, _state, _suture
from ._arrays import needs_version
from ._optimizer import Optimizer as _HostOptimizer
from ._optimizer import hyper_names, split_options

needs_version(jax, "suture.jax", "JAX", 0, 4, 35)

__all__ = ["State", "combine", "conflict", "optimizer", "project", "weights"]


def _is_traced(tree: Any) -> bool:
    return any(isinstance(x, jax.core.Tracer) for x in jax.tree_util.tree_leaves(tree))


def _call(host: Callable[..., Any], shapes: Any, *args: Any) -> Any:
    """The host function, at once where the values are known, through a callback where they are traced."""
    if _is_traced(args):
        return jax.pure_callback(host, shapes, *args, vmap_method="sequential")
    out = host(*jax.tree_util.tree_map(np.asarray, args))
    return jax.tree_util.tree_map(lambda x, s: jnp.asarray(x, dtype=s.dtype), out, shapes)


def _check(name: str, x: Any) -> None:
    if not isinstance(x, (jax.Array, np.ndarray)):
        raise TypeError(f"{name} is of type {type(x).__name__}; an array of JAX is needed")
    if x.dtype not in (jnp.float32, jnp.float64):
        raise TypeError(f"{name} has elements of type {x.dtype}; float32 and float64 are possible")


def _rows(G: Any) -> list[Any]:
    if not isinstance(G, (list, tuple)):
        _check("G", G)
        if G.ndim < 2:
            raise ValueError(f"G has shape {G.shape}; one row per loss is needed, (losses, ...)")
        G = [G[i] for i in range(G.shape[0])]
    rows = list(G)
    if not rows:
        raise ValueError("G has no rows")
    for i, row in enumerate(rows):
        _check(f"G[{i}]", row)
        _check_like(f"G[{i}]", row, rows[0])
    if rows[0].size == 0:
        raise _suture.InvalidArgumentError(f"G[0] has shape {rows[0].shape}, no element")
    return rows


def _check_like(name: str, x: Any, first: Any) -> None:
    _check(name, x)
    if x.dtype != first.dtype:
        raise TypeError(f"{name} has elements of type {x.dtype}, G[0] of type {first.dtype}")
    if x.shape != first.shape:
        raise ValueError(f"{name} has shape {x.shape}, G[0] has {first.shape}")


def host_rows(G: Any, v: Any) -> tuple[list[np.ndarray], np.ndarray | None]:
    """Rows and a vector whose values are known, as arrays of NumPy."""
    rows = _rows(G)
    if v is not None:
        _check_like("v", v, rows[0])
    if any(isinstance(x, jax.core.Tracer) for x in (*rows, v)):
        raise TypeError("conflict() gives numbers of Python, which traced arrays do not have; use suture.jax.conflict()")
    return [np.asarray(row) for row in rows], None if v is None else np.asarray(v)


def _real() -> Any:
    """The type of figures: float64 where JAX has it."""
    return jax.dtypes.canonicalize_dtype(np.float64)


#: Without the types that JAX does not declare for it.
_Shape: Any = jax.ShapeDtypeStruct


def _struct(x: Any) -> Any:
    return _Shape(x.shape, x.dtype)


def _losses(losses: Any, m: int) -> Any:
    if losses is None:
        return None
    try:
        values = jnp.asarray(losses)
    except TypeError as error:
        raise TypeError(f"losses are no numbers: {error}") from None
    if values.shape != (m,):
        raise ValueError(f"losses has shape {values.shape}, one per loss is needed: {m}")
    return values


def _check_options(m: int, method: Any, losses: Any, options: dict[str, Any], seed: Any, counter: Any, args: Any) -> None:
    """Mistakes in what is no array are found when a function is traced, not when it runs."""
    for name, value in (("method", method), ("seed", seed), *options.items()):
        if _is_traced(value):
            raise TypeError(f"{name} is traced; it must be known when the function is compiled (static_argnames of jax.jit)")
    if _is_traced(args):
        count = 0 if _is_traced(counter) else np.asarray(counter)
        _suture.weights(np.eye(m), method, None if losses is None else [1.0] * m, options, seed, count)


_SURGERY = ("weights", "norms", "cos_a")
_SURGERY_SCALARS = ("norm_a", "min_cos", "min_pair_cos", "conflict_fraction", "alignment")
_CONE = ("lambda", "slack", "cos_u", "cos_p")
_CONE_SCALARS = ("primal", "dual", "complementarity", "gap", "relative_change", "distance2")


def _structure(tree: Any) -> Any:
    return jax.tree_util.tree_structure(tree)


def _figures(names: Sequence[str], scalars: Sequence[str], m: int) -> dict[str, Any]:
    shapes = {name: _Shape((m,), _real()) for name in names}
    shapes.update({name: _Shape((), _real()) for name in scalars})
    return shapes


def _values(report: Any, shapes: dict[str, Any]) -> dict[str, np.ndarray]:
    found = report.to_dict()
    return {name: np.asarray(found[name], dtype=shape.dtype) for name, shape in shapes.items()}


def project(
    u: Any, G: Any, metric: Any = None, *, feas_tol: float = 0.0, strict: bool = False, threads: int = 0
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """As :func:`suture.project`; the certificate is a dict of arrays."""
    rows = _rows(G)
    for name, x in (("u", u), ("metric", metric)):
        if x is not None or name == "u":
            _check_like(name, x, rows[0])
    shapes = _figures(_CONE, _CONE_SCALARS, len(rows))

    def host(u: Any, rows: Any, metric: Any) -> Any:
        metric = None if metric is None else np.asarray(metric)
        rows = [np.asarray(g) for g in rows]
        p, report = _suture.project(np.asarray(u), rows, metric, True, feas_tol, strict, threads, "u", True)
        return p, _values(report, shapes)

    p, figures = _call(host, (_struct(u), shapes), u, rows, metric)
    return p, figures


def combine(
    G: Any,
    method: str,
    losses: Any = None,
    *,
    report: bool = False,
    seed: int = 0,
    counter: Any = 0,
    threads: int = 0,
    **options: Any,
) -> Any:
    """As :func:`suture.combine`; ``counter`` may be traced. The report is a dict of arrays."""
    rows = _rows(G)
    shapes = _figures(_SURGERY, _SURGERY_SCALARS, len(rows))
    _check_options(len(rows), method, losses, options, seed, counter, (rows, losses, counter))

    def host(rows: Any, losses: Any, counter: Any) -> Any:
        rows = [np.asarray(g) for g in rows]
        given = None if losses is None else np.asarray(losses)
        a, found = _suture.combine(rows, method, given, options, True, seed, np.asarray(counter), threads, True, True)
        return a, _values(found, shapes)

    a, figures = _call(host, (_struct(rows[0]), shapes), rows, _losses(losses, len(rows)), jnp.asarray(counter))
    return (a, figures) if report else a


def weights(
    G: Any = None,
    method: str | None = None,
    losses: Any = None,
    *,
    gram: Any = None,
    seed: int = 0,
    counter: Any = 0,
    threads: int = 0,
    **options: Any,
) -> jax.Array:
    """As :func:`suture.weights`: the weights alone, of G or of its Gram matrix."""
    if method is None:
        raise TypeError("weights() needs a method: weights(G, 'config') or weights(gram=K, method='config')")
    if (G is None) == (gram is None):
        raise TypeError("weights() needs either G or gram" + (", not both" if gram is not None else ""))
    if gram is None:
        found = combine(G, method, losses, report=True, seed=seed, counter=counter, threads=threads, **options)
        figures: dict[str, jax.Array] = found[1]
        return figures["weights"]
    gram = jnp.asarray(gram)
    m = gram.shape[0] if gram.ndim == 2 else 0
    _functional.check_gram_shape(gram.shape)
    if not jnp.issubdtype(gram.dtype, jnp.floating) and not jnp.issubdtype(gram.dtype, jnp.integer):
        raise TypeError(f"gram has elements of type {gram.dtype}; a floating type is needed")
    shape = _Shape((m,), _real())
    _check_options(m, method, losses, options, seed, counter, (gram, losses, counter))

    def host(gram: Any, losses: Any, counter: Any) -> Any:
        K = _functional.gram_matrix(np.asarray(gram), "jax")
        given = None if losses is None else np.asarray(losses)
        return np.asarray(_suture.weights(K, method, given, options, seed, np.asarray(counter)).weights, dtype=shape.dtype)

    result: jax.Array = _call(host, shape, gram, _losses(losses, m), jnp.asarray(counter))
    return result


def conflict(G: Any, v: Any = None, *, threads: int = 0) -> dict[str, jax.Array]:
    """The figures of :func:`suture.conflict` as a dict of arrays; ``cosines`` is an m x m array."""
    rows = _rows(G)
    if v is not None:
        _check_like("v", v, rows[0])
    m = len(rows)
    shapes = _figures(("norms", *(("cos",) if v is not None else ())), ("min_pair_cos", "conflict_fraction", "alignment"), m)
    shapes["cosines"] = _Shape((m, m), _real())
    flags = ("conflict", *(("vector_conflict",) if v is not None else ()))
    shapes.update({name: _Shape((), jnp.bool_) for name in flags})

    def host(rows: Any, v: Any) -> Any:
        return _values(_functional.conflict([np.asarray(g) for g in rows], None if v is None else np.asarray(v), threads=threads), shapes)

    figures: dict[str, jax.Array] = _call(host, shapes, rows, v)
    return figures


class State(NamedTuple):
    """State of :func:`optimizer`: the bytes of a state file in an array of fixed length, and how many they are."""

    data: jax.Array
    size: jax.Array


class _Pair(NamedTuple):
    init: Callable[..., Any]
    update: Callable[..., Any]


def _room(state: bytes) -> int:
    """Bytes that a state of these tensors needs at most, whatever the settings are: numbers and names in its texts have more or
    fewer digits. States of one model have one length so, and go from one optimizer to another."""
    texts, length = _state.read(state)[1], int.from_bytes(state[:8], "little")
    header = len(state[8 : 8 + length].rstrip(b" "))
    return len(state) - length + header + sum(max(0, 32 - len(text)) for text in texts.values()) + 1024


class _Worker:
    """An optimizer on the host for one structure of parameters. It remembers the state that it gave out last; any other
    state is loaded first, so that the functions stay pure."""

    def __init__(self, names: list[str], structs: list[Any], settings: dict[str, Any]) -> None:
        self.made_of = names, structs, settings
        self.params = [np.zeros(s.shape, s.dtype) for s in structs]
        self.opt = _HostOptimizer(list(zip(names, self.params)), **settings)
        self.hyper = self.opt.group()
        self.last = self.opt.to_bytes(include_parameters=False)
        self.initial = self.last
        self.room = _room(self.last)
        self.lock = threading.RLock()
        self.busy = False

    def pad(self, data: bytes) -> np.ndarray:
        out = np.zeros(self.room, np.uint8)
        out[: len(data)] = np.frombuffer(data, np.uint8)
        return out

    def step(self, *args: Any) -> Any:
        with self.lock:
            if self.busy:  # a signal's handler or a finaliser, in the middle of a step of this thread
                return _Worker(*self.made_of).step(*args)
            self.busy = True
            try:
                return self._step(*args)
            finally:
                self.busy = False

    def _step(self, data: np.ndarray, size: Any, params: Any, rows: Any, losses: Any, hyper: Any) -> Any:
        given = np.asarray(data)[: int(size)].tobytes()
        # Until all is done nothing is remembered: whatever interrupts this, the next step loads its state.
        last, self.last = self.last, b""
        for mine, theirs in zip(self.params, params):
            np.copyto(mine, theirs)
        if given != last:
            # Settings are those of the optimizer, as with optax, whatever they were when the state was made.
            self.opt.from_bytes(given, include_parameters=False, restore_settings=False)
        given_losses = None if losses is None else [float(x) for x in np.asarray(losses)]
        self.opt.set(**self.hyper)
        self.opt.set(**{name: np.asarray(x).item() for name, x in hyper.items()})
        self.opt.step([[np.asarray(g) for g in row] for row in rows], given_losses, report=False)
        updates = [mine - np.asarray(theirs) for mine, theirs in zip(self.params, params)]
        new = self.opt.to_bytes(include_parameters=False)
        result = updates, self.pad(new), np.int32(len(new))
        self.last = new
        return result


def _names(params: Any) -> list[str]:
    """Names of the leaves: their paths. Without a last ".value", which Flax's trees of variables have in init() and not in
    update(): a state is of tensors by these names."""
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    short = [name.removesuffix(".value") or "params" for name in names]
    return short if len(set(short)) == len(names) else [name or "params" for name in names]


def _take_arrays(method: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Hyper-parameters that are arrays of JAX, taken out of the settings: each update brings them along."""
    hyper = split_options(method, settings)[0]
    betas = hyper.get("betas")
    if isinstance(betas, (tuple, list)) and len(betas) == 2 and any(isinstance(x, jax.Array) for x in betas):
        del settings["betas"]
        settings.setdefault("beta1", betas[0])
        settings.setdefault("beta2", betas[1])
    arrays = {}
    for name in hyper_names(method):
        x = settings.get(name)
        if not isinstance(x, jax.Array):
            continue
        if x.size != 1:
            raise ValueError(f"{name} has shape {x.shape}; one number is needed")
        if x.dtype == bool:
            if isinstance(x, jax.core.Tracer):
                raise TypeError(f"{name} is traced; True or False is needed (static_args of optax.inject_hyperparams)")
            settings[name] = x.item()
            continue
        arrays[name] = settings.pop(name).reshape(())
        if name == "momentum":
            settings[name] = 0.5  # a value of its own comes with each update; here it makes that there is a momentum
    return arrays


def optimizer(method: str = "adam", *, n_losses: int = 1, **settings: Any) -> Any:
    """
    The whole step as a pair (init, update), an ``optax.GradientTransformationExtraArgs`` where optax is installed.

    ``init(params)`` gives the state, ``update(grads, state, params, losses=None, lr=None)`` the updates to add to the
    parameters, and the new state. An ``lr`` that is given here is that of this update alone; settings are no part of the
    state. ``grads`` is a list with one tree like ``params`` per loss (with one loss the tree itself);
    float32 and float64. The state is as large as the moments; each call copies it and the parameters once.

    With several losses ``grads`` may also be one tree like ``params`` whose leaves have one axis more, of the losses, in front:
    as ``jax.jacrev`` of a function that returns all losses gives them, and as wrappers of optax want gradients.

    An update is the difference of new and old parameters, so it is rounded to the precision that the parameters have.

    :param settings: as for :class:`suture.Optimizer`. Hyper-parameters may be arrays, traced ones too, as those that
        ``optax.inject_hyperparams`` gives.
    """
    if "settings" in settings:
        raise TypeError("optax.inject_hyperparams() finds no names here; give it a function that has them: "
                        "inject_hyperparams(lambda lr: suture.jax.optimizer('adam', lr=lr))(lr=1e-3)")
    if callable(settings.get("lr")):
        raise TypeError("lr is a function; for a rate that changes there are schedule={'kind': 'cosine', ...}, "
                        "update(..., lr=...) and optax.inject_hyperparams(lambda lr: suture.jax.optimizer('adam', lr=lr))(lr=...)")
    arrays = _take_arrays(method, settings)
    settings = {"method": method, "n_losses": n_losses, **settings}
    known = {name: x.item() for name, x in arrays.items() if not isinstance(x, jax.core.Tracer)}
    _HostOptimizer(np.zeros(1), **settings).set(**known)  # so that every mistake is found now
    workers: dict[Any, _Worker] = {}
    guard = threading.Lock()

    def worker(params: Any) -> _Worker:
        leaves, tree = jax.tree_util.tree_flatten(params)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params):
            _check(f"parameter {jax.tree_util.keystr(path)}", leaf)
        key = tree, tuple((x.shape, str(x.dtype)) for x in leaves)
        with guard:
            if key not in workers:
                workers[key] = _Worker(_names(params), [_struct(x) for x in leaves], settings)
            return workers[key]

    def init(params: Any) -> State:
        w = worker(params)
        return State(jnp.asarray(w.pad(w.initial)), jnp.asarray(len(w.initial), jnp.int32))

    def update(grads: Any, state: State, params: Any = None, *, losses: Any = None, lr: Any = None, **_: Any) -> Any:
        if params is None:
            raise ValueError("update() needs the parameters: opt.update(grads, state, params)")
        leaves, tree = jax.tree_util.tree_flatten(params)
        w = worker(params)
        if _structure(grads) == tree:
            flat = jax.tree_util.tree_leaves(grads)
            if all(hasattr(g, "shape") and g.shape == (n_losses, *p.shape) for g, p in zip(flat, leaves)):
                grads = [jax.tree_util.tree_unflatten(tree, [g[i] for g in flat]) for i in range(n_losses)]
            elif n_losses == 1:
                grads = [grads]
        if not isinstance(grads, (list, tuple)) or len(grads) != n_losses:
            raise ValueError(f"grads must be a list of {n_losses} trees like params, one per loss, or one such tree whose leaves "
                             f"have an axis of length {n_losses} in front")
        rows = []
        for i, row in enumerate(grads):
            if _structure(row) != tree:
                raise ValueError(f"the gradients of loss {i} are not a tree like params")
            row = jax.tree_util.tree_leaves(row)
            for (path, p), g in zip(jax.tree_util.tree_leaves_with_path(params), row):
                _check(f"the gradient of loss {i} in {jax.tree_util.keystr(path)}", g)
                if g.dtype != p.dtype or g.shape != p.shape:
                    raise TypeError(f"the gradient of loss {i} in {jax.tree_util.keystr(path)} is {g.dtype} of shape "
                                    f"{g.shape}, the parameter {p.dtype} of shape {p.shape}")
            rows.append(row)
        shapes = ([_struct(x) for x in leaves], _struct(state.data), _struct(state.size))
        given = arrays if lr is None else {**arrays, "lr": jnp.asarray(lr)}
        if lr is not None and given["lr"].size != 1:
            raise ValueError(f"lr has shape {given['lr'].shape}; one number is needed")
        updates, data, size = _call(w.step, shapes, state.data, state.size, leaves, rows, _losses(losses, n_losses), given)
        return jax.tree_util.tree_unflatten(tree, updates), State(data, size)

    try:
        import optax  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        return _Pair(init, update)
    return optax.GradientTransformationExtraArgs(init, update)
