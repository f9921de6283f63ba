"""Reports of steps, written where people look at them. Each writer is called with a report; both take the same arguments and
refuse the same mistakes."""

from __future__ import annotations

import csv
import operator
import os
from typing import Any, Mapping, Sequence

from ._suture import Report


def _figures(report: Report, extra: Mapping[str, float]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, value in report.to_dict().items():
        if isinstance(value, tuple):
            figures.update({f"{name}.{i}": float(x) for i, x in enumerate(value)})
        elif name not in ("step", "n_losses"):
            figures[name] = float(value)
    for name, value in extra.items():
        if name in figures or name in report.to_dict():
            raise ValueError(f"'{name}' is a figure of the report already; give it another name")
        try:
            figures[name] = float(value.detach() if hasattr(value, "detach") else value)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"{name} is {value!r:.80}, not a number") from None
    return figures


class _Writer:
    """
    What the writers share: which figures of which reports are written.

    :param only: names of the figures that are wanted (``["cos_p", "relative_change"]``, or one entry, ``"cos_p.0"``); None: all.
    :param every: write every so many reports.
    """

    def __init__(self, only: Sequence[str] | None, every: int) -> None:
        if isinstance(only, str) or not (only is None or all(isinstance(name, str) for name in only)):
            raise TypeError(f"only is {only!r:.80}; a list of names of figures is needed")
        try:
            self._every = operator.index(every)
        except TypeError:
            raise TypeError(f"every is {every!r:.80}, not an integer") from None
        if self._every < 1:
            raise ValueError(f"every is {every}; 1 or more is needed")
        self._only = None if only is None else list(only)
        self._seen = 0
        self._names: list[str] | None = None  # of the first report that was written, with "step"

    def __call__(self, report: Report | None, **extra: float) -> None:
        """
        :param report: what a step gave.
        :param extra: figures of your own (``loss=0.5``); the same ones each time.
        """
        if report is None:
            raise TypeError("there is no report: step with report=True (keep_reports = True for step() of suture.torch)")
        if not isinstance(report, Report):
            raise TypeError(f"a report of a step is needed, this is of type {type(report).__name__}")
        if self._seen % self._every:
            self._seen += 1
            return
        row: dict[str, float] = {}
        for name, value in _figures(report, extra).items():
            if self._only is None or name in self._only or name.split(".")[0] in self._only or name in extra:
                row[name] = value
        if self._names is None:
            known = {"step", *row, *(name.split(".")[0] for name in row)}
            missing = [name for name in self._only or () if name not in known]
            if missing:
                raise ValueError(f"a report has no figure '{missing[0]}'; there are {', '.join(report.to_dict())}")
            self._begin(list(row))
            self._names = list(row)
        new = [name for name in row if name not in self._names]
        if new:
            raise ValueError(
                f"'{new[0]}' is not among the columns, which the first report fixed; begin a writer of its own when the number "
                "of losses grows"
            )
        self._write(report.step, row)
        self._seen += 1

    def _begin(self, names: list[str]) -> None:
        """Before the first row."""

    def _write(self, step: int, row: Mapping[str, float]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """What was written is complete."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class CSVWriter(_Writer):
    """
    One row per report: the step and every figure of the report, entries per loss as ``cos_p.0``, ``cos_p.1``, ...

        with suture.CSVWriter("conflicts.csv") as log:
            for ...:
                log(opt.step_losses(losses), loss=total)

    :param path: written anew.
    :param only: names of the figures that are wanted (``["cos_p", "relative_change"]``); None: all.
    :param every: write every so many reports.
    """

    def __init__(self, path: str | os.PathLike[str], only: Sequence[str] | None = None, every: int = 1) -> None:
        super().__init__(only, every)
        self._file = open(path, "w", newline="")
        self._rows: csv.DictWriter[str] | None = None

    def _begin(self, names: list[str]) -> None:
        self._rows = csv.DictWriter(self._file, ["step", *names])
        self._rows.writeheader()

    def _write(self, step: int, row: Mapping[str, float]) -> None:
        assert self._rows is not None
        self._rows.writerow({"step": step, **row})

    def close(self) -> None:
        self._file.close()


class TensorBoardWriter(_Writer):
    """
    The same as scalars below ``tag``, with the step as the abscissa.

        log = suture.TensorBoardWriter(SummaryWriter())

    :param writer: anything with ``add_scalar(name, value, step)``: the SummaryWriter of torch.utils.tensorboard or of
        tensorboardX. It stays yours: close() flushes it.
    :param only, every: as in :class:`CSVWriter`.
    """

    def __init__(self, writer: Any, only: Sequence[str] | None = None, every: int = 1, *, tag: str = "suture") -> None:
        super().__init__(only, every)
        if not callable(getattr(writer, "add_scalar", None)):
            raise TypeError(f"writer is of type {type(writer).__name__}, which has no method add_scalar; pass a SummaryWriter")
        self._writer, self._tag = writer, tag

    def _write(self, step: int, row: Mapping[str, float]) -> None:
        for name, value in row.items():
            self._writer.add_scalar(f"{self._tag}/{name}", value, step)

    def close(self) -> None:
        flush = getattr(self._writer, "flush", None)
        if flush is not None:
            flush()
