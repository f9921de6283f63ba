"""Tensors on a GPU, as far as that can be seen without one: tests/standin.py says how."""

import copy
import itertools
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import suture

torch = pytest.importorskip("torch")
import standin
import suture.torch
from suture import _cuda

pytestmark = pytest.mark.skipif(
    not os.path.exists(standin.LIBRARY), reason="SUTURE_CUDA_STANDIN names no library (tests/python.sh builds it)"
)

SHAPES = [(40, 3), (7,), (), (5, 6)]
SEAM = ("current_stream", "device", "empty_cache", "empty", "empty_like", "contiguous", "laid_out_like", "show", "to_host", "to_device")


@pytest.fixture
def gpu(monkeypatch, request, tmp_path_factory):
    monkeypatch.setenv("SUTURE_CUDA_LIBRARY", standin.LIBRARY)
    make = None
    if getattr(request, "param", "subclass") == "genuine":
        make = standin.genuine(tmp_path_factory.getbasetemp())
        if isinstance(make, str):
            pytest.skip(f"cuda_tensor.cpp cannot be compiled with this PyTorch: {make}")
    made = standin.Gpu(make)
    for name in SEAM:
        assert hasattr(_cuda, name)
        monkeypatch.setattr(_cuda, name, getattr(made, name))
    made.calls.exec_reset()
    made.calls.exec_watch(8)  # locking its memory after each call takes most of the time
    yield made
    made.calls.exec_devices(1)
    made.calls.exec_reset()


# With tensors of a class of their own, which are looked at through methods, and with PyTorch's own, through its functions in C.
both = pytest.mark.parametrize("gpu", ["subclass", "genuine"], indirect=True)


def tensors(seed, dtype=torch.float32, shapes=SHAPES, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    made = [(scale * torch.randn(shape, generator=g, dtype=torch.float64)).to(dtype) for shape in shapes]
    return [x.t().contiguous().t() if x.dim() == 2 and k == 3 else x for k, x in enumerate(made)]


class Twins:
    """The same parameters here and on the device, and gradients of several losses."""

    def __init__(self, gpu, n_losses=1, dtype=torch.float32, shapes=SHAPES, **settings):
        self.gpu, self.m, self.dtype, self.shapes = gpu, n_losses, dtype, shapes
        self.cpu = [x.clone().requires_grad_() for x in tensors(1, dtype, shapes)]
        self.on = [gpu.tensor(x, requires_grad=True) for x in self.cpu]
        self.settings = settings
        self.opt = suture.torch.Optimizer(self.cpu, **settings)
        self.own = suture.torch.Optimizer(self.on, **settings)
        self.seed = itertools.count(10)

    def rows(self):
        common = tensors(5, self.dtype, self.shapes)
        rows = []
        for i in range(self.m):
            own = tensors(next(self.seed), self.dtype, self.shapes, 0.5)
            scale = 6.0 if i == 0 else 1.0  # so that the sum hurts the others
            rows.append([(scale * (-1) ** i * c + o).to(self.dtype) for c, o in zip(common, own)])
        return rows, [[self.gpu.tensor(g) for g in row] for row in rows]

    def step(self, report=True, keep=()):
        here, there = self.rows()
        if self.m > 1:
            return self.opt.step_grads(here, report=report), self.own.step_grads(there, report=report)
        for p, g in zip(self.cpu, here[0]):
            p.grad = g
        for p, g in zip(self.on, there[0]):
            p.grad = g
        self.opt.step()
        self.own.step()
        return self.opt.report, self.own.report

    def now(self):
        return [self.gpu.to_host(p) for p in self.on]

    def same(self):
        return all(torch.equal(bits(a), bits(b)) for a, b in zip(self.cpu, self.now()))


def bits(x):
    x = x.detach().as_subclass(torch.Tensor).contiguous().reshape(-1)
    return x.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])


def states_equal(a, b, tolerance=0.0):
    assert a["param_groups"] == b["param_groups"] and a["state"].keys() == b["state"].keys()
    for k, entry in a["state"].items():
        assert entry.keys() == b["state"][k].keys() and entry["step"] == b["state"][k]["step"]
        for slot in entry.keys() - {"step"}:
            x, y = entry[slot], b["state"][k][slot]
            assert x.device.type == "cpu" and x.dtype == y.dtype
            assert torch.equal(x, y) if not tolerance else torch.allclose(x, y, rtol=tolerance, atol=1e-5), (k, slot)


