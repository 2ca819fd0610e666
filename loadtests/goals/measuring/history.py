"""History: results in a CSV, a line for each row and run, appended and never rewritten."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import msgspec


class Broken(ValueError):
    """The file is invalid; the message gives file, line and reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where and when a run was: `time` as RFC 3339; `commit` of the checkout, or ""."""

    time: str
    commit: str
    cores: int
    processor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Where):
    """`goal` and `must` at that time; None: the row had none."""

    row: str
    now: float
    low: float
    high: float
    samples: int
    goal: float | None = None
    must: float | None = None


COLUMNS = tuple(each.name for each in fields(Line))


class History:
    """A file of such lines, read once. Raises Broken and OSError if it exists and is unreadable."""

    def __init__(self, file: Path) -> None:
        self._file, self._lines = file, _read(file)

    def keep(self, line: Line) -> None:
        """Appends the line, unless the file has it: a run can be read again. Raises OSError."""
        if any(_same(line, each) and line.row == each.row for each in self._lines):
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", newline="") as there:
            rows = csv.writer(there, lineterminator="\n")
            if not there.tell():
                rows.writerow(COLUMNS)
            rows.writerow(_cell(value) for value in astuple(line))
        self._lines.append(line)

    def before(self, runs: Collection[Where]) -> dict[str, float]:
        """Returns by row the latest value of a run that is none of these."""
        return {line.row: line.now for line in self._lines if not any(_same(line, run) for run in runs)}


def _cell(value: float | str | None) -> float | str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else value


def _same(line: Where, run: Where) -> bool:
    return (line.time, line.commit) == (run.time, run.commit)


def _read(file: Path) -> list[Line]:
    try:
        text = file.read_text()
    except FileNotFoundError:
        return []
    if not text:
        return []
    if not text.endswith("\n"):
        # An appended line would become a part of it.
        raise Broken(f"{file}, line {len(text.splitlines())}: it was cut off; mend it, or give another --history")
    reader = csv.reader(io.StringIO(text))
    if tuple(header := next(reader)) != COLUMNS:
        raise Broken(f"{file}, line 1: the columns should be {','.join(COLUMNS)}, found {','.join(header)}")
    lines = []
    for cells in reader:
        try:
            named = {name: cell for name, cell in zip(COLUMNS, cells, strict=True) if cell or name == "commit"}
            lines.append(msgspec.convert(named, Line, strict=False))
        except (ValueError, msgspec.ValidationError) as error:
            raise Broken(f"{file}, line {reader.line_num}: {error}; mend it, or give another --history") from None
    return lines
