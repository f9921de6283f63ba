"""suture.torch.Optimizer: its state edited, assigned, loaded; keys of groups; threads that share it."""

import copy
import threading
import time
from collections import defaultdict

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import suture
import suture.torch

from conftest import same_bits


def make(*values, method="adam", **settings):
    w = [torch.nn.Parameter(torch.full((3,), float(x))) for x in values or (1.0, 2.0)]
    return w, suture.torch.Optimizer(w, method, **{"lr": 0.1, **settings})


def pull(w, opt, count=1):
    for k in range(count):
        for j, p in enumerate(w):
            p.grad = torch.full_like(p, 1.0 + j - 0.4 * k)
        opt.step()


def values(w):
    return torch.cat([p.detach() for p in w])


def put(w, given):
    with torch.no_grad():
        for p, x in zip(w, given.split(3)):
            p.copy_(x)


# -- state edited and assigned --

RESETS = {
    "clear": lambda o: o.state.clear(),
    "assigned": lambda o: setattr(o, "state", defaultdict(dict)),
    "assigned a dict": lambda o: setattr(o, "state", {}),
    "popped": lambda o: [o.state.pop(p) for p in list(o.state)],
    "popitem": lambda o: [o.state.popitem() for _ in range(2)],
    "emptied": lambda o: [s.clear() for s in o.state.values()],
    "empty entries": lambda o: o.state.update({p: {} for p in o.state}),
}


@pytest.mark.parametrize("reset", RESETS)
def test_a_state_that_is_removed_begins_anew(reset):
    w, opt = make()
    fresh, other = make()
    pull(w, opt, 3)
    put(w, values(fresh))
    RESETS[reset](opt)
    assert opt.state_dict()["state"] == {}
    pull(w, opt, 3)
    pull(fresh, other, 3)
    assert same_bits(values(w), values(fresh)) and opt.steps == 3
    assert set(opt.state) == set(w) and torch.equal(opt.state[w[0]]["m"], other.state[fresh[0]]["m"])


def test_one_parameter_begins_anew():
    w, opt = make()
    pull(w, opt, 3)
    kept = opt.state[w[1]]["v"].clone()
    del opt.state[w[0]]
    saved = opt.state_dict()["state"]
    assert saved[0]["step"] == 0 and not saved[0]["m"].any()
    assert saved[1]["step"] == 3 and torch.equal(saved[1]["v"], kept) and opt.steps == 3


def test_a_state_that_is_assigned_is_taken_over():
    w, opt = make()
    pull(w, opt, 3)
    copied = copy.copy(opt.state)
    assert type(copied) is defaultdict and copied[w[0]]["m"] is opt.state[w[0]]["m"]
    assert type(copy.deepcopy(dict(opt.state[w[0]]))) is dict
    counts, moments = opt.state_dict()["state"], {p: {k: v.clone() for k, v in s.items()} for p, s in opt.state.items()}
    before = values(w).clone()
    pull(w, opt, 2)
    ahead = values(w).clone()
    for way in range(3):
        put(w, before)
        if way == 0:  # whole, with the counts
            opt.state = {p: {"step": 3, **s} for p, s in moments.items()}
        elif way == 1:  # entry by entry; the counts as a tensor
            for k, p in enumerate(w):
                opt.state[p] = {**counts[k], "step": torch.tensor(3.0)}
        else:  # tensor by tensor; counts are not among them
            opt.load_state_dict({**opt.state_dict(), "state": counts})
            for p in w:
                opt.state[p]["m"] = moments[p]["m"].double()
                opt.state[p].update(v=moments[p]["v"].numpy())
        for k in (3, 4):
            for j, p in enumerate(w):
                p.grad = torch.full_like(p, 1.0 + j - 0.4 * (k - 3))
            opt.step()
        assert same_bits(values(w), ahead), way
    moments[w[0]]["m"].fill_(9.0)  # nothing was kept by reference
    assert not (opt.state[w[0]]["m"] == 9).any()


def test_a_state_assigned_before_the_first_step():
    w, opt = make()
    pull(w, opt, 3)
    v, other = make()
    put(v, values(w))
    other.state = {q: {"step": 3, **copy.deepcopy(dict(opt.state[p]))} for p, q in zip(w, v)}
    pull(w, opt, 2), pull(v, other, 2)
    assert same_bits(values(w), values(v))


