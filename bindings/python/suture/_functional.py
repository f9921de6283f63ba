"""The calls without state: surgery, projection and conflict figures of arrays. JAX arrays go to suture.jax, whose functions
also work under jit; everything else is looked at in place."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Sequence

import numpy as np

from . import _cuda, _suture
from ._arrays import common_library, library, numbers, plain, rows, torch_module


def _named_rows(G: Any) -> list[tuple[str, Any]]:
    if isinstance(G, (list, tuple)):
        if not G:
            raise ValueError("G has no rows")
        return [(f"G[{i}]", row) for i, row in enumerate(G)]
    return [("G", G)]


def check_gram_shape(shape: Sequence[int]) -> None:
    if len(shape) != 2 or shape[0] != shape[1] or not 1 <= shape[0] <= _suture.max_losses:
        raise ValueError(f"gram has shape {tuple(shape)}; (m, m) is needed, m from 1 to {_suture.max_losses}")


def gram_matrix(gram: Any, kind: str) -> np.ndarray:
    """A Gram matrix as float64, or a refusal."""
    if kind == "torch":
        torch = torch_module()
        if not gram.is_floating_point():
            raise TypeError(f"gram has elements of type {gram.dtype}; a floating type is needed")
        on_host = _cuda.to_host(gram) if gram.device.type == "cuda" else gram.detach()
        K = on_host.to(device="cpu", dtype=torch.float64).numpy()
    else:
        given = np.asarray(gram) if kind == "jax" else numbers("gram", gram)
        if given.dtype.kind not in "iu" and not np.can_cast(given.dtype, np.float64):  # bfloat16 of JAX can be
            raise TypeError(f"gram has elements of type {given.dtype}; a floating type is needed")
        if given.dtype.kind == "b":
            raise TypeError("gram has elements of type bool; a floating type is needed")
        K = given.astype(np.float64)
    check_gram_shape(K.shape)
    with np.errstate(all="ignore"):  # sums of what is near the largest number
        _check_gram(K)
    return np.ascontiguousarray(K)


def _check_gram(K: np.ndarray) -> None:
    # Relative to the norms of the rows. Dot products summed in float32 are off by some 1e-7 times the square root of their
    # length: 1e-4 for a million elements.
    d = np.sqrt(np.abs(np.diag(K)))
    scale = np.outer(d, d)
    if np.isfinite(K).all() and (np.diag(K) >= 0).all():  # the library names what is not
        i, j = divmod(int(np.argmax(np.abs(K - K.T) - 1e-4 * scale)), len(K))
        if abs(K[i, j] - K[j, i]) > 1e-4 * scale[i, j]:
            raise ValueError(f"gram is not symmetric: gram[{i}][{j}] is {K[i, j]:.6g}, gram[{j}][{i}] is {K[j, i]:.6g}")
        C = np.divide(K / 2 + K.T / 2, scale, out=np.zeros_like(K), where=scale > 0)
        if (scale == 0).any() and np.abs(K[scale == 0]).max() > 0:
            i, j = divmod(int(np.flatnonzero((scale == 0) & (K != 0))[0]), len(K))
            raise ValueError(f"gram is no Gram matrix: gram[{i}][{j}] is {K[i, j]:.6g}, but one of the two rows has norm 0")
        lowest = np.linalg.eigvalsh(C)[0]
        if lowest < -1e-4 * len(K):
            raise ValueError(
                "gram is no Gram matrix: it has a negative eigenvalue "
                f"({lowest:.3g} when scaled to a unit diagonal), so no vectors have these products"
            )


def project(
    u: Any,
    G: Any,
    metric: Any = None,
    *,
    feas_tol: float = 0.0,
    strict: bool = False,
    threads: int = 0,
) -> tuple[Any, Any]:
    """
    Project u onto the cone of steps that hurt no loss,

        p = argmin 1/2 |p - u|_M^2   subject to   g_i . p >= 0 for every row g_i of G.

    :param u: an array of any shape, float32 or float64, of NumPy, PyTorch or JAX.
    :param G: the m gradients (1 <= m <= 64): a list of arrays of u's shape, or one array of shape (m, \\*u.shape).
    :param metric: the diagonal of M > 0, of u's shape (inf freezes an entry); None: the identity.
    :param feas_tol: u counts as inside when every cosine is >= -feas_tol.
    :param strict: ask for g_i . p >= 0 of the stored numbers, as summed in double, not only up to their rounding. (In
        float64 that sum has roundings of its own: cosines of some -1e-16 can pass.)
    :param threads: 0: one per processor. Never changes a bit of the result.
    :return: (p, report): p like u, bit for bit u when u is in the cone, and the projection's certificate.

    Nothing that is passed in is written to. With JAX the certificate is a dict of arrays.
    """
    # Plain arrays of NumPy and PyTorch need nothing of Python.
    found = _suture.project(u, G, metric, True, feas_tol, strict, threads, "u", False)
    if found is not NotImplemented:
        return found
    kind = common_library([("u", u), *_named_rows(G)] + ([] if metric is None else [("metric", metric)]))
    if kind == "jax":
        from .jax import project as jax_project

        return jax_project(u, G, metric, feas_tol=feas_tol, strict=strict, threads=threads)
    u = plain("u", u, kind)
    metric = None if metric is None else plain("metric", metric, kind)
    return _suture.project(u, rows(G, kind), metric, True, feas_tol, strict, threads, "u", True)


def combine(
    G: Any,
    method: str,
    losses: Sequence[float] | None = None,
    *,
    report: bool = False,
    seed: int = 0,
    counter: int = 0,
    threads: int = 0,
    **options: Any,
) -> Any:
    """
    Combine m gradients into one direction,  a = sum_i w_i g_i.

    :param G: as in :func:`project`.
    :param method: a name from ``suture.surgery_methods``; docs/surgery.md says what each one does.
    :param losses: m values; only ``mgda`` with a normalisation by losses needs them.
    :param report: also return what was found, a :class:`SurgeryReport`.
    :param seed, counter: for methods that draw (``pcgrad``): both together determine the draw.
    :param options: of the method, named as in C: ``cagrad_c=0.4``, ``preference=[1, 2]``, ...
    :return: an array like a row of G; with ``report=True`` (a, SurgeryReport).
    """
    found = _suture.combine(G, method, losses, options, True, seed, counter, threads, report, False)
    if found is not NotImplemented:
        return found
    kind = common_library(_named_rows(G))
    if kind == "jax":
        from .jax import combine as jax_combine

        return jax_combine(G, method, losses, report=report, seed=seed, counter=counter, threads=threads, **options)
    return _suture.combine(rows(G, kind), method, losses, options, True, seed, counter, threads, report, True)


def weights(
    G: Any = None,
    method: str | None = None,
    losses: Sequence[float] | None = None,
    *,
    gram: Any = None,
    seed: int = 0,
    counter: int = 0,
    threads: int = 0,
    **options: Any,
) -> Any:
    """
    The weights w of :func:`combine` alone, as float64, in an array of the same library as G.

    Either G (as there) or ``gram``, its m x m Gram matrix G G^T, is given. What cannot be a Gram matrix is refused: it is
    real, symmetric and has no negative eigenvalues, up to the rounding of float32.
    """
    if method is None:
        raise TypeError("weights() needs a method: weights(G, 'config') or weights(gram=K, method='config')")
    if (G is None) == (gram is None):
        raise TypeError("weights() needs either G or gram" + (", not both" if gram is not None else ""))
    if gram is not None:
        kind = library(gram)
        if kind == "jax":
            from .jax import weights as jax_weights

            return jax_weights(None, method, losses, gram=gram, seed=seed, counter=counter, threads=threads, **options)
        found = _suture.weights(gram_matrix(gram, kind), method, losses, options, seed, counter)
    else:
        kind = common_library(_named_rows(G))
        if kind == "jax":
            from .jax import weights as jax_weights

            return jax_weights(G, method, losses, seed=seed, counter=counter, threads=threads, **options)
        found = _suture.combine(rows(G, kind), method, losses, options, False, seed, counter, threads, True, True)
    w = np.array(found.weights)
    if kind == "torch":
        like = gram if G is None else G[0] if isinstance(G, (list, tuple)) else G
        made = torch_module().from_numpy(w)
        return _cuda.to_device(made, like) if like.device.type == "cuda" else made
    return w


@dataclass(frozen=True)
class ConflictReport:
    """How much m gradients, and a vector if one was given, disagree. Cosines below -1e-6 count as conflicts."""

    norms: tuple[float, ...]  #: of the gradients
    cosines: tuple[tuple[float, ...], ...]  #: of each pair of gradients, m x m; 0 with a gradient that vanishes
    min_pair_cos: float  #: smallest cosine between two gradients (0 for one loss)
    conflict_fraction: float  #: share of pairs that conflict
    alignment: float  #: 2 |mean unit gradient|^2 - 1, in [-1, 1]
    conflict: bool  #: some pair conflicts
    cos: tuple[float, ...] | None = None  #: cosines of the vector with each gradient
    vector_conflict: bool | None = None  #: the vector conflicts with a gradient

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def conflict(G: Any, v: Any = None, *, threads: int = 0) -> ConflictReport:
    """
    Figures of the conflict between m gradients and, when v is given, between v and each of them.

    :param G: as in :func:`project`.
    :param v: a direction, proposal or step of the shape of a row.

    For a function under ``jit`` there is :func:`suture.jax.conflict`.
    """
    kind = common_library(_named_rows(G) + ([] if v is None else [("v", v)]))
    if kind == "jax":
        from .jax import host_rows

        G, v = host_rows(G, v)
        kind = "numpy"
    lines = rows(G, kind)
    found: _suture.SurgeryReport = _suture.combine(lines, "sum", None, {}, False, 0, 0, threads, True, True)
    cos = None
    if v is not None:
        cos = _suture.project(plain("v", v, kind), lines, None, False, 0.0, False, threads, "v", True)[1].cos_u
    return ConflictReport(
        norms=found.norms,
        cosines=_suture.cosines(lines, threads),
        min_pair_cos=found.min_pair_cos,
        conflict_fraction=found.conflict_fraction,
        alignment=found.alignment,
        conflict=found.min_pair_cos < -1e-6,
        cos=cos,
        vector_conflict=None if cos is None else min(cos) < -1e-6,
    )
