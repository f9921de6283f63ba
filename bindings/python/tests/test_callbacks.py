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
    assert not (tmp_path / "c.csv").exists()


class Recorder:
    def __init__(self):
        self.seen, self.flushed = [], 0

    def add_scalar(self, name, value, step):
        self.seen.append((name, value, step))

    def flush(self):
        self.flushed += 1


def test_tensorboard_calls():
    writer = Recorder()
    with suture.TensorBoardWriter(writer, only=["conflict_u"]) as log:
        for r in reports(3):
            log(r, loss=1.0)
    assert writer.seen[:2] == [("suture/conflict_u", 1.0, 1), ("suture/loss", 1.0, 1)] and len(writer.seen) == 6
    assert writer.flushed == 1
    suture.TensorBoardWriter(writer, tag="run/a")(reports(1)[0])
    assert writer.seen[-1][0].startswith("run/a/")
    with pytest.raises(TypeError, match="of type object, which has no method add_scalar"):
        suture.TensorBoardWriter(object())


def of_csv(path, *args, **kwargs):
    return suture.CSVWriter(path / "log.csv", *args, **kwargs)


def of_tensorboard(path, *args, **kwargs):
    return suture.TensorBoardWriter(Recorder(), *args, **kwargs)


@pytest.mark.parametrize("make", [of_csv, of_tensorboard])
def test_both_writers_refuse_the_same(make, tmp_path):
    def report(m):
        return suture.Optimizer(np.ones(2), "sgd", n_losses=m).step([np.ones(2)] * m)

    for args, error, match in (
        ((None, 0), ValueError, "every is 0; 1 or more"),
        ((None, "a"), TypeError, "every is 'a', not an integer"),
        (("cos_p",), TypeError, "only is 'cos_p'; a list of names"),
        (([3],), TypeError, r"only is \[3\]; a list of names"),
    ):
        with pytest.raises(error, match=match):
            make(tmp_path, *args)
    with make(tmp_path) as log:
        with pytest.raises(TypeError, match="there is no report: step with report=True"):
            log(None)
        with pytest.raises(TypeError, match="a report of a step is needed, this is of type dict"):
            log({})
        with pytest.raises(TypeError, match="loss is 'a', not a number"):
            log(report(2), loss="a")
        with pytest.raises(ValueError, match="'norm_a' is a figure of the report already"):
            log(report(2), norm_a=1.0)
        log(report(2), loss=1)
        for r, extra, match in ((report(3), {}, "'.*2' is not among the columns"), (report(2), {"other": 1}, "'other' is not among")):
            with pytest.raises(ValueError, match=match):
                log(r, **extra)
        log(report(2), loss=np.float32(2))
        log(report(1))
    with make(tmp_path, ["cos_p", "cosp"]) as log:
        with pytest.raises(ValueError, match="no figure 'cosp'; there are .*cos_p"):
            log(report(2))
    with make(tmp_path, ["cos_p.1", "step"], 2) as log:
        for k in range(5):
            log(report(2))
        if make is of_tensorboard:
            assert [name for name, _, _ in log._writer.seen] == ["suture/cos_p.1"] * 3
    if make is of_csv:
        assert (tmp_path / "log.csv").read_text().splitlines()[0] == "step,cos_p.1"


def test_tensorboard_file(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    writer = tensorboard.SummaryWriter(str(tmp_path))
    log = suture.TensorBoardWriter(writer)
    for r in reports(2):
        log(r)
    writer.close()
    assert any(f.stat().st_size > 500 for f in tmp_path.iterdir())


def test_rows_of_a_csv_file_are_whole(tmp_path):
    def report(m):
        return suture.Optimizer(np.ones(2), "sgd", n_losses=m).step([np.ones(2)] * m)

    with suture.CSVWriter(tmp_path / "a.csv") as log:
        log(report(2))
        with pytest.raises(ValueError, match="not among the columns"):
            log(report(3))
        log(report(2))
        log(report(1))
    rows = (tmp_path / "a.csv").read_text().splitlines()
    assert len(rows) == 4 and len({row.count(",") for row in rows}) == 1
