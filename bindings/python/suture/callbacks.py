"""Reports of steps, written where people look at them. Each writer is called with a report and holds one file."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, Mapping, Sequence

from ._suture import Report


def _figures(report: Report, extra: Mapping[str, float] | None) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, value in report.to_dict().items():
        if isinstance(value, tuple):
            figures.update({f"{name}.{i}": float(x) for i, x in enumerate(value)})
        elif name not in ("step", "n_losses"):
            figures[name] = float(value)
    for name, value in (extra or {}).items():
        figures[name] = float(value)
    return figures


def _has(row: Mapping[str, float], name: str) -> bool:
    return name in row or any(key.split(".")[0] == name for key in row)


class CSVWriter:
    """
    One row per report: the step and every figure of the report, entries per loss as ``cos_p.0``, ``cos_p.1``, ...

        with suture.CSVWriter("conflicts.csv") as log:
            for ...:
                log(opt.step_losses(losses), loss=total)

    :param only: names of the figures that are wanted (``["cos_p", "relative_change"]``); None: all.
    :param every: write every so many reports.
    """

    def __init__(self, path: str | Path, only: Sequence[str] | None = None, every: int = 1) -> None:
        if every < 1:
            raise ValueError(f"every is {every}; 1 or more is needed")
        self._file = open(path, "w", newline="")
        self._writer: csv.DictWriter[str] | None = None
        self._only = None if only is None else set(only)
        self._every = every
        self._seen = 0

    def __call__(self, report: Report | None, **extra: float) -> None:
        if report is None:
            raise TypeError("there is no report: step with report=True (keep_reports = True for step() of suture.torch)")
        self._seen += 1
        if (self._seen - 1) % self._every:
            return
        row: dict[str, float] = {"step": report.step}
        for name, value in _figures(report, extra).items():
            if self._only is None or name in self._only or name.split(".")[0] in self._only or name in extra:
                row[name] = value
        if self._writer is None:
            missing = sorted(name for name in self._only or () if name != "step" and not _has(row, name))
            if missing:
                raise ValueError(f"a report has no figure '{missing[0]}'; there are {', '.join(report.to_dict())}")
            self._writer = csv.DictWriter(self._file, list(row))
            self._writer.writeheader()
        new = [name for name in row if name not in self._writer.fieldnames]
        if new:
            raise ValueError(
                f"'{new[0]}' is not among the columns, which the first report fixed; begin a file of its own when the "
                "number of losses grows"
            )
        self._writer.writerow(row)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> CSVWriter:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class TensorBoardWriter:
    """
    The figures of each report as scalars below ``tag``. ``writer`` is anything with ``add_scalar(name, value, step)``: the
    SummaryWriter of torch.utils.tensorboard or of tensorboardX.
    """

    def __init__(self, writer: Any, tag: str = "suture", only: Sequence[str] | None = None, every: int = 1) -> None:
        if not hasattr(writer, "add_scalar"):
            raise TypeError("writer has no method add_scalar; pass a SummaryWriter")
        if every < 1:
            raise ValueError(f"every is {every}; 1 or more is needed")
        self._writer, self._tag, self._every, self._seen = writer, tag, every, 0
        self._only = None if only is None else set(only)

    def __call__(self, report: Report | None, **extra: float) -> None:
        if report is None:
            raise TypeError("there is no report: step with report=True (keep_reports = True for step() of suture.torch)")
        self._seen += 1
        if (self._seen - 1) % self._every:
            return
        for name, value in _figures(report, extra).items():
            if self._only is None or name in self._only or name.split(".")[0] in self._only or name in extra:
                self._writer.add_scalar(f"{self._tag}/{name}", value, report.step)
