"""What the package promises before any array is touched: versions, names, exceptions, diagnosis, types."""

import importlib.metadata
import pathlib
import re
import subprocess
import sys

import pytest
import suture
from suture import _suture

from conftest import ROOT


def test_version_is_that_of_the_library():
    header = (ROOT / "include" / "suture" / "status.h").read_text()
    parts = [re.search(rf"SUT_VERSION_{k} (\d+)", header).group(1) for k in ("MAJOR", "MINOR", "PATCH")]
    assert suture.__version__ == ".".join(parts)
    assert importlib.metadata.version("suture") == suture.__version__


def test_every_status_has_an_exception():
    header = (ROOT / "include" / "suture" / "status.h").read_text()
    codes = {int(x) for x in re.findall(r"SUT_ERROR_\w+ = (\d+)", header)}
    assert {e.status for e in suture.exceptions} == codes
    for e in suture.exceptions:
        assert issubclass(e, suture.Error) and e.__doc__
        assert getattr(suture, e.__name__) is e


def test_every_option_of_the_structs_has_a_keyword():
    def members(header, struct):
        text = (ROOT / "include" / "suture" / header).read_text()
        body = re.search(rf"typedef struct {struct} \{{(.*?)\n\}} {struct};", text, re.S).group(1)
        body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        return set(re.findall(r"(\w+)\s*;", body))

    own = {"struct_size", "method"}
    assert set(_suture.surgery_options) == members("surgery.h", "sut_surgery_config") - own
    given = {"tensors", "n_tensors", "groups", "n_groups", "hyper", "n_losses", "loss_names", "surgery", "use_schedule"}
    assert set(_suture.optimizer_options) == members("optimizer.h", "sut_optimizer_config") - own - given


def test_every_member_of_the_reports_is_there():
    def members(header, struct):
        text = (ROOT / "include" / "suture" / header).read_text()
        body = re.search(rf"typedef struct {struct} \{{(.*?)\n\}} {struct};", text, re.S).group(1)
        body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        names = set()
        for line in body.split(";"):
            names |= set(re.findall(r"(\w+)(?:\[\w+\])?\s*(?:,|$)", line.strip()))
        return names - {"struct_size"}

    import numpy as np

    opt = suture.Optimizer(np.ones(3), "adam", n_losses=2)
    report = opt.step([np.ones(3), -np.ones(3)])
    assert set(report.to_dict()) == members("optimizer.h", "sut_report")
    _, cone = suture.project(np.ones(3), np.ones((2, 3)))
    assert set(cone.to_dict()) == members("cone.h", "sut_cone_report")
    _, surgery = suture.combine(np.ones((2, 3)), "sum", report=True)
    assert set(surgery.to_dict()) == members("surgery.h", "sut_surgery_report")
    for r in (report, cone, surgery):
        for name, value in r.to_dict().items():
            assert getattr(r, "lambda_" if name == "lambda" else name) == value


def test_every_kind_of_projection_has_a_name():
    header = (ROOT / "include" / "suture" / "cone.h").read_text()
    source = (ROOT / "bindings" / "python" / "src" / "report.cpp").read_text()
    kinds = [name.lower() for name in re.findall(r"SUT_CONE_(\w+) = \d", header)]
    assert re.findall(r'"(\w+)"', re.search(r"kinds\[\] = {(.*?)}", source).group(1)) == kinds


