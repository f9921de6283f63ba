"""suture.torch.Optimizer as an optimizer of PyTorch: everything around the step."""

import copy
import ctypes
import gc
import io
import pickle
import weakref
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import suture
import suture.torch

from conftest import same_bits


def network(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(2, 12), torch.nn.Tanh(), torch.nn.Linear(12, 2)).to(dtype)


X = torch.linspace(-1, 1, 40).reshape(20, 2)


def losses(net):
    y = net(X.to(next(net.parameters()).dtype))
    return [((y[:, 0] - X[:, 0]) ** 2).mean(), ((y[:, 1] + X[:, 0]) ** 2).mean(), (y**2).mean()]


def flat(net):
    return torch.cat([p.detach().ravel() for p in net.parameters()])


def make(net, method="adam", **settings):
    settings = {"lr": 1e-2, "surgery": "config", "align": "gua", **settings}
    return suture.torch.Optimizer(net.parameters(), method, **settings)


def test_is_an_optimizer_of_torch():
    opt = make(network())
    assert isinstance(opt, torch.optim.Optimizer)
    assert opt.param_groups[0]["betas"] == (0.9, 0.999)
    assert "adam" in repr(opt) and "config" in repr(opt)


def test_three_lines_lower_every_loss():
    net = network()
    opt = make(net)
    first = [x.item() for x in losses(net)[:2]]
    for _ in range(200):
        report = opt.step_losses(losses(net)[:2])
        assert min(report.cos_p) > -1e-5
    assert all(x.item() < y / 10 for x, y in zip(losses(net), first))
    assert report.step == 200 == opt.steps
    assert all(p.grad is None for p in net.parameters())


def test_one_loss_given_both_ways_is_the_same():
    a, b = network(), network()
    opt_a, opt_b = make(a, surgery="sum", align="none"), make(b, surgery="sum", align="none")
    for _ in range(10):
        opt_a.zero_grad()
        losses(a)[0].backward()
        opt_a.step()
        opt_b.step_losses([losses(b)[0]])
    assert same_bits(flat(a), flat(b))


def test_shared_graph_and_unused_parameters():
    torch.manual_seed(1)
    trunk, head_a, head_b = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
    params = [*trunk.parameters(), *head_a.parameters(), *head_b.parameters()]
    opt = suture.torch.Optimizer(params, "adam", lr=0.1, surgery="upgrad", align="gua")
    h = trunk(torch.randn(5, 3)).tanh()
    before = head_b.weight.detach().clone()
    opt.step_losses([head_a(h).pow(2).mean(), h.mean()])
    assert same_bits(before, head_b.weight.detach())  # used by no loss: not touched, its own count stands still
    state = opt.state_dict()["state"]
    assert [state[k]["step"] for k in range(6)] == [1, 1, 1, 1, 0, 0]


def test_unused_is_like_zero_in_the_stack_but_absent_as_a_whole():
    w = [torch.tensor([1.0, 1.0], requires_grad=True), torch.tensor([1.0], requires_grad=True)]
    opt = suture.torch.Optimizer(w, "sgd", lr=1.0, surgery="config")
    opt.step_grads([[torch.tensor([1.0, 0]), None], [torch.tensor([-1.0, 1]), torch.tensor([2.0])]])
    a = suture.combine(np.array([[1.0, 0, 0], [-1, 1, 2]]), "config")
    np.testing.assert_allclose(np.concatenate([1 - w[0].detach().numpy(), 1 - w[1].detach().numpy()]), a, rtol=1e-6)


def test_state_dict_round_trip_is_exact():
    for method in suture.optimizer_methods:
        for extra in ({}, {"momentum": 0.9} if method in ("sgd", "rmsprop") else {}):
            a, b = network(), network()
            opt = make(a, method, lr=1e-3, **extra)
            for _ in range(7):
                opt.step_losses(losses(a))
            buffer = io.BytesIO()
            torch.save({"net": a.state_dict(), "opt": opt.state_dict()}, buffer)
            buffer.seek(0)
            saved = torch.load(buffer, weights_only=True)
            b.load_state_dict(saved["net"])
            other = make(b, method, lr=5.0, **extra)
            other.load_state_dict(saved["opt"])
            assert other.param_groups[0]["lr"] == 1e-3 and other.steps == 7
            for _ in range(5):
                opt.step_losses(losses(a))
                other.step_losses(losses(b))
            assert same_bits(flat(a), flat(b)), method


