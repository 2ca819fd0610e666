"""docs/mutation.md: its tables name modules that there are, and add up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GONE = {"app/desk", "app/policies"}
"""Measured then, and no more there."""
PARTS = (ROOT / "docs" / "mutation.md").read_text().split("\n## The modules of")


def _rows(part: str) -> list[list[str]]:
    found = re.findall(r"^\| (?:\w+(?:/\w+)+|all) \|.*$", part, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in found]


both = pytest.mark.parametrize("part", PARTS, ids=["the first", "those of First do no harm"])


def test_there_are_two_tables() -> None:
    assert [len(_rows(part)) > 20 for part in PARTS] == [True, True]


@both
def test_every_row_is_of_a_module(part: str) -> None:
    modules = [row[0] for row in _rows(part)[:-1]]
    assert {each for each in modules if not (ROOT / "extender" / f"{each}.py").exists()} <= GONE
    assert len(set(modules)) == len(modules)


@pytest.mark.parametrize("row", [row for part in PARTS for row in _rows(part)], ids=lambda row: row[0])
def test_a_row_adds_up(row: list[str]) -> None:
    _, mutants, refused, untried, tried, killed, survived, share = row
    assert int(mutants) == int(refused) + int(untried) + int(tried)
    assert int(tried) == int(killed) + int(survived)
    assert share == (f"{100 * int(killed) / int(tried):.1f}" if int(tried) else "")


@both
def test_the_last_row_is_their_sum(part: str) -> None:
    *modules, total = _rows(part)
    assert total[0] == "all"
    assert [sum(int(row[column]) for row in modules) for column in range(1, 7)] == [int(each) for each in total[1:7]]


@both
def test_every_survivor_is_listed(part: str) -> None:
    groups = re.findall(r"^(\d+)\. [A-Z`]", part, re.MULTILINE)
    assert sum(map(int, groups)) == int(_rows(part)[-1][6])
