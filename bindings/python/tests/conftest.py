"""What the tests share. They run against the installed package; peers that are not installed skip their tests by name."""

import json
import os
import pathlib

# Small networks gain nothing from threads, and threads that wait for each other lose much on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDEN = pathlib.Path(os.environ.get("SUTURE_GOLDEN", ROOT / "tests" / "golden" / "data"))


def golden(name):
    path = GOLDEN / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return json.loads(path.read_text())


def same_bits(a, b):
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.fixture
def rng():
    return np.random.default_rng(20240907)