def test_state_dict_is_a_copy():
    net = network()
    opt = make(net)
    opt.step_losses(losses(net))
    saved, start = opt.state_dict(), flat(net).clone()
    frozen = copy.deepcopy(saved)
    results = []
    for _ in range(2):
        for _ in range(3):
            opt.step_losses(losses(net))
        results.append(flat(net).clone())
        assert all(same_bits(saved["state"][k]["m"], frozen["state"][k]["m"]) for k in saved["state"])
        opt.load_state_dict(saved)
        torch.nn.utils.vector_to_parameters(start, net.parameters())
    assert same_bits(*results)


def test_state_dict_of_another_model_is_refused_and_nothing_changes():
    net = network()
    opt = make(net)
    for _ in range(3):
        opt.step_losses(losses(net))
    before = opt.state_dict()
    wider = torch.nn.Sequential(torch.nn.Linear(2, 13), torch.nn.Tanh(), torch.nn.Linear(13, 2))
    other = make(wider)
    other.step_losses(losses(wider))
    with pytest.raises(suture.MismatchError, match="shape|bytes"):
        opt.load_state_dict(other.state_dict())
    with pytest.raises(suture.MismatchError, match="written by sgd, this is adam"):
        sgd = make(network(), "sgd")
        sgd.step_grads([[torch.zeros_like(p) for p in sgd.param_groups[0]["params"]]])
        opt.load_state_dict(sgd.state_dict())
    with pytest.raises(suture.MismatchError, match="no 'param_groups'"):
        opt.load_state_dict({"state": {}})
    broken = opt.state_dict()
    del broken["state"][2]["v"]
    with pytest.raises(suture.MismatchError, match="parameter 2.*no 'v'"):
        opt.load_state_dict(broken)
    fewer = opt.state_dict()
    fewer["param_groups"] = fewer["param_groups"] * 2
    with pytest.raises(suture.MismatchError, match="2 parameter groups"):
        opt.load_state_dict(fewer)
    after = opt.state_dict()
    assert after["param_groups"] == before["param_groups"] and opt.steps == 3
    for k in before["state"]:
        assert all(same_bits(before["state"][k][s], after["state"][k][s]) for s in "mv")
    opt.step_losses(losses(net))


def test_names_carry_the_state():
    net = network()
    opt = suture.torch.Optimizer(net.named_parameters(), "adam", lr=1e-2)
    opt.step_losses(losses(net)[:1])
    with pytest.raises(suture.NotFiniteError, match="0.weight"):
        opt.step_grads([[torch.full_like(p, float("nan")) for p in net.parameters()]])


