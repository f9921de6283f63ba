"""What users of PyTorch's optimizers do beside stepping: compiling, hooks, modes, other processes, groups. Where PyTorch has an answer,
its own Adam is asked for it in the same test."""

import copy
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import suture
import suture.torch

from conftest import same_bits


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


X = torch.linspace(-1, 1, 12).reshape(4, 3)


def losses(net):
    y = net(X)
    return [y.mean(), (y**2).mean()]


def flat(net):
    return torch.cat([p.detach().ravel() for p in net.parameters()])


def parameter(value=1.0):
    p = torch.nn.Parameter(torch.full((3,), value))
    p.grad = torch.ones(3)
    return p


# -- compiled functions --


def by_step(net, opt):
    opt.zero_grad()
    losses(net)[1].backward()
    opt.step()


def by_closure(net, opt):
    def closure():
        opt.zero_grad()
        loss = losses(net)[1]
        loss.backward()
        return loss

    opt.step(closure)


def by_losses(net, opt):
    opt.step_losses(losses(net))


def by_gradients(net, opt):
    opt.step_grads([[torch.ones_like(p) for p in net.parameters()]])


def by_step_and_state(net, opt):
    by_step(net, opt)
    opt.load_state_dict(opt.state_dict())
    opt.parameters_changed()
    return opt.steps, opt.report


@pytest.mark.parametrize("body", [by_step, by_closure, by_losses, by_gradients, by_step_and_state])
def test_steps_in_compiled_functions(body):
    ends = []
    for compiled in (False, True):
        torch._dynamo.reset()
        net = network()
        opt = suture.torch.Optimizer(net.parameters(), "adam", lr=0.1)
        seen = []
        opt.register_step_pre_hook(lambda *_: seen.append(1))
        run = torch.compile(body, backend="eager") if compiled else body
        for _ in range(3):
            run(net, opt)
        assert opt.steps == 3 == len(seen)
        ends.append(flat(net))
    torch.testing.assert_close(*ends, rtol=1e-6, atol=1e-7)


# -- hooks --


@pytest.mark.parametrize("make", [torch.optim.Adam, suture.torch.Optimizer])
def test_hooks_before_a_step_may_replace_its_arguments(make):
    opt = make([parameter()])
    first, ran, after = [], [], []
    handle = opt.register_step_pre_hook(lambda o, args, kwargs: first.append((args, kwargs)))
    opt.register_step_pre_hook(lambda o, args, kwargs: ((o, lambda: ran.append(1)), {}))
    opt.register_step_post_hook(lambda o, args, kwargs: after.append(args))
    opt.step()
    assert first == [((opt,), {})] and ran == [1] and after[0][0] is opt and len(after[0]) == 2
    handle.remove()
    opt.register_step_pre_hook(lambda *_: 5)
    with pytest.raises(RuntimeError, match=r"must return None or a tuple of \(new_args, new_kwargs\)"):
        opt.step()
    assert ran == [1]


def test_hooks_get_the_arguments_of_the_call():
    net = network()
    opt = suture.torch.Optimizer(net.parameters(), "adam")
    seen = []
    opt.register_step_pre_hook(lambda o, args, kwargs: seen.append((len(args), kwargs)))
    two = losses(net)
    opt.step_losses(two)
    opt.step_grads([[torch.ones_like(p) for p in net.parameters()]] * 2, [1.0, 2.0], report=False)
    closure = lambda: None
    opt.step(closure)
    assert seen == [(2, {"retain_graph": False, "report": True}), (3, {"report": False}), (2, {})]
    opt = suture.torch.Optimizer(net.parameters(), "adam")
    other = losses(net)
    opt.register_step_pre_hook(lambda o, args, kwargs: ((o, other), {"report": False}))
    assert opt.step_losses([torch.zeros(())]) is None and opt.steps == 1  # that loss alone would be refused


# -- modes --


def test_losses_without_gradient_mode_as_backward():
    p = parameter()
    opt = suture.torch.Optimizer([p], "sgd", lr=0.1)
    two = [p.sum(), (p**2).sum().reshape(1)]
    with torch.no_grad():
        two[0].backward(retain_graph=True)
        opt.step_losses(two)
    np.testing.assert_allclose(p.detach(), 1 - 0.1 * 3)