def test_a_state_that_does_not_fit_is_refused_by_name():
    w, opt = make()
    pull(w, opt)
    good = {k: v.clone() for k, v in opt.state[w[0]].items()}
    for entry, error, match in (
        ({"exp_avg": good["m"]}, suture.MismatchError, r"parameter 0 \('param.0'\) has no 'm'; it consists of step, m, v"),
        ({**good, "exp_avg": good["m"]}, suture.MismatchError, "has 'exp_avg', for which there is no place"),
        ({**good, "v": torch.ones(4)}, suture.MismatchError, r"'v' .* has shape \(4,\), \(3,\) is needed"),
        ({**good, "m": 1.0}, TypeError, "'m' of parameter 0 .* is of type float"),
        ({**good, "m": torch.ones(3, dtype=torch.int64)}, TypeError, "'m' .* torch.int64; a floating type"),
        ({**good, "m": torch.tensor([0, float("nan"), 0])}, suture.NotFiniteError, r"'m' .* holds nan at \[1\]"),
        ({**good, "v": torch.tensor([0, 0, -1.0])}, suture.OutOfRangeError, r"'v' .* holds -1.0 at \[2\]"),
        ({**good, "step": 2.5}, suture.MismatchError, "'step' .* is 2.5"),
        (3, TypeError, "entry of type int; a dict is needed"),
    ):
        before = values(w).clone()
        opt.state[w[0]] = entry
        for _ in range(2):
            with pytest.raises(error, match=match):
                pull(w, opt)
        assert same_bits(values(w), before)
        opt.state[w[0]] = good
        pull(w, opt)
    with pytest.raises(TypeError, match="state is of type list"):
        opt.state = []
    opt.state[0] = good
    with pytest.raises(TypeError, match="state has the key 0; parameters are its keys"):
        opt.step()
    del opt.state[0]
    opt.state[torch.zeros(3)] = good  # of no parameter: as dead as in every optimizer of PyTorch
    pull(w, opt)
    assert set(opt.state) == set(w)


def test_reading_the_state_is_no_edit():
    w, opt = make()
    assert not opt.state and opt.state[w[0]] == {}
    pull(w, opt, 2)
    shown, moments = opt.state, opt.state[w[0]]["m"]
    assert torch.zeros(3) not in opt.state and opt.state[torch.zeros(3)] == {}
    len(opt.state), list(opt.state.items()), copy.copy(opt.state), opt.state.copy(), opt.state.get(w[0]).get("m")
    pull(w, opt)
    assert opt.state is shown and opt.state[w[0]]["m"] is moments and opt.steps == 3


def test_state_shows_nothing_that_is_gone():
    w, opt = make()
    fresh = opt.state_dict()
    assert not opt.state
    pull(w, opt, 2)
    entry = opt.state[w[0]]
    opt.load_state_dict(fresh)
    assert not opt.state and opt.steps == 0 and opt.state_dict()["state"] == {}
    pull(w, opt)
    twin = opt.state_dict()["state"][0]
    assert torch.equal(opt.state[w[0]]["m"], twin["m"]) and twin["step"] == 1
    assert entry is not opt.state[w[0]]
    # Two losses: another core, the same entry.
    entry = opt.state[w[0]]
    opt.step_grads([[p.grad for p in w]] * 2)
    assert opt.state[w[0]] is entry
    entry["m"].zero_()
    assert not opt.state_dict()["state"][0]["m"].any()


# -- dicts --


def test_nothing_of_a_dict_is_kept_by_reference():
    w, opt = make()
    opt.param_groups[0]["tags"] = ["a"]
    pull(w, opt, 2)
    saved = opt.state_dict()
    v, other = make()
    other.load_state_dict(saved)
    frozen = copy.deepcopy(other.state_dict())
    saved["param_groups"][0]["tags"].append("b")
    saved["param_groups"][0]["lr"] = 77.0
    for entry in saved["state"].values():
        entry["m"].fill_(7.0)
        entry.clear()
    saved["suture"]["texts"].clear()
    saved["suture"]["kept_weights"].fill_(7.0)
    now = other.state_dict()
    assert now["param_groups"] == frozen["param_groups"] and now["param_groups"][0]["tags"] == ["a"]
    assert torch.equal(now["state"][0]["m"], frozen["state"][0]["m"]) and now["suture"]["texts"] == frozen["suture"]["texts"]


@pytest.mark.parametrize("broken, error, match", [
    (None, TypeError, "state_dict is of type NoneType"),
    ([], TypeError, "state_dict is of type list"),
    ({"state": {}}, ValueError, "no 'param_groups'"),
    ({"state": None}, TypeError, "'state' of the state_dict is of type NoneType"),
    ({"param_groups": {}}, TypeError, "'param_groups' of the state_dict is of type dict"),
    ({"param_groups": [3]}, TypeError, "group 0 of the state_dict is no dict"),
    ({"suture": 3}, TypeError, "'suture' of the state_dict is of type int"),
    ({"suture": {}}, ValueError, "has a 'state', but 'suture' is empty"),
    ({"suture": {"method": "adam"}}, ValueError, "'suture' of the state_dict has no 'n_losses'"),
    ({"state": {7: {}}}, ValueError, "state of a parameter 7, which is in none of its groups"),
    ({"state": {}}, ValueError, r"no state of parameter 0 \('param.0'\)"),
    ({"state": {0: 3, 1: 3}}, TypeError, "state of parameter 0 .* is of type int"),
])
def test_broken_dicts_are_refused(broken, error, match):
    w, opt = make()
    pull(w, opt, 2)
    opt.param_groups[0]["mine"] = 1
    before = opt.state_dict()
    given = broken
    if isinstance(broken, dict):
        given = {**copy.deepcopy(before), **broken}
        if match.startswith("no 'param"):
            del given["param_groups"]
    with pytest.raises(error, match=match):
        opt.load_state_dict(given)
    after = opt.state_dict()
    assert after["param_groups"] == before["param_groups"] and opt.steps == 2
    assert torch.equal(after["state"][0]["m"], before["state"][0]["m"])
    pull(w, opt)


