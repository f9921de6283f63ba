"""
The golden files through Python: projections, surgery, whole aligned steps, rules. The C runners (tests/golden) check every figure;
here what a Python caller sees is checked, with the same tolerances (f64).
"""

import numpy as np
import pytest
import suture

from conftest import golden


def close(got, want, rtol, arel, aabs=0.0, label=""):
    want = np.asarray(want, float)
    bound = rtol * np.abs(want) + arel * (np.abs(want).max() if want.size else 0) + aabs
    bad = ~(np.abs(np.asarray(got, float) - want) <= bound)
    assert not bad.any(), f"{label}: {np.asarray(got)[bad][:3]} instead of {want[bad][:3]}"


def test_cone():
    cases = golden("cone.json")["cases"]
    for c in cases:
        p, info = suture.project(np.array(c["u"], float), np.array(c["G"], float), np.array(c["d"], float) if c.get("d") else None)
        want = c["expect"]
        assert np.abs(p - np.array(want["p"])).max() <= want["abs_tol"], c["id"]
        if want["kind"] == "feasible":
            assert p.tobytes() == np.array(c["u"], float).tobytes() and info.kind == "unchanged", c["id"]
        if want["kind"] == "zero":
            assert not p.any() and info.kind == "zero", c["id"]
    assert len(cases) >= 60


#: What the names in the golden file stand for.
SURGERY = {
    "sum": ("sum", {}), "mean": ("mean", {}), "config": ("config", {}), "pcgrad": ("pcgrad", {"pcgrad_identity_order": True}),
    "imtlg": ("imtlg", {}), "aligned_min": ("aligned_mtl", {}), "aligned_median": ("aligned_mtl", {"aligned_scale": "median"}),
    "aligned_rmse": ("aligned_mtl", {"aligned_scale": "rmse"}), "upgrad": ("upgrad", {}),
    "upgrad_exact": ("upgrad", {"norm_eps": 0, "reg_eps": 0}), "dualproj": ("dualproj", {}),
    "dualproj_exact": ("dualproj", {"norm_eps": 0, "reg_eps": 0}), "mgda": ("mgda", {}),
    "mgda_fw": ("mgda", {"mgda_frank_wolfe": True}), "nash": ("nash", {"nash_max_norm": 0}),
    "nash_clip1": ("nash", {"nash_max_norm": 1}), "sdmgrad": ("sdmgrad", {}), "cagrad": ("cagrad", {}),
    "cagrad_c0.4_r0": ("cagrad", {"cagrad_c": 0.4, "cagrad_rescale": 0}),
    "cagrad_c2_r2": ("cagrad", {"cagrad_c": 2.0, "cagrad_rescale": 2}),
}
#: Names whose options are in the case.
FROM_CASE = {"config_weighted": ("config", "preference", "config_weights"), "pcgrad_perm": ("pcgrad", "order", "orders")}
NOT_BUILT = {"graddrop"}


def test_surgery():
    done = 0
    for c in golden("surgery.json")["cases"]:
        G = np.array(c["G"], float)
        for name, want in c["expect"].items():
            if name in NOT_BUILT:
                continue
            if name in FROM_CASE:
                method, option, key = FROM_CASE[name]
                options = {option: c[key]}
            else:
                method, options = SURGERY[name]
            if want["status"] == "undefined":
                with pytest.raises(suture.UndefinedError):
                    suture.combine(G, method, **options)
            else:
                a = suture.combine(G, method, **options)
                error = np.abs(a - np.array(want["direction"])).max()
                assert error <= want["abs_tol"], f"{c['id']}: {name}: off by {error}"
                if c.get("f32_exact"):
                    low = suture.combine(G.astype(np.float32), method, **options)
                    allowed = want["abs_tol"] + 4 * (len(G) + 2) * 2.0**-24 * want.get("abs_sum", 0)
                    assert np.abs(low - np.array(want["direction"])).max() <= allowed, f"{c['id']}: {name} in f32"
            done += 1
    assert done > 800


def optimizer(c, theta, m, **more):
    hyper = dict(c["hyper"])
    if hyper.pop("decoupled", c["optimizer"] == "adamw") != (c["optimizer"] == "adamw"):
        return None
    if "raw_realign" in hyper:
        hyper["realign_raw"] = hyper.pop("raw_realign")
    return suture.Optimizer({"theta": theta}, c["optimizer"], n_losses=m, **hyper, **more)


def check_state(opt, state, tol, label):
    mine = opt.state("theta")
    for name, want in state.items():
        if name == "t":
            assert mine["step"] == want, label
        elif name in mine:
            close(np.ravel(mine[name]), np.ravel(want), *tol, label=f"{label}, {name}")
        else:
            assert name in ("b", "mu_prod", "Pi") and (name != "b" or not np.any(want)), f"{label}: no {name}"


def cases_of(kind):
    data = golden("optim.json")
    for c in data["cases"]:
        if c["kind"] == kind and c["optimizer"] in suture.optimizer_methods:
            d = data["defaults"]
            yield c, [c.get(k, d.get(k, v)) for k, v in (("rtol", 1e-10), ("arel", 1e-13), ("aabs", 0.0))], data["data"]


def resolve(value, table):
    return table[value[1:]] if isinstance(value, str) else value


def test_rules():
    done = 0
    for c, tol, table in cases_of("steps"):
        theta = np.array(resolve(c["theta0"], table), float)
        opt = optimizer(c, theta, 1)
        if opt is None:
            continue
        grads = resolve(c["grads"], table)
        for t, want in enumerate(c["steps"]):
            if "lr_per_step" in c:
                opt.lr = c["lr_per_step"][t]
            opt.step([np.array(resolve(grads[t], table), float)], report=False)
            close(theta, resolve(want["theta"], table), *tol, label=f"{c['id']}, step {t + 1}")
            check_state(opt, want["state"], tol, f"{c['id']}, step {t + 1}")
        done += 1
    assert done >= 20, done


def test_aligned_steps():
    done = 0
    for c, tol, table in cases_of("gua"):
        theta = np.array(resolve(c["theta0"], table), float)
        G = c["G"]
        opt = optimizer(
            c, theta, len(G[0]), surgery=c["direction"], align="gua", rho_m=c.get("rho_m", 0), rho_v=c.get("rho_v", 0),
            conflict_cos_tol=c.get("conflict_cos_tol", 1e-6), correction_distance_tol=c.get("correction_distance_tol", 1e-8),
            metric="euclidean" if c.get("metric") == "euclidean" else "natural",
        )
        if opt is None:
            continue
        for t, want in enumerate(c["steps"]):
            if "lr_per_step" in c:
                opt.lr = c["lr_per_step"][t]
            rows = [np.array(resolve(g, table), float) for g in G[t]]
            _, (a,) = opt.direction(rows)
            report = opt.step(rows)
            label = f"{c['id']}, step {t + 1}"
            close(a, resolve(want["a"], table), *tol, label=label)
            close(theta, resolve(want["theta"], table), *tol, label=label)
            check_state(opt, want["state"], tol, label)
            if "skipped" in want:
                assert not report.moved, label
                continue
            assert report.projected == bool(want["conflict"]), label
            close(report.relative_change, want["relative_change"], 1e-9, 0, 1e-11, label)
            if report.projected:
                assert min(report.cos_p) >= -1e-12 and report.complementarity < 1e-10, label
        done += 1
    assert done >= 18, done