@pytest.mark.parametrize("mode", ["context", "default"])
def test_other_default_devices_are_left_outside(mode):
    def steps(opt, p, count=1):
        for _ in range(count):
            opt.step_grads([[torch.ones(3, device="cpu")]] * 2)
            p.grad = torch.full((3,), 0.5, device="cpu")
            opt.step()

    p, q = parameter(), parameter()
    opt, other = (suture.torch.Optimizer([x], "adam", lr=0.1, surgery="mgda") for x in (p, q))
    steps(opt, p)
    context = torch.device("meta")
    if mode == "context":
        context.__enter__()
    else:
        torch.set_default_device("meta")
    try:
        saved = opt.state_dict()
        other.load_state_dict(saved)
        other.load_state_dict({**saved, "state": {0: {k: getattr(v, "numpy", lambda v=v: v)() for k, v in saved["state"][0].items()}}})
        steps(opt, p)
        opt = copy.deepcopy(opt)
        opt = pickle.loads(pickle.dumps(opt))
        p = opt.param_groups[0]["params"][0]
        steps(opt, p)
        opt.state[p] = {slot: value.clone() for slot, value in opt.state[p].items()}
        steps(opt, p)
        array = suture.Optimizer(p.detach(), "adam")
        array.direction([p.grad])
        G = torch.eye(3, device="cpu")
        for made in (suture.combine(G, "config"), suture.weights(G, "config"), suture.weights(gram=G, method="config"), suture.project(-G[0], G)[0]):
            assert made.device.type == "cpu"
    finally:
        if mode == "context":
            context.__exit__(None, None, None)
        else:
            torch.set_default_device(None)
    with torch.no_grad():
        q.copy_(torch.full((3,), 1.0))
    r = parameter()
    reference = suture.torch.Optimizer([r], "adam", lr=0.1, surgery="mgda")
    steps(reference, r, 4)
    assert same_bits(p.detach(), r.detach())


# -- other processes --


def _count_and_step(opt, results):
    p = opt.param_groups[0]["params"][0]
    p.grad = torch.ones_like(p)
    opt.step()
    results.put((opt.steps, opt.state[p]["m"].numpy().tolist()))


@pytest.mark.parametrize("method", ["adam", "nadam"])
def test_an_optimizer_goes_to_a_process_that_is_spawned(method):
    p = parameter()
    opt = suture.torch.Optimizer([p, parameter(), parameter()], method, lr=0.1)
    opt.step_grads([[torch.ones(3)] * 3] * 2)
    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    worker = context.Process(target=_count_and_step, args=(opt, results))
    worker.start()
    steps, m = results.get()
    worker.join(60)
    assert worker.exitcode == 0
    p.grad = torch.ones(3)
    opt.step()
    assert steps == opt.steps == 2 and m == opt.state[p]["m"].tolist()


# -- groups --

WHOLE = dict(maximize=True, clip_norm=1e-3, align="gua", rho_m=0.5, surgery="config", cagrad_c=0.1, preference=[1], order=[[0]],
             schedule=None, threads=1, seed=3, method="sgd", loss_names=["a"])


@pytest.mark.parametrize("name", [*WHOLE, *suture._suture.optimizer_options, *suture._suture.surgery_options])
def test_options_of_the_whole_optimizer_are_refused_in_groups(name):
    value = WHOLE.get(name, 1)
    match = f"group 0: '{name}' belongs to the whole optimizer"
    with pytest.raises(TypeError, match=match):
        suture.torch.Optimizer([{"params": [parameter()], name: value}], "adam")
    p = parameter()
    opt = suture.torch.Optimizer([p], "adam", lr=0.1)
    for step in (False, True):
        if step:
            opt.step()
        with pytest.raises(TypeError, match=match.replace("0", "1")):
            opt.add_param_group({"params": [parameter()], name: value})
        assert len(opt.param_groups) == 1
    saved = opt.state_dict()
    saved["param_groups"][0][name] = value
    with pytest.raises(TypeError, match=match):
        opt.load_state_dict(saved)
    opt.param_groups[0][name] = value  # and what is written into a group later
    before = p.detach().clone()
    with pytest.raises(TypeError, match=match):
        opt.step()
    assert torch.equal(before, p) and opt.steps == 1
    del opt.param_groups[0][name]
    opt.step()