def test_moments_of_a_dict_are_checked():
    w, opt = make()
    pull(w, opt, 2)
    for slot, value, error, match in (
        ("m", torch.full((3,), float("nan")), suture.NotFiniteError, r"'m' of parameter 1 \('param.1'\) holds nan at \[0\]"),
        ("v", torch.full((3,), float("inf")), suture.NotFiniteError, "holds inf"),
        ("v", torch.ones(3, dtype=torch.int64), TypeError, "torch.int64"),
        ("m", torch.ones(3, dtype=torch.complex64), TypeError, "torch.complex64"),
        ("step", -1, suture.MismatchError, "'step' of parameter 1 .* is -1"),
        ("what", torch.ones(3), suture.MismatchError, "'what', for which there is no place"),
    ):
        saved = opt.state_dict()
        saved["state"][1][slot] = value
        with pytest.raises(error, match=match):
            opt.load_state_dict(saved)
    assert opt.steps == 2
    saved = opt.state_dict()
    saved["state"][1]["m"] = saved["state"][1]["m"].bfloat16()  # any floating type
    opt.load_state_dict(saved)


# -- keys of groups --


def test_keys_of_the_user_are_carried_along():
    a, b, c = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))
    opt = suture.torch.Optimizer([{"params": [a], "name": "trunk", "lr_scale": 0.5}, {"params": [b], "lr": 0.2}], "adam", lr=0.1)
    opt.add_param_group({"params": [c], "name": "head", "tags": ["x", 1]})
    assert [g.get("name") for g in opt.param_groups] == ["trunk", None, "head"]
    for g in opt.param_groups:
        g["lr"] *= g.get("lr_scale", 1.0)
    for p in (a, b, c):
        p.grad = torch.ones(2)
    opt.step()
    assert [round(1 - p[0].item(), 6) for p in (a, b, c)] == [0.05, 0.2, 0.1]
    saved = opt.state_dict()
    assert saved["param_groups"][0]["lr_scale"] == 0.5 and saved["param_groups"][2]["tags"] == ["x", 1]
    d, e, f = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))
    other = suture.torch.Optimizer([{"params": [d]}, {"params": [e], "name": "mine"}, {"params": [f]}], "adam", lr=9.0)
    other.load_state_dict(saved)
    assert [g.get("name") for g in other.param_groups] == ["trunk", "mine", "head"]
    assert {k: v for k, v in other.state_dict()["param_groups"][2].items()} == saved["param_groups"][2]
    twin = copy.deepcopy(other)
    assert twin.param_groups[2]["tags"] == ["x", 1]
    twin.param_groups[2]["tags"].append(2)
    assert other.param_groups[2]["tags"] == ["x", 1]


@pytest.mark.parametrize("wrong, right", [
    ("learing_rate", "lr"), ("learning_rate", "lr"), ("beta", "betas"), ("b1", "beta1"), ("epsilon", "eps"), ("wd", "weight_decay"),
    ("weight_deacy", "weight_decay"), ("amsgard", "amsgrad"), ("clipnorm", "clip_norm"), ("scheduler", "schedule"),
    ("cagradc", "cagrad_c"),
])
def test_misspelt_options_of_the_constructor_are_refused(wrong, right):
    w = torch.nn.Parameter(torch.ones(2))
    for build in (lambda **o: suture.torch.Optimizer([w], "adam", **o), lambda **o: suture.Optimizer(np.ones(2), "adam", **o)):
        with pytest.raises(TypeError, match=f"adam has no option '{wrong}'; did you mean '{right}'"):
            build(**{wrong: 0.5})


# -- threads --


def test_threads_with_different_numbers_of_losses_lose_no_step(monkeypatch):
    w, opt = make(method="sgd", momentum=0.5)
    pull(w, opt)
    errors, start, pack = [], threading.Barrier(3), suture._torch_state.pack

    def slow(*args):  # in the middle of carrying the state from one core to another
        result = pack(*args)
        time.sleep(1e-3)
        return result

    monkeypatch.setattr(suture._torch_state, "pack", slow)

    def work(m):
        try:
            start.wait(60)
            for k in range(30):
                opt.step_grads([[torch.ones(3), torch.ones(3)]] * m)
                if k % 10 == 5:
                    opt.state_dict()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(m,)) for m in (1, 2, 3)]
    [t.start() for t in threads]
    [t.join(120) for t in threads]
    assert not errors and not any(t.is_alive() for t in threads)
    assert opt.steps == 91 and opt.state_dict()["state"][0]["step"] == 91
