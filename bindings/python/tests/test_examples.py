"""The examples run, in a short form, and show what they say. The lines that README and docs print run as printed."""

import re
import subprocess
import sys

import pytest

from conftest import ROOT

EXAMPLES = ROOT / "bindings" / "python" / "examples"


def run(tmp_path, name, *args):
    out = subprocess.run([sys.executable, EXAMPLES / name, *args], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    return out.stdout


def test_numpy_quadratics(tmp_path):
    rows = run(tmp_path, "numpy_quadratics.py", "--steps", "120").splitlines()
    shares = [float(re.search(r"([\d.]+) %", row).group(1)) for row in rows]
    assert shares[0] > 5 and shares[2] == 0


def test_mtl_torch(tmp_path):
    pytest.importorskip("torch")
    rows = run(tmp_path, "mtl_torch.py", "--steps", "60").splitlines()
    shares = [float(re.search(r"([\d.]+) %", row).group(1)) for row in rows[1:]]
    assert shares[2] == 0 and shares[0] > 0


def test_burgers_torch(tmp_path):
    pytest.importorskip("torch")
    args = ["--steps", "30", "--points", "64", "--csv", "aligned.csv"]
    try:
        import matplotlib  # noqa: F401

        args += ["--plot", "conflicts.png"]
    except ImportError:
        pass
    text = run(tmp_path, "burgers_torch.py", *args)
    shares = {row.split("  ")[0]: [float(x) for x in re.findall(r"([\d.]+)%", row)] for row in text.splitlines() if "%" in row}
    assert shares["aligned"][3] == 0
    assert len((tmp_path / "aligned.csv").read_text().splitlines()) == 31
    if "--plot" in args:
        assert (tmp_path / "conflicts.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("name", ["numpy_quadratics.py", "mtl_torch.py", "burgers_torch.py"])
def test_no_steps_are_refused_in_a_sentence(name):
    if "torch" in name:
        pytest.importorskip("torch")
    out = subprocess.run([sys.executable, EXAMPLES / name, "--steps", "0"], capture_output=True, text=True, timeout=300)
    assert out.returncode == 2 and "--steps must be at least 1" in out.stderr and "Traceback" not in out.stderr


def test_printed_programs_with_imports_stand_alone(tmp_path):
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.S)
    alone = [program for program in programs if re.search(r"^import ", program, re.M)]
    assert len(alone) >= 3
    for library in ("torch", "jax", "optax"):
        if any(f"import {library}" in p for p in alone):
            pytest.importorskip(library)
    for program in alone:
        (tmp_path / "program.py").write_text(program)
        out = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, timeout=280, cwd=tmp_path)
        assert out.returncode == 0, program + out.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_printed_programs_run(tmp_path, page):
    text = (ROOT / page).read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.S)
    if not programs:
        pytest.skip(f"{page} prints no Python yet")
    for library in ("torch", "jax", "optax"):
        if any(f"import {library}" in p or f"suture.{library}" in p for p in programs):
            pytest.importorskip(library)
    namespace = {}
    import os

    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        for program in programs:
            exec(compile(program, page, "exec"), namespace)
    finally:
        os.chdir(here)


def test_the_three_lines_of_the_readme(tmp_path):
    """The program as it is printed, and the one that it was before, which the comments of the three lines spell out."""
    pytest.importorskip("torch")
    section = re.search(r"## In Python\n(.*?)\n## ", (ROOT / "README.md").read_text(), re.S).group(1)
    (program,) = re.findall(r"```python\n(.*?)```", section, re.S)
    lines = program.splitlines()
    assert [n for n in re.findall(r"# (\d): ", program)] == ["1", "2", "3"]
    before = []
    for line in lines:
        if before and before[-1].startswith("was "):
            before[-1] = before[-1][4:]  # the line after a "was" is the new one
        elif "# 1: new" in line or line == "print(report)":
            continue
        elif "# 2: was" in line or "# 3: was" in line:
            indent = line[: len(line) - len(line.lstrip())]
            before.append("was " + indent + line.split(": was ")[1])
        else:
            before.append(line)
    assert len(before) == len(lines) - 4 and "suture" not in "\n".join(before)
    errors = []
    for name, text in (("after.py", program), ("before.py", "\n".join(before))):
        (tmp_path / name).write_text(text)
        out = subprocess.run([sys.executable, name], capture_output=True, text=True, timeout=280, cwd=tmp_path)
        assert out.returncode == 0 and out.stderr == "", out.stderr
        errors.append(float(re.search(r"largest error (.*)", out.stdout).group(1)))
        assert ("Report(step 300" in out.stdout) == (name == "after.py")
    assert errors[0] < 1e-2


def test_several_processes_make_one_step(tmp_path):
    """The function that the documentation prints, in two processes with data of their own; without it both are told."""
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("PyTorch was built without gloo")
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.S)
    (recipe,) = [program for program in programs if program.startswith("def step_in_all_processes")]
    (tmp_path / "program.py").write_text(
        f"""
import sys, warnings
import torch
import suture.torch
{recipe}
def losses(model, rank):
    y = model(torch.linspace(-1, 1 + rank, 12).reshape(4, 3))
    return [y[:, 0].pow(2).mean(), (y[:, 1] - 1).pow(2).mean()]

def network():
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    return model, suture.torch.Optimizer(model.parameters(), "adam", lr=0.05, surgery="config", align="gua")

def work(rank, where):
    torch.distributed.init_process_group("gloo", init_method=f"file://{{where}}", rank=rank, world_size=2)
    model, opt = network()
    for _ in range(20):
        step_in_all_processes(opt, list(model.parameters()), losses(model, rank))
    found = [torch.zeros(2, 3) for _ in range(2)]
    torch.distributed.all_gather(found, model.weight.detach())
    assert torch.equal(*found)
    alone, other = network()
    for _ in range(20):
        pairs = zip(losses(alone, 0), losses(alone, 1))
        other.step_grads([torch.autograd.grad((a + b) / 2, list(alone.parameters()), retain_graph=True) for a, b in pairs])
    torch.testing.assert_close(alone.weight, model.weight, rtol=1e-4, atol=1e-5)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            opt.step_losses(losses(model, rank))
    assert len(told) == 1 and "average them" in str(told[0].message), told
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    open(f"fine.{{rank}}", "w").close()  # two processes that print do it at once

if __name__ == "__main__":
    torch.multiprocessing.spawn(work, args=(sys.argv[1],), nprocs=2)
"""
    )
    out = subprocess.run([sys.executable, "program.py", tmp_path / "meeting"], capture_output=True, text=True, timeout=280, cwd=tmp_path)
    assert out.returncode == 0, out.stdout + out.stderr
    assert all((tmp_path / f"fine.{rank}").exists() for rank in range(2))


def test_every_option_is_documented():
    import suture

    pages = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in ("surgery", "optimizers", "alignment", "python")}
    missing = [name for name in suture._suture.surgery_options if f"`{name}`" not in pages["surgery"]]
    everything = "".join(pages.values())
    missing += [name for name in suture._suture.optimizer_options if f"`{name}" not in everything]
    for method in suture._suture.optimizer_methods.values():
        missing += [name for name in method if f"`{name}" not in everything and name not in ("beta1", "beta2")]
    assert not missing
