"""
Every aggregator that TorchJD or conflictfree share with Suture, on 500 random matrices each: the same direction to a stated
tolerance, relative to the length of the direction. docs/python.md has the table and the reasons for each difference.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import suture


def matrices(count=500, most=8, least=1):
    """m from 1 (or `least`) to 8 rows of 4 to 40 entries; half of them with rows pushed against the first one, of different lengths."""
    rng = np.random.default_rng(11)
    for k in range(count):
        m, n = int(rng.integers(least, most + 1)), int(rng.integers(most + 2, 40))
        G = rng.standard_normal((m, n))
        if k % 2:
            G[1:] -= rng.uniform(0, 1.5) * G[0]
            G *= rng.uniform(0.3, 3, (m, 1))
        yield G


def worst(theirs, tolerance, method, count=500, least=1, **options):
    """Largest difference, relative to the length of the peer's direction `theirs(G)`."""
    largest = 0.0
    for G in matrices(count, least=least):
        want = theirs(torch.from_numpy(G.copy())).numpy()
        got = suture.combine(G, method, **options)
        largest = max(largest, np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-300))
    print(f"{method} {options}: {count} matrices, largest relative difference {largest:.1e}")
    assert largest < tolerance, f"largest relative difference {largest:.3g}"


@pytest.fixture(scope="module")
def torchjd():
    return pytest.importorskip("torchjd.aggregation")


@pytest.fixture
def conflictfree():
    # Its weights have the default type of PyTorch.
    operators = pytest.importorskip("conflictfree.grad_operator")
    torch.set_default_dtype(torch.float64)
    yield operators
    torch.set_default_dtype(torch.float32)


def optional(make):
    """An aggregator whose solver is an extra of TorchJD's."""
    try:
        return make()
    except ImportError as error:
        pytest.skip(str(error))


def test_mean_and_sum(torchjd):
    worst(torchjd.Mean(), 1e-14, "mean")
    worst(torchjd.Sum(), 1e-14, "sum")


def test_config(torchjd, conflictfree):
    worst(torchjd.ConFIG(), 1e-11, "config")
    worst(conflictfree.ConFIG_update, 1e-11, "config")


def test_config_with_angle_weights(torchjd):
    for m in (2, 5):
        weights = torch.arange(1.0, m + 1, dtype=torch.float64)
        peer = torchjd.ConFIG(pref_vector=weights)
        for G in matrices():
            if len(G) == m:
                got, want = suture.combine(G, "config", preference=weights), peer(torch.from_numpy(G)).numpy()
                assert np.linalg.norm(got - want) < 1e-10 * np.linalg.norm(want)


@pytest.mark.parametrize(
    "peer,name",
    [
        ("TrackMinimum", "minimum"),
        ("TrackMaximum", "maximum"),
        ("TrackHarmonicAverage", "harmonic"),
        ("TrackArithmeticAverage", "arithmetic"),
        ("TrackGeometricAverage", "geometric"),
    ],
)
def test_config_lengths(conflictfree, peer, name):
    model = getattr(pytest.importorskip("conflictfree.length_model"), peer)()
    worst(lambda G: conflictfree.ConFIG_update(G, length_model=model), 1e-10, "config", config_length=name)


def test_config_of_two_losses(conflictfree):
    for G in matrices():
        if len(G) == 2:
            want = conflictfree.ConFIG_update_double(*torch.from_numpy(G)).numpy()
            assert np.linalg.norm(suture.combine(G, "config") - want) < 1e-10 * np.linalg.norm(want)


def test_pcgrad(torchjd, conflictfree, monkeypatch):
    # TorchJD draws its orders; given the same orders the directions agree.
    for k, G in enumerate(matrices()):
        rng = np.random.default_rng(k)
        order = [rng.permutation(len(G)).tolist() for _ in G]
        rows = iter(order)
        with monkeypatch.context() as patch:
            patch.setattr(torch, "randperm", lambda n, **_: torch.tensor(next(rows)))
            want = torchjd.PCGrad()(torch.from_numpy(G)).numpy()
        got = suture.combine(G, "pcgrad", order=order)
        assert np.linalg.norm(got - want) < 1e-12 * np.linalg.norm(want)
    # conflictfree goes through the losses in ascending order.
    operator = conflictfree.PCGradOperator()
    worst(operator.calculate_gradient, 1e-12, "pcgrad", pcgrad_identity_order=True)


def test_imtlg(torchjd, conflictfree):
    # The weights are divided by their sum, which can come close to 0 for conflicting rows: hence the tolerance.
    worst(torchjd.IMTLG(), 1e-8, "imtlg")
    worst(conflictfree.IMTLGOperator().calculate_gradient, 1e-8, "imtlg", least=2)


@pytest.mark.parametrize("scale", ["min", "median", "rmse"])
def test_aligned_mtl(torchjd, scale):
    worst(torchjd.AlignedMTL(scale_mode=scale), 1e-10, "aligned_mtl", aligned_scale=scale)


def test_mgda(torchjd):
    worst(torchjd.MGDA(), 1e-10, "mgda", mgda_frank_wolfe=True)
    # The exact solution is never longer than the iteration's.
    for G in matrices(100):
        exact = np.linalg.norm(suture.combine(G, "mgda"))
        assert exact <= np.linalg.norm(torchjd.MGDA()(torch.from_numpy(G)).numpy()) * (1 + 1e-12)


def test_upgrad_and_dualproj(torchjd):
    # Both solve the same regularised problems; theirs to the precision of a general solver.
    worst(optional(torchjd.UPGrad), 1e-6, "upgrad")
    worst(optional(torchjd.DualProj), 1e-6, "dualproj")


def test_cagrad(torchjd):
    # Theirs is not rescaled, comes from an interior-point solver (its weights have about five digits), and multiplies a
    # single gradient by 1 + c.
    worst(optional(lambda: torchjd.CAGrad(c=0.4)), 2e-3, "cagrad", least=2, cagrad_c=0.4, cagrad_rescale=0)


@pytest.mark.filterwarnings("ignore:You are solving a parameterized problem")
def test_nash(torchjd):
    # Theirs stops after some rounds of a linearised problem: the directions agree roughly, and ours satisfies the equation.
    optional(lambda: torchjd.NashMTL(n_tasks=2))
    cosines = []
    for G in matrices(500, most=4, least=2):
        w = suture.weights(G, "nash", nash_max_norm=0)
        np.testing.assert_allclose(G @ G.T @ w * w, 1, rtol=1e-9)
        if len(cosines) == 60:
            continue  # the peer takes a tenth of a second for each
        theirs = torchjd.NashMTL(n_tasks=len(G), max_norm=1.0, optim_niter=20)(torch.from_numpy(G)).numpy()
        ours = suture.combine(G, "nash")
        cosines.append(ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs))
    print(f"nash: cosine with the peer: smallest {min(cosines):.6f}, median {np.median(cosines):.6f}")
    assert np.median(cosines) > 0.999
