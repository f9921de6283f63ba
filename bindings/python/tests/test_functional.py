"""suture.project, combine, weights and conflict on every library's arrays."""

import numpy as np
import pytest
import suture

from conftest import same_bits

HAND = np.array([[-4.0, 1, 1], [6, 1, 1]])
# By hand and from the methods' papers, rounded to six digits.
HAND_VALUES = {
    "config": (0.158809, 2.070607, 2.070607),
    "imtlg": (0.076697, 1, 1),
    "aligned_mtl": (0.213279, 0.967333, 0.967333),
    "upgrad": (0.292902, 1.900352, 1.900352),
    "mgda": (0, 1, 1),
    "sum": (2, 2, 2),
    "mean": (1, 1, 1),
}


def arrays(library, x, dtype):
    if library == "numpy":
        return x.astype(dtype)
    if library == "torch":
        torch = pytest.importorskip("torch")
        return torch.tensor(x, dtype=getattr(torch, dtype))
    jax = pytest.importorskip("jax")
    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    return jax.numpy.asarray(x, dtype=dtype)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values(library, dtype):
    G = arrays(library, HAND, dtype)
    for method, want in HAND_VALUES.items():
        a = suture.combine(G, method)
        assert type(a) is type(G) or library == "jax"
        assert a.dtype == G.dtype
        np.testing.assert_allclose(np.asarray(a), want, atol=1e-5 if dtype == "float32" else 1e-6)
        rows = suture.combine([G[0], G[1]], method)
        assert same_bits(a, rows)
        w = np.asarray(suture.weights(G, method))
        np.testing.assert_allclose(w @ HAND, want, atol=1e-5)
    np.testing.assert_allclose(np.asarray(suture.weights(gram=HAND @ HAND.T, method="upgrad")) @ HAND,
                               HAND_VALUES["upgrad"], atol=1e-6)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_projection(library, dtype, rng):
    for m, shape in ((1, (7,)), (2, (3, 4)), (5, (33,))):
        G = rng.standard_normal((m, *shape)).astype(dtype)
        u = rng.standard_normal(shape).astype(dtype)
        metric = rng.uniform(0.5, 2, shape).astype(dtype)
        for M in (None, metric):
            given = None if M is None else arrays(library, M, dtype)
            p, info = suture.project(arrays(library, u, dtype), arrays(library, G, dtype), given)
            p = np.asarray(p, dtype=np.float64)
            assert p.shape == shape
            flat = G.reshape(m, -1).astype(np.float64)
            cos = flat @ p.ravel() / np.linalg.norm(flat, axis=1) / max(np.linalg.norm(p), 1e-300)
            assert cos.min() > (-1e-6 if dtype == "float32" else -1e-12)
            # M (p - u) = G^T lambda, lambda >= 0: with the line above these are the conditions of the optimum
            lam = np.asarray(info["lambda"] if isinstance(info, dict) else info.lambda_)
            right = (flat.T @ lam).reshape(shape)
            np.testing.assert_allclose((p - u) * (1 if M is None else M), right, atol=2e-5 if dtype == "float32" else 1e-11)
            assert lam.min() >= 0


def test_inside_comes_back_bit_for_bit():
    torch = pytest.importorskip("torch")
    u = torch.tensor([1.0, 2.0, 3.0])
    p, info = suture.project(u, [torch.tensor([1.0, 0, 0]), torch.tensor([0.0, 1, 0])])
    assert same_bits(p, u) and info.kind == "unchanged"
    assert p.data_ptr() != u.data_ptr()


def test_strided_arrays_give_the_same_bits(rng):
    big = rng.standard_normal((4, 10, 12))
    G = big[:3, ::2, 1::3]
    u = big[3, ::2, 1::3]
    a, b = suture.combine(G, "config"), suture.combine(np.ascontiguousarray(G), "config")
    assert same_bits(a, b)
    p, q = suture.project(u, G)[0], suture.project(np.ascontiguousarray(u), np.ascontiguousarray(G))[0]
    assert same_bits(p, q)
    flipped = suture.combine(G[:, ::-1, ::-1], "config")
    np.testing.assert_allclose(flipped[::-1, ::-1], a, rtol=1e-13)
    torch = pytest.importorskip("torch")
    t = torch.from_numpy(big)[:3].transpose(1, 2)
    assert same_bits(suture.combine(t, "config"), suture.combine(t.contiguous(), "config"))


