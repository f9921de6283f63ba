"""Writers of reports."""

import csv

import numpy as np
import pytest
import suture


def reports(n=5):
    x = np.ones(2)
    opt = suture.Optimizer(x, "sgd", lr=0.1, n_losses=2, align="gua")
    return [opt.step([np.array([3.0, 0]), np.array([-1.0, 1])]) for _ in range(n)]


def test_csv(tmp_path):
    made = reports()
    with suture.CSVWriter(tmp_path / "a.csv", only=["cos_p", "relative_change"], every=2) as log:
        for k, r in enumerate(made):
            log(r, loss=0.5 * k)
    rows = list(csv.DictReader(open(tmp_path / "a.csv")))
    assert [int(r["step"]) for r in rows] == [1, 3, 5]
    assert set(rows[0]) == {"step", "cos_p.0", "cos_p.1", "relative_change", "loss"}
    assert float(rows[1]["cos_p.1"]) == made[2].cos_p[1] and float(rows[2]["loss"]) == 2.0
    with suture.CSVWriter(tmp_path / "b.csv") as log:
        log(made[0])
    (row,) = csv.DictReader(open(tmp_path / "b.csv"))
    assert float(row["projected"]) == 1.0 and "lambda.0" in row
    with pytest.raises(ValueError, match="every is 0"):
        suture.CSVWriter(tmp_path / "c.csv", every=0)


def test_tensorboard_calls():
    class Writer:
        seen = []

        def add_scalar(self, name, value, step):
            self.seen.append((name, value, step))

    log = suture.TensorBoardWriter(Writer(), only=["conflict_u"])
    for r in reports(3):
        log(r, loss=1.0)
    assert Writer.seen[:2] == [("suture/conflict_u", 1.0, 1), ("suture/loss", 1.0, 1)] and len(Writer.seen) == 6
    with pytest.raises(TypeError, match="add_scalar"):
        suture.TensorBoardWriter(object())


def test_tensorboard_file(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    writer = tensorboard.SummaryWriter(str(tmp_path))
    log = suture.TensorBoardWriter(writer)
    for r in reports(2):
        log(r)
    writer.close()
    assert any(f.stat().st_size > 500 for f in tmp_path.iterdir())


def test_csv_refuses_what_has_no_column(tmp_path):
    def report(m):
        return suture.Optimizer(np.ones(2), "sgd", n_losses=m).step([np.ones(2)] * m)

    with suture.CSVWriter(tmp_path / "a.csv") as log:
        log(report(2))
        with pytest.raises(ValueError, match="'.*2' is not among the columns"):
            log(report(3))
        log(report(2))
        log(report(1))
        with pytest.raises(TypeError, match="there is no report"):
            log(None)
    rows = (tmp_path / "a.csv").read_text().splitlines()
    assert len(rows) == 4 and len({row.count(",") for row in rows}) == 1
    with suture.CSVWriter(tmp_path / "b.csv", only=["cos_p", "cosp"]) as log:
        with pytest.raises(ValueError, match="no figure 'cosp'"):
            log(report(2))
