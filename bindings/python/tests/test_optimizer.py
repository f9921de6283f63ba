"""suture.Optimizer on arrays of NumPy and PyTorch: in place, states, files, unusual arrays, refusals."""

import copy
import pickle

import numpy as np
import pytest
import suture

from conftest import same_bits


def run(params, grads, steps=5, **settings):
    opt = suture.Optimizer(params, **{"method": "adam", "lr": 1e-2, **settings})
    for k in range(steps):
        opt.step(grads(k))
    return opt


def test_adam_by_hand():
    x = np.zeros(1)
    opt = suture.Optimizer(x, "adam", lr=1e-3)
    for k in range(10):
        opt.step([np.ones(1)])
        if k == 1:
            assert opt.state(0)["m"][0] == pytest.approx(0.19, abs=1e-12)
            assert opt.state(0)["v"][0] == pytest.approx(0.001999, abs=1e-12)
    assert x[0] == pytest.approx(-0.01, abs=1e-9)
    assert opt.state("param.0")["step"] == 10


def test_weight_decay_of_adamw_is_not_that_of_adam():
    for method, want in (("adamw", (0.890000002, 0.781100004)), ("adam", (0.9000000017, 0.8000473405))):
        x = np.ones(1)
        opt = suture.Optimizer(x, method, lr=0.1, weight_decay=0.1)
        for w in want:
            opt.step([np.array([0.5])])
            assert x[0] == pytest.approx(w, abs=1e-9)


def test_forms_of_parameters_and_gradients(rng):
    a, b = rng.standard_normal(4), rng.standard_normal((2, 3))
    ga, gb = rng.standard_normal(4), rng.standard_normal((2, 3))
    results = []
    for params, grads in (
        ([1, 2], [[ga, gb]]), ([1, 2], [ga, gb]), ({"x": 1, "y": 2}, {"y": gb, "x": ga}),
        ([("x", 1), ("y", 2)], [(ga, gb)]), ([{"params": [1]}, {"params": [2]}], [[ga, gb]]),
    ):
        x, y = a.copy(), b.copy()

        def fill(p):
            if isinstance(p, dict):
                return {k: fill(v) for k, v in p.items()}
            if isinstance(p, list):
                return [fill(v) for v in p]
            return (p[0], fill(p[1])) if isinstance(p, tuple) else {1: x, 2: y}.get(p, p)

        run(fill(params), lambda k: grads)
        results.append(x.tobytes() + y.tobytes())
    assert len(set(results)) == 1
    x = a.copy()
    opt = suture.Optimizer(x, "adam", lr=1e-2, n_losses=2)
    opt.step(np.stack([ga, -ga]))
    with pytest.raises(KeyError, match="no parameter 'z'"):
        suture.Optimizer({"x": x}, "adam").step({"z": ga})


def test_numpy_and_torch_give_the_same_bits(rng):
    torch = pytest.importorskip("torch")
    start, grads = rng.standard_normal((3, 37)).astype(np.float32), rng.standard_normal((5, 2, 3, 37)).astype(np.float32)
    x, t = start.copy(), torch.from_numpy(start.copy())
    settings = dict(n_losses=2, surgery="upgrad", align="gua")
    run(x, lambda k: [grads[k, 0], grads[k, 1]], **settings)
    run(t, lambda k: [torch.from_numpy(grads[k, 0]), torch.from_numpy(grads[k, 1])], **settings)
    assert same_bits(x, t)


def test_groups_have_their_own_settings():
    x, y = np.ones(3), np.ones(3)
    opt = suture.Optimizer([{"params": [x], "lr": 0.1}, {"params": [y], "betas": (0.5, 0.9)}], "adam", lr=0.01)
    opt.step([[np.ones(3), np.ones(3)]])
    assert x[0] == pytest.approx(0.9) and y[0] == pytest.approx(0.99)
    assert opt.group(1)["beta1"] == 0.5
    opt.set(group=1, lr=0.0)
    report = opt.step([[np.ones(3), np.ones(3)]])
    assert y[0] == pytest.approx(0.99) and report.lr == 0.1
    opt.lr = 1e-3
    assert opt.group(0)["lr"] == opt.group(1)["lr"] == 1e-3
    with pytest.raises(TypeError, match="no hyper-parameter 'lrr'; did you mean 'lr'"):
        opt.set(lrr=1)
    with pytest.raises(suture.OutOfRangeError, match="eps is -1"):
        opt.set(eps=-1)