def test_inputs_are_never_written():
    G = np.array([[1.0, 0], [-1, 1e-3]])
    u = np.array([1.0, -1])
    G.flags.writeable = False
    u.flags.writeable = False
    before = G.tobytes(), u.tobytes()
    suture.combine(G, "config")
    suture.project(u, G)
    suture.conflict(G, u)
    assert (G.tobytes(), u.tobytes()) == before


def test_conflict():
    c = suture.conflict(np.array([[1.0, 0], [-1, 1]]), np.array([0.0, 1]))
    assert c.conflict and c.vector_conflict is False
    assert c.min_pair_cos == pytest.approx(-(0.5**0.5))
    assert c.cos == pytest.approx((0, 0.5**0.5))
    assert c.to_dict()["norms"] == pytest.approx((1, 2**0.5))
    assert not suture.conflict(np.eye(3)).conflict
    torch = pytest.importorskip("torch")
    assert suture.conflict(torch.eye(2)).cos is None


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_cosines_of_all_pairs(library, rng):
    G = rng.standard_normal((5, 3, 20))
    G[3] = 0
    G[4] = -2 * G[0]
    c = suture.conflict(arrays(library, G, "float64"))
    flat = G.reshape(5, -1)
    norms = np.linalg.norm(flat, axis=1)
    want = np.divide(flat @ flat.T, np.outer(norms, norms), out=np.zeros((5, 5)), where=np.outer(norms, norms) > 0)
    np.testing.assert_allclose(c.cosines, want, atol=1e-14)
    assert np.array_equal(c.cosines, np.transpose(c.cosines)) and c.to_dict()["cosines"] == c.cosines
    assert c.cosines[0][4] == pytest.approx(-1, abs=1e-15) and c.cosines[3] == (0,) * 5
    assert c.min_pair_cos == min(min(row) for row in c.cosines)
    assert suture.conflict(arrays(library, G[:1], "float64")).cosines == ((1.0,),)
    assert suture.conflict([np.zeros(4)]).cosines == ((0.0,),)


def test_options_have_effect():
    G = np.array([[-4.0, 1, 1], [6, 1, 1], [1, -2, 0.5]])
    for method, name, value in [
        ("cagrad", "cagrad_c", 0.2), ("cagrad", "cagrad_rescale", 0), ("config", "config_length", "harmonic"),
        ("config", "preference", [1, 2, 3]), ("aligned_mtl", "aligned_scale", "rmse"), ("upgrad", "reg_eps", 0.1),
        ("mgda", "mgda_normalisation", "l2"), ("sdmgrad", "sdmgrad_lambda", 2.0), ("nash", "nash_max_norm", 0.5),
        ("sum", "scale_to_sum", True), ("pcgrad", "pcgrad_mean", True),
        ("pcgrad", "order", [[2, 1, 0], [2, 1, 0], [2, 1, 0]]), ("mgda", "mgda_frank_wolfe", True),
    ]:
        extra = {"pcgrad_identity_order": True} if method == "pcgrad" and name != "order" else {}
        base = suture.combine(G, method, **({"pcgrad_identity_order": True} if method == "pcgrad" else {}))
        assert not np.array_equal(base, suture.combine(G, method, **extra, **{name: value})), name


def test_draws_are_determined_by_seed_and_counter(rng):
    G = rng.standard_normal((6, 20))
    a = [suture.combine(G, "pcgrad", seed=1, counter=k) for k in range(20)]
    assert all(same_bits(x, suture.combine(G, "pcgrad", seed=1, counter=k)) for k, x in enumerate(a))
    assert len({x.tobytes() for x in a}) > 1


def test_unknown_names_are_refused_with_the_nearest():
    G = np.eye(2)
    with pytest.raises(suture.InvalidArgumentError, match="no surgery method 'conflig'.*config"):
        suture.combine(G, "conflig")
    with pytest.raises(TypeError, match="no option 'cagrad_d'; did you mean 'cagrad_c'"):
        suture.combine(G, "cagrad", cagrad_d=1)
    with pytest.raises(ValueError, match="aligned_scale is 'max'; possible are 'min', 'median', 'rmse'"):
        suture.combine(G, "aligned_mtl", aligned_scale="max")
    with pytest.raises(TypeError, match="cagrad_c is 'much', not a number"):
        suture.combine(G, "cagrad", cagrad_c="much")


