"""docs/mutation.md: its table names modules that there are, and adds up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "mutation.md").read_text()
ROWS = [
    [cell.strip() for cell in row.strip("|").split("|")]
    for row in re.findall(r"^\| (?:\w+/\w+|all) \|.*$", TEXT, re.MULTILINE)
]


def test_every_row_is_of_a_module() -> None:
    modules = [row[0] for row in ROWS[:-1]]
    assert [each for each in modules if not (ROOT / "extender" / f"{each}.py").exists()] == []
    assert len(set(modules)) == len(modules) > 40


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_adds_up(row: list[str]) -> None:
    _, mutants, refused, untried, tried, killed, survived, share = row
    assert int(mutants) == int(refused) + int(untried) + int(tried)
    assert int(tried) == int(killed) + int(survived)
    assert share == (f"{100 * int(killed) / int(tried):.1f}" if int(tried) else "")


def test_the_last_row_is_their_sum() -> None:
    *modules, total = ROWS
    assert total[0] == "all"
    assert [sum(int(row[column]) for row in modules) for column in range(1, 7)] == [int(each) for each in total[1:7]]


def test_every_survivor_is_listed() -> None:
    groups = re.findall(r"^(\d+)\. [A-Z`]", TEXT, re.MULTILINE)
    assert sum(map(int, groups)) == int(ROWS[-1][6])