@pytest.mark.parametrize("form", [{}, {"beta1": 0.5}, {"beta2": 0.9}, {"betas": (0.5, 0.9)}, {"betas": (0.1, 0.9), "beta1": 0.5}])
@pytest.mark.parametrize("late", [False, True])
def test_betas_are_the_one_truth_of_a_group(form, late):
    group = {"params": [parameter()], **form}
    if late:
        opt = suture.torch.Optimizer([parameter()], "adam", lr=0.1, betas=(0.8, 0.99))
        opt.add_param_group(group)
        at = 1
    else:
        opt = suture.torch.Optimizer([group], "adam", lr=0.1, betas=(0.8, 0.99))
        at = 0
    given = opt.param_groups[at]
    assert "beta1" not in given and "beta2" not in given
    assert given["betas"] == (0.5 if "beta1" in form or "betas" in form else 0.8, form.get("beta2", form.get("betas", (0, 0.99))[1]))
    given["betas"] = (0.0, 0.999)
    opt.step()
    assert opt.state[given["params"][0]]["m"].tolist() == [1.0] * 3
    given["beta1"] = 0.5
    with pytest.raises(suture.InvalidArgumentError, match="'beta1' beside 'betas'"):
        opt.step()
    del given["beta1"]
    saved = opt.state_dict()
    saved["param_groups"][at]["beta1"] = 0.25  # as older states have it
    opt.load_state_dict(saved)
    assert given["betas"] == (0.25, 0.999) and "beta1" not in given


def test_one_cycle_moves_the_betas_of_a_group():
    ends = []
    for form in ({}, {"beta1": 0.5}):
        p = parameter()
        opt = suture.torch.Optimizer([{"params": [p], **form}], "adam", lr=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=10)
        for _ in range(4):
            opt.step()
            schedule.step()
        ends.append(opt.state[p]["m"].clone())
    assert torch.equal(*ends)


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("group, error, match", [
    ({"params": [torch.zeros(3, dtype=torch.int64)]}, TypeError, "int64"),
    ({"params": [torch.zeros(3)], "lr": -1.0}, suture.OutOfRangeError, "lr is -1"),
    ({"params": [torch.zeros(6)[::2]]}, ValueError, "gaps"),
    ({"params": [torch.zeros(3)], "betas": 3}, TypeError, "betas is 3"),
    ({"params": [torch.zeros(3)], "betas": (0.1, 0.2, 0.3)}, ValueError, "pair"),
    ({"params": [torch.nn.LazyLinear(3).weight]}, ValueError, "'param.1' has no shape yet.*lazy module; call the model once"),
])
def test_a_group_is_looked_at_when_it_is_added(steps, group, error, match):
    p = parameter()
    opt = suture.torch.Optimizer([p], "adam")
    for _ in range(steps):
        opt.step()
    given = dict(group)
    with pytest.raises(error, match=match):
        opt.add_param_group(given)
    assert given == group and len(opt.param_groups) == 1
    opt.add_param_group({"params": [parameter()]})
    opt.step()
    assert opt.steps == steps + 1


def test_parameters_of_lazy_modules_are_refused():
    lazy = torch.nn.LazyLinear(3)
    with pytest.raises(ValueError, match="'param.0' has no shape yet"):
        suture.torch.Optimizer(lazy.parameters())
    with pytest.raises(ValueError, match="'param.0' has no shape yet"):
        suture.Optimizer(list(lazy.parameters()))
    lazy(torch.ones(2, 5))
    suture.torch.Optimizer(lazy.parameters())


def test_another_memory_format_is_called_by_its_name():
    p = torch.nn.Parameter(torch.ones(2, 3, 4, 5))
    opt = suture.torch.Optimizer([p], "adam")
    p.grad = torch.ones_like(p)
    opt.step()
    kept = p.data
    p.data = p.data.to(memory_format=torch.channels_last)
    with pytest.raises(ValueError, match="'param.0' lies otherwise in memory .*memory format"):
        opt.step()
    p.data = kept
    opt.step()


# -- settings with an entry per loss --


