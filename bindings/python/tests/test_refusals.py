"""
Arguments of the wrong kind or value: each is an exception of the usual class whose text says which argument, what was found and
what is possible. None of them reaches the library, and none is answered with a signature.
"""

import numpy as np
import pytest
import suture

try:
    import torch

    import suture.torch
except ImportError:
    torch = None
try:
    import jax.numpy as jnp

    import suture.jax
except ImportError:
    jnp = None

G = np.array([[1.0, 0, 2], [0, 1, 1]])
nan = float("nan")


def x():
    return np.ones(3)


def make(params=None, method="adam", **settings):
    return suture.Optimizer([x(), x()] if params is None else params, method, **settings)


def step(grads, losses=None, m=1):
    return make(n_losses=m).step(grads, losses)


def twice():
    a = x()
    return a, a


T, V, I, K, R, A = TypeError, ValueError, IndexError, KeyError, suture.OutOfRangeError, suture.InvalidArgumentError

CASES = [
    # parameters
    (lambda: make(np.float64(3)), T, "params is of type float64; an array, or a list or dict of arrays, is needed"),
    (lambda: make(3), T, "params is of type int"),
    (lambda: suture.Optimizer(None, "adam"), T, "params is of type NoneType"),
    (lambda: make("abc"), T, "params is of type str"),
    (lambda: make([None]), T, "parameter 'param.0' is of type NoneType"),
    (lambda: make([np.float64(3)]), T, "parameter 'param.0' is of type float64"),
    (lambda: make([("a", None)]), T, "parameter 'a' is of type NoneType"),
    (lambda: make({}), A, "no parameters"),
    (lambda: make([{"params": None}]), T, "params is of type NoneType"),
    (lambda: make([{"params": [x()]}, {"params": 3}]), T, "'params' of group 1 is of type int"),
    (lambda: make([{"params": [x()]}, {"lr": 2}]), V, "group 1 has no 'params'"),
    (lambda: make(list(twice())), A, "'param.0' and 'param.1' are the same array; each is listed once"),
    (lambda: make([{"params": [a]} for a in twice()]), A, "'param.0' and 'param.1' are the same array"),
    (lambda: make([("a", x()), ("a", x())]), A, 'two tensors are named "a"'),
    (lambda: make({"\ud800": x()}), V, r"name of parameter 0 is '\\ud800', which has characters that UTF-8 cannot hold"),
    (lambda: make({"a\0b": x()}), V, r"'a\\x00b'; a zero character"),
    (lambda: make({"a" * 2000: x()}), A, "its name has 2000 bytes"),
    (lambda: make({"": x()}), A, "its name has 0 bytes"),
    # settings
    (lambda: make(method=None), T, "method is of type NoneType"),
    (lambda: make(method=[]), T, "method is of type list"),
    (lambda: make(method="\ud800"), A, "there is no optimizer"),
    (lambda: make(n_losses=2.0), T, "n_losses is 2.0, not an integer"),
    (lambda: make(n_losses=None), T, "n_losses is None, not an integer"),
    (lambda: make(n_losses=2**70), R, "n_losses is 1180591620717411303424; allowed is 1 to 64"),
    (lambda: make(loss_names="a"), T, "loss_names is 'a'; a list of strs is needed"),
    (lambda: make(loss_names=3), T, "loss_names is 3; a list of strs is needed"),
    (lambda: make(loss_names=[3]), T, r"loss_names\[0\] is 3, of type int; a str is needed"),
    (lambda: make(loss_names=["\udfff"]), V, "UTF-8 cannot hold"),
    (lambda: make(n_losses=2, loss_names=["a"]), A, "loss_names has 1 names, there are 2 losses"),
    (lambda: make(surgery=None), T, "surgery method is None, of type NoneType; a str is needed"),
    (lambda: make(align=None), T, "align is None; possible are 'none', 'gua'"),
    (lambda: make(align=True), T, "align is True; possible are"),
    (lambda: make(align="gau"), V, "align is 'gau'; possible are"),
    (lambda: make(seed=-1), R, r"seed is -1; allowed is 0 to 2\*\*64 - 1"),
    (lambda: make(seed=2**64), R, "seed is 18446744073709551616; allowed"),
    (lambda: make(seed=1.5), T, "seed is 1.5, not an integer"),
    (lambda: make(seed=None), T, "seed is None, not an integer"),
    (lambda: make(threads=-1), R, "threads is -1; allowed is 0 to 1024"),
    (lambda: make(threads="2"), T, "threads is '2', not an integer"),
    (lambda: make(isa=3), T, "isa is 3, of type int; a str is needed"),
    (lambda: make(lr=None), T, "lr is None, not a number"),
    (lambda: make(lr="0.1"), T, "lr is '0.1', not a number"),
    (lambda: make(lr=nan), R, r"lr is nan; allowed is \[0"),
    (lambda: make(lr=10**400), OverflowError, "lr is 1000.*, beyond the range of a float"),
    (lambda: make(betas=3), T, "betas is 3; a pair of numbers is needed"),
    (lambda: make(betas="ab"), T, "betas is 'ab'; a pair"),
    (lambda: make(betas=(0.1, 0.2, 0.3)), V, r"betas is \(0.1, 0.2, 0.3\); a pair"),
    (lambda: make(maximize="no"), T, "maximize is 'no'; True or False is needed"),
    (lambda: make(maximize=2), R, "maximize is 2; allowed is 0 to 1"),
    (lambda: make(amsgrad="no"), T, "amsgrad is 'no'; True or False is needed"),
    (lambda: make(clip_norm="1"), T, "clip_norm is '1', not a number"),
    (lambda: make(schedule="cosine"), T, "schedule is 'cosine'; a dict is needed"),
    (lambda: make(schedule={"kind": "cosin"}), A, "kind of the schedule is 'cosin'; possible are 'constant'"),
    (lambda: make(schedule={"kind": 3}), T, "kind of the schedule is 3"),
    (lambda: make(schedule={"kind": "cosine", "total": 1.5}), T, "total of the schedule is 1.5, not an integer"),
    (lambda: make(surgery="config", cagrad_c=1.0), T, "config has no option 'cagrad_c', which belongs to cagrad"),
    (lambda: make(surgery="imtlg", preference=[1]), T, "imtlg has no option 'preference', which belongs to fixed, config"),
    (lambda: make(n_losses=2, surgery="fixed"), A, "2 weights in preference, which is None"),
    (lambda: make(n_losses=2, surgery="config", preference=3), T, "preference is 3; a list of numbers is needed"),
    (lambda: make(n_losses=2, surgery="config", preference=["a", 1]), T, r"preference\[0\] is 'a', not a number"),
    (lambda: make(n_losses=2, surgery="config", preference=[1]), A, "preference has 1 entry, one per loss is needed: 2"),
    (lambda: make(n_losses=2, surgery="pcgrad", order=3), T, "order is 3; a list with one row per loss"),
    (lambda: make(n_losses=2, surgery="pcgrad", order=[[0, 1.5], [0, 1]]), R, "each row is a permutation"),
    # steps
    (lambda: step(None), T, "gradients are of type NoneType"),
    (lambda: step(3), T, "gradients are of type int"),
    (lambda: step("ab"), T, "gradients are of type str"),
    (lambda: step([3, 3]), T, "gradients of loss 0 are of type int; a list with one array per tensor"),
    (lambda: step(x()), T, "one array, but there are 2 tensors"),
    (lambda: step({"zz": x()}), K, "there is no parameter 'zz'"),
    (lambda: step([[x(), x()]] * 2, 3.0, m=2), T, "losses is 3.0; a list of numbers is needed, one per loss"),
    (lambda: step([[x(), x()]] * 2, "ab", m=2), T, "losses is 'ab'"),
    (lambda: step([[x(), x()]] * 2, [None, 1], m=2), T, r"losses\[0\] is None, not a number"),
    (lambda: make().group(5), I, "there is no group 5; there is 1"),
    (lambda: make().group(-1), I, "there is no group -1"),
    (lambda: make().group("a"), T, "group is 'a', not an integer"),
    (lambda: make().set(group=5, lr=1), I, "there is no group 5"),
    (lambda: make().set(lr=None), T, "lr is None, not a number"),
    (lambda: setattr(make(), "lr", "a"), T, "lr is 'a', not a number"),
    (lambda: setattr(make(), "lr", nan), R, "lr is nan"),
    (lambda: make().state(9), I, "there is no tensor 9; there are 2"),
    (lambda: make().state(-1), I, "there is no tensor -1"),
    (lambda: make().state("zz"), K, "there is no parameter 'zz'"),
    (lambda: make().state(1.5), T, "tensor is 1.5, not an integer"),
    (lambda: make().set_align(3), T, "align is 3; possible are"),
    (lambda: make().set_align("gua", rho_m="a"), T, "rho_m is 'a', not a number"),
    (lambda: make().set_align("gua", rho_m=2), R, "rho_m is 2"),
    (lambda: make().save(3), T, "expected str, bytes or os.PathLike"),
    (lambda: make().load("a\0b"), V, "embedded null byte"),
    (lambda: make().from_bytes("abc"), T, "data is of type str; the bytes that to_bytes"),
    (lambda: make().from_bytes(bytearray(b"abc")), suture.CorruptStateError, "3 bytes"),
    # functions
    (lambda: suture.combine(None, "sum"), T, "G is None; an array"),
    (lambda: suture.combine([x(), None], "sum"), T, r"G\[1\] is None; an array"),
    (lambda: suture.combine(G, None), T, "surgery method is None"),
    (lambda: suture.combine(x(), "sum"), V, r"G has shape \(3,\); one row per loss is needed"),
    (lambda: suture.combine([1.0, 2.0], "sum"), V, r"G has shape \(2,\); one row per loss"),
    (lambda: suture.combine(3.0, "sum"), V, r"G has shape \(\)"),
    (lambda: suture.combine("abc", "sum"), T, "G is of type str"),
    (lambda: suture.combine(len, "sum"), T, "G is of type builtin_function"),
    (lambda: suture.combine([[1.0, 2.0], [3.0]], "sum"), V, "G is no array of numbers"),
    (lambda: suture.combine(np.ones((2, 3), int), "sum"), T, "type int64; float32 and float64 are possible"),
    (lambda: suture.combine(np.ones((2, 0)), "sum"), A, "n is 0"),
    (lambda: suture.combine(G, "pcgrad", counter=-1), R, "counter is -1"),
    (lambda: suture.combine(G, "pcgrad", counter=1.5), T, "counter is 1.5, not an integer"),
    (lambda: suture.combine(G, "mgda", [1.0], mgda_normalisation="loss"), A, "losses has 1 entry, one per loss is needed: 2"),
    (lambda: suture.combine(G, "mgda", mgda_normalisation="loss"), A, "but losses is None; give the 2 loss values"),
    (lambda: suture.combine(G, "config", cagrad_c=1.0), T, "config has no option 'cagrad_c', which belongs to cagrad"),
    (lambda: suture.weights(G, "sum", norm_eps=1.0), T, "sum has no option 'norm_eps', which belongs to upgrad, dualproj"),
    (lambda: suture.combine(G, "mgda", mgda_frank_wolfe="yes"), T, "mgda_frank_wolfe is 'yes'; True or False"),
    (lambda: suture.project(None, G), T, "u is None"),
    (lambda: suture.project(3, G), V, r"u has shape \(\), G\[0\] has \(3,\)"),
    (lambda: suture.project(x(), x()), V, r"G has shape \(3,\)"),
    (lambda: suture.project(x(), G, "a"), T, "metric is of type str"),
    (lambda: suture.project(x(), G, feas_tol="a"), T, "feas_tol is 'a', not a number"),
    (lambda: suture.project(x(), G, strict="no"), T, "strict is 'no'; True or False is needed"),
    (lambda: suture.conflict(G, "a"), T, "v is of type str"),
    (lambda: suture.conflict(G, np.ones(4)), V, r"v has shape \(4,\), G\[0\] has \(3,\)"),
    (lambda: suture.conflict(x()), V, r"G has shape \(3,\)"),
    # Gram matrices
    (lambda: suture.weights(G), T, "weights.. needs a method"),
    (lambda: suture.weights(method="sum"), T, "either G or gram$"),
    (lambda: suture.weights(G, "sum", gram=G @ G.T), T, "either G or gram, not both"),
    (lambda: suture.weights(gram=np.eye(2, dtype=complex), method="config"), T, "gram has elements of type complex128"),
    (lambda: suture.weights(gram=np.eye(2, dtype=bool), method="config"), T, "gram has elements of type bool"),
    (lambda: suture.weights(gram=[[1.0, 2], [0, 1]], method="config"), V, r"not symmetric: gram\[0\]\[1\] is 2, gram\[1\]\[0\] is 0"),
    (lambda: suture.weights(gram=[[1.0, 2], [2, 1]], method="config"), V, "negative eigenvalue .-1 when scaled"),
    (lambda: suture.weights(gram=[[1.0, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]], method="config"), V, "negative eigenvalue"),
    (lambda: suture.weights(gram=[[0.0, 1], [1, 1]], method="config"), V, "one of the two rows has norm 0"),
    (lambda: suture.weights(gram=[[-1.0, 0], [0, 1]], method="config"), R, r"gram\[0\]\[0\] is -1"),
    (lambda: suture.weights(gram=[[nan, 0], [0, 1]], method="config"), suture.NotFiniteError, r"gram\[0\]\[0\] is nan"),
    (lambda: suture.weights(gram=G, method="config"), V, r"gram has shape \(2, 3\)"),
    (lambda: suture.weights(gram="a", method="config"), T, "gram is of type str"),
    (lambda: suture.weights(gram=np.eye(65), method="config"), V, r"gram has shape \(65, 65\)"),
]

