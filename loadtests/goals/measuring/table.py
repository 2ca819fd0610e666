"""Table: goal, must and now of every row, as Markdown with aligned columns. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lab.compare.reporting.figures import Estimate
from lab.compare.reporting.wording import NOTHING, interval, number
from loadtests.goals.measuring.measured import Measured, standing
from loadtests.goals.measuring.rows import ROWS, Row

HEAD = ("figure", "of", "goal", "must", "now (95 %)", "before", "")
NOT_MEASURED, NO_MEASURE = "not measured", "not measured: there is no measure yet"


def table(
    found: Mapping[str, Measured], before: Mapping[str, float], measures: Collection[str], rows: Sequence[Row] = ROWS
) -> str:
    """`found` and `before` are by row; figures of no row are last. `measures`: existing ones."""
    lines = [HEAD, *(_line(row, found.get(row.name), before, row.measure in measures) for row in rows)]
    known = {row.name for row in rows}
    lines += [_beside(each, before) for each in found.values() if each.row not in known]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = tuple("-" * width for width in widths)
    return "".join(f"| {_row(each, widths)} |\n" for each in (lines[0], rule, *lines[1:]))


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))


def _line(row: Row, found: Measured | None, before: Mapping[str, float], has_measure: bool) -> tuple[str, ...]:
    said = standing(row, found).value if found else NOT_MEASURED if has_measure else NO_MEASURE
    return (row.name, row.of, f"{row.goal:g}", f"{row.must:g}", _now(found), _before(row.name, before), said)


def _beside(found: Measured, before: Mapping[str, float]) -> tuple[str, ...]:
    return (found.row, "beside the goals", NOTHING, NOTHING, _now(found), _before(found.row, before), "")


def _now(found: Measured | None) -> str:
    if found is None:
        return NOTHING
    return interval(Estimate(found.now, found.low, found.high, found.samples, found.samples))


def _before(row: str, before: Mapping[str, float]) -> str:
    return number(before[row]) if row in before else NOTHING