@pytest.mark.parametrize("settings", [
    dict(surgery="fixed", preference=[1.0, 2.0]), dict(surgery="config", preference=np.array([1.0, 2.0])),
    dict(surgery="upgrad", preference=iter([1.0, 2.0])), dict(surgery="pcgrad", order=[[1, 0], [1, 0]]),
    dict(surgery="fixed", preference=(1, 2), loss_names=["a", "b"]),
])
def test_the_number_of_losses_follows_from_settings_per_loss(settings):
    net = network()
    opt = suture.torch.Optimizer(net.parameters(), "adam", **settings)
    name = "order" if "order" in settings else "preference"
    for _ in range(2):
        opt.step_losses(losses(net))
        before = flat(net)
        for p in net.parameters():
            p.grad = torch.ones_like(p)
        with pytest.raises(suture.InvalidArgumentError, match=f"1 loss was given, but {name} has 2; step.. takes one loss, step_losses"):
            opt.step()
        two = losses(net)
        with pytest.raises(suture.InvalidArgumentError, match="3 losses were given, but .* has 2"):
            opt.step_losses([*two, two[0]])
        with pytest.raises(suture.InvalidArgumentError, match="3 losses were given, but .* has 2"):
            opt.step_grads([[p.grad for p in net.parameters()]] * 3)
        opt.step_losses(two)  # the refusal came before the backward passes
        assert not same_bits(before, flat(net))
        net, opt = copy.deepcopy((net, opt))
    opt.load_state_dict(opt.state_dict())
    assert opt.steps == 4
    opt.state.clear()
    opt.step_losses(losses(net))


def test_settings_per_loss_of_different_lengths_are_refused():
    with pytest.raises(suture.InvalidArgumentError, match="preference has 2 entries, one per loss is needed: 3"):
        suture.torch.Optimizer([parameter()], surgery="fixed", preference=[1, 2], loss_names=["a", "b", "c"])
    with pytest.raises(TypeError, match="preference is 3; a list of numbers"):
        suture.torch.Optimizer([parameter()], surgery="fixed", preference=3)


# -- wrappers, trainers --


class Wrapped:
    """As Lightning and Fabric wrap optimizers: an object with the optimizer's class among its own, that reads the optimizer's
    attributes and has its methods."""

    def __init__(self, optimizer):
        self._optimizer = optimizer
        self.__class__ = type("Wrapped" + type(optimizer).__name__, (Wrapped, type(optimizer)), {})

    def __getattr__(self, name):
        return getattr(self._optimizer, name)

    def step(self, closure=None):
        return self._optimizer.step() if closure is None else self._optimizer.step(closure)


def test_a_wrapper_and_its_optimizer_are_one():
    net, other = network(), network()
    opt = suture.torch.Optimizer(net.parameters(), "adam", lr=0.1, surgery="config", align="gua")
    alone = suture.torch.Optimizer(other.parameters(), "adam", lr=0.1, surgery="config", align="gua")
    wrapped = Wrapped(opt)
    schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
    for k in range(6):
        for mine, model in ((wrapped if k % 3 else opt, net), (alone, other)):
            mine.keep_reports = True
            if k % 2:
                mine.zero_grad()
                losses(model)[1].backward()
                mine.step()
            else:
                mine.step_losses(losses(model))
        assert opt.steps == wrapped.steps == k + 1 and opt.report is wrapped.report is not None
        assert wrapped.state[net[0].weight] is opt.state[net[0].weight]
        assert opt._opt_called
    assert same_bits(flat(net), flat(other))
    schedule.step()
    kept = wrapped.state_dict()
    assert same_bits(kept["state"][0]["m"], alone.state_dict()["state"][0]["m"])
    wrapped.state.clear()
    assert opt.steps == 6 and not opt.state_dict()["state"] and opt.steps == 0
    wrapped.load_state_dict(kept)
    assert same_bits(opt.state_dict()["state"][0]["m"], kept["state"][0]["m"]) and opt.steps == 6


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_closure_may_return_several_losses(kind):
    net, other = network(), network()
    opt = suture.torch.Optimizer(net.parameters(), "adam", lr=0.1, surgery="config", align="gua")
    alone = suture.torch.Optimizer(other.parameters(), "adam", lr=0.1, surgery="config", align="gua")
    for _ in range(3):
        returned = opt.step(lambda: kind(losses(net)))
        assert type(returned) is kind and len(returned) == 2 and opt.report.n_losses == 2
        alone.step_losses(losses(other))
    assert same_bits(flat(net), flat(other))
    before = flat(net)
    with pytest.raises(suture.OutOfRangeError, match="0 losses were given"):
        opt.step(lambda: kind(()))
    with pytest.raises(ValueError, match="loss 1 does not depend on anything that requires grad"):
        opt.step(lambda: kind((losses(net)[0], torch.ones(()))))
    assert same_bits(flat(net), before) and opt.steps == 3
    # What is no list of losses is returned as it is.
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    assert opt.step(lambda: kind((losses(net)[0], "text")))[1] == "text" and opt.steps == 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("model_first", [True, False])
def test_model_and_optimizer_are_loaded_in_any_order(dtype, model_first):
    def make():
        net = network().to(dtype)
        return net, suture.torch.Optimizer(net.parameters(), "adam", lr=1e-3, eps=1e-4, align="gua", surgery="config")

    def go_on(net, opt, n):
        for _ in range(n):
            y = net(X.to(dtype)).float()
            opt.step_losses([y.mean(), (y**2).mean()])

    net, opt = make()
    go_on(net, opt, 20)
    kept = copy.deepcopy((net.state_dict(), opt.state_dict()))
    go_on(net, opt, 20)
    other, second = make()
    with torch.no_grad():
        other[0].bias.zero_()  # not as it was begun with
    for what, state in sorted(zip((other, second), kept), key=lambda pair: (pair[0] is other) != model_first):
        what.load_state_dict(state)
    assert same_bits(second.state[other[0].bias]["master"], kept[1]["state"][1]["master"])
    go_on(other, second, 20)
    assert same_bits(flat(net).float(), flat(other).float())