def test_schedule():
    x = np.zeros(1)
    opt = suture.Optimizer(x, "sgd", lr=1.0, schedule={"kind": "linear", "peak": 1.0, "total": 4})
    rates = [opt.step([np.ones(1)]).lr for _ in range(5)]
    assert rates == pytest.approx([1, 0.75, 0.5, 0.25, 0])
    for bad, match in (({"kind": "linear", "totle": 4}, "did you mean 'total'"), ({}, "needs a 'kind'"), (3, "a dict is")):
        with pytest.raises((TypeError, ValueError), match=match):
            suture.Optimizer(x, "sgd", schedule=bad)


def test_rate_and_peak_are_one_where_one_is_given():
    shape = {"kind": "linear", "total": 2, "final_lr": 0.02}
    ways = [
        (dict(schedule={**shape, "peak": 0.1}), [0.1, 0.06, 0.02]),
        (dict(schedule=shape, lr=0.1), [0.1, 0.06, 0.02]),
        (dict(schedule={**shape, "peak": 0.1}, lr=0.2), [0.2, 0.12, 0.04]),  # lr s(t) / peak, as in C
    ]
    makers = [lambda p, **o: suture.Optimizer(np.ones(3), **o)]
    try:
        import torch

        from suture.torch import Optimizer

        makers.append(lambda p, **o: Optimizer([torch.ones(3, requires_grad=True)], **o))
    except ImportError:
        torch = None
    for make in makers:
        for method in suture.optimizer_methods:
            for settings, rates in ways:
                opt = make(None, method=method, **settings)
                ones = [[np.ones(3)]] if isinstance(opt, suture.Optimizer) else [[torch.ones(3)]]
                step = opt.step if isinstance(opt, suture.Optimizer) else opt.step_grads
                assert [step(ones).lr for _ in range(3)] == pytest.approx(rates, rel=1e-12), (method, settings)
    # A rate that one group was given is that group's.
    opt = suture.Optimizer([{"params": np.ones(3), "lr": 0.3}, {"params": np.ones(2)}], "sgd", schedule={**shape, "peak": 0.1})
    assert [opt.group(k)["lr"] for k in (0, 1)] == [0.3, 0.1]
    with pytest.raises(suture.OutOfRangeError, match="peak"):
        suture.Optimizer(np.ones(3), "sgd", schedule={**shape, "peak": -1.0})


def test_betas_and_its_halves():
    def betas(**given):
        group = suture.Optimizer([{"params": np.ones(2), **given.pop("own", {})}], "adam", **given).group()
        return group["beta1"], group["beta2"]

    assert betas(beta1=0.5) == (0.5, 0.999)
    assert betas(betas=(0.1, 0.2), own={"beta1": 0.5}) == (0.5, 0.2)
    assert betas(beta1=0.5, own={"betas": (0.1, 0.2)}) == (0.1, 0.2)
    opt = suture.Optimizer(np.ones(2), "adam")
    opt.set(betas=(0.5, 0.6))
    assert (opt.group()["beta1"], opt.group()["beta2"]) == (0.5, 0.6)
    opt.set(beta2=0.7)
    assert (opt.group()["beta1"], opt.group()["beta2"]) == (0.5, 0.7)


def test_one_gradient_may_stand_alone():
    for shape in ((3,), (1, 3), (), (1, 1)):
        ends = []
        for grads in (np.full(shape, 2.0), [np.full(shape, 2.0)], [[np.full(shape, 2.0)]], np.full((1, *shape), 2.0)):
            x = np.ones(shape)
            suture.Optimizer(x, "sgd", lr=0.1).step(grads)
            ends.append(x)
        assert all(same_bits(x, np.full(shape, 0.8)) for x in ends)
    with pytest.raises(ValueError, match=r"gradient of 'param.0' is float64 of shape \(4,\), the parameter float64 of shape \(3,\)"):
        suture.Optimizer(np.ones(3)).step(np.ones(4))


