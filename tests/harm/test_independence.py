"""What judges the service has nothing of it: no module of the witness imports any other than its own and libraries."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import loadtests.harm

MODULES = sorted(Path(loadtests.harm.__path__[0]).glob("*.py"))
ALLOWED = {"msgspec", "loadtests"}


def imported(module: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.stem))
def test_the_witness_imports_nothing_that_decides(module: Path) -> None:
    for name in imported(module):
        first = name.partition(".")[0]
        assert first in ALLOWED or first in sys.stdlib_module_names, f"{module.name} imports {name}"
        assert first != "loadtests" or name.startswith("loadtests.harm"), f"{module.name} imports {name}"