def test_refusals_name_the_argument():
    torch = pytest.importorskip("torch")
    G = np.ones((2, 3))
    with pytest.raises(TypeError, match=r"u has elements of type float32, G\[0\] of type float64"):
        suture.project(np.ones(3, np.float32), G)
    with pytest.raises(TypeError, match=r"G\[1\] has elements of type float32"):
        suture.combine([np.ones(3), np.ones(3, np.float32)], "sum")
    with pytest.raises(TypeError, match="G is an array of numpy, u of torch"):
        suture.project(torch.ones(3, dtype=torch.float64), G)
    with pytest.raises(ValueError, match=r"G\[1\] has shape \(4,\), G\[0\] has \(3,\)"):
        suture.combine([np.ones(3), np.ones(4)], "sum")
    with pytest.raises(TypeError, match="complex128"):
        suture.combine(np.ones((2, 3), complex), "sum")
    with pytest.raises(TypeError, match="float16"):
        suture.combine(np.ones((2, 3), np.float16), "sum")
    with pytest.raises(TypeError, match=">f8"):
        suture.combine(np.ones((2, 3), ">f8"), "sum")
    with pytest.raises(ValueError, match="requires grad.*detach"):
        suture.combine(torch.ones(2, 3, requires_grad=True), "sum")
    with pytest.raises(suture.NotFiniteError, match="loss 1"):
        suture.combine(np.array([[1.0, 2], [3, np.nan]]), "config")
    with pytest.raises((suture.OutOfRangeError, ValueError), match="rows"):
        suture.combine(np.ones((65, 3)), "sum")
    with pytest.raises(ValueError, match="no rows"):
        suture.combine([], "sum")
    with pytest.raises(suture.UndefinedError):
        suture.combine(np.array([[1.0, 0], [-1, 0]]), "nash")
    with pytest.raises(suture.OutOfRangeError, match="cagrad_c"):
        suture.combine(G, "cagrad", cagrad_c=-1)
    with pytest.raises((TypeError, ValueError), match="meta"):
        suture.combine(torch.ones(2, 3, device="meta"), "sum")
    with pytest.raises(TypeError, match="sparse"):
        suture.combine([torch.eye(3).to_sparse()] * 2, "sum")


def test_two_opposed_losses_have_no_direction():
    for dtype in (np.float32, np.float64):
        G = np.zeros((2, 1000), dtype)
        G[:, 0] = 1, -1
        for method in ("config", "pcgrad", "cagrad", "upgrad", "aligned_mtl", "imtlg", "mgda"):
            a, r = suture.combine(G, method, report=True)
            assert not a.any() and r.zero, method
        p, info = suture.project(G[0], G)
        assert not p.any() and info.kind == "zero"


def test_a_gram_matrix_near_the_largest_number(recwarn):
    assert suture.weights(gram=[[1e308]], method="sum").tolist() == [1.0]
    assert suture.weights(gram=np.eye(2) * 1e308, method="upgrad").tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="not symmetric"):
        suture.weights(gram=[[1e308, 1e308], [-1e308, 1e308]], method="sum")
    with pytest.raises(ValueError, match=r"gram has shape \(\)"):
        suture.weights(gram=1e308, method="sum")
    assert not recwarn.list


def test_options_of_other_methods_that_are_none_mean_the_default():
    G = np.array([[1.0, 0, 2], [0, 1, 1]])
    assert same_bits(suture.combine(G, "sum", preference=None, order=None), suture.combine(G, "sum"))


def test_masks_do_not_go_unseen():
    G = np.ma.masked_array([[1.0, 1e6], [2.0, -1e6]], mask=[[0, 1], [0, 1]])
    x = np.zeros(2)
    opt = suture.Optimizer(x, "sgd", lr=1.0)
    for call in (
        lambda: suture.combine(G, "config"), lambda: suture.combine(list(G), "config"), lambda: suture.project(G[0], G.data),
        lambda: suture.conflict(G), lambda: suture.Optimizer(np.ma.masked_array([0.0, 0.0], mask=[0, 1])), lambda: opt.step(G[0]),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="is a masked array"):
            call()
    assert not x.any()