# -- gradients with PyTorch's negative bit --


def lazily_negative(values, dtype=torch.float64):
    """The values, in a tensor whose memory holds the opposite."""
    x = torch._neg_view(-torch.tensor(values, dtype=dtype))
    assert x.is_neg()
    return x


def test_gradients_of_complex_arithmetic():
    # conj() gives gradients with the negative bit: of one element they look like any other.
    for shape in ((), (1,), (1, 1), (3,), (2, 2)):
        a = [torch.nn.Parameter(torch.full(shape, x)) for x in (0.5, 0.2)]
        b = [torch.nn.Parameter(torch.full(shape, x)) for x in (0.5, 0.2)]
        opt, other = suture.torch.Optimizer(a, "sgd", lr=0.1), torch.optim.SGD(b, lr=0.1)

        def parts(re, im):
            z = torch.complex(re, im).conj() * torch.complex(torch.tensor(0.3), torch.tensor(0.7))
            return [((z.imag - 1) ** 2).sum(), ((z.real - 2) ** 2).sum()]

        for k in range(9):
            other.zero_grad()
            sum(parts(*b)).backward()
            other.step()
            if k % 3 == 0:
                opt.step_losses(parts(*a))
            elif k % 3 == 1:
                opt.step_grads([torch.autograd.grad(loss, a, retain_graph=True) for loss in parts(*a)])
            else:
                opt.zero_grad()
                sum(parts(*a)).backward()
                opt.step()
        for mine, theirs in zip(a, b):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_the_negative_bit_is_seen_in_every_call(monkeypatch):
    n, x = lazily_negative([1.0, 2.0, -3.0]), torch.tensor([1.0, 2.0, -3.0], dtype=torch.float64)
    one = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    stacked = torch._neg_view(-torch.stack([x, one]))
    for again in range(2):
        if again:  # the bit was found in the tensor's memory: nothing is asked
            monkeypatch.setattr(torch.Tensor, "is_neg", lambda self: pytest.fail("asked"))
        assert same_bits(suture.combine([n, one], "config"), suture.combine([x, one], "config"))
        assert same_bits(suture.combine(stacked, "config"), suture.combine([x, one], "config"))
        assert same_bits(suture.project(n, [one, n])[0], suture.project(x, [one, x])[0])
        assert suture.conflict([n, one], n).to_dict() == suture.conflict([x, one], x).to_dict()
        for rows, wanted in (([[n]], x), ([[n], [one]], x + one)):
            p = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
            suture.torch.Optimizer([p], "sgd", lr=1.0).step_grads(rows)
            assert same_bits(p.detach(), -wanted)
            q = torch.zeros(3, dtype=torch.float64)
            suture.Optimizer([q], "sgd", lr=1.0, n_losses=len(rows)).step(rows)
            assert same_bits(q, -wanted)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="parameter 'param.0' has PyTorch's negative bit set"):
        suture.Optimizer([n], "sgd", lr=1.0)
    assert same_bits(n.resolve_neg(), x)


# -- what PyTorch's own optimizers forgive --