if torch is not None:

    def tensor():
        return torch.nn.Parameter(torch.ones(3))

    def of_torch(params=None, method="adam", **settings):
        return suture.torch.Optimizer([tensor()] if params is None else params, method, **settings)

    def tied():
        a = tensor()
        return [a, torch.nn.Parameter(a.data)]

    def losses_of(f):
        w = tensor()
        return of_torch([w]).step_losses(f(w))

    CASES += [
        (lambda: make(torch.nn.Linear(2, 2)), T, r"params is of type Linear; pass its parameters\(\)"),
        (lambda: of_torch(torch.nn.Linear(2, 2)), T, r"params is of type Linear; pass its parameters\(\)"),
        (lambda: suture.torch.Optimizer(None, "adam"), T, "params is of type NoneType"),
        (lambda: of_torch([None]), T, "can only optimize Tensors, but one of the params is NoneType"),
        (lambda: of_torch([np.ones(3)]), T, "one of the params is numpy.ndarray"),
        (lambda: of_torch([tensor()] * 2), V, "parameters 0 and 1 of the group are the same tensor"),
        (lambda: of_torch([{"params": [w]} for w in [tensor()] * 2]), V, "more than one parameter group"),
        (lambda: of_torch(tied()), A, "share memory: each parameter is listed once"),
        (lambda: of_torch([("\ud800", tensor())]), V, "UTF-8 cannot hold"),
        (lambda: of_torch(betas=3), T, "betas is 3; a pair of numbers is needed"),
        (lambda: of_torch(betas=(0.9,)), V, r"betas is \(0.9,\); a pair"),
        (lambda: of_torch(loss_names="ab"), T, "loss_names is 'ab'"),
        (lambda: of_torch().step(3), T, "closure is of type int; a function is needed"),
        (lambda: losses_of(lambda w: w.sum()), T, "losses is of type Tensor; a list with one tensor per loss is needed"),
        (lambda: losses_of(lambda w: torch.stack([w.sum(), w.sum()])[None]), T, "losses is of type Tensor; a list"),
        (lambda: losses_of(lambda w: None), T, "losses is of type NoneType"),
        (lambda: losses_of(lambda w: []), R, "0 losses were given; possible are 1 to 64"),
        (lambda: losses_of(lambda w: [w.sum()] * 65), R, "65 losses were given"),
        (lambda: losses_of(lambda w: [w.sum(), 3.0]), T, "loss 1 is of type float; a tensor with one element is needed"),
        (lambda: losses_of(lambda w: [w]), V, r"loss 0 has shape \(3,\); a tensor with one element is needed"),
        (lambda: losses_of(lambda w: [w.sum() * 1j]), T, "loss 0 is complex"),
        (lambda: of_torch([torch.ones(3)]).step_losses([tensor().sum()]), V, "no parameter requires grad"),
        (lambda: of_torch().step_grads(torch.ones(3)), T, "gradients are of type Tensor"),
        (lambda: of_torch().step_grads(None), T, "gradients are of type NoneType"),
        (lambda: of_torch().step_grads([torch.ones(3)]), T, "gradients of loss 0 are not a list with one entry per tensor"),
        (lambda: of_torch().step_grads([]), R, "n_losses is 0"),
        (lambda: suture.combine(torch.ones(3), "sum"), V, r"G has shape \(3,\)"),
        (lambda: suture.combine(torch.ones(2, 3).bfloat16(), "sum"), T, "torch.bfloat16; float32 and float64 are possible|bfloat16"),
        (lambda: suture.weights(gram=torch.eye(2, dtype=torch.complex64), method="sum"), T, "torch.complex64"),
        (lambda: suture.weights(gram=torch.tensor([[1.0, 2], [2, 1]]), method="sum"), V, "negative eigenvalue"),
    ]