def test_add_param_group_keeps_the_moments():
    theirs, ours = network(dtype=torch.float64), network(dtype=torch.float64)
    extra = [torch.full((3,), 0.5, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    a = torch.optim.Adam(theirs.parameters(), lr=1e-2)
    b = suture.torch.Optimizer(ours.parameters(), "adam", lr=1e-2)
    for k in range(10):
        if k == 4:
            a.add_param_group({"params": [extra[0]], "lr": 0.1})
            b.add_param_group({"params": [extra[1]], "lr": 0.1})
        for net, opt, x in ((theirs, a, extra[0]), (ours, b, extra[1])):
            opt.zero_grad()
            (losses(net)[0] + (x**2).sum()).backward()
            opt.step()
    torch.testing.assert_close(flat(ours), flat(theirs), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(extra[0], extra[1], rtol=1e-12, atol=1e-14)
    with pytest.raises(ValueError, match="more than one parameter group"):
        b.add_param_group({"params": [extra[1]]})
    with pytest.raises(suture.OutOfRangeError, match="lr is -1"):
        b.add_param_group({"params": [torch.zeros(1, requires_grad=True)], "lr": -1})
    assert len(b.param_groups) == 2
    b.step()


def test_number_of_losses_may_change():
    net = network()
    opt = make(net)
    opt.step_losses(losses(net))
    opt.step_losses(losses(net)[:2])
    opt.zero_grad()
    losses(net)[0].backward()
    opt.step()
    assert opt.steps == 3
    named = make(network(), loss_names=["residual", "boundary"])
    with pytest.raises(ValueError, match="3 losses were given"):
        named.step_losses(losses(net))


def test_closure_and_its_exception():
    net = network()
    opt = make(net, surgery="sum", align="none")

    def closure():
        opt.zero_grad()
        loss = losses(net)[0]
        loss.backward()
        return loss

    assert opt.step(closure).item() > 0
    before = flat(net).clone()

    def broken():
        raise ValueError("x")

    with pytest.raises(ValueError, match="^x$"):
        opt.step(broken)
    assert same_bits(before, flat(net)) and opt.steps == 1
    opt.step(closure)


def test_hooks_run():
    net = network()
    opt = make(net)
    seen = []
    opt.register_step_pre_hook(lambda o, a, k: seen.append("pre"))
    opt.register_step_post_hook(lambda o, a, k: seen.append("post"))
    opt.register_state_dict_post_hook(lambda o, d: seen.append("saved"))
    opt.step_losses(losses(net))
    losses(net)[0].backward()
    opt.step()
    opt.state_dict()
    assert seen == ["pre", "post", "pre", "post", "saved"]


def test_copies_and_pickles_go_on_with_the_same_bits():
    for pack in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        net = network()
        opt = make(net)
        for _ in range(4):
            opt.step_losses(losses(net))
        net2, opt2 = pack((net, opt))
        for _ in range(4):
            opt.step_losses(losses(net))
            opt2.step_losses(losses(net2))
        assert same_bits(flat(net), flat(net2))
        assert opt2.steps == 8


def test_autograd_notices_the_change_of_parameters():
    net = network()
    opt = make(net)
    loss = losses(net)
    version = net[0].weight._version
    opt.step_losses(loss, retain_graph=True)
    assert net[0].weight._version > version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        losses_again = torch.autograd.grad(loss[0], list(net.parameters()))


def test_state_shows_the_memory_of_the_core():
    net = network()
    opt = make(net)
    opt.step_losses(losses(net))
    m = opt.state[net[0].weight]["m"]
    assert m.shape == net[0].weight.shape and m.abs().sum() > 0
    for s in opt.state.values():
        s["m"].zero_()
    assert not opt.state_dict()["state"][0]["m"].any()


def test_low_precision_keeps_small_steps():
    for dtype in (torch.bfloat16, torch.float16):
        w = torch.nn.Parameter(torch.ones(64, dtype=dtype))
        opt = suture.torch.Optimizer([w], "adam", lr=1e-3)
        for _ in range(500):
            w.grad = torch.ones_like(w)
            opt.step()
        assert abs(float(w.detach().float().mean()) - 0.5) < 0.01
        saved = opt.state_dict()
        v = torch.nn.Parameter(w.detach().clone())
        other = suture.torch.Optimizer([v], "adam", lr=1e-3)
        other.load_state_dict(saved)
        for p, o in ((w, opt), (v, other)):
            for _ in range(5):
                p.grad = torch.ones_like(p)
                o.step()
        assert torch.equal(w, v)


def low_precision(dtype, method="sgd", **settings):
    w = torch.nn.Parameter(torch.ones(64, dtype=dtype))
    return w, suture.torch.Optimizer([w], method, lr=1e-3, **settings)


def pull(w, opt, steps, again=lambda w, opt: (w, opt)):
    for _ in range(steps):
        w.grad = torch.ones_like(w)
        opt.step()
        w, opt = again(w, opt)
    return w.detach().float().mean().item()


def reload(w, opt):
    opt.load_state_dict(opt.state_dict())
    return w, opt


def other_losses(w, opt):
    rows = [[torch.full_like(w, 1.0)], [torch.full_like(w, 0.0)]]
    opt.step_grads(rows)
    return w, opt


def move(w, opt):
    w.data = w.data.clone()
    return w, opt


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_master_copies_are_part_of_the_state(dtype):
    # A step alone is smaller than what the type can hold near 1.
    pairs = {
        "state_dict": reload,
        "moved": move,
        "deepcopy": lambda w, opt: copy.deepcopy((w, opt)),
        "pickle": lambda w, opt: pickle.loads(pickle.dumps((w, opt))),
        "unchanged by a call": lambda w, opt: (opt.parameters_changed(), (w, opt))[1],
    }
    wanted = pull(*low_precision(dtype), 100)
    assert abs(wanted - 0.9) < 0.005
    for name, again in pairs.items():
        assert pull(*low_precision(dtype), 100, again) == wanted, name
    # As many steps again for two losses, in turn with those for one.
    assert abs(pull(*low_precision(dtype), 50, other_losses) - 0.9) < 0.005
    # The optimizer for arrays.
    w = torch.ones(64, dtype=dtype)
    opt = suture.Optimizer([w], "sgd", lr=1e-3)
    for _ in range(100):
        opt.step([torch.ones_like(w)])
        w, opt = copy.deepcopy((w, opt))
    assert w.float().mean().item() == wanted


def test_types_may_be_mixed():
    w = [torch.nn.Parameter(torch.ones(3, dtype=t)) for t in (torch.float32, torch.bfloat16, torch.float64)]
    opt = suture.torch.Optimizer(w, "adam")
    for p in w:
        p.grad = torch.ones_like(p)
    opt.step()
    assert ["master" in opt.state[p] for p in w] == [False, True, False]
    opt.load_state_dict(opt.state_dict())
    opt.step()


def test_low_precision_parameters_written_from_outside_are_taken_over():
    w, opt = low_precision(torch.bfloat16)
    pull(w, opt, 3)
    with torch.no_grad():
        w.copy_(torch.full_like(w, 3.0))
    assert pull(w, opt, 1) == 3.0
    w.data.fill_(5.0)  # not counted by PyTorch
    opt.parameters_changed()
    assert pull(w, opt, 1) == 5.0
    # Elements that were left alone keep what their type cannot hold.
    w, opt = low_precision(torch.bfloat16)
    for _ in range(100):
        pull(w, opt, 1)
        with torch.no_grad():
            w[0] = 7.0
    assert w[0] == 7 and abs(w[1].item() - 0.9) < 0.005


@pytest.mark.parametrize("count", [2**16])
def test_rounding_of_master_copies(count):
    # Every value that the type has, and values beside the middle between two: none is taken for written to.
    bits = np.arange(count, dtype=np.uint16)
    for dtype in (torch.bfloat16, torch.float16):
        values = torch.from_numpy(bits.view(np.int16)).view(dtype)
        values = values[torch.isfinite(values)].clone()
        w = torch.nn.Parameter(values)
        opt = suture.torch.Optimizer([w], "sgd", lr=1e-9)
        w.grad = torch.zeros_like(w)
        opt.step()
        master = opt.state[w]["master"]
        wide = values.double()
        beside = (wide + (wide - wide.roll(1)).nan_to_num() * 0.49).float()
        beside = torch.where(beside.to(dtype) == values, beside, values.float())
        assert (beside != values.float()).float().mean() > 0.9
        master.copy_(beside)
        opt.parameters_changed()
        assert same_bits(master, beside)


def test_memory_that_moved_is_taken_over():
    net = network()
    reference = copy.deepcopy(net)
    opt, other = make(net), make(reference)
    for k in range(6):
        if k == 3:
            for p in net.parameters():
                p.data = p.data.clone()
        opt.step_losses(losses(net))
        other.step_losses(losses(reference))
    assert same_bits(flat(net), flat(reference))


def test_no_leak_in_cycles():
    net = network()
    opt = make(net)
    opt.step_losses(losses(net))
    net[0].weight.opt = opt  # a cycle through the compiled part
    gone = weakref.ref(opt)
    del net, opt
    gc.collect()
    assert gone() is None


def test_refusals_change_nothing():
    net = network()
    opt = make(net, loss_names=["a", "b"])
    opt.step_losses(losses(net)[:2])
    before, steps = flat(net).clone(), opt.steps
    good = [torch.zeros_like(p) for p in net.parameters()]

    def refused(error, match, rows=None, values=None, run=None):
        with pytest.raises(error, match=match):
            run() if run else opt.step_grads(rows, values)
        assert same_bits(before, flat(net)) and opt.steps == steps

    bad = list(good)
    bad[1] = torch.full_like(bad[1], float("nan"))
    refused(suture.NotFiniteError, "'?b'?.*'?param.1'?", [good, bad])
    bad[1] = bad[1].double()
    refused(TypeError, "gradient of loss 'b' in 'param.1' is float64 of shape .*parameter float32", [good, bad])
    bad[1] = torch.zeros(5)
    refused(ValueError, r"shape \(5,\)", [good, bad])
    bad[1] = torch.zeros(12, device="meta")
    refused((TypeError, ValueError), "'param.1'.*meta", [good, bad])
    bad[1] = torch.zeros(12).to_sparse()
    refused((TypeError, ValueError), "sparse", [good, bad])
    bad[1] = "grad"
    refused(TypeError, "of type str", [good, bad])
    refused(ValueError, "loss 1 are not a list with one entry per tensor", [good, good[:2]])
    refused(suture.NotFiniteError, "loss", [good, good], [1.0, float("nan")])
    refused(suture.InvalidArgumentError, "losses has 1 entry", [good, good], [1.0])
    refused(ValueError, "loss 'b' has shape .*; a tensor with one element is needed", run=lambda: opt.step_losses([losses(net)[0], X]))
    refused(ValueError, "loss 'a' does not depend", run=lambda: opt.step_losses([torch.ones(()), losses(net)[0]]))
    opt.param_groups[0]["lr"] = -1.0
    refused(suture.OutOfRangeError, "lr is -1", [good, good])
    refused(suture.OutOfRangeError, "lr is -1", [good, good])
    opt.param_groups[0]["lr"] = 1e-2
    opt.step_losses(losses(net)[:2])


def test_a_parameter_that_changed_its_kind_is_refused():
    net = network()
    opt = make(net)
    opt.step_losses(losses(net))
    kept = net[0].weight.data
    net[0].weight.data = kept.double()
    with pytest.raises(ValueError, match="'param.0' was float32 .* now float64"):
        opt.step_grads([[torch.zeros_like(p) for p in net.parameters()]])
    net[0].weight.data = torch.zeros(3, 3)
    with pytest.raises(ValueError, match=r"shape \(3, 3\)"):
        opt.step_grads([[torch.zeros_like(p) for p in net.parameters()]])
    net[0].weight.data = kept
    opt.step_losses(losses(net))


def test_freed_and_shrunk_storage_is_refused():
    w = torch.nn.Parameter(torch.ones(1000))
    opt = suture.torch.Optimizer([w], "adam")
    w.grad = torch.ones(1000)
    opt.step()
    w.grad.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="gradient of 'param.0' has no memory"):
        opt.step()
    w.grad = torch.ones(1000)
    w.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="parameter 'param.0' has no memory"):
        opt.step()
    w.untyped_storage().resize_(8)
    with pytest.raises(ValueError, match="more memory than its storage"):
        opt.step()
    # Gradients, and a parameter in its old place.
    w = torch.nn.Parameter(torch.ones(1000))
    opt = suture.torch.Optimizer([w], "adam")
    w.grad = torch.ones(1000)
    w.grad.untyped_storage().resize_(8)
    with pytest.raises(ValueError, match="gradient of 'param.0' needs more memory than its storage has"):
        opt.step()
    with pytest.raises(ValueError, match="gradient of 'param.0' needs more memory than its storage has"):
        opt.step_grads([[w.grad]])
    shrunk = torch.ones(2, 1000)
    first, second = shrunk
    shrunk.untyped_storage().resize_(4 * 1999)
    with pytest.raises(ValueError, match=r"G needs more memory than its storage has \(8000 bytes of 7996\)"):
        suture.combine(shrunk, "sum")
    with pytest.raises(ValueError, match=r"G\[1\] needs more memory than its storage has"):
        suture.combine([torch.ones(1000), second], "sum")
    with pytest.raises(ValueError, match="parameter 'param.0' needs more memory than its storage has"):
        suture.torch.Optimizer([torch.nn.Parameter(shrunk)], "adam")
    assert len(suture.combine([torch.ones(2000)[500:1500], first], "sum")) == 1000


def test_creation_refuses():
    w = torch.zeros(3, requires_grad=True)
    with pytest.raises(ValueError, match="can't optimize a non-leaf"):
        suture.torch.Optimizer([w * 2], "adam")
    with pytest.raises(ValueError, match="empty parameter list"):
        suture.torch.Optimizer([], "adam")
    with pytest.raises(suture.InvalidArgumentError, match="no optimizer 'adma'; did you mean 'adam'"):
        suture.torch.Optimizer([w], "adma")
    with pytest.raises(TypeError, match="no option 'momentun'; did you mean 'momentum'"):
        suture.torch.Optimizer([w], "sgd", momentun=0.9)
    with pytest.raises(suture.OutOfRangeError, match="beta2 is 1"):
        suture.torch.Optimizer([w], "adam", betas=(0.9, 1.0))
    with pytest.raises(suture.InvalidArgumentError, match="no surgery method"):
        suture.torch.Optimizer([w], "adam", surgery="none")
    with pytest.raises((TypeError, ValueError), match="param.0.*meta"):
        suture.torch.Optimizer([torch.zeros(3, device="meta", requires_grad=True)], "adam")
    with pytest.raises(ValueError, match="'param.0' .*gaps"):
        suture.torch.Optimizer([torch.zeros(6)[::2].requires_grad_()], "adam")
    with pytest.raises(TypeError, match="int64"):
        suture.torch.Optimizer([torch.zeros(3, dtype=torch.int64)], "adam")


def test_both_ways_to_look_at_tensors_are_the_same(tmp_path):
    """PyTorch's functions in C, and the tensors' methods where those are not there: the same bits and the same refusals."""
    import subprocess
    import sys

    program = tmp_path / "program.py"
    program.write_text(
        """
import hashlib, sys, warnings
import torch
if sys.argv[1] == "methods":
    torch._C._aoti = None
import suture.torch
print(suture.diagnose()["torch"].split(", ")[1], file=sys.stderr)
torch.manual_seed(0)
warnings.simplefilter("ignore")
net = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.Flatten(), torch.nn.Linear(12, 2))
opt = suture.torch.Optimizer(net.to(memory_format=torch.channels_last).parameters(), "adam", surgery="config", align="gua")
x = torch.randn(5, 2, 4, 4)
def steps(count=5):
    for _ in range(count):
        y = net(x)
        opt.step_losses([y[:, 0].pow(2).mean(), (y[:, 1] - 1).pow(2).mean()])
steps()
freed, shrunk = torch.zeros(2), torch.zeros(9)[2:4]
freed.untyped_storage().resize_(0)
shrunk.untyped_storage().resize_(12)
class Own(torch.Tensor):
    pass
torch.utils.swap_tensors(net[2].bias, torch.nn.Parameter(net[2].bias.detach().clone()))  # another tensor in the same object
steps()
with torch.device("meta"):  # a mode: methods run Python code
    steps()
rows = [[torch.zeros_like(p) for p in net.parameters()] for _ in range(2)]
conjugate = torch.ones(1, 2, dtype=torch.complex64).conj().imag
for good in (torch.zeros(2).as_subclass(Own), torch.zeros(1).expand(2), torch.zeros(4)[::2], torch.zeros(2)[:2], conjugate[0]):
    rows[1][3] = good
    opt.step_grads(rows)
for bad in (torch.zeros(2, dtype=torch.int32), torch.zeros(2, device="meta"), torch.zeros(2).to_sparse(), freed, shrunk,
            torch.zeros([1] * 9), torch.ones(2, dtype=torch.complex64), torch.zeros(2, 1).to_mkldnn(),
            torch.nested.nested_tensor([torch.zeros(1), torch.zeros(1)]), torch.quantize_per_tensor(torch.zeros(2), 1, 0, torch.qint8)):
    rows[1][3] = bad
    try:
        opt.step_grads(rows)
        print("accepted", bad)
    except (TypeError, ValueError) as error:
        print(error)
print(suture.combine([torch.ones(1), conjugate[0, :1] + 2 * conjugate[0, 1:]], "sum"))
print(suture.combine([torch.ones(1), torch.ones(3)[1:2]], "sum"))
print(hashlib.sha256(b"".join(p.detach().contiguous().numpy().tobytes() for p in net.parameters())).hexdigest())
"""
    )
    runs = [subprocess.run([sys.executable, program, way], capture_output=True, text=True) for way in ("functions", "methods")]
    assert all(r.returncode == 0 for r in runs), runs[1].stderr + runs[1].stdout
    in_c = hasattr(ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")), "aoti_torch_get_layout")  # since 2.9
    assert ("through its functions in C" if in_c else "through methods") in runs[0].stderr
    assert "through methods" in runs[1].stderr
    assert runs[0].stdout == runs[1].stdout
    lines = runs[0].stdout.splitlines()
    assert len(lines) == 13 and not any("accepted" in line for line in lines), runs[0].stdout


def test_state_follows_its_tensor_when_groups_are_edited():
    a, b, c = (torch.nn.Parameter(torch.full((3,), x)) for x in (1.0, 2.0, 3.0))
    opt = suture.torch.Optimizer([{"params": [a, b]}, {"params": [c], "lr": 0.5}], "adam", lr=1e-2)
    for k, p in enumerate((a, b, c)):
        p.grad = torch.full_like(p, k + 1.0)
    opt.step()
    m = {p: opt.state[p]["m"].clone() for p in (a, b, c)}
    opt.param_groups[0]["params"].reverse()
    state = opt.state_dict()["state"]
    assert torch.equal(state[0]["m"], m[b]) and torch.equal(state[1]["m"], m[a])
    new = torch.nn.Parameter(torch.ones(5))
    new.grad = torch.ones(5)
    opt.param_groups[0]["params"][0] = new
    before = b.detach().clone()
    opt.step()
    assert torch.equal(b, before) and not torch.equal(new, torch.ones(5))
    assert [opt.state_dict()["state"][k]["step"] for k in range(3)] == [1, 2, 2]
    del opt.param_groups[0]
    before = a.detach().clone()
    opt.step()
    assert torch.equal(a, before) and opt.state_dict()["state"][0]["step"] == 3


def test_state_dict_is_in_the_order_of_indices():
    values = torch.randn(2, 3, 4, 5)
    plain, last = torch.nn.Parameter(values.clone()), torch.nn.Parameter(values.to(memory_format=torch.channels_last))
    one, other = (suture.torch.Optimizer([p], "adam", lr=1e-2) for p in (plain, last))
    plain.grad = torch.randn(2, 3, 4, 5)
    one.step()
    with torch.no_grad():
        last.copy_(plain)
    other.load_state_dict(one.state_dict())
    last.grad = plain.grad.clone()
    one.step(), other.step()
    assert torch.equal(plain, last)
    turned = suture.torch.Optimizer([torch.nn.Parameter(torch.zeros(5, 4, 3, 2))], "adam")
    with pytest.raises(suture.MismatchError, match=r"'m' of parameter 0 \('param.0'\) has shape \(2, 3, 4, 5\)"):
        turned.load_state_dict(one.state_dict())
