"""Every row of docs/failures.md names tests, and they exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "failures.md").read_text().splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| what fails |"))
]


@cache
def names_in(path: str) -> frozenset[str]:
    """`name` of each test of a module, `Class::name` of those in classes."""
    body = ast.parse((ROOT / path).read_text()).body
    classes = (each for each in body if isinstance(each, ast.ClassDef))
    return frozenset(_names(body) | {f"{each.name}::{name}" for each in classes for name in _names(each.body)})


def _names(body: list[ast.stmt]) -> set[str]:
    functions = (each for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return {each.name for each in functions if each.name.startswith("test_")}


def test_every_failure_has_its_row() -> None:
    assert len(ROWS) > 20
    assert {len(row) for row in ROWS} == {4}


@pytest.mark.parametrize("row", ROWS, ids=[f"{number} {row[0][:40]}" for number, row in enumerate(ROWS)])
def test_the_tests_of_a_row_exist(row: list[str]) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", row[3])
    assert len(named) == row[3].count("`") / 2 > 0
    assert [f"{path}::{name}" for path, name in named if name not in names_in(path)] == []