def test_bfloat16_arrays_of_numpy():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    bfloat16 = ml_dtypes.bfloat16
    x = np.ones((4, 3), bfloat16)
    grads = [np.linspace(-1, 1, 12).reshape(4, 3).astype(bfloat16), np.ones((4, 3), bfloat16)[::-1]]
    settings = dict(lr=1e-3, n_losses=2, surgery="config", align="gua")
    opt = suture.Optimizer(x, "adam", **settings)
    for _ in range(5):
        opt.step(grads)
    x, opt = pickle.loads(pickle.dumps((x, opt)))
    assert opt.state(0)["master"].dtype == np.float32 and opt.direction(grads)[1][0].dtype == np.float32
    opt.step(grads)
    # The same bits as for the bfloat16 of PyTorch, where it is there.
    torch = pytest.importorskip("torch")
    p = torch.ones(4, 3, dtype=torch.bfloat16)
    theirs = [torch.from_numpy(g.astype(np.float32)).bfloat16() for g in grads]
    other = suture.Optimizer(p, "adam", **settings)
    for _ in range(6):
        other.step(theirs)
    assert same_bits(opt.state(0)["master"], other.state(0)["master"])
    assert same_bits(opt._tensors[0][1].view(np.int16), p.view(torch.int16))
    x.flags.writeable = False
    with pytest.raises(ValueError, match="'param.0' is read-only"):
        suture.Optimizer(x)
    with pytest.raises(TypeError, match="type bfloat16; float32 and float64 are possible"):
        suture.combine(np.stack(grads), "sum")
    with pytest.raises(TypeError, match="type float8_e4m3; float32, float64, float16 and bfloat16 are possible"):
        suture.Optimizer(np.ones(3, ml_dtypes.float8_e4m3))


def test_every_option_of_a_step_has_an_effect(rng):
    grads = rng.standard_normal((2, 50))
    grads[1] = -grads[0] + 0.3 * grads[1]

    def result(**options):
        x = np.ones(50)
        base = dict(n_losses=2, surgery="sum", align="gua", lr=0.01)
        opt = suture.Optimizer(x, "adam", **{**base, **options})
        for k in range(6):
            opt.step(list(grads * [[1], [1 - 0.3 * k]]))
        return x.tobytes()

    base = result()
    for name, value in dict(maximize=True, clip_norm=1e-3, align="none", metric="euclidean", rho_m=0.9, rho_v=0.9,
                            conflict_cos_tol=0.999, correction_distance_tol=10.0, surgery="mean", lr=0.02, eps=1e-2,
                            betas=(0.5, 0.6), weight_decay=0.1, amsgrad=True).items():
        assert result(**{name: value}) != base, name
    assert result(threads=1) == base


def test_set_align():
    x = np.ones(2)
    opt = suture.Optimizer(x, "sgd", lr=0.1, n_losses=2)
    G = [np.array([3.0, 0]), np.array([-1.0, 1])]
    assert opt.step(G).conflict_p
    opt.set_align("gua")
    assert not opt.step(G).conflict_p
    opt.set_align("none")
    assert opt.step(G).conflict_p


def test_direction_looks_ahead_and_changes_nothing(rng):
    x = rng.standard_normal(9)
    before = x.copy()
    G = rng.standard_normal((3, 9))
    opt = suture.Optimizer(x, "sgd", lr=1.0, n_losses=3, surgery="config")
    w, (a,) = opt.direction(list(G))
    assert same_bits(x, before) and opt.steps == 0
    np.testing.assert_allclose(a, np.asarray(w) @ G, rtol=1e-12)
    report = opt.step(list(G))
    assert report.weights == w
    np.testing.assert_allclose(before - x, a, rtol=1e-12)