def test_a_step_without_any_gradient_is_none():
    # Trainers call step() after the step_losses() of the user.
    net = network()
    opt = suture.torch.Optimizer(net.parameters(), "adam", lr=0.1, surgery="config", schedule={"kind": "linear", "total": 10, "final_lr": 0.0})
    for k in range(4):
        report = opt.step_losses(losses(net))
        opt.zero_grad()
        before, moments = flat(net), opt.state[net[0].weight]["m"]
        assert opt.step(lambda: "nothing") == "nothing"
        assert opt.state[net[0].weight]["m"] is moments  # the state was not carried over to one loss
        assert opt.steps == k + 1 == report.step and opt.report is report
        assert report.lr == pytest.approx(0.1 * (1 - k / 10)) and same_bits(flat(net), before)


@pytest.mark.parametrize("setting", [{"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
def test_momentum_may_begin_later(setting):
    net, other = network().double(), network().double()
    opt, reference = suture.torch.Optimizer(net.parameters(), "sgd", lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)
    for k in range(8):
        if k == 4:
            opt.param_groups[0].update(setting)
            reference.param_groups[0].update(setting)
        for mine, model in ((opt, net), (reference, other)):
            mine.zero_grad()
            (model(X.double()) ** 2).mean().backward()
            mine.step()
    torch.testing.assert_close(flat(net), flat(other), rtol=1e-13, atol=1e-15)
    assert opt.steps == 8
    # What more state does not mend is refused as ever.
    opt.param_groups[0]["lr"] = -1.0
    with pytest.raises(suture.OutOfRangeError):
        opt.step()


def test_losses_as_a_tensor_and_by_name():
    wanted, found = network(), [network() for _ in range(3)]
    names = ["mean", "square"]
    suture.torch.Optimizer(wanted.parameters(), "adam", lr=0.1, surgery="config").step_losses(losses(wanted))
    opt = suture.torch.Optimizer(found[0].parameters(), "adam", lr=0.1, surgery="config")
    opt.step_losses(torch.stack(losses(found[0])))
    a, b = losses(found[1])
    named = suture.torch.Optimizer(found[1].parameters(), "adam", lr=0.1, surgery="config", loss_names=names)
    named.step_losses({"square": b, "mean": a})
    suture.torch.Optimizer(found[2].parameters(), "adam", lr=0.1, surgery="config").step_losses(dict(zip("ab", losses(found[2]))))
    assert all(same_bits(flat(net), flat(wanted)) for net in found)
    for wrong, match in (({"square": b}, "losses has no 'mean'"), ({"square": b, "mean": a, "c": a}, "loss_names has no 'c'")):
        with pytest.raises(KeyError, match=match):
            named.step_losses(wrong)
    for wrong in (torch.ones(()), torch.ones(2, 2), "ab", 3):
        with pytest.raises(TypeError, match="a list with one tensor per loss is needed"):
            opt.step_losses(wrong)


def test_losses_that_reach_nothing_are_refused():
    from torch.utils.checkpoint import checkpoint

    net, other = network(), network()
    opt = suture.torch.Optimizer(net.parameters(), "adam", lr=0.1, surgery="config")
    before = flat(net)
    with pytest.raises(ValueError, match="no loss depends on any parameter of this optimizer"):
        opt.step_losses(losses(other))
    x = X.clone().requires_grad_()

    def outputs(reentrant):
        y = net[2](checkpoint(net[:2], x, use_reentrant=reentrant))
        return [y.mean(), (y**2).mean()]

    with pytest.raises(ValueError, match="use_reentrant=False"):
        opt.step_losses(outputs(True))
    assert same_bits(flat(net), before) and opt.steps == 0
    opt.step_losses(outputs(False))
    assert (net[0].weight != before[:12].reshape(4, 3)).any()
    # A part that no loss uses, for other reasons, is left alone.
    hidden = torch.nn.Linear(3, 1)
    opt = suture.torch.Optimizer([*net.parameters(), *hidden.parameters()], "adam", lr=0.1, surgery="config")
    assert opt.step_losses(losses(net)).moved


def test_a_surgery_that_has_nothing_to_do_is_told_once(recwarn):
    net = network()
    opt = suture.torch.Optimizer(net.parameters(), "adam", surgery="config", align="gua")
    opt.step()  # without a gradient
    assert not recwarn.list
    for _ in range(2):
        losses(net)[0].backward()
        opt.step()
    assert len(recwarn.list) == 1 and "surgery 'config' has nothing to do" in str(recwarn[0].message)
    assert recwarn[0].filename == __file__
    for quiet in ("sum", "config"):
        opt = suture.torch.Optimizer(net.parameters(), "adam", surgery=quiet, align="gua")
        if quiet == "config":
            opt.step_losses(losses(net))
        losses(net)[0].backward()
        opt.step()
    assert len(recwarn.list) == 1


def test_figures_of_ones_own_may_require_grad(tmp_path, recwarn):
    net = network()
    opt = suture.torch.Optimizer(net.parameters(), "adam", surgery="config")
    found = losses(net)
    with suture.CSVWriter(tmp_path / "log.csv") as log:
        log(opt.step_losses(found), loss=sum(found))
    assert not recwarn.list and "loss" in (tmp_path / "log.csv").read_text().splitlines()[0]


# -- states of torch.optim --

THEIRS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "betas": (0.8, 0.95)}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "nadam": (torch.optim.NAdam, {"lr": 0.01, "momentum_decay": 0.01}),
    "radam": (torch.optim.RAdam, {"lr": 0.01}),
}


@pytest.mark.parametrize("method", THEIRS)
def test_a_run_of_torch_optim_goes_on(method):
    kind, settings = THEIRS[method]
    net = network().double()
    theirs = kind(net.parameters(), **settings)

    def go_on(opt, net):
        for _ in range(10):
            opt.zero_grad()
            (net(X.double()) ** 2).mean().backward()
            opt.step()

    go_on(theirs, net)
    other = copy.deepcopy(net)
    switches = {k: v for k, v in settings.items() if k in ("momentum", "amsgrad", "centered")}
    mine = suture.torch.Optimizer(other.parameters(), method, **switches)
    mine.load_state_dict(theirs.state_dict())
    go_on(theirs, net)
    go_on(mine, other)
    torch.testing.assert_close(flat(other), flat(net), rtol=1e-8 if method == "nadam" else 1e-12, atol=1e-12)


def test_states_of_torch_optim_that_do_not_fit_are_refused():
    net = network()
    wrong = {
        "maximize=True": torch.optim.Adam(net.parameters(), maximize=True),
        "the weight decay of group 0 of the state_dict is decoupled": torch.optim.AdamW(net.parameters(), weight_decay=0.1),
        "no 'm'": torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
        "'vmax', for which there is no place": torch.optim.Adam(net.parameters(), amsgrad=True),
    }
    losses(net)[0].backward()
    for match, theirs in wrong.items():
        theirs.step()
        state = theirs.state_dict()
        if "decoupled" in match and "decoupled_weight_decay" not in state["param_groups"][0]:
            continue  # older versions of PyTorch do not tell
        if "vmax" in match:
            state["param_groups"][0]["amsgrad"] = False
        opt = suture.torch.Optimizer(net.parameters(), "adam")
        kept = opt.state_dict()
        with pytest.raises(suture.MismatchError, match=match):
            opt.load_state_dict(state)
        assert opt.state_dict() == kept
    opt = suture.torch.Optimizer(net.parameters(), "adam")
    opt.load_state_dict(torch.optim.Adam(net.parameters(), lr=0.25).state_dict())  # before its first step
    assert opt.param_groups[0]["lr"] == 0.25 and opt.steps == 0


def test_a_state_without_what_is_our_own(recwarn):
    # As torch.distributed.checkpoint leaves it.
    net = network()
    opt = suture.torch.Optimizer(net.parameters(), "adam", lr=0.1, surgery="config", align="gua")
    for _ in range(3):
        opt.step_losses(losses(net))
    kept = {key: value for key, value in copy.deepcopy(opt.state_dict()).items() if key != "suture"}
    other = copy.deepcopy(net)
    second = suture.torch.Optimizer(other.parameters(), "adam", surgery="config", align="gua")
    second.load_state_dict(kept)
    assert second.steps == 3
    opt.step_losses(losses(net))
    second.step_losses(losses(other))
    assert same_bits(flat(net), flat(other))
    # Between parameters of 32 and of 16 bits.
    low = suture.torch.Optimizer(network().bfloat16().parameters(), "adam")
    low.load_state_dict(opt.state_dict())
    suture.torch.Optimizer(network().parameters(), "adam").load_state_dict(low.state_dict())