METHODS = [
    ("sgd", {"momentum": 0.9, "nesterov": True}),
    ("rmsprop", {"centered": True, "momentum": 0.5}),
    ("adagrad", {"lr_decay": 0.1}),
    ("adam", {"amsgrad": True}),
    ("adamw", {"weight_decay": 0.1}),
    ("nadam", {}),
    ("radam", {}),
    ("lion", {"weight_decay": 0.1}),
]


@pytest.mark.parametrize(
    "dtype, gpu",
    [(torch.float32, "genuine"), (torch.float64, "genuine"), (torch.bfloat16, "genuine"), (torch.float16, "subclass")],
    indirect=["gpu"],
)
@pytest.mark.parametrize("method, settings", METHODS)
def test_plain_steps_have_the_bits_of_the_cpu(gpu, method, settings, dtype):
    twins = Twins(gpu, method=method, dtype=dtype, lr=0.01, **settings)
    for _ in range(7):
        twins.step()
    assert twins.same()
    states_equal(twins.opt.state_dict(), twins.own.state_dict())
    assert twins.own.steps == 7
    for p, q in zip(twins.cpu, twins.on):
        for slot, memory in twins.own.state[q].items():
            assert memory.device.type == ("cpu" if slot == "mu_prod" else "cuda")
            shown = memory if slot == "mu_prod" else gpu.to_host(memory)
            assert shown.shape == twins.opt.state[p][slot].shape
            if slot != "mu_prod":
                assert torch.equal(shown, twins.opt.state[p][slot])


@both
@pytest.mark.parametrize("m, surgery", [(2, "sum"), (2, "config"), (3, "sum"), (9, "imtlg")])
def test_aligned_steps_decide_alike(gpu, m, surgery):
    twins = Twins(gpu, m, method="adam", surgery=surgery, align="gua", lr=0.01)
    projected = 0
    for _ in range(4):
        a, b = twins.step()
        projected += a.projected
        for name in ("n_losses", "step", "projected", "realigned", "pareto", "conflict_g", "conflict_a", "conflict_u", "conflict_p"):
            assert getattr(a, name) == getattr(b, name), name
        for name in ("weights", "cos_a", "cos_u", "cos_p", "norms"):
            assert np.allclose(getattr(a, name), getattr(b, name), rtol=1e-5, atol=1e-6), name
    assert projected or surgery != "sum"
    # Sums are taken in another order.
    for x, y in zip(twins.cpu, twins.now()):
        assert torch.allclose(x, y, rtol=1e-5, atol=1e-6)
    states_equal(twins.opt.state_dict(), twins.own.state_dict(), 1e-4)


@both
def test_gradients_that_lie_otherwise_are_copied_by_pytorch(gpu):
    twins = Twins(gpu, method="adam", lr=0.01)
    here, _ = twins.rows()
    other = [torch.randn(80, 6)[::2, ::2].copy_(here[0][0]), *here[0][1:3], here[0][3].contiguous()]
    assert other[0].stride() == (12, 2)
    before = [gpu.tensor(g) for g in other]
    twins.opt.step_grads(here)
    gpu.asked.clear()
    twins.own.step_grads([before])
    assert gpu.asked.count("laid_out_like") == 2  # once each, although everything is looked at twice
    assert twins.same()


@pytest.mark.parametrize("gpu, calls", [("genuine", False), ("subclass", True)], indirect=["gpu"])
def test_tensors_are_looked_at_through_functions_in_c(gpu, calls):
    from suture import _arrays
    from torch.overrides import TorchFunctionMode

    class Count(TorchFunctionMode):
        seen = []

        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.seen.append(function)
            return function(*args, **(kwargs or {}))

    twins = Twins(gpu, method="adam", lr=0.01)
    twins.step()  # the first one is compared with its methods
    if not _arrays.torch_in_c:
        pytest.skip("this version's functions in C are unknown")
    _, there = twins.rows()
    with Count() as mode:
        twins.own._held.core.step(there, None, False)
    assert bool(mode.seen) == calls


# -- streams --


def launches(gpu, stream):
    before = gpu.calls.exec_launches()
    assert gpu.calls.exec_wait(stream) == 0
    return gpu.calls.exec_launches() - before