def test_files_memory_copies_and_pickles(tmp_path, rng):
    grads = rng.standard_normal((30, 2, 20))
    settings = dict(n_losses=2, surgery="pcgrad", align="gua", lr=1e-2, seed=5)

    def start():
        x = np.ones(20)
        return x, suture.Optimizer({"w": x}, "adam", **settings)

    x, opt = start()
    for k in range(10):
        opt.step(list(grads[k]))
    opt.save(tmp_path / "a.safetensors")
    data = opt.to_bytes()
    assert (tmp_path / "a.safetensors").read_bytes() == data
    twin = copy.deepcopy(opt)
    packed = pickle.dumps(opt)
    y, other = start()
    other.load(tmp_path / "a.safetensors")
    z, third = start()
    third.from_bytes(data)
    assert third.to_bytes() == data
    fourth = pickle.loads(packed)
    for k in range(10, 30):
        for o in (opt, other, third, twin, fourth):
            o.step(list(grads[k]))
    ends = [x, y, z, twin._tensors[0][1], fourth._tensors[0][1]]
    assert all(same_bits(x, e) for e in ends)
    with pytest.raises(suture.CorruptStateError):
        opt.from_bytes(data[:-1])
    with pytest.raises(suture.MismatchError, match="momentum|sgd"):
        suture.Optimizer({"w": np.ones(20)}, "sgd", n_losses=2).from_bytes(data)
    with pytest.raises(suture.MismatchError, match="v|w"):
        suture.Optimizer({"v": np.ones(20)}, "adam", n_losses=2).from_bytes(data)
    with pytest.raises(suture.StateFileError):
        opt.load(tmp_path / "nothing")
    with pytest.raises(OSError):
        opt.save(tmp_path / "no" / "folder")


def test_master_copies_belong_to_the_parameters(tmp_path):
    """A step alone is smaller than what float16 holds near 1: without its master copy the parameter never moves."""

    def start():
        x = np.ones(8, np.float16)
        return x, suture.Optimizer({"x": x}, "sgd", lr=1e-4)

    def run(opt, count=50):
        for _ in range(count):
            opt.step([np.ones(8, np.float16)])

    x, opt = start()
    run(opt)
    whole, bare = opt.to_bytes(), opt.to_bytes(include_parameters=False)
    assert b"suture.master.x" in whole and b"suture.param.x" in whole
    assert b"suture.master.x" not in bare and b"suture.param.x" not in bare
    master = opt.state("x")["master"].copy()
    run(opt)
    ahead = x.copy()
    y, other = start()
    other.from_bytes(whole)  # parameters and master copies: the same bits
    run(other)
    assert same_bits(y, ahead)
    z, third = start()
    z[:] = 3.0
    third.parameters_changed()
    third.from_bytes(bare, include_parameters=False)  # its own parameters and master copies stay
    assert third.steps == 50 and (z == 3).all() and (third.state("x")["master"] == 3).all()
    opt.from_bytes(bare, include_parameters=False)
    assert same_bits(x, ahead) and opt.steps == 50 and not same_bits(opt.state("x")["master"], master)
    opt.save(tmp_path / "bare", include_parameters=False)
    assert (tmp_path / "bare").read_bytes() == opt.to_bytes(include_parameters=False)


@pytest.mark.parametrize("method", sorted(suture.optimizer_methods))
def test_unusual_gradients_are_like_their_contiguous_copies(method, rng):
    big = rng.standard_normal((8, 64))
    results = []
    for g in (big[:, :32], np.ascontiguousarray(big[:, :32]), np.asfortranarray(big[:, :32]), big[::-1, :32][::-1]):
        x = np.ones((8, 32))
        run(x, lambda k: [g], method=method, lr=1e-3)
        results.append(x.tobytes())
    assert len(set(results)) == 1
    shifted = np.zeros(8 * 32 * 8 + 1, np.uint8)[1:].view(np.float64).reshape(8, 32)
    shifted[...] = big[:, :32]
    x = np.ones((8, 32))
    run(x, lambda k: [shifted], method=method, lr=1e-3)
    assert x.tobytes() == results[0]