if jnp is not None:
    low = lambda *shape: jnp.ones(shape, jnp.bfloat16)
    CASES += [
        (lambda: suture.combine(low(2, 3), "sum"), T, "^G has elements of type bfloat16; float32 and float64 are possible$"),
        (lambda: suture.combine([low(3), low(3)], "sum"), T, r"^G\[0\] has elements of type bfloat16; float32 and float64"),
        (lambda: suture.project(low(3), jnp.ones((2, 3), jnp.float32)), T, "^u has elements of type bfloat16"),
        (lambda: suture.conflict(low(2, 3)), T, "^G has elements of type bfloat16"),
        (lambda: suture.weights(low(2, 3), "sum"), T, "^G has elements of type bfloat16"),
        (lambda: suture.combine(jnp.ones((2, 3), int), "sum"), T, "elements of type int"),
        (lambda: suture.combine(jnp.ones(3), "sum"), V, r"G has shape \(3,\)"),
        (lambda: suture.combine([jnp.ones(3), None], "sum"), T, r"G\[1\] is None"),
        (lambda: suture.combine(jnp.ones((2, 3)), "sum", threads=-1), R, "threads is -1"),
        (lambda: suture.combine(jnp.ones((2, 3)), "mgda", "ab"), T, "losses are no numbers"),
        (lambda: suture.combine(jnp.ones((2, 3)), "mgda", [1.0]), V, r"losses has shape \(1,\), one per loss is needed: 2"),
        (lambda: suture.jax.optimizer("adma"), A, "did you mean 'adam'"),
        (lambda: suture.jax.optimizer("adam", n_losses=0), R, "n_losses is 0"),
        (lambda: suture.jax.optimizer("adam", lrr=1), T, "no option 'lrr'; did you mean 'lr'"),
        (lambda: suture.jax.optimizer("adam").init({"w": 3.0}), T, r"parameter \['w'\] is of type float; an array of JAX"),
        (lambda: suture.jax.optimizer("adam").init({"w": low(3)}), T, r"parameter \['w'\] has elements of type bfloat16"),
    ]