@both
def test_steps_follow_the_current_stream(gpu):
    first, second = gpu.stream(), gpu.stream()
    with gpu.on(first):
        twins = Twins(gpu, 2, method="adam", surgery="config", align="gua", lr=0.01)
        twins.step(report=False)
    assert launches(gpu, second) == 0 and launches(gpu, first) > 0
    with gpu.on(second):
        twins.step(report=False)
    assert launches(gpu, first) == 0 and launches(gpu, second) > 0
    twins.step(report=False)
    assert launches(gpu, first) == launches(gpu, second) == 0 and launches(gpu, None) > 0
    for x, y in zip(twins.cpu, twins.now()):
        assert torch.allclose(x, y, rtol=1e-5, atol=1e-6)


@both
def test_a_step_is_captured_in_a_graph(gpu):
    stream = gpu.stream()
    with gpu.on(stream):
        twins = Twins(gpu, 2, method="adam", surgery="config", align="gua", lr=0.01)
        twins.step(report=False)  # memory is taken and told
        here, there = twins.rows()
    graph_stream = gpu.stream()
    gpu.calls.exec_wait(stream)
    with gpu.on(graph_stream):
        assert gpu.calls.exec_capture(graph_stream) == 0
        twins.own.step_grads(there, report=False)
        graph = gpu.calls.exec_end_capture(graph_stream)
        assert graph
    for _ in range(3):
        twins.opt.step_grads(here, report=False)
        assert gpu.calls.exec_launch(graph, stream) == 0
    gpu.calls.exec_wait(stream)
    for x, y in zip(twins.cpu, twins.now()):
        assert torch.allclose(x, y, rtol=1e-5, atol=1e-6)
    twins.own.synchronize()
    assert twins.own.steps == 4
    with gpu.on(stream):
        gpu.calls.exec_capture(graph_stream)
        with gpu.on(graph_stream), pytest.raises(suture.SequenceError, match="cannot wait for its report"):
            twins.own.step_grads(there)
        gpu.calls.exec_end_capture(graph_stream)


@both
def test_steps_without_reports_do_not_wait(gpu):
    twins = Twins(gpu, 2, method="adam", surgery="config", align="gua", lr=0.01)
    twins.step(report=False)
    here, there = twins.rows()
    before = gpu.calls.exec_waits()
    for group in twins.own.param_groups:
        group["lr"] = 0.02
    twins.own.step_grads(there, report=False)
    twins.own.step_grads(there, report=False)
    for p, g in zip(twins.on, there[0]):
        p.grad = g
    assert gpu.calls.exec_waits() == before
    twins.own.synchronize()
    assert gpu.calls.exec_waits() > before


class Loss(torch.autograd.Function):
    """A loss that was computed on the device, and its gradients there."""

    @staticmethod
    def forward(ctx, gpu, value, grads, *params):
        ctx.grads = grads
        return gpu.tensor(torch.tensor(value))

    @staticmethod
    def backward(ctx, _):
        return (None, None, None, *ctx.grads)


def test_losses_are_left_on_the_device_unless_they_are_needed(gpu):
    for settings in ({"surgery": "config"}, {"surgery": "mgda", "mgda_normalisation": "loss"}):
        twins = Twins(gpu, 2, method="adam", align="gua", lr=0.01, **settings)
        here, there = twins.rows()
        twins.opt.step_grads(here, [0.5, 2.0])
        gpu.asked.clear()
        losses = [Loss.apply(gpu, value, grads, *twins.on) for value, grads in zip((0.5, 2.0), there)]
        report = twins.own.step_losses(losses)
        assert report.projected in (0, 1, True, False)
        assert gpu.asked.count("to_host") == (2 if settings["surgery"] == "mgda" else 0)
        for x, y in zip(twins.cpu, twins.now()):
            assert torch.allclose(x, y, rtol=1e-5, atol=1e-6)


# -- refusals --


@both
def test_what_a_queued_step_found_is_told_by_synchronize(gpu):
    twins = Twins(gpu, method="adam", lr=0.01)
    twins.step()
    state, params = twins.own.state_dict(), twins.now()
    _, there = twins.rows()
    bad = twins.rows()[0][0]
    bad[1][4] = float("nan")
    there[0][1] = gpu.tensor(bad[1])
    twins.own.step_grads(there, report=False)
    with pytest.raises(suture.NotFiniteError, match="the gradient of loss 0 is NaN or Inf in tensor \"param.1\" at index 4"):
        twins.own.synchronize()
    twins.own.synchronize()  # once
    states_equal(state, twins.own.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(params, twins.now()))
    with pytest.raises(suture.NotFiniteError, match="param.1"):
        twins.own.step_grads(there)
    assert twins.own.steps == 1