def test_unusual_parameters_change_in_place_or_are_refused(rng):
    g = rng.standard_normal((6, 4))
    want = np.ones((6, 4))
    run(want, lambda k: [g])
    f = np.asfortranarray(np.ones((6, 4)))
    strides = f.strides
    run(f, lambda k: [g])
    assert np.array_equal(f, want) and f.strides == strides
    t = np.ones((4, 6)).T
    run(t, lambda k: [g])
    assert np.array_equal(t, want)
    half = np.ones((6, 4), np.float16)
    run(half, lambda k: [g.astype(np.float16)])
    assert np.abs(half.astype(float) - want).max() < 1e-2
    for x, error, match in (
        (np.ones(12, int), TypeError, "int64"),
        (np.ones(12, ">f8"), TypeError, ">f8"),
        (np.ones(12, complex), TypeError, "complex128"),
        (np.ones(24)[::2], ValueError, "gaps"),
        (np.ones(12)[::-1], ValueError, "gaps"),
        (np.broadcast_to(np.ones(1), 12), ValueError, "read-only|gaps"),
        (np.zeros(12 * 8 + 1, np.uint8)[1:].view(np.float64), ValueError, "aligned"),
        ([1.0, 2.0], TypeError, "of type (float|list)"),
        ("w", TypeError, "of type str"),
    ):
        with pytest.raises(error, match=match):
            suture.Optimizer([x], "adam")


def test_read_only(tmp_path):
    x = np.ones(4)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="'param.0' is read-only"):
        suture.Optimizer(x, "adam")
    np.save(tmp_path / "x.npy", np.ones(4))
    with pytest.raises(ValueError, match="read-only"):
        suture.Optimizer(np.load(tmp_path / "x.npy", mmap_mode="r"), "adam")
    y, g = np.ones(4), np.ones(4)
    g.flags.writeable = False
    opt = suture.Optimizer(y, "adam")
    opt.step([g])
    y.flags.writeable = False
    before = y.copy()
    with pytest.raises(ValueError, match="'param.0' is read-only"):
        opt.step([g])
    assert same_bits(before, y) and opt.steps == 1


def test_bad_gradients_change_nothing():
    x, y = np.ones(1001, np.float32), np.ones(3, np.float32)
    opt = suture.Optimizer({"x": x, "y": y}, "adam", n_losses=3, loss_names=["a", "b", "c"], surgery="config", align="gua")
    good = [[np.ones(1001, np.float32), np.ones(3, np.float32)] for _ in range(3)]
    opt.step(good)
    before = x.tobytes(), y.tobytes(), opt.to_bytes()
    for value in (np.nan, np.inf, -np.inf):
        bad = copy.deepcopy(good)
        bad[1][0][1000] = value
        with pytest.raises(suture.NotFiniteError, match="b.*x.*1000"):
            opt.step(bad)
    for row, error, match in (
        ([np.ones(1001), np.ones(3, np.float32)], TypeError, "loss 'b' in 'x' is float64 .* parameter float32"),
        ([np.ones(1000, np.float32), np.ones(3, np.float32)], ValueError, r"shape \(1000,\)"),
        ([np.ones(1001, np.float32)], ValueError, "loss 1 .*one entry per tensor"),
        ([np.ones(1001, np.float32), [1, 2, 3]], TypeError, "of type list"),
        ([x, y], suture.InvalidArgumentError, "overlap"),
    ):
        with pytest.raises(error, match=match):
            opt.step([good[0], row, good[2]])
    with pytest.raises(ValueError, match="gradients of 3 losses"):
        opt.step(good[:2])
    assert before[:2] == (x.tobytes(), y.tobytes()) and opt.steps == 1 and opt.skipped_steps == 3
    opt.step(good)


