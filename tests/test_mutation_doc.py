"""docs/mutation.md: its table adds up and names modules that there are; survivors are of functions that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "mutation.md").read_text()
ROWS = [
    [cell.strip() for cell in row.strip("|").split("|")] for row in re.findall(r"^\| (?:\w+/\w+|all) \|.*$", TEXT, re.M)
]
SURVIVORS = re.findall(r"^- `(\w+/\w+)`, ((?:`[\w.]+`(?:, )?)+):", TEXT, re.M)


def functions(module: str) -> set[str]:
    """Names of functions, with those of their classes."""
    tree = ast.parse((ROOT / "extender" / f"{module}.py").read_text())
    classes = [each for each in tree.body if isinstance(each, ast.ClassDef)]
    return {each.name for each in _functions(tree.body)} | {
        f"{owner.name}.{each.name}" for owner in classes for each in _functions(owner.body)
    }


def _functions(body: list[ast.stmt]) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [each for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_every_module_has_its_row_or_is_named() -> None:
    modules = {
        f"{room}/{path.stem}"
        for room in ("core", "filters", "esl", "app")
        for path in (ROOT / "extender" / room).glob("*.py")
    }
    assert {row[0] for row in ROWS} - {"all"} <= modules
    assert [each for each in sorted(modules) if f"{each}" not in TEXT and not each.endswith("__init__")] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_adds_up(row: list[str]) -> None:
    _, mutants, refused, tried, killed, survived, share = row
    assert int(mutants) == int(refused) + int(tried)
    assert int(tried) == int(killed) + int(survived)
    assert share == (f"{100 * int(killed) / int(tried):.1f}" if int(tried) else "")


def test_the_last_row_is_their_sum() -> None:
    *modules, total = ROWS
    assert total[0] == "all"
    assert [sum(int(row[column]) for row in modules) for column in range(1, 6)] == [int(each) for each in total[1:6]]


def test_survivors_are_in_functions_that_there_are() -> None:
    named = [(module, name) for module, names in SURVIVORS for name in re.findall(r"`([\w.]+)`", names)]
    assert named
    assert [(module, name) for module, name in named if name not in functions(module)] == []