@both
def test_mixed_devices_are_refused_by_name(gpu):
    gpu.calls.exec_devices(2)
    host = torch.ones(3)
    on = lambda index=0: gpu.tensor(host, index, requires_grad=True)
    with pytest.raises(ValueError, match="parameter 'param.1' is on cpu, parameter 'param.0' on cuda:0; all parameters"):
        suture.torch.Optimizer([on(), host.clone().requires_grad_()], "adam")
    with pytest.raises(ValueError, match="parameter 'param.1' is on cuda:1, parameter 'param.0' on cpu"):
        suture.torch.Optimizer([host.clone().requires_grad_(), on(1)], "adam")
    with pytest.raises(ValueError, match="parameter 'b' is on cuda:1, parameter 'a' on cuda:0"):
        suture.Optimizer({"a": on(0), "b": on(1)}, "adam")
    with pytest.raises((TypeError, ValueError), match="'param.0' is on device meta; cpu and cuda are possible"):
        suture.torch.Optimizer([torch.ones(3, device="meta", requires_grad=True)], "adam")

    twins = Twins(gpu, 2, method="adam", lr=0.01, surgery="config")
    twins.step()
    state, params = twins.own.state_dict(), twins.now()
    here, there = twins.rows()
    wrong = [there[0], [there[1][0], here[1][1], *there[1][2:]]]
    with pytest.raises(ValueError, match="the gradient of loss 1 in 'param.1' is on cpu, parameter 'param.0' on cuda:0; a gradient must be"):
        twins.own.step_grads(wrong)
    wrong = [[gpu.tensor(here[0][0], 1), *there[0][1:]], there[1]]
    with pytest.raises(ValueError, match="the gradient of loss 0 in 'param.0' is on cuda:1, parameter 'param.0' on cuda:0"):
        twins.own.step_grads(wrong)
    with pytest.raises(ValueError, match="the gradient of loss 0 in 'param.0' is on cuda:0, parameter 'param.0' on cpu"):
        twins.opt.step_grads([[there[0][0], *here[0][1:]], here[1]])
    states_equal(state, twins.own.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(params, twins.now())) and twins.own.steps == 1
    twins.opt.step_grads(here)
    twins.own.step_grads(there)
    assert twins.own.steps == 2

    for call in (lambda G: suture.combine(G, "config"), lambda G: suture.project(G[0], G), suture.conflict):
        with pytest.raises(ValueError, match=r"G\[1\] is on cpu, G\[0\] on cuda:0; all arrays must be on one device"):
            call([gpu.tensor(host), host])
    with pytest.raises(ValueError, match="metric is on cuda:1, G.0. on cuda:0"):
        suture.project(gpu.tensor(host), [gpu.tensor(host)], gpu.tensor(host, 1))


@both
def test_each_device_has_its_own_context(gpu):
    gpu.calls.exec_devices(2)
    x = gpu.tensor(torch.ones(5), 1, requires_grad=True)
    opt = suture.torch.Optimizer([x], "sgd", lr=1.0)
    assert gpu.calls.exec_device() == 0
    opt.step_grads([[gpu.tensor(torch.ones(5), 1)]])
    assert gpu.to_host(x).tolist() == [0] * 5
    a = suture.combine(gpu.tensor(torch.eye(3), 1), "sum")
    assert a.device == torch.device("cuda", 1) and gpu.to_host(a).tolist() == [1, 1, 1]