def test_reports_and_exceptions_can_be_copied_and_pickled():
    import copy
    import pickle

    import numpy as np

    opt = suture.Optimizer(np.ones(3), "adam", n_losses=2, align="gua")
    for k in range(3):
        step = opt.step([np.array([1.0, 2, 3]), -np.array([1.0, 2 + k, 4])])
    _, cone = suture.project(np.array([-1.0, 0, 0]), np.array([[1.0, 0, 1], [0, 1, 2]]))
    _, zero = suture.project(np.ones(3), np.array([[1.0, 0, 0], [-1, 0, 0], [0, -1, 0], [0, 0, -1]]))
    _, frozen = suture.project(np.array([-1.0, 1]), np.array([[1.0, 0]]), np.array([np.inf, 1]))
    assert frozen.kind == "infeasible"
    _, surgery = suture.combine(np.array([[1.0, 2, 3], [-1, 2, 0]]), "cagrad", report=True)
    conflict = suture.conflict(np.eye(3), np.ones(3))
    assert step.projected and cone.kind == "boundary" and zero.kind == "zero" and surgery.iterations > 0
    for report in (step, cone, zero, frozen, surgery, conflict):
        for other in (copy.copy(report), copy.deepcopy(report), *(pickle.loads(pickle.dumps(report, k)) for k in range(2, 6))):
            assert type(other) is type(report) and other is not report
            assert other.to_dict() == report.to_dict() and repr(other) == repr(report)
    assert copy.deepcopy({"log": [step]})["log"][0].cos_p == step.cos_p
    for kind in suture.exceptions:
        error = pickle.loads(pickle.dumps(kind("text")))
        assert type(error) is kind and str(error) == "text" and error.status == kind.status


def test_diagnosis_is_readable_and_complete():
    d = suture.diagnose()
    assert d["suture"] == suture.__version__
    assert d["processors"] >= 1
    assert "OpenBLAS" in d["OpenBLAS"]
    c = _suture.capabilities()
    assert c["cuda_found"] in d["CUDA"] if c["cuda"] else d["CUDA"] == f"not used: {c['cuda_reason']}" != "not used: "
    assert "instruction set" in str(d)


def test_import_needs_neither_torch_nor_jax():
    code = (
        "import sys\n"
        "sys.modules['torch'] = None; sys.modules['jax'] = None\n"
        "import suture, numpy as np\n"
        "print(suture.combine(np.array([[1., 0], [0, 1]]), 'sum'))\n"
        "d = suture.diagnose()\n"
        "assert 'cannot be imported' in d['torch'] or 'pip install' in d['torch'], d['torch']\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip() == "[1. 1.]"


def test_old_versions_of_torch_are_refused_by_name():
    pytest.importorskip("torch")
    code = "import torch; torch.__version__ = {!r}\nimport suture.torch; print(suture.torch._compiler() is None)"
    ends = [
        subprocess.run([sys.executable, "-c", code.format(version)], capture_output=True, text=True, timeout=120)
        for version in ("2.5.1+cu121", "2.7.0a0+git", "2.10.0", "3.0.1.dev2")
    ]
    assert "suture.torch needs PyTorch 2.6 or later; this is 2.5.1+cu121" in ends[0].stderr
    assert [end.stdout for end in ends] == ["", "False\n", "True\n", "True\n"], ends[1].stderr


def test_changes_are_counted_whatever_the_function_takes():
    from types import SimpleNamespace

    from suture._arrays import change_counter

    seen = []

    def single(tensor):
        if isinstance(tensor, list):
            raise RuntimeError("expects a tensor")
        seen.append(tensor)

    change_counter(SimpleNamespace(_C=SimpleNamespace(_increment_version=single)))([1, 2])
    change_counter(SimpleNamespace(_C=SimpleNamespace(_increment_version=seen.extend)))([3, 4])
    assert seen == [1, 2, 3, 4]
    assert change_counter(SimpleNamespace(_C=SimpleNamespace())) is None


def test_old_versions_of_jax_are_refused_by_name():
    pytest.importorskip("jax")
    code = "import jax; jax.__version__ = '0.4.34'\nimport suture.jax"
    end = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "suture.jax needs JAX 0.4.35 or later; this is 0.4.34" in end.stderr


def test_everything_is_imported_without_torch_and_jax():
    code = (
        "import sys\n"
        "sys.modules['torch'] = None; sys.modules['jax'] = None\n"
        "from suture import *\n"
        "import suture\n"
        "assert combine is suture.combine\n"
        "assert not hasattr(suture, 'torch') and not hasattr(suture, 'jax')\n"
        "try:\n    suture.torch.Optimizer\n"
        "except AttributeError as error:\n    print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    assert out.stdout.startswith("module 'suture' has no attribute 'torch' here: ") and "torch" in out.stdout.split(": ")[1]


def test_the_extra_peers_is_what_the_tests_install():
    def names(text):
        return {re.match(r"[a-z]+(\[\w+\])?", entry).group(0) for entry in text}

    script = (ROOT / "tests" / "python.sh").read_text()
    installed = names(re.search(r"for peer in (.*?); do", script).group(1).replace('"', "").split())
    extra = re.search(r"^peers = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.S | re.M).group(1)
    assert names(re.findall(r'"(.*?)"', extra)) == installed | {"pytest"}


def test_stubs_and_marker_are_installed():
    folder = pathlib.Path(suture.__file__).parent
    assert (folder / "py.typed").exists()
    stub = (folder / "_suture.pyi").read_text()
    for name in ("class Optimizer", "class Report", "def project", "cos_p"):
        assert name in stub


def test_unknown_attribute():
    with pytest.raises(AttributeError):
        suture.no_such_thing


def test_mypy_accepts_a_program_that_uses_the_package(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\nimport suture\n"
        "opt = suture.Optimizer([np.ones(3)], 'adam', lr=1e-3, n_losses=2)\n"
        "report = opt.step([[np.ones(3)], [np.ones(3)]])\n"
        "x: float = report.relative_change\n"
        "y: dict = report.to_dict()\n"
        "multipliers: tuple[float, ...] = report.lambda_\n"
        "multipliers = suture.project(np.ones(3), np.ones((2, 3)))[1].lambda_\n"
        "cone = suture.ConeReport.lambda_\n"
        "for kind in suture.exceptions:\n    status: int = kind.status\n"
        "try:\n    opt.step([])\nexcept suture.NotFiniteError as error:\n    print(error, suture.__version__)\n"
    )
    out = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path), str(program)], capture_output=True, text=True
    )
    assert out.returncode == 0, out.stdout


