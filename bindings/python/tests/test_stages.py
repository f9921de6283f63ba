"""The step in stages: direction, propose, project, apply."""

import numpy as np
import pytest
import suture

from conftest import same_bits

SETTINGS = dict(n_losses=2, surgery="config", align="gua", lr=1e-2)


def shapes():
    """Arrays of each layout: rows, columns, axes in another order."""
    return [np.ones((3, 4)), np.asfortranarray(np.ones((4, 5))), np.ones((2, 3, 5)).transpose(2, 0, 1), np.ones(())]


def gradients(rng, params, count=15):
    """The second loss opposes what the first keeps asking for."""
    lasting = [rng.standard_normal(p.shape) for p in params]
    sets = []
    for _ in range(count):
        first = [s + 0.3 * rng.standard_normal(s.shape) for s in lasting]
        sets.append([first, [-0.6 * s + rng.standard_normal(s.shape) for s in lasting]])
    return sets


def to_torch(x):
    torch = pytest.importorskip("torch")
    return torch.from_numpy(x.copy(order="K")) if isinstance(x, np.ndarray) and x.ndim else torch.tensor(x)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("method", ["adam", "sgd", "lion"])
def test_stages_give_the_bits_of_a_step(library, method, rng):
    convert = (lambda x: x) if library == "numpy" else to_torch
    one, other = ([convert(p) for p in shapes()] for _ in range(2))
    extra = {"momentum": 0.9} if method == "sgd" else {}
    whole, staged = (suture.Optimizer(p, method, **SETTINGS, **extra) for p in (one, other))
    projected = 0
    for rows in gradients(rng, shapes()):
        rows = [[convert(g) for g in row] for row in rows]
        want = whole.step(rows)
        weights, a = staged.direction(rows)
        before = [np.asarray(p).copy() for p in other]
        u, d = staged.propose(rows, inverse_metric=True)
        p, planned = staged.project(rows)
        again, _ = staged.project(rows)
        found = staged.apply(rows)
        assert found.to_dict() == want.to_dict() and planned.cos_p == want.cos_p and weights == want.weights
        projected += want.projected
        for k in range(4):
            assert same_bits(one[k], other[k]) and same_bits(p[k], again[k])
            for array in (a[k], u[k], d[k], p[k]):
                assert type(array) is type(other[k]) or other[k].shape == ()
                assert tuple(array.shape) == tuple(other[k].shape)
            # In the order of the indices, whatever the order in memory.
            np.testing.assert_allclose(before[k] - 1e-2 * np.asarray(p[k]), np.asarray(other[k]), rtol=0, atol=1e-15)
            np.testing.assert_allclose(np.asarray(a[k]), weights[0] * np.asarray(rows[0][k]) + weights[1] * np.asarray(rows[1][k]), rtol=1e-12)
        right = sum(x * np.concatenate([np.ravel(g) for g in row]) for x, row in zip(want.lambda_, rows))
        left = np.concatenate([np.ravel((np.asarray(p[k]) - np.asarray(u[k])) / np.asarray(d[k])) for k in range(4)])
        np.testing.assert_allclose(left, right, atol=1e-9)  # M (p - u) = G^T lambda
    assert projected > 0 and whole.to_bytes() == staged.to_bytes()


def test_a_step_of_ones_own_is_applied(rng):
    x = [np.ones(5), np.ones((2, 2))]
    opt = suture.Optimizer(x, "sgd", **{**SETTINGS, "lr": 0.5})
    rows = gradients(rng, x, 1)[0]
    u = opt.propose(rows)
    p = [np.full(5, 2.0), None]
    report = opt.apply(rows, p)
    assert same_bits(x[0], np.zeros(5)) and same_bits(x[1], 1 - 0.5 * u[1]) and report.step == opt.steps == 1
    opt.propose(rows)
    assert opt.apply(rows, report=False) is None


def test_types_of_stages():
    x, low = np.ones(4, np.float32), np.ones(4, np.float16)
    opt = suture.Optimizer([x, low], "adam")
    grads = [[np.ones(4, np.float32), np.ones(4, np.float16)]]
    assert [u.dtype for u in opt.propose(grads)] == [np.float32] * 2
    opt.apply(grads)
    assert [a.dtype for a in opt.direction(grads)[1]] == [np.float32] * 2


def test_absent_gradients_propose_zero():
    x = [np.ones(3), np.ones(3)]
    opt = suture.Optimizer(x, "adam", **SETTINGS)
    rows = [[np.ones(3), None], [-np.ones(3), None]]
    u = opt.propose(rows)
    p, _ = opt.project(rows)
    assert not u[1].any() and not p[1].any()
    opt.apply(rows)
    assert same_bits(x[1], np.ones(3))


def test_order_of_stages_and_bad_steps(rng, tmp_path):
    x = [np.ones(5), np.ones((2, 2))]
    opt = suture.Optimizer(x, "adam", **SETTINGS)
    rows = gradients(rng, x, 1)[0]
    for call in (lambda: opt.apply(rows), lambda: opt.project(rows)):
        with pytest.raises(suture.SequenceError, match="propose"):
            call()
    opt.propose(rows)
    before = [p.copy() for p in x]
    for call in (lambda: opt.propose(rows), lambda: opt.step(rows), lambda: opt.save(tmp_path / "a"), lambda: opt.to_bytes()):
        with pytest.raises(suture.SequenceError):
            call()
    for p, error, match in (
        ([np.ones(5)], ValueError, "p: a list with one array per tensor is needed"),
        (3, TypeError, "p is of type int"),
        ([np.ones(5), 3], TypeError, "p of 'param.1' is of type int"),
        ([np.ones(5, np.float32), None], TypeError, r"p of 'param.0' is float32 of shape \(5,\); float64 of shape \(5,\) is needed"),
        ([np.ones(4), None], ValueError, r"p of 'param.0' is float64 of shape \(4,\)"),
        ([np.ones(10)[::2], None], ValueError, "does not lie in memory as the parameter does"),
        ([np.full(5, np.nan), None], suture.NotFiniteError, "NaN or Inf in tensor .param.0."),
    ):
        with pytest.raises(error, match=match):
            opt.apply(rows, p)
    assert all(same_bits(p, q) for p, q in zip(x, before))
    opt.apply(rows)
    assert opt.steps == 1 and not same_bits(x[0], before[0])
    with pytest.raises(suture.NotFiniteError):
        opt.propose([[np.full(5, np.nan), None], [np.ones(5), None]])
    opt.step(rows)


@pytest.mark.parametrize("align", ["gua", "none"])
def test_gradients_that_changed_between_stages_are_refused(rng, align):
    x, y = [np.ones(5)], [np.ones(5)]
    opt, other = (suture.Optimizer(z, "adam", **{**SETTINGS, "align": align}) for z in (x, y))
    rows = gradients(rng, x, 1)[0]
    other.step(rows)
    opt.propose(rows)
    for wrong, error in ((np.nan, suture.NotFiniteError), (1e3, suture.InvalidArgumentError)):
        bad = [rows[0], [rows[1][0] * wrong]]
        for call in (lambda: opt.project(bad), lambda: opt.apply(bad), lambda: opt.apply(bad, [np.ones(5)])):
            with pytest.raises(error, match=r"the gradient of loss 1 is not the one that propose\(\) was given"):
                call()
    opt.apply(rows)
    assert same_bits(x[0], y[0])
