"""suture.jax: pure functions, under jit and outside, and the optax-style pair."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import suture
import suture.jax

from conftest import same_bits


@pytest.fixture
def G(rng):
    G = rng.standard_normal((3, 40))
    G[1] -= 0.8 * G[0]
    return G


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_same_as_numpy_with_and_without_jit(G, dtype):
    G = G.astype(dtype)
    u = (-G[0] + 0.1 * G[2]).astype(dtype)
    for method in ("config", "upgrad", "mgda", "cagrad"):
        want = suture.combine(G, method)
        assert same_bits(want, suture.combine(jnp.asarray(G), method))
        assert same_bits(want, jax.jit(lambda G: suture.combine(G, method))(G))
        a, figures = jax.jit(lambda G: suture.jax.combine(G, method, report=True))(G)
        np.testing.assert_allclose(figures["weights"], suture.weights(G, method), rtol=1e-12)
    want, info = suture.project(u, G)
    for run in (suture.project, jax.jit(suture.project)):
        p, figures = run(jnp.asarray(u), jnp.asarray(G))
        assert same_bits(p, want) and isinstance(p, jax.Array)
        np.testing.assert_allclose(figures["lambda"], info.lambda_, rtol=1e-12)
    assert suture.conflict(jnp.asarray(G)).min_pair_cos == suture.conflict(G).min_pair_cos


def test_conflict_with_and_without_jit(G):
    want, v = suture.conflict(G, G[0]), jnp.asarray(G[0])
    for run in (suture.jax.conflict, jax.jit(suture.jax.conflict)):
        found = run(jnp.asarray(G), v)
        assert set(found) == set(want.to_dict())
        for name, value in want.to_dict().items():
            np.testing.assert_allclose(found[name], value, rtol=1e-12, err_msg=name)
        assert found["cosines"].shape == (3, 3) and bool(found["conflict"]) is want.conflict
        assert "cos" not in run(jnp.asarray(G))
    with pytest.raises(TypeError, match="use suture.jax.conflict"):
        jax.jit(suture.conflict)(jnp.asarray(G))


def test_vmap_and_scan(G):
    batch = jnp.asarray(np.stack([G, 2 * G, G + 1]))
    out = jax.jit(jax.vmap(lambda G: suture.jax.combine(G, "config")))(batch)
    for k in range(3):
        assert same_bits(out[k], suture.combine(np.asarray(batch[k]), "config"))


def test_draws_follow_a_traced_counter(rng):
    G = rng.standard_normal((6, 20))
    f = jax.jit(lambda c: suture.jax.combine(jnp.asarray(G), "pcgrad", seed=3, counter=c))
    for c in range(5):
        assert same_bits(f(c), suture.combine(G, "pcgrad", seed=3, counter=c))


def params_and_grads(rng, dtype):
    params = {"w": rng.standard_normal((3, 4)), "b": [rng.standard_normal(4), rng.standard_normal(2)]}
    cast = lambda t: jax.tree_util.tree_map(lambda x: jnp.asarray(x, dtype), t)
    grads = [[cast(jax.tree_util.tree_map(lambda x: rng.standard_normal(x.shape), params)) for _ in range(2)] for _ in range(6)]
    return cast(params), grads


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("jit", [False, True])
def test_optimizer_is_that_of_the_library(rng, dtype, jit):
    params, grads = params_and_grads(rng, dtype)
    start = params
    opt = suture.jax.optimizer("adam", n_losses=2, lr=1e-2, surgery="config", align="gua")
    state = opt.init(params)
    update = jax.jit(opt.update) if jit else opt.update
    for g in grads:
        updates, state = update(g, state, params)
        params = jax.tree_util.tree_map(jnp.add, params, updates)
    arrays = [np.array(x) for x in jax.tree_util.tree_leaves(start)]
    host = suture.Optimizer(arrays, "adam", n_losses=2, lr=1e-2, surgery="config", align="gua")
    for g in grads:
        host.step([[np.asarray(x) for x in jax.tree_util.tree_leaves(row)] for row in g])
    for x, y in zip(jax.tree_util.tree_leaves(params), arrays):
        np.testing.assert_allclose(x, y, rtol=1e-12 if dtype == np.float64 else 1e-6, atol=1e-13 if dtype == np.float64 else 1e-7)


def test_optimizer_is_pure(rng):
    params, grads = params_and_grads(rng, np.float64)
    opt = suture.jax.optimizer("adam", n_losses=2, lr=1e-2)
    s0 = opt.init(params)
    u1, s1 = opt.update(grads[0], s0, params)
    u2, s2 = opt.update(grads[1], s1, params)
    again1, _ = opt.update(grads[0], s0, params)
    again2, t2 = opt.update(grads[1], s1, params)
    for x, y in ((u1, again1), (u2, again2), (s2, t2)):
        assert all(same_bits(a, b) for a, b in zip(jax.tree_util.tree_leaves(x), jax.tree_util.tree_leaves(y)))


def test_agrees_with_optax(rng):
    optax = pytest.importorskip("optax")
    params, grads = params_and_grads(rng, np.float64)
    pairs = [
        (optax.adam(1e-2, b1=0.8, b2=0.95), suture.jax.optimizer("adam", lr=1e-2, betas=(0.8, 0.95))),
        (optax.adamw(1e-2, weight_decay=0.1), suture.jax.optimizer("adamw", lr=1e-2, weight_decay=0.1)),
        (optax.sgd(1e-2, momentum=0.8), suture.jax.optimizer("sgd", lr=1e-2, momentum=0.8)),
        (optax.sgd(1e-2, momentum=0.8, nesterov=True), suture.jax.optimizer("sgd", lr=1e-2, momentum=0.8, nesterov=True)),
        (optax.lion(1e-3, b1=0.8, b2=0.95, weight_decay=0.1),
         suture.jax.optimizer("lion", lr=1e-3, betas=(0.8, 0.95), weight_decay=0.1)),
    ]
    for theirs, ours in pairs:
        ends = []
        for opt in (theirs, ours):
            p, state = params, opt.init(params)
            for g in grads:
                updates, state = opt.update(g[0], state, p)
                p = optax.apply_updates(p, updates)
            ends.append(jax.tree_util.tree_leaves(p))
        for x, y in zip(*ends):
            np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-12)
    assert isinstance(ours, optax.GradientTransformation)
    chain = optax.chain(ours, optax.scale(0.5))
    updates, _ = chain.update(grads[0][0], chain.init(params), params)
    assert jax.tree_util.tree_structure(updates) == jax.tree_util.tree_structure(params)


def test_a_training_loop_under_jit():
    opt = suture.jax.optimizer("adam", n_losses=2, lr=0.05, surgery="config", align="gua")
    first, second = lambda x: ((x - 1) ** 2).sum(), lambda x: 3 * ((x[0] + 1) ** 2)

    @jax.jit
    def step(x, state):
        updates, state = opt.update([jax.grad(first)(x), jax.grad(second)(x)], state, x)
        return x + updates, state

    x = jnp.zeros(3)
    state = opt.init(x)
    for _ in range(150):
        x, state = step(x, state)
    assert abs(x[1] - 1) < 0.05 and -1 <= x[0] <= 1


def test_refusals(rng):
    G = jnp.ones((2, 3))
    with pytest.raises(suture.NotFiniteError, match="loss 1"):
        suture.combine(jnp.asarray([[1.0, 2], [3, jnp.nan]]), "config")
    with pytest.raises(Exception, match="loss 1"):
        jax.block_until_ready(jax.jit(lambda G: suture.combine(G, "config"))(jnp.asarray([[1.0, 2], [3, jnp.nan]])))
    with pytest.raises(TypeError, match=r"G\[1\] has elements of type float32"):
        suture.combine([jnp.ones(3), jnp.ones(3, jnp.float32)], "sum")
    with pytest.raises(TypeError, match="bfloat16"):
        suture.combine(jnp.ones((2, 3), jnp.bfloat16), "sum")
    with pytest.raises(TypeError, match="u is an array of jax|array of"):
        suture.project(np.ones(3), G)
    opt = suture.jax.optimizer("adam", n_losses=2)
    params = {"w": jnp.ones(3)}
    state = opt.init(params)
    with pytest.raises(ValueError, match="needs the parameters"):
        opt.update([params, params], state)
    with pytest.raises(ValueError, match="list of 2 trees"):
        opt.update([params], state, params)
    with pytest.raises(ValueError, match="loss 1 are not a tree like params"):
        opt.update([params, {"v": jnp.ones(3)}], state, params)
    with pytest.raises(TypeError, match="loss 0 in .*w.* is float32"):
        opt.update([{"w": jnp.ones(3, jnp.float32)}, params], state, params)
    with pytest.raises(TypeError, match="bfloat16"):
        opt.init({"w": jnp.ones(3, jnp.bfloat16)})
    with pytest.raises(TypeError, match="no option"):
        suture.jax.optimizer("adam", lrr=1).init(params)


def test_the_rate_of_a_refused_update_is_forgotten():
    params, grads = jnp.ones(3), jnp.ones(3)
    opt = suture.jax.optimizer("sgd", lr=0.5)
    state = opt.init(params)
    with pytest.raises(suture.NotFiniteError):
        opt.update(grads * jnp.nan, state, params, lr=100.0)
    assert np.array_equal(opt.update(grads, state, params)[0], np.full(3, -0.5, np.float32))


def test_a_rate_that_an_update_is_given_is_that_of_this_update():
    params = grads = jnp.ones(2)
    for jit in (False, True):
        opt = suture.jax.optimizer("sgd", lr=0.1)
        update = jax.jit(opt.update) if jit else opt.update
        state, steps = opt.init(params), []
        for extra in ({}, {"lr": 0.5}, {}, {"lr": jnp.asarray(0.25)}, {}):
            updates, state = update(grads, state, params, **extra)
            steps.append(float(updates[0]))
        assert steps == pytest.approx([-0.1, -0.5, -0.1, -0.25, -0.1])


@pytest.mark.parametrize("jit", [False, True])
def test_hyper_parameters_that_optax_injects(jit):
    optax = pytest.importorskip("optax")
    params = jnp.ones(2)
    ends = []
    for make in (
        lambda lr, momentum, beta1: optax.chain(optax.sgd(lr, momentum)),
        lambda lr, momentum, beta1: suture.jax.optimizer("sgd", lr=lr, momentum=momentum),
        lambda lr, momentum, beta1: optax.adam(lr, b1=beta1),
        lambda lr, momentum, beta1: suture.jax.optimizer("adam", lr=lr, betas=(beta1, 0.999)),
    ):
        opt = optax.inject_hyperparams(make)(lr=0.1, momentum=0.5, beta1=0.6)
        p, state = params, opt.init(params)
        update = jax.jit(opt.update) if jit else opt.update
        for k in range(4):
            state.hyperparams["lr"] = jnp.asarray(0.1 / (1 + k))
            state.hyperparams["beta1"] = jnp.asarray(0.6 + 0.1 * k)
            updates, state = update(p * (k + 1), state, p)
            p = optax.apply_updates(p, updates)
        ends.append(p)
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-12)
    np.testing.assert_allclose(ends[3], ends[2], rtol=1e-12)
    schedule = optax.inject_hyperparams(lambda lr: suture.jax.optimizer("sgd", lr=lr))(lr=optax.linear_schedule(0.4, 0.0, 4))
    state, steps = schedule.init(params), []
    for _ in range(3):
        updates, state = schedule.update(params, state, params)
        steps.append(float(updates[0]))
    assert steps == pytest.approx([-0.4, -0.3, -0.2])
    with pytest.raises(ValueError, match=r"lr has shape \(2,\)"):
        suture.jax.optimizer("sgd", lr=jnp.ones(2))
    with pytest.raises(suture.OutOfRangeError, match="lr is -1"):
        suture.jax.optimizer("sgd", lr=jnp.asarray(-1.0))
    with pytest.raises(TypeError, match="nesterov is traced.*static_args"):
        jax.jit(lambda x: suture.jax.optimizer("sgd", momentum=0.5, nesterov=x) and 1)(jnp.asarray(True))


def test_weights_of_a_gram_matrix_under_jit(G):
    K = G @ G.T
    want = suture.weights(gram=K, method="upgrad")
    for run in (lambda K: suture.weights(gram=K, method="upgrad"), lambda K: suture.jax.weights(gram=K, method="upgrad")):
        for f in (run, jax.jit(run)):
            found = f(jnp.asarray(K))
            assert isinstance(found, jax.Array) and same_bits(found, want)
    batch = jax.vmap(lambda K: suture.weights(gram=K, method="config"))(jnp.stack([jnp.asarray(K), jnp.eye(3)]))
    assert same_bits(batch[0], suture.weights(gram=K, method="config"))
    f = jax.jit(lambda K, losses: suture.weights(None, "mgda", losses, gram=K, mgda_normalisation="loss"))
    losses = np.array([1.0, 2, 3])
    assert same_bits(f(K, losses), suture.weights(None, "mgda", losses, gram=K, mgda_normalisation="loss"))
    with pytest.raises(ValueError, match=r"gram has shape \(2, 3\)"):
        jax.jit(lambda K: suture.weights(gram=K, method="sum"))(jnp.ones((2, 3)))
    with pytest.raises(TypeError, match="gram has elements of type complex128"):
        suture.weights(gram=jnp.eye(2, dtype=jnp.complex128), method="sum")
    with pytest.raises(ValueError, match="negative eigenvalue"):
        suture.weights(gram=jnp.asarray([[1.0, 2], [2, 1]]), method="config")
    with pytest.raises(TypeError, match="either G or gram, not both"):
        suture.jax.weights(jnp.ones((2, 3)), "sum", gram=jnp.eye(2))


def test_trees_whose_variables_lose_their_wrapper():
    # Flax's trees of variables have a last key "value" in init() and none in update().
    class Variable:
        def __init__(self, value):
            self.value = value

    jax.tree_util.register_pytree_with_keys(
        Variable, lambda v: (((jax.tree_util.GetAttrKey("value"), v.value),), None), lambda _, leaves: Variable(*leaves)
    )
    plain = {"a": jnp.ones(3), "b": jnp.ones((2, 2))}
    grads = {"a": jnp.arange(3.0), "b": -jnp.ones((2, 2))}
    opt = suture.jax.optimizer("adam", lr=0.1)
    wanted, _ = opt.update(grads, opt.init(plain), plain)
    found, _ = opt.update(grads, opt.init({k: Variable(x) for k, x in plain.items()}), plain)
    assert all(same_bits(found[k], wanted[k]) for k in plain)
    with pytest.raises(suture.MismatchError):  # a state of other tensors
        opt.update(grads, opt.init({"c": plain["a"], "b": plain["b"]}), plain)


# -- what goes on around updates --


def pair(**settings):
    return suture.jax.optimizer("adam", **{"n_losses": 2, "lr": 0.1, "surgery": "config", "align": "gua", **settings})


PARAMS = {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}
GRADS = [{"w": jnp.full((3, 2), 2.0), "b": jnp.array([1.0, -1.0])}, {"w": -PARAMS["w"], "b": jnp.array([0.5, 2.0])}]


def same_trees(a, b):
    return all(same_bits(x, y) for x, y in zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b), strict=True))


@pytest.mark.parametrize("where", ["step", "to_bytes", "from_bytes"])
def test_an_update_that_is_interrupted_leaves_no_trace(monkeypatch, where):
    opt, other = pair(), pair()
    state = opt.init(PARAMS)
    _, state = opt.update(GRADS, state, PARAMS)
    wanted, after = other.update(GRADS[::-1], state, PARAMS)
    _ = opt.update(GRADS, after, PARAMS)  # so that `state` is not what it remembers
    _ = opt.update(GRADS, state, PARAMS) if where != "from_bytes" else None
    original = getattr(suture.Optimizer, where)

    def interrupted(self, *args, **kwargs):
        original(self, *args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(suture.Optimizer, where, interrupted)
    for given in (state, after):
        if where != "from_bytes" or given is state:
            with pytest.raises(KeyboardInterrupt):
                opt.update(GRADS[::-1], given, PARAMS)
    monkeypatch.undo()
    found, later = opt.update(GRADS[::-1], state, PARAMS)
    assert same_trees(found, wanted) and same_trees(later, after)


def test_an_update_within_an_update(monkeypatch):
    # As a signal's handler makes it.
    opt = pair()
    state = opt.init(PARAMS)
    wanted = opt.update(GRADS, state, PARAMS)
    inner = opt.update(GRADS[::-1], wanted[1], PARAMS)
    original, found = suture.Optimizer.step, []

    def step(self, *args, **kwargs):
        if not found:
            found.append(None)
            found.append(opt.update(GRADS[::-1], wanted[1], PARAMS))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(suture.Optimizer, "step", step)
    assert same_trees(opt.update(GRADS, state, PARAMS), wanted)
    assert same_trees(found[1], inner)


def test_states_of_one_model_have_one_length():
    given = [
        {}, {"lr": 1 / 3}, {"lr": jnp.float32(0.1)}, {"betas": (0.9, 0.99999)}, {"clip_norm": 1 / 3, "weight_decay": 1 / 7},
        {"schedule": {"kind": "cosine", "total": 123456789, "warmup": 12345, "final_lr": 1e-300}},
        {"surgery": "fixed", "preference": [1 / 3, 2 / 3]}, {"surgery": "aligned_mtl", "align": "none"},
        {"surgery": "pcgrad", "seed": 2**63}, {"surgery": "mgda", "mgda_normalisation": "loss_plus"},
    ]  # fmt: skip
    assert len({pair(**settings).init(PARAMS).data.shape for settings in given}) == 1
    state = pair().init(PARAMS)
    for settings in given[:6]:
        wanted = pair(**settings).update(GRADS, state, PARAMS)
        assert same_trees(jax.jit(pair(**settings).update)(GRADS, state, PARAMS), wanted)
    sweep = jax.vmap(lambda lr: pair(lr=lr).update(GRADS, state, PARAMS)[0])(jnp.array([0.1, 1 / 3]))
    assert same_bits(sweep["b"][0], pair().update(GRADS, state, PARAMS)[0]["b"])
    assert same_bits(sweep["b"][1], pair(lr=1 / 3).update(GRADS, state, PARAMS)[0]["b"])


def test_gradients_of_all_losses_in_one_tree():
    stacked = jax.tree_util.tree_map(lambda *g: jnp.stack(g), *GRADS)
    opt = pair()
    state = opt.init(PARAMS)
    wanted = opt.update(GRADS, state, PARAMS)
    assert same_trees(opt.update(stacked, state, PARAMS), wanted)
    assert same_trees(jax.jit(opt.update)(stacked, state, PARAMS), wanted)

    def losses(p):
        return jnp.stack([(p["w"] ** 2).sum() + p["b"] @ jnp.array([1.0, -1.0]), -p["w"].sum() + p["b"] @ jnp.array([0.5, 2.0])])

    assert same_trees(opt.update(jax.jacrev(losses)(PARAMS), state, PARAMS), wanted)
    one = pair(n_losses=1, surgery="sum")
    single = one.update(GRADS[0], one.init(PARAMS), PARAMS)
    assert same_trees(one.update([GRADS[0]], one.init(PARAMS), PARAMS), single)
    assert same_trees(one.update(jax.tree_util.tree_map(lambda g: g[None], GRADS[0]), one.init(PARAMS), PARAMS), single)
    with pytest.raises(ValueError, match="axis of length 2 in front"):
        opt.update(GRADS[0], state, PARAMS)
    optax = pytest.importorskip("optax")
    # Wrappers that look at gradients and parameters side by side.
    masked = optax.masked(pair(), {"w": True, "b": False})
    updates, _ = masked.update(stacked, masked.init(PARAMS), PARAMS)
    alone = pair()
    half, _ = alone.update([{"w": g["w"]} for g in GRADS], alone.init({"w": PARAMS["w"]}), {"w": PARAMS["w"]})
    assert same_bits(updates["w"], half["w"])


def test_mistakes_are_found_when_a_function_is_traced():
    G = jnp.array([[1.0, 0.0], [-0.5, 1.0]])
    K = G @ G.T
    with pytest.raises(suture.InvalidArgumentError, match="no surgery method 'cagrd'"):
        jax.jit(lambda G: suture.combine(G, "cagrd")).lower(G)
    with pytest.raises(TypeError, match="cagrad has no option 'cagrad_d'"):
        jax.jit(lambda K: suture.weights(gram=K, method="cagrad", cagrad_d=3)).lower(K)
    for name, call in {
        "cagrad_c": lambda G, x: suture.combine(G, "cagrad", cagrad_c=x[0]),
        "preference": lambda G, x: suture.combine(G, "fixed", preference=x),
        "seed": lambda G, x: suture.weights(G, "pcgrad", seed=x[0]),
    }.items():
        with pytest.raises(TypeError, match=f"{name} is traced"):
            jax.jit(call)(G, jnp.ones(2))
    for call in (lambda: suture.combine(jnp.ones((2, 0)), "sum"), lambda: jax.jit(lambda G: suture.combine(G, "sum"))(jnp.ones((2, 0)))):
        with pytest.raises(suture.InvalidArgumentError, match="no element"):
            call()
    with pytest.raises(TypeError, match="lr is a function"):
        pair(lr=lambda count: 0.1)
    opt = pair()
    with pytest.raises(ValueError, match=r"lr has shape \(2,\)"):
        opt.update(GRADS, opt.init(PARAMS), PARAMS, lr=jnp.ones(2))
    optax = pytest.importorskip("optax")
    with pytest.raises(TypeError, match="give it a function that has them"):
        optax.inject_hyperparams(suture.jax.optimizer)(method="adam", lr=1e-3).init(PARAMS)