@pytest.mark.parametrize("run, error, match", CASES)
def test_refusal(run, error, match):
    with pytest.raises(error, match=match) as caught:
        run()
    assert "incompatible function arguments" not in str(caught.value)


def test_what_looks_odd_but_is_right(rng):
    assert make(n_losses=np.int64(2), threads=np.uint8(1), seed=np.int32(3), maximize=np.True_).n_losses == 2
    assert make(lr=np.float32(0.5)).lr == 0.5 and make().group(np.int64(0))["lr"] == 1e-3
    assert make({1: x()}).names == ["1"] and make({"params": x()}).names == ["params"]
    assert make({"ä": x()}).state("ä")["step"] == 0
    G = rng.standard_normal((4, 100_000)).astype(np.float32)
    G[1:] = G[0] + 1e-5 * G[1:]  # nearly parallel: eigenvalues far below what float32 resolves
    for K in (G @ G.T, (G @ G.T).tolist(), np.zeros((2, 2)), np.eye(3, dtype=int), [[0.0, 0], [0, 1]]):
        assert np.isfinite(suture.weights(gram=K, method="upgrad")).all()
    order = [[0, 1], [0, 1]]
    assert np.array_equal(suture.combine(G[:2], "pcgrad", order=order), suture.combine(G[:2], "pcgrad", order=np.array(order)))
    data = make().to_bytes()
    make().from_bytes(memoryview(data))
    if torch is not None:
        w = [tensor(), tensor()]
        opt = of_torch(w)
        opt.step_grads(((torch.ones(3) for _ in w) for _ in range(2)))
        opt.step_grads([map(torch.ones_like, w), iter([None, torch.ones(3)])])
        assert opt.steps == 2


def test_paths_of_every_kind(tmp_path):
    import os

    opt = make()
    for path in (tmp_path / "ä ö", str(tmp_path / "b"), os.fsencode(tmp_path / "c"), os.fsdecode(os.fsencode(tmp_path) + b"/\xff")):
        opt.save(path)
        opt.load(path)
    assert len(list(tmp_path.iterdir())) == 4
