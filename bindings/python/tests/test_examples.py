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
