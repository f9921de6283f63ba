"""On a machine with a GPU, a PyTorch for CUDA and a Suture with its CUDA back end: what test_cuda.py shows without them."""

import copy

import pytest
import suture

torch = pytest.importorskip("torch")
import suture.torch

if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)
if suture.diagnose()["CUDA"].startswith("not used"):
    pytest.skip(suture.diagnose()["CUDA"], allow_module_level=True)


def models():
    torch.manual_seed(1)
    here = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))
    return here, copy.deepcopy(here).cuda()


def losses(model, seed):
    x = torch.rand(16, 4, generator=torch.Generator().manual_seed(seed)).to(next(model.parameters()).device)
    y = model(x)
    return [((y[:, 0] - x[:, 0]) ** 2).mean(), 3 * ((y[:, 1] + x[:, 0]) ** 2).mean()]


def close(a, b):
    return all(torch.allclose(p.detach(), q.detach().cpu(), rtol=1e-3, atol=1e-5) for p, q in zip(a.parameters(), b.parameters()))


def train(model, opt, seeds, report=True):
    return [opt.step_losses(losses(model, seed), report=report) for seed in seeds]


def make(model):
    return suture.torch.Optimizer(model.parameters(), "adam", lr=1e-3, surgery="config", align="gua")


def test_steps_state_and_moves():
    here, there = models()
    a, b = make(here), make(there)
    train(here, a, range(5))
    train(there, b, range(5))
    assert close(here, there) and b.steps == 5
    assert all(m.is_cuda for p in there.parameters() for m in b.state[p].values())
    b.load_state_dict(a.state_dict())
    there.cpu()
    train(here, a, range(5, 8))
    train(there, b, range(5, 8))
    there.cuda()
    train(here, a, range(8, 10))
    train(there, b, range(8, 10))
    assert close(here, there) and b.steps == 10


def test_streams_and_reports_that_are_not_wanted():
    here, there = models()
    a, b = make(here), make(there)
    train(here, a, range(4))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        train(there, b, range(4), report=False)
    torch.cuda.current_stream().wait_stream(stream)
    b.synchronize()
    assert close(here, there)


def test_a_graph():
    _, there = models()
    opt = make(there)
    rows = [[torch.randn_like(p) for p in there.parameters()] for _ in range(2)]
    opt.step_grads(rows, report=False)
    torch.cuda.synchronize()
    twin = copy.deepcopy(there)
    other = suture.torch.Optimizer(twin.parameters(), "adam", lr=1e-3, surgery="config", align="gua")
    other.load_state_dict(opt.state_dict())
    other.step_grads(rows, report=False)
    opt.step_grads(rows, report=False)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        opt.step_grads(rows, report=False)
    for _ in range(3):
        graph.replay()
        other.step_grads(rows, report=False)
    opt.synchronize()
    other.synchronize()
    assert opt.steps == other.steps == 5
    assert all(torch.equal(p, q) for p, q in zip(there.parameters(), twin.parameters()))


def test_functions():
    G = torch.randn(3, 1000)
    p, _ = suture.project(-G[0].cuda(), G.cuda())
    assert p.is_cuda and torch.allclose(suture.project(-G[0], G)[0], p.cpu(), rtol=1e-4, atol=1e-5)
    assert torch.allclose(suture.combine(G, "config"), suture.combine(G.cuda(), "config").cpu(), rtol=1e-4, atol=1e-5)