def test_empty_and_repeated_parameters():
    parts = [np.ones(5) for _ in range(6)]
    twins = [p.copy() for p in parts]
    holes = [np.ones(0), *parts[:3], np.ones((3, 0)), *parts[3:], np.ones(0)]
    run(holes, lambda k: [[np.full(h.shape, 0.5) for h in holes]])
    run(twins, lambda k: [[np.full(5, 0.5) for _ in twins]])
    assert all(same_bits(p, t) for p, t in zip(parts, twins))
    for bad in ([], [np.ones(0)]):
        with pytest.raises(suture.InvalidArgumentError, match="no parameters|element"):
            suture.Optimizer(bad, "adam")
    x = np.ones(4)
    for bad in ([x, x], [x, x[1:3]], {"a": x, "b": x}, [{"params": [x]}, {"params": [x]}]):
        with pytest.raises(suture.InvalidArgumentError, match="overlap|same|param|'a'"):
            suture.Optimizer(bad, "adam")


def test_absent_is_not_zero():
    for gradient, want in ((np.zeros(1), 0.99), (None, 1.0)):
        x = np.ones(1)
        suture.Optimizer(x, "adamw", lr=0.1, weight_decay=0.1).step([gradient])
        assert x[0] == want
    x = np.zeros(1)
    opt = suture.Optimizer([x], "sgd", lr=0.1, momentum=0.9)
    opt.step([[np.ones(1)]])
    opt.step([[None]])
    assert x[0] == -0.1 and opt.state(0)["step"] == 1


def test_foreign_arrays_are_refused():
    with pytest.raises(TypeError, match="no option 'lrr'; did you mean 'lr'"):
        suture.Optimizer(np.ones(2), "adam", lrr=1)
    with pytest.raises(TypeError, match="group 0: 'momentum' is no hyper-parameter of adam"):
        suture.Optimizer([{"params": [np.ones(2)], "momentum": 0.9}], "adam")
    with pytest.raises(suture.OutOfRangeError, match="threads"):
        suture.Optimizer(np.ones(2), "adam", threads=100000)
    with pytest.raises(suture.InvalidArgumentError, match="instruction set 'mmx'"):
        suture.Optimizer(np.ones(2), "adam", isa="mmx")
    for n in (0, 65, -1):
        with pytest.raises(suture.OutOfRangeError, match="n_losses|loss"):
            suture.Optimizer(np.ones(2), "adam", n_losses=n)
    jax = pytest.importorskip("jax")
    with pytest.raises(TypeError, match="JAX.*suture.jax"):
        suture.Optimizer([jax.numpy.ones(3)], "adam")
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="not a leaf"):
        suture.Optimizer([torch.ones(3, requires_grad=True) * 2], "adam")


def test_numpy_refuses_to_resize_what_is_in_use_or_suture_notices():
    x = np.ones(4)
    opt = suture.Optimizer(x, "adam")
    opt.step([np.ones(4)])
    try:
        x.resize(8, refcheck=False)
    except ValueError:
        return
    with pytest.raises(ValueError, match=r"shape \(4,\) when the optimizer was made and is now .* \(8,\)"):
        opt.step([np.ones(4)])


def test_report_reads_well():
    x = np.ones(2)
    opt = suture.Optimizer(x, "sgd", lr=0.1, n_losses=2, align="gua")
    report = opt.step([np.array([3.0, 0]), np.array([-1.0, 1])])
    text = str(report)
    assert "step 1" in text and "proposal" in text and "conflict" in text and "projected" in text
    d = report.to_dict()
    assert d["lambda"] == report.lambda_ and d["projected"] is True and len(d["cos_p"]) == 2
    assert opt.step([np.array([3.0, 0]), np.array([-1.0, 1])], report=False) is None


def test_what_is_printed_is_in_force():
    opt = suture.Optimizer(np.ones(3), "adam", n_losses=2, surgery="config", align="gua")
    other = suture.Optimizer(np.ones(3), "adam", n_losses=2, surgery="mgda", mgda_normalisation="loss")
    assert "surgery mgda, align none" in repr(other)
    other.from_bytes(opt.to_bytes())
    assert "surgery config, align gua" in repr(other)
    other.set_align("none")
    assert "surgery config, align none" in repr(other)