def test_mypy_strict_accepts_the_package(tmp_path):
    for module in ("mypy", "torch", "jax"):
        pytest.importorskip(module)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "-p", "suture"]
    out = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert out.returncode == 0, out.stdout + out.stderr


@pytest.mark.parametrize("threads", [False, True])
def test_nothing_is_said_about_leaks(threads):
    code = f"""
import threading, time, numpy as np, suture
from suture import _suture
_suture.leak_warnings({not threads})  # without threads that are killed inside, nothing is left over
def work():
    x = np.ones(1 << 20)
    opt = suture.Optimizer(x, "adam", threads=1)
    for _ in range(1_000_000 if {threads} else 3):
        report = opt.step([np.ones(1 << 20)])
        suture.project(x, [x, -x])
        suture.combine([x, x], "config", report=True)
if {threads}:
    for _ in range(2):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.3)
else:
    work()
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert out.returncode == 0 and out.stderr == "", out.stderr


def test_the_documentation_names_the_versions_that_are_tested():
    text = (ROOT / "docs" / "python.md").read_text()
    head, *rows = re.search(r"(\| Python \|.*?)\n\n", text, re.S).group(1).splitlines()
    names = [name.strip() for name in head.strip("|").split("|")]
    tested = [dict(zip(names, (cell.strip() for cell in row.strip("|").split("|")))) for row in rows[1:]]
    mine = [row for row in tested if row["Python"].split()[0] == ".".join(map(str, sys.version_info[:2]))]
    if not mine:
        pytest.skip("the documentation does not claim that this version of Python is tested")
    other = []
    for name in names[1:]:
        try:
            version = importlib.metadata.version(name.replace("PyTorch", "torch")).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
        if mine[0][name] != version:
            other.append(f"{name} {version}")
    # No version is named anywhere else.
    assert not re.search(r"(PyTorch|TorchJD|optax|JAX|NumPy) \d+\.\d", text)
    if other:
        pytest.skip(f"other versions than the documentation names: {', '.join(other)}")