def test_no_back_end_is_said_with_its_reason():
    code = """
import sys, torch, suture.torch, suture
class Fake(torch.Tensor):
    device = property(lambda self: torch.device("cuda", 0))
from suture import _cuda
import contextlib
_cuda.current_stream = lambda index: 0
_cuda.device = lambda index: contextlib.nullcontext()
x = torch.Tensor._make_subclass(Fake, torch.ones(3), True)
import itertools, os
makers = (
    lambda: suture.torch.Optimizer([x], "adam"),
    lambda: suture.Optimizer({"param.0": x}, "adam"),
    lambda: suture.combine([x.detach(), x.detach()], "config"),
)
for library, make in itertools.product(("", "/nowhere/libsuture_cuda.so"), makers):
    os.environ["SUTURE_CUDA_LIBRARY"] = library
    d = suture.diagnose()
    assert d["CUDA"].startswith("not used: "), d["CUDA"]
    try:
        make()
    except suture.BackendError as error:
        text = str(error)
        assert ("pip install . -C cmake.define.SUTURE_BUILD_CUDA=ON" in text) == (library == ""), text
        assert d["CUDA"][len("not used: "):][:200] in text, text
        assert " is on cuda:0, and there is no CUDA back end: " in text and "; or move everything to the CPU" in text, text
    else:
        raise AssertionError
print("fine")
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert out.stdout.strip() == "fine", out.stdout + out.stderr


def test_where_memory_is_short_pytorch_is_asked_for_what_it_keeps(gpu):
    x = gpu.tensor(torch.ones(1000), requires_grad=True)
    suture.torch.Optimizer([x], "adam")  # how many allocations a context takes is not known here
    before, retried = gpu.calls.exec_allocations(), 0
    for n in range(40):
        gpu.asked.clear()
        gpu.calls.exec_fail_allocation(n)
        try:
            suture.torch.Optimizer([x], "adam")
        except suture.OutOfMemoryError as error:  # of the context itself
            assert "has no memory for" in str(error)
            continue
        finally:
            gpu.calls.exec_fail_allocation(-1)
        if not gpu.asked:
            break
        assert gpu.asked == ["empty_cache"]
        retried += 1
    assert retried > 3 and n < 39 and gpu.calls.exec_allocations() == before


def test_the_library_is_found_beside_the_extension(tmp_path):
    shutil.copytree(pathlib.Path(suture.__file__).parent, tmp_path / "suture")
    name = next(iter(re.findall(r"libsuture_cuda\.so\.\d", standin.LIBRARY)))
    beside = tmp_path / "suture" / name
    beside.unlink(missing_ok=True)
    beside.symlink_to(standin.LIBRARY)
    env = {k: v for k, v in os.environ.items() if k != "SUTURE_CUDA_LIBRARY"}
    env["PYTHONPATH"] = str(tmp_path)
    code = "import sys; sys.modules['torch'] = sys.modules['jax'] = None; import suture; print(suture.diagnose()['CUDA'])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=env, cwd=tmp_path)
    assert out.stdout.startswith(f"{beside}, "), out.stdout + out.stderr


def test_diagnosis_says_what_was_found(gpu):
    text = suture.diagnose()["CUDA"]
    assert text.startswith(f"{standin.LIBRARY}, ") and "device 0 is current" in text and "driver" in text
    x = gpu.tensor(torch.ones(2))
    gpu.calls.exec_driver(0)
    try:
        assert suture.diagnose()["CUDA"].startswith("not used: no NVIDIA driver was found")
        with pytest.raises(suture.BackendError, match="no NVIDIA driver was found on this machine"):
            suture.torch.Optimizer([x], "adam")
    finally:
        gpu.calls.exec_driver(13000)


# -- state --


def pairs():
    return [("adam", torch.float32), ("nadam", torch.float64), ("adamw", torch.bfloat16), ("sgd", torch.float16)]


@both
@pytest.mark.parametrize("method, dtype", pairs())
def test_state_goes_from_one_to_the_other(gpu, method, dtype, tmp_path):
    settings = dict(method=method, lr=0.01, **({"momentum": 0.9} if method == "sgd" else {}))
    twins = Twins(gpu, dtype=dtype, **settings)
    for _ in range(3):
        twins.step()
    saved = {"cpu": twins.opt.state_dict(), "cuda": twins.own.state_dict()}
    torch.save(saved["cuda"], tmp_path / "state.pt")
    saved["cuda"] = torch.load(tmp_path / "state.pt", weights_only=True)
    other = suture.torch.Optimizer(twins.cpu, **settings), suture.torch.Optimizer(twins.on, **settings)
    other[0].load_state_dict(saved["cuda"])
    other[1].load_state_dict(saved["cpu"])
    states_equal(other[0].state_dict(), saved["cpu"])
    states_equal(other[1].state_dict(), saved["cpu"])
    twins.opt, twins.own = other
    for _ in range(2):
        twins.step()
    assert twins.same() and twins.own.steps == 5
    states_equal(twins.opt.state_dict(), twins.own.state_dict())


@pytest.mark.parametrize("method, dtype", pairs())
def test_copies_and_pickles(gpu, method, dtype):
    twins = Twins(gpu, dtype=dtype, method=method, lr=0.01)
    for _ in range(3):
        twins.step()
    for made in (copy.deepcopy(twins.own), pickle.loads(pickle.dumps(twins.own))):
        params = made.param_groups[0]["params"]
        assert all(p.device.type == "cuda" and p.data_ptr() != q.data_ptr() for p, q in zip(params, twins.on) if p.numel())
        states_equal(made.state_dict(), twins.own.state_dict())
    before, twins.on, twins.own = twins.own, params, made
    twins.step()
    assert twins.same() and before.steps == 3


def test_state_that_is_written_acts(gpu):
    twins = Twins(gpu, method="adam", lr=0.01)
    twins.step()
    m = twins.own.state[twins.on[0]]["m"]
    assert m.device.type == "cuda" and m.shape == (40, 3)
    value = torch.full((40, 3), 0.25)
    gpu.calls.exec_write(m.data_ptr(), gpu.contents(value), 480, None)
    twins.opt.state[twins.cpu[0]]["m"].copy_(value)
    twins.step()
    assert twins.same()
    # Assigned, from either side; removed.
    twins.own.state[twins.on[1]]["v"] = gpu.tensor(torch.full((7,), 4.0))
    twins.opt.state[twins.cpu[1]]["v"] = torch.full((7,), 4.0)
    twins.step()
    del twins.own.state[twins.on[0]], twins.opt.state[twins.cpu[0]]
    twins.step()
    assert twins.same()
    states_equal(twins.opt.state_dict(), twins.own.state_dict())
    kept = twins.own.state[twins.on[0]]["m"]
    address, value = kept.data_ptr(), gpu.to_host(kept)
    twins.own = None
    assert torch.equal(gpu.to_host(kept), value) and kept.data_ptr() == address  # the view keeps the memory


@both
def test_groups_and_numbers_of_losses_may_change(gpu):
    twins = Twins(gpu, method="adam", lr=0.01)
    twins.step()
    more = torch.randn(11)
    twins.cpu.append(more.clone().requires_grad_())
    twins.on.append(gpu.tensor(more, requires_grad=True))
    twins.shapes = [*SHAPES, (11,)]
    twins.opt.add_param_group({"params": [twins.cpu[-1]], "lr": 0.1})
    twins.own.add_param_group({"params": [twins.on[-1]], "lr": 0.1})
    twins.step()
    assert twins.same()
    twins.m = 2
    twins.step()
    states_equal(twins.opt.state_dict(), twins.own.state_dict(), 1e-4)
    with pytest.raises(ValueError, match="is on cpu"):
        twins.own.add_param_group({"params": [torch.ones(2, requires_grad=True)]})
    assert len(twins.own.param_groups) == 2
    twins.step()


@both
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_parameters_of_16_bits_that_are_written(gpu, dtype):
    twins = Twins(gpu, method="adam", dtype=dtype, lr=1e-4, shapes=[(50,), (3, 4)])
    for _ in range(3):
        twins.step()
    master = twins.own.state_dict()["state"][0]["master"]
    assert not torch.equal(master, master.to(dtype).float())  # digits that the parameter does not have
    changed = twins.now()[0]
    changed[7] = 0.75
    gpu.calls.exec_write(twins.on[0].data_ptr(), gpu.contents(changed), 100, None)
    with torch.no_grad():
        twins.cpu[0][7] = 0.75
    twins.own.parameters_changed()
    twins.opt.parameters_changed()
    after = twins.own.state_dict()["state"][0]["master"]
    assert after[7] == 0.75 and torch.equal(after[:7], master[:7]) and torch.equal(after[8:], master[8:])
    twins.step()
    assert twins.same()
    states_equal(twins.opt.state_dict(), twins.own.state_dict())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_that_moves_takes_its_optimizer_along(gpu, dtype):
    gpu.calls.exec_devices(2)
    twins = Twins(gpu, dtype=dtype, method="adam", lr=0.01)
    twins.step()
    for place in (1, None, 0):
        for p in twins.on:
            p.grad = None
            gpu.move(p, place)
        here, _ = twins.rows()
        twins.opt.step_grads(here)
        twins.own.step_grads([[gpu.tensor(g, place) for g in here[0]]])
        state = twins.own.state[twins.on[0]]["m"]
        assert state.device == twins.on[0].device
        assert twins.same(), place
        states_equal(twins.opt.state_dict(), twins.own.state_dict())
    # Half of it moved: refused, and mended.
    gpu.move(twins.on[1], None)
    here, there = twins.rows()
    with pytest.raises(ValueError, match="parameter 'param.1' is on cpu, parameter 'param.0' on cuda:0"):
        twins.own.step_grads(there)
    assert twins.own.steps == 4
    gpu.move(twins.on[1], 0)
    twins.opt.step_grads(here)
    twins.own.step_grads(there)
    assert twins.same()
    # Memory that was replaced on the same device.
    for p in twins.on:
        gpu.move(p, 0)
    twins.step()
    assert twins.same()


# -- arrays of others --


def arrays(seed, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((6, 5)).astype(dtype), np.asfortranarray(rng.standard_normal((4, 3)).astype(dtype))]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_arrays_of_the_cuda_array_interface(gpu, dtype, tmp_path):
    here, there = arrays(1, dtype), [standin.Array(gpu, x) for x in arrays(1, dtype)]
    make = lambda params: suture.Optimizer(params, "adamw", lr=0.01, weight_decay=0.1)
    opt, own = make(here), make(there)
    for k in range(4):
        g = arrays(20 + k, dtype)
        a = opt.step(g)
        b = own.step([standin.Array(gpu, x) for x in g], report=k != 2)
        assert b is None if k == 2 else a.norms == pytest.approx(b.norms)
    own.synchronize()
    for x, y in zip(here, there):
        assert x.tobytes() == y.numpy().tobytes()
    view = own.state(0)["m"]
    interface = view.__cuda_array_interface__
    assert interface["shape"] == view.shape == (6, 5) and view.dtype in ("float32", "float64")
    raw = gpu.download(interface["data"][0], 30 * opt.state(0)["m"].itemsize)
    assert raw == opt.state(0)["m"].tobytes() and own.state(0)["step"] == 4
    # Files from one to the other.
    opt.save(tmp_path / "cpu")
    own.save(tmp_path / "cuda")
    fresh = make([standin.Array(gpu, np.zeros_like(x, order="K")) for x in here]), make([np.zeros_like(x, order="K") for x in here])
    fresh[0].load(tmp_path / "cpu")
    fresh[1].load(tmp_path / "cuda")
    assert fresh[0].to_bytes() == fresh[1].to_bytes() == opt.to_bytes() == own.to_bytes()
    with pytest.raises(ValueError, match="otherwise than its parameter; on a GPU only tensors of PyTorch"):
        own.step([standin.Array(gpu, np.asfortranarray(g[0])), standin.Array(gpu, g[1])])


@pytest.mark.parametrize("kind", ["arrays", "tensors"])
def test_stages_on_the_device(gpu, kind):
    put = (lambda x: standin.Array(gpu, x)) if kind == "arrays" else (lambda x: gpu.tensor(torch.from_numpy(x)))
    get = (lambda x: x.numpy()) if kind == "arrays" else (lambda x: gpu.to_host(x).numpy())
    here, there = arrays(1), [put(x) for x in arrays(1)]
    make = lambda params: suture.Optimizer(params, "adam", lr=0.01, n_losses=2, surgery="sum", align="gua")
    opt, own = make(here), make(there)
    common = arrays(9)
    rows = [[(6 - 7 * i) * c + 0.3 * x for c, x in zip(common, arrays(30 + i))] for i in range(2)]
    rows = [[np.asfortranarray(r[0]).copy("C"), np.asfortranarray(r[1])] for r in rows]
    on = [[put(x) for x in row] for row in rows]
    close = lambda a, b: all(np.allclose(x, get(y), rtol=1e-5, atol=1e-6) for x, y in zip(a, b))
    weights, a = opt.direction(rows)
    w, b = own.direction(on)
    assert weights == pytest.approx(w) and close(a, b)
    (u, d), (v, e) = opt.propose(rows, inverse_metric=True), own.propose(on, inverse_metric=True)
    assert close(u, v) and close(d, e)
    with pytest.raises(suture.SequenceError):
        own.step(on)
    p, planned = opt.project(rows)
    q, also = own.project(on)
    assert close(p, q) and planned.projected == also.projected == 1
    opt.apply(rows)
    own.apply(on, q)
    assert close(here, there)


def test_streams_of_arrays(gpu):
    stream, other = gpu.stream(), gpu.stream()
    x = standin.Array(gpu, np.ones(4, np.float32), stream=stream)
    opt = suture.Optimizer(x, "sgd", lr=1.0)
    g = standin.Array(gpu, np.ones(4, np.float32), stream=stream)
    opt.step([g], report=False)
    assert launches(gpu, other) == 0 and launches(gpu, stream) > 0
    x.stream = g.stream = other
    opt.step([g], report=False)
    assert launches(gpu, stream) == 0 and launches(gpu, other) > 0
    x.stream = g.stream = 1  # the default stream
    opt.step([g], report=False)
    g.stream = stream
    with pytest.raises(ValueError, match="the gradient of 'param.0' will be ready on CUDA stream"):
        opt.step([g])
    g.stream = 0
    with pytest.raises(TypeError, match="its stream is neither None nor a positive integer"):
        opt.step([g])
    g.stream = None
    opt.step([g])
    x.stream = stream
    opt.step([g], report=False)
    x.stream = None
    del opt  # waits
    gpu.calls.exec_wait(stream)
    assert x.numpy().tolist() == [-4] * 4


def test_arrays_that_cannot_be_used(gpu):
    x = standin.Array(gpu, np.ones(4, np.float32))
    x.read_only = True
    with pytest.raises(ValueError, match="'param.0' is read-only"):
        suture.Optimizer(x, "sgd")
    x.read_only = False
    x.dtype = np.dtype(np.int32)
    with pytest.raises(TypeError, match="'param.0' has elements of type <i4; float32, float64 and float16 are possible"):
        suture.Optimizer(x, "sgd")
    x.dtype = np.dtype(np.float32)
    x.strides = (8,)
    with pytest.raises(ValueError, match="has gaps in its memory"):
        suture.Optimizer(x, "sgd")
    x.strides = (4,)
    with pytest.raises(TypeError, match=r"u is of type Array, in a GPU's memory; pass it as a tensor: torch.as_tensor\(u"):
        suture.project(x, [x])
    memory = np.ones(4, np.float32)
    pointer, x.pointer = x.pointer, memory.ctypes.data
    with pytest.raises(suture.InvalidArgumentError, match="is host memory; the context takes memory of CUDA device 0"):
        suture.Optimizer(x, "sgd")
    x.pointer = pointer
    suture.Optimizer([x], "sgd").step([x.__class__(gpu, memory)])


# -- functions --


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_without_state(gpu, dtype):
    g = torch.Generator().manual_seed(3)
    G = torch.randn(3, 6, 5, generator=g, dtype=dtype)
    G[1] -= G[0]
    u = -G[0] + 0.1
    metric = torch.rand(6, 5, generator=g, dtype=dtype) + 0.5
    on = gpu.tensor(G)
    lists = [gpu.tensor(row) for row in G]
    for method in ("config", "upgrad", "sum"):
        a = suture.combine(G, method)
        for given in (on, lists):
            b = suture.combine(given, method)
            assert b.device == torch.device("cuda", 0) and b.dtype == dtype
            assert torch.allclose(a, gpu.to_host(b), rtol=1e-5, atol=1e-6)
        w = suture.weights(given, method)
        assert w.device.type == "cuda" and torch.allclose(suture.weights(G, method), gpu.to_host(w), rtol=1e-6)
    K = torch.einsum("iab,jab->ij", G, G)
    w = suture.weights(gram=gpu.tensor(K), method="config")
    assert w.device.type == "cuda" and torch.allclose(suture.weights(gram=K, method="config"), gpu.to_host(w))
    p, report = suture.project(u, G, metric)
    q, other = suture.project(gpu.tensor(u), lists, gpu.tensor(metric))
    assert report.kind == other.kind and q.device.type == "cuda"
    assert torch.allclose(p, gpu.to_host(q), rtol=1e-5, atol=1e-6)
    assert suture.conflict(G, u).cosines[0] == pytest.approx(suture.conflict(on, gpu.tensor(u)).cosines[0], abs=1e-6)
    # Rows that do not lie row by row.
    strided = gpu.tensor(torch.randn(6, 10, dtype=dtype)[:, ::2].copy_(G[1]))
    gpu.asked.clear()
    b = suture.combine([lists[0], strided, lists[2]], "config")
    assert gpu.asked.count("contiguous") == 1
    assert torch.allclose(suture.combine(G, "config"), gpu.to_host(b), rtol=1e-5, atol=1e-6)
    b = suture.combine(gpu.tensor(G.transpose(1, 2).contiguous().transpose(1, 2)), "config")
    assert torch.allclose(suture.combine(G, "config"), gpu.to_host(b), rtol=1e-5, atol=1e-6)
    with pytest.raises(suture.NotFiniteError):
        bad = G.clone()
        bad[1, 2, 3] = float("nan")
        suture.combine(gpu.tensor(bad), "config")


@both
def test_functions_work_on_the_current_stream(gpu):
    G = gpu.tensor(torch.eye(3) + 0.5)
    for stream in (gpu.stream(), gpu.stream(), gpu.stream(), gpu.stream(), gpu.stream(), 0):
        with gpu.on(stream):
            p, _ = suture.project(gpu.over(G.data_ptr(), torch.ones(3)), G)
            assert torch.equal(gpu.to_host(p), torch.tensor([1.5, 0.5, 0.5]))
